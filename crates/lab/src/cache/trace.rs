//! K6: how often eight caches that are one miss, beside one cache of as much memory, and beside eight that know nothing of each other.
//!
//! A cache has 8 MiB at least, which is more than the tenth of a trace's footprint. So sizes are multiplied until it is that.

mod play;

use std::time::Duration;

use serde::Serialize;

use super::demand::{self, Demand};
use crate::bench::Bench;
use crate::check::Check;
use crate::cpus;
use crate::drawing::{Drawing, legend};
use crate::error::Result;
use crate::figure::{Axis, Line, Panel, Style};
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use play::Counts;

/// Caches, and the memory of each in MiB.
const CACHES: u16 = 8;
const MEMORY_MIB: u32 = 8;
/// The part of the footprint that all of them have.
const PART: f64 = 0.1;
/// Requests of a trace, of which the first fifth is not counted.
const REQUESTS: [usize; 2] = [2_000_000, 200_000];
const WARMUP_PART: usize = 5;
/// About how long they take, for each.
const REQUEST: Duration = Duration::from_micros(20);

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum System {
    /// One cache, by LRU.
    Unified,
    /// Caches that know nothing of each other, by LRU.
    Separate,
    /// A cluster by LRU, SIEVE and S3-FIFO.
    Lru,
    Sieve,
    #[serde(rename = "s3-fifo")]
    S3Fifo,
}

impl System {
    const ALL: [System; 5] = [System::Unified, System::Separate, System::Lru, System::Sieve, System::S3Fifo];

    const fn name(self) -> &'static str {
        match self {
            System::Unified => "one cache, LRU",
            System::Separate => "eight by themselves, LRU",
            System::Lru => "eight that are one, LRU",
            System::Sieve => "eight that are one, SIEVE",
            System::S3Fifo => "eight that are one, S3-FIFO",
        }
    }

    /// The same in a word.
    const fn word(self) -> &'static str {
        match self {
            System::Unified => "unified",
            System::Separate => "separate",
            System::Lru => "lru",
            System::Sieve => "sieve",
            System::S3Fifo => "s3-fifo",
        }
    }

    const fn style(self) -> Style {
        match self {
            System::Unified => Style::BASELINE,
            System::Separate => Style::THIRD,
            System::Lru => Style::FOURTH,
            System::Sieve => Style::OURS,
            System::S3Fifo => Style::FIFTH,
        }
    }

    /// Its rule, as a cache is told.
    const fn eviction(self) -> &'static str {
        match self {
            System::Unified | System::Separate | System::Lru => "lru",
            System::Sieve => "sieve",
            System::S3Fifo => "s3-fifo",
        }
    }
}

/// The figures of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    system: System,
    requests: u64,
    miss_rate: f64,
    /// Items that no cache would store.
    failed: u64,
}

impl Row {
    fn new(system: System, counts: Counts) -> Row {
        let Counts { requests, misses, failed } = counts;
        Row { system, requests, miss_rate: misses as f64 / requests.max(1) as f64, failed }
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    system: System,
    requests: u64,
    miss_rate: Fixed<5>,
    failed: u64,
}

/// Settings that all runs share.
#[derive(Serialize)]
struct Misses {
    requests: usize,
    caches: u16,
    memory_mib: u32,
    part: f64,
    #[serde(serialize_with = "demand::name")]
    demand: Demand,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let requests = REQUESTS[usize::from(bench.options.quick)];
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    let memory_bytes = (u64::from(CACHES) * u64::from(MEMORY_MIB)) << 20;
    let demand = Demand::find(bench, requests, Some(memory_bytes as f64 / PART))?;
    study::run(bench, Misses { requests, caches: CACHES, memory_mib: MEMORY_MIB, part: PART, demand })
}

impl Study for Misses {
    type Row = Row;
    type Line = TableLine;

    /// Misses are judged.
    const NEEDS_THE_MACHINE: bool = false;

    fn plan(&self) -> Vec<Duration> {
        vec![REQUEST * self.demand.requests.len() as u32; System::ALL.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Misses>) -> Result<()> {
        for system in System::ALL {
            let name = bench.name(system.word());
            bench.begin(&name);
            let counts = play::play(bench, &name, system, &self.demand)?;
            rows.push(self, Row::new(system, counts))?;
            bench.end();
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { system, requests, miss_rate, failed } = *row;
        vec![TableLine { system, requests, miss_rate: Fixed(miss_rate), failed }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("{}: {what}", row.system.name());
        vec![
            Bound::share(of("misses"), row.miss_rate),
            Bound::new(of("items that were not stored"), row.failed as f64, 0.0..=0.0),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(self.demand.is_real, rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let line = |(at, system): (u32, System)| {
            let point = find(rows, system).map(|row| (f64::from(at), 100.0 * row.miss_rate));
            Line::new(system.style().bars(), point.into_iter().collect())
        };
        let lines: Vec<_> = (1..).zip(System::ALL).map(line).collect();
        Drawing {
            panels: vec![Panel {
                title: format!(
                    "{}: misses with {:.0} % of the footprint",
                    self.demand.name,
                    100.0 * self.part
                ),
                x: Axis { label: system_at, ..Axis::counting("caches", System::ALL.len() as u32) },
                y: Axis::from_zero("of the requests, %", lines.iter().map(Line::most).fold(0.0, f64::max)),
                lines,
            }],
            legend: legend(System::ALL.map(|system| (system.name(), system.style().bars()))),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        story.paragraph(&format!(
            "Eight caches of {MEMORY_MIB} MiB, as one cluster and as eight by themselves, and one cache of the memory of all. A client asks \
             for the objects of a trace in its order, one cache after the other, and stores what is not there. All memory is {:.0} % of the \
             footprint of the trace's objects, whose sizes are multiplied to that end; the tables of the caches are part of it.",
            100.0 * self.part,
        ));
        story.checks();
        story.heading("Measured");
        let columns = ["", "requests", "misses, %", "misses / one cache, LRU"];
        let cells = |row: &Row| {
            vec![
                row.system.name().to_owned(),
                row.requests.to_string(),
                number(Some(100.0 * row.miss_rate), 2),
                number(ratio(rows, row.system), 3),
            ]
        };
        story.table(&columns, rows.iter().map(cells));
        story.how(&format!(
            "The trace is {}, its first {} requests, of which the first fifth is not counted; its sizes are multiplied by {:.1}. The client \
             asks for up to {} different keys at once.",
            self.demand.name,
            self.demand.requests.len(),
            self.demand.factor,
            play::AT_ONCE,
        ));
    }
}

fn system_at(at: f64) -> String {
    Axis::counted(&System::ALL, at).map_or(String::new(), |system| system.word().into())
}

fn checks(is_real: bool, rows: &[Row]) -> Vec<Check> {
    let check = |system: System, most: f64| {
        let what = format!("misses, {} / {}, of a real trace", system.name(), System::Unified.name());
        Check::at_most(what, most, ratio(rows, system).filter(|_| is_real))
    };
    vec![check(System::Lru, 1.12), check(System::Sieve, 1.0)]
}

/// Misses of a system beside those of one cache.
fn ratio(rows: &[Row], system: System) -> Option<f64> {
    let misses = |system| find(rows, system).map(|row| row.miss_rate);
    Some(misses(system)? / misses(System::Unified).filter(|rate| *rate > 0.0)?)
}

fn find(rows: &[Row], system: System) -> Option<&Row> {
    rows.iter().find(|row| row.system == system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_trace_is_judged_beside_one_cache() {
        let row = |system, misses| Row::new(system, Counts { requests: 1000, misses, failed: 0 });
        let rows = [row(System::Unified, 250), row(System::Lru, 280), row(System::Sieve, 250)];
        let verdicts =
            |is_real, rows: &[Row]| checks(is_real, rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(true, &rows), ["met"; 2]);
        let worse = [row(System::Unified, 249), row(System::Lru, 280), row(System::Sieve, 250)];
        assert_eq!(verdicts(true, &worse), ["MISSED"; 2]);
        assert_eq!(verdicts(false, &rows), ["not measured"; 2]);
    }
}
