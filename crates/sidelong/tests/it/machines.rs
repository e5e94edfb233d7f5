//! What the parts of several machines say to each other and in their logs, what commands do from any of them, and devices.

use std::fs;
use std::time::Duration;

use sidelong_config::{Completion, Configuration, EdgeEntry, Fabric, Scheme, SecretText};

use sidelong_testing::machines::{FABRIC, Machines, SECRET};

use crate::support::{Cluster, eventually, get, metrics, run};

fn reads_routes_and_moves(change: impl FnOnce(&mut Machines)) {
    let mut machines = Machines::three();
    change(&mut machines);
    let nodes: Vec<_> = ["n1", "n2", "n3"].map(|name| machines.part("node", name)).into();
    let edge = machines.part_with(SECRET, "edge", "edge1", &["--events"]);
    eventually("the edge is ready", || edge.out().contains("{\"event\":\"ready\"}"));
    assert!(edge.out().contains("\"fabric "), "{}", edge.out());
    eventually("it listens", || machines.answers("alpha"));
    let reply = get(machines.cluster.edge(0), "alpha.test", "/o/1/10");
    assert_eq!(reply.status, 200, "{reply:?}");
    if reply.node() != "n1" {
        // In a slow guest a node may have moved by now.
        let moved =
            format!("{{\"event\":\"moved\",\"node\":\"{}\",\"from\":\"beta\",\"to\":\"alpha\"", reply.node());
        eventually("the edge tells of the move", || edge.out().contains(&moved));
    }
    eventually("both sites answer", || machines.answers("beta"));

    machines.await_move();
    let refused = metrics(machines.cluster.admin(0));
    let refused = refused.iter().filter(|(name, _)| name.contains("control_refused"));
    assert!(refused.clone().count() == 6 && refused.clone().all(|(_, count)| *count == 0.0), "{refused:?}");
    edge.end().succeeded();
    nodes.into_iter().for_each(|node| _ = node.end().succeeded());
    machines.assert_nothing_told(&["n1", "n2", "n3"]);
}

#[test]
fn an_edge_reads_routes_and_moves_nodes_of_other_machines() {
    reads_routes_and_moves(|_| ());
}

#[test]
fn a_node_that_restarts_is_found_again() {
    let machines = Machines::three();
    let _edge = machines.part("edge", "edge1");
    let [first, _second, _third] = ["n1", "n2", "n3"].map(|name| machines.part("node", name));
    eventually("both sites answer", || machines.answers("alpha") && machines.answers("beta"));
    // It holds the board, which is lost and comes back with it.
    first.kill();
    eventually("its site does not answer", || !machines.answers("alpha"));
    assert!(machines.answers("beta"));
    let _first = machines.part("node", "n1");
    eventually("its site answers again", || machines.answers("alpha"));
    machines.await_move();
}

/// Nobody else on its machine can say that the edge has ended, or a node can.
#[test]
fn moves_wait_for_an_edge_until_it_is_proven_to_have_ended() {
    for is_alone in [true, false] {
        let mut machines = Machines::three();
        let (first, second) = (machines.others[1].at(FABRIC + 9), machines.others[0].at(FABRIC + 10));
        let file = &mut machines.cluster.file;
        file.reconfig.drain_max = Duration::from_millis(300);
        file.edges[0].fabric_listen = Some(first);
        let listen = machines.others[0].at(8_280);
        let entry = EdgeEntry { fabric_listen: Some(second), ..EdgeEntry::new("edge2", listen) };
        machines.cluster.file.edges.push(entry);
        let _nodes = ["n1", "n2", "n3"].map(|name| machines.part("node", name));
        machines.beside = (!is_alone).then_some(("edge2", "n1"));
        let _edge = machines.part("edge", "edge1");
        let other = machines.part_with(SECRET, "edge", "edge2", &["--events"]);
        eventually("it is ready", || other.out().contains("{\"event\":\"ready\"}"));
        eventually("both sites answer", || machines.answers("alpha") && machines.answers("beta"));
        other.kill();
        if is_alone {
            let waits = r#"sidelong_edge_moves_waiting_seconds{for="edge2"}"#;
            machines.under_load(|| eventually("moves wait for it", || machines.metric(waits) > 0.0));
            assert!(!machines.has_moved());
            let _other = machines.part("edge", "edge2");
            machines.await_move();
        } else {
            machines.await_move();
        }
    }
}

#[test]
fn a_node_with_another_secret_is_refused_and_harms_nobody() {
    let machines = Machines::three();
    let mut edge = machines.part("edge", "edge1");
    let _nodes = ["n1", "n2"].map(|name| machines.part("node", name));
    let stranger = machines.part_with("what somebody else knows", "node", "n3", &[]);
    eventually("the others serve", || machines.answers("alpha") && machines.answers("beta"));
    let refused = r#"sidelong_edge_control_refused_total{cause="secret"}"#;
    eventually("it is counted", || machines.metric(refused) >= 3.0);
    let by_it = metrics(machines.cluster.node_admin(2));
    let by_it = by_it[r#"sidelong_node_control_endpoint_refused_total{cause="secret"}"#];
    assert!(by_it >= 3.0, "the node counts its refusals, too: {by_it}");

    let address = machines.others[1].at(FABRIC + 2);
    let said = edge.err();
    let lines: Vec<_> = said.lines().filter(|line| line.contains(&address.to_string())).collect();
    let expected = "the secrets differ: all machines of a cluster need the same one";
    assert!(lines.iter().any(|line| line.contains("n3.load") && line.contains(expected)), "{said}");
    assert_eq!(lines.iter().filter(|line| line.contains(expected)).count(), 1, "said once: {said}");
    let its = stranger.err();
    assert!(its.contains("the control endpoint refuses a peer") && its.contains(expected), "{its}");
    assert!(!(said + &its).contains("knows"), "secrets are not shown");

    assert!(edge.is_running() && machines.answers("alpha") && machines.answers("beta"));
    assert_eq!(machines.metric(r#"sidelong_edge_control_refused_total{cause="version"}"#), 0.0);
    stranger.end().succeeded();
    let _third = machines.part("node", "n3");
    let serves = r#"sidelong_edge_node_site{node="n3",site="beta"}"#;
    eventually("with the right one it is taken in", || machines.metric(serves) == 1.0);
}

#[test]
fn secrets_that_cannot_be_used_are_refused_at_once() {
    let mut machines = Machines::three();
    let refused = |machines: &Machines, secret: &str| {
        ["n1", "edge1"].map(|name| {
            let kind = if name == "n1" { "node" } else { "edge" };
            machines.part_with(secret, kind, name, &[]).finish().refused()
        })
    };
    for line in refused(&machines, "too short") {
        assert!(line.contains("/secret: ") && line.contains("9 bytes: 16 to 1024 are needed"), "{line}");
    }
    machines.cluster.file.cluster.secret_file = Some("cluster.toml".into());
    for line in refused(&machines, SECRET) {
        assert!(line.contains("cluster.toml: ") && line.contains("mode 0600"), "{line}");
    }
    machines.cluster.file.cluster.secret_file = None;
    machines.cluster.file.cluster.secret = Some(SecretText::new(SECRET));
    for line in refused(&machines, SECRET) {
        assert!(line.contains("cluster.toml:") && line.contains("other users can read"), "{line}");
        assert!(!line.contains(SECRET), "{line}");
    }
}

#[test]
fn the_fabric_may_be_chosen_on_the_command_line() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let up = cluster.up(&["--fabric", "tcp", "--plain"]);
    eventually("it is up", || up.err().contains(" is up: "));
    assert!(cluster.run_dir().join("n1.load.tcpkey").exists());
    up.end().succeeded();

    let config = cluster.config();
    let line = run(["node", "n1", "--fabric", "ether", "--config", config.to_str().unwrap()]);
    assert!(line.code == Some(2) && line.err.contains("one of auto, shm, tcp, verbs"), "{line:?}");
}

mod over_verbs {
    use super::*;
    use crate::support::has_rdma;

    #[test]
    fn where_there_is_no_device_it_is_refused_in_one_line() {
        if !has_rdma() {
            let cluster = Cluster::new(&[("alpha", 1)]);
            let line = cluster.up(&["--fabric", "verbs"]).finish().refused();
            let reasons = ["no RDMA device", "libibverbs cannot be loaded"];
            let said = |reason| line.contains(&format!("fabric verbs is not available: {reason}"));
            assert!(reasons.into_iter().any(said), "{line}");
        }
    }

    /// The kernel's memory, registered for reading: no thread of the node keeps it.
    #[test]
    fn a_record_that_the_kernel_keeps_is_read() {
        if has_rdma() {
            let mut cluster = Cluster::new(&[("alpha", 1)]);
            cluster.file.set_scheme(Scheme::RdmaSync);
            at_ease(&mut cluster);
            let up = cluster.up(&["--fabric", "verbs", "--plain"]);
            let ages = |out: &str| -> Vec<f64> {
                let ages =
                    out.lines().filter_map(|line| line.split_once("oldest record ")?.1.split(' ').next());
                ages.filter_map(|age| age.parse().ok()).collect()
            };
            // Some are as old as the guest stood still for.
            let is_fresh = || ages(&up.out()).iter().filter(|age_ms| **age_ms < 150.0).count() > 2;
            eventually("it is read as it is kept", is_fresh);
            up.end().succeeded();
        }
    }

    #[test]
    fn a_whole_data_center_runs_on_one_machine() {
        if has_rdma() {
            let cluster = Cluster::new(&[("alpha", 1), ("beta", 2)]);
            let mut cluster = cluster.with_load(100, None);
            at_ease(&mut cluster);
            // A guest without a processor to itself takes seconds for a request.
            let load = cluster.file.workload.as_mut().unwrap();
            load.timeout = Duration::from_secs(60);
            let up = cluster.up(&["--fabric", "verbs", "--plain"]);
            let moves = |line: &str| {
                line.split_once(" moves").and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok())
            };
            eventually("a node moves", || up.out().lines().filter_map(moves).any(|moves: u64| moves > 0));
            let out = up.end().succeeded();
            assert!(
                out.lines().any(|line| line.contains(" requests in ") && line.contains(" 0 errors")),
                "{out}"
            );
        }
    }

    #[test]
    fn an_edge_reads_routes_and_moves_nodes_of_other_machines() {
        if has_rdma() {
            reads_routes_and_moves(|machines| {
                machines.cluster.file.cluster.fabric = Fabric::Verbs;
                at_ease(&mut machines.cluster);
            });
        }
    }

    /// Timeouts for an emulated device on an emulated machine.
    fn at_ease(cluster: &mut Cluster) {
        let ms = Duration::from_millis;
        (cluster.file.verbs.completion, cluster.file.verbs.retries) = (Completion::Events, 6);
        cluster.file.edges.truncate(1);
        (cluster.file.load.period, cluster.file.load.stale) = (ms(5), ms(2000));
        let reconfig = &mut cluster.file.reconfig;
        (reconfig.sensitivity, reconfig.history) = (ms(20), ms(40));
        (reconfig.lease, reconfig.drain_max) = (ms(1000), ms(2000));
    }
}

/// From another machine than the board's, and only where the edge can be asked for its requests.
#[test]
fn nodes_are_moved_by_hand_from_any_machine() {
    let mut machines = Machines::three();
    machines.cluster.file.baseline.configuration = Configuration::Rigid;
    let refused = machines.part("drain", "n3").finish().refused();
    assert!(refused.contains("nobody can read which requests edge1 has: give it fabric_listen"), "{refused}");
    machines.cluster.file.edges[0].fabric_listen = Some(machines.others[1].at(FABRIC + 9));
    let refused = machines.part("drain", "n3").finish().refused();
    assert!(refused.contains("no node of cluster test is heard: "), "{refused}");

    let _nodes = ["n1", "n2", "n3"].map(|name| machines.part("node", name));
    let _edge = machines.part("edge", "edge1");
    eventually("both sites answer", || machines.answers("alpha") && machines.answers("beta"));
    let state = |name: &str, state: &str| {
        let name = format!("sidelong_edge_node_state{{node=\"{name}\",state=\"{state}\"}}");
        eventually(&name, || machines.metric(&name) == 1.0);
    };
    // A site whose other node has not begun is at its floor.
    ["n2", "n3"].into_iter().for_each(|name| state(name, "serving"));
    let said = machines.part("drain", "n3").finish().succeeded();
    assert!(said.starts_with("n3 is held; "), "{said}");
    state("n3", "held");
    let refused = machines.part("drain", "n2").finish().refused();
    assert!(refused.contains("beta is at its floor of 1"), "{refused}");
    machines.part("resume", "n3").finish().succeeded();
    state("n3", "serving");
    machines.part_with(SECRET, "move", "n3", &["alpha"]).finish().succeeded();
    state("n3", "pinned");
    assert!(
        fs::read_to_string(machines.cluster.path("n3").join("run/by_hand.history.jsonl"))
            .unwrap()
            .contains("alpha")
    );
}
