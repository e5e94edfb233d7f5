//! Real proxies of other makes, controlled by a front: what is asked of each of them is the same.

use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sidelong_config::{Configuration, Drain, FrontEntry, NodeEntry, Proxy};
use sidelong_layout::{ChoiceMap, LAYOUT_VERSION, NodeId, Ownership, SiteId};
use sidelong_policy::admission::Why;

use crate::support::foreign::move_to_and_fro;
use crate::support::proxies::{EnvoysMemory, Kind, ROOM, module, proxy, sent};
use crate::support::servers::{
    Load, family, gunicorn, haproxy_program, processes_of, requests_at, requests_of, sites_at_once,
};
use crate::support::words::write_word;
use crate::support::{
    Cluster, Running, eventually, get, metrics, run, skipped, stop_whole, try_get, until_it_succeeds,
};

mod envoys;

/// Where the version is in a region.
const VERSION: usize = 8;
/// The proxy's port, at the cluster's own address.
const PROXY: u16 = 8080;
const NAMES: [&str; 3] = ["one", "two", "three"];
/// Between requests of a client, so that clients leave the machine to what they watch.
const PAUSE: Duration = Duration::from_millis(5);

/// What is asked of each proxy. A new one is one more [`Kind`] and one more line.
macro_rules! conformance {
    ($($proxy:ident $kind:ident { $($property:ident)* })*) => {
        $(mod $proxy {
            $(
                #[test]
                fn $property() {
                    super::$property(super::Kind::$kind);
                }
            )*
        })*
    };
}

conformance! {
    nginx Nginx {
        nodes_move a_node_leaves_and_joins it_outlives_its_front a_worker_may_die agents_may_die it_may_be_reloaded its_files_may_be_lost
        files_of_another_version_are_none it_may_be_started_before_its_front a_choice_is_obeyed_at_once clients_are_rejected a_bad_url_takes_no_site_down
        a_server_that_is_taken_out_gets_no_requests a_module_for_another_version_is_refused
    }
    httpd Httpd {
        nodes_move a_node_leaves_and_joins it_outlives_its_front a_worker_may_die agents_may_die it_may_be_reloaded its_files_may_be_lost
        files_of_another_version_are_none it_may_be_started_before_its_front a_choice_is_obeyed_at_once clients_are_rejected a_bad_url_takes_no_site_down
        a_server_that_is_taken_out_gets_no_requests a_module_for_another_version_is_refused
    }
    envoy Envoy {
        nodes_move a_node_leaves_and_joins it_outlives_its_front a_worker_may_die agents_may_die it_may_be_reloaded its_files_may_be_lost
        files_of_another_version_are_none it_may_be_started_before_its_front a_choice_is_obeyed_at_once clients_are_rejected a_bad_url_takes_no_site_down
        a_server_that_is_taken_out_gets_no_requests a_module_for_another_version_is_refused
    }
    haproxy_by_choice HaproxyByChoice {
        nodes_move a_node_leaves_and_joins it_outlives_its_front a_worker_may_die agents_may_die it_may_be_reloaded its_files_may_be_lost
        files_of_another_version_are_none it_may_be_started_before_its_front a_choice_is_obeyed_at_once clients_are_rejected a_bad_url_takes_no_site_down
    }
    haproxy_by_weights HaproxyByWeights { nodes_move a_node_leaves_and_joins it_outlives_its_front a_worker_may_die agents_may_die a_bad_url_takes_no_site_down }
}

/// A site with one server and a site with two, `up` on their agents and on the front of a proxy, and that proxy.
struct Controlled {
    cluster: Cluster,
    kind: Kind,
    module: PathBuf,
    proxy: Option<Running>,
    /// How often Envoy was restarted.
    epoch: u32,
    servers: Vec<Running>,
    up: Option<Running>,
    _memory: EnvoysMemory,
}

impl Controlled {
    /// `None`, with a printed reason, if a program is missing.
    fn start(kind: Kind, change: impl FnOnce(&mut Cluster)) -> Option<Controlled> {
        let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 2)]).foreign();
        cluster.file.edges.clear();
        let front = FrontEntry { admin: Some(cluster.at(9001)), ..kind.front_of_workers(&cluster, "web1") };
        cluster.file.fronts.push(front);
        cluster.file.nodes.iter_mut().for_each(|node| node.workers = Some(4));
        // The servers' answers take 100 ms, and a busy machine's time. For as long no node leaves a HAProxy that was started.
        let drain_s = if kind.is_haproxy() { 10 } else { 30 };
        cluster.file.reconfig.drain_max = Duration::from_secs(drain_s);
        change(&mut cluster);
        let module = module(kind)?;
        let started = NAMES.iter().zip(0..).map(|(name, node)| {
            let address = cluster.file.nodes[node].server.clone().unwrap();
            gunicorn(&cluster, name, address, 4)
        });
        let servers = started.collect::<Option<Vec<_>>>()?;
        let up = cluster.up(&["--plain"]);
        let _memory = EnvoysMemory::of(&cluster);
        let mut controlled =
            Controlled { cluster, kind, module, proxy: None, epoch: 0, servers, up: Some(up), _memory };
        eventually("the front runs", || controlled.up.as_ref().unwrap().err().contains(" is up: "));
        controlled.proxy = Some(controlled.start_proxy());
        controlled.await_serving();
        Some(controlled)
    }

    fn address(&self) -> SocketAddr {
        self.cluster.at(PROXY)
    }

    fn start_proxy(&self) -> Running {
        Running::start_command(proxy(&self.cluster, self.kind, self.address(), &self.module))
    }

    fn await_serving(&self) {
        for site in ["alpha.test", "beta.test"] {
            eventually("the proxy serves each site", || {
                try_get(self.address(), site, "/0").is_ok_and(|reply| reply.status == 200)
            });
        }
    }

    fn config(&self) -> String {
        self.cluster.path("cluster.toml").to_str().unwrap().to_owned()
    }

    fn ask(&self, site: &'static str, clients: usize) -> Load {
        Load::start(self.address(), site, Duration::from_millis(100), clients)
    }

    /// A node is moved a few times under load of both sites, or as often as SIDELONG_MOVES says. By hand: how many requests a
    /// server takes is learned, and with it whether a site can spare one, which is not what this is about.
    fn go_to_and_fro(&self) {
        let _load = ["alpha.test", "beta.test"].map(|site| self.ask(site, 8));
        // None leaves a HAProxy that has just been started, and a move waits no longer than that.
        for site in ["alpha", "beta"] {
            until_it_succeeds(|| run(["move", "n2", site, "--config", &self.config()]));
        }
        move_to_and_fro(&self.cluster);
    }

    /// Requests to both sites, all of which must be answered by servers of their site.
    fn watch(&self) -> Watched {
        Watched::start(self.address())
    }

    /// Kills the processes that send requests.
    fn kill_workers(&mut self) {
        match self.kind.is_single() {
            true => self.kill_all(),
            false => kill_children(self.proxy.as_ref().unwrap()),
        }
    }

    /// Kills all processes of the proxy, and starts it again.
    fn kill_all(&mut self) {
        let proxy = self.proxy.take().unwrap();
        // Before their parent, which would start others.
        kill_process(proxy.pid(), Signal::STOP).unwrap();
        kill_children(&proxy);
        proxy.kill();
        self.proxy = Some(self.start_proxy());
    }

    /// Makes the proxy read its configuration again. Its old processes end when they have no requests any more.
    fn reload(&mut self) {
        let old = self.proxy.take().unwrap();
        self.proxy = Some(match self.kind {
            Kind::HaproxyByWeights | Kind::HaproxyByChoice => {
                let mut command = proxy(&self.cluster, self.kind, self.address(), &self.module);
                command.arg("-sf").arg(old.pid().as_raw_nonzero().to_string());
                let new = Running::start_command(command);
                old.finish().succeeded();
                new
            }
            Kind::Envoy => {
                let mut command = proxy(&self.cluster, self.kind, self.address(), &self.module);
                self.epoch += 1;
                command.args(["--restart-epoch", &self.epoch.to_string()]);
                let new = Running::start_command(command);
                old.finish().succeeded();
                new
            }
            Kind::Nginx | Kind::Httpd => {
                let before = family(&old);
                old.signal(if self.kind == Kind::Nginx { Signal::HUP } else { Signal::USR1 });
                eventually("it has new workers", || family(&old).iter().any(|one| !before.contains(one)));
                old
            }
        });
    }

    fn front(&self) -> Pid {
        self.cluster.find("front", "web1").pid()
    }

    /// A file of the front.
    fn region(&self, name: &str) -> PathBuf {
        let dir = self.cluster.file.fronts[0].dir.clone().unwrap_or_else(|| self.cluster.run_dir());
        dir.join(format!("web1.{name}.region"))
    }

    fn end(mut self) {
        self.proxy.take().map(Running::end);
        self.up.take().unwrap().end().succeeded();
        let seen = NAMES.map(|name| sites_at_once(&self.cluster, name));
        assert!(seen.iter().all(|(most, _)| *most <= 1), "requests of two sites at once: {seen:?}");
        drop(self.servers);
    }
}

/// Kills the children of a proxy's first process.
fn kill_children(proxy: &Running) {
    family(proxy).into_iter().skip(1).for_each(|worker| _ = kill_process(worker, Signal::KILL));
}

/// Nodes move by hand alone.
fn by_hand(cluster: &mut Cluster) {
    cluster.file.baseline.configuration = Configuration::Rigid;
}

/// What a front says, changed by hand: it is stopped, and what it said counts on.
struct Words {
    front: Pid,
    file: std::fs::File,
    before: Vec<u8>,
}

impl Words {
    fn take(controlled: &Controlled) -> Self {
        let front = controlled.front();
        stop_whole(front);
        let path = controlled.region("choice");
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let words = Words { front, file, before: std::fs::read(path).unwrap() };
        words.say(ChoiceMap::STALE, u64::MAX);
        words
    }

    fn say(&self, offset: usize, word: u64) {
        write_word(&self.file, offset, word);
    }

    fn give_back(self) {
        self.file.write_all_at(&self.before, 0).unwrap();
        kill_process(self.front, Signal::CONT).unwrap();
    }
}

/// Clients whose every request must be answered.
struct Watched {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Watched {
    fn start(address: SocketAddr) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let client = |site: &'static str| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            std::thread::spawn(move || {
                let mut failed = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match try_get(address, site, "/1") {
                        Ok(reply) if reply.status == 200 => _ = answered.fetch_add(1, Ordering::Relaxed),
                        other => failed.push(format!("{site}: {other:?}")),
                    }
                    std::thread::sleep(PAUSE);
                }
                failed
            })
        };
        let clients = ["alpha.test", "beta.test"].map(client).into();
        Watched { stop, answered, clients }
    }

    /// Waits until some more requests were answered.
    fn go_on(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        eventually("requests are answered", || self.answered.load(Ordering::Relaxed) > before + 50);
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let failed: Vec<_> = self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        assert!(failed.is_empty(), "{} requests failed, the first: {}", failed.len(), failed[0]);
    }
}

/// The node that moves has an IPv6 address, and the others have none.
fn by_hand_and_both_families(cluster: &mut Cluster) {
    by_hand(cluster);
    match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()) {
        Ok(address) => cluster.file.nodes[1].server = Some(address.into()),
        Err(error) => skipped(&format!("fronts: nodes with IPv6 addresses: ::1 cannot be bound: {error}")),
    }
}

/// Servers close at its requests, and answer all others.
fn a_bad_url_takes_no_site_down(kind: Kind) {
    let Some(controlled) = Controlled::start(kind, by_hand) else { return };
    let (address, stop) = (controlled.address(), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for site in ["alpha.test", "alpha.test", "beta.test", "beta.test"] {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let reply = try_get(address, site, "/closed");
                    assert!(reply.is_ok_and(|reply| (502..=504).contains(&reply.status)), "{site}");
                    std::thread::sleep(PAUSE);
                }
            });
        }
        let watched = controlled.watch();
        (0..4).for_each(|_| watched.go_on());
        stop.store(true, Ordering::Relaxed);
        watched.end();
    });
    controlled.end();
}

/// No server has requests of two sites at once, though nodes move under load.
/// The proxy's configuration names its server all the time.
fn a_node_leaves_and_joins(kind: Kind) {
    let Some(mut controlled) = Controlled::start(kind, by_hand) else { return };
    let watched = controlled.watch();
    let reload = |controlled: &Controlled| {
        controlled.cluster.config();
        until_it_succeeds(|| run(["reload", "--wait", "--config", &controlled.config()]))
    };
    let mut agents = Vec::new();
    for (index, old, new) in [(2, "n3", "n3"), (1, "n2", "n2"), (2, "n3", "n9")] {
        let node = controlled.cluster.file.nodes.remove(index);
        controlled.cluster.file.sites[1].nodes = 1;
        reload(&controlled);
        let had = requests_at(&controlled.cluster, NAMES[index]);
        (0..4).for_each(|_| watched.go_on());
        assert_eq!(requests_at(&controlled.cluster, NAMES[index]), had, "{old} has left");
        controlled.cluster.file.nodes.insert(index, NodeEntry { name: new.to_owned(), ..node });
        let said = reload(&controlled);
        assert!(
            said.contains(&format!("of web1 has no server of {new} yet: give it the lines of")),
            "{said}"
        );
        agents.push(controlled.cluster.part("node", new));
        until_it_succeeds(|| run(["move", new, "beta", "--config", &controlled.config()]));
        eventually("it gets requests again", || requests_at(&controlled.cluster, NAMES[index]) > had);
    }
    watched.end();
    controlled.end();
}

fn nodes_move(kind: Kind) {
    let Some(controlled) = Controlled::start(kind, by_hand_and_both_families) else { return };
    controlled.go_to_and_fro();
    let said = until_it_succeeds(|| run(["front", "check", "web1", "--config", &controlled.config()]));
    match kind.reads_memory() {
        true => {
            let are_asking = said.contains(" worker of ") && said.contains(" asks it: ")
                || said.contains(" workers of ") && said.contains(" ask it: ");
            assert!(said.contains("front web1 runs") && are_asking, "{said}");
        }
        false => {
            assert!(said.contains("backend alpha of site alpha\n    node n1 is server n1, weight "), "{said}")
        }
    }
    controlled.end();
}

/// Without a front the proxy goes on with the sites' last nodes, and no node moves.
fn it_outlives_its_front(kind: Kind) {
    let Some(controlled) = Controlled::start(kind, by_hand) else { return };
    let watched = controlled.watch();
    watched.go_on();
    let front = controlled.front();
    kill_process(front, Signal::STOP).unwrap();
    // Longer than its choice counts.
    std::thread::sleep(2 * controlled.cluster.file.load.stale);
    watched.go_on();
    let moved = run(["move", "n2", "alpha", "--config", &controlled.config()]);
    assert_eq!(moved.code, Some(2), "a node moved, and nobody knows which requests it has: {moved:?}");
    kill_process(front, Signal::KILL).unwrap();
    watched.go_on();
    until_it_succeeds(|| run(["front", "check", "web1", "--config", &controlled.config()]));
    watched.go_on();
    until_it_succeeds(|| run(["move", "n2", "alpha", "--config", &controlled.config()]));
    watched.go_on();
    watched.end();
    controlled.end();
}

/// A worker that dies, and a proxy, has no requests any more, and keeps no node from moving.
fn a_worker_may_die(kind: Kind) {
    let Some(mut controlled) = Controlled::start(kind, by_hand) else { return };
    let config = controlled.config();
    let load = controlled.ask("beta.test", 8);
    let kill: [fn(&mut Controlled); 3] =
        [Controlled::kill_workers, Controlled::kill_all, Controlled::kill_workers];
    for (to, kill) in ["alpha", "beta", "alpha"].into_iter().zip(kill) {
        kill(&mut controlled);
        until_it_succeeds(|| run(["move", "n2", to, "--config", &config]));
    }
    drop(load);
    controlled.await_serving();
    controlled.proxy.as_ref().unwrap().signal(Signal::TERM);
}

/// The servers go on when the agents beside them are killed: so do their requests, whichever agent it is, also that of a site's only
/// server. Nodes move again once the agents are back.
fn agents_may_die(kind: Kind) {
    let Some(controlled) = Controlled::start(kind, by_hand) else { return };
    let watched = controlled.watch();
    for node in ["n1", "n2", "n3"] {
        watched.go_on();
        let agent = controlled.cluster.find("node", node);
        agent.kill();
        watched.go_on();
        eventually("another one runs", || controlled.cluster.find("node", node) != agent);
    }
    for to in ["alpha", "beta"] {
        until_it_succeeds(|| run(["move", "n2", to, "--config", &controlled.config()]));
        watched.go_on();
    }
    watched.end();
    controlled.end();
}

/// While the proxy is reloaded, requests are answered, by servers of their site, and nodes move.
fn it_may_be_reloaded(kind: Kind) {
    let Some(mut controlled) = Controlled::start(kind, by_hand) else { return };
    let _load = ["alpha.test", "beta.test"].map(|site| controlled.ask(site, 4));
    for to in ["alpha", "beta", "alpha", "beta"] {
        controlled.reload();
        until_it_succeeds(|| run(["move", "n2", to, "--config", &controlled.config()]));
    }
    drop(_load);
    controlled.await_serving();
    controlled.end();
}

/// Whatever becomes of a file, no worker ends and no request fails; the front makes it anew.
fn its_files_may_be_lost(kind: Kind) {
    let Some(controlled) = Controlled::start(kind, by_hand) else { return };
    let watched = controlled.watch();
    for region in ["choice", "workers"] {
        let file = controlled.region(region);
        for destroy in [
            |file: &Path| std::fs::File::options().write(true).open(file).unwrap().set_len(0).unwrap(),
            |file: &Path| std::fs::remove_file(file).unwrap(),
        ] {
            let before = std::fs::metadata(&file).unwrap().ino();
            destroy(&file);
            eventually("the front makes it anew", || {
                std::fs::metadata(&file).is_ok_and(|found| found.ino() != before && found.len() > 0)
            });
            until_it_succeeds(|| run(["front", "check", "web1", "--config", &controlled.config()]));
            watched.go_on();
        }
    }
    watched.end();
    controlled.end();
}

/// A proxy that finds files of another version says so and leaves them alone. It is controlled once they are right.
fn files_of_another_version_are_none(kind: Kind) {
    let Some(mut controlled) = Controlled::start(kind, by_hand) else { return };
    controlled.proxy.take().unwrap().end();
    let front = controlled.front();
    stop_whole(front);
    let versions = |version: u32| {
        for region in ["choice", "workers"] {
            let file = std::fs::File::options().write(true).open(controlled.region(region)).unwrap();
            file.write_all_at(&version.to_le_bytes(), VERSION as u64).unwrap();
        }
    };
    versions(LAYOUT_VERSION + 1);
    let proxy = controlled.start_proxy();
    eventually("it answers", || try_get(controlled.address(), "beta.test", "/0").is_ok());
    let said = format!("of layout version {}", LAYOUT_VERSION + 1);
    eventually("it says so", || proxy.err().contains(&said));
    versions(LAYOUT_VERSION);
    kill_process(front, Signal::CONT).unwrap();
    controlled.proxy = Some(proxy);
    controlled.await_serving();
    eventually("the proxy asks the front", || {
        try_get(controlled.address(), "beta.test", "/0").unwrap();
        run(["front", "check", "web1", "--config", &controlled.config()]).code == Some(0)
    });
    controlled.end();
}

/// A proxy does not start with a module that was made for another version of it, and says why.
fn a_module_for_another_version_is_refused(kind: Kind) {
    let mut cluster = Cluster::new(&[("alpha", 1)]).foreign();
    cluster.file.edges.clear();
    cluster.file.fronts.push(kind.front(&cluster, "web1"));
    let Some(module) = module(kind) else { return };
    // The signature of nginx's build, httpd's API, and a function of Envoy, which of another ABI's number only warns.
    let (made_for, says) = match kind {
        Kind::Nginx => (&b"8,4,8,"[..], "is not binary compatible"),
        Kind::Httpd => (&b"42PA"[..], "compiled for a different Apache version"),
        Kind::Envoy => (&b"envoy_dynamic_module_callback_http_get_header"[..], "undefined symbol"),
        Kind::HaproxyByWeights | Kind::HaproxyByChoice => unreachable!("its Lua has no version to compare"),
    };
    let mut bytes = std::fs::read(&module).unwrap();
    let found: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(made_for)).collect();
    assert!(!found.is_empty());
    found.into_iter().for_each(|at| bytes[at] += 1);
    let other = cluster.path("other");
    std::fs::create_dir(&other).unwrap();
    let other = other.join(module.file_name().unwrap());
    std::fs::write(&other, bytes).unwrap();
    let done = Running::start_command(proxy(&cluster, kind, cluster.at(PROXY), &other)).finish();
    assert_ne!(done.code, Some(0));
    assert!(done.err.contains(says), "{}", done.err);
}

/// A proxy that is started before its front answers, and is controlled once the front is there.
fn it_may_be_started_before_its_front(kind: Kind) {
    let Some(mut controlled) = Controlled::start(kind, by_hand) else { return };
    controlled.proxy.take().unwrap().end();
    let front = controlled.front();
    kill_process(front, Signal::STOP).unwrap();
    let files = ["choice", "workers"].map(|region| controlled.region(region));
    let away = |file: &Path| file.with_extension("away");
    files.iter().for_each(|file| std::fs::rename(file, away(file)).unwrap());
    controlled.proxy = Some(controlled.start_proxy());
    eventually("it answers", || try_get(controlled.address(), "beta.test", "/0").is_ok());
    files.iter().for_each(|file| std::fs::rename(away(file), file).unwrap());
    kill_process(front, Signal::CONT).unwrap();
    controlled.await_serving();
    eventually("the proxy asks the front", || {
        try_get(controlled.address(), "beta.test", "/0").unwrap();
        run(["front", "check", "web1", "--config", &controlled.config()]).code == Some(0)
    });
    controlled.end();
}

/// Clients that the front does not admit to a site are rejected, and those of other sites are not.
fn clients_are_rejected(kind: Kind) {
    let with_a_target = |cluster: &mut Cluster| {
        by_hand(cluster);
        cluster.file.sites[1].response_p99 = Some(Duration::from_secs(60));
    };
    let Some(controlled) = Controlled::start(kind, with_a_target) else { return };
    let words = Words::take(&controlled);
    words.say(ROOM.verdict(SiteId::new(1)), Why::OverTarget as u64);
    let reply = get(controlled.address(), "beta.test", "/0");
    assert_eq!((reply.status, reply.header("x-sidelong-reason")), (503, Some("over-target")), "{reply:?}");
    assert!(
        reply.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().unwrap() > 0),
        "{reply:?}"
    );
    assert_eq!(get(controlled.address(), "alpha.test", "/0").status, 200);
    words.give_back();
    controlled.await_serving();
    controlled.end();
}

/// What the front says is obeyed by the next request, at whatever moment it changes under load: a few times, or as often as
/// SIDELONG_FLIPS says.
fn a_choice_is_obeyed_at_once(kind: Kind) {
    let Some(controlled) = Controlled::start(kind, by_hand) else { return };
    let _load = ["alpha.test", "beta.test"]
        .map(|site| Load::start(controlled.address(), site, Duration::from_millis(5), 2));
    let flips = std::env::var("SIDELONG_FLIPS").map_or(100, |flips| flips.parse().unwrap());
    let words = Words::take(&controlled);
    // n2 is on both lists, so that its ownership tells.
    for (site, nodes) in [(SiteId::new(0), 1 << 16), (SiteId::new(1), 2 << 16 | 1)] {
        words.say(ROOM.list(site, 0), nodes);
        words.say(ROOM.members(site), 2);
    }
    for flip in 0..flips {
        let (site, left) = [(0, "beta.test"), (1, "alpha.test")][flip % 2];
        words
            .say(ROOM.ownership(NodeId::new(1)), Ownership::serving(SiteId::new(site), flip as u64).encode());
        let reply = get(controlled.address(), left, "/0");
        assert!(reply.status == 200 && reply.body != "two", "flip {flip}: {reply:?} for {left}");
        std::thread::sleep(Duration::from_micros(flip as u64 * 997 % 7_000));
    }
    drop(_load);
    words.give_back();
    controlled.await_serving();
}

/// What a person has taken out in the proxy's own configuration stays out, wherever its node serves, while it moves a few times, or
/// as often as SIDELONG_MOVES says.
fn a_server_that_is_taken_out_gets_no_requests(kind: Kind) {
    let Some(mut controlled) = Controlled::start(kind, by_hand) else { return };
    controlled.proxy.take().unwrap().end();
    let address = controlled.cluster.node(1);
    let mut command = proxy(&controlled.cluster, kind, controlled.address(), &controlled.module);
    let (file, line, taken_out) = match kind {
        Kind::Nginx => ("nginx.conf", format!("server {address} max_fails=0;"), "server {} down;"),
        Kind::Httpd => (
            "httpd.conf",
            format!("BalancerMember http://{address} retry=0 connectiontimeout=1"),
            "BalancerMember http://{} status=+D",
        ),
        Kind::Envoy => {
            let line = format!("address: \"{}\", port_value: {} }} }} }}\n", address.ip(), address.port());
            ("proxy.yaml", line, "          health_status: UNHEALTHY\n")
        }
        Kind::HaproxyByWeights | Kind::HaproxyByChoice => {
            unreachable!("its servers are taken out as it runs")
        }
    };
    let file = controlled.cluster.path(&format!("proxy/{file}"));
    let text = std::fs::read_to_string(&file).unwrap();
    // In the pools of both sites.
    assert_eq!(text.matches(&line).count(), 2, "{text}");
    let taken_out = match kind {
        Kind::Envoy => line.clone() + taken_out,
        _ => taken_out.replace("{}", &address.to_string()),
    };
    std::fs::write(&file, text.replace(&line, &taken_out)).unwrap();
    if kind == Kind::Envoy {
        controlled.epoch = 0;
        command.args(["--restart-epoch", "0"]);
    }
    let log = requests_of(&controlled.cluster, "two");
    let before = std::fs::read(&log).unwrap_or_default();
    controlled.proxy = Some(Running::start_command(command));
    controlled.await_serving();
    let rounds = std::env::var("SIDELONG_MOVES").map_or(4, |moves| moves.parse().unwrap());
    for site in ["alpha", "beta"].into_iter().cycle().take(rounds) {
        until_it_succeeds(|| run(["move", "n2", site, "--config", &controlled.config()]));
        for _ in 0..10 {
            let reply = get(controlled.address(), &format!("{site}.test"), "/0");
            assert!(reply.status == 200 && reply.body != "two", "{reply:?}");
        }
    }
    assert_eq!(std::fs::read(&log).unwrap_or_default(), before, "n2 has got requests");
    controlled.end();
}

#[test]
fn a_front_that_is_not_in_the_file_is_refused() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    let refused = |cluster: &Cluster, words: &[&str]| {
        let config = cluster.config();
        run([&["front"], words, &["--config", config.to_str().unwrap()]].concat()).refused()
    };
    let said = refused(&cluster, &["web1"]);
    assert!(said.contains("has no front \"web1\"; it has no [[front]]"), "{said}");
    cluster.file.fronts.push(FrontEntry::new("web2", Proxy::Nginx));
    assert!(refused(&cluster, &["web1"]).contains("it has web2"));
    // One that nobody has started says which command does.
    let said = refused(&cluster, &["check", "web2"]);
    assert!(said.contains("`sidelong front web2` makes it"), "{said}");
}

/// From servers that run to a file with a front, and to the lines that the proxy needs.
#[test]
fn init_writes_a_file_with_a_front() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    for (make, line) in [
        ("nginx", "sidelong_admission"),
        ("httpd", "lbmethod=sidelong"),
        ("haproxy", "    server s2 127.0.0.1:2 weight 128\n"),
        ("envoy", "lb_policy_name: sidelong"),
        ("connect", "127.77.0.1:8000 site alpha\n"),
    ] {
        let file = cluster.path(&format!("{make}.toml"));
        let file = file.to_str().unwrap();
        let servers = ["--server", "127.0.0.1:1", "--server", "127.0.0.1:2"];
        let init =
            [&["init", "--host", "alpha.test", "--config", file, "--front", make], &servers[..]].concat();
        let said = run(init.clone()).succeeded();
        let lines = format!("sidelong front config web1 --config {file}");
        assert!(said.contains(&lines), "{said}");
        // Without a target nobody is rejected.
        let text = std::fs::read_to_string(file).unwrap();
        let without = run(lines.split(' ').skip(1)).succeeded();
        assert!(make == "nginx" || without.contains(line), "{without}");
        assert!(!without.contains("admission") && !without.contains("deny"), "{without}");
        std::fs::write(file, text.replace("# response_ms_p99", "response_ms_p99")).unwrap();
        let with = run(lines.split(' ').skip(1)).succeeded();
        let admits = ["sidelong_admission", "SidelongAdmission On", "http-request deny"];
        assert!(make == "connect" || admits.iter().any(|word| with.contains(word)), "{with}");
        assert!(with.contains(line), "{with}");
        let refused = run([&init[..], &["--listen", "127.0.0.1:1"]].concat());
        assert!(refused.code == Some(2) && refused.err.contains("cannot be used with"), "{refused:?}");
    }
}

#[test]
fn config_check_says_how_fronts_lead_and_which_of_them_cut_nothing() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.sites[0].drain = Drain::Cut;
    cluster
        .file
        .fronts
        .extend([Kind::HaproxyByWeights, Kind::Nginx].map(|kind| kind.front(&cluster, "web1")));
    cluster.file.fronts[1].name = "web2".into();
    let said = run(["config", "check", cluster.config().to_str().unwrap()]).succeeded();
    assert!(said.contains("front web1: haproxy, by \"weights\"\n"), "{said}");
    assert!(
        said.contains(
            "front web2: nginx, by \"choose\", which cuts no requests: drain = \"cut\" waits for them there\n"
        ),
        "{said}"
    );
}

/// `up --front`: nodes move under each proxy in place of the edges, which is started again if it dies, and none is left.
#[test]
fn up_runs_proxies_in_place_of_its_edges() {
    let makes = [
        ("nginx", Kind::Nginx),
        ("httpd", Kind::Httpd),
        ("haproxy", Kind::HaproxyByChoice),
        ("envoy", Kind::Envoy),
    ];
    for (make, kind) in makes {
        let cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]).with_load(256, None);
        let Some(module) = module(kind) else { continue };
        std::fs::create_dir(cluster.path("fronts")).unwrap();
        std::os::unix::fs::symlink(module.parent().unwrap(), cluster.path("fronts/build")).unwrap();
        let up = |more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sidelong"));
            command.current_dir(cluster.path("")).args(["up", "--json", "--front", make]).args(more);
            command.arg("--config").arg(cluster.config());
            let up = Running::start_command(command);
            eventually("it is up", || {
                let said = up.err();
                assert!(!said.contains("sidelong: --front"), "{said}");
                said.contains(" is up: ")
            });
            up
        };
        let moving = up(&[]);
        let proxies = || processes_of(&cluster, &format!("edge1-{make}"));
        let moves = || metrics(cluster.admin(0)).into_iter().chain(metrics(cluster.admin(1)));
        eventually("a node has moved", || {
            let counted = |name: &str| name.starts_with("sidelong_edge_moves_total{");
            moves().filter(|(name, _)| counted(name)).map(|(_, count)| count).sum::<f64>() > 0.0
        });
        let old = proxies();
        kill_process(Pid::from_raw(old[0].try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
        eventually("it runs again", || {
            let new = proxies();
            !new.is_empty() && !new.contains(&old[0])
        });
        eventually("it answers again", || {
            try_get(cluster.edge(0), "beta.test", "/o/1/1").is_ok_and(|reply| reply.status == 200)
        });
        let summary = moving.end().json();
        assert!(summary["requests"].as_u64() > Some(0) && summary["moves"].as_u64() > Some(0), "{summary}");
        assert!(proxies().is_empty() && !cluster.run_dir().join("foreign").exists(), "{make}");

        for by in ["choose", "own", "shared"] {
            let left = up(&["--by", by]);
            for site in ["alpha.test", "beta.test"] {
                eventually("it serves each site", || {
                    try_get(cluster.edge(1), site, "/o/1/1").is_ok_and(|reply| reply.status == 200)
                });
            }
            let memory = cluster.run_dir().join("edge2.workers.region");
            assert_eq!(memory.exists(), by == "choose");
            if by == "choose" && make == "haproxy" {
                eventually("requests under way were chosen in memory", || {
                    sent(&memory, 4).iter().sum::<u64>() > 0
                });
            }
            let summary = left.end().json();
            assert_eq!(summary["errors"].as_u64(), Some(0), "{make} by {by}: {summary}");
            assert!(by == "choose" || summary["moves"].as_u64() == Some(0), "{summary}");
        }
    }
}

#[test]
fn up_refuses_a_proxy_in_place_of_an_edge_with_settings_that_it_cannot_have() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.edges[1].proxy_protocol = true;
    if haproxy_program().is_none() {
        skipped("up --front haproxy: no haproxy here; Debian's package haproxy has it");
        return;
    }
    let said = cluster.run(&["up", "--front", "haproxy"]).refused();
    assert!(said.contains("edge edge2 has settings for an edge of Sidelong alone"), "{said}");
}

/// Programs that use the library, in C and in Python: their requests follow a node.
#[test]
fn examples_send_their_requests_where_the_front_chooses() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 2)]).foreign();
    cluster.file.edges.clear();
    cluster.file.fronts.push(FrontEntry::new("web1", Proxy::Library));
    by_hand(&mut cluster);
    let prefix = cluster.path("installed");
    let mut install = Command::new("make");
    install.arg("-C").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fronts")).arg("install");
    install.args(
        [("BUILD", cluster.path("build")), ("PREFIX", prefix.clone())]
            .map(|(name, path)| format!("{name}={}", path.display())),
    );
    Running::start_command(install).finish().succeeded();
    let compiled = cluster.path("fetch");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fronts/examples");
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Werror"]).arg(sources.join("fetch.c")).arg("-o").arg(&compiled);
    compile.arg(format!("-I{}/include", prefix.display())).arg(format!("-L{}/lib", prefix.display()));
    compile.arg("-lsidelong");
    Running::start_command(compile).finish().succeeded();
    let servers: Option<Vec<_>> = NAMES
        .iter()
        .zip(0..)
        .map(|(name, node)| gunicorn(&cluster, name, cluster.file.nodes[node].server.clone().unwrap(), 2))
        .collect();
    let Some(_servers) = servers else { return };
    let up = cluster.up(&["--plain"]);
    eventually("the front runs", || up.err().contains(" is up: "));

    let python = Path::new("python3").to_owned();
    let fetch = |program: &Path, site: &str| {
        let mut fetch = Command::new(program);
        if program == python {
            fetch.arg(sources.join("fetch.py"));
        }
        fetch.env("LD_LIBRARY_PATH", prefix.join("lib"));
        fetch.arg(cluster.run_dir().join("web1")).args([site, &format!("{site}.test")]);
        fetch.args((0..3).map(|node| cluster.node(node).to_string()));
        Running::start_command(fetch).finish()
    };
    for program in [&compiled, &python] {
        until_it_succeeds(|| fetch(program, "beta"));
        for (to, of_beta) in [("alpha", &["three"][..]), ("beta", &["two", "three"])] {
            let config = cluster.config();
            let to_there = ["move", "n2", to, "--config", config.to_str().unwrap()];
            until_it_succeeds(|| run(to_there));
            for _ in 0..8 {
                let answer = until_it_succeeds(|| fetch(program, "beta"));
                assert!(of_beta.iter().any(|name| answer.trim_end().ends_with(name)), "{answer}");
            }
        }
        let said = fetch(program, "gamma");
        assert!(said.code == Some(1) && said.err.contains("no server of gamma is usable"), "{said:?}");
    }
    up.end().succeeded();
}
