//! Requests that last, such as WebSockets, streams and uploads: a server that answers them, and clients that see whether one is cut.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use h2::client::SendRequest;
use tokio::runtime::Runtime;

use crate::PATIENCE;
use crate::http::{Client, read_head, websocket_accept};
use crate::steady_load::Attempt;

/// A WebSocket's key, and what the protocol makes of it (RFC 6455, 1.3).
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// A pause between parts of what lasts.
const PAUSE: Duration = Duration::from_millis(10);
/// Parts of a stream, an upload or a chat that ends by itself, and what each is.
const PARTS: usize = 8;
const PART: &[u8] = b"data: tick\n";

/// What a server has in hand.
#[derive(Default, Debug)]
pub struct Server {
    lasting: AtomicUsize,
    answered: AtomicUsize,
    was_slow: AtomicBool,
}

impl Server {
    /// One at `address` until the test's process ends, which is called `name` in its answers. It shows the head of each request to `look`.
    pub fn start(name: &str, address: SocketAddr, look: impl Fn(&str) + Send + Sync + 'static) -> Arc<Self> {
        let server = Arc::new(Server::default());
        let listener = TcpListener::bind(address).unwrap();
        let (serving, name, look) = (Arc::clone(&server), Arc::<str>::from(name), Arc::new(look));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (server, name, look) = (Arc::clone(&serving), Arc::clone(&name), Arc::clone(&look));
                std::thread::spawn(move || server.serve(stream, &name, &*look));
            }
        });
        server
    }

    /// Requests that last, which it has in hand.
    pub fn lasting(&self) -> usize {
        self.lasting.load(Ordering::SeqCst)
    }

    /// Requests that it has got.
    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    /// Leaves no request for `/slow` without an answer from now on; it does so once.
    pub fn is_slow_no_more(&self) {
        self.was_slow.store(true, Ordering::SeqCst);
    }

    fn serve(&self, mut stream: TcpStream, name: &str, look: &dyn Fn(&str)) -> Option<()> {
        loop {
            let head = read_head(&mut stream).ok()?;
            look(&head);
            self.answered.fetch_add(1, Ordering::SeqCst);
            let field = |name: &str| {
                let mut fields = head.lines().filter_map(|line| line.split_once(": "));
                fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
            };
            let last = |work: &mut dyn FnMut() -> Option<()>| {
                self.lasting.fetch_add(1, Ordering::SeqCst);
                let done = work();
                self.lasting.fetch_sub(1, Ordering::SeqCst);
                done
            };
            if let Some(key) = field("sec-websocket-key") {
                let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket";
                let accept = websocket_accept(key);
                let head = format!("{switch}\r\nserver: {name}\r\nsec-websocket-accept: {accept}\r\n\r\n");
                stream.write_all(head.as_bytes()).ok()?;
                return last(&mut || loop {
                    echo(&mut stream)?;
                });
            }
            let is_endless = head.starts_with("GET /events ");
            if is_endless || head.starts_with("GET /ticks ") {
                let fields = "content-type: text/event-stream\r\ntransfer-encoding: chunked";
                let head = format!("HTTP/1.1 200 OK\r\nserver: {name}\r\n{fields}\r\n\r\n");
                stream.write_all(head.as_bytes()).ok()?;
                let chunk = [format!("{:x}\r\n", PART.len()).as_bytes(), PART, b"\r\n"].concat();
                let mut left = if is_endless { usize::MAX } else { PARTS };
                last(&mut || {
                    while left > 0 {
                        stream.write_all(&chunk).ok()?;
                        std::thread::sleep(PAUSE);
                        left -= 1;
                    }
                    stream.write_all(b"0\r\n\r\n").ok()
                })?;
                continue;
            }
            if head.starts_with("GET /slow ") && !self.was_slow.swap(true, Ordering::SeqCst) {
                // Until the edge closes the connection.
                return last(&mut || stream.read_exact(&mut [0]).ok());
            }
            let mut body = vec![0; field("content-length").map_or(Some(0), |length| length.parse().ok())?];
            if !body.is_empty() {
                last(&mut || stream.read_exact(&mut body).ok())?;
            }
            let answer = if body.is_empty() { name.to_owned() } else { body.len().to_string() };
            let length = answer.len();
            let answer =
                format!("HTTP/1.1 200 OK\r\nserver: {name}\r\ncontent-length: {length}\r\n\r\n{answer}");
            stream.write_all(answer.as_bytes()).ok()?;
        }
    }
}

/// Answers one frame of a client by the same frame of a server; `None` at the end.
fn echo(stream: &mut TcpStream) -> Option<()> {
    let mut head = [0; 6];
    stream.read_exact(&mut head).ok()?;
    let [first, length, mask @ ..] = head;
    assert!(length > 0x80 && length < 0x80 + 126, "short, and masked as a client's");
    let mut data = vec![0; usize::from(length & 0x7f)];
    stream.read_exact(&mut data).ok()?;
    data.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    stream.write_all(&[&[first, length & 0x7f][..], &data].concat()).ok()?;
    // Of the opcodes 8 closes.
    (first & 0xf != 8).then_some(())
}

/// A frame of a client, of that opcode.
pub fn frame(opcode: u8, text: &str) -> Vec<u8> {
    let mask = [7, 77, 177, 27];
    let masked = text.bytes().zip(mask.into_iter().cycle()).map(|(byte, mask)| byte ^ mask);
    [0x80 | opcode, 0x80 | text.len() as u8].into_iter().chain(mask).chain(masked).collect()
}

/// A request over HTTP/1.1 for `host` at `edge`, of which the head of the answer has come, and the server that has it.
///
/// # Errors
/// If there is no such answer.
pub fn begin(edge: SocketAddr, host: &str, path: &str, fields: &str) -> io::Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(edge)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n").as_bytes())?;
    let head = read_head(&mut stream)?;
    let node = head.lines().find_map(|line| line.strip_prefix("server: "));
    let node = node.ok_or_else(|| io::Error::other(head.clone()))?.to_owned();
    Ok((stream, node))
}

/// A client's WebSocket, and the server that has it.
#[derive(Debug)]
pub struct WebSocket {
    /// Its connection.
    pub stream: TcpStream,
    /// The server's name.
    pub node: String,
}

impl WebSocket {
    /// Opens one.
    ///
    /// # Errors
    /// If it is refused.
    pub fn open(edge: SocketAddr, host: &str) -> io::Result<Self> {
        let version = "sec-websocket-version: 13";
        let fields =
            format!("connection: upgrade\r\nupgrade: websocket\r\n{version}\r\nsec-websocket-key: {KEY}\r\n");
        let (stream, node) = begin(edge, host, "/chat", &fields)?;
        Ok(WebSocket { stream, node })
    }

    /// Sends a frame, and gets it back.
    ///
    /// # Errors
    /// If that does not come.
    pub fn echoes(&mut self, opcode: u8, text: &str) -> io::Result<()> {
        self.stream.write_all(&frame(opcode, text))?;
        let mut got = vec![0; 2 + text.len()];
        self.stream.read_exact(&mut got)?;
        let sent = [&[0x80 | opcode, text.len() as u8], text.as_bytes()].concat();
        if got == sent { Ok(()) } else { Err(io::Error::other(format!("{got:?} for {sent:?}"))) }
    }

    /// Talks for a while.
    ///
    /// # Errors
    /// As [`WebSocket::echoes`].
    pub fn chats(&mut self) -> io::Result<()> {
        (0..PARTS).try_for_each(|_| {
            self.echoes(1, "still there?")?;
            std::thread::sleep(PAUSE);
            Ok(())
        })
    }

    /// Closes it in good order.
    ///
    /// # Errors
    /// If the other side does not.
    pub fn close(mut self) -> io::Result<()> {
        self.echoes(8, "the end")?;
        match self.stream.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(io::Error::other("bytes after the end")),
        }
    }
}

/// Clients of each kind for `host` at `edge`: WebSockets, one after the other; uploads on connections of their own; streams of an HTTP/2
/// connection that stays open.
pub fn clients(edge: SocketAddr, host: &str) -> [Attempt; 3] {
    let [chat, upload, stream] = [(); 3].map(|()| host.to_owned());
    let mut connection = None;
    [
        Box::new(move || {
            let mut socket = WebSocket::open(edge, &chat)?;
            socket.chats()?;
            socket.close()
        }),
        Box::new(move || send_slowly(edge, &upload)),
        Box::new(move || {
            let (runtime, client) = match &mut connection {
                Some(connection) => connection,
                none => none.insert(connect(edge)?),
            };
            runtime.block_on(async {
                let bounded = tokio::time::timeout(PATIENCE, ticks(client, &stream));
                bounded.await.map_err(io::Error::other)?.map_err(io::Error::other)
            })
        }),
    ]
}

/// An upload in parts.
fn send_slowly(edge: SocketAddr, host: &str) -> io::Result<()> {
    let mut client = Client::try_connect(edge)?;
    let length = PARTS * PART.len();
    client.send(format!("POST /upload HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}\r\n\r\n"))?;
    for _ in 0..PARTS {
        client.send(PART)?;
        std::thread::sleep(PAUSE);
    }
    let reply = client.reply(true)?;
    let is_whole = reply.status == 200 && reply.body == length.to_string();
    if is_whole { Ok(()) } else { Err(io::Error::other(format!("{reply:?}"))) }
}

/// An HTTP/2 connection.
fn connect(edge: SocketAddr) -> io::Result<(Runtime, SendRequest<bytes::Bytes>)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let client = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(edge).await?;
        let (client, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        io::Result::Ok(client)
    })?;
    Ok((runtime, client))
}

/// A stream, to its end.
async fn ticks(
    client: &SendRequest<bytes::Bytes>,
    host: &str,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let request = http::Request::get(format!("http://{host}/ticks")).body(())?;
    let (answer, _) = client.clone().ready().await?.send_request(request, true)?;
    let answer = answer.await?;
    if answer.status() != 200 {
        return Err(format!("{answer:?}").into());
    }
    let (mut body, mut length) = (answer.into_body(), 0);
    while let Some(part) = body.data().await {
        let part = part?;
        length += part.len();
        body.flow_control().release_capacity(part.len())?;
    }
    if length == PARTS * PART.len() { Ok(()) } else { Err(format!("{length} bytes of a stream").into()) }
}
