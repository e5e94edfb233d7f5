//! The messages by which two ends set up a connection between queue pairs.
//!
//! They have a few hundred bytes at most, are little-endian, and are exchanged over a session that stays open as long as
//! the connection.
//!
//! | message | bytes | fields |
//! |---|---|---|
//! | request | 80 + name | magic 8, protocol 4, layout version 4, hash of headers 8, token 16, endpoint 36, zero 2, name length 2, name |
//! | answer | 120 | magic 8, status 4, protocol 4, layout version 4, zero 4, hash of headers 8, address 8, incarnation 8, length 8, rkey 4, endpoint 36, inbox 24 |
//! | endpoint | 36 | GID 16, queue pair 4, first sequence 4, LID 2, MTU 1, reads 1, zero 8 |
//! | inbox | 24 | address 8, rkey 4, slots 4, longest message 4, zero 4; 0 slots without an inbox |
//!
//! Decoding never panics and never allocates, whatever the bytes.

use std::net::SocketAddr;

use sidelong_layout::{HEADER_HASH, HeaderError, LAYOUT_VERSION, RegionKind};

use super::sys::Peer;
use crate::access::Token;
use crate::control::BODY_BYTES_MAX;
use crate::key::Key;
use crate::limits::NAME_BYTES_MAX;
use crate::{Error, OP_BYTES_MAX, OpError};

/// Version of the protocol. Raise it with every change of the messages above.
pub(super) const PROTOCOL: u32 = 2;
const MAGIC: u64 = u64::from_le_bytes(*b"SIDELVRB");

const ENDPOINT_BYTES: usize = 36;
const REQUEST_BYTES: usize = 80;
const ANSWER_BYTES: usize = 120;
const INBOX_BYTES: usize = 24;
/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = REQUEST_BYTES + NAME_BYTES_MAX;

/// Largest number of a queue pair or sequence: they have 24 bits (IBA volume 1, 9.2).
const NUMBER_MAX: u32 = (1 << 24) - 1;
/// `IBV_MTU_256` to `IBV_MTU_4096`.
const MTUS: std::ops::RangeInclusive<u8> = 1..=5;

/// A message that no peer of this version sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Endpoint {
    pub(super) number: u32,
    /// Sequence number (PSN) of its first request.
    pub(super) sequence: u32,
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    pub(super) mtu: u8,
    /// Most reads and atomics in flight: sent by an initiator, or accepted by a target.
    pub(super) reads: u8,
}

impl Endpoint {
    pub(super) fn new(own: Peer, reads: u8) -> Endpoint {
        let Peer { number, sequence, gid, lid, mtu } = own;
        Endpoint { number, sequence, gid, lid, mtu, reads }
    }

    /// The endpoint as the other end's peer, with the largest MTU that both support.
    pub(super) fn peer(&self, own_mtu: u8) -> Peer {
        let Endpoint { number, sequence, gid, lid, mtu, .. } = *self;
        Peer { number, sequence, gid, lid, mtu: mtu.min(own_mtu) }
    }

    fn put(&self, to: &mut [u8]) {
        put(to, 0, self.gid);
        put(to, 16, self.number.to_le_bytes());
        put(to, 20, self.sequence.to_le_bytes());
        put(to, 24, self.lid.to_le_bytes());
        put(to, 26, [self.mtu, self.reads]);
    }

    fn get(from: &[u8]) -> Result<Endpoint, Malformed> {
        let [mtu, reads] = get(from, 26)?;
        let endpoint = Endpoint {
            gid: get(from, 0)?,
            number: u32::from_le_bytes(get(from, 16)?),
            sequence: u32::from_le_bytes(get(from, 20)?),
            lid: u16::from_le_bytes(get(from, 24)?),
            mtu,
            reads,
        };
        let fits = endpoint.number <= NUMBER_MAX && endpoint.sequence <= NUMBER_MAX && MTUS.contains(&mtu);
        if fits { Ok(endpoint) } else { Err(Malformed) }
    }
}

/// An initiator's request for a connection to a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request<'a> {
    pub(super) token: Token,
    pub(super) name: &'a str,
    pub(super) endpoint: Endpoint,
}

impl<'a> Request<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; REQUEST_BYTES];
        put(&mut bytes, 0, MAGIC.to_le_bytes());
        put(&mut bytes, 8, PROTOCOL.to_le_bytes());
        put(&mut bytes, 12, LAYOUT_VERSION.to_le_bytes());
        put(&mut bytes, 16, HEADER_HASH.to_le_bytes());
        put(&mut bytes, 24, self.token.0.to_le_bytes());
        self.endpoint.put(&mut bytes[40..]);
        put(&mut bytes, 78, (self.name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    /// Decodes a request, or gives the answer to one of another version.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Result<Request<'a>, Refusal>, Malformed> {
        if u64::from_le_bytes(get(bytes, 0)?) != MAGIC {
            return Err(Malformed);
        }
        if u32::from_le_bytes(get(bytes, 8)?) != PROTOCOL {
            return Ok(Err(Refusal::Protocol));
        }
        let layout = (u32::from_le_bytes(get(bytes, 12)?), u64::from_le_bytes(get(bytes, 16)?));
        if layout != (LAYOUT_VERSION, HEADER_HASH) {
            return Ok(Err(Refusal::Layout));
        }
        let token = Token(u128::from_le_bytes(get(bytes, 24)?));
        let endpoint = Endpoint::get(&bytes[40..])?;
        let len = usize::from(u16::from_le_bytes(get(bytes, 78)?));
        let name = bytes.get(REQUEST_BYTES..).filter(|name| name.len() == len && len <= NAME_BYTES_MAX);
        let name = name.and_then(|name| std::str::from_utf8(name).ok()).ok_or(Malformed)?;
        Ok(Ok(Request { token, name, endpoint }))
    }
}

/// What a target grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    pub(super) endpoint: Endpoint,
    /// The region's address and remote key.
    pub(super) address: u64,
    pub(super) rkey: u32,
    pub(super) len: u64,
    /// The target's incarnation.
    pub(super) incarnation: u64,
    pub(super) inbox: Option<InboxGrant>,
}

/// This initiator's part of the region's inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InboxGrant {
    /// Address and remote key of the word that tells the progress.
    pub(super) address: u64,
    pub(super) rkey: u32,
    /// Most messages that wait; not 0.
    pub(super) slots: u32,
    /// Longest message, in bytes.
    pub(super) message_bytes_max: u32,
}

impl InboxGrant {
    fn put(&self, to: &mut [u8]) {
        put(to, 0, self.address.to_le_bytes());
        put(to, 8, self.rkey.to_le_bytes());
        put(to, 12, self.slots.to_le_bytes());
        put(to, 16, self.message_bytes_max.to_le_bytes());
    }

    fn get(from: &[u8]) -> Result<Option<InboxGrant>, Malformed> {
        let inbox = InboxGrant {
            address: u64::from_le_bytes(get(from, 0)?),
            rkey: u32::from_le_bytes(get(from, 8)?),
            slots: u32::from_le_bytes(get(from, 12)?),
            message_bytes_max: u32::from_le_bytes(get(from, 16)?),
        };
        let fits = inbox.message_bytes_max as usize <= OP_BYTES_MAX;
        if fits { Ok(Some(inbox).filter(|inbox| inbox.slots > 0)) } else { Err(Malformed) }
    }
}

/// Why a target grants nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// No region of that name, or a wrong token.
    Key = 1,
    /// The target speaks another protocol.
    Protocol,
    /// The target has another layout.
    Layout,
    /// The target's device failed; the target's log says why.
    Device,
}

/// Why an initiator abandons a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unwelcome {
    Malformed,
    Protocol(u32),
    Layout(HeaderError),
    Key,
    Device,
}

impl Unwelcome {
    /// The error for the region of `key` at the control endpoint `address`.
    pub(super) fn into_error(self, key: &Key, address: SocketAddr) -> Error {
        let other = |found| Error::Protocol { address, expected: PROTOCOL, found };
        match self {
            Unwelcome::Key => Error::Refused { name: key.name.clone(), reason: OpError::KeyRejected },
            Unwelcome::Layout(source) => Error::Header { name: key.name.clone(), source },
            Unwelcome::Protocol(found) => other(format!("it speaks version {found}")),
            Unwelcome::Malformed => other("it answered something else".to_owned()),
            Unwelcome::Device => {
                Error::Declined { address, reason: "its device cannot connect; its log says why".to_owned() }
            }
        }
    }
}

impl From<Malformed> for Unwelcome {
    fn from(_: Malformed) -> Self {
        Unwelcome::Malformed
    }
}

/// Encodes a target's answer.
pub(super) fn encode_answer(answer: &Result<Grant, Refusal>) -> Vec<u8> {
    let mut bytes = vec![0; ANSWER_BYTES];
    put(&mut bytes, 0, MAGIC.to_le_bytes());
    put(&mut bytes, 8, answer.as_ref().map_or_else(|refusal| *refusal as u32, |_| 0).to_le_bytes());
    put(&mut bytes, 12, PROTOCOL.to_le_bytes());
    put(&mut bytes, 16, LAYOUT_VERSION.to_le_bytes());
    put(&mut bytes, 24, HEADER_HASH.to_le_bytes());
    if let Ok(grant) = answer {
        put(&mut bytes, 32, grant.address.to_le_bytes());
        put(&mut bytes, 40, grant.incarnation.to_le_bytes());
        put(&mut bytes, 48, grant.len.to_le_bytes());
        put(&mut bytes, 56, grant.rkey.to_le_bytes());
        grant.endpoint.put(&mut bytes[60..]);
        if let Some(inbox) = &grant.inbox {
            inbox.put(&mut bytes[96..]);
        }
    }
    bytes
}

/// Decodes a target's answer.
pub(super) fn decode_answer(bytes: &[u8]) -> Result<Grant, Unwelcome> {
    let status = u32::from_le_bytes(get(bytes, 8)?);
    let protocol = u32::from_le_bytes(get(bytes, 12)?);
    if u64::from_le_bytes(get(bytes, 0)?) != MAGIC {
        return Err(Unwelcome::Malformed);
    }
    if protocol != PROTOCOL {
        return Err(Unwelcome::Protocol(protocol));
    }
    let version = u32::from_le_bytes(get(bytes, 16)?);
    let hash = u64::from_le_bytes(get(bytes, 24)?);
    if version != LAYOUT_VERSION {
        return Err(Unwelcome::Layout(HeaderError::Version { found: version }));
    }
    if hash != HEADER_HASH {
        return Err(Unwelcome::Layout(HeaderError::Layout { kind: RegionKind::Raw, found: hash }));
    }
    match status {
        0 if bytes.len() == ANSWER_BYTES => Ok(Grant {
            address: u64::from_le_bytes(get(bytes, 32)?),
            incarnation: u64::from_le_bytes(get(bytes, 40)?),
            len: u64::from_le_bytes(get(bytes, 48)?),
            rkey: u32::from_le_bytes(get(bytes, 56)?),
            endpoint: Endpoint::get(&bytes[60..])?,
            inbox: InboxGrant::get(&bytes[96..])?,
        }),
        status if status == Refusal::Key as u32 => Err(Unwelcome::Key),
        status if status == Refusal::Device as u32 => Err(Unwelcome::Device),
        _ => Err(Unwelcome::Malformed),
    }
}

fn put<const N: usize>(to: &mut [u8], at: usize, bytes: [u8; N]) {
    to[at..at + N].copy_from_slice(&bytes);
}

fn get<const N: usize>(from: &[u8], at: usize) -> Result<[u8; N], Malformed> {
    from.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).ok_or(Malformed)
}

const _: () =
    assert!(40 + ENDPOINT_BYTES <= 78 && 60 + ENDPOINT_BYTES <= 96 && 96 + INBOX_BYTES == ANSWER_BYTES);
const _: () = assert!(MESSAGE_BYTES_MAX <= BODY_BYTES_MAX);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn endpoint() -> impl Strategy<Value = Endpoint> {
        let numbers = (0..=NUMBER_MAX, 0..=NUMBER_MAX);
        (numbers, any::<[u8; 16]>(), any::<u16>(), MTUS, any::<u8>()).prop_map(
            |((number, sequence), gid, lid, mtu, reads)| Endpoint { number, sequence, gid, lid, mtu, reads },
        )
    }

    proptest! {
        #[test]
        fn a_request_arrives_as_it_was_sent(
            token in any::<u128>(),
            name in "[a-z0-9.-]{0,128}",
            endpoint in endpoint(),
        ) {
            let request = Request { token: Token(token), name: &name, endpoint };
            let bytes = request.encode();
            prop_assert!(bytes.len() <= MESSAGE_BYTES_MAX);
            prop_assert_eq!(Request::decode(&bytes), Ok(Ok(request)));
            for cut in [1, 40, bytes.len() - 1] {
                prop_assert_eq!(Request::decode(&bytes[..cut]), Err(Malformed));
            }
        }

        #[test]
        fn an_answer_arrives_as_it_was_sent(
            endpoint in endpoint(),
            (address, rkey, len, incarnation) in any::<(u64, u32, u64, u64)>(),
            inbox in prop::option::of((any::<u64>(), any::<u32>(), 1u32.., 0..=OP_BYTES_MAX as u32)),
        ) {
            let inbox = inbox.map(|(address, rkey, slots, message_bytes_max)| InboxGrant {
                address,
                rkey,
                slots,
                message_bytes_max,
            });
            let grant = Grant { endpoint, address, rkey, len, incarnation, inbox };
            let bytes = encode_answer(&Ok(grant));
            prop_assert_eq!(decode_answer(&bytes), Ok(grant));
            prop_assert_eq!(decode_answer(&bytes[..ANSWER_BYTES - 1]), Err(Unwelcome::Malformed));
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..MESSAGE_BYTES_MAX + 9)) {
            let _ = Request::decode(&bytes);
            let _ = decode_answer(&bytes);
        }

        /// Bytes that begin well are decoded further than random ones.
        #[test]
        fn any_bytes_behind_a_good_start_are_taken(
            request in any::<bool>(),
            keep in 8usize..60,
            rest in prop::collection::vec(any::<u8>(), 0..MESSAGE_BYTES_MAX),
        ) {
            let endpoint = Endpoint { number: 1, sequence: 2, gid: [0; 16], lid: 0, mtu: 3, reads: 1 };
            let good = match request {
                true => Request { token: Token(1), name: "a", endpoint }.encode(),
                false => encode_answer(&Ok(Grant {
                    endpoint,
                    address: 0,
                    rkey: 0,
                    len: 0,
                    incarnation: 0,
                    inbox: None,
                })),
            };
            let bytes = [&good[..keep], &rest].concat();
            let _ = Request::decode(&bytes);
            let _ = decode_answer(&bytes);
        }
    }

    #[test]
    fn another_version_is_told_from_garbage() {
        let endpoint = Endpoint { number: 1, sequence: 2, gid: [0; 16], lid: 0, mtu: 3, reads: 1 };
        let request = Request { token: Token(1), name: "a", endpoint }.encode();
        let changed = |at: usize| {
            let mut bytes = request.clone();
            bytes[at] ^= 1;
            bytes
        };
        assert_eq!(Request::decode(&changed(0)), Err(Malformed));
        assert_eq!(Request::decode(&changed(8)), Ok(Err(Refusal::Protocol)));
        assert_eq!(Request::decode(&changed(12)), Ok(Err(Refusal::Layout)));
        assert_eq!(Request::decode(&changed(16)), Ok(Err(Refusal::Layout)));
        for (refusal, expected) in [(Refusal::Key, Unwelcome::Key), (Refusal::Device, Unwelcome::Device)] {
            assert_eq!(decode_answer(&encode_answer(&Err(refusal))), Err(expected));
        }
    }
}
