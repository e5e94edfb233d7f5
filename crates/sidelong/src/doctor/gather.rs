//! Looks at this machine, and asks the parts. Nothing is judged here.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FsWord, statfs, statvfs};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use rustix::process::geteuid;
use rustix::system::uname;
use sidelong_app::{foreign, node};
use sidelong_config::{Cluster, ClusterFile, Proxy, Secret};
use sidelong_fabric::RunDirectory;
use sidelong_fabric::control;
use sidelong_load::Scheme;
use sidelong_os::ServerAddress;

use super::facts::{
    Answer, CertificateFile, Controlled, Facts, Holder, Machine, Needs, Part, Port, Process, RunPlace,
    SecretFile,
};
use crate::cluster;
use crate::failure::Failure;
use crate::front;
use crate::own_part::{self, Parse};
use crate::status::get;

/// `f_type` of file systems (statfs(2)).
const BPF: FsWord = 0xcafe_4a11;
const GROUPS: FsWord = 0x6367_7270;
const TMPFS: FsWord = 0x0102_1994;
/// The process of systemd.
const INIT: u32 = 1;
/// Parts that are asked at once.
const ASKED_AT_ONCE_MAX: usize = 32;

/// Everything, and the cluster if its file can be used.
pub(super) fn gather(config: &Path, parse: Parse) -> (Facts, Option<Cluster>) {
    let name = config.display().to_string();
    let unusable = |Failure(why)| {
        (Facts { machine: machine(), file: (name.clone(), Some(why)), ..Facts::default() }, None)
    };
    // Root sees what all users have, and after that acts as the cluster's.
    let written = match cluster::load_as_owner(config).and_then(|file| Ok(file.cluster()?)) {
        Ok(written) => written,
        Err(why) => return unusable(why),
    };
    if is_blind(&written.run_dir) {
        let (needs, parts) = (needs(&written, &[]), parts(&written));
        let facts = Facts {
            machine: machine(),
            is_blind: true,
            file: (name, None),
            needs,
            parts,
            ..Facts::default()
        };
        return (facts, Some(written));
    }
    let processes = processes(&written, parse);
    let pids: Vec<_> = processes.iter().map(|(pid, _)| *pid).collect();
    let ports = ports(&written, &pids);
    let processes: Vec<_> = processes.into_iter().map(|(_, process)| process).collect();
    let cluster = match cluster::any(config, None) {
        Ok(cluster) => cluster,
        Err(why) => return unusable(why),
    };
    let missing = missing(&cluster, &processes);
    let facts = Facts {
        machine: machine(),
        is_blind: false,
        file: (name, None),
        needs: needs(&cluster, &missing),
        run: Some(run_place(&cluster.run_dir)),
        ports,
        missing,
        processes,
        secret: secret(&cluster),
        parts: parts(&cluster),
        proxies: proxies(&cluster),
        certificates: certificates(&cluster),
    };
    (facts, Some(cluster))
}

/// Whether parts of this cluster are another user's, and this one is not root.
fn is_blind(run_dir: &Path) -> bool {
    let owner = fs::symlink_metadata(run_dir).map(|found| found.uid());
    !geteuid().is_root() && owner.is_ok_and(|owner| owner != geteuid().as_raw())
}

fn machine() -> Machine {
    let is_of = |path: &str, kind| statfs(path).is_ok_and(|found| found.f_type == kind);
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    Machine {
        kernel: uname().release().to_string_lossy().into_owned(),
        has_btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
        has_bpf_files: is_of("/sys/fs/bpf", BPF),
        // Of a machine that has both versions, the second is below the first.
        has_groups: is_of("/sys/fs/cgroup", GROUPS) || is_of("/sys/fs/cgroup/unified", GROUPS),
        rdma: devices.map(|device| device.file_name().to_string_lossy().into_owned()).collect(),
    }
}

/// `missing` are the parts that do not run here.
fn needs(cluster: &Cluster, missing: &[(&str, String)]) -> Needs {
    let is_connect = |front: &sidelong_config::Front| {
        front.controls.as_ref().is_some_and(|entry| entry.proxy == Proxy::Connect)
    };
    let memory_mb = |(kind, name): &(&str, String)| match *kind {
        "cache" => {
            cluster.caches.values().find(|cache| cache.name == *name).map_or(0, |cache| cache.memory_mb)
        }
        "node" if cluster.cache.documents => cluster.cache.document_memory_mb,
        _ => 0,
    };
    Needs {
        fabric: cluster.fabric,
        kernel_records: cluster.load.scheme == Scheme::RdmaSync,
        connect: cluster.fronts.values().any(is_connect),
        memory_mib: missing.iter().map(|part| u64::from(memory_mb(part))).sum(),
        connections_max: cluster.limits.connections_max as u64,
        run_dir: cluster.run_dir.clone(),
    }
}

fn run_place(path: &Path) -> RunPlace {
    if !path.exists() {
        return RunPlace::Absent;
    }
    if let Err(error) = RunDirectory::open(path) {
        return RunPlace::Refused(error.to_string());
    }
    match (statfs(path), statvfs(path)) {
        (Ok(kind), Ok(room)) => RunPlace::Found {
            is_memory: kind.f_type == TMPFS,
            free_mib: room.f_bavail.saturating_mul(room.f_frsize) >> 20,
        },
        (Err(error), _) | (_, Err(error)) => RunPlace::Refused(format!("{}: {error}", path.display())),
    }
}

/// The parts of the cluster that run here, by process ID.
fn processes(cluster: &Cluster, parse: Parse) -> Vec<(u32, Process)> {
    let own = own_part::running(parse).into_iter().flatten();
    let process = |(pid, name): (u32, String)| {
        let kind = kind(cluster, &name)?;
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
        let process = Process {
            kind,
            files_max: limit(&limits, "Max open files"),
            locked_max: limit(&limits, "Max locked memory"),
            name,
        };
        Some((pid, process))
    };
    let ours = own.filter(|(pid, part)| is_of(cluster, *pid, &part.config));
    ours.map(|(pid, part)| (pid, part.name)).filter_map(process).collect()
}

/// Whether a process has been started with a file of the same cluster: parts of others may have the same names.
fn is_of(cluster: &Cluster, pid: u32, config: &Path) -> bool {
    let file = ClusterFile::load(&Path::new("/proc").join(pid.to_string()).join("cwd").join(config));
    file.is_ok_and(|file| file.cluster().is_ok_and(|other| other.run_dir == cluster.run_dir))
}

/// The parts whose addresses are this machine's and that have no process.
fn missing(cluster: &Cluster, processes: &[Process]) -> Vec<(&'static str, String)> {
    let fronts = cluster.fronts.values().filter(|front| is_here(SocketAddr::new(front.host, 0)));
    let nodes = cluster.nodes.values().filter(|node| is_here(node.fabric_listen));
    let caches = cluster.caches.values().filter(|cache| is_here(cache.listen));
    let names = fronts.map(|front| &front.name).chain(nodes.map(|node| &node.name));
    let names = names.chain(caches.map(|cache| &cache.name));
    // One process may have the agents of many nodes.
    let is_away = |name: &&String| {
        processes.iter().all(|process| process.name != **name) && !node::is_here(cluster, name)
    };
    let absent = names.filter(is_away);
    absent.filter_map(|name| Some((kind(cluster, name)?, name.clone()))).collect()
}

fn kind(cluster: &Cluster, name: &str) -> Option<&'static str> {
    let front = cluster.fronts.values().find(|front| front.name == name);
    let is_node = || cluster.nodes.values().any(|node| node.name == name);
    let is_cache = || cluster.caches.values().any(|cache| cache.name == name);
    match front {
        Some(front) if front.controls.is_some() => Some("front"),
        Some(_) => Some("edge"),
        None if is_node() => Some("node"),
        None => is_cache().then_some("cache"),
    }
}

/// The hard limit of that name in /proc/PID/limits, which parts raise themselves to; `None` if there is none.
fn limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The addresses of the file on this machine.
fn ports(cluster: &Cluster, parts: &[u32]) -> Vec<Port> {
    let mut all = Vec::new();
    let mut add = |key: &str, name: &str, address: Option<SocketAddr>| {
        all.extend(address.map(|address| (format!("{key} of {name}"), address)));
    };
    for edge in &cluster.edges {
        add("listen", &edge.name, Some(edge.listen));
    }
    for front in cluster.fronts.values() {
        add("admin", &front.name, front.admin);
        add("fabric_listen", &front.name, front.fabric_listen);
    }
    for node in cluster.nodes.values() {
        let listen = if node.is_foreign { None } else { node.port() };
        add("listen", &node.name, listen);
        add("admin", &node.name, node.admin);
        add("fabric_listen", &node.name, Some(node.fabric_listen));
    }
    for cache in cluster.caches.values() {
        add("listen", &cache.name, Some(cache.listen));
        add("admin", &cache.name, cache.admin);
        add("fabric_listen", &cache.name, cache.fabric_listen);
    }
    let here = all.into_iter().filter(|(_, address)| address.port() != 0 && is_here(*address));
    here.map(|(what, address)| Port { what, address, holder: holder(address, parts) }).collect()
}

fn named(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{}, process {pid}", name.trim())
}

fn holder(address: SocketAddr, parts: &[u32]) -> Holder {
    match bind(address) {
        Ok(_) => Holder::Nobody,
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let server = ServerAddress::from(address);
            match foreign::listening(&server) {
                Ok(pid) if parts.contains(&pid) => Holder::Part,
                Ok(INIT) => Holder::Systemd,
                Ok(pid) => Holder::Other(named(pid)),
                Err(why) => Holder::Other(why),
            }
        }
        // Whoever runs this may not listen there, and the part may.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Holder::Nobody,
        Err(error) => Holder::Unusable(error.to_string()),
    }
}

/// Takes the address, which fails if somebody listens there. It does not listen itself, so that a part that starts meanwhile can.
fn bind(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    Ok(socket)
}

/// Whether an address is this machine's.
fn is_here(address: SocketAddr) -> bool {
    foreign::is_here(&address.into())
}

fn secret(cluster: &Cluster) -> Option<SecretFile> {
    let Some(Secret::File(path)) = &cluster.secret else { return None };
    let secrets = control::Secret::read(path);
    let secrets = secrets.map(|secret| secret.ids().len()).map_err(|error| error.to_string());
    Some(SecretFile { path: path.clone(), secrets })
}

/// A part with an admin address: its kind and its name.
pub(super) type Admin = (&'static str, String, SocketAddr);

fn admins(cluster: &Cluster) -> Vec<Admin> {
    let mut all = Vec::new();
    let mut add = |kind, name: &str, admin: Option<SocketAddr>| {
        all.extend(admin.map(|admin| (kind, name.to_owned(), admin)));
    };
    for front in cluster.fronts.values() {
        add(if front.controls.is_some() { "front" } else { "edge" }, &front.name, front.admin);
    }
    cluster.nodes.values().for_each(|node| add("node", &node.name, node.admin));
    cluster.caches.values().for_each(|cache| add("cache", &cache.name, cache.admin));
    all
}

/// Asks all parts that have an admin address for a page, and reads each answer as it comes.
pub(super) fn ask<T: Send>(
    cluster: &Cluster,
    page: &str,
    read: impl Fn(String) -> T + Sync,
) -> Vec<(Admin, io::Result<T>)> {
    let some = |some: &[Admin]| -> Vec<_> {
        thread::scope(|scope| {
            let read = &read;
            let asked =
                some.iter().map(|admin| (admin.clone(), scope.spawn(move || get(admin.2, page).map(read))));
            let asked: Vec<_> = asked.collect();
            asked.into_iter().filter_map(|(admin, asked)| Some((admin, asked.join().ok()?))).collect()
        })
    };
    admins(cluster).chunks(ASKED_AT_ONCE_MAX).flat_map(some).collect()
}

fn parts(cluster: &Cluster) -> Vec<Part> {
    let part = |((kind, name, address), said): (Admin, io::Result<Answer>)| Part {
        name,
        kind,
        address,
        answer: said.map_err(|error| told(&error)),
    };
    ask(cluster, "/metrics", |text| answer(&text)).into_iter().map(part).collect()
}

fn told(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "it takes too long".to_owned(),
        _ => error.to_string(),
    }
}

/// What an answer of /metrics says of its part.
fn answer(text: &str) -> Answer {
    let line = |name: &str| {
        let is_it = move |line: &&str| line.starts_with("sidelong_") && line.contains(name);
        text.lines().find(is_it)
    };
    let label = |name: &str| {
        let (_, rest) = line("_build_info{")?.split_once(&format!("{name}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let epoch = line("sidelong_config_epoch ").and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    let date = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("date").then(|| httpdate::parse_http_date(value.trim()).ok())?
    });
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    Answer {
        version: label("version"),
        layout: label("layout"),
        epoch: epoch.map(|epoch| epoch as u64).filter(|epoch| *epoch > 0),
        ahead_s: date.map(|date| seconds(date) - seconds(SystemTime::now())),
    }
}

/// The proxies of other makes whose fronts are on this machine.
fn proxies(cluster: &Cluster) -> Vec<Controlled> {
    let here = cluster.fronts.values().filter(|front| front.admin.is_none_or(is_here));
    let entries = here.filter_map(|front| front.controls.as_ref());
    let controlled = |entry: &sidelong_config::FrontEntry| Controlled {
        front: entry.name.clone(),
        proxy: entry.proxy,
        survey: front::survey(cluster, entry).map_err(|Failure(why)| why),
    };
    entries.map(controlled).collect()
}

/// The certificates of the edges on this machine.
fn certificates(cluster: &Cluster) -> Vec<CertificateFile> {
    let edges = cluster.edges.iter().filter(|edge| is_here(edge.listen));
    let files = edges.flat_map(sidelong_app::certificates).map(|pair| pair.certificate);
    let now = SystemTime::now();
    let left = |end: SystemTime| match end.duration_since(now) {
        Ok(left) => left.as_secs() as i64,
        Err(ended) => -(ended.duration().as_secs() as i64),
    };
    let file = |path: std::path::PathBuf| {
        let left_s = sidelong_tls::ends(&path).map(left).map_err(|error| error.to_string());
        CertificateFile { path, left_s }
    };
    files.map(file).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_a_part_says_of_itself_is_read() {
        let text = "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:00:10 GMT\r\n\r\n# HELP x\n\
                    sidelong_edge_build_info{version=\"0.2.0\",layout=\"16\"} 1\nsidelong_config_epoch 7\n";
        let Answer { version, layout, epoch, ahead_s } = answer(text);
        assert_eq!((version.as_deref(), layout.as_deref(), epoch), (Some("0.2.0"), Some("16"), Some(7)));
        assert!(ahead_s.unwrap() < -1e9);
        let nothing = answer("");
        assert!(nothing.version.is_none() && nothing.epoch.is_none() && nothing.ahead_s.is_none());
    }

    #[test]
    fn limits_are_those_of_proc() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n\
                      Max locked memory         unlimited            unlimited            bytes     \n";
        assert_eq!(limit(limits, "Max open files"), Some(524_288));
        assert_eq!(limit(limits, "Max locked memory"), None);
    }

    #[test]
    fn who_has_a_port_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(matches!(holder(address, &[std::process::id()]), Holder::Part));
        let Holder::Other(who) = holder(address, &[]) else { panic!("it is taken") };
        assert!(who.contains(&std::process::id().to_string()), "{who}");
        drop(listener);
        assert!(matches!(holder(address, &[]), Holder::Nobody));
        let elsewhere = "192.0.2.1:80".parse().unwrap();
        assert!(matches!(holder(elsewhere, &[]), Holder::Unusable(_)) && !is_here(elsewhere));
    }
}
