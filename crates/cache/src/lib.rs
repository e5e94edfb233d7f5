//! A cache that memcached's clients use unmodified.
//!
//! | module | what it does |
//! |---|---|
//! | [`cache`] | items in bounded memory: lookup, replacement, expiry, eviction |
//! | `command` | what memcached's commands do to items, whatever the protocol |
//! | `protocol` | text, meta and binary: bytes to commands, and answers to bytes |
//! | [`session`] | one client: consumes what arrived, and appends the answers |
//! | `neighbours`, [`Near`] | the other caches of a cluster: their memory, and copies of their items |
//! | [`documents`] | documents that nodes keep, and how others read them |
//! | [`counters`], `stats` | what was done, and how `stats` shows it |
//!
//! | [`server`] | one thread that drives sessions over sockets |
//! | `published` | its figures, for another thread |
//!
//! All but the server does no I/O and reads no clock: the driver hands in bytes and the time.
#![forbid(unsafe_code)]

/// What a cache answers to `version`: the release of memcached whose dialect it speaks, and nothing else, because clients parse it as
/// a number. `stats` has the cache's own version as well.
pub const VERSION: &str = "1.6.45";

pub mod cache;
mod check;
mod command;
pub mod counters;
pub mod documents;
mod frame;
#[cfg(fuzzing)]
pub mod fuzzing;
mod heap;
mod listing;
mod near;
pub mod neighbours;
mod outgoing;
mod protocol;
mod published;
mod reader;
pub mod server;
pub mod session;
mod stats;
mod way;

pub use cache::{Cache, Item, PutError, Settings};
pub use command::{Addresses, Host, Login, Row, Rows, Users, World};
pub use counters::Counters;
pub use near::Near;
pub use published::Published;
pub use session::{Fed, Session, Wants};
