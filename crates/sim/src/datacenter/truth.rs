//! The true state of the words, which no balancer sees at once: which site each node serves, and whether a floor is
//! violated.

use sidelong_layout::Ownership;

use crate::Time;
use crate::datacenter::Setup;

pub(super) struct Truth {
    floor: u32,
    /// The site that each node serves.
    serves: Vec<Option<usize>>,
    /// Each node's last site, and the one before with the time when the node joined it.
    last: Vec<(usize, Option<(usize, Time)>)>,
    /// Nodes of each site.
    pub(super) serving: Vec<u32>,
    /// Since when a site is below its floor.
    below_since: Vec<Option<Time>>,
    below_ns: u64,
    thrash_ns: u64,
    pub(super) moves: u64,
    /// By site, when a node last joined.
    pub(super) came: Vec<Option<Time>>,
    pub(super) thrash: u64,
    pub(super) floor_violations: u64,
}

impl Truth {
    pub(super) fn new(setup: &Setup) -> Truth {
        let mut serving = vec![0; setup.sites];
        setup.nodes.iter().for_each(|(home, _)| serving[*home] += 1);
        Truth {
            floor: u32::from(setup.floor),
            serves: setup.nodes.iter().map(|(home, _)| Some(*home)).collect(),
            last: setup.nodes.iter().map(|(home, _)| (*home, None)).collect(),
            below_since: vec![None; setup.sites],
            serving,
            below_ns: 0,
            thrash_ns: setup.thrash_ns,
            moves: 0,
            came: vec![None; setup.sites],
            thrash: 0,
            floor_violations: 0,
        }
    }

    /// Records a node's word, which may have changed.
    pub(super) fn note(&mut self, node: usize, word: u64, now: Time) {
        let is = Ownership::decode(word, self.serving.len())
            .and_then(Ownership::serving_site)
            .map(|site| site.index());
        let was = std::mem::replace(&mut self.serves[node], is);
        if was == is {
            return;
        }
        if let Some(site) = is {
            self.serving[site] += 1;
            if self.serving[site] >= self.floor
                && let Some(since) = self.below_since[site].take()
            {
                self.below_ns += now.since(since).as_nanos() as u64;
            }
            let (last, before) = self.last[node];
            if last != site {
                self.moves += 1;
                self.came[site] = Some(now);
                let is_back = before.is_some_and(|(before, came)| {
                    before == site && now.since(came).as_nanos() as u64 <= self.thrash_ns
                });
                self.thrash += u64::from(is_back);
                self.last[node] = (site, Some((last, now)));
            }
        }
        if let Some(site) = was {
            self.serving[site] -= 1;
            if self.serving[site] + 1 == self.floor {
                self.floor_violations += 1;
                self.below_since[site] = Some(now);
            }
        }
    }

    /// Total time that sites were below their floors so far, in ns.
    pub(super) fn below_floor_ns(&self, now: Time) -> u64 {
        let still = self.below_since.iter().flatten().map(|since| now.since(*since).as_nanos() as u64);
        self.below_ns + still.sum::<u64>()
    }

    /// Whether a node serves no site, because it is moving.
    pub(super) fn is_leaving(&self, node: usize) -> bool {
        self.serves[node].is_none()
    }

    /// Nodes that serve no site.
    pub(super) fn lost(&self) -> u64 {
        self.serves.iter().filter(|serves| serves.is_none()).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use sidelong_layout::SiteId;

    use super::*;
    use crate::datacenter::tests::setup;

    #[test]
    fn floors_and_thrash_are_noticed() {
        let mut truth = Truth::new(&setup("", &["nodes=4", "sites=2", "floor=2", "thrash_ms=1"]));
        let word = |site: usize| Ownership::serving(SiteId::new(site), 1);
        let at = |us: u64| Time::from_ns(us * 1_000);
        let leaves = word(0).draining_to(Some(SiteId::new(1))).unwrap();
        truth.note(0, leaves.encode(), at(0));
        truth.note(0, leaves.encode(), at(10));
        assert_eq!((truth.floor_violations, truth.lost(), truth.moves), (1, 1, 0));
        truth.note(0, word(1).encode(), at(20));
        assert_eq!((truth.serving.clone(), truth.moves, truth.lost()), (vec![1, 3], 1, 0));
        assert_eq!(truth.below_floor_ns(at(100)), 100_000);
        // It moves back at once, and the floor holds again.
        truth.note(0, word(0).encode(), at(500));
        assert_eq!((truth.moves, truth.thrash, truth.below_floor_ns(at(900))), (2, 1, 500_000));
        // The next time it takes longer.
        truth.note(0, word(1).encode(), at(2_000));
        assert_eq!((truth.moves, truth.thrash, truth.floor_violations), (3, 1, 2));
    }
}
