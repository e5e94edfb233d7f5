//! sim-speed: the simulator's speed beside NexoSim, simpy and libCacheSim, each in its turn.
//!
//! The figure is CPU time of one thread, by the process's own clock of it, because the machine may be shared. The first run
//! fetches the other programs from their registries into the experiment's directory. The report names those that are
//! missing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use sidelong_figure::Style;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::{Error, Result, file};
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::peers;
use crate::process::last_line;
use crate::samples::Samples;

const NEXOSIM: &str = include_str!("speed/nexosim.rs");
const NEXOSIM_MANIFEST: &str = include_str!("speed/nexosim.toml");
const SIMPY: &str = include_str!("speed/simpy.py");
const LIBCACHESIM: &str = include_str!("speed/libcachesim.py");
/// The Python packages, in the versions that the published figures were taken with.
const PACKAGES: [&str; 2] = ["simpy==4.1.2", "libcachesim==0.3.5"];
/// The work of each turn is divided by this, in full and quick.
const PARTS: [u64; 2] = [1, 10];
const CLUSTER_REQUESTS: u64 = 10_000_000;
/// Time limit for one turn with its preparation, and for fetching and building a peer.
const TURN_MAX: Duration = Duration::from_secs(600);
const BUILD_MAX: Duration = Duration::from_secs(900);
/// About how long a turn, and fetching the peers, takes.
const TURN: Duration = Duration::from_secs(6);
const FETCHING: Duration = Duration::from_secs(90);
/// What has turns. With 64 MB another node answers half of a cluster's requests, with 512 MB most are answered at once.
const TURNS: [&str; 2] = [
    "sidelong-hold-4096,sidelong-hold-1048576,sidelong-mm1,nexosim-mm1,simpy-mm1,libcachesim-lru/1",
    "sidelong-cluster-64mb,sidelong-cluster-512mb/16,64,256,4096",
];

pub(crate) const SIM_SPEED: Experiment = Experiment::new(
    "sim-speed",
    OWN,
    "the simulator beside NexoSim, simpy and libCacheSim",
    Design {
        repeat: [5, 1],
        // CPU time is judged.
        needs_the_machine: false,
        dimensions: &[
            Dimension::new(
                "engine",
                "engine",
                &[
                    Word::plain("sidelong-hold-4096", "Sidelong, hold model, 4,096 pending"),
                    Word::plain("sidelong-hold-1048576", "Sidelong, hold model, 1,048,576 pending"),
                    Word::plain("sidelong-mm1", "Sidelong, M/M/1"),
                    Word::plain("nexosim-mm1", "NexoSim, M/M/1"),
                    Word::plain("simpy-mm1", "simpy, M/M/1"),
                    Word::plain("libcachesim-lru", "libCacheSim, LRU"),
                    Word::new("sidelong-cluster-64mb", "Sidelong, 64 MB a node", Style::THIRD),
                    Word::new("sidelong-cluster-512mb", "Sidelong, 512 MB a node", Style::OURS),
                    // Its one figure, over all sizes.
                    Word::new("one-cache", "libCacheSim, one cache", Style::BASELINE.bare()),
                ],
            ),
            Dimension::new("nodes", "nodes", &[]),
        ],
        cases: &[TURNS[0], TURNS[1], "one-cache/16,4096"],
        measures: &[
            // By CPU time. The hold model has no requests.
            Measure::new("million_requests_per_s", "million requests/s", [6, 2]),
            Measure::new("million_events_per_s", "million events/s", [6, 2]),
            // One thread's CPU time cannot exceed wall-clock time, except by the kernel's ticks.
            Measure::new("million_events_per_s_by_clock", "million events/s by the clock", [6, 2])
                .possible(|case| 0.0..=1.05 * case.most("million_events_per_s")),
            // Of a cluster.
            Measure::new("here_percent", "answered at once, %", [2, 1]).possible(|_| 0.0..=100.0),
            Measure::new("read_percent", "one-sided reads, % of requests", [2, 1]),
            Measure::derived("drawn", "million requests/s of CPU time", 2),
        ],
        charts: &[Chart::lines("", "drawn", "nodes", "engine")
            .of("sidelong-cluster-64mb,sidelong-cluster-512mb,one-cache/*")
            .target(target, "target")],
        settings: |quick| json!({ "cluster_requests": CLUSTER_REQUESTS / PARTS[usize::from(quick)], "missing": [] }),
        template: include_str!("speed.md"),
        run,
        conclude,
    },
);

/// The least million requests/s of a cluster.
fn target(case: &str) -> Option<f64> {
    let (engine, nodes) = case.split_once('/')?;
    match nodes {
        _ if !engine.starts_with("sidelong-cluster") => None,
        "16" | "64" => Some(10.0),
        "256" | "4096" => Some(3.0),
        _ => None,
    }
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.expect_for(FETCHING);
    bench.begin("peers");
    let peers = Peers::fetch(bench)?;
    bench.end();
    let cases: Vec<String> =
        TURNS.iter().flat_map(|turns| bench.samples.cases(turns)).map(str::to_owned).collect();
    let cases: Vec<String> = cases.into_iter().filter(|case| peers.has(case)).collect();
    let part = bench.either(PARTS);
    bench.rounds(&[TURN * cases.len() as u32 / part as u32], |bench| {
        bench.round_of(&cases, |bench, case| {
            let (command, name) = (peers.command(bench, &case, part), case.replace('/', "-"));
            let Turn { requests, events, cpu_s, wall_s, here_rate, read_rate } = turn(bench, &name, command)?;
            let per_s = (requests > 0.0).then_some(("million_requests_per_s", requests / cpu_s / 1e6));
            let rates = [
                ("million_events_per_s", events / cpu_s / 1e6),
                ("million_events_per_s_by_clock", events / wall_s / 1e6),
            ];
            let here = here_rate.map(|rate| ("here_percent", 100.0 * rate));
            let read = read_rate.map(|rate| ("read_percent", 100.0 * rate));
            bench.sample(&case, per_s.into_iter().chain(rates).chain(here).chain(read))
        })
    })
}

/// The output of a turn.
#[derive(Deserialize)]
struct Turn {
    requests: f64,
    events: f64,
    cpu_s: f64,
    wall_s: f64,
    /// For a cluster: where the answers came from, per request.
    here_rate: Option<f64>,
    read_rate: Option<f64>,
}

fn turn(bench: &Bench<'_>, name: &str, command: Command) -> Result<Turn> {
    let output = bench.output(command, name, "json", TURN_MAX)?;
    let line = last_line(&output).unwrap_or_default();
    let turn: Option<Turn> = serde_json::from_str(&line).ok();
    turn.filter(|turn| turn.cpu_s > 0.0 && turn.wall_s > 0.0 && turn.events > 0.0)
        .ok_or(Error::Output { path: output, found: line.chars().take(80).collect() })
}

/// The programs of others, as far as they are here.
struct Peers {
    python: Option<PathBuf>,
    nexosim: Option<PathBuf>,
}

impl Peers {
    /// Fetches and builds them. A setting says why one is missing.
    fn fetch(bench: &mut Bench<'_>) -> Result<Peers> {
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
        cargo.args(["build", "--release", "--quiet", "--manifest-path"]);
        cargo.arg(directory.join("nexosim/Cargo.toml")).arg("--target-dir").arg(&target);
        let without_nexosim = peers::why_not(bench, cargo, BUILD_MAX)?;

        let venv = directory.join("python");
        let python = venv.join("bin/python");
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&venv);
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
        let made = if python.exists() { None } else { peers::why_not(bench, make, BUILD_MAX)? };
        let without_python = match made {
            None => peers::why_not(bench, install, BUILD_MAX)?,
            why => why,
        };
        let peers = Peers {
            nexosim: without_nexosim.is_none().then(|| target.join("release/nexosim-line")),
            python: without_python.is_none().then_some(python),
        };
        let missing = [("NexoSim", without_nexosim), ("simpy and libCacheSim", without_python)];
        let missing = missing.into_iter().filter_map(|(name, why)| Some(format!("{name}: {}", why?)));
        bench.set("missing", missing.collect::<Vec<_>>());
        Ok(peers)
    }

    /// Whether the program is here that a case needs.
    fn has(&self, case: &str) -> bool {
        match case {
            "nexosim-mm1/1" => self.nexosim.is_some(),
            "simpy-mm1/1" | "libcachesim-lru/1" => self.python.is_some(),
            _ => true,
        }
    }

    /// What makes a turn, with a `part` of the work.
    fn command(&self, bench: &Bench<'_>, case: &str, part: u64) -> Command {
        let ours = |what: &str| {
            let mut command = Command::new(&bench.options.program);
            command.args(["sim", "speed", what]);
            command
        };
        let python = |script: &str| {
            let mut command = Command::new(self.python.as_deref().unwrap_or("python3".as_ref()));
            command.arg(bench.path("peers").join(script));
            command
        };
        let nexosim = || Command::new(self.nexosim.as_deref().unwrap_or("nexosim-line".as_ref()));
        let (mut command, count) = match case.split_once('/').unwrap_or((case, "1")) {
            ("nexosim-mm1", _) => (nexosim(), 5_000_000),
            ("simpy-mm1", _) => (python("simpy_line.py"), 200_000),
            ("libcachesim-lru", _) => (python("libcachesim_lru.py"), 3_000_000),
            ("sidelong-mm1", _) => (ours("line"), 5_000_000),
            ("sidelong-cluster-64mb", nodes) => (ours(&format!("cluster-{nodes}-64")), CLUSTER_REQUESTS),
            ("sidelong-cluster-512mb", nodes) => (ours(&format!("cluster-{nodes}-512")), CLUSTER_REQUESTS),
            (hold, _) => (ours(hold.trim_start_matches("sidelong-")), 20_000_000),
        };
        command.arg((count / part).to_string());
        if case == "libcachesim-lru/1" {
            command.arg(bench.path("peers").join(format!("zipf-{}.oracleGeneral", count / part)));
        }
        command
    }
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("drawn", TURNS[1], |samples, case| samples[case]["million_requests_per_s"].clone());
    samples.derive("drawn", "one-cache/*", |samples, _| {
        samples["libcachesim-lru/1"]["million_requests_per_s"].clone()
    });
    let mut checks = Vec::new();
    for case in samples.cases(TURNS[1]) {
        let [memory, nodes] =
            ["sidelong-cluster-", "/"].map(|before| case.rsplit(before).next().unwrap_or(case));
        let memory = memory.split("mb").next().unwrap_or(memory);
        let what = format!("million requests/s, cluster of {nodes} nodes, {memory} MB each");
        let least = target(case).unwrap_or(0.0);
        checks.push(Check::at_least(what, least, &samples[case]["million_requests_per_s"]));
    }
    let events = |engine: &str| &samples[format!("{engine}/1")]["million_events_per_s"];
    for (pending, least) in [("4096", 40.0), ("1048576", 4.0)] {
        let what = format!("million events/s, hold, {pending} pending");
        checks.push(Check::at_least(what, least, events(&format!("sidelong-hold-{pending}"))));
    }
    for (name, engine) in [("NexoSim's", "nexosim-mm1"), ("simpy's", "simpy-mm1")] {
        let ratio = events("sidelong-mm1") / events(engine);
        checks.push(Check::at_least(format!("M/M/1, events/s over {name}"), 1.0, ratio));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn speeds_are_judged_by_their_targets_and_beside_the_others() {
        let verdicts = |millions: f64, simpy: Option<f64>| {
            judged(&SIM_SPEED, |samples| {
                let cases = TURNS.iter().flat_map(|turns| samples.cases(turns));
                for case in cases.map(str::to_owned).collect::<Vec<_>>() {
                    let of = |name| (name, if case == "nexosim-mm1/1" { 11.0 } else { millions });
                    samples.put(&case, [of("million_requests_per_s"), of("million_events_per_s")]);
                }
                // What is missing is not measured.
                let simpy = simpy.unwrap_or(f64::NAN);
                samples.put("simpy-mm1/1", [("million_events_per_s", simpy)]);
            })
        };
        assert_eq!(verdicts(41.0, Some(1.0)), ["met"; 12]);
        let missed = |verdicts: Vec<&str>| verdicts.iter().filter(|verdict| **verdict == "MISSED").count();
        // The clusters of 16 and 64 nodes, the hold model with few pending, and M/M/1 beside NexoSim.
        assert_eq!(missed(verdicts(9.0, Some(1.0))), 6);
        assert_eq!(verdicts(41.0, None)[11], "not measured");
    }
}
