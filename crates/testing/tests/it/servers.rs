//! Nodes whose servers are real and not Sidelong's: nginx, httpd, gunicorn and others, unmodified.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use rustix::process::Signal;
use sidelong_config::{Configuration, Scheme};
use sidelong_policy::balance::Balance;

use sidelong_testing::foreign::{Draining, answers, foreign, learned};
use sidelong_testing::servers::{
    ControlGroup, Load, Mpm, closing_nginx, closing_server, failing_nginx, family, gunicorn, gunicorn_with,
    httpd, nginx, nginx_that_logs, nginx_that_takes_its_time, nodejs, php_fpm, uvicorn,
};
use sidelong_testing::{Cluster, Running, eventually, get, metrics, skipped, try_get};

#[test]
fn an_edge_routes_to_servers_that_are_not_ours() {
    let cluster = foreign(&[("alpha", 2)]);
    let Some(_one) = nginx(&cluster, "one", cluster.node(0)) else { return };
    let Some(_two) = gunicorn(&cluster, "two", cluster.node(1), 1) else { return };
    let agents = [cluster.here("node", "n1"), cluster.here("node", "n2")];
    let edge = cluster.here("edge", "edge1");
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
        agent.end();
    }
    // The agents are gone, and the servers are not.
    assert_eq!(get(cluster.edge(0), "alpha.test", "/").status, 200);
    edge.end();
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
    let _agents: Vec<_> = (1..=MAKES.len()).map(|node| cluster.here("node", &format!("n{node}"))).collect();
    let _edge = cluster.here("edge", "edge1");
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
    let _agents = [cluster.here("node", "n1"), cluster.here("node", "n2")];
    let _edge = cluster.here("edge", "edge1");
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
    let _agent = cluster.here("node", "n1");
    let _edge = cluster.here("edge", "edge1");
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
    let _parts = [cluster.here("node", "n1"), cluster.here("edge", "edge1")];
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

/// By the process that listens, and by a file with its ID. A group has no network of its own, so its record has none.
#[test]
fn the_load_is_that_of_the_control_group_in_which_the_server_runs() {
    let mut cluster = foreign(&[("alpha", 1)]);
    cluster.file.set_scheme(Scheme::RdmaAsync);
    let Some(server) = gunicorn(&cluster, "one", cluster.node(0), 1) else { return };
    let has_network = |cluster: &Cluster| {
        let agent = cluster.here("node", "n1");
        eventually("the agent has a record", || {
            try_get(cluster.node_admin(0), "any", "/metrics")
                .is_ok_and(|page| page.body.contains("cpu_ratio"))
        });
        let has = metrics(cluster.node_admin(0)).contains_key("sidelong_node_network_bytes_per_second");
        agent.end();
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
fn what_is_not_there_is_refused_in_one_line() {
    let cluster = || foreign(&[("alpha", 1)]);
    let refused = |cluster: Cluster| cluster.try_here("node", "n1").err().unwrap();
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
        file.try_here("node", "n1").err().unwrap()
    };
    assert_eq!(said("\n"), format!("{at}\"\" is not a process ID"));
    assert_eq!(said("99999999\n"), format!("{at}there is no process 99999999"));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        file.try_here("node", "n1").err().unwrap(),
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
        let agent = cluster.here("node", "n1");
        let edge = cluster.here("edge", "edge1");
        answers(&cluster, "alpha", "one");
        let truth = f64::from(workers);
        let is_about = |found: f64| (truth / 1.5..=truth * 1.5).contains(&found);
        // A machine that is full of other tests cannot send so many requests that shorter ones keep all workers busy.
        learned(&cluster, 3 * usize::from(workers), Duration::from_millis(100), is_about);
        edge.end();
        agent.end();
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
    let agent = cluster.here("node", "n1");
    let edge = cluster.here("edge", "edge1");
    answers(&cluster, "alpha", "one");
    let time = Duration::from_millis(40);
    let few = Load::start(cluster.edge(0), "alpha.test", time, 2);
    let answered = "sidelong_edge_requests_total{site=\"alpha\",code=\"2xx\"}";
    eventually("some are answered", || metrics(cluster.admin(0)).get(answered).is_some_and(|&n| n > 100.0));
    drop(few);
    learned(&cluster, 20, time, |found| (5.0 / 1.5..=5.0 * 1.5).contains(&found));
    edge.end();
    agent.end();
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
        let agent = cluster.here("node", "n1");
        let edge = cluster.here("edge", "edge1");
        answers(&cluster, "alpha", "one");
        learned(&cluster, 32, time, f64::is_infinite);
        edge.end();
        agent.end();
    }
}
