//! How a data path ends.

use std::future::pending;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use sidelong_proxy::{Address, Listener, Server, Stop};
use tokio::sync::watch;

use crate::support::{Fixed, PATIENCE, proxy};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// Reads until the head of a message has ended, and returns what was read.
fn head(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "cut after {:?}", String::from_utf8_lossy(&read));
        read.extend(byte);
    }
    String::from_utf8(read).unwrap()
}

/// The server takes one request, and answers it once that is asked for.
fn take(server: &TcpListener) -> impl FnOnce() {
    let (mut stream, _) = server.accept().unwrap();
    head(&mut stream);
    move || stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap()
}

#[test]
fn it_closes_its_port_at_once_and_answers_what_is_under_way() {
    let [listener, server] = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let to = Server { address: Address::Socket(server.local_addr().unwrap().into()), http2: false };
    let path = proxy(Listener::Socket(listener), vec![to]);
    let (stop, mut stopped) = watch::channel(false);
    let mut has_stopped = false;
    let until = async move || {
        if std::mem::replace(&mut has_stopped, true) {
            pending::<()>().await;
        }
        stopped.wait_for(|stopped| *stopped).await.unwrap();
        Stop::Graceful
    };
    let service = Fixed { answer: None, server: Some(0), refused: |why| panic!("{why:?}") };
    let ran = thread::spawn(move || path.run(vec![service], PATIENCE, until));

    let mut under_way = TcpStream::connect(address).unwrap();
    under_way.write_all(REQUEST).unwrap();
    let answer = take(&server);
    stop.send(true).unwrap();
    loop {
        match TcpStream::connect(address) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
            // It has come before, and nobody asks anything.
            Ok(_) | Err(_) => thread::yield_now(),
        }
    }
    answer();
    assert!(head(&mut under_way).starts_with("HTTP/1.1 200 "));
    ran.join().unwrap().unwrap();
}

#[test]
fn its_clients_stay_while_another_process_accepts() {
    let [listener, server] = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    let (address, successor) = (listener.local_addr().unwrap(), listener.try_clone().unwrap());
    let to = Server { address: Address::Socket(server.local_addr().unwrap().into()), http2: false };
    let path = proxy(Listener::Socket(listener), vec![to]);
    let (stop, mut stopped) = watch::channel(None);
    let until = async move || {
        stopped.changed().await.unwrap();
        stopped.borrow().unwrap()
    };
    let service = Fixed { answer: None, server: Some(0), refused: |why| panic!("{why:?}") };
    let ran = thread::spawn(move || path.run(vec![service], PATIENCE, until));

    let [mut kept, mut under_way] = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    kept.write_all(REQUEST).unwrap();
    take(&server)();
    assert!(!head(&mut kept).contains("close"));
    under_way.write_all(REQUEST).unwrap();
    let answer = take(&server);
    stop.send(Some(Stop::HandedOver)).unwrap();
    successor.set_nonblocking(true).unwrap();
    loop {
        let _client = TcpStream::connect(address).unwrap();
        thread::sleep(Duration::from_millis(1));
        if successor.accept().is_ok() {
            break;
        }
    }
    kept.write_all(REQUEST).unwrap();
    take(&server)();
    assert!(head(&mut kept).contains("\r\nconnection: close\r\n"), "it is told to go elsewhere");
    assert_eq!(kept.read(&mut [0]).unwrap(), 0);
    assert!(!ran.is_finished());
    answer();
    assert!(head(&mut under_way).starts_with("HTTP/1.1 200 "));
    drop(under_way);
    ran.join().unwrap().unwrap();
}
