//! A planned move and its reason.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_layout::{NodeId, Ownership, SiteId};

/// Why a site should get another node; the most urgent reason last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// The next move takes a better node from it, to a site whose load stayed high for T.
    Stage,
    /// Its load stayed high for T, or its target in danger.
    High,
    /// Requests wait, and all its nodes are dead.
    Stranded,
    /// Fewer of its nodes are not dead than its floor.
    Floor,
}

impl Need {
    /// All reasons, for metrics.
    pub const ALL: [Need; 4] = [Need::Stage, Need::High, Need::Stranded, Need::Floor];

    /// Its name in JSON and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Need::Stage => "stage",
            Need::High => "high",
            Need::Stranded => "stranded",
            Need::Floor => "floor",
        }
    }
}

/// Why a node can be spared; the best reason first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// It serves no site.
    Free,
    /// Its site has more nodes than its ceiling, because some came back to life.
    Surplus,
    /// Its site was idle for T, and stays so without it.
    Idle,
    /// Its site has work, but a lower priority than the receiver.
    LowerPriority,
    /// Its site has equal priority and clearly less load, and the greater load of the two falls. If one of them has a
    /// target, the donor's target stays met without the node.
    Pays,
    /// Its site has more than its floor while the receiver has less.
    Guarantee,
}

/// A site's figures at the scan from which a move was planned.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SiteFigures {
    /// Requests per worker, waiting ones included. `None` if requests wait and no node serves the site.
    pub load: Option<f64>,
    /// Nodes that serve it and are up.
    pub nodes: u32,
    /// Queue delay relative to its budget. `None` without a target, or if nothing is known.
    pub strain: Option<f64>,
    /// The part of its clients that is admitted, 0 to 1.
    pub admitted: f64,
    /// How long a receiver's load had been high, or a donor's low, in microseconds; 0 if it was not.
    pub lasted_us: u64,
}

/// Why a node moves.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// Why the receiver should get another node.
    pub need: Need,
    /// Why this node can be spared.
    pub source: Source,
    /// The receiver's figures.
    pub receiver: SiteFigures,
    /// The figures of the site that the node leaves; `None` for a free node.
    pub donor: Option<SiteFigures>,
}

impl Reason {
    /// The reason in words, with the names of the site that the node leaves and of its new one: "alpha 2.4 requests a
    /// worker for 2 ms, gamma idle".
    pub const fn told<'a>(&'a self, from: Option<&'a str>, to: &'a str) -> ReasonInWords<'a> {
        ReasonInWords { reason: self, from, to }
    }
}

/// See [`Reason::told`].
#[derive(Clone, Copy, Debug)]
pub struct ReasonInWords<'a> {
    reason: &'a Reason,
    from: Option<&'a str>,
    to: &'a str,
}

impl fmt::Display for ReasonInWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason { source, donor, .. } = self.reason;
        self.tell_need(f)?;
        match (source, self.from) {
            (Source::Free, _) | (_, None) => write!(f, ", the node free"),
            (Source::Surplus, Some(from)) => write!(f, ", {from} above its ceiling"),
            (Source::Idle, Some(from)) => write!(f, ", {from} idle"),
            (Source::LowerPriority, Some(from)) => write!(f, ", {from} of lower priority"),
            (Source::Guarantee, Some(from)) => write!(f, ", {from} above its floor"),
            (Source::Pays, Some(from)) => {
                write!(
                    f,
                    ", {from} {:.1} requests a worker",
                    donor.and_then(|donor| donor.load).unwrap_or(0.0)
                )
            }
        }
    }
}

impl ReasonInWords<'_> {
    fn tell_need(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReasonInWords { reason, to, .. } = self;
        let SiteFigures { load, nodes, strain, admitted, lasted_us } = reason.receiver;
        match (reason.need, strain, load) {
            (Need::Stage, ..) => return write!(f, "{to} to give a better node next"),
            (Need::Stranded, ..) | (Need::High, None, None) => {
                return write!(f, "{to} has requests and no node");
            }
            (Need::Floor, ..) => {
                let plural = if nodes == 1 { "" } else { "s" };
                return write!(f, "{to} has {nodes} node{plural} up, below its floor");
            }
            (Need::High, Some(_), _) if admitted < 1.0 => {
                write!(f, "{to} admits {:.0} % of its clients", admitted * 100.0)?;
            }
            (Need::High, Some(strain), _) => {
                write!(f, "{to} uses {:.0} % of its queue budget", strain * 100.0)?;
            }
            (Need::High, None, Some(load)) => write!(f, "{to} {load:.1} requests a worker")?,
        }
        match lasted_us {
            0 => Ok(()),
            1..1_000_000 => write!(f, " for {:.0} ms", (lasted_us as f64 / 1e3).max(1.0)),
            _ => write!(f, " for {:.1} s", lasted_us as f64 / 1e6),
        }
    }
}

/// One move, to be carried out by `reconfig`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MovePlan {
    /// The node.
    pub node: NodeId,
    /// The ownership on which the plan is based. If it has changed, the plan is void.
    pub expected: Ownership,
    /// The site that it will serve.
    pub to: SiteId,
    /// Why it moves.
    pub reason: Reason,
}

impl MovePlan {
    /// The site that the node leaves; `None` for a free node.
    pub const fn from(&self) -> Option<SiteId> {
        self.expected.site
    }
}

/// Saturating microseconds.
pub(super) fn micros(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| time.as_micros().try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: SiteFigures =
        SiteFigures { load: Some(2.4), nodes: 1, strain: None, admitted: 1.0, lasted_us: 2_000 };

    fn told(need: Need, source: Source, receiver: SiteFigures) -> String {
        let donor = SiteFigures { load: Some(0.62), lasted_us: 0, ..FIGURES };
        let reason = Reason { need, source, receiver, donor: (source != Source::Free).then_some(donor) };
        reason.told(reason.donor.map(|_| "gamma"), "alpha").to_string()
    }

    #[test]
    fn a_reason_is_told_in_words() {
        let strained = SiteFigures { strain: Some(0.83), lasted_us: 3_200_000, ..FIGURES };
        let rejecting = SiteFigures { admitted: 0.42, lasted_us: 0, ..strained };
        let stranded = SiteFigures { load: None, nodes: 0, ..FIGURES };
        for (need, source, receiver, expected) in [
            (Need::High, Source::Idle, FIGURES, "alpha 2.4 requests a worker for 2 ms, gamma idle"),
            (
                Need::High,
                Source::Pays,
                strained,
                "alpha uses 83 % of its queue budget for 3.2 s, gamma 0.6 requests a worker",
            ),
            (
                Need::High,
                Source::LowerPriority,
                rejecting,
                "alpha admits 42 % of its clients, gamma of lower priority",
            ),
            (Need::Stranded, Source::Free, stranded, "alpha has requests and no node, the node free"),
            (
                Need::Floor,
                Source::Guarantee,
                FIGURES,
                "alpha has 1 node up, below its floor, gamma above its floor",
            ),
            (
                Need::Stage,
                Source::Surplus,
                FIGURES,
                "alpha to give a better node next, gamma above its ceiling",
            ),
        ] {
            assert_eq!(told(need, source, receiver), expected);
        }
    }
}
