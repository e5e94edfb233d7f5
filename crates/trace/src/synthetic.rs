//! Synthetic traces: popularity by Zipf's law, sizes and arrivals as on the web.

use crate::arrivals::Arrivals;
use crate::error::Result;
use crate::request::{Method, Request};
use crate::zipf::{Sizes, Zipf, mix, refuse};

const NS_PER_S: u64 = 1_000_000_000;

/// The parameters of a synthetic trace. The same values give the same requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Synthetic {
    /// The number of requests.
    pub requests: u64,
    /// The number of objects; object 0 is requested most.
    pub objects: u32,
    /// Exponent of Zipf's law.
    pub alpha: f64,
    /// Sizes of the objects.
    pub sizes: Sizes,
    /// Mean rate, in requests a second.
    pub per_s: f64,
    /// How requests arrive at that rate.
    pub arrivals: Arrivals,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Synthetic {
    /// The requests, in order of time, from 0 on.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] where a value is out of range, or the trace would last longer than seconds can be
    /// counted.
    pub fn requests(&self) -> Result<impl Iterator<Item = Request> + use<>> {
        let zipf = Zipf::new(self.alpha, self.objects, self.sizes, self.seed)?;
        if self.requests == 0 {
            return Err(refuse("requests", 0, "1 and more"));
        }
        // A tenth is left for bursts, whose times are random.
        let span_s = self.requests as f64 / self.per_s;
        if !(self.per_s.is_finite() && self.per_s > 0.0 && span_s < 0.9 * f64::from(u32::MAX)) {
            return Err(refuse("rate", self.per_s, "positive, and such that all come within 122 years"));
        }
        self.arrivals.check(span_s)?;
        let times = self.arrivals.times(self.per_s, self.requests, mix(mix(self.seed)) ^ self.seed);
        Ok((0..self.requests).zip(times).map(move |(i, ns)| {
            let object = zipf.object(i);
            Request {
                time_s: u32::try_from(ns / NS_PER_S).unwrap_or(u32::MAX),
                time_ns: (ns % NS_PER_S) as u32,
                client: 0,
                object: object.id,
                size: Some(object.bytes),
                status: 200,
                method: Method::Get,
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Tally;

    const ONE: Synthetic = Synthetic {
        requests: 200_000,
        objects: 5_000,
        alpha: 0.8,
        sizes: Sizes::Surge { bytes_max: 1 << 30 },
        per_s: 100.0,
        arrivals: Arrivals::Poisson,
        seed: 1,
    };

    fn summary(synthetic: Synthetic) -> crate::Summary {
        let mut tally = Tally::new("synthetic");
        synthetic.requests().unwrap().for_each(|request| tally.add(&request).unwrap());
        tally.finish(0).unwrap()
    }

    #[test]
    fn it_is_what_was_asked_for() {
        let calm = summary(ONE);
        assert_eq!((calm.requests, calm.objects), (200_000, 5_000));
        assert!((calm.zipf_alpha_mle.unwrap() - 0.8).abs() < 0.02, "{calm:?}");
        assert!((calm.rate_mean - 100.0).abs() < 2.0, "{calm:?}");
        assert!((calm.dispersion_1s.unwrap() - 1.0).abs() < 0.2, "{calm:?}");
        assert!((calm.hurst.unwrap() - 0.5).abs() < 0.1, "{calm:?}");
        // Barford and Crovella: half of the files below 11,580 bytes and a little, the mean far above.
        let mean = calm.footprint_bytes / calm.objects;
        assert!((20_000..200_000).contains(&mean), "{mean}");

        // A last second with few requests is no burst.
        let fast = summary(Synthetic { requests: 1_000_000, per_s: 1000.0, ..ONE });
        assert!((fast.hurst.unwrap() - 0.5).abs() < 0.1, "{fast:?}");

        let bursty = summary(Synthetic { arrivals: Arrivals::BModel { bias: 0.7 }, ..ONE });
        assert_eq!(bursty.requests, 200_000);
        assert!(bursty.dispersion_1s.unwrap() > 5.0, "{bursty:?}");
        assert!(bursty.hurst.unwrap() > 0.7, "{bursty:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        let first = |seed| Synthetic { seed, ..ONE }.requests().unwrap().take(1000).collect::<Vec<_>>();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |synthetic: Synthetic| synthetic.requests().map(drop).unwrap_err().to_string();
        assert!(refused(Synthetic { requests: 0, ..ONE }).contains("requests = 0"));
        assert!(refused(Synthetic { objects: 0, ..ONE }).contains("objects = 0"));
        assert!(refused(Synthetic { alpha: -1.0, ..ONE }).contains("alpha = -1"));
        for per_s in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-6] {
            assert!(refused(Synthetic { per_s, ..ONE }).contains("rate = "), "{per_s}");
        }
        let arrivals = Arrivals::OnOff { on_s: 1e-18, off_s: 1e-18 };
        assert!(refused(Synthetic { arrivals, ..ONE }).contains("10^9 bursts"));
    }
}
