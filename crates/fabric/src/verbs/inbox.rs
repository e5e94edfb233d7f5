//! An inbox over verbs: receive buffers that the device fills, and for each link a word that tells its sender how far
//! the inbox is.
//!
//! Each link has `slots` buffers of its own, on its own queue pair. Its sender knows how many messages it has sent, and
//! behind each it reads the link's word, one-sidedly: how many of them were taken out, or that the inbox is gone. A buffer
//! waits for the next message before the word tells of it, so whoever sends no more than it says never meets a device
//! that is not ready, which would cost the connection. Nobody takes another's room, and nothing is left of a sender that
//! died.
//!
//! A sender that does otherwise hurts its own connection alone. It is `host`'s, and decides nothing about rights.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};

use super::setup::InboxGrant;
use super::sys::{
    Arrival, CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, RECEIVES_MAX, Receives, Registered,
    Rights,
};
use super::{Device, DeviceError};
use crate::InboxSpec;
use crate::inbox::Taken;
use crate::memory::Memory;
use crate::tcp::timespec;

/// What a sender finds in its word when the inbox is gone; else how many of its messages were taken out.
pub(super) const GONE: u64 = u64::MAX;
/// Links that are gone and whose messages wait, at least; with more, no new ones are made.
const LEAVERS_MAX: usize = 64;
/// Of the memory that holds a word: what is registered is whole pages.
const WORD_BYTES: usize = 4096;

/// The inbox of one region.
pub(super) struct Mailbox {
    spec: InboxSpec,
    device: Device,
    domain: Arc<ProtectionDomain>,
    /// Readable when something was reported that was waited for.
    channel: OwnedFd,
    state: Mutex<State>,
}

struct State {
    /// By the life of their queue pair.
    senders: BTreeMap<u32, Sender>,
    /// Reported, and not yet taken out.
    letters: VecDeque<Letter>,
    completions: CompletionQueue,
    /// How many it holds.
    completions_max: usize,
    gone: bool,
}

/// One link's half. Its queue pair goes before the buffers that it fills.
struct Sender {
    queue: QueuePair,
    /// Its messages that were taken out.
    taken: u64,
    word: Arc<Memory>,
    _registered: Arc<MemoryRegion>,
    /// Its messages are no longer wanted.
    shut: bool,
}

struct Letter {
    sender: u32,
    buffer: Registered,
    arrival: Arrival,
}

impl Sender {
    fn shut(&mut self) {
        self.shut = true;
        self.word.store(0, GONE, Ordering::Release);
    }
}

impl Mailbox {
    pub(super) fn new(
        device: &Device,
        domain: &Arc<ProtectionDomain>,
        spec: &InboxSpec,
    ) -> Result<Arc<Mailbox>, DeviceError> {
        let failed = device.failed("an inbox");
        if spec.slots > RECEIVES_MAX {
            return Err(failed(io::Error::other(format!("{} slots: {RECEIVES_MAX} at most", spec.slots))));
        }
        let completions = device.completion_queue(spec.slots as u32, true)?;
        let channel = completions.channel().ok_or(io::ErrorKind::Unsupported.into());
        let channel = channel.and_then(|channel| channel.try_clone_to_owned()).map_err(failed)?;
        let state = Mutex::new(State {
            senders: BTreeMap::new(),
            letters: VecDeque::new(),
            completions,
            completions_max: spec.slots,
            gone: false,
        });
        let (device, domain) = (device.clone(), Arc::clone(domain));
        Ok(Arc::new(Mailbox { spec: *spec, device, domain, channel, state }))
    }

    /// Nothing panics half-way through a change of the state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Nothing more is taken out, and senders are told so.
    pub(super) fn shut(&self) {
        let mut state = self.lock();
        state.gone = true;
        state.senders.values_mut().for_each(Sender::shut);
        state.letters.clear();
    }

    /// Room for one more link's messages, for the queue pair that is to receive them; nothing where the inbox is gone.
    pub(super) fn room(&self) -> Result<Option<Receives>, DeviceError> {
        let mut state = self.lock();
        if state.gone {
            return Ok(None);
        }
        if state.letters.len() > (state.senders.len() + LEAVERS_MAX) * self.spec.slots {
            let full = "its owner does not take out what links left behind that are gone";
            return Err(self.device.failed("an inbox")(io::Error::other(full)));
        }
        let wanted = (state.senders.len() + 1) * self.spec.slots;
        if wanted > state.completions_max {
            let len = u32::try_from(wanted).map_err(io::Error::other);
            let resized = len.and_then(|len| state.completions.resize(len));
            resized.map_err(self.device.failed("ibv_resize_cq"))?;
            state.completions_max = wanted;
        }
        Ok(Some(Receives::new(&state.completions, self.spec.slots)))
    }

    /// Lets what comes over `queue`, which was made with `room` and whose peer sends nothing yet, into the inbox.
    pub(super) fn add(self: &Arc<Mailbox>, mut queue: QueuePair) -> Result<(Seat, InboxGrant), DeviceError> {
        let InboxSpec { slots, message_bytes_max } = self.spec;
        let words = message_bytes_max.div_ceil(8).max(1);
        for buffer in self.device.buffers(&self.domain, slots, words)? {
            queue.receive(buffer).map_err(self.device.failed("ibv_post_recv"))?;
        }
        let word = Arc::new(Memory::anonymous(WORD_BYTES).map_err(self.device.failed("mmap"))?);
        let registered = self.device.register(&self.domain, Arc::clone(&word), Rights::Read)?;
        let grant = InboxGrant {
            address: registered.address(),
            rkey: registered.rkey(),
            slots: slots as u32,
            message_bytes_max: message_bytes_max as u32,
        };
        let sender = queue.life();
        let mut entry = Sender { queue, taken: 0, word, _registered: registered, shut: false };
        let mut state = self.lock();
        if state.gone {
            entry.shut();
        }
        state.senders.insert(sender, entry);
        Ok((Seat { mailbox: Arc::clone(self), sender }, grant))
    }
}

impl State {
    /// Takes over what was reported.
    fn collect(&mut self) {
        let State { senders, letters, completions, .. } = self;
        loop {
            let polled = match completions.poll() {
                Ok([]) => return,
                Ok(polled) => polled,
                Err(error) => return tracing::error!(%error, "an inbox cannot be polled"),
            };
            for completion in polled {
                let sender = completion.life();
                let Some(entry) = senders.get_mut(&sender) else { continue };
                let Some(buffer) = entry.queue.received(completion) else { continue };
                if completion.outcome().is_ok() && !entry.shut {
                    letters.push_back(Letter { sender, buffer, arrival: completion.arrival() });
                }
            }
        }
    }

    fn take(&mut self, words: &mut Vec<u64>) -> Option<Taken> {
        if self.letters.is_empty() {
            self.collect();
        }
        let Letter { sender, buffer, arrival } = self.letters.pop_front()?;
        let len = arrival.len.min(buffer.words().len() * 8);
        words.clear();
        words.extend(buffer.words()[..len.div_ceil(8)].iter().map(|word| u64::from_le(*word)));
        if let Some(entry) = self.senders.get_mut(&sender).filter(|entry| !entry.shut) {
            match entry.queue.receive(buffer) {
                Ok(()) => {
                    entry.taken += 1;
                    entry.word.store(0, entry.taken, Ordering::Release);
                }
                Err(error) => tracing::error!(%error, "an inbox has a slot less for one of its senders"),
            }
        }
        Some(Taken { len, immediate: arrival.immediate })
    }
}

/// A link's place at the inbox: with it goes its queue pair, but not what it has brought.
pub(super) struct Seat {
    mailbox: Arc<Mailbox>,
    sender: u32,
}

impl Seat {
    /// What it sends from here on is not received.
    pub(super) fn shut(&self) {
        if let Some(entry) = self.mailbox.lock().senders.get_mut(&self.sender) {
            entry.shut();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.mailbox.lock();
        // Some devices forget what they reported of a queue pair that is freed. What its sender knows to be delivered
        // was reported long before the end of its session is heard of.
        state.collect();
        state.senders.remove(&self.sender);
    }
}

/// The owner's end.
pub(crate) struct Receiver(Arc<Mailbox>);

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({:?})", self.0.spec)
    }
}

impl Receiver {
    pub(super) fn new(mailbox: &Arc<Mailbox>) -> Receiver {
        Receiver(Arc::clone(mailbox))
    }

    /// The next message if it is there: no system call where the device wants none to be given a buffer.
    pub(crate) fn take(&self, words: &mut Vec<u64>) -> Option<Taken> {
        self.0.lock().take(words)
    }

    /// The next message, for which the thread sleeps until `deadline` at most.
    pub(crate) fn wait(&self, words: &mut Vec<u64>, deadline: Instant) -> Option<Taken> {
        loop {
            if let Some(taken) = self.take(words) {
                return Some(taken);
            }
            let mut state = self.0.lock();
            let armed = state.completions.take_event().and_then(|()| state.completions.arm());
            // What was reported before it was armed is not told.
            if let Some(taken) = state.take(words) {
                return Some(taken);
            }
            drop(state);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let mut channel = [PollFd::new(&self.0.channel, PollFlags::IN)];
            let slept = armed.and_then(|()| Ok(poll(&mut channel, Some(&timespec(left)))?));
            match slept {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    tracing::error!(%error, "an inbox cannot be waited for");
                    return None;
                }
                _ => {}
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.shut();
    }
}
