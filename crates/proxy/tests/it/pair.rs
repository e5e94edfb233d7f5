//! A data path between clients and servers that a test plays, over pipes in one thread. Its clock moves on only when everybody waits:
//! hours take milliseconds, and every time is exact.

use std::cell::Cell;
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sidelong_proxy::{
    Address, Answer, Failure, Limits, Listener, Outcome, Proxy, Refusal, RefusedHead, Request, Server,
    ServerId, Service, Stop, Visit,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::{mpsc, watch};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use crate::support;

/// Bytes on their way between a client and the data path, in each direction.
const PIPE_BYTES: usize = 64 << 10;
/// No test takes longer, by the clock that stands still.
const LONGEST: Duration = Duration::from_secs(86_400);

/// What all tests but those of other limits have: each time differs from all others.
pub(crate) const HEADER_S: u64 = 10;
pub(crate) const BODY_S: u64 = 20;
pub(crate) const RESPONSE_S: u64 = 30;
pub(crate) const IDLE_S: u64 = 70;
pub(crate) const CONNECT_S: u64 = 5;

/// A data path, with one thread.
pub(crate) struct Pair {
    clients: mpsc::Sender<(DuplexStream, SocketAddr)>,
    /// By server: a place for one connection that is not accepted yet.
    dials: Vec<mpsc::Sender<DuplexStream>>,
    events: Arc<Mutex<Vec<String>>>,
    begun: Instant,
    stop: watch::Sender<Option<Stop>>,
}

/// Where the servers of a test get their connections.
pub(crate) type Connections = mpsc::Receiver<DuplexStream>;

/// Runs a test with a data path before so many servers. Each request goes to the first, and then to one after another.
pub(crate) fn run<T>(
    servers: usize,
    change: impl FnOnce(&mut Proxy),
    test: impl AsyncFnOnce(&Pair, Vec<Connections>) -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    LocalSet::new().block_on(&runtime.unwrap(), async {
        let (clients, listener) = mpsc::channel(1);
        let (stop, mut stops) = watch::channel(None);
        let events = Arc::<Mutex<Vec<_>>>::default();
        let (dials, connections): (Vec<mpsc::Sender<_>>, Vec<_>) =
            (0..servers).map(|_| mpsc::channel(1)).unzip();
        let server = |dial| Server { address: Address::Pipes(dial), http2: false };
        let mut proxy =
            support::proxy(Listener::Pipes(listener), dials.iter().cloned().map(server).collect());
        proxy.settings.change(|settings| {
            settings.limits = Limits {
                header_timeout: Duration::from_secs(HEADER_S),
                body_timeout: Duration::from_secs(BODY_S),
                response_timeout: Duration::from_secs(RESPONSE_S),
                idle_timeout: Duration::from_secs(IDLE_S),
                connect_timeout: Duration::from_secs(CONNECT_S),
                ..settings.limits
            };
        });
        change(&mut proxy);
        let service = Recorded { servers, events: Arc::clone(&events) };
        let drain_max = Duration::from_secs(RESPONSE_S);
        spawn_local(proxy.serve(service, drain_max, async move || {
            stops.changed().await.unwrap();
            stops.borrow().unwrap()
        }));
        let pair = Pair { clients, dials, events, begun: Instant::now(), stop };
        timeout(LONGEST, test(&pair, connections)).await.expect("the test hangs")
    })
}

impl Pair {
    /// A client's end of a connection.
    pub(crate) async fn connect(&self) -> DuplexStream {
        let (ours, theirs) = duplex(PIPE_BYTES);
        self.clients.send((theirs, ([192, 0, 2, 1], 5000).into())).await.unwrap();
        ours
    }

    /// A client.
    pub(crate) async fn client(&self) -> Player {
        Player::new(self.connect().await)
    }

    /// A server accepts no connection any more.
    pub(crate) async fn deafen(&self, server: usize) {
        self.dials[server].send(duplex(1).0).await.unwrap();
    }

    /// When the test began.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// What the service was told since it was last asked, but that all is well.
    pub(crate) fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// The data path is to end.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(Some(Stop::Graceful));
    }
}

/// What a client or server does with its connection. It reads all the while, unless it stares.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Send(&'static str),
    /// Sends so many bytes.
    Fill(usize),
    /// Sends this every second, until the connection breaks.
    Drip(&'static str),
    /// Sends this so many times, with so many seconds before each.
    Pace(&'static str, u32, u64),
    /// Waits until it has got this.
    Get(&'static str),
    /// Seconds.
    Wait(u64),
    /// Seconds in which it reads nothing.
    Stare(u64),
    /// Ends its direction, and reads on.
    Half,
    /// Closes the connection. What follows is not done.
    Leave,
}

/// One side of a connection.
pub(crate) struct Player {
    read: ReadHalf<DuplexStream>,
    write: WriteHalf<DuplexStream>,
    pub(crate) got: Vec<u8>,
    /// When the other side ended its direction.
    ended: Option<Instant>,
}

impl Player {
    pub(crate) fn new(stream: DuplexStream) -> Self {
        let (read, write) = split(stream);
        Player { read, write, got: Vec::new(), ended: None }
    }

    /// Does all this, and reads on unless it is to leave. Returns when the connection ended.
    pub(crate) async fn play(&mut self, steps: &[Step]) -> Instant {
        match self.act(steps).await {
            true => self.rest().await,
            false => Instant::now(),
        }
    }

    /// Does all this, and returns whether it stays.
    pub(crate) async fn act(&mut self, steps: &[Step]) -> bool {
        for step in steps {
            match *step {
                Step::Leave => return false,
                Step::Stare(seconds) => sleep(Duration::from_secs(seconds)).await,
                Step::Get(text) => self.get(text).await,
                step => {
                    tokio::select! {
                        () = write(&mut self.write, step) => {}
                        () = async {
                            read(&mut self.read, &mut self.got).await;
                            self.ended.get_or_insert_with(Instant::now);
                            std::future::pending().await
                        } => {}
                    }
                }
            }
        }
        true
    }

    async fn get(&mut self, text: &str) {
        while !self.text().contains(text) {
            assert_eq!(self.ended, None, "no {text:?} in {:?}", self.text());
            if self.read.read_buf(&mut self.got).await.is_ok_and(|more| more == 0) {
                self.ended = Some(Instant::now());
            }
        }
    }

    /// Reads to the end of the connection, and returns when it came.
    pub(crate) async fn rest(&mut self) -> Instant {
        if self.ended.is_none() {
            read(&mut self.read, &mut self.got).await;
        }
        *self.ended.get_or_insert_with(Instant::now)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.got).into_owned()
    }
}

/// Reads to the end.
async fn read(stream: &mut ReadHalf<DuplexStream>, got: &mut Vec<u8>) {
    while stream.read_buf(got).await.is_ok_and(|more| more > 0) {}
}

/// Sends what the step says. The other side may have closed the connection.
async fn write(stream: &mut WriteHalf<DuplexStream>, step: Step) {
    match step {
        Step::Send(text) => drop(stream.write_all(text.as_bytes()).await),
        Step::Fill(bytes) => drop(stream.write_all(&vec![b'x'; bytes]).await),
        Step::Drip(text) => {
            while stream.write_all(text.as_bytes()).await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        }
        Step::Pace(text, times, seconds) => {
            for _ in 0..times {
                sleep(Duration::from_secs(seconds)).await;
                let _ = stream.write_all(text.as_bytes()).await;
            }
        }
        Step::Wait(seconds) => sleep(Duration::from_secs(seconds)).await,
        Step::Half => drop(stream.shutdown().await),
        Step::Get(_) | Step::Stare(_) | Step::Leave => unreachable!("it is not for a writer"),
    }
}

/// A service that tries one server after another, and keeps what it is told.
struct Recorded {
    servers: usize,
    events: Arc<Mutex<Vec<String>>>,
}

pub(crate) struct Recording<'a> {
    service: &'a Recorded,
    tries: Cell<usize>,
}

impl Recorded {
    fn note(&self, event: String) {
        self.events.lock().unwrap().push(event);
    }
}

impl Service for Recorded {
    type Visit<'a> = Recording<'a>;

    fn accepts(&self, _client: SocketAddr) -> bool {
        true
    }

    fn refused(&self, why: Refusal) {
        self.note(why.word().to_owned());
    }

    fn refused_head(&self, refused: RefusedHead<'_>) {
        self.note(Refusal::of_head(refused.outcome.status).word().to_owned());
    }

    fn visit(&self, _request: &Request, _client: SocketAddr) -> Recording<'_> {
        Recording { service: self, tries: Cell::new(0) }
    }
}

impl Visit for Recording<'_> {
    fn find(&mut self, _request: &Request) -> impl Future<Output = Option<Bytes>> {
        ready(None)
    }

    fn admit(&mut self, _request: &Request) -> Result<(), Answer> {
        Ok(())
    }

    fn choose(&mut self) -> impl Future<Output = Option<ServerId>> {
        let tried = self.tries.replace(self.tries.get() + 1);
        ready(Some(ServerId { group: tried % self.service.servers, member: 0 }))
    }

    fn sent(&mut self) {}

    fn failed(&mut self, _request: &Request, failure: Failure) {
        self.service.note(format!("{failure:?}"));
    }

    fn answered(&mut self, _status: u16) {}

    fn cut_in(&self) -> Option<Duration> {
        None
    }

    fn cut(&mut self) {}

    fn leave(&mut self) {}

    fn end(self, _request: &Request, outcome: Outcome) {
        match outcome.status {
            0 => self.service.note("no answer".to_owned()),
            101 => self.service.note("tunnel".to_owned()),
            _ => {}
        }
    }
}
