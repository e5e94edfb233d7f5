//! The path of a request: its site by Host, its node by the view, one retry at another node, metrics and the access
//! log.

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
use rustix::io::Errno;
use sidelong_layout::{NodeId, SiteId, Time};
use sidelong_policy::admission::Refused;
use sidelong_policy::health::Failure;

use crate::access_log::{AccessLog, Entry};
use crate::clock;
use crate::closing::{Closing, UnderWay};
use crate::door::Client;
use crate::gate::{GREEDY_WORD, Gate};
use crate::metrics::Metrics;
use crate::settings::{EdgeSettings, Limits, NodeAddress};
use crate::view::View;

/// Longest wait of a request for a node of its site; then it is answered with 503.
const WAIT_FOR_NODE_MAX: Duration = Duration::from_secs(1);
/// Time between two attempts meanwhile.
const WAIT_STEP: Duration = Duration::from_millis(1);
/// Most requests of a site that wait for a node.
const WAITING_MAX: u32 = 10_000;

/// Probes of a silent connection to a node before it is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// The addresses that a request came through: the client's, and one for each proxy.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Most bytes of a rejected request's body that are read over HTTP/1 to keep the connection. With a larger body it is closed
/// after the answer. Over HTTP/2 the limit is that of all bodies.
const REFUSED_BODY_BYTES_MAX: u64 = 64 << 10;
/// Longest time that an HTTP/2 client's body is still read after an early answer, so that the client can see the answer and
/// stop.
const LINGER: Duration = Duration::from_secs(1);
/// The header with the reason of a rejection.
const REASON: &str = "x-sidelong-reason";

/// Status in the access log if the client left, or was disconnected by the door, before it was answered. The number is
/// nginx's, as Common Log Format needs three digits.
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
        settings: &EdgeSettings,
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

    /// The site of a request: by the authority of its target, otherwise by its Host header (RFC 9110, 7.2).
    fn site_of(&self, request: &RequestHeader) -> Option<SiteId> {
        let host = match request.uri.host() {
            Some(host) => host,
            None => {
                let host = request.headers.get(header::HOST)?.to_str().ok()?;
                // The port, not a part of an IPv6 address.
                host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(host, |(name, _)| name)
            }
        };
        match self.hosts.get(host) {
            Some(site) => Some(*site),
            None => self.hosts.get(&host.to_ascii_lowercase()).copied(),
        }
    }

    /// A node, at once or as soon as one is available.
    async fn node_for(&self, site: SiteId, tried: Option<NodeId>, now: Time) -> Option<AtNode> {
        let choose = |tried, now| {
            let node = self.view.choose(site, tried, now)?;
            Some(AtNode { view: Arc::clone(&self.view), node, stage: Stage::Sent, since: now })
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
            // The tried node may be the only one of the site, and back.
            let chosen = choose(tried, clock::now());
            if let Some(at) = chosen.or_else(|| choose(None, clock::now())) {
                return Some(at);
            }
        }
        None
    }

    /// Whether the request is admitted.
    fn admit(&self, site: SiteId, ctx: &Visit) -> Result<(), Refused> {
        let Some(gate) = &self.gate else { return Ok(()) };
        let client = ctx.client.as_ref().map(|client| client.known()).unwrap_or_default();
        gate.decide(site, client, ctx.begun, self.view.is_stale(ctx.begun))
    }

    /// Reads the body of a rejected request. Unread, its connection would have to be closed, and an HTTP/2 client would see a
    /// broken stream and no answer. A body that is too long or too slow is left unread.
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
        // Over HTTP/1 the door has answered by then; an HTTP/2 client is answered all the same.
        tokio::time::timeout(self.limits.door.body_timeout, pass).await.unwrap_or(Ok(()))
    }

    /// The request has left its node.
    fn leave(ctx: &mut Visit) {
        if let Some(at) = ctx.at.take() {
            ctx.tried = Some(at.node);
        }
    }
}

/// A request at a node, counted there while this lives.
struct AtNode {
    view: Arc<View>,
    node: NodeId,
    stage: Stage,
    /// When it was chosen, or fully sent: the client's time to send it is not the node's.
    since: Time,
}

/// The progress of a request at its node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The client is still sending it.
    Sent,
    /// It waits for its answer.
    Waiting,
    Answered,
}

impl AtNode {
    fn enter(&mut self, stage: Stage) {
        match (std::mem::replace(&mut self.stage, stage), stage) {
            (Stage::Sent, Stage::Waiting) => {
                self.since = clock::now();
                self.view.waits(self.node);
            }
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

/// One request.
pub(crate) struct Visit {
    begun: Time,
    client: Option<Arc<Client>>,
    site: Option<SiteId>,
    /// The node where it is.
    at: Option<AtNode>,
    /// The node where it was before.
    tried: Option<NodeId>,
    tries: u32,
    /// Whether the request is complete.
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
        // Pingora's default adds response compression, which is left to the servers.
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
        // Over HTTP/1 the door enforces this.
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
            return Error::e_explain(ErrorType::HTTPStatus(503), "no node of the site is available");
        };
        let mut peer = Box::new(self.nodes[at.node.index()].1.clone());
        if ctx.is_whole {
            at.enter(Stage::Waiting);
        }
        ctx.at = Some(at);
        // Over HTTP/1 the door enforces this.
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
        if is_shortage(&error) {
            // The next node would be reached no better.
            return Error::explain(
                ErrorType::HTTPStatus(503),
                "this edge has no descriptor for a connection",
            );
        }
        let refused = !matches!(error.etype(), ConnectTimedout);
        if let Some(at) = &ctx.at {
            let failure = if refused { Failure::Refused } else { Failure::Other };
            self.view.on_failure(at.node, clock::now(), failure);
        }
        // Nothing was sent, so even a request that is not idempotent may go to another node.
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
        // The door ended the wait, but the node is to blame.
        if ctx.client.as_ref().is_some_and(|client| client.is_overdue()) {
            error.etype = ErrorType::ReadTimedout;
            error.as_up();
        }
        let by_node = *error.esource() == ErrorSource::Upstream;
        // A server may close an idle connection just as it is reused; the node did not fail.
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
            // An informational response is no answer.
            if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
                if at.stage != Stage::Answered && status.as_u16() < 400 {
                    let now = clock::now();
                    self.view.answered(at.node, now, now.since(at.since));
                }
                at.enter(Stage::Answered);
            }
        }
        // A failure may be fast, and says nothing about response times.
        if let (Some(gate), Some(site)) = (&self.gate, ctx.site)
            && (200..400).contains(&status.as_u16())
        {
            gate.succeeded(site, clock::now().since(ctx.begun));
        }
        // An answer in progress must not be broken by a 408.
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
            // The client left, or the door disconnected it.
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

    // Failures are counted, and the watch thread logs them once per node. A line for each request to a dead node would fill
    // the disk.

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

/// Whether this process or machine had no descriptor, memory or port left, for which the node is not to blame.
fn is_shortage(error: &Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.and_then(Errno::from_io_error).is_some_and(|errno| short.contains(&errno))
}

/// Answers instead of a node. The connection is kept for the next request.
async fn answer(session: &mut Session, mut response: ResponseHeader, text: &'static [u8]) -> Result<bool> {
    response.insert_header(header::CONTENT_TYPE, "text/plain; charset=utf-8")?;
    response.insert_header(header::CONTENT_LENGTH, text.len())?;
    session.write_response_header(Box::new(response), false).await?;
    session.write_response_body(Some(Bytes::from_static(text)), true).await?;
    Ok(true)
}

/// Reads what an HTTP/2 client still sends after an early answer: a stream that ends before its request is reset, and the
/// answer may be lost with it.
async fn linger(session: &mut Session) {
    if session.is_http2() {
        let rest = async { while matches!(session.as_mut().read_request_body().await, Ok(Some(_))) {} };
        let _ = tokio::time::timeout(LINGER, rest).await;
    }
}

/// Pingora's description of a node.
fn peer(address: SocketAddr, limits: &Limits) -> HttpPeer {
    let mut peer = HttpPeer::new(address, false, String::new());
    peer.options.connection_timeout = Some(limits.connect_timeout);
    peer.options.total_connection_timeout = Some(limits.connect_timeout);
    // The kernel notices a node that is gone or takes nothing, on connections in use and in the pool.
    let silence_max = limits.door.response_timeout.max(Duration::from_secs(KEEPALIVE_PROBES.into()));
    peer.options.tcp_keepalive = Some(TcpKeepalive {
        idle: silence_max,
        interval: silence_max / KEEPALIVE_PROBES,
        count: KEEPALIVE_PROBES as usize,
        user_timeout: silence_max,
    });
    peer
}
