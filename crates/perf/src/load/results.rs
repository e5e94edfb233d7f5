//! The output of `sidelong-lab perf load`.

use serde::{Deserialize, Serialize};
use sidelong_figure::statistics::{mean, median, quantile};

/// The figures of one measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// The scheme that was used.
    pub scheme: String,
    /// Threads on the node's CPU.
    pub background: u32,
    /// Interval between two samples.
    pub granularity_ms: f64,
    /// T, for schemes in which a thread of the node refreshes the record.
    pub period_ms: f64,
    /// The CPUs of both sides.
    #[serde(flatten)]
    pub placement: Placement,
    /// The result.
    #[serde(flatten)]
    pub found: Found,
}

/// The CPU that each side was pinned to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placement {
    /// The CPU of the node and of all load.
    pub node_cpu: Option<usize>,
    /// The CPU of the side that samples.
    pub this_cpu: Option<usize>,
}

/// The result, by the name of what was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "measure", rename_all = "kebab-case")]
pub enum Found {
    /// Times of samples.
    Latency(Times),
    /// Times from load steps until a sample shows them.
    Step(Steps),
    /// Slowdown of an application on the node.
    Slowdown(Slowdown),
    /// Differences of the record from the kernel's own counts.
    Accuracy(Accuracy),
    /// Pending interrupts.
    Interrupts(Interrupts),
}

/// Times in us. `None` if there are no samples.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Times {
    /// How many there are.
    pub samples: u64,
    /// Median.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
    /// Mean.
    pub mean_us: Option<f64>,
    /// Samples without a usable record.
    pub unusable: u64,
}

impl Times {
    /// The statistics of `us`.
    pub fn of(mut us: Vec<f64>, unusable: u64) -> Times {
        us.sort_by(f64::total_cmp);
        Times {
            samples: us.len() as u64,
            p50_us: quantile(&us, 0.5),
            p99_us: quantile(&us, 0.99),
            max_us: us.last().copied(),
            mean_us: mean(&us),
            unusable,
        }
    }
}

/// Times from a load step until a sample shows it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Steps {
    /// Threads that wake at each step.
    pub threads: u32,
    /// Steps that no sample showed within seconds.
    pub unseen: u64,
    /// Steps that were left out because the record had as many threads before.
    pub unclear: u64,
    /// Times of the steps that were seen.
    #[serde(flatten)]
    pub times: Times,
}

/// Medians of the rounds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slowdown {
    /// Number of rounds.
    pub rounds: u64,
    /// Time of the application alone.
    pub alone_ms: f64,
    /// Time beside a node that is sampled, over the time alone.
    pub normalized_delay: f64,
    /// Time beside a node that is not sampled, over the time alone: the cost of keeping the record.
    pub kept: f64,
    /// Time beside a sampled node, over the time beside one that is not.
    pub sampling: f64,
}

impl Slowdown {
    /// The medians over the rounds. `None` if there are none.
    pub fn of(alone: Vec<f64>, kept: Vec<f64>, sampled: Vec<f64>) -> Option<Slowdown> {
        let ratio =
            |over: &[f64], under: &[f64]| median(over.iter().zip(under).map(|(o, u)| o / u).collect());
        Some(Slowdown {
            rounds: alone.len() as u64,
            normalized_delay: ratio(&sampled, &alone)?,
            kept: ratio(&kept, &alone)?,
            sampling: ratio(&sampled, &kept)?,
            alone_ms: median(alone)?,
        })
    }
}

/// Differences of the record from the kernel's own counts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accuracy {
    /// Samples that were compared.
    pub samples: u64,
    /// Samples without a usable record.
    pub unusable: u64,
    /// The source of the true CPU load.
    pub cpu_truth: String,
    /// Difference in the number of threads.
    pub threads: Deviation,
    /// Difference in the CPU load, in percent of all CPUs.
    pub cpu_percent: Deviation,
}

/// Absolute differences. `None` if there are no samples.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviation {
    /// Their mean.
    pub mean: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
}

impl Deviation {
    /// The statistics of these differences.
    pub fn of(absolute: &[f64]) -> Deviation {
        Deviation { mean: mean(absolute), max: absolute.iter().copied().reduce(f64::max) }
    }
}

/// Pending interrupts that the samples showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interrupts {
    /// Samples.
    pub samples: u64,
    /// Whether the record has pending interrupts at all.
    pub told: bool,
    /// By CPU: the sum over all samples.
    pub seen: Vec<u64>,
    /// By CPU: the most in one sample.
    pub most: Vec<u64>,
}

/// Takes the result of one kind out of [`Found`], or returns it unchanged if it is of another kind.
macro_rules! found {
    ($($of:ident($type:ty),)*) => {
        $(impl TryFrom<Found> for $type {
            type Error = Found;

            fn try_from(found: Found) -> Result<$type, Found> {
                match found {
                    Found::$of(found) => Ok(found),
                    other => Err(other),
                }
            }
        })*
    };
}

found! {
    Latency(Times),
    Step(Steps),
    Slowdown(Slowdown),
    Accuracy(Accuracy),
    Interrupts(Interrupts),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_times() {
        let times = Times::of((1..=100).rev().map(f64::from).collect(), 3);
        assert_eq!((times.p50_us, times.p99_us, times.max_us), (Some(50.0), Some(99.0), Some(100.0)));
        assert_eq!((times.mean_us, times.samples, times.unusable), (Some(50.5), 100, 3));
        assert_eq!(Times::of(vec![], 0).p50_us, None);
    }

    #[test]
    fn a_slowdown_is_the_median_of_ratios_by_round() {
        let slow =
            Slowdown::of(vec![100.0, 200.0, 100.0], vec![101.0, 204.0, 100.0], vec![110.0, 220.0, 150.0]);
        let slow = slow.unwrap();
        assert_eq!((slow.rounds, slow.alone_ms), (3, 100.0));
        assert!((slow.normalized_delay - 1.1).abs() < 1e-9 && (slow.kept - 1.01).abs() < 1e-9);
        assert_eq!(Slowdown::of(vec![], vec![], vec![]), None);
    }

    #[test]
    fn deviations_are_of_what_there_is() {
        assert_eq!(Deviation::of(&[1.0, 3.0]), Deviation { mean: Some(2.0), max: Some(3.0) });
        assert_eq!(Deviation::of(&[]).mean, None);
    }

    #[test]
    fn what_is_written_is_read_and_a_renamed_field_is_an_error() {
        let times = Times::of(vec![1.0], 0);
        let deviation = Deviation::of(&[1.0]);
        let cpu_truth = "/proc/stat".to_owned();
        let all = [
            Found::Latency(times.clone()),
            Found::Step(Steps { threads: 4, unseen: 0, unclear: 1, times }),
            Found::Slowdown(Slowdown::of(vec![1.0], vec![2.0], vec![3.0]).unwrap()),
            Found::Accuracy(Accuracy {
                samples: 1,
                unusable: 0,
                cpu_truth,
                threads: deviation,
                cpu_percent: deviation,
            }),
            Found::Interrupts(Interrupts { samples: 1, told: true, seen: vec![1], most: vec![1] }),
        ];
        for found in all {
            let placement = Placement { node_cpu: Some(0), this_cpu: None };
            let scheme = "rdma-sync".to_owned();
            let figures =
                Figures { scheme, background: 0, granularity_ms: 1.0, period_ms: 50.0, placement, found };
            let written = serde_json::to_string(&figures).unwrap();
            assert_eq!(serde_json::from_str::<Figures>(&written).unwrap(), figures);
            for name in ["scheme", "measure", "samples", "unseen", "kept", "cpu_truth", "told"] {
                let renamed = written.replace(&format!("\"{name}\""), "\"renamed\"");
                let is_there = renamed != written;
                assert_eq!(serde_json::from_str::<Figures>(&renamed).is_err(), is_there, "{name}: {renamed}");
            }
        }
    }
}
