//! The initiator's side: links to peers' regions, and running batches over them.

use std::time::{Duration, Instant};

use sidelong_layout::{HEADER_BYTES, RegionHeader};

use crate::key::Locator;
use crate::{Batch, Error, Key, OpError, shm, sim, tcp};

/// A link of one [`Initiator`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(u32);

#[derive(Debug)]
enum Link {
    Shm(shm::ShmLink),
    Tcp(tcp::TcpLink),
    Sim(sim::SimLink),
    Closed,
}

/// A thread's links. Not shared: a thread that wants to talk makes its own, as queue pairs are best used.
#[derive(Debug, Default)]
pub struct Initiator {
    links: Vec<Link>,
}

impl Initiator {
    /// Without links.
    pub fn new() -> Self {
        Initiator::default()
    }

    /// Links to the region of `key` and checks its header. Waits for the peer for `timeout` at most.
    ///
    /// # Errors
    /// Where the peer cannot be reached, does not know the key, or has another layout.
    pub fn connect(&mut self, key: &Key, timeout: Duration) -> Result<LinkId, Error> {
        let link = match &key.locator {
            Locator::Shm { path } => Link::Shm(shm::ShmLink::open(path, key)?),
            Locator::Tcp { .. } => Link::Tcp(tcp::TcpLink::connect(key, timeout)?),
            Locator::Sim { .. } => Link::Sim(sim::SimLink::connect(key)?),
        };
        let id = LinkId(self.links.len() as u32);
        self.links.push(link);
        if let Err(error) = self.check_header(id, key, timeout) {
            self.links.pop();
            return Err(error);
        }
        Ok(id)
    }

    /// Closes a link; its id is not used again.
    pub fn close(&mut self, link: LinkId) {
        self.links[link.0 as usize] = Link::Closed;
    }

    /// Runs all operations of `batch` and waits for the last, or for `timeout`. Each one's outcome is in the batch.
    pub fn run(&mut self, batch: &mut Batch, timeout: Duration) {
        let mut waiting = false;
        for index in 0..batch.len() {
            let link = batch.op(index).link;
            match &mut self.links[link.0 as usize] {
                Link::Shm(link) => link.execute(batch, index),
                Link::Tcp(link) => {
                    link.post(batch, index);
                    waiting = true;
                }
                Link::Sim(link) => {
                    link.post(batch, index);
                    waiting = true;
                }
                Link::Closed => batch.finish(index, Err(OpError::Closed)),
            }
        }
        if waiting {
            self.wait(batch, timeout);
        }
    }

    fn wait(&mut self, batch: &mut Batch, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        sim::complete(self.links.iter_mut().filter_map(Link::as_sim), batch, timeout);
        tcp::complete(self.links.iter_mut().filter_map(Link::as_tcp), batch, deadline);
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

impl Link {
    fn as_tcp(&mut self) -> Option<&mut tcp::TcpLink> {
        if let Link::Tcp(link) = self { Some(link) } else { None }
    }

    fn as_sim(&mut self) -> Option<&mut sim::SimLink> {
        if let Link::Sim(link) = self { Some(link) } else { None }
    }
}
