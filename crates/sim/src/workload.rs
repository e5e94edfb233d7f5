//! Requests, and when they arrive.

mod column;

use std::collections::HashMap;
use std::path::Path;

use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng as _;
use rustc_hash::FxBuildHasher;
use sidelong_trace::{Reader, Trace, Zipf};

use crate::Time;
use crate::error::{Error, Result};
use column::{Column, Cursor, Growing, LIMITS, Limits};

/// Most distinct objects of a trace. The number and size of each are in memory.
const OBJECTS_MAX: usize = 1 << 25;

/// Requests in order, by the numbers of their objects: 4 bytes each, and 8 bytes for each time if they have times. Those of a
/// long trace are in a temporary file, and a run holds a window of it. Clones share them.
#[derive(Clone, Debug)]
pub struct Requests {
    keys: Column<u32>,
    /// Since the first request, in ns; `None` if the source has no times.
    times_ns: Column<u64>,
    /// By object.
    bytes: Vec<u32>,
    /// Number of requests; if there are fewer keys, they repeat.
    count: usize,
    /// From the first request to the first of the next round, in ns.
    round_ns: u64,
}

impl Requests {
    /// The first `count` requests of a trace in any format, or all if there are fewer, in order of time. The size of a
    /// response is its object's largest, because a server that answers "not modified" reads the file all the same.
    ///
    /// # Errors
    /// If it cannot be read, is broken, or has too many objects.
    pub fn load(path: &Path, count: usize) -> Result<Requests> {
        let reader = Reader::open(path).map_err(|error| match error {
            sidelong_trace::Error::UnknownFormat { .. } => Error::Unrecognised(error),
            error => error.into(),
        })?;
        let mut spread = reader.spread();
        let requests = Self::gather(&path.display().to_string(), spread.by_ref().take(count), LIMITS)?;
        let (broken, late) = (spread.broken(), spread.late());
        // If enough requests come before the trace's end, its reader has not judged it.
        if broken.is_too_many() {
            let (origin, broken) = (path.display().to_string(), broken.clone());
            return Err(sidelong_trace::Error::TooManyBroken { origin, broken }.into());
        }
        if broken.is_worth_telling() {
            tracing::warn!("{}: {broken}", path.display());
        }
        if late > 0 {
            tracing::warn!(
                "{}: {late} requests were too far out of order and were moved later",
                path.display()
            );
        }
        Ok(requests)
    }

    /// The requests of a trace in memory, spread within their seconds.
    pub fn of(trace: &Trace) -> Requests {
        let all = trace.requests().iter().copied().map(Ok);
        // Without limits: nothing is spooled, and nothing can fail.
        let limits = Limits { held: usize::MAX, ..LIMITS };
        Self::gather("the trace in memory", all, limits).expect("a trace in memory fits in memory")
    }

    fn gather(
        origin: &str,
        all: impl Iterator<Item = sidelong_trace::Result<sidelong_trace::Request>>,
        limits: Limits,
    ) -> Result<Requests> {
        let failed = |source| Error::File { path: std::env::temp_dir(), source };
        let (mut keys, mut times_ns) = (Growing::new(limits), Growing::new(limits));
        let mut ids: HashMap<u64, u32, FxBuildHasher> = HashMap::default();
        let mut bytes = Vec::new();
        let mut first = None;
        let mut last_ns = 0;
        for request in all {
            let request = request?;
            let key = *ids.entry(request.object).or_insert(bytes.len() as u32);
            if key as usize == bytes.len() {
                if bytes.len() == OBJECTS_MAX {
                    let (origin, max) = (origin.to_owned(), OBJECTS_MAX as u64);
                    return Err(
                        sidelong_trace::Error::TooMany { origin, what: "distinct objects", max }.into()
                    );
                }
                bytes.push(0);
            }
            let size = request.size.unwrap_or(0).min(u32::MAX.into()) as u32;
            let largest = &mut bytes[key as usize];
            *largest = size.max(*largest);
            keys.push(key).map_err(failed)?;
            let since = request.time().saturating_sub(*first.get_or_insert(request.time()));
            last_ns = last_ns.max(since.as_nanos() as u64);
            times_ns.push(last_ns).map_err(failed)?;
        }
        if keys.len() == 0 {
            return Err(sidelong_trace::Error::Empty { origin: origin.to_owned() }.into());
        }
        let count = keys.len();
        // One mean gap separates the last request from the next round.
        let round_ns = last_ns + last_ns / count as u64;
        let (keys, times_ns) = (keys.finish().map_err(failed)?, times_ns.finish().map_err(failed)?);
        Ok(Requests { keys, times_ns, bytes, count, round_ns })
    }

    /// `count` requests by Zipf's law.
    pub fn zipf(zipf: &Zipf, count: usize) -> Requests {
        let bytes = |id| zipf.bytes(id).min(u32::MAX.into()) as u32;
        let keys: Vec<u32> = (0..count as u64).map(|i| zipf.object(i).id as u32).collect();
        Requests {
            keys: keys.into(),
            times_ns: Vec::new().into(),
            bytes: (0..zipf.objects().into()).map(bytes).collect(),
            count,
            round_ns: 0,
        }
    }

    /// The first `count` requests, repeated if there are fewer; times continue.
    pub fn repeated(self, count: usize) -> Requests {
        Requests { count, ..self }
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of objects, requested or not.
    pub fn objects(&self) -> usize {
        self.bytes.len()
    }

    /// Whether each has a time.
    pub fn have_times(&self) -> bool {
        self.times_ns.len() > 0
    }

    /// The objects of the requests, for a reader that asks in order.
    pub fn keys(&self) -> Keys {
        Keys { cursor: Cursor::new(&self.keys), round: self.keys.len(), begin: 0, count: self.count }
    }

    /// The size of an object.
    #[inline]
    pub fn bytes(&self, key: u32) -> u32 {
        self.bytes[key as usize]
    }
}

/// The objects of requests: see [`Requests::keys`].
#[derive(Clone, Debug)]
pub struct Keys {
    cursor: Cursor<u32>,
    round: usize,
    /// Number of the first request of this round.
    begin: usize,
    count: usize,
}

impl Keys {
    /// The object of a request, if there is one of that number.
    #[inline]
    pub fn get(&mut self, number: usize) -> Option<u32> {
        if number >= self.count {
            return None;
        }
        let at = number.wrapping_sub(self.begin);
        if at < self.round {
            return Some(self.cursor.get(at));
        }
        self.begin = number - number % self.round;
        Some(self.cursor.get(number % self.round))
    }
}

/// When requests arrive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arrivals {
    /// Each of `clients` sends its next request `think_ns` after an answer.
    Closed {
        /// Number of clients.
        clients: u32,
        /// In ns.
        think_ns: u64,
    },
    /// At random, at a constant rate.
    Poisson {
        /// For the whole cluster.
        per_s: f64,
    },
    /// At the trace's times, `speed` times as fast.
    Trace {
        /// 1 is real time.
        speed: f64,
    },
}

impl Arrivals {
    /// The times of arrivals from outside; none if clients wait for their answers.
    pub(crate) fn times(&self, requests: &Requests, seed: u64) -> impl Iterator<Item = Time> + use<> {
        let arrivals = *self;
        let (mut times_ns, round_ns) = (Cursor::new(&requests.times_ns), requests.round_ns);
        // The next request's index in its round, and the start of the round.
        let (mut at, mut begin_ns, round) = (0, 0, requests.times_ns.len());
        let count = if matches!(arrivals, Arrivals::Closed { .. }) { 0 } else { requests.len() };
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut now_ns = 0.0;
        (0..count).map(move |_| {
            now_ns = match arrivals {
                Arrivals::Closed { .. } => 0.0,
                Arrivals::Poisson { per_s } => {
                    let gap: f64 = Exp1.sample(&mut random);
                    now_ns + gap * 1e9 / per_s
                }
                Arrivals::Trace { speed } => {
                    if at == round {
                        (at, begin_ns) = (0, begin_ns + round_ns);
                    }
                    at += 1;
                    (begin_ns + times_ns.get(at - 1)) as f64 / speed
                }
            };
            Time::from_ns(now_ns as u64)
        })
    }
}

impl Requests {
    /// Checks that the arrivals are possible.
    ///
    /// # Errors
    /// If requests are to arrive at the trace's times, and it has none.
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
        assert_eq!(twice.keys().get(10_000), requests.keys().get(0));
        assert_eq!((twice.keys().get(20_000), twice.keys().get(20_001)), (requests.keys().get(0), None));
        let times: Vec<_> = Arrivals::Trace { speed: 2.0 }.times(&twice, 1).collect();
        assert!(times.len() == 20_001 && times.is_sorted());
        let last = Cursor::new(&requests.times_ns).get(9_999);
        assert!(times[10_000].as_ns() > last / 2 && times[20_000].as_ns() < last + last / 1_000);
    }

    #[test]
    fn requests_in_a_file_are_those_in_memory() {
        let trace = sample().spread();
        let all = || trace.requests().iter().copied().map(Ok);
        let spooled = Requests::gather("test", all(), Limits { held: 100, window: 64 }).unwrap();
        assert!(matches!(spooled.keys, Column::Spooled { .. }));
        let (held, spooled) = (Requests::of(&trace).repeated(25_000), spooled.repeated(25_000));
        let keys = |requests: &Requests| {
            let mut keys = requests.keys();
            (0..25_000).map(|number| keys.get(number).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(keys(&held), keys(&spooled));
        let times = |requests| Arrivals::Trace { speed: 1.0 }.times(requests, 1).collect::<Vec<_>>();
        assert_eq!(times(&held), times(&spooled));
        let none = Requests::gather("nothing", std::iter::empty(), LIMITS).unwrap_err();
        assert!(none.to_string().contains("nothing holds no request"), "{none}");
    }

    #[test]
    fn a_trace_is_refused_for_its_broken_lines_though_enough_came_before_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("long.csv");
        let load = |broken_every: usize| {
            let row = |number: usize| match number % broken_every {
                0 => "x,1\n".to_owned(),
                _ => format!("{},1\n", number / 100),
            };
            // Longer than what is read ahead.
            let rows: String = (1..300_000).map(row).collect();
            std::fs::write(&path, format!("time,object\n{rows}")).unwrap();
            Requests::load(&path, 1000)
        };
        assert_eq!(load(101).unwrap().len(), 1000);
        let error = load(50).unwrap_err().to_string();
        assert!(error.contains("long.csv, read as csv, is refused") && error.contains("1 %"), "{error}");
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
