//! The lines that the configuration of a front's proxy needs.

use sidelong_config::{Cluster, FrontEntry, Node, Proxy, ServerAddress};

use super::memory::directory;
use super::{envoy, haproxy};

/// The lines that the proxy's own configuration needs.
pub(super) fn lines(cluster: &Cluster, entry: &FrontEntry) -> String {
    let prefix = directory(cluster, entry).join(&entry.name);
    let prefix = prefix.display();
    let sites =
        || cluster.sites.iter().enumerate().map(|(index, site)| (index, &site.name, site.hosts.join(" ")));
    let servers = |site: usize, line: &dyn Fn(&Node, &ServerAddress) -> String| {
        cluster.nodes.iter().map(|node| line(node, node.address(site))).collect::<String>()
    };
    match entry.proxy {
        Proxy::Nginx => {
            let site = |(index, name, hosts): (usize, &String, String)| {
                format!(
                    "upstream {name} {{\n    sidelong {prefix} {name};\n{}    keepalive 32;\n}}\n\
                     server {{\n    server_name {hosts};\n    sidelong_admission {prefix} {name};\n    location / {{\n        \
                     proxy_pass http://{name};\n        proxy_http_version 1.1;\n        proxy_set_header Connection \"\";\n        \
                     proxy_set_header Host $host;\n    }}\n}}\n",
                    servers(index, &|_, address| format!("    server {address} max_fails=0;\n"))
                )
            };
            format!(
                "# Outside of http: load_module modules/ngx_http_sidelong_module.so;\n{}",
                sites().map(site).collect::<String>()
            )
        }
        Proxy::Httpd => {
            let site = |(index, name, hosts): (usize, &String, String)| {
                let mut hosts = hosts.split(' ');
                let first = hosts.next().unwrap_or_default();
                let aliases: String = hosts.map(|host| format!("    ServerAlias {host}\n")).collect();
                format!(
                    "<VirtualHost *:80>\n    ServerName {first}\n{aliases}    SidelongSite {name}\n    SidelongAdmission On\n    \
                     <Proxy balancer://{name}>\n{}        ProxySet lbmethod=sidelong\n    </Proxy>\n    \
                     ProxyPreserveHost On\n    ProxyPass / balancer://{name}/\n</VirtualHost>\n",
                    servers(index, &|node, address| match address {
                        ServerAddress::Tcp(address) =>
                            format!("        BalancerMember http://{address} retry=0\n"),
                        // httpd tells members apart by their names.
                        unix => format!("        BalancerMember {unix}|http://{} retry=0\n", node.name),
                    })
                )
            };
            format!(
                "LoadModule sidelong_module modules/mod_sidelong.so\nSidelongFront {prefix}\n{}",
                sites().map(site).collect::<String>()
            )
        }
        Proxy::Envoy => envoy::lines(cluster, &prefix.to_string()),
        Proxy::Haproxy => haproxy::lines(cluster, entry),
        Proxy::Library => format!("/* sidelong_front_open({:?}, why) */\n", prefix.to_string()),
    }
}
