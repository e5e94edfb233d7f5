//! The memory of a simulated cluster: nodes and a board, each on a machine of its own; and what it truly holds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sidelong_fabric::sim::{self, Network, SimHost};
use sidelong_fabric::{Access, Directory, Error, Host, Key, Region, RegionSpec};
use sidelong_layout::{
    Ack, BoardMap, Budget, EdgeId, Instance, LOAD_ACK, LOAD_BYTES, Lock, NodeId, NodeState, Ownership,
    RegionKind, SiteId, WORDS_OWNERSHIP,
};
use sidelong_reconfig::{BoardInit, board_map, board_region, expose_board, expose_words, load_region};
use sidelong_state::{NodeAgent, Pool, Timing};

use crate::simulated::lots::Lots;

pub(crate) const SITES: usize = 3;
pub(crate) const NODES: usize = 8;
pub(crate) const EDGES: usize = 3;
/// Guaranteed nodes of each site: five of the eight, so that what may be moved is scarce.
pub(crate) const FLOORS: [u16; SITES] = [2, 2, 1];
pub(crate) const MAP: BoardMap = board_map(SITES, EDGES);

/// Some lost completions long: each costs an edge 20 ms.
pub(crate) const LEASE: Duration = Duration::from_millis(100);
/// How long a node may take to finish the old site's requests.
const DRAIN_MAX: Duration = Duration::from_millis(150);
/// When the cluster started, in ms since 1970: generations count from the start of a node's life.
const STARTED_MS: u64 = 1_700_000_000_000;

pub(crate) fn timing() -> Timing {
    let ns = |time: Duration| time.as_nanos() as u64;
    Timing::new(ns(LEASE), ns(LEASE / 10), ns(DRAIN_MAX), 1_000_000).unwrap()
}

pub(crate) fn sites() -> impl Iterator<Item = SiteId> + Clone {
    (0..SITES).map(SiteId::new)
}

pub(crate) fn nodes() -> impl Iterator<Item = NodeId> + Clone {
    (0..NODES).map(NodeId::new)
}

pub(crate) fn node_names() -> Vec<String> {
    (0..NODES).map(|node| format!("n{node}")).collect()
}

pub(crate) fn edge_names() -> Vec<String> {
    (0..EDGES).map(|edge| format!("e{edge}")).collect()
}

/// Where the keys are published: a map. Those of a crashed node stay until it is back, as files would. Those of an edge go
/// with it: that its process is gone is evident.
#[derive(Default)]
pub(crate) struct Keys {
    published: sim::Keys,
    /// How often each was looked for.
    finds: Mutex<BTreeMap<String, usize>>,
}

impl Keys {
    pub(crate) fn withdraw(&self, name: &str) {
        self.published.withdraw(name);
    }

    pub(crate) fn finds(&self, name: &str) -> usize {
        self.finds.lock().unwrap().get(name).copied().unwrap_or(0)
    }
}

impl Directory for Keys {
    fn publish(&self, key: &Key) -> Result<(), Error> {
        self.published.publish(key)
    }

    fn find(&self, name: &str, kind: RegionKind, len: usize, access: Access) -> Result<Key, Error> {
        *self.finds.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        self.published.find(name, kind, len, access)
    }
}

/// A machine that may crash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Machine {
    Node(NodeId),
    Board,
}

pub(crate) struct Cluster {
    pub(crate) network: Network,
    pub(crate) keys: Arc<Keys>,
    /// What the sites are configured with.
    first: Vec<BoardInit>,
    nodes: Vec<Node>,
    board: Region,
    /// When a machine dies. After that its memory stands still, and nobody reaches it.
    dies_at: BTreeMap<Machine, Duration>,
}

struct Node {
    name: String,
    words: Region,
    load: Region,
    agent: NodeAgent,
    /// The ownership word as it last saw it, and when it will have done the requests of the site that it leaves.
    seen: u64,
    done_at: Duration,
}

impl Cluster {
    /// Sites start with their floors; who has the nodes beyond these, if anybody, is drawn.
    pub(crate) fn start(network: &Network, lots: &Lots) -> Self {
        let guaranteed = sites().flat_map(|site| vec![Some(site); FLOORS[site.index()].into()]);
        let mut homes: Vec<_> = guaranteed.collect();
        homes.resize_with(NODES, || Some(lots.below(SITES + 1)).filter(|&s| s < SITES).map(SiteId::new));
        let keys = Arc::new(Keys::default());
        let first = |site: SiteId| BoardInit {
            floor: FLOORS[site.index()],
            // As where nobody knows: the board may die, and come back after nodes have moved.
            nodes: 0,
        };
        let first: Vec<_> = sites().map(first).collect();
        let board = expose_sites(network, &keys, &first);
        let node = |(name, home): (String, &Option<SiteId>)| {
            let (words, load) = expose_node(network, &keys, &name, *home);
            Node { name, words, load, agent: NodeAgent::new(), seen: 0, done_at: Duration::ZERO }
        };
        let nodes = node_names().into_iter().zip(&homes).map(node).collect();
        Cluster { network: network.clone(), keys, first, nodes, board, dies_at: BTreeMap::new() }
    }

    /// What nodes do by themselves: those that live look at their word, and acknowledge what is due.
    pub(crate) fn look_after_nodes(&mut self, lots: &Lots) {
        let now = self.network.now();
        for id in nodes().filter(|node| !self.is_down(Machine::Node(*node))).collect::<Vec<_>>() {
            let node = &mut self.nodes[id.index()];
            let word = node.words.load(WORDS_OWNERSHIP);
            if word != node.seen {
                node.seen = word;
                node.done_at = now + drain_time(lots);
            }
            if let Some(ack) = node.agent.observe(word, u32::from(now < node.done_at)) {
                node.load.store(LOAD_ACK, ack.encode(), Ordering::Release);
            }
        }
    }

    /// When a node next has something to do by itself.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        let now = self.network.now();
        self.nodes.iter().map(|node| node.done_at).filter(|at| *at > now).min()
    }

    /// Whether a machine is dead or about to die.
    pub(crate) fn is_doomed(&self, machine: Machine) -> bool {
        self.dies_at.contains_key(&machine)
    }

    pub(crate) fn is_down(&self, machine: Machine) -> bool {
        self.dies_at.get(&machine).is_some_and(|at| *at <= self.network.now())
    }

    /// A machine dies, with its memory, at `at`: in the middle of somebody's scan, say.
    pub(crate) fn crash(&mut self, machine: Machine, at: Duration) {
        self.dies_at.insert(machine, at);
        self.network.crash_at(at, &self.host(machine));
    }

    /// A dead machine comes back, and its process exposes its memory anew: a node at the site that it served or was
    /// leaving, the board as it was configured.
    pub(crate) fn restart(&mut self, machine: Machine) {
        assert!(self.is_down(machine), "it lives");
        self.network.restart(&self.host(machine));
        self.dies_at.remove(&machine);
        let before = self.truth();
        match machine {
            Machine::Board => self.board = expose_sites(&self.network, &self.keys, &self.first),
            Machine::Node(id) => {
                let node = &mut self.nodes[id.index()];
                let site = before.nodes[id.index()].site;
                (node.words, node.load) = expose_node(&self.network, &self.keys, &node.name, site);
                (node.agent, node.seen) = (NodeAgent::new(), 0);
            }
        }
    }

    fn host(&self, machine: Machine) -> SimHost {
        match machine {
            Machine::Node(node) => self.network.host(&self.nodes[node.index()].name),
            Machine::Board => self.network.host(&board_region(0, 0)),
        }
    }

    /// What the words hold, whoever can see it. A dead node counts for the site that it is to come back to.
    pub(crate) fn truth(&self) -> Truth {
        let word = |region: &Region, offset| region.load(offset);
        let ownership = |node: &Node| Ownership::decode(word(&node.words, WORDS_OWNERSHIP), SITES);
        Truth {
            nodes: self.nodes.iter().map(|node| ownership(node).expect("a known state")).collect(),
            acks: self.nodes.iter().map(|node| Ack::decode(word(&node.load, LOAD_ACK))).collect(),
            locks: sites().map(|site| Lock::decode(word(&self.board, MAP.lock(site)))).collect(),
            budgets: sites().map(|site| Budget::decode(word(&self.board, MAP.budget(site)))).collect(),
        }
    }
}

/// How long a node takes to finish the old site's requests: mostly little, sometimes more than it may.
fn drain_time(lots: &Lots) -> Duration {
    match lots.below(16) {
        0 => 2 * DRAIN_MAX,
        1 => DRAIN_MAX / 2,
        _ => lots.time(Duration::ZERO..Duration::from_millis(2)),
    }
}

/// As the cluster file would have it, but for homes, which are drawn: no word is to be put right by them.
pub(crate) fn pool() -> Pool {
    Pool::new(FLOORS, [None; NODES]).with_fronts((0..EDGES).map(EdgeId::new))
}

/// When a process began that begins now, in ms since 1970.
fn began_ms(network: &Network) -> u64 {
    STARTED_MS + network.now().as_millis() as u64
}

fn expose_sites(network: &Network, keys: &Keys, first: &[BoardInit]) -> Region {
    let (host, instance) = (Host::Sim(network.host(&board_region(0, 0))), Instance::alone(began_ms(network)));
    let board = expose_board(&host, MAP, first, (0, 0), instance).unwrap();
    keys.publish(board.key()).unwrap();
    board
}

fn expose_node(network: &Network, keys: &Keys, name: &str, site: Option<SiteId>) -> (Region, Region) {
    let host = Host::Sim(network.host(name));
    let incarnation = began_ms(network);
    let words = expose_words(&host, name, site, Instance::alone(incarnation)).unwrap();
    let spec = RegionSpec {
        name: &load_region(name),
        kind: RegionKind::Load,
        len: LOAD_BYTES,
        access: Access::ReadOnly,
        instance: Instance::alone(incarnation),
    };
    let load = host.expose(&spec, |_| ()).unwrap();
    keys.publish(words.key()).unwrap();
    keys.publish(load.key()).unwrap();
    (words, load)
}

/// All words at one moment.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) nodes: Vec<Ownership>,
    pub(crate) acks: Vec<Option<Ack>>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) budgets: Vec<Budget>,
}

impl Truth {
    pub(crate) fn serving(&self, site: SiteId) -> u16 {
        self.nodes.iter().filter(|node| node.serves(site)).count() as u16
    }

    /// Whether all words but the acknowledgements are those of `other`.
    pub(crate) fn is_but_for_acks(&self, other: &Truth) -> bool {
        (&self.nodes, &self.locks, &self.budgets) == (&other.nodes, &other.locks, &other.budgets)
    }

    /// What is unfinished; `None` where nothing is.
    pub(crate) fn unfinished(&self) -> Option<&'static str> {
        let draining = |node: &Ownership| node.state == NodeState::Draining;
        let inexact = |site: SiteId| self.budgets[site.index()].current != self.serving(site);
        if self.locks.iter().any(|lock| lock.owner.is_some()) {
            Some("a lock is held")
        } else if self.nodes.iter().any(draining) {
            Some("a node drains")
        } else {
            sites().any(inexact).then_some("a budget is not exact")
        }
    }
}

/// One line: `n0 s1+7` serves site 1, `n0 s1>s2+8` leaves it; at the generations 7 and 8 after the start.
impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (node, word) in self.nodes.iter().enumerate() {
            let since = word.generation.wrapping_sub(STARTED_MS & sidelong_layout::SEQUENCE_MAX);
            let (site, next) = (word.site.map(SiteId::index), word.next.map(SiteId::index));
            match (site, next) {
                (Some(site), Some(next)) => write!(f, "n{node} s{site}>s{next}+{since} ")?,
                (Some(site), None) => write!(f, "n{node} s{site}+{since} ")?,
                _ => write!(f, "n{node} free+{since} ")?,
            }
        }
        for (site, (lock, budget)) in self.locks.iter().zip(&self.budgets).enumerate() {
            write!(f, "| s{site} {} of floor {} at {} ", budget.current, budget.floor, budget.generation)?;
            match lock.owner {
                Some(owner) => write!(f, "e{}#{} at {} ", owner.index(), lock.incarnation, lock.sequence)?,
                None => write!(f, "free at {} ", lock.sequence)?,
            }
        }
        Ok(())
    }
}
