//! S1: R10's runs on this machine beside the same runs simulated.
//!
//! The time that a request takes apart from queue and service is measured first, with so few clients that no request waits.
//! The simulator is given that time and nothing else from the live runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_config::Configuration;

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::figure::{Axis, Line, Panel};
use crate::report::Settings;
use crate::setup::{
    CLIENTS_PER_EDGE, CONFIGURATIONS, Demand, EDGES, Layout, POOL, Run, SERVICE, Until, WORKERS,
    possible_rate, style_of,
};
use crate::sim;
use crate::statistics::median;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::{self, Fixed};

/// Burst lengths of R10 whose live runs are short, and one below them.
const BURSTS: [u64; 5] = [256, 512, 1024, 2048, 4096];
const BURSTS_QUICK: [u64; 2] = [512, 2048];
/// A run has whole rounds over the sites, and at least this many requests.
const REQUESTS_MIN: u64 = 8_000;
const REQUESTS_MIN_QUICK: u64 = 4_000;
/// Target for the difference of a simulated point from the live one, relative to the live one.
const WITHIN: f64 = 0.1;
/// Requests of the run that measures the path, made by one client of each edge.
const PATH_REQUESTS: u64 = 800;
/// Time limit for a simulation, which has some ten thousand requests.
const SIM_MAX: Duration = Duration::from_secs(300);

/// How a row was obtained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum By {
    Live,
    Sim,
}

/// The figures of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    #[serde(skip)]
    layout: Layout,
    configuration: Configuration,
    burst: u64,
    sites: &'static str,
    by: By,
    requests_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    errors: u64,
    moves: u64,
    step_to_first_request_ms: Option<f64>,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    configuration: Configuration,
    burst: u64,
    sites: &'static str,
    by: By,
    requests_per_s: Fixed<1>,
    p50_ms: Fixed<3>,
    p99_ms: Fixed<3>,
    errors: u64,
    moves: u64,
}

/// A row of the simulator: the columns that are used here.
#[derive(Debug, Deserialize)]
struct Simulated {
    configuration: Configuration,
    requests_per_s: f64,
    response_ms_p50: f64,
    response_ms_p99: f64,
    errors: f64,
    moves: f64,
    step_to_first_request_ms: f64,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    bench.serve(demand())?;
    study::run(bench, Beside { quick: bench.options.quick, settings: Settings::of(demand()), path_ms: 0.0 })
}

/// Settings that all runs share.
#[derive(Serialize)]
struct Beside {
    #[serde(skip)]
    quick: bool,
    #[serde(flatten)]
    settings: Settings,
    /// The measured value.
    path_ms: f64,
}

impl Beside {
    fn runs(&self) -> Vec<Run> {
        if self.quick { plan(&BURSTS_QUICK, REQUESTS_MIN_QUICK) } else { plan(&BURSTS, REQUESTS_MIN) }
    }
}

impl Study for Beside {
    type Row = Row;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        let runs = self.runs();
        let simulated = runs.chunks(CONFIGURATIONS.len()).map(|_| Duration::from_secs(1));
        [Duration::from_secs(5)]
            .into_iter()
            .chain(runs.iter().map(Run::ideal_duration))
            .chain(simulated)
            .collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Beside>) -> Result<()> {
        self.path_ms = measure_path(bench)?;
        for runs in self.runs().chunks(CONFIGURATIONS.len()) {
            for run in runs {
                rows.push(self, live(bench, run)?)?;
            }
            for row in simulated(bench, runs, self.path_ms)? {
                rows.push(self, row)?;
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        vec![TableLine {
            configuration: row.configuration,
            burst: row.burst,
            sites: row.sites,
            by: row.by,
            requests_per_s: Fixed(row.requests_per_s),
            p50_ms: Fixed(row.p50_ms),
            p99_ms: Fixed(row.p99_ms),
            errors: row.errors,
            moves: row.moves,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let Row { layout, configuration, burst, .. } = *row;
        let ideal = layout.ideal_rate(configuration);
        let most = possible_rate(ideal, burst, layout.nodes_in_all(configuration));
        let of = |what: &str| format!("{} sites, bursts of {burst}, {configuration}: {what}", layout.sites());
        vec![
            Bound::new(of("requests/s"), row.requests_per_s, 0.0..=most),
            Bound::new(of("p50, ms"), row.p50_ms, SERVICE.as_secs_f64() * 1e3..=f64::INFINITY),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        Drawing {
            panels: Layout::ALL.iter().map(|layout| panel(*layout, rows)).collect(),
            legend: CONFIGURATIONS.map(|of| (of.to_string(), style_of(of))).into(),
            dashed: Some("simulated"),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
}

const fn demand() -> Demand {
    Demand::SingleFile(1024)
}

/// Configurations alternate within a burst length and layout.
fn plan(bursts: &[u64], requests_min: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    for &burst in bursts {
        for layout in Layout::ALL {
            let round = layout.sites() * burst;
            let until = Until::Requests(round * requests_min.div_ceil(round));
            runs.extend(CONFIGURATIONS.map(|configuration| Run {
                layout,
                demand: demand(),
                configuration,
                burst,
                pause: Duration::ZERO,
                until,
            }));
        }
    }
    runs
}

/// The median response time where no request waits, less the service time.
fn measure_path(bench: &mut Bench<'_>) -> Result<f64> {
    let name = bench.name("path");
    bench.begin(&name);
    let run = Run {
        layout: Layout::Three,
        demand: demand(),
        configuration: Configuration::Rigid,
        burst: PATH_REQUESTS,
        pause: Duration::ZERO,
        until: Until::Requests(PATH_REQUESTS),
    };
    let mut file = run.cluster_file(&bench.ground);
    if let Some(workload) = &mut file.workload {
        workload.clients_per_edge = 1;
    }
    let time = SERVICE * PATH_REQUESTS as u32;
    let (summary, _) = bench.up(&name, "one client for each edge, so that nobody waits", &file, time)?;
    bench.end();
    Ok((summary.p50_ms - SERVICE.as_secs_f64() * 1e3).max(0.0))
}

fn live(bench: &mut Bench<'_>, run: &Run) -> Result<Row> {
    let summary = bench.run(run)?.summary;
    Ok(Row {
        layout: run.layout,
        configuration: run.configuration,
        burst: run.burst,
        sites: run.layout.label(),
        by: By::Live,
        requests_per_s: summary.requests_per_s,
        p50_ms: summary.p50_ms,
        p99_ms: summary.p99_ms,
        errors: summary.errors,
        moves: summary.moves,
        step_to_first_request_ms: summary.step_to_first_request_ms.map(|steps| steps.p50),
    })
}

/// Runs that differ in their configuration alone.
fn simulated(bench: &mut Bench<'_>, runs: &[Run], path_ms: f64) -> Result<Vec<Row>> {
    let Run { layout, burst, until, .. } = runs[0];
    let Until::Requests(asked) = until else { unreachable!("the plan counts requests") };
    let config = format!(
        "[run]\nmodel = \"reconfig\"\n[cluster]\nnodes = {POOL}\n[sites]\nsites = {}\nworkers = {WORKERS}\nservice_ms = {}\n\
         path_ms = {path_ms:.3}\nburst = {burst}\nasked = {asked}\nclients_per_edge = {CLIENTS_PER_EDGE}\n[reconfig]\n\
         balancers = {EDGES}\n",
        layout.sites(),
        SERVICE.as_secs_f64() * 1e3,
    );
    let configurations = runs.iter().map(|run| run.configuration.to_string()).collect::<Vec<_>>().join(",");
    let name = bench.name(format!("sim-{}-sites-{burst}", layout.sites()));
    let path = sim::run(bench, &name, &config, &[format!("configuration={configurations}")], SIM_MAX)?;
    let row = |row: Simulated| Row {
        layout,
        configuration: row.configuration,
        burst,
        sites: layout.label(),
        by: By::Sim,
        requests_per_s: row.requests_per_s,
        p50_ms: row.response_ms_p50,
        p99_ms: row.response_ms_p99,
        errors: row.errors as u64,
        moves: row.moves as u64,
        step_to_first_request_ms: Some(row.step_to_first_request_ms).filter(|ms| *ms > 0.0),
    };
    Ok(table::read(&path)?.into_iter().map(row).collect())
}

/// Pairs each live row with its simulated row.
fn pairs(rows: &[Row]) -> impl Iterator<Item = (&Row, &Row)> {
    rows.iter().filter(|row| row.by == By::Live).filter_map(|live| {
        let is_its = |row: &&Row| {
            row.by == By::Sim
                && (row.configuration, row.burst, row.sites) == (live.configuration, live.burst, live.sites)
        };
        Some((live, rows.iter().find(is_its)?))
    })
}

/// The relative difference of the simulated throughput from the live one.
fn off((live, sim): (&Row, &Row)) -> f64 {
    (sim.requests_per_s / live.requests_per_s - 1.0).abs()
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let worst = |configuration: Configuration| {
        pairs(rows).filter(|(live, _)| live.configuration == configuration).map(off).reduce(f64::max)
    };
    let mut checks: Vec<Check> = CONFIGURATIONS
        .into_iter()
        .map(|of| {
            let what = format!("{of}: simulated requests/s off the live ones, of all points at most");
            Check::at_most(what, WITHIN, worst(of))
        })
        .collect();
    let errors: u64 = rows.iter().map(|row| row.errors).sum();
    checks.push(Check::at_most("requests without an answer, all runs", 0.0, Some(errors as f64)));
    checks
}

fn panel(layout: Layout, rows: &[Row]) -> Panel {
    let of = || rows.iter().filter(|row| row.sites == layout.label());
    let x = |row: &Row| (row.burst as f64).log2();
    let (first, last) = (of().map(x).fold(f64::INFINITY, f64::min), of().map(x).fold(0.0, f64::max));
    let line = |configuration: Configuration, by: By| {
        let style = if by == By::Live { style_of(configuration) } else { style_of(configuration).ideal() };
        let rows = of().filter(|row| row.configuration == configuration && row.by == by);
        Line::new(style, rows.map(|row| (x(row), row.requests_per_s)).collect())
    };
    let lines = CONFIGURATIONS.into_iter().flat_map(|of| [line(of, By::Live), line(of, By::Sim)]);
    Panel {
        title: format!("{} sites, {} nodes", layout.sites(), layout.label()),
        x: Axis {
            title: "burst length (requests)".to_owned(),
            range: first - 0.3..last + 0.3,
            ticks: (first as u32..=last as u32).map(f64::from).collect(),
            label: |log2| format!("{:.0}", log2.exp2()),
            names: Vec::new(),
        },
        y: Axis::from_zero("requests/s", of().map(|row| row.requests_per_s).fold(0.0, f64::max)),
        lines: lines.collect(),
    }
}

fn tell(study: &Beside, rows: &[Row], report: &mut Story) {
    report.heading("What is compared");
    report.paragraph(&format!(
        "R10's runs as this machine does them, each beside the same run simulated. Of this machine the simulator was told one \
         figure, which was measured first: {:.2} ms for a request apart from queue and service (one client for each edge, \
         the median). All others are its defaults, or the cluster's.",
        study.path_ms
    ));
    report.checks();
    if let Some(middle) = median(pairs(rows).map(off).collect()) {
        report.paragraph(&format!("In the middle of all points it is off by {:.1} %.", 100.0 * middle));
    }
    report.heading("Measured");
    let columns = [
        "configuration",
        "burst",
        "sites",
        "live, requests/s",
        "simulated",
        "simulated / live",
        "p50, ms, live",
        "simulated",
        "p99, ms, live",
        "simulated",
        "moves, live",
        "simulated",
        "step to first request, ms, live",
        "simulated",
    ];
    report.table(
        &columns,
        pairs(rows).map(|(live, sim)| {
            let each =
                |of: fn(&Row) -> Option<f64>, digits: usize| [live, sim].map(|row| number(of(row), digits));
            let place = [live.configuration.to_string(), live.burst.to_string(), live.sites.to_owned()];
            let ratio = number(Some(sim.requests_per_s / live.requests_per_s), 3);
            let [a, b] = each(|row| Some(row.requests_per_s), 0);
            let figures = [
                each(|row| Some(row.p50_ms), 1),
                each(|row| Some(row.p99_ms), 1),
                each(|row| Some(row.moves as f64), 0),
                each(|row| row.step_to_first_request_ms, 1),
            ];
            place.into_iter().chain([a, b, ratio]).chain(figures.into_iter().flatten()).collect()
        }),
    );
    report.heading("What is not the same");
    report.list([
        "The live edges' and nodes' CPU time, and their waiting for one of this machine's cores: in the simulator it is all \
         in the one figure above."
            .to_owned(),
        "Timers: a live node answers up to a millisecond or two after a worker is done, which is what its timers are; half \
         of the figure above follows each service."
            .to_owned(),
    ]);
    let errors: u64 = rows.iter().map(|row| row.errors).sum();
    report.how(&format!("{} {errors} requests failed in all runs.", study.settings.describe()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(configuration: Configuration, by: By, requests_per_s: f64) -> Row {
        Row {
            layout: Layout::Three,
            configuration,
            burst: 512,
            sites: "3:3:2",
            by,
            requests_per_s,
            p50_ms: 12.5,
            p99_ms: 20.0,
            errors: 0,
            moves: 4,
            step_to_first_request_ms: None,
        }
    }

    #[test]
    fn each_point_is_held_against_its_own() {
        let rows = [
            row(Configuration::Rigid, By::Live, 1000.0),
            row(Configuration::Reconfigured, By::Live, 2000.0),
            row(Configuration::Rigid, By::Sim, 1090.0),
            row(Configuration::Reconfigured, By::Sim, 1700.0),
        ];
        let verdicts: Vec<_> = checks(&rows).iter().map(Check::verdict).collect();
        assert_eq!(verdicts, ["met", "MISSED", "not measured", "met"]);
        let study = Beside { quick: false, settings: Settings::of(demand()), path_ms: 0.0 };
        let [columns, line] = table::written(study.lines(&rows[2]).remove(0));
        assert_eq!(line, "rigid,512,3:3:2,sim,1090.0,12.500,20.000,0,4");
        assert_eq!(columns, "configuration,burst,sites,by,requests_per_s,p50_ms,p99_ms,errors,moves");
    }

    #[test]
    fn runs_are_of_whole_rounds_and_stand_together() {
        let runs = plan(&BURSTS, REQUESTS_MIN);
        assert_eq!(runs.len(), BURSTS.len() * 2 * CONFIGURATIONS.len());
        for runs in runs.chunks(CONFIGURATIONS.len()) {
            assert!(runs.iter().all(|run| run.layout == runs[0].layout && run.burst == runs[0].burst));
            let Until::Requests(asked) = runs[0].until else { panic!("{runs:?}") };
            assert!(asked >= REQUESTS_MIN && asked.is_multiple_of(runs[0].layout.sites() * runs[0].burst));
        }
    }
}
