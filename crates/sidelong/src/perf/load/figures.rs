//! What came of a measurement, as JSON and as lines.

use std::fmt::Write as _;

use serde::Serialize;

use super::args::Measure;
use crate::failure::{Failure, say};

/// All of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) measure: Measure,
    pub(super) scheme: String,
    /// Threads on the node's CPU.
    pub(super) background: u32,
    pub(super) granularity_ms: f64,
    /// T, of the schemes that have a thread which refreshes the record.
    pub(super) period_ms: f64,
    /// Where each side was held to.
    pub(super) node_cpu: Option<usize>,
    pub(super) this_cpu: Option<usize>,
    #[serde(flatten)]
    pub(super) found: Found,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Found {
    Latency(Times),
    Steps(Steps),
    Slowdown(Slowdown),
    Accuracy(Accuracy),
    Interrupts(Interrupts),
}

/// Times in us. None where there are none.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Times {
    pub(super) samples: usize,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) max_us: Option<f64>,
    pub(super) mean_us: Option<f64>,
    /// Looks that brought no record to decide from.
    pub(super) unusable: u64,
}

impl Times {
    pub(super) fn new(mut us: Vec<f64>, unusable: u64) -> Times {
        us.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let at = (us.len() as f64 * share) as usize;
            us.get(at.min(us.len().saturating_sub(1))).copied()
        };
        let mean = (!us.is_empty()).then(|| us.iter().sum::<f64>() / us.len() as f64);
        Times {
            samples: us.len(),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            max_us: us.last().copied(),
            mean_us: mean,
            unusable,
        }
    }
}

/// Times from a step to its being seen.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Steps {
    /// That woke.
    pub(super) threads: u32,
    /// Steps that did not show in seconds.
    pub(super) unseen: u64,
    /// Steps that were left out because the record showed as many threads before.
    pub(super) unclear: u64,
    #[serde(flatten)]
    pub(super) times: Times,
}

/// Medians of the rounds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Slowdown {
    pub(super) rounds: usize,
    /// Of the application alone, in ms.
    pub(super) alone_ms: f64,
    /// With a node that is looked at, over alone.
    pub(super) normalized_delay: f64,
    /// With a node at which nobody looks, over alone: what keeping the record costs.
    pub(super) kept: f64,
    /// Looked at, over not looked at.
    pub(super) looks: f64,
}

impl Slowdown {
    /// Of as many times in each, by round.
    pub(super) fn new(alone: Vec<f64>, kept: Vec<f64>, looked_at: Vec<f64>) -> Slowdown {
        let ratio =
            |over: &[f64], under: &[f64]| median(over.iter().zip(under).map(|(o, u)| o / u).collect());
        Slowdown {
            rounds: alone.len(),
            normalized_delay: ratio(&looked_at, &alone),
            kept: ratio(&kept, &alone),
            looks: ratio(&looked_at, &kept),
            alone_ms: median(alone),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (below, above) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    f64::midpoint(values[below], values[above])
}

/// What the record says, less the truth.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Accuracy {
    pub(super) looks: usize,
    pub(super) unusable: u64,
    /// Where the truth of CPU load is from.
    pub(super) cpu_truth: &'static str,
    pub(super) threads: Deviation,
    /// In percent of all CPUs.
    pub(super) cpu_percent: Deviation,
}

/// What the looks showed pending.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Interrupts {
    pub(super) looks: u64,
    /// Whether the record tells pending interrupts at all.
    pub(super) told: bool,
    /// By CPU: all that were seen, look by look.
    pub(super) seen: Vec<u64>,
    /// By CPU: the most in one look.
    pub(super) most: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Deviation {
    pub(super) mean: Option<f64>,
    pub(super) max: Option<f64>,
}

impl Deviation {
    pub(super) fn of(absolute: &[f64]) -> Deviation {
        let mean = (!absolute.is_empty()).then(|| absolute.iter().sum::<f64>() / absolute.len() as f64);
        Deviation { mean, max: absolute.iter().copied().reduce(f64::max) }
    }
}

pub(super) fn print(figures: &Figures, json: bool) -> Result<(), Failure> {
    if json {
        return say(serde_json::to_string_pretty(figures)? + "\n");
    }
    say(lines(figures))
}

fn lines(figures: &Figures) -> String {
    let Figures { scheme, background, granularity_ms, period_ms, .. } = figures;
    let on = |cpu: Option<usize>| cpu.map_or_else(|| "any CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    let mut out = format!(
        "load of one node by {scheme}: the node and {background} threads on {}, this side on {}; a look every \
         {granularity_ms} ms, T = {period_ms} ms\n",
        on(figures.node_cpu),
        on(figures.this_cpu),
    );
    let _ = match &figures.found {
        Found::Latency(times) => writeln!(out, "a look: {}", of(times)),
        Found::Steps(Steps { threads, unseen, unclear, times }) => {
            writeln!(
                out,
                "{threads} threads that wake are seen after: {}; {unseen} not seen, {unclear} unclear",
                of(times)
            )
        }
        Found::Slowdown(Slowdown { rounds, alone_ms, normalized_delay, kept, looks }) => writeln!(
            out,
            "an application of {alone_ms:.1} ms takes {normalized_delay:.4} of that ({kept:.4} for keeping the record, {looks:.4} for \
             the looks), median of {rounds} rounds"
        ),
        Found::Interrupts(Interrupts { looks, told, seen, most }) => writeln!(
            out,
            "seen pending in {looks} looks, by CPU: {seen:?}, at most {most:?} at once{}",
            if *told { "" } else { "; this scheme's record does not tell them" }
        ),
        Found::Accuracy(Accuracy { looks, threads, cpu_percent, cpu_truth, .. }) => {
            let pair = |Deviation { mean, max }: &Deviation| {
                format!("{} mean, {} most", number(*mean), number(*max))
            };
            writeln!(
                out,
                "off by, in {looks} looks: threads {}; CPU in percent {} (truth: {cpu_truth})",
                pair(threads),
                pair(cpu_percent)
            )
        }
    };
    out
}

fn of(times: &Times) -> String {
    let Times { samples, p50_us, p99_us, max_us, mean_us, .. } = times;
    let [p50, p99, max, mean] = [p50_us, p99_us, max_us, mean_us].map(|us| number(*us));
    format!("p50 {p50}, p99 {p99}, most {max}, mean {mean} us, of {samples}")
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_times() {
        let times = Times::new((1..=100).rev().map(f64::from).collect(), 3);
        assert_eq!((times.p50_us, times.p99_us, times.max_us), (Some(51.0), Some(100.0), Some(100.0)));
        assert_eq!((times.mean_us, times.samples, times.unusable), (Some(50.5), 100, 3));
        assert_eq!(Times::new(vec![], 0).p50_us, None);
    }

    #[test]
    fn a_slowdown_is_the_median_of_ratios_by_round() {
        let slow =
            Slowdown::new(vec![100.0, 200.0, 100.0], vec![101.0, 204.0, 100.0], vec![110.0, 220.0, 150.0]);
        assert_eq!((slow.rounds, slow.alone_ms), (3, 100.0));
        assert!((slow.normalized_delay - 1.1).abs() < 1e-9 && (slow.kept - 1.01).abs() < 1e-9);
    }

    #[test]
    fn deviations_are_of_what_there_is() {
        assert_eq!(Deviation::of(&[1.0, 3.0]), Deviation { mean: Some(2.0), max: Some(3.0) });
        assert_eq!(Deviation::of(&[]).mean, None);
    }
}
