//! servers: R10's longest bursts on nodes that are gunicorn, beside nodes with the built-in origin.
//!
//! The service time is longer than R10's, so that the workers of eight gunicorns are the limit, and not the CPUs of a small
//! machine.

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
use crate::measure::{Case, Dimension, Measure, Word};
use crate::report::Settings;
use crate::samples::Samples;
use crate::setup::{CONFIGURATION, CONFIGURATIONS, Demand, Layout, RATIO_SLACK, Run, SERVICE, possible_rate};

/// As many times [`SERVICE`] a worker holds a request.
const SLOWER: u32 = 4;
const DEMAND: Demand = Demand::SingleFile(1024);
const LAYOUT: Layout = Layout::Three;
/// Requests for one site before the next site's turn.
const BURST: u64 = 2048;
/// Turns of each site in a run, in full and quick.
const ROUNDS: [u64; 2] = [3, 1];
/// Targets for requests/s: reconfigured to rigid and to over-provisioned, both on gunicorn.
const GAIN_MIN: f64 = 2.0;
const SHARE_MIN: f64 = 0.95;
/// Target for the median time of a move, on gunicorn to on the built-in origin.
const MOVE_MAX: f64 = 1.3;

pub(crate) const SERVERS: Experiment = Experiment::new(
    "servers",
    OWN,
    "bursts on gunicorn nodes, beside the built-in origin",
    Design {
        dimensions: &[
            CONFIGURATION,
            Dimension::new(
                "make",
                "servers",
                &[
                    Word::new("built-in", "built-in", Style::BASELINE),
                    Word::new("gunicorn", "gunicorn", Style::OURS),
                ],
            ),
        ],
        cases: &["*/*"],
        measures: &[
            Measure::new("requests_per_s", "requests/s", [1, 0]).possible(|case| 0.0..=possible(case)),
            Measure::new("p50_ms", "p50, ms", [3, 1]).possible(|case| 0.0..=case.most("p99_ms")),
            Measure::new("p99_ms", "p99, ms", [3, 1]),
            Measure::new("moves", "moves", [0, 0]),
            Measure::new("move_p50_ms", "a move, p50 ms", [3, 2]),
            Measure::new("errors", "errors", [0, 0]),
        ],
        charts: &[Chart::bars("bursts of 2048 requests", "requests_per_s", "configuration", "make")],
        settings: |_| {
            let settings = Settings::of(DEMAND);
            let requests_per_s_per_node = settings.requests_per_s_per_node / f64::from(SLOWER);
            let service_ms = (SERVICE * SLOWER).as_secs_f64() * 1e3;
            let settings = Settings { service_ms, requests_per_s_per_node, ..settings };
            json!({ "burst": BURST, "set_up": settings.describe() })
        },
        template: include_str!("servers.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

/// The most requests/s that the nodes and clients allow.
fn possible(case: &Case<'_>) -> f64 {
    let configuration = CONFIGURATIONS.into_iter().find(|of| case.is(&format!("{of}/*")));
    let most = |of| possible_rate(LAYOUT.ideal_rate(of), BURST, LAYOUT.nodes_in_all(of)) / f64::from(SLOWER);
    configuration.map_or(f64::INFINITY, most)
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let requests = bench.either(ROUNDS) * LAYOUT.sites() * BURST;
    let plan = |configuration| Run {
        layout: LAYOUT,
        demand: DEMAND,
        configuration,
        burst: BURST,
        pause: Duration::ZERO,
        requests,
    };
    let time = |configuration| plan(configuration).ideal_duration() * SLOWER;
    let times: Vec<Duration> = CONFIGURATIONS.into_iter().flat_map(|of| [time(of); 2]).collect();
    bench.rounds(&times, |bench| {
        for configuration in CONFIGURATIONS {
            for (make, options) in [("built-in", &[][..]), ("gunicorn", &["--servers", "gunicorn"])] {
                let run = plan(configuration);
                let (mut file, _) = run.plan(&bench.ground)?;
                file.nodes.iter_mut().for_each(|node| node.service_time = Some(SERVICE * SLOWER));
                let name = bench.name(format!("{make}-{configuration}"));
                let about = format!("{} on {make}", run.describe());
                bench.begin(&name);
                let summary = bench.up_on(options, &name, &about, &file, time(configuration))?;
                bench.end();
                let figures = [
                    ("requests_per_s", summary.requests_per_s),
                    ("p50_ms", summary.p50_ms),
                    ("p99_ms", summary.p99_ms),
                    ("moves", summary.moves as f64),
                    ("errors", summary.errors as f64),
                ];
                let took = summary.move_ms.map(|took| ("move_p50_ms", took.p50));
                bench.sample(&format!("{configuration}/{make}"), figures.into_iter().chain(took))?;
            }
        }
        Ok(())
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    use Configuration::{OverProvisioned, Reconfigured, Rigid};
    let rate = |of: Configuration| &samples[format!("{of}/gunicorn")]["requests_per_s"];
    let ratio = |over: Configuration, least| {
        let possible = 0.0..=RATIO_SLACK * LAYOUT.ideal_rate(Reconfigured) / LAYOUT.ideal_rate(over);
        let what = format!("gunicorn, bursts of {BURST}: reconfigured / {over}");
        Check::at_least(what, least, rate(Reconfigured) / rate(over)).possible(possible)
    };
    let took = |make| &samples[format!("reconfigured/{make}")]["move_p50_ms"];
    vec![
        ratio(Rigid, GAIN_MIN),
        ratio(OverProvisioned, SHARE_MIN),
        Check::at_most(
            "median time of a move: gunicorn / built-in",
            MOVE_MAX,
            took("gunicorn") / took("built-in"),
        ),
        Check::at_most("requests without an answer, all runs", 0.0, samples.total("*/*", "errors")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn gunicorn_is_judged_beside_itself_and_moves_beside_the_built_in_origin() {
        let verdicts = |reconfigured, move_ms, errors: f64| {
            judged(&SERVERS, |samples| {
                for (configuration, rate) in
                    [("rigid", 250.0), ("reconfigured", reconfigured), ("over-provisioned", 570.0)]
                {
                    let case = format!("{configuration}/gunicorn");
                    samples.put(&case, [("requests_per_s", rate), ("errors", errors)]);
                }
                samples.put("reconfigured/gunicorn", [("move_p50_ms", move_ms)]);
                samples.put("reconfigured/built-in", [("move_p50_ms", 20.0)]);
            })
        };
        assert_eq!(verdicts(550.0, 20.0, 0.0), ["met"; 4]);
        assert_eq!(verdicts(400.0, 40.0, 1.0), ["MISSED"; 4]);
        assert_eq!(judged(&SERVERS, |_| ()), ["not measured"; 4]);
    }
}
