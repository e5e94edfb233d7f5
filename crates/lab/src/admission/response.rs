//! A2 and A6: response times where nobody is turned away, where edges turn away by load that is had over TCP, and where
//! they have it one-sidedly (A, "Performance with Single File Trace", "Performance with Worldcup and Zipf Trace").
//!
//! One server behind four proxies, clients in a closed loop. A fourth system is ours: the same edges holding a target.

use std::time::Duration;

use serde::Serialize;

use super::{
    CLIENTS_AT_ONE_LOAD, EDGES, PERIOD, Place, QUEUE_MAX, SERVICE, SINGLE, START, System, THRESHOLD, WORKERS,
    cluster_file, shares,
};
use crate::bench::Bench;
use crate::check::{Check, median};
use crate::error::Result;
use crate::figure::{self, Axis, Line, Panel};
use crate::machine::Machine;
use crate::report::{Markdown, Outcome, number};
use crate::setup::Demand;

/// Together, in A's figure.
const CLIENTS: &[u32] = &[40, 120, 200, 280, 360, 440, 520];
const CLIENTS_QUICK: &[u32] = &[40, 520];
const TRACES: &[Demand] = &[Demand::WorldCup, Demand::Zipf];

/// Runs of each, in turns, and how long one takes.
const ROUNDS: (u32, Duration) = (3, Duration::from_secs(6));
const ROUNDS_QUICK: (u32, Duration) = (1, Duration::from_secs(4));
/// The runs of one system at one place.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    workload: String,
    clients: u32,
    system: System,
    /// Of each round.
    mean_ms: Vec<f64>,
    p99_ms: Vec<f64>,
    requests_per_s: Vec<f64>,
    /// Requests that were answered, and turned away, in all rounds.
    answered: u64,
    turned_away: u64,
}

impl Row {
    fn new(place: Place, system: System) -> Row {
        Row {
            workload: place.demand.label(),
            clients: place.clients,
            system,
            mean_ms: Vec::new(),
            p99_ms: Vec::new(),
            requests_per_s: Vec::new(),
            answered: 0,
            turned_away: 0,
        }
    }

    fn is_at(&self, place: Place, system: System) -> bool {
        self.system == system && self.clients == place.clients && self.workload == place.demand.label()
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    /// CPUs of the server, where it is held to them, and why not.
    cpus: Option<f64>,
    without: Option<String>,
    rounds: u32,
    run_s: f64,
}

pub(crate) fn by_clients(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let clients = if bench.options.quick { CLIENTS_QUICK } else { CLIENTS };
    let places = clients.iter().map(|clients| Place { demand: SINGLE, clients: *clients });
    run(bench, &places.collect::<Vec<_>>(), false)
}

pub(crate) fn by_workload(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let places = TRACES.iter().map(|demand| Place { demand: *demand, clients: CLIENTS_AT_ONE_LOAD });
    run(bench, &places.collect::<Vec<_>>(), true)
}

fn run(bench: &mut Bench<'_>, places: &[Place], by_workload: bool) -> Result<Vec<Check>> {
    let (rounds, time) = if bench.options.quick { ROUNDS_QUICK } else { ROUNDS };
    let (cpus, without) = shares(bench)?;
    (0..places.len() * System::ALL.len() * rounds as usize).for_each(|_| bench.expect_for(time + START));
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut rows: Vec<Row> = Vec::new();
    for place in places {
        let first = rows.len();
        rows.extend(System::ALL.map(|system| Row::new(*place, system)));
        for round in 1..=rounds {
            // In turns, so that what drifts does so for all.
            for row in &mut rows[first..] {
                let name = format!("{}-{}-{}-{round}", row.workload, row.clients, row.system.word());
                bench.begin(&name);
                let file = cluster_file(&bench.ground, *place, row.system, cpus, time);
                let (system, clients) = (row.system.word(), row.clients);
                let about = format!("{}, {clients} clients, admission: {system}", row.workload);
                let (summary, _) = bench.up(&name, &about, &file, time + START)?;
                row.mean_ms.push(summary.mean_ms);
                row.p99_ms.push(summary.p99_ms);
                row.requests_per_s.push(summary.requests_per_s);
                row.answered += summary.requests - summary.errors - summary.turned_away;
                row.turned_away += summary.turned_away;
                bench.end();
            }
        }
        table.rows(rows[first..].iter().map(|row| csv(row, by_workload)))?;
    }
    let checks = if by_workload { checks_of_traces(&rows) } else { checks(&rows, places) };
    if !by_workload {
        bench.write("figure.svg", &draw(bench, places, &rows)?)?;
    }
    let machine = Machine::here();
    let settings = Settings { cpus, without, rounds, run_s: time.as_secs_f64() };
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &markdown(&outcome, by_workload))?;
    Ok(checks)
}

fn csv(row: &Row, by_workload: bool) -> String {
    let (workload, clients, system) = (&row.workload, row.clients, row.system.word());
    let of = |values: &[f64]| number(median(values.to_vec()), 3);
    let mean = of(&row.mean_ms);
    if by_workload {
        return format!("{workload},{system},{mean}");
    }
    format!("{clients},{system},{mean},{},{}", of(&row.p99_ms), of(&row.requests_per_s))
}

/// Of `system` over `other`: the median of the ratios within a round.
fn over(rows: &[Row], place: Place, [system, other]: [System; 2], of: fn(&Row) -> &Vec<f64>) -> Option<f64> {
    let find = |system| rows.iter().find(|row| row.is_at(place, system)).map(of);
    let pairs = find(system)?.iter().zip(find(other)?);
    median(pairs.filter(|(_, under)| **under > 0.0).map(|(over, under)| over / under).collect())
}

fn mean(row: &Row) -> &Vec<f64> {
    &row.mean_ms
}

fn rate(row: &Row) -> &Vec<f64> {
    &row.requests_per_s
}

/// A: with 520 clients 192.31 ms without admission, 142.29 by TCP, 105.03 one-sided; "higher TPS than the original system".
fn checks(rows: &[Row], places: &[Place]) -> Vec<Check> {
    let top = *places.last().unwrap_or(&Place { demand: SINGLE, clients: 0 });
    let [tcp, none] = [System::Tcp, System::None].map(|other| [System::OneSided, other]);
    vec![
        Check::at_most("mean response at the top: one-sided / tcp", 0.74, over(rows, top, tcp, mean)),
        Check::at_most("mean response at the top: one-sided / none", 0.55, over(rows, top, none, mean)),
        Check::at_least("requests/s at the top: one-sided / none", 1.0, over(rows, top, none, rate)),
    ]
}

/// A: WorldCup 17 % below TCP and 36 % below none, Zipf 23 % and 42 %.
fn checks_of_traces(rows: &[Row]) -> Vec<Check> {
    let paper = [[0.83, 0.64], [0.77, 0.58]];
    let check = |(demand, below): (Demand, [f64; 2])| {
        let place = Place { demand, clients: CLIENTS_AT_ONE_LOAD };
        [System::Tcp, System::None].into_iter().zip(below).map(move |(other, most)| {
            let what = format!("mean response, {}: one-sided / {}", demand.label(), other.word());
            Check::at_most(what, most, over(rows, place, [System::OneSided, other], mean))
        })
    };
    TRACES.iter().copied().zip(paper).flat_map(check).collect()
}

fn draw(bench: &Bench<'_>, places: &[Place], rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let most = places.iter().map(|place| place.clients).max().unwrap_or(1);
    let panel = |title: &str, y_title: &str, of: fn(&Row) -> &Vec<f64>| {
        let line = |system: System| {
            let of_system = rows.iter().filter(|row| row.system == system);
            let point = |row: &Row| Some((f64::from(row.clients), median(of(row).clone())?));
            Line { look: system.look(), points: of_system.filter_map(point).collect() }
        };
        let lines: Vec<Line> = System::ALL.map(line).into();
        let top = lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y).fold(0.0, f64::max);
        let (x, y) = (Axis::from_zero("clients", f64::from(most)), Axis::from_zero(y_title, top));
        Panel { title: title.to_owned(), x, y, lines }
    };
    let panels = [panel("(a) those let in", "mean response (ms)", mean), panel("(b) all", "answers/s", rate)];
    let legend: Vec<_> = System::ALL.iter().map(|system| (system.word().to_owned(), system.look())).collect();
    Ok(figure::draw(&title, &panels, &legend)?)
}

fn markdown(outcome: &Outcome<'_, Row, Settings>, by_workload: bool) -> String {
    let (rows, settings) = (outcome.rows, &outcome.settings);
    let mut report = Markdown::new(outcome.experiment, outcome.quick);
    report.heading("The paper beside ours");
    report.paragraph(if by_workload {
        "A: \"Worldcup and Zipf Trace: AC-RDMA is better. Compared to AC-TCP/IP: 17%, compared to NoAC: 36%\" and \"23%\", \"42%\"."
    } else {
        "A: \"With 520 clients NoAC: 192.31ms; AC-TCP/IP: 142.29ms, 26% improvement; AC-RDMA: 105.03ms, 26% improvement over \
         AC-TCP/IP (45% improvement over NoAC) [...] System with admission control has higher TPS than the original system\"."
    });
    report.checks(outcome.checks);
    report.heading("Measured");
    report.table(
        &["workload", "clients", "system", "mean, ms", "p99, ms", "answers/s", "turned away, of all asked"],
        rows.iter().map(|row| {
            let of = |values: &[f64]| number(median(values.to_vec()), 1);
            let asked = row.answered + row.turned_away;
            let away = (asked > 0).then(|| row.turned_away as f64 / asked as f64);
            vec![
                row.workload.clone(),
                row.clients.to_string(),
                row.system.word().to_owned(),
                of(&row.mean_ms),
                of(&row.p99_ms),
                of(&row.requests_per_s),
                number(away, 2),
            ]
        }),
    );
    report.paragraph(
        "Response times are of requests that were answered; a client that is turned away pauses, for 10 ms at first and 250 ms \
         at most, and asks again. `none`: everybody waits. `tcp` and `one-sided`: A's rule; a thread on the server gathers its \
         load each ms, and edges fetch it over TCP from another (socket-async), or read it from its memory (rdma-async). \
         `ours`: no fixed score, but a promise of the longest wait, by the same records as `one-sided`.",
    );
    let held = match (settings.cpus, &settings.without) {
        (Some(cpus), _) => format!("held to {cpus} of a CPU by a control group (20 ms periods)"),
        (None, why) => format!("held to nothing ({})", why.as_deref().unwrap_or("no control groups")),
    };
    report.list([
        "A's hardware: machines of their own for the server, each proxy and the clients, joined by InfiniBand. Here all share one \
         machine, and one-sided reads go through its memory."
            .to_owned(),
        format!(
            "A's threshold, which it does not tell: {THRESHOLD} is the load index with some half of the most clients at the server."
        ),
    ]);
    let how = format!(
        "One server, {held}, with {WORKERS} workers that burn {} ms of CPU time a request on average over all paths, beside what its bytes take; {EDGES} edges of \
         one thread; looks and records {} ms apart; ours: at most {} ms in the queue. {} runs of {} s for each row, in turns; medians.",
        SERVICE.as_secs_f64() * 1e3,
        PERIOD.as_millis(),
        QUEUE_MAX.as_millis(),
        settings.rounds,
        settings.run_s
    );
    report.close(outcome, &how, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(place: Place, system: System, mean_ms: f64) -> Row {
        Row {
            mean_ms: vec![mean_ms, 2.0 * mean_ms],
            p99_ms: vec![mean_ms],
            requests_per_s: vec![100.0],
            ..Row::new(place, system)
        }
    }

    #[test]
    fn the_papers_figures_are_met_by_the_paper() {
        let top = Place { demand: SINGLE, clients: 520 };
        let rows = [(System::None, 192.31), (System::Tcp, 142.29), (System::OneSided, 105.03)]
            .map(|(system, ms)| row(top, system, ms));
        let verdicts = |rows: &[Row]| -> Vec<_> { checks(rows, &[top]).iter().map(Check::verdict).collect() };
        assert_eq!(verdicts(&rows), ["met", "met", "met"]);
        assert_eq!(verdicts(&rows[1..]), ["met", "not measured", "not measured"]);
        assert_eq!(csv(&rows[0], false), "520,none,288.465,192.310,100.000");

        let zipf = Place { demand: Demand::Zipf, clients: CLIENTS_AT_ONE_LOAD };
        let rows = [row(zipf, System::None, 100.0), row(zipf, System::OneSided, 58.5)];
        let verdicts: Vec<_> = checks_of_traces(&rows).iter().map(Check::verdict).collect();
        assert_eq!(verdicts, ["not measured", "not measured", "not measured", "MISSED"]);
        assert_eq!(csv(&rows[1], true), "zipf,one-sided,87.750");
    }
}
