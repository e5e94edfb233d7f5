//! What a control endpoint makes of the bytes of a connection, before and after the handshake.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sidelong_fabric::fuzzing::control_endpoint(bytes));
