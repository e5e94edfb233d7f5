//! The front end's side of the one-sided schemes: reads the records out of the nodes' memory (M 3.2).
//!
//! Nodes are read in batches, each with one wait, and nothing runs on any of them for it (but over the tcp backend); whom a
//! refresh reads, and how many at once, is for [`Pace`] to say. A copy that was torn is read again, in a batch with the
//! others that were. Whoever is not there, or has not been heard of for too long, is looked up anew, ever more seldom;
//! that also finds a node whose region was made again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sidelong_fabric::{Batch, Directory, Error as FabricError, Initiator, LinkId, OpError, OpId};
use sidelong_layout::{Detail, KERNEL_MACHINE, KERNEL_PORTS, LOAD_DETAIL, Machine, Ports, RegionKind};
use sidelong_state::{Newest, Record, Verdict};

use crate::kept::{self, CpuLoad, Kept};
use crate::reading::{Limits, Reading, Source, Status, Track};
use crate::retry::Retry;
use crate::snapshot::{self, Snapshot};
use crate::sweep::{Pace, Part, Sweep, Swept, has_work};

/// A record that the kernel keeps beats each millisecond, however busy its machine is: one that is older than this has lost
/// its owner, whatever the limit for others.
const STALE_KEPT: Duration = Duration::from_millis(150);

/// Readings by one-sided reads of load regions: rdma-async, and the schemes that keep the record in the kernel.
pub struct OneSided {
    directory: Arc<dyn Directory>,
    limits: Limits,
    initiator: Initiator,
    nodes: Vec<Node>,
    /// Those that want a link, as of the last refresh.
    wanting: Vec<u32>,
    sweep: Sweep,
    /// One for each part of a sweep, kept from one refresh to the next.
    reads: Vec<Reads>,
    /// Raised whenever a link is made or lost.
    links: u64,
    /// Reads of what was torn, and whose they are.
    again: Batch,
    torn: Vec<(usize, LinkId)>,
}

/// One read for each of some nodes.
#[derive(Default)]
struct Reads {
    nodes: Vec<u32>,
    ops: Vec<OpId>,
    batch: Batch,
    /// As of which links they are.
    links: u64,
}

struct Node {
    /// Of its load region.
    name: String,
    link: Option<LinkId>,
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
            kept: None,
            expects_kernel: false,
            track: Track::default(),
            status: Status::default(),
            retry: Retry::default(),
            problem: None,
        };
        let nodes: Vec<_> = regions.into_iter().map(node).collect();
        OneSided {
            directory,
            limits,
            initiator,
            sweep: Sweep::new(nodes.len(), Pace::default()),
            wanting: (0..nodes.len() as u32).collect(),
            nodes,
            reads: Vec::new(),
            links: 1,
            again: Batch::new(),
            torn: Vec::new(),
        }
    }

    /// With a guess at who keeps the nodes' records, the kernel or a thread: a right one saves a link for each.
    pub fn expecting_kernel(mut self, expects_kernel: bool) -> Self {
        self.nodes.iter_mut().for_each(|node| node.expects_kernel = expects_kernel);
        self
    }

    /// At another pace than the default. What was read before is forgotten.
    ///
    /// # Panics
    /// Where the pace would read nobody.
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.sweep = Sweep::new(self.nodes.len(), pace);
        for (index, _) in self.nodes.iter().enumerate().filter(|(_, node)| node.link.is_some()) {
            self.sweep.linked(index);
        }
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
        for index in self.wanting.iter().map(|index| *index as usize) {
            let node = &mut self.nodes[index];
            if !node.retry.is_due(now_ns) {
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
                    self.sweep.linked(index);
                    self.links += 1;
                }
                Err(error) => node.complain(error.to_string()),
            }
        }
    }

    /// Reads the nodes of the `number`-th part of a sweep.
    fn read(&mut self, number: usize, part: &Part, now_ns: u64) {
        if number == self.reads.len() {
            self.reads.push(Reads::default());
        }
        let mut reads = std::mem::take(&mut self.reads[number]);
        let nodes = self.sweep.nodes(part.range.clone());
        if reads.links != self.links || reads.nodes != nodes {
            reads.make(nodes, &self.nodes);
            reads.links = self.links;
        }
        self.initiator.run(&mut reads.batch, part.wait);
        if self.take(&reads, now_ns) {
            self.sweep.waited(part);
        }
        self.reads[number] = reads;
        self.read_again(part.wait, now_ns);
    }

    /// Takes in what a batch brought, and lists what was torn. Whether someone was waited for in vain.
    fn take(&mut self, reads: &Reads, now_ns: u64) -> bool {
        self.torn.clear();
        let mut in_vain = false;
        for (index, read) in reads.nodes.iter().map(|node| *node as usize).zip(&reads.ops) {
            let node = &mut self.nodes[index];
            let Some(link) = node.link else { continue };
            match reads.batch.words(*read) {
                Ok(words) => {
                    if node.see(words, now_ns, &mut self.links) {
                        self.torn.push((index, link));
                    }
                    let is_idle = node.status == Status::Fresh && !node.track.hot().is_some_and(has_work);
                    self.sweep.saw(index, !is_idle);
                }
                Err(OpError::Timeout) => {
                    node.track.missed();
                    self.sweep.missed(index);
                    in_vain = true;
                }
                Err(error) => {
                    node.complain(error.to_string());
                    node.track.lost();
                    node.link = None;
                    self.initiator.close(link);
                    self.sweep.lost(index);
                    self.links += 1;
                }
            }
        }
        in_vain
    }

    /// Reads torn records again. Each ends, as its track counts how often it was torn.
    fn read_again(&mut self, wait: Duration, now_ns: u64) {
        while !self.torn.is_empty() {
            self.sweep.read_again(self.torn.len());
            self.again.clear();
            let reads: Vec<OpId> = (self.torn.iter())
                .map(|(index, link)| {
                    self.again.read(*link, snapshot::OFFSET, self.nodes[*index].read_bytes())
                })
                .collect();
            self.initiator.run(&mut self.again, wait);
            let mut reads = reads.into_iter();
            self.torn.retain(|(index, _)| {
                let node = &mut self.nodes[*index];
                match self.again.words(reads.next().expect("one read for each")) {
                    Ok(words) => node.see(words, now_ns, &mut self.links),
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
        self.sweep.begin(now_ns, self.limits.wait);
        let mut number = 0;
        while let Some(part) = self.sweep.next() {
            self.read(number, &part, now_ns);
            number += 1;
        }
        self.wanting.clear();
        for (index, (node, reading)) in self.nodes.iter_mut().zip(into).enumerate() {
            let stale = node.kept.as_ref().map_or(self.limits.stale, |_| self.limits.stale.min(STALE_KEPT));
            *reading = node.track.reading(now_ns, &Limits { stale, ..self.limits });
            node.status = reading.status;
            if node.status == Status::Fresh {
                node.retry.succeeded();
                node.problem = None;
            }
            if node.wants_link() {
                self.wanting.push(index as u32);
            }
        }
    }

    fn cpus(&self, node: usize) -> &[CpuLoad] {
        self.nodes[node].kept.as_ref().map_or(&[], |kept| kept.cpus())
    }

    fn problem(&self, node: usize) -> Option<&str> {
        self.nodes[node].problem.as_deref()
    }

    fn swept(&self) -> Option<Swept> {
        Some(self.sweep.swept())
    }
}

impl Reads {
    fn make(&mut self, nodes: &[u32], all: &[Node]) {
        self.batch.clear();
        self.ops.clear();
        self.nodes.clear();
        for number in nodes {
            let node = &all[*number as usize];
            // Who is read has a link.
            if let Some(link) = node.link {
                self.nodes.push(*number);
                self.ops.push(self.batch.read(link, snapshot::OFFSET, node.read_bytes()));
            }
        }
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

    /// Takes in a copy. True: it was torn and another is worth its while. Where it turns out to be longer, the reads as of
    /// `links` are no longer right.
    fn see(&mut self, words: &[u64], now_ns: u64, links: &mut u64) -> bool {
        let Some(kept) = &mut self.kept else { return self.track.see(&Snapshot::of_words(words), now_ns) };
        let (look, has_grown) = kept.look(words);
        *links += u64::from(has_grown);
        self.track.see_kept(words[0], look, now_ns)
    }

    fn complain(&mut self, problem: String) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(region = self.name, problem, "the load record cannot be read");
            self.problem = Some(problem);
        }
    }
}
