//! What HAProxy's Runtime API says of its servers.

use std::fmt::Write as _;

use sidelong_app::front::{haproxy_backend, haproxy_cluster, haproxy_socket};
use sidelong_config::{Cluster, ControlledBy, FrontEntry};
use sidelong_edge::{HaproxyServer, survey_haproxy};
use sidelong_layout::{NodeId, SiteId};
use sidelong_policy::index::Capacity;

use super::memory;
use crate::failure::Failure;

/// Which servers HAProxy has for each site.
///
/// # Errors
/// If it is not as it should be.
pub(super) fn survey(cluster: &Cluster, entry: &FrontEntry) -> Result<String, Failure> {
    let described = haproxy_cluster(cluster, entry, &vec![Capacity::default(); cluster.nodes.len()]);
    let found = survey_haproxy(haproxy_socket(entry), described).map_err(|trouble| {
        Failure::new(format!(
            "front {} cannot ask {}: {trouble}",
            entry.name,
            haproxy_socket(entry).display()
        ))
    })?;
    let of = |site: usize, node: Option<NodeId>| {
        let is_it = move |(of, at, _): &&(SiteId, Option<NodeId>, HaproxyServer)| {
            *of == SiteId::new(site) && *at == node
        };
        found.iter().filter(is_it).map(|(_, _, server)| server)
    };
    let mut said = String::new();
    let (mut missing, mut held, mut shut) = (Vec::new(), Vec::new(), Vec::new());
    for (index, site) in cluster.sites.entries() {
        let backend = haproxy_backend(Some(entry), &site.name);
        let _ = writeln!(said, "backend {backend} of site {}", site.name);
        for (number, node) in cluster.nodes.entries() {
            let mut servers = of(index, Some(NodeId::new(number))).peekable();
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
        for server in of(index, None) {
            let _ = writeln!(
                said,
                "    server {}, which is no node's, weight {}, {}",
                server.name, server.weight, server.status
            );
        }
        let mut servers = found.iter().filter(|(of, ..)| *of == SiteId::new(index)).peekable();
        if servers.peek().is_some() && servers.all(|(_, _, server)| server.weight == 0 || server.is_down()) {
            shut.push(backend);
        }
    }
    let mut wrong = Vec::new();
    if !shut.is_empty() {
        let advice = "the front's log says why, if it runs";
        wrong.push(format!(
            "all servers have weight 0 or are down in {}, so that it answers 503: {advice}",
            shut.join(", ")
        ));
    }
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
        Ok(said)
    } else {
        Err(Failure::new(format!("front {}: {}", entry.name, wrong.join("; "))))
    }
}
