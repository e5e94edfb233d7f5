//! The admin endpoint of a process whose cluster is down, and of one that nobody asks.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sidelong_config::Fabric;

use crate::support::{Cluster, eventually, get, metrics, try_get};

#[test]
fn an_edge_answers_while_the_fabric_is_down_and_says_how_old_everything_is() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    cluster.file.cluster.fabric = Fabric::Tcp;
    let [first, second] = ["n1", "n2"].map(|name| cluster.part("node", name));
    let _edge = cluster.part("edge", "edge1");
    eventually("the edge answers", || try_get(cluster.admin(0), "any", "/healthz").is_ok());
    let tells = |name: &str| metrics(cluster.admin(0)).get(name).copied();
    let workers = |node| format!("sidelong_edge_node_capacity_workers{{node=\"{node}\"}}");
    let record_age = |node| format!("sidelong_edge_record_age_seconds{{node=\"{node}\"}}");
    eventually("both are seen", || tells(&workers("n1")) == Some(2.0) && tells(&workers("n2")) == Some(2.0));

    first.signal(Signal::STOP);
    eventually("a node that hangs has no figures", || {
        tells(&workers("n1")).is_none() && tells(&workers("n2")) == Some(2.0)
    });
    let stopped = tells(&record_age("n1")).unwrap();
    eventually("its age grows", || tells(&record_age("n1")).unwrap() > stopped + 0.1);
    eventually("the other's does not", || tells(&record_age("n2")).unwrap() < stopped);

    second.kill();
    eventually("nobody has figures", || tells(&workers("n2")).is_none());
    eventually("the view is old", || tells("sidelong_edge_view_stale") == Some(1.0));
    let ages = [
        record_age("n1"),
        record_age("n2"),
        r#"sidelong_edge_words_age_seconds{node="n1"}"#.into(),
        r#"sidelong_edge_words_age_seconds{node="n2"}"#.into(),
        r#"sidelong_edge_board_age_seconds{site="alpha"}"#.into(),
        "sidelong_edge_view_age_seconds".into(),
    ];
    let before = metrics(cluster.admin(0));
    eventually("all ages grow", || {
        let now = metrics(cluster.admin(0));
        ages.iter().all(|name| now[name] >= before[name] + 0.1 && now[name].is_finite())
    });
    // The fastest of several, because other programs may delay some.
    let quickest = (0..5).map(|_| {
        let asked = Instant::now();
        metrics(cluster.admin(0));
        asked.elapsed()
    });
    assert!(quickest.min().unwrap() < Duration::from_secs(1), "it answers at once");
    assert!(get(cluster.admin(0), "any", "/healthz").body.starts_with("degraded: "));
    first.signal(Signal::CONT);
}

#[test]
fn the_admin_endpoint_of_a_node_sleeps_until_somebody_asks() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let node = cluster.part("node", "n1");
    eventually("it answers", || try_get(cluster.node_admin(0), "any", "/healthz").is_ok());
    let tasks = format!("/proc/{}/task", node.pid().as_raw_nonzero());
    let of_admin =
        |path: &Path| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "admin");
    let mut threads = fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path());
    let thread = threads.find(|path| of_admin(path)).expect("a thread of that name");
    let switches = || {
        let status = fs::read_to_string(thread.join("status")).unwrap();
        let count =
            |name| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        count("voluntary_ctxt_switches:").unwrap()
    };
    // The connection's work is done when the count stops changing, for good.
    eventually("it has come to rest", || {
        let before = switches();
        std::thread::sleep(Duration::from_secs(1));
        switches() == before
    });
    let rest = switches();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(switches(), rest, "it woke by itself");
    assert_eq!(get(cluster.node_admin(0), "any", "/healthz").status, 200);
    eventually("the count is of that thread", || switches() > rest);
}
