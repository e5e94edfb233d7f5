//! A cluster without processes: a board, and the words of nodes that all serve the first site.

use std::sync::Arc;

use sidelong_fabric::{Host, Initiator, Region, RunDirectory, shm::ShmHost};
use sidelong_layout::{Instance, SiteId};
use sidelong_reconfig::{BoardInit, FrontMember, Links, Members, board_map, expose_board, expose_words};

use super::members;

/// Exposed until it is dropped.
pub(crate) struct Idle {
    pub(crate) host: Host,
    names: Vec<String>,
    sites: usize,
    _words: Vec<Region>,
    directory: tempfile::TempDir,
}

impl Idle {
    /// Without its board.
    pub(crate) fn start(nodes: usize, sites: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::Shm(ShmHost::new(directory.path()));
        let names: Vec<_> = (0..nodes).map(|node| format!("n{node}")).collect();
        let first = Some(SiteId::new(0));
        let words = names.iter().map(|name| expose_words(&host, name, first, Instance::alone(1)).unwrap());
        let _words = words.collect();
        Idle { host, names, sites, _words, directory }
    }

    /// Exposes the board of one owner, until the region is dropped. No site has a floor.
    pub(crate) fn board(&self) -> Region {
        self.board_of(0)
    }

    /// As [`Idle::board`], after it was handed over so often.
    pub(crate) fn board_of(&self, term: u64) -> Region {
        let nodes = |site| if (site, term) == (0, 0) { self.names.len() as u16 } else { 0 };
        let first: Vec<_> = (0..self.sites).map(|site| BoardInit { floor: 0, nodes: nodes(site) }).collect();
        expose_board(&self.host, board_map(self.sites, 1), &first, (term, 0), Instance::alone(1)).unwrap()
    }

    /// As a mover reads them that knows these fronts.
    pub(crate) fn links(&self, fronts: impl IntoIterator<Item = FrontMember>) -> Links {
        let run = Arc::new(RunDirectory::open(self.directory.path()).unwrap());
        let room = (self.names.len(), board_map(self.sites, 1));
        Links::new(run, Initiator::new(), room, &self.members(fronts, 0))
    }

    /// All nodes and sites, with these fronts, by the board of that term.
    pub(crate) fn members(&self, fronts: impl IntoIterator<Item = FrontMember>, board: u64) -> Members {
        Members { fronts: fronts.into_iter().collect(), board, ..members(&self.names, self.sites) }
    }
}
