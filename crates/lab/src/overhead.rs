//! edge-overhead: requests/s of the edge beside those of a bare Pingora proxy of the same version, with which it shares
//! everything but what is ours: sites and limits, the view and the choice of a node, health, metrics, the watch thread.
//!
//! Both proxies live from the start to the end, on one CPU; the load and the one server behind them are on another. They
//! take turns, since the machine's speed drifts, and whoever is not on is stopped (SIGSTOP), so that it takes nothing
//! from the other. What is judged is the ratio within a round.

mod report;
mod stage;

use std::time::Duration;

use serde::Serialize;

use crate::bench::Bench;
use crate::check::{Check, median};
use crate::csv::Table;
use crate::error::Result;
use crate::figure::{self, Axis, Line, Look, Panel};
use crate::machine::Machine;
use crate::report::Outcome;
use stage::{Stage, Turn};

/// Turns of each proxy, and how long one takes.
const ROUNDS: (u32, Duration) = (15, Duration::from_secs(2));
const ROUNDS_QUICK: (u32, Duration) = (5, Duration::from_millis(600));
/// Of each proxy before the first round.
const WARM_UP: Duration = Duration::from_millis(500);
/// Issue 2: the edge against a bare proxy.
const RATIO_MIN: f64 = 0.97;
/// A proxy that leaves more of its CPU idle was not what limited the requests.
const BUSY_MIN: f64 = 0.95;

/// Whose turn it is.
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

    /// Who goes first alternates.
    const fn order(round: u32) -> [Proxy; 2] {
        if round.is_multiple_of(2) { [Proxy::Edge, Proxy::Bare] } else { [Proxy::Bare, Proxy::Edge] }
    }
}

/// One turn's numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// From 1 on.
    round: u32,
    proxy: Proxy,
    #[serde(flatten)]
    turn: Turn,
}

impl Row {
    fn csv(&self) -> String {
        let Row { round, proxy, turn } = self;
        let Turn { requests_per_s, p50_ms, p99_ms, cpu_us_per_request, errors, .. } = turn;
        let proxy = proxy.name();
        format!(
            "{round},{proxy},{requests_per_s:.1},{p50_ms:.3},{p99_ms:.3},{cpu_us_per_request:.2},{errors}"
        )
    }
}

/// What all turns share.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    rounds: u32,
    turn_s: f64,
    connections: u32,
    object: &'static str,
    proxy_cpu: usize,
    load_cpu: usize,
}

impl Settings {
    fn describe(&self) -> String {
        format!(
            "{} rounds, in each a turn of {} s for each proxy, the order alternating; {} closed-loop connections with \
             keep-alive, each request for `{}`; each proxy with one thread for requests, on CPU {}; the load and the server \
             on CPU {}. The edge has one site with one node, looks at it every 1 ms, writes no access log.",
            self.rounds, self.turn_s, self.connections, self.object, self.proxy_cpu, self.load_cpu,
        )
    }
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let (rounds, turn) = if bench.options.quick { ROUNDS_QUICK } else { ROUNDS };
    bench.expect_for(2 * WARM_UP);
    (0..rounds).for_each(|_| bench.expect_for(2 * turn));
    bench.begin("warm-up");
    let mut stage = Stage::set(bench)?;
    for proxy in Proxy::order(1) {
        stage.turn(proxy, WARM_UP)?;
    }
    bench.end();

    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut rows = Vec::with_capacity(2 * rounds as usize);
    for round in 1..=rounds {
        bench.begin(&format!("round-{round}"));
        for proxy in Proxy::order(round) {
            let turn = stage.turn(proxy, turn)?;
            rows.push(measured(Row { round, proxy, turn }, &mut table)?);
        }
        bench.end();
    }

    let checks = checks(&rows);
    bench.write("figure.svg", &draw(bench, &rows)?)?;
    let machine = Machine::here();
    let [proxy_cpu, load_cpu] = stage.cpus;
    let settings = Settings {
        rounds,
        turn_s: turn.as_secs_f64(),
        connections: stage::CONNECTIONS,
        object: stage::OBJECT,
        proxy_cpu,
        load_cpu,
    };
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &report::markdown(&outcome))?;
    Ok(checks)
}

fn measured(row: Row, table: &mut Table) -> Result<Row> {
    table.rows([row.csv()])?;
    Ok(row)
}

/// A figure of the turns of `proxy`, in the order of the rounds.
fn turns(rows: &[Row], proxy: Proxy, figure: impl Fn(&Turn) -> f64) -> Vec<f64> {
    let mut turns: Vec<_> = rows.iter().filter(|row| row.proxy == proxy).collect();
    turns.sort_by_key(|row| row.round);
    turns.into_iter().map(|row| figure(&row.turn)).collect()
}

/// The edge's over the bare proxy's, by round. None where there is a round that has not both.
fn ratios(rows: &[Row], figure: impl Fn(&Turn) -> f64) -> Vec<f64> {
    let (edge, bare) = (turns(rows, Proxy::Edge, &figure), turns(rows, Proxy::Bare, &figure));
    edge.iter().zip(&bare).filter(|(_, bare)| **bare > 0.0).map(|(edge, bare)| edge / bare).collect()
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let ratio = median(ratios(rows, |turn| turn.requests_per_s));
    let busy = [Proxy::Bare, Proxy::Edge].map(|proxy| median(turns(rows, proxy, |turn| turn.cpu_busy)));
    let errors: u64 = rows.iter().map(|row| row.turn.errors).sum();
    vec![
        Check::at_least("requests/s, edge / bare proxy, median of the rounds", RATIO_MIN, ratio),
        Check::at_least(
            "the share of its CPU that a proxy took, the lesser of their medians: it was the limit",
            BUSY_MIN,
            busy.into_iter().flatten().reduce(f64::min),
        ),
        Check::at_most("requests without an answer, all turns", 0.0, Some(errors as f64)),
    ]
}

fn draw(bench: &Bench<'_>, rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let legend = [
        ("bare proxy", Look::BASELINE),
        ("edge", Look::OURS),
        ("edge / bare proxy", Look::THIRD),
        ("target", Look::TARGET),
    ];
    Ok(figure::draw(&title, &panels(rows), &legend.map(|(label, look)| (label.to_owned(), look)))?)
}

fn panels(rows: &[Row]) -> [Panel; 2] {
    let by_round = |values: Vec<f64>| (1..).map(f64::from).zip(values).collect();
    let line = |look, proxy| Line { look, points: by_round(turns(rows, proxy, |turn| turn.requests_per_s)) };
    let rounds = rows.iter().map(|row| row.round).max().unwrap_or(1);
    let most = rows.iter().map(|row| row.turn.requests_per_s).fold(0.0, f64::max);
    let ratios = ratios(rows, |turn| turn.requests_per_s);
    let (least, greatest) =
        ratios.iter().fold((RATIO_MIN, 1.0f64), |(l, g), ratio| (ratio.min(l), ratio.max(g)));
    let x = Axis::counting("round", rounds);
    let target =
        Line { look: Look::TARGET, points: vec![(x.range.start, RATIO_MIN), (x.range.end, RATIO_MIN)] };
    [
        Panel {
            title: "(a) requests/s".into(),
            x: x.clone(),
            y: Axis::from_zero("requests/s", most),
            lines: vec![line(Look::BASELINE, Proxy::Bare), line(Look::OURS, Proxy::Edge)],
        },
        Panel {
            title: "(b) within a round".into(),
            x,
            y: Axis::between("edge / bare proxy", least - 0.02, greatest + 0.02),
            lines: vec![target, Line { look: Look::THIRD, points: by_round(ratios) }],
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

    /// The edge has 0.98, 0.90 and 0.99 of the bare proxy.
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

    #[test]
    fn the_median_of_the_rounds_is_judged() {
        let verdicts = |rows: &[Row]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(checks(&rows())[0].measured, Some(0.98));
        assert_eq!(verdicts(&rows()), ["met", "met", "met"]);
        let mut idle = rows();
        idle.iter_mut().for_each(|row| row.turn.cpu_busy = 0.5);
        idle[0].turn.errors = 1;
        assert_eq!(verdicts(&idle), ["met", "MISSED", "MISSED"]);
        assert_eq!(verdicts(&[]), ["not measured", "not measured", "met"]);
    }

    #[test]
    fn a_row_has_the_columns_of_its_experiment() {
        assert_eq!(row(3, Proxy::Edge, 19_800.0, 0).csv(), "3,edge,19800.0,2.500,4.125,50.51,0");
        let experiment =
            crate::experiments().iter().find(|experiment| experiment.id == "edge-overhead").unwrap();
        assert_eq!(
            experiment.columns.join(","),
            "round,proxy,requests_per_s,p50_ms,p99_ms,cpu_us_per_request,errors"
        );
    }

    #[test]
    fn the_figure_shows_every_round_and_the_target() {
        let [rates, ratios] = panels(&rows());
        assert!(rates.lines.iter().all(|line| line.points.len() == 3));
        assert_eq!(ratios.lines[1].points, [(1.0, 0.98), (2.0, 0.9), (3.0, 0.99)]);
        assert!(ratios.y.range.start < 0.9 && ratios.y.range.end > 1.0);
    }
}
