use proptest::prelude::*;

use super::*;

/// The published rules in their plainest form: lists of (key, bytes, mark), oldest first.
struct Naive {
    eviction: Eviction,
    room: u64,
    main: Vec<(u64, u64, u8)>,
    small: Vec<(u64, u64, u8)>,
    ghost: Vec<(u64, u64)>,
    hand: Option<u64>,
    has_evicted: bool,
}

fn sum(list: &[(u64, u64, u8)]) -> u64 {
    list.iter().map(|(_, bytes, _)| bytes).sum()
}

impl Naive {
    fn new(eviction: Eviction, room: u64) -> Self {
        let (main, small, ghost) = (Vec::new(), Vec::new(), Vec::new());
        Naive { eviction, room, main, small, ghost, hand: None, has_evicted: false }
    }

    /// Whether `key` is there; if not, it is inserted if it fits.
    fn ask(&mut self, key: u64, bytes: u64) -> bool {
        if let Some(at) = self.main.iter().position(|entry| entry.0 == key) {
            match self.eviction {
                Eviction::Lru => {
                    let entry = self.main.remove(at);
                    self.main.push(entry);
                }
                Eviction::Sieve => self.main[at].2 = 1,
                Eviction::S3Fifo => self.main[at].2 = self.main[at].2.saturating_add(1),
            }
            return true;
        }
        if let Some(entry) = self.small.iter_mut().find(|entry| entry.0 == key) {
            entry.2 = entry.2.saturating_add(1);
            return true;
        }
        let known = self.ghost.iter().position(|entry| entry.0 == key);
        known.map(|at| self.ghost.remove(at));
        let small_max = (self.room as f64 * 0.1) as u64;
        let is_s3 = self.eviction == Eviction::S3Fifo;
        if bytes > if is_s3 { small_max } else { self.room } {
            return false;
        }
        while sum(&self.main) + sum(&self.small) + bytes > self.room {
            self.evict(small_max);
        }
        if !is_s3 || known.is_some() {
            self.main.push((key, bytes, 0));
        } else if bytes < small_max {
            let overflows = !self.has_evicted && sum(&self.small) >= small_max;
            if overflows { &mut self.main } else { &mut self.small }.push((key, bytes, 0));
        }
        false
    }

    fn evict(&mut self, small_max: u64) {
        match self.eviction {
            Eviction::Lru => {
                self.main.remove(0);
            }
            Eviction::Sieve => {
                let hand = self.hand.and_then(|key| self.main.iter().position(|entry| entry.0 == key));
                let mut at = hand.unwrap_or(0);
                while self.main[at].2 > 0 {
                    self.main[at].2 = 0;
                    at = (at + 1) % self.main.len();
                }
                self.hand = self.main.get(at + 1).map(|entry| entry.0);
                self.main.remove(at);
            }
            Eviction::S3Fifo => self.evict_s3(small_max),
        }
    }

    fn evict_s3(&mut self, small_max: u64) {
        self.has_evicted = true;
        if sum(&self.main) > self.room - small_max || self.small.is_empty() {
            while self.main[0].2 > 0 {
                let (key, bytes, mark) = self.main.remove(0);
                self.main.push((key, bytes, mark.min(3) - 1));
            }
            self.main.remove(0);
            return;
        }
        while !self.small.is_empty() {
            let (key, bytes, mark) = self.small.remove(0);
            if mark >= 2 {
                self.main.push((key, bytes, 0));
                continue;
            }
            let ghost_max = (self.room as f64 * 0.9) as u64;
            if bytes <= ghost_max {
                while self.ghost.iter().map(|entry| entry.1).sum::<u64>() + bytes > ghost_max {
                    self.ghost.remove(0);
                }
                self.ghost.push((key, bytes));
            }
            return;
        }
    }
}

const ALL: [Eviction; 3] = [Eviction::Lru, Eviction::Sieve, Eviction::S3Fifo];

fn naive_keys(naive: &Naive) -> Vec<u64> {
    let mut keys: Vec<_> = naive.main.iter().chain(&naive.small).map(|entry| entry.0).collect();
    keys.sort_unstable();
    keys
}

fn keys(store: &Store<u64>) -> Vec<u64> {
    let mut keys: Vec<_> =
        store.slots.iter().filter(|slot| is_present(slot.queue())).map(|slot| slot.key).collect();
    keys.sort_unstable();
    keys
}

proptest! {
    /// Each request hits or misses as the rules require, evictions are reported, and places name the right objects.
    #[test]
    fn it_keeps_and_lets_go_by_the_published_rules(
        room in 1u64..400,
        requests in proptest::collection::vec(0u64..60, 1..600),
        eviction in proptest::sample::select(&ALL),
    ) {
        let mut store = Store::new(eviction, Room::bytes(room));
        let mut naive = Naive::new(eviction, room);
        let mut known: Vec<(u64, Place)> = Vec::new();
        for key in requests {
            let bytes = if key % 5 == 0 { 1 } else { key % 29 + 1 };
            let found = store.get(key);
            prop_assert_eq!(found.is_some(), naive.ask(key, bytes));
            if found.is_none() {
                let before = keys(&store);
                let mut gone = Vec::new();
                let place = store.insert(key, bytes as u32, !key, |went| gone.push(went));
                prop_assert!(gone.iter().all(|went| before.contains(&went.key) && went.value == !went.key));
                prop_assert!(gone.iter().all(|went| !store.holds(went.place, went.key)));
                prop_assert_eq!(place.is_some(), store.peek(key).is_some());
                known.extend(place.map(|place| (key, place)));
            }
            prop_assert_eq!(keys(&store), naive_keys(&naive));
            prop_assert_eq!(store.bytes(), sum(&naive.main) + sum(&naive.small));
            for (key, place) in &known {
                prop_assert_eq!(store.holds(*place, *key), store.peek(*key) == Some(*place));
            }
        }
    }

    /// Removal leaves nothing behind and affects no other object.
    #[test]
    fn what_is_removed_is_gone_and_the_rest_stays(
        steps in proptest::collection::vec((0u64..40, any::<bool>()), 1..400),
        eviction in proptest::sample::select(&ALL),
    ) {
        let mut store = Store::new(eviction, Room::bytes(30));
        let mut there = std::collections::BTreeSet::new();
        for (key, remove) in steps {
            if remove {
                prop_assert_eq!(store.remove(key).is_some(), there.remove(&key));
            } else if store.get(key).is_none() {
                let place = store.insert(key, 1, key, |gone| _ = there.remove(&gone.key));
                if place.is_some() {
                    there.insert(key);
                }
            }
            prop_assert_eq!(keys(&store), there.iter().copied().collect::<Vec<_>>());
        }
    }
}

#[test]
fn lru_lets_go_in_order_of_what_was_asked_long_before_anything_had_to() {
    let mut store = Store::new(Eviction::Lru, Room::entries(20));
    // Accessed keys, the latest last.
    let mut order: Vec<u64> = Vec::new();
    for i in 0..5_000u64 {
        let key = i * i % 23 % 20;
        order.retain(|known| *known != key);
        if i % 7 == 0 {
            store.remove(key);
            continue;
        }
        if store.get(key).is_none() {
            store.insert(key, 1, (), |gone| panic!("{} had room", gone.key));
        }
        order.push(key);
    }
    let mut gone = Vec::new();
    (100..120).for_each(|key| _ = store.insert(key, 1, (), |went| gone.push(went.key)));
    assert!(order.len() > 5, "{order:?}");
    assert_eq!(gone, order);
}

#[test]
fn a_slot_that_is_used_again_is_another_place() {
    let mut store = Store::new(Eviction::Lru, Room::entries(1));
    let first = store.insert(1, 1, (), |_| ()).unwrap();
    let second = store.insert(2, 1, (), |gone| assert_eq!(gone.key, 1)).unwrap();
    assert_eq!(first.slot, second.slot);
    assert!(!store.holds(first, 1) && !store.holds(first, 2) && store.holds(second, 2));
    assert!(!store.holds(second, 1) && !store.holds(Place { slot: 9, generation: 0 }, 2));
    store.remove(2);
    assert!(!store.holds(second, 2) && store.value_mut(second).is_none());
}

#[test]
fn objects_without_bytes_are_bounded_too() {
    let mut store = Store::new(Eviction::S3Fifo, Room { bytes_max: 1_000, entries_max: 8 });
    for key in 0..100 {
        store.insert(key, 0, (), |_| ());
        assert!(store.len() <= 8 && store.queues[usize::from(GHOST)].len <= 8);
    }
}

#[test]
fn tables_stay_within_64_bytes_an_object() {
    // The worst case: an index that has just been doubled, and values of 8 bytes.
    for objects in [3_000u32, 12_500, 100_000, 200_000] {
        let mut store = Store::new(Eviction::Lru, Room::entries(objects));
        (0..3 * u64::from(objects)).for_each(|key| _ = store.insert(key, 1, 0u64, |_| ()));
        let each = store.table_bytes() as f64 / f64::from(objects);
        assert!(each <= 64.0, "{objects} objects: {each:.1} bytes each");
    }
}
