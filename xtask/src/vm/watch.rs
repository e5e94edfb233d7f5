//! Waits for a run to be over: for what its guests send, for a signal, for its time to be up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::course::Course;
use super::guest::{Guest, Lost, Sent};
use crate::error::Error;

/// A guest takes four seconds to be ready. This is for hosts that are slow and busy.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// What the node's command has to end in order.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How often signals are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// As timeout(1) has it.
pub(crate) const TIMED_OUT: u8 = 124;

/// A run that is under way.
pub(super) struct Watch {
    pub(super) names: Vec<&'static str>,
    pub(super) guests: Vec<Guest>,
    pub(super) course: Course,
    /// The number of a signal that asks us to end, or 0.
    pub(super) signal: Arc<AtomicUsize>,
    /// The time that it has, for the message
    pub(super) limit: Duration,
    /// and when that is over.
    pub(super) end: Instant,
}

impl Watch {
    /// Waits for its end. Its guests end with it.
    pub(super) fn see_through(mut self, events: &Receiver<Sent>) -> Result<u8, Error> {
        let up_by = self.end.min(Instant::now() + BOOT_LIMIT);
        let mut stopped_by = None;
        loop {
            if let Some(code) = self.course.over() {
                return Ok(code);
            }
            match self.signal.load(Ordering::Relaxed) {
                0 => {}
                signal => return Ok(128 | u8::try_from(signal).unwrap_or_default()),
            }
            let now = Instant::now();
            if let Some(code) = self.course.last() {
                if *stopped_by.get_or_insert(now + STOP_LIMIT) <= now {
                    return Ok(code);
                }
            } else if let Some(at) = self.course.not_ready().filter(|_| now >= up_by) {
                return Err(self.lost(at, "did not come up in time"));
            } else if now >= self.end {
                eprintln!("xtask: the command was not done after {:?}: see --timeout", self.limit);
                for guest in &self.guests {
                    eprintln!("xtask: the end of its console:{}", guest.console());
                }
                return Ok(TIMED_OUT);
            }
            match events.recv_timeout(LOOK_EVERY) {
                Ok((from, Ok(event))) => {
                    for (to, word) in self.course.on(from, event) {
                        self.guests[to].tell(word);
                    }
                }
                Ok((_, Err(Lost::Caller(source)))) => return Err(Error::Output { source }),
                // A guest that was to stop has done so.
                Ok((from, Err(Lost::Guest))) => {
                    return self.course.last().ok_or_else(|| self.lost(from, "ended before its command"));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost(0, "went silent")),
            }
        }
    }

    fn lost(&self, at: usize, what: &'static str) -> Error {
        Error::Guest { name: self.names[at], what, console: self.guests[at].console() }
    }
}

/// Where the number of a signal that asks us to end will stand.
pub(super) fn catch_signals() -> Result<Arc<AtomicUsize>, Error> {
    let caught = Arc::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let number = usize::try_from(signal).unwrap_or(usize::MAX);
        signal_hook::flag::register_usize(signal, Arc::clone(&caught), number)
            .map_err(|source| Error::Start { command: "a handler of signals".into(), source })?;
    }
    Ok(caught)
}
