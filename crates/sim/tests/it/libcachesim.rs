//! The misses of the stores equal those of libCacheSim 0.3.5, to the request.
//!
//! The figures below are that library's, through its Python package (`pip install libcachesim==0.3.5`): one
//! `LRU`, `Sieve` or `S3FIFO(cache_size=bytes)` and `get(Request(obj_id=, obj_size=))` for each request of the same
//! two traces, without metadata. Both are in the repository or made from a seed, so that anybody can repeat it.

use sidelong_policy::cache::store::{Eviction, Room, Store};
use sidelong_trace::{Sizes, Zipf, sample};

/// Keys and sizes; an object has the size of its first request with a body, and at least a byte.
fn world_cup() -> Vec<(u64, u32)> {
    let trace = sample();
    let mut sizes = std::collections::BTreeMap::new();
    for request in trace.requests() {
        let size = sizes.entry(request.object).or_insert(0);
        *size = if *size == 0 { request.size.unwrap_or(0) } else { *size };
    }
    trace.requests().iter().map(|request| (request.object, sizes[&request.object].max(1) as u32)).collect()
}

fn zipf() -> Vec<(u64, u32)> {
    let sizes = Sizes::LogNormal { bytes_median: 11_580, sigma: 1.318, bytes_max: 1 << 20 };
    let zipf = Zipf::new(0.9, 20_000, sizes, 1).unwrap();
    let requests = (0..200_000).map(|i| zipf.object(i));
    requests.map(|object| (object.id, object.bytes.max(1) as u32)).collect()
}

fn misses(eviction: Eviction, bytes_max: u64, requests: &[(u64, u32)]) -> usize {
    let mut store = Store::new(eviction, Room::bytes(bytes_max));
    let mut misses = 0;
    for &(key, bytes) in requests {
        if store.get(key).is_none() {
            misses += 1;
            store.insert(key, bytes, (), |_| ());
        }
    }
    misses
}

#[test]
fn misses_are_those_of_libcachesim() {
    let (world_cup, zipf) = (world_cup(), zipf());
    let cases = [
        ("WorldCup98", &world_cup, 200_000, [7_787, 6_644, 4_192]),
        ("WorldCup98", &world_cup, 1_000_000, [3_513, 2_563, 2_395]),
        ("WorldCup98", &world_cup, 4_000_000, [2_298, 1_866, 1_470]),
        ("Zipf", &zipf, 4_000_000, [148_730, 127_741, 123_191]),
        ("Zipf", &zipf, 40_000_000, [94_390, 78_484, 78_356]),
        ("Zipf", &zipf, 120_000_000, [61_215, 54_025, 53_629]),
    ];
    for (name, requests, bytes_max, theirs) in cases {
        let ours = [Eviction::Lru, Eviction::Sieve, Eviction::S3Fifo]
            .map(|eviction| misses(eviction, bytes_max, requests));
        assert_eq!(ours, theirs, "{name}, {bytes_max} bytes: LRU, SIEVE, S3-FIFO");
    }
}
