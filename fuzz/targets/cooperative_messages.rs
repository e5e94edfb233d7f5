//! What other nodes of the cooperative cache send to one that has asked two of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| sidelong_rams::fuzzing::messages(input.0, input.1));
