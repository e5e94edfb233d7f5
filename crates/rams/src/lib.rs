//! RAMS, the cooperative cache of Gu and Wang 2004, with its published protocols and ours: research code, which `sim` simulates and
//! `sidelong-lab sim live` runs on real memory. The cache that operators run is `cache`.
//!
//! | module | what it is |
//! |---|---|
//! | [`protocol`] | how nodes keep each other's references up to date, and the messages |
//! | [`peer`] | what one node keeps, reads and says: pure decisions, which the simulator drives, too |
//! | `node` | [`Node`]: carries these out over the fabric. An object lies in the region of its home, where others read it one-sidedly |
//! | `play` | the requests of a run, at a live node |
#![forbid(unsafe_code)]

#[cfg(fuzzing)]
pub mod fuzzing;
mod lists;
mod memory;
mod node;
pub mod peer;
#[allow(clippy::disallowed_methods, reason = "it drives a live node, and measures it")]
mod play;
pub mod protocol;
mod wire;

pub use memory::Map;
pub use node::{Event, Node};
pub use play::{Object, Part, Played, play};
