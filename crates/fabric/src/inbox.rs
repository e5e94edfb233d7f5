//! Two-sided operations: messages that a process receives, rather than memory that others use without it.
//!
//! An inbox belongs to a region ([`Host::offer_with_inbox`]). A key of the region that grants writing also grants sending
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
//! [`Host::offer_with_inbox`]: crate::Host::offer_with_inbox

pub(crate) mod ring;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ring::Ring;

use crate::batch::{Kind, Request};
use crate::memory::Memory;
use crate::sim::Network;
use crate::verbs;
use crate::{OP_BYTES_MAX, OpError, Region};

/// Most bytes of all slots of one inbox.
pub const INBOX_BYTES_MAX: usize = 256 << 20;
/// Longest wait for a message; longer timeouts are cut to it.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// The size of an inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InboxSpec {
    /// Most messages that wait to be received; at least 1.
    pub slots: usize,
    /// Longest message, in bytes.
    pub message_bytes_max: usize,
}

impl InboxSpec {
    pub(crate) fn check(&self) {
        let bytes = self.slots.checked_mul(self.message_bytes_max.max(8));
        let fits = bytes.is_some_and(|bytes| bytes <= INBOX_BYTES_MAX);
        assert!(
            self.slots > 0 && self.message_bytes_max <= OP_BYTES_MAX && fits,
            "an inbox of a few messages"
        );
    }

    pub(crate) fn queue(&self) -> Arc<Queue> {
        Arc::new(Queue { spec: *self, letters: Mutex::default(), arrived: Condvar::new() })
    }
}

/// A message, or the notification of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The message; empty for the notification of a write.
    pub bytes: &'a [u8],
    /// The value that a write passed.
    pub immediate: Option<u32>,
}

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

/// What was taken out, apart from its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Length in bytes.
    pub(crate) len: usize,
    pub(crate) immediate: Option<u32>,
}

impl Taken {
    fn message(self, words: &mut [u64]) -> Message<'_> {
        words.iter_mut().for_each(|word| *word = word.to_le());
        Message { bytes: &bytemuck::cast_slice(words)[..self.len], immediate: self.immediate }
    }
}

/// A message in a queue.
#[derive(Default, Debug)]
pub(crate) struct Letter {
    pub(crate) words: Vec<u64>,
    /// Length in bytes.
    pub(crate) len: usize,
    pub(crate) immediate: Option<u32>,
}

impl Letter {
    fn open(self, words: &mut Vec<u64>) -> Taken {
        *words = self.words;
        Taken { len: self.len, immediate: self.immediate }
    }
}

/// The messages of an inbox in its owner's process.
#[derive(Debug)]
pub(crate) struct Queue {
    spec: InboxSpec,
    letters: Mutex<VecDeque<Letter>>,
    arrived: Condvar,
}

impl Queue {
    /// Whether a message of `len` bytes may be added.
    pub(crate) fn takes(&self, len: usize) -> Result<(), OpError> {
        if len > self.spec.message_bytes_max { Err(OpError::MessageTooLong { len }) } else { Ok(()) }
    }

    pub(crate) fn put(&self, letter: Letter) -> Result<(), OpError> {
        self.takes(letter.len)?;
        let mut letters = self.lock();
        if letters.len() >= self.spec.slots {
            return Err(OpError::InboxFull);
        }
        letters.push_back(letter);
        drop(letters);
        self.arrived.notify_one();
        Ok(())
    }

    pub(crate) fn take(&self) -> Option<Letter> {
        self.lock().pop_front()
    }

    fn wait(&self, deadline: Instant) -> Option<Letter> {
        let wait = deadline.saturating_duration_since(Instant::now());
        let waited = self.arrived.wait_timeout_while(self.lock(), wait, |letters| letters.is_empty());
        waited.expect("nothing panics while it holds the letters").0.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Letter>> {
        self.letters.lock().expect("nothing panics while it holds the letters")
    }
}

/// Completes what `Memory::apply` left to an existing inbox; `put` adds a message.
pub(crate) fn deliver(
    request: &Request,
    memory: &Memory,
    buffer: &[u64],
    put: impl FnOnce(&[u64], usize, Option<u32>) -> Result<(), OpError>,
) -> Result<(), OpError> {
    match request.kind {
        Kind::Send => put(buffer, request.len, None),
        Kind::WriteWithImmediate { immediate } => {
            memory.write(request.offset, buffer);
            put(&[], 0, Some(immediate))
        }
        Kind::Read | Kind::Write | Kind::CompareAndSwap { .. } | Kind::FetchAndAdd { .. } => {
            unreachable!("memory does all that no inbox is needed for")
        }
    }
}
