//! The head of a server's response: parsed, judged, and written anew for the client.

use std::mem::MaybeUninit;

use http::Method;

use crate::answer::push_status;
use crate::body::{Framing, Malformed, has_bare_line_feed, push_field};
use crate::date;
use crate::fields::{Field, Fields, Name, Span, elements, span_in};
use crate::request::{ConnectionOption, FIELDS_MAX, Request, Version, length, push_number};
use crate::websocket;

/// Most bytes of a response's head.
pub(crate) const HEAD_BYTES_MAX: usize = 256 << 10;

/// A response's head.
#[derive(Debug)]
pub(crate) struct Response {
    fields: Fields,
    pub(crate) status: u16,
    reason: Span,
    pub(crate) framing: Framing,
    /// Whether the server keeps the connection.
    pub(crate) keeps: bool,
    /// What Content-Length says, also where no body follows.
    length: Option<u64>,
    /// Whether trailers may follow a body of known length.
    may_have_trailers: bool,
    named: Vec<Span>,
}

impl Default for Response {
    fn default() -> Self {
        Response {
            fields: Fields::default(),
            status: 0,
            reason: Span::default(),
            framing: Framing::Empty,
            keeps: false,
            length: None,
            may_have_trailers: false,
            named: Vec::new(),
        }
    }
}

impl Response {
    /// Parses the head at the start of `bytes`, an answer to `request`, and returns its length; `None` if it is not complete.
    pub(crate) fn parse(&mut self, bytes: &[u8], request: &Request) -> Result<Option<usize>, Malformed> {
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let len = match config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut fields) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
            _ => return Err(Malformed),
        };
        let head = &bytes[..len];
        let (Some(status), Some(minor)) = (parsed.code, parsed.version) else { return Err(Malformed) };
        if has_bare_line_feed(head) || !(100..600).contains(&status) || !head.starts_with(b"HTTP/1.") {
            return Err(Malformed);
        }
        self.fields.parsed(head, parsed.headers);
        self.status = status;
        self.reason = span_in(head, parsed.reason.unwrap_or_default().as_bytes());
        self.judge_connection(minor == 1);
        self.length = length(&self.fields)?;
        self.may_have_trailers = false;
        self.framing = self.judge_framing(request, minor == 1)?;
        self.add_date();
        // A server that announces a body where there is none may send one (RFC 9110, 8.6).
        let announces =
            self.length.unwrap_or(0) > 0 || self.fields.values(Name::TransferEncoding).next().is_some();
        self.keeps &= self.framing != Framing::UntilClose && !(self.status == 204 && announces);
        Ok(Some(len))
    }

    /// Takes the head of an HTTP/2 response to `request`, whose form `h2` has checked. A body follows if it `has_body`.
    pub(crate) fn take(
        &mut self,
        head: &http::response::Parts,
        has_body: bool,
        request: &Request,
    ) -> Result<(), Malformed> {
        if head.headers.len() > FIELDS_MAX {
            return Err(Malformed);
        }
        self.fields.clear();
        self.named.clear();
        for (name, value) in &head.headers {
            self.fields.push(name.as_str().as_bytes(), value.as_bytes());
        }
        self.status = head.status.as_u16();
        // RFC 9113, 8.6: there is no change of protocols.
        if self.status == 101 || self.status >= 600 {
            return Err(Malformed);
        }
        self.reason = Span::default();
        self.length = length(&self.fields)?;
        self.keeps = true;
        self.may_have_trailers = has_body;
        self.framing = match self.length {
            _ if self.has_no_body(request) => Framing::Empty,
            Some(bytes) => Framing::Length(bytes),
            None if has_body => Framing::Chunked,
            None => Framing::Length(0),
        };
        self.add_date();
        Ok(())
    }

    /// Makes the 2xx by which an HTTP/2 server opens a WebSocket (RFC 8441, 5) the 101 of RFC 6455, 4.2.2.
    pub(crate) fn switch(&mut self, accept: &str) {
        self.fields.remove(Name::WebSocketAccept);
        self.fields.push(b"connection", b"upgrade");
        self.fields.push(b"upgrade", websocket::PROTOCOL);
        self.fields.push(b"sec-websocket-accept", accept.as_bytes());
        (self.status, self.framing, self.length) = (101, Framing::Empty, None);
    }

    /// RFC 9110, 6.6.1: who receives an answer without a date adds one.
    fn add_date(&mut self) {
        if !self.is_informational() && self.fields.values(Name::Date).next().is_none() {
            self.fields.push(b"date", &date::now());
        }
    }

    /// Bytes of the head, about.
    pub(crate) fn head_bytes(&self) -> usize {
        self.fields.bytes()
    }

    /// Whether it is a stream of events, which comes in pieces with pauses of any length (HTML, 9.2.5).
    pub(crate) fn is_of_events(&self) -> bool {
        let is_so = |value: &[u8]| {
            let kind = value.split(|byte| *byte == b';').next().unwrap_or_default();
            kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
        };
        self.fields.values(Name::ContentType).any(is_so)
    }

    pub(crate) fn is_informational(&self) -> bool {
        self.status < 200
    }

    fn judge_connection(&mut self, is_http11: bool) {
        let (mut closes, mut keeps) = (false, is_http11);
        let mut named = Vec::new();
        for name in self.fields.values(Name::Connection).flat_map(elements) {
            match ConnectionOption::of(name) {
                ConnectionOption::Close => closes = true,
                ConnectionOption::KeepAlive => keeps = true,
                ConnectionOption::Upgrade => {}
                ConnectionOption::Name => named.push(name.to_vec()),
            }
        }
        self.keeps = keeps && !closes;
        self.named.clear();
        self.named.extend(named.iter().map(|name| self.fields.keep(name)));
    }

    /// Whether the client can be told so. Where it asks for a WebSocket over HTTP/2, any 2xx would say that it is open, and a 101
    /// must be for this very request (RFC 6455, 4.1).
    pub(crate) fn fits(&self, request: &Request) -> bool {
        let Some(accept) = request.websocket_accept() else { return true };
        let is_all = |name: Name, wanted: &[u8]| {
            let mut found = self.fields.values(name).flat_map(elements);
            found.next().is_some_and(|first| first.eq_ignore_ascii_case(wanted)) && found.next().is_none()
        };
        let is_upgrade = |option| matches!(ConnectionOption::of(option), ConnectionOption::Upgrade);
        let opens = || {
            is_all(Name::Upgrade, websocket::PROTOCOL)
                && self.fields.values(Name::Connection).flat_map(elements).any(is_upgrade)
                && self.fields.values(Name::WebSocketAccept).eq([accept])
        };
        match self.status {
            101 => opens(),
            status => !(200..300).contains(&status),
        }
    }

    /// RFC 9112, 6.3, without the guesses that it allows.
    fn judge_framing(&self, request: &Request, is_http11: bool) -> Result<Framing, Malformed> {
        let mut codings = self.fields.values(Name::TransferEncoding);
        let coding = codings.next();
        if self.has_no_body(request) {
            return Ok(Framing::Empty);
        }
        match (coding, self.length) {
            (None, Some(bytes)) => Ok(Framing::Length(bytes)),
            (None, None) => Ok(Framing::UntilClose),
            (Some(coding), None)
                if is_http11 && codings.next().is_none() && coding.eq_ignore_ascii_case(b"chunked") =>
            {
                Ok(Framing::Chunked)
            }
            _ => Err(Malformed),
        }
    }

    fn has_no_body(&self, request: &Request) -> bool {
        *request.method() == Method::HEAD || self.is_informational() || matches!(self.status, 204 | 304)
    }

    fn is_passed_on(&self, field: &Field<'_>) -> bool {
        let by_name = match field.known {
            Name::ContentLength => false,
            // RFC 9110, 15.5.22: of a 426 it says to which protocol.
            Name::Upgrade => matches!(self.status, 101 | 426),
            known => !known.is_hop_by_hop(),
        };
        by_name && !self.named.iter().any(|name| self.fields.get(*name).eq_ignore_ascii_case(field.name))
    }

    /// The fields that the client gets.
    pub(crate) fn passed_on(&self) -> impl Iterator<Item = Field<'_>> {
        self.fields.iter().filter(|field| self.is_passed_on(field))
    }

    /// The length that the client is told: of the body that follows, or that would follow a GET (RFC 9110, 8.6).
    pub(crate) fn told_length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(bytes) => Some(bytes),
            Framing::Empty if !self.is_informational() && self.status != 204 => self.length,
            _ => None,
        }
    }

    /// Bytes of the body after which nothing follows, if that is known.
    pub(crate) fn ends_after(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(bytes) if !self.may_have_trailers => Some(bytes),
            _ => None,
        }
    }

    /// How the body is framed for a client of HTTP/1.
    pub(crate) fn framing_for(&self, version: Version) -> Framing {
        match self.framing {
            Framing::UntilClose | Framing::Chunked if version == Version::Http10 => Framing::UntilClose,
            Framing::UntilClose => Framing::Chunked,
            framing => framing,
        }
    }

    /// Writes it for a client of HTTP/1 that speaks `version`.
    pub(crate) fn write(&self, version: Version, keep: bool, out: &mut Vec<u8>) {
        push_status(out, self.status, Some(self.fields.get(self.reason)));
        for field in self.passed_on() {
            push_field(out, field.name, field.value);
        }
        if let Some(bytes) = self.told_length() {
            push_number(out, "content-length", bytes);
        }
        if self.framing_for(version) == Framing::Chunked {
            push_field(out, b"transfer-encoding", b"chunked");
        }
        match (self.status, keep, version) {
            (101, ..) => push_field(out, b"connection", b"upgrade"),
            (100..200, ..) => {}
            (426, true, _) => push_field(out, b"connection", b"upgrade"),
            (426, false, _) => push_field(out, b"connection", b"upgrade, close"),
            (_, false, _) => push_field(out, b"connection", b"close"),
            (_, true, Version::Http10) => push_field(out, b"connection", b"keep-alive"),
            (_, true, _) => {}
        }
        out.extend_from_slice(b"\r\n");
    }
}
