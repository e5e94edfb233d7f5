//! What goes over a session: frames, little-endian.
//!
//! | frame | from | bytes | fields |
//! |---|---|---|---|
//! | hello | asking | 48 | magic 8, version 4, zero 4, nonce 32 |
//! | challenge | answering | 48 | magic 8, version 4, status 4, nonce 32 |
//! | proof | asking | 32 | HMAC |
//! | verdict | answering | 40 | status 4, zero 4, HMAC 32 |
//! | message | both, in turn | 8 + n + 32 | n 4, kind 1, zero 3; n bytes of body; HMAC of all before, with its number |
//!
//! Hello and challenge keep their lengths, magic and place of the version in all versions, so that any two can tell each
//! other. Decoding never panics and never allocates, whatever the bytes.

use crate::control::cause::Cause;
use crate::control::secret::{Nonce, Seal};

/// Raised by every change of what stands above, of what proofs are made of, and of what the bodies mean.
pub(super) const PROTOCOL: u32 = 1;
const MAGIC: u64 = u64::from_le_bytes(*b"SIDELCTL");

pub(super) const NONCE_BYTES: usize = 32;
pub(super) const MAC_BYTES: usize = 32;
pub(super) const HELLO_BYTES: usize = 48;
pub(super) const CHALLENGE_BYTES: usize = 48;
pub(super) const VERDICT_BYTES: usize = 40;
pub(super) const HEADER_BYTES: usize = 8;

/// The longest body of a message, in bytes.
pub const BODY_BYTES_MAX: usize = 16 << 10;
/// The kind of request that asks for a region by name. Kinds below 128 are the fabric's own.
pub const FIND: u8 = 0;

/// The longest message, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + BODY_BYTES_MAX + MAC_BYTES;

/// The kinds of an answer.
pub(super) const DONE: u8 = 0;
/// Its body says why, for people.
pub(super) const DECLINED: u8 = 1;

pub(super) fn encode_hello(nonce: &Nonce) -> [u8; HELLO_BYTES] {
    opening(0, nonce)
}

/// The asking side's nonce.
pub(super) fn decode_hello(frame: &[u8; HELLO_BYTES]) -> Result<Nonce, Cause> {
    check_opening(frame)?;
    if number(frame, 12) == 0 { Ok(bytes(frame, 16)) } else { Err(Cause::Malformed) }
}

/// How an endpoint answers a hello: with its nonce, or why not.
pub(super) fn encode_challenge(nonce: Result<&Nonce, Cause>) -> [u8; CHALLENGE_BYTES] {
    match nonce {
        Ok(nonce) => opening(0, nonce),
        Err(cause) => opening(status(cause), &[0; NONCE_BYTES]),
    }
}

/// The endpoint's nonce.
pub(super) fn decode_challenge(frame: &[u8; CHALLENGE_BYTES]) -> Result<Nonce, Cause> {
    check_opening(frame)?;
    check_status(number(frame, 12))?;
    Ok(bytes(frame, 16))
}

/// How an endpoint answers a proof: with its own, or not.
pub(super) fn encode_verdict(proof: Result<&[u8; MAC_BYTES], Cause>) -> [u8; VERDICT_BYTES] {
    let mut frame = [0; VERDICT_BYTES];
    match proof {
        Ok(proof) => frame[8..].copy_from_slice(proof),
        Err(cause) => frame[..4].copy_from_slice(&status(cause).to_le_bytes()),
    }
    frame
}

/// The endpoint's proof.
pub(super) fn decode_verdict(frame: &[u8; VERDICT_BYTES]) -> Result<[u8; MAC_BYTES], Cause> {
    check_status(number(frame, 0))?;
    if number(frame, 4) == 0 { Ok(bytes(frame, 8)) } else { Err(Cause::Malformed) }
}

/// Appends the next message of its direction.
///
/// # Panics
/// Where `body` is longer than [`BODY_BYTES_MAX`].
pub(super) fn put_message(out: &mut Vec<u8>, seal: &mut Seal, kind: u8, body: &[u8]) {
    assert!(body.len() <= BODY_BYTES_MAX, "a message of at most {BODY_BYTES_MAX} bytes");
    let begin = out.len();
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(body);
    let seal = seal.of_next(&out[begin..]);
    out.extend_from_slice(&seal);
}

/// How long the message is in all that begins with this header.
pub(super) fn message_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, Cause> {
    let body = number(header, 0) as usize;
    let fits = body <= BODY_BYTES_MAX && header[5..] == [0; 3];
    if fits { Ok(HEADER_BYTES + body + MAC_BYTES) } else { Err(Cause::Malformed) }
}

/// Kind and body of a whole message, where it is the next of its direction.
pub(super) fn open_message<'a>(message: &'a [u8], seal: &mut Seal) -> Result<(u8, &'a [u8]), Cause> {
    let (sealed, mac) = message.split_last_chunk().ok_or(Cause::Malformed)?;
    let (header, body) = sealed.split_first_chunk::<HEADER_BYTES>().ok_or(Cause::Malformed)?;
    if seal.is_of_next(sealed, mac) { Ok((header[4], body)) } else { Err(Cause::Replay) }
}

fn opening(status: u32, nonce: &Nonce) -> [u8; HELLO_BYTES] {
    let mut frame = [0; HELLO_BYTES];
    frame[..8].copy_from_slice(&MAGIC.to_le_bytes());
    frame[8..12].copy_from_slice(&PROTOCOL.to_le_bytes());
    frame[12..16].copy_from_slice(&status.to_le_bytes());
    frame[16..].copy_from_slice(nonce);
    frame
}

fn check_opening(frame: &[u8; HELLO_BYTES]) -> Result<(), Cause> {
    if frame[..8] != MAGIC.to_le_bytes() {
        return Err(Cause::Malformed);
    }
    let found = number(frame, 8);
    if found == PROTOCOL { Ok(()) } else { Err(Cause::Version { found }) }
}

fn status(cause: Cause) -> u32 {
    match cause {
        Cause::Secret => 1,
        Cause::TooMany => 2,
        // The frame itself tells the version; the others are met with silence.
        Cause::Version { .. } | Cause::Replay | Cause::Malformed | Cause::Silent => 3,
    }
}

fn check_status(status: u32) -> Result<(), Cause> {
    match status {
        0 => Ok(()),
        1 => Err(Cause::Secret),
        2 => Err(Cause::TooMany),
        _ => Err(Cause::Malformed),
    }
}

fn number(frame: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(frame, at))
}

fn bytes<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&frame[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::secret::{Nonces, Role, Secret};

    fn seal() -> Seal {
        let nonces = Nonces { asking: [1; NONCE_BYTES], answering: [2; NONCE_BYTES] };
        Secret::new(b"sixteen bytes it").unwrap().seal(Role::Asking, &nonces)
    }

    #[test]
    fn another_version_is_told_by_either_side() {
        let mut frame = encode_hello(&[7; NONCE_BYTES]);
        frame[8] = 9;
        assert_eq!(decode_hello(&frame), Err(Cause::Version { found: 9 }));
        assert_eq!(decode_challenge(&frame), Err(Cause::Version { found: 9 }));
        let error = Cause::Version { found: 9 }.to_string();
        assert!(error.contains("version 9") && error.contains("version 1"), "{error}");
    }

    #[test]
    fn refusals_are_told_as_what_they_are() {
        for cause in [Cause::Secret, Cause::TooMany] {
            assert_eq!(decode_challenge(&encode_challenge(Err(cause))), Err(cause));
            assert_eq!(decode_verdict(&encode_verdict(Err(cause))), Err(cause));
        }
    }

    proptest! {
        #[test]
        fn openings_round_trip(nonce: Nonce, proof: [u8; MAC_BYTES]) {
            prop_assert_eq!(decode_hello(&encode_hello(&nonce)), Ok(nonce));
            prop_assert_eq!(decode_challenge(&encode_challenge(Ok(&nonce))), Ok(nonce));
            prop_assert_eq!(decode_verdict(&encode_verdict(Ok(&proof))), Ok(proof));
        }

        #[test]
        fn messages_round_trip(kind: u8, body in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut out = vec![0xaa];
            put_message(&mut out, &mut seal(), kind, &body);
            let message = &out[1..];
            prop_assert_eq!(message_bytes(message.first_chunk().unwrap()), Ok(message.len()));
            prop_assert_eq!(open_message(message, &mut seal()), Ok((kind, &body[..])));
        }

        #[test]
        fn any_changed_bit_is_seen(body in prop::collection::vec(any::<u8>(), 0..64), at: prop::sample::Index, bit in 0..8u8) {
            let mut out = Vec::new();
            put_message(&mut out, &mut seal(), 3, &body);
            let at = at.index(out.len());
            out[at] ^= 1 << bit;
            prop_assert_eq!(open_message(&out, &mut seal()), Err(Cause::Replay));
        }

        #[test]
        fn no_bytes_panic(any in prop::collection::vec(any::<u8>(), 0..128)) {
            let mut frame = [0; 64];
            frame[..any.len().min(64)].copy_from_slice(&any[..any.len().min(64)]);
            let _ = decode_hello(frame.first_chunk().unwrap());
            let _ = decode_challenge(frame.first_chunk().unwrap());
            let _ = decode_verdict(frame.first_chunk().unwrap());
            let _ = message_bytes(frame.first_chunk().unwrap());
            prop_assert!(open_message(&any, &mut seal()).is_err());
        }
    }
}
