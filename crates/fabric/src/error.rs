//! Errors of one operation ([`OpError`]) and of set-up ([`Error`]).

use std::io;
use std::path::PathBuf;

use sidelong_layout::HeaderError;

use crate::control::Cause;
use crate::limits::{LINKS_MAX, NAME_BYTES_MAX, OP_BYTES_MAX, SECRET_BYTES_MAX, SECRET_BYTES_MIN};

/// Why one operation of a batch failed. The other operations of the batch are unaffected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpError {
    /// The batch was not run.
    #[error("the operation was not run")]
    NotRun,
    /// The operation reaches beyond the region's end.
    #[error("out of bounds: {len} bytes at {offset} of a region of {region}")]
    OutOfBounds {
        /// Its offset, in bytes.
        offset: usize,
        /// Its length, in bytes.
        len: usize,
        /// The region's length, in bytes.
        region: usize,
    },
    /// The offset is not a multiple of 8 bytes, or the length of a write is not.
    #[error("misaligned: {len} bytes at {offset}; operations work on 8-byte words")]
    Misaligned {
        /// Its offset, in bytes.
        offset: usize,
        /// Its length, in bytes.
        len: usize,
    },
    /// The operation is longer than [`OP_BYTES_MAX`].
    #[error("{len} bytes in one operation, {OP_BYTES_MAX} at most: split it")]
    TooLong {
        /// Its length, in bytes.
        len: usize,
    },
    /// A write or atomic with a read-only key.
    #[error("the key grants reading only")]
    ReadOnly,
    /// No answer before the deadline. The operation may have taken effect, or may yet.
    #[error("no completion before the deadline")]
    Timeout,
    /// The link is down and stays down, because the peer died or left. The operation may have taken effect. Close the
    /// link and connect again.
    #[error("the peer is gone")]
    PeerGone,
    /// The target does not know the key, because it restarted or revoked the key.
    #[error("the key is not, or no longer, valid at the target")]
    KeyRejected,
    /// This side closed the link.
    #[error("the link is closed")]
    Closed,
    /// A message to a region without an inbox, or whose owner has dropped the inbox.
    #[error("the region has no inbox")]
    NoInbox,
    /// The inbox is full, because its owner takes messages out more slowly than they arrive. Try again.
    #[error("the inbox is full")]
    InboxFull,
    /// The message is longer than the inbox accepts.
    #[error("a message of {len} bytes, more than the inbox takes")]
    MessageTooLong {
        /// Its length, in bytes.
        len: usize,
    },
}

impl Error {
    /// Whether nobody was found who exposes the region: none has published it, or a refusal came from where it was exposed. On one
    /// machine that is the kernel's word. On several a firewall refuses, too: see [`Directory::has_ended`](crate::Directory::has_ended).
    pub fn found_nobody(&self) -> bool {
        match self {
            Error::NoKey { .. } => true,
            Error::Open { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Error::Connect { source, .. } => source.kind() == io::ErrorKind::ConnectionRefused,
            _ => false,
        }
    }

    /// Whether there is no room for a region.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Create { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }
}

/// Why a region could not be exposed, or a link not established.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file behind a region could not be created.
    #[error("cannot create region {path}: {source}{}", hint(.source))]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An invalid name for a region.
    #[error(
        "region name {name:?}: 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`, the first not a `.`"
    )]
    Name {
        /// The name as given.
        name: String,
    },
    /// The file behind a region could not be opened.
    #[error("cannot open region {path}: {source}{}", hint(.source))]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Memory could not be mapped.
    #[error("cannot map {len} bytes for region {name}: {source}")]
    Map {
        /// The region.
        name: String,
        /// Its length in bytes.
        len: usize,
        /// The system's error.
        source: io::Error,
    },
    /// Another live process exposes a region of that name.
    #[error(
        "region {path} is exposed by a process that is still alive: stop it, or use another run directory"
    )]
    Taken {
        /// The file; the name on backends other than shm.
        path: PathBuf,
    },
    /// The region's header is not what the reader expects.
    #[error("region {name}: {source}")]
    Header {
        /// The region.
        name: String,
        /// What differs.
        source: HeaderError,
    },
    /// The initiator has [`LINKS_MAX`] links.
    #[error(
        "cannot link to region {name}: there are {LINKS_MAX} links already, and a thread may have no more"
    )]
    TooManyLinks {
        /// The region.
        name: String,
    },
    /// The error of an attempt that was made or begun earlier. The next one follows after a pause.
    #[error(transparent)]
    Earlier(Box<Error>),
    /// No process has published a key of that name.
    #[error("no key for region {name} in {place}: is its process running?")]
    NoKey {
        /// The region.
        name: String,
        /// Where the key was looked for.
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
        /// The system's error.
        source: io::Error,
    },
    /// The run directory belongs to a running cluster.
    #[error("{path} is in use by a running sidelong (process {pid}): stop it, or choose another run_dir")]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process that holds it.
        pid: String,
    },
    /// The tcp backend could not listen.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The tcp backend could not connect.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The target speaks another version of the tcp protocol, or another protocol.
    #[error("{address} does not speak version {expected} of Sidelong's protocol: {found}")]
    Protocol {
        /// The address.
        address: std::net::SocketAddr,
        /// The version of this build.
        expected: u32,
        /// The target's answer.
        found: String,
    },
    /// The control endpoint of a process and this process refuse each other.
    #[error("{address}: {cause}")]
    Control {
        /// The process's control endpoint.
        address: std::net::SocketAddr,
        /// The reason.
        cause: Cause,
    },
    /// A process of the cluster declines a request.
    #[error("{address} declines: {reason}")]
    Declined {
        /// Its control endpoint.
        address: std::net::SocketAddr,
        /// The reason that it gave.
        reason: String,
    },
    /// The region is exposed over verbs, and this initiator has no device.
    #[error("{name} is exposed over verbs, and this initiator was given no RDMA device")]
    NoVerbs {
        /// The region.
        name: String,
    },
    /// An RDMA device failed.
    #[error(transparent)]
    Device(#[from] crate::verbs::DeviceError),
    /// The length of a cluster's secret is out of range.
    #[error("the secret has {bytes} bytes: {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} are needed")]
    SecretLength {
        /// Its length.
        bytes: usize,
    },
    /// A file with a cluster's secret cannot be used.
    #[error("secret file {path}: {reason}")]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The target refused the link.
    #[error("{name}: the target refused the link: {reason}")]
    Refused {
        /// The region.
        name: String,
        /// The reason that the target gave.
        reason: OpError,
    },
    /// The key belongs to another simulated network, or to none.
    #[error("{name}: not a region of this simulated network")]
    OtherNetwork {
        /// The region.
        name: String,
    },
}

/// Advice for the operator, for the errors that occur in practice.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => " (is /dev/shm full? free some of it, or set run_dir elsewhere)",
        io::ErrorKind::PermissionDenied => " (run as the directory's owner, or set run_dir elsewhere)",
        _ => "",
    }
}
