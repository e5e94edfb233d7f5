//! The experiments of Lai et al. 2008: sites that admit all requests, sites whose edges reject by load that they fetch over
//! TCP, and sites whose edges read the load one-sidedly.
//!
//! One server stands behind four proxies. A fourth system is Sidelong's own: the same edges, holding a response-time
//! target.

mod requests;
mod response;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sidelong_config::{
    AdmissionRule, ClusterFile, Configuration, EdgeEntry, Identity, Load, NodeEntry, Scheme, Service,
    SiteEntry, Workload,
};
use sidelong_figure::Style;

pub(crate) use requests::{A3, A4, A5};
pub(crate) use response::{A2, A6};

use crate::bench::Bench;
use crate::error::Result;
use crate::measure::{Dimension, Word};
use crate::setup::{Demand, Ground};

/// Lai et al. 2008: "4 nodes used as proxy servers, 1 node used as web server".
const EDGES: u16 = 4;
const KB: u64 = 1024;
const SINGLE: Demand = Demand::SingleFile(16 * KB);

/// CPUs of the server: a fraction, because the edges and the clients share this machine.
const SHARE: f64 = 0.5;
/// Few workers, so that the server's accepting thread gets its part of the CPU.
const WORKERS: u16 = 4;
/// Mean CPU time of a request over all paths, in addition to its connection and bytes. Each path always takes the same
/// time.
const SERVICE: Duration = Duration::from_micros(500);
const QUEUE_DEPTH_MAX: u32 = 4096;
/// Lai et al. 2008: "Load information updated every 1 ms".
const PERIOD: Duration = Duration::from_millis(1);
/// The slides do not give the score from which a server is overloaded. This is the load index with about half of their most
/// clients at the server: 260 requests over 4 workers count 4 of 6.5, the whole CPU 2, the memory almost nothing.
const THRESHOLD: f64 = 40.0;
/// Sidelong's target for the wait: what the wait is with half of the slides' most clients if all requests are admitted.
const QUEUE_MAX: Duration = Duration::from_millis(120);
/// Clients in the instant figures and in the traces, for which the slides give no number.
const CLIENTS_AT_ONE_LOAD: u32 = 400;
const START: Duration = Duration::from_secs(2);

/// The systems that are compared.
const SYSTEM: Dimension = Dimension::new(
    "system",
    "system",
    &[
        Word::new("none", "none", Style::BASELINE),
        Word::new("tcp", "tcp", Style::FOURTH),
        Word::new("one-sided", "one-sided", Style::THIRD),
        Word::new("ours", "ours", Style::OURS),
    ],
);

/// A system that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    None,
    Tcp,
    OneSided,
    Ours,
}

impl System {
    const ALL: [System; 4] = [System::None, System::Tcp, System::OneSided, System::Ours];

    const fn word(self) -> &'static str {
        SYSTEM.words[self as usize].word
    }

    const fn rule(self) -> AdmissionRule {
        match self {
            System::None => AdmissionRule::None,
            System::Tcp | System::OneSided => AdmissionRule::Paper,
            System::Ours => AdmissionRule::Target,
        }
    }

    /// In both published systems a daemon on the server gathers the load. They differ in how it is fetched.
    const fn scheme(self) -> Scheme {
        match self {
            System::Tcp => Scheme::SocketAsync,
            System::None | System::OneSided | System::Ours => Scheme::RdmaAsync,
        }
    }
}

/// What varies along the figure.
#[derive(Clone, Copy, PartialEq, Debug)]
struct LoadPoint {
    demand: Demand,
    clients: u32,
}

/// The server's share of the CPU, if this machine can hold it to one. The setting `held` says so, or why not.
fn shares(bench: &mut Bench<'_>) -> Result<Option<f64>> {
    let (place, time) = (LoadPoint { demand: SINGLE, clients: 40 }, Duration::from_secs(1));
    let file = cluster_file(&bench.ground, place, System::None, Some(SHARE), time);
    let without = bench.shares_refused(&file, time + START)?;
    let (cpus, held) = match without {
        None => (Some(SHARE), format!("held to {SHARE} of a CPU by a control group (20 ms periods)")),
        Some(why) => (None, format!("held to nothing ({why})")),
    };
    bench.set("held", held);
    Ok(cpus)
}

fn cluster_file(
    ground: &Ground,
    place: LoadPoint,
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
        load: Load { period: PERIOD, proc_period: PERIOD, ..Load::default() },
        sites: vec![SiteEntry { queue_max: target, ..SiteEntry::new("site", "site.example", 1) }],
        nodes: vec![NodeEntry {
            workers: Some(WORKERS),
            service: Some(Service::Burn),
            service_time: Some(SERVICE),
            queue_depth_max: Some(QUEUE_DEPTH_MAX),
            cpu_share: cpus,
            ..NodeEntry::new("server", 1, at(2 * EDGES))
        }],
        edges: (0..EDGES).map(edge).collect(),
        workload: Some(workload),
        ..ClusterFile::default()
    };
    file.set_scheme(system.scheme());
    file.set_admission(system.rule(), THRESHOLD);
    file.baseline.configuration = Configuration::Rigid;
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
            let place = LoadPoint { demand: SINGLE, clients: 520 };
            let file = cluster_file(&ground, place, system, Some(SHARE), Duration::from_secs(5));
            assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "run.toml").unwrap(), file);
            let cluster = file.cluster().unwrap();
            assert_eq!((cluster.edges.len(), cluster.nodes.len()), (4, 1));
            assert_eq!(cluster.has_admission(), system != System::None, "{system:?}");
            assert_eq!(cluster.workload.unwrap().clients_per_edge, 130);
        }
    }
}
