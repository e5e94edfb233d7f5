//! A thread that ends with a value.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// A thread that is told to end, and waited for, when this is dropped.
#[derive(Debug)]
pub struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Does `work` on a thread of that name. It ends soon after what it is given is set; if it is parked then, it is woken.
    ///
    /// # Errors
    /// If the thread cannot start.
    pub fn start(name: &str, work: impl FnOnce(&AtomicBool) + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = Builder::new().name(name.to_owned()).spawn(move || work(&stopped))?;
        Ok(Worker { stop, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // Its panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_woken_and_waited_for() {
        let has_ended = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&has_ended);
        let worker = Worker::start("parked", move |stop| {
            while !stop.load(Ordering::Acquire) {
                std::thread::park();
            }
            ends.store(true, Ordering::Release);
        });
        drop(worker.unwrap());
        assert!(has_ended.load(Ordering::Acquire));
    }
}
