//! What of an edge's settings may be replaced while it serves.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use sidelong_layout::{NodeId, SiteId, Slots};
use sidelong_os::ServerAddress;
use sidelong_proxy::{Address, Server, ServerId, Settings, SharedSettings};

use crate::settings::{EdgeSettings, NodeAddress, SiteHosts};

/// What requests go by, and may be replaced meanwhile. A request ends by the limits that it began with.
#[derive(Debug)]
pub struct LiveSettings {
    table: ArcSwap<Table>,
    /// What the data path goes by.
    pub(crate) proxy: Arc<SharedSettings>,
}

/// The sites and nodes as requests know them.
#[derive(Debug)]
pub(crate) struct Table {
    /// The site of each host, in lower case.
    hosts: HashMap<String, SiteId>,
    /// The highest tag that a site has had.
    last_tag: u64,
    pub(crate) sites: Slots<SiteRow>,
    pub(crate) nodes: Slots<NodeRow>,
}

#[derive(Debug)]
pub(crate) struct SiteRow {
    pub(crate) name: Arc<str>,
    /// Another one for each site that has had the slot.
    pub(crate) tag: u64,
}

#[derive(Debug)]
pub(crate) struct NodeRow {
    pub(crate) name: Arc<str>,
    pub(crate) speech: Arc<Speech>,
    pub(crate) address: NodeAddress,
}

impl LiveSettings {
    /// The settings of an edge that starts.
    pub(crate) fn new(settings: &EdgeSettings) -> Self {
        LiveSettings {
            table: ArcSwap::from_pointee(Table::after(None, settings)),
            proxy: Arc::new(SharedSettings::new(of_proxy(settings))),
        }
    }

    /// All of them at once. Of `settings` nothing else counts. A node may get requests only afterwards.
    pub fn replace(&self, settings: &EdgeSettings) {
        self.proxy.change(|current| *current = of_proxy(settings));
        self.table.store(Arc::new(Table::after(Some(&self.table.load()), settings)));
    }

    /// The nodes now.
    pub fn nodes(&self) -> Slots<NodeAddress> {
        self.table.load().nodes.map(|row| row.address.clone())
    }

    /// The sites and nodes now.
    pub(crate) fn table(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }
}

impl Table {
    /// Of `settings`, with what `last` knows of those that stay.
    fn after(last: Option<&Table>, settings: &EdgeSettings) -> Self {
        let mut last_tag = last.map_or(0, |last| last.last_tag);
        let site = |slot: usize, site: &SiteHosts| {
            let known = last.and_then(|last| last.sites.get(slot)).filter(|known| *known.name == *site.name);
            last_tag += 1;
            SiteRow { name: site.name.as_str().into(), tag: known.map_or(last_tag, |known| known.tag) }
        };
        let node = |slot: usize, node: &NodeAddress| {
            let known = last.and_then(|last| last.nodes.get(slot));
            let speaks_alike =
                |known: &&NodeRow| known.address.name == node.name && known.speech.is_http2 == node.http2;
            let speech = known.filter(speaks_alike).map(|known| Arc::clone(&known.speech));
            NodeRow {
                name: node.name.as_str().into(),
                speech: speech.unwrap_or_else(|| Arc::new(Speech::of(node.http2))),
                address: node.clone(),
            }
        };
        let sites = settings.sites.map_slots(site);
        Table { hosts: hosts(settings), last_tag, sites, nodes: settings.nodes.map_slots(node) }
    }

    /// The site of a host (RFC 9110, 7.2), and its tag.
    pub(crate) fn site_of(&self, host: &str) -> Option<(SiteId, u64)> {
        let site = self.hosts.get(host).or_else(|| self.hosts.get(&host.to_ascii_lowercase())).copied()?;
        Some((site, self.sites.get(site.index())?.tag))
    }

    /// The server to which requests of `site` go at `node`. It has connections of its own, so that none that was kept leads to
    /// another site's server. `None` if the slot of one of them is not theirs any more, that of the site by its tag.
    pub(crate) fn server(&self, node: NodeId, (site, tag): (SiteId, u64)) -> Option<ServerId> {
        let row = self.nodes.get(node.index())?;
        let is_same = self.sites.get(site.index()).is_some_and(|site| site.tag == tag);
        let member = if row.address.addresses.len() == 1 { 0 } else { site.index() };
        is_same.then_some(ServerId { group: node.index(), member })
    }
}

/// What a node's server is said to speak.
#[derive(Debug)]
pub(crate) struct Speech {
    is_http2: bool,
    /// Whether it was logged that it does not.
    is_logged: AtomicBool,
}

impl Speech {
    const fn of(is_http2: bool) -> Self {
        Speech { is_http2, is_logged: AtomicBool::new(false) }
    }

    /// Logs, once, that the answers of node `name` are none.
    pub(crate) fn misheard(&self, name: &str) {
        if self.is_logged.swap(true, Ordering::Relaxed) {
            return;
        }
        match self.is_http2 {
            true => tracing::warn!(
                "{name} answered something else than HTTP/2 in clear text: if it speaks HTTP/1, remove http2 = true from \
                 its [[node]]"
            ),
            false => tracing::warn!(
                "{name} answered something else than HTTP/1: if it speaks only HTTP/2 in clear text, as gRPC servers do, add \
                 http2 = true to its [[node]]"
            ),
        }
    }
}

fn hosts(settings: &EdgeSettings) -> HashMap<String, SiteId> {
    let of_site = settings.sites.entries().flat_map(|(slot, site)| {
        site.hosts.iter().map(move |host| (host.to_ascii_lowercase(), SiteId::new(slot)))
    });
    of_site.collect()
}

fn of_proxy(settings: &EdgeSettings) -> Settings {
    let server = |node: &NodeAddress| {
        let server =
            |address: &ServerAddress| Server { address: Address::Socket(address.clone()), http2: node.http2 };
        node.addresses.iter().map(server).collect()
    };
    Settings {
        limits: settings.limits,
        trusted_proxies: settings.trusted_proxies.clone(),
        forwarding: settings.forwarding.clone(),
        servers: settings.nodes.all().map(|node| node.map_or_else(Vec::new, server)).collect(),
    }
}
