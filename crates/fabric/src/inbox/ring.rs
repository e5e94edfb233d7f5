//! An inbox in shared memory: a bounded ring with many senders and one receiver, in a region of its own.
//!
//! It is Vyukov's bounded queue with a single receiver. Each slot has a turn: `2 n` if it is free for message `n`, `2 n + 1`
//! if it holds that message. A sender claims the next number by compare-and-swap, fills the slot, and advances its turn.
//! The receiver takes the message whose turn it is and frees the slot for the next lap. The receiver's place is in the ring
//! too, so that a restarted process continues where the old one ended.
//!
//! A sender that is killed between claiming and filling, some tens of nanoseconds for a short message, blocks the ring: the
//! receiver receives nothing more, and senders find the inbox full until it is removed. So what must survive a peer's death
//! uses words, not messages.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use rustix::thread::futex;
use rustix::time::Timespec;
use sidelong_layout::{HEADER_BYTES, LINE_BYTES};

use crate::OpError;
use crate::inbox::{InboxSpec, Taken};
use crate::memory::Memory;

// Offsets after the header, in bytes. Fields of the senders and of the receiver are on lines of their own.
const SLOTS: usize = HEADER_BYTES;
const MESSAGE_BYTES_MAX: usize = SLOTS + 8;
const TAIL: usize = HEADER_BYTES + LINE_BYTES;
const HEAD: usize = TAIL + LINE_BYTES;
/// The futex: not 0 while the receiver sleeps, or is about to.
const ASLEEP: usize = HEAD + LINE_BYTES;
const FIRST: usize = ASLEEP + LINE_BYTES;

// In a slot: its turn, the message's length and whether it has an immediate, the immediate, and the message.
const LEN: usize = 8;
const IMMEDIATE: usize = 16;
const MESSAGE: usize = 24;
const HAS_IMMEDIATE: u64 = 1 << 32;

/// A sender that is overtaken this often treats the inbox as full.
const TRIES_MAX: usize = 1 << 16;

/// A mapped ring.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: Arc<Memory>,
    spec: InboxSpec,
    slot_bytes: usize,
}

impl Ring {
    /// Length of a region that holds such a ring.
    pub(crate) fn bytes(spec: &InboxSpec) -> usize {
        FIRST + spec.slots * slot_bytes(spec)
    }

    /// Lays a ring out in a new region's words.
    pub(crate) fn init(spec: &InboxSpec, words: &mut [u64]) {
        words[SLOTS / 8] = spec.slots as u64;
        words[MESSAGE_BYTES_MAX / 8] = spec.message_bytes_max as u64;
        for n in 0..spec.slots {
            words[(FIRST + n * slot_bytes(spec)) / 8] = 2 * n as u64;
        }
    }

    /// The ring in `memory`, or `None` if the length does not fit one.
    pub(crate) fn open(memory: Arc<Memory>) -> Option<Ring> {
        let count = |offset| usize::try_from(memory.load(offset)).ok().filter(|count| *count <= memory.len());
        if memory.len() < FIRST {
            return None;
        }
        let spec = InboxSpec { slots: count(SLOTS)?, message_bytes_max: count(MESSAGE_BYTES_MAX)? };
        let slot_bytes = slot_bytes(&spec);
        let fits = spec.slots > 0 && spec.slots.checked_mul(slot_bytes) == Some(memory.len() - FIRST);
        fits.then_some(Ring { memory, spec, slot_bytes })
    }

    /// Whether it has this shape.
    pub(crate) fn is(&self, spec: &InboxSpec) -> bool {
        self.spec == *spec
    }

    /// Adds a message; any number of senders may do so at once.
    pub(crate) fn put(&self, words: &[u64], len: usize, immediate: Option<u32>) -> Result<(), OpError> {
        if len > self.spec.message_bytes_max {
            return Err(OpError::MessageTooLong { len });
        }
        let tail = self.memory.word(TAIL);
        for _ in 0..TRIES_MAX {
            let n = tail.load(Ordering::Relaxed);
            let slot = self.slot(n);
            let turn = self.memory.word(slot);
            if turn.load(Ordering::Acquire) == n.wrapping_mul(2) {
                if tail.compare_exchange(n, n.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed).is_err()
                {
                    continue;
                }
                let flag = if immediate.is_some() { HAS_IMMEDIATE } else { 0 };
                self.memory.word(slot + LEN).store(len as u64 | flag, Ordering::Relaxed);
                self.memory.word(slot + IMMEDIATE).store(immediate.unwrap_or(0).into(), Ordering::Relaxed);
                self.memory.write(slot + MESSAGE, words);
                turn.store(n.wrapping_mul(2) | 1, Ordering::Release);
                self.wake();
                return Ok(());
            }
            // The slot still holds the message of a lap ago, unless others have advanced meanwhile.
            if tail.load(Ordering::Relaxed) == n {
                return Err(OpError::InboxFull);
            }
        }
        Err(OpError::InboxFull)
    }

    /// Takes the next message out; there is one receiver.
    pub(crate) fn take(&self, words: &mut Vec<u64>) -> Option<Taken> {
        let head = self.memory.word(HEAD);
        let mut n = head.load(Ordering::Relaxed);
        // An earlier life of the receiver may have ended between freeing a slot and noting its place.
        for _ in 0..=self.spec.slots {
            let slot = self.slot(n);
            let turn = self.memory.word(slot);
            let found = turn.load(Ordering::Acquire);
            let freed = n.wrapping_add(self.spec.slots as u64).wrapping_mul(2);
            if found == n.wrapping_mul(2) | 1 {
                let len = self.memory.word(slot + LEN).load(Ordering::Relaxed);
                let immediate = self.memory.word(slot + IMMEDIATE).load(Ordering::Relaxed) as u32;
                let immediate = (len & HAS_IMMEDIATE != 0).then_some(immediate);
                // Whatever a sender wrote there, the message is not longer than the slot.
                let len = (len as u32 as usize).min(self.spec.message_bytes_max);
                words.resize(len.div_ceil(8), 0);
                self.memory.read(slot + MESSAGE, words);
                turn.store(freed, Ordering::Release);
                head.store(n.wrapping_add(1), Ordering::Relaxed);
                return Some(Taken { len, immediate });
            }
            if found != freed {
                return None;
            }
            n = n.wrapping_add(1);
            head.store(n, Ordering::Relaxed);
        }
        None
    }

    /// As [`Ring::take`], but sleeps until a message arrives or until `deadline`.
    pub(crate) fn wait(&self, words: &mut Vec<u64>, deadline: Instant) -> Option<Taken> {
        let asleep = self.memory.half_word(ASLEEP);
        loop {
            let taken = self.take(words);
            let left = deadline.saturating_duration_since(Instant::now());
            if taken.is_some() || left.is_zero() {
                return taken;
            }
            // A sender fills its slot and then checks this word; the receiver sets it and then checks the slots. So one
            // of them sees the other.
            asleep.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if let Some(taken) = self.take(words) {
                asleep.store(0, Ordering::Relaxed);
                return Some(taken);
            }
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            // Every outcome leads to another look at the slots.
            let _ = futex::wait(asleep, futex::Flags::empty(), 1, Some(&left));
        }
    }

    fn wake(&self) {
        fence(Ordering::SeqCst);
        let asleep = self.memory.half_word(ASLEEP);
        if asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0 {
            // The receiver may be gone, with nobody left to wake.
            let _ = futex::wake(asleep, futex::Flags::empty(), 1);
        }
    }

    fn slot(&self, n: u64) -> usize {
        FIRST + (n % self.spec.slots as u64) as usize * self.slot_bytes
    }
}

/// Bytes of one slot: whole lines, so that two senders never share a line.
fn slot_bytes(spec: &InboxSpec) -> usize {
    (MESSAGE + spec.message_bytes_max).next_multiple_of(LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(slots: usize, message_bytes_max: usize) -> Ring {
        let spec = InboxSpec { slots, message_bytes_max };
        let memory = Memory::anonymous(Ring::bytes(&spec)).unwrap();
        let mut words = vec![0; memory.len() / 8];
        Ring::init(&spec, &mut words);
        memory.fill(&words);
        Ring::open(Arc::new(memory)).unwrap()
    }

    fn again(ring: &Ring) -> Ring {
        Ring::open(Arc::clone(&ring.memory)).unwrap()
    }

    #[test]
    fn a_ring_of_any_size_fills_and_empties() {
        for slots in [1, 2, 3, 8] {
            let ring = ring(slots, 8);
            let mut words = Vec::new();
            for lap in 0..5 {
                for n in 0..slots as u64 {
                    assert_eq!(ring.put(&[100 * lap + n], 8, None), Ok(()));
                }
                assert_eq!(ring.put(&[0], 8, None), Err(OpError::InboxFull));
                for n in 0..slots as u64 {
                    assert_eq!(ring.take(&mut words), Some(Taken { len: 8, immediate: None }));
                    assert_eq!(words, [100 * lap + n]);
                }
                assert_eq!(ring.take(&mut words), None);
            }
        }
    }

    #[test]
    fn a_new_life_goes_on_where_the_old_one_ended() {
        let ring = ring(3, 8);
        let mut words = Vec::new();
        (0..3).for_each(|n| ring.put(&[n], 8, None).unwrap());
        ring.take(&mut words).unwrap();
        // As if killed between freeing the slot and noting its place.
        ring.memory.word(HEAD).store(0, Ordering::Relaxed);
        let next = again(&ring);
        assert!(next.take(&mut words).is_some() && words == [1]);
        assert!(next.take(&mut words).is_some() && words == [2]);
        assert_eq!(next.take(&mut words), None);
    }

    #[test]
    fn what_is_no_ring_is_not_opened() {
        let ring = ring(4, 100);
        for (offset, value) in [(SLOTS, 0), (SLOTS, 5), (SLOTS, u64::MAX), (MESSAGE_BYTES_MAX, 1 << 40)] {
            let before = ring.memory.load(offset);
            ring.memory.store(offset, value, Ordering::Relaxed);
            assert!(Ring::open(Arc::clone(&ring.memory)).is_none());
            ring.memory.store(offset, before, Ordering::Relaxed);
        }
        again(&ring);
        assert!(Ring::open(Arc::new(Memory::anonymous(HEADER_BYTES).unwrap())).is_none());
    }

    /// Others write the places of sender and receiver.
    #[test]
    fn a_place_may_be_any_number() {
        for place in [u64::MAX, u64::MAX / 2, 1 << 63] {
            for word in [HEAD, TAIL, FIRST] {
                let ring = ring(2, 8);
                ring.memory.word(word).store(place, Ordering::Relaxed);
                for _ in 0..4 {
                    let _ = ring.put(&[1], 8, None);
                    ring.take(&mut Vec::new());
                }
            }
        }
    }

    #[test]
    fn whatever_stands_in_a_slot_is_no_longer_than_it() {
        let ring = ring(2, 16);
        ring.put(&[1, 2], 16, Some(7)).unwrap();
        ring.memory.word(FIRST + LEN).store(u64::MAX, Ordering::Relaxed);
        assert_eq!(ring.take(&mut Vec::new()), Some(Taken { len: 16, immediate: Some(7) }));
    }
}
