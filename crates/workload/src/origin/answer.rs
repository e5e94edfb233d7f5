//! One request: what it asks for, a worker's time, and the response.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::book::Full;
use super::burn::Burners;
use super::config::{NODE_HEADER, OriginConfig, OriginError, ServiceTime};
use super::connections::{Connections, Pulse};
use super::content::{Content, ContentBody, synthetic_bytes};
use super::files::{Absent, Files};
use super::gauges::OriginGauges;
use super::workers::Workers;

/// How often a file is tried for which there is no descriptor, while idle connections leave.
const FILE_TRIES: u32 = 10;

static NODE: HeaderName = HeaderName::from_static(NODE_HEADER);

/// An origin without its sockets.
pub(super) struct Origin {
    pub(super) config: OriginConfig,
    pub(super) gauges: Arc<OriginGauges>,
    pub(super) connections: Connections,
    name: Option<HeaderValue>,
    files: Option<Files>,
    /// `None` if requests take no time.
    workers: Option<Workers>,
    /// `Some` if requests take CPU time.
    burners: Option<Burners>,
}

/// Why a request was not served.
enum Refusal {
    Method,
    BodyTooLarge,
    BodyBroken,
    Absent(Absent),
    Busy(Full),
}

impl Origin {
    pub(super) fn new(config: OriginConfig, gauges: Arc<OriginGauges>) -> Result<Self, OriginError> {
        let name = config.check()?;
        let files = Files::open(&config)?;
        let workers = config.takes_time().then(|| Workers::new(&config));
        let burners = match config.service {
            ServiceTime::Burn { mean } => {
                let workers = config.workers;
                let started = Burners::start(workers, mean, config.queue_depth_max);
                Some(started.map_err(|source| OriginError::Burners { workers, source })?)
            }
            ServiceTime::None | ServiceTime::Fixed(_) | ServiceTime::Exponential { .. } => None,
        };
        gauges.workers.store(config.workers, Relaxed);
        Ok(Origin { config, gauges, connections: Connections::default(), name, files, workers, burners })
    }

    pub(super) async fn answer(
        &self,
        pulse: &Arc<Pulse>,
        request: Request<Incoming>,
    ) -> Response<ContentBody> {
        pulse.beat();
        let mut response = match request.uri().path() {
            "/healthz" => self.response(StatusCode::OK),
            _ => self.served(pulse, request).await,
        };
        if pulse.is_leaving() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The answer to a request that counts.
    async fn served(&self, pulse: &Arc<Pulse>, request: Request<Incoming>) -> Response<ContentBody> {
        self.gauges.arrived(request.headers().get(HOST));
        let wants_body = request.method() != Method::HEAD;
        let (head, body) = request.into_parts();
        let response = match self.obtain(pulse, &head, body).await {
            Ok(content) => {
                self.gauges.served_total.fetch_add(1, Relaxed);
                if wants_body {
                    self.gauges.sent_bytes_total.fetch_add(content.bytes(), Relaxed);
                }
                // For HEAD hyper omits the body and keeps its size.
                let (response, pulse) = (self.response(StatusCode::OK), Arc::clone(pulse));
                match (&self.config.documents, content.state.clone()) {
                    (Some(documents), Some(state)) => {
                        documents.answer(&head, content, &state, response, pulse)
                    }
                    _ => {
                        let content_type = HeaderValue::from_static(content.content_type);
                        let mut response = response.map(|_| content.into_body(pulse));
                        response.headers_mut().insert(CONTENT_TYPE, content_type);
                        response
                    }
                }
            }
            Err(refusal) => self.refuse(&refusal),
        };
        self.gauges.changed();
        pulse.beat();
        response
    }

    /// What a request asks for, after a worker has spent its time on it.
    async fn obtain(&self, pulse: &Pulse, head: &Parts, body: Incoming) -> Result<Content, Refusal> {
        if !matches!(head.method, Method::GET | Method::HEAD | Method::POST) {
            return Err(Refusal::Method);
        }
        if !body.is_end_stream() {
            self.read(pulse, body).await?;
        }
        let found = self.content(head.uri.path()).await;
        if let Some(documents) = &self.config.documents {
            // Before a worker is waited for: others need not wait.
            documents.tell(head, &found, self.name.as_ref());
        }
        let content = found.map_err(Refusal::Absent)?;
        if let Some(workers) = &self.workers {
            let sent_bytes = if head.method == Method::HEAD { 0 } else { content.bytes() };
            let turn = workers.take(&self.gauges, sent_bytes).map_err(Refusal::Busy)?;
            pulse.working(true);
            turn.end().await;
            pulse.working(false);
        }
        if let Some(burners) = &self.burners {
            let ended = burners.take(&self.gauges, head.uri.path()).map_err(Refusal::Busy)?;
            pulse.working(true);
            // It ends without its work only if the origin itself ends.
            let _ = ended.await;
            pulse.working(false);
        }
        Ok(content)
    }

    /// Reads a request body and drops it.
    async fn read(&self, pulse: &Pulse, mut body: Incoming) -> Result<(), Refusal> {
        // If its announced size is too large, it is refused before any of it is read.
        if body.size_hint().lower() > self.config.body_bytes_max {
            return Err(Refusal::BodyTooLarge);
        }
        let mut bytes_left = self.config.body_bytes_max;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Refusal::BodyBroken)?;
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            self.gauges.received_bytes_total.fetch_add(bytes, Relaxed);
            bytes_left = bytes_left.checked_sub(bytes).ok_or(Refusal::BodyTooLarge)?;
            pulse.beat();
        }
        Ok(())
    }

    async fn content(&self, path: &str) -> Result<Content, Absent> {
        if let Some(body) = &self.config.body {
            return Ok(Content::whole(body.clone(), "application/octet-stream"));
        }
        if let Some(bytes) = synthetic_bytes(path) {
            let fits = bytes <= self.config.synthetic_bytes_max;
            return if fits { Ok(Content::synthetic(bytes)) } else { Err(Absent::TooLarge) };
        }
        match &self.files {
            Some(files) => {
                for _ in 0..FILE_TRIES {
                    match files.get(path).await {
                        Err(Absent::Shortage) => self.connections.make_room().await,
                        got => return got,
                    }
                }
                Err(Absent::Shortage)
            }
            None => Err(Absent::Missing),
        }
    }

    fn refuse(&self, refusal: &Refusal) -> Response<ContentBody> {
        let mut response = self.response(match refusal {
            Refusal::Method => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::BodyBroken => StatusCode::BAD_REQUEST,
            Refusal::Absent(Absent::Missing) => StatusCode::NOT_FOUND,
            Refusal::Absent(Absent::TooLarge) => StatusCode::FORBIDDEN,
            Refusal::Absent(Absent::Unreadable) => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::Absent(Absent::Shortage) | Refusal::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
        });
        self.gauges.errors_total.fetch_add(1, Relaxed);
        match refusal {
            Refusal::Busy(full) => {
                self.gauges.refused_total.fetch_add(1, Relaxed);
                // The header has whole seconds only.
                let retry_after_s = full.wait.div_ceil(1_000_000_000).max(1);
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after_s));
            }
            Refusal::Absent(Absent::Shortage) => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Refusal::Method => {
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
            }
            _ => {}
        }
        response
    }

    /// An empty response with the node's name.
    fn response(&self, status: StatusCode) -> Response<ContentBody> {
        let mut response = Response::new(ContentBody::empty());
        *response.status_mut() = status;
        if let Some(name) = &self.name {
            response.headers_mut().insert(&NODE, name.clone());
        }
        response
    }
}
