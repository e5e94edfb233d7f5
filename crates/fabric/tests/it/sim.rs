//! The simulated network: what its seed determines, and what holds for every seed.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sidelong_fabric::sim::{Event, Faults, Network, Op, SimLink, Ticket};
use sidelong_fabric::{Access, Batch, Error, Host, Initiator, OpError, Region, RegionSpec};
use sidelong_layout::{Instance, RegionKind};

const WORD: usize = 64;
const MICRO: Duration = Duration::from_micros(1);

#[test]
fn the_same_seed_and_calls_give_the_same_run() {
    let runs: Vec<_> = [1, 1, 2].map(busy_hour).into();
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
    assert!(runs[0].iter().any(|event| matches!(event, Event::Done { outcome: Ok(_), .. })));
    for error in [OpError::Timeout, OpError::KeyRejected, OpError::PeerGone] {
        let met = [1, 2, 3, 4].into_iter().flat_map(busy_hour);
        let mut met = met.filter(|event| matches!(event, Event::Done { outcome: Err(e), .. } if *e == error));
        assert!(met.next().is_some(), "{error} never happened");
    }
}

/// Five actors add to five nodes' words, and some nodes die and come back. Returns everything that happened, in order.
fn busy_hour(seed: u64) -> Vec<Event> {
    let network = Network::new(seed, Faults { loss_permille: 50, late_permille: 50, ..Faults::default() });
    let mut nodes: Vec<_> = (0..5).map(|node| Node::start(&network, &format!("n{node}"))).collect();
    let links: Vec<Vec<SimLink>> =
        (0..5).map(|_| nodes.iter().map(|node| node.link(&network)).collect()).collect();
    for actor in 0..5 {
        network.wake_at(MICRO * actor, actor.into());
    }
    let mut events = Vec::new();
    while let Some(event) = network.next() {
        if let Event::Wake { at, actor } = event {
            let node = at.as_nanos() as usize % 5;
            network.post(&links[actor as usize][node], Op::FetchAndAdd { offset: WORD, add: 1 }, 10 * MICRO);
            if at.as_micros() % 97 == 0 {
                network.crash(&network.host(&format!("n{node}")));
                network.restart(&network.host(&format!("n{node}")));
                nodes[node] = Node::start(&network, &format!("n{node}"));
            }
            if at < 1000 * MICRO {
                network.wake_at(at + Duration::from_nanos(3001), actor);
            }
        }
        events.push(event);
    }
    events
}

#[test]
fn a_quiet_network_delays_each_way() {
    let network = Network::new(1, Faults { delay: 5 * MICRO..5 * MICRO, ..Faults::default() });
    let node = Node::start(&network, "a");
    let link = node.link(&network);
    let ticket = network.post(&link, Op::FetchAndAdd { offset: WORD, add: 3 }, 100 * MICRO);
    network.advance(4 * MICRO);
    assert_eq!(node.region.load(WORD), 0);
    network.advance(MICRO);
    assert_eq!((node.region.load(WORD), network.now()), (3, 5 * MICRO));
    assert_eq!(network.next(), Some(Event::Done { at: 10 * MICRO, ticket, outcome: Ok(vec![0]) }));
    assert_eq!((network.next(), network.now()), (None, 10 * MICRO));
}

#[test]
fn each_operation_brings_what_a_batch_would() {
    let network = Network::new(1, Faults::default());
    let node = Node::start(&network, "a");
    let link = node.link(&network);
    let outcome = |op| {
        let posted = network.post(&link, op, 100 * MICRO);
        match network.next() {
            Some(Event::Done { ticket, outcome, .. }) if ticket == posted => outcome,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(outcome(Op::Write { offset: WORD, words: vec![1, 2] }), Ok(vec![1, 2]));
    assert_eq!(outcome(Op::CompareAndSwap { offset: WORD, expected: 1, new: 5 }), Ok(vec![1]));
    assert_eq!(outcome(Op::FetchAndAdd { offset: WORD, add: 1 }), Ok(vec![5]));
    assert_eq!(outcome(Op::Read { offset: WORD, len: 16 }), Ok(vec![6, 2]));
    assert_eq!(outcome(Op::Read { offset: 4, len: 8 }), Err(OpError::Misaligned { offset: 4, len: 8 }));
    let beyond = OpError::OutOfBounds { offset: 1 << 40, len: 8, region: 1024 };
    assert_eq!(outcome(Op::Read { offset: 1 << 40, len: 8 }), Err(beyond));
    let len = usize::MAX;
    assert_eq!(outcome(Op::Read { offset: 0, len }), Err(OpError::TooLong { len }));
}

#[test]
fn timers_come_in_their_order_and_never_early() {
    let network = Network::new(1, Faults::default());
    for (at, actor) in [(3, 30), (1, 10), (3, 31), (2, 20)] {
        network.wake_at(MICRO * at, actor);
    }
    let woken: Vec<_> = std::iter::from_fn(|| network.next()).collect();
    let wake = |at, actor| Event::Wake { at: MICRO * at, actor };
    assert_eq!(woken, [wake(1, 10), wake(2, 20), wake(3, 30), wake(3, 31)]);
    network.wake_at(Duration::ZERO, 40);
    assert_eq!(network.next(), Some(wake(3, 40)), "the past is now");
}

#[test]
fn others_go_on_while_a_batch_waits_and_not_among_themselves() {
    let network = Network::new(1, Faults::default());
    let node = Node::start(&network, "a");
    let mut initiator = Initiator::new();
    let link = initiator.connect(node.region.key(), MICRO * 100).unwrap();
    let mut other = Initiator::new();
    let others = other.connect(node.region.key(), MICRO * 100).unwrap();
    network.meanwhile(move || {
        let mut batch = Batch::new();
        batch.fetch_and_add(others, WORD, 1);
        other.run(&mut batch, 100 * MICRO);
    });
    let (mut batch, mut before) = (Batch::new(), 0);
    for _ in 0..10 {
        assert_eq!(node.region.load(WORD), before, "nobody waits");
        batch.clear();
        let read = batch.read(link, WORD, 8);
        initiator.run(&mut batch, 100 * MICRO);
        let now = node.region.load(WORD);
        // Once as its request arrives, and once as its answer does.
        assert!((1..=2).contains(&(now - before)), "{before} to {now}");
        assert!((before..=now).contains(&batch.value(read).unwrap()));
        before = now;
    }
}

#[test]
fn what_falls_due_while_a_batch_waits_is_kept() {
    let network = Network::new(1, Faults::default());
    let node = Node::start(&network, "a");
    let link = node.link(&network);
    let mut initiator = Initiator::new();
    let batched = initiator.connect(node.region.key(), MICRO * 100).unwrap();
    let began = network.now();
    network.wake_at(began + Duration::from_nanos(1), 7);
    let ticket = network.post(&link, Op::FetchAndAdd { offset: WORD, add: 1 }, 100 * MICRO);
    let mut batch = Batch::new();
    for _ in 0..10 {
        batch.fetch_and_add(batched, WORD, 1);
        initiator.run(&mut batch, 100 * MICRO);
    }
    assert!(network.now() > began + 10 * MICRO);
    assert_eq!(network.next(), Some(Event::Wake { at: began + Duration::from_nanos(1), actor: 7 }));
    let done = network.next().unwrap();
    assert!(matches!(done, Event::Done { ticket: t, outcome: Ok(_), .. } if t == ticket));
    assert!(done.at() < began + 10 * MICRO, "with its own time");
}

#[test]
fn a_lost_operation_is_reported_at_its_deadline() {
    let network = Network::new(3, Faults { loss_permille: 1000, ..Faults::default() });
    let node = Node::start(&network, "a");
    let mut effects = 0;
    for round in 1..=100 {
        let link = node.link(&network);
        let at = network.now() + 20 * MICRO;
        let ticket = network.post(&link, Op::FetchAndAdd { offset: WORD, add: 1 }, 20 * MICRO);
        assert_eq!(network.next(), Some(Event::Done { at, ticket, outcome: Err(OpError::Timeout) }));
        effects = node.region.load(WORD);
        assert!(effects <= round);
    }
    assert!((20..80).contains(&effects), "half of them before they took effect: {effects}");
}

#[test]
fn what_follows_a_lost_operation_is_lost_with_it() {
    let quiet = Faults::default();
    for seed in 0..20 {
        let network = Network::new(seed, Faults { loss_permille: 1000, ..quiet.clone() });
        let node = Node::start(&network, "a");
        let link = node.link(&network);
        let add = |timeout| network.post(&link, Op::FetchAndAdd { offset: WORD, add: 1 }, MICRO * timeout);
        add(20);
        network.set_faults(quiet.clone());
        network.advance(8 * MICRO);
        add(100);
        for _ in 0..2 {
            let lost = network.next().unwrap();
            assert!(matches!(lost, Event::Done { outcome: Err(OpError::Timeout), .. }), "{lost:?}");
            assert_eq!(lost.at(), 20 * MICRO, "the second has no need to wait for its own deadline");
        }
        let effects = node.region.load(WORD);
        assert!(effects == 0 || effects == 2, "{effects}: the link overtook itself");
        add(20);
        assert!(matches!(network.next(), Some(Event::Done { outcome: Ok(_), .. })), "it has recovered");
    }
}

#[test]
fn a_late_operation_takes_effect_after_its_deadline() {
    let network = Network::new(3, Faults { late_permille: 1000, ..Faults::default() });
    let node = Node::start(&network, "a");
    let link = node.link(&network);
    network.post(&link, Op::FetchAndAdd { offset: WORD, add: 1 }, 20 * MICRO);
    assert!(matches!(network.next(), Some(Event::Done { outcome: Err(OpError::Timeout), .. })));
    assert_eq!(node.region.load(WORD), 0);
    network.advance(10 * MICRO);
    assert_eq!((node.region.load(WORD), network.next()), (1, None));
}

#[test]
fn a_closed_link_reports_what_is_on_its_way() {
    let network = Network::new(3, Faults::default());
    let node = Node::start(&network, "a");
    let link = node.link(&network);
    let ticket = network.post(&link, Op::FetchAndAdd { offset: WORD, add: 1 }, 20 * MICRO);
    drop(link);
    let closed = network.next().unwrap();
    assert!(matches!(closed, Event::Done { ticket: t, outcome: Err(OpError::Closed), .. } if t == ticket));
}

#[test]
fn a_key_is_of_its_network() {
    let (network, other) = (Network::new(1, Faults::default()), Network::new(1, Faults::default()));
    let node = Node::start(&network, "a");
    assert!(matches!(other.connect(node.region.key()), Err(Error::OtherNetwork { .. })));
    assert_eq!(network, network.clone());
    assert_ne!(network, other);
    // One initiator may have links to both.
    let mut initiator = Initiator::new();
    let links = [&network, &other].map(|network| {
        let node = Node::start(network, "b");
        (initiator.connect(node.region.key(), 100 * MICRO).unwrap(), node)
    });
    let mut batch = Batch::new();
    let adds = links.each_ref().map(|(link, _)| batch.fetch_and_add(*link, WORD, 1));
    initiator.run(&mut batch, 100 * MICRO);
    assert_eq!(adds.map(|add| batch.value(add)), [Ok(0), Ok(0)]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Post { link: usize, timeout: u32 },
    Wait { micros: u32 },
    Crash,
}

/// A scan of a cluster: one event with all words in order, read at one moment.
#[test]
fn a_gather_reads_many_regions_as_one_operation() {
    let network = Network::new(7, Faults::default());
    let nodes: Vec<Node> = (0..3).map(|node| Node::start(&network, &format!("g{node}"))).collect();
    let keys = || nodes.iter().map(|node| (node.region.key(), WORD, 8));
    let gather = network.gather(keys()).unwrap();
    let link = nodes[1].link(&network);
    network.post(&link, Op::FetchAndAdd { offset: WORD, add: 5 }, 1000 * MICRO);
    let Some(Event::Done { at, .. }) = network.next() else { panic!("it was posted") };

    let ticket = network.post_gather(&gather, 1000 * MICRO);
    assert_eq!(network.next_by(at), None, "it takes time");
    let next = network.next_at().unwrap();
    assert!(next > at);
    let end = loop {
        let next = network.next_at().unwrap();
        if let Some(end) = network.next_by(next) {
            break end;
        }
    };
    let Event::Done { at: ended, ticket: of, outcome } = end else { panic!("{end:?}") };
    assert_eq!((of, outcome.unwrap()[1]), (ticket, 5));
    assert!((2..=6).contains(&(ended - at).as_micros()), "there and back: {:?}", ended - at);
    assert_eq!(network.next_at(), None);

    network.crash(&network.host("g2"));
    network.post_gather(&gather, 1000 * MICRO);
    let Some(Event::Done { outcome, .. }) = network.next() else { panic!("it is reported") };
    assert!(outcome.is_err(), "one that cannot be read fails all");
    let other = Network::new(8, Faults::default());
    assert!(other.gather(keys()).is_err(), "keys of another network");
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0usize..3, 1u32..30).prop_map(|(link, timeout)| Step::Post { link, timeout }),
        10 => (0u32..20).prop_map(|micros| Step::Wait { micros }),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    /// Whatever is lost, late or crashed: each operation is reported once and by its deadline; those of a link take
    /// effect and are answered in order; and an answered operation took effect.
    #[test]
    fn links_keep_their_order(
        seed: u64,
        loss_permille in 0u32..300,
        late_permille in 0u32..300,
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let network = Network::new(seed, Faults { loss_permille, late_permille, ..Faults::default() });
        let mut lives = vec![Life::start(&network)];
        let mut posted = BTreeMap::new();
        for step in steps {
            match step {
                Step::Post { link, timeout } => {
                    let life = lives.len() - 1;
                    let (ticket, number) = lives[life].post(&network, link, MICRO * timeout);
                    posted.insert(ticket, (life, link, number, network.now() + MICRO * timeout));
                }
                Step::Wait { micros } => network.advance(MICRO * micros),
                Step::Crash => {
                    let host = network.host("a");
                    network.crash(&host);
                    network.restart(&host);
                    lives.push(Life::start(&network));
                }
            }
            prop_assert!(lives.iter_mut().all(Life::only_rises));
        }
        while let Some(event) = network.next() {
            let Event::Done { at, ticket, outcome } = event else { panic!("no timer was set") };
            let (life, link, number, deadline) = posted.remove(&ticket).expect("reported once");
            let life = &mut lives[life];
            prop_assert!(at <= deadline && life.only_rises());
            if outcome.is_ok() {
                prop_assert!(life.seen[link] >= number, "it took effect");
                prop_assert!(life.answered[link] < number, "it was answered in its turn");
                life.answered[link] = number;
            }
        }
        prop_assert!(posted.is_empty());
    }
}

/// One life of a node with three links to it. Each link writes 1, 2, 3 ... to its own word.
struct Life {
    node: Node,
    links: Vec<SimLink>,
    posted: [u64; 3],
    answered: [u64; 3],
    seen: [u64; 3],
}

impl Life {
    fn start(network: &Network) -> Life {
        let node = Node::start(network, "a");
        let links = (0..3).map(|_| node.link(network)).collect();
        Life { node, links, posted: [0; 3], answered: [0; 3], seen: [0; 3] }
    }

    fn post(&mut self, network: &Network, link: usize, timeout: Duration) -> (Ticket, u64) {
        self.posted[link] += 1;
        let op = Op::Write { offset: WORD + link * 8, words: vec![self.posted[link]] };
        (network.post(&self.links[link], op, timeout), self.posted[link])
    }

    /// Whether no word has decreased.
    fn only_rises(&mut self) -> bool {
        let before = self.seen;
        self.seen = [0, 1, 2].map(|link| self.node.region.load(WORD + link * 8));
        (0..3).all(|link| before[link] <= self.seen[link])
    }
}

struct Node {
    region: Region,
}

impl Node {
    fn start(network: &Network, name: &str) -> Node {
        let host = Host::Sim(network.host(name));
        let spec = RegionSpec {
            name,
            kind: RegionKind::Raw,
            len: 1024,
            access: Access::Atomic,
            instance: Instance::alone(1),
        };
        Node { region: host.expose(&spec, |_| {}).unwrap() }
    }

    fn link(&self, network: &Network) -> SimLink {
        network.connect(self.region.key()).unwrap()
    }
}
