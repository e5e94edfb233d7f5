//! Requests that the edges rejected, as their events report about once a second.

use std::collections::BTreeMap;

/// What the edges rejected, by site, in the cluster's order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Admissions {
    sites: Vec<SiteAdmissions>,
}

/// One site.
#[derive(Clone, PartialEq, Debug, Default)]
struct SiteAdmissions {
    name: String,
    rejected: u64,
    /// By edge, its last report.
    edges: BTreeMap<String, Told>,
}

/// An edge's report on a site.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Told {
    /// Requests rejected in its last second.
    pub(super) rejected: u64,
    /// The reason for most of them.
    pub(super) why: String,
    /// Whether the target is met there, if that is known.
    pub(super) met: Option<bool>,
}

impl Admissions {
    pub(super) fn new(sites: impl Iterator<Item = String>) -> Self {
        Admissions { sites: sites.map(|name| SiteAdmissions { name, ..Default::default() }).collect() }
    }

    /// Takes an edge's report. Returns a message if the edge starts to reject requests of the site, or stops.
    pub(super) fn take(&mut self, edge: &str, site: &str, told: Told) -> Option<String> {
        let of = self.sites.iter_mut().find(|of| of.name == site)?;
        of.rejected += told.rejected;
        let news = match told.rejected {
            0 => format!("{edge} admits all requests for {site} again"),
            _ => format!("{edge} rejects requests for {site}: {}", told.why),
        };
        let is_rejecting = told.rejected > 0;
        let before = of.edges.insert(edge.to_owned(), told);
        (is_rejecting != before.is_some_and(|before| before.rejected > 0)).then_some(news)
    }

    /// An edge has ended, and rejects nothing any more.
    pub(super) fn ended(&mut self, edge: &str) {
        self.sites.iter_mut().for_each(|of| _ = of.edges.remove(edge));
    }

    /// Requests of the site rejected since the start.
    pub(super) fn rejected(&self, site: usize) -> u64 {
        self.sites[site].rejected
    }

    /// Requests rejected in about the last second.
    pub fn rejected_per_s(&self, site: usize) -> u64 {
        self.sites[site].edges.values().map(|told| told.rejected).sum()
    }

    /// The reason for most of these, if there are any.
    pub fn why(&self, site: usize) -> Option<&str> {
        let edges = self.sites[site].edges.values().filter(|told| told.rejected > 0);
        edges.max_by_key(|told| told.rejected).map(|told| told.why.as_str())
    }

    /// Whether an edge reports that the site's target is missed.
    pub fn is_missed(&self, site: usize) -> bool {
        self.sites[site].edges.values().any(|told| told.met == Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_are_news_and_all_is_summed() {
        let mut admissions = Admissions::new(["alpha".to_owned(), "beta".to_owned()].into_iter());
        let told = |rejected, why: &str, met| Told { rejected, why: why.to_owned(), met };
        let mut take = |edge, rejected, why, met| {
            admissions.take(edge, "beta", told(rejected, why, met)).unwrap_or_default()
        };
        assert_eq!(
            take("edge1", 5, "over-target", Some(true)),
            "edge1 rejects requests for beta: over-target"
        );
        assert_eq!(take("edge1", 7, "over-target", Some(true)), "");
        assert_eq!(take("edge2", 1, "greedy", Some(false)), "edge2 rejects requests for beta: greedy");
        let figures = |of: &Admissions| {
            [0, 1].map(|k| {
                (of.rejected(k), of.rejected_per_s(k), of.why(k).map(str::to_owned), of.is_missed(k))
            })
        };
        let nothing = (0, 0, None, false);
        let beta = (13, 8, Some("over-target".to_owned()), true);
        assert_eq!(figures(&admissions), [nothing.clone(), beta]);
        let end = admissions.take("edge1", "beta", told(0, "within-target", Some(true)));
        assert_eq!(end.as_deref(), Some("edge1 admits all requests for beta again"));
        admissions.ended("edge2");
        assert_eq!(figures(&admissions), [nothing, (13, 0, None, false)]);
        assert_eq!(admissions.take("edge1", "gamma", told(1, "", None)), None);
    }

    #[test]
    fn a_target_may_be_missed_while_all_are_let_in() {
        let mut admissions = Admissions::new(["alpha".to_owned()].into_iter());
        let told = |met| Told { rejected: 0, why: "within-target".to_owned(), met: Some(met) };
        for met in [false, false, true] {
            assert_eq!(admissions.take("edge1", "alpha", told(met)), None, "nothing was rejected");
            assert_eq!(admissions.is_missed(0), !met);
        }
    }
}
