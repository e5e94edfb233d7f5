//! Streams of requests, pipelined on one connection, through an edge's data path to a server that records what it gets. A
//! strict reader says what the client meant. The server must get nothing else, in the same order, and the client must get
//! the answers to just that: a request that only one of them sees is smuggled.
#![no_main]

mod strict;
#[path = "../../crates/proxy/tests/it/support/mod.rs"]
mod support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;

use libfuzzer_sys::fuzz_target;
use sidelong_os::ServerAddress;
use sidelong_proxy::{Address, Server};
use strict::{Body, Head, find};
use support::Fixed;

/// Ends each stream. An edge gives up a request whose client closes the connection before the answer; that may happen to this
/// one, so it is not compared.
const LAST: &[u8] = b"GET /@last HTTP/1.1\r\nHost: last.test\r\n\r\n";
const TARGET: &str = "/@last";

/// What tells one request from another.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    method: String,
    target: String,
    host: String,
    body: Vec<u8>,
}

fuzz_target!(|bytes: &[u8]| {
    let Some((pieces, stream)) = bytes.split_first() else { return };
    static EDGE: OnceLock<Edge> = OnceLock::new();
    let edge = EDGE.get_or_init(Edge::start);
    let stream = [stream, LAST].concat();
    let (meant, rest) = requests(&stream);
    // The last one is a part of the body of another, which then is the one that may be given up.
    if rest.is_empty() && meant.last().is_some_and(|last| last.target != TARGET) {
        return;
    }
    let answers = edge.send(&stream, usize::from(*pieces) + 1);
    let seen: Vec<(usize, Seen)> = edge.seen.lock().unwrap().try_iter().collect();
    let mut meant = meant.into_iter();
    for (_, seen) in &seen {
        assert!(meant.any(|meant| meant == *seen), "nobody meant {seen:?}");
    }
    assert_eq!(answered(&answers), seen.iter().map(|(number, _)| *number).collect::<Vec<_>>());
});

/// The requests of a stream, as far as they are valid and whole, and what is left.
fn requests(mut stream: &[u8]) -> (Vec<Seen>, &[u8]) {
    let mut requests = Vec::new();
    loop {
        // RFC 9112, 2.2: empty lines before a request are passed over.
        while let Some(rest) = stream.strip_prefix(b"\r\n") {
            stream = rest;
        }
        let Ok(Some((request, len))) = request(stream) else { return (requests, stream) };
        requests.push(request);
        stream = &stream[len..];
    }
}

/// The request that `bytes` begin with, and its length; `None` if it does not end there.
fn request(bytes: &[u8]) -> Result<Option<(Seen, usize)>, &'static str> {
    let Some(head) = Head::read(bytes)? else { return Ok(None) };
    let Some(body) = Body::read(head.framing, &bytes[head.len..])? else { return Ok(None) };
    let line = str::from_utf8(head.line).map_err(|_| "a line that is not text")?;
    let words: Vec<_> = line.split(' ').collect();
    let [method, target, _version] = words[..] else { return Err("a line of other than three words") };
    let hosts: Vec<_> = head.values("host").collect();
    let host = match hosts[..] {
        [] => "",
        [host] => str::from_utf8(host).map_err(|_| "a host that is not text")?,
        _ => return Err("several hosts"),
    };
    // The absolute form names the host itself (RFC 9112, 3.2.2).
    let (host, target) = match target.split_once("://").filter(|_| !target.starts_with('/')) {
        None => (host, target.to_owned()),
        Some((_, rest)) => {
            let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            (host, if path.starts_with('/') { path.to_owned() } else { format!("/{path}") })
        }
    };
    let seen = Seen { method: method.to_owned(), target, host: host.to_ascii_lowercase(), body: body.bytes };
    Ok(Some((seen, head.len + body.len)))
}

/// The numbers of the server's answers among those that the client got.
fn answered(answers: &[u8]) -> Vec<usize> {
    let text = String::from_utf8_lossy(answers).to_ascii_lowercase();
    let numbers = text.lines().filter_map(|line| line.strip_prefix("number: "));
    numbers.map(|number| number.parse().expect("a number of the server's")).collect()
}

/// An edge's data path before one server.
struct Edge {
    address: SocketAddr,
    /// What the server saw, by number.
    seen: Mutex<mpsc::Receiver<(usize, Seen)>>,
}

impl Edge {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("server");
        let server = UnixListener::bind(&socket).unwrap();
        let (sender, seen) = mpsc::channel();
        thread::spawn(move || {
            // Its path is there as long as this runs.
            let _directory = directory;
            for client in server.incoming() {
                let sender = sender.clone();
                thread::spawn(move || serve(client.unwrap(), &sender));
            }
        });
        let service = Fixed { answer: None, server: Some(0), refused: |_| {} };
        let server = Server { address: Address::Socket(ServerAddress::Unix(socket)), http2: false };
        let address = support::start(vec![service], vec![server]);
        Edge { address, seen: Mutex::new(seen) }
    }

    /// Sends a stream in so many pieces, and returns all that comes back.
    fn send(&self, stream: &[u8], pieces: usize) -> Vec<u8> {
        let mut client = TcpStream::connect(self.address).unwrap();
        client.set_nodelay(true).unwrap();
        for piece in stream.chunks(stream.len().div_ceil(pieces)) {
            // It may have been refused already.
            if client.write_all(piece).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Write);
        let mut answers = Vec::new();
        match client.read_to_end(&mut answers) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("no end: {error}"),
            _ => answers,
        }
    }
}

/// Answers requests and says what they were, but for [`LAST`].
fn serve(mut client: UnixStream, seen: &mpsc::Sender<(usize, Seen)>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let mut bytes = Vec::new();
    let mut piece = [0; 1 << 16];
    loop {
        while let Some((request, len)) = request(&bytes).expect("a strict request") {
            let head = Head::read(&bytes).unwrap().unwrap();
            assert!(!head.has_fields_of_hop() && head.values("host").count() == 1, "{request:?}");
            bytes.drain(..len);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let body = if request.method == "HEAD" { "" } else { "ok" };
            let is_last = request.target == TARGET;
            let field = if is_last { String::new() } else { format!("Number: {number}\r\n") };
            if !is_last {
                seen.send((number, request)).unwrap();
            }
            if write!(client, "HTTP/1.1 200 OK\r\n{field}Content-Length: 2\r\n\r\n{body}").is_err() {
                return;
            }
        }
        // Whoever waits for it is to send its body.
        if find(&bytes, b"\r\n\r\n").is_some() && find(&bytes, b"100-continue").is_some() {
            let _ = client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        match client.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend(&piece[..count]),
        }
    }
}
