//! What others write for a front to read: a proxy's workers, or whoever has their group, and the other edges.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidelong_edge::fuzz;

fuzz_target!(|input: (Vec<fuzz::Written>, Vec<fuzz::Written>)| {
    fuzz::workers(&input.0);
    fuzz::shares(&input.1);
});
