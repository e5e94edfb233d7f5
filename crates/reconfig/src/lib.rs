//! Carries out moves of nodes between sites: the words of a cluster as regions, and the machines of `state`, driven
//! over links to them.
//!
//! `policy` decides, `state` determines the operations and their order, this crate posts them. A [`Mover`] belongs to
//! an edge (load-balancer-based reconfiguration, Balaji et al. 2004, 3.1) or to a node (server-based, the baseline of
//! that paper). The two differ only in their number as lock owners.
#![forbid(unsafe_code)]

mod expose;
mod links;
mod mover;

pub use expose::{
    BoardInit, board_map, board_region, expose_board, expose_changing_words, expose_front, expose_words,
    expose_words_as, front_region, load_region, words_region,
};
pub use links::{FrontMember, Links, Members, OPERATION_MAX, Predecessor, Scan, SharedMembers, SiteWords};
pub use mover::{Cause, MOVES_MAX, Mover, Report, Task};
pub use sidelong_state::{Pool, Protocol, Timing};
