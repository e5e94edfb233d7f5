//! The servers, which stay up, and the systems that take turns in front of them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderValue, Uri};
use sidelong_config::{
    Admission, AdmissionRule, ClusterFile, Configuration, EdgeEntry, FrontEntry, Identity, NodeEntry,
    SiteEntry, default_run_dir,
};
use sidelong_workload::client::{ClientConfig, Cue, Generator, Load, Shot, loopback_client};
use sidelong_workload::origin::ServiceTime;

use super::judge::Sample;
use super::plan::{HIGH_CLIENTS, LOW_CLIENTS, Plan};
use super::{
    EDGES, HIGH, HOSTS, NAMES, NODES, PERIOD, QUEUE_DEPTH_MAX, ROTATION, SERVICE, Servers, System, TARGET,
    THRESHOLD, WORKERS,
};
use crate::bench::Bench;
use crate::error::{Error, Result, file};
use crate::peers::{self, Deployment, Found, Peer, Site};
use crate::process::Process;
use crate::server::{RunFiles, Server, await_end};
use crate::up::Fate;

/// A body of 1 KB that a server generates.
const OBJECT: &str = "/o/0/1024";
/// Asked of an agent to know that it is up.
const HEALTH: &str = "/healthz";
/// A client's timeout.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of the requests in flight. Further requests count as not sent.
const IN_FLIGHT_MAX: u32 = 3500;
/// Time for the generator's threads to start.
const LEAD: Duration = Duration::from_millis(2);
/// Name of the front that controls httpd, at the place of an edge among the movers.
const FRONT: &str = "edge1";
/// Time limit for the memory of `sidelong front`.
const FRONT_MAX: Duration = Duration::from_secs(10);

/// The servers, up and serving.
pub(super) struct Stage {
    _nodes: Vec<Server>,
    /// Servers of other makes, whose agents the nodes then are. They end after these.
    _foreign: Vec<Server>,
    servers: Servers,
    _run: RunFiles,
    /// Files for processes of other users, which may not enter the experiment's directory.
    shared: PathBuf,
}

/// The outcome of one run.
pub(super) struct Ran {
    /// The requests in the order in which they were due.
    pub(super) samples: Vec<Sample>,
    /// Requests that the generator had no room for.
    pub(super) dropped: u64,
    /// The share of all CPUs that was in use, by any process.
    pub(super) machine_busy: f64,
    /// CPU time of the system.
    pub(super) front_cpu_s: f64,
}

impl Stage {
    pub(super) fn set(bench: &Bench<'_>, servers: Servers) -> Result<Stage> {
        let run = RunFiles::clear(default_run_dir(&bench.ground.name));
        let config = write(bench, System::Ours, servers)?;
        let foreign = match servers {
            Servers::Builtin => Vec::new(),
            Servers::Gunicorn => (0..NODES).map(|index| gunicorn(bench, index)).collect::<Result<_>>()?,
        };
        let start = |index: usize| {
            let name = format!("n{}", index + 1);
            let (address, path) = match servers {
                Servers::Builtin => (node(bench, index), OBJECT),
                Servers::Gunicorn => (agent(bench.ground.port, index), HEALTH),
            };
            Server::start(bench, &name, bench.part("node", &name, &config), address, [HOSTS[HIGH], path])
        };
        let nodes = (0..NODES).map(start).collect::<Result<_>>()?;
        let shared = shared(&bench.ground.name);
        Ok(Stage { _nodes: nodes, _foreign: foreign, servers, _run: run, shared })
    }

    /// Starts `system`, runs `plan` against it, and ends it.
    pub(super) fn run(
        &self,
        bench: &Bench<'_>,
        system: System,
        found: Option<&Found>,
        name: &str,
        plan: &Plan,
    ) -> Result<Ran> {
        let config = write(bench, system, self.servers)?;
        let probe = [HOSTS[HIGH], OBJECT];
        let mut _front = None;
        let fronts = match (system, found) {
            (System::Peer(peer), Some(found)) => {
                let place = self.place(bench);
                if peer == Peer::Httpd {
                    _front = Some(self.front(bench, name, &config)?);
                }
                let command = peer.command(found, &place, name)?;
                let front = Server::start(bench, name, command, place.listen, probe)?;
                if peer == Peer::Httpd {
                    peers::is_of_this_release(&place)?;
                }
                vec![front]
            }
            _ => (0..EDGES)
                .map(|index| {
                    let edge = format!("edge{}", index + 1);
                    let command = bench.part("edge", &edge, &config);
                    Server::start(bench, &format!("{name}-{edge}"), command, front(bench, index), probe)
                })
                .collect::<Result<_>>()?,
        };
        let before = (cpu_s(&fronts)?, (bench.options.usage)());
        let (samples, dropped) = load(bench, fronts.iter().map(|front| front.address).collect(), plan)?;
        Ok(Ran {
            samples,
            dropped,
            machine_busy: (bench.options.usage)().busy_since(&before.1),
            front_cpu_s: cpu_s(&fronts)? - before.0,
        })
    }

    /// The deployment that a peer is configured for.
    pub(super) fn place(&self, bench: &Bench<'_>) -> Deployment {
        let site = |site: usize, nodes: std::ops::Range<usize>| Site {
            name: NAMES[site],
            host: HOSTS[site],
            priority: u8::from(site == HIGH),
            nodes: nodes.map(|index| node(bench, index)).collect(),
        };
        Deployment {
            listen: front(bench, 0),
            sites: vec![site(HIGH, 0..1), site(super::LOW, 1..NODES)],
            workers: u32::from(WORKERS),
            service: SERVICE,
            target: TARGET,
            directory: bench.path("configs"),
            front: self.shared.join(FRONT),
        }
    }

    /// Starts the front that controls httpd, and waits until it offers its memory.
    fn front(&self, bench: &Bench<'_>, name: &str, config: &std::path::Path) -> Result<Process> {
        let memory = self.shared.join(format!("{FRONT}.choice.region"));
        let _ = std::fs::remove_file(&memory);
        let at = |extension: &str| bench.path(&format!("runs/{name}-front.{extension}"));
        let front = Process::start(bench.part("front", FRONT, config), &at("out"), &at("log"))?;
        let begun = Instant::now();
        while !memory.exists() {
            if begun.elapsed() > FRONT_MAX {
                let said = crate::process::last_line(&at("log"));
                let said = said.unwrap_or_else(|| format!("no memory in {} s", FRONT_MAX.as_secs()));
                return Err(Error::Serve { what: "front".into(), said });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(front)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A missing file needs no removal.
        let _ = std::fs::remove_dir_all(&self.shared);
    }
}

/// The directory of the files that httpd's workers read, which run as another user.
fn shared(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{name}-front"))
}

fn front(bench: &Bench<'_>, index: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, bench.ground.port + index).into()
}

fn node(bench: &Bench<'_>, index: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, bench.ground.port + EDGES + index as u16).into()
}

/// The admin endpoint of a foreign node, which tells that its agent is up.
fn agent(port: u16, index: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port + EDGES + (NODES + index) as u16).into()
}

/// The gunicorn of a node, once it serves.
fn gunicorn(bench: &Bench<'_>, index: usize) -> Result<Server> {
    let name = format!("gunicorn{}", index + 1);
    let (directory, address) = (bench.path(&format!("configs/{name}")), node(bench, index));
    file(&directory, std::fs::create_dir_all(&directory))?;
    let service = ServiceTime::Fixed(SERVICE);
    let mut command = Command::new("gunicorn");
    command.args(sidelong_harness::gunicorn::arguments(&directory, address, WORKERS, service)?);
    Server::start(bench, &name, command, address, [HOSTS[HIGH], OBJECT])
}

/// The cluster file of `system`. All files have the same servers, which therefore keep their configuration.
fn write(bench: &Bench<'_>, system: System, servers: Servers) -> Result<PathBuf> {
    let path = bench.path(&format!("configs/{}.toml", system.word()));
    let text = cluster_file(&bench.ground.name, bench.ground.port, system, servers).to_toml()?;
    let about = format!("# {}: admission: {}.\n\n", bench.experiment.id, system.word());
    file(&path, std::fs::write(&path, about + &text))?;
    Ok(path)
}

fn cluster_file(name: &str, port: u16, system: System, servers: Servers) -> ClusterFile {
    let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port + offset));
    let rule = match system {
        System::None => AdmissionRule::None,
        System::Paper => AdmissionRule::Paper,
        System::Ours | System::Peer(_) => AdmissionRule::Target,
    };
    let site = |site: usize, nodes: usize| SiteEntry {
        priority: u8::from(site == HIGH),
        share: if site == HIGH { nodes as f64 / NODES as f64 } else { 0.0 },
        response_p99: (rule == AdmissionRule::Target).then_some(TARGET),
        ..SiteEntry::new(NAMES[site], HOSTS[site], nodes)
    };
    let nodes = match servers {
        Servers::Builtin => NodeEntry {
            workers: Some(WORKERS),
            service_time: Some(SERVICE),
            queue_depth_max: Some(QUEUE_DEPTH_MAX),
            ..NodeEntry::new("n", NODES, at(EDGES))
        },
        Servers::Gunicorn => {
            NodeEntry { admin: Some(agent(port, 0)), ..NodeEntry::foreign("n", NODES, at(EDGES)) }
        }
    };
    let (mut edges, mut fronts) = (Vec::new(), Vec::new());
    for index in 0..EDGES {
        // As an edge or as another front, it is the same mover to the nodes.
        let edge = format!("edge{}", index + 1);
        match system {
            System::Peer(Peer::Httpd) => fronts.push(FrontEntry {
                dir: Some(shared(name)),
                ..FrontEntry::new(edge, sidelong_config::Proxy::Httpd)
            }),
            _ => edges.push(EdgeEntry::new(edge, at(index))),
        }
    }
    let mut file = ClusterFile {
        cluster: Identity { name: name.to_owned(), ..Identity::default() },
        admission: Admission { rotation: ROTATION, ..Admission::default() },
        sites: vec![site(HIGH, 1), site(super::LOW, NODES - 1)],
        nodes: vec![nodes],
        edges,
        fronts,
        ..ClusterFile::default()
    };
    file.set_admission(rule, THRESHOLD);
    file.baseline.configuration = Configuration::Rigid;
    file.reconfig.sensitivity = PERIOD;
    file
}

/// Sends the requests of `plan` to `fronts`.
fn load(bench: &Bench<'_>, fronts: Vec<SocketAddr>, plan: &Plan) -> Result<(Vec<Sample>, u64)> {
    let shots = HOSTS.map(HeaderValue::from_static);
    let uri = Uri::from_static(OBJECT);
    let load = Load::Open { arrivals: plan.arrivals(), in_flight_max: IN_FLIGHT_MAX };
    let sites = NAMES.map(str::to_owned).to_vec();
    let config = ClientConfig {
        timeout: TIMEOUT,
        clients: (0..(HIGH_CLIENTS + LOW_CLIENTS) as u32).map(loopback_client).collect(),
        ..ClientConfig::new(fronts, sites, load)
    };
    let samples = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&samples);
    let began = Arc::new(Mutex::new(Instant::now()));
    let start = Arc::clone(&began);
    let generator = Generator::new(config, move |cue: Cue| {
        Shot::get(cue.stream, shots[cue.stream].clone(), uri.clone())
    })?
    .observe(move |done| {
        let start = *start.lock().unwrap_or_else(PoisonError::into_inner);
        let fate = match done.error {
            None => Fate::Answered,
            // Other proxies give no reason beside 503.
            Some(error) if error.is_overload() => Fate::Rejected,
            Some(_) => Fate::Failed,
        };
        let sample = Sample {
            due_s: done.due_at.into_std().saturating_duration_since(start).as_secs_f64(),
            ms: done.done_at.saturating_duration_since(done.due_at).as_secs_f64() * 1e3,
            site: done.site,
            client: done.cue.client,
            fate,
        };
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
    });
    *began.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + LEAD;
    let run = generator.start()?;
    await_end(&run, &bench.options.stop)?;
    let summary = run.wait()?;
    let mut samples = std::mem::take(&mut *samples.lock().unwrap_or_else(PoisonError::into_inner));
    samples.sort_by(|one, other| one.due_s.total_cmp(&other.due_s));
    Ok((samples, summary.dropped))
}

/// CPU time of processes and their children.
fn cpu_s(fronts: &[Server]) -> Result<f64> {
    let times = fronts.iter().map(|front| front.process.family_cpu_time());
    Ok(times.sum::<sidelong_harness::Result<Duration>>()?.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::{CAPACITY_PER_S, HIGH_PER_S, LOW};

    #[test]
    fn the_file_of_a_system_is_read_as_it_was_meant() {
        for system in [System::None, System::Paper, System::Ours, System::Peer(Peer::Httpd)] {
            let file = cluster_file("lab-a7", 20_000, system, Servers::Builtin);
            assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "run.toml").unwrap(), file);
            let cluster = file.cluster().unwrap();
            assert_eq!((cluster.sites.len(), cluster.nodes.len()), (2, NODES));
            assert_eq!(cluster.has_admission(), system != System::None, "{system:?}");
            let of = |site| cluster.nodes.values().filter(|node| node.site == Some(site)).count();
            assert_eq!((of(HIGH), of(LOW)), (1, NODES - 1));
            assert!(HIGH_PER_S < CAPACITY_PER_S * cluster.sites[HIGH].share, "below its share");
        }
        let file = cluster_file("lab-gunicorn", 20_000, System::Ours, Servers::Gunicorn);
        let nodes = file.cluster().unwrap().nodes;
        assert!(nodes.len() == NODES && nodes.values().all(|node| node.is_foreign && node.workers.is_none()));
    }
}
