//! Carries out moves of nodes between sites: the words of a cluster as regions, and the machines of `state`, driven
//! over links to them.
//!
//! `policy` decides, `state` determines the operations and their order, this crate posts them. A [`Mover`] belongs to
//! an edge (load-balancer-based reconfiguration, Balaji et al. 2004, 3.1) or to a node (server-based, the baseline of
//! that paper). The two differ only in their number as lock owners.
#![forbid(unsafe_code)]

mod links;
mod mover;
mod offer;

pub use links::{Links, OPERATION_MAX, Scan, SiteWords};
pub use mover::{Cause, MOVES_MAX, Mover, Report, Task};
pub use offer::{
    BoardInit, board_map, board_region, front_region, load_region, offer_board, offer_changing_words,
    offer_front, offer_words, words_region,
};
pub use sidelong_state::Protocol;
