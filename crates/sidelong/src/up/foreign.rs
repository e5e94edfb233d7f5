//! Programs of other makes that `up` runs as parts of the cluster, unmodified, with settings in directories of their own.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use crate::failure::Failure;

/// Where Debian, and where Red Hat and its kin, have the modules of httpd.
const HTTPD_MODULES: [&str; 2] = ["/usr/lib/apache2/modules", "/usr/lib64/httpd/modules"];

/// A program that is a part of the cluster.
pub(super) trait Foreign {
    /// Its name as a part.
    fn name(&self) -> String;

    /// Where it answers.
    fn address(&self) -> SocketAddr;

    /// The program.
    fn program(&self) -> &'static str;

    /// Writes its settings into the directory. Returns its arguments, with which it stays in the foreground.
    fn configure(&self, at: &Path) -> io::Result<Vec<OsString>>;

    /// The command that runs it. Its settings go into `directory`.
    fn command(&self, directory: &Path) -> Result<Vec<OsString>, Failure> {
        let at = directory.join(self.name());
        let written = fs::create_dir_all(&at).and_then(|()| self.configure(&at));
        let arguments =
            written.map_err(|error| Failure::new(format!("cannot write into {}: {error}", at.display())))?;
        Ok(std::iter::once(self.program().into()).chain(arguments).collect())
    }
}

/// The names that a program may have, and the package that has it.
pub(super) type Names = (&'static [&'static str], &'static str);

pub(super) const NGINX: Names = (&["nginx"], "nginx");
pub(super) const HTTPD: Names = (&["apache2", "httpd"], "apache2 (Debian) or httpd");
pub(super) const HAPROXY: Names = (&["haproxy"], "haproxy");

/// The first of these that is on this machine.
///
/// # Errors
/// None is, and what to install for the option that asks for it.
pub(super) fn find((names, package): Names, option: &str) -> Result<&'static str, Failure> {
    let is_there = |name: &&str| {
        let mut asked = Command::new(name);
        asked.arg("-v").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    names.iter().copied().find(is_there).ok_or_else(|| {
        Failure::new(format!("{option}: there is no {} here: install the package {package}", names[0]))
    })
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
        "{top}daemon off;\n{user}worker_processes {workers};\npid {directory}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n  \
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
    let loaded: String = ["mpm_event", "unixd", "authz_core"]
        .iter()
        .chain(modules)
        .map(|name| {
            // Some are built in.
            let load = format!("LoadModule {name}_module {}/mod_{name}.so", httpd_modules());
            format!("<IfModule !{name}_module>\n{load}\n</IfModule>\n")
        })
        .collect();
    let user = if geteuid().is_root() { "User nobody\nGroup nogroup\n" } else { "" };
    let text = format!(
        "ServerRoot {directory}\nDefaultRuntimeDir {directory}\nServerName localhost\nListen {address}\n\
         PidFile {directory}/pid\nErrorLog {directory}/error.log\n{loaded}{user}{more}"
    );
    let config = at.join("httpd.conf");
    fs::write(&config, text)?;
    Ok(vec!["-f".into(), config.into(), "-DFOREGROUND".into()])
}

/// The directory of httpd's modules.
pub(super) fn httpd_modules() -> &'static str {
    HTTPD_MODULES.iter().find(|path| Path::new(path).is_dir()).unwrap_or(&HTTPD_MODULES[0])
}
