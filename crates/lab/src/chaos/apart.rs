//! X3: five machines with a delay between them: how long a scan of a hundred nodes takes, and how soon a machine that is cut off is out of use.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::json;
use sidelong_config::{ClusterFile, EdgeEntry, Fabric, Identity, NodeEntry, SiteEntry};
use sidelong_figure::statistics::quantile;
use sidelong_harness::scans::Scans;
use sidelong_harness::serving::answers;

use super::clients;
use super::machines::{Machines, at};
use super::plan::{Kind, MACHINES};
use super::stage::{own, wait, words_of, write_secret};
use super::{POLL, Raise, median_and_longest};
use crate::bench::Bench;
use crate::check::Check;
use crate::design::Design;
use crate::error::{Error, Result, file};
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::nginx;
use crate::process::Process;
use crate::samples::Samples;

/// Nodes of each machine.
const NODES: usize = 20;
/// How much later each frame comes, each way.
const DELAY: Duration = Duration::from_millis(1);
/// Scans of each case, in full and quick.
const SCANS: [usize; 2] = [2_000, 200];
/// How often the delay is added and taken away.
const TURNS: usize = 4;
/// More would be two.
const ROUND_TRIPS_MAX: f64 = 1.5;
/// How often a machine is cut off, and for how long.
const CUTS: [usize; 2] = [20, 2];
const CUT_FOR: Duration = Duration::from_secs(5);
/// Between two scans.
const SCAN_EVERY: Duration = Duration::from_millis(10);
const STARTS_MAX: Duration = Duration::from_secs(60);
/// Longest wait for the nodes of a machine that is cut off or healed.
const CHANGE_MAX: Duration = Duration::from_secs(30);
const LISTEN: u16 = 8_080;
const CONTROL: u16 = 6_000;
const SERVER: u16 = 9_000;
const EDGE: &str = "edge1";
const HOST: &str = "alpha.test";
/// The cases.
const NEAR: &str = "near";
const FAR: &str = "far";
const CUT: &str = "cut";

pub(crate) const X3: Experiment = Experiment::new(
    "X3",
    OWN,
    "five machines with a delay between them: a scan of a hundred nodes, and a machine that is cut off",
    Design {
        repeat: [1, 1],
        // What is judged is a ratio of times with a delay and without, and times far above those of the machine.
        needs_the_machine: false,
        dimensions: &[Dimension::new(
            "case",
            "case",
            &[
                Word::plain(NEAR, "a relay without delay"),
                Word::plain(FAR, "with the delay"),
                Word::plain(CUT, "a machine is cut off"),
            ],
        )],
        cases: &["*"],
        measures: &[
            Measure::new("scans", "scans", [0, 0]),
            Measure::new("round_trip_ms", "a TCP connection, lower quartile, ms", [3, 2]),
            Measure::new("scan_ms", "a scan, lower quartile, ms", [3, 2]),
            Measure::new("answered_percent", "records that scans got, %", [2, 2]).possible(|_| 0.0..=100.0),
            Measure::derived("round_trips", "what the delay adds to a scan, in round trips", 2),
            Measure::new("times", "times", [0, 0]),
            Measure::new("out_ms", "until none of its records counts, longest, ms", [0, 0]),
            Measure::new("out_median_ms", "median, ms", [0, 0]),
            Measure::new("back_ms", "back, until all do, longest, ms", [0, 0]),
            Measure::new("back_median_ms", "median, ms", [0, 0]),
            Measure::new("requests", "requests", [0, 0]),
            Measure::new("failed", "failed", [0, 0]),
            Measure::new("last_ms", "last of them sent after, ms", [0, 0]),
            Measure::new("longest_ms", "longest, ms", [0, 0]),
        ],
        charts: &[],
        settings: |_| {
            let stale = ClusterFile::default().load.stale;
            json!({
                "nodes": NODES * MACHINES,
                "delay_ms": DELAY.as_millis(),
                "cut_for_s": CUT_FOR.as_secs(),
                "stale_ms": stale.as_millis(),
            })
        },
        template: include_str!("apart.md"),
        run,
        conclude,
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (scans, cuts) = (bench.either(SCANS), bench.either(CUTS));
    let scanning = SCAN_EVERY * 2 * scans as u32;
    bench.rounds(&[scanning + CUT_FOR * 2 * cuts as u32], |bench| {
        let name = bench.name("apart");
        bench.begin(&name);
        let mut cluster = Cluster::begin(bench, &name)?;
        let mut seen = [Scanned::default(), Scanned::default()];
        // In turn, as other work comes and goes.
        for _ in 0..TURNS {
            for (delay, seen) in [Duration::ZERO, DELAY].into_iter().zip(&mut seen) {
                (1..=MACHINES).try_for_each(|machine| cluster.machines.set_apart(machine, delay))?;
                cluster.scan(bench, scans / TURNS, seen)?;
            }
        }
        for (case, seen) in [NEAR, FAR].into_iter().zip(seen) {
            bench.sample(case, seen.figures())?;
        }
        (1..=MACHINES).try_for_each(|machine| cluster.machines.end_fault(machine, Kind::Delay))?;
        cluster.serve(bench)?;
        let mut all = cluster.scans()?;
        let over = AtomicBool::new(false);
        let (times, asked) = std::thread::scope(|scope| {
            let clients = scope.spawn(|| clients::ask(&[at(1, LISTEN)], &[HOST], &over));
            let times = {
                let _over = Raise(&over);
                let cut = |cut: usize| cluster.cut(bench, &mut all, 2 + cut % (MACHINES - 1));
                (0..cuts).map(cut).collect::<Result<Vec<_>>>()
            };
            (times, clients.join().expect("it does not panic"))
        });
        let times = times?;
        let failed: Vec<_> = asked.iter().filter(|asked| asked.has_failed()).collect();
        let last = failed.iter().map(|asked| sent_after(&times, asked)).max().unwrap_or_default();
        let took = asked.iter().map(|asked| asked.until - asked.from).max().unwrap_or_default();
        let ms = |of: fn(&Cut) -> Duration| times.iter().map(|cut| of(cut).as_secs_f64() * 1e3).collect();
        let [out_median, out] = median_and_longest(ms(|cut| cut.out));
        let [back_median, back] = median_and_longest(ms(|cut| cut.back));
        let figures = [
            ("times", times.len() as f64),
            ("out_ms", out),
            ("out_median_ms", out_median),
            ("back_ms", back),
            ("back_median_ms", back_median),
            ("requests", asked.len() as f64),
            ("failed", failed.len() as f64),
            ("last_ms", last.as_secs_f64() * 1e3),
            ("longest_ms", took.as_secs_f64() * 1e3),
        ];
        bench.sample(CUT, figures)?;
        bench.end();
        Ok(())
    })
}

/// How a machine was cut off.
struct Cut {
    at: Instant,
    /// From then until none of its records is fresh.
    out: Duration,
    /// From when it was healed until all are.
    back: Duration,
}

/// How long after a machine was last cut off a request was sent; zero for one that was under way then.
fn sent_after(cuts: &[Cut], asked: &clients::Asked) -> Duration {
    let last = cuts.iter().rfind(|cut| cut.at <= asked.until);
    last.map_or(Duration::ZERO, |cut| asked.from.saturating_duration_since(cut.at))
}

/// What scans came to.
#[derive(Default)]
struct Scanned {
    round_trips_ms: Vec<f64>,
    scans_ms: Vec<f64>,
    answered: usize,
}

impl Scanned {
    fn figures(self) -> [(&'static str, f64); 4] {
        let scans = self.scans_ms.len();
        [
            ("scans", scans as f64),
            ("round_trip_ms", lower_quartile(self.round_trips_ms)),
            ("scan_ms", lower_quartile(self.scans_ms)),
            ("answered_percent", 100.0 * self.answered as f64 / (scans * NODES * MACHINES) as f64),
        ]
    }
}

/// All frames pass processes of this machine, which are often late by more than the delay.
fn lower_quartile(mut ms: Vec<f64>) -> f64 {
    ms.sort_unstable_by(f64::total_cmp);
    quantile(&ms, 0.25).unwrap_or_default()
}

/// The machines, with a hundred servers of others, their agents, and an edge.
struct Cluster {
    file: ClusterFile,
    directory: PathBuf,
    parts: Vec<Process>,
    machines: Machines,
}

impl Cluster {
    /// All of it but the edge.
    fn begin(bench: &Bench<'_>, run: &str) -> Result<Cluster> {
        let machines = Machines::begin(&bench.options.program)?;
        let directory = bench.path(&format!("runs/{run}"));
        let _ = fs::remove_dir_all(&directory);
        let of = |machine: usize| directory.join(format!("m{machine}"));
        let mut parts = Vec::new();
        for machine in 1..=MACHINES {
            let config = write_files(&of(machine))?;
            let servers = (1..=NODES).map(|number| {
                let (listen, name) = (server(machine, number), name(machine, number));
                format!("  server {{\n    listen {listen};\n    return 200 \"{name} $host $request_uri\\n\";\n  }}\n")
            });
            let http =
                format!("  access_log off;\n  default_type text/plain;\n{}", servers.collect::<String>());
            let mut start = |name: &str, words: &[String]| {
                let log = directory.join(format!("{name}.log"));
                machines.spawn(machine, &log, words).map(|process| parts.push(process))
            };
            let nginx = nginx::command(&of(machine).join("servers"), &http)?;
            start(&format!("servers{machine}"), &words_of(&nginx))?;
            for number in 1..=NODES {
                let name = name(machine, number);
                start(&name, &own(&bench.options.program, &["node", &name], &config))?;
            }
        }
        let mut file = cluster_file();
        file.cluster.run_dir = Some(of(MACHINES).join("run"));
        file.cluster.secret_file = Some(of(MACHINES).join("secret"));
        Ok(Cluster { file, directory, parts, machines })
    }

    /// Starts the edge, and waits until it answers.
    fn serve(&mut self, bench: &Bench<'_>) -> Result<()> {
        let config = self.directory.join("m1/cluster.toml");
        let words = own(&bench.options.program, &["edge", EDGE], &config);
        let log = self.directory.join(format!("{EDGE}.log"));
        self.parts.push(self.machines.spawn(1, &log, &words)?);
        self.wait(bench, STARTS_MAX, || missing(!answers(&at(1, LISTEN), HOST, "/"), || EDGE.to_owned()))
    }

    /// Waits until nothing is missing.
    fn wait(&self, bench: &Bench<'_>, longest: Duration, mut missing: impl FnMut() -> String) -> Result<()> {
        wait(bench, "the cluster", &self.directory, [longest, POLL], || Ok(missing()))
    }

    /// Scans all nodes again and again, and connects to each machine in turn. A connection takes one round trip, without a process.
    fn scan(&self, bench: &Bench<'_>, scans: usize, seen: &mut Scanned) -> Result<()> {
        let (mut all, nodes) = (self.scans()?, NODES * MACHINES);
        self.wait(bench, STARTS_MAX, || {
            let heard = all.scan();
            missing(heard < nodes, || format!("only {heard} of {nodes} nodes are heard"))
        })?;
        for number in 0..scans {
            bench.go_on()?;
            let server = at(1 + number % MACHINES, SERVER + 1);
            let before = Instant::now();
            TcpStream::connect_timeout(&server, CHANGE_MAX).map_err(|why| cannot_read(&why.to_string()))?;
            seen.round_trips_ms.push(before.elapsed().as_secs_f64() * 1e3);
            let before = Instant::now();
            seen.answered += all.scan();
            seen.scans_ms.push(before.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep(SCAN_EVERY);
        }
        Ok(())
    }

    /// Who scans all of it.
    fn scans(&self) -> Result<Scans> {
        Scans::new(self.file.cluster()?).map_err(|why| cannot_read(&why.0))
    }

    /// Cuts a machine off and heals it.
    fn cut(&self, bench: &Bench<'_>, all: &mut Scans, machine: usize) -> Result<Cut> {
        self.until(bench, all, machine, NODES)?;
        let cut_at = Instant::now();
        self.machines.begin_fault(machine, Kind::Link)?;
        self.until(bench, all, machine, 0)?;
        let out = cut_at.elapsed();
        std::thread::sleep(CUT_FOR.saturating_sub(out));
        let healed = Instant::now();
        self.machines.end_fault(machine, Kind::Link)?;
        self.until(bench, all, machine, NODES)?;
        Ok(Cut { at: cut_at, out, back: healed.elapsed() })
    }

    /// Waits until so many nodes of a machine have a fresh record.
    fn until(&self, bench: &Bench<'_>, all: &mut Scans, machine: usize, count: usize) -> Result<()> {
        let its = (machine - 1) * NODES..machine * NODES;
        self.wait(bench, CHANGE_MAX, || {
            all.scan();
            let heard = its.clone().filter(|node| all.is_heard(*node)).count();
            missing(heard != count, || {
                format!("{heard} of the nodes of machine {machine} are heard, not {count}")
            })
        })
    }
}

/// What is missing, if something is.
fn missing(is_missing: bool, what: impl FnOnce() -> String) -> String {
    if is_missing { what() } else { String::new() }
}

fn cannot_read(said: &str) -> Error {
    Error::Serve { what: "the cluster".into(), said: said.into() }
}

fn name(machine: usize, number: usize) -> String {
    format!("n{machine}-{number}")
}

fn server(machine: usize, number: usize) -> SocketAddr {
    at(machine, SERVER + number as u16)
}

/// Writes what a machine has: the secret, and the cluster file, whose path is returned.
fn write_files(directory: &Path) -> Result<PathBuf> {
    file(directory, fs::create_dir_all(directory))?;
    write_secret(&directory.join("secret"))?;
    let path = directory.join("cluster.toml");
    file(&path, fs::write(&path, cluster_file().to_toml()?))?;
    Ok(path)
}

fn cluster_file() -> ClusterFile {
    let entry = |(machine, number): (usize, usize)| NodeEntry {
        fabric_listen: Some(at(machine, CONTROL + number as u16)),
        workers: Some(2),
        ..NodeEntry::foreign(name(machine, number), 1, server(machine, number))
    };
    let all = (1..=MACHINES).flat_map(|machine| (1..=NODES).map(move |number| (machine, number)));
    let mut file = ClusterFile {
        cluster: Identity {
            name: "apart".into(),
            fabric: Fabric::Tcp,
            secret_file: Some("secret".into()),
            run_dir: Some("run".into()),
            ..Identity::default()
        },
        sites: vec![SiteEntry::new("alpha", HOST.to_owned(), NODES * MACHINES)],
        nodes: all.map(entry).collect(),
        edges: vec![EdgeEntry { fabric_listen: Some(at(1, CONTROL)), ..EdgeEntry::new(EDGE, at(1, LISTEN)) }],
        ..ClusterFile::default()
    };
    // All machines share the CPUs of one.
    file.reconfig.sensitivity = SCAN_EVERY;
    file
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("round_trips", FAR, |samples, _| {
        let (near, far) = (&samples[NEAR], &samples[FAR]);
        let added = |measure: &str| far[measure].with(&near[measure], |far, near| far - near);
        &added("scan_ms") / &added("round_trip_ms")
    });
    let stale_ms = ClusterFile::default().load.stale.as_secs_f64() * 1e3;
    vec![
        Check::at_most(
            "what the delay adds to a scan of all nodes, in round trips",
            ROUND_TRIPS_MAX,
            &samples[FAR]["round_trips"],
        ),
        Check::at_most(
            "a machine is cut off: until none of its records counts, ms",
            2.0 * stale_ms,
            &samples[CUT]["out_ms"],
        ),
        Check::at_most(
            "after that no request is sent that fails, ms",
            2.0 * stale_ms,
            &samples[CUT]["last_ms"],
        ),
        Check::at_most("it is back: until all of them count, ms", 1_000.0, &samples[CUT]["back_ms"]),
    ]
}
