//! Documents in the memory of the node that serves them, where others read them.
//!
//! A document is an item whose value says when it was last known to be current and for how long it is fresh, then the lines of its
//! head, then its content. Who reads it judges by the machine's clock, which all its processes share: whatever happens to the
//! node, nobody answers with a document after its time. Which documents are kept, and what is answered with them, is decided by
//! `policy`'s `documents`.
//!
//! Beside its documents a node exposes claims, which readers take and return by compare-and-swap: of all that miss a document, one
//! asks the node for it.

use std::sync::Arc;
use std::time::Duration;

use sidelong_fabric::{
    Access, Batch, Directory, Initiator, LinkId, OP_BYTES_MAX, OpError, OwnedRegion, Region,
};
use sidelong_layout::{
    CACHE_DOCUMENT_BYTES, CACHE_ITEM_BYTES, CacheDocument, CacheMap, Claim, ClaimMap, RegionKind,
};
use sidelong_os::monotonic_ns;
use sidelong_policy::cache::store::Eviction;

use crate::cache::{Cache, KEY_BYTES_MAX, Settings, Usage};
use crate::neighbours;
use crate::reader::{ItemRead, Link, Reader};

/// The longest wait for a link to a node's memory, which is a file of this machine.
const PATIENCE: Duration = Duration::from_millis(10);
/// Time between two attempts to link to a node's memory, and between two looks whether the link still leads there.
const LINK_EVERY_NS: u64 = 100_000_000;
/// The largest document, with its key and head: a copy of it takes less than a millisecond of a thread that serves others, too.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;
const _: () = assert!(DOCUMENT_BYTES_MAX <= OP_BYTES_MAX);

/// A document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Document<'a> {
    /// When it was last known to be current, in nanoseconds of the machine's monotonic clock.
    pub checked_ns: u64,
    /// For how long from then on it is fresh.
    pub fresh: Duration,
    /// The fields that it is answered with, as lines of HTTP/1.
    pub head: &'a [u8],
    /// Its content.
    pub body: &'a [u8],
}

impl<'a> Document<'a> {
    /// How old it is.
    pub fn age(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.checked_ns))
    }

    /// Its fields.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let lines = self.head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii_start()))
        })
    }

    /// The document in the value of an item, whoever wrote that.
    fn within(value: &'a [u8]) -> Option<Self> {
        let (states, rest) = value.split_at_checked(CACHE_DOCUMENT_BYTES)?;
        let states: CacheDocument = bytemuck::pod_read_unaligned(states);
        let (head, body) = rest.split_at_checked(states.head_bytes as usize)?;
        let fresh = Duration::from_nanos(states.fresh_ns);
        Some(Document { checked_ns: states.checked_ns, fresh, head, body })
    }

    fn value(&self) -> Vec<u8> {
        let fresh_ns = self.fresh.as_nanos().try_into().unwrap_or(u64::MAX);
        let (checked_ns, head_bytes) = (self.checked_ns, self.head.len() as u32);
        let states = CacheDocument { checked_ns, fresh_ns, head_bytes, reserved: 0 };
        [bytemuck::bytes_of(&states), self.head, self.body].concat()
    }
}

/// The documents that a node keeps.
#[derive(Debug)]
pub struct Documents {
    cache: Cache,
    claims: Region,
    began_ns: u64,
}

impl Documents {
    /// What is where in the region of a node that keeps documents in so many bytes, tables included.
    pub const fn map(memory_bytes: usize) -> CacheMap {
        CacheMap::new(memory_bytes, 1)
    }

    /// The name of the region of the claims on documents that are kept in the region `documents`.
    pub fn claims(documents: &str) -> String {
        format!("{documents}.claims")
    }

    /// None yet. They are kept in `region`, which has the map of `memory_bytes`; readers take their claims in `claims`. Keys are
    /// hashed with the secret `seed`.
    ///
    /// # Panics
    /// If the region has another length, or the memory is out of a cache's range.
    pub fn exposed(region: OwnedRegion, claims: Region, memory_bytes: usize, seed: [u64; 2]) -> Self {
        let settings = Settings {
            memory_bytes,
            item_bytes_max: DOCUMENT_BYTES_MAX.min(memory_bytes / 2),
            eviction: Eviction::Sieve,
            evicts: true,
            seed,
        };
        // Its first second is 1.
        let began_ns = monotonic_ns().saturating_sub(1_000_000_000);
        let cache = Cache::exposed(settings, region, Documents::map(memory_bytes), began_ns);
        Documents { cache, claims, began_ns }
    }

    /// Keeps a document in place of what its key had. One that is too large is not kept.
    pub fn keep(&mut self, key: &[u8], document: &Document<'_>) {
        let now = self.now();
        let bytes = CACHE_DOCUMENT_BYTES + document.head.len() + document.body.len();
        // To keep it again counts as a use, so that one that is asked for stays: its readers ask anew when it is no longer fresh, and
        // the node hears of no other read.
        let is_kept = is_key(key)
            && self.cache.fits(key.len(), bytes)
            && self.cache.put(key, &document.value(), 0, 0, None, now).is_ok();
        if !is_kept {
            self.forget(key);
        }
    }

    /// There is no such document any more, or none that may be kept.
    pub fn forget(&mut self, key: &[u8]) {
        let now = self.now();
        if is_key(key) {
            self.cache.remove(key, now);
        }
    }

    /// What is kept.
    pub fn usage(&self) -> Usage {
        self.cache.usage()
    }

    /// Whether another process has taken away the memory, so that nobody reads what is kept. Others are to be exposed in their
    /// place, once these are dropped.
    pub fn is_lost(&self) -> bool {
        self.cache.is_lost() || self.claims.is_lost()
    }

    fn now(&self) -> u32 {
        neighbours::second(self.began_ns, monotonic_ns())
    }
}

fn is_key(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len())
}

/// A node whose documents are read.
struct Home {
    region: String,
    link: Option<Link>,
    /// To the claims on its documents.
    claims: Option<LinkId>,
    /// When it is linked to, or its link looked at, at the earliest.
    link_at_ns: u64,
}

/// A node's memory could not be read, or what was read there changed at each try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unread;

/// Who asks a node for a document that is not in its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// This reader, which returns the claim afterwards.
    Own(Claim),
    /// Another one, until it has returned its claim or that has run out.
    Others,
    /// Nobody can tell: the claims could not be read, or another document has the place.
    Unknown,
}

/// The documents of nodes, as others read them.
pub struct DocumentReader {
    homes: Vec<Home>,
    map: CacheMap,
    directory: Arc<dyn Directory>,
    initiator: Initiator,
    batch: Batch,
}

impl DocumentReader {
    /// Of the nodes with these regions, each with the map of `memory_bytes`, in a cluster whose parts have `cluster` alike.
    pub fn new(
        regions: impl IntoIterator<Item = String>,
        memory_bytes: usize,
        directory: Arc<dyn Directory>,
        cluster: u64,
    ) -> Self {
        let home = |region| Home { region, link: None, claims: None, link_at_ns: 0 };
        DocumentReader {
            homes: regions.into_iter().map(home).collect(),
            map: Documents::map(memory_bytes),
            directory,
            initiator: Initiator::new().of_cluster(cluster),
            batch: Batch::new(),
        }
    }

    /// The document of a key at a node, by number, whether it is fresh or not.
    ///
    /// # Errors
    /// If it is not known whether the node has it.
    pub fn find(&mut self, home: usize, key: &[u8]) -> Result<Option<Document<'_>>, Unread> {
        if !is_key(key) {
            return Ok(None);
        }
        self.link(home);
        let place = &mut self.homes[home].link;
        let link = place.as_mut().ok_or(Unread)?;
        let (id, hash) = (link.id, link.hash(key));
        let (initiator, batch) = (&mut self.initiator, &mut self.batch);
        let sound = match (Reader { initiator, batch, link, key, hash }).read() {
            Ok(Some(ItemRead::Sound(sound))) => sound,
            Ok(None) => return Ok(None),
            Ok(Some(ItemRead::Torn)) | Err(OpError::Timeout) => return Err(Unread),
            Err(error) => {
                tracing::debug!(region = self.homes[home].region, %error, "documents were not read");
                self.initiator.close(id);
                self.homes[home].link = None;
                return Err(Unread);
            }
        };
        let bytes = self.batch.bytes(sound.op).map_err(|_| Unread)?;
        Ok(bytes.get(CACHE_ITEM_BYTES + key.len()..sound.item.len()).and_then(Document::within))
    }

    /// Whose turn it is to ask a node for the document whose key has the hash `hash`, which all readers compute alike.
    pub fn claim(&mut self, home: usize, hash: u64, now_ns: u64) -> Turn {
        let Some(link) = self.homes[home].claims else { return Turn::Unknown };
        let own = Claim::taken(hash, now_ns);
        let mut expected = Claim::FREE;
        // Once for what is free, and once for what has run out.
        for _ in 0..2 {
            let Ok(found) = self.swap(link, hash, expected, own) else {
                self.initiator.close(link);
                self.homes[home].claims = None;
                return Turn::Unknown;
            };
            match found {
                _ if found == expected => return Turn::Own(own),
                _ if !found.is_held(now_ns) => expected = found,
                _ if found.is_of(hash) => return Turn::Others,
                _ => return Turn::Unknown,
            }
        }
        // Others have just taken it, or returned it.
        Turn::Others
    }

    /// Returns a claim. One that has run out may be another reader's by now, and stays.
    pub fn unclaim(&mut self, home: usize, hash: u64, claim: Claim) {
        if let Some(link) = self.homes[home].claims {
            // What is not returned runs out.
            _ = self.swap(link, hash, claim, Claim::FREE);
        }
    }

    /// Puts `new` in place of a claim that is as expected. Returns the one that was there.
    fn swap(&mut self, link: LinkId, hash: u64, expected: Claim, new: Claim) -> Result<Claim, OpError> {
        self.batch.clear();
        let at = ClaimMap::claim(hash);
        let op = self.batch.compare_and_swap(link, at, expected.encode(), new.encode());
        self.initiator.run(&mut self.batch, PATIENCE);
        self.batch.value(op).map(Claim::decode)
    }

    /// Links to a node's memory, if it is time to, and there is no link that leads there.
    fn link(&mut self, home: usize) {
        let home = &mut self.homes[home];
        let now_ns = monotonic_ns();
        if now_ns < home.link_at_ns {
            return;
        }
        home.link_at_ns = now_ns + LINK_EVERY_NS;
        if let Some(stale) = home.link.take_if(|link| !self.initiator.is_current(link.id)) {
            self.initiator.close(stale.id);
        }
        if let Some(stale) = home.claims.take_if(|link| !self.initiator.is_current(*link)) {
            self.initiator.close(stale);
        }
        if home.claims.is_none() {
            let region = Documents::claims(&home.region);
            let found = self.directory.find(&region, RegionKind::Claims, ClaimMap::LEN, Access::Atomic);
            home.claims = found.and_then(|key| self.initiator.connect(&key, PATIENCE)).ok();
        }
        if home.link.is_none() {
            let found =
                self.directory.find(&home.region, RegionKind::Cache, self.map.len(), Access::ReadOnly);
            match found.and_then(|key| self.initiator.connect(&key, PATIENCE)) {
                Ok(id) => {
                    home.link = Link::open(id, self.map, &mut self.initiator, &mut self.batch);
                    if home.link.is_none() {
                        self.initiator.close(id);
                    }
                }
                Err(error) => tracing::debug!(%error, "no link to a node's documents"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sidelong_fabric::shm::ShmHost;
    use sidelong_fabric::{Host, RegionSpec, RunDirectory};
    use sidelong_layout::Instance;

    use super::*;

    const MEMORY_BYTES: usize = 8 << 20;

    fn documents(run: &RunDirectory) -> Documents {
        let (name, kind, len) = ("n1.documents", RegionKind::Cache, Documents::map(MEMORY_BYTES).len());
        let instance = Instance { cluster: 7, incarnation: 1 };
        let spec = RegionSpec { name, kind, len, access: Access::ReadOnly, instance };
        let host = Host::Shm(ShmHost::new(run.path()));
        let region = host.expose_owned(&spec).unwrap();
        let (name, kind, access) = (&*Documents::claims(name), RegionKind::Claims, Access::Atomic);
        let claims = RegionSpec { name, kind, len: ClaimMap::LEN, access, ..spec };
        Documents::exposed(region, host.expose(&claims, |_| ()).unwrap(), MEMORY_BYTES, [3, 4])
    }

    fn reader(run: &RunDirectory) -> DocumentReader {
        DocumentReader::new(["n1.documents".to_owned()], MEMORY_BYTES, Arc::new(run.clone()), 7)
    }

    const PAGE: Document<'_> = Document {
        checked_ns: 5,
        fresh: Duration::from_secs(1),
        head: b"etag: \"a\"\r\ncontent-type: text/html; charset=utf-8\r\n",
        body: b"<html>",
    };

    #[test]
    fn a_document_is_read_as_it_was_kept_until_it_is_forgotten_replaced_or_its_node_begins_anew() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunDirectory::open(directory.path().join("run")).unwrap();
        let mut reader = reader(&run);
        assert_eq!(reader.find(0, b"www /a"), Err(Unread), "there is no node");
        let mut own = documents(&run);
        reader.homes[0].link_at_ns = 0;
        own.keep(b"www /a", &PAGE);
        let found = reader.find(0, b"www /a").unwrap().unwrap();
        assert_eq!(found, PAGE);
        let fields: Vec<_> = found.fields().collect();
        assert_eq!(fields, [(&b"etag"[..], &b"\"a\""[..]), (b"content-type", b"text/html; charset=utf-8")]);
        assert_eq!(reader.find(0, b"www /b"), Ok(None));
        own.keep(b"www /a", &Document { body: b"", ..PAGE });
        assert_eq!(reader.find(0, b"www /a").unwrap().unwrap().body, b"");
        own.forget(b"www /a");
        assert_eq!(reader.find(0, b"www /a"), Ok(None));
        own.keep(b"www /a", &PAGE);
        drop(own);
        let mut anew = documents(&run);
        assert_ne!(reader.find(0, b"www /a"), Ok(Some(PAGE)), "what it left is gone");
        reader.homes[0].link_at_ns = 0;
        anew.keep(b"www /a", &PAGE);
        assert_eq!(reader.find(0, b"www /a"), Ok(Some(PAGE)));
    }

    #[test]
    fn one_reader_at_a_time_asks_for_a_document_and_one_that_has_died_holds_up_others_for_its_lease() {
        let (hash, now_ns) = (0x1234_5678_9abc_def0, 1 << 40);
        let directory = tempfile::tempdir().unwrap();
        let run = RunDirectory::open(directory.path().join("run")).unwrap();
        let (mut one, mut other) = (reader(&run), reader(&run));
        _ = one.find(0, b"www /a");
        assert_eq!(one.claim(0, hash, now_ns), Turn::Unknown, "there is no node");
        let own = documents(&run);
        for reader in [&mut one, &mut other] {
            reader.homes[0].link_at_ns = 0;
            _ = reader.find(0, b"www /a");
        }
        let Turn::Own(claim) = one.claim(0, hash, now_ns) else { panic!("nobody has it") };
        assert_eq!(other.claim(0, hash, now_ns), Turn::Others);
        assert_eq!(other.claim(0, hash ^ 1 << 63, now_ns), Turn::Unknown, "another document has its place");
        assert!(matches!(other.claim(0, hash + 1, now_ns), Turn::Own(_)), "it has a place of its own");
        one.unclaim(0, hash, claim);
        let Turn::Own(_) = other.claim(0, hash, now_ns) else { panic!("it was returned") };
        // It dies.
        drop(other);
        let run_out = now_ns + Claim::LEASE_NS;
        assert_eq!(one.claim(0, hash, run_out - 2_000_000), Turn::Others);
        let Turn::Own(claim) = one.claim(0, hash, run_out) else { panic!("it has run out") };
        // Who goes on after its lease takes away nobody's.
        let mut late = reader(&run);
        _ = late.find(0, b"www /a");
        late.unclaim(0, hash, Claim::taken(hash, now_ns));
        assert_eq!(late.claim(0, hash, run_out), Turn::Others);
        one.unclaim(0, hash, claim);
        // A node that begins anew exposes the same claims, and one whose claims were taken away others.
        drop(own);
        let own = documents(&run);
        assert!(matches!(late.claim(0, hash, run_out), Turn::Own(_)));
        std::fs::remove_file(run.path().join("n1.documents.claims.region")).unwrap();
        assert!(own.is_lost());
    }

    #[test]
    fn what_is_too_large_takes_what_was_there_before_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunDirectory::open(directory.path().join("run")).unwrap();
        let (mut own, mut reader) = (documents(&run), reader(&run));
        own.keep(b"k", &PAGE);
        own.keep(b"k", &Document { body: &vec![0; DOCUMENT_BYTES_MAX], ..PAGE });
        assert_eq!(reader.find(0, b"k"), Ok(None));
        let long = [b'k'; KEY_BYTES_MAX + 1];
        own.keep(&long, &PAGE);
        assert_eq!(reader.find(0, &long), Ok(None));
    }

    #[test]
    fn a_value_that_is_no_document_is_none() {
        let value = PAGE.value();
        assert_eq!(Document::within(&value), Some(PAGE));
        for len in 0..CACHE_DOCUMENT_BYTES + PAGE.head.len() {
            assert_eq!(Document::within(&value[..len]), None, "{len} bytes");
        }
    }
}
