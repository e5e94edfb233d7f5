//! The discrete-event simulator.
//!
//! | module | what it is |
//! |---|---|
//! | [`engine`] | events in order of time, and the servers that they pass through |
//! | [`cluster`] | C's cluster as a model, around the cooperative cache of `sidelong-policy` |
//! | [`datacenter`] | R's shared data-center as a model, around its reconfigurer, over fabric's simulated network |
//! | [`config`], [`fields`] | the file that says what to simulate, and every field of it |
//! | [`sweep`] | its runs, on all cores, and what they write; [`merge`] joins its parts |
//! | [`costs`] | what the parts of a node take |
//! | [`workload`] | what is asked for, and when |
//! | [`speed`] | what is run to see how fast all this is |
//!
//! A simulation runs on one thread and is a function of its arguments: the same seed gives the same bytes, however many
//! of them run at once. Nothing here asks a clock or draws a lot of its own.
#![forbid(unsafe_code)]

pub mod cluster;
mod compare;
pub mod config;
pub mod costs;
pub mod datacenter;
pub mod engine;
mod error;
pub mod fields;
mod figure;
mod measures;
mod merge;
mod model;
mod report;
mod slab;
pub mod speed;
pub mod sweep;
pub mod workload;

pub use compare::compare;
pub use error::{Error, Result};
pub use measures::Outcome;
pub use merge::merge;
pub use model::Model;
pub use sidelong_policy::Time;
