//! Links to all words of a cluster: the nodes' ownerships and acknowledgements, the board.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use sidelong_fabric::{Access, Batch, Directory, Error, Initiator, LinkId, OpError};
use sidelong_layout::{
    Ack, BoardMap, Budget, HOT_BYTES, Hot, KERNEL_BYTES, LOAD_ACK, LOAD_BYTES, LOAD_HOT, Lock, NodeId,
    Ownership, RegionKind, SiteId, WORDS_BYTES, WORDS_OWNERSHIP, valid,
};
use sidelong_state::{NodeAgent, Op, Reply, Time, Word};

use crate::backoff::Backoff;
use crate::offer::{BOARD, load_region, words_region};

/// How long one operation, or one scan of all words, may take. On one machine nothing takes a thousandth of it.
const OPERATION_MAX: Duration = Duration::from_millis(20);
/// To connect to one peer.
const CONNECT_MAX: Duration = Duration::from_millis(50);
/// Pauses between tries to connect: the first, doubled up to the last.
const RECONNECT_NS: (u64, u64) = (1_000_000, 1_000_000_000);
/// Reads of a scan that are under way at once.
const CREDITS: usize = 256;
/// A node that has not answered a scan in time is left out of the next ones for so long, doubled up to the last: it would
/// cost each of them the wait.
const SILENCE_NS: (u64, u64) = (20_000_000, 320_000_000);

/// Why the words cannot be reached.
pub type LinksError = Error;

/// A site's words as last read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SiteWords {
    /// Its lock, as the word: lock machines compare whole words.
    pub lock: u64,
    /// Its budget.
    pub budget: Budget,
}

impl SiteWords {
    /// Whether nobody holds the lock.
    pub fn is_free(&self) -> bool {
        Lock::decode(self.lock).owner.is_none()
    }
}

/// What a scan has read, by site and node; `None` where a word could not be.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// The nodes' words.
    pub ownerships: &'a [Option<Ownership>],
    /// The sites'.
    pub sites: &'a [Option<SiteWords>],
}

/// Whether a budget counts just the nodes that serve its site; `None` where that depends on those that were not read.
pub(crate) fn is_exact(budget: Budget, serving: usize, unread: usize) -> Option<bool> {
    if !(serving..=serving + unread).contains(&usize::from(budget.current)) {
        Some(false)
    } else {
        (unread == 0).then_some(true)
    }
}

/// A link that is made anew when it breaks.
#[derive(Debug)]
struct Peer {
    region: String,
    kind: RegionKind,
    len: usize,
    access: Access,
    link: Option<LinkId>,
    /// Of a node's load record: whether the kernel keeps it, or is expected to.
    by_kernel: bool,
    retry: Backoff,
    /// Until when it is not asked.
    silence: Backoff,
    /// What people were told of it.
    problem: Option<String>,
}

/// All words of a cluster, for one thread.
pub struct Links {
    directory: Arc<dyn Directory>,
    initiator: Initiator,
    batch: Batch,
    map: BoardMap,
    board: Peer,
    words: Vec<Peer>,
    /// None where nobody asks.
    acks: Vec<Peer>,
    /// Each node's ownership as an operation last found or left it.
    seen: Vec<Option<Ownership>>,
    /// As of the last scan; `None` where a word could not be read.
    ownerships: Vec<Option<Ownership>>,
    sites: Vec<Option<SiteWords>>,
}

impl Links {
    /// To the words of the nodes of those names and the board. Nothing is connected yet: [`Links::scan`] does it, and
    /// does it again for whatever breaks.
    pub fn new(directory: Arc<dyn Directory>, initiator: Initiator, nodes: &[String], map: BoardMap) -> Self {
        let atomic = |region, kind, len| Peer::new(region, kind, len, Access::Atomic);
        let load =
            |node: &String| Peer::new(load_region(node), RegionKind::Load, LOAD_BYTES, Access::ReadOnly);
        Links {
            directory,
            initiator,
            batch: Batch::new(),
            map,
            board: atomic(BOARD.to_owned(), RegionKind::Board, map.len()),
            words: nodes
                .iter()
                .map(|node| atomic(words_region(node), RegionKind::Words, WORDS_BYTES))
                .collect(),
            acks: nodes.iter().map(load).collect(),
            seen: vec![None; nodes.len()],
            ownerships: vec![None; nodes.len()],
            sites: vec![None; map.sites],
        }
    }

    /// With a guess at who keeps the nodes' load records, the kernel or a thread: a right one saves a link for each.
    pub fn expecting_kernel(mut self, expects_kernel: bool) -> Self {
        self.acks.iter_mut().for_each(|peer| peer.by_kernel = expects_kernel);
        self
    }

    /// The same for whoever only looks: no operation of it can change a word, and acknowledgements are not linked to.
    pub fn read_only(
        directory: Arc<dyn Directory>,
        initiator: Initiator,
        nodes: &[String],
        map: BoardMap,
    ) -> Self {
        let mut links = Links::new(directory, initiator, nodes, map);
        links.acks.clear();
        links.words.iter_mut().chain([&mut links.board]).for_each(|peer| peer.access = Access::ReadOnly);
        links
    }

    /// Reads all ownerships, locks and budgets: those of a cluster that is not large with one wait.
    pub fn scan(&mut self, now: Time) {
        self.connect(now);
        for first in (0..self.words.len()).step_by(CREDITS) {
            let last = self.words.len().min(first + CREDITS);
            self.scan_part(first..last, last == self.words.len(), now);
        }
    }

    /// Some nodes, and the board with the last of them.
    fn scan_part(&mut self, part: Range<usize>, with_board: bool, now: Time) {
        self.batch.clear();
        let batch = &mut self.batch;
        let asked = |peer: &Peer| peer.link.filter(|_| peer.silence.is_due(now));
        let board = asked(&self.board);
        let words = self.words[part.clone()].iter();
        let nodes: Vec<_> = words.map(|peer| Some(batch.read(asked(peer)?, WORDS_OWNERSHIP, 8))).collect();
        // A site's lock and budget stand on neighbouring lines: one read takes both.
        let map = self.map;
        let site = |index| {
            let site = SiteId::new(index);
            (map.lock(site), map.budget(site) - map.lock(site) + 8)
        };
        let sites = if with_board { 0..map.sites } else { 0..0 };
        let sites: Vec<_> =
            sites.map(|index| Some(batch.read(board?, site(index).0, site(index).1))).collect();
        self.initiator.run(&mut self.batch, OPERATION_MAX);

        for (index, op) in part.zip(nodes) {
            let value = op.map(|op| self.batch.value(op));
            self.ownerships[index] = value.and_then(Result::ok).and_then(Ownership::decode);
            self.words[index].hear(value, now);
            self.words[index].judge(value.and_then(Result::err), &mut self.initiator);
        }
        // One that is silent about one site is silent about all.
        let first = sites.first().copied().flatten().map(|op| self.batch.value(op));
        self.board.hear(first, now);
        for (index, op) in sites.into_iter().enumerate() {
            let words = op.map(|op| self.batch.words(op));
            let read =
                |words: &[u64]| SiteWords { lock: words[0], budget: Budget::decode(words[words.len() - 1]) };
            self.sites[index] = words.and_then(Result::ok).map(read);
            self.board.judge(words.and_then(Result::err), &mut self.initiator);
        }
    }

    /// The ownership of `node` as of the last scan.
    pub fn ownership(&self, node: NodeId) -> Option<Ownership> {
        self.ownerships[node.index()]
    }

    /// The words of `site` as of the last scan.
    pub fn site(&self, site: SiteId) -> Option<SiteWords> {
        self.sites[site.index()]
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.words.len()
    }

    /// How many sites there are.
    pub fn site_count(&self) -> usize {
        self.map.sites
    }

    /// Whether the budget of `site` counts just the nodes that serve it, by the last scan; `None` where that depends on
    /// words which it could not read.
    pub fn budget_is_exact(&self, site: SiteId) -> Option<bool> {
        let serves = |node: &&Option<Ownership>| node.is_some_and(|node| node.serves(site));
        let serving = self.ownerships.iter().filter(serves).count();
        let unread = self.ownerships.iter().filter(|node| node.is_none()).count();
        is_exact(self.site(site)?.budget, serving, unread)
    }

    /// The last scan.
    pub fn last_scan(&self) -> Scan<'_> {
        Scan { ownerships: &self.ownerships, sites: &self.sites }
    }

    /// Does one operation for a machine of `state`.
    ///
    /// # Panics
    /// Where it is about an acknowledgement and the links are read-only.
    pub fn execute(&mut self, op: Op) -> Reply {
        if let Op::Read(Word::Ack(node)) = op
            && self.acks[node.index()].by_kernel
        {
            return self.infer_ack(node);
        }
        let reply = self.post(op);
        if let (Word::Ownership(node), Reply::Value(found)) = (op.word(), reply) {
            self.seen[node.index()] = Ownership::decode(op.applied_to(found));
        }
        reply
    }

    /// What a node would acknowledge whose record the kernel keeps: nothing of ours runs there to say it. The server's line
    /// counts its requests, and is read after the word was, as [`sidelong_state::NodeAgent::observe`] wants it; a line that
    /// is being written may be about to count one more, and acknowledges nothing yet.
    fn infer_ack(&mut self, node: NodeId) -> Reply {
        let none = Reply::Value(0);
        let Some(seen) = self.seen[node.index()] else { return none };
        let peer = &mut self.acks[node.index()];
        let Some(link) = peer.link else { return Reply::Lost };
        self.batch.clear();
        let id = self.batch.read(link, LOAD_HOT, HOT_BYTES);
        self.initiator.run(&mut self.batch, OPERATION_MAX);
        let words = self.batch.words(id);
        peer.judge(words.err(), &mut self.initiator);
        let Ok(words) = words else { return Reply::Lost };
        let line = words.try_into().ok().and_then(|words| Hot::validated(words).ok());
        let Some(line) = line.filter(|line| line.valid & valid::ORIGIN != 0) else { return none };
        let in_flight = line.busy.saturating_add(line.queued);
        let ack = NodeAgent::new().observe(seen.encode(), in_flight);
        ack.map_or(none, |ack| Reply::Value(ack.encode()))
    }

    fn post(&mut self, op: Op) -> Reply {
        let (peer, offset) = match op.word() {
            Word::Lock(site) => (&mut self.board, self.map.lock(site)),
            Word::Budget(site) => (&mut self.board, self.map.budget(site)),
            Word::Counter(site, edge) => (&mut self.board, self.map.counter(site, edge)),
            Word::Ownership(node) => (&mut self.words[node.index()], WORDS_OWNERSHIP),
            Word::Ack(node) => (&mut self.acks[node.index()], LOAD_ACK),
        };
        let Some(link) = peer.link else { return Reply::Lost };
        self.batch.clear();
        let id = match op {
            Op::Read(_) => self.batch.read(link, offset, 8),
            Op::CompareAndSwap { expected, new, .. } => {
                self.batch.compare_and_swap(link, offset, expected, new)
            }
            Op::FetchAndAdd { add, .. } => self.batch.fetch_and_add(link, offset, add),
        };
        self.initiator.run(&mut self.batch, OPERATION_MAX);
        let value = self.batch.value(id);
        peer.judge(value.err(), &mut self.initiator);
        value.map_or(Reply::Lost, Reply::Value)
    }

    /// Why the words of `node` cannot be used, where it is no matter of waiting.
    pub fn problem(&self, node: NodeId) -> Option<&str> {
        self.words[node.index()].problem.as_deref().filter(|_| self.words[node.index()].link.is_none())
    }

    /// What `node` last acknowledged.
    pub fn ack(&mut self, node: NodeId) -> Option<Ack> {
        match self.execute(Op::Read(Word::Ack(node))) {
            Reply::Value(value) => Ack::decode(value),
            Reply::Lost => None,
        }
    }

    /// Connects what is not connected and may be tried again; those first that have waited longest. A peer that is
    /// silent costs [`CONNECT_MAX`], so after one that cannot be reached, or asked for its key, the others wait for the
    /// next look: whoever looks may hold a lease.
    fn connect(&mut self, now: Time) {
        let peers = self.words.iter_mut().chain(&mut self.acks).chain([&mut self.board]);
        let mut due: Vec<_> = peers.filter(|peer| peer.link.is_none() && peer.retry.is_due(now)).collect();
        due.sort_by_key(|peer| peer.retry.due());
        for peer in due {
            let connected = peer.connect(&mut self.initiator, &*self.directory);
            let is_unpublished = matches!(connected, Err(Error::NoKey { .. }));
            match connected {
                Ok(link) => {
                    peer.link = Some(link);
                    peer.retry.succeeded(now);
                }
                Err(error) => {
                    peer.complain(&error);
                    peer.retry.failed(now);
                    if !is_unpublished {
                        break;
                    }
                }
            }
        }
    }
}

impl Peer {
    fn new(region: String, kind: RegionKind, len: usize, access: Access) -> Self {
        Peer {
            region,
            kind,
            len,
            access,
            link: None,
            by_kernel: false,
            retry: Backoff::new(RECONNECT_NS),
            silence: Backoff::new(SILENCE_NS),
            problem: None,
        }
    }

    /// Who is not there yet, or no longer, is waited for; one of another version would be for ever. (Whoever reads load says it
    /// of records.)
    fn complain(&mut self, error: &Error) {
        tracing::debug!(region = %self.region, %error, "not connected");
        let is_foreign = matches!(error, Error::Header { .. }) && self.kind != RegionKind::Load;
        let problem = is_foreign.then(|| error.to_string());
        if problem.is_some() && self.problem != problem {
            tracing::warn!(region = %self.region, problem, "the words cannot be used");
            self.problem = problem;
        }
    }

    fn connect(&mut self, initiator: &mut Initiator, directory: &dyn Directory) -> Result<LinkId, Error> {
        if self.kind != RegionKind::Load {
            let key = directory.find(&self.region, self.kind, self.len, self.access)?;
            return initiator.connect(&key, CONNECT_MAX);
        }
        // Who keeps its record is the node's choice.
        let shapes = [(RegionKind::Load, LOAD_BYTES), (RegionKind::Kernel, KERNEL_BYTES)];
        let guess = usize::from(self.by_kernel);
        let (link, shape) = initiator.connect_shaped(directory, &self.region, &shapes, guess, CONNECT_MAX)?;
        self.by_kernel = shapes[shape].0 == RegionKind::Kernel;
        Ok(link)
    }

    /// What came of asking it.
    fn hear(&mut self, value: Option<Result<u64, OpError>>, now: Time) {
        match value {
            Some(Ok(_)) => self.silence.succeeded(now),
            Some(Err(OpError::Timeout)) => self.silence.failed(now),
            Some(Err(_)) | None => {}
        }
    }

    /// Gives up a link that is broken for good; one that was only slow stays.
    fn judge(&mut self, error: Option<OpError>, initiator: &mut Initiator) {
        let broken = matches!(error, Some(OpError::PeerGone | OpError::KeyRejected | OpError::Closed));
        if broken && let Some(link) = self.link.take() {
            initiator.close(link);
        }
    }
}
