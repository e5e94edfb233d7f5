//! An answer that the service has, in place of a server's.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::client::Client;
use crate::duplex::Duplex;
use crate::fields::Fields;
use crate::request::Request;
use crate::response::Response;
use crate::upstream::{Lost, Upstream};
use crate::wire::BodyError;

/// A request without a body, whose answer is there, as a server over HTTP/1 would send it. It is passed on under the same limits
/// as a server's.
pub(crate) struct Stored {
    /// What was not passed on.
    left: Bytes,
}

impl Stored {
    pub(crate) fn new(answer: Bytes) -> Self {
        Stored { left: answer }
    }
}

impl Upstream for Stored {
    type Duplex = Self;
    const REFUSES: bool = false;

    fn duplex(&mut self) -> &mut Self {
        self
    }

    fn begin(&mut self, _request: &Request, _from: &Client) -> Result<(), Lost> {
        Ok(())
    }

    fn poll_head(
        &mut self,
        _cx: &mut Context<'_>,
        request: &Request,
        response: &mut Response,
    ) -> Poll<Result<bool, Lost>> {
        let parsed = response.parse(&self.left, request).map_err(|_| Lost::Malformed)?;
        let Some(len) = parsed else { return Poll::Ready(Err(Lost::Cut)) };
        self.consume(len);
        Poll::Ready(Ok(true))
    }

    fn tunnel(&mut self) {}
}

impl Duplex for Stored {
    fn poll_data(&mut self, _cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        Poll::Ready(Ok(!self.left.is_empty()))
    }

    fn data(&self) -> &[u8] {
        &self.left
    }

    fn consume(&mut self, count: usize) {
        self.left = self.left.slice(count..);
    }

    fn is_read(&self) -> bool {
        self.left.is_empty()
    }

    fn trailers(&self) -> Option<&Fields> {
        None
    }

    fn poll_send(&mut self, _cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_finish(&mut self, _cx: &mut Context<'_>, _trailers: Option<&Fields>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
