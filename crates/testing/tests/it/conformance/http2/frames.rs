//! HTTP/2 frames by hand (RFC 9113, 4), for what no library sends. Fields are literals without an index (RFC 7541, 6.2.2).

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use sidelong_testing::PATIENCE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
/// `CANCEL`, and the code of no error.
const CANCEL: u32 = 8;

/// Long enough for two packets to be read one by one.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) type Field<'a> = (&'a str, &'a str);

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field block. Names and values have less than 127 bytes.
pub(crate) fn block(fields: &[Field<'_>]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

pub(crate) fn headers(stream: u32, flags: u8, fields: &[Field<'_>]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, stream, &block(fields))
}

pub(crate) fn data(stream: u32, flags: u8, bytes: &str) -> Vec<u8> {
    frame(DATA, flags, stream, bytes.as_bytes())
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

pub(crate) fn continuation(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    frame(CONTINUATION, flags, stream, bytes)
}

/// What the proxy did with the first stream, or with the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reaction {
    /// The field block of an answer.
    Answer(Vec<u8>),
    Reset,
    GoAway,
    Closed,
}

impl Reaction {
    /// It is an answer of 200, entry 8 of the static table.
    pub(crate) fn is_ok(&self) -> bool {
        matches!(self, Reaction::Answer(block) if block.first() == Some(&0x88))
    }

    /// The request was refused as malformed (RFC 9113, 8.1.1): by an error, or with 400.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            // A change of the table's size may come before the status, which is entry 12 of the static table.
            Reaction::Answer(block) => {
                block.iter().find(|byte| **byte & 0xe0 != 0x20).is_some_and(|first| *first == 0x8c)
            }
            _ => true,
        }
    }
}

/// A value that goes into the table under `x`, and as many references to it as make a field block of `bytes` bytes (RFC
/// 7541, 6.1 and 6.2.1).
pub(crate) fn repeated(value_bytes: usize, bytes: usize) -> Vec<u8> {
    // A length of more than 126 has the rest behind the first byte, seven bits at a time.
    let rest = value_bytes - 127;
    let mut block = vec![0x40, 1, b'x', 127, 0x80 | (rest & 127) as u8, (rest >> 7) as u8];
    block.extend(std::iter::repeat_n(b'y', value_bytes));
    // The newest entry is the first behind the static table's 61.
    block.resize(bytes, 0x80 | 62);
    block
}

/// Sends these frames on a connection of their own; returns the reaction to the first stream.
pub(crate) fn react(proxy: SocketAddr, frames: &[u8]) -> Result<Reaction, String> {
    react_to(proxy, &[], frames)
}

/// Sends these frames on a connection of their own, with a pause within the first bytes; returns the reaction to the first
/// stream.
pub(crate) fn react_late(proxy: SocketAddr, frames: &[u8]) -> Result<Reaction, String> {
    react_to(proxy, &PREFACE[..8], frames)
}

fn react_to(proxy: SocketAddr, first: &[u8], frames: &[u8]) -> Result<Reaction, String> {
    let fail = |error: std::io::Error| format!("no reaction: {error}");
    let mut stream = TcpStream::connect_timeout(&proxy, PATIENCE).map_err(fail)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(fail)?;
    stream.set_nodelay(true).map_err(fail)?;
    // The proxy may have closed before it has read all.
    let _ = stream.write_all(first);
    if !first.is_empty() {
        std::thread::sleep(PAUSE);
    }
    let _ = stream.write_all(&[&PREFACE[first.len()..], &frame(SETTINGS, 0, 0, &[]), frames].concat());
    let mut is_spoken = false;
    loop {
        let mut head = [0; 9];
        if let Err(error) = stream.read_exact(&mut head) {
            return match error.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => Err(fail(error)),
                _ if !is_spoken => Err("it does not speak HTTP/2 here".to_owned()),
                _ => Ok(Reaction::Closed),
            };
        }
        let [a, b, c, kind, flags, rest @ ..] = head;
        // The first frame must be this one (RFC 9113, 3.4).
        is_spoken |= kind == SETTINGS;
        if !is_spoken {
            return Err("it does not speak HTTP/2 here".to_owned());
        }
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        if stream.read_exact(&mut payload).is_err() {
            return Ok(Reaction::Closed);
        }
        let id = u32::from_be_bytes(rest);
        match kind {
            SETTINGS if flags & ACK == 0 => _ = stream.write_all(&frame(SETTINGS, ACK, 0, &[])),
            PING if flags & ACK == 0 => _ = stream.write_all(&frame(PING, ACK, 0, &payload)),
            GOAWAY => return Ok(Reaction::GoAway),
            RST_STREAM if id == 1 => return Ok(Reaction::Reset),
            HEADERS if id == 1 => {
                let _ = stream.shutdown(Shutdown::Both);
                return Ok(Reaction::Answer(payload));
            }
            _ => {}
        }
    }
}
