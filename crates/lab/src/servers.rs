//! servers: R10's longest bursts on nodes that are gunicorn, beside nodes with the built-in origin.
//!
//! The service time is longer than R10's, so that the workers of eight gunicorns are the limit, and not the CPUs of a small
//! machine.

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Configuration;

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::{Drawing, legend};
use crate::error::Result;
use crate::figure::{Axis, Line, Panel, Style};
use crate::report::Settings;
use crate::setup::{CONFIGURATIONS, Demand, Layout, RATIO_SLACK, Run, SERVICE, Until, possible_rate};
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use crate::up::{Spread, Summary};

/// As many times [`SERVICE`] a worker holds a request.
const SLOWER: u32 = 4;
const DEMAND: Demand = Demand::SingleFile(1024);
const LAYOUT: Layout = Layout::Three;
/// Requests for one site before the next site's turn.
const BURST: u64 = 2048;
/// Turns of each site in a run.
const ROUNDS: u64 = 3;
const ROUNDS_QUICK: u64 = 1;
/// Targets for requests/s: reconfigured to rigid and to over-provisioned, both on gunicorn.
const GAIN_MIN: f64 = 2.0;
const SHARE_MIN: f64 = 0.95;
/// Target for the median time of a move, on gunicorn to on the built-in origin.
const MOVE_MAX: f64 = 1.3;

/// What serves the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Make {
    Builtin,
    Gunicorn,
}

impl Make {
    const ALL: [Make; 2] = [Make::Builtin, Make::Gunicorn];

    const fn name(self) -> &'static str {
        match self {
            Make::Builtin => "built-in",
            Make::Gunicorn => "gunicorn",
        }
    }

    /// The options of `up` for it.
    const fn options(self) -> &'static [&'static str] {
        match self {
            Make::Builtin => &[],
            Make::Gunicorn => &["--servers", "gunicorn"],
        }
    }

    const fn style(self) -> Style {
        match self {
            Make::Builtin => Style::BASELINE,
            Make::Gunicorn => Style::OURS,
        }
    }
}

/// The figures of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    make: Make,
    configuration: Configuration,
    requests_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    moves: u64,
    move_ms: Option<Spread>,
    errors: u64,
}

impl Row {
    fn new(make: Make, configuration: Configuration, summary: &Summary) -> Row {
        Row {
            make,
            configuration,
            requests_per_s: summary.requests_per_s,
            p50_ms: summary.p50_ms,
            p99_ms: summary.p99_ms,
            moves: summary.moves,
            move_ms: summary.move_ms,
            errors: summary.errors,
        }
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    make: Make,
    configuration: Configuration,
    requests_per_s: Fixed<1>,
    p50_ms: Fixed<3>,
    p99_ms: Fixed<3>,
    moves: u64,
    move_ms_p50: Option<Fixed<3>>,
    errors: u64,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let settings = Settings { service_ms: service().as_secs_f64() * 1e3, ..Settings::of(DEMAND) };
    let requests_per_s_per_node = settings.requests_per_s_per_node / f64::from(SLOWER);
    let settings = Settings { requests_per_s_per_node, ..settings };
    study::run(bench, Servers { settings, quick: bench.options.quick })
}

#[derive(Serialize)]
struct Servers {
    #[serde(flatten)]
    settings: Settings,
    #[serde(skip)]
    quick: bool,
}

fn service() -> Duration {
    SERVICE * SLOWER
}

impl Servers {
    fn plan_of(&self, configuration: Configuration) -> Run {
        let rounds = if self.quick { ROUNDS_QUICK } else { ROUNDS };
        let until = Until::Requests(rounds * LAYOUT.sites() * BURST);
        Run { layout: LAYOUT, demand: DEMAND, configuration, burst: BURST, pause: Duration::ZERO, until }
    }
}

impl Study for Servers {
    type Row = Row;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        let time = |configuration| self.plan_of(configuration).ideal_duration() * SLOWER;
        CONFIGURATIONS.iter().flat_map(|configuration| Make::ALL.map(|_| time(*configuration))).collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Servers>) -> Result<()> {
        for configuration in CONFIGURATIONS {
            for make in Make::ALL {
                let run = self.plan_of(configuration);
                let (mut file, _) = run.plan(&bench.ground)?;
                file.nodes.iter_mut().for_each(|node| node.service_time = Some(service()));
                let name = bench.name(format!("{}-{configuration}", make.name()));
                let about = format!("{} on {}", run.describe(), make.name());
                bench.begin(&name);
                let time = run.ideal_duration() * SLOWER;
                let summary = bench.up_on(make.options(), &name, &about, &file, time)?;
                bench.end();
                rows.push(self, Row::new(make, configuration, &summary))?;
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { make, configuration, requests_per_s, p50_ms, p99_ms, moves, move_ms, errors } = *row;
        vec![TableLine {
            make,
            configuration,
            requests_per_s: Fixed(requests_per_s),
            p50_ms: Fixed(p50_ms),
            p99_ms: Fixed(p99_ms),
            moves,
            move_ms_p50: move_ms.map(|took| Fixed(took.p50)),
            errors,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let ideal = LAYOUT.ideal_rate(row.configuration);
        let possible =
            possible_rate(ideal, BURST, LAYOUT.nodes_in_all(row.configuration)) / f64::from(SLOWER);
        let of = |what: &str| format!("{}, {}: {what}", row.make.name(), row.configuration);
        vec![
            Bound::new(of("requests/s"), row.requests_per_s, 0.0..=possible),
            Bound::new(of("p50, ms"), row.p50_ms, 0.0..=row.p99_ms),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let line = |make: Make| {
            let points = CONFIGURATIONS.iter().zip(1..);
            let points = points.filter_map(|(configuration, at)| {
                Some((f64::from(at), find(rows, make, *configuration)?.requests_per_s))
            });
            Line::new(make.style().bars(), points.collect())
        };
        let most = rows.iter().map(|row| row.requests_per_s).fold(1.0, f64::max);
        let panel = Panel {
            title: format!("bursts of {BURST} requests"),
            x: Axis {
                label: |n| Axis::counted(&CONFIGURATIONS, n).map(ToString::to_string).unwrap_or_default(),
                ..Axis::counting("configuration".to_owned(), 3)
            },
            y: Axis::from_zero("requests/s", most),
            lines: Make::ALL.map(line).into(),
        };
        Drawing {
            panels: vec![panel],
            legend: legend(Make::ALL.map(|make| (make.name(), make.style().bars()))),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        story.paragraph(
            "Unmodified gunicorns, one for each node, each with two synchronous workers in a control group of its own, take the place \
             of the built-in origin. Their agents read their connections and accept queues. A move waits until every edge has stated \
             that none of its requests is at the node.",
        );
        story.checks();
        story.heading("Measured");
        let columns = [
            "servers",
            "configuration",
            "requests/s",
            "p50, ms",
            "p99, ms",
            "moves",
            "a move, p50 ms",
            "errors",
        ];
        story.table(
            &columns,
            rows.iter().map(|row| {
                vec![
                    row.make.name().to_owned(),
                    row.configuration.to_string(),
                    format!("{:.0}", row.requests_per_s),
                    number(Some(row.p50_ms), 1),
                    number(Some(row.p99_ms), 1),
                    row.moves.to_string(),
                    number(row.move_ms.map(|took| took.p50), 2),
                    row.errors.to_string(),
                ]
            }),
        );
        story.how(&self.settings.describe());
    }
}

fn find(rows: &[Row], make: Make, configuration: Configuration) -> Option<&Row> {
    rows.iter().find(|row| row.make == make && row.configuration == configuration)
}

fn checks(rows: &[Row]) -> Vec<Check> {
    use Configuration::{OverProvisioned, Reconfigured, Rigid};
    let rate = |configuration| {
        Some(find(rows, Make::Gunicorn, configuration)?.requests_per_s).filter(|rate| *rate > 0.0)
    };
    let ratio = |over| Some(rate(Reconfigured)? / rate(over)?);
    let possible = |over| 0.0..=RATIO_SLACK * LAYOUT.ideal_rate(Reconfigured) / LAYOUT.ideal_rate(over);
    let took = |make| Some(find(rows, make, Reconfigured)?.move_ms?.p50);
    let moves = || Some(took(Make::Gunicorn)? / took(Make::Builtin)?);
    let errors: u64 = rows.iter().map(|row| row.errors).sum();
    let what = |over| format!("gunicorn, bursts of {BURST}: reconfigured / {over}");
    vec![
        Check::at_least(what(Rigid), GAIN_MIN, ratio(Rigid)).possible(possible(Rigid)),
        Check::at_least(what(OverProvisioned), SHARE_MIN, ratio(OverProvisioned))
            .possible(possible(OverProvisioned)),
        Check::at_most("median time of a move: gunicorn / built-in", MOVE_MAX, moves()),
        Check::at_most("requests without an answer, all runs", 0.0, Some(errors as f64)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let each = CONFIGURATIONS.iter().zip([250.0, 550.0, 570.0]);
        each.flat_map(|(&configuration, requests_per_s)| {
            Make::ALL.map(|make| Row {
                make,
                configuration,
                requests_per_s,
                p50_ms: 50.0,
                p99_ms: 90.0,
                moves: 15,
                move_ms: (configuration == Configuration::Reconfigured).then_some(Spread {
                    count: 15,
                    p50: 20.0,
                    p99: 40.0,
                    max: 41.0,
                }),
                errors: 0,
            })
        })
        .collect()
    }

    #[test]
    fn gunicorn_is_judged_beside_itself_and_moves_beside_the_built_in_origin() {
        let verdicts = |rows: &[Row]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&rows()), ["met"; 4]);
        let mut worse = rows();
        for row in worse.iter_mut().filter(|row| row.make == Make::Gunicorn) {
            row.errors = 1;
            if let Some(took) = &mut row.move_ms {
                took.p50 *= 2.0;
                row.requests_per_s = 400.0;
            }
        }
        assert_eq!(verdicts(&worse), ["MISSED"; 4]);
        assert_eq!(verdicts(&[]), ["not measured", "not measured", "not measured", "met"]);
    }

    #[test]
    fn a_row_has_the_columns_of_its_experiment() {
        let servers = Servers { settings: Settings::of(DEMAND), quick: true };
        let [columns, line] = crate::table::written(servers.lines(&rows()[3]).remove(0));
        assert_eq!(columns, "make,configuration,requests_per_s,p50_ms,p99_ms,moves,move_ms_p50,errors");
        assert_eq!(line, "gunicorn,reconfigured,550.0,50.000,90.000,15,20.000,0");
        assert!(servers.bounds(&rows()[3]).len() == 2 && servers.plan().len() == 6);
    }
}
