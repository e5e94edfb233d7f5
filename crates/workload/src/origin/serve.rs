//! The origin's sockets: accepting, a bound on connections, idle ones, draining.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use super::answer::Origin;
use super::config::{OriginConfig, OriginError};
use super::gauges::OriginGauges;

/// Pause after an accept that failed, which most often is for want of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How an origin ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still at work after [`OriginConfig::drain_max`], and were cut.
    pub cut: u32,
}

/// What the connections of an origin are to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Finish the request in flight, and take no more.
    Draining,
    /// End now.
    Cut,
}

/// Serves `listener` until `shutdown` resolves; then refuses new connections, finishes the requests in flight, for
/// [`OriginConfig::drain_max`] at most, and returns.
///
/// Connections are tasks of the runtime that this runs on. If the returned future is dropped, they are cut.
///
/// # Errors
/// Where `config` cannot be served. Once it serves, it does not fail.
pub async fn serve(
    listener: TcpListener,
    config: OriginConfig,
    gauges: Arc<OriginGauges>,
    shutdown: impl Future<Output = ()>,
) -> Result<Drained, OriginError> {
    let origin = Arc::new(Origin::new(config, gauges)?);
    let connections_max = origin.config.connections_max;
    let room = Arc::new(Semaphore::new(connections_max as usize));
    let (phase, _) = watch::channel(Phase::Serving);
    let mut shutdown = pin!(shutdown);
    loop {
        // Room first: a connection that is not accepted waits in the backlog, where it costs nothing.
        let (permit, stream) = tokio::select! {
            biased;
            () = shutdown.as_mut() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        let connection = Connection::new(Arc::clone(&origin), permit);
        tokio::spawn(connection.run(stream, phase.subscribe()));
    }
    // Whoever connects from here on is refused.
    drop(listener);
    phase.send_replace(Phase::Draining);
    let all_closed = room.acquire_many(connections_max);
    if timeout(origin.config.drain_max, all_closed).await.is_ok() {
        return Ok(Drained { cut: 0 });
    }
    let cut = origin.gauges.connections.load(Relaxed);
    phase.send_replace(Phase::Cut);
    // They end at their next poll, so this does not wait for anyone outside.
    let _ = room.acquire_many(connections_max).await;
    Ok(Drained { cut })
}

/// The next connection that there is room for.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> (OwnedSemaphorePermit, TcpStream) {
    loop {
        if let Ok(permit) = Arc::clone(room).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => return (permit, stream),
                Err(error) => tracing::warn!(%error, "cannot accept a connection"),
            }
        }
        sleep(ACCEPT_RETRY).await;
    }
}

/// An open connection, counted while it lives.
struct Connection {
    origin: Arc<Origin>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn new(origin: Arc<Origin>, permit: OwnedSemaphorePermit) -> Self {
        origin.gauges.connections.fetch_add(1, Relaxed);
        origin.gauges.accepted_total.fetch_add(1, Relaxed);
        origin.gauges.changed();
        Connection { origin, _permit: permit }
    }

    async fn run(self, stream: TcpStream, mut phase: watch::Receiver<Phase>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot turn Nagle's algorithm off");
        }
        let pulse = Arc::new(Pulse::default());
        let (origin, beating) = (&self.origin, &pulse);
        let service =
            service_fn(
                move |request| async move { Ok::<_, Infallible>(origin.answer(beating, request).await) },
            );
        // hyper's own header timeout makes and drops a timer for each request; the pulse costs one each idle time.
        let served = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(origin.config.head_bytes_max)
            .serve_connection(TokioIo::new(stream), service);
        let mut served = pin!(served);
        let mut idle = pin!(sleep(origin.config.idle_max));
        let mut beats_seen = 0;
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
                () = idle.as_mut() => {
                    if !pulse.alive_since(&mut beats_seen) {
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
    }
}

/// Signs of life of one connection: a request that begins or ends, a piece of a body in either direction.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    beats: AtomicU32,
    /// A request waits for a worker or holds one, and nothing is to be seen meanwhile.
    working: AtomicBool,
}

impl Pulse {
    pub(super) fn beat(&self) {
        // One task alone drives a connection, so a plain store does what an atomic addition would, for less.
        self.beats.store(self.beats.load(Relaxed).wrapping_add(1), Relaxed);
    }

    pub(super) fn working(&self, working: bool) {
        self.working.store(working, Relaxed);
    }

    fn alive_since(&self, beats_seen: &mut u32) -> bool {
        let beats = self.beats.load(Relaxed);
        let alive = beats != *beats_seen || self.working.load(Relaxed);
        *beats_seen = beats;
        alive
    }
}
