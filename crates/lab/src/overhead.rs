//! edge-overhead: requests/s of the edge beside those of a bare Pingora proxy of the same version. Both share everything
//! but Sidelong's part: sites and limits, the view and the choice of a node, health, metrics, the watch thread.
//!
//! Both proxies live from the start to the end on one CPU. The load and the one server behind them are on another. They
//! take turns, because the machine's speed drifts, and the proxy that waits for its turn is stopped (SIGSTOP), so that it
//! takes no CPU time from the other. The ratio within a round is judged.

mod report;
mod stage;

use std::time::Duration;

use serde::Serialize;

use crate::bench::Bench;
use crate::check::Check;
use crate::cpus;
use crate::drawing::{Drawing, legend};
use crate::error::Result;
use crate::figure::{Axis, Line, Panel, Style};
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use crate::turn::{CONNECTIONS, Turn};
use stage::Stage;

/// Turns of each proxy, and the duration of one.
const ROUNDS: [u32; 2] = [15, 5];
const TIMES: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(600)];
/// Warm-up of each proxy before the first round.
const WARM_UP: Duration = Duration::from_millis(500);
/// Target for the ratio of the edge to the bare proxy.
const RATIO_MIN: f64 = 0.97;
/// If a proxy leaves more of its CPU idle than this, something else limited the requests.
const BUSY_MIN: f64 = 0.95;

/// The proxies that take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Proxy {
    Bare,
    Edge,
}

impl Proxy {
    const fn name(self) -> &'static str {
        match self {
            Proxy::Bare => "bare",
            Proxy::Edge => "edge",
        }
    }

    /// The proxy that goes first alternates.
    const fn order(round: u32) -> [Proxy; 2] {
        if round.is_multiple_of(2) { [Proxy::Edge, Proxy::Bare] } else { [Proxy::Bare, Proxy::Edge] }
    }
}

/// The figures of one turn.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// The round, from 1.
    round: u32,
    proxy: Proxy,
    #[serde(flatten)]
    turn: Turn,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    round: u32,
    proxy: Proxy,
    requests_per_s: Fixed<1>,
    p50_ms: Fixed<3>,
    p99_ms: Fixed<3>,
    cpu_us_per_request: Fixed<2>,
    errors: u64,
}

/// Settings that all turns share.
#[derive(Serialize)]
struct Overhead {
    turn_s: f64,
    connections: u32,
    object: &'static str,
    proxy_cpu: usize,
    load_cpu: usize,
    #[serde(skip)]
    time: Duration,
    /// The processes, which run from the first round.
    #[serde(skip)]
    stage: Option<Stage>,
}

impl Overhead {
    fn describe(&self) -> String {
        format!(
            "In each round a turn of {} s for each proxy, the order alternating; {} closed-loop connections with \
             keep-alive, each request for `{}`; each proxy with one thread for requests, on CPU {}; the load and the server \
             on CPU {}. The edge has one site with one node, scans it every 1 ms, writes no access log.",
            self.turn_s, self.connections, self.object, self.proxy_cpu, self.load_cpu,
        )
    }
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let time = TIMES[usize::from(bench.options.quick)];
    let [proxy_cpu, load_cpu] = cpus::two()?;
    bench.expect_for(2 * WARM_UP);
    let (connections, object) = (CONNECTIONS, stage::OBJECT);
    let turn_s = time.as_secs_f64();
    study::run(bench, Overhead { turn_s, connections, object, proxy_cpu, load_cpu, time, stage: None })
}

impl Study for Overhead {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        vec![2 * self.time]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Overhead>) -> Result<()> {
        let round = bench.repetition;
        let mut stage = match self.stage.take() {
            Some(stage) => stage,
            None => {
                bench.begin("warm-up");
                let mut stage = Stage::set(bench)?;
                for proxy in Proxy::order(1) {
                    stage.turn(proxy, WARM_UP)?;
                }
                bench.end();
                // The warm-up is not judged.
                bench.take_spoilt();
                stage
            }
        };
        bench.begin(&format!("round-{round}"));
        for proxy in Proxy::order(round) {
            rows.push(self, Row { round, proxy, turn: stage.turn(proxy, self.time)? })?;
        }
        bench.end();
        self.stage = Some(stage);
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { round, proxy, turn } = row;
        vec![TableLine {
            round: *round,
            proxy: *proxy,
            requests_per_s: Fixed(turn.requests_per_s),
            p50_ms: Fixed(turn.p50_ms),
            p99_ms: Fixed(turn.p99_ms),
            cpu_us_per_request: Fixed(turn.cpu_us_per_request),
            errors: turn.errors,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("round {}, {}: {what}", row.round, row.proxy.name());
        vec![
            // The proxy is held to one CPU, whose time the kernel counts in ticks.
            Bound::new(of("CPUs in use"), row.turn.cpu_busy, 0.0..=1.1),
            Bound::new(of("p50, ms"), row.turn.p50_ms, 0.0..=row.turn.p99_ms),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        Drawing {
            panels: panels(rows).into(),
            legend: legend([
                ("bare proxy", Style::BASELINE),
                ("edge", Style::OURS),
                ("edge / bare proxy", Style::THIRD),
            ]),
            dashed: Some("target"),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(self, rows, story);
    }
}

/// A figure of the turns of `proxy`.
fn figure(rows: &[Row], proxy: Proxy, figure: impl Fn(&Turn) -> f64) -> Option<f64> {
    rows.iter().find(|row| row.proxy == proxy).map(|row| figure(&row.turn))
}

/// The ratio of the edge to the bare proxy. `None` if one is missing.
fn ratio(rows: &[Row], of: impl Fn(&Turn) -> f64) -> Option<f64> {
    let bare = figure(rows, Proxy::Bare, &of).filter(|bare| *bare > 0.0);
    Some(figure(rows, Proxy::Edge, &of)? / bare?)
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let ratio = ratio(rows, |turn| turn.requests_per_s);
    let busy = [Proxy::Bare, Proxy::Edge].map(|proxy| figure(rows, proxy, |turn| turn.cpu_busy));
    let errors: u64 = rows.iter().map(|row| row.turn.errors).sum();
    vec![
        // The edge does all that the bare proxy does, and more. A tenth is allowed for differences between turns.
        Check::at_least("requests/s, edge / bare proxy, median of the rounds", RATIO_MIN, ratio)
            .possible(0.0..=1.1),
        Check::at_least(
            "the share of its CPU that a proxy took, the lesser of their medians: it was the limit",
            BUSY_MIN,
            busy.into_iter().flatten().reduce(f64::min),
        ),
        Check::at_most("requests without an answer, all turns", 0.0, Some(errors as f64)),
    ]
}

fn panels(rows: &[Row]) -> [Panel; 2] {
    let round = rows.iter().map(|row| row.round).max().unwrap_or(1);
    let at = |value: Option<f64>| value.map(|value| (f64::from(round), value)).into_iter().collect();
    let line = |style, proxy| Line::new(style, at(figure(rows, proxy, |turn| turn.requests_per_s)));
    let most = rows.iter().map(|row| row.turn.requests_per_s).fold(0.0, f64::max);
    let ratio = ratio(rows, |turn| turn.requests_per_s);
    let (least, greatest) = (ratio.unwrap_or(1.0).min(RATIO_MIN), ratio.unwrap_or(1.0).max(1.0));
    let x = Axis::counting("round", round);
    let from = f64::from(round) - 0.5;
    let target = Line::new(Style::TARGET, vec![(from, RATIO_MIN), (from + 1.0, RATIO_MIN)]);
    [
        Panel {
            title: "(a) requests/s".into(),
            x: x.clone(),
            y: Axis::from_zero("requests/s", most),
            lines: vec![line(Style::BASELINE, Proxy::Bare), line(Style::OURS, Proxy::Edge)],
        },
        Panel {
            title: "(b) within a round".into(),
            x,
            y: Axis::between("edge / bare proxy", least - 0.02, greatest + 0.02),
            lines: vec![target, Line::new(Style::THIRD, at(ratio))],
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn row(round: u32, proxy: Proxy, requests_per_s: f64, errors: u64) -> Row {
        let turn = Turn {
            requests: 20_000,
            requests_per_s,
            p50_ms: 2.5,
            p99_ms: 4.125,
            cpu_us_per_request: 1e6 / requests_per_s,
            cpu_busy: 0.99,
            errors,
        };
        Row { round, proxy, turn }
    }

    /// The edge reaches 0.98, 0.90 and 0.99 of the bare proxy.
    pub(super) fn rows() -> Vec<Row> {
        use Proxy::{Bare, Edge};
        vec![
            row(1, Bare, 20_000.0, 0),
            row(1, Edge, 19_600.0, 0),
            row(2, Edge, 9_000.0, 0),
            row(2, Bare, 10_000.0, 0),
            row(3, Bare, 20_000.0, 0),
            row(3, Edge, 19_800.0, 0),
        ]
    }

    #[test]
    fn who_goes_first_alternates() {
        assert_eq!(Proxy::order(1), [Proxy::Bare, Proxy::Edge]);
        assert_eq!(Proxy::order(2), [Proxy::Edge, Proxy::Bare]);
    }

    /// The checks of all rounds, merged.
    fn checks_of(rows: &[Row]) -> Vec<Check> {
        let rounds =
            (1..=3).map(|round| rows.iter().filter(|row| row.round == round).cloned().collect::<Vec<_>>());
        crate::check::merge(rounds.map(|rows| checks(&rows)).collect())
    }

    #[test]
    fn the_median_of_the_rounds_is_judged() {
        let verdicts = |rows: &[Row]| checks_of(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(checks_of(&rows())[0].measured, Some(0.98));
        assert_eq!(verdicts(&rows()), ["met", "met", "met"]);
        let mut idle = rows();
        idle.iter_mut().for_each(|row| row.turn.cpu_busy = 0.5);
        idle.iter_mut().for_each(|row| row.turn.errors = 1);
        assert_eq!(verdicts(&idle), ["met", "MISSED", "MISSED"]);
        assert_eq!(verdicts(&[]), ["not measured", "not measured", "met"]);
    }

    #[test]
    fn a_row_has_the_columns_of_its_experiment() {
        let study = Overhead {
            turn_s: 2.0,
            connections: 48,
            object: stage::OBJECT,
            proxy_cpu: 0,
            load_cpu: 1,
            time: TIMES[0],
            stage: None,
        };
        let [columns, line] = crate::table::written(study.lines(&row(3, Proxy::Edge, 19_800.0, 0)).remove(0));
        assert_eq!(columns, "round,proxy,requests_per_s,p50_ms,p99_ms,cpu_us_per_request,errors");
        assert_eq!(line, "3,edge,19800.0,2.500,4.125,50.51,0");
    }

    #[test]
    fn the_figure_shows_a_round_and_the_target() {
        let [rates, ratios] = panels(&rows()[..2]);
        assert!(rates.lines.iter().all(|line| line.points.len() == 1));
        assert_eq!(ratios.lines[1].points, [(1.0, 0.98)]);
        assert_eq!(ratios.lines[0].points, [(0.5, RATIO_MIN), (1.5, RATIO_MIN)]);
    }
}
