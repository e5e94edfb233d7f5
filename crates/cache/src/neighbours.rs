//! The other caches of a cluster, whose memory this one reads.
//!
//! Each key has a home, the cache that holds its item. Any cache answers a `get` of any key: it reads the home's memory, and
//! the home takes no part (`reader`). What changes an item is carried out by its home ([`Errands`]).
//!
//! The memory of another machine is read by a device. While there is no link to it, the home is asked.

use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidelong_fabric::{Access, Backoff, Batch, Directory, Error, Initiator, OpError};
use sidelong_layout::{CACHE_ITEM_BYTES, CACHE_READS, CacheItem, CacheMap, RegionKind, Slots, Time};
use sidelong_policy::cache::homes::{Changed, Placement};
use siphasher::sip::SipHasher13;

use crate::cache::{Cache, Item, Seconds, Share, hashed, hasher};
use crate::near::{Near, Ticket};
use crate::reader::{ItemRead, Link, PATIENCE, Reader, SECOND_NS, Sound};
use crate::way::Way;

/// The longest wait for a link to a neighbour's memory. Clients wait meanwhile.
const LINK_PATIENCE: Duration = Duration::from_millis(50);
/// Between two attempts to link to the memory of another machine: the first pause, doubled up to the last.
const LINK_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// One of so many reads is stated to the home, so that what others read stays there. An item that matters is read more often.
const STATED_PART: u32 = 16;
/// Commands for others that sessions may leave before the driver sends them.
const ERRANDS_MAX: usize = 256;

/// The second of a cache whose second 0 was at `began_ns`, at `now_ns`.
pub(crate) fn second(began_ns: u64, now_ns: u64) -> Seconds {
    (now_ns.saturating_sub(began_ns) / SECOND_NS) as Seconds
}

/// A cache of the cluster.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its name, which no other has.
    pub name: String,
    /// The name of its region.
    pub region: String,
    /// What is where in its region.
    pub map: CacheMap,
    /// How it is told to carry out commands; `None` if it cannot be.
    pub way: Option<Way>,
}

/// What was read of others' memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// Items that were found there.
    pub hits: u64,
    /// Items that were not.
    pub misses: u64,
    /// Of the misses, those of items that were being changed, or of homes that cannot be read or do not answer.
    pub failures: u64,
    /// Commands that homes were asked to carry out.
    pub forwarded: u64,
    /// Items of which there was a copy here: homes were not asked.
    pub near: u64,
}

/// The home of a key, if that is another cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// Its slot.
    pub peer: usize,
    /// A hash of the key.
    pub key: u64,
}

/// Whom a command is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// The home of the command's key.
    Home(Home),
    /// The former home of the key, in this slot. If that keeps no such item any more, the new home.
    Both(usize, Home),
    /// All others.
    All,
}

impl From<Home> for To {
    fn from(home: Home) -> Self {
        To::Home(home)
    }
}

/// A command that others are to carry out, as the client wrote it. Their answer is what the client reads.
#[derive(Debug)]
pub(crate) struct Errand {
    /// Who carries it out.
    pub(crate) to: To,
    /// How it is written.
    pub(crate) language: Language,
    /// The command, in [`Errands::commands`].
    pub(crate) command: Range<usize>,
    /// The answer of a home that has no such item, if the command only reads.
    pub(crate) miss: Option<Vec<u8>>,
    /// What its answer is to be kept by, if a copy of it is.
    pub(crate) near: Option<Ticket>,
    /// Bytes of answers that were there before it.
    pub(crate) answered: usize,
}

/// Commands for others that a session has left with its driver, in their order.
#[derive(Debug, Default)]
pub struct Errands {
    pub(crate) commands: Vec<u8>,
    pub(crate) all: Vec<Errand>,
}

/// How a command and its answer are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Language {
    /// The text protocol, meta commands included.
    Text = 1,
    /// The text protocol, of which the answer lacks its last line: it is one of the answers to a line of keys.
    Key = 2,
    /// The binary protocol.
    Binary = 3,
}

impl Language {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        [Language::Text, Language::Key, Language::Binary].into_iter().find(|one| *one as u8 == byte)
    }
}

impl Errands {
    fn push(&mut self, command: &[&[u8]]) -> Range<usize> {
        let start = self.commands.len();
        command.iter().for_each(|part| self.commands.extend_from_slice(part));
        start..self.commands.len()
    }

    /// Forgets all, and keeps the room.
    pub(crate) fn clear(&mut self) {
        self.commands.clear();
        self.all.clear();
    }
}

/// A cache, and the link to its memory.
struct Neighbour {
    peer: Peer,
    link: Option<Link>,
    /// Number of reads that it has stated to this cache, as far as they were counted here.
    counted: u64,
    /// When to link to it again.
    retry: Backoff,
}

/// The caches of the cluster, and the links to their memory.
pub struct Neighbours {
    me: usize,
    placement: Placement,
    hasher: SipHasher13,
    /// Where their memory is found; `None` if they are asked.
    directory: Option<Arc<dyn Directory>>,
    /// Whether their memory is that of other machines.
    is_remote: bool,
    initiator: Initiator,
    /// By slot; what it says of this cache itself is not used.
    all: Vec<Option<Neighbour>>,
    batch: Batch,
    reads: Reads,
    /// Copies of their items, if reads may be as old as these.
    near: Option<Near>,
    /// What sessions have left for the driver to send.
    errands: Errands,
}

impl Neighbour {
    fn new(peer: Peer) -> Self {
        let pauses = if peer.map.is_remote() { LINK_PAUSES } else { (Duration::ZERO, Duration::ZERO) };
        Neighbour { peer, link: None, counted: 0, retry: Backoff::new(pauses) }
    }
}

impl Neighbours {
    /// The neighbours of the cache `me` among `peers`, by slot. Their regions are found in `directory`, and read by links of `initiator`,
    /// whose cluster all parts have alike; without a directory nobody's memory is read, and homes are asked.
    ///
    /// # Panics
    /// If there is no such cache.
    pub fn new(
        me: usize,
        peers: &Slots<Peer>,
        placement: Placement,
        directory: Option<Arc<dyn Directory>>,
        initiator: Initiator,
    ) -> Self {
        Neighbours {
            me,
            placement,
            hasher: hasher([initiator.cluster(), 0]),
            directory,
            is_remote: peers[me].map.is_remote(),
            initiator,
            all: peers.all().map(|peer| peer.cloned().map(Neighbour::new)).collect(),
            batch: Batch::new(),
            reads: Reads::default(),
            near: None,
            errands: Errands::default(),
        }
    }

    /// Goes by other caches and homes from now on. Returns the slots whose cache is another one than before.
    pub fn adopt(&mut self, peers: &Slots<Peer>, placement: Placement) -> Vec<usize> {
        let name = |peer: Option<&Peer>| peer.map(|peer| peer.name.clone());
        let is_other =
            |slot: &usize| name(self.neighbour(*slot).map(|known| &known.peer)) != name(peers.get(*slot));
        let others: Vec<_> = (0..peers.len().max(self.all.len())).filter(is_other).collect();
        self.all.resize_with(peers.len().max(self.all.len()), || None);
        for slot in &others {
            let neighbour = peers.get(*slot).cloned().map(Neighbour::new);
            let former = mem::replace(&mut self.all[*slot], neighbour);
            former.and_then(|former| former.link).into_iter().for_each(|link| self.initiator.close(link.id));
        }
        self.placement = placement;
        self.near.iter_mut().for_each(Near::clear);
        others
    }

    /// The homes of keys.
    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// How the cache in a slot is told to carry out commands, if there is one.
    pub(crate) fn way(&self, slot: usize) -> Option<Way> {
        self.neighbour(slot)?.peer.way.clone()
    }

    /// The keys whose items this cache keeps.
    pub fn share(&self) -> Share {
        Share { slot: self.me, placement: self.placement.clone(), hasher: self.hasher }
    }

    /// With copies of the items of homes that are asked.
    #[must_use]
    pub fn keeping(self, near: Near) -> Self {
        Neighbours { near: Some(near), ..self }
    }

    /// What was read since the start.
    pub fn reads(&self) -> Reads {
        self.reads
    }

    /// The name of the cache with a number.
    pub fn name(&self, number: usize) -> &str {
        self.neighbour(number).map_or("that has left", |known| &known.peer.name)
    }

    fn neighbour(&self, slot: usize) -> Option<&Neighbour> {
        self.all.get(slot)?.as_ref()
    }

    /// Whether homes are asked for items, because nobody's memory is read.
    pub(crate) fn are_asked(&self) -> bool {
        self.directory.is_none()
    }

    /// The home that is to be asked for the item of a key, if that is another cache whose memory cannot be read. On one machine
    /// there is nobody to ask if there is no link.
    pub(crate) fn asked(&self, key: &[u8]) -> Option<Home> {
        if !self.are_asked() && !self.is_remote {
            return None;
        }
        let link = |home: &Home| self.neighbour(home.peer)?.link.as_ref();
        let is_read = |home: &Home| link(home).is_some_and(Link::is_ready);
        self.home(key).filter(|home| !is_read(home))
    }

    /// Whether a session may leave further commands for others, before it hears of those that it has left. What is read in a home's
    /// memory must wait until what that was asked to change is done.
    pub(crate) fn takes_more(&self) -> bool {
        self.are_asked() && self.errands.all.len() < ERRANDS_MAX
    }

    /// Takes the answer to what a home was asked for, an item or `miss`; `None` if it has not answered. It is kept by `near`.
    pub(crate) fn was_asked(&mut self, answer: Option<&[u8]>, miss: &[u8], near: Option<Ticket>) {
        let hit = answer.filter(|answer| *answer != miss);
        self.reads.hits += u64::from(hit.is_some());
        self.reads.misses += u64::from(hit.is_none());
        self.reads.failures += u64::from(answer.is_none());
        if let (Some(near), Some(ticket), Some(hit)) = (&mut self.near, near, hit) {
            near.keep(ticket, hit);
        }
    }

    /// The number of this cache.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// The slots of the others that may keep items.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> {
        self.placement.slots().filter(|slot| *slot != self.me)
    }

    /// The home of a key, if that is another cache: it is read for the item.
    #[inline]
    pub fn home(&self, key: &[u8]) -> Option<Home> {
        let key = hashed(self.hasher, key);
        let peer = self.placement.read_at(key);
        (peer != self.me).then_some(Home { peer, key })
    }

    /// Who carries out what changes the item of a key, if not this cache alone.
    #[inline]
    pub fn changed_at(&self, key: &[u8]) -> Option<To> {
        let key = hashed(self.hasher, key);
        match self.placement.changed_at(key) {
            Changed::At(peer) if peer == self.me => None,
            Changed::At(peer) => Some(To::Home(Home { peer, key })),
            // It keeps no such item.
            Changed::AtBoth(old, new) if new == self.me => Some(To::Home(Home { peer: old, key })),
            Changed::AtBoth(old, new) if old == self.me => Some(To::Home(Home { peer: new, key })),
            Changed::AtBoth(old, new) => Some(To::Both(old, Home { peer: new, key })),
        }
    }

    /// Whether homes change.
    pub fn is_changing(&self) -> bool {
        self.placement.is_changing()
    }

    /// Leaves the parts of a command that changes something for the driver to send, behind so many bytes of answers.
    pub(crate) fn send(&mut self, to: To, language: Language, command: &[&[u8]], answered: usize) {
        self.reads.forwarded += 1;
        match (&mut self.near, to) {
            (Some(near), To::Home(home) | To::Both(_, home)) => near.forget(home.key),
            (Some(near), To::All) => near.clear(),
            (None, _) => {}
        }
        let command = self.errands.push(command);
        self.errands.all.push(Errand { to, language, command, miss: None, near: None, answered });
    }

    /// Takes a command that only reads, in parts. If there is a copy of an earlier answer to it, that is appended. Otherwise the
    /// command is left for the driver to send, with `miss`, the answer if there is no item. Returns whether there was a copy.
    pub(crate) fn ask(
        &mut self,
        home: Home,
        language: Language,
        command: &[&[u8]],
        miss: Vec<u8>,
        out: &mut Vec<u8>,
    ) -> bool {
        let command = self.errands.push(command);
        let mut ticket = None;
        if let Some(near) = &mut self.near {
            let (text, now) = (&self.errands.commands[command.clone()], Instant::now());
            if let Some(answer) = near.find(home.key, language, text, now) {
                out.extend_from_slice(answer);
                self.errands.commands.truncate(command.start);
                self.reads.near += 1;
                return true;
            }
            ticket = near.asked(home.key, language, text, now);
        }
        let (to, miss, answered) = (To::Home(home), Some(miss), out.len());
        self.errands.all.push(Errand { to, language, command, miss, near: ticket, answered });
        false
    }

    /// Exchanges what sessions have left for an empty list.
    pub fn take_errands(&mut self, errands: &mut Errands) {
        errands.clear();
        mem::swap(&mut self.errands, errands);
    }

    /// The item of a key in its home's memory, with its times as `cache` counts them at `now`.
    pub(crate) fn read(
        &mut self,
        home: usize,
        key: &[u8],
        cache: &mut Cache,
        now: Seconds,
    ) -> Option<Item<'_>> {
        let link = self.all.get_mut(home).and_then(|neighbour| neighbour.as_mut()?.link.as_mut());
        let found = match link {
            Some(link) => {
                let hash = link.hash(key);
                let (initiator, batch) = (&mut self.initiator, &mut self.batch);
                let read = Reader { initiator, batch, link, key, hash }.read();
                read.map(|found| found.map(|found| (found, hash)))
            }
            None => Err(OpError::PeerGone),
        };
        let found = found.inspect_err(|error| self.fail(home, *error));
        let (sound, hash) = match found {
            Ok(Some((ItemRead::Sound(sound), hash))) => (sound, hash),
            found => {
                self.reads.misses += 1;
                self.reads.failures += u64::from(!matches!(found, Ok(None)));
                return None;
            }
        };
        self.reads.hits += 1;
        if self.reads.hits.is_multiple_of(STATED_PART.into()) {
            cache.state_read(home, hash);
        }
        let Sound { op, item, home_now } = sound;
        let bytes = self.batch.bytes(op).ok()?;
        Some(Item {
            flags: item.flags,
            cas: item.cas,
            expires: if item.expires == 0 { 0 } else { now.saturating_add(item.expires - home_now) },
            accessed: now,
            was_fetched: true,
            is_stale: item.has(CacheItem::STALE),
            is_won: item.has(CacheItem::WON),
            value: &bytes[CACHE_ITEM_BYTES + key.len()..item.len()],
        })
    }

    /// A read over the link to a neighbour has failed. What was not answered in time may be answered later; otherwise the next
    /// ticks make the link again.
    fn fail(&mut self, number: usize, error: OpError) {
        let Some(Neighbour { peer, link, .. }) = &mut self.all[number] else { return };
        tracing::debug!(region = peer.region, %error, "a neighbour was not read");
        match error {
            OpError::Timeout => link.iter_mut().for_each(Link::doubt),
            _ => link.take().into_iter().for_each(|link| self.initiator.close(link.id)),
        }
    }

    /// Links to neighbours that are there again, and counts the reads of this cache's items that the others state. To be called
    /// some ten times a second, with the time of [`monotonic_ns`](sidelong_os::monotonic_ns).
    pub fn tick(&mut self, cache: &mut Cache, now: Time) {
        cache.state_age(now.as_ns());
        let Some(directory) = self.directory.clone() else { return };
        let me = self.me;
        // Clients wait while a link is made. To memory of this machine that takes no time.
        let mut tries = if self.is_remote { 1 } else { self.all.len() };
        for number in (0..self.all.len()).filter(|number| *number != me) {
            let Some(Neighbour { link, retry, .. }) = &mut self.all[number] else { continue };
            if link.is_none() && tries > 0 && retry.is_due(now) {
                tries -= 1;
                retry.failed(now);
                if let Err(error) = self.link(number, &*directory, now) {
                    tracing::debug!(%error, "no link to a neighbour");
                }
            }
            if let Err(error) = self.count_reads(number, cache) {
                self.fail(number, error);
            }
        }
    }

    fn link(&mut self, number: usize, directory: &dyn Directory, now: Time) -> Result<(), Error> {
        let Some(Neighbour { peer: Peer { region, map, .. }, link, counted, retry }) = &mut self.all[number]
        else {
            return Ok(());
        };
        let key = directory.find(region, RegionKind::Cache, map.len(), Access::ReadOnly)?;
        let id = self.initiator.connect(&key, LINK_PATIENCE)?;
        let opened = Link::open(id, *map, &mut self.initiator, &mut self.batch);
        self.batch.clear();
        let reads = self.batch.read(id, map.reads(self.me), 8);
        self.initiator.run(&mut self.batch, PATIENCE);
        match (opened, self.batch.value(reads)) {
            (Some(opened), Ok(reads)) => (*link, *counted) = (Some(opened), reads),
            // It has only begun.
            _ => self.initiator.close(id),
        }
        retry.succeeded(now);
        Ok(())
    }

    fn count_reads(&mut self, number: usize, cache: &mut Cache) -> Result<(), OpError> {
        let Some(Neighbour { peer: Peer { map, .. }, link: Some(link), counted, .. }) = &mut self.all[number]
        else {
            return Ok(());
        };
        link.tick(&mut self.initiator, &mut self.batch)?;
        self.batch.clear();
        let reads = self.batch.read(link.id, map.reads(self.me), 8);
        self.initiator.run(&mut self.batch, PATIENCE);
        let stated = self.batch.value(reads)?;
        let first = (*counted).max(stated.saturating_sub(CACHE_READS as u64));
        *counted = stated;
        if first >= stated {
            return Ok(());
        }
        // The hashes lie in a ring: those before its end, and those from its begin on.
        let until_end = CACHE_READS as u64 - first % CACHE_READS as u64;
        let middle = stated.min(first + until_end);
        self.batch.clear();
        let parts = [first..middle, middle..stated].map(|part| {
            let bytes = (part.end - part.start) as usize * 8;
            (bytes > 0).then(|| self.batch.read(link.id, map.read(self.me, part.start), bytes))
        });
        self.initiator.run(&mut self.batch, PATIENCE);
        for part in parts.into_iter().flatten() {
            self.batch.words(part)?.iter().for_each(|hash| cache.was_read(*hash));
        }
        Ok(())
    }
}
