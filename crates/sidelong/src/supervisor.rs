//! What supervises this process, such as systemd, hears when the process is ready, that it goes on, and that it ends (sd_notify(3)).

use std::thread;

use sd_notify::NotifyState;
use sidelong_app::Pulse;
use sidelong_edge::COMPLETE_MAX;

/// So many looks at a pulse fit into the time after which a supervisor thinks that it is dead.
const BEATS_MISSED_MAX: u32 = 3;

/// The part serves.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// The part ends, which takes as long as its requests do.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

/// The part has started. It is [`ready`] once its events say so, or without the nodes that it has not read by then, as at `/readyz`: a node
/// that is away keeps no unit from starting. If the supervisor has a watchdog, it hears that the part goes on for as long as its `pulse`
/// does.
///
/// # Errors
/// If a thread does not start.
pub(crate) fn started(pulse: Option<Pulse>) -> std::io::Result<()> {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return Ok(());
    }
    let limit = sd_notify::watchdog_enabled();
    let watch = move || {
        thread::sleep(COMPLETE_MAX);
        ready();
    };
    thread::Builder::new().name("supervisor".to_owned()).spawn(watch)?;
    let (Some(limit), Some(pulse)) = (limit, pulse) else { return Ok(()) };
    // A thread that looks seldom does not hang.
    let slow = pulse.every().saturating_mul(BEATS_MISSED_MAX);
    if slow > limit {
        tell(NotifyState::WatchdogUsec(u32::try_from(slow.as_micros()).unwrap_or(u32::MAX)));
    }
    let every = limit.max(slow) / BEATS_MISSED_MAX;
    let beat = move || {
        let mut last = None;
        loop {
            let beats = pulse.beats();
            if last.replace(beats) != Some(beats) {
                tell(NotifyState::Watchdog);
            }
            thread::sleep(every);
        }
    };
    thread::Builder::new().name("watchdog".to_owned()).spawn(beat)?;
    Ok(())
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!("what supervises this process at NOTIFY_SOCKET does not hear it: {error}");
    }
}
