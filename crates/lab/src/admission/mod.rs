//! A's experiments: sites where nobody is turned away, where edges turn away by load that is had over TCP, and where they
//! have it one-sidedly.
//!
//! One server behind four proxies. A fourth system is ours: the same edges holding a target.

mod instant;
mod qos;
mod response;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;
use sidelong_config::{
    Admission, AdmissionRule, ClusterFile, Configuration, EdgeEntry, Identity, Load, NodeEntry, Scheme,
    Service, SiteEntry, Workload,
};

use crate::bench::Bench;
use crate::error::Result;
use crate::figure::Look;
use crate::setup::{Demand, Ground};

pub(crate) use instant::{drops, responses};
pub(crate) use qos::run as qos;
pub(crate) use response::{by_clients, by_workload};

/// A: "4 nodes used as proxy servers, 1 node used as web server".
const EDGES: u16 = 4;
const KB: u64 = 1024;
const SINGLE: Demand = Demand::SingleFile(16 * KB);

/// CPUs of the server: a fraction, as the edges and the clients are on this machine, too.
const SHARE: f64 = 0.5;
/// Few, so that the server's own thread, which takes requests in, has its part of that.
const WORKERS: u16 = 4;
/// CPU time of a request on average over all paths, beside what its connection and its bytes take; a path always has
/// the same.
const SERVICE: Duration = Duration::from_micros(500);
const QUEUE_DEPTH_MAX: u32 = 4096;
/// A: "Load information updated every 1 ms".
const PERIOD: Duration = Duration::from_millis(1);
/// A does not say from which score on a server is overloaded. This is the load index with some half of A's most
/// clients at the server: 260 requests over 4 workers count 4 of 6.5, its whole CPU 2, its memory hardly.
const THRESHOLD: f64 = 40.0;
/// Ours holds the wait for a worker to what that comes to where nobody is turned away at half of A's most clients.
const QUEUE_MAX: Duration = Duration::from_millis(120);
/// A's instant figures, and ours of its traces, for which it names no number.
const CLIENTS_AT_ONE_LOAD: u32 = 400;
const START: Duration = Duration::from_secs(2);

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum System {
    None,
    Tcp,
    OneSided,
    Ours,
}

impl System {
    const ALL: [System; 4] = [System::None, System::Tcp, System::OneSided, System::Ours];

    const fn word(self) -> &'static str {
        match self {
            System::None => "none",
            System::Tcp => "tcp",
            System::OneSided => "one-sided",
            System::Ours => "ours",
        }
    }

    const fn look(self) -> Look {
        match self {
            System::None => Look::BASELINE,
            System::Tcp => Look::FOURTH,
            System::OneSided => Look::THIRD,
            System::Ours => Look::OURS,
        }
    }

    const fn rule(self) -> AdmissionRule {
        match self {
            System::None => AdmissionRule::None,
            System::Tcp | System::OneSided => AdmissionRule::Paper,
            System::Ours => AdmissionRule::Target,
        }
    }

    /// In both of A's systems a daemon on the server gathers its load; what differs is how it is fetched.
    const fn scheme(self) -> Scheme {
        match self {
            System::Tcp => Scheme::SocketAsync,
            System::None | System::OneSided | System::Ours => Scheme::RdmaAsync,
        }
    }
}

/// What differs from place to place of the figure.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Place {
    demand: Demand,
    clients: u32,
}

/// Whether the server can be held to its part of a CPU, and why not.
fn shares(bench: &Bench<'_>) -> Result<(Option<f64>, Option<String>)> {
    let (place, time) = (Place { demand: SINGLE, clients: 40 }, Duration::from_secs(1));
    let file = cluster_file(&bench.ground, place, System::None, Some(SHARE), time);
    let without = bench.shares_refused(&file, time + START)?;
    Ok((without.is_none().then_some(SHARE), without))
}

fn cluster_file(
    ground: &Ground,
    place: Place,
    system: System,
    cpus: Option<f64>,
    time: Duration,
) -> ClusterFile {
    let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, ground.port + offset));
    let edge =
        |i: u16| EdgeEntry { admin: Some(at(EDGES + i)), ..EdgeEntry::new(format!("edge{}", i + 1), at(i)) };
    let target = (system == System::Ours).then_some(QUEUE_MAX);
    let workload = Workload {
        clients_per_edge: place.clients / u32::from(EDGES),
        duration: Some(time),
        timeout: Duration::from_secs(30),
        ..place.demand.workload()
    };
    let mut file = ClusterFile {
        cluster: Identity { name: ground.name.clone(), ..Identity::default() },
        load: Load { scheme: system.scheme(), period: PERIOD, proc_period: PERIOD, ..Load::default() },
        admission: Admission { rule: system.rule(), threshold: THRESHOLD, ..Admission::default() },
        sites: vec![SiteEntry { queue_max: target, ..SiteEntry::new("site", "site.example", 1) }],
        nodes: vec![NodeEntry {
            workers: WORKERS,
            service: Service::Burn,
            service_time: SERVICE,
            queue_depth_max: QUEUE_DEPTH_MAX,
            cpu_share: cpus,
            ..NodeEntry::new("server", 1, at(2 * EDGES))
        }],
        edges: (0..EDGES).map(edge).collect(),
        workload: Some(workload),
        ..ClusterFile::default()
    };
    file.reconfig.configuration = Configuration::Rigid;
    file.reconfig.sensitivity = PERIOD;
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_run_is_read_as_it_was_meant() {
        let ground = Ground { name: "lab-a2".into(), port: 20_000, root: None };
        for system in System::ALL {
            let place = Place { demand: SINGLE, clients: 520 };
            let file = cluster_file(&ground, place, system, Some(SHARE), Duration::from_secs(5));
            assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "run.toml").unwrap(), file);
            let cluster = file.cluster().unwrap();
            assert_eq!((cluster.edges.len(), cluster.nodes.len()), (4, 1));
            assert_eq!(cluster.has_admission(), system != System::None, "{system:?}");
            assert_eq!(cluster.workload.unwrap().clients_per_edge, 130);
        }
    }
}
