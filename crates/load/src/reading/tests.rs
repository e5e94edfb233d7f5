use sidelong_state::Publisher;

use super::*;

const MS: u64 = 1_000_000;

/// A node whose copies are made by hand.
struct Node {
    incarnation: u64,
    publisher: Publisher,
    words: [u64; Hot::WORDS],
}

impl Node {
    fn new(incarnation: u64) -> Self {
        Node { incarnation, publisher: Publisher::new(incarnation as u32), words: [0; Hot::WORDS] }
    }

    fn publish(&mut self, time_ns: u64) -> Snapshot {
        self.publish_hot(Hot { valid: 1, time_ns, ..Hot::default() })
    }

    fn publish_hot(&mut self, hot: Hot) -> Snapshot {
        for (index, value) in self.publisher.publish(hot) {
            self.words[index] = value;
        }
        self.look()
    }

    fn look(&self) -> Snapshot {
        Snapshot { incarnation: self.incarnation, hot: self.words, ack: Ack { generation: 9 }.encode() }
    }
}

fn limits(same_clock: bool) -> Limits {
    Limits { stale: Duration::from_millis(10), same_clock, ..Limits::default() }
}

#[test]
fn on_one_clock_the_record_tells_its_age() {
    let (mut node, mut track, limits) = (Node::new(1), Track::default(), limits(true));
    assert_eq!(track.reading(0, &limits), Reading::default());
    assert!(!track.see(&node.look(), 0));
    assert_eq!(track.reading(0, &limits).status, Status::NeverWritten);

    assert!(!track.see(&node.publish(5 * MS), 6 * MS));
    let reading = track.reading(6 * MS, &limits);
    assert_eq!((reading.status, reading.age_ns, reading.seen_at_ns), (Status::Fresh, MS, 6 * MS));
    assert_eq!((reading.ack, reading.fresh()), (Some(Ack { generation: 9 }), reading.hot.as_ref()));

    // Read again and again, it still becomes stale, and is kept for display.
    track.see(&node.look(), 16 * MS);
    let reading = track.reading(16 * MS, &limits);
    assert_eq!((reading.status, reading.age_ns, reading.fresh()), (Status::Stale, 11 * MS, None));
    assert!(reading.hot.is_some());

    // Made after the refresh began.
    track.see(&node.publish(20 * MS), 20 * MS - 1);
    assert_eq!(track.reading(20 * MS - 1, &limits).age_ns, 0);
}

#[test]
fn across_clocks_change_tells_the_age() {
    let (mut node, mut track, limits) = (Node::new(1), Track::default(), limits(false));
    let reading = |track: &mut Track, now_ns| {
        let reading = track.reading(now_ns, &limits);
        (reading.status, reading.age_ns)
    };
    track.see(&node.publish(777), 100 * MS);
    assert_eq!(reading(&mut track, 100 * MS), (Status::Stale, u64::MAX), "not yet seen to change");
    track.see(&node.publish(778), 101 * MS);
    assert_eq!(reading(&mut track, 101 * MS), (Status::Fresh, 0));
    track.see(&node.look(), 104 * MS);
    assert_eq!(reading(&mut track, 104 * MS), (Status::Fresh, 3 * MS));
    track.see(&node.look(), 112 * MS);
    assert_eq!(reading(&mut track, 112 * MS), (Status::Stale, 11 * MS));
    track.see(&node.publish(779), 113 * MS);
    assert_eq!(reading(&mut track, 113 * MS), (Status::Fresh, 0));
}

#[test]
fn a_clock_that_cannot_be_this_one_is_not_believed() {
    let (mut node, mut track, limits) = (Node::new(1), Track::default(), limits(true));
    track.see(&node.publish(1_000_000 * MS), MS);
    assert_eq!(track.reading(MS, &limits).status, Status::Stale);
    track.see(&node.publish(1_000_001 * MS), 2 * MS);
    assert_eq!(track.reading(2 * MS, &limits).status, Status::Fresh);
}

#[test]
fn the_record_of_an_earlier_life_is_not_used() {
    let (mut dead, mut track, limits) = (Node::new(8), Track::default(), limits(true));
    track.see(&dead.publish(MS), MS);
    // The successor has the region, which still holds the old record.
    track.see(&Snapshot { incarnation: 7, ..dead.look() }, 2 * MS);
    let reading = track.reading(2 * MS, &limits);
    assert_eq!((reading.status, reading.hot), (Status::NeverWritten, None));
    // Incarnations need not increase.
    let mut successor = Node::new(7);
    track.see(&successor.publish(3 * MS), 3 * MS);
    assert_eq!(track.reading(3 * MS, &limits).status, Status::Fresh);
}

#[test]
fn torn_looks_are_repeated_and_then_cost_no_more_than_age() {
    let (mut node, mut track, limits) = (Node::new(1), Track::default(), limits(true));
    let good = node.publish(MS);
    let mut torn = good;
    torn.hot[3] ^= 1;
    let tries = |track: &mut Track| (0..10).take_while(|_| track.see(&torn, MS)).count();
    assert_eq!(tries(&mut track), usize::from(sidelong_state::COPIES_MAX) - 1);
    assert_eq!(track.reading(MS, &limits).status, Status::Torn);
    track.see(&good, 2 * MS);
    tries(&mut track);
    assert_eq!(track.reading(3 * MS, &limits).fresh().map(|hot| hot.time_ns), Some(MS));
    assert_eq!(track.reading(30 * MS, &limits).status, Status::Torn);
}

#[test]
fn silence_costs_age_and_loss_all() {
    let (mut node, mut track, limits) = (Node::new(1), Track::default(), limits(true));
    track.missed();
    assert_eq!(track.reading(0, &limits).status, Status::Gone);
    track.see(&node.publish(MS), MS);
    track.missed();
    assert_eq!(track.reading(2 * MS, &limits).status, Status::Fresh);
    assert_eq!(track.reading(20 * MS, &limits).status, Status::Stale);
    track.lost();
    assert_eq!(track.reading(2 * MS, &limits).hot, None);
    // Reached again, but without a new record: the old one does not count as news.
    track.missed();
    assert_eq!(track.reading(2 * MS, &limits).status, Status::Gone);
}

#[test]
fn a_farewell_is_heard_and_a_new_keeper_after_it() {
    let (mut node, mut track, limits) = (Node::new(1), Track::default(), limits(true));
    for ms in 0..5 {
        track.see(&node.publish(ms * MS), ms * MS);
    }
    track.see(&node.publish_hot(Hot { time_ns: 5 * MS, ..Hot::default() }), 5 * MS);
    let reading = track.reading(5 * MS, &limits);
    assert_eq!((reading.status, reading.hot), (Status::Gone, None));
    // The same life, with a restarted sequence.
    let mut again = Node::new(1);
    track.see(&again.publish(6 * MS), 6 * MS);
    assert_eq!(track.reading(6 * MS, &limits).status, Status::Fresh);
}
