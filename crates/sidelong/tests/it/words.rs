//! Words that nobody of the cluster wrote: what is in memory that others write ends no part, and is put right.

use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sidelong_config::{Configuration, NodeEntry, SiteEntry};
use sidelong_layout::{
    BoardMap, Budget, EdgeId, Lock, NODES_MAX, NodeState, Ownership, SEQUENCE_MAX, SiteId, WORDS_OWNERSHIP,
};

use crate::support::words::{read_word, write_word};
use crate::support::{Cluster, Done, Running, eventually, metrics, run, try_get};

const SITES: usize = 2;
const EDGES: usize = 2;
const BOARD: BoardMap = BoardMap { sites: SITES, edges: EDGES };

/// Two sites of two nodes.
fn cluster() -> Cluster {
    Cluster::new(&[("alpha", 2), ("beta", 2)])
}

/// One word of a region, in the file that all parts map.
struct Word<'a> {
    cluster: &'a Cluster,
    region: String,
    offset: usize,
}

impl Word<'_> {
    fn ownership(cluster: &Cluster, node: usize) -> Word<'_> {
        Word { cluster, region: format!("n{node}.words"), offset: WORDS_OWNERSHIP }
    }

    fn lock(cluster: &Cluster, site: usize) -> Word<'_> {
        Word { cluster, region: "board".to_owned(), offset: BOARD.lock(SiteId::new(site)) }
    }

    fn budget(cluster: &Cluster, site: usize) -> Word<'_> {
        Word { cluster, region: "board".to_owned(), offset: BOARD.budget(SiteId::new(site)) }
    }

    fn read(&self) -> u64 {
        read_word(&self.file(), self.offset)
    }

    fn write(&self, value: u64) {
        write_word(&self.file(), self.offset, value);
    }

    fn file(&self) -> std::fs::File {
        // A board's name tells of which cluster file it is.
        let is_it = |name: &String| match name.strip_prefix(&self.region) {
            Some(rest) => rest == ".region" || rest.starts_with('-') && rest.ends_with(".region"),
            None => false,
        };
        let regions = self.cluster.regions();
        let name = regions.iter().find(|name| is_it(name)).unwrap_or_else(|| panic!("{regions:?}"));
        OpenOptions::new().read(true).write(true).open(self.cluster.run_dir().join(name)).unwrap()
    }
}

/// Ownerships that say nothing in a cluster of two sites.
fn nonsense(generation: u64) -> [u64; 4] {
    let nowhere = SiteId::new(4000);
    let (state, generation) = (NodeState::Draining, generation & SEQUENCE_MAX);
    [
        Ownership::serving(nowhere, generation).encode(),
        Ownership { state, site: Some(SiteId::new(0)), next: Some(nowhere), generation }.encode(),
        0xf << 60 | generation,
        u64::MAX,
    ]
}

/// Whether all words are such as movers leave them, with the floors of the file: 1 for each site.
fn is_legal(cluster: &Cluster) -> bool {
    let nodes = cluster.file.nodes.len();
    let owner = |node| Ownership::decode(Word::ownership(cluster, node).read(), SITES);
    let owners: Vec<_> = (1..=nodes).map(owner).collect();
    let site_is_legal = |site: usize| {
        let budget = Budget::decode(Word::budget(cluster, site).read());
        let serves = |owner: &&Option<Ownership>| owner.is_some_and(|own| own.serves(SiteId::new(site)));
        let serving = owners.iter().filter(serves).count();
        Lock::decode(Word::lock(cluster, site).read()).owner.is_none()
            && (usize::from(budget.floor), usize::from(budget.current)) == (1, serving)
            && serving >= 1
    };
    owners.iter().all(Option::is_some) && (0..SITES).all(site_is_legal)
}

fn answers(cluster: &Cluster, edge: usize, site: &str) -> bool {
    let reply = try_get(cluster.edge(edge), &format!("{site}.test"), "/o/1/1");
    reply.is_ok_and(|reply| reply.status == 200)
}

fn is_put_right(configuration: Configuration) {
    let mut cluster = cluster();
    cluster.file.baseline.configuration = configuration;
    let mut up = cluster.serving(&["--json"]);
    eventually("it begins legal", || is_legal(&cluster));
    let parts = cluster.parts();
    let ghost = Lock::decode(0).held_by(EdgeId::new(4000), 0xfff).encode();
    let random = Budget { floor: 9_000, current: 8_000, generation: 3 }.encode();
    let full = Budget { floor: NODES_MAX as u16, current: NODES_MAX as u16, generation: 0 }.encode();
    let without_floors = Budget { floor: 0, current: 4, generation: 5 }.encode();
    for (round, word) in nonsense(7).into_iter().enumerate() {
        // All nodes of one site, so that it has none that edges know of.
        for node in [1, 2] {
            Word::ownership(&cluster, node).write(word);
        }
        Word::budget(&cluster, 0).write([full, without_floors, random, 0][round]);
        Word::budget(&cluster, 1).write([without_floors, full, 0, random][round]);
        Word::lock(&cluster, round % SITES).write(ghost);
        eventually("all words are legal again", || is_legal(&cluster));
    }
    for site in ["alpha", "beta"] {
        eventually("each edge serves each site", || (0..EDGES).all(|edge| answers(&cluster, edge, site)));
    }
    assert!(up.is_running(), "{}", up.err());
    assert_eq!(cluster.parts(), parts, "no part has ended: {}", up.err());
    let history = cluster.run(&["history"]).succeeded();
    let told = "the ownership word of n1 said nothing in this cluster";
    assert!(history.contains(told) || history.contains("lock stood unchanged"), "{history}");
    up.end().succeeded();
}

#[test]
fn words_that_say_nothing_end_no_part_and_are_put_right() {
    is_put_right(Configuration::Reconfigured);
}

#[test]
fn they_are_put_right_where_nothing_moves() {
    is_put_right(Configuration::Rigid);
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
fn parts_with_another_cluster_file_are_told_apart_and_the_others_go_on() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    let config = cluster.config();
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
        let (first, mut edge) = (cluster.part("node", "n1"), cluster.part("edge", "edge1"));
        eventually("the site whose node has the same file answers", || answers(&cluster, 0, "alpha"));
        assert!(!answers(&cluster, 0, "beta"), "{name}: a node of another file serves none");
        eventually("the edge says why", || edge.err().contains("another cluster file"));
        assert_eq!((status(&config, "n1"), status(&config, "n2")), ("fresh".into(), "gone".into()));
        assert_eq!((status(&others, "n1"), status(&others, "n2")), ("gone".into(), "fresh".into()));

        odd.end().succeeded();
        let second = cluster.part("node", "n2");
        eventually("the node is welcome with the right file", || answers(&cluster, 0, "beta"));
        assert!(edge.is_running());
        for part in [first, second, edge] {
            part.end().succeeded();
        }
    }
}

#[test]
fn a_floor_that_was_changed_in_the_file_takes_effect_on_an_older_board() {
    let mut cluster = Cluster::new(&[("alpha", 3), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    let _nodes = ["n1", "n2", "n3", "n4"].map(|name| cluster.part("node", name));
    let floor = |cluster: &Cluster| Budget::decode(Word::budget(cluster, 0).read()).floor;
    for expected in [1, 2, 3, 1] {
        cluster.file.sites[0].floor = expected.into();
        let edge = cluster.part("edge", "edge1");
        eventually("the board has the file's floor", || {
            !cluster.regions().iter().all(|name| !name.starts_with("board")) && floor(&cluster) == expected
        });
        eventually("the site answers", || answers(&cluster, 0, "alpha"));
        edge.end().succeeded();
    }
}

/// A file of the run directory by the beginning of its name.
fn region_file(cluster: &Cluster, begins: &str) -> Option<PathBuf> {
    let name =
        cluster.regions().into_iter().find(|name| name.starts_with(begins) && name.ends_with(".region"))?;
    Some(cluster.run_dir().join(name))
}

/// Whether a word that is corrupted now is put right: those who move nodes have the file that lies there.
fn is_looked_after(cluster: &Cluster) {
    Word::budget(cluster, 0).write(Budget { floor: 9_000, current: 8_000, generation: 3 }.encode());
    for node in 1..=cluster.file.nodes.len() {
        Word::ownership(cluster, node).write(nonsense(7)[0]);
    }
    eventually("all words are legal again", || is_legal(cluster));
}

#[test]
fn regions_that_are_removed_are_offered_again_and_used_by_all() {
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
            eventually("it is offered again", || {
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
