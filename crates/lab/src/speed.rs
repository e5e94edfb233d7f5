//! sim-speed: how fast the simulator is, beside NexoSim, simpy and libCacheSim, each in its turn.
//!
//! What is judged is CPU time of one thread, by the process's own clock of it: the machine may be shared. The others come
//! from their registries, at the first run, into the experiment's directory; one that cannot be had is said to be missing.

mod report;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::check::{Check, median};
use crate::error::{Error, Result, file};
use crate::figure::{self, Axis, Line, Look, Panel};
use crate::machine::Machine;
use crate::process::{Ended, Process, last_line, quoted};
use crate::report::Outcome;

const NEXOSIM: &str = include_str!("speed/nexosim.rs");
const NEXOSIM_MANIFEST: &str = include_str!("speed/nexosim.toml");
const SIMPY: &str = include_str!("speed/simpy.py");
const LIBCACHESIM: &str = include_str!("speed/libcachesim.py");
/// What Python is asked for; the versions that figures were taken with.
const PACKAGES: [&str; 2] = ["simpy==4.1.2", "libcachesim==0.3.5"];

const ROUNDS: u32 = 5;
/// One round with a tenth of the work.
const QUICK_PART: u64 = 10;
/// For one turn, with all that it prepares, and for fetching and building a peer.
const TURN_MAX: Duration = Duration::from_secs(600);
const BUILD_MAX: Duration = Duration::from_secs(900);
/// A turn takes about this long.
const TURN: Duration = Duration::from_secs(6);

const SIZES: [u32; 4] = [16, 64, 256, 4_096];
/// Memory of a node: with 64 MB another node answers half of the requests, with 512 MB most are answered at once.
const MEMORY_MB: [u32; 2] = [64, 512];
const PENDING: [u32; 2] = [4_096, 1_048_576];
const CLUSTER_REQUESTS: u64 = 10_000_000;
const HOLD_EVENTS: u64 = 20_000_000;
const LINE_REQUESTS: u64 = 5_000_000;
const SIMPY_REQUESTS: u64 = 200_000;
const CACHE_REQUESTS: u64 = 3_000_000;

/// Issue 5's targets, in requests or events a second.
const HOLD_MIN: [f64; 2] = [40e6, 4e6];
const CLUSTER_MIN: [f64; 4] = [10e6, 10e6, 3e6, 3e6];

/// Who simulates what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Engine {
    Hold(u32),
    Line,
    Cluster { nodes: u32, memory_mb: u32 },
    NexosimLine,
    SimpyLine,
    LibcachesimLru,
}

impl Engine {
    fn all() -> Vec<Engine> {
        let clusters = MEMORY_MB
            .into_iter()
            .flat_map(|memory_mb| SIZES.into_iter().map(move |nodes| Engine::Cluster { nodes, memory_mb }));
        let others = [Engine::Line, Engine::NexosimLine, Engine::SimpyLine, Engine::LibcachesimLru];
        PENDING.into_iter().map(Engine::Hold).chain(others).chain(clusters).collect()
    }

    /// As `rows.csv` has it.
    fn name(self) -> String {
        match self {
            Engine::Hold(pending) => format!("sidelong-hold-{pending}"),
            Engine::Line => "sidelong-mm1".to_owned(),
            Engine::Cluster { memory_mb, .. } => format!("sidelong-cluster-{memory_mb}mb"),
            Engine::NexosimLine => "nexosim-mm1".to_owned(),
            Engine::SimpyLine => "simpy-mm1".to_owned(),
            Engine::LibcachesimLru => "libcachesim-lru".to_owned(),
        }
    }

    fn nodes(self) -> u32 {
        match self {
            Engine::Cluster { nodes, .. } => nodes,
            _ => 1,
        }
    }

    fn count(self) -> u64 {
        match self {
            Engine::Hold(_) => HOLD_EVENTS,
            Engine::Line | Engine::NexosimLine => LINE_REQUESTS,
            Engine::Cluster { .. } => CLUSTER_REQUESTS,
            Engine::SimpyLine => SIMPY_REQUESTS,
            Engine::LibcachesimLru => CACHE_REQUESTS,
        }
    }
}

/// What a turn says of itself.
#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Turn {
    requests: u64,
    events: u64,
    cpu_s: f64,
    wall_s: f64,
    /// Of a cluster: where answers came from, for each request.
    here_rate: Option<f64>,
    read_rate: Option<f64>,
}

/// An engine's rounds.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    engine: String,
    nodes: u32,
    /// Medians of the rounds, by CPU time. Of the hold model there are no requests.
    requests_per_s: Option<f64>,
    events_per_s: f64,
    /// The same by the clock.
    wall_events_per_s: f64,
    here_rate: Option<f64>,
    read_rate: Option<f64>,
}

impl Row {
    fn of(engine: Engine, turns: &[Turn]) -> Option<Row> {
        let middle = |f: &dyn Fn(&Turn) -> f64| median(turns.iter().map(f).collect());
        let requests = middle(&|turn| turn.requests as f64 / turn.cpu_s)?;
        let last = turns.last()?;
        Some(Row {
            engine: engine.name(),
            nodes: engine.nodes(),
            requests_per_s: (requests > 0.0).then_some(requests),
            events_per_s: middle(&|turn| turn.events as f64 / turn.cpu_s)?,
            wall_events_per_s: middle(&|turn| turn.events as f64 / turn.wall_s)?,
            here_rate: last.here_rate,
            read_rate: last.read_rate,
        })
    }

    fn csv(&self) -> String {
        let requests = self.requests_per_s.map_or_else(String::new, |rate| format!("{rate:.0}"));
        format!("{},{},{requests},{:.0}", self.engine, self.nodes, self.events_per_s)
    }
}

/// What all turns share.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    rounds: u32,
    cluster_requests: u64,
    /// Engines that could not be had, and why.
    missing: Vec<String>,
}

/// Programs of others.
#[derive(Default)]
struct Peers {
    python: Option<PathBuf>,
    nexosim: Option<PathBuf>,
    missing: Vec<String>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let quick = bench.options.quick;
    let rounds = if quick { 1 } else { ROUNDS };
    let part = if quick { QUICK_PART } else { 1 };
    bench.expect_for(Duration::from_secs(90));
    (0..rounds).for_each(|_| bench.expect_for(TURN * Engine::all().len() as u32 / part as u32));

    bench.begin("peers");
    let peers = peers(bench)?;
    bench.end();
    let has = |engine: &Engine| match engine {
        Engine::NexosimLine => peers.nexosim.is_some(),
        Engine::SimpyLine | Engine::LibcachesimLru => peers.python.is_some(),
        _ => true,
    };
    let engines: Vec<Engine> = Engine::all().into_iter().filter(has).collect();
    let mut turns = vec![Vec::new(); engines.len()];
    for round in 0..rounds as usize {
        bench.begin(&format!("round-{}", round + 1));
        // Each begins a round in its turn.
        for at in 0..engines.len() {
            let at = (at + round) % engines.len();
            turns[at].push(turn(bench, &peers, engines[at], engines[at].count() / part)?);
        }
        bench.end();
    }
    let rows: Vec<Row> =
        engines.iter().zip(&turns).filter_map(|(engine, turns)| Row::of(*engine, turns)).collect();
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    table.rows(rows.iter().map(Row::csv))?;
    let checks = checks(&rows);
    bench.write("figure.svg", &draw(bench, &rows)?)?;
    let machine = Machine::here();
    let settings = Settings { rounds, cluster_requests: CLUSTER_REQUESTS / part, missing: peers.missing };
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &report::markdown(&outcome))?;
    Ok(checks)
}

/// Fetches and builds the others, as far as they are to be had.
fn peers(bench: &mut Bench<'_>) -> Result<Peers> {
    let mut peers = Peers::default();
    let directory = bench.path("peers");
    let source = directory.join("nexosim/src");
    file(&source, fs::create_dir_all(&source))?;
    for (path, text) in [
        (directory.join("nexosim/Cargo.toml"), NEXOSIM_MANIFEST),
        (source.join("main.rs"), NEXOSIM),
        (directory.join("simpy_line.py"), SIMPY),
        (directory.join("libcachesim_lru.py"), LIBCACHESIM),
    ] {
        file(&path, fs::write(&path, text))?;
    }

    let mut cargo = Command::new("cargo");
    let target = directory.join("nexosim/target");
    cargo
        .args(["build", "--release", "--quiet", "--manifest-path"])
        .arg(directory.join("nexosim/Cargo.toml"));
    cargo.arg("--target-dir").arg(&target);
    match build(bench, "nexosim", cargo)? {
        None => peers.nexosim = Some(target.join("release/nexosim-line")),
        Some(why) => peers.missing.push(format!("NexoSim: {why}")),
    }

    let venv = directory.join("python");
    let python = venv.join("bin/python");
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(&venv);
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
    let mut why = if python.exists() { None } else { build(bench, "venv", make)? };
    if why.is_none() {
        why = build(bench, "pip", install)?;
    }
    match why {
        None => peers.python = Some(python),
        Some(why) => peers.missing.push(format!("simpy and libCacheSim: {why}")),
    }
    Ok(peers)
}

/// Runs a command that makes a peer; why it did not.
fn build(bench: &Bench<'_>, name: &str, command: Command) -> Result<Option<String>> {
    let (output, log) = (bench.path(&format!("runs/{name}.txt")), bench.path(&format!("runs/{name}.log")));
    let mut process = match Process::start(command, &output, &log) {
        Err(Error::Start { program, source }) => return Ok(Some(format!("{}: {source}", program.display()))),
        started => started?,
    };
    match process.wait(BUILD_MAX, &bench.options.stop)? {
        Ended::Itself(status) if status.success() => Ok(None),
        Ended::Itself(status) => Ok(Some(last_line(&log).unwrap_or_else(|| format!("ended with {status}")))),
        Ended::TooLong => Ok(Some("it takes too long".to_owned())),
        Ended::Stopped => Err(Error::Interrupted),
    }
}

fn turn(bench: &Bench<'_>, peers: &Peers, engine: Engine, count: u64) -> Result<Turn> {
    let ours = |case: String| {
        let mut command = Command::new(&bench.options.program);
        command.args(["sim", "speed", &case]);
        command
    };
    let python = |script: &str| {
        let mut command = Command::new(peers.python.as_deref().unwrap_or("python3".as_ref()));
        command.arg(bench.path("peers").join(script));
        command
    };
    let mut command = match engine {
        Engine::Hold(pending) => ours(format!("hold-{pending}")),
        Engine::Line => ours("line".to_owned()),
        Engine::Cluster { nodes, memory_mb } => ours(format!("cluster-{nodes}-{memory_mb}")),
        Engine::NexosimLine => Command::new(peers.nexosim.as_deref().unwrap_or("nexosim-line".as_ref())),
        Engine::SimpyLine => python("simpy_line.py"),
        Engine::LibcachesimLru => python("libcachesim_lru.py"),
    };
    command.arg(count.to_string());
    if engine == Engine::LibcachesimLru {
        command.arg(bench.path("peers").join(format!("zipf-{count}.oracleGeneral")));
    }
    let name = format!("{}-{}", engine.name(), engine.nodes());
    let (output, log) = (bench.path(&format!("runs/{name}.json")), bench.path(&format!("runs/{name}.log")));
    let words = |word: &std::ffi::OsStr| quoted(word.as_ref());
    let repeat = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(words)
        .collect::<Vec<_>>()
        .join(" ");
    let mut process = Process::start(command, &output, &log)?;
    match process.wait(TURN_MAX, &bench.options.stop)? {
        Ended::Stopped => Err(Error::Interrupted),
        Ended::TooLong => Err(Error::TooLong { run: name, limit: TURN_MAX, repeat }),
        Ended::Itself(status) if !status.success() => {
            let said = last_line(&log).unwrap_or_else(|| format!("ended with {status}"));
            Err(Error::Failed { run: name, said, repeat })
        }
        Ended::Itself(_) => {
            let line = last_line(&output).unwrap_or_default();
            let turn: Option<Turn> = serde_json::from_str(&line).ok();
            turn.filter(|turn| turn.cpu_s > 0.0 && turn.wall_s > 0.0 && turn.events > 0)
                .ok_or(Error::Output { path: output, found: line.chars().take(80).collect() })
        }
    }
}

fn find(rows: &[Row], engine: Engine) -> Option<&Row> {
    rows.iter().find(|row| row.engine == engine.name() && row.nodes == engine.nodes())
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let mut checks = Vec::new();
    for memory_mb in MEMORY_MB {
        for (nodes, min) in SIZES.into_iter().zip(CLUSTER_MIN) {
            let row = find(rows, Engine::Cluster { nodes, memory_mb });
            let what = format!("million requests/s, cluster of {nodes} nodes, {memory_mb} MB each");
            let measured = row.and_then(|row| row.requests_per_s).map(|rate| rate / 1e6);
            checks.push(Check::at_least(what, min / 1e6, measured));
        }
    }
    for (pending, min) in PENDING.into_iter().zip(HOLD_MIN) {
        let measured = find(rows, Engine::Hold(pending)).map(|row| row.events_per_s / 1e6);
        checks.push(Check::at_least(
            format!("million events/s, hold, {pending} pending"),
            min / 1e6,
            measured,
        ));
    }
    let ours = find(rows, Engine::Line).map(|row| row.events_per_s);
    for (name, engine) in [("NexoSim's", Engine::NexosimLine), ("simpy's", Engine::SimpyLine)] {
        let theirs = find(rows, engine).map(|row| row.events_per_s);
        let ratio = ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
        checks.push(Check::at_least(format!("M/M/1, events/s over {name}"), 1.0, ratio));
    }
    checks
}

fn draw(bench: &Bench<'_>, rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let at = |nodes: u32| f64::from(nodes).log2();
    let cluster = |memory_mb: u32| {
        let point = |nodes: u32| {
            let row = find(rows, Engine::Cluster { nodes, memory_mb })?;
            Some((at(nodes), row.requests_per_s? / 1e6))
        };
        SIZES.into_iter().filter_map(point).collect::<Vec<_>>()
    };
    let target = SIZES.into_iter().zip(CLUSTER_MIN).map(|(nodes, min)| (at(nodes), min / 1e6)).collect();
    let mut lines = vec![
        ("64 MB a node", Look::THIRD, cluster(64)),
        ("512 MB a node", Look::OURS, cluster(512)),
        ("target", Look::TARGET, target),
    ];
    if let Some(rate) = find(rows, Engine::LibcachesimLru).and_then(|row| row.requests_per_s) {
        let level = [SIZES[0], SIZES[SIZES.len() - 1]].map(|nodes| (at(nodes), rate / 1e6));
        lines.push(("libCacheSim, one cache", Look::BASELINE.ideal(), level.to_vec()));
    }
    let most = lines.iter().flat_map(|(.., points)| points).map(|(_, y)| *y).fold(0.0, f64::max);
    let legend: Vec<_> = lines.iter().map(|(name, look, _)| ((*name).to_owned(), *look)).collect();
    let panel = Panel {
        title: String::new(),
        x: Axis::powers_of_two("nodes", SIZES[0].into(), SIZES[SIZES.len() - 1].into()),
        y: Axis::from_zero("million requests/s of CPU time", most),
        lines: lines.into_iter().map(|(_, look, points)| Line { look, points }).collect(),
    };
    Ok(figure::draw(&title, &[panel], &legend)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(requests: u64, cpu_s: f64) -> Turn {
        Turn { requests, events: 30, cpu_s, wall_s: 2.0 * cpu_s, here_rate: None, read_rate: None }
    }

    #[test]
    fn rows_are_medians_of_cpu_time() {
        let row = Row::of(Engine::Line, &[turn(10, 1.0), turn(10, 5.0), turn(10, 2.0)]).unwrap();
        assert_eq!((row.requests_per_s, row.events_per_s, row.wall_events_per_s), (Some(5.0), 15.0, 7.5));
        assert_eq!(row.csv(), "sidelong-mm1,1,5,15");
        let row = Row::of(Engine::Hold(4_096), &[turn(0, 1.0)]).unwrap();
        assert_eq!(row.csv(), "sidelong-hold-4096,1,,30");
        assert!(Row::of(Engine::Line, &[]).is_none());
    }

    #[test]
    fn what_is_missing_is_not_measured() {
        let fast = |engine: Engine| Row::of(engine, &[turn(11_000_000, 1.0)]).unwrap();
        let rows: Vec<Row> =
            Engine::all().into_iter().filter(|e| *e != Engine::SimpyLine).map(fast).collect();
        let verdict = |what: &str| {
            let check = checks(&rows).into_iter().find(|check| check.what.contains(what)).unwrap();
            check.verdict()
        };
        assert_eq!(
            (verdict("16 nodes, 64 MB"), verdict("simpy"), verdict("NexoSim")),
            ("met", "not measured", "met")
        );
        assert_eq!(verdict("hold, 4096"), "MISSED");
        let turn: Turn =
            serde_json::from_str(r#"{"requests":1,"events":2,"cpu_s":0.5,"wall_s":1.0}"#).unwrap();
        assert_eq!(turn.here_rate, None);
    }
}
