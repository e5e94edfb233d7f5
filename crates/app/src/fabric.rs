//! The fabric that a process of a cluster uses: which one, why, and how the other processes' regions are found. All other code
//! of the program is given a host, a directory and initiators and knows no backend, except `perf`, which takes the one it is told.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use sidelong_config::{self as config, Cluster};
use sidelong_edge::{Counts, share_region};
use sidelong_fabric::control::{ControlDirectory, Endpoint, Secret};
use sidelong_fabric::verbs::{Completions, Device, DeviceSpec, VerbsHost};
use sidelong_fabric::{
    Directory, Host, Initiator, Key, Region, RunDirectory, hold_as, shm::ShmHost, tcp::TcpHost,
};
use sidelong_layout::{CacheMap, fnv1a};
use sidelong_load::{self as load, Finder};
use sidelong_reconfig::{board_region, front_region, load_region, words_region};

use crate::failure::Failure;

/// The kind of request that asks a node for the address of its load responder.
const RESPONDER: u8 = 128;
/// The kind of request that asks a part by which roster it goes.
pub(crate) const ADOPTED: u8 = 129;
/// The kind of request that asks a part for the newest roster that its machine has.
pub(crate) const ROSTER: u8 = 130;
/// The kind of request that asks a front what it last saw of a node.
pub(crate) const LAST_SEEN: u8 = 131;

/// How memory is reached.
#[derive(Clone)]
enum Backend {
    Shm,
    Tcp,
    Verbs(Device),
}

/// How a process reaches others and is reached.
#[derive(Clone)]
pub struct Fabric {
    backend: Backend,
    note: String,
    run: RunDirectory,
    /// See [`identity`].
    identity: u64,
    /// The secret that control endpoints require, if there are any.
    secret: Option<Secret>,
    /// Asks control endpoints for keys, if parts are on several machines; otherwise the run directory has them.
    control: Option<Arc<ControlDirectory>>,
}

impl Fabric {
    /// The fabric that the cluster file names, or the best one for where the parts are.
    pub(crate) fn new(cluster: &Cluster, run: &RunDirectory) -> Result<Self, Failure> {
        let (backend, note) = choose(cluster)?;
        let secret = match (&backend, &cluster.secret) {
            (Backend::Shm, _) | (Backend::Tcp, None) => None,
            (_, Some(secret)) => Some(read(secret)?),
            (Backend::Verbs(_), None) => Some(run.secret()?),
        };
        let told = secret.as_ref().filter(|_| cluster.secret.is_some());
        let control = told.map(|secret| Arc::new(ControlDirectory::new(secret.clone(), table(cluster))));
        tracing::info!("{note}");
        Ok(Fabric { backend, note, run: run.clone(), identity: identity(cluster), secret, control })
    }

    /// Its name and the reason for it, as a line.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// What parts of its cluster have alike.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// Its name, in a word.
    pub fn name(&self) -> &'static str {
        match self.backend {
            Backend::Shm => "shm",
            Backend::Tcp => "tcp",
            Backend::Verbs(_) => "verbs",
        }
    }

    /// The secret of the cluster's machines, if parts are on several.
    pub(crate) fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref().filter(|_| self.control.is_some())
    }

    /// Has the parts of a newer roster found, once it is called.
    pub(crate) fn adopting(&self, cluster: &Cluster) -> impl FnOnce() + Send + use<> {
        let adopting = self.control.clone().map(|control| (control, table(cluster).collect::<Vec<_>>()));
        || adopting.into_iter().for_each(|(control, table)| control.adopt(table))
    }

    /// Whether memory is shared, and so outlives the process that exposed it.
    pub(crate) fn shares_memory(&self) -> bool {
        matches!(self.backend, Backend::Shm)
    }

    /// Whether devices read the memory of other machines.
    pub(crate) fn has_device(&self) -> bool {
        matches!(self.backend, Backend::Verbs(_))
    }

    /// Whether all parts are on one machine, and so have one clock.
    pub(crate) fn is_of_one_machine(&self) -> bool {
        self.control.is_none()
    }

    /// Where the regions of others are found.
    pub(crate) fn directory(&self) -> Arc<dyn Directory> {
        match &self.control {
            Some(control) => Arc::clone(control) as _,
            None => Arc::new(self.run.clone()),
        }
    }

    /// An initiator without links.
    pub(crate) fn initiator(&self) -> Result<Initiator, Failure> {
        match (&self.backend, &self.secret) {
            (Backend::Verbs(device), Some(secret)) => {
                Ok(Initiator::with_verbs(device, secret)?.of_cluster(self.identity))
            }
            _ => Ok(Initiator::new().of_cluster(self.identity)),
        }
    }

    /// How others' load responders are found.
    pub(crate) fn responders(&self) -> Finder {
        match &self.control {
            Some(control) => {
                let directory = Arc::clone(control);
                Box::new(move |node| find_responder(&directory, node))
            }
            None => {
                let run = self.run.path().to_owned();
                Box::new(move |node| load::find_address(&run, node))
            }
        }
    }

    /// Its counters, for the metrics.
    pub(crate) fn counts(&self) -> Vec<Counts> {
        let mut counts = Vec::new();
        if let Some(control) = self.control.clone() {
            counts.push(Counts {
                name: "control_refused",
                help: "Sessions with control endpoints of other parts that either side refused, by cause",
                label: "cause",
                read: Box::new(move || control.refused().iter().collect()),
            });
        }
        if let Backend::Verbs(device) = &self.backend {
            let device = device.clone();
            counts.push(Counts {
                name: "verbs_links",
                help: "Links over verbs that failed by a completion in error, were made again, or were refused as target",
                label: "what",
                read: Box::new(move || {
                    let counters = device.counters();
                    vec![
                        ("failed", counters.completions_in_error),
                        ("made-again", counters.reconnects),
                        ("refused", counters.refused),
                    ]
                }),
            });
        }
        counts
    }

    /// The place where the process of that incarnation exposes its own regions, at `listen` if it must be reached over a network.
    pub(crate) fn expose(&self, listen: SocketAddr, incarnation: u64) -> Result<Exposer, Failure> {
        self.expose_by(HashMap::new(), listen, incarnation)
    }

    /// Likewise, where another process has handed over the locks of its regions, by name.
    pub(crate) fn expose_by(
        &self,
        locks: HashMap<String, File>,
        listen: SocketAddr,
        incarnation: u64,
    ) -> Result<Exposer, Failure> {
        let endpoint = match &self.secret {
            Some(secret) => Some(Endpoint::listen(listen, secret.clone())?),
            None => None,
        };
        let mut held = HashMap::new();
        let host = match &self.backend {
            Backend::Shm => Host::Shm(ShmHost::new(self.run.path()).with_locks(locks)),
            Backend::Tcp => {
                locks.values().try_for_each(|lock| hold_as(lock, incarnation))?;
                held = locks;
                // The endpoint uses that port, and publishes this one's.
                let port = if endpoint.is_some() { 0 } else { listen.port() };
                Host::Tcp(TcpHost::listen(SocketAddr::new(listen.ip(), port))?)
            }
            Backend::Verbs(device) => {
                let endpoint = endpoint.as_ref().expect("verbs needs a secret");
                Host::Verbs(VerbsHost::new(device, endpoint)?)
            }
        };
        let endpoint = endpoint.filter(|_| self.control.is_some());
        endpoint.iter().for_each(|endpoint| endpoint.witness(self.run.clone()));
        Ok(Exposer { host, endpoint, incarnation, run: self.run.clone(), held: Arc::new(Mutex::new(held)) })
    }
}

/// Where a process exposes its regions and publishes their keys.
pub(crate) struct Exposer {
    /// Where its regions are.
    pub(crate) host: Host,
    /// Where others ask for keys, if not in the run directory.
    endpoint: Option<Endpoint>,
    incarnation: u64,
    run: RunDirectory,
    /// The published regions, by which the machine's other parts see whether this process has ended.
    held: Arc<Mutex<HashMap<String, File>>>,
}

impl Exposer {
    /// Lets others find a region by its key.
    ///
    /// # Errors
    /// If the run directory cannot be written, or another process of this machine exposes the region.
    pub(crate) fn publish(&self, key: &Key) -> Result<(), Failure> {
        let Some(endpoint) = &self.endpoint else { return Ok(self.run.publish(key)?) };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(place) = held.entry(key.name.clone()) {
            let held = self.run.hold(&key.name, self.incarnation)?.ok_or_else(|| {
                Failure::new(format!("another process on this machine exposes {}: end it first", key.name))
            })?;
            place.insert(held);
        }
        endpoint.publish(key);
        Ok(())
    }

    /// Gives up a published region, of which the caller has the last hold: nothing changes it or reads it any more.
    pub(crate) fn withdraw(&self, region: Region) {
        let name = region.key().name.clone();
        if let Some(endpoint) = &self.endpoint {
            endpoint.withdraw(&name);
        }
        drop(region);
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
    }

    /// Whether another process of this machine may take over what it exposes. A device goes on to answer for the process whose memory it is.
    pub(crate) fn hands_over(&self) -> bool {
        matches!((&self.host, &self.endpoint), (Host::Shm(_), _) | (Host::Tcp(_), Some(_)))
    }

    /// Finds the locks by which this machine's other parts see that a process exposes these published regions, by name.
    pub(crate) fn locks(
        &self,
        regions: Vec<Region>,
    ) -> impl Fn() -> io::Result<Vec<(String, File)>> + Send + use<> {
        let held = Arc::clone(&self.held);
        move || {
            let held = held.lock().unwrap_or_else(PoisonError::into_inner);
            let lock = |region: &Region| {
                let name = region.key().name.clone();
                let lock = match held.get(&name) {
                    Some(held) => held.try_clone().map(Some),
                    None => region.lock(),
                };
                Some(lock.transpose()?.map(|lock| (name, lock)))
            };
            regions.iter().filter_map(lock).collect()
        }
    }

    /// Once it is called, others neither ask for its regions nor read them over a network.
    pub(crate) fn closer(&self) -> impl Fn() + Send + use<> {
        let endpoint = self.endpoint.clone();
        let host = match &self.host {
            Host::Tcp(host) => Some(host.clone()),
            _ => None,
        };
        move || {
            endpoint.iter().for_each(Endpoint::close);
            host.iter().for_each(TcpHost::close);
        }
    }

    /// Whether parts of other machines ask it.
    pub(crate) fn is_far(&self) -> bool {
        self.endpoint.is_some()
    }

    /// Answers requests of that kind from parts of other machines.
    pub(crate) fn serve(
        &self,
        kind: u8,
        answer: impl Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) {
        let Some(endpoint) = &self.endpoint else { return };
        let answer = Arc::new(answer);
        endpoint.serve(kind, move || {
            let answer = Arc::clone(&answer);
            Box::new(move |body| answer(body))
        });
    }

    /// Its counters, for the metrics.
    pub(crate) fn counts(&self) -> Option<Counts> {
        let endpoint = self.endpoint.clone()?;
        Some(Counts {
            name: "control_endpoint_refused",
            help: "Sessions that this part's control endpoint refused, by cause",
            label: "cause",
            read: Box::new(move || endpoint.refused().iter().collect()),
        })
    }

    /// Publishes the address that answers for the load of `node`.
    pub(crate) fn publish_responder(&self, node: &str, address: SocketAddr) -> Result<(), Failure> {
        match &self.endpoint {
            Some(_) => {
                let answer = address.to_string().into_bytes();
                self.serve(RESPONDER, move |_| Ok(answer.clone()));
            }
            None => load::publish_address(self.run.path(), node, address)?,
        }
        Ok(())
    }
}

/// A hash of what all parts of a cluster must have alike, because words and records name sites, nodes and movers by their
/// slots, which follow from the first file ([`Cluster::founding`]), and because a node and its movers must agree on whether it runs
/// commands: a part with another one is refused by name. Never 0, which stands for no cluster.
///
/// What a part may know better than others, such as floors, is not in it: it can be changed part by part.
pub(crate) fn identity(cluster: &Cluster) -> u64 {
    let Cluster { name, baseline, founding, .. } = cluster;
    let mut text = format!("{name} {:?} {:?} {founding}", baseline.by, baseline.protocol);
    if cluster.has_commands() {
        text += " with commands";
    }
    let config::Caching { eviction, item_bytes_max, documents, document_memory_mb, .. } = &cluster.cache;
    if *documents {
        text += &format!("\ndocuments {document_memory_mb}");
    }
    text += &format!("\ncaches {eviction} {item_bytes_max}");
    fnv1a(text.as_bytes()).max(1)
}

/// The name of the region with a cache's items.
pub(crate) fn items_region(cache: &str) -> String {
    format!("{cache}.items")
}

/// Asks the parts of a cluster on several machines.
///
/// # Errors
/// As [`secret`].
pub(crate) fn control(cluster: &Cluster) -> Result<Arc<ControlDirectory>, Failure> {
    Ok(Arc::new(ControlDirectory::new(secret(cluster)?, table(cluster))))
}

/// The secret of a cluster on several machines.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn secret(cluster: &Cluster) -> Result<Secret, Failure> {
    read(cluster.secret.as_ref().ok_or_else(|| Failure::new("the cluster has no secret"))?)
}

/// What is where in the memory of a cache that others read.
pub(crate) fn items_map(cluster: &Cluster, peer: &config::CachePeer) -> CacheMap {
    CacheMap::new((peer.memory_mb as usize) << 20, cluster.capacity.caches)
}

/// The control endpoint to ask for each region. Each node, edge and cache exposes its own; one of the nodes exposes the board, too.
pub(crate) fn table(cluster: &Cluster) -> impl Iterator<Item = (String, SocketAddr)> + '_ {
    let nodes = &cluster.nodes;
    let of_node = |node: &config::Node| {
        [load_region(&node.name), words_region(&node.name)].map(|region| (region, node.fabric_listen))
    };
    let term = cluster.standing.board.term;
    let board = cluster.board_holder();
    let board = board.map(|node| (board_region(identity(cluster), term), node.fabric_listen));
    let of_front = |front: &config::Front| {
        let regions = [share_region(&front.name), front_region(&front.name)];
        front.fabric_listen.map(|address| regions.map(|region| (region, address)))
    };
    let fronts = cluster.fronts.values().filter_map(of_front).flatten();
    let of_cache = |peer: &config::CachePeer| Some((items_region(&peer.name), peer.verbs_listen?));
    let caches = cluster.cache.peers.iter().filter_map(of_cache);
    nodes.values().flat_map(of_node).chain(board).chain(fronts).chain(caches)
}

/// The backend that the cluster's parts use, and why.
fn choose(cluster: &Cluster) -> Result<(Backend, String), Failure> {
    let chosen = match (cluster.fabric, &cluster.secret) {
        (config::Fabric::Auto, None) => {
            (Backend::Shm, "fabric shm: all parts share this machine's memory (auto)".to_owned())
        }
        (config::Fabric::Auto, Some(_)) => match verbs(cluster) {
            Ok((backend, device)) => (
                backend,
                format!("fabric verbs: parts are on several machines, and this one has {device} (auto)"),
            ),
            Err(Failure(why)) => {
                (Backend::Tcp, format!("fabric tcp: parts are on several machines, and {why} (auto)"))
            }
        },
        (config::Fabric::Shm, _) => (Backend::Shm, "fabric shm, as configured".to_owned()),
        (config::Fabric::Tcp, _) => {
            (Backend::Tcp, "fabric tcp, as configured: two-sided, the target's CPU answers".to_owned())
        }
        (config::Fabric::Verbs, _) => match verbs(cluster) {
            Ok((backend, device)) => (backend, format!("fabric verbs, as configured, on {device}")),
            Err(Failure(why)) => {
                return Err(Failure::new(format!(
                    "fabric verbs is not available: {why}; fabric tcp also reaches other machines"
                )));
            }
        },
    };
    Ok(chosen)
}

/// The backend on this machine's RDMA device, and the device's description.
///
/// # Errors
/// The reason why it is not available.
fn verbs(cluster: &Cluster) -> Result<(Backend, String), Failure> {
    let config::Verbs { device, port, gid_index, completion, retries } = cluster.verbs.clone();
    let completions = match completion {
        config::Completion::Polling => Completions::Polling,
        config::Completion::Events => Completions::Events,
    };
    let spec = DeviceSpec { device, port, gid_index, completions, retries };
    let device = Device::open(&spec)?;
    let described = device.describe();
    Ok((Backend::Verbs(device), described))
}

fn read(secret: &config::Secret) -> Result<Secret, Failure> {
    Ok(match secret {
        config::Secret::Text(text) => Secret::new(text.reveal().as_bytes())?,
        config::Secret::File(path) => Secret::read(path)?,
    })
}

fn find_responder(directory: &ControlDirectory, node: &str) -> Result<SocketAddr, load::Error> {
    let asked = directory.exchange(&load_region(node), RESPONDER, b"");
    let told = asked.map_err(|source| load::Error::Ask { name: node.to_owned(), source })?;
    let text = String::from_utf8_lossy(&told);
    text.parse().map_err(|_| load::Error::BadAnswer { name: node.to_owned(), text: text.into_owned() })
}

#[cfg(test)]
mod tests {
    use sidelong_config::{CachePeer, ClusterFile, Eviction};

    use super::*;

    #[test]
    fn parts_have_their_caches_alike() {
        let peer = |name: &str, port| CachePeer::new(name, SocketAddr::from(([127, 0, 0, 1], port)));
        let mut file = ClusterFile::demo();
        let mut seen = vec![identity(&file.cluster().unwrap())];
        let mut differs = |file: &ClusterFile| {
            let next = identity(&file.cluster().unwrap());
            let is_new = !seen.contains(&next);
            seen.push(next);
            is_new
        };
        file.cache.peers = vec![peer("c1", 11211), peer("c2", 11212)];
        assert!(differs(&file));
        file.cache.peers[1].name = "c3".into();
        assert!(differs(&file), "a name");
        file.cache.peers.swap(0, 1);
        assert!(differs(&file), "the order");
        file.cache.eviction = Eviction::Lru;
        assert!(differs(&file), "a setting");
        file.cache.item_bytes_max += 1;
        assert!(differs(&file), "another");
        file.cache.peers[0].memory_mb += 1;
        assert!(differs(&file), "the memory, which others read");
        file.cache.peers[0].listen.set_port(11213);
        file.cache.peers[0].fabric_listen = Some(SocketAddr::from(([127, 0, 0, 1], 11214)));
        file.cache.peers[0].clients_max += 1;
        assert!(!differs(&file), "what a cache alone need know");
    }
}
