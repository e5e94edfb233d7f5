//! A run: the servers of the auction, the system in front of them, and the persons who come.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderValue;
use sidelong_config::{
    AdmissionRule, ClusterFile, Configuration, EdgeEntry, Identity, Limits, NodeEntry, SiteEntry,
};
use sidelong_workload::client::{Arrivals, CLIENTS_MAX, loopback_client};
use sidelong_workload::walk::{AT_ONCE_MAX, Completion, Sessions, WalkConfig, Walker};

use super::{NODES, OURS, PATIENCE, SHARE, System, TARGET, THINK_FACTOR, VISIT, WORKERS, WORTH_MORE};
use crate::bench::Bench;
use crate::error::{Result, file};
use crate::peers::{Deployment, Found, Site};
use crate::server::Server;
use crate::setup::Ground;

const SITE: &str = "auction";
const HOST: &str = "auction.example";
const PAGE: &str = "/";
/// Ports, from the first of the lab's: a peer, the edge, the nodes.
const EDGE_PORT: u16 = 1;
const NODES_PORT: u16 = 2;
/// Time between two looks at a walk.
const POLL: Duration = Duration::from_millis(10);

/// Who walks the auction.
#[derive(Clone, Copy)]
pub(super) enum Load {
    /// So many persons, who leave at nothing, and begin again.
    Stay { persons: u32, time: Duration },
    /// Persons who arrive, and leave at the first error or rejection.
    Arrive { per_s: f64, time: Duration },
}

/// The outcome of one run.
pub(super) struct Ran {
    pub(super) completions: Vec<Completion>,
    pub(super) began: Instant,
    /// How late requests were sent, at the 99th percentile.
    pub(super) lag_ms: f64,
}

/// Starts the servers with data of their own, and `system` in front of them; puts the load on it, and ends both.
pub(super) fn run(
    bench: &Bench<'_>,
    system: System,
    found: Option<&Found>,
    place: &Deployment,
    name: &str,
    load: Load,
) -> Result<Ran> {
    let config = bench.path(&format!("configs/{name}.toml"));
    let about = format!("# {}: {}.\n\n", bench.experiment.id, system.word());
    file(&config, fs::write(&config, about + &cluster_file(&bench.ground, system).to_toml()?))?;
    let mut command = Command::new(&bench.options.program);
    command.args(["up", "--demo", "auction", "--sessions", "0", "--config"]).arg(config);
    let probe = [HOST, PAGE];
    let up = Server::start(bench, &format!("{name}-up"), command, at(&bench.ground, EDGE_PORT), probe)?;
    let front = match (system, found) {
        (System::Peer(peer), Some(found)) => {
            let command = peer.command(found, place, name)?;
            Some(Server::start(bench, name, command, place.listen, probe)?)
        }
        _ => None,
    };
    walk(bench, front.as_ref().unwrap_or(&up).address, load)
}

/// The deployment that a peer is configured for, where the servers serve so many requests in a second.
pub(super) fn place(bench: &Bench<'_>, requests_per_s: f64) -> Deployment {
    let nodes = (0..NODES as u16).map(|node| at(&bench.ground, NODES_PORT + node)).collect();
    Deployment {
        listen: at(&bench.ground, 0),
        sites: vec![Site { name: SITE, host: HOST, priority: 0, nodes }],
        workers: u32::from(WORKERS),
        service: Duration::from_secs_f64(NODES as f64 * f64::from(WORKERS) / requests_per_s.max(1.0)),
        target: TARGET,
        directory: bench.path("configs"),
        front: PathBuf::new(),
    }
}

fn at(ground: &Ground, offset: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, ground.port + offset).into()
}

/// The edge of a peer's run is asked for nothing once the servers are up.
fn cluster_file(ground: &Ground, system: System) -> ClusterFile {
    let (has_visits, has_priority) = match system {
        System::ByVisit => (true, false),
        System::ByPriority => (false, true),
        System::Ours => (true, true),
        System::None | System::ByClient | System::Peer(_) => (false, false),
    };
    let is_ours = OURS.contains(&system);
    let site = SiteEntry {
        response_p99: is_ours.then_some(TARGET),
        visit: has_visits.then_some(VISIT),
        rejected_last: WORTH_MORE.iter().filter(|_| has_priority).map(|text| (*text).to_owned()).collect(),
        ..SiteEntry::new(SITE, HOST, NODES)
    };
    let nodes = NodeEntry {
        workers: Some(WORKERS),
        cpu_share: Some(SHARE),
        ..NodeEntry::new("n", NODES, at(ground, NODES_PORT))
    };
    let mut cluster = ClusterFile {
        cluster: Identity { name: ground.name.clone(), ..Identity::default() },
        // As the demonstration has it.
        limits: Limits { connect_timeout: Duration::from_millis(500), ..Limits::default() },
        sites: vec![site],
        nodes: vec![nodes],
        edges: vec![EdgeEntry::new("edge1", at(ground, EDGE_PORT))],
        ..ClusterFile::default()
    };
    cluster.baseline.configuration = Configuration::Rigid;
    if !is_ours {
        cluster.admission.rule = AdmissionRule::None;
    }
    cluster
}

/// Sends persons to `front`. Requests of the end are awaited, and not those that would have followed.
fn walk(bench: &Bench<'_>, front: SocketAddr, load: Load) -> Result<Ran> {
    let (sessions, leave_at, time) = match load {
        Load::Stay { persons, time } => (Sessions::Closed { count: persons }, None, time),
        Load::Arrive { per_s, time } => {
            let arrivals = Arrivals::Poisson { per_s, seed: u64::from(bench.repetition) };
            (Sessions::Open { arrivals, at_once_max: AT_ONCE_MAX }, NonZero::new(1), time)
        }
    };
    let config = WalkConfig {
        clients: (0..CLIENTS_MAX as u32).map(loopback_client).collect(),
        think_factor: THINK_FACTOR,
        leave_at,
        duration_max: Some(time),
        timeout: PATIENCE,
        seed: u64::from(bench.repetition),
        ..WalkConfig::new(vec![front], HeaderValue::from_static(HOST), sessions)
    };
    let completions = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&completions);
    let walker = Walker::new(config)?.observe(move |done| {
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(*done);
    });
    let began = Instant::now();
    let run = walker.start()?;
    while !run.is_finished() {
        bench.go_on()?;
        std::thread::sleep(POLL);
    }
    let summary = run.wait();
    let completions = std::mem::take(&mut *completions.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Ran { completions, began, lag_ms: summary.lag_ms_p99 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_system_is_read_as_it_was_meant() {
        let ground = Ground { name: "lab-qa".into(), port: 20_000, root: None };
        for system in [System::None].into_iter().chain(OURS) {
            let file = cluster_file(&ground, system);
            assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "run.toml").unwrap(), file);
            let cluster = file.cluster().unwrap();
            assert_eq!(cluster.has_admission(), system != System::None, "{system:?}");
            let site = &cluster.sites[0];
            assert_eq!(site.visit.is_some(), matches!(system, System::ByVisit | System::Ours));
            let last = if matches!(system, System::ByPriority | System::Ours) { WORTH_MORE.len() } else { 0 };
            assert_eq!(site.rejected_last.len(), last);
        }
    }
}
