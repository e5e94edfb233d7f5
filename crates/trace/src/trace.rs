//! A whole trace in memory, in order of time.

use std::path::Path;

use crate::broken::Broken;
use crate::error::{Error, Result};
use crate::reader::Reader;
use crate::request::Request;
use crate::spread::spread_second;
use crate::summary::{Summary, Tally};

/// Most requests of a trace in memory, which take 2.7 GB. Stream longer logs with a [`Reader`].
pub const REQUESTS_MAX: usize = 1 << 26;

/// Requests in order of time, at least one. Simultaneous ones keep the order of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    requests: Vec<Request>,
}

impl Trace {
    /// A trace of these requests, which are sorted by time: servers log a request when they have answered it, so real
    /// logs step back in time. `None` if there is none.
    pub fn new(mut requests: Vec<Request>) -> Option<Trace> {
        requests.sort_by_key(|request| (request.time_s, request.time_ns));
        (!requests.is_empty()).then_some(Trace { requests })
    }

    /// Reads a whole file, recognising its compression and format.
    ///
    /// # Errors
    /// As [`Reader::open`] and [`Trace::read`].
    pub fn load(path: impl AsRef<Path>) -> Result<(Trace, Broken)> {
        Self::read(Reader::open(path)?)
    }

    /// Reads what is left of a reader.
    ///
    /// # Errors
    /// As the reader, [`Error::Empty`], or [`Error::TooMany`] beyond [`REQUESTS_MAX`].
    pub fn read(mut reader: Reader) -> Result<(Trace, Broken)> {
        let mut requests = Vec::new();
        while let Some(request) = reader.next() {
            if requests.len() == REQUESTS_MAX {
                let origin = reader.origin().to_owned();
                return Err(Error::TooMany {
                    origin,
                    what: "requests to hold in memory",
                    max: REQUESTS_MAX as u64,
                });
            }
            requests.push(request?);
        }
        let trace = Self::new(requests).ok_or_else(|| Error::Empty { origin: reader.origin().to_owned() })?;
        Ok((trace, reader.into_broken()))
    }

    /// The requests, in order of time.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Spreads the requests of each second over it, as [`crate::Spread`] does. A trace that has any finer time is left as
    /// it is.
    pub fn spread(mut self) -> Trace {
        if self.requests.iter().all(|request| request.time_ns == 0) {
            self.requests.chunk_by_mut(|a, b| a.time_s == b.time_s).for_each(spread_second);
        }
        self
    }

    /// The statistics of the trace; `broken` is the number of records that are not in it.
    ///
    /// # Errors
    /// As [`Tally::add`].
    pub fn summarise(&self, broken: u64) -> Result<Summary> {
        let mut tally = Tally::new("the trace in memory");
        self.requests.iter().try_for_each(|request| tally.add(request))?;
        tally.finish(broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Method;
    use proptest::prelude::*;

    fn at(time_s: u32, object: u64) -> Request {
        Request { time_s, time_ns: 0, client: 0, object, size: None, status: 200, method: Method::Get }
    }

    #[test]
    fn requests_are_put_in_order_and_equals_stay_in_theirs() {
        let trace = Trace::new(vec![at(7, 0), at(5, 1), at(7, 2), at(6, 3)]).unwrap();
        let objects: Vec<u64> = trace.requests().iter().map(|request| request.object).collect();
        assert_eq!(objects, [1, 3, 0, 2]);
        assert_eq!(Trace::new(vec![]), None);
    }

    #[test]
    fn a_second_is_shared_evenly() {
        let trace = Trace::new(vec![at(5, 0), at(6, 1), at(6, 2), at(6, 3), at(6, 4)]).unwrap().spread();
        let times: Vec<f64> = trace.requests().iter().map(|request| request.time().as_secs_f64()).collect();
        assert_eq!(times, [5.5, 6.125, 6.375, 6.625, 6.875]);
        assert_eq!(trace.clone().spread(), trace, "it has finer times now");
    }

    proptest! {
        #[test]
        fn spread_requests_stay_in_their_second_and_in_order(
            seconds in proptest::collection::vec(0u32..4, 1..200),
        ) {
            let trace = Trace::new(seconds.iter().map(|&second| at(second, 0)).collect()).unwrap();
            let spread = trace.clone().spread();
            prop_assert!(spread.requests().is_sorted_by(|a, b| a.time() < b.time()));
            prop_assert!(spread.requests().iter().all(|request| request.time_ns < 1_000_000_000));
            let second = |trace: &Trace| trace.requests().iter().map(|r| r.time_s).collect::<Vec<_>>();
            prop_assert_eq!(second(&spread), second(&trace));
        }
    }
}
