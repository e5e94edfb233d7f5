//! R10-R14: throughput by burst length (R 4.3.1).

mod judge;
mod report;

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Configuration;

use crate::bench::{Bench, Done};
use crate::check::Check;
use crate::csv::Table;
use crate::error::Result;
use crate::figure::{self, Axis, Line, Panel};
use crate::machine::Machine;
use crate::report::{Outcome, Settings, node_seconds};
use crate::setup::{CONFIGURATIONS, Demand, Layout, Run, Until, look_of};
use crate::up::Spread;
use judge::Results;

/// Burst lengths of R's figures.
const BURSTS: [u64; 6] = [512, 1024, 2048, 4096, 8192, 16384];
const BURSTS_QUICK: [u64; 2] = [512, 4096];
/// Below R's: where the search for the shortest burst that pays goes on. R's 512 lasts as long as our 24.
const BURSTS_SHORTER: [u64; 5] = [256, 128, 64, 32, 16];
/// A run has whole rounds over the sites, at least one, and at least so many requests.
const REQUESTS_MIN: u64 = 12_000;
/// The same for quick runs and for the search.
const REQUESTS_MIN_QUICK: u64 = 4_000;
/// Reconfigured over rigid from which a burst length is said to pay.
const PAYS: f64 = 1.5;

/// One run's numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    sites: &'static str,
    workload: String,
    configuration: Configuration,
    burst: u64,
    requests_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    errors: u64,
    moves: u64,
    /// Not in `rows.csv`, like what follows.
    requests: u64,
    seconds: f64,
    /// When nothing but the nodes limits it and reconfiguration takes no time.
    ideal_requests_per_s: f64,
    step_to_first_request_ms: Option<Spread>,
}

impl Row {
    fn new(run: &Run, done: Done) -> Row {
        let Done { summary, ideal_requests_per_s, .. } = done;
        Row {
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

    fn csv(&self) -> String {
        let Row { sites, workload, configuration, burst, errors, moves, .. } = self;
        let (rate, p50, p99) = (self.requests_per_s, self.p50_ms, self.p99_ms);
        format!("{sites},{workload},{configuration},{burst},{rate:.1},{p50:.3},{p99:.3},{errors},{moves}")
    }
}

pub(crate) fn run(bench: &mut Bench<'_>, demand: Demand) -> Result<Vec<Check>> {
    let quick = bench.options.quick;
    let (bursts, requests_min) =
        if quick { (&BURSTS_QUICK[..], REQUESTS_MIN_QUICK) } else { (&BURSTS[..], REQUESTS_MIN) };
    let runs = plan(demand, bursts, &CONFIGURATIONS, requests_min);
    let searched = [Configuration::Rigid, Configuration::Reconfigured];
    let search = plan(demand, &BURSTS_SHORTER, &searched, REQUESTS_MIN_QUICK);
    bench.expect(runs.iter().copied())?;
    if !quick {
        bench.expect(search.iter().copied())?;
    }

    let mut results = Results::default();
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    for run in &runs {
        results.rows.push(measure(bench, run, &mut table)?);
    }
    if !quick {
        let mut table = bench.table("shorter.csv", bench.experiment.columns)?;
        for run in &search {
            // A layout whose last, longer burst did not pay is done.
            if results.shortest_that_pays(run.layout).is_some_and(|burst| burst <= 2 * run.burst) {
                results.shorter.push(measure(bench, run, &mut table)?);
            } else {
                bench.skip();
            }
        }
    }

    let checks = results.checks();
    bench.write("figure.svg", &draw(bench, &results)?)?;
    let machine = Machine::here();
    let rows: Vec<Row> = results.all().cloned().collect();
    let outcome = Outcome::new(bench, &machine, Settings::of(demand), &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &report::markdown(&outcome, &results))?;
    Ok(checks)
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

fn measure(bench: &mut Bench<'_>, run: &Run, table: &mut Table) -> Result<Row> {
    let row = Row::new(run, bench.run(run)?);
    table.rows([row.csv()])?;
    Ok(row)
}

fn draw(bench: &Bench<'_>, results: &Results) -> Result<String> {
    let title = format!("{} ({}): {}", bench.experiment.id, bench.experiment.figure, bench.experiment.title);
    let panels: Vec<Panel> =
        Layout::ALL.iter().zip(["a", "b"]).map(|(&l, part)| panel(l, part, results)).collect();
    let measured = CONFIGURATIONS.map(|configuration| (configuration.to_string(), look_of(configuration)));
    let ideal = [Configuration::Rigid, Configuration::OverProvisioned]
        .map(|configuration| (format!("{configuration}, ideal"), look_of(configuration).ideal()));
    Ok(figure::draw(&title, &panels, &[&measured[..], &ideal[..]].concat())?)
}

fn panel(layout: Layout, part: &str, results: &Results) -> Panel {
    let rows = || results.rows.iter().filter(|row| row.sites == layout.label());
    let at = |row: &Row, rate| ((row.burst as f64).log2(), rate);
    let ends = rows().map(|row| (row.burst as f64).log2());
    let (first, last) = (ends.clone().fold(f64::INFINITY, f64::min), ends.fold(f64::NEG_INFINITY, f64::max));
    let max = rows().map(|row| row.requests_per_s.max(row.ideal_requests_per_s)).fold(0.0, f64::max);
    let line = |configuration: Configuration, look, rate: fn(&Row) -> f64| Line {
        look,
        points: rows()
            .filter(|row| row.configuration == configuration)
            .map(|row| at(row, rate(row)))
            .collect(),
    };
    let ideal = [Configuration::OverProvisioned, Configuration::Rigid].map(|configuration| {
        line(configuration, look_of(configuration).ideal(), |row| row.ideal_requests_per_s)
    });
    let measured = [Configuration::OverProvisioned, Configuration::Rigid, Configuration::Reconfigured]
        .map(|configuration| line(configuration, look_of(configuration), |row| row.requests_per_s));
    Panel {
        title: format!("({part}) {} sites, {} nodes", layout.sites(), layout.label()),
        x: Axis {
            title: format!("burst length (requests; 512 are {:.2} s of one node)", node_seconds(512)),
            range: first - 0.3..last + 0.3,
            ticks: (first as u32..=last as u32).map(f64::from).collect(),
            label: |log2| format!("{:.0}", log2.exp2()),
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
        assert_eq!(row.csv(), "3:3:2,1k,over-provisioned,512,2345.7,12.500,20.250,0,0");
        let columns = crate::experiment::find("R10").unwrap().columns.join(",");
        assert_eq!(columns, "sites,workload,configuration,burst,requests_per_s,p50_ms,p99_ms,errors,moves");
    }

    #[test]
    fn the_axis_names_burst_lengths() {
        let panel = panel(Layout::Three, "a", &judge::tests::results());
        let labels: Vec<_> = panel.x.ticks.iter().map(|tick| (panel.x.label)(*tick)).collect();
        assert_eq!(labels, ["512", "1024", "2048", "4096", "8192", "16384"]);
        assert!(panel.lines.iter().all(|line| line.points.len() == 6));
    }
}
