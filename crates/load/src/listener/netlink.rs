//! Questions to the kernel about sockets (sock_diag(7)), of any family.
//!
//! A dump walks a whole table of the kernel, whatever it asks for: that of listening sockets takes tens of microseconds, that of
//! connections more than a millisecond on a machine with much memory. A look-up takes a few microseconds.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Longest wait for a part of the kernel's answer, which it writes before the request returns.
const ANSWER_MAX: Duration = Duration::from_millis(100);
/// The kernel's parts of an answer are at most this long (include/linux/netlink.h, NLMSG_GOODSIZE and SKB limits).
const PART_BYTES: usize = 1 << 15;

/// States of sockets (include/net/tcp_states.h).
pub(super) const ESTABLISHED: u32 = 1;
pub(super) const LISTEN: u32 = 10;

/// Of include/uapi/linux/netlink.h and sock_diag.h.
pub(super) const HEADER_BYTES: usize = 16;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;

/// A socket to ask with.
#[derive(Debug)]
pub(super) struct Kernel {
    socket: OwnedFd,
    sequence: u32,
    part: Vec<u8>,
}

impl Kernel {
    pub(super) fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_MAX))?;
        Ok(Kernel { socket, sequence: 0, part: vec![0; PART_BYTES] })
    }

    /// Shows the answers to a question, each a socket, to `each`, which returns `None` if one is cut short.
    pub(super) fn dump(
        &mut self,
        question: &[u8],
        mut each: impl FnMut(&[u8]) -> Option<()>,
    ) -> io::Result<()> {
        self.ask(question, NLM_F_REQUEST | NLM_F_DUMP)?;
        while !self.take(&mut each)? {}
        Ok(())
    }

    /// Shows the answer to a question about one socket; none if there is no such socket.
    pub(super) fn look_up(
        &mut self,
        question: &[u8],
        mut each: impl FnMut(&[u8]) -> Option<()>,
    ) -> io::Result<()> {
        self.ask(question, NLM_F_REQUEST)?;
        let mut has_come = false;
        while !has_come {
            let taken = self.take(&mut |message: &[u8]| {
                has_come = true;
                each(message)
            });
            match taken {
                Ok(_) => {}
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// How many questions were asked; it wraps.
    #[cfg(test)]
    pub(super) const fn asked(&self) -> u32 {
        self.sequence
    }

    fn ask(&mut self, question: &[u8], flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(question, flags, self.sequence);
        sendto(&self.socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        Ok(())
    }

    /// Shows each socket of the next part of the answer. Returns whether it is the last part.
    fn take(&mut self, each: &mut impl FnMut(&[u8]) -> Option<()>) -> io::Result<bool> {
        let (_, len) = recv(&self.socket, &mut self.part[..], RecvFlags::TRUNC)?;
        let part = self.part.get(..len).ok_or_else(|| unknown("is too long"))?;
        read_part(part, self.sequence, each)
    }
}

/// The question behind its header.
fn request(question: &[u8], flags: u16, sequence: u32) -> Vec<u8> {
    let mut request = ((HEADER_BYTES + question.len()) as u32).to_ne_bytes().to_vec();
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend(sequence.to_ne_bytes());
    // The port of the kernel.
    request.extend([0; 4]);
    request.extend(question);
    request
}

/// Shows each socket of a part of the answer. Returns whether it is the last part.
fn read_part(mut part: &[u8], sequence: u32, each: &mut impl FnMut(&[u8]) -> Option<()>) -> io::Result<bool> {
    while let Some(header) = part.first_chunk::<HEADER_BYTES>() {
        let len = word(header, 0) as usize;
        let message = part.get(HEADER_BYTES..len).ok_or_else(|| unknown("is cut short"))?;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        // An answer to an earlier request, which was given up.
        if word(header, 8) == sequence {
            match kind {
                NLMSG_DONE => return Ok(true),
                NLMSG_ERROR => {
                    let code = message.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                    return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                }
                _ => each(message).ok_or_else(|| unknown("has a socket that is cut short"))?,
            }
        }
        part = part.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The number at that place, which must be there.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn unknown(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the kernel's answer {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_cut_short_is_an_error() {
        const SOCKET_BYTES: usize = 72;
        let mut whole = vec![0; HEADER_BYTES + SOCKET_BYTES];
        whole[..4].copy_from_slice(&((HEADER_BYTES + SOCKET_BYTES) as u32).to_ne_bytes());
        whole[4] = SOCK_DIAG_BY_FAMILY as u8;
        let mut seen = 0;
        let mut each = |socket: &[u8]| {
            seen += 1;
            (socket.len() == SOCKET_BYTES).then_some(())
        };
        assert!(!read_part(&whole, 0, &mut each).unwrap());
        for len in HEADER_BYTES..whole.len() {
            assert!(read_part(&whole[..len], 0, &mut each).is_err(), "{len}");
        }
        for len in [3, HEADER_BYTES as u32 + 20] {
            whole[..4].copy_from_slice(&len.to_ne_bytes());
            assert!(read_part(&whole, 0, &mut each).is_err());
        }
        assert_eq!(seen, 2);
    }
}
