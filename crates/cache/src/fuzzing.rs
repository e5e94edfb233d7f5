//! Entries for the fuzz targets of what other caches write.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Batch, Initiator, OwnedRegion, RegionSpec};
use sidelong_layout::{
    CACHE_ITEM_BYTES, CACHE_UNIT, CacheEntry, CacheItem, CacheMap, Instance, LINE_BYTES, RegionKind,
};
use sidelong_policy::cache::store::Eviction;

use crate::cache::hasher;
use crate::check;
use crate::reader::{ItemRead, Link, Reader};
use crate::session::Wants;
use crate::{Cache, Counters, Host, Settings, World, frame};

const ITEM_BYTES_MAX: usize = 1024;
const OUT_BYTES_MAX: usize = 512;
const KEY: &[u8] = b"key";
const SEED: [u64; 2] = [3, 4];
const HASH: u64 = 0x0123_4567_89ab_cdef;
const PATIENCE: Duration = Duration::from_secs(10);

/// What another cache sends, in two pieces and in one: the answers are the same, and each is a frame.
pub fn frames(cut: usize, bytes: &[u8]) {
    let (first, second) = bytes.split_at(bytes.len().min(cut));
    let (whole, parts) = (answers(&[bytes]), answers(&[first, second]));
    // `stats` shows how many bytes were read so far, which depends on the pieces.
    let has_stats = memchr::memmem::find(&whole, b"bytes_read").is_some();
    assert!(has_stats || whole == parts);
    let mut rest = &whole[..];
    while let Some((_, used)) = frame::answer(rest) {
        rest = &rest[used..];
    }
    assert!(rest.is_empty(), "all answers are whole");
    // And what another cache sends for answers.
    let mut rest = bytes;
    while let Some((_, used)) = frame::answer(rest) {
        rest = &rest[used..];
    }
}

fn answers(pieces: &[&[u8]]) -> Vec<u8> {
    let settings = Settings {
        memory_bytes: 8 << 20,
        item_bytes_max: ITEM_BYTES_MAX,
        eviction: Eviction::default(),
        evicts: true,
        seed: [1, 2],
    };
    let mut cache = Cache::new(settings).expect("there is memory");
    let mut counters = Counters::default();
    let world =
        World { now: 1000, unix_at_0: 1_700_000_000, out_bytes_max: OUT_BYTES_MAX, ..World::default() };
    let (mut waiting, mut answers) = (Vec::new(), Vec::new());
    for piece in pieces {
        waiting.extend_from_slice(piece);
        loop {
            let mut host =
                Host { cache: &mut cache, counters: &mut counters, world: &world, neighbours: None };
            let mut out = Vec::new();
            let fed = frame::feed(&waiting, &mut host, &mut out);
            waiting.drain(..fed.consumed);
            answers.append(&mut out);
            match fed.wants {
                Wants::Room => {}
                Wants::Input(wanted) => {
                    assert!(waiting.len() < wanted);
                    break;
                }
                Wants::Close | Wants::Answer => return answers,
            }
        }
    }
    answers
}

struct Bench {
    _directory: tempfile::TempDir,
    region: OwnedRegion,
    initiator: Initiator,
    map: CacheMap,
    /// As those of this machine read, and as devices of others do.
    links: [Link; 2],
}

impl Bench {
    fn new() -> Self {
        let map = CacheMap::new(1 << 20, 1);
        let directory = tempfile::tempdir().expect("there is a directory");
        let (kind, len, access) = (RegionKind::Cache, map.len(), Access::ReadOnly);
        let spec = RegionSpec { name: "items", kind, len, access, instance: Instance::alone(1) };
        let host = sidelong_fabric::Host::Shm(ShmHost::new(directory.path()));
        let region = host.expose_owned(&spec).expect("it is exposed");
        let mut initiator = Initiator::new();
        let key = region.key().expect("it is exposed");
        let id = initiator.connect(key, PATIENCE).expect("it is there");
        let links = [map, map.remote()].map(|map| Link::new(id, map, SEED));
        Bench { _directory: directory, region, initiator, map, links }
    }
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench::new());
}

/// The memory of a neighbour, with `bytes` where a key's item is listed and lies: what a reader finds is the key's, or nothing. An
/// item with the check that it should have is read by devices, too.
pub fn memory(life: [u8; LINE_BYTES], entry_bytes: u32, at: u16, bytes: &[u8]) {
    BENCH.with_borrow_mut(|Bench { region, initiator, map, links, .. }| {
        let at = u32::from(at) % (map.items_bytes() / CACHE_UNIT) as u32;
        let place = at as usize * CACHE_UNIT;
        let len = bytes.len().min(map.items_bytes() - place);
        region.write(map.life(), &life);
        region.write(map.items() + place, &bytes[..len]);
        if let Some((header, rest)) = bytes[..len].split_at_checked(CACHE_ITEM_BYTES) {
            let header: CacheItem = bytemuck::pod_read_unaligned(header);
            let word = map.remote().check(header.len()).filter(|word| word + 8 <= map.items_bytes() - place);
            if let (Some(word), Some(rest)) = (word, rest.get(..header.len() - CACHE_ITEM_BYTES)) {
                let check = check::of(hasher(SEED), &header, rest);
                region.store(map.items() + place + word, check, Ordering::Release);
            }
        }
        let [bucket, _] = map.buckets(HASH);
        region.store(bucket, CacheEntry::new(HASH, entry_bytes as usize, at).0, Ordering::Release);
        for link in links {
            let mut batch = Batch::new();
            let mut reader = Reader { initiator, batch: &mut batch, link, key: KEY, hash: HASH };
            if let Ok(Some(ItemRead::Sound(sound))) = reader.read() {
                let found = batch.bytes(sound.op).expect("it was read");
                assert_eq!(&found[size_of_val(&sound.item)..][..KEY.len()], KEY);
                assert!(sound.item.len() <= found.len());
            }
        }
    });
}
