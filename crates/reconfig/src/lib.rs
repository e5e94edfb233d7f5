//! Carries out moves of nodes between sites: the words of a cluster as regions, and the machines of `state` driven over
//! links to them.
//!
//! `policy` decides, `state` says which operations in which order, this crate posts them. Whoever holds a [`Mover`] may
//! be an edge (load-balancer-based reconfiguration, R 3.1) or a node (server-based, R's baseline): they differ in their
//! number as lock owners and in nothing else.
#![forbid(unsafe_code)]

mod backoff;
mod links;
mod mover;
mod offer;

pub use backoff::Backoff;
pub use links::{Links, LinksError, Scan, SiteWords};
pub use mover::{Ended, How, Mover, Protocol};
pub use offer::{BOARD, BoardInit, board_map, load_region, offer_board, offer_words, words_region};
