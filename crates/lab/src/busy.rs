//! R9 and A1: one-sided and two-sided operations on a busy target (Balaji et al. 2004, 4.2; Lai et al. 2008, "Performance
//! of RDMA read and IPoIB").
//!
//! A two-sided operation waits for its turn on the target's CPU, the longer the more threads want it. A one-sided operation
//! does not wait.

mod report;

use std::time::Duration;

use serde::Serialize;
use sidelong_figure::{Axis, Line, Panel, Style};

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::perf::{self, Measurement, TableLine, Way, Ways};
use crate::sizes;
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};

/// Numbers of busy threads.
const THREADS: &[u32] = &[0, 1, 2, 4, 8, 16, 32, 64];
const THREADS_QUICK: &[u32] = &[0, 1, 64];
/// Target for the p50 at 64 threads over the p50 at one.
const RATIO_MAX: f64 = 1.2;
/// A figure has grown if its ratio is above this.
const GROWTH_MIN: f64 = RATIO_MAX;
const RUN_TIME: Duration = Duration::from_secs(5);
const RUN_TIME_QUICK: Duration = Duration::from_secs(2);
/// Published by Lai et al. 2008 for reads of 1 byte from an idle target.
const RDMA_US: f64 = 5.2;
const IPOIB_US: f64 = 18.9;
const SIZES_TIME: Duration = Duration::from_secs(12);

/// The paper whose figures are measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) enum Of {
    /// Balaji et al. 2004, Figure 9: latency and bandwidth by busy threads.
    R9,
    /// Lai et al. 2008: latency by size on an idle target, and by busy threads.
    A1,
}

impl Of {
    /// Bytes of the reads whose latency is measured: 64 for a load record, 1 for the "1 Byte message" of the slides.
    const fn bytes(self) -> &'static str {
        match self {
            Of::R9 => "64",
            Of::A1 => "1",
        }
    }
}

/// Settings that all runs share.
#[derive(Serialize)]
struct Busy {
    #[serde(skip)]
    of: Of,
    #[serde(skip)]
    quick: bool,
    #[serde(skip)]
    ways: Vec<Way>,
    threads: &'static [u32],
    without_verbs: Option<String>,
}

/// What a run measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Measure {
    Latency,
    Bandwidth,
    Sizes,
}

pub(crate) fn run(bench: &mut Bench<'_>, of: Of) -> Result<Conclusion> {
    let Ways { all: ways, without_verbs } = Ways::here(bench, "read")?;
    let quick = bench.options.quick;
    let threads = if quick { THREADS_QUICK } else { THREADS };
    study::run(bench, Busy { of, quick, ways, threads, without_verbs })
}

impl Busy {
    fn time(&self) -> Duration {
        if self.quick { RUN_TIME_QUICK } else { RUN_TIME }
    }
}

impl Study for Busy {
    type Row = Found;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        let time = |(measure, ..): (Measure, Way, u32)| {
            if measure == Measure::Sizes { SIZES_TIME } else { self.time() }
        };
        plan(self.of, &self.ways, self.threads).into_iter().map(time).collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Busy>) -> Result<()> {
        for (measure, way, threads) in plan(self.of, &self.ways, self.threads) {
            let count = threads.to_string();
            let mut arguments = vec!["read"];
            let name = match measure {
                Measure::Sizes => {
                    arguments.extend(["--sizes", "all"]);
                    format!("sizes-{}", way.name())
                }
                Measure::Latency => {
                    arguments.extend(["--size", self.of.bytes(), "--background", &count]);
                    format!("latency-{threads}-{}", way.name())
                }
                Measure::Bandwidth => {
                    arguments.extend(["--size", "64K", "--bandwidth", "--background", &count]);
                    format!("bandwidth-{threads}-{}", way.name())
                }
            };
            arguments.extend(self.quick.then_some("--quick"));
            let name = bench.name(name);
            bench.begin(&name);
            for row in perf::run(bench, &name, way, &arguments, self.time())? {
                rows.push(self, Found { measure, row })?;
            }
            bench.end();
        }
        Ok(())
    }

    fn lines(&self, found: &Found) -> Vec<TableLine> {
        vec![found.row.line()]
    }

    fn bounds(&self, found: &Found) -> Vec<Bound> {
        found.row.bounds()
    }

    fn checks(&self, rows: &[Found]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Found]) -> Drawing {
        draw(self.of, &self.ways, rows)
    }

    fn tell(&self, rows: &[Found], story: &mut Story) {
        report::tell(self, rows, story);
    }
}

/// The fabrics take turns, so that a drift of the machine affects all of them.
fn plan(of: Of, ways: &[Way], threads: &[u32]) -> Vec<(Measure, Way, u32)> {
    let sizes = ways.iter().filter(|_| of == Of::A1).map(|way| (Measure::Sizes, *way, 0));
    let by_threads = threads.iter().flat_map(|&threads| {
        let latency = ways.iter().map(move |way| (Measure::Latency, *way, threads));
        let bandwidth = ways.iter().filter(move |_| of == Of::R9);
        latency.chain(bandwidth.map(move |way| (Measure::Bandwidth, *way, threads)))
    });
    sizes.chain(by_threads).collect()
}

/// A measurement and the kind of run that made it.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Found {
    #[serde(skip)]
    measure: Measure,
    #[serde(flatten)]
    row: Measurement,
}

fn find(rows: &[Found], measure: Measure, way: Way, threads: u32) -> Option<&Measurement> {
    let is_it = |found: &&Found| {
        found.measure == measure && found.row.way == way && found.row.figures.background == threads
    };
    rows.iter().find(is_it).map(|found| &found.row)
}

/// The ratio of a figure at 64 threads to the same at one.
fn growth(rows: &[Found], way: Way, figure: fn(&Measurement) -> Option<f64>) -> Option<f64> {
    let at = |threads| find(rows, Measure::Latency, way, threads).and_then(figure);
    Some(at(64)? / at(1).filter(|one| *one > 0.0)?)
}

fn checks(rows: &[Found]) -> Vec<Check> {
    vec![
        Check::at_most(
            "read over shm, p50: 64 busy threads at the target / 1",
            RATIO_MAX,
            growth(rows, Way::Shm, Measurement::p50_us),
        ),
        Check::at_least(
            "the same over TCP, mean: it grows",
            GROWTH_MIN,
            growth(rows, Way::Tcp, Measurement::mean_us),
        ),
    ]
}

fn draw(of: Of, ways: &[Way], rows: &[Found]) -> Drawing {
    let (part, bytes) = if of == Of::R9 { ("a", "64 bytes") } else { ("b", "1 byte") };
    let mut latency = by_threads(ways, rows, Measure::Latency);
    latency.title = format!("({part}) latency of reads of {bytes}");
    let panels = match of {
        Of::R9 => [latency, by_threads(ways, rows, Measure::Bandwidth)],
        Of::A1 => {
            let sizes = rows.iter().filter(|found| found.measure == Measure::Sizes);
            let sizes: Vec<Measurement> = sizes.map(|found| found.row.clone()).collect();
            [
                sizes::latency_panel(ways, &sizes, &[RDMA_US, IPOIB_US], "(a) by message size, idle target"),
                latency,
            ]
        }
    };
    let mut legend: Vec<_> = ways.iter().map(|way| (way.label().to_owned(), style(*way))).collect();
    if of == Of::A1 {
        legend.push(("Lai et al. 2008: RDMA read, IPoIB".to_owned(), Style::PAPER));
    }
    Drawing { panels: panels.into(), legend, dashed: Some("mean"), ..Drawing::default() }
}

fn style(way: Way) -> Style {
    sizes::style(way)
}

fn by_threads(ways: &[Way], rows: &[Found], measure: Measure) -> Panel {
    let line = |way: Way, figure: fn(&Measurement) -> Option<f64>, style: Style| {
        let of_way = rows.iter().filter(move |found| found.measure == measure && found.row.way == way);
        let point = |found: &Found| Some((place(found.row.figures.background), figure(&found.row)?.log10()));
        Line::new(style, of_way.filter_map(point).collect())
    };
    let lines: Vec<Line> = match measure {
        Measure::Bandwidth => ways.iter().map(|way| line(*way, Measurement::mb_per_s, style(*way))).collect(),
        _ => {
            let mean = ways.iter().map(|way| line(*way, Measurement::mean_us, style(*way).ideal()));
            mean.chain(ways.iter().map(|way| line(*way, Measurement::p50_us, style(*way)))).collect()
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
            names: Vec::new(),
        },
        lines,
    }
}

/// The x position of a number of threads: 0, 1, 2, 4... stand at equal distances.
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
