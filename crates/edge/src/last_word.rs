//! The last answers of the door, before it closes a connection.

use std::io;

/// The answer to a client that exceeds a limit.
pub(crate) struct LastWord {
    pub(crate) code: u16,
    pub(crate) text: &'static [u8],
    /// The error that Pingora gets.
    pub(crate) reason: io::ErrorKind,
}

pub(crate) const TOO_LARGE: LastWord = LastWord {
    code: 431,
    text: b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    reason: io::ErrorKind::InvalidData,
};
pub(crate) const TOO_SLOW: LastWord = LastWord {
    code: 408,
    text: b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    reason: io::ErrorKind::TimedOut,
};
pub(crate) const FULL: LastWord = LastWord {
    code: 503,
    text: b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n",
    reason: io::ErrorKind::ConnectionRefused,
};

/// The status codes of all last answers.
pub(crate) const REFUSALS: [u16; 3] = [TOO_SLOW.code, TOO_LARGE.code, FULL.code];
