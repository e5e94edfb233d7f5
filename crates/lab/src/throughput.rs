//! R10-R14: throughput by burst length (Balaji et al. 2004, 4.3.1). R15-R24 show the nodes in use of the same runs: see `utilisation`.

use std::time::Duration;

use serde_json::json;
use sidelong_config::Configuration::{self, OverProvisioned, Reconfigured, Rigid};

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::measure::{Dimension, Measure, Word};
use crate::report::{self, BALAJI_NODE_RATE};
use crate::samples::Samples;
use crate::series::{Claim, Series, least, most};
use crate::setup::{
    CONFIGURATION, CONFIGURATIONS, Demand, Layout, RATIO_SLACK, Run, SERVICE, node_rate, possible_rate,
};
use crate::up::Sample;

/// Burst lengths of the paper's figures, in full and quick.
const BURSTS: [&[u64]; 2] = [&[512, 1024, 2048, 4096, 8192, 16384], &[512, 4096]];
/// Burst lengths below those, for the search for the shortest burst that pays. The paper's 512 last as long as 24 here.
const BURSTS_SHORTER: [&[u64]; 2] = [&[256, 128, 64, 32, 16], &[]];
/// A run has whole rounds over the sites, at least one, and at least this many requests. The search makes do with as many as quick runs.
pub(crate) const REQUESTS_MIN: [u64; 2] = [12_000, 4_000];
/// The ratio of reconfigured to rigid from which a burst length pays.
const PAYS: f64 = 1.5;
/// The share of over-provisioned that counts as reached.
const REACHED: f64 = 0.95;
/// The shape of the paper, with an allowance: runs of the same speed differ by a few percent.
const SAME: f64 = 0.97;
const CLOSE: f64 = 0.9;
/// Nodes in use are not averaged over the start, because processes warm up.
const SETTLED_S: f64 = 0.5;

pub(crate) const SITES: Dimension = Dimension::new(
    "sites",
    "nodes of the sites",
    &[Word::plain("3:3:2", "3:3:2"), Word::plain("2:2:2:2", "2:2:2:2")],
);
pub(crate) const BURST: Dimension = Dimension::new(
    "burst",
    "burst length (requests; 512 are 1.28 s of one node)",
    &[
        Word::plain("16", "16 (0.04 s)"),
        Word::plain("32", "32 (0.08 s)"),
        Word::plain("64", "64 (0.16 s)"),
        Word::plain("128", "128 (0.32 s)"),
        Word::plain("256", "256 (0.64 s)"),
        Word::plain("512", "512 (1.28 s)"),
        Word::plain("1024", "1024 (2.56 s)"),
        Word::plain("2048", "2048 (5.12 s)"),
        Word::plain("4096", "4096 (10.24 s)"),
        Word::plain("8192", "8192 (20.48 s)"),
        Word::plain("16384", "16384 (40.96 s)"),
    ],
);
/// What each run measures, and what is computed of it. A case begins with the nodes of the sites, the burst length and the configuration.
pub(crate) const MEASURES: &[Measure] = &[
    Measure::new("requests_per_s", "requests/s", [1, 0]).possible(|case| 0.0..=possible_rate_of(case.name)),
    Measure::new("p50_ms", "p50, ms", [3, 1]).possible(|_| SERVICE.as_secs_f64() * 1e3..=f64::INFINITY),
    Measure::new("p99_ms", "p99, ms", [3, 1]),
    Measure::new("errors", "errors", [0, 0]),
    Measure::new("moves", "moves", [0, 0]),
    Measure::new("step_ms", "step to first request, p50, ms", [1, 1]),
    Measure::new("nodes_busy", "nodes in use", [3, 2]).possible(|case| 0.0..=possible_nodes(case.name)),
    Measure::new("nodes_busy_max", "nodes in use, most", [3, 2])
        .possible(|case| 0.0..=possible_nodes(case.name)),
    Measure::derived("ideal_requests_per_s", "requests/s if only nodes limit them", 0),
    // Ratios of requests/s.
    Measure::derived("to_rigid", "times rigid", 2),
    Measure::derived("to_over_provisioned", "times over-provisioned", 2),
    // Of all burst lengths. Infinite if it is none.
    Measure::derived("pays", "shortest burst that pays, requests", 0),
    Measure::derived("pays_s", "s of one node", 3),
    Measure::derived("pays_paper", "as many s of a node of the paper, requests", 0),
    Measure::derived("above", "above rigid from, requests", 0),
    Measure::derived("reached", "0.95 of over-provisioned from, requests", 0),
    // Ratios of nodes in use, for R15-R24.
    Measure::derived("busy_percent", "of the nodes that a site can have, %", 0),
    Measure::derived("busy_to_rigid", "nodes in use / rigid", 2),
    Measure::derived("busy_to_over_provisioned", "nodes in use / over-provisioned", 2),
];

const DESIGN: Design = Design {
    dimensions: &[SITES, BURST, CONFIGURATION],
    cases: &[
        "*/16,32,64,128,256/rigid,reconfigured",
        "*/512,1024,2048,4096,8192,16384/*",
        // What is said of all burst lengths together.
        "*/all/*",
    ],
    measures: MEASURES,
    charts: &[
        Chart::lines("(a) 3 sites, 3:3:2 nodes", "requests_per_s", "burst", "configuration")
            .of("3:3:2/512,1024,2048,4096,8192,16384/*")
            .beside("ideal_requests_per_s", "ideal"),
        Chart::lines("(b) 4 sites, 2:2:2:2 nodes", "requests_per_s", "burst", "configuration")
            .of("2:2:2:2/512,1024,2048,4096,8192,16384/*")
            .beside("ideal_requests_per_s", "ideal"),
    ],
    template: concat!(include_str!("throughput.md"), include_str!("balaji.md")),
    conclude,
    ..Design::DEFAULT
};

macro_rules! experiments {
    ($($id:ident, $figure:literal, $workload:literal, $demand:expr;)*) => {$(
        pub(crate) const $id: Experiment = Experiment::new(
            stringify!($id),
            concat!("Balaji et al. 2004, Figure ", $figure),
            concat!("throughput by burst length, ", $workload),
            Design {
                settings: |_| report::beside_balaji($demand, json!({ "pays_from": PAYS, "reached_from": REACHED })),
                run: |bench| run(bench, $demand),
                ..DESIGN
            },
        );
    )*};
}

experiments! {
    R10, 10, "one file of 1 KB", Demand::SingleFile(1 << 10);
    R11, 11, "one file of 4 KB", Demand::SingleFile(4 << 10);
    R12, 12, "one file of 16 KB", Demand::SingleFile(16 << 10);
    R13, 13, "Zipf", Demand::Zipf;
    R14, 14, "WorldCup98", Demand::WorldCup;
}

/// The layout, the burst length and the configuration of a case.
fn parts(case: &str) -> Option<(Layout, u64, Configuration)> {
    let mut words = case.split('/');
    Some((Layout::find(words.next()?)?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The most requests/s that the nodes and clients allow.
fn possible_rate_of(case: &str) -> f64 {
    let most = |(layout, burst, configuration): (Layout, u64, Configuration)| {
        possible_rate(layout.ideal_rate(configuration), burst, layout.nodes_in_all(configuration))
    };
    parts(case).map_or(f64::INFINITY, most)
}

/// The most nodes that can be in use. A sample covers 100 ms, which its clock may miss a little.
fn possible_nodes(case: &str) -> f64 {
    parts(case).map_or(f64::INFINITY, |(layout, _, of)| 1.02 * layout.nodes_in_all(of) as f64)
}

fn case(layout: Layout, burst: u64, configuration: Configuration) -> String {
    format!("{}/{burst}/{configuration}", layout.label())
}

/// One run for each burst length, layout and configuration. Configurations alternate within a burst length, since the machine's speed
/// drifts.
pub(crate) fn plan(
    demand: Demand,
    bursts: &[u64],
    layouts: &[Layout],
    configurations: &[Configuration],
    requests_min: u64,
) -> Vec<Run> {
    let mut runs = Vec::new();
    for &burst in bursts {
        for &layout in layouts {
            let round = layout.sites() * burst;
            let requests = round * requests_min.div_ceil(round);
            let pause = Duration::ZERO;
            let run = |&configuration| Run { layout, demand, configuration, burst, pause, requests };
            runs.extend(configurations.iter().map(run));
        }
    }
    runs
}

/// What came of a run.
pub(crate) struct Measured {
    pub(crate) case: String,
    pub(crate) figures: Vec<(&'static str, f64)>,
    /// Nodes in use by the time in s.
    pub(crate) over_time: Vec<(f64, f64)>,
}

pub(crate) fn measure(bench: &mut Bench<'_>, run: &Run) -> Result<Measured> {
    let done = bench.run(run)?;
    let summary = done.summary;
    let over_time = sum_over_sites(&done.files.read_samples()?);
    let settled = over_time.iter().filter(|(t, _)| (SETTLED_S..=summary.seconds).contains(t));
    let busy: Vec<f64> = settled.map(|(_, busy)| *busy).collect();
    let mut figures = vec![
        ("requests_per_s", summary.requests_per_s),
        ("p50_ms", summary.p50_ms),
        ("p99_ms", summary.p99_ms),
        ("errors", summary.errors as f64),
        ("moves", summary.moves as f64),
    ];
    figures.extend(summary.step_to_first_request_ms.map(|steps| ("step_ms", steps.p50)));
    figures.extend(sidelong_figure::statistics::mean(&busy).map(|mean| ("nodes_busy", mean)));
    figures.extend(most(busy).map(|most| ("nodes_busy_max", most)));
    Ok(Measured { case: case(run.layout, run.burst, run.configuration), figures, over_time })
}

/// Sums the samples of one time. The sites of a sample follow each other.
fn sum_over_sites(samples: &[Sample]) -> Vec<(f64, f64)> {
    let same_time = samples.chunk_by(|a, b| a.t_s == b.t_s);
    same_time.map(|sites| (sites[0].t_s, sites.iter().map(|sample| sample.nodes_busy).sum())).collect()
}

fn run(bench: &mut Bench<'_>, demand: Demand) -> Result<()> {
    bench.serve(demand)?;
    let runs = plan(demand, bench.either(BURSTS), &Layout::ALL, &CONFIGURATIONS, bench.either(REQUESTS_MIN));
    let shorter = bench.either(BURSTS_SHORTER);
    let search = plan(demand, shorter, &Layout::ALL, &[Rigid, Reconfigured], REQUESTS_MIN[1]);
    let times: Vec<Duration> = runs.iter().chain(&search).map(Run::ideal_duration).collect();
    bench.rounds(&times, |bench| {
        for run in &runs {
            let Measured { case, figures, .. } = measure(bench, run)?;
            bench.sample(&case, figures)?;
        }
        for run in &search {
            // The search ends for a layout at the first burst that does not pay.
            let points = points(&bench.samples, run.layout, bench.samples.repetitions() - 1);
            if shortest(&points, |point| point.to_rigid >= PAYS)
                .is_some_and(|burst| burst <= 2.0 * run.burst as f64)
            {
                let Measured { case, figures, .. } = measure(bench, run)?;
                bench.sample(&case, figures)?;
            } else {
                bench.skip();
            }
        }
        Ok(())
    })
}

/// What a repetition says of a burst length.
struct Point {
    burst: u64,
    requests_per_s: f64,
    to_rigid: f64,
    to_over_provisioned: Option<f64>,
}

/// The burst lengths of a layout that a repetition has measured, ascending.
fn points(samples: &Samples, layout: Layout, repetition: usize) -> Vec<Point> {
    let bursts = BURSTS_SHORTER[0].iter().rev().chain(BURSTS[0]);
    let point = |&burst: &u64| {
        // The search leaves over-provisioned out.
        let rate = |of| samples.get(&case(layout, burst, of))?["requests_per_s"].at(repetition);
        let over = |of| rate(of).filter(|rate| *rate > 0.0);
        let requests_per_s = rate(Reconfigured)?;
        let to_over_provisioned = over(OverProvisioned).map(|over| requests_per_s / over);
        Some(Point { burst, requests_per_s, to_rigid: requests_per_s / over(Rigid)?, to_over_provisioned })
    };
    bursts.filter_map(point).collect()
}

/// The shortest burst from which `holds` is true for it and all longer ones. Infinite if there is none.
fn shortest(points: &[Point], holds: impl Fn(&Point) -> bool) -> Option<f64> {
    let last = points.iter().rev().take_while(|point| holds(point)).last();
    (!points.is_empty()).then(|| last.map_or(f64::INFINITY, |point| point.burst as f64))
}

/// Whether reconfigured is never below rigid over the paper's bursts, never falls, and comes close to over-provisioned.
fn has_the_papers_shape(points: &[Point]) -> Option<bool> {
    let points: Vec<&Point> = points.iter().filter(|point| point.burst >= BURSTS[0][0]).collect();
    let is_above = points.iter().all(|point| point.to_rigid >= SAME);
    let rises = points.windows(2).all(|pair| pair[1].requests_per_s >= SAME * pair[0].requests_per_s);
    let is_close = points.last()?.to_over_provisioned.is_some_and(|share| share >= CLOSE);
    Some(is_above && rises && is_close)
}

/// The targets are set for R10. The paper says of the other workloads that "the trend is similar".
fn conclude(samples: &mut Samples) -> Vec<Check> {
    derive_ratio(samples, "to_rigid", "requests_per_s", Rigid);
    derive_ratio(samples, "to_over_provisioned", "requests_per_s", OverProvisioned);
    samples.derive("ideal_requests_per_s", "*/*/rigid,over-provisioned", |samples, case| {
        let ideal = parts(case).map_or(f64::NAN, |(layout, _, of)| layout.ideal_rate(of));
        samples[case]["requests_per_s"].map(|_| ideal)
    });
    for layout in Layout::ALL {
        let label = layout.label();
        for of in CONFIGURATIONS {
            let paper = format!("{label}/512,1024,2048,4096,8192,16384/{of}");
            samples.derive("requests_per_s", &format!("{label}/all/{of}"), |samples, _| {
                samples.over(&paper, "requests_per_s", most)
            });
        }
        let all: Vec<Vec<Point>> = (0..samples.repetitions()).map(|at| points(samples, layout, at)).collect();
        let from = |holds: fn(&Point) -> bool| Series(all.iter().map(|of| shortest(of, holds)).collect());
        let pays = from(|point| point.to_rigid >= PAYS);
        let pays_s = pays.map(|burst| burst / node_rate());
        let said = [
            ("pays_paper", pays_s.map(|seconds| seconds * BALAJI_NODE_RATE)),
            ("pays_s", pays_s),
            ("pays", pays),
            ("above", from(|point| point.to_rigid > 1.0)),
            ("reached", from(|point| point.to_over_provisioned.is_some_and(|share| share >= REACHED))),
        ];
        for (measure, series) in said {
            samples.derive(measure, &format!("{label}/all/reconfigured"), |_, _| series.clone());
        }
        let shape = all.iter().map(|points| has_the_papers_shape(points)).collect();
        samples.claim(format!("shape {label}"), Claim(shape));
    }
    let ratio = |layout: Layout, burst, over: Configuration, target| {
        let what = format!("{} sites, bursts of {burst}: reconfigured / {over}", layout.sites());
        let case = case(layout, burst, Reconfigured);
        let possible = 0.0..=RATIO_SLACK * possible_rate_of(&case) / layout.ideal_rate(over);
        let measure = if over == Rigid { "to_rigid" } else { "to_over_provisioned" };
        Check::at_least(what, target, &samples[case][measure]).possible(possible)
    };
    let gains = samples.over("*/512,1024,2048,4096,8192,16384/reconfigured", "to_rigid", least);
    vec![
        ratio(Layout::Three, 16384, Rigid, 1.9),
        ratio(Layout::Three, 16384, OverProvisioned, 0.95),
        ratio(Layout::Four, 16384, Rigid, 2.4),
        ratio(Layout::Three, 512, Rigid, 1.6),
        ratio(Layout::Four, 512, Rigid, 1.6),
        Check::at_least("the least reconfigured / rigid of the paper's bursts", 1.0, gains),
        Check::at_most("requests without an answer, all runs", 0.0, samples.total("*/*/*", "errors")),
    ]
}

/// Derives the ratio of `measure` in each case to the same in a configuration.
pub(crate) fn derive_ratio(
    samples: &mut Samples,
    ratio: &'static str,
    measure: &'static str,
    over: Configuration,
) {
    let all = samples.all();
    samples.derive(ratio, &all, |samples, case| {
        let mut words: Vec<&str> = case.split('/').collect();
        words[2] = over.as_str();
        let other = samples.get(&words.join("/"));
        other.map_or(Series::default(), |other| &samples[case][measure] / &other[measure])
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    fn put(samples: &mut Samples, layout: Layout, burst: u64, [rigid, reconfigured, over]: [f64; 3]) {
        for (of, rate) in CONFIGURATIONS.into_iter().zip([rigid, reconfigured, over]) {
            samples.put(&case(layout, burst, of), [("requests_per_s", rate), ("errors", 0.0)]);
        }
    }

    /// The paper's shape: level with rigid at 512, near over-provisioned at 16384.
    fn fill(samples: &mut Samples) {
        for (at, &burst) in BURSTS[0].iter().enumerate() {
            for (layout, rigid, best) in [(Layout::Three, 1000.0, 2300.0), (Layout::Four, 780.0, 1950.0)] {
                put(samples, layout, burst, [rigid, rigid + (best - rigid) * at as f64 / 5.0, best]);
            }
        }
    }

    fn samples() -> Samples {
        let mut samples = Samples::new(DESIGN.dimensions, MEASURES, DESIGN.cases);
        samples.begin();
        fill(&mut samples);
        samples
    }

    #[test]
    fn checks_say_plainly_what_holds() {
        let verdicts = judged(&R10, fill);
        assert_eq!(verdicts, ["met", "met", "met", "MISSED", "MISSED", "met", "met"]);
        let verdicts = judged(&R10, |samples| put(samples, Layout::Three, 16384, [1000.0, 2900.0, 3000.0]));
        assert_eq!(verdicts[..3], ["INVALID", "met", "not measured"], "the nodes allow no more than 2.45");
    }

    #[test]
    fn the_shortest_burst_that_pays_is_looked_for_from_the_longest_down() {
        let mut samples = samples();
        let pays =
            |samples: &Samples| shortest(&points(samples, Layout::Three, 0), |point| point.to_rigid >= PAYS);
        // The ratios are 1, 1.26, 1.52...
        assert_eq!(pays(&samples), Some(2048.0));
        put(&mut samples, Layout::Three, 256, [1000.0, 2000.0, 2000.0]);
        assert_eq!(pays(&samples), Some(2048.0), "512 does not pay");
        put(&mut samples, Layout::Three, 16384, [1000.0, 1400.0, 2000.0]);
        assert_eq!(pays(&samples), Some(f64::INFINITY));
        assert_eq!(shortest(&[], |_| true), None);
    }

    #[test]
    fn the_papers_shape_rises_from_rigid_to_over_provisioned() {
        let with = |burst, rate| {
            let mut samples = samples();
            samples.put(&case(Layout::Three, burst, Reconfigured), [("requests_per_s", rate)]);
            has_the_papers_shape(&points(&samples, Layout::Three, 0))
        };
        assert_eq!(with(512, 1000.0), Some(true));
        assert_eq!(with(512, 900.0), Some(false), "below rigid");
        assert_eq!(with(4096, 1050.0), Some(false), "falls");
        assert_eq!(with(16384, 2040.0), Some(false), "stays below over-provisioned");
        assert_eq!(has_the_papers_shape(&[]), None);
    }

    #[test]
    fn runs_have_whole_rounds_in_which_configurations_alternate() {
        let runs = plan(Demand::Zipf, BURSTS[0], &Layout::ALL, &CONFIGURATIONS, REQUESTS_MIN[0]);
        assert_eq!(runs.len(), 36);
        for (at, run) in runs.iter().enumerate() {
            let round = run.layout.sites() * run.burst;
            assert!(
                run.requests.is_multiple_of(round) && (0..round).contains(&(run.requests - REQUESTS_MIN[0]))
            );
            assert_eq!(run.configuration, CONFIGURATIONS[at % 3]);
        }
    }

    #[test]
    fn sites_add_up_and_bursts_are_labelled_by_their_seconds() {
        let sample = |t_s, site: &str, nodes_busy| Sample { t_s, site: site.into(), nodes_busy };
        let samples =
            [sample(0.1, "a", 2.5), sample(0.1, "b", 0.25), sample(0.2, "a", 0.0), sample(0.2, "b", 3.0)];
        assert_eq!(sum_over_sites(&samples), [(0.1, 2.75), (0.2, 3.0)]);
        for Word { word, label, .. } in BURST.words {
            assert_eq!(*label, format!("{word} ({:.2} s)", word.parse::<f64>().unwrap() / node_rate()));
        }
        assert!(BURST.label.contains(&format!("512 are {:.2} s", 512.0 / node_rate())));
    }
}
