//! The properties of inboxes that every backend guarantees.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use sidelong_fabric::{Access, Batch, Inbox, InboxSpec, Initiator, LinkId, OpError};

use crate::support::backends::Backend;
use crate::support::node::{LEN, Node, PATIENCE, WORD};

const INBOX: InboxSpec = InboxSpec { slots: 8, message_bytes_max: 1000 };

/// All messages that are available.
fn received(inbox: &mut Inbox) -> Vec<(Vec<u8>, Option<u32>)> {
    let mut all = Vec::new();
    while let Some(message) = inbox.try_receive() {
        all.push((message.bytes.to_vec(), message.immediate));
    }
    all
}

fn send(initiator: &mut Initiator, link: LinkId, message: &[u8]) -> Result<(), OpError> {
    let mut batch = Batch::new();
    let op = batch.send(link, message);
    initiator.run(&mut batch, PATIENCE);
    batch.words(op).map(|_| ())
}

pub(crate) fn messages_arrive_whole_and_in_order<B: Backend>(backend: &B) {
    let (node, mut inbox) = Node::receiving(backend, "a", &INBOX);
    let (mut initiator, link) = node.linked();
    assert!(inbox.try_receive().is_none());
    assert!(inbox.receive(Duration::from_millis(1)).is_none());
    let messages = [0, 1, 7, 8, 9, 64, 999, 1000]
        .map(|len| (0..len).map(|at: usize| (at * 7 + len) as u8).collect::<Vec<_>>());
    for lap in 0..3 {
        let mut batch = Batch::new();
        let ops: Vec<_> = messages.iter().map(|message| batch.send(link, message)).collect();
        initiator.run(&mut batch, PATIENCE);
        assert!(ops.into_iter().all(|op| batch.words(op).is_ok()));
        for message in &messages {
            let received = inbox.receive(PATIENCE).unwrap();
            assert_eq!((received.bytes, received.immediate), (&message[..], None), "lap {lap}");
        }
        assert!(inbox.try_receive().is_none());
    }
}

pub(crate) fn a_write_with_immediate_is_told_of_when_it_is_there<B: Backend>(backend: &B) {
    let (node, mut inbox) = Node::receiving(backend, "a", &INBOX);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    batch.send(link, b"first");
    batch.write_with_immediate(link, WORD, &[5, 6], u32::MAX);
    batch.write_with_immediate(link, LEN, &[], 0);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(inbox.receive(PATIENCE).unwrap().bytes, b"first");
    let told = inbox.receive(PATIENCE).unwrap();
    assert_eq!((told.bytes, told.immediate), (&[][..], Some(u32::MAX)));
    assert_eq!([0, 8, 16].map(|at| node.region.load(WORD + at)), [5, 6, 0]);
    assert_eq!(inbox.receive(PATIENCE).unwrap().immediate, Some(0), "a write of nothing tells too");
}

pub(crate) fn a_full_inbox_says_so_and_takes_more_later<B: Backend>(backend: &B) {
    let (node, mut inbox) = Node::receiving(backend, "a", &INBOX);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    let ops: Vec<_> = (0..=INBOX.slots as u8).map(|n| batch.send(link, &[n])).collect();
    let told = batch.write_with_immediate(link, WORD, &[1], 1);
    let read = batch.read(link, 0, 64);
    initiator.run(&mut batch, PATIENCE);
    let (last, fit) = ops.split_last().unwrap();
    assert!(fit.iter().all(|op| batch.words(*op).is_ok()));
    assert_eq!(batch.words(*last), Err(OpError::InboxFull));
    assert_eq!(batch.words(told), Err(OpError::InboxFull));
    assert!(batch.words(read).is_ok(), "the others are not touched by it");
    assert_eq!(inbox.receive(PATIENCE).unwrap().bytes, [0]);
    assert_eq!(send(&mut initiator, link, b"more"), Ok(()));
    assert_eq!(send(&mut initiator, link, b"too much"), Err(OpError::InboxFull));
    let rest = received(&mut inbox);
    assert_eq!(rest.len(), INBOX.slots);
    assert_eq!(rest.last().unwrap().0, b"more");
}

pub(crate) fn what_an_inbox_does_not_take_fails_alone<B: Backend>(backend: &B) {
    let (node, mut inbox) = Node::receiving(backend, "a", &INBOX);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    let wrong = [
        batch.send(link, &[0; 1001]),
        batch.write_with_immediate(link, LEN - 8, &[1, 2], 1),
        batch.write_with_immediate(link, WORD + 4, &[1], 2),
    ];
    let right = batch.send(link, b"right");
    initiator.run(&mut batch, PATIENCE);
    let outcomes = wrong.map(|op| batch.words(op).map(|_| ()));
    assert_eq!(outcomes[0], Err(OpError::MessageTooLong { len: 1001 }));
    assert_eq!(outcomes[1], Err(OpError::OutOfBounds { offset: LEN - 8, len: 16, region: LEN }));
    assert_eq!(outcomes[2], Err(OpError::Misaligned { offset: WORD + 4, len: 8 }));
    assert!(batch.words(right).is_ok());
    assert_eq!(received(&mut inbox), [(b"right".to_vec(), None)]);
    assert_eq!(node.region.load(LEN - 8), 0);
}

pub(crate) fn a_region_without_an_inbox_says_so<B: Backend>(backend: &B) {
    for (name, access, expected) in
        [("a", Access::Atomic, OpError::NoInbox), ("b", Access::ReadOnly, OpError::ReadOnly)]
    {
        let node = Node::start(backend, name, access);
        let (mut initiator, link) = node.linked();
        let mut batch = Batch::new();
        let message = batch.send(link, b"to nobody");
        let write = batch.write_with_immediate(link, WORD, &[1], 1);
        let read = batch.read(link, WORD, 8);
        initiator.run(&mut batch, PATIENCE);
        assert_eq!(batch.words(message), Err(expected));
        assert_eq!(batch.words(write), Err(expected));
        assert_eq!(batch.value(read), Ok(0), "nothing was written");
    }
}

pub(crate) fn messages_of_many_initiators_all_arrive<B: Backend>(backend: &B) {
    const SENDERS: u64 = 4;
    const EACH: u64 = 500;
    let (node, mut inbox) = Node::receiving(backend, "a", &INBOX);
    let key = node.region.key().clone();
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let key = &key;
            scope.spawn(move || {
                let mut initiator = B::initiator();
                let link = initiator.connect(key, PATIENCE).unwrap();
                for n in 0..EACH {
                    let message = [sender.to_ne_bytes(), n.to_ne_bytes()].concat();
                    let begun = Instant::now();
                    while let Err(error) = send(&mut initiator, link, &message) {
                        assert_eq!(error, OpError::InboxFull);
                        assert!(begun.elapsed() < PATIENCE, "the inbox stays full");
                        thread::yield_now();
                    }
                }
            });
        }
        let mut next = BTreeMap::new();
        for _ in 0..SENDERS * EACH {
            let begun = Instant::now();
            let message = loop {
                match inbox.receive(Duration::from_millis(1)) {
                    Some(message) => break message.bytes.to_vec(),
                    None => assert!(begun.elapsed() < PATIENCE, "a message does not come"),
                }
            };
            let word = |at| u64::from_ne_bytes(message[at..at + 8].try_into().unwrap());
            let expected = next.entry(word(0)).or_insert(0);
            assert_eq!(word(8), *expected, "of one sender they come in order");
            *expected += 1;
        }
        assert!(next.len() as u64 == SENDERS && next.values().all(|count| *count == EACH));
    });
    assert!(inbox.try_receive().is_none());
}

pub(crate) fn a_dropped_inbox_takes_no_more<B: Backend>(backend: &B) {
    let (node, inbox) = Node::receiving(backend, "a", &INBOX);
    let (mut initiator, link) = node.linked();
    assert_eq!(send(&mut initiator, link, b"1"), Ok(()));
    drop(inbox);
    if B::MEMORY_OUTLIVES_ITS_PROCESS {
        assert_eq!(send(&mut initiator, link, b"2"), Ok(()), "for its owner's next life");
        let spec = crate::support::node::spec("a", Access::Atomic, LEN, 2);
        drop(node.region);
        let (_region, mut inbox) = node.host.expose_with_inbox(&spec, &INBOX, |_| {}).unwrap();
        let messages: Vec<_> = received(&mut inbox).into_iter().map(|(bytes, _)| bytes).collect();
        assert_eq!(messages, [b"1", b"2"]);
    } else {
        assert_eq!(send(&mut initiator, link, b"2"), Err(OpError::NoInbox));
    }
}
