//! Controls a proxy through shared memory: its workers read a choice at each request, and count their requests in slots of their
//! own (`fronts/lib/sidelong.h`).
//!
//! The workers outlive the front, and so do the two regions: a front that starts anew finds the counts of the last one. If
//! somebody has removed the file with the counts, it states nothing for as long as a node may drain. It makes files that are lost anew.

use std::collections::BTreeSet;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use sidelong_fabric::{Access, Error, Host, Region, RegionSpec};
use sidelong_layout::{
    ChoiceMap, EncodedAddress, Instance, NAME_BYTES, NodeId, Ownership, RegionKind, SLOTS, SiteId, Slots,
    Time, Worker, WorkersMap,
};
use sidelong_load::Reading;
use sidelong_policy::admission::Verdict;
use sidelong_policy::balance::Balance;

use super::process::is_alive;
use super::{Adapter, AdapterMembers};
use crate::gate::Gate;
use crate::view::{View, WorkersAt};

/// An ownership word by which a node serves nobody, and which is not 0.
const NOBODYS: u64 = 1;

/// How often it is checked whether the workers live.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The names of the two regions of a front.
pub fn adapter_regions(front: &str) -> [String; 2] {
    [format!("{front}.choice"), format!("{front}.workers")]
}

/// What workers must know of the cluster.
#[derive(Clone, Debug)]
pub struct AdapterCluster {
    /// What there is room for.
    pub room: ChoiceMap,
    /// The sites' names by slot, of at most [`NAME_BYTES`] bytes.
    pub sites: Slots<String>,
    /// Where the nodes' servers answer, by place.
    pub servers: Vec<(usize, EncodedAddress)>,
    /// The age from which a choice does not count.
    pub stale: Duration,
    /// The time in which each client of a site gets its turn.
    pub rotation: Duration,
    /// How nodes are chosen.
    pub balance: Balance,
    /// How long a node may drain.
    pub drain_max: Duration,
    /// Whether a front of that name has left a file, so that there may be workers that count.
    pub has_controlled: bool,
}

impl AdapterCluster {
    /// The maps of the two regions.
    pub(super) fn maps(&self) -> (ChoiceMap, WorkersMap) {
        (self.room, WorkersMap { nodes: self.room.nodes })
    }

    /// The slots of the nodes that have servers.
    fn nodes(&self) -> BTreeSet<usize> {
        let places = self.room.servers / self.room.nodes.max(1);
        self.servers.iter().map(|(place, _)| place / places.max(1)).collect()
    }
}

/// Longest wait for nodes that were never read, before a front leads its proxy by the others. One that is there is read sooner.
const UNREAD_MAX: Duration = Duration::from_secs(1);

/// Exposes the regions of a front, and says whether one of them is new.
pub type Exposure = Box<dyn Fn() -> Result<([Region; 2], bool), String> + Send>;

/// The two regions of a front.
pub struct MemoryAdapter {
    choice: Region,
    choice_map: ChoiceMap,
    workers: Region,
    workers_map: WorkersMap,
    slots: Vec<Option<Slot>>,
    checked_at: Time,
    nodes: Vec<Node>,
    /// From when on the counts are known to be whole; `None` if they are.
    whole_at: Option<Time>,
    /// Whether somebody has truncated, overwritten or removed a file. Workers may then send requests that are not counted.
    is_lost: bool,
    /// How many nodes there are, and until when they are waited for from the first scan on; `None` once the workers are led.
    waits: Option<(usize, Option<Time>)>,
    cluster: AdapterCluster,
    /// Makes the regions anew if their files are lost; `None` if they have none.
    exposes: Option<Exposure>,
    /// Why it could not at the last attempt.
    why_not: Option<String>,
}

/// A worker's slot as last read.
struct Slot {
    worker: Worker,
    /// Of each node, the answers and the failures.
    last: Vec<(u64, u64)>,
}

/// What is remembered of a node between two steps of a scan.
#[derive(Clone, Copy, Default)]
struct Node {
    /// [`WorkersMap::sent`] at the count before the scan.
    sent: u64,
    /// [`WorkersMap::sent`] when the proxy last told its own count.
    sent_at_told: u64,
}

impl MemoryAdapter {
    /// Controls the proxy from `now` on through regions that `exposes` makes, also once their files are lost. They say nothing before the first scan.
    ///
    /// # Errors
    /// If it makes none.
    pub fn exposed_by(exposes: Exposure, cluster: &AdapterCluster, now: Time) -> Result<Self, String> {
        let (regions, are_new) = exposes()?;
        let mut adapter = MemoryAdapter::at(regions, are_new, cluster, now);
        adapter.exposes = Some(exposes);
        Ok(adapter)
    }

    fn at(regions: [Region; 2], are_new: bool, cluster: &AdapterCluster, now: Time) -> Self {
        let whole_at = (are_new && cluster.has_controlled).then(|| now.after(cluster.drain_max));
        MemoryAdapter::over(regions, cluster, whole_at, now)
    }

    /// Exposes the regions of the front of that name, and says whether one of them is new.
    ///
    /// # Errors
    /// If memory cannot be allocated, or a live process has the front's name.
    pub fn regions(
        host: &Host,
        front: &str,
        cluster: &AdapterCluster,
        instance: Instance,
    ) -> Result<([Region; 2], bool), Error> {
        let (choice_map, workers_map) = cluster.maps();
        let access = Access::ReadOnly;
        let [choice_name, workers_name] = &adapter_regions(front);
        let spec = |name, kind, len| RegionSpec { name, kind, len, access, instance };
        let mut are_new = false;
        let workers =
            host.expose(&spec(workers_name, RegionKind::Workers, workers_map.len()), |_| are_new = true)?;
        let choice =
            host.expose(&spec(choice_name, RegionKind::Choice, choice_map.len()), |_| are_new = true)?;
        Ok(([choice, workers], are_new))
    }

    /// By these two regions. The counts are whole from `whole_at` on, or are so already.
    pub(super) fn over(
        [choice, workers]: [Region; 2],
        cluster: &AdapterCluster,
        whole_at: Option<Time>,
        now: Time,
    ) -> Self {
        let (choice_map, workers_map) = cluster.maps();
        let adapter = MemoryAdapter {
            choice,
            choice_map,
            workers,
            workers_map,
            slots: (0..SLOTS).map(|_| None).collect(),
            checked_at: now,
            nodes: vec![Node::default(); choice_map.nodes],
            whole_at,
            is_lost: false,
            waits: Some((cluster.nodes().len(), None)),
            cluster: cluster.clone(),
            exposes: None,
            why_not: None,
        };
        adapter.describe(cluster);
        adapter
    }

    /// Gives the first slot to the kernel.
    pub(super) fn seat_kernel(&self) {
        self.workers.store(self.workers_map.owner(0), Worker::KERNEL.encode(), Ordering::Release);
    }

    /// What the first slot has under way at all nodes.
    pub(super) fn in_flight(&self) -> u64 {
        let map = self.workers_map;
        let at = |node| self.workers.load(map.in_flight(0, NodeId::new(node)));
        (0..map.nodes).map(at).fold(0, u64::saturating_add)
    }

    fn describe(&self, cluster: &AdapterCluster) {
        let (choice, map) = (&self.choice, self.choice_map);
        let store = |offset, value| choice.store(offset, value, Ordering::Relaxed);
        self.withdraw();
        store(ChoiceMap::STALE, cluster.stale.as_nanos() as u64);
        store(ChoiceMap::ROTATION, cluster.rotation.as_nanos() as u64);
        store(ChoiceMap::BALANCE, cluster.balance as u64);
        let open = Verdict::default().encode();
        (0..map.sites).for_each(|site| store(map.verdict(SiteId::new(site)), open));
        store(ChoiceMap::SERVERS, map.servers as u64);
        store(ChoiceMap::COUNTS, (map.sites as u64) << 32 | map.nodes as u64);
        self.name(cluster);
    }

    /// Says which site has which slot, and where the nodes' servers answer. Of those that are others now, the rest says nothing before it is
    /// told anew.
    fn name(&self, cluster: &AdapterCluster) {
        let map = self.choice_map;
        let mut is_new = false;
        for slot in 0..map.sites {
            let mut bytes = [0; NAME_BYTES];
            let name = cluster.sites.get(slot).map_or("", String::as_str);
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            let words = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
            let site = SiteId::new(slot);
            let offsets = words.enumerate().map(|(word, value)| (map.name(site) + word * 8, value));
            is_new |= self.rename(offsets, map.members(site));
        }
        let mut servers = vec![[0; 3]; map.servers];
        cluster.servers.iter().for_each(|(place, server)| servers[*place] = server.0);
        for (place, words) in servers.into_iter().enumerate() {
            let node = NodeId::new(place / (map.servers / map.nodes));
            let offsets = words.into_iter().enumerate();
            let offsets = offsets.map(|(word, value)| (map.server(place) + word * 8, value));
            is_new |= self.rename(offsets, map.ownership(node));
        }
        if is_new {
            let version = self.choice.load(ChoiceMap::VERSION);
            self.choice.store(ChoiceMap::VERSION, version + 1, Ordering::Release);
        }
    }

    /// Stores these words. If they are others than there were, the word at `about` is 0 before. Returns whether they are.
    fn rename(&self, words: impl Iterator<Item = (usize, u64)> + Clone, about: usize) -> bool {
        let is_new = words.clone().any(|(offset, value)| self.choice.load(offset) != value);
        if is_new {
            self.choice.store(about, 0, Ordering::Release);
            words.for_each(|(offset, value)| self.choice.store(offset, value, Ordering::Release));
        }
        is_new
    }

    /// Looks at times whether the workers live. Makes files that are lost anew.
    pub(super) fn tend(&mut self, now: Time) {
        // At once, and not after another scan: that may wait for machines that are silent.
        self.look_for_loss();
        if self.is_lost {
            self.make_anew(now);
        }
        if now.since(self.checked_at) >= CHECK_EVERY {
            self.checked_at = now;
            self.check();
        }
        self.whole_at = match self.waits {
            // Workers may go by older memory, until they are led by this.
            Some(_) => self.whole_at.map(|_| now.after(self.cluster.drain_max)),
            None => self.whole_at.filter(|whole_at| now < *whole_at),
        };
    }

    /// Workers find the new files within a hundredth of a second if they have lost both, and within a tenth otherwise. What they send
    /// meanwhile is counted nowhere.
    fn make_anew(&mut self, now: Time) {
        let Some(exposes) = self.exposes.take() else { return };
        self.choice.give_up_name();
        self.workers.give_up_name();
        match exposes() {
            Ok((regions, _)) => {
                tracing::warn!(
                    "files by which the proxy is controlled were truncated, overwritten or removed by another process, and are made anew"
                );
                let whole_at = Some(now.after(self.cluster.drain_max));
                // One that led its workers does so at once: without files they know no node.
                let waits = self.waits;
                *self = MemoryAdapter::over(regions, &self.cluster, whole_at, now);
                self.waits = waits;
            }
            Err(why) if self.why_not.as_ref() != Some(&why) => {
                tracing::error!(
                    "lost files by which the proxy is controlled cannot be made anew, and are tried again: {why}"
                );
                self.why_not = Some(why);
            }
            Err(_) => {}
        }
        self.exposes = Some(exposes);
    }

    /// Whether the workers are led, and none goes by memory that somebody has removed or truncated.
    pub(super) fn is_whole(&self) -> bool {
        self.waits.is_none() && self.whole_at.is_none() && !self.is_lost
    }

    /// What is sent from now on comes on top of the readings that are told next.
    pub(super) fn count_from_now(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.sent = self.workers.load(self.workers_map.sent(NodeId::new(index)));
        }
    }

    /// The proxy has told its own count of requests, which has those that were sent until [`count_from_now`](Self::count_from_now).
    pub(super) fn was_told(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.sent_at_told = node.sent);
    }

    /// How many more requests a node, by index, has had at [`count_from_now`](Self::count_from_now) than when the proxy told its count.
    pub(super) fn more_than_told(&self, node: usize) -> i32 {
        let Node { sent, sent_at_told, .. } = self.nodes[node];
        sent.wrapping_sub(sent_at_told) as i32
    }

    /// Tells the workers what the view knows. They go by it once [`take_control`](Self::take_control) follows.
    pub(super) fn tell(&self, view: &View, gate: Option<&Gate>, now: Time) {
        let map = self.choice_map;
        for node in view.nodes() {
            let owned = view.ownership(node).map_or(0, Ownership::encode);
            // First here, so that a worker that loses the choice later knows of it.
            store_if_new(&self.workers, self.workers_map.ownership(node), owned.max(NOBODYS));
            store_if_new(&self.choice, map.ownership(node), owned);
            let reading = view.reading(node).counted_from(self.nodes[node.index()].sent as u32);
            store_if_new(&self.choice, map.reading(node), reading.encode());
            store_if_new(&self.choice, map.health(node), view.health(node).encode());
            store_if_new(&self.choice, map.requests(node), view.in_flight_of_all(node, now).into());
        }
        for site in view.sites() {
            let members: Vec<_> = view.members(site).map(|node| node.index() as u64).collect();
            for (word, nodes) in members.chunks(4).enumerate() {
                let packed = nodes.iter().rev().fold(0, |packed, node| packed << 16 | node);
                store_if_new(&self.choice, map.list(site, word), packed);
            }
            store_if_new(&self.choice, map.members(site), members.len() as u64);
            if let Some(gate) = gate {
                store_if_new(&self.choice, map.verdict(site), gate.verdict(site).encode());
            }
        }
    }

    /// Whether the workers are to be led by what is known: of all nodes, or of those that answer. Until then they go by what the last front knew: by
    /// some of the nodes whole sites would be out.
    pub(super) fn leads(&mut self, view: &View, now: Time) -> bool {
        let Some((nodes, until)) = &mut self.waits else { return true };
        let until = *until.get_or_insert(now.after(UNREAD_MAX));
        let known = view.nodes().filter(|node| view.is_known(*node)).count();
        let leads = known >= *nodes || now >= until;
        if leads {
            self.waits = None;
        }
        leads
    }

    /// The workers choose by what they are told, as of `now`.
    pub(super) fn take_control(&mut self, now: Time) {
        // Later than this they may lose it: what they were told before then holds.
        self.look_for_loss();
        self.choice.store(ChoiceMap::TIME, now.as_ns(), Ordering::Release);
    }

    fn look_for_loss(&mut self) {
        self.is_lost = self.is_lost || self.choice.is_lost() || self.workers.is_lost();
    }

    /// The workers then choose by themselves, among the nodes that served their sites last.
    fn withdraw(&self) {
        self.choice.store(ChoiceMap::TIME, 0, Ordering::Release);
    }

    /// Frees the slots of workers that have ended: their requests ended with them.
    fn check(&mut self) {
        let map = self.workers_map;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let owner = Worker::decode(self.workers.load(map.owner(index)));
            let Some(worker) = owner.filter(|worker| !is_alive(*worker)) else { continue };
            tracing::debug!(worker.pid, "a worker of the proxy has ended");
            for node in (0..map.nodes).map(NodeId::new) {
                for offset in [
                    map.in_flight(index, node),
                    map.unanswered(index, node),
                    map.answers(index, node),
                    map.failures(index, node),
                ] {
                    self.workers.store(offset, 0, Ordering::Relaxed);
                }
            }
            self.workers.store(map.owner(index), 0, Ordering::Release);
            *slot = None;
        }
    }

    /// Adds up the slots, and returns by node what has happened since the last call.
    fn sum(&mut self, view: &View) -> Vec<WorkersAt> {
        let (map, workers) = (self.workers_map, &self.workers);
        let mut sums = vec![WorkersAt::default(); view.nodes().count()];
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let owner = Worker::decode(workers.load(map.owner(index)));
            let Some(worker) = owner else {
                *slot = None;
                continue;
            };
            let counts =
                |node| (workers.load(map.answers(index, node)), workers.load(map.failures(index, node)));
            if slot.as_ref().is_none_or(|slot| slot.worker != worker) {
                // What an earlier life of the front has counted does not count again.
                let last = (0..map.nodes).map(|node| counts(NodeId::new(node))).collect();
                *slot = Some(Slot { worker, last });
            }
            let Some(slot) = slot else { continue };
            for ((node, sum), last) in sums.iter_mut().enumerate().zip(&mut slot.last) {
                let node = NodeId::new(node);
                let (answers, failures) = counts(node);
                let halves = |word: u64| [(word >> 32) as u32, word as u32];
                let ([refused, failed], [refused_before, failed_before]) = (halves(failures), halves(last.1));
                sum.answers = sum.answers.saturating_add(answers.wrapping_sub(last.0));
                sum.refused = sum.refused.saturating_add(refused.wrapping_sub(refused_before));
                sum.failed = sum.failed.saturating_add(failed.wrapping_sub(failed_before));
                *last = (answers, failures);
                // The larger of two counts that are not read at once must not seem smaller.
                let unanswered = workers.load(map.unanswered(index, node));
                let in_flight = workers.load(map.in_flight(index, node));
                // The kernel does not see answers.
                let unanswered = if worker == Worker::KERNEL { in_flight } else { unanswered };
                sum.in_flight = sum.in_flight.saturating_add(in_flight.try_into().unwrap_or(u32::MAX));
                sum.unanswered = sum.unanswered.saturating_add(unanswered.try_into().unwrap_or(u32::MAX));
            }
        }
        for (node, sum) in sums.iter_mut().enumerate() {
            let node = NodeId::new(node);
            let uncounted = workers.load(map.uncounted(node));
            sum.in_flight = sum.in_flight.saturating_add(uncounted.try_into().unwrap_or(u32::MAX));
            // As long as the view does not know it: a worker's clock may be ahead of that of a scan that takes its time.
            let trial = workers.load(map.trial(node));
            sum.on_trial = trial != 0 && trial == view.health(node).encode();
        }
        sums
    }
}

/// Stores a word. Usually nothing is new, and the line stays with its readers.
fn store_if_new(region: &Region, offset: usize, value: u64) {
    if region.load(offset) != value {
        region.store(offset, value, Ordering::Release);
    }
}

impl Adapter for MemoryAdapter {
    fn count(&mut self, view: &View, _: &[Reading], now: Time) {
        self.tend(now);
        self.count_from_now();
        for (node, sum) in self.sum(view).iter().enumerate() {
            view.take(NodeId::new(node), now, sum);
        }
    }

    fn show(&mut self, view: &View, gate: Option<&Gate>, now: Time) {
        if !self.leads(view, now) {
            return;
        }
        self.tell(view, gate, now);
        // A worker that does not see the new ownership yet is seen here (`layout::front`).
        fence(Ordering::SeqCst);
        for (node, sum) in self.sum(view).iter().enumerate() {
            view.take(NodeId::new(node), now, sum);
        }
        self.take_control(now);
    }

    fn front(&self, view: &View, node: NodeId) -> Option<(Ownership, u32)> {
        view.front(node).filter(|_| self.is_whole())
    }

    fn adopt(&mut self, members: &AdapterMembers) {
        self.name(&members.memory);
        self.cluster = members.memory.clone();
    }
}

impl Drop for MemoryAdapter {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
mod tests;
