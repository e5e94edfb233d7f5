//! K3: what a key that everybody asks for costs its home, if it is asked for through another cache.
//!
//! The client sends gets by 32, as many clients would. So there is no time in which the caches wait for it.

mod stage;

use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::cpus;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;
use crate::series::Series;
use stage::{SETTLE, Stage};

/// The duration of a turn of each way, in full and quick.
const TIMES: [Duration; 2] = [Duration::from_secs(4), Duration::from_millis(600)];
/// Bytes of the key's value.
const VALUE_BYTES: usize = 1024;
/// How old copies may be.
const FRESH: Duration = Duration::from_millis(100);
/// Gets that are under way.
const PIPELINED: u32 = 32;

pub(crate) const K3: Experiment = Experiment::new(
    "K3",
    OWN,
    "a key that everybody asks for, through another cache than its home",
    Design {
        repeat: [5, 5],
        dimensions: &[Dimension::new(
            "way",
            "where the item comes from",
            &[
                // The cache that is asked is its home.
                Word::new("own", "own item", Style::THIRD),
                Word::new("memory", "home's memory", Style::FIFTH),
                Word::new("asked", "home asked over TCP", Style::BASELINE),
                // The cache that is asked gives a copy, and asks the home when that is too old.
                Word::new("copies", "copies", Style::OURS),
            ],
        )],
        cases: &["*"],
        measures: &[
            Measure::new("gets_per_s", "gets/s", [0, 0]),
            Measure::new("cpu_us", "CPU of the cache that is asked, µs a get", [3, 3]),
            // That of the idle other cache where the item is the first's own.
            Measure::new("home_cpu_us", "CPU of the home, µs a get", [4, 4]),
            Measure::derived("home_ms", "beyond what it takes idle, ms for a million gets", 2),
            // All caches are held to one CPU, whose time the kernel counts in ticks.
            Measure::new("cpus", "CPUs in use", [3, 2]).possible(|_| 0.0..=1.1),
            Measure::new("misses", "found nothing", [0, 0]).possible(|_| 0.0..=0.0),
        ],
        charts: &[
            Chart::bars("gets of one key", "gets_per_s", "way", "way"),
            Chart::bars("what a get costs the cache that is asked", "cpu_us", "way", "way")
                .unit(1.0, "CPU time, µs"),
            Chart::bars("and the key's home", "home_cpu_us", "way", "way").unit(1.0, "CPU time, µs"),
        ],
        settings: |quick| {
            json!({
                "turn_s": TIMES[usize::from(quick)].as_secs_f64(),
                "settle_s": SETTLE.as_secs_f64(),
                "value_bytes": VALUE_BYTES,
                "fresh_ms": FRESH.as_millis(),
                "pipelined": PIPELINED,
            })
        },
        template: include_str!("hot.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    let (time, ways) = (bench.either(TIMES), bench.cases());
    let stage = Stage::set(bench)?;
    bench.rounds(&[(time + SETTLE) * ways.len() as u32], |bench| {
        bench.round_of(&ways, |bench, way| {
            let (asked, cpu) = stage.turn(&way, time)?;
            let per_s = asked.per_s() * f64::from(PIPELINED);
            let [cpus, home_cpus] = cpu.map(|cpu| cpu.as_secs_f64() / asked.time.as_secs_f64());
            let figures = [
                ("gets_per_s", per_s),
                ("cpu_us", cpus / per_s * 1e6),
                ("home_cpu_us", home_cpus / per_s * 1e6),
                ("cpus", cpus + home_cpus),
                ("misses", asked.misses as f64),
            ];
            bench.sample(&way, figures)
        })
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    // What the home takes beyond the idle cache in the same time.
    samples.derive("home_ms", "memory,asked,copies", |samples, way| {
        let (idle, home) = (&samples["own"], &samples[way]);
        let idle_us = &idle["home_cpu_us"] * &idle["gets_per_s"] / &home["gets_per_s"];
        (&home["home_cpu_us"] - idle_us).map(|us| us.max(0.0) * 1e3)
    });
    let of_home = |way| {
        let what = format!(
            "{}: CPU time of the home beyond what it takes idle, ms for a million gets through another cache, median of the rounds",
            samples.label(way)
        );
        Check::at_most(what, 10.0, &samples[way]["home_ms"])
    };
    let both = |way: &str| -> Series { &samples[way]["cpu_us"] + &samples[way]["home_cpu_us"] };
    let what = |way| format!("CPU time of both caches for a get, {way}, median of the rounds");
    let copies = what("copies / home asked over TCP");
    let own = what("own item / home asked over TCP");
    vec![
        of_home("memory"),
        of_home("copies"),
        Check::at_most(copies, 0.5, both("copies") / both("asked")),
        Check::at_least(own, 0.35, both("own") / both("asked")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn each_way_is_judged_by_what_it_costs_the_home() {
        // In twice the time it takes twice as much idle.
        let ways = [
            ("own", 500e3, 2.8, 0.001),
            ("memory", 250e3, 4.0, 0.012),
            ("asked", 125e3, 6.0, 2.0),
            ("copies", 500e3, 3.989, 0.011),
        ];
        let missed = |changed: &str, home_us: f64| {
            let verdicts = judged(&K3, |samples| {
                for (way, gets_per_s, cpu_us, home_cpu_us) in ways {
                    let home_cpu_us = if way == changed { home_us } else { home_cpu_us };
                    let figures =
                        [("gets_per_s", gets_per_s), ("cpu_us", cpu_us), ("home_cpu_us", home_cpu_us)];
                    samples.put(way, figures);
                }
            });
            (0..verdicts.len()).filter(|at| verdicts[*at] == "MISSED").collect::<Vec<_>>()
        };
        assert_eq!(missed("none", 0.0), [] as [usize; 0]);
        assert_eq!(missed("memory", 0.0121), [0]);
        assert_eq!(missed("copies", 0.0112), [1, 2]);
        assert_eq!(missed("asked", 1.9), [2]);
        assert_eq!(missed("asked", 2.1), [3]);
    }
}
