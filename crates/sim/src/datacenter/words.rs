//! The cluster's words in regions of fabric's simulated network, and the operations on them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sidelong_fabric::sim::{Event, Gather, Network, Op as Posting, SimLink, Ticket};
use sidelong_fabric::{Access, Error, Host, Region, RegionSpec};
use sidelong_layout::{
    Ack, BoardMap, Budget, FrontMap, Instance, LOAD_ACK, LOAD_BYTES, Lock, NodeId, Ownership, RegionKind,
    SiteId, WORDS_BYTES, WORDS_OWNERSHIP,
};
use sidelong_reconfig::{OPERATION_MAX, SiteWords, board_map, expose_front, expose_words, load_region};
use sidelong_state::{Op, Reply, Word};

use crate::Time;
use crate::datacenter::Setup;

/// The board, and its machine.
const BOARD: &str = "board";
/// The instance of the board, and of nodes that have not left.
const INSTANCE: Instance = Instance::alone(1);

/// An ownership word that says nothing.
const NOTHING: u64 = u64::MAX;
/// More than the generations that a node's word goes through in one life.
const GENERATIONS: u64 = 1 << 20;

/// All words of the cluster, and every balancer's links to them.
pub(super) struct Words {
    network: Network,
    map: BoardMap,
    board: Region,
    owners: Vec<Region>,
    acks: Vec<Region>,
    /// By node, whether its memory is there.
    is_there: Vec<bool>,
    /// What each balancer states as a front.
    fronts: Vec<Region>,
    /// A word that says nothing, which is read of a node that is away.
    nobody: Region,
    /// By mover: links to the board, the nodes' words, their acknowledgements and the fronts, made on first use.
    links: Vec<Vec<Option<SimLink>>>,
    look: Gather,
    /// How many nodes have joined.
    lives: u64,
    posted: BTreeMap<Ticket, Posted>,
}

/// A posted operation and its mover: a balancer or, after the last of these, the person.
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
        // A person takes locks, too.
        let map = board_map(setup.sites, setup.balancers + 1);
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
        for node in 0..setup.nodes.len() {
            let (words, ack) = expose_node(&network, setup, node, INSTANCE)?;
            owners.push(words);
            acks.push(ack);
        }
        let spec = RegionSpec { name: "nobody", len: WORDS_BYTES, access: Access::ReadOnly, ..spec };
        let nobody =
            Host::Sim(network.host("nobody")).expose(&spec, |words| words[WORDS_OWNERSHIP / 8] = NOTHING)?;
        let fronts = if setup.nodes_leave() { setup.balancers } else { 0 };
        let front = |balancer: usize| {
            let name = format!("e{balancer}");
            expose_front(&Host::Sim(network.host(&name)), &name, owners.len(), INSTANCE)
        };
        let fronts = (0..fronts).map(front).collect::<Result<Vec<_>, _>>()?;
        let look = gather(&network, &board, map, owners.iter())?;
        let places = 1 + 2 * owners.len() + fronts.len();
        let links = (0..=setup.balancers).map(|_| (0..places).map(|_| None).collect()).collect();
        let (is_there, posted) = (vec![true; owners.len()], BTreeMap::new());
        Ok(Words {
            network,
            map,
            board,
            owners,
            acks,
            is_there,
            fronts,
            nobody,
            links,
            look,
            lives: 0,
            posted,
        })
    }

    /// The memory of a node that joins, with its first site.
    pub(super) fn expose(&mut self, setup: &Setup, node: usize) -> Result<(), Error> {
        let host = self.network.host(&name(node));
        self.network.crash(&host);
        self.network.restart(&host);
        // Its words are newer than all of an earlier life.
        self.lives += 1;
        let instance = Instance::alone(1 + self.lives * GENERATIONS);
        (self.owners[node], self.acks[node]) = expose_node(&self.network, setup, node, instance)?;
        self.relink(node, true)
    }

    /// The memory of a node is gone.
    pub(super) fn withdraw(&mut self, node: usize) -> Result<(), Error> {
        self.network.crash(&self.network.host(&name(node)));
        self.relink(node, false)
    }

    fn relink(&mut self, node: usize, is_there: bool) -> Result<(), Error> {
        for links in &mut self.links {
            (links[1 + node], links[1 + self.owners.len() + node]) = (None, None);
        }
        self.is_there[node] = is_there;
        let each = self.owners.iter().zip(&self.is_there);
        let each = each.map(|(region, is_there)| if *is_there { region } else { &self.nobody });
        self.look = gather(&self.network, &self.board, self.map, each)?;
        Ok(())
    }

    /// What a balancer states of a node as a front, if balancers do.
    pub(super) fn state(&self, balancer: usize, node: usize, word: u64) {
        if let Some(front) = self.fronts.get(balancer) {
            let map = FrontMap { nodes: self.owners.len() };
            front.store(map.node(NodeId::new(node)), word, Ordering::Release);
        }
    }

    /// What is read of each word of a balancer that has died, or begins.
    pub(super) fn state_all(&self, balancer: usize, word: u64) {
        (0..self.owners.len()).for_each(|node| self.state(balancer, node, word));
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
            Word::Front(front, node) => {
                let map = FrontMap { nodes };
                (1 + 2 * nodes + front.index(), &self.fronts[front.index()], map.node(node))
            }
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

fn name(node: usize) -> String {
    format!("n{node}")
}

/// A node's ownership word, as it serves its first site, and its acknowledgement.
fn expose_node(
    network: &Network,
    setup: &Setup,
    node: usize,
    instance: Instance,
) -> Result<(Region, Region), Error> {
    let name = name(node);
    let host = Host::Sim(network.host(&name));
    let (site, _) = setup.nodes[node];
    let words = expose_words(&host, &name, Some(SiteId::new(site)), instance)?;
    let spec = RegionSpec {
        name: &load_region(&name),
        kind: RegionKind::Load,
        len: LOAD_BYTES,
        access: Access::ReadOnly,
        instance,
    };
    Ok((words, host.expose(&spec, |_| ())?))
}

/// A scan of the nodes' words and of those of all sites.
fn gather<'a>(
    network: &Network,
    board: &'a Region,
    map: BoardMap,
    owners: impl Iterator<Item = &'a Region>,
) -> Result<Gather, Error> {
    // A site's lock and budget are on adjacent lines: one read covers both.
    let sites = (0..map.sites).map(|site| {
        let site = SiteId::new(site);
        (board.key(), map.lock(site), map.budget(site) - map.lock(site) + 8)
    });
    network.gather(owners.map(|region| (region.key(), WORDS_OWNERSHIP, 8)).chain(sites))
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
