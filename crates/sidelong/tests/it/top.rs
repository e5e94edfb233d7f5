//! `sidelong top`: a cluster watched by a script and on a terminal, without being changed.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use sidelong_config::{Configuration, Fabric, default_run_dir};

use crate::support::{Cluster, Done, STALE_MAX, Terminal, eventually, run, skipped};

const ROWS: u16 = 24;
const COLS: u16 = 80;

fn top_once(config: &Path, more: &[&str]) -> Done {
    let arguments = ["top", "--once", "--config", config.to_str().unwrap()];
    run([&arguments, more].concat())
}

fn json(config: &Path) -> Value {
    top_once(config, &["--json"]).json()
}

/// `top` on a terminal, once it shows all nodes of the cluster.
fn on_terminal(config: &Path, more: &[&str], variables: &[(&str, &str)]) -> Option<Terminal> {
    let arguments = [&["top", "--config", config.to_str().unwrap()], more].concat();
    let top = Terminal::start(&arguments, ROWS, COLS, variables);
    let Some(mut top) = top else {
        skipped("top on a terminal: no `setsid` program, which lends a session");
        return None;
    };
    top.sees("the page", |text| text.contains("sidelong top") && text.contains("nodes fresh"));
    Some(top)
}

fn by_name<'v>(report: &'v Value, kind: &str, name: &str) -> &'v Value {
    let all = report[kind].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// The names in the table of nodes, from the top down.
fn names(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.starts_with("node "));
    let names = lines.skip(1).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.starts_with('n')).map(str::to_owned).collect()
}

#[test]
fn a_script_sees_what_is_there() {
    let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 1)]).with_load(64, None);
    cluster.file.load.stale = STALE_MAX;
    let up = cluster.serving(&["--json"]);
    // The cluster works while it is watched. A record that is being written has no age.
    let mut report = Value::Null;
    eventually("requests are served, and records told with their age", || {
        report = json(&cluster.config());
        let total = |name: &str| report["totals"][name].as_f64().unwrap();
        total("requests_per_s") > 1.0 && total("age_max_us") > 0.0
    });
    assert_eq!((report["cluster"].as_str(), report["fabric"].as_str()), (Some("test"), Some("shm")));
    assert_eq!(report["scheme"].as_str(), Some("rdma-async"));
    let totals = &report["totals"];
    assert_eq!((totals["nodes"].as_u64(), totals["fresh"].as_u64()), (Some(3), Some(3)), "{report}");
    assert_eq!(totals["workers"], 6);

    let serving = |site: &Value| site["nodes"].as_u64().unwrap();
    let sites: Vec<_> = ["alpha", "beta"].map(|name| by_name(&report, "sites", name)).into();
    for site in &sites {
        assert_eq!((site["floor"].as_u64(), site["ceiling"].as_u64()), (Some(1), Some(3)));
        assert!(serving(site) + site["leaving"].as_u64().unwrap() >= 1, "{report}");
    }
    let placed: u64 = sites.iter().map(|site| serving(site) + site["leaving"].as_u64().unwrap()).sum();
    assert_eq!(placed, 3, "{report}");
    for name in ["n1", "n2", "n3"] {
        let node = by_name(&report, "nodes", name);
        assert_eq!(node["status"], "fresh", "{report}");
        assert!(["alpha", "beta"].contains(&node["site"].as_str().unwrap()), "{report}");
        assert!(node["generation"].as_u64().unwrap() > 0 && node["workers"] == 2, "{report}");
        let age_us = node["age_us"].as_f64().unwrap();
        assert!(age_us <= totals["age_max_us"].as_f64().unwrap(), "{report}");
        assert!(
            node["requests_per_s"].as_f64().is_some() && node["connections"].as_u64().is_some(),
            "{report}"
        );
    }
    let total = |report: &Value| -> u64 {
        let nodes = report["nodes"].as_array().unwrap();
        nodes.iter().map(|node| node["requests_total"].as_u64().unwrap()).sum()
    };
    let before = total(&report);
    eventually("the count of requests goes up", || total(&json(&cluster.config())) > before);
    let summary = up.end().json();
    assert_eq!(summary["errors"], 0, "nobody is disturbed: {summary}");
    assert!(summary["requests"].as_u64().unwrap() >= total(&report), "{summary}");
}

#[test]
fn every_field_of_the_object_is_documented() {
    fn fields(value: &Value, all: &mut Vec<String>) {
        match value {
            Value::Object(object) => object.iter().for_each(|(name, value)| {
                all.push(name.clone());
                fields(value, all);
            }),
            Value::Array(values) => values.iter().for_each(|value| fields(value, all)),
            _ => {}
        }
    }
    let cluster = Cluster::new(&[("alpha", 1)]);
    let _up = cluster.serving(&["--json"]);
    let mut all = Vec::new();
    fields(&json(&cluster.config()), &mut all);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/top.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(all.len() > 40, "{all:?}");
    for name in all {
        let named = [format!("`{name}`"), format!(".{name}`"), format!("`{name}[]")];
        let within = matches!(name.as_str(), "totals" | "sites" | "nodes");
        assert!(within || named.iter().any(|named| page.contains(named)), "docs/top.md leaves out {name}");
    }
}

#[test]
fn moves_show_in_words_and_sites() {
    let cluster = Cluster::demo().with_load(512, None);
    let up = cluster.serving(&["--json"]);
    let generations = |report: &Value| -> Vec<u64> {
        let nodes = report["nodes"].as_array().unwrap();
        nodes.iter().map(|node| node["generation"].as_u64().unwrap()).collect()
    };
    let first = generations(&json(&cluster.config()));
    eventually("a node moves", || {
        let report = top_once(&cluster.config(), &["--json", "--interval", "1s"]).json();
        assert!(report["watched_s"].as_f64().unwrap() >= 1.0);
        report["moves"].as_u64().unwrap() > 0 && generations(&report) > first
    });
    assert!(up.end().json()["moves"].as_u64().unwrap() > 0);
}

#[test]
fn a_table_is_sorted_and_filtered() {
    let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 1)]);
    cluster.file.baseline.configuration = Configuration::Rigid;
    cluster.file.load.stale = STALE_MAX;
    let _up = cluster.serving(&["--json"]);
    let config = cluster.config();
    let table = top_once(&config, &[]).succeeded();
    assert!(table.starts_with("test: rdma-async over shm, 3 of 3 nodes fresh"), "{table}");
    assert!(!table.contains('\x1b'), "{table:?}");
    assert_eq!(names(&table), ["n1", "n2", "n3"]);
    let sorted = top_once(&config, &["--sort", "age", "--filter", "ALPHA"]).succeeded();
    let mut found = names(&sorted);
    found.sort();
    assert_eq!(found, ["n1", "n2"], "{sorted}");
    let refused = top_once(&config, &["--sort", "cpu"]);
    assert!(refused.code == Some(2) && refused.err.contains("cpu%"), "{refused:?}");
}

/// Without a file it takes the running cluster; if there are several, it lists them.
#[test]
fn it_finds_the_cluster_that_runs() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    let name = format!("test-top-{}", std::process::id());
    let run_dir = default_run_dir(&name);
    (cluster.file.cluster.name, cluster.file.cluster.run_dir) = (name, None);
    let up = cluster.serving(&["--json"]);
    let done = run(["top", "--once", "--json"]);
    if done.code == Some(0) {
        assert_eq!(done.json()["cluster"], cluster.file.cluster.name.as_str());
    } else {
        let file = run_dir.join("cluster.toml").display().to_string();
        let line = done.refused();
        assert!(line.contains("several clusters run here") && line.contains(&file), "{line}");
    }
    up.end().json();
    let done = run(["top", "--once", "--json"]);
    assert!(
        !done.out.contains(&cluster.file.cluster.name) && !done.err.contains(&cluster.file.cluster.name),
        "{done:?}"
    );
    std::fs::remove_dir_all(run_dir).unwrap();
}

/// Over tcp the parts answer, and words that may be changed are still only read.
#[test]
fn it_goes_over_the_fabric_that_the_cluster_uses() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    cluster.file.cluster.fabric = Fabric::Tcp;
    cluster.file.load.stale = STALE_MAX;
    let _up = cluster.serving(&["--json"]);
    let report = json(&cluster.config());
    assert_eq!((report["fabric"].as_str(), report["totals"]["fresh"].as_u64()), (Some("tcp"), Some(2)));
    assert_eq!(by_name(&report, "nodes", "n1")["site"], "alpha");
}

#[test]
fn where_nothing_runs_it_says_what_was_looked_for() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let config = cluster.config();
    for more in [&["--once"][..], &["--once", "--json"]] {
        let line = run([&["top", "--config", config.to_str().unwrap()], more].concat()).refused();
        let directory = cluster.run_dir().display().to_string();
        assert!(line.contains(&directory) && line.contains("sidelong up --config"), "{line}");
        assert!(!cluster.run_dir().exists(), "looking makes nothing");
    }
    // A killed node has left its records behind.
    let up = cluster.serving(&["--json"]);
    up.kill();
    eventually("its parts end", || cluster.parts().is_empty());
    let line = top_once(&config, &[]).refused();
    assert!(line.contains("no node of cluster test is heard") && line.contains("sidelong up"), "{line}");

    let line = run(["top", "--config", config.to_str().unwrap()]).refused();
    assert!(line.contains("not a terminal") && line.contains("--once"), "{line}");
    let done = run(["top", "--json"]);
    assert!(done.code == Some(2) && done.err.contains("--once"), "{done:?}");
    let done = run(["top", "--once", "--interval", "1ms"]);
    assert!(done.code == Some(2) && done.err.contains("between 10ms"), "{done:?}");
}

#[test]
fn the_page_is_sorted_filtered_and_frozen_by_keys() {
    let cluster = Cluster::demo().with_load(256, None);
    let _up = cluster.serving(&["--json"]);
    let Some(mut top) = on_terminal(&cluster.config(), &[], &[]) else { return };
    let page = top.sees("all nodes", |text| names(text).len() == 8 && text.contains("8 of 8 nodes fresh"));
    assert_eq!(names(&page), ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"], "{page}");
    for word in ["alpha", "beta", "gamma", "floor–top", "run", "cpu%", "req/s", "age", "1–8 of 8"] {
        assert!(page.contains(word), "{word}: {page}");
    }
    top.sees("moves", |text| text.contains(" moved ") && text.contains(" ago "));

    // F6, to the left: the last column; then back, and the reverse order.
    top.press("\x1b[17~");
    top.sees("a choice", |text| text.contains("Enter confirms"));
    top.press("\x1b[D");
    top.sees("the next", |text| text.contains("sort: state ▼"));
    top.press("\x1b[C\rI");
    let reversed = top.sees("the last first", |text| text.contains("sort: node ▼"));
    assert_eq!(names(&reversed), ["n8", "n7", "n6", "n5", "n4", "n3", "n2", "n1"]);
    top.press("<<");
    let page = top.sees("by age", |text| text.contains("sort: age ▼"));
    let age = page.lines().next_back().unwrap();
    assert!(age.contains("help") && age.contains("quit"), "{page}");

    top.press("/N3");
    top.sees("as it is typed", |text| text.contains("filter: N3") && names(text) == ["n3"]);
    top.press("\r");
    top.sees("it is kept", |text| text.contains("1–1 of 1 meant") && text.contains("quit"));
    top.press("/\x7f\x7fgamma\r");
    top.sees("by site", |text| {
        let rows = text.lines().filter(|line| line.starts_with('n') && !line.starts_with("no"));
        text.contains("filter: gamma") && rows.skip(1).all(|line| line.contains("gamma"))
    });
    top.press("\x1b");
    top.sees("all again", |text| names(text).len() == 8);

    // Frozen: only the time since changes while requests are served. Then it continues.
    top.press(" ");
    let still =
        |text: &str| text.lines().filter(|line| !line.contains("FROZEN")).collect::<Vec<_>>().join("\n");
    let frozen = still(&top.sees("it stands", |text| text.contains("FROZEN")));
    top.sees("time passes", |text| text.contains("FROZEN") && !text.contains("FROZEN 0 s"));
    assert_eq!(still(&top.text()), frozen);
    top.press("z");
    top.sees("it goes on", |text| !text.contains("FROZEN") && still(text) != frozen);

    top.press("?");
    top.sees("help", |text| text.contains("any key goes back") && text.contains("freeze the page"));
    top.press("x");
    top.sees("the page again", |text| text.contains("8 of 8 nodes fresh") && names(text).len() == 8);
    assert!(top.raw().contains("\x1b[38;2;"), "sites have colours");
    top.press("q");
    assert_eq!(top.finish(), 0);
    eventually("the terminal is as it was", || top.is_cooked() && top.raw().ends_with("\x1b[?25h"));
}

#[test]
fn a_killed_node_is_gone_within_a_second() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    let [n1, n2] = ["n1", "n2"].map(|name| cluster.part("node", name));
    let config = cluster.config();
    eventually("both nodes are there", || {
        let done = top_once(&config, &["--json"]);
        done.code == Some(0) && done.json()["totals"]["fresh"] == 2
    });
    let Some(mut top) = on_terminal(&config, &[], &[]) else { return };
    let row = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.map(str::to_owned).unwrap_or_default()
    };
    top.sees("both", |text| row(text, "n1").ends_with("fresh") && row(text, "n2").ends_with("fresh"));
    n2.kill();
    let killed = Instant::now();
    top.sees("its last figures are too old", |text| !row(text, "n2").ends_with("fresh"));
    let stale = killed.elapsed();
    top.sees("one is gone", |text| row(text, "n2").ends_with("gone"));
    let took = killed.elapsed();
    // Three times load.stale_ms, a scan, and whatever else this machine does.
    assert!(took < Duration::from_secs(5), "{took:?}");
    println!("stale after {stale:?}, gone after {took:?}");
    top.sees("it alone is gone", |text| {
        row(text, "n1").ends_with("fresh") && text.contains("1 of 2 nodes fresh")
    });
    let report = json(&config);
    assert_eq!(by_name(&report, "nodes", "n2")["status"], "gone", "{report}");
    assert_eq!(by_name(&report, "nodes", "n2")["busy"], Value::Null, "an old figure is none: {report}");

    // It comes back with another incarnation.
    let _n2 = cluster.part("node", "n2");
    top.sees("it is back", |text| row(text, "n2").ends_with("fresh"));
    drop(n1);
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let _up = cluster.serving(&["--json"]);
    for end in [Some(Signal::TERM), Some(Signal::INT), Some(Signal::HUP), None] {
        let Some(mut top) = on_terminal(&cluster.config(), &[], &[]) else { return };
        assert!(!top.is_cooked() && top.raw().contains("\x1b[?1049h"));
        match end {
            Some(signal) => top.signal(signal),
            None => top.press("\x03"), // Ctrl-C
        }
        assert_eq!(top.finish(), 0, "{end:?}");
        eventually("the terminal is as it was", || top.is_cooked() && top.raw().contains("\x1b[?1049l"));
    }
}

/// Its window is closed, or the connection to it breaks.
#[test]
fn it_ends_with_its_terminal() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let _up = cluster.serving(&["--json"]);
    let Some(mut top) = on_terminal(&cluster.config(), &[], &[]) else { return };
    top.hang_up();
    top.finish();
}

#[test]
fn no_color_is_honoured() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let _up = cluster.serving(&["--json"]);
    let Some(mut top) = on_terminal(&cluster.config(), &[], &[("NO_COLOR", "1")]) else { return };
    top.sees("the node", |text| names(text) == ["n1"]);
    top.press("q");
    assert_eq!(top.finish(), 0);
    let raw = top.raw();
    for colour in ["\x1b[38;", "\x1b[48;", "\x1b[3", "\x1b[9"] {
        let followed =
            raw.split(colour).skip(1).any(|rest| rest.starts_with(|c: char| ('0'..='7').contains(&c)));
        assert!(!followed, "{colour:?} in {raw:?}");
    }
}
