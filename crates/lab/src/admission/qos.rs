//! A5: how many of those who are let in wait longer than promised (A, "QoS analysis").

use std::time::Duration;

use serde::Serialize;

use super::watch::{self, Loop, Ready, Watched, above, middle, over_time, rounds, typical, watch_all};
use super::{CLIENTS_AT_ONE_LOAD, System};
use crate::bench::Bench;
use crate::check::Check;
use crate::error::Result;
use crate::figure::{self, Axis, Line, Panel};
use crate::machine::Machine;
use crate::report::{Markdown, Outcome, number};

/// As many as in A2.
const CLIENTS: &[u32] = &[40, 120, 200, 280, 360, 440, 520];
const CLIENTS_QUICK: &[u32] = &[280, 520];
/// Runs of each, and how long one takes.
const ROUNDS: (u32, Duration) = (3, Duration::from_secs(8));
const ROUNDS_QUICK: (u32, Duration) = (3, Duration::from_secs(3));
/// What is promised, which A does not say: in the middle between A's means at its most clients, with one-sided admission
/// (105 ms) and without any (192 ms).
const TARGET_MS: f64 = 150.0;
/// Clients are served at the target while no more than this part of the answers is later.
const UNSATISFIED_MAX: f64 = 0.1;

/// What the rounds of one system under one load come to: medians.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    #[serde(rename = "loop")]
    kind: Loop,
    clients: u32,
    system: System,
    /// Of those answered.
    qos_unsatisfied: Option<f64>,
    /// Answers within the target.
    in_time_per_s: Option<f64>,
    /// Of all that asked.
    turned_away: Option<f64>,
    failed: usize,
}

impl Row {
    fn new((kind, clients): (Loop, u32), system: System, rounds: &[&Watched], run_s: f64) -> Row {
        let late = |run: &Watched| above(&run.times_ms(), TARGET_MS);
        let in_time = |run: &Watched| {
            let within = run.times_ms().partition_point(|ms| *ms <= TARGET_MS);
            Some(within as f64 / (run_s - watch::SETTLED_S))
        };
        let away = |run: &Watched| {
            let (away, answered) = (run.turned_away(), run.times_ms().len());
            Some(away as f64 / (away + answered).max(1) as f64)
        };
        Row {
            kind,
            clients,
            system,
            qos_unsatisfied: middle(rounds, late),
            in_time_per_s: middle(rounds, in_time),
            turned_away: middle(rounds, away),
            failed: rounds.iter().map(|run| run.failed()).sum(),
        }
    }
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let (clients, length) =
        if bench.options.quick { (CLIENTS_QUICK, ROUNDS_QUICK) } else { (CLIENTS, ROUNDS) };
    let closed = clients.iter().map(|clients| (Loop::Closed, *clients));
    let loads: Vec<_> = closed.chain([(Loop::Open, CLIENTS_AT_ONE_LOAD)]).collect();
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let seen = |run: &Watched, ready: &Ready| table.rows(csv(run, ready.run_s));
    let (ready, all) = watch_all(bench, &loads, length, seen)?;
    let row = |(kind, clients)| {
        let of = |system| rounds(&all, kind, clients, system);
        System::ALL.map(|system| Row::new((kind, clients), system, &of(system), ready.run_s))
    };
    let rows: Vec<Row> = loads.into_iter().flat_map(row).collect();
    let columns = ["clients", "system", "qos_unsatisfied", "loop", "in_time_per_s", "turned_away"];
    bench.table("averages.csv", &columns)?.rows(rows.iter().map(|row| {
        let (system, kind, unsatisfied) =
            (row.system.word(), row.kind.word(), number(row.qos_unsatisfied, 4));
        let (in_time, away) = (number(row.in_time_per_s, 1), number(row.turned_away, 4));
        format!("{},{system},{unsatisfied},{kind},{in_time},{away}", row.clients)
    }))?;
    let checks = checks(&rows, clients);
    bench.write("figure.svg", &draw(bench, &all, &rows, ready.run_s)?)?;
    let machine = Machine::here();
    let outcome = Outcome::new(bench, &machine, ready, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &markdown(&outcome, clients))?;
    Ok(checks)
}

fn csv(run: &Watched, run_s: f64) -> Vec<String> {
    let (clients, system, kind, round) = (run.clients, run.system.word(), run.kind.word(), run.round);
    let line = |(t_s, unsatisfied): (f64, f64)| {
        format!("{t_s:.3},{clients},{system},{unsatisfied:.4},{kind},{round}")
    };
    over(run, run_s).into_iter().map(line).collect()
}

/// The part that was not satisfied, over time; not of intervals in which nobody was answered.
fn over(watched: &Watched, run_s: f64) -> Vec<(f64, f64)> {
    let intervals = watched.intervals(run_s, TARGET_MS);
    intervals.iter().filter_map(|interval| Some((interval.t_s, interval.unsatisfied()?))).collect()
}

fn find(rows: &[Row], kind: Loop, clients: u32, system: System) -> Option<&Row> {
    rows.iter().find(|row| row.kind == kind && row.clients == clients && row.system == system)
}

/// With how many clients the part that is not satisfied reaches [`UNSATISFIED_MAX`], between the numbers that were run: the
/// most that were, where it does not, and none where it always is above.
fn clients_served(rows: &[Row], clients: &[u32], system: System) -> Option<f64> {
    let mut before: Option<(f64, f64)> = None;
    for clients in clients {
        let unsatisfied = find(rows, Loop::Closed, *clients, system)?.qos_unsatisfied?;
        let at = f64::from(*clients);
        if unsatisfied > UNSATISFIED_MAX {
            let (clients, below) = before.unwrap_or((0.0, 0.0));
            return Some(clients + (at - clients) * (UNSATISFIED_MAX - below) / (unsatisfied - below));
        }
        before = Some((at, unsatisfied));
    }
    before.map(|(clients, _)| clients)
}

/// A: "With the same requirement of QoS (e.g., response time), AC-RDMA can serve more clients than the other two systems".
fn checks(rows: &[Row], clients: &[u32]) -> Vec<Check> {
    let most = clients.last().copied().unwrap_or(0);
    let ratio = |of: &dyn Fn(System) -> Option<f64>, other| {
        of(System::OneSided)
            .zip(of(other))
            .filter(|(_, under)| *under > 0.0)
            .map(|(over, under)| over / under)
    };
    let served = |system| clients_served(rows, clients, system);
    let in_time =
        |kind, clients| move |system| find(rows, kind, clients, system).and_then(|row| row.in_time_per_s);
    let others = [System::Tcp, System::None];
    let at_target = others.map(|other| {
        let what = format!("clients served at the target: one-sided / {}", other.word());
        Check::at_least(what, 1.0, ratio(&served, other))
    });
    let answers =
        [(Loop::Closed, most), (Loop::Open, CLIENTS_AT_ONE_LOAD)].into_iter().flat_map(|(kind, clients)| {
            others.map(|other| {
                let what = format!(
                    "{} loop, {clients} clients, answers in time: one-sided / {}",
                    kind.word(),
                    other.word()
                );
                Check::at_least(what, 1.0, ratio(&in_time(kind, clients), other))
            })
        });
    at_target.into_iter().chain(answers).collect()
}

fn draw(bench: &Bench<'_>, all: &[Watched], rows: &[Row], run_s: f64) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let most = rows.iter().map(|row| row.clients).max().unwrap_or(1);
    let by_clients = |system: System| {
        let of_system = rows.iter().filter(|row| row.system == system && row.kind == Loop::Closed);
        let point = |row: &Row| Some((f64::from(row.clients), row.qos_unsatisfied?));
        Line { look: system.look(), points: of_system.filter_map(point).collect() }
    };
    let y_title = format!("later than {TARGET_MS} ms, of those answered");
    let average = Panel {
        title: "(a) closed loop".to_owned(),
        x: Axis::from_zero("clients", f64::from(most)),
        y: Axis::from_zero(&y_title, 1.0),
        lines: System::ALL.map(by_clients).into(),
    };
    let instant = |kind: Loop, clients: u32, title: String| {
        let points = |system| {
            let run = typical(&rounds(all, kind, clients, system));
            run.map_or_else(Vec::new, |run| over(run, run_s))
        };
        over_time(title, &y_title, run_s, points, None)
    };
    let panels = [
        average,
        instant(Loop::Closed, most, format!("(b) closed loop, {most} clients")),
        instant(Loop::Open, CLIENTS_AT_ONE_LOAD, "(c) open loop, in bursts".to_owned()),
    ];
    let legend = System::ALL.map(|system| (system.word().to_owned(), system.look()));
    Ok(figure::draw(&title, &panels, &legend)?)
}

fn markdown(outcome: &Outcome<'_, Row, Ready>, clients: &[u32]) -> String {
    let rows = outcome.rows;
    let mut report = Markdown::new(outcome.experiment, outcome.quick);
    report.heading("The paper beside ours");
    report.paragraph(
        "A: \"Instant QoS status: AC-RDMA has much better capability of satisfying the QoS requirement. Average QoS \
         unsatisfaction: AC-RDMA is the best. With the same requirement of QoS (e.g., response time), AC-RDMA can serve more \
         clients than the other two systems\".",
    );
    report.checks(outcome.checks);
    report.heading("Measured");
    report.table(
        &[
            "loop",
            "clients",
            "system",
            "later than the target, of those answered",
            "answers in time/s",
            "turned away, of all",
        ],
        rows.iter().map(|row| {
            vec![
                row.kind.word().to_owned(),
                row.clients.to_string(),
                row.system.word().to_owned(),
                number(row.qos_unsatisfied, 3),
                number(row.in_time_per_s, 0),
                number(row.turned_away, 2),
            ]
        }),
    );
    report.heading("Clients served at the target");
    report.table(
        &["system", &format!("clients with at most {:.0} % later", UNSATISFIED_MAX * 100.0)],
        System::ALL.map(|system| {
            let most = clients.last().copied().map(f64::from);
            let served = clients_served(rows, clients, system);
            let more = if served == most { " or more" } else { "" };
            vec![system.word().to_owned(), format!("{}{more}", number(served, 0))]
        }),
    );
    report.list([
        "A's hardware: machines of their own for the server, each proxy and the clients, joined by InfiniBand. Here all share one \
         machine, and one-sided reads go through its memory."
            .to_owned(),
        format!(
            "A's requirement, which it does not tell: {TARGET_MS} ms is in the middle between its means at 520 clients, \
             one-sided and without admission."
        ),
    ]);
    let failed: usize = rows.iter().map(|row| row.failed).sum();
    report.close(outcome, &watch::describe(&outcome.settings), failed as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(clients: u32, system: System, unsatisfied: f64) -> Row {
        let qos_unsatisfied = Some(unsatisfied);
        let in_time_per_s = Some(1000.0 * (1.0 - unsatisfied));
        Row {
            kind: Loop::Closed,
            clients,
            system,
            qos_unsatisfied,
            in_time_per_s,
            turned_away: None,
            failed: 0,
        }
    }

    #[test]
    fn clients_are_served_until_too_many_wait_too_long() {
        let clients = [100, 200, 300];
        let of =
            |system, [a, b, c]: [f64; 3]| [row(100, system, a), row(200, system, b), row(300, system, c)];
        let rows = [
            of(System::None, [0.2, 1.0, 1.0]),
            of(System::Tcp, [0.0, 0.2, 0.5]),
            of(System::OneSided, [0.0, 0.0, 0.05]),
        ]
        .concat();
        let served = |system| clients_served(&rows, &clients, system);
        assert_eq!(served(System::None), Some(50.0));
        assert_eq!(served(System::Tcp), Some(150.0));
        assert_eq!(served(System::OneSided), Some(300.0), "as many as there were");
        assert_eq!(served(System::Ours), None);
        let checks = checks(&rows, &clients);
        let verdicts: Vec<_> = checks.iter().map(Check::verdict).collect();
        assert_eq!(verdicts, ["met", "met", "met", "not measured", "not measured", "not measured"]);
        assert_eq!(checks[0].measured, Some(2.0));
    }
}
