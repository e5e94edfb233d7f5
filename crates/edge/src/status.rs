//! The state of an edge as one JSON object at `/status.json`. `sidelong status` and `sidelong top` parse it into the
//! type that the edge serialises.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sidelong_layout::{NodeId, SiteId, Time, valid};
use sidelong_policy::workers::Workers;
use sidelong_reconfig::SharedMembers;

use crate::clock;
use crate::documents::{DocumentStatus, Shared};
use crate::gate::Gate;
use crate::peers::Peers;
use crate::seen::ScanDisplay;
use crate::view::View;

/// The state of an edge. Units are in the names; counts are since the edge started.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Connections closed at accept, because no site would have admitted a request.
    pub closed_at_accept: u64,
    /// Whether the board cannot be read, so that no node moves.
    #[serde(default)]
    pub misses_board: bool,
    /// The other edges.
    pub peers: Vec<PeerStatus>,
    /// Every site, by slot.
    pub sites: Vec<SiteStatus>,
    /// Every node, by slot.
    pub nodes: Vec<NodeStatus>,
    /// What it answers from nodes' memory, if nodes keep documents.
    #[serde(default)]
    pub documents: Option<DocumentStatus>,
}

impl Status {
    /// The status in an answer of `/status.json`; `None` if that is another answer, or another version's.
    pub fn from_answer(answer: &str) -> Option<Self> {
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.starts_with("HTTP/1.1 200 ").then(|| serde_json::from_str(body).ok())?
    }
}

/// Another edge.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Whether its requests and verdicts are known, and so count.
    pub heard: bool,
}

/// A site. Without admission control all fields but the name are empty.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SiteStatus {
    /// Its name.
    pub name: String,
    /// Requests admitted, by reason.
    pub admitted: BTreeMap<String, u64>,
    /// Requests rejected, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// The share of clients that was admitted over about the last second.
    pub admitted_ratio: Option<f64>,
    /// Whether the edge knows nothing of the site itself and follows another edge's verdict.
    pub verdict_lent: bool,
    /// How long a request waits at a node.
    pub queue_delay_ms: Option<f64>,
    /// How long a request may wait so that the target is met.
    pub queue_budget_ms: Option<f64>,
    /// Whether the target is met.
    pub target_met: Option<bool>,
    /// Successful answers, if the target is a response time.
    pub answers: u64,
    /// Late ones among them.
    pub late: u64,
}

/// A node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// The site that it serves.
    pub site: Option<String>,
    /// What it does: `serving`, `draining`, `changing`, `held`, `pinned`, `free`; empty while it is not known.
    #[serde(default)]
    pub state: String,
    /// Whether a request has failed there, and none has succeeded since.
    #[serde(default)]
    pub is_failing: bool,
    /// Unanswered requests there, of this edge and those that it hears.
    pub unanswered: u64,
    /// Connections to its server, if its record counts them.
    #[serde(default)]
    pub connections: Option<u32>,
    /// Connections or requests that wait for a worker.
    #[serde(default)]
    pub queued: Option<u32>,
    /// Connections to its foreign server of others than the edges.
    #[serde(default)]
    pub bypassing: u32,
    /// Whether they keep the node from moving.
    #[serde(default)]
    pub is_shared: bool,
    /// Requests that its foreign server handles at a time, as learned.
    #[serde(default)]
    pub learned_workers: Option<u32>,
    /// Whether requests wait for its workers; `None` if that was not learned.
    #[serde(default)]
    pub is_bound: Option<bool>,
}

/// The parts of an edge that know its state, read at each request.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) view: Arc<View>,
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) peers: Option<Arc<Peers>>,
    pub(crate) seen: Arc<ScanDisplay>,
    /// Who is in the cluster.
    pub(crate) members: Arc<SharedMembers>,
    /// What is counted of documents, if nodes keep any.
    pub(crate) documents: Option<Arc<Shared>>,
}

impl State {
    /// Whether some site has a node that can be expected to answer.
    pub(crate) fn can_serve(&self, now: Time) -> bool {
        let (view, look) = (&self.view, self.seen.last());
        view.nodes().any(|node| {
            let serves = view.ownership(node).and_then(|ownership| ownership.serving_site()).is_some();
            let seen = &look.nodes[node.index()];
            serves
                && match self.seen.fresh(seen, now) {
                    Some(_) => view.is_up(node, now),
                    // Its record went stale while other nodes could be read: it is dead or hangs.
                    None if seen.record_at.is_some() && !view.is_stale(now) => false,
                    // A node that failed is tried by requests, which may no longer come.
                    None => view.is_proven(node, now),
                }
        })
    }

    /// Whether all nodes have been read.
    pub(crate) fn is_complete(&self) -> bool {
        self.members.load().nodes.entries().all(|(node, _)| self.view.is_known(NodeId::new(node)))
    }

    /// The current state.
    pub(crate) fn status(&self) -> Status {
        let (now, view) = (clock::now(), &self.view);
        let peers = self.peers.iter().flat_map(|peers| peers.heard()).map(|(name, heard_at, _)| PeerStatus {
            name,
            heard: heard_at.is_some_and(|at| now.since(at) <= view.stale()),
        });
        let (look, members) = (self.seen.last(), self.members.load());
        let node = |(index, name): (usize, &String)| {
            let (node, seen) = (NodeId::new(index), &look.nodes[index]);
            let hot = self.seen.fresh(seen, now);
            let counted = hot.filter(|hot| hot.valid & (valid::ORIGIN | valid::CONNECTIONS) != 0);
            let foreign = hot.filter(|hot| hot.valid & valid::ORIGIN == 0);
            let (learned_workers, is_bound) = match seen.workers {
                Workers::Unknown => (None, None),
                Workers::Learned(workers) => (Some(workers), Some(true)),
                Workers::NotBound => (None, Some(false)),
            };
            let ownership = view.ownership(node);
            let site = ownership.and_then(|ownership| ownership.serving_site());
            NodeStatus {
                name: name.clone(),
                state: ownership.map_or_else(String::new, |ownership| ownership.state.word().to_owned()),
                site: site.and_then(|site| members.sites.get(site.index()).cloned()),
                is_failing: !view.is_proven(node, now),
                unanswered: view.traffic(node, now).in_flight.into(),
                connections: counted.map(|hot| hot.connections),
                queued: counted.map(|hot| hot.queued),
                bypassing: hot.and_then(|hot| hot.bypassing()).unwrap_or(0),
                is_shared: foreign.is_some_and(|hot| hot.valid & valid::SHARED != 0),
                learned_workers,
                is_bound,
            }
        };
        Status {
            closed_at_accept: self.gate.as_ref().map_or(0, |gate| gate.closed()),
            misses_board: look.boards.iter().flatten().all(|read_at| now.since(*read_at) > view.stale()),
            peers: peers.collect(),
            sites: members
                .sites
                .entries()
                .map(|(site, name)| self.site_status(SiteId::new(site), name))
                .collect(),
            nodes: members.nodes.entries().map(node).collect(),
            documents: self.documents.as_deref().map(Shared::status),
        }
    }

    fn site_status(&self, site: SiteId, name: &str) -> SiteStatus {
        let name = name.to_owned();
        let Some(gate) = &self.gate else { return SiteStatus { name, ..SiteStatus::default() } };
        let now = clock::now();
        let [delay_s, budget_s, met] = gate.outlook(site);
        let [late, answers] = gate.late(site).unwrap_or_default();
        let by_reason = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| {
            counts.map(|(reason, count)| (reason.to_owned(), count)).collect()
        };
        SiteStatus {
            name,
            admitted: by_reason(&mut gate.admitted(site)),
            rejected: by_reason(&mut gate.rejected(site)),
            admitted_ratio: Some(gate.ratio(site)),
            verdict_lent: gate.is_lent(site, now, self.view.is_stale(now)),
            queue_delay_ms: delay_s.map(|seconds| seconds * 1e3),
            queue_budget_ms: budget_s.map(|seconds| seconds * 1e3),
            target_met: met.map(|met| met > 0.0),
            answers,
            late,
        }
    }
}
