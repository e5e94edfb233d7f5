//! R10-R14: throughput by burst length (Balaji et al. 2004, 4.3.1).

mod judge;
mod report;

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Configuration;
use sidelong_figure::{Axis, Line, Panel};

use crate::bench::{Bench, Done};
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::report::{Settings, node_seconds};
use crate::setup::{CONFIGURATIONS, Demand, Layout, Run, SERVICE, Until, possible_rate, style_of};
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use crate::up::Spread;
use judge::Results;

/// Burst lengths of the paper's figures.
const BURSTS: [u64; 6] = [512, 1024, 2048, 4096, 8192, 16384];
const BURSTS_QUICK: [u64; 2] = [512, 4096];
/// Burst lengths below those, for the search for the shortest burst that pays. The paper's 512 last as long as 24 here.
const BURSTS_SHORTER: [u64; 5] = [256, 128, 64, 32, 16];
/// A run has whole rounds over the sites, at least one, and at least this many requests.
const REQUESTS_MIN: u64 = 12_000;
/// The same for quick runs and for the search.
const REQUESTS_MIN_QUICK: u64 = 4_000;
/// The ratio of reconfigured to rigid from which a burst length pays.
const PAYS: f64 = 1.5;

/// The figures of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    #[serde(skip)]
    layout: Layout,
    /// Whether it belongs to the search below the paper's burst lengths.
    #[serde(skip)]
    is_search: bool,
    sites: &'static str,
    workload: String,
    configuration: Configuration,
    burst: u64,
    requests_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    errors: u64,
    moves: u64,
    requests: u64,
    seconds: f64,
    /// The rate if only the nodes limit it and reconfiguration takes no time.
    ideal_requests_per_s: f64,
    step_to_first_request_ms: Option<Spread>,
}

impl Row {
    fn new(run: &Run, is_search: bool, done: Done) -> Row {
        let Done { summary, ideal_requests_per_s, .. } = done;
        Row {
            layout: run.layout,
            is_search,
            sites: run.layout.label(),
            workload: run.demand.label(),
            configuration: run.configuration,
            burst: run.burst,
            requests_per_s: summary.requests_per_s,
            p50_ms: summary.p50_ms,
            p99_ms: summary.p99_ms,
            errors: summary.errors,
            moves: summary.moves,
            requests: summary.requests,
            seconds: summary.seconds,
            ideal_requests_per_s,
            step_to_first_request_ms: summary.step_to_first_request_ms,
        }
    }

    /// The most requests/s that the nodes and clients allow.
    fn possible_requests_per_s(&self) -> f64 {
        let nodes = self.layout.nodes_in_all(self.configuration);
        possible_rate(self.ideal_requests_per_s, self.burst, nodes)
    }
}

/// A line of `rows.csv` and of `shorter.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    sites: &'static str,
    workload: String,
    configuration: Configuration,
    burst: u64,
    requests_per_s: Fixed<1>,
    p50_ms: Fixed<3>,
    p99_ms: Fixed<3>,
    errors: u64,
    moves: u64,
}

impl From<&Row> for TableLine {
    fn from(row: &Row) -> TableLine {
        TableLine {
            sites: row.sites,
            workload: row.workload.clone(),
            configuration: row.configuration,
            burst: row.burst,
            requests_per_s: Fixed(row.requests_per_s),
            p50_ms: Fixed(row.p50_ms),
            p99_ms: Fixed(row.p99_ms),
            errors: row.errors,
            moves: row.moves,
        }
    }
}

pub(crate) fn run(bench: &mut Bench<'_>, demand: Demand) -> Result<Conclusion> {
    bench.serve(demand)?;
    study::run(
        bench,
        Throughput {
            settings: Settings::of(demand),
            demand,
            id: bench.experiment.id,
            quick: bench.options.quick,
        },
    )
}

#[derive(Serialize)]
struct Throughput {
    #[serde(flatten)]
    settings: Settings,
    #[serde(skip)]
    demand: Demand,
    #[serde(skip)]
    id: &'static str,
    #[serde(skip)]
    quick: bool,
}

impl Throughput {
    fn runs(&self) -> Vec<Run> {
        let (bursts, requests_min) =
            if self.quick { (&BURSTS_QUICK[..], REQUESTS_MIN_QUICK) } else { (&BURSTS[..], REQUESTS_MIN) };
        plan(self.demand, bursts, &CONFIGURATIONS, requests_min)
    }

    /// Rows of the search for a shorter burst that pays.
    fn search(&self) -> Vec<Run> {
        let searched = [Configuration::Rigid, Configuration::Reconfigured];
        let bursts = if self.quick { &[][..] } else { &BURSTS_SHORTER };
        plan(self.demand, bursts, &searched, REQUESTS_MIN_QUICK)
    }
}

impl Study for Throughput {
    type Row = Row;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        self.runs().iter().chain(&self.search()).map(Run::ideal_duration).collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Throughput>) -> Result<()> {
        for run in self.runs() {
            rows.push(self, Row::new(&run, false, bench.run(&run)?))?;
        }
        let search = self.search();
        let mut shorter = if search.is_empty() { None } else { Some(bench.table("shorter.csv")?) };
        for run in search {
            // The search ends for a layout at the first burst that does not pay.
            if Results::of(rows.all())
                .shortest_that_pays(run.layout)
                .is_some_and(|burst| burst <= 2 * run.burst)
            {
                let row = Row::new(&run, true, bench.run(&run)?);
                shorter.iter_mut().try_for_each(|table| table.write(TableLine::from(&row)))?;
                rows.keep(row);
            } else {
                bench.skip();
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        vec![row.into()]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| {
            format!("{} sites, bursts of {}, {}: {what}", row.layout.sites(), row.burst, row.configuration)
        };
        vec![
            Bound::new(of("requests/s"), row.requests_per_s, 0.0..=row.possible_requests_per_s()),
            Bound::new(of("p50, ms"), row.p50_ms, SERVICE.as_secs_f64() * 1e3..=f64::INFINITY),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        Results::of(rows).checks()
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let results = Results::of(rows);
        Drawing {
            panels: Layout::ALL.iter().zip(["a", "b"]).map(|(&l, part)| panel(l, part, &results)).collect(),
            legend: CONFIGURATIONS.map(|of| (of.to_string(), style_of(of))).into(),
            dashed: Some("ideal"),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(self, &Results::of(rows), story);
    }
}

/// One run for each layout, burst length and configuration. Configurations alternate within a burst length, since the
/// machine's speed drifts.
fn plan(demand: Demand, bursts: &[u64], configurations: &[Configuration], requests_min: u64) -> Vec<Run> {
    let mut runs = Vec::with_capacity(bursts.len() * Layout::ALL.len() * configurations.len());
    for &burst in bursts {
        for layout in Layout::ALL {
            let round = layout.sites() * burst;
            let until = Until::Requests(round * requests_min.div_ceil(round));
            runs.extend(configurations.iter().map(|&configuration| Run {
                layout,
                demand,
                configuration,
                burst,
                pause: Duration::ZERO,
                until,
            }));
        }
    }
    runs
}

fn panel(layout: Layout, part: &str, results: &Results) -> Panel {
    let rows = || results.rows.iter().filter(|row| row.sites == layout.label());
    let at = |row: &Row, rate| ((row.burst as f64).log2(), rate);
    let ends = rows().map(|row| (row.burst as f64).log2());
    let (first, last) = (ends.clone().fold(f64::INFINITY, f64::min), ends.fold(f64::NEG_INFINITY, f64::max));
    let max = rows().map(|row| row.requests_per_s.max(row.ideal_requests_per_s)).fold(0.0, f64::max);
    let line = |configuration: Configuration, style, rate: fn(&Row) -> f64| {
        let of = rows().filter(|row| row.configuration == configuration);
        Line::new(style, of.map(|row| at(row, rate(row))).collect())
    };
    let ideal = [Configuration::OverProvisioned, Configuration::Rigid].map(|configuration| {
        line(configuration, style_of(configuration).ideal(), |row| row.ideal_requests_per_s)
    });
    let measured = [Configuration::OverProvisioned, Configuration::Rigid, Configuration::Reconfigured]
        .map(|configuration| line(configuration, style_of(configuration), |row| row.requests_per_s));
    Panel {
        title: format!("({part}) {} sites, {} nodes", layout.sites(), layout.label()),
        x: Axis {
            title: format!("burst length (requests; 512 are {:.2} s of one node)", node_seconds(512)),
            range: first - 0.3..last + 0.3,
            ticks: (first as u32..=last as u32).map(f64::from).collect(),
            label: |log2| format!("{:.0}", log2.exp2()),
            names: Vec::new(),
        },
        y: Axis::from_zero("requests/s", max),
        lines: [&ideal[..], &measured[..]].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_alternate_within_a_burst_length() {
        let runs = plan(Demand::SingleFile(1024), &BURSTS, &CONFIGURATIONS, REQUESTS_MIN);
        assert_eq!(runs.len(), 36);
        assert!(runs[..6].iter().all(|run| run.burst == 512));
        let names: Vec<_> = runs[..4].iter().map(Run::name).collect();
        let expected = [
            "3-sites-512-rigid",
            "3-sites-512-reconfigured",
            "3-sites-512-over-provisioned",
            "4-sites-512-rigid",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn runs_have_whole_rounds() {
        for run in plan(Demand::Zipf, &BURSTS, &CONFIGURATIONS, REQUESTS_MIN) {
            let Until::Requests(requests) = run.until else { panic!("{run:?}") };
            let round = run.layout.sites() * run.burst;
            assert!(
                requests.is_multiple_of(round) && requests >= REQUESTS_MIN && requests < REQUESTS_MIN + round
            );
        }
    }

    #[test]
    fn a_row_has_the_columns_of_its_experiment() {
        let row = judge::tests::row(Layout::Three, 512, Configuration::OverProvisioned, 2345.678);
        let [columns, line] = crate::table::written(TableLine::from(&row));
        assert_eq!(columns, "sites,workload,configuration,burst,requests_per_s,p50_ms,p99_ms,errors,moves");
        assert_eq!(line, "3:3:2,1k,over-provisioned,512,2345.7,12.500,20.250,0,0");
    }

    #[test]
    fn the_axis_names_burst_lengths() {
        let panel = panel(Layout::Three, "a", &judge::tests::results());
        let labels: Vec<_> = panel.x.ticks.iter().map(|tick| (panel.x.label)(*tick)).collect();
        assert_eq!(labels, ["512", "1024", "2048", "4096", "8192", "16384"]);
        assert!(panel.lines.iter().all(|line| line.points.len() == 6));
    }
}
