//! What each side of a session begins with.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sidelong_app::Failure;
use sidelong_fabric::control::Secret;

use crate::args::SecretArgs;

/// The environment variable of the secret.
pub(crate) const SECRET: &str = "SIDELONG_SECRET";

/// The run directory of the target with that process id.
pub(crate) fn run_dir(target: u32) -> PathBuf {
    sidelong_config::default_run_dir(&format!("perf-{target}"))
}

/// A flag that Ctrl-C and SIGTERM raise.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// The secret, from a file or the environment.
pub(crate) fn secret(args: &SecretArgs) -> Result<Secret, Failure> {
    if let Some(path) = &args.secret_file {
        return Ok(Secret::read(path)?);
    }
    let text = std::env::var(SECRET).map_err(|_| {
        Failure(format!(
            "the secret is missing: both sides need the same one, by --secret-file FILE of mode 0600 (head -c 24 /dev/urandom | \
             base64 >FILE) or by the variable {SECRET}"
        ))
    })?;
    Ok(Secret::new(text.trim().as_bytes())?)
}
