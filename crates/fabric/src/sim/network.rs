//! The network itself: virtual time, and what happens in it.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::world::{Others, World};
use crate::OpError;
use crate::inbox::{Letter, Queue};

/// What the network does to operations. Chances are in thousandths, drawn for each operation.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Time that a request takes, and again its answer.
    pub delay: Range<Duration>,
    /// Share of operations that are lost: half of them before they take effect and half after.
    pub loss_permille: u32,
    /// Share of operations that take effect only after their deadline.
    pub late_permille: u32,
    /// Share of reads whose lines are read at two moments, each line at either, as devices may do.
    pub torn_permille: u32,
}

impl Default for Faults {
    /// A quiet network: one to three microseconds each way, nothing lost, late or torn.
    fn default() -> Self {
        Faults {
            delay: Duration::from_micros(1)..Duration::from_micros(3),
            loss_permille: 0,
            late_permille: 0,
            torn_permille: 0,
        }
    }
}

/// A simulated network. Clones are the same network.
#[derive(Clone, Debug)]
pub struct Network {
    world: Arc<Mutex<World>>,
}

impl PartialEq for Network {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.world, &other.world)
    }
}

impl Eq for Network {}

/// An operation that was posted singly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub(super) u64);

/// The next thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A posted operation has ended.
    Done {
        /// When it ended.
        at: Duration,
        /// The operation.
        ticket: Ticket,
        /// The words read, the word before an atomic, or the words written; or why it failed.
        outcome: Result<Vec<u64>, OpError>,
    },
    /// A timer has expired.
    Wake {
        /// When it expired.
        at: Duration,
        /// The actor that set it.
        actor: u64,
    },
}

impl Event {
    /// The virtual time of the event.
    pub fn at(&self) -> Duration {
        match self {
            Event::Done { at, .. } | Event::Wake { at, .. } => *at,
        }
    }
}

impl Network {
    /// A network that starts at time 0.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Network { world: Arc::new(Mutex::new(World::new(seed, faults))) }
    }

    /// Sets the faults from now on. Operations in flight keep theirs.
    pub fn set_faults(&self, faults: Faults) {
        self.world().set_faults(faults);
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        self.world().now()
    }

    /// Advances time. What happens meanwhile is kept for [`Network::next`].
    pub fn advance(&self, by: Duration) {
        self.world().advance(by);
    }

    /// Sets a timer; one in the past is due now.
    pub fn wake_at(&self, at: Duration, actor: u64) {
        self.world().wake_at(at, actor);
    }

    /// Advances time until a posted operation ends or a timer expires; `None` if there is neither.
    pub fn next(&self) -> Option<Event> {
        self.world().next()
    }

    /// Has `others` called whenever something has happened while a batch waits, in the thread that waits. They may run batches of
    /// their own, in which nobody else goes on.
    pub fn meanwhile(&self, others: impl FnMut() + Send + 'static) {
        self.world().others = Some(Others(Box::new(others)));
    }

    /// Advances time until an operation of a batch has ended.
    pub(super) fn wait(&self, ticket: Ticket) -> Result<Vec<u64>, OpError> {
        loop {
            let mut world = self.world();
            let Some(mut others) = world.others.take() else { return world.wait(ticket) };
            let ended = world.wait_once(ticket);
            drop(world);
            if ended.is_none() {
                others.0();
            }
            self.world().others = Some(others);
            if let Some(outcome) = ended {
                return outcome;
            }
        }
    }

    /// When the network next has something to do, for simulations with events of their own. Until then nothing changes,
    /// and [`Network::next_by`] returns nothing. `None` if nothing is in flight.
    pub fn next_at(&self) -> Option<Duration> {
        self.world().next_at()
    }

    /// As [`Network::next`], but time stops at `at`.
    pub fn next_by(&self, at: Duration) -> Option<Event> {
        self.world().next_by(at)
    }

    /// Waits for the next message for at most `timeout` of virtual time.
    pub(crate) fn receive(&self, queue: &Queue, timeout: Duration) -> Option<Letter> {
        self.world().receive(queue, timeout)
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        // A caller's mistake that panics while it holds the lock leaves the world consistent.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
