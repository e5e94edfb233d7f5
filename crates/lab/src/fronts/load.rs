//! The loads of F1, and the clusters that they are put on.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;
use sidelong_config::{
    ClusterFile, Configuration, EdgeEntry, Identity, LoadMode, NodeEntry, Service, SiteEntry, Workload,
};

use super::By;
use crate::setup::{Demand, EDGES, Ground, Layout, POOL, Run, SERVICE, WORKERS, node_rate, possible_rate};
use crate::up::{Fate, Request};

pub(super) const DEMAND: Demand = Demand::SingleFile(1024);
pub(super) const LAYOUT: Layout = Layout::Three;
/// Requests for one site before the next site's turn.
pub(super) const BURST: u64 = 2048;
/// Servers of the one site of the other loads, and the most proxies before them.
pub(super) const SERVERS: usize = 4;
pub(super) const PROXIES_MAX: u16 = 4;
/// How many times as long requests take at the server that is slower than its file says.
pub(super) const SLOWDOWN: f64 = 8.0;
/// Clients of all proxies together: as many as the servers have workers.
const CLIENTS: u32 = SERVERS as u32 * WORKERS as u32;
/// The same before servers that take no time.
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

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Load {
    /// R10's bursts for three sites in turn.
    Bursts,
    /// One site on servers that are alike.
    Equal,
    /// The same with one that is slower than its file says.
    Slow,
    /// Ten times what the servers can do, with a target.
    Overload,
    /// Servers that take no time: the proxy is the limit.
    Instant,
}

impl Load {
    pub(super) const ALL: [Load; 5] = [Load::Bursts, Load::Equal, Load::Slow, Load::Overload, Load::Instant];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Load::Bursts => "bursts",
            Load::Equal => "equal",
            Load::Slow => "slow",
            Load::Overload => "overload",
            Load::Instant => "instant",
        }
    }

    /// In words, for a heading.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Load::Bursts => "Bursts for three sites in turn",
            Load::Equal => "Equal servers",
            Load::Slow => "One server secretly 8 times slower",
            Load::Overload => "Ten times the load, with a target",
            Load::Instant => "Servers that take no time",
        }
    }

    /// Whether there are several sites, between which nodes move.
    pub(super) const fn has_sites(self) -> bool {
        matches!(self, Load::Bursts)
    }

    pub(super) const fn target(self) -> Option<Duration> {
        match self {
            Load::Overload => Some(TARGET),
            Load::Bursts | Load::Equal | Load::Slow | Load::Instant => None,
        }
    }

    /// The highest throughput that the servers allow.
    pub(super) fn requests_per_s_max(self, by: By) -> f64 {
        let servers = NOISE * node_rate();
        match (self, by) {
            (Load::Bursts, By::Own | By::Sidelong) => {
                possible_rate(LAYOUT.ideal_rate(configuration(by)), BURST, POOL)
            }
            (Load::Bursts, By::Shared) => 1.01 * POOL as f64 * node_rate(),
            (Load::Equal, _) => SERVERS as f64 * servers,
            (Load::Slow, _) => (SERVERS as f64 - 1.0 + 1.0 / SLOWDOWN) * servers,
            (Load::Overload, _) => NOISE * capacity_per_s(),
            (Load::Instant, _) => f64::INFINITY,
        }
    }
}

/// A load on so many proxies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Case {
    pub(super) load: Load,
    pub(super) proxies: u16,
}

/// The cases, and the time of each run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) cases: &'static [Case],
    /// Turns of each site in the bursts.
    rounds: u64,
    time: Duration,
}

const fn case(load: Load, proxies: u16) -> Case {
    Case { load, proxies }
}

impl Extent {
    pub(super) const FULL: Extent = Extent {
        cases: &[
            case(Load::Bursts, EDGES),
            case(Load::Equal, 1),
            case(Load::Equal, 2),
            case(Load::Equal, PROXIES_MAX),
            case(Load::Slow, 1),
            case(Load::Slow, 2),
            case(Load::Slow, PROXIES_MAX),
            case(Load::Overload, 1),
            case(Load::Instant, 1),
        ],
        rounds: 3,
        time: Duration::from_secs(8),
    };
    pub(super) const QUICK: Extent = Extent {
        cases: &[
            case(Load::Bursts, EDGES),
            case(Load::Equal, 1),
            case(Load::Slow, PROXIES_MAX),
            case(Load::Overload, 1),
            case(Load::Instant, 1),
        ],
        rounds: 1,
        time: Duration::from_secs(3),
    };

    /// The shortest time of a run.
    pub(super) fn time(&self, load: Load, by: By) -> Duration {
        if load.has_sites() { self.bursts(by).ideal_duration() } else { self.time }
    }

    fn bursts(&self, by: By) -> Run {
        let requests = self.rounds * LAYOUT.sites() * BURST;
        let configuration = configuration(by);
        Run { layout: LAYOUT, demand: DEMAND, configuration, burst: BURST, pause: Duration::ZERO, requests }
    }
}

const fn configuration(by: By) -> Configuration {
    match by {
        By::Own | By::Shared => Configuration::Rigid,
        By::Sidelong => Configuration::Reconfigured,
    }
}

/// What the servers can answer under [`Load::Overload`], in requests/s.
fn capacity_per_s() -> f64 {
    SERVERS as f64 * f64::from(WORKERS) / LONGER.as_secs_f64()
}

/// The share of what the servers can answer in `time` that was answered within the target.
pub(super) fn goodput(requests: &[Request], target: Duration, time: Duration) -> f64 {
    let window = SETTLE.as_secs_f64()..time.as_secs_f64();
    let in_time = |request: &&Request| {
        window.contains(&request.due_s)
            && request.fate == Fate::Answered
            && request.response_ms <= target.as_secs_f64() * 1e3
    };
    requests.iter().filter(in_time).count() as f64 / (capacity_per_s() * (window.end - window.start))
}

impl Case {
    /// The name of its runs' files.
    pub(super) fn word(self) -> String {
        let Case { load, proxies } = self;
        format!("{}-{proxies}", load.word())
    }

    /// Describes it in a sentence.
    pub(super) fn describe(self) -> String {
        let Case { load, proxies } = self;
        format!("{}, {proxies} at once", load.title().to_lowercase())
    }

    pub(super) fn cluster_file(self, ground: &Ground, by: By, extent: &Extent) -> ClusterFile {
        let Case { load, proxies } = self;
        if load.has_sites() {
            return extent.bursts(by).cluster_file(ground);
        }
        let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, ground.port + offset));
        let service = match load {
            Load::Overload => Service::Fixed,
            Load::Instant => Service::None,
            Load::Bursts | Load::Equal | Load::Slow => Service::Exponential,
        };
        let node = |name: &str, count: usize, offset: u16| NodeEntry {
            workers: Some(WORKERS),
            service: Some(service),
            service_time: (load != Load::Instant).then_some(if load == Load::Overload {
                LONGER
            } else {
                SERVICE
            }),
            queue_depth_max: (load == Load::Overload).then_some(QUEUE_DEPTH_MAX),
            ..NodeEntry::new(name, count, at(PROXIES_MAX + offset))
        };
        let slow = NodeEntry { slowdown: Some(SLOWDOWN), ..node("slow", 1, 0) };
        let nodes = match load {
            Load::Slow => vec![slow, node("n", SERVERS - 1, 1)],
            Load::Bursts | Load::Equal | Load::Overload | Load::Instant => vec![node("n", SERVERS, 0)],
        };
        let clients = if load == Load::Instant { CLIENTS_OF_A_CORE } else { CLIENTS };
        let closed = Workload {
            duration: Some(extent.time),
            clients_per_edge: clients / u32::from(proxies),
            ..DEMAND.workload()
        };
        let workload = match load {
            Load::Overload => Workload {
                mode: LoadMode::Open,
                rate: Some(TIMES * capacity_per_s()),
                addresses: ADDRESSES,
                timeout: TIMEOUT,
                ..closed
            },
            Load::Bursts | Load::Equal | Load::Slow | Load::Instant => closed,
        };
        let mut file = ClusterFile {
            cluster: Identity { name: ground.name.clone(), ..Identity::default() },
            sites: vec![SiteEntry {
                response_p99: load.target(),
                ..SiteEntry::new("a", "a.example", SERVERS)
            }],
            nodes,
            edges: (0..proxies).map(|i| EdgeEntry::new(format!("edge{}", i + 1), at(i))).collect(),
            workload: Some(workload),
            ..ClusterFile::default()
        };
        file.reconfig.configuration = Configuration::Rigid;
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::PORTS;

    #[test]
    fn the_file_of_each_case_is_read_as_it_was_meant() {
        let ground = Ground { name: "lab-f1".into(), port: 20_000, root: None };
        for case in Extent::FULL.cases {
            for by in By::ALL {
                let text = case.cluster_file(&ground, by, &Extent::FULL).to_toml().unwrap();
                let cluster = ClusterFile::parse(&text, "run.toml").unwrap().cluster().unwrap();
                assert_eq!(cluster.edges.len(), usize::from(case.proxies));
                let ports = cluster.nodes.iter().map(|node| node.port().unwrap().port());
                let edges = cluster.edges.iter().map(|edge| edge.listen.port());
                let mut all: Vec<_> = ports.chain(edges).collect();
                assert!(all.iter().all(|port| (20_000..20_000 + PORTS).contains(port)), "{all:?}");
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), cluster.nodes.len() + cluster.edges.len());
                let slow: Vec<_> =
                    cluster.nodes.iter().map(|node| node.slowdown).filter(|by| *by > 1.0).collect();
                assert_eq!(slow, if case.load == Load::Slow { vec![SLOWDOWN] } else { vec![] });
                let clients = cluster.workload.unwrap().clients_per_edge * u32::from(case.proxies);
                assert!(matches!(case.load, Load::Bursts | Load::Instant) || clients == CLIENTS);
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
                _ => request(due_s, Fate::TurnedAway, 0.3),
            }
        });
        let all: Vec<_> = all.collect();
        let found = goodput(&all, TARGET, Duration::from_millis(2500));
        assert!((found - 0.5).abs() < 1e-9, "{found}");
    }
}
