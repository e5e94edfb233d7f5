//! A thread that serves until its owner drops it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};

/// A request to stop. It becomes readable, so that a thread can wait for it beside its other descriptors.
#[derive(Debug)]
pub(crate) struct Stop {
    said: AtomicBool,
    waker: OwnedFd,
}

impl Stop {
    pub(crate) fn is_said(&self) -> bool {
        self.said.load(Ordering::Acquire)
    }

    fn say(&self) {
        self.said.store(true, Ordering::Release);
        // Cannot fail: the counter holds far more than one wake-up.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// A running thread, which stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Service {
    stop: Arc<Stop>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Service {
    /// Starts a thread called `name` that does what `prepare` returns. It must end when told to stop.
    pub(crate) fn start<F>(
        name: &str,
        prepare: impl FnOnce(Arc<Stop>) -> io::Result<F>,
    ) -> io::Result<Service>
    where
        F: FnOnce() + Send + 'static,
    {
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Arc::new(Stop { said: AtomicBool::new(false), waker });
        let work = prepare(Arc::clone(&stop))?;
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Service { stop, thread: Mutex::new(Some(thread)) })
    }

    /// Stops the thread, and waits until it has ended.
    pub(crate) fn end(&self) {
        self.stop.say();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}
