//! The sender's half of an inbox: how many more messages it takes, as far as is known here.
//!
//! A message is two requests: itself, and a look at the word that the inbox has for this link (`inbox`). A sender that
//! would find it full by what it last saw looks once more before it says so. The look is what tells a message that was
//! delivered from one that came after its inbox had gone, and costs each message a read: over soft-RoCE one of 64 bytes
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
    /// Messages that were staged, and how many of them were taken out, as last seen.
    sent: u64,
    taken: u64,
    gone: bool,
    looked: Looked,
}

/// What the batch under way has seen of the inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looked {
    No,
    /// A look is under way.
    Asked,
    Told,
}

/// What becomes of the next message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// There is a slot for it.
    Send,
    /// Whether there is one must be looked at.
    Look,
    /// That is under way.
    Wait,
    Refuse(OpError),
}

impl Outbox {
    pub(super) fn new(grant: InboxGrant) -> Outbox {
        Outbox { grant, sent: 0, taken: 0, gone: false, looked: Looked::No }
    }

    /// Bytes of the longest message.
    pub(super) fn message_bytes_max(&self) -> usize {
        self.grant.message_bytes_max as usize
    }

    /// Whether the inbox takes such a message at all.
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

    /// A message was staged, whose look comes next.
    pub(super) fn sent(&mut self) {
        self.sent += 1;
    }

    pub(super) fn look(&self) -> Work {
        Work::read(self.grant.address, 8).under(self.grant.rkey)
    }

    /// A look was staged.
    pub(super) fn asked(&mut self) {
        if self.looked == Looked::No {
            self.looked = Looked::Asked;
        }
    }

    /// What a look has seen; whether it is one of the batch under way.
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

    /// What has become of a message whose look was heard of.
    pub(super) fn outcome(&self) -> Result<(), OpError> {
        if self.gone { Err(OpError::NoInbox) } else { Ok(()) }
    }

    /// The batch is over.
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
