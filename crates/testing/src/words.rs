//! The words of a region, in the file that all parts map, and those of a cluster of two sites and two edges.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use sidelong_config::Capacity;
use sidelong_layout::{BoardMap, Budget, Lock, NodeState, Ownership, SEQUENCE_MAX, SiteId, WORDS_OWNERSHIP};

use crate::{Cluster, eventually};

/// The word at `offset` bytes.
pub fn read_word(file: &File, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, offset as u64).unwrap();
    u64::from_le_bytes(bytes)
}

/// Writes the word at `offset` bytes.
pub fn write_word(file: &File, offset: usize, word: u64) {
    file.write_all_at(&word.to_le_bytes(), offset as u64).unwrap();
}

/// The sites of a cluster whose words are looked at.
pub const SITES: usize = 2;
const BOARD: BoardMap = BoardMap { sites: Capacity::LEAST.sites, edges: Capacity::LEAST.fronts };

/// One word of a region, in the file that all parts map.
pub struct Word<'a> {
    cluster: &'a Cluster,
    region: String,
    offset: usize,
}

impl Word<'_> {
    /// The ownership word of a node, by its number.
    pub fn ownership(cluster: &Cluster, node: usize) -> Word<'_> {
        Word { cluster, region: format!("n{node}.words"), offset: WORDS_OWNERSHIP }
    }

    /// The lock of a site, by its index.
    pub fn lock(cluster: &Cluster, site: usize) -> Word<'_> {
        Word { cluster, region: "board".to_owned(), offset: BOARD.lock(SiteId::new(site)) }
    }

    /// The budget of a site, by its index.
    pub fn budget(cluster: &Cluster, site: usize) -> Word<'_> {
        Word { cluster, region: "board".to_owned(), offset: BOARD.budget(SiteId::new(site)) }
    }

    /// What it says.
    pub fn read(&self) -> u64 {
        read_word(&self.file(), self.offset)
    }

    /// Overwrites it.
    pub fn write(&self, value: u64) {
        write_word(&self.file(), self.offset, value);
    }

    fn file(&self) -> File {
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
pub fn nonsense(generation: u64) -> [u64; 4] {
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
pub fn is_legal(cluster: &Cluster) -> bool {
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

/// A file of the run directory by the beginning of its name.
pub fn region_file(cluster: &Cluster, begins: &str) -> Option<PathBuf> {
    let name =
        cluster.regions().into_iter().find(|name| name.starts_with(begins) && name.ends_with(".region"))?;
    Some(cluster.run_dir().join(name))
}

/// Corrupts words, and waits until they are put right: those who move nodes have the file that lies there.
pub fn is_looked_after(cluster: &Cluster) {
    Word::budget(cluster, 0).write(Budget { floor: 9_000, current: 8_000, generation: 3 }.encode());
    for node in 1..=cluster.file.nodes.len() {
        Word::ownership(cluster, node).write(nonsense(7)[0]);
    }
    eventually("all words are legal again", || is_legal(cluster));
}
