//! What another cache of the cluster has in the memory that this one reads.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: ([u8; 64], u32, u16, &[u8])| {
    let (life, entry_bytes, at, bytes) = input;
    sidelong_cache::fuzzing::memory(life, entry_bytes, at, bytes);
});
