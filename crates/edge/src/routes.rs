//! The path of a request: its site by Host, admission, its node by the view, metrics and the access log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use sidelong_layout::{NodeId, SiteId, Time};
use sidelong_policy::admission::{self, Client};
use sidelong_policy::documents::Takes;
use sidelong_policy::health::{self, RequestHash};
use sidelong_proxy::{Answer, Failure, Outcome, Refusal, RefusedHead, Request, ServerId, Service, Visit};
use tokio::time::{Instant, sleep};

use crate::access_log::Entry;
use crate::clock;
use crate::documents::{DocumentRequest, Documents};
use crate::gate::{GREEDY_WORD, Gate};
use crate::live::LiveSettings;
use crate::metrics::Metrics;
use crate::view::View;

/// Longest wait of a request for a node of its site; then it is answered with 503.
const WAIT_FOR_NODE_MAX: Duration = Duration::from_secs(1);
/// Time between two attempts meanwhile.
const WAIT_STEP: Duration = Duration::from_millis(1);
/// Most requests of a site that wait for a node.
const WAITING_MAX: u32 = 10_000;

/// The header with the reason of a rejection.
const REASON: &str = "x-sidelong-reason";
/// The answer to a request for a host that no site has.
const MISDIRECTED: &str = "421 Misdirected Request: no site of this cluster has that Host\n";
/// The answer to a request that is rejected.
const OVERLOADED: &str = "503 Service Unavailable: the site is overloaded\n";

/// Status in the access log if the client left, or was disconnected, before it was answered. The number is nginx's, as
/// Common Log Format needs three digits.
const UNANSWERED: u16 = 499;

/// The edge as a thread of the data path sees it.
pub(crate) struct Routes {
    /// The thread, by index: what it counts is its own.
    thread: usize,
    edge: Arc<Shared>,
    documents: Option<Documents>,
}

/// What all threads share.
struct Shared {
    view: Arc<View>,
    gate: Option<Arc<Gate>>,
    metrics: Arc<Metrics>,
    live: Arc<LiveSettings>,
}

impl Routes {
    /// One for each of `threads` that serve clients.
    pub(crate) fn for_threads(
        threads: usize,
        live: Arc<LiveSettings>,
        view: Arc<View>,
        gate: Option<Arc<Gate>>,
        metrics: Arc<Metrics>,
        documents: impl Fn() -> Option<Documents>,
    ) -> Vec<Self> {
        let edge = Arc::new(Shared { view, gate, metrics, live });
        let of_thread = |thread| Routes { thread, edge: Arc::clone(&edge), documents: documents() };
        (0..threads).map(of_thread).collect()
    }
}

impl Shared {
    /// The site's name, which only logs and documents need.
    fn site_name(&self, (site, tag): (SiteId, u64)) -> Option<Arc<str>> {
        let table = self.live.table();
        let row = table.sites.get(site.index()).filter(|row| row.tag == tag)?;
        Some(Arc::clone(&row.name))
    }

    /// A node, at once or as soon as one is available: `home`, if that is named and has not much more to do than the others.
    async fn node_for(
        &self,
        site: SiteId,
        home: Option<NodeId>,
        tried: Option<NodeId>,
        now: Time,
    ) -> Option<AtNode<'_>> {
        let at = |node, now| {
            let answers = self.view.answers(node);
            AtNode { view: &self.view, node, stage: Stage::Sent, since: now, answers }
        };
        let choose = |tried, now| Some(at(self.view.choose(site, tried, now)?, now));
        if let Some(home) = home.filter(|home| self.view.choose_home(site, *home, now)) {
            return Some(at(home, now));
        }
        if let Some(at) = choose(tried, now) {
            return Some(at);
        }
        if self.view.waiting(site) >= WAITING_MAX {
            return None;
        }
        let _waiting = self.view.wait(site);
        let deadline = Instant::now() + WAIT_FOR_NODE_MAX;
        while Instant::now() < deadline {
            sleep(WAIT_STEP).await;
            // The tried node may be the only one of the site, and back.
            let chosen = choose(tried, clock::now());
            if let Some(at) = chosen.or_else(|| choose(None, clock::now())) {
                return Some(at);
            }
        }
        None
    }
}

impl Service for Routes {
    type Visit<'a> = AtEdge<'a>;

    fn accepts(&self, client: SocketAddr) -> bool {
        let Some(gate) = &self.edge.gate else { return true };
        let now = clock::now();
        // With a stale view all connections are admitted.
        self.edge.view.is_stale(now) || gate.takes_in(self.thread, Client::new(client), now)
    }

    fn refused(&self, why: Refusal) {
        self.edge.metrics.refused(self.thread, why);
    }

    fn refused_head(&self, refused: RefusedHead<'_>) {
        let RefusedHead { client, line, elapsed, outcome } = refused;
        self.refused(Refusal::of_head(outcome.status));
        if let Some(log) = &*self.edge.live.log() {
            log.write(Entry {
                client: client.ip().to_canonical().to_string(),
                // A byte becomes the character of its number, which the log escapes.
                request: line.iter().map(|byte| char::from(*byte)).collect(),
                status: outcome.status,
                bytes: outcome.bytes,
                site: None,
                node: None,
                micros: elapsed.as_micros(),
                tries: 0,
            });
        }
    }

    fn visit(&self, request: &Request, client: SocketAddr) -> AtEdge<'_> {
        AtEdge {
            thread: self.thread,
            edge: &self.edge,
            begun: clock::now(),
            client,
            host: self.edge.live.table().site_of(request.host()),
            documents: self.documents.as_ref(),
            asked: None,
            at: None,
            tried: None,
            tried_name: None,
            has_failed_at: None,
            tries: 0,
        }
    }
}

/// A request at a node, counted there while this lives.
struct AtNode<'a> {
    view: &'a View,
    node: NodeId,
    stage: Stage,
    /// When it was chosen, or fully sent: the client's time to send it is not the node's.
    since: Time,
    /// The node's answers at that time.
    answers: u64,
}

/// The progress of a request at its node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is being sent.
    Sent,
    /// It waits for its answer.
    Waiting,
    Answered,
}

impl AtNode<'_> {
    /// Goes on to a stage; never back, as where an answer begins before the request is fully sent.
    fn enter(&mut self, stage: Stage) {
        match (self.stage, stage) {
            (Stage::Sent, Stage::Waiting) => {
                self.since = clock::now();
                self.answers = self.view.answers(self.node);
                self.view.waits(self.node);
            }
            (Stage::Waiting, Stage::Answered) => self.view.waited(self.node),
            (Stage::Sent, Stage::Answered) => {}
            _ => return,
        }
        self.stage = stage;
    }
}

impl Drop for AtNode<'_> {
    fn drop(&mut self) {
        self.enter(Stage::Answered);
        self.view.release(self.node);
    }
}

/// One request.
pub(crate) struct AtEdge<'a> {
    thread: usize,
    edge: &'a Shared,
    begun: Time,
    client: SocketAddr,
    /// The site that has its host, and the tag by which it is told from one that gets its slot later.
    host: Option<(SiteId, u64)>,
    documents: Option<&'a Documents>,
    /// The document that it asks for, if a cache may answer.
    asked: Option<DocumentRequest<'a>>,
    /// The node where it is.
    at: Option<AtNode<'a>>,
    /// The node where it was before, and its name if there is a log.
    tried: Option<NodeId>,
    tried_name: Option<Arc<str>>,
    /// The node at which it failed last, if that may be due to the request.
    has_failed_at: Option<NodeId>,
    tries: u32,
}

impl AtEdge<'_> {
    fn site(&self) -> Option<SiteId> {
        self.host.map(|(site, _)| site)
    }
}

impl Visit for AtEdge<'_> {
    async fn find(&mut self, request: &Request) -> Option<Bytes> {
        let (documents, host, edge) = (self.documents?, self.host?, self.edge);
        let method = request.method();
        let fields: Vec<_> = request.fields().collect();
        let takes = Takes::of(matches!(*method, Method::GET | Method::HEAD), &fields)?;
        let usable = |node| edge.view.is_usable(node, host.0, self.begun);
        let mut asked = documents.asked(&edge.site_name(host)?, request.target(), usable)?;
        let found = documents.find(&mut asked, method, &fields, takes).await;
        self.asked = Some(asked);
        found
    }

    fn admit(&mut self, request: &Request) -> Result<(), Answer> {
        let Some(site) = self.site() else { return Err(Answer::new(421, MISDIRECTED)) };
        let Some(gate) = &self.edge.gate else { return Ok(()) };
        let is_stale = self.edge.view.is_stale(self.begun);
        let client = Client::new(self.client);
        let request = admission::Request { method: request.method().as_str(), target: request.target() };
        gate.decide(self.thread, site, client, request, self.begun, is_stale).map_err(|refused| {
            let reason = if refused.greedy { GREEDY_WORD } else { refused.why.word() };
            let fields =
                vec![("retry-after", refused.retry_after_s.to_string().into()), (REASON, reason.into())];
            Answer { fields, ..Answer::new(503, OVERLOADED) }
        })
    }

    async fn choose(&mut self) -> Option<ServerId> {
        self.leave();
        self.tries += 1;
        let now = if self.tries == 1 { self.begun } else { clock::now() };
        let host = self.host?;
        let home = self.asked.as_ref().map(|asked| asked.home).filter(|_| self.tries == 1);
        let at = self.edge.node_for(host.0, home, self.tried, now).await?;
        // After the request is counted there, so that the node keeps its slot.
        let table = self.edge.live.table();
        let server = table.server(at.node, host);
        let name = table.nodes.get(at.node.index()).map(|row| &row.name);
        self.tried_name = name.filter(|_| self.edge.live.log().is_some()).map(Arc::clone);
        self.at = server.is_some().then_some(at);
        server
    }

    /// A node may have gone to another address since it was chosen, where it serves another site. The address was looked up after the
    /// node was forgotten at the old one, so that the view shows it.
    fn may_send(&self) -> bool {
        let chosen = self.at.as_ref().zip(self.site());
        chosen.is_some_and(|(at, site)| {
            self.edge.view.ownership(at.node).is_some_and(|own| own.site == Some(site))
        })
    }

    fn sent(&mut self) {
        if let Some(at) = self.at.as_mut() {
            at.enter(Stage::Waiting);
        }
    }

    fn failed(&mut self, request: &Request, failure: Failure) {
        let Some(at) = &self.at else { return };
        if failure == Failure::Malformed {
            let table = self.edge.live.table();
            table.nodes.get(at.node.index()).into_iter().for_each(|row| row.speech.misheard(&row.name));
        }
        let failure = match failure {
            Failure::Refused => health::Failure::Refused,
            Failure::Unreachable => health::Failure::Unreachable,
            Failure::Late if self.edge.view.answers(at.node) == at.answers => health::Failure::Silent,
            Failure::Late | Failure::Broken | Failure::Malformed => {
                let hash = RequestHash::new(request.method().as_str(), request.target());
                health::Failure::Request(Some(hash))
            }
        };
        self.has_failed_at = Some(at.node).filter(|_| matches!(failure, health::Failure::Request(_)));
        self.edge.view.on_failure(at.node, clock::now(), failure);
    }

    fn answered(&mut self, status: u16) {
        // An informational response is no answer, but a change of protocols is.
        let is_final = status >= 200 || status == 101;
        let (now, site) = (clock::now(), self.site());
        // Without a node it is an answer from memory, which says nothing about nodes.
        let Some(at) = &mut self.at else { return };
        self.edge.view.on_success(at.node);
        if is_final {
            // Another node answers the same request, so that it was the node's failure.
            if let Some(failed) = self.has_failed_at.take().filter(|failed| *failed != at.node) {
                self.edge.view.on_failure(failed, now, health::Failure::Request(None));
            }
            if let (Some(documents), Some(asked)) = (self.documents, &mut self.asked) {
                documents.answered(asked, asked.home == at.node, status);
            }
            match (status, site) {
                (..400, _) => self.edge.view.answered(at.node, now, now.since(at.since)),
                (500.., Some(site)) => self.edge.view.erred(site, at.node, now),
                _ => {}
            }
            at.enter(Stage::Answered);
        }
        // A failure may be fast, and says nothing about response times.
        if let (Some(gate), Some(site), 200..400) = (&self.edge.gate, site, status) {
            gate.succeeded(self.thread, site, now.since(self.begun));
        }
    }

    fn cut_in(&self) -> Option<Duration> {
        self.edge.view.cut_in(self.at.as_ref()?.node, self.site()?, clock::now)
    }

    fn cut(&mut self) {
        if let Some(site) = self.site() {
            self.edge.metrics.cut(self.thread, site);
        }
    }

    fn leave(&mut self) {
        if let Some(at) = self.at.take() {
            self.tried = Some(at.node);
        }
    }

    fn end(mut self, request: &Request, outcome: Outcome) {
        self.leave();
        let edge = self.edge;
        if let Some(documents) = self.documents
            && !request.method().is_safe()
            && (200..400).contains(&outcome.status)
            && let Some(site) = self.host.and_then(|host| edge.site_name(host))
        {
            documents.changed(&site, request.target());
        }
        let elapsed = clock::now().since(self.begun);
        edge.metrics.answered(self.thread, self.site(), outcome.status, elapsed, self.tries);
        if let Some(log) = &*edge.live.log() {
            log.write(Entry {
                client: self.client.ip().to_canonical().to_string(),
                request: format!("{} {} {}", request.method(), request.target(), request.version().text()),
                status: if outcome.status == 0 { UNANSWERED } else { outcome.status },
                bytes: outcome.bytes,
                site: self.host.and_then(|host| edge.site_name(host)),
                node: self.tried_name.take(),
                micros: elapsed.as_micros(),
                tries: self.tries,
            });
        }
    }
}

#[cfg(test)]
mod tests;
