use std::collections::HashMap;

use proptest::prelude::*;
use sidelong_policy::cache::store::Eviction;

use super::*;

const MB: usize = 1 << 20;

fn cache(memory_bytes: usize, eviction: Eviction) -> Cache {
    let item_bytes_max = memory_bytes / 2;
    Cache::new(Settings { memory_bytes, item_bytes_max, eviction, evicts: true, seed: [1, 2] }).unwrap()
}

/// Numbers that look random, the same in each run (Marsaglia 2003, xorshift64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// One of `keys`, some of which are wanted far more often than others.
    fn popular(&mut self, keys: u64) -> u64 {
        let part = self.below(1 << 20) as f64 / f64::from(1 << 20);
        (keys as f64 * part * part * part) as u64
    }
}

/// Bytes that tell whose they are, and which.
fn value(key: u64, version: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (key.wrapping_mul(31) ^ version.wrapping_mul(17) ^ at) as u8).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Put { key: u8, len: usize, expires_in: u32 },
    Get(u8),
    Touch { key: u8, expires_in: u32 },
    Remove(u8),
    Flush { after: u32 },
    Wait(u32),
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![4 => 0usize..300, 2 => 0usize..5_000, 1 => 100_000usize..400_000];
    let expires_in = prop_oneof![3 => Just(0u32), 1 => 1u32..5];
    prop_oneof![
        8 => (any::<u8>(), len, expires_in.clone()).prop_map(|(key, len, expires_in)| Step::Put { key, len, expires_in }),
        8 => any::<u8>().prop_map(Step::Get),
        1 => (any::<u8>(), expires_in).prop_map(|(key, expires_in)| Step::Touch { key, expires_in }),
        2 => any::<u8>().prop_map(Step::Remove),
        1 => (0u32..3).prop_map(|after| Step::Flush { after }),
        1 => (1u32..3).prop_map(Step::Wait),
        1 => Just(Step::Sweep),
    ]
}

#[test]
fn what_is_over_is_freed_though_nobody_asks_for_it() {
    const ITEMS: u64 = 20_000;
    let fill = |cache: &mut Cache, expires| {
        for key in 0..ITEMS {
            cache.put(&key.to_le_bytes(), b"value", 0, expires, None, 1).unwrap();
        }
        assert_eq!((cache.usage().items, cache.usage().evicted), (ITEMS, 0));
    };
    let mut cache = cache(16 * MB, Eviction::Sieve);
    fill(&mut cache, 5);
    let full = cache.usage().memory_bytes;
    (0..5).for_each(|_| cache.sweep(4));
    assert_eq!(cache.usage().items, ITEMS);
    (0..5).for_each(|_| cache.sweep(5));
    let Usage { items, swept, expired, memory_bytes, .. } = cache.usage();
    assert_eq!((items, swept, expired), (0, ITEMS, ITEMS));
    assert!(memory_bytes < full, "{memory_bytes} of {full}");
    fill(&mut cache, 0);
    cache.flush(6, 6);
    (0..5).for_each(|_| cache.sweep(6));
    let Usage { items, swept, expired, evicted, .. } = cache.usage();
    assert_eq!((items, swept, expired, evicted), (0, 2 * ITEMS, ITEMS, 0));
}

/// A full cache whose items are all over.
#[test]
fn what_is_over_is_not_counted_as_evicted() {
    let mut cache = cache(MEMORY_BYTES_MIN, Eviction::Lru);
    let mut put = |keys: Range<u64>, expires, now| {
        for key in keys {
            cache.put(&key.to_le_bytes(), &[0; 1000], 0, expires, None, now).unwrap();
        }
        cache.usage()
    };
    let full = put(0..20_000, 9, 1);
    assert!(full.evicted > 10_000);
    let later = put(20_000..20_000 + full.items, 0, 9);
    assert_eq!((later.evicted, later.expired), (full.evicted, full.items));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Against a map without bounds: what is found is what was stored last and is still valid; what is missing was evicted;
    /// and memory stays within its bound.
    #[test]
    fn what_is_found_was_stored_last(
        steps in proptest::collection::vec(step(), 1..1_500),
        eviction in prop_oneof![Just(Eviction::Lru), Just(Eviction::Sieve), Just(Eviction::S3Fifo)],
    ) {
        let mut cache = cache(MEMORY_BYTES_MIN, eviction);
        let mut model: HashMap<u8, (Vec<u8>, u32)> = HashMap::new();
        let (mut now, mut flush_at) = (1, 0);
        for (version, step) in (0u64..).zip(steps) {
            let may_miss = cache.usage().evicted > 0 || eviction == Eviction::S3Fifo;
            if flush_at != 0 && flush_at <= now {
                model.clear();
                flush_at = 0;
            }
            model.retain(|_, (_, expires)| *expires == 0 || *expires > now);
            let expires = |expires_in| if expires_in == 0 { 0 } else { now + expires_in };
            match step {
                Step::Put { key, len, expires_in } => {
                    let bytes = value(key.into(), version, len);
                    // If it is not stored, what was there may have been evicted for it.
                    if cache.put(&[key], &bytes, len as u32, expires(expires_in), None, now).is_ok() {
                        model.insert(key, (bytes, expires(expires_in)));
                    }
                }
                Step::Get(key) => {
                    let found = cache.get(&[key], now).map(|item| (item.value.to_vec(), item.flags));
                    let wanted = model.get(&key).map(|(bytes, _)| (bytes.clone(), bytes.len() as u32));
                    prop_assert!(found == wanted || (found.is_none() && may_miss));
                }
                Step::Touch { key, expires_in } => {
                    let is_there = cache.touch(&[key], expires(expires_in), now);
                    prop_assert!(!is_there || model.contains_key(&key));
                    model.entry(key).and_modify(|(_, old)| *old = expires(expires_in));
                }
                Step::Remove(key) => {
                    let is_there = cache.remove(&[key], now);
                    prop_assert!(is_there == model.remove(&key).is_some() || may_miss);
                }
                Step::Flush { after } => {
                    flush_at = now + after;
                    cache.flush(flush_at, now);
                }
                Step::Wait(seconds) => now += seconds,
                Step::Sweep => cache.sweep(now),
            }
            prop_assert!(cache.usage().memory_bytes <= MEMORY_BYTES_MIN as u64);
        }
    }
}

#[test]
fn a_value_has_its_own_number_and_keeps_it_when_touched() {
    let mut cache = cache(MEMORY_BYTES_MIN, Eviction::Sieve);
    let first = cache.put(b"k", b"one", 0, 0, None, 1).unwrap();
    assert!(cache.touch(b"k", 9, 1));
    assert_eq!(cache.peek(b"k", 1).map(|item| (item.cas, item.expires)), Some((first, 9)));
    let second = cache.put(b"k", b"two", 0, 0, None, 1).unwrap();
    assert!(second > first);
    assert_eq!(cache.put(b"k", b"six", 0, 0, Some(77), 1), Ok(77));
}

#[test]
fn a_fetch_tells_of_the_fetch_before() {
    let mut cache = cache(MEMORY_BYTES_MIN, Eviction::Sieve);
    cache.put(b"k", b"v", 0, 0, None, 1).unwrap();
    let mut fetch = |now| cache.get(b"k", now).map(|item| (item.was_fetched, item.accessed));
    assert_eq!([fetch(3), fetch(7), fetch(8)], [Some((false, 1)), Some((true, 3)), Some((true, 7))]);
}

#[test]
fn memory_stays_in_bounds_whatever_the_sizes() {
    for eviction in [Eviction::Lru, Eviction::Sieve, Eviction::S3Fifo] {
        let mut cache = cache(16 * MB, eviction);
        let mut numbers = Numbers(7);
        for _ in 0..5_000 {
            let key = numbers.below(40_000);
            let len = match numbers.below(100) {
                0 => numbers.below(4 << 20),
                1..10 => numbers.below(200 << 10),
                _ => numbers.below(400),
            };
            _ = cache.put(&key.to_ne_bytes(), &vec![1; len as usize], 0, 0, None, 1);
            assert!(cache.usage().memory_bytes <= 16 * MB as u64, "{eviction:?}");
        }
        let usage = cache.usage();
        assert!(usage.evicted > 0 && usage.items > 100, "{eviction:?}: {usage:?}");
    }
}

#[test]
fn small_items_fill_most_of_the_memory() {
    let mut cache = cache(32 * MB, Eviction::Sieve);
    for key in 0u64..400_000 {
        cache.put(&key.to_ne_bytes(), &[7; 100], 0, 0, None, 1).unwrap();
    }
    // 144 bytes are the header, the key, the value and the rounding up; 44 more the tables and what they have to spare.
    let usage = cache.usage();
    assert!(usage.items > 32 * MB as u64 / 200, "{usage:?}");
}

/// The part of requests that hit, for items of `len` bytes of which three times as many are asked for as fit, once all memory
/// was stored anew. What is missed is stored.
fn hit_ratio(cache: &mut Cache, len: usize) -> f64 {
    let (mut numbers, mut hits) = (Numbers(5), 0);
    let fit = (cache.settings().memory_bytes / len) as u64;
    let turns = 4 * fit;
    for turn in 0..turns {
        let key = numbers.popular(3 * fit) | (len as u64) << 32;
        if cache.get(&key.to_ne_bytes(), 1).is_some() {
            hits += u64::from(turn >= turns / 2);
        } else {
            cache.put(&key.to_ne_bytes(), &vec![1; len], 0, 0, None, 1).unwrap();
        }
    }
    hits as f64 / (turns / 2) as f64
}

#[test]
fn a_change_of_sizes_costs_no_hits_for_long() {
    for eviction in [Eviction::Lru, Eviction::Sieve] {
        let mut changed = cache(64 * MB, eviction);
        for len in [200, 3_000, 40_000] {
            let after = hit_ratio(&mut changed, len);
            let fresh = hit_ratio(&mut cache(64 * MB, eviction), len);
            assert!(
                after > 0.98 * fresh,
                "{eviction:?}, {len} bytes: {after} hit, {fresh} after a fresh start"
            );
        }
    }
}

#[test]
fn a_full_cache_that_may_not_evict_refuses() {
    let settings = Settings { evicts: false, ..*cache(MEMORY_BYTES_MIN, Eviction::Sieve).settings() };
    let mut cache = Cache::new(settings).unwrap();
    let mut stored = 0u64;
    while cache.put(&stored.to_ne_bytes(), &[3; 1000], 0, 0, None, 1).is_ok() {
        stored += 1;
    }
    assert!(stored > 6_000);
    assert_eq!(cache.put(b"more", &[3; 1000], 0, 0, None, 1), Err(PutError::NoMemory));
    // What cannot be replaced stays.
    assert_eq!(cache.put(&0u64.to_ne_bytes(), &[3; 3000], 0, 0, None, 1), Err(PutError::NoMemory));
    assert!((0..stored).all(|key| cache.get(&key.to_ne_bytes(), 1).is_some()));
    assert!(cache.remove(&0u64.to_ne_bytes(), 1));
    assert!(cache.put(b"more", &[3; 1000], 0, 0, None, 1).is_ok());
}

#[test]
fn sizes_that_few_items_have_leave_little_unused() {
    const MEMORY_BYTES: usize = 16 * MB;
    for eviction in [Eviction::Sieve, Eviction::Lru] {
        let mut cache = cache(MEMORY_BYTES, eviction);
        let mut numbers = Numbers(11);
        for key in 0u64..150_000 {
            // Log-normal around 100 bytes, up to 20 KB: twelve uniform numbers make a normal one.
            let uniform = (0..12).map(|_| numbers.below(1 << 20) as f64 / f64::from(1 << 20));
            let len = 100.0 * (1.3 * (uniform.sum::<f64>() - 6.0)).exp();
            let value = vec![1; len.clamp(1.0, 20_000.0) as usize];
            cache.put(&key.to_ne_bytes(), &value, 0, 0, None, 1).unwrap();
        }
        let used = cache.usage().item_bytes as usize + cache.places.table_bytes();
        assert!(used > MEMORY_BYTES / 100 * 84, "{eviction:?}: {used} bytes");
    }
}
