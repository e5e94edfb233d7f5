//! Tests of the protocol's two halves without sockets, on any input.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use proptest::prelude::*;
use sidelong_layout::HeaderError;

use super::fifo::Fifo;
use super::session::{Ended, INPUT_BYTES, OUTPUT_BYTES, Registry, Session};
use super::wire::*;
use crate::access::Token;
use crate::batch::{Kind, Request};
use crate::limits::OP_BYTES_MAX;
use crate::memory::Memory;
use crate::{Access, OpError};

const LEN: usize = 1024;
const TOKEN: Token = Token(0x5eed);
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const TAG: Tag = Tag { batch: 3, index: 4 };

/// A target with one region, "r", and a connection to it.
struct Target {
    registry: Registry,
    memory: Option<Arc<Memory>>,
    session: Session,
    input: Fifo,
    output: Fifo,
}

impl Target {
    fn new(access: Access) -> Target {
        let memory = Arc::new(Memory::anonymous(LEN).unwrap());
        let registry = Registry::default();
        assert!(registry.expose("r", TOKEN, access, &memory, Weak::new()));
        Target {
            registry,
            memory: Some(memory),
            session: Session::new(PEER),
            input: Fifo::new(INPUT_BYTES),
            output: Fifo::new(OUTPUT_BYTES),
        }
    }

    fn greeted(access: Access) -> Target {
        let mut target = Target::new(access);
        let greeting = target.hear(&Hello { token: TOKEN, name: "r" }.encode()).unwrap();
        assert_eq!(Greeting::decode(greeting[..].try_into().unwrap()), Ok(()));
        target
    }

    /// Feeds `bytes` as from a socket, and returns all answers.
    fn hear(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, Ended> {
        let mut answered = Vec::new();
        loop {
            let count = bytes.len().min(self.input.room());
            self.input.push(&bytes[..count]);
            bytes = &bytes[count..];
            let advanced = self.session.advance(&mut self.input, &mut self.output, &self.registry);
            let full = advanced? && !self.output.is_empty();
            self.output.drain(&mut answered).unwrap();
            if bytes.is_empty() && !full {
                return Ok(answered);
            }
        }
    }

    fn ask(&mut self, kind: Kind, offset: usize, len: usize) -> Result<Vec<u8>, Ended> {
        self.hear(&encode_request(TAG, 0, &Request { kind, offset, len }))
    }
}

#[test]
fn a_hello_of_another_version_or_key_is_told_why() {
    let hello = Hello { token: TOKEN, name: "r" }.encode();
    let greeted = |hello: &[u8; HELLO_BYTES]| {
        let mut target = Target::new(Access::Atomic);
        let ended = target.hear(hello).err();
        let mut greeting = Vec::new();
        target.output.drain(&mut greeting).unwrap();
        (ended, greeting.first_chunk().map(Greeting::decode))
    };
    let altered = |at: usize| {
        let mut hello = hello;
        hello[at] ^= 1;
        greeted(&hello)
    };
    assert_eq!(greeted(&hello).0, None);
    for (at, what) in [(24, "the token's first byte"), (39, "its last"), (48, "the name")] {
        assert_eq!(altered(at), (Some(Ended::Refused), Some(Err(Unwelcome::Key))), "{what}");
    }
    // To another version the target tells only its own, which shows the other side the difference.
    assert_eq!(altered(8).0, Some(Ended::Refused));
    assert_eq!(altered(12).0, Some(Ended::Refused));
    assert_eq!(altered(16).0, Some(Ended::Refused));
    assert_eq!(altered(0), (Some(Ended::Malformed), None));
}

#[test]
fn a_greeting_of_another_version_is_understood() {
    let altered = |at: usize, by: u8| {
        let mut greeting = Greeting::Accepted.encode();
        greeting[at] ^= by;
        Greeting::decode(&greeting)
    };
    assert_eq!(altered(0, 1), Err(Unwelcome::NotSidelong));
    assert_eq!(altered(12, 2), Err(Unwelcome::Protocol(PROTOCOL ^ 2)));
    assert!(matches!(altered(16, 2), Err(Unwelcome::Layout(HeaderError::Version { .. }))));
    assert!(matches!(altered(24, 2), Err(Unwelcome::Layout(HeaderError::Layout { .. }))));
    assert_eq!(altered(8, 1), Err(Unwelcome::Key));
}

#[test]
fn a_region_that_was_dropped_answers_no_more() {
    let mut target = Target::greeted(Access::Atomic);
    assert_eq!(target.ask(Kind::Read, 0, 64).unwrap().len(), ANSWER_BYTES + 64);
    target.memory = None;
    for kind in [Kind::Read, Kind::FetchAndAdd { add: 1 }] {
        let answer = target.ask(kind, 0, 8).unwrap();
        let answer = Answer::decode(answer[..].try_into().unwrap()).unwrap();
        assert_eq!(answer, Answer { tag: TAG, status: Status::KeyRejected, len: 0 });
    }
    assert_eq!(target.session.advance(&mut target.input, &mut target.output, &target.registry), Ok(false));
}

#[test]
fn a_connection_has_as_many_regions_as_are_claimed() {
    let mut target = Target::greeted(Access::Atomic);
    let other = Arc::new(Memory::anonymous(2 * LEN).unwrap());
    assert!(target.registry.expose("other", Token(7), Access::ReadOnly, &other, Weak::new()));
    let mut ask = |frame: &[u8]| {
        let answer = target.hear(frame).unwrap();
        Answer::decode(answer.first_chunk().unwrap()).unwrap()
    };
    let claim = |region, token, name| Claim { tag: TAG, region, token: Token(token), name }.encode();
    let read = |region| encode_request(TAG, region, &Request { kind: Kind::Read, offset: LEN, len: 8 });
    let done = |len| Answer { tag: TAG, status: Status::Done, len };
    let rejected = Answer { tag: TAG, status: Status::KeyRejected, len: 0 };
    assert_eq!(ask(&read(3)), rejected, "nobody has claimed it");
    assert_eq!(ask(&claim(3, 8, "other")), rejected, "with another token");
    let of = |peer: &str| Token(7).of_peer(peer.parse().unwrap()).0;
    assert_eq!(ask(&claim(3, of("127.0.0.2"), "other")), rejected, "with a token for another peer");
    assert_eq!(ask(&claim(4, of("::ffff:127.0.0.1"), "other")), done(0), "with its own");
    assert_eq!(ask(&read(3)), rejected);
    assert_eq!(ask(&claim(3, 7, "other")), done(0));
    assert_eq!(ask(&read(3)), done(8));
    assert_eq!(ask(&read(0)).status, Status::OutOfBounds, "the first is as it was");
    let write = Request { kind: Kind::FetchAndAdd { add: 1 }, offset: 0, len: 8 };
    assert_eq!(ask(&encode_request(TAG, 3, &write)).status, Status::ReadOnly);
    assert_eq!(ask(&encode_request(TAG, 0, &write)), done(8));
    // A number that is claimed twice leads to the last claim.
    assert_eq!(ask(&claim(3, TOKEN.0, "r")), done(0));
    assert_eq!(ask(&read(3)).status, Status::OutOfBounds);
    drop(other);
}

#[test]
fn requests_that_no_initiator_sends_end_the_connection() {
    let too_long = OP_BYTES_MAX + 8;
    for (kind, len) in [
        (Kind::Read, too_long),
        (Kind::Write, too_long),
        (Kind::Write, 12),
        (Kind::FetchAndAdd { add: 1 }, 16),
        (Kind::CompareAndSwap { expected: 0, new: 1 }, 0),
    ] {
        let mut target = Target::greeted(Access::Atomic);
        assert_eq!(target.ask(kind, 0, len), Err(Ended::Malformed), "{kind:?} of {len}");
    }
    let frame = encode_request(TAG, 0, &Request { kind: Kind::Read, offset: 0, len: 8 });
    for (at, byte) in [(36, 8), (38, REGIONS_MAX as u8)] {
        let mut frame = frame;
        frame[at] = byte;
        assert_eq!(Target::greeted(Access::Atomic).hear(&frame), Err(Ended::Malformed), "{byte} at {at}");
    }
}

#[test]
fn a_target_whose_answers_are_not_taken_stops_asking() {
    let mut target = Target::greeted(Access::Atomic);
    let read = encode_request(TAG, 0, &Request { kind: Kind::Read, offset: 0, len: LEN });
    let mut taken = 0;
    while target.input.room() >= read.len() {
        target.input.push(&read);
        let advanced = target.session.advance(&mut target.input, &mut target.output, &target.registry);
        assert!(advanced.is_ok());
        taken += 1;
    }
    assert!(target.output.len() > OUTPUT_BYTES - 2 * LEN, "it filled its room");
    let mut answered = target.hear(&[]).unwrap();
    answered.extend(target.hear(&[]).unwrap());
    assert_eq!(answered.len(), taken * (ANSWER_BYTES + LEN), "and answers all that it took in the end");
}

fn request() -> impl Strategy<Value = Request> {
    let kind = prop_oneof![
        Just(Kind::Read),
        Just(Kind::Write),
        any::<(u64, u64)>().prop_map(|(expected, new)| Kind::CompareAndSwap { expected, new }),
        any::<u64>().prop_map(|add| Kind::FetchAndAdd { add }),
        Just(Kind::Send),
        any::<u32>().prop_map(|immediate| Kind::WriteWithImmediate { immediate }),
    ];
    let offset = prop_oneof![0..LEN + 64, any::<usize>()];
    (kind, offset, 0usize..256).prop_map(|(kind, offset, words)| {
        let atomic = matches!(kind, Kind::CompareAndSwap { .. } | Kind::FetchAndAdd { .. });
        let len = if atomic { 8 } else { words * 8 };
        Request { kind, offset, len }
    })
}

proptest! {
    #[test]
    fn decoders_take_any_bytes(bytes: [u8; HELLO_BYTES]) {
        let _ = Hello::decode(&bytes);
        let _ = Greeting::decode(bytes.first_chunk().unwrap());
        let _ = Claim::decode(bytes.first_chunk().unwrap());
        if let Ok((_, region, request)) = decode_request(bytes.first_chunk().unwrap()) {
            prop_assert!(request.len <= OP_BYTES_MAX && region < REGIONS_MAX);
        }
        if let Ok(answer) = Answer::decode(bytes.first_chunk().unwrap()) {
            prop_assert!(answer.len <= OP_BYTES_MAX && answer.len % 8 == 0);
        }
    }

    /// Bytes that begin like a hello are decoded further than random bytes.
    #[test]
    fn a_hello_takes_any_name(rest: [u8; HELLO_BYTES - 40]) {
        let mut frame = Hello { token: TOKEN, name: "" }.encode();
        frame[40..].copy_from_slice(&rest);
        let _ = Hello::decode(&frame);
        frame[41..48].fill(0);
        let _ = Hello::decode(&frame);
    }

    #[test]
    fn frames_come_back_as_they_went(
        request in request(),
        (batch, index, region) in any::<(u32, u32, u16)>(),
        token: u128,
        name in "[a-z]{1,128}",
    ) {
        let tag = Tag { batch, index };
        let region = region % REGIONS_MAX;
        prop_assert_eq!(decode_request(&encode_request(tag, region, &request)), Ok((tag, region, request)));
        let claim = Claim { tag, region, token: Token(token), name: &name };
        let frame = claim.encode();
        prop_assert!(Claim::is_begun(frame.first_chunk().unwrap()));
        prop_assert_eq!(Claim::decode(&frame), Ok(claim));
        let answer = Answer { tag, status: Status::Done, len: request.len };
        prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        let hello = Hello { token: Token(token), name: &name };
        let frame = hello.encode();
        prop_assert_eq!(Hello::decode(&frame), Ok(Ok(hello)));
    }

    /// Whatever an initiator with a key sends, the target neither panics nor grows, and touches nothing else.
    #[test]
    fn a_target_takes_any_bytes(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20)) {
        let mut target = Target::greeted(Access::ReadOnly);
        for chunk in chunks {
            if target.hear(&chunk).is_err() {
                break;
            }
        }
        prop_assert!((0..LEN / 8).all(|word| target.memory.as_ref().unwrap().load(word * 8) == 0));
    }

    /// Requests in any order, split anywhere, are answered as if they had been done one after the other in memory.
    #[test]
    fn a_target_does_what_is_asked(requests in prop::collection::vec(request(), 1..20), cut in 1usize..3000, writes: u64) {
        let mut target = Target::greeted(Access::Atomic);
        let model = Memory::anonymous(LEN).unwrap();
        let (mut asked, mut expected) = (Vec::new(), Vec::new());
        for (index, request) in requests.iter().enumerate() {
            let tag = Tag { batch: 1, index: index as u32 };
            asked.extend(encode_request(tag, 0, request));
            let mut words = vec![0; request.words()];
            if request.kind.carries() {
                words.fill(writes.wrapping_add(index as u64));
                asked.extend_from_slice(bytemuck::cast_slice(&words));
            }
            let outcome = model.apply(request, Access::Atomic, &mut words);
            let status = outcome.map_or_else(Status::of, |()| Status::Done);
            prop_assert_eq!(status.outcome(request, LEN), outcome);
            let brings = outcome.is_ok() && !request.kind.carries();
            expected.extend(Answer { tag, status, len: if brings { words.len() * 8 } else { 0 } }.encode());
            if brings {
                expected.extend_from_slice(bytemuck::cast_slice(&words));
            }
        }
        let mut answered = Vec::new();
        for chunk in asked.chunks(cut) {
            answered.extend(target.hear(chunk).unwrap());
        }
        prop_assert!(answered == expected);
        for word in 0..LEN / 8 {
            prop_assert_eq!(target.memory.as_ref().unwrap().load(word * 8), model.load(word * 8));
        }
    }
}

#[test]
fn a_status_tells_what_the_target_saw() {
    let request = Request { kind: Kind::Read, offset: 4, len: 8 };
    for error in [
        OpError::OutOfBounds { offset: 4, len: 8, region: LEN },
        OpError::Misaligned { offset: 4, len: 8 },
        OpError::ReadOnly,
        OpError::KeyRejected,
    ] {
        assert_eq!(Status::of(error).outcome(&request, LEN), Err(error));
    }
}
