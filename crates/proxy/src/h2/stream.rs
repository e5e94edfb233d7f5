//! The halves of an HTTP/2 stream, at a client as at a server.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::body::judge_trailers;
use crate::duplex::Duplex;
use crate::fields::{Field, Fields};
use crate::wire::BodyError;

/// Bytes of a body that wait to be sent, by stream. More would only cost memory.
pub(crate) const SEND_BUFFER_BYTES: usize = 32 << 10;
/// Bytes that a body may send ahead of what the other side takes: the protocol's default (RFC 9113, 6.5.2).
pub(crate) const WINDOW_BYTES: u32 = (64 << 10) - 1;

/// The half that is received: a body and its trailers.
pub(crate) struct Receiver {
    stream: RecvStream,
    data: Bytes,
    has_ended: bool,
    trailers: Option<Fields>,
}

impl Receiver {
    pub(crate) fn new(stream: RecvStream) -> Self {
        let has_ended = stream.is_end_stream();
        Receiver { stream, data: Bytes::new(), has_ended, trailers: None }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        while self.data.is_empty() && !self.has_ended {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    self.data = data;
                    // The end that came with the last bytes need not be waited for.
                    self.has_ended = self.stream.is_end_stream();
                }
                Some(Err(error)) if error.is_reset() && error.is_remote() => {
                    return Poll::Ready(Err(BodyError::Declined));
                }
                Some(Err(_)) => return Poll::Ready(Err(BodyError::Cut)),
                None => {
                    let trailers = ready!(self.stream.poll_trailers(cx)).map_err(|_| BodyError::Cut)?;
                    if let Some(trailers) = trailers {
                        let mut fields = Fields::default();
                        for (name, value) in &trailers {
                            fields.push(name.as_str().as_bytes(), value.as_bytes());
                        }
                        judge_trailers(&fields)?;
                        self.trailers = Some(fields);
                    }
                    self.has_ended = true;
                }
            }
        }
        Poll::Ready(Ok(!self.data.is_empty()))
    }

    fn consume(&mut self, count: usize) {
        self.data.advance(count);
        // It fails only if more is released than was received.
        let _ = self.stream.flow_control().release_capacity(count);
    }
}

/// The half that is sent.
pub(crate) struct Sender {
    stream: SendStream<Bytes>,
    /// Bytes after which nothing follows, if that is known: the last of them carry the end, which saves a frame.
    left: Option<u64>,
}

impl Sender {
    pub(crate) fn new(stream: SendStream<Bytes>, left: Option<u64>) -> Self {
        Sender { stream, left }
    }

    /// Sends some of `data`, and returns how much.
    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.reserve_capacity(data.len());
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let count = self.stream.capacity().min(data.len());
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(count as u64);
        }
        let sent = self.stream.send_data(Bytes::copy_from_slice(&data[..count]), self.left == Some(0));
        Poll::Ready(sent.map(|()| count).map_err(io::Error::other))
    }

    /// Sends the end.
    fn finish(&mut self, trailers: Option<&Fields>) -> io::Result<()> {
        match trailers {
            _ if self.left == Some(0) => Ok(()),
            Some(trailers) => self.stream.send_trailers(map(trailers.iter())?).map_err(io::Error::other),
            None => self.stream.send_data(Bytes::new(), true).map_err(io::Error::other),
        }
    }

    pub(crate) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_reset(cx).map(drop)
    }

    pub(crate) fn reset(&mut self, reason: h2::Reason) {
        self.stream.send_reset(reason);
    }
}

/// A stream, as far as it has begun.
#[derive(Default)]
pub(crate) struct Halves {
    pub(crate) receiver: Option<Receiver>,
    pub(crate) sender: Option<Sender>,
}

impl Duplex for Halves {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        self.receiver.as_mut().map_or(Poll::Ready(Ok(false)), |receiver| receiver.poll_data(cx))
    }

    fn data(&self) -> &[u8] {
        self.receiver.as_ref().map_or(&[], |receiver| &receiver.data)
    }

    fn consume(&mut self, count: usize) {
        if let Some(receiver) = &mut self.receiver {
            receiver.consume(count);
        }
    }

    fn is_read(&self) -> bool {
        self.receiver.as_ref().is_none_or(|receiver| receiver.has_ended && receiver.data.is_empty())
    }

    fn trailers(&self) -> Option<&Fields> {
        self.receiver.as_ref()?.trailers.as_ref()
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.sender {
            Some(sender) => sender.poll_send(cx, data),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection's task sends. A client that has ended its half of a tunnel leaves by a reset alone.
        match self.sender.as_mut().map(|sender| sender.poll_reset(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_finish(&mut self, _cx: &mut Context<'_>, trailers: Option<&Fields>) -> Poll<io::Result<()>> {
        Poll::Ready(self.sender.take().map_or(Ok(()), |mut sender| sender.finish(trailers)))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_finish(cx, None)
    }
}

/// Fields as `h2` takes them.
pub(crate) fn map<'a>(fields: impl Iterator<Item = Field<'a>>) -> io::Result<HeaderMap> {
    let mut map = HeaderMap::with_capacity(fields.size_hint().0);
    for field in fields {
        append(&mut map, field.name, field.value)?;
    }
    Ok(map)
}

pub(crate) fn append(map: &mut HeaderMap, name: &[u8], value: &[u8]) -> io::Result<()> {
    let name = HeaderName::from_bytes(name).map_err(io::Error::other)?;
    map.append(name, HeaderValue::from_bytes(value).map_err(io::Error::other)?);
    Ok(())
}
