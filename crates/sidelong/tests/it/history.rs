//! `sidelong history`: the moves of real edges and their reasons, while their cluster runs and after it has ended.

use serde_json::Value;

use crate::support::{Cluster, eventually, metrics, run};

/// What `sidelong history` lists as JSON.
fn listed(cluster: &Cluster, arguments: &[&str]) -> Vec<Value> {
    let config = cluster.config().display().to_string();
    let listed = run([&["history", "--config", &config, "--json"], arguments].concat()).json();
    listed.as_array().unwrap().clone()
}

#[test]
fn every_move_is_listed_with_why_while_the_cluster_runs_and_afterwards() {
    let cluster = Cluster::demo().with_load(256, None);
    assert_eq!(listed(&cluster, &[]), [] as [Value; 0], "nothing has run yet");
    let up = cluster.serving(&["--json"]);
    let moved = |records: &[Value]| records.iter().filter(|record| record["how"] == "moved").count();
    eventually("some nodes move", || moved(&listed(&cluster, &[])) > 5);
    let summary = up.end().json();

    let records = listed(&cluster, &[]);
    assert!(moved(&records) as u64 >= summary["moves"].as_u64().unwrap(), "none is missing: {summary}");
    let text = |record: &Value, key: &str| record[key].as_str().unwrap_or_default().to_owned();
    for record in records.iter().filter(|record| record["how"] == "moved") {
        let (to, why) = (text(record, "to"), text(record, "why"));
        assert!(why.starts_with(&format!("{to} ")), "{record}");
        assert!(["edge1", "edge2"].contains(&&*text(record, "by")), "{record}");
        assert!(record["took_us"].as_u64().unwrap() > 0, "{record}");
        assert!(record["reason"]["need"].is_string() && record["reason"]["receiver"].is_object(), "{record}");
    }
    assert!(records.is_sorted_by_key(|record| text(record, "at")), "{records:?}");

    let first = records.iter().find(|record| record["how"] == "moved").unwrap();
    let (node, at) = (text(first, "node"), text(first, "at"));
    let of_node = listed(&cluster, &["--node", &node]);
    assert!(!of_node.is_empty() && of_node.iter().all(|record| text(record, "node") == node));
    let of_site = listed(&cluster, &["--site", "alpha"]);
    assert!(of_site.iter().all(|record| text(record, "from") == "alpha" || text(record, "to") == "alpha"));
    assert!(listed(&cluster, &["--at", &at[..19]]).contains(first), "{at}");
    assert!(listed(&cluster, &["--at", &at[11..16]]).contains(first), "{at}");
    assert_eq!(listed(&cluster, &["--since", "1h"]), records);
    let plain = cluster.run(&["history"]).succeeded();
    assert_eq!(plain.lines().count(), records.len());
    assert!(plain.contains(&format!("{node} ")) && plain.contains(" ms by edge"), "{plain}");
}

#[test]
fn a_history_is_counted_bounded_and_left_out_where_it_is_not_wanted() {
    let mut cluster = Cluster::demo().with_load(64, None);
    cluster.file.limits.history_bytes_max = 8192;
    let up = cluster.serving(&["--json"]);
    let written = r#"sidelong_edge_history_records_total{outcome="written"}"#;
    let count = |edge| metrics(cluster.admin(edge)).get(written).copied().unwrap_or(0.0);
    // More than each edge keeps.
    eventually("many nodes move", || count(0) > 20.0 || count(1) > 20.0);
    up.end().json();
    for edge in ["edge1", "edge2"] {
        let size = |end: &str| {
            let path = cluster.run_dir().join(format!("{edge}.history{end}.jsonl"));
            path.metadata().map_or(0, |file| file.len())
        };
        assert!(size("") + size(".1") <= 8192, "{edge}: {} {}", size(""), size(".1"));
    }

    let mut none = Cluster::demo().with_load(64, Some(1024));
    none.file.limits.history_bytes_max = 0;
    none.up(&["--json"]).finish().json();
    assert_eq!(listed(&none, &[]), [] as [Value; 0]);
    assert!(!none.run_dir().join("edge1.history.jsonl").exists());
}

#[test]
fn what_is_not_of_the_cluster_is_refused_with_what_is() {
    let cluster = Cluster::demo();
    let config = cluster.config().display().to_string();
    let refused = |arguments: &[&str]| run([&["history", "--config", &config], arguments].concat()).refused();
    assert!(refused(&["--node", "n99"]).contains("no node \"n99\"; it has n1, n2"));
    assert!(refused(&["--site", "omega"]).contains("no site \"omega\"; it has alpha, beta, gamma"));
}
