//! SIGHUP in a cache, and in `up` without a terminal: it has all parts adopt the cluster file, or is ignored with a line in the log.
//!
//! It ends `top`, and `up` on a terminal, because their terminal was closed.

use std::io;
use std::path::PathBuf;
use std::thread;

use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

use crate::reload;

/// SIGHUP, which no longer ends this process.
pub(crate) struct Hangup(Signals);

impl Hangup {
    /// Ignores SIGHUP from now on. It starts no thread, so that a node may still drop its privileges.
    pub(crate) fn ignore() -> io::Result<Self> {
        Ok(Hangup(Signals::new([SIGHUP])?))
    }

    /// Logs each one from now on, and those received before.
    pub(crate) fn log(self) -> io::Result<()> {
        self.answer(|| {
            tracing::warn!(
                "SIGHUP was ignored: this process reads its settings at start only; restart it to apply changes"
            );
        })
    }

    /// Has all parts adopt the cluster file at `config` at each one from now on, and at those received before.
    pub(crate) fn reload(self, config: PathBuf) -> io::Result<()> {
        self.answer(move || reload::hang_up(&config))
    }

    fn answer(mut self, each: impl Fn() + Send + 'static) -> io::Result<()> {
        let answer = move || self.0.forever().for_each(|_| each());
        thread::Builder::new().name("hangup".to_owned()).spawn(answer)?;
        Ok(())
    }
}
