//! M3: how long it takes to sample a node while threads keep its CPU busy (Vaidyanathan et al. 2006, 5.1.1), and how long
//! it takes until a load step is seen.

use std::time::Duration;

use serde_json::json;
use sidelong_config::Scheme;

use super::{SCHEME, load, schemes, settings};
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::measure::{Dimension, Measure};
use crate::samples::Samples;
use sidelong_perf::load::results::{Steps, Times};

const THREADS: [&[u32]; 2] = [&[1, 2, 4, 8, 16, 32, 64], &[1, 64]];
/// Thread counts at which load steps are made.
const STEPS_AT: [u32; 4] = [1, 4, 16, 64];
/// Seconds of samples, and of steps, in full and quick.
const TIMES: [[u64; 2]; 2] = [[5, 30], [2, 6]];
/// Target for one-sided schemes: the p50 at 64 threads over the p50 at one. A figure has grown if its ratio is above this.
const RATIO_MAX: f64 = 1.2;
/// Target for rdma-sync's p99 from a step to its being seen, at 64 threads, in us.
const SEEN_US_MAX: f64 = 1000.0;
/// Target for the ratio of socket-sync's p99 to it.
const SEEN_RATIO_MIN: f64 = 20.0;

pub(crate) const M3: Experiment = Experiment::new(
    "M3",
    "Vaidyanathan et al. 2006, Figure 3",
    "time to read a node's load, by busy threads",
    Design {
        dimensions: &[SCHEME, Dimension::new("background_threads", "busy threads on the node's CPU", &[])],
        cases: &["*/1,2,4,8,16,32,64"],
        measures: &[
            Measure::new("samples", "samples", [0, 0]),
            Measure::new("p50_us", "p50, µs", [3, 3]).possible(|case| 0.0..=case.most("p99_us")),
            Measure::new("p99_us", "p99, µs", [3, 2]).possible(|case| 0.0..=case.most("max_us")),
            Measure::new("max_us", "most, µs", [3, 2]),
            Measure::new("mean_us", "mean, µs", [3, 3]),
            Measure::new("unusable", "without a record", [0, 0]),
            Measure::derived("p50_growth", "p50 / 1 thread", 2),
            Measure::derived("mean_growth", "mean / 1 thread", 2),
            Measure::new("steps", "steps", [0, 0]),
            Measure::new("seen_p50_us", "p50, µs", [3, 2]).possible(|case| 0.0..=case.most("seen_p99_us")),
            // Infinite if more than one of a hundred is never seen.
            Measure::new("seen_p99_us", "p99, µs", [3, 2]),
            Measure::new("seen_max_us", "most, µs", [3, 2]),
            Measure::new("seen_mean_us", "mean, µs", [3, 2]),
            Measure::new("unseen", "not seen", [0, 0]),
            Measure::new("unclear", "left out", [0, 0]),
        ],
        charts: &[
            Chart::lines("(a) a sample", "mean_us", "background_threads", "scheme").log(),
            Chart::lines("(b) from a step to its being seen", "seen_p50_us", "background_threads", "scheme")
                .log(),
        ],
        settings: |quick| {
            let [seconds_of_samples, seconds_of_steps] = TIMES[usize::from(quick)];
            settings(
                json!({ "seconds_of_samples": seconds_of_samples, "seconds_of_steps": seconds_of_steps }),
            )
        },
        template: include_str!("latency.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (threads, [samples_s, steps_s]) = (bench.either(THREADS), bench.either(TIMES));
    let schemes = schemes(bench)?;
    let time = |threads: &u32| samples_s + if STEPS_AT.contains(threads) { steps_s } else { 0 };
    let plan = threads.iter().flat_map(|threads| vec![Duration::from_secs(time(threads)); schemes.len()]);
    bench.rounds(&plan.collect::<Vec<_>>(), |bench| {
        for threads in threads {
            // The schemes take turns, so that a drift of the machine affects all of them.
            for scheme in &schemes {
                let name = bench.name(format!("{threads}-{scheme}"));
                bench.begin(&name);
                let times: Times = measure(bench, "latency", *scheme, *threads, samples_s, &name)?;
                let mut figures =
                    vec![("samples", times.samples as f64), ("unusable", times.unusable as f64)];
                let us = |names: [&'static str; 4], of: &Times| {
                    let values = [of.p50_us, of.p99_us, of.max_us, of.mean_us];
                    names
                        .into_iter()
                        .zip(values)
                        .filter_map(|(name, value)| Some((name, value?)))
                        .collect::<Vec<_>>()
                };
                figures.extend(us(["p50_us", "p99_us", "max_us", "mean_us"], &times));
                if STEPS_AT.contains(threads) {
                    let mut steps: Steps = measure(bench, "step", *scheme, *threads, steps_s, &name)?;
                    if steps.unseen * 100 > steps.times.samples {
                        steps.times.p99_us = Some(f64::INFINITY);
                    }
                    let names = ["seen_p50_us", "seen_p99_us", "seen_max_us", "seen_mean_us"];
                    figures.extend(us(names, &steps.times));
                    let counts = [
                        ("steps", steps.times.samples),
                        ("unseen", steps.unseen),
                        ("unclear", steps.unclear),
                    ];
                    figures.extend(counts.map(|(name, count)| (name, count as f64)));
                }
                bench.sample(&format!("{scheme}/{threads}"), figures)?;
                bench.end();
            }
        }
        Ok(())
    })
}

/// The output of `perf load` for a measurement of `seconds`.
fn measure<T: TryFrom<sidelong_perf::load::results::Found>>(
    bench: &mut Bench<'_>,
    measure: &str,
    scheme: Scheme,
    threads: u32,
    seconds: u64,
    name: &str,
) -> Result<T> {
    let (count, time) = (threads.to_string(), seconds.to_string());
    let arguments = [measure, "--scheme", scheme.as_str(), "--background", &count, "--for", &time];
    load(bench, &format!("{measure}-{name}"), &arguments, Duration::from_secs(seconds))
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    for (growth, figure) in [("p50_growth", "p50_us"), ("mean_growth", "mean_us")] {
        samples.derive(growth, "*/*", |samples, case| {
            let (scheme, _) = case.split_once('/').unwrap_or_default();
            &samples[case][figure] / &samples[format!("{scheme}/1")][figure]
        });
    }
    let mut checks = Vec::new();
    for scheme in ["rdma-async", "rdma-sync", "e-rdma-sync"] {
        let growth = samples[format!("{scheme}/64")]["p50_growth"].clone();
        samples.claim(scheme, growth.holds(|growth| growth <= RATIO_MAX));
        checks.push(Check::at_most(
            format!("a sample by {scheme}, p50: 64 busy threads / 1"),
            RATIO_MAX,
            growth,
        ));
    }
    for scheme in ["socket-async", "socket-sync"] {
        let growth = samples[format!("{scheme}/64")]["mean_growth"].clone();
        samples.claim(scheme, growth.holds(|growth| growth >= RATIO_MAX));
        let what = format!("a sample by {scheme}, mean: 64 busy threads / 1: it grows");
        checks.push(Check::at_least(what, RATIO_MAX, growth));
    }
    let [ours, sockets] = ["rdma-sync/64", "socket-sync/64"].map(|case| &samples[case]["seen_p99_us"]);
    let what = "load step to its being seen by rdma-sync, p99 at 64 threads, µs";
    checks.push(Check::at_most(what, SEEN_US_MAX, ours));
    let what = "the same by socket-sync / by rdma-sync, p99 at 64 threads";
    checks.push(Check::at_least(what, SEEN_RATIO_MIN, sockets / ours));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn one_sided_is_to_stay_and_sockets_to_grow() {
        let verdicts = |rdma_us, seen_us| {
            judged(&M3, |samples| {
                for (case, us, seen_us) in [
                    ("socket-sync/1", 40.0, 80.0),
                    ("socket-sync/64", 7000.0, 50_000.0),
                    ("rdma-sync/1", 0.2, 20.0),
                    ("rdma-sync/64", rdma_us, seen_us),
                ] {
                    samples.put(case, [("p50_us", us), ("mean_us", us), ("seen_p99_us", seen_us)]);
                }
            })
        };
        let not = "not measured";
        assert_eq!(verdicts(0.21, 100.0), [not, "met", not, not, "met", "met", "met"]);
        assert_eq!(verdicts(0.25, 3000.0), [not, "MISSED", not, not, "met", "MISSED", "MISSED"]);
    }
}
