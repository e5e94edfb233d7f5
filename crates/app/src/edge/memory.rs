//! The memory that an edge, or another front, exposes to others while it lives.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sidelong_config::Capacity;
use sidelong_edge::{ConfigState, expose_share};
use sidelong_fabric::door::Door;
use sidelong_fabric::{Region, RunDirectory};
use sidelong_layout::ShareMap;
use sidelong_reconfig::expose_front;

use crate::fabric::Exposer;
use crate::failure::Failure;
use crate::follower::{Follower, Take};
use crate::handover::{self, Before, Estate, Locks};
use crate::part::Shutdown;
use crate::parts::Parts;
use crate::regions::Guard;
use crate::roster;

/// How long a front that leaves stays to be asked, after its last request.
const FAREWELL: Duration = Duration::from_secs(5);

/// The memory that an edge, or another front, exposes to others while it lives.
pub(crate) struct Memory {
    /// `None` if it has nothing to expose.
    pub(crate) exposer: Option<Exposer>,
    /// The share that other fronts read, if there are any.
    pub(super) share: Option<Region>,
    /// What it states as a front, for other movers.
    pub(crate) front: Option<Region>,
    /// Holds the board as well.
    guard: Option<Guard>,
}

impl Memory {
    /// Exposes it, by the `locks` of a process that has handed it over, if there is one. It is to be guarded.
    pub(crate) fn expose(parts: &Parts, slot: usize, locks: HashMap<String, File>) -> Result<Self, Failure> {
        let member = &parts.cluster.fronts[slot];
        // On one machine others may join.
        let is_alone = parts.cluster.fronts.len() == 1 && !parts.cluster.has_roster();
        let shares = !is_alone && parts.shares(member);
        // A person may move nodes, too.
        let states = parts.shares(member);
        if !states && !parts.fabric.shares_memory() {
            return Ok(Memory { exposer: None, share: None, front: None, guard: None });
        }
        let any_port = SocketAddr::new(member.host, 0);
        let listen = member.fabric_listen.unwrap_or(any_port);
        let exposer = parts.fabric.expose_by(locks, listen, parts.began_ms)?;
        let share = match shares {
            false => None,
            true => {
                let Capacity { nodes, sites, .. } = parts.cluster.capacity;
                let map = ShareMap { slots: nodes.max(sites) };
                let share = expose_share(&exposer.host, &member.name, map, parts.instance())?;
                exposer.publish(share.key())?;
                Some(share)
            }
        };
        let front = match states {
            false => None,
            true => {
                let nodes = parts.cluster.capacity.nodes;
                let front = expose_front(&exposer.host, &member.name, nodes, parts.instance())?;
                exposer.publish(front.key())?;
                Some(front)
            }
        };
        Ok(Memory { exposer: Some(exposer), share, front, guard: None })
    }

    /// Guards it: if some of it is lost, the part ends. Has the part follow the roster, too, with `take`. Returns whether the part has begun by the
    /// newest one.
    pub(crate) fn guard(
        &mut self,
        parts: &Parts,
        slot: usize,
        (take, before): (Take, Option<Arc<Before>>),
        shutdown: &Shutdown,
    ) -> Result<bool, Failure> {
        let Some(exposer) = &self.exposer else { return Ok(true) };
        // In shared memory the first process creates the board; otherwise it is a node's.
        let board = match parts.fabric.shares_memory() {
            false => None,
            true => Some(parts.expose_board(&exposer.host)?),
        };
        let own = self.share.iter().chain(&self.front).cloned().collect();
        let name = &parts.cluster.fronts[slot].name;
        let stated = self.front.iter().cloned().collect();
        // Whoever has changed the roster since has had the process before go by it, and this one takes it over.
        let may_be_old = before.is_none();
        let follower = Follower::new(name, parts, Some(exposer), stated, take);
        let follower = follower.map(|follower| follower.after(before));
        if may_be_old && !roster::is_newest(&parts.cluster, &parts.run) {
            return Ok(false);
        }
        let lost = shutdown.clone();
        self.guard = Some(Guard::start(own, board, parts.board_anew(), follower, move || lost.finish())?);
        Ok(true)
    }

    /// Lets another process of this machine take over `estate`, and with it this memory, until the returned value is dropped; `None` if
    /// none can ask for it.
    pub(super) fn open_door(&self, run: &RunDirectory, edge: &str, estate: Estate) -> Option<Door> {
        let Estate { close, .. } = estate;
        let exposer = self.exposer.as_ref().filter(|exposer| exposer.hands_over());
        let closer = exposer.map(Exposer::closer);
        let close = Box::new(move || {
            close();
            closer.iter().for_each(|close| close());
        });
        let regions = self.share.iter().chain(&self.front).cloned().collect();
        let locks = exposer.map(|exposer| Box::new(exposer.locks(regions)) as Locks);
        let door = handover::open(run, edge, Estate { locks, close, ..estate });
        door.inspect_err(|error| tracing::warn!("no other process can take over from this one: {error}")).ok()
    }

    /// Ends, with the part's requests. If the part leaves the cluster, who has had it leave hears first that nothing is left of it: on
    /// several machines nobody could tell later.
    ///
    /// # Errors
    /// If some of it was lost.
    pub(crate) fn end(self, config: &ConfigState) -> Result<(), Failure> {
        if config.end() && self.exposer.as_ref().is_some_and(Exposer::is_far) {
            std::thread::sleep(FAREWELL);
        }
        self.guard.as_ref().map_or(Ok(()), Guard::result)
    }
}
