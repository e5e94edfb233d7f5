//! agent: what Sidelong costs a server that is not its own, here nginx.
//!
//! An agent beside the server costs it nothing: the CPU time of nginx for a request is measured while the agent runs beside it on
//! the same CPU, and while the agent is stopped. And an edge serves as many requests before nginx as before the built-in origin.
//!
//! All processes live from the start to the end. The systems take turns, because the machine's speed drifts; what is not in its
//! turn is stopped (SIGSTOP). The ratios within a round are judged.

mod stage;

use std::time::Duration;

use serde::Serialize;

use crate::bench::Bench;
use crate::check::Check;
use crate::cpus;
use crate::drawing::{Drawing, legend};
use crate::error::Result;
use crate::figure::{Axis, Line, Panel, Style};
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use crate::turn::Turn;
use stage::{CONNECTIONS, Stage};

/// Turns of each system, and the duration of one.
const ROUNDS: [u32; 2] = [15, 5];
const TIMES: [Duration; 2] = [Duration::from_secs(3), Duration::from_millis(800)];
/// Warm-up of each system before the first round.
const WARM_UP: Duration = Duration::from_millis(500);
/// Target for the CPU time of nginx for a request, with the agent beside it to without.
const CPU_MAX: f64 = 1.01;
/// Target for the edge's requests/s before nginx to those before the built-in origin.
const RATE_MIN: f64 = 0.97;

/// The systems that take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum System {
    /// nginx.
    Alone,
    /// The same nginx, with its agent beside it.
    Watched,
    /// An edge before the built-in origin.
    Origin,
    /// An edge before nginx.
    Nginx,
}

impl System {
    const ALL: [System; 4] = [System::Alone, System::Watched, System::Origin, System::Nginx];

    const fn name(self) -> &'static str {
        match self {
            System::Alone => "nginx",
            System::Watched => "nginx and agent",
            System::Origin => "edge before the origin",
            System::Nginx => "edge before nginx",
        }
    }

    /// The order alternates.
    fn order(round: u32) -> [System; 4] {
        let mut order = System::ALL;
        if round.is_multiple_of(2) {
            order.reverse();
        }
        order
    }
}

/// The figures of one turn.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// The round, from 1.
    round: u32,
    system: System,
    #[serde(flatten)]
    turn: Turn,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    round: u32,
    system: System,
    requests_per_s: Fixed<1>,
    p50_ms: Fixed<3>,
    p99_ms: Fixed<3>,
    cpu_us_per_request: Fixed<2>,
    errors: u64,
}

/// Settings that all turns share.
#[derive(Serialize)]
struct Agent {
    turn_s: f64,
    connections: u32,
    object: &'static str,
    #[serde(skip)]
    time: Duration,
    /// The processes, which run from the first round.
    #[serde(skip)]
    stage: Option<Stage>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let time = TIMES[usize::from(bench.options.quick)];
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    bench.expect_for(4 * WARM_UP);
    let (connections, object, turn_s) = (CONNECTIONS, stage::OBJECT, time.as_secs_f64());
    study::run(bench, Agent { turn_s, connections, object, time, stage: None })
}

impl Study for Agent {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        vec![4 * self.time]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Agent>) -> Result<()> {
        let round = bench.repetition;
        let stage = match self.stage.take() {
            Some(stage) => stage,
            None => {
                bench.begin("warm-up");
                let stage = Stage::set(bench)?;
                for system in System::ALL {
                    stage.turn(system, WARM_UP)?;
                }
                bench.end();
                // The warm-up is not judged.
                bench.take_spoilt();
                stage
            }
        };
        bench.begin(&format!("round-{round}"));
        for system in System::order(round) {
            rows.push(self, Row { round, system, turn: stage.turn(system, self.time)? })?;
        }
        bench.end();
        self.stage = Some(stage);
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { round, system, turn } = row;
        vec![TableLine {
            round: *round,
            system: *system,
            requests_per_s: Fixed(turn.requests_per_s),
            p50_ms: Fixed(turn.p50_ms),
            p99_ms: Fixed(turn.p99_ms),
            cpu_us_per_request: Fixed(turn.cpu_us_per_request),
            errors: turn.errors,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("round {}, {}: {what}", row.round, row.system.name());
        vec![
            // Each system is held to one CPU, whose time the kernel counts in ticks.
            Bound::new(of("CPUs in use"), row.turn.cpu_busy, 0.0..=1.1),
            Bound::new(of("p50, ms"), row.turn.p50_ms, 0.0..=row.turn.p99_ms),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let round = rows.iter().map(|row| row.round).max().unwrap_or(1);
        let point = |value: Option<f64>| value.map(|value| (f64::from(round), value)).into_iter().collect();
        let line = |style, system, of: fn(&Turn) -> f64| Line::new(style, point(figure(rows, system, of)));
        let most = |of: fn(&Turn) -> f64| rows.iter().map(|row| of(&row.turn)).fold(0.0, f64::max);
        let x = Axis::counting("round", round);
        let cpu = |turn: &Turn| turn.cpu_us_per_request;
        let rate = |turn: &Turn| turn.requests_per_s;
        Drawing {
            panels: vec![
                Panel {
                    title: "(a) CPU time of nginx for a request".into(),
                    x: x.clone(),
                    y: Axis::from_zero("µs", most(cpu)),
                    lines: vec![
                        line(Style::BASELINE, System::Alone, cpu),
                        line(Style::OURS, System::Watched, cpu),
                    ],
                },
                Panel {
                    title: "(b) requests/s of an edge".into(),
                    x,
                    y: Axis::from_zero("requests/s", most(rate)),
                    lines: vec![
                        line(Style::BASELINE, System::Origin, rate),
                        line(Style::OURS, System::Nginx, rate),
                    ],
                },
            ],
            legend: legend([
                ("nginx alone; an edge before the built-in origin", Style::BASELINE),
                ("nginx with its agent; an edge before nginx", Style::OURS),
            ]),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        story.paragraph(
            "One nginx of one process, as Debian has it, answers a closed loop: alone, and with its agent beside it on the same CPU, \
             which reads the kernel's figures of the server and keeps the record. Another one is behind an edge, as the built-in \
             origin is behind another edge.",
        );
        story.checks();
        story.heading("Measured");
        let line = |system: System| {
            let of = |of: fn(&Turn) -> f64, digits| number(figure(rows, system, of), digits);
            vec![
                system.name().to_owned(),
                of(|turn| turn.requests_per_s, 0),
                of(|turn| turn.cpu_us_per_request, 2),
                of(|turn| turn.p50_ms, 3),
                of(|turn| turn.p99_ms, 3),
                of(|turn| turn.cpu_busy, 3),
            ]
        };
        let columns = ["", "requests/s", "CPU a request, µs", "p50, ms", "p99, ms", "share of its CPU"];
        story.table(&columns, System::ALL.map(line));
        story.how(&format!(
            "In each round a turn of {} s for each system, the order alternating; {} closed-loop connections with keep-alive, each \
             request for a body of 1 KB. nginx and its agent, and each edge, on one CPU; the load and what is behind an edge on \
             another. CPU time is that of nginx, and of the edge.",
            self.turn_s, self.connections,
        ));
    }
}

/// A figure of the turn of `system`.
fn figure(rows: &[Row], system: System, figure: impl Fn(&Turn) -> f64) -> Option<f64> {
    rows.iter().find(|row| row.system == system).map(|row| figure(&row.turn))
}

/// The ratio of one system to another. `None` if one is missing.
fn ratio(rows: &[Row], [of, to]: [System; 2], what: fn(&Turn) -> f64) -> Option<f64> {
    let to = figure(rows, to, what).filter(|to| *to > 0.0)?;
    Some(figure(rows, of, what)? / to)
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let cpu = ratio(rows, [System::Watched, System::Alone], |turn| turn.cpu_us_per_request);
    let rate = ratio(rows, [System::Nginx, System::Origin], |turn| turn.requests_per_s);
    let errors: u64 = rows.iter().map(|row| row.turn.errors).sum();
    vec![
        Check::at_most(
            "CPU time of nginx for a request, with / without agent, median of the rounds",
            CPU_MAX,
            cpu,
        ),
        Check::at_least(
            "requests/s of an edge, before nginx / before the origin, median of the rounds",
            RATE_MIN,
            rate,
        ),
        Check::at_most("requests without an answer, all turns", 0.0, Some(errors as f64)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: System, requests_per_s: f64, cpu_us_per_request: f64, errors: u64) -> Row {
        let turn = Turn {
            requests: 20_000,
            requests_per_s,
            p50_ms: 2.5,
            p99_ms: 4.125,
            cpu_us_per_request,
            cpu_busy: 0.99,
            errors,
        };
        Row { round: 1, system, turn }
    }

    #[test]
    fn nginx_is_judged_beside_itself_and_an_edge_beside_an_edge() {
        let verdicts = |rows: &[Row]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        let good = [
            row(System::Alone, 50_000.0, 20.0, 0),
            row(System::Watched, 49_000.0, 20.1, 0),
            row(System::Origin, 10_000.0, 95.0, 0),
            row(System::Nginx, 9_800.0, 97.0, 0),
        ];
        assert_eq!(verdicts(&good), ["met"; 3]);
        let bad = [
            row(System::Alone, 50_000.0, 20.0, 0),
            row(System::Watched, 50_000.0, 21.0, 0),
            row(System::Origin, 10_000.0, 95.0, 0),
            row(System::Nginx, 9_000.0, 97.0, 1),
        ];
        assert_eq!(verdicts(&bad), ["MISSED"; 3]);
        assert_eq!(verdicts(&[]), ["not measured", "not measured", "met"]);
    }

    #[test]
    fn who_goes_first_alternates() {
        assert_eq!(System::order(1)[0], System::Alone);
        assert_eq!(System::order(2)[0], System::Nginx);
    }

    #[test]
    fn a_row_has_the_columns_of_its_experiment() {
        let study =
            Agent { turn_s: 3.0, connections: 48, object: stage::OBJECT, time: TIMES[0], stage: None };
        let [columns, line] =
            crate::table::written(study.lines(&row(System::Watched, 49_000.0, 20.1, 0)).remove(0));
        assert_eq!(columns, "round,system,requests_per_s,p50_ms,p99_ms,cpu_us_per_request,errors");
        assert_eq!(line, "1,watched,49000.0,2.500,4.125,20.10,0");
    }
}
