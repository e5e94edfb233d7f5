//! L1: C1-C4 live, by `sidelong-lab sim live`, beside what was published and what is simulated.
//!
//! Live are the decisions, the memory and the messages, between processes of one machine, which has fewer CPUs than processes. The
//! simulator has hardware of its own: the paper's, and today's, whose disk the live nodes wait for. So what depends on decisions is
//! compared by its value: how often reads fail. What depends on the hardware is compared by its order: which protocol answers more
//! requests. The paper's statements are judged of the live runs, and stand beside the simulated ones.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::judge::{Judge, Of, Statement, only, some};
use super::{
    MEASURES, PROTOCOL, REQUESTS, SITE, Sweep, TRACE_NODES, TRACE_REQUESTS, figures, of_row, traces,
};
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::{Error, Result, file};
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Word};
use crate::samples::Samples;
use crate::series::{Series, most, sum};
use crate::sim;

/// As many as one machine runs as processes.
const SIZES: [&[u32]; 2] = [&[4, 16, 64], &[4, 16]];
/// The longest run.
const TIME_MAX: Duration = Duration::from_secs(1800);
/// Of fewer reads that fail, chance decides how many there are.
const FAILURES_MIN: f64 = 400.0;
/// Protocols whose simulated throughputs are closer than this have no order.
const APART: f64 = 1.1;
/// With more processes on a few CPUs, whose turn it is decides which protocol answers more requests.
const ORDERED_NODES_MAX: u32 = 16;
const FIGURES: [(Of, &str); 4] =
    [(Of::Traces, "C1"), (Of::Response, "C2"), (Of::Throughput, "C3"), (Of::Failures, "C4")];
/// Whose figures they are: simulated with the paper's hardware, with today's, or live.
const BY: [&str; 3] = ["paper", "today", "live"];

const DIMENSIONS: &[Dimension] = &[
    // Or a figure of the paper, for what comes of it.
    Dimension::new(
        "place",
        "",
        &[Word::plain("4", "4 nodes"), Word::plain("16", "16 nodes"), Word::plain("64", "64 nodes")],
    ),
    PROTOCOL,
    Dimension::new(
        "by",
        "hardware simulated, or live",
        &[
            Word::plain("paper", "paper's").short("paper"),
            Word::plain("today", "today's").short("today"),
            Word::plain("live", "live"),
        ],
    ),
];

pub(crate) const L1: Experiment = Experiment::new(
    "L1",
    OWN,
    "the cooperative cache of C1 to C4 live, beside simulated and published",
    Design {
        dimensions: DIMENSIONS,
        cases: &["4,16,worldcup98-sample,C1,C2,C3,C4/*/*"],
        measures: &MEASURES,
        charts: CHARTS,
        settings: |quick| {
            let quick = usize::from(quick);
            json!({
                "site": SITE,
                "nodes": SIZES[quick],
                "requests": REQUESTS[quick],
                "trace_nodes": TRACE_NODES,
                "trace_requests": TRACE_REQUESTS[quick],
                "traces": null,
            })
        },
        template: include_str!("live.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);
const CHARTS: &[Chart] = &[
    chart("C1", C1, "response / RPC's, second best trace", |_| Some(0.5)),
    chart("C2", C2, "response / RPC's, worst size", |_| Some(1.0)),
    chart("C3", C3, "requests/s / RPC's, mean of sizes", |_| Some(2.0)),
    chart("C4", C4, "failing reads / lazy's, best size", |_| Some(0.25)),
];
const C1: &str = "C1/lazy,aggressive,sender,receiver,accumulated,ledger/*";
const C2: &str = "C2/lazy,aggressive,sender,receiver,accumulated,ledger/*";
const C3: &str = "C3/lazy,aggressive,sender,receiver,accumulated,ledger/*";
const C4: &str = "C4/lazy,aggressive,sender,receiver,accumulated,ledger/*";

/// What each protocol makes of the baseline's figure.
const fn chart(
    title: &'static str,
    cases: &'static str,
    of: &'static str,
    published: fn(&str) -> Option<f64>,
) -> Chart {
    Chart::bars(title, "to_baseline", "by", "protocol").of(cases).unit(1.0, of).target(published, "published")
}

/// A line of `sidelong-lab sim live --json`: a run with today's hardware simulated, and live.
#[derive(Deserialize)]
struct Pair {
    protocol: String,
    nodes: u32,
    simulated: BTreeMap<String, f64>,
    live: BTreeMap<String, f64>,
    /// None if the kernel does not count it.
    sharing: Option<Sharing>,
    wrong: u64,
}

/// How the live nodes shared the machine's CPUs.
#[derive(Deserialize)]
struct Sharing {
    cpu_us_per_request: f64,
    waiting: f64,
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (sizes, requests, of_trace) =
        (bench.either(SIZES), bench.either(REQUESTS), bench.either(TRACE_REQUESTS));
    let traces = traces::all(bench)?;
    let names: Vec<&str> = traces.iter().map(|(name, _)| name.as_str()).collect();
    bench.set("traces", names.join(", "));
    let of_size = |nodes: &u32| (requests, Sweep::of_sizes(&format!("nodes-{nodes}"), requests, &[*nodes]));
    let of_trace = |trace| (of_trace, Sweep::of_trace(trace, of_trace));
    let sweeps: Vec<(u32, Sweep)> = sizes.iter().map(of_size).chain(traces.iter().map(of_trace)).collect();
    let time = |requests: u32| Duration::from_micros(u64::from(requests) * 30 * PROTOCOL.words.len() as u64);
    let plan = sweeps.iter().flat_map(|(requests, _)| [Duration::from_secs(5), time(*requests)]);
    bench.rounds(&plan.collect::<Vec<_>>(), |bench| {
        sweeps.iter().try_for_each(|(_, sweep)| play(bench, sweep))
    })
}

/// Simulates a sweep with the paper's hardware and with today's, and runs it live.
fn play(bench: &mut Bench<'_>, sweep: &Sweep) -> Result<()> {
    for (case, row) in sweep.simulate(bench, TIME_MAX)? {
        bench.sample(&format!("{case}/paper"), of_row(&row))?;
    }
    let sets = [&*sweep.sets, &["profile=today".to_owned()]].concat();
    let name = bench.name(format!("{}-live", sweep.name));
    let path = sim::live(bench, &name, &sweep.config, &sets, TIME_MAX)?;
    for line in file(&path, fs::read_to_string(&path))?.lines() {
        let pair: Pair = serde_json::from_str(line)
            .map_err(|error| Error::Output { path: path.clone(), found: error.to_string() })?;
        let case = sweep.case(&pair.nodes.to_string(), &pair.protocol);
        bench.sample(&format!("{case}/today"), figures(|name| pair.simulated.get(name).copied()))?;
        let mut live = figures(|name| pair.live.get(name).copied());
        live.push(("wrong", pair.wrong as f64));
        if let Some(Sharing { cpu_us_per_request, waiting }) = pair.sharing {
            live.extend([("cpu_us_per_request", cpu_us_per_request), ("waiting_percent", 100.0 * waiting)]);
        }
        bench.sample(&format!("{case}/live"), live)?;
    }
    Ok(())
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("failing_percent", "*/*/*", |samples, case| &samples[case]["read_failure_rate"] * 100.0);
    let mut checks = beside_simulated(samples);
    let mut stated = Vec::new();
    for (of, id) in FIGURES {
        samples.derive("to_baseline", &format!("{id}/*/*"), |samples, case| {
            let mut words = case.split('/').skip(1);
            let (protocol, by) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            Judge { of, by: &format!("/{by}"), samples }.beside(protocol)
        });
        let [paper, today, live] = BY.map(|by| Judge { of, by: &format!("/{by}"), samples }.statements());
        for ((paper, today), Statement { published, check: live }) in paper.into_iter().zip(today).zip(live) {
            let figures = [&paper.check, &today.check, &live].map(|check| check.figure(2));
            let head = [id, &live.what, published.unwrap_or("–")].map(str::to_owned);
            stated.push(json!([&head[..], &figures].concat()));
            checks.push(live.named(|what| format!("{id}, live: {what}")));
        }
    }
    samples.settings.insert("stated".to_owned(), Value::from(stated));
    checks
}

/// Live beside today's hardware simulated.
fn beside_simulated(samples: &Samples) -> Vec<Check> {
    let runs = samples.begins("*/*");
    let of = |run: &str, by: &str, measure: &str| samples[format!("{run}/{by}")][measure].clone();
    let off = |run: &String| {
        let [requests, reads, failing] =
            ["requests", "read_rate", "read_failure_rate"].map(|measure| of(run, "today", measure));
        let failures = requests * reads * &failing;
        let off = (of(run, "live", "read_failure_rate") / failing - 1.0).map(f64::abs);
        off.with(&failures, |off, failures| only(off, failures >= FAILURES_MIN))
    };
    let is_ordered = |run: &&String| {
        let nodes = run.split('/').next().and_then(|place| place.parse::<u32>().ok());
        nodes.is_some_and(|nodes| nodes <= ORDERED_NODES_MAX)
    };
    let place = |run: &String| run.split('/').next().map(str::to_owned);
    // Whether live the other one answers more requests than simulated.
    let reversed = |(a, b): (&String, &String)| {
        let rate = |run, by| of(run, by, "requests_per_s");
        let apart = rate(a, "today").with(&rate(b, "today"), |a, b| only(0.0, a > APART * b));
        apart + rate(a, "live").with(&rate(b, "live"), |a, b| f64::from(u8::from(a < b)))
    };
    let ordered = || runs.iter().filter(is_ordered);
    let pairs = ordered().flat_map(|a| ordered().filter(|b| place(a) == place(b)).map(move |b| (a, b)));
    vec![
        Check::at_most(
            "answers with other bytes than the object's, all runs",
            0.0,
            samples.total("*/*/live", "wrong"),
        ),
        Check::at_most(
            format!(
                "reads that fail, live and simulated differ at most by this part, of the runs with {FAILURES_MIN} or more"
            ),
            0.1,
            some(&runs.iter().map(off).collect::<Vec<_>>(), most),
        ),
        Check::at_most(
            format!(
                "pairs of protocols with up to {ORDERED_NODES_MAX} nodes that are simulated to differ in throughput by more than a factor of \
                 {APART}, and live stand the other way round"
            ),
            0.0,
            some(&pairs.map(reversed).collect::<Vec<Series>>(), sum),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    /// The share of reads that fail and requests/s of a protocol, simulated and live.
    type Run = (&'static str, [(f64, f64); 2]);
    const RUNS: [Run; 3] = [
        ("rpc", [(0.0, 100.0), (0.0, 10.0)]),
        ("lazy", [(0.1, 150.0), (0.109, 12.0)]),
        ("ledger", [(0.0001, 160.0), (0.0005, 11.0)]),
    ];

    fn put(samples: &mut Samples, place: &str, runs: [Run; 3], wrong: f64) {
        for (protocol, figures) in runs {
            for (by, (failing, per_s)) in ["today", "live"].into_iter().zip(figures) {
                let figures = [
                    ("requests", 100_000.0),
                    ("requests_per_s", per_s),
                    ("response_ms_mean", 800.0 / per_s),
                    ("read_rate", 0.4),
                    ("read_failure_rate", failing),
                ];
                samples.put(&format!("{place}/{protocol}/{by}"), figures);
                samples.put(&format!("{place}/{protocol}/live"), [("wrong", wrong)]);
            }
        }
    }

    #[test]
    fn failures_are_judged_by_their_rate_and_throughput_by_its_order() {
        let verdicts = |place, wrong, change: fn(&mut [Run; 3])| {
            let mut runs = RUNS;
            change(&mut runs);
            let all = judged(&L1, |samples| put(samples, place, runs, wrong));
            <[&str; 3]>::try_from(&all[..3]).unwrap()
        };
        // Of the ledger's reads too few fail, and it is simulated to be as fast as lazy.
        assert_eq!(verdicts("4", 0.0, |_| ()), ["met"; 3]);
        assert_eq!(verdicts("4", 1.0, |_| ()), ["MISSED", "met", "met"]);
        assert_eq!(verdicts("4", 0.0, |runs| runs[1].1[1].0 = 0.111), ["met", "MISSED", "met"]);
        assert_eq!(verdicts("4", 0.0, |runs| runs[1].1[1].0 = 0.089), ["met", "MISSED", "met"]);
        assert_eq!(verdicts("4", 0.0, |runs| runs[2].1[1].1 = 9.0), ["met", "met", "MISSED"]);
        // Nobody asks for an order of many processes on a few CPUs.
        assert_eq!(verdicts("64", 0.0, |runs| runs[2].1[1].1 = 9.0), ["met", "met", "not measured"]);
    }

    #[test]
    fn what_is_stated_is_shown_of_each_by_itself() {
        let mut samples = Samples::new(DIMENSIONS, &MEASURES, &["4/*/*"]);
        samples.settings.insert("nodes".to_owned(), json!([4]));
        samples.begin();
        put(&mut samples, "4", RUNS, 0.0);
        conclude(&mut samples);
        let ledger = samples.settings["stated"][4].as_array().unwrap();
        assert_eq!(ledger[3..], ["–", "0.62", "0.91"]);
    }
}
