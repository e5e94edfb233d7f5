//! What is asked for, and when.

use std::path::Path;

use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng as _;
use sidelong_trace::{Trace, Zipf};

use crate::Time;
use crate::error::{Error, Result};

/// Requests in order, by the numbers of their objects: 4 bytes each, and as much again for each time, where they have
/// times.
#[derive(Clone, PartialEq, Debug)]
pub struct Requests {
    keys: Vec<u32>,
    /// By object.
    bytes: Vec<u32>,
    /// Since the first request, in ns; empty where the source has none.
    times_ns: Vec<u64>,
}

impl Requests {
    /// The objects of a trace; a longer run begins again. A response's size is its object's largest: a server that
    /// answers "not modified" reads the file all the same.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn load(path: &Path) -> Result<Requests> {
        let (trace, _) = Trace::load(path)?;
        Ok(Self::of(&trace.spread()))
    }

    /// The same of a trace in memory, whose requests were spread within their seconds.
    pub fn of(trace: &Trace) -> Requests {
        let mut bytes = Vec::new();
        let mut ids = std::collections::HashMap::new();
        let first = trace.requests().first().map_or_else(Default::default, |request| request.time());
        let (mut keys, mut times_ns) = (Vec::new(), Vec::new());
        for request in trace.requests() {
            let key = *ids.entry(request.object).or_insert(bytes.len() as u32);
            if key as usize == bytes.len() {
                bytes.push(0);
            }
            let size = request.size.unwrap_or(0).min(u32::MAX.into()) as u32;
            let largest = &mut bytes[key as usize];
            *largest = size.max(*largest);
            keys.push(key);
            times_ns.push((request.time() - first).as_nanos() as u64);
        }
        Requests { keys, bytes, times_ns }
    }

    /// `count` requests by Zipf's law.
    pub fn zipf(zipf: &Zipf, count: usize) -> Requests {
        let bytes = |id| zipf.bytes(id).min(u32::MAX.into()) as u32;
        Requests {
            keys: (0..count as u64).map(|i| zipf.object(i).id as u32).collect(),
            bytes: (0..zipf.objects().into()).map(bytes).collect(),
            times_ns: Vec::new(),
        }
    }

    /// The first `count`, from the start again where there are fewer; times go on.
    pub fn repeated(self, count: usize) -> Requests {
        let Requests { keys, bytes, times_ns } = self;
        // As if one mean gap lay between the last and the first.
        let span_ns = times_ns.last().map_or(0, |last| last + last / times_ns.len() as u64);
        let again = |i: usize| times_ns[i % times_ns.len()] + span_ns * (i / times_ns.len()) as u64;
        let times_ns = if times_ns.is_empty() { Vec::new() } else { (0..count).map(again).collect() };
        Requests { keys: keys.iter().copied().cycle().take(count).collect(), bytes, times_ns }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many objects, asked for or not.
    pub fn objects(&self) -> usize {
        self.bytes.len()
    }

    /// Whether each has a time.
    pub fn have_times(&self) -> bool {
        !self.times_ns.is_empty()
    }

    /// What a request is for, if there is one of that number.
    #[inline]
    pub fn key(&self, number: usize) -> Option<u32> {
        self.keys.get(number).copied()
    }

    /// How large an object is.
    #[inline]
    pub fn bytes(&self, key: u32) -> u32 {
        self.bytes[key as usize]
    }
}

/// When requests come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arrivals {
    /// Each of `clients` asks again `think_ns` after it was answered: the cluster is as busy as they make it.
    Closed {
        /// How many.
        clients: u32,
        /// In ns.
        think_ns: u64,
    },
    /// At random, at a constant rate.
    Poisson {
        /// Of the whole cluster.
        per_s: f64,
    },
    /// As the trace has it, `speed` times as fast.
    Trace {
        /// 1 is real time.
        speed: f64,
    },
}

impl Arrivals {
    /// The moments at which requests come from outside: none where clients wait for their answers.
    pub(crate) fn times<'a>(
        &self,
        requests: &'a Requests,
        seed: u64,
    ) -> impl Iterator<Item = Time> + use<'a> {
        let arrivals = *self;
        let count = if matches!(arrivals, Arrivals::Closed { .. }) { 0 } else { requests.len() };
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut now_ns = 0.0;
        (0..count).map(move |i| {
            now_ns = match arrivals {
                Arrivals::Closed { .. } => 0.0,
                Arrivals::Poisson { per_s } => {
                    let gap: f64 = Exp1.sample(&mut random);
                    now_ns + gap * 1e9 / per_s
                }
                Arrivals::Trace { speed } => requests.times_ns[i] as f64 / speed,
            };
            Time::from_ns(now_ns as u64)
        })
    }
}

impl Requests {
    /// # Errors
    /// Where requests are to come as the trace has it, and it has no times.
    pub(crate) fn check(&self, arrivals: &Arrivals) -> Result<()> {
        if matches!(arrivals, Arrivals::Trace { .. }) && !self.have_times() {
            return Err(Error::NoTimes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidelong_trace::sample;

    #[test]
    fn a_trace_is_repeated_as_if_it_went_on() {
        let requests = Requests::of(&sample().spread());
        assert_eq!((requests.len(), requests.objects()), (10_000, 1_244));
        let twice = requests.clone().repeated(20_001);
        assert_eq!(twice.key(10_000), requests.key(0));
        let times: Vec<_> = Arrivals::Trace { speed: 2.0 }.times(&twice, 1).collect();
        assert!(times.len() == 20_001 && times.is_sorted());
        let last = requests.times_ns.last().unwrap();
        assert!(times[10_000].as_ns() > last / 2 && times[20_000].as_ns() < last + last / 1_000);
    }

    #[test]
    fn random_arrivals_have_their_rate_and_seed() {
        let requests = Requests::of(&sample());
        let times = |seed| Arrivals::Poisson { per_s: 1e3 }.times(&requests, seed).collect::<Vec<_>>();
        let last = times(1).last().unwrap().as_ns() as f64;
        assert!((last / 1e10 - 1.0).abs() < 0.05, "{last}");
        assert!(times(1) == times(1) && times(1) != times(2));
    }
}
