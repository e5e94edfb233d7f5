//! A thousand nodes, and as many workers as each proxy has, up to 64: they choose by memory that the test writes, as no machine runs so
//! many agents.

mod support;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::Ordering;

use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, Region, RegionSpec};
use sidelong_layout::{
    ChoiceMap, EncodedAddress, NodeId, Ownership, RegionKind, SLOTS, SiteId, Worker, WorkersMap,
};
use sidelong_load::monotonic_ns;
use sidelong_policy::admission::Verdict;
use support::httpd::readable;
use support::proxies::{EnvoysMemory, Kind, module, proxy};
use support::{Cluster, Running, eventually, get, try_get};

const NODES: usize = 1_000;
const WORKERS: usize = 64;
const CLIENTS: usize = 8;
const REQUESTS: usize = 500;

#[test]
fn sixty_four_workers_of_nginx_count_at_a_thousand_nodes() {
    // By the kernel's hash each worker gets its share of connections.
    let many = [("worker_processes 2;", "worker_processes 64;"), (":8080;", ":8080 reuseport;")];
    count_at_a_thousand_nodes(Kind::Nginx, "proxy.conf", &many, WORKERS..=WORKERS);
}

/// The kernel says which of them get connections.
#[test]
fn workers_of_httpd_count_at_a_thousand_nodes() {
    let many = "StartServers 64\nServerLimit 64\nMaxRequestWorkers 64\nMinSpareThreads 64\nMaxSpareThreads 64\nThreadsPerChild 1";
    let many = [("StartServers 2\nThreadsPerChild 25", many)];
    count_at_a_thousand_nodes(Kind::Httpd, "proxy.conf", &many, 2..=WORKERS);
}

/// All its threads count as one worker.
#[test]
fn an_envoy_counts_at_a_thousand_nodes() {
    count_at_a_thousand_nodes(Kind::Envoy, "proxy.yaml", &[], 1..=1);
}

/// All its threads count as one worker.
#[test]
fn a_haproxy_counts_at_a_thousand_nodes() {
    let one_site = [("    use_backend beta if { hdr(host) beta.test }\n", "")];
    count_at_a_thousand_nodes(Kind::HaproxyByChoice, "proxy.cfg", &one_site, 1..=1);
}

/// Each request is answered and counted, by that `number` of workers. Words of the proxy's configuration, which is this file, are replaced first.
fn count_at_a_thousand_nodes(kind: Kind, file: &str, words: &[(&str, &str)], number: RangeInclusive<usize>) {
    let mut cluster = Cluster::new(&[("alpha", NODES)]).foreign();
    cluster.file.edges.clear();
    cluster.file.fronts.push(kind.front(&cluster, "web1"));
    let Some(module) = module(&cluster, kind) else { return };
    let _servers = servers(&cluster);
    let workers = offer(&cluster);

    let command = proxy(&cluster, kind, cluster.at(8080), &module);
    let _memory = EnvoysMemory::of(&cluster);
    let file = cluster.path("proxy").join(file);
    let mut text = std::fs::read_to_string(&file).unwrap();
    for (one, other) in words {
        assert!(text.contains(one), "{text}");
        text = text.replace(one, other);
    }
    std::fs::write(&file, text).unwrap();
    let proxy = Running::start_command(command);
    eventually("the proxy answers", || {
        try_get(cluster.at(8080), "alpha.test", "/").is_ok_and(|reply| reply.status == 200)
    });

    let counted = || Counted::at(&cluster, &workers, kind);
    let before: u64 = counted().answers.iter().sum();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                (0..REQUESTS).for_each(|_| assert_eq!(get(cluster.at(8080), "alpha.test", "/").status, 200));
            });
        }
    });
    eventually("no request is counted any more", || counted().in_flight == 0);
    let counted = counted();
    assert_eq!(counted.answers.iter().sum::<u64>() - before, (CLIENTS * REQUESTS) as u64);
    assert!(
        number.contains(&counted.workers),
        "each worker has a slot: {} have, of {number:?}",
        counted.workers
    );
    let nodes = counted.answers.iter().filter(|answers| **answers > 0).count();
    assert!(nodes > NODES / 2, "{nodes} nodes have answered");
    proxy.end();
}

/// What the workers have counted.
struct Counted {
    workers: usize,
    in_flight: u64,
    /// By node, the requests that it has answered.
    answers: Vec<u64>,
}

impl Counted {
    fn at(cluster: &Cluster, workers: &Region, kind: Kind) -> Self {
        let map = WorkersMap { nodes: NODES };
        let held: Vec<_> =
            (0..SLOTS).filter(|slot| Worker::decode(workers.load(map.owner(*slot))).is_some()).collect();
        let sum = |of: &dyn Fn(usize) -> usize| held.iter().map(|slot| workers.load(of(*slot))).sum::<u64>();
        let nodes = || (0..NODES).map(NodeId::new);
        // A HAProxy counts its requests in memory until they are answered, and the answers by itself.
        let (in_flight, answers) = match kind.is_haproxy() {
            true => {
                let sent = nodes().map(|node| workers.load(map.sent(node)));
                (sent.fold(0, u64::wrapping_add), answered_by_haproxy(cluster))
            }
            false => {
                let in_flight = nodes()
                    .map(|node| sum(&|slot| map.in_flight(slot, node)) + workers.load(map.uncounted(node)));
                (in_flight.sum(), nodes().map(|node| sum(&|slot| map.answers(slot, node))).collect())
            }
        };
        Counted { workers: held.len(), in_flight, answers }
    }
}

/// By server, its sessions as HAProxy tells them on its socket.
fn answered_by_haproxy(cluster: &Cluster) -> Vec<u64> {
    let mut socket = UnixStream::connect(cluster.path("admin.sock")).unwrap();
    socket.write_all(b"show stat\n").unwrap();
    let mut listed = String::new();
    socket.read_to_string(&mut listed).unwrap();
    let servers = listed.lines().filter(|line| line.starts_with("alpha,n"));
    servers.map(|line| line.split(',').nth(7).unwrap().parse().unwrap()).collect()
}

/// Offers a front's two regions, and says for ever that all nodes serve the site and are idle. Returns that of the workers.
fn offer(cluster: &Cluster) -> Region {
    let directory = cluster.run_dir();
    std::fs::create_dir_all(&directory).unwrap();
    let host = Host::Shm(ShmHost::new(&directory));
    let offer = |name, kind, len| {
        let spec = RegionSpec { cluster: 0, name, kind, len, access: Access::ReadOnly, incarnation: 1 };
        host.offer(&spec, |_| ()).unwrap()
    };
    let map = ChoiceMap { nodes: NODES, sites: 1, servers: NODES };
    let choice = offer("web1.choice", RegionKind::Choice, map.len());
    let workers = offer("web1.workers", RegionKind::Workers, WorkersMap { nodes: NODES }.len());
    for name in ["choice", "workers"] {
        readable(&directory.join(format!("web1.{name}.region")), 0o666);
    }
    let say = |offset, word| choice.store(offset, word, Ordering::Release);
    say(ChoiceMap::STALE, u64::MAX);
    say(ChoiceMap::COUNTS, 1 << 32 | NODES as u64);
    say(ChoiceMap::SERVERS, NODES as u64);
    let site = SiteId::new(0);
    say(map.name(site), u64::from_le_bytes(*b"alpha\0\0\0"));
    say(map.verdict(site), Verdict::default().encode());
    for index in 0..NODES {
        let node = NodeId::new(index);
        say(map.ownership(node), Ownership::serving(site, 1).encode());
        for (word, value) in EncodedAddress::tcp(node, cluster.node(index)).0.iter().enumerate() {
            say(map.server(index) + word * 8, *value);
        }
    }
    for word in 0..NODES / 4 {
        say(map.list(site, word), (0..4).map(|i| (word as u64 * 4 + i) << (16 * i)).sum());
    }
    say(map.members(site), NODES as u64);
    say(ChoiceMap::TIME, monotonic_ns());
    workers
}

/// One nginx that answers at all nodes' addresses.
fn servers(cluster: &Cluster) -> Running {
    let directory = cluster.path("servers");
    std::fs::create_dir(&directory).unwrap();
    let mut listens = String::new();
    (0..NODES).for_each(|node| _ = writeln!(listens, "listen {};", cluster.node(node)));
    let text = format!(
        "daemon off;\npid {0}/pid;\nerror_log stderr;\nevents {{ worker_connections 4096; }}\nhttp {{\naccess_log off;\n\
         server {{\n{listens}return 200;\n}}\n}}\n",
        directory.display()
    );
    let file = directory.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&directory).arg("-c").arg(file).args(["-e", "stderr"]);
    let servers = Running::start_command(command);
    eventually("the servers answer", || {
        try_get(cluster.node(NODES - 1), "alpha.test", "/").is_ok_and(|reply| reply.status == 200)
    });
    servers
}
