//! A socket of the run directory, at which a process hands open files to others of its user.
//!
//! A lock (flock(2)) belongs to an open file. Handed over, it is held until the last process that has the file ends.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};

use crate::RunDirectory;
use crate::directory::temporary_name;
use crate::service::{Service, Stop};

/// Peers that wait at a time; further ones retry.
const BACKLOG: i32 = 64;
/// Pause after the system ran out of descriptors, for example.
const PAUSE: Duration = Duration::from_millis(100);
/// Most files in a message.
pub const FILES_MAX: usize = 8;

/// Answers whoever comes, until it is dropped.
#[derive(Debug)]
pub struct Door {
    run: RunDirectory,
    name: String,
    /// The socket's file.
    file: File,
    _service: Service,
}

impl Door {
    /// Opens the socket `name` in the run directory, in place of one from an earlier life. A thread answers one peer after the other. The
    /// caller ensures that there is one at a time.
    ///
    /// # Errors
    /// If the socket or the thread cannot be made.
    pub fn open(
        run: &RunDirectory,
        name: &str,
        answer: impl FnMut(UnixStream) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Door> {
        let directory = run.enter()?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let temporary = temporary_name(name)?;
        bind(&socket, &SocketAddrUnix::new(directory.path_to(&temporary))?)?;
        let listening = directory.make_private(&temporary).and_then(|()| Ok(listen(&socket, BACKLOG)?));
        // Bound under a temporary name, so that no peer finds it before it listens.
        let held = listening.and_then(|()| directory.hold(&temporary));
        let opened = held.and_then(|file| directory.rename(&temporary, name).map(|()| file));
        let file = opened.inspect_err(|_| _ = directory.remove(&temporary))?;
        let service = Service::start("sidelong-door", |stop| Ok(move || serve(&socket, answer, &stop)))?;
        Ok(Door { run: run.clone(), name: name.to_owned(), file, _service: service })
    }

    /// The socket's file, which tells what becomes of it.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // A peer that finds the file all the same is refused. Another process may have a socket of that name now.
        if let Ok(directory) = self.run.enter()
            && directory.is_name_of(&self.name, &self.file)
        {
            let _ = directory.remove(&self.name);
        }
    }
}

fn serve(socket: &OwnedFd, mut answer: impl FnMut(UnixStream) -> io::Result<()>, stop: &Stop) {
    while !stop.is_said() {
        let mut waiting = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut waiting, None).is_err() || !waiting[0].revents().contains(PollFlags::IN) {
            continue;
        }
        let accepted = accept_with(socket, SocketFlags::CLOEXEC).map_err(io::Error::from);
        if let Err(error) = accepted.and_then(|peer| answer(peer.into())) {
            tracing::debug!(%error, "a peer was not answered");
            if ![ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::Interrupted]
                .contains(&error.kind())
            {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Connects to the [`Door`] of that name.
///
/// # Errors
/// `NotFound` or `ConnectionRefused` if there is none.
pub fn knock(run: &RunDirectory, name: &str) -> io::Result<UnixStream> {
    // A blocking connect would wait for a process that no longer accepts.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(run.enter()?.path_to(name))?)?;
    let peer = UnixStream::from(socket);
    peer.set_nonblocking(false)?;
    Ok(peer)
}

/// Hands files over, with a text of at least one byte.
///
/// # Errors
/// If the peer has gone.
///
/// # Panics
/// If there are more than [`FILES_MAX`].
pub fn hand(peer: impl AsFd, text: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fits = files.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(files));
    assert!(fits, "at most {FILES_MAX} files are handed over at once");
    // A stream socket takes some bytes at once, or the peer is gone.
    match sendmsg(peer, &[IoSlice::new(text)], &mut ancillary, SendFlags::NOSIGNAL)? {
        sent if sent == text.len() => Ok(()),
        _ => Err(ErrorKind::WriteZero.into()),
    }
}

/// Takes what a peer hands over within `wait`: its text, as far as `text` has room, and the files.
///
/// # Errors
/// If nothing comes in time, or the peer has gone.
pub fn take(peer: impl AsFd, text: &mut [u8], wait: Duration) -> io::Result<(&[u8], Vec<OwnedFd>)> {
    let deadline = Instant::now() + wait;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&peer, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::Error::new(ErrorKind::TimedOut, "its owner does not answer")),
            Err(Errno::INTR) => {}
            polled => {
                polled?;
                break;
            }
        }
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(&peer, &mut [IoSliceMut::new(text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = files.flatten().collect();
    if received.bytes == 0 {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "its owner ended"));
    }
    Ok((&text[..received.bytes], files))
}
