//! The sender's half of an inbox: how many more messages it accepts, as far as is known here.
//!
//! A message takes two requests: the message, and a read of the word that the inbox has for this link (`inbox`). If the
//! inbox seems full, the sender reads the word once more before it reports that. The read tells a delivered message
//! from one that arrived after the inbox had gone. It costs one read a message: over soft-RoCE a message of 64 bytes
//! takes 105 us with it and 50 us without.
//!
//! It asks no clock and posts nothing.

use super::inbox::GONE;
use super::setup::InboxGrant;
use super::sys::Work;
use crate::OpError;
use crate::batch::{Kind, Request};

#[derive(Debug)]
pub(super) struct Outbox {
    grant: InboxGrant,
    /// Messages staged, and how many of them were taken out as last read.
    sent: u64,
    taken: u64,
    gone: bool,
    looked: Looked,
}

/// What the current batch knows of the inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looked {
    No,
    /// A read of the word is in flight.
    Asked,
    Told,
}

/// What to do with the next message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Send it: a slot is free.
    Send,
    /// Read the word to see whether a slot is free.
    Look,
    /// Wait for that read.
    Wait,
    Refuse(OpError),
}

impl Outbox {
    pub(super) fn new(grant: InboxGrant) -> Outbox {
        Outbox { grant, sent: 0, taken: 0, gone: false, looked: Looked::No }
    }

    /// Longest message, in bytes.
    pub(super) fn message_bytes_max(&self) -> usize {
        self.grant.message_bytes_max as usize
    }

    /// Whether the inbox can accept such a message at all.
    pub(super) fn check(&self, request: &Request) -> Result<(), OpError> {
        let len = request.len;
        self.outcome()?;
        let too_long = request.kind == Kind::Send && len > self.message_bytes_max();
        if too_long { Err(OpError::MessageTooLong { len }) } else { Ok(()) }
    }

    pub(super) fn next(&self) -> Next {
        match self.looked {
            _ if self.gone => Next::Refuse(OpError::NoInbox),
            _ if self.sent - self.taken < u64::from(self.grant.slots) => Next::Send,
            Looked::No => Next::Look,
            Looked::Asked => Next::Wait,
            Looked::Told => Next::Refuse(OpError::InboxFull),
        }
    }

    /// A message was staged; the read of the word follows.
    pub(super) fn sent(&mut self) {
        self.sent += 1;
    }

    pub(super) fn look(&self) -> Work {
        Work::read(self.grant.address, 8).under(self.grant.rkey)
    }

    /// A read of the word was staged.
    pub(super) fn asked(&mut self) {
        if self.looked == Looked::No {
            self.looked = Looked::Asked;
        }
    }

    /// Takes the word that was read; returns whether the read belongs to the current batch.
    pub(super) fn hear(&mut self, word: u64, of_this_batch: bool) {
        if word == GONE {
            self.gone = true;
        } else {
            self.taken = self.taken.max(word.min(self.sent));
        }
        if of_this_batch {
            self.looked = Looked::Told;
        }
    }

    /// The outcome of a message, once the read that follows it is done.
    pub(super) fn outcome(&self) -> Result<(), OpError> {
        if self.gone { Err(OpError::NoInbox) } else { Ok(()) }
    }

    /// Ends the batch.
    pub(super) fn rest(&mut self) {
        self.looked = Looked::No;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_two() -> Outbox {
        Outbox::new(InboxGrant { address: 0, rkey: 0, slots: 2, message_bytes_max: 8 })
    }

    fn send(outbox: &mut Outbox) {
        assert_eq!(outbox.next(), Next::Send);
        outbox.sent();
        outbox.asked();
    }

    #[test]
    fn it_is_full_only_where_this_batch_has_seen_it_so() {
        let mut outbox = of_two();
        send(&mut outbox);
        send(&mut outbox);
        assert_eq!(outbox.next(), Next::Wait, "the looks of what was sent are under way");
        outbox.hear(0, true);
        assert_eq!(outbox.next(), Next::Refuse(OpError::InboxFull));
        outbox.rest();
        assert_eq!(outbox.next(), Next::Look);
        outbox.asked();
        assert_eq!(outbox.next(), Next::Wait);
        outbox.hear(0, false);
        assert_eq!(outbox.next(), Next::Wait, "that was a late look");
        outbox.hear(1, true);
        send(&mut outbox);
        assert_eq!(outbox.next(), Next::Refuse(OpError::InboxFull));
    }

    #[test]
    fn a_word_gives_no_more_room_than_was_taken() {
        let mut outbox = of_two();
        send(&mut outbox);
        outbox.hear(u64::MAX - 1, true);
        outbox.hear(0, true);
        send(&mut outbox);
        send(&mut outbox);
        assert_eq!(outbox.next(), Next::Refuse(OpError::InboxFull));
        outbox.hear(GONE, true);
        assert_eq!(
            (outbox.next(), outbox.outcome()),
            (Next::Refuse(OpError::NoInbox), Err(OpError::NoInbox))
        );
    }
}
