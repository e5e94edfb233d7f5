//! R15-R24: nodes in use over time (Balaji et al. 2004, 4.3.2).
//!
//! Balaji et al. 2004 count the nodes that are fully used to serve the loaded site. `up` samples, for each site, the sum of
//! the busy shares of its nodes. One site is loaded at a time, so that the sum over the sites is that count, also in
//! samples in which one burst ends and the next begins.

mod report;

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Configuration;
use sidelong_figure::{Axis, Line, Panel, Style};

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::report::Settings;
use crate::setup::{CONFIGURATIONS, Demand, Layout, POOL, Run, Until, style_of};
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use crate::up::{Sample, Summary};

/// Burst lengths of the paper's figures, and how long each is watched in seconds: some rounds of the short one, a round of
/// the long one under rigid.
const BURSTS: [(u64, f64); 2] = [(512, 8.0), (8192, 24.0)];
const BURSTS_QUICK: [(u64, f64); 2] = [(512, 4.0), (8192, 10.0)];
/// The start is not judged, because processes warm up.
const SETTLED_S: f64 = 0.5;

/// One run: its samples and its figures.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Watched {
    configuration: Configuration,
    burst: u64,
    requests_per_s: f64,
    errors: u64,
    moves: u64,
    /// Nodes in use, averaged over time.
    nodes_busy_mean: f64,
    /// Nodes in use in the sample with the most.
    nodes_busy_max: f64,
    /// Seconds and nodes in use, summed over the sites.
    over_time: Vec<(f64, f64)>,
    #[serde(skip)]
    samples: Vec<Sample>,
}

impl Watched {
    fn new(run: &Run, summary: &Summary, samples: Vec<Sample>) -> Watched {
        let over_time = sum_over_sites(&samples);
        let settled: Vec<f64> =
            over_time.iter().filter(|(t, _)| *t >= SETTLED_S).map(|(_, busy)| *busy).collect();
        Watched {
            configuration: run.configuration,
            burst: run.burst,
            requests_per_s: summary.requests_per_s,
            errors: summary.errors,
            moves: summary.moves,
            nodes_busy_mean: settled.iter().sum::<f64>() / settled.len().max(1) as f64,
            nodes_busy_max: settled.iter().copied().fold(0.0, f64::max),
            over_time,
            samples,
        }
    }
}

/// A line of `rows.csv`: a site over 100 ms.
#[derive(Debug, Serialize)]
struct TableLine {
    t_s: Fixed<3>,
    site: String,
    nodes_busy: Fixed<3>,
    configuration: Configuration,
    burst: u64,
}

pub(crate) fn run(bench: &mut Bench<'_>, demand: Demand, layout: Layout) -> Result<Conclusion> {
    bench.serve(demand)?;
    study::run(
        bench,
        Utilisation { settings: Settings::of(demand), demand, layout, quick: bench.options.quick },
    )
}

#[derive(Serialize)]
struct Utilisation {
    #[serde(flatten)]
    settings: Settings,
    #[serde(skip)]
    demand: Demand,
    #[serde(skip)]
    layout: Layout,
    #[serde(skip)]
    quick: bool,
}

impl Utilisation {
    fn runs(&self) -> Vec<Run> {
        plan(self.demand, self.layout, if self.quick { &BURSTS_QUICK } else { &BURSTS })
    }
}

impl Study for Utilisation {
    type Row = Watched;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        self.runs().iter().map(Run::ideal_duration).collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Utilisation>) -> Result<()> {
        for run in self.runs() {
            let done = bench.run(&run)?;
            rows.push(self, Watched::new(&run, &done.summary, done.files.read_samples()?))?;
        }
        Ok(())
    }

    fn lines(&self, run: &Watched) -> Vec<TableLine> {
        let line = |sample: &Sample| TableLine {
            t_s: Fixed(sample.t_s),
            site: sample.site.clone(),
            nodes_busy: Fixed(sample.nodes_busy),
            configuration: run.configuration,
            burst: run.burst,
        };
        run.samples.iter().map(line).collect()
    }

    fn bounds(&self, run: &Watched) -> Vec<Bound> {
        // A sample covers 100 ms, which its clock may miss a little.
        let most = 1.02 * self.layout.nodes_in_all(run.configuration) as f64;
        vec![Bound::new(
            format!("bursts of {}, {}: nodes in use", run.burst, run.configuration),
            run.nodes_busy_max,
            0.0..=most,
        )]
    }

    fn checks(&self, watched: &[Watched]) -> Vec<Check> {
        checks(self.layout, watched)
    }

    fn draw(&self, watched: &[Watched]) -> Drawing {
        let parts = BURSTS.iter().zip(["a", "b"]);
        Drawing {
            panels: parts.map(|(&(burst, _), part)| panel(self.layout, part, burst, watched)).collect(),
            legend: CONFIGURATIONS
                .map(|configuration| (configuration.to_string(), style(configuration)))
                .into(),
            is_one_repetition: true,
            ..Drawing::default()
        }
    }

    fn tell(&self, watched: &[Watched], story: &mut Story) {
        report::tell(self, watched, story);
    }
}

fn plan(demand: Demand, layout: Layout, bursts: &[(u64, f64)]) -> Vec<Run> {
    let run = |burst, seconds| {
        let until = Until::Seconds(seconds);
        let pause = Duration::ZERO;
        CONFIGURATIONS.map(|configuration| Run { layout, demand, configuration, burst, pause, until })
    };
    bursts.iter().flat_map(|&(burst, seconds)| run(burst, seconds)).collect()
}

/// Sums the samples of one time. The sites of a sample follow each other.
fn sum_over_sites(samples: &[Sample]) -> Vec<(f64, f64)> {
    let same_time = samples.chunk_by(|a, b| a.t_s == b.t_s);
    same_time.map(|sites| (sites[0].t_s, sites.iter().map(|sample| sample.nodes_busy).sum())).collect()
}

fn find(watched: &[Watched], burst: u64, configuration: Configuration) -> Option<&Watched> {
    watched.iter().find(|run| run.burst == burst && run.configuration == configuration)
}

/// The most nodes that a site has while it is loaded, as the paper gives it for each configuration (3 and 6 of 3:3:2; 2 and
/// 5).
fn nodes_max(layout: Layout, configuration: Configuration) -> f64 {
    match configuration {
        Configuration::Rigid => layout.nodes().iter().copied().max().unwrap_or(0) as f64,
        Configuration::Reconfigured | Configuration::OverProvisioned => layout.nodes_of_one_max() as f64,
    }
}

fn checks(layout: Layout, watched: &[Watched]) -> Vec<Check> {
    use Configuration::{OverProvisioned, Reconfigured, Rigid};
    let [(short, _), (long, _)] = BURSTS;
    let mean = |burst, configuration| find(watched, burst, configuration).map(|run| run.nodes_busy_mean);
    let ratio = |burst, one, other| {
        mean(burst, other).filter(|nodes| *nodes > 0.0).and_then(|other| Some(mean(burst, one)? / other))
    };
    let (few, many) = (nodes_max(layout, Rigid), nodes_max(layout, OverProvisioned));
    vec![
        Check::at_most(format!("bursts of {long}: nodes in use, rigid"), few + 0.1, mean(long, Rigid)),
        Check::at_least(
            format!("bursts of {long}: nodes in use, over-provisioned"),
            0.9 * many,
            mean(long, OverProvisioned),
        ),
        Check::at_least(
            format!("bursts of {long}: reconfigured / over-provisioned"),
            0.9,
            ratio(long, Reconfigured, OverProvisioned),
        ),
        Check::at_least(
            format!("bursts of {short}: reconfigured / rigid"),
            1.0,
            ratio(short, Reconfigured, Rigid),
        ),
        Check::at_most(
            "requests without an answer, all runs",
            0.0,
            Some(watched.iter().map(|run| run.errors).sum::<u64>() as f64),
        ),
    ]
}

/// Reconfigured should lie on over-provisioned most of the time.
fn style(configuration: Configuration) -> Style {
    let style = style_of(configuration).bare();
    if configuration == Configuration::OverProvisioned { style.beneath() } else { style }
}

fn panel(layout: Layout, part: &str, burst: u64, watched: &[Watched]) -> Panel {
    let of = |configuration| find(watched, burst, configuration);
    // The judged line is drawn last, on top.
    let order = [Configuration::OverProvisioned, Configuration::Rigid, Configuration::Reconfigured];
    let lines: Vec<Line> = order
        .into_iter()
        .filter_map(of)
        .map(|run| Line::new(style(run.configuration), run.over_time.clone()))
        .collect();
    let end = lines.iter().flat_map(|line| line.points.last()).map(|(t, _)| *t).fold(0.0, f64::max);
    let most = lines.iter().flat_map(|line| &line.points).map(|(_, busy)| *busy).fold(0.0, f64::max);
    Panel {
        title: format!("({part}) bursts of {burst}, nodes {}", layout.label()),
        x: Axis::from_zero("time (s)", end),
        y: Axis::from_zero("nodes in use", most.max(POOL as f64)),
        lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::up::tests::summary;

    fn sample(t_s: f64, site: &str, nodes_busy: f64) -> Sample {
        Sample { t_s, site: site.into(), nodes_busy }
    }

    fn watched(configuration: Configuration, burst: u64, mean: f64) -> Watched {
        Watched {
            configuration,
            burst,
            requests_per_s: 400.0 * mean,
            errors: 0,
            moves: 0,
            nodes_busy_mean: mean,
            nodes_busy_max: mean,
            over_time: vec![(0.1, mean), (0.2, mean)],
            samples: Vec::new(),
        }
    }

    #[test]
    fn sites_add_up() {
        let samples =
            [sample(0.1, "a", 2.5), sample(0.1, "b", 0.25), sample(0.2, "a", 0.0), sample(0.2, "b", 3.0)];
        assert_eq!(sum_over_sites(&samples), [(0.1, 2.75), (0.2, 3.0)]);
    }

    #[test]
    fn a_row_has_the_columns_of_its_experiment() {
        let run = plan(Demand::Zipf, Layout::Three, &BURSTS)[5];
        let summary = summary(1.0, 1);
        let watched = Watched::new(&run, &summary, vec![sample(0.1, "a", 2.5)]);
        let study = Utilisation {
            settings: Settings::of(Demand::Zipf),
            demand: Demand::Zipf,
            layout: Layout::Three,
            quick: false,
        };
        let [columns, line] = crate::table::written(study.lines(&watched).remove(0));
        assert_eq!(columns, "t_s,site,nodes_busy,configuration,burst");
        assert_eq!(line, "0.100,a,2.500,over-provisioned,8192");
    }

    #[test]
    fn the_papers_numbers_of_nodes_are_ours() {
        let most = |layout| CONFIGURATIONS.map(|configuration| nodes_max(layout, configuration));
        assert_eq!(most(Layout::Three), [3.0, 6.0, 6.0]);
        assert_eq!(most(Layout::Four), [2.0, 5.0, 5.0]);
    }

    #[test]
    fn checks_compare_means() {
        use Configuration::{OverProvisioned, Reconfigured, Rigid};
        let mut runs = vec![
            watched(Rigid, 512, 2.5),
            watched(Reconfigured, 512, 2.4),
            watched(Rigid, 8192, 2.6),
            watched(Reconfigured, 8192, 5.6),
            watched(OverProvisioned, 8192, 5.9),
        ];
        let verdicts =
            |runs: &[Watched]| checks(Layout::Three, runs).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&runs), ["met", "met", "met", "MISSED", "met"]);
        runs.pop();
        assert_eq!(verdicts(&runs)[1..3], ["not measured", "not measured"]);
    }

    #[test]
    fn the_start_is_not_judged() {
        let run = plan(Demand::Zipf, Layout::Three, &BURSTS)[0];
        let summary = summary(1.0, 1);
        let samples = [sample(0.4, "a", 0.0), sample(0.5, "a", 2.0), sample(0.6, "a", 3.0)];
        let watched = Watched::new(&run, &summary, samples.into());
        assert_eq!((watched.nodes_busy_mean, watched.nodes_busy_max), (2.5, 3.0));
    }
}
