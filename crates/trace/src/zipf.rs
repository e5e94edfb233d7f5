//! Requests by Zipf's law: the object of rank r (from 1) is requested with a probability proportional to r^-alpha,
//! independently each time.
//!
//! The i-th request is a function of the seed and i: the i-th number of SplitMix64's sequence, which can be computed
//! alone, is looked up in a table of the law's cumulative probabilities.

use std::str::FromStr;
use std::sync::Arc;

use rand_distr::{Distribution, LogNormal, Pareto};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::workload::Object;

/// Most objects: a table of 128 MiB.
pub const OBJECTS_MAX: u32 = 1 << 24;

/// Sizes of objects. Each object has one size, which does not depend on its popularity (Breslau et al., INFOCOM 1999,
/// found next to no correlation).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Sizes {
    /// All the same.
    Fixed {
        /// Bytes of each.
        bytes: u64,
    },
    /// Log-normal, the body of sizes on the web. P. Barford and M. Crovella, "Generating Representative Web Workloads",
    /// SIGMETRICS 1998 (SURGE), have a median of 11,580 bytes and a sigma of 1.318.
    LogNormal {
        /// Half of the objects are smaller: e^mu.
        bytes_median: u64,
        /// Standard deviation of ln(bytes).
        sigma: f64,
        /// Larger ones get this size.
        bytes_max: u64,
    },
    /// Pareto, the tail of sizes on the web; SURGE has a minimum of 133,000 bytes and a shape of 1.1.
    Pareto {
        /// The smallest.
        bytes_min: u64,
        /// The smaller, the heavier the tail; at 1 or below the mean would be infinite but for `bytes_max`.
        shape: f64,
        /// Larger ones get this size.
        bytes_max: u64,
    },
    /// Both, as SURGE has files: 93 % log-normal and 7 % Pareto, with the parameters above.
    Surge {
        /// Larger ones get this size.
        bytes_max: u64,
    },
}

impl Sizes {
    /// The part of files that SURGE draws from its log-normal body.
    const SURGE_BODY: f64 = 0.93;
    /// Of that body, ln of the median in bytes, and the standard deviation of ln(bytes).
    const SURGE_BODY_LN: (f64, f64) = (9.357, 1.318);
    /// Of SURGE's tail, the smallest file in bytes, and the shape.
    const SURGE_TAIL: (f64, f64) = (133_000.0, 1.1);
    /// The limit of `surge` without one: 1 GiB.
    const SURGE_BYTES_MAX: u64 = 1 << 30;
}

impl FromStr for Sizes {
    type Err = Error;

    /// Parses `surge`, `surge:MAX`, `fixed:BYTES`, `log-normal:MEDIAN:SIGMA:MAX` or `pareto:MIN:SHAPE:MAX`.
    fn from_str(text: &str) -> Result<Sizes> {
        const ALLOWED: &str =
            "surge[:MAX], fixed:BYTES, log-normal:MEDIAN:SIGMA:MAX or pareto:MIN:SHAPE:MAX, in bytes";
        let parts: Vec<&str> = text.split(':').collect();
        let whole = |text: &str| text.parse::<u64>().ok();
        let number = |text: &str| text.parse::<f64>().ok();
        let sizes =
            match parts[..] {
                ["surge"] => Some(Sizes::Surge { bytes_max: Self::SURGE_BYTES_MAX }),
                ["surge", max] => whole(max).map(|bytes_max| Sizes::Surge { bytes_max }),
                ["fixed", bytes] => whole(bytes).map(|bytes| Sizes::Fixed { bytes }),
                ["log-normal", median, sigma, max] => whole(median).zip(number(sigma)).zip(whole(max)).map(
                    |((bytes_median, sigma), bytes_max)| Sizes::LogNormal { bytes_median, sigma, bytes_max },
                ),
                ["pareto", min, shape, max] => whole(min)
                    .zip(number(shape))
                    .zip(whole(max))
                    .map(|((bytes_min, shape), bytes_max)| Sizes::Pareto { bytes_min, shape, bytes_max }),
                _ => None,
            };
        sizes.ok_or_else(|| refuse("sizes", text, ALLOWED))
    }
}

/// A source of requests by Zipf's law. Object 0 is the most popular, and so on down. Clones share the table.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Entry r is the probability of an object up to r. The last is 1.
    cumulative: Arc<[f64]>,
    sizes: SizeLaw,
    /// Where the sequence of requests starts, and that of sizes.
    request_seed: u64,
    size_seed: u64,
}

/// Validated [`Sizes`].
#[derive(Clone, Copy, Debug)]
enum SizeLaw {
    Fixed(u64),
    LogNormal(LogNormal<f64>, u64),
    Pareto(Pareto<f64>, u64),
    Surge(LogNormal<f64>, Pareto<f64>, u64),
}

impl Zipf {
    /// A source over `objects` objects with exponent `alpha`. The same arguments give the same requests.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `alpha` is finite and not negative, `objects` is from 1 to [`OBJECTS_MAX`], and the
    /// parameters of `sizes` are positive and finite.
    pub fn new(alpha: f64, objects: u32, sizes: Sizes, seed: u64) -> Result<Zipf> {
        if !(alpha.is_finite() && alpha >= 0.0) {
            return Err(refuse("alpha", alpha, "finite and not negative"));
        }
        if !(1..=OBJECTS_MAX).contains(&objects) {
            return Err(refuse("objects", objects, "1 to 16,777,216"));
        }
        let sizes = SizeLaw::new(sizes)?;

        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=objects)
            .map(|rank| {
                sum += f64::from(rank).powf(-alpha);
                sum
            })
            .collect();
        // The last becomes exactly 1, as anything over itself is.
        cumulative.iter_mut().for_each(|entry| *entry /= sum);

        // Mixed, since sequences whose seeds differ by a multiple of the step would overlap.
        let request_seed = mix(seed);
        Ok(Zipf { cumulative: cumulative.into(), sizes, request_seed, size_seed: mix(request_seed) })
    }

    /// The number of objects.
    pub fn objects(&self) -> u32 {
        self.cumulative.len() as u32
    }

    /// The object of the `i`-th request.
    pub fn object(&self, i: u64) -> Object {
        let uniform = unit_interval(nth(self.request_seed, i));
        // The first entry above a number below 1 exists, as the last is 1.
        let id = self.cumulative.partition_point(|&entry| entry <= uniform) as u64;
        Object { id, bytes: self.bytes(id) }
    }

    /// Size of the object `id`.
    pub fn bytes(&self, id: u64) -> u64 {
        self.sizes.draw(nth(self.size_seed, id))
    }
}

impl SizeLaw {
    fn new(sizes: Sizes) -> Result<SizeLaw> {
        const POSITIVE: &str = "positive and finite";
        let positive = |parameter, value: f64| {
            if value.is_finite() && value > 0.0 { Ok(value) } else { Err(refuse(parameter, value, POSITIVE)) }
        };
        match sizes {
            Sizes::Fixed { bytes } => Ok(SizeLaw::Fixed(bytes)),
            Sizes::LogNormal { bytes_median, sigma, bytes_max } => {
                let mu = positive("bytes_median", bytes_median as f64)?.ln();
                LogNormal::new(mu, positive("sigma", sigma)?)
                    .map(|law| SizeLaw::LogNormal(law, bytes_max))
                    .map_err(|_| refuse("sigma", sigma, POSITIVE))
            }
            Sizes::Pareto { bytes_min, shape, bytes_max } => {
                Pareto::new(positive("bytes_min", bytes_min as f64)?, positive("shape", shape)?)
                    .map(|law| SizeLaw::Pareto(law, bytes_max))
                    .map_err(|_| refuse("shape", shape, POSITIVE))
            }
            Sizes::Surge { bytes_max } => {
                let (mu, sigma) = Sizes::SURGE_BODY_LN;
                let (min, shape) = Sizes::SURGE_TAIL;
                let body = LogNormal::new(mu, sigma).map_err(|_| refuse("sigma", sigma, POSITIVE))?;
                let tail = Pareto::new(min, shape).map_err(|_| refuse("shape", shape, POSITIVE))?;
                Ok(SizeLaw::Surge(body, tail, bytes_max))
            }
        }
    }

    fn draw(&self, seed: u64) -> u64 {
        // A generator for this draw alone, so that the numbers that it uses do not shift the next draw.
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        // Casts of floats saturate, so that even an infinite draw is cut to the maximum.
        match self {
            SizeLaw::Fixed(bytes) => *bytes,
            SizeLaw::LogNormal(law, max) => (law.sample(&mut rng).round() as u64).min(*max),
            SizeLaw::Pareto(law, max) => (law.sample(&mut rng).round() as u64).min(*max),
            SizeLaw::Surge(body, tail, max) => {
                let is_body = unit_interval(mix(seed)) < Sizes::SURGE_BODY;
                let bytes = if is_body { body.sample(&mut rng) } else { tail.sample(&mut rng) };
                (bytes.round() as u64).min(*max)
            }
        }
    }
}

pub(crate) fn refuse(parameter: &'static str, value: impl ToString, allowed: &'static str) -> Error {
    Error::Parameter { parameter, value: value.to_string(), allowed }
}

/// SplitMix64's step: 2^64 over the golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The `i`-th number (from 0) of SplitMix64's sequence from `seed` on: G. Steele, D. Lea and C. Flood, "Fast Splittable
/// Pseudorandom Number Generators", OOPSLA 2014.
fn nth(seed: u64, i: u64) -> u64 {
    mix(seed.wrapping_add(STEP.wrapping_mul(i.wrapping_add(1))))
}

/// SplitMix64's finaliser: a bijection in which each bit of the input changes half of the output's.
pub(crate) fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 64 random bits to a number from 0 up to, not including, 1: as many of them as a double holds exactly.
pub(crate) fn unit_interval(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::zipf_alpha_mle;
    use proptest::prelude::*;

    const FIXED: Sizes = Sizes::Fixed { bytes: 1024 };
    const SURGE_BODY: Sizes = Sizes::LogNormal { bytes_median: 11_580, sigma: 1.318, bytes_max: 1 << 20 };
    const SURGE_TAIL: Sizes = Sizes::Pareto { bytes_min: 133_000, shape: 1.1, bytes_max: 1 << 30 };

    /// Reference values of the authors' splitmix64.c for the seed 1234567.
    #[test]
    fn the_sequence_is_splitmix64() {
        let ours: Vec<u64> = (0..3).map(|i| nth(1_234_567, i)).collect();
        assert_eq!(ours, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        assert_eq!(unit_interval(0), 0.0);
        assert!(unit_interval(u64::MAX) < 1.0);
    }

    #[test]
    fn requests_follow_the_law_that_was_asked_for() {
        for alpha in [0.0, 0.5, 0.9, 1.2] {
            let zipf = Zipf::new(alpha, 500, FIXED, 7).unwrap();
            let mut counts = vec![0u64; 500];
            (0..200_000).for_each(|i| counts[zipf.object(i).id as usize] += 1);

            let expected = zipf.cumulative[0] * 200_000.0;
            assert!((counts[0] as f64 - expected).abs() < 5.0 * expected.sqrt(), "{alpha}: {}", counts[0]);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            // Sorting by what was observed makes equal objects look a little unequal, hence the tolerance at 0.
            let fitted = zipf_alpha_mle(&counts).unwrap();
            assert!((fitted - alpha).abs() < 0.05, "{alpha}: {fitted}");
        }
    }

    #[test]
    fn the_seed_decides() {
        let ids = |seed| {
            let zipf = Zipf::new(0.8, 10_000, FIXED, seed).unwrap();
            (0..100).map(|i| zipf.object(i).id).collect::<Vec<_>>()
        };
        assert_eq!(ids(1), ids(1));
        assert_ne!(ids(1), ids(2));
        // Neighbours on SplitMix64's own sequence are not shifted copies of each other.
        assert_ne!(ids(1)[1..], ids(1u64.wrapping_add(STEP))[..99]);
    }

    #[test]
    fn sizes_follow_their_law_and_their_limit() {
        let sorted = |sizes| {
            let zipf = Zipf::new(0.8, 10_001, sizes, 3).unwrap();
            let mut sizes: Vec<u64> = (0..10_001).map(|id| zipf.bytes(id)).collect();
            sizes.sort_unstable();
            sizes
        };
        let body = sorted(SURGE_BODY);
        assert!((body[5_000] as f64 / 11_580.0 - 1.0).abs() < 0.05, "{}", body[5_000]);
        assert!(*body.last().unwrap() <= 1 << 20);

        let tail = sorted(SURGE_TAIL);
        assert!(tail[0] >= 133_000);
        // The median of a Pareto law is its minimum times 2^(1 / shape).
        let median = 133_000.0 * 2f64.powf(1.0 / 1.1);
        assert!((tail[5_000] as f64 / median - 1.0).abs() < 0.05, "{}", tail[5_000]);
        assert!(*tail.last().unwrap() <= 1 << 30);
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let parameter = |alpha, objects, sizes| match Zipf::new(alpha, objects, sizes, 0) {
            Err(Error::Parameter { parameter, .. }) => parameter,
            other => panic!("{other:?}"),
        };
        assert_eq!(parameter(-0.1, 1, FIXED), "alpha");
        assert_eq!(parameter(f64::NAN, 1, FIXED), "alpha");
        assert_eq!(parameter(1.0, 0, FIXED), "objects");
        assert_eq!(parameter(1.0, OBJECTS_MAX + 1, FIXED), "objects");
        let zero_median = Sizes::LogNormal { bytes_median: 0, sigma: 1.0, bytes_max: 1 };
        assert_eq!(parameter(1.0, 1, zero_median), "bytes_median");
        let no_shape = Sizes::Pareto { bytes_min: 1, shape: f64::INFINITY, bytes_max: 1 };
        assert_eq!(parameter(1.0, 1, no_shape), "shape");
    }

    proptest! {
        #[test]
        fn any_request_is_for_an_object_of_its_size(
            alpha in 0.0..100.0, objects in 1u32..1000, seed: u64, i: u64,
        ) {
            let zipf = Zipf::new(alpha, objects, SURGE_BODY, seed).unwrap();
            let object = zipf.object(i);
            prop_assert!(object.id < u64::from(zipf.objects()));
            prop_assert_eq!(object.bytes, zipf.bytes(object.id));
        }
    }
}
