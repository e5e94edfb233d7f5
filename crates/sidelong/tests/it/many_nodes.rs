//! A thousand nodes, and as many workers as each proxy has, up to 64. No machine runs so many agents: the test writes the memory that
//! proxies choose by, or that a front reads.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, Region, RegionSpec};
use sidelong_layout::{
    ChoiceMap, EncodedAddress, Instance, NodeId, Ownership, RegionKind, SLOTS, SiteId, Worker, WorkersMap,
};
use sidelong_load::monotonic_ns;
use sidelong_policy::admission::Verdict;

use crate::support::proxies::{EnvoysMemory, Kind, ask_haproxy, module, proxy};
use crate::support::servers::readable;
use crate::support::thousand::{Agents, NODES, agents, servers, two_sites};
use crate::support::{Cluster, Running, SetOnDrop, eventually, get, try_get};

const WORKERS: usize = 64;
const CLIENTS: usize = 8;
const REQUESTS: usize = 500;

#[test]
fn sixty_four_workers_of_nginx_count_at_a_thousand_nodes() {
    // By the kernel's hash each worker gets its share of connections.
    let many = [("worker_processes 2;", "worker_processes 64;"), (":8080;", ":8080 reuseport;")];
    count_at_a_thousand_nodes(Kind::Nginx, "nginx.conf", &many, WORKERS..=WORKERS);
}

/// The kernel says which of them get connections.
#[test]
fn workers_of_httpd_count_at_a_thousand_nodes() {
    let many = "StartServers 64\nServerLimit 64\nMaxRequestWorkers 64\nMinSpareThreads 64\nMaxSpareThreads 64\nThreadsPerChild 1";
    let many = [("StartServers 2\nThreadsPerChild 25", many)];
    count_at_a_thousand_nodes(Kind::Httpd, "httpd.conf", &many, 2..=WORKERS);
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
    count_at_a_thousand_nodes(Kind::HaproxyByChoice, "haproxy.cfg", &one_site, 1..=1);
}

/// By weights: the front reads a thousand agents' memory, and HAProxy follows when half of the nodes change sites at once.
#[test]
fn a_haproxy_has_the_weights_of_a_thousand_nodes() {
    let mut cluster = two_sites();
    cluster.file.fronts.push(Kind::HaproxyByWeights.front(&cluster, "web1"));
    let Some(module) = module(Kind::HaproxyByWeights) else { return };
    let _servers = servers(&cluster);
    let front = cluster.part("front", "web1");
    let mut agents = agents(&cluster);
    let haproxy = Running::start_command(proxy(&cluster, Kind::HaproxyByWeights, cluster.at(8080), &module));
    eventually("HAProxy listens", || ask_haproxy(&cluster.path("admin.sock"), "show info").is_ok());
    let have = |agents: &mut Agents, alpha: usize, beta: usize| {
        eventually(&format!("alpha has {alpha} nodes, and beta {beta}"), || {
            agents.say_idle();
            [with_weight(&cluster, "alpha"), with_weight(&cluster, "beta")] == [alpha, beta]
        });
    };
    have(&mut agents, NODES - 1, 1);

    // No request fails meanwhile.
    let moved = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _at_the_end = SetOnDrop(&moved);
        for site in ["alpha.test", "beta.test"] {
            let (moved, address) = (&moved, cluster.at(8080));
            scope.spawn(move || {
                while !moved.load(Ordering::Relaxed) {
                    assert_eq!(get(address, site, "/").status, 200);
                }
            });
        }
        (0..NODES / 2).for_each(|node| agents.moves(node, SiteId::new(1)).unwrap());
        have(&mut agents, NODES / 2 - 1, NODES / 2 + 1);
        (0..NODES / 2).for_each(|node| agents.moves(node, SiteId::new(0)).unwrap());
        have(&mut agents, NODES - 1, 1);
    });
    front.end().succeeded();
    haproxy.end();
}

/// The servers of a site that HAProxy sends requests to, by its own word.
fn with_weight(cluster: &Cluster, site: &str) -> usize {
    let listed = ask_haproxy(&cluster.path("admin.sock"), &format!("show servers state {site}")).unwrap();
    let weights = listed.lines().filter(|line| line.contains(&format!(" {site} "))).map(|line| {
        // srv_uweight of HAProxy's management.txt.
        line.split(' ').nth(7).unwrap().parse::<u32>().unwrap()
    });
    weights.filter(|weight| *weight > 0).count()
}

/// Each request is answered and counted, by that `number` of workers. Words of the proxy's configuration, which is this file, are replaced first.
fn count_at_a_thousand_nodes(kind: Kind, file: &str, words: &[(&str, &str)], number: RangeInclusive<usize>) {
    let mut cluster = Cluster::new(&[("alpha", NODES)]).foreign();
    cluster.file.edges.clear();
    cluster.file.fronts.push(kind.front(&cluster, "web1"));
    let Some(module) = module(kind) else { return };
    let _servers = servers(&cluster);
    let workers = expose(&cluster);

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
    let listed = ask_haproxy(&cluster.path("admin.sock"), "show stat").unwrap();
    let servers = listed.lines().filter(|line| line.starts_with("alpha,n"));
    servers.map(|line| line.split(',').nth(7).unwrap().parse().unwrap()).collect()
}

/// Exposes a front's two regions, and says for ever that all nodes serve the site and are idle. Returns that of the workers.
fn expose(cluster: &Cluster) -> Region {
    let directory = cluster.run_dir();
    std::fs::create_dir_all(&directory).unwrap();
    let host = Host::Shm(ShmHost::new(&directory));
    let expose = |name, kind, len| {
        let spec = RegionSpec { name, kind, len, access: Access::ReadOnly, instance: Instance::alone(1) };
        host.expose(&spec, |_| ()).unwrap()
    };
    let map = ChoiceMap { nodes: NODES, sites: 1, servers: NODES };
    let choice = expose("web1.choice", RegionKind::Choice, map.len());
    let workers = expose("web1.workers", RegionKind::Workers, WorkersMap { nodes: NODES }.len());
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
