//! Judges the rows: which configuration is faster, by what factor, and whether the target is reached.

use sidelong_config::Configuration;

use super::{PAYS, Row};
use crate::check::Check;
use crate::setup::{Layout, RATIO_SLACK};

const LONGEST: u64 = 16384;
const SHORTEST: u64 = 512;

/// The rows of an experiment so far.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Results {
    /// Rows of `rows.csv`: the paper's burst lengths.
    pub(super) rows: Vec<Row>,
    /// Rows of `shorter.csv`: the search below them.
    pub(super) shorter: Vec<Row>,
}

impl Results {
    pub(super) fn of(rows: &[Row]) -> Results {
        let (shorter, rows) = rows.iter().cloned().partition(|row| row.is_search);
        Results { rows, shorter }
    }

    /// All rows.
    pub(super) fn all(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().chain(&self.shorter)
    }

    pub(super) fn row(&self, layout: Layout, burst: u64, configuration: Configuration) -> Option<&Row> {
        self.all().find(|row| {
            row.sites == layout.label() && row.burst == burst && row.configuration == configuration
        })
    }

    /// Requests/s.
    pub(super) fn rate(&self, layout: Layout, burst: u64, configuration: Configuration) -> Option<f64> {
        self.row(layout, burst, configuration).map(|row| row.requests_per_s)
    }

    /// The ratio of the requests/s of `one` to those of `other`.
    pub(super) fn ratio(
        &self,
        layout: Layout,
        burst: u64,
        one: Configuration,
        other: Configuration,
    ) -> Option<f64> {
        let rate = |configuration| self.rate(layout, burst, configuration);
        rate(other).filter(|rate| *rate > 0.0).and_then(|other| Some(rate(one)? / other))
    }

    /// Reconfigured over rigid.
    pub(super) fn gain(&self, layout: Layout, burst: u64) -> Option<f64> {
        self.ratio(layout, burst, Configuration::Reconfigured, Configuration::Rigid)
    }

    /// Reconfigured over over-provisioned.
    pub(super) fn share(&self, layout: Layout, burst: u64) -> Option<f64> {
        self.ratio(layout, burst, Configuration::Reconfigured, Configuration::OverProvisioned)
    }

    /// The burst lengths that were measured, ascending: the paper's, or with the search all of them.
    pub(super) fn bursts(&self, layout: Layout, with_shorter: bool) -> Vec<u64> {
        let rows = self.rows.iter().chain(self.shorter.iter().filter(|_| with_shorter));
        let mut bursts: Vec<u64> =
            rows.filter(|row| row.sites == layout.label()).map(|row| row.burst).collect();
        bursts.sort_unstable();
        bursts.dedup();
        bursts
    }

    /// The shortest burst from which `holds` is true for it and all longer ones.
    pub(super) fn shortest_from(&self, layout: Layout, holds: impl Fn(u64) -> bool) -> Option<u64> {
        self.bursts(layout, true).into_iter().rev().take_while(|burst| holds(*burst)).last()
    }

    /// The shortest burst from which reconfigured has [`PAYS`] times the throughput of rigid.
    pub(super) fn shortest_that_pays(&self, layout: Layout) -> Option<u64> {
        self.shortest_from(layout, |burst| self.gain(layout, burst).is_some_and(|gain| gain >= PAYS))
    }

    /// The range of [`Results::ratio`]: the nodes allow no more, unless something else slowed one of the runs.
    fn possible_ratio(
        &self,
        layout: Layout,
        burst: u64,
        one: Configuration,
        other: Configuration,
    ) -> std::ops::RangeInclusive<f64> {
        let most = self.row(layout, burst, one).map(Row::possible_requests_per_s);
        let least = self.row(layout, burst, other).map(|row| row.ideal_requests_per_s);
        0.0..=most.zip(least).map_or(f64::INFINITY, |(most, least)| RATIO_SLACK * most / least)
    }

    /// Whether reconfigured is never below rigid over the paper's bursts, never falls, and comes close to over-provisioned.
    /// Runs of the same speed differ by a few percent, which is allowed.
    pub(super) fn has_the_papers_shape(&self, layout: Layout) -> bool {
        const SAME: f64 = 0.97;
        const CLOSE: f64 = 0.9;
        let bursts = self.bursts(layout, false);
        let rate = |burst| self.rate(layout, burst, Configuration::Reconfigured).unwrap_or(0.0);
        let above = bursts.iter().all(|&burst| self.gain(layout, burst).is_some_and(|gain| gain >= SAME));
        let rises = bursts.windows(2).all(|pair| rate(pair[1]) >= SAME * rate(pair[0]));
        let close =
            bursts.last().and_then(|&burst| self.share(layout, burst)).is_some_and(|share| share >= CLOSE);
        above && rises && close
    }

    /// Requests without an answer in all runs.
    pub(super) fn errors(&self) -> u64 {
        self.all().map(|row| row.errors).sum()
    }

    /// The targets, which are set for R10. The paper says of the other workloads that "the trend is similar".
    pub(super) fn checks(&self) -> Vec<Check> {
        use Layout::{Four, Three};
        let gains = Layout::ALL.iter().flat_map(|&layout| {
            self.bursts(layout, false).into_iter().filter_map(move |burst| self.gain(layout, burst))
        });
        use Configuration::{OverProvisioned, Reconfigured, Rigid};
        let gain = |layout: Layout, burst, target| {
            let what = format!("{} sites, bursts of {burst}: reconfigured / rigid", layout.sites());
            Check::at_least(what, target, self.gain(layout, burst)).possible(self.possible_ratio(
                layout,
                burst,
                Reconfigured,
                Rigid,
            ))
        };
        let share = format!("3 sites, bursts of {LONGEST}: reconfigured / over-provisioned");
        vec![
            gain(Three, LONGEST, 1.9),
            Check::at_least(share, 0.95, self.share(Three, LONGEST)).possible(self.possible_ratio(
                Three,
                LONGEST,
                Reconfigured,
                OverProvisioned,
            )),
            gain(Four, LONGEST, 2.4),
            gain(Three, SHORTEST, 1.6),
            gain(Four, SHORTEST, 1.6),
            Check::at_least(
                "the least reconfigured / rigid of the paper's bursts",
                1.0,
                gains.reduce(f64::min),
            ),
            Check::at_most("requests without an answer, all runs", 0.0, Some(self.errors() as f64)),
        ]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::setup::CONFIGURATIONS;
    use crate::up::Spread;

    pub(in crate::throughput) fn row(
        layout: Layout,
        burst: u64,
        configuration: Configuration,
        requests_per_s: f64,
    ) -> Row {
        let moves = configuration == Configuration::Reconfigured;
        Row {
            layout,
            is_search: false,
            sites: layout.label(),
            workload: "1k".into(),
            configuration,
            burst,
            requests_per_s,
            p50_ms: 12.5,
            p99_ms: 20.25,
            errors: 0,
            moves: if moves { 40 } else { 0 },
            requests: 12_288,
            seconds: 10.0,
            ideal_requests_per_s: requests_per_s * 1.05,
            step_to_first_request_ms: moves.then_some(Spread { count: 40, p50: 6.5, p99: 9.0, max: 11.0 }),
        }
    }

    /// The paper's shape: level with rigid at 512, near over-provisioned at 16384.
    pub(in crate::throughput) fn results() -> Results {
        let mut results = Results::default();
        for (i, burst) in super::super::BURSTS.into_iter().enumerate() {
            for (layout, rigid, best) in [(Layout::Three, 1000.0, 2300.0), (Layout::Four, 780.0, 1950.0)] {
                let reconfigured = rigid + (best - rigid) * i as f64 / 5.0;
                let rates = [rigid, reconfigured, best];
                results
                    .rows
                    .extend(CONFIGURATIONS.iter().zip(rates).map(|(&c, rate)| row(layout, burst, c, rate)));
            }
        }
        results
    }

    #[test]
    fn ratios_are_of_the_same_burst_and_layout() {
        let results = results();
        assert_eq!(results.gain(Layout::Three, 16384), Some(2.3));
        assert_eq!(results.share(Layout::Four, 16384), Some(1.0));
        assert_eq!(results.gain(Layout::Three, 512), Some(1.0));
        assert_eq!(results.gain(Layout::Three, 513), None);
    }

    #[test]
    fn the_shortest_burst_that_pays_is_looked_for_from_the_longest_down() {
        let mut results = results();
        // The gains are 1, 1.26, 1.52...
        assert_eq!(results.shortest_that_pays(Layout::Three), Some(2048));
        results.shorter.push(row(Layout::Three, 256, Configuration::Rigid, 1000.0));
        results.shorter.push(row(Layout::Three, 256, Configuration::Reconfigured, 2000.0));
        assert_eq!(results.shortest_that_pays(Layout::Three), Some(2048), "512 does not pay");
        results.rows.retain(|row| row.burst > 1024);
        assert_eq!(results.shortest_that_pays(Layout::Three), Some(256));
    }

    #[test]
    fn checks_say_plainly_what_holds() {
        let checks = results().checks();
        let verdicts: Vec<_> = checks.iter().map(Check::verdict).collect();
        assert_eq!(verdicts, ["met", "met", "met", "MISSED", "MISSED", "met", "met"]);
        let mut quick = results();
        quick.rows.retain(|row| row.burst == 512);
        assert_eq!(quick.checks()[0].verdict(), "not measured");
    }

    #[test]
    fn the_papers_shape_rises_from_rigid_to_over_provisioned() {
        assert!(results().has_the_papers_shape(Layout::Three));
        let with = |burst, rate| {
            let mut results = results();
            for row in &mut results.rows {
                if row.burst == burst && row.configuration == Configuration::Reconfigured {
                    row.requests_per_s = rate;
                }
            }
            results.has_the_papers_shape(Layout::Three)
        };
        assert!(!with(512, 900.0), "below rigid");
        assert!(!with(4096, 1050.0), "falls");
        assert!(!with(16384, 2040.0), "stays below over-provisioned");
        assert!(!Results::default().has_the_papers_shape(Layout::Three));
    }

    #[test]
    fn a_rate_of_nothing_has_no_ratio() {
        let mut results = Results::default();
        results.rows.push(row(Layout::Three, 512, Configuration::Rigid, 0.0));
        results.rows.push(row(Layout::Three, 512, Configuration::Reconfigured, 1.0));
        assert_eq!(results.gain(Layout::Three, 512), None);
    }
}
