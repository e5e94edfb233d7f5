//! Processes that serve: starts them and waits until they answer.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidelong_fabric::RunDirectory;
pub(crate) use sidelong_harness::serving::Address;
use sidelong_harness::serving::{answers, listens};

use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::process::{Process, last_line};

/// Time limit for a process to begin to serve.
const READY_MAX: Duration = Duration::from_secs(20);
/// Time between two probes.
const POLL: Duration = Duration::from_millis(10);

/// A process that serves.
pub(crate) struct Server<A = SocketAddr> {
    pub(crate) name: String,
    pub(crate) process: Process,
    pub(crate) address: A,
    log: PathBuf,
}

impl Server {
    /// Starts it, and waits until it answers a request for `path` of `host` as expected.
    pub(crate) fn start(
        bench: &Bench<'_>,
        name: &str,
        command: Command,
        address: SocketAddr,
        [host, path]: [&str; 2],
    ) -> Result<Server> {
        Server::start_until(bench, name, command, address, |address| answers(address, host, path))
    }
}

impl<A: Address> Server<A> {
    /// Starts it, and waits until it accepts connections. It may speak TLS, or reject everything.
    pub(crate) fn start_listening(
        bench: &Bench<'_>,
        name: &str,
        command: Command,
        address: A,
    ) -> Result<Self> {
        Server::start_until(bench, name, command, address, listens)
    }

    fn start_until(
        bench: &Bench<'_>,
        name: &str,
        command: Command,
        address: A,
        is_ready: impl Fn(&A) -> bool,
    ) -> Result<Self> {
        let output = |extension: &str| bench.path(&format!("runs/{name}.{extension}"));
        let log = output("log");
        let process = Process::start(command, &output("out"), &log)?;
        let mut server = Server { name: name.to_owned(), process, address, log };
        let deadline = Instant::now() + READY_MAX;
        while !is_ready(&server.address) {
            bench.go_on()?;
            if let Some(status) = server.process.status()? {
                return Err(server.failed(format!("ended with {status}")));
            }
            if Instant::now() > deadline {
                let (at, most) = (&server.address, READY_MAX.as_secs());
                return Err(server.failed(format!("no answer at {at:?} in {most} s")));
            }
            std::thread::sleep(POLL);
        }
        Ok(server)
    }

    /// The error that it does not serve, with the last line of its log if there is one.
    pub(crate) fn failed(&self, otherwise: String) -> Error {
        Error::Serve { what: self.name.clone(), said: last_line(&self.log).unwrap_or(otherwise) }
    }
}

/// The run directory, which is removed when this value is dropped, unless another user could have changed its path.
pub(crate) struct RunFiles(RunDirectory);

impl RunFiles {
    /// Removes what a killed lab left there.
    pub(crate) fn clear(path: PathBuf) -> RunFiles {
        let run = RunDirectory::at(path);
        run.remove();
        RunFiles(run)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Sleeps until the load has ended.
///
/// # Errors
/// If `stop` is raised.
pub(crate) fn await_end(load: &sidelong_workload::client::Run, stop: &AtomicBool) -> Result<()> {
    while !load.is_finished() {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn run_files_go_with_their_stage() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        for (others, is_removed) in [(0o777, false), (0o700, true)] {
            fs::create_dir_all(&run).unwrap();
            fs::set_permissions(directory.path(), Permissions::from_mode(others)).unwrap();
            drop(RunFiles::clear(run.clone()));
            assert_eq!(!run.exists(), is_removed, "{others:o}");
        }
    }
}
