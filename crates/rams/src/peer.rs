//! One node of the cooperative cache of Gu and Wang 2004: its two caches, its two directories of references, and its
//! messages.
//!
//! It is a state machine without clock and I/O. The driver calls [`Peer::look`] for each client request and does what
//! it returns: serve from memory, read another node's memory, send a message, or read a disk. It reports the outcome
//! with [`Peer::read_done`], [`Peer::receive`] and [`Peer::loaded`], which add further [`Act`]s. The simulator drives
//! it by events, a live node by its fabric.
//!
//! An object has a home, the node whose disk holds it. Only its home loads it, into the outgoing cache. Other nodes
//! read it from there into their incoming caches, and remember the place. A read names the slot and generation that it
//! expects, and the slot's contents say which they are. So a read of an object that was evicted, moved or replaced
//! fails and never returns other bytes. [`Peer::verify`] is what the reader finds in the bytes; the home's CPU takes no
//! part.

use std::collections::{BTreeMap, VecDeque};
use std::iter::Sum;
use std::ops::Sub;

use crate::lists::{Arena, List};
use crate::protocol::{CacheSettings, Change, HEADER_BYTES, Message, NOTE_BYTES, Protocol, Rate};
use sidelong_policy::cache::store::{Eviction, Gone, Place, Room, Store};

/// Ledger: most notes for one reader.
const NOTES_MAX: usize = 64;

/// A node, by number from 0.
pub type NodeId = u32;

/// The node that counts for all in [`Protocol::Accumulated`].
pub const MASTER: NodeId = 0;

/// One-sided reads of one request that may fail before the home is asked to send the bytes.
pub const FAILURES_MAX: u8 = 2;

/// Where to get the object of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// In this node's memory.
    Here,
    /// In its home's memory, as far as known: read it there.
    There {
        /// Its place there.
        place: Place,
        /// Its size.
        bytes: u32,
    },
    /// Only its home knows: [`Peer::ask`] it.
    Ask,
    /// On this node's own disk: [`Peer::load`] it.
    Load,
}

/// Something for the driver to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Send a message.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message.
        message: Message,
    },
    /// Read an object from this node's disk, then call [`Peer::loaded`].
    Load {
        /// The object.
        key: u64,
    },
    /// Read an object from its home's memory, then call [`Peer::read_done`].
    Read {
        /// The request that it is for.
        tag: u32,
        /// The home.
        from: NodeId,
        /// Its place there.
        place: Place,
        /// Its size.
        bytes: u32,
    },
    /// The bytes for a request have arrived.
    Done {
        /// The request.
        tag: u32,
    },
    /// An object is in the outgoing cache: its bytes go where other nodes read them. To be done before what follows.
    Publish {
        /// The object.
        key: u64,
        /// Its place.
        place: Place,
    },
    /// An object has left the outgoing cache: a read of its place fails from now on. To be done before what follows.
    Withdraw {
        /// The object.
        key: u64,
        /// Its former place.
        place: Place,
    },
    /// Another node's object is in the incoming cache.
    Keep {
        /// The object.
        key: u64,
    },
    /// Another node's object has left the incoming cache.
    Drop {
        /// The object.
        key: u64,
    },
}

/// Counts since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// One-sided reads of other nodes' memory, and how many of them failed.
    pub reads: u64,
    /// See `reads`.
    pub read_failures: u64,
    /// Requests sent to homes.
    pub asks: u64,
    /// Objects read from the node's own disk.
    pub loads: u64,
    /// Messages sent only to keep references up to date.
    pub update_messages: u64,
    /// Bytes sent or fetched to keep references up to date.
    pub update_bytes: u64,
}

impl Counters {
    fn with(self, other: Counters, each: impl Fn(u64, u64) -> u64) -> Counters {
        Counters {
            reads: each(self.reads, other.reads),
            read_failures: each(self.read_failures, other.read_failures),
            asks: each(self.asks, other.asks),
            loads: each(self.loads, other.loads),
            update_messages: each(self.update_messages, other.update_messages),
            update_bytes: each(self.update_bytes, other.update_bytes),
        }
    }
}

/// Counts since `before`.
impl Sub for Counters {
    type Output = Counters;

    fn sub(self, before: Counters) -> Counters {
        self.with(before, |all, before| all - before)
    }
}

/// Counts of several nodes.
impl<'a> Sum<&'a Counters> for Counters {
    fn sum<I: Iterator<Item = &'a Counters>>(counters: I) -> Counters {
        counters.fold(Counters::default(), |all, own| all.with(*own, |all, own| all + own))
    }
}

/// A node that waits for a load, and its number for the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waiter {
    node: NodeId,
    tag: u32,
    bytes_wanted: bool,
}

/// What a home keeps with an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Offered {
    /// The readers that were given its place, where the protocol needs to know.
    to: List,
    /// Whether any reader was.
    ever: bool,
}

/// One node of the cooperative cache.
#[derive(Clone, Debug)]
pub struct Peer {
    me: NodeId,
    peers: u32,
    settings: CacheSettings,
    counters: Counters,

    /// The outgoing cache and its reference directory.
    outgoing: Store<Offered>,
    holders: Arena<NodeId>,
    /// The requests that wait for each object of the node's own disk.
    loads: BTreeMap<u64, Vec<Waiter>>,
    /// Objects that were evicted after they had been offered, and the number of the first.
    gone: VecDeque<u64>,
    gone_first: u64,
    /// The first of them that not all readers have been told of.
    told: u64,
    /// Nodes that ever asked.
    readers: Vec<bool>,

    /// The incoming cache.
    incoming: Store<()>,
    /// The incoming reference directory: an object's place in its home's memory.
    references: Store<Place>,
    /// By home: reads since the last request.
    unreported: Vec<u16>,
    /// Receiver, by home: the number of its changes that this node knows.
    seen: Vec<u64>,
    /// The reads of this node, of its readers, or of all, depending on the protocol.
    rate: Rate,

    /// Ledger. By reader: its references that became invalid. By home: what was read there.
    notes: Vec<List>,
    note_arena: Arena<u64>,
    marks: Vec<List>,
    mark_arena: Arena<Place>,
}

impl Peer {
    /// The node `me` of `peers`.
    ///
    /// # Panics
    /// If the settings do not pass [`CacheSettings::check`], or there is no such node.
    pub fn new(me: NodeId, peers: u32, settings: CacheSettings) -> Self {
        assert!(settings.check().is_ok(), "settings are checked");
        assert!(me < peers, "{me} is one of {peers}");
        let CacheSettings { protocol, eviction, outgoing, incoming, references, .. } = settings;
        let by_peer = |is_used: bool| if is_used { peers as usize } else { 0 };
        let is_ledger = protocol == Protocol::Ledger;
        let is_told_of_reads = matches!(protocol, Protocol::Sender);
        Peer {
            me,
            peers,
            settings,
            counters: Counters::default(),
            outgoing: Store::new(eviction, outgoing),
            holders: Arena::new(),
            loads: BTreeMap::new(),
            gone: VecDeque::new(),
            gone_first: 0,
            told: 0,
            readers: vec![false; by_peer(matches!(protocol, Protocol::Sender | Protocol::Accumulated))],
            incoming: Store::new(eviction, incoming),
            // Gu and Wang do not say how references are replaced. SIEVE's are as good, and a hit changes no neighbour.
            references: Store::new(Eviction::Sieve, by_number(references)),
            unreported: vec![0; by_peer(is_told_of_reads)],
            seen: vec![0; by_peer(protocol == Protocol::Receiver)],
            rate: Rate::default(),
            notes: vec![List::default(); by_peer(is_ledger)],
            note_arena: Arena::new(),
            marks: vec![List::default(); by_peer(is_ledger)],
            mark_arena: Arena::new(),
        }
    }

    /// Counts since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Number of its own objects, of other nodes' objects, and of references.
    pub fn entries(&self) -> [usize; 3] {
        [self.outgoing.len(), self.incoming.len(), self.references.len()]
    }

    /// Bytes of memory that its tables use.
    pub fn table_bytes(&self) -> usize {
        let stores =
            self.outgoing.table_bytes() + self.incoming.table_bytes() + self.references.table_bytes();
        stores + self.holders.bytes() + self.note_arena.bytes() + self.mark_arena.bytes()
    }

    /// Where to get the object of a client's request. Counts as an access.
    #[inline]
    pub fn look(&mut self, key: u64, home: NodeId) -> Look {
        if home == self.me {
            return if self.outgoing.get(key).is_some() { Look::Here } else { Look::Load };
        }
        if self.incoming.get(key).is_some() {
            return Look::Here;
        }
        if self.settings.protocol == Protocol::Rpc {
            return Look::Ask;
        }
        match self.references.get_value(key) {
            Some((place, bytes)) => Look::There { place, bytes },
            None => Look::Ask,
        }
    }

    /// Prefetches what a [`Peer::look`] for `key` will read, in three steps with some time between them: see
    /// [`Store::warm_index`]. False if the steps so far suffice, as they do for objects in the first of the two tables.
    #[inline]
    pub fn warm(&self, key: u64, home: NodeId, step: u32) -> bool {
        let is_own = home == self.me;
        match step {
            0 if is_own => self.outgoing.warm_index(key),
            0 => self.incoming.warm_index(key),
            1 if is_own => {
                self.outgoing.warm_hit(key);
                return false;
            }
            1 if self.incoming.warm_hit(key) => return false,
            1 => self.references.warm_index(key),
            _ => _ = self.references.warm_slot(key),
        }
        true
    }

    /// Prefetches for a later [`Peer::verify`].
    #[inline]
    pub fn warm_place(&self, place: Place) {
        self.outgoing.warm_place(place);
    }

    /// Prefetches for a [`Peer::read_done`] that succeeds, in three steps.
    #[inline]
    pub fn warm_keep(&self, key: u64, step: u32) {
        self.incoming.warm_insert(key, step);
    }

    /// Prefetches for a [`Peer::read_done`] that fails.
    #[inline]
    pub fn warm_forget(&self, key: u64) {
        self.references.warm_remove(key);
    }

    /// Prefetches for a [`Peer::receive`], in two steps.
    #[inline]
    pub fn warm_message(&self, message: &Message, step: u32) {
        match message {
            Message::Ask { key, .. } if step == 0 => self.outgoing.warm_index(*key),
            Message::Ask { key, .. } => _ = self.outgoing.warm_slot(*key),
            Message::Offer { key, .. } => self.references.warm_insert(*key, step),
            _ => (),
        }
    }

    /// Loads an object of the node's own disk for the request `tag`, unless it is being loaded already.
    pub fn load(&mut self, key: u64, tag: u32, acts: &mut Vec<Act>) {
        self.wait(key, Waiter { node: self.me, tag, bytes_wanted: false }, acts);
    }

    /// Asks an object's home for it, for the request `tag`, of which `failures` reads have failed.
    pub fn ask(&mut self, key: u64, home: NodeId, tag: u32, failures: u8, acts: &mut Vec<Act>) {
        self.counters.asks += 1;
        let bytes_wanted = self.settings.protocol == Protocol::Rpc || failures >= FAILURES_MAX;
        let reads = self.unreported.get_mut(home as usize).map_or(0, std::mem::take);
        let mut marks = Vec::new();
        if let Some(list) = self.marks.get_mut(home as usize) {
            marks.extend(std::iter::from_fn(|| self.mark_arena.pop(list)));
        }
        let failed = failures > 0;
        let message = Message::Ask { key, tag, bytes_wanted, reads: reads.into(), failed, marks };
        self.send(home, message, acts);
    }

    /// Whether `place` in this node's memory still holds `key`, as a reader finds from the bytes.
    #[inline]
    pub fn verify(&self, place: Place, key: u64) -> bool {
        self.outgoing.holds(place, key)
    }

    /// Ledger: the notes for the node `reader`, which it fetches along with a read and passes to its [`Peer::note`].
    pub fn notes_of(&mut self, reader: NodeId, notes: &mut Vec<u64>) {
        let count_max = self.settings.notes_max as usize;
        if let Some(list) = self.notes.get_mut(reader as usize) {
            notes.extend(std::iter::from_fn(|| self.note_arena.pop(list)).take(count_max));
        }
    }

    /// Ledger: bytes of notes that a read fetches.
    pub fn note_bytes(&self) -> u32 {
        if self.settings.protocol == Protocol::Ledger && self.settings.notes_max > 0 {
            NOTE_BYTES * (1 + self.settings.notes_max)
        } else {
            0
        }
    }

    /// Ledger: takes the notes that came with a read.
    pub fn note(&mut self, notes: &[u64]) {
        // Notes that were read are deleted by a one-sided write.
        let struck_out = if notes.is_empty() { 0 } else { NOTE_BYTES };
        self.counters.update_bytes += u64::from(self.note_bytes() + struck_out);
        for key in notes {
            self.references.remove(*key);
        }
    }

    /// A read of `key` at `place` of `home` has ended. If it failed, the reference is dropped and the caller asks the
    /// home.
    pub fn read_done(
        &mut self,
        key: u64,
        home: NodeId,
        place: Place,
        bytes: u32,
        is_sound: bool,
        acts: &mut Vec<Act>,
    ) {
        self.counters.reads += 1;
        if is_sound {
            self.keep(key, bytes, acts);
            self.mark(home, place);
        } else {
            self.counters.read_failures += 1;
            let known = self.references.value(key).map(|(place, _)| *place);
            if known == Some(place) {
                self.references.remove(key);
            }
        }
        if let Some(reads) = self.unreported.get_mut(home as usize) {
            *reads = reads.saturating_add(1);
        }
        let failures = u32::from(!is_sound);
        let CacheSettings { protocol, sample_reads, threshold, .. } = self.settings;
        match protocol {
            Protocol::Receiver if self.rate.is_over(1, failures, sample_reads, threshold) => {
                let me = self.me;
                for home in (0..self.peers).filter(|home| *home != me) {
                    let message = Message::Refresh { since: self.seen[home as usize] };
                    self.send(home, message, acts);
                }
            }
            Protocol::Accumulated if self.me == MASTER => self.tally(1, failures, acts),
            Protocol::Accumulated => {
                self.rate.reads += 1;
                self.rate.failures += failures;
                if self.rate.reads >= sample_reads {
                    let Rate { reads, failures } = std::mem::take(&mut self.rate);
                    self.send(MASTER, Message::Tally { reads, failures }, acts);
                }
            }
            _ => (),
        }
    }

    /// A message has arrived.
    pub fn receive(&mut self, from: NodeId, message: Message, acts: &mut Vec<Act>) {
        match message {
            Message::Ask { key, tag, bytes_wanted, reads, failed, marks } => {
                marks.iter().for_each(|place| self.outgoing.touch(*place));
                if let Some(is_reader) = self.readers.get_mut(from as usize) {
                    *is_reader = true;
                }
                let CacheSettings { protocol, sample_reads, threshold, .. } = self.settings;
                if protocol == Protocol::Sender
                    && self.rate.is_over(reads, u32::from(failed), sample_reads, threshold)
                {
                    self.tell_all(acts);
                }
                let waiter = Waiter { node: from, tag, bytes_wanted };
                match self.outgoing.get(key) {
                    Some(place) => self.offer(key, Some(place), None, waiter, acts),
                    None => self.wait(key, waiter, acts),
                }
            }
            Message::Offer { key, tag, bytes, place, changes } => {
                self.change(&changes);
                match place {
                    Some(place) => {
                        self.refer(key, place, bytes);
                        acts.push(Act::Read { tag, from, place, bytes });
                    }
                    None => {
                        self.keep(key, bytes, acts);
                        acts.push(Act::Done { tag });
                    }
                }
            }
            Message::Update { changes, until } => {
                if let Some(seen) = self.seen.get_mut(from as usize) {
                    *seen = until;
                }
                self.change(&changes);
            }
            Message::Refresh { since } => {
                let (changes, until) = (self.changes_since(since), self.gone_until());
                self.send(from, Message::Update { changes, until }, acts);
            }
            Message::Tally { reads, failures } => self.tally(reads, failures, acts),
            Message::Propagate => self.tell_all(acts),
        }
    }

    /// An object of the node's own disk has been read.
    pub fn loaded(&mut self, key: u64, bytes: u32, acts: &mut Vec<Act>) {
        self.counters.loads += 1;
        let place = match self.outgoing.peek(key) {
            Some(place) => Some(place),
            None => {
                let mut gone = Vec::new();
                let place = self.outgoing.insert(key, bytes, Offered::default(), |went| gone.push(went));
                gone.into_iter().for_each(|went| self.went(went, acts));
                acts.extend(place.map(|place| Act::Publish { key, place }));
                place
            }
        };
        for waiter in self.loads.remove(&key).unwrap_or_default() {
            if waiter.node == self.me {
                acts.push(Act::Done { tag: waiter.tag });
            } else {
                self.offer(key, place, Some(bytes), waiter, acts);
            }
        }
    }

    fn wait(&mut self, key: u64, waiter: Waiter, acts: &mut Vec<Act>) {
        let waiters = self.loads.entry(key).or_default();
        if waiters.is_empty() {
            acts.push(Act::Load { key });
        }
        waiters.push(waiter);
    }

    fn offer(&mut self, key: u64, place: Option<Place>, bytes: Option<u32>, to: Waiter, acts: &mut Vec<Act>) {
        let bytes = bytes.or_else(|| self.outgoing.value(key).map(|(_, bytes)| bytes)).unwrap_or(0);
        let place = place.filter(|_| !to.bytes_wanted);
        if let Some(offered) = place.and_then(|place| self.outgoing.value_mut(place)) {
            offered.ever = true;
            if let Some(notes) = self.notes.get_mut(to.node as usize) {
                // A reader that is given the place need not be told that it once changed.
                self.note_arena.remove(notes, key);
            }
            let is_listed = matches!(self.settings.protocol, Protocol::Aggressive | Protocol::Ledger);
            if is_listed && !self.holders.iter(offered.to).any(|node| node == to.node) {
                self.holders.push(&mut offered.to, to.node);
            }
        }
        let mut changes = Vec::new();
        if let Some(list) = self.notes.get_mut(to.node as usize) {
            let notes = std::iter::from_fn(|| self.note_arena.pop(list));
            let notes = notes.take(self.settings.carried_max as usize);
            changes.extend(notes.map(|key| Change { key, place: None }));
        }
        self.send(to.node, Message::Offer { key, tag: to.tag, bytes, place, changes }, acts);
    }

    /// An object was evicted from the outgoing cache.
    fn went(&mut self, went: Gone<Offered>, acts: &mut Vec<Act>) {
        acts.push(Act::Withdraw { key: went.key, place: went.place });
        let mut offered = went.value;
        if !offered.ever {
            return;
        }
        match self.settings.protocol {
            Protocol::Aggressive => {
                while let Some(node) = self.holders.pop(&mut offered.to) {
                    let changes = vec![Change { key: went.key, place: None }];
                    self.send(node, Message::Update { changes, until: 0 }, acts);
                }
            }
            Protocol::Ledger => {
                while let Some(node) = self.holders.pop(&mut offered.to) {
                    let notes = &mut self.notes[node as usize];
                    // A reader that does not fetch its notes learns from failed reads.
                    if self.note_arena.iter(*notes).count() < NOTES_MAX {
                        self.note_arena.push(notes, went.key);
                    }
                }
            }
            Protocol::Sender | Protocol::Receiver | Protocol::Accumulated => {
                if self.gone.len() >= self.settings.changes_max as usize {
                    self.gone.pop_front();
                    self.gone_first += 1;
                }
                self.gone.push_back(went.key);
            }
            Protocol::Rpc | Protocol::Lazy => (),
        }
    }

    /// Tells all readers what was evicted since the last time.
    fn tell_all(&mut self, acts: &mut Vec<Act>) {
        let changes = self.changes_since(self.told);
        self.told = self.gone_until();
        if changes.is_empty() {
            return;
        }
        for node in 0..self.peers {
            if node != self.me && self.readers[node as usize] {
                let message = Message::Update { changes: changes.clone(), until: self.told };
                self.send(node, message, acts);
            }
        }
    }

    /// The number of the next eviction.
    fn gone_until(&self) -> u64 {
        self.gone_first + self.gone.len() as u64
    }

    /// Evictions from number `since` on, as far as remembered, and the objects' current places.
    fn changes_since(&self, since: u64) -> Vec<Change> {
        let skip = since.saturating_sub(self.gone_first) as usize;
        let keys = self.gone.iter().skip(skip);
        keys.map(|key| Change { key: *key, place: self.outgoing.peek(*key) }).collect()
    }

    /// Counts for all nodes, as the master.
    fn tally(&mut self, reads: u32, failures: u32, acts: &mut Vec<Act>) {
        // The sample of each node's reads is as large as if each counted for itself.
        let sample = self.settings.sample_reads.saturating_mul(self.peers);
        if self.rate.is_over(reads, failures, sample, self.settings.threshold) {
            for node in (0..self.peers).filter(|node| *node != MASTER) {
                self.send(node, Message::Propagate, acts);
            }
            self.tell_all(acts);
        }
    }

    fn change(&mut self, changes: &[Change]) {
        for Change { key, place } in changes {
            match (place, self.references.peek(*key)) {
                (Some(place), Some(known)) => {
                    if let Some(reference) = self.references.value_mut(known) {
                        *reference = *place;
                    }
                }
                (None, Some(_)) => _ = self.references.remove(*key),
                (_, None) => (),
            }
        }
    }

    fn refer(&mut self, key: u64, place: Place, bytes: u32) {
        if self.references.get(key).is_some() {
            self.references.replace(key, bytes, place);
        } else {
            self.references.insert(key, bytes, place, |_| ());
        }
    }

    /// Keeps another node's object.
    fn keep(&mut self, key: u64, bytes: u32, acts: &mut Vec<Act>) {
        if self.incoming.peek(key).is_none() {
            let dropped = |gone: Gone<()>| acts.push(Act::Drop { key: gone.key });
            let is_kept = self.incoming.insert(key, bytes, (), dropped).is_some();
            acts.extend(is_kept.then_some(Act::Keep { key }));
        }
    }

    /// Remembers to tell `home` what was read there, up to what a message carries.
    fn mark(&mut self, home: NodeId, place: Place) {
        let carried_max = self.settings.carried_max as usize;
        let Some(list) = self.marks.get_mut(home as usize) else { return };
        let mut known = self.mark_arena.iter(*list);
        let (mut count, mut is_known) = (0, false);
        while let (Some(marked), false) = (known.next(), is_known) {
            is_known = marked == place;
            count += 1;
        }
        drop(known);
        if !is_known && count < carried_max {
            self.mark_arena.push(list, place);
        }
    }

    fn send(&mut self, to: NodeId, message: Message, acts: &mut Vec<Act>) {
        let (bytes, is_update) = message.update_bytes();
        self.counters.update_bytes += u64::from(bytes);
        self.counters.update_messages += u64::from(is_update);
        debug_assert!(bytes == 0 || message.bytes() >= HEADER_BYTES);
        acts.push(Act::Send { to, message });
    }
}

/// Limits references by their number, whatever the objects' sizes.
fn by_number(room: Room) -> Room {
    let entries_max = u64::from(room.entries_max).min(room.bytes_max) as u32;
    Room { bytes_max: u64::MAX / 2, entries_max }
}

#[cfg(test)]
mod tests;
