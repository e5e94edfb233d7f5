//! Words that nobody of the cluster wrote: what is in memory that others write ends no part, and is put right.

use sidelong_app::history::{Histories, Record};
use sidelong_config::Configuration;
use sidelong_fabric::RunDirectory;
use sidelong_layout::{Budget, EdgeId, Lock, NODES_MAX};
use sidelong_testing::words::{SITES, Word, is_legal, nonsense};
use sidelong_testing::{Cluster, Here, eventually, try_get};

const EDGES: usize = 2;

/// Two sites of two nodes.
fn cluster() -> Cluster {
    Cluster::new(&[("alpha", 2), ("beta", 2)])
}

fn answers(cluster: &Cluster, edge: usize, site: &str) -> bool {
    let reply = try_get(cluster.edge(edge), &format!("{site}.test"), "/o/1/1");
    reply.is_ok_and(|reply| reply.status == 200)
}

fn is_put_right(configuration: Configuration) {
    let mut cluster = cluster();
    cluster.file.baseline.configuration = configuration;
    let parts = cluster.serving_here();
    eventually("it begins legal", || is_legal(&cluster));
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
    assert!(parts.iter().all(Here::is_running), "no part has ended");
    let histories = Histories::read(&RunDirectory::at(cluster.run_dir()), ["edge1", "edge2"].into_iter());
    let history: String = histories.unwrap().records.iter().map(Record::plain).collect();
    let told = "the ownership word of n1 said nothing in this cluster";
    assert!(history.contains(told) || history.contains("lock stood unchanged"), "{history}");
    parts.into_iter().for_each(Here::end);
}

#[test]
fn words_that_say_nothing_end_no_part_and_are_put_right() {
    is_put_right(Configuration::Reconfigured);
}

#[test]
fn they_are_put_right_where_nothing_moves() {
    is_put_right(Configuration::Rigid);
}

#[test]
fn a_floor_that_was_changed_in_the_file_takes_effect_on_an_older_board() {
    let mut cluster = Cluster::new(&[("alpha", 3), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    let _nodes = ["n1", "n2", "n3", "n4"].map(|name| cluster.here("node", name));
    let floor = |cluster: &Cluster| Budget::decode(Word::budget(cluster, 0).read()).floor;
    for expected in [1, 2, 3, 1] {
        cluster.file.sites[0].floor = expected.into();
        cluster.reload().unwrap();
        let edge = cluster.here("edge", "edge1");
        eventually("the board has the file's floor", || {
            !cluster.regions().iter().all(|name| !name.starts_with("board")) && floor(&cluster) == expected
        });
        eventually("the site answers", || answers(&cluster, 0, "alpha"));
        edge.end();
    }
}
