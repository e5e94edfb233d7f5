//! K1: what gets and sets cost `sidelong cache`, beside memcached.
//!
//! Each server has one thread. The client need not be faster than a server: what counts is how many commands a server answers in a
//! second of its own CPU time.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;

use super::client::{Items, Request};
use super::servers::{self, MEMORY_MIB, talk};
use crate::bench::Bench;
use crate::check::Check;
use crate::cpus::{self, Awake};
use crate::drawing::{Drawing, legend};
use crate::error::Result;
use crate::figure::{Axis, Line, Panel, Style};
use crate::server::Server;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;

/// Rounds, and the duration of a turn of each server in each case.
const ROUNDS: [u32; 2] = [5, 5];
const TIMES: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(300)];
/// Items, of which the client asks at random.
const ITEMS: u32 = 20_000;

/// The servers that take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum System {
    Sidelong,
    Memcached,
}

impl System {
    const ALL: [System; 2] = [System::Sidelong, System::Memcached];

    const fn name(self) -> &'static str {
        match self {
            System::Sidelong => "sidelong",
            System::Memcached => "memcached",
        }
    }

    const fn style(self) -> Style {
        match self {
            System::Sidelong => Style::OURS,
            System::Memcached => Style::BASELINE,
        }
    }

    /// The order alternates.
    fn order(round: u32) -> [System; 2] {
        let mut order = System::ALL;
        if round.is_multiple_of(2) {
            order.reverse();
        }
        order
    }

    fn start(self, bench: &Bench<'_>, address: SocketAddr) -> Result<Server> {
        match self {
            System::Sidelong => servers::sidelong(bench, self.name(), MEMORY_MIB, &[], address),
            System::Memcached => servers::memcached(bench, self.name(), MEMORY_MIB, address),
        }
    }
}

/// How the client asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Shape {
    /// 32 gets at a time, each a command.
    Pipelined,
    /// One get of 64 keys at a time.
    Multiget,
    /// One get at a time.
    Single,
    /// 32 sets at a time.
    Sets,
    /// 64 sets at a time: memcached has no command that sets several keys.
    ManySets,
    /// One set at a time.
    Set,
}

impl Shape {
    const ALL: [Shape; 6] =
        [Shape::Pipelined, Shape::Multiget, Shape::Single, Shape::Sets, Shape::ManySets, Shape::Set];

    const fn name(self) -> &'static str {
        match self {
            Shape::Pipelined => "gets, pipelined by 32",
            Shape::Multiget => "gets, 64 keys at a time",
            Shape::Single => "gets, one at a time",
            Shape::Sets => "sets, pipelined by 32",
            Shape::ManySets => "sets, pipelined by 64",
            Shape::Set => "sets, one at a time",
        }
    }

    /// The same where there is little room.
    const fn short(self) -> &'static str {
        match self {
            Shape::Pipelined => "get, by 32",
            Shape::Multiget => "get 64 keys",
            Shape::Single => "get",
            Shape::Sets => "set, by 32",
            Shape::ManySets => "set, by 64",
            Shape::Set => "set",
        }
    }

    const fn request(self) -> Request {
        match self {
            Shape::Pipelined | Shape::Single => Request::Gets,
            Shape::Multiget => Request::Multiget,
            Shape::Sets | Shape::ManySets | Shape::Set => Request::Sets,
        }
    }

    /// Keys of one request of the client.
    const fn keys(self) -> u32 {
        match self {
            Shape::Pipelined | Shape::Sets => 32,
            Shape::Multiget | Shape::ManySets => 64,
            Shape::Single | Shape::Set => 1,
        }
    }

    /// Target for the commands per CPU-second, to those of memcached.
    const fn target(self) -> f64 {
        match self {
            Shape::Pipelined => 1.1,
            _ => 1.0,
        }
    }
}

/// Bytes of a value.
const SIZES: [usize; 2] = [100, 1000];

/// All cases.
fn cases() -> impl Iterator<Item = (usize, Shape)> {
    SIZES.into_iter().flat_map(|size| Shape::ALL.map(|shape| (size, shape)))
}

/// The figures of one turn.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// The round, from 1.
    round: u32,
    value_bytes: usize,
    shape: Shape,
    system: System,
    /// Keys got or set in a second.
    per_s: f64,
    /// The same in a second of the server's CPU time.
    per_cpu_s: f64,
    /// The share of the turn in which the server was on its CPU.
    cpu_busy: f64,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    round: u32,
    value_bytes: usize,
    shape: Shape,
    system: System,
    per_s: Fixed<0>,
    per_cpu_s: Fixed<0>,
}

/// Settings that all turns share.
#[derive(Serialize)]
struct Cache {
    turn_s: f64,
    items: u32,
    #[serde(skip)]
    time: Duration,
    /// The servers, which run from the first round.
    #[serde(skip)]
    stage: Option<[Server; 2]>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let time = TIMES[usize::from(bench.options.quick)];
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    study::run(bench, Cache { turn_s: time.as_secs_f64(), items: ITEMS, time, stage: None })
}

impl Cache {
    fn set_stage(bench: &Bench<'_>) -> Result<[Server; 2]> {
        let start = |system: System, offset| {
            system.start(bench, SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + offset)))
        };
        let servers = [start(System::Sidelong, 0)?, start(System::Memcached, 1)?];
        servers.iter().for_each(|server| server.process.pause());
        Ok(servers)
    }

    fn turn(&self, system: System, (value_bytes, shape): (usize, Shape), round: u32) -> Result<Row> {
        let servers = self.stage.as_ref().expect("it is set before the first turn");
        let server = &servers[usize::from(system == System::Memcached)];
        let keys: Vec<u32> = (0..ITEMS).collect();
        let items = Items { keys: &keys, value_bytes };
        talk(&[server], shape.name(), |client| client.fill(items))?;
        let (asked, cpu) = talk(&[server], shape.name(), |client| {
            client.ask(items, shape.request(), shape.keys(), self.time)
        })?;
        if asked.misses > 0 {
            return Err(server.failed(format!("{}: {} found nothing", shape.name(), asked.misses)));
        }
        let done = asked.took_us.len() as f64 * f64::from(shape.keys());
        let (time_s, cpu_s) = (asked.time.as_secs_f64(), cpu[0].as_secs_f64());
        Ok(Row {
            round,
            value_bytes,
            shape,
            system,
            per_s: done / time_s,
            per_cpu_s: done / cpu_s,
            cpu_busy: cpu_s / time_s,
        })
    }
}

impl Study for Cache {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        vec![self.time * 2 * cases().count() as u32]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Cache>) -> Result<()> {
        let round = bench.repetition;
        if self.stage.is_none() {
            self.stage = Some(Cache::set_stage(bench)?);
        }
        bench.begin(&format!("round-{round}"));
        let _awake = Awake::hold(&cpus::two()?)?;
        for case in cases() {
            for system in System::order(round) {
                bench.go_on()?;
                rows.push(self, self.turn(system, case, round)?)?;
            }
        }
        bench.end();
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { round, value_bytes, shape, system, per_s, per_cpu_s, .. } = *row;
        vec![TableLine {
            round,
            value_bytes,
            shape,
            system,
            per_s: Fixed(per_s),
            per_cpu_s: Fixed(per_cpu_s),
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let what = format!("round {}, {}, {}", row.round, row.system.name(), row.shape.name());
        // Each server is held to one CPU, whose time the kernel counts in ticks.
        vec![Bound::new(format!("{what}: CPUs in use"), row.cpu_busy, 0.0..=1.1)]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        let check = |case: (usize, Shape)| {
            let what = format!(
                "{} of {} bytes: per second of CPU time, Sidelong / memcached, median of the rounds",
                case.1.name(),
                case.0
            );
            Check::at_least(what, case.1.target(), ratio(rows, case))
        };
        cases().map(check).collect()
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let panel = |size: usize| {
            let line = |system: System| {
                let points = Shape::ALL.into_iter().zip(1..);
                let points = points.filter_map(|(shape, at)| {
                    Some((f64::from(at), figure(rows, (size, shape), system, |row| row.per_cpu_s)? / 1e6))
                });
                Line::new(system.style().bars(), points.collect())
            };
            let most = rows.iter().map(|row| row.per_cpu_s / 1e6).fold(0.1, f64::max);
            Panel {
                title: format!("values of {size} bytes"),
                x: Axis {
                    label: |n| {
                        Axis::counted(&Shape::ALL, n).map_or(String::new(), |shape| shape.short().to_owned())
                    },
                    ..Axis::counting("commands".to_owned(), Shape::ALL.len() as u32)
                },
                y: Axis::from_zero("million keys per second of CPU time", most),
                lines: System::ALL.map(line).into(),
            }
        };
        Drawing {
            panels: SIZES.map(panel).into(),
            legend: legend(System::ALL.map(|system| (system.name(), system.style().bars()))),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        story.paragraph(
            "`sidelong cache` and memcached, each with one thread on the same CPU, and one client on another, over loopback. What \
             counts is how many keys a server gets or sets in a second of its own CPU time.",
        );
        story.checks();
        story.heading("Measured");
        let columns = [
            "",
            "bytes of a value",
            "Sidelong, keys per CPU-second",
            "memcached",
            "ratio",
            "Sidelong, keys/s",
            "memcached",
        ];
        let line = |case: (usize, Shape)| {
            let of = |system, of: fn(&Row) -> f64| number(figure(rows, case, system, of), 0);
            vec![
                case.1.name().to_owned(),
                case.0.to_string(),
                of(System::Sidelong, |row| row.per_cpu_s),
                of(System::Memcached, |row| row.per_cpu_s),
                number(ratio(rows, case), 2),
                of(System::Sidelong, |row| row.per_s),
                of(System::Memcached, |row| row.per_s),
            ]
        };
        story.table(&columns, cases().map(line).collect::<Vec<_>>());
        story.how(&format!(
            "In each round a turn of {} s for each server and case, the order alternating; one client with one connection, keys of \
             {} items at random. Before each turn all items are stored anew. memcached answers each command of a pipeline by a \
             system call of its own. Both CPUs are kept awake by a program of idle priority: what it costs to wake a virtual CPU depends on \
             how often other threads do so, and memcached has such threads.",
            self.turn_s, self.items,
        ));
    }
}

/// A figure of the turn of `system` in a case.
fn figure(rows: &[Row], case: (usize, Shape), system: System, figure: impl Fn(&Row) -> f64) -> Option<f64> {
    let row = rows.iter().find(|row| (row.value_bytes, row.shape, row.system) == (case.0, case.1, system));
    row.map(figure)
}

/// The ratio of Sidelong to memcached in a case. `None` if one is missing.
fn ratio(rows: &[Row], case: (usize, Shape)) -> Option<f64> {
    let of = |system| figure(rows, case, system, |row| row.per_cpu_s);
    Some(of(System::Sidelong)? / of(System::Memcached).filter(|of| *of > 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: System, shape: Shape, per_cpu_s: f64) -> Row {
        Row { round: 1, value_bytes: 100, shape, system, per_s: 1000.0, per_cpu_s, cpu_busy: 0.9 }
    }

    #[test]
    fn each_case_is_judged_beside_memcached() {
        let study = Cache { turn_s: 2.0, items: ITEMS, time: TIMES[0], stage: None };
        let rows = [
            row(System::Sidelong, Shape::Pipelined, 109.0),
            row(System::Memcached, Shape::Pipelined, 100.0),
            row(System::Sidelong, Shape::Sets, 100.0),
            row(System::Memcached, Shape::Sets, 100.0),
        ];
        let verdicts: Vec<_> = study.checks(&rows).iter().map(Check::verdict).collect();
        assert_eq!(verdicts[..4], ["MISSED", "not measured", "not measured", "met"]);
        assert_eq!(verdicts[4..], ["not measured"; 8]);
        let [columns, line] = crate::table::written(study.lines(&rows[0]).remove(0));
        assert_eq!(columns, "round,value_bytes,shape,system,per_s,per_cpu_s");
        assert_eq!(line, "1,100,pipelined,sidelong,1000,109");
    }
}
