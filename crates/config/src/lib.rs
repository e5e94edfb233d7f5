//! The cluster file: what a shared data-center consists of and how it decides, in TOML.
//!
//! - [`ClusterFile`] is the file as it is written, one field a key, each with its default. [`ClusterFile::load`] and
//!   [`ClusterFile::parse`] refuse what they do not know or cannot use with `FILE:LINE`, what is wrong, and what was
//!   expected. Programs that make files (the lab) fill one in and call [`ClusterFile::to_toml`].
//! - [`Cluster`] is what the file means: nodes expanded and named, the sites' first nodes assigned, the
//!   over-provisioned pool grown. The processes of a cluster read the same file and so agree on every index.
//!
//! Times are [`std::time::Duration`]s here and numbers of milliseconds in the file, where the key says so (`lease_ms`).
//! Apart from reading the file that it is given this crate does no I/O: whether a port is free or a trace is there is
//! found out by whoever opens it.
#![forbid(unsafe_code)]

mod check;
mod cluster;
mod error;
mod file;
mod lines;
mod parse;
mod secret;
mod sections;
mod time;
mod words;

pub use cluster::{Cluster, Edge, Node, Site, Target, default_run_dir};
pub use error::{Error, Place, Result};
pub use file::{ClusterFile, EdgeEntry, Identity, NodeEntry, RateEntry, SiteEntry, Tls};
pub use parse::FILE_BYTES_MAX;
pub use secret::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, Secret, SecretText};
pub use sections::{Admission, Balance, Ganglia, Limits, Load, Reconfig, Verbs, Weights, Workload};
pub use words::{
    AdmissionRule, BalancePolicy, Completion, Configuration, Fabric, LoadMode, MovedBy, Protocol, Scheme,
    Service, WorkloadKind,
};
