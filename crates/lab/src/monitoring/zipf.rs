//! M7: throughput of the auction and of static files beside it by scheme and by the exponent of the files' popularity
//! (Vaidyanathan et al. 2006, 5.2.1, Figure 7).

use std::time::Duration;

use serde_json::json;
use sidelong_figure::statistics::mean;

use super::auction::{self, Auction, PERIOD, START, System};
use super::{SCHEME, schemes, settings};
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::measure::{Dimension, Measure};
use crate::samples::Samples;
use crate::series::Series;

/// Exponents, in full and quick.
const ALPHAS: [&[&str]; 2] = [&["0.25", "0.5", "0.75", "0.9"], &["0.25", "0.9"]];
/// More than the nodes can serve while the requests for files rise, and less while they do not.
const PERSONS: u32 = 80;
/// Busy processes on one node of each site.
const BACKGROUND: u32 = 8;
/// The duration of a run: whole turns of the load, which rises for 5 s of 10.
const TIMES: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(10)];
/// What a rate loses at most before it counts as lower: two runs of one case differ by as much.
const NOISE: f64 = 0.02;

pub(crate) const M7: Experiment = Experiment::new(
    "M7",
    "Vaidyanathan et al. 2006, Figure 7",
    "throughput of the auction and of files beside it by Zipf's exponent",
    Design {
        repeat: [3, 1],
        dimensions: &[SCHEME, Dimension::new("alpha", "Zipf's exponent of the files", &[])],
        cases: &["*/0.25,0.5,0.75,0.9"],
        measures: &[
            // Successes of both sites.
            Measure::new("requests_per_s", "requests/s", [1, 1]),
            // In the same repetition.
            Measure::derived("improvement_percent", "over socket-async, %", 1),
            Measure::new("errors", "errors", [0, 0]),
        ],
        charts: &[
            Chart::lines("(a) throughput of both sites", "requests_per_s", "alpha", "scheme").linear(),
            Chart::lines("(b) over socket-async", "improvement_percent", "alpha", "scheme")
                .linear()
                .unit(1.0, "improvement (%)"),
        ],
        settings: |quick| {
            settings(json!({
                "run_s": TIMES[usize::from(quick)].as_secs_f64(),
                "persons": PERSONS,
                "background": BACKGROUND,
                "set_up": auction::describe(),
            }))
        },
        template: include_str!("zipf.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (alphas, time) = (bench.either(ALPHAS), bench.either(TIMES));
    let schemes = schemes(bench)?;
    bench.rounds(&vec![time + START; alphas.len() * schemes.len()], |bench| {
        for alpha in alphas {
            for &scheme in &schemes {
                let name = bench.name(format!("{alpha}-{scheme}"));
                let auction = Auction {
                    system: System::Edges(scheme),
                    granularity: PERIOD,
                    persons: PERSONS,
                    background: BACKGROUND,
                    files_alpha: alpha.parse().ok(),
                    gmond: None,
                    time,
                };
                bench.begin(&name);
                let (summary, _) = auction.run(bench, &name)?;
                bench.end();
                let errors = (summary.errors + summary.rejected) as f64;
                let figures = [("requests_per_s", summary.requests_per_s), ("errors", errors)];
                bench.sample(&format!("{scheme}/{alpha}"), figures)?;
            }
        }
        Ok(())
    })
}

/// The paper's order: socket-async, then rdma-sync, then e-rdma-sync.
fn conclude(samples: &mut Samples) -> Vec<Check> {
    // The ratio of the rates of two schemes at each exponent.
    let over = |samples: &Samples, case: &str, other: &str| {
        let alpha = case.split('/').nth(1).unwrap_or_default();
        &samples[case]["requests_per_s"] / &samples[format!("{other}/{alpha}")]["requests_per_s"]
    };
    samples.derive("improvement_percent", "*/*", |samples, case| {
        (over(samples, case, "socket-async") - 1.0) * 100.0
    });
    let check = |scheme: &str, other: &str, least: f64| {
        let cases = samples.cases(&format!("{scheme}/*"));
        let ratios: Vec<Series> = cases.into_iter().map(|case| over(samples, case, other)).collect();
        let ratio = Series::combine(&ratios.iter().collect::<Vec<_>>(), |ratios| mean(&ratios));
        Check::at_least(format!("requests/s: {scheme} / {other}, the mean over the exponents"), least, ratio)
    };
    vec![
        check("rdma-sync", "socket-async", 1.0),
        check("rdma-sync", "socket-sync", 1.0 - NOISE),
        check("rdma-sync", "rdma-async", 1.0 - NOISE),
        check("e-rdma-sync", "rdma-sync", 1.0 - NOISE),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::SCHEMES;
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn the_paper_s_order_is_recognized() {
        let verdicts = |rates: [f64; 5]| {
            judged(&M7, |samples| {
                for (scheme, rate) in SCHEMES.iter().zip(rates) {
                    for alpha in ALPHAS[1] {
                        samples.put(&format!("{scheme}/{alpha}"), [("requests_per_s", rate)]);
                    }
                }
            })
        };
        assert_eq!(verdicts([100.0, 101.0, 104.0, 128.0, 135.0]), ["met"; 4]);
        assert_eq!(verdicts([100.0, 101.0, 104.0, 97.0, 135.0]), ["MISSED", "MISSED", "MISSED", "met"]);
        assert_eq!(judged(&M7, |_| ()), ["not measured"; 4]);
    }
}
