//! K6: how often eight caches that are one miss, beside one cache of as much memory, and beside eight that know nothing of each other.
//!
//! A cache has 8 MiB at least, which is more than the tenth of a trace's footprint. So sizes are multiplied until it is that.

mod play;

use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;

use super::demand::Demand;
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

/// Caches, and the memory of each in MiB.
const CACHES: u16 = 8;
const MEMORY_MIB: u32 = 8;
/// The part of the footprint that all of them have, in percent.
const PART_PERCENT: u32 = 10;
/// Requests of a trace, of which the first fifth is not counted.
const REQUESTS: [usize; 2] = [2_000_000, 200_000];
const WARMUP_PART: usize = 5;
/// About how long they take, for each.
const REQUEST: Duration = Duration::from_micros(20);

pub(crate) const K6: Experiment = Experiment::new(
    "K6",
    OWN,
    "misses of eight caches that are one, beside one",
    Design {
        // Misses are judged, not times.
        needs_the_machine: false,
        dimensions: &[Dimension::new(
            "system",
            "caches",
            &[
                Word::new("unified", "one, LRU", Style::BASELINE),
                // They know nothing of each other.
                Word::new("separate", "eight by themselves, LRU", Style::THIRD),
                Word::new("lru", "eight that are one, LRU", Style::FOURTH),
                Word::new("sieve", "eight that are one, SIEVE", Style::OURS),
                Word::new("s3-fifo", "eight that are one, S3-FIFO", Style::FIFTH),
            ],
        )],
        cases: &["*"],
        measures: &[
            Measure::new("requests", "requests", [0, 0]),
            Measure::new("miss_rate", "misses of a request", [5, 4]).possible(|_| 0.0..=1.0),
            Measure::derived("misses_percent", "misses, %", 2),
            Measure::derived("ratio", "misses / one cache, LRU", 3),
            Measure::new("failed", "items that were not stored", [0, 0]).possible(|_| 0.0..=0.0),
        ],
        charts: &[Chart::bars("requests that miss", "misses_percent", "system", "system")],
        settings: |_| {
            json!({
                "caches": CACHES,
                "memory_mib": MEMORY_MIB,
                "part_percent": PART_PERCENT,
                "at_once": play::AT_ONCE,
                "trace": null,
                "is_real": null,
                "requests": null,
                "factor": null,
            })
        },
        template: include_str!("trace.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    let memory_bytes = (u64::from(CACHES) * u64::from(MEMORY_MIB)) << 20;
    let footprint_bytes = memory_bytes as f64 * 100.0 / f64::from(PART_PERCENT);
    let demand = Demand::find(bench, bench.either(REQUESTS), Some(footprint_bytes))?;
    bench.set("trace", demand.name.as_str());
    bench.set("is_real", demand.is_real);
    bench.set("requests", demand.requests.len());
    bench.set("factor", (demand.factor * 10.0).round() / 10.0);
    let systems = bench.cases();
    bench.rounds(&vec![REQUEST * demand.requests.len() as u32; systems.len()], |bench| {
        for system in &systems {
            let name = bench.name(system.as_str());
            bench.begin(&name);
            let counts = play::play(bench, &name, system, &demand)?;
            let miss_rate = counts.misses as f64 / counts.requests.max(1) as f64;
            let figures = [
                ("requests", counts.requests as f64),
                ("miss_rate", miss_rate),
                ("failed", counts.failed as f64),
            ];
            bench.sample(system, figures)?;
            bench.end();
        }
        Ok(())
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("misses_percent", "*", |samples, system| &samples[system]["miss_rate"] * 100.0);
    samples.derive("ratio", "*", |samples, system| {
        &samples[system]["miss_rate"] / &samples["unified"]["miss_rate"]
    });
    let is_real = samples.settings["is_real"] == true;
    let check = |system: &str, most: f64| {
        let what = format!("misses, {} / one cache, LRU, of a real trace", samples.label(system));
        let ratio = if is_real { samples[system]["ratio"].clone() } else { Series::default() };
        Check::at_most(what, most, ratio)
    };
    vec![check("lru", 1.12), check("sieve", 1.0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn a_real_trace_is_judged_beside_one_cache() {
        let verdicts = |is_real: bool, unified| {
            judged(&K6, |samples| {
                samples.settings["is_real"] = is_real.into();
                for (system, miss_rate) in [("unified", unified), ("lru", 0.28), ("sieve", 0.25)] {
                    samples.put(system, [("miss_rate", miss_rate)]);
                }
            })
        };
        assert_eq!(verdicts(true, 0.25), ["met"; 2]);
        assert_eq!(verdicts(true, 0.249), ["MISSED"; 2]);
        assert_eq!(verdicts(false, 0.25), ["not measured"; 2]);
    }
}
