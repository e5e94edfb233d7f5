//! The data path over sockets.

mod support;

mod threads;
