//! K1: what gets and sets cost `sidelong cache`, beside memcached.
//!
//! Each server has one thread. The client need not be faster than a server: what counts is how many commands a server answers in a
//! second of its own CPU time.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;

use super::client::{Items, Request};
use super::servers::{self, MEMORY_MIB, talk};
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::cpus::{self, Awake};
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;
use crate::server::Server;

/// The duration of a turn of each server in each case, in full and quick.
const TIMES: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(300)];
/// Items, of which the client asks at random.
const ITEMS: u32 = 20_000;
/// A chart of the keys of a second of CPU time.
const KEYS: (f64, &str) = (1e-6, "million keys per second of CPU time");

pub(crate) const K1: Experiment = Experiment::new(
    "K1",
    OWN,
    "gets and sets of the cache, beside memcached",
    Design {
        repeat: [5, 5],
        dimensions: &[
            Dimension::new(
                "value_bytes",
                "values of",
                &[Word::plain("100", "100 bytes"), Word::plain("1000", "1000 bytes")],
            ),
            Dimension::new(
                "shape",
                "commands",
                &[
                    Word::plain("pipelined", "gets, by 32"),
                    Word::plain("multiget", "get of 64 keys"),
                    Word::plain("single", "a get"),
                    Word::plain("sets", "sets, by 32"),
                    Word::plain("many-sets", "sets, by 64"),
                    Word::plain("set", "a set"),
                ],
            ),
            Dimension::new(
                "system",
                "",
                &[
                    Word::new("sidelong", "Sidelong", Style::OURS),
                    Word::new("memcached", "memcached", Style::BASELINE),
                ],
            ),
        ],
        cases: &["*/*/*"],
        measures: &[
            Measure::new("per_s", "keys/s", [0, 0]),
            Measure::new("per_cpu_s", "keys per CPU-second", [0, 0]),
            // Each server is held to one CPU, whose time the kernel counts in ticks.
            Measure::new("cpus", "CPUs in use", [3, 2]).possible(|_| 0.0..=1.1),
            Measure::derived("ratio", "to memcached", 2),
        ],
        charts: &[
            Chart::bars("values of 100 bytes", "per_cpu_s", "shape", "system")
                .of("100/*/*")
                .unit(KEYS.0, KEYS.1),
            Chart::bars("values of 1000 bytes", "per_cpu_s", "shape", "system")
                .of("1000/*/*")
                .unit(KEYS.0, KEYS.1),
        ],
        settings: |quick| json!({ "turn_s": TIMES[usize::from(quick)].as_secs_f64(), "items": ITEMS }),
        template: include_str!("commands.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

/// How the client asks: what, for how many keys at a time, and the target for the commands per CPU-second, to those of memcached.
fn shape(case: &str) -> (Request, u32, f64) {
    match case.split('/').nth(1).unwrap_or_default() {
        "pipelined" => (Request::Gets, 32, 1.1),
        "multiget" => (Request::Multiget, 64, 1.0),
        "single" => (Request::Gets, 1, 1.0),
        "sets" => (Request::Sets, 32, 1.0),
        // memcached has no command that sets several keys.
        "many-sets" => (Request::Sets, 64, 1.0),
        _ => (Request::Sets, 1, 1.0),
    }
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    // Before anything is started: without two the experiment cannot be made.
    let cpus = cpus::two()?;
    let time = bench.either(TIMES);
    let at = |offset| SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + offset));
    let servers = [
        servers::sidelong(bench, "sidelong", MEMORY_MIB, &[], at(0))?,
        servers::memcached(bench, "memcached", MEMORY_MIB, at(1))?,
    ];
    servers.iter().for_each(|server| server.process.pause());
    let pairs = bench.samples.begins("*/*");
    bench.rounds(&[time * bench.cases().len() as u32], |bench| {
        bench.begin(&format!("round-{}", bench.repetition));
        let _awake = Awake::hold(&cpus)?;
        for pair in &pairs {
            bench.in_turn(&[&servers[0], &servers[1]], |bench, server| turn(bench, server, pair, time))?;
        }
        bench.end();
        Ok(())
    })
}

fn turn(bench: &mut Bench<'_>, server: &Server, pair: &str, time: Duration) -> Result<()> {
    let value_bytes = pair.split('/').next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    let (request, count, _) = shape(pair);
    let keys: Vec<u32> = (0..ITEMS).collect();
    let items = Items { keys: &keys, value_bytes };
    talk(&[server], pair, |client| client.fill(items))?;
    let (asked, cpu) = talk(&[server], pair, |client| client.ask(items, request, count, time))?;
    if asked.misses > 0 {
        return Err(server.failed(format!("{pair}: {} found nothing", asked.misses)));
    }
    let (per_s, cpus) = (asked.per_s() * f64::from(count), cpu[0].as_secs_f64() / asked.time.as_secs_f64());
    bench.sample(
        &format!("{pair}/{}", server.name),
        [("per_s", per_s), ("per_cpu_s", per_s / cpus), ("cpus", cpus)],
    )
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("ratio", "*/*/sidelong", |samples, ours| {
        let theirs = ours.replace("sidelong", "memcached");
        &samples[ours]["per_cpu_s"] / &samples[theirs]["per_cpu_s"]
    });
    let check = |pair: &String| {
        let what = "per second of CPU time, Sidelong / memcached, median of the rounds";
        let ratio = &samples[format!("{pair}/sidelong")]["ratio"];
        Check::at_least(format!("{}: {what}", samples.label(pair)), shape(pair).2, ratio)
    };
    samples.begins("*/*").iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn each_case_is_judged_beside_memcached() {
        let verdicts = judged(&K1, |samples| {
            samples.put("100/pipelined/sidelong", [("per_cpu_s", 109.0)]);
            samples.put("100/pipelined/memcached", [("per_cpu_s", 100.0)]);
            samples.put("100/sets/sidelong", [("per_cpu_s", 100.0)]);
            samples.put("100/sets/memcached", [("per_cpu_s", 100.0)]);
        });
        assert_eq!(verdicts[..4], ["MISSED", "not measured", "not measured", "met"]);
        assert_eq!(verdicts[4..], ["not measured"; 8]);
    }
}
