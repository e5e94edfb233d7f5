//! Tells Envoy where the servers of each site are, by a file for each that its endpoint discovery (EDS) reads. One that stays when its site
//! has left is what Envoy's configuration still names.

use std::io::Write as _;

use serde_json::{Value, json};
use sidelong_config::{FrontEntry, ServerAddress};

use super::memory::run_of;
use crate::failure::Failure;
use crate::parts::Parts;

/// The file of a site, of the front of that name, or of that directory and name.
pub fn endpoints(front: &str, site: &str) -> String {
    format!("{front}.{site}.eds.json")
}

/// Writes the files, as far as they are not so already.
///
/// # Errors
/// If one cannot be written.
pub(super) fn write(parts: &Parts, entry: &FrontEntry) -> Result<(), Failure> {
    let run = run_of(parts, entry)?;
    for (slot, site) in parts.cluster.sites.entries() {
        let addresses = parts.cluster.nodes.values().map(|node| node.address(slot));
        let (name, text) =
            (endpoints(&entry.name, &site.name), assignment(&site.name, addresses).to_string());
        let is_so = run.read(&name).and_then(std::io::read_to_string).is_ok_and(|known| known == text);
        if is_so {
            continue;
        }
        // Envoy reads it as soon as it has its name.
        let new = format!("{name}.new");
        let written = run.create(&new).and_then(|mut file| file.write_all(text.as_bytes()));
        let shown = written.and_then(|()| if entry.dir.is_some() { run.publish_file(&new) } else { Ok(()) });
        shown
            .and_then(|()| run.rename(&new, &name))
            .map_err(|error| Failure::new(format!("{}: {error}", run.path().join(&name).display())))?;
    }
    Ok(())
}

/// The endpoints of a site's cluster, as of envoy.config.endpoint.v3.
fn assignment<'a>(site: &str, addresses: impl Iterator<Item = &'a ServerAddress>) -> Value {
    let endpoint = |address: &ServerAddress| {
        let address = match address {
            ServerAddress::Tcp(address) => {
                json!({ "socket_address": { "address": address.ip(), "port_value": address.port() } })
            }
            ServerAddress::Unix(path) => json!({ "pipe": { "path": path } }),
        };
        json!({ "endpoint": { "address": address } })
    };
    let endpoints: Vec<_> = addresses.map(endpoint).collect();
    json!({
        "resources": [{
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": site,
            "endpoints": [{ "lb_endpoints": endpoints }],
        }],
    })
}
