//! The edge as a server: Pingora's, with our door before it and an admin port beside it.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use async_trait::async_trait;
use http::{Response, StatusCode, header};
use pingora_core::apps::HttpServerOptions;
use pingora_core::apps::http_app::{HttpServer, ServeHttp};
use pingora_core::listeners::tls::TlsSettings;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::default_h2_options;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::listening::Service;
use pingora_core::tls::{ServerConfig, install_default_crypto_provider, load_certs_and_key_files};
use pingora_proxy::http_proxy;

use crate::access_log::AccessLog;
use crate::clock;
use crate::closing::{Closing, Signals};
use crate::door::Door;
use crate::metrics::{Counts, Metrics};
use crate::proxy::Proxy;
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
    metrics: Arc<Metrics>,
    log: Option<AccessLog>,
}

impl Edge {
    /// Checks that its ports, certificate and log can be had. `counts` go into its metrics beside its own.
    ///
    /// # Errors
    /// What cannot be had.
    pub fn new(settings: Settings, view: Arc<View>, counts: Vec<Counts>) -> Result<Self, Error> {
        for address in [Some(settings.listen), settings.admin].into_iter().flatten() {
            // Pingora listens later, on its own, and ends the process where it cannot: this says why in one line.
            TcpListener::bind(address).map_err(|source| Error::Listen {
                edge: settings.name.clone(),
                address,
                source,
            })?;
        }
        let log = match &settings.access_log {
            Some(path) => Some(AccessLog::open(path).map_err(|source| Error::AccessLog {
                edge: settings.name.clone(),
                path: path.display().to_string(),
                source,
            })?),
            None => None,
        };
        tls_settings(&settings)?;
        let metrics = Arc::new(Metrics::new(&settings, Arc::clone(&view), log.clone(), counts));
        Ok(Edge { settings, view, metrics, log })
    }

    /// Where clients connect.
    pub fn listen(&self) -> SocketAddr {
        self.settings.listen
    }

    /// What it counts.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Serves until SIGTERM (finishes what was begun, for as long as a node's answer may take) or SIGINT (does not).
    ///
    /// # Errors
    /// A certificate that has gone bad since it was checked.
    pub fn run(self) -> Result<(), Error> {
        let conf = server_conf(self.settings.threads, self.settings.limits.retries);
        let mut server = Server::new_with_opt_and_conf(None, conf);
        server.bootstrap();

        let closing = Arc::<Closing>::default();
        let (view, metrics) = (Arc::clone(&self.view), Arc::clone(&self.metrics));
        let proxy = Proxy::new(&self.settings, view, metrics, self.log.clone(), Arc::clone(&closing));
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
        let listen = self.settings.listen.to_string();
        match tls_settings(&self.settings)? {
            Some(tls) => clients.add_tls_with_settings(&listen, None, tls),
            None => clients.add_tcp(&listen),
        }
        server.add_service(clients);

        if let Some(address) = self.settings.admin {
            let admin = Admin { view: self.view, metrics: self.metrics };
            let mut admin = Service::new("admin".to_owned(), HttpServer::new_app(admin));
            admin.add_tcp(&address.to_string());
            server.add_service(admin);
        }
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

/// `/metrics` for Prometheus, `/healthz` for whoever wants to know whether the view is fresh.
struct Admin {
    view: Arc<View>,
    metrics: Arc<Metrics>,
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let (status, kind, body) = match session.req_header().uri.path() {
            "/metrics" => (
                StatusCode::OK,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                self.metrics.encode(),
            ),
            "/healthz" if self.view.is_stale(clock::now()) => {
                let text = "degraded: the view is old; routing by own connections and errors\n";
                (StatusCode::OK, "text/plain", text.to_owned())
            }
            "/healthz" => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
            _ => (StatusCode::NOT_FOUND, "text/plain", "/metrics and /healthz are here\n".to_owned()),
        };
        let mut response = Response::new(body.into_bytes());
        *response.status_mut() = status;
        let length = response.body().len().into();
        response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
        response.headers_mut().insert(header::CONTENT_LENGTH, length);
        response
    }
}
