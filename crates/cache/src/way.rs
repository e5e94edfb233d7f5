//! How another cache is reached, to be told what to carry out.

use std::net::SocketAddr;
use std::path::PathBuf;

use sidelong_fabric::control::Secret;

/// How another cache is reached.
#[derive(Clone, Debug)]
pub enum Way {
    /// At a Unix socket in the run directory, to which nobody has access but the user of the cluster.
    Socket(PathBuf),
    /// Over a network, sealed with the cluster's secret. Both must have `cluster` alike.
    Network {
        /// Where it listens.
        address: SocketAddr,
        /// The cluster's secret.
        secret: Secret,
        /// What all parts have alike.
        cluster: u64,
    },
}
