//! What another cache of the cluster sends: commands to carry out, and answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (u16, &[u8])| sidelong_cache::fuzzing::frames(input.0.into(), input.1));
