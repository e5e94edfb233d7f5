//! One request from its source to the ledger, the same for both loops.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::config::{ClientConfig, WhenRejected};
use super::ledger::{Entry, Ledger};
use super::link::{Answer, Link};

/// Longest node name that is recorded, in bytes: it comes from outside.
const NODE_BYTES_MAX: usize = 64;

/// One request to be made.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Index of its site in [`ClientConfig::sites`].
    pub site: usize,
    /// Host header: the site as the edges know it.
    pub host: HeaderValue,
    /// Path and query.
    pub uri: Uri,
    /// Method.
    pub method: Method,
    /// Body; usually empty.
    pub body: Bytes,
}

impl Shot {
    /// A GET.
    pub fn get(site: usize, host: HeaderValue, uri: Uri) -> Self {
        Shot { site, host, uri, method: Method::GET, body: Bytes::new() }
    }
}

/// What a source is told about the request that it is to make.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cue {
    /// Number of the request in the whole run, from 0, over all edges and connections, so that a burst for one site is
    /// a burst everywhere.
    pub index: u64,
    /// The stream of [`Arrivals::Streams`](super::Arrivals::Streams) that it belongs to; otherwise 0.
    pub stream: usize,
    /// Number of the request in its stream, from 0.
    pub nth: u64,
    /// Index of its sender in [`ClientConfig::clients`]; 0 if there are none.
    pub client: usize,
}

/// A source of requests: any `Fn(Cue) -> Shot`.
///
/// It is called once for each index, from several threads, on the path of every request.
///
/// # Panics
/// A run panics if the site of a shot is not in [`ClientConfig::sites`].
pub trait Source: Send + Sync {
    /// The request for `cue`.
    fn shot(&self, cue: Cue) -> Shot;

    /// The earliest time at which the `index`-th request may be sent, asked for before its shot. Only in a closed loop,
    /// because an open one has its own times. `None` for at once.
    fn not_before(&self, _index: u64) -> Option<Instant> {
        None
    }
}

impl<F: Fn(Cue) -> Shot + Send + Sync> Source for F {
    fn shot(&self, cue: Cue) -> Shot {
        self(cue)
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No connection could be made.
    Connect,
    /// [`ClientConfig::timeout`] has passed.
    Timeout,
    /// The connection was made, and ended before the response to its first request began: closed at the door.
    Closed,
    /// The connection ended before the response to a later request began, or the response was not HTTP.
    Broken,
    /// The connection ended within the response.
    Body,
    /// The response was a 4xx.
    Status4xx,
    /// The response was a 503 with a reason in `x-sidelong-reason`: the request was rejected.
    Rejected,
    /// The response was a 503 without a reason: no node could serve the request, or another server rejected it.
    Unavailable,
    /// The response was another 5xx.
    Status5xx,
    /// The response was a success, and another page than was asked for. Only a [walker](crate::walk) reads pages.
    WrongPage,
}

impl ErrorKind {
    /// What a complete response of this status is, with or without a reason for a rejection; `None` for a success.
    pub(crate) fn of(status: StatusCode, has_reason: bool) -> Option<Self> {
        match status {
            StatusCode::SERVICE_UNAVAILABLE if has_reason => Some(ErrorKind::Rejected),
            StatusCode::SERVICE_UNAVAILABLE => Some(ErrorKind::Unavailable),
            status if status.is_server_error() => Some(ErrorKind::Status5xx),
            status if status.is_client_error() => Some(ErrorKind::Status4xx),
            _ => None,
        }
    }

    /// Whether there was a response.
    pub(crate) fn is_answer(self) -> bool {
        use ErrorKind::{Rejected, Status4xx, Status5xx, Unavailable, WrongPage};
        matches!(self, Status4xx | Rejected | Unavailable | Status5xx | WrongPage)
    }

    /// Whether the request was rejected, rather than failed.
    pub fn is_refusal(self) -> bool {
        matches!(self, ErrorKind::Rejected | ErrorKind::Closed)
    }

    /// Whether the client was told of overload: it was rejected, or got any 503.
    pub fn is_overload(self) -> bool {
        self.is_refusal() || self == ErrorKind::Unavailable
    }
}

/// The outcome of one request; see [`Generator::observe`](super::Generator::observe).
#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    /// As given to the source. If a client repeats a rejected request, each attempt has it.
    pub cue: Cue,
    /// Index of its site.
    pub site: usize,
    /// Index of the edge that it was sent to.
    pub edge: usize,
    /// The node that answered, if it said so in `x-sidelong-node`.
    pub node: Option<&'a str>,
    /// When it should have been sent, in an open loop; otherwise when it was sent.
    pub due_at: Instant,
    /// When it was sent, or given up before that.
    pub sent_at: Instant,
    /// When the response was complete, or the request had failed.
    pub done_at: Instant,
    /// Status of a complete response.
    pub status: Option<StatusCode>,
    /// `None` if it succeeded.
    pub error: Option<ErrorKind>,
}

pub(super) type Observer = dyn Fn(&Completion<'_>) + Send + Sync;

/// What all threads of a run share.
pub(super) struct Shared {
    pub(super) config: ClientConfig,
    pub(super) source: Box<dyn Source>,
    pub(super) observer: Option<Box<Observer>>,
    pub(super) ledger: Ledger,
    pub(super) epoch: Instant,
    pub(super) next_index: AtomicU64,
    pub(super) stop: Arc<watch::Sender<bool>>,
}

/// One thread's part of a run.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    /// Its number among the threads, and its page of the ledger.
    pub(super) number: usize,
}

/// A request in progress.
#[derive(Clone, Copy)]
pub(super) struct Flight {
    pub(super) cue: Cue,
    pub(super) edge: usize,
    /// `None` in a closed loop, where it is due when it is sent.
    pub(super) due_at: Option<Instant>,
}

impl Worker {
    pub(super) fn is_stopped(&self) -> bool {
        *self.shared.stop.borrow()
    }

    /// Resolves when the run is stopped.
    pub(super) async fn stopped(&self) {
        // An error would mean that the sender is gone, but it is held here.
        let _ = self.shared.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Waits for `time` or the stop, whichever comes first.
    pub(super) async fn pause(&self, time: Duration) {
        let _ = timeout(time, self.stopped()).await;
    }

    /// The next index of the run, in a closed loop; `None` when the run is over.
    pub(super) fn next_index(&self) -> Option<u64> {
        if self.is_stopped() || self.is_over(Instant::now()) {
            return None;
        }
        let index = self.shared.next_index.fetch_add(1, Relaxed);
        self.is_wanted(index).then_some(index)
    }

    /// The edge that a request is sent to: that of its site, if sites have their own.
    pub(super) fn edge_of(&self, shot: &Shot, otherwise: usize) -> usize {
        if self.shared.config.is_edge_of_site { shot.site } else { otherwise }
    }

    pub(super) fn is_wanted(&self, index: u64) -> bool {
        self.shared.config.requests_max.is_none_or(|max| index < max)
    }

    /// Whether nothing more is sent at `now`.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let running = now.saturating_duration_since(self.shared.epoch);
        self.shared.config.duration_max.is_some_and(|max| running >= max)
    }

    /// Makes one request on `link`, connecting first if necessary, and records its outcome. If it is rejected and its
    /// client repeats at once, it does so until the time is up. The link remains if it can be used again.
    ///
    /// # Errors
    /// The outcome, if the request did not succeed.
    pub(super) async fn fly(
        &self,
        link: &mut Option<Link>,
        mut flight: Flight,
        shot: Shot,
    ) -> Result<(), ErrorKind> {
        let repeats = self.shared.config.when_rejected == WhenRejected::Repeat;
        let deadline = Instant::now() + self.shared.config.timeout;
        loop {
            let error = match self.fly_once(link, flight, &shot, deadline).await {
                Err(error) if repeats && error.is_overload() => error,
                flown => return flown,
            };
            let now = Instant::now();
            if now >= deadline || self.is_over(now) || self.is_stopped() {
                return Err(error);
            }
            flight.due_at = None;
        }
    }

    async fn fly_once(
        &self,
        link: &mut Option<Link>,
        flight: Flight,
        shot: &Shot,
        deadline: Instant,
    ) -> Result<(), ErrorKind> {
        let config = &self.shared.config;
        let began_at = Instant::now();
        let from = config.clients.get(flight.cue.client).copied();
        let connected = connect(link, from, config, config.edges[flight.edge], deadline).await;
        let sent_at = Instant::now();
        let result = match connected {
            Ok(open) => open.exchange(request(shot), deadline).await,
            Err(error) => Err(error),
        };
        if result.is_err() || !config.keep_alive {
            *link = None;
        }
        self.enter(&flight, shot.site, [began_at, sent_at], &result)
    }

    /// Records a completed request, with its start and sending times, and returns whether it failed.
    pub(super) fn enter(
        &self,
        flight: &Flight,
        site: usize,
        times: [Instant; 2],
        result: &Result<Answer, ErrorKind>,
    ) -> Result<(), ErrorKind> {
        let error = match result {
            Err(ErrorKind::Closed) if !self.shared.config.may_be_closed => Some(ErrorKind::Broken),
            Err(error) => Some(*error),
            Ok(answer) => ErrorKind::of(answer.status, answer.has_reason),
        };
        self.enter_as(flight, site, times, result.as_ref().ok(), error);
        error.map_or(Ok(()), Err)
    }

    /// Records a completed request whose outcome is known.
    fn enter_as(
        &self,
        flight: &Flight,
        site: usize,
        [began_at, sent_at]: [Instant; 2],
        answer: Option<&Answer>,
        error: Option<ErrorKind>,
    ) {
        let done_at = Instant::now();
        let due_at = flight.due_at.unwrap_or(sent_at);
        let completion = Completion {
            cue: flight.cue,
            site,
            edge: flight.edge,
            node: answer.and_then(|answer| node_name(answer.node.as_ref()?)),
            due_at,
            sent_at,
            done_at,
            status: answer.map(|answer| answer.status),
            error,
        };
        let since_start = |time: Instant| time.saturating_duration_since(self.shared.epoch);
        self.shared.ledger.enter(
            self.number,
            &Entry {
                site,
                edge: flight.edge,
                client: flight.cue.client,
                node: completion.node,
                error,
                latency: done_at.saturating_duration_since(due_at),
                lag: began_at.saturating_duration_since(due_at),
                bytes: answer.map_or(0, |answer| answer.bytes),
                due: since_start(due_at),
                at: since_start(done_at),
            },
        );
        if let Some(observer) = &self.shared.observer {
            observer(&completion);
        }
    }
}

/// Enters requests that another load sends to one of a run's sites into the run's figures; see
/// [`Run::recorder`](super::Run::recorder).
pub struct Recorder {
    pub(super) worker: Worker,
    pub(super) site: usize,
}

impl Recorder {
    /// A request to the `edge`-th edge, sent at `sent_at`, has ended now.
    pub(crate) fn enter(
        &self,
        edge: usize,
        sent_at: Instant,
        answer: Option<&Answer>,
        error: Option<ErrorKind>,
    ) {
        let cue = Cue { index: 0, stream: 0, nth: 0, client: 0 };
        let flight = Flight { cue, edge, due_at: None };
        self.worker.enter_as(&flight, self.site, [sent_at; 2], answer, error);
    }
}

/// The link if it is still usable, otherwise a new one.
async fn connect<'a>(
    link: &'a mut Option<Link>,
    from: Option<IpAddr>,
    config: &ClientConfig,
    edge: SocketAddr,
    deadline: Instant,
) -> Result<&'a mut Link, ErrorKind> {
    if let Some(mut open) = link.take()
        && open.is_usable().await
    {
        return Ok(link.insert(open));
    }
    Ok(link.insert(Link::open(from, edge, config.secure.as_ref(), deadline).await?))
}

fn request(shot: &Shot) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(shot.body.clone()));
    *request.method_mut() = shot.method.clone();
    *request.uri_mut() = shot.uri.clone();
    request.headers_mut().insert(HOST, shot.host.clone());
    request
}

fn node_name(header: &HeaderValue) -> Option<&str> {
    header.to_str().ok().filter(|name| name.len() <= NODE_BYTES_MAX)
}
