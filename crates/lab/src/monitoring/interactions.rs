//! MT1: mean and longest response time of the auction's interactions by scheme, with other work on some of the nodes
//! (Vaidyanathan et al. 2006, 5.2.1, Table 1).
//!
//! One load tells little of schemes. So the other work grows, and the report says from where on they differ.

use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;
use sidelong_figure::statistics::median;

use super::auction::{self, Auction, PERIOD, START, System};
use super::{SCHEME, schemes, settings};
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;
use crate::series::Series;

const TIMES: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(12)];
/// Target for the longest responses by a one-sided scheme, to those by socket-async.
const RATIO_MAX: f64 = 0.5;
/// Loads, in full and quick: persons, and busy processes on each node that has other work. A node of two workers is overloaded by twice
/// as many others that run all the time.
const LOADS: [&[[u32; 2]]; 2] = [
    &[[80, 0], [80, 1], [80, 2], [80, 4], [80, 8], [80, 16], [40, 8], [120, 8]],
    &[[80, 0], [80, 4], [80, 16]],
];
/// The loads under which nodes are overloaded.
const OVERLOADED: [&str; 5] = ["80/4", "80/8", "80/16", "40/8", "120/8"];
/// The interactions of the paper's table.
const TABLE: [&str; 8] = [
    "Home",
    "Browse",
    "BrowseRegions",
    "BrowseCategoriesInRegion",
    "SearchItemsInRegion",
    "PutBidAuth",
    "Sell",
    "AboutMeAuth",
];

/// The schemes, and nginx.
const SYSTEMS: &[Word] = &[
    SCHEME.words[0],
    SCHEME.words[1],
    SCHEME.words[2],
    SCHEME.words[3],
    SCHEME.words[4],
    Word::new("nginx", "nginx", Style::series(5)),
];

pub(crate) const MT1: Experiment = Experiment::new(
    "MT1",
    "Vaidyanathan et al. 2006, Table 1",
    "mean and longest response of the auction's interactions, by other work on the nodes",
    Design {
        repeat: [3, 1],
        dimensions: &[
            Dimension::new("persons", "persons", &[]),
            Dimension::new("background", "busy processes on each of two nodes", &[]),
            Dimension::new("system", "system", SYSTEMS),
            // The median stands for the eight of the paper's table.
            Dimension::new("interaction", "interaction", &[]),
        ],
        cases: &[
            "80/0,1,2,4,8,16/*/median,Home,Browse,BrowseRegions,BrowseCategoriesInRegion,SearchItemsInRegion,PutBidAuth,Sell,AboutMeAuth",
            "40,120/8/*/median,Home,Browse,BrowseRegions,BrowseCategoriesInRegion,SearchItemsInRegion,PutBidAuth,Sell,AboutMeAuth",
        ],
        measures: &[
            Measure::new("requests", "requests", [0, 0]),
            Measure::new("errors", "errors", [0, 0]),
            Measure::new("mean_ms", "mean response (ms)", [3, 0]).possible(|case| 0.0..=case.most("max_ms")),
            Measure::new("max_ms", "longest response (ms)", [3, 0]),
            // To socket-async in the same repetition, the median over the paper's eight interactions.
            Measure::derived("max_ratio", "longest", 2),
            Measure::derived("mean_ratio", "mean", 2),
        ],
        charts: &[
            Chart::lines("(a) longest response, the median interaction", "max_ms", "background", "system")
                .linear()
                .of("80/*/*/median"),
            Chart::lines("(b) mean response, the median interaction", "mean_ms", "background", "system")
                .linear()
                .of("80/*/*/median"),
        ],
        settings: |quick| {
            settings(json!({
                "run_s": TIMES[usize::from(quick)].as_secs_f64(),
                "set_up": auction::describe(),
                // Why no nginx could be controlled.
                "without_nginx": null,
            }))
        },
        template: include_str!("interactions.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (loads, time) = (bench.either(LOADS), bench.either(TIMES));
    let mut systems: Vec<System> = schemes(bench)?.into_iter().map(System::Edges).collect();
    systems.push(System::Nginx);
    bench.rounds(&vec![time + START; loads.len() * systems.len()], |bench| {
        for &[persons, background] in loads {
            // The systems take turns, so that a drift of the machine affects all of them.
            for &system in &systems {
                if system == System::Nginx && !bench.samples.settings["without_nginx"].is_null() {
                    bench.skip();
                    continue;
                }
                let (granularity, files_alpha, gmond) = (PERIOD, None, None);
                let auction = Auction { system, granularity, persons, background, files_alpha, gmond, time };
                let name = bench.name(format!("{persons}-{background}-{}", system.word()));
                bench.begin(&name);
                let ran = auction.run(bench, &name);
                bench.end();
                let walk = match ran {
                    Err(Error::Failed { said, .. }) if said.contains("--front") => {
                        bench.set("without_nginx", said.trim_start_matches("sidelong: "));
                        continue;
                    }
                    ran => ran?.1,
                };
                for of in walk.interactions.into_iter().filter(|of| of.max_ms > 0.0) {
                    let case = format!("{persons}/{background}/{}/{}", system.word(), of.interaction);
                    let figures = [
                        ("requests", of.requests as f64),
                        ("errors", (of.errors + of.rejected) as f64),
                        ("mean_ms", of.mean_ms),
                        ("max_ms", of.max_ms),
                    ];
                    bench.sample(&case, figures)?;
                }
            }
        }
        Ok(())
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    // The median over the interactions of what `of` makes of each.
    fn over_table(of: impl Fn(&str) -> Series) -> Series {
        let all = TABLE.map(of);
        Series::combine(&all.each_ref(), median)
    }
    for (figure, ratio) in [("max_ms", "max_ratio"), ("mean_ms", "mean_ratio")] {
        samples.derive(ratio, "*/*/*/median", |samples, case| {
            let at: Vec<&str> = case.split('/').collect();
            over_table(|interaction| {
                let of = |system| &samples[format!("{}/{}/{system}/{interaction}", at[0], at[1])][figure];
                of(at[2]) / of("socket-async")
            })
        });
        samples.derive(figure, "*/*/*/median", |samples, case| {
            over_table(|interaction| samples[case.replace("median", interaction)][figure].clone())
        });
    }
    let check = |scheme: &str| {
        let ratio = |load: &str| &samples[format!("{load}/{scheme}/median")]["max_ratio"];
        let what =
            format!("longest responses, {scheme} / socket-async, from 4 busy processes on: the median");
        Check::at_most(what, RATIO_MAX, Series::combine(&OVERLOADED.map(ratio), median))
    };
    ["rdma-async", "rdma-sync", "e-rdma-sync"].map(check).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn one_sided_schemes_are_judged_where_nodes_are_overloaded() {
        let verdicts = |home_ms: Option<f64>| {
            judged(&MT1, |samples| {
                for (system, max_ms) in [
                    ("80/0/socket-async", 20.0),
                    ("80/0/rdma-sync", 20.0),
                    ("80/16/socket-async", 400.0),
                    ("80/16/rdma-sync", 40.0),
                    ("80/16/rdma-async", 240.0),
                ] {
                    for interaction in TABLE {
                        let max_ms = home_ms.filter(|_| interaction == "Home").unwrap_or(max_ms);
                        samples
                            .put(&format!("{system}/{interaction}"), [("mean_ms", 3.0), ("max_ms", max_ms)]);
                    }
                }
            })
        };
        assert_eq!(verdicts(None), ["MISSED", "met", "not measured"]);
        assert_eq!(
            verdicts(Some(900.0)),
            ["MISSED", "met", "not measured"],
            "one interaction does not decide"
        );
    }
}
