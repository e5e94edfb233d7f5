//! S1: the simulated data-center beside the live one: R10's runs on this machine, and the same runs simulated.
//!
//! What a request takes apart from queue and service is measured first, with so few clients that nobody waits, and told to
//! the simulator. Nothing else of it is taken from the runs that it is compared with.

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Configuration;

use crate::bench::Bench;
use crate::check::{Check, median};
use crate::csv::Table;
use crate::error::Result;
use crate::figure::{self, Axis, Line, Panel};
use crate::machine::Machine;
use crate::report::{Markdown, Outcome, Settings, number};
use crate::setup::{
    CLIENTS_PER_EDGE, CONFIGURATIONS, Demand, EDGES, Layout, POOL, Run, SERVICE, Until, WORKERS, look_of,
};
use crate::sim;

/// Of R10's burst lengths, those whose live runs are short; and one below.
const BURSTS: [u64; 5] = [256, 512, 1024, 2048, 4096];
const BURSTS_QUICK: [u64; 2] = [512, 2048];
/// A run has whole rounds over the sites, and at least so many requests.
const REQUESTS_MIN: u64 = 8_000;
const REQUESTS_MIN_QUICK: u64 = 4_000;
/// How far a simulated point may lie from the live one, as a part of that.
const WITHIN: f64 = 0.1;
/// The run that measures the path: requests, by one client of each edge.
const PATH_REQUESTS: u64 = 800;
/// A simulation may take so long: it has some ten thousand requests.
const SIM_MAX: Duration = Duration::from_secs(300);

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum By {
    Live,
    Sim,
}

/// One run's numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
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

impl Row {
    fn csv(&self) -> String {
        let Row { configuration, burst, sites, by, requests_per_s, p50_ms, p99_ms, errors, moves, .. } = self;
        let by = if *by == By::Live { "live" } else { "sim" };
        format!(
            "{configuration},{burst},{sites},{by},{requests_per_s:.1},{p50_ms:.3},{p99_ms:.3},{errors},{moves}"
        )
    }
}

/// What all runs share.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Ground {
    #[serde(flatten)]
    settings: Settings,
    /// As it was measured.
    path_ms: f64,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let quick = bench.options.quick;
    let (bursts, requests_min) =
        if quick { (&BURSTS_QUICK[..], REQUESTS_MIN_QUICK) } else { (&BURSTS[..], REQUESTS_MIN) };
    let runs = plan(bursts, requests_min);
    bench.expect_for(Duration::from_secs(5));
    bench.expect(runs.iter().copied())?;
    runs.chunks(CONFIGURATIONS.len()).for_each(|_| bench.expect_for(Duration::from_secs(1)));

    let path_ms = measure_path(bench)?;
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut rows = Vec::new();
    for runs in runs.chunks(CONFIGURATIONS.len()) {
        for run in runs {
            rows.push(live(bench, run, &mut table)?);
        }
        let found = simulated(bench, runs, path_ms)?;
        table.rows(found.iter().map(Row::csv))?;
        rows.extend(found);
    }
    let checks = checks(&rows);
    bench.write("figure.svg", &draw(bench, &rows)?)?;
    let machine = Machine::here();
    let ground = Ground { settings: Settings::of(demand()), path_ms };
    let outcome = Outcome::new(bench, &machine, ground, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &markdown(&outcome))?;
    Ok(checks)
}

const fn demand() -> Demand {
    Demand::SingleFile(1024)
}

/// The configurations of one burst length and layout stand together.
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

/// The median response where nobody waits, without the service.
fn measure_path(bench: &mut Bench<'_>) -> Result<f64> {
    let name = "path";
    bench.begin(name);
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
    let (summary, _) = bench.up(name, "one client for each edge, so that nobody waits", &file, time)?;
    bench.end();
    Ok((summary.p50_ms - SERVICE.as_secs_f64() * 1e3).max(0.0))
}

fn live(bench: &mut Bench<'_>, run: &Run, table: &mut Table) -> Result<Row> {
    let summary = bench.run(run)?.summary;
    let row = Row {
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
    };
    table.rows([row.csv()])?;
    Ok(row)
}

/// The same runs, which differ in their configuration alone.
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
    let name = format!("sim-{}-sites-{burst}", layout.sites());
    let path = sim::run(bench, &name, &config, &[format!("configuration={configurations}")], SIM_MAX)?;
    sim::read(&path, |value| {
        let number = |name: &str| value(name)?.parse::<f64>().ok();
        let configuration = value("configuration")?;
        let step = number("step_to_first_request_ms")?;
        Some(Row {
            configuration: CONFIGURATIONS.into_iter().find(|of| of.to_string() == configuration)?,
            burst,
            sites: layout.label(),
            by: By::Sim,
            requests_per_s: number("requests_per_s")?,
            p50_ms: number("response_ms_p50")?,
            p99_ms: number("response_ms_p99")?,
            errors: number("errors")? as u64,
            moves: number("moves")? as u64,
            step_to_first_request_ms: (step > 0.0).then_some(step),
        })
    })
}

/// Each live row with its simulated one.
fn pairs(rows: &[Row]) -> impl Iterator<Item = (&Row, &Row)> {
    rows.iter().filter(|row| row.by == By::Live).filter_map(|live| {
        let is_its = |row: &&Row| {
            row.by == By::Sim
                && (row.configuration, row.burst, row.sites) == (live.configuration, live.burst, live.sites)
        };
        Some((live, rows.iter().find(is_its)?))
    })
}

/// How far the simulated throughput is from the live one, as a part of that.
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

fn draw(bench: &Bench<'_>, rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let panels: Vec<Panel> = Layout::ALL.iter().map(|layout| panel(*layout, rows)).collect();
    let live = CONFIGURATIONS.map(|of| (format!("{of}, live"), look_of(of)));
    let sim = CONFIGURATIONS.map(|of| (format!("{of}, simulated"), look_of(of).ideal()));
    Ok(figure::draw(&title, &panels, &[&live[..], &sim[..]].concat())?)
}

fn panel(layout: Layout, rows: &[Row]) -> Panel {
    let of = || rows.iter().filter(|row| row.sites == layout.label());
    let x = |row: &Row| (row.burst as f64).log2();
    let (first, last) = (of().map(x).fold(f64::INFINITY, f64::min), of().map(x).fold(0.0, f64::max));
    let line = |configuration: Configuration, by: By| Line {
        look: if by == By::Live { look_of(configuration) } else { look_of(configuration).ideal() },
        points: of()
            .filter(|row| row.configuration == configuration && row.by == by)
            .map(|row| (x(row), row.requests_per_s))
            .collect(),
    };
    let lines = CONFIGURATIONS.into_iter().flat_map(|of| [line(of, By::Live), line(of, By::Sim)]);
    Panel {
        title: format!("{} sites, {} nodes", layout.sites(), layout.label()),
        x: Axis {
            title: "burst length (requests)".to_owned(),
            range: first - 0.3..last + 0.3,
            ticks: (first as u32..=last as u32).map(f64::from).collect(),
            label: |log2| format!("{:.0}", log2.exp2()),
        },
        y: Axis::from_zero("requests/s", of().map(|row| row.requests_per_s).fold(0.0, f64::max)),
        lines: lines.collect(),
    }
}

fn markdown(outcome: &Outcome<'_, Row, Ground>) -> String {
    let mut report = Markdown::new(outcome.experiment, outcome.quick);
    report.heading("What is compared");
    report.paragraph(&format!(
        "R10's runs as this machine does them, each beside the same run simulated. Of this machine the simulator was told one \
         figure, which was measured first: {:.2} ms for a request apart from queue and service (one client for each edge, \
         the median). All others are its defaults, or the cluster's.",
        outcome.settings.path_ms
    ));
    report.checks(outcome.checks);
    if let Some(middle) = median(pairs(outcome.rows).map(off).collect()) {
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
        pairs(outcome.rows).map(|(live, sim)| {
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
    let errors = outcome.rows.iter().map(|row| row.errors).sum();
    report.close(outcome, &outcome.settings.settings.describe(), errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(configuration: Configuration, by: By, requests_per_s: f64) -> Row {
        Row {
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
        assert_eq!(rows[2].csv(), "rigid,512,3:3:2,sim,1090.0,12.500,20.000,0,4");
        let columns = crate::experiment::find("S1").unwrap().columns.join(",");
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
