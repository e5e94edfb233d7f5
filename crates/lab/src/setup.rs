//! The cluster and the load of each run.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use sidelong_config::{
    Cluster, ClusterFile, Configuration, EdgeEntry, Identity, LoadMode, NodeEntry, Service, SiteEntry,
    Workload, WorkloadKind,
};
use sidelong_figure::Style;

use crate::error::Result;
use crate::measure::{Dimension, Word};

/// Nodes of the pool (Balaji et al. 2004, 4: "a cluster system consisting of 8 nodes").
pub(crate) const POOL: usize = 8;
/// Workers of a node.
pub(crate) const WORKERS: u16 = 2;
/// Service time of a request. A worker waits for it and burns no CPU, so that eight nodes fit on two cores.
pub(crate) const SERVICE: Duration = Duration::from_millis(5);
/// Number of edges. Balaji et al. 2004 do not give the number of load-balancers in Cluster 1.
pub(crate) const EDGES: u16 = 2;
/// Clients of an edge (Balaji et al. 2004, 4: "sixteen threads on each load-balancer"). Together they keep the workers of
/// six nodes busy 2.7 times over.
pub(crate) const CLIENTS_PER_EDGE: u32 = 16;
/// Listening ports of the largest cluster: 4 sites of 5 nodes, and two for each edge.
pub(crate) const PORTS: u16 = 20 + 2 * EDGES;
/// The configurations that Balaji et al. 2004 compare, in the order in which they alternate.
pub(crate) const CONFIGURATIONS: [Configuration; 3] =
    [Configuration::Rigid, Configuration::Reconfigured, Configuration::OverProvisioned];

/// The configurations as what varies from case to case.
pub(crate) const CONFIGURATION: Dimension = Dimension::new(
    "configuration",
    "configuration",
    &[
        Word::new("rigid", "rigid", style_of(Configuration::Rigid)),
        Word::new("reconfigured", "reconfigured", style_of(Configuration::Reconfigured)),
        Word::new("over-provisioned", "over-provisioned", style_of(Configuration::OverProvisioned)),
    ],
);

/// The style of a configuration's line.
pub(crate) const fn style_of(configuration: Configuration) -> Style {
    match configuration {
        Configuration::Rigid => Style::BASELINE,
        Configuration::Reconfigured => Style::OURS,
        Configuration::OverProvisioned => Style::THIRD,
    }
}

/// Balaji et al. 2004 print no exponent. 0.9 is common for the web.
const ZIPF_ALPHA: f64 = 0.9;
const ZIPF_OBJECTS: u64 = 1000;
const ZIPF_BYTES: u64 = 4096;
const SITE_NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Requests/s that one node can serve.
pub(crate) fn node_rate() -> f64 {
    f64::from(WORKERS) / SERVICE.as_secs_f64()
}

/// The highest throughput that a run can show on `nodes` nodes if they allow `ideal` for one site at a time. At most one
/// request per client of a burst remains when the next begins, and other nodes serve it meanwhile.
pub(crate) fn possible_rate(ideal: f64, burst: u64, nodes: usize) -> f64 {
    let (burst, clients) = (burst as f64, f64::from(u32::from(EDGES) * CLIENTS_PER_EDGE));
    let overlapped = if burst > clients { ideal * burst / (burst - clients) } else { f64::INFINITY };
    // One percent is allowed for clocks and rounding.
    1.01 * overlapped.min(nodes as f64 * node_rate())
}

/// Two runs of the same speed differ by a few percent, by which their ratio may exceed what is possible.
pub(crate) const RATIO_SLACK: f64 = 1.05;

/// How the pool is dealt out to the sites at the start: the two scenarios of Balaji et al. 2004.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// 3:3:2.
    Three,
    /// 2:2:2:2.
    Four,
}

impl Layout {
    pub(crate) const ALL: [Layout; 2] = [Layout::Three, Layout::Four];

    /// The layout that a label stands for.
    pub(crate) fn find(label: &str) -> Option<Layout> {
        Layout::ALL.into_iter().find(|layout| layout.label() == label)
    }

    /// Nodes of each site.
    pub(crate) const fn nodes(self) -> &'static [usize] {
        match self {
            Layout::Three => &[3, 3, 2],
            Layout::Four => &[2, 2, 2, 2],
        }
    }

    /// The value in the column `sites`.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Layout::Three => "3:3:2",
            Layout::Four => "2:2:2:2",
        }
    }

    pub(crate) const fn sites(self) -> u64 {
        self.nodes().len() as u64
    }

    /// Nodes that a site has when the others are left with one each.
    pub(crate) const fn nodes_of_one_max(self) -> usize {
        POOL - (self.nodes().len() - 1)
    }

    /// Requests/s if only the nodes limit them and reconfiguration takes no time. One site is loaded at a time, so the mean
    /// over equal bursts is the harmonic mean over the sites.
    pub(crate) fn ideal_rate(self, configuration: Configuration) -> f64 {
        let seconds = self.nodes().iter().map(|&nodes| match configuration {
            Configuration::Rigid => 1.0 / nodes as f64,
            Configuration::Reconfigured | Configuration::OverProvisioned => {
                1.0 / self.nodes_of_one_max() as f64
            }
        });
        node_rate() * self.nodes().len() as f64 / seconds.sum::<f64>()
    }

    /// Nodes in all.
    pub(crate) const fn nodes_in_all(self, configuration: Configuration) -> usize {
        match configuration {
            Configuration::Rigid | Configuration::Reconfigured => POOL,
            Configuration::OverProvisioned => self.nodes().len() * self.nodes_of_one_max(),
        }
    }
}

/// The objects that the requests ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Demand {
    /// One real file of this size in bytes.
    SingleFile(u64),
    /// Generated objects by Zipf's law.
    Zipf,
    /// The objects of the WorldCup98 sample, in its order.
    WorldCup,
}

impl Demand {
    /// The value in the column `workload`.
    pub(crate) fn label(self) -> String {
        match self {
            Demand::SingleFile(bytes) => format!("{}k", bytes / 1024),
            Demand::Zipf => "zipf".into(),
            Demand::WorldCup => "worldcup98".into(),
        }
    }

    /// Describes it in a sentence.
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

/// One run of the program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Run {
    pub(crate) layout: Layout,
    pub(crate) demand: Demand,
    pub(crate) configuration: Configuration,
    pub(crate) burst: u64,
    /// The pause between two bursts.
    pub(crate) pause: Duration,
    /// The requests after which it ends.
    pub(crate) requests: u64,
}

/// What the runs of one experiment share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ground {
    /// The name of the clusters, and so of their run directory.
    pub(crate) name: String,
    /// The first of [`PORTS`] free ones on 127.0.0.1.
    pub(crate) port: u16,
    /// The root of the real files, for workloads that have any.
    pub(crate) root: Option<PathBuf>,
}

impl Run {
    /// The name of its files.
    pub(crate) fn name(&self) -> String {
        let pause = match self.pause.as_millis() {
            0 => String::new(),
            ms => format!("-pause-{ms}ms"),
        };
        format!("{}-sites-{}{pause}-{}", self.layout.sites(), self.burst, self.configuration)
    }

    /// Describes it in a sentence.
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
        let mut file = ClusterFile {
            cluster: Identity { name: ground.name.clone(), ..Identity::default() },
            sites: SITE_NAMES.iter().zip(self.layout.nodes()).map(site).collect(),
            nodes: vec![NodeEntry {
                workers: Some(WORKERS),
                service: Some(Service::Fixed),
                service_time: Some(SERVICE),
                root: ground.root.clone(),
                ..NodeEntry::new("n", POOL, at(2 * EDGES))
            }],
            edges: (0..EDGES).map(edge).collect(),
            workload: Some(Workload {
                burst: self.burst,
                pause: self.pause,
                requests: Some(self.requests),
                ..self.demand.workload()
            }),
            ..ClusterFile::default()
        };
        file.baseline.configuration = self.configuration;
        file
    }

    /// Requests/s if only the nodes limit them and reconfiguration takes no time.
    pub(crate) fn ideal_rate(&self) -> f64 {
        self.layout.ideal_rate(self.configuration)
    }

    /// Its shortest duration.
    pub(crate) fn ideal_duration(&self) -> Duration {
        let pauses = self.requests / self.burst;
        let seconds = self.requests as f64 / self.ideal_rate() + pauses as f64 * self.pause.as_secs_f64();
        Duration::from_secs_f64(seconds)
    }

    /// Its cluster file as a value and parsed.
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
        Run { layout, demand, configuration, burst: 512, pause: Duration::ZERO, requests: 12_288 }
    }

    #[test]
    fn the_file_of_a_run_is_read_as_it_was_meant() {
        let run = run(Layout::Three, Configuration::Rigid);
        let text = run.cluster_file(&ground()).to_toml().unwrap();
        let file = ClusterFile::parse(&text, "run.toml").unwrap();
        assert_eq!(file, run.cluster_file(&ground()));
        let cluster = file.cluster().unwrap();
        assert_eq!(cluster.sites.values().map(|site| site.nodes).collect::<Vec<_>>(), [3, 3, 2]);
        assert_eq!(cluster.sites[1].hosts, ["b.example"]);
        assert_eq!(cluster.baseline.configuration, Configuration::Rigid);
        assert_eq!((cluster.edges.len(), cluster.nodes.len()), (2, 8));
        assert_eq!(cluster.edges[1].admin.unwrap().port(), 20_003);
        assert_eq!(cluster.nodes[0].port().unwrap().port(), 20_004);
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
                let ports = cluster.nodes.values().map(|node| node.port().unwrap().port());
                assert!(ports.max().unwrap() < 20_000 + PORTS);
            }
        }
    }

    #[test]
    fn ideal_rates_are_those_of_the_nodes() {
        let ideal = |layout, configuration| {
            let run = run(layout, configuration);
            run.ideal_rate().round()
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
        let (file, _) = run.plan(&ground()).unwrap();
        assert_eq!(file.workload.unwrap().pause, run.pause);
        assert_eq!(run.name(), "3-sites-512-pause-100ms-reconfigured");
        assert_eq!(run.ideal_duration(), Duration::from_secs_f64(12_288.0 / 2400.0 + 24.0 * 0.1));
    }

    #[test]
    fn every_demand_is_a_workload() {
        for demand in [Demand::SingleFile(16 << 10), Demand::Zipf, Demand::WorldCup] {
            let run = Run { demand, ..run(Layout::Four, Configuration::Reconfigured) };
            let (file, _) = run.plan(&Ground { root: None, ..ground() }).unwrap();
            assert_eq!(file.workload.unwrap().requests, Some(12_288));
        }
    }
}
