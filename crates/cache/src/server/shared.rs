//! What the threads of a server have in common, and hand to each other.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::{Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use super::sockets::Stream;
use crate::cache::{Cache, Seconds};
use crate::command::Row;
use crate::counters::Counters;

/// The clients, and figures of them.
#[derive(Debug, Default)]
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
    /// By descriptor.
    all: Vec<Option<Connection>>,
}

/// A socket, as `stats conns` shows it.
#[derive(Debug)]
struct Connection {
    address: String,
    /// Where it was accepted; `None` of one that listens.
    accepted_at: Option<String>,
    heard_at: Seconds,
}

impl Connections {
    /// One more socket, at an address, and where it was accepted unless it listens.
    pub(super) fn add(
        &mut self,
        socket: BorrowedFd<'_>,
        address: String,
        accepted_at: Option<String>,
        now: Seconds,
    ) {
        let at = socket.as_raw_fd() as usize;
        if at >= self.all.len() {
            self.all.resize_with(at + 1, || None);
        }
        self.all[at] = Some(Connection { address, accepted_at, heard_at: now });
    }

    /// A socket is about to be closed.
    pub(super) fn remove(&mut self, socket: BorrowedFd<'_>) {
        self.all[socket.as_raw_fd() as usize] = None;
    }

    /// A client has said something.
    pub(super) fn heard(&mut self, socket: BorrowedFd<'_>, now: Seconds) {
        if let Some(Some(connection)) = self.all.get_mut(socket.as_raw_fd() as usize) {
            connection.heard_at = now;
        }
    }

    /// Each, as memcached shows it. `asker` is the client who asks.
    pub(super) fn show_each(&self, asker: Option<BorrowedFd<'_>>, now: Seconds, row: &mut Row<'_>) {
        let asker = asker.map(|asker| asker.as_raw_fd() as usize);
        for (at, connection) in self.all.iter().enumerate() {
            let Some(Connection { address, accepted_at, heard_at }) = connection else { continue };
            row(&format!("{at}:addr"), address);
            let state = match accepted_at {
                None => "conn_listening",
                Some(_) if asker == Some(at) => "conn_parse_cmd",
                Some(_) => "conn_read",
            };
            if let Some(accepted_at) = accepted_at {
                row(&format!("{at}:listen_addr"), accepted_at);
            }
            row(&format!("{at}:state"), &state);
            row(&format!("{at}:secs_since_last_cmd"), &now.saturating_sub(*heard_at));
        }
    }

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
