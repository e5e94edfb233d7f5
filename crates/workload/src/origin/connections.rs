//! The open connections of an origin, and who leaves where there is no room for another.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use sidelong_os::{monotonic_ns, open_files_max};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Longest wait for a connection to leave, before it is tried again or others are asked to.
const LEAVE_MAX: Duration = Duration::from_millis(100);
/// A connection that was idle for less may have a request on its way, and leaves after that one's answer.
const IDLE_MIN: Duration = Duration::from_millis(50);
/// Of the connections, the part that is asked to leave at once, and one more.
const LEAVING_PART: usize = 64;
/// Most descriptors that are kept from connections, for files and for the process's other sockets: a quarter of those there
/// are, and no more than this.
const RESERVE_MAX: u64 = 64;

/// The open connections.
#[derive(Debug, Default)]
pub(super) struct Connections {
    pulses: Mutex<HashMap<u64, Arc<Pulse>>>,
    next: AtomicU64,
    left: Notify,
}

impl Connections {
    /// A new connection, under the number that it leaves with.
    pub(super) fn enter(&self) -> (u64, Arc<Pulse>) {
        let (number, pulse) = (self.next.fetch_add(1, Relaxed), Arc::new(Pulse::new()));
        self.pulses().insert(number, Arc::clone(&pulse));
        (number, pulse)
    }

    pub(super) fn leave(&self, number: u64) {
        self.pulses().remove(&number);
        self.left.notify_one();
    }

    /// Asks those that have been idle for longest to leave, and waits until one has, for [`LEAVE_MAX`] at most.
    pub(super) async fn make_room(&self) {
        let (leaving, mut others): (Vec<_>, Vec<_>) =
            self.pulses().values().cloned().partition(|pulse| pulse.is_leaving());
        others.sort_by_key(|pulse| (pulse.working.load(Relaxed), pulse.last_ns.load(Relaxed)));
        others.truncate(1 + others.len() / LEAVING_PART);
        // Those that were asked before may have become idle since.
        leaving.iter().chain(&others).for_each(|pulse| pulse.ask_to_leave());
        let _ = timeout(LEAVE_MAX, self.left.notified()).await;
    }

    fn pulses(&self) -> MutexGuard<'_, HashMap<u64, Arc<Pulse>>> {
        self.pulses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Signs of life of one connection: a request that begins or ends, a piece of a body in either direction.
#[derive(Debug)]
pub(super) struct Pulse {
    /// Monotonic time of the last one.
    last_ns: AtomicU64,
    /// A request waits for a worker or holds one, and nothing is to be seen meanwhile.
    working: AtomicBool,
    /// The next answer is the last.
    leaving: AtomicBool,
    /// To leave at once, unless a request is being answered.
    leave: Notify,
}

impl Pulse {
    fn new() -> Self {
        Pulse {
            last_ns: AtomicU64::new(monotonic_ns()),
            working: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            leave: Notify::new(),
        }
    }

    pub(super) fn beat(&self) {
        self.last_ns.store(monotonic_ns(), Relaxed);
    }

    pub(super) fn working(&self, working: bool) {
        self.working.store(working, Relaxed);
    }

    /// Whether there was a sign of life since the last call with the same `seen_ns`.
    pub(super) fn alive_since(&self, seen_ns: &mut u64) -> bool {
        let last_ns = self.last_ns.load(Relaxed);
        let alive = last_ns != *seen_ns || self.working.load(Relaxed);
        *seen_ns = last_ns;
        alive
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    /// Waits until the connection is to leave between two requests.
    pub(super) async fn told_to_leave(&self) {
        self.leave.notified().await;
    }

    fn ask_to_leave(&self) {
        self.leaving.store(true, Relaxed);
        let idle_ns = monotonic_ns().saturating_sub(self.last_ns.load(Relaxed));
        if !self.working.load(Relaxed) && idle_ns >= IDLE_MIN.as_nanos() as u64 {
            self.leave.notify_one();
        }
    }
}

/// Whether `error` says that the process or the system has no descriptors or memory left.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| short.contains(&errno))
}

/// The connections that the process has descriptors for.
pub(super) fn connections_max() -> u32 {
    let most = open_files_max();
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64);
    let left = most.saturating_sub(open);
    u32::try_from(left - (left / 4).min(RESERVE_MAX)).unwrap_or(u32::MAX).max(1)
}
