//! The server's side of a request, whichever version of HTTP the server speaks.

use std::task::{Context, Poll};

use crate::client::Client;
use crate::duplex::Duplex;
use crate::request::Request;
use crate::response::Response;

/// Why no response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The server has not processed the request, so that any may be sent again.
    Refused,
    /// A kept connection was closed before a byte of the response. The server may have closed it as idle.
    Idle,
    /// The server has ended this request alone, for which the client may have given it a reason.
    Declined,
    /// The connection was closed or broken.
    Cut,
    /// What came is no valid response.
    Malformed,
}

/// A request at a server.
pub(crate) trait Upstream {
    /// Where its bodies are.
    type Duplex: Duplex;
    /// Whether the server can say that it has not processed a request.
    const REFUSES: bool;

    fn duplex(&mut self) -> &mut Self::Duplex;
    /// Queues the head of a request of `from`.
    fn begin(&mut self, request: &Request, from: &Client) -> Result<(), Lost>;
    /// Ready with whether the next response, which may be an informational one, is in `response`. If not, some of it has come.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
        response: &mut Response,
    ) -> Poll<Result<bool, Lost>>;
    /// Both directions carry bytes of another protocol from now on.
    fn tunnel(&mut self);
}
