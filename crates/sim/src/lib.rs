//! The discrete-event simulator.
//!
//! | module | what it is |
//! |---|---|
//! | [`engine`] | events in order of time, and the servers that they pass through |
//!
//! A simulation runs on one thread and is a function of its arguments: the same seed gives the same bytes, however many
//! of them run at once. Nothing here asks a clock or draws a lot of its own.
#![forbid(unsafe_code)]

pub mod engine;

pub use sidelong_policy::Time;
