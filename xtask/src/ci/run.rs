//! What the steps of one run share.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::tally::Tally;
use super::times;
use crate::error::Error;
use crate::exec;
use crate::repo;

/// One thing that must hold.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) proves: &'static str,
    pub(super) run: fn(&mut Run) -> Result<(), Failure>,
}

/// Why a step failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// What was run does not do what it must.
    Unmet(String),
    /// It could not be run.
    Broken(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Broken(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unmet(what) => write!(f, "{what}"),
            Failure::Broken(error) => write!(f, "{error}"),
        }
    }
}

/// What the steps of one run share.
pub(super) struct Run {
    /// This program: where it was when the run began, for a build meanwhile may replace it.
    pub(super) here: PathBuf,
    pub(super) root: PathBuf,
    /// Whether a test that fails runs again. One that looks for rare faults at random does not: it has found one.
    pub(super) has_second_try: bool,
    pub(super) tally: Tally,
}

impl Run {
    /// cargo with the given arguments, in the project's root.
    pub(super) fn cargo(&self, args: &[&str]) -> Command {
        let mut cargo = exec::cargo();
        cargo.current_dir(&self.root).args(args);
        cargo
    }

    /// Runs a command that must end well.
    pub(super) fn must(&self, mut command: Command) -> Result<(), Failure> {
        announce(&command);
        let status = exec::status(&mut command)?;
        ended_well(&command, status)
    }

    /// What a command prints, which must end well within `limit`, or with one of `codes`.
    pub(super) fn must_print(
        &self,
        mut command: Command,
        limit: Duration,
        codes: &[i32],
    ) -> Result<String, Failure> {
        announce(&command);
        let (status, printed) = exec::output_within(&mut command, limit)?;
        let Some(status) = status else {
            let what = format!("`{}` was not done after {limit:?}", exec::command_line(&command));
            return Err(Failure::Unmet(what));
        };
        if !status.code().is_some_and(|code| codes.contains(&code)) {
            ended_well(&command, status)?;
        }
        Ok(printed)
    }

    /// Writes the table of times, in which no binary may be over its budget.
    pub(super) fn keep(&self, times: &[times::Time]) -> Result<(), Failure> {
        let path = self.target()?.join("ci-times.tsv");
        std::fs::write(&path, times::table(times)).map_err(|source| Error::Write { path, source })?;
        times::over_budget(times).map_or(Ok(()), |what| Err(Failure::Unmet(what)))
    }

    /// Where builds lie.
    pub(super) fn target(&self) -> Result<PathBuf, Failure> {
        Ok(repo::target(&self.root)?)
    }
}

pub(super) fn announce(command: &Command) {
    println!("   $ {}", exec::command_line(command));
}

pub(super) fn ended_well(command: &Command, status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    Err(Failure::Unmet(format!("`{}` ended with {status}", exec::command_line(command))))
}
