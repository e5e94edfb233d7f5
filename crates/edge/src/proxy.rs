//! What happens to a request: site by Host, node by the view, one retry elsewhere, counted and logged.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use pingora_core::protocols::TcpKeepalive;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{
    ConnectRefused, ConnectTimedout, ConnectionClosed, Error, ErrorSource, ErrorType, ReadError, Result,
};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use sidelong_layout::{NodeId, SiteId, Time};
use sidelong_policy::admission::Refused;
use sidelong_policy::health::Failure;

use crate::access_log::{AccessLog, Entry};
use crate::clock;
use crate::closing::{Closing, UnderWay};
use crate::door::Client;
use crate::gate::{GREEDY_WORD, Gate};
use crate::metrics::Metrics;
use crate::settings::{Limits, NodeAddress, Settings};
use crate::view::View;

/// A request waits this long at most for a node of its site to come up or to arrive, then is told 503.
const WAIT_FOR_NODE_MAX: Duration = Duration::from_secs(1);
/// How often it looks meanwhile.
const WAIT_STEP: Duration = Duration::from_millis(1);
/// Requests of a site that wait so at most.
const WAITING_MAX: u32 = 10_000;

/// To a node whose connection is silent, before it is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// Where a request came from, one address for each proxy on its way.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The body of a request that is turned away is read up to this size over HTTP/1, so that the connection can be kept; with
/// a larger one it is closed after the answer. Over HTTP/2 it is read up to the size that is taken at all.
const REFUSED_BODY_BYTES_MAX: u64 = 64 << 10;
/// What a client goes on sending over HTTP/2 after an answer that it does not wait for is passed over for so long: time
/// to see the answer, and to stop.
const LINGER: Duration = Duration::from_secs(1);
/// Why a request was turned away, on the answer that says so.
const REASON: &str = "x-sidelong-reason";

/// What the access log has where the client left, or was shown out by the door, before it was answered: nginx's word for
/// it, since Common Log Format has a place for three digits.
const UNANSWERED: u16 = 499;

pub(crate) struct Proxy {
    view: Arc<View>,
    gate: Option<Arc<Gate>>,
    metrics: Arc<Metrics>,
    log: Option<AccessLog>,
    hosts: HashMap<String, SiteId>,
    site_names: Vec<Arc<str>>,
    nodes: Vec<(Arc<str>, HttpPeer)>,
    limits: Limits,
    closing: Arc<Closing>,
}

impl Proxy {
    pub(crate) fn new(
        settings: &Settings,
        view: Arc<View>,
        gate: Option<Arc<Gate>>,
        metrics: Arc<Metrics>,
        log: Option<AccessLog>,
        closing: Arc<Closing>,
    ) -> Self {
        let mut hosts = HashMap::new();
        for (index, site) in settings.sites.iter().enumerate() {
            hosts.extend(site.hosts.iter().map(|host| (host.to_ascii_lowercase(), SiteId::new(index))));
        }
        let peer = |node: &NodeAddress| (node.name.as_str().into(), peer(node.address, &settings.limits));
        Proxy {
            view,
            gate,
            metrics,
            log,
            hosts,
            site_names: settings.sites.iter().map(|site| site.name.as_str().into()).collect(),
            nodes: settings.nodes.iter().map(peer).collect(),
            limits: settings.limits,
            closing,
        }
    }

    /// The site that a request is for: by the authority of its target, else by its Host header (RFC 9110, 7.2).
    fn site_of(&self, request: &RequestHeader) -> Option<SiteId> {
        let host = match request.uri.host() {
            Some(host) => host,
            None => {
                let host = request.headers.get(header::HOST)?.to_str().ok()?;
                // A port, but not the inside of an IPv6 address.
                host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(host, |(name, _)| name)
            }
        };
        match self.hosts.get(host) {
            Some(site) => Some(*site),
            None => self.hosts.get(&host.to_ascii_lowercase()).copied(),
        }
    }

    /// A node, at once or as soon as one can be had.
    async fn node_for(&self, site: SiteId, tried: Option<NodeId>, now: Time) -> Option<AtNode> {
        let choose = |tried, now| {
            let node = self.view.choose(site, tried, now)?;
            Some(AtNode { view: Arc::clone(&self.view), node, stage: Stage::Sent })
        };
        if let Some(at) = choose(tried, now) {
            return Some(at);
        }
        if self.view.waiting(site) >= WAITING_MAX {
            return None;
        }
        let _waiting = self.view.wait(site);
        let deadline = Instant::now() + WAIT_FOR_NODE_MAX;
        while Instant::now() < deadline {
            tokio::time::sleep(WAIT_STEP).await;
            // Where the tried node is all that the site has, it may as well have come back.
            let chosen = choose(tried, clock::now());
            if let Some(at) = chosen.or_else(|| choose(None, clock::now())) {
                return Some(at);
            }
        }
        None
    }

    /// Whether the request is let in.
    fn admit(&self, site: SiteId, ctx: &Visit) -> Result<(), Refused> {
        let Some(gate) = &self.gate else { return Ok(()) };
        let client = ctx.client.as_ref().map(|client| client.known()).unwrap_or_default();
        gate.decide(site, client, ctx.begun, self.view.is_stale(ctx.begun))
    }

    /// Reads the body of a request that is turned away: unread, its connection would have to be closed, and over HTTP/2
    /// the client would see a broken stream and no answer. One that is longer or slower than this will bear is left.
    async fn pass_over_body(&self, session: &mut Session, announced: Option<u64>) -> Result<()> {
        let is_h2 = session.is_http2();
        let bytes_max = if is_h2 { self.limits.body_bytes_max } else { REFUSED_BODY_BYTES_MAX };
        if announced.map_or(!is_h2, |bytes| bytes > bytes_max) {
            return Ok(());
        }
        let pass = async {
            let mut bytes = 0;
            while let Some(part) = session.as_mut().read_request_body().await? {
                bytes += part.len() as u64;
                if bytes > bytes_max {
                    break;
                }
            }
            Ok(())
        };
        // Over HTTP/1 the door has had the last word by then; over HTTP/2 it is answered all the same.
        tokio::time::timeout(self.limits.door.body_timeout, pass).await.unwrap_or(Ok(()))
    }

    /// The request is no longer at its node.
    fn leave(ctx: &mut Visit) {
        if let Some(at) = ctx.at.take() {
            ctx.tried = Some(at.node);
        }
    }
}

/// A request at a node: it counts there while this lives, however it ends.
struct AtNode {
    view: Arc<View>,
    node: NodeId,
    stage: Stage,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The client is still sending it: a slow one keeps nobody waiting.
    Sent,
    /// It waits for its answer.
    Waiting,
    Answered,
}

impl AtNode {
    fn enter(&mut self, stage: Stage) {
        match (std::mem::replace(&mut self.stage, stage), stage) {
            (Stage::Sent, Stage::Waiting) => self.view.waits(self.node),
            (Stage::Waiting, Stage::Answered) => self.view.waited(self.node),
            _ => {}
        }
    }
}

impl Drop for AtNode {
    fn drop(&mut self) {
        self.enter(Stage::Answered);
        self.view.release(self.node);
    }
}

/// One request on its way.
pub(crate) struct Visit {
    begun: Time,
    client: Option<Arc<Client>>,
    site: Option<SiteId>,
    /// Where it is now.
    at: Option<AtNode>,
    /// Where it was last.
    tried: Option<NodeId>,
    tries: u32,
    /// Whether the client has sent all of it.
    is_whole: bool,
    _under_way: UnderWay,
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = Visit;

    fn new_ctx(&self) -> Visit {
        let under_way = self.closing.enter();
        Visit {
            begun: clock::now(),
            client: None,
            site: None,
            at: None,
            tried: None,
            tries: 0,
            is_whole: false,
            _under_way: under_way,
        }
    }

    fn init_downstream_modules(&self, _modules: &mut pingora_core::modules::http::HttpModules) {
        // Pingora's default adds response compression; the servers decide on that here.
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Visit) -> Result<bool> {
        ctx.client = Client::of(session).cloned();
        let has_body = !session.as_mut().is_body_empty();
        ctx.is_whole = !has_body;
        let request = session.req_header();
        ctx.site = self.site_of(request);
        if let Some(client) = &ctx.client {
            client.header_done(has_body, ctx.begun);
        }
        let length = request.headers.get(header::CONTENT_LENGTH).filter(|_| has_body);
        let body_bytes: Option<u64> = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if self.closing.has_begun() {
            session.set_keepalive(None);
        }
        if body_bytes.is_some_and(|bytes| bytes > self.limits.body_bytes_max) {
            return Error::e_explain(ErrorType::HTTPStatus(413), "request body too large");
        }
        let Some(site) = ctx.site else {
            let text = b"421 Misdirected Request: no site of this cluster has that Host\n";
            return answer(session, ResponseHeader::build(421, Some(2))?, text).await;
        };
        let Err(refused) = self.admit(site, ctx) else { return Ok(false) };
        let is_awaited = session.req_header().headers.contains_key(header::EXPECT);
        if has_body && !is_awaited {
            self.pass_over_body(session, body_bytes).await?;
        }
        let mut response = ResponseHeader::build(503, Some(4))?;
        response.insert_header(header::RETRY_AFTER, refused.retry_after_s)?;
        response.insert_header(REASON, if refused.greedy { GREEDY_WORD } else { refused.why.word() })?;
        let answered =
            answer(session, response, b"503 Service Unavailable: the site is overloaded\n").await?;
        if is_awaited {
            linger(session).await;
        }
        Ok(answered)
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        _body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Visit,
    ) -> Result<()> {
        // Over HTTP/1 the door sees to that.
        if session.is_http2() && clock::now().since(ctx.begun) > self.limits.door.body_timeout {
            return Error::e_explain(ErrorType::HTTPStatus(408), "request body too slow");
        }
        if session.body_bytes_read() as u64 > self.limits.body_bytes_max {
            return Error::e_explain(ErrorType::HTTPStatus(413), "request body too large");
        }
        if end_of_stream {
            ctx.is_whole = true;
            if let Some(at) = ctx.at.as_mut().filter(|at| at.stage == Stage::Sent) {
                at.enter(Stage::Waiting);
            }
            if let Some(client) = &ctx.client {
                client.request_done();
            }
        }
        Ok(())
    }

    async fn upstream_peer(&self, session: &mut Session, ctx: &mut Visit) -> Result<Box<HttpPeer>> {
        let Some(site) = ctx.site else { return Error::e_explain(ErrorType::HTTPStatus(421), "no site") };
        Self::leave(ctx);
        ctx.tries += 1;
        let now = if ctx.tries == 1 { ctx.begun } else { clock::now() };
        let Some(mut at) = self.node_for(site, ctx.tried, now).await else {
            return Error::e_explain(ErrorType::HTTPStatus(503), "no node of the site can be reached");
        };
        let mut peer = Box::new(self.nodes[at.node.index()].1.clone());
        if ctx.is_whole {
            at.enter(Stage::Waiting);
        }
        ctx.at = Some(at);
        // Over HTTP/1 the door sees to that.
        peer.options.read_timeout = session.is_http2().then_some(self.limits.door.response_timeout);
        Ok(peer)
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Visit,
    ) -> Result<()> {
        let Some(client) = ctx.client.as_ref().and_then(|client| client.forwarded_for()) else {
            return Ok(());
        };
        let value = match request.headers.get(FORWARDED_FOR) {
            None => client.clone(),
            Some(before) => {
                let chain = [before.as_bytes(), b", ", client.as_bytes()].concat();
                HeaderValue::from_maybe_shared(Bytes::from(chain)).unwrap_or_else(|_| client.clone())
            }
        };
        request.insert_header(FORWARDED_FOR, value)
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        ctx: &mut Visit,
        mut error: Box<Error>,
    ) -> Box<Error> {
        let refused = !matches!(error.etype(), ConnectTimedout);
        if let Some(at) = &ctx.at {
            let failure = if refused { Failure::Refused } else { Failure::Other };
            self.view.on_failure(at.node, clock::now(), failure);
        }
        // Nothing was sent, so even what may not be repeated may go elsewhere.
        error.set_retry(ctx.tries <= self.limits.retries);
        if matches!(error.etype(), ConnectRefused | ConnectTimedout) {
            error.as_up();
        }
        error
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        ctx: &mut Visit,
        client_reused: bool,
    ) -> Box<Error> {
        // The door cut the wait short, but it was the node's doing.
        if ctx.client.as_ref().is_some_and(|client| client.is_overdue()) {
            error.etype = ErrorType::ReadTimedout;
            error.as_up();
        }
        let by_node = *error.esource() == ErrorSource::Upstream;
        // A server may close an idle connection just as it is used again: no failure of the node.
        let idle_close = client_reused && matches!(error.etype(), ConnectionClosed | ReadError);
        if by_node
            && !idle_close
            && let Some(at) = &ctx.at
        {
            self.view.on_failure(at.node, clock::now(), Failure::Other);
        }
        let repeatable = by_node
            && ctx.tries <= self.limits.retries
            && session.req_header().method.is_idempotent()
            && session.response_written().is_none()
            && !session.as_ref().retry_buffer_truncated();
        error.set_retry(repeatable);
        error
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Visit,
    ) -> Result<()> {
        let status = response.status;
        if let Some(at) = &mut ctx.at {
            self.view.on_success(at.node);
            // What only says that the answer is to come is none.
            if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
                if at.stage != Stage::Answered && status.as_u16() < 400 {
                    self.view.answered(at.node);
                }
                at.enter(Stage::Answered);
            }
        }
        // What fails may do so fast: it says nothing of how long those wait who are served.
        if let (Some(gate), Some(site)) = (&self.gate, ctx.site)
            && (200..400).contains(&status.as_u16())
        {
            gate.succeeded(site, clock::now().since(ctx.begun));
        }
        // An answer under way must not be broken by the word that the client was slow.
        if let Some(client) = &ctx.client {
            client.request_done();
        }
        Ok(())
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, ctx: &mut Visit) -> FailToProxy {
        Self::leave(ctx);
        let code = match (error.etype(), error.esource()) {
            (ErrorType::HTTPStatus(code), _) => *code,
            (ErrorType::ReadTimedout, ErrorSource::Upstream) => 504,
            (_, ErrorSource::Upstream) => 502,
            // The client is gone or was shown out by the door.
            (_, ErrorSource::Downstream) => 0,
            _ => 500,
        };
        if code > 0 && session.response_written().is_none() {
            let _ = session.respond_error(code).await;
            linger(session).await;
        }
        FailToProxy { error_code: code, can_reuse_downstream: false }
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut Visit) {
        Self::leave(ctx);
        let now = clock::now();
        let elapsed = now.since(ctx.begun);
        let status = session.response_written().map_or(0, |response| response.status.as_u16());
        self.metrics.answered(ctx.site, status, elapsed, ctx.tries);
        if let Some(error) = error {
            tracing::debug!(%error, status, "request failed");
        }
        if let Some(client) = &ctx.client {
            client.answered(now);
        }
        if let Some(log) = &self.log {
            log.write(Entry {
                client: session
                    .client_addr()
                    .and_then(|a| a.as_inet())
                    .map_or_else(|| "-".into(), |a| a.ip().to_canonical().to_string()),
                request: format!("{} {} HTTP/1.1", session.req_header().method, session.req_header().uri),
                status: if status == 0 { UNANSWERED } else { status },
                bytes: session.body_bytes_sent(),
                site: ctx.site.map(|site| Arc::clone(&self.site_names[site.index()])),
                node: ctx.tried.map(|node| Arc::clone(&self.nodes[node.index()].0)),
                micros: elapsed.as_micros(),
                tries: ctx.tries,
            });
        }
    }

    // Failures are counted, and said by the watch thread once per node: a line for each request of a dead node would
    // fill the disk just then.

    fn suppress_error_log(&self, _session: &Session, _ctx: &Visit, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _ctx: &Visit,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

/// Answers at once, in place of a node. The connection stays, for the request that follows.
async fn answer(session: &mut Session, mut response: ResponseHeader, text: &'static [u8]) -> Result<bool> {
    response.insert_header(header::CONTENT_TYPE, "text/plain; charset=utf-8")?;
    response.insert_header(header::CONTENT_LENGTH, text.len())?;
    session.write_response_header(Box::new(response), false).await?;
    session.write_response_body(Some(Bytes::from_static(text)), true).await?;
    Ok(true)
}

/// Over HTTP/2, after an answer that its client need not have waited for: a stream that ends before the client has sent all is
/// reset, and the answer may be lost with it.
async fn linger(session: &mut Session) {
    if session.is_http2() {
        let rest = async { while matches!(session.as_mut().read_request_body().await, Ok(Some(_))) {} };
        let _ = tokio::time::timeout(LINGER, rest).await;
    }
}

/// How Pingora reaches a node.
fn peer(address: SocketAddr, limits: &Limits) -> HttpPeer {
    let mut peer = HttpPeer::new(address, false, String::new());
    peer.options.connection_timeout = Some(limits.connect_timeout);
    peer.options.total_connection_timeout = Some(limits.connect_timeout);
    // A node that is gone or takes nothing is the kernel's to notice, on connections in use and in the pool alike.
    let silence_max = limits.door.response_timeout.max(Duration::from_secs(KEEPALIVE_PROBES.into()));
    peer.options.tcp_keepalive = Some(TcpKeepalive {
        idle: silence_max,
        interval: silence_max / KEEPALIVE_PROBES,
        count: KEEPALIVE_PROBES as usize,
        user_timeout: silence_max,
    });
    peer
}
