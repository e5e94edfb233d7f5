//! The proxy as a whole: one thread a core, and the one socket that they listen on.
//!
//! The first thread accepts, and hands each connection to the thread that has fewest. With a socket for each thread
//! (SO_REUSEPORT) the kernel deals by hash instead: 32 kept connections on two threads then split 20 to 12 or worse in every
//! fifth case, and stay so. Handing over costs a wake-up for each connection, and nothing with one thread.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sidelong_tls::{Protocols, RENEW_EVERY, Tls};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep};

use crate::answer::Answer;
use crate::clients::{Clients, Place};
use crate::listener::{Accepting, Arrived, Listener};
use crate::pool::{Pool, is_shortage};
use crate::service::{Refusal, Service};
use crate::settings::SharedSettings;
use crate::worker::{Counts, Worker};

/// Connections beyond the limit that are answered and then read on for a moment. Further ones are closed with the answer.
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

/// How the proxy is to stop, the slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Another process accepts at its socket from now on. Connections that it has may go on as long as they like, but each response says
    /// that it is the last.
    HandedOver,
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
    pub listener: Listener,
    /// Whether the listener goes on after this proxy, for a successor: at the end no connection is accepted any more, so that those
    /// which have come wait for it. Otherwise these are served, and the listener is closed, so that clients go elsewhere.
    pub goes_on: bool,
    /// How they use TLS, if they do, with [`HTTP_PROTOCOLS`].
    pub tls: Option<Tls>,
    /// Whether connections begin with a header of the PROXY protocol, version 1 or 2, which tells their client. If there are
    /// trusted proxies, all other connections are closed.
    pub proxy_protocol: bool,
    /// The rest, the servers among it, which may be replaced meanwhile.
    pub settings: Arc<SharedSettings>,
    /// Set while the proxy shuts down.
    pub is_closing: Arc<AtomicBool>,
}

/// A connection on its way to its thread.
type Accepted = (Arrived, SocketAddr, Place);

impl Proxy {
    /// Serves with a thread for each of `services`, of which this is one, until `stop` says so. After [`Stop::Graceful`] requests in
    /// flight may end within `drain_max`; after [`Stop::HandedOver`] clients may stay without a limit. `stop` is awaited again then, for one
    /// that is faster.
    ///
    /// # Errors
    /// If a thread or its runtime cannot be made.
    pub fn run<S: Service>(
        self,
        services: Vec<S>,
        drain_max: Duration,
        stop: impl AsyncFnMut() -> Stop,
    ) -> io::Result<()> {
        let (closing, is_closed) = watch::channel(false);
        let shared = Shared::new(&self, services.len(), is_closed);
        let mut services = services.into_iter();
        let Some(first) = services.next() else { return Ok(()) };
        // A thread ends when nobody can hand it a connection any more.
        let mut hands = Vec::new();
        for (thread, service) in (1..).zip(services) {
            let (hand, handed) = mpsc::channel(HANDED_MAX);
            let (runtime, shared) = (runtime()?, shared.clone());
            let run = move || {
                LocalSet::new().block_on(&runtime, serve_handed(shared.worker(thread, service), handed));
            };
            thread::Builder::new().name(format!("proxy-{thread}")).spawn(run)?;
            hands.push(hand);
        }
        let serving = self.serve_and_hand(first, shared, hands, closing, drain_max, stop);
        LocalSet::new().block_on(&runtime()?, serving)
    }

    /// Serves as [`run`](Self::run) does, with this thread alone, in the [`LocalSet`] that polls it. What is left of connections at
    /// the end is the set's.
    ///
    /// # Errors
    /// If the listener cannot be registered with the runtime.
    pub async fn serve<S: Service>(
        self,
        service: S,
        drain_max: Duration,
        stop: impl AsyncFnMut() -> Stop,
    ) -> io::Result<()> {
        let (closing, is_closed) = watch::channel(false);
        let shared = Shared::new(&self, 1, is_closed);
        self.serve_and_hand(service, shared, Vec::new(), closing, drain_max, stop).await
    }

    /// Accepts connections, and serves those that it does not hand to other threads.
    async fn serve_and_hand<S: Service>(
        self,
        service: S,
        shared: Shared,
        hands: Vec<mpsc::Sender<Accepted>>,
        closing: watch::Sender<bool>,
        drain_max: Duration,
        mut stop: impl AsyncFnMut() -> Stop,
    ) -> io::Result<()> {
        let counts = shared.counts.clone();
        let worker = shared.worker(0, service);
        spawn_local(sweep(Rc::clone(&worker)));
        if let Some(tls) = self.tls {
            spawn_local(renew(tls));
        }
        let listener = Accepting::new(self.listener)?;
        // The threads go on when nobody accepts any more: they end with the last of `hands`.
        let acceptor = Acceptor { listener, worker, counts: counts.clone(), hands: hands.clone() };
        let accepting = spawn_local(acceptor.run());
        let mut how = stop().await;
        if how != Stop::Now {
            self.is_closing.store(true, Ordering::Relaxed);
            let _ = closing.send(true);
        }
        if self.goes_on || how == Stop::HandedOver {
            accepting.abort();
        }
        while how != Stop::Now {
            tokio::select! {
                () = ended(&counts, how, drain_max) => return Ok(()),
                then = stop() => how = then,
            }
        }
        Ok(())
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

async fn ended(counts: &[Arc<Counts>], how: Stop, drain_max: Duration) {
    match how {
        Stop::HandedOver => left(counts).await,
        Stop::Graceful | Stop::Now => drained(counts, drain_max).await,
    }
}

/// Waits until no client is left.
async fn left(counts: &[Arc<Counts>]) {
    let connections =
        || counts.iter().map(|counts| counts.connections.load(Ordering::Relaxed)).sum::<usize>();
    while connections() > 0 {
        sleep(QUIET_TIME).await;
    }
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

/// What all threads are given.
#[derive(Clone)]
struct Shared {
    settings: Arc<SharedSettings>,
    clients: Option<Arc<Clients>>,
    proxy_protocol: bool,
    /// By thread.
    counts: Vec<Arc<Counts>>,
    tls: Option<Tls>,
    closing: watch::Receiver<bool>,
    is_closing: Arc<AtomicBool>,
    short: watch::Sender<()>,
}

impl Shared {
    fn new(proxy: &Proxy, threads: usize, closing: watch::Receiver<bool>) -> Self {
        Shared {
            settings: Arc::clone(&proxy.settings),
            clients: proxy
                .settings
                .limits()
                .connections_per_client_max
                .map(|max| Arc::new(Clients::new(max))),
            proxy_protocol: proxy.proxy_protocol,
            counts: (0..threads).map(|_| Arc::default()).collect(),
            tls: proxy.tls.clone(),
            closing,
            is_closing: Arc::clone(&proxy.is_closing),
            short: watch::Sender::new(()),
        }
    }

    fn worker<S: Service>(self, thread: usize, service: S) -> Rc<Worker<S>> {
        Rc::new(Worker {
            pool: Pool::new(Arc::clone(&self.settings)),
            service,
            settings: self.settings,
            clients: self.clients,
            proxy_protocol: self.proxy_protocol,
            counts: Arc::clone(&self.counts[thread]),
            tls: self.tls,
            closing: self.closing,
            is_closing: self.is_closing,
            short: self.short,
        })
    }
}

/// Serves the connections that a thread is handed.
async fn serve_handed<S: Service>(worker: Rc<Worker<S>>, mut handed: mpsc::Receiver<Accepted>) {
    spawn_local(sweep(Rc::clone(&worker)));
    while let Some((arrived, address, place)) = handed.recv().await {
        serve(&worker, arrived, address, place);
    }
}

struct Acceptor<S> {
    listener: Accepting,
    worker: Rc<Worker<S>>,
    /// By thread; the first is this one.
    counts: Vec<Arc<Counts>>,
    /// To the other threads.
    hands: Vec<mpsc::Sender<Accepted>>,
}

impl<S: Service> Acceptor<S> {
    async fn run(mut self) {
        let mut closing = self.worker.closing.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = self.listener.accept() => accepted,
                _ = closing.wait_for(|closing| *closing) => return,
            };
            let (arrived, address) = match accepted {
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
                self.hand(arrived, address, place);
            }
        }
    }

    /// Gives a connection to the thread that has fewest.
    fn hand(&self, arrived: Arrived, address: SocketAddr, mut place: Place) {
        let connections = |thread: usize| self.counts[thread].connections.load(Ordering::Relaxed);
        let threads = 0..self.counts.len();
        let all: usize = threads.clone().map(connections).sum();
        let over = (all + 1).saturating_sub(self.worker.settings.limits().connections_max);
        if over > REFUSALS_MAX {
            if self.worker.tls.is_none() {
                let mut answer = Vec::new();
                Answer::full().write(false, true, &mut answer);
                arrived.close_with(&answer);
            }
            return self.worker.service.refused(Refusal::Full);
        }
        let thread = threads.min_by_key(|thread| connections(*thread)).unwrap_or(0);
        self.counts[thread].connections.fetch_add(1, Ordering::Relaxed);
        if over > 0 {
            place.refusal = Some(Refusal::Full);
        }
        match thread.checked_sub(1).map(|other| &self.hands[other]) {
            None => {
                serve(&self.worker, arrived, address, place);
            }
            Some(hand) => {
                if hand.try_send((arrived, address, place)).is_err() {
                    self.counts[thread].connections.fetch_sub(1, Ordering::Relaxed);
                    self.worker.service.refused(Refusal::Full);
                }
            }
        }
    }
}

/// Serves a connection in a task of its own. In a box, because the runtime copies what it spawns some eight times.
fn serve<S: Service>(worker: &Rc<Worker<S>>, arrived: Arrived, address: SocketAddr, place: Place) {
    spawn_local(Box::pin(Rc::clone(worker).serve(arrived, address, place)));
}
