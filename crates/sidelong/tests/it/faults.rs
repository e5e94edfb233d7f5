//! Parts that die while others work, and a cluster that is over-provisioned.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sidelong_config::{Configuration, Fabric};
use sidelong_policy::brain::SUSPECT_FOR;

use crate::support::servers::{nginx, signal_all};
use crate::support::{Client, Cluster, Running, SetOnDrop, eventually, metrics, try_get};

/// The outcome of one request.
#[derive(Debug)]
struct Fate {
    begun: Instant,
    /// The node that answered with 200, or the error.
    node: Result<String, String>,
}

/// Sends requests for `site` to the edges all the time, from `clients` clients on kept connections, while `work` runs.
fn while_asked(
    cluster: &Cluster,
    site: &str,
    edge: usize,
    clients: usize,
    work: impl FnOnce(&Mutex<Vec<Fate>>),
) -> Vec<Fate> {
    let (fates, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let (host, address) = (format!("{site}.test"), cluster.edge(edge));
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = None;
                while !over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let mut ask = || {
                        let client = client.get_or_insert_with(|| Client::connect(address));
                        client.ask("GET", &host, "/o/1/100")
                    };
                    let node = match ask() {
                        Ok(reply) if reply.status == 200 => Ok(reply.node().to_owned()),
                        Ok(reply) => Err(format!("{reply:?}")),
                        Err(error) => Err(error.to_string()),
                    };
                    if node.is_err() {
                        client = None;
                    }
                    fates.lock().unwrap().push(Fate { begun, node });
                }
            });
        }
        let _ends_them = SetOnDrop(&over);
        work(&fates);
    });
    fates.into_inner().unwrap()
}

/// Whether an answer after the first `so_far` came from `node`.
fn is_seen(fates: &Mutex<Vec<Fate>>, so_far: usize, node: &str) -> bool {
    fates.lock().unwrap().iter().skip(so_far).any(|fate| fate.node.as_deref() == Ok(node))
}

#[test]
fn a_killed_node_costs_no_answer_and_comes_back() {
    let mut cluster = Cluster::new(&[("alpha", 3), ("beta", 1)]);
    // None of the three leaves the site under load.
    cluster.file.baseline.configuration = Configuration::Rigid;
    let _up = cluster.serving(&["--json"]);
    let mut killed = None;
    let fates = while_asked(&cluster, "alpha", 0, 4, |fates| {
        eventually("every node answers", || ["n1", "n2", "n3"].iter().all(|node| is_seen(fates, 0, node)));
        let victim = cluster.find("node", "n2");
        killed = Some(Instant::now());
        victim.kill();
        eventually("another is started", || {
            cluster.parts().iter().any(|part| part.name == "n2" && *part != victim)
        });
        let so_far = fates.lock().unwrap().len();
        eventually("it answers again", || is_seen(fates, so_far, "n2"));
    });
    let late = killed.unwrap() + Duration::from_millis(100);
    let failed: Vec<_> = fates.iter().filter(|fate| fate.node.is_err()).collect();
    let too_late: Vec<_> = failed.iter().filter(|fate| fate.begun >= late).collect();
    assert!(too_late.is_empty(), "of {} requests {} failed: {failed:?}", fates.len(), too_late.len());
}

#[test]
fn a_killed_edge_leaves_the_other_serving_and_moving() {
    let cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]).with_load(256, None);
    let up = cluster.serving(&["--json"]);
    let fates = while_asked(&cluster, "alpha", 1, 1, |fates| {
        eventually("it answers", || !fates.lock().unwrap().is_empty());
        let before = moves(&cluster, 1);
        cluster.find("edge", "edge1").kill();
        eventually("the other goes on moving nodes", || moves(&cluster, 1) > before);
        eventually("it comes back", || {
            try_get(cluster.edge(0), "beta.test", "/o/1/1").is_ok_and(|r| r.status == 200)
        });
    });
    let failed: Vec<_> = fates.iter().filter(|fate| fate.node.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    let summary = up.end().json();
    assert!(summary["moves"].as_u64().unwrap() > 0, "{summary}");
}

/// Its requests may still be under way, so that no node leaves a site; it costs no site its nodes, and it is over when it goes
/// on.
#[test]
fn a_stopped_edge_holds_nodes_where_they_are() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 3)]);
    cluster.file.reconfig.drain_max = Duration::from_millis(50);
    let _up = cluster.serving(&["--json"]);
    let stopped = cluster.find("edge", "edge2");
    stopped.signal(Signal::STOP);
    let not_drained = || {
        let name = r#"sidelong_edge_moves_abandoned_total{end="not-drained"}"#;
        metrics(cluster.admin(0)).get(name).copied().unwrap_or(0.0)
    };
    let fates = while_asked(&cluster, "alpha", 0, 16, |_| {
        // What was begun before may end.
        eventually("a move is begun, and rolled back", || not_drained() >= 1.0);
        let held = nodes_seen(&cluster, 0)[0];
        eventually("others are, too", || not_drained() >= 4.0);
        eventually("no node has moved", || nodes_seen(&cluster, 0)[0] == held);
        stopped.signal(Signal::CONT);
        eventually("nodes move", || nodes_seen(&cluster, 0)[0] > held);
    });
    let failed: Vec<_> = fates.iter().filter(|fate| fate.node.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// The nodes that an edge sees serving each site, in the file's order.
fn nodes_seen(cluster: &Cluster, edge: usize) -> Vec<usize> {
    let seen = metrics(cluster.admin(edge));
    let of = |site: &str| {
        let label = format!(",site=\"{site}\"}}");
        seen.iter()
            .filter(|(name, _)| name.starts_with("sidelong_edge_node_site{") && name.ends_with(&label))
            .filter(|(_, serves)| **serves == 1.0)
            .count()
    };
    cluster.file.sites.iter().map(|site| of(&site.name)).collect()
}

/// Moves that an edge has made.
fn moves(cluster: &Cluster, edge: usize) -> f64 {
    let seen = metrics(cluster.admin(edge));
    seen.iter()
        .filter(|(name, _)| name.starts_with("sidelong_edge_moves_total{"))
        .map(|(_, count)| count)
        .sum()
}

/// An agent that says nothing is no server that does not answer. Only the second costs a site its node, and brings it another, also if nobody
/// sends it a request.
#[test]
fn a_silent_agent_moves_nothing_and_a_dead_server_brings_another_node() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 2)]).foreign();
    cluster.file.edges.truncate(1);
    let names = ["one", "two", "three"];
    let servers = names.iter().zip(0..).map(|(name, node)| nginx(&cluster, name, cluster.node(node)));
    let Some(servers) = servers.collect::<Option<Vec<_>>>() else { return };
    let agents = ["n1", "n2", "n3"].map(|name| cluster.part("node", name));
    let _edge = cluster.part("edge", "edge1");
    let answer = |site: &str| try_get(cluster.edge(0), &format!("{site}.test"), "/");
    let is_served_by = |site, bodies: &[&str]| {
        answer(site).is_ok_and(|reply| reply.status == 200 && bodies.contains(&reply.body.as_str()))
    };
    let has_record_of = |node: &str| {
        let figure = format!("sidelong_edge_node_memory_ratio{{node=\"{node}\"}}");
        metrics(cluster.admin(0)).contains_key(&figure)
    };
    let has_record = || has_record_of("n1");
    eventually("both sites are served", || {
        is_served_by("alpha", &["one"]) && is_served_by("beta", &names[1..])
    });
    eventually("the record of alpha's node is read", has_record);

    agents[0].signal(Signal::STOP);
    eventually("it is no longer", || !has_record());
    let until = Instant::now() + 3 * SUSPECT_FOR;
    while Instant::now() < until {
        assert!(is_served_by("alpha", &["one"]), "{:?}", answer("alpha"));
    }
    agents[0].signal(Signal::CONT);
    eventually("it is again", has_record);

    eventually("that of a node of beta is read", || has_record_of("n2"));
    agents[1].signal(Signal::STOP);
    eventually("it is no longer", || !has_record_of("n2"));
    eventually("its server answers, and gets requests", || is_served_by("beta", &["two"]));
    agents[1].signal(Signal::CONT);
    eventually("it is again", || has_record_of("n2"));
    assert_eq!((nodes_seen(&cluster, 0), moves(&cluster, 0)), (vec![1, 2], 0.0));

    // Nobody asks for alpha from now on.
    agents[0].signal(Signal::STOP);
    eventually("it is no longer", || !has_record());
    signal_all(&servers[0], Signal::KILL);
    eventually("alpha has another node", || moves(&cluster, 0) == 1.0);
    eventually("alpha has a server of beta", || is_served_by("alpha", &names[1..]));
    let seen = metrics(cluster.admin(0));
    assert_eq!(
        seen.get("sidelong_edge_moves_total{from=\"beta\",to=\"alpha\",reason=\"floor\"}"),
        Some(&1.0),
        "{seen:?}"
    );
}

/// Kills one node after another while nodes move; all of them must be back, moving, and none lost or doubled.
fn nodes_may_die_while_they_move(fabric: Fabric) {
    let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 2), ("gamma", 2)]).with_load(256, None);
    cluster.file.cluster.fabric = fabric;
    let up = cluster.serving(&["--json"]);
    for name in ["n1", "n4", "n6", "n1"] {
        let before = moves(&cluster, 0) + moves(&cluster, 1);
        let victim = cluster.find("node", name);
        victim.kill();
        eventually("it is started again", || {
            cluster.parts().iter().any(|part| part.name == name && *part != victim)
        });
        eventually("nodes move on", || moves(&cluster, 0) + moves(&cluster, 1) > before + 2.0);
    }
    for edge in [0, 1] {
        eventually("all six nodes serve, at least one each site", || {
            let seen = nodes_seen(&cluster, edge);
            assert!(seen.iter().sum::<usize>() <= 6, "{seen:?}");
            seen.iter().sum::<usize>() == 6 && seen.iter().all(|nodes| *nodes >= 1)
        });
    }
    let summary = up.end().json();
    assert!(summary["moves"].as_u64().unwrap() > 0, "{summary}");
}

#[test]
fn nodes_may_die_while_they_move_over_shared_memory() {
    nodes_may_die_while_they_move(Fabric::Shm);
}

#[test]
fn nodes_may_die_while_they_move_over_tcp() {
    // The first of them has the locks and budgets in its memory.
    nodes_may_die_while_they_move(Fabric::Tcp);
}

#[test]
fn an_over_provisioned_cluster_has_nodes_for_the_worst_case() {
    let mut cluster = Cluster::demo().with_load(512, None);
    cluster.file.baseline.configuration = Configuration::OverProvisioned;
    let up: Running = cluster.serving(&["--json"]);
    let nodes: BTreeSet<_> =
        cluster.parts().into_iter().filter(|part| part.kind == "node").map(|part| part.name).collect();
    assert_eq!(nodes.len(), 18, "six for each site: {nodes:?}");
    let summary = up.end().json();
    assert_eq!((&summary["errors"], &summary["moves"]), (&0.into(), &0.into()), "{summary}");
    assert!(summary["sites"].as_array().unwrap().iter().all(|site| site["nodes"] == 6), "{summary}");
}
