//! K5: what the others' clients notice when a cache of a cluster is killed (SIGKILL), and when it is back.
//!
//! One client asks the two other caches, in turn, for keys of all three, and changes some. It knows what each key may have.

mod client;
mod stage;

use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;
use sidelong_figure::statistics::quantile;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::cpus;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;
use client::{End, KEYS, Request, VALUE_BYTES};
use stage::{Played, Stage};

/// The time before the cache is killed, while it is dead, and once it is back.
const TIME: Duration = Duration::from_secs(1);
/// Requests are normal again once in so much time not more than one of a hundred takes longer than [`NORMAL`] times the p99 from before,
/// and at least half as many are made.
const WINDOW: Duration = Duration::from_millis(50);
const NORMAL: f64 = 1.5;

pub(crate) const K5: Experiment = Experiment::new(
    "K5",
    OWN,
    "a cache of three is killed and comes back",
    Design {
        // The cache is killed once in each.
        repeat: [10, 3],
        dimensions: &[Dimension::new(
            "phase",
            "the third cache",
            &[
                Word::new("alive", "before", Style::THIRD),
                Word::new("dead", "it is dead", Style::OURS),
                Word::new("back", "it is back", Style::FOURTH),
            ],
        )],
        cases: &["*"],
        measures: &[
            Measure::new("requests", "requests", [0, 0]).possible(|_| 1.0..=f64::INFINITY),
            Measure::new("hits", "hits", [0, 0]),
            Measure::new("misses", "misses", [0, 0]),
            Measure::derived("hits_percent", "hits, % of gets", 1),
            // With none before, nothing could be lost.
            Measure::new("failed", "failed sets", [0, 0])
                .possible(|case| 0.0..=if case.is("alive") { 0.0 } else { f64::INFINITY }),
            Measure::new("wrong", "wrong values", [0, 0]),
            Measure::new("p50_us", "p50, µs", [1, 1]),
            Measure::new("p99_us", "p99, µs", [1, 1]),
            Measure::new("max_ms", "longest, ms", [3, 2]),
            // Until requests are as before; infinite if they never are.
            Measure::new("normal_after_ms", "normal after, ms", [1, 1]),
        ],
        charts: &[
            Chart::bars("requests are normal again after", "normal_after_ms", "phase", "phase"),
            Chart::bars("99 of 100 are answered within", "p99_us", "phase", "phase"),
            Chart::bars("the longest takes", "max_ms", "phase", "phase"),
        ],
        settings: |_| {
            json!({
                "phase_s": TIME.as_secs_f64(),
                "keys": KEYS,
                "value_bytes": VALUE_BYTES,
                "window_ms": WINDOW.as_millis(),
                "normal": NORMAL,
            })
        },
        template: include_str!("death.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    let mut stage = Stage::set(bench)?;
    bench.rounds(&[3 * TIME], |bench| {
        bench.begin(&format!("kill-{}", bench.repetition));
        let played = stage.play(bench, TIME)?;
        bench.end();
        phases(&played).into_iter().try_for_each(|(phase, figures)| bench.sample(phase, figures))
    })
}

/// The figures of a phase, by measure.
type Figures = Vec<(&'static str, f64)>;

/// The figures of the phases of a kill.
fn phases(Played { requests, killed, back }: &Played) -> [(&'static str, Figures); 3] {
    let (alive, rest) = requests.split_at(requests.partition_point(|request| request.done <= *killed));
    let (dead, again) = rest.split_at(rest.partition_point(|request| request.done <= *back));
    let before = Before::of(alive);
    let figures = |requests: &[Request], since: Option<Duration>| {
        let mut took_us: Vec<_> = requests.iter().map(|request| request.took.as_secs_f64() * 1e6).collect();
        took_us.sort_by(f64::total_cmp);
        let at = |q| quantile(&took_us, q).unwrap_or(0.0);
        let count = |end| requests.iter().filter(|request| request.end == end).count() as f64;
        let mut figures = vec![
            ("requests", requests.len() as f64),
            ("hits", count(End::Hit)),
            ("misses", count(End::Miss)),
            ("failed", count(End::Failed)),
            ("wrong", count(End::Wrong)),
            ("p50_us", at(0.5)),
            ("p99_us", at(0.99)),
            ("max_ms", at(1.0) / 1e3),
        ];
        if let Some(since) = since {
            let after = before.as_ref().and_then(|before| before.normal_after(requests, since));
            let ms = after.map_or(f64::INFINITY, |after| after.as_secs_f64() * 1e3);
            figures.push(("normal_after_ms", ms));
        }
        figures
    };
    [
        ("alive", figures(alive, None)),
        ("dead", figures(dead, Some(*killed))),
        ("back", figures(again, Some(*back))),
    ]
}

/// What is normal.
struct Before {
    p99: Duration,
    per_s: f64,
}

impl Before {
    fn of(requests: &[Request]) -> Option<Before> {
        let mut took: Vec<_> = requests.iter().map(|request| request.took.as_secs_f64()).collect();
        took.sort_by(f64::total_cmp);
        let time = requests.last()?.done.saturating_sub(requests.first()?.done);
        let per_s = requests.len() as f64 / time.as_secs_f64();
        Some(Before { p99: Duration::from_secs_f64(quantile(&took, 0.99)?), per_s })
    }

    /// How long after `since` the requests are normal.
    fn normal_after(&self, requests: &[Request], since: Duration) -> Option<Duration> {
        let is_slow = |request: &Request| request.took > self.p99.mul_f64(NORMAL);
        let enough = self.per_s * WINDOW.as_secs_f64() / 2.0;
        let is_normal = |from: &Duration| {
            let begin = requests.partition_point(|request| request.done <= *from);
            let end = requests.partition_point(|request| request.done <= *from + WINDOW);
            let slow = requests[begin..end].iter().filter(|request| is_slow(request)).count();
            let count = end - begin;
            count as f64 >= enough && slow * 100 <= count
        };
        // It begins when one that took long is done, if not at once.
        let done = requests.iter().filter(|request| is_slow(request)).map(|request| request.done);
        [since].into_iter().chain(done).find(is_normal).map(|from| from - since)
    }
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("hits_percent", "*", |samples, phase| {
        let figures = &samples[phase];
        &figures["hits"] / (&figures["hits"] + &figures["misses"] + &figures["wrong"]) * 100.0
    });
    let until = |phase, what| {
        let what =
            format!("ms after a cache was {what} until the others' requests are normal, median of the kills");
        Check::at_most(what, 150.0, &samples[phase]["normal_after_ms"])
    };
    vec![
        Check::at_most("wrong values, all kills", 0.0, samples.total("*", "wrong")),
        until("dead", "killed"),
        until("back", "started again"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    const MS: Duration = Duration::from_millis(1);

    /// Requests one after the other, each of which takes so many µs, from `begin` on.
    fn requests(begin: Duration, took_us: impl IntoIterator<Item = u64>) -> Vec<Request> {
        let mut now = begin;
        let one = |took: Duration| {
            now += took;
            Request { done: now, took, end: End::Hit }
        };
        took_us.into_iter().map(Duration::from_micros).map(one).collect()
    }

    #[test]
    fn requests_are_normal_from_when_on_few_are_slow_and_enough_are_made() {
        let before = Before::of(&requests(Duration::ZERO, [100; 10_000])).unwrap();
        assert_eq!(before.p99, Duration::from_micros(100));
        let after = |took_us: Vec<u64>| before.normal_after(&requests(1000 * MS, took_us), 1000 * MS);
        assert_eq!(after(vec![100; 2_000]), Some(Duration::ZERO));
        // One stands for 80 ms.
        assert_eq!(after([vec![100; 20], vec![80_000], vec![100; 1_000]].concat()), Some(82 * MS));
        // Each third is slow for 30 ms. The last four are not more than one of a hundred.
        let slow = [[100, 100, 300]; 60].concat();
        assert_eq!(after([slow.clone(), vec![100; 1_000]].concat()), Some(28 * MS));
        assert_eq!(after(slow.repeat(30)), None, "it never is");
        assert_eq!(after(vec![149; 400]), Some(Duration::ZERO), "half as many are enough");
        assert_eq!(after(vec![]), None);
    }

    #[test]
    fn phases_are_parted_by_when_the_cache_died_and_came_back() {
        let all = requests(Duration::ZERO, [1000; 300]);
        let mut played = Played { requests: all, killed: 100 * MS, back: 200 * MS };
        played.requests[150].end = End::Wrong;
        played.requests[160].end = End::Failed;
        let phases = phases(&played);
        let of = |measure: &str| {
            let value = |figures: &Figures| Some(figures.iter().find(|(name, _)| *name == measure)?.1);
            [0, 1, 2].map(|at| value(&phases[at].1))
        };
        assert_eq!(of("requests"), [Some(100.0); 3]);
        assert_eq!([of("wrong"), of("failed")], [[Some(0.0), Some(1.0), Some(0.0)]; 2]);
        assert_eq!(of("normal_after_ms"), [None, Some(0.0), Some(0.0)]);
        let verdicts = judged(&K5, |samples| {
            phases.clone().into_iter().for_each(|(phase, figures)| samples.put(phase, figures));
        });
        assert_eq!(verdicts, ["MISSED", "met", "met"]);
        let never =
            |samples: &mut Samples| samples.put("dead", [("wrong", 0.0), ("normal_after_ms", f64::INFINITY)]);
        assert_eq!(judged(&K5, never), ["met", "MISSED", "not measured"]);
    }
}
