//! A thread that looks up again, at intervals, what the hosts in a part's roster mean.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use sidelong_config::{look_up_again, not_found};

/// Interval between two lookups. Name servers answer from their caches for as long as a name lives there.
const LOOK_UP_EVERY: Duration = Duration::from_secs(5);

/// Has hosts looked up again. The thread ends soon after this value: nobody waits for name servers.
pub(crate) struct Hosts {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    hosts: Mutex<BTreeSet<String>>,
    /// Readable once a host means another address.
    changed: OwnedFd,
    stop: AtomicBool,
}

impl Hosts {
    /// Of a roster with these hosts. `None` if the system has no thread left, so that hosts mean what they do for good.
    pub(crate) fn start(hosts: &BTreeSet<String>) -> Option<Self> {
        warn_of(hosts);
        let changed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let started = changed.map_err(std::io::Error::from).and_then(|changed| {
            let (hosts, stop) = (Mutex::new(hosts.clone()), AtomicBool::new(false));
            let shared = Arc::new(Shared { hosts, changed, stop });
            let looking = Arc::clone(&shared);
            let thread = thread::Builder::new().name("hosts".into()).spawn(move || look_up(&looking))?;
            Ok(Hosts { shared, thread })
        });
        started.inspect_err(|error| tracing::error!(%error, "hosts are not looked up again")).ok()
    }

    /// Goes by a newer roster with these hosts.
    pub(crate) fn replace(&self, hosts: &BTreeSet<String>) {
        warn_of(hosts);
        self.shared.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone_from(hosts);
    }

    /// Readable once a host means another address, until [`Hosts::have_changed`].
    pub(crate) fn changed(&self) -> &OwnedFd {
        &self.shared.changed
    }

    /// Whether a host means another address than at the last call.
    pub(crate) fn have_changed(&self) -> bool {
        rustix::io::read(&self.shared.changed, &mut [0; 8]).is_ok()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
    }
}

/// Says which hosts were never found.
fn warn_of(hosts: &BTreeSet<String>) {
    let missing = not_found(hosts);
    if !missing.is_empty() {
        tracing::warn!(
            "no address is found for {}: what is there is out of reach until it is",
            missing.join(", ")
        );
    }
}

fn look_up(shared: &Shared) {
    loop {
        thread::park_timeout(LOOK_UP_EVERY);
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let hosts = shared.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let changed = look_up_again(&hosts);
        if !changed.is_empty() {
            tracing::info!("hosts have other addresses: {}", changed.join(", "));
            let _ = rustix::io::write(&shared.changed, &1_u64.to_ne_bytes());
        }
    }
}
