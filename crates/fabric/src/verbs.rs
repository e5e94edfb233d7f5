//! The RDMA backend: InfiniBand and RoCE through verbs, over reliable connections.
//!
//! The adapters do the work. After set-up no thread of the target runs.
//!
//! | part | what it is |
//! |---|---|
//! | `sys` | the calls to libibverbs, behind safe functions, and who owns a buffer in flight; in `sys::abi` its declarations |
//! | `device` | a device, as an operator names it |
//! | `error` | why a device cannot be used |
//! | `setup` | the messages by which two ends set up a connection |
//! | `host` | the target's side |
//! | `inbox` | the target's inbox: receive buffers, and a word that tells each sender the progress |
//! | `link` | the initiator's side |
//! | `outbox` | the initiator's knowledge of an inbox |
//!
//! The program starts without libibverbs, and loads it if it is installed; [`Device::open`] reports what is missing. A
//! connection serves one region. It is requested over a session with the target's control endpoint ([`crate::control`]),
//! where both sides prove that they belong to the cluster, and ends with that session.
//!
//! iWARP is refused: its connections need the RDMA connection manager, which a control session cannot replace.
//!
//! Every wait is bounded. A machine that dies silently is reported after 2 retries of 34 ms each
//! ([`DeviceSpec::retries`]), and a process that dies is reported at once, because its session ends.

mod device;
mod error;
mod host;
mod inbox;
mod link;
mod outbox;
mod setup;
mod sys;

use std::io;

pub(crate) use inbox::Receiver;
pub(crate) use link::Links;

pub use self::device::{Completions, Counters, Device, DeviceSpec, RETRIES_MAX};
pub use self::error::DeviceError;
pub use self::host::{Connected, VerbsHost};
pub use self::sys::{Note, QueuePair, Registered, Work};
use crate::access::Token;

/// The kind of control request that asks for a connection.
pub(crate) const KIND: u8 = b'V';

/// A connection's first sequence number, of 24 bits. It is random, so that packets of an earlier connection are not
/// accepted.
fn random_sequence() -> io::Result<u32> {
    Token::random().map(|token| token.0 as u32 & 0x00ff_ffff)
}
