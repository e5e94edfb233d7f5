//! Links to all words of a cluster: the nodes' ownerships and acknowledgements, the board, what the fronts state.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sidelong_fabric::{
    Access, Directory, Initiator, LinkRef, OpError, Patience, Problem, ReadOutcome, Reader, Region, Scanner,
    Target,
};
use sidelong_layout::{
    Ack, BoardMap, Budget, EdgeId, FrontMap, FrontWord, HOT_BYTES, Hot, LOAD_ACK, LOAD_HOT, LOAD_SHAPES,
    Lock, NodeId, NodeState, Ownership, RegionKind, SiteId, WORDS_BYTES, WORDS_OWNERSHIP, valid,
};
use sidelong_state::{NodeAgent, Op, Reply, Time, Word};

use crate::expose::{board_region, front_region, load_region, words_region};

/// Longest time of one operation, or of one scan of all words. On one machine all take less than a thousandth of it.
pub const OPERATION_MAX: Duration = Duration::from_millis(20);

/// Attempts to raise the epoch, which somebody else may raise meanwhile.
const RAISES_MAX: usize = 4;

/// A site's words as last read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SiteWords {
    /// Its lock, as the word: lock machines compare whole words.
    pub lock: u64,
    /// Its budget.
    pub budget: Budget,
}

impl SiteWords {
    /// Whether the lock is free.
    pub fn is_free(&self) -> bool {
        Lock::decode(self.lock).owner.is_none()
    }
}

/// The result of a scan, by site and node; `None` for a word that could not be read or is invalid.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// The nodes' words.
    pub ownerships: &'a [Option<Ownership>],
    /// The nodes whose word was read and names no state or site of this cluster.
    pub invalid: &'a [NodeId],
    /// The sites'.
    pub sites: &'a [Option<SiteWords>],
}

/// Whether a budget counts exactly the nodes that serve its site; `None` if that depends on nodes that were not read.
pub(crate) fn is_exact(budget: Budget, serving: usize, unread: usize) -> Option<bool> {
    if !(serving..=serving + unread).contains(&usize::from(budget.current)) {
        Some(false)
    } else {
        (unread == 0).then_some(true)
    }
}

/// All words of a cluster, for one thread.
pub struct Links {
    scanner: Scanner,
    words: Words,
}

/// The words as last read. In a scan the nodes come first, then the sites.
struct Words {
    map: BoardMap,
    board: LinkRef,
    nodes: Vec<LinkRef>,
    /// Empty if acknowledgements are not read.
    acks: Vec<LinkRef>,
    /// `None` for the front that this process is.
    fronts: Vec<Option<LinkRef>>,
    own: Option<OwnFront>,
    /// The first front whose requests go on when its process ends.
    led_from: usize,
    /// Each node's ownership as an operation last found or left it.
    seen: Vec<Option<Ownership>>,
    /// `None` if a word could not be read at the last attempt, or was invalid.
    ownerships: Vec<Option<Ownership>>,
    /// The nodes whose word was invalid.
    invalid: Vec<NodeId>,
    read_at: Vec<Time>,
    sites: Vec<Option<SiteWords>>,
    /// Whether nodes may be moving; the next scan then reads all of them.
    is_restless: bool,
}

/// What this process states as a front.
struct OwnFront {
    words: Vec<u64>,
    /// Where others read it, if there are others.
    region: Option<Region>,
}

impl Links {
    /// Links to the words of the nodes of those names and to the board. [`Links::scan`] connects them, and reconnects
    /// broken ones.
    pub fn new(directory: Arc<dyn Directory>, initiator: Initiator, nodes: &[String], map: BoardMap) -> Self {
        let mut links = Links::with_access(directory, initiator, nodes, map, Access::Atomic);
        let load = |(node, name): (usize, &String)| {
            let (region, access) = (&*load_region(name), Access::ReadOnly);
            let items = node..node + 1;
            links.scanner.link(&Target { region, shapes: &LOAD_SHAPES, guess: 0, access, items })
        };
        links.words.acks = nodes.iter().enumerate().map(load).collect();
        links
    }

    /// Sets a guess whether the kernel keeps the nodes' load records; a right guess saves one link a node.
    pub fn expecting_kernel(mut self, expects_kernel: bool) -> Self {
        for ack in &self.words.acks {
            self.scanner.guess(*ack, usize::from(expects_kernel));
        }
        self
    }

    /// Links to what the fronts of those names state, in the order of their numbers, too. `own` is the one that this process
    /// is, if any, and the region that it exposes.
    pub fn with_fronts(mut self, names: &[String], own: Option<(EdgeId, Option<Region>)>) -> Self {
        let nodes = self.node_count();
        let (kind, len) = (RegionKind::Front, FrontMap { nodes }.len());
        let index = own.as_ref().map(|(front, _)| front.index());
        let link = |(front, name): (usize, &String)| {
            let (region, access) = (&*front_region(name), Access::ReadOnly);
            let target = Target { region, shapes: &[(kind, len)], guess: 0, access, items: 0..0 };
            (index != Some(front)).then(|| self.scanner.link(&target))
        };
        self.words.fronts = names.iter().enumerate().map(link).collect();
        self.words.own = own.map(|(_, region)| OwnFront { words: vec![0; nodes], region });
        self
    }

    /// The fronts from number `first` on control a proxy of another make: its requests go on when the front's process ends. What such
    /// a front has stated last holds until it states something else.
    pub fn led_from(mut self, first: usize) -> Self {
        self.words.led_from = first;
        self
    }

    /// As [`Links::new`], for a thread that only reads: its operations cannot change a word, and acknowledgements are not linked.
    pub fn read_only(
        directory: Arc<dyn Directory>,
        initiator: Initiator,
        nodes: &[String],
        map: BoardMap,
    ) -> Self {
        Links::with_access(directory, initiator, nodes, map, Access::ReadOnly)
    }

    fn with_access(
        directory: Arc<dyn Directory>,
        initiator: Initiator,
        nodes: &[String],
        map: BoardMap,
        access: Access,
    ) -> Self {
        let patience = Patience { answers: OPERATION_MAX, ..Patience::default() };
        let count = nodes.len();
        let board = board_region(initiator.cluster());
        let mut scanner = Scanner::new(directory, initiator, (count, map.sites), patience);
        let mut link = |region: &str, shape, items| {
            scanner.link(&Target { region, shapes: &[shape], guess: 0, access, items })
        };
        let board = link(&board, (RegionKind::Board, map.len()), count..count + map.sites);
        let shape = (RegionKind::Words, WORDS_BYTES);
        let node = |(node, name): (usize, &String)| link(&words_region(name), shape, node..node + 1);
        let words = Words {
            map,
            board,
            nodes: nodes.iter().enumerate().map(node).collect(),
            acks: Vec::new(),
            fronts: Vec::new(),
            own: None,
            led_from: usize::MAX,
            seen: vec![None; count],
            ownerships: vec![None; count],
            invalid: Vec::new(),
            read_at: vec![Time::default(); count],
            sites: vec![None; map.sites],
            is_restless: true,
        };
        Links { scanner, words }
    }

    /// Reads ownerships, locks and budgets: of a large cluster those of idle nodes in rotation, unless nodes may be moving.
    pub fn scan(&mut self, now: Time) {
        self.scanner.scan(now, &mut [&mut self.words]);
    }

    /// As [`Links::scan`], with the reads of `other` in the same batches.
    pub fn scan_with(&mut self, now: Time, other: &mut dyn Reader) {
        self.scanner.scan(now, &mut [&mut self.words, other]);
    }

    /// The scanner. Its first items are the nodes.
    pub fn scanner(&self) -> &Scanner {
        &self.scanner
    }

    /// The scanner, to which others may add links for reading the nodes.
    pub fn scanner_mut(&mut self) -> &mut Scanner {
        &mut self.scanner
    }

    /// The ownership of `node` as last read, whose sites exist; `None` if it could not be read or is invalid.
    pub fn ownership(&self, node: NodeId) -> Option<Ownership> {
        self.words.ownerships[node.index()]
    }

    /// When it was read.
    pub fn read_at(&self, node: NodeId) -> Option<Time> {
        self.ownership(node).map(|_| self.words.read_at[node.index()])
    }

    /// The words of `site` as of the last scan.
    pub fn site(&self, site: SiteId) -> Option<SiteWords> {
        self.words.sites[site.index()]
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.words.nodes.len()
    }

    /// How many sites there are.
    pub fn site_count(&self) -> usize {
        self.words.map.sites
    }

    /// Whether the budget of `site` counts exactly the nodes that serve it, by the last scan; `None` if that depends on
    /// words that it could not read.
    pub fn budget_is_exact(&self, site: SiteId) -> Option<bool> {
        let serves = |node: &&Option<Ownership>| node.is_some_and(|node| node.serves(site));
        let serving = self.words.ownerships.iter().filter(serves).count();
        let unread = self.words.ownerships.iter().filter(|node| node.is_none()).count();
        is_exact(self.site(site)?.budget, serving, unread - self.words.invalid.len())
    }

    /// The last scan.
    pub fn last_scan(&self) -> Scan<'_> {
        let Words { ownerships, invalid, sites, .. } = &self.words;
        Scan { ownerships, invalid, sites }
    }

    /// States what this process, as a front, has seen of `node` and has under way there. `requests` must have been counted
    /// after `seen` was visible to all its requests (`layout::FrontWord`).
    pub fn state(&mut self, node: NodeId, seen: Ownership, requests: u32) {
        let word = FrontWord { seen: Some(seen.generation), requests }.encode();
        let map = FrontMap { nodes: self.node_count() };
        let Some(own) = &mut self.words.own else { return };
        // Usually nothing is new, and the line stays with its readers.
        if std::mem::replace(&mut own.words[node.index()], word) != word
            && let Some(region) = &own.region
        {
            region.store(map.node(node), word, Ordering::Release);
        }
    }

    /// Performs one operation for a machine of `state`.
    ///
    /// # Panics
    /// If it concerns an acknowledgement and the links are read-only, or a front that was not named.
    pub fn execute(&mut self, op: Op) -> Reply {
        if let Op::Read(Word::Ack(node)) = op
            && self.is_kept_by_kernel(node)
            && !self.words.seen[node.index()].is_some_and(|seen| seen.state == NodeState::Changing)
        {
            return self.infer_ack(node);
        }
        if let Op::Read(Word::Front(front, node)) = op {
            return self.read_front(front, node);
        }
        self.words.is_restless = true;
        let reply = self.post(op);
        if let (Word::Ownership(node), Reply::Value(found)) = (op.word(), reply) {
            self.words.seen[node.index()] = self.words.judge(op.applied_to(found));
        }
        reply
    }

    /// Raises the board's epoch to that of a newer roster, and returns whether it is there. Whoever adopts the roster does so,
    /// because whoever wrote it may have died.
    pub fn raise_epoch(&mut self, epoch: u64) -> bool {
        if epoch == 0 {
            return true;
        }
        for _ in 0..RAISES_MAX {
            match self.execute(Op::Read(Word::Epoch)) {
                Reply::Value(found) if found < epoch => {
                    self.execute(Op::CompareAndSwap { word: Word::Epoch, expected: found, new: epoch });
                }
                Reply::Value(_) => return true,
                Reply::Lost => {}
            }
        }
        false
    }

    /// What a front states. Its memory may outlive it, so that it is asked in any case whether it lives.
    fn read_front(&mut self, front: EdgeId, node: NodeId) -> Reply {
        let Some(link) = self.words.fronts[front.index()] else {
            return self.words.own.as_ref().map_or(Reply::Lost, |own| Reply::Value(own.words[node.index()]));
        };
        if self.scanner.is_gone(link) && front.index() < self.words.led_from {
            return Reply::Value(FrontWord::GONE);
        }
        let offset = FrontMap { nodes: self.node_count() }.node(node);
        let words = self.scanner.execute(link, |batch, id| batch.read(id, offset, 8));
        words.map_or(Reply::Lost, |words| Reply::Value(words[0]))
    }

    fn is_kept_by_kernel(&self, node: NodeId) -> bool {
        let shape = self.scanner.shape(self.words.acks[node.index()]);
        shape.is_some_and(|shape| LOAD_SHAPES[shape].0 == RegionKind::Kernel)
    }

    /// The acknowledgement of a node with a kernel-kept record, where no thread can give it. (A node that changes sites has a
    /// process at work, which says itself how that ended.) The server's line counts
    /// the node's requests, and is read after the word, as [`sidelong_state::NodeAgent::observe`] requires. A line that
    /// is being written may be about to count one more request, so it acknowledges nothing yet.
    fn infer_ack(&mut self, node: NodeId) -> Reply {
        let none = Reply::Value(0);
        let Some(seen) = self.words.seen[node.index()] else { return none };
        let link = self.words.acks[node.index()];
        let words = self.scanner.execute(link, |batch, id| batch.read(id, LOAD_HOT, HOT_BYTES));
        let Ok(words) = words else { return Reply::Lost };
        let line = words.try_into().ok().and_then(|words| Hot::validated(words).ok());
        let Some(line) = line.filter(|line| line.valid & valid::ORIGIN != 0) else { return none };
        let in_flight = line.busy.saturating_add(line.queued);
        let ack = NodeAgent::new().observe(seen.encode(), in_flight);
        ack.map_or(none, |ack| Reply::Value(ack.encode()))
    }

    fn post(&mut self, op: Op) -> Reply {
        let Words { map, board, nodes, acks, .. } = &self.words;
        let (link, offset) = match op.word() {
            Word::Lock(site) => (*board, map.lock(site)),
            Word::Budget(site) => (*board, map.budget(site)),
            Word::Counter(site, edge) => (*board, map.counter(site, edge)),
            Word::Ownership(node) => (nodes[node.index()], WORDS_OWNERSHIP),
            Word::Ack(node) => (acks[node.index()], LOAD_ACK),
            Word::Epoch => (*board, BoardMap::EPOCH),
            Word::Front(front, _) => unreachable!("read_front reads front {}", front.index()),
        };
        // Two boards are two locks. What is changed must be what every other mover finds.
        if !matches!(op, Op::Read(_)) && !self.scanner.is_current(link) {
            self.words.lost(op.word());
            return Reply::Lost;
        }
        let words = self.scanner.execute(link, |batch, id| match op {
            Op::Read(_) => batch.read(id, offset, 8),
            Op::CompareAndSwap { expected, new, .. } => batch.compare_and_swap(id, offset, expected, new),
            Op::FetchAndAdd { add, .. } => batch.fetch_and_add(id, offset, add),
        });
        let reply = words.map_or(Reply::Lost, |words| Reply::Value(words[0]));
        if self.scanner.shape(link).is_none() {
            self.words.lost(op.word());
        }
        reply
    }

    /// Why the words of `node` cannot be used, if waiting does not help.
    pub fn problem(&self, node: NodeId) -> Option<&str> {
        let link = self.words.nodes[node.index()];
        let problem = self.scanner.problem(link).filter(|problem| problem.is_foreign());
        problem.filter(|_| self.scanner.shape(link).is_none()).and_then(Problem::text)
    }

    /// The last acknowledgement of `node`.
    pub fn ack(&mut self, node: NodeId) -> Option<Ack> {
        match self.execute(Op::Read(Word::Ack(node))) {
            Reply::Value(value) => Ack::decode(value),
            Reply::Lost => None,
        }
    }
}

impl Words {
    fn judge(&self, word: u64) -> Option<Ownership> {
        Ownership::decode(word, self.map.sites)
    }

    /// Updates the list of nodes with an invalid word by one that was just read.
    fn note_validity(&mut self, node: NodeId, invalid: Option<&[u64]>) {
        match (invalid, self.invalid.iter().position(|other| *other == node)) {
            (Some(words), None) => {
                let (node, word) = (node.index(), words[0]);
                tracing::warn!(node, word = format_args!("{word:#018x}"), "an ownership word is invalid");
                self.invalid.push(NodeId::new(node));
            }
            (None, Some(place)) => _ = self.invalid.swap_remove(place),
            _ => {}
        }
    }

    /// The link to a word is down.
    fn lost(&mut self, word: Word) {
        match word {
            Word::Ownership(node) => {
                self.ownerships[node.index()] = None;
                self.invalid.retain(|other| *other != node);
            }
            Word::Lock(_) | Word::Budget(_) | Word::Counter(..) | Word::Epoch => self.sites.fill(None),
            Word::Ack(_) | Word::Front(..) => {}
        }
    }
}

impl Reader for Words {
    fn link(&self, item: usize) -> Option<LinkRef> {
        Some(self.nodes.get(item).copied().unwrap_or(self.board))
    }

    fn place(&mut self, item: usize, _shape: usize) -> (usize, usize) {
        let Some(site) = item.checked_sub(self.nodes.len()) else { return (WORDS_OWNERSHIP, 8) };
        // A site's lock and budget are on adjacent lines: one read covers both.
        let (site, map) = (SiteId::new(site), self.map);
        (map.lock(site), map.budget(site) - map.lock(site) + 8)
    }

    fn take(&mut self, item: usize, words: Result<&[u64], OpError>, now: Time) -> ReadOutcome {
        let Some(site) = item.checked_sub(self.nodes.len()) else {
            let read = words.ok().and_then(|words| self.judge(words[0]));
            let before = std::mem::replace(&mut self.ownerships[item], read);
            self.read_at[item] = now;
            if read.is_none() || before.is_none() {
                self.note_validity(NodeId::new(item), words.ok().filter(|_| read.is_none()));
            }
            let is_settled = read == before && read.is_some_and(|own| own.on_its_way().is_none());
            return if is_settled { ReadOutcome::Idle } else { ReadOutcome::Busy };
        };
        let read =
            |words: &[u64]| SiteWords { lock: words[0], budget: Budget::decode(words[words.len() - 1]) };
        let read = words.ok().map(read);
        let before = std::mem::replace(&mut self.sites[site], read);
        self.is_restless |= read != before || read.is_some_and(|site| !site.is_free());
        ReadOutcome::Busy
    }

    fn wants_all(&mut self) -> bool {
        std::mem::take(&mut self.is_restless)
    }
}
