//! Ctrl-C in a command that writes results: the command stops where it can report what is missing.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Exit code of a command that Ctrl-C ended, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// A signal sooner after the first is a repetition: `timeout`, for one, signals the command and then its group.
const SAME_WISH: Duration = Duration::from_millis(200);

/// The flag that the first signal sets. A second signal ends the program at once.
pub(crate) fn watch() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let wish = Arc::clone(&stop);
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut first: Option<Instant> = None;
        for _ in signals.forever() {
            wish.store(true, Ordering::Relaxed);
            if first.get_or_insert_with(Instant::now).elapsed() > SAME_WISH {
                process::exit(INTERRUPTED.into());
            }
        }
    })?;
    Ok(stop)
}
