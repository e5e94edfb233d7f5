//! The initiator's side: links to peers' regions, and batches run over them.

use std::time::{Duration, Instant};

use sidelong_layout::{HEADER_BYTES, HeaderError, RegionHeader, RegionKind};

use crate::control::Secret;
use crate::key::Locator;
use crate::limits::{LINKS_MAX, TIMEOUT_MAX};
use crate::{Access, Batch, Directory, Error, Key, LinkId, OpError, shm, sim, tcp, verbs};

#[derive(Debug)]
struct Slot {
    life: u32,
    /// Of the process that exposed the region when the link was made.
    incarnation: u64,
    link: Link,
}

#[derive(Debug)]
enum Link {
    Shm(shm::ShmLink),
    Tcp(tcp::Link),
    Sim(sim::BatchLink),
    /// By its number among the verbs links.
    Verbs(usize),
    Closed,
}

/// The links of one thread. They are not shared, because queue pairs serve one thread best.
#[derive(Debug, Default)]
pub struct Initiator {
    /// Of which cluster regions must be; 0 for any.
    cluster: u64,
    slots: Vec<Slot>,
    /// Free slots.
    free: Vec<u32>,
    /// Created with the first tcp link.
    tcp: Option<tcp::Links>,
    /// `None` without a device.
    verbs: Option<verbs::Links>,
}

impl Initiator {
    /// An initiator without links.
    pub fn new() -> Self {
        Initiator::default()
    }

    /// Refuses links to regions of another cluster than that (`RegionSpec::cluster`).
    pub fn of_cluster(self, cluster: u64) -> Self {
        Initiator { cluster, ..self }
    }

    /// See [`Initiator::of_cluster`]; 0 where regions may be of any.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// An initiator without links, with a device for verbs links, which it requests with `secret`.
    ///
    /// # Errors
    /// If the device gives no completion queue.
    pub fn with_verbs(device: &verbs::Device, secret: &Secret) -> Result<Self, Error> {
        Ok(Initiator { verbs: Some(verbs::Links::new(device, secret)?), ..Initiator::default() })
    }

    /// Links to the region of `key` and checks its header. Waits for the peer for at most `timeout`.
    ///
    /// # Errors
    /// If the peer cannot be reached, does not know the key, or has another layout.
    pub fn connect(&mut self, key: &Key, timeout: Duration) -> Result<LinkId, Error> {
        if self.slots.len() - self.free.len() >= LINKS_MAX {
            return Err(Error::TooManyLinks { name: key.name.clone() });
        }
        let mut timeout = timeout.min(TIMEOUT_MAX);
        let link = match &key.locator {
            Locator::Shm { run } => Link::Shm(shm::ShmLink::open(run, key, self.cluster, timeout)?),
            Locator::Tcp { address, token } => {
                let deadline = Instant::now() + timeout;
                if self.tcp.is_none() {
                    let made = tcp::Links::new();
                    self.tcp = Some(made.map_err(|source| Error::Connect { address: *address, source })?);
                }
                let link = tcp_links(&mut self.tcp).connect(key, *address, *token, deadline)?;
                timeout = deadline.saturating_duration_since(Instant::now());
                Link::Tcp(link)
            }
            Locator::Verbs { address, token } => {
                let deadline = Instant::now() + timeout;
                let none = || Error::NoVerbs { name: key.name.clone() };
                let links = self.verbs.as_mut().ok_or_else(none)?;
                let link = links.connect(key, *address, *token, deadline)?;
                timeout = deadline.saturating_duration_since(Instant::now());
                Link::Verbs(link)
            }
            Locator::Sim { network, .. } => Link::Sim(sim::BatchLink::new(network.connect(key)?, key.access)),
        };
        let id = self.insert(link);
        let header = self.check_header(id, key, timeout).inspect_err(|_| self.close(id))?;
        self.slots[id.slot as usize].incarnation = header.incarnation;
        Ok(id)
    }

    /// Links to the region `name`, which has one of several `shapes` (kind, length in bytes), and returns the index of
    /// its shape. `guess` is the index to try first, because links are expensive on some backends. Waits for each
    /// attempt for at most `timeout`.
    ///
    /// # Errors
    /// As [`Initiator::connect`]. If the region has none of the shapes, the error tells how it differs from the last.
    pub fn connect_shaped(
        &mut self,
        directory: &dyn Directory,
        name: &str,
        shapes: &[(RegionKind, usize)],
        guess: usize,
        access: Access,
        timeout: Duration,
    ) -> Result<(LinkId, usize), Error> {
        assert!(guess < shapes.len(), "a guess among them");
        let others = (0..shapes.len()).filter(|place| *place != guess);
        let mut tried = Err(Error::NoKey { name: name.to_owned(), place: "no shape".to_owned() });
        for place in std::iter::once(guess).chain(others) {
            let (kind, len) = shapes[place];
            let key = directory.find(name, kind, len, access)?;
            tried = self.connect(&key, timeout).map(|link| (link, place));
            match &tried {
                Err(Error::Header {
                    source: HeaderError::Kind { .. } | HeaderError::Length { .. }, ..
                }) => {}
                _ => break,
            }
        }
        tried
    }

    /// Whether a link leads to the memory that peers would find now. Over shm that is no more so once the region's file was
    /// removed or replaced, or its owner has come back with another cluster file; over other fabrics a link then breaks by
    /// itself.
    pub fn is_current(&self, link: LinkId) -> bool {
        let slot = self.slots.get(link.slot as usize).filter(|slot| slot.life == link.life);
        slot.is_some_and(|slot| match &slot.link {
            Link::Shm(link) => link.is_current(),
            _ => true,
        })
    }

    /// [`Instance::incarnation`](sidelong_layout::Instance::incarnation) of the process that exposed the region when the link was made.
    pub fn incarnation(&self, link: LinkId) -> Option<u64> {
        let slot = self.slots.get(link.slot as usize).filter(|slot| slot.life == link.life);
        slot.map(|slot| slot.incarnation)
    }

    /// Whether the process that exposes the region may be alive. Over shm, where its memory outlives it, the lock on the
    /// region's file tells; over other fabrics a link to a dead process breaks.
    pub fn is_exposed(&self, link: LinkId) -> bool {
        let slot = self.slots.get(link.slot as usize).filter(|slot| slot.life == link.life);
        slot.is_some_and(|slot| match &slot.link {
            Link::Shm(link) => link.is_exposed(),
            _ => true,
        })
    }

    /// Closes a link. Its id is never used again.
    pub fn close(&mut self, link: LinkId) {
        let Some(slot) = self.slots.get_mut(link.slot as usize).filter(|slot| slot.life == link.life) else {
            return;
        };
        slot.life = slot.life.wrapping_add(1);
        self.free.push(link.slot);
        match std::mem::replace(&mut slot.link, Link::Closed) {
            Link::Tcp(link) => tcp_links(&mut self.tcp).close(link),
            Link::Verbs(link) => verbs_links(&mut self.verbs).close(link),
            Link::Shm(_) | Link::Sim(_) | Link::Closed => {}
        }
    }

    /// Runs all operations of `batch` and waits until the last is done, or for `timeout`. The batch holds each
    /// operation's outcome.
    pub fn run(&mut self, batch: &mut Batch, timeout: Duration) {
        let timeout = timeout.min(TIMEOUT_MAX);
        let (mut waiting, mut simulated) = (false, false);
        for index in 0..batch.len() {
            let op = batch.op(index);
            let slot = self.slots.get_mut(op.link.slot as usize).filter(|slot| slot.life == op.link.life);
            let Some(slot) = slot else {
                batch.finish(index, Err(OpError::Closed));
                continue;
            };
            match &mut slot.link {
                Link::Shm(link) => link.execute(batch, index),
                Link::Tcp(link) => {
                    tcp_links(&mut self.tcp).post(*link, batch, index);
                    waiting = true;
                }
                Link::Sim(link) => {
                    link.post(batch, index, timeout);
                    simulated = true;
                }
                Link::Verbs(link) => {
                    verbs_links(&mut self.verbs).post(*link, batch, index);
                    waiting = true;
                }
                Link::Closed => batch.finish(index, Err(OpError::Closed)),
            }
        }
        if simulated {
            self.wait_for_simulated(batch);
        }
        if waiting {
            self.wait(batch, timeout);
        }
    }

    fn wait_for_simulated(&mut self, batch: &mut Batch) {
        for index in 0..batch.len() {
            let link = batch.op(index).link;
            if let Some(Slot { link: Link::Sim(link), .. }) = self.slots.get_mut(link.slot as usize) {
                link.complete(batch);
            }
        }
    }

    fn wait(&mut self, batch: &mut Batch, timeout: Duration) {
        let deadline = self.tcp.as_ref().map(|_| Instant::now() + timeout);
        if let Some(links) = &mut self.verbs {
            links.complete(batch, timeout);
        }
        if let (Some(links), Some(deadline)) = (&mut self.tcp, deadline) {
            links.complete(batch, deadline);
        }
    }

    fn insert(&mut self, link: Link) -> LinkId {
        let Some(free) = self.free.pop() else {
            self.slots.push(Slot { life: 0, incarnation: 0, link });
            return LinkId { slot: self.slots.len() as u32 - 1, life: 0 };
        };
        let slot = &mut self.slots[free as usize];
        slot.link = link;
        LinkId { slot: free, life: slot.life }
    }

    fn check_header(&mut self, link: LinkId, key: &Key, timeout: Duration) -> Result<RegionHeader, Error> {
        let mut batch = Batch::new();
        let read = batch.read(link, 0, HEADER_BYTES);
        self.run(&mut batch, timeout);
        let refused = |reason| Error::Refused { name: key.name.clone(), reason };
        let words = batch.words(read).map_err(refused)?;
        let words = words.try_into().expect("a header is as long as was asked");
        let checked = RegionHeader::checked(words, self.cluster, key.kind, key.len);
        checked.map_err(|source| Error::Header { name: key.name.clone(), source })
    }
}

fn verbs_links(links: &mut Option<verbs::Links>) -> &mut verbs::Links {
    links.as_mut().expect("a verbs link was made by them")
}

fn tcp_links(links: &mut Option<tcp::Links>) -> &mut tcp::Links {
    links.as_mut().expect("a tcp link was made by them")
}
