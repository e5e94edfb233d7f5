//! A client's connection that speaks HTTP/1: its requests one after another, also those that came before the last answer.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use http::Method;
use tokio::time::{Instant, timeout};

use crate::alarm::{Alarm, after};
use crate::answer::Answer;
use crate::body::Framing;
use crate::client::Client;
use crate::duplex::Duplex as _;
use crate::exchange::{Answerable, LINGER_MAX, Left, exchange};
use crate::h2;
use crate::io::{Io, Rewound};
use crate::pump::Downstream;
use crate::request::{Request, Version};
use crate::response::Response;
use crate::service::{LINE_BYTES_MAX, Limits, Outcome, RefusedHead, Service};
use crate::wire::Wire;
use crate::worker::Worker;

/// The first bytes of a client that speaks HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Most bytes that are read of a client that is to close its connection.
const LINGER_BYTES_MAX: usize = 1 << 20;

/// What a client sent.
enum Received {
    Request,
    /// It speaks HTTP/2.
    Preface,
    /// It has closed the connection, or was silent for too long.
    Nothing,
    /// What it sent is refused.
    Refused(Answer),
}

struct Connection {
    wire: Wire,
    /// Since when the client is waited for, and whether it has begun with a head.
    since: Instant,
    is_in_head: bool,
    /// Whether the proxy keeps the connection after this response.
    keep: bool,
    /// Whether its end is the end of the response's body.
    ends_body: bool,
    /// Set while the proxy shuts down.
    is_closing: Arc<AtomicBool>,
}

/// Serves a client until its connection ends.
pub(crate) async fn serve<S: Service>(worker: &Rc<Worker<S>>, io: Io, from: Client) {
    let mut connection = Connection::new(io, Arc::clone(&worker.is_closing));
    let mut alarm = Alarm::default();
    let mut is_first = true;
    loop {
        let mut request = Request::default();
        let mut response = Response::default();
        connection.wait();
        let limits = worker.settings.limits();
        let received =
            poll_fn(|cx| connection.poll_receive(cx, &limits, &mut request, &mut alarm, is_first)).await;
        match received {
            Received::Request => {}
            Received::Nothing => return connection.shut().await,
            Received::Preface => {
                let Wire { io, input, .. } = connection.wire;
                return h2::serve(worker, Rewound::new(input, io), from).await;
            }
            Received::Refused(answer) => {
                let bytes = connection.wire.input.bytes();
                let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
                let line = bytes.split(is_end).next().unwrap_or_default();
                worker.service.refused_head(RefusedHead {
                    client: from.address,
                    line: &line[..line.len().min(LINE_BYTES_MAX)],
                    elapsed: connection.since.elapsed(),
                    outcome: Outcome { status: answer.status, bytes: answer.text.len() as u64 },
                });
                return connection.refuse(&answer).await;
            }
        }
        is_first = false;
        connection.wire.expect(request.framing);
        let left = exchange(worker, &mut connection, &from, (&request, &mut response), &mut alarm).await;
        if left == Left::Clean && connection.keep {
            continue;
        }
        // The last bytes count as in flight, so that the proxy does not end before they are sent.
        let _in_flight = worker.enter();
        return match left {
            // All was read, so that nothing can take the answer with it.
            Left::Clean if connection.wire.input.is_empty() => connection.shut().await,
            Left::Clean | Left::Unread => connection.linger().await,
            Left::Broken if connection.ends_body => connection.wire.io.reset_on_close(),
            Left::Broken => {}
        };
    }
}

/// Answers a connection that cannot be served at all, and closes it.
pub(crate) async fn refuse(io: Io, answer: &Answer) {
    Connection::new(io, Arc::default()).refuse(answer).await;
}

impl Connection {
    fn new(io: Io, is_closing: Arc<AtomicBool>) -> Self {
        let wire = Wire::new(io);
        Connection {
            wire,
            since: Instant::now(),
            is_in_head: false,
            keep: true,
            ends_body: false,
            is_closing,
        }
    }

    /// Whether this request is to be the last.
    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// The next request is waited for.
    fn wait(&mut self) {
        self.is_in_head = !self.wire.input.is_empty();
        self.since = Instant::now();
    }

    /// Ready with the next request.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        limits: &Limits,
        request: &mut Request,
        alarm: &mut Alarm,
        is_first: bool,
    ) -> Poll<Received> {
        loop {
            if let Some(received) = self.take_head(limits, request, is_first) {
                return Poll::Ready(received);
            }
            match self.wire.poll_fill(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(Received::Nothing),
                Poll::Pending => break,
            }
        }
        self.wire.input.settle();
        if !self.is_in_head && !self.wire.input.is_empty() {
            self.is_in_head = true;
            self.since = Instant::now();
        }
        let limit = if self.is_in_head { limits.header_timeout } else { limits.idle_timeout };
        ready!(alarm.poll(cx, after(self.since, limit)));
        Poll::Ready(if self.is_in_head { Received::Refused(Answer::TOO_SLOW) } else { Received::Nothing })
    }

    /// The request whose head is in the buffer, if it is complete.
    fn take_head(&mut self, limits: &Limits, request: &mut Request, is_first: bool) -> Option<Received> {
        // Some clients send an empty line after a body (RFC 9112, 2.2).
        while self.wire.input.bytes().starts_with(b"\r\n") {
            self.wire.input.consume(2);
        }
        let bytes = self.wire.input.bytes();
        if bytes.is_empty() {
            return None;
        }
        if is_first && bytes.starts_with(&PREFACE[..bytes.len().min(PREFACE.len())]) {
            return (bytes.len() >= PREFACE.len()).then_some(Received::Preface);
        }
        let received = match request.parse(bytes) {
            Ok(Some(len)) if len <= limits.header_bytes_max => {
                self.wire.input.consume(len);
                Received::Request
            }
            Ok(None) if bytes.len() <= limits.header_bytes_max => return None,
            Ok(_) => Received::Refused(Answer::TOO_LARGE),
            Err(answer) => Received::Refused(answer),
        };
        Some(received)
    }

    async fn refuse(mut self, answer: &Answer) {
        answer.write(false, true, self.wire.frame(Framing::Empty));
        self.linger().await;
    }

    /// Ends the connection. Over TLS the client is told so.
    async fn shut(mut self) {
        if let Io::Tls(_) = self.wire.io {
            let _ = timeout(LINGER_MAX, poll_fn(|cx| self.wire.poll_shutdown(cx))).await;
        }
    }

    /// Ends the connection in a way that does not take the last answer with it (RFC 9112, 9.6).
    async fn linger(mut self) {
        let linger = async {
            poll_fn(|cx| self.wire.poll_shutdown(cx)).await?;
            let mut left = LINGER_BYTES_MAX;
            loop {
                let unread = self.wire.input.bytes().len();
                self.wire.input.consume(unread);
                match poll_fn(|cx| self.wire.poll_fill(cx)).await? {
                    0 => return Ok(()),
                    count if count > left => return Ok(()),
                    count => left -= count,
                }
            }
        };
        let _: Result<io::Result<()>, _> = timeout(LINGER_MAX, linger).await;
    }
}

impl Downstream for Connection {
    type Duplex = Wire;

    fn duplex(&mut self) -> &mut Wire {
        &mut self.wire
    }

    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Behind the next request the end of the connection cannot be seen.
        if !self.wire.input.is_empty() {
            return Poll::Pending;
        }
        match ready!(self.wire.poll_fill(cx)) {
            Ok(1..) => Poll::Pending,
            Ok(0) | Err(_) => Poll::Ready(()),
        }
    }

    fn inform(&mut self, response: &Response, request: &Request) -> io::Result<()> {
        // RFC 9110, 15.2: HTTP/1.0 has none.
        if request.version() == Version::Http11 {
            response.write(request.version(), true, self.wire.frame(Framing::Empty));
        }
        Ok(())
    }

    fn begin(&mut self, response: &Response, request: &Request, is_whole: bool) -> io::Result<()> {
        let framing = response.framing_for(request.version());
        self.ends_body = framing == Framing::UntilClose;
        self.keep = request.keeps && is_whole && !self.ends_body && !self.is_closing();
        if response.status == 101 {
            self.wire.io.keep_alive();
            self.wire.expect(Framing::UntilClose);
            response.write(request.version(), false, self.wire.frame(Framing::UntilClose));
        } else {
            response.write(request.version(), self.keep, self.wire.frame(framing));
        }
        Ok(())
    }
}

impl Answerable for Connection {
    fn answer(&mut self, answer: &Answer, request: &Request, keep: bool) -> io::Result<()> {
        self.keep = keep && request.keeps && !self.is_closing();
        let with_text = *request.method() != Method::HEAD;
        answer.write(self.keep, with_text, self.wire.frame(Framing::Empty));
        Ok(())
    }
}
