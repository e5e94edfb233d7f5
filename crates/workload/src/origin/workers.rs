//! The virtual workers in real time: the book, a clock, and service times drawn from a seed.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::book::{Book, Full};
use super::config::{OriginConfig, ServiceTime};
use super::gauges::OriginGauges;

/// The workers of one origin.
pub(super) struct Workers {
    epoch: Instant,
    service: ServiceTime,
    ns_per_kib: u64,
    state: Mutex<State>,
}

struct State {
    book: Book,
    random: Pcg64,
}

impl Workers {
    pub(super) fn new(config: &OriginConfig) -> Self {
        let book = Book::new(config.workers, config.queue_depth_max);
        Workers {
            epoch: Instant::now(),
            service: config.service,
            ns_per_kib: nanos(config.cost_per_kib),
            state: Mutex::new(State { book, random: Pcg64::seed_from_u64(config.seed) }),
        }
    }

    /// Takes a worker's time for a response of `bytes` bytes.
    pub(super) fn take(&self, gauges: &Arc<OriginGauges>, bytes: u64) -> Result<Turn, Full> {
        let body_ns = u128::from(bytes) * u128::from(self.ns_per_kib) / 1024;
        let body_ns = u64::try_from(body_ns).unwrap_or(u64::MAX);
        let (service, booking) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let service = self.service_ns(&mut state.random).saturating_add(body_ns);
            // Under the lock, so that the book sees time that never runs backwards.
            let now = nanos(self.epoch.elapsed());
            (service, state.book.book(now, service)?)
        };
        gauges.service_ns_total.fetch_add(service, Relaxed);
        gauges.service_total.fetch_add(1, Relaxed);
        // A finish beyond the clock's range is never reached either way.
        let finish = self.epoch.checked_add(Duration::from_nanos(booking.finish)).unwrap_or(self.epoch);
        Ok(Turn { finish, hold: Some(Hold::new(gauges)) })
    }

    fn service_ns(&self, random: &mut Pcg64) -> u64 {
        match self.service {
            ServiceTime::None | ServiceTime::Burn { .. } => 0,
            ServiceTime::Fixed(time) => nanos(time),
            ServiceTime::Exponential { mean } => {
                let of_mean: f64 = Exp1.sample(random);
                (mean.as_nanos() as f64 * of_mean) as u64
            }
        }
    }
}

/// A request's turn with a worker, from its arrival until its service is over.
pub(super) struct Turn {
    finish: Instant,
    hold: Option<Hold>,
}

impl Turn {
    /// Waits until the service is over.
    pub(super) async fn end(self) {
        sleep_until(self.finish).await;
    }
}

impl Drop for Turn {
    /// hyper drops a request whose client has left. Like a real server, its worker does not notice. So the turn
    /// continues to its end, and the gauges keep showing it.
    fn drop(&mut self) {
        let (finish, hold) = (self.finish, self.hold.take());
        if Instant::now() < finish
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                sleep_until(finish).await;
                drop(hold);
            });
        }
    }
}

/// One request outstanding, in the gauges.
pub(super) struct Hold(Arc<OriginGauges>);

impl Hold {
    pub(super) fn new(gauges: &Arc<OriginGauges>) -> Self {
        gauges.outstanding.fetch_add(1, Relaxed);
        gauges.changed();
        Hold(Arc::clone(gauges))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Relaxed);
        self.0.changed();
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
