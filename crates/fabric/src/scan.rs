//! Scans: a scan is one pass in which a thread reads all nodes of a cluster, in one batch with one wait.
//!
//! A [`Scanner`] holds the thread's links and makes broken ones again. It does not interpret what it reads: each
//! [`Reader`] names what it reads of a node and judges the copy. Several readers share one scan, and readers that name
//! the same region share one link.
//!
//! [`Pace`] decides which nodes a scan reads: a node that any reader calls busy each time, idle nodes in rotation. Torn
//! copies are read again together, in one further batch. No scan waits longer than [`Patience`] allows.

mod link;
mod pace;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidelong_layout::{RegionKind, Time};

use link::HealingLink;
pub use link::Problem;
pub use pace::{Pace, ScanCounts};
use pace::{Part, Schedule};

use crate::{Access, Batch, Directory, Error, Initiator, LinkId, OpError, OpId};

/// Between two scans that look whether links lead to the memory which peers would find now.
const CHECKS_EVERY: Duration = Duration::from_millis(20);
/// Links that such a scan looks at, in turn.
const CHECKS_MAX: usize = 16;

/// For how long no link is made to a machine where one was waited for in vain, in times of that wait: a machine that is cut off must not take all the
/// time of scans.
const SILENT_FOR: u32 = 5;

/// Links that a scan tries to make before it checks the clock, so that a few links take the same path on a slow
/// machine. One whose longest wait is more than the default has no need of that.
const UNTIMED_TRIES: usize = 32;

/// How long a scanner waits, and how often it retries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Longest wait for the answers of one scan, and of one operation.
    pub answers: Duration,
    /// Longest wait for a new link, and for all new links of one scan.
    pub links: Duration,
    /// Most links that one scan tries to make.
    pub tries_max: usize,
    /// Between two attempts to make a link: the first pause, doubled up to the last.
    pub retry: (Duration, Duration),
}

impl Default for Patience {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Patience { answers: ms(10), links: ms(50), tries_max: usize::MAX, retry: (ms(10), ms(1000)) }
    }
}

/// A region to link to.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// Its name.
    pub region: &'a str,
    /// Kind and length in bytes. The owner has chosen one of them.
    pub shapes: &'a [(RegionKind, usize)],
    /// Which of them to try first.
    pub guess: usize,
    /// The rights that are needed.
    pub access: Access,
    /// The items that are read through it.
    pub items: Range<usize>,
}

/// A link of a [`Scanner`], whether it is up or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkRef(u32);

/// How a reader judges a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOutcome {
    /// The item is idle: it may be read in rotation.
    Idle,
    /// The item is busy: read it at each scan.
    Busy,
    /// The item is busy, and its place or length has changed.
    Moved,
    /// The copy is torn: read it again. A reader returns this a bounded number of times in a row.
    Torn,
}

/// Something that is read of each item of a scan. Items are the nodes, followed by anything else.
pub trait Reader {
    /// The link over which `item` is read, or `None` if this reader reads nothing of it.
    fn link(&self, item: usize) -> Option<LinkRef>;

    /// Its place in a region of the shape that the link has found: offset and length in bytes.
    fn place(&mut self, item: usize, shape: usize) -> (usize, usize);

    /// Takes the result of a read. Items whose link is down are left out.
    fn take(&mut self, item: usize, words: Result<&[u64], OpError>, now: Time) -> ReadOutcome;

    /// Whether the next scan should read all items, regardless of rotation.
    fn wants_all(&mut self) -> bool {
        false
    }
}

/// The links of one thread for everything that it reads in scans; see the module.
pub struct Scanner {
    directory: Arc<dyn Directory>,
    initiator: Initiator,
    patience: Patience,
    links: Vec<HealingLink>,
    by_region: HashMap<String, LinkRef>,
    /// Links that nobody uses any more.
    free: Vec<LinkRef>,
    /// Links that are down or doubted. While there are none, a read's result needs no look at its link.
    wanting: Vec<LinkRef>,
    /// Machines at which the last attempt was waited for in vain, and until when no other one is made there.
    silent: Vec<(IpAddr, Time)>,
    /// The link to be checked next, and when.
    checks: (usize, Time),
    /// How often places had changed when links were last compared with them.
    moves: u64,
    schedule: Schedule,
    /// Time of the last scan.
    now: Time,
    /// One for each part of a scan; kept between scans.
    parts: Vec<Reads>,
    /// Incremented whenever a link is made or lost, or a reader's place changes.
    version: u64,
    /// Second reads of torn copies.
    again: Batch,
    torn: Vec<Read>,
    /// For single operations outside scans.
    single: Batch,
}

/// The reads of one part.
#[derive(Default)]
struct Reads {
    items: Vec<u32>,
    /// By item.
    reads: Vec<Read>,
    batch: Batch,
    version: u64,
}

#[derive(Clone, Copy)]
struct Read {
    item: u32,
    reader: u32,
    link: LinkRef,
    op: OpId,
}

impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scanner").field("links", &self.links).finish_non_exhaustive()
    }
}

impl Scanner {
    /// A scanner with room for `nodes` nodes and `others` further items that are never idle. It makes no link before the first
    /// scan.
    pub fn new(
        directory: Arc<dyn Directory>,
        initiator: Initiator,
        (nodes, others): (usize, usize),
        patience: Patience,
    ) -> Self {
        Scanner {
            directory,
            initiator,
            patience,
            links: Vec::new(),
            by_region: HashMap::new(),
            free: Vec::new(),
            wanting: Vec::new(),
            silent: Vec::new(),
            checks: (0, Time::default()),
            moves: 0,
            schedule: Schedule::new(nodes, others, Pace::default()),
            now: Time::default(),
            parts: Vec::new(),
            version: 1,
            again: Batch::new(),
            torn: Vec::new(),
            single: Batch::new(),
        }
    }

    /// Sets a pace other than the default.
    ///
    /// # Panics
    /// If the pace would read no node.
    pub fn set_pace(&mut self, pace: Pace) {
        self.schedule.set_pace(pace);
    }

    /// Waits longer for new links, [`Patience::links`], if that is longer than before.
    pub fn wait_for_links(&mut self, longest: Duration) {
        self.patience.links = self.patience.links.max(longest);
    }

    /// Links to a region from the next scan on. Targets in the same region share one link, until each has
    /// [left](Self::unlink) it.
    pub fn link(&mut self, target: &Target<'_>) -> LinkRef {
        let link = match self.by_region.entry(target.region.to_owned()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let made = HealingLink::new(target, self.patience.retry);
                let link = *new.insert(self.free.pop().unwrap_or(LinkRef(self.links.len() as u32)));
                match self.links.get_mut(link.index()) {
                    Some(free) => *free = made,
                    None => self.links.push(made),
                }
                self.want(link);
                link
            }
        };
        self.links[link.index()].users += 1;
        link
    }

    /// Makes a link that of other items from the next scan on.
    pub fn cover(&mut self, link: LinkRef, items: Range<usize>) {
        let covering = &mut self.links[link.index()];
        let before = covering.items();
        covering.cover(items.clone());
        if covering.id().is_some() {
            before.clone().filter(|item| !items.contains(item)).for_each(|item| self.schedule.unlinked(item));
            items.filter(|item| !before.contains(item)).for_each(|item| self.schedule.linked(item));
        }
        self.version += 1;
    }

    /// Gives a link up for one of those who asked for it, who must not use it any more. After the last it is closed.
    pub fn unlink(&mut self, link: LinkRef) {
        let left = &mut self.links[link.index()];
        left.users -= 1;
        if left.users > 0 {
            return;
        }
        self.by_region.remove(left.region());
        self.wanting.retain(|wanted| *wanted != link);
        self.free.push(link);
        // Its readers may be other ones at the next scan.
        self.version += 1;
        if let Some(id) = left.lose(OpError::Closed) {
            let items = left.items();
            self.initiator.close(id);
            items.for_each(|item| self.schedule.unlinked(item));
        }
    }

    /// What readers have to read is other than before, beyond the links of this.
    pub fn readers_changed(&mut self) {
        self.version += 1;
    }

    /// Sets the shape to try first while the link is down.
    pub fn guess(&mut self, link: LinkRef, shape: usize) {
        self.links[link.index()].guess(shape);
    }

    /// Reports that a link, though it works, may lead to memory that its owner has abandoned for a new region. The link
    /// is made again, at growing intervals, until it is trusted.
    pub fn doubt(&mut self, link: LinkRef) {
        self.links[link.index()].doubt();
        self.want(link);
    }

    /// Reports that a link leads to the right memory.
    pub fn trust(&mut self, link: LinkRef, now: Time) {
        if !self.wanting.is_empty() {
            self.links[link.index()].trust(now);
        }
    }

    /// Whether a link is up.
    pub fn is_up(&self, link: LinkRef) -> bool {
        self.wanting.is_empty() || self.links[link.index()].id().is_some()
    }

    /// The index of the region's shape, or `None` while the link is down.
    pub fn shape(&self, link: LinkRef) -> Option<usize> {
        let link = &self.links[link.index()];
        link.id().map(|_| link.shape())
    }

    /// Whether a link is up and leads to the memory that peers would find now. One that does not is closed, and made again
    /// by the next scans.
    pub fn is_current(&mut self, link: LinkRef) -> bool {
        let Some(id) = self.links[link.index()].id() else { return false };
        let is_current = self.initiator.is_current(id);
        if !is_current {
            self.judge(link, OpError::PeerGone);
        }
        is_current
    }

    /// Whether it is proven that the process which exposes the region has ended ([`Directory::has_ended`]). If the link is down it is
    /// tried at once, unless the last attempt at it, or at its machine, was met by silence and the pause after it is not over.
    pub fn has_ended(&mut self, link: LinkRef) -> bool {
        let tried = &self.links[link.index()];
        match tried.id() {
            Some(id) => !self.initiator.is_exposed(id),
            None => {
                let is_time =
                    (tried.found_nobody() || tried.is_due(self.now)) && !self.is_silent(link, self.now);
                let made = is_time.then(|| self.connect(link, self.now));
                let tried = &self.links[link.index()];
                let failed = made.and_then(Result::err);
                let has_ended =
                    || self.directory.has_ended(tried.region(), tried.incarnation(), failed.as_ref());
                tried.id().is_none() && has_ended()
            }
        }
    }

    /// The link's last problem, until the link is made again.
    pub fn problem(&self, link: LinkRef) -> Option<&Problem> {
        self.links[link.index()].problem()
    }

    /// Reads done and left out since it was made.
    pub fn counts(&self) -> ScanCounts {
        self.schedule.counts()
    }

    /// Performs one scan for `readers`, which must be the same at each scan.
    pub fn scan(&mut self, now: Time, readers: &mut [&mut dyn Reader]) {
        self.now = now;
        self.follow(now, readers);
        self.check(now, readers);
        self.heal(now);
        let all = readers.iter_mut().fold(false, |all, reader| reader.wants_all() | all);
        self.schedule.begin(now, self.patience.answers, all);
        let mut number = 0;
        while let Some(part) = self.schedule.next() {
            self.read(number, &part, now, readers);
            number += 1;
        }
    }

    /// Performs the one operation that `add` adds, outside scans, and waits for it.
    ///
    /// # Errors
    /// Why it failed. A broken link is closed, and made again by the next scans.
    pub fn execute(
        &mut self,
        link: LinkRef,
        add: impl FnOnce(&mut Batch, LinkId) -> OpId,
    ) -> Result<&[u64], OpError> {
        let id = self.links[link.index()].id().ok_or(OpError::PeerGone)?;
        self.single.clear();
        let op = add(&mut self.single, id);
        self.initiator.run(&mut self.single, self.patience.answers);
        if let Err(error) = self.single.words(op) {
            self.judge(link, error);
        }
        self.single.words(op)
    }

    /// Gives up links to memory that was left for another, some at a time, and tells their readers.
    fn check(&mut self, now: Time, readers: &mut [&mut dyn Reader]) {
        let (next, due) = self.checks;
        if now < due || self.links.is_empty() {
            return;
        }
        let count = self.links.len();
        for index in (next..next + CHECKS_MAX.min(count)).map(|index| index % count) {
            let link = LinkRef(index as u32);
            if self.links[index].id().is_some() && !self.is_current(link) {
                self.tell_gone(link, now, readers);
            }
        }
        self.checks = ((next + CHECKS_MAX) % count, now.after(CHECKS_EVERY));
    }

    /// Gives up links to where a region is no more, though something may still be there.
    fn follow(&mut self, now: Time, readers: &mut [&mut dyn Reader]) {
        if std::mem::replace(&mut self.moves, self.directory.moves()) == self.moves {
            return;
        }
        for link in (0..self.links.len()).map(|index| LinkRef(index as u32)) {
            let of = &self.links[link.index()];
            if of.id().is_some() && !of.has_stayed(&*self.directory) {
                self.judge(link, OpError::PeerGone);
                self.tell_gone(link, now, readers);
            }
        }
    }

    fn tell_gone(&self, link: LinkRef, now: Time, readers: &mut [&mut dyn Reader]) {
        for item in self.links[link.index()].items() {
            let of_it = readers.iter_mut().filter(|reader| reader.link(item) == Some(link));
            of_it.for_each(|reader| _ = reader.take(item, Err(OpError::PeerGone), now));
        }
    }

    /// Makes the links that are down and due, those first that have waited longest.
    ///
    /// A peer that cannot be reached may have used up the whole wait, so the remaining links are left for the next
    /// scan: the thread may hold a lease.
    fn heal(&mut self, now: Time) {
        if self.wanting.is_empty() {
            return;
        }
        let due = |link: &LinkRef| self.links[link.index()].is_due(now) && !self.is_silent(*link, now);
        let mut due: Vec<_> = self.wanting.iter().copied().filter(due).collect();
        due.sort_by_key(|link| self.links[link.index()].due());
        let began = Instant::now();
        let untimed = if self.patience.links > Patience::default().links { 1 } else { UNTIMED_TRIES };
        for (tried, link) in due.into_iter().take(self.patience.tries_max).enumerate() {
            if tried >= untimed && began.elapsed() >= self.patience.links {
                break;
            }
            match self.connect(link, now) {
                // A missing key costs no time.
                Ok(()) | Err(Error::NoKey { .. }) => {}
                Err(_) => break,
            }
        }
        self.wanting.retain(|link| {
            let link = &mut self.links[link.index()];
            link.is_listed = link.is_wanted();
            link.is_listed
        });
    }

    /// The machine where a link's region is, if that is known.
    fn machine(&self, link: LinkRef) -> Option<IpAddr> {
        self.directory.place(self.links[link.index()].region()).map(|place| place.ip())
    }

    /// Whether the last attempt at its machine was waited for in vain, a short time ago.
    fn is_silent(&self, link: LinkRef, now: Time) -> bool {
        if self.silent.is_empty() {
            return false;
        }
        let machine = self.machine(link);
        self.silent.iter().any(|(silent, until)| machine == Some(*silent) && now < *until)
    }

    fn want(&mut self, link: LinkRef) {
        if !std::mem::replace(&mut self.links[link.index()].is_listed, true) {
            self.wanting.push(link);
        }
    }

    /// Tries to make one link. After a wait in vain no link to its machine is made for a while.
    fn connect(&mut self, link: LinkRef, now: Time) -> Result<(), Error> {
        let (began, longest) = (Instant::now(), self.patience.links);
        let made = &mut self.links[link.index()];
        let old = made.id();
        if let Err(error) = made.connect(&mut self.initiator, &*self.directory, longest, now) {
            let waited = began.elapsed().min(longest);
            let machine = self.machine(link).filter(|_| waited >= longest / 2);
            self.silent.retain(|(_, until)| now < *until);
            self.silent.extend(machine.map(|machine| (machine, now.after(waited * SILENT_FOR))));
            return Err(error);
        }
        self.version += 1;
        for item in self.links[link.index()].items() {
            if old.is_some() {
                self.schedule.unlinked(item);
            }
            self.schedule.linked(item);
        }
        Ok(())
    }

    /// Gives up a link that is broken for good; a link that was only slow stays.
    fn judge(&mut self, link: LinkRef, error: OpError) {
        if !matches!(error, OpError::PeerGone | OpError::KeyRejected | OpError::Closed) {
            return;
        }
        let broken = &mut self.links[link.index()];
        let Some(id) = broken.lose(error) else { return };
        self.initiator.close(id);
        self.version += 1;
        broken.items().for_each(|item| self.schedule.unlinked(item));
        self.want(link);
    }

    /// Reads the items in part `number` of a scan.
    fn read(&mut self, number: usize, part: &Part, now: Time, readers: &mut [&mut dyn Reader]) {
        if number == self.parts.len() {
            self.parts.push(Reads::default());
        }
        let mut reads = std::mem::take(&mut self.parts[number]);
        let items = self.schedule.items(part.range.clone());
        if reads.version != self.version || reads.items != items {
            reads.make(items, &self.links, readers);
            reads.version = self.version;
        }
        self.initiator.run(&mut reads.batch, part.wait);
        self.torn.clear();
        let mut in_vain = false;
        for of_item in reads.reads.chunk_by(|one, next| one.item == next.item) {
            in_vain |= self.take(of_item, &reads.batch, now, readers);
        }
        if in_vain {
            self.schedule.waited(part);
        }
        self.parts[number] = reads;
        self.read_again(part.wait, now, readers);
    }

    /// Hands the result for one item to its readers; returns whether a wait for it was in vain.
    fn take(&mut self, reads: &[Read], batch: &Batch, now: Time, readers: &mut [&mut dyn Reader]) -> bool {
        let (mut busy, mut late) = (false, false);
        for read in reads {
            let words = batch.words(read.op);
            match readers[read.reader as usize].take(read.item as usize, words, now) {
                ReadOutcome::Idle => {}
                ReadOutcome::Busy => busy = true,
                ReadOutcome::Moved => {
                    busy = true;
                    self.version += 1;
                }
                ReadOutcome::Torn => {
                    busy = true;
                    self.torn.push(*read);
                }
            }
            match words {
                Ok(_) => {}
                Err(OpError::Timeout) => late = true,
                Err(error) => self.judge(read.link, error),
            }
        }
        let item = reads[0].item as usize;
        if late {
            self.schedule.missed(item);
        } else {
            self.schedule.saw(item, busy);
        }
        late
    }

    /// Reads torn copies again. It ends, because readers bound the number of repetitions.
    fn read_again(&mut self, wait: Duration, now: Time, readers: &mut [&mut dyn Reader]) {
        while !self.torn.is_empty() {
            self.schedule.read_again(self.torn.len());
            self.again.clear();
            let mut torn = std::mem::take(&mut self.torn);
            torn.retain_mut(|read| {
                let link = &self.links[read.link.index()];
                let (offset, len) = readers[read.reader as usize].place(read.item as usize, link.shape());
                let op = link.id().map(|id| self.again.read(id, offset, len));
                op.inspect(|op| read.op = *op).is_some()
            });
            self.initiator.run(&mut self.again, wait);
            torn.retain(|read| {
                // A link that is down is noticed at the next scan.
                let words = self.again.words(read.op);
                let took = readers[read.reader as usize].take(read.item as usize, words, now);
                self.version += u64::from(took == ReadOutcome::Moved);
                took == ReadOutcome::Torn
            });
            self.torn = torn;
        }
    }
}

impl Reads {
    fn make(&mut self, items: &[u32], links: &[HealingLink], readers: &mut [&mut dyn Reader]) {
        self.batch.clear();
        self.reads.clear();
        self.items.clear();
        self.items.extend(items);
        for item in items {
            for (number, reader) in readers.iter_mut().enumerate() {
                let Some(link) = reader.link(*item as usize) else { continue };
                let up = &links[link.index()];
                let Some(id) = up.id() else { continue };
                let (offset, len) = reader.place(*item as usize, up.shape());
                let op = self.batch.read(id, offset, len);
                self.reads.push(Read { item: *item, reader: number as u32, link, op });
            }
        }
    }
}

impl LinkRef {
    const fn index(self) -> usize {
        self.0 as usize
    }
}
