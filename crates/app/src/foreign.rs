//! A node whose server is foreign: which processes it runs in, and so whose load is the node's.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use sidelong_config::{self as config, Cluster, Fabric, Group, is_nowhere};
use sidelong_load::{Listener, Listening, Scope};
use sidelong_os::{ServerAddress, open_regular};

use crate::cgroup;
use crate::failure::Failure;

/// Most digits of a process ID in a file, with a line's end.
const PID_BYTES_MAX: u64 = 32;

/// Finds the scope of the server's load: the control group that the file names, or that of the process that listens on its
/// port; the machine if that is in none or cannot be found, which is logged. `None` if the server is on another machine.
///
/// # Errors
/// If there is no such control group.
pub(crate) fn scope(node: &config::Node) -> Result<Option<Scope>, Failure> {
    let (name, server) = (&node.name, &node.addresses[0]);
    let group = match &node.group {
        Some(group) => named(group).map_err(|Failure(why)| Failure::new(format!("node {name}: {why}")))?,
        None if !is_here(server) => {
            tracing::warn!(
                "{server} is no address of this machine, so the load of {name} is not known: run `sidelong node {name}` where \
                 its server runs"
            );
            return Ok(None);
        }
        None => match shared_group(&node.addresses)? {
            Ok(group) => group,
            Err(why) => {
                tracing::warn!("the load of {name} is that of this machine, because {why}");
                return Ok(Some(Scope::Machine));
            }
        },
    };
    let scope = group.map_or(Scope::Machine, Scope::Cgroup);
    tracing::info!("the load of {name} is that of {scope}");
    Ok(Some(scope))
}

/// What is found of a server, in words: the process that listens there, and whose load its node would have.
pub fn found(server: &ServerAddress) -> String {
    if !is_here(server) {
        return "on another machine: run its agent there".to_owned();
    }
    let pid = match listening(server) {
        Ok(pid) => pid,
        Err(why) => return why,
    };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let group = match cgroup::of_process(pid) {
        Ok(Some(group)) => format!("control group {}", group.display()),
        Ok(None) => "in no control group, so its load is the machine's".to_owned(),
        Err(Failure(why)) => why,
    };
    format!("{}, process {pid}, {group}", name.trim())
}

/// The unit of systemd to which the process that listens there belongs; `None` if there is none, or that is not known.
pub fn unit(server: &ServerAddress) -> Option<String> {
    let group = cgroup::of_process(listening(server).ok()?).ok()??;
    let name = group.file_name()?.to_str()?;
    (is_here(server) && name.ends_with(".service")).then(|| name.to_owned())
}

/// The control group of the processes that listen there; or why it is not known, or not one.
fn shared_group(servers: &[ServerAddress]) -> Result<Result<Option<PathBuf>, String>, Failure> {
    let pids: Vec<_> = match servers.iter().map(listening).collect() {
        Ok(pids) => pids,
        Err(why) => return Ok(Err(why)),
    };
    let groups: BTreeSet<_> = pids.into_iter().map(cgroup::of_process).collect::<Result<_, _>>()?;
    let mut groups = groups.into_iter();
    Ok(match (groups.next(), groups.next()) {
        (Some(one), None) => Ok(one),
        _ => {
            Err("its servers are in several control groups: give one that has all of them (cgroup)"
                .to_owned())
        }
    })
}

/// The control group of that name; `None` for a process outside of any.
fn named(group: &Group) -> Result<Option<PathBuf>, Failure> {
    match group {
        Group::Directory(path) if path.is_dir() => Ok(Some(path.clone())),
        Group::Directory(path) => {
            Err(Failure::new(format!("there is no control group {} (cgroup)", path.display())))
        }
        Group::Unit(unit) => cgroup::of_unit(unit)?.map(Some).ok_or_else(|| {
            Failure::new(format!(
                "unit {unit:?} has no control group: is it the name of a unit, and started?"
            ))
        }),
        Group::PidFile(path) => {
            let failed = |why: String| Failure::new(format!("pid_file {}: {why}", path.display()));
            let pid = pid_of(path).map_err(failed)?;
            cgroup::of_process(pid).map_err(|_| failed(format!("there is no process {pid}")))
        }
    }
}

fn pid_of(path: &Path) -> Result<u32, String> {
    let mut text = String::new();
    let file = open_regular(path).map_err(|error| error.to_string())?;
    file.take(PID_BYTES_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
    text.trim().parse().map_err(|_| format!("{:?} is not a process ID", text.trim()))
}

/// The addresses from which edges, and proxies that fronts control, connect to a server of this machine: those of their machines that the file
/// has, and that which this machine has towards its own server. None if one of them is not known, or the server is at Unix sockets alone.
pub(crate) fn origins(cluster: &Cluster, servers: &[ServerAddress]) -> Vec<IpAddr> {
    let Some(server) = servers.iter().find_map(ServerAddress::tcp) else { return Vec::new() };
    let addresses = |front: &config::Front| {
        let listens = front.controls.is_none().then_some(front.host);
        let known = [listens, front.fabric_listen.map(|address| address.ip())];
        let known = known.into_iter().flatten().map(|address| address.to_canonical());
        known.filter(|address| !address.is_unspecified() && !is_nowhere(*address)).collect::<Vec<_>>()
    };
    // Nobody counts the requests of a proxy whose front is lost.
    let is_asked = |front: &&config::Front| !cluster.standing.lost.contains(&front.name);
    let mut found: Vec<_> = cluster.fronts.values().filter(is_asked).map(addresses).collect();
    if cluster.secret.is_some() && cluster.fabric != Fabric::Shm && found.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    found.push(toward(server).into_iter().collect());
    found.concat()
}

/// The address from which this machine connects there. No packet is sent.
fn toward(server: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(server).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}

/// Whether the server's address is this machine's.
pub fn is_here(server: &ServerAddress) -> bool {
    server.tcp().is_none_or(|address| UdpSocket::bind((address.ip(), 0)).is_ok())
}

/// The process that listens there: of several the oldest, which started the others.
///
/// # Errors
/// Why it is not known, in words.
pub fn listening(server: &ServerAddress) -> Result<u32, String> {
    let look = Listener::new(vec![server.clone()]).and_then(|mut listener| listener.look());
    let Listening { sockets, inode, .. } =
        look.map_err(|error| format!("the kernel names no listeners: {error}"))?;
    if sockets == 0 {
        return Err(format!("nobody listens at {server} yet"));
    }
    let link = PathBuf::from(format!("socket:[{inode}]"));
    let processes = std::fs::read_dir("/proc").map_err(|error| format!("cannot read /proc: {error}"))?;
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        // Another user's process does not show its files.
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.map(|entry| entry.path()).any(|path| std::fs::read_link(path).is_ok_and(|to| to == link))
    };
    pids.filter(has_it).min().ok_or_else(|| {
        format!("the process that listens at {server} is another user's: name its cgroup, unit or pid_file in the cluster file")
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use sidelong_config::{ClusterFile, Configuration, FrontEntry, Proxy};

    use super::*;

    #[test]
    fn proxies_that_fronts_control_are_known_as_edges_are() {
        let mut file = ClusterFile::demo();
        let at = |last: u8| SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), 6_001));
        file.edges.truncate(1);
        file.edges[0].listen = at(1);
        file.fronts =
            vec![FrontEntry { fabric_listen: Some(at(2)), ..FrontEntry::new("nginx1", Proxy::Nginx) }];
        let server = [ServerAddress::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 9_001)))];
        let found = |file: &ClusterFile| origins(&file.cluster().unwrap(), &server);
        let all = [at(1).ip(), at(2).ip(), Ipv4Addr::LOCALHOST.into()];
        assert_eq!(found(&file), all);
        let mut lost = file.cluster().unwrap();
        lost.standing.lost.insert("nginx1".into());
        assert_eq!(origins(&lost, &server), [all[0], all[2]]);
        // Its proxy may be on any machine.
        file.fronts[0].fabric_listen = None;
        assert_eq!(found(&file)[1..], all[2..]);
        file.cluster.secret_file = Some("secret".into());
        file.nodes.iter_mut().for_each(|node| node.fabric_listen = Some(at(3)));
        file.baseline.configuration = Configuration::Rigid;
        assert!(found(&file).is_empty());
    }
}
