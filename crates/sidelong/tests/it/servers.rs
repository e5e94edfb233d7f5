//! What the program says and costs where servers are not Sidelong's, and the servers that `up` runs.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sidelong_config::{Configuration, NodeEntry, Scheme, ServerAddress};

use crate::support::foreign::{answers, foreign, server, socket};
use crate::support::servers::{Load, gunicorn, nginx, nginx_over_http2, processes_of};
use crate::support::{Cluster, Running, eventually, get, metrics, run, skipped, try_get};

fn agent_is_up(cluster: &Cluster, node: usize) {
    eventually("the agent is up", || try_get(cluster.node_admin(node), "any", "/healthz").is_ok());
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
            let history = cluster.run(&["history", "--json"]).json();
            history.as_array().unwrap().iter().any(|record| record["how"] == "moved")
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
        let server = cluster.node(0);
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
            // So long that a client is seldom between two requests, on a busy machine either.
            let load = Load::start(server, "alpha.test", Duration::from_millis(400), 8);
            for told in [&own as &dyn Fn(&str) -> Option<f64>, &by_edge] {
                eventually(&format!("eight connections under {scheme:?}"), || {
                    told("open_connections").is_some_and(|open| open >= 7.0)
                });
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

/// One at a port, one at a Unix socket, one that speaks HTTP/2, and one that is not there yet.
#[test]
fn a_file_is_written_for_servers_that_run() {
    let mut cluster = foreign(&[("alpha", 4)]);
    cluster.file.nodes[1].server = Some(ServerAddress::Unix(socket(&cluster, 1)));
    let files = cluster.path("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("index.html"), "three").unwrap();
    let Some(one) = nginx(&cluster, "one", cluster.node(0)) else { return };
    let Some(two) = nginx(&cluster, "two", server(&cluster, 1)) else { return };
    let Some(three) = nginx_over_http2(&cluster, cluster.node(2), &files) else { return };
    let file = cluster.path("sidelong.toml");
    let addresses: Vec<_> = (0..4).map(|node| server(&cluster, node).to_string()).collect();
    let init = |hosts: &[&str], config: &Path| {
        let mut arguments: Vec<String> = vec!["init".into(), "--config".into(), config.display().to_string()];
        arguments.extend(["--listen".into(), cluster.edge(0).to_string()]);
        arguments.extend(addresses.iter().flat_map(|address| ["--server".into(), address.clone()]));
        hosts.iter().for_each(|host| arguments.extend(["--host".into(), (*host).to_owned()]));
        run(arguments)
    };
    let said = init(&["alpha.test"], &file).succeeded();
    for (address, server) in addresses.iter().zip([&one, &two, &three]) {
        let pid = server.pid().as_raw_nonzero();
        assert!(said.contains(&format!("{address}: nginx, process {pid}, ")), "{said}");
    }
    let lines: Vec<_> = said.lines().map(|line| line.contains("speaks HTTP/2 in clear text")).collect();
    assert_eq!(lines[..4], [false, false, true, false], "{said}");
    assert!(said.contains(&format!("nobody listens at {} yet", addresses[3])), "{said}");
    assert!(said.contains(&format!("sidelong up --config {}", file.display())), "{said}");
    let up = Running::start(["up", "--plain", "--config", file.to_str().unwrap()]);
    ["one", "two", "three"].iter().for_each(|body| answers(&cluster, "alpha", body));
    eventually("it says that it is up", || up.err().contains(" is up: "));
    up.end().succeeded();

    let refused = |hosts: &[&str], config: &Path, expected: &str| {
        let line = init(hosts, config).refused();
        assert!(line.contains(expected), "{line}");
    };
    refused(&["alpha.test"], &file, "sidelong.toml exists already: name another file with --config");
    let other = cluster.path("other.toml");
    refused(&["a", "b", "c", "d", "e"], &other, "5 sites (--host) and 4 servers (--server)");
    refused(&["App.Example"], &other, "--host App.Example: expected a host in lower case");
    refused(&["alpha.test"], Path::new("/nowhere/sidelong.toml"), "cannot write /nowhere/sidelong.toml");
    assert!(!other.exists());
    let words =
        ["init", "--server", "unix:app.sock", "--host", "a.test", "--config", "/nowhere/sidelong.toml"];
    let line = run(words).refused();
    assert!(line.contains("Unix socket \"app.sock\" of 8 bytes; expected an absolute path"), "{line}");
    // Two sites whose hosts begin alike.
    init(&["app.one.test", "app.two.test"], &other).succeeded();
    run(["config", "check", other.to_str().unwrap()]).succeeded();
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
