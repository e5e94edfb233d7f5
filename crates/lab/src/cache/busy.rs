//! K4: what a get of a neighbour's item takes while its home's CPU is busy, or the home is stopped; and a get from memcached on such a
//! CPU.
//!
//! The home and memcached have one CPU. The cache that is asked, and the client, have the other.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;

use super::client::{Asked, Items, Request};
use super::servers::{self, Pair, talk};
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::cpus::{self, Pinned};
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::process::Process;
use crate::samples::Samples;
use crate::server::Server;

/// The duration of a turn of each way, in full and quick.
const TIMES: [Duration; 2] = [Duration::from_secs(3), Duration::from_millis(600)];
/// Time for busy threads to begin, and for what is continued to do what waits.
const SETTLE: Duration = Duration::from_millis(200);
const VALUE_BYTES: usize = 1024;
/// Items, of which the client asks at random.
const ITEMS: usize = 10_000;
/// Busy threads.
const THREADS: u32 = 64;

pub(crate) const K4: Experiment = Experiment::new(
    "K4",
    OWN,
    "an item in the memory of a cache whose CPU is busy, or that is stopped",
    Design {
        repeat: [5, 5],
        dimensions: &[
            Dimension::new(
                "place",
                "the item is in",
                &[
                    Word::new("neighbour", "another cache", Style::OURS),
                    Word::new("memcached", "memcached", Style::BASELINE),
                ],
            ),
            Dimension::new(
                "cpu",
                "its CPU is",
                &[
                    Word::plain("idle", "idle"),
                    Word::plain("busy", "busy"),
                    Word::plain("stopped", "home stopped"),
                ],
            ),
        ],
        cases: &["neighbour/*", "memcached/idle,busy"],
        measures: &[
            Measure::new("p50_us", "p50, µs", [2, 1]),
            Measure::new("p99_us", "p99, µs", [2, 1]),
            Measure::new("max_us", "longest, µs", [2, 0]),
            Measure::new("gets_per_s", "gets/s", [0, 0]),
            Measure::derived("p99_to_idle", "p99 / idle", 2),
            // Whether all are found while the home is stopped is a target.
            Measure::new("misses", "found nothing", [0, 0])
                .possible(|case| 0.0..=if case.is("*/stopped") { f64::INFINITY } else { 0.0 }),
        ],
        charts: &[
            Chart::bars("half are answered within", "p50_us", "cpu", "place"),
            Chart::bars("99 of 100 are answered within", "p99_us", "cpu", "place"),
        ],
        settings: |quick| {
            json!({
                "turn_s": TIMES[usize::from(quick)].as_secs_f64(),
                "settle_s": SETTLE.as_secs_f64(),
                "value_bytes": VALUE_BYTES,
                "items": ITEMS,
                "threads": THREADS,
            })
        },
        template: include_str!("busy.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (time, ways) = (bench.either(TIMES), bench.cases());
    let stage = Stage::set(bench)?;
    bench.rounds(&[(time + SETTLE) * ways.len() as u32], |bench| {
        bench.round_of(&ways, |bench, way| {
            let asked = stage.turn(bench, &way, time)?;
            let figures = [
                ("p50_us", asked.quantile(0.5)),
                ("p99_us", asked.quantile(0.99)),
                ("max_us", asked.quantile(1.0)),
                ("gets_per_s", asked.per_s()),
                ("misses", asked.misses as f64),
            ];
            bench.sample(&way, figures)
        })
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    for place in ["neighbour", "memcached"] {
        samples.derive("p99_to_idle", &format!("{place}/*"), |samples, way| {
            &samples[way]["p99_us"] / &samples[format!("{place}/idle")]["p99_us"]
        });
    }
    let what =
        format!("neighbour's item: p99, {THREADS} busy threads at its home / idle, median of the rounds");
    vec![
        Check::at_most(what, 1.5, &samples["neighbour/busy"]["p99_to_idle"]),
        Check::at_most(
            "gets that found nothing while the home was stopped",
            0.0,
            &samples["neighbour/stopped"]["misses"],
        ),
    ]
}

/// The servers, which are stopped, except those whose turn it is.
struct Stage {
    caches: Pair,
    memcached: Server,
}

impl Stage {
    fn set(bench: &Bench<'_>) -> Result<Stage> {
        let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + offset));
        let cluster = servers::cluster_file(&bench.ground.name, 2, at);
        let [cpu, clients] = cpus::two()?;
        // The one that is asked is where the client is.
        let caches = Pair::start(bench, "", "two caches", &cluster, [clients, cpu], ITEMS)?;
        let memcached = servers::memcached(bench, "memcached", servers::MEMORY_MIB, at(2))?;
        let items = Items { keys: &caches.keys[1], value_bytes: VALUE_BYTES };
        talk(&caches.caches.all(), "storing the items", |client| client.fill(items))?;
        talk(&[&memcached], "storing the items", |client| client.fill(items))?;
        Ok(Stage { caches, memcached })
    }

    /// Asks for `time`.
    fn turn(&self, bench: &Bench<'_>, way: &str, time: Duration) -> Result<Asked> {
        let Pair { caches, keys } = &self.caches;
        let servers = match way {
            // The home stays stopped.
            "neighbour/stopped" => vec![caches.all()[0]],
            "neighbour/idle" | "neighbour/busy" => caches.all(),
            _ => vec![&self.memcached],
        };
        let _threads = way.ends_with("/busy").then(|| Threads::start(bench)).transpose()?;
        let items = Items { keys: &keys[1], value_bytes: VALUE_BYTES };
        let (asked, _) = talk(&servers, way, |client| {
            std::thread::sleep(SETTLE);
            client.ask(items, Request::Gets, 1, time)
        })?;
        Ok(asked)
    }
}

/// Busy threads on the servers' CPU, which end with this.
struct Threads(#[expect(dead_code, reason = "ended when it is dropped")] Process);

impl Threads {
    fn start(bench: &Bench<'_>) -> Result<Threads> {
        let [cpu, _] = cpus::two()?;
        let _pinned = Pinned::to(cpu)?;
        let program = &bench.options.program;
        let mut command = Command::new(program);
        command.args(["perf", "background", &THREADS.to_string()]);
        // They end when its input does, in whatever way this process ends.
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Threads(Process::spawn(&mut command)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn a_busy_home_is_judged_beside_an_idle_one_and_a_stopped_one_by_what_is_found() {
        let verdicts = |busy_us, misses| {
            judged(&K4, |samples| {
                samples.put("neighbour/idle", [("p99_us", 40.0)]);
                samples.put("neighbour/busy", [("p99_us", busy_us)]);
                samples.put("neighbour/stopped", [("misses", misses)]);
            })
        };
        assert_eq!(verdicts(60.0, 0.0), ["met", "met"]);
        assert_eq!(verdicts(61.0, 1.0), ["MISSED", "MISSED"]);
        assert_eq!(judged(&K4, |_| ()), ["not measured"; 2]);
    }
}
