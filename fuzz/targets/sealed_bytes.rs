//! What an end of a connection between two machines makes of its bytes, before and after the handshake.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sidelong_fabric::fuzzing::sealed_bytes(bytes));
