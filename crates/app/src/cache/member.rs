//! A cache of a cluster file, and which others there are while it runs.

use std::sync::{Arc, Mutex};

use rustix::fs::inotify;
use sidelong_cache::Addresses;
use sidelong_cache::neighbours::Peer;
use sidelong_cache::server::{self, Listener, News, Way};
use sidelong_config::{CachePeer, Cluster};
use sidelong_fabric::RunDirectory;
use sidelong_layout::CacheMap;
use sidelong_policy::cache::homes::Placement;

use super::{SOCKET_MASK, listen, unix_listener};
use crate::fabric::{Exposer, items_map, items_region};
use crate::failure::Failure;
use crate::follower::Follower;
use crate::parts::{self, Parts};
use crate::reload::homes::Entering;
use crate::roster::{self, Place};

/// A cache looks at the roster after so many tenths of a second even if nothing was reported.
const LOOKS_AFTER: u32 = 10;

/// Where a cache of the cluster carries out the others' commands, if they are on one machine.
fn socket(run: &RunDirectory, peer: &CachePeer) -> Way {
    Way::Socket(run.path().join(format!("{}.cache", peer.name)))
}

/// The caches of a cluster by that roster, where `map` and `way` tell how each is reached.
fn caches(
    cluster: &Cluster,
    map: impl Fn(&CachePeer) -> CacheMap,
    way: impl Fn(&CachePeer) -> Option<Way>,
) -> server::Roster {
    let standing = &cluster.standing.caches;
    let names = cluster.caches.map(|peer| peer.name.clone());
    let placement =
        Placement::among(&names, |name| standing.had_share(name), |name| standing.has_share(name));
    let addresses = placement.homes().slots().map(|slot| cluster.caches[slot].listen).collect();
    server::Roster {
        peers: cluster.caches.map(|peer| Peer {
            name: peer.name.clone(),
            region: items_region(&peer.name),
            map: map(peer),
            way: way(peer),
        }),
        placement,
        addresses: Addresses { version: cluster.epoch.max(1), caches: addresses },
    }
}

/// A cache of a cluster file.
pub struct Member {
    pub(super) parts: Parts,
    /// Its slot.
    pub(super) slot: usize,
}

impl Member {
    pub(super) fn find(cluster: Cluster, name: &str) -> Result<Self, Failure> {
        let parts = Parts::new(roster::enter(cluster, name)?)?;
        let slot = parts::find(
            "cache",
            name,
            parts.cluster.caches.entries().map(|(slot, peer)| (slot, &*peer.name)),
        )?;
        Ok(Member { parts, slot })
    }

    /// Where the others connect. `None` if there are none.
    pub(super) fn listener(&self) -> Result<Option<Listener>, Failure> {
        match self.way(self.peer()) {
            Some(Way::Socket(path)) => Ok(Some(Listener::Caches(unix_listener(&path, SOCKET_MASK)?, path))),
            Some(Way::Network { address, secret, cluster }) => {
                Ok(Some(Listener::Network { listener: listen(address)?, secret, cluster }))
            }
            None => Ok(None),
        }
    }

    /// How a cache of the cluster is told what to carry out. `None` if it is alone on a machine of its own.
    fn way(&self, peer: &CachePeer) -> Option<Way> {
        let Some(secret) = self.parts.fabric.secret() else { return Some(socket(&self.parts.run, peer)) };
        let cluster = self.parts.instance().cluster;
        Some(Way::Network { address: peer.fabric_listen?, secret: secret.clone(), cluster })
    }

    /// Where it exposes its memory to the others. `None` if they ask it for items.
    pub(super) fn exposing(&self) -> Result<Option<Exposer>, Failure> {
        let Parts { fabric, began_ms, .. } = &self.parts;
        let listen = if fabric.has_device() { self.peer().verbs_listen } else { None };
        match listen {
            Some(listen) => Ok(Some(fabric.expose(listen, *began_ms)?)),
            None if fabric.shares_memory() => Ok(Some(fabric.expose(self.peer().listen, *began_ms)?)),
            None => Ok(None),
        }
    }

    pub(super) fn peer(&self) -> &CachePeer {
        &self.parts.cluster.caches[self.slot]
    }

    /// The caches of its cluster.
    pub(super) fn caches(&self) -> server::Roster {
        let Parts { cluster, fabric, .. } = &self.parts;
        let map = |peer: &CachePeer| match items_map(cluster, peer) {
            map if fabric.has_device() => map.remote(),
            map => map,
        };
        caches(cluster, map, |peer| self.way(peer))
    }

    /// What tells which caches there are from now on, if that may change.
    pub(super) fn news(&self) -> Option<Box<dyn FnMut() -> News>> {
        if !self.parts.cluster.is_of_one_machine() {
            // Caches of several machines go by the file that they were started with.
            return None;
        }
        let (name, run) = (self.peer().name.clone(), self.parts.run.clone());
        let adopted = Arc::new(Mutex::new(None));
        let take = {
            let adopted = Arc::clone(&adopted);
            move |cluster: Cluster| {
                *adopted.lock().expect("no thread has panicked") = Some(cluster);
                Ok(())
            }
        };
        // It states its epoch in its memory itself, once it is rid of what it keeps no more.
        let mut follower = Follower::new(&name, &self.parts, None, Vec::new(), Box::new(take))?;
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let reports = inotify::init(flags).ok().filter(|reports| follower.report_to(reports).is_ok());
        let mut turn = 0_u32;
        Some(Box::new(move || {
            let is_reported = match &reports {
                Some(reports) => rustix::io::read(reports, &mut [0; 4096]).is_ok(),
                None => true,
            };
            // Of a directory that was removed and made again nothing is reported.
            if is_reported || turn.is_multiple_of(LOOKS_AFTER) {
                follower.look();
            }
            turn = turn.wrapping_add(1);
            let Some(cluster) = adopted.lock().expect("no thread has panicked").take() else {
                return News::Nothing;
            };
            let is_there = cluster.caches.values().any(|peer| peer.name == name);
            if !is_there || cluster.standing.caches.ends(&name) {
                tracing::info!("{name} leaves the cluster, and ends");
                return News::Left;
            }
            News::Roster(caches(&cluster, |peer| items_map(&cluster, peer), |peer| Some(socket(&run, peer))))
        }))
    }

    /// Has it take its share of the keys: to be called once it serves.
    pub(super) fn enter(&self) -> Option<Entering> {
        let cluster = &self.parts.cluster;
        let place = cluster.is_of_one_machine().then(|| Place::new(cluster).ok()).flatten();
        place.map(|place| Entering::start(self.peer().name.clone(), place))
    }
}
