//! move-latency: how long a site whose load has just risen waits for the first request on a node that moved to it.
//!
//! Bursts go to three sites in turn. In the case that is judged there is a pause between two bursts, so that each finds the
//! other sites idle and its own site with the one node of its floor. In the other case there is no pause: the nodes of the
//! previous site must first finish its queue.

use std::time::Duration;

use serde_json::json;
use sidelong_config::Configuration;
use sidelong_figure::Style;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::report::Settings;
use crate::samples::Samples;
use crate::setup::{Demand, Layout, Run};
use crate::up::Spread;

/// Requests of a burst: a quarter of a second of work for the nodes that it moves to its site.
const BURST: u64 = 600;
const DEMAND: Demand = Demand::SingleFile(1024);
/// Number of bursts, each of which is a load step, in full and quick.
const BURSTS: [u64; 2] = [240, 60];
/// The pause between two bursts from rest. Requests in flight end, and all sites are seen to be idle.
const PAUSE: Duration = Duration::from_millis(100);
/// Target for the p50 at S = 1 ms and T = 2 ms.
const P50_MS_MAX: f64 = 10.0;
/// Steps that a run in full needs to be judged. Another edge may act first in some bursts.
const STEPS_MIN: f64 = 100.0;

pub(crate) const MOVE_LATENCY: Experiment = Experiment::new(
    "move-latency",
    OWN,
    "load step to first request on a moved node",
    Design {
        // The state in which a burst finds the cluster.
        dimensions: &[Dimension::new(
            "case",
            "case",
            &[
                Word::new("rest", "rest: each burst finds the cluster at rest", Style::OURS),
                Word::new("busy", "busy: each burst follows at once", Style::BASELINE),
            ],
        )],
        cases: &["*"],
        measures: &[
            Measure::new("bursts", "bursts", [0, 0]),
            Measure::new("steps", "load steps that moved a node", [0, 0])
                .possible(|case| 0.0..=case.most("bursts")),
            Measure::new("p50_ms", "p50, ms", [3, 2]).possible(|case| 0.0..=case.most("p99_ms")),
            Measure::new("p99_ms", "p99, ms", [3, 2]).possible(|case| 0.0..=case.most("max_ms")),
            Measure::new("max_ms", "most, ms", [3, 2]),
            Measure::new("moves", "moves", [0, 0]),
            Measure::new("requests_per_s", "requests/s", [1, 0]),
            Measure::new("errors", "errors", [0, 0]),
        ],
        charts: &[
            Chart::bars("half of the load steps", "p50_ms", "case", "case").unit(1.0, "ms"),
            Chart::bars("99 of 100", "p99_ms", "case", "case").unit(1.0, "ms"),
        ],
        settings: |quick| {
            let Settings { record_period_ms, history_ms, sensitivity_ms, .. } = Settings::of(DEMAND);
            json!({
                "burst": BURST,
                "bursts": BURSTS[usize::from(quick)],
                "pause_ms": PAUSE.as_millis(),
                "record_period_ms": record_period_ms,
                "history_ms": history_ms,
                "sensitivity_ms": sensitivity_ms,
                "set_up": Settings::of(DEMAND).describe(),
            })
        },
        template: include_str!("latency.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn plan(case: &str, bursts: u64) -> Run {
    Run {
        layout: Layout::Three,
        demand: DEMAND,
        configuration: Configuration::Reconfigured,
        burst: BURST,
        pause: if case == "rest" { PAUSE } else { Duration::ZERO },
        requests: bursts * BURST,
    }
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.serve(DEMAND)?;
    let (bursts, cases) = (bench.either(BURSTS), bench.cases());
    let times: Vec<Duration> = cases.iter().map(|case| plan(case, bursts).ideal_duration()).collect();
    bench.rounds(&times, |bench| {
        for case in &cases {
            let summary = bench.run(&plan(case, bursts))?.summary;
            let spread = |Spread { count, p50, p99, max }: Spread| {
                [("steps", count as f64), ("p50_ms", p50), ("p99_ms", p99), ("max_ms", max)]
            };
            let mut figures = vec![("bursts", bursts as f64), ("steps", 0.0)];
            figures.extend(summary.step_to_first_request_ms.into_iter().flat_map(spread));
            figures.extend([
                ("moves", summary.moves as f64),
                ("requests_per_s", summary.requests_per_s),
                ("errors", summary.errors as f64),
            ]);
            bench.sample(case, figures)?;
        }
        Ok(())
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    let rest = &samples["rest"];
    let is_full = samples.settings["bursts"] == BURSTS[0];
    vec![
        Check::at_most(
            "load step to first request on a moved node, from rest: p50, ms",
            P50_MS_MAX,
            &rest["p50_ms"],
        ),
        Check::at_least(
            "load steps from rest that moved a node",
            STEPS_MIN,
            if is_full { rest["steps"].clone() } else { None.into() },
        ),
        Check::at_most("requests without an answer, both runs", 0.0, samples.total("*", "errors")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn from_rest_is_judged_and_busy_is_not() {
        let verdicts = |steps: f64, p50_ms: f64| {
            judged(&MOVE_LATENCY, |samples| {
                samples.put("rest", [("steps", steps), ("p50_ms", p50_ms), ("errors", 0.0)]);
                samples.put("busy", [("steps", 240.0), ("p50_ms", 21.0), ("errors", 0.0)]);
            })
        };
        assert_eq!(verdicts(240.0, 6.0), ["met", "met", "met"]);
        assert_eq!(verdicts(90.0, 11.0), ["MISSED", "MISSED", "met"]);
    }

    #[test]
    fn the_runs_differ_in_the_pause_alone() {
        let [rest, busy] = ["rest", "busy"].map(|case| plan(case, BURSTS[0]));
        assert_eq!(Run { pause: Duration::ZERO, ..rest }, busy);
        assert_eq!(
            (rest.name().as_str(), busy.name().as_str()),
            ("3-sites-600-pause-100ms-reconfigured", "3-sites-600-reconfigured")
        );
    }
}
