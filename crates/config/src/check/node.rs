//! Checks of a node.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use sidelong_files::ServerAddress;
use sidelong_layout::NODES_MAX;

use super::{Check, HOUR, MILLI, Problem, excerpt, expect, is_text, millis, ms, name, port, within};
use crate::file::{NodeEntry, Ready};
use crate::lines::At;
use crate::words::Service;

/// systemd.unit(5): "a unit name must not be longer than 255 characters".
const UNIT_BYTES_MAX: usize = 255;
/// Longest path of `ready`.
const PATH_BYTES_MAX: usize = 1024;

/// Checks a node by itself.
pub(super) fn node(at: At, entry: &NodeEntry) -> Check {
    name(at.key("name"), "node", &entry.name)?;
    within(at, "count", entry.count, 1, NODES_MAX)?;
    let (key, address) = server(at, entry)?;
    if let Some(address) = address.tcp() {
        port(at.key(key), address)?;
    }
    if entry.server.is_some() {
        foreign(at, entry, &address)?;
    }
    if let Some(admin) = entry.admin {
        port(at.key("admin"), admin)?;
    }
    expect(entry.exclusive.is_none() || entry.server.is_some(), at.key("exclusive"), || {
        (format!("node {:?}: exclusive without server", entry.name), "server, the address of yours".into())
    })?;
    expect(!entry.http2 || entry.server.is_some(), at.key("http2"), || {
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
    expect(entry.server.is_some(), at, || {
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

/// The key that says where the node's server answers, and the first address there.
pub(crate) fn server(at: At, entry: &NodeEntry) -> Result<(&'static str, ServerAddress), Problem> {
    match (entry.listen, &entry.server) {
        (Some(listen), None) => Ok(("listen", listen.into())),
        (None, Some(server)) => Ok(("server", server.clone())),
        (listen, _) => Err(Problem {
            at: if listen.is_some() { at.key("listen") } else { at.key("name") },
            found: match listen {
                Some(_) => format!("node {:?}: listen and server are given", entry.name),
                None => format!("node {:?}: neither listen nor server", entry.name),
            },
            expected: "listen for the built-in origin, or server = \"host:port\" for a server of yours"
                .into(),
        }),
    }
}

/// Checks a node whose server is foreign, for which the keys of the built-in origin mean nothing.
fn foreign(at: At, entry: &NodeEntry, server: &ServerAddress) -> Check {
    match server {
        ServerAddress::Tcp(address) => expect(!address.ip().is_unspecified(), at.key("server"), || {
            let found = format!("node {:?}: server {server}", entry.name);
            (found, "an address that edges can connect to".into())
        })?,
        ServerAddress::Unix(path) => {
            unix(at.key("server"), &entry.name, path)?;
            expect(entry.count == 1, at.key("count"), || {
                let found = format!("node {:?}: {} nodes at {server}", entry.name, entry.count);
                (found, "count = 1: one entry for each Unix socket".into())
            })?;
        }
    }
    let given = [
        ("service", entry.service.is_some()),
        ("service_ms", entry.service_time.is_some()),
        ("queue_depth_max", entry.queue_depth_max.is_some()),
        ("root", entry.root.is_some()),
        ("cpu_share", entry.cpu_share.is_some()),
    ];
    let given = given.iter().find(|(_, is_given)| *is_given);
    given.map_or(Ok(()), |(key, _)| {
        Err(Problem {
            at: at.key(key),
            found: format!("node {:?}: {key} with server = \"{server}\"", entry.name),
            expected: format!("no {key}: it is of the built-in origin"),
        })
    })
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
    expect(key == "cgroup" || entry.server.is_some(), at, || {
        (format!("{who}: {key} without server"), "cgroup, or a server of yours".into())
    })?;
    let usable = |c: u8| c.is_ascii_alphanumeric() || b":-_.\\@".contains(&c);
    let unit = entry.unit.as_deref().unwrap_or("a.service");
    expect(is_text(unit, UNIT_BYTES_MAX, usable) && unit.contains('.'), at, || {
        (format!("{who}: unit {:?}", excerpt(unit)), "a unit of systemd, such as \"app.service\"".into())
    })
}
