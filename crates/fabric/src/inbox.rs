//! Two-sided operations: messages that a process receives, rather than memory that others use without it.
//!
//! An inbox goes with a region ([`Host::offer_with_inbox`]): whoever holds a key of the region that grants more than
//! reading may send to it, and may write into the region so that the inbox is told. It is bounded. A sender that finds
//! it full is told so and tries again; nobody waits for anybody. Messages of one link come in the order in which they
//! were sent, those of different links in any.
//!
//! | backend | what it is |
//! |---|---|
//! | shm | a ring in a file of its own ([`ring`]), into which the sender's CPU puts its message |
//! | tcp, sim | a queue of the owner's process |
//! | verbs | receive buffers of the device, `slots` for each link: no sender takes another's room |
//!
//! Load and reconfiguration use none of this: they are one-sided. It is there for what the papers compare them with.
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
#[cfg(feature = "verbs")]
use crate::verbs;
use crate::{OP_BYTES_MAX, OpError, Region};

/// All slots of one inbox together, in bytes.
pub const INBOX_BYTES_MAX: usize = 256 << 20;
/// The longest wait for a message, whatever is asked for.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// How much an inbox holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InboxSpec {
    /// Messages that wait to be received; at least 1.
    pub slots: usize,
    /// Bytes of the longest.
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

/// What came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// What was sent; nothing where a write is told of.
    pub bytes: &'a [u8],
    /// What a write said.
    pub immediate: Option<u32>,
}

/// The receiving end, its owner's alone.
#[derive(Debug)]
pub struct Inbox {
    source: Source,
    /// What came last, in little-endian words.
    words: Vec<u64>,
}

#[derive(Debug)]
enum Source {
    Ring {
        ring: Ring,
        _region: Region,
    },
    Queue(Arc<Queue>),
    Sim(Arc<Queue>, Network),
    #[cfg(feature = "verbs")]
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

    #[cfg(feature = "verbs")]
    pub(crate) fn of_device(receiver: verbs::Receiver) -> Inbox {
        Inbox { source: Source::Verbs(receiver), words: Vec::new() }
    }

    /// The next message if it is there, for those who poll: no system call, but for sim's passing of what is due.
    pub fn try_receive(&mut self) -> Option<Message<'_>> {
        let taken = match &self.source {
            Source::Ring { ring, .. } => ring.take(&mut self.words),
            Source::Queue(queue) => queue.take().map(|letter| letter.open(&mut self.words)),
            Source::Sim(queue, network) => {
                network.receive(queue, Duration::ZERO).map(|letter| letter.open(&mut self.words))
            }
            #[cfg(feature = "verbs")]
            Source::Verbs(receiver) => receiver.take(&mut self.words),
        };
        taken.map(|taken| taken.message(&mut self.words))
    }

    /// The next message, for which the thread sleeps for `timeout` at most; over sim virtual time passes.
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
            #[cfg(feature = "verbs")]
            Source::Verbs(receiver) => receiver.wait(&mut self.words, Instant::now() + timeout),
        };
        taken.map(|taken| taken.message(&mut self.words))
    }
}

/// What was taken out, but for its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Of its bytes.
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
    /// Of its bytes.
    pub(crate) len: usize,
    pub(crate) immediate: Option<u32>,
}

impl Letter {
    fn open(self, words: &mut Vec<u64>) -> Taken {
        *words = self.words;
        Taken { len: self.len, immediate: self.immediate }
    }
}

/// Messages in the owner's process.
#[derive(Debug)]
pub(crate) struct Queue {
    spec: InboxSpec,
    letters: Mutex<VecDeque<Letter>>,
    arrived: Condvar,
}

impl Queue {
    /// Whether a message of `len` bytes may come.
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

/// Carries out what `Memory::apply` left to the inbox, which is there; `put` is how it takes a message.
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
