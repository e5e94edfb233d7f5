//! A front: it sends requests to the nodes by the ownerships that it has seen.

use sidelong_layout::{FrontWord, Ownership, SiteId};

use crate::model::world::Weakness;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Front {
    /// Each node's ownership word, as its requests find it; 0 before the first look.
    view: Vec<u64>,
    /// Its requests at each node, from before they are sent until they have ended.
    counts: Vec<u32>,
    /// What it states about each node ([`FrontWord`]): the count as it was then.
    pub(crate) words: Vec<u64>,
    /// Ownerships that it has read, and has not yet made known in both places.
    looks: Vec<Look>,
    pub(crate) requests: Vec<Request>,
    pub(crate) is_gone: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Look {
    node: usize,
    word: u64,
    /// One of the two places is done.
    is_half_done: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Request {
    pub(crate) node: usize,
    pub(crate) site: SiteId,
    pub(crate) phase: Phase,
}

/// How far a request is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    Chosen,
    Counted,
    /// At the node, until it ends.
    Sent,
}

/// What a front may do next; numbers are indexes in its lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    /// It reads a node's ownership.
    Read(usize),
    /// It makes what it read known in one place more.
    Tell(usize),
    /// It chooses a node for a request.
    Choose(usize),
    /// A request takes its next step.
    Proceed(usize),
    /// It states its requests at a node again.
    Recount(usize),
}

impl Front {
    pub(crate) fn new(nodes: usize) -> Self {
        Front { view: vec![0; nodes], counts: vec![0; nodes], words: vec![0; nodes], ..Front::default() }
    }

    pub(crate) fn deeds(&self, nodes: &[u64], requests_left: u8) -> Vec<Deed> {
        if self.is_gone {
            return Vec::new();
        }
        let mut deeds: Vec<_> = (0..self.requests.len()).map(Deed::Proceed).collect();
        deeds.extend((0..self.looks.len()).map(Deed::Tell));
        for (node, word) in nodes.iter().enumerate() {
            let is_looking = self.looks.iter().any(|look| look.node == node);
            if !is_looking && self.view[node] != *word {
                deeds.push(Deed::Read(node));
            }
            if FrontWord::decode(self.words[node]).requests != self.counts[node] {
                deeds.push(Deed::Recount(node));
            }
            if requests_left > 0 && self.serves(node).is_some() {
                deeds.push(Deed::Choose(node));
            }
        }
        deeds
    }

    /// Does it; returns whether a request began.
    pub(crate) fn act(&mut self, deed: Deed, nodes: &[u64], weakness: Weakness) -> bool {
        match deed {
            Deed::Read(node) => self.looks.push(Look { node, word: nodes[node], is_half_done: false }),
            Deed::Tell(index) => self.tell(index, weakness),
            Deed::Choose(node) => {
                let site = self.serves(node).expect("enabled");
                self.requests.push(Request { node, site, phase: Phase::Chosen });
            }
            Deed::Proceed(index) => self.proceed(index, weakness),
            Deed::Recount(node) => {
                let requests = self.counts[node];
                self.words[node] = FrontWord { requests, ..FrontWord::decode(self.words[node]) }.encode();
            }
        }
        self.looks.sort_unstable();
        self.requests.sort_unstable();
        matches!(deed, Deed::Choose(_))
    }

    /// First to its requests, then to the movers.
    fn tell(&mut self, index: usize, weakness: Weakness) {
        let Look { node, word, is_half_done } = self.looks[index];
        if is_half_done == (weakness == Weakness::StatesFirst) {
            self.view[node] = word;
        } else {
            let generation = ownership(word).expect("no word is corrupted").generation;
            self.words[node] = FrontWord { seen: Some(generation), requests: self.counts[node] }.encode();
        }
        if is_half_done {
            self.looks.remove(index);
        } else {
            self.looks[index].is_half_done = true;
        }
    }

    fn proceed(&mut self, index: usize, weakness: Weakness) {
        let Request { node, site, phase } = self.requests[index];
        let still_serves = self.serves(node) == Some(site) || weakness == Weakness::NoSecondLook;
        match phase {
            Phase::Chosen => {
                self.counts[node] += 1;
                self.requests[index].phase = Phase::Counted;
            }
            Phase::Counted if still_serves => self.requests[index].phase = Phase::Sent,
            Phase::Counted | Phase::Sent => {
                self.counts[node] -= 1;
                self.requests.remove(index);
            }
        }
    }

    /// Dies, and with it its requests.
    pub(crate) fn die(&mut self) {
        let nodes = self.words.len();
        *self = Front { words: vec![FrontWord::GONE; nodes], is_gone: true, ..Front::new(nodes) };
    }

    /// Its machine burns: its requests end, and what it stated is what is read of it, if anything is.
    pub(crate) fn burn(&mut self) {
        *self =
            Front { words: std::mem::take(&mut self.words), is_gone: true, ..Front::new(self.counts.len()) };
    }

    /// Requests at `node`.
    pub(crate) fn sent(&self, node: usize) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(move |request| request.node == node && request.phase == Phase::Sent)
    }

    fn serves(&self, node: usize) -> Option<SiteId> {
        ownership(self.view[node]).and_then(Ownership::serving_site)
    }
}

fn ownership(word: u64) -> Option<Ownership> {
    Ownership::decode(word, sidelong_layout::SITES_MAX)
}
