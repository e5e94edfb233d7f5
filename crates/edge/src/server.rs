//! The edge as a server: Pingora's, with our door before it and an admin endpoint beside it.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use pingora_core::apps::HttpServerOptions;
use pingora_core::listeners::tls::TlsSettings;
use pingora_core::protocols::http::v2::server::default_h2_options;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::listening::Service;
use pingora_core::tls::{ServerConfig, install_default_crypto_provider, load_certs_and_key_files};
use pingora_proxy::http_proxy;

use crate::access_log::AccessLog;
use crate::admin::{Admin, Pages};
use crate::clock;
use crate::closing::{Closing, Signals};
use crate::door::Door;
use crate::gate::{Accept, Gate};
use crate::metrics::{About, Counts, Metrics, State};
use crate::peers::Peers;
use crate::proxy::Proxy;
use crate::seen::Seen;
use crate::settings::Settings;
use crate::view::View;

/// Why an edge does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port that cannot be had.
    #[error("edge {edge}: cannot listen on {address}: {source}")]
    Listen {
        /// Which edge.
        edge: String,
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The admin endpoint cannot be started.
    #[error("edge {edge}: no admin endpoint: {source}")]
    Admin {
        /// Which edge.
        edge: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A certificate or key that cannot be used.
    #[error("edge {edge}: certificate {certificate} with key {key}: {reason}")]
    Tls {
        /// Which edge.
        edge: String,
        /// The chain's file.
        certificate: String,
        /// The key's file.
        key: String,
        /// What is wrong with them.
        reason: String,
    },
    /// The access log cannot be opened.
    #[error("edge {edge}: access log {path}: {source}")]
    AccessLog {
        /// Which edge.
        edge: String,
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// An edge that is ready to run.
pub struct Edge {
    settings: Settings,
    view: Arc<View>,
    gate: Option<Arc<Gate>>,
    seen: Arc<Seen>,
    metrics: Arc<Metrics>,
    log: Option<AccessLog>,
    admin: Option<TcpListener>,
}

impl Edge {
    /// Checks that its ports, certificate and log can be had. Without a gate everybody is let in. What it hears of `peers`,
    /// `about` and `counts` go into its metrics beside its own.
    ///
    /// # Errors
    /// What cannot be had.
    pub fn new(
        settings: Settings,
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
        // Pingora listens later, on its own, and ends the process where it cannot: this says why in one line.
        drop(listen(settings.listen)?);
        let admin = settings.admin.map(listen).transpose()?;
        let log = match &settings.access_log {
            Some(path) => Some(AccessLog::open(path).map_err(|source| Error::AccessLog {
                edge: settings.name.clone(),
                path: path.display().to_string(),
                source,
            })?),
            None => None,
        };
        tls_settings(&settings)?;
        let seen = Arc::new(Seen::new(view.nodes().count(), view.sites().count(), view.stale()));
        let state = State { view: Arc::clone(&view), gate: gate.clone(), peers, seen: Arc::clone(&seen) };
        let metrics = Metrics::new(&settings, state, log.clone(), about, counts);
        Ok(Edge { settings, view, gate, seen, metrics: Arc::new(metrics), log, admin })
    }

    /// Where clients connect.
    pub fn listen(&self) -> SocketAddr {
        self.settings.listen
    }

    /// What it counts.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// What it shows of its watch thread's last look.
    pub fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }

    /// Serves until SIGTERM (finishes what was begun, for as long as a node's answer may take) or SIGINT (does not).
    ///
    /// # Errors
    /// A certificate that has gone bad since it was checked, or no thread for the admin endpoint.
    pub fn run(self) -> Result<(), Error> {
        let edge = self.settings.name.clone();
        let pages = pages(Arc::clone(&self.view), Arc::clone(&self.metrics));
        let admin = self.admin.map(|listener| Admin::start(listener, pages)).transpose();
        // It answers for as long as anything is served.
        let _admin = admin.map_err(|source| Error::Admin { edge, source })?;
        let conf = server_conf(self.settings.threads, self.settings.limits.retries);
        let mut server = Server::new_with_opt_and_conf(None, conf);
        server.bootstrap();

        let closing = Arc::<Closing>::default();
        let (view, metrics) = (Arc::clone(&self.view), Arc::clone(&self.metrics));
        let (gate, log) = (self.gate.clone(), self.log.clone());
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
        if let Some(gate) = self.gate {
            clients.set_connection_filter(Arc::new(Accept { gate, view: self.view }));
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

/// How Pingora is set up for an edge.
pub(crate) fn server_conf(threads: usize, retries: u32) -> ServerConf {
    ServerConf {
        threads,
        // One thread needs no stealing; with more, each keeps its own connections.
        work_stealing: threads > 1,
        max_retries: retries as usize + 1,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(2),
        upstream_keepalive_pool_size: 1024,
        ..ServerConf::default()
    }
}

fn tls_settings(settings: &Settings) -> Result<Option<TlsSettings>, Error> {
    let Some(tls) = &settings.tls else { return Ok(None) };
    let (certificate, key) = (tls.certificate.display().to_string(), tls.key.display().to_string());
    let refused = |reason: String| Error::Tls {
        edge: settings.name.clone(),
        certificate: certificate.clone(),
        key: key.clone(),
        reason,
    };
    for file in [&tls.certificate, &tls.key] {
        std::fs::File::open(file).map_err(|error| refused(format!("{}: {error}", file.display())))?;
    }
    let explained = |error: Box<pingora_core::Error>| refused(error.to_string());
    let mut tls = TlsSettings::intermediate(&certificate, &key).map_err(explained)?;
    tls.set_certificate_chain_file(&certificate).map_err(explained)?;
    tls.set_private_key_file(&key).map_err(explained)?;
    // Pingora puts the two together when it listens, on its own, and panics where it cannot.
    let loaded = load_certs_and_key_files(&certificate, &key).map_err(explained)?;
    let (chain, private) = loaded.ok_or_else(|| refused("a key of a kind that is not known".to_owned()))?;
    install_default_crypto_provider();
    let together = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, private);
    together.map_err(|error| refused(error.to_string()))?;
    tls.enable_h2();
    Ok(Some(tls))
}

/// What the edge has to tell.
fn pages(view: Arc<View>, metrics: Arc<Metrics>) -> Pages {
    let health = move || match view.is_stale(clock::now()) {
        true => "degraded: the view is old; routing by own connections and errors\n",
        false => "ok\n",
    };
    Pages { metrics: Box::new(move || metrics.encode()), health: Box::new(health) }
}
