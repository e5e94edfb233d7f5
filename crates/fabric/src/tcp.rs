//! The two-sided backend: a thread of the target answers over TCP. It works anywhere, at a cost that it does not hide:
//! every operation waits for the target's CPU.
//!
//! | part | what it is |
//! |---|---|
//! | `wire` | frames to bytes and back |
//! | `fifo` | a bounded buffer of bytes |
//! | `session` | the target's half of one connection, without I/O |
//! | `server` | the target's thread: sockets, readiness, time |
//! | `link` | the initiator's half |
//!
//! An initiator's links to the regions of one target share a connection. It opens with a hello (versions, and the first
//! region's name and token) and takes claims for further regions. Requests are pipelined and answered in order. The
//! token grants the use of the region, and anyone who reads the traffic learns it. A token that was given to a peer is good
//! from that peer's address alone, but who can change the traffic can speak in its place. So the network between the two must be trusted
//! or tunnelled.

mod fifo;
mod link;
mod server;
mod session;
mod wire;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

#[cfg(fuzzing)]
pub use link::fuzz_link;
pub(crate) use link::{Link, Links};
pub use server::prepare;
pub(crate) use server::timespec;
#[cfg(fuzzing)]
pub use session::fuzz_target;

use crate::access::Token;
use crate::inbox::Queue;
use crate::key::{Key, Locator};
use crate::memory::Memory;
use crate::region::Region;
use crate::{Error, RegionSpec};

/// Exposes regions over TCP. Its thread lives until the host and the last of its regions are dropped.
#[derive(Clone, Debug)]
pub struct TcpHost {
    server: Arc<server::Server>,
    advertised: SocketAddr,
}

impl TcpHost {
    /// Listens at `address`; port 0 picks a free port.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn listen(address: SocketAddr) -> Result<TcpHost, Error> {
        let server = server::Server::start(address).map_err(|source| Error::Listen { address, source })?;
        Ok(TcpHost { advertised: server.address(), server: Arc::new(server) })
    }

    /// Puts `address` into the keys of regions exposed from now on, in place of the address that it listens on. Use it
    /// for a target that listens on all interfaces, or behind address translation.
    pub fn advertising(self, address: SocketAddr) -> TcpHost {
        TcpHost { advertised: address, ..self }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Answers no more for any region.
    pub fn close(&self) {
        self.server.close();
    }

    /// Connections refused or closed for an error: wrong keys, other versions, malformed frames, no hello in time, too
    /// many connections.
    pub fn refused(&self) -> u64 {
        self.server.refused()
    }

    pub(crate) fn expose(
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
        if !self.server.registry().expose(spec.name, token, spec.access, &memory, inbox) {
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
