//! The cache over its protocols, in memory and over sockets.

mod support;

mod memcached;
mod neighbours;
mod session;
mod threads;
