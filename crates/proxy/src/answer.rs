//! Answers of the proxy itself.

use std::borrow::Cow;

use crate::body::push_field;
use crate::date;

/// An answer in place of a server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Fields beside those that every answer has.
    pub fields: Vec<(&'static str, Cow<'static, str>)>,
    /// Its text, for people.
    pub text: &'static str,
}

macro_rules! answers {
    ($($name:ident = $status:literal $text:literal;)+) => {
        $(pub(crate) const $name: Answer = Answer::new($status, concat!($status, " ", $text, "\n"));)+
    };
}

impl Answer {
    answers! {
        BAD_REQUEST = 400 "Bad Request";
        TOO_SLOW = 408 "Request Timeout";
        BODY_TOO_LARGE = 413 "Content Too Large";
        EXPECTATION_FAILED = 417 "Expectation Failed";
        TOO_LARGE = 431 "Request Header Fields Too Large";
        NOT_IMPLEMENTED = 501 "Not Implemented: an unknown transfer coding";
        UNKNOWN_PROTOCOL = 501 "Not Implemented: an unknown protocol";
        BAD_GATEWAY = 502 "Bad Gateway: the server failed or sent no valid answer";
        NO_WEBSOCKET = 502 "Bad Gateway: the server opens no WebSocket here";
        NO_SERVER = 503 "Service Unavailable: no server is available";
        GATEWAY_TIMEOUT = 504 "Gateway Timeout: the server did not answer in time";
        VERSION = 505 "HTTP Version Not Supported";
        LOOP_DETECTED = 508 "Loop Detected: the request has passed this proxy before";
    }

    /// An answer without further fields.
    pub const fn new(status: u16, text: &'static str) -> Self {
        Answer { status, fields: Vec::new(), text }
    }

    /// The answer to a client beyond the limit on connections.
    pub(crate) fn full() -> Self {
        let fields = vec![("retry-after", "1".into())];
        Answer { fields, ..Answer::new(503, "503 Service Unavailable: too many connections\n") }
    }

    /// The answer to TRACE and CONNECT, which are never forwarded.
    pub(crate) fn method_not_allowed() -> Self {
        let fields = vec![("allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS".into())];
        Answer { fields, ..Answer::new(405, "405 Method Not Allowed\n") }
    }

    /// The answer to OPTIONS that must not be forwarded (RFC 9110, 7.6.2).
    pub(crate) const fn last_stop() -> Self {
        Answer::new(204, "")
    }

    /// Whether the connection can be kept: the request was understood, and the client can be trusted to end it.
    pub(crate) fn keeps(&self) -> bool {
        !matches!(self.status, 400 | 408 | 413 | 431 | 501 | 505)
    }

    pub(crate) fn has_text(&self) -> bool {
        !self.text.is_empty()
    }

    /// Its fields, with its date and those of its text.
    pub(crate) fn all_fields(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        let own = self.fields.iter().map(|(name, value)| (*name, Cow::Borrowed(&**value)));
        let of_text = self.has_text().then(|| {
            let length = self.text.len().to_string();
            [("content-type", "text/plain; charset=utf-8".into()), ("content-length", length.into())]
        });
        let date = String::from_utf8_lossy(&date::now()).into_owned();
        [("date", date.into())].into_iter().chain(own).chain(of_text.into_iter().flatten())
    }

    /// Writes it for HTTP/1. A HEAD request is answered without the text.
    pub(crate) fn write(&self, keep: bool, with_text: bool, out: &mut Vec<u8>) {
        push_status(out, self.status, None);
        for (name, value) in self.all_fields() {
            push_field(out, name.as_bytes(), value.as_bytes());
        }
        if !keep {
            push_field(out, b"connection", b"close");
        }
        out.extend_from_slice(b"\r\n");
        if with_text {
            out.extend_from_slice(self.text.as_bytes());
        }
    }
}

/// Writes a status line, with the usual reason phrase if none is given.
pub(crate) fn push_status(out: &mut Vec<u8>, status: u16, reason: Option<&[u8]>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    crate::body::push_decimal(out, status.into());
    out.push(b' ');
    let usual = || http::StatusCode::from_u16(status).ok()?.canonical_reason();
    out.extend_from_slice(reason.unwrap_or_else(|| usual().unwrap_or_default().as_bytes()));
    out.extend_from_slice(b"\r\n");
}
