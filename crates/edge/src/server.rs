//! The edge as a server: the data path with the edge's routes, and an admin endpoint beside it.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sidelong_layout::NodeId;
use sidelong_proxy::{HTTP_PROTOCOLS, Listener, Proxy, Stop};
use sidelong_reconfig::SharedMembers;
use sidelong_tls::{Certificate, ClientCa, Tls};

use crate::access_log::AccessLog;
use crate::admin::{Admin, Pages};
use crate::clock;
use crate::documents::{Documents, Shared};
use crate::gate::Gate;
use crate::live::LiveSettings;
use crate::metrics::{About, Counts, Metrics};
use crate::peers::Peers;
use crate::routes::Routes;
use crate::seen::ScanDisplay;
use crate::settings::{self, EdgeSettings};
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
    log: Option<AccessLog>,
    listener: TcpListener,
    is_handed_over: bool,
    tls: Option<Tls>,
    admin: Option<TcpListener>,
}

impl Edge {
    /// Checks its ports, certificates and log. Clients connect to the socket that was `handed_over`, if one was. Without a gate all
    /// requests are admitted. Its metrics include `peers`, `about` and `counts`.
    ///
    /// # Errors
    /// If a port, a certificate or the log cannot be used.
    pub fn new(
        settings: EdgeSettings,
        handed_over: Option<TcpListener>,
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
        let is_handed_over = handed_over.is_some();
        let listener = handed_over.map_or_else(|| listen(settings.listen), Ok)?;
        let admin = settings.admin.map(listen).transpose()?;
        let log = match &settings.access_log {
            Some(path) => {
                let opened = AccessLog::open(path, Arc::clone(&settings.access_log_reopen));
                Some(opened.map_err(|source| Error::AccessLog {
                    edge: settings.name.clone(),
                    path: path.display().to_string(),
                    source,
                })?)
            }
            None => None,
        };
        let tls = tls(&settings.name, &settings.tls, settings.client_ca.as_deref())?;
        let seen = Arc::new(ScanDisplay::new(view.room(), view.stale()));
        let documents = settings.documents.as_ref().map(|documents| Arc::new(Shared::new(documents)));
        let state = Arc::new(State { view, gate, peers, seen, members, documents });
        let metrics = Metrics::new(Arc::clone(&state), log.clone(), settings.threads, about, counts);
        let metrics = Arc::new(metrics);
        let live = Arc::new(LiveSettings::new(&settings));
        Ok(Edge { settings, live, state, metrics, log, listener, is_handed_over, tls, admin })
    }

    /// The address that clients connect to.
    pub fn listen(&self) -> SocketAddr {
        self.settings.listen
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

    /// Serves until `stop` says so. After [`Stop::Graceful`] requests in flight may end; `stop` is awaited again then, for
    /// [`Stop::Now`].
    ///
    /// # Errors
    /// If the admin endpoint or the threads that serve clients do not start.
    pub fn run(self, stop: impl AsyncFnMut() -> Stop) -> Result<(), Error> {
        let edge = || self.settings.name.clone();
        let is_closing = Arc::<AtomicBool>::default();
        let pages = pages(Arc::clone(&self.state), Arc::clone(&self.metrics), Arc::clone(&is_closing));
        let admin = self.admin.map(|listener| Admin::start(listener, pages)).transpose();
        // The endpoint answers until the last request is served.
        let _admin = admin.map_err(|source| Error::Admin { edge: edge(), source })?;
        let (view, metrics) = (Arc::clone(&self.state.view), Arc::clone(&self.metrics));
        let (gate, log) = (self.state.gate.clone(), self.log.clone());
        let shared = self.settings.documents.as_ref().zip(self.state.documents.as_ref());
        let documents =
            || shared.as_ref().map(|(settings, shared)| Documents::new(settings, Arc::clone(shared)));
        let (threads, live) = (self.settings.threads, Arc::clone(&self.live));
        let routes = Routes::for_threads(threads, live, view, gate, metrics, log, documents);
        let proxy = Proxy {
            listener: Listener::Socket(self.listener),
            is_handed_over: self.is_handed_over,
            tls: self.tls,
            proxy_protocol: self.settings.proxy_protocol,
            settings: Arc::clone(&self.live.proxy),
            is_closing,
        };
        let drain_max = self.settings.limits.response_timeout;
        let served = proxy.run(routes, drain_max, stop);
        served.map_err(|source| Error::Serve { edge: edge(), source })?;
        if let Some(log) = self.log {
            log.finish();
        }
        Ok(())
    }
}

/// Reads the certificates of the edge `name`, and the authorities of its clients', as the edge does when it starts.
///
/// # Errors
/// If one of the files cannot be used.
pub fn check_tls(name: &str, files: &[settings::Tls], client_ca: Option<&Path>) -> Result<(), Error> {
    tls(name, files, client_ca).map(|_| ())
}

/// What clients are shown, and what they must show.
fn tls(name: &str, files: &[settings::Tls], client_ca: Option<&Path>) -> Result<Option<Tls>, Error> {
    if files.is_empty() {
        return Ok(None);
    }
    let edge = || name.to_owned();
    let mut certificates = Vec::new();
    for settings::Tls { certificate, key } in files {
        certificates.push(Certificate::read(certificate, key).map_err(|error| Error::Certificate {
            edge: edge(),
            certificate: certificate.display().to_string(),
            key: key.display().to_string(),
            reason: error.to_string(),
        })?);
    }
    let client_ca = client_ca.map(|file| {
        let refused =
            |reason: String| Error::ClientCa { edge: edge(), file: file.display().to_string(), reason };
        ClientCa::read(file).map_err(|error| refused(error.to_string()))
    });
    let tls = Tls::new(certificates, client_ca.transpose()?, HTTP_PROTOCOLS);
    tls.map(Some).map_err(|error| Error::Tls { edge: edge(), reason: error.to_string() })
}

/// Longest wait for nodes that were never heard; then the edge is ready without them.
const COMPLETE_MAX: Duration = Duration::from_secs(10);

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
        move || {
            let is_complete = || {
                let members = state.members.load();
                members.nodes.entries().all(|(node, _)| state.view.is_known(NodeId::new(node)))
            };
            match health() {
                Ok(_) if is_closing.load(Ordering::Relaxed) => Err("shutting down\n"),
                Ok(_) if !is_complete() && clock::now().since(began) < COMPLETE_MAX => {
                    Err("starting: some nodes have not been read yet\n")
                }
                health => health,
            }
        }
    };
    Pages {
        metrics: Box::new(move || metrics.encode()),
        health: Box::new(health),
        ready: Box::new(ready),
        status: Some(Box::new(move || state.status())),
    }
}
