//! What of an edge's settings may be replaced while it serves.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use sidelong_layout::{NodeId, SiteId, Slots};
use sidelong_os::ServerAddress;
use sidelong_proxy::{Address, HTTP_PROTOCOLS, Server, ServerId, Settings, SharedSettings};
use sidelong_tls::{Certificate, ClientCa, Tls, TlsError};

use crate::access_log::AccessLog;
use crate::server::Error;
use crate::settings::{self, EdgeSettings, NodeAddress, SiteHosts};

/// What requests go by, and may be replaced meanwhile. A request ends by the limits that it began with.
#[derive(Debug)]
pub struct LiveSettings {
    /// As they were last replaced.
    last: ArcSwap<EdgeSettings>,
    table: ArcSwap<Table>,
    /// What the data path goes by.
    pub(crate) proxy: Arc<SharedSettings>,
    /// What clients are shown; `None` for an edge without TLS.
    pub(crate) tls: Option<Tls>,
    log: ArcSwapOption<AccessLog>,
    /// Lines of all access logs that were dropped.
    dropped: Arc<AtomicU64>,
}

/// Other settings of an edge, whose files were opened, so that nothing fails when they take effect.
#[derive(Debug)]
pub struct Prepared {
    settings: EdgeSettings,
    certificates: Option<Certificates>,
    log: Option<Arc<AccessLog>>,
}

/// Certificates of an edge, and the authorities of its clients.
type Certificates = (Vec<Certificate>, Option<ClientCa>);

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
    ///
    /// # Errors
    /// If a certificate or the access log cannot be used.
    pub(crate) fn new(settings: &EdgeSettings) -> Result<Self, Error> {
        let dropped = Arc::default();
        let tls = read_files(settings)?.map(|(shown, wanted)| Tls::new(shown, wanted, HTTP_PROTOCOLS));
        let refused = |error: TlsError| Error::Tls { edge: settings.name.clone(), reason: error.to_string() };
        Ok(LiveSettings {
            last: ArcSwap::from_pointee(settings.clone()),
            table: ArcSwap::from_pointee(Table::after(None, settings)),
            proxy: Arc::new(SharedSettings::new(of_proxy(settings))),
            tls: tls.transpose().map_err(refused)?,
            log: open_log(settings, &dropped)?.into(),
            dropped,
        })
    }

    /// Opens what other settings need. An edge without TLS stays so, and one with it.
    ///
    /// # Errors
    /// If a certificate or the access log cannot be used.
    pub fn prepare(&self, settings: EdgeSettings) -> Result<Prepared, Error> {
        let last = self.last.load();
        let settings = EdgeSettings { access_log_reopen: Arc::clone(&last.access_log_reopen), ..settings };
        // Those that stay keep their sessions. Their files are looked at anyway.
        let is_shown = (&last.tls, &last.client_ca) == (&settings.tls, &settings.client_ca);
        let certificates = if is_shown { None } else { read_files(&settings)? };
        let log = match last.access_log == settings.access_log {
            true => self.log.load_full(),
            false => open_log(&settings, &self.dropped)?,
        };
        Ok(Prepared { settings, certificates, log })
    }

    /// All of them at once. Of the settings nothing else counts. A node may get requests only afterwards.
    pub fn replace(&self, Prepared { settings, certificates, log }: Prepared) {
        self.proxy.change(|current| *current = of_proxy(&settings));
        self.table.store(Arc::new(Table::after(Some(&self.table.load()), &settings)));
        if let Some(((shown, wanted), tls)) = certificates.zip(self.tls.as_ref())
            && let Err(error) = tls.replace(shown, wanted)
        {
            tracing::error!(%error, "the new certificates cannot be used, and the old ones are shown");
        }
        self.log.store(log);
        self.last.store(Arc::new(settings));
    }

    /// The access log, if there is one.
    pub(crate) fn log(&self) -> Guard<Option<Arc<AccessLog>>> {
        self.log.load()
    }

    /// Lines of the access log that were dropped; `None` if there is no log, and none was dropped.
    pub(crate) fn dropped(&self) -> Option<u64> {
        let dropped = self.dropped.load(Ordering::Relaxed);
        (dropped > 0 || self.log.load().is_some()).then_some(dropped)
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

fn read_files(settings: &EdgeSettings) -> Result<Option<Certificates>, Error> {
    certificates(&settings.name, &settings.tls, settings.client_ca.as_deref())
}

fn open_log(settings: &EdgeSettings, dropped: &Arc<AtomicU64>) -> Result<Option<Arc<AccessLog>>, Error> {
    let Some(path) = &settings.access_log else { return Ok(None) };
    let opened = AccessLog::open(path, Arc::clone(&settings.access_log_reopen), Arc::clone(dropped));
    let refused =
        |source| Error::AccessLog { edge: settings.name.clone(), path: path.display().to_string(), source };
    Ok(Some(Arc::new(opened.map_err(refused)?)))
}

/// Reads the certificates of the edge `name`, and the authorities of its clients', as the edge does when it starts.
///
/// # Errors
/// If one of the files cannot be used.
pub fn check_tls(name: &str, files: &[settings::Tls], client_ca: Option<&Path>) -> Result<(), Error> {
    certificates(name, files, client_ca).map(|_| ())
}

/// What clients are shown, and what they must show; `None` for an edge without TLS.
fn certificates(
    name: &str,
    files: &[settings::Tls],
    client_ca: Option<&Path>,
) -> Result<Option<Certificates>, Error> {
    if files.is_empty() {
        return Ok(None);
    }
    let edge = || name.to_owned();
    let read = |files: &settings::Tls| {
        let refused = |error: TlsError| Error::Certificate {
            edge: edge(),
            certificate: files.certificate.display().to_string(),
            key: files.key.display().to_string(),
            reason: error.to_string(),
        };
        Certificate::read(&files.certificate, &files.key).map_err(refused)
    };
    let client_ca = client_ca.map(|file| {
        let refused = |error: TlsError| Error::ClientCa {
            edge: edge(),
            file: file.display().to_string(),
            reason: error.to_string(),
        };
        ClientCa::read(file).map_err(refused)
    });
    Ok(Some((files.iter().map(read).collect::<Result<_, _>>()?, client_ca.transpose()?)))
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
