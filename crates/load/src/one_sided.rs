//! The front end's side of the one-sided schemes: reads the records out of the nodes' memory (M 3.2).
//!
//! All nodes are read by one batch with one wait, and nothing runs on any of them for it (but over the tcp backend). A
//! copy that was torn is read again, in a batch with the others that were. Whoever is not there, or has not been
//! heard of for too long, is looked up anew, ever more seldom; that also finds a node whose region was made again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sidelong_fabric::{Batch, Directory, Error as FabricError, Initiator, LinkId, OpError, OpId};
use sidelong_layout::{Detail, KERNEL_MACHINE, KERNEL_PORTS, LOAD_DETAIL, Machine, Ports, RegionKind};
use sidelong_state::{Newest, Record, Verdict};

use crate::kept::{self, CpuLoad, Kept};
use crate::reading::{Limits, Reading, Source, Status, Track};
use crate::retry::Retry;
use crate::snapshot::{self, Snapshot};

/// A record that the kernel keeps beats each millisecond, however busy its machine is: one that is older than this has lost
/// its owner, whatever the limit for others.
const STALE_KEPT: Duration = Duration::from_millis(150);

/// Readings by one-sided reads of load regions: rdma-async, and the schemes that keep the record in the kernel.
pub struct OneSided {
    directory: Arc<dyn Directory>,
    limits: Limits,
    initiator: Initiator,
    nodes: Vec<Node>,
    /// One read for each node with a link, kept from one refresh to the next.
    batch: Batch,
    /// Whether `batch` fits the links.
    in_step: bool,
    /// Reads of what was torn, and whose they are.
    again: Batch,
    torn: Vec<(usize, LinkId)>,
}

struct Node {
    /// Of its load region.
    name: String,
    link: Option<LinkId>,
    /// In the batch.
    read: Option<OpId>,
    /// Where the kernel keeps its record.
    kept: Option<Box<Kept>>,
    /// Whether it did when there was last a link, or is said to.
    expects_kernel: bool,
    track: Track,
    /// As of the last refresh.
    status: Status,
    retry: Retry,
    problem: Option<String>,
}

impl OneSided {
    /// Reads the load regions of these names, found through `directory`. None is looked for before the first refresh.
    pub fn new(
        directory: Arc<dyn Directory>,
        initiator: Initiator,
        regions: impl IntoIterator<Item = String>,
        limits: Limits,
    ) -> Self {
        let node = |name| Node {
            name,
            link: None,
            read: None,
            kept: None,
            expects_kernel: false,
            track: Track::default(),
            status: Status::default(),
            retry: Retry::default(),
            problem: None,
        };
        OneSided {
            directory,
            limits,
            initiator,
            nodes: regions.into_iter().map(node).collect(),
            batch: Batch::new(),
            in_step: true,
            again: Batch::new(),
            torn: Vec::new(),
        }
    }

    /// With a guess at who keeps the nodes' records, the kernel or a thread: a right one saves a link for each.
    pub fn expecting_kernel(mut self, expects_kernel: bool) -> Self {
        self.nodes.iter_mut().for_each(|node| node.expects_kernel = expects_kernel);
        self
    }

    /// The detail part of a node's record, whatever its age; `None` where it cannot be had. For people and metrics: it
    /// waits for its own read.
    pub fn detail(&mut self, node: usize) -> Option<Detail> {
        let own = self.record::<{ Detail::WORDS }, Detail>(node, LOAD_DETAIL);
        if self.nodes[node].kept.is_none() {
            return own;
        }
        self.machine(node).map(|machine| kept::detail(&machine, own))
    }

    /// The counters of a node whose record the kernel keeps, likewise.
    pub fn machine(&mut self, node: usize) -> Option<Machine> {
        self.nodes[node].kept.as_ref()?;
        self.record::<{ Machine::WORDS }, Machine>(node, KERNEL_MACHINE)
    }

    /// The listening ports of such a node, likewise; `None` too where its kernel does not tell them.
    pub fn ports(&mut self, node: usize) -> Option<Ports> {
        self.nodes[node].kept.as_ref()?;
        self.record::<{ Ports::WORDS }, Ports>(node, KERNEL_PORTS)
    }

    /// Each CPU of such a node as of the last refresh, by its number; none of others.
    pub fn cpus(&self, node: usize) -> &[CpuLoad] {
        self.nodes[node].kept.as_ref().map_or(&[], |kept| kept.cpus())
    }

    /// Whether the kernel keeps the node's record; `None` while that is not known.
    pub fn is_kept_by_kernel(&self, node: usize) -> Option<bool> {
        self.nodes[node].link.map(|_| self.nodes[node].kept.is_some())
    }

    fn record<const W: usize, R: Record<W>>(&mut self, node: usize, offset: usize) -> Option<R> {
        let link = self.nodes[node].link?;
        let mut newest = Newest::new();
        let mut batch = Batch::new();
        let read = batch.read(link, offset, W * 8);
        loop {
            self.initiator.run(&mut batch, self.limits.wait);
            match newest.judge::<W, R>(batch.words(read).ok()?.try_into().ok()?) {
                Verdict::Use(record) => return Some(record),
                Verdict::Again => {}
                Verdict::GiveUp(_) => return None,
            }
        }
    }

    /// Links to the nodes that want it and whose time has come, for no longer than one wait in all.
    fn link_up(&mut self, now_ns: u64) {
        let mut began = None;
        for node in &mut self.nodes {
            if !node.wants_link() || !node.retry.is_due(now_ns) {
                continue;
            }
            let began = *began.get_or_insert_with(Instant::now);
            let left = self.limits.connect.saturating_sub(began.elapsed());
            if left.is_zero() {
                break; // The others are due at the next refresh, before those that were tried now.
            }
            node.retry.tried(now_ns, &self.limits);
            match node.connect(&mut self.initiator, &*self.directory, left) {
                Ok((link, is_kept)) => {
                    node.problem = None;
                    node.expects_kernel = is_kept;
                    if is_kept != node.kept.is_some() {
                        node.kept = is_kept.then(Box::default);
                        node.track.lost();
                    }
                    if let Some(old) = node.link.replace(link) {
                        self.initiator.close(old);
                    }
                    self.in_step = false;
                }
                Err(error) => node.complain(error.to_string()),
            }
        }
    }

    fn make_batch(&mut self) {
        self.batch.clear();
        for node in &mut self.nodes {
            node.read = node.link.map(|link| self.batch.read(link, snapshot::OFFSET, node.read_bytes()));
        }
        self.in_step = true;
    }

    /// Takes in what the batch brought, and lists what was torn.
    fn take(&mut self, now_ns: u64) {
        self.torn.clear();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let (Some(link), Some(read)) = (node.link, node.read) else {
                node.track.lost();
                continue;
            };
            match self.batch.words(read) {
                Ok(words) => {
                    if node.see(words, now_ns, &mut self.in_step) {
                        self.torn.push((index, link));
                    }
                }
                Err(OpError::Timeout) => node.track.missed(),
                Err(error) => {
                    node.complain(error.to_string());
                    node.track.lost();
                    node.link = None;
                    self.initiator.close(link);
                    self.in_step = false;
                }
            }
        }
    }

    /// Reads torn records again. Each ends, as its track counts how often it was torn.
    fn read_again(&mut self, now_ns: u64) {
        while !self.torn.is_empty() {
            self.again.clear();
            let reads: Vec<OpId> = (self.torn.iter())
                .map(|(index, link)| {
                    self.again.read(*link, snapshot::OFFSET, self.nodes[*index].read_bytes())
                })
                .collect();
            self.initiator.run(&mut self.again, self.limits.wait);
            let mut reads = reads.into_iter();
            self.torn.retain(|(index, _)| {
                let node = &mut self.nodes[*index];
                match self.again.words(reads.next().expect("one read for each")) {
                    Ok(words) => node.see(words, now_ns, &mut self.in_step),
                    Err(_) => {
                        node.track.missed(); // A link that is down shows at the next refresh.
                        false
                    }
                }
            });
        }
    }
}

impl Source for OneSided {
    fn refresh(&mut self, now_ns: u64, into: &mut [Reading]) {
        assert_eq!(into.len(), self.nodes.len(), "a reading for each node");
        self.link_up(now_ns);
        if !self.in_step {
            self.make_batch();
        }
        self.initiator.run(&mut self.batch, self.limits.wait);
        self.take(now_ns);
        self.read_again(now_ns);
        for (node, reading) in self.nodes.iter_mut().zip(into) {
            let stale = node.kept.as_ref().map_or(self.limits.stale, |_| self.limits.stale.min(STALE_KEPT));
            *reading = node.track.reading(now_ns, &Limits { stale, ..self.limits });
            node.status = reading.status;
            if node.status == Status::Fresh {
                node.retry.succeeded();
                node.problem = None;
            }
        }
    }

    fn problem(&self, node: usize) -> Option<&str> {
        self.nodes[node].problem.as_deref()
    }
}

impl Node {
    /// A link that works may still lead to memory that its node has left for a new region.
    fn wants_link(&self) -> bool {
        self.link.is_none() || self.status != Status::Fresh
    }

    fn connect(
        &self,
        initiator: &mut Initiator,
        directory: &dyn Directory,
        wait: Duration,
    ) -> Result<(LinkId, bool), FabricError> {
        let guess = usize::from(self.expects_kernel);
        let shaped = initiator.connect_shaped(directory, &self.name, &snapshot::SHAPES, guess, wait);
        shaped.map(|(link, shape)| (link, snapshot::SHAPES[shape].0 == RegionKind::Kernel))
    }

    fn read_bytes(&self) -> usize {
        self.kept.as_ref().map_or(snapshot::BYTES, |kept| kept.bytes())
    }

    /// Takes in a copy. True: it was torn and another is worth its while.
    fn see(&mut self, words: &[u64], now_ns: u64, in_step: &mut bool) -> bool {
        let Some(kept) = &mut self.kept else { return self.track.see(&Snapshot::of_words(words), now_ns) };
        let (look, has_grown) = kept.look(words);
        *in_step &= !has_grown;
        self.track.see_kept(words[0], look, now_ns)
    }

    fn complain(&mut self, problem: String) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(region = self.name, problem, "the load record cannot be read");
            self.problem = Some(problem);
        }
    }
}
