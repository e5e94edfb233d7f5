//! The origin's sockets: accepting, limiting and draining connections, and closing idle ones.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use super::answer::Origin;
use super::config::{OriginConfig, OriginError};
use super::connections::{self, Connections, Pulse};
use super::gauges::OriginGauges;

/// Pause after an accept that failed for another reason than a shortage.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Shortest time between two log lines about accepts that failed.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// How an origin ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy after [`OriginConfig::drain_max`], and were cut.
    pub cut: u32,
}

/// What the origin's connections should do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Finish the request in flight, and take no more.
    Draining,
    /// End now.
    Cut,
}

/// Serves `listener` until `shutdown` resolves. Then it refuses new connections, finishes the requests in flight within
/// [`OriginConfig::drain_max`], and returns.
///
/// Connections are tasks of the current runtime. If the returned future is dropped, they are cut.
///
/// # Errors
/// If `config` is not valid. Once it serves, it does not fail.
pub async fn serve(
    listener: TcpListener,
    config: OriginConfig,
    gauges: Arc<OriginGauges>,
    shutdown: impl Future<Output = ()>,
) -> Result<Drained, OriginError> {
    let origin = Arc::new(Origin::new(config, gauges)?);
    let connections_max = origin.config.connections_max.min(connections::connections_max());
    let room = Arc::new(Semaphore::new(connections_max as usize));
    let (phase, _) = watch::channel(Phase::Serving);
    let mut shutdown = pin!(shutdown);
    let mut failures = Failures::default();
    loop {
        let (permit, stream) = tokio::select! {
            biased;
            () = shutdown.as_mut() => break,
            accepted = accept(&listener, &room, &origin.connections, &mut failures) => accepted,
        };
        let connection = Connection::new(Arc::clone(&origin), permit);
        tokio::spawn(connection.run(stream, phase.subscribe()));
    }
    // New connections are refused from here on.
    drop(listener);
    phase.send_replace(Phase::Draining);
    let all_closed = room.acquire_many(connections_max);
    if timeout(origin.config.drain_max, all_closed).await.is_ok() {
        return Ok(Drained { cut: 0 });
    }
    let cut = origin.gauges.connections.load(Relaxed);
    phase.send_replace(Phase::Cut);
    // They end at their next poll, so this waits for no peer.
    let _ = room.acquire_many(connections_max).await;
    Ok(Drained { cut })
}

/// The next connection, once there is room for it. While there is none, idle connections are asked to leave; those behind it
/// wait in the backlog, where they cost nothing.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    connections: &Connections,
    failures: &mut Failures,
) -> (OwnedSemaphorePermit, TcpStream) {
    let stream = loop {
        match listener.accept().await {
            Ok((stream, _)) => break stream,
            Err(error) => {
                failures.report(&error);
                match connections::is_shortage(&error) {
                    true => connections.make_room().await,
                    false => sleep(ACCEPT_RETRY).await,
                }
            }
        }
    };
    loop {
        match Arc::clone(room).try_acquire_owned() {
            Ok(permit) => return (permit, stream),
            Err(_) => connections.make_room().await,
        }
    }
}

/// Accepts that failed, logged at most every [`REPORT_EVERY`].
#[derive(Default)]
struct Failures {
    reported: Option<Instant>,
    unreported: u64,
}

impl Failures {
    fn report(&mut self, error: &io::Error) {
        self.unreported += 1;
        if self.reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
            let times = std::mem::take(&mut self.unreported);
            tracing::warn!(%error, times, "cannot accept connections; idle ones are closed to make room");
            self.reported = Some(Instant::now());
        }
    }
}

/// An open connection, counted while it lives.
struct Connection {
    origin: Arc<Origin>,
    /// In the connections.
    number: u64,
    pulse: Arc<Pulse>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Connection {
    fn new(origin: Arc<Origin>, permit: OwnedSemaphorePermit) -> Self {
        origin.gauges.connections.fetch_add(1, Relaxed);
        origin.gauges.accepted_total.fetch_add(1, Relaxed);
        origin.gauges.changed();
        let (number, pulse) = origin.connections.enter();
        Connection { origin, number, pulse, permit: Some(permit) }
    }

    async fn run(self, stream: TcpStream, mut phase: watch::Receiver<Phase>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot turn Nagle's algorithm off");
        }
        let (origin, pulse) = (&self.origin, &self.pulse);
        let service =
            service_fn(
                move |request| async move { Ok::<_, Infallible>(origin.answer(pulse, request).await) },
            );
        // hyper's own header timeout creates and drops a timer for each request; the pulse needs one per idle period.
        let served = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(origin.config.head_bytes_max)
            .serve_connection(TokioIo::new(stream), service);
        let mut served = pin!(served);
        let mut idle = pin!(sleep(origin.config.idle_max));
        let mut seen_ns = 0;
        loop {
            tokio::select! {
                biased;
                ended = served.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection broke");
                    }
                    return;
                }
                changed = phase.changed() => {
                    let now = if changed.is_ok() { *phase.borrow_and_update() } else { Phase::Cut };
                    match now {
                        Phase::Serving => {}
                        Phase::Draining => served.as_mut().graceful_shutdown(),
                        Phase::Cut => return,
                    }
                }
                () = pulse.told_to_leave() => served.as_mut().graceful_shutdown(),
                () = idle.as_mut() => {
                    if !pulse.alive_since(&mut seen_ns) {
                        return;
                    }
                    idle.as_mut().reset(Instant::now() + origin.config.idle_max);
                }
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.origin.gauges.connections.fetch_sub(1, Relaxed);
        self.origin.gauges.changed();
        // Before anybody is told that there is room.
        drop(self.permit.take());
        self.origin.connections.leave(self.number);
    }
}
