//! A client of memcached's text protocol. Every wait is bounded; after an error the connection is of no use.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::deadline::Timed;

/// Longest line of an answer, in bytes.
const LINE_MAX: u64 = 2048;
/// Largest value that is taken, in bytes.
const VALUE_MAX: usize = 1 << 20;

/// A connection to a cache.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<Timed>,
    line: Vec<u8>,
    wait_max: Duration,
}

impl Client {
    /// Connects. It waits for at most `wait_max` for the connection, and for each part of an answer.
    ///
    /// # Errors
    /// If nobody listens there, or the wait was too long, as all that follow.
    pub fn connect(address: SocketAddr, wait_max: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, wait_max)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(wait_max))?;
        Ok(Client { stream: BufReader::new(Timed::new(stream, wait_max)), line: Vec::new(), wait_max })
    }

    /// Asks for all keys at once. Hands those that are there to `take`, with their values.
    ///
    /// # Errors
    /// As [`Client::connect`], and if the answer is none to what was asked.
    pub fn get(&mut self, keys: &[String], mut take: impl FnMut(&str, &[u8])) -> io::Result<()> {
        self.send(format!("get {}\r\n", keys.join(" ")).as_bytes())?;
        loop {
            let line = self.line()?;
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.nth(1).and_then(|bytes| bytes.parse::<usize>().ok())) {
                (Some("END"), None, _) => return Ok(()),
                (Some("VALUE"), Some(key), Some(bytes @ 0..=VALUE_MAX)) => {
                    let mut value = vec![0; bytes + 2];
                    self.stream.get_mut().extend(self.wait_max);
                    self.stream.read_exact(&mut value)?;
                    value.truncate(bytes);
                    take(key, &value);
                }
                _ => return Err(unknown(&line)),
            }
        }
    }

    /// Stores all items, one after the other. Returns how many were stored.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn set(&mut self, items: &[(String, Vec<u8>)]) -> io::Result<usize> {
        let mut commands = Vec::new();
        for (key, value) in items {
            commands.extend_from_slice(format!("set {key} 0 0 {}\r\n", value.len()).as_bytes());
            commands.extend_from_slice(value);
            commands.extend_from_slice(b"\r\n");
        }
        self.send(&commands)?;
        let mut stored = 0;
        for _ in items {
            let line = self.line()?;
            match line.as_str() {
                "STORED" => stored += 1,
                _ if line.starts_with("SERVER_ERROR ") => {}
                _ => return Err(unknown(&line)),
            }
        }
        Ok(stored)
    }

    /// Hands the numbers among the rows of `stats` to `take`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn stats(&mut self, mut take: impl FnMut(&str, u64)) -> io::Result<()> {
        self.send(b"stats\r\n")?;
        loop {
            let line = self.line()?;
            let mut words = line.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("END"), None, _) => return Ok(()),
                (Some("STAT"), Some(name), Some(value)) => {
                    if let Ok(number) = value.parse() {
                        take(name, number);
                    }
                }
                _ => return Err(unknown(&line)),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().stream().write_all(bytes)
    }

    /// The next line, without its end.
    fn line(&mut self) -> io::Result<String> {
        self.line.clear();
        self.stream.get_mut().extend(self.wait_max);
        (&mut self.stream).take(LINE_MAX).read_until(b'\n', &mut self.line)?;
        let line = self.line.strip_suffix(b"\r\n").ok_or(ErrorKind::UnexpectedEof)?;
        Ok(String::from_utf8_lossy(line).into_owned())
    }
}

fn unknown(line: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not an answer to what was asked: {line:?}"))
}
