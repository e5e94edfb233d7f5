//! A body that is received and one that is sent, on one connection or stream.

use std::io;
use std::task::{Context, Poll};

use crate::fields::Fields;
use crate::wire::BodyError;

/// Both bodies of a message exchange, seen from one side of the proxy.
pub(crate) trait Duplex {
    /// Ready with whether there are bytes of the body to [use](Self::data), or its end was reached.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>>;
    /// Bytes of the body.
    fn data(&self) -> &[u8];
    /// `count` bytes of the body are used.
    fn consume(&mut self, count: usize);
    /// Whether the body was read to its end.
    fn is_read(&self) -> bool;
    /// The trailers behind the body.
    fn trailers(&self) -> Option<&Fields>;

    /// Sends what is queued and then some of `data`, which is not empty; returns how much of it.
    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>>;
    /// Sends what is queued.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Sends what is queued and the end of the body.
    fn poll_finish(&mut self, cx: &mut Context<'_>, trailers: Option<&Fields>) -> Poll<io::Result<()>>;
    /// Sends what is queued and ends this direction of a tunnel.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}
