//! The parts of an `up`, and the `up` that is their parent: they end with it, and the next one waits until they have.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use sidelong_fabric::RunDirectory;

use crate::cli::PartArgs;
use crate::failure::Failure;

/// Parts of an `up` that was killed have this long to end.
const LEFT_BEHIND_MAX: Duration = Duration::from_secs(15);
/// How often it is looked whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Ends this process with its parent, where it was started as a part of one.
pub(crate) fn end_with_parent(args: &PartArgs) -> Result<(), Failure> {
    let Some(parent) = args.with_parent else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have ended before that.
    if parent != 0 && getppid().map_or(0, |pid| pid.as_raw_nonzero().get()) != parent {
        return Err(Failure::new("the process that started this one has ended"));
    }
    Ok(())
}

/// What a part holds for as long as it lives, so that [`await_left_behind`] knows of it.
pub(crate) fn hold(args: &PartArgs, run: &RunDirectory) -> Result<Option<File>, Failure> {
    if args.with_parent.is_none() {
        return Ok(None);
    }
    let file = open(run)?;
    flock(&file, FlockOperation::LockShared)?;
    Ok(Some(file))
}

/// Waits until the parts of an earlier `up` in this run directory, which was killed, have ended: until then they have
/// their ports.
pub(crate) fn await_left_behind(run: &RunDirectory) -> Result<(), Failure> {
    let file = open(run)?;
    let deadline = Instant::now() + LEFT_BEHIND_MAX;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > deadline {
            let path = run.path().display();
            return Err(Failure::new(format!("{path}: parts of a killed sidelong still run in it")));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// The file that all parts of an `up` hold a shared lock on.
fn open(run: &RunDirectory) -> Result<File, Failure> {
    let path = run.path().join("parts");
    let opened = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
    opened.map_err(|error| Failure::new(format!("cannot open {}: {error}", path.display())))
}
