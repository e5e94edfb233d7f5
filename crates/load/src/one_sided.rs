//! The front end's side of the one-sided schemes: reads the records from the nodes' memory (Vaidyanathan et al. 2006,
//! 3.2).
//!
//! No code runs on a node for it, except over the tcp backend. [`Records`] tells a scan what to read of each node and
//! judges the copies; it shares a scan with everything else that its thread reads. [`OneSided`] is for a thread that
//! reads nothing else. A link that works but brings no fresh record is doubted, which finds the region of a restarted
//! node.

use std::sync::Arc;
use std::time::Duration;

use sidelong_fabric::{
    Access, Directory, Initiator, LinkRef, OpError, Pace, Problem, ReadOutcome, Reader, ScanCounts, Scanner,
    Target,
};
use sidelong_layout::{
    Detail, Hot, KERNEL_MACHINE, KERNEL_SOCKETS, LOAD_DETAIL, LOAD_SHAPES, Machine, Slots, Sockets,
};
use sidelong_layout::{RegionKind, Time};
use sidelong_state::{Newest, Record, Verdict};

use crate::kept::{self, CpuLoad, NodeState};
use crate::listener::Foreign;
use crate::reading::{Limits, Reading, Source, Status, Track};
use crate::snapshot::{self, Snapshot};

/// A kernel-kept record is updated every millisecond, however busy its machine is. An older one has lost its owner,
/// whatever the limit for other records.
const STALE_KEPT: Duration = Duration::from_millis(150);
/// CPU use from which a node counts as busy, in thousandths.
const WORK_PERMILLE: u16 = 100;

/// The load records of all nodes, under rdma-async and the schemes with kernel-kept records.
pub struct Records {
    limits: Limits,
    /// A guess whether the kernel keeps the records of nodes that are not linked yet.
    expects_kernel: bool,
    /// By slot.
    nodes: Vec<Option<Node>>,
}

struct Node {
    /// The link to its load region, which has that name.
    link: LinkRef,
    region: String,
    /// Its server, if that is foreign.
    foreign: Option<Foreign>,
    /// `Some` if the kernel keeps its record.
    kept: Option<Box<NodeState>>,
    track: Track,
    /// The status as of the last scan.
    status: Status,
}

/// Where a node's record is, and what is known of the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordOf {
    /// The name of its load region.
    pub region: String,
    /// Its server, if that is foreign: then a record that the kernel keeps has the port.
    pub foreign: Option<Foreign>,
}

impl From<String> for RecordOf {
    /// Of a node with a server of its own.
    fn from(region: String) -> Self {
        RecordOf { region, foreign: None }
    }
}

impl Records {
    /// The records of these nodes, each an item of `scanner` by its slot. `expects_kernel` is a guess whether the kernel keeps
    /// them; a right guess saves one link a node.
    pub fn new(scanner: &mut Scanner, nodes: &Slots<RecordOf>, expects_kernel: bool, limits: Limits) -> Self {
        let mut records = Records { limits, expects_kernel, nodes: Vec::new() };
        records.adopt(scanner, nodes);
        records
    }

    /// Goes by other nodes from now on. Those that stay are not read anew.
    pub fn adopt(&mut self, scanner: &mut Scanner, nodes: &Slots<RecordOf>) {
        self.nodes.resize_with(nodes.len().max(self.nodes.len()), || None);
        for (slot, known) in self.nodes.iter_mut().enumerate() {
            let new = nodes.get(slot);
            if known.as_ref().map(|known| &known.region) == new.map(|new| &new.region) {
                continue;
            }
            known.take().into_iter().for_each(|left| scanner.unlink(left.link));
            *known = new.map(|new| {
                let (guess, access) = (usize::from(self.expects_kernel), Access::ReadOnly);
                let (region, items) = (&*new.region, slot..slot + 1);
                let link = scanner.link(&Target { region, shapes: &LOAD_SHAPES, guess, access, items });
                scanner.doubt(link);
                Node {
                    link,
                    region: new.region.clone(),
                    foreign: new.foreign.clone(),
                    kept: None,
                    track: Track::default(),
                    status: Status::default(),
                }
            });
        }
    }

    /// Updates `into` after a scan of `scanner` at `now`.
    ///
    /// # Panics
    /// If `into` does not have one entry for each slot.
    pub fn show(&mut self, scanner: &mut Scanner, now: Time, into: &mut [Reading]) {
        assert_eq!(into.len(), self.nodes.len(), "a reading for each slot");
        let limits = self.limits;
        let limits_kept = Limits { stale: limits.stale.min(STALE_KEPT), ..limits };
        for (node, reading) in self.nodes.iter_mut().zip(into) {
            let Some(node) = node else {
                *reading = Reading::default();
                continue;
            };
            if !scanner.is_up(node.link) {
                node.track.lost();
            }
            let limits = if node.kept.is_some() { &limits_kept } else { &limits };
            *reading = node.track.reading(now.as_ns(), limits);
            node.status = reading.status;
            match node.status {
                Status::Fresh => scanner.trust(node.link, now),
                _ => scanner.doubt(node.link),
            }
        }
    }

    /// Each CPU of a node as of the last scan, by number; empty if the record does not tell CPUs apart.
    pub fn cpus(&self, node: usize) -> &[CpuLoad] {
        self.node(node).and_then(|node| node.kept.as_ref()).map_or(&[], |kept| kept.cpus())
    }

    /// The last problem with a node, in words; `None` if there was none since it was last reached.
    pub fn problem<'a>(&self, scanner: &'a Scanner, node: usize) -> Option<&'a str> {
        scanner.problem(self.node(node)?.link).and_then(Problem::text)
    }

    fn node(&self, node: usize) -> Option<&Node> {
        self.nodes.get(node)?.as_ref()
    }
}

impl Reader for Records {
    fn link(&self, item: usize) -> Option<LinkRef> {
        self.node(item).map(|node| node.link)
    }

    fn place(&mut self, item: usize, shape: usize) -> (usize, usize) {
        let Some(node) = &mut self.nodes[item] else { return (snapshot::OFFSET, snapshot::BYTES) };
        let is_kept = LOAD_SHAPES[shape].0 == RegionKind::Kernel;
        if is_kept != node.kept.is_some() {
            node.kept = is_kept.then(|| Box::new(NodeState::of(node.foreign.clone())));
            node.track.lost();
        }
        (snapshot::OFFSET, node.kept.as_ref().map_or(snapshot::BYTES, |kept| kept.bytes()))
    }

    fn take(&mut self, item: usize, words: Result<&[u64], OpError>, now: Time) -> ReadOutcome {
        let Some(node) = &mut self.nodes[item] else { return ReadOutcome::Idle };
        let Ok(words) = words else {
            node.track.missed();
            return ReadOutcome::Busy;
        };
        let (torn, has_grown) = match &mut node.kept {
            None => (node.track.see(&Snapshot::of_words(words), now.as_ns()), false),
            Some(kept) => {
                let (look, has_grown) = kept.look(words);
                (node.track.see_kept(words[0], look, now.as_ns()), has_grown)
            }
        };
        let is_idle = || node.status == Status::Fresh && !node.track.hot().is_some_and(has_work);
        match (torn, has_grown) {
            (true, _) => ReadOutcome::Torn,
            (_, true) => ReadOutcome::Moved,
            _ if is_idle() => ReadOutcome::Idle,
            _ => ReadOutcome::Busy,
        }
    }
}

/// Whether a node must be read at each scan.
fn has_work(hot: &Hot) -> bool {
    hot.busy > 0 || hot.queued > 0 || hot.cpu_permille >= WORK_PERMILLE
}

/// The load records of all nodes, for a thread that reads nothing else.
pub struct OneSided {
    scanner: Scanner,
    records: Records,
}

impl OneSided {
    /// A source that reads the records of these nodes, found through `directory`. It looks for none before the
    /// first refresh. `expects_kernel` is as for [`Records::new`].
    pub fn new(
        directory: Arc<dyn Directory>,
        initiator: Initiator,
        nodes: &Slots<RecordOf>,
        expects_kernel: bool,
        limits: Limits,
    ) -> Self {
        let mut scanner = Scanner::new(directory, initiator, (nodes.len(), 0), limits.patience());
        let records = Records::new(&mut scanner, nodes, expects_kernel, limits);
        OneSided { scanner, records }
    }

    /// Sets a pace other than the default.
    ///
    /// # Panics
    /// If the pace would read no node.
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.scanner.set_pace(pace);
        self
    }

    /// The detail part of a node's record, of any age; `None` if it is not available. For people and metrics: it waits
    /// for a read of its own.
    pub fn detail(&mut self, node: usize) -> Option<Detail> {
        let own = self.record::<{ Detail::WORDS }, Detail>(node, LOAD_DETAIL);
        if !self.is_kept(node) {
            return own;
        }
        self.machine(node).map(|machine| kept::detail(&machine, own))
    }

    /// The counters of a node with a kernel-kept record, as [`OneSided::detail`].
    pub fn machine(&mut self, node: usize) -> Option<Machine> {
        self.is_kept(node).then(|| self.record::<{ Machine::WORDS }, Machine>(node, KERNEL_MACHINE))?
    }

    /// The sockets of such a node's foreign server, as [`OneSided::detail`]; `None` too if its kernel does not count them.
    pub fn sockets(&mut self, node: usize) -> Option<Sockets> {
        self.is_kept(node).then(|| self.record::<{ Sockets::WORDS }, Sockets>(node, KERNEL_SOCKETS))?
    }

    /// Whether the kernel keeps the node's record; `None` while unknown.
    pub fn is_kept_by_kernel(&self, node: usize) -> Option<bool> {
        let shape = self.scanner.shape(self.records.node(node)?.link);
        shape.map(|shape| LOAD_SHAPES[shape].0 == RegionKind::Kernel)
    }

    fn is_kept(&self, node: usize) -> bool {
        self.records.node(node).is_some_and(|node| node.kept.is_some())
    }

    fn record<const W: usize, R: Record<W>>(&mut self, node: usize, offset: usize) -> Option<R> {
        let link = self.records.node(node)?.link;
        let mut newest = Newest::new();
        loop {
            let words = self.scanner.execute(link, |batch, id| batch.read(id, offset, W * 8));
            match newest.judge::<W, R>(words.ok()?.try_into().ok()?) {
                Verdict::Use(record) => return Some(record),
                Verdict::Again => {}
                Verdict::GiveUp(_) => return None,
            }
        }
    }
}

impl Source for OneSided {
    fn refresh(&mut self, now_ns: u64, into: &mut [Reading]) {
        let now = Time::from_ns(now_ns);
        self.scanner.scan(now, &mut [&mut self.records]);
        self.records.show(&mut self.scanner, now, into);
    }

    fn cpus(&self, node: usize) -> &[CpuLoad] {
        self.records.cpus(node)
    }

    fn problem(&self, node: usize) -> Option<&str> {
        self.records.problem(&self.scanner, node)
    }

    fn counts(&self) -> Option<ScanCounts> {
        Some(self.scanner.counts())
    }
}
