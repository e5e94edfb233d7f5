//! R15-R24: nodes in use over time (Balaji et al. 2004, 4.3.2), of R10 to R14's runs with bursts of 512 and 8192.
//!
//! Balaji et al. 2004 count the nodes that are fully used to serve the loaded site. `up` samples, for each site, the sum of the busy shares
//! of its nodes. One site is loaded at a time, so that the sum over the sites is that count, also in samples in which one burst ends and the
//! next begins.

use std::time::Duration;

use serde_json::{Value, json};
use sidelong_config::Configuration::{self, OverProvisioned, Reconfigured, Rigid};

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::measure::{Dimension, Word};
use crate::report;
use crate::samples::Samples;
use crate::setup::{CONFIGURATIONS, Demand, Layout, Run, style_of};
use crate::throughput::{BURST, MEASURES, Measured, REQUESTS_MIN, SITES, derive_ratio, measure, plan};

/// The burst lengths of the paper's figures.
const BURSTS: [u64; 2] = [512, 8192];

/// Reconfigured should lie on over-provisioned most of the time, and is drawn last.
const CONFIGURATION: Dimension = Dimension::new(
    "configuration",
    "configuration",
    &[
        Word::new("over-provisioned", "over-provisioned", style_of(OverProvisioned).beneath()),
        Word::new("rigid", "rigid", style_of(Rigid)),
        Word::new("reconfigured", "reconfigured", style_of(Reconfigured)),
    ],
);

const DESIGN: Design = Design {
    dimensions: &[SITES, BURST, CONFIGURATION, Dimension::new("second", "time (s)", &[])],
    measures: MEASURES,
    charts: &[
        Chart::lines("(a) bursts of 512", "nodes_busy", "second", "configuration")
            .of("*/512/*/*")
            .linear()
            .bare()
            .first(),
        Chart::lines("(b) bursts of 8192", "nodes_busy", "second", "configuration")
            .of("*/8192/*/*")
            .linear()
            .bare()
            .first(),
    ],
    template: concat!(include_str!("utilisation.md"), include_str!("balaji.md")),
    ..Design::DEFAULT
};

macro_rules! experiments {
    ($($id:ident, $figure:literal, $sites:literal $layout:ident $label:literal, $workload:literal, $demand:expr;)*) => {$(
        pub(crate) const $id: Experiment = Experiment::new(
            stringify!($id),
            concat!("Balaji et al. 2004, Figure ", $figure),
            concat!("nodes in use, ", $sites, " sites, ", $workload),
            Design {
                cases: &[concat!($label, "/512,8192/*/run")],
                settings: |_| settings($demand, Layout::$layout),
                run: |bench| run(bench, $demand, Layout::$layout),
                conclude: |samples| conclude(samples, Layout::$layout),
                ..DESIGN
            },
        );
    )*};
}

experiments! {
    R15, 15, 3 Three "3:3:2", "one file of 1 KB", Demand::SingleFile(1 << 10);
    R16, 16, 4 Four "2:2:2:2", "one file of 1 KB", Demand::SingleFile(1 << 10);
    R17, 17, 3 Three "3:3:2", "one file of 4 KB", Demand::SingleFile(4 << 10);
    R18, 18, 4 Four "2:2:2:2", "one file of 4 KB", Demand::SingleFile(4 << 10);
    R19, 19, 3 Three "3:3:2", "one file of 16 KB", Demand::SingleFile(16 << 10);
    R20, 20, 4 Four "2:2:2:2", "one file of 16 KB", Demand::SingleFile(16 << 10);
    R21, 21, 3 Three "3:3:2", "Zipf", Demand::Zipf;
    R22, 22, 4 Four "2:2:2:2", "Zipf", Demand::Zipf;
    R23, 23, 3 Three "3:3:2", "WorldCup98", Demand::WorldCup;
    R24, 24, 4 Four "2:2:2:2", "WorldCup98", Demand::WorldCup;
}

fn settings(demand: Demand, layout: Layout) -> Value {
    let own = json!({
        "sites": layout.label(),
        "nodes_rigid": nodes_max(layout, Rigid),
        "nodes_most": nodes_max(layout, OverProvisioned),
    });
    report::beside_balaji(demand, own)
}

/// The most nodes that a site has while it is loaded, as the paper gives it for each configuration (3 and 6 of 3:3:2; 2 and 5).
fn nodes_max(layout: Layout, configuration: Configuration) -> usize {
    match configuration {
        Rigid => layout.nodes().iter().copied().max().unwrap_or(0),
        Reconfigured | OverProvisioned => layout.nodes_of_one_max(),
    }
}

fn run(bench: &mut Bench<'_>, demand: Demand, layout: Layout) -> Result<()> {
    bench.serve(demand)?;
    let runs = plan(demand, &BURSTS, &[layout], &CONFIGURATIONS, bench.either(REQUESTS_MIN));
    let times: Vec<Duration> = runs.iter().map(Run::ideal_duration).collect();
    bench.rounds(&times, |bench| {
        for run in &runs {
            let Measured { case, figures, over_time } = measure(bench, run)?;
            bench.sample(&format!("{case}/run"), figures)?;
            for (t_s, busy) in over_time {
                // Samples are 100 ms apart at least.
                let tenths = ((t_s * 1e3).round() / 100.0).floor();
                bench.sample(&format!("{case}/{:.1}", tenths / 10.0), [("nodes_busy", busy)])?;
            }
        }
        Ok(())
    })
}

fn conclude(samples: &mut Samples, layout: Layout) -> Vec<Check> {
    derive_ratio(samples, "busy_to_rigid", "nodes_busy", Rigid);
    derive_ratio(samples, "busy_to_over_provisioned", "nodes_busy", OverProvisioned);
    let most = nodes_max(layout, OverProvisioned) as f64;
    samples.derive("busy_percent", "*/*/*/run", |samples, case| &samples[case]["nodes_busy"] * 100.0 / most);
    let [short, long] = BURSTS;
    let of = |burst: u64, of: Configuration| &samples[format!("{}/{burst}/{of}/run", layout.label())];
    let busy = |of_long| &of(long, of_long)["nodes_busy"];
    vec![
        Check::at_most(
            format!("bursts of {long}: nodes in use, rigid"),
            nodes_max(layout, Rigid) as f64 + 0.1,
            busy(Rigid),
        ),
        Check::at_least(
            format!("bursts of {long}: nodes in use, over-provisioned"),
            0.9 * most,
            busy(OverProvisioned),
        ),
        Check::at_least(
            format!("bursts of {long}: reconfigured / over-provisioned"),
            0.9,
            &of(long, Reconfigured)["busy_to_over_provisioned"],
        ),
        Check::at_least(
            format!("bursts of {short}: reconfigured / rigid"),
            1.0,
            &of(short, Reconfigured)["busy_to_rigid"],
        ),
        Check::at_most("requests without an answer, all runs", 0.0, samples.total("*/*/*/run", "errors")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn the_papers_numbers_of_nodes_are_ours() {
        let most = |layout| CONFIGURATIONS.map(|configuration| nodes_max(layout, configuration));
        assert_eq!(most(Layout::Three), [3, 6, 6]);
        assert_eq!(most(Layout::Four), [2, 5, 5]);
    }

    #[test]
    fn means_are_judged_by_burst_length() {
        let fill = |samples: &mut Samples, theirs: f64| {
            for (case, busy) in [
                ("512/rigid", 2.5),
                ("512/reconfigured", 2.4),
                ("8192/rigid", 2.6),
                ("8192/reconfigured", 5.6),
                ("8192/over-provisioned", theirs),
            ] {
                samples.put(&format!("3:3:2/{case}/run"), [("nodes_busy", busy), ("errors", 0.0)]);
            }
        };
        assert_eq!(judged(&R15, |samples| fill(samples, 5.9)), ["met", "met", "met", "MISSED", "met"]);
        let verdicts = judged(&R15, |samples| fill(samples, 6.5));
        assert_eq!(verdicts[1..3], ["met", "MISSED"]);
        assert_eq!(judged(&R16, |_| ()), ["not measured"; 5]);
    }
}
