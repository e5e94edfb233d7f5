//! How fast each node is, compared with the nodes of its site, as the edges see it.
//!
//! A node may be slower than its file says: a busy neighbour on its machine, a disk that fails, a cold cache. Its load does not
//! tell: a slow node with a free worker looks as free as any other. What tells is the utilisation law (Denning and Buzen 1978,
//! "The Operational Analysis of Queueing Network Models", 3.2): over any time, the time that workers were busy is the number of
//! answers times the time that each took. Workers are busy with the requests in flight, as many of these as there are workers.
//!
//! A node is compared with its site and not with the cluster, because sites have requests of other lengths. It gets the site's own
//! time as if it had given 16 answers of it. So few answers tell little, and a node that has none for a while, because it
//! was slow, is believed to be as fast as the others again, and is tried.

use std::time::Duration;

use sidelong_layout::{NodeId, SiteId};

use crate::cluster::Traffic;

/// What was seen counts for about this time, in seconds. A node that has recovered gets requests again after some five times as
/// long; one that has become slow is noticed while its first answers are awaited, because these requests count at once.
const MEMORY_S: f64 = 1.0;
/// Answers of the site's mean time that each node is taken to have given. The means of 16 exponential times differ by a quarter.
const PRIOR: f64 = 16.0;
/// A node counts as slower if its requests take longer by this factor: twice what the means of equal nodes differ by.
const APART: f64 = 1.5;

/// How fast each node is. A plain value without outside effects.
#[derive(Clone, PartialEq, Debug)]
pub struct Pace {
    nodes: Vec<At>,
    /// Work and answers of the nodes of each site.
    sites: Vec<Sums>,
}

/// A node at a scan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NodeAtScan {
    /// The site that it serves; `None` if it serves none.
    pub site: Option<SiteId>,
    /// Its requests, of all edges.
    pub traffic: Traffic,
    /// Requests that it works on at a time.
    pub workers: u32,
    /// The speed of a worker, as the file has it: 2.0 takes half the ordinary time.
    pub speed: f32,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct At {
    site: Option<SiteId>,
    /// Answers at the last scan.
    answers: u64,
    sums: Sums,
}

/// What was seen lately; what is older counts less.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sums {
    /// Seconds that workers were busy, each times its speed.
    work_s: f64,
    answers: f64,
}

impl Pace {
    /// Nothing is known of any node: all are equally fast.
    pub fn new(nodes: usize, sites: usize) -> Self {
        Pace { nodes: vec![At::default(); nodes], sites: vec![Sums::default(); sites] }
    }

    /// Takes a scan of all nodes, at the given time since the previous one.
    pub fn see(&mut self, seen: impl Iterator<Item = NodeAtScan>, passed: Duration) {
        let passed_s = passed.as_secs_f64();
        let kept = (-passed_s / MEMORY_S).exp();
        self.sites.fill(Sums::default());
        for (at, NodeAtScan { site, traffic, workers, speed }) in self.nodes.iter_mut().zip(seen) {
            let gained = traffic.answers.saturating_sub(at.answers);
            at.answers = traffic.answers;
            if at.site != site {
                // What it did for another site says nothing here.
                (at.site, at.sums) = (site, Sums::default());
                continue;
            }
            let busy = f64::from(traffic.in_flight.min(workers.max(1)));
            at.sums.work_s = at.sums.work_s * kept + busy * f64::from(speed) * passed_s;
            at.sums.answers = at.sums.answers * kept + gained as f64;
            if let Some(of_site) = site.and_then(|site| self.sites.get_mut(site.index())) {
                of_site.work_s += at.sums.work_s;
                of_site.answers += at.sums.answers;
            }
        }
    }

    /// How fast a node is, compared with its site and with what the file says: 1.0 for all that are not clearly slower, 0.125 for
    /// one whose requests take 8 times as long.
    pub fn of(&self, node: NodeId) -> f32 {
        let At { site, sums, .. } = self.nodes[node.index()];
        let of_site = site.and_then(|site| self.sites.get(site.index()));
        let Some(ordinary_s) =
            of_site.filter(|sums| sums.answers > 0.0).map(|sums| sums.work_s / sums.answers)
        else {
            return 1.0;
        };
        let time_s = (sums.work_s + PRIOR * ordinary_s) / (sums.answers + PRIOR);
        let slower = time_s / ordinary_s;
        if slower > APART { (1.0 / slower) as f32 } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SiteId = SiteId::new(0);
    const B: SiteId = SiteId::new(1);
    const MS: Duration = Duration::from_millis(1);

    /// Nodes of two workers, of which each has so many requests in flight that take so many ms.
    struct Nodes {
        pace: Pace,
        nodes: Vec<(Option<SiteId>, u32, f64)>,
        answers: Vec<f64>,
    }

    impl Nodes {
        fn new(nodes: &[(Option<SiteId>, u32, f64)]) -> Self {
            let answers = vec![0.0; nodes.len()];
            Nodes { pace: Pace::new(nodes.len(), 2), nodes: nodes.to_vec(), answers }
        }

        fn run(&mut self, ms: u32) -> Vec<f32> {
            for _ in 0..ms {
                for ((_, in_flight, time_ms), answers) in self.nodes.iter().zip(&mut self.answers) {
                    *answers += f64::from((*in_flight).min(2)) / time_ms;
                }
                let seen = self.nodes.iter().zip(&self.answers).map(|((site, in_flight, _), answers)| {
                    let traffic = Traffic { in_flight: *in_flight, answers: *answers as u64, up: true };
                    NodeAtScan { site: *site, traffic, workers: 2, speed: 1.0 }
                });
                self.pace.see(seen, MS);
            }
            (0..self.nodes.len()).map(|node| self.pace.of(NodeId::new(node))).collect()
        }
    }

    #[test]
    fn a_slow_node_is_known_by_its_time_and_not_by_its_load() {
        let mut nodes =
            Nodes::new(&[(Some(A), 2, 5.0), (Some(A), 6, 5.0), (Some(A), 1, 40.0), (None, 0, 5.0)]);
        assert_eq!(nodes.run(1), [1.0; 4]);
        let found = nodes.run(3_000);
        assert_eq!((found[0], found[1], found[3]), (1.0, 1.0, 1.0), "waiting requests are no work");
        assert!((0.12..0.3).contains(&found[2]), "{found:?}");
        // With more answers it is known better.
        nodes.nodes[2].1 = 2;
        let better = nodes.run(3_000);
        assert!((0.12..found[2]).contains(&better[2]), "{better:?}");
    }

    #[test]
    fn a_node_that_has_become_slow_is_noticed_before_it_answers() {
        let mut nodes = Nodes::new(&[(Some(A), 2, 5.0), (Some(A), 2, 5.0)]);
        nodes.run(2_000);
        nodes.nodes[1].2 = f64::INFINITY;
        let found = nodes.run(1_500);
        assert!(found[0] == 1.0 && found[1] < 0.6, "{found:?}");
    }

    #[test]
    fn a_node_without_requests_is_tried_again_after_some_seconds() {
        let mut nodes = Nodes::new(&[(Some(A), 2, 5.0), (Some(A), 2, 40.0)]);
        assert!(nodes.run(3_000)[1] < 0.3);
        nodes.nodes[1].1 = 0;
        assert!(nodes.run(500)[1] < 0.5);
        assert_eq!(nodes.run(6_000), [1.0, 1.0]);
    }

    #[test]
    fn sites_have_requests_of_other_lengths_and_a_node_that_moves_begins_anew() {
        let mut nodes = Nodes::new(&[(Some(A), 2, 5.0), (Some(B), 2, 400.0), (Some(B), 2, 400.0)]);
        assert_eq!(nodes.run(3_000), [1.0; 3]);
        nodes.nodes[1] = (Some(A), 2, 5.0);
        assert_eq!(nodes.run(1_000), [1.0; 3]);
    }

    #[test]
    fn a_node_that_is_as_slow_as_its_file_says_is_not_slow() {
        let mut pace = Pace::new(2, 1);
        for ms in 0..3_000 {
            let at = |speed: f32, per_ms: f64| {
                let answers = (f64::from(ms) * per_ms) as u64;
                NodeAtScan {
                    site: Some(A),
                    traffic: Traffic { in_flight: 2, answers, up: true },
                    workers: 2,
                    speed,
                }
            };
            pace.see([at(1.0, 0.4), at(0.25, 0.1)].into_iter(), MS);
        }
        assert_eq!([0, 1].map(|node| pace.of(NodeId::new(node))), [1.0, 1.0]);
    }
}
