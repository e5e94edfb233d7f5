//! The edge as a server: Pingora, with the door before it and an admin endpoint beside it.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use pingora_core::apps::HttpServerOptions;
use pingora_core::listeners::tls::TlsSettings;
use pingora_core::protocols::http::v2::server::default_h2_options;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::listening::Service;
use pingora_core::tls::{ServerConfig, install_default_crypto_provider, load_certs_and_key_files};
use pingora_proxy::http_proxy;
use sidelong_files::open_regular;

use crate::access_log::AccessLog;
use crate::admin::{Admin, Pages};
use crate::clock;
use crate::closing::{Closing, Signals};
use crate::door::Door;
use crate::gate::{Accept, Gate};
use crate::metrics::{About, Counts, Metrics};
use crate::peers::Peers;
use crate::proxy::Proxy;
use crate::seen::Seen;
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
    Tls {
        /// The edge's name.
        edge: String,
        /// The chain's file.
        certificate: String,
        /// The key's file.
        key: String,
        /// Why not.
        reason: String,
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
    state: Arc<State>,
    metrics: Arc<Metrics>,
    log: Option<AccessLog>,
    admin: Option<TcpListener>,
}

impl Edge {
    /// Checks its ports, certificate and log. Without a gate all requests are admitted. Its metrics include `peers`, `about`
    /// and `counts`.
    ///
    /// # Errors
    /// If a port, the certificate or the log cannot be used.
    pub fn new(
        settings: EdgeSettings,
        view: Arc<View>,
        gate: Option<Arc<Gate>>,
        peers: Option<Arc<Peers>>,
        about: Vec<About>,
        counts: Vec<Counts>,
    ) -> Result<Self, Error> {
        let listen = |address| {
            let edge = || settings.name.clone();
            TcpListener::bind(address).map_err(|source| Error::Listen { edge: edge(), address, source })
        };
        // Pingora binds the port later, and ends the process if it cannot; this reports why in one line.
        drop(listen(settings.listen)?);
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
        tls_settings(&settings)?;
        let seen = Arc::new(Seen::new(view.nodes().count(), view.sites().count(), view.stale()));
        let nodes = settings.nodes.iter().map(|node| node.name.clone()).collect();
        let sites = settings.sites.iter().map(|site| site.name.clone()).collect();
        let state = Arc::new(State { view, gate, peers, seen, nodes, sites });
        let metrics = Metrics::new(Arc::clone(&state), log.clone(), about, counts);
        Ok(Edge { settings, state, metrics: Arc::new(metrics), log, admin })
    }

    /// The address that clients connect to.
    pub fn listen(&self) -> SocketAddr {
        self.settings.listen
    }

    /// Its metrics.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// What its watch thread saw in the last scan.
    pub fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.state.seen)
    }

    /// Serves until SIGTERM, which lets requests in flight end, or SIGINT, which does not.
    ///
    /// # Errors
    /// If the certificate has become invalid since it was checked, or the admin endpoint does not start.
    pub fn run(self) -> Result<(), Error> {
        let edge = self.settings.name.clone();
        let closing = Arc::<Closing>::default();
        let pages = pages(Arc::clone(&self.state), Arc::clone(&self.metrics), Arc::clone(&closing));
        let admin = self.admin.map(|listener| Admin::start(listener, pages)).transpose();
        // The endpoint answers until the last request is served.
        let _admin = admin.map_err(|source| Error::Admin { edge, source })?;
        let conf = server_conf(self.settings.threads, self.settings.limits.retries);
        let mut server = Server::new_with_opt_and_conf(None, conf);
        server.bootstrap();

        let (view, metrics) = (Arc::clone(&self.state.view), Arc::clone(&self.metrics));
        let (gate, log) = (self.state.gate.clone(), self.log.clone());
        let proxy = Proxy::new(&self.settings, view, gate, metrics, log, Arc::clone(&closing));
        let mut proxy = http_proxy(&server.configuration, proxy);
        let limits = &self.settings.limits;
        let mut options = HttpServerOptions::default();
        options.h2_idle_timeout = Some(limits.door.idle_timeout);
        proxy.server_options = Some(options);
        let mut options = default_h2_options();
        options.max_header_list_size(limits.door.header_bytes_max.try_into().unwrap_or(u32::MAX));
        proxy.h2_options = Some(options);
        let mut clients = Service::new(
            "edge".to_owned(),
            Door::new(proxy, limits.door, Arc::clone(&self.metrics), Arc::clone(&closing)),
        );
        if let Some(gate) = self.state.gate.clone() {
            let view = Arc::clone(&self.state.view);
            clients.set_connection_filter(Arc::new(Accept { gate, view }));
        }
        let listen = self.settings.listen.to_string();
        match tls_settings(&self.settings)? {
            Some(tls) => clients.add_tls_with_settings(&listen, None, tls),
            None => clients.add_tcp(&listen),
        }
        server.add_service(clients);

        let signals = Signals { closing, drain_max: limits.door.response_timeout };
        server.run(RunArgs { shutdown_signal: Box::new(signals) });
        if let Some(log) = self.log {
            log.finish();
        }
        Ok(())
    }
}

/// Pingora's configuration for an edge.
pub(crate) fn server_conf(threads: usize, retries: u32) -> ServerConf {
    ServerConf {
        threads,
        // A single thread has no other to steal from.
        work_stealing: threads > 1,
        max_retries: retries as usize + 1,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(2),
        upstream_keepalive_pool_size: 1024,
        ..ServerConf::default()
    }
}

fn tls_settings(settings: &EdgeSettings) -> Result<Option<TlsSettings>, Error> {
    let Some(tls) = &settings.tls else { return Ok(None) };
    let (certificate, key) = (tls.certificate.display().to_string(), tls.key.display().to_string());
    let refused = |reason: String| Error::Tls {
        edge: settings.name.clone(),
        certificate: certificate.clone(),
        key: key.clone(),
        reason,
    };
    for file in [&tls.certificate, &tls.key] {
        open_regular(file).map_err(|error| refused(format!("{}: {error}", file.display())))?;
    }
    let explained = |error: Box<pingora_core::Error>| refused(error.to_string().trim_start().to_owned());
    let mut tls = TlsSettings::intermediate(&certificate, &key).map_err(explained)?;
    tls.set_certificate_chain_file(&certificate).map_err(explained)?;
    tls.set_private_key_file(&key).map_err(explained)?;
    // Pingora combines the two only when it listens, and panics if it cannot.
    let loaded = load_certs_and_key_files(&certificate, &key).map_err(explained)?;
    let (chain, private) = loaded.ok_or_else(|| refused("the key is of an unknown kind".to_owned()))?;
    install_default_crypto_provider();
    let together = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, private);
    together.map_err(|error| refused(error.to_string()))?;
    tls.enable_h2();
    Ok(Some(tls))
}

/// Longest wait for nodes that were never heard; then the edge is ready without them.
const COMPLETE_MAX: Duration = Duration::from_secs(10);

/// The pages of the edge's admin endpoint.
fn pages(state: Arc<State>, metrics: Arc<Metrics>, closing: Arc<Closing>) -> Pages {
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
        let (view, health) = (Arc::clone(&state.view), health.clone());
        move || {
            let is_complete = || view.nodes().all(|node| view.is_known(node));
            match health() {
                Ok(_) if closing.has_begun() => Err("shutting down\n"),
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
