use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use sidelong_fabric::shm::ShmHost;
use sidelong_policy::balance::Candidates as _;
use sidelong_policy::health::{Failure, HealthSettings};
use sidelong_policy::index::{Capacity, Weights};

use super::*;

/// SplitMix64: the same numbers in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

const SITES: usize = 3;

fn cluster(nodes: usize, balance: Balance) -> LedCluster {
    LedCluster {
        sites: (0..SITES).map(|site| format!("site{site}")).collect(),
        nodes,
        servers: Vec::new(),
        stale: Duration::from_secs(1),
        rotation: Duration::from_secs(10),
        balance,
        drain_max: Duration::from_secs(1),
        has_led: false,
    }
}

/// A view with nodes of every kind, as the front has shown it, and what has been sent since.
fn shown(
    random: &mut Random,
    nodes: usize,
    balance: Balance,
    directory: &Path,
    now: Time,
) -> (View, LedByMemory) {
    let host = Host::Shm(ShmHost::new(directory));
    let mut led =
        LedByMemory::offer(&host, "web", &cluster(nodes, balance), (1, random.next()), now).unwrap();
    let view = View::new(nodes, SITES, Duration::from_secs(1), balance, HealthSettings::default());
    let mut at = vec![WorkersAt::default(); nodes];
    for (index, at) in at.iter_mut().enumerate() {
        let node = NodeId::new(index);
        at.in_flight = random.below(20) as u32;
        view.take(node, now, at);
        let site = SiteId::new(random.below(SITES as u64) as usize);
        let serving = Ownership::serving(site, random.below(1 << 36));
        let other = SiteId::new((site.index() + 1) % SITES);
        let ownership = match random.below(8) {
            0 => serving.draining_to(Some(other)).unwrap(),
            1 => serving.now(sidelong_layout::NodeState::Pinned, site),
            2 => serving.now(sidelong_layout::NodeState::Held, site),
            _ => serving,
        };
        let capacity = Capacity { workers: 1 + random.below(8) as u32, ..Capacity::default() };
        let reading = Weights::CONNECTIONS.read(None, &capacity, random.below(40) as u32);
        view.observe(node, Some(ownership), reading.counted_from(at.in_flight));
        if random.below(6) == 0 {
            // Some may be tried again by now.
            let ago = Duration::from_millis(random.below(100));
            view.on_failure(node, Time::from_ns(now.as_ns() - ago.as_nanos() as u64), Failure::Refused);
        }
        view.hear(node, random.below(9) as u32, 0);
        led.nodes[index].sent = random.next();
        led.nodes[index].sent_at_count = led.nodes[index].sent;
    }
    view.heard(now);
    view.refreshed(now);
    view.relist();
    led.show(&view, None, now);
    for (index, at) in at.iter_mut().enumerate() {
        let (node, before) = (NodeId::new(index), at.in_flight);
        at.in_flight = random.below(20) as u32;
        view.take(node, now, at);
        let sent = led.nodes[index].sent.wrapping_add(u64::from(at.in_flight)).wrapping_sub(before.into());
        led.workers.store(led.workers_map.sent(node), sent, Ordering::Relaxed);
    }
    (view, led)
}

/// The C library that workers of other proxies use, and the edge's own choice, over random views.
#[test]
fn the_library_chooses_as_an_edge_does() {
    let directory = tempfile::tempdir().unwrap();
    let build = directory.path().join("build");
    let fronts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fronts");
    let mut make = Command::new("make");
    make.arg("-C").arg(fronts).arg("choose").arg(format!("BUILD={}", build.display()));
    let made = make.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut random = Random(7);
    let now = Time::from_ns(1_000_000_000_000);
    let mut chosen = 0;
    let balances = [Balance::Weighted, Balance::RoundRobin, Balance::LeastConnections, Balance::PowerOfTwo];
    for (round, nodes) in [1, 2, 5, 9, 64, 200, 1_000].into_iter().cycle().take(28).enumerate() {
        let balance = balances[round % balances.len()];
        let (view, _led) = shown(&mut random, nodes, balance, directory.path(), now);
        for site in (0..SITES).map(SiteId::new) {
            let asked: Vec<_> = (0..50).map(|_| (random.next() >> 1, random.next())).collect();
            let mut choose = Command::new(build.join("choose"));
            choose.arg(directory.path().join("web")).arg(format!("site{}", site.index()));
            choose.arg(now.as_ns().to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut choose = choose.spawn().unwrap();
            let mut lines = String::new();
            asked.iter().for_each(|(ticket, random)| writeln!(lines, "{ticket} {random}").unwrap());
            choose.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
            let said = String::from_utf8(choose.wait_with_output().unwrap().stdout).unwrap();
            let candidates = view.candidates(site, None, now);
            let expected: String = asked
                .iter()
                .map(|&(ticket, random)| match balance.choose(&candidates, ticket, random) {
                    Some(candidate) => format!("{}\n", candidates.node(candidate).index()),
                    None => "-1\n".to_owned(),
                })
                .collect();
            assert_eq!(said, expected, "{balance} among {nodes} nodes, {} of the site", candidates.len());
            chosen += expected.lines().filter(|line| *line != "-1").count();
        }
    }
    assert!(chosen > 2_000, "{chosen} choices found a node");
}

/// As behind HAProxy, whose answers are older than the nodes' records.
#[test]
fn readings_may_be_newer_than_the_counts_of_requests() {
    let directory = tempfile::tempdir().unwrap();
    let now = Time::from_ns(1_000_000_000_000);
    let (view, mut led) = shown(&mut Random(7), 2, Balance::LeastConnections, directory.path(), now);
    let send = |led: &LedByMemory, requests| {
        for offset in [0, 1].map(|node| led.workers_map.sent(NodeId::new(node))) {
            led.workers.store(offset, led.workers.load(offset).wrapping_add(requests), Ordering::Relaxed);
        }
    };
    // What a worker adds to the reading, and what was sent between the count and the reading.
    let told = |led: &LedByMemory, node| {
        let node = NodeId::new(node);
        let (reading, requests) = (led.choice_map.reading(node), led.choice_map.requests(node));
        let (reading, requests) = (led.choice.load(reading) as u16, led.choice.load(requests) as u32);
        let sent = led.workers.load(led.workers_map.sent(node)) as u16;
        (sent.wrapping_sub(reading), requests - view.in_flight_of_all(node, now))
    };
    led.count_from_now();
    send(&led, 3);
    led.read_from_now(|node| node == 1);
    send(&led, 2);
    led.tell(&view, None, now);
    assert_eq!([told(&led, 0), told(&led, 1)], [(5, 0), (2, 3)]);
    led.count_from_now();
    led.tell(&view, None, now);
    assert_eq!([told(&led, 0), told(&led, 1)], [(0, 0), (0, 0)]);
}
