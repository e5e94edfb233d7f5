//! The cluster file: the parts of a shared data-center and its settings, in TOML.
//!
//! - [`ClusterFile`] is the file as it is written: one field for each key, with its default. [`ClusterFile::load`] and
//!   [`ClusterFile::parse`] refuse unknown keys and unusable values; the error has `FILE:LINE`, what was found, and what was
//!   expected. Programs that make files, such as the lab, fill one in and call [`ClusterFile::to_toml`].
//! - [`Cluster`] is the meaning of the file: nodes are expanded, named and assigned to sites, and over-provisioned pools
//!   have grown. The processes of a cluster read the same file and so agree on every index.
//! - [`diff`] compares two files key by key, and says what each change takes in a cluster that runs.
//!
//! Times are [`std::time::Duration`]s here and numbers in the file, in the unit that the key ends with (`lease_ms`).
//!
//! Enums whose values are words are declared by the crate that acts on them, such as [`Balance`] in policy; the file embeds
//! them. Those that only choose among parts are declared here.
//! This crate reads the file, looks up the host names in it, and the place for a run directory. It does no other I/O: the part that opens a port or a trace
//! finds out whether it can.
#![forbid(unsafe_code)]

mod address;
mod check;
mod cluster;
mod diff;
pub mod edit;
mod error;
mod file;
mod hosts;
mod lines;
mod parse;
mod run_dir;
mod secret;
mod sections;
mod slots;
mod time;
mod words;

pub use check::{HOST_EXPECTED, is_host};
pub use cluster::{Cluster, Edge, Front, Group, Node, Site};
pub use diff::{Change, Takes, diff, live};
pub use error::{Error, Location, Result};
pub use file::{
    ClusterFile, EdgeEntry, FrontEntry, Identity, NodeEntry, RateEntry, Ready, Serves, SiteEntry, Tls,
};
pub use hosts::{Hosts, forget_others, have_changed, is_nowhere, look_up_again, lowest};
pub use parse::FILE_BYTES_MAX;
pub use run_dir::default_run_dir;
pub use secret::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, Secret, SecretText};
pub use sections::{
    Admission, Balancing, Baseline, CACHE_PEERS_MAX, CachePeer, Caching, Etcd, Ganglia, Limits, Load,
    Reconfig, Verbs, Workload,
};
pub use sidelong_layout::Slots;
pub use sidelong_os::ServerAddress;
pub use sidelong_policy::admission::{AdmissionRule, Target};
pub use sidelong_policy::balance::Balance;
pub use sidelong_policy::cache::store::Eviction;
pub use sidelong_policy::index::Weights;
pub use sidelong_state::{Drain, Protocol, Scheme};
pub use slots::{BoardStanding, CacheStanding, Capacity, SlotNames, SlotTable, Standing};
pub use words::{
    Completion, Configuration, ControlledBy, Fabric, Forwarded, LoadMode, MovedBy, Proxy, Service,
    WorkloadKind,
};
