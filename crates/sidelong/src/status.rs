//! `sidelong status`: requests admitted and rejected for each site, why, and whether the targets are met, as the edges
//! report at their admin endpoints.

mod members;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use sidelong_app::history::{self, Holder};
use sidelong_app::roster::{self, Share};
use sidelong_app::some;
use sidelong_config::{AdmissionRule, Cluster, Configuration, Node, Site, Target};
use sidelong_edge::{DocumentStatus, PeerStatus, SiteStatus, Status};
use sidelong_fabric::RunDirectory;
use sidelong_workload::deadline::Timed;

use crate::cluster;
use crate::failure::{Failure, say};
use crate::running::running;
use crate::table::table;
use members::{Behind, Members, Silent};

#[derive(Args)]
#[command(after_help = STATUS_END)]
pub(crate) struct StatusArgs {
    /// Cluster file [default: that of the `sidelong up` that runs on this machine, or /etc/sidelong/cluster.toml].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON object (docs/admission.md).
    #[arg(long)]
    pub(crate) json: bool,
}

const STATUS_END: &str = "\
It reads /status.json at the `admin` address of each edge and adds up. Counts are since the edges started.

Exit codes: 0; 2 if no edge answers.

Examples:
  sidelong status
  sidelong status --config cluster.toml --json";

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
        None => running()?,
    };
    let cluster = cluster::any(&file, None)?;
    let run = RunDirectory::at(&cluster.run_dir);
    let Members { behind, silent, etcd } = Members::ask(&cluster)?;
    let asked = ask(&cluster);
    let has_caches_here = cluster.has_only_caches() && cluster.has_roster();
    if !has_caches_here && asked.iter().all(|(_, answer)| answer.is_err()) {
        let why =
            asked.iter().filter_map(|(name, answer)| Some(format!("{name} {}", answer.as_ref().err()?.said)));
        let why = why.collect::<Vec<_>>().join(", ");
        etcd.iter().for_each(|why| tracing::warn!("{why}"));
        behind.iter().for_each(|part| tracing::warn!("{}", part.plain(cluster.epoch).trim_end()));
        silent.iter().for_each(|part| tracing::warn!("{}", part.plain().trim_end()));
        return Err(Failure::new(format!("no edge of {} answers: {why}", file.display())));
    }
    let mut report = Report::new(&cluster, &asked);
    (report.behind, report.silent, report.etcd) = (behind, silent, etcd);
    report.caches = roster::caches(&cluster);
    for (name, share) in report.caches.iter_mut().filter(|(_, share)| *share == Share::Has) {
        let cache = cluster.caches.values().find(|cache| cache.name == *name);
        if cache.is_some_and(|cache| !answers(cache.listen)) {
            *share = Share::Silent;
        }
    }
    let fronts = cluster.fronts.values().map(|front| &*front.name);
    let movers = fronts.chain(cluster.nodes.values().map(|node| &*node.name));
    report.name_holders(&history::holders(&run, movers));
    say(if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.plain() })
}

/// Whether a cache answers its clients.
fn answers(cache: SocketAddr) -> bool {
    let asked = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&cache, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        // Without a key, and with an answer (memcached's protocol.txt).
        stream.write_all(b"mn\r\n")?;
        // One that has too many clients answers that.
        stream.read_exact(&mut [0; 4])
    };
    asked().is_ok()
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
    /// By edge or other front, what it answers from nodes' memory.
    pub(crate) documents: Vec<Option<DocumentStatus>>,
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
        documents: report.edges.iter().map(|edge| edge.documents).collect(),
    }
}

/// Asks every edge.
fn ask(cluster: &Cluster) -> Asked<'_> {
    let some = |edges: &[&sidelong_config::Front]| -> Vec<_> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = edges.iter().map(|edge| scope.spawn(|| ask_one(edge.admin))).collect();
            let died = || Err("could not be asked".to_owned().into());
            asked.into_iter().map(|answer| answer.join().unwrap_or_else(|_| died())).collect()
        })
    };
    let fronts: Vec<_> = cluster.fronts.values().collect();
    let names = fronts.iter().map(|front| front.name.as_str());
    names.zip(fronts.chunks(ASKED_AT_ONCE_MAX).flat_map(some)).collect()
}

/// The report over all edges. Units are in the names.
#[derive(PartialEq, Debug, Serialize)]
struct Report<'a> {
    cluster: &'a str,
    /// The number of the cluster file that its parts have adopted; 0 if they do not share one machine's memory.
    epoch: u64,
    /// Parts that run and go by another.
    behind: Vec<Behind>,
    /// Parts on other machines that do not answer, and are not known to have ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent: Vec<Silent>,
    /// Why the parts go on without etcd, if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    etcd: Option<String>,
    rule: AdmissionRule,
    edges: Vec<EdgeReport<'a>>,
    /// Connections closed at accept.
    closed_at_accept: u64,
    /// Whether no edge can read the board.
    board_is_away: bool,
    /// The node that has it, and the one that is to give it up to that one; on one machine it is in no node's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    board_at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    board_from: Option<&'a str>,
    /// Whether a person may say that nothing is left of a node.
    #[serde(skip)]
    can_be_lost: bool,
    sites: Vec<SiteReport<'a>>,
    nodes: Vec<NodeReport<'a>>,
    /// The caches of this machine, by name, and the share of the keys that each has.
    caches: Vec<(String, Share)>,
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
    /// What it answers from nodes' memory, if nodes keep documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    documents: Option<DocumentStatus>,
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
    bypassing: u32,
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
    /// Nodes that serve it, and have not failed.
    usable_nodes: usize,
    /// Unanswered requests at its nodes, of all edges.
    unanswered: Option<u64>,
    /// Whether an edge that knows nothing of the site uses another edge's verdict.
    verdict_lent: bool,
    /// Successful answers, and the late ones among them.
    answers: u64,
    late: u64,
}

impl<'a> Report<'a> {
    /// What is wrong with etcd, the parts that are behind, and the caches that do not serve their keys, a line each.
    fn plain_members(&self) -> String {
        let etcd = self.etcd.iter().map(|why| format!("the parts go on by what they know: {why}\n"));
        let behind = self.behind.iter().map(|behind| behind.plain(self.epoch));
        let silent = self.silent.iter().map(Silent::plain);
        let board = self.board_is_away.then(|| self.plain_board());
        let caches = self.caches.iter().filter_map(|(name, share)| {
            let said = match share {
                Share::Has => return None,
                Share::Takes => "takes its share of the keys".to_owned(),
                Share::GivesUp => "gives up its share of the keys".to_owned(),
                Share::HasNone => "has no share of the keys: it takes it once it runs".to_owned(),
                Share::Silent => {
                    "does not answer, and nothing is stored under its keys: it hangs. Continue it, or end it".to_owned()
                }
                Share::Dead => format!(
                    "does not run, and nothing is stored under its keys: start it, or have the others take them by \
                     `sidelong remove {name} --lost --config FILE`"
                ),
            };
            Some(format!("cache {name} {said}\n"))
        });
        etcd.chain(behind).chain(silent).chain(board).chain(caches).collect()
    }

    /// What to do about a board that is away.
    fn plain_board(&self) -> String {
        let lost = |name: &str| match self.can_be_lost {
            true => format!(
                "; or, if nothing of it is left, `sidelong remove {name} --lost --config FILE` gives the board to another node"
            ),
            false => String::new(),
        };
        let what = match (self.board_at, self.board_from) {
            (Some(to), Some(from)) => format!(
                ": {from} was to give it up to {to}. Start or continue both, and `sidelong cluster apply` of the same file goes on with that{}",
                lost(from)
            ),
            (Some(at), None) => format!(": {at} has it, start that{}", lost(at)),
            (None, _) => String::new(),
        };
        format!("the board cannot be read, so that no node moves{what}\n")
    }

    fn new(cluster: &'a Cluster, asked: &Asked<'a>) -> Self {
        let statuses: Vec<_> = asked.iter().filter_map(|(_, answer)| answer.as_ref().ok()).collect();
        let nodes: Vec<_> = cluster.nodes.values().map(|node| NodeReport::new(node, &statuses)).collect();
        let moves = cluster.baseline.configuration == Configuration::Reconfigured;
        let holder = cluster.board_holder();
        Report {
            cluster: &cluster.name,
            epoch: cluster.epoch,
            behind: Vec::new(),
            silent: Vec::new(),
            etcd: None,
            rule: cluster.admission.rule,
            edges: asked.iter().map(|asked| EdgeReport::new(asked, moves)).collect(),
            board_is_away: moves && !statuses.is_empty() && statuses.iter().all(|status| status.misses_board),
            board_at: holder.filter(|_| cluster.secret.is_some()).map(|node| &*node.name),
            board_from: cluster.standing.board.from.as_deref(),
            can_be_lost: cluster.etcd.is_some(),
            closed_at_accept: sum(statuses.iter().map(|status| status.closed_at_accept)),
            sites: cluster.sites.values().map(|site| SiteReport::new(site, &nodes, &statuses)).collect(),
            nodes,
            caches: Vec::new(),
        }
    }

    fn plain(&self) -> String {
        if self.edges.is_empty() {
            let count = some(self.caches.len(), "cache");
            return format!("{}: {count}\n{}", self.cluster, self.plain_members());
        }
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
        text += &self.plain_members();
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
        table(&mut text, &head, rows, 3);
        let by_hand = self.nodes.iter().filter_map(NodeReport::by_hand).collect::<Vec<_>>();
        if !by_hand.is_empty() {
            text += &format!("\n{}\n", by_hand.join("\n"));
        }
        let foreign = self.nodes.iter().filter(|node| node.is_foreign);
        let rows: Vec<_> = foreign.map(NodeReport::row).collect();
        if !rows.is_empty() {
            text.push('\n');
            table(&mut text, &NodeReport::HEAD, rows, 3);
        }
        let rows: Vec<_> = self.edges.iter().filter_map(EdgeReport::documents).collect();
        if !rows.is_empty() {
            text.push('\n');
            table(&mut text, &EdgeReport::DOCUMENTS_HEAD, rows, 1);
        }
        let is_known = self.nodes.iter().any(|node| node.state.is_some());
        for site in self.sites.iter().filter(|site| is_known && site.usable_nodes == 0) {
            let name = site.name;
            text += &format!(
                "{name} has no node that answers: its requests wait for one, and fail if none comes\n"
            );
        }
        for node in self.nodes.iter().filter(|node| node.is_failing) {
            text += &format!("{} does not answer: requests to it have failed\n", node.name);
        }
        for node in self.nodes.iter().filter(|node| node.bypassing > 0) {
            let (name, count) = (node.name, node.bypassing);
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
    const DOCUMENTS_HEAD: [&'static str; 6] =
        ["edge", "from memory", "after a wait", "from nodes", "MiB from memory", "failed reads"];

    /// A row on the documents that it answers with.
    fn documents(&self) -> Option<Vec<String>> {
        let DocumentStatus { memory, memory_after_wait, server, memory_bytes, failed_reads, .. } =
            self.documents?;
        let mib = memory_bytes as f64 / f64::from(1 << 20);
        let counts = [memory, memory_after_wait, server].map(|count| count.to_string());
        let name = self.name.to_owned();
        Some(
            [name].into_iter().chain(counts).chain([format!("{mib:.1}"), failed_reads.to_string()]).collect(),
        )
    }

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
            documents: answer.as_ref().ok().and_then(|status| status.documents),
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
            bypassing: of().map(|node| node.bypassing).max().unwrap_or(0),
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
        let own = || nodes.iter().filter(|node| node.site.as_ref() == Some(&site.name));
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
            usable_nodes: own().filter(|node| !node.is_failing).count(),
            unanswered: own().filter_map(|node| node.unanswered).reduce(u64::saturating_add),
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

/// What is answered for a page of an admin endpoint, with its head.
///
/// # Errors
/// If there is no answer within [`ANSWER_MAX`].
pub(crate) fn get(admin: SocketAddr, page: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, ANSWER_MAX)?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    let request = format!("GET {page} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    Timed::new(stream, ANSWER_MAX).take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

/// The status of the edge at `admin`, or why there is none, worded to follow its name.
fn ask_one(admin: Option<SocketAddr>) -> Result<Status, Problem> {
    let admin = admin.ok_or_else(|| "has no admin address in the cluster file".to_owned())?;
    let answer = get(admin, "/status.json").map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let said = format!("does not answer at {admin} within {ANSWER_MAX:?}");
            Problem { said, is_silent: true }
        }
        _ => format!("does not answer at {admin}: {error}").into(),
    })?;
    Status::from_answer(&answer).ok_or_else(|| {
        format!("has no status at {admin}: is that the admin address of an edge of this version?").into()
    })
}

#[cfg(test)]
mod tests;
