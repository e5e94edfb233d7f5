use super::*;

const MS: u64 = 1_000_000;
const CPUS: usize = 2;

/// A region as the kernel and its owner write it, and of which a reader gets copies.
struct Node {
    incarnation: u64,
    beat: Beat,
    slots: [Slot; CPUS],
    ticks: [Tick; CPUS],
    pending: [u64; CPUS],
    server: Hot,
    sockets: Sockets,
}

impl Node {
    fn new(incarnation: u64) -> Node {
        let generation = incarnation as u32;
        let tick = Tick { sequence: 2, generation, flags: Tick::ONLINE, ..Tick::default() };
        Node {
            incarnation,
            beat: Beat {
                sequence: 2,
                generation,
                valid: valid::RUN_QUEUE
                    | valid::MEMORY
                    | valid::INTERRUPTS
                    | valid::NETWORK
                    | kept::CPU_TIMES,
                cpus: CPUS as u16,
                places: CPUS as u16,
                time_ns: 100 * MS,
                ..Beat::default()
            },
            slots: [Slot { sequence: 2, generation, ..Slot::default() }; CPUS],
            ticks: [tick; CPUS],
            pending: [0; CPUS],
            server: Hot::default(),
            sockets: Sockets { sequence: 2, generation, ..Sockets::default() },
        }
    }

    /// The next beat, `ms` later, without further events.
    fn beats(&mut self, ms: u64) {
        self.beat.sequence += 2;
        self.beat.time_ns += ms * MS;
        for (tick, slot) in self.ticks.iter_mut().zip(&self.slots) {
            tick.sequence += 2;
            (tick.time_ns, tick.slot_sequence) = (self.beat.time_ns, slot.sequence);
        }
    }

    fn copy(&self, bytes: usize) -> Vec<u64> {
        let mut region = vec![0u64; KERNEL_PLACES / 8];
        let put = |region: &mut Vec<u64>, at: usize, words: &[u64]| {
            region.resize(region.len().max((at / 8) + words.len()), 0);
            region[at / 8..at / 8 + words.len()].copy_from_slice(words);
        };
        put(&mut region, OFFSET, &[self.incarnation]);
        if self.server.sequence != 0 {
            put(&mut region, LOAD_HOT, &self.server.sealed().words());
        }
        put(&mut region, KERNEL_BEAT, &self.beat.sealed().words());
        put(&mut region, KERNEL_SOCKETS, &self.sockets.sealed().words());
        for cpu in 0..CPUS {
            let at = KERNEL_PLACES + cpu * PLACE_BYTES;
            put(&mut region, at, &self.slots[cpu].sealed().words());
            put(&mut region, at + PLACE_TICK, &self.ticks[cpu].sealed().words());
            put(&mut region, at + PLACE_PENDING, &[self.pending[cpu]]);
        }
        region.resize((OFFSET + bytes).div_ceil(8).max(region.len()), 0);
        region[OFFSET / 8..(OFFSET + bytes) / 8].to_vec()
    }
}

/// A reader that knows how many places there are.
fn reader(node: &Node) -> NodeState {
    let mut kept = NodeState::default();
    assert_eq!(kept.look(&node.copy(kept.bytes())), (Look::Never, true), "they are learned first");
    kept
}

fn whole(kept: &mut NodeState, node: &Node) -> Hot {
    let Look::Whole(hot) = kept.look(&node.copy(kept.bytes())).0 else { panic!("it is whole") };
    hot
}

#[test]
fn all_parts_make_one_line() {
    let mut node = Node::new(7);
    node.slots[0] = Slot { runnable: 3, flags: Slot::RUNNING, time_ns: 99 * MS, ..node.slots[0] };
    node.ticks[1].runnable = 4;
    node.pending = [0b101 | 1 << 18 | 9 << 32, 0];
    node.beats(1);
    // An event after the beat makes the slot newer than the tick.
    node.slots[0].sequence += 2;
    node.server = Hot { sequence: 2, generation: 7, valid: valid::ORIGIN, busy: 5, ..Hot::default() };
    let mut kept = reader(&node);
    let hot = whole(&mut kept, &node);
    assert_eq!((hot.run_queue, hot.pending_interrupts, hot.busy), (3 + 4, 2, 5));
    assert_eq!(hot.valid, valid::RUN_QUEUE | valid::MEMORY | valid::INTERRUPTS | valid::ORIGIN);
    assert_eq!((hot.time_ns, hot.generation), (101 * MS, 7));
    assert_eq!((kept.cpus()[0].raised, kept.cpus()[1].run_queue), (9, 4));

    // One CPU is busy throughout without an event, and gives the other half.
    for _ in 0..20 {
        node.beats(1);
        node.slots[1].sequence += 2;
        node.slots[1].busy_ns += MS / 2;
        node.slots[1].time_ns = node.beat.time_ns;
        node.beat.net_bytes += 1000;
        whole(&mut kept, &node);
    }
    let hot = whole(&mut kept, &node);
    assert_eq!((hot.cpu_permille, hot.valid & valid::CPU), (750, valid::CPU));
    assert_eq!(kept.cpus().iter().map(|cpu| cpu.busy_permille).collect::<Vec<_>>(), [Some(1000), Some(500)]);

    // The server says that it leaves.
    node.server = Hot { sequence: 4, generation: 7, ..Hot::default() };
    assert_eq!(whole(&mut kept, &node).valid, 0);
}

#[test]
fn a_foreign_server_that_listens_has_its_connections() {
    let seen = |listening, foreign: Option<Foreign>| {
        let mut node = Node::new(7);
        node.sockets = Sockets { listening, established: 5, queue: 2, ..node.sockets };
        let mut kept = NodeState::of(foreign);
        kept.look(&node.copy(kept.bytes()));
        let hot = whole(&mut kept, &node);
        (hot.valid & valid::CONNECTIONS != 0).then_some((hot.connections, hot.queued))
    };
    let foreign = Foreign { servers: Vec::new(), workers: None };
    assert_eq!(seen(1, Some(foreign.clone())), Some((5, 2)));
    assert_eq!(seen(0, Some(foreign)), None);
    assert_eq!(seen(1, None), None);
}

#[test]
fn counters_that_wrap_go_on() {
    let mut node = Node::new(7);
    node.slots[0].busy_ns = u64::MAX - MS;
    node.slots[1].busy_ns = u64::MAX;
    node.beat.sequence = u32::MAX - 3;
    let mut kept = reader(&node);
    whole(&mut kept, &node);
    node.beats(10);
    for slot in &mut node.slots {
        slot.busy_ns = slot.busy_ns.wrapping_add(5 * MS);
        slot.sequence = 2;
    }
    assert_eq!((whole(&mut kept, &node).cpu_permille, node.beat.sequence), (500, u32::MAX - 1));
    // The sequence too: the largest is followed by 2, because 0 means "never".
    node.beat.sequence = 2;
    node.beat.time_ns += MS;
    whole(&mut kept, &node);
}

#[test]
fn a_torn_slot_is_stood_for_by_what_it_last_said() {
    let mut node = Node::new(7);
    node.slots[0].runnable = 3;
    let mut kept = reader(&node);
    let tear = |words: &mut Vec<u64>| words[(KERNEL_PLACES + 16 - OFFSET) / 8] ^= 1;
    let mut torn = node.copy(kept.bytes());
    tear(&mut torn);
    for look in [Look::Again, Look::Again, Look::Torn] {
        assert_eq!(kept.look(&torn).0, look, "nothing stands for it yet");
    }
    whole(&mut kept, &node);
    node.beats(1);
    node.slots[0] = Slot { sequence: 4, runnable: 5, ..node.slots[0] };
    let mut torn = node.copy(kept.bytes());
    tear(&mut torn);
    assert_eq!([kept.look(&torn).0, kept.look(&torn).0], [Look::Again; 2]);
    let Look::Whole(hot) = kept.look(&torn).0 else { panic!("the other parts are whole") };
    assert_eq!(hot.run_queue, 3);
    assert_eq!(whole(&mut kept, &node).run_queue, 5);

    // A torn beat is rejected.
    let mut torn = node.copy(kept.bytes());
    torn[(KERNEL_BEAT + 16 - OFFSET) / 8] ^= 1;
    for look in [Look::Again, Look::Again, Look::Torn] {
        assert_eq!(kept.look(&torn).0, look);
    }
}

#[test]
fn a_new_life_starts_anew_and_an_old_one_is_not_heard() {
    let node = Node::new(7);
    let mut kept = reader(&node);
    whole(&mut kept, &node);
    let mut successor = Node::new(8);
    assert_eq!(kept.look(&successor.copy(kept.bytes())), (Look::Never, true));
    whole(&mut kept, &successor);
    // The header is the new owner's; the beat and a slot are not.
    successor.beat.generation = 7;
    assert_eq!(kept.look(&successor.copy(kept.bytes())).0, Look::Never);
    let mut successor = Node::new(9);
    successor.slots[0] = Slot { generation: 8, runnable: 9, ..successor.slots[0] };
    successor.slots[0].sequence = 6;
    let mut kept = reader(&successor);
    assert_eq!(whole(&mut kept, &successor).run_queue, 0);

    // A beat that is older than one seen.
    let mut node = Node::new(7);
    let mut kept = reader(&node);
    node.beats(1);
    whole(&mut kept, &node);
    node.beat.sequence -= 2;
    assert_eq!(kept.look(&node.copy(kept.bytes())).0, Look::Old);
}

#[test]
fn a_cpu_that_goes_offline_takes_its_share_along() {
    let mut node = Node::new(7);
    node.slots[0].flags = Slot::RUNNING;
    node.slots[0].time_ns = 100 * MS;
    let mut kept = reader(&node);
    whole(&mut kept, &node);
    node.ticks[1].flags = 0;
    node.beat.cpus = 1;
    node.beats(10);
    assert_eq!(whole(&mut kept, &node).cpu_permille, 1000, "of the one that is left");
    assert_eq!(kept.cpus().iter().map(|cpu| cpu.online).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn cpus_without_a_place_are_in_the_sums() {
    let mut node = Node::new(7);
    (node.beat.unplaced, node.beat.run_queue, node.beat.cpus) = (2, 11, 4);
    let mut kept = reader(&node);
    assert_eq!(whole(&mut kept, &node).run_queue, 11);
    node.beats(60);
    node.beat.cpu_used_ns = 120 * MS;
    assert_eq!(whole(&mut kept, &node).cpu_permille, 500);
}

#[test]
fn more_places_than_there_can_be_are_not_read() {
    let mut node = Node::new(7);
    node.beat.places = u16::MAX;
    let mut kept = NodeState::default();
    kept.look(&node.copy(kept.bytes()));
    assert!(kept.bytes() <= sidelong_layout::KERNEL_BYTES);
    assert_eq!(kept.look(&node.copy(kept.bytes())).0, Look::Never);
}
