use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use sidelong_fabric::shm::ShmHost;
use sidelong_layout::{RegionHeader, RegionKind, VERDICT};
use sidelong_load::monotonic_ns;
use sidelong_policy::admission::{Client, Treatment, Why, decide};
use sidelong_policy::balance::Candidates as _;
use sidelong_policy::health::{Failure, HealthSettings};
use sidelong_policy::index::{Capacity, Weights};

use super::*;

/// SplitMix64: the same numbers in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        sidelong_layout::mix64(self.0)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

const SITES: usize = 3;

/// Controls a proxy by the regions of the front of that name.
fn exposed(
    host: &Host,
    front: &str,
    cluster: &AdapterCluster,
    instance: Instance,
    now: Time,
) -> MemoryAdapter {
    let (regions, are_new) = MemoryAdapter::regions(host, front, cluster, instance).unwrap();
    MemoryAdapter::at(regions, are_new, cluster, now)
}

fn cluster(nodes: usize, balance: Balance) -> AdapterCluster {
    AdapterCluster {
        room: ChoiceMap { nodes, sites: SITES, servers: 0 },
        sites: (0..SITES).map(|site| format!("site{site}")).collect(),
        servers: Vec::new(),
        stale: Duration::from_secs(1),
        rotation: Duration::from_secs(10),
        balance,
        drain_max: Duration::from_secs(1),
        has_controlled: false,
    }
}

/// A view with nodes of every kind, as the front has shown it, and what has been sent since.
fn shown(
    random: &mut Random,
    nodes: usize,
    balance: Balance,
    directory: &Path,
    now: Time,
) -> (View, MemoryAdapter) {
    let host = Host::Shm(ShmHost::new(directory));
    let instance = Instance { cluster: 1, incarnation: random.next() };
    let mut adapter = exposed(&host, "web", &cluster(nodes, balance), instance, now);
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
        // Some may be tried again by now, and some are used if no other is.
        let ago = Duration::from_millis(random.below(100));
        let at = Time::from_ns(now.as_ns() - ago.as_nanos() as u64);
        match random.below(6) {
            0 => view.on_failure(node, at, Failure::Refused),
            1 => (0..3).for_each(|_| view.on_failure(node, at, Failure::Request(None))),
            _ => {}
        }
        view.hear(node, random.below(9) as u32, 0);
        adapter.nodes[index].sent = random.next();
    }
    view.heard(now);
    view.refreshed(now);
    view.relist();
    adapter.show(&view, None, now);
    for (index, at) in at.iter_mut().enumerate() {
        let (node, before) = (NodeId::new(index), at.in_flight);
        at.in_flight = random.below(20) as u32;
        view.take(node, now, at);
        let sent =
            adapter.nodes[index].sent.wrapping_add(u64::from(at.in_flight)).wrapping_sub(before.into());
        adapter.workers.store(adapter.workers_map.sent(node), sent, Ordering::Relaxed);
    }
    (view, adapter)
}

/// The program that `make -C fronts` makes of the C library.
fn made(directory: &Path, program: &str) -> PathBuf {
    let build = directory.join("build");
    let fronts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fronts");
    let mut make = Command::new("make");
    make.arg("-C").arg(fronts).arg(program).arg(format!("BUILD={}", build.display()));
    let made = make.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    build.join(program)
}

/// The C library that workers of other proxies use, and the edge's own choice, over random views.
#[test]
fn the_library_chooses_as_an_edge_does() {
    let directory = tempfile::tempdir().unwrap();
    let choose = made(directory.path(), "choose");
    let mut random = Random(7);
    let now = Time::from_ns(1_000_000_000_000);
    let mut chosen = 0;
    let balances = [Balance::Weighted, Balance::RoundRobin, Balance::LeastConnections, Balance::PowerOfTwo];
    for (round, nodes) in [1, 2, 5, 9, 64, 200, 1_000].into_iter().cycle().take(28).enumerate() {
        let balance = balances[round % balances.len()];
        let (view, _led) = shown(&mut random, nodes, balance, directory.path(), now);
        for site in (0..SITES).map(SiteId::new) {
            let asked: Vec<_> = (0..50).map(|_| (random.next() >> 1, random.next())).collect();
            let mut choose = Command::new(&choose);
            choose.arg(directory.path().join("web")).arg(format!("site{}", site.index()));
            choose.arg(now.as_ns().to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut choose = choose.spawn().unwrap();
            let mut lines = String::new();
            asked.iter().for_each(|(ticket, random)| writeln!(lines, "{ticket} {random}").unwrap());
            choose.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
            let said = String::from_utf8(choose.wait_with_output().unwrap().stdout).unwrap();
            let mut candidates = view.candidates(site, None, now);
            let expected: String = asked
                .iter()
                .map(|&(ticket, random)| match view.pick(&mut candidates, ticket, random) {
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

/// A node has left a site when files are truncated. Which nodes of the site a worker chooses then.
fn chosen_once_lost(files: &[&str]) -> [String; 2] {
    let directory = tempfile::tempdir().unwrap();
    let choose = made(directory.path(), "choose");
    let now = || Time::from_ns(monotonic_ns());
    let host = Host::Shm(ShmHost::new(directory.path()));
    let drain_max = Duration::from_millis(200);
    let cluster =
        AdapterCluster { stale: Duration::from_secs(60), drain_max, ..cluster(2, Balance::Weighted) };
    let (described, lives) = (cluster.clone(), AtomicU64::new(1));
    let exposes: Exposure = Box::new(move || {
        let instance = Instance::alone(lives.fetch_add(1, Ordering::Relaxed));
        MemoryAdapter::regions(&host, "web", &described, instance).map_err(|error| error.to_string())
    });
    let mut adapter = MemoryAdapter::exposed_by(exposes, &cluster, now()).unwrap();
    let view = View::new(2, SITES, Duration::from_secs(1), Balance::Weighted, HealthSettings::default());
    let [left, other] = [0, 1].map(NodeId::new);
    let serving = Ownership::serving(SiteId::new(0), 1);
    let show = |adapter: &mut MemoryAdapter, owned: Ownership| {
        for (node, owned) in [(left, owned), (other, serving)] {
            view.observe(node, Some(owned), sidelong_policy::index::Reading::default());
        }
        view.relist();
        adapter.show(&view, None, now());
    };
    show(&mut adapter, serving);
    let mut worker = Command::new(choose);
    worker.arg(directory.path().join("web")).args(["site0", &now().as_ns().to_string()]);
    let mut worker = worker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut asks, mut says) = (worker.stdin.take().unwrap(), BufReader::new(worker.stdout.take().unwrap()));
    let mut chosen = || {
        [0, 1].map(|ticket| {
            let mut line = String::new();
            writeln!(asks, "{ticket} 0").unwrap();
            says.read_line(&mut line).unwrap();
            line.trim().to_owned()
        })
    };
    assert_eq!(chosen(), ["0", "1"]);
    let draining = serving.draining_to(Some(SiteId::new(1))).unwrap();
    show(&mut adapter, draining);
    assert!(adapter.front(&view, left).is_some());

    for name in files {
        let path = directory.path().join(format!("web.{name}.region"));
        std::fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap();
    }
    let at_first = chosen();
    show(&mut adapter, draining);
    assert_eq!(
        adapter.front(&view, left),
        None,
        "a worker that has lost a file may send what is not counted"
    );
    // It makes the files anew, the worker finds them, and what that has sent meanwhile has ended once a drain may last no longer.
    let began = Instant::now();
    while adapter.front(&view, left).is_none() || chosen() != ["1", "1"] {
        assert!(began.elapsed() < Duration::from_secs(60), "the worker is not led again");
        std::thread::sleep(Duration::from_millis(10));
        adapter.count(&view, &[], now());
        show(&mut adapter, draining);
    }
    assert!(began.elapsed() >= drain_max);
    drop(asks);
    assert!(worker.wait().unwrap().success());
    at_first
}

#[test]
fn a_node_has_left_a_site_for_workers_that_lose_the_choice_too() {
    assert_eq!(chosen_once_lost(&["choice"]), ["1", "1"]);
    assert_eq!(chosen_once_lost(&["workers"]), ["1", "1"]);
    // Nothing says so: what the worker saw last may be long ago.
    assert_eq!(chosen_once_lost(&["workers", "choice"]), ["-1", "-1"]);
}

/// Also if a node has joined since, and was never read.
#[test]
fn workers_that_have_lost_files_are_led_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::Shm(ShmHost::new(directory.path()));
    let map = ChoiceMap { servers: 2, ..cluster(2, Balance::Weighted).room };
    let servers = (0..2).map(|node| (node, EncodedAddress([7, 0, node as u64]))).collect();
    let cluster = AdapterCluster { room: map, servers, ..cluster(2, Balance::Weighted) };
    let (described, lives) = (cluster.clone(), AtomicU64::new(1));
    let exposes: Exposure = Box::new(move || {
        let instance = Instance::alone(lives.fetch_add(1, Ordering::Relaxed));
        MemoryAdapter::regions(&host, "web", &described, instance).map_err(|error| error.to_string())
    });
    let at = |s| Time::from_ns(1).after(Duration::from_secs(s));
    let mut adapter = MemoryAdapter::exposed_by(exposes, &cluster, at(0)).unwrap();
    let view = View::new(2, SITES, Duration::from_secs(1), Balance::Weighted, HealthSettings::default());
    let serving = Ownership::serving(SiteId::new(0), 1);
    view.observe(NodeId::new(0), Some(serving), sidelong_policy::index::Reading::default());
    view.relist();
    let led_at = |adapter: &mut MemoryAdapter, now| {
        adapter.count(&view, &[], now);
        adapter.show(&view, None, now);
        adapter.choice.load(ChoiceMap::TIME)
    };
    assert_eq!(led_at(&mut adapter, at(0)), 0);
    assert_eq!(led_at(&mut adapter, at(2)), at(2).as_ns());
    for name in ["choice", "workers"] {
        let path = directory.path().join(format!("web.{name}.region"));
        std::fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap();
    }
    assert_eq!(led_at(&mut adapter, at(3)), at(3).as_ns());
}

#[test]
fn the_library_admits_as_an_edge_does() {
    const fn word(part: u64, turn: u64, why: u64) -> u64 {
        VERDICT.pack([part, turn, why])
    }
    const CIRCLE: u64 = 1 << 30;
    let directory = tempfile::tempdir().unwrap();
    let program = made(directory.path(), "decide");
    let names = ["alpha".to_owned(), "n".repeat(NAME_BYTES)];
    let stale = Duration::from_secs(60);
    let cluster =
        AdapterCluster { sites: names.iter().cloned().collect(), stale, ..cluster(1, Balance::Weighted) };
    let host = Host::Shm(ShmHost::new(directory.path()));
    let now = || Time::from_ns(monotonic_ns());
    let mut adapter = exposed(&host, "web", &cluster, Instance::alone(1), now());
    let set = |adapter: &mut MemoryAdapter, site: usize, word: u64| {
        adapter.choice.store(adapter.choice_map.verdict(SiteId::new(site)), word, Ordering::Relaxed);
        adapter.take_control(now());
    };
    let ips = ["127.0.0.1", "203.0.113.7", "::1", "2001:db8::1:2", "::ffff:203.0.113.7"];
    let addresses: Vec<SocketAddr> = (0..40u16)
        .map(|k| SocketAddr::new(ips[usize::from(k) % ips.len()].parse().unwrap(), 1000 + 977 * k))
        .collect();
    let asked = |site: &str, addresses: &[SocketAddr]| {
        let mut ask = Command::new(&program);
        ask.arg(directory.path().join("web")).arg(site);
        for address in addresses {
            ask.arg(address.ip().to_string()).arg(address.port().to_string());
        }
        let said = ask.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap()
    };
    for part in [0, 1, CIRCLE / 7, CIRCLE / 2, CIRCLE - 1, CIRCLE] {
        for (turn, why) in [(0, 3), (CIRCLE / 3, 4), (CIRCLE - 1, 5)] {
            let verdict = Verdict::decode(word(part, turn, why));
            let expected: String = addresses
                .iter()
                .map(|address| {
                    let client = Client::new(*address);
                    match decide(verdict, Treatment::ByConnection, client, 0, cluster.rotation) {
                        Ok(()) => format!("1 {} 0\n", verdict.why().word()),
                        Err(rejected) => format!("0 {} {}\n", rejected.why.word(), rejected.retry_after_s),
                    }
                })
                .collect();
            for (site, name) in names.iter().enumerate() {
                set(&mut adapter, site, verdict.encode());
                assert_eq!(asked(name, &addresses), expected, "{part} {turn} {why}");
            }
        }
    }
    let one = |site: &str| asked(site, &addresses[..1]);
    for (code, why) in Why::ALL.iter().enumerate() {
        set(&mut adapter, 0, word(CIRCLE, 0, code as u64));
        assert_eq!(one("alpha"), format!("1 {} 0\n", why.word()), "{why:?}");
    }
    set(&mut adapter, 0, word(0, 0, 3));
    assert!(one("alpha").starts_with("0 over-target"));
    assert_eq!(one("gamma"), "1 no-such-site 0\n");
    adapter.take_control(Time::from_ns(1));
    assert_eq!(one("alpha"), "1 stale-verdict 0\n");
    set(&mut adapter, 0, word(0, 0, 7));
    assert_eq!(one("alpha"), "1 no-target 0\n", "a word that is no verdict");
}

#[test]
fn the_library_leaves_regions_of_another_layout_alone() {
    let directory = tempfile::tempdir().unwrap();
    let program = made(directory.path(), "decide");
    let host = Host::Shm(ShmHost::new(directory.path()));
    let now = Time::from_ns(monotonic_ns());
    let cluster = cluster(1, Balance::Weighted);
    let _led = exposed(&host, "web", &cluster, Instance::alone(1), now);
    let said = || {
        let out = Command::new(&program).arg(directory.path().join("web")).arg("site0").output().unwrap();
        String::from_utf8(out.stderr).unwrap()
    };
    assert_eq!(said(), "");
    for (name, kind) in [("choice", RegionKind::Choice), ("workers", RegionKind::Workers)] {
        let path = directory.path().join(format!("web.{name}.region"));
        let file = std::fs::File::options().write(true).open(path).unwrap();
        let write = |hash: u64| {
            let at = std::mem::offset_of!(RegionHeader, layout_hash) as u64;
            file.write_all_at(&hash.to_le_bytes(), at).unwrap();
        };
        write(5);
        let (said, ours) = (said(), kind.layout_hash());
        let expected =
            format!("web.{name}.region: of layout 0x0000000000000005, this library reads {ours:#018x}");
        assert!(said.contains(&expected), "{said}");
        write(ours);
    }
}

#[test]
fn workers_are_led_once_all_nodes_were_read_or_some_do_not_answer() {
    let directory = tempfile::tempdir().unwrap();
    let at = |ms: u64| Time::from_ns(1_000_000_000_000 + ms * 1_000_000);
    let host = Host::Shm(ShmHost::new(directory.path()));
    let server = |place| (place, EncodedAddress([7, 0, place as u64]));
    let cluster = AdapterCluster {
        room: ChoiceMap { nodes: 3, sites: SITES, servers: 3 },
        // One slot is vacant.
        servers: vec![server(0), server(2)],
        drain_max: Duration::from_millis(400),
        has_controlled: true,
        ..cluster(3, Balance::Weighted)
    };
    let view = || View::new(3, SITES, Duration::from_secs(1), Balance::Weighted, HealthSettings::default());
    let read = |view: &View, node| {
        let own = Ownership::serving(SiteId::new(0), 1);
        view.observe(NodeId::new(node), Some(own), sidelong_policy::index::Reading::default());
    };
    let expose = |front: &str| exposed(&host, front, &cluster, Instance::alone(1), at(0));
    let scan = |adapter: &mut MemoryAdapter, view: &View, ms| {
        adapter.count(view, &[], at(ms));
        adapter.show(view, None, at(ms));
        (adapter.choice.load(ChoiceMap::TIME) == at(ms).as_ns(), adapter.is_whole())
    };
    let (mut web, all) = (expose("web"), view());
    read(&all, 0);
    assert_eq!(scan(&mut web, &all, 10), (false, false));
    read(&all, 2);
    assert_eq!(scan(&mut web, &all, 20), (true, false));
    assert_eq!(scan(&mut web, &all, 390), (true, false), "workers may have gone by older memory");
    assert_eq!(scan(&mut web, &all, 420), (true, true));

    let (mut other, some) = (expose("other"), view());
    read(&some, 0);
    // What a front that ended has told stays until then.
    let told = other.choice_map.ownership(NodeId::new(2));
    other.choice.store(told, 77, Ordering::Relaxed);
    assert_eq!(scan(&mut other, &some, 500), (false, false), "the second begins with the first scan");
    assert_eq!(scan(&mut other, &some, 1_499), (false, false));
    assert_eq!(other.choice.load(told), 77);
    assert_eq!(scan(&mut other, &some, 1_500), (true, false));
    assert_eq!(other.choice.load(told), 0);
    assert_eq!(scan(&mut other, &some, 1_899), (true, false));
    assert_eq!(scan(&mut other, &some, 1_900), (true, true));
}

/// The clock of a scan is as old as the scan, which takes longer while a machine does not answer.
#[test]
fn a_trial_that_began_after_the_scan_is_noted_by_a_later_one() {
    let directory = tempfile::tempdir().unwrap();
    let at = |ms: u64| Time::from_ns(1_000_000_000_000 + ms * 1_000_000);
    let (host, node) = (Host::Shm(ShmHost::new(directory.path())), NodeId::new(0));
    let cluster = cluster(1, Balance::Weighted);
    let mut adapter = exposed(&host, "web", &cluster, Instance::alone(1), at(0));
    let view = View::new(1, SITES, Duration::from_secs(1), Balance::Weighted, HealthSettings::default());
    view.on_failure(node, at(0), Failure::Refused);
    let refused = view.health(node);
    // A worker has found that it may be tried, 50 ms after the refusal.
    adapter.workers.store(adapter.workers_map.trial(node), refused.encode(), Ordering::Relaxed);
    adapter.count(&view, &[], at(49));
    assert_eq!(view.health(node), refused);
    adapter.count(&view, &[], at(51));
    assert_eq!(view.health(node), refused.trial(at(51), &HealthSettings::default()).unwrap());
    // Nothing came of it: another one may follow.
    assert_eq!(view.health(node).state(at(1_052)), sidelong_policy::health::State::Trial);
}

/// As behind HAProxy, which tells its count at times.
#[test]
fn what_was_sent_since_a_proxy_told_its_count_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let now = Time::from_ns(1_000_000_000_000);
    let (_, mut adapter) = shown(&mut Random(7), 2, Balance::Weighted, directory.path(), now);
    let send = |adapter: &MemoryAdapter, more: u64| {
        let sent = adapter.workers_map.sent(NodeId::new(1));
        adapter.workers.store(sent, adapter.workers.load(sent).wrapping_add(more), Ordering::Relaxed);
    };
    adapter.count_from_now();
    adapter.was_told();
    send(&adapter, 3);
    assert_eq!(adapter.more_than_told(1), 0, "as of the count");
    adapter.count_from_now();
    assert_eq!([adapter.more_than_told(0), adapter.more_than_told(1)], [0, 3]);
    // More have been answered than sent.
    send(&adapter, u64::MAX - 4);
    adapter.count_from_now();
    assert_eq!(adapter.more_than_told(1), -2);
    adapter.was_told();
    assert_eq!(adapter.more_than_told(1), 0);
}
