//! K7: how many items have room in a cache and in memcached, if both may use as much memory.
//!
//! The objects of a trace are stored in its order, each time round under other keys, until each has evicted more than it holds.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;
use sidelong_workload::memcached::Client;

use super::client;
use super::demand::Demand;
use super::servers;
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::cpus;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;
use crate::server::Server;

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

pub(crate) const K7: Experiment = Experiment::new(
    "K7",
    OWN,
    "items that have room in a cache and in memcached",
    Design {
        // Items are judged, not times.
        needs_the_machine: false,
        dimensions: &[Dimension::new(
            "system",
            "",
            &[
                Word::new("memcached", "memcached", Style::BASELINE),
                Word::new("sieve", "sidelong, SIEVE", Style::OURS),
                Word::new("lru", "sidelong, LRU", Style::FIFTH),
            ],
        )],
        cases: &["*"],
        measures: &[
            Measure::new("held", "items held", [0, 0]),
            Measure::derived("ratio", "of memcached's", 3),
            Measure::new("evicted", "evicted", [0, 0])
                .possible(|case| (case.figure)("held").unwrap_or(0.0)..=f64::INFINITY),
        ],
        charts: &[Chart::bars("items that have room", "held", "system", "system").unit(1e-3, "thousands")],
        settings: |_| json!({ "memory_mib": MEMORY_MIB, "trace": null, "requests": null, "bytes_mean": null }),
        template: include_str!("held.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    let demand = Demand::find(bench, REQUESTS, None)?;
    let (count, bytes) =
        (demand.requests.len(), demand.requests.iter().map(|object| object.bytes).sum::<u64>());
    bench.set("trace", demand.name.as_str());
    bench.set("requests", count);
    bench.set("bytes_mean", (bytes as f64 / count.max(1) as f64).round());
    let systems = bench.cases();
    bench.rounds(&vec![TIME; systems.len()], |bench| {
        for system in &systems {
            let name = bench.name(system.as_str());
            bench.begin(&name);
            let server = start(bench, system, &name)?;
            let [held, evicted] = fill(bench, &demand, &server)?.map(|count| count as f64);
            bench.sample(system, [("held", held), ("evicted", evicted)])?;
            bench.end();
        }
        Ok(())
    })
}

fn start(bench: &Bench<'_>, system: &str, name: &str) -> Result<Server> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port));
    match system {
        "memcached" => servers::memcached(bench, name, MEMORY_MIB, at),
        rule => servers::sidelong(bench, name, MEMORY_MIB, &["--eviction", rule], at),
    }
}

/// Stores until more is evicted than held. Returns how many are held, and how many were evicted.
fn fill(bench: &Bench<'_>, demand: &Demand, server: &Server) -> Result<[u64; 2]> {
    let failed = |error: io::Error| server.failed(format!("storing: {error}"));
    let mut writer = Client::connect(server.address, ANSWER_MAX).map_err(failed)?;
    let mut asked = client::Client::connect(&server.address).map_err(failed)?;
    let mut held = 0;
    for round in 0..ROUNDS_MAX {
        for objects in demand.requests.chunks(AT_ONCE) {
            bench.go_on()?;
            let items = objects
                .iter()
                .map(|object| (format!("{round}-object-{}", object.id), vec![b'x'; object.bytes as usize]));
            writer.set(&items.collect::<Vec<_>>()).map_err(failed)?;
            held = asked.stat("curr_items").map_err(failed)?;
            let evicted = asked.stat("evictions").map_err(failed)?;
            if evicted > held {
                return Ok([held, evicted]);
            }
        }
    }
    Err(server.failed(format!("{held} items are not enough to fill it")))
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("ratio", "*", |samples, system| &samples[system]["held"] / &samples["memcached"]["held"]);
    let check = |system| {
        let what = format!("items held, {} / memcached", samples.label(system));
        Check::at_least(what, 0.9, &samples[system]["ratio"])
    };
    ["sieve", "lru"].map(check).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn each_rule_is_judged_beside_memcached() {
        let verdicts = judged(&K7, |samples| {
            for (system, held) in [("memcached", 1000.0), ("sieve", 900.0), ("lru", 899.0)] {
                samples.put(system, [("held", held), ("evicted", held + 1.0)]);
            }
        });
        assert_eq!(verdicts, ["met", "MISSED"]);
    }
}
