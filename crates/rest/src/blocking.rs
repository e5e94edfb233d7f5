//! What a thread waits by.

use std::io;
use std::ops::Deref;

use tokio::runtime::{Builder, Runtime};

/// A runtime of one thread, by which that waits. When it is dropped, nobody waits for a name that is still looked up: the system may take a
/// minute to give that up, and each wait here is bounded.
#[derive(Debug)]
pub struct Blocking(Option<Runtime>);

impl Blocking {
    /// One that waits for nothing yet.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Builder::new_current_thread().enable_all().build().map(|runtime| Blocking(Some(runtime)))
    }
}

impl Deref for Blocking {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}
