//! The cluster's words in regions of fabric's simulated network, and the operations on them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sidelong_fabric::sim::{Event, Gather, Network, Op as Posting, SimLink, Ticket};
use sidelong_fabric::{Access, Error, Host, Region, RegionSpec};
use sidelong_layout::{
    Ack, BoardMap, Budget, Instance, LOAD_ACK, LOAD_BYTES, Lock, NodeId, Ownership, RegionKind, SiteId,
    WORDS_OWNERSHIP,
};
use sidelong_reconfig::{OPERATION_MAX, SiteWords, board_map, expose_words, load_region};
use sidelong_state::{Op, Reply, Word};

use crate::Time;
use crate::datacenter::Setup;

/// The board, and its machine.
const BOARD: &str = "board";
/// The instance of nodes and board, which do not die.
const INSTANCE: Instance = Instance::alone(1);

/// All words of the cluster, and every balancer's links to them.
pub(super) struct Words {
    network: Network,
    map: BoardMap,
    board: Region,
    owners: Vec<Region>,
    acks: Vec<Region>,
    /// By balancer: links to the board, the nodes' words and their acknowledgements, made on first use.
    links: Vec<Vec<Option<SimLink>>>,
    look: Gather,
    posted: BTreeMap<Ticket, Posted>,
}

/// A posted operation and its balancer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) balancer: usize,
    /// The balancer's life when it posted.
    pub(super) life: u64,
    /// `None` for a scan.
    pub(super) op: Option<Op>,
}

/// The result of an operation or a scan.
pub(super) enum Completion {
    Reply(Reply),
    /// The words in order, or `None` if the scan failed.
    Look(Option<Vec<u64>>),
}

impl Words {
    /// Every node serves its first site, and the budgets agree, as in a live cluster whose processes share a machine.
    pub(super) fn new(setup: &Setup) -> Result<Words, Error> {
        let network = Network::new(setup.seed, setup.faults.clone());
        let map = board_map(setup.sites, setup.balancers);
        let spec = RegionSpec {
            name: BOARD,
            kind: RegionKind::Board,
            len: map.len(),
            access: Access::Atomic,
            instance: INSTANCE,
        };
        let board = Host::Sim(network.host(BOARD)).expose(&spec, |words| {
            for site in 0..setup.sites {
                let current = setup.nodes.iter().filter(|(home, _)| *home == site).count() as u16;
                let budget = Budget { floor: setup.floor, current, generation: 1 };
                words[map.budget(SiteId::new(site)) / 8] = budget.encode();
            }
        })?;
        let (mut owners, mut acks) = (Vec::new(), Vec::new());
        for (node, (site, _)) in setup.nodes.iter().enumerate() {
            let name = format!("n{node}");
            let host = Host::Sim(network.host(&name));
            owners.push(expose_words(&host, &name, Some(SiteId::new(*site)), INSTANCE)?);
            let spec = RegionSpec {
                name: &load_region(&name),
                kind: RegionKind::Load,
                len: LOAD_BYTES,
                access: Access::ReadOnly,
                instance: INSTANCE,
            };
            acks.push(host.expose(&spec, |_| ())?);
        }
        // A site's lock and budget are on adjacent lines: one read covers both.
        let sites = (0..setup.sites).map(|site| {
            let site = SiteId::new(site);
            (board.key(), map.lock(site), map.budget(site) - map.lock(site) + 8)
        });
        let look =
            network.gather(owners.iter().map(|region| (region.key(), WORDS_OWNERSHIP, 8)).chain(sites))?;
        let links = (0..setup.balancers).map(|_| (0..=2 * owners.len()).map(|_| None).collect()).collect();
        Ok(Words { network, map, board, owners, acks, links, look, posted: BTreeMap::new() })
    }

    /// When the network next has something to do.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.network.next_at().map(time)
    }

    /// What the network reports at `at`.
    pub(super) fn next_by(&mut self, at: Time) -> Option<(Time, Posted, Completion)> {
        let Some(Event::Done { at, ticket, outcome }) = self.network.next_by(duration(at)) else {
            return None;
        };
        let posted = self.posted.remove(&ticket)?;
        let heard = match posted.op {
            None => Completion::Look(outcome.ok()),
            Some(_) => Completion::Reply(outcome.map_or(Reply::Lost, |words| Reply::Value(words[0]))),
        };
        Some((time(at), posted, heard))
    }

    /// Scans all words.
    pub(super) fn look(&mut self, balancer: usize, life: u64, now: Time) {
        self.pass(now);
        let ticket = self.network.post_gather(&self.look, OPERATION_MAX);
        self.posted.insert(ticket, Posted { balancer, life, op: None });
    }

    /// One operation of a move or repair.
    pub(super) fn post(&mut self, balancer: usize, life: u64, op: Op, now: Time) -> Result<(), Error> {
        self.pass(now);
        let nodes = self.owners.len();
        let (link, region, offset) = match op.word() {
            Word::Lock(site) => (0, &self.board, self.map.lock(site)),
            Word::Budget(site) => (0, &self.board, self.map.budget(site)),
            Word::Counter(site, edge) => (0, &self.board, self.map.counter(site, edge)),
            Word::Ownership(node) => (1 + node.index(), &self.owners[node.index()], WORDS_OWNERSHIP),
            Word::Ack(node) => (1 + nodes + node.index(), &self.acks[node.index()], LOAD_ACK),
            Word::Epoch => (0, &self.board, BoardMap::EPOCH),
            Word::Front(..) => unreachable!("the simulated pool has no fronts"),
        };
        let posting = match op {
            Op::Read(_) => Posting::Read { offset, len: 8 },
            Op::CompareAndSwap { expected, new, .. } => Posting::CompareAndSwap { offset, expected, new },
            Op::FetchAndAdd { add, .. } => Posting::FetchAndAdd { offset, add },
        };
        let link = match &mut self.links[balancer][link] {
            Some(link) => link,
            none => none.insert(self.network.connect(region.key())?),
        };
        let ticket = self.network.post(link, posting, OPERATION_MAX);
        self.posted.insert(ticket, Posted { balancer, life, op: Some(op) });
        Ok(())
    }

    /// A node's word without an operation, as its own CPU loads it.
    pub(super) fn ownership(&self, node: usize) -> u64 {
        self.owners[node].load(WORDS_OWNERSHIP)
    }

    /// A site's words without an operation.
    pub(super) fn site(&self, site: usize) -> (Lock, Budget) {
        let site = SiteId::new(site);
        let (lock, budget) = (self.board.load(self.map.lock(site)), self.board.load(self.map.budget(site)));
        (Lock::decode(lock), Budget::decode(budget))
    }

    /// The node acknowledges.
    pub(super) fn acknowledge(&self, node: usize, ack: Ack) {
        self.acks[node].store(LOAD_ACK, ack.encode(), Ordering::Release);
    }

    /// Advances the network's clock to the simulation's, which it never precedes.
    fn pass(&self, now: Time) {
        self.network.advance(duration(now).saturating_sub(self.network.now()));
    }
}

/// The words of a scan, by node and by site.
pub(super) fn read_look(words: &[u64], nodes: &mut [Option<Ownership>], sites: &mut [Option<SiteWords>]) {
    let (owners, rest) = words.split_at(nodes.len());
    for (node, word) in nodes.iter_mut().zip(owners) {
        *node = Ownership::decode(*word, sites.len());
    }
    let each = rest.len() / sites.len().max(1);
    for (site, words) in sites.iter_mut().zip(rest.chunks_exact(each.max(1))) {
        *site = Some(SiteWords { lock: words[0], budget: Budget::decode(words[each - 1]) });
    }
}

/// The node whose word an operation may have changed.
pub(super) fn changed(op: Op) -> Option<NodeId> {
    match op {
        Op::CompareAndSwap { word: Word::Ownership(node), .. } => Some(node),
        _ => None,
    }
}

fn time(at: Duration) -> Time {
    Time::from_ns(at.as_nanos() as u64)
}

fn duration(at: Time) -> Duration {
    Duration::from_nanos(at.as_ns())
}
