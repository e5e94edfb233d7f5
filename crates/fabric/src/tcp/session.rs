//! The target's half of one connection: bytes in, operations on memory, bytes out. No sockets and no time in here.
//!
//! Payloads of any length pass in chunks through two small buffers, so a connection costs the same memory whatever is
//! asked of it. Where the answers are not taken away, no more requests are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::batch::{Kind, Request};
use crate::inbox::{Letter, Queue};
use crate::key::Token;
use crate::memory::Memory;
use crate::tcp::fifo::Fifo;
use crate::tcp::wire::{self, Answer, Greeting, Hello, Malformed, Status, Tag};
use crate::{Access, OpError};

/// Words that are moved at once. What is no longer comes from memory in one go, as a record is best read.
const CHUNK_WORDS: usize = 512;
/// Room for answers: enough for a chunk and its frame.
pub(super) const OUTPUT_BYTES: usize = 64 << 10;
/// Room for requests.
pub(super) const INPUT_BYTES: usize = 16 << 10;

const _: () =
    assert!(OUTPUT_BYTES >= CHUNK_WORDS * 8 + 2 * wire::ANSWER_BYTES && INPUT_BYTES >= wire::HELLO_BYTES);

/// The regions that a target answers for. A region that its owner dropped answers no more: only the owner keeps it.
#[derive(Debug, Default)]
pub(super) struct Registry {
    offers: Mutex<HashMap<String, Offer>>,
}

#[derive(Debug)]
struct Offer {
    token: Token,
    grant: Grant,
}

/// What a connection may use.
#[derive(Clone, Debug)]
struct Grant {
    memory: Weak<Memory>,
    access: Access,
    inbox: Weak<Queue>,
}

impl Registry {
    /// Adds a region, unless a live one has its name.
    pub(super) fn offer(
        &self,
        name: &str,
        token: Token,
        access: Access,
        memory: &Arc<Memory>,
        inbox: Weak<Queue>,
    ) -> bool {
        let mut offers = self.lock();
        offers.retain(|_, offer| offer.grant.memory.strong_count() > 0);
        let free = !offers.contains_key(name);
        if free {
            let grant = Grant { memory: Arc::downgrade(memory), access, inbox };
            offers.insert(name.to_owned(), Offer { token, grant });
        }
        free
    }

    fn find(&self, hello: &Hello<'_>) -> Option<Grant> {
        let offers = self.lock();
        let offer = offers.get(hello.name).filter(|offer| offer.token.matches(hello.token))?;
        (offer.grant.memory.strong_count() > 0).then(|| offer.grant.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Offer>> {
        self.offers.lock().expect("nothing panics while it holds the offers")
    }
}

impl Grant {
    /// Whether there is an inbox for what is asked of one.
    fn takes(&self, request: &Request) -> Result<(), OpError> {
        let len = match request.kind {
            Kind::Send => request.len,
            Kind::WriteWithImmediate { .. } => 0,
            _ => return Ok(()),
        };
        self.inbox.upgrade().ok_or(OpError::NoInbox)?.takes(len)
    }
}

/// Why a connection is ended by the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// The initiator may not have it, and was told.
    Refused,
    /// It does not keep to the protocol.
    Malformed,
    /// The region went while part of it was on its way.
    Revoked,
}

impl From<Malformed> for Ended {
    fn from(_: Malformed) -> Self {
        Ended::Malformed
    }
}

/// Where one connection is.
#[derive(Debug)]
pub(super) struct Session {
    state: State,
    chunk: Box<[u64; CHUNK_WORDS]>,
}

#[derive(Debug)]
enum State {
    /// Nothing has been heard.
    Silent,
    /// Between requests.
    Ready(Grant),
    /// Inside what is written or sent: `left` words are to come. They are dropped where `status` is not `Done`.
    Receiving { grant: Grant, tag: Tag, status: Status, sink: Sink, left: usize },
    /// Inside the answer to a read.
    Sending { grant: Grant, at: usize, left: usize },
}

/// Where words go that come.
#[derive(Debug)]
enum Sink {
    /// Into memory from `at` on; the inbox is told with `immediate` when all are there.
    Memory { at: usize, immediate: Option<u32> },
    /// Into a message of the inbox.
    Letter(Letter),
}

impl Sink {
    /// All words have come.
    fn finish(&mut self, inbox: &Weak<Queue>) -> Result<(), OpError> {
        let letter = match self {
            Sink::Memory { immediate: None, .. } => return Ok(()),
            Sink::Memory { immediate, .. } => Letter { immediate: *immediate, ..Letter::default() },
            Sink::Letter(letter) => std::mem::take(letter),
        };
        inbox.upgrade().ok_or(OpError::NoInbox)?.put(letter)
    }
}

/// How one step went.
enum Step {
    Taken,
    /// More input is needed.
    Hungry,
    /// More room for output is needed.
    Full,
}

impl Session {
    pub(super) fn new() -> Self {
        Session { state: State::Silent, chunk: Box::new([0; CHUNK_WORDS]) }
    }

    /// Whether the initiator has yet to say who it is.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.state, State::Silent)
    }

    /// Goes on as far as input and output allow; `true` where output is what it wants.
    ///
    /// # Errors
    /// The connection is to be closed, after what is in `output`.
    pub(super) fn advance(
        &mut self,
        input: &mut Fifo,
        output: &mut Fifo,
        registry: &Registry,
    ) -> Result<bool, Ended> {
        loop {
            match self.step(input, output, registry)? {
                Step::Taken => {}
                Step::Hungry => return Ok(false),
                Step::Full => return Ok(true),
            }
        }
    }

    fn step(&mut self, input: &mut Fifo, output: &mut Fifo, registry: &Registry) -> Result<Step, Ended> {
        if output.room() < wire::GREETING_BYTES {
            return Ok(Step::Full);
        }
        match &mut self.state {
            State::Silent => {
                let Some(frame) = input.front() else { return Ok(Step::Hungry) };
                let found = match Hello::decode(frame)? {
                    Ok(hello) => registry.find(&hello).ok_or(Greeting::Key),
                    Err(other) => Err(other),
                };
                input.consume(wire::HELLO_BYTES);
                output.push(&found.as_ref().err().unwrap_or(&Greeting::Accepted).encode());
                self.state = State::Ready(found.map_err(|_| Ended::Refused)?);
            }
            State::Ready(grant) => {
                let Some(frame) = input.front() else { return Ok(Step::Hungry) };
                let (tag, request) = wire::decode_request(frame)?;
                input.consume(wire::REQUEST_BYTES);
                let grant = grant.clone();
                self.state = start(grant, tag, &request, output);
            }
            State::Receiving { grant, tag, status, sink, left } => {
                let count = (*left).min(input.len() / 8).min(CHUNK_WORDS);
                if count == 0 && *left > 0 {
                    return Ok(Step::Hungry);
                }
                let words = &mut self.chunk[..count];
                for word in &mut *words {
                    *word = u64::from_le_bytes(*input.front().expect("the words counted are there"));
                    input.consume(8);
                }
                match (grant.memory.upgrade(), &mut *sink) {
                    (None, _) => *status = Status::KeyRejected,
                    (Some(_), _) if *status != Status::Done => {}
                    (Some(memory), Sink::Memory { at, .. }) => {
                        memory.write(*at, words);
                        *at += count * 8;
                    }
                    (Some(_), Sink::Letter(letter)) => letter.words.extend_from_slice(words),
                }
                *left -= count;
                if *left == 0 {
                    if *status == Status::Done
                        && let Err(error) = sink.finish(&grant.inbox)
                    {
                        *status = Status::of(error);
                    }
                    output.push(&Answer { tag: *tag, status: *status, len: 0 }.encode());
                    self.state = State::Ready(grant.clone());
                }
            }
            State::Sending { grant, at, left } => {
                let words = &mut self.chunk[..(*left).min(CHUNK_WORDS)];
                if output.room() < size_of_val(words) {
                    return Ok(Step::Full);
                }
                grant.memory.upgrade().ok_or(Ended::Revoked)?.read(*at, words);
                for word in &mut *words {
                    *word = word.to_le();
                }
                output.push(bytemuck::cast_slice(words));
                *at += size_of_val(words);
                *left -= words.len();
                if *left == 0 {
                    self.state = State::Ready(grant.clone());
                }
            }
        }
        Ok(Step::Taken)
    }
}

/// Carries out `request` as far as its frame goes.
fn start(grant: Grant, tag: Tag, request: &Request, output: &mut Fifo) -> State {
    let memory = grant.memory.upgrade();
    let status = match &memory {
        None => Status::KeyRejected,
        Some(memory) => match request.check(memory.len(), grant.access).and_then(|()| grant.takes(request)) {
            Ok(()) => Status::Done,
            Err(error) => Status::of(error),
        },
    };
    let at = request.offset;
    let left = request.words();
    match (request.kind, memory) {
        (Kind::Write, _) => {
            let sink = Sink::Memory { at, immediate: None };
            return State::Receiving { grant, tag, status, sink, left };
        }
        (Kind::WriteWithImmediate { immediate }, _) => {
            let sink = Sink::Memory { at, immediate: Some(immediate) };
            return State::Receiving { grant, tag, status, sink, left };
        }
        (Kind::Send, _) => {
            // Room for no more than the inbox has said that it takes.
            let words = Vec::with_capacity(if status == Status::Done { left } else { 0 });
            let sink = Sink::Letter(Letter { words, len: request.len, immediate: None });
            return State::Receiving { grant, tag, status, sink, left };
        }
        (Kind::Read, Some(_)) if status == Status::Done => {
            output.push(&Answer { tag, status, len: left * 8 }.encode());
            return if left == 0 { State::Ready(grant) } else { State::Sending { grant, at, left } };
        }
        (_, Some(memory)) if status == Status::Done => {
            let mut before = [0];
            memory.apply(request, grant.access, &mut before).expect("it was checked");
            output.push(&Answer { tag, status, len: 8 }.encode());
            output.push(&before[0].to_le_bytes());
        }
        _ => output.push(&Answer { tag, status, len: 0 }.encode()),
    }
    State::Ready(grant)
}
