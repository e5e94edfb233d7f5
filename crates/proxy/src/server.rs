//! The proxy as a whole: one thread a core, and the one socket that they listen on.
//!
//! The first thread accepts, and hands each connection to the thread that has fewest. With a socket for each thread
//! (SO_REUSEPORT) the kernel deals by hash instead: 32 kept connections on two threads then split 20 to 12 or worse in every
//! fifth case, and stay so. Handing over costs a wake-up for each connection, and nothing with one thread.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ipnet::IpNet;
use rustix::net::{SocketFlags, acceptfrom_with};
use sidelong_tls::{Protocols, RENEW_EVERY, Tls};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep};

use crate::clients::{Clients, Place};
use crate::forwarding::Forwarding;
use crate::pool::{Pool, Server, is_shortage};
use crate::service::{Limits, Refusal, Service};
use crate::trust::Trust;
use crate::worker::{Counts, Worker};

/// Unsent bytes that the kernel keeps for a client. More would only wait there: a slow client would cost memory, and its pace
/// could not be seen. It is seen in steps of half of this.
const UNSENT_BYTES_MAX: u32 = 64 << 10;

/// Most connections that wait to be accepted, if the system allows so many (net.core.somaxconn): beyond it a client tries again
/// only after a second. Rust's own is 128.
const BACKLOG: i32 = 4096;
/// Connections beyond the limit that are still answered; further ones are closed at once.
const REFUSALS_MAX: usize = 256;
/// Most connections on their way to a thread. One that falls behind so far is not given more.
const HANDED_MAX: usize = 1024;
/// Pause before the next connection is accepted when one could not be, as when descriptors are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Time between two sweeps of idle connections to servers.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Time between two checks whether the last request has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The proxy has ended its work when no request was in flight for so long.
const QUIET_TIME: Duration = Duration::from_millis(50);

/// How the proxy is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Requests in flight may end.
    Graceful,
    /// At once.
    Now,
}

/// What clients may choose from over TLS.
pub const HTTP_PROTOCOLS: Protocols = &["h2", "http/1.1"];

/// A proxy that is ready to run.
#[derive(Debug)]
pub struct Proxy {
    /// Where clients connect.
    pub listener: TcpListener,
    /// Whether the listener was handed over, and goes on to a successor: at the end no connection is accepted any more, so that those
    /// which come meanwhile wait for it. Otherwise they are answered with 503.
    pub is_handed_over: bool,
    /// How they use TLS, if they do, with [`HTTP_PROTOCOLS`].
    pub tls: Option<Tls>,
    /// Networks of proxies before this one. From one of them X-Forwarded-For is believed: the client is the last address there
    /// that is not such a proxy's. From all others the field is dropped. If there are none it is passed on from all, and the
    /// client is who connects.
    pub trusted_proxies: Vec<IpNet>,
    /// The servers, by index.
    pub servers: Vec<Server>,
    /// Whether connections begin with a header of the PROXY protocol, version 1 or 2, which tells their client. If there are
    /// trusted proxies, all other connections are closed.
    pub proxy_protocol: bool,
    /// By which fields servers are told of a request's way.
    pub forwarding: Forwarding,
    /// Limits on clients and servers.
    pub limits: Limits,
    /// Set while the proxy shuts down.
    pub is_closing: Arc<AtomicBool>,
}

/// A connection on its way to its thread.
type Accepted = (TcpStream, SocketAddr, Place);

impl Proxy {
    /// Serves with a thread for each of `services` until `stop` says so. After [`Stop::Graceful`] requests in flight may end within `drain_max`. `stop` is awaited again then, for [`Stop::Now`].
    ///
    /// # Errors
    /// If a thread or its runtime cannot be made.
    pub fn run<S: Service>(
        self,
        services: Vec<S>,
        drain_max: Duration,
        mut stop: impl AsyncFnMut() -> Stop,
    ) -> io::Result<()> {
        self.listener.set_nonblocking(true)?;
        // Connections inherit the options. Without any of this they still work.
        let listening = SockRef::from(&self.listener);
        let _ = listening.listen(BACKLOG);
        let _ = listening.set_tcp_nodelay(true);
        let _ = listening.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
        let (closing, is_closed) = watch::channel(false);
        let short = watch::Sender::new(());
        let counts: Vec<Arc<Counts>> = services.iter().map(|_| Arc::default()).collect();
        let forwarding = Arc::new(self.forwarding);
        let clients = self.limits.connections_per_client_max.map(|max| Arc::new(Clients::new(max)));
        let parts = |(thread, service)| Parts {
            service,
            limits: self.limits,
            clients: clients.clone(),
            servers: self.servers.clone(),
            trust: Trust::new(self.trusted_proxies.clone()),
            proxy_protocol: self.proxy_protocol,
            forwarding: Arc::clone(&forwarding),
            counts: Arc::<Counts>::clone(&counts[thread]),
            tls: self.tls.clone(),
            closing: is_closed.clone(),
            is_closing: Arc::clone(&self.is_closing),
            short: short.clone(),
        };
        let mut threads = services.into_iter().enumerate().map(parts);
        let Some(first) = threads.next() else { return Ok(()) };
        // A thread ends when nobody can hand it a connection any more.
        let mut hands = Vec::new();
        for (index, parts) in (1..).zip(threads) {
            let (hand, handed) = mpsc::channel(HANDED_MAX);
            let runtime = runtime()?;
            let run = move || parts.run(&runtime, handed);
            thread::Builder::new().name(format!("proxy-{index}")).spawn(run)?;
            hands.push(hand);
        }
        let runtime = runtime()?;
        LocalSet::new().block_on(&runtime, async {
            let worker = first.worker();
            spawn_local(sweep(Rc::clone(&worker)));
            if let Some(tls) = self.tls.clone() {
                spawn_local(renew(tls));
            }
            let listener = registered(self.listener)?;
            // The threads go on when nobody accepts any more: they end with the last of `hands`.
            let acceptor = Acceptor { listener, worker, counts: counts.clone(), hands: hands.clone() };
            let accepting = spawn_local(acceptor.run());
            if stop().await == Stop::Now {
                return Ok(());
            }
            self.is_closing.store(true, Ordering::Relaxed);
            let _ = closing.send(true);
            if self.is_handed_over {
                accepting.abort();
            }
            tokio::select! {
                () = drained(&counts, drain_max) => {}
                () = async { while stop().await != Stop::Now {} } => {}
            }
            Ok(())
        })
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Waits until no request is in flight, for `within` at most.
async fn drained(counts: &[Arc<Counts>], within: Duration) {
    let deadline = Instant::now() + within;
    let in_flight = || counts.iter().map(|counts| counts.in_flight.load(Ordering::Relaxed)).sum::<usize>();
    // A client may send its next request before it learns of the end.
    let mut since = Instant::now();
    while Instant::now() < deadline {
        sleep(LOOK_EVERY).await;
        if in_flight() > 0 {
            since = Instant::now();
        } else if since.elapsed() >= QUIET_TIME {
            return;
        }
    }
}

async fn sweep<S: Service>(worker: Rc<Worker<S>>) {
    let mut short = worker.short.subscribe();
    loop {
        tokio::select! {
            () = sleep(SWEEP_EVERY) => worker.pool.sweep(),
            _ = short.changed() => worker.pool.clear(),
        }
    }
}

/// Takes over certificates that were replaced on disk.
async fn renew(tls: Tls) {
    loop {
        sleep(RENEW_EVERY).await;
        let tls = tls.clone();
        let _ = tokio::task::spawn_blocking(move || tls.renew()).await;
    }
}

/// What a thread is made of.
struct Parts<S> {
    service: S,
    limits: Limits,
    servers: Vec<Server>,
    clients: Option<Arc<Clients>>,
    trust: Trust,
    proxy_protocol: bool,
    forwarding: Arc<Forwarding>,
    counts: Arc<Counts>,
    tls: Option<Tls>,
    closing: watch::Receiver<bool>,
    is_closing: Arc<AtomicBool>,
    short: watch::Sender<()>,
}

impl<S: Service> Parts<S> {
    fn worker(self) -> Rc<Worker<S>> {
        Rc::new(Worker {
            pool: Pool::new(&self.servers, &self.limits),
            service: self.service,
            limits: self.limits,
            clients: self.clients,
            trust: self.trust,
            proxy_protocol: self.proxy_protocol,
            forwarding: self.forwarding,
            counts: self.counts,
            tls: self.tls,
            closing: self.closing,
            is_closing: self.is_closing,
            short: self.short,
        })
    }

    /// Serves the connections that it is handed.
    fn run(self, runtime: &Runtime, mut handed: mpsc::Receiver<Accepted>) {
        LocalSet::new().block_on(runtime, async {
            let worker = self.worker();
            spawn_local(sweep(Rc::clone(&worker)));
            while let Some(accepted) = handed.recv().await {
                let (stream, address, place) = accepted;
                serve(&worker, stream, address, place);
            }
        });
    }
}

struct Acceptor<S> {
    listener: AsyncFd<TcpListener>,
    worker: Rc<Worker<S>>,
    /// By thread; the first is this one.
    counts: Vec<Arc<Counts>>,
    /// To the other threads.
    hands: Vec<mpsc::Sender<Accepted>>,
}

impl<S: Service> Acceptor<S> {
    async fn run(self) {
        loop {
            let (stream, address) = match self.listener.async_io(Interest::READABLE, accept).await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if is_shortage(&error) {
                        self.worker.short.send_replace(());
                    }
                    // Otherwise the client has left already.
                    if error.kind() != std::io::ErrorKind::ConnectionAborted {
                        sleep(ACCEPT_PAUSE).await;
                    }
                    continue;
                }
            };
            if let Some(place) = self.worker.receive(address) {
                self.hand(stream, address, place);
            }
        }
    }

    /// Gives a connection to the thread that has fewest.
    fn hand(&self, stream: TcpStream, address: SocketAddr, mut place: Place) {
        let connections = |thread: usize| self.counts[thread].connections.load(Ordering::Relaxed);
        let threads = 0..self.counts.len();
        let all: usize = threads.clone().map(connections).sum();
        let over = (all + 1).saturating_sub(self.worker.limits.connections_max);
        if over > REFUSALS_MAX {
            return self.worker.service.refused(Refusal::Full);
        }
        let thread = threads.min_by_key(|thread| connections(*thread)).unwrap_or(0);
        self.counts[thread].connections.fetch_add(1, Ordering::Relaxed);
        if over > 0 || self.worker.is_closing() {
            place.refusal = Some(Refusal::Full);
        }
        match thread.checked_sub(1).map(|other| &self.hands[other]) {
            None => {
                serve(&self.worker, stream, address, place);
            }
            Some(hand) => {
                if hand.try_send((stream, address, place)).is_err() {
                    self.counts[thread].connections.fetch_sub(1, Ordering::Relaxed);
                    self.worker.service.refused(Refusal::Full);
                }
            }
        }
    }
}

/// Serves a connection in a task of its own. In a box, because the runtime copies what it spawns some eight times.
fn serve<S: Service>(worker: &Rc<Worker<S>>, stream: TcpStream, address: SocketAddr, place: Place) {
    spawn_local(Box::pin(Rc::clone(worker).serve(stream, address, place)));
}

/// Accepts a connection. No reactor knows it yet: one that is closed at once needs none, and another thread has its own.
fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    Ok((stream.into(), peer.ok_or(io::ErrorKind::ConnectionAborted)?))
}

/// Registers the listener, of which the reactor is only to say when a connection waits.
#[expect(
    deprecated,
    reason = "what replaces it is unsafe for types that do not own their descriptor; a listener does"
)]
fn registered(listener: TcpListener) -> io::Result<AsyncFd<TcpListener>> {
    AsyncFd::with_interest(listener, Interest::READABLE)
}
