//! A2 and A6: response times if all requests are admitted, if edges reject by load that they fetch over TCP, and if they
//! read it one-sidedly (Lai et al. 2008, "Performance with Single File Trace", "Performance with Worldcup and Zipf Trace").
//! Clients are in a closed loop.

use std::time::Duration;

use serde::Serialize;
use sidelong_figure::{Axis, Line, Panel};

use super::{
    CLIENTS_AT_ONE_LOAD, EDGES, HARDWARE, LoadPoint, PERIOD, QUEUE_MAX, SERVICE, SINGLE, START, System,
    THRESHOLD, WORKERS, cluster_file, shares,
};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::setup::Demand;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;

/// Numbers of clients in all, as in the slides.
const CLIENTS: &[u32] = &[40, 120, 200, 280, 360, 440, 520];
const CLIENTS_QUICK: &[u32] = &[40, 520];
const TRACES: &[Demand] = &[Demand::WorldCup, Demand::Zipf];

/// Number of runs of each case, in turns, and the duration of one.
const ROUNDS: [u32; 2] = [3, 1];
const TIMES: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(4)];

/// A run of one system at one point of the figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    workload: String,
    clients: u32,
    system: System,
    mean_ms: f64,
    p99_ms: f64,
    requests_per_s: f64,
    answered: u64,
    rejected: u64,
}

impl Row {
    fn is_at(&self, place: LoadPoint, system: System) -> bool {
        self.system == system && self.clients == place.clients && self.workload == place.demand.label()
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum TableLine {
    Clients {
        clients: u32,
        system: System,
        response_ms_mean: Fixed<3>,
        response_ms_p99: Fixed<3>,
        requests_per_s: Fixed<3>,
    },
    Workload {
        workload: String,
        system: System,
        response_ms_mean: Fixed<3>,
    },
}

/// Settings that all runs share.
#[derive(Serialize)]
struct Responses {
    /// The server's share of the CPU, or the reason why it has none.
    cpus: Option<f64>,
    without: Option<String>,
    run_s: f64,
    #[serde(skip)]
    time: Duration,
    #[serde(skip)]
    places: Vec<LoadPoint>,
    #[serde(skip)]
    by_workload: bool,
}

pub(crate) fn by_clients(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let clients = if bench.options.quick { CLIENTS_QUICK } else { CLIENTS };
    run(bench, clients.iter().map(|&clients| LoadPoint { demand: SINGLE, clients }).collect(), false)
}

pub(crate) fn by_workload(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let place = |&demand: &Demand| LoadPoint { demand, clients: CLIENTS_AT_ONE_LOAD };
    run(bench, TRACES.iter().map(place).collect(), true)
}

fn run(bench: &mut Bench<'_>, places: Vec<LoadPoint>, by_workload: bool) -> Result<Conclusion> {
    let time = TIMES[usize::from(bench.options.quick)];
    let (cpus, without) = shares(bench)?;
    study::run(bench, Responses { cpus, without, run_s: time.as_secs_f64(), time, places, by_workload })
}

impl Study for Responses {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        vec![self.time + START; self.places.len() * System::ALL.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Responses>) -> Result<()> {
        for &place in &self.places {
            // The systems take turns, so that a drift of the machine affects all of them.
            for system in System::ALL {
                let (workload, clients) = (place.demand.label(), place.clients);
                let name = bench.name(format!("{workload}-{clients}-{}", system.word()));
                bench.begin(&name);
                let file = cluster_file(&bench.ground, place, system, self.cpus, self.time);
                let about = format!("{workload}, {clients} clients, admission: {}", system.word());
                let (summary, _) = bench.up(&name, &about, &file, self.time + START)?;
                let row = Row {
                    workload,
                    clients,
                    system,
                    mean_ms: summary.mean_ms,
                    p99_ms: summary.p99_ms,
                    requests_per_s: summary.requests_per_s,
                    answered: summary.requests - summary.errors - summary.turned_away,
                    rejected: summary.turned_away,
                };
                rows.push(self, row)?;
                bench.end();
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { clients, system, .. } = *row;
        let response_ms_mean = Fixed(row.mean_ms);
        vec![if self.by_workload {
            TableLine::Workload { workload: row.workload.clone(), system, response_ms_mean }
        } else {
            let (response_ms_p99, requests_per_s) = (Fixed(row.p99_ms), Fixed(row.requests_per_s));
            TableLine::Clients { clients, system, response_ms_mean, response_ms_p99, requests_per_s }
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of =
            |what: &str| format!("{}, {} clients, {}: {what}", row.workload, row.clients, row.system.word());
        // In a closed loop each client has one request in flight.
        let in_flight = row.requests_per_s * row.mean_ms / 1e3;
        vec![
            Bound::not_below_zero(of("mean, ms"), row.mean_ms),
            Bound::new(
                of("requests under way, by rate and mean"),
                in_flight,
                0.0..=1.1 * f64::from(row.clients),
            ),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        if self.by_workload { checks_of_traces(rows) } else { checks(rows, &self.places) }
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(self, rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
}

/// The ratio of a figure of `system` to that of `other`.
fn over(rows: &[Row], place: LoadPoint, [system, other]: [System; 2], of: fn(&Row) -> f64) -> Option<f64> {
    let find = |system| rows.iter().find(|row| row.is_at(place, system)).map(of);
    Some(find(system)? / find(other).filter(|under| *under > 0.0)?)
}

fn mean(row: &Row) -> f64 {
    row.mean_ms
}

fn rate(row: &Row) -> f64 {
    row.requests_per_s
}

/// Lai et al. 2008: with 520 clients 192.31 ms without admission, 142.29 by TCP, 105.03 one-sided; "higher TPS than the original system".
fn checks(rows: &[Row], places: &[LoadPoint]) -> Vec<Check> {
    let top = *places.last().unwrap_or(&LoadPoint { demand: SINGLE, clients: 0 });
    let [tcp, none] = [System::Tcp, System::None].map(|other| [System::OneSided, other]);
    vec![
        Check::at_most("mean response at the top: one-sided / tcp", 0.74, over(rows, top, tcp, mean)),
        Check::at_most("mean response at the top: one-sided / none", 0.55, over(rows, top, none, mean)),
        Check::at_least("requests/s at the top: one-sided / none", 1.0, over(rows, top, none, rate)),
    ]
}

/// Lai et al. 2008: WorldCup 17 % below TCP and 36 % below none, Zipf 23 % and 42 %.
fn checks_of_traces(rows: &[Row]) -> Vec<Check> {
    let paper = [[0.83, 0.64], [0.77, 0.58]];
    let check = |(demand, below): (Demand, [f64; 2])| {
        let place = LoadPoint { demand, clients: CLIENTS_AT_ONE_LOAD };
        [System::Tcp, System::None].into_iter().zip(below).map(move |(other, most)| {
            let what = format!("mean response, {}: one-sided / {}", demand.label(), other.word());
            Check::at_most(what, most, over(rows, place, [System::OneSided, other], mean))
        })
    };
    TRACES.iter().copied().zip(paper).flat_map(check).collect()
}

fn draw(study: &Responses, rows: &[Row]) -> Drawing {
    let most = study.places.iter().map(|place| place.clients).max().unwrap_or(1);
    let by_workload = study.by_workload;
    let x = |row: &Row| {
        let at = TRACES.iter().position(|demand| demand.label() == row.workload);
        if by_workload { at.unwrap_or(0) as f64 + 1.0 } else { f64::from(row.clients) }
    };
    let panel = |title: &str, y_title: &str, of: fn(&Row) -> f64| {
        let line = |system: System| {
            let of_system = rows.iter().filter(|row| row.system == system);
            Line::new(system.style(), of_system.map(|row| (x(row), of(row))).collect())
        };
        let x = if by_workload {
            Axis {
                label: |at| TRACES.get(at as usize - 1).map_or_else(String::new, |demand| demand.label()),
                ..Axis::counting("workload", TRACES.len() as u32)
            }
        } else {
            Axis::from_zero("clients", f64::from(most))
        };
        let y = Axis::from_zero(y_title, rows.iter().map(of).fold(0.0, f64::max));
        Panel { title: title.to_owned(), x, y, lines: System::ALL.map(line).into() }
    };
    Drawing {
        panels: vec![
            panel("(a) admitted requests", "mean response (ms)", mean),
            panel("(b) all", "answers/s", rate),
        ],
        legend: System::ALL.map(|system| (system.word().to_owned(), system.style())).into(),
        ..Drawing::default()
    }
}

fn tell(settings: &Responses, rows: &[Row], report: &mut Story) {
    report.heading("The paper beside ours");
    report.paragraph(if settings.by_workload {
        "Lai et al. 2008: \"Worldcup and Zipf Trace: AC-RDMA is better. Compared to AC-TCP/IP: 17%, compared to NoAC: 36%\" and \"23%\", \"42%\"."
    } else {
        "Lai et al. 2008: \"With 520 clients NoAC: 192.31ms; AC-TCP/IP: 142.29ms, 26% improvement; AC-RDMA: 105.03ms, 26% improvement over \
         AC-TCP/IP (45% improvement over NoAC) [...] System with admission control has higher TPS than the original system\"."
    });
    report.checks();
    report.heading("Measured");
    report.table(
        &["workload", "clients", "system", "mean, ms", "p99, ms", "answers/s", "rejected, of all"],
        rows.iter().map(|row| {
            let asked = row.answered + row.rejected;
            let away = (asked > 0).then(|| row.rejected as f64 / asked as f64);
            vec![
                row.workload.clone(),
                row.clients.to_string(),
                row.system.word().to_owned(),
                number(Some(row.mean_ms), 1),
                number(Some(row.p99_ms), 1),
                number(Some(row.requests_per_s), 1),
                number(away, 2),
            ]
        }),
    );
    report.paragraph(
        "Response times are of requests that were answered; a client that is rejected pauses, for 10 ms at first and 250 ms \
         at most, and asks again. `none`: everybody waits. `tcp` and `one-sided`: the published rule; a thread on the server gathers its \
         load each ms, and edges fetch it over TCP from another (socket-async), or read it from its memory (rdma-async). \
         `ours`: no fixed score, but a promise of the longest wait, by the same records as `one-sided`.",
    );
    let held = match (settings.cpus, &settings.without) {
        (Some(cpus), _) => format!("held to {cpus} of a CPU by a control group (20 ms periods)"),
        (None, why) => format!("held to nothing ({})", why.as_deref().unwrap_or("no control groups")),
    };
    report.list([
        HARDWARE.to_owned(),
        format!(
            "The threshold, which the slides do not tell: {THRESHOLD} is the load index with some half of the most clients at the server."
        ),
    ]);
    let how = format!(
        "One server, {held}, with {WORKERS} workers that burn {} ms of CPU time a request on average over all paths, beside what its bytes take; {EDGES} edges of \
         one thread; scans and records {} ms apart; ours: at most {} ms in the queue. Runs of {} s, the systems in turns.",
        SERVICE.as_secs_f64() * 1e3,
        PERIOD.as_millis(),
        QUEUE_MAX.as_millis(),
        settings.run_s
    );
    report.how(&how);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(place: LoadPoint, system: System, mean_ms: f64) -> Row {
        let LoadPoint { demand, clients } = place;
        Row {
            workload: demand.label(),
            clients,
            system,
            mean_ms,
            p99_ms: mean_ms,
            requests_per_s: 100.0,
            answered: 0,
            rejected: 0,
        }
    }

    fn study(by_workload: bool) -> Responses {
        let time = TIMES[0];
        Responses {
            cpus: None,
            without: None,
            run_s: time.as_secs_f64(),
            time,
            places: Vec::new(),
            by_workload,
        }
    }

    #[test]
    fn the_papers_figures_are_met_by_the_paper() {
        let top = LoadPoint { demand: SINGLE, clients: 520 };
        let rows = [(System::None, 192.31), (System::Tcp, 142.29), (System::OneSided, 105.03)]
            .map(|(system, ms)| row(top, system, ms));
        let verdicts = |rows: &[Row]| -> Vec<_> { checks(rows, &[top]).iter().map(Check::verdict).collect() };
        assert_eq!(verdicts(&rows), ["met", "met", "met"]);
        assert_eq!(verdicts(&rows[1..]), ["met", "not measured", "not measured"]);
        assert_eq!(
            crate::table::written(study(false).lines(&rows[0]).remove(0)),
            [
                "clients,system,response_ms_mean,response_ms_p99,requests_per_s",
                "520,none,192.310,192.310,100.000"
            ]
        );

        let zipf = LoadPoint { demand: Demand::Zipf, clients: CLIENTS_AT_ONE_LOAD };
        let rows = [row(zipf, System::None, 100.0), row(zipf, System::OneSided, 58.5)];
        let verdicts: Vec<_> = checks_of_traces(&rows).iter().map(Check::verdict).collect();
        assert_eq!(verdicts, ["not measured", "not measured", "not measured", "MISSED"]);
        assert_eq!(
            crate::table::written(study(true).lines(&rows[1]).remove(0)),
            ["workload,system,response_ms_mean", "zipf,one-sided,58.500"]
        );
    }
}
