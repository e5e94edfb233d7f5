//! The initiator's side: links to peers' regions, and running batches over them.

use std::time::{Duration, Instant};

use sidelong_layout::{HEADER_BYTES, HeaderError, RegionHeader, RegionKind};

use crate::key::Locator;
use crate::{Access, Batch, Directory, Error, Key, OpError, shm, sim, tcp};
#[cfg(feature = "verbs")]
use crate::{control::Secret, verbs};

/// The longest wait for a batch or a peer, whatever is asked for.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// A link of one [`Initiator`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(test, derive(Default))]
pub struct LinkId {
    slot: u32,
    /// Which link in that slot: the id of a closed link is not that of its successor.
    life: u32,
}

#[derive(Debug)]
struct Slot {
    life: u32,
    link: Link,
}

#[derive(Debug)]
enum Link {
    Shm(shm::ShmLink),
    /// By its number among the tcp links.
    Tcp(usize),
    Sim(sim::BatchLink),
    /// By its number among the verbs links.
    #[cfg(feature = "verbs")]
    Verbs(usize),
    Closed,
}

/// A thread's links. Not shared: a thread that wants to talk makes its own, as queue pairs are best used.
#[derive(Debug, Default)]
pub struct Initiator {
    slots: Vec<Slot>,
    /// Made with the first tcp link.
    tcp: Option<tcp::Links>,
    /// Where it was given a device.
    #[cfg(feature = "verbs")]
    verbs: Option<verbs::Links>,
}

impl Initiator {
    /// Without links.
    pub fn new() -> Self {
        Initiator::default()
    }

    /// Without links, and with a device for those over verbs, which are asked for by `secret`.
    ///
    /// # Errors
    /// Where the device gives no completion queue.
    #[cfg(feature = "verbs")]
    pub fn with_verbs(device: &verbs::Device, secret: &Secret) -> Result<Self, Error> {
        Ok(Initiator { verbs: Some(verbs::Links::new(device, secret)?), ..Initiator::default() })
    }

    /// Links to the region of `key` and checks its header. Waits for the peer for `timeout` at most.
    ///
    /// # Errors
    /// Where the peer cannot be reached, does not know the key, or has another layout.
    pub fn connect(&mut self, key: &Key, timeout: Duration) -> Result<LinkId, Error> {
        let mut timeout = timeout.min(TIMEOUT_MAX);
        let link = match &key.locator {
            Locator::Shm { path } => Link::Shm(shm::ShmLink::open(path, key, timeout)?),
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
            #[cfg(feature = "verbs")]
            Locator::Verbs { address, token } => {
                let deadline = Instant::now() + timeout;
                let reason = "this initiator was given no RDMA device";
                let none = || Error::NoVerbs { name: key.name.clone(), reason };
                let links = self.verbs.as_mut().ok_or_else(none)?;
                let link = links.connect(key, *address, *token, deadline)?;
                timeout = deadline.saturating_duration_since(Instant::now());
                Link::Verbs(link)
            }
            #[cfg(not(feature = "verbs"))]
            Locator::Verbs { .. } => {
                let reason = "this program was built without the feature `verbs`";
                return Err(Error::NoVerbs { name: key.name.clone(), reason });
            }
            Locator::Sim { network, .. } => Link::Sim(sim::BatchLink::new(network.connect(key)?, key.access)),
        };
        let id = self.insert(link);
        self.check_header(id, key, timeout).inspect_err(|_| self.close(id))?;
        Ok(id)
    }

    /// Links to the region `name` for reading, which is of one of `shapes` (kind, length in bytes): which of them is its
    /// owner's to choose, and `guess` the place of the one to try first, as a link is dear on some backends. Waits for each
    /// for `timeout` at most. The shape's place comes with the link.
    ///
    /// # Errors
    /// As [`Initiator::connect`]; where it is of none of them, how it differs from the last.
    pub fn connect_shaped(
        &mut self,
        directory: &dyn Directory,
        name: &str,
        shapes: &[(RegionKind, usize)],
        guess: usize,
        timeout: Duration,
    ) -> Result<(LinkId, usize), Error> {
        assert!(guess < shapes.len(), "a guess among them");
        let others = (0..shapes.len()).filter(|place| *place != guess);
        let mut tried = Err(Error::NoKey { name: name.to_owned(), place: "no shape".to_owned() });
        for place in std::iter::once(guess).chain(others) {
            let (kind, len) = shapes[place];
            let key = directory.find(name, kind, len, Access::ReadOnly)?;
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

    /// Closes a link; its id is not used again.
    pub fn close(&mut self, link: LinkId) {
        let Some(slot) = self.slots.get_mut(link.slot as usize).filter(|slot| slot.life == link.life) else {
            return;
        };
        slot.life = slot.life.wrapping_add(1);
        match std::mem::replace(&mut slot.link, Link::Closed) {
            Link::Tcp(link) => tcp_links(&mut self.tcp).close(link),
            #[cfg(feature = "verbs")]
            Link::Verbs(link) => verbs_links(&mut self.verbs).close(link),
            Link::Shm(_) | Link::Sim(_) | Link::Closed => {}
        }
    }

    /// Runs all operations of `batch` and waits for the last, or for `timeout`. Each one's outcome is in the batch.
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
                #[cfg(feature = "verbs")]
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
        #[cfg(feature = "verbs")]
        if let Some(links) = &mut self.verbs {
            links.complete(batch, timeout);
        }
        if let (Some(links), Some(deadline)) = (&mut self.tcp, deadline) {
            links.complete(batch, deadline);
        }
    }

    fn insert(&mut self, link: Link) -> LinkId {
        let free = self.slots.iter().position(|slot| matches!(slot.link, Link::Closed));
        let slot = free.unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(Slot { life: 0, link: Link::Closed });
        }
        self.slots[slot].link = link;
        LinkId { slot: slot as u32, life: self.slots[slot].life }
    }

    fn check_header(&mut self, link: LinkId, key: &Key, timeout: Duration) -> Result<(), Error> {
        let mut batch = Batch::new();
        let read = batch.read(link, 0, HEADER_BYTES);
        self.run(&mut batch, timeout);
        let refused = |reason| Error::Refused { name: key.name.clone(), reason };
        let words = batch.words(read).map_err(refused)?;
        let words = words.try_into().expect("a header is as long as was asked");
        let checked = RegionHeader::checked(words, key.kind, key.len);
        checked.map(|_| ()).map_err(|source| Error::Header { name: key.name.clone(), source })
    }
}

#[cfg(feature = "verbs")]
fn verbs_links(links: &mut Option<verbs::Links>) -> &mut verbs::Links {
    links.as_mut().expect("a verbs link was made by them")
}

fn tcp_links(links: &mut Option<tcp::Links>) -> &mut tcp::Links {
    links.as_mut().expect("a tcp link was made by them")
}
