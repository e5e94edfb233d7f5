//! The socket schemes, the baseline of the one-sided ones: a request and an answer over TCP for each sample
//! (Vaidyanathan et al. 2006, 3.1).
//!
//! | part | where it runs |
//! |---|---|
//! | [`Responder`] | on the node: a thread that answers, from the kept record (socket-async) or a new one (socket-sync) |
//! | [`Sockets`] | at the front end: asks all nodes at once |
//! | `frame` | their messages |
//! | `address` | how a front end finds a responder |

mod address;
mod frame;
mod responder;
mod sockets;

use std::io;
use std::time::Duration;

use rustix::time::Timespec;

pub use address::{find_address, publish_address};
pub use responder::{Responder, ResponderKind};
pub use sockets::{Finder, Sockets};

/// Whether a socket's error means "try later".
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}
