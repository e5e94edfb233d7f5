//! Servers of other makes, which `up --servers` starts in place of the built-in origin: unmodified, each in a control group of its
//! own.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::geteuid;
use sidelong_config::{ClusterFile, Configuration, Node, ServerAddress};
use sidelong_workload::gunicorn;

use crate::cgroup;
use crate::cli::ExecArgs;
use crate::failure::Failure;
use crate::node::service_time;
use crate::parent::end_with_parent;

/// Where Debian, and where Red Hat and its kin, have the modules of httpd.
const HTTPD_MODULES: [&str; 2] = ["/usr/lib/apache2/modules", "/usr/lib64/httpd/modules"];

/// What makes the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Make {
    /// nginx with one worker process, which answers all requests with one short text
    Nginx,
    /// Apache httpd with the event MPM, which answers all requests with its status page
    Httpd,
    /// gunicorn with synchronous workers, which take the node's service time for each request
    Gunicorn,
}

impl Make {
    /// The names that its program has, and the package that has it.
    const fn programs(self) -> (&'static [&'static str], &'static str) {
        match self {
            Make::Nginx => (&["nginx"], "nginx"),
            Make::Httpd => (&["apache2", "httpd"], "apache2 (Debian) or httpd"),
            Make::Gunicorn => (&["gunicorn"], "gunicorn"),
        }
    }

    /// CPUs for each server, where the file gives no `cpu_share`: few, so that a node of nginx or httpd has a capacity which the
    /// load can reach, and enough for gunicorn to be bound by its workers.
    const fn cpu_share(self) -> f64 {
        match self {
            Make::Nginx | Make::Httpd => 0.05,
            Make::Gunicorn => 0.25,
        }
    }

    /// The program, if it is on this machine.
    fn program(self) -> Result<&'static str, Failure> {
        let (names, package) = self.programs();
        let is_there = |name: &&str| {
            let mut asked = Command::new(name);
            asked.arg("-v").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
        };
        names.iter().copied().find(is_there).ok_or_else(|| {
            Failure::new(format!("--servers: there is no {} here: install the package {package}", names[0]))
        })
    }
}

/// A server that takes the place of a node's built-in origin.
pub(super) struct Server {
    make: Make,
    program: &'static str,
    node: Node,
    address: SocketAddr,
    /// CPUs that it may use.
    pub(super) cpu_share: f64,
}

/// Turns the nodes with a built-in origin into agents of foreign servers at the same addresses. Returns these servers.
///
/// # Errors
/// If the file does not make a cluster, or the program is not there.
pub(super) fn in_place_of_origins(file: &mut ClusterFile, make: Make) -> Result<Vec<Server>, Failure> {
    replace(file, make, make.program()?)
}

/// The same with a program of that name.
fn replace(file: &mut ClusterFile, make: Make, program: &'static str) -> Result<Vec<Server>, Failure> {
    let cluster = file.cluster()?;
    if file.reconfig.configuration == Configuration::OverProvisioned {
        // The nodes that this adds are in the file from here on, because each needs a server.
        let given: usize = file.nodes.iter().map(|entry| entry.count).sum();
        if let Some(last) = file.nodes.last_mut() {
            last.count += cluster.nodes.len() - given;
        }
        file.sites.iter_mut().zip(&cluster.sites).for_each(|(entry, site)| entry.nodes = site.nodes);
        file.reconfig.configuration = Configuration::Rigid;
    }
    let nodes = cluster.nodes.into_iter().filter(|node| !node.is_foreign);
    let server = |node: Node| {
        let cpu_share = node.cpu_share.unwrap_or(make.cpu_share());
        Some(Server { make, program, address: node.port()?, node, cpu_share })
    };
    let servers = nodes.filter_map(server).collect();
    for entry in file.nodes.iter_mut().filter(|entry| !entry.is_foreign()) {
        // Workers of the others wait for nobody.
        entry.workers = if make == Make::Gunicorn { entry.workers() } else { None };
        entry.cpus = entry.cpus.or(Some(entry.cpu_share.unwrap_or(make.cpu_share())));
        entry.server = entry.listen.take().map(ServerAddress::from);
        (entry.service, entry.service_time, entry.queue_depth_max) = (None, None, None);
        (entry.root, entry.cpu_share, entry.cgroup) = (None, None, None);
    }
    Ok(servers)
}

impl Server {
    /// Its name as a part of the cluster.
    pub(super) fn name(&self) -> String {
        format!("{}-server", self.node.name)
    }

    /// Where it answers.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The command that runs it in the foreground. Its settings go into `directory`.
    pub(super) fn command(&self, directory: &Path) -> Result<Vec<OsString>, Failure> {
        let at = directory.join(self.name());
        let written = std::fs::create_dir_all(&at).and_then(|()| self.configure(&at));
        let arguments =
            written.map_err(|error| Failure::new(format!("cannot write into {}: {error}", at.display())))?;
        Ok(std::iter::once(self.program.into()).chain(arguments).collect())
    }

    /// Writes its settings into the directory. Returns its arguments.
    fn configure(&self, at: &Path) -> io::Result<Vec<OsString>> {
        match self.make {
            Make::Nginx => self.configure_nginx(at),
            Make::Httpd => self.configure_httpd(at),
            Make::Gunicorn => self.configure_gunicorn(at),
        }
    }

    fn configure_nginx(&self, at: &Path) -> io::Result<Vec<OsString>> {
        let (address, directory) = (self.address(), at.display());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("  {kind}_temp_path {directory}/{kind};\n"))
            .concat();
        // As root its workers would have another user, who may not enter the directory.
        let user = if geteuid().is_root() { "user root;\n" } else { "" };
        let text = format!(
            "daemon off;\n{user}worker_processes 1;\npid {directory}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n  \
             access_log off;\n{temporary}  server {{\n    listen {address};\n    location / {{ return 200 \"ok\\n\"; }}\n  }}\n}}\n"
        );
        let config = at.join("nginx.conf");
        std::fs::write(&config, text)?;
        Ok(vec!["-p".into(), at.into(), "-c".into(), config.into(), "-e".into(), "stderr".into()])
    }

    fn configure_httpd(&self, at: &Path) -> io::Result<Vec<OsString>> {
        let (address, directory) = (self.address(), at.display());
        let modules = HTTPD_MODULES.iter().find(|path| Path::new(path).is_dir()).unwrap_or(&HTTPD_MODULES[0]);
        let loaded: String = ["mpm_event", "unixd", "authz_core", "status"]
            .map(|name| {
                // Some are built in.
                let load = format!("LoadModule {name}_module {modules}/mod_{name}.so");
                format!("<IfModule !{name}_module>\n{load}\n</IfModule>\n")
            })
            .concat();
        // A status page needs no file, which httpd's other user could not read here if this is root.
        let user = if geteuid().is_root() { "User nobody\nGroup nogroup\n" } else { "" };
        let text = format!(
            "ServerRoot {directory}\nServerName localhost\nListen {address}\nPidFile {directory}/pid\n\
             ErrorLog {directory}/error.log\n{loaded}{user}<Location />\nSetHandler server-status\n</Location>\n"
        );
        let config = at.join("httpd.conf");
        std::fs::write(&config, text)?;
        Ok(vec!["-f".into(), config.into(), "-DFOREGROUND".into()])
    }

    fn configure_gunicorn(&self, at: &Path) -> io::Result<Vec<OsString>> {
        gunicorn::arguments(at, self.address(), self.node.workers.unwrap_or(1), service_time(&self.node))
    }
}

/// Becomes the given command, in the given control group if there is one. The process ends with its parent.
pub(crate) fn exec(args: &ExecArgs) -> Result<(), Failure> {
    end_with_parent(Some(args.with_parent))?;
    if let Some(group) = &args.join_cgroup {
        cgroup::join(group)?;
    }
    let [program, arguments @ ..] = &args.command[..] else { return Ok(()) };
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::new(format!("cannot run {}: {error}", PathBuf::from(program).display())))
}

/// Longest wait for a connection to a server on this machine.
pub(super) const CONNECT_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_server_also_those_that_over_provisioning_adds() {
        let mut file = ClusterFile::demo();
        file.reconfig.configuration = Configuration::OverProvisioned;
        let before = file.cluster().unwrap();
        let servers = replace(&mut file, Make::Gunicorn, "gunicorn").unwrap();
        let after = file.cluster().unwrap();
        assert_eq!(servers.len(), 18);
        assert!(after.nodes.iter().all(|node| node.is_foreign && node.workers == Some(2)));
        for ((server, was), node) in servers.iter().zip(&before.nodes).zip(&after.nodes) {
            assert_eq!((Some(server.address()), &node.name, node.site), (node.port(), &was.name, was.site));
        }
        // There is nothing left to put in place.
        assert_eq!(replace(&mut file, Make::Gunicorn, "gunicorn").unwrap().len(), 0);
    }
}
