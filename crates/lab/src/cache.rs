//! What the cache costs, beside memcached.
//!
//! | experiment | question |
//! |---|---|
//! | K1 (`commands`) | what gets and sets cost a cache by itself |
//! | K2 (`neighbour`) | what an item costs that another cache of the cluster holds |
//! | K3 (`hot`) | what it costs the home of a key that everybody asks for |
//! | K4 (`busy`) | what the work of the home's CPU costs who reads its items |
//! | K5 (`death`) | what the others' clients notice when a cache is killed |
//! | K6 (`trace`) | how often caches that are one miss, beside one |
//! | K7 (`held`) | how many items have room |
//!
//! Servers share one CPU, and the client has another. In K1 to K4 the systems take turns, because the machine's speed drifts, and what
//! is not in its turn is stopped (SIGSTOP). The ratios within a round are judged.

mod busy;
mod client;
mod commands;
mod death;
mod demand;
mod held;
mod hot;
mod neighbour;
mod servers;
mod trace;

pub(crate) use busy::K4;
pub(crate) use commands::K1;
pub(crate) use death::K5;
pub(crate) use held::K7;
pub(crate) use hot::K3;
pub(crate) use neighbour::K2;
pub(crate) use trace::K6;
