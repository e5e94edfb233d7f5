//! What the threads of a server have in common, and hand to each other.

use std::io;
use std::mem;
use std::sync::{Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use super::sockets::Stream;
use crate::cache::Cache;
use crate::command::Row;
use crate::counters::Counters;

/// Figures of the clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Connections {
    /// Clients now.
    pub(super) open: u64,
    /// Clients ever accepted.
    pub(super) accepted: u64,
    /// Clients that were told that there are too many.
    pub(super) rejected: u64,
    /// Clients that were let go because they were silent for too long.
    pub(super) idle: u64,
    /// Times that accepting stopped for want of descriptors or memory.
    pub(super) paused: u64,
    pub(super) is_paused: bool,
}

impl Connections {
    /// As memcached names them.
    pub(super) fn show(&self, row: &mut Row<'_>) {
        row("curr_connections", &self.open);
        row("total_connections", &self.accepted);
        row("rejected_connections", &self.rejected);
        row("connection_structures", &self.open);
        row("idle_kicks", &self.idle);
        row("listen_disabled_num", &self.paused);
        row("accepting_conns", &u8::from(!self.is_paused));
    }
}

/// What all threads change.
pub(super) struct Store {
    pub(super) cache: Cache,
    pub(super) counters: Counters,
    pub(super) connections: Connections,
}

pub(super) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("no thread has panicked")
}

/// Clients that the first thread has accepted for another one.
pub(super) struct Handed {
    streams: Mutex<Vec<Stream>>,
    /// Readable while there are any.
    pub(super) bell: OwnedFd,
}

impl Handed {
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Handed { streams: Mutex::default(), bell })
    }

    pub(super) fn give(&self, stream: Stream) -> io::Result<()> {
        locked(&self.streams).push(stream);
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    pub(super) fn take(&self) -> Vec<Stream> {
        // It may have been taken already.
        _ = rustix::io::read(&self.bell, &mut [0; 8]);
        mem::take(&mut *locked(&self.streams))
    }
}
