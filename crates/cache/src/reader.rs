//! A link to the memory of a cache that is the home of keys, and the reads over it.
//!
//! A read takes two batches: the two buckets in which the item may be listed, then the item. It returns a value only if
//! that was the key's value at one moment in between: its key is there in full, the bytes are those of one value, and the item
//! has neither expired nor been flushed. Where the memory is this machine's, reads take place in order: the bytes are of one value
//! if the stamp is the same before and after, and the home has not given the place to an item of another size meanwhile. Where a
//! device of another machine reads, they are if the item's [check](crate::check) fits them.
//!
//! A home withdraws an old value before it publishes a new one. So once a change was answered, no later read returns what was
//! there before. What is not read soundly in four tries is a miss, which a cache may answer at any time.

use std::hash::Hasher as _;
use std::mem::offset_of;
use std::ops::ControlFlow;
use std::time::Duration;

use sidelong_fabric::{Batch, Initiator, LinkId, OP_BYTES_MAX, OpError, OpId};
use sidelong_layout::{CACHE_ITEM_BYTES, CACHE_UNIT, CacheEntry, CacheItem, CacheLife, CacheMap, LINE_BYTES};
use sidelong_os::monotonic_ns;
use siphasher::sip::SipHasher13;

use crate::cache::{Seconds, hasher};
use crate::check;
use crate::neighbours::second;

/// Tries to read an item that its home is changing.
const TRIES_MAX: usize = 4;
/// The longest wait for what is read.
pub(crate) const PATIENCE: Duration = Duration::from_millis(10);
/// Nanoseconds of a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// A link to a home's memory.
pub(crate) struct Link {
    pub(crate) id: LinkId,
    map: CacheMap,
    hasher: SipHasher13,
    clock: Clock,
    /// Whether the last read was not answered in time.
    is_doubted: bool,
}

impl Link {
    /// Over the link `id`, to a home that hashes keys with the secret `seed`.
    pub(crate) fn new(id: LinkId, map: CacheMap, seed: [u64; 2]) -> Self {
        let clock = if map.is_remote() { Clock::Own(Age::default()) } else { Clock::Shared };
        Link { id, map, hasher: hasher(seed), clock, is_doubted: false }
    }

    /// A reader over the link `id`; `None` if the home has only begun, or cannot be read.
    pub(crate) fn open(
        id: LinkId,
        map: CacheMap,
        initiator: &mut Initiator,
        batch: &mut Batch,
    ) -> Option<Self> {
        batch.clear();
        // A home states its seed before this.
        let began_ns = batch.read(id, map.life() + offset_of!(CacheLife, began_ns), 8);
        initiator.run(batch, PATIENCE);
        if batch.value(began_ns).ok()? == 0 {
            return None;
        }
        batch.clear();
        let life = batch.read(id, map.life(), LINE_BYTES);
        initiator.run(batch, PATIENCE);
        Some(Link::new(id, map, life_of(batch, life).ok()?.seed))
    }

    /// The hash of a key there.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher;
        hasher.write(key);
        hasher.finish()
    }

    /// Whether items can be read: the last read was answered, and it is known what time it is there.
    pub(crate) fn is_ready(&self) -> bool {
        let knows_time = match &self.clock {
            Clock::Shared => true,
            Clock::Own(age) => age.stated.is_some(),
        };
        knows_time && !self.is_doubted
    }

    /// A read was not answered in time: nobody is to wait for another one before the next tick has been answered.
    pub(crate) fn doubt(&mut self) {
        self.is_doubted = true;
    }

    /// Reads how old the home is, if its clock is another one. To be called some ten times a second.
    pub(crate) fn tick(&mut self, initiator: &mut Initiator, batch: &mut Batch) -> Result<(), OpError> {
        let Clock::Own(age) = &mut self.clock else { return Ok(()) };
        batch.clear();
        let read = batch.read(self.id, self.map.life() + offset_of!(CacheLife, age_ns), 8);
        let asked_ns = monotonic_ns();
        initiator.run(batch, PATIENCE);
        age.was_read(batch.value(read)?, asked_ns);
        self.is_doubted = false;
        Ok(())
    }
}

/// What time it is at a home.
enum Clock {
    /// All processes of a machine have one clock, and the home says when it began.
    Shared,
    /// The home has its own, and says how old it is.
    Own(Age),
}

impl Clock {
    /// When it is now, if that matters: before the home's life is read.
    fn asked_ns(&self) -> u64 {
        match self {
            Clock::Shared => 0,
            Clock::Own(_) => monotonic_ns(),
        }
    }

    /// The home's second. Its life was read after `asked_ns`.
    fn second(&mut self, life: &CacheLife, asked_ns: u64) -> Option<Seconds> {
        match self {
            Clock::Shared => Some(second(life.began_ns, monotonic_ns())),
            Clock::Own(age) => {
                age.was_read(life.age_ns, asked_ns);
                age.second(monotonic_ns())
            }
        }
    }
}

/// How old a home is that says so some ten times a second, counted on from there by this machine's clock.
///
/// It stated its age after the last read was posted that found an earlier one. Counted from then, the home is not taken to be
/// younger than it is: nothing is read that has expired there, also while the home hangs. It is taken to be older by the time
/// between two reads at most, which is that of two ticks. As each statement begins the count anew, clocks need not be equally fast.
#[derive(Default)]
struct Age {
    /// As it was read last, and before which moment here that read was posted.
    read: Option<(u64, u64)>,
    /// An age, and a moment here at which the home was not older.
    stated: Option<(u64, u64)>,
}

impl Age {
    fn was_read(&mut self, age_ns: u64, asked_ns: u64) {
        if let Some((before_ns, since_ns)) = self.read
            && before_ns != age_ns
        {
            self.stated = Some((age_ns, since_ns));
        }
        self.read = Some((age_ns, asked_ns));
    }

    /// The home's second.
    fn second(&self, now_ns: u64) -> Option<Seconds> {
        let (age_ns, since_ns) = self.stated?;
        Some((age_ns.saturating_add(now_ns.saturating_sub(since_ns)) / SECOND_NS) as Seconds)
    }
}

fn life_of(batch: &Batch, op: OpId) -> Result<CacheLife, OpError> {
    batch.bytes(op).map(bytemuck::pod_read_unaligned)
}

/// One read of one key.
pub(crate) struct Reader<'a> {
    pub(crate) initiator: &'a mut Initiator,
    pub(crate) batch: &'a mut Batch,
    pub(crate) link: &'a mut Link,
    pub(crate) key: &'a [u8],
    /// Of the key, there.
    pub(crate) hash: u64,
}

/// What a read found.
pub(crate) enum ItemRead {
    Sound(Sound),
    /// It changed at each try.
    Torn,
}

/// A value that was the key's.
pub(crate) struct Sound {
    /// Its bytes in the batch.
    pub(crate) op: OpId,
    pub(crate) item: CacheItem,
    /// The second of its home.
    pub(crate) home_now: Seconds,
}

impl Reader<'_> {
    /// The key's item, or `None` if it has none.
    pub(crate) fn read(&mut self) -> Result<Option<ItemRead>, OpError> {
        for _ in 0..TRIES_MAX {
            match self.try_read()? {
                ControlFlow::Break(found) => return Ok(found.map(ItemRead::Sound)),
                ControlFlow::Continue(()) => {}
            }
        }
        Ok(Some(ItemRead::Torn))
    }

    fn run(&mut self) {
        self.initiator.run(self.batch, PATIENCE);
    }

    /// Goes on if the home changed something meanwhile.
    fn try_read(&mut self) -> Result<ControlFlow<Option<Sound>>, OpError> {
        let Link { id, map, .. } = *self.link;
        self.batch.clear();
        let life = self.batch.read(id, map.life(), LINE_BYTES);
        let buckets = map.buckets(self.hash).map(|at| self.batch.read(id, at, LINE_BYTES));
        self.run();
        let before = life_of(self.batch, life)?;
        let mut entries = [CacheEntry(0); 2 * LINE_BYTES / 8];
        let mut count = 0;
        for bucket in buckets {
            let listed = self.batch.words(bucket)?.iter().map(|word| CacheEntry(*word));
            for entry in listed.filter(|entry| entry.may_be(self.hash)) {
                entries[count] = entry;
                count += 1;
            }
        }
        for entry in &entries[..count] {
            match self.try_entry(*entry, &before)? {
                Tried::Other => {}
                Tried::Torn => return Ok(ControlFlow::Continue(())),
                Tried::Gone => return Ok(ControlFlow::Break(None)),
                Tried::Sound(sound) => return Ok(ControlFlow::Break(Some(sound))),
            }
        }
        Ok(ControlFlow::Break(None))
    }

    fn try_entry(&mut self, entry: CacheEntry, before: &CacheLife) -> Result<Tried, OpError> {
        let Link { id, map, hasher, .. } = *self.link;
        let start = entry.at() as usize * CACHE_UNIT;
        let room = map.items_bytes().saturating_sub(start);
        let at = map.items() + start;
        let bytes = match entry.bytes() {
            Some(bytes) => bytes,
            None => {
                self.batch.clear();
                let header = self.batch.read(id, at, CACHE_ITEM_BYTES.min(room));
                self.run();
                let header = self.batch.bytes(header)?;
                let header = bytemuck::try_pod_read_unaligned::<CacheItem>(header);
                header.map_or(0, |header| map.with_check(header.len()))
            }
        };
        if bytes < CACHE_ITEM_BYTES || bytes > room.min(OP_BYTES_MAX) {
            return Ok(Tried::Torn);
        }
        self.batch.clear();
        let op = self.batch.read(id, at, bytes);
        let stamp = (!map.is_remote()).then(|| self.batch.read(id, at + offset_of!(CacheItem, stamp), 8));
        let life = self.batch.read(id, map.life(), LINE_BYTES);
        let asked_ns = self.link.clock.asked_ns();
        self.run();
        let after = life_of(self.batch, life)?;
        let read = self.batch.bytes(op)?;
        let item: CacheItem = bytemuck::pod_read_unaligned(&read[..CACHE_ITEM_BYTES]);
        let is_whole = match stamp {
            Some(stamp) => after.generation == before.generation && item.is_whole(self.batch.value(stamp)?),
            None => check::fits(hasher, map, &item, read),
        };
        if !is_whole || item.len() > bytes {
            return Ok(Tried::Torn);
        }
        if read[CACHE_ITEM_BYTES..][..item.key_bytes()] != *self.key {
            return Ok(Tried::Other);
        }
        let Some(home_now) = self.link.clock.second(&after, asked_ns) else { return Ok(Tried::Torn) };
        let (epoch, flush_at) = after.epoch();
        let is_flushed = item.epoch() != epoch || flush_at != 0 && flush_at <= home_now;
        if is_flushed || item.expires != 0 && item.expires <= home_now {
            return Ok(Tried::Gone);
        }
        Ok(Tried::Sound(Sound { op, item, home_now }))
    }
}

/// What was at an entry's place.
enum Tried {
    Sound(Sound),
    /// The item has expired, or was flushed.
    Gone,
    /// Another key's item.
    Other,
    /// No one state of an item.
    Torn,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use sidelong_fabric::shm::ShmHost;
    use sidelong_fabric::{Access, Host, OwnedRegion, RegionSpec};
    use sidelong_layout::{Instance, RegionKind};

    use super::*;

    const KEY: &[u8] = b"key";

    /// A region of one item, which a reader has found listed.
    struct Bench {
        _directory: tempfile::TempDir,
        region: OwnedRegion,
        map: CacheMap,
        initiator: Initiator,
        link: Link,
        entry: CacheEntry,
    }

    fn bench(item: CacheItem) -> Bench {
        let map = CacheMap::new(8 << 20, 1);
        let directory = tempfile::tempdir().unwrap();
        let (name, access, instance) = ("items", Access::ReadOnly, Instance::alone(1));
        let spec = RegionSpec { name, kind: RegionKind::Cache, len: map.len(), access, instance };
        let mut region = Host::Shm(ShmHost::new(directory.path())).expose_owned(&spec).unwrap();
        region.write(map.items(), bytemuck::bytes_of(&item));
        region.write(map.items() + CACHE_ITEM_BYTES, b"keyvalue");
        let mut initiator = Initiator::new();
        let link = initiator.connect(region.key().unwrap(), PATIENCE).unwrap();
        let link = Link::new(link, map, [0, 0]);
        let entry = CacheEntry::new(0, CACHE_ITEM_BYTES + 8, 0);
        Bench { _directory: directory, region, map, initiator, link, entry }
    }

    fn item() -> CacheItem {
        let mut item = CacheItem { stamp: CacheItem::begun(0, 0, 3), value_bytes: 5, ..CacheItem::default() };
        item.set(CacheItem::LIVE, true);
        item
    }

    impl Bench {
        /// What a reader finds who saw `before` when it looked the item up.
        fn tried(&mut self, before: CacheLife) -> Tried {
            let (initiator, batch) = (&mut self.initiator, &mut Batch::new());
            let mut reader = Reader { initiator, batch, link: &mut self.link, key: KEY, hash: 0 };
            reader.try_entry(self.entry, &before).unwrap()
        }

        fn state(&mut self, offset: usize, value: u64) {
            self.region.store(self.map.life() + offset, value, Ordering::Release);
        }
    }

    #[test]
    fn a_value_is_sound_if_nothing_has_changed() {
        let Tried::Sound(sound) = bench(item()).tried(CacheLife::default()) else { panic!("it is not") };
        assert_eq!(sound.item, item());
    }

    #[test]
    fn a_place_that_is_of_another_size_now_may_hold_anything() {
        let mut bench = bench(item());
        bench.state(offset_of!(CacheLife, generation), 1);
        assert!(matches!(bench.tried(CacheLife::default()), Tried::Torn));
    }

    #[test]
    fn what_is_withdrawn_expired_flushed_or_anothers_is_not_returned() {
        let begun = CacheItem { stamp: CacheItem::begun(0, 0, 3), ..item() };
        assert!(matches!(bench(begun).tried(CacheLife::default()), Tried::Torn), "not live");
        let mut expired = bench(CacheItem { expires: 1, ..item() });
        expired.state(offset_of!(CacheLife, began_ns), monotonic_ns().saturating_sub(2 * SECOND_NS));
        assert!(matches!(expired.tried(CacheLife::default()), Tried::Gone));
        for flush in [CacheLife::flush_word(1, 0), CacheLife::flush_word(0, 1)] {
            let mut flushed = bench(item());
            flushed.state(offset_of!(CacheLife, flush), flush);
            flushed.state(offset_of!(CacheLife, began_ns), monotonic_ns().saturating_sub(2 * SECOND_NS));
            assert!(matches!(flushed.tried(CacheLife::default()), Tried::Gone));
        }
        let mut other = bench(item());
        other.region.write(other.map.items() + CACHE_ITEM_BYTES, b"Key");
        assert!(matches!(other.tried(CacheLife::default()), Tried::Other));
    }

    #[test]
    fn lengths_that_lead_out_of_the_item_are_refused() {
        for value_bytes in [14, 100, u32::MAX] {
            let mut long = bench(CacheItem { value_bytes, ..item() });
            assert!(matches!(long.tried(CacheLife::default()), Tried::Torn));
        }
        let mut beyond = bench(item());
        for (bytes, at) in [(64, u32::MAX), (1 << 20, (8 << 16) - 1), (2 << 20, (8 << 16) - 2), (0, 0)] {
            beyond.entry = CacheEntry::new(0, bytes, at);
            assert!(matches!(beyond.tried(CacheLife::default()), Tried::Torn), "{bytes} at {at}");
        }
    }

    #[test]
    fn a_home_with_another_clock_is_as_old_as_it_states_or_a_little_older() {
        const MS: u64 = 1_000_000;
        let mut age = Age::default();
        // It states its age at each 100 ms, and is read at each 40 ms. Its clock is one part in a thousand slower.
        let home_ns = |now_ns: u64| 5_000 * SECOND_NS + now_ns - now_ns / 1_000;
        let stated_ns = |now_ns: u64| home_ns(now_ns / (100 * MS) * (100 * MS));
        let second = |age: &Age, now_ns| age.second(now_ns).map(|second| u64::from(second) * SECOND_NS);
        age.was_read(stated_ns(0), 0);
        assert_eq!(second(&age, 0), None, "it may have hung since");
        for now_ns in (100 * MS..3_600 * SECOND_NS).step_by(40 * MS as usize) {
            age.was_read(stated_ns(now_ns), now_ns);
            let found = second(&age, now_ns).unwrap();
            assert!(found >= home_ns(now_ns) / SECOND_NS * SECOND_NS, "younger than it is");
            assert!(found <= home_ns(now_ns + 101 * MS), "much older than it is");
        }
        // It hangs for an hour, and states nothing.
        let (stopped_ns, hours_ns) = (3_600 * SECOND_NS, 7_200 * SECOND_NS);
        age.was_read(stated_ns(stopped_ns), hours_ns);
        assert!(second(&age, hours_ns).unwrap() >= home_ns(hours_ns) / SECOND_NS * SECOND_NS);
    }
}
