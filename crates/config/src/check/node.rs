//! Checks of a node.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use sidelong_layout::NODES_MAX;
use sidelong_os::ServerAddress;

use super::expect::{Check, HOUR, MILLI, Problem, excerpt, expect, is_text, millis, ms, name, port, within};
use crate::file::{NodeEntry, Ready, Serves, SiteEntry};
use crate::lines::At;
use crate::words::Service;

/// systemd.unit(5): "a unit name must not be longer than 255 characters".
const UNIT_BYTES_MAX: usize = 255;
/// Longest path of `ready`.
const PATH_BYTES_MAX: usize = 1024;

/// Checks a node by itself.
pub(super) fn node(at: At, entry: &NodeEntry, sites: &[SiteEntry]) -> Check {
    name(at.key("name"), "node", &entry.name)?;
    within(at, "count", entry.count, 1, NODES_MAX)?;
    let (key, addresses) = server(at, entry, sites)?;
    if entry.is_foreign() {
        foreign(at, key, entry, &addresses)?;
    } else if let Some(listen) = entry.listen {
        port(at.key(key), listen)?;
    }
    if let Some(admin) = entry.admin {
        port(at.key("admin"), admin)?;
    }
    expect(entry.exclusive.is_none() || entry.is_foreign(), at.key("exclusive"), || {
        (format!("node {:?}: exclusive without server", entry.name), "server, the address of yours".into())
    })?;
    expect(!entry.http2 || entry.is_foreign(), at.key("http2"), || {
        (format!("node {:?}: http2 without server", entry.name), "server, the address of yours".into())
    })?;
    expect(!entry.http2 || entry.ready.is_none(), at.key("ready"), || {
        (
            format!("node {:?}: ready, which asks over HTTP/1, with http2", entry.name),
            "only one of them".into(),
        )
    })?;
    within(at, "workers", entry.workers().unwrap_or(1), 1, 1 << 12)?;
    within(at, "queue_depth_max", entry.queue_depth_max(), 0, 1 << 20)?;
    millis(at, "service_ms", entry.service_time(), Duration::ZERO, HOUR)?;
    let timed = entry.service() == Service::None || !entry.service_time().is_zero();
    expect(timed, at.key("service_ms"), || {
        let found = format!("node {:?}: service_ms is 0 with service = \"{}\"", entry.name, entry.service());
        (found, "a time above 0, or service = \"none\"".into())
    })?;
    within(at, "slowdown", entry.slowdown.unwrap_or(1.0), 1.0, 1000.0)?;
    within(at, "cpu_share", entry.cpu_share.unwrap_or(1.0), 0.05, 1024.0)?;
    within(at, "cpus", entry.cpus.unwrap_or(1.0), 0.05, 65536.0)?;
    within(at, "net_mbit", entry.net_mbit.unwrap_or(1.0), 0.001, 1e7)?;
    expect(entry.cgroup.is_none() || entry.cpu_share.is_none(), at.key("cpu_share"), || {
        let found = format!("node {:?}: cpu_share beside a cgroup", entry.name);
        (found, "only one of them: set the share in the cgroup itself".into())
    })?;
    ready(at, entry)?;
    group(at, entry)
}

/// Checks what its server is asked after a move's commands.
fn ready(at: At, entry: &NodeEntry) -> Check {
    let Some(Ready { path, status, timeout }) = &entry.ready else { return Ok(()) };
    let (at, who) = (at.key("ready"), format!("node {:?}", entry.name));
    expect(entry.is_foreign(), at, || {
        let found = format!("{who}: ready without server");
        (found, "no ready: the built-in origin always is".into())
    })?;
    let is_path = path.starts_with('/') && is_text(path, PATH_BYTES_MAX, |c| c.is_ascii_graphic());
    expect(is_path, at, || {
        let expected = format!(
            "\"/\" and at most {} visible ASCII characters, such as \"/healthz\"",
            PATH_BYTES_MAX - 1
        );
        (format!("{who}: ready.path is {:?}", excerpt(path)), expected)
    })?;
    expect((100..=599).contains(status), at, || {
        (format!("{who}: ready.status is {status}"), "from 100 to 599".into())
    })?;
    expect((MILLI..=HOUR).contains(timeout), at, || {
        let found = format!("{who}: ready.timeout_ms is {}", ms(*timeout));
        (found, format!("from {} to {}", ms(MILLI), ms(HOUR)))
    })
}

/// The key that says where the node's server answers, and the addresses of the first one: one for all sites, or one for each.
pub(crate) fn server(
    at: At,
    entry: &NodeEntry,
    sites: &[SiteEntry],
) -> Result<(&'static str, Vec<ServerAddress>), Problem> {
    match (entry.listen, &entry.server) {
        (None, _) if !entry.serves.is_empty() => Ok(("serves", serves(at, entry, sites)?)),
        (None, Some(server)) => Ok(("server", vec![server.clone()])),
        (Some(listen), _) if !entry.is_foreign() => Ok(("listen", vec![listen.into()])),
        (listen, server) => Err(Problem {
            at: if listen.is_some() { at.key("listen") } else { at.key("name") },
            found: match listen {
                Some(_) => {
                    let other = if server.is_some() { "server" } else { "serves" };
                    format!("node {:?}: listen and {other} are given", entry.name)
                }
                None => format!("node {:?}: neither listen nor server", entry.name),
            },
            expected: "listen for the built-in origin, or server = \"host:port\" for a server of yours"
                .into(),
        }),
    }
}

/// The addresses of a server that has one for each site.
fn serves(at: At, entry: &NodeEntry, sites: &[SiteEntry]) -> Result<Vec<ServerAddress>, Problem> {
    let (at, at_server, who) = (at.key("serves"), at.key("server"), format!("node {:?}", entry.name));
    let unknown = entry.serves.keys().find(|name| sites.iter().all(|site| site.name != **name));
    expect(unknown.is_none(), at, || {
        let name = excerpt(unknown.map_or("", String::as_str));
        (format!("{who}: serves names {name:?}, which is no site"), "the names of the sites".into())
    })?;
    let host = entry.server.as_ref().map(|server| server.tcp().filter(|address| address.port() == 0));
    expect(host != Some(None), at_server, || {
        let server = entry.server.as_ref().map_or_else(String::new, ToString::to_string);
        (
            format!("{who}: server = \"{server}\" with serves"),
            "a host without a port: serves has the ports".into(),
        )
    })?;
    let host = host.flatten().map(|host| host.ip());
    let address = |site: &SiteEntry| match (entry.serves.get(&site.name), host) {
        (Some(Serves::Unix(path)), _) => Ok(ServerAddress::Unix(path.clone())),
        (Some(Serves::Port(port)), Some(host)) => Ok(SocketAddr::new(host, *port).into()),
        (Some(Serves::Port(port)), None) => Err(Problem {
            at,
            found: format!("{who}: serves has port {port}, and there is no server"),
            expected: "server = \"host\", which has these ports".into(),
        }),
        (None, _) => Err(Problem {
            at,
            found: format!("{who}: serves has nothing for site {:?}", site.name),
            expected: "a port or a Unix socket for each site".into(),
        }),
    };
    let addresses = sites.iter().map(address).collect::<Result<Vec<_>, _>>()?;
    let has_ports = addresses.iter().any(|address| address.tcp().is_some());
    expect(host.is_none() || has_ports, at_server, || {
        (
            format!("{who}: server is given, and serves has no port"),
            "no server beside Unix sockets alone".into(),
        )
    })?;
    Ok(addresses)
}

/// Checks a node whose server is foreign, for which the keys of the built-in origin mean nothing.
fn foreign(at: At, key: &'static str, entry: &NodeEntry, addresses: &[ServerAddress]) -> Check {
    let who = format!("node {:?}", entry.name);
    for address in addresses {
        match address {
            ServerAddress::Tcp(address) => {
                expect(address.port() != 0, at.key("server"), || {
                    let expected = "\"host:port\", or serves with a port for each site";
                    (format!("{who}: server {} has no port", address.ip()), expected.into())
                })?;
                expect(!address.ip().is_unspecified(), at.key("server"), || {
                    (format!("{who}: server {address}"), "an address that edges can connect to".into())
                })?;
            }
            ServerAddress::Unix(path) => unix(at.key(key), &entry.name, path)?,
        }
    }
    let has_next = key == "server" && addresses.iter().all(|address| address.tcp().is_some());
    expect(entry.count == 1 || has_next, at.key("count"), || {
        let found = format!("{who}: {} nodes at {}", entry.count, shown(addresses));
        (found, "count = 1: one entry for each server that is not at a single port".into())
    })?;
    let given = [
        ("service", entry.service.is_some()),
        ("service_ms", entry.service_time.is_some()),
        ("slowdown", entry.slowdown.is_some()),
        ("queue_depth_max", entry.queue_depth_max.is_some()),
        ("root", entry.root.is_some()),
        ("cpu_share", entry.cpu_share.is_some()),
    ];
    let given = given.iter().find(|(_, is_given)| *is_given);
    given.map_or(Ok(()), |(key, _)| {
        Err(Problem {
            at: at.key(key),
            found: format!("{who}: {key} with {}", shown(addresses)),
            expected: format!("no {key}: it is of the built-in origin"),
        })
    })
}

/// The addresses of a server, in words.
fn shown(addresses: &[ServerAddress]) -> String {
    match addresses {
        [one] => format!("server = \"{one}\""),
        _ => "serves".to_owned(),
    }
}

/// Checks the path of a Unix socket.
fn unix(at: At, node: &str, path: &Path) -> Check {
    let (bytes, max) = (path.as_os_str().as_bytes(), ServerAddress::PATH_BYTES_MAX);
    // Relative to which directory would depend on where an edge was started.
    let is_usable = path.is_absolute() && bytes.len() <= max && !bytes.contains(&0);
    expect(is_usable, at, || {
        let shown = excerpt(&path.to_string_lossy());
        let found = format!("node {node:?}: Unix socket {shown:?} of {} bytes", bytes.len());
        (found, format!("an absolute path of at most {max} bytes, such as \"unix:/run/app.sock\""))
    })
}

/// Checks that a node whose server changes has a control group that does not.
pub(super) fn lasting_group(at: At, entry: &NodeEntry) -> Check {
    let given = [("unit", entry.unit.is_some()), ("pid_file", entry.pid_file.is_some())];
    let given = given.iter().find(|(_, is_given)| *is_given);
    given.map_or(Ok(()), |(key, _)| {
        Err(Problem {
            at: at.key(key),
            found: format!(
                "node {:?}: {key}, and sites have commands that change what runs there",
                entry.name
            ),
            expected: "cgroup, of a slice that has the servers of all sites".into(),
        })
    })
}

/// Checks how the node's control group is named.
fn group(at: At, entry: &NodeEntry) -> Check {
    let given = [
        ("cgroup", entry.cgroup.is_some()),
        ("unit", entry.unit.is_some()),
        ("pid_file", entry.pid_file.is_some()),
    ];
    let mut given = given.iter().filter(|(_, is_given)| *is_given).map(|(key, _)| *key);
    let Some(key) = given.next() else { return Ok(()) };
    let (at, who) = (at.key(key), format!("node {:?}", entry.name));
    if let Some(other) = given.next() {
        let found = format!("{who}: {key} and {other} are given");
        return Err(Problem { at, found, expected: "one of them".into() });
    }
    expect(entry.count == 1, at, || {
        let found = format!("{who}: {} nodes in one cgroup", entry.count);
        (found, format!("count = 1: one entry for each node that has a {key}"))
    })?;
    expect(key == "cgroup" || entry.is_foreign(), at, || {
        (format!("{who}: {key} without server"), "cgroup, or a server of yours".into())
    })?;
    let usable = |c: u8| c.is_ascii_alphanumeric() || b":-_.\\@".contains(&c);
    let unit = entry.unit.as_deref().unwrap_or("a.service");
    expect(is_text(unit, UNIT_BYTES_MAX, usable) && unit.contains('.'), at, || {
        (format!("{who}: unit {:?}", excerpt(unit)), "a unit of systemd, such as \"app.service\"".into())
    })
}
