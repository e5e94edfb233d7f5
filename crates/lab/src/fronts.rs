//! F1: R10's bursts behind proxies of other makes, each led by Sidelong, left to itself, and before one pool of all servers.
//!
//! The pool that all sites share is what a sceptic asks for. On these nodes every server can serve every site at any time, so that it
//! is the fastest by far; it has no floors and no targets.

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Configuration;

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::{Drawing, legend};
use crate::error::{Error, Result};
use crate::figure::{Axis, Line, Panel, Style};
use crate::report::Settings;
use crate::setup::{Demand, Layout, POOL, RATIO_SLACK, Run, Until, node_rate, possible_rate};
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use crate::up::{Spread, Summary};

const DEMAND: Demand = Demand::SingleFile(1024);
const LAYOUT: Layout = Layout::Three;
/// Requests for one site before the next site's turn.
const BURST: u64 = 2048;
/// Turns of each site in a run, in full and quick.
const ROUNDS: [u64; 2] = [3, 1];
/// Targets for requests/s: a proxy that is led to the same one left to itself, and to Sidelong's own edge.
const GAIN_MIN: f64 = 2.2;
const SHARE_MIN: f64 = 0.97;
/// Target for the median time from a load step to the first request on a moved node, to that of Sidelong's own edge.
const STEP_MAX: f64 = 1.25;

/// What clients connect to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Door {
    Nginx,
    Httpd,
    Haproxy,
    /// Sidelong's own.
    Edge,
}

impl Door {
    const ALL: [Door; 4] = [Door::Nginx, Door::Httpd, Door::Haproxy, Door::Edge];

    const fn name(self) -> &'static str {
        match self {
            Door::Nginx => "nginx",
            Door::Httpd => "httpd",
            Door::Haproxy => "haproxy",
            Door::Edge => "edge",
        }
    }

    const fn style(self) -> Style {
        match self {
            Door::Nginx => Style::BASELINE,
            Door::Httpd => Style::THIRD,
            Door::Haproxy => Style::FOURTH,
            Door::Edge => Style::OURS,
        }
    }
}

/// Who chooses the server of a request, as `up --by` names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    Own,
    Sidelong,
    Shared,
}

impl By {
    const ALL: [By; 3] = [By::Own, By::Sidelong, By::Shared];

    const fn name(self) -> &'static str {
        match self {
            By::Own => "own",
            By::Sidelong => "sidelong",
            By::Shared => "shared",
        }
    }

    const fn configuration(self) -> Configuration {
        match self {
            By::Own | By::Shared => Configuration::Rigid,
            By::Sidelong => Configuration::Reconfigured,
        }
    }

    /// The highest throughput that the nodes allow.
    fn possible(self) -> f64 {
        match self {
            By::Own | By::Sidelong => possible_rate(LAYOUT.ideal_rate(self.configuration()), BURST, POOL),
            By::Shared => 1.01 * POOL as f64 * node_rate(),
        }
    }
}

/// All systems, in the order of their turns. The edge has no pool that all sites share.
fn systems() -> impl Iterator<Item = (Door, By)> {
    let all = Door::ALL.into_iter().flat_map(|door| By::ALL.map(|by| (door, by)));
    all.filter(|system| *system != (Door::Edge, By::Shared))
}

/// The figures of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    door: Door,
    by: By,
    requests_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    moves: u64,
    move_ms: Option<Spread>,
    step_ms: Option<Spread>,
    errors: u64,
}

impl Row {
    fn new(door: Door, by: By, summary: &Summary) -> Row {
        Row {
            door,
            by,
            requests_per_s: summary.requests_per_s,
            p50_ms: summary.p50_ms,
            p99_ms: summary.p99_ms,
            moves: summary.moves,
            move_ms: summary.move_ms,
            step_ms: summary.step_to_first_request_ms,
            errors: summary.errors,
        }
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    door: Door,
    by: By,
    requests_per_s: Fixed<1>,
    p50_ms: Fixed<3>,
    p99_ms: Fixed<3>,
    moves: u64,
    move_ms_p50: Option<Fixed<3>>,
    step_ms_p50: Option<Fixed<3>>,
    errors: u64,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let rounds = ROUNDS[usize::from(bench.options.quick)];
    study::run(bench, Fronts { settings: Settings::of(DEMAND), rounds, missing: Vec::new() })
}

#[derive(Serialize)]
struct Fronts {
    #[serde(flatten)]
    settings: Settings,
    #[serde(skip)]
    rounds: u64,
    /// Proxies that are not here, with what `up` says of it.
    missing: Vec<(Door, String)>,
}

impl Fronts {
    fn plan_of(&self, by: By) -> Run {
        let until = Until::Requests(self.rounds * LAYOUT.sites() * BURST);
        let configuration = by.configuration();
        Run { layout: LAYOUT, demand: DEMAND, configuration, burst: BURST, pause: Duration::ZERO, until }
    }

    fn is_missing(&self, door: Door) -> bool {
        self.missing.iter().any(|(missing, _)| *missing == door)
    }
}

impl Study for Fronts {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = [3, 1];

    fn plan(&self) -> Vec<Duration> {
        systems().map(|(_, by)| self.plan_of(by).ideal_duration()).collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Fronts>) -> Result<()> {
        for (door, by) in systems() {
            if self.is_missing(door) {
                bench.skip();
                continue;
            }
            let run = self.plan_of(by);
            let (file, _) = run.plan(&bench.ground)?;
            let name = bench.name(format!("{}-{}", door.name(), by.name()));
            let about = format!("{}, {} by {}", run.describe(), door.name(), by.name());
            let front = ["--front", door.name(), "--by", by.name()];
            let with: &[_] = if door == Door::Edge { &[] } else { &front };
            bench.begin(&name);
            let summary = match bench.up_on(with, &name, &about, &file, run.ideal_duration()) {
                Err(Error::Failed { said, .. }) if said.contains("--front") => {
                    self.missing.push((door, said.trim_start_matches("sidelong: ").to_owned()));
                    bench.end();
                    continue;
                }
                summary => summary?,
            };
            bench.end();
            rows.push(self, Row::new(door, by, &summary))?;
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { door, by, requests_per_s, p50_ms, p99_ms, moves, move_ms, step_ms, errors } = *row;
        vec![TableLine {
            door,
            by,
            requests_per_s: Fixed(requests_per_s),
            p50_ms: Fixed(p50_ms),
            p99_ms: Fixed(p99_ms),
            moves,
            move_ms_p50: move_ms.map(|took| Fixed(took.p50)),
            step_ms_p50: step_ms.map(|took| Fixed(took.p50)),
            errors,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("{} by {}: {what}", row.door.name(), row.by.name());
        vec![
            Bound::new(of("requests/s"), row.requests_per_s, 0.0..=row.by.possible()),
            Bound::new(of("p50, ms"), row.p50_ms, 0.0..=row.p99_ms),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let line = |door: Door| {
            let points = By::ALL.into_iter().zip(1..);
            let points =
                points.filter_map(|(by, at)| Some((f64::from(at), find(rows, door, by)?.requests_per_s)));
            Line::new(door.style(), points.collect())
        };
        let most = rows.iter().map(|row| row.requests_per_s).fold(1.0, f64::max);
        let panel = Panel {
            title: format!("bursts of {BURST} requests"),
            x: Axis {
                label: |n| {
                    let by = (n as usize).checked_sub(1).and_then(|at| By::ALL.get(at));
                    by.map(|by| by.name().to_owned()).unwrap_or_default()
                },
                ..Axis::counting("who chooses the server".to_owned(), 3)
            },
            y: Axis::from_zero("requests/s", most),
            lines: Door::ALL.map(line).into(),
        };
        Drawing {
            panels: vec![panel],
            legend: legend(Door::ALL.map(|door| (door.name(), door.style()))),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        story.paragraph(
            "Bursts for three sites in turn, on eight nodes behind two proxies of one make. *own*: each site keeps the servers that it \
             has at the start, and the proxy chooses among them by its least-connections method. *sidelong*: a front leads each proxy, \
             and moves nodes; HAProxy by weights, the others by the choice of each request. *shared*: all servers in one pool of the \
             proxy. Every node can serve every site at any time here, which is the best case for a pool that all share; a site has no \
             floor there, and no site's flood is kept from another.",
        );
        for (_, why) in &self.missing {
            story.paragraph(&format!("Not measured: {why}."));
        }
        story.checks();
        story.heading("Measured");
        let columns = [
            "clients connect to",
            "chosen by",
            "requests/s",
            "p50, ms",
            "p99, ms",
            "moves",
            "a move, p50 ms",
            "load step to first request on a moved node, p50 ms",
            "errors",
        ];
        story.table(
            &columns,
            rows.iter().map(|row| {
                vec![
                    row.door.name().to_owned(),
                    row.by.name().to_owned(),
                    format!("{:.0}", row.requests_per_s),
                    number(Some(row.p50_ms), 1),
                    number(Some(row.p99_ms), 1),
                    row.moves.to_string(),
                    number(row.move_ms.map(|took| took.p50), 2),
                    number(row.step_ms.map(|took| took.p50), 1),
                    row.errors.to_string(),
                ]
            }),
        );
        story.how(&self.settings.describe());
    }
}

fn find(rows: &[Row], door: Door, by: By) -> Option<&Row> {
    rows.iter().find(|row| row.door == door && row.by == by)
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let rate = |door, by| Some(find(rows, door, by)?.requests_per_s).filter(|rate| *rate > 0.0);
    let step = |door| Some(find(rows, door, By::Sidelong)?.step_ms?.p50);
    let most = LAYOUT.ideal_rate(Configuration::Reconfigured) / LAYOUT.ideal_rate(Configuration::Rigid);
    let mut checks = Vec::new();
    for door in [Door::Nginx, Door::Httpd, Door::Haproxy] {
        let (led, name) = (rate(door, By::Sidelong), door.name());
        let over = |other: Option<f64>| Some(led? / other?);
        checks.extend([
            Check::at_least(
                format!("{name}, requests/s: led / by itself"),
                GAIN_MIN,
                over(rate(door, By::Own)),
            )
            .possible(0.0..=RATIO_SLACK * most),
            Check::at_least(
                format!("requests/s: {name}, led / Sidelong's edge"),
                SHARE_MIN,
                over(rate(Door::Edge, By::Sidelong)),
            ),
            Check::at_most(
                format!("load step to first request on a moved node, p50: {name}, led / Sidelong's edge"),
                STEP_MAX,
                step(door).zip(step(Door::Edge)).map(|(led, edge)| led / edge),
            ),
        ]);
    }
    let errors: u64 = rows.iter().map(|row| row.errors).sum();
    checks.push(Check::at_most("requests without an answer, all runs", 0.0, Some(errors as f64)));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let spread = |p50| Spread { count: 15, p50, p99: 40.0, max: 41.0 };
        let row = |(door, by)| {
            let is_led = by == By::Sidelong;
            let requests_per_s = match by {
                By::Own => 1044.0,
                By::Sidelong => 2350.0,
                By::Shared => 3200.0,
            };
            Row {
                door,
                by,
                requests_per_s,
                p50_ms: 13.0,
                p99_ms: 32.0,
                moves: if is_led { 33 } else { 0 },
                move_ms: is_led.then(|| spread(1.1)),
                step_ms: is_led.then(|| spread(17.0)),
                errors: 0,
            }
        };
        systems().map(row).collect()
    }

    #[test]
    fn a_led_proxy_is_judged_beside_itself_and_beside_the_edge() {
        let verdicts = |rows: &[Row]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&rows()), ["met"; 10]);
        let mut worse = rows();
        for row in worse.iter_mut().filter(|row| row.door == Door::Haproxy) {
            row.errors = 1;
            if let Some(step) = &mut row.step_ms {
                step.p50 *= 2.0;
                row.requests_per_s = 2200.0;
            }
        }
        assert_eq!(verdicts(&worse)[6..], ["MISSED"; 4]);
        assert_eq!(verdicts(&worse)[..6], ["met"; 6]);
    }

    #[test]
    fn a_proxy_that_is_not_here_has_no_rows() {
        let rows: Vec<_> = rows().into_iter().filter(|row| row.door != Door::Httpd).collect();
        let verdicts: Vec<_> = checks(&rows).iter().map(Check::verdict).collect();
        assert_eq!(verdicts[3..6], ["not measured"; 3]);
    }

    #[test]
    fn a_row_has_the_columns_of_its_experiment() {
        let fronts = Fronts { settings: Settings::of(DEMAND), rounds: 1, missing: Vec::new() };
        let [columns, line] = crate::table::written(fronts.lines(&rows()[1]).remove(0));
        assert_eq!(columns, "door,by,requests_per_s,p50_ms,p99_ms,moves,move_ms_p50,step_ms_p50,errors");
        assert_eq!(line, "nginx,sidelong,2350.0,13.000,32.000,33,1.100,17.000,0");
        assert!(fronts.bounds(&rows()[1]).len() == 2 && fronts.plan().len() == 11);
    }
}
