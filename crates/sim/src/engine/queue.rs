//! The queue of events: a calendar for most of them, and a heap at each end of it.
//!
//! The calendar is a ring of buckets of equal width, each for about two events. A push appends to the bucket of its
//! time. Pops take a few events at a time from the next buckets, in order. So neither costs more when more events are
//! pending, apart from more distant memory. An event before the buckets already taken is inserted among the taken
//! events while these are few, otherwise into a heap. An event beyond the ring goes to another heap. Both heaps are
//! small while the width fits. If no width fits (ten thousand events in this microsecond, and one in an hour), the
//! queue is no worse than a binary heap. The width is twice the mean time between two events, and follows it.
//!
//! R. Brown, "Calendar queues: a fast O(1) priority queue implementation for the simulation event set problem", CACM
//! 31(10), 1988. Taking several buckets at once, so that their memory accesses overlap, is ours.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::Time;

/// Fewest events taken from the calendar at once: enough for their memory accesses to overlap, and few enough that
/// hardly any push falls before them.
const TAKE: usize = 24;
/// The largest part of all events that is taken, because most pushes would otherwise fall before the last of them.
const TAKE_PART: usize = 16;

/// With more than this many events taken, a push before the calendar's start goes to a heap.
const NEAR_MAX: usize = 64;

/// Fewest and most buckets.
const BUCKETS_MIN: usize = 64;
const BUCKETS_MAX: usize = 1 << 22;

/// Buckets are at least 2 ns wide, so that the number after the last one fits in a word.
const SHIFT_MIN: u32 = 1;

/// Fewest pops between two checks whether the width still fits.
const LOOK_POPS_MIN: u64 = 1_024;

/// The end of a list of nodes.
const NIL: u32 = u32::MAX;

/// Pending events in order of time, and those of one time in the order in which they were pushed.
///
/// It holds at most 2^32 - 2 of them.
#[derive(Debug)]
pub struct Queue<E> {
    /// Events taken from the calendar, or pushed among these since, in order; those from `near_at` on are still
    /// pending.
    near: Vec<(u64, E)>,
    near_at: usize,
    /// Events pushed since, and due before the calendar's start.
    late: BinaryHeap<Entry<E>>,
    calendar: Calendar<E>,
    /// Events due after the calendar's end.
    far: BinaryHeap<Entry<E>>,
    /// Pushes so far.
    pushes: u64,
    now: u64,
    len: usize,
    pace: Pace,
}

/// The rate of events.
#[derive(Debug)]
struct Pace {
    /// The time and the number of pops at the last check.
    since: u64,
    pops: u64,
    /// Pops from then until the next check.
    pops_until: u64,
}

impl<E: Copy> Default for Queue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Copy> Queue<E> {
    /// An empty queue at time 0.
    pub fn new() -> Self {
        Queue {
            near: Vec::with_capacity(4 * NEAR_MAX),
            near_at: 0,
            late: BinaryHeap::new(),
            calendar: Calendar::new(BUCKETS_MIN, SHIFT_MIN, 0),
            far: BinaryHeap::new(),
            pushes: 0,
            now: 0,
            len: 0,
            pace: Pace { since: 0, pops: 0, pops_until: LOOK_POPS_MIN },
        }
    }

    /// Number of pending events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The time of the last event popped.
    pub fn now(&self) -> Time {
        Time::from_ns(self.now)
    }

    /// Schedules `event` at `at`.
    ///
    /// # Panics
    /// If that is before [`Queue::now`], or the queue is full.
    #[inline]
    pub fn push(&mut self, at: Time, event: E) {
        let at = at.as_ns();
        assert!(at >= self.now, "an event cannot happen before now");
        self.len += 1;
        // With few pending events, most pushes are due next.
        if let Some(first) = self.near_at.checked_sub(1)
            && self.near.get(self.near_at).is_some_and(|(due, _)| at < *due)
            && self.late.is_empty()
        {
            self.near[first] = (at, event);
            self.near_at = first;
            return;
        }
        self.pushes += 1;
        let bucket = self.calendar.bucket_of(at);
        if self.calendar.holds(bucket) {
            self.calendar.put(bucket, at, event);
        } else if bucket >= self.calendar.first {
            self.far.push(Entry { at, order: self.pushes, event });
        } else if self.late.is_empty() && self.near.len() - self.near_at < NEAR_MAX {
            self.put_near(at, event);
        } else {
            self.late.push(Entry { at, order: self.pushes, event });
        }
    }

    /// Inserts an event among those taken: with few pending events, most are due soon.
    #[inline]
    fn put_near(&mut self, at: u64, event: E) {
        if self.near.len() == self.near.capacity() {
            self.near.drain(..self.near_at);
            self.near_at = 0;
        }
        let before = self.near[self.near_at..].partition_point(|(due, _)| *due <= at);
        self.near.insert(self.near_at + before, (at, event));
    }

    /// The next event and its time.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.pop_if(|_| true)
    }

    /// The next event and its time, if that is before `limit`.
    #[inline]
    pub fn pop_before(&mut self, limit: Time) -> Option<(Time, E)> {
        self.pop_if(|at| at < limit.as_ns())
    }

    #[inline]
    fn pop_if(&mut self, wanted: impl Fn(u64) -> bool) -> Option<(Time, E)> {
        if self.near_at == self.near.len() && self.late.is_empty() && !self.take() {
            return None;
        }
        let near = self.near.get(self.near_at);
        // Of simultaneous events, the near ones were pushed before the late ones, when the calendar began earlier.
        let (at, event) = match (near, self.late.peek()) {
            (Some(&(at, event)), late) if late.is_none_or(|late| at <= late.at) => {
                if !wanted(at) {
                    return None;
                }
                self.near_at += 1;
                (at, event)
            }
            (_, Some(late)) => {
                if !wanted(late.at) {
                    return None;
                }
                let Entry { at, event, .. } = self.late.pop()?;
                (at, event)
            }
            _ => return None,
        };
        self.now = at;
        self.len -= 1;
        self.pace.pops += 1;
        Some((Time::from_ns(at), event))
    }

    /// Takes the next events from the calendar; false if there are none.
    #[inline(never)]
    fn take(&mut self) -> bool {
        self.near.clear();
        self.near_at = 0;
        if self.len == 0 {
            return false;
        }
        let is_full = self.len > 4 * self.calendar.buckets() && self.calendar.buckets() < BUCKETS_MAX;
        if self.pace.pops >= self.pace.pops_until || is_full {
            self.fit();
        }
        if self.calendar.len == 0 {
            let Some(first) = self.far.peek() else { return false };
            self.calendar.first = self.calendar.bucket_of(first.at);
            self.draw_near();
        }
        let take = (self.len / TAKE_PART).min(TAKE);
        while self.near.len() <= take && self.calendar.len > 0 {
            let from = self.near.len();
            self.calendar.take_next(&mut self.near);
            // They come last in, first out.
            self.near[from..].reverse();
            sort(&mut self.near[from..]);
        }
        // Before anything is pushed to the buckets that the ring has reached, because the far events were pushed
        // earlier.
        self.draw_near();
        true
    }

    /// Moves the far events that now fit into the calendar.
    #[inline]
    fn draw_near(&mut self) {
        while let Some(entry) = self.far.peek() {
            let bucket = self.calendar.bucket_of(entry.at);
            if !self.calendar.holds(bucket) {
                break;
            }
            self.calendar.put(bucket, entry.at, entry.event);
            self.far.pop();
        }
    }

    /// Changes the calendar's width and length if they no longer fit.
    fn fit(&mut self) {
        let span = self.now - self.pace.since;
        let mut gap = span / self.pace.pops.max(1);
        if self.pace.pops < LOOK_POPS_MIN {
            // Too few pops to measure: assume that the pending events are evenly spread.
            let last = self.calendar.times().chain(self.far.iter().map(|entry| entry.at)).max().unwrap_or(0);
            gap = last.saturating_sub(self.now) / self.len as u64;
        }
        self.pace = Pace { since: self.now, pops: 0, pops_until: LOOK_POPS_MIN.max(self.len as u64) };
        let shift = (2 * gap).next_power_of_two().ilog2().max(SHIFT_MIN);
        let buckets = (self.len + self.len / 2).next_power_of_two().clamp(BUCKETS_MIN, BUCKETS_MAX);
        let (old_shift, old_buckets) = (self.calendar.shift, self.calendar.buckets());
        let fits = shift.abs_diff(old_shift) < 2 && buckets <= 2 * old_buckets && 8 * buckets > old_buckets;
        if fits {
            return;
        }
        let boundary = self.calendar.first << old_shift;
        let mut events = Vec::with_capacity(self.calendar.len);
        let mut from = 0;
        while self.calendar.len > 0 {
            self.calendar.take_next(&mut events);
            events[from..].reverse();
            from = events.len();
        }
        // The first bucket may begin before the boundary. That part stays empty, because earlier events are late.
        self.calendar = Calendar::new(buckets, shift, boundary >> shift);
        let far = std::mem::take(&mut self.far);
        for (order, (at, event)) in (0..).zip(events) {
            let bucket = self.calendar.bucket_of(at);
            if self.calendar.holds(bucket) {
                self.calendar.put(bucket, at, event);
            } else {
                // Far events come later in time, and later pushes get a higher order.
                self.far.push(Entry { at, order, event });
            }
        }
        self.far.extend(far);
        self.draw_near();
    }
}

/// Sorts a bucket of about two events by time; equals keep their order.
#[inline]
fn sort<E: Copy>(bucket: &mut [(u64, E)]) {
    if bucket.len() > 16 {
        bucket.sort_by_key(|(at, _)| *at);
        return;
    }
    for i in 1..bucket.len() {
        let mut j = i;
        while j > 0 && bucket[j - 1].0 > bucket[j].0 {
            bucket.swap(j - 1, j);
            j -= 1;
        }
    }
}

/// A ring of buckets, each a list of nodes with the newest at its head.
#[derive(Debug)]
struct Calendar<E> {
    /// The first bucket not yet taken, counted from time 0.
    first: u64,
    /// A bucket is 2^shift ns wide.
    shift: u32,
    /// For each bucket of the ring, its newest node.
    heads: Vec<u32>,
    /// A bit for each bucket that has a node.
    occupied: Vec<u64>,
    nodes: Vec<Node<E>>,
    /// Free nodes. The last one used comes first, because its memory is in the cache.
    free: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node<E> {
    at: u64,
    event: E,
    next: u32,
}

impl<E: Copy> Calendar<E> {
    fn new(buckets: usize, shift: u32, first: u64) -> Self {
        Calendar {
            first,
            shift,
            heads: vec![NIL; buckets],
            occupied: vec![0; buckets / 64],
            nodes: Vec::new(),
            free: NIL,
            len: 0,
        }
    }

    fn buckets(&self) -> usize {
        self.heads.len()
    }

    #[inline]
    fn bucket_of(&self, at: u64) -> u64 {
        at >> self.shift
    }

    /// Whether `bucket` is within the ring.
    #[inline]
    fn holds(&self, bucket: u64) -> bool {
        bucket.wrapping_sub(self.first) < self.heads.len() as u64
    }

    /// The length of the ring is a power of two.
    #[inline]
    fn place(&self, bucket: u64) -> usize {
        bucket as usize & (self.heads.len() - 1)
    }

    #[inline]
    fn put(&mut self, bucket: u64, at: u64, event: E) {
        let place = self.place(bucket);
        let node = Node { at, event, next: self.heads[place] };
        let index = self.free;
        if index == NIL {
            assert!(self.nodes.len() < NIL as usize, "an event queue holds 2^32 - 2 events at most");
            self.heads[place] = self.nodes.len() as u32;
            self.nodes.push(node);
        } else {
            let slot = &mut self.nodes[index as usize];
            self.free = slot.next;
            *slot = node;
            self.heads[place] = index;
        }
        self.occupied[place / 64] |= 1 << (place % 64);
        self.len += 1;
    }

    /// Appends the events of the next non-empty bucket, newest first. There must be one.
    #[inline]
    fn take_next(&mut self, to: &mut Vec<(u64, E)>) {
        let bucket = self.next_occupied();
        let place = self.place(bucket);
        self.occupied[place / 64] &= !(1 << (place % 64));
        let head = std::mem::replace(&mut self.heads[place], NIL);
        let mut index = head;
        loop {
            let node = &mut self.nodes[index as usize];
            to.push((node.at, node.event));
            self.len -= 1;
            if node.next == NIL {
                node.next = self.free;
                break;
            }
            index = node.next;
        }
        self.free = head;
        self.first = bucket + 1;
    }

    fn next_occupied(&self) -> u64 {
        let from = self.place(self.first);
        let words = self.occupied.len();
        let mut word = from / 64;
        let mut bits = self.occupied[word] & (u64::MAX << (from % 64));
        // Once around, and again into the first word, whose lower bits come last.
        for _ in 0..words {
            if bits != 0 {
                break;
            }
            word = (word + 1) & (words - 1);
            bits = self.occupied[word];
        }
        let place = word * 64 + bits.trailing_zeros() as usize;
        self.first + (place.wrapping_sub(from) & (self.heads.len() - 1)) as u64
    }

    fn times(&self) -> impl Iterator<Item = u64> + '_ {
        let heads = self.heads.iter().copied().filter(|head| *head != NIL);
        heads.flat_map(|head| {
            let node = |index: u32| self.nodes.get(index as usize);
            std::iter::successors(node(head), move |last| node(last.next)).map(|node| node.at)
        })
    }
}

/// An event in a heap. The one due first is the greatest, as the standard heap requires.
#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: u64,
    order: u64,
    event: E,
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A queue, and a sorted list of (time, order of push) to compare with.
    #[derive(Default)]
    struct Both {
        queue: Queue<u32>,
        naive: Vec<(u64, u32)>,
        pushed: u32,
    }

    impl Both {
        fn push(&mut self, delay: u64) {
            let at = self.queue.now().as_ns() + delay;
            self.queue.push(Time::from_ns(at), self.pushed);
            self.naive.push((at, self.pushed));
            self.pushed += 1;
        }

        fn pop(&mut self) {
            let first = (0..self.naive.len()).min_by_key(|&i| self.naive[i]);
            let first = first.map(|i| self.naive.swap_remove(i));
            assert_eq!(self.queue.pop().map(|(at, event)| (at.as_ns(), event)), first);
            assert_eq!(self.queue.len(), self.naive.len());
        }
    }

    #[test]
    fn events_of_one_time_come_in_the_order_of_their_pushes() {
        let mut queue = Queue::new();
        // First far, then in the calendar, then late: each at the same time.
        queue.push(Time::from_ns(5_000), 0);
        (0..200).for_each(|i| queue.push(Time::from_ns(i), 1_000));
        (0..200).for_each(|_| assert_eq!(queue.pop().unwrap().1, 1_000));
        queue.push(Time::from_ns(5_000), 1);
        queue.push(Time::from_ns(4_999), 2);
        assert_eq!(queue.pop(), Some((Time::from_ns(4_999), 2)));
        queue.push(Time::from_ns(5_000), 3);
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(rest, [0, 1, 3]);
    }

    #[test]
    fn what_is_not_before_the_limit_stays() {
        let mut queue = Queue::new();
        queue.push(Time::from_ns(7), 'b');
        queue.push(Time::from_ns(3), 'a');
        assert_eq!(queue.pop_before(Time::from_ns(7)), Some((Time::from_ns(3), 'a')));
        assert_eq!(queue.pop_before(Time::from_ns(7)), None);
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.pop_before(Time::from_ns(8)), Some((Time::from_ns(7), 'b')));
        assert!(queue.is_empty() && queue.pop().is_none());
    }

    #[test]
    #[should_panic(expected = "before now")]
    fn the_past_is_closed() {
        let mut queue = Queue::new();
        queue.push(Time::from_ns(7), ());
        queue.pop();
        queue.push(Time::from_ns(6), ());
    }

    #[test]
    fn the_last_moment_can_be_told() {
        let mut queue = Queue::new();
        queue.push(Time::from_ns(u64::MAX), 1);
        queue.push(Time::from_ns(0), 0);
        assert_eq!(queue.pop().unwrap().1, 0);
        assert_eq!(queue.pop(), Some((Time::from_ns(u64::MAX), 1)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Compared with the simple list, through growth and shrinking, with delays of all kinds at once.
        #[test]
        fn it_pops_as_a_sorted_list_would(
            phases in proptest::collection::vec((0u32..900, 0u32..900, 0u32..5), 1..12),
            seed: u64,
        ) {
            let mut both = Both::default();
            let mut random = seed;
            let mut draw = move || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                random >> 33
            };
            for (pushes, pops, kind) in phases {
                let (mut pushes, mut pops) = (pushes, pops);
                while pushes + pops > 0 {
                    if draw() % u64::from(pushes + pops) < u64::from(pushes) {
                        let delay = match (kind, draw() % 8) {
                            (0, _) => draw() % 64,
                            (1, _) => draw() % 1_000_000,
                            (2, 0) => 10_000_000_000 + draw() % 7,
                            (2, _) => draw() % 100,
                            (3, _) => 1 << (draw() % 40),
                            _ => 0,
                        };
                        both.push(delay);
                        pushes -= 1;
                    } else {
                        both.pop();
                        pops -= 1;
                    }
                }
            }
            while !both.naive.is_empty() {
                both.pop();
            }
            prop_assert!(both.queue.pop().is_none());
        }
    }
}
