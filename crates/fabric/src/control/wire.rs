//! The frames of a session. Numbers are little-endian.
//!
//! | frame | from | bytes | fields |
//! |---|---|---|---|
//! | hello | asking | 64 | magic 8, version 4, zero 4, handshake 48 |
//! | greeting | answering | 64 | magic 8, version 4, status 4, handshake 48 |
//! | proof | asking | 16 | an empty message, encrypted |
//! | message | both, in turn | 2 + n + 17 | length of the rest 2; body n and kind 1, encrypted |
//!
//! In every version, hello and greeting begin with the same 16 bytes and have at least 48, which version 1 reads. So
//! processes of any two versions can tell each other their versions. Decoding never panics, whatever the bytes.

use crate::control::cause::Cause;
use crate::control::noise::{Channel, HANDSHAKE_BYTES, HandshakeMessage, TAG_BYTES};

/// What is said over a connection. Raise the version with every change of its frames, of the handshake, or of the bodies'
/// meaning.
pub(super) struct Protocol {
    magic: [u8; 8],
    version: u32,
    /// Both sides' handshakes begin with this; no other version or protocol uses it.
    pub(super) prologue: &'static [u8],
}

/// Requests and answers, in the frames above.
pub(super) const SESSION: Protocol =
    Protocol { magic: *b"SIDELCTL", version: 3, prologue: b"sidelong control 3" };
/// Bytes both ways ([`Sealed`](super::Sealed)).
pub(super) const SEALED: Protocol =
    Protocol { magic: *b"SIDELBYT", version: 2, prologue: b"sidelong sealed bytes 2" };

/// Bytes of a hello or greeting that are the same in every version.
pub(super) const OPENING_BYTES: usize = 48;
/// Length of a hello and of a greeting, in bytes.
pub(super) const HELLO_BYTES: usize = 16 + HANDSHAKE_BYTES;
pub(super) const PROOF_BYTES: usize = TAG_BYTES;
/// Bytes of a message's length field.
pub(super) const LENGTH_BYTES: usize = 2;

/// Longest body of a message, in bytes.
pub const BODY_BYTES_MAX: usize = 16 << 10;
/// The kind of request that finds a region by name. The fabric reserves kinds below 128.
pub const FIND: u8 = 0;
/// The kind of request for the incarnation of the process of this machine that exposed a region and has ended.
pub(super) const ENDED: u8 = 1;
/// The kind of request for the secrets that count for the process, by name.
pub(super) const SECRETS: u8 = 2;

/// Shortest message, with an empty body, in bytes after the length field.
const SEALED_BYTES_MIN: usize = 1 + TAG_BYTES;
/// Longest message, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = LENGTH_BYTES + BODY_BYTES_MAX + SEALED_BYTES_MIN;

/// Kind of an answer that grants the request.
pub(super) const DONE: u8 = 0;
/// Kind of an answer that declines the request; its body gives the reason.
pub(super) const DECLINED: u8 = 1;

impl Protocol {
    pub(super) fn encode_hello(&self, handshake: &HandshakeMessage) -> [u8; HELLO_BYTES] {
        self.opening(0, handshake)
    }

    /// Encodes the answer to a hello: the other half of the handshake, or why it is refused.
    pub(super) fn encode_greeting(&self, handshake: Result<&HandshakeMessage, Cause>) -> [u8; HELLO_BYTES] {
        match handshake {
            Ok(handshake) => self.opening(0, handshake),
            Err(cause) => self.opening(status(cause), &[0; HANDSHAKE_BYTES]),
        }
    }

    /// Checks the first bytes of a hello or greeting: whether a handshake follows, or why not.
    pub(super) fn check_opening(&self, frame: &[u8; OPENING_BYTES]) -> Result<(), Cause> {
        if frame[..8] != self.magic {
            return Err(Cause::Malformed);
        }
        let found = number(frame, 8);
        if found != self.version {
            return Err(Cause::Version { found, expected: self.version });
        }
        match number(frame, 12) {
            0 => Ok(()),
            1 => Err(Cause::Secret),
            2 => Err(Cause::TooMany),
            _ => Err(Cause::Malformed),
        }
    }

    fn opening(&self, status: u32, handshake: &HandshakeMessage) -> [u8; HELLO_BYTES] {
        let mut frame = [0; HELLO_BYTES];
        frame[..8].copy_from_slice(&self.magic);
        frame[8..12].copy_from_slice(&self.version.to_le_bytes());
        frame[12..16].copy_from_slice(&status.to_le_bytes());
        frame[16..].copy_from_slice(handshake);
        frame
    }
}

/// The handshake message in a hello or greeting.
pub(super) fn handshake(frame: &[u8; HELLO_BYTES]) -> &HandshakeMessage {
    frame.last_chunk().expect("it is the frame's end")
}

/// Appends the direction's next message.
///
/// # Panics
/// If `body` is longer than [`BODY_BYTES_MAX`].
pub(super) fn put_message(out: &mut Vec<u8>, channel: &mut Channel, kind: u8, body: &[u8]) {
    assert!(body.len() <= BODY_BYTES_MAX, "a message of at most {BODY_BYTES_MAX} bytes");
    let sealed = channel.seal(&[body, &[kind]].concat());
    out.extend_from_slice(&(sealed.len() as u16).to_le_bytes());
    out.extend_from_slice(&sealed);
}

/// Bytes of a message after its length field.
pub(super) fn sealed_bytes(length: [u8; LENGTH_BYTES]) -> Result<usize, Cause> {
    let sealed = usize::from(u16::from_le_bytes(length));
    let fits = (SEALED_BYTES_MIN..=SEALED_BYTES_MIN + BODY_BYTES_MAX).contains(&sealed);
    if fits { Ok(sealed) } else { Err(Cause::Malformed) }
}

/// Decrypts the bytes after a message's length into kind and body, if it is the next message of its direction.
pub(super) fn open_message(sealed: &[u8], channel: &mut Channel) -> Result<(u8, Vec<u8>), Cause> {
    let mut body = channel.open(sealed)?;
    let kind = body.pop().ok_or(Cause::Malformed)?;
    Ok((kind, body))
}

fn status(cause: Cause) -> u32 {
    match cause {
        Cause::Secret => 1,
        Cause::TooMany => 2,
        // The frame itself carries the version; the endpoint never sends the other causes.
        Cause::Version { .. } | Cause::Replay | Cause::Malformed | Cause::Silent => 3,
    }
}

fn number(frame: &[u8; OPENING_BYTES], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&frame[at..at + 4]);
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::noise::{self, Handshake};
    use crate::control::secret::Secret;

    fn channels() -> [Channel; 2] {
        let secret = Secret::new(b"sixteen bytes it").unwrap();
        let (handshake, message) = Handshake::begin(&secret.asking(), SESSION.prologue);
        let (message, answering, _) = noise::answer(&secret, SESSION.prologue, &message).unwrap();
        [handshake.finish(&message).unwrap(), answering]
    }

    fn check(frame: &[u8; HELLO_BYTES]) -> Result<(), Cause> {
        SESSION.check_opening(frame.first_chunk().unwrap())
    }

    #[test]
    fn another_version_is_told_by_either_side() {
        assert!(
            [SESSION, SEALED].iter().all(|one| one.prologue.ends_with(one.version.to_string().as_bytes()))
        );
        let mut frame = SESSION.encode_hello(&[7; HANDSHAKE_BYTES]);
        frame[8] = 9;
        let cause = check(&frame).unwrap_err();
        assert_eq!(cause, Cause::Version { found: 9, expected: SESSION.version });
        let error = cause.to_string();
        assert!(error.contains("version 9") && error.contains("version 3"), "{error}");
        // Checked before the status, whose bytes may mean something else in another version.
        frame[12] = 1;
        assert_eq!(check(&frame), Err(cause));
    }

    #[test]
    fn refusals_are_told_as_what_they_are() {
        for cause in [Cause::Secret, Cause::TooMany] {
            assert_eq!(check(&SESSION.encode_greeting(Err(cause))), Err(cause));
        }
    }

    proptest! {
        #[test]
        fn openings_round_trip(low: [u8; 32], high: [u8; 16]) {
            let message = [&low[..], &high].concat().try_into().unwrap();
            for frame in [SESSION.encode_hello(&message), SESSION.encode_greeting(Ok(&message))] {
                prop_assert_eq!((check(&frame), handshake(&frame)), (Ok(()), &message));
            }
        }

        #[test]
        fn messages_round_trip(kind: u8, body in prop::collection::vec(any::<u8>(), 0..2000)) {
            let [mut asking, mut answering] = channels();
            let mut out = vec![0xaa];
            put_message(&mut out, &mut asking, kind, &body);
            let (length, sealed) = out[1..].split_first_chunk().unwrap();
            prop_assert_eq!(sealed_bytes(*length), Ok(sealed.len()));
            prop_assert_eq!(open_message(sealed, &mut answering), Ok((kind, body)));
        }

        #[test]
        fn any_changed_bit_is_seen(body in prop::collection::vec(any::<u8>(), 0..64), at: prop::sample::Index, bit in 0..8u8) {
            let [mut asking, mut answering] = channels();
            let mut out = Vec::new();
            put_message(&mut out, &mut asking, 3, &body);
            let sealed = &mut out[LENGTH_BYTES..];
            let at = at.index(sealed.len());
            sealed[at] ^= 1 << bit;
            prop_assert_eq!(open_message(sealed, &mut answering), Err(Cause::Replay));
        }

        #[test]
        fn no_bytes_panic(any in prop::collection::vec(any::<u8>(), 0..128)) {
            let mut frame = [0; HELLO_BYTES];
            frame[..any.len().min(HELLO_BYTES)].copy_from_slice(&any[..any.len().min(HELLO_BYTES)]);
            let _ = check(&frame);
            let _ = sealed_bytes(*frame.first_chunk().unwrap());
            prop_assert!(open_message(&any, &mut channels()[1]).is_err());
        }
    }
}
