//! HTTP/1.1 by hand: the test determines every byte on the wire.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rustix::net::{self, AddressFamily, SocketType};

use crate::PATIENCE;

/// A client's connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    /// Connects from `source`, an address of this machine.
    ///
    /// # Errors
    /// If no connection can be made.
    pub fn connect_from(source: Ipv4Addr, address: SocketAddr) -> io::Result<Self> {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        net::bind(&socket, &SocketAddrV4::new(source, 0))?;
        net::connect(&socket, &address)?;
        Self::new(socket.into())
    }

    /// Connects.
    ///
    /// # Errors
    /// If no connection can be made.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        Self::new(TcpStream::connect_timeout(&address, PATIENCE)?)
    }

    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Its own address.
    pub fn local_address(&self) -> SocketAddr {
        self.stream.get_ref().local_addr().unwrap()
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// Sends a request without a body, on a connection that is kept.
    ///
    /// # Errors
    /// If the connection is closed before the whole reply.
    pub fn ask(&mut self, method: &str, host: &str, path: &str) -> io::Result<Reply> {
        self.send(format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"))?;
        self.reply(method != "HEAD")
    }

    /// The next reply; it has a body unless it answers a HEAD.
    ///
    /// # Errors
    /// If the connection is closed before the whole reply, or nothing comes for too long.
    pub fn reply(&mut self, with_body: bool) -> io::Result<Reply> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status: {head:?}")))?;
        let mut reply = Reply { status, head, body: String::new() };
        let is_chunked = reply.header("transfer-encoding").is_some_and(|coding| coding == "chunked");
        let mut body = Vec::new();
        match reply.header("content-length").map(|length| length.parse::<usize>().unwrap()) {
            _ if !with_body => {}
            _ if is_chunked => self.read_chunks(&mut body)?,
            Some(length) => {
                body.resize(length, 0);
                self.stream.read_exact(&mut body)?;
            }
            None => {
                self.stream.read_to_end(&mut body)?;
            }
        }
        reply.body = String::from_utf8_lossy(&body).into_owned();
        Ok(reply)
    }

    /// Reads a body in chunks without trailers (RFC 9112, section 7.1), as httpd sends one that is longer than its buffer.
    fn read_chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let mut size = String::new();
            self.stream.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            let start = body.len();
            body.resize(start + size, 0);
            self.stream.read_exact(&mut body[start..])?;
            self.stream.read_exact(&mut [0; 2])?;
            if size == 0 {
                return Ok(());
            }
        }
    }

    /// The next bytes of a tunnel.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Sends no more.
    pub fn end(&self) {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    /// Reads until the server closes; returns what it sent until then.
    pub fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                panic!("the server does not close")
            }
            // If the request was not fully read, the close becomes a reset.
            _ => String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
}

/// A server's answer.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// The status line and the fields, as they came.
    pub head: String,
    /// Its body.
    pub body: String,
}

impl Reply {
    /// A header field, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// The node that answered.
    pub fn node(&self) -> &str {
        self.header("x-sidelong-node").unwrap_or_else(|| panic!("of no node: {self:?}"))
    }
}

/// One GET on a connection of its own.
pub fn get(address: SocketAddr, host: &str, path: &str) -> Reply {
    try_get(address, host, path).unwrap_or_else(|error| panic!("{address}: {error}"))
}

/// One GET on a connection of its own.
///
/// # Errors
/// If there is no connection, or no whole reply.
pub fn try_get(address: SocketAddr, host: &str, path: &str) -> io::Result<Reply> {
    let mut client = Client::try_connect(address)?;
    client.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"))?;
    client.reply(true)
}

/// The samples of `/metrics`, by name with labels.
pub fn metrics(admin: SocketAddr) -> BTreeMap<String, f64> {
    let text = get(admin, "metrics", "/metrics").body;
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line:?}"));
        let value = value.parse().unwrap_or_else(|error| panic!("{line:?}: {error}"));
        (name.to_owned(), value)
    };
    samples.map(sample).collect()
}

/// The Sec-WebSocket-Accept for a key (RFC 6455, 4.2.2).
pub fn websocket_accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

/// The next head that a client sends to a server of a test.
///
/// # Errors
/// If the connection is closed before its end.
pub fn read_head(stream: &mut impl io::Read) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    String::from_utf8(head).map_err(io::Error::other)
}
