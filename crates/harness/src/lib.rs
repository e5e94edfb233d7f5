//! Processes on this machine, and how programs of other makes are configured, started, watched and ended: for `sidelong up`, the lab
//! and the tests.
//!
//! Nothing here reads arguments, handles a signal or prints. No part of a cluster depends on this crate.
#![forbid(unsafe_code)]

pub mod agents;
mod error;
pub mod front;
pub mod gunicorn;
pub mod parent;
pub mod ports;
pub mod process;
pub mod programs;
pub mod scans;
pub mod serving;
pub mod up;
pub mod usage;
pub mod words;

pub use sidelong_app::cgroup;

pub use error::{Error, Result, file};
