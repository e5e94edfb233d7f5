//! Answers from nodes' memory: an edge reads there what a node keeps for it, and the node takes no part.
//!
//! Each document has a home among the nodes that serve its site (`policy`'s `Homes`). An edge looks there first, and asks the
//! home for what it does not find, which keeps it then. Of many requests for one document that is not there, one goes to the
//! home, and the others wait until it is: at this edge by an atomic, at all edges by a claim in the home's memory. What is kept and
//! answered is decided by `policy`'s `documents`.
//!
//! What threads share are atomics, by a hash of the key. Of two keys with one place, one may be asked for anew, or by more
//! requests than one; none gets an answer that it must not have.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde::{Deserialize, Serialize};
use sidelong_cache::documents::{self, Document, DocumentReader};
use sidelong_fabric::Directory;
use sidelong_layout::{Claim, NodeId, Time, fnv1a};
use sidelong_policy::cache::homes::Homes;
use sidelong_policy::documents::{Field, Reply, Takes, Validators};

use crate::clock;

/// The longest wait for a document that another request has asked its home for.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Time between two looks meanwhile.
const WAIT_STEP: Duration = Duration::from_millis(1);
/// For how long nobody waits for a document that its home has answered with and not kept.
const UNKEPT_NS: u64 = 1_000_000_000;
/// Places for what is known of keys.
const PLACES: usize = 1 << 12;

/// The answer to who wants one of a cache alone, where there is none (RFC 9111, 5.2.1.7).
const NOT_CACHED: &[u8] = b"HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 0\r\n\r\n";

/// Which nodes keep documents, and how their memory is found.
#[derive(Clone)]
pub struct DocumentSettings {
    /// The name of each node's region, in the cluster's order; `None` for nodes that keep none.
    pub regions: Vec<Option<String>>,
    /// Bytes of each.
    pub memory_bytes: usize,
    /// Where they are found.
    pub directory: Arc<dyn Directory>,
    /// The cluster that they must be of.
    pub cluster: u64,
}

impl fmt::Debug for DocumentSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentSettings").field("regions", &self.regions).finish_non_exhaustive()
    }
}

/// Requests for documents that a cache may answer, by where the answer came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DocumentStatus {
    /// From a node's memory, at once.
    pub memory: u64,
    /// From there, once another request had it fetched.
    pub memory_after_wait: u64,
    /// From a node's server.
    pub server: u64,
    /// Bytes of the answers from memory, with their heads.
    pub memory_bytes: u64,
    /// Reads of nodes' memory that told whether a document is there.
    pub answered_reads: u64,
    /// Reads of nodes' memory that failed: it could not be read, or changed at each try.
    pub failed_reads: u64,
}

impl DocumentStatus {
    /// All requests.
    pub fn requests(&self) -> u64 {
        self.memory.saturating_add(self.memory_after_wait).saturating_add(self.server)
    }

    /// What was counted here and there.
    pub fn and(&self, other: &DocumentStatus) -> DocumentStatus {
        self.with(other, |a, b| Some(a.saturating_add(b))).unwrap_or_default()
    }

    /// What was counted since `before`, of the same life of an edge; `None` if it is another one.
    pub fn since(&self, before: &DocumentStatus) -> Option<DocumentStatus> {
        self.with(before, u64::checked_sub)
    }

    fn with(&self, other: &DocumentStatus, each: fn(u64, u64) -> Option<u64>) -> Option<DocumentStatus> {
        Some(DocumentStatus {
            memory: each(self.memory, other.memory)?,
            memory_after_wait: each(self.memory_after_wait, other.memory_after_wait)?,
            server: each(self.server, other.server)?,
            memory_bytes: each(self.memory_bytes, other.memory_bytes)?,
            answered_reads: each(self.answered_reads, other.answered_reads)?,
            failed_reads: each(self.failed_reads, other.failed_reads)?,
        })
    }
}

/// What a request asks for, and where that is kept.
pub(crate) struct DocumentRequest<'a> {
    key: Vec<u8>,
    hash: u64,
    pub(crate) home: NodeId,
    /// Held until the home has answered.
    flight: Option<Flight<'a>>,
}

/// The documents of all nodes, as one thread reads them.
pub(crate) struct Documents {
    shared: Arc<Shared>,
    reader: RefCell<DocumentReader>,
}

/// What threads know of keys, by place.
#[derive(Debug)]
pub(crate) struct Shared {
    homes: Homes,
    /// Whether each node keeps documents.
    keeps: Vec<bool>,
    /// The key that somebody has asked its home for; 0 for none.
    flights: Box<[AtomicU64]>,
    /// Until when nobody waits for a key.
    unkept_until_ns: Box<[AtomicU64]>,
    /// When a key was last changed by a request, so that what was kept before is not used.
    changed_ns: Box<[AtomicU64]>,
    counters: Counters,
}

#[derive(Default, Debug)]
struct Counters {
    memory: AtomicU64,
    memory_after_wait: AtomicU64,
    server: AtomicU64,
    memory_bytes: AtomicU64,
    answered_reads: AtomicU64,
    failed_reads: AtomicU64,
}

impl Shared {
    pub(crate) fn new(settings: &DocumentSettings) -> Self {
        let places = || (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        let names = settings.regions.iter().map(|region| region.as_deref().unwrap_or_default());
        Shared {
            homes: Homes::new(names),
            keeps: settings.regions.iter().map(Option::is_some).collect(),
            flights: places(),
            unkept_until_ns: places(),
            changed_ns: places(),
            counters: Counters::default(),
        }
    }

    /// What was counted.
    pub(crate) fn status(&self) -> DocumentStatus {
        let Counters { memory, memory_after_wait, server, memory_bytes, answered_reads, failed_reads } =
            &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DocumentStatus {
            memory: load(memory),
            memory_after_wait: load(memory_after_wait),
            server: load(server),
            memory_bytes: load(memory_bytes),
            answered_reads: load(answered_reads),
            failed_reads: load(failed_reads),
        }
    }

    fn place(places: &[AtomicU64], hash: u64) -> &AtomicU64 {
        &places[hash as usize % PLACES]
    }
}

/// A request that its home is asked for, until this is dropped.
struct Flight<'a> {
    documents: &'a Documents,
    hash: u64,
    home: NodeId,
    /// What tells other edges.
    claim: Option<Claim>,
}

/// Who asks a home.
enum Turn<'a> {
    /// This request.
    Own(Flight<'a>),
    /// Another one, for the same key.
    Others,
    /// Nobody can tell: another key has the place.
    Unknown,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let Documents { shared, reader } = self.documents;
        if let Some(claim) = self.claim {
            reader.borrow_mut().unclaim(self.home.index(), self.hash, claim);
        }
        Shared::place(&shared.flights, self.hash).store(0, Ordering::Release);
    }
}

impl Documents {
    pub(crate) fn new(settings: &DocumentSettings, shared: Arc<Shared>) -> Self {
        let DocumentSettings { regions, memory_bytes, directory, cluster } = settings;
        let regions = regions.iter().map(|region| region.clone().unwrap_or_default());
        let reader = DocumentReader::new(regions, *memory_bytes, Arc::clone(directory), *cluster);
        Documents { shared, reader: RefCell::new(reader) }
    }

    /// What a GET or HEAD asks for, with its home among the nodes of the site that are usable. `None` if it has none.
    pub(crate) fn asked(
        &self,
        site: &str,
        target: &str,
        usable: impl Fn(NodeId) -> bool,
    ) -> Option<DocumentRequest<'_>> {
        let key = key(site, target);
        let hash = hash(&key);
        let may = |node: usize| self.shared.keeps[node] && usable(NodeId::new(node));
        let home = NodeId::new(self.shared.homes.among(hash, may)?);
        Some(DocumentRequest { key, hash, home, flight: None })
    }

    /// The answer, from memory, at once or once another request has fetched it there; `None` if a server is to be asked.
    pub(crate) async fn find<'a>(
        &'a self,
        asked: &mut DocumentRequest<'a>,
        method: &Method,
        request: &[Field<'_>],
        takes: Takes,
    ) -> Option<Bytes> {
        let give = |has_waited: bool, found: Bytes| {
            let counters = &self.shared.counters;
            let answers = if has_waited { &counters.memory_after_wait } else { &counters.memory };
            answers.fetch_add(1, Ordering::Relaxed);
            counters.memory_bytes.fetch_add(found.len() as u64, Ordering::Relaxed);
            Some(found)
        };
        let deadline = Instant::now() + WAIT_MAX;
        let mut has_waited = false;
        loop {
            if let Some(found) = self.answer(asked, method, request, takes) {
                return give(has_waited, found);
            }
            if takes.only_cached {
                return Some(Bytes::from_static(NOT_CACHED));
            }
            let unkept_until =
                Shared::place(&self.shared.unkept_until_ns, asked.hash).load(Ordering::Relaxed);
            match self.turn(asked) {
                _ if clock::now().as_ns() < unkept_until => break,
                Turn::Own(flight) => {
                    // It may have come between the look and the turn.
                    if let Some(found) = self.answer(asked, method, request, takes) {
                        return give(true, found);
                    }
                    asked.flight = Some(flight);
                    break;
                }
                Turn::Unknown => break,
                Turn::Others if Instant::now() >= deadline => break,
                Turn::Others => tokio::time::sleep(WAIT_STEP).await,
            }
            has_waited = true;
        }
        self.shared.counters.server.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// The home of a document, or another node, has begun to answer.
    pub(crate) fn answered(&self, asked: &mut DocumentRequest<'_>, by_home: bool, status: u16) {
        if asked.flight.take().is_none() || !by_home || status >= 500 {
            return;
        }
        let now = clock::now();
        let is_kept = self.fresh(asked, now, |_, _| ()).is_some();
        if !is_kept {
            let until = now.as_ns().saturating_add(UNKEPT_NS);
            Shared::place(&self.shared.unkept_until_ns, asked.hash).fetch_max(until, Ordering::Relaxed);
        }
    }

    /// A request has changed what it asked for (RFC 9111, 4.4).
    pub(crate) fn changed(&self, site: &str, target: &str) {
        let place = Shared::place(&self.shared.changed_ns, hash(&key(site, target)));
        place.fetch_max(clock::now().as_ns(), Ordering::Relaxed);
    }

    /// First among the requests at this edge, then among edges.
    fn turn(&self, asked: &DocumentRequest<'_>) -> Turn<'_> {
        let DocumentRequest { hash, home, .. } = *asked;
        let place = Shared::place(&self.shared.flights, hash);
        match place.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let mut flight = Flight { documents: self, hash, home, claim: None };
                let claimed = self.reader.borrow_mut().claim(home.index(), hash, clock::now().as_ns());
                match claimed {
                    documents::Turn::Others => return Turn::Others,
                    documents::Turn::Own(claim) => flight.claim = Some(claim),
                    documents::Turn::Unknown => {}
                }
                Turn::Own(flight)
            }
            Err(other) if other == hash => Turn::Others,
            Err(_) => Turn::Unknown,
        }
    }

    fn answer(
        &self,
        asked: &DocumentRequest<'_>,
        method: &Method,
        request: &[Field<'_>],
        takes: Takes,
    ) -> Option<Bytes> {
        let is_get = *method == Method::GET;
        let written = self.fresh(asked, clock::now(), |document, age| {
            takes.takes(age, document.fresh).then(|| write(&document, is_get, request, age))
        });
        written.flatten()
    }

    /// What `use_it` makes of a document and its age, if its home has it and it is fresh.
    fn fresh<T>(
        &self,
        asked: &DocumentRequest<'_>,
        now: Time,
        use_it: impl FnOnce(Document<'_>, Duration) -> T,
    ) -> Option<T> {
        let changed_ns = Shared::place(&self.shared.changed_ns, asked.hash).load(Ordering::Relaxed);
        let mut reader = self.reader.borrow_mut();
        let found = reader.find(asked.home.index(), &asked.key);
        let Counters { answered_reads, failed_reads, .. } = &self.shared.counters;
        let reads = if found.is_ok() { answered_reads } else { failed_reads };
        reads.fetch_add(1, Ordering::Relaxed);
        let document = found.ok().flatten()?;
        let age = document.age(now.as_ns());
        let is_fresh = age < document.fresh && document.checked_ns > changed_ns;
        is_fresh.then(|| use_it(document, age))
    }
}

/// The key of a document, for edges and nodes: what a site has under a target.
pub fn key(site: &str, target: &str) -> Vec<u8> {
    [site, " ", target].concat().into_bytes()
}

/// Never 0, which is no key's.
fn hash(key: &[u8]) -> u64 {
    fnv1a(key).max(1)
}

/// The answer to a request for a document, of that age.
fn write(document: &Document<'_>, is_get: bool, request: &[Field<'_>], age: Duration) -> Bytes {
    let fields: Vec<_> = document.fields().collect();
    let len = document.body.len() as u64;
    let reply = Reply::to(is_get, request, Validators::of(&fields), len);
    let bytes = reply.bytes(len);
    let mut out = format!("HTTP/1.1 {} \r\n", reply.status()).into_bytes();
    for (name, value) in fields.iter().filter(|(name, _)| reply.has_field(name)) {
        push(&mut out, name, value);
    }
    push(&mut out, b"age", age.as_secs().to_string().as_bytes());
    if let Some(range) = reply.content_range(len) {
        push(&mut out, b"content-range", range.as_bytes());
    }
    if reply != Reply::NotModified {
        push(&mut out, b"content-length", (bytes.end - bytes.start).to_string().as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    if is_get {
        out.extend_from_slice(&document.body[bytes.start as usize..bytes.end as usize]);
    }
    out.into()
}

fn push(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Document<'_> = Document {
        checked_ns: 5,
        fresh: Duration::from_secs(60),
        head: b"content-type: text/plain\r\netag: \"a\"\r\ncache-control: max-age=60\r\n",
        body: b"0123456789",
    };

    fn answer(is_get: bool, request: &[Field<'_>]) -> String {
        String::from_utf8(write(&PAGE, is_get, request, Duration::from_secs(7)).to_vec()).unwrap()
    }

    #[test]
    fn an_answer_has_the_documents_fields_and_its_age() {
        let head = "HTTP/1.1 200 \r\ncontent-type: text/plain\r\netag: \"a\"\r\ncache-control: max-age=60\r\nage: 7\r\n\
                    content-length: 10\r\n\r\n";
        assert_eq!(answer(true, &[]), format!("{head}0123456789"));
        assert_eq!(answer(false, &[]), head, "HEAD");
        let part = answer(true, &[(b"Range", b"bytes=2-4")]);
        assert!(
            part.starts_with("HTTP/1.1 206 ") && part.contains("content-range: bytes 2-4/10\r\n"),
            "{part}"
        );
        assert!(part.contains("content-length: 3\r\n") && part.ends_with("\r\n\r\n234"), "{part}");
        assert_eq!(
            answer(true, &[(b"If-None-Match", b"\"a\"")]),
            "HTTP/1.1 304 \r\netag: \"a\"\r\ncache-control: max-age=60\r\nage: 7\r\n\r\n"
        );
    }
}
