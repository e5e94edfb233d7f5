//! How threads share the connections of clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::{Fixed, start};

const THREADS: u8 = 3;
const CONNECTIONS: usize = 60;

/// A thread, which answers each request with its number.
fn numbered(thread: u8) -> Fixed {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{thread}");
    Fixed { answer: Some(answer.into()), server: None, refused: |why| panic!("{why:?}") }
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
    let address = start((0..THREADS).map(numbered).collect(), Vec::new());
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let first: Vec<_> = clients.iter_mut().map(thread_of).collect();
    for thread in 0..THREADS.into() {
        let share = first.iter().filter(|of| **of == thread).count();
        assert_eq!(share, CONNECTIONS / usize::from(THREADS), "thread {thread} of {first:?}");
    }
    assert_eq!(clients.iter_mut().map(thread_of).collect::<Vec<_>>(), first);
}
