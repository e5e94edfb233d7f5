//! An inbox over verbs: receive buffers that the device fills, and for each link a word that tells its sender the
//! progress.
//!
//! Each link has `slots` buffers of its own, on its own queue pair. The sender counts the messages that it has sent.
//! After each one it reads the link's word one-sidedly, which gives the number of messages taken out, or tells that the
//! inbox is gone. A buffer is posted for the next message before the word announces it. So a sender that keeps to the
//! word never meets a device that is not ready, which would cost it the connection. No sender uses another's buffers,
//! and a sender that dies leaves nothing behind.
//!
//! A sender that does not keep to the word harms only its own connection. Rights are checked in `host`, not here.

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

/// The value of a sender's word once the inbox is gone; otherwise the word counts the messages taken out.
pub(super) const GONE: u64 = u64::MAX;
/// Links that have closed but whose messages wait: up to this number, new links are accepted.
const LEAVERS_MAX: usize = 64;
/// Bytes of memory for a word: registration is by whole pages.
const WORD_BYTES: usize = 4096;

/// The inbox of one region.
pub(super) struct Mailbox {
    spec: InboxSpec,
    device: Device,
    domain: Arc<ProtectionDomain>,
    /// Readable when an awaited completion was reported.
    channel: OwnedFd,
    state: Mutex<State>,
}

struct State {
    /// By the life of their queue pair.
    senders: BTreeMap<u32, Sender>,
    /// Messages reported and not yet taken out.
    letters: VecDeque<Letter>,
    completions: CompletionQueue,
    /// Capacity of the completion queue.
    completions_max: usize,
    gone: bool,
}

/// The receiving half of one link. Its queue pair is dropped before the buffers that it fills.
struct Sender {
    queue: QueuePair,
    /// Messages taken out.
    taken: u64,
    word: Arc<Memory>,
    _registered: Arc<MemoryRegion>,
    /// Whether its further messages are dropped.
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

    /// Locks despite poisoning: nothing panics halfway through a change of the state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Closes the inbox: nothing more is taken out, and senders are told.
    pub(super) fn shut(&self) {
        let mut state = self.lock();
        state.gone = true;
        state.senders.values_mut().for_each(Sender::shut);
        state.letters.clear();
    }

    /// Buffers for one more link, for the queue pair that will receive its messages; `None` if the inbox is gone.
    pub(super) fn room(&self) -> Result<Option<Receives>, DeviceError> {
        let mut state = self.lock();
        if state.gone {
            return Ok(None);
        }
        if state.letters.len() > (state.senders.len() + LEAVERS_MAX) * self.spec.slots {
            let full = "the owner leaves too many messages of closed links in the inbox";
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

    /// Adds a link whose queue pair `queue` was made with `room`, and whose peer has sent nothing yet.
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
    /// Takes all reported completions.
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
                Err(error) => tracing::error!(%error, "an inbox has lost a slot of one sender"),
            }
        }
        Some(Taken { len, immediate: arrival.immediate })
    }
}

/// A link's place at the inbox. Dropping it drops the queue pair, but not the messages already received.
pub(super) struct Seat {
    mailbox: Arc<Mailbox>,
    sender: u32,
}

impl Seat {
    /// Drops what the link sends from now on.
    pub(super) fn shut(&self) {
        if let Some(entry) = self.mailbox.lock().senders.get_mut(&self.sender) {
            entry.shut();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.mailbox.lock();
        // Some devices forget completions of a queue pair that is destroyed. Messages that the sender knows to be
        // delivered were reported long before the end of its session is noticed.
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

    /// The next message if there is one, without a system call unless the device needs one to post a buffer.
    pub(crate) fn take(&self, words: &mut Vec<u64>) -> Option<Taken> {
        self.0.lock().take(words)
    }

    /// The next message; the thread sleeps until `deadline` at most.
    pub(crate) fn wait(&self, words: &mut Vec<u64>, deadline: Instant) -> Option<Taken> {
        loop {
            if let Some(taken) = self.take(words) {
                return Some(taken);
            }
            let mut state = self.0.lock();
            let armed = state.completions.take_event().and_then(|()| state.completions.arm());
            // Completions reported before arming cause no event.
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
