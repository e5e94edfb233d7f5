//! RDMA: InfiniBand and RoCE through verbs, by reliable connections. The adapters do the work; after set-up no thread of
//! the target runs.
//!
//! | part | what it is |
//! |---|---|
//! | `sys` | the calls to libibverbs, behind safe functions, and who owns a buffer in flight |
//! | `device` | a device, as an operator names it |
//! | `error` | why a device cannot be used |
//! | `setup` | what the two ends tell each other first |
//! | `host` | the target's side |
//! | `inbox` | messages to it: buffers that wait for them, and a word that tells senders how far it is |
//! | `link` | the initiator's side |
//! | `outbox` | what it knows of a region's inbox |
//!
//! A program that has it starts without libibverbs, which is loaded when it is there; [`Device::open`] says what is
//! missing. A connection is for one region. It is asked for over a session with the target's control endpoint
//! ([`crate::control`]), which proves to each side that the other is of the cluster, and it ends with that session.
//!
//! iWARP is refused: its connections are made by the RDMA connection manager, over which no session of ours runs.
//!
//! Every wait is bounded: a machine that has died without a word is reported after 2 retries of 34 ms each
//! ([`DeviceSpec::retries`]), a process that has, at once, as its session ends.

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
use crate::key::Token;

/// The kind of request by which a connection is asked for at the control endpoint.
pub(crate) const KIND: u8 = b'V';

/// Where a connection begins to count, of 24 bits: what a peer of an earlier one still sends is not taken for its own.
fn random_sequence() -> io::Result<u32> {
    Token::random().map(|token| token.0 as u32 & 0x00ff_ffff)
}
