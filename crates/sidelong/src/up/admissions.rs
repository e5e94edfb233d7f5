//! Whom the edges turned away, as they tell it about once a second.

use std::collections::BTreeMap;

/// Of each site, in the cluster's order.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Admissions {
    sites: Vec<SiteAdmissions>,
}

/// Of one site.
#[derive(Clone, PartialEq, Debug, Default)]
struct SiteAdmissions {
    name: String,
    rejected: u64,
    /// By edge that turns requests away: how many in its last second, why, and whether the target is held there.
    edges: BTreeMap<String, (u64, String, Option<bool>)>,
}

impl Admissions {
    pub(super) fn new(sites: impl Iterator<Item = String>) -> Self {
        Admissions { sites: sites.map(|name| SiteAdmissions { name, ..Default::default() }).collect() }
    }

    /// An edge has told. Returns what is news: that it begins to turn requests of the site away, or no longer does.
    pub(super) fn take(
        &mut self,
        edge: &str,
        site: &str,
        rejected: u64,
        why: String,
        met: Option<bool>,
    ) -> Option<String> {
        let of = self.sites.iter_mut().find(|of| of.name == site)?;
        of.rejected += rejected;
        if rejected == 0 {
            of.edges.remove(edge)?;
            return Some(format!("{edge} lets in all for {site} again"));
        }
        let news = format!("{edge} turns requests for {site} away: {why}");
        let before = of.edges.insert(edge.to_owned(), (rejected, why, met));
        before.is_none().then_some(news)
    }

    /// An edge has ended: it turns nobody away any more.
    pub(super) fn ended(&mut self, edge: &str) {
        self.sites.iter_mut().for_each(|of| _ = of.edges.remove(edge));
    }

    /// Requests of the site turned away since the start.
    pub(super) fn rejected(&self, site: usize) -> u64 {
        self.sites[site].rejected
    }

    /// In the last second or so.
    pub(super) fn rejected_per_s(&self, site: usize) -> u64 {
        self.sites[site].edges.values().map(|(rejected, ..)| rejected).sum()
    }

    /// Whether an edge says that the site's target is missed.
    pub(super) fn is_missed(&self, site: usize) -> bool {
        self.sites[site].edges.values().any(|(_, _, met)| *met == Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_are_news_and_all_is_summed() {
        let mut admissions = Admissions::new(["alpha".to_owned(), "beta".to_owned()].into_iter());
        let mut take = |edge, rejected, met| {
            admissions.take(edge, "beta", rejected, "over-target".to_owned(), met).unwrap_or_default()
        };
        assert_eq!(take("edge1", 5, Some(true)), "edge1 turns requests for beta away: over-target");
        assert_eq!(take("edge1", 7, Some(true)), "");
        assert_eq!(take("edge2", 1, Some(false)), "edge2 turns requests for beta away: over-target");
        let figures =
            |of: &Admissions| [0, 1].map(|k| (of.rejected(k), of.rejected_per_s(k), of.is_missed(k)));
        assert_eq!(figures(&admissions), [(0, 0, false), (13, 8, true)]);
        let end = admissions.take("edge1", "beta", 0, "within-target".to_owned(), Some(true));
        assert_eq!(end.as_deref(), Some("edge1 lets in all for beta again"));
        admissions.ended("edge2");
        assert_eq!(figures(&admissions), [(0, 0, false), (13, 0, false)]);
        assert_eq!(admissions.take("edge1", "gamma", 1, String::new(), None), None);
    }
}
