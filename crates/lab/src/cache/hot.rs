//! K3: what a key that everybody asks for costs its home, if it is asked for through another cache.
//!
//! The client sends gets by 32, as many clients would. So there is no time in which the caches wait for it.

mod stage;

use std::time::Duration;

use serde::Serialize;

use super::client::Asked;
use crate::bench::Bench;
use crate::check::Check;
use crate::cpus;
use crate::drawing::{Drawing, legend};
use crate::error::Result;
use crate::figure::{Axis, Line, Panel, Style};
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use stage::{SETTLE, Stage};

/// Rounds, and the duration of a turn of each way.
const ROUNDS: [u32; 2] = [5, 5];
const TIMES: [Duration; 2] = [Duration::from_secs(4), Duration::from_millis(600)];
/// Bytes of the key's value.
const VALUE_BYTES: usize = 1024;
/// How old copies may be.
const FRESH: Duration = Duration::from_millis(100);
/// Gets that are under way.
const PIPELINED: u32 = 32;

/// How the cache that is asked comes by the item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// It is its home.
    Own,
    /// It reads the home's memory.
    Memory,
    /// It asks the home, over TCP.
    Asked,
    /// It gives a copy, and asks the home when that is too old.
    Copies,
}

impl Way {
    const ALL: [Way; 4] = [Way::Own, Way::Memory, Way::Asked, Way::Copies];

    const fn name(self) -> &'static str {
        match self {
            Way::Own => "own item",
            Way::Memory => "home's memory",
            Way::Asked => "home asked over TCP",
            Way::Copies => "copies",
        }
    }

    const fn style(self) -> Style {
        match self {
            Way::Own => Style::THIRD,
            Way::Memory => Style::FIFTH,
            Way::Asked => Style::BASELINE,
            Way::Copies => Style::OURS,
        }
    }
}

/// The figures of one turn.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// The round, from 1.
    round: u32,
    way: Way,
    gets_per_s: f64,
    /// CPU time of the cache that is asked, for each get.
    cpu_us: f64,
    /// The same of the key's home; of the idle other cache if that is asked itself.
    home_cpu_us: f64,
    /// Answers that lacked the item.
    misses: u64,
}

impl Row {
    /// `cpu` is the CPU time of the cache that is asked, and of the other.
    fn new(round: u32, way: Way, asked: &Asked, cpu: [Duration; 2]) -> Row {
        let gets = asked.took_us.len() as f64 * f64::from(PIPELINED);
        let [cpu_us, home_cpu_us] = cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / gets);
        let gets_per_s = gets / asked.time.as_secs_f64();
        Row { round, way, gets_per_s, cpu_us, home_cpu_us, misses: asked.misses }
    }

    fn cpus(&self) -> f64 {
        (self.cpu_us + self.home_cpu_us) * self.gets_per_s / 1e6
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    round: u32,
    way: Way,
    gets_per_s: Fixed<0>,
    cpu_us: Fixed<3>,
    home_cpu_us: Fixed<4>,
    misses: u64,
}

/// Settings that all turns share.
#[derive(Serialize)]
struct Hot {
    turn_s: f64,
    value_bytes: usize,
    fresh_ms: f64,
    pipelined: u32,
    #[serde(skip)]
    time: Duration,
    /// The caches, which run from the first round.
    #[serde(skip)]
    stage: Option<Stage>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let time = TIMES[usize::from(bench.options.quick)];
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    study::run(
        bench,
        Hot {
            turn_s: time.as_secs_f64(),
            value_bytes: VALUE_BYTES,
            fresh_ms: FRESH.as_secs_f64() * 1e3,
            pipelined: PIPELINED,
            time,
            stage: None,
        },
    )
}

impl Study for Hot {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        vec![(self.time + SETTLE) * Way::ALL.len() as u32]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Hot>) -> Result<()> {
        let round = bench.repetition;
        if self.stage.is_none() {
            self.stage = Some(Stage::set(bench)?);
        }
        let stage = self.stage.as_ref().expect("it is set");
        bench.begin(&format!("round-{round}"));
        let mut ways = Way::ALL;
        // The order alternates.
        if round.is_multiple_of(2) {
            ways.reverse();
        }
        for way in ways {
            bench.go_on()?;
            let (asked, cpu) = stage.turn(way, self.time)?;
            rows.push(self, Row::new(round, way, &asked, cpu))?;
        }
        bench.end();
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { round, way, gets_per_s, cpu_us, home_cpu_us, misses } = *row;
        vec![TableLine {
            round,
            way,
            gets_per_s: Fixed(gets_per_s),
            cpu_us: Fixed(cpu_us),
            home_cpu_us: Fixed(home_cpu_us),
            misses,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("round {}, {}: {what}", row.round, row.way.name());
        vec![
            // All caches are held to one CPU, whose time the kernel counts in ticks.
            Bound::new(of("CPUs in use"), row.cpus(), 0.0..=1.1),
            Bound::new(of("gets that found nothing"), row.misses as f64, 0.0..=0.0),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let panel = |title: &str, y: &str, figure: fn(&Row) -> f64| {
            let line = |(at, way): (u32, Way)| {
                let point = find(rows, way).map(|row| (f64::from(at), figure(row)));
                Line::new(way.style().bars(), point.into_iter().collect())
            };
            let lines: Vec<_> = (1..).zip(Way::ALL).map(line).collect();
            Panel {
                title: title.to_owned(),
                x: Axis {
                    label: way_at,
                    ..Axis::counting("where the item comes from", Way::ALL.len() as u32)
                },
                y: Axis::from_zero(y, lines.iter().map(Line::most).fold(0.0, f64::max)),
                lines,
            }
        };
        Drawing {
            panels: vec![
                panel("gets of one key", "gets/s", |row| row.gets_per_s),
                panel("what a get costs the cache that is asked", "CPU time, µs", |row| row.cpu_us),
                panel("and the key's home", "CPU time, µs", |row| row.home_cpu_us),
            ],
            legend: legend(Way::ALL.map(|way| (way.name(), way.style().bars()))),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        story.paragraph(&format!(
            "Two caches of a cluster share one CPU. A client on another CPU asks the first over loopback for one key of {VALUE_BYTES} \
             bytes, {PIPELINED} gets at a time. Its home is the second cache, except where the item is the first's own.",
        ));
        story.checks();
        story.heading("Measured");
        let columns = [
            "",
            "gets/s",
            "CPU of the cache that is asked, µs a get",
            "CPU of the home, ms for a million gets",
            "beyond what it takes idle",
        ];
        let cells = |row: &Row| {
            vec![
                row.way.name().to_owned(),
                number(Some(row.gets_per_s), 0),
                number(Some(row.cpu_us), 3),
                number(Some(row.home_cpu_us * 1e3), 2),
                number(home_ms(rows, row.way), 2),
            ]
        };
        story.table(&columns, Way::ALL.iter().filter_map(|way| find(rows, *way)).map(cells));
        story.how(&format!(
            "In each round a turn of {} s for each way, the order alternating, by one client with one connection; the caches whose turn \
             it is not are stopped. Copies may be {} ms old. CPU time is counted until {} s after a turn. What the home takes idle is \
             what the second cache takes while the first is asked for its own item.",
            self.turn_s,
            self.fresh_ms,
            SETTLE.as_secs_f64(),
        ));
    }
}

fn way_at(at: f64) -> String {
    Axis::counted(&Way::ALL, at).map_or(String::new(), |way| way.name().into())
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let of_home = |way: Way| {
        let what = format!(
            "{}: CPU time of the home beyond what it takes idle, ms for a million gets through another cache, median of the rounds",
            way.name()
        );
        Check::at_most(what, 10.0, home_ms(rows, way))
    };
    let all = |way| find(rows, way).map(|row| row.cpu_us + row.home_cpu_us);
    let ratio = || Some(all(Way::Copies)? / all(Way::Asked).filter(|to| *to > 0.0)?);
    let what = "CPU time of both caches for a get, copies / home asked over TCP, median of the rounds";
    vec![of_home(Way::Memory), of_home(Way::Copies), Check::at_most(what, 0.5, ratio())]
}

/// CPU time that a million gets through the other cache cost the home, in ms: what it takes beyond that of the idle cache in the
/// same time.
fn home_ms(rows: &[Row], way: Way) -> Option<f64> {
    let (idle, row) = (find(rows, Way::Own)?, find(rows, way)?);
    let idle_us = idle.home_cpu_us * idle.gets_per_s / row.gets_per_s;
    (way != Way::Own).then(|| (row.home_cpu_us - idle_us).max(0.0) * 1e3)
}

fn find(rows: &[Row], way: Way) -> Option<&Row> {
    rows.iter().find(|row| row.way == way)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |way: Way, gets_per_s, cpu_us, home_cpu_us| Row {
            round: 1,
            way,
            gets_per_s,
            cpu_us,
            home_cpu_us,
            misses: 0,
        };
        vec![
            row(Way::Own, 500e3, 2.0, 0.001),
            // In twice the time it takes twice as much idle.
            row(Way::Memory, 250e3, 4.0, 0.012),
            row(Way::Asked, 125e3, 6.0, 2.0),
            row(Way::Copies, 500e3, 3.989, 0.011),
        ]
    }

    #[test]
    fn each_way_is_judged_by_what_it_costs_the_home() {
        let verdicts = |rows: &[Row]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&rows()), ["met"; 3]);
        let changed = |way: Way, change: fn(&mut Row)| {
            let mut rows = rows();
            change(rows.iter_mut().find(|row| row.way == way).unwrap());
            let missed = verdicts(&rows).into_iter().enumerate().filter(|(_, verdict)| *verdict == "MISSED");
            missed.map(|(at, _)| at).collect::<Vec<_>>()
        };
        assert_eq!(changed(Way::Memory, |row| row.home_cpu_us = 0.0121), [0]);
        assert_eq!(changed(Way::Copies, |row| row.home_cpu_us = 0.0112), [1, 2]);
        assert_eq!(changed(Way::Asked, |row| row.home_cpu_us = 1.9), [2]);
        assert_eq!(home_ms(&rows(), Way::Own), None);
    }

    #[test]
    fn a_row_counts_gets_and_not_requests() {
        let asked = Asked { took_us: vec![10.0; 100], misses: 0, time: Duration::from_millis(32) };
        let row = Row::new(1, Way::Asked, &asked, [Duration::from_micros(6400), Duration::from_micros(3200)]);
        assert_eq!((row.gets_per_s, row.cpu_us, row.home_cpu_us), (100e3, 2.0, 1.0));
    }
}
