//! The discrete-event simulator.
//!
//! | module | what it is |
//! |---|---|
//! | [`engine`] | events in order of time, and the servers that work passes through |
//! | [`cluster`] | the cluster of Gu and Wang 2004 as a model, around the cooperative cache of `sidelong-rams` |
//! | [`datacenter`] | the shared data-center of Balaji et al. 2004 as a model, around `sidelong-policy`'s reconfigurer |
//! | [`config`], [`fields`] | the configuration file, and each of its fields |
//! | [`sweep`] | the runs of a configuration, on all cores, and the files that they write |
//! | [`costs`] | the time that each part of a node takes |
//! | [`workload`] | requests and when they arrive |
//! | [`speed`] | benchmarks of the simulator itself |
//!
//! A simulation runs on one thread and depends only on its arguments: the same seed gives the same bytes, on any number of
//! threads. Nothing here reads a clock or has a source of randomness of its own.
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
mod model;
mod report;
mod slab;
pub mod speed;
pub mod sweep;
pub mod workload;

pub use compare::compare;
pub use error::{Error, Result};
pub use measures::Outcome;
pub use model::Model;
pub use sidelong_policy::Time;
