//! The sockets of one Unix socket's file.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{major, minor, stat};
use rustix::net::AddressFamily;

use super::Listening;
use super::netlink::{ESTABLISHED, Kernel, LISTEN, word};

/// Of include/uapi/linux/unix_diag.h.
const QUESTION_BYTES: usize = 24;
const SOCKET_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_VFS: u16 = 1;
const UNIX_DIAG_RQLEN: u16 = 4;
/// A bit for each of these attributes.
const SHOW: u32 = 1 << UNIX_DIAG_NAME | 1 << UNIX_DIAG_VFS | 1 << UNIX_DIAG_RQLEN;

/// The sockets of the server at that path now. Who connected there is not known.
///
/// A server may have bound it by another path, such as a relative one. So its sockets are those of the same file, or of that very
/// path: some file systems show other devices than the kernel.
pub(super) fn look(kernel: &mut Kernel, path: &Path) -> io::Result<Listening> {
    let file = stat(path).ok().map(|file| {
        // As in the kernel (include/linux/kdev_t.h).
        [file.st_ino as u32, major(file.st_dev) << 20 | minor(file.st_dev)]
    });
    let mut found = Listening::default();
    kernel.dump(&question(), |message| {
        let socket = Socket::read(message)?;
        if !(socket.file.is_some() && socket.file == file || socket.name == path.as_os_str().as_bytes()) {
            return Some(());
        }
        match socket.state {
            LISTEN => {
                found.sockets += 1;
                // Another server may have had the path before.
                if found.inode == 0 || socket.file == file {
                    found.inode = socket.inode;
                }
                found.queued = found.queued.saturating_add(socket.received);
            }
            // Connections that are not accepted have no inode, and are not shown.
            _ => found.established += 1,
        }
        Some(())
    })?;
    found.established = found.established.saturating_add(found.queued);
    Ok(found)
}

/// A `unix_diag_req` for listening and connected sockets.
fn question() -> [u8; QUESTION_BYTES] {
    let mut question = [0; QUESTION_BYTES];
    let mut put = |at: usize, bytes: &[u8]| question[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[AddressFamily::UNIX.as_raw() as u8]);
    put(4, &(1u32 << ESTABLISHED | 1 << LISTEN).to_ne_bytes());
    put(12, &SHOW.to_ne_bytes());
    question
}

/// One `unix_diag_msg` with its attributes. A connection that was accepted has those of the socket that accepted it; the client's
/// end has none.
#[derive(Default)]
struct Socket<'a> {
    state: u32,
    inode: u32,
    /// The path that it was bound to.
    name: &'a [u8],
    /// Inode and device of the file.
    file: Option<[u32; 2]>,
    /// Of a listening socket its accept queue.
    received: u32,
}

impl<'a> Socket<'a> {
    fn read(message: &'a [u8]) -> Option<Self> {
        let (head, mut attributes) = message.split_first_chunk::<SOCKET_BYTES>()?;
        let mut socket = Socket { state: head[2].into(), inode: word(head, 4), ..Socket::default() };
        while let Some(head) = attributes.first_chunk::<ATTRIBUTE_BYTES>() {
            let [len, kind] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_ne_bytes);
            let value = attributes.get(ATTRIBUTE_BYTES..len.into())?;
            match kind {
                UNIX_DIAG_NAME => socket.name = value.strip_suffix(&[0]).unwrap_or(value),
                UNIX_DIAG_VFS => {
                    socket.file = value.first_chunk::<8>().map(|file| [word(file, 0), word(file, 4)])
                }
                UNIX_DIAG_RQLEN => socket.received = word(value.first_chunk::<8>()?, 0),
                _ => {}
            }
            attributes = attributes.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
        }
        Some(socket)
    }
}
