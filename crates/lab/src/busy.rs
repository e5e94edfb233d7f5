//! R9 and A1: reads from a busy target (Balaji et al. 2004, 4.2; Lai et al. 2008, "Performance of RDMA read and IPoIB").
//!
//! A two-sided operation waits for its turn on the target's CPU, the longer the more threads want it. A one-sided operation does not wait.

use std::time::Duration;

use serde_json::json;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::perf::{self, DIMENSIONS, MEASURES};
use crate::samples::Samples;
use crate::series::Series;

/// Numbers of busy threads, in full and quick.
const THREADS: [&[u32]; 2] = [&[0, 1, 2, 4, 8, 16, 32, 64], &[0, 1, 64]];
/// Bytes of the reads whose latency is measured: 64 for a load record, 1 for the "1 Byte message" of the slides.
const R9_BYTES: &str = "64";
const A1_BYTES: &str = "1";
/// Target for the p50 at 64 threads over the p50 at one. A figure has grown if its ratio is above this.
const RATIO_MAX: f64 = 1.2;
const RUN_TIME: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(2)];
const SIZES_TIME: Duration = Duration::from_secs(12);
/// Published by Lai et al. 2008 for reads of 1 byte from an idle target.
const RDMA_US: f64 = 5.2;
const IPOIB_US: f64 = 18.9;

const DESIGN: Design = Design {
    dimensions: DIMENSIONS,
    measures: MEASURES,
    template: concat!(include_str!("busy.md"), include_str!("perf.md")),
    ..Design::DEFAULT
};

pub(crate) const R9: Experiment = Experiment::new(
    "R9",
    "Balaji et al. 2004, Figure 9",
    "read from a busy target",
    Design {
        cases: &["latency/shm,tcp/64/0,1,2,4,8,16,32,64", "bandwidth/shm,tcp/65536/0,1,2,4,8,16,32,64"],
        charts: &[
            by_threads("(a) latency of reads of 64 bytes", "p50_us")
                .of("latency/*/*/*")
                .beside("mean_us", "mean")
                .unit(1.0, "p50 and mean (µs)"),
            by_threads("(b) bandwidth of reads of 64 KB", "mb_per_s").of("bandwidth/*/*/*"),
        ],
        settings: |_| perf::settings(json!({ "bytes": R9_BYTES })),
        run: |bench| run(bench, R9_BYTES, [None, Some("bandwidth")]),
        conclude: |samples| conclude(samples, R9_BYTES),
        ..DESIGN
    },
);
pub(crate) const A1: Experiment = Experiment::new(
    "A1",
    "Lai et al. 2008, micro-benchmarks",
    "read by message size, and from a busy target",
    Design {
        cases: &["latency/shm,tcp/1/0,1,2,4,8,16,32,64", "sizes/lai-rdma,lai-ipoib/1/0"],
        charts: &[
            Chart::lines("(a) by message size, idle target", "p50_us", "bytes", "fabric")
                .of("sizes/*/*/*")
                .bytes()
                .log(),
            by_threads("(b) latency of reads of 1 byte", "p50_us")
                .of("latency/*/*/*")
                .beside("mean_us", "mean")
                .unit(1.0, "p50 and mean (µs)"),
        ],
        settings: |_| perf::settings(json!({ "bytes": A1_BYTES })),
        run: |bench| run(bench, A1_BYTES, [Some("sizes"), None]),
        conclude: |samples| {
            for (fabric, us) in [("lai-rdma", RDMA_US), ("lai-ipoib", IPOIB_US)] {
                let published = |samples: &Samples, _: &str| Series(vec![Some(us); samples.repetitions()]);
                samples.derive("p50_us", &format!("sizes/{fabric}/*/*"), published);
            }
            conclude(samples, A1_BYTES)
        },
        ..DESIGN
    },
);

const fn by_threads(title: &'static str, measure: &'static str) -> Chart {
    Chart::lines(title, measure, "background", "fabric").steps().log()
}

/// Measures latency of reads of `bytes` by busy threads, after what is named first, and beside what is named second. The fabrics take
/// turns, so that a drift of the machine affects all of them.
fn run(bench: &mut Bench<'_>, bytes: &str, [first, beside]: [Option<&str>; 2]) -> Result<()> {
    let (ways, time, threads) = (perf::ways(bench, "read")?, bench.either(RUN_TIME), bench.either(THREADS));
    let kinds: Vec<&str> = ["latency"].into_iter().chain(beside).collect();
    let mut times = vec![SIZES_TIME; first.map_or(0, |_| ways.len())];
    times.extend(vec![time; threads.len() * kinds.len() * ways.len()]);
    bench.rounds(&times, |bench| {
        if let Some(kind) = first {
            for &way in &ways {
                perf::measure(bench, kind, kind, way, &["read", "--sizes", "all"], SIZES_TIME)?;
            }
        }
        for threads in threads {
            let count = threads.to_string();
            for &kind in &kinds {
                let how = if kind == "latency" {
                    &["--size", bytes][..]
                } else {
                    &["--size", "64K", "--bandwidth"]
                };
                let arguments = [&["read"], how, &["--background", &count]].concat();
                for &way in &ways {
                    perf::measure(bench, kind, &format!("{kind}-{threads}"), way, &arguments, time)?;
                }
            }
        }
        Ok(())
    })
}

fn conclude(samples: &mut Samples, bytes: &str) -> Vec<Check> {
    for (growth, measure) in [("p50_growth", "p50_us"), ("mean_growth", "mean_us")] {
        samples.derive(growth, "latency/*/*/64", |samples, case| {
            let one = samples.get(&format!("{}1", case.trim_end_matches("64")));
            one.map_or(Series::default(), |one| &samples[case][measure] / &one[measure])
        });
    }
    let growth = |fabric, growth| &samples[format!("latency/{fabric}/{bytes}/64")][growth];
    vec![
        Check::at_most(
            "read over shm, p50: 64 busy threads at the target / 1",
            RATIO_MAX,
            growth("shm", "p50_growth"),
        ),
        Check::at_least("the same over TCP, mean: it grows", RATIO_MAX, growth("tcp", "mean_growth")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn shm_is_to_stay_and_tcp_to_grow() {
        for (experiment, bytes) in [(&R9, "64"), (&A1, "1")] {
            let verdicts = |shm_us, tcp_us| {
                judged(experiment, |samples| {
                    samples.put(&format!("latency/shm/{bytes}/1"), [("p50_us", 0.010)]);
                    samples.put(&format!("latency/shm/{bytes}/64"), [("p50_us", shm_us)]);
                    samples.put(&format!("latency/tcp/{bytes}/1"), [("mean_us", 10.0)]);
                    samples.put(&format!("latency/tcp/{bytes}/64"), [("mean_us", tcp_us)]);
                })
            };
            assert_eq!(verdicts(0.011, 500.0), ["met", "met"]);
            assert_eq!(verdicts(0.013, 11.0), ["MISSED", "MISSED"]);
            assert_eq!(judged(experiment, |_| ()), ["not measured"; 2]);
        }
    }
}
