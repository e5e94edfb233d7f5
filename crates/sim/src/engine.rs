//! Events in order of time.
//!
//! A [`Model`] is told of arrivals and of events, and puts further events into the [`Queue`]; [`run`] tells it, in order
//! of time, and what falls on one moment in the order in which it was put there. Whoever waits in line for a known time
//! needs no event for its turn: a [`Server`] says at once when it will be done.
//!
//! ```
//! use sidelong_sim::Time;
//! use sidelong_sim::engine::{Model, Queue, Server, run};
//!
//! /// Customers who each need the counter for 3 ns.
//! #[derive(Default)]
//! struct Shop {
//!     counter: Server,
//!     left_at: Vec<u64>,
//! }
//!
//! impl Model for Shop {
//!     type Arrival = &'static str;
//!     type Event = &'static str;
//!
//!     fn arrive(&mut self, now: Time, customer: &'static str, queue: &mut Queue<&'static str>) {
//!         queue.push(self.counter.serve(now, 3), customer);
//!     }
//!
//!     fn happen(&mut self, now: Time, _customer: &'static str, _queue: &mut Queue<&'static str>) {
//!         self.left_at.push(now.as_ns());
//!     }
//! }
//!
//! let mut shop = Shop::default();
//! let customers = [(0, "Ada"), (1, "Grace"), (9, "Barbara")];
//! run(&mut shop, &mut Queue::new(), customers.map(|(at, name)| (Time::from_ns(at), name)));
//! assert_eq!(shop.left_at, [3, 6, 12]);
//! ```
//!
//! Arrivals stay outside of the queue: it holds what is under way, not what is still to come, and a trace may be longer
//! than memory.

mod queue;
mod servers;

pub use queue::Queue;
pub use servers::{Pool, Server, Shared};

use crate::Time;

/// What is simulated.
pub trait Model {
    /// What comes from outside.
    type Arrival;
    /// What the model tells itself to do later.
    type Event: Copy;

    /// Something comes from outside.
    fn arrive(&mut self, now: Time, arrival: Self::Arrival, queue: &mut Queue<Self::Event>);

    /// An event is due.
    fn happen(&mut self, now: Time, event: Self::Event, queue: &mut Queue<Self::Event>);
}

/// Runs a model until there are neither arrivals nor events, and says how many of both there were. An arrival comes
/// before the events of its moment, as it was known before them.
///
/// # Panics
/// Where arrivals are not in order of time.
pub fn run<M: Model>(
    model: &mut M,
    queue: &mut Queue<M::Event>,
    arrivals: impl IntoIterator<Item = (Time, M::Arrival)>,
) -> u64 {
    let mut count = 0;
    let mut last = Time::default();
    for (at, arrival) in arrivals {
        assert!(last <= at, "arrivals come in order of time");
        last = at;
        while let Some((now, event)) = queue.pop_before(at) {
            model.happen(now, event, queue);
            count += 1;
        }
        model.arrive(at, arrival, queue);
        count += 1;
    }
    while let Some((now, event)) = queue.pop() {
        model.happen(now, event, queue);
        count += 1;
    }
    count
}
