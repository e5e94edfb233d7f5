//! Words that nobody of the cluster wrote, and other cluster files, as the program shows them, and while it is killed.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sidelong_config::{NodeEntry, SiteEntry};
use sidelong_layout::{Ownership, SiteId};

use crate::support::words::{SITES, Word, is_legal, is_looked_after, nonsense, region_file};
use crate::support::{Cluster, Done, Running, eventually, metrics, run, try_get};
const EDGES: usize = 2;

/// Two sites of two nodes.
fn cluster() -> Cluster {
    Cluster::new(&[("alpha", 2), ("beta", 2)])
}

fn answers(cluster: &Cluster, edge: usize, site: &str) -> bool {
    let reply = try_get(cluster.edge(edge), &format!("{site}.test"), "/o/1/1");
    reply.is_ok_and(|reply| reply.status == 200)
}

/// Whoever only looks shows what he can.
#[test]
fn a_word_that_says_nothing_is_shown_as_unknown() {
    let cluster = cluster();
    let _nodes = ["n1", "n2"].map(|name| cluster.part("node", name));
    let config = cluster.config();
    let top = || top_once(&config).json();
    let node = |report: &serde_json::Value, name: &str| {
        let nodes = report["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["name"] == name).unwrap().clone()
    };
    eventually("both nodes are seen", || ["n1", "n2"].iter().all(|name| status(&config, name) == "fresh"));
    for word in nonsense(7) {
        Word::ownership(&cluster, 1).write(word);
        let report = top();
        let (wrong, right) = (node(&report, "n1"), node(&report, "n2"));
        assert_eq!((&wrong["state"], &wrong["status"]), (&"unknown".into(), &"fresh".into()), "{report}");
        assert_eq!((&right["state"], &right["site"]), (&"serving".into(), &"alpha".into()), "{report}");
    }
}

fn top_once(config: &Path) -> Done {
    run(["top", "--once", "--json", "--config", config.to_str().unwrap()])
}

/// The status of a node, as `top` with that cluster file shows it. Where it hears none it shows nothing.
fn status(config: &Path, node: &str) -> String {
    let done = top_once(config);
    if done.code == Some(2) && done.err.contains("no node of cluster test is heard") {
        return "gone".to_owned();
    }
    let report = done.json();
    let nodes = report["nodes"].as_array().unwrap();
    let found = nodes.iter().find(|one| one["name"] == node).unwrap_or_else(|| panic!("no {node}: {report}"));
    found["status"].as_str().unwrap().to_owned()
}

/// A part of another cluster file in the same run directory.
fn part_of(config: &Path, kind: &str, name: &str) -> Running {
    Running::start([kind.as_ref(), name.as_ref(), "--config".as_ref(), config.as_os_str()])
}

#[test]
fn parts_that_start_beside_others_go_by_their_file() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    // With a site and a node more, with the sites the other way round, which is all of one length, with a command, and with a server
    // that is not the node's.
    let mut more = cluster.file.clone();
    more.sites.push(SiteEntry::new("gamma", "gamma.test", 1));
    more.nodes.push(NodeEntry::new("n3", 1, cluster.at(6001)));
    let mut turned = cluster.file.clone();
    turned.sites.reverse();
    let mut runs = cluster.file.clone();
    runs.sites[0].on_enter = Some(vec!["true".into()]);
    let mut foreign = cluster.file.clone();
    foreign.nodes[1] = NodeEntry::foreign("n2", 1, cluster.node(1));
    for (name, other) in [("more", more), ("turned", turned), ("runs", runs), ("foreign", foreign)] {
        let others = cluster.path(&format!("{name}.toml"));
        std::fs::write(&others, other.to_toml().unwrap()).unwrap();
        // First, so that it is there before any other part.
        let odd = part_of(&others, "node", "n2");
        eventually("the node with the other file is there", || status(&others, "n2") == "fresh");
        let (first, edge) = (cluster.part("node", "n1"), cluster.part("edge", "edge1"));
        let site = if name == "turned" { "beta" } else { "alpha" };
        eventually("n1 answers for the site that the other file gives it", || answers(&cluster, 0, site));
        for part in [&first, &edge] {
            assert!(part.err().contains("goes by another file"), "{name}: {}", part.err());
        }
        // Once none of them runs, the next goes by its own file.
        for part in [odd, edge, first] {
            part.end().succeeded();
        }
        let parts =
            [("node", "n1"), ("node", "n2"), ("edge", "edge1")].map(|(kind, name)| cluster.part(kind, name));
        eventually("all go by the file", || answers(&cluster, 0, "alpha") && answers(&cluster, 0, "beta"));
        assert!(parts.iter().all(|part| !part.err().contains("goes by another file")), "{name}");
        for part in parts.into_iter().rev() {
            part.end().succeeded();
        }
    }
}

#[test]
fn regions_that_are_removed_are_exposed_again_and_used_by_all() {
    let cluster = cluster();
    let mut up = cluster.serving(&["--json"]);
    eventually("it begins legal", || is_legal(&cluster));
    let parts = cluster.parts();
    let files = |begins: &str| -> Vec<PathBuf> {
        let regions = cluster.regions().into_iter();
        let meant = regions.filter(|name| name.starts_with(begins) && name.ends_with(".region"));
        meant.map(|name| cluster.run_dir().join(name)).collect()
    };
    // One by one, and all at once.
    for begins in ["board", "n1.words", "n1.load", "edge1.share", ""] {
        let removed: Vec<_> = files(begins)
            .into_iter()
            .map(|file| {
                let number = std::fs::metadata(&file).unwrap().ino();
                std::fs::remove_file(&file).unwrap();
                (file, number)
            })
            .collect();
        for (file, number) in removed {
            eventually("it is exposed again", || {
                std::fs::metadata(&file).is_ok_and(|found| found.ino() != number)
            });
        }
        is_looked_after(&cluster);
    }
    // Who comes later finds what the others use.
    cluster.find("edge", "edge2").kill();
    eventually("the edge is started again", || cluster.parts().len() == parts.len());
    is_looked_after(&cluster);
    for edge in 0..EDGES {
        eventually("each edge serves each site", || {
            ["alpha", "beta"].iter().all(|site| answers(&cluster, edge, site))
        });
    }
    let config = cluster.config();
    for node in ["n1", "n2", "n3", "n4"] {
        eventually("each node's record is read", || status(&config, node) == "fresh");
    }
    assert!(up.is_running(), "{}", up.err());
    up.end().succeeded();
}

#[test]
fn regions_that_are_replaced_are_taken_for_what_they_are() {
    let cluster = cluster();
    let mut up = cluster.serving(&["--json"]);
    for begins in ["board", "n2.words"] {
        let file = region_file(&cluster, begins).unwrap();
        let copy = cluster.path("copy");
        std::fs::copy(&file, &copy).unwrap();
        std::fs::rename(&copy, &file).unwrap();
        is_looked_after(&cluster);
    }
    assert!(up.is_running(), "{}", up.err());
    up.end().succeeded();
}

fn floors_hold(cluster: &Cluster) -> bool {
    let owner = |node| Ownership::decode(Word::ownership(cluster, node).read(), SITES);
    let owners: Vec<_> = (1..=cluster.file.nodes.len()).filter_map(owner).collect();
    (0..SITES).map(SiteId::new).all(|site| owners.iter().any(|owner| owner.serves(site)))
}

/// Moves made on a board that nobody else finds would strip sites of their last nodes.
#[test]
fn no_site_falls_below_its_floor_while_boards_are_removed() {
    let cluster = cluster().with_load(256, None);
    let mut up = cluster.serving(&["--json"]);
    // By the one that is not killed.
    let moves = || -> f64 {
        let made = metrics(cluster.admin(0)).into_iter();
        made.filter(|(name, _)| name.starts_with("sidelong_edge_moves_total")).map(|(_, count)| count).sum()
    };
    for round in 0..4 {
        let before = moves();
        if let Some(file) = region_file(&cluster, "board") {
            std::fs::remove_file(file).unwrap();
        }
        if round % 2 == 1 {
            // It has no memory of the old board, and may be the one that makes the new one.
            cluster.find("edge", "edge2").kill();
        }
        eventually("nodes move on", || {
            // The words are not read at one moment: one node may come while another goes.
            assert!((0..5).any(|_| floors_hold(&cluster)), "a site is below its floor");
            moves() > before
        });
    }
    assert!(up.is_running(), "{}", up.err());
    up.end().succeeded();
}
