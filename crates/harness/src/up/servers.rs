//! Servers of other makes, which `up --servers` starts in place of the built-in origin: unmodified, each in a control group of its
//! own.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

use crate::gunicorn;
use crate::programs::{self, Nginx};
use clap::ValueEnum;
use sidelong_app::node::service_time;
use sidelong_config::{ClusterFile, Configuration, Node, ServerAddress};

use super::auction::Auction;
use super::foreign::{self, Foreign, configure_httpd};
use sidelong_app::Failure;

/// What makes the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Make {
    /// nginx with one worker process, which answers all requests with one short text
    Nginx,
    /// Apache httpd with the event MPM, which answers all requests with its status page
    Httpd,
    /// gunicorn with synchronous workers, which take the node's service time for each request
    Gunicorn,
}

impl Make {
    const fn names(self) -> programs::Names {
        match self {
            Make::Nginx => programs::NGINX,
            Make::Httpd => programs::HTTPD,
            Make::Gunicorn => programs::GUNICORN,
        }
    }

    /// CPUs for each server, where the file gives no `cpu_share`: few, so that a node of nginx or httpd has a capacity which the
    /// load can reach, and enough for gunicorn to be bound by its workers.
    const fn cpu_share(self) -> f64 {
        match self {
            Make::Nginx | Make::Httpd => 0.05,
            Make::Gunicorn => 0.25,
        }
    }
}

/// A server that takes the place of a node's built-in origin.
pub(super) struct Server {
    make: Make,
    program: &'static str,
    node: Node,
    address: SocketAddr,
    /// CPUs that it may use.
    pub(super) cpu_share: f64,
    /// What a gunicorn serves, unless it does as the origin does.
    pub(super) auction: Option<Auction>,
}

/// Turns the nodes with a built-in origin into agents of foreign servers at the same addresses. Returns these servers.
///
/// `option` is what asked for them.
///
/// # Errors
/// If the file does not make a cluster, or the program is not there.
pub(super) fn in_place_of_origins(
    file: &mut ClusterFile,
    make: Make,
    option: &str,
) -> Result<Vec<Server>, Failure> {
    replace(file, make, foreign::find(make.names(), option)?)
}

/// Replaces the built-in origins by foreign servers, by a program of that name.
fn replace(file: &mut ClusterFile, make: Make, program: &'static str) -> Result<Vec<Server>, Failure> {
    let cluster = file.cluster()?;
    if file.baseline.configuration == Configuration::OverProvisioned {
        // The nodes that this adds are in the file from here on, because each needs a server.
        let given: usize = file.nodes.iter().map(|entry| entry.count).sum();
        if let Some(last) = file.nodes.last_mut() {
            last.count += cluster.nodes.len() - given;
        }
        file.sites.iter_mut().zip(cluster.sites.values()).for_each(|(entry, site)| entry.nodes = site.nodes);
        file.baseline.configuration = Configuration::Rigid;
    }
    let nodes = cluster.nodes.values().filter(|node| !node.is_foreign).cloned();
    let server = |node: Node| {
        let cpu_share = node.cpu_share.unwrap_or(make.cpu_share());
        Some(Server { make, program, address: node.port()?, node, cpu_share, auction: None })
    };
    let servers = nodes.filter_map(server).collect();
    for entry in file.nodes.iter_mut().filter(|entry| !entry.is_foreign()) {
        // Workers of the others wait for nobody.
        entry.workers = if make == Make::Gunicorn { entry.workers() } else { None };
        entry.cpus = entry.cpus.or(Some(entry.cpu_share.unwrap_or(make.cpu_share())));
        entry.server = entry.listen.take().map(ServerAddress::from);
        (entry.service, entry.service_time, entry.slowdown) = (None, None, None);
        (entry.queue_depth_max, entry.root, entry.cpu_share, entry.cgroup) = (None, None, None, None);
    }
    Ok(servers)
}

impl Foreign for Server {
    fn name(&self) -> String {
        format!("{}-server", self.node.name)
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn program(&self) -> &'static str {
        self.program
    }

    fn configure(&self, at: &Path) -> Result<Vec<OsString>, Failure> {
        match self.make {
            Make::Nginx => {
                let location = "location / { return 200 \"ok\\n\"; }";
                let server = format!(
                    "  access_log off;\n  server {{\n    listen {};\n    {location}\n  }}\n",
                    self.address
                );
                Ok(Nginx::new(at, &server).configure()?)
            }
            Make::Httpd => {
                // A status page needs no file, which httpd's other user could not read here if this is root.
                let page = "<Location />\nSetHandler server-status\n</Location>\n";
                configure_httpd(at, self.address, &["status"], page)
            }
            Make::Gunicorn => {
                let workers = self.node.workers.unwrap_or(1);
                if let Some(auction) = &self.auction {
                    return Ok(auction.arguments(at, &self.node.name, self.address, workers)?);
                }
                Ok(gunicorn::arguments(at, self.address, workers, service_time(&self.node))?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_server_also_those_that_over_provisioning_adds() {
        let mut file = ClusterFile::demo();
        file.baseline.configuration = Configuration::OverProvisioned;
        let before = file.cluster().unwrap();
        let servers = replace(&mut file, Make::Gunicorn, "gunicorn").unwrap();
        let after = file.cluster().unwrap();
        assert_eq!(servers.len(), 18);
        assert!(after.nodes.values().all(|node| node.is_foreign && node.workers == Some(2)));
        for ((server, was), node) in servers.iter().zip(before.nodes.values()).zip(after.nodes.values()) {
            assert_eq!((Some(server.address), &node.name, node.site), (node.port(), &was.name, was.site));
        }
        // There is nothing left to put in place.
        assert_eq!(replace(&mut file, Make::Gunicorn, "gunicorn").unwrap().len(), 0);
    }
}
