//! A simulated network in virtual time.
//!
//! Delays, losses, crashes, and operations that take effect after their initiator gave up are all drawn from a seed. The
//! same seed and the same calls give the same run.
//!
//! It has two interfaces. A [`Host::Sim`] and an [`Initiator`] use it like any backend: [`Initiator::run`] advances virtual
//! time until the batch is done. A discrete-event simulation with many actors instead posts single operations
//! ([`Network::post`]), sets timers ([`Network::wake_at`]), and takes one event after the other ([`Network::next`]).
//! Both may be mixed: an event that falls due while a batch runs is returned later, in order and with its own time. The
//! caller bounds the operations and timers in flight by what it posts and sets. What others do while a batch runs is told by
//! [`Network::meanwhile`].
//!
//! The guarantees:
//! - Operations of one link take effect and are answered in the order in which they were posted. Those of different links
//!   do so in any order. A torn read ends taking effect later than those that follow it.
//! - A lost operation loses all later ones of its link until it has been reported, so that a stalled link does not overtake
//!   itself.
//! - Every operation is reported once, by its deadline. At the deadline the report is [`OpError::Timeout`], and the
//!   operation may have taken effect, or may yet.
//! - A crash destroys a host's memory and what is in flight to it. Whether the peers are told ([`OpError::PeerGone`]) is
//!   drawn. After the restart their links and keys are rejected ([`OpError::KeyRejected`]).
//!
//! [`Host::Sim`]: crate::Host::Sim
//! [`Initiator`]: crate::Initiator
//! [`Initiator::run`]: crate::Initiator::run

mod keys;
mod network;
mod world;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use keys::Keys;
pub use network::{Event, Faults, Network, Ticket};
use world::{Face, Place};

use crate::batch::{Kind, Request};
use crate::inbox::Queue;
use crate::key::{Key, Locator};
use crate::memory::Memory;
use crate::{Access, Batch, Error, Inbox, OpError, Region, RegionSpec};

/// An operation to post, as in [`Batch`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "as the parameters of Batch's methods")]
pub enum Op {
    Read { offset: usize, len: usize },
    Write { offset: usize, words: Vec<u64> },
    CompareAndSwap { offset: usize, expected: u64, new: u64 },
    FetchAndAdd { offset: usize, add: u64 },
}

impl Network {
    /// The machine of that name, which is created if it does not exist.
    pub fn host(&self, name: &str) -> SimHost {
        SimHost { network: self.clone(), host: self.world().host(name) }
    }

    /// Crashes a host: it loses its memory, and what is in flight to it. Its owner's [`Region`]s leave the network.
    pub fn crash(&self, host: &SimHost) {
        self.world().crash(host.host);
    }

    /// As [`Network::crash`], but at a given time, for example in the middle of a batch.
    pub fn crash_at(&self, at: Duration, host: &SimHost) {
        self.world().crash_at(at, host.host);
    }

    /// Lets a crashed host expose regions again.
    pub fn restart(&self, host: &SimHost) {
        self.world().restart(host.host);
    }

    /// Links to the region of `key`, for [`Network::post`], without asking the target.
    ///
    /// # Errors
    /// If the key belongs to another network.
    pub fn connect(&self, key: &Key) -> Result<SimLink, Error> {
        match &key.locator {
            Locator::Sim { network, region, token } if network == self => {
                let link = self.world().connect(*region, *token);
                Ok(SimLink { network: self.clone(), link })
            }
            _ => Err(Error::OtherNetwork { name: key.name.clone() }),
        }
    }

    /// Posts one operation now. An event reports its end, by its deadline at the latest.
    pub fn post(&self, link: &SimLink, op: Op, timeout: Duration) -> Ticket {
        let request = |kind, offset, len| Request { kind, offset, len };
        let (request, words) = match op {
            Op::Read { offset, len } => (request(Kind::Read, offset, len), Vec::new()),
            Op::Write { offset, words } => (request(Kind::Write, offset, size_of_val(&*words)), words),
            Op::CompareAndSwap { offset, expected, new } => {
                (request(Kind::CompareAndSwap { expected, new }, offset, 8), Vec::new())
            }
            Op::FetchAndAdd { offset, add } => (request(Kind::FetchAndAdd { add }, offset, 8), Vec::new()),
        };
        self.world().post(link.link, request, words, timeout, Face::Events)
    }

    /// Prepares reads to be posted together with [`Network::post_gather`]: `len` bytes at `offset` of each key.
    ///
    /// # Errors
    /// If a key belongs to another network.
    pub fn gather<'a>(
        &self,
        reads: impl IntoIterator<Item = (&'a Key, usize, usize)>,
    ) -> Result<Gather, Error> {
        let world = self.world();
        let place = |(key, offset, len): (&Key, usize, usize)| match &key.locator {
            Locator::Sim { network, region, token } if network == self => {
                Ok(world.place(*region, *token, Request { kind: Kind::Read, offset, len }))
            }
            _ => Err(Error::OtherNetwork { name: key.name.clone() }),
        };
        let places = reads.into_iter().map(place).collect::<Result<_, _>>()?;
        Ok(Gather { network: self.clone(), places })
    }

    /// Posts all reads of `gather` as one operation. They share one fate and one delay, and read at one moment. This
    /// way a scan of thousands of nodes costs the simulation a fraction of a microsecond a node, not microseconds. One
    /// event reports all words in order, or the error of the first read that failed.
    pub fn post_gather(&self, gather: &Gather, timeout: Duration) -> Ticket {
        assert!(gather.network == *self, "a gather of this network");
        self.world().post_gather(&gather.places, timeout)
    }
}

/// Reads that are posted together repeatedly; see [`Network::gather`].
#[derive(Clone, Debug)]
pub struct Gather {
    network: Network,
    places: Arc<[Place]>,
}

/// A simulated machine. Clones are the same machine.
#[derive(Clone, Debug)]
pub struct SimHost {
    network: Network,
    host: usize,
}

impl SimHost {
    pub(crate) fn expose(
        &self,
        spec: &RegionSpec<'_>,
        inbox: Option<&Arc<Queue>>,
        memory: Memory,
    ) -> Result<Region, Error> {
        let memory = Arc::new(memory);
        let inbox = inbox.map_or_else(Weak::new, Arc::downgrade);
        let exposed = self.network.world().expose(self.host, spec.name, spec.access, &memory, inbox);
        let (region, token) = exposed.ok_or_else(|| Error::Taken { path: spec.name.into() })?;
        let key = Key {
            name: spec.name.to_owned(),
            kind: spec.kind,
            len: spec.len,
            access: spec.access,
            locator: Locator::Sim { network: self.network.clone(), region, token },
        };
        Ok(Region::new(memory, key, ()))
    }

    pub(crate) fn inbox(&self, queue: Arc<Queue>) -> Inbox {
        Inbox::simulated(queue, self.network.clone())
    }
}

/// A link for [`Network::post`].
#[derive(Debug)]
pub struct SimLink {
    network: Network,
    link: u64,
}

impl Drop for SimLink {
    fn drop(&mut self) {
        self.network.world().close(self.link);
    }
}

/// An initiator's link: posts the operations of a batch and waits for them.
#[derive(Debug)]
pub(crate) struct BatchLink {
    link: SimLink,
    /// The key's rights.
    access: Access,
    /// Posted operations not yet collected, with their indexes in the batch.
    posted: VecDeque<(usize, Ticket)>,
}

impl BatchLink {
    pub(crate) fn new(link: SimLink, access: Access) -> Self {
        BatchLink { link, access, posted: VecDeque::new() }
    }

    pub(crate) fn post(&mut self, batch: &mut Batch, index: usize, timeout: Duration) {
        let request = batch.op(index).request;
        if !request.kind.is_granted(self.access) {
            return batch.finish(index, Err(OpError::ReadOnly));
        }
        let words = if request.kind.carries() { batch.buffer(index).to_vec() } else { Vec::new() };
        let ticket = self.link.network.world().post(self.link.link, request, words, timeout, Face::Batch);
        self.posted.push_back((index, ticket));
    }

    /// Advances time until all posted operations have ended.
    pub(crate) fn complete(&mut self, batch: &mut Batch) {
        for (index, ticket) in self.posted.drain(..) {
            let outcome = self.link.network.wait(ticket);
            let outcome = outcome.map(|words| batch.buffer_mut(index).copy_from_slice(&words));
            batch.finish(index, outcome);
        }
    }
}
