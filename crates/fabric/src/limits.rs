//! Bounds of what the fabric takes, on every backend.

use std::time::Duration;

use sidelong_layout::{EDGES_MAX, NODES_MAX};

/// The longest name of a region, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// The longest operation, in bytes. It bounds what a target moves for one peer at a time. Longer operations fail with
/// [`OpError::TooLong`](crate::OpError::TooLong) on every backend.
pub const OP_BYTES_MAX: usize = 16 << 20;

/// Most bytes of all slots of one inbox.
pub const INBOX_BYTES_MAX: usize = 256 << 20;

/// Longest wait for a batch or a peer; longer timeouts are cut to it.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Most links of one initiator, on every backend: two to each node of the largest cluster, and one to the board or to
/// each edge.
pub const LINKS_MAX: usize = 1 << 15;

const _: () = assert!(2 * NODES_MAX < LINKS_MAX && EDGES_MAX <= LINKS_MAX);

/// Shortest secret, in bytes. An attacker who recorded a handshake can test guesses offline.
pub const SECRET_BYTES_MIN: usize = 16;
/// Longest secret, in bytes.
pub const SECRET_BYTES_MAX: usize = 1024;
