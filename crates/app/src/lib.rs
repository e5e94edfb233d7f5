//! What a node, an edge, a front and a cache are made of: the crates below, put together by a cluster file.
//!
//! [`node::start`], [`edge::start`] and [`front::start`] start a part of a cluster on threads of its own and return it, so that a
//! process may have several. Each is given the cluster, its name there, and where its events go ([`PartSpec`]), and listeners
//! where the caller has opened them. It ends when it is told to ([`Shutdown`]). [`cache::Setup::serve`] serves a cache on the
//! calling thread.
//!
//! Nothing here reads arguments, handles a signal or prints. The program does, and so do tests in their own way.
#![forbid(unsafe_code)]

pub mod agents;
pub mod by_hand;
pub mod cache;
pub mod cgroup;
mod changer;
mod documents;
pub mod edge;
mod ended;
mod event;
mod fabric;
mod failure;
mod follower;
pub mod foreign;
pub mod front;
mod handover;
pub mod history;
mod hosts;
mod last_seen;
mod listen;
mod monitor;
pub mod node;
mod part;
mod parts;
mod reads;
mod regions;
pub mod reload;
pub mod roster;
pub mod rotation;
mod site_change;
mod stamp;

pub use event::Event;
pub use fabric::Fabric;
pub use failure::{Failure, some};
pub use monitor::Monitor;
pub use part::{Events, PartSpec, Running, Shutdown};
pub use parts::{Parts, certificates};
pub use sidelong_edge::Pulse;
