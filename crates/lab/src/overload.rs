//! A7 and A8: an open loop from half the capacity to ten times it, in steps and in bursts, on two sites of unequal
//! priority. A7 compares Sidelong's admission control with none and with the published rule, A8 with other proxies before
//! the same servers. The experiment gunicorn has foreign servers, of which the cluster file does not say how many requests
//! they serve at a time.
//!
//! The servers stay up. The systems take turns before them, each started anew for its run and warmed up for some seconds.
//! The figures of a run come from the outcome of each request, by the time it was due.

mod judge;
mod plan;
mod stage;

use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;
use sidelong_figure::statistics::median;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::peers::{self, Found, Peer};
use crate::samples::Samples;
use crate::series::{Series, most};
use plan::{Extent, Part, Plan};
use stage::Stage;

const EDGES: u16 = 1;
const NODES: usize = 4;
/// Requests that a server serves at a time, and the service time of one, spent waiting.
const WORKERS: u16 = 4;
const SERVICE: Duration = Duration::from_millis(20);
/// What all servers together can serve, in requests/s.
const CAPACITY_PER_S: f64 = NODES as f64 * WORKERS as f64 * 50.0;
/// Requests that wait at a server. Further ones get 503.
const QUEUE_DEPTH_MAX: u32 = 256;

/// Indices of the two sites.
const HIGH: usize = 0;
const LOW: usize = 1;
const NAMES: [&str; 2] = ["high", "low"];
const HOSTS: [&str; 2] = ["high.example", "low.example"];
/// Rate of the higher priority, constant: nine tenths of the one server that is its share.
const HIGH_PER_S: f64 = 0.9 * CAPACITY_PER_S / NODES as f64;

/// The target: 99 of 100 answers come within this time.
const TARGET: Duration = Duration::from_millis(60);
const TARGET_MS: f64 = TARGET.as_millis() as f64;
/// Lai et al. 2008: "Load information updated every 1 ms".
const PERIOD: Duration = Duration::from_millis(1);
/// Threshold of their rule: all workers busy and half as many requests waiting.
const THRESHOLD: f64 = 1.0;
/// Each client has its turn within this time, which is shorter than all measured intervals.
const ROTATION: Duration = Duration::from_secs(1);

/// The loads above the capacity.
const OVERLOADS: &str = "1.1,1.5,2,4,10";
/// Targets. On gunicorn the loads that are judged, and the goodput.
const GUNICORN_LOADS: [u32; 2] = [2, 10];
const GUNICORN_GOODPUT_MIN: f64 = 0.93;
const GOODPUT_MIN: f64 = 0.95;
const FAIRNESS_MIN: f64 = 0.95;
const RECOVERY_MS_MAX: f64 = 20.0;
const REJECT_MS_MAX: f64 = 2.0;

/// What serves the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Servers {
    /// The built-in origin.
    Builtin,
    /// A gunicorn of [`WORKERS`] synchronous workers for each node.
    Gunicorn,
}

/// A system under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    None,
    /// The rule of Lai et al. 2008, by records that are read one-sidedly.
    Paper,
    Ours,
    Peer(Peer),
}

impl System {
    const fn word(self) -> &'static str {
        match self {
            System::None => "none",
            System::Paper => "one-sided",
            System::Ours => "ours",
            System::Peer(peer) => peer.word(),
        }
    }
}

pub(crate) const A7: Experiment = Experiment::new(
    "A7",
    OWN,
    "half to ten times the capacity: no, one-sided, and Sidelong's admission control",
    Design {
        cases: &["0.5,0.8,1.1,1.5,2,4,10,step-1.4,burst-10,run/none,one-sided,ours/all"],
        run: |bench| run(bench, Servers::Builtin, &[System::None, System::Paper, System::Ours], &[]),
        conclude: |samples| {
            derive(samples);
            alone(samples)
        },
        ..DESIGN
    },
);

pub(crate) const A8: Experiment = Experiment::new(
    "A8",
    OWN,
    "half to ten times the capacity: Sidelong beside Envoy, HAProxy and httpd",
    Design {
        cases: &[
            "0.5,0.8,1.1,1.5,2,4,10,step-1.4,burst-10,run/ours,envoy-adaptive,envoy-admission,haproxy,httpd-sidelong/all",
        ],
        run: |bench| run(bench, Servers::Builtin, &[System::Ours], &Peer::ALL),
        conclude: |samples| {
            derive(samples);
            Peer::ALL.iter().flat_map(|peer| beside_a_peer(samples, *peer)).collect()
        },
        ..DESIGN
    },
);

pub(crate) const GUNICORN: Experiment = Experiment::new(
    "gunicorn",
    OWN,
    "goodput by load on gunicorns whose workers the file does not give",
    Design {
        cases: &["0.5,0.8,1.1,1.5,2,4,10,step-1.4,burst-10,run/ours/all"],
        charts: &[in_time(GUNICORN_GOODPUT_MIN), ADMITTED, AFTER_A_STEP],
        run: |bench| run(bench, Servers::Gunicorn, &[System::Ours], &[]),
        conclude: |samples| {
            derive(samples);
            let check = |load| {
                let what = format!("workers not given: goodput, of the capacity, at {load} times the load");
                let goodput = &samples[format!("{load}/ours/all")]["goodput"];
                Check::at_least(what, GUNICORN_GOODPUT_MIN, goodput)
            };
            GUNICORN_LOADS.map(check).into()
        },
        ..DESIGN
    },
);

const DESIGN: Design = Design {
    repeat: [3, 1],
    dimensions: &[
        // Of steps, of bursts, or of all of a run.
        Dimension::new("offered_load", "load, of the capacity", &[]),
        Dimension::new(
            "system",
            "system",
            &[
                Word::new("none", "none", Style::BASELINE),
                Word::new("one-sided", "one-sided", Style::THIRD),
                Word::new("ours", "ours", Style::OURS),
                Word::new("envoy-adaptive", "envoy-adaptive", Style::BASELINE),
                Word::new("envoy-admission", "envoy-admission", Style::FOURTH),
                Word::new("haproxy", "haproxy", Style::THIRD),
                Word::new("httpd-sidelong", "httpd-sidelong", Style::FIFTH),
            ],
        ),
        // All steps, laid one over another, have a curve. All else is of the whole part.
        Dimension::new("after_ms", "ms since the step", &[]),
    ],
    measures: &[
        // Requests of the end of a part are served after it, and steps and bursts can use what was idle before.
        Measure::new("goodput", "goodput", [4, 3])
            .possible(|case| 0.0..=if case.is("step-1.4,burst-10/*/*") { 1.5 } else { 1.05 }),
        Measure::new("p99_ms", "p99, ms", [2, 1]),
        Measure::new("reject_ms", "rejected: knows after, p99, ms", [3, 2]),
        Measure::new("recovery_ms", "settled after, ms", [0, 0]),
        Measure::new("fairness", "Jain", [4, 3]).possible(|_| 0.0..=1.0 + 1e-9),
        Measure::new("high_answered", "high: answered", [4, 4]).possible(|_| 0.0..=1.0),
        Measure::new("high_p99_ms", "high: p99, ms", [2, 1]),
        Measure::new("requests", "requests", [0, 0]),
        Measure::new("rejected", "rejections", [0, 0]).possible(|case| 0.0..=case.most("requests")),
        Measure::new("failed", "failures", [0, 0]).possible(|case| 0.0..=case.most("requests")),
        Measure::derived("rejected_part", "rejected", 3),
        Measure::derived("failed_part", "failed", 3),
        Measure::new("mean_ms", "mean response, ms", [2, 1]),
        // Of a run.
        Measure::new("machine_busy", "CPUs in use, of all", [3, 2]).possible(|_| 0.0..=1.0),
        Measure::new("front_cpu_s", "its own CPU time, s", [2, 1]),
        Measure::new("dropped", "not sent for want of room", [0, 0]),
    ],
    charts: &[in_time(GOODPUT_MIN), ADMITTED, AFTER_A_STEP],
    settings: |quick| {
        let extent = Extent::of(quick);
        json!({
            "run_s": Plan::new(&extent).length.as_secs_f64().round(),
            "steady_s": extent.steady.as_secs(),
            "steps": extent.steps,
            "bursts": extent.bursts,
            "step_from": plan::STEP[0],
            "step_to": plan::STEP[1],
            "step_ms": plan::STEP_LASTS.as_millis(),
            "burst_from": plan::BURST[0],
            "burst_to": plan::BURST[1],
            "burst_ms": plan::BURST_LASTS.as_millis(),
            "burst_every_ms": plan::BURST_EVERY.as_millis(),
            "high_clients": plan::HIGH_CLIENTS,
            "low_clients": plan::LOW_CLIENTS,
            "nodes": NODES,
            "workers": WORKERS,
            "service_ms": SERVICE.as_millis(),
            "capacity_per_s": CAPACITY_PER_S,
            "high_per_s": HIGH_PER_S,
            "target_ms": TARGET_MS,
            "rotation_s": ROTATION.as_secs(),
            "threshold": THRESHOLD,
            // What the others were told, and those that are not here.
            "told": [],
            "missing": [],
        })
    },
    template: include_str!("overload.md"),
    ..Design::DEFAULT
};

const fn in_time(target: f64) -> Chart {
    Chart::lines("(a) in time", "goodput", "offered_load", "system")
        .of("*/*/all")
        .unit(1.0, "goodput, of what could be")
        .limit(target, "target")
}

const ADMITTED: Chart = Chart::lines("(b) admitted requests", "p99_ms", "offered_load", "system")
    .of("*/*/all")
    .log()
    .limit(TARGET_MS, "target");
const AFTER_A_STEP: Chart = Chart::lines("(c) a step to 1.4", "mean_ms", "after_ms", "system")
    .of("step-1.4/*/*")
    .linear()
    .bare()
    .log()
    .limit(TARGET_MS, "target");

fn run(bench: &mut Bench<'_>, servers: Servers, systems: &[System], peers: &[Peer]) -> Result<()> {
    let plan = Plan::new(&Extent::of(bench.options.quick));
    let peers::Looked { here, missing } = peers::find(bench, peers)?;
    bench.set("missing", missing);
    let stage = Stage::set(bench, servers)?;
    let place = stage.place(bench);
    let told: Vec<String> = here.iter().map(|(peer, found)| peer.told(found, &place)).collect();
    bench.set("told", told);
    let mut systems: Vec<(System, Option<Found>)> = systems.iter().map(|system| (*system, None)).collect();
    systems.extend(here.into_iter().map(|(peer, found)| (System::Peer(peer), Some(found))));
    bench.rounds(&vec![plan.length; systems.len()], |bench| {
        let plan = plan.again(bench.repetition);
        bench.in_turn(&systems, |bench, (system, found)| {
            let word = system.word();
            let name = bench.name(word);
            bench.begin(&name);
            let ran = stage.run(bench, system, found.as_ref(), &name, &plan)?;
            bench.end();
            for (part, range) in &plan.parts {
                let figures = judge::figures(&plan, *part, range, &ran.samples);
                bench.sample(&format!("{}/{word}/all", part.label()), figures)?;
            }
            for (ms, mean_ms) in judge::after_a_step(&plan, &ran.samples) {
                let case = format!("{}/{word}/{ms:.0}", Part::Steps.label());
                bench.sample(&case, [("mean_ms", mean_ms)])?;
            }
            let machine = [
                ("machine_busy", ran.machine_busy),
                ("front_cpu_s", ran.front_cpu_s),
                ("dropped", ran.dropped as f64),
            ];
            bench.sample(&format!("run/{word}/all"), machine)
        })
    })
}

fn derive(samples: &mut Samples) {
    for (part, of) in [("rejected_part", "rejected"), ("failed_part", "failed")] {
        samples.derive(part, "*/*/all", |samples, case| &samples[case][of] / &samples[case]["requests"]);
    }
}

fn least(values: Vec<f64>) -> Option<f64> {
    values.into_iter().reduce(f64::min)
}

/// What `of` makes of a figure of a system at all loads above the capacity.
fn at_overload(samples: &Samples, system: &str, measure: &str, of: fn(Vec<f64>) -> Option<f64>) -> Series {
    samples.over(&format!("{OVERLOADS}/{system}/all"), measure, of)
}

fn targets(samples: &Samples, system: &str) -> [Check; 2] {
    let goodput = format!("{system}: goodput, of the capacity, the least at any overload");
    let p99 = format!("{system}: p99 of admitted requests, ms, the most at any overload");
    [
        Check::at_least(goodput, GOODPUT_MIN, at_overload(samples, system, "goodput", least)),
        Check::at_most(p99, TARGET_MS, at_overload(samples, system, "p99_ms", most)),
    ]
}

fn alone(samples: &Samples) -> Vec<Check> {
    let ours = |measure, of| at_overload(samples, "ours", measure, of);
    let [goodput, p99] = targets(samples, "ours");
    vec![
        goodput,
        p99,
        Check::at_least(
            "of the higher priority, below its share: answered, the least at any overload",
            1.0,
            ours("high_answered", least),
        )
        .possible(0.0..=1.0),
        Check::at_most("its p99, ms, the most at any overload", TARGET_MS, ours("high_p99_ms", most)),
        Check::at_most(
            "ms until a step to 1.4 of the capacity is settled",
            RECOVERY_MS_MAX,
            &samples["step-1.4/ours/all"]["recovery_ms"],
        ),
        Check::at_least(
            "Jain's index of equal clients, the least at any overload",
            FAIRNESS_MIN,
            ours("fairness", least),
        )
        .possible(0.0..=1.0 + 1e-9),
        Check::at_most(
            "ms until a rejected client knows, p99, at ten times the load",
            REJECT_MS_MAX,
            &samples["10/ours/all"]["reject_ms"],
        ),
    ]
}

/// The median over all overloads of the ratio of Sidelong's figure to the peer's in the same round. httpd follows our
/// verdicts, and so our targets.
fn beside_a_peer(samples: &Samples, peer: Peer) -> [Check; 2] {
    let name = peer.word();
    if peer == Peer::Httpd {
        return targets(samples, name);
    }
    let ratio = |measure: &str| {
        let of = |load: &str, system| &samples[format!("{load}/{system}/all")][measure];
        let ratios: Vec<Series> =
            OVERLOADS.split(',').map(|load| of(load, "ours") / of(load, name)).collect();
        Series::combine(&ratios.iter().collect::<Vec<_>>(), median)
    };
    [
        Check::at_least(format!("goodput at overload: ours / {name}"), 1.0, ratio("goodput")),
        Check::at_most(format!("p99 at overload: ours / {name}"), 1.0, ratio("p99_ms")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    fn put(samples: &mut Samples, load: &str, system: &str, goodput: f64, p99_ms: f64) {
        let figures = [("goodput", goodput), ("p99_ms", p99_ms), ("reject_ms", 0.5), ("fairness", 0.97)];
        let of_high = [("high_answered", 1.0), ("high_p99_ms", 25.0)];
        samples.put(&format!("{load}/{system}/all"), figures.into_iter().chain(of_high));
    }

    #[test]
    fn the_worst_overload_is_judged() {
        let verdicts = |goodput, p99_ms, recovery_ms: Option<f64>| {
            judged(&A7, |samples| {
                put(samples, "0.5", "ours", 0.1, 999.0);
                put(samples, "1.1", "ours", goodput, p99_ms);
                put(samples, "10", "ours", 0.951, 59.0);
                samples.put("step-1.4/ours/all", recovery_ms.map(|ms| ("recovery_ms", ms)));
            })
        };
        assert_eq!(verdicts(0.96, 45.0, None), ["met", "met", "met", "met", "not measured", "met", "met"]);
        assert_eq!(verdicts(0.9, 61.0, Some(15.0))[..5], ["MISSED", "MISSED", "met", "met", "met"]);
    }

    #[test]
    fn gunicorn_is_judged_at_two_loads() {
        let verdicts = judged(&GUNICORN, |samples| {
            for (load, goodput) in [("1.1", 0.5), ("2", 0.94), ("10", 0.92)] {
                put(samples, load, "ours", goodput, 50.0);
            }
        });
        assert_eq!(verdicts, ["met", "MISSED"]);
    }

    #[test]
    fn a_peer_is_compared_within_a_round_at_overload() {
        let verdicts = judged(&A8, |samples| {
            put(samples, "0.5", "ours", 0.5, 1.0);
            put(samples, "0.5", "haproxy", 1.0, 9.0);
            for (load, ours, theirs) in [("1.1", 0.9, 0.95), ("2", 0.96, 0.8), ("10", 0.96, 0.8)] {
                put(samples, load, "ours", ours, 60.0);
                put(samples, load, "haproxy", theirs, 50.0);
                put(samples, load, "httpd-sidelong", 0.9, 50.0);
            }
        });
        let left_out = ["not measured"; 4];
        assert_eq!(verdicts, [&left_out[..], &["met", "MISSED"], &["MISSED", "met"]].concat());
    }
}
