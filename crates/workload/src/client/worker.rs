//! One request from its source to the ledger, the same for both loops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::config::ClientConfig;
use super::ledger::{Entry, Ledger};
use super::link::{Answer, Link};

/// Longest node name that is told apart, in bytes: it comes from outside.
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
    /// Body; mostly empty.
    pub body: Bytes,
}

impl Shot {
    /// A GET.
    pub fn get(site: usize, host: HeaderValue, uri: Uri) -> Self {
        Shot { site, host, uri, method: Method::GET, body: Bytes::new() }
    }
}

/// Where requests come from: any `Fn(u64) -> Shot`.
///
/// The index counts the requests of the whole run, over all edges and connections, so that a burst of one site is one
/// everywhere. Each index is asked for once; called from several threads, and on the way of every request.
///
/// # Panics
/// A run panics where the site of a shot is none of [`ClientConfig::sites`].
pub trait Source: Send + Sync {
    /// The `index`-th request of the run, counted from 0.
    fn shot(&self, index: u64) -> Shot;

    /// When the `index`-th request may be sent at the earliest; asked for before its shot, in a closed loop only (an
    /// open one has its own times). `None` for at once.
    fn not_before(&self, _index: u64) -> Option<Instant> {
        None
    }
}

impl<F: Fn(u64) -> Shot + Send + Sync> Source for F {
    fn shot(&self, index: u64) -> Shot {
        self(index)
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No connection could be made.
    Connect,
    /// [`ClientConfig::timeout`] went by.
    Timeout,
    /// The connection ended before the response began, or what came was no HTTP.
    Broken,
    /// The connection ended within the response.
    Body,
    /// The response was a 4xx.
    Status4xx,
    /// The response was a 5xx.
    Status5xx,
}

/// What became of one request; see [`Generator::observe`](super::Generator::observe).
#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    /// As given to the source.
    pub index: u64,
    /// Index of its site.
    pub site: usize,
    /// Index of the edge that it was sent to.
    pub edge: usize,
    /// The node that answered, if it said so in `x-sidelong-node`.
    pub node: Option<&'a str>,
    /// When it should have been sent, in an open loop; else when it was.
    pub due_at: Instant,
    /// When it was sent, or was given up before.
    pub sent_at: Instant,
    /// When the response was complete, or the request had failed.
    pub done_at: Instant,
    /// Status of a complete response.
    pub status: Option<StatusCode>,
    /// None if it succeeded.
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

/// How the other side took a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flown {
    Answered,
    /// With 503: later, perhaps.
    Refused,
}

/// A request under way.
pub(super) struct Flight {
    pub(super) index: u64,
    pub(super) edge: usize,
    /// None in a closed loop, where it is due when it is sent.
    pub(super) due_at: Option<Instant>,
}

impl Worker {
    pub(super) fn is_stopped(&self) -> bool {
        *self.shared.stop.borrow()
    }

    /// Resolves when the run is stopped.
    pub(super) async fn stopped(&self) {
        // The error would say that the sender is gone, which is held here.
        let _ = self.shared.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Waits for `time` or the stop, whichever comes first.
    pub(super) async fn pause(&self, time: Duration) {
        let _ = timeout(time, self.stopped()).await;
    }

    /// The next index of the run, in a closed loop; none when the run is over.
    pub(super) fn next_index(&self) -> Option<u64> {
        if self.is_stopped() || self.is_over(Instant::now()) {
            return None;
        }
        let index = self.shared.next_index.fetch_add(1, Relaxed);
        self.is_wanted(index).then_some(index)
    }

    pub(super) fn is_wanted(&self, index: u64) -> bool {
        self.shared.config.requests_max.is_none_or(|max| index < max)
    }

    /// Whether nothing is sent any more at `now`.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let running = now.saturating_duration_since(self.shared.epoch);
        self.shared.config.duration_max.is_some_and(|max| running >= max)
    }

    /// Makes one request on `link`, connecting first if need be, and enters what became of it. The link is there
    /// afterwards if it can be used again.
    ///
    /// # Errors
    /// What went wrong, statuses aside.
    pub(super) async fn fly(
        &self,
        link: &mut Option<Link>,
        flight: Flight,
        shot: Shot,
    ) -> Result<Flown, ErrorKind> {
        let config = &self.shared.config;
        let edge = config.edges[flight.edge];
        let deadline = Instant::now() + config.timeout;
        let site = shot.site;
        let connected = connect(link, edge, deadline).await;
        let sent_at = Instant::now();
        let result = match connected {
            Ok(open) => {
                let result = open.exchange(request(shot), deadline).await;
                if result.is_err() {
                    *link = None;
                }
                result
            }
            Err(error) => Err(error),
        };
        self.enter(&flight, site, sent_at, &result);
        result.map(|answer| match answer.status {
            StatusCode::SERVICE_UNAVAILABLE => Flown::Refused,
            _ => Flown::Answered,
        })
    }

    /// Enters a request that has ended.
    pub(super) fn enter(
        &self,
        flight: &Flight,
        site: usize,
        sent_at: Instant,
        result: &Result<Answer, ErrorKind>,
    ) {
        let done_at = Instant::now();
        let due_at = flight.due_at.unwrap_or(sent_at);
        let answer = result.as_ref().ok();
        let completion = Completion {
            index: flight.index,
            site,
            edge: flight.edge,
            node: answer.and_then(|answer| node_name(answer.node.as_ref()?)),
            due_at,
            sent_at,
            done_at,
            status: answer.map(|answer| answer.status),
            error: match result {
                Err(error) => Some(*error),
                Ok(answer) if answer.status.is_server_error() => Some(ErrorKind::Status5xx),
                Ok(answer) if answer.status.is_client_error() => Some(ErrorKind::Status4xx),
                Ok(_) => None,
            },
        };
        self.shared.ledger.enter(
            self.number,
            &Entry {
                site,
                edge: flight.edge,
                node: completion.node,
                error: completion.error,
                latency: done_at.saturating_duration_since(due_at),
                bytes: answer.map_or(0, |answer| answer.bytes),
                at: done_at.saturating_duration_since(self.shared.epoch),
            },
        );
        if let Some(observer) = &self.shared.observer {
            observer(&completion);
        }
    }
}

/// The link if it is still of use, or else a new one.
async fn connect(
    link: &mut Option<Link>,
    edge: SocketAddr,
    deadline: Instant,
) -> Result<&mut Link, ErrorKind> {
    if let Some(mut open) = link.take()
        && open.is_usable().await
    {
        return Ok(link.insert(open));
    }
    Ok(link.insert(Link::open(edge, deadline).await?))
}

fn request(shot: Shot) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(shot.body));
    *request.method_mut() = shot.method;
    *request.uri_mut() = shot.uri;
    request.headers_mut().insert(HOST, shot.host);
    request
}

fn node_name(header: &HeaderValue) -> Option<&str> {
    header.to_str().ok().filter(|name| name.len() <= NODE_BYTES_MAX)
}
