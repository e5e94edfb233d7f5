//! Two frames of fixed length, in little-endian words: a request, and an answer with a node's [`Snapshot`].
//!
//! Each begins with a magic number and the layout's hash, so that neither side accepts other data, or a record of
//! another build.

use sidelong_layout::{Hot, RegionKind};

use crate::snapshot::Snapshot;

const ASK: u64 = u64::from_le_bytes(*b"SL-LOAD?");
const ANSWER: u64 = u64::from_le_bytes(*b"SL-LOAD!");
/// An answer has parts of a load region.
const LAYOUT: u64 = RegionKind::Load.layout_hash();
const REQUEST_WORDS: usize = 3;
const RESPONSE_WORDS: usize = REQUEST_WORDS + 1 + Hot::WORDS + 1;

/// Length of a request.
pub(super) const REQUEST_BYTES: usize = 8 * REQUEST_WORDS;
/// Length of an answer.
pub(super) const RESPONSE_BYTES: usize = 8 * RESPONSE_WORDS;

/// Why a frame is refused, and its connection closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("it does not speak Sidelong's load protocol (it says {0:#018x})")]
    Magic(u64),
    #[error(
        "its records are of layout {0:#018x}, this build reads {LAYOUT:#018x}: run one build on all processes"
    )]
    Layout(u64),
}

/// A request for a record. The answer has the same number.
pub(super) fn request(number: u64) -> [u8; REQUEST_BYTES] {
    bytes([ASK, LAYOUT, number])
}

/// The number of a request.
pub(super) fn parse_request(frame: &[u8; REQUEST_BYTES]) -> Result<u64, Refused> {
    let [magic, layout, number] = words(frame);
    check(ASK, magic, layout).map(|()| number)
}

/// An answer.
pub(super) fn response(number: u64, snapshot: &Snapshot) -> [u8; RESPONSE_BYTES] {
    let mut words = [0; RESPONSE_WORDS];
    words[..4].copy_from_slice(&[ANSWER, LAYOUT, number, snapshot.incarnation]);
    words[4..4 + Hot::WORDS].copy_from_slice(&snapshot.hot);
    words[RESPONSE_WORDS - 1] = snapshot.ack;
    bytes(words)
}

/// The number of the request, and the answer to it.
pub(super) fn parse_response(frame: &[u8; RESPONSE_BYTES]) -> Result<(u64, Snapshot), Refused> {
    let words: [u64; RESPONSE_WORDS] = words(frame);
    let [magic, layout, number, incarnation, ..] = words;
    check(ANSWER, magic, layout)?;
    let hot = std::array::from_fn(|index| words[4 + index]);
    Ok((number, Snapshot { incarnation, hot, ack: words[RESPONSE_WORDS - 1] }))
}

fn check(expected: u64, magic: u64, layout: u64) -> Result<(), Refused> {
    if magic != expected {
        Err(Refused::Magic(magic))
    } else if layout != LAYOUT {
        Err(Refused::Layout(layout))
    } else {
        Ok(())
    }
}

fn bytes<const WORDS: usize, const BYTES: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    const { assert!(BYTES == 8 * WORDS) };
    let mut bytes = [0; BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn words<const WORDS: usize, const BYTES: usize>(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    const { assert!(BYTES == 8 * WORDS) };
    std::array::from_fn(|index| {
        u64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().expect("eight bytes"))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_round_trip(number: u64, incarnation: u64, hot: [u64; Hot::WORDS], ack: u64) {
            let snapshot = Snapshot { incarnation, hot, ack };
            prop_assert_eq!(parse_request(&request(number)), Ok(number));
            prop_assert_eq!(parse_response(&response(number, &snapshot)), Ok((number, snapshot)));
        }

        #[test]
        fn noise_is_refused(noise in prop::array::uniform32(any::<u8>())) {
            let frame = noise[..REQUEST_BYTES].try_into().expect("a frame");
            prop_assert!(matches!(parse_request(frame), Err(Refused::Magic(_))));
        }
    }

    #[test]
    fn another_layout_is_refused_by_name() {
        let mut frame = request(1);
        frame[8] ^= 1;
        assert_eq!(parse_request(&frame), Err(Refused::Layout(LAYOUT ^ 1)));
        let mut frame = response(1, &Snapshot { incarnation: 1, hot: [0; 8], ack: 0 });
        frame[8] ^= 1;
        assert_eq!(parse_response(&frame), Err(Refused::Layout(LAYOUT ^ 1)));
        assert!(Refused::Layout(5).to_string().contains("0x0000000000000005"));
    }
}
