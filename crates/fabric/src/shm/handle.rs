//! Memory that lies in no file of the run directory: its owner hands the descriptor to whoever asks at a socket beside the
//! region's file, and each peer maps it.
//!
//! The thread that hands it over sleeps until someone asks, and nothing of a peer's reads passes by it. While its process
//! is stopped, who is linked goes on, and who wants to link waits for its own timeout.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};

use crate::key::Token;
use crate::service::{Service, Stop};

/// Peers that ask at a time; those beyond it try again.
const BACKLOG: i32 = 64;
/// After the system ran out of descriptors, say, the next is tried when this has passed.
const PAUSE: Duration = Duration::from_millis(100);

/// Hands out a descriptor until it is dropped.
#[derive(Debug)]
pub(super) struct Counter {
    path: PathBuf,
    _service: Service,
}

impl Counter {
    /// At `path`, in place of what an earlier life left there: the caller sees to it that there is one at a time.
    pub(super) fn open(path: &Path, memory: File) -> io::Result<Counter> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{:032x}.{name}.new", Token::random()?.0));
        at(&temporary, |address| bind(&socket, address))?;
        let listening = listen(&socket, BACKLOG).map_err(io::Error::from);
        // Nobody finds it before it listens.
        let opened = listening.and_then(|()| std::fs::rename(&temporary, path)).inspect_err(|_| {
            let _ = std::fs::remove_file(&temporary);
        });
        opened?;
        let service = Service::start("sidelong-handle", |stop| Ok(move || serve(&socket, &memory, &stop)))?;
        Ok(Counter { path: path.to_owned(), _service: service })
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // Whoever finds it all the same is refused.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(socket: &OwnedFd, memory: &File, stop: &Stop) {
    while !stop.is_said() {
        let mut waiting = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut waiting, None).is_err() || !waiting[0].revents().contains(PollFlags::IN) {
            continue;
        }
        // A stream takes a byte at once or its peer is gone.
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

/// The descriptor that is handed out at `path`; waits for `wait` at most.
pub(super) fn fetch(path: &Path, wait: Duration) -> io::Result<File> {
    let deadline = Instant::now() + wait;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    at(path, |address| connect(&socket, address))?;
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

/// Does something with the address of a socket's file, however long the path to it is: addresses have room for 107 bytes.
fn at(path: &Path, act: impl FnOnce(&SocketAddrUnix) -> rustix::io::Result<()>) -> io::Result<()> {
    if let Ok(address) = SocketAddrUnix::new(path) {
        return Ok(act(&address)?);
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    let here = Path::new("/proc/self/fd").join(std::os::fd::AsRawFd::as_raw_fd(&directory).to_string());
    Ok(act(&SocketAddrUnix::new(here.join(name))?)?)
}
