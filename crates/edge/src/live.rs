//! What of an edge's settings may be replaced while it serves.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sidelong_layout::SiteId;
use sidelong_proxy::{Settings, SharedSettings};

use crate::settings::EdgeSettings;

/// What requests go by, and may be replaced meanwhile. A request ends by what it began with.
#[derive(Debug)]
pub struct LiveSettings {
    /// The site of each host, in lower case.
    hosts: ArcSwap<HashMap<String, SiteId>>,
    /// What the data path goes by.
    pub(crate) proxy: Arc<SharedSettings>,
}

impl LiveSettings {
    /// The settings of an edge that starts.
    pub(crate) fn new(settings: &EdgeSettings) -> Self {
        LiveSettings {
            hosts: ArcSwap::from_pointee(hosts(settings)),
            proxy: Arc::new(SharedSettings::new(of_proxy(settings))),
        }
    }

    /// All of them at once. Of `settings` nothing else counts.
    pub fn replace(&self, settings: &EdgeSettings) {
        self.hosts.store(Arc::new(hosts(settings)));
        self.proxy.change(|current| *current = of_proxy(settings));
    }

    /// The site of a host (RFC 9110, 7.2).
    pub(crate) fn site_of(&self, host: &str) -> Option<SiteId> {
        let hosts = self.hosts.load();
        hosts.get(host).or_else(|| hosts.get(&host.to_ascii_lowercase())).copied()
    }
}

fn hosts(settings: &EdgeSettings) -> HashMap<String, SiteId> {
    let sites = settings.sites.iter().enumerate();
    let of_site = sites.flat_map(|(index, site)| {
        site.hosts.iter().map(move |host| (host.to_ascii_lowercase(), SiteId::new(index)))
    });
    of_site.collect()
}

fn of_proxy(settings: &EdgeSettings) -> Settings {
    Settings {
        limits: settings.limits,
        trusted_proxies: settings.trusted_proxies.clone(),
        forwarding: settings.forwarding.clone(),
    }
}
