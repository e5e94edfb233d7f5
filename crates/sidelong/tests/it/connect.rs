//! A front without a proxy: programs in the kernel send connections to a site's address to a node.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Signal, geteuid};
use sidelong_config::{Configuration, FrontEntry, Proxy};
use sidelong_layout::{ChoiceMap, NodeId, Ownership, SiteId};

use crate::support::servers::readable;
use crate::support::servers::{Load, gunicorn, last_request, sites_at_once};
use crate::support::thousand::{Agents, NODES, agents, servers, two_sites};
use crate::support::{
    Cluster, PATIENCE, Running, eventually, skipped, stop_whole, try_get, until_it_succeeds,
};

/// Ports of the sites' addresses, at which nothing listens.
const ALPHA: u16 = 8081;
const BETA: u16 = 8082;

/// A BPF file system of its own. Whatever is pinned in it goes with it.
struct PinPlace(PathBuf);

impl PinPlace {
    fn mount(cluster: &Cluster) -> Option<Self> {
        let path = cluster.path("bpf");
        std::fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&path).output();
        if mounted.is_ok_and(|done| done.status.success()) {
            return Some(PinPlace(path));
        }
        skipped("connect: no BPF file system can be mounted here; root may do so");
        None
    }

    fn front(&self) -> PathBuf {
        self.0.join("front1")
    }

    fn pinned(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.front()).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }
}

impl Drop for PinPlace {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

/// A control group of version 2 without processes, removed when this is dropped.
struct Group(PathBuf);

impl Group {
    fn create(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().find_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            (fields[2] == "cgroup2").then(|| PathBuf::from(fields[1]))
        });
        let path = root?.join(format!("sidelong-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).ok().map(|()| Group(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A server of each node that tells its name to each client, and then echoes.
fn echo(address: SocketAddr, name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut client = client;
                writeln!(client, "{name}")?;
                std::io::copy(&mut client.try_clone()?, &mut client)
            });
        }
    });
    address
}

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

/// n1 at alpha, n2 and n3 at beta, and the front. Nodes move by hand alone. Dropped in this order: nothing can be unmounted that
/// a process uses, and no directory be removed that something is mounted in.
struct Controlled {
    front: Running,
    _agents: Vec<Running>,
    servers: Vec<Running>,
    pins: PinPlace,
    cluster: Cluster,
}

fn new_cluster() -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 2)]).foreign();
    cluster.file.edges.clear();
    cluster.file.baseline.configuration = Configuration::Rigid;
    cluster.file.reconfig.drain_max = Duration::from_secs(2);
    cluster.file.nodes.iter_mut().for_each(|node| node.workers = Some(4));
    cluster.file.sites[0].connect = Some(cluster.at(ALPHA));
    cluster.file.sites[1].connect = Some(cluster.at(BETA));
    cluster.file.fronts = vec![FrontEntry::new("front1", Proxy::Connect)];
    cluster
}

impl Controlled {
    /// With servers that echo; `None`, with a printed reason, where no programs can be loaded.
    fn echoing(change: impl FnOnce(&mut Cluster)) -> Option<Self> {
        let mut cluster = new_cluster();
        change(&mut cluster);
        for (node, name) in NAMES.iter().enumerate() {
            echo(cluster.node(node), name);
        }
        Controlled::start(cluster, Vec::new())
    }

    fn start(mut cluster: Cluster, servers: Vec<Running>) -> Option<Self> {
        let pins = PinPlace::mount(&cluster)?;
        cluster.file.fronts[0].dir = Some(pins.front());
        let agents = NAMES.map(|node| cluster.part("node", node)).into();
        let front = front(&cluster)?;
        let controlled = Controlled { front, _agents: agents, servers, pins, cluster };
        for site in &controlled.cluster.file.sites {
            let address = site.connect.unwrap();
            if site.connect == Some(controlled.cluster.at(ALPHA))
                || site.connect == Some(controlled.cluster.at(BETA))
            {
                eventually("each site is served", || TcpStream::connect(address).is_ok());
            }
        }
        Some(controlled)
    }

    fn moves(&self, node: &str, site: &str) {
        until_it_succeeds(|| self.cluster.run(&["move", node, site]));
    }

    /// The connections of each node.
    fn connections(&self) -> Vec<u64> {
        counted(&until_it_succeeds(|| self.cluster.run(&["front", "check", "front1"])))
    }

    fn await_connections(&self, expected: [u64; 3]) {
        eventually("all are counted", || self.connections() == expected);
    }

    /// Ends the front, after which nothing is left.
    fn end(self) -> Cluster {
        self.await_connections([0; 3]);
        self.front.end().succeeded();
        assert!(!self.pins.front().exists(), "left: {:?}", self.pins.pinned());
        self.cluster
    }
}

/// The front, once it is in control; `None`, with a printed reason, where no programs can be loaded.
fn front(cluster: &Cluster) -> Option<Running> {
    let mut front = cluster.part("front", "front1");
    let mut is_up = false;
    eventually("the front runs or is refused", || {
        is_up = cluster.run(&["front", "check", "front1"]).code == Some(0);
        is_up || !front.is_running()
    });
    if is_up {
        return Some(front);
    }
    skipped(&format!("connect: {}", front.finish().refused()));
    None
}

/// By node, its connections as `front check` tells them.
fn counted(said: &str) -> Vec<u64> {
    let counts = said.lines().filter_map(|line| line.strip_suffix(" connections")?.rsplit(' ').next());
    counts.map(|count| count.parse().unwrap()).collect()
}

/// A connection, and the name of the node that it leads to.
fn connect(address: SocketAddr) -> (BufReader<TcpStream>, String) {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = BufReader::new(stream);
    let mut name = String::new();
    stream.read_line(&mut name).unwrap();
    (stream, name.trim().to_owned())
}

/// A PostgreSQL for each node, of one set of databases; `None`, with a printed reason, without PostgreSQL.
fn postgresqls(cluster: &Cluster) -> Option<Vec<Running>> {
    let mut versions: Vec<_> =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().collect();
    versions.sort_by_key(|version| version.file_name());
    let programs = versions.last().map(|version| version.path().join("bin"));
    let Some(programs) = programs.filter(|programs| programs.join("pgbench").exists()) else {
        skipped("connect: no PostgreSQL here; Debian's package postgresql has it");
        return None;
    };
    let dir = cluster.path("postgresql");
    std::fs::create_dir(&dir).unwrap();
    // It refuses to be root.
    let user = geteuid().is_root().then_some("postgres");
    if let Some(user) = user {
        dir.ancestors().take(2).for_each(|path| readable(path, 0o755));
        Running::start_command(as_user(None, "chown", &[user.as_ref(), dir.as_os_str()]))
            .finish()
            .succeeded();
    }
    let first = dir.join("n1");
    let made = ["-A", "trust", "-U", "postgres", "--no-sync", "-D"].map(OsStr::new);
    let command = as_user(user, programs.join("initdb"), &[&made[..], &[first.as_os_str()]].concat());
    Running::start_command(command).finish().succeeded();
    let data = NAMES.map(|name| dir.join(name));
    for copied in &data[1..] {
        let copy = as_user(user, "cp", &["-a".as_ref(), first.as_os_str(), copied.as_os_str()]);
        Running::start_command(copy).finish().succeeded();
    }
    let servers = data.iter().enumerate().map(|(node, data)| {
        let address = cluster.node(node);
        let [ip, port] = [address.ip().to_string(), address.port().to_string()];
        let mut server = as_user(user, programs.join("postgres"), &["-D".as_ref(), data.as_os_str()]);
        server.args(["-F", "-k", "", "-h", &ip, "-p", &port]);
        let server = Running::start_command(server);
        eventually("PostgreSQL answers", || TcpStream::connect(address).is_ok());
        server
    });
    Some(servers.collect())
}

/// A program that is run by a user, or by that of this test.
fn as_user(user: Option<&str>, program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(if user.is_some() { "setpriv".as_ref() } else { program.as_ref() });
    if let Some(user) = user {
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(program.as_ref());
    }
    command.args(arguments);
    command
}

/// Each transaction of PostgreSQL's own benchmark connects anew. Nodes move meanwhile, and none fails.
#[test]
fn transactions_of_postgresql_follow_a_node() {
    let cluster = new_cluster();
    let Some(servers) = postgresqls(&cluster) else { return };
    let Some(mut controlled) = Controlled::start(cluster, servers) else { return };
    // Which server it is, by its own word.
    let asked = |controlled: &Controlled, port: u16| {
        let address = controlled.cluster.at(port);
        let mut psql = Command::new("psql");
        psql.args(["-h", &address.ip().to_string(), "-p", &port.to_string(), "-U", "postgres", "-At", "-c"]);
        psql.arg("show port");
        Running::start_command(psql).finish().succeeded().trim().parse::<u16>().unwrap()
    };
    assert_eq!(asked(&controlled, ALPHA), controlled.cluster.node(0).port());
    let script = controlled.cluster.path("transaction.sql");
    std::fs::write(&script, "select pg_sleep(0.01);\n").unwrap();
    let load = [ALPHA, BETA].map(|port| {
        let address = controlled.cluster.at(port);
        let mut pgbench = Command::new("pgbench");
        pgbench.args(["-h", &address.ip().to_string(), "-p", &port.to_string(), "-U", "postgres"]);
        pgbench.args(["-n", "-C", "-c", "2", "-t", "150", "-f"]).arg(&script).arg("postgres");
        Running::start_command(pgbench)
    });
    for site in ["alpha", "beta", "alpha"] {
        controlled.moves("n2", site);
        let port = if site == "alpha" { ALPHA } else { BETA };
        let n2 = controlled.cluster.node(1).port();
        eventually("a transaction follows", || asked(&controlled, port) == n2);
    }
    for load in load {
        let said = load.finish().succeeded();
        assert!(
            said.contains("actually processed: 300/300") && said.contains("failed transactions: 0 "),
            "{said}"
        );
    }
    controlled.await_connections([0; 3]);
    for server in std::mem::take(&mut controlled.servers) {
        // Without waiting for anybody.
        server.signal(Signal::INT);
        server.finish();
    }
    controlled.end();
}

/// A gunicorn for each node; `None`, with a printed reason, without gunicorn.
fn gunicorns(cluster: &Cluster) -> Option<Vec<Running>> {
    let servers = NAMES.iter().enumerate();
    servers.map(|(node, name)| gunicorn(cluster, name, cluster.node(node), 4)).collect()
}

#[test]
fn connections_go_to_the_sites_nodes_and_are_counted_until_they_end() {
    let Some(controlled) = Controlled::echoing(|_| ()) else { return };
    let said = controlled.cluster.run(&["front", "config", "front1"]).succeeded();
    assert_eq!(
        said,
        format!("{} site alpha\n{} site beta\n", controlled.cluster.at(ALPHA), controlled.cluster.at(BETA))
    );
    controlled.await_connections([0; 3]);

    let (mut one, name) = connect(controlled.cluster.at(ALPHA));
    assert_eq!(name, "n1");
    one.get_mut().write_all(b"hello\n").unwrap();
    let mut echoed = String::new();
    one.read_line(&mut echoed).unwrap();
    assert_eq!(echoed, "hello\n");
    controlled.await_connections([1, 0, 0]);

    // Each goes to the node with fewer connections.
    let several: Vec<_> = (0..10).map(|_| connect(controlled.cluster.at(BETA))).collect();
    controlled.await_connections([1, 5, 5]);
    assert!(several.iter().all(|(_, name)| name == "n2" || name == "n3"));
    drop(several);
    controlled.await_connections([1, 0, 0]);

    // A duplicate is the same connection.
    let copy = one.get_ref().try_clone().unwrap();
    drop(one);
    controlled.await_connections([1, 0, 0]);
    drop(copy);

    controlled.end();
}

/// A program that opens `count` connections to an address, and keeps them.
fn keeping(address: SocketAddr, count: usize, family: &str, group: Option<&Path>) -> Running {
    let host = if family == "AF_INET6" && address.is_ipv4() {
        format!("::ffff:{}", address.ip())
    } else {
        address.ip().to_string()
    };
    let join = group
        .map_or(String::new(), |group| format!("open('{}/cgroup.procs', 'w').write('0'); ", group.display()));
    let text = format!(
        "import os, socket, time; {join}kept = [socket.socket(socket.{family}) for _ in range({count})]; \
         [one.connect(('{host}', {})) for one in kept]; \
         print(kept[0].makefile().readline().strip(), flush=True); os.fork(); time.sleep(1000)",
        address.port()
    );
    let mut command = Command::new("python3");
    command.arg("-c").arg(text);
    Running::start_command(command)
}

#[test]
fn a_killed_client_counts_no_longer() {
    let Some(controlled) = Controlled::echoing(|_| ()) else { return };
    let client = keeping(controlled.cluster.at(ALPHA), 5, "AF_INET", None);
    controlled.await_connections([5, 0, 0]);
    crate::support::servers::signal_all(&client, Signal::KILL);
    controlled.await_connections([0; 3]);

    // An IPv4 address by way of IPv6, as some languages do.
    let client = keeping(controlled.cluster.at(ALPHA), 2, "AF_INET6", None);
    controlled.await_connections([2, 0, 0]);
    assert_eq!(client.out().trim(), "n1");
    crate::support::servers::signal_all(&client, Signal::KILL);
    controlled.end();
}

/// Connections that end in all ways, on all CPUs at once.
#[test]
fn a_storm_of_connections_leaves_no_count() {
    let Some(controlled) = Controlled::echoing(|_| ()) else { return };
    let address = controlled.cluster.at(BETA);
    let client = |_| {
        std::thread::spawn(move || {
            for number in 0..1_000 {
                let stream = TcpStream::connect(address).unwrap();
                // The server keeps up.
                (&stream).read_exact(&mut [0]).unwrap();
                match number % 4 {
                    0 => _ = stream.shutdown(Shutdown::Write),
                    1 => _ = (&stream).write_all(b"not read\n"),
                    2 => _ = set_socket_linger(&stream, Some(Duration::ZERO)),
                    _ => {}
                }
            }
        })
    };
    let clients: Vec<_> = (0..8).map(client).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    controlled.end();
}

/// What the front says, changed by hand ten thousand times while the front is stopped: no connection that begins afterwards goes by
/// what it said before.
#[test]
fn a_choice_is_obeyed_at_once() {
    const FLIPS: u64 = 10_000;
    const SITES: [SiteId; 2] = [SiteId::new(0), SiteId::new(1)];
    let Some(controlled) = Controlled::echoing(|_| ()) else { return };
    stop_whole(controlled.front.pid());
    let map = crate::support::proxies::ROOM;
    let choice = MapHandle::from_pinned_path(controlled.pins.front().join("choice")).unwrap();
    let word = |offset: usize| ((offset / 8) as u32).to_ne_bytes();
    let said = |offset: usize| {
        u64::from_ne_bytes(choice.lookup(&word(offset), MapFlags::ANY).unwrap().unwrap().try_into().unwrap())
    };
    let say = |offset: usize, value: u64| {
        choice.update(&word(offset), &value.to_ne_bytes(), MapFlags::ANY).unwrap();
    };
    // n1 and n2 are on both lists, so that ownership alone tells, and change places each time.
    let nodes = [0, 1].map(NodeId::new);
    let lists = SITES.map(|site| [(map.list(site, 0), 1 << 16), (map.members(site), 2)]).concat();
    let owned = nodes.map(|node| map.ownership(node));
    let changed = lists.iter().map(|(offset, _)| *offset).chain(owned).chain([ChoiceMap::STALE]);
    let before: Vec<_> = changed.map(|offset| (offset, said(offset))).collect();
    say(ChoiceMap::STALE, u64::MAX);
    lists.iter().for_each(|(offset, value)| say(*offset, *value));
    for flip in 0..FLIPS {
        let (now, left) = (flip as usize % 2, (flip as usize + 1) % 2);
        say(owned[0], Ownership::serving(SITES[left], flip).encode());
        say(owned[1], Ownership::serving(SITES[now], flip).encode());
        let names = [left, now].map(|site| connect(controlled.cluster.at([ALPHA, BETA][site])).1);
        assert_eq!(names, ["n1", "n2"], "flip {flip}");
    }
    before.iter().for_each(|(offset, value)| say(*offset, *value));
    controlled.front.signal(Signal::CONT);
    controlled.end();
}

/// No machine runs so many agents: their memory is written by the test.
#[test]
fn connections_spread_over_a_thousand_nodes() {
    let mut cluster = two_sites();
    (cluster.file.sites[0].connect, cluster.file.sites[1].connect) =
        (Some(cluster.at(ALPHA)), Some(cluster.at(BETA)));
    let Some(pins) = PinPlace::mount(&cluster) else { return };
    cluster.file.fronts =
        vec![FrontEntry { dir: Some(pins.front()), ..FrontEntry::new("front1", Proxy::Connect) }];
    let servers = servers(&cluster);
    let Some(front) = front(&cluster) else { return };
    let check = || cluster.run(&["front", "check", "front1"]);
    let mut agents = agents(&cluster);
    // What each node has of as many connections to a site as there are nodes.
    let counts = |agents: &mut Agents, port: u16| {
        agents.say_idle();
        let kept: Vec<_> = (0..NODES).filter_map(|_| TcpStream::connect(cluster.at(port)).ok()).collect();
        let counts = counted(&until_it_succeeds(check));
        assert_eq!((counts.len(), counts.iter().sum::<u64>()), (NODES, kept.len() as u64));
        drop(kept);
        eventually("none counts", || counted(&until_it_succeeds(check)).iter().all(|count| *count == 0));
        counts
    };
    let some = |counts: &[u64]| counts.iter().filter(|count| **count > 0).count();
    eventually("alpha's nodes have connections", || {
        let counts = counts(&mut agents, ALPHA);
        assert_eq!(counts[NODES - 1], 0, "of another site");
        some(&counts) > NODES / 2
    });
    let half = NODES / 2;
    (0..half).for_each(|node| agents.moves(node, SiteId::new(1)).unwrap());
    eventually("those that have moved have beta's, and the others alpha's", || {
        let (alpha, beta) = (counts(&mut agents, ALPHA), counts(&mut agents, BETA));
        some(&alpha[..half]) + some(&beta[half..NODES - 1]) == 0
            && some(&alpha[half..]) > half / 2
            && some(&beta[..half]) > half / 2
    });
    front.end().succeeded();
    assert!(!pins.front().exists(), "left: {:?}", pins.pinned());
    drop(servers);
}

#[test]
fn a_node_moves_once_its_connections_have_ended() {
    let Some(controlled) = Controlled::echoing(|_| ()) else { return };
    let mut kept = Vec::new();
    eventually("n2 has one", || {
        let (stream, name) = connect(controlled.cluster.at(BETA));
        kept.push(stream);
        name == "n2"
    });
    assert!(controlled.cluster.run(&["move", "n2", "alpha"]).refused().contains("had not ended"));
    drop(kept);
    controlled.moves("n2", "alpha");
    let kept: Vec<_> = (0..20).map(|_| connect(controlled.cluster.at(ALPHA))).collect();
    let names: Vec<_> = kept.iter().map(|(_, name)| name).collect();
    assert!(names.iter().any(|name| *name == "n2") && names.iter().all(|name| *name != "n3"), "{names:?}");
    drop(kept);
    controlled.end();
}

#[test]
fn requests_follow_a_node_and_none_of_its_old_site_is_left() {
    let cluster = new_cluster();
    let Some(servers) = gunicorns(&cluster) else { return };
    let Some(controlled) = Controlled::start(cluster, servers) else { return };
    let time = Duration::from_millis(50);
    let load = [
        Load::start(controlled.cluster.at(ALPHA), "alpha.test", time, 6),
        Load::start(controlled.cluster.at(BETA), "beta.test", time, 6),
    ];
    let moves = std::env::var("SIDELONG_MOVES").map_or(6, |moves| moves.parse().unwrap());
    for site in ["alpha", "beta"].into_iter().cycle().take(moves) {
        controlled.moves("n2", site);
        let host = format!("{site}.test");
        eventually("a request follows", || last_request(&controlled.cluster, "n2").as_ref() == Some(&host));
    }
    drop(load);
    let servers = controlled.servers.len();
    let cluster = controlled.end();
    let seen = NAMES.map(|name| sites_at_once(&cluster, name));
    assert!(seen.iter().all(|(most, _)| *most <= 1), "requests of two sites at once: {seen:?}");
    assert!(servers == 3 && seen[1].1 + 1 >= moves, "no request followed: {seen:?}");
}

#[test]
fn connections_go_on_without_the_front_and_the_next_one_knows_them() {
    let Some(mut controlled) = Controlled::echoing(|_| ()) else { return };
    let (kept, name) = connect(controlled.cluster.at(ALPHA));
    assert_eq!(name, "n1");
    let both = |kept: &[(BufReader<TcpStream>, String)]| {
        NAMES[1..].iter().all(|node| kept.iter().any(|(_, name)| name == node))
    };
    controlled.front.signal(Signal::STOP);
    std::thread::sleep(2 * controlled.cluster.file.load.stale);
    assert!(both(&(0..20).map(|_| connect(controlled.cluster.at(BETA))).collect::<Vec<_>>()), "it hangs");
    controlled.front.signal(Signal::KILL);
    eventually("it has ended", || !controlled.front.is_running());
    let refused = controlled.cluster.run(&["front", "check", "front1"]).refused();
    assert!(refused.contains("front front1 does not run, or hangs"), "{refused}");
    let without: Vec<_> = (0..20).map(|_| connect(controlled.cluster.at(BETA))).collect();
    assert!(both(&without), "it is gone");

    controlled.front = controlled.cluster.part("front", "front1");
    until_it_succeeds(|| controlled.cluster.run(&["front", "check", "front1"]));
    let counts = controlled.connections();
    assert_eq!((counts[0], counts[1] + counts[2]), (1, 20));
    assert!(
        controlled.cluster.run(&["drain", "n1"]).code == Some(2),
        "it has a connection of the former front's time"
    );
    drop((kept, without));
    controlled.moves("n2", "alpha");

    // A second one may not control the same programs.
    let refused = controlled.cluster.part("front", "front1").finish().refused();
    assert!(refused.contains("used by another process"), "{refused}");
    controlled.end();
}

#[test]
fn a_front_that_ends_directs_no_more_and_leaves_what_counts_to_the_next() {
    let Some(mut controlled) = Controlled::echoing(|_| ()) else { return };
    let (kept, _) = connect(controlled.cluster.at(ALPHA));
    controlled.await_connections([1, 0, 0]);
    let front = std::mem::replace(&mut controlled.front, Running::start_command(Command::new("true")));
    front.end().succeeded();
    assert_eq!(
        TcpStream::connect(controlled.cluster.at(ALPHA)).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    let mut left = controlled.pins.pinned();
    left.sort();
    assert_eq!(left, ["choice", "counts", "on_release", "on_state", "sockets"]);
    let refused = controlled.cluster.run(&["front", "check", "front1"]).refused();
    assert!(refused.contains("not attached to") && refused.contains("on_connect4, on_connect6"), "{refused}");
    controlled.front = controlled.cluster.part("front", "front1");
    until_it_succeeds(|| controlled.cluster.run(&["front", "check", "front1"]));
    controlled.await_connections([1, 0, 0]);
    drop(kept);
    controlled.end();
}

#[test]
fn only_the_control_group_is_led() {
    let Some(group) = Group::create("controlled") else {
        return skipped("connect: no control group of version 2 can be made here; root may do so");
    };
    let mut cluster = new_cluster();
    cluster.file.fronts[0].cgroup = Some(group.0.clone());
    let Some(pins) = PinPlace::mount(&cluster) else { return };
    cluster.file.fronts[0].dir = Some(pins.front());
    for (node, name) in NAMES.iter().enumerate() {
        echo(cluster.node(node), name);
    }
    let agents = NAMES.map(|node| cluster.part("node", node));
    let Some(front) = front(&cluster) else { return };
    let check = || cluster.run(&["front", "check", "front1"]);
    let client = keeping(cluster.at(ALPHA), 1, "AF_INET", Some(&group.0));
    eventually("a program in the group reaches the node", || client.out().trim() == "n1");
    let refused = TcpStream::connect(cluster.at(ALPHA)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    crate::support::servers::signal_all(&client, Signal::KILL);
    client.finish();
    eventually("it has ended", || until_it_succeeds(check).contains("node n1 has 0 connections"));
    front.end().succeeded();
    assert!(!pins.front().exists());
    drop(agents);
}

#[test]
fn ipv6_connections_are_led() {
    let mut cluster = new_cluster();
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return skipped("connect: no IPv6 here");
    }
    for (node, name) in cluster.file.nodes.iter_mut().zip(NAMES) {
        node.server = Some(echo((Ipv6Addr::LOCALHOST, 0).into(), name).into());
    }
    let sites: [SocketAddr; 2] = ["[fd77::1]:80".parse().unwrap(), "[fd77::2]:80".parse().unwrap()];
    for (site, address) in cluster.file.sites.iter_mut().zip(sites) {
        // Of this test alone.
        let port = 1024 + (std::process::id() % 60_000) as u16;
        site.connect = Some(SocketAddr::new(address.ip(), port));
    }
    let at = cluster.file.sites[0].connect.unwrap();
    let Some(controlled) = Controlled::start(cluster, Vec::new()) else { return };
    eventually("the site is served", || TcpStream::connect(at).is_ok());
    let (kept, name) = connect(at);
    assert_eq!(name, "n1");
    controlled.await_connections([1, 0, 0]);
    drop(kept);
    controlled.end();
}

/// A node whose server is gone gets no connections, and gets them again once it is back.
#[test]
fn a_node_that_refuses_connections_is_avoided_until_it_is_back() {
    let cluster = new_cluster();
    let Some(servers) = gunicorns(&cluster) else { return };
    let Some(mut controlled) = Controlled::start(cluster, servers) else { return };
    let gone = controlled.servers.remove(1);
    gone.end();
    let ask = || try_get(controlled.cluster.at(BETA), "beta.test", "/0");
    eventually("n2 has failed", || ask().is_err());
    let failed = (0..200).filter(|_| ask().is_err()).count();
    assert!(failed < 20, "{failed} of 200 connections went to a server that is gone");
    controlled.servers.insert(1, gunicorn(&controlled.cluster, "n2", controlled.cluster.node(1), 4).unwrap());
    // Meanwhile its site may have got another node, so that it may serve the other one.
    let at_other = || try_get(controlled.cluster.at(ALPHA), "alpha.test", "/0");
    eventually("n2 is back", || [ask(), at_other()].into_iter().flatten().any(|reply| reply.body == "n2"));
    controlled.end();
}

/// The site's server cannot do what is asked of it, so connections are refused.
#[test]
fn connections_beyond_a_sites_target_are_refused() {
    let mut cluster = new_cluster();
    cluster.file.sites[0].queue_max = Some(Duration::from_millis(5));
    cluster.file.nodes.iter_mut().for_each(|node| node.workers = Some(1));
    let servers =
        NAMES.iter().enumerate().map(|(node, name)| gunicorn(&cluster, name, cluster.node(node), 1));
    let Some(servers) = servers.collect::<Option<Vec<_>>>() else { return };
    let Some(controlled) = Controlled::start(cluster, servers) else { return };
    let load = Load::start(controlled.cluster.at(ALPHA), "alpha.test", Duration::from_millis(50), 20);
    eventually("connections are refused", || {
        let tried = TcpStream::connect(controlled.cluster.at(ALPHA));
        tried.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    drop(load);
    eventually("they are accepted again", || {
        (0..20).all(|_| try_get(controlled.cluster.at(ALPHA), "alpha.test", "/0").is_ok())
    });
    controlled.end();
}

/// What it keeps is CAP_BPF, to detach its programs, and root's CAP_DAC_OVERRIDE.
#[test]
fn a_front_keeps_no_capability_that_it_does_not_need() {
    const DAC_OVERRIDE: u64 = 1 << 1;
    const BPF: u64 = 1 << 39;
    let Some(controlled) = Controlled::echoing(|_| ()) else { return };
    let threads =
        std::fs::read_dir(format!("/proc/{}/task", controlled.front.pid().as_raw_nonzero())).unwrap();
    let mut seen = 0;
    for thread in threads {
        // One may end meanwhile.
        let Ok(status) = std::fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        let set = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        for name in ["CapEff:", "CapPrm:"] {
            assert_eq!(set(name) & !DAC_OVERRIDE, BPF, "{status}");
        }
        for name in ["CapInh:", "CapAmb:"] {
            assert_eq!(set(name), 0, "{status}");
        }
        seen += 1;
    }
    assert!(seen > 1, "{seen} threads");
    controlled.end();
}

/// As a user without privileges.
#[test]
fn without_capabilities_the_front_says_what_it_needs() {
    let mut cluster = new_cluster();
    cluster.file.fronts[0].dir = Some(cluster.path("bpf"));
    cluster.file.baseline.configuration = Configuration::default();
    let mut command = Command::new("setpriv");
    command.args([
        "--bounding-set=-all",
        "--inh-caps=-all",
        env!("CARGO_BIN_EXE_sidelong"),
        "front",
        "front1",
    ]);
    command.arg("--config").arg(cluster.config());
    let said = Running::start_command(command).finish().refused();
    if !rustix::process::geteuid().is_root() {
        return skipped(&format!("connect: only root can be without capabilities: {said}"));
    }
    let expected =
        "front front1: CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are missing: run it as root, or give it";
    assert!(said.contains(expected), "{said}");

    // A directory of another file system.
    let said = cluster.part("front", "front1").finish().refused();
    assert!(said.contains("is in no BPF file system"), "{said}");
    assert!(!cluster.path("bpf").exists());
}
