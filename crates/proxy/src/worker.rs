//! A thread of the proxy: what its connections share. Threads share nothing with each other but what
//! their services do, and the count of each client's connections if it is limited.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sidelong_tls::Tls;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::answer::Answer;
use crate::buffer::Buffer;
use crate::client::Client;
use crate::clients::{Clients, Place};
use crate::io::{Io, Rewound};
use crate::listener::Arrived;
use crate::pool::Pool;
use crate::proxy_protocol::Told;
use crate::service::{Refusal, Service};
use crate::settings::SharedSettings;
use crate::socket::Socket;
use crate::{h1, h2, proxy_protocol};

/// What threads tell each other: little, and seldom.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counts {
    /// Connections of clients.
    pub(crate) connections: AtomicUsize,
    /// Requests in flight.
    pub(crate) in_flight: AtomicUsize,
}

/// Counts one while it lives.
#[derive(Debug)]
pub(crate) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    pub(crate) fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One thread's part.
pub(crate) struct Worker<S> {
    pub(crate) service: S,
    pub(crate) settings: Arc<SharedSettings>,
    /// If their connections are limited.
    pub(crate) clients: Option<Arc<Clients>>,
    pub(crate) pool: Pool,
    pub(crate) counts: Arc<Counts>,
    pub(crate) tls: Option<Tls>,
    /// Whether connections begin with a header of the PROXY protocol.
    pub(crate) proxy_protocol: bool,
    /// Whether the proxy shuts down.
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) is_closing: Arc<AtomicBool>,
    /// Sent by a thread that is short of descriptors. All threads close their idle connections to servers then.
    pub(crate) short: watch::Sender<()>,
}

impl<S: Service> Worker<S> {
    /// Counts a request as in flight while the returned value lives.
    pub(crate) fn enter(&self) -> Counted<'_> {
        Counted::new(&self.counts.in_flight)
    }

    /// A place for a connection that was accepted; `None` if it is closed.
    pub(crate) fn receive(&self, peer: SocketAddr) -> Option<Place> {
        if !self.proxy_protocol {
            return self.admit(peer);
        }
        if self.settings.trust(|trust| trust.passes_on(peer.ip())) {
            // The client is admitted once it is known.
            return Some(Place::default());
        }
        self.service.refused(Refusal::NoProxy);
        None
    }

    /// What the PROXY header of a connection from `peer` tells, and the client's place; `None` if it is closed.
    async fn told(&self, socket: &mut Socket, peer: SocketAddr) -> Option<(Told, Place)> {
        match timeout(self.settings.limits().header_timeout, proxy_protocol::read(socket)).await {
            Ok(Ok(told)) => return Some((told, self.admit(told.client.unwrap_or(peer))?)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::debug!(%peer, "a connection without a valid PROXY header");
                self.service.refused(Refusal::NoProxy);
            }
            Ok(Err(_)) => {}
            Err(_) => self.service.refused(Refusal::Slow),
        }
        None
    }

    /// A place for a connection of a client; `None` if it is closed.
    fn admit(&self, client: SocketAddr) -> Option<Place> {
        // A proxy's connection is that of many clients.
        if self.settings.trust(|trust| trust.is_proxy(client.ip())) {
            return Some(Place::default());
        }
        if !self.service.accepts(client) {
            return None;
        }
        let Some(clients) = &self.clients else { return Some(Place::default()) };
        let place = clients.enter(client.ip());
        if place.is_none() {
            self.service.refused(Refusal::ClientFull);
        }
        place
    }

    /// The client's TLS connection; `None` if the handshake fails or takes too long. The proxy does not end in the middle of one.
    async fn shake_hands(&self, tls: &Tls, socket: Socket, client: SocketAddr) -> Option<TlsStream<Socket>> {
        let handshake = async {
            poll_fn(|cx| socket.poll_read_ready(cx)).await?;
            let _in_flight = self.enter();
            TlsAcceptor::from(tls.config()).accept(socket).await
        };
        // A handshake that takes too long is counted before it is dropped, which closes the connection.
        let mut handshake = pin!(timeout(self.settings.limits().header_timeout, handshake));
        match handshake.as_mut().await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => tracing::debug!(%error, %client, "TLS handshake failed"),
            Err(_) => self.service.refused(Refusal::Slow),
        }
        None
    }

    /// Serves a connection that was accepted.
    pub(crate) async fn serve(self: Rc<Self>, arrived: Arrived, peer: SocketAddr, mut place: Place) {
        // The acceptor has counted it.
        let _counted = Counted(&self.counts.connections);
        let Ok(mut socket) = arrived.here() else { return };
        let mut told = Told::default();
        if self.proxy_protocol {
            let Some((of_client, mut its_place)) = self.told(&mut socket, peer).await else { return };
            its_place.refusal = place.refusal.or(its_place.refusal);
            (told, place) = (of_client, its_place);
        }
        let address = told.client.unwrap_or(peer);
        let is_tls = self.tls.is_some() || told.is_tls;
        let forwarding = self.settings.forwarding();
        let from = self.settings.trust(|trust| Client::new(address, trust, is_tls, &forwarding));
        // No handshake is wasted on a client that is not served.
        if let (Some(_), Some(why)) = (&self.tls, place.refusal) {
            return self.service.refused(why);
        }
        let (io, speaks_h2) = match &self.tls {
            None => (Io::Plain(socket), false),
            Some(tls) => {
                let Some(stream) = self.shake_hands(tls, socket, address).await else { return };
                let speaks_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                (Io::Tls(Box::new(stream)), speaks_h2)
            }
        };
        if let Some(why) = place.refusal {
            self.service.refused(why);
            if !speaks_h2 {
                h1::refuse(io, &Answer::full()).await;
            }
        } else if speaks_h2 {
            h2::serve(&self, Rewound::new(Buffer::default(), io), from).await;
        } else {
            h1::serve(&self, io, from).await;
        }
    }
}
