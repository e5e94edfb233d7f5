//! The node's side of the asynchronous schemes: a thread that keeps the load record (Vaidyanathan et al. 2006, 3.1.1
//! and 3.2.1). It is the load gathering daemon of Lai et al. 2008.
//!
//! The two parts of a record age at different speeds. The server's own figures cost nothing to read, so the hot line is
//! published every millisecond. The kernel's files cost tens of microseconds to read, so they are sampled as often as
//! Vaidyanathan et al. do (section 5: T = 50 ms).
//!
//! The same thread publishes the node's acknowledgement of moves, because both tasks are frequent and short. Under
//! socket-sync, which keeps no record, that is its only task.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sidelong_fabric::Region;
use sidelong_layout::{Hot, LOAD_ACK, LOAD_DETAIL, LOAD_HOT, RegionKind};
use sidelong_os::{Worker, monotonic_ns};
use sidelong_state::Publisher;

use crate::Error;
use crate::recorder::Recorder;
use crate::server_line::store;
use crate::snapshot::incarnation_of;

/// The intervals of a [`Keeper`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeeperSpec {
    /// Interval of the hot line and of the acknowledgement.
    pub period: Duration,
    /// Interval of samples of the kernel's files.
    pub proc_period: Duration,
}

impl Default for KeeperSpec {
    fn default() -> Self {
        KeeperSpec { period: Duration::from_millis(1), proc_period: Duration::from_millis(50) }
    }
}

/// The keeper's thread. When this is dropped, it publishes a last record that says so, and ends.
#[derive(Debug)]
pub struct Keeper {
    _worker: Worker,
}

const THREAD: &str = "load-keeper";

impl Keeper {
    /// Keeps the record in `region`, made by `recorder`, and publishes what `acknowledge` returns as its
    /// acknowledgement.
    ///
    /// Without a recorder only the acknowledgement is published. A region has one keeper in its life, because readers
    /// rely on the sequence to increase.
    ///
    /// # Errors
    /// If the region is not a load region, or the thread cannot start.
    ///
    /// # Panics
    /// If a period is zero.
    pub fn start(
        region: Region,
        recorder: Option<Recorder>,
        acknowledge: impl FnMut() -> Option<u64> + Send + 'static,
        spec: KeeperSpec,
    ) -> Result<Self, Error> {
        assert!(!spec.period.is_zero() && !spec.proc_period.is_zero(), "a period of zero never rests");
        let generation = incarnation_of(&region, RegionKind::Load)? as u32;
        let book = recorder.map(|recorder| Book {
            recorder,
            hot: Publisher::new(generation),
            detail: Publisher::new(generation),
            look: Deadline::new(spec.proc_period),
        });
        let mut work = Work { region, book, acknowledge };
        let worker = Worker::start(THREAD, move |stop| work.run(Deadline::new(spec.period), stop))
            .map_err(|source| Error::Thread { name: THREAD, source })?;
        Ok(Keeper { _worker: worker })
    }
}

struct Work<A> {
    region: Region,
    book: Option<Book>,
    acknowledge: A,
}

/// The state for keeping a record.
struct Book {
    recorder: Recorder,
    hot: Publisher,
    detail: Publisher,
    look: Deadline,
}

impl<A: FnMut() -> Option<u64>> Work<A> {
    fn run(&mut self, mut tick: Deadline, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            let now_ns = monotonic_ns();
            if tick.passed(now_ns) {
                self.tick(now_ns);
            } else {
                // May wake early when it is stopped, or spuriously; then it comes back here.
                thread::park_timeout(tick.left(now_ns));
            }
        }
        if let Some(book) = &mut self.book {
            // A record without a valid field means that the node leaves.
            let farewell = Hot { time_ns: monotonic_ns(), ..Hot::default() };
            store(&self.region, LOAD_HOT, &mut book.hot, farewell);
        }
    }

    fn tick(&mut self, now_ns: u64) {
        if let Some(word) = (self.acknowledge)() {
            self.region.store(LOAD_ACK, word, Ordering::Release);
        }
        let Some(book) = &mut self.book else { return };
        if book.look.passed(now_ns) {
            book.recorder.look(now_ns);
            store(&self.region, LOAD_DETAIL, &mut book.detail, book.recorder.detail());
        }
        store(&self.region, LOAD_HOT, &mut book.hot, book.recorder.hot(now_ns));
    }
}

/// A periodic task. Its next time counts from when it was due, not from when it ran, so it does not drift. Periods that
/// were missed are skipped.
#[derive(Debug)]
struct Deadline {
    due_ns: u64,
    period_ns: u64,
}

impl Deadline {
    /// Due at once.
    fn new(period: Duration) -> Self {
        Deadline { due_ns: 0, period_ns: u64::try_from(period.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Whether it is due; if so, it is next due in one period.
    fn passed(&mut self, now_ns: u64) -> bool {
        if now_ns < self.due_ns {
            return false;
        }
        let next_ns = self.due_ns.saturating_add(self.period_ns);
        self.due_ns = if next_ns > now_ns { next_ns } else { now_ns.saturating_add(self.period_ns) };
        true
    }

    fn left(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.due_ns.saturating_sub(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_do_not_drift_and_make_nothing_up() {
        let mut tick = Deadline::new(Duration::from_nanos(10));
        assert!(tick.passed(1000), "the first is due at once");
        assert!(!tick.passed(1009) && tick.left(1009) == Duration::from_nanos(1));
        assert!(tick.passed(1013), "late");
        assert!(!tick.passed(1019) && tick.passed(1020), "the next comes as if it had not been");
        assert!(
            tick.passed(1055) && !tick.passed(1064) && tick.passed(1065),
            "one that overslept has one to do"
        );
    }
}
