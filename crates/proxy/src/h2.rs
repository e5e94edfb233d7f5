//! A client's connection that speaks HTTP/2: each of its requests is a task, and `h2` keeps the protocol.

mod stream;
pub(crate) mod upstream;

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{Method, StatusCode};
use tokio::time::{Instant, timeout};

use crate::alarm::{Alarm, after};
use crate::answer::Answer;
use crate::body::Framing;
use crate::client::Client;
use crate::duplex::Duplex as _;
use crate::exchange::{Answerable, Left, exchange};
use crate::fields::{Field, Name};
use crate::h2::stream::{Halves, Receiver, SEND_BUFFER_BYTES, Sender, map};
use crate::io::Rewound;
use crate::pump::Downstream;
use crate::request::{Request, Version};
use crate::response::Response;
use crate::service::{LINE_BYTES_MAX, Limits, Outcome, RefusedHead, Service};
use crate::worker::Worker;

/// Most requests at a time on one connection: as nginx.
const STREAMS_MAX: u32 = 128;
/// Bytes that all bodies on a connection may send ahead of what servers take.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// What `h2` may charge for bodies in small frames, which take more memory than their bytes: 8,500 messages of ten bytes. With less a
/// client whose messages outrun its server would lose its connection.
const DATA_FRAME_BUDGET: usize = 2 * CONNECTION_WINDOW_BYTES as usize;
/// Longest wait for a client after it was told that its connection ends.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// Serves a client until its connection ends.
pub(crate) async fn serve<S: Service>(worker: &Rc<Worker<S>>, io: Rewound, from: Client) {
    let limits = worker.settings.limits();
    let blocked = Rc::clone(&io.blocked);
    let handshake = Builder::new()
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(limits.header_bytes_max.try_into().unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .data_frame_budget(DATA_FRAME_BUDGET)
        .enable_connect_protocol()
        .handshake::<_, Bytes>(io);
    // A client that opens a connection and says nothing does not keep it.
    let Ok(Ok(connection)) = timeout(limits.header_timeout, handshake).await else { return };
    let mut client = Peer { connection, blocked, streams: Rc::default(), alarm: Alarm::default() };
    let mut closing = worker.closing.clone();
    // The connection counts as in flight from the end's announcement on, so that what is queued can still be sent.
    let mut ending = None;
    loop {
        let limits = worker.settings.limits();
        let event = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing), if ending.is_none() => Event::Closing,
            event = client.next(&limits, ending.is_some()) => event,
        };
        match event {
            // One that was reset leaves its place to the next before its task has ended.
            Event::Request(_, mut respond) if client.streams.get() >= STREAMS_MAX => {
                respond.send_reset(Reason::REFUSED_STREAM);
            }
            Event::Request(request, respond) => {
                let open = Open::new(&client.streams);
                let (worker, from) = (Rc::clone(worker), from.clone());
                // In a box, because the runtime copies what it spawns some eight times.
                tokio::task::spawn_local(Box::pin(async move {
                    serve_stream(&worker, request, respond, &from).await;
                    drop(open);
                }));
            }
            Event::Closing | Event::Idle => {
                client.connection.graceful_shutdown();
                ending = Some(worker.enter());
            }
            Event::End => return,
        }
    }
}

#[expect(clippy::large_enum_variant, reason = "it is made and taken apart at once")]
enum Event {
    Request(http::Request<RecvStream>, SendResponse<Bytes>),
    /// No request was in flight for too long.
    Idle,
    /// The proxy shuts down.
    Closing,
    End,
}

/// A client, and when it is let go.
struct Peer {
    connection: Connection<Rewound, Bytes>,
    /// Since when it takes no bytes.
    blocked: Rc<Cell<Option<Instant>>>,
    /// Requests in flight.
    streams: Rc<Cell<u32>>,
    alarm: Alarm,
}

impl Peer {
    /// Drives the connection until something happens. `is_ending` once the client was told so.
    async fn next(&mut self, limits: &Limits, is_ending: bool) -> Event {
        let mut idle_since = None;
        poll_fn(|cx| {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    return Poll::Ready(Event::Request(request, respond));
                }
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Event::End),
                Poll::Pending => {}
            }
            let is_idle = self.streams.get() == 0;
            idle_since = idle_since.filter(|_| is_idle);
            loop {
                let now = Instant::now();
                if is_idle {
                    idle_since = idle_since.or(Some(now));
                }
                let limit = if is_ending { GOODBYE_MAX } else { limits.idle_timeout };
                let idle_due = after(idle_since.unwrap_or(now), limit);
                let blocked_due = self.blocked.get().map(|since| after(since, limits.response_timeout));
                if blocked_due.is_some_and(|due| due <= now) {
                    return Poll::Ready(Event::End);
                }
                if idle_due <= now {
                    return Poll::Ready(if is_ending { Event::End } else { Event::Idle });
                }
                // Also while requests are in flight: the last one's end may wake nobody.
                ready!(self.alarm.poll(cx, blocked_due.map_or(idle_due, |due| due.min(idle_due))));
            }
        })
        .await
    }
}

/// A request in flight on its connection.
struct Open(Rc<Cell<u32>>);

impl Open {
    fn new(streams: &Rc<Cell<u32>>) -> Self {
        streams.set(streams.get() + 1);
        Open(Rc::clone(streams))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

async fn serve_stream<S: Service>(
    worker: &Worker<S>,
    request: http::Request<RecvStream>,
    respond: SendResponse<Bytes>,
    from: &Client,
) {
    let (head, body) = request.into_parts();
    let mut stream = Stream::new(body, respond);
    let mut request = Request::default();
    if let Err(answer) = request.take(&head, !stream.halves.is_read()) {
        let line = format!("{} {} {}", head.method, head.uri, Version::Http2.text());
        worker.service.refused_head(RefusedHead {
            client: from.address,
            line: &line.as_bytes()[..line.len().min(LINE_BYTES_MAX)],
            elapsed: Duration::ZERO,
            outcome: Outcome { status: answer.status, bytes: answer.text.len() as u64 },
        });
        let _ = stream.answer(&answer, &request, false);
        return;
    }
    drop(head);
    let (mut response, mut alarm) = (Response::default(), Alarm::default());
    if exchange(worker, &mut stream, from, (&request, &mut response), &mut alarm).await == Left::Broken {
        stream.reset();
    }
}

/// A request on a connection.
struct Stream {
    respond: SendResponse<Bytes>,
    /// Its sender is there once the response has begun and has a body.
    halves: Halves,
    /// What the client is told if the response breaks off.
    broken: Reason,
}

impl Stream {
    fn new(body: RecvStream, respond: SendResponse<Bytes>) -> Self {
        let halves = Halves { receiver: Some(Receiver::new(body)), sender: None };
        Stream { respond, halves, broken: Reason::INTERNAL_ERROR }
    }

    /// Tells the client that the response breaks off.
    fn reset(&mut self) {
        match &mut self.halves.sender {
            Some(sender) => sender.reset(self.broken),
            None => self.respond.send_reset(self.broken),
        }
    }
}

fn head<'a>(status: u16, fields: impl Iterator<Item = Field<'a>>) -> io::Result<http::Response<()>> {
    let mut response = http::Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).map_err(io::Error::other)?;
    *response.headers_mut() = map(fields)?;
    Ok(response)
}

impl Downstream for Stream {
    type Duplex = Halves;

    fn duplex(&mut self) -> &mut Halves {
        &mut self.halves
    }

    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.halves.sender {
            Some(sender) => sender.poll_reset(cx),
            None => self.respond.poll_reset(cx).map(drop),
        }
    }

    fn inform(&mut self, response: &Response, _request: &Request) -> io::Result<()> {
        let head = head(response.status, response.passed_on())?;
        self.respond.send_informational(head).map_err(io::Error::other)
    }

    fn begin(&mut self, response: &Response, _request: &Request, _is_whole: bool) -> io::Result<()> {
        // Here the WebSocket is open (RFC 8441, 5); no other upgrade is asked for.
        let is_tunnel = response.status == 101;
        let is_passed_on = |field: &Field<'_>| {
            field.known != Name::Upgrade && !(is_tunnel && field.known == Name::WebSocketAccept)
        };
        let status = if is_tunnel { 200 } else { response.status };
        let mut head = head(status, response.passed_on().filter(is_passed_on))?;
        if let Some(bytes) = response.told_length() {
            head.headers_mut().insert(http::header::CONTENT_LENGTH, bytes.into());
        }
        if is_tunnel {
            // As a reset of its connection.
            self.broken = Reason::CANCEL;
        }
        let is_empty = !is_tunnel && matches!(response.framing, Framing::Empty | Framing::Length(0));
        let send = self.respond.send_response(head, is_empty).map_err(io::Error::other)?;
        self.halves.sender = (!is_empty).then(|| Sender::new(send, response.ends_after()));
        Ok(())
    }
}

impl Answerable for Stream {
    fn answer(&mut self, answer: &Answer, request: &Request, _keep: bool) -> io::Result<()> {
        let fields: Vec<_> = answer.all_fields().collect();
        let fields = fields.iter().map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes()));
        let head = head(answer.status, fields)?;
        let with_text = answer.has_text() && *request.method() != Method::HEAD;
        let mut send = self.respond.send_response(head, !with_text).map_err(io::Error::other)?;
        if with_text {
            let text = Bytes::from_static(answer.text.as_bytes());
            send.send_data(text, true).map_err(io::Error::other)?;
        }
        Ok(())
    }
}
