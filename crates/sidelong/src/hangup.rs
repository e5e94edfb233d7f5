//! SIGHUP in a cache, and in `up` without a terminal: it is ignored, with a line in the log.
//!
//! It ends `top`, and `up` on a terminal, because their terminal was closed.

use std::io;
use std::thread;

use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

/// SIGHUP, which no longer ends this process.
pub(crate) struct Hangup(Signals);

impl Hangup {
    /// Ignores SIGHUP from now on. It starts no thread, so that a node may still drop its privileges.
    pub(crate) fn ignore() -> io::Result<Self> {
        Ok(Hangup(Signals::new([SIGHUP])?))
    }

    /// Logs each one from now on, and those received before.
    pub(crate) fn log(mut self) -> io::Result<()> {
        let log = move || {
            for _ in self.0.forever() {
                tracing::warn!(
                    "SIGHUP was ignored: this process reads its cluster file at start only; restart it to apply changes"
                );
            }
        };
        thread::Builder::new().name("hangup".to_owned()).spawn(log)?;
        Ok(())
    }
}
