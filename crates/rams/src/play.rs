//! One node's part of a run: clients who ask it in a closed loop, and a disk that is as slow as it is told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::peer::{Counters, NodeId};

use crate::node::{Event, Node};

/// The longest sleep: as often it is looked whether the run has ended.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// The sleep while another node's inbox is full.
const PAUSE: Duration = Duration::from_micros(100);
/// Messages that are taken in a row.
const MESSAGES: usize = 64;

/// An object, as a request names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its number.
    pub key: u64,
    /// The node on whose disk it lies.
    pub home: NodeId,
}

/// What a node is to do.
pub struct Part<'a> {
    /// What its clients ask for, in order.
    pub requests: &'a [Object],
    /// How many of these come before what is counted.
    pub warmup: usize,
    /// Clients, each of whom asks for the next object once it has an answer.
    pub clients: u32,
    /// The size of an object, and how long the disk takes to read it.
    pub size: &'a dyn Fn(u64) -> (u32, Duration),
    /// Accesses that the disk makes at a time.
    pub disk_depth: usize,
}

/// What came of it, after warm-up.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Played {
    /// How long each request took that was answered.
    pub took: Vec<Duration>,
    /// From the first of them until the last was answered.
    pub time: Duration,
    /// Requests that were answered from the node's own memory.
    pub here: u64,
    /// What the node has counted meanwhile.
    pub counters: Counters,
    /// Requests that were refused, warm-up included.
    pub refused: u64,
    /// Answers that had other bytes than the object's, warm-up included.
    pub wrong: u64,
}

/// A run under way.
struct Run<'a> {
    node: &'a mut Node,
    part: Part<'a>,
    /// The next request.
    next: usize,
    free: u32,
    /// By number of the request, when it began.
    began: Vec<Option<Instant>>,
    /// Requests that were answered or refused.
    ended: usize,
    /// When each of the disk's accesses is done, and what is read then, soonest first.
    loads: VecDeque<(Instant, u64)>,
    /// When each of the disk's arms is free.
    arms: Vec<Instant>,
    events: Vec<Event>,
    /// The end of warm-up, and what was counted until then.
    counted: Option<(Instant, Counters)>,
    played: Played,
}

/// Plays a node's part, and serves the others until `stop` is set. `done` is called once its own clients have their answers.
pub fn play(node: &mut Node, part: Part<'_>, stop: &AtomicBool, done: &mut dyn FnMut(&Played)) {
    let now = Instant::now();
    let mut run = Run {
        began: vec![None; part.requests.len()],
        arms: vec![now; part.disk_depth.max(1)],
        free: part.clients,
        node,
        part,
        next: 0,
        ended: 0,
        loads: VecDeque::new(),
        events: Vec::new(),
        counted: None,
        played: Played::default(),
    };
    let mut is_done = false;
    while !stop.load(Ordering::Relaxed) {
        run.step();
        if !is_done && run.ended == run.part.requests.len() {
            is_done = true;
            done(&run.played);
        }
    }
}

impl Run<'_> {
    fn step(&mut self) {
        while self.free > 0 && self.next < self.part.requests.len() {
            self.ask();
            self.react();
        }
        let now = Instant::now();
        while self.loads.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, key)) = self.loads.pop_front()
        {
            let (size, _) = (self.part.size)(key);
            self.node.loaded(key, content(key, size), &mut self.events);
            self.react();
        }
        for _ in 0..MESSAGES {
            if !self.node.receive(&mut self.events) {
                let is_waiting = self.node.send_waiting();
                let can_ask = self.free > 0 && self.next < self.part.requests.len();
                let due = self.loads.front().map(|(due, _)| due.saturating_duration_since(now));
                let longest = if is_waiting { PAUSE } else { SLEEP_MAX };
                if !can_ask {
                    self.node.receive_within(due.unwrap_or(SLEEP_MAX).min(longest), &mut self.events);
                    self.react();
                }
                return;
            }
            self.react();
        }
    }

    fn ask(&mut self) {
        let number = self.next;
        let now = Instant::now();
        if number == self.part.warmup {
            self.counted = Some((now, *self.node.counters()));
        }
        self.next += 1;
        self.free -= 1;
        self.began[number] = Some(now);
        let Object { key, home } = self.part.requests[number];
        let is_here = self.node.request(number as u32, key, home, &mut self.events);
        self.played.here += u64::from(is_here && number >= self.part.warmup);
    }

    /// Does what the node has left.
    fn react(&mut self) {
        for event in std::mem::take(&mut self.events) {
            match event {
                Event::Load { key } => {
                    let (_, time) = (self.part.size)(key);
                    let arm = self.arms.iter_mut().min().expect("there is one at least");
                    let due = (*arm).max(Instant::now()) + time;
                    *arm = due;
                    let at = self.loads.partition_point(|(other, _)| *other <= due);
                    self.loads.insert(at, (due, key));
                }
                Event::Answer { tag, bytes } => self.answered(tag as usize, &bytes),
                Event::Refused { .. } => {
                    self.played.refused += 1;
                    self.ended();
                }
            }
        }
    }

    /// A client is free to ask for the next object.
    fn ended(&mut self) {
        self.free += 1;
        self.ended += 1;
    }

    fn answered(&mut self, number: usize, bytes: &[u8]) {
        let Object { key, .. } = self.part.requests[number];
        self.played.wrong += u64::from(!is_content(key, (self.part.size)(key).0, bytes));
        self.ended();
        let Some(began) = self.began[number].filter(|_| number >= self.part.warmup) else { return };
        let now = Instant::now();
        self.played.took.push(now - began);
        if let Some((begun, before)) = self.counted {
            self.played.time = now - begun;
            self.played.counters = *self.node.counters() - before;
        }
    }
}

/// Eight bytes that no other object has.
fn word(key: u64) -> [u8; 8] {
    // A bijection: no two keys have the same.
    sidelong_layout::mix64(key).to_le_bytes()
}

/// The bytes of an object.
fn content(key: u64, size: u32) -> Arc<[u8]> {
    let mut bytes = word(key).repeat((size as usize).div_ceil(8));
    bytes.truncate(size as usize);
    bytes.into()
}

fn is_content(key: u64, size: u32, bytes: &[u8]) -> bool {
    let word = word(key);
    let (words, rest) = bytes.as_chunks::<8>();
    bytes.len() == size as usize && words.iter().all(|found| *found == word) && word.starts_with(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objects_bytes_are_told_from_others() {
        for size in [0, 1, 7, 8, 9, 1000] {
            assert!(is_content(5, size, &content(5, size)));
            assert!(!is_content(5, size + 1, &content(5, size)));
            assert!(size == 0 || !is_content(6, size, &content(5, size)));
        }
    }
}
