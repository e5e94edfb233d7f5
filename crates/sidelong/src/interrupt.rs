//! What Ctrl-C does to a command that writes results: it stops where it can say what is missing.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What the shell has for a command that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// What comes sooner after the first signal is no second wish: `timeout` signals the command and then its group, and so
/// do others that start commands.
const SAME_WISH: Duration = Duration::from_millis(200);

/// Set when someone asks to stop. The second time the program ends at once: what it is at may take long.
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
