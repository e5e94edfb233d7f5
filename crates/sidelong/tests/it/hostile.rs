//! A cluster under load whose parts are killed, stopped and starved, and whose files are removed, replaced, truncated and
//! overwritten, at random: no part dies of it, and afterwards all of it works.
//!
//! `cargo xtask ci hostile` goes on for a hundred rounds, from a new seed, which it prints. `SIDELONG_SEED=N` before the command
//! repeats the attacks of a run, though not its timing.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::support::words::write_word;
use crate::support::{Client, Cluster, Part, Running, eventually, number, until_it_succeeds};

/// The number of rounds and the seed, if the variables SIDELONG_ROUNDS and SIDELONG_SEED do not say otherwise.
const ROUNDS: u64 = 4;
const SEED: u64 = 7;
/// What a part may end with: well, a region that was lost, and the signals that are sent here and by `up`.
const ENDS: [&str; 4] = ["exit status: 0", "exit status: 2", "signal: 9 (SIGKILL)", "signal: 15 (SIGTERM)"];
/// Longest time for which something is withheld.
const HELD_MS_MAX: u64 = 1500;
const RELOAD: [&str; 3] = ["reload", "--timeout", "1s"];
/// Connections to a part that has descriptors for a tenth of them.
const CONNECTIONS: usize = 100;
/// Most words that are overwritten at once.
const WORDS_MAX: usize = 16;

/// What is done to the cluster.
type Attack = fn(&mut Hostile);

const ATTACKS: [(&str, Attack); 8] = [
    ("kill", Hostile::kill),
    ("kill up", Hostile::kill_up),
    ("stop", Hostile::stop),
    ("starve", Hostile::starve),
    ("overwrite", Hostile::overwrite),
    ("spoil", Hostile::spoil),
    ("delete", Hostile::delete),
    ("reload", Hostile::reload),
];

struct Hostile {
    cluster: Cluster,
    up: Running,
    stopped: Vec<Part>,
    random: Pcg64Mcg,
}

impl Hostile {
    fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    fn hold(&mut self) {
        std::thread::sleep(Duration::from_millis(self.random.random_range(0..HELD_MS_MAX)));
    }

    /// One of the parts that run, if any does.
    fn part(&mut self) -> Option<Part> {
        let mut parts = self.cluster.parts();
        // As in the cluster file, so that a seed names the same one again.
        parts.sort_by(|one, other| one.name.cmp(&other.name));
        let index = self.below(parts.len().max(1));
        parts.into_iter().nth(index)
    }

    /// One of the files of the run directory, if there are any, those of the roster among them.
    fn file(&mut self) -> Option<PathBuf> {
        let places = [self.cluster.run_dir(), self.cluster.run_dir().join("roster")];
        let entries = places.into_iter().flat_map(fs::read_dir).flatten().flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
        files.sort();
        let index = self.below(files.len().max(1));
        files.into_iter().nth(index).inspect(|file| println!("    {}", file.display()))
    }

    fn kill(&mut self) {
        self.part().iter().for_each(Part::kill);
    }

    /// The next one ends what it left behind, or refuses to start while the ports are taken.
    fn kill_up(&mut self) {
        self.up.signal(Signal::KILL);
        eventually("it is dead", || !self.up.is_running());
        eventually("the next one is up", || {
            if !self.up.is_running() {
                let next = self.cluster.up(&["--plain"]);
                let ended = std::mem::replace(&mut self.up, next).finish();
                assert!(ended.signal == Some(9) || ended.code == Some(2), "{ended:?}");
                check_ends(&ended.out);
            }
            self.up.err().contains(" is up: ")
        });
    }

    fn stop(&mut self) {
        let part = self.part();
        part.iter().for_each(|part| part.signal(Signal::STOP));
        self.stopped.extend(part);
    }

    /// Takes the descriptors of a part for a while.
    fn starve(&mut self) {
        let Some(part) = self.part() else { return };
        let file = &self.cluster.file;
        let nodes = file.nodes.iter().map(|node| (&node.name, node.listen));
        let listens = nodes.chain(file.edges.iter().map(|edge| (&edge.name, Some(edge.listen))));
        let of_part = |(name, listen): (&String, Option<SocketAddr>)| listen.filter(|_| *name == part.name);
        let Some(listen) = { listens }.find_map(of_part) else { return };
        // It may have ended meanwhile.
        let Ok(open) = fs::read_dir(format!("/proc/{}/fd", part.pid().as_raw_nonzero())) else { return };
        let limit = |count| Rlimit { current: Some(count), maximum: getrlimit(Resource::Nofile).maximum };
        let Ok(before) = prlimit(Some(part.pid()), Resource::Nofile, limit(open.count() as u64 + 10)) else {
            return;
        };
        let clients: Vec<_> = (0..CONNECTIONS).filter_map(|_| Client::try_connect(listen).ok()).collect();
        self.hold();
        drop(clients);
        let _ = prlimit(Some(part.pid()), Resource::Nofile, before);
    }

    /// Writes words that nobody of the cluster wrote.
    fn overwrite(&mut self) {
        let Some(path) = self.file() else { return };
        let Ok(file) = File::options().write(true).open(path) else { return };
        let words = file.metadata().map_or(0, |found| found.len() as usize / 8);
        for _ in 0..=self.below(WORDS_MAX) {
            let word: u64 = [0, u64::MAX, self.random.random()][self.below(3)];
            write_word(&file, 8 * self.below(words.max(1)), word);
        }
    }

    /// Removes, replaces or truncates a file.
    fn spoil(&mut self) {
        let Some(path) = self.file() else { return };
        let copy = self.cluster.path("copy");
        // The file may be gone by now.
        let _ = match self.below(3) {
            0 => fs::remove_file(path),
            1 => fs::copy(&path, &copy).and_then(|_| fs::rename(copy, path)),
            _ => File::options().write(true).open(path).and_then(|file| {
                let left = self.random.random_range(0..=file.metadata()?.len());
                file.set_len(left)
            }),
        };
    }

    fn delete(&mut self) {
        // Parts may add files to it meanwhile.
        while self.cluster.run_dir().exists() && fs::remove_dir_all(self.cluster.run_dir()).is_err() {}
    }

    /// Has the parts go by a changed file, while they may be stopped, or about to end.
    fn reload(&mut self) {
        self.change();
        let done = self.cluster.run(&RELOAD);
        assert!(matches!(done.code, Some(0 | 2)), "{done:?}");
    }

    /// Changes a setting in the file, to one that it has not had.
    fn change(&mut self) {
        self.cluster.file.limits.connect_timeout += Duration::from_millis(1);
    }

    fn round(&mut self) {
        for _ in 0..=self.below(2) {
            let (name, attack) = ATTACKS[self.below(ATTACKS.len())];
            println!("  {name}");
            attack(self);
        }
        for command in [&["top", "--once", "--json"][..], &["status"], &["history"]] {
            let done = self.cluster.run(command);
            assert!(matches!(done.code, Some(0 | 2)), "{command:?}: {done:?}");
        }
        self.hold();
        self.stopped.drain(..).filter(Part::is_alive).for_each(|part| part.signal(Signal::CONT));
        self.cluster.await_whole(&mut self.up);
        let before = self.moves();
        eventually("nodes move on", || self.moves() != before);
        self.change();
        let said = until_it_succeeds(|| self.cluster.run(&RELOAD));
        assert!(said.contains("limits.connect_timeout_ms"), "{said}");
        check_ends(&self.up.out());
    }

    /// Moves that `up` has seen.
    fn moves(&self) -> Option<String> {
        let out = self.up.out();
        out.lines().rev().find_map(|line| Some(line.split_once(" moves, ")?.0.rsplit_once(' ')?.1.to_owned()))
    }
}

/// Checks in what an `up` printed that no part has ended in another way than it may.
fn check_ends(printed: &str) {
    for line in printed.lines() {
        let Some((_, rest)) = line.split_once(" ended (") else { continue };
        assert!(ENDS.iter().any(|end| rest.starts_with(end)), "{line}");
    }
}

#[test]
fn a_cluster_survives_attacks() {
    let (seed, rounds) = (number("SIDELONG_SEED", SEED), number("SIDELONG_ROUNDS", ROUNDS));
    let cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]).with_load(256, None);
    let up = cluster.serving(&["--plain"]);
    let mut hostile = Hostile { cluster, up, stopped: Vec::new(), random: Pcg64Mcg::seed_from_u64(seed) };
    for round in 1..=rounds {
        println!("round {round} of {rounds} with SIDELONG_SEED={seed}");
        hostile.round();
    }
    let Hostile { cluster, up, .. } = hostile;
    up.end().succeeded();
    assert_eq!((cluster.parts(), cluster.regions()), (vec![], vec![]));
}
