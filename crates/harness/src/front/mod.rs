//! The lines by which a proxy's configuration says where the servers of each site are, and who chooses among them.

pub(crate) mod envoy;
pub(crate) mod haproxy;

use std::fmt::Write as _;
use std::net::SocketAddr;

use sidelong_app::front::{directory, haproxy_backend};
use sidelong_config::{Cluster, ControlledBy, FrontEntry, Node, Proxy, ServerAddress, Site};

use crate::programs::httpd_modules;

/// Servers among which one is chosen for each request to some hosts.
pub(crate) struct Pool<'a> {
    /// The site's name, or that of all sites' pool.
    pub(crate) name: &'a str,
    pub(crate) hosts: Vec<&'a str>,
    pub(crate) servers: Vec<(&'a Node, &'a ServerAddress)>,
    /// The site, if it is of one: nodes that start at others are among its servers, too.
    site: Option<usize>,
}

impl<'a> Pool<'a> {
    /// One for all sites.
    pub(crate) fn shared(cluster: &'a Cluster) -> Vec<Pool<'a>> {
        let servers = cluster.nodes.values().map(|node| (node, node.address(0))).collect();
        let hosts = cluster.sites.values().flat_map(|site| &site.hosts).map(String::as_str).collect();
        vec![Pool { name: "all", hosts, servers, site: None }]
    }

    /// One for each site, of all nodes or of those that start there.
    pub(crate) fn of_sites(cluster: &'a Cluster, has_all: bool) -> Vec<Pool<'a>> {
        let pool = |(index, site): (usize, &'a Site)| {
            let nodes = cluster.nodes.values().filter(|node| has_all || node.site == Some(index));
            let servers = nodes.map(|node| (node, node.address(index))).collect();
            let hosts = site.hosts.iter().map(String::as_str).collect();
            Pool { name: &site.name, hosts, servers, site: Some(index) }
        };
        cluster.sites.entries().map(pool).collect()
    }

    /// Whether a node serves the pool at the start.
    pub(crate) fn has_at_start(&self, node: &Node) -> bool {
        self.site.is_none() || node.site == self.site
    }
}

/// The lines that the proxy's own configuration needs to be controlled.
pub fn lines(cluster: &Cluster, entry: &FrontEntry) -> String {
    let prefix = prefix(cluster, entry);
    let pools = Pool::of_sites(cluster, true);
    let admits = cluster.has_admission();
    match entry.proxy {
        Proxy::Nginx => format!(
            "# Outside of http: load_module modules/ngx_http_sidelong_module.so;\n{}",
            nginx(&pools, Some(&prefix), admits, None)
        ),
        Proxy::Httpd => format!(
            "LoadModule sidelong_module {}/mod_sidelong.so\n{}",
            // Otherwise below its ServerRoot.
            httpd_modules().unwrap_or("modules"),
            httpd(&pools, Some(&prefix), admits, None)
        ),
        Proxy::Envoy => envoy::lines(&pools, Some((&prefix, entry.add_servers.is_some())), admits, None),
        Proxy::Haproxy => {
            let lua = match entry.controlled_by() {
                ControlledBy::Choose => haproxy::lua_lines(&prefix, haproxy::lua()),
                ControlledBy::Weights => String::new(),
            };
            haproxy::socket_line(entry) + &lua + &haproxy::backends(&pools, Some(entry), admits)
        }
        Proxy::Connect => addresses(cluster),
        Proxy::Library => format!("/* sidelong_front_open({prefix:?}, why) */\n"),
    }
}

/// Directory and name of the files of a front.
pub(crate) fn prefix(cluster: &Cluster, entry: &FrontEntry) -> String {
    directory(cluster, entry).join(&entry.name).display().to_string()
}

/// Seconds after which a proxy tries another server, if one does not take a connection.
pub(crate) const CONNECT_S: u32 = 1;

/// Upstreams and servers of nginx, controlled by the front of that prefix or by nginx itself. `admits` if a site has a target, so that
/// clients may be rejected.
pub(crate) fn nginx(
    pools: &[Pool<'_>],
    controlled: Option<&str>,
    admits: bool,
    listen: Option<SocketAddr>,
) -> String {
    let mut text = String::new();
    for Pool { name, hosts, servers, .. } in pools {
        let listen = listen.map_or_else(String::new, |address| format!("    listen {address};\n"));
        let (balance, admission) = match controlled {
            Some(prefix) => {
                let admission = match admits {
                    true => format!("    sidelong_admission {prefix} {name};\n"),
                    false => String::new(),
                };
                (format!("sidelong {prefix} {name};"), admission)
            }
            // The zone is what its workers share.
            None => (format!("zone {name} 256k;\n    least_conn;"), String::new()),
        };
        let servers: String =
            servers.iter().map(|(_, address)| format!("    server {address} max_fails=0;\n")).collect();
        let _ = write!(
            text,
            "upstream {name} {{\n    {balance}\n{servers}    keepalive 32;\n}}\n\
             server {{\n{listen}    server_name {};\n{admission}    location / {{\n        proxy_pass http://{name};\n        \
             proxy_http_version 1.1;\n        proxy_set_header Connection \"\";\n        proxy_set_header Host $host;\n        \
             proxy_connect_timeout {CONNECT_S}s;\n    }}\n}}\n",
            hosts.join(" ")
        );
    }
    text
}

/// Virtual hosts of httpd and their balancers, likewise.
pub(crate) fn httpd(
    pools: &[Pool<'_>],
    controlled: Option<&str>,
    admits: bool,
    listen: Option<SocketAddr>,
) -> String {
    let mut text = controlled.map_or_else(String::new, |prefix| format!("SidelongFront {prefix}\n"));
    let listen = listen.map_or_else(|| "*:80".to_owned(), |address| address.to_string());
    for Pool { name, hosts, servers, .. } in pools {
        let (first, aliases) = hosts.split_first().unwrap_or((&"", &[]));
        let aliases: String = aliases.iter().map(|host| format!("    ServerAlias {host}\n")).collect();
        let (site, method) = match controlled {
            Some(_) => {
                let admission = if admits { "    SidelongAdmission On\n" } else { "" };
                (format!("    SidelongSite {name}\n{admission}"), "sidelong")
            }
            None => (String::new(), "bybusyness"),
        };
        let member = |(node, address): &(&Node, &ServerAddress)| match address {
            ServerAddress::Tcp(address) => {
                format!("        BalancerMember http://{address} retry=0 connectiontimeout={CONNECT_S}\n")
            }
            // httpd tells members apart by their names.
            unix => {
                format!(
                    "        BalancerMember {unix}|http://{} retry=0 connectiontimeout={CONNECT_S}\n",
                    node.name
                )
            }
        };
        let members: String = servers.iter().map(member).collect();
        let _ = write!(
            text,
            "<VirtualHost {listen}>\n    ServerName {first}\n{aliases}{site}    <Proxy balancer://{name}>\n{members}        \
             ProxySet lbmethod={method}\n    </Proxy>\n    ProxyPreserveHost On\n    ProxyPass / balancer://{name}/\n</VirtualHost>\n"
        );
    }
    text
}

/// The frontend of HAProxy before its backends.
pub(crate) fn haproxy_frontend(
    pools: &[Pool<'_>],
    controlled: Option<&FrontEntry>,
    listen: SocketAddr,
) -> String {
    let mut text = format!("frontend clients\n    bind {listen}\n");
    for pool in pools {
        let backend = haproxy_backend(controlled, pool.name);
        let _ = writeln!(
            text,
            "    use_backend {backend} if {{ hdr(host),field(1,:) -i {} }}",
            pool.hosts.join(" ")
        );
    }
    text
}

/// The addresses to use.
fn addresses(cluster: &Cluster) -> String {
    let mut lines = String::new();
    for site in cluster.sites.values() {
        let address = site.connect.map(|address| address.to_string()).unwrap_or_default();
        let _ = writeln!(lines, "{address} site {}", site.name);
    }
    lines
}
