//! Load balancing: which node of a site gets a request.
//!
//! It runs for every request, so it takes no lock, allocates nothing, and reads a bounded number of nodes. The edge
//! keeps its candidates in arrays of atomics and shows them through [`Candidates`]. Values may change during a choice;
//! each is read once.
//!
//! In a site of up to [`SCAN_MAX`] nodes all are compared. In a larger one a fresh random sample of [`SAMPLE`] is
//! compared, one from each sixteenth. Then the load of the busiest node exceeds the mean by only log log n / log d (the
//! power of d choices; Mitzenmacher, 2001), and edges with the same slightly old view do not all choose the same node.

mod errors;
mod ewma;

use sidelong_layout::vocabulary;

pub use self::errors::Errors;
pub use self::ewma::AnswerTime;
use crate::index::LoadIndex;

/// Sites with more nodes than this are sampled. At some nanoseconds a node, 64 take far less than the microsecond that a choice
/// may take.
pub const SCAN_MAX: usize = 64;

/// Size of a sample.
pub const SAMPLE: usize = 16;

/// The nodes of one site as an edge sees them now, numbered from 0.
pub trait Candidates {
    /// Number of nodes, usable or not.
    fn len(&self) -> usize;
    /// The load of a node, brought up to date with [`crate::index::Reading::now`].
    fn index(&self, candidate: usize) -> LoadIndex;
    /// Its load at the last scan, without the requests sent since.
    fn index_at_look(&self, candidate: usize) -> LoadIndex;
    /// How long a node takes to answer, in us, as this edge has seen it: [`AnswerTime::now_us`]. `None` before an answer.
    fn answer_us(&self, candidate: usize) -> Option<f64>;
    /// The requests of all edges at a node, as far as this edge knows, and its recent [`Errors`].
    fn in_flight(&self, candidate: usize) -> u32;
    /// Whether the request may go there: the node is up, serves the site, and has not been tried for this request.
    fn usable(&self, candidate: usize) -> bool;

    /// Whether the site has no nodes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

vocabulary! {
    /// How to choose: `balance.policy` of the cluster file.
    Balance {
        /// The lowest load index (Vaidyanathan et al. 2006, 5.2.1, after IBM WebSphere).
        #[default]
        Weighted = "weighted",
        /// Each node in turn, regardless of load.
        RoundRobin = "round-robin",
        /// The fewest requests of all edges, as far as this edge knows.
        LeastConnections = "least-connections",
        /// The lower load index of two drawn at random (Mitzenmacher, 2001).
        PowerOfTwo = "power-of-two",
        /// Of two drawn at random the one that would answer sooner, by [`AnswerTime`] for each request that it would have:
        /// the peak EWMA of Finagle and linkerd. It needs nothing from the nodes but their answers.
        Ewma = "ewma",
        /// The lowest load index at the last scan, without the requests sent since: all requests between two scans go to the
        /// same node. For comparison, as the front end of Vaidyanathan et al. 2006 does.
        LastLook = "last-look",
    }
}

impl Balance {
    /// Chooses a node for the next request; `None` if none is usable.
    ///
    /// `ticket` is a counter of the site that increases with each request; equal nodes take turns by it. `random` is 64
    /// fresh random bits. The rest of the site is searched only if no node of the sample is usable.
    pub fn choose(self, candidates: &impl Candidates, ticket: u64, random: u64) -> Option<usize> {
        let count = candidates.len();
        if count == 0 {
            return None;
        }
        let by_index = |candidate: usize| candidates.index(candidate).0;
        let by_in_flight = |candidate: usize| candidates.in_flight(candidate);
        let chosen = match self {
            Balance::RoundRobin => {
                let turn = (ticket % count as u64) as usize;
                candidates.usable(turn).then_some(turn)
            }
            Balance::LeastConnections => least_of_site(candidates, by_in_flight, ticket, random),
            Balance::Weighted => least_of_site(candidates, by_index, ticket, random),
            Balance::PowerOfTwo => least(candidates, two(count, random), by_index, ticket),
            Balance::Ewma => least(candidates, two(count, random), |one| ewma::cost(candidates, one), ticket),
            Balance::LastLook => {
                let by_look = |candidate: usize| candidates.index_at_look(candidate).0;
                least_of_site(candidates, by_look, ticket, random)
            }
        };
        // The search starts at a random place, so that a dead node's share is not all sent to the next one.
        chosen.or_else(|| {
            let start = below(mix(random), count);
            (start..count).chain(0..start).find(|candidate| candidates.usable(*candidate))
        })
    }
}

fn least_of_site(
    candidates: &impl Candidates,
    score: impl Fn(usize) -> u32,
    ticket: u64,
    random: u64,
) -> Option<usize> {
    let count = candidates.len();
    if count <= SCAN_MAX {
        least(candidates, 0..count, score, ticket)
    } else {
        least(candidates, sample(count, random), score, ticket)
    }
}

/// The usable candidate with the lowest score among `sampled`, at most [`SCAN_MAX`]; equals take turns.
fn least(
    candidates: &impl Candidates,
    sampled: impl Iterator<Item = usize>,
    score: impl Fn(usize) -> u32,
    ticket: u64,
) -> Option<usize> {
    let mut lowest = u32::MAX;
    let mut equals = [0; SCAN_MAX];
    let mut count = 0;
    for candidate in sampled {
        if !candidates.usable(candidate) {
            continue;
        }
        let score = score(candidate);
        if score < lowest {
            (lowest, count) = (score, 0);
        }
        if score == lowest {
            equals[count] = candidate;
            count += 1;
        }
    }
    if count == 0 { None } else { Some(equals[(ticket % count as u64) as usize]) }
}

/// Two distinct candidates, or the only one.
fn two(count: usize, random: u64) -> impl Iterator<Item = usize> {
    let first = below(random, count);
    let second = (first + 1 + below(mix(random), (count - 1).max(1))) % count;
    [first, second].into_iter().take(count)
}

/// One random candidate from each of [`SAMPLE`] equal parts.
fn sample(count: usize, random: u64) -> impl Iterator<Item = usize> {
    (0..SAMPLE).map(move |part| {
        let (start, end) = (part * count / SAMPLE, (part + 1) * count / SAMPLE);
        start + below(mix(random ^ part as u64), end - start)
    })
}

/// A number below `count`, from the upper half of `random` (Lemire 2016, without the rejection: for at most 16,383
/// candidates the bias is below four in a million).
fn below(random: u64, count: usize) -> usize {
    (((random >> 32) * count as u64) >> 32) as usize
}

/// The output function of SplitMix64 (Steele, Lea, Flood 2014), which turns random bits into other random bits.
pub(crate) fn mix(random: u64) -> u64 {
    sidelong_layout::mix64(random.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Candidates with an index, which is also their number of requests; `None` is not usable.
    struct Site(Vec<Option<u32>>);

    impl Candidates for Site {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn index(&self, candidate: usize) -> LoadIndex {
            LoadIndex(self.0[candidate].expect("only usable candidates are asked for their load"))
        }
        fn index_at_look(&self, candidate: usize) -> LoadIndex {
            self.index(candidate)
        }
        fn answer_us(&self, candidate: usize) -> Option<f64> {
            Some(f64::from(self.index(candidate).0))
        }
        fn in_flight(&self, candidate: usize) -> u32 {
            self.index(candidate).0
        }
        fn usable(&self, candidate: usize) -> bool {
            self.0[candidate].is_some()
        }
    }

    /// How often each candidate is chosen in `requests` requests.
    fn shares(balance: Balance, site: &Site, requests: u64) -> Vec<u64> {
        let mut shares = vec![0; site.len()];
        for ticket in 0..requests {
            shares[balance.choose(site, ticket, mix(ticket)).unwrap()] += 1;
        }
        shares
    }

    #[test]
    fn round_robin_takes_turns_whatever_the_load() {
        assert_eq!(shares(Balance::RoundRobin, &Site(vec![Some(9), Some(0), Some(5)]), 300), [100; 3]);
    }

    #[test]
    fn the_share_of_a_dead_node_goes_to_all() {
        let mut site = Site(vec![Some(0); 11]);
        site.0[4] = None;
        let shares = shares(Balance::RoundRobin, &site, 11_000);
        assert!(shares.iter().enumerate().all(|(i, n)| if i == 4 {
            *n == 0
        } else {
            (1_000..1_250).contains(n)
        }));
    }

    #[test]
    fn the_least_loaded_is_chosen() {
        let site = Site(vec![Some(7), Some(2), None, Some(3)]);
        assert_eq!(shares(Balance::Weighted, &site, 10), [0, 10, 0, 0]);
        assert_eq!(shares(Balance::LeastConnections, &site, 10), [0, 10, 0, 0]);
        assert_eq!(shares(Balance::Weighted, &Site(vec![Some(u32::MAX)]), 1), [1]);
    }

    #[test]
    fn equal_nodes_take_turns_wherever_they_stand() {
        let site = Site(vec![Some(1), Some(1), Some(5), Some(5), None, Some(1), Some(9)]);
        assert_eq!(shares(Balance::Weighted, &site, 300), [100, 100, 0, 0, 0, 100, 0]);
        assert_eq!(shares(Balance::LeastConnections, &site, 300), [100, 100, 0, 0, 0, 100, 0]);
    }

    #[test]
    fn of_two_drawn_the_lower_wins() {
        let shares = shares(Balance::PowerOfTwo, &Site((0..4).map(Some).collect()), 60_000);
        // The most loaded of 4 never wins; the least loaded wins each draw that it is in, 1 in 2.
        assert_eq!(shares[3], 0);
        assert!(shares[0].abs_diff(30_000) < 1_000 && shares[1].abs_diff(20_000) < 1_000, "{shares:?}");
    }

    #[test]
    fn the_two_differ_and_all_pairs_are_drawn() {
        let mut drawn = [[0u32; 5]; 5];
        for random in 0..20_000u64 {
            let pair: Vec<_> = two(5, mix(random)).collect();
            drawn[pair[0]][pair[1]] += 1;
        }
        for (a, row) in drawn.iter().enumerate() {
            for (b, count) in row.iter().enumerate() {
                assert!(
                    if a == b { *count == 0 } else { count.abs_diff(1_000) < 150 },
                    "({a}, {b}): {count}"
                );
            }
        }
        assert_eq!(two(1, u64::MAX).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn large_sites_are_sampled_evenly() {
        let mut looked_at = vec![0u32; 1_000];
        for random in 0..10_000u64 {
            sample(1_000, mix(random)).for_each(|candidate| looked_at[candidate] += 1);
        }
        assert!(looked_at.iter().all(|n| n.abs_diff(160) < 80));
    }

    #[test]
    fn sampling_finds_nodes_among_the_least_loaded() {
        let site = Site((0..1_000).map(Some).collect());
        let mean = (0..1_000u64)
            .map(|ticket| Balance::Weighted.choose(&site, ticket, mix(ticket)).unwrap())
            .sum::<usize>()
            / 1_000;
        assert!(mean < 1_000 / SAMPLE, "{mean}");
    }

    #[test]
    fn nobody_is_nobody() {
        for balance in Balance::ALL {
            assert_eq!(balance.choose(&Site(vec![]), 1, 2), None);
            assert_eq!(balance.choose(&Site(vec![None; 5]), 1, 2), None);
            assert_eq!(balance.choose(&Site(vec![None; 1_000]), 1, 2), None);
        }
    }

    proptest! {
        /// If any node is usable, a usable one is chosen.
        #[test]
        fn whoever_is_chosen_is_usable(
            site in proptest::collection::vec(proptest::option::weighted(0.2, 0u32..5), 1..200),
            (ticket, random) in any::<(u64, u64)>(),
        ) {
            let site = Site(site);
            for balance in Balance::ALL {
                let chosen = balance.choose(&site, ticket, random);
                prop_assert_eq!(chosen.is_some(), site.0.iter().any(Option::is_some));
                prop_assert!(chosen.is_none_or(|candidate| site.usable(candidate)));
                prop_assert_eq!(chosen, balance.choose(&site, ticket, random));
            }
        }

        #[test]
        fn small_sites_are_searched_in_full(
            site in proptest::collection::vec(0u32..1_000_000, 1..=SCAN_MAX),
            (ticket, random) in any::<(u64, u64)>(),
        ) {
            let least = site.iter().min().copied();
            let site = Site(site.into_iter().map(Some).collect());
            let chosen = Balance::Weighted.choose(&site, ticket, random).unwrap();
            prop_assert_eq!(site.0[chosen], least);
        }
    }
}
