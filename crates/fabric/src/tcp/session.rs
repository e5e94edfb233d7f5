//! The target's half of one connection: bytes in, operations on memory, bytes out. No sockets and no time in here.
//!
//! Payloads of any length pass in chunks through two small buffers, so a connection costs the same memory whatever is
//! asked of it. Where the answers are not taken away, no more requests are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::Access;
use crate::batch::{Kind, Request};
use crate::key::Token;
use crate::memory::Memory;
use crate::tcp::fifo::Fifo;
use crate::tcp::wire::{self, Answer, Greeting, Hello, Malformed, Status, Tag};

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
}

impl Registry {
    /// Adds a region, unless a live one has its name.
    pub(super) fn offer(&self, name: &str, token: Token, access: Access, memory: &Arc<Memory>) -> bool {
        let mut offers = self.lock();
        offers.retain(|_, offer| offer.grant.memory.strong_count() > 0);
        let free = !offers.contains_key(name);
        if free {
            let grant = Grant { memory: Arc::downgrade(memory), access };
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
    /// Inside a write: `left` words are to come for `at`. They are dropped where `status` is not `Done`.
    Receiving { grant: Grant, tag: Tag, status: Status, at: usize, left: usize },
    /// Inside the answer to a read.
    Sending { grant: Grant, at: usize, left: usize },
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
            State::Receiving { grant, tag, status, at, left } => {
                let count = (*left).min(input.len() / 8).min(CHUNK_WORDS);
                if count == 0 && *left > 0 {
                    return Ok(Step::Hungry);
                }
                let words = &mut self.chunk[..count];
                for word in &mut *words {
                    *word = u64::from_le_bytes(*input.front().expect("the words counted are there"));
                    input.consume(8);
                }
                match grant.memory.upgrade() {
                    Some(memory) if *status == Status::Done => memory.write(*at, words),
                    Some(_) => {}
                    None => *status = Status::KeyRejected,
                }
                *at += count * 8;
                *left -= count;
                if *left == 0 {
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
        Some(memory) => match request.check(memory.len(), grant.access) {
            Ok(()) => Status::Done,
            Err(error) => Status::of(error),
        },
    };
    // Words that are dropped count from anywhere: what was asked for may not be an address.
    let at = if status == Status::Done { request.offset } else { 0 };
    let left = request.words();
    match (request.kind, memory) {
        (Kind::Write, _) => return State::Receiving { grant, tag, status, at, left },
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
