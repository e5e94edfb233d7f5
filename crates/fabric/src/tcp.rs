//! The two-sided backend: a thread of the target answers over TCP. It works anywhere, and it is honest about what that
//! costs: every operation waits for the target's CPU.
//!
//! | part | what it is |
//! |---|---|
//! | `wire` | frames to bytes and back |
//! | `fifo` | a bounded buffer of bytes |
//! | `session` | the target's half of one connection, without I/O |
//! | `server` | the target's thread: sockets, readiness, time |
//! | `link` | the initiator's half |
//!
//! A connection is for one region. It opens with a hello (versions, name, token), after which requests follow each other
//! without waiting and are answered in their order. The token is the right to the region: whoever reads the traffic
//! has it, so the network between the two is trusted or tunnelled.

mod fifo;
mod link;
mod server;
mod session;
mod wire;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

pub(crate) use link::Links;
pub(crate) use server::{prepare, timespec};

use crate::host::Region;
use crate::inbox::Queue;
use crate::key::{Key, Locator, Token};
use crate::memory::Memory;
use crate::{Error, RegionSpec};

/// Offers regions over TCP. Its thread lives until the host and the last of its regions are dropped.
#[derive(Clone, Debug)]
pub struct TcpHost {
    server: Arc<server::Server>,
    advertised: SocketAddr,
}

impl TcpHost {
    /// Answers at `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// Where the address cannot be had.
    pub fn listen(address: SocketAddr) -> Result<TcpHost, Error> {
        let server = server::Server::start(address).map_err(|source| Error::Listen { address, source })?;
        Ok(TcpHost { advertised: server.address(), server: Arc::new(server) })
    }

    /// Writes `address` into the keys of the regions that are offered from here on, in place of the one it listens on:
    /// for one that listens on all interfaces, or behind an address translation.
    pub fn advertising(self, address: SocketAddr) -> TcpHost {
        TcpHost { advertised: address, ..self }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// How many connections it has turned away or ended: wrong keys, other versions, malformed frames, no hello in
    /// time, too many at once.
    pub fn refused(&self) -> u64 {
        self.server.refused()
    }

    pub(crate) fn offer(
        &self,
        spec: &RegionSpec<'_>,
        inbox: Option<&Arc<Queue>>,
        memory: Memory,
    ) -> Result<Region, Error> {
        let memory = Arc::new(memory);
        let token = Token::random().map_err(|source| Error::Map {
            name: spec.name.to_owned(),
            len: spec.len,
            source,
        })?;
        let inbox = inbox.map_or_else(Weak::new, Arc::downgrade);
        if !self.server.registry().offer(spec.name, token, spec.access, &memory, inbox) {
            return Err(Error::Taken { path: spec.name.into() });
        }
        let key = Key {
            name: spec.name.to_owned(),
            kind: spec.kind,
            len: spec.len,
            access: spec.access,
            locator: Locator::Tcp { address: self.advertised, token },
        };
        Ok(Region::new(memory, key, Arc::clone(&self.server)))
    }
}
