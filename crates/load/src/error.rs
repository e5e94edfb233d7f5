//! What can go wrong in setting up. Once set up nothing here fails: a figure that cannot be had is marked so in its
//! record, and a node that cannot be read in its reading.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use sidelong_layout::HeaderError;

use crate::Scope;

/// Why load cannot be kept, offered or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not one of the files that tell the load of `scope` could be opened.
    #[error("the load of {scope} cannot be had, as no file that tells it opens ({path}: {source})")]
    NothingToSample {
        /// Whose load.
        scope: Scope,
        /// The first file that was tried.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The region is not one to keep load records in.
    #[error("region {name} cannot hold a load record: {source}")]
    Region {
        /// The region.
        name: String,
        /// What differs.
        source: HeaderError,
    },
    /// A thread could not be started.
    #[error("cannot start the thread {name}: {source}")]
    Thread {
        /// Its name.
        name: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A responder could not listen.
    #[error("cannot listen for load requests on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel's event queue could not be had.
    #[error("cannot watch sockets: {0}")]
    Watch(#[source] io::Error),
    /// A responder's address could not be published or read.
    #[error("address file {path}: {source}")]
    AddressFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody published an address of that name.
    #[error("no load responder of {name} in {place}: is its node running, under a socket scheme?", place = .place.display())]
    NoAddress {
        /// The node.
        name: String,
        /// Where it was looked for.
        place: PathBuf,
    },
    /// A node could not be asked for its responder's address.
    #[error("the load responder of {name} cannot be asked for: {source}")]
    Ask {
        /// The node.
        name: String,
        /// Why not.
        source: sidelong_fabric::Error,
    },
    /// A node was asked for its responder's address and told something else.
    #[error("the node {name} tells `{text}`, which is not ADDRESS:PORT, for its load responder")]
    BadAnswer {
        /// The node.
        name: String,
        /// What it told.
        text: String,
    },
    /// A published address that cannot be read.
    #[error("address file {path}: `{text}` is not ADDRESS:PORT")]
    BadAddress {
        /// The file.
        path: PathBuf,
        /// Its first line.
        text: String,
    },
}
