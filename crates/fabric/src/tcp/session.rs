//! The target's half of one connection: bytes in, operations on memory, bytes out. It does no I/O and asks no clock.
//!
//! Payloads of any length pass in chunks through two small buffers, so every connection costs the same memory. While
//! its answers are not taken, a connection's further requests wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::access::Token;
use crate::batch::{Kind, Request};
use crate::inbox::{Letter, Queue};
use crate::memory::Memory;
use crate::tcp::fifo::Fifo;
use crate::tcp::wire::{self, Answer, Claim, Greeting, Hello, Malformed, Status, Tag};
use crate::{Access, OpError};

/// Words moved at once. A shorter payload, such as a load record, is copied from memory in one pass.
const CHUNK_WORDS: usize = 512;
/// Room for answers: enough for a chunk and its frame.
pub(super) const OUTPUT_BYTES: usize = 64 << 10;
/// Room for requests.
pub(super) const INPUT_BYTES: usize = 16 << 10;

const _: () =
    assert!(OUTPUT_BYTES >= CHUNK_WORDS * 8 + 2 * wire::ANSWER_BYTES && INPUT_BYTES >= wire::HELLO_BYTES);

/// The regions that a target answers for. The owner alone keeps a region alive; a dropped region answers no more.
#[derive(Debug, Default)]
pub(super) struct Registry {
    exposures: Mutex<HashMap<String, Exposure>>,
}

#[derive(Debug)]
struct Exposure {
    token: Token,
    grant: Grant,
}

/// A region on which a connection has rights; by default none.
#[derive(Clone, Debug)]
struct Grant {
    memory: Weak<Memory>,
    access: Access,
    inbox: Weak<Queue>,
}

impl Registry {
    /// Adds a region, unless a live one has its name.
    pub(super) fn expose(
        &self,
        name: &str,
        token: Token,
        access: Access,
        memory: &Arc<Memory>,
        inbox: Weak<Queue>,
    ) -> bool {
        let mut exposures = self.lock();
        exposures.retain(|_, exposure| exposure.grant.memory.strong_count() > 0);
        let free = !exposures.contains_key(name);
        if free {
            let grant = Grant { memory: Arc::downgrade(memory), access, inbox };
            exposures.insert(name.to_owned(), Exposure { token, grant });
        }
        free
    }

    /// The region, if the peer shows its token, or the one that is for its address alone.
    fn find(&self, name: &str, token: Token, peer: IpAddr) -> Option<Grant> {
        let exposures = self.lock();
        let shows = |exposure: &&Exposure| {
            exposure.token.matches(token) || exposure.token.of_peer(peer).matches(token)
        };
        let exposure = exposures.get(name).filter(shows)?;
        (exposure.grant.memory.strong_count() > 0).then(|| exposure.grant.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Exposure>> {
        self.exposures.lock().expect("nothing panics while it holds the exposes")
    }
}

impl Default for Grant {
    fn default() -> Self {
        Grant { memory: Weak::new(), access: Access::ReadOnly, inbox: Weak::new() }
    }
}

impl Grant {
    /// Checks whether the inbox that a request needs exists.
    fn takes(&self, request: &Request) -> Result<(), OpError> {
        let len = match request.kind {
            Kind::Send => request.len,
            Kind::WriteWithImmediate { .. } => 0,
            _ => return Ok(()),
        };
        self.inbox.upgrade().ok_or(OpError::NoInbox)?.takes(len)
    }
}

/// Why the target ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// The initiator was refused, and told why.
    Refused,
    /// The initiator violates the protocol.
    Malformed,
    /// The region was dropped while part of it was being sent.
    Revoked,
}

impl From<Malformed> for Ended {
    fn from(_: Malformed) -> Self {
        Ended::Malformed
    }
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Session {
    /// Where the peer is.
    peer: IpAddr,
    state: State,
    /// Indexed by the regions' numbers.
    grants: Vec<Grant>,
    chunk: Box<[u64; CHUNK_WORDS]>,
}

#[derive(Debug)]
enum State {
    /// Before the hello.
    Silent,
    /// Between requests.
    Ready,
    /// Within the payload of a request: `left` words are still to come. They are dropped unless `status` is `Done`.
    Receiving { grant: Grant, tag: Tag, status: Status, sink: Sink, left: usize },
    /// Within the answer to a read.
    Sending { grant: Grant, at: usize, left: usize },
}

/// Where received words go.
#[derive(Debug)]
enum Sink {
    /// Into memory from `at` on. When all are there, the inbox is notified with `immediate`.
    Memory { at: usize, immediate: Option<u32> },
    /// Into a message for the inbox.
    Letter(Letter),
}

impl Sink {
    /// Completes the payload.
    fn finish(&mut self, inbox: &Weak<Queue>) -> Result<(), OpError> {
        let letter = match self {
            Sink::Memory { immediate: None, .. } => return Ok(()),
            Sink::Memory { immediate, .. } => Letter { immediate: *immediate, ..Letter::default() },
            Sink::Letter(letter) => std::mem::take(letter),
        };
        inbox.upgrade().ok_or(OpError::NoInbox)?.put(letter)
    }
}

/// The result of one step.
enum Step {
    Taken,
    /// It needs more input.
    Hungry,
    /// It needs more room for output.
    Full,
}

impl Session {
    /// With a peer at that address, from whom nothing has come.
    pub(super) fn new(peer: IpAddr) -> Self {
        Session { peer, state: State::Silent, grants: Vec::new(), chunk: Box::new([0; CHUNK_WORDS]) }
    }

    /// Whether the hello is still missing.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.state, State::Silent)
    }

    /// Progresses as far as input and output allow; `true` if it waits for room for output.
    ///
    /// # Errors
    /// The connection must be closed once `output` is sent.
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
                    Ok(hello) => registry.find(hello.name, hello.token, self.peer).ok_or(Greeting::Key),
                    Err(other) => Err(other),
                };
                input.consume(wire::HELLO_BYTES);
                output.push(&found.as_ref().err().unwrap_or(&Greeting::Accepted).encode());
                self.grants.push(found.map_err(|_| Ended::Refused)?);
                self.state = State::Ready;
            }
            State::Ready => {
                let Some(frame) = input.front() else { return Ok(Step::Hungry) };
                if Claim::is_begun(frame) {
                    let Some(frame) = input.front() else { return Ok(Step::Hungry) };
                    let claim = Claim::decode(frame)?;
                    let (answer, grant) = claimed(&claim, registry, self.peer);
                    let region = usize::from(claim.region);
                    self.grants.resize_with(self.grants.len().max(region + 1), Grant::default);
                    self.grants[region] = grant;
                    input.consume(wire::CLAIM_BYTES);
                    output.push(&answer.encode());
                } else {
                    let (tag, region, request) = wire::decode_request(frame)?;
                    input.consume(wire::REQUEST_BYTES);
                    let grant = self.grants.get(usize::from(region)).cloned().unwrap_or_default();
                    self.state = start(grant, tag, &request, output);
                }
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
                    self.state = State::Ready;
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
                    self.state = State::Ready;
                }
            }
        }
        Ok(Step::Taken)
    }
}

/// The answer to a claim, and what it grants.
fn claimed(claim: &Claim<'_>, registry: &Registry, peer: IpAddr) -> (Answer, Grant) {
    let found = registry.find(claim.name, claim.token, peer);
    let status = if found.is_some() { Status::Done } else { Status::KeyRejected };
    (Answer { tag: claim.tag, status, len: 0 }, found.unwrap_or_default())
}

/// Carries out `request` as far as its frame allows.
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
            // Never more room than the longest message that the inbox accepts.
            let words = Vec::with_capacity(if status == Status::Done { left } else { 0 });
            let sink = Sink::Letter(Letter { words, len: request.len, immediate: None });
            return State::Receiving { grant, tag, status, sink, left };
        }
        (Kind::Read, Some(_)) if status == Status::Done => {
            output.push(&Answer { tag, status, len: left * 8 }.encode());
            return if left == 0 { State::Ready } else { State::Sending { grant, at, left } };
        }
        (_, Some(memory)) if status == Status::Done => {
            let mut before = [0];
            memory.apply(request, grant.access, &mut before).expect("it was checked");
            output.push(&Answer { tag, status, len: 8 }.encode());
            output.push(&before[0].to_le_bytes());
        }
        _ => output.push(&Answer { tag, status, len: 0 }.encode()),
    }
    State::Ready
}

/// Has the session of a region that peers may only read take these bytes. The first says whether its hello has come.
///
/// # Panics
/// Where the region was written to.
#[cfg(fuzzing)]
pub fn fuzz_target(bytes: &[u8]) {
    const LEN: usize = 1024;
    const TOKEN: Token = Token(0x5eed);
    let Some((is_greeted, mut bytes)) = bytes.split_first() else { return };
    let memory = Arc::new(Memory::anonymous(LEN).expect("memory for a small region"));
    let (registry, mut session) = (Registry::default(), Session::new(std::net::Ipv4Addr::LOCALHOST.into()));
    assert!(registry.expose("r", TOKEN, Access::ReadOnly, &memory, Weak::new()));
    let (mut input, mut output) = (Fifo::new(INPUT_BYTES), Fifo::new(OUTPUT_BYTES));
    if is_greeted % 2 == 1 {
        input.push(&Hello { token: TOKEN, name: "r" }.encode());
    }
    loop {
        let (now, later) = bytes.split_at(bytes.len().min(input.room()).min(1000));
        input.push(now);
        bytes = later;
        let Ok(is_full) = session.advance(&mut input, &mut output, &registry) else { break };
        output.consume(output.len());
        if bytes.is_empty() && !is_full {
            break;
        }
    }
    assert!(
        (0..LEN / 8).all(|word| memory.load(word * 8) == 0),
        "a region that is read alone was written to"
    );
}
