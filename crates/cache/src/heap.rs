//! Memory for items: slots of few sizes in pages, and runs of blocks for what is larger.
//!
//! A page belongs to one class, whose slots are all of one size, until its last slot is free; then it is any class's. So
//! memory follows the sizes that are stored: whoever needs room [clears](Heap::cheapest) the page that costs least, of
//! whatever class. There are 8 classes for each doubling, so that a slot is at most 1/8 larger than its item.
//!
//! What is larger than the largest class takes a run of blocks, which may go across pages that hold nothing but runs.
//!
//! The heap knows which slots are in use, not what is in them. It never touches a page before its first use, so that an
//! idle cache that exposes its memory to nobody takes none from the machine.
//!
//! A place keeps the first word of what lay there, the stamp of an item, while it is free and until its next item. Where others
//! read the memory, whatever makes a place of another size says so first ([`CacheLife::generation`]).
//!
//! [`CacheLife::generation`]: sidelong_layout::CacheLife::generation

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use sidelong_fabric::OwnedRegion;
use sidelong_layout::{CACHE_UNIT, CacheLife, CacheMap};

/// Bytes of a page: this part of the heap, in these bounds. So there are more pages than classes, in a small heap too.
const PAGE_BYTES_MIN: usize = 64 << 10;
const PAGE_BYTES_MAX: usize = 1 << 20;
const PAGES: usize = 128;
/// Blocks of a page, a bit each.
const BLOCKS: usize = 64;
/// The smallest slot, in bytes.
const SLOT_MIN: usize = 64;
/// The largest slots of which a page has this many.
const SLOTS_MIN: usize = 8;
/// Sizes for each doubling.
const STEPS: usize = 8;
/// Where no page is left, an item takes a slot of one of so many classes above its own: at most half as large again.
const NEAR_STEPS: usize = 4;

/// Where an item lies, in units from the start of the heap.
pub(crate) type At = u32;

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Nothing,
    /// Slots of a class.
    Class(u8),
    /// Runs, or parts of them: a bit for each block that is in use.
    Runs(u64),
}

#[derive(Clone, Copy, Debug)]
struct Page {
    holds: Use,
    /// Slots in use.
    live: u32,
    /// Slots that were ever in use: the others come after them.
    begun: u32,
    /// The first free slot among those, plus 1. The second word of each free slot is the next, plus 1.
    free: u32,
}

const UNUSED: Page = Page { holds: Use::Nothing, live: 0, begun: 0, free: 0 };

#[derive(Clone, Debug)]
struct Class {
    slot_bytes: usize,
    slots: u32,
    /// Its pages.
    pages: u32,
    /// Its pages with a free slot.
    open: Vec<u32>,
}

/// Places of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Its number, which no other size has: from 1 on, in order.
    pub number: usize,
    /// Bytes of each place.
    pub bytes: usize,
    /// Places of a page.
    pub per_page: usize,
    /// Pages with places of this size.
    pub pages: usize,
    /// Places in use.
    pub used: usize,
}

/// Memory of whole pages.
#[derive(Debug)]
pub(crate) struct Heap {
    memory: OwnedRegion,
    map: CacheMap,
    page_bytes: usize,
    pages: Vec<Page>,
    classes: Vec<Class>,
    /// The first block of each run, and how many it has.
    runs: BTreeMap<usize, usize>,
    pages_used: usize,
    /// Pages that may be in use.
    pages_max: usize,
}

impl Heap {
    /// A heap in the region's room for items, in whole pages.
    pub(crate) fn new(memory: OwnedRegion, map: CacheMap) -> Self {
        let bytes = map.items_bytes();
        let page_bytes = 1 << (bytes / PAGES).max(1).ilog2();
        let page_bytes = page_bytes.clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX);
        let pages = bytes / page_bytes;
        let class = |slot_bytes| Class {
            slot_bytes,
            slots: (page_bytes / slot_bytes) as u32,
            pages: 0,
            open: Vec::new(),
        };
        let classes = (page_bytes / SLOTS_MIN / SLOT_MIN).ilog2() as usize * STEPS + 1;
        Heap {
            memory,
            map,
            page_bytes,
            pages: vec![UNUSED; pages],
            classes: (0..classes).map(slot_bytes).map(class).collect(),
            runs: BTreeMap::new(),
            pages_used: 0,
            pages_max: pages,
        }
    }

    /// Bytes of the pages in use.
    pub(crate) fn bytes_used(&self) -> usize {
        self.pages_used * self.page_bytes
    }

    /// The sizes of which there are places. The largest is that of the blocks in whose runs larger items lie.
    pub(crate) fn sizes(&self) -> Vec<Size> {
        let slots = self.classes.iter().map(|class| (class.slot_bytes, class.slots as usize));
        let all = slots.chain([(self.block_bytes(), BLOCKS)]).zip(1..);
        let size = |((bytes, per_page), number)| Size { number, bytes, per_page, pages: 0, used: 0 };
        let mut sizes: Vec<_> = all.map(size).collect();
        for page in &self.pages {
            let (class, used) = match page.holds {
                Use::Nothing => continue,
                Use::Class(class) => (usize::from(class), page.live),
                Use::Runs(blocks) => (self.classes.len(), blocks.count_ones()),
            };
            sizes[class].pages += 1;
            sizes[class].used += used as usize;
        }
        sizes.retain(|size| size.pages > 0);
        sizes
    }

    /// Changes how many bytes the pages in use may have. They may have more for as long as nobody clears one.
    pub(crate) fn set_bytes_max(&mut self, bytes: usize) {
        self.pages_max = (bytes / self.page_bytes).min(self.pages.len());
    }

    /// Whether more pages are in use than may be.
    pub(crate) fn is_over(&self) -> bool {
        self.pages_used > self.pages_max
    }

    /// Bytes that an item of `len` bytes takes.
    pub(crate) fn taken(&self, len: usize) -> usize {
        match self.class_of(len) {
            Some(class) => slot_bytes(usize::from(class)),
            None => len.next_multiple_of(self.block_bytes()),
        }
    }

    /// Whether an item of `len` bytes may take the room of one that takes `taken` bytes.
    pub(crate) fn suits(&self, taken: usize, len: usize) -> bool {
        let (room, wanted) = (self.class_of(taken), self.class_of(len));
        match (room, wanted) {
            (Some(room), Some(wanted)) => self.suitable(wanted).contains(&usize::from(room)),
            _ => taken == self.taken(len),
        }
    }

    /// The classes whose slots an item of `class` may take: up to twice as large.
    fn suitable(&self, class: u8) -> Range<usize> {
        let class = usize::from(class);
        class..self.classes.len().min(class + STEPS + 1)
    }

    /// Room for an item of `len` bytes, if there is any: its place, and the bytes that it takes.
    ///
    /// A class without a page takes slots of a class that is up to twice as large and has free ones. So sizes that few items
    /// have share their pages. Where no page is left, any class takes slots of the next ones, so that those that evictions have
    /// freed do not wait for items of their own size.
    pub(crate) fn allocate(&mut self, len: usize) -> Option<(At, usize)> {
        let Some(class) = self.class_of(len) else {
            let blocks = len.div_ceil(self.block_bytes());
            return Some((self.allocate_run(blocks)?, self.taken(len)));
        };
        let has_pages = self.classes[usize::from(class)].pages > 0;
        let own = if has_pages { self.allocate_slot(class) } else { None };
        if let Some(at) = own {
            return Some((at, slot_bytes(class.into())));
        }
        let mut open = self.suitable(class).filter(|class| !self.classes[*class].open.is_empty());
        let class = match open.next() {
            Some(open) if !has_pages || open <= usize::from(class) + NEAR_STEPS => open as u8,
            _ => class,
        };
        Some((self.allocate_slot(class)?, slot_bytes(class.into())))
    }

    /// Frees the room of an item that takes `len` bytes.
    pub(crate) fn free(&mut self, at: At, len: usize) {
        let start = start(at);
        let index = start / self.page_bytes;
        let Some(class) = self.class_of(len) else {
            self.runs.remove(&(start / self.block_bytes()));
            return self.set_run(start / self.block_bytes(), len.div_ceil(self.block_bytes()), false);
        };
        let slot = (start % self.page_bytes / self.classes[usize::from(class)].slot_bytes) as u32;
        let page = &mut self.pages[index];
        let was_full = page.free == 0 && page.begun == self.classes[usize::from(class)].slots;
        self.memory.store(next_free(self.map, start), page.free.into(), Ordering::Relaxed);
        page.free = slot + 1;
        page.live -= 1;
        let open = &mut self.classes[usize::from(class)].open;
        if page.live == 0 {
            *page = UNUSED;
            self.pages_used -= 1;
            self.classes[usize::from(class)].pages -= 1;
            let open = &mut self.classes[usize::from(class)].open;
            if !was_full {
                open.retain(|open| *open != index as u32);
            }
        } else if was_full {
            open.push(index as u32);
        }
    }

    /// The region that it is in.
    pub(crate) fn region(&mut self) -> (&mut OwnedRegion, CacheMap) {
        (&mut self.memory, self.map)
    }

    /// Where everything is in its region.
    pub(crate) fn map(&self) -> CacheMap {
        self.map
    }

    /// Whether another process has taken the region's file away.
    pub(crate) fn is_lost(&self) -> bool {
        self.memory.is_lost()
    }

    /// The bytes from an item's place on, as far as its page or its run may go.
    #[inline]
    pub(crate) fn bytes(&self, at: At, len: usize) -> &[u8] {
        let start = self.offset(at);
        self.memory.bytes(start..start + len)
    }

    /// A word of the item at a place.
    #[inline]
    pub(crate) fn word(&self, at: At, offset: usize) -> u64 {
        self.memory.load(self.offset(at) + offset)
    }

    /// Changes a word of the item at a place.
    #[inline]
    pub(crate) fn set_word(&mut self, at: At, offset: usize, value: u64) {
        self.memory.store(self.offset(at) + offset, value, Ordering::Relaxed);
    }

    /// Changes the first word of the item at a place, after all else of it.
    pub(crate) fn publish(&mut self, at: At, stamp: u64) {
        self.memory.store(self.offset(at), stamp, Ordering::Release);
    }

    /// Changes the first word of the item at a place, before all else of it.
    pub(crate) fn withdraw(&mut self, at: At, stamp: u64) {
        self.memory.store(self.offset(at), stamp, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Changes bytes of the item at a place, from its byte `offset` on.
    pub(crate) fn write(&mut self, at: At, offset: usize, bytes: &[u8]) {
        self.memory.write(self.offset(at) + offset, bytes);
    }

    fn offset(&self, at: At) -> usize {
        self.map.items() + start(at)
    }

    /// Says that a place is about to be one of another size.
    fn begin_places(&mut self) {
        let generation = self.map.life() + offset_of!(CacheLife, generation);
        self.memory.store(generation, self.memory.load(generation) + 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// A free slot of the same class as that of an item of `len` bytes, on another page. `None` if there is none.
    pub(crate) fn elsewhere(&mut self, from: At, len: usize) -> Option<At> {
        let class = self.class_of(len)?;
        let index = (start(from) / self.page_bytes) as u32;
        let open = &mut self.classes[usize::from(class)].open;
        // The page that is being cleared is last in line, so that it gets no item of its own.
        if let Some(at) = open.iter().position(|open| *open == index) {
            open.swap(0, at);
        }
        open.last().filter(|last| **last != index)?;
        self.allocate_slot(class)
    }

    /// Copies all but the first word of an item of `len` bytes from one place to another.
    pub(crate) fn copy(&mut self, from: At, to: At, len: usize) {
        let start = self.offset(from);
        self.memory.copy(start + 8..start + len, self.offset(to) + 8);
    }

    /// The pages to clear for an item of `len` bytes: those with the fewest bytes in use. A page that is being filled, or that
    /// has slots of the item's own size, is taken only where there is no other.
    pub(crate) fn cheapest(&self, len: usize) -> Range<usize> {
        if let Some(class) = self.class_of(len) {
            let used = (0..self.pages.len()).filter(|page| self.pages[*page].holds != Use::Nothing);
            let cost = |page: &usize| {
                let page = &self.pages[*page];
                (!self.is_old(page, class), self.in_use(page))
            };
            let page = used.min_by_key(cost).unwrap_or(0);
            return page..page + 1;
        }
        let count = len.div_ceil(self.page_bytes);
        let mut cost: usize = self.pages[..count].iter().map(|page| self.in_use(page)).sum();
        let mut cheapest = (cost, 0);
        for first in 1..=self.pages.len() - count {
            cost = cost - self.in_use(&self.pages[first - 1]) + self.in_use(&self.pages[first + count - 1]);
            cheapest = cheapest.min((cost, first));
        }
        cheapest.1..cheapest.1 + count
    }

    /// The pages to clear for an item of `len` bytes, if they are for other sizes and at most half in use.
    pub(crate) fn half_free(&self, len: usize) -> Option<Range<usize>> {
        let is_old = |page: &Page| self.class_of(len).is_none_or(|class| self.is_old(page, class));
        let is_half_free = |page: &Page| is_old(page) && self.in_use(page) <= self.page_bytes / 2;
        let cheapest = self.cheapest(len);
        self.pages[cheapest.clone()].iter().all(is_half_free).then_some(cheapest)
    }

    /// Whether a page is in use for other sizes than those of `class`, and all of its slots have been.
    fn is_old(&self, page: &Page, class: u8) -> bool {
        match page.holds {
            Use::Class(other) => other != class && page.begun == self.classes[usize::from(other)].slots,
            _ => true,
        }
    }

    /// Bytes in use of a page.
    fn in_use(&self, page: &Page) -> usize {
        match page.holds {
            Use::Nothing => 0,
            Use::Class(class) => page.live as usize * self.classes[usize::from(class)].slot_bytes,
            Use::Runs(blocks) => blocks.count_ones() as usize * self.block_bytes(),
        }
    }

    /// Its pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// All places in use on some pages, and free ones: whoever keeps the items knows which are which.
    pub(crate) fn places(&self, pages: Range<usize>) -> Vec<At> {
        let blocks = pages.start * BLOCKS..pages.end * BLOCKS;
        // A run may begin on an earlier page.
        let runs = self.runs.range(..blocks.end).rev();
        let runs = runs.take_while(|(first, count)| **first + **count > blocks.start);
        let block_bytes = self.block_bytes();
        let runs = runs.map(move |(first, _)| *first * block_bytes);
        let slots = pages.clone().filter_map(|index| {
            let Use::Class(class) = self.pages[index].holds else { return None };
            let slot_bytes = self.classes[usize::from(class)].slot_bytes;
            let start = index * self.page_bytes;
            Some((0..self.pages[index].begun as usize).map(move |slot| start + slot * slot_bytes))
        });
        runs.chain(slots.flatten()).map(|start| (start / CACHE_UNIT) as At).collect()
    }

    fn block_bytes(&self) -> usize {
        self.page_bytes / BLOCKS
    }

    /// The class with the smallest slots in which `len` bytes fit; `None` if there is none.
    fn class_of(&self, len: usize) -> Option<u8> {
        if len <= SLOT_MIN {
            return Some(0);
        }
        let doubling = ((len - 1) / SLOT_MIN).ilog2() as usize;
        let base = SLOT_MIN << doubling;
        let class = doubling * STEPS + (len - base).div_ceil(base / STEPS);
        // Some of the smallest sizes are alike, in whole units: the first of them is used.
        let is_alike = slot_bytes(class - 1) >= len;
        let class = class - usize::from(is_alike);
        (class < self.classes.len()).then_some(class as u8)
    }

    fn allocate_slot(&mut self, class: u8) -> Option<At> {
        let of = &mut self.classes[usize::from(class)];
        let index = match of.open.last() {
            Some(index) => *index as usize,
            None => {
                if self.pages_used >= self.pages_max {
                    return None;
                }
                let index = self.pages.iter().position(|page| page.holds == Use::Nothing)?;
                self.pages[index].holds = Use::Class(class);
                self.pages_used += 1;
                of.pages += 1;
                of.open.push(index as u32);
                self.begin_places();
                index
            }
        };
        let of = &mut self.classes[usize::from(class)];
        let page = &mut self.pages[index];
        let slot = match page.free {
            0 => {
                page.begun += 1;
                page.begun - 1
            }
            free => free - 1,
        };
        let start = index * self.page_bytes + slot as usize * of.slot_bytes;
        if page.free != 0 {
            page.free = self.memory.load(next_free(self.map, start)) as u32;
        }
        page.live += 1;
        if page.free == 0 && page.begun == of.slots {
            of.open.pop();
        }
        Some((start / CACHE_UNIT) as At)
    }

    /// The first run of free blocks that is long enough.
    fn allocate_run(&mut self, blocks: usize) -> Option<At> {
        let first = self.find_run(blocks)?;
        self.set_run(first, blocks, true);
        self.runs.insert(first, blocks);
        self.begin_places();
        Some((first * self.block_bytes() / CACHE_UNIT) as At)
    }

    fn find_run(&self, blocks: usize) -> Option<usize> {
        let may_begin = self.pages_max.saturating_sub(self.pages_used);
        // Where the free blocks up to here begin, and the unused pages among theirs.
        let (mut start, mut begins) = (None, 0);
        for (index, page) in self.pages.iter().enumerate() {
            let in_use = match page.holds {
                Use::Nothing => 0,
                Use::Class(_) => !0,
                Use::Runs(in_use) => in_use,
            };
            if page.holds == Use::Nothing {
                if begins == may_begin {
                    (start, begins) = (None, 0);
                }
                if may_begin == 0 {
                    continue;
                }
                begins += 1;
            }
            let mut block = 0;
            while block < BLOCKS {
                let ahead = in_use >> block;
                let used = ahead.trailing_ones() as usize;
                if used > 0 {
                    (start, begins) = (None, 0);
                    block += used;
                    continue;
                }
                let first = *start.get_or_insert(index * BLOCKS + block);
                block += (ahead.trailing_zeros() as usize).min(BLOCKS - block);
                if index * BLOCKS + block - first >= blocks {
                    return Some(first);
                }
            }
        }
        None
    }

    /// Marks `count` blocks from `first` on as in use or not.
    fn set_run(&mut self, first: usize, count: usize, in_use: bool) {
        for block in first..first + count {
            let (page, bit) = (&mut self.pages[block / BLOCKS], 1 << (block % BLOCKS));
            let before = match page.holds {
                Use::Runs(blocks) => blocks,
                _ => 0,
            };
            let blocks = if in_use { before | bit } else { before & !bit };
            page.holds = if blocks == 0 { Use::Nothing } else { Use::Runs(blocks) };
            match (before, blocks) {
                (0, 0) => {}
                (0, _) => self.pages_used += 1,
                (_, 0) => self.pages_used -= 1,
                _ => {}
            }
        }
    }
}

/// Where a free slot that begins at `start` has the next one.
fn next_free(map: CacheMap, start: usize) -> usize {
    map.items() + start + 8
}

/// The first byte of a place, from the first place on.
fn start(at: At) -> usize {
    at as usize * CACHE_UNIT
}

/// Bytes of a class's slots: 64, 72 .. 128, 144 .. 256 and so on, in whole units.
const fn slot_bytes(class: usize) -> usize {
    let (doubling, step) = (class / STEPS, class % STEPS);
    let base = SLOT_MIN << doubling;
    (base + base / STEPS * step).next_multiple_of(CACHE_UNIT)
}
