//! A client, as the server keeps it between its events.

use std::collections::VecDeque;
use std::ops::Range;

use rustix::event::epoll::EventFlags;

use super::OUT_BYTES_MAX;
use super::sockets::Stream;
use crate::cache::Seconds;
use crate::near::Ticket;
use crate::neighbours::Language;
use crate::session::Session;

/// Answers of other caches that a client waits for at a time.
const WAITS_MAX: usize = 1024;

/// What a client says.
pub(super) enum Talk {
    /// Commands of memcached's.
    Commands(Session),
    /// Another cache's frames, each with a command.
    Frames,
}

/// What became of a client.
#[derive(PartialEq, Eq)]
pub(super) enum After {
    Stays,
    Gone,
}

/// A cache that has not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silent {
    pub(super) peer: usize,
    /// Whether it may have got the command.
    pub(super) was_told: bool,
}

/// The answer of other caches to one command.
pub(super) struct Waits {
    /// Caches that are yet to answer.
    pub(super) left: usize,
    pub(super) language: Language,
    /// The begin of a command that changes something: its line, or the header of its packet. Empty of others.
    pub(super) command: Vec<u8>,
    /// What the client gets if there is no such item, or nobody answers. `None` of a command that changes something.
    pub(super) miss: Option<Vec<u8>>,
    /// A cache that has not answered.
    pub(super) failed: Option<Silent>,
    /// What the answer is to be kept by, if a copy of it is.
    pub(super) near: Option<Ticket>,
    /// The cache that carries the command out, too, if the one that is asked keeps no such item; and the command.
    pub(super) next: Option<(usize, Vec<u8>)>,
    /// The last cache's answer, among those of the client.
    answer: Range<usize>,
    /// Bytes of the client's own answers that follow.
    after: usize,
}

impl Waits {
    pub(super) fn new(language: Language, command: Vec<u8>, miss: Option<Vec<u8>>) -> Self {
        Waits {
            left: 0,
            language,
            command,
            miss,
            failed: None,
            near: None,
            next: None,
            answer: 0..0,
            after: 0,
        }
    }
}

pub(super) struct Client {
    pub(super) stream: Stream,
    pub(super) talk: Talk,
    /// Tells it from earlier clients that had its number.
    pub(super) life: u64,
    /// What it waits for, in the order of its commands.
    waits: VecDeque<Waits>,
    /// The number of the first of them, counted from the client's first.
    ticket: u64,
    /// The answers of other caches to them.
    answers: Vec<u8>,
    /// The answers of this cache behind them, of which the client has got so many bytes.
    own: (Vec<u8>, usize),
    /// Bytes of commands and answers that are held for them.
    held: usize,
    /// What was read of a command that is not whole, or that waits until answers were taken.
    pub(super) input: Vec<u8>,
    /// Answers that the client has not taken, from `sent` on.
    pub(super) output: Vec<u8>,
    pub(super) sent: usize,
    /// Whether it is closed once it has taken its answers.
    pub(super) is_ending: bool,
    /// Bytes that the next command has in all, as far as known.
    pub(super) wanted: usize,
    /// When it last did something, if that matters.
    pub(super) heard_at: Seconds,
    /// Whether it has taken much, and others come first before it gets more.
    pub(super) is_next: bool,
}

impl Client {
    pub(super) fn new(stream: Stream, talk: Talk, life: u64, now: Seconds) -> Self {
        Client {
            stream,
            talk,
            life,
            waits: VecDeque::new(),
            ticket: 0,
            answers: Vec::new(),
            own: (Vec::new(), 0),
            held: 0,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            is_ending: false,
            wanted: 0,
            heard_at: now,
            is_next: false,
        }
    }

    /// Whether it has yet to take answers.
    pub(super) fn is_blocked(&self) -> bool {
        !self.output.is_empty() || self.stream.is_blocked()
    }

    /// Whether it waits for other caches.
    pub(super) fn waits(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Whether it waits for as much as it may.
    pub(super) fn waits_for_much(&self) -> bool {
        self.waits.len() >= WAITS_MAX || self.held >= OUT_BYTES_MAX
    }

    /// The event that it waits for.
    pub(super) fn awaited(&self) -> EventFlags {
        if self.is_blocked() || self.is_next {
            EventFlags::OUT
        } else if self.waits() {
            EventFlags::empty()
        } else {
            EventFlags::IN
        }
    }

    /// The number of what it waits for next.
    pub(super) fn next_ticket(&self) -> u64 {
        self.ticket + self.waits.len() as u64
    }

    /// Waits for one answer more, to a command of so many bytes.
    pub(super) fn wait(&mut self, waits: Waits, bytes: usize) {
        self.waits.push_back(waits);
        self.held += bytes;
    }

    /// What it waits for by this number.
    pub(super) fn waiting(&mut self, ticket: u64) -> Option<&mut Waits> {
        let place = usize::try_from(ticket.checked_sub(self.ticket)?).ok()?;
        self.waits.get_mut(place)
    }

    /// Takes the answer of another cache to what it waits for by this number, or one that has not answered.
    pub(super) fn answered(&mut self, ticket: u64, answer: Result<&[u8], Silent>) {
        let start = self.answers.len();
        let Some(waits) = self.waiting(ticket) else { return };
        waits.left -= 1;
        match answer {
            Ok(answer) => {
                waits.answer = start..start + answer.len();
                self.answers.extend_from_slice(answer);
                self.held += answer.len();
            }
            Err(silent) => waits.failed = Some(silent),
        }
    }

    /// Appends answers of this cache, behind those that it waits for.
    pub(super) fn append(&mut self, answers: &[u8]) {
        match self.waits.back_mut() {
            Some(last) => {
                last.after += answers.len();
                self.own.0.extend_from_slice(answers);
                self.held += answers.len();
            }
            None => self.output.extend_from_slice(answers),
        }
    }

    /// Appends what it gets next, if that is there: `end` is given the command's answer to append.
    pub(super) fn settle(&mut self, mut end: impl FnMut(Waits, &[u8], &mut Vec<u8>)) {
        while self.waits.front().is_some_and(|first| first.left == 0)
            && let Some(first) = self.waits.pop_front()
        {
            self.ticket += 1;
            let (own, got) = &mut self.own;
            let (answer, after) = (first.answer.clone(), *got..*got + first.after);
            end(first, &self.answers[answer], &mut self.output);
            *got = after.end;
            self.output.extend_from_slice(&own[after]);
        }
        if self.waits.is_empty() {
            self.held = 0;
            // An idle client takes little.
            (self.answers, self.own) = Default::default();
        }
    }
}
