//! One request from its head to its end: admitted, sent to a server and, if that fails, to another, and answered.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use http::Method;
use tokio::time::timeout;

use crate::alarm::Alarm;
use crate::answer::Answer;
use crate::client::Client;
use crate::duplex::Duplex;
use crate::pool::{ConnectError, Connection};
use crate::pump::{Downstream, Pump, Replay, Trouble};
use crate::request::{Request, Version};
use crate::response::Response;
use crate::service::{Failure, Limits, Outcome, Refusal, Service, Visit};
use crate::stored::Stored;
use crate::worker::Worker;

/// Most bytes of a body that are read after an early answer, to keep the connection over HTTP/1. With more it is closed.
const PASSED_OVER_BYTES_MAX: u64 = 64 << 10;
/// Longest time that a client's bytes are still read before the connection is closed: a close with unread bytes would take
/// the answer with it (RFC 9112, 9.6).
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(1);

/// What an exchange leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The request was read and answered to the end.
    Clean,
    /// The answer is complete, but not all of the request was read.
    Unread,
    /// The answer is not complete, or there is none.
    Broken,
}

/// A client's side that can be answered by the proxy itself.
pub(crate) trait Answerable: Downstream {
    /// Queues an answer of the proxy itself, with its text. `keep` if the connection can be kept.
    fn answer(&mut self, answer: &Answer, request: &Request, keep: bool) -> io::Result<()>;
}

/// Carries out a request whose head was just read.
pub(crate) async fn exchange<S: Service, D: Answerable>(
    worker: &Worker<S>,
    client: &mut D,
    from: &Client,
    (request, response): (&Request, &mut Response),
    alarm: &mut Alarm,
) -> Left {
    let _in_flight = worker.enter();
    let client_at = worker.settings.trust(|trust| trust.client(request, from.address));
    let mut visit = worker.service.visit(request, client_at);
    let mut outcome = Outcome { status: 0, bytes: 0 };
    let left = forward(worker, client, from, (request, response), alarm, (&mut visit, &mut outcome)).await;
    let left = match left {
        Ok(left) => left,
        Err(answer) => {
            visit.leave();
            outcome.status = answer.status;
            outcome.bytes = if *request.method() == Method::HEAD { 0 } else { answer.text.len() as u64 };
            reply(worker, client, request, &answer).await
        }
    };
    visit.end(request, outcome);
    left
}

/// Forwards the request.
///
/// # Errors
/// The answer that it gets in place of a server's.
async fn forward<S: Service, D: Answerable>(
    worker: &Worker<S>,
    client: &mut D,
    from: &Client,
    (request, response): (&Request, &mut Response),
    alarm: &mut Alarm,
    (visit, outcome): (&mut impl Visit, &mut Outcome),
) -> Result<Left, Answer> {
    let limits = &worker.settings.limits();
    if request.forwards_left() == Some(0) {
        return Err(Answer::last_stop());
    }
    if from.forwarding.has_seen(request) {
        return Err(Answer::LOOP_DETECTED);
    }
    if request.body_bytes().is_some_and(|bytes| bytes > limits.body_bytes_max) {
        return Err(Answer::BODY_TOO_LARGE);
    }
    let mut replay = Replay::default();
    if !request.has_body()
        && !request.upgrades
        && let Some(answer) = visit.find(request).await
    {
        let mut stored = Stored::new(answer);
        let pump = Pump::new(client, &mut stored, request, response, visit, limits, &mut replay);
        let ended = pump.run(from, alarm).await;
        outcome.bytes = ended.sent;
        outcome.status = if ended.has_begun { response.status } else { 0 };
        return Ok(if ended.trouble.is_none() { Left::Clean } else { Left::Broken });
    }
    visit.admit(request)?;
    for retries_left in (0..=limits.retries).rev() {
        let server = visit.choose().await.ok_or(Answer::NO_SERVER)?;
        let mut connection = match worker.pool.connection(server, request).await {
            Ok(connection) if visit.may_send() => connection,
            Ok(_) if retries_left > 0 && replay.is_whole() => continue,
            Ok(_) => return Err(Answer::NO_SERVER),
            // The next server would be reached no better.
            Err(ConnectError::Local) => {
                worker.short.send_replace(());
                return Err(Answer::NO_SERVER);
            }
            Err(ConnectError::Busy) => return Err(Answer::NO_SERVER),
            Err(ConnectError::Server(failure)) => {
                visit.failed(request, failure);
                // Nothing was sent, so even a request that is not idempotent may go to another server.
                if retries_left > 0 && replay.is_whole() {
                    continue;
                }
                return Err(Answer::BAD_GATEWAY);
            }
        };
        let ended = match &mut connection {
            Connection::Http1(wire, _) | Connection::WebSocket(wire) => {
                let pump = Pump::new(client, wire, request, response, visit, limits, &mut replay);
                pump.run(from, alarm).await
            }
            Connection::Http2(stream) => {
                let pump = Pump::new(client, stream, request, response, visit, limits, &mut replay);
                pump.run(from, alarm).await
            }
        };
        outcome.bytes = ended.sent;
        if ended.has_begun {
            outcome.status = response.status;
        }
        let trouble = match ended.trouble {
            None => {
                if let Connection::Http1(wire, kept) = connection
                    && ended.is_clean
                    && wire.input.is_empty()
                {
                    kept.put(wire);
                }
                if ended.is_tunnel {
                    return Ok(Left::Unread);
                }
                if !client.duplex().is_read() {
                    visit.leave();
                }
                return Ok(read_on(client, request, false, limits).await);
            }
            Some(trouble) => trouble,
        };
        let is_unprocessed = trouble == Trouble::Refused;
        let is_tried = matches!(connection, Connection::WebSocket(_)) && !ended.has_begun;
        let answer = match trouble {
            Trouble::Client => return Ok(Left::Broken),
            Trouble::Body(answer) => {
                if answer.status == Answer::TOO_SLOW.status {
                    worker.service.refused(Refusal::Slow);
                }
                return if ended.has_begun { Ok(Left::Broken) } else { Err(answer) };
            }
            // Any client can ask any server for it, so the server is not blamed.
            Trouble::Closed | Trouble::Broken | Trouble::Malformed | Trouble::Late if is_tried => {
                return Err(Answer::NO_WEBSOCKET);
            }
            // The server closed an idle connection just as it was used; it has not failed.
            Trouble::Closed | Trouble::Refused => Answer::BAD_GATEWAY,
            Trouble::Cut => {
                visit.cut();
                Answer::GATEWAY_TIMEOUT
            }
            Trouble::Broken => {
                visit.failed(request, Failure::Broken);
                Answer::BAD_GATEWAY
            }
            Trouble::Malformed => {
                visit.failed(request, Failure::Malformed);
                Answer::BAD_GATEWAY
            }
            Trouble::Late => {
                // The next request gets another connection: this one's process may hang.
                if let Connection::Http2(stream) = &connection {
                    stream.give_up();
                }
                // A pause in an answer that has begun, as in a stream of events, does not show that the server has failed.
                if !ended.has_begun {
                    visit.failed(request, Failure::Late);
                }
                Answer::GATEWAY_TIMEOUT
            }
        };
        if ended.has_begun {
            return Ok(Left::Broken);
        }
        if retries_left == 0 || !replay.is_whole() || !(request.is_repeatable() || is_unprocessed) {
            return Err(answer);
        }
    }
    Err(Answer::NO_SERVER)
}

/// Sends an answer of the proxy itself, and reads what the client still sends of its body.
async fn reply<S: Service, D: Answerable>(
    worker: &Worker<S>,
    client: &mut D,
    request: &Request,
    answer: &Answer,
) -> Left {
    let limits = &worker.settings.limits();
    // A client that waits for 100 (Continue) may or may not send its body after another answer.
    let is_short = request.body_bytes().is_some_and(|bytes| bytes <= PASSED_OVER_BYTES_MAX);
    let keep = client.duplex().is_read() || is_short && !request.expects && answer.keeps();
    let sent = async {
        client.answer(answer, request, keep)?;
        poll_fn(|cx| client.duplex().poll_finish(cx, None)).await
    };
    match timeout(limits.response_timeout, sent).await {
        Ok(Ok(())) => read_on(client, request, keep, limits).await,
        _ => Left::Broken,
    }
}

/// Reads the rest of a body that is answered: on a connection that is kept, and over HTTP/2 for a moment. Some clients lose an answer
/// whose stream is reset right behind it (curl 7.88).
async fn read_on<D: Answerable>(client: &mut D, request: &Request, keep: bool, limits: &Limits) -> Left {
    let within = if keep { limits.body_timeout } else { LINGER_MAX };
    let reads = keep || request.version() == Version::Http2;
    let is_read = client.duplex().is_read()
        || reads && timeout(within, pass_over(client.duplex(), limits.body_bytes_max)).await == Ok(true);
    if is_read { Left::Clean } else { Left::Unread }
}

/// Reads the rest of a body, up to `bytes_max`; returns whether its end was reached.
async fn pass_over(body: &mut impl Duplex, bytes_max: u64) -> bool {
    let mut left = bytes_max;
    poll_fn(|cx| {
        loop {
            match body.poll_data(cx) {
                Poll::Ready(Ok(true)) => {
                    let count = body.data().len();
                    body.consume(count);
                    let Some(rest) = left.checked_sub(count as u64) else { return Poll::Ready(false) };
                    left = rest;
                }
                Poll::Ready(ended) => return Poll::Ready(ended.is_ok()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}
