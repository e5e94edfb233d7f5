//! `sidelong reload`, `sidelong config diff` and SIGHUP: a cluster of processes goes by a changed file.

use std::time::Duration;

use rustix::process::Signal;
use sidelong_config::{FrontEntry, NodeEntry, Proxy};
use sidelong_testing::servers::{ControlGroup, gunicorn};
use sidelong_testing::{Cluster, Running, eventually, run, skipped, try_get, until_it_succeeds};

/// Sites alpha and beta with a node each behind an edge, started by hand.
fn started() -> (Cluster, Vec<Running>) {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    let parts = [("node", "n1"), ("node", "n2"), ("edge", "edge1")];
    let parts = parts.map(|(kind, name)| cluster.part(kind, name));
    eventually("it serves", || ["alpha.test", "beta.test"].iter().all(|host| status(&cluster, host) == 200));
    (cluster, parts.into())
}

fn status(cluster: &Cluster, host: &str) -> u16 {
    try_get(cluster.edge(0), host, "/o/1/1").map_or(0, |reply| reply.status)
}

/// Ends them, the edge first.
fn end(parts: Vec<Running>) {
    for part in parts.into_iter().rev() {
        part.end().succeeded();
    }
}

#[test]
fn a_changed_file_is_adopted_whole_or_not_at_all() {
    let (mut cluster, parts) = started();
    let old = cluster.path("old.toml");
    std::fs::copy(cluster.config(), &old).unwrap();
    cluster.file.sites[0].hosts = vec!["new.test".into()];
    cluster.file.limits.retries = 0;

    let new = cluster.config();
    let diff =
        Running::start(["config".as_ref(), "diff".as_ref(), old.as_os_str(), new.as_os_str()]).finish();
    let dry = cluster.run(&["reload", "--dry-run"]);
    for told in [&diff, &dry] {
        let row =
            |key: &str| told.out.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
        assert!(told.code == Some(0) && row("site.alpha.hosts").ends_with("live"), "{told:?}");
        assert!(row("limits.retries").ends_with("live"), "{told:?}");
    }
    assert_eq!((status(&cluster, "alpha.test"), status(&cluster, "new.test")), (200, 421), "it is as it was");
    let done = cluster.run(&["reload"]);
    assert!(done.code == Some(0) && done.out.contains("all parts that run go by it (epoch 2)"), "{done:?}");
    assert_eq!((status(&cluster, "alpha.test"), status(&cluster, "new.test")), (421, 200));
    assert!(cluster.run(&["reload"]).out.contains("nothing has changed"));

    // What only the edge reads waits for its restart; what takes a stop of all, or is wrong, changes nothing.
    cluster.file.edges[0].proxy_protocol = true;
    let done = cluster.run(&["reload"]);
    let restarts =
        "all parts that run go by it (epoch 3); still to be restarted: edge1 for edge.edge1.proxy_protocol";
    assert!(done.code == Some(0) && done.out.contains(restarts), "{done:?}");
    assert_eq!(status(&cluster, "new.test"), 200);
    cluster.file.sites[0].hosts = vec!["other.test".into()];
    cluster.file.cache.item_bytes_max += 1;
    let refused = cluster.run(&["reload"]);
    assert!(refused.code == Some(2) && refused.err.contains("nothing is changed"), "{refused:?}");
    std::fs::write(cluster.path("wrong.toml"), "[cluster]\nname = 3\n").unwrap();
    let wrong =
        Running::start(["reload".as_ref(), "--config".as_ref(), cluster.path("wrong.toml").as_os_str()]);
    assert_eq!(wrong.finish().code, Some(2));
    assert_eq!((status(&cluster, "other.test"), status(&cluster, "new.test")), (421, 200));

    // What there is no room for is refused before, too.
    cluster.file.cache.item_bytes_max -= 1;
    let many = NodeEntry::foreign("m", 600, cluster.at(40_000));
    cluster.file.nodes.push(many);
    for how in [&["reload", "--dry-run"][..], &["reload"]] {
        let refused = cluster.run(how);
        assert!(refused.code == Some(2) && refused.err.contains("room for 512 nodes"), "{refused:?}");
    }
    end(parts);
}

/// A part that hangs has all others go back, after which they go on: some have known a node that is none.
#[test]
fn a_join_that_a_part_does_not_hear_of_is_undone() {
    let (mut cluster, mut parts) = started();
    parts[1].signal(Signal::STOP);
    let before = cluster.file.clone();
    cluster.add_node("n3");
    let refused = cluster.run(&["reload", "--timeout", "2s"]);
    assert!(
        refused.code == Some(2)
            && refused.err.contains("nothing is changed, because n2 did not take it over within 2s"),
        "{refused:?}"
    );
    let said = cluster.run(&["status"]).succeeded();
    assert!(said.contains("n2 is 2 behind, for "), "the try, and what undid it: {said}");
    // One that is killed leaves a part behind, for which the next one waits.
    cluster.file = before.clone();
    cluster.file.limits.retries += 1;
    let killed = cluster.start(&["reload"]);
    eventually("it is under way", || cluster.run(&["status"]).out.contains("n2 is 3 behind"));
    killed.kill();
    let waits = cluster.run(&["reload", "--timeout", "100ms"]);
    assert!(waits.code == Some(2) && waits.err.contains("n2 did not take it over"), "{waits:?}");
    parts[1].signal(Signal::CONT);
    until_it_succeeds(|| cluster.run(&["reload"]));
    cluster.file = before;
    cluster.add_node("n4");
    until_it_succeeds(|| cluster.run(&["reload"]));
    parts.insert(2, cluster.part("node", "n4"));
    until_it_succeeds(|| cluster.run(&["move", "n4", "beta"]));
    eventually("it gets requests", || {
        let reply = try_get(cluster.edge(0), "beta.test", "/o/1/1");
        reply.is_ok_and(|reply| reply.status == 200 && reply.node() == "n4")
    });
    end(parts);
}

#[test]
fn sighup_to_any_part_is_a_reload() {
    let (mut cluster, parts) = started();
    for (round, part) in parts.iter().enumerate() {
        let host = format!("host{round}.test");
        cluster.file.sites[0].hosts = vec![host.clone()];
        cluster.config();
        part.signal(Signal::HUP);
        eventually("the edge goes by it", || status(&cluster, &host) == 200);
    }
    cluster.file.sites[0].hosts = vec!["beta.test".into()];
    cluster.config();
    parts[0].signal(Signal::HUP);
    eventually("its log says why not", || parts[0].err().contains("SIGHUP: "));
    assert_eq!(status(&cluster, "host2.test"), 200, "and nothing changes");
    end(parts);
}

/// Without a cluster there is nothing to do.
#[test]
fn a_cluster_that_does_not_run_is_told() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let refused = cluster.run(&["reload"]);
    assert!(refused.code == Some(2) && refused.err.contains("no part of"), "{refused:?}");
}

/// A damaged roster costs nothing: its copy is read. If both copies are gone, or their directory is, parts that run write them again.
#[test]
fn a_roster_that_is_scribbled_over_has_a_copy() {
    let (mut cluster, mut parts) = started();
    cluster.file.sites[0].hosts = vec!["new.test".into()];
    assert_eq!(cluster.run(&["reload"]).code, Some(0));
    std::fs::write(
        cluster.run_dir().join("roster/newest.toml"),
        "# sidelong roster epoch 9 check 1\nnonsense",
    )
    .unwrap();
    parts.pop().expect("the edge").kill();
    parts.push(cluster.part("edge", "edge1"));
    eventually("it serves what was adopted", || status(&cluster, "new.test") == 200);
    cluster.file.sites[0].hosts = vec!["newer.test".into()];
    let done = cluster.run(&["reload"]);
    assert!(done.out.contains("epoch 3"), "{done:?}");
    assert_eq!(status(&cluster, "newer.test"), 200);
    for copy in ["roster/newest.toml", "roster/copy.toml"] {
        std::fs::remove_file(cluster.run_dir().join(copy)).unwrap();
    }
    let newest = cluster.run_dir().join("roster/newest.toml");
    let is_back = || newest.exists();
    eventually("it is written again", is_back);
    for round in 0..3 {
        let directory = cluster.run_dir().join("roster");
        std::fs::rename(&directory, cluster.path(&format!("away{round}"))).unwrap();
        eventually("its directory is made again", is_back);
        cluster.file.sites[0].hosts = vec![format!("host{round}.test")];
        until_it_succeeds(|| cluster.run(&["reload"]));
        assert_eq!(status(&cluster, &format!("host{round}.test")), 200);
    }
    end(parts);
}

/// A front whose proxy goes on without it keeps nodes from moving, until it is back or a person says that nothing of it is left.
#[test]
fn moves_wait_for_a_front_that_is_away_until_it_is_removed_as_lost() {
    let mut cluster = Cluster::new(&[("alpha", 3), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    cluster.file.fronts.push(FrontEntry::new("web1", Proxy::Library));
    cluster.file.reconfig.drain_max = Duration::from_millis(100);
    let nodes = ["n1", "n2", "n3", "n4"].map(|name| cluster.part("node", name));
    let edge = cluster.part("edge", "edge1");
    let begin = || {
        let front = cluster.part("front", "web1");
        eventually("nodes move", || {
            cluster.run(&["move", "n3", "alpha"]).code == Some(0)
                && cluster.run(&["move", "n3", "beta"]).code == Some(0)
        });
        cluster.run(&["resume", "n3"]).succeeded();
        front
    };
    let front = begin();
    let refused = cluster.run(&["remove", "web1", "--lost"]);
    assert!(refused.code == Some(2) && refused.err.contains("web1 runs: end it"), "{refused:?}");
    front.kill();
    let waits = || cluster.run(&["move", "n3", "alpha"]);
    let refused = waits();
    assert!(refused.code == Some(2) && refused.err.contains("web1 has not seen"), "{refused:?}");
    let removed = cluster.run(&["remove", "web1", "--lost"]);
    assert!(removed.code == Some(0) && removed.out.contains("nobody waits for web1"), "{removed:?}");
    cluster.run(&["move", "n3", "alpha"]).succeeded();
    cluster.run(&["move", "n3", "beta"]).succeeded();
    cluster.run(&["resume", "n3"]).succeeded();
    // Once it is back, it is asked again.
    begin().kill();
    assert_eq!(waits().code, Some(2));
    // The edge waits, too, and says for whom.
    cluster.file.sites[0].floor = 3;
    cluster.run(&["reload"]).succeeded();
    let waits = || cluster.figure(0, r#"moves_waiting_seconds{for="web1"}"#);
    eventually("the edge has a node to move, and waits for the front", || waits() > Some(0.0));
    cluster.run(&["remove", "web1", "--lost"]).succeeded();
    eventually("the node moves", || waits().is_none());
    let history = cluster.run(&["history"]).succeeded();
    assert!(history.lines().any(|line| line.contains("  web1 removed by ")), "{history}");
    end(nodes.into_iter().chain([edge]).collect());
}

/// The commands by which a node comes and goes change the file, or neither it nor the cluster.
#[test]
fn a_node_joins_and_leaves_by_commands() {
    let (cluster, parts) = started();
    let config = cluster.config();
    let written = format!("# Ours.\n{}", std::fs::read_to_string(&config).unwrap());
    std::fs::write(&config, &written).unwrap();
    let sidelong = |arguments: &[&str]| {
        Running::start(
            arguments
                .iter()
                .map(|word| word.to_string())
                .chain(["--config".into(), config.display().to_string()]),
        )
    };
    let server = gunicorn(&cluster, "web9", cluster.at(6001), 1);
    let Some(_server) = server else { return };
    let joined = sidelong(&["join", "node", "web9", "--server", &cluster.at(6001).to_string()]).finish();
    assert!(
        joined.code == Some(0) && joined.out.contains("belongs to the cluster (epoch 2): start it by"),
        "{joined:?}"
    );
    let agent = sidelong(&["node", "web9"]);
    until_it_succeeds(|| sidelong(&["move", "web9", "beta"]).finish());
    // On a busy machine the other node of its site may have less load for long.
    until_it_succeeds(|| sidelong(&["drain", "n2"]).finish());
    eventually("its server answers", || {
        try_get(cluster.edge(0), "beta.test", "/1").is_ok_and(|reply| reply.body == "web9")
    });
    until_it_succeeds(|| sidelong(&["resume", "n2"]).finish());

    // A second one of its name, and one that alone is its site's, change nothing.
    let with_it = std::fs::read_to_string(&config).unwrap();
    assert!(with_it.starts_with("# Ours.") && with_it.contains("web9"), "{with_it}");
    let again = sidelong(&["join", "node", "web9", "--server", "127.0.0.1:9"]).finish();
    let kept = sidelong(&["leave", "n1"]).finish();
    assert_eq!((again.code, kept.code), (Some(2), Some(2)), "{again:?} {kept:?}");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), with_it);

    let left = sidelong(&["leave", "web9", "--wait"]).finish();
    assert!(left.code == Some(0) && left.out.contains("web9 has left the cluster"), "{left:?}");
    agent.finish().succeeded();
    assert_eq!(std::fs::read_to_string(&config).unwrap(), written);
    assert_eq!(status(&cluster, "beta.test"), 200);
    let told = sidelong(&["history"]).finish().succeeded();
    assert!(told.contains("web9 joined by ") && told.contains("web9 left by "), "{told}");
    end(parts);
}

/// As in a unit's ExecStop, or a container's preStop hook.
#[test]
fn the_part_of_this_control_group_leaves() {
    let (mut cluster, parts) = started();
    cluster.add_node("n3");
    cluster.run(&["reload"]).succeeded();
    let agent = cluster.part("node", "n3");
    until_it_succeeds(|| cluster.run(&["move", "n3", "beta"]));
    // Here others' parts run beside this one's, and perhaps those of other tests.
    let refused = run(["leave", "--self"]).refused();
    assert!(refused.contains("several parts run in the control group of this command"), "{refused}");
    match ControlGroup::of("self", &[agent.pid()]) {
        Ok(group) => {
            let left = group.run(&["leave", "--self", "--wait"]);
            assert!(left.code == Some(0) && left.out.contains("n3 has left the cluster"), "{left:?}");
            agent.finish().succeeded();
            let file = std::fs::read_to_string(cluster.path("cluster.toml")).unwrap();
            assert!(!file.contains("\"n3\""), "{file}");
            assert_eq!(status(&cluster, "beta.test"), 200);
            let refused = group.run(&["leave", "--self"]).refused();
            assert!(refused.contains("no part of a cluster runs in the control group"), "{refused}");
        }
        Err(error) => {
            skipped(&format!("leave --self: no control group can be made here: {error}"));
            agent.end().succeeded();
        }
    }
    end(parts);
}
