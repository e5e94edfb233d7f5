//! R5-R8: latency and bandwidth by message size (Balaji et al. 2004, 4.1), one operation each.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::perf::{self, DIMENSIONS, MEASURES};
use crate::samples::Samples;
use crate::series::{Series, most};

/// Planned time for all sizes over one fabric.
const RUN_TIME: [Duration; 2] = [Duration::from_secs(12), Duration::from_secs(2)];
/// Figures that the paper prints of RDMA read: times of 1 byte in us, and the most MB/s.
const POLLING_US: f64 = 11.89;
const EVENTS_US: f64 = 23.97;
const IPOIB_US: f64 = 53.8;
const RDMA_MB_PER_S: f64 = 839.1;
const IPOIB_MB_PER_S: f64 = 231.0;
/// Target for the target's CPU time for a one-sided operation, relative to the operation's time: the paper says "negligible".
const TARGET_SHARE_MAX: f64 = 0.05;

/// All sizes, in their order.
macro_rules! cases {
    ($kind:literal) => {
        concat!(
            $kind,
            "/shm,tcp/1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,32768,65536,131072,262144,524288,1048576/0"
        )
    };
}

const LATENCY: Chart =
    Chart::lines("(a) latency", "p50_us", "bytes", "fabric").of("latency/*/*/0").bytes().log();
const BANDWIDTH: Chart = Chart::lines("(b) bandwidth, windows of 16", "mb_per_s", "bytes", "fabric")
    .of("bandwidth/*/*/0")
    .bytes()
    .log();

const DESIGN: Design = Design {
    dimensions: DIMENSIONS,
    cases: &[cases!("latency"), cases!("bandwidth"), "peak/shm,tcp,verbs-polling/all/0"],
    measures: MEASURES,
    charts: &[LATENCY, BANDWIDTH],
    template: concat!(include_str!("sizes.md"), include_str!("perf.md")),
    ..Design::DEFAULT
};

pub(crate) const R5: Experiment = Experiment::new(
    "R5",
    "Balaji et al. 2004, Figure 5",
    "read, by message size",
    Design {
        cases: &[
            cases!("latency"),
            cases!("bandwidth"),
            "peak/shm,tcp,verbs-polling/all/0",
            "latency/balaji-polling,balaji-events,balaji-ipoib/1/0",
            // The paper names no size.
            "bandwidth/balaji-polling,balaji-ipoib/1,1048576/0",
        ],
        charts: &[LATENCY, BANDWIDTH.beside("paper_mb_per_s", "the paper at any size: RDMA, IPoIB")],
        settings: |_| settings("one-sided read"),
        run: |bench| run(bench, "read"),
        conclude: |samples| {
            let published = [
                ("p50_us", "latency/balaji-polling/*/*", POLLING_US),
                ("p50_us", "latency/balaji-events/*/*", EVENTS_US),
                ("p50_us", "latency/balaji-ipoib/*/*", IPOIB_US),
                ("paper_mb_per_s", "bandwidth/balaji-polling/*/*", RDMA_MB_PER_S),
                ("paper_mb_per_s", "bandwidth/balaji-ipoib/*/*", IPOIB_MB_PER_S),
            ];
            for (measure, cases, value) in published {
                samples.derive(measure, cases, |samples, _| Series(vec![Some(value); samples.repetitions()]));
            }
            // The targets are the paper's ratios.
            let rounded = |ratio: f64| (ratio * 10.0).floor() / 10.0;
            let ratios = [IPOIB_US / POLLING_US, RDMA_MB_PER_S / IPOIB_MB_PER_S];
            conclude(samples, "read", ratios.map(rounded))
        },
        ..DESIGN
    },
);
pub(crate) const R6: Experiment = Experiment::new(
    "R6",
    "Balaji et al. 2004, Figure 6",
    "send and receive, by message size",
    Design {
        settings: |_| settings("send and receive"),
        run: |bench| run(bench, "send"),
        conclude: |samples| conclude(samples, "send", [1.0; 2]),
        ..DESIGN
    },
);
pub(crate) const R7: Experiment = Experiment::new(
    "R7",
    "Balaji et al. 2004, Figure 7",
    "write, by message size",
    Design {
        settings: |_| settings("one-sided write"),
        run: |bench| run(bench, "write"),
        conclude: |samples| conclude(samples, "write", [1.0; 2]),
        ..DESIGN
    },
);
pub(crate) const R8: Experiment = Experiment::new(
    "R8",
    "Balaji et al. 2004, Figure 8",
    "write with immediate data, by message size",
    Design {
        settings: |_| settings("write with immediate data"),
        run: |bench| run(bench, "write-imm"),
        conclude: |samples| conclude(samples, "write-imm", [1.0; 2]),
        ..DESIGN
    },
);

fn settings(operation: &str) -> Value {
    perf::settings(json!({
        "operation": operation,
        "polling_us": POLLING_US,
        "events_us": EVENTS_US,
        "ipoib_us": IPOIB_US,
        "rdma_mb_per_s": RDMA_MB_PER_S,
        "ipoib_mb_per_s": IPOIB_MB_PER_S,
    }))
}

fn run(bench: &mut Bench<'_>, operation: &str) -> Result<()> {
    let (ways, time) = (perf::ways(bench, operation)?, bench.either(RUN_TIME));
    bench.rounds(&vec![time; 2 * ways.len()], |bench| {
        for (kind, option) in [("latency", None), ("bandwidth", Some("--bandwidth"))] {
            let arguments: Vec<&str> = [operation, "--sizes", "all"].into_iter().chain(option).collect();
            for &way in &ways {
                perf::measure(bench, kind, kind, way, &arguments, time)?;
            }
        }
        Ok(())
    })
}

fn conclude(samples: &mut Samples, operation: &str, [latency_min, rate_min]: [f64; 2]) -> Vec<Check> {
    samples.derive("mb_per_s", "peak/*/*/*", |samples, case| {
        let fabric = case.split('/').nth(1).unwrap_or_default();
        samples.over(&format!("bandwidth/{fabric}/*/0"), "mb_per_s", most)
    });
    let [shm, tcp] = ["shm", "tcp"].map(|fabric| &samples[format!("latency/{fabric}/1/0")]);
    let peak = |fabric| &samples[format!("peak/{fabric}/all/0")]["mb_per_s"];
    let mut checks = vec![
        Check::at_least(
            format!("{operation} of 1 byte, p50: TCP / shm"),
            latency_min,
            &tcp["p50_us"] / &shm["p50_us"],
        ),
        Check::at_least(
            format!("{operation}, most bytes a second at any size: shm / TCP"),
            rate_min,
            peak("shm") / peak("tcp"),
        ),
    ];
    if matches!(operation, "read" | "write") {
        let what = "of 1 byte over shm: CPU time of the target / time of the operation (\"negligible\")";
        let share = &shm["target_cpu_us"] / &shm["mean_us"];
        checks.push(Check::at_most(format!("{operation} {what}"), TARGET_SHARE_MAX, share));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn ratios_of_the_paper_are_to_be_reached() {
        let verdicts = |tcp_us, tcp_mb_per_s, target_us| {
            judged(&R5, |samples| {
                let cpu = [("mean_us", 0.1), ("target_cpu_us", target_us)];
                samples.put("latency/shm/1/0", [("p50_us", 0.1)].into_iter().chain(cpu));
                samples.put("latency/tcp/1/0", [("p50_us", tcp_us)]);
                samples.put("bandwidth/shm/1048576/0", [("mb_per_s", 8000.0)]);
                samples.put("bandwidth/tcp/1048576/0", [("mb_per_s", 2000.0)]);
                samples.put("bandwidth/tcp/524288/0", [("mb_per_s", tcp_mb_per_s)]);
            })
        };
        assert_eq!(verdicts(0.45, 1000.0, 0.005), ["met"; 3]);
        assert_eq!(verdicts(0.44, 4000.0, 0.006), ["MISSED"; 3], "the peaks count");
        assert_eq!(judged(&R6, |_| ()), ["not measured"; 2]);
    }
}
