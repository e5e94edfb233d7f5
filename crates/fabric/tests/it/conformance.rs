//! The properties that every backend guarantees, tested once for each: `cargo test --test it conformance::tcp::`.
//!
//! A new backend is one more `Backend` in support/backends.rs and one more line in `conformance!`.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use sidelong_fabric::{Access, Batch, Error, Initiator, Key, OP_BYTES_MAX, OpError};
use sidelong_layout::{HeaderError, RegionHeader, RegionKind};

use crate::support::backends::Backend;
use crate::support::mapped::*;
use crate::support::messages::*;
use crate::support::node::{LEN, Node, PATIENCE, WORD, spec};

/// Time given to a stalled or dead target.
const IMPATIENCE: Duration = Duration::from_millis(50);

macro_rules! conformance {
    ({ $($property:ident)* } messages { $($message:ident)* }) => {
        conformance!(@ shm Shm $($property)* $($message)*);
        conformance!(@ tcp Tcp $($property)* $($message)*);
        conformance!(@ sim Sim $($property)* $($message)*);
        conformance!(@ verbs Verbs $($property)* $($message)*);
    };
    (@ $module:ident $backend:ident $($property:ident)*) => {
        mod $module {
            use crate::support::backends::{Backend as _, $backend};
            $(
                #[test]
                fn $property() {
                    if let Some(backend) = $backend::new() {
                        super::$property(&backend);
                    }
                }
            )*
        }
    };
}

conformance! {
    {
    reads_what_the_owner_stored
    the_owner_sees_what_was_written
    compare_and_swap_returns_the_word_before
    fetch_and_add_returns_the_word_before_and_wraps
    operations_of_a_link_take_effect_in_order
    others_see_writes_in_order
    long_operations_arrive_whole
    a_read_may_end_within_a_word
    one_run_serves_many_peers
    what_is_out_of_bounds_fails_alone
    what_is_misaligned_fails_alone
    what_is_too_long_fails_alone
    a_read_only_key_grants_reading_only
    who_asks_to_read_only_may_do_nothing_else
    another_layout_is_refused_by_name
    another_kind_or_length_is_refused
    a_name_is_exposed_once
    a_name_leads_nowhere
    additions_of_many_initiators_sum_up
    contended_swaps_succeed_one_at_a_time
    a_batch_is_used_again
    a_closed_link_does_nothing
    an_empty_batch_is_no_wait
    a_death_in_the_middle_is_the_dead_ones_alone
    a_dead_target_stays_dead_until_connected_anew
    a_stale_key_opens_nothing
    a_new_life_has_its_incarnation
    a_dropped_region_is_revoked
    late_answers_belong_to_nobody
    a_stalled_target_delays_no_other_outcome
    memory_of_others_is_read_as_they_change_it
    a_region_is_found_by_its_shape
    bytes_of_an_owned_region_are_read_and_go_with_its_owner
    }
    messages {
    messages_arrive_whole_and_in_order
    a_write_with_immediate_is_told_of_when_it_is_there
    a_full_inbox_says_so_and_takes_more_later
    what_an_inbox_does_not_take_fails_alone
    a_region_without_an_inbox_says_so
    messages_of_many_initiators_all_arrive
    a_dropped_inbox_takes_no_more
    }
}

fn reads_what_the_owner_stored<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::ReadOnly);
    let (mut initiator, link) = node.linked();
    for value in [1, u64::MAX, 0x0123_4567_89ab_cdef] {
        node.region.store(WORD, value, Ordering::Relaxed);
        node.region.store(WORD + 8, !value, Ordering::Release);
        let mut batch = Batch::new();
        let read = batch.read(link, WORD, 16);
        assert_eq!(batch.words(read), Err(OpError::NotRun));
        initiator.run(&mut batch, PATIENCE);
        assert_eq!(batch.words(read), Ok(&[value, !value][..]));
        assert_eq!(batch.value(read), Ok(value));
        assert_eq!(batch.bytes(read).unwrap()[..8], value.to_ne_bytes());
    }
}

fn the_owner_sees_what_was_written<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    let write = batch.write(link, WORD, &[1, 2, 3]);
    initiator.run(&mut batch, PATIENCE);
    assert!(batch.words(write).is_ok());
    assert_eq!([0, 8, 16, 24].map(|at| node.region.load(WORD + at)), [1, 2, 3, 0]);
}

fn compare_and_swap_returns_the_word_before<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    let mut swap = |expected, new| {
        let mut batch = Batch::new();
        let swap = batch.compare_and_swap(link, WORD, expected, new);
        initiator.run(&mut batch, PATIENCE);
        (batch.value(swap).unwrap(), node.region.load(WORD))
    };
    assert_eq!(swap(0, u64::MAX), (0, u64::MAX));
    assert_eq!(swap(0, 5), (u64::MAX, u64::MAX), "it expected something else");
    assert_eq!(swap(u64::MAX, 7), (u64::MAX, 7));
}

fn fetch_and_add_returns_the_word_before_and_wraps<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    let ops = [5, u64::MAX, 1].map(|add| batch.fetch_and_add(link, WORD, add));
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(ops.map(|op| batch.value(op)), [Ok(0), Ok(5), Ok(4)]);
    assert_eq!(node.region.load(WORD), 5);
}

fn operations_of_a_link_take_effect_in_order<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    for round in 0..200 {
        batch.clear();
        batch.write(link, WORD, &[round]);
        let swap = batch.compare_and_swap(link, WORD, round, round + 1);
        let add = batch.fetch_and_add(link, WORD, 10);
        let read = batch.read(link, WORD, 8);
        batch.write(link, WORD, &[3]);
        let last = batch.read(link, WORD, 8);
        initiator.run(&mut batch, PATIENCE);
        assert_eq!(
            [swap, add, read, last].map(|op| batch.value(op)),
            [Ok(round), Ok(round + 1), Ok(round + 11), Ok(3)]
        );
    }
}

/// A writer raises one word and then another. Readers of the words in reverse order never see the second ahead.
fn others_see_writes_in_order<B: Backend>(backend: &B) {
    const FAR: usize = 2048;
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut writer, to) = node.linked();
    let (mut reader, from) = node.linked();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut batch = Batch::new();
            for round in 1..=1000 {
                batch.clear();
                batch.write(to, WORD, &[round]);
                batch.write(to, FAR, &[round]);
                writer.run(&mut batch, PATIENCE);
            }
        });
        let (mut batch, mut seen) = (Batch::new(), 0);
        while seen < 1000 {
            batch.clear();
            let second = batch.read(from, FAR, 8);
            let first = batch.read(from, WORD, 8);
            reader.run(&mut batch, PATIENCE);
            seen = batch.value(second).unwrap();
            assert!(batch.value(first).unwrap() >= seen);
        }
    });
}

fn long_operations_arrive_whole<B: Backend>(backend: &B) {
    let words: Vec<u64> = (0..(3 << 17)).map(|word| word * 0x9e37_79b9).collect();
    let len = WORD + words.len() * 8;
    let node = Node::start_with(backend, "a", Access::Atomic, len, 1);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    batch.write(link, WORD, &words);
    let whole = batch.read(link, WORD, words.len() * 8);
    let again: Vec<_> = (0..100).map(|part| (part, batch.read(link, WORD + part * 8000, 8000))).collect();
    initiator.run(&mut batch, PATIENCE);
    assert!(batch.words(whole).unwrap() == words);
    for (part, read) in again {
        assert!(batch.words(read).unwrap() == &words[part * 1000..][..1000]);
    }
}

fn a_read_may_end_within_a_word<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::ReadOnly);
    let (mut initiator, link) = node.linked();
    node.region.store(WORD, u64::from_ne_bytes(*b"sidelong"), Ordering::Relaxed);
    node.region.store(WORD + 8, u64::from_ne_bytes(*b"padding."), Ordering::Relaxed);
    let mut batch = Batch::new();
    let read = batch.read(link, WORD, 11);
    let next = batch.read(link, WORD, 4);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(batch.bytes(read), Ok(&b"sidelongpad"[..]));
    assert_eq!(batch.words(read).unwrap().len(), 2);
    assert_eq!(batch.bytes(next), Ok(&b"side"[..]));
}

fn one_run_serves_many_peers<B: Backend>(backend: &B) {
    let nodes: Vec<_> =
        (0..8).map(|node| Node::start(backend, &format!("node-{node}"), Access::ReadOnly)).collect();
    let mut initiator = B::initiator();
    let links: Vec<_> = nodes.iter().map(|node| node.link(&mut initiator)).collect();
    let mut batch = Batch::new();
    for round in 0..50 {
        for (number, node) in nodes.iter().enumerate() {
            node.region.store(WORD, round << 8 | number as u64, Ordering::Release);
        }
        batch.clear();
        let reads: Vec<_> = links.iter().map(|link| batch.read(*link, WORD, 8)).collect();
        initiator.run(&mut batch, PATIENCE);
        for (number, read) in reads.into_iter().enumerate() {
            assert_eq!(batch.value(read), Ok(round << 8 | number as u64));
        }
    }
}

fn what_is_out_of_bounds_fails_alone<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    for offset in [LEN, LEN + 8, 1 << 40, usize::MAX - 7] {
        let mut batch = Batch::new();
        let ops = [
            batch.read(link, offset, 16),
            batch.write(link, offset, &[1, 2]),
            batch.fetch_and_add(link, offset, 1),
            batch.compare_and_swap(link, offset, 0, 1),
        ];
        let lens = [16, 16, 8, 8];
        let fine = batch.read(link, WORD, 8);
        initiator.run(&mut batch, PATIENCE);
        for (op, len) in ops.into_iter().zip(lens) {
            assert_eq!(batch.words(op), Err(OpError::OutOfBounds { offset, len, region: LEN }));
        }
        assert_eq!(batch.value(fine), Ok(0));
    }
    let mut batch = Batch::new();
    let across =
        [batch.read(link, LEN - 8, 16), batch.read(link, LEN - 8, 9), batch.write(link, LEN - 8, &[1, 2])];
    let last = batch.read(link, LEN - 8, 8);
    initiator.run(&mut batch, PATIENCE);
    for op in across {
        assert!(matches!(batch.words(op), Err(OpError::OutOfBounds { region: LEN, .. })));
    }
    assert_eq!(batch.value(last), Ok(0), "no part of the write took effect");
}

fn what_is_misaligned_fails_alone<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    let offset = WORD + 4;
    let ops = [
        batch.read(link, offset, 8),
        batch.write(link, offset, &[u64::MAX]),
        batch.fetch_and_add(link, offset, 1),
        batch.compare_and_swap(link, offset, 0, 1),
    ];
    let fine = batch.read(link, WORD, 16);
    initiator.run(&mut batch, PATIENCE);
    for op in ops {
        assert_eq!(batch.words(op), Err(OpError::Misaligned { offset, len: 8 }));
    }
    assert_eq!(batch.words(fine), Ok(&[0, 0][..]));
}

fn what_is_too_long_fails_alone<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    for len in [OP_BYTES_MAX + 1, 1 << 40, usize::MAX] {
        batch.clear();
        let read = batch.read(link, 0, len);
        let fine = batch.read(link, WORD, 8);
        initiator.run(&mut batch, PATIENCE);
        assert_eq!(batch.words(read), Err(OpError::TooLong { len }));
        assert_eq!(batch.value(fine), Ok(0));
    }
    batch.clear();
    let write = batch.write(link, 0, &vec![0; OP_BYTES_MAX / 8 + 1]);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(batch.words(write), Err(OpError::TooLong { len: OP_BYTES_MAX + 8 }));
}

fn a_read_only_key_grants_reading_only<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::ReadOnly);
    node.region.store(WORD, 42, Ordering::Release);
    reads_and_nothing_else::<B>(&node, node.region.key());
}

fn who_asks_to_read_only_may_do_nothing_else<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    let written = batch.write(link, WORD, &[42]);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(batch.words(written).err(), None);
    let mut key = node.region.key().clone();
    key.access = Access::ReadOnly;
    reads_and_nothing_else::<B>(&node, &key);
}

fn reads_and_nothing_else<B: Backend>(node: &Node, key: &Key) {
    let mut initiator = B::initiator();
    let link = initiator.connect(key, PATIENCE).unwrap();
    let mut batch = Batch::new();
    let refused = [
        batch.write(link, WORD, &[1]),
        batch.compare_and_swap(link, WORD, 42, 1),
        batch.fetch_and_add(link, WORD, 1),
    ];
    let read = batch.read(link, WORD, 8);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(refused.map(|op| batch.words(op)), [Err(OpError::ReadOnly); 3]);
    assert_eq!((batch.value(read), node.region.load(WORD)), (Ok(42), 42));
}

fn another_layout_is_refused_by_name<B: Backend>(backend: &B) {
    let host = backend.start("a");
    let foreign = |words: &mut [u64]| words[1] += 1; // the version is the low half
    let region = host.expose(&spec("from-tomorrow", Access::ReadOnly, LEN, 1), foreign).unwrap();
    let error = B::initiator().connect(region.key(), PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Header { source: HeaderError::Version { .. }, .. }), "{error}");
    assert!(error.to_string().contains("from-tomorrow"), "{error}");
}

fn another_kind_or_length_is_refused<B: Backend>(backend: &B) {
    let host = backend.start("a");
    let region = host.expose(&spec("a", Access::ReadOnly, LEN, 1), |_| {}).unwrap();
    let refusal = |key: &Key| match B::initiator().connect(key, PATIENCE) {
        Err(Error::Header { source, .. }) => source,
        other => panic!("{other:?}"),
    };
    let mut key = region.key().clone();
    key.kind = RegionKind::Board;
    assert!(matches!(refusal(&key), HeaderError::Kind { found: 4, .. }));
    key.kind = RegionKind::Raw;
    for len in [64, LEN - 8, LEN + 8] {
        key.len = len;
        assert_eq!(refusal(&key), HeaderError::Length { found: LEN as u64, expected: len as u64 });
    }
}

fn a_name_is_exposed_once<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let again = node.host.expose(&spec("a", Access::Atomic, LEN, 2), |_| {});
    assert!(matches!(again, Err(Error::Taken { .. })), "{again:?}");
    let Node { host, region, .. } = node;
    drop(region);
    host.expose(&spec("a", Access::Atomic, LEN, 2), |_| {}).unwrap();
}

fn a_name_leads_nowhere<B: Backend>(backend: &B) {
    let host = backend.start("a");
    for name in ["", ".", "..", ".hidden", "a/b", "../../etc/passwd", "a\0b", "ä", &"x".repeat(129)] {
        let exposed = host.expose(&spec(name, Access::Atomic, LEN, 1), |_| {});
        assert!(matches!(exposed, Err(Error::Name { .. })), "{name:?}: {exposed:?}");
    }
    host.expose(&spec(&"x".repeat(128), Access::Atomic, LEN, 1), |_| {}).unwrap();
}

fn additions_of_many_initiators_sum_up<B: Backend>(backend: &B) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 100;
    const EACH: u64 = 5;
    let node = Node::start(backend, "a", Access::Atomic);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (mut initiator, link) = node.linked();
            scope.spawn(move || {
                let mut batch = Batch::new();
                for _ in 0..ROUNDS {
                    batch.clear();
                    let ops: Vec<_> = (0..EACH).map(|_| batch.fetch_and_add(link, WORD, 3)).collect();
                    initiator.run(&mut batch, PATIENCE);
                    assert!(ops.iter().all(|op| batch.value(*op).is_ok()));
                }
            });
        }
    });
    assert_eq!(node.region.load(WORD), THREADS * ROUNDS * EACH * 3);
}

fn contended_swaps_succeed_one_at_a_time<B: Backend>(backend: &B) {
    const WINS: usize = 100;
    let node = Node::start(backend, "a", Access::Atomic);
    let swap_until_won = |mut initiator: Initiator, link| {
        let (mut won, mut expected) = (Vec::new(), 0);
        while won.len() < WINS {
            let mut batch = Batch::new();
            let swap = batch.compare_and_swap(link, WORD, expected, expected + 1);
            initiator.run(&mut batch, PATIENCE);
            let before = batch.value(swap).unwrap();
            if before == expected {
                won.push(before);
                expected += 1;
            } else {
                expected = before;
            }
        }
        won
    };
    let won: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (initiator, link) = node.linked();
                scope.spawn(move || swap_until_won(initiator, link))
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let distinct: BTreeSet<_> = won.iter().collect();
    assert_eq!((won.len(), distinct.len()), (4 * WINS, 4 * WINS));
    assert_eq!(node.region.load(WORD), 4 * WINS as u64);
}

fn a_batch_is_used_again<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    let add = batch.fetch_and_add(link, WORD, 1);
    for round in 0..10 {
        initiator.run(&mut batch, PATIENCE); // as it is
        assert_eq!(batch.value(add), Ok(round));
    }
    for round in 0..10 {
        batch.clear();
        assert!(batch.is_empty());
        for _ in 0..round {
            batch.read(link, WORD, 64);
        }
        let read = batch.read(link, WORD, 8);
        assert_eq!((batch.len(), batch.value(read)), (round + 1, Err(OpError::NotRun)));
        initiator.run(&mut batch, PATIENCE);
        assert_eq!(batch.value(read), Ok(10));
    }
}

fn a_closed_link_does_nothing<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, closed) = node.linked();
    initiator.close(closed);
    initiator.close(closed);
    for _ in 0..3 {
        let open = node.link(&mut initiator);
        assert_ne!(open, closed);
        let mut batch = Batch::new();
        let refused = batch.fetch_and_add(closed, WORD, 100);
        let fine = batch.fetch_and_add(open, WORD, 1);
        initiator.run(&mut batch, PATIENCE);
        assert_eq!(batch.value(refused), Err(OpError::Closed));
        assert!(batch.value(fine).is_ok());
        initiator.close(open);
    }
    assert_eq!(node.region.load(WORD), 3);
}

fn an_empty_batch_is_no_wait<B: Backend>(backend: &B) {
    let (mut initiator, _) = Node::start(backend, "a", Access::Atomic).linked();
    let before = Instant::now();
    initiator.run(&mut Batch::new(), PATIENCE);
    assert!(before.elapsed() < PATIENCE);
}

fn a_death_in_the_middle_is_the_dead_ones_alone<B: Backend>(backend: &B) {
    let (dying, living) =
        (Node::start(backend, "dying", Access::Atomic), Node::start(backend, "living", Access::Atomic));
    let mut initiator = B::initiator();
    let links = [&dying, &living].map(|node| node.link(&mut initiator));
    backend.kill_during_the_next_batch("dying", &dying.host);
    let mut batch = Batch::new();
    let ops: Vec<_> = (0..1000)
        .map(|_| links.map(|link| (batch.fetch_and_add(link, WORD, 1), batch.read(link, 0, 64))))
        .collect();
    initiator.run(&mut batch, Duration::from_secs(5));

    let mut deaths = 0;
    for (round, [(add, read), (living_add, living_read)]) in ops.into_iter().enumerate() {
        assert_eq!(batch.value(living_add), Ok(round as u64));
        assert!(batch.words(living_read).is_ok());
        for outcome in [batch.value(add), batch.value(read)] {
            match outcome {
                Ok(_) => assert_eq!(deaths, 0, "an operation behind one that did not arrive"),
                Err(error) => {
                    assert!(is_death(error), "{error}");
                    deaths += 1;
                }
            }
        }
    }
    assert_eq!(deaths == 0, B::MEMORY_OUTLIVES_ITS_PROCESS);
    assert_eq!(living.region.load(WORD), 1000);
}

fn a_dead_target_stays_dead_until_connected_anew<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    node.kill(backend);
    let mut add = |link| {
        let mut batch = Batch::new();
        let add = batch.fetch_and_add(link, WORD, 1);
        initiator.run(&mut batch, IMPATIENCE);
        batch.value(add)
    };
    let while_dead = [add(link), add(link)];
    let node = Node::start_with(backend, "a", Access::Atomic, LEN, 2);
    let when_back = add(link);
    if B::MEMORY_OUTLIVES_ITS_PROCESS {
        assert_eq!((while_dead, when_back), ([Ok(0), Ok(1)], Ok(2)));
    } else {
        for outcome in [while_dead[0], while_dead[1], when_back] {
            assert!(is_death(outcome.unwrap_err()), "{outcome:?}");
        }
        assert_eq!(node.region.load(WORD), 0, "the new life has its own memory");
    }
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    let add = batch.fetch_and_add(link, WORD, 1);
    initiator.run(&mut batch, PATIENCE);
    assert!(batch.value(add).is_ok());
}

fn a_stale_key_opens_nothing<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let stale = node.region.key().clone();
    node.kill(backend);
    let node = Node::start_with(backend, "a", Access::Atomic, LEN, 2);
    let opened = B::initiator().connect(&stale, PATIENCE);
    if B::MEMORY_OUTLIVES_ITS_PROCESS {
        assert!(opened.is_ok());
    } else {
        assert!(matches!(opened, Err(Error::Refused { reason: OpError::KeyRejected, .. })), "{opened:?}");
        assert_ne!(&stale, node.region.key());
    }
    node.linked();
}

fn a_new_life_has_its_incarnation<B: Backend>(backend: &B) {
    for life in 1..=3 {
        let host = backend.start("a");
        let mut inits = 0;
        let init = |words: &mut [u64]| {
            words[WORD / 8] = 100 * life;
            inits += 1;
        };
        let region = host.expose(&spec("a", Access::Atomic, LEN, life), init).unwrap();
        let survived = B::MEMORY_OUTLIVES_ITS_PROCESS && life > 1;
        assert_eq!(inits, if survived { 0 } else { 1 });
        let node = Node { name: "a".to_owned(), host, region, initiator: B::initiator };
        let (mut initiator, link) = node.linked();
        let mut batch = Batch::new();
        let header = batch.read(link, 0, 64);
        let word = batch.fetch_and_add(link, WORD, 1);
        initiator.run(&mut batch, PATIENCE);
        let header = batch.words(header).unwrap().try_into().unwrap();
        assert_eq!(RegionHeader::checked(header, 0, RegionKind::Raw, LEN).unwrap().incarnation, life);
        assert_eq!(batch.value(word), Ok(if survived { 100 + life - 1 } else { 100 * life }));
        node.kill(backend);
    }
}

fn bytes_of_an_owned_region_are_read_and_go_with_its_owner<B: Backend>(backend: &B) {
    let host = backend.start("a");
    let mut region = host.expose_owned(&spec("a", Access::ReadOnly, LEN, 1)).unwrap();
    region.write(WORD + 3, b"bytes");
    region.store(WORD + 16, 7, Ordering::Release);
    let mut initiator = B::initiator();
    let read = |initiator: &mut Initiator, link| {
        let mut batch = Batch::new();
        let read = batch.read(link, WORD, 24);
        initiator.run(&mut batch, PATIENCE);
        batch.bytes(read).map(<[u8]>::to_vec)
    };
    let old = initiator.connect(region.key().unwrap(), PATIENCE).unwrap();
    assert_eq!(read(&mut initiator, old).unwrap(), b"\0\0\0bytes\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0");

    drop(region);
    let region = host.expose_owned(&spec("a", Access::ReadOnly, LEN, 2)).unwrap();
    read(&mut initiator, old).expect_err("the first life's bytes are gone");
    let new = initiator.connect(region.key().unwrap(), PATIENCE).unwrap();
    assert_eq!(read(&mut initiator, new).unwrap(), [0; 24]);
}

fn a_dropped_region_is_revoked<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    let Node { host, region, .. } = node;
    let another = host.expose(&spec("another", Access::Atomic, LEN, 1), |_| {}).unwrap();
    let clone = region.clone();
    let mut add = || {
        let mut batch = Batch::new();
        let add = batch.fetch_and_add(link, WORD, 1);
        let write = batch.write(link, WORD + 64, &[7; 100]);
        initiator.run(&mut batch, PATIENCE);
        [batch.value(add).map(|_| ()), batch.words(write).map(|_| ())]
    };
    drop(region);
    assert_eq!(add(), [Ok(()); 2], "a clone is still there");
    let key = clone.key().clone();
    drop(clone);
    if !B::MEMORY_OUTLIVES_ITS_PROCESS {
        assert_eq!(add(), [Err(OpError::KeyRejected); 2]);
        let refused = B::initiator().connect(&key, PATIENCE).unwrap_err();
        assert!(matches!(refused, Error::Refused { reason: OpError::KeyRejected, .. }), "{refused}");
    }
    B::initiator().connect(another.key(), PATIENCE).unwrap();
}

fn late_answers_belong_to_nobody<B: Backend>(backend: &B) {
    if !backend.can_stall() {
        return;
    }
    const ROUNDS: u64 = 5;
    let node = Node::start(backend, "a", Access::Atomic);
    let (mut initiator, link) = node.linked();
    let mut batch = Batch::new();
    for round in 0..ROUNDS {
        backend.stall("a");
        batch.clear();
        let late = [
            Some(batch.read(link, 0, LEN - 8)),
            Some(batch.fetch_and_add(link, WORD, 1)),
            (round % 2 == 0).then(|| batch.write(link, WORD + 8, &[round])),
        ];
        initiator.run(&mut batch, IMPATIENCE);
        let expected = |outcome: Result<_, _>| match B::NEVER_LATE {
            true => outcome.is_ok(),
            false => outcome == Err(OpError::Timeout),
        };
        assert!(late.into_iter().flatten().all(|op| expected(batch.words(op))));

        backend.resume("a");
        for _ in 0..2 {
            batch.clear();
            let write = batch.write(link, WORD + 16, &[round + 1000]);
            let read = batch.read(link, WORD + 16, 8);
            let word = batch.read(link, WORD, 8);
            initiator.run(&mut batch, PATIENCE);
            assert!(batch.words(write).is_ok());
            assert_eq!(batch.value(read), Ok(round + 1000));
            // The late operations took effect earlier, in order.
            assert_eq!(batch.value(word), Ok(round + 1));
        }
    }
}

fn a_stalled_target_delays_no_other_outcome<B: Backend>(backend: &B) {
    if B::NEVER_LATE || !backend.can_stall() {
        return; // no target can stall an initiator's own CPU
    }
    let (stalled, lively) =
        (Node::start(backend, "stalled", Access::Atomic), Node::start(backend, "lively", Access::Atomic));
    let mut initiator = B::initiator();
    let links = [&stalled, &lively].map(|node| node.link(&mut initiator));
    let mut batch = Batch::new();
    let ops = links.map(|link| batch.fetch_and_add(link, WORD, 1));
    backend.stall("stalled");
    initiator.run(&mut batch, IMPATIENCE);
    assert_eq!(batch.value(ops[0]), Err(OpError::Timeout));
    // The simulated network stalls as a whole.
    assert!(matches!(batch.value(ops[1]), Ok(0) | Err(OpError::Timeout)));
}

/// Errors that an operation to a dead target may end with.
fn is_death(error: OpError) -> bool {
    matches!(error, OpError::Timeout | OpError::PeerGone | OpError::KeyRejected)
}
