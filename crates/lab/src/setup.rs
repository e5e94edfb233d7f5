//! The cluster and the load of each run.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use sidelong_config::{
    Cluster, ClusterFile, Configuration, EdgeEntry, Identity, LoadMode, NodeEntry, Service, SiteEntry,
    Workload, WorkloadKind,
};

use crate::error::Result;
use crate::figure::Look;

/// Nodes of the pool (R 4: "a cluster system consisting of 8 nodes").
pub(crate) const POOL: usize = 8;
/// Requests that a node serves at a time.
pub(crate) const WORKERS: u16 = 2;
/// For each of which it takes this long, by waiting: eight nodes fit on two cores.
pub(crate) const SERVICE: Duration = Duration::from_millis(5);
/// R does not say how many of Cluster 1's nodes were load-balancers.
pub(crate) const EDGES: u16 = 2;
/// R 4: "sixteen threads on each load-balancer". Together they keep the workers of six nodes busy 2.7 times over.
pub(crate) const CLIENTS_PER_EDGE: u32 = 16;
/// Listening ports of the largest cluster: 4 sites of 5 nodes, and two for each edge.
pub(crate) const PORTS: u16 = 20 + 2 * EDGES;
/// The configurations that R compares, in the order in which they alternate.
pub(crate) const CONFIGURATIONS: [Configuration; 3] =
    [Configuration::Rigid, Configuration::Reconfigured, Configuration::OverProvisioned];

/// How the measurements of a configuration look.
pub(crate) const fn look_of(configuration: Configuration) -> Look {
    match configuration {
        Configuration::Rigid => Look::BASELINE,
        Configuration::Reconfigured => Look::OURS,
        Configuration::OverProvisioned => Look::THIRD,
    }
}

/// R prints no exponent; 0.9 is common for the web.
const ZIPF_ALPHA: f64 = 0.9;
const ZIPF_OBJECTS: u64 = 1000;
const ZIPF_BYTES: u64 = 4096;
const SITE_NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Requests/s that one node can serve.
pub(crate) fn node_rate() -> f64 {
    f64::from(WORKERS) / SERVICE.as_secs_f64()
}

/// How the pool is dealt out to the sites at the start: R's two scenarios.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// 3:3:2.
    Three,
    /// 2:2:2:2.
    Four,
}

impl Layout {
    pub(crate) const ALL: [Layout; 2] = [Layout::Three, Layout::Four];

    /// Nodes of each site.
    pub(crate) const fn nodes(self) -> &'static [usize] {
        match self {
            Layout::Three => &[3, 3, 2],
            Layout::Four => &[2, 2, 2, 2],
        }
    }

    /// In the column `sites`.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Layout::Three => "3:3:2",
            Layout::Four => "2:2:2:2",
        }
    }

    pub(crate) const fn sites(self) -> u64 {
        self.nodes().len() as u64
    }
}

/// What the requests ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Demand {
    /// One real file of so many bytes.
    SingleFile(u64),
    /// Made-up objects by Zipf's law.
    Zipf,
    /// The objects of the WorldCup98 sample, in its order.
    WorldCup,
}

impl Demand {
    /// In the column `workload`.
    pub(crate) fn label(self) -> String {
        match self {
            Demand::SingleFile(bytes) => format!("{}k", bytes / 1024),
            Demand::Zipf => "zipf".into(),
            Demand::WorldCup => "worldcup98".into(),
        }
    }

    /// In a sentence.
    pub(crate) fn describe(self) -> String {
        match self {
            Demand::SingleFile(bytes) => format!("one real file of {} KB", bytes / 1024),
            Demand::Zipf => {
                format!("{ZIPF_OBJECTS} objects of {ZIPF_BYTES} bytes, Zipf exponent {ZIPF_ALPHA}")
            }
            Demand::WorldCup => "the WorldCup98 sample that is part of the program, over and over".into(),
        }
    }

    pub(crate) fn workload(self) -> Workload {
        let base = Workload {
            mode: LoadMode::Closed,
            clients_per_edge: CLIENTS_PER_EDGE,
            timeout: Duration::from_secs(10),
            ..Workload::default()
        };
        match self {
            Demand::SingleFile(file_bytes) => Workload { kind: WorkloadKind::SingleFile, file_bytes, ..base },
            Demand::Zipf => Workload {
                kind: WorkloadKind::Zipf,
                file_bytes: ZIPF_BYTES,
                alpha: ZIPF_ALPHA,
                objects: ZIPF_OBJECTS,
                ..base
            },
            Demand::WorldCup => Workload { kind: WorkloadKind::Trace, ..base },
        }
    }
}

/// When a run ends.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Until {
    /// After so many requests.
    Requests(u64),
    /// After so many seconds.
    Seconds(f64),
}

/// One run of the program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Run {
    pub(crate) layout: Layout,
    pub(crate) demand: Demand,
    pub(crate) configuration: Configuration,
    pub(crate) burst: u64,
    /// Between two bursts.
    pub(crate) pause: Duration,
    pub(crate) until: Until,
}

/// What the runs of one experiment have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ground {
    /// Of the clusters, and so of their run directory.
    pub(crate) name: String,
    /// The first of [`PORTS`] free ones on 127.0.0.1.
    pub(crate) port: u16,
    /// The real files, for workloads that have any.
    pub(crate) root: Option<PathBuf>,
}

impl Run {
    /// As its files are called.
    pub(crate) fn name(&self) -> String {
        let pause = match self.pause.as_millis() {
            0 => String::new(),
            ms => format!("-pause-{ms}ms"),
        };
        format!("{}-sites-{}{pause}-{}", self.layout.sites(), self.burst, self.configuration)
    }

    /// In a sentence.
    pub(crate) fn describe(&self) -> String {
        let (label, burst) = (self.layout.label(), self.burst);
        let pause = match self.pause.as_millis() {
            0 => String::new(),
            ms => format!(" with {ms} ms between"),
        };
        format!("{}, nodes {label}, bursts of {burst}{pause}, {}", self.configuration, self.demand.describe())
    }

    /// Its cluster file.
    pub(crate) fn cluster_file(&self, ground: &Ground) -> ClusterFile {
        let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, ground.port + offset));
        let site = |(name, nodes): (&&str, &usize)| SiteEntry::new(*name, format!("{name}.example"), *nodes);
        let edge = |i: u16| EdgeEntry {
            admin: Some(at(EDGES + i)),
            ..EdgeEntry::new(format!("edge{}", i + 1), at(i))
        };
        let (requests, duration) = match self.until {
            Until::Requests(requests) => (Some(requests), None),
            Until::Seconds(seconds) => (None, Some(Duration::from_secs_f64(seconds))),
        };
        let mut file = ClusterFile {
            cluster: Identity { name: ground.name.clone(), ..Identity::default() },
            sites: SITE_NAMES.iter().zip(self.layout.nodes()).map(site).collect(),
            nodes: vec![NodeEntry {
                workers: WORKERS,
                service: Service::Fixed,
                service_time: SERVICE,
                root: ground.root.clone(),
                ..NodeEntry::new("n", POOL, at(2 * EDGES))
            }],
            edges: (0..EDGES).map(edge).collect(),
            workload: Some(Workload {
                burst: self.burst,
                pause: self.pause,
                requests,
                duration,
                ..self.demand.workload()
            }),
            ..ClusterFile::default()
        };
        file.reconfig.configuration = self.configuration;
        file
    }

    /// Requests/s when nothing but the nodes limits them and reconfiguration takes no time: one site is loaded at a
    /// time, so the mean over equal bursts is the harmonic one over the sites.
    pub(crate) fn ideal_rate(&self, cluster: &Cluster) -> f64 {
        let moved = POOL - (cluster.sites.len() - 1);
        let seconds = cluster.sites.iter().map(|site| match self.configuration {
            Configuration::Reconfigured => 1.0 / moved as f64,
            Configuration::Rigid | Configuration::OverProvisioned => 1.0 / site.nodes as f64,
        });
        node_rate() * cluster.sites.len() as f64 / seconds.sum::<f64>()
    }

    /// How long it takes at least.
    pub(crate) fn ideal_duration(&self, cluster: &Cluster) -> Duration {
        Duration::from_secs_f64(match self.until {
            Until::Requests(requests) => {
                let pauses = requests / self.burst;
                requests as f64 / self.ideal_rate(cluster) + pauses as f64 * self.pause.as_secs_f64()
            }
            Until::Seconds(seconds) => seconds,
        })
    }

    /// Its cluster file, and what that means.
    pub(crate) fn plan(&self, ground: &Ground) -> Result<(ClusterFile, Cluster)> {
        let file = self.cluster_file(ground);
        let cluster = file.cluster()?;
        Ok((file, cluster))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground() -> Ground {
        Ground { name: "lab-r10".into(), port: 20_000, root: Some("/tmp/files".into()) }
    }

    fn run(layout: Layout, configuration: Configuration) -> Run {
        let demand = Demand::SingleFile(1024);
        let until = Until::Requests(12_288);
        Run { layout, demand, configuration, burst: 512, pause: Duration::ZERO, until }
    }

    #[test]
    fn the_file_of_a_run_is_read_as_it_was_meant() {
        let run = run(Layout::Three, Configuration::Rigid);
        let text = run.cluster_file(&ground()).to_toml().unwrap();
        let file = ClusterFile::parse(&text, "run.toml").unwrap();
        assert_eq!(file, run.cluster_file(&ground()));
        let cluster = file.cluster().unwrap();
        assert_eq!(cluster.sites.iter().map(|site| site.nodes).collect::<Vec<_>>(), [3, 3, 2]);
        assert_eq!(cluster.sites[1].hosts, ["b.example"]);
        assert_eq!(cluster.reconfig.configuration, Configuration::Rigid);
        assert_eq!((cluster.edges.len(), cluster.nodes.len()), (2, 8));
        assert_eq!(cluster.edges[1].admin.unwrap().port(), 20_003);
        assert_eq!(cluster.nodes[0].listen.port(), 20_004);
        assert_eq!(cluster.nodes[0].root.as_deref(), Some("/tmp/files".as_ref()));
        let workload = cluster.workload.unwrap();
        assert_eq!((workload.kind, workload.file_bytes), (WorkloadKind::SingleFile, 1024));
        assert_eq!((workload.burst, workload.requests, workload.clients_per_edge), (512, Some(12_288), 16));
    }

    #[test]
    fn every_cluster_fits_the_ports() {
        for layout in Layout::ALL {
            for configuration in CONFIGURATIONS {
                let (_, cluster) = run(layout, configuration).plan(&ground()).unwrap();
                let ports = cluster.nodes.iter().map(|node| node.listen.port());
                assert!(ports.max().unwrap() < 20_000 + PORTS);
            }
        }
    }

    #[test]
    fn ideal_rates_are_those_of_the_nodes() {
        let ideal = |layout, configuration| {
            let run = run(layout, configuration);
            run.ideal_rate(&run.plan(&ground()).unwrap().1).round()
        };
        // 3 / (1/3 + 1/3 + 1/2) = 18/7 nodes of 400 requests/s.
        assert_eq!(ideal(Layout::Three, Configuration::Rigid), 1029.0);
        assert_eq!(ideal(Layout::Three, Configuration::Reconfigured), 2400.0);
        assert_eq!(ideal(Layout::Three, Configuration::OverProvisioned), 2400.0);
        assert_eq!(ideal(Layout::Four, Configuration::Rigid), 800.0);
        assert_eq!(ideal(Layout::Four, Configuration::OverProvisioned), 2000.0);
    }

    #[test]
    fn a_pause_is_part_of_the_run() {
        let run =
            Run { pause: Duration::from_millis(100), ..run(Layout::Three, Configuration::Reconfigured) };
        let (file, cluster) = run.plan(&ground()).unwrap();
        assert_eq!(file.workload.unwrap().pause, run.pause);
        assert_eq!(run.name(), "3-sites-512-pause-100ms-reconfigured");
        assert_eq!(run.ideal_duration(&cluster), Duration::from_secs_f64(12_288.0 / 2400.0 + 24.0 * 0.1));
    }

    #[test]
    fn every_demand_is_a_workload() {
        for demand in [Demand::SingleFile(16 << 10), Demand::Zipf, Demand::WorldCup] {
            let run =
                Run { demand, until: Until::Seconds(2.5), ..run(Layout::Four, Configuration::Reconfigured) };
            let (file, _) = run.plan(&Ground { root: None, ..ground() }).unwrap();
            let workload = file.workload.unwrap();
            assert_eq!((workload.requests, workload.duration), (None, Some(Duration::from_millis(2500))));
        }
    }
}
