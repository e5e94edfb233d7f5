//! R5-R8: latency and bandwidth by message size (Balaji et al. 2004, 4.1), one operation each.

mod report;

use std::time::Duration;

use serde::Serialize;
use sidelong_figure::{Axis, Line, Panel, Style};

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::perf::{self, Measurement, TableLine, Way, Ways};
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};

/// Planned time for all sizes over one fabric.
const RUN_TIME: Duration = Duration::from_secs(12);
const RUN_TIME_QUICK: Duration = Duration::from_secs(2);

/// The operation, and what the paper's text says about it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Sized {
    /// The name for `perf`.
    pub(crate) operation: &'static str,
    /// The name in a sentence.
    pub(crate) describe: &'static str,
    /// The figures that the paper prints.
    pub(crate) paper: Option<Paper>,
}

/// Figures of Balaji et al. 2004, 4.1, of RDMA read and IPoIB.
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

/// One operation over all fabrics of this machine.
#[derive(Serialize)]
struct Sizes {
    #[serde(flatten)]
    what: Sized,
    #[serde(flatten)]
    ways: Ways,
    #[serde(skip)]
    quick: bool,
}

pub(crate) fn run(bench: &mut Bench<'_>, what: Sized) -> Result<Conclusion> {
    let ways = Ways::here(bench, what.operation)?;
    study::run(bench, Sizes { what, ways, quick: bench.options.quick })
}

impl Study for Sizes {
    type Row = Measurement;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        vec![if self.quick { RUN_TIME_QUICK } else { RUN_TIME }; 2 * self.ways.all.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Sizes>) -> Result<()> {
        let time = self.plan()[0];
        for measure in ["latency", "bandwidth"] {
            for &way in &self.ways.all {
                let name = bench.name(format!("{measure}-{}", way.name()));
                bench.begin(&name);
                let mut arguments = vec![self.what.operation, "--sizes", "all"];
                arguments.extend((measure == "bandwidth").then_some("--bandwidth"));
                arguments.extend(self.quick.then_some("--quick"));
                for row in perf::run(bench, &name, way, &arguments, time)? {
                    rows.push(self, row)?;
                }
                bench.end();
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Measurement) -> Vec<TableLine> {
        vec![row.line()]
    }

    fn bounds(&self, row: &Measurement) -> Vec<Bound> {
        row.bounds()
    }

    fn checks(&self, rows: &[Measurement]) -> Vec<Check> {
        checks(self.what, rows)
    }

    fn draw(&self, rows: &[Measurement]) -> Drawing {
        let Sizes { what, ways, .. } = self;
        let mut legend: Vec<_> = ways.all.iter().map(|way| (way.label().to_owned(), style(*way))).collect();
        if what.paper.is_some() {
            legend.push(("the paper: RDMA by polling, by events, and IPoIB".to_owned(), Style::PAPER));
        }
        Drawing {
            panels: panels(*what, &ways.all, rows).into(),
            legend,
            dashed: Some("the paper at any size: RDMA, IPoIB"),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Measurement], story: &mut Story) {
        report::tell(self, rows, story);
    }
}

fn of(rows: &[Measurement], way: Way) -> impl Iterator<Item = &Measurement> {
    rows.iter().filter(move |row| row.way == way)
}

/// The p50 in us at a size.
fn p50_us(rows: &[Measurement], way: Way, bytes: u64) -> Option<f64> {
    of(rows, way).filter(|row| row.figures.bytes == bytes).find_map(Measurement::p50_us)
}

/// The highest bandwidth at any size, in MB/s.
fn peak(rows: &[Measurement], way: Way) -> Option<f64> {
    of(rows, way).filter_map(Measurement::mb_per_s).reduce(f64::max)
}

/// The target's CPU time for an operation of 1 byte, in thousandths of the operation's time.
fn target_share(rows: &[Measurement], way: Way) -> Option<f64> {
    let row = of(rows, way).find(|row| row.figures.bytes == 1 && row.mean_us().is_some())?;
    row.mean_us().filter(|us| *us > 0.0).and_then(|us| Some(row.target_cpu_us()? / us))
}

fn checks(what: Sized, rows: &[Measurement]) -> Vec<Check> {
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b.filter(|b| *b > 0.0)?);
    let name = what.operation;
    // The target is the paper's ratio if it prints one: IPoIB over polling.
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

/// The style of a fabric's line.
pub(crate) fn style(way: Way) -> Style {
    match way {
        Way::Shm => Style::OURS,
        Way::Tcp => Style::BASELINE,
        Way::VerbsPolling => Style::THIRD,
        Way::VerbsEvents => Style::FOURTH,
    }
}

fn panels(what: Sized, ways: &[Way], rows: &[Measurement]) -> [Panel; 2] {
    let (mut points, mut peaks) = (Vec::new(), Vec::new());
    if let Some(Paper { polling_us, events_us, ipoib_us, mb_per_s, ipoib_mb_per_s }) = what.paper {
        points.extend([polling_us, events_us, ipoib_us]);
        peaks.extend([mb_per_s, ipoib_mb_per_s].map(level));
    }
    peaks.extend(lines(ways, rows, Measurement::mb_per_s));
    [
        latency_panel(ways, rows, &points, "(a) latency, p50"),
        panel("(b) bandwidth, windows of 16", "MB/s", peaks),
    ]
}

/// Latency by size, with a paper's values for 1 byte.
pub(crate) fn latency_panel(ways: &[Way], rows: &[Measurement], paper: &[f64], title: &str) -> Panel {
    let at_one = |us: &f64| Line::new(Style::PAPER, vec![(0.0, us.log10())]);
    let mut all = lines(ways, rows, Measurement::p50_us);
    all.extend(paper.iter().map(at_one));
    panel(title, "p50 (µs)", all)
}

/// A published value for which the paper names no size.
fn level(value: f64) -> Line {
    let y = value.log10();
    Line::new(Style::PAPER.ideal(), vec![(-0.5, y), (20.5, y)])
}

fn lines(ways: &[Way], rows: &[Measurement], value: fn(&Measurement) -> Option<f64>) -> Vec<Line> {
    let line = |way: &Way| {
        let point = |row: &Measurement| Some(((row.figures.bytes as f64).log2(), value(row)?.log10()));
        Line::new(style(*way), of(rows, *way).filter_map(point).collect())
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

    fn rows() -> Vec<Measurement> {
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
