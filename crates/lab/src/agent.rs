//! agent: what Sidelong costs a server that is not its own, here nginx.
//!
//! An agent beside the server costs it nothing: the CPU time of nginx for a request is measured while the agent runs beside it on
//! the same CPU, and while the agent is stopped. And an edge serves as many requests before nginx as before the built-in origin.
//!
//! All processes live from the start to the end. The systems take turns, because the machine's speed drifts; what is not in its
//! turn is stopped (SIGSTOP). The ratios within a round are judged.

mod stage;

use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::cpus;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Word};
use crate::samples::Samples;
use crate::turn::MEASURES;
use stage::{CONNECTIONS, Stage};

/// The duration of a turn, in full and quick.
const TIMES: [Duration; 2] = [Duration::from_secs(3), Duration::from_millis(800)];
/// Warm-up of each system before the first round.
const WARM_UP: Duration = Duration::from_millis(500);
/// Target for the CPU time of nginx for a request, with the agent beside it to without.
const CPU_MAX: f64 = 1.01;
/// Target for the edge's requests/s before nginx to those before the built-in origin.
const RATE_MIN: f64 = 0.97;

pub(crate) const AGENT: Experiment = Experiment::new(
    "agent",
    OWN,
    "nginx with an agent beside it, and behind the edge",
    Design {
        repeat: [15, 5],
        dimensions: &[Dimension::new(
            "system",
            "",
            &[
                Word::new("alone", "nginx", Style::BASELINE),
                Word::new("watched", "nginx and agent", Style::OURS),
                Word::new("origin", "edge before the origin", Style::THIRD),
                Word::new("nginx", "edge before nginx", Style::FIFTH),
            ],
        )],
        cases: &["*"],
        measures: MEASURES,
        charts: &[
            Chart::bars("(a) CPU time of nginx for a request", "cpu_us_per_request", "system", "system")
                .of("alone,watched"),
            Chart::bars("(b) requests/s of an edge", "requests_per_s", "system", "system").of("origin,nginx"),
        ],
        settings: |quick| json!({ "turn_s": TIMES[usize::from(quick)].as_secs_f64(), "connections": CONNECTIONS, "object": stage::OBJECT }),
        template: include_str!("agent.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    let (time, systems) = (bench.either(TIMES), bench.cases());
    bench.expect_for(4 * WARM_UP);
    bench.begin("warm-up");
    let stage = Stage::set(bench)?;
    systems.iter().try_for_each(|system| stage.turn(system, WARM_UP).map(drop))?;
    bench.end();
    // The warm-up is not judged.
    bench.take_spoilt();
    bench.rounds(&[4 * time], |bench| {
        bench.round_of(&systems, |bench, system| bench.sample(&system, stage.turn(&system, time)?.figures()))
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    vec![
        Check::at_most(
            "CPU time of nginx for a request, with / without agent, median of the rounds",
            CPU_MAX,
            &samples["watched"]["cpu_us_per_request"] / &samples["alone"]["cpu_us_per_request"],
        ),
        Check::at_least(
            "requests/s of an edge, before nginx / before the origin, median of the rounds",
            RATE_MIN,
            &samples["nginx"]["requests_per_s"] / &samples["origin"]["requests_per_s"],
        ),
        Check::at_most("requests without an answer, all turns", 0.0, samples.total("*", "errors")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn nginx_is_judged_beside_itself_and_an_edge_beside_an_edge() {
        let verdicts = |watched_us: f64, nginx_per_s: f64, errors: f64| {
            judged(&AGENT, |samples| {
                samples.put("alone", [("cpu_us_per_request", 20.0)]);
                samples.put("watched", [("cpu_us_per_request", watched_us)]);
                samples.put("origin", [("requests_per_s", 10_000.0)]);
                samples.put("nginx", [("requests_per_s", nginx_per_s), ("errors", errors)]);
            })
        };
        assert_eq!(verdicts(20.1, 9_800.0, 0.0), ["met"; 3]);
        assert_eq!(verdicts(21.0, 9_000.0, 1.0), ["MISSED"; 3]);
        assert_eq!(judged(&AGENT, |_| ()), ["not measured"; 3]);
    }
}
