//! move-latency: how long a site whose load has just risen waits for the first request on a node that moved to it.
//!
//! Bursts go to three sites in turn. In the case that is judged there is a pause between two of them, so that each finds
//! the other sites idle and its own with the one node that its floor leaves it. In the other there is none: the nodes of
//! the site before must finish what they have first, and what they have is a queue.

mod report;

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Configuration;

use crate::bench::{Bench, Done};
use crate::check::Check;
use crate::error::Result;
use crate::figure::{self, Axis, Line, Look, Panel};
use crate::machine::Machine;
use crate::report::{Outcome, Settings};
use crate::setup::{Demand, Layout, Run, Until};
use crate::up::Spread;

/// Requests of a burst: a quarter of a second of the nodes that it moves to itself.
const BURST: u64 = 600;
/// Bursts, each a load step.
const BURSTS: u64 = 240;
const BURSTS_QUICK: u64 = 60;
/// Between two bursts: what is under way ends, and all sites are seen to be idle.
const PAUSE: Duration = Duration::from_millis(100);
/// Issue 2, at S = 1 ms and T = 2 ms.
const P50_MS_MAX: f64 = 10.0;
/// A run with fewer steps says little; some bursts may find that another edge was first.
const STEPS_MIN: f64 = 100.0;

/// Whether a burst finds the cluster at rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Case {
    Rest,
    Busy,
}

impl Case {
    const ALL: [Case; 2] = [Case::Rest, Case::Busy];

    const fn name(self) -> &'static str {
        match self {
            Case::Rest => "rest",
            Case::Busy => "busy",
        }
    }

    const fn describe(self) -> &'static str {
        match self {
            Case::Rest => "each burst finds the cluster at rest",
            Case::Busy => "each burst follows at once",
        }
    }

    const fn pause(self) -> Duration {
        match self {
            Case::Rest => PAUSE,
            Case::Busy => Duration::ZERO,
        }
    }
}

/// One run's numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    case: Case,
    bursts: u64,
    /// None where no node moved.
    step_to_first_request_ms: Option<Spread>,
    requests_per_s: f64,
    moves: u64,
    errors: u64,
}

impl Row {
    fn new(case: Case, bursts: u64, done: &Done) -> Row {
        let summary = &done.summary;
        Row {
            case,
            bursts,
            step_to_first_request_ms: summary.step_to_first_request_ms,
            requests_per_s: summary.requests_per_s,
            moves: summary.moves,
            errors: summary.errors,
        }
    }

    fn csv(&self) -> String {
        let Row { case, step_to_first_request_ms: steps, moves, errors, .. } = self;
        let steps = match steps {
            Some(Spread { count, p50, p99, max }) => format!("{count},{p50:.3},{p99:.3},{max:.3}"),
            None => "0,,,".to_owned(),
        };
        format!("{},{steps},{moves},{errors}", case.name())
    }
}

pub(crate) fn run(bench: &mut Bench<'_>, demand: Demand) -> Result<Vec<Check>> {
    let bursts = if bench.options.quick { BURSTS_QUICK } else { BURSTS };
    let runs = Case::ALL.map(|case| (case, plan(demand, case, bursts)));
    bench.expect(runs.map(|(_, run)| run))?;
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut rows = Vec::with_capacity(runs.len());
    for (case, run) in runs {
        let row = Row::new(case, bursts, &bench.run(&run)?);
        table.rows([row.csv()])?;
        rows.push(row);
    }

    let checks = checks(&rows, bench.options.quick);
    bench.write("figure.svg", &draw(bench, &rows)?)?;
    let machine = Machine::here();
    let outcome = Outcome::new(bench, &machine, Settings::of(demand), &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &report::markdown(&outcome))?;
    Ok(checks)
}

fn plan(demand: Demand, case: Case, bursts: u64) -> Run {
    Run {
        layout: Layout::Three,
        demand,
        configuration: Configuration::Reconfigured,
        burst: BURST,
        pause: case.pause(),
        until: Until::Requests(bursts * BURST),
    }
}

fn find(rows: &[Row], case: Case) -> Option<Spread> {
    rows.iter().find(|row| row.case == case)?.step_to_first_request_ms
}

fn checks(rows: &[Row], quick: bool) -> Vec<Check> {
    let rest = find(rows, Case::Rest);
    let steps = (!quick).then(|| rest.map_or(0.0, |steps| steps.count as f64));
    let errors: u64 = rows.iter().map(|row| row.errors).sum();
    vec![
        Check::at_most(
            "load step to first request on a moved node, from rest: p50, ms",
            P50_MS_MAX,
            rest.map(|steps| steps.p50),
        ),
        Check::at_least("load steps from rest that moved a node", STEPS_MIN, steps),
        Check::at_most("requests without an answer, both runs", 0.0, Some(errors as f64)),
    ]
}

fn draw(bench: &Bench<'_>, rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let panels: Vec<_> =
        Case::ALL.iter().zip(["a", "b"]).map(|(&case, part)| panel(case, part, rows)).collect();
    let legend = [("measured", Look::OURS), ("target for p50 from rest", Look::TARGET)];
    Ok(figure::draw(&title, &panels, &legend.map(|(label, look)| (label.to_owned(), look)))?)
}

fn panel(case: Case, part: &str, rows: &[Row]) -> Panel {
    let steps = find(rows, case);
    let points =
        steps.map_or_else(Vec::new, |steps| vec![(1.0, steps.p50), (2.0, steps.p99), (3.0, steps.max)]);
    let most = points.iter().map(|(_, ms)| *ms).fold(P50_MS_MAX, f64::max);
    let mut lines = vec![Line { look: Look::OURS, points }];
    if case == Case::Rest {
        lines.insert(0, Line { look: Look::TARGET, points: vec![(0.5, P50_MS_MAX), (1.5, P50_MS_MAX)] });
    }
    Panel {
        title: format!("({part}) {}", case.describe()),
        x: Axis {
            label: |n| ["", "p50", "p99", "max"].get(n as usize).copied().unwrap_or_default().to_owned(),
            ..Axis::counting(format!("of {} load steps", steps.map_or(0, |steps| steps.count)), 3)
        },
        y: Axis::from_zero("step to first request on a moved node (ms)", most),
        lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: Case, count: u64, p50: f64) -> Row {
        let spread = Spread { count, p50, p99: 2.0 * p50, max: 3.0 * p50 };
        Row {
            case,
            bursts: 240,
            step_to_first_request_ms: (count > 0).then_some(spread),
            requests_per_s: 1500.0,
            moves: 700,
            errors: 0,
        }
    }

    #[test]
    fn from_rest_is_judged_and_busy_is_not() {
        let verdicts = |rows: &[Row]| checks(rows, false).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&[row(Case::Rest, 240, 6.0), row(Case::Busy, 240, 21.0)]), ["met", "met", "met"]);
        assert_eq!(
            verdicts(&[row(Case::Rest, 90, 11.0), row(Case::Busy, 240, 6.0)]),
            ["MISSED", "MISSED", "met"]
        );
        assert_eq!(verdicts(&[row(Case::Rest, 0, 0.0)]), ["not measured", "MISSED", "met"]);
        assert_eq!(checks(&[row(Case::Rest, 60, 6.0)], true)[1].verdict(), "not measured");
    }

    #[test]
    fn a_row_has_the_columns_of_its_experiment() {
        assert_eq!(row(Case::Rest, 240, 6.25).csv(), "rest,240,6.250,12.500,18.750,700,0");
        assert_eq!(row(Case::Busy, 0, 0.0).csv(), "busy,0,,,,700,0");
        let experiment =
            crate::experiments().iter().find(|experiment| experiment.id == "move-latency").unwrap();
        assert_eq!(experiment.columns.join(","), "case,steps,p50_ms,p99_ms,max_ms,moves,errors");
    }

    #[test]
    fn the_runs_differ_in_the_pause_alone() {
        let [rest, busy] = Case::ALL.map(|case| plan(Demand::SingleFile(1024), case, BURSTS));
        assert_eq!(Run { pause: Duration::ZERO, ..rest }, busy);
        assert_eq!(
            (rest.name().as_str(), busy.name().as_str()),
            ("3-sites-600-pause-100ms-reconfigured", "3-sites-600-reconfigured")
        );
    }

    #[test]
    fn the_axis_names_quantiles() {
        let panel = panel(Case::Rest, "a", &[row(Case::Rest, 240, 6.0)]);
        let labels: Vec<_> = panel.x.ticks.iter().map(|tick| (panel.x.label)(*tick)).collect();
        assert_eq!(labels, ["p50", "p99", "max"]);
    }
}
