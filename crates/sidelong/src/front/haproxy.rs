//! The lines of HAProxy's configuration, and what its Runtime API says of its servers.

use std::fmt::Write as _;
use std::path::Path;

use sidelong_app::front::{haproxy_backend, haproxy_cluster, haproxy_socket};
use sidelong_config::{Cluster, ControlledBy, FrontEntry, ServerAddress};
use sidelong_edge::{HaproxyServer, haproxy_admission, survey_haproxy};
use sidelong_layout::{NodeId, SiteId};
use sidelong_policy::index::Capacity;

use super::lines::Pool;
use super::memory;
use crate::failure::{Failure, say};

/// The line that opens HAProxy's Runtime API.
pub(crate) fn socket_line(entry: &FrontEntry) -> String {
    format!("global\n    stats socket {} mode 600 level admin\n", haproxy_socket(entry).display())
}

/// Where its Lua is installed.
pub(crate) const LUA: &str = "/usr/local/share/sidelong/sidelong.lua";

/// Likewise the lines that let its Lua, which is there, choose by the files of that prefix.
pub(crate) fn lua_lines(prefix: &str, lua: &Path) -> String {
    // Once installed, it is where Lua looks for modules.
    let module = lua.with_file_name("sidelong_haproxy.so");
    let found = if module.exists() {
        format!("    lua-prepend-path {} cpath\n", lua.with_file_name("?.so").display())
    } else {
        String::new()
    };
    format!("    setenv SIDELONG_FRONT {prefix}\n{found}    lua-load-per-thread {}\n", lua.display())
}

/// Backends of HAProxy, controlled by a front or by HAProxy itself. `admits` if a site has a target, so that clients may be rejected.
pub(crate) fn backends(pools: &[Pool<'_>], controlled: Option<&FrontEntry>, admits: bool) -> String {
    let mut lines = String::new();
    for pool in pools {
        // leastconn takes weights of any size, and evens out what changes between two of them.
        let name = haproxy_backend(controlled, pool.name);
        let _ = write!(lines, "backend {name}\n    balance leastconn\n");
        let by = controlled.map(FrontEntry::controlled_by);
        match by.filter(|_| admits) {
            Some(ControlledBy::Choose) => {
                let _ = writeln!(lines, "    http-request lua.sidelong_admission {}", pool.name);
            }
            Some(ControlledBy::Weights) => lines += &haproxy_admission(pool.name, "    "),
            None => {}
        }
        if by == Some(ControlledBy::Choose) {
            let _ = writeln!(lines, "    use-server %[str({name}),lua.sidelong({})] if TRUE", pool.name);
            let _ = writeln!(
                lines,
                "    http-response set-var(txn.sidelong_answered) srv_name,lua.sidelong_answered({name})"
            );
        }
        for (node, address) in &pool.servers {
            let address = match address {
                ServerAddress::Tcp(address) => address.to_string(),
                ServerAddress::Unix(path) => format!("unix@{}", path.display()),
            };
            // Until a front has said more, each site has the nodes that it starts with.
            let weight = if pool.has_at_start(node) { 128 } else { 0 };
            let _ = writeln!(lines, "    server {} {address} weight {weight}", node.name);
        }
    }
    lines
}

/// Says which servers HAProxy has for each site.
pub(super) fn check(cluster: &Cluster, entry: &FrontEntry) -> Result<(), Failure> {
    let described = haproxy_cluster(cluster, entry, &vec![Capacity::default(); cluster.nodes.len()]);
    let found = survey_haproxy(haproxy_socket(entry), described).map_err(|trouble| {
        Failure::new(format!(
            "front {} cannot ask {}: {trouble}",
            entry.name,
            haproxy_socket(entry).display()
        ))
    })?;
    let mut said = String::new();
    let (mut missing, mut held) = (Vec::new(), Vec::new());
    for (index, site) in cluster.sites.iter().enumerate() {
        let backend = haproxy_backend(Some(entry), &site.name);
        let _ = writeln!(said, "backend {backend} of site {}", site.name);
        for (number, node) in cluster.nodes.iter().enumerate() {
            let is_it = |(of, at, _): &&(SiteId, NodeId, HaproxyServer)| {
                *of == SiteId::new(index) && *at == NodeId::new(number)
            };
            let mut servers = found.iter().filter(is_it).map(|(_, _, server)| server).peekable();
            if servers.peek().is_none() {
                missing.push(format!("{} in {backend}", node.name));
            }
            for server in servers {
                let _ = writeln!(
                    said,
                    "    node {} is server {}, weight {}, {}",
                    node.name, server.name, server.weight, server.status
                );
                if server.is_held() {
                    held.push(format!("{backend}/{} ({})", server.name, server.status));
                }
            }
        }
    }
    let mut wrong = Vec::new();
    if !missing.is_empty() {
        let advice = format!("compare its configuration with `sidelong front config {}`", entry.name);
        wrong.push(format!("HAProxy has no server for {}: {advice}", missing.join(", ")));
    }
    if !held.is_empty() {
        let advice =
            "the front leaves them so; `set server BACKEND/SERVER state ready` on the socket gives them back";
        wrong.push(format!("held in HAProxy: {}: {advice}", held.join(", ")));
    }
    if wrong.is_empty() {
        if entry.controlled_by() == ControlledBy::Choose {
            said += &memory::survey(cluster, entry)?;
        }
        say(said)
    } else {
        Err(Failure::new(format!("front {}: {}", entry.name, wrong.join("; "))))
    }
}
