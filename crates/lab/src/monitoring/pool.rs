//! The shared data-center of M9: two co-hosted sites whose requests burn CPU time, on nodes held to shares of a CPU.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sidelong_config::{
    Balance, ClusterFile, Configuration, EdgeEntry, Identity, Load, LoadMode, NodeEntry, Scheme, Service,
    SiteEntry, Workload, WorkloadKind,
};

use crate::bench::Bench;
use crate::error::Result;
use crate::setup::Ground;
use crate::up::Summary;

/// Dynamic requests of divergent cost, as on the paper's auction site, and documents by Zipf's law.
pub(super) const SITES: [&str; 2] = ["auction", "zipf"];
/// Nodes of each site.
const NODES_EACH: usize = 3;
const EDGES: u16 = 2;
/// CPUs of each node. If all nodes are busy, half of a machine of two CPUs is left to edges and clients.
const SHARE: f64 = 0.15;
const WORKERS: u16 = 4;
const OBJECTS: u64 = 1000;
const BYTES: u64 = 1024;
/// 5.2.3: "Zipf trace with α value 0.5".
const ALPHA: f64 = 0.5;
/// T in Vaidyanathan et al. 2006, section 5.
const PERIOD: Duration = Duration::from_millis(50);
/// A record that is read as seldom as in the paper is old, and no newer one exists.
const STALE: Duration = Duration::from_secs(30);
/// Mean CPU time of a request. A node serves it in about 27 ms, which is about as long as a sample is good for at the finer
/// granularities.
const SERVICE: Duration = Duration::from_millis(4);
/// Few more clients than nodes, so that a node may be idle while another has a queue. With the paper's 64 clients on 16 CPUs hardly
/// any node is ever idle, however nodes are chosen.
const CLIENTS_PER_EDGE: u32 = 4;
/// The choice of the paper's front end.
const BALANCE: Balance = Balance::LastLook;
/// Time to start and end a run.
pub(super) const START: Duration = Duration::from_secs(2);

/// A run of the data-center.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pool {
    pub(super) scheme: Scheme,
    /// Time between two scans.
    pub(super) granularity: Duration,
    pub(super) time: Duration,
}

/// Settings that all runs share.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Shares {
    /// The CPU share of each node, if it is held to one.
    pub(super) cpus: Option<f64>,
    /// The reason if it is not.
    pub(super) without: Option<String>,
}

impl Shares {
    /// Finds out whether this machine allows shares.
    pub(super) fn here(bench: &Bench<'_>) -> Result<Shares> {
        let pool = Pool { scheme: Scheme::RdmaAsync, granularity: PERIOD, time: Duration::from_secs(1) };
        let shares = Shares { cpus: Some(SHARE), without: None };
        let file = pool.cluster_file(&bench.ground, &shares);
        let without = bench.shares_refused(&file, pool.time + START)?;
        Ok(if without.is_none() { shares } else { Shares { cpus: None, without } })
    }

    pub(super) fn describe(&self) -> String {
        let held = match self.cpus {
            Some(cpus) => format!("each held to {cpus} of a CPU by a control group (20 ms periods)"),
            None => "held to nothing".to_owned(),
        };
        format!(
            "Two sites, {} and {}, of {NODES_EACH} nodes each that do not move; nodes {held}, with {WORKERS} workers that burn \
             {} ms of CPU time a request on average; {EDGES} edges, {CLIENTS_PER_EDGE} closed-loop clients at each, whose requests \
             go to the sites in turn; edges scan the load as often as the granularity says; T = {} ms; balanced by the weighted load index as of the last scan, as the paper's \
             front end does.",
            SITES[0],
            SITES[1],
            SERVICE.as_secs_f64() * 1e3,
            PERIOD.as_millis(),
        )
    }
}

impl Pool {
    pub(super) fn run(&self, bench: &Bench<'_>, shares: &Shares, name: &str) -> Result<Summary> {
        let about = format!(
            "load by {}, scanned every {} ms, balanced by {BALANCE}",
            self.scheme,
            self.granularity.as_millis(),
        );
        let (summary, _) =
            bench.up(name, &about, &self.cluster_file(&bench.ground, shares), self.time + START)?;
        Ok(summary)
    }

    fn cluster_file(&self, ground: &Ground, shares: &Shares) -> ClusterFile {
        let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, ground.port + offset));
        // The first site's objects are equally popular.
        let alphas = [Some(0.0), None];
        let site = |(name, alpha): (&&str, Option<f64>)| SiteEntry {
            alpha,
            ..SiteEntry::new(*name, format!("{name}.example"), NODES_EACH)
        };
        let edge = |i: u16| EdgeEntry {
            admin: Some(at(EDGES + i)),
            ..EdgeEntry::new(format!("edge{}", i + 1), at(i))
        };
        let mut file = ClusterFile {
            cluster: Identity { name: ground.name.clone(), ..Identity::default() },
            load: Load { period: PERIOD, proc_period: PERIOD, stale: STALE, ..Load::default() },
            sites: SITES.iter().zip(alphas).map(site).collect(),
            nodes: vec![NodeEntry {
                workers: Some(WORKERS),
                service: Some(Service::Burn),
                service_time: Some(SERVICE),
                cpu_share: shares.cpus,
                ..NodeEntry::new("n", SITES.len() * NODES_EACH, at(2 * EDGES))
            }],
            edges: (0..EDGES).map(edge).collect(),
            workload: Some(Workload {
                kind: WorkloadKind::Zipf,
                file_bytes: BYTES,
                alpha: ALPHA,
                objects: OBJECTS,
                mode: LoadMode::Closed,
                clients_per_edge: CLIENTS_PER_EDGE,
                burst: 1,
                duration: Some(self.time),
                timeout: Duration::from_secs(10),
                ..Workload::default()
            }),
            ..ClusterFile::default()
        };
        file.set_balance(BALANCE);
        file.set_scheme(self.scheme);
        keep_still(&mut file, self.granularity);
        file
    }
}

/// Nothing moves. Nodes are read every `granularity`, and a lease must still outlast that.
pub(super) fn keep_still(file: &mut ClusterFile, granularity: Duration) {
    file.baseline.configuration = Configuration::Rigid;
    let reconfig = &mut file.reconfig;
    reconfig.sensitivity = granularity;
    reconfig.history = reconfig.history.max(granularity);
    reconfig.lease = reconfig.lease.max(3 * granularity);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_run_is_read_as_it_was_meant() {
        let pool = Pool {
            scheme: Scheme::SocketSync,
            granularity: Duration::from_millis(4096),
            time: Duration::from_secs(5),
        };
        let ground = Ground { name: "lab-m9".into(), port: 20_000, root: None };
        let file = pool.cluster_file(&ground, &Shares { cpus: Some(SHARE), without: None });
        assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "run.toml").unwrap(), file);
        let cluster = file.cluster().unwrap();
        assert_eq!((cluster.nodes.len(), cluster.sites.len(), cluster.edges.len()), (6, 2, 2));
        assert_eq!(cluster.nodes[5].cpu_share, Some(SHARE));
        assert_eq!((cluster.sites[0].alpha, cluster.sites[1].alpha), (Some(0.0), None));
        assert_eq!(cluster.reconfig.sensitivity, pool.granularity);
        assert!(cluster.load.stale > pool.granularity);
    }
}
