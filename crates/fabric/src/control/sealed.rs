//! A connection over which two processes of a cluster say anything: both have proved that they know the cluster's secret and have
//! the same cluster file, and what they say is encrypted. It does no I/O: the caller moves the bytes.
//!
//! | frame | from | bytes | fields |
//! |---|---|---|---|
//! | hello, greeting | asking, then answering | 64 each | as a session's, with a magic, a version and a prologue of its own |
//! | message | both | 2 + n + 16 | length of the rest 2; n bytes, encrypted |
//!
//! Each side's first message has 8 bytes: what parts of its cluster file are alike, as a number. The answering side sends its
//! own after the asking side's, which proves that the hello was no replay. Numbers are little-endian.

use crate::control::cause::Cause;
use crate::control::noise::{self, Channel, Handshake, TAG_BYTES};
use crate::control::secret::{Secret, SecretId};
use crate::control::wire::{self, HELLO_BYTES, LENGTH_BYTES, SEALED};

/// Most bytes of one message.
pub const SEALED_BYTES_MAX: usize = 16 << 10;

/// Why a connection cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealedError {
    /// One side refuses the other.
    #[error(transparent)]
    Refused(#[from] Cause),
    /// The other side has another cluster file.
    #[error("its cluster file has other sites, nodes or caches: use the same file on all machines")]
    Cluster,
}

/// One end of such a connection.
pub struct Sealed {
    cluster: u64,
    stage: Stage,
}

enum Stage {
    /// The hello is sent.
    Asked(Box<Handshake>, Secret, SecretId),
    /// The hello is still to come.
    Listening(Secret),
    /// The other side's first message is still to come.
    Greeted {
        channel: Channel,
        is_asking: bool,
        by: Option<(Secret, SecretId)>,
    },
    /// With the secret that the asking side has shown to know, at the other end.
    Open(Channel, Option<(Secret, SecretId)>),
    Failed(SealedError),
}

impl Sealed {
    /// The end that asks for the connection, for a cluster whose parts have `cluster` alike. Appends what is to be sent first.
    pub fn asking(secret: &Secret, cluster: u64, out: &mut Vec<u8>) -> Self {
        let key = secret.asking();
        let (handshake, message) = Handshake::begin(&key, SEALED.prologue);
        out.extend_from_slice(&SEALED.encode_hello(&message));
        Sealed { cluster, stage: Stage::Asked(Box::new(handshake), secret.clone(), key.id) }
    }

    /// The end that is asked.
    pub fn answering(secret: Secret, cluster: u64) -> Self {
        Sealed { cluster, stage: Stage::Listening(secret) }
    }

    /// Whether the other side is known to be of the cluster. Bytes may then be sent.
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(..))
    }

    /// Takes bytes that have arrived, and returns how many of them are done with; the others are to be handed in again, with more
    /// behind them. Appends what was said to `plain`, and to `out` what is to be sent, also if it fails.
    ///
    /// # Errors
    /// If the other side is not of the cluster, or its bytes were changed on the way. The connection is then to be closed.
    pub fn receive(
        &mut self,
        input: &[u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<usize, SealedError> {
        let mut used = 0;
        loop {
            let (stage, taken) =
                match std::mem::replace(&mut self.stage, Stage::Failed(Cause::Malformed.into())) {
                    Stage::Open(_, Some((secret, by))) if !secret.counts(by) => {
                        return Err(Cause::Secret.into());
                    }
                    Stage::Open(mut channel, by) => {
                        let taken = take(&mut channel, &input[used..], plain)?;
                        (Stage::Open(channel, by), taken)
                    }
                    stage => self.advance(stage, &input[used..], out).inspect_err(|error| {
                        self.stage = Stage::Failed(*error);
                    })?,
                };
            self.stage = stage;
            if taken == 0 {
                return Ok(used);
            }
            used += taken;
        }
    }

    /// Appends the message that says `plain`.
    ///
    /// # Panics
    /// If the connection is not open, or there are more than [`SEALED_BYTES_MAX`] bytes.
    pub fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        assert!(plain.len() <= SEALED_BYTES_MAX, "a message of at most {SEALED_BYTES_MAX} bytes");
        let Stage::Open(channel, _) = &mut self.stage else { panic!("the connection is open") };
        put(channel, plain, out);
    }

    /// The next stage, and the bytes of its frame: 0 if that has not arrived.
    fn advance(&self, stage: Stage, input: &[u8], out: &mut Vec<u8>) -> Result<(Stage, usize), SealedError> {
        match stage {
            Stage::Asked(handshake, secret, by) => {
                let Some(greeting) = opening(input)? else {
                    return Ok((Stage::Asked(handshake, secret, by), 0));
                };
                let finished = handshake.finish(wire::handshake(greeting));
                // The next connection is asked for by the other one, if there are two.
                let mut channel = finished.inspect_err(|_| _ = secret.turn(by))?;
                put(&mut channel, &self.cluster.to_le_bytes(), out);
                Ok((Stage::Greeted { channel, is_asking: true, by: None }, HELLO_BYTES))
            }
            Stage::Listening(secret) => {
                let hello = match opening(input) {
                    Ok(Some(hello)) => hello,
                    Ok(None) => return Ok((Stage::Listening(secret), 0)),
                    Err(cause) => {
                        if let Cause::Version { .. } = cause {
                            out.extend_from_slice(&SEALED.encode_greeting(Err(cause)));
                        }
                        return Err(cause.into());
                    }
                };
                let answered = noise::answer(&secret, SEALED.prologue, wire::handshake(hello));
                let told = answered.as_ref().map(|(message, ..)| message).map_err(|cause| *cause);
                out.extend_from_slice(&SEALED.encode_greeting(told));
                let (_, channel, by) = answered?;
                Ok((Stage::Greeted { channel, is_asking: false, by: Some((secret, by)) }, HELLO_BYTES))
            }
            Stage::Greeted { mut channel, is_asking, by } => {
                let mut told = Vec::new();
                // What does not decrypt here was not made with the secret, or is a replay.
                let taken = take(&mut channel, input, &mut told)
                    .map_err(|cause| if is_asking { cause } else { Cause::Secret })?;
                if taken == 0 {
                    return Ok((Stage::Greeted { channel, is_asking, by }, 0));
                }
                if !is_asking {
                    put(&mut channel, &self.cluster.to_le_bytes(), out);
                }
                if told != self.cluster.to_le_bytes() {
                    return Err(SealedError::Cluster);
                }
                Ok((Stage::Open(channel, by), taken))
            }
            Stage::Failed(error) => Err(error),
            open @ Stage::Open(..) => Ok((open, 0)),
        }
    }
}

/// A hello or greeting, once it is there.
fn opening(input: &[u8]) -> Result<Option<&[u8; HELLO_BYTES]>, Cause> {
    let Some(opening) = input.first_chunk() else { return Ok(None) };
    SEALED.check_opening(opening)?;
    Ok(input.first_chunk())
}

fn put(channel: &mut Channel, plain: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&((plain.len() + TAG_BYTES) as u16).to_le_bytes());
    channel.seal_onto(plain, out);
}

/// Appends the next message to `plain`, and returns its bytes: 0 if it has not arrived.
fn take(channel: &mut Channel, input: &[u8], plain: &mut Vec<u8>) -> Result<usize, Cause> {
    let Some((length, rest)) = input.split_first_chunk::<LENGTH_BYTES>() else { return Ok(0) };
    let sealed = usize::from(u16::from_le_bytes(*length));
    if !(TAG_BYTES..=TAG_BYTES + SEALED_BYTES_MAX).contains(&sealed) {
        return Err(Cause::Malformed);
    }
    let Some(sealed) = rest.get(..sealed) else { return Ok(0) };
    channel.open_onto(sealed, plain)?;
    Ok(LENGTH_BYTES + sealed.len())
}

/// Has an end take these bytes. The first says which end: one that is asked, or one that asks; or an open one, which takes each
/// length-prefixed part as a message.
#[cfg(fuzzing)]
pub fn fuzz_sealed(bytes: &[u8]) {
    const CLUSTER: u64 = 7;
    let Some((end, bytes)) = bytes.split_first() else { return };
    let secret = Secret::new(b"sixteen bytes it").expect("a valid secret");
    let (mut plain, mut out, mut input) = (Vec::new(), Vec::new(), Vec::new());
    let mut answering = Sealed::answering(secret.clone(), CLUSTER);
    let mut asking = Sealed::asking(&secret, CLUSTER, &mut out);
    let mut taker = match end % 3 {
        0 => answering,
        1 => asking,
        _ => {
            let mut back = Vec::new();
            answering.receive(&out, &mut plain, &mut back).expect("a valid hello");
            out.clear();
            asking.receive(&back, &mut plain, &mut out).expect("a valid greeting");
            let Stage::Greeted { mut channel, .. } = asking.stage else { panic!("it was greeted") };
            input.extend_from_slice(&out);
            let mut rest = bytes;
            while let Some((length, behind)) = rest.split_first_chunk::<2>() {
                let length = usize::from(u16::from_le_bytes(*length)).min(behind.len());
                put(&mut channel, &behind[..length.min(SEALED_BYTES_MAX + 1)], &mut input);
                rest = &behind[length..];
            }
            answering
        }
    };
    let bytes = if input.is_empty() { bytes } else { &input };
    let (mut from, mut to) = (0, 0);
    while to < bytes.len() {
        to = bytes.len().min(to + 61);
        match taker.receive(&bytes[from..to], &mut plain, &mut out) {
            Ok(used) => from += used,
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret(words: &str) -> Secret {
        Secret::new(words.as_bytes()).unwrap()
    }

    /// Both ends, and why each gave up, if it did, after the first frames.
    fn ends(secrets: [&str; 2], clusters: [u64; 2]) -> [(Sealed, Option<SealedError>); 2] {
        let (mut there, mut back) = (Vec::new(), Vec::new());
        let mut asking = Sealed::asking(&secret(secrets[0]), clusters[0], &mut there);
        let mut answering = Sealed::answering(secret(secrets[1]), clusters[1]);
        let (mut gave_up, mut was_refused) = (None, None);
        for _ in 0..3 {
            let mut plain = Vec::new();
            let heard = std::mem::take(&mut there);
            was_refused = was_refused.or(answering.receive(&heard, &mut plain, &mut back).err());
            let heard = std::mem::take(&mut back);
            gave_up = gave_up.or(asking.receive(&heard, &mut plain, &mut there).err());
            assert!(plain.is_empty());
        }
        [(asking, gave_up), (answering, was_refused)]
    }

    const WORDS: &str = "sixteen bytes it";

    #[test]
    fn both_ends_open_with_one_secret_and_one_file() {
        let ends = ends([WORDS; 2], [7; 2]);
        assert!(ends.iter().all(|(end, error)| end.is_open() && error.is_none()));
    }

    #[test]
    fn another_secret_is_told_to_both() {
        let ends = ends([WORDS, "another secret, long"], [7; 2]);
        for (end, error) in ends {
            assert!(!end.is_open());
            assert_eq!(error, Some(SealedError::Refused(Cause::Secret)));
        }
    }

    #[test]
    fn another_cluster_file_is_told_to_both() {
        for (end, error) in ends([WORDS; 2], [7, 8]) {
            assert!(!end.is_open());
            assert_eq!(error, Some(SealedError::Cluster));
        }
    }

    #[test]
    fn another_version_is_told_to_both() {
        let (mut hello, mut greeting) = (Vec::new(), Vec::new());
        let mut asking = Sealed::asking(&secret(WORDS), 7, &mut hello);
        hello[8] = 9;
        let mut answering = Sealed::answering(secret(WORDS), 7);
        let refused = answering.receive(&hello, &mut Vec::new(), &mut greeting);
        assert!(matches!(refused, Err(SealedError::Refused(Cause::Version { found: 9, .. }))), "{refused:?}");
        greeting[8] = 9;
        let refused = asking.receive(&greeting, &mut Vec::new(), &mut hello);
        assert!(matches!(refused, Err(SealedError::Refused(Cause::Version { found: 9, .. }))), "{refused:?}");
    }

    #[test]
    fn a_recording_opens_nothing() {
        let (mut recorded, mut back) = (Vec::new(), Vec::new());
        let mut asking = Sealed::asking(&secret(WORDS), 7, &mut recorded);
        let mut answering = Sealed::answering(secret(WORDS), 7);
        answering.receive(&recorded, &mut Vec::new(), &mut back).unwrap();
        asking.receive(&back, &mut Vec::new(), &mut recorded).unwrap();
        let mut again = Sealed::answering(secret(WORDS), 7);
        let refused = again.receive(&recorded, &mut Vec::new(), &mut Vec::new());
        assert_eq!(refused, Err(SealedError::Refused(Cause::Secret)));
    }

    proptest! {
        #[test]
        fn what_is_said_arrives_in_any_pieces(said in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..8), cut in 1..80_usize) {
            let [(mut asking, _), (mut answering, _)] = ends([WORDS; 2], [7; 2]);
            let mut wire = Vec::new();
            said.iter().for_each(|part| asking.send(part, &mut wire));
            let (mut plain, mut waiting) = (Vec::new(), Vec::new());
            for piece in wire.chunks(cut) {
                waiting.extend_from_slice(piece);
                let used = answering.receive(&waiting, &mut plain, &mut Vec::new()).unwrap();
                waiting.drain(..used);
            }
            prop_assert_eq!(plain, said.concat());
        }

        #[test]
        fn any_changed_bit_ends_it(at: prop::sample::Index, bit in 0..8_u8) {
            let [(mut asking, _), (mut answering, _)] = ends([WORDS; 2], [7; 2]);
            let mut wire = Vec::new();
            asking.send(b"some words", &mut wire);
            let at = at.index(wire.len() - LENGTH_BYTES) + LENGTH_BYTES;
            wire[at] ^= 1 << bit;
            let mut plain = Vec::new();
            prop_assert!(answering.receive(&wire, &mut plain, &mut Vec::new()).is_err());
            prop_assert!(plain.is_empty());
            prop_assert!(!answering.is_open());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), is_asking: bool) {
            let mut out = Vec::new();
            let mut end = if is_asking { Sealed::asking(&secret(WORDS), 7, &mut out) } else { Sealed::answering(secret(WORDS), 7) };
            _ = end.receive(&bytes, &mut Vec::new(), &mut out);
            prop_assert!(!end.is_open());
        }
    }
}
