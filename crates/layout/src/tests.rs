use proptest::prelude::*;

use super::*;

fn hot(sequence: u32) -> Hot {
    Hot {
        sequence,
        generation: 7,
        valid: valid::ALL,
        run_queue: 3,
        time_ns: 42,
        served: 99,
        ..Hot::default()
    }
}

#[test]
fn a_sealed_record_reads_back() {
    assert_eq!(Hot::validated(&hot(2).sealed().words()), Ok(hot(2).sealed()));
    let detail = Detail { sequence: 8, cpus: 2, reserved: [0, 0, 0, 1], ..Detail::default() }.sealed();
    assert_eq!(Detail::validated(&detail.words()), Ok(detail));
}

#[test]
fn what_cannot_be_used_says_why() {
    assert_eq!(Hot::validated(&[0; 8]), Err(Rejected::Never));
    assert_eq!(Hot::validated(&hot(3).sealed().words()), Err(Rejected::Writing));
}

#[test]
fn another_layout_is_refused_by_name() {
    let header = RegionHeader::new(RegionKind::Load, Instance { cluster: 7, incarnation: 1 }, LOAD_BYTES);
    let check =
        |header: RegionHeader| RegionHeader::checked(&header.words(), 7, RegionKind::Load, LOAD_BYTES);
    assert_eq!(check(header), Ok(header));
    assert_eq!(check(RegionHeader { magic: 1, ..header }), Err(HeaderError::Magic(1)));
    let newer = RegionHeader { version: LAYOUT_VERSION + 1, ..header };
    assert!(
        check(newer)
            .unwrap_err()
            .to_string()
            .contains(&format!("layout version {}, this build reads {LAYOUT_VERSION}", LAYOUT_VERSION + 1))
    );
    let differs = check(RegionHeader { layout_hash: 5, ..header }).unwrap_err();
    assert_eq!(differs, HeaderError::Layout { kind: RegionKind::Load, found: 5 });
    assert!(differs.to_string().starts_with("Load region of layout 0x0000000000000005, this build reads"));
    let other = RegionHeader { cluster: 8, len: 64, ..header };
    assert_eq!(
        check(other),
        Err(HeaderError::Cluster { found: 8, expected: 7 }),
        "which is why it is longer"
    );
    assert_eq!(
        RegionHeader::checked(&header.words(), 0, RegionKind::Load, LOAD_BYTES),
        Ok(header),
        "who has no cluster may read it"
    );
    assert!(matches!(check(RegionHeader { kind: 2, ..header }), Err(HeaderError::Kind { found: 2, .. })));
    assert!(matches!(check(RegionHeader { len: 64, ..header }), Err(HeaderError::Length { found: 64, .. })));
}

/// It begins as this build's does. Whoever takes such a region over says so.
#[test]
fn a_region_of_the_next_release_is_read_as_far_as_it_is_known() {
    let instance = Instance { cluster: 7, incarnation: 1 };
    let own = RegionHeader::new(RegionKind::Load, instance, LOAD_BYTES);
    let check =
        |header: &RegionHeader| RegionHeader::checked(&header.words(), 7, RegionKind::Load, LOAD_BYTES);
    let next = RegionHeader { layout_hash: 5, extends: own.layout_hash, len: own.len + 64, ..own };
    assert_eq!(check(&next), Ok(next));
    let cut_short = RegionHeader { len: own.len - 64, ..next };
    assert!(matches!(check(&cut_short), Err(HeaderError::Length { .. })));
    let longer = RegionHeader { len: own.len + 64, ..own };
    assert!(matches!(check(&longer), Err(HeaderError::Length { .. })));

    let last = RegionHeader { layout_hash: 4, len: own.len - 64, ..own };
    for left in [next, last] {
        let taken_over = left.taken_over(RegionKind::Load, 2, LOAD_BYTES);
        assert_eq!(taken_over, RegionHeader { incarnation: 2, ..own });
    }
    assert!(own.has_grown(&RegionHeader { epoch: 3, ..next }) && !own.has_grown(&last));
    assert!(!own.has_grown(&RegionHeader { incarnation: 2, ..next }), "another life has it");
}

/// Hashes are part of the wire format: if this fails, what such a region holds has changed, or its description has. Builds of before
/// refuse regions of the kind, unless [`RegionKind::extends`] has the hash from here, as the release before had it. `cargo xtask headers` tells C of
/// the change.
#[test]
fn a_change_of_layout_is_seen() {
    let expected = [
        (RegionKind::Load, "7d4dd381905dbde1"),
        (RegionKind::Words, "136a44a5c6570d91"),
        (RegionKind::Board, "d63f4ad55c08d1f6"),
        (RegionKind::Raw, "5f63d2fb4efc7250"),
        (RegionKind::Kernel, "7e92230ee940b404"),
        (RegionKind::Share, "4b675f35afa22f1b"),
        (RegionKind::Front, "1b407f3e5b9d4d78"),
        (RegionKind::Choice, "520879503785204e"),
        (RegionKind::Workers, "26534a07b539719d"),
        (RegionKind::Cache, "eaabb32f62520fe1"),
        (RegionKind::Claims, "835d87b47cf36849"),
    ];
    let hashes = RegionKind::ALL.iter().map(|kind| (*kind, format!("{:016x}", kind.layout_hash())));
    assert_eq!(hashes.collect::<Vec<_>>(), expected.map(|(kind, hash)| (kind, hash.to_owned())));
    assert_eq!(LAYOUT_VERSION, 16);
}

/// Whoever decodes a word may index by what it says.
#[test]
fn an_ownership_is_of_sites_that_exist() {
    let [first, last, beyond] = [0, 2, 3].map(SiteId::new);
    let draining = |from, to| Ownership::serving(from, 7).draining_to(Some(to)).unwrap();
    let decoded = |word: u64| Ownership::decode(word, 3);
    let held = Ownership::serving(last, 7).now(NodeState::Held, last);
    let words = [
        Ownership::serving(last, 7),
        draining(first, last),
        Ownership::serving(last, 7).draining_to(None).unwrap(),
        Ownership::replacing(7, None),
        held,
        held.now(NodeState::Pinned, first),
        held.changing_to(first),
        held.changing_to(last),
    ];
    for word in words {
        assert_eq!(decoded(word.encode()), Some(word));
    }
    for word in [Ownership::serving(beyond, 7), draining(first, beyond), draining(beyond, first)] {
        assert_eq!(decoded(word.encode()), None, "{word:?}");
    }
    let unknown = |state: u64| Ownership::serving(first, 7).encode() & !(0xf << 60) | state << 60;
    assert!((0..16).all(|state| decoded(unknown(state)).is_some() == (1..=4).contains(&state)));
    let to_itself = draining(first, last).encode() & !(0xfff << 36) | 1 << 36;
    assert_eq!(decoded(to_itself), None, "a move from a site to itself");
    assert_eq!(Ownership::replacing(u64::MAX, Some(last)), Ownership::serving(last, 0), "it wraps");
}

#[test]
fn a_node_that_changes_comes_from_another_site_or_from_none() {
    let [site, other] = [0, 1].map(SiteId::new);
    let serving = Ownership::serving(site, 7);
    let draining = serving.draining_to(Some(other)).unwrap().changing_to(other);
    assert_eq!((draining.site, draining.next, draining.on_its_way()), (Some(site), Some(other), Some(other)));
    let again = serving.now(NodeState::Held, site).changing_to(site);
    assert_eq!((again.site, again.next, again.serving_site()), (None, Some(site), None));
    let free = Ownership::replacing(7, None).changing_to(other);
    assert_eq!((free.site, free.on_its_way()), (None, Some(other)));
}

#[test]
fn the_end_of_a_change_is_no_acknowledgement() {
    let faults = [ChangeStep::Leave, ChangeStep::Enter, ChangeStep::Ready].into_iter().flat_map(|step| {
        [FaultCause::Status(255), FaultCause::Signal(9), FaultCause::TimedOut, FaultCause::NotStarted]
            .map(|cause| Fault { step, cause })
    });
    let failed = faults.flat_map(|fault| [ChangeResult::Undone(fault), ChangeResult::Failed(fault)]);
    for result in failed.chain([ChangeResult::Changed]) {
        let change = Change { generation: (1 << 36) - 1, result };
        assert_eq!(Change::decode(change.encode()), Some(change));
        assert_eq!(Ack::decode(change.encode()), None, "{change:?}");
    }
    for word in [0, Ack { generation: 7 }.encode(), 3, 4, 5, u64::MAX] {
        assert_eq!(Change::decode(word), None, "{word:#x}");
    }
}

#[test]
fn a_fault_says_which_step_failed_and_how() {
    let said = |step, cause| Fault { step, cause }.to_string();
    assert_eq!(said(ChangeStep::Enter, FaultCause::Status(1)), "on_enter ended with status 1");
    assert_eq!(said(ChangeStep::Leave, FaultCause::Signal(9)), "on_leave was ended by signal 9");
    assert_eq!(said(ChangeStep::Enter, FaultCause::TimedOut), "on_enter took too long");
    assert_eq!(said(ChangeStep::Leave, FaultCause::NotStarted), "on_leave could not be started");
    assert_eq!(said(ChangeStep::Ready, FaultCause::TimedOut), "the server was not ready in time");
}

#[test]
fn a_budget_stops_at_its_floor() {
    let budget = Budget { floor: 1, current: 2, generation: 5 };
    let reserved = budget.reserved().unwrap();
    assert_eq!(reserved, Budget { floor: 1, current: 1, generation: 6 });
    assert_eq!(reserved.reserved(), None);
    let forced = reserved.reserved_by_force().unwrap();
    assert_eq!((forced, forced.reserved_by_force()), (Budget { floor: 1, current: 0, generation: 7 }, None));
}

#[test]
fn only_who_serves_a_site_can_leave_it() {
    let [site, other] = [0, 1].map(SiteId::new);
    let serving = Ownership::serving(site, 7);
    let pinned = serving.now(NodeState::Pinned, site);
    let held = serving.draining_to(None).unwrap().now(NodeState::Held, site);
    assert!(pinned.serves(site) && !held.serves(site));
    assert_eq!(pinned.draining_to(Some(other)).unwrap().on_its_way(), Some(other));
    assert_eq!(
        pinned.draining_to(None).unwrap().on_its_way(),
        Some(site),
        "under the lock of the site it leaves"
    );
    for stays in [held, Ownership::replacing(7, None), serving.draining_to(Some(other)).unwrap()] {
        assert_eq!(stays.draining_to(Some(other)), None, "{stays:?}");
    }
}

#[test]
fn sequences_wrap_within_their_bits() {
    let lock = Lock { owner: None, incarnation: 0, sequence: (1 << 40) - 1 };
    let held = lock.held_by(EdgeId::new(EDGES_MAX - 1), 0xfff);
    assert_eq!(
        Lock::decode(held.encode()),
        Lock { owner: Some(EdgeId::new(4094)), incarnation: 0xfff, sequence: 0 }
    );
    let node = Ownership::serving(SiteId::new(1), SEQUENCE_MAX);
    assert_eq!(node.now_serving(SiteId::new(1)).generation, 0);
}

proptest! {
    /// A copy across two publications, mixed from words in any order, is detected.
    #[test]
    fn a_torn_copy_is_rejected(a: [u64; 7], b: [u64; 7], from_b in 1u8..255) {
        let words = |sequence: u32, rest: [u64; 7]| {
            let mut words = [0; 8];
            words[0] = sequence as u64;
            words[1..].copy_from_slice(&rest);
            bytemuck::cast::<_, Hot>(words).sealed().words()
        };
        let (a, b) = (words(2, a), words(4, b));
        let torn: [u64; 8] = std::array::from_fn(|i| if from_b >> i & 1 == 1 { b[i] } else { a[i] });
        prop_assert!(torn == a || torn == b || Hot::validated(&torn) == Err(Rejected::Torn));
    }

    #[test]
    fn words_round_trip(word: u64) {
        prop_assert_eq!(Lock::decode(word).encode() & !(0xfff << 40), word & !(0xfff << 40));
        prop_assert_eq!(Budget::decode(word).encode(), word);
        if let Some(node) = Ownership::decode(word, SITES_MAX) {
            prop_assert_eq!(node.encode(), word);
        }
        if let Some(ack) = Ack::decode(word) {
            prop_assert_eq!(ack.encode(), word & ((1 << 40) - 1));
        }
    }

    #[test]
    fn a_share_counts_answers_across_the_end_of_its_bits(in_flight in 0u32..1 << 24, answers: u64, more in 0u64..1 << 39) {
        let share = |answers: u64| NodeShare::decode(NodeShare { in_flight, answers }.encode());
        prop_assert_eq!(share(answers).in_flight, in_flight);
        prop_assert_eq!(share(answers.wrapping_add(more)).answers_since(share(answers)), more);
        // Another life has begun, and counts anew.
        let anew = share(0).answers_since(share(more));
        prop_assert_eq!(anew, 0);
        let full = NodeShare { in_flight: u32::MAX, answers: 7 };
        prop_assert_eq!(NodeShare::decode(full.encode()), NodeShare { in_flight: (1 << 24) - 1, answers: 7 });
    }

    /// Every change of a word differs from what was there: a late compare-and-swap fails.
    #[test]
    fn successors_differ(word: u64, site in 0usize..SITES_MAX) {
        let site = SiteId::new(site);
        let lock = Lock::decode(word);
        prop_assert_ne!(lock.held_by(EdgeId::new(0), 1).sequence, lock.sequence);
        prop_assert_ne!(lock.freed().sequence, lock.sequence);
        let budget = Budget::decode(word);
        prop_assert_ne!(budget.with_current(budget.current).generation, budget.generation);
        if let Some(node) = Ownership::decode(word, SITES_MAX) {
            prop_assert_ne!(node.now_serving(site).generation, node.generation);
        }
    }
}
