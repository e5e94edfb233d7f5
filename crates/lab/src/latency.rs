//! move-latency: how long a site whose load has just risen waits for the first request on a node that moved to it.
//!
//! Bursts go to three sites in turn. In the case that is judged there is a pause between two bursts, so that each finds the
//! other sites idle and its own site with the one node of its floor. In the other case there is no pause: the nodes of the
//! previous site must first finish its queue.

mod report;

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Configuration;

use crate::bench::{Bench, Done};
use crate::check::Check;
use crate::drawing::{Drawing, legend};
use crate::error::Result;
use crate::figure::{Axis, Line, Panel, Style};
use crate::report::Settings;
use crate::setup::{Demand, Layout, Run, Until};
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use crate::up::Spread;

/// Requests of a burst: a quarter of a second of work for the nodes that it moves to its site.
const BURST: u64 = 600;
const DEMAND: Demand = Demand::SingleFile(1024);
/// Number of bursts, each of which is a load step.
const BURSTS: u64 = 240;
const BURSTS_QUICK: u64 = 60;
/// The pause between two bursts. Requests in flight end, and all sites are seen to be idle.
const PAUSE: Duration = Duration::from_millis(100);
/// Target for the p50 at S = 1 ms and T = 2 ms.
const P50_MS_MAX: f64 = 10.0;
/// Steps that a run needs to be judged. Another edge may act first in some bursts.
const STEPS_MIN: f64 = 100.0;

/// The state in which a burst finds the cluster.
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

/// The figures of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    case: Case,
    bursts: u64,
    /// `None` if no node moved.
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
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    case: Case,
    steps: u64,
    p50_ms: Option<Fixed<3>>,
    p99_ms: Option<Fixed<3>>,
    max_ms: Option<Fixed<3>>,
    moves: u64,
    errors: u64,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    bench.serve(DEMAND)?;
    study::run(bench, MoveLatency { settings: Settings::of(DEMAND), quick: bench.options.quick })
}

#[derive(Serialize)]
struct MoveLatency {
    #[serde(flatten)]
    settings: Settings,
    #[serde(skip)]
    quick: bool,
}

impl MoveLatency {
    fn bursts(&self) -> u64 {
        if self.quick { BURSTS_QUICK } else { BURSTS }
    }
}

impl Study for MoveLatency {
    type Row = Row;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        Case::ALL.map(|case| plan(case, self.bursts()).ideal_duration()).into()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<MoveLatency>) -> Result<()> {
        for case in Case::ALL {
            let done = bench.run(&plan(case, self.bursts()))?;
            rows.push(self, Row::new(case, self.bursts(), &done))?;
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { case, step_to_first_request_ms: steps, moves, errors, .. } = *row;
        let of = |figure: fn(Spread) -> f64| steps.map(|steps| Fixed(figure(steps)));
        vec![TableLine {
            case,
            steps: steps.map_or(0, |steps| steps.count),
            p50_ms: of(|steps| steps.p50),
            p99_ms: of(|steps| steps.p99),
            max_ms: of(|steps| steps.max),
            moves,
            errors,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let Some(Spread { count, p50, p99, max }) = row.step_to_first_request_ms else { return Vec::new() };
        let of = |what: &str| format!("{}: {what}", row.case.name());
        vec![
            Bound::new(of("load steps that moved a node"), count as f64, 0.0..=row.bursts as f64),
            Bound::new(of("p50, ms"), p50, 0.0..=p99),
            Bound::new(of("p99, ms"), p99, p50..=max),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows, self.quick)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        Drawing {
            panels: Case::ALL.iter().zip(["a", "b"]).map(|(&case, part)| panel(case, part, rows)).collect(),
            legend: legend([("measured", Style::OURS)]),
            dashed: Some("target for p50 from rest"),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(&self.settings, rows, story);
    }
}

fn plan(case: Case, bursts: u64) -> Run {
    Run {
        layout: Layout::Three,
        demand: DEMAND,
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

fn panel(case: Case, part: &str, rows: &[Row]) -> Panel {
    let steps = find(rows, case);
    let points =
        steps.map_or_else(Vec::new, |steps| vec![(1.0, steps.p50), (2.0, steps.p99), (3.0, steps.max)]);
    let most = points.iter().map(|(_, ms)| *ms).fold(P50_MS_MAX, f64::max);
    let mut lines = vec![Line::new(Style::OURS, points)];
    if case == Case::Rest {
        lines.insert(0, Line::new(Style::TARGET, vec![(0.5, P50_MS_MAX), (1.5, P50_MS_MAX)]));
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
        let written = |row: &Row| {
            crate::table::written(
                MoveLatency { settings: Settings::of(DEMAND), quick: false }.lines(row).remove(0),
            )
        };
        let [columns, line] = written(&row(Case::Rest, 240, 6.25));
        assert_eq!(columns, "case,steps,p50_ms,p99_ms,max_ms,moves,errors");
        assert_eq!(line, "rest,240,6.250,12.500,18.750,700,0");
        assert_eq!(written(&row(Case::Busy, 0, 0.0))[1], "busy,0,,,,700,0");
    }

    #[test]
    fn the_runs_differ_in_the_pause_alone() {
        let [rest, busy] = Case::ALL.map(|case| plan(case, BURSTS));
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
