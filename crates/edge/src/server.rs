//! The edge as a server: the data path with the edge's routes, and an admin endpoint beside it.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sidelong_proxy::{Listener, Proxy, Stop};
use sidelong_reconfig::SharedMembers;

use crate::admin::{Admin, Pages};
use crate::clock;
use crate::documents::{Documents, Shared};
use crate::gate::Gate;
use crate::live::LiveSettings;
use crate::metrics::{About, Counts, Metrics};
use crate::peers::Peers;
use crate::routes::Routes;
use crate::seen::ScanDisplay;
use crate::settings::EdgeSettings;
use crate::status::State;
use crate::view::View;

/// Why an edge does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port that cannot be bound.
    #[error("edge {edge}: cannot listen on {address}: {source}")]
    Listen {
        /// The edge's name.
        edge: String,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The admin endpoint cannot be started.
    #[error("edge {edge}: cannot start the admin endpoint: {source}")]
    Admin {
        /// The edge's name.
        edge: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A certificate or key that cannot be used.
    #[error("edge {edge}: cannot use certificate {certificate} with key {key}: {reason}")]
    Certificate {
        /// The edge's name.
        edge: String,
        /// The chain's file.
        certificate: String,
        /// The key's file.
        key: String,
        /// Why not.
        reason: String,
    },
    /// The certificates that clients must show cannot be checked.
    #[error("edge {edge}: cannot use client_ca {file}: {reason}")]
    ClientCa {
        /// The edge's name.
        edge: String,
        /// The file.
        file: String,
        /// Why not.
        reason: String,
    },
    /// TLS cannot be used.
    #[error("edge {edge}: cannot use TLS: {reason}")]
    Tls {
        /// The edge's name.
        edge: String,
        /// Why not.
        reason: String,
    },
    /// The threads that serve clients cannot be started.
    #[error("edge {edge}: cannot serve: {source}")]
    Serve {
        /// The edge's name.
        edge: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The access log cannot be opened.
    #[error("edge {edge}: cannot open access log {path}: {source}")]
    AccessLog {
        /// The edge's name.
        edge: String,
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// An edge that is ready to run.
pub struct Edge {
    settings: EdgeSettings,
    live: Arc<LiveSettings>,
    state: Arc<State>,
    metrics: Arc<Metrics>,
    listener: TcpListener,
    goes_on: bool,
    admin: Option<TcpListener>,
    is_closing: Arc<AtomicBool>,
}

impl EdgeSettings {
    /// Checks certificates and log.
    ///
    /// # Errors
    /// If one cannot be used.
    pub fn check(&self) -> Result<(), Error> {
        LiveSettings::new(self).map(drop)
    }
}

impl Edge {
    /// Checks its ports, certificates and log. Clients connect to `listener`, if there is one, and it says whether that [goes
    /// on](Proxy::goes_on). Without a gate all requests are admitted. Its metrics include `peers`, `about` and `counts`.
    ///
    /// # Errors
    /// If a port, a certificate or the log cannot be used.
    pub fn new(
        settings: EdgeSettings,
        listener: Option<(TcpListener, bool)>,
        view: Arc<View>,
        gate: Option<Arc<Gate>>,
        (members, peers): (Arc<SharedMembers>, Option<Arc<Peers>>),
        about: About,
        counts: Vec<Counts>,
    ) -> Result<Self, Error> {
        let listen = |address| {
            let edge = || settings.name.clone();
            TcpListener::bind(address).map_err(|source| Error::Listen { edge: edge(), address, source })
        };
        let (listener, goes_on) =
            listener.map_or_else(|| listen(settings.listen).map(|listener| (listener, false)), Ok)?;
        let admin = settings.admin.map(listen).transpose()?;
        let live = Arc::new(LiveSettings::new(&settings)?);
        let seen = Arc::new(ScanDisplay::new(view.room(), view.stale()));
        let documents = settings.documents.as_ref().map(|documents| Arc::new(Shared::new(documents)));
        let state = Arc::new(State { view, gate, peers, seen, members, documents });
        let logs = Some(Arc::clone(&live));
        let metrics = Arc::new(Metrics::new(Arc::clone(&state), logs, settings.threads, about, counts));
        let is_closing = Arc::default();
        Ok(Edge { settings, live, state, metrics, listener, goes_on, admin, is_closing })
    }

    /// The socket that clients connect to.
    pub fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// Whether it has read all nodes.
    pub fn is_complete(&self) -> bool {
        self.state.is_complete()
    }

    /// Answers at its admin endpoint, if it is to have one, until what this returns is dropped.
    ///
    /// # Errors
    /// If the endpoint cannot be started.
    pub fn answer(&mut self) -> Result<Option<Admin>, Error> {
        let pages = pages(Arc::clone(&self.state), Arc::clone(&self.metrics), Arc::clone(&self.is_closing));
        let admin = self.admin.take().map(|listener| Admin::start(listener, pages)).transpose();
        admin.map_err(|source| Error::Admin { edge: self.settings.name.clone(), source })
    }

    /// What of its settings may be replaced while it runs.
    pub fn live(&self) -> Arc<LiveSettings> {
        Arc::clone(&self.live)
    }

    /// Its metrics.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// What its watch thread saw in the last scan.
    pub fn seen(&self) -> Arc<ScanDisplay> {
        Arc::clone(&self.state.seen)
    }

    /// Serves until `stop` says so. After another than [`Stop::Now`] requests in flight may end; `stop` is awaited again then, for one
    /// that is faster.
    ///
    /// # Errors
    /// If the threads that serve clients do not start.
    pub fn run(self, stop: impl AsyncFnMut() -> Stop) -> Result<(), Error> {
        let edge = || self.settings.name.clone();
        let (view, metrics) = (Arc::clone(&self.state.view), Arc::clone(&self.metrics));
        let gate = self.state.gate.clone();
        let shared = self.settings.documents.as_ref().zip(self.state.documents.as_ref());
        let documents =
            || shared.as_ref().map(|(settings, shared)| Documents::new(settings, Arc::clone(shared)));
        let (threads, live) = (self.settings.threads, Arc::clone(&self.live));
        let routes = Routes::for_threads(threads, live, view, gate, metrics, documents);
        let proxy = Proxy {
            listener: Listener::Socket(self.listener),
            goes_on: self.goes_on,
            tls: self.live.tls.clone(),
            proxy_protocol: self.settings.proxy_protocol,
            settings: Arc::clone(&self.live.proxy),
            is_closing: self.is_closing,
        };
        let drain_max = self.settings.limits.response_timeout;
        let served = proxy.run(routes, drain_max, stop);
        served.map_err(|source| Error::Serve { edge: edge(), source })?;
        if let Some(log) = &*self.live.log() {
            log.finish();
        }
        Ok(())
    }
}

/// Longest wait for nodes that were never heard; then the edge is ready without them.
pub const COMPLETE_MAX: Duration = Duration::from_secs(10);

/// The pages of the edge's admin endpoint.
pub(crate) fn pages(state: Arc<State>, metrics: Arc<Metrics>, is_closing: Arc<AtomicBool>) -> Pages {
    let began = clock::now();
    let health = {
        let state = Arc::clone(&state);
        move || {
            let now = clock::now();
            match state.can_serve(now) {
                false => Err("no site can be served: none has a node that answers\n"),
                true if state.view.is_stale(now) => {
                    Ok("degraded: the view is stale; routing by this edge's own requests and failures\n")
                }
                true => Ok("ok\n"),
            }
        }
    };
    let ready = {
        let (state, health) = (Arc::clone(&state), health.clone());
        move || match health() {
            Ok(_) if is_closing.load(Ordering::Relaxed) => Err("shutting down\n"),
            Ok(_) if !state.is_complete() && clock::now().since(began) < COMPLETE_MAX => {
                Err("starting: some nodes have not been read yet\n")
            }
            health => health,
        }
    };
    Pages {
        metrics: Box::new(move || metrics.encode()),
        health: Box::new(health),
        ready: Box::new(ready),
        status: Some(Box::new(move || state.status())),
    }
}
