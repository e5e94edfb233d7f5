//! reload: a cluster of a thousand sites and a thousand nodes goes by a changed file while it serves.
//!
//! No machine runs a thousand agents, so the lab writes their memory. The edge and the command are the program's. The edge has a CPU of
//! its own; all else shares another.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use sidelong_config::{
    Baseline, ClusterFile, Configuration, EdgeEntry, Identity, NodeEntry, SiteEntry, default_run_dir,
};
use sidelong_figure::Style;
use sidelong_harness::agents::Agents;
use sidelong_harness::serving::answers;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::cpus::{self, Pinned};
use crate::design::Design;
use crate::error::{Result, file};
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::nginx;
use crate::samples::Samples;
use crate::server::{RunFiles, Server};

const NODES: u16 = 1_000;
const EDGE: &str = "edge1";
/// The site that is asked all the time, and the one that changes.
const STEADY: &str = "s1";
const CHANGED: usize = 7;
/// Longer than a reload takes.
const TIME: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(2);
/// Between two requests, and between two looks of the agents.
const PAUSE: Duration = Duration::from_micros(500);
const TICK: Duration = Duration::from_millis(5);
const COMMAND_MAX: Duration = Duration::from_secs(30);
/// The targets.
const ADOPTED_MS_MAX: f64 = 1_000.0;
const PAUSE_MS_MAX: f64 = 2.0;

pub(crate) const RELOAD: Experiment = Experiment::new(
    "reload",
    OWN,
    "a cluster of 1,000 sites and 1,000 nodes goes by a changed file",
    Design {
        repeat: [15, 5],
        dimensions: &[Dimension::new(
            "change",
            "",
            &[
                Word::new("none", "nothing changes", Style::BASELINE),
                Word::new("host", "a site gets another host", Style::OURS),
                Word::new("join", "a node joins", Style::THIRD),
                Word::new("leave", "a node leaves", Style::FIFTH),
            ],
        )],
        cases: &["*"],
        measures: &[
            Measure::new("adopted_ms", "until all parts go by it, ms", [0, 0]),
            Measure::new("served_ms", "until the edge serves by it, ms", [0, 0]),
            Measure::new("pause_ms", "longest answer meanwhile, ms", [2, 1]),
            Measure::derived("added_ms", "longer than the longest while nothing changes, ms", 2),
            Measure::new("p99_ms", "p99, ms", [2, 1]).possible(|case| 0.0..=case.most("pause_ms")),
            Measure::new("requests", "requests", [0, 0]),
            Measure::new("errors", "failed", [0, 0]),
        ],
        charts: &[
            Chart::bars("(a) until all parts go by it", "adopted_ms", "change", "change")
                .of("host,join,leave")
                .unit(1.0, "ms"),
            Chart::bars("(b) longest answer meanwhile", "pause_ms", "change", "change").unit(1.0, "ms"),
        ],
        settings: |_| json!({ "nodes": NODES, "time_s": TIME.as_secs_f64(), "pause_ms": PAUSE.as_secs_f64() * 1e3 }),
        template: include_str!("reload.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    cpus::two()?;
    let cases = bench.cases();
    bench.expect_for(WARM_UP);
    bench.begin("warm-up");
    let mut stage = Stage::set(bench)?;
    stage.turn(bench, "none", WARM_UP)?;
    bench.end();
    bench.take_spoilt();
    bench.rounds(&[TIME * cases.len() as u32], |bench| {
        // A node leaves that has joined before.
        cases.iter().try_for_each(|case| {
            let figures = stage.turn(bench, case, TIME)?;
            bench.sample(case, figures)
        })
    })
}

/// What runs all the time.
struct Stage {
    edge: Server,
    _servers: Server,
    agents: Agents,
    cluster: ClusterFile,
    config: PathBuf,
    changes: u32,
    load_cpu: usize,
    _run: RunFiles,
}

impl Stage {
    fn set(bench: &Bench<'_>) -> Result<Stage> {
        let [edge_cpu, load_cpu] = cpus::two()?;
        let port = bench.ground.port;
        let cluster = cluster_file(&bench.ground.name, port);
        let run = RunFiles::clear(default_run_dir(&cluster.cluster.name));
        let config = bench.path("configs/cluster.toml");
        file(&config, fs::write(&config, cluster.to_toml()?))?;
        let listen = cluster.edges[0].listen;
        let servers = {
            let _pinned = Pinned::to(load_cpu)?;
            let http = format!(
                "  access_log off;\n  server {{\n    listen 0.0.0.0:{port};\n    return 200;\n  }}\n"
            );
            let command = nginx::command(&bench.path("configs/nginx"), &http)?;
            Server::start_listening(bench, "servers", command, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?
        };
        let edge = {
            let _pinned = Pinned::to(edge_cpu)?;
            Server::start_listening(bench, EDGE, bench.part("edge", EDGE, &config), listen)?
        };
        let agents = Agents::expose(cluster.cluster()?).map_err(|why| edge.failed(why.0))?;
        let mut stage =
            Stage { edge, _servers: servers, agents, cluster, config, changes: 0, load_cpu, _run: run };
        let deadline = Instant::now() + COMMAND_MAX;
        while !answers(&listen, &host_of(STEADY), "/") {
            bench.go_on()?;
            if Instant::now() > deadline {
                return Err(stage.edge.failed("does not serve a site".to_owned()));
            }
            stage.agents.say_idle();
            std::thread::sleep(TICK);
        }
        Ok(stage)
    }

    /// Asks for `time` and longer than the change takes.
    fn turn(&mut self, bench: &Bench<'_>, case: &str, time: Duration) -> Result<Vec<(&'static str, f64)>> {
        let _pinned = Pinned::to(self.load_cpu)?;
        let listen = self.edge.address;
        let over = AtomicBool::new(false);
        let host = self.change(case)?;
        let Stage { agents, config, .. } = self;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    agents.say_idle();
                    agents.follow();
                    std::thread::sleep(TICK);
                }
            });
            let asked = scope.spawn(|| ask(listen, &over));
            let began = Instant::now();
            let changed = host.map(|host| {
                let served = scope.spawn(move || await_host(listen, host, began));
                let mut command = std::process::Command::new(&bench.options.program);
                command.args(["reload", "--quiet", "--config"]).arg(&*config);
                let done = bench.output(command, &bench.name(case), "out", COMMAND_MAX);
                done.map(|_| (began.elapsed(), served.join().expect("it does not panic")))
            });
            std::thread::sleep(time.saturating_sub(began.elapsed()));
            over.store(true, Ordering::Relaxed);
            let Asked { mut took, errors } = asked.join().expect("it does not panic");
            took.sort_unstable();
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let mut figures = vec![("requests", took.len() as f64), ("errors", errors as f64)];
            figures.extend(took.last().map(|longest| ("pause_ms", ms(*longest))));
            figures.extend(took.get(took.len() * 99 / 100).map(|p99| ("p99_ms", ms(*p99))));
            if let Some((adopted, served)) = changed.transpose()? {
                figures.push(("adopted_ms", ms(adopted)));
                figures.extend(served.map(|served| ("served_ms", ms(served))));
            }
            Ok(figures)
        })
    }

    /// Changes the file, in which the changed site has another host each time, by which the edge shows that it serves by the file.
    fn change(&mut self, case: &str) -> Result<Option<String>> {
        match case {
            "none" => return Ok(None),
            "join" => self.cluster.nodes.push(node(NODES, self.edge.address.port() - 1)),
            "leave" => drop(self.cluster.nodes.pop()),
            _ => {}
        }
        self.changes += 1;
        let host = format!("new{}.example", self.changes);
        self.cluster.sites[CHANGED].hosts = vec![host.clone()];
        file(&self.config, fs::write(&self.config, self.cluster.to_toml()?))?;
        Ok(Some(host))
    }
}

/// How long answers took.
struct Asked {
    took: Vec<Duration>,
    errors: usize,
}

/// Asks for one site, on a connection that is kept, until it is over.
fn ask(listen: SocketAddr, over: &AtomicBool) -> Asked {
    let request = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", host_of(STEADY));
    let (mut asked, mut stream) = (Asked { took: Vec::new(), errors: 0 }, None);
    let mut answer = [0; 4096];
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let mut once = || {
            let mut connection = stream.take().map_or_else(|| TcpStream::connect(listen), Ok)?;
            connection.set_nodelay(true)?;
            connection.set_read_timeout(Some(COMMAND_MAX))?;
            connection.write_all(request.as_bytes())?;
            // An answer without a body comes at once.
            let count = connection.read(&mut answer)?;
            stream = Some(connection);
            std::io::Result::Ok(answer[..count].starts_with(b"HTTP/1.1 200 "))
        };
        let is_answered = once().unwrap_or(false);
        asked.took.push(began.elapsed());
        asked.errors += usize::from(!is_answered);
        std::thread::sleep(PAUSE);
    }
    asked
}

/// How long it took until the edge serves a host; `None` if it never does.
fn await_host(listen: SocketAddr, host: String, began: Instant) -> Option<Duration> {
    while began.elapsed() < COMMAND_MAX {
        if answers(&listen, &host, "/") {
            return Some(began.elapsed());
        }
        std::thread::sleep(TICK);
    }
    None
}

fn host_of(site: &str) -> String {
    format!("{site}.example")
}

/// The node of that number, at an address of its own.
fn node(number: u16, port: u16) -> NodeEntry {
    let address = Ipv4Addr::from_bits((127 << 24) + (1 << 16) + u32::from(number));
    NodeEntry {
        workers: Some(4),
        ..NodeEntry::foreign(format!("n{number}"), 1, SocketAddr::from((address, port)))
    }
}

/// As many sites as nodes, each with one, behind an edge. Nodes do not move, so that they are where the file has them.
fn cluster_file(name: &str, port: u16) -> ClusterFile {
    ClusterFile {
        cluster: Identity { name: name.to_owned(), ..Identity::default() },
        sites: (0..NODES)
            .map(|site| SiteEntry::new(format!("s{site}"), host_of(&format!("s{site}")), 1))
            .collect(),
        nodes: (0..NODES).map(|number| node(number, port)).collect(),
        edges: vec![EdgeEntry::new(EDGE, SocketAddr::from((Ipv4Addr::LOCALHOST, port + 1)))],
        baseline: Baseline { configuration: Configuration::Rigid, ..Baseline::default() },
        ..ClusterFile::default()
    }
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("added_ms", "host,join,leave", |samples, case| {
        &samples[case]["pause_ms"] - &samples["none"]["pause_ms"]
    });
    let mut checks = Vec::new();
    for (case, what) in [("host", "a host changes"), ("join", "a node joins"), ("leave", "a node leaves")] {
        let changed = &samples[case];
        checks.push(Check::at_most(
            format!("{what}: until all parts go by the file, ms, median of the rounds"),
            ADOPTED_MS_MAX,
            &changed["adopted_ms"],
        ));
        checks.push(Check::at_most(
            format!(
                "{what}: longest answer meanwhile, beyond the longest while nothing changes, ms, median of the rounds"
            ),
            PAUSE_MS_MAX,
            &changed["added_ms"],
        ));
    }
    checks.push(Check::at_most("requests that failed", 0.0, samples.total("*", "errors")));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn each_change_is_judged_beside_none() {
        let verdicts = |adopted_ms: f64, pause_ms: f64, errors: f64| {
            judged(&RELOAD, |samples| {
                samples.put("none", [("pause_ms", 5.0)]);
                for case in ["host", "join", "leave"] {
                    let figures = [("adopted_ms", adopted_ms), ("pause_ms", pause_ms), ("errors", errors)];
                    samples.put(case, figures);
                }
            })
        };
        assert_eq!(verdicts(900.0, 6.5, 0.0), ["met"; 7]);
        assert_eq!(verdicts(1_100.0, 7.5, 1.0), ["MISSED"; 7]);
    }

    #[test]
    fn each_site_has_a_node_of_its_own() {
        let cluster = cluster_file("reload", 20_000).cluster().unwrap();
        assert_eq!((cluster.sites.len(), cluster.nodes.len()), (1_000, 1_000));
        assert!(cluster.nodes.entries().all(|(slot, node)| node.site == Some(slot)));
    }
}
