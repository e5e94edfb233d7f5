//! Why a task could not run. What it found is not an error: see `tidy::Problem` and `ci::Failure`.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a task could not be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program could not be started, or not be waited for.
    #[error("cannot run `{command}`: {source}")]
    Start {
        /// Its command line.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// A program that was asked something failed.
    #[error("`{command}` ended with {status}: {said}")]
    Exit {
        /// Its command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said to that.
        said: String,
    },
    /// A text is not what its kind promises.
    #[error("cannot parse {what}: {why}")]
    Parse {
        /// The text's name.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file or directory could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A guest needs what is not there.
    #[error("a guest needs more packages: apt-get install -y --no-install-recommends {packages}")]
    NotInstalled {
        /// Their names, with blanks between them.
        packages: String,
    },
    /// The guest's processor could not run this machine's programs.
    #[error("guests are x86-64 machines that run this one's programs: use an x86-64 machine")]
    Architecture,
    /// A guest never came to its command.
    #[error("the guest {name} did not come up; the end of its console:{console}")]
    NotUp {
        /// Its host name.
        name: &'static str,
        /// The last lines, each on a line of its own.
        console: String,
    },
    /// A guest ended.
    #[error("the guest {name} ended before its command; the end of its console:{console}")]
    Lost {
        /// Its host name.
        name: &'static str,
        /// The last lines, each on a line of its own.
        console: String,
    },
    /// The caller of a command in a guest has closed what it prints to.
    #[error("cannot pass on the command's output: {source}")]
    Output {
        /// Why.
        source: io::Error,
    },
}
