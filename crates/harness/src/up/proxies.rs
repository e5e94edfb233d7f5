//! Proxies of other makes, which `up --front` starts in place of the edges, each controlled by a front or left to itself.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use rustix::process::geteuid;
use sidelong_config::{
    Cluster, ClusterFile, Configuration, ControlledBy, EdgeEntry, FrontEntry, Proxy as Make,
};

use crate::programs::{self, Nginx};

use super::foreign::{self, Foreign, configure_httpd};
use crate::front::{self, CONNECT_S, Pool, envoy, haproxy};
use sidelong_app::Failure;

/// The addresses of sites, from the next on, where connections are directed: a part of 127.0.0.0/8 that nothing else uses.
const SITES: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 0);
/// Envoy's module, where it is installed, and the variable that names where Envoy looks for it.
const ENVOY_MODULE: &str = "libsidelong_envoy.so";
const ENVOY_MODULES: &str = "/usr/local/lib";
const ENVOY_SEARCH_PATH: &str = "ENVOY_DYNAMIC_MODULES_SEARCH_PATH";

/// Who chooses the server of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum By {
    /// Sidelong, among the servers that serve the site now
    #[default]
    Sidelong,
    /// Sidelong, at each request behind HAProxy, too, whose default is weights: its Lua asks
    Choose,
    /// The proxy, by its own best method among the servers that the site has at the start; no server moves
    Own,
    /// The proxy, by its own best method among all servers, whatever the site
    Shared,
}

impl By {
    /// Whether fronts control the proxies.
    pub(super) const fn is_controlled(self) -> bool {
        matches!(self, By::Sidelong | By::Choose)
    }

    /// What the fronts' entries say of it.
    fn at_fronts(self) -> Option<ControlledBy> {
        (self == By::Choose).then_some(ControlledBy::Choose)
    }
}

/// What makes the proxies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FrontMake {
    /// nginx, whose module asks the front for the server of each request
    Nginx,
    /// Apache httpd with the event MPM, whose module asks the front likewise
    Httpd,
    /// HAProxy, which the front gives weights; with `--by choose` its Lua also asks the front for the server of each request
    Haproxy,
    /// Envoy, whose module asks the front for the server of each request
    Envoy,
    /// No proxy: the front's eBPF programs send connections to a site's address to a node
    Connect,
}

impl FrontMake {
    /// Its word in a cluster file.
    pub const fn of_file(self) -> Make {
        match self {
            FrontMake::Nginx => Make::Nginx,
            FrontMake::Httpd => Make::Httpd,
            FrontMake::Haproxy => Make::Haproxy,
            FrontMake::Envoy => Make::Envoy,
            FrontMake::Connect => Make::Connect,
        }
    }

    /// The program, if there is one.
    const fn names(self) -> Option<programs::Names> {
        match self {
            FrontMake::Nginx => Some(programs::NGINX),
            FrontMake::Httpd => Some(programs::HTTPD),
            FrontMake::Haproxy => Some(programs::HAPROXY),
            FrontMake::Envoy => Some(programs::ENVOY),
            FrontMake::Connect => None,
        }
    }

    /// The module by which it is controlled so.
    fn module(self, program: &str, controlled_by: ControlledBy) -> Result<Option<PathBuf>, Failure> {
        let (file, installed, target) = match self {
            FrontMake::Nginx => ("ngx_http_sidelong_module.so", nginx_modules(program), "nginx"),
            FrontMake::Httpd => ("mod_sidelong.so", programs::httpd_modules().map(PathBuf::from), "httpd"),
            FrontMake::Envoy => (ENVOY_MODULE, Some(ENVOY_MODULES.into()), "envoy"),
            FrontMake::Haproxy if controlled_by == ControlledBy::Choose => {
                has_lua(program)?;
                ("sidelong.lua", haproxy::lua().parent().map(Path::to_owned), "haproxy")
            }
            FrontMake::Haproxy | FrontMake::Connect => return Ok(None),
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

/// # Errors
/// If this HAProxy was built without Lua.
fn has_lua(program: &str) -> Result<(), Failure> {
    let said = Command::new(program).arg("-vv").output().map(|output| output.stdout).unwrap_or_default();
    if String::from_utf8_lossy(&said).contains("Built with Lua version") {
        return Ok(());
    }
    Err(Failure::new(format!(
        "--front haproxy --by choose: {program} was built without Lua: install a HAProxy that has it, such as Debian's, or leave \
         out --by"
    )))
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
    /// What it loads to be controlled.
    module: Option<PathBuf>,
    listen: SocketAddr,
    threads: usize,
    /// The front that controls it, if one does.
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
    let Some(names) = make.names() else {
        connect_in_place_of_edges(file, by)?;
        return Ok(Vec::new());
    };
    let run = file.cluster()?.run_dir;
    let program = foreign::find(names, "--front")?;
    let controlled = FrontEntry { by: by.at_fronts(), ..FrontEntry::new("", make.of_file()) };
    let module = if by.is_controlled() { make.module(program, controlled.controlled_by())? } else { None };
    if !by.is_controlled() && file.baseline.configuration == Configuration::Reconfigured {
        // Nobody would move nodes.
        file.baseline.configuration = Configuration::Rigid;
    }
    let mut proxies = Vec::new();
    for edge in std::mem::take(&mut file.edges) {
        is_plain(&edge)?;
        let EdgeEntry { name, listen, fabric_listen, admin, threads, .. } = &edge;
        let socket = (make == FrontMake::Haproxy).then(|| run.join(format!("{name}-haproxy.socket")));
        let (name, fabric_listen, admin) = (name.clone(), *fabric_listen, *admin);
        let front = FrontEntry { name, socket, fabric_listen, admin, ..controlled.clone() };
        file.fronts.push(front.clone());
        let (listen, threads, module) = (*listen, *threads, module.clone());
        proxies.push(Proxy { make, by, program, module, listen, threads, front, lines: String::new() });
    }
    let cluster = file.cluster()?;
    proxies.iter_mut().for_each(|proxy| proxy.lines = proxy.lines(&cluster));
    Ok(proxies)
}

/// Turns the edges into one front that directs connections. Each site that has no address for that gets one.
fn connect_in_place_of_edges(file: &mut ClusterFile, by: By) -> Result<(), Failure> {
    if !by.is_controlled() {
        return Err(Failure::new("--front connect: there is no proxy that could choose: leave out --by"));
    }
    let edges = std::mem::take(&mut file.edges);
    edges.iter().try_for_each(is_plain)?;
    let Some(EdgeEntry { name, listen, fabric_listen, admin, .. }) = edges.into_iter().next() else {
        return Err(Failure::new("--front: the file has no edge whose place a front could take"));
    };
    for (site, number) in file.sites.iter_mut().zip(1..) {
        let address = Ipv4Addr::from_bits(SITES.to_bits() + number);
        site.connect.get_or_insert((address, listen.port()).into());
    }
    let entry = FrontEntry::new(name, Make::Connect);
    file.fronts.push(FrontEntry { fabric_listen, admin, ..entry });
    Ok(())
}

/// # Errors
/// If the edge does what a front cannot.
fn is_plain(edge: &EdgeEntry) -> Result<(), Failure> {
    let EdgeEntry { name, listen, fabric_listen, admin, threads, .. } = edge;
    let plain = EdgeEntry {
        fabric_listen: *fabric_listen,
        admin: *admin,
        threads: *threads,
        ..EdgeEntry::new(name.clone(), *listen)
    };
    if *edge == plain {
        return Ok(());
    }
    Err(Failure::new(format!(
        "--front: edge {name} has settings for an edge of Sidelong alone: leave it its name, listen, fabric_listen, admin and \
         threads"
    )))
}

/// The words that run the proxy that a front controls, as one process which listens there and keeps its files in a directory below this one.
///
/// # Errors
/// If the program or its module is not there, or the directory cannot be written.
pub fn led_by(
    cluster: &Cluster,
    front: &FrontEntry,
    listen: SocketAddr,
    directory: &Path,
) -> Result<Vec<OsString>, Failure> {
    let make = FrontMake::value_variants().iter().find(|make| make.of_file() == front.proxy).copied();
    let known = make.and_then(|make| Some((make, make.names()?)));
    let (make, names) = known.ok_or_else(|| Failure::new("no program leads connections there"))?;
    let program = foreign::find(names, &front.name)?;
    let module = make.module(program, front.controlled_by())?;
    let (by, front) = (By::Sidelong, front.clone());
    // HAProxy has threads, and the others processes.
    let threads = usize::from(make == FrontMake::Haproxy);
    let mut proxy = Proxy { make, by, program, module, listen, threads, front, lines: String::new() };
    proxy.lines = proxy.lines(cluster);
    proxy.command(directory)
}

impl Proxy {
    /// The name of the front that controls it, and of the edge that it replaces.
    pub(super) fn front(&self) -> &str {
        &self.front.name
    }

    /// Whether its front controls it.
    pub(super) fn is_controlled(&self) -> bool {
        self.by.is_controlled()
    }

    fn lines(&self, cluster: &Cluster) -> String {
        let pools = match self.by {
            By::Shared => Pool::shared(cluster),
            By::Sidelong | By::Choose | By::Own => Pool::of_sites(cluster, self.is_controlled()),
        };
        let prefix = front::prefix(cluster, &self.front);
        let prefix = self.is_controlled().then_some(&*prefix);
        let admits = cluster.has_admission();
        match self.make {
            FrontMake::Nginx => front::nginx(&pools, prefix, admits, Some(self.listen)),
            FrontMake::Httpd => front::httpd(&pools, prefix, admits, Some(self.listen)),
            FrontMake::Envoy => {
                let adds = self.front.add_servers.is_some();
                envoy::lines(&pools, prefix.map(|prefix| (prefix, adds)), admits, Some(self.listen))
            }
            FrontMake::Connect => String::new(),
            FrontMake::Haproxy => {
                let controlled = self.is_controlled().then_some(&self.front);
                let global = controlled.map_or_else(|| "global\n".to_owned(), haproxy::socket_line);
                let lua = self.module.as_ref().zip(prefix);
                let lua = lua.map_or_else(String::new, |(module, prefix)| haproxy::lua_lines(prefix, module));
                format!(
                    "{global}{lua}    nbthread {}\ndefaults\n    mode http\n    timeout connect {CONNECT_S}s\n    timeout client 60s\n    \
                     timeout server 60s\n{}{}",
                    self.threads,
                    front::haproxy_frontend(&pools, controlled, self.listen),
                    haproxy::backends(&pools, controlled, admits)
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

    fn environment(&self) -> Option<OsString> {
        let directory = self.module.as_ref().filter(|_| self.make == FrontMake::Envoy)?.parent()?;
        let mut variable = OsString::from(format!("{ENVOY_SEARCH_PATH}="));
        variable.push(directory);
        Some(variable)
    }

    fn configure(&self, at: &Path) -> Result<Vec<OsString>, Failure> {
        let module = self.module.as_ref().map(|path| path.display());
        match self.make {
            FrontMake::Nginx => {
                let top = module.map_or_else(String::new, |path| format!("load_module {path};\n"));
                let http = format!("  access_log off;\n{}", self.lines);
                let nginx = Nginx { workers: self.threads, top: &top, ..Nginx::new(at, &http) };
                Ok(nginx.configure()?)
            }
            FrontMake::Httpd => {
                let load =
                    module.map_or_else(String::new, |path| format!("LoadModule sidelong_module {path}\n"));
                let modules = ["slotmem_shm", "proxy", "proxy_http", "proxy_balancer", "lbmethod_bybusyness"];
                configure_httpd(at, self.listen, &modules, &(load + &self.lines))
            }
            FrontMake::Haproxy => Ok(programs::haproxy(at, &self.lines)?),
            FrontMake::Connect => Ok(Vec::new()),
            FrontMake::Envoy => Ok(programs::envoy(at, self.threads, &self.lines)?),
        }
    }
}
