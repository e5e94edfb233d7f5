//! Two-sided operations: messages that a process receives, rather than memory that others use without it.
//!
//! An inbox belongs to a region ([`Host::expose_with_inbox`]). A key of the region that grants writing also grants sending
//! to the inbox, and writes that notify it. The inbox is bounded. A sender that finds it full gets an error and may
//! retry, so no side waits for the other. Messages of one link arrive in the order in which they were sent; messages of
//! different links arrive in any order.
//!
//! | backend | what it is |
//! |---|---|
//! | shm | a ring in a file of its own ([`ring`]), into which the sender's CPU puts its message |
//! | tcp, sim | a queue of the owner's process |
//! | verbs | receive buffers of the device, `slots` for each link: no sender uses another's slots |
//!
//! Load and reconfiguration are one-sided and use no inbox. Inboxes serve the comparisons of the papers.
//!
//! [`Host::expose_with_inbox`]: crate::Host::expose_with_inbox

mod queue;
pub(crate) mod ring;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ring::Ring;

pub use self::queue::{InboxSpec, Message};
pub(crate) use self::queue::{Letter, Queue, Taken, deliver};
use crate::limits::TIMEOUT_MAX;
use crate::sim::Network;
use crate::{Region, verbs};

/// The receiving end, held by the owner alone.
#[derive(Debug)]
pub struct Inbox {
    source: Source,
    /// The last message, in little-endian words.
    words: Vec<u64>,
}

#[derive(Debug)]
enum Source {
    Ring { ring: Ring, _region: Region },
    Queue(Arc<Queue>),
    Sim(Arc<Queue>, Network),
    Verbs(verbs::Receiver),
}

impl Inbox {
    pub(crate) fn of_ring(ring: Ring, region: Region) -> Inbox {
        Inbox { source: Source::Ring { ring, _region: region }, words: Vec::new() }
    }

    pub(crate) fn of_queue(queue: Arc<Queue>) -> Inbox {
        Inbox { source: Source::Queue(queue), words: Vec::new() }
    }

    pub(crate) fn simulated(queue: Arc<Queue>, network: Network) -> Inbox {
        Inbox { source: Source::Sim(queue, network), words: Vec::new() }
    }

    pub(crate) fn of_device(receiver: verbs::Receiver) -> Inbox {
        Inbox { source: Source::Verbs(receiver), words: Vec::new() }
    }

    /// The next message if there is one, for polling. Makes no system call, except that over sim it processes what is
    /// due.
    pub fn try_receive(&mut self) -> Option<Message<'_>> {
        let taken = match &self.source {
            Source::Ring { ring, .. } => ring.take(&mut self.words),
            Source::Queue(queue) => queue.take().map(|letter| letter.open(&mut self.words)),
            Source::Sim(queue, network) => {
                network.receive(queue, Duration::ZERO).map(|letter| letter.open(&mut self.words))
            }
            Source::Verbs(receiver) => receiver.take(&mut self.words),
        };
        taken.map(|taken| taken.message(&mut self.words))
    }

    /// Waits for the next message for at most `timeout`. The thread sleeps; over sim, virtual time passes.
    pub fn receive(&mut self, timeout: Duration) -> Option<Message<'_>> {
        let timeout = timeout.min(TIMEOUT_MAX);
        let taken = match &self.source {
            Source::Ring { ring, .. } => ring.wait(&mut self.words, Instant::now() + timeout),
            Source::Queue(queue) => {
                queue.wait(Instant::now() + timeout).map(|letter| letter.open(&mut self.words))
            }
            Source::Sim(queue, network) => {
                network.receive(queue, timeout).map(|letter| letter.open(&mut self.words))
            }
            Source::Verbs(receiver) => receiver.wait(&mut self.words, Instant::now() + timeout),
        };
        taken.map(|taken| taken.message(&mut self.words))
    }
}
