//! M4: how much slower an application on the node gets while the node is sampled, by granularity (Vaidyanathan et al. 2006,
//! 5.1.2).

use std::time::Duration;

use serde_json::json;

use super::{SCHEME, START, load, schemes, settings};
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::measure::{Dimension, Measure};
use crate::samples::Samples;
use sidelong_perf::load::results::Slowdown;

/// Granularities in ms, in full and quick.
const GRANULARITIES: [&[u32]; 2] = [&[1, 4, 16, 64, 256, 1024], &[1, 64]];
/// Seconds of the application in all.
const SECONDS: [u64; 2] = [20, 4];
/// Target for rdma-sync at the finest granularity, beyond the cost of its events.
const DELAY_MAX: f64 = 1.01;

pub(crate) const M4: Experiment = Experiment::new(
    "M4",
    "Vaidyanathan et al. 2006, Figure 4",
    "slowdown of an application by monitoring, by granularity",
    Design {
        dimensions: &[SCHEME, Dimension::new("granularity_ms", "granularity (ms)", &[])],
        cases: &["*/1,4,16,64,256,1024"],
        measures: &[
            // Sampling makes nothing faster. A tenth is allowed for other differences between runs.
            Measure::new("normalized_delay", "delay", [5, 4]).possible(|_| 0.9..=f64::INFINITY),
            Measure::new("kept", "for keeping the record", [5, 4]),
            Measure::new("sampling", "for the samples", [5, 4]).possible(|_| 0.9..=f64::INFINITY),
            Measure::new("alone_ms", "alone, ms", [1, 1]),
            Measure::new("rounds", "rounds", [0, 0]),
        ],
        charts: &[
            Chart::lines("(a) sampled", "normalized_delay", "granularity_ms", "scheme")
                .unit(1.0, "time / time without monitoring")
                .near(),
            Chart::lines("(b) what the samples add", "sampling", "granularity_ms", "scheme")
                .unit(1.0, "time / time with a node not sampled")
                .near(),
        ],
        settings: |quick| settings(json!({ "seconds": SECONDS[usize::from(quick)] })),
        template: include_str!("slowdown.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (granularities, seconds) = (bench.either(GRANULARITIES), bench.either(SECONDS));
    let time = Duration::from_secs(seconds) + 10 * START;
    let schemes = schemes(bench)?;
    bench.rounds(&vec![time; granularities.len() * schemes.len()], |bench| {
        for granularity_ms in granularities {
            for scheme in &schemes {
                let name = bench.name(format!("{granularity_ms}ms-{scheme}"));
                bench.begin(&name);
                let (granularity, time_s) = (granularity_ms.to_string(), seconds.to_string());
                let mut arguments = vec!["slowdown", "--scheme", scheme.as_str()];
                arguments.extend(["--granularity", &granularity, "--for", &time_s]);
                arguments.extend(bench.options.quick.then_some("--quick"));
                let Slowdown { rounds, alone_ms, normalized_delay, kept, sampling } =
                    load(bench, &name, &arguments, time)?;
                let figures = [
                    ("normalized_delay", normalized_delay),
                    ("kept", kept),
                    ("sampling", sampling),
                    ("alone_ms", alone_ms),
                    ("rounds", rounds as f64),
                ];
                bench.sample(&format!("{scheme}/{granularity_ms}"), figures)?;
                bench.end();
            }
        }
        Ok(())
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    let order = ["socket-async", "socket-sync", "rdma-async", "rdma-sync"];
    let [worst, second, third, least] =
        order.map(|scheme| samples[format!("{scheme}/1")]["normalized_delay"].clone());
    let falls = worst.at_least(&second).and(&second.at_least(&third)).and(&third.at_least(&least));
    samples.claim("order", falls);
    vec![
        Check::at_most(
            "an application while rdma-sync is sampled each 1 ms / while nobody samples",
            DELAY_MAX,
            &samples["rdma-sync/1"]["sampling"],
        ),
        Check::at_least(
            "its delay by socket-async / by the worst of the other three, at 1 ms: it is the worst",
            1.0,
            worst / second.max(&third).max(&least),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn samples_are_judged_without_the_cost_of_events() {
        let verdicts = |rows: &[(&str, f64, f64)]| {
            judged(&M4, |samples| {
                for (scheme, delay, sampling) in rows {
                    samples
                        .put(&format!("{scheme}/1"), [("normalized_delay", *delay), ("sampling", *sampling)]);
                }
            })
        };
        let mut rows = vec![("socket-async", 1.2, 1.1), ("socket-sync", 1.1, 1.1), ("rdma-async", 1.05, 1.0)];
        assert_eq!(verdicts(&rows), ["not measured", "not measured"]);
        rows.push(("rdma-sync", 1.03, 1.0));
        assert_eq!(verdicts(&rows), ["met", "met"]);
        rows[1].1 = 1.3;
        rows[3].2 = 1.02;
        assert_eq!(verdicts(&rows), ["MISSED", "MISSED"]);
    }
}
