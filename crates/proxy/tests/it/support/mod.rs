//! A data path that decides nothing: all that it is asked has one answer. Fuzz targets use it, too.

use std::future::{Future, pending, ready};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use sidelong_proxy::{
    Answer, Failure, Forwarding, Limits, Listener, Outcome, Proxy, Refusal, RefusedHead, Request, Server,
    ServerId, Service, Settings, SharedSettings, Visit,
};

/// Longer than anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A service of one thread that admits all requests.
pub(crate) struct Fixed {
    /// The answer to each request without a body, if it has one.
    pub(crate) answer: Option<Bytes>,
    /// The server of all others, if there is one.
    pub(crate) server: Option<usize>,
    /// What it does about a client that is refused.
    pub(crate) refused: fn(Refusal),
}

impl Service for Fixed {
    type Visit<'a> = &'a Self;

    fn accepts(&self, _client: SocketAddr) -> bool {
        true
    }

    fn refused(&self, why: Refusal) {
        (self.refused)(why);
    }

    fn refused_head(&self, refused: RefusedHead<'_>) {
        (self.refused)(Refusal::of_head(refused.outcome.status));
    }

    fn visit(&self, _request: &Request, _client: SocketAddr) -> &Self {
        self
    }
}

impl Visit for &Fixed {
    fn find(&mut self, _request: &Request) -> impl Future<Output = Option<Bytes>> {
        ready(self.answer.clone())
    }

    fn admit(&mut self, _request: &Request) -> Result<(), Answer> {
        Ok(())
    }

    fn choose(&mut self) -> impl Future<Output = Option<ServerId>> {
        ready(self.server.map(|group| ServerId { group, member: 0 }))
    }

    fn sent(&mut self) {}

    fn failed(&mut self, _request: &Request, failure: Failure) {
        panic!("the server has not failed: {failure:?}");
    }

    fn answered(&mut self, _status: u16) {}

    fn cut_in(&self) -> Option<Duration> {
        None
    }

    fn cut(&mut self) {}

    fn leave(&mut self) {}

    fn end(self, _request: &Request, _outcome: Outcome) {}
}

/// Starts a data path with a thread for each service, and returns where it listens. It ends with the process.
pub(crate) fn start(services: Vec<Fixed>, servers: Vec<Server>) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = proxy(Listener::Socket(listener), servers);
    thread::spawn(move || proxy.run(services, Duration::ZERO, async || pending().await));
    address
}

/// A data path whose limits nothing reaches.
pub(crate) fn proxy(listener: Listener, servers: Vec<Server>) -> Proxy {
    let limits = Limits {
        header_bytes_max: 1 << 14,
        header_timeout: PATIENCE,
        body_timeout: PATIENCE,
        response_timeout: PATIENCE,
        idle_timeout: PATIENCE,
        connections_max: 128,
        connections_per_client_max: None,
        body_bytes_max: 1 << 20,
        connect_timeout: PATIENCE,
        retries: 1,
    };
    Proxy {
        listener,
        goes_on: false,
        tls: None,
        proxy_protocol: false,
        settings: SharedSettings::new(Settings {
            limits,
            trusted_proxies: Vec::new(),
            forwarding: Forwarding::default(),
            servers: servers.into_iter().map(|server| vec![server]).collect(),
        })
        .into(),
        is_closing: Default::default(),
    }
}
