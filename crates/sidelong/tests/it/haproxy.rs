//! A front that controls a real HAProxy, with real servers behind it: what holds for HAProxy alone. The rest is in `fronts.rs`.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use sidelong_config::{Configuration, ControlledBy, Drain, NodeEntry};

use crate::support::proxies::{Kind, ask_haproxy, module, proxy, sent};
use crate::support::servers::{Load, gunicorn, haproxy_program, sites_at_once};
use crate::support::{Cluster, Running, eventually, get, try_get, until_it_succeeds};

const NAMES: [&str; 3] = ["one", "two", "three"];

/// n1 at alpha, n2 and n3 at beta, each a gunicorn of four workers; HAProxy, and the front that controls it. Nodes move by hand alone.
struct Controlled {
    cluster: Cluster,
    module: PathBuf,
    haproxy: Running,
    front: Running,
    _agents: Vec<Running>,
    _servers: Vec<Running>,
}

impl Controlled {
    /// `None`, with a printed reason, without HAProxy or gunicorn.
    fn start(kind: Kind) -> Option<Self> {
        Self::start_with(kind, |_| ())
    }

    fn start_with(kind: Kind, change: impl FnOnce(&mut Cluster)) -> Option<Self> {
        let (cluster, servers, agents) = parts(kind, "admin.sock", change)?;
        let module = module(kind)?;
        // HAProxy's Lua finds the front at once.
        let front = cluster.part("front", "front1");
        let haproxy = haproxy(&cluster, &module, &[]);
        let controlled = Controlled { cluster, module, haproxy, front, _agents: agents, _servers: servers };
        controlled.serves("n1", "alpha");
        controlled.serves("n2", "beta");
        Some(controlled)
    }

    /// HAProxy's answer to a command.
    fn ask(&self, command: &str) -> String {
        ask_haproxy(&self.cluster.path("admin.sock"), command).unwrap()
    }

    /// Whether HAProxy sends requests of a site to a node, by its weight.
    fn sends(&self, site: &str, node: &str) -> bool {
        let listed = self.ask(&format!("get weight be_{site}/{node}"));
        !listed.starts_with("0 ")
    }

    /// Waits until HAProxy sends a node the requests of this site, and of no other.
    fn serves(&self, node: &str, site: &str) {
        let is_it = || ["alpha", "beta"].iter().all(|one| self.sends(one, node) == (*one == site));
        eventually(&format!("{node} serves {site}"), is_it);
    }

    /// Moves a node, as often as it takes while its requests last longer than a move waits.
    fn moves(&self, node: &str, site: &str) {
        until_it_succeeds(|| self.cluster.run(&["move", node, site]));
        self.serves(node, site);
    }

    fn load(&self, site: &'static str, time: Duration, clients: usize) -> Load {
        Load::start(self.cluster.at(8080), site, time, clients)
    }

    /// Replaces HAProxy's process by a new one that has the file's weights.
    fn reload(&mut self) -> Running {
        let pid = self.haproxy.pid().as_raw_nonzero().to_string();
        let new = haproxy(&self.cluster, &self.module, &["-sf", &pid]);
        std::mem::replace(&mut self.haproxy, new)
    }

    fn end(self) {
        self.front.end().succeeded();
        let seen = NAMES.map(|name| sites_at_once(&self.cluster, name));
        assert!(seen.iter().all(|(most, _)| *most <= 1), "requests of two sites at once: {seen:?}");
    }
}

/// A cluster with its servers and agents, and a front that controls HAProxy by a socket of this name.
fn parts(
    kind: Kind,
    socket: &str,
    change: impl FnOnce(&mut Cluster),
) -> Option<(Cluster, Vec<Running>, Vec<Running>)> {
    haproxy_program()?;
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 2)]).foreign();
    cluster.file.edges.clear();
    cluster.file.baseline.configuration = Configuration::Rigid;
    cluster.file.reconfig.drain_max = Duration::from_secs(2);
    cluster.file.nodes.iter_mut().for_each(|node| node.workers = Some(4));
    let mut front = kind.front(&cluster, "front1");
    front.socket = Some(cluster.path(socket));
    front.backends = [("alpha", "be_alpha"), ("beta", "be_beta")].map(|(a, b)| (a.into(), b.into())).into();
    cluster.file.fronts = vec![front];
    change(&mut cluster);
    let servers =
        NAMES.iter().enumerate().map(|(node, name)| gunicorn(&cluster, name, cluster.node(node), 4));
    let servers = servers.collect::<Option<Vec<_>>>()?;
    let agents = ["n1", "n2", "n3"].map(|node| cluster.part("node", node)).into();
    Some((cluster, servers, agents))
}

/// HAProxy, once it answers at its socket and for clients.
fn haproxy(cluster: &Cluster, module: &Path, arguments: &[&str]) -> Running {
    let socket = cluster.path("admin.sock");
    let mut command = proxy(cluster, Kind::HaproxyByWeights, cluster.at(8080), module);
    // The front may come to it through another.
    let file = cluster.path("proxy/haproxy.cfg");
    let own = cluster.file.fronts[0].socket.clone().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace(own.to_str().unwrap(), socket.to_str().unwrap());
    let defaults = std::fs::read_to_string(cluster.path("defaults")).unwrap_or_default();
    let text = text.replacen("defaults\n", &format!("defaults\n{defaults}"), 1);
    // One that joins is none of the file's.
    let lines = text.lines().filter(|line| !line.contains("server n4 "));
    std::fs::write(&file, lines.map(|line| line.to_owned() + "\n").collect::<String>()).unwrap();
    command.args(arguments);
    let mut haproxy = Running::start_command(command);
    let pid = format!("Pid: {}\n", haproxy.pid().as_raw_nonzero());
    eventually("HAProxy answers", || {
        assert!(haproxy.is_running(), "{}", haproxy.err());
        ask_haproxy(&socket, "show info").is_ok_and(|answer| answer.contains(&pid))
            && try_get(cluster.at(8080), "any", "/").is_ok()
    });
    haproxy
}

/// The requests that have begun at a server: of each, the host.
fn begun(cluster: &Cluster, name: &str) -> Vec<String> {
    let log = std::fs::read_to_string(cluster.path(&format!("{name}.requests"))).unwrap_or_default();
    log.lines().filter_map(|line| line.strip_suffix(" begins")).map(str::to_owned).collect()
}

/// HAProxy goes on as its file has it until an agent says where its node is.
#[test]
fn a_front_without_agents_takes_no_weight() {
    let Some((cluster, _servers, agents)) = parts(Kind::HaproxyByWeights, "admin.sock", |_| ()) else {
        return;
    };
    agents.into_iter().for_each(|agent| drop(agent.end()));
    // They may have ended before they made it.
    if cluster.run_dir().exists() {
        std::fs::remove_dir_all(cluster.run_dir()).unwrap();
    }
    let Some(module) = module(Kind::HaproxyByWeights) else { return };
    let haproxy = haproxy(&cluster, &module, &[]);
    let front = cluster.part("front", "front1");
    let ask = |command: &str| ask_haproxy(&cluster.path("admin.sock"), command).unwrap();
    eventually("the front controls it", || cluster.run(&["front", "check", "front1"]).code == Some(0));
    for _ in 0..20 {
        assert!(ask("get weight be_alpha/n1").starts_with("128 "), "{}", front.err());
        std::thread::sleep(Duration::from_millis(20));
    }
    let agents = ["n1", "n2", "n3"].map(|node| cluster.part("node", node));
    until_it_succeeds(|| cluster.run(&["move", "n2", "alpha"]));
    eventually("it has weights of the front", || !ask("get weight be_alpha/n2").starts_with("0 "));
    front.end().succeeded();
    drop((haproxy, agents));
}

/// The operator changes the cluster file alone.
#[test]
fn a_node_that_joins_gets_a_server_and_loses_it_when_it_leaves() {
    let adds = |cluster: &mut Cluster| cluster.file.fronts[0].add_servers = Some("check inter 500".into());
    let Some(mut controlled) = Controlled::start_with(Kind::HaproxyByWeights, adds) else { return };
    let loads = ["alpha.test", "beta.test"].map(|host| controlled.load(host, Duration::from_millis(5), 2));
    let fourth = NodeEntry { workers: Some(4), ..NodeEntry::foreign("n4", 1, controlled.cluster.at(5004)) };
    let Some(_server) = gunicorn(&controlled.cluster, "four", controlled.cluster.at(5004), 4) else {
        return;
    };
    let reload =
        |controlled: &Controlled| until_it_succeeds(|| controlled.cluster.run(&["reload", "--wait"]));
    for _ in 0..2 {
        controlled.cluster.file.nodes.push(fourth.clone());
        reload(&controlled);
        let agent = controlled.cluster.part("node", "n4");
        controlled.moves("n4", "beta");
        let lines = controlled.cluster.run(&["front", "config", "front1"]).succeeded();
        let (_, of_beta) = lines.split_once("backend be_beta\n").unwrap();
        assert!(
            of_beta.contains(&format!("server n4 {} weight 128", controlled.cluster.at(5004))),
            "{lines}"
        );
        let had = begun(&controlled.cluster, "four").len();
        eventually("it gets requests", || begun(&controlled.cluster, "four").len() > had);
        // A new process knows its file alone.
        let old = controlled.reload();
        controlled.serves("n4", "beta");
        old.finish();
        controlled.cluster.file.nodes.pop();
        reload(&controlled);
        eventually("its servers are gone", || {
            ["alpha", "beta"]
                .iter()
                .all(|site| controlled.ask(&format!("get weight be_{site}/n4")).contains("No such server"))
        });
        let ended = agent.finish();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        // HAProxy is controlled as before.
        ["alpha", "beta"].iter().for_each(|site| controlled.moves("n2", site));
    }
    let had = begun(&controlled.cluster, "four");
    // The first to ask is who waits until the server serves.
    assert!(had.iter().skip(1).all(|host| host == "beta.test"), "{had:?}");
    let said = controlled.haproxy.err();
    assert!(!said.contains("no server available"), "{said}");
    drop(loads);
    controlled.end();
}

#[test]
fn weights_are_back_after_a_reload_and_after_a_crash() {
    let Some(mut controlled) = Controlled::start(Kind::HaproxyByWeights) else { return };
    let time = Duration::from_millis(50);
    let load = [controlled.load("alpha.test", time, 4), controlled.load("beta.test", time, 4)];
    for site in ["alpha", "beta"] {
        let during = controlled.cluster.start(&["move", "n2", site]);
        let old = controlled.reload();
        old.finish().succeeded();
        during.finish();
        controlled.moves("n2", site);
        controlled.serves("n1", "alpha");

        let during = controlled.cluster.start(&["move", "n3", site]);
        let new = |controlled: &Controlled| haproxy(&controlled.cluster, &controlled.module, &[]);
        controlled.haproxy.signal(Signal::KILL);
        eventually("it has ended", || !controlled.haproxy.is_running());
        controlled.haproxy = new(&controlled);
        during.finish();
        // One node stays at beta in any case.
        if site == "beta" {
            controlled.moves("n3", site);
        }
        controlled.serves("n1", "alpha");
        controlled.serves("n2", site);
    }
    drop(load);
    controlled.front.end().succeeded();
}

/// The old process of HAProxy answers its requests after a reload, and no socket leads to it.
fn a_node_waits_for_requests_of_an_old_process(kind: Kind) {
    let Some(mut controlled) = Controlled::start(kind) else { return };
    controlled.moves("n3", "alpha");
    controlled.moves("n1", "beta");
    let long = controlled.load("beta.test", Duration::from_secs(4), 2);
    eventually("the request has begun", || {
        begun(&controlled.cluster, "two").contains(&"beta.test".to_owned())
    });
    let mut old = controlled.reload();
    controlled.serves("n2", "beta");
    let drained = controlled.cluster.run(&["drain", "n2"]);
    // On a machine that is slow enough the request has ended.
    if old.is_running() {
        assert!(drained.refused().contains("requests of beta at n2 had not ended"));
    }
    drop(long);
    old.finish().succeeded();
    until_it_succeeds(|| controlled.cluster.run(&["drain", "n2"]));
    controlled.end();
}

#[test]
fn a_node_waits_for_requests_of_a_process_from_before_the_reload() {
    [Kind::HaproxyByWeights, Kind::HaproxyByChoice]
        .into_iter()
        .for_each(a_node_waits_for_requests_of_an_old_process);
}

/// It gets no request, and the front leaves it so, while a node moves a few times, or as often as SIDELONG_MOVES says.
fn what_a_person_has_taken_out_stays_there(kind: Kind) {
    let Some(controlled) = Controlled::start(kind) else { return };
    controlled.ask("set server be_beta/n2 state maint");
    controlled.ask("set server be_alpha/n1 state drain");
    let held = |server: &str| {
        let listed = controlled.ask("show stat");
        let line = listed.lines().find(|line| line.starts_with(server)).unwrap().to_owned();
        ["MAINT", "DRAIN"].into_iter().find(|word| line.contains(&format!(",{word},"))).unwrap_or_default()
    };
    let rounds = std::env::var("SIDELONG_MOVES").map_or(2, |moves| moves.parse().unwrap());
    for site in ["alpha", "beta"].into_iter().cycle().take(rounds) {
        controlled.moves("n2", site);
        assert_eq!((held("be_beta,n2,"), held("be_alpha,n1,")), ("MAINT", "DRAIN"));
        let (host, out) = if site == "alpha" { ("alpha.test", "one") } else { ("beta.test", "two") };
        let before = begun(&controlled.cluster, out).len();
        (0..20).for_each(|_| assert_eq!(get(controlled.cluster.at(8080), host, "/0").status, 200));
        assert_eq!(begun(&controlled.cluster, out).len(), before, "{out} is taken out of {site}");
    }
    let refused = controlled.cluster.run(&["front", "check", "front1"]).refused();
    assert!(refused.contains("held in HAProxy: be_alpha/n1 (DRAIN), be_beta/n2 (MAINT)"), "{refused}");
    let said = "server be_beta/n2 is held in HAProxy (MAINT)";
    eventually("the log says so", || controlled.front.err().matches(said).count() == 1);
    controlled.ask("set server be_beta/n2 state ready");
    controlled.ask("set server be_alpha/n1 state ready");
    until_it_succeeds(|| controlled.cluster.run(&["front", "check", "front1"]));
    controlled.end();
}

#[test]
fn what_a_person_has_put_into_maintenance_stays_there() {
    [Kind::HaproxyByWeights, Kind::HaproxyByChoice]
        .into_iter()
        .for_each(what_a_person_has_taken_out_stays_there);
}

/// By weights, HAProxy itself rejects the clients that a site does not admit, and admits all soon after its front was killed.
#[test]
fn clients_are_rejected_by_rules_of_haproxy_and_admitted_once_its_front_is_gone() {
    let target = Duration::from_millis(200);
    let with_a_target = |cluster: &mut Cluster| cluster.file.sites[1].response_p99 = Some(target);
    let Some(controlled) = Controlled::start_with(Kind::HaproxyByWeights, with_a_target) else { return };
    let address = controlled.cluster.at(8080);
    // Each of the eight workers has as many requests as take four times the target.
    let load = controlled.load("beta.test", 2 * target, 16);
    let reply = || try_get(address, "beta.test", "/0").unwrap();
    let mut rejected = reply();
    eventually("clients are rejected", || {
        rejected = reply();
        rejected.status == 503
    });
    assert_eq!(rejected.header("x-sidelong-reason"), Some("over-target"), "{rejected:?}");
    assert_eq!(rejected.header("retry-after"), Some("1"), "{rejected:?}");
    assert_eq!(get(address, "alpha.test", "/0").status, 200);
    controlled.front.kill();
    let mut admitted = 0;
    eventually("all are admitted", || {
        admitted = if reply().status == 200 { admitted + 1 } else { 0 };
        admitted == 20
    });
    drop(load);
}

/// HAProxy's weights alone would do as well, so the memory must tell.
#[test]
fn each_request_is_chosen_in_memory_and_counted_there_until_its_answer() {
    let Some(controlled) = Controlled::start(Kind::HaproxyByChoice) else { return };
    let file = controlled.cluster.run_dir().join("front1.workers.region");
    // Nothing is under way.
    let mut before = sent(&file, 3);
    eventually("the counts rest", || {
        std::thread::sleep(Duration::from_millis(300));
        let last = std::mem::replace(&mut before, sent(&file, 3));
        last == before
    });
    let more = || -> Vec<_> {
        sent(&file, 3).iter().zip(&before).map(|(now, before)| now.wrapping_sub(*before)).collect()
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(get(controlled.cluster.at(8080), "beta.test", "/2000").status, 200));
        }
        let mut most = Vec::new();
        eventually("all are sent", || {
            most = more();
            most.iter().sum::<u64>() == 8
        });
        // Free nodes take turns.
        assert!(most[0] == 0 && most[1] > 1 && most[2] > 1, "{most:?}");
    });
    eventually("all are answered", || more() == [0, 0, 0]);
    controlled.end();
}

/// Between the front and HAProxy: passes on only the first commands of each batch, then closes.
fn relay(cluster: &Cluster, most: Arc<AtomicUsize>) {
    let listener = UnixListener::bind(cluster.path("cut.sock")).unwrap();
    let socket = cluster.path("admin.sock");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let one = |mut client: UnixStream| -> std::io::Result<()> {
                let mut line = Vec::new();
                while line.last() != Some(&b'\n') {
                    let mut piece = [0; 4096];
                    match client.read(&mut piece)? {
                        0 => return Ok(()),
                        bytes => line.extend_from_slice(&piece[..bytes]),
                    }
                }
                let text = String::from_utf8_lossy(&line);
                let commands: Vec<_> = text.trim().split(';').take(most.load(Ordering::Relaxed)).collect();
                if commands.is_empty() {
                    return Ok(());
                }
                client.write_all(ask_haproxy(&socket, &commands.join(";"))?.as_bytes())
            };
            let _ = client.and_then(one);
        }
    });
}

#[test]
fn a_socket_that_cuts_batches_leaves_no_site_without_a_server() {
    let Some((cluster, servers, agents)) = parts(Kind::HaproxyByWeights, "cut.sock", |_| ()) else { return };
    let most = Arc::new(AtomicUsize::new(usize::MAX));
    relay(&cluster, Arc::clone(&most));
    let haproxy = haproxy(&cluster, Path::new(""), &[]);
    let front = cluster.part("front", "front1");
    let controlled =
        Controlled { cluster, module: PathBuf::new(), haproxy, front, _agents: agents, _servers: servers };
    controlled.serves("n1", "alpha");
    controlled.serves("n2", "beta");
    let sites = ["alpha", "beta"];
    for (cut, site) in (0..7).zip(sites.into_iter().cycle()) {
        most.store(cut, Ordering::Relaxed);
        let during = controlled.cluster.start(&["move", "n2", site]);
        for _ in 0..20 {
            assert!(
                sites.iter().all(|site| ["n1", "n2", "n3"].iter().any(|node| controlled.sends(site, node)))
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        most.store(usize::MAX, Ordering::Relaxed);
        during.finish();
        controlled.moves("n2", site);
    }
    controlled.end();
}

#[test]
fn trouble_at_the_socket_is_said_once_and_passes() {
    let Some((cluster, servers, agents)) = parts(Kind::HaproxyByWeights, "admin.sock", |_| ()) else {
        return;
    };
    let front = cluster.part("front", "front1");
    let trouble = "cannot control HAProxy by";
    eventually("the log says so", || front.err().contains(trouble));
    let refused = cluster.run(&["front", "check", "front1"]).refused();
    assert!(refused.contains("start HAProxy with the line `stats socket`"), "{refused}");

    // One that answers with something else.
    let socket: PathBuf = cluster.path("admin.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let garbage = std::thread::spawn(move || {
        for _ in 0..5 {
            let (mut client, _) = listener.accept().unwrap();
            let _ = client.write_all(b"HTTP/1.1 400 Bad request\r\n\r\n\xff\n\n\n\n\n");
        }
    });
    garbage.join().unwrap();
    std::fs::remove_file(&socket).unwrap();

    let haproxy = haproxy(&cluster, Path::new(""), &[]);
    let controlled =
        Controlled { cluster, module: PathBuf::new(), haproxy, front, _agents: agents, _servers: servers };
    controlled.serves("n1", "alpha");
    controlled.serves("n2", "beta");
    eventually("the log says so", || controlled.front.err().contains("HAProxy answers again"));

    // It hangs, and a node moves once it goes on.
    controlled.haproxy.signal(Signal::STOP);
    let refused = controlled.cluster.run(&["front", "check", "front1"]).refused();
    assert!(refused.contains("no answer within a second"), "{refused}");
    assert!(controlled.cluster.run(&["drain", "n2"]).refused().contains("had not"));
    controlled.haproxy.signal(Signal::CONT);
    controlled.moves("n2", "alpha");
    assert_eq!(controlled.front.err().matches(trouble).count(), 1, "{}", controlled.front.err());

    controlled.end();
}

#[test]
fn a_request_that_outlasts_a_drain_is_cut_where_its_site_says_so() {
    let Some(controlled) = Controlled::start_with(Kind::HaproxyByWeights, |cluster| {
        cluster.file.sites[1].drain = Drain::Cut;
    }) else {
        return;
    };
    controlled.moves("n3", "alpha");
    controlled.moves("n1", "beta");
    let address = controlled.cluster.at(8080);
    // Each of beta's nodes gets one, if the first has begun before the second is sent.
    let has_one = |name: &&str| begun(&controlled.cluster, name).contains(&"beta.test".to_owned());
    let (ended, first) = std::sync::mpsc::sync_channel(2);
    for count in 1..=2 {
        let ended = ended.clone();
        std::thread::spawn(move || ended.send(try_get(address, "beta.test", "/60000")));
        eventually("it has begun", || ["one", "two"].iter().filter(|name| has_one(name)).count() == count);
    }
    controlled.moves("n2", "alpha");
    let answer = first.recv().unwrap();
    assert!(answer.as_ref().is_ok_and(|reply| reply.status == 502), "{answer:?}");
    assert!(first.try_recv().is_err(), "the request at n1 goes on");
    controlled.front.end().succeeded();
}

/// It goes by the weights that `sidelong front config` prints: those of the nodes with which each site starts.
#[test]
fn a_haproxy_that_no_front_has_led_yet_sends_no_request_to_a_wrong_site() {
    for kind in [Kind::HaproxyByWeights, Kind::HaproxyByChoice] {
        let Some((cluster, servers, agents)) = parts(kind, "admin.sock", |_| ()) else { return };
        let Some(module) = module(kind) else { return };
        let haproxy = haproxy(&cluster, &module, &[]);
        for _ in 0..20 {
            assert_eq!(get(cluster.at(8080), "alpha.test", "/0").body, "one");
            assert_ne!(get(cluster.at(8080), "beta.test", "/0").body, "one");
        }
        drop((haproxy, servers, agents));
    }
}

#[test]
fn a_haproxy_whose_lua_does_not_ask_is_named() {
    let Some((mut cluster, servers, agents)) = parts(Kind::HaproxyByChoice, "admin.sock", |_| ()) else {
        return;
    };
    let front = cluster.part("front", "front1");
    eventually("the front has read its file", || cluster.run_dir().join("front1.choice.region").exists());
    // HAProxy gets the lines of one that goes by weights.
    cluster.file.fronts[0].by = Some(ControlledBy::Weights);
    let haproxy = haproxy(&cluster, Path::new(""), &[]);
    cluster.file.fronts[0].by = Some(ControlledBy::Choose);
    eventually("check says so", || {
        cluster
            .run(&["front", "check", "front1"])
            .err
            .contains("no worker of haproxy has sent a request by it")
    });
    drop((haproxy, front, servers, agents));
}

/// A site whose only server has died gets another one.
fn a_dead_server_is_replaced(defaults: &str) {
    let Some(mut controlled) = Controlled::start_with(Kind::HaproxyByWeights, |cluster| {
        cluster.file.baseline.configuration = Configuration::Reconfigured;
        std::fs::write(cluster.path("defaults"), defaults).unwrap();
    }) else {
        return;
    };
    let client = controlled.cluster.at(8080);
    let answers = || try_get(client, "alpha.test", "/").is_ok_and(|reply| reply.status == 200);
    eventually("alpha answers", answers);
    let serves = |node: usize| controlled.sends("alpha", &format!("n{node}"));
    let first = (1..=3).find(|node| serves(*node)).unwrap();
    controlled._servers.remove(first - 1).kill();
    eventually("another server answers", || {
        answers() && (1..=3).any(|node| node != first && controlled.sends("alpha", &format!("n{node}")))
    });
    controlled.end();
}

#[test]
fn a_server_whose_connections_fail_is_replaced() {
    a_dead_server_is_replaced("");
}

#[test]
fn a_server_that_haproxys_checks_have_found_dead_is_replaced() {
    a_dead_server_is_replaced("    default-server check inter 100 fall 2\n");
}

#[test]
fn a_node_without_a_server_is_named() {
    let Some((mut cluster, servers, agents)) = parts(Kind::HaproxyByWeights, "admin.sock", |_| ()) else {
        return;
    };
    // HAProxy is not told of the fourth.
    let haproxy = haproxy(&cluster, Path::new(""), &[]);
    let mut fourth = cluster.file.nodes[2].clone();
    (fourth.name, fourth.server, fourth.admin) = ("n4".into(), Some(cluster.at(5004).into()), None);
    cluster.file.nodes.push(fourth);
    let refused = cluster.run(&["front", "check", "front1"]).refused();
    assert!(refused.contains("HAProxy has no server for n4 in be_alpha, n4 in be_beta"), "{refused}");
    drop((haproxy, servers, agents));
}
