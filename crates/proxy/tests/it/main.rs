//! The data path, over sockets and over pipes.

mod ends;
mod http1;
mod http2;
mod pair;
mod support;
mod threads;
