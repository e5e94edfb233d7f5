//! M5: threads and CPU load in the record against the truth (Vaidyanathan et al. 2006, 5.1.3).

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
use crate::series::Series;
use sidelong_perf::load::results::Accuracy;

/// Numbers of threads that come and go, in full and quick.
const LOADS: [&[u32]; 2] = [&[1, 4, 16, 64], &[4, 64]];
const SECONDS: [u64; 2] = [20, 3];
/// The schemes that rdma-sync is compared with: all others but its own variant.
const OTHERS: [&str; 3] = ["socket-async", "socket-sync", "rdma-async"];

pub(crate) const M5: Experiment = Experiment::new(
    "M5",
    "Vaidyanathan et al. 2006, Figure 5",
    "threads and CPU load against the truth",
    Design {
        repeat: [3, 1],
        dimensions: &[SCHEME, Dimension::new("load", "threads that come and go", &[])],
        cases: &["*/1,4,16,64"],
        measures: &[
            Measure::new("samples", "samples", [0, 0]),
            Measure::new("threads_mean", "deviation of threads, mean", [3, 2])
                .possible(|case| 0.0..=case.most("threads_max")),
            Measure::new("threads_max", "most", [3, 2]),
            Measure::new("cpu_mean", "of CPU load, mean, %", [3, 2])
                .possible(|case| 0.0..=case.most("cpu_max")),
            Measure::new("cpu_max", "most, %", [3, 2]).possible(|_| 0.0..=100.0),
            Measure::derived("threads_ratio", "threads / the least of the others", 2),
            Measure::derived("cpu_ratio", "CPU load / the least of the others", 2),
        ],
        charts: &[
            Chart::lines("(a) threads", "threads_mean", "load", "scheme")
                .unit(1.0, "mean deviation (threads)"),
            Chart::lines("(b) CPU load", "cpu_mean", "load", "scheme")
                .unit(1.0, "mean deviation (percent of the CPUs)"),
        ],
        settings: |quick| settings(json!({ "seconds": SECONDS[usize::from(quick)], "cpu_truth": "" })),
        template: include_str!("accuracy.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (loads, seconds) = (bench.either(LOADS), bench.either(SECONDS));
    let time = Duration::from_secs(seconds) + START;
    let schemes = schemes(bench)?;
    bench.rounds(&vec![time; loads.len() * schemes.len()], |bench| {
        for threads in loads {
            for scheme in &schemes {
                let name = bench.name(format!("{threads}-{scheme}"));
                bench.begin(&name);
                let (count, time_s) = (threads.to_string(), seconds.to_string());
                let arguments =
                    ["accuracy", "--scheme", scheme.as_str(), "--background", &count, "--for", &time_s];
                let found: Accuracy = load(bench, &name, &arguments, time)?;
                let figures = [
                    ("samples", Some(found.samples as f64)),
                    ("threads_mean", found.threads.mean),
                    ("threads_max", found.threads.max),
                    ("cpu_mean", found.cpu_percent.mean),
                    ("cpu_max", found.cpu_percent.max),
                ];
                bench.set("cpu_truth", found.cpu_truth);
                let figures = figures.into_iter().filter_map(|(name, value)| Some((name, value?)));
                bench.sample(&format!("{scheme}/{threads}"), figures)?;
                bench.end();
            }
        }
        Ok(())
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    let loads: Vec<String> = samples
        .cases("rdma-sync/*")
        .into_iter()
        .filter_map(|case| Some(case.split_once('/')?.1.to_owned()))
        .collect();
    let mut checks = Vec::new();
    for (field, mean, ratio) in
        [("threads", "threads_mean", "threads_ratio"), ("cpu", "cpu_mean", "cpu_ratio")]
    {
        samples.derive(ratio, "rdma-sync/*", |samples, ours| {
            let others = OTHERS.map(|other| samples[ours.replace("rdma-sync", other)][mean].clone());
            let [one, two, three] = &others;
            let least = one.min(two).min(three);
            // What does not deviate is as good as can be.
            samples[ours][mean].with(&least, |ours, least| if ours == 0.0 { 0.0 } else { ours / least })
        });
        for load in &loads {
            let ratio = &samples[format!("rdma-sync/{load}")][ratio];
            samples.claim(format!("{field} {load}"), ratio.holds(|ratio| ratio <= 1.0));
        }
        let measured =
            loads.iter().filter(|load| samples[format!("rdma-sync/{load}")][mean].known().next().is_some());
        let ratios: Vec<Series> =
            measured.map(|load| samples[format!("rdma-sync/{load}")][ratio].clone()).collect();
        let worst = ratios.into_iter().reduce(|one, other| one.max(&other)).unwrap_or_default();
        let what = format!(
            "{field}: mean deviation of rdma-sync / the least of the others, at the load where that is most"
        );
        checks.push(Check::at_most(what, 1.0, worst));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn the_kernel_s_record_is_to_deviate_least() {
        let verdicts = |schemes: &[&str], ours: f64, other: f64| {
            judged(&M5, |samples| {
                for scheme in schemes {
                    let mean = if *scheme == "rdma-sync" { ours } else { other };
                    samples.put(&format!("{scheme}/4"), [("threads_mean", mean), ("cpu_mean", mean)]);
                }
            })
        };
        let all = ["socket-async", "socket-sync", "rdma-async", "rdma-sync"];
        assert_eq!(verdicts(&all, 0.5, 1.0), ["met", "met"]);
        assert_eq!(verdicts(&all, 1.5, 1.0), ["MISSED", "MISSED"]);
        assert_eq!(verdicts(&all, 0.0, 0.0), ["met", "met"]);
        assert_eq!(verdicts(&all, 0.1, 0.0), ["MISSED", "MISSED"]);
        assert_eq!(verdicts(&all[1..], 0.5, 1.0), ["not measured", "not measured"]);
    }
}
