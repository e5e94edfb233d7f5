//! K2: what a get of a neighbour's item costs a cache of a cluster, beside one of its own, and beside memcached with a proxy in front.
//!
//! One request is under way at a time. So the time of a request is that of its path, and not of a queue.

mod stage;

use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;

use super::client::Request;
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::cpus::{self, Awake};
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;
use stage::{SETTLE, Stage};

/// The duration of a turn of each way in each case, in full and quick.
const TIMES: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(300)];
/// Items of each home.
const ITEMS: usize = 1000;

pub(crate) const K2: Experiment = Experiment::new(
    "K2",
    OWN,
    "an item in the memory of another cache, beside one's own",
    Design {
        repeat: [5, 5],
        dimensions: &[
            Dimension::new(
                "request",
                "one request at a time",
                &[
                    Word::plain("get-1024", "get 1 KB"),
                    Word::plain("get-16384", "get 16 KB"),
                    Word::plain("set-1024", "set 1 KB"),
                ],
            ),
            // Where the item is, and who is asked.
            Dimension::new(
                "way",
                "",
                &[
                    Word::new("own", "own item", Style::OURS),
                    Word::new("neighbour", "neighbour's item", Style::FIFTH),
                    Word::new("stopped", "neighbour's, home stopped", Style::THIRD),
                    Word::new("memcached", "memcached", Style::BASELINE),
                    Word::new("nutcracker", "memcached through nutcracker", Style::FOURTH),
                    // A cache that belongs to no cluster.
                    Word::new("unix", "own item, Unix socket", Style::series(5)),
                    Word::new("memcached-unix", "memcached, Unix socket", Style::series(6)),
                ],
            ),
        ],
        cases: &["get-1024,get-16384/*", "set-1024/own,neighbour"],
        measures: &[
            Measure::new("p50_us", "p50, µs", [2, 1]),
            Measure::new("p99_us", "p99, µs", [2, 1]),
            Measure::new("requests_per_s", "requests/s", [0, 0]),
            Measure::new("cpu_us", "CPU of the server that is asked, µs a request", [3, 2]),
            // The item's home, the idle neighbour, or memcached.
            Measure::new("behind_cpu_us", "of the server behind it", [4, 3]),
            Measure::derived("all_cpu_us", "CPU time, µs", 2),
            Measure::derived("behind_ms", "CPU of the home, ms for a million", 2),
            Measure::derived("idle_ms", "in the same time when idle", 2),
            Measure::derived("home_ms", "for the reads", 2),
            // All servers are held to one CPU, whose time the kernel counts in ticks.
            Measure::new("cpus", "CPUs in use", [3, 2]).possible(|_| 0.0..=1.1),
            // Whether all are found while the home is stopped is a target.
            Measure::new("misses", "found nothing", [0, 0])
                .possible(|case| 0.0..=if case.is("*/stopped") { f64::INFINITY } else { 0.0 }),
        ],
        charts: &[
            Chart::bars("half are answered within", "p50_us", "request", "way"),
            Chart::bars("99 of 100 are answered within", "p99_us", "request", "way"),
            Chart::bars("what a request costs all servers", "all_cpu_us", "request", "way"),
        ],
        settings: |quick| {
            json!({
                "turn_s": TIMES[usize::from(quick)].as_secs_f64(),
                "settle_s": SETTLE.as_secs_f64(),
                "items": ITEMS,
                "missing": null,
            })
        },
        template: include_str!("neighbour.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

/// What the client asks for, and the bytes of a value.
fn request(name: &str) -> (Request, usize) {
    match name {
        "get-1024" => (Request::Gets, 1024),
        "get-16384" => (Request::Gets, 16 * 1024),
        _ => (Request::Sets, 1024),
    }
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    // Before anything is started: without two the experiment cannot be made.
    let cpus = cpus::two()?;
    let time = bench.either(TIMES);
    let stage = Stage::set(bench)?;
    bench.set("missing", stage.missing());
    bench.rounds(&[(time + SETTLE) * bench.cases().len() as u32], |bench| {
        bench.begin(&format!("round-{}", bench.repetition));
        let _awake = Awake::hold(&cpus)?;
        for name in bench.samples.begins("*") {
            let (request, value_bytes) = request(&name);
            stage.fill(value_bytes)?;
            let cases = bench.cases().into_iter().filter(|case| case.starts_with(&format!("{name}/")));
            bench.in_turn(&cases.collect::<Vec<_>>(), |bench, case| {
                let way = case.split('/').nth(1).unwrap_or_default();
                let Some((asked, cpu)) = stage.turn(request, value_bytes, way, time)? else { return Ok(()) };
                let us = |cpu: &Duration| cpu.as_secs_f64() * 1e6 / asked.took_us.len() as f64;
                let figures = [
                    ("p50_us", asked.quantile(0.5)),
                    ("p99_us", asked.quantile(0.99)),
                    ("requests_per_s", asked.per_s()),
                    ("cpu_us", us(&cpu[0])),
                    ("cpus", cpu.iter().sum::<Duration>().as_secs_f64() / asked.time.as_secs_f64()),
                    ("misses", asked.misses as f64),
                ];
                let behind = cpu.get(1).map(|cpu| ("behind_cpu_us", us(cpu)));
                bench.sample(&case, figures.into_iter().chain(behind))
            })?;
        }
        bench.end();
        Ok(())
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("all_cpu_us", "*/*", |samples, case| {
        let alone = &samples[case]["cpu_us"];
        let all = alone + &samples[case]["behind_cpu_us"];
        all.or(alone)
    });
    // The CPU time of the second cache while a million of its items are read, and in the same time while nobody reads them.
    samples.derive("behind_ms", "*/neighbour", |samples, case| &samples[case]["behind_cpu_us"] * 1e3);
    samples.derive("idle_ms", "*/neighbour", |samples, case| {
        let idle = &samples[case.replace("neighbour", "own")];
        &idle["behind_cpu_us"] * &idle["requests_per_s"] / &samples[case]["requests_per_s"] * 1e3
    });
    samples.derive("home_ms", "*/neighbour", |samples, case| {
        (&samples[case]["behind_ms"] - &samples[case]["idle_ms"]).map(|ms| ms.max(0.0))
    });

    let compare = |request: &str, figure: &str, of: &str, to: &str, most: f64| {
        let [of, to] = [of, to].map(|way| format!("{request}/{way}"));
        let [of_what, to_what] = [&of, &to]
            .map(|case| samples.dimensions[1].label_of(case.split('/').nth(1).unwrap_or("")).to_owned());
        let name = figure.trim_end_matches("_us");
        let what = format!("{}: {name}, {of_what} / {to_what}, median of the rounds", samples.label(request));
        Check::at_most(what, most, &samples[of][figure] / &samples[to][figure])
    };
    let of_gets = |request: &str| {
        let of = |what: &str| format!("{}: {what}", samples.label(request));
        [
            compare(request, "p50_us", "neighbour", "own", 1.15),
            compare(request, "p50_us", "neighbour", "nutcracker", 0.7),
            compare(request, "p50_us", "own", "memcached", 1.05),
            compare(request, "p99_us", "own", "memcached", 1.1),
            compare(request, "p50_us", "unix", "memcached-unix", 1.05),
            compare(request, "p99_us", "unix", "memcached-unix", 1.1),
            Check::at_most(
                of(
                    "CPU time of the home beyond what it takes idle, ms for a million of its items read by others",
                ),
                10.0,
                &samples[format!("{request}/neighbour")]["home_ms"],
            ),
            Check::at_most(
                of("gets that found nothing while the home was stopped"),
                0.0,
                &samples[format!("{request}/stopped")]["misses"],
            ),
        ]
    };
    let mut checks = ["get-1024", "get-16384"].map(of_gets).concat();
    checks.push(compare("set-1024", "p50_us", "neighbour", "own", 2.2));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    /// The targets that are missed where each is just met, but for a change of one figure.
    fn missed(changed: &str, figure: &'static str, value: f64) -> Vec<usize> {
        let verdicts = judged(&K2, |samples| {
            for case in ["get-1024", "get-16384", "set-1024"] {
                let own = if case == "set-1024" { [20.0, 80.0] } else { [20.0, 44.0] };
                let neighbour = if case == "set-1024" { [44.0, 80.0] } else { [23.0, 50.0] };
                let ways = [
                    ("own", own, 0.001),
                    ("neighbour", neighbour, 0.011),
                    ("stopped", [23.0, 50.0], 0.0),
                    ("memcached", [20.0, 40.0], 0.0),
                    ("nutcracker", [40.0, 90.0], 9.0),
                    ("unix", [10.5, 22.0], 0.0),
                    ("memcached-unix", [10.0, 20.0], 0.0),
                ];
                for (way, [p50_us, p99_us], behind_cpu_us) in ways {
                    // In as much time the idle neighbour takes as much.
                    let figures =
                        [("p50_us", p50_us), ("p99_us", p99_us), ("requests_per_s", 40e3), ("misses", 0.0)];
                    let case = format!("{case}/{way}");
                    samples.put(&case, figures.into_iter().chain([("behind_cpu_us", behind_cpu_us)]));
                    if case == changed {
                        samples.put(&case, [(figure, value)]);
                    }
                }
            }
        });
        (0..verdicts.len()).filter(|at| verdicts[*at] == "MISSED").collect()
    }

    #[test]
    fn each_way_is_judged_beside_another() {
        assert_eq!(missed("none", "p50_us", 0.0), [] as [usize; 0]);
        assert_eq!(missed("get-1024/neighbour", "p50_us", 23.5), [0]);
        assert_eq!(missed("get-1024/unix", "p50_us", 10.6), [4]);
        assert_eq!(missed("get-1024/memcached-unix", "p99_us", 19.0), [5]);
        assert_eq!(missed("get-16384/nutcracker", "p50_us", 30.0), [9]);
        assert_eq!(missed("get-1024/memcached", "p50_us", 19.0), [2]);
        assert_eq!(missed("get-1024/own", "p99_us", 45.0), [3]);
        assert_eq!(missed("get-16384/neighbour", "behind_cpu_us", 0.0112), [14]);
        // Idle it takes twice as much in the same time, which is all that it takes.
        assert_eq!(missed("get-16384/own", "requests_per_s", 400e3), [] as [usize; 0]);
        assert_eq!(missed("get-16384/stopped", "misses", 1.0), [15]);
        assert_eq!(missed("set-1024/neighbour", "p50_us", 45.0), [16]);
        assert_eq!(judged(&K2, |_| ()), ["not measured"; 17]);
    }
}
