//! The experiment of Balaji et al. (2004, 4.3) in small: 8 nodes, 3 sites as 3:3:2, and a burst that moves from site to
//! site.
//!
//! The cluster is closed. Each site has a number of clients with one request each. A request goes to the node of its
//! site with the fewest requests, is served by one of its 4 workers in 4 ms, and is followed by the next. One step of
//! the cluster is a millisecond, and so is S.

use std::time::Duration;

use sidelong_layout::{Hot, Ownership, SiteId, valid};
use sidelong_policy::Time;
use sidelong_policy::cluster::{NodeView, SiteView, Snapshot};
use sidelong_policy::index::Capacity;
use sidelong_policy::reconfigure::{ReconfigureSettings, Reconfigurer};

const WORKERS: u32 = 4;
const SERVICE_MS: u32 = 4;
/// T + S of the default settings.
const ROUND_MS: u64 = 3;
const IDLE: usize = 1;
const BURST: usize = 200;

struct Cluster {
    now_ms: u64,
    /// The edges, which decide independently.
    edges: Vec<Reconfigurer>,
    sites: Vec<SiteView>,
    nodes: Vec<Node>,
    /// Clients of each site.
    clients: Vec<usize>,
    moves: usize,
}

struct Node {
    ownership: Ownership,
    /// The remaining time of each request there, in ms.
    requests: Vec<u32>,
}

impl Cluster {
    fn new(settings: ReconfigureSettings, owners: &[usize], edges: usize) -> Self {
        let sites = 1 + owners.iter().max().unwrap();
        let edge = Reconfigurer::new(settings, sites, owners.len()).unwrap();
        let node =
            |site: &usize| Node { ownership: Ownership::serving(SiteId::new(*site), 0), requests: vec![] };
        Cluster {
            now_ms: 0,
            edges: vec![edge; edges],
            sites: vec![SiteView { floor: 1, ceiling: 8, priority: 0, waiting: 0, busy: false }; sites],
            nodes: owners.iter().map(node).collect(),
            clients: vec![IDLE; sites],
            moves: 0,
        }
    }

    /// Nodes that each site has.
    fn owned(&self) -> Vec<usize> {
        let owned = |site| self.nodes.iter().filter(|node| node.ownership.serves(SiteId::new(site))).count();
        (0..self.sites.len()).map(owned).collect()
    }

    /// One millisecond: nodes serve, clients send, edges scan.
    fn step(&mut self) {
        self.nodes.iter_mut().for_each(Node::serve);
        for site in (0..self.sites.len()).map(SiteId::new) {
            let of_site = self.nodes.iter().filter(|node| node.ownership.site == Some(site));
            let asked: usize = of_site.map(|node| node.requests.len()).sum();
            for _ in asked..self.clients[site.index()] {
                let serving = self.nodes.iter_mut().filter(|node| node.ownership.serves(site));
                serving.min_by_key(|node| node.requests.len()).unwrap().requests.push(SERVICE_MS);
            }
        }
        let views: Vec<_> = self.nodes.iter().map(Node::view).collect();
        for edge in &mut self.edges {
            let snapshot = Snapshot { nodes: &views, sites: &self.sites, standings: &[] };
            if let Some(plan) = edge.step(&snapshot, Time::from_ns(self.now_ms * 1_000_000)) {
                let node = &mut self.nodes[plan.node.index()];
                // The compare-and-swap: only the first of two edges finds the word that it expects.
                if node.ownership == plan.expected {
                    node.ownership = plan.expected.draining_to(Some(plan.to)).unwrap();
                    self.moves += 1;
                }
            }
        }
        self.now_ms += 1;
    }

    fn run(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.step());
    }

    /// Sends the burst to `site` and returns the time until the sites own this many nodes.
    fn burst(&mut self, site: usize, until: &[usize]) -> u64 {
        self.clients.fill(IDLE);
        self.clients[site] = BURST;
        let start = self.now_ms;
        while self.owned() != until {
            assert!(self.now_ms - start < 1_000, "{:?} after a second, not {until:?}", self.owned());
            self.step();
        }
        self.now_ms - start
    }
}

impl Node {
    fn serve(&mut self) {
        self.requests.iter_mut().take(WORKERS as usize).for_each(|left| *left -= 1);
        self.requests.retain(|left| *left > 0);
        if let Some(next) = self.ownership.next
            && self.requests.is_empty()
        {
            self.ownership = self.ownership.now_serving(next);
        }
    }

    fn view(&self) -> NodeView {
        let requests = self.requests.len() as u32;
        let busy = requests.min(WORKERS);
        let (workers, queued) = (WORKERS as u16, requests - busy);
        NodeView {
            ownership: Some(self.ownership),
            load: Some(Hot { valid: valid::ORIGIN, workers, busy, queued, ..Hot::default() }),
            up: true,
            dead: false,
            capacity: Capacity { workers: WORKERS, ..Capacity::default() },
            in_flight: 0,
        }
    }
}

const OWNERS: [usize; 8] = [0, 0, 0, 1, 1, 1, 2, 2];

#[test]
fn a_burst_gets_all_nodes_above_the_floors() {
    let mut cluster = Cluster::new(ReconfigureSettings::default(), &OWNERS, 1);
    cluster.run(100);
    assert_eq!((cluster.owned(), cluster.moves), (vec![3, 3, 2], 0), "an idle cluster stays as it is");
    let took = cluster.burst(1, &[1, 6, 1]);
    assert!(took <= 5 * ROUND_MS, "{took} ms");
    cluster.run(500);
    assert_eq!((cluster.owned(), cluster.moves), (vec![1, 6, 1], 3));
}

#[test]
fn the_nodes_follow_the_burst_to_the_next_site() {
    let mut cluster = Cluster::new(ReconfigureSettings::default(), &OWNERS, 1);
    cluster.burst(1, &[1, 6, 1]);
    cluster.run(200);
    // The five nodes that site 1 can spare still have to serve its queue.
    let queue_ms = BURST as u64 * u64::from(SERVICE_MS) / (6 * u64::from(WORKERS));
    for (site, owned) in [(2, [1, 1, 6]), (0, [6, 1, 1]), (1, [1, 6, 1])] {
        let took = cluster.burst(site, &owned);
        assert!(took <= queue_ms + 6 * ROUND_MS, "{took} ms to site {site}");
        cluster.run(200);
        assert_eq!(cluster.owned(), owned);
    }
    assert_eq!(cluster.moves, 3 + 3 * 5, "not one node too many");
}

#[test]
fn two_edges_make_no_more_moves_than_one() {
    let mut cluster = Cluster::new(ReconfigureSettings::default(), &OWNERS, 2);
    let took = cluster.burst(1, &[1, 6, 1]);
    assert!(took <= 5 * ROUND_MS, "{took} ms");
    cluster.run(200);
    assert_eq!(cluster.moves, 3);
}

#[test]
fn four_sites_share_as_the_burst_goes() {
    let mut cluster = Cluster::new(ReconfigureSettings::default(), &[0, 0, 1, 1, 2, 2, 3, 3], 1);
    assert!(cluster.burst(3, &[1, 1, 1, 5]) <= 5 * ROUND_MS);
}

#[test]
fn sites_that_are_loaded_alike_leave_each_other_alone() {
    let mut cluster = Cluster::new(ReconfigureSettings::default(), &[0, 0, 0, 0, 1, 1, 1, 1], 2);
    cluster.clients = vec![100, 104];
    cluster.run(1_000);
    assert_eq!(cluster.moves, 0);
    // Unequal loads: it ends when the next move would not pay.
    cluster.clients = vec![60, 180];
    cluster.run(1_000);
    assert_eq!((cluster.owned(), cluster.moves), (vec![2, 6], 2));
}

#[test]
fn a_burst_shorter_than_t_moves_nothing() {
    let settings =
        ReconfigureSettings { history: Duration::from_millis(10), ..ReconfigureSettings::default() };
    let mut cluster = Cluster::new(settings, &OWNERS, 1);
    for _ in 0..50 {
        cluster.clients[1] = 20;
        cluster.step();
        cluster.clients[1] = IDLE;
        cluster.run(12);
    }
    assert_eq!(cluster.moves, 0);
}

/// Two equal sites with 16 workers each and on average as many requests, which arrive and leave at random as in an
/// M/M/inf queue. About every other scan shows one of them a quarter more loaded than the other.
#[test]
fn random_arrivals_move_next_to_nothing() {
    const MEAN: u64 = 16;
    let mut cluster = Cluster::new(ReconfigureSettings::default(), &[0, 0, 0, 0, 1, 1, 1, 1], 2);
    cluster.clients = vec![MEAN as usize; 2];
    let mut random = 1u64;
    for _ in 0..10_000 {
        // In each of 64 parts of a millisecond a request arrives with a chance of MEAN in 256, and each request leaves
        // with a chance of 1 in 256: 4 ms each, as the nodes serve them.
        for part in 0..128 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (clients, drawn) = (&mut cluster.clients[part % 2], (random >> 56) as usize);
            if drawn < MEAN as usize {
                *clients += 1;
            } else if drawn < MEAN as usize + *clients {
                *clients -= 1;
            }
        }
        cluster.step();
    }
    assert!(cluster.moves <= 20, "{} moves in 10 s", cluster.moves);
}
