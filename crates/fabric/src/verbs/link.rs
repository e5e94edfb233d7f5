//! The initiator's half: all links of one initiator, with one completion queue, one wait and one deadline.
//!
//! Operations are staged in windows of half a queue pair's depth, and the device reports the last one of each window.
//! Data passes through buffers of the link. So what the device still moves after a batch was given up never touches the
//! batch: a late completion only returns its buffer.
//!
//! A failed link stays down, and its operations end with the link's error until the caller closes it and connects
//! again, with a new queue pair and new numbers. Operations on other links do not wait for it: its queue pair is
//! destroyed when they are done.
//!
//! While nothing completes, the sessions of the awaited links are checked every millisecond, because the end of a
//! session reveals a dead process before the device's retries do. With events, sessions and completions are awaited
//! together.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;

use super::outbox::{Next, Outbox};
use super::setup::{self, Endpoint};
use super::sys::{CompletionQueue, Failure, Note, ProtectionDomain, QueuePair, Registered, Rights, Work};
use super::{Device, DeviceError, KIND, random_sequence};
use crate::access::Token;
use crate::batch::{Kind, Request};
use crate::control::{Secret, Session};
use crate::key::Key;
use crate::tcp::timespec;
use crate::{Access, Batch, Error, LINKS_MAX, OpError};

/// Requests in flight on one link.
const DEPTH: u32 = 64;
/// Size of a small buffer, larger than a load record. There are as many as requests.
const SLOT_WORDS: usize = 64;
/// Size of a large buffer. Longer operations are split into pieces of this size. They are created with the first long
/// operation.
const CHUNK_WORDS: usize = 8 << 10;
const CHUNKS: usize = 8;
/// Longest payload that is sent inline with the request, if the device supports that.
const INLINE_BYTES: u32 = 220;
// A completion names its link in 16 bits, and adapters give a completion queue up to 2^22 entries.
const _: () = assert!(LINKS_MAX <= 1 << 16 && LINKS_MAX * DEPTH as usize <= 1 << 21);

/// Links for which the completion queue is sized at first.
const LINKS_AT_FIRST: u32 = 32;
/// Empty polls between two checks of the clock.
const POLLS: u32 = 64;
/// Interval at which sessions are checked while nothing completes.
const LOOK: Duration = Duration::from_millis(1);
/// Most regions with failed links that are remembered, to count reconnects.
const LOST_MAX: usize = 1024;
/// Identifies the completion queue's channel; sessions are identified by their link's slot.
const CHANNEL: u64 = u64::MAX;
const EVENTS_MAX: usize = 16;

/// The verbs links of one initiator.
pub(crate) struct Links {
    links: Vec<Option<Link>>,
    /// Links that the current batch uses.
    used: Vec<usize>,
    /// Number of the current batch.
    batch: u32,
    /// Operations of the current batch without an outcome yet.
    open: usize,
    completions: CompletionQueue,
    completions_max: u32,
    /// For waiting for the channel and the sessions; `None` with polling.
    epoll: Option<OwnedFd>,
    domain: Arc<ProtectionDomain>,
    lost: VecDeque<String>,
    device: Device,
    secret: Secret,
}

/// The result of polling the completion queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaped {
    Nothing,
    Some,
    /// There were completions, and more work was posted into the freed room.
    More,
}

struct Link {
    /// `None` once it is down. Dropped before the buffers' memory, which in-flight requests use.
    queue: Option<QueuePair>,
    /// Why the link is down.
    down: Option<OpError>,
    slots: Vec<Registered>,
    chunks: Vec<Registered>,
    /// Operations of this batch that found no room at once, in order. Those before `first` are fully staged, as are
    /// `at` words of `first` itself.
    waiting: Vec<u32>,
    first: usize,
    at: usize,
    /// Whether a read was staged that no later write or atomic has waited for.
    reads: bool,
    used: bool,
    /// The region's address at the target, its length, and the key's rights.
    address: u64,
    len: usize,
    access: Access,
    /// The sender's half of the region's inbox, if it has one.
    outbox: Option<Outbox>,
    name: String,
    session: Option<Session>,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.links.iter().flatten().map(|link| &link.name);
        f.debug_list().entries(names).finish()
    }
}

impl Links {
    pub(crate) fn new(device: &Device, secret: &Secret) -> Result<Links, DeviceError> {
        let completions_max = LINKS_AT_FIRST * DEPTH;
        let completions = device.completion_queue(completions_max, device.waits_by_events())?;
        let mut epoll = None;
        if let Some(channel) = completions.channel() {
            let made = epoll::create(epoll::CreateFlags::CLOEXEC).and_then(|epoll| {
                epoll::add(&epoll, channel, epoll::EventData::new_u64(CHANNEL), epoll::EventFlags::IN)?;
                Ok(epoll)
            });
            epoll = Some(made.map_err(|errno| device.failed("epoll")(errno.into()))?);
        }
        Ok(Links {
            links: Vec::new(),
            used: Vec::new(),
            batch: 0,
            open: 0,
            completions,
            completions_max,
            epoll,
            domain: device.domain()?,
            lost: VecDeque::new(),
            device: device.clone(),
            secret: secret.clone(),
        })
    }

    /// Connects over the control endpoint at `address`; returns the link's number.
    pub(crate) fn connect(
        &mut self,
        key: &Key,
        address: SocketAddr,
        token: Token,
        deadline: Instant,
    ) -> Result<usize, Error> {
        let device = self.device.clone();
        let left = || deadline.saturating_duration_since(Instant::now());
        let slot = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        self.make_room(slot)?;
        let mut session = Session::open(address, &self.secret, left())?;
        let made = QueuePair::new(&self.completions, &self.domain, slot as u16, DEPTH, INLINE_BYTES);
        let mut queue = made.map_err(device.failed("ibv_create_qp"))?;
        let sequence = random_sequence().map_err(device.failed("getrandom"))?;
        let own = device.address(&queue, sequence);
        let request =
            setup::Request { token, name: &key.name, endpoint: Endpoint::new(own, device.reads_out()) };
        let answer = session.exchange(KIND, &request.encode(), left())?;
        let grant = setup::decode_answer(&answer).map_err(|unwelcome| {
            device.tallies().refused.fetch_add(1, Ordering::Relaxed);
            unwelcome.into_error(key, address)
        })?;
        tracing::debug!(name = key.name, incarnation = grant.incarnation, "a verbs link");
        let timers = device.timers(sequence, device.reads_out().min(grant.endpoint.reads), 0);
        let connected = queue.connect(&timers, &grant.endpoint.peer(own.mtu), Rights::Local);
        connected.map_err(device.failed("ibv_modify_qp"))?;
        queue.use_rkey(grant.rkey);
        if let Some(epoll) = &self.epoll {
            let added =
                epoll::add(epoll, &session, epoll::EventData::new_u64(slot as u64), epoll::EventFlags::IN);
            added.map_err(|errno| device.failed("epoll")(errno.into()))?;
        }
        if let Some(at) = self.lost.iter().position(|name| *name == key.name) {
            self.lost.remove(at);
            device.tallies().reconnects.fetch_add(1, Ordering::Relaxed);
        }
        let link = Link {
            queue: Some(queue),
            down: None,
            slots: device.buffers(&self.domain, DEPTH as usize, SLOT_WORDS)?,
            chunks: Vec::new(),
            waiting: Vec::with_capacity(DEPTH as usize),
            first: 0,
            at: 0,
            reads: false,
            used: false,
            address: grant.address,
            len: key.len.min(usize::try_from(grant.len).unwrap_or(usize::MAX)),
            access: key.access,
            outbox: grant.inbox.map(Outbox::new),
            name: key.name.clone(),
            session: Some(session),
        };
        if slot == self.links.len() {
            self.links.push(None);
        }
        self.links[slot] = Some(link);
        Ok(slot)
    }

    /// Ensures that all requests of all links can fail at once, each with a completion.
    fn make_room(&mut self, slot: usize) -> Result<(), DeviceError> {
        let failed = self.device.failed("ibv_resize_cq");
        let wanted = (slot as u32 + 1) * DEPTH;
        if wanted > self.completions_max {
            let doubled = wanted.next_power_of_two();
            self.completions.resize(doubled).map_err(failed)?;
            self.completions_max = doubled;
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, slot: usize) {
        // The next run drops completions of its queue pair, because the next link in this slot has another life.
        let Some(link) = self.links[slot].take() else { return };
        if link.down.is_some() {
            if self.lost.len() == LOST_MAX {
                self.lost.pop_front();
            }
            self.lost.push_back(link.name.clone());
        }
    }

    /// Adds an operation for `complete` to run.
    #[inline]
    pub(crate) fn post(&mut self, slot: usize, batch: &mut Batch, index: usize) {
        // Most operations are reads, which have a fast path without checks for the other kinds.
        match batch.op(index).request {
            Request { kind: Kind::Read, offset, len } => {
                self.post_one(slot, batch, index, &Request { kind: Kind::Read, offset, len });
            }
            request => self.post_one(slot, batch, index, &request),
        }
    }

    #[inline(always)]
    fn post_one(&mut self, slot: usize, batch: &mut Batch, index: usize, request: &Request) {
        let link = self.links[slot].as_mut().expect("an open link's number");
        if let Some(reason) = link.down {
            return batch.finish(index, Err(reason));
        }
        // The outcome if nothing completes.
        batch.finish(index, Err(OpError::Timeout));
        // Checked here, because an error at the target would cost the connection.
        if let Err(error) = request.check(link.len, link.access) {
            return batch.finish(index, Err(error));
        }
        let tells = request.kind.is_for_inbox();
        if tells {
            let checked = link.outbox.as_ref().map_or(Err(OpError::NoInbox), |outbox| outbox.check(request));
            if let Err(error) = checked {
                return batch.finish(index, Err(error));
            }
        }
        if !link.used {
            link.used = true;
            self.used.push(slot);
        }
        self.open += 1;
        if link.first < link.waiting.len()
            || tells && !link.has_room(request)
            || !link.stage_small(self.batch, batch, index as u32, request)
        {
            link.waiting.push(index as u32);
        } else if link.is_half_staged() {
            self.pump(slot, batch);
        }
    }

    /// Runs the posted operations until the last completion, or for `timeout`.
    pub(crate) fn complete(&mut self, batch: &mut Batch, timeout: Duration) {
        for at in 0..self.used.len() {
            let slot = self.used[at];
            let rung = self.links[slot].as_mut().map(Link::ring_if_all_is_staged);
            if rung != Some(true) {
                self.pump(slot, batch);
            }
        }
        // Read when first needed: a short batch on a fast device ends before.
        let mut ends_at = None;
        let mut deadline = || *ends_at.get_or_insert_with(|| Instant::now() + timeout);
        let (mut polls, mut look_at) = (0, None);
        while self.open > 0 {
            match self.reap(batch) {
                Reaped::More => {
                    if Instant::now() >= deadline() {
                        break;
                    }
                }
                Reaped::Some => polls = 0,
                Reaped::Nothing if self.epoll.is_some() => {
                    if !self.sleep(batch, deadline()) {
                        break;
                    }
                }
                Reaped::Nothing if polls < POLLS => {
                    polls += 1;
                    std::hint::spin_loop();
                }
                Reaped::Nothing => {
                    polls = 0;
                    let (ends_at, now) = (deadline(), Instant::now());
                    if now >= ends_at {
                        break;
                    }
                    if now >= *look_at.get_or_insert(now + LOOK) {
                        look_at = Some(now + LOOK);
                        self.look(batch);
                        // Another thread that waits for this CPU may be the one that must answer.
                        std::thread::yield_now();
                    }
                }
            }
        }
        for slot in self.used.drain(..) {
            if let Some(link) = &mut self.links[slot] {
                link.rest();
            }
        }
        self.open = 0;
        self.batch = self.batch.wrapping_add(1);
    }

    /// Stages and posts as much as a link accepts.
    fn pump(&mut self, slot: usize, batch: &mut Batch) {
        let Some(link) = &mut self.links[slot] else { return };
        if let Err(error) = link.stage(self.batch, batch, &mut self.open, &self.domain, &self.device) {
            tracing::error!(%error, name = link.name, "a verbs link is down");
            self.open -= link.fail(OpError::PeerGone, self.batch, batch);
        }
    }

    /// Takes completions, and posts into the freed room.
    fn reap(&mut self, batch: &mut Batch) -> Reaped {
        let Links { links, completions, open, device, domain, batch: number, .. } = self;
        let polled = match completions.poll() {
            Ok(polled) => polled,
            Err(error) => {
                tracing::error!(%error, "the verbs links are down");
                for link in links.iter_mut().flatten() {
                    *open -= link.fail(OpError::PeerGone, *number, batch);
                }
                return Reaped::Nothing;
            }
        };
        let mut reaped = if polled.is_empty() { Reaped::Nothing } else { Reaped::Some };
        for completion in polled {
            let Some(Some(link)) = links.get_mut(usize::from(completion.slot())) else { continue };
            if link.down.is_some() {
                continue;
            }
            let Some(retired) = link.queue.as_mut().and_then(|queue| queue.retire(completion)) else {
                continue;
            };
            for (buffer, note) in retired {
                let index = note.index as usize;
                let mut refused = None;
                if let Some(outbox) = link.outbox.as_mut().filter(|_| note.look) {
                    outbox.hear(buffer.words()[0], note.batch == *number);
                    refused = outbox.outcome().err();
                }
                if note.batch == *number {
                    if note.words > 0 {
                        let (at, words) = (note.at as usize, note.words as usize);
                        batch.piece_mut(index, at, words).copy_from_slice(&buffer.words()[..words]);
                    }
                    if note.last {
                        match refused {
                            None => batch.finish(index, Ok(())),
                            Some(error) => batch.finish(index, Err(error)),
                        }
                        *open -= 1;
                    }
                }
                let pool =
                    if buffer.words().len() == SLOT_WORDS { &mut link.slots } else { &mut link.chunks };
                pool.push(buffer);
            }
            if let Err(failure) = completion.outcome() {
                device.tallies().completions_in_error.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(error = %reason(failure), name = link.name, "a verbs link is down");
                if let Failure::Other(status) = failure {
                    tracing::error!(
                        status,
                        name = link.name,
                        "an RDMA request failed unexpectedly: please report it"
                    );
                }
                *open -= link.fail(reason(failure), *number, batch);
            } else if link.first < link.waiting.len() {
                reaped = Reaped::More;
                if let Err(error) = link.stage(*number, batch, open, domain, device) {
                    tracing::error!(%error, name = link.name, "a verbs link is down");
                    *open -= link.fail(OpError::PeerGone, *number, batch);
                }
            }
        }
        reaped
    }

    /// Fails the links whose sessions have ended.
    fn look(&mut self, batch: &mut Batch) {
        for at in 0..self.used.len() {
            let slot = self.used[at];
            let waits =
                |link: &Link| link.queue.as_ref().is_some_and(|queue| queue.in_flight().next().is_some());
            if self.links[slot].as_ref().is_some_and(waits) {
                self.look_at(slot, batch);
            }
        }
    }

    fn look_at(&mut self, slot: usize, batch: &mut Batch) {
        let Some(Some(link)) = self.links.get_mut(slot) else { return };
        if link.session.as_ref().is_some_and(Session::is_closed) {
            tracing::debug!(name = link.name, "the peer's process is gone");
            self.open -= link.fail(OpError::PeerGone, self.batch, batch);
            // A session ends only once.
            link.session = None;
        }
    }

    /// Waits for completions or the end of a session; returns whether there is time left.
    fn sleep(&mut self, batch: &mut Batch, deadline: Instant) -> bool {
        let armed = self.completions.arm();
        // Completions reported before arming cause no event.
        if armed.is_ok() && self.reap(batch) != Reaped::Nothing {
            return true;
        }
        let Some(epoll) = &self.epoll else { return false };
        let mut events = [const { std::mem::MaybeUninit::uninit() }; EVENTS_MAX];
        let left = deadline.saturating_duration_since(Instant::now());
        let ready = match epoll::wait(epoll, &mut events[..], Some(&timespec(left))) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return !left.is_zero(),
            Err(error) => {
                tracing::error!(%error, "the verbs links cannot be waited for");
                return false;
            }
        };
        let mut taken = armed;
        for event in ready {
            match event.data.u64() {
                CHANNEL => taken = taken.and(self.completions.take_event()),
                slot => self.look_at(slot as usize, batch),
            }
        }
        if let Err(error) = taken {
            tracing::error!(%error, "the completion queue tells nothing");
            return false;
        }
        !left.is_zero()
    }
}

impl Link {
    /// Stages an operation that fits in a small buffer, if one is free and nothing waits before it; returns whether it
    /// did.
    #[inline(always)]
    fn stage_small(&mut self, number: u32, batch: &Batch, index: u32, request: &Request) -> bool {
        let words = request.words();
        if words > SLOT_WORDS || self.must_wait_for_reads(request) {
            return false;
        }
        let Some(queue) = self.queue.as_mut() else { return false };
        let Some(mut buffer) = self.slots.pop() else { return false };
        let (place, bytes) = (self.address + request.offset as u64, (words * 8) as u32);
        let note = Note { batch: number, index, at: 0, words: words as u32, last: true, look: false };
        let mut brings = words as u32;
        if request.kind.carries() {
            fill(&mut buffer, request, batch.buffer(index as usize));
            brings = 0;
        }
        let work = work(request, place, bytes, true);
        let tells = request.kind.is_for_inbox();
        let note = Note { words: brings, last: !tells, ..note };
        match queue.stage(&work, buffer, note) {
            Ok(()) => {
                self.reads = request.kind == Kind::Read;
                if tells {
                    self.stage_look_behind(note);
                }
                true
            }
            Err(buffer) => {
                self.slots.push(buffer);
                false
            }
        }
    }

    /// Stages the next piece of a long operation; returns its length in words, if there was room.
    fn stage_piece(&mut self, number: u32, batch: &Batch, index: u32, request: &Request) -> Option<usize> {
        if self.must_wait_for_reads(request) {
            return None;
        }
        let queue = self.queue.as_mut().filter(|queue| queue.room() > 0)?;
        let mut buffer = self.chunks.pop()?;
        let (at, all) = (self.at, request.words());
        let words = (all - at).min(buffer.words().len());
        if request.kind.carries() {
            fill(&mut buffer, request, &batch.buffer(index as usize)[at..at + words]);
        }
        let place = self.address + (request.offset + at * 8) as u64;
        let (last, tells) = (at + words == all, request.kind.is_for_inbox());
        let work = work(request, place, (words * 8) as u32, last);
        let brings = if request.kind.carries() { 0 } else { words as u32 };
        let note =
            Note { batch: number, index, at: at as u32, words: brings, last: last && !tells, look: false };
        let staged = queue.stage(&work, buffer, note);
        if staged.is_ok() {
            self.reads = request.kind == Kind::Read;
            if last && tells {
                self.stage_look_behind(note);
            }
        }
        staged.map_err(|buffer| self.chunks.push(buffer)).ok().map(|()| words)
    }

    /// Whether the request must wait until all before it are done: a write or an atomic behind a read, because the target
    /// might otherwise perform it first (IBA volume 1, 10.8.3.3).
    ///
    /// That is what the flag IBV_SEND_FENCE is for. But soft-RoCE (Linux 6.1, rxe_req.c and rxe_comp.c) may miss the read's
    /// completion while it decides to wait for it, and then sends nothing more until the next post.
    #[inline]
    fn must_wait_for_reads(&self, request: &Request) -> bool {
        self.reads && request.kind != Kind::Read && self.queue.as_ref().is_some_and(|queue| !queue.is_idle())
    }

    /// Whether there is room for the request. A message also needs room in the inbox, and for the read that follows it.
    #[inline]
    fn has_room(&self, request: &Request) -> bool {
        !request.kind.is_for_inbox()
            || self.outbox.as_ref().is_some_and(|outbox| outbox.next() == Next::Send)
                && self.queue.as_ref().is_some_and(|queue| queue.room() > 1)
                && self.slots.len() > 1
    }

    /// Stages the read of the inbox's word that follows the message staged as `note`; `has_room` has ensured its room.
    fn stage_look_behind(&mut self, note: Note) {
        if let Some(outbox) = &mut self.outbox {
            outbox.sent();
        }
        self.stage_look(Note { words: 0, last: true, ..note });
    }

    /// Stages a read of the inbox's word, if there is room.
    fn stage_look(&mut self, note: Note) {
        let (Some(queue), Some(outbox)) = (&mut self.queue, &mut self.outbox) else { return };
        let Some(buffer) = self.slots.pop() else { return };
        match queue.stage(&outbox.look(), buffer, Note { look: true, ..note }) {
            Ok(()) => outbox.asked(),
            Err(buffer) => self.slots.push(buffer),
        }
    }

    /// Stages and posts as many waiting operations as buffers and room allow.
    fn stage(
        &mut self,
        number: u32,
        batch: &mut Batch,
        open: &mut usize,
        domain: &Arc<ProtectionDomain>,
        device: &Device,
    ) -> Result<(), DeviceError> {
        let mut pieces = 0;
        while let Some(index) = self.waiting.get(self.first).copied() {
            let request = batch.op(index as usize).request;
            if !self.has_room(&request) {
                match self.outbox.as_ref().map(Outbox::next) {
                    Some(Next::Refuse(error)) => {
                        batch.finish(index as usize, Err(error));
                        *open -= 1;
                        (self.first, self.at) = (self.first + 1, 0);
                        continue;
                    }
                    Some(Next::Look) => self.stage_look(Note { batch: number, index, ..Note::default() }),
                    Some(Next::Send | Next::Wait) | None => {}
                }
                break;
            }
            if request.words() <= SLOT_WORDS {
                if !self.stage_small(number, batch, index, &request) {
                    break;
                }
                self.first += 1;
            } else {
                if self.chunks.capacity() == 0 {
                    // A message is a single piece, however long.
                    let message = self.outbox.as_ref().map_or(0, Outbox::message_bytes_max);
                    let words = CHUNK_WORDS.max(message.div_ceil(8));
                    self.chunks = device.buffers(domain, CHUNKS, words)?;
                }
                let Some(words) = self.stage_piece(number, batch, index, &request) else { break };
                self.at += words;
                pieces += 1;
                if self.at == request.words() {
                    self.first += 1;
                    self.at = 0;
                }
            }
            // While one half of the room is in flight, the other half is refilled.
            if pieces == CHUNKS / 2 || self.is_half_staged() {
                pieces = 0;
                self.ring(device)?;
            }
        }
        self.ring(device)
    }

    #[inline]
    fn is_half_staged(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.staged() >= DEPTH / 2)
    }

    /// The fast path for a batch that found room; returns whether it applied and the device accepted it.
    #[inline]
    fn ring_if_all_is_staged(&mut self) -> bool {
        let queue = self.queue.as_mut().filter(|_| self.waiting.is_empty());
        queue.is_some_and(|queue| queue.post().is_ok())
    }

    /// Posts the staged requests to the device.
    #[inline]
    fn ring(&mut self, device: &Device) -> Result<(), DeviceError> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        queue.post().map_err(|source| device.failed("ibv_post_send")(source))
    }

    /// Marks the link as down; returns how many operations of batch `number` this ends.
    fn fail(&mut self, reason: OpError, number: u32, batch: &mut Batch) -> usize {
        self.down.get_or_insert(reason);
        let mut failed = 0;
        let in_flight = self.queue.iter().flat_map(QueuePair::in_flight);
        let last_pieces = in_flight.filter(|note| note.last && note.batch == number).map(|note| note.index);
        for index in last_pieces.chain(self.waiting[self.first..].iter().copied()) {
            batch.finish(index as usize, Err(reason));
            failed += 1;
        }
        self.first = self.waiting.len();
        failed
    }

    /// Ends the batch.
    fn rest(&mut self) {
        self.used = false;
        self.waiting.clear();
        (self.first, self.at) = (0, 0);
        if let Some(outbox) = &mut self.outbox {
            outbox.rest();
        }
        if self.down.is_some() {
            // Once the queue pair is destroyed, the device no longer uses the buffers. The target notices, too.
            self.queue = None;
            self.session = None;
            self.slots = Vec::new();
            self.chunks = Vec::new();
        }
    }
}

/// Copies an operation's data into the buffer: words, or a message's bytes.
#[inline]
fn fill(buffer: &mut Registered, request: &Request, from: &[u64]) {
    let to = &mut buffer.words_mut()[..from.len()];
    to.copy_from_slice(from);
    if request.kind == Kind::Send {
        to.iter_mut().for_each(|word| *word = word.to_le());
    }
}

#[inline]
fn work(request: &Request, place: u64, len: u32, last: bool) -> Work {
    match request.kind {
        Kind::Read => Work::read(place, len),
        Kind::Write => Work::write(place, len),
        Kind::CompareAndSwap { expected, new } => Work::compare_and_swap(place, expected, new),
        Kind::FetchAndAdd { add } => Work::fetch_and_add(place, add),
        Kind::Send => Work::send(request.len as u32),
        Kind::WriteWithImmediate { immediate } if last => Work::write_with_immediate(place, len, immediate),
        Kind::WriteWithImmediate { .. } => Work::write(place, len),
    }
}

fn reason(failure: Failure) -> OpError {
    match failure {
        Failure::Denied => OpError::KeyRejected,
        Failure::Unreachable | Failure::Flushed | Failure::Other(_) => OpError::PeerGone,
    }
}
