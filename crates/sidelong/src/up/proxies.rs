//! Proxies of other makes, which `up --front` starts in place of the edges, each led by a front or left to itself.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use rustix::process::geteuid;
use sidelong_config::{Cluster, ClusterFile, Configuration, EdgeEntry, FrontEntry, Proxy as Make};

use super::foreign::{self, Foreign, configure_httpd, configure_nginx, httpd_modules};
use crate::failure::Failure;
use crate::front::haproxy;
use crate::front::lines::{self, By, Pool};

/// What makes the proxies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum FrontMake {
    /// nginx, whose module asks the front for the server of each request
    Nginx,
    /// Apache httpd with the event MPM, whose module asks the front likewise
    Httpd,
    /// HAProxy, which the front gives weights
    Haproxy,
}

impl FrontMake {
    const fn of_file(self) -> Make {
        match self {
            FrontMake::Nginx => Make::Nginx,
            FrontMake::Httpd => Make::Httpd,
            FrontMake::Haproxy => Make::Haproxy,
        }
    }

    const fn names(self) -> foreign::Names {
        match self {
            FrontMake::Nginx => foreign::NGINX,
            FrontMake::Httpd => foreign::HTTPD,
            FrontMake::Haproxy => foreign::HAPROXY,
        }
    }

    /// The module by which it is led.
    fn module(self, program: &str) -> Result<Option<PathBuf>, Failure> {
        let (file, installed, target) = match self {
            FrontMake::Nginx => ("ngx_http_sidelong_module.so", nginx_modules(program), "nginx"),
            FrontMake::Httpd => ("mod_sidelong.so", Some(httpd_modules().into()), "httpd"),
            FrontMake::Haproxy => return Ok(None),
        };
        // In the source directory what was built there is newer than what is installed. It is run, so it must be one's own.
        let built = std::env::current_dir().map(|here| here.join("fronts/build")).ok();
        let is_ours =
            |path: &PathBuf| path.metadata().is_ok_and(|file| [0, geteuid().as_raw()].contains(&file.uid()));
        let mut files = built.into_iter().chain(installed).map(|directory| directory.join(file));
        files.find(is_ours).map(Some).ok_or_else(|| {
            Failure::new(format!(
                "--front {target}: {target} has no {file}: run `make -C fronts {target}` in Sidelong's sources, and \
                 `sudo make -C fronts install-{target}`"
            ))
        })
    }
}

/// Where an nginx looks for modules, as it says itself.
fn nginx_modules(program: &str) -> Option<PathBuf> {
    let said = Command::new(program).arg("-V").output().ok()?.stderr;
    let said = String::from_utf8_lossy(&said).into_owned();
    let option =
        |name: &str| said.split_whitespace().find_map(|word| word.strip_prefix(name)).map(PathBuf::from);
    option("--modules-path=").or_else(|| Some(option("--prefix=")?.join("modules")))
}

/// A proxy that takes the place of an edge.
pub(super) struct Proxy {
    make: FrontMake,
    by: By,
    program: &'static str,
    /// What it loads to be led.
    module: Option<PathBuf>,
    listen: SocketAddr,
    threads: usize,
    /// The front that leads it, if one does.
    front: FrontEntry,
    /// Its settings, but for the paths of its own directory.
    lines: String,
}

/// Turns the edges into fronts of proxies that listen in their places. Returns these proxies.
///
/// # Errors
/// If the file does not make a cluster, the program or its module is not there, or an edge does what `up` cannot tell a proxy.
pub(super) fn in_place_of_edges(
    file: &mut ClusterFile,
    make: FrontMake,
    by: By,
) -> Result<Vec<Proxy>, Failure> {
    let run = file.cluster()?.run_dir;
    let program = foreign::find(make.names(), "--front")?;
    let module = if by == By::Sidelong { make.module(program)? } else { None };
    if by != By::Sidelong && file.reconfig.configuration == Configuration::Reconfigured {
        // Nobody would move nodes.
        file.reconfig.configuration = Configuration::Rigid;
    }
    let mut proxies = Vec::new();
    for edge in std::mem::take(&mut file.edges) {
        let EdgeEntry { name, listen, fabric_listen, admin, threads, .. } = &edge;
        let plain = EdgeEntry {
            fabric_listen: *fabric_listen,
            admin: *admin,
            threads: *threads,
            ..EdgeEntry::new(name.clone(), *listen)
        };
        if edge != plain {
            return Err(Failure::new(format!(
                "--front: edge {name} has settings for an edge of Sidelong alone: leave it its name, listen, fabric_listen, \
                 admin and threads"
            )));
        }
        let socket = (make == FrontMake::Haproxy).then(|| run.join(format!("{name}-haproxy.socket")));
        let entry = FrontEntry::new(name.clone(), make.of_file());
        let front = FrontEntry { socket, fabric_listen: *fabric_listen, admin: *admin, ..entry };
        file.fronts.push(front.clone());
        let (listen, threads, module) = (*listen, *threads, module.clone());
        proxies.push(Proxy { make, by, program, module, listen, threads, front, lines: String::new() });
    }
    let cluster = file.cluster()?;
    proxies.iter_mut().for_each(|proxy| proxy.lines = proxy.lines(&cluster));
    Ok(proxies)
}

impl Proxy {
    /// The name of the front that leads it, and of the edge that it replaces.
    pub(super) fn front(&self) -> &str {
        &self.front.name
    }

    /// Whether its front leads it.
    pub(super) fn is_led(&self) -> bool {
        self.by == By::Sidelong
    }

    fn lines(&self, cluster: &Cluster) -> String {
        let pools = Pool::of(cluster, self.by);
        let prefix = lines::prefix(cluster, &self.front);
        let prefix = self.is_led().then_some(&*prefix);
        match self.make {
            FrontMake::Nginx => lines::nginx(&pools, prefix, Some(self.listen)),
            FrontMake::Httpd => lines::httpd(&pools, prefix, Some(self.listen)),
            FrontMake::Haproxy => {
                let led = self.is_led().then_some(&self.front);
                let socket = led.map_or_else(|| "global\n".to_owned(), haproxy::socket_line);
                format!(
                    "{socket}    nbthread {}\ndefaults\n    mode http\n    timeout connect 2s\n    timeout client 60s\n    \
                     timeout server 60s\n{}{}",
                    self.threads,
                    lines::haproxy_frontend(&pools, led, self.listen),
                    haproxy::backends(&pools, led)
                )
            }
        }
    }
}

impl Foreign for Proxy {
    fn name(&self) -> String {
        format!("{}-{}", self.front.name, self.make.of_file())
    }

    fn address(&self) -> SocketAddr {
        self.listen
    }

    fn program(&self) -> &'static str {
        self.program
    }

    fn configure(&self, at: &Path) -> io::Result<Vec<OsString>> {
        let module = self.module.as_ref().map(|path| path.display());
        match self.make {
            FrontMake::Nginx => {
                let top = module.map_or_else(String::new, |path| format!("load_module {path};\n"));
                configure_nginx(at, self.threads, &top, &self.lines)
            }
            FrontMake::Httpd => {
                let load =
                    module.map_or_else(String::new, |path| format!("LoadModule sidelong_module {path}\n"));
                let modules = ["slotmem_shm", "proxy", "proxy_http", "proxy_balancer", "lbmethod_bybusyness"];
                configure_httpd(at, self.listen, &modules, &(load + &self.lines))
            }
            FrontMake::Haproxy => {
                let config = at.join("haproxy.cfg");
                std::fs::write(&config, &self.lines)?;
                Ok(vec!["-db".into(), "-f".into(), config.into()])
            }
        }
    }
}
