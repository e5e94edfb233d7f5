//! M9: throughput of two co-hosted sites whose requests are balanced by load, by scan interval (Vaidyanathan et al. 2006, 5.2.3).

use std::time::Duration;

use serde_json::json;

use super::pool::{Pool, START, Shares};
use super::{SCHEME, schemes, settings};
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::measure::{Dimension, Measure};
use crate::samples::Samples;

/// Granularities in ms, in full and quick. The paper's begin at 64; the finer one is additional.
const GRANULARITIES: [&[u32]; 2] = [&[8, 64, 128, 256, 512, 1024, 2048, 4096], &[64, 4096]];
const TIMES: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(5)];
/// 5.2.3: "an improvement close to 25% for RDMA-Sync scheme compared to the rest of the schemes".
const GAIN_MIN: f64 = 1.25;
/// The schemes that rdma-sync is compared with.
const OTHERS: [&str; 3] = ["socket-async", "socket-sync", "rdma-async"];

pub(crate) const M9: Experiment = Experiment::new(
    "M9",
    "Vaidyanathan et al. 2006, Figure 9",
    "throughput of two co-hosted sites by monitoring granularity",
    Design {
        repeat: [3, 3],
        dimensions: &[SCHEME, Dimension::new("granularity_ms", "granularity (ms)", &[])],
        cases: &["*/8,64,128,256,512,1024,2048,4096"],
        measures: &[
            Measure::new("requests_per_s", "requests/s", [1, 1]),
            // In the same repetition.
            Measure::derived("improvement_percent", "over socket-async, %", 1)
                .possible(|_| f64::NEG_INFINITY..=f64::INFINITY),
            Measure::derived("gain_percent", "over the best of the other three, %", 1),
            Measure::new("errors", "errors", [0, 0]),
        ],
        charts: &[
            Chart::lines("(a) throughput", "requests_per_s", "granularity_ms", "scheme"),
            Chart::lines("(b) over socket-async", "improvement_percent", "granularity_ms", "scheme")
                .unit(1.0, "improvement (%)"),
        ],
        settings: |quick| {
            let run_s = TIMES[usize::from(quick)].as_secs_f64();
            settings(json!({ "run_s": run_s, "set_up": "", "without_shares": null }))
        },
        template: include_str!("requests.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (granularities, time) = (bench.either(GRANULARITIES), bench.either(TIMES));
    let (schemes, shares) = (schemes(bench)?, Shares::here(bench)?);
    bench.set("set_up", shares.describe());
    bench.set("without_shares", shares.without.clone());
    bench.rounds(&vec![time + START; granularities.len() * schemes.len()], |bench| {
        for granularity_ms in granularities {
            // The schemes take turns, so that a drift of the machine affects all of them.
            for &scheme in &schemes {
                let name = bench.name(format!("{granularity_ms}-{scheme}"));
                let pool =
                    Pool { scheme, granularity: Duration::from_millis((*granularity_ms).into()), time };
                bench.begin(&name);
                let summary = pool.run(bench, &shares, &name)?;
                let figures = [("requests_per_s", summary.requests_per_s), ("errors", summary.errors as f64)];
                bench.sample(&format!("{scheme}/{granularity_ms}"), figures)?;
                bench.end();
            }
        }
        Ok(())
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    let at = |case: &str, scheme: &str| format!("{scheme}/{}", case.split('/').nth(1).unwrap_or_default());
    samples.derive("improvement_percent", "*/*", |samples, case| {
        (&samples[case]["requests_per_s"] / &samples[at(case, "socket-async")]["requests_per_s"] - 1.0)
            * 100.0
    });
    samples.derive("gain_percent", "rdma-sync/*", |samples, case| {
        let [one, two, three] = OTHERS.map(|other| &samples[at(case, other)]["requests_per_s"]);
        (&samples[case]["requests_per_s"] / one.max(two).max(three) - 1.0) * 100.0
    });
    let between = |scheme: &str, at: u32, under: u32| {
        let rate = |at| &samples[format!("{scheme}/{at}")]["requests_per_s"];
        rate(at) / rate(under)
    };
    vec![
        Check::at_least(
            "rdma-sync, requests/s: at 64 ms / at 4096 ms: it gains",
            1.0,
            between("rdma-sync", 64, 4096),
        ),
        Check::at_most(
            "socket-async, requests/s: at 64 ms / at 1024 ms: it loses",
            1.0,
            between("socket-async", 64, 1024),
        ),
        Check::at_most(
            "socket-sync, requests/s: at 64 ms / at 1024 ms: it loses",
            1.0,
            between("socket-sync", 64, 1024),
        ),
        Check::at_least(
            "at 64 ms, requests/s: rdma-sync / the best of the other three",
            GAIN_MIN,
            samples["rdma-sync/64"]["gain_percent"].map(|percent| 1.0 + percent / 100.0),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn the_paper_s_shape_is_recognized() {
        let verdicts = |async_64, rdma_64| {
            judged(&M9, |samples| {
                for (case, rate) in [
                    ("socket-async/64", async_64),
                    ("socket-sync/64", 90.0),
                    ("rdma-async/64", 100.0),
                    ("rdma-sync/64", rdma_64),
                    ("socket-async/1024", 100.0),
                    ("socket-sync/1024", 100.0),
                    ("rdma-sync/4096", 95.0),
                ] {
                    samples.put(case, [("requests_per_s", rate)]);
                }
            })
        };
        assert_eq!(verdicts(80.0, 126.0), ["met"; 4]);
        assert_eq!(verdicts(110.0, 90.0), ["MISSED", "MISSED", "met", "MISSED"]);
        assert_eq!(judged(&M9, |_| ()), ["not measured"; 4]);
    }
}
