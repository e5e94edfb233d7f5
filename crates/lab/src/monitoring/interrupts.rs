//! M6: interrupts that were raised and not yet served, as each scheme shows them, by CPU (M 5.1.4).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_config::Scheme;

use super::{Placement, START, Schemes, legend, load, look};
use crate::bench::Bench;
use crate::check::Check;
use crate::error::Result;
use crate::figure::{self, Axis, Line, Panel};
use crate::machine::Machine;
use crate::report::{Markdown, Outcome, number};

/// Threads that compute and send on the node's CPU: what they send raises the interrupts.
const THREADS: &str = "8";
/// Runs of each, in turns, and the seconds of one.
const ROUNDS: (u32, u64) = (5, 10);
const ROUNDS_QUICK: (u32, u64) = (1, 2);
/// Whose records are made from /proc.
const FROM_PROC: [Scheme; 3] = [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync];

/// What `perf load interrupts` prints, as far as it is used.
#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Found {
    looks: u64,
    told: bool,
    seen: Vec<u64>,
    most: Vec<u64>,
    #[serde(flatten)]
    placement: Placement,
}

/// All runs of one scheme, for one CPU.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    scheme: Scheme,
    cpu: usize,
    interrupts_seen: u64,
    /// In one look.
    most: u64,
    looks: u64,
    /// Whether its record tells them.
    told: bool,
    /// Of each round.
    rounds: Vec<u64>,
}

impl Row {
    fn csv(&self) -> String {
        format!("{},{},{}", self.scheme, self.cpu, self.interrupts_seen)
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    schemes: Schemes,
    rounds: u32,
    seconds: u64,
    placement: Option<Placement>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let (rounds, seconds) = if bench.options.quick { ROUNDS_QUICK } else { ROUNDS };
    let schemes = Schemes::here(bench)?;
    let time = Duration::from_secs(seconds) + START;
    (0..rounds as usize * schemes.all.len()).for_each(|_| bench.expect_for(time));
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut runs = vec![Vec::new(); schemes.all.len()];
    for round in 1..=rounds {
        for (scheme, runs) in schemes.all.iter().zip(&mut runs) {
            let name = format!("{scheme}-{round}");
            bench.begin(&name);
            let time_s = seconds.to_string();
            let arguments =
                ["interrupts", "--scheme", scheme.as_str(), "--background", THREADS, "--for", &time_s];
            runs.push(load::<Found>(bench, &name, &arguments, time)?);
            bench.end();
        }
    }
    let rows: Vec<Row> =
        schemes.all.iter().zip(&runs).flat_map(|(scheme, runs)| by_cpu(*scheme, runs)).collect();
    table.rows(rows.iter().map(Row::csv))?;
    let checks = checks(&rows);
    bench.write("figure.svg", &draw(bench, &schemes, &rows)?)?;
    let machine = Machine::here();
    let placement = runs.iter().flatten().map(|found| found.placement).next();
    let settings = Settings { schemes, rounds, seconds, placement };
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &markdown(&outcome))?;
    Ok(checks)
}

fn by_cpu(scheme: Scheme, runs: &[Found]) -> Vec<Row> {
    let cpus = runs.iter().map(|run| run.seen.len()).max().unwrap_or(0);
    let of = |values: &[u64], cpu: usize| values.get(cpu).copied().unwrap_or(0);
    let row = |cpu| {
        let rounds: Vec<u64> = runs.iter().map(|run| of(&run.seen, cpu)).collect();
        Row {
            scheme,
            cpu,
            interrupts_seen: rounds.iter().sum(),
            most: runs.iter().map(|run| of(&run.most, cpu)).max().unwrap_or(0),
            looks: runs.iter().map(|run| run.looks).sum(),
            told: runs.iter().any(|run| run.told),
            rounds,
        }
    };
    (0..cpus).map(row).collect()
}

/// Over all CPUs; of none where the scheme has no rows.
fn seen(rows: &[Row], scheme: Scheme) -> Option<u64> {
    let mut of_scheme = rows.iter().filter(|row| row.scheme == scheme).peekable();
    of_scheme.peek()?;
    Some(of_scheme.map(|row| row.interrupts_seen).sum())
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let most = FROM_PROC.iter().filter_map(|scheme| seen(rows, *scheme)).max();
    let more = |scheme| Some(seen(rows, scheme)? as f64 - most? as f64);
    [Scheme::ERdmaSync, Scheme::RdmaSync]
        .map(|scheme| {
            let what =
                format!("interrupts that {scheme} sees, less the most that one of the schemes of /proc does");
            Check::at_least(what, 1.0, more(scheme))
        })
        .to_vec()
}

fn draw(bench: &Bench<'_>, schemes: &Schemes, rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let rounds = rows.iter().map(|row| row.rounds.len()).max().unwrap_or(1).max(1) as u32;
    let cpus = rows.iter().map(|row| row.cpu + 1).max().unwrap_or(1);
    let most = rows.iter().flat_map(|row| &row.rounds).copied().max().unwrap_or(1);
    let panel = |cpu: usize| {
        let line = |scheme: &Scheme| {
            let row = rows.iter().find(|row| row.scheme == *scheme && row.cpu == cpu);
            let values = row.map(|row| row.rounds.clone()).unwrap_or_default();
            Line {
                look: look(*scheme),
                points: (1..).map(f64::from).zip(values.iter().map(|n| *n as f64)).collect(),
            }
        };
        Panel {
            title: format!("CPU {cpu}"),
            x: Axis::counting("round", rounds),
            y: Axis::from_zero("interrupts seen", most as f64),
            lines: schemes.all.iter().map(line).collect(),
        }
    };
    // As many as M's machines had, and a figure has room for.
    let panels: Vec<Panel> = (0..cpus.min(2)).map(panel).collect();
    Ok(figure::draw(&title, &panels, &legend(schemes))?)
}

fn markdown(outcome: &Outcome<'_, Row, Settings>) -> String {
    let (rows, settings) = (outcome.rows, &outcome.settings);
    let mut report = Markdown::new(outcome.experiment, outcome.quick);
    report.heading("The paper beside ours");
    report.paragraph(
        "M 5.1.4: \"the three schemes, Socket-Async, Socket-Sync and RDMA-Async [...] report less and infrequent interrupts in \
         comparison with the RDMA-Sync scheme\", since what pends is served before a process of the node gets to look. Its kernel \
         module told these three of irq_stat; it prints no figures of Figure 6.",
    );
    report.table(
        &["", "paper", "seen, all CPUs", "its record tells them"],
        settings.schemes.all.iter().map(|scheme| {
            let told = rows.iter().any(|row| row.scheme == *scheme && row.told);
            let paper = match scheme {
                Scheme::RdmaSync => "the most",
                Scheme::ERdmaSync => "– (the same records, used to balance)",
                _ => "few",
            };
            let all = number(seen(rows, *scheme).map(|count| count as f64), 0);
            vec![scheme.to_string(), paper.to_owned(), all, if told { "yes" } else { "no" }.to_owned()]
        }),
    );
    report.checks(outcome.checks);
    report.heading("Measured");
    report.table(
        &["scheme", "CPU", "seen", "most in one look", "looks", "by round"],
        rows.iter().map(|row| {
            let rounds: Vec<_> = row.rounds.iter().map(u64::to_string).collect();
            let [cpu, seen, most, looks] =
                [row.cpu as u64, row.interrupts_seen, row.most, row.looks].map(|number| number.to_string());
            vec![row.scheme.to_string(), cpu, seen, most, looks, rounds.join(" ")]
        }),
    );
    report.paragraph(
        "A look each millisecond counts the kinds of softirq that are raised on a CPU and not yet served. On the node's CPU eight \
         threads send over TCP connections on the loopback device, which raises them. rdma-sync and e-rdma-sync read the same \
         record and differ in what balancing makes of it: what one sees more than the other is chance.",
    );
    let describe = settings.placement.map(Placement::describe).unwrap_or_default();
    let how =
        format!("{describe} {} runs of {} s of each scheme, in turns.", settings.rounds, settings.seconds);
    let absent = [
        "A kernel module that tells processes what pends, as M's did: /proc does not, so the schemes of /proc see none.",
        "Interrupts of a network adapter: the loopback device has softirqs only. The CPU of the side that looks is one on \
         which little can pend while it looks.",
    ];
    report.close_beside_m(outcome, &settings.schemes.refused, &absent, &how)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(seen: [u64; 2]) -> Found {
        let placement = Placement { node_cpu: Some(0), this_cpu: Some(1) };
        Found { looks: 100, told: true, seen: seen.to_vec(), most: vec![2, 1], placement }
    }

    #[test]
    fn runs_add_up_by_cpu() {
        let rows = by_cpu(Scheme::RdmaSync, &[found([5, 1]), found([7, 0])]);
        assert_eq!((rows[0].interrupts_seen, rows[1].interrupts_seen), (12, 1));
        assert_eq!((rows[0].looks, rows[0].most, &rows[0].rounds[..]), (200, 2, &[5, 7][..]));
        assert_eq!(rows[1].csv(), "rdma-sync,1,1");
    }

    #[test]
    fn the_kernel_s_record_is_to_see_more_than_proc() {
        let rows =
            [by_cpu(Scheme::SocketSync, &[found([1, 0])]), by_cpu(Scheme::ERdmaSync, &[found([2, 0])])]
                .concat();
        let verdicts: Vec<_> = checks(&rows).iter().map(Check::verdict).collect();
        assert_eq!(verdicts, ["met", "not measured"]);
        let blind = by_cpu(Scheme::SocketSync, &[found([2, 0])]);
        assert_eq!(checks(&[blind, rows].concat())[0].verdict(), "MISSED");
    }
}
