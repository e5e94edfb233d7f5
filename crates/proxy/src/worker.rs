//! A thread of the proxy: what its connections share. Threads share nothing with each other but the service.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::answer::Answer;
use crate::buffer::Buffer;
use crate::io::{Io, Rewound};
use crate::pool::Pool;
use crate::service::{Limits, Service};
use crate::tls::Tls;
use crate::trust::Trust;
use crate::{h1, h2};

/// All statuses of [`Service::refused`].
pub const REFUSALS: [u16; 3] = [408, 431, 503];

/// A client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// The address without the port, for X-Forwarded-For.
    pub(crate) text: Rc<str>,
    /// Whether X-Forwarded-For is passed on from it.
    pub(crate) passes_on: bool,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, trust: &Trust) -> Self {
        let text = address.ip().to_canonical().to_string().into();
        Client { address, text, passes_on: trust.passes_on(address.ip()) }
    }
}

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
    pub(crate) service: Arc<S>,
    pub(crate) limits: Limits,
    pub(crate) pool: Pool,
    pub(crate) trust: Trust,
    pub(crate) counts: Arc<Counts>,
    pub(crate) tls: Option<Tls>,
    /// Whether the proxy shuts down.
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) is_closing: Arc<AtomicBool>,
}

impl<S: Service> Worker<S> {
    /// Whether the proxy shuts down: requests in flight end, and connections with them.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Counts a request as in flight while the returned value lives.
    pub(crate) fn enter(&self) -> Counted<'_> {
        Counted::new(&self.counts.in_flight)
    }

    /// Serves a connection that was accepted; `is_over` if there are too many.
    pub(crate) async fn serve(self: Rc<Self>, stream: TcpStream, address: SocketAddr, is_over: bool) {
        // The acceptor has counted it.
        let _counted = Counted(&self.counts.connections);
        let from = Client::new(address, &self.trust);
        let (io, speaks_h2) = match &self.tls {
            None => (Io::Plain(stream), false),
            // No handshake is wasted on a client that is not served.
            Some(_) if is_over || self.is_closing() => return self.service.refused(Answer::full().status),
            Some(tls) => match timeout(self.limits.header_timeout, tls.acceptor().accept(stream)).await {
                Ok(Ok(stream)) => {
                    let speaks_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    (Io::Tls(Box::new(stream)), speaks_h2)
                }
                Ok(Err(error)) => return tracing::debug!(%error, client = %address, "TLS handshake failed"),
                Err(_) => return self.service.refused(Answer::TOO_SLOW.status),
            },
        };
        if is_over || self.is_closing() {
            let answer = Answer::full();
            self.service.refused(answer.status);
            if !speaks_h2 {
                h1::refuse(io, &answer).await;
            }
        } else if speaks_h2 {
            h2::serve(&self, Rewound::new(Buffer::default(), io), from).await;
        } else {
            h1::serve(&self, io, from).await;
        }
    }
}
