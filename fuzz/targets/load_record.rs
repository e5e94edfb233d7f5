//! Load records, as whoever may write their memory leaves them: what decisions get of them has a life and an age.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidelong_load::{Status, fuzz};

fuzz_target!(|input: (bool, Vec<fuzz::Written>)| {
    let (by_kernel, scans) = input;
    let readings = if by_kernel { fuzz::kept(&scans) } else { fuzz::record(&scans) };
    for reading in readings {
        assert_eq!(reading.fresh().is_some(), reading.status == Status::Fresh);
        assert!(reading.status != Status::Fresh || reading.age_ns < u64::MAX);
    }
});
