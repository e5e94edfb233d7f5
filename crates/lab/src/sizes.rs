//! R5-R8: latency and bandwidth by message size (R 4.1), one operation each.

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

/// Of one way, all sizes.
const RUN_TIME: Duration = Duration::from_secs(12);
const RUN_TIME_QUICK: Duration = Duration::from_secs(2);

/// What is measured, and what the paper's text says of it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Sized {
    /// As `perf` names it.
    pub(crate) operation: &'static str,
    /// In a sentence.
    pub(crate) describe: &'static str,
    /// What R prints.
    pub(crate) paper: Option<Paper>,
}

/// R 4.1's figures, of RDMA read and IPoIB.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Paper {
    pub(crate) polling_us: f64,
    pub(crate) events_us: f64,
    pub(crate) ipoib_us: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) ipoib_mb_per_s: f64,
}

pub(crate) const READ: Sized = Sized {
    operation: "read",
    describe: "one-sided read",
    paper: Some(Paper {
        polling_us: 11.89,
        events_us: 23.97,
        ipoib_us: 53.8,
        mb_per_s: 839.1,
        ipoib_mb_per_s: 231.0,
    }),
};
pub(crate) const SEND: Sized = Sized { operation: "send", describe: "send and receive", paper: None };
pub(crate) const WRITE: Sized = Sized { operation: "write", describe: "one-sided write", paper: None };
pub(crate) const WRITE_IMM: Sized =
    Sized { operation: "write-imm", describe: "write with immediate data", paper: None };

/// What all runs share.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    operation: &'static str,
    without_verbs: Option<String>,
    devices: Vec<String>,
}

pub(crate) fn run(bench: &mut Bench<'_>, what: Sized) -> Result<Vec<Check>> {
    let Ways { all, without_verbs } = Ways::here(bench, what.operation)?;
    let time = if bench.options.quick { RUN_TIME_QUICK } else { RUN_TIME };
    (0..2 * all.len()).for_each(|_| bench.expect_for(time));
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut rows = Vec::new();
    for measure in ["latency", "bandwidth"] {
        for &way in &all {
            let name = format!("{measure}-{}", way.name());
            bench.begin(&name);
            let mut arguments = vec![what.operation, "--sizes", "all"];
            arguments.extend((measure == "bandwidth").then_some("--bandwidth"));
            arguments.extend(bench.options.quick.then_some("--quick"));
            let found = perf::run(bench, &name, way, &arguments, time)?;
            table.rows(found.iter().map(Row::csv))?;
            rows.extend(found);
            bench.end();
        }
    }
    let checks = checks(what, &rows);
    bench.write("figure.svg", &draw(bench, what, &all, &rows)?)?;
    let machine = Machine::here();
    let devices = perf::devices(&rows);
    let settings = Settings { operation: what.operation, without_verbs, devices };
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &report::markdown(&outcome, what, &all))?;
    Ok(checks)
}

fn of(rows: &[Row], way: Way) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |row| row.way == way)
}

/// p50 in us at a size.
fn p50_us(rows: &[Row], way: Way, bytes: u64) -> Option<f64> {
    of(rows, way).filter(|row| row.figures.bytes == bytes).find_map(Row::p50_us)
}

/// The most that was moved at any size, in MB/s.
fn peak(rows: &[Row], way: Way) -> Option<f64> {
    of(rows, way).filter_map(Row::mb_per_s).reduce(f64::max)
}

/// CPU time of the target for each operation of 1 byte, of that which the operation took, in thousandths.
fn target_share(rows: &[Row], way: Way) -> Option<f64> {
    let row = of(rows, way).find(|row| row.figures.bytes == 1 && row.figures.mean_ns.is_some())?;
    row.figures.mean_ns.filter(|ns| *ns > 0.0).map(|ns| row.figures.target_cpu_ns / ns)
}

fn checks(what: Sized, rows: &[Row]) -> Vec<Check> {
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b.filter(|b| *b > 0.0)?);
    let name = what.operation;
    // R's ratio is what is to be reached where it prints one: IPoIB's over polling.
    let (latency_min, rate_min) = what.paper.map_or((1.0, 1.0), |paper| {
        let rounded = |ratio: f64| (ratio * 10.0).floor() / 10.0;
        (rounded(paper.ipoib_us / paper.polling_us), rounded(paper.mb_per_s / paper.ipoib_mb_per_s))
    });
    let mut checks = vec![
        Check::at_least(
            format!("{name} of 1 byte, p50: TCP / shm"),
            latency_min,
            ratio(p50_us(rows, Way::Tcp, 1), p50_us(rows, Way::Shm, 1)),
        ),
        Check::at_least(
            format!("{name}, most bytes a second at any size: shm / TCP"),
            rate_min,
            ratio(peak(rows, Way::Shm), peak(rows, Way::Tcp)),
        ),
    ];
    if what == READ || what == WRITE {
        checks.push(Check::at_most(
            format!(
                "{name} of 1 byte over shm: CPU time of the target / time of the operation (\"negligible\")"
            ),
            0.05,
            target_share(rows, Way::Shm),
        ));
    }
    checks
}

/// How a way is drawn.
pub(crate) fn look(way: Way) -> Look {
    match way {
        Way::Shm => Look::OURS,
        Way::Tcp => Look::BASELINE,
        Way::VerbsPolling => Look::THIRD,
        Way::VerbsEvents => Look::FOURTH,
    }
}

fn draw(bench: &Bench<'_>, what: Sized, ways: &[Way], rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let mut legend: Vec<_> = ways.iter().map(|way| (way.label().to_owned(), look(*way))).collect();
    if what.paper.is_some() {
        legend.push(("R: RDMA by polling, by events, and IPoIB".to_owned(), Look::PAPER));
    }
    Ok(figure::draw(&title, &panels(what, ways, rows), &legend)?)
}

fn panels(what: Sized, ways: &[Way], rows: &[Row]) -> [Panel; 2] {
    let (mut points, mut peaks) = (Vec::new(), Vec::new());
    if let Some(Paper { polling_us, events_us, ipoib_us, mb_per_s, ipoib_mb_per_s }) = what.paper {
        points.extend([polling_us, events_us, ipoib_us]);
        peaks.extend([mb_per_s, ipoib_mb_per_s].map(level));
    }
    peaks.extend(lines(ways, rows, Row::mb_per_s));
    [
        latency_panel(ways, rows, &points, "(a) latency, p50"),
        panel(
            if what.paper.is_some() {
                "(b) bandwidth, windows of 16; dashed: R's RDMA and IPoIB"
            } else {
                "(b) bandwidth, windows of 16"
            },
            "MB/s",
            peaks,
        ),
    ]
}

/// Latency by size, with a paper's values of 1 byte.
pub(crate) fn latency_panel(ways: &[Way], rows: &[Row], paper: &[f64], title: &str) -> Panel {
    let at_one = |us: &f64| Line { look: Look::PAPER, points: vec![(0.0, us.log10())] };
    let mut all = lines(ways, rows, Row::p50_us);
    all.extend(paper.iter().map(at_one));
    panel(title, "p50 (µs)", all)
}

/// A value of a paper that is of no size that it names.
fn level(value: f64) -> Line {
    let y = value.log10();
    Line { look: Look::PAPER.ideal(), points: vec![(-0.5, y), (20.5, y)] }
}

fn lines(ways: &[Way], rows: &[Row], value: fn(&Row) -> Option<f64>) -> Vec<Line> {
    let line = |way: &Way| {
        let point = |row: &Row| Some(((row.figures.bytes as f64).log2(), value(row)?.log10()));
        Line { look: look(*way), points: of(rows, *way).filter_map(point).collect() }
    };
    ways.iter().map(line).collect()
}

fn panel(title: &str, y: &str, lines: Vec<Line>) -> Panel {
    let values = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let (x, y) = (Axis::bytes("message size (bytes)"), Axis::powers_of_ten(y, values));
    Panel { title: title.to_owned(), x, y, lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::tests::row;

    fn rows() -> Vec<Row> {
        vec![
            row(Way::Shm, 1, 0, Some(0.1), None),
            row(Way::Tcp, 1, 0, Some(10.0), None),
            row(Way::Shm, 1 << 20, 0, None, Some(8e9)),
            row(Way::Tcp, 1 << 20, 0, None, Some(2e9)),
            row(Way::Tcp, 1 << 19, 0, None, Some(4e9)),
        ]
    }

    #[test]
    fn ratios_of_the_paper_are_to_be_reached() {
        let checks = checks(READ, &rows());
        assert_eq!(checks[0].target, "at least 4.5");
        assert_eq!(checks[1].target, "at least 3.6");
        let verdicts: Vec<_> = checks.iter().map(Check::verdict).collect();
        assert_eq!(verdicts, ["met", "MISSED", "met"]);
        assert_eq!(checks[1].measured, Some(2.0), "the peaks count");
        let without: Vec<_> = super::checks(SEND, &[]).iter().map(Check::verdict).collect();
        assert_eq!(without, ["not measured", "not measured"]);
    }

    #[test]
    fn axes_are_logarithms() {
        let [latency, bandwidth] = panels(READ, &[Way::Shm, Way::Tcp], &rows());
        assert_eq!(latency.lines[1].points, [(0.0, 1.0)]);
        assert_eq!((latency.y.label)(-1.0), "0.1");
        assert_eq!((bandwidth.x.label)(20.0), "1M");
        assert_eq!(bandwidth.lines[3].points.len(), 2, "behind the paper's");
        assert_eq!(latency.lines[2].points, [(0.0, 11.89f64.log10())]);
    }
}
