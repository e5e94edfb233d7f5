//! `sidelong status`: requests admitted and rejected for each site, why, and whether the targets are met, as the edges
//! report at their admin endpoints.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::Serialize;
use sidelong_config::{AdmissionRule, Cluster, Configuration, Node, Site, Target};
use sidelong_edge::{PeerStatus, SiteStatus, Status};
use sidelong_fabric::RunDirectory;

use crate::cli::StatusArgs;
use crate::failure::{Failure, say};
use crate::history::{self, Holder};
use crate::parts;
use crate::top;

/// Longest wait for an edge to connect, to take the request, and to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Edges asked at a time.
const ASKED_AT_ONCE_MAX: usize = 64;
/// Longest answer in bytes: 16,383 nodes take about 1 MB.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Each edge's answer, or why there is none.
type Asked<'a> = Vec<(&'a str, Result<Status, Problem>)>;

/// Why an edge gave no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Problem {
    /// Worded to follow its name.
    said: String,
    /// Whether it may live and hang. Then nobody knows its requests at the nodes.
    is_silent: bool,
}

impl From<String> for Problem {
    fn from(said: String) -> Self {
        Problem { said, is_silent: false }
    }
}

pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let file = match &args.config {
        Some(file) => file.clone(),
        None => top::running()?,
    };
    let cluster = parts::cluster(&file, None)?;
    let asked = ask(&cluster);
    if asked.iter().all(|(_, answer)| answer.is_err()) {
        let why =
            asked.iter().filter_map(|(name, answer)| Some(format!("{name} {}", answer.as_ref().err()?.said)));
        let why = why.collect::<Vec<_>>().join(", ");
        return Err(Failure::new(format!("no edge of {} answers: {why}", file.display())));
    }
    let mut report = Report::new(&cluster, &asked);
    let fronts = cluster.fronts.iter().map(|front| &*front.name);
    let movers = fronts.chain(cluster.nodes.iter().map(|node| &*node.name));
    report.name_holders(&history::holders(&RunDirectory::at(&cluster.run_dir), movers));
    say(if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.plain() })
}

/// Admission for a site in short.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Standing {
    /// The share of clients that is admitted, at the edge that admits least; `None` if no edge reports.
    pub(crate) admitted_ratio: Option<f64>,
    /// Requests rejected since the edges started, in total and by reason.
    pub(crate) rejected: u64,
    pub(crate) rejected_by: BTreeMap<String, u64>,
    /// Whether every edge that knows reports that the target is met.
    pub(crate) met: Option<bool>,
}

/// What `top` shows of the edges that answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Standings {
    /// Admission for each site; empty if no requests are ever rejected.
    pub(crate) sites: Vec<Standing>,
    /// By node, how many requests its foreign server handles at a time, as learned.
    pub(crate) learned_workers: Vec<Option<u32>>,
}

/// Asks all edges for it.
pub(crate) fn standings(cluster: &Cluster) -> Standings {
    let standing = |site: SiteReport<'_>| Standing {
        admitted_ratio: site.admitted_ratio,
        rejected: site.rejected,
        rejected_by: site.rejected_by,
        met: site.met,
    };
    let report = Report::new(cluster, &ask(cluster));
    let sites = report.sites.into_iter().filter(|_| cluster.has_admission());
    Standings {
        sites: sites.map(standing).collect(),
        learned_workers: report.nodes.iter().map(|node| node.learned_workers).collect(),
    }
}

/// Asks every edge.
fn ask(cluster: &Cluster) -> Asked<'_> {
    let some = |edges: &[sidelong_config::Front]| -> Vec<_> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = edges.iter().map(|edge| scope.spawn(|| ask_one(edge.admin))).collect();
            let died = || Err("could not be asked".to_owned().into());
            asked.into_iter().map(|answer| answer.join().unwrap_or_else(|_| died())).collect()
        })
    };
    let names = cluster.fronts.iter().map(|front| front.name.as_str());
    names.zip(cluster.fronts.chunks(ASKED_AT_ONCE_MAX).flat_map(some)).collect()
}

/// The report over all edges. Units are in the names.
#[derive(PartialEq, Debug, Serialize)]
struct Report<'a> {
    cluster: &'a str,
    rule: AdmissionRule,
    edges: Vec<EdgeReport<'a>>,
    /// Connections closed at accept.
    closed_at_accept: u64,
    sites: Vec<SiteReport<'a>>,
    nodes: Vec<NodeReport<'a>>,
}

#[derive(PartialEq, Debug, Serialize)]
struct EdgeReport<'a> {
    name: &'a str,
    /// Why it did not answer; it is then in no sum.
    problem: Option<String>,
    /// Whether its silence keeps nodes from moving: it may live, and have requests at them.
    holds_nodes: bool,
    /// The other edges that it hears, that is, whose requests and verdicts it knows, and those that it does not hear.
    hears: Vec<String>,
    misses: Vec<String>,
}

#[derive(PartialEq, Debug, Serialize)]
struct NodeReport<'a> {
    name: &'a str,
    site: Option<String>,
    /// `serving`, `draining`, `changing`, `held`, `pinned` or `free`; `None` if no edge knows.
    state: Option<String>,
    /// Who held or pinned it, and when, if this machine's history tells.
    by: Option<String>,
    since: Option<String>,
    /// Why it could not change sites and so is held or pinned, if this machine's history tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    /// Whether an edge knows that its server has failed, and has not answered since.
    is_failing: bool,
    /// Unanswered requests there, of all edges: the highest count that an edge reports.
    unanswered: Option<u64>,
    /// Connections to its server, and those, or requests, that wait for a worker; if its record counts them.
    connections: Option<u32>,
    queued: Option<u32>,
    /// Connections to its foreign server of others than the edges, and whether they keep the node from moving.
    strangers: u32,
    is_shared: bool,
    /// Requests that its server handles at a time, by the file and as learned.
    workers: Option<u16>,
    learned_workers: Option<u32>,
    /// Whether requests wait for its workers; `None` if that was not learned.
    is_bound: Option<bool>,
    #[serde(skip)]
    is_foreign: bool,
}

#[derive(PartialEq, Debug, Serialize)]
struct SiteReport<'a> {
    name: &'a str,
    target_response_ms_p99: Option<f64>,
    target_queue_ms_max: Option<f64>,
    /// Whether every edge that knows reports that the target is met.
    met: Option<bool>,
    /// Requests since the edges started, in all and by reason.
    admitted: u64,
    admitted_by: BTreeMap<String, u64>,
    rejected: u64,
    rejected_by: BTreeMap<String, u64>,
    /// The share of clients admitted over about the last second, at the edge that admits least.
    admitted_ratio: Option<f64>,
    queue_delay_ms: Option<f64>,
    queue_budget_ms: Option<f64>,
    /// Unanswered requests at its nodes, of all edges.
    unanswered: Option<u64>,
    /// Whether an edge that knows nothing of the site uses another edge's verdict.
    verdict_lent: bool,
    /// Successful answers, and the late ones among them.
    answers: u64,
    late: u64,
}

impl<'a> Report<'a> {
    fn new(cluster: &'a Cluster, asked: &Asked<'a>) -> Self {
        let statuses: Vec<_> = asked.iter().filter_map(|(_, answer)| answer.as_ref().ok()).collect();
        let nodes: Vec<_> = cluster.nodes.iter().map(|node| NodeReport::new(node, &statuses)).collect();
        let moves = cluster.reconfig.configuration == Configuration::Reconfigured;
        Report {
            cluster: &cluster.name,
            rule: cluster.admission.rule,
            edges: asked.iter().map(|asked| EdgeReport::new(asked, moves)).collect(),
            closed_at_accept: sum(statuses.iter().map(|status| status.closed_at_accept)),
            sites: cluster.sites.iter().map(|site| SiteReport::new(site, &nodes, &statuses)).collect(),
            nodes,
        }
    }

    fn plain(&self) -> String {
        let answer = self.edges.iter().filter(|edge| edge.problem.is_none()).count();
        let mut text = format!("{}: {answer} of {} edges answer", self.cluster, self.edges.len());
        for edge in &self.edges {
            if let Some(problem) = &edge.problem {
                text += &format!(", {} {problem}", edge.name);
                if edge.holds_nodes {
                    text += " (it keeps nodes from moving until it answers or ends)";
                }
            }
            if !edge.misses.is_empty() {
                text += &format!(", {} does not hear {}", edge.name, edge.misses.join(" and "));
            }
        }
        let is_off = self.sites.iter().all(|site| site.admitted_ratio.is_none());
        text += &match self.rule {
            AdmissionRule::None if is_off => {
                "; all requests are admitted: admission.rule is \"none\"\n".to_owned()
            }
            _ if is_off => {
                "; all requests are admitted: no site has a target (docs/admission.md)\n".to_owned()
            }
            _ => format!("; {} connections closed at accept\n", self.closed_at_accept),
        };
        text.push('\n');
        let head = [
            "site",
            "target",
            "met",
            "admits",
            "admitted",
            "rejected",
            "in flight",
            "delay ms",
            "budget ms",
            "late",
            "reasons",
        ];
        let rows = self.sites.iter().map(SiteReport::row).collect();
        // The reasons come last, as their length has no bound.
        top::table(&mut text, &head, rows, 3);
        let by_hand = self.nodes.iter().filter_map(NodeReport::by_hand).collect::<Vec<_>>();
        if !by_hand.is_empty() {
            text += &format!("\n{}\n", by_hand.join("\n"));
        }
        let foreign = self.nodes.iter().filter(|node| node.is_foreign);
        let rows: Vec<_> = foreign.map(NodeReport::row).collect();
        if !rows.is_empty() {
            text.push('\n');
            top::table(&mut text, &NodeReport::HEAD, rows, 3);
        }
        for node in self.nodes.iter().filter(|node| node.is_failing) {
            text += &format!("{} does not answer: requests to it have failed\n", node.name);
        }
        for node in self.nodes.iter().filter(|node| node.strangers > 0) {
            let (name, count) = (node.name, node.strangers);
            let made = if count == 1 { "connection" } else { "connections" };
            let why =
                if node.is_shared { ": it does not move, unless the file says exclusive = true" } else { "" };
            text += &format!("{name} has {count} {made} that no edge made{why}\n");
        }
        // Names and reasons are as edges say them.
        text.retain(|character| character == '\n' || !character.is_control());
        text
    }

    fn name_holders(&mut self, holders: &BTreeMap<String, Holder>) {
        for node in self.nodes.iter_mut().filter(|node| node.is_kept()) {
            if let Some(Holder { by, since, fault }) = holders.get(node.name) {
                (node.by, node.since) = (Some(by.clone()), Some(since.clone()));
                node.fault.clone_from(fault);
            }
        }
    }
}

impl<'a> EdgeReport<'a> {
    fn new((name, answer): &(&'a str, Result<Status, Problem>), moves: bool) -> Self {
        let peers = answer.iter().flat_map(|status| &status.peers);
        let (hears, misses): (Vec<_>, Vec<_>) = peers.partition(|peer| peer.heard);
        let names = |peers: Vec<&PeerStatus>| peers.into_iter().map(|peer| peer.name.clone()).collect();
        EdgeReport {
            name,
            problem: answer.as_ref().err().map(|problem| problem.said.clone()),
            holds_nodes: moves && answer.as_ref().is_err_and(|problem| problem.is_silent),
            hears: names(hears),
            misses: names(misses),
        }
    }
}

impl<'a> NodeReport<'a> {
    const HEAD: [&'static str; 6] = ["node", "site", "workers", "in flight", "connections", "queued"];

    fn new(node: &'a Node, statuses: &[&Status]) -> Self {
        let name = &node.name;
        let of = || statuses.iter().filter_map(|status| status.nodes.iter().find(|node| node.name == *name));
        NodeReport {
            name,
            site: of().find_map(|node| node.site.clone()),
            state: of().map(|node| &node.state).find(|state| !state.is_empty()).cloned(),
            by: None,
            since: None,
            fault: None,
            is_failing: of().any(|node| node.is_failing),
            unanswered: of().map(|node| node.unanswered).max(),
            connections: of().filter_map(|node| node.connections).max(),
            queued: of().filter_map(|node| node.queued).max(),
            strangers: of().map(|node| node.strangers).max().unwrap_or(0),
            is_shared: of().any(|node| node.is_shared),
            workers: node.workers,
            learned_workers: of().filter_map(|node| node.learned_workers).max(),
            // Of two edges, the one that has seen requests wait knows more.
            is_bound: of().filter_map(|node| node.is_bound).max(),
            is_foreign: node.is_foreign,
        }
    }

    fn row(&self) -> Vec<String> {
        let or_none = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let workers = match (self.learned_workers, self.is_bound) {
            (Some(workers), _) => format!("{workers} (learned)"),
            (None, Some(false)) => "not bound".to_owned(),
            (None, _) => or_none(self.workers.map(u64::from)),
        };
        vec![
            self.name.to_owned(),
            self.site.clone().unwrap_or_else(|| "-".to_owned()),
            workers,
            or_none(self.unanswered),
            or_none(self.connections.map(u64::from)),
            or_none(self.queued.map(u64::from)),
        ]
    }
}

impl NodeReport<'_> {
    /// Whether only a person moves it.
    fn is_kept(&self) -> bool {
        matches!(self.state.as_deref(), Some("held" | "pinned"))
    }

    /// A line on a node that only a person moves.
    fn by_hand(&self) -> Option<String> {
        let state = self.state.as_deref().filter(|_| self.is_kept())?;
        let at = self.site.as_ref().map_or_else(String::new, |site| format!(" at {site}"));
        let by = self.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
        let since =
            self.since.as_ref().map_or_else(String::new, |at| format!(" since {}", at.replace('T', " ")));
        let fault = self.fault.as_ref().map_or_else(String::new, |fault| format!(", because {fault}"));
        let name = self.name;
        Some(format!("{name} is {state}{at}{by}{since}{fault}; `sidelong resume {name}` ends it"))
    }
}

impl<'a> SiteReport<'a> {
    fn new(site: &'a Site, nodes: &[NodeReport<'_>], statuses: &[&Status]) -> Self {
        let of: Vec<&SiteStatus> = statuses
            .iter()
            .filter_map(|status| status.sites.iter().find(|status| status.name == site.name))
            .collect();
        let by_reason = |counts: fn(&SiteStatus) -> &BTreeMap<String, u64>| {
            let mut by = BTreeMap::<String, u64>::new();
            for (reason, count) in
                of.iter().flat_map(|status| counts(status)).filter(|(_, count)| **count > 0)
            {
                let sum = by.entry(reason.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
            by
        };
        let values =
            |value: fn(&SiteStatus) -> Option<f64>| of.iter().filter_map(move |status| value(status));
        let ms = |time: Duration| time.as_nanos() as f64 / 1e6;
        let (admitted_by, rejected_by) =
            (by_reason(|status| &status.admitted), by_reason(|status| &status.rejected));
        SiteReport {
            name: &site.name,
            target_response_ms_p99: match site.target {
                Some(Target::ResponseP99(time)) => Some(ms(time)),
                _ => None,
            },
            target_queue_ms_max: match site.target {
                Some(Target::Queue(time)) => Some(ms(time)),
                _ => None,
            },
            met: of.iter().filter_map(|status| status.target_met).min(),
            admitted: sum(admitted_by.values().copied()),
            admitted_by,
            rejected: sum(rejected_by.values().copied()),
            rejected_by,
            admitted_ratio: values(|status| status.admitted_ratio).reduce(f64::min),
            queue_delay_ms: values(|status| status.queue_delay_ms).reduce(f64::max),
            queue_budget_ms: values(|status| status.queue_budget_ms).reduce(f64::min),
            unanswered: nodes
                .iter()
                .filter(|node| node.site.as_ref() == Some(&site.name))
                .filter_map(|node| node.unanswered)
                .reduce(u64::saturating_add),
            verdict_lent: of.iter().any(|status| status.verdict_lent),
            answers: sum(of.iter().map(|status| status.answers)),
            late: sum(of.iter().map(|status| status.late)),
        }
    }

    fn row(&self) -> Vec<String> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let target = match (self.target_response_ms_p99, self.target_queue_ms_max) {
            (Some(ms), _) => format!("p99 {ms} ms"),
            (_, Some(ms)) => format!("queue {ms} ms"),
            _ => "-".to_owned(),
        };
        let why = |by: &BTreeMap<String, u64>| {
            by.iter().map(|(why, count)| format!("{why} {count}")).collect::<Vec<_>>().join(", ")
        };
        let is_known = self.admitted_ratio.is_some();
        let late = (self.answers > 0).then(|| 100.0 * self.late as f64 / self.answers as f64);
        vec![
            self.name.to_owned(),
            target,
            or_none(self.met.map(|met| if met { "yes" } else { "no" }.to_owned())),
            or_none(self.admitted_ratio.map(|ratio| format!("{:.1} %", 100.0 * ratio))),
            or_none(is_known.then(|| self.admitted.to_string())),
            or_none(is_known.then(|| self.rejected.to_string())),
            or_none(self.unanswered.map(|count| count.to_string())),
            or_none(self.queue_delay_ms.map(|ms| format!("{ms:.1}"))),
            or_none(self.queue_budget_ms.map(|ms| format!("{ms:.1}"))),
            or_none(late.map(|percent| format!("{percent:.2} %"))),
            why(&self.rejected_by),
        ]
    }
}

/// A sum of what edges say, whatever they say.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The status in an HTTP answer, if it has one.
fn parse(answer: &str) -> Option<Status> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200 ").then(|| serde_json::from_str(body).ok())?
}

/// The status of the edge at `admin`, or why there is none, worded to follow its name.
fn ask_one(admin: Option<SocketAddr>) -> Result<Status, Problem> {
    let admin = admin.ok_or_else(|| "has no admin address in the cluster file".to_owned())?;
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&admin, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let request = format!("GET /status.json HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let said = format!("does not answer at {admin} within {ANSWER_MAX:?}");
            Problem { said, is_silent: true }
        }
        _ => format!("does not answer at {admin}: {error}").into(),
    })?;
    parse(&answer).ok_or_else(|| {
        format!("has no status at {admin}: is that the admin address of an edge of this version?").into()
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use sidelong_config::ClusterFile;
    use sidelong_edge::NodeStatus;

    use super::*;

    fn counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
        counts.iter().map(|(reason, count)| (reason.to_string(), *count)).collect()
    }

    fn peer(name: &str, heard: bool) -> PeerStatus {
        PeerStatus { name: name.to_owned(), heard }
    }

    fn first() -> Status {
        let node = |name: &str, unanswered| NodeStatus {
            name: name.to_owned(),
            site: Some("alpha".to_owned()),
            state: "serving".to_owned(),
            unanswered,
            ..NodeStatus::default()
        };
        let alpha = SiteStatus {
            name: "alpha".to_owned(),
            admitted: counts(&[("within-target", 7), ("over-target", 5)]),
            rejected: counts(&[("over-target", 90), ("greedy", 0)]),
            admitted_ratio: Some(0.25),
            queue_delay_ms: Some(20.0),
            target_met: Some(true),
            answers: 100,
            late: 1,
            ..SiteStatus::default()
        };
        let beta = SiteStatus {
            name: "beta".to_owned(),
            admitted_ratio: Some(1.0),
            verdict_lent: true,
            ..SiteStatus::default()
        };
        Status {
            closed_at_accept: 3,
            peers: vec![peer("edge2", false)],
            sites: vec![alpha, beta],
            nodes: vec![node("n1", 4), node("n2", 3)],
        }
    }

    fn cluster() -> Cluster {
        let mut file = ClusterFile::demo();
        file.sites[0].response_p99 = Some(Duration::from_millis(50));
        file.cluster().unwrap()
    }

    #[test]
    fn edges_are_summed_up_and_the_worst_is_reported() {
        let cluster = cluster();
        let mut second = first();
        second.sites[0].admitted_ratio = Some(0.5);
        second.sites[0].target_met = Some(false);
        second.nodes[0].unanswered = 9;
        second.peers = vec![peer("edge1", true)];
        let asked = vec![("edge1", Ok(first())), ("edge2", Ok(second))];
        let report = Report::new(&cluster, &asked);
        let alpha = &report.sites[0];
        assert_eq!((alpha.admitted, alpha.rejected, report.closed_at_accept), (24, 180, 6));
        assert_eq!(alpha.rejected_by, BTreeMap::from([("over-target".to_owned(), 180)]));
        assert_eq!(
            (alpha.admitted_ratio, alpha.met, alpha.queue_delay_ms),
            (Some(0.25), Some(false), Some(20.0))
        );
        assert_eq!((alpha.late, alpha.answers), (2, 200));
        assert_eq!(
            (alpha.unanswered, report.nodes[0].unanswered, alpha.verdict_lent),
            (Some(12), Some(9), false)
        );
        let [first, second] = &report.edges[..] else { panic!("{:?}", report.edges) };
        assert_eq!((first.hears.len(), &first.misses[..]), (0, &["edge2".to_owned()][..]));
        assert_eq!((&second.hears[..], second.misses.len()), (&["edge1".to_owned()][..], 0));
        let beta = &report.sites[1];
        assert_eq!((beta.unanswered, beta.verdict_lent), (None, true));
        assert_eq!((beta.admitted_ratio, beta.met, beta.rejected), (Some(1.0), None, 0));
        let text = report.plain();
        let begin = "demo: 2 of 2 edges answer, edge1 does not hear edge2; 6 connections closed at accept\n";
        assert!(text.starts_with(begin), "{text}");
        let row = text.lines().find(|line| line.starts_with("alpha")).unwrap();
        let words: Vec<_> = row.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        let expected = [
            "alpha",
            "p99 50 ms",
            "no",
            "25.0 %",
            "24",
            "180",
            "12",
            "20.0",
            "-",
            "1.00 %",
            "over-target 180",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn an_edge_that_does_not_answer_is_named() {
        let cluster = cluster();
        let asked = vec![("edge1", Ok(Status::default())), ("edge2", ask_one(None))];
        let report = Report::new(&cluster, &asked);
        let text = report.plain();
        assert!(text.starts_with("demo: 1 of 2 edges answer, edge2 has no admin address"), "{text}");
        assert!(text.contains("all requests are admitted: no site has a target"), "{text}");
        let mut off = cluster.clone();
        off.admission.rule = AdmissionRule::None;
        let text = Report::new(&off, &vec![("edge1", Ok(Status::default()))]).plain();
        assert!(text.contains("all requests are admitted: admission.rule"), "{text}");
    }

    /// What an edge might say: names of this cluster or any, and any figures.
    fn any_status() -> impl Strategy<Value = Status> {
        let name = || prop_oneof![Just("alpha".to_owned()), Just("n1".to_owned()), any::<String>()];
        let counts = || btree_map(name(), any::<u64>(), 0..4);
        let figure = || proptest::option::of(any::<f64>());
        let site = (
            (name(), counts(), counts(), any::<bool>(), proptest::option::of(any::<bool>())),
            (figure(), figure(), figure(), any::<u64>(), any::<u64>()),
        );
        let site = site.prop_map(|((name, admitted, rejected, verdict_lent, target_met), figures)| {
            let (admitted_ratio, queue_delay_ms, queue_budget_ms, answers, late) = figures;
            SiteStatus {
                name,
                admitted,
                rejected,
                admitted_ratio,
                verdict_lent,
                queue_delay_ms,
                queue_budget_ms,
                target_met,
                answers,
                late,
            }
        });
        let count = || proptest::option::of(any::<u32>());
        let state = prop_oneof![Just("held".to_owned()), name()];
        let node = (name(), proptest::option::of(name()), state, any::<u64>(), count(), count(), count());
        let node = node.prop_map(|(name, site, state, unanswered, connections, queued, learned_workers)| {
            NodeStatus {
                name,
                site,
                state,
                unanswered,
                connections,
                queued,
                learned_workers,
                is_failing: unanswered % 3 == 0,
                strangers: unanswered as u32,
                is_shared: unanswered % 2 == 0,
                is_bound: learned_workers.map(|workers| workers % 2 == 0),
            }
        });
        let peer = (name(), any::<bool>()).prop_map(|(name, heard)| PeerStatus { name, heard });
        (any::<u64>(), vec(peer, 0..3), vec(site, 0..4), vec(node, 0..4)).prop_map(
            |(closed_at_accept, peers, sites, nodes)| Status { closed_at_accept, peers, sites, nodes },
        )
    }

    proptest! {
        #[test]
        fn whatever_edges_say_is_summed_up(statuses in vec(any_status(), 1..4)) {
            let cluster = cluster();
            let answers = statuses.iter().map(|status| {
                let answer = format!("HTTP/1.1 200 OK\r\n\r\n{}", serde_json::to_string(status).unwrap());
                ("edge1", parse(&answer).ok_or_else(|| "has no status".to_owned().into()))
            });
            let asked: Vec<_> = answers.collect();
            prop_assert!(asked.iter().all(|(_, answer)| answer.is_ok()));
            let report = Report::new(&cluster, &asked);
            prop_assert!(serde_json::to_string(&report).is_ok());
            let text = report.plain();
            prop_assert!(!text.chars().any(|character| character.is_control() && character != '\n'), "{text:?}");
        }

        #[test]
        fn an_answer_cut_or_changed_anywhere_is_no_panic(
            at in any::<prop::sample::Index>(), put in any::<u8>(), cut in any::<bool>(),
        ) {
            let answer = format!("HTTP/1.1 200 OK\r\n\r\n{}", serde_json::to_string(&first()).unwrap());
            let mut answer = answer.into_bytes();
            let at = at.index(answer.len());
            if cut {
                answer.truncate(at);
            } else {
                answer[at] = put;
            }
            if let Some(status) = parse(&String::from_utf8_lossy(&answer)) {
                let _ = Report::new(&cluster(), &vec![("edge1", Ok(status))]).plain();
            }
        }
    }

    #[test]
    fn of_foreign_servers_the_connections_and_workers_are_told() {
        let mut file = ClusterFile::demo();
        let servers = "127.0.0.1:18080".parse().unwrap();
        file.nodes = vec![sidelong_config::NodeEntry::foreign("n", 8, servers)];
        file.nodes[0].workers = Some(3);
        let cluster = file.cluster().unwrap();
        let mut status = first();
        let counted = NodeStatus { connections: Some(9), queued: Some(5), ..status.nodes[0].clone() };
        status.nodes[0] = NodeStatus { learned_workers: Some(4), is_bound: Some(true), ..counted };
        status.nodes[1].is_bound = Some(false);
        (status.nodes[1].strangers, status.nodes[1].is_shared, status.nodes[0].is_failing) = (2, true, true);
        let text = Report::new(&cluster, &vec![("edge1", Ok(status))]).plain();
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(row("n1"), ["n1", "alpha", "4 (learned)", "4", "9", "5"]);
        assert_eq!(row("n2"), ["n2", "alpha", "not bound", "3", "-", "-"]);
        assert_eq!(row("n3"), ["n3", "-", "3", "-", "-", "-"]);
        let named =
            "n2 has 2 connections that no edge made: it does not move, unless the file says exclusive = true";
        assert_eq!(text.lines().last(), Some(named));
        assert!(text.contains("\nn1 does not answer: requests to it have failed\n"), "{text}");
        assert!(!text.contains("n2 does not answer"), "{text}");
    }

    #[test]
    fn an_edge_that_hangs_is_said_to() {
        let hangs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let problem = ask_one(Some(hangs.local_addr().unwrap())).unwrap_err();
        assert!(problem.said.ends_with("within 2s") && problem.is_silent, "{problem:?}");
        let cluster = cluster();
        let text = Report::new(&cluster, &vec![("edge1", Ok(first())), ("edge2", Err(problem))]).plain();
        assert!(text.contains("within 2s (it keeps nodes from moving until it answers or ends)"), "{text}");
    }
}
