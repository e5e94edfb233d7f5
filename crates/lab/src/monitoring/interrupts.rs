//! M6: interrupts that were raised and not yet served, as each scheme shows them, by CPU (Vaidyanathan et al. 2006, 5.1.4).

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Scheme;

use super::{START, Schemes, close, drawing, load, style};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::figure::{Axis, Line, Panel};
use crate::results::load::{Interrupts as Found, Placement};
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};

/// Threads that compute and send on the node's CPU. Their messages raise the interrupts.
const THREADS: &str = "8";
/// Number of runs of each case, in turns, and the seconds of one.
const ROUNDS: (u32, u64) = (5, 10);
const ROUNDS_QUICK: (u32, u64) = (1, 2);
/// The schemes whose records are made from /proc.
const FROM_PROC: [Scheme; 3] = [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync];

/// All runs of one scheme, for one CPU.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    scheme: Scheme,
    cpu: usize,
    interrupts_seen: u64,
    /// The most in one sample.
    most: u64,
    samples: u64,
    /// Whether the record has them.
    told: bool,
    /// Interrupts seen in each round.
    rounds: Vec<u64>,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    scheme: Scheme,
    cpu: usize,
    interrupts_seen: u64,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let (rounds, seconds) = if bench.options.quick { ROUNDS_QUICK } else { ROUNDS };
    let schemes = Schemes::here(bench)?;
    study::run(bench, Interrupts { schemes, rounds, seconds, placement: None })
}

/// Rounds are added up, because a single round shows few interrupts.
#[derive(Serialize)]
struct Interrupts {
    schemes: Schemes,
    rounds: u32,
    seconds: u64,
    placement: Option<Placement>,
}

impl Interrupts {
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds) + START
    }
}

impl Study for Interrupts {
    type Row = Row;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        vec![self.time(); self.rounds as usize * self.schemes.all.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Interrupts>) -> Result<()> {
        let mut runs = vec![Vec::new(); self.schemes.all.len()];
        for round in 1..=self.rounds {
            for (scheme, runs) in self.schemes.all.iter().zip(&mut runs) {
                let name = bench.name(format!("{scheme}-{round}"));
                bench.begin(&name);
                let time_s = self.seconds.to_string();
                let arguments =
                    ["interrupts", "--scheme", scheme.as_str(), "--background", THREADS, "--for", &time_s];
                let (placement, found) = load(bench, &name, &arguments, self.time())?;
                self.placement = Some(placement);
                runs.push(found);
                bench.end();
            }
        }
        for (scheme, runs) in self.schemes.all.clone().into_iter().zip(&runs) {
            by_cpu(scheme, runs).into_iter().try_for_each(|row| rows.push(self, row))?;
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { scheme, cpu, interrupts_seen, .. } = *row;
        vec![TableLine { scheme, cpu, interrupts_seen }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let seen = row.interrupts_seen as f64;
        let what = format!("{}, CPU {}: interrupts seen", row.scheme, row.cpu);
        vec![Bound::new(what, seen, 0.0..=(row.most * row.samples) as f64)]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(&self.schemes, rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
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
            samples: runs.iter().map(|run| run.samples).sum(),
            told: runs.iter().any(|run| run.told),
            rounds,
        }
    };
    (0..cpus).map(row).collect()
}

/// The sum over all CPUs. `None` if the scheme has no rows.
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
            Check::at_least(what, 1.0, more(scheme)).possible(f64::NEG_INFINITY..=f64::INFINITY)
        })
        .to_vec()
}

fn draw(schemes: &Schemes, rows: &[Row]) -> Drawing {
    let rounds = rows.iter().map(|row| row.rounds.len()).max().unwrap_or(1).max(1) as u32;
    let cpus = rows.iter().map(|row| row.cpu + 1).max().unwrap_or(1);
    let most = rows.iter().flat_map(|row| &row.rounds).copied().max().unwrap_or(1);
    let panel = |cpu: usize| {
        let line = |scheme: &Scheme| {
            let row = rows.iter().find(|row| row.scheme == *scheme && row.cpu == cpu);
            let values = row.map(|row| row.rounds.clone()).unwrap_or_default();
            Line::new(style(*scheme), (1..).map(f64::from).zip(values.iter().map(|n| *n as f64)).collect())
        };
        Panel {
            title: format!("CPU {cpu}"),
            x: Axis::counting("round", rounds),
            y: Axis::from_zero("interrupts seen", most as f64),
            lines: schemes.all.iter().map(line).collect(),
        }
    };
    // As many CPUs as the paper's machines had, for which a figure has room.
    drawing(schemes, (0..cpus.min(2)).map(panel).collect::<Vec<_>>())
}

fn tell(settings: &Interrupts, rows: &[Row], report: &mut Story) {
    report.heading("The paper beside ours");
    report.paragraph(
        "Vaidyanathan et al. 2006, 5.1.4: \"the three schemes, Socket-Async, Socket-Sync and RDMA-Async [...] report less and infrequent interrupts in \
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
    report.checks();
    report.heading("Measured");
    report.table(
        &["scheme", "CPU", "seen", "most in one sample", "samples", "by round"],
        rows.iter().map(|row| {
            let rounds: Vec<_> = row.rounds.iter().map(u64::to_string).collect();
            let [cpu, seen, most, samples] =
                [row.cpu as u64, row.interrupts_seen, row.most, row.samples].map(|number| number.to_string());
            vec![row.scheme.to_string(), cpu, seen, most, samples, rounds.join(" ")]
        }),
    );
    report.paragraph(
        "A sample each millisecond counts the kinds of softirq that are raised on a CPU and not yet served. On the node's CPU eight \
         threads send over TCP connections on the loopback device, which raises them. rdma-sync and e-rdma-sync read the same \
         record and differ in what balancing makes of it: what one sees more than the other is chance.",
    );
    let describe = settings.placement.map(Placement::describe).unwrap_or_default();
    let how =
        format!("{describe} {} runs of {} s of each scheme, in turns.", settings.rounds, settings.seconds);
    let absent = [
        "A kernel module that tells processes what pends, as the paper's did: /proc does not, so the schemes of /proc see none.",
        "Interrupts of a network adapter: the loopback device has softirqs only. The CPU of the sampling side is one on \
         which little can pend while it samples.",
    ];
    close(report, &settings.schemes, &absent.map(str::to_owned), &how);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(seen: [u64; 2]) -> Found {
        Found { samples: 100, told: true, seen: seen.to_vec(), most: vec![2, 1] }
    }

    #[test]
    fn runs_add_up_by_cpu() {
        let rows = by_cpu(Scheme::RdmaSync, &[found([5, 1]), found([7, 0])]);
        assert_eq!((rows[0].interrupts_seen, rows[1].interrupts_seen), (12, 1));
        assert_eq!((rows[0].samples, rows[0].most, &rows[0].rounds[..]), (200, 2, &[5, 7][..]));
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
