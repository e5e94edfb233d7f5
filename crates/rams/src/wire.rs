//! What nodes say to each other, as bytes: little-endian words of 4 bytes.
//!
//! A message goes in parts, each with its sender and the bytes of the whole: `kind`, what it has of its own, and an object's
//! bytes behind the answer to who wants them.

use std::sync::Arc;

use crate::peer::NodeId;
use crate::protocol::{Change, Message};
use sidelong_policy::cache::store::Place;

/// Bytes before those of a part.
const PART_HEADER_BYTES: usize = 8;
/// The slot of a place that there is not.
const NOWHERE: u32 = u32::MAX;

/// A message and the object behind it, of which parts are made as they are sent: what waits shares the object's bytes.
pub(super) struct Outgoing {
    header: [u8; PART_HEADER_BYTES],
    message: Vec<u8>,
    object: Arc<[u8]>,
    /// Bytes of a part, without its header.
    room: usize,
    sent: usize,
}

impl Outgoing {
    /// Parts have `bytes_max` bytes each at most.
    pub(super) fn new(from: NodeId, message: &Message, object: Arc<[u8]>, bytes_max: usize) -> Outgoing {
        let message = encode(message);
        let mut header = [0; PART_HEADER_BYTES];
        header[..4].copy_from_slice(&from.to_le_bytes());
        header[4..].copy_from_slice(&((message.len() + object.len()) as u32).to_le_bytes());
        Outgoing { header, message, object, room: bytes_max - PART_HEADER_BYTES, sent: 0 }
    }

    /// Bytes of the whole.
    pub(super) fn bytes(&self) -> usize {
        self.message.len() + self.object.len()
    }

    /// The part that is to be sent next.
    pub(super) fn part(&self) -> Vec<u8> {
        let (begin, end) = (self.sent, self.end());
        let object = self.message.len();
        let of_message = &self.message[begin.min(object)..end.min(object)];
        let of_object = &self.object[begin.saturating_sub(object)..end.saturating_sub(object)];
        [&self.header, of_message, of_object].concat()
    }

    /// That part is sent. Returns whether it was the last.
    pub(super) fn advance(&mut self) -> bool {
        self.sent = self.end();
        self.sent == self.bytes()
    }

    fn end(&self) -> usize {
        (self.sent + self.room).min(self.bytes())
    }

    /// All parts.
    #[cfg(test)]
    pub(super) fn parts(mut self) -> Vec<Vec<u8>> {
        let mut parts = vec![self.part()];
        while !self.advance() {
            parts.push(self.part());
        }
        parts
    }
}

/// A part's sender, the bytes of its whole message, and its own.
pub(super) fn part(bytes: &[u8]) -> Option<(NodeId, usize, &[u8])> {
    let mut reader = Reader(bytes);
    Some((reader.number()?, reader.number()? as usize, reader.0))
}

fn encode(message: &Message) -> Vec<u8> {
    let mut out = Writer(Vec::new());
    match message {
        Message::Ask { key, tag, bytes_wanted, reads, failed, marks } => {
            out.numbers([1, *tag, u32::from(*bytes_wanted), *reads, u32::from(*failed), marks.len() as u32]);
            out.long(*key);
            marks.iter().for_each(|mark| out.place(Some(*mark)));
        }
        Message::Offer { key, tag, bytes, place, changes } => {
            out.numbers([2, *tag, *bytes, changes.len() as u32]);
            out.long(*key);
            out.place(*place);
            changes.iter().for_each(|change| out.change(change));
        }
        Message::Update { changes, until } => {
            out.numbers([3, changes.len() as u32]);
            out.long(*until);
            changes.iter().for_each(|change| out.change(change));
        }
        Message::Refresh { since } => {
            out.numbers([4]);
            out.long(*since);
        }
        Message::Tally { reads, failures } => out.numbers([5, *reads, *failures]),
        Message::Propagate => out.numbers([6]),
    }
    out.0
}

/// The message that bytes begin with, and the rest.
pub(super) fn message(bytes: &[u8]) -> Option<(Message, &[u8])> {
    let mut from = Reader(bytes);
    let message = match from.number()? {
        1 => {
            let (tag, bytes_wanted) = (from.number()?, from.number()? != 0);
            let (reads, failed, marks) = (from.number()?, from.number()? != 0, from.number()?);
            let key = from.long()?;
            let marks = (0..marks).map(|_| from.place()?).collect::<Option<_>>()?;
            Message::Ask { key, tag, bytes_wanted, reads, failed, marks }
        }
        2 => {
            let (tag, bytes, changes) = (from.number()?, from.number()?, from.number()?);
            let (key, place) = (from.long()?, from.place()?);
            let changes = (0..changes).map(|_| from.change()).collect::<Option<_>>()?;
            Message::Offer { key, tag, bytes, place, changes }
        }
        3 => {
            let (changes, until) = (from.number()?, from.long()?);
            let changes = (0..changes).map(|_| from.change()).collect::<Option<_>>()?;
            Message::Update { changes, until }
        }
        4 => Message::Refresh { since: from.long()? },
        5 => Message::Tally { reads: from.number()?, failures: from.number()? },
        6 => Message::Propagate,
        _ => return None,
    };
    Some((message, from.0))
}

struct Writer(Vec<u8>);

impl Writer {
    fn numbers<const N: usize>(&mut self, numbers: [u32; N]) {
        numbers.iter().for_each(|number| self.0.extend_from_slice(&number.to_le_bytes()));
    }

    fn long(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn place(&mut self, place: Option<Place>) {
        let Place { slot, generation } = place.unwrap_or(Place { slot: NOWHERE, generation: 0 });
        self.numbers([slot, generation]);
    }

    fn change(&mut self, change: &Change) {
        self.long(change.key);
        self.place(change.place);
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn long(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// `None` if there are no bytes for one, else a place or none.
    #[expect(clippy::option_option, reason = "there may be no place, and there may be no bytes")]
    fn place(&mut self) -> Option<Option<Place>> {
        let place = Place { slot: self.number()?, generation: self.number()? };
        Some((place.slot != NOWHERE).then_some(place))
    }

    fn change(&mut self) -> Option<Change> {
        Some(Change { key: self.long()?, place: self.place()? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn messages() -> impl Strategy<Value = Message> {
        let place = || (0..NOWHERE, any::<u32>()).prop_map(|(slot, generation)| Place { slot, generation });
        let change = (any::<u64>(), prop::option::of(place())).prop_map(|(key, place)| Change { key, place });
        let changes = move || prop::collection::vec(change.clone(), 0..5);
        let marks = prop::collection::vec(place(), 0..5);
        prop_oneof![
            (any::<(u64, u32, bool, u32, bool)>(), marks).prop_map(
                |((key, tag, bytes_wanted, reads, failed), marks)| {
                    Message::Ask { key, tag, bytes_wanted, reads, failed, marks }
                }
            ),
            (any::<(u64, u32, u32)>(), prop::option::of(place()), changes()).prop_map(
                |((key, tag, bytes), place, changes)| Message::Offer { key, tag, bytes, place, changes }
            ),
            (changes(), any::<u64>()).prop_map(|(changes, until)| Message::Update { changes, until }),
            any::<u64>().prop_map(|since| Message::Refresh { since }),
            any::<(u32, u32)>().prop_map(|(reads, failures)| Message::Tally { reads, failures }),
            Just(Message::Propagate),
        ]
    }

    proptest! {
        #[test]
        fn a_message_arrives_as_it_was_sent(
            sent in messages(),
            object in prop::collection::vec(any::<u8>(), 0..300),
            bytes_max in 9usize..200,
        ) {
            let mut whole = Vec::new();
            let parts = Outgoing::new(7, &sent, object.as_slice().into(), bytes_max).parts();
            for (number, bytes) in parts.iter().enumerate() {
                prop_assert!(bytes.len() <= bytes_max);
                let (from, length, part) = part(bytes).unwrap();
                whole.extend_from_slice(part);
                prop_assert_eq!((from, whole.len() == length), (7, number + 1 == parts.len()));
            }
            prop_assert_eq!(message(&whole), Some((sent, &object[..])));
        }

        #[test]
        fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some((message, rest)) = message(&bytes) {
                prop_assert!(encode(&message).len() + rest.len() == bytes.len());
            }
        }
    }
}
