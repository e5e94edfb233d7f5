//! What the cache costs, beside memcached.
//!
//! | experiment | question |
//! |---|---|
//! | K1 (`commands`) | what gets and sets cost a cache by itself |
//! | K2 (`neighbour`) | what an item costs that another cache of the cluster holds |
//! | K3 (`hot`) | what it costs the home of a key that everybody asks for |
//!
//! Servers share one CPU, and the client has another. The systems take turns, because the machine's speed drifts, and what is not in
//! its turn is stopped (SIGSTOP). The ratios within a round are judged.

mod client;
mod commands;
mod hot;
mod neighbour;
mod servers;

pub(crate) use commands::run as commands;
pub(crate) use hot::run as hot;
pub(crate) use neighbour::run as neighbour;
