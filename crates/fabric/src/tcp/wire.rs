//! The frames of a connection: of fixed sizes, little-endian, each followed by the payload that it announces.
//!
//! | frame | bytes | fields |
//! |---|---|---|
//! | hello | 176 | magic 8, protocol 4, layout version 4, hash of headers 8, token 16, name length 8, name 128 |
//! | greeting | 32 | magic 8, status 4, protocol 4, layout version 4, zero 4, hash of headers 8 |
//! | request | 40 | tag 8, offset 8, a 8, b 8, length 4, kind 1, zero 1, region 2; then the words to write or send |
//! | claim | 168 | a request of kind 7 with the token as `a` and `b` and the name's length; then the name 128 |
//! | answer | 16 | tag 8, length 4, status 1, zero 3; then the words read, or the word before an atomic |
//!
//! The hello opens region 0 of the connection. A claim opens any other, and replaces a region that had its number.
//!
//! `a` and `b` are the expected and the new word of a compare-and-swap. `a` is also the operand of a fetch-and-add, and the
//! value that a write passes to the inbox. Decoding never panics and never allocates, whatever the bytes.

use sidelong_layout::{HEADER_HASH, HeaderError, LAYOUT_VERSION, RegionKind};

use crate::OpError;
use crate::access::Token;
use crate::batch::{Kind, Request};
use crate::limits::NAME_BYTES_MAX;
use crate::limits::OP_BYTES_MAX;

/// Version of the protocol. Raise it with every change of the frames above.
pub(super) const PROTOCOL: u32 = 3;
const MAGIC: u64 = u64::from_le_bytes(*b"SIDELTCP");

pub(super) const HELLO_BYTES: usize = 176;
pub(super) const GREETING_BYTES: usize = 32;
pub(super) const REQUEST_BYTES: usize = 40;
pub(super) const ANSWER_BYTES: usize = 16;
pub(super) const CLAIM_BYTES: usize = REQUEST_BYTES + NAME_BYTES_MAX;
/// Most regions of one connection.
pub(super) const REGIONS_MAX: u16 = 64;
/// The kind of request that is a claim.
const CLAIM: u8 = 7;

/// A frame that no peer of this version sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// How an initiator opens a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hello<'a> {
    pub(super) token: Token,
    pub(super) name: &'a str,
}

impl<'a> Hello<'a> {
    pub(super) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut frame = [0; HELLO_BYTES];
        put(&mut frame, 0, MAGIC.to_le_bytes());
        put(&mut frame, 8, PROTOCOL.to_le_bytes());
        put(&mut frame, 12, LAYOUT_VERSION.to_le_bytes());
        put(&mut frame, 16, HEADER_HASH.to_le_bytes());
        put(&mut frame, 24, self.token.0.to_le_bytes());
        put(&mut frame, 40, (self.name.len() as u64).to_le_bytes());
        frame[48..48 + self.name.len()].copy_from_slice(self.name.as_bytes());
        frame
    }

    /// Decodes a hello, or gives the answer to one of another version.
    pub(super) fn decode(frame: &'a [u8; HELLO_BYTES]) -> Result<Result<Self, Greeting>, Malformed> {
        if u64::from_le_bytes(get(frame, 0)) != MAGIC {
            return Err(Malformed);
        }
        if u32::from_le_bytes(get(frame, 8)) != PROTOCOL {
            return Ok(Err(Greeting::Protocol));
        }
        let layout = (u32::from_le_bytes(get(frame, 12)), u64::from_le_bytes(get(frame, 16)));
        if layout != (LAYOUT_VERSION, HEADER_HASH) {
            return Ok(Err(Greeting::Layout));
        }
        let token = Token(u128::from_le_bytes(get(frame, 24)));
        let len = u64::from_le_bytes(get(frame, 40)).min(1 + NAME_BYTES_MAX as u64) as usize;
        let name = frame[48..].get(..len).and_then(|name| std::str::from_utf8(name).ok());
        name.map(|name| Ok(Hello { token, name })).ok_or(Malformed)
    }
}

/// How a target answers a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Greeting {
    Accepted,
    /// No region of that name, or a wrong token.
    Key,
    /// The target speaks another protocol.
    Protocol,
    /// The target has another layout.
    Layout,
}

/// Why an initiator abandons a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unwelcome {
    NotSidelong,
    Protocol(u32),
    Layout(HeaderError),
    Key,
}

impl Greeting {
    pub(super) fn encode(self) -> [u8; GREETING_BYTES] {
        let mut frame = [0; GREETING_BYTES];
        put(&mut frame, 0, MAGIC.to_le_bytes());
        put(&mut frame, 8, (self as u32).to_le_bytes());
        put(&mut frame, 12, PROTOCOL.to_le_bytes());
        put(&mut frame, 16, LAYOUT_VERSION.to_le_bytes());
        put(&mut frame, 24, HEADER_HASH.to_le_bytes());
        frame
    }

    /// Decodes a greeting: whether the target accepts the connection.
    pub(super) fn decode(frame: &[u8; GREETING_BYTES]) -> Result<(), Unwelcome> {
        let status = u32::from_le_bytes(get(frame, 8));
        let protocol = u32::from_le_bytes(get(frame, 12));
        let version = u32::from_le_bytes(get(frame, 16));
        let hash = u64::from_le_bytes(get(frame, 24));
        if u64::from_le_bytes(get(frame, 0)) != MAGIC {
            Err(Unwelcome::NotSidelong)
        } else if protocol != PROTOCOL {
            Err(Unwelcome::Protocol(protocol))
        } else if version != LAYOUT_VERSION {
            Err(Unwelcome::Layout(HeaderError::Version { found: version }))
        } else if hash != HEADER_HASH {
            Err(Unwelcome::Layout(HeaderError::Layout { kind: RegionKind::Raw, found: hash }))
        } else if status != Greeting::Accepted as u32 {
            Err(Unwelcome::Key)
        } else {
            Ok(())
        }
    }
}

/// Names an operation and its batch, so that late answers to an abandoned batch are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tag {
    pub(super) batch: u32,
    pub(super) index: u32,
}

impl Tag {
    fn encode(self) -> [u8; 8] {
        (u64::from(self.batch) << 32 | u64::from(self.index)).to_le_bytes()
    }

    fn decode(bytes: [u8; 8]) -> Tag {
        let both = u64::from_le_bytes(bytes);
        Tag { batch: (both >> 32) as u32, index: both as u32 }
    }
}

pub(super) fn encode_request(tag: Tag, region: u16, request: &Request) -> [u8; REQUEST_BYTES] {
    let (kind, a, b) = match request.kind {
        Kind::Read => (1, 0, 0),
        Kind::Write => (2, 0, 0),
        Kind::CompareAndSwap { expected, new } => (3, expected, new),
        Kind::FetchAndAdd { add } => (4, add, 0),
        Kind::Send => (5, 0, 0),
        Kind::WriteWithImmediate { immediate } => (6, immediate.into(), 0),
    };
    let mut frame = [0; REQUEST_BYTES];
    put(&mut frame, 0, tag.encode());
    put(&mut frame, 8, (request.offset as u64).to_le_bytes());
    put(&mut frame, 16, a.to_le_bytes());
    put(&mut frame, 24, b.to_le_bytes());
    put(&mut frame, 32, (request.len as u32).to_le_bytes());
    frame[36] = kind;
    put(&mut frame, 38, region.to_le_bytes());
    frame
}

/// How an initiator asks for one more region on a connection. It is answered like a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim<'a> {
    pub(super) tag: Tag,
    /// The number that the region gets.
    pub(super) region: u16,
    pub(super) token: Token,
    pub(super) name: &'a str,
}

impl<'a> Claim<'a> {
    pub(super) fn encode(&self) -> [u8; CLAIM_BYTES] {
        let mut frame = [0; CLAIM_BYTES];
        put(&mut frame, 0, self.tag.encode());
        put(&mut frame, 16, self.token.0.to_le_bytes());
        put(&mut frame, 32, (self.name.len() as u32).to_le_bytes());
        frame[36] = CLAIM;
        put(&mut frame, 38, self.region.to_le_bytes());
        frame[REQUEST_BYTES..][..self.name.len()].copy_from_slice(self.name.as_bytes());
        frame
    }

    /// Whether a claim begins with this frame.
    pub(super) fn is_begun(frame: &[u8; REQUEST_BYTES]) -> bool {
        frame[36] == CLAIM
    }

    pub(super) fn decode(frame: &'a [u8; CLAIM_BYTES]) -> Result<Self, Malformed> {
        let token = Token(u128::from_le_bytes(get(frame, 16)));
        let len = u32::from_le_bytes(get(frame, 32)) as usize;
        let region = region(frame)?;
        let name = frame[REQUEST_BYTES..].get(..len).and_then(|name| std::str::from_utf8(name).ok());
        let name = name.ok_or(Malformed)?;
        Ok(Claim { tag: Tag::decode(get(frame, 0)), region, token, name })
    }
}

fn region(frame: &[u8]) -> Result<u16, Malformed> {
    let region = u16::from_le_bytes(get(frame, 38));
    if region < REGIONS_MAX { Ok(region) } else { Err(Malformed) }
}

pub(super) fn decode_request(frame: &[u8; REQUEST_BYTES]) -> Result<(Tag, u16, Request), Malformed> {
    let (a, b) = (u64::from_le_bytes(get(frame, 16)), u64::from_le_bytes(get(frame, 24)));
    let kind = match frame[36] {
        1 => Kind::Read,
        2 => Kind::Write,
        3 => Kind::CompareAndSwap { expected: a, new: b },
        4 => Kind::FetchAndAdd { add: a },
        5 => Kind::Send,
        6 => Kind::WriteWithImmediate { immediate: u32::try_from(a).map_err(|_| Malformed)? },
        _ => return Err(Malformed),
    };
    let offset = usize::try_from(u64::from_le_bytes(get(frame, 8))).map_err(|_| Malformed)?;
    let len = u32::from_le_bytes(get(frame, 32)) as usize;
    let fits = match kind {
        Kind::Read | Kind::Send => len <= OP_BYTES_MAX,
        Kind::Write | Kind::WriteWithImmediate { .. } => len <= OP_BYTES_MAX && len.is_multiple_of(8),
        Kind::CompareAndSwap { .. } | Kind::FetchAndAdd { .. } => len == 8,
    };
    let region = region(frame)?;
    if fits {
        Ok((Tag::decode(get(frame, 0)), region, Request { kind, offset, len }))
    } else {
        Err(Malformed)
    }
}

/// The result of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Done = 0,
    OutOfBounds = 1,
    Misaligned = 2,
    ReadOnly = 3,
    KeyRejected = 4,
    NoInbox = 5,
    InboxFull = 6,
    MessageTooLong = 7,
}

impl Status {
    pub(super) fn of(error: OpError) -> Status {
        match error {
            OpError::OutOfBounds { .. } | OpError::TooLong { .. } => Status::OutOfBounds,
            OpError::Misaligned { .. } => Status::Misaligned,
            OpError::ReadOnly => Status::ReadOnly,
            OpError::NoInbox => Status::NoInbox,
            OpError::InboxFull => Status::InboxFull,
            OpError::MessageTooLong { .. } => Status::MessageTooLong,
            OpError::NotRun
            | OpError::Timeout
            | OpError::PeerGone
            | OpError::KeyRejected
            | OpError::Closed => Status::KeyRejected,
        }
    }

    /// The outcome that the initiator of `request` reports, for a region of `region` bytes.
    pub(super) fn outcome(self, request: &Request, region: usize) -> Result<(), OpError> {
        let Request { offset, len, .. } = *request;
        match self {
            Status::Done => Ok(()),
            Status::OutOfBounds => Err(OpError::OutOfBounds { offset, len, region }),
            Status::Misaligned => Err(OpError::Misaligned { offset, len }),
            Status::ReadOnly => Err(OpError::ReadOnly),
            Status::KeyRejected => Err(OpError::KeyRejected),
            Status::NoInbox => Err(OpError::NoInbox),
            Status::InboxFull => Err(OpError::InboxFull),
            Status::MessageTooLong => Err(OpError::MessageTooLong { len }),
        }
    }
}

/// What a target sends for each request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) tag: Tag,
    pub(super) status: Status,
    /// Bytes of payload that follow.
    pub(super) len: usize,
}

impl Answer {
    pub(super) fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut frame = [0; ANSWER_BYTES];
        put(&mut frame, 0, self.tag.encode());
        put(&mut frame, 8, (self.len as u32).to_le_bytes());
        frame[12] = self.status as u8;
        frame
    }

    pub(super) fn decode(frame: &[u8; ANSWER_BYTES]) -> Result<Answer, Malformed> {
        let status = match frame[12] {
            0 => Status::Done,
            1 => Status::OutOfBounds,
            2 => Status::Misaligned,
            3 => Status::ReadOnly,
            4 => Status::KeyRejected,
            5 => Status::NoInbox,
            6 => Status::InboxFull,
            7 => Status::MessageTooLong,
            _ => return Err(Malformed),
        };
        let len = u32::from_le_bytes(get(frame, 8)) as usize;
        if len > OP_BYTES_MAX || !len.is_multiple_of(8) || (status != Status::Done && len != 0) {
            return Err(Malformed);
        }
        Ok(Answer { tag: Tag::decode(get(frame, 0)), status, len })
    }
}

fn put<const N: usize>(frame: &mut [u8], at: usize, bytes: [u8; N]) {
    frame[at..at + N].copy_from_slice(&bytes);
}

fn get<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&frame[at..at + N]);
    bytes
}
