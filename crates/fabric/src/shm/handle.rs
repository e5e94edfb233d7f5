//! Hands out the descriptor of memory that is in no file of the run directory. Peers ask for it at a socket beside the
//! region's file, and map it.
//!
//! The thread that hands it out sleeps until a peer asks, and takes no part in a peer's reads. While its process is
//! stopped, linked peers keep reading, and a peer that wants to link waits for its own timeout.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};

use crate::directory::{OpenDirectory, temporary_name};
use crate::service::{Service, Stop};

/// Peers that wait at a time; further ones retry.
const BACKLOG: i32 = 64;
/// Pause after the system ran out of descriptors, for example.
const PAUSE: Duration = Duration::from_millis(100);

/// Hands out a descriptor until it is dropped.
#[derive(Debug)]
pub(super) struct Counter {
    directory: OpenDirectory,
    name: String,
    _service: Service,
}

impl Counter {
    /// Opens the socket `name` in `directory`, in place of one from an earlier life, and returns its file, too. The caller
    /// ensures that there is one at a time.
    pub(super) fn open(directory: OpenDirectory, name: &str, memory: File) -> io::Result<(Counter, File)> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let temporary = temporary_name(name)?;
        bind(&socket, &SocketAddrUnix::new(directory.path_to(&temporary))?)?;
        let listening = directory.make_private(&temporary).and_then(|()| Ok(listen(&socket, BACKLOG)?));
        // Bound under a temporary name, so that no peer finds it before it listens.
        let held = listening.and_then(|()| directory.hold(&temporary));
        let opened = held.and_then(|file| directory.rename(&temporary, name).map(|()| file));
        let file = opened.inspect_err(|_| _ = directory.remove(&temporary))?;
        let service = Service::start("sidelong-handle", |stop| Ok(move || serve(&socket, &memory, &stop)))?;
        Ok((Counter { directory, name: name.to_owned(), _service: service }, file))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // A peer that finds the file all the same is refused.
        let _ = self.directory.remove(&self.name);
    }
}

fn serve(socket: &OwnedFd, memory: &File, stop: &Stop) {
    while !stop.is_said() {
        let mut waiting = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut waiting, None).is_err() || !waiting[0].revents().contains(PollFlags::IN) {
            continue;
        }
        // A stream socket takes one byte at once, or the peer is gone.
        let handed = accept_with(socket, SocketFlags::CLOEXEC).and_then(|peer| hand(&peer, memory));
        if let Err(error) = handed {
            tracing::debug!(%error, "a descriptor was not handed over");
            if !matches!(error, Errno::PIPE | Errno::CONNRESET | Errno::INTR) {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

fn hand(peer: &OwnedFd, memory: &File) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: [BorrowedFd<'_>; 1] = [memory.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "room for one was made");
    sendmsg(peer, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL).map(|_| ())
}

/// The descriptor that is handed out at the socket `name`; waits for at most `wait`.
pub(super) fn fetch(directory: &OpenDirectory, name: &str, wait: Duration) -> io::Result<File> {
    let deadline = Instant::now() + wait;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(directory.path_to(name))?)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "its owner does not answer")),
            Err(Errno::INTR) => {}
            polled => {
                polled?;
                break;
            }
        }
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&socket, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let found = descriptors.next().and_then(|mut descriptors| descriptors.next());
    found.map(File::from).ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "its owner ended"))
}
