//! HTTP/1 on a connection: bytes in and out, and the framing of the bodies in them. Both sides of the proxy use it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite as _;

use crate::body::{Decoder, Encoder, Framing, Malformed, Next};
use crate::buffer::Buffer;
use crate::client::Client;
use crate::duplex::Duplex;
use crate::fields::Fields;
use crate::free_list::{self, BYTES_FREE};
use crate::io::Io;
use crate::request::Request;
use crate::response::Response;
use crate::upstream::{Lost, Upstream};

/// Why a body could not be read to its end.
#[derive(Debug)]
pub(crate) enum BodyError {
    Malformed,
    /// The connection was closed or broken before.
    Cut,
    /// The other side has ended this message alone, over HTTP/2.
    Declined,
}

impl From<Malformed> for BodyError {
    fn from(Malformed: Malformed) -> Self {
        BodyError::Malformed
    }
}

/// A connection that speaks HTTP/1.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) io: Io,
    pub(crate) input: Buffer,
    decoder: Decoder,
    /// Whether it was used before, and no byte has come since.
    pub(crate) is_kept: bool,
    /// Bytes of the body at the start of `input`.
    data: usize,
    /// Head and framing that are not sent yet, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    encoder: Encoder,
}

impl Wire {
    pub(crate) fn new(io: Io) -> Self {
        Wire {
            io,
            input: Buffer::default(),
            is_kept: false,
            decoder: Decoder::new(Framing::Empty),
            data: 0,
            output: Vec::new(),
            sent: 0,
            encoder: Encoder::default(),
        }
    }

    /// The next message that is read has a body of this framing.
    pub(crate) fn expect(&mut self, framing: Framing) {
        self.decoder = Decoder::new(framing);
        self.data = 0;
    }

    /// Reads more bytes; 0 at the end of the stream. A full buffer grows.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.is_full() {
            self.input.grow();
        }
        self.io.poll_fill(cx, &mut self.input)
    }

    /// Room for a head. Its body follows in this framing.
    pub(crate) fn frame(&mut self, framing: Framing) -> &mut Vec<u8> {
        self.encoder = Encoder::new(framing);
        free_list::take(&BYTES_FREE, &mut self.output);
        &mut self.output
    }

    /// All of the output is sent.
    fn clear(&mut self) {
        free_list::give(&BYTES_FREE, &mut self.output);
        self.sent = 0;
    }
}

impl Duplex for Wire {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        loop {
            match self.decoder.next(&mut self.input)? {
                Next::Data(count) => {
                    self.data = count;
                    return Poll::Ready(Ok(true));
                }
                Next::End => return Poll::Ready(Ok(false)),
                Next::Wait => match ready!(self.poll_fill(cx)) {
                    Ok(0) if self.decoder.closed() => return Poll::Ready(Ok(false)),
                    Ok(0) | Err(_) => return Poll::Ready(Err(BodyError::Cut)),
                    Ok(_) => {}
                },
            }
        }
    }

    fn data(&self) -> &[u8] {
        &self.input.bytes()[..self.data]
    }

    fn consume(&mut self, count: usize) {
        self.data -= count;
        self.decoder.used(count);
        self.input.consume(count);
    }

    fn is_read(&self) -> bool {
        self.decoder.is_at_end()
    }

    fn trailers(&self) -> Option<&Fields> {
        self.decoder.trailers()
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let room = self.encoder.begin(data.len(), &mut self.output);
        let data = &data[..room];
        loop {
            let queued = &self.output[self.sent..];
            let io = Pin::new(&mut self.io);
            let sent = if queued.is_empty() {
                io.poll_write(cx, data)
            } else {
                io.poll_write_vectored(cx, &[IoSlice::new(queued), IoSlice::new(data)])
            };
            let sent = ready!(sent)?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_data = sent.saturating_sub(queued.len());
            self.sent += sent - of_data;
            if self.sent == self.output.len() {
                self.clear();
                if of_data > 0 {
                    self.encoder.wrote(of_data);
                    return Poll::Ready(Ok(of_data));
                }
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.output.len() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, &self.output[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.clear();
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>, trailers: Option<&Fields>) -> Poll<io::Result<()>> {
        self.encoder.end(trailers, &mut self.output);
        self.poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl Upstream for Wire {
    type Duplex = Self;
    const REFUSES: bool = false;

    fn duplex(&mut self) -> &mut Self {
        self
    }

    fn begin(&mut self, request: &Request, from: &Client) -> Result<(), Lost> {
        let framing = if request.framing == Framing::Chunked { Framing::Chunked } else { Framing::Empty };
        request.write(from, self.frame(framing));
        Ok(())
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
        response: &mut Response,
    ) -> Poll<Result<bool, Lost>> {
        let parsed = match self.input.bytes() {
            [] => None,
            bytes => response.parse(bytes, request).map_err(|_| Lost::Malformed)?,
        };
        let Some(len) = parsed else {
            return Poll::Ready(match ready!(self.poll_fill(cx)) {
                Ok(1..) => Ok(false),
                _ if self.is_kept && self.input.is_empty() => Err(Lost::Idle),
                _ => Err(Lost::Cut),
            });
        };
        self.is_kept = false;
        self.input.consume(len);
        if !response.is_informational() {
            self.expect(response.framing);
        }
        Poll::Ready(Ok(true))
    }

    fn tunnel(&mut self) {
        self.expect(Framing::UntilClose);
        self.frame(Framing::UntilClose);
    }
}
