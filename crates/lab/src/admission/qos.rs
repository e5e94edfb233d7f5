//! A5: admitted requests that wait longer than the target (Lai et al. 2008, "QoS analysis").

use std::time::Duration;

use serde::Serialize;
use sidelong_figure::{Axis, Line, Panel};

use super::watch::{self, Loop, Ready, Watched, above, over_time};
use super::{CLIENTS_AT_ONE_LOAD, HARDWARE, System};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::{Fixed, Table};

/// Numbers of clients, as in A2.
const CLIENTS: &[u32] = &[40, 120, 200, 280, 360, 440, 520];
const CLIENTS_QUICK: &[u32] = &[280, 520];
/// Number of runs of each case, and the duration of one.
const ROUNDS: u32 = 3;
const TIMES: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(3)];
/// The target, which the slides do not give: between the means at the most clients with one-sided admission (105 ms) and
/// without admission (192 ms).
const TARGET_MS: f64 = 150.0;
/// Clients count as served at the target while at most this share of the answers is later.
const UNSATISFIED_MAX: f64 = 0.1;

/// The figures of a run of one system under one load.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    #[serde(rename = "loop")]
    kind: Loop,
    clients: u32,
    system: System,
    /// The late share of the answered requests.
    qos_unsatisfied: Option<f64>,
    /// Rate of answers within the target.
    in_time_per_s: f64,
    /// The rejected share of all requests.
    rejected: f64,
    failed: usize,
    round: u32,
    /// The share of late answers over time. Intervals without an answer are left out.
    #[serde(skip)]
    over_time: Vec<(f64, f64)>,
}

impl Row {
    fn new(run: &Watched, run_s: f64) -> Row {
        let times_ms = run.times_ms();
        let in_time = times_ms.partition_point(|ms| *ms <= TARGET_MS);
        let (rejected, answered) = (run.turned_away(), times_ms.len());
        let intervals = run.intervals(run_s, TARGET_MS);
        Row {
            kind: run.kind,
            clients: run.clients,
            system: run.system,
            qos_unsatisfied: above(&times_ms, TARGET_MS),
            in_time_per_s: in_time as f64 / (run_s - watch::SETTLED_S),
            rejected: rejected as f64 / (rejected + answered).max(1) as f64,
            failed: run.failed(),
            round: run.round,
            over_time: intervals.iter().filter_map(|at| Some((at.t_s, at.unsatisfied()?))).collect(),
        }
    }
}

/// A line of `rows.csv`: an interval of a run.
#[derive(Debug, Serialize)]
struct TableLine {
    t_s: Fixed<3>,
    clients: u32,
    system: System,
    qos_unsatisfied: Fixed<4>,
    #[serde(rename = "loop")]
    kind: Loop,
    round: u32,
}

/// A line of `averages.csv`: a run.
#[derive(Debug, Serialize)]
struct Average {
    clients: u32,
    system: System,
    qos_unsatisfied: Option<Fixed<4>>,
    #[serde(rename = "loop")]
    kind: Loop,
    in_time_per_s: Fixed<1>,
    turned_away: Fixed<4>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let quick = bench.options.quick;
    let clients = if quick { CLIENTS_QUICK } else { CLIENTS };
    let closed = clients.iter().map(|clients| (Loop::Closed, *clients));
    let loads = closed.chain([(Loop::Open, CLIENTS_AT_ONE_LOAD)]).collect();
    let ready = Ready::new(bench, loads, TIMES[usize::from(quick)])?;
    let averages = bench.table("averages.csv")?;
    study::run(bench, Qos { ready, clients, averages })
}

#[derive(Serialize)]
struct Qos {
    #[serde(flatten)]
    ready: Ready,
    #[serde(skip)]
    clients: &'static [u32],
    #[serde(skip)]
    averages: Table,
}

impl Study for Qos {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = [ROUNDS; 2];

    fn plan(&self) -> Vec<Duration> {
        self.ready.plan()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Qos>) -> Result<()> {
        let averages = &mut self.averages;
        self.ready.watch_all(bench, |ready, run| {
            let row = Row::new(&run, ready.run_s);
            averages.write(Average {
                clients: row.clients,
                system: row.system,
                qos_unsatisfied: row.qos_unsatisfied.map(Fixed),
                kind: row.kind,
                in_time_per_s: Fixed(row.in_time_per_s),
                turned_away: Fixed(row.rejected),
            })?;
            rows.push_lines(lines(&row), row)
        })
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        lines(row)
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| {
            format!("{} loop, {} clients, {}: {what}", row.kind.word(), row.clients, row.system.word())
        };
        let unsatisfied = row.qos_unsatisfied.map(|share| Bound::share(of("later than the target"), share));
        [Bound::share(of("rejected"), row.rejected)].into_iter().chain(unsatisfied).collect()
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows, self.clients)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(rows, self.ready.run_s)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
}

fn lines(row: &Row) -> Vec<TableLine> {
    let Row { clients, system, kind, round, .. } = *row;
    let line = |(t_s, unsatisfied): &(f64, f64)| {
        let (t_s, qos_unsatisfied) = (Fixed(*t_s), Fixed(*unsatisfied));
        TableLine { t_s, clients, system, qos_unsatisfied, kind, round }
    };
    row.over_time.iter().map(line).collect()
}

fn find(rows: &[Row], kind: Loop, clients: u32, system: System) -> Option<&Row> {
    rows.iter().find(|row| row.kind == kind && row.clients == clients && row.system == system)
}

/// The number of clients at which the share of late answers reaches [`UNSATISFIED_MAX`], interpolated between those that
/// were run. The largest number that was run if it never does, `None` if it is always above.
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

/// Lai et al. 2008: "With the same requirement of QoS (e.g., response time), AC-RDMA can serve more clients than the other two systems".
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
        |kind, clients| move |system| find(rows, kind, clients, system).map(|row| row.in_time_per_s);
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

fn draw(rows: &[Row], run_s: f64) -> Drawing {
    let most = rows.iter().map(|row| row.clients).max().unwrap_or(1);
    let by_clients = |system: System| {
        let of_system = rows.iter().filter(|row| row.system == system && row.kind == Loop::Closed);
        let point = |row: &Row| Some((f64::from(row.clients), row.qos_unsatisfied?));
        Line::new(system.style(), of_system.filter_map(point).collect())
    };
    let y_title = format!("later than {TARGET_MS} ms, of those answered");
    let average = Panel {
        title: "(a) closed loop".to_owned(),
        x: Axis::from_zero("clients", f64::from(most)),
        y: Axis::from_zero(&y_title, 1.0),
        lines: System::ALL.map(by_clients).into(),
    };
    let instant = |kind: Loop, clients: u32, title: String| {
        let points =
            |system| find(rows, kind, clients, system).map_or_else(Vec::new, |row| row.over_time.clone());
        over_time(title, &y_title, run_s, points, None)
    };
    let panels = vec![
        average,
        instant(Loop::Closed, most, format!("(b) closed loop, {most} clients")),
        instant(Loop::Open, CLIENTS_AT_ONE_LOAD, "(c) open loop, in bursts".to_owned()),
    ];
    let legend = System::ALL.map(|system| (system.word().to_owned(), system.style())).into();
    Drawing { panels, legend, ..Drawing::default() }
}

fn tell(study: &Qos, rows: &[Row], report: &mut Story) {
    let clients = study.clients;
    report.heading("The paper beside ours");
    report.paragraph(
        "Lai et al. 2008: \"Instant QoS status: AC-RDMA has much better capability of satisfying the QoS requirement. Average QoS \
         unsatisfaction: AC-RDMA is the best. With the same requirement of QoS (e.g., response time), AC-RDMA can serve more \
         clients than the other two systems\".",
    );
    report.checks();
    report.heading("Measured");
    report.table(
        &[
            "loop",
            "clients",
            "system",
            "later than the target, of those answered",
            "answers in time/s",
            "rejected, of all",
        ],
        rows.iter().map(|row| {
            vec![
                row.kind.word().to_owned(),
                row.clients.to_string(),
                row.system.word().to_owned(),
                number(row.qos_unsatisfied, 3),
                number(Some(row.in_time_per_s), 0),
                number(Some(row.rejected), 2),
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
        HARDWARE.to_owned(),
        format!(
            "The requirement, which the slides do not tell: {TARGET_MS} ms is in the middle between their means at 520 clients, \
             one-sided and without admission."
        ),
    ]);
    let failed: usize = rows.iter().map(|row| row.failed).sum();
    report.how(&format!("{} {failed} requests failed.", watch::describe(&study.ready)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(clients: u32, system: System, unsatisfied: f64) -> Row {
        let qos_unsatisfied = Some(unsatisfied);
        let in_time_per_s = 1000.0 * (1.0 - unsatisfied);
        Row {
            kind: Loop::Closed,
            clients,
            system,
            qos_unsatisfied,
            in_time_per_s,
            rejected: 0.0,
            failed: 0,
            round: 1,
            over_time: Vec::new(),
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
