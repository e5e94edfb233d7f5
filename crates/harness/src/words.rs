//! What the words of a cluster of several machines say, read from outside by one of its persons.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use sidelong_app::roster::{self, Roster};
use sidelong_app::{Failure, Parts};
use sidelong_fabric::RunDirectory;
use sidelong_layout::{NodeState, Ownership, Time};
use sidelong_load::monotonic_ns;
use sidelong_reconfig::Links;

/// Reads all words of a cluster again and again, by the newest roster that a run directory has.
pub struct Words {
    run: RunDirectory,
    epoch: u64,
    parts: Parts,
    links: Links,
}

/// What all words said at about one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Look {
    /// Before the first was read, and after the last.
    pub from: Instant,
    /// As `from`.
    pub until: Instant,
    /// Each node's, by name; `None` if it could not be read.
    pub nodes: Vec<(String, Option<Said>)>,
    /// Each site's.
    pub sites: Vec<SiteSaid>,
}

/// What a node's word said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    /// The word.
    pub word: u64,
    /// The site that it serves, or leaves: it may have requests of that alone.
    pub site: Option<usize>,
    /// Whether it serves that.
    pub serves: bool,
    /// Whether it is on its way.
    pub moves: bool,
}

/// A site, and what its words said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SiteSaid {
    /// Its slot, by which nodes name it.
    pub slot: usize,
    /// Nodes that it keeps, by the roster.
    pub floor: usize,
    /// Whether its lock is free and its budget counts the nodes that serve it; `None` if that cannot be told.
    pub is_settled: Option<bool>,
}

impl Words {
    /// By the roster in that run directory.
    ///
    /// # Errors
    /// If there is none, or the fabric cannot be used.
    pub fn new(run: &Path) -> Result<Self, Failure> {
        let run = RunDirectory::at(run);
        let roster = Roster::read(&run).ok_or_else(|| Failure::new("there is no roster yet"))?;
        let parts = Parts::new(roster.cluster()?)?;
        let links = parts.read_only_links()?;
        Ok(Words { run, epoch: roster.epoch, parts, links })
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// If the fabric cannot be used any more.
    pub fn look(&mut self) -> Result<Look, Failure> {
        if roster::epoch(&self.run).is_some_and(|newest| newest > self.epoch) {
            *self = Words::new(self.run.path())?;
        }
        let from = Instant::now();
        self.links.scan(Time::from_ns(monotonic_ns()));
        let until = Instant::now();
        let (cluster, links) = (&self.parts.cluster, &self.links);
        let nodes = links.nodes().filter_map(|node| {
            let name = cluster.nodes.get(node.index())?.name.clone();
            Some((name, links.ownership(node).map(said)))
        });
        let sites = links.sites().filter_map(|site| {
            let known = cluster.sites.get(site.index())?;
            let is_free = links.site(site).map(|words| words.is_free());
            let is_settled = match (is_free, links.budget_is_exact(site)) {
                (Some(true), exact) => exact,
                (busy, _) => busy,
            };
            Some(SiteSaid { slot: site.index(), floor: known.floor, is_settled })
        });
        Ok(Look { from, until, nodes: nodes.collect(), sites: sites.collect() })
    }
}

impl Look {
    /// How many nodes serve the site of that slot, of those that could be read.
    pub fn serving(&self, slot: usize) -> usize {
        let serves = |said: Said| said.serves && said.site == Some(slot);
        self.nodes.iter().filter(|(_, said)| said.is_some_and(serves)).count()
    }

    /// Whether each node serves a site.
    pub fn all_serve(&self) -> bool {
        self.nodes.iter().all(|(_, said)| said.is_some_and(|said| said.serves))
    }

    /// The nodes that are on their way, the sites whose lock is held or that have fewer nodes than they keep, and what cannot be read, each with
    /// what it does. None if all rests.
    pub fn unrest(&self) -> BTreeMap<String, &'static str> {
        let nodes = self.nodes.iter().filter_map(|(name, said)| match said {
            None => Some((name.clone(), "is not read")),
            Some(said) => said.moves.then(|| (name.clone(), "moves")),
        });
        let sites = self.sites.iter().filter_map(|site| {
            let what = match site.is_settled {
                Some(true) if self.serving(site.slot) >= site.floor => return None,
                Some(true) => "is below its floor",
                Some(false) => "is locked, or its budget is wrong",
                None => "is not read",
            };
            Some((format!("site {}", site.slot), what))
        });
        nodes.chain(sites).collect()
    }
}

fn said(own: Ownership) -> Said {
    let moves = matches!(own.state, NodeState::Draining | NodeState::Changing);
    let serves = own.serving_site().is_some();
    let site = own.site.filter(|_| serves || own.state == NodeState::Draining);
    Said { word: own.encode(), site: site.map(sidelong_layout::SiteId::index), serves, moves }
}
