//! Arrival times of the requests of a synthetic trace.

use std::str::FromStr;

use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::zipf::{refuse, unit_interval};

const NS_PER_S: f64 = 1e9;

/// Most bursts of a trace if they are drawn one by one. Each is drawn, whether requests fall in it or not.
const BURSTS_MAX: f64 = 1e9;

/// How requests arrive at a mean rate.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrivals {
    /// At random, at a constant rate.
    Poisson,
    /// In bursts of all lengths: `bias` of the requests arrive in one half of the time, chosen at random, and so on in
    /// each half, down to 1 ms. M. Wang et al., "Data Mining Meets Performance Evaluation: Fast Algorithms for Modeling
    /// Bursty Traffic", ICDE 2002; web traffic has 0.6 to 0.8.
    BModel {
        /// From 0.5 (even) to below 1.
        bias: f64,
    },
    /// In bursts of one mean length: at a higher rate for a while, then none for a while. Both durations are
    /// exponential.
    OnOff {
        /// Mean seconds with requests.
        on_s: f64,
        /// Mean seconds without.
        off_s: f64,
    },
}

impl FromStr for Arrivals {
    type Err = Error;

    /// Parses `none`, `b-model:BIAS` or `on-off:ON_S:OFF_S`.
    fn from_str(text: &str) -> Result<Arrivals> {
        let parts: Vec<&str> = text.split(':').collect();
        let number = |text: &str| text.parse::<f64>().ok();
        let arrivals = match parts[..] {
            ["none" | "poisson"] => Some(Arrivals::Poisson),
            ["b-model", bias] => number(bias).map(|bias| Arrivals::BModel { bias }),
            ["on-off", on, off] => {
                number(on).zip(number(off)).map(|(on_s, off_s)| Arrivals::OnOff { on_s, off_s })
            }
            _ => None,
        };
        arrivals.ok_or_else(|| refuse("bursts", text, "none, b-model:BIAS or on-off:ON_S:OFF_S"))
    }
}

impl Arrivals {
    /// Checks the parameters for a trace that lasts `span_s` on average.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a parameter is out of range.
    pub(crate) fn check(&self, span_s: f64) -> Result<()> {
        let is_time = |number: f64| 0.0 < number && number <= f64::from(u32::MAX);
        match *self {
            Arrivals::BModel { bias } if !(0.5..1.0).contains(&bias) => {
                Err(refuse("bias", bias, "0.5 to below 1"))
            }
            Arrivals::OnOff { on_s, off_s } if !(is_time(on_s) && is_time(off_s)) => {
                let allowed = "two numbers of seconds above 0, and below 2^32 as times are";
                Err(refuse("on-off", format!("{on_s}:{off_s}"), allowed))
            }
            Arrivals::OnOff { on_s, off_s } if span_s / (on_s + off_s) > BURSTS_MAX => {
                let allowed = "longer, such that the trace has 10^9 bursts at most";
                Err(refuse("on-off", format!("{on_s}:{off_s}"), allowed))
            }
            _ => Ok(()),
        }
    }

    /// The times of `requests` requests in ns, in order: the same for the same arguments.
    pub(crate) fn times(&self, per_s: f64, requests: u64, seed: u64) -> Times {
        let random = Pcg64Mcg::seed_from_u64(seed);
        let gap_ns = NS_PER_S / per_s;
        match *self {
            Arrivals::Poisson => Times::Random { random, gap_ns, now_ns: 0.0, breaks: None },
            Arrivals::OnOff { on_s, off_s } => {
                let gap_ns = gap_ns * on_s / (on_s + off_s);
                let breaks = Breaks { on_ns: on_s * NS_PER_S, off_ns: off_s * NS_PER_S, left_ns: 0.0 };
                Times::Random { random, gap_ns, now_ns: 0.0, breaks: Some(breaks) }
            }
            Arrivals::BModel { bias } => {
                let span_ns = gap_ns * requests as f64;
                Times::Halves {
                    random,
                    bias,
                    parts: vec![Part { begin_ns: 0.0, span_ns, requests, given: 0 }],
                }
            }
        }
    }
}

/// See [`Arrivals::times`]. Returns one more time on each call; those of the b-model end.
#[derive(Clone, Debug)]
pub(crate) enum Times {
    Random { random: Pcg64Mcg, gap_ns: f64, now_ns: f64, breaks: Option<Breaks> },
    Halves { random: Pcg64Mcg, bias: f64, parts: Vec<Part> },
}

/// Phases of an on-off process: the rest of the current phase with requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Breaks {
    on_ns: f64,
    off_ns: f64,
    left_ns: f64,
}

/// A part of the time, its requests, and how many of them were used. There are few parts: one for each halving.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    begin_ns: f64,
    span_ns: f64,
    requests: u64,
    given: u64,
}

/// Parts of this length are not halved further.
const PART_NS_MIN: f64 = 1e6;

fn exponential(random: &mut Pcg64Mcg, mean: f64) -> f64 {
    let drawn: f64 = Exp1.sample(random);
    drawn * mean
}

impl Iterator for Times {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match self {
            Times::Random { random, gap_ns, now_ns, breaks } => {
                let mut gap = exponential(random, *gap_ns);
                if let Some(Breaks { on_ns, off_ns, left_ns }) = breaks {
                    while gap > *left_ns {
                        gap -= *left_ns;
                        *now_ns += *left_ns + exponential(random, *off_ns);
                        *left_ns = exponential(random, *on_ns);
                    }
                    *left_ns -= gap;
                }
                *now_ns += gap;
                Some(*now_ns as u64)
            }
            Times::Halves { random, bias, parts } => loop {
                let part = parts.last_mut()?;
                if part.given == part.requests {
                    parts.pop();
                } else if part.requests == 1 || part.span_ns <= PART_NS_MIN {
                    let within =
                        (part.given as f64 + unit_interval(random.next_u64())) / part.requests as f64;
                    part.given += 1;
                    return Some((part.begin_ns + within * part.span_ns) as u64);
                } else {
                    let Part { begin_ns, span_ns, requests, .. } = *part;
                    let more = ((requests as f64 * *bias).round() as u64).min(requests);
                    let first = if random.next_u64() >> 63 == 0 { more } else { requests - more };
                    let half_ns = span_ns / 2.0;
                    *part = Part {
                        begin_ns: begin_ns + half_ns,
                        span_ns: half_ns,
                        requests: requests - first,
                        given: 0,
                    };
                    parts.push(Part { begin_ns, span_ns: half_ns, requests: first, given: 0 });
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Arrivals; 3] =
        [Arrivals::Poisson, Arrivals::BModel { bias: 0.7 }, Arrivals::OnOff { on_s: 1.0, off_s: 4.0 }];

    fn times(arrivals: Arrivals, seed: u64) -> Vec<u64> {
        arrivals.times(1000.0, 100_000, seed).take(100_000).collect()
    }

    #[test]
    fn all_come_in_order_at_their_rate_and_by_their_seed() {
        for arrivals in ALL {
            let drawn = times(arrivals, 1);
            assert_eq!(drawn.len(), 100_000);
            assert!(drawn.is_sorted());
            let span_s = *drawn.last().unwrap() as f64 / 1e9;
            assert!((span_s / 100.0 - 1.0).abs() < 0.5, "{arrivals:?}: {span_s} s");
            assert!(times(arrivals, 1) == drawn && times(arrivals, 2) != drawn);
        }
    }

    #[test]
    fn bursts_are_what_tells_them_apart() {
        let dispersion = |arrivals| {
            let mut counts = vec![0f64; 1000];
            times(arrivals, 7).iter().for_each(|time| {
                if let Some(count) = counts.get_mut((time / 100_000_000) as usize) {
                    *count += 1.0;
                }
            });
            let mean = counts.iter().sum::<f64>() / 1000.0;
            counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 1000.0 / mean
        };
        let [poisson, b_model, on_off] = ALL.map(dispersion);
        assert!((0.8..1.25).contains(&poisson), "{poisson}");
        assert!(b_model > 20.0 && on_off > 20.0, "{b_model} {on_off}");
    }

    #[test]
    fn they_are_named_as_options_have_them() {
        assert_eq!("none".parse::<Arrivals>().unwrap(), Arrivals::Poisson);
        assert_eq!("b-model:0.7".parse::<Arrivals>().unwrap(), ALL[1]);
        assert_eq!("on-off:1:4".parse::<Arrivals>().unwrap(), ALL[2]);
        for text in ["", "b-model", "b-model:x", "on-off:1", "poisson:3"] {
            assert!(text.parse::<Arrivals>().unwrap_err().to_string().contains("b-model:BIAS"));
        }
        // Bursts that are rare within a second would take too long to draw for a year.
        for (span_s, is_drawn) in [(1.0, true), (3e7, false)] {
            let short = "on-off:1e-3:1e-3".parse::<Arrivals>().unwrap();
            assert_eq!(short.check(span_s).is_ok(), is_drawn);
        }
        for refused in
            ["b-model:1", "b-model:0.4", "b-model:nan", "on-off:0:1", "on-off:1:inf", "on-off:1:5e9"]
        {
            assert!(refused.parse::<Arrivals>().unwrap().check(1.0).is_err(), "{refused}");
        }
    }
}
