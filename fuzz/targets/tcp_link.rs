//! What a reader makes of the bytes with which a region's owner answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sidelong_fabric::fuzzing::tcp_link(bytes));
