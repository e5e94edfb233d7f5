//! K4: what a get of a neighbour's item takes while its home's CPU is busy, or the home is stopped; and a get from memcached on such a
//! CPU.
//!
//! The home and memcached have one CPU. The cache that is asked, and the client, have the other.

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
use crate::statistics::quantile;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use stage::{SETTLE, Stage};

/// Rounds, and the duration of a turn of each way.
const ROUNDS: [u32; 2] = [5, 5];
const TIMES: [Duration; 2] = [Duration::from_secs(3), Duration::from_millis(600)];
/// Bytes of a value.
const VALUE_BYTES: usize = 1024;
/// Items, of which the client asks at random.
const ITEMS: usize = 10_000;
/// Busy threads.
const THREADS: u32 = 64;

/// Where the item is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Place {
    /// In another cache than the one that is asked.
    Neighbour,
    Memcached,
}

/// What the CPU does on which the item is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Cpu {
    /// Nothing else.
    Idle,
    /// It has [`THREADS`] busy threads.
    Busy,
    /// It may do nothing for the item's home.
    Stopped,
}

/// A way to get an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Way {
    place: Place,
    cpu: Cpu,
}

impl Way {
    const ALL: [Way; 5] = [
        Way { place: Place::Neighbour, cpu: Cpu::Idle },
        Way { place: Place::Neighbour, cpu: Cpu::Busy },
        Way { place: Place::Neighbour, cpu: Cpu::Stopped },
        Way { place: Place::Memcached, cpu: Cpu::Idle },
        Way { place: Place::Memcached, cpu: Cpu::Busy },
    ];

    fn name(self) -> String {
        let place = match self.place {
            Place::Neighbour => "neighbour's item",
            Place::Memcached => "memcached",
        };
        let cpu = match self.cpu {
            Cpu::Idle => "its CPU idle".to_owned(),
            Cpu::Busy => format!("{THREADS} busy threads there"),
            Cpu::Stopped => "its home stopped".to_owned(),
        };
        format!("{place}, {cpu}")
    }

    const fn style(self) -> Style {
        match self.place {
            Place::Neighbour => Style::OURS,
            Place::Memcached => Style::BASELINE,
        }
    }
}

/// The figures of one turn.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// The round, from 1.
    round: u32,
    #[serde(flatten)]
    way: Way,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    gets_per_s: f64,
    /// Gets that found nothing.
    misses: u64,
}

impl Row {
    fn new(round: u32, way: Way, mut asked: Asked) -> Row {
        asked.took_us.sort_by(f64::total_cmp);
        let at = |q| quantile(&asked.took_us, q).expect("at least one request was made");
        Row {
            round,
            way,
            p50_us: at(0.5),
            p99_us: at(0.99),
            max_us: at(1.0),
            gets_per_s: asked.took_us.len() as f64 / asked.time.as_secs_f64(),
            misses: asked.misses,
        }
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    round: u32,
    place: Place,
    cpu: Cpu,
    p50_us: Fixed<2>,
    p99_us: Fixed<2>,
    max_us: Fixed<2>,
    gets_per_s: Fixed<0>,
    misses: u64,
}

/// Settings that all turns share.
#[derive(Serialize)]
struct Busy {
    turn_s: f64,
    value_bytes: usize,
    items: usize,
    threads: u32,
    #[serde(skip)]
    time: Duration,
    /// The servers, which run from the first round.
    #[serde(skip)]
    stage: Option<Stage>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let time = TIMES[usize::from(bench.options.quick)];
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    study::run(
        bench,
        Busy {
            turn_s: time.as_secs_f64(),
            value_bytes: VALUE_BYTES,
            items: ITEMS,
            threads: THREADS,
            time,
            stage: None,
        },
    )
}

impl Study for Busy {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        vec![(self.time + SETTLE) * Way::ALL.len() as u32]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Busy>) -> Result<()> {
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
            let asked = stage.turn(bench, way, self.time)?;
            rows.push(self, Row::new(round, way, asked))?;
        }
        bench.end();
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { round, way: Way { place, cpu }, p50_us, p99_us, max_us, gets_per_s, misses } = *row;
        vec![TableLine {
            round,
            place,
            cpu,
            p50_us: Fixed(p50_us),
            p99_us: Fixed(p99_us),
            max_us: Fixed(max_us),
            gets_per_s: Fixed(gets_per_s),
            misses,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("round {}, {}: {what}", row.round, row.way.name());
        // Whether all are found while the home is stopped is a target.
        let misses_max = if row.way.cpu == Cpu::Stopped { f64::INFINITY } else { 0.0 };
        vec![
            Bound::new(of("p50, µs"), row.p50_us, 0.0..=row.p99_us),
            Bound::new(of("gets that found nothing"), row.misses as f64, 0.0..=misses_max),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let panel = |title: &str, figure: fn(&Row) -> f64| {
            let line = |place: Place| {
                let ways = (1..).zip(Way::ALL).filter(|(_, way)| way.place == place);
                let points = ways.filter_map(|(at, way)| Some((f64::from(at), figure(find(rows, way)?))));
                Line::new(Way { place, cpu: Cpu::Idle }.style().bars(), points.collect())
            };
            let lines: Vec<_> = [Place::Neighbour, Place::Memcached].map(line).into();
            Panel {
                title: title.to_owned(),
                x: Axis {
                    label: cpu_at,
                    ..Axis::counting("the CPU where the item is", Way::ALL.len() as u32)
                },
                y: Axis::from_zero("µs", lines.iter().map(Line::most).fold(0.0, f64::max)),
                lines,
            }
        };
        Drawing {
            panels: vec![
                panel("half are answered within", |row| row.p50_us),
                panel("99 of 100 are answered within", |row| row.p99_us),
            ],
            legend: legend([("neighbour's item", Style::OURS.bars()), ("memcached", Style::BASELINE.bars())]),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        story.paragraph(&format!(
            "A cache and memcached share a CPU, on which {THREADS} threads compute and send each other messages in some turns. A client \
             on another CPU, with the cache that it asks, gets items of {VALUE_BYTES} bytes, one at a time: from the first cache's memory \
             through its own cache, or from memcached. In one turn the first cache is stopped (SIGSTOP).",
        ));
        story.checks();
        story.heading("Measured");
        let columns = ["", "p50, µs", "p99, µs", "longest, µs", "gets/s", "p99 / idle", "found nothing"];
        let cells = |row: &Row| {
            vec![
                row.way.name(),
                number(Some(row.p50_us), 1),
                number(Some(row.p99_us), 1),
                number(Some(row.max_us), 0),
                number(Some(row.gets_per_s), 0),
                number(of_idle(rows, row.way), 2),
                row.misses.to_string(),
            ]
        };
        story.table(&columns, Way::ALL.iter().filter_map(|way| find(rows, *way)).map(cells));
        story.how(&format!(
            "In each round a turn of {} s for each way, the order alternating; one client with one connection, {} items at random. A \
             turn begins {} s after the busy threads do.",
            self.turn_s,
            self.items,
            SETTLE.as_secs_f64(),
        ));
    }
}

/// What the CPU does, by a way's place on the axis.
fn cpu_at(at: f64) -> String {
    let word = |way: &Way| match way.cpu {
        Cpu::Idle => "idle",
        Cpu::Busy => "busy",
        Cpu::Stopped => "stopped",
    };
    Axis::counted(&Way::ALL, at).map_or(String::new(), |way| word(way).into())
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let [_, busy, stopped, ..] = Way::ALL;
    let what =
        format!("neighbour's item: p99, {THREADS} busy threads at its home / idle, median of the rounds");
    let found = find(rows, stopped).map(|row| row.misses as f64);
    vec![
        Check::at_most(what, 1.5, of_idle(rows, busy)),
        Check::at_most("gets that found nothing while the home was stopped", 0.0, found),
    ]
}

/// The p99 of a way beside that of an idle CPU.
fn of_idle(rows: &[Row], way: Way) -> Option<f64> {
    let p99 = |way| find(rows, way).map(|row| row.p99_us);
    Some(p99(way)? / p99(Way { cpu: Cpu::Idle, ..way }).filter(|idle| *idle > 0.0)?)
}

fn find(rows: &[Row], way: Way) -> Option<&Row> {
    rows.iter().find(|row| row.way == way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_home_is_judged_beside_an_idle_one_and_a_stopped_one_by_what_is_found() {
        let rows = Way::ALL.map(|way| {
            let p99_us = match (way.place, way.cpu) {
                (Place::Neighbour, Cpu::Busy) => 60.0,
                (Place::Memcached, Cpu::Busy) => 9000.0,
                _ => 40.0,
            };
            Row { round: 1, way, p50_us: 20.0, p99_us, max_us: 90.0, gets_per_s: 4e4, misses: 0 }
        });
        let verdicts = |rows: &[Row]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&rows), ["met"; 2]);
        let changed = |at: usize, change: fn(&mut Row)| {
            let mut rows = rows.clone();
            change(&mut rows[at]);
            verdicts(&rows)
        };
        assert_eq!(changed(1, |row| row.p99_us = 61.0), ["MISSED", "met"]);
        assert_eq!(changed(2, |row| row.misses = 1), ["met", "MISSED"]);
        assert_eq!(verdicts(&rows[1..]), ["not measured", "met"]);
    }

    #[test]
    fn a_row_has_the_figures_of_its_gets() {
        let took_us = (1..=200).rev().map(f64::from).collect();
        let asked = Asked { took_us, misses: 3, time: Duration::from_millis(20) };
        let row = Row::new(2, Way::ALL[1], asked);
        assert_eq!((row.p50_us, row.p99_us, row.max_us), (100.0, 198.0, 200.0));
        let time = TIMES[0];
        let study =
            Busy { turn_s: 3.0, value_bytes: VALUE_BYTES, items: ITEMS, threads: THREADS, time, stage: None };
        let [columns, line] = crate::table::written(study.lines(&row).remove(0));
        assert_eq!(columns, "round,place,cpu,p50_us,p99_us,max_us,gets_per_s,misses");
        assert_eq!(line, "2,neighbour,busy,100.00,198.00,200.00,10000,3");
    }
}
