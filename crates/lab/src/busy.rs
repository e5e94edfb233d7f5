//! R9 and A1: one-sided and two-sided against a target that is busy (R 4.2; A, "Performance of RDMA read and IPoIB").
//!
//! The more threads want the target's CPU, the longer a two-sided operation waits for its turn there. A one-sided one
//! does not.

mod report;

use std::time::Duration;

use serde::Serialize;

use crate::bench::Bench;
use crate::check::Check;
use crate::error::Result;
use crate::figure::{self, Axis, Line, Look, Panel};
use crate::machine::Machine;
use crate::perf::{self, Row, Way, Ways};
use crate::report::Outcome;
use crate::sizes;

/// Busy threads.
const THREADS: &[u32] = &[0, 1, 2, 4, 8, 16, 32, 64];
const THREADS_QUICK: &[u32] = &[0, 1, 64];
/// Issue 3: p50 at the most threads over that at one.
const RATIO_MAX: f64 = 1.2;
/// What grows, grows by more than that.
const GROWTH_MIN: f64 = RATIO_MAX;
const RUN_TIME: Duration = Duration::from_secs(5);
const RUN_TIME_QUICK: Duration = Duration::from_secs(2);
/// A's, of 1 byte from an idle target.
const RDMA_US: f64 = 5.2;
const IPOIB_US: f64 = 18.9;
const SIZES_TIME: Duration = Duration::from_secs(12);

/// Which of the two papers' figures.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) enum Of {
    /// R Figure 9: latency and bandwidth by busy threads.
    R9,
    /// A: latency by size on an idle target, and by busy threads.
    A1,
}

impl Of {
    /// Bytes of the reads whose latency is measured: a load record, and A's "1 Byte message".
    const fn bytes(self) -> &'static str {
        match self {
            Of::R9 => "64",
            Of::A1 => "1",
        }
    }
}

/// What all runs share.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    threads: Vec<u32>,
    without_verbs: Option<String>,
    devices: Vec<String>,
}

/// What is measured by busy threads, and by sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Measure {
    Latency,
    Bandwidth,
    Sizes,
}

pub(crate) fn run(bench: &mut Bench<'_>, of: Of) -> Result<Vec<Check>> {
    let Ways { all, without_verbs } = Ways::here(bench, "read")?;
    let quick = bench.options.quick;
    let (threads, time) = if quick { (THREADS_QUICK, RUN_TIME_QUICK) } else { (THREADS, RUN_TIME) };
    let runs = plan(of, &all, threads);
    runs.iter().for_each(|(measure, ..)| {
        bench.expect_for(if *measure == Measure::Sizes { SIZES_TIME } else { time })
    });
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut rows = Vec::new();
    for (measure, way, threads) in runs {
        let count = threads.to_string();
        let mut arguments = vec!["read"];
        let name = match measure {
            Measure::Sizes => {
                arguments.extend(["--sizes", "all"]);
                format!("sizes-{}", way.name())
            }
            Measure::Latency => {
                arguments.extend(["--size", of.bytes(), "--background", &count]);
                format!("latency-{threads}-{}", way.name())
            }
            Measure::Bandwidth => {
                arguments.extend(["--size", "64K", "--bandwidth", "--background", &count]);
                format!("bandwidth-{threads}-{}", way.name())
            }
        };
        arguments.extend(quick.then_some("--quick"));
        bench.begin(&name);
        let found = perf::run(bench, &name, way, &arguments, time)?;
        table.rows(found.iter().map(Row::csv))?;
        rows.extend(found.into_iter().map(|row| Found { measure, row }));
        bench.end();
    }
    let checks = checks(&rows);
    bench.write("figure.svg", &draw(bench, of, &all, &rows)?)?;
    let machine = Machine::here();
    let plain: Vec<Row> = rows.iter().map(|found| found.row.clone()).collect();
    let settings = Settings { threads: threads.to_vec(), without_verbs, devices: perf::devices(&plain) };
    let outcome = Outcome::new(bench, &machine, settings, &plain, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &report::markdown(&outcome, of, &rows, &all))?;
    Ok(checks)
}

/// The ways take turns, so that what drifts does so for all.
fn plan(of: Of, ways: &[Way], threads: &[u32]) -> Vec<(Measure, Way, u32)> {
    let sizes = ways.iter().filter(|_| of == Of::A1).map(|way| (Measure::Sizes, *way, 0));
    let by_threads = threads.iter().flat_map(|&threads| {
        let latency = ways.iter().map(move |way| (Measure::Latency, *way, threads));
        let bandwidth = ways.iter().filter(move |_| of == Of::R9);
        latency.chain(bandwidth.map(move |way| (Measure::Bandwidth, *way, threads)))
    });
    sizes.chain(by_threads).collect()
}

/// A row, and the run that it is of.
#[derive(Clone, PartialEq, Debug)]
struct Found {
    measure: Measure,
    row: Row,
}

fn find(rows: &[Found], measure: Measure, way: Way, threads: u32) -> Option<&Row> {
    let is_it = |found: &&Found| {
        found.measure == measure && found.row.way == way && found.row.figures.background == threads
    };
    rows.iter().find(is_it).map(|found| &found.row)
}

/// A figure at 64 threads over that at one.
fn growth(rows: &[Found], way: Way, figure: fn(&Row) -> Option<f64>) -> Option<f64> {
    let at = |threads| find(rows, Measure::Latency, way, threads).and_then(figure);
    Some(at(64)? / at(1).filter(|one| *one > 0.0)?)
}

fn checks(rows: &[Found]) -> Vec<Check> {
    vec![
        Check::at_most(
            "read over shm, p50: 64 busy threads at the target / 1",
            RATIO_MAX,
            growth(rows, Way::Shm, Row::p50_us),
        ),
        Check::at_least(
            "the same over TCP, mean: it grows",
            GROWTH_MIN,
            growth(rows, Way::Tcp, Row::mean_us),
        ),
    ]
}

fn draw(bench: &Bench<'_>, of: Of, ways: &[Way], rows: &[Found]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let (part, bytes) = if of == Of::R9 { ("a", "64 bytes") } else { ("b", "1 byte") };
    let mut latency = by_threads(ways, rows, Measure::Latency);
    latency.title = format!("({part}) latency of reads of {bytes}");
    let panels = match of {
        Of::R9 => [latency, by_threads(ways, rows, Measure::Bandwidth)],
        Of::A1 => {
            let sizes = rows.iter().filter(|found| found.measure == Measure::Sizes);
            let sizes: Vec<Row> = sizes.map(|found| found.row.clone()).collect();
            [
                sizes::latency_panel(ways, &sizes, &[RDMA_US, IPOIB_US], "(a) by message size, idle target"),
                latency,
            ]
        }
    };
    let mut legend: Vec<_> = ways.iter().map(|way| (way.label().to_owned(), look(*way))).collect();
    legend.push(("means, dashed".to_owned(), look(Way::Tcp).ideal()));
    if of == Of::A1 {
        legend.push(("A: RDMA read, IPoIB".to_owned(), Look::PAPER));
    }
    Ok(figure::draw(&title, &panels, &legend)?)
}

fn look(way: Way) -> Look {
    sizes::look(way)
}

fn by_threads(ways: &[Way], rows: &[Found], measure: Measure) -> Panel {
    let line = |way: Way, figure: fn(&Row) -> Option<f64>, look: Look| {
        let of_way = rows.iter().filter(move |found| found.measure == measure && found.row.way == way);
        let point = |found: &Found| Some((place(found.row.figures.background), figure(&found.row)?.log10()));
        Line { look, points: of_way.filter_map(point).collect() }
    };
    let lines: Vec<Line> = match measure {
        Measure::Bandwidth => ways.iter().map(|way| line(*way, Row::mb_per_s, look(*way))).collect(),
        _ => {
            let mean = ways.iter().map(|way| line(*way, Row::mean_us, look(*way).ideal()));
            mean.chain(ways.iter().map(|way| line(*way, Row::p50_us, look(*way)))).collect()
        }
    };
    let values = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let (title, y) = match measure {
        Measure::Bandwidth => ("(b) bandwidth of reads of 64 KB", "MB/s"),
        _ => ("latency", "p50 and mean (µs)"),
    };
    Panel {
        title: title.to_owned(),
        y: Axis::powers_of_ten(y, values),
        x: Axis {
            title: "busy threads on the target's CPU".to_owned(),
            range: -0.4..7.4,
            ticks: (0..=7).map(f64::from).collect(),
            label: |place| {
                if place < 0.5 { "0".to_owned() } else { format!("{}", 1u32 << (place as u32 - 1)) }
            },
        },
        lines,
    }
}

/// Where a number of threads stands: 0, 1, 2, 4... at equal distances.
fn place(threads: u32) -> f64 {
    if threads == 0 { 0.0 } else { f64::from(threads).log2() + 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::tests::row;

    fn found(way: Way, threads: u32, us: f64) -> Found {
        Found { measure: Measure::Latency, row: row(way, 64, threads, Some(us), None) }
    }

    #[test]
    fn shm_is_to_stay_and_tcp_to_grow() {
        let rows = [
            found(Way::Shm, 1, 0.010),
            found(Way::Shm, 64, 0.011),
            found(Way::Tcp, 1, 10.0),
            found(Way::Tcp, 64, 500.0),
        ];
        let verdicts = |rows: &[Found]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&rows), ["met", "met"]);
        assert_eq!(checks(&rows)[1].measured, Some(50.0));
        assert_eq!(
            verdicts(&[found(Way::Shm, 1, 1.0), found(Way::Shm, 64, 2.0)]),
            ["MISSED", "not measured"]
        );
    }

    #[test]
    fn ways_take_turns() {
        let ways = [Way::Shm, Way::Tcp];
        let runs = plan(Of::R9, &ways, &[0, 64]);
        assert_eq!(runs[..2], [(Measure::Latency, Way::Shm, 0), (Measure::Latency, Way::Tcp, 0)]);
        assert_eq!(runs.len(), 8);
        let runs = plan(Of::A1, &ways, &[0, 64]);
        assert_eq!((runs.len(), runs[0].0), (6, Measure::Sizes));
    }

    #[test]
    fn numbers_of_threads_stand_at_equal_distances() {
        let panel = by_threads(&[Way::Shm], &[found(Way::Shm, 64, 1.0)], Measure::Latency);
        assert_eq!(panel.lines[1].points, [(7.0, 0.0)]);
        let labels: Vec<_> = panel.x.ticks.iter().map(|tick| (panel.x.label)(*tick)).collect();
        assert_eq!(labels, ["0", "1", "2", "4", "8", "16", "32", "64"]);
    }
}
