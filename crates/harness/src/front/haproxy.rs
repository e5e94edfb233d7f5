//! The lines of HAProxy's configuration.

use std::fmt::Write as _;
use std::path::Path;

use sidelong_app::front::{haproxy_backend, haproxy_socket};
use sidelong_config::{ControlledBy, FrontEntry, ServerAddress};
use sidelong_edge::haproxy_admission;

use super::Pool;

/// The line that opens HAProxy's Runtime API.
pub(crate) fn socket_line(entry: &FrontEntry) -> String {
    format!("global\n    stats socket {} mode 600 level admin\n", haproxy_socket(entry).display())
}

/// Where its Lua is installed: by the package, or by `make install`.
pub(crate) fn lua() -> &'static Path {
    let packaged = Path::new("/usr/share/sidelong/sidelong.lua");
    if packaged.exists() { packaged } else { Path::new("/usr/local/share/sidelong/sidelong.lua") }
}

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

/// What HAProxy does about a server that is down, in a backend that a front controls. `leastconn` prefers a server that refuses
/// connections, as it has none: so some that fail in a row take it out of use, checks bring it back, and the requests go elsewhere. One alone
/// may be of a server that has much to do.
const WHILE_DOWN: &str = "    option redispatch 1
    default-server check inter 1s fastinter 100ms downinter 200ms rise 1 observe layer4 error-limit 3 on-error mark-down
";

/// Backends of HAProxy, controlled by a front or by HAProxy itself. `admits` if a site has a target, so that clients may be rejected.
pub(crate) fn backends(pools: &[Pool<'_>], controlled: Option<&FrontEntry>, admits: bool) -> String {
    let mut lines = String::new();
    for pool in pools {
        // leastconn takes weights of any size, and evens out what changes between two of them.
        let name = haproxy_backend(controlled, pool.name);
        let _ = write!(lines, "backend {name}\n    balance leastconn\n");
        if controlled.is_some() {
            lines += WHILE_DOWN;
        }
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
