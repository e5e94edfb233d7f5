//! Links to all words of a cluster: the nodes' ownerships and acknowledgements, the board, what the fronts state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use sidelong_fabric::{
    Access, Directory, Initiator, LinkRef, OpError, Patience, Problem, ReadOutcome, Reader, Region, Scanner,
    SharedWords, Target,
};
use sidelong_layout::{
    Ack, BoardMap, Budget, EdgeId, FrontMap, FrontWord, HOT_BYTES, Hot, LOAD_ACK, LOAD_HOT, LOAD_SHAPES,
    Lock, NodeId, NodeState, Ownership, RegionKind, SiteId, Slots, WORDS_BYTES, WORDS_OWNERSHIP, valid,
};
use sidelong_state::{NodeAgent, Op, Reply, Time, Word};

use crate::expose::{board_region, front_region, load_region, words_region};

/// Longest time of one operation, or of one scan of all words. On one machine all take less than a thousandth of it.
pub const OPERATION_MAX: Duration = Duration::from_millis(20);

/// Attempts to raise the epoch, which somebody else may raise meanwhile.
const RAISES_MAX: usize = 4;

/// Who is in the cluster, by slot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Members {
    /// The sites, by name.
    pub sites: Slots<String>,
    /// The nodes, by name.
    pub nodes: Slots<String>,
    /// Edges and fronts. Without any, what they state is not read.
    pub fronts: Slots<FrontMember>,
    /// Which board they use: the epoch in which it was handed to another node, or 0.
    pub board: u64,
}

/// Who is in the cluster, as all threads of a process see it while that changes.
pub type SharedMembers = ArcSwap<Members>;

/// An edge or front.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontMember {
    /// Its name.
    pub name: String,
    /// Whether it controls a proxy of another make: its requests go on when the front's process ends. What such a front has stated
    /// last holds until it states something else.
    pub is_led: bool,
}

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

/// Whether a budget counts nodes that do not serve its site, as when the memory of one that had just come was lost. It could then
/// give more than it has.
pub(crate) fn is_too_high(budget: Budget, serving: usize, unread: usize) -> bool {
    usize::from(budget.current) > serving + unread
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
    access: Access,
    cluster: u64,
}

/// The words as last read. In a scan the nodes come first, then the sites.
struct Words {
    map: BoardMap,
    board: LinkRef,
    /// [`Members::board`].
    term: u64,
    /// As many as the cluster has room for.
    nodes: Vec<Option<NodeLinks>>,
    fronts: Vec<Option<FrontLink>>,
    /// Whether each slot has a site.
    has_site: Vec<bool>,
    own: Option<OwnFront>,
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

/// The links to a node.
struct NodeLinks {
    name: String,
    words: LinkRef,
    /// `None` if acknowledgements are not read.
    ack: Option<LinkRef>,
}

/// The link to what a front states.
struct FrontLink {
    member: FrontMember,
    link: LinkRef,
}

/// What this process states as a front.
struct OwnFront {
    slot: EdgeId,
    words: Vec<u64>,
    place: Option<FrontPlace>,
    predecessor: Option<Arc<Predecessor>>,
}

/// Where a front states what it has seen.
enum FrontPlace {
    /// Where all others read it.
    Region(Region),
    /// Where the process reads it that has taken over from this one.
    Successor(Arc<SharedWords>),
}

/// A process from which this one has taken over as a front, and whose requests go on.
pub struct Predecessor {
    /// What it states of each node; then the epoch of the roster by which it goes.
    words: SharedWords,
    nodes: usize,
    is_gone: AtomicBool,
}

impl Predecessor {
    /// How many words a process needs to state `nodes` nodes to its successor.
    pub const fn words(nodes: usize) -> usize {
        nodes + 1
    }

    /// One that states so many nodes in these words.
    pub fn new(words: SharedWords, nodes: usize) -> Self {
        Predecessor { words, nodes, is_gone: AtomicBool::new(false) }
    }

    /// Whether it has ended.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// It has ended.
    pub fn set_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    /// Whether it goes by a roster of that epoch, or has no requests any more.
    pub fn goes_by(&self, epoch: u64) -> bool {
        self.is_gone() || self.words.load(self.nodes) >= epoch
    }

    /// Its word of that node.
    fn word(&self, node: NodeId) -> u64 {
        if self.is_gone() { FrontWord::GONE } else { self.words.load(node.index()) }
    }
}

impl FrontPlace {
    fn store(&self, map: FrontMap, node: NodeId, word: u64) {
        match self {
            FrontPlace::Region(region) => region.store(map.node(node), word, Ordering::Release),
            FrontPlace::Successor(words) => words.store(node.index(), word),
        }
    }
}

impl Links {
    /// Links to the words of `members` and to the board, in a cluster that has room for `nodes` nodes. [`Links::scan`] connects
    /// them, and reconnects broken ones.
    pub fn new(
        directory: Arc<dyn Directory>,
        initiator: Initiator,
        (nodes, map): (usize, BoardMap),
        members: &Members,
    ) -> Self {
        Links::with_access(directory, initiator, (nodes, map), members, Access::Atomic)
    }

    /// As [`Links::new`], for a thread that only reads: its operations cannot change a word, and neither acknowledgements nor fronts
    /// are linked.
    pub fn read_only(
        directory: Arc<dyn Directory>,
        initiator: Initiator,
        (nodes, map): (usize, BoardMap),
        members: &Members,
    ) -> Self {
        Links::with_access(directory, initiator, (nodes, map), members, Access::ReadOnly)
    }

    /// For the process that is the front with slot `slot`, exposes `region` as such, and may have taken over from a `predecessor`.
    pub fn of_front(
        mut self,
        slot: EdgeId,
        region: Option<Region>,
        predecessor: Option<Arc<Predecessor>>,
    ) -> Self {
        if let Some(own) = self.words.fronts.get_mut(slot.index()).and_then(Option::take) {
            self.scanner.unlink(own.link);
        }
        let map = FrontMap { nodes: self.words.nodes.len() };
        // What others have read of the predecessor stays true: this process has not looked yet, and so knows nothing older.
        let stated = |node| region.as_ref().map_or(0, |region| region.load(map.node(NodeId::new(node))));
        let words = (0..map.nodes).map(stated).collect();
        self.words.own = Some(OwnFront { slot, words, place: region.map(FrontPlace::Region), predecessor });
        self
    }

    /// Another process takes over as this front. From now on this one states to it alone, in `words`, what its own requests see.
    pub fn leave_to(&mut self, words: Arc<SharedWords>) {
        let Some(own) = &mut self.words.own else { return };
        own.words.iter().enumerate().for_each(|(node, word)| words.store(node, *word));
        (own.place, own.predecessor) = (Some(FrontPlace::Successor(words)), None);
    }

    /// States to a process that has taken over the epoch of the roster by which this one goes.
    pub fn state_epoch(&self, epoch: u64) {
        let place = self.words.own.as_ref().and_then(|own| own.place.as_ref());
        if let Some(FrontPlace::Successor(words)) = place {
            words.store(self.words.nodes.len(), epoch);
        }
    }

    /// Sets a guess whether the kernel keeps the nodes' load records; a right guess saves one link a node.
    pub fn expecting_kernel(mut self, expects_kernel: bool) -> Self {
        for ack in self.words.nodes.iter().flatten().filter_map(|node| node.ack) {
            self.scanner.guess(ack, usize::from(expects_kernel));
        }
        self
    }

    /// Waits longer for a new link than by default, if `longest` is more: one over verbs takes the work of two processes, which a slow machine
    /// does not do in that time. A scan that makes links may take twice as long.
    pub fn patient(mut self, longest: Duration) -> Self {
        self.scanner.wait_for_links(longest);
        self
    }

    fn with_access(
        directory: Arc<dyn Directory>,
        initiator: Initiator,
        (nodes, map): (usize, BoardMap),
        members: &Members,
        access: Access,
    ) -> Self {
        let patience = Patience { answers: OPERATION_MAX, ..Patience::default() };
        let (cluster, term) = (initiator.cluster(), members.board);
        let mut scanner = Scanner::new(directory, initiator, (nodes, map.sites), patience);
        let board = link_board(&mut scanner, (cluster, term), map, access, nodes);
        let words = Words {
            map,
            board,
            term,
            nodes: (0..nodes).map(|_| None).collect(),
            fronts: Vec::new(),
            has_site: vec![false; map.sites],
            own: None,
            seen: vec![None; nodes],
            ownerships: vec![None; nodes],
            invalid: Vec::new(),
            read_at: vec![Time::default(); nodes],
            sites: vec![None; map.sites],
            is_restless: true,
        };
        let mut links = Links { scanner, words, access, cluster };
        links.adopt(members);
        links
    }

    /// Goes by other members from now on. Of a node that has left nothing is known or stated any more.
    ///
    /// # Panics
    /// If there are more sites or nodes than there is room for.
    pub fn adopt(&mut self, members: &Members) {
        let Links { scanner, words, access, cluster } = self;
        let (access, is_changed) = (*access, *access == Access::Atomic);
        if std::mem::replace(&mut words.term, members.board) != members.board {
            scanner.unlink(words.board);
            words.board = link_board(scanner, (*cluster, words.term), words.map, access, words.nodes.len());
            words.sites.fill(None);
        }
        for slot in 0..words.has_site.len() {
            let has_site = members.sites.get(slot).is_some();
            if std::mem::replace(&mut words.has_site[slot], has_site) != has_site {
                words.sites[slot] = None;
                scanner.readers_changed();
            }
        }
        assert!(members.sites.len() <= words.has_site.len(), "room for all sites");
        scanner.cover(words.board, words.nodes.len()..words.nodes.len() + members.sites.len());
        assert!(members.nodes.len() <= words.nodes.len(), "room for all nodes");
        for slot in 0..words.nodes.len() {
            let name = members.nodes.get(slot);
            if words.nodes[slot].as_ref().map(|known| &known.name) == name {
                continue;
            }
            if let Some(left) = words.nodes[slot].take() {
                scanner.unlink(left.words);
                left.ack.into_iter().for_each(|ack| scanner.unlink(ack));
                words.forget(NodeId::new(slot));
            }
            words.nodes[slot] = name.map(|name| {
                let (region, shapes) = (&*words_region(name), &[(RegionKind::Words, WORDS_BYTES)]);
                let target = Target { region, shapes, guess: 0, access, items: slot..slot + 1 };
                NodeLinks { name: name.clone(), words: scanner.link(&target), ack: None }
            });
        }
        // All nodes' words come before: one that cannot be reached may use up a scan's time for links.
        for (slot, node) in words.nodes.iter_mut().enumerate().filter(|_| is_changed) {
            let Some(NodeLinks { name, ack: ack @ None, .. }) = node else { continue };
            let (region, access) = (&*load_region(name), Access::ReadOnly);
            let items = slot..slot + 1;
            *ack = Some(scanner.link(&Target { region, shapes: &LOAD_SHAPES, guess: 0, access, items }));
        }
        let (kind, len) = (RegionKind::Front, FrontMap { nodes: words.nodes.len() }.len());
        words.fronts.resize_with(members.fronts.len().max(words.fronts.len()), || None);
        let own = words.own.as_ref().map(|own| own.slot.index());
        for slot in (0..words.fronts.len()).filter(|slot| is_changed && own != Some(*slot)) {
            let member = members.fronts.get(slot);
            if words.fronts[slot].as_ref().map(|known| &known.member) == member {
                continue;
            }
            words.fronts[slot].take().into_iter().for_each(|left| scanner.unlink(left.link));
            words.fronts[slot] = member.map(|member| {
                let (region, access) = (&*front_region(&member.name), Access::ReadOnly);
                let target = Target { region, shapes: &[(kind, len)], guess: 0, access, items: 0..0 };
                FrontLink { member: member.clone(), link: scanner.link(&target) }
            });
        }
    }

    /// What was read and stated of `node` is of no use any more: it is another process now, elsewhere.
    pub fn forget(&mut self, node: NodeId) {
        self.words.forget(node);
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

    /// The ownership of `node` as the last operation on it left it, which may be older than the last scan.
    pub fn left_as(&self, node: NodeId) -> Option<Ownership> {
        self.words.seen[node.index()]
    }

    /// When it was read.
    pub fn read_at(&self, node: NodeId) -> Option<Time> {
        self.ownership(node).map(|_| self.words.read_at[node.index()])
    }

    /// The words of `site` as of the last scan.
    pub fn site(&self, site: SiteId) -> Option<SiteWords> {
        self.words.sites[site.index()]
    }

    /// The nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let slots = self.words.nodes.iter().enumerate();
        slots.filter(|(_, node)| node.is_some()).map(|(slot, _)| NodeId::new(slot))
    }

    /// The sites.
    pub fn sites(&self) -> impl Iterator<Item = SiteId> {
        let slots = self.words.has_site.iter().enumerate();
        slots.filter(|(_, has_site)| **has_site).map(|(slot, _)| SiteId::new(slot))
    }

    /// Whether the budget of `site` counts exactly the nodes that serve it, by the last scan; `None` if that depends on
    /// words that it could not read.
    pub fn budget_is_exact(&self, site: SiteId) -> Option<bool> {
        let (serving, unread) = self.count(site);
        is_exact(self.site(site)?.budget, serving, unread)
    }

    /// Whether the budget of `site` counts nodes that do not serve it, by the last scan.
    pub fn budget_is_too_high(&self, site: SiteId) -> bool {
        let (serving, unread) = self.count(site);
        self.site(site).is_some_and(|words| is_too_high(words.budget, serving, unread))
    }

    /// The nodes that serve `site`, and those that could not be read.
    fn count(&self, site: SiteId) -> (usize, usize) {
        let serving = self.nodes().filter(|node| self.ownership(*node).is_some_and(|own| own.serves(site)));
        let unread = self.nodes().filter(|node| self.ownership(*node).is_none());
        (serving.count(), unread.count() - self.words.invalid.len())
    }

    /// The last scan.
    pub fn last_scan(&self) -> Scan<'_> {
        let Words { ownerships, invalid, sites, .. } = &self.words;
        Scan { ownerships, invalid, sites }
    }

    /// States what this process, as a front, has seen of `node` and has under way there. `requests` must have been counted
    /// after `seen` was visible to all its requests (`layout::FrontWord`).
    pub fn state(&mut self, node: NodeId, seen: Ownership, requests: u32) {
        let map = FrontMap { nodes: self.words.nodes.len() };
        let Some(own) = &mut self.words.own else { return };
        let word = FrontWord { seen: Some(seen.generation), requests };
        let word = own.predecessor.as_ref().map_or(word, |before| word.and(before.word(node))).encode();
        // Usually nothing is new, and the line stays with its readers.
        if std::mem::replace(&mut own.words[node.index()], word) != word
            && let Some(place) = &own.place
        {
            place.store(map, node, word);
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
        let Words { fronts, own, nodes, .. } = &self.words;
        if let Some(own) = own.as_ref().filter(|own| own.slot == front) {
            return Reply::Value(own.words[node.index()]);
        }
        // A mover may finish by a roster that has a front which this one has not.
        let Some(Some(FrontLink { member, link })) = fronts.get(front.index()) else { return Reply::Lost };
        let (link, is_led) = (*link, member.is_led);
        let offset = FrontMap { nodes: nodes.len() }.node(node);
        if self.scanner.has_ended(link) && !is_led {
            return Reply::Value(FrontWord::GONE);
        }
        let words = self.scanner.execute(link, |batch, id| batch.read(id, offset, 8));
        words.map_or(Reply::Lost, |words| Reply::Value(words[0]))
    }

    fn is_kept_by_kernel(&self, node: NodeId) -> bool {
        let shape = self.words.ack(node).and_then(|ack| self.scanner.shape(ack));
        shape.is_some_and(|shape| LOAD_SHAPES[shape].0 == RegionKind::Kernel)
    }

    /// The acknowledgement of a node with a kernel-kept record, where no thread can give it. (A node that changes sites has a
    /// process at work, which says itself how that ended.) The server's line counts
    /// the node's requests, and is read after the word, as [`sidelong_state::NodeAgent::observe`] requires. A line that
    /// is being written may be about to count one more request, so it acknowledges nothing yet.
    fn infer_ack(&mut self, node: NodeId) -> Reply {
        let none = Reply::Value(0);
        let Some(seen) = self.words.seen[node.index()] else { return none };
        let Some(link) = self.words.ack(node) else { return Reply::Lost };
        let words = self.scanner.execute(link, |batch, id| batch.read(id, LOAD_HOT, HOT_BYTES));
        let Ok(words) = words else { return Reply::Lost };
        let line = words.try_into().ok().and_then(|words| Hot::validated(words).ok());
        let Some(line) = line.filter(|line| line.valid & valid::ORIGIN != 0) else { return none };
        let in_flight = line.busy.saturating_add(line.queued);
        let ack = NodeAgent::new().observe(seen.encode(), in_flight);
        ack.map_or(none, |ack| Reply::Value(ack.encode()))
    }

    fn post(&mut self, op: Op) -> Reply {
        let Words { map, board, .. } = &self.words;
        let of_board = |offset| Some((*board, offset));
        let place = match op.word() {
            Word::Lock(site) => of_board(map.lock(site)),
            Word::Budget(site) => of_board(map.budget(site)),
            Word::Counter(site, edge) => of_board(map.counter(site, edge)),
            Word::Ownership(node) => self.words.node(node).map(|node| (node.words, WORDS_OWNERSHIP)),
            Word::Ack(node) => self.words.ack(node).map(|ack| (ack, LOAD_ACK)),
            Word::Epoch => of_board(BoardMap::EPOCH),
            Word::Front(front, _) => unreachable!("read_front reads front {}", front.index()),
        };
        // Of a node that has left the cluster since the operation was thought of, there is nothing.
        let Some((link, offset)) = place else { return Reply::Lost };
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
        let link = self.words.node(node)?.words;
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

/// Links to the board. Its items come after those of the nodes, as many as there are sites.
fn link_board(
    scanner: &mut Scanner,
    (cluster, term): (u64, u64),
    map: BoardMap,
    access: Access,
    nodes: usize,
) -> LinkRef {
    let (region, shapes) = (&*board_region(cluster, term), &[(RegionKind::Board, map.len())]);
    scanner.link(&Target { region, shapes, guess: 0, access, items: nodes..nodes })
}

impl Words {
    fn judge(&self, word: u64) -> Option<Ownership> {
        let own = Ownership::decode(word, self.map.sites)?;
        let exists = |site: &SiteId| self.has_site[site.index()];
        own.site.iter().chain(&own.next).all(exists).then_some(own)
    }

    fn node(&self, node: NodeId) -> Option<&NodeLinks> {
        self.nodes.get(node.index())?.as_ref()
    }

    fn ack(&self, node: NodeId) -> Option<LinkRef> {
        self.node(node)?.ack
    }

    /// A node has left the cluster.
    fn forget(&mut self, node: NodeId) {
        (self.seen[node.index()], self.ownerships[node.index()]) = (None, None);
        self.invalid.retain(|other| *other != node);
        let map = FrontMap { nodes: self.nodes.len() };
        let Some(own) = &mut self.own else { return };
        own.words[node.index()] = 0;
        if let Some(place) = &own.place {
            place.store(map, node, 0);
        }
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
        match item.checked_sub(self.nodes.len()) {
            None => Some(self.nodes[item].as_ref()?.words),
            Some(site) => self.has_site[site].then_some(self.board),
        }
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
