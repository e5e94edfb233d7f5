//! A2 and A6: response times if all requests are admitted, if edges reject by load that they fetch over TCP, and if they
//! read it one-sidedly (Lai et al. 2008, "Performance with Single File Trace", "Performance with Worldcup and Zipf Trace").
//! Clients are in a closed loop.

use std::time::Duration;

use serde_json::json;

use super::{
    CLIENTS_AT_ONE_LOAD, EDGES, LoadPoint, PERIOD, QUEUE_MAX, SERVICE, SINGLE, START, SYSTEM, System,
    THRESHOLD, WORKERS, cluster_file, shares,
};
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::measure::{Case, Dimension, Measure};
use crate::samples::Samples;
use crate::series::Series;
use crate::setup::Demand;

/// Numbers of clients in all, as in the slides.
const CLIENTS: [&[u32]; 2] = [&[40, 120, 200, 280, 360, 440, 520], &[40, 520]];
const TRACES: &[Demand] = &[Demand::WorldCup, Demand::Zipf];
/// The duration of a run, in full and quick.
const TIMES: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(4)];

pub(crate) const A2: Experiment = Experiment::new(
    "A2",
    "Lai et al. 2008, single file trace",
    "response time by clients: no, TCP and one-sided admission control",
    Design {
        cases: &["16k/40,120,200,280,360,440,520/*"],
        charts: &[
            Chart::lines("(a) admitted requests", "mean_ms", "clients", "system").linear(),
            Chart::lines("(b) all", "requests_per_s", "clients", "system").linear(),
        ],
        run: |bench| {
            let clients = bench.either(CLIENTS);
            run(bench, &[SINGLE], clients)
        },
        conclude: by_clients,
        ..DESIGN
    },
);

pub(crate) const A6: Experiment = Experiment::new(
    "A6",
    "Lai et al. 2008, WorldCup and Zipf trace",
    "response time of WorldCup98 and Zipf: no, TCP and one-sided admission control",
    Design {
        cases: &["worldcup98,zipf/400/*"],
        charts: &[
            Chart::bars("(a) admitted requests", "mean_ms", "workload", "system"),
            Chart::bars("(b) all", "requests_per_s", "workload", "system"),
        ],
        run: |bench| run(bench, TRACES, &[CLIENTS_AT_ONE_LOAD]),
        conclude: by_workload,
        ..DESIGN
    },
);

const DESIGN: Design = Design {
    repeat: [3, 1],
    dimensions: &[
        Dimension::new("workload", "workload", &[]),
        Dimension::new("clients", "clients", &[]),
        SYSTEM,
    ],
    measures: &[
        Measure::new("mean_ms", "mean response, ms", [3, 1]).possible(|case| 0.0..=mean_ms_most(case)),
        Measure::new("p99_ms", "p99, ms", [3, 1]),
        Measure::new("requests_per_s", "answers/s", [3, 1]),
        Measure::new("answered", "answers", [0, 0]),
        Measure::new("rejected", "rejections", [0, 0]),
        Measure::derived("rejected_part", "rejected, of all", 2),
    ],
    settings: |quick| {
        json!({
            "run_s": TIMES[usize::from(quick)].as_secs_f64(),
            "held": null,
            "workers": WORKERS,
            "service_ms": SERVICE.as_secs_f64() * 1e3,
            "edges": EDGES,
            "period_ms": PERIOD.as_millis(),
            "queue_ms": QUEUE_MAX.as_millis(),
            "threshold": THRESHOLD,
        })
    },
    template: include_str!("response.md"),
    ..Design::DEFAULT
};

/// In a closed loop each client has one request in flight. A tenth is allowed for the ends of a run.
fn mean_ms_most(case: &Case<'_>) -> f64 {
    let clients = case.name.split('/').nth(1).and_then(|clients| clients.parse().ok());
    1.1 * 1e3 * clients.unwrap_or(f64::INFINITY) / (case.figure)("requests_per_s").unwrap_or(0.0)
}

fn run(bench: &mut Bench<'_>, demands: &[Demand], clients: &[u32]) -> Result<()> {
    let time = bench.either(TIMES);
    let cpus = shares(bench)?;
    let places: Vec<LoadPoint> = demands
        .iter()
        .flat_map(|&demand| clients.iter().map(move |&clients| LoadPoint { demand, clients }))
        .collect();
    bench.rounds(&vec![time + START; places.len() * System::ALL.len()], |bench| {
        for &place in &places {
            bench.in_turn(&System::ALL, |bench, system| {
                let (workload, clients) = (place.demand.label(), place.clients);
                let name = bench.name(format!("{workload}-{clients}-{}", system.word()));
                let about = format!("{workload}, {clients} clients, admission: {}", system.word());
                let file = cluster_file(&bench.ground, place, system, cpus, time);
                bench.begin(&name);
                let (summary, _) = bench.up(&name, &about, &file, time + START)?;
                bench.end();
                let figures = [
                    ("mean_ms", summary.mean_ms),
                    ("p99_ms", summary.p99_ms),
                    ("requests_per_s", summary.requests_per_s),
                    ("answered", (summary.requests - summary.errors - summary.rejected) as f64),
                    ("rejected", summary.rejected as f64),
                ];
                bench.sample(&format!("{workload}/{clients}/{}", system.word()), figures)
            })?;
        }
        Ok(())
    })
}

fn derive(samples: &mut Samples) {
    samples.derive("rejected_part", "*/*/*", |samples, case| {
        &samples[case]["rejected"] / (&samples[case]["rejected"] + &samples[case]["answered"])
    });
}

/// A figure of one-sided admission, to that of another system.
fn over(samples: &Samples, place: &str, other: &str, measure: &str) -> Series {
    &samples[format!("{place}/one-sided")][measure] / &samples[format!("{place}/{other}")][measure]
}

/// Lai et al. 2008: with 520 clients 192.31 ms without admission, 142.29 by TCP, 105.03 one-sided; "higher TPS than the original system".
fn by_clients(samples: &mut Samples) -> Vec<Check> {
    derive(samples);
    let top = |other, measure| over(samples, "16k/520", other, measure);
    vec![
        Check::at_most("mean response at the top: one-sided / tcp", 0.74, top("tcp", "mean_ms")),
        Check::at_most("mean response at the top: one-sided / none", 0.55, top("none", "mean_ms")),
        Check::at_least("requests/s at the top: one-sided / none", 1.0, top("none", "requests_per_s")),
    ]
}

/// Lai et al. 2008: WorldCup 17 % below TCP and 36 % below none, Zipf 23 % and 42 %.
fn by_workload(samples: &mut Samples) -> Vec<Check> {
    derive(samples);
    let paper = [
        ("worldcup98", "tcp", 0.83),
        ("worldcup98", "none", 0.64),
        ("zipf", "tcp", 0.77),
        ("zipf", "none", 0.58),
    ];
    let check = |(workload, other, most)| {
        let what = format!("mean response, {workload}: one-sided / {other}");
        Check::at_most(what, most, over(samples, &format!("{workload}/400"), other, "mean_ms"))
    };
    paper.map(check).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn the_papers_figures_are_met_by_the_paper() {
        let top = |systems: &[(&str, f64)]| {
            judged(&A2, |samples| {
                for (system, ms) in systems {
                    let figures = [("mean_ms", *ms), ("requests_per_s", 100.0)];
                    samples.put(&format!("16k/520/{system}"), figures);
                }
            })
        };
        let paper = [("none", 192.31), ("tcp", 142.29), ("one-sided", 105.03)];
        assert_eq!(top(&paper), ["met", "met", "met"]);
        assert_eq!(top(&paper[1..]), ["met", "not measured", "not measured"]);
        let zipf = judged(&A6, |samples| {
            samples.put("zipf/400/none", [("mean_ms", 100.0)]);
            samples.put("zipf/400/one-sided", [("mean_ms", 58.5)]);
        });
        assert_eq!(zipf, ["not measured", "not measured", "not measured", "MISSED"]);
    }

    #[test]
    fn a_closed_loop_has_as_many_requests_in_flight_as_clients() {
        let figure = |measure: &str| (measure == "requests_per_s").then_some(1000.0);
        let case = Case { name: "16k/100/none", figure: &figure };
        assert!((mean_ms_most(&case) - 110.0).abs() < 1e-9);
        assert_eq!(mean_ms_most(&Case { figure: &|_| None, ..case }), f64::INFINITY);
    }
}
