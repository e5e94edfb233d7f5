//! A part of a cluster as a caller starts it, watches it and ends it.

use std::sync::Arc;
use std::thread::JoinHandle;

use sidelong_config::Cluster;
use sidelong_edge::{Pulse, Stop};
use sidelong_fabric::Region;
use sidelong_layout::EdgeId;
use sidelong_reconfig::Predecessor;
use tokio::sync::watch;

use crate::event::Event;
use crate::failure::Failure;

/// Receives the events of a part, from any of its threads.
pub type Events = Arc<dyn Fn(&Event) + Send + Sync>;

/// What every part is started with.
pub struct PartSpec {
    /// The cluster, as its file describes it.
    pub cluster: Cluster,
    /// The part's name in the cluster.
    pub name: String,
    /// Receives the part's events, which are logged in any case.
    pub events: Events,
}

/// Tells a part to end. Clones tell the same part.
#[derive(Clone)]
pub struct Shutdown(Arc<watch::Sender<Option<Stop>>>);

impl Shutdown {
    pub(crate) fn new() -> Self {
        Shutdown(Arc::new(watch::Sender::new(None)))
    }

    /// Ends the part once its requests in flight are answered.
    pub fn finish(&self) {
        self.say(Stop::Graceful);
    }

    /// Ends the part at once; of an edge, requests in flight are cut.
    pub fn cut(&self) {
        self.say(Stop::Now);
    }

    /// Ends an edge once its clients have left: another process accepts where it did.
    pub(crate) fn hand_over(&self) {
        self.say(Stop::HandedOver);
    }

    /// What is slower than what was said before changes nothing.
    fn say(&self, how: Stop) {
        self.0.send_if_modified(|said| {
            let is_faster = said.is_none_or(|said| said < how);
            if is_faster {
                *said = Some(how);
            }
            is_faster
        });
    }

    /// Whether the part was told to end at once.
    pub(crate) fn is_at_once(&self) -> bool {
        *self.0.borrow() == Some(Stop::Now)
    }

    /// Whether the part was told to end.
    pub(crate) fn is_told(&self) -> bool {
        self.0.borrow().is_some()
    }

    pub(crate) fn told(&self) -> StopReceiver {
        StopReceiver { said: self.0.subscribe(), heard: None }
    }
}

/// What a part hears of its [`Shutdown`].
pub(crate) struct StopReceiver {
    said: watch::Receiver<Option<Stop>>,
    heard: Option<Stop>,
}

impl StopReceiver {
    /// Waits until the part is told to end, or to end in another way than before.
    pub(crate) async fn next(&mut self) -> Stop {
        loop {
            let said = *self.said.borrow_and_update();
            if let Some(stop) = said.filter(|_| said != self.heard) {
                self.heard = said;
                return stop;
            }
            if self.said.changed().await.is_err() {
                // Nobody is left who could say so.
                std::future::pending().await
            }
        }
    }
}

/// A front: its slot, where others read what it states, and the process from which it has taken over.
pub(crate) type Front = (EdgeId, Option<Region>, Option<Arc<Predecessor>>);

/// A part that runs. It is told to finish, and waited for, when this is dropped.
pub struct Running {
    shutdown: Shutdown,
    thread: Option<JoinHandle<Result<(), Failure>>>,
    pulse: Option<Pulse>,
}

impl Running {
    /// Does the work of a part on a thread of that name, until `shutdown` ends it.
    pub(crate) fn start(
        name: &str,
        shutdown: Shutdown,
        work: impl FnOnce() -> Result<(), Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Running { shutdown, thread: Some(thread), pulse: None })
    }

    /// A part with a thread that may be watched.
    pub(crate) fn with_pulse(mut self, pulse: Pulse) -> Self {
        self.pulse = Some(pulse);
        self
    }

    /// The pulse of the thread that scans and decides, if the part has one.
    pub fn pulse(&self) -> Option<Pulse> {
        self.pulse.clone()
    }

    /// What ends the part.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Whether the part has not ended.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Waits until the part has ended.
    ///
    /// # Errors
    /// If something else than its [`Shutdown`] has ended it.
    pub fn wait(mut self) -> Result<(), Failure> {
        let thread = self.thread.take().expect("a part is waited for once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shutdown.finish();
            // Its panic was printed where it happened.
            let _ = thread.join();
        }
    }
}
