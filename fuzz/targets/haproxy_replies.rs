//! What HAProxy answers at its socket: any bytes are read, or refused, and no server is made of less than its line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidelong_edge::fuzz;

fuzz_target!(|bytes: &[u8]| {
    let Some((commands, bytes)) = bytes.split_first() else { return };
    let servers = fuzz::haproxy(bytes, usize::from(*commands % 8));
    assert!(servers <= bytes.iter().filter(|byte| **byte == b'\n').count());
});
