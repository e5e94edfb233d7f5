//! Two releases in one cluster: under load each part is replaced by one of the other release, in any order, and then goes back. No request
//! fails, and nodes move by the commands of either.
//!
//! `cargo xtask ci upgrade` has the other release. Without it both are this build, so that parts are merely restarted.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use sidelong_layout::fnv1a;
use sidelong_testing::etcd::Etcd;
use sidelong_testing::machines::Machines;
use sidelong_testing::program;

use crate::support::steady_load::asks;
use crate::support::{
    Cluster, Done, Running, SteadyLoad, eventually, metrics, number, run, try_get, until_it_succeeds,
};

/// The directory with the other release's programs.
const RELEASE: &str = "SIDELONG_RELEASE";
/// How often all parts go to the other release and back, and the seed, if SIDELONG_ROUNDS and SIDELONG_SEED do not say otherwise.
const ROUNDS: u64 = 1;
const SEED: u64 = 7;
const SITES: [(&str, usize); 2] = [("alpha", 2), ("beta", 4)];
/// Nodes that each site keeps: one serves while the other is replaced.
const FLOOR: usize = 2;
const PARTS: [(&str, &str); 8] = [
    ("node", "n1"),
    ("node", "n2"),
    ("node", "n3"),
    ("node", "n4"),
    ("node", "n5"),
    ("node", "n6"),
    ("edge", "edge1"),
    ("edge", "edge2"),
];

/// The parts of a cluster, each by its place in [`PARTS`], and where each finds its file.
struct Mixed {
    cluster: Cluster,
    config: Box<dyn Fn(&str) -> PathBuf>,
    parts: Vec<Option<Running>>,
    releases: [PathBuf; 2],
}

impl Mixed {
    /// All parts of the first release, once they serve.
    fn start(cluster: Cluster, config: impl Fn(&str) -> PathBuf + 'static) -> Self {
        let own = program("sidelong");
        let other = std::env::var_os(RELEASE).map(|release| PathBuf::from(release).join("sidelong"));
        let releases = [other.unwrap_or_else(|| own.clone()), own];
        let mut mixed =
            Mixed { cluster, config: Box::new(config), parts: PARTS.map(|_| None).into(), releases };
        (0..PARTS.len()).for_each(|part| mixed.begin(part, 0));
        (0..PARTS.len()).for_each(|part| mixed.await_part(part));
        mixed
    }

    fn begin(&mut self, part: usize, release: usize) {
        let (kind, name) = PARTS[part];
        self.parts[part] = Some(self.command(release, name, &[kind, name]));
    }

    /// A command of that release on a part's machine.
    fn command(&self, release: usize, machine: &str, arguments: &[&str]) -> Running {
        let mut command = Command::new(&self.releases[release]);
        command.args(arguments).arg("--config").arg((self.config)(machine));
        Running::start_command(command)
    }

    fn ask(&self, release: usize, arguments: &[&str]) -> Done {
        self.command(release, "desk", arguments).finish()
    }

    /// Waits until an edge answers for all sites, or all edges that run send requests to a node.
    fn await_part(&self, part: usize) {
        let (kind, name) = PARTS[part];
        let first = PARTS.len() - 2;
        let asked = |edge: &usize| kind == "node" || part == first + edge;
        let edges = (0..2).filter(|edge| self.parts[first + edge].is_some() && asked(edge));
        for edge in edges {
            let answers = |site: &str| {
                try_get(self.cluster.edge(edge), &format!("{site}.test"), "/o/1/10")
                    .is_ok_and(|reply| reply.status == 200)
            };
            eventually("the edge answers", || SITES.iter().all(|(site, _)| answers(site)));
            let at = |site: &str| format!("sidelong_edge_node_site{{node=\"{name}\",site=\"{site}\"}}");
            let age = format!("sidelong_edge_record_age_seconds{{node=\"{name}\"}}");
            let serves = || {
                let metrics = metrics(self.cluster.admin(edge));
                // Its load is read, too.
                metrics.get(&age).is_some_and(|age| *age < 1.0)
                    && SITES.iter().any(|(site, _)| metrics.get(&at(site)) == Some(&1.0))
            };
            eventually("it serves", || kind == "edge" || serves());
        }
    }

    /// Puts a part of that release in the place of one, and moves a node there and back.
    fn replace(&mut self, part: usize, release: usize, random: &mut Pcg64Mcg) {
        let (_, name) = PARTS[part];
        let edges = self.cluster.file.edges.iter().filter(|edge| edge.name != name);
        let load = SteadyLoad::of(
            edges.flat_map(|edge| SITES.map(|(site, _)| asks(edge.listen, &format!("{site}.test")))),
        );
        self.parts[part].take().unwrap().end().succeeded();
        self.begin(part, release);
        self.await_part(part);
        let by = random.random_range(0..2);
        for site in ["alpha", "beta"] {
            // Others may be at it, too.
            until_it_succeeds(|| self.ask(by, &["move", "n6", site]));
        }
        until_it_succeeds(|| self.ask(1 - by, &["resume", "n6"]));
        assert_eq!(load.end(), Vec::<String>::new(), "while {name} was replaced");
    }

    fn go_there_and_back(mut self) {
        let seed = number("SIDELONG_SEED", SEED);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        println!(
            "SIDELONG_SEED={seed}, {} beside {}",
            self.releases[0].display(),
            self.releases[1].display()
        );
        for _ in 0..number("SIDELONG_ROUNDS", ROUNDS) {
            for release in [1, 0] {
                let mut order: Vec<_> = (0..PARTS.len()).collect();
                order.shuffle(&mut random);
                for part in order {
                    self.replace(part, release, &mut random);
                }
                let told = self.ask(release, &["status"]).succeeded();
                assert!(told.contains("2 of 2 edges answer"), "{told}");
            }
        }
    }
}

#[test]
fn releases_share_a_machine() {
    let mut cluster = Cluster::new(&SITES);
    cluster.file.sites.iter_mut().for_each(|site| site.floor = FLOOR);
    let config = cluster.config();
    Mixed::start(cluster, move |_| config.clone()).go_there_and_back();
}

#[test]
fn releases_are_on_several_machines() {
    let mut machines = Machines::of(&SITES, 2);
    machines.cluster.file.sites.iter_mut().for_each(|site| site.floor = FLOOR);
    let Some(etcd) = Etcd::start(&machines.cluster, 1, &[]) else { return };
    machines.kept_by(&etcd);
    let configs = PARTS.map(|(_, name)| (name, machines.config(name)));
    let (desk, whole) = (machines.config("desk"), machines.whole());
    until_it_succeeds(|| run(["cluster", "init", whole.to_str().unwrap()]));
    let config = move |machine: &str| {
        let found = configs.iter().find(|(name, _)| *name == machine);
        found.map_or_else(|| desk.clone(), |(_, config)| config.clone())
    };
    Mixed::start(machines.cluster, config).go_there_and_back();
}

/// What it means they cannot know, and they would drop that.
#[test]
fn parts_go_on_without_a_file_that_a_later_release_has_written() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let node = cluster.part("node", "n1");
    let [edge, _other] = ["edge1", "edge2"].map(|name| cluster.part("edge", name));
    let answers = || try_get(cluster.edge(0), "alpha.test", "/o/1/10").is_ok_and(|reply| reply.status == 200);
    eventually("it serves", answers);
    let roster = cluster.run_dir().join("roster/newest.toml");
    let text = fs::read_to_string(&roster).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    let later = rest.replace("\"needs\":0", "\"needs\":2").replace("\"epoch\":1", "\"epoch\":2");
    let later = format!("# sidelong roster, check {}\n{later}", fnv1a(later.as_bytes()));
    fs::remove_file(cluster.run_dir().join("roster/copy.toml")).unwrap();
    fs::write(&roster, &later).unwrap();
    for part in [&node, &edge] {
        eventually("it says so", || part.err().contains("of a newer release than this one"));
    }
    let refused = cluster.run(&["reload"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("of a newer release than this one: upgrade this machine"), "{refused:?}");
    assert_eq!(fs::read_to_string(&roster).unwrap(), later, "nobody has written it again");
    assert!(answers());
    assert_eq!(metrics(cluster.admin(0))["sidelong_config_epoch"], 1.0);
}
