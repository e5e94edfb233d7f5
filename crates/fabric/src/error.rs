//! What can go wrong: with one operation ([`OpError`]), or in setting up ([`Error`]).

use std::io;
use std::path::PathBuf;

use sidelong_layout::HeaderError;

use crate::batch::OP_BYTES_MAX;
use crate::control::{Cause, SECRET_BYTES_MAX, SECRET_BYTES_MIN};
use crate::host::NAME_BYTES_MAX;

/// Why one operation of a batch failed. The others of the batch are not touched by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpError {
    /// The batch was not run.
    #[error("the operation was not run")]
    NotRun,
    /// Beyond the region's end.
    #[error("out of bounds: {len} bytes at {offset} of a region of {region}")]
    OutOfBounds {
        /// Where it began, in bytes.
        offset: usize,
        /// How long it was.
        len: usize,
        /// The region's length.
        region: usize,
    },
    /// Not at a multiple of 8 bytes, or a write not of a multiple of 8.
    #[error("misaligned: {len} bytes at {offset}; operations work on 8-byte words")]
    Misaligned {
        /// Where it began, in bytes.
        offset: usize,
        /// How long it was.
        len: usize,
    },
    /// Longer than one operation may be.
    #[error("{len} bytes in one operation, {OP_BYTES_MAX} at most: split it")]
    TooLong {
        /// How long it was.
        len: usize,
    },
    /// A write or atomic on a read-only key.
    #[error("the key grants reading only")]
    ReadOnly,
    /// No answer in time. It may have taken effect, or may yet.
    #[error("no completion before the deadline")]
    Timeout,
    /// The link is down and stays down: the peer died or left. It may have taken effect. Close the link and connect anew.
    #[error("the peer is gone")]
    PeerGone,
    /// The target does not know the key: it restarted, or revoked it.
    #[error("the key is not, or no longer, valid at the target")]
    KeyRejected,
    /// The link was closed by this side.
    #[error("the link is closed")]
    Closed,
    /// A message to a region without an inbox, or whose owner has dropped it.
    #[error("the region has no inbox")]
    NoInbox,
    /// The inbox holds as many messages as it can: its owner does not take them out as fast as they come. Try again.
    #[error("the inbox is full")]
    InboxFull,
    /// Longer than the inbox takes.
    #[error("a message of {len} bytes, more than the inbox takes")]
    MessageTooLong {
        /// How long it was.
        len: usize,
    },
}

/// Why a region could not be offered or a link not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file behind a region could not be made.
    #[error("cannot create region {path}: {source}{}", hint(.source))]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A name that a region cannot have.
    #[error(
        "region name {name:?}: 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`, the first not a `.`"
    )]
    Name {
        /// As given.
        name: String,
    },
    /// The file behind a region could not be opened.
    #[error("cannot open region {path}: {source}{}", hint(.source))]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Memory could not be mapped.
    #[error("cannot map {len} bytes for region {name}: {source}")]
    Map {
        /// The region.
        name: String,
        /// Its length in bytes.
        len: usize,
        /// What the system said.
        source: io::Error,
    },
    /// Another live process offers a region of that name.
    #[error(
        "region {path} is offered by a process that is still alive: stop it, or use another run directory"
    )]
    Taken {
        /// The file; with other backends than shm, the name.
        path: PathBuf,
    },
    /// The region is not what the reader expects.
    #[error("region {name}: {source}")]
    Header {
        /// The region.
        name: String,
        /// What differs.
        source: HeaderError,
    },
    /// Nobody published a key of that name.
    #[error("no key for region {name} in {place}: is its process running?")]
    NoKey {
        /// The region.
        name: String,
        /// Where it was looked for.
        place: String,
    },
    /// A published key that cannot be read.
    #[error("key file {path}: {reason}")]
    BadKey {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The run directory cannot be used.
    #[error("run directory {path}: {source}{}", hint(.source))]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The run directory belongs to a running cluster.
    #[error("{path} is in use by a running sidelong (process {pid}): stop it, or choose another run_dir")]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who holds it.
        pid: String,
    },
    /// The tcp backend could not listen.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The tcp backend could not connect.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where.
        address: std::net::SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The target speaks another version of the tcp protocol, or something else altogether.
    #[error("{address} does not speak version {expected} of Sidelong's protocol: {found}")]
    Protocol {
        /// Where.
        address: std::net::SocketAddr,
        /// What this build speaks.
        expected: u32,
        /// What the target answered.
        found: String,
    },
    /// A process of the cluster and this one do not take each other for what they say.
    #[error("{address}: {cause}")]
    Control {
        /// The process's control endpoint.
        address: std::net::SocketAddr,
        /// Why not.
        cause: Cause,
    },
    /// A process of the cluster does not do what it was asked.
    #[error("{address} declines: {reason}")]
    Declined {
        /// Its control endpoint.
        address: std::net::SocketAddr,
        /// In its own words.
        reason: String,
    },
    /// A region that is reached over verbs, by an initiator that has none.
    #[error("{name} is offered over verbs: {reason}")]
    NoVerbs {
        /// The region.
        name: String,
        /// What is missing.
        reason: &'static str,
    },
    /// An RDMA device did not do what was asked.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Device(#[from] crate::verbs::DeviceError),
    /// A cluster's secret that is none.
    #[error("the secret has {bytes} bytes: {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} are needed")]
    SecretLength {
        /// How many it has.
        bytes: usize,
    },
    /// A file with a cluster's secret that cannot be used.
    #[error("secret file {path}: {reason}")]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The target refused the link.
    #[error("{name}: the target refused the link: {reason}")]
    Refused {
        /// The region.
        name: String,
        /// As the target said.
        reason: OpError,
    },
    /// A key of another simulated network, or of no simulated one.
    #[error("{name}: not a region of this simulated network")]
    OtherNetwork {
        /// The region.
        name: String,
    },
}

/// What the operator can do about it, for the errors that people meet.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => " (is /dev/shm full? free some of it, or set run_dir elsewhere)",
        io::ErrorKind::PermissionDenied => " (run as the directory's owner, or set run_dir elsewhere)",
        _ => "",
    }
}
