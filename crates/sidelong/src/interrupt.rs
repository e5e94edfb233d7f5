//! What Ctrl-C does to a command that writes results: it stops where it can say what is missing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// What the shell has for a command that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Set when someone asks to stop. The second time the program ends at once: what it is at may take long.
pub(crate) fn watch() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
