//! Programs of other makes: where they are, their settings in a directory of their own, and the arguments that start them in the
//! foreground.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use crate::{Result, file};

/// Where Debian, and where Red Hat and its kin, have the modules of httpd.
const HTTPD_MODULES: [&str; 2] = ["/usr/lib/apache2/modules", "/usr/lib64/httpd/modules"];

/// The names that a program may have, of which administrators' are not on every user's path.
pub type Names = &'static [&'static str];

/// nginx.
pub const NGINX: Names = &["nginx", "/usr/sbin/nginx"];
/// Apache httpd.
pub const HTTPD: Names = &["apache2", "/usr/sbin/apache2", "httpd", "/usr/sbin/httpd"];
/// HAProxy.
pub const HAPROXY: Names = &["haproxy", "/usr/sbin/haproxy"];
/// Envoy.
pub const ENVOY: Names = &["envoy", "/usr/local/bin/envoy"];
/// etcd.
pub const ETCD: Names = &["etcd"];
/// gunicorn.
pub const GUNICORN: Names = &["gunicorn"];

/// The first of these that is on this machine.
pub fn find(names: Names) -> Option<&'static str> {
    let is_there = |name: &&str| {
        let mut asked = Command::new(name);
        asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok()
    };
    names.iter().copied().find(is_there)
}

/// The directory of httpd's modules, if it is where it usually is.
pub fn httpd_modules() -> Option<&'static str> {
    HTTPD_MODULES.into_iter().find(|path| Path::new(path).is_dir())
}

/// An nginx.
#[derive(Clone, Copy, Debug)]
pub struct Nginx<'a> {
    /// Where it keeps its files.
    pub directory: &'a Path,
    /// Worker processes. With none, it is one process without a master.
    pub workers: usize,
    /// Connections of a process, to clients and to servers.
    pub connections: u32,
    /// Who its workers are, if it is started by root.
    pub user: &'a str,
    /// What stands before all.
    pub top: &'a str,
    /// What its block `http` has besides the paths of temporary files.
    pub http: &'a str,
}

impl<'a> Nginx<'a> {
    /// One worker that may enter the directory, and this block `http`.
    pub fn new(directory: &'a Path, http: &'a str) -> Self {
        Nginx { directory, workers: 1, connections: 8192, user: "root", top: "", http }
    }

    /// Its settings.
    pub fn text(&self) -> String {
        let Nginx { directory, workers, connections, user, top, http } = self;
        let at = directory.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("  {kind}_temp_path {at}/{kind};\n"))
            .concat();
        let processes = match workers {
            0 => "master_process off;\n".to_owned(),
            _ if geteuid().is_root() => format!("user {user};\nworker_processes {workers};\n"),
            _ => format!("worker_processes {workers};\n"),
        };
        format!(
            "{top}daemon off;\n{processes}pid {at}/pid;\nerror_log stderr;\n\
             events {{ worker_connections {connections}; }}\nhttp {{\n{temporary}{http}}}\n"
        )
    }

    /// Writes its settings. Returns its arguments.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn configure(&self) -> Result<Vec<OsString>> {
        let config = written(self.directory, "nginx.conf", &self.text())?;
        Ok(vec!["-p".into(), self.directory.into(), "-c".into(), config.into(), "-e".into(), "stderr".into()])
    }
}

/// An httpd.
#[derive(Clone, Copy, Debug)]
pub struct Httpd<'a> {
    /// Where it keeps its files.
    pub directory: &'a Path,
    /// Its address.
    pub listen: SocketAddr,
    /// Where its modules are.
    pub modules_at: &'a Path,
    /// Modules that it has besides those that every httpd needs, with its multi-processing module.
    pub modules: &'a [&'a str],
    /// Who its processes are, and their group, if it is started by root.
    pub user: [&'a str; 2],
    /// The rest of its settings.
    pub more: &'a str,
}

impl Httpd<'_> {
    /// Its settings.
    pub fn text(&self) -> String {
        let Httpd { directory, listen, modules_at, modules, user: [user, group], more } = self;
        let (at, from) = (directory.display(), modules_at.display());
        let loaded: String = ["unixd", "authz_core"]
            .iter()
            .chain(*modules)
            .map(|name| {
                // Some are built in.
                let load = format!("LoadModule {name}_module {from}/mod_{name}.so");
                format!("<IfModule !{name}_module>\n{load}\n</IfModule>\n")
            })
            .collect();
        let user = match geteuid().is_root() {
            true => format!("User {user}\nGroup {group}\n"),
            false => String::new(),
        };
        format!(
            "{loaded}{user}ServerRoot {at}\nDefaultRuntimeDir {at}\nServerName {listen}\nListen {listen}\nPidFile {at}/httpd.pid\n\
             ErrorLog {at}/error.log\n{more}"
        )
    }

    /// Writes its settings. Returns its arguments.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn configure(&self) -> Result<Vec<OsString>> {
        let config = written(self.directory, "httpd.conf", &self.text())?;
        Ok(vec!["-f".into(), config.into(), "-DFOREGROUND".into()])
    }
}

/// Writes the settings of an HAProxy. Returns its arguments.
///
/// # Errors
/// If the directory cannot be written.
pub fn haproxy(directory: &Path, text: &str) -> Result<Vec<OsString>> {
    let config = written(directory, "haproxy.cfg", text)?;
    Ok(vec!["-db".into(), "-f".into(), config.into()])
}

/// The arguments of a server of etcd of that name, which keeps its data in a directory, has these addresses for clients and for the other servers,
/// and is one of `all`: NAME=ADDRESS, with commas between.
pub fn etcd(name: &str, data: &Path, [clients, peers]: &[String; 2], all: &str) -> Vec<OsString> {
    let own = [("--name", name), ("--initial-cluster", all)];
    let of_clients = [("--listen-client-urls", clients), ("--advertise-client-urls", clients)];
    let of_peers = [("--listen-peer-urls", peers), ("--initial-advertise-peer-urls", peers)];
    let addresses = of_clients.into_iter().chain(of_peers).map(|(option, at)| (option, at.as_str()));
    let options = own.into_iter().chain(addresses).flat_map(|(option, value)| [option, value]);
    options.map(OsString::from).chain(["--data-dir".into(), data.into()]).collect()
}

/// Writes the settings of an Envoy with so many threads. YAML has all of JSON. Returns its arguments.
///
/// # Errors
/// If the directory cannot be written.
pub fn envoy(directory: &Path, threads: usize, text: &str) -> Result<Vec<OsString>> {
    let (config, threads) = (written(directory, "envoy.yaml", text)?, threads.to_string());
    let alone = ["--disable-hot-restart", "--log-level", "warning", "--concurrency", &threads, "-c"];
    Ok(alone.iter().map(OsString::from).chain([config.into()]).collect())
}

/// The arguments of a gunicorn that has an application in a directory, with so many workers.
pub fn gunicorn(directory: &Path, bind: &str, workers: u16, application: &str) -> Vec<OsString> {
    let workers = workers.to_string();
    let arguments = ["--bind", bind, "--workers", &workers, "--log-level", "warning", application];
    ["--chdir".into(), directory.into()].into_iter().chain(arguments.map(OsString::from)).collect()
}

/// Writes settings into a directory, which is made.
fn written(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    file(directory, fs::create_dir_all(directory))?;
    let path = directory.join(name);
    file(&path, fs::write(&path, text))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_nginx_of_one_process_writes_where_it_is_told() {
        let nginx = Nginx::new(Path::new("/tmp/n"), "  access_log off;\n");
        let config = Nginx { workers: 0, ..nginx }.text();
        for part in [
            "master_process off;",
            "pid /tmp/n/pid;",
            "proxy_temp_path /tmp/n/proxy;",
            "  access_log off;\n}",
        ] {
            assert!(config.contains(part), "{part} is not in\n{config}");
        }
        assert!(nginx.text().contains("worker_processes 1;"));
    }
}
