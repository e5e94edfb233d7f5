//! Requests in order of time, streamed in bounded memory, as [`crate::Trace`] does with a whole trace in memory.
//!
//! Servers log a request when they have answered it, so real logs step back in time. Most have whole seconds only, so
//! requests replayed as logged would arrive in volleys that never happened. This module corrects both. Requests wait
//! until [`AHEAD_REQUESTS`] are held, and leave second by second. Of the `k` requests of one second, the `i`-th (from
//! 0, in the order of the log) is set to `(i + 1/2) / k` of that second: evenly, and the same each time. Finer times
//! are left unchanged.

use std::collections::VecDeque;

use crate::broken::Broken;
use crate::error::Result;
use crate::format::Stamps;
use crate::reader::Reader;
use crate::request::Request;

/// Requests held at a time, which take 10 MB, unless one second has more.
pub const AHEAD_REQUESTS: usize = 1 << 18;

/// Most requests of one second that are held, which take 42 MB. The requests of a larger second are not spread, but
/// left as in the log.
pub const SECOND_REQUESTS_MAX: usize = 1 << 20;

/// Buffers kept for later seconds: one is freed when one is needed.
const SPARE_MAX: usize = 2;

/// The requests of a [`Reader`] in order of time; see [`Reader::spread`].
#[derive(Debug)]
pub struct Spread {
    reader: Reader,
    /// Whether times are finer than seconds: set by the first that is.
    is_fine: bool,
    /// Seconds that requests wait in, in order.
    seconds: VecDeque<(u32, Vec<Request>)>,
    held: usize,
    /// The last second whose requests have left.
    left_s: Option<u32>,
    /// Requests that are leaving, and the index of the next.
    ready: Vec<Request>,
    at: usize,
    /// Empty buffers for later seconds.
    spare: Vec<Vec<Request>>,
    late: u64,
    ahead: usize,
    second_max: usize,
    has_ended: bool,
}

impl Spread {
    pub(crate) fn new(reader: Reader) -> Spread {
        Self::with_limits(reader, AHEAD_REQUESTS, SECOND_REQUESTS_MAX)
    }

    fn with_limits(reader: Reader, ahead: usize, second_max: usize) -> Spread {
        Spread {
            is_fine: reader.stamps() == Stamps::Finer,
            reader,
            seconds: VecDeque::new(),
            held: 0,
            left_s: None,
            ready: Vec::new(),
            at: 0,
            spare: Vec::new(),
            late: 0,
            ahead,
            second_max,
            has_ended: false,
        }
    }

    /// Requests so late in the log that later ones had left already; they were moved to the following second.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// As [`Reader::broken`].
    pub fn broken(&self) -> &Broken {
        self.reader.broken()
    }

    /// As [`Reader::bytes_read`].
    pub fn bytes_read(&self) -> u64 {
        self.reader.bytes_read()
    }

    fn hold(&mut self, mut request: Request) {
        self.is_fine |= request.time_ns != 0;
        if let Some(left_s) = self.left_s
            && request.time_s <= left_s
        {
            (request.time_s, request.time_ns) = (left_s.saturating_add(1), 0);
            self.late += 1;
        }
        self.held += 1;
        match self.seconds.back_mut() {
            Some((second, requests)) if *second == request.time_s => requests.push(request),
            Some((second, _)) if *second > request.time_s => {
                let at = self.seconds.partition_point(|(second, _)| *second < request.time_s);
                match &mut self.seconds[at] {
                    (second, requests) if *second == request.time_s => requests.push(request),
                    _ => self.seconds.insert(at, (request.time_s, vec![request])),
                }
            }
            _ => {
                let mut requests = self.spare.pop().unwrap_or_default();
                requests.push(request);
                self.seconds.push_back((request.time_s, requests));
            }
        }
    }

    /// Releases the first second.
    fn release(&mut self) {
        let Some((second, mut requests)) = self.seconds.pop_front() else { return };
        self.held -= requests.len();
        // A second with too many requests may get more, and these are not late.
        let is_whole = requests.len() < self.second_max;
        self.left_s = if is_whole { Some(second) } else { second.checked_sub(1) };
        if self.is_fine {
            requests.sort_by_key(|request| request.time_ns);
        } else if is_whole {
            spread_second(&mut requests);
        }
        std::mem::swap(&mut self.ready, &mut requests);
        self.at = 0;
        if self.spare.len() < SPARE_MAX {
            requests.clear();
            self.spare.push(requests);
        }
    }

    /// Makes the next requests ready; none when all have left.
    #[cold]
    fn advance(&mut self) -> Result<()> {
        while !self.has_ended {
            match self.reader.next().transpose()? {
                Some(request) => self.hold(request),
                None => self.has_ended = true,
            }
            let is_full = self.held >= self.ahead && self.seconds.len() > 1;
            if is_full || self.held >= self.second_max {
                break;
            }
        }
        self.ready.clear();
        self.release();
        Ok(())
    }
}

impl Iterator for Spread {
    type Item = Result<Request>;

    #[inline]
    fn next(&mut self) -> Option<Result<Request>> {
        if self.at == self.ready.len()
            && let Err(error) = self.advance()
        {
            (self.has_ended, self.seconds) = (true, VecDeque::new());
            return Some(Err(error));
        }
        let request = self.ready.get(self.at)?;
        self.at += 1;
        Some(Ok(*request))
    }
}

/// Spreads the requests of one second evenly over it.
pub(crate) fn spread_second(requests: &mut [Request]) {
    const NS_PER_S: u64 = 1_000_000_000;
    let k = requests.len() as u64;
    for (i, request) in (0..k).zip(requests) {
        // Below NS_PER_S, for (2i + 1) / 2k is below 1.
        request.time_ns = ((2 * i + 1) * NS_PER_S / (2 * k)) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;
    use crate::reader::Known;
    use crate::trace::Trace;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn csv(times: &[impl ToString]) -> Reader {
        let rows: String = (0..)
            .zip(times)
            .map(|(object, time): (u32, _)| format!("{},{object}\n", time.to_string()))
            .collect();
        let columns = Some("time=1,object=2".parse().unwrap());
        Reader::new("test", Cursor::new(rows.into_bytes()), &Known { format: Some(Format::Csv), columns })
            .unwrap()
    }

    fn seen(spread: &mut Spread) -> Vec<(f64, u64)> {
        spread.map(Result::unwrap).map(|request| (request.time().as_secs_f64(), request.object)).collect()
    }

    #[test]
    fn whole_seconds_are_shared_evenly_and_finer_times_left_alone() {
        let whole = seen(&mut csv(&["5", "7", "6", "6"]).spread());
        assert_eq!(whole, [(5.5, 0), (6.25, 2), (6.75, 3), (7.5, 1)]);
        let finer = seen(&mut csv(&["5.0", "7", "6.75", "6.5"]).spread());
        assert_eq!(finer, [(5.0, 0), (6.5, 3), (6.75, 2), (7.0, 1)]);
    }

    #[test]
    fn what_comes_later_than_is_held_comes_as_soon_as_it_can() {
        let mut spread = Spread::with_limits(csv(&[10, 11, 12, 13, 10, 14]), 2, 100);
        let all = seen(&mut spread);
        assert_eq!(spread.late(), 1);
        assert!(all.is_sorted_by(|a, b| a.0 <= b.0), "{all:?}");
        assert_eq!(all.len(), 6);
        // The following second is that after those that left, not the next one that waits.
        let mut gap = Spread::with_limits(csv(&[10, 11, 500, 10, 501]), 2, 100);
        assert_eq!(seen(&mut gap), [(10.5, 0), (11.5, 1), (12.5, 3), (500.5, 2), (501.5, 4)]);
        assert_eq!(gap.late(), 1);
        // A date that is decades off does not move the others.
        let mut wrong = Spread::with_limits(csv(&[10, 4_000_000_000u32, 11, 12, 13]), 2, 100);
        let all = seen(&mut wrong);
        assert_eq!((wrong.late(), all[4]), (0, (4_000_000_000.5, 1)));
    }

    #[test]
    fn a_second_with_too_many_is_left_as_it_is() {
        let all = seen(&mut Spread::with_limits(csv(&[7; 10]), 2, 4));
        assert_eq!(all.iter().map(|(_, object)| *object).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert_eq!(all[0].0, 7.0);
    }

    #[test]
    fn an_error_comes_in_its_place_and_then_nothing() {
        let rows = b"1,1\nx,x\n".to_vec();
        let columns = Some("time=1,object=2".parse().unwrap());
        let known = Known { format: None, columns };
        let mut spread = Reader::new("test", Cursor::new(rows), &known).unwrap().spread();
        assert!(spread.next().unwrap().is_err());
        assert!(spread.next().is_none());
    }

    proptest! {
        #[test]
        fn it_is_what_a_whole_trace_is_in_memory(
            steps in proptest::collection::vec(0u32..9, 1..300), ahead in 12usize..400,
        ) {
            // Steps back by 3 s at most, over at most 4 + 8 requests.
            let times: Vec<u32> = (0..).zip(&steps).map(|(i, step): (u32, _)| 100 + i / 4 + step % 4).collect();
            let whole = Trace::read(csv(&times)).unwrap().0.spread();
            let mut spread = Spread::with_limits(csv(&times), 3 * ahead, 1000);
            let streamed: Vec<Request> = spread.by_ref().map(Result::unwrap).collect();
            prop_assert_eq!(spread.late(), 0);
            prop_assert_eq!(streamed, whole.requests());
        }
    }
}
