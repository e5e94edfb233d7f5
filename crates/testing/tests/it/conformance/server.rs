//! The server behind the proxies: it records what it receives, and answers as the case's script says.
//!
//! A case is known by its *token*, `/c` and three digits, which the request has in its target or in a field.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::conformance::wire::{self, Message};
use sidelong_testing::{PATIENCE, eventually, websocket_accept};

/// Between two pieces of an answer, so that they are read one by one.
const PAUSE: Duration = Duration::from_millis(50);
/// The bytes of a token.
const TOKEN_LENGTH: usize = 5;

/// What the server does with a request, step by step, after it has read the head.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Reads the whole body.
    Body,
    Write(Vec<u8>),
    Pause,
    /// Closes the connection.
    Close,
    /// Sends back what comes, until the proxy closes.
    Echo,
    /// Writes this, with the Sec-WebSocket-Accept for the request's key in place of `@accept`.
    Switch(String),
    /// Reads until the proxy ends its half of the connection.
    End,
}

/// Reads the request, then sends these bytes.
pub(crate) fn answers(bytes: impl AsRef<[u8]>) -> Vec<Act> {
    vec![Act::Body, Act::Write(bytes.as_ref().to_owned())]
}

/// Reads the request, sends these bytes, and closes.
pub(crate) fn closes(bytes: impl AsRef<[u8]>) -> Vec<Act> {
    vec![Act::Body, Act::Write(bytes.as_ref().to_owned()), Act::Close]
}

/// A request as it was received.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The connection's number.
    pub(crate) connection: usize,
    /// The request, or why it is none.
    pub(crate) request: Result<Message, String>,
    /// All bytes of the connection from this request on, until the next one.
    pub(crate) bytes: Vec<u8>,
    /// The script has ended.
    pub(crate) is_done: bool,
    /// The tokens in it, found when all has been seen.
    tokens: BTreeSet<String>,
}

impl Seen {
    /// Whether a token of this case is in it.
    pub(crate) fn is_of(&self, token: &str) -> bool {
        self.tokens.contains(token)
    }
}

/// The tokens in these bytes, also with something after them.
fn tokens(bytes: &[u8]) -> BTreeSet<String> {
    let found = bytes
        .windows(TOKEN_LENGTH)
        .filter(|window| window.starts_with(b"/c") && window[2..].iter().all(|byte| byte.is_ascii_digit()));
    found.map(|token| String::from_utf8_lossy(token).into_owned()).collect()
}

pub(crate) type Scripts = BTreeMap<String, Vec<Act>>;

#[derive(Clone)]
pub(crate) struct Recorder {
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    scripts: Arc<Scripts>,
}

impl Recorder {
    /// A server at each of these addresses. Its threads end with the test's process.
    pub(crate) fn start(addresses: &[SocketAddr], scripts: &Arc<Scripts>) -> Self {
        let recorder = Recorder {
            seen: Arc::default(),
            connections: Arc::default(),
            open: Arc::default(),
            scripts: Arc::clone(scripts),
        };
        for address in addresses {
            let listener = TcpListener::bind(address).unwrap();
            let recorder = recorder.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let recorder = recorder.clone();
                    recorder.open.fetch_add(1, Ordering::SeqCst);
                    std::thread::spawn(move || {
                        let connection = recorder.connections.fetch_add(1, Ordering::SeqCst);
                        Connection { stream, buffer: Vec::new(), connection, recorder: &recorder }.serve();
                        recorder.open.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            });
        }
        recorder
    }

    /// What it has received, once no connection is left: after the proxy has ended.
    pub(crate) fn at_end(&self) -> Vec<Seen> {
        eventually("the proxy has closed its connections", || self.open.load(Ordering::SeqCst) == 0);
        self.now()
    }

    /// What it has received until now.
    pub(crate) fn now(&self) -> Vec<Seen> {
        let mut seen = self.seen.lock().unwrap().clone();
        seen.iter_mut().for_each(|seen| seen.tokens = tokens(&seen.bytes));
        seen
    }

    /// Whether the script of this case has ended.
    pub(crate) fn is_done(&self, token: &str) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.iter().any(|seen| seen.is_done && seen.request.as_ref().is_ok_and(|of| of.target() == token))
    }
}

struct Connection<'a> {
    stream: TcpStream,
    buffer: Vec<u8>,
    connection: usize,
    recorder: &'a Recorder,
}

impl Connection<'_> {
    fn serve(mut self) {
        let _ = self.stream.set_nodelay(true);
        let _ = self.stream.set_write_timeout(Some(PATIENCE));
        while self.request().is_some() {}
        let _ = self.stream.shutdown(Shutdown::Write);
        // Without this the close could become a reset, and the proxy lose the answer.
        while self.read().is_some() {}
    }

    /// Reads more; `None` at the end.
    fn read(&mut self) -> Option<()> {
        let mut bytes = [0; 1 << 16];
        let count = self.stream.read(&mut bytes).ok().filter(|count| *count > 0)?;
        self.buffer.extend(&bytes[..count]);
        Some(())
    }

    /// One request and its answer; `None` if the connection is not used any more.
    fn request(&mut self) -> Option<()> {
        let index = loop {
            match wire::request(&self.buffer) {
                Ok(Some((request, used))) => break self.record(Ok(request), used),
                Ok(None) => {}
                Err(why) => {
                    self.record(Err(why), self.buffer.len());
                    let _ = self.stream.write_all(b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n");
                    return None;
                }
            }
            if self.read().is_none() {
                if !self.buffer.is_empty() {
                    self.record(Err("cut in the head".to_owned()), self.buffer.len());
                }
                return None;
            }
        };
        let goes_on = self.act(index);
        if goes_on.is_none() {
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        self.change(index, |seen| seen.is_done = true);
        goes_on?;
        let used = self.body(index)?;
        self.buffer.drain(..used);
        Some(())
    }

    fn record(&self, request: Result<Message, String>, used: usize) -> usize {
        let bytes = self.buffer[..used].to_owned();
        let mut seen = self.recorder.seen.lock().unwrap();
        seen.push(Seen {
            connection: self.connection,
            request,
            bytes,
            is_done: false,
            tokens: BTreeSet::new(),
        });
        seen.len() - 1
    }

    fn change(&self, index: usize, change: impl FnOnce(&mut Seen)) {
        change(&mut self.recorder.seen.lock().unwrap()[index]);
    }

    /// Reads the request's body; returns the bytes of the request.
    fn body(&mut self, index: usize) -> Option<usize> {
        loop {
            let found = wire::request(&self.buffer);
            let used = match &found {
                Ok(Some((_, used))) => *used,
                _ => self.buffer.len(),
            };
            self.change(index, |seen| seen.bytes = self.buffer[..used].to_owned());
            match found {
                Ok(Some((request, used))) => {
                    let is_whole = request.is_whole;
                    self.change(index, |seen| seen.request = Ok(request));
                    if is_whole {
                        return Some(used);
                    }
                }
                Ok(None) => return None,
                Err(why) => {
                    self.change(index, |seen| seen.request = Err(why));
                    return None;
                }
            }
            self.read()?;
        }
    }

    fn act(&mut self, index: usize) -> Option<()> {
        let head = self.recorder.seen.lock().unwrap()[index].clone();
        for act in self.script(&head) {
            match act {
                Act::Body => _ = self.body(index)?,
                Act::Write(bytes) => self.stream.write_all(&bytes).ok()?,
                Act::Pause => std::thread::sleep(PAUSE),
                Act::Close => return None,
                Act::Switch(text) => {
                    let key = head.request.as_ref().ok().and_then(|of| of.field("sec-websocket-key"));
                    let text = text.replace("@accept", &websocket_accept(&key.unwrap_or_default()));
                    self.stream.write_all(text.as_bytes()).ok()?;
                }
                Act::End => while self.read().is_some() {},
                Act::Echo => {
                    let used = self.body(index)?;
                    self.buffer.drain(..used);
                    loop {
                        let bytes = std::mem::take(&mut self.buffer);
                        self.stream.write_all(&bytes).ok()?;
                        self.read()?;
                    }
                }
            }
        }
        Some(())
    }

    /// The script of the case whose token the head names, and nothing more of it. Any other request gets its target back.
    fn script(&self, head: &Seen) -> Vec<Act> {
        let text = String::from_utf8_lossy(&head.bytes);
        let token = text.match_indices("/c").find_map(|(at, _)| {
            let after = text[at + 2..].bytes().position(|byte| !byte.is_ascii_digit())?;
            (after == 3 && text[at + 5..].starts_with([' ', '?', '\r'])).then(|| &text[at..at + 5])
        });
        let target = head.request.as_ref().map_or("", Message::target);
        let scripted = token.and_then(|token| self.recorder.scripts.get(token));
        scripted.filter(|script| !script.is_empty()).cloned().unwrap_or_else(|| answers(ok(target)))
    }
}

/// A normal answer with this body.
pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
