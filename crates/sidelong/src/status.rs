//! `sidelong status`: how the sites of a cluster stand, as its edges tell at their admin endpoints: who is let in, who is
//! turned away and why, and whether targets are held.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::Serialize;
use sidelong_config::{AdmissionRule, Cluster, Site, Target};

use crate::cli::StatusArgs;
use crate::failure::{Failure, say};
use crate::parts;
use crate::top;

/// An edge that does not answer within this, in either direction, does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Edges that are asked at once.
const ASKED_AT_ONCE_MAX: usize = 64;
/// Of what an edge tells: 16,383 nodes have some 20 MB.
const PAGE_BYTES_MAX: u64 = 64 << 20;

pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let file = match &args.config {
        Some(file) => file.clone(),
        None => top::running()?,
    };
    let cluster = parts::cluster(&file, None)?;
    let asked = ask(&cluster);
    if asked.iter().all(|(_, page)| page.is_err()) {
        let why: Vec<_> =
            asked.iter().filter_map(|(name, page)| Some((name, page.as_ref().err()?))).collect();
        let why: Vec<_> = why.into_iter().map(|(name, why)| format!("{name} {why}")).collect();
        return Err(Failure::new(format!("no edge of {} answers: {}", file.display(), why.join(", "))));
    }
    let report = Report::new(&cluster, &asked);
    say(if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.plain() })
}

/// How a site stands, in short.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Standing {
    /// The part of clients that is let in, at the edge where it is least; `None` where no edge tells.
    pub(crate) admitted_ratio: Option<f64>,
    /// Requests turned away since the edges started, and by why.
    pub(crate) rejected: u64,
    pub(crate) rejected_by: BTreeMap<String, u64>,
    /// Whether the target is held, at every edge that knows.
    pub(crate) met: Option<bool>,
}

/// Of each site, from those edges that answer.
pub(crate) fn standings(cluster: &Cluster) -> Vec<Standing> {
    let standing = |site: &SiteReport<'_>| Standing {
        admitted_ratio: site.admitted_ratio,
        rejected: site.rejected,
        rejected_by: site.rejected_by.clone(),
        met: site.met,
    };
    Report::new(cluster, &ask(cluster)).sites.iter().map(standing).collect()
}

/// What each edge tells, or why it does not.
fn ask(cluster: &Cluster) -> Vec<(&str, Result<String, String>)> {
    let some = |edges: &'_ [sidelong_config::Edge]| -> Vec<_> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = edges.iter().map(|edge| scope.spawn(|| page(edge.admin))).collect();
            let died = || Err("could not be asked".to_owned());
            asked.into_iter().map(|page| page.join().unwrap_or_else(|_| died())).collect()
        })
    };
    let names = cluster.edges.iter().map(|edge| edge.name.as_str());
    names.zip(cluster.edges.chunks(ASKED_AT_ONCE_MAX).flat_map(some)).collect()
}

/// All edges together. Times and units are in the names.
#[derive(PartialEq, Debug, Serialize)]
struct Report<'a> {
    cluster: &'a str,
    rule: AdmissionRule,
    edges: Vec<EdgeReport<'a>>,
    /// Connections closed as they came.
    closed_at_accept: u64,
    sites: Vec<SiteReport<'a>>,
    nodes: Vec<NodeReport<'a>>,
}

#[derive(PartialEq, Debug, Serialize)]
struct EdgeReport<'a> {
    name: &'a str,
    /// Why it did not answer, if so: then it is in no sum.
    problem: Option<String>,
    /// The other edges whose requests and verdicts it knows, and those that it does not hear.
    hears: Vec<String>,
    misses: Vec<String>,
}

#[derive(PartialEq, Debug, Serialize)]
struct NodeReport<'a> {
    name: &'a str,
    site: Option<String>,
    /// Requests there that are not answered, of all edges, as that edge has it that knows of most.
    unanswered: Option<u64>,
}

#[derive(PartialEq, Debug, Serialize)]
struct SiteReport<'a> {
    name: &'a str,
    target_response_ms_p99: Option<f64>,
    target_queue_ms_max: Option<f64>,
    /// Whether the target is held, at every edge that knows.
    met: Option<bool>,
    /// Requests since the edges started, each by why.
    admitted: u64,
    admitted_by: BTreeMap<String, u64>,
    rejected: u64,
    rejected_by: BTreeMap<String, u64>,
    /// The part of clients that was let in over the last second or so, at the edge where it is least.
    admitted_ratio: Option<f64>,
    queue_delay_ms: Option<f64>,
    queue_budget_ms: Option<f64>,
    /// Requests at its nodes that are not answered, of all edges.
    unanswered: Option<u64>,
    /// Whether an edge that knows nothing of it goes by another's verdict.
    verdict_lent: bool,
    /// Answers with success, and those of them that were late.
    answers: u64,
    late: u64,
}

impl<'a> Report<'a> {
    fn new(cluster: &'a Cluster, asked: &[(&'a str, Result<String, String>)]) -> Self {
        let pages = asked.iter().filter_map(|(_, page)| page.as_ref().ok());
        let samples: Vec<_> = pages.flat_map(|page| page.lines().filter_map(Sample::parse)).collect();
        let nodes: Vec<_> = cluster.nodes.iter().map(|node| NodeReport::new(&node.name, &samples)).collect();
        Report {
            cluster: &cluster.name,
            rule: cluster.admission.rule,
            edges: asked.iter().map(EdgeReport::new).collect(),
            closed_at_accept: samples.iter().filter(|of| of.is("closed_at_accept_total")).map(count).sum(),
            sites: cluster.sites.iter().map(|site| SiteReport::new(site, &nodes, &samples)).collect(),
            nodes,
        }
    }

    fn plain(&self) -> String {
        let answer = self.edges.iter().filter(|edge| edge.problem.is_none()).count();
        let mut text = format!("{}: {answer} of {} edges answer", self.cluster, self.edges.len());
        for edge in &self.edges {
            if let Some(problem) = &edge.problem {
                text += &format!(", {} {problem}", edge.name);
            }
            if !edge.misses.is_empty() {
                text += &format!(", {} does not hear {}", edge.name, edge.misses.join(" and "));
            }
        }
        let is_off = self.sites.iter().all(|site| site.admitted_ratio.is_none());
        text += &match self.rule {
            AdmissionRule::None if is_off => "; everybody is let in: admission.rule is \"none\"\n".to_owned(),
            _ if is_off => "; everybody is let in: docs/admission.md says how to set targets\n".to_owned(),
            _ => format!("; {} connections closed as they came\n", self.closed_at_accept),
        };
        text.push('\n');
        let head = [
            "site",
            "target",
            "held",
            "let in",
            "admitted",
            "rejected",
            "in flight",
            "delay ms",
            "budget ms",
            "late",
            "why",
        ];
        let rows = self.sites.iter().map(SiteReport::row).collect();
        // The reasons are last, as they have no bound; all but them are figures.
        top::table(&mut text, &head, rows, 3);
        text
    }
}

impl<'a> EdgeReport<'a> {
    fn new((name, page): &(&'a str, Result<String, String>)) -> Self {
        let samples: Vec<_> = page.iter().flat_map(|page| page.lines().filter_map(Sample::parse)).collect();
        let named = |name: &'static str| {
            let edges = samples.iter().filter(move |of| of.is(name)).filter_map(|of| of.label("edge"));
            edges.map(str::to_owned)
        };
        let hears: Vec<_> = named("peer_unanswered_requests").collect();
        let misses = named("peer_age_seconds").filter(|edge| !hears.contains(edge)).collect();
        EdgeReport { name, problem: page.as_ref().err().cloned(), hears, misses }
    }
}

impl<'a> NodeReport<'a> {
    fn new(name: &'a str, samples: &[Sample<'_>]) -> Self {
        let of = |family: &'static str| {
            samples.iter().filter(move |of| of.is(family) && of.label("node") == Some(name))
        };
        NodeReport {
            name,
            site: of("node_site").find_map(|of| of.label("site")).map(str::to_owned),
            unanswered: of("node_unanswered_requests").map(count).max(),
        }
    }
}

impl<'a> SiteReport<'a> {
    fn new(site: &'a Site, nodes: &[NodeReport<'_>], samples: &[Sample<'_>]) -> Self {
        let of = |name: &'static str| {
            samples.iter().filter(move |of| of.is(name) && of.label("site") == Some(&site.name))
        };
        let by_why = |name| {
            let mut by = BTreeMap::<String, u64>::new();
            for sample in of(name) {
                *by.entry(sample.label("why").unwrap_or_default().to_owned()).or_default() += count(sample);
            }
            by.retain(|_, count| *count > 0);
            by
        };
        let values = |name| of(name).map(|sample| sample.value);
        let least = |name| values(name).reduce(f64::min);
        let ms = |time: Duration| time.as_nanos() as f64 / 1e6;
        let (admitted_by, rejected_by) = (by_why("admitted_total"), by_why("rejected_total"));
        SiteReport {
            name: &site.name,
            target_response_ms_p99: match site.target {
                Some(Target::ResponseP99(time)) => Some(ms(time)),
                _ => None,
            },
            target_queue_ms_max: match site.target {
                Some(Target::QueueMax(time)) => Some(ms(time)),
                _ => None,
            },
            met: least("target_met").map(|met| met > 0.0),
            admitted: admitted_by.values().sum(),
            admitted_by,
            rejected: rejected_by.values().sum(),
            rejected_by,
            admitted_ratio: least("admitted_ratio"),
            queue_delay_ms: values("queue_delay_seconds").reduce(f64::max).map(|delay| delay * 1e3),
            queue_budget_ms: least("queue_budget_seconds").map(|budget| budget * 1e3),
            unanswered: nodes
                .iter()
                .filter(|node| node.site.as_ref() == Some(&site.name))
                .filter_map(|node| node.unanswered)
                .reduce(|sum, more| sum + more),
            verdict_lent: values("verdict_lent").any(|lent| lent > 0.0),
            answers: of("target_answers_total").map(count).sum(),
            late: of("target_answers_total").filter(|of| of.label("late") == Some("yes")).map(count).sum(),
        }
    }

    fn row(&self) -> Vec<String> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let target = match (self.target_response_ms_p99, self.target_queue_ms_max) {
            (Some(ms), _) => format!("99 % in {ms} ms"),
            (_, Some(ms)) => format!("{ms} ms in a queue"),
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

/// One of an edge's figures.
struct Sample<'a> {
    /// Without what all begin with.
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    /// `sidelong_edge_NAME{label="value",...} VALUE`; the values that are asked for here have no quotes of their own.
    fn parse(line: &'a str) -> Option<Self> {
        let (name, value) = line.strip_prefix("sidelong_edge_")?.rsplit_once(' ')?;
        let (name, labels) = name.split_once('{').unwrap_or((name, ""));
        Some(Sample { name, labels: labels.trim_end_matches('}'), value: value.parse().ok()? })
    }

    fn is(&self, name: &str) -> bool {
        self.name == name
    }

    fn label(&self, name: &str) -> Option<&'a str> {
        let labels = self.labels.split(',').filter_map(|label| label.split_once('='));
        labels.into_iter().find(|(label, _)| *label == name).map(|(_, value)| value.trim_matches('"'))
    }
}

fn count(sample: &Sample<'_>) -> u64 {
    sample.value as u64
}

/// What an edge tells at its admin endpoint, or why it does not, for after its name.
fn page(admin: Option<SocketAddr>) -> Result<String, String> {
    let admin = admin.ok_or("has no admin address to be asked at")?;
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&admin, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let request = format!("GET /metrics HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.take(PAGE_BYTES_MAX).read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("does not answer at {admin} within {ANSWER_MAX:?}")
        }
        _ => format!("does not answer at {admin}: {error}"),
    })?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") && body.ends_with("# EOF\n") => {
            Ok(body.to_owned())
        }
        _ => Err(format!("does not tell its metrics at {admin}: is that address an edge's?")),
    }
}

#[cfg(test)]
mod tests {
    use sidelong_config::ClusterFile;

    use super::*;

    const FIRST: &str = "\
sidelong_edge_admitted_total{site=\"alpha\",why=\"within-target\"} 7
sidelong_edge_admitted_total{site=\"alpha\",why=\"over-target\"} 5
sidelong_edge_rejected_total{site=\"alpha\",why=\"over-target\"} 90
sidelong_edge_rejected_total{site=\"alpha\",why=\"greedy\"} 0
sidelong_edge_admitted_ratio{site=\"alpha\"} 0.25
sidelong_edge_admitted_ratio{site=\"beta\"} 1
sidelong_edge_queue_delay_seconds{site=\"alpha\"} 0.02
sidelong_edge_target_met{site=\"alpha\"} 1
sidelong_edge_target_answers_total{site=\"alpha\",late=\"no\"} 99
sidelong_edge_target_answers_total{site=\"alpha\",late=\"yes\"} 1
sidelong_edge_closed_at_accept_total 3
sidelong_edge_node_site{node=\"n1\",site=\"alpha\"} 1
sidelong_edge_node_site{node=\"n2\",site=\"alpha\"} 1
sidelong_edge_node_unanswered_requests{node=\"n1\"} 4
sidelong_edge_node_unanswered_requests{node=\"n2\"} 3
sidelong_edge_verdict_lent{site=\"beta\"} 1
sidelong_edge_peer_age_seconds{edge=\"edge2\"} inf
# EOF
";

    fn cluster() -> Cluster {
        let mut file = ClusterFile::demo();
        file.sites[0].response_p99 = Some(Duration::from_millis(50));
        file.cluster().unwrap()
    }

    #[test]
    fn edges_are_summed_up_and_the_worst_is_told() {
        let cluster = cluster();
        let second = FIRST
            .replace("0.25", "0.5")
            .replace("target_met{site=\"alpha\"} 1", "target_met{site=\"alpha\"} 0")
            .replace("requests{node=\"n1\"} 4", "requests{node=\"n1\"} 9")
            .replace("{edge=\"edge2\"} inf", "{edge=\"edge1\"} 0.1")
            + "sidelong_edge_peer_unanswered_requests{edge=\"edge1\"} 7\n";
        let report = Report::new(&cluster, &[("edge1", Ok(FIRST.to_owned())), ("edge2", Ok(second))]);
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
        let begin =
            "demo: 2 of 2 edges answer, edge1 does not hear edge2; 6 connections closed as they came\n";
        assert!(text.starts_with(begin), "{text}");
        let row = text.lines().find(|line| line.starts_with("alpha")).unwrap();
        let words: Vec<_> = row.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        let expected = [
            "alpha",
            "99 % in 50 ms",
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
        let pages = [("edge1", Ok(String::new())), ("edge2", page(None))];
        let report = Report::new(&cluster, &pages);
        let text = report.plain();
        assert!(text.starts_with("demo: 1 of 2 edges answer, edge2 has no admin address"), "{text}");
        assert!(text.contains("everybody is let in: docs/admission.md"), "{text}");
        let mut off = cluster.clone();
        off.admission.rule = AdmissionRule::None;
        let text = Report::new(&off, &[("edge1", Ok(String::new()))]).plain();
        assert!(text.contains("everybody is let in: admission.rule"), "{text}");
    }

    #[test]
    fn an_edge_that_hangs_is_said_to() {
        let hangs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let problem = page(Some(hangs.local_addr().unwrap())).unwrap_err();
        assert!(problem.ends_with("within 2s"), "{problem}");
    }

    #[test]
    fn lines_that_are_no_samples_are_passed_over() {
        for line in ["", "# HELP sidelong_edge_x", "other 1", "sidelong_edge_x", "sidelong_edge_x{a=\"b\"} y"]
        {
            assert!(Sample::parse(line).is_none(), "{line}");
        }
        assert_eq!(Sample::parse("sidelong_edge_x{a=\"b\",c=\"d\"} 1e3").unwrap().label("c"), Some("d"));
    }
}
