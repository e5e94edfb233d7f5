//! What the fuzzers of `fuzz/` drive: the protocols' halves, without sockets. `cargo fuzz` alone builds it.

pub use crate::control::fuzz_endpoint as control_endpoint;
pub use crate::control::fuzz_sealed as sealed_bytes;
pub use crate::tcp::{fuzz_link as tcp_link, fuzz_target as tcp_target};
