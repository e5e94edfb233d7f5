//! A thousand nodes and 64 workers: nginx chooses among them by memory that the test writes, as no machine runs so many agents.

mod support;

use std::fmt::Write as _;
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
use support::proxies::{Kind, module, proxy};
use support::{Cluster, Running, eventually, get, try_get};

const NODES: usize = 1_000;
const WORKERS: usize = 64;
const CLIENTS: usize = 8;
const REQUESTS: usize = 500;

#[test]
fn sixty_four_workers_of_nginx_count_at_a_thousand_nodes() {
    let mut cluster = Cluster::new(&[("alpha", NODES)]).foreign();
    cluster.file.edges.clear();
    cluster.file.fronts.push(Kind::Nginx.front(&cluster, "web1"));
    let Some(module) = module(&cluster, Kind::Nginx) else { return };
    let _servers = servers(&cluster);
    let workers = offer(&cluster);

    let command = proxy(&cluster, Kind::Nginx, cluster.at(8080), &module);
    let file = cluster.path("proxy/proxy.conf");
    // By the kernel's hash each worker gets its share of connections.
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("worker_processes 2;", &format!("worker_processes {WORKERS};"));
    std::fs::write(&file, text.replace(":8080;", ":8080 reuseport;")).unwrap();
    let nginx = Running::start_command(command);
    eventually("nginx answers", || {
        try_get(cluster.at(8080), "alpha.test", "/").is_ok_and(|reply| reply.status == 200)
    });

    let before = Counted::at(&workers);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                (0..REQUESTS).for_each(|_| assert_eq!(get(cluster.at(8080), "alpha.test", "/").status, 200));
            });
        }
    });
    eventually("no request is counted any more", || Counted::at(&workers).in_flight == 0);
    let counted = Counted::at(&workers);
    assert_eq!(counted.answers - before.answers, (CLIENTS * REQUESTS) as u64);
    assert_eq!(counted.workers, WORKERS, "each worker has a slot");
    assert!(counted.nodes > NODES / 2, "{} nodes have answered", counted.nodes);
    nginx.end();
}

/// What the workers have counted.
struct Counted {
    workers: usize,
    in_flight: u64,
    answers: u64,
    /// Nodes that have answered.
    nodes: usize,
}

impl Counted {
    fn at(workers: &Region) -> Self {
        let map = WorkersMap { nodes: NODES };
        let mut counted = Counted { workers: 0, in_flight: 0, answers: 0, nodes: 0 };
        let held: Vec<_> =
            (0..SLOTS).filter(|slot| Worker::decode(workers.load(map.owner(*slot))).is_some()).collect();
        counted.workers = held.len();
        for node in (0..NODES).map(NodeId::new) {
            let sum =
                |of: &dyn Fn(usize) -> usize| held.iter().map(|slot| workers.load(of(*slot))).sum::<u64>();
            counted.in_flight += sum(&|slot| map.in_flight(slot, node)) + workers.load(map.uncounted(node));
            let answers = sum(&|slot| map.answers(slot, node));
            counted.answers += answers;
            counted.nodes += usize::from(answers > 0);
        }
        counted
    }
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
