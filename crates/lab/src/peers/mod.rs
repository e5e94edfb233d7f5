//! Other proxies, to put in front of the same servers: their configurations, and where they are found.
//!
//! The configuration of a peer is a pure function of a [`Deployment`], in the form that its own documentation recommends.
//! Figures that only its operator can know are set in its favour: how many requests a server serves at a time, and the
//! target.

mod envoy;
mod haproxy;
mod httpd;

pub(crate) use httpd::is_of_this_release;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sidelong_harness::programs;

use crate::bench::Bench;
use crate::error::{Error, Result, file};
use crate::process::{Ended, Process, last_line};

/// The share of the waiting time allowed by the target that a peer is told to use. The rest is a reserve.
const PART: f64 = 0.7;

/// Time limit for installing a peer.
const INSTALL_MAX: Duration = Duration::from_secs(300);
/// Time limit for a peer to state its version, or to build a module.
const ASK_MAX: Duration = Duration::from_secs(60);

/// The place of a proxy, and its target.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Deployment {
    /// The address where it listens.
    pub(crate) listen: SocketAddr,
    pub(crate) sites: Vec<Site>,
    /// Requests that a server serves at a time.
    pub(crate) workers: u32,
    /// Service time of a request.
    pub(crate) service: Duration,
    /// The target: 99 of 100 answers come within this time.
    pub(crate) target: Duration,
    /// The directory where it may write.
    pub(crate) directory: PathBuf,
    /// The directory and name of the front that controls httpd.
    pub(crate) front: PathBuf,
}

/// One hosted site.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Site {
    pub(crate) name: &'static str,
    pub(crate) host: &'static str,
    /// The priority. Lower ones make room first.
    pub(crate) priority: u8,
    /// Its servers.
    pub(crate) nodes: Vec<SocketAddr>,
}

impl Deployment {
    /// All servers of all sites.
    fn nodes(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.sites.iter().flat_map(|site| site.nodes.iter().copied())
    }

    /// Requests that may wait for servers with `workers` in all, if `left` is the time that the target leaves for waiting.
    fn waiting_max(&self, workers: u32, left: Duration) -> u32 {
        (PART * left.as_secs_f64() * f64::from(workers) / self.service.as_secs_f64()).floor().max(1.0) as u32
    }

    /// Requests that all servers serve at a time.
    fn all_workers(&self) -> u32 {
        self.nodes().count() as u32 * self.workers
    }
}

/// The kind of a peer and its configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    EnvoyAdaptive,
    EnvoyAdmission,
    Haproxy,
    /// With mod_sidelong, which `sidelong front` controls.
    Httpd,
}

impl Peer {
    pub(crate) const ALL: [Peer; 4] = [Peer::EnvoyAdaptive, Peer::EnvoyAdmission, Peer::Haproxy, Peer::Httpd];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Peer::EnvoyAdaptive => "envoy-adaptive",
            Peer::EnvoyAdmission => "envoy-admission",
            Peer::Haproxy => "haproxy",
            Peer::Httpd => "httpd-sidelong",
        }
    }

    /// Its version, and its configuration before `place` in a sentence.
    pub(crate) fn told(self, found: &Found, place: &Deployment) -> String {
        let configuration = match self {
            Peer::EnvoyAdaptive => envoy::describe_adaptive(),
            Peer::EnvoyAdmission => envoy::describe_admission(place),
            Peer::Haproxy => haproxy::describe(place),
            Peer::Httpd => httpd::describe(),
        };
        format!("{} ({}): {configuration}", self.word(), found.version)
    }

    /// The command that runs it before `place`, with its configuration in a directory of that name.
    pub(crate) fn command(self, found: &Found, place: &Deployment, name: &str) -> Result<Command> {
        let directory = place.directory.join(name);
        let arguments = match self {
            Peer::EnvoyAdaptive => {
                programs::envoy(&directory, 1, &envoy::config(place, &envoy::adaptive(), None))
            }
            Peer::EnvoyAdmission => {
                let most = Some(envoy::under_way_max(place));
                programs::envoy(&directory, 1, &envoy::config(place, &envoy::admission(), most))
            }
            Peer::Haproxy => programs::haproxy(&directory, &haproxy::config(place)),
            Peer::Httpd => {
                httpd::forget(place);
                httpd::configure(place, found)
            }
        };
        let mut command = Command::new(&found.program);
        command.args(arguments?);
        Ok(command)
    }
}

/// A peer that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) program: PathBuf,
    /// The version that it states.
    pub(crate) version: String,
    /// The directory of httpd's modules.
    modules: PathBuf,
}

/// The outcome of a search for peers.
pub(crate) struct Looked {
    pub(crate) here: Vec<(Peer, Found)>,
    /// Peers that this machine does not have, and how to get each.
    pub(crate) missing: Vec<String>,
}

/// Finds the peers on this machine. Fetches Envoy if it is missing.
pub(crate) fn find(bench: &Bench<'_>, peers: &[Peer]) -> Result<Looked> {
    let (mut here, mut missing) = (Vec::new(), Vec::new());
    let search = Search { directory: &bench.path(""), stop: &bench.options.stop };
    for &peer in peers {
        let found = match peer {
            Peer::EnvoyAdaptive | Peer::EnvoyAdmission => envoy::find_or_fetch(&search)?,
            Peer::Haproxy => haproxy::find(&search)?,
            Peer::Httpd => httpd::find(&search)?,
        };
        match found {
            Ok(found) => here.push((peer, found)),
            Err(how) => missing.push(format!("{}: {how}", peer.word())),
        }
    }
    Ok(Looked { here, missing })
}

/// Runs a command that fetches or builds something. Returns the reason if it fails.
pub(crate) fn why_not(bench: &Bench<'_>, command: Command, limit: Duration) -> Result<Option<String>> {
    let search = Search { directory: &bench.path(""), stop: &bench.options.stop };
    search.said(command, limit).map(std::result::Result::err)
}

/// How peers are searched for.
struct Search<'a> {
    /// The experiment's directory.
    directory: &'a Path,
    stop: &'a AtomicBool,
}

impl Search<'_> {
    /// The first of these programs that states its version when run with `asked`. A name without a directory is searched
    /// for on the path.
    fn first_that_answers(&self, programs: &[PathBuf], asked: &str) -> Result<Option<(PathBuf, String)>> {
        for program in programs {
            let mut command = Command::new(program);
            command.arg(asked);
            if let Ok(said) = self.said(command, ASK_MAX)? {
                let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
                // Envoy begins with its own path.
                let version = first.trim().trim_start_matches(&*program.to_string_lossy()).trim_start();
                return Ok(Some((program.clone(), version.to_owned())));
            }
        }
        Ok(None)
    }

    /// The output of a command that ends by itself, or the reason of its failure.
    fn said(&self, command: Command, limit: Duration) -> Result<std::result::Result<String, String>> {
        let [output, log] = ["runs/peer.out", "runs/peer.log"].map(|name| self.directory.join(name));
        let name = Path::new(command.get_program()).display().to_string();
        let mut process = match Process::start(command, &output, &log) {
            Err(sidelong_harness::Error::Start { source, .. }) => {
                return Ok(Err(format!("{name}: {source}")));
            }
            started => started?,
        };
        match process.wait(limit, self.stop)? {
            Ended::Stopped => Err(Error::Interrupted),
            Ended::TooLong => Ok(Err(format!("{name}: no end after {} s", limit.as_secs()))),
            Ended::Itself(status) if !status.success() => {
                let why = last_line(&log).or_else(|| last_line(&output));
                Ok(Err(format!("{name}: {}", why.unwrap_or_else(|| status.to_string()))))
            }
            Ended::Itself(_) => Ok(Ok(file(&output, std::fs::read_to_string(&output))?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Two sites, of one server and of two.
    pub(super) fn place() -> Deployment {
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let site = |name, host, priority, nodes: &[u16]| Site {
            name,
            host,
            priority,
            nodes: nodes.iter().map(|port| at(*port)).collect(),
        };
        Deployment {
            listen: at(20_000),
            sites: vec![
                site("high", "high.example", 1, &[20_001]),
                site("low", "low.example", 0, &[20_002, 20_003]),
            ],
            workers: 4,
            service: Duration::from_millis(20),
            target: Duration::from_millis(80),
            directory: PathBuf::from("/tmp/peers"),
            front: PathBuf::from("/tmp/peers/edge1"),
        }
    }

    /// The peers that are installed accept their configurations.
    #[test]
    fn real_ones_take_what_they_are_told() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("runs")).unwrap();
        let search = Search { directory: directory.path(), stop: &AtomicBool::new(false) };
        let place = Deployment { directory: directory.path().to_owned(), ..place() };
        for peer in Peer::ALL {
            let (found, more): (_, &[&str]) = match peer {
                Peer::EnvoyAdaptive | Peer::EnvoyAdmission => {
                    (envoy::find(&search, PathBuf::from("envoy")).unwrap(), &["--mode", "validate"])
                }
                Peer::Haproxy => (haproxy::find(&search).unwrap(), &["-c"]),
                Peer::Httpd => (httpd::find(&search).unwrap(), &["-t"]),
            };
            let found = match found {
                Ok(found) => found,
                Err(how) => {
                    let _ = writeln!(std::io::stderr(), "SKIPPED: {}: {how}", peer.word());
                    continue;
                }
            };
            assert!(found.version.contains(|c: char| c.is_ascii_digit()), "{}", found.version);
            let mut command = peer.command(&found, &place, peer.word()).unwrap();
            command.args(more);
            let said = search.said(command, ASK_MAX).unwrap();
            assert!(said.is_ok(), "{}: {said:?}", peer.word());
        }
    }
}
