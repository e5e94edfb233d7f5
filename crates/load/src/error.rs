//! Errors of setting up. After set-up nothing fails: a record marks figures that are unavailable, and a reading marks a
//! node that cannot be read.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use sidelong_layout::HeaderError;

use crate::Scope;

/// Why load cannot be recorded, exposed or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// None of the files with the load of `scope` could be opened.
    #[error("cannot sample the load of {scope}: none of its files can be opened ({path}: {source})")]
    NothingToSample {
        /// The scope.
        scope: Scope,
        /// The first file that was tried.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The region cannot hold load records.
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
        /// The system's error.
        source: io::Error,
    },
    /// A responder could not listen.
    #[error("cannot listen for load requests on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel gave no socket to ask it about sockets.
    #[error("cannot ask the kernel about the server's sockets: {0}")]
    Listener(#[source] io::Error),
    /// The kernel gave no event queue.
    #[error("cannot watch sockets: {0}")]
    Watch(#[source] io::Error),
    /// A responder's address could not be published or read.
    #[error("address file {path}: {source}")]
    AddressFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No process has published an address of that name.
    #[error("no load responder of {name} in {place}: is its node running, under a socket scheme?", place = .place.display())]
    NoAddress {
        /// The node.
        name: String,
        /// Where the address was looked for.
        place: PathBuf,
    },
    /// A node could not be asked for its responder's address.
    #[error("cannot ask for the load responder of {name}: {source}")]
    Ask {
        /// The node.
        name: String,
        /// The reason.
        source: sidelong_fabric::Error,
    },
    /// A node answered with something other than its responder's address.
    #[error("node {name} gives `{text}` as its load responder: expected ADDRESS:PORT")]
    BadAnswer {
        /// The node.
        name: String,
        /// The answer.
        text: String,
    },
    /// A published address that cannot be parsed.
    #[error("address file {path}: found `{text}`, expected ADDRESS:PORT")]
    BadAddress {
        /// The file.
        path: PathBuf,
        /// Its first line.
        text: String,
    },
}
