//! Processes whose failure says how to repeat them.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) use sidelong_harness::process::{Ended, Process, last_line};

use crate::error::{Error, Result};

/// Waits until `run` has ended well. `repeat` is the command that repeats it.
///
/// # Errors
/// If it fails, with the last line of `log`; if it takes longer than `limit`; or if `stop` is raised.
pub(crate) fn finish(
    process: &mut Process,
    run: &str,
    log: &Path,
    limit: Duration,
    stop: &AtomicBool,
    repeat: impl FnOnce() -> String,
) -> Result<()> {
    let run = run.to_owned();
    match process.wait(limit, stop)? {
        Ended::Stopped => Err(Error::Interrupted),
        Ended::TooLong => Err(Error::TooLong { run, limit, repeat: repeat() }),
        Ended::Itself(status) if !status.success() => {
            let said = last_line(log).unwrap_or_else(|| format!("ended with {status}"));
            Err(Error::Failed { run, said, repeat: repeat() })
        }
        Ended::Itself(_) => Ok(()),
    }
}

/// A path as a shell takes it for one word.
pub(crate) fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,".contains(c);
    if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word() {
        assert_eq!(quoted(Path::new("/tmp/R10/a.toml")), "/tmp/R10/a.toml");
        assert_eq!(quoted(Path::new("/tmp/my lab's")), r"'/tmp/my lab'\''s'");
    }
}
