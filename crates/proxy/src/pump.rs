//! One request at one server: its body goes up and the response comes down, both at a time, under one set of deadlines.
//!
//! Whose fault a failure is decides what follows. A server that fails is reported, and the request may go to another. A client
//! that sends or reads too slowly, or leaves, is let go, and its server is not blamed.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::alarm::{Alarm, after};
use crate::answer::Answer;
use crate::body::Framing;
use crate::client::Client;
use crate::duplex::Duplex;
use crate::request::Request;
use crate::response::{HEAD_BYTES_MAX, Response};
use crate::service::{Limits, Visit};
use crate::upstream::{Lost, Upstream};
use crate::wire::BodyError;

/// A client that reads an answer more slowly than this, in bytes a second over [`Limits::response_timeout`], is let go. Below
/// any modem.
pub const SEND_RATE_MIN: u64 = 500;
/// Longest silence in a tunnel, as after an upgrade to WebSocket, and of a server in a stream of events. TCP's keepalive finds out a
/// server that has vanished.
const TUNNEL_IDLE_MAX: Duration = Duration::from_secs(3600);
/// A request that may be cut asks this often at least whether it is.
pub const CUT_CHECK: Duration = Duration::from_secs(1);
/// Most informational responses before the response. Servers send one or two.
const INFORMATIONAL_MAX: u32 = 100;
/// Most bytes of all of them: as of one head. They wait here for a client that does not read, as HTTP/2 has no flow control for heads.
const INFORMATIONAL_BYTES_MAX: usize = HEAD_BYTES_MAX;
/// Most bytes of a body that are kept to send them to another server.
const REPLAY_BYTES_MAX: usize = 64 << 10;

/// The client's side of a request.
pub(crate) trait Downstream {
    /// Where its bodies are.
    type Duplex: Duplex;

    fn duplex(&mut self) -> &mut Self::Duplex;
    /// Ready when the client has left. The request is complete.
    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()>;
    /// Queues an informational response.
    fn inform(&mut self, response: &Response, request: &Request) -> io::Result<()>;
    /// Queues the head of the response. `is_whole` if the request was read to its end.
    fn begin(&mut self, response: &Response, request: &Request, is_whole: bool) -> io::Result<()>;
}

/// Why an exchange failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The client left, or reads too slowly.
    Client,
    /// The client is at fault, mostly by its body, which is answered so.
    Body(Answer),
    /// The server did not answer in time.
    Late,
    /// The server broke off.
    Broken,
    /// The server gave an answer that is not valid.
    Malformed,
    /// The server closed a kept connection before it can have seen the request, or one whose client did not send, or has ended the
    /// request alone. It is not blamed.
    Closed,
    /// The server has not processed the request.
    Refused,
    /// It must not go on at this server, which is not blamed.
    Cut,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Up {
    Body,
    End,
    Done,
    /// The server takes no more of it.
    Broken,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Down {
    Head,
    Body,
    End,
    Done,
}

/// What is kept of a request's body, for another server.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    bytes: Vec<u8>,
    /// Whether all that was read so far is kept.
    is_cut: bool,
}

impl Replay {
    fn keep(&mut self, data: &[u8], is_repeatable: bool) {
        self.is_cut |= !is_repeatable || self.bytes.len() + data.len() > REPLAY_BYTES_MAX;
        if self.is_cut {
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(data);
        }
    }

    /// Whether the body can be sent once more.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_cut
    }
}

/// A request at a server.
pub(crate) struct Pump<'a, D, U, V> {
    client: &'a mut D,
    server: &'a mut U,
    request: &'a Request,
    response: &'a mut Response,
    visit: &'a mut V,
    limits: &'a Limits,
    replay: &'a mut Replay,
    up: Up,
    down: Down,
    replayed: usize,
    is_tunnel: bool,
    is_of_events: bool,
    /// Informational responses so far, and their bytes.
    informed: u32,
    informed_bytes: usize,
    /// When the client's body is due. Time in which the server does not take it does not count.
    body_due: Instant,
    /// Since when the server takes nothing of the body that has come.
    held_since: Option<Instant>,
    /// Bytes of the body that were read.
    body_bytes: u64,
    /// Since when the server is waited for.
    server_since: Option<Instant>,
    /// Since when the client is waited for, and how much it had taken by then.
    client_since: Option<(Instant, u64)>,
    /// Bytes of the response's body that were sent.
    sent: u64,
}

/// What became of a request at a server.
pub(crate) struct Ended {
    /// Why it failed, if it did.
    pub(crate) trouble: Option<Trouble>,
    /// Whether the response has begun to reach the client.
    pub(crate) has_begun: bool,
    /// Whether request and response are complete, so that the connection to the server can be used again.
    pub(crate) is_clean: bool,
    /// Whether the connection was upgraded to another protocol.
    pub(crate) is_tunnel: bool,
    /// Bytes of the response's body that were sent.
    pub(crate) sent: u64,
}

/// Which sides a poll found waiting.
#[derive(Clone, Copy, Default)]
struct Waits {
    for_body: bool,
    for_server: bool,
    for_client: bool,
}

impl<'a, D: Downstream, U: Upstream, V: Visit> Pump<'a, D, U, V> {
    pub(crate) fn new(
        client: &'a mut D,
        server: &'a mut U,
        request: &'a Request,
        response: &'a mut Response,
        visit: &'a mut V,
        limits: &'a Limits,
        replay: &'a mut Replay,
    ) -> Self {
        let up = if request.has_body() { Up::Body } else { Up::End };
        Pump {
            client,
            server,
            request,
            response,
            visit,
            limits,
            replay,
            up,
            down: Down::Head,
            replayed: 0,
            is_tunnel: false,
            is_of_events: false,
            informed: 0,
            informed_bytes: 0,
            body_due: after(Instant::now(), limits.body_timeout),
            held_since: None,
            body_bytes: 0,
            server_since: None,
            client_since: None,
            sent: 0,
        }
    }

    /// Carries a request of `from` until the response is complete, or the exchange has failed.
    pub(crate) async fn run(mut self, from: &Client, alarm: &mut Alarm) -> Ended {
        let ended = match self.server.begin(self.request, from) {
            Ok(()) => poll_fn(|cx| self.poll(cx, alarm)).await,
            Err(Lost::Refused) => Err(Trouble::Refused),
            // HTTP/2 cannot say what the client said.
            Err(_) => Err(Trouble::Body(Answer::BAD_REQUEST)),
        };
        let is_complete = self.up == Up::Done && self.down == Down::Done;
        Ended {
            trouble: ended.err(),
            has_begun: self.down != Down::Head,
            is_clean: is_complete && !self.is_tunnel && self.response.keeps,
            is_tunnel: self.is_tunnel,
            sent: self.sent,
        }
    }

    /// Ready when the response is complete, or the exchange has failed.
    fn poll(&mut self, cx: &mut Context<'_>, alarm: &mut Alarm) -> Poll<Result<(), Trouble>> {
        let mut waits;
        loop {
            waits = Waits::default();
            let up = self.poll_up(cx, &mut waits)?;
            let down = self.poll_down(cx, &mut waits)?;
            if self.down == Down::Done {
                return Poll::Ready(Ok(()));
            }
            if !up && !down {
                break;
            }
        }
        if self.up == Up::Done && !self.is_tunnel && self.client.poll_left(cx).is_ready() {
            return Poll::Ready(Err(Trouble::Client));
        }
        self.poll_deadlines(cx, alarm, waits).map(Err)
    }

    /// Sends some of the request; returns whether anything has changed.
    fn poll_up(&mut self, cx: &mut Context<'_>, waits: &mut Waits) -> Result<bool, Trouble> {
        match self.up {
            Up::Done | Up::Broken => Ok(false),
            Up::Body if self.replayed < self.replay.bytes.len() && !self.is_tunnel => {
                let rest = &self.replay.bytes[self.replayed..];
                let sent = self.server.duplex().poll_send(cx, rest);
                Ok(self.upwards(sent, waits).map(|sent| self.replayed += sent).is_some())
            }
            Up::Body => match self.client.duplex().poll_data(cx) {
                Poll::Ready(Ok(true)) => self.send_up(cx, waits),
                Poll::Ready(Ok(false)) => {
                    self.up = Up::End;
                    Ok(true)
                }
                Poll::Ready(Err(BodyError::Malformed)) => Err(Trouble::Body(Answer::BAD_REQUEST)),
                Poll::Ready(Err(BodyError::Cut | BodyError::Declined)) => Err(Trouble::Client),
                Poll::Pending => {
                    waits.for_body = true;
                    // Without anything to send this is no progress of the server's.
                    match self.server.duplex().poll_flush(cx) {
                        Poll::Ready(Ok(())) => {}
                        flushed => drop(self.upwards(flushed, waits)),
                    }
                    Ok(false)
                }
            },
            Up::End => {
                let ended = if self.is_tunnel {
                    self.server.duplex().poll_shutdown(cx)
                } else {
                    self.server.duplex().poll_finish(cx, self.client.duplex().trailers())
                };
                if self.upwards(ended, waits).is_none() {
                    return Ok(self.up == Up::Broken);
                }
                self.up = Up::Done;
                if !self.is_tunnel {
                    self.visit.sent();
                }
                Ok(true)
            }
        }
    }

    /// Sends bytes of the client's to the server.
    fn send_up(&mut self, cx: &mut Context<'_>, waits: &mut Waits) -> Result<bool, Trouble> {
        let data = self.client.duplex().data();
        let room = self.limits.body_bytes_max.saturating_sub(self.body_bytes);
        if !self.is_tunnel && data.len() as u64 > room {
            return Err(Trouble::Body(Answer::BODY_TOO_LARGE));
        }
        let sent = self.server.duplex().poll_send(cx, data);
        let Some(sent) = self.upwards(sent, waits) else {
            self.held_since = self.held_since.or_else(|| Some(Instant::now()));
            return Ok(self.up == Up::Broken);
        };
        if let Some(since) = self.held_since.take() {
            self.body_due = after(self.body_due, since.elapsed());
        }
        if !self.is_tunnel {
            self.replay
                .keep(&self.client.duplex().data()[..sent], self.request.is_repeatable() || U::REFUSES);
            self.replayed = self.replay.bytes.len();
            self.body_bytes += sent as u64;
        }
        self.client.duplex().consume(sent);
        self.go_on();
        Ok(true)
    }

    /// Bytes went on. Once the server answers a body that has not ended, as in a call that streams both ways, the body may go on
    /// for as long as either side does.
    fn go_on(&mut self) {
        if self.down != Down::Head && self.up == Up::Body && !self.is_tunnel {
            self.body_due = after(Instant::now(), self.limits.body_timeout);
        }
    }

    /// What became of a write to the server. If it takes no more, it may have answered already.
    fn upwards<T>(&mut self, wrote: Poll<io::Result<T>>, waits: &mut Waits) -> Option<T> {
        match wrote {
            Poll::Ready(Ok(value)) => {
                self.server_since = None;
                Some(value)
            }
            Poll::Ready(Err(_)) => {
                self.up = Up::Broken;
                None
            }
            Poll::Pending => {
                waits.for_server = true;
                None
            }
        }
    }

    /// Passes some of the response on; returns whether anything has changed.
    fn poll_down(&mut self, cx: &mut Context<'_>, waits: &mut Waits) -> Result<bool, Trouble> {
        match self.down {
            Down::Head => self.poll_head(cx, waits),
            Down::Body => match self.server.duplex().poll_data(cx) {
                Poll::Ready(Ok(true)) => {
                    self.server_since = None;
                    let sent = self.client.duplex().poll_send(cx, self.server.duplex().data());
                    let Some(sent) = self.downwards(sent, waits)? else { return Ok(false) };
                    self.server.duplex().consume(sent);
                    self.sent += sent as u64;
                    self.go_on();
                    if self.server.duplex().is_read() {
                        self.down = Down::End;
                    }
                    Ok(true)
                }
                Poll::Ready(Ok(false)) => {
                    self.down = Down::End;
                    Ok(true)
                }
                Poll::Ready(Err(BodyError::Declined)) => Err(Trouble::Closed),
                Poll::Ready(Err(BodyError::Malformed | BodyError::Cut)) => Err(Trouble::Broken),
                Poll::Pending => {
                    let flushed = self.client.duplex().poll_flush(cx);
                    if self.downwards(flushed, waits)?.is_some() {
                        // While the client still sends, the server may wait for it.
                        waits.for_server |= self.is_tunnel || matches!(self.up, Up::Done | Up::Broken);
                    }
                    Ok(false)
                }
            },
            Down::End => {
                let ended = self.client.duplex().poll_finish(cx, self.server.duplex().trailers());
                let has_ended = self.downwards(ended, waits)?.is_some();
                if has_ended {
                    self.down = Down::Done;
                }
                Ok(has_ended)
            }
            Down::Done => Ok(false),
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>, waits: &mut Waits) -> Result<bool, Trouble> {
        if self.informed > 0 {
            let flushed = self.client.duplex().poll_flush(cx);
            self.downwards(flushed, waits)?;
        }
        match self.server.poll_head(cx, self.request, self.response) {
            Poll::Ready(Ok(is_whole)) => {
                self.server_since = None;
                if !is_whole {
                    return Ok(true);
                }
            }
            Poll::Ready(Err(Lost::Refused)) => return Err(Trouble::Refused),
            Poll::Ready(Err(Lost::Idle | Lost::Declined)) => return Err(Trouble::Closed),
            // It may have given up on a client that does not send its body.
            Poll::Ready(Err(Lost::Cut)) if waits.for_body => return Err(Trouble::Closed),
            Poll::Ready(Err(Lost::Cut)) => return Err(Trouble::Broken),
            Poll::Ready(Err(Lost::Malformed)) => return Err(Trouble::Malformed),
            Poll::Pending => {
                // While the client still sends, the server need not answer.
                waits.for_server |= matches!(self.up, Up::Done | Up::Broken);
                return Ok(false);
            }
        }
        self.visit.answered(self.response.status);
        if !self.response.fits(self.request) {
            // Any client can ask any server for it, so the server is not blamed.
            return Err(Trouble::Body(Answer::NO_WEBSOCKET));
        }
        match self.response.status {
            101 if self.request.upgrades && self.up == Up::Done => {
                self.client.begin(self.response, self.request, true).map_err(|_| Trouble::Client)?;
                self.server.tunnel();
                self.is_tunnel = true;
                (self.up, self.down) = (Up::Body, Down::Body);
            }
            // RFC 9110, 15.2.2: nobody has asked for another protocol.
            101 => return Err(Trouble::Broken),
            _ if self.response.is_informational() => {
                self.informed += 1;
                self.informed_bytes += self.response.head_bytes();
                if self.informed > INFORMATIONAL_MAX || self.informed_bytes > INFORMATIONAL_BYTES_MAX {
                    return Err(Trouble::Broken);
                }
                self.client.inform(self.response, self.request).map_err(|_| Trouble::Client)?;
            }
            _ => {
                let is_whole = self.up == Up::Done;
                self.client.begin(self.response, self.request, is_whole).map_err(|_| Trouble::Client)?;
                // What an HTTP/2 server sends where there is no body belongs to nothing.
                let is_over = self.response.framing == Framing::Empty || self.server.duplex().is_read();
                self.down = if is_over { Down::End } else { Down::Body };
                self.is_of_events = self.response.is_of_events();
            }
        }
        Ok(true)
    }

    /// What became of a write to the client.
    fn downwards<T>(&mut self, wrote: Poll<io::Result<T>>, waits: &mut Waits) -> Result<Option<T>, Trouble> {
        match wrote {
            Poll::Ready(Ok(value)) => Ok(Some(value)),
            Poll::Ready(Err(_)) => Err(Trouble::Client),
            Poll::Pending => {
                waits.for_client = true;
                Ok(None)
            }
        }
    }

    /// Ready with who is overdue.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>, alarm: &mut Alarm, waits: Waits) -> Poll<Trouble> {
        let limit = if self.is_tunnel { TUNNEL_IDLE_MAX } else { self.limits.response_timeout };
        let server_limit = if self.is_of_events { TUNNEL_IDLE_MAX } else { limit };
        if !waits.for_server || waits.for_client {
            self.server_since = None;
        } else if self.server_since.is_none() {
            self.server_since = Some(Instant::now());
        }
        if !waits.for_client {
            self.client_since = None;
        } else if self.client_since.is_none() {
            self.client_since = Some((Instant::now(), self.sent));
        }
        loop {
            let cut_due = match self.visit.cut_in() {
                Some(Duration::ZERO) => return Poll::Ready(Trouble::Cut),
                cut_in => cut_in.map(|within| Instant::now() + within.min(CUT_CHECK)),
            };
            let server_due = self.server_since.map(|since| after(since, server_limit));
            let client_due = self.client_since.map(|(since, _)| after(since, limit));
            let body_due = (waits.for_body && !self.is_tunnel).then_some(self.body_due);
            let Some(due) = [server_due, client_due, body_due, cut_due].into_iter().flatten().min() else {
                return Poll::Pending;
            };
            if alarm.poll(cx, due).is_pending() {
                return Poll::Pending;
            }
            if cut_due == Some(due) {
                continue;
            }
            if body_due == Some(due) {
                return Poll::Ready(Trouble::Body(Answer::TOO_SLOW));
            }
            if server_due == Some(due) {
                return Poll::Ready(if self.is_tunnel { Trouble::Client } else { Trouble::Late });
            }
            let before = self.client_since.map_or(0, |(_, sent)| sent);
            if self.sent - before < SEND_RATE_MIN.saturating_mul(limit.as_secs().max(1)) {
                return Poll::Ready(Trouble::Client);
            }
            self.client_since = Some((Instant::now(), self.sent));
        }
    }
}
