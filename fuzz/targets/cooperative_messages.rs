//! What other nodes of the cooperative cache send to one that has asked two of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| sidelong_cache::fuzzing::cooperative(input.0, input.1));
