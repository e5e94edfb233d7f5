//! Nodes whose servers are real and not Sidelong's: nginx, httpd, gunicorn and others, unmodified.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sidelong_config::{Configuration, NodeEntry, Scheme};
use sidelong_policy::balance::Balance;

use crate::support::foreign::{Draining, answers, foreign, learned};
use crate::support::servers::{
    ControlGroup, Load, Mpm, closing_nginx, closing_server, failing_nginx, family, gunicorn, gunicorn_with,
    httpd, nginx, nginx_that_logs, nginx_that_takes_its_time, nodejs, php_fpm, processes_of, uvicorn,
};
use crate::support::{Cluster, Running, eventually, get, metrics, run, skipped, try_get};

fn agent_is_up(cluster: &Cluster, node: usize) {
    eventually("the agent is up", || try_get(cluster.node_admin(node), "any", "/healthz").is_ok());
}

#[test]
fn an_edge_routes_to_servers_that_are_not_ours() {
    let cluster = foreign(&[("alpha", 2)]);
    let Some(_one) = nginx(&cluster, "one", cluster.node(0)) else { return };
    let Some(_two) = gunicorn(&cluster, "two", cluster.node(1), 1) else { return };
    let agents = [cluster.part("node", "n1"), cluster.part("node", "n2")];
    let edge = cluster.part("edge", "edge1");
    answers(&cluster, "alpha", "one");
    answers(&cluster, "alpha", "two");
    for _ in 0..50 {
        assert_eq!(get(cluster.edge(0), "alpha.test", "/").status, 200);
    }
    for (node, agent) in agents.into_iter().enumerate() {
        let own = metrics(cluster.node_admin(node));
        assert!(own["sidelong_node_memory_ratio"] > 0.0, "{own:?}");
        // What only the origin of a node could know is not claimed.
        for unknown in
            ["served_requests_total", "failed_requests_total", "busy_workers", "service_mean_seconds"]
        {
            assert_eq!(own.get(&format!("sidelong_node_{unknown}")), None, "{own:?}");
        }
        agent.end().succeeded();
    }
    // The agents are gone, and the servers are not.
    assert_eq!(get(cluster.edge(0), "alpha.test", "/").status, 200);
    edge.end().succeeded();
}

#[test]
fn up_runs_servers_of_other_makes_in_place_of_the_built_in_origin() {
    for make in ["nginx", "httpd", "gunicorn"] {
        let cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]).with_load(256, None);
        let mut up = cluster.up(&["--json", "--servers", make]);
        let mut why = None;
        eventually("it is up, or says why not", || {
            why = (!up.is_running()).then(|| up.err());
            why.is_some() || up.err().contains(" is up: ")
        });
        if let Some(why) = why {
            let is_missing = why.contains("there is no") || why.contains("cannot create a control group");
            assert!(is_missing, "{why}");
            skipped(&format!("up --servers {make}: {}", why.trim()));
            continue;
        }
        eventually("a node has moved", || {
            let histories =
                ["edge1", "edge2"].map(|edge| cluster.run_dir().join(format!("{edge}.history.jsonl")));
            histories.iter().any(|history| std::fs::metadata(history).is_ok_and(|file| file.len() > 0))
        });
        let old = processes_of(&cluster, "n1-server");
        let group = |pid| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let groups = [old[0], processes_of(&cluster, "n2-server")[0], std::process::id()].map(group);
        assert!(groups[0] != groups[1] && groups[0] != groups[2], "{make}: {groups:?}");
        let first = Pid::from_raw(old[0].try_into().unwrap()).unwrap();
        kill_process(first, Signal::KILL).unwrap();
        eventually("it runs again", || {
            let new = processes_of(&cluster, "n1-server");
            !new.is_empty() && new.iter().all(|pid| !old.contains(pid))
        });
        eventually("it answers again", || {
            try_get(cluster.node(0), "any", "/o/1/1").is_ok_and(|reply| reply.status == 200)
        });
        let summary = up.end().json();
        assert!(summary["requests"].as_u64() > Some(0) && summary["moves"].as_u64() > Some(0), "{summary}");
        for node in 1..=4 {
            assert!(processes_of(&cluster, &format!("n{node}-server")).is_empty(), "{make}");
        }
        assert!(!cluster.run_dir().join("foreign").exists(), "{make}");
    }
}

#[test]
fn each_site_has_its_own_servers() {
    let cluster = foreign(&[("alpha", 1), ("beta", 1)]);
    let Some(_one) = nginx(&cluster, "one", cluster.node(0)) else { return };
    let Some(_two) = nginx(&cluster, "two", cluster.node(1)) else { return };
    let mut up = cluster.up(&["--plain"]);
    answers(&cluster, "alpha", "one");
    answers(&cluster, "beta", "two");
    for _ in 0..20 {
        assert_eq!(get(cluster.edge(0), "alpha.test", "/").body, "one");
        assert_eq!(get(cluster.edge(0), "beta.test", "/").body, "two");
    }
    // It has no load to send, and says where clients connect.
    let said = format!("test is up: 2 sites on 2 nodes behind {}; press Ctrl-C to stop", cluster.edge(0));
    eventually("it says so", || up.err().contains(&said));
    eventually("a line without requests", || up.out().contains("alpha 1 nodes  beta 1 nodes  | 0 moves"));
    assert!(up.is_running());
    let said = up.end().succeeded();
    assert!(said.contains("\n`up` sent no requests; 0 moves\n"), "{said}");
    assert_eq!(cluster.parts(), []);
    assert_eq!(get(cluster.node(0), "any", "/").body, "one");
}

/// Its worker serves a connection, and the others wait to be accepted. The agent's own record says so, and the edge reads it.
#[test]
fn a_record_has_the_connections_of_a_server_and_its_queue() {
    for scheme in [Scheme::RdmaAsync, Scheme::RdmaSync, Scheme::SocketSync] {
        let mut cluster = foreign(&[("alpha", 1)]);
        cluster.file.set_scheme(scheme);
        // The kernel tells ports apart, and not the addresses at which other tests use the same port.
        let server = cluster.at(10_000 + (std::process::id() % 10_000) as u16);
        cluster.file.nodes[0].server = Some(server.into());
        let Some(_server) = gunicorn(&cluster, "one", server, 1) else { return };
        for workers in [None, Some(1)] {
            cluster.file.nodes[0].workers = workers;
            let mut agent = cluster.part("node", "n1");
            let is_up = || try_get(cluster.node_admin(0), "any", "/healthz").is_ok();
            eventually("the agent is up or refused", || !agent.is_running() || is_up());
            if !agent.is_running() {
                skipped(&format!("kernel: {}", agent.finish().refused()));
                break;
            }
            let edge = cluster.part("edge", "edge1");
            answers(&cluster, "alpha", "one");
            let own = |figure: &str| {
                metrics(cluster.node_admin(0)).get(&format!("sidelong_node_{figure}")).copied()
            };
            let by_edge = |figure: &str| {
                let name = format!("sidelong_edge_node_{figure}{{node=\"n1\"}}");
                metrics(cluster.admin(0)).get(&name).copied()
            };
            let load = Load::start(server, "alpha.test", Duration::from_millis(50), 8);
            for told in [&own as &dyn Fn(&str) -> Option<f64>, &by_edge] {
                eventually("eight connections", || told("open_connections").is_some_and(|open| open >= 7.0));
                eventually("seven wait", || told("queued_requests").is_some_and(|queued| queued >= 6.0));
                let one = workers.map(f64::from);
                eventually("its worker is busy, if it is known to have one", || told("busy_workers") == one);
                assert_eq!(told("capacity_workers"), one);
            }
            drop(load);
            for told in [&own as &dyn Fn(&str) -> Option<f64>, &by_edge] {
                for figure in ["open_connections", "queued_requests"] {
                    eventually("nobody is there", || told(figure) == Some(0.0));
                }
                assert_eq!(told("served_requests_total"), None);
            }
            edge.end().succeeded();
            agent.end().succeeded();
        }
    }
}

#[test]
fn a_server_may_come_later_and_go_and_come_back() {
    let cluster = foreign(&[("alpha", 2)]);
    let Some(_one) = nginx(&cluster, "one", cluster.node(0)) else { return };
    let _agents = [cluster.part("node", "n1"), cluster.part("node", "n2")];
    let mut late = cluster.part("edge", "edge1");
    answers(&cluster, "alpha", "one");
    eventually("its agent says that nobody listens", || {
        _agents[1].err().contains(&format!("nobody listens at {}", cluster.node(1)))
    });
    // No request fails because one of two servers is missing.
    let serves = || {
        for _ in 0..50 {
            assert_eq!(get(cluster.edge(0), "alpha.test", "/").status, 200);
        }
    };
    serves();
    let Some(two) = nginx(&cluster, "two", cluster.node(1)) else { return };
    answers(&cluster, "alpha", "two");
    serves();
    two.end().succeeded();
    serves();
    let status = || cluster.run(&["status"]).succeeded();
    eventually("the status says that it does not answer", || {
        // It is known by a request that it gets.
        get(cluster.edge(0), "alpha.test", "/");
        status().contains("n2 does not answer: requests to it have failed\n")
    });
    let _two = nginx(&cluster, "three", cluster.node(1));
    answers(&cluster, "alpha", "three");
    assert!(late.is_running());
}

#[test]
fn a_file_is_written_for_servers_that_run() {
    let cluster = foreign(&[("alpha", 2)]);
    let Some(one) = nginx(&cluster, "one", cluster.node(0)) else { return };
    let file = cluster.path("sidelong.toml");
    let init = |hosts: &[&str], config: &Path| {
        let mut arguments: Vec<String> = vec!["init".into(), "--config".into(), config.display().to_string()];
        arguments.extend(["--listen".into(), cluster.edge(0).to_string()]);
        for node in [0, 1] {
            arguments.extend(["--server".into(), cluster.node(node).to_string()]);
        }
        hosts.iter().for_each(|host| arguments.extend(["--host".into(), (*host).to_owned()]));
        run(arguments)
    };
    let said = init(&["alpha.test"], &file).succeeded();
    let pid = one.pid().as_raw_nonzero();
    assert!(said.contains(&format!("{}: nginx, process {pid}, ", cluster.node(0))), "{said}");
    assert!(said.contains(&format!("nobody listens at {} yet", cluster.node(1))), "{said}");
    assert!(said.contains(&format!("sidelong up --config {}", file.display())), "{said}");
    let up = Running::start(["up", "--plain", "--config", file.to_str().unwrap()]);
    answers(&cluster, "alpha", "one");
    eventually("it says that it is up", || up.err().contains(" is up: "));
    up.end().succeeded();

    let refused = |hosts: &[&str], config: &Path, expected: &str| {
        let line = init(hosts, config).refused();
        assert!(line.contains(expected), "{line}");
    };
    refused(&["alpha.test"], &file, "sidelong.toml exists already: name another file with --config");
    let other = cluster.path("other.toml");
    refused(&["a", "b", "c"], &other, "3 sites (--host) and 2 servers (--server)");
    refused(&["not a host"], &other, "not a host");
    refused(&["alpha.test"], Path::new("/nowhere/sidelong.toml"), "cannot write /nowhere/sidelong.toml");
    assert!(!other.exists());
    // Two sites whose hosts begin alike.
    init(&["app.one.test", "app.two.test"], &other).succeeded();
    run(["config", "check", other.to_str().unwrap()]).succeeded();
}

/// The edges know when the answers have ended; the server says nothing.
#[test]
fn a_server_has_done_with_a_site_when_it_takes_up_another() {
    Draining::start_gunicorn(Draining::cluster()).into_iter().for_each(Draining::go_to_and_fro);
}

/// It takes any number of requests at once, so no load of waiting requests moves it: a person does.
#[test]
fn an_nginx_has_done_with_a_site_when_it_takes_up_another() {
    let mut cluster = Draining::cluster();
    cluster.file.baseline.configuration = Configuration::Rigid;
    cluster.file.reconfig.drain_max = Duration::from_secs(30);
    let nginx = Draining::start(cluster, |cluster, name, node| {
        Some(vec![nginx_that_logs(cluster, name, cluster.node(node))?])
    });
    nginx.into_iter().for_each(Draining::go_by_hand);
}

/// So it is of an nginx, which accepts whatever comes, and of php-fpm behind it, which does the work.
#[test]
fn a_server_has_done_with_a_site_and_so_has_what_is_behind_it() {
    let php = Draining::start(Draining::cluster(), |cluster, name, node| {
        Some(php_fpm(cluster, name, cluster.node(node), 4)?.into())
    });
    php.into_iter().for_each(Draining::go_to_and_fro);
}

/// Starts a server of some make, of a name, at an address.
type Start = fn(&Cluster, &str, SocketAddr) -> Option<Running>;

/// Servers of all makes, those that speak HTTP/1.0, close after each answer, or renew their workers among them.
const MAKES: [(&str, Start); 9] = [
    ("nginx", nginx),
    ("closing-nginx", closing_nginx),
    ("python", closing_server),
    ("gunicorn", |cluster, name, address| gunicorn(cluster, name, address, 2)),
    // Each worker ends after three requests.
    ("renewed", |cluster, name, address| gunicorn_with(cluster, name, address, 2, &["--max-requests", "3"])),
    ("event", |cluster, name, address| httpd(cluster, name, address, Mpm::Event)),
    ("prefork", |cluster, name, address| httpd(cluster, name, address, Mpm::Prefork(2))),
    ("nodejs", nodejs),
    ("uvicorn", uvicorn),
];

#[test]
fn servers_of_all_makes_answer_and_fail_no_request() {
    let mut cluster = foreign(&[("alpha", MAKES.len())]);
    // Each gets requests, however long another took.
    cluster.file.balance.policy = Balance::RoundRobin;
    let start = |(&(name, start), node): (&(&'static str, Start), _)| {
        Some((name, start(&cluster, name, cluster.node(node))?))
    };
    let servers: Vec<_> = MAKES.iter().zip(0..).filter_map(start).collect();
    let _agents: Vec<_> = (1..=MAKES.len()).map(|node| cluster.part("node", &format!("n{node}"))).collect();
    let _edge = cluster.part("edge", "edge1");
    for (name, _) in &servers {
        answers(&cluster, "alpha", name);
    }
    for _ in 0..200 {
        let reply = get(cluster.edge(0), "alpha.test", "/");
        assert_eq!(reply.status, 200, "{}{}", reply.head, reply.body);
    }
}

/// Its answers are sooner than those of a server that works.
#[test]
fn a_server_that_fails_fast_does_not_draw_the_requests_of_others() {
    let cluster = foreign(&[("alpha", 2)]);
    let Some(_good) = gunicorn(&cluster, "good", cluster.node(0), 8) else { return };
    let Some(_failing) = failing_nginx(&cluster, "failing", cluster.node(1)) else { return };
    let _agents = [cluster.part("node", "n1"), cluster.part("node", "n2")];
    let _edge = cluster.part("edge", "edge1");
    answers(&cluster, "alpha", "good");
    let answered = |code: &str| {
        let name = format!("sidelong_edge_requests_total{{site=\"alpha\",code=\"{code}\"}}");
        metrics(cluster.admin(0)).get(&name).copied().unwrap_or(0.0)
    };
    let load = Load::start(cluster.edge(0), "alpha.test", Duration::from_millis(100), 8);
    eventually("some are answered", || answered("2xx") > 20.0);
    let before = ["2xx", "5xx"].map(answered);
    eventually("some more are answered", || answered("2xx") > before[0] + 200.0);
    let [good, failed] = [answered("2xx") - before[0], answered("5xx") - before[1]];
    drop(load);
    assert!(failed < 2.0 * good, "{failed} failed and {good} did not");
}

/// What was learned of the old one is wrong of the new one.
#[test]
fn a_server_that_comes_back_with_half_its_workers_is_learned_anew() {
    let mut cluster = foreign(&[("alpha", 1)]);
    let server = cluster.at(25_000 + (std::process::id() % 5_000) as u16);
    cluster.file.nodes[0].server = Some(server.into());
    // The excess is rejected.
    cluster.file.sites[0].queue_max = Some(Duration::from_millis(800));
    let Some(before) = gunicorn(&cluster, "four", server, 4) else { return };
    let _agent = cluster.part("node", "n1");
    let _edge = cluster.part("edge", "edge1");
    answers(&cluster, "alpha", "four");
    let time = Duration::from_millis(200);
    let load = Load::start(cluster.edge(0), "alpha.test", time, 12);
    let figure = |name: &str| metrics(cluster.admin(0)).get(name).copied().unwrap_or(0.0);
    let workers = || figure("sidelong_edge_node_learned_workers{node=\"n1\"}");
    eventually("four are learned", || (3.0..6.0).contains(&workers()));
    before.end().succeeded();
    let Some(_after) = gunicorn(&cluster, "two", server, 2) else { return };
    eventually("two are learned", || (1.0..3.0).contains(&workers()));
    let answered = || figure("sidelong_edge_requests_total{site=\"alpha\",code=\"2xx\"}");
    let begun = answered();
    eventually("they answer", || answered() > begun + 50.0);
    assert!((1.0..3.0).contains(&workers()), "{}", workers());
    drop(load);
}

#[test]
fn a_server_may_answer_at_an_ipv6_address() {
    let mut cluster = foreign(&[("alpha", 1)]);
    let Ok(free) = TcpListener::bind("[::1]:0") else { return skipped("servers: no IPv6 here") };
    let address = free.local_addr().unwrap();
    drop(free);
    cluster.file.nodes[0].server = Some(address.into());
    let Some(_server) = nginx(&cluster, "six", address) else { return };
    let _parts = [cluster.part("node", "n1"), cluster.part("edge", "edge1")];
    answers(&cluster, "alpha", "six");
}

#[test]
fn a_node_stays_where_it_is_while_its_server_hangs_in_a_drain() {
    let Some(mut draining) = Draining::start_gunicorn(Draining::cluster()) else { return };
    let held = |node| draining.counted(&format!(r#"sidelong_edge_node_in_flight{{node="{node}"}}"#)) > 0.0;
    eventually("both nodes of beta hold requests", || {
        draining.signal(Signal::STOP);
        // What was answered before is passed on meanwhile.
        std::thread::sleep(Duration::from_millis(200));
        let both = held("n2") && held("n3");
        if !both {
            draining.signal(Signal::CONT);
        }
        both
    });
    let before = draining.moves();
    draining.ask("alpha.test", 10);
    eventually("a node does not drain", || draining.rolled_back() > 0.0);
    assert_eq!(draining.moves(), before, "a node moved while its server held a request");
    draining.signal(Signal::CONT);
    eventually("a node moves", || draining.moves() > before);
    draining.end();
}

#[test]
fn an_agent_listens_on_no_port_of_its_server() {
    let mut cluster = foreign(&[("alpha", 1)]);
    cluster.file.set_scheme(Scheme::RdmaAsync);
    let agent = cluster.part("node", "n1");
    agent_is_up(&cluster, 0);
    let _server = TcpListener::bind(cluster.node(0)).unwrap();
    assert_eq!(agent.err().lines().filter(|line| line.contains("nobody listens at")).count(), 1);
    agent.end().succeeded();
}

/// How often the threads of a process have waited for something.
fn waits(process: &Running) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.pid().as_raw_nonzero())).unwrap();
    let statuses =
        threads.flatten().map(|thread| std::fs::read_to_string(thread.path().join("status")).unwrap());
    let waits = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    statuses.map(waits).sum()
}

/// Unlike a node with a built-in server, whose gauges change all the time.
#[test]
fn an_agent_wakes_seldom_and_so_costs_its_server_little() {
    let mut cluster = Cluster::new(&[("alpha", 2)]);
    cluster.file.set_scheme(Scheme::RdmaAsync);
    let server = cluster.node(1);
    cluster.file.nodes[1] =
        NodeEntry { admin: cluster.file.nodes[1].admin, ..NodeEntry::foreign("n2", 1, server) };
    let Some(_server) = nginx(&cluster, "two", server) else { return };
    let [builtin, agent] = ["n1", "n2"].map(|name| cluster.part("node", name));
    [0, 1].into_iter().for_each(|node| agent_is_up(&cluster, node));
    let before = [waits(&builtin), waits(&agent)];
    eventually("a thousand periods have passed", || waits(&builtin) - before[0] >= 1000);
    let woken = waits(&agent) - before[1];
    assert!(woken < 500, "woken {woken} times in a thousand periods");
    [builtin, agent].into_iter().for_each(|part| _ = part.end().succeeded());
}

/// By the process that listens, and by a file with its ID. A group has no network of its own, so its record has none.
#[test]
fn the_load_is_that_of_the_control_group_in_which_the_server_runs() {
    let mut cluster = foreign(&[("alpha", 1)]);
    cluster.file.set_scheme(Scheme::RdmaAsync);
    let Some(server) = gunicorn(&cluster, "one", cluster.node(0), 1) else { return };
    let has_network = |cluster: &Cluster| {
        let agent = cluster.part("node", "n1");
        eventually("the agent has a record", || {
            try_get(cluster.node_admin(0), "any", "/metrics")
                .is_ok_and(|page| page.body.contains("cpu_ratio"))
        });
        let has = metrics(cluster.node_admin(0)).contains_key("sidelong_node_network_bytes_per_second");
        agent.end().succeeded();
        has
    };
    assert!(has_network(&cluster), "in no group, it has the machine's load");

    let joined = ControlGroup::of("load", &[server.pid()]);
    if joined.is_ok() {
        assert!(!has_network(&cluster), "by the process that listens");
        let file = cluster.path("pid");
        std::fs::write(&file, format!("{}\n", server.pid().as_raw_nonzero())).unwrap();
        cluster.file.nodes[0].pid_file = Some(file);
        assert!(!has_network(&cluster), "by its file");
    }
    server.end().succeeded();
    if let Err(error) = joined {
        skipped(&format!("servers: no control group can be made here: {error}"));
    }
}

#[test]
fn an_agent_far_from_its_server_knows_no_load_and_says_so() {
    let mut cluster = foreign(&[("alpha", 1)]);
    // RFC 5737: an address of nobody.
    cluster.file.nodes[0].server = Some("192.0.2.1:80".parse::<SocketAddr>().unwrap().into());
    let agent = cluster.part("node", "n1");
    agent_is_up(&cluster, 0);
    assert!(agent.err().contains("192.0.2.1:80 is no address of this machine"), "{}", agent.err());
    assert_eq!(metrics(cluster.node_admin(0)).get("sidelong_node_cpu_ratio"), None);
    agent.end().succeeded();
}

#[test]
fn what_is_not_there_is_refused_in_one_line() {
    let cluster = || foreign(&[("alpha", 1)]);
    let refused = |cluster: Cluster| cluster.part("node", "n1").finish().refused();
    let mut group = cluster();
    group.file.nodes[0].cgroup = Some("/sys/fs/cgroup/nobody".into());
    assert_eq!(refused(group), "node n1: there is no control group /sys/fs/cgroup/nobody (cgroup)");
    let mut unit = cluster();
    unit.file.nodes[0].unit = Some("sidelong-test-nobody.service".into());
    let line = refused(unit);
    assert!(
        line.starts_with("node n1: unit \"sidelong-test-nobody.service\" has no control group"),
        "{line}"
    );
    let mut file = cluster();
    let path = file.path("pid");
    file.file.nodes[0].pid_file = Some(path.clone());
    let at = format!("node n1: pid_file {}: ", path.display());
    let said = |text: &str| {
        std::fs::write(&path, text).unwrap();
        file.part("node", "n1").finish().refused()
    };
    assert_eq!(said("\n"), format!("{at}\"\" is not a process ID"));
    assert_eq!(said("99999999\n"), format!("{at}there is no process 99999999"));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        file.part("node", "n1").finish().refused(),
        format!("{at}No such file or directory (os error 2)")
    );
}

#[test]
fn the_workers_of_a_server_are_learned() {
    let prefork: fn(&Cluster, &str, SocketAddr, u16) -> Option<Running> =
        |cluster, name, address, workers| httpd(cluster, name, address, Mpm::Prefork(workers));
    let servers = [1, 2, 4, 8].map(|workers| (gunicorn as fn(&_, &_, _, _) -> _, workers));
    for (start, workers) in servers.into_iter().chain([(prefork, 4)]) {
        let mut cluster = foreign(&[("alpha", 1)]);
        let server = cluster.at(20_000 + (std::process::id() % 5_000) as u16);
        cluster.file.nodes[0].server = Some(server.into());
        let Some(_server) = start(&cluster, "one", server, workers) else { continue };
        let agent = cluster.part("node", "n1");
        let edge = cluster.part("edge", "edge1");
        answers(&cluster, "alpha", "one");
        let truth = f64::from(workers);
        let is_about = |found: f64| (truth / 1.5..=truth * 1.5).contains(&found);
        // A machine that is full of other tests cannot send so many requests that shorter ones keep all workers busy.
        learned(&cluster, 3 * usize::from(workers), Duration::from_millis(100), is_about);
        let status = cluster.run(&["status"]).succeeded();
        assert!(status.lines().any(|line| line.starts_with("n1") && line.contains("(learned)")), "{status}");
        edge.end().succeeded();
        agent.end().succeeded();
    }
}

/// nginx accepts whatever comes, so only the answers tell that five at a time are worked on: with more requests than that they
/// take longer than with two. They are in a control group, because the machine's CPU may be full of other tests.
#[test]
fn the_workers_behind_a_server_are_learned() {
    let mut cluster = foreign(&[("alpha", 1)]);
    let Some(servers) = php_fpm(&cluster, "one", cluster.node(0), 5) else { return };
    let processes = servers.iter().flat_map(family).collect::<Vec<_>>();
    let group = match ControlGroup::of("workers", &processes) {
        Ok(group) => group,
        Err(error) => return skipped(&format!("servers: no control group can be made here: {error}")),
    };
    let file = cluster.path("pid");
    std::fs::write(&file, format!("{}\n", processes[0].as_raw_nonzero())).unwrap();
    cluster.file.nodes[0].pid_file = Some(file);
    let agent = cluster.part("node", "n1");
    let edge = cluster.part("edge", "edge1");
    answers(&cluster, "alpha", "one");
    let time = Duration::from_millis(40);
    let few = Load::start(cluster.edge(0), "alpha.test", time, 2);
    let answered = "sidelong_edge_requests_total{site=\"alpha\",code=\"2xx\"}";
    eventually("some are answered", || metrics(cluster.admin(0)).get(answered).is_some_and(|&n| n > 100.0));
    drop(few);
    learned(&cluster, 20, time, |found| (5.0 / 1.5..=5.0 * 1.5).contains(&found));
    edge.end().succeeded();
    agent.end().succeeded();
    servers.into_iter().for_each(|server| _ = server.end());
    drop(group);
}

#[test]
fn a_server_without_workers_is_not_bound_by_them() {
    let time = Duration::from_millis(500);
    let servers: [(Start, Duration); 3] =
        [(nginx_that_takes_its_time, Duration::ZERO), (nodejs, time), (uvicorn, time)];
    for (start, time) in servers {
        let cluster = foreign(&[("alpha", 1)]);
        let Some(_server) = start(&cluster, "one", cluster.node(0)) else { continue };
        let agent = cluster.part("node", "n1");
        let edge = cluster.part("edge", "edge1");
        answers(&cluster, "alpha", "one");
        learned(&cluster, 32, time, f64::is_infinite);
        let status = cluster.run(&["status"]).succeeded();
        assert!(status.lines().any(|line| line.starts_with("n1") && line.contains("not bound")), "{status}");
        edge.end().succeeded();
        agent.end().succeeded();
    }
}

/// A client of its own has a connection to the server, past the edge.
#[test]
fn who_connects_past_the_edges_is_named_and_keeps_the_node_from_moving() {
    for exclusive in [None, Some(false)] {
        let mut cluster = foreign(&[("alpha", 1), ("beta", 2)]);
        cluster.file.set_scheme(Scheme::RdmaAsync);
        cluster.file.baseline.configuration = Configuration::Rigid;
        let server = cluster.at(30_000 + (std::process::id() % 2_000) as u16);
        cluster.file.nodes[0].server = Some(server.into());
        cluster.file.nodes[0].exclusive = exclusive;
        let Some(_server) = nginx(&cluster, "one", server) else { return };
        let _agent = cluster.part("node", "n1");
        let _edge = cluster.part("edge", "edge1");
        answers(&cluster, "alpha", "one");
        let said = || cluster.run(&["status"]).succeeded();
        assert!(!said().contains("no edge made"), "the edge's own connections are none of a stranger");

        // Linux lets a socket choose any address of 127.0.0.0/8.
        let from: std::net::SocketAddr = "127.0.0.77:0".parse().unwrap();
        let stranger = socket_from(from, server);
        eventually("it is named", || said().contains("n1 has 1 connection"));
        let shared = said().contains("it does not move, unless the file says exclusive = true");
        // The server listens on a loopback address, so that others do not matter unless the file says so.
        assert_eq!(shared, exclusive == Some(false), "{}", said());
        drop(stranger);
    }
}

fn socket_from(from: std::net::SocketAddr, to: std::net::SocketAddr) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &from).unwrap();
    connect(&socket, &to).unwrap();
    socket
}
