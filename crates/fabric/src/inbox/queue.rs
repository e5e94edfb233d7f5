//! The messages of an inbox in its owner's process, and what of them the backends have in common.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use crate::OpError;
use crate::batch::{Kind, Request};
use crate::limits::{INBOX_BYTES_MAX, OP_BYTES_MAX};
use crate::memory::Memory;

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

/// What was taken out, apart from its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Length in bytes.
    pub(crate) len: usize,
    pub(crate) immediate: Option<u32>,
}

impl Taken {
    pub(super) fn message(self, words: &mut [u64]) -> Message<'_> {
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
    pub(super) fn open(self, words: &mut Vec<u64>) -> Taken {
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

    pub(super) fn wait(&self, deadline: Instant) -> Option<Letter> {
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
