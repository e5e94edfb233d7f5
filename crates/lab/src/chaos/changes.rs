//! X2: the machines of X1 without faults, while all that may change changes, again and again.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use serde_json::json;

use super::clients::{Asked, TURN};
use super::judge::{Below, judge};
use super::stage::{self, LEAVES, SITES, Stage};
use super::{
    ALL, BELOW_FLOOR, ENDED, MISDIRECTED, POLL, WRONG, median_and_longest, settle, suffered, suffered_none,
    under_load, words,
};
use crate::bench::Bench;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;

/// How often each change is made, in full and quick.
const TIMES: [usize; 2] = [100, 3];
/// How long etcd is away.
const WITHOUT_ETCD: [Duration; 2] = [Duration::from_secs(600), Duration::from_secs(10)];
/// Between two moves meanwhile.
const MOVE_EVERY: Duration = Duration::from_secs(2);
/// Parts that are never restarted, whose memory is to stay what it is after the first rounds.
const LASTING: [(&str, &str); 2] = [("edge_growth", "edge1"), ("node_growth", "n2")];
const FIRST: f64 = 0.2;
/// Longest wait for a site that can spare a node: each site has had its turn of the load by then.
const SPARED_MAX: Duration = TURN.saturating_mul(SITES.len() as u32);
/// Memory may be given back, too.
const GROWTH: RangeInclusive<f64> = -100.0..=f64::INFINITY;
/// About as long as a change takes, for the estimate of what is left.
const EXPECTED: Duration = Duration::from_millis(1_200);

/// The parts that are restarted, each in its turn.
const RESTARTED: [(&str, [&str; 2]); 3] =
    [("agent", ["n1", "n6"]), ("agents", ["agents4", "agents5"]), ("front", ["nginx1", "haproxy1"])];
const WITHOUT: &str = "etcd";

pub(crate) const X2: Experiment = Experiment::new(
    "X2",
    OWN,
    "five machines of which everything changes again and again under load",
    Design {
        repeat: [1, 1],
        // Nothing here is judged by how fast it is.
        needs_the_machine: false,
        dimensions: &[Dimension::new(
            "change",
            "what changes",
            &[
                Word::plain(ALL, "all of it"),
                Word::plain("leave", "a node leaves"),
                Word::plain("join", "it joins"),
                Word::plain("edit", "the file"),
                Word::plain("rotate", "the secret, one step"),
                Word::plain("agent", "restart of a node's agent"),
                Word::plain("agents", "restart of the agents of three nodes"),
                Word::plain("front", "restart of a front"),
                Word::plain(WITHOUT, "moves while etcd is away"),
            ],
        )],
        cases: &["*"],
        measures: &[
            Measure::new("times", "times", [0, 0]),
            Measure::new("median_ms", "median, ms", [0, 0]),
            Measure::new("longest_ms", "longest, ms", [0, 0]),
            Measure::new("refused", "refused", [0, 0]),
            Measure::new("requests", "requests meanwhile", [0, 0]),
            Measure::new("failed", "failed", [0, 0]),
            WRONG,
            MISDIRECTED,
            BELOW_FLOOR,
            ENDED,
            Measure::new("edge_growth", "growth of the edge's memory, %", [1, 1]).possible(|_| GROWTH),
            Measure::new("node_growth", "growth of an agent's memory, %", [1, 1]).possible(|_| GROWTH),
        ],
        charts: &[],
        settings: |quick| json!({ "without_etcd_s": WITHOUT_ETCD[usize::from(quick)].as_secs() }),
        template: include_str!("changes.md"),
        run,
        conclude,
    },
);

/// A change as it was made.
struct Change {
    kind: &'static str,
    /// Before it began, and once it was done and all was at rest.
    from: Instant,
    until: Instant,
    /// Why it was refused, or that not all came to rest; empty if neither.
    refused: String,
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (times, without) = (bench.either(TIMES), bench.either(WITHOUT_ETCD));
    let kinds = 5 + RESTARTED.len();
    bench.rounds(&[EXPECTED * (times * kinds) as u32 + without], |bench| {
        bench.begin("changes");
        let stage = Stage::set(bench, "changes")?;
        let (mut ended, mut memory) = (Vec::new(), Vec::new());
        let work = || make(bench, &stage, times, without, (&mut ended, &mut memory));
        let (changes, asked, looks) = under_load(&stage, work)?;
        bench.end();
        let judged = judge(&[], &asked, &looks, stage::machine_of);
        let said = |of: &[(Instant, String)]| of.iter().map(|(_, what)| what.clone()).collect::<Vec<_>>();
        let below = |below: &Below| {
            let is_then = |change: &&Change| change.from <= below.since && below.since <= change.until;
            let then = changes.iter().find(is_then).map_or("no change", |change| change.kind);
            format!("during {then}: {}", below.told())
        };
        let lists = [
            ("refused", changes.iter().filter(|change| !change.refused.is_empty()).map(told).collect()),
            ("failed", said(&judged.late)),
            ("wrong", judged.wrong.clone()),
            ("misdirected", said(&judged.misdirected)),
            ("below a floor", judged.below_floor.iter().map(below).collect()),
            ("parts that ended", ended.clone()),
        ];
        super::write_lists(bench, "changes", &lists)?;
        let of_all = |measure: &'static str, count: usize| (measure, count as f64);
        let early = &memory[(memory.len() as f64 * FIRST) as usize];
        let growth =
            early.iter().zip(&memory[memory.len() - 1]).map(|(before, after)| (after / before - 1.0) * 100.0);
        let growth = LASTING.iter().map(|(measure, _)| *measure).zip(growth);
        bench.sample(
            ALL,
            [
                of_all("times", changes.len()),
                of_all("refused", lists[0].1.len()),
                of_all("requests", asked.len()),
                of_all("failed", judged.late.len()),
            ]
            .into_iter()
            .chain(suffered(&judged, &ended))
            .chain(growth),
        )?;
        let mut kinds: Vec<_> = changes.iter().map(|change| change.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.into_iter().try_for_each(|kind| {
            let its: Vec<_> = changes.iter().filter(|change| change.kind == kind).collect();
            bench.sample(kind, figures(&its, &asked))
        })
    })
}

/// What the changes of a kind came to.
fn figures(its: &[&Change], asked: &[Asked]) -> [(&'static str, f64); 6] {
    let meanwhile =
        |one: &&Asked| its.iter().any(|change| one.from <= change.until && one.until >= change.from);
    let requests: Vec<_> = asked.iter().filter(meanwhile).collect();
    let failed = requests.iter().filter(|one| one.has_failed()).count();
    let took = its.iter().map(|change| (change.until - change.from).as_millis() as f64).collect();
    let [median, longest] = median_and_longest(took);
    let refused = its.iter().filter(|change| !change.refused.is_empty()).count();
    [
        ("times", its.len() as f64),
        ("median_ms", median),
        ("longest_ms", longest),
        ("refused", refused as f64),
        ("requests", requests.len() as f64),
        ("failed", failed as f64),
    ]
}

fn told(change: &Change) -> String {
    format!("{}: {}", change.kind, change.refused)
}

/// Makes all changes so many times, one after the other, and then moves nodes while etcd is away.
fn make(
    bench: &Bench<'_>,
    stage: &Stage,
    times: usize,
    without: Duration,
    (ended, memory): (&mut Vec<String>, &mut Vec<[f64; 2]>),
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    let mut seen = stage.words()?;
    let mut change = |kind: &'static str, work: &mut dyn FnMut() -> Result<String>| -> Result<()> {
        bench.go_on()?;
        let from = Instant::now();
        let mut refused = work()?;
        // Clients ask all fronts meanwhile.
        if settle(bench, stage, &mut seen, ended, |_| true)?.all.is_none() {
            refused += "it does not come to rest";
        }
        changes.push(Change { kind, from, until: Instant::now(), refused });
        Ok(())
    };
    let part = |name: &str| stage.parts.iter().position(|part| part.name == name).expect("it is there");
    for time in 0..times {
        change("leave", &mut || spared(stage, &["leave", LEAVES, "--wait"]))?;
        change("join", &mut || stage.command(&stage.join()))?;
        change("edit", &mut || stage.command(&words(&["cluster", "edit"])))?;
        // The step before is not over until all parts have looked at the file of the secret.
        let mut rotate = || once_over(stage, &["secret", "rotate"], "parts have the new secret");
        change("rotate", &mut rotate)?;
        for (kind, names) in RESTARTED {
            if kind == "front" {
                change("rotate", &mut rotate)?;
            }
            change(kind, &mut || stage.restart(part(names[time % names.len()])).map(|()| String::new()))?;
        }
        let [edge, node] = LASTING.map(|(_, name)| stage.resident_bytes(part(name)));
        memory.push([edge?, node?]);
    }
    stage.without_etcd(|| {
        let began = Instant::now();
        while began.elapsed() < without {
            for site in ["beta", "alpha"] {
                change(WITHOUT, &mut || spared(stage, &["move", "n1", site]))?;
                std::thread::sleep(MOVE_EVERY);
            }
        }
        Ok(())
    })?;
    Ok(changes)
}

/// What is said of a command that takes a node from a site, tried again while the site is at its floor: once the load comes there, it gets nodes.
fn spared(stage: &Stage, command: &[&str]) -> Result<String> {
    once_over(stage, command, "is at its floor")
}

/// What is said of a command, tried again while `obstacle` is said.
fn once_over(stage: &Stage, command: &[&str], obstacle: &str) -> Result<String> {
    let began = Instant::now();
    loop {
        let said = stage.command(&words(command))?;
        if !said.contains(obstacle) || began.elapsed() >= SPARED_MAX {
            return Ok(said);
        }
        std::thread::sleep(POLL);
    }
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    let none = |what: &str, measure| Check::at_most(what, 0.0, samples.total(ALL, measure));
    let own = vec![
        none("requests that failed", "failed"),
        none("changes that were refused, or after which not all came to rest", "refused"),
        Check::at_most(
            "growth of the edge's memory after the first rounds, %",
            2.0,
            &samples[ALL]["edge_growth"],
        )
        .possible(GROWTH),
        Check::at_most(
            "growth of an agent's memory after the first rounds, %",
            2.0,
            &samples[ALL]["node_growth"],
        )
        .possible(GROWTH),
    ];
    suffered_none(samples).into_iter().chain(own).collect()
}
