//! What a region's owner makes of the bytes of a connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sidelong_fabric::fuzzing::tcp_target(bytes));
