//! K7: how many items have room in a cache and in memcached, if both may use as much memory.
//!
//! The objects of a trace are stored in its order, each time round under other keys, until each has evicted more than it holds.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;
use sidelong_workload::memcached::Client;

use super::client;
use super::demand::{self, Demand};
use super::servers;
use crate::bench::Bench;
use crate::check::Check;
use crate::cpus;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::figure::{Axis, Line, Panel, Style};
use crate::server::Server;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};

/// Memory of a server: `-m`.
const MEMORY_MIB: u32 = 64;
/// Requests of the trace whose objects are stored.
const REQUESTS: usize = 2_000_000;
/// Objects that are stored at once.
const AT_ONCE: usize = 1000;
/// Times round, of which two are enough for all but a very short trace.
const ROUNDS_MAX: usize = 100;
/// The longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// About how long a server takes.
const TIME: Duration = Duration::from_secs(10);

/// What stores the items.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum System {
    Memcached,
    Sieve,
    Lru,
}

impl System {
    const ALL: [System; 3] = [System::Memcached, System::Sieve, System::Lru];

    const fn name(self) -> &'static str {
        match self {
            System::Memcached => "memcached",
            System::Sieve => "sidelong, SIEVE",
            System::Lru => "sidelong, LRU",
        }
    }

    /// The same in a word.
    const fn word(self) -> &'static str {
        match self {
            System::Memcached => "memcached",
            System::Sieve => "sieve",
            System::Lru => "lru",
        }
    }

    const fn style(self) -> Style {
        match self {
            System::Memcached => Style::BASELINE,
            System::Sieve => Style::OURS,
            System::Lru => Style::FIFTH,
        }
    }

    fn start(self, bench: &Bench<'_>, name: &str) -> Result<Server> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port));
        match self {
            System::Memcached => servers::memcached(bench, name, MEMORY_MIB, at),
            System::Sieve | System::Lru => {
                servers::sidelong(bench, name, MEMORY_MIB, &["--eviction", self.word()], at)
            }
        }
    }
}

/// The figures of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    system: System,
    /// Items that are held when all is stored.
    held: u64,
    evicted: u64,
}

/// Settings that all runs share.
#[derive(Serialize)]
struct Held {
    memory_mib: u32,
    #[serde(serialize_with = "demand::name")]
    demand: Demand,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    let demand = Demand::find(bench, REQUESTS, None)?;
    study::run(bench, Held { memory_mib: MEMORY_MIB, demand })
}

impl Held {
    /// Stores until more is evicted than held.
    fn fill(&self, bench: &Bench<'_>, system: System, server: &Server) -> Result<Row> {
        let failed = |error: io::Error| server.failed(format!("storing: {error}"));
        let mut writer = Client::connect(server.address, ANSWER_MAX).map_err(failed)?;
        let mut asked = client::Client::connect(&server.address).map_err(failed)?;
        let mut row = Row { system, held: 0, evicted: 0 };
        for round in 0..ROUNDS_MAX {
            for objects in self.demand.requests.chunks(AT_ONCE) {
                bench.go_on()?;
                let items = objects.iter().map(|object| {
                    (format!("{round}-object-{}", object.id), vec![b'x'; object.bytes as usize])
                });
                writer.set(&items.collect::<Vec<_>>()).map_err(failed)?;
                row.held = asked.stat("curr_items").map_err(failed)?;
                row.evicted = asked.stat("evictions").map_err(failed)?;
                if row.evicted > row.held {
                    return Ok(row);
                }
            }
        }
        Err(server.failed(format!("{} items are not enough to fill it", row.held)))
    }
}

impl Study for Held {
    type Row = Row;
    type Line = Row;

    /// Items are judged.
    const NEEDS_THE_MACHINE: bool = false;

    fn plan(&self) -> Vec<Duration> {
        vec![TIME; System::ALL.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Held>) -> Result<()> {
        for system in System::ALL {
            let name = bench.name(system.word());
            bench.begin(&name);
            let server = system.start(bench, &name)?;
            rows.push(self, self.fill(bench, system, &server)?)?;
            bench.end();
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<Row> {
        vec![row.clone()]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let evicted = format!("{}: items that were evicted", row.system.name());
        vec![Bound::new(evicted, row.evicted as f64, row.held as f64..=f64::INFINITY)]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        let check = |system: System| {
            let what = format!("items held, {} / memcached", system.name());
            Check::at_least(what, 0.9, ratio(rows, system))
        };
        [System::Sieve, System::Lru].map(check).into()
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let line = |(at, system): (u32, System)| {
            let point = find(rows, system).map(|row| (f64::from(at), row.held as f64 / 1e3));
            Line::new(system.style().bars(), point.into_iter().collect())
        };
        let lines: Vec<_> = (1..).zip(System::ALL).map(line).collect();
        Drawing {
            panels: vec![Panel {
                title: format!("{}: items in {MEMORY_MIB} MiB", self.demand.name),
                x: Axis {
                    label: |at| {
                        Axis::counted(&System::ALL, at).map_or(String::new(), |system| system.name().into())
                    },
                    ..Axis::counting("", System::ALL.len() as u32)
                },
                y: Axis::from_zero("thousands", lines.iter().map(Line::most).fold(0.0, f64::max)),
                lines,
            }],
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        story.paragraph(&format!(
            "`sidelong cache` and memcached with `-m {MEMORY_MIB}`. The objects of a trace are stored in its order, each time round under \
             other keys, until more items were evicted than are held. Sidelong's tables are part of its memory, memcached's are not.",
        ));
        story.checks();
        story.heading("Measured");
        let cells = |row: &Row| {
            let beside = number(ratio(rows, row.system), 3);
            vec![row.system.name().to_owned(), row.held.to_string(), beside, row.evicted.to_string()]
        };
        story.table(&["", "items held", "of memcached's", "evicted"], rows.iter().map(cells));
        let bytes: u64 = self.demand.requests.iter().map(|object| object.bytes).sum();
        story.how(&format!(
            "The trace is {}, its first {} requests, whose objects have {:.0} bytes in the mean.",
            self.demand.name,
            self.demand.requests.len(),
            bytes as f64 / self.demand.requests.len().max(1) as f64,
        ));
    }
}

/// Items of a system beside memcached's.
fn ratio(rows: &[Row], system: System) -> Option<f64> {
    let held = |system| find(rows, system).map(|row| row.held as f64);
    Some(held(system)? / held(System::Memcached)?)
}

fn find(rows: &[Row], system: System) -> Option<&Row> {
    rows.iter().find(|row| row.system == system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_judged_beside_memcached() {
        let row = |system, held| Row { system, held, evicted: held + 1 };
        let study = Held { memory_mib: MEMORY_MIB, demand: Demand::new(None, Vec::new(), None) };
        let rows = [row(System::Memcached, 1000), row(System::Sieve, 900), row(System::Lru, 899)];
        let verdicts: Vec<_> = study.checks(&rows).iter().map(Check::verdict).collect();
        assert_eq!(verdicts, ["met", "MISSED"]);
        let [columns, line] = crate::table::written(study.lines(&rows[1]).remove(0));
        assert_eq!([columns, line], ["system,held,evicted", "sieve,900,901"]);
    }
}
