//! The engine: events in order of time.
//!
//! [`run`] passes arrivals and events to a [`Model`] in order of time, and the model adds further events to the
//! [`Queue`]. Simultaneous events happen in the order in which they were queued. Work that waits in line for a known
//! time needs no event for its turn: a [`Server`] returns at once when it will be done.
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
//! Arrivals stay outside the queue, because a trace may be larger than memory.

mod queue;
mod servers;

pub use queue::Queue;
pub use servers::{Pool, Server, Shared};

use crate::Time;

/// A simulated system.
pub trait Model {
    /// Something that arrives from outside.
    type Arrival;
    /// Something that the model schedules for later.
    type Event: Copy;

    /// An arrival from outside.
    fn arrive(&mut self, now: Time, arrival: Self::Arrival, queue: &mut Queue<Self::Event>);

    /// An event is due.
    fn happen(&mut self, now: Time, event: Self::Event, queue: &mut Queue<Self::Event>);
}

/// Runs a model until there are neither arrivals nor events, and returns the number of both. An arrival comes before
/// simultaneous events, because it was known earlier.
///
/// # Panics
/// If arrivals are not in order of time.
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
