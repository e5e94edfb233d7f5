//! The handshake of a session and the encrypted channel that it opens: Noise with the cluster's secret as the
//! pre-shared key. It does no I/O.
//!
//! The handshake has two messages. The first proves that its sender knows the secret, but may be a replay. The second
//! proves the same of the endpoint, and cannot be a replay. The asking side is proven once its first message on the
//! channel decrypts.

use snow::{Builder, HandshakeState, TransportState};

use crate::control::cause::Cause;
use crate::control::secret::{Key, Secret, SecretId};

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";
/// A message of the handshake: an ephemeral key of 32 bytes, and the tag of an empty payload.
pub(super) const HANDSHAKE_BYTES: usize = 32 + TAG_BYTES;
/// Bytes that the channel adds to a message.
pub(super) const TAG_BYTES: usize = 16;

pub(super) type HandshakeMessage = [u8; HANDSHAKE_BYTES];

/// The asking side's handshake, until the endpoint has answered.
pub(super) struct Handshake(HandshakeState);

impl Handshake {
    /// Starts the handshake. Both sides must pass the same `prologue`.
    pub(super) fn begin(key: &Key, prologue: &[u8]) -> (Handshake, HandshakeMessage) {
        let mut state = builder(key, prologue).build_initiator().expect(COMPLETE);
        let message = write(&mut state);
        (Handshake(state), message)
    }

    /// Completes the handshake: the channel, if the endpoint knows the secret.
    pub(super) fn finish(mut self, answer: &HandshakeMessage) -> Result<Channel, Cause> {
        read(&mut self.0, answer)?;
        Ok(Channel::of(self.0))
    }
}

/// The endpoint's handshake, if the asking side knows the secret: its answer, the channel, and by which secret.
pub(super) fn answer(
    secret: &Secret,
    prologue: &[u8],
    message: &HandshakeMessage,
) -> Result<(HandshakeMessage, Channel, SecretId), Cause> {
    let keys = secret.keys();
    let read = keys.iter().find_map(|key| {
        let mut state = builder(key, prologue).build_responder().expect(COMPLETE);
        read(&mut state, message).ok().map(|()| (state, key.id))
    });
    let (mut state, id) = read.ok_or(Cause::Secret)?;
    let answer = write(&mut state);
    Ok((answer, Channel::of(state), id))
}

/// Encrypts one direction of a session and decrypts the other; messages must arrive in order.
pub(super) struct Channel(TransportState);

impl Channel {
    fn of(state: HandshakeState) -> Channel {
        Channel(state.into_transport_mode().expect("both messages of the handshake are done"))
    }

    /// Encrypts the next message. The result is [`TAG_BYTES`] longer than `plain`.
    pub(super) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::new();
        self.seal_onto(plain, &mut sealed);
        sealed
    }

    /// Appends what [`Channel::seal`] returns.
    pub(super) fn seal_onto(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + plain.len() + TAG_BYTES, 0);
        self.0.write_message(plain, &mut out[start..]).expect("messages are short, and fewer than 2^64");
    }

    /// Decrypts the other side's next message.
    pub(super) fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, Cause> {
        let mut plain = Vec::new();
        self.open_onto(sealed, &mut plain)?;
        Ok(plain)
    }

    /// Appends what [`Channel::open`] returns.
    pub(super) fn open_onto(&mut self, sealed: &[u8], plain: &mut Vec<u8>) -> Result<(), Cause> {
        let start = plain.len();
        plain.resize(start + sealed.len().saturating_sub(TAG_BYTES), 0);
        match self.0.read_message(sealed, &mut plain[start..]) {
            Ok(_) => Ok(()),
            Err(_) => {
                plain.truncate(start);
                Err(Cause::Replay)
            }
        }
    }
}

const COMPLETE: &str = "the pattern is known, and has its key and its prologue";

fn builder<'a>(key: &'a Key, prologue: &'a [u8]) -> Builder<'a> {
    let builder = Builder::new(PATTERN.parse().expect(COMPLETE));
    builder.psk(0, &key.psk).and_then(|builder| builder.prologue(prologue)).expect(COMPLETE)
}

fn write(state: &mut HandshakeState) -> HandshakeMessage {
    let mut message = [0; HANDSHAKE_BYTES];
    let written = state.write_message(&[], &mut message).expect("the kernel gives random bytes");
    assert_eq!(written, HANDSHAKE_BYTES);
    message
}

/// Reads a handshake message. One that does not decrypt was made without the secret.
fn read(state: &mut HandshakeState, message: &HandshakeMessage) -> Result<(), Cause> {
    state.read_message(message, &mut []).map(drop).map_err(|_| Cause::Secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROLOGUE: &[u8] = b"here and now";

    fn secret() -> Secret {
        Secret::new(b"sixteen bytes it").unwrap()
    }

    fn channels() -> [Channel; 2] {
        let (handshake, message) = Handshake::begin(&secret().asking(), PROLOGUE);
        let (message, answering, _) = answer(&secret(), PROLOGUE, &message).unwrap();
        [handshake.finish(&message).unwrap(), answering]
    }

    #[test]
    fn a_handshake_is_of_one_secret_prologue_and_session() {
        let other = Secret::new(b"another secret, long").unwrap();
        let (handshake, message) = Handshake::begin(&secret().asking(), PROLOGUE);
        assert!(matches!(answer(&other, PROLOGUE, &message), Err(Cause::Secret)));
        assert!(matches!(answer(&secret(), b"elsewhere", &message), Err(Cause::Secret)));
        assert!(matches!(handshake.finish(&message), Err(Cause::Secret)), "sent back");

        let (_, recorded) = Handshake::begin(&secret().asking(), PROLOGUE);
        let (recorded, ..) = answer(&secret(), PROLOGUE, &recorded).unwrap();
        let (handshake, _) = Handshake::begin(&secret().asking(), PROLOGUE);
        assert!(matches!(handshake.finish(&recorded), Err(Cause::Secret)), "of another session");
    }

    #[test]
    fn a_message_is_of_one_place_direction_and_session() {
        let [mut asking, mut answering] = channels();
        let (first, second) = (asking.seal(b"one"), asking.seal(b"one"));
        assert_ne!(first, second, "the same words again");
        assert_eq!(answering.open(&second), Err(Cause::Replay), "one was left out");
        assert_eq!(asking.open(&first), Err(Cause::Replay), "sent back");
        assert_eq!(channels()[1].open(&first), Err(Cause::Replay), "another session");
        assert_eq!(answering.open(&first[..first.len() - 1]), Err(Cause::Replay), "cut short");
        assert_eq!(answering.open(&first).unwrap(), b"one");
        assert_eq!(answering.open(&first), Err(Cause::Replay), "repeated");
        assert_eq!(answering.open(&second).unwrap(), b"one");
        assert_eq!(asking.open(&answering.seal(b"")).unwrap(), b"");
    }

    #[test]
    fn the_secret_alone_reads_no_recording() {
        let (_, message) = Handshake::begin(&secret().asking(), PROLOGUE);
        let (reply, mut answering, _) = answer(&secret(), PROLOGUE, &message).unwrap();
        let recorded = answering.seal(b"tcp 10.0.0.1:7201 0123456789abcdef");
        // An attacker who later learns the secret and all frames still lacks both ephemeral keys.
        let (_, mut again, _) = answer(&secret(), PROLOGUE, &message).unwrap();
        assert_eq!(again.open(&recorded), Err(Cause::Replay));
        let (handshake, _) = Handshake::begin(&secret().asking(), PROLOGUE);
        assert!(matches!(handshake.finish(&reply), Err(Cause::Secret)));
    }
}
