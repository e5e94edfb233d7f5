//! Which site a host is of, as a node judges requests.

use std::sync::Arc;

use arc_swap::ArcSwap;
use sidelong_config::Cluster;

/// The hosts of each site, by its index. A newer roster may replace them while requests are judged.
pub(crate) struct Hosts(ArcSwap<Vec<Vec<String>>>);

impl Hosts {
    /// The hosts of a cluster file.
    pub(crate) fn of(cluster: &Cluster) -> Arc<Self> {
        Arc::new(Hosts(ArcSwap::from_pointee(by_site(cluster))))
    }

    /// Takes another file's hosts, all at once.
    pub(crate) fn replace(&self, cluster: &Cluster) {
        self.0.store(Arc::new(by_site(cluster)));
    }

    /// The site that has a host, which may have a port.
    pub(crate) fn site(&self, host: &[u8]) -> Option<usize> {
        let name = host.split(|byte| *byte == b':').next().unwrap_or(host);
        let has_it = |hosts: &Vec<String>| hosts.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()));
        self.0.load().iter().position(has_it)
    }
}

fn by_site(cluster: &Cluster) -> Vec<Vec<String>> {
    cluster.sites.map(|site| site.hosts.clone()).to_vec()
}
