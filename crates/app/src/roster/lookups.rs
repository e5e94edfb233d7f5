//! A thread that looks up again, at intervals, what the hosts in a part's roster mean.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use sidelong_config::{self as config, forget_others, have_changed, is_nowhere, look_up_again};

/// Interval between two lookups. Name servers answer from their caches for as long as a name lives there.
const LOOK_UP_EVERY: Duration = Duration::from_secs(5);

/// Has hosts looked up again. The thread ends soon after this value: nobody waits for name servers.
pub(crate) struct Lookups {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    /// As the part goes by them.
    hosts: Mutex<config::Hosts>,
    /// Readable once a host means another address.
    changed: OwnedFd,
    stop: AtomicBool,
}

impl Shared {
    fn hosts(&self) -> MutexGuard<'_, config::Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lookups {
    /// Of a roster with these hosts. `None` if the system has no thread left, so that hosts mean what they do for good.
    pub(crate) fn start(hosts: &config::Hosts) -> Option<Self> {
        warn_of(hosts);
        let changed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let started = changed.map_err(std::io::Error::from).and_then(|changed| {
            let (hosts, stop) = (Mutex::new(hosts.clone()), AtomicBool::new(false));
            let shared = Arc::new(Shared { hosts, changed, stop });
            let looking = Arc::clone(&shared);
            let thread = thread::Builder::new().name("hosts".into()).spawn(move || look_up(&looking))?;
            Ok(Lookups { shared, thread })
        });
        started.inspect_err(|error| tracing::error!(%error, "hosts are not looked up again")).ok()
    }

    /// Goes by a newer roster with these hosts.
    pub(crate) fn replace(&self, hosts: &config::Hosts) {
        warn_of(hosts);
        self.shared.hosts().clone_from(hosts);
    }

    /// Readable once a host means another address, until [`Lookups::have_changed`].
    pub(crate) fn changed(&self) -> &OwnedFd {
        &self.shared.changed
    }

    /// Whether a host means another address than at the last call.
    pub(crate) fn have_changed(&self) -> bool {
        rustix::io::read(&self.shared.changed, &mut [0; 8]).is_ok()
    }
}

impl Drop for Lookups {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
    }
}

/// Says which hosts were never found.
fn warn_of(hosts: &config::Hosts) {
    let missing: Vec<_> = hosts.iter().filter(|(_, at)| is_nowhere(**at)).map(|(host, _)| &**host).collect();
    if !missing.is_empty() {
        tracing::warn!(
            "no address is found for {}: what is there is out of reach until it is",
            missing.join(", ")
        );
    }
}

fn look_up(shared: &Shared) {
    loop {
        let hosts = shared.hosts().clone();
        for host in hosts.keys() {
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            look_up_again(host);
        }
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        // By what the part goes now, and again until it goes by it.
        let hosts = shared.hosts();
        forget_others(&hosts);
        if have_changed(&hosts) {
            let _ = rustix::io::write(&shared.changed, &1_u64.to_ne_bytes());
        }
        drop(hosts);
        thread::park_timeout(LOOK_UP_EVERY);
    }
}
