//! sim-speed: the simulator's speed beside NexoSim, simpy and libCacheSim, each in its turn.
//!
//! The figure is CPU time of one thread, by the process's own clock of it, because the machine may be shared. The first run
//! fetches the other programs from their registries into the experiment's directory. The report names those that are
//! missing.

mod report;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_figure::{Axis, Line, Panel, Style};

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::{Error, Result, file};
use crate::process::{Ended, Process, last_line, quoted};
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;

const NEXOSIM: &str = include_str!("speed/nexosim.rs");
const NEXOSIM_MANIFEST: &str = include_str!("speed/nexosim.toml");
const SIMPY: &str = include_str!("speed/simpy.py");
const LIBCACHESIM: &str = include_str!("speed/libcachesim.py");
/// The Python packages, in the versions that the published figures were taken with.
const PACKAGES: [&str; 2] = ["simpy==4.1.2", "libcachesim==0.3.5"];

const ROUNDS: [u32; 2] = [5, 1];
/// One round with a tenth of the work.
const QUICK_PART: u64 = 10;
/// Time limit for one turn with its preparation, and for fetching and building a peer.
const TURN_MAX: Duration = Duration::from_secs(600);
const BUILD_MAX: Duration = Duration::from_secs(900);
/// About how long a turn takes.
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

/// Targets, in requests or events per second.
const HOLD_MIN: [f64; 2] = [40e6, 4e6];
const CLUSTER_MIN: [f64; 4] = [10e6, 10e6, 3e6, 3e6];

/// The engines and what each simulates.
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

    /// The name in `rows.csv`.
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

/// The output of a turn.
#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Turn {
    requests: u64,
    events: u64,
    cpu_s: f64,
    wall_s: f64,
    /// For a cluster: where the answers came from, per request.
    here_rate: Option<f64>,
    read_rate: Option<f64>,
}

/// One turn of an engine.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    engine: String,
    nodes: u32,
    /// By CPU time. The hold model has no requests.
    requests_per_s: Option<f64>,
    events_per_s: f64,
    /// The same by wall-clock time.
    wall_events_per_s: f64,
    here_rate: Option<f64>,
    read_rate: Option<f64>,
}

impl Row {
    fn of(engine: Engine, turn: &Turn) -> Row {
        let requests = turn.requests as f64 / turn.cpu_s;
        Row {
            engine: engine.name(),
            nodes: engine.nodes(),
            requests_per_s: (requests > 0.0).then_some(requests),
            events_per_s: turn.events as f64 / turn.cpu_s,
            wall_events_per_s: turn.events as f64 / turn.wall_s,
            here_rate: turn.here_rate,
            read_rate: turn.read_rate,
        }
    }

    fn line(&self) -> TableLine {
        TableLine {
            engine: self.engine.clone(),
            nodes: self.nodes,
            requests_per_s: self.requests_per_s.map(Fixed),
            events_per_s: Fixed(self.events_per_s),
        }
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    engine: String,
    nodes: u32,
    requests_per_s: Option<Fixed<0>>,
    events_per_s: Fixed<0>,
}

/// Settings that all turns share.
#[derive(Serialize)]
struct Speed {
    cluster_requests: u64,
    /// The work of each turn is divided by this.
    #[serde(skip)]
    part: u64,
    /// Set once they have been searched for.
    #[serde(flatten)]
    peers: Option<Peers>,
}

/// The programs of others.
#[derive(Clone, Default, Serialize)]
struct Peers {
    #[serde(skip)]
    python: Option<PathBuf>,
    #[serde(skip)]
    nexosim: Option<PathBuf>,
    /// Engines that are missing, and the reasons.
    missing: Vec<String>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let part = if bench.options.quick { QUICK_PART } else { 1 };
    bench.expect_for(Duration::from_secs(90));
    study::run(bench, Speed { cluster_requests: CLUSTER_REQUESTS / part, part, peers: None })
}

impl Study for Speed {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;
    /// CPU time is judged.
    const NEEDS_THE_MACHINE: bool = false;

    fn plan(&self) -> Vec<Duration> {
        vec![TURN * Engine::all().len() as u32 / self.part as u32]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Speed>) -> Result<()> {
        let peers = match self.peers.take() {
            Some(peers) => peers,
            None => {
                bench.begin("peers");
                let peers = peers(bench)?;
                bench.end();
                peers
            }
        };
        let has = |engine: &Engine| match engine {
            Engine::NexosimLine => peers.nexosim.is_some(),
            Engine::SimpyLine | Engine::LibcachesimLru => peers.python.is_some(),
            _ => true,
        };
        let engines: Vec<Engine> = Engine::all().into_iter().filter(has).collect();
        let round = bench.repetition as usize;
        bench.begin(&format!("round-{round}"));
        let mut turns = vec![None; engines.len()];
        // Each engine begins a round in its turn.
        for at in 0..engines.len() {
            let at = (at + round - 1) % engines.len();
            turns[at] = Some(turn(bench, &peers, engines[at], engines[at].count() / self.part)?);
        }
        bench.end();
        self.peers = Some(peers);
        for (engine, turn) in engines.iter().zip(turns.iter().flatten()) {
            rows.push(self, Row::of(*engine, turn))?;
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        vec![row.line()]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let here = row.here_rate.map(|rate| Bound::share(format!("{}: answered at once", row.engine), rate));
        // One thread's CPU time cannot exceed wall-clock time, except by the kernel's ticks.
        let clock = Bound::new(
            format!("{}: events/s by the clock", row.engine),
            row.wall_events_per_s,
            0.0..=1.05 * row.events_per_s,
        );
        here.into_iter().chain([clock]).collect()
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(self, rows, story);
    }
}

/// Fetches and builds the other programs as far as possible.
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

/// Runs a command that makes a peer. Returns the reason if it fails.
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

fn draw(rows: &[Row]) -> Drawing {
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
        ("64 MB a node", Style::THIRD, cluster(64)),
        ("512 MB a node", Style::OURS, cluster(512)),
        ("target", Style::TARGET, target),
    ];
    if let Some(rate) = find(rows, Engine::LibcachesimLru).and_then(|row| row.requests_per_s) {
        let level = [SIZES[0], SIZES[SIZES.len() - 1]].map(|nodes| (at(nodes), rate / 1e6));
        lines.push(("libCacheSim, one cache", Style::BASELINE.bare(), level.to_vec()));
    }
    let most = lines.iter().flat_map(|(.., points)| points).map(|(_, y)| *y).fold(0.0, f64::max);
    let legend = lines.iter().map(|(name, style, _)| ((*name).to_owned(), *style)).collect();
    let panel = Panel {
        title: String::new(),
        x: Axis::powers_of_two("nodes", SIZES[0].into(), SIZES[SIZES.len() - 1].into()),
        y: Axis::from_zero("million requests/s of CPU time", most),
        lines: lines.into_iter().map(|(_, style, points)| Line::new(style, points)).collect(),
    };
    Drawing { panels: vec![panel], legend, dashed: Some("target"), ..Drawing::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(requests: u64, cpu_s: f64) -> Turn {
        Turn { requests, events: 30, cpu_s, wall_s: 2.0 * cpu_s, here_rate: None, read_rate: None }
    }

    #[test]
    fn rows_are_of_cpu_time() {
        let row = Row::of(Engine::Line, &turn(10, 2.0));
        assert_eq!((row.requests_per_s, row.events_per_s, row.wall_events_per_s), (Some(5.0), 15.0, 7.5));
        let [columns, line] = crate::table::written(row.line());
        assert_eq!(
            (columns.as_str(), line.as_str()),
            ("engine,nodes,requests_per_s,events_per_s", "sidelong-mm1,1,5,15")
        );
        let row = Row::of(Engine::Hold(4_096), &turn(0, 1.0));
        assert_eq!(crate::table::written(row.line())[1], "sidelong-hold-4096,1,,30");
    }

    #[test]
    fn what_is_missing_is_not_measured() {
        let fast = |engine: Engine| Row::of(engine, &turn(11_000_000, 1.0));
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
