//! The loads of F1, and the clusters that they are put on.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sidelong_config::{
    ClusterFile, Configuration, EdgeEntry, Identity, LoadMode, NodeEntry, Service, SiteEntry, Workload,
};

use crate::setup::{Demand, Ground, Layout, POOL, Run, SERVICE, WORKERS, node_rate, possible_rate};
use crate::up::{Fate, Request};

pub(super) const DEMAND: Demand = Demand::SingleFile(1024);
pub(super) const LAYOUT: Layout = Layout::Three;
/// Requests for one site before the next site's turn.
pub(super) const BURST: u64 = 2048;
/// Servers of the one site of the other loads, and the most proxies before them.
const SERVERS: usize = 4;
const PROXIES_MAX: u16 = 4;
/// How many times as long requests take at the server that is slower than its file says.
pub(super) const SLOWDOWN: f64 = 8.0;
/// Clients of all proxies together: as many as the servers have workers.
const CLIENTS: u32 = SERVERS as u32 * WORKERS as u32;
/// Clients of each core, before servers that take no time.
const CLIENTS_OF_A_CORE: u32 = 16;
/// Service time under ten times the load, the target, and the load itself, of what the servers can do.
const LONGER: Duration = Duration::from_millis(20);
pub(super) const TARGET: Duration = Duration::from_millis(60);
pub(super) const TIMES: f64 = 10.0;
/// Addresses of clients there.
const ADDRESSES: u32 = 64;
/// A client's timeout there.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Requests that wait at a server there.
const QUEUE_DEPTH_MAX: u32 = 256;
/// Time from the beginning of that load until it is measured.
const SETTLE: Duration = Duration::from_millis(500);
/// What is measured may exceed what is expected of drawn times by this factor.
pub(super) const NOISE: f64 = 1.15;

/// A run: a load on so many proxies, and who chooses the server of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan<'a> {
    /// `bursts`: R10's bursts for three sites in turn. `equal`: one site on servers that are alike. `slow`: the same with one that is slower
    /// than its file says. `overload`: ten times what the servers can do, with a target. `instant`: servers that take no time.
    pub(super) load: &'a str,
    pub(super) proxies: u16,
    pub(super) proxy: &'a str,
    /// As `up --by` names it.
    pub(super) by: &'a str,
    /// Turns of each site in the bursts.
    rounds: u64,
    /// The time of another load.
    length: Duration,
}

impl<'a> Plan<'a> {
    /// The run of a case.
    pub(super) fn new(case: &'a str, rounds: u64, length: Duration) -> Plan<'a> {
        let mut words = case.split('/');
        let mut next = || words.next().unwrap_or_default();
        let (load, proxies, proxy, by) = (next(), next().parse().unwrap_or(1), next(), next());
        Plan { load, proxies, proxy, by, rounds, length }
    }

    /// The shortest time that it takes.
    pub(super) fn time(&self) -> Duration {
        if self.load == "bursts" { self.bursts().ideal_duration() } else { self.length }
    }

    fn bursts(&self) -> Run {
        let requests = self.rounds * LAYOUT.sites() * BURST;
        let configuration =
            if self.by == "sidelong" { Configuration::Reconfigured } else { Configuration::Rigid };
        Run { layout: LAYOUT, demand: DEMAND, configuration, burst: BURST, pause: Duration::ZERO, requests }
    }

    pub(super) fn cluster_file(&self, ground: &Ground) -> ClusterFile {
        let (load, proxies) = (self.load, self.proxies);
        if load == "bursts" {
            return self.bursts().cluster_file(ground);
        }
        let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, ground.port + offset));
        let (service, time) = match load {
            "overload" => (Service::Fixed, Some(LONGER)),
            "instant" => (Service::None, None),
            _ => (Service::Exponential, Some(SERVICE)),
        };
        let node = |name: &str, count: usize, offset: u16| NodeEntry {
            workers: Some(WORKERS),
            service: Some(service),
            service_time: time,
            queue_depth_max: (load == "overload").then_some(QUEUE_DEPTH_MAX),
            ..NodeEntry::new(name, count, at(PROXIES_MAX + offset))
        };
        let nodes = match load {
            "slow" => {
                let slow = NodeEntry { slowdown: Some(SLOWDOWN), ..node("slow", 1, 0) };
                vec![slow, node("n", SERVERS - 1, 1)]
            }
            _ => vec![node("n", SERVERS, 0)],
        };
        let clients = if load == "instant" { CLIENTS_OF_A_CORE } else { CLIENTS };
        let closed = Workload {
            duration: Some(self.length),
            clients_per_edge: clients / u32::from(proxies),
            ..DEMAND.workload()
        };
        let workload = match load {
            "overload" => Workload {
                mode: LoadMode::Open,
                rate: Some(TIMES * capacity_per_s()),
                addresses: ADDRESSES,
                timeout: TIMEOUT,
                ..closed
            },
            _ => closed,
        };
        let mut file = ClusterFile {
            cluster: Identity { name: ground.name.clone(), ..Identity::default() },
            sites: vec![SiteEntry {
                response_p99: (load == "overload").then_some(TARGET),
                ..SiteEntry::new("a", "a.example", SERVERS)
            }],
            nodes,
            edges: (0..proxies).map(|i| EdgeEntry::new(format!("edge{}", i + 1), at(i))).collect(),
            workload: Some(workload),
            ..ClusterFile::default()
        };
        file.baseline.configuration = Configuration::Rigid;
        file
    }
}

/// The highest throughput that the servers of a case allow.
pub(super) fn requests_per_s_max(case: &str) -> f64 {
    let plan = Plan::new(case, 1, Duration::ZERO);
    let (servers, a_node) = (SERVERS as f64, NOISE * node_rate());
    match (plan.load, plan.by) {
        ("bursts", "shared") => 1.01 * POOL as f64 * node_rate(),
        ("bursts", _) => possible_rate(plan.bursts().ideal_rate(), BURST, POOL),
        ("equal", _) => servers * a_node,
        ("slow", _) => (servers - 1.0 + 1.0 / SLOWDOWN) * a_node,
        ("overload", _) => NOISE * capacity_per_s(),
        _ => f64::INFINITY,
    }
}

/// What the servers can answer under `overload`, in requests/s.
fn capacity_per_s() -> f64 {
    SERVERS as f64 * f64::from(WORKERS) / LONGER.as_secs_f64()
}

/// The share of what the servers can answer in `time` that was answered within the target.
pub(super) fn goodput(requests: &[Request], time: Duration) -> f64 {
    let window = SETTLE.as_secs_f64()..time.as_secs_f64();
    let in_time = |request: &&Request| {
        window.contains(&request.due_s)
            && request.fate == Fate::Answered
            && request.response_ms <= TARGET.as_secs_f64() * 1e3
    };
    requests.iter().filter(in_time).count() as f64 / (capacity_per_s() * (window.end - window.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::PORTS;

    #[test]
    fn the_file_of_each_case_is_read_as_it_was_meant() {
        let ground = Ground { name: "lab-f1".into(), port: 20_000, root: None };
        for load in ["bursts/2", "equal/1", "equal/4", "slow/4", "overload/1", "instant/1"] {
            for by in ["own", "sidelong"] {
                let case = format!("{load}/nginx/{by}");
                let plan = Plan::new(&case, 1, Duration::from_secs(1));
                let text = plan.cluster_file(&ground).to_toml().unwrap();
                let cluster = ClusterFile::parse(&text, "run.toml").unwrap().cluster().unwrap();
                assert_eq!(cluster.edges.len(), usize::from(plan.proxies));
                let ports = cluster.nodes.values().map(|node| node.port().unwrap().port());
                let edges = cluster.edges.iter().map(|edge| edge.listen.port());
                let mut all: Vec<_> = ports.chain(edges).collect();
                assert!(all.iter().all(|port| (20_000..20_000 + PORTS).contains(port)), "{all:?}");
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), cluster.nodes.len() + cluster.edges.len());
                let slow: Vec<_> =
                    cluster.nodes.values().map(|node| node.slowdown).filter(|by| *by > 1.0).collect();
                assert_eq!(slow, if plan.load == "slow" { vec![SLOWDOWN] } else { vec![] });
                let clients = cluster.workload.unwrap().clients_per_edge * u32::from(plan.proxies);
                assert!(matches!(plan.load, "bursts" | "instant") || clients == CLIENTS);
            }
        }
    }

    #[test]
    fn goodput_is_of_what_the_servers_can_do() {
        let request = |due_s, fate, response_ms| Request {
            due_s,
            sent_s: due_s,
            site: "a".into(),
            edge: "e".into(),
            fate,
            response_ms,
        };
        let all = (0..10_000).map(|n| {
            let due_s = f64::from(n) / 4000.0;
            // One in ten is answered, half of these too late.
            match n % 20 {
                0 => request(due_s, Fate::Answered, 25.0),
                10 => request(due_s, Fate::Answered, 61.0),
                _ => request(due_s, Fate::Rejected, 0.3),
            }
        });
        let all: Vec<_> = all.collect();
        let found = goodput(&all, Duration::from_millis(2500));
        assert!((found - 0.5).abs() < 1e-9, "{found}");
    }
}
