//! How threads share the connections of clients.

use std::future::{pending, ready};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use sidelong_proxy::{Answer, Failure, Forwarding, Limits, Outcome, Proxy, Refusal, Request, Service, Visit};

const THREADS: u8 = 3;
const CONNECTIONS: usize = 60;

/// A thread, which answers each request with its number.
struct Numbered(u8);

impl Service for Numbered {
    type Visit<'a> = &'a Self;

    fn accepts(&self, _client: SocketAddr) -> bool {
        true
    }

    fn refused(&self, why: Refusal) {
        panic!("{why:?}");
    }

    fn visit(&self, _request: &Request, _client: SocketAddr) -> &Self {
        self
    }
}

impl Visit for &Numbered {
    fn find(&mut self, _request: &Request) -> impl Future<Output = Option<Bytes>> {
        ready(Some(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}", self.0).into()))
    }

    fn admit(&mut self, _request: &Request) -> Result<(), Answer> {
        Ok(())
    }

    fn choose(&mut self) -> impl Future<Output = Option<usize>> {
        ready(None)
    }

    fn sent(&mut self) {}

    fn failed(&mut self, _failure: Failure) {}

    fn answered(&mut self, _status: u16) {}

    fn cut_in(&self) -> Option<Duration> {
        None
    }

    fn cut(&mut self) {}

    fn leave(&mut self) {}

    fn end(self, _request: &Request, _outcome: Outcome) {}
}

/// The number of the thread that serves a connection.
fn thread_of(client: &mut TcpStream) -> usize {
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    let (mut read, mut bytes) = (0, [0; 1024]);
    loop {
        let more = client.read(&mut bytes[read..]).unwrap();
        assert!(more > 0, "the answer was cut");
        read += more;
        if let Some((_, [number])) = bytes[..read].split_last_chunk()
            && bytes[..read - 1].ends_with(b"\r\n\r\n")
        {
            return (number - b'0').into();
        }
    }
}

#[test]
fn each_has_as_many_connections_and_keeps_them() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        header_bytes_max: 1 << 16,
        header_timeout: Duration::from_secs(60),
        body_timeout: Duration::from_secs(60),
        response_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(600),
        connections_max: 2 * CONNECTIONS,
        connections_per_client_max: None,
        body_bytes_max: 0,
        connect_timeout: Duration::from_secs(1),
        retries: 0,
    };
    let proxy = Proxy {
        listener,
        is_handed_over: false,
        tls: None,
        trusted_proxies: Vec::new(),
        servers: Vec::new(),
        proxy_protocol: false,
        forwarding: Forwarding::default(),
        limits,
        is_closing: Default::default(),
    };
    // It ends with the test.
    thread::spawn(move || {
        proxy.run((0..THREADS).map(Numbered).collect(), Duration::ZERO, async || pending().await)
    });
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let first: Vec<_> = clients.iter_mut().map(thread_of).collect();
    for thread in 0..THREADS.into() {
        let share = first.iter().filter(|of| **of == thread).count();
        assert_eq!(share, CONNECTIONS / usize::from(THREADS), "thread {thread} of {first:?}");
    }
    assert_eq!(clients.iter_mut().map(thread_of).collect::<Vec<_>>(), first);
}
