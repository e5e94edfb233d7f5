//! A real httpd with mod_sidelong, and verdicts that the test sets.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use sidelong_edge::{AdapterCluster, MemoryAdapter};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Host, Region};
use sidelong_harness::programs;
use sidelong_layout::{ChoiceMap, Instance, SiteId, Time};
use sidelong_load::monotonic_ns;
use sidelong_policy::balance::Balance;

use super::servers::readable;
use super::{Cluster, Running, eventually, get, skipped, try_get};

/// httpd's port, at a cluster's own address.
const HTTPD: u16 = 8080;

/// A verdict encoded as in policy: `part:31 turn:30 why:3`.
const fn word(part: u64, turn: u64, why: u64) -> u64 {
    part << 33 | turn << 3 | why
}
const CIRCLE: u64 = 1 << 30;
pub const OPEN: u64 = word(CIRCLE, 0, 1);
pub const CLOSED: u64 = word(0, 0, 3);

/// The memory of a front, in which the test sets the sites' verdicts.
pub struct Verdicts {
    _led: MemoryAdapter,
    choice: Region,
    map: ChoiceMap,
    /// Directory and name of its files.
    pub prefix: PathBuf,
}

impl Verdicts {
    pub fn new(cluster: &Cluster, sites: &[&str]) -> Self {
        let directory = cluster.path("front");
        std::fs::create_dir(&directory).unwrap();
        let map = ChoiceMap { nodes: 1, sites: sites.len(), servers: 0 };
        let described = AdapterCluster {
            room: map,
            sites: sites.iter().map(|site| (*site).to_owned()).collect(),
            servers: Vec::new(),
            stale: Duration::from_secs(600),
            rotation: Duration::from_secs(30),
            balance: Balance::default(),
            drain_max: Duration::from_secs(1),
            has_controlled: false,
        };
        let (host, now) = (Host::Shm(ShmHost::new(&directory)), Time::from_ns(monotonic_ns()));
        let (regions, is_new) =
            MemoryAdapter::regions(&host, "web1", &described, Instance::alone(1)).unwrap();
        let choice = regions[0].clone();
        let exposes = Box::new(move || Ok((regions.clone(), is_new)));
        let controlled = MemoryAdapter::exposed_by(exposes, &described, now).unwrap();
        let verdicts = Verdicts { _led: controlled, choice, map, prefix: directory.join("web1") };
        (0..sites.len()).for_each(|site| verdicts.decide(site, OPEN));
        verdicts
    }

    /// Sets a verdict, which holds for longer than any test takes.
    pub fn decide(&self, site: usize, word: u64) {
        self.choice.store(self.map.verdict(SiteId::new(site)), word, Ordering::Release);
        self.decided_at(monotonic_ns());
    }

    /// Sets when the front has scanned last.
    pub fn decided_at(&self, time_ns: u64) {
        self.choice.store(ChoiceMap::TIME, time_ns, Ordering::Release);
    }
}

/// Where this process has `make` put what it makes. What processes that have ended had made goes.
static BUILD: LazyLock<PathBuf> = LazyLock::new(|| {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for entry in all.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("fronts-"));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    all.join(format!("fronts-{}", std::process::id()))
});

/// The directory in which `make -C fronts` has made `target`, once for all tests of this process: nginx's module takes ten seconds of a
/// processor.
pub fn made(target: &str) -> PathBuf {
    static MADE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    // If a test fails at it, the next one says why, too.
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if !made.contains(target) {
        let mut make = Command::new("make");
        make.arg("-C").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fronts"));
        make.arg(target).arg(format!("BUILD={}", BUILD.display()));
        Running::start_command(make).finish().succeeded();
        made.insert(target.to_owned());
    }
    BUILD.clone()
}

/// A server with a virtual host for each site.
pub struct Httpd {
    pub address: SocketAddr,
    log: PathBuf,
    #[allow(dead_code, reason = "its end ends httpd, and a benchmark asks for its CPU time")]
    pub server: Running,
}

impl Httpd {
    /// `None`, with a printed reason, if httpd is not installed. `each` is added to every virtual host. Without
    /// verdicts it runs without mod_sidelong.
    pub fn start(
        cluster: &Cluster,
        verdicts: Option<&Verdicts>,
        sites: &[&str],
        each: &str,
    ) -> Option<Httpd> {
        let query = |variable: &str| {
            let asked = Command::new("apxs").args(["-q", variable]).output().ok()?;
            Some(String::from_utf8(asked.stdout).ok()?.trim().to_owned()).filter(|answer| !answer.is_empty())
        };
        let Some((program, modules)) =
            query("PROGNAME").and_then(|name| Some((query("SBINDIR")? + "/" + &name, query("LIBEXECDIR")?)))
        else {
            skipped("httpd: no apxs here; Debian's package apache2-dev has it");
            return None;
        };
        if !Path::new(&program).exists() {
            skipped(&format!("httpd: no {program} here; Debian's package apache2 has it"));
            return None;
        }
        let build = made("httpd");
        let (address, root) = (cluster.at(HTTPD), cluster.path("www"));
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("file"), "served\n").unwrap();
        // If it runs as root, its processes have another user.
        for path in [root.parent().unwrap(), &root] {
            readable(path, 0o755);
        }
        let log = cluster.path("error.log");
        let hosts: String = sites
            .iter()
            .map(|site| {
                let ours = match verdicts {
                    Some(_) => format!("SidelongAdmission On\nSidelongSite {site}\n"),
                    None => String::new(),
                };
                format!("<VirtualHost *:{HTTPD}>\nServerName {site}.test\n{ours}{each}\n</VirtualHost>\n")
            })
            .collect();
        let ours = match verdicts {
            Some(verdicts) => format!(
                "LoadModule sidelong_module {}\nSidelongFront {}\n",
                build.join("mod_sidelong.so").display(),
                verdicts.prefix.display()
            ),
            None => String::new(),
        };
        let more = format!(
            "{ours}DocumentRoot {root}\nExtendedStatus On\n<Location /server-status>\nSetHandler server-status\n</Location>\n{hosts}",
            root = root.display(),
        );
        let httpd = programs::Httpd {
            directory: root.parent().unwrap(),
            listen: address,
            modules_at: modules.as_ref(),
            modules: &["mpm_event", "status", "proxy", "proxy_http"],
            user: ["www-data"; 2],
            more: &more,
        };
        let mut command = Command::new(program);
        command.args(httpd.configure().unwrap());
        let mut server = Running::start_command(command);
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        eventually("httpd runs", || {
            assert!(server.is_running(), "{}{}", server.err(), said());
            said().contains("resuming normal operations")
        });
        Some(Httpd { address, log, server })
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn status(&self, site: &str) -> u16 {
        get(self.address, &format!("{site}.test"), "/file").status
    }

    /// Whether a new connection is closed without an answer.
    pub fn closes(&self) -> bool {
        try_get(self.address, "alpha.test", "/file").is_err()
    }
}
