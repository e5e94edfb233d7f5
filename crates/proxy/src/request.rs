//! The head of a request: parsed, judged, and written anew for the server.
//!
//! What RFC 9112 calls an error is refused, never guessed at. Nothing of the client's bytes is copied through: the head that
//! a server gets is built from what was parsed.

use std::mem::MaybeUninit;

use http::Method;
use http::header::{COOKIE, SEC_WEBSOCKET_KEY};

use crate::answer::Answer;
use crate::body::{Framing, has_bare_line_feed, push_decimal, push_field, push_list};
use crate::client::Client;
use crate::fields::{Field, Fields, Name, Span, elements, is_token, span_in};
use crate::websocket;

/// Most fields of a head: more than nginx and HAProxy (101) take by default.
pub(crate) const FIELDS_MAX: usize = 256;
/// Most names in the Connection field. Browsers and proxies send three at most.
const CONNECTION_NAMES_MAX: usize = 16;

/// The version of HTTP that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
}

impl Version {
    /// As in a request line and a log.
    pub const fn text(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        }
    }
}

/// A request's head.
#[derive(Debug)]
pub struct Request {
    pub(crate) fields: Fields,
    method: Method,
    target: Span,
    host: Span,
    pub(crate) version: Version,
    pub(crate) framing: Framing,
    /// Whether the client keeps the connection.
    pub(crate) keeps: bool,
    /// Whether the client waits for 100 (Continue) before it sends the body.
    pub(crate) expects: bool,
    /// Whether the client asks for another protocol on this connection.
    pub(crate) upgrades: bool,
    /// The Sec-WebSocket-Accept that the server must answer with, if the client asks for a WebSocket over HTTP/2.
    websocket_accept: Option<Span>,
    /// Names of fields that Connection lists, beside those that are never passed on.
    named: Vec<Span>,
}

impl Default for Request {
    fn default() -> Self {
        Request {
            fields: Fields::default(),
            method: Method::GET,
            target: Span::default(),
            host: Span::default(),
            version: Version::Http11,
            framing: Framing::Empty,
            keeps: true,
            expects: false,
            upgrades: false,
            websocket_accept: None,
            named: Vec::new(),
        }
    }
}

impl Request {
    /// Its method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Its target: path and query, or `*`. ASCII without spaces and control characters.
    pub fn target(&self) -> &str {
        str::from_utf8(self.fields.get(self.target)).unwrap_or_default()
    }

    /// The host that it is for, without port and without the dot of the root (RFC 3986, 3.2.2); empty if it names none.
    pub fn host(&self) -> &str {
        let host = self.authority();
        // The port, not a part of an IPv6 address.
        let host =
            host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(host, |(name, _)| name);
        host.strip_suffix('.').unwrap_or(host)
    }

    /// The host that it is for, with its port if that is given.
    pub(crate) fn authority(&self) -> &str {
        str::from_utf8(self.fields.get(self.host)).unwrap_or_default()
    }

    /// Its fields, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (field.name, field.value))
    }

    /// The version of HTTP that the client speaks.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether it has a body.
    pub fn has_body(&self) -> bool {
        self.framing != Framing::Empty
    }

    /// The length of its body, if it states one.
    pub fn body_bytes(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Parses the head at the start of `bytes` and returns its length; `None` if it is not complete.
    ///
    /// # Errors
    /// The answer to a head that is not valid. The connection must be closed after it.
    pub(crate) fn parse(&mut self, bytes: &[u8]) -> Result<Option<usize>, Answer> {
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut parsed = httparse::Request::new(&mut []);
        let len = match parsed.parse_with_uninit_headers(bytes, &mut fields) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(Answer::TOO_LARGE),
            Err(httparse::Error::Version) => return Err(version_answer(bytes)),
            Err(_) => return Err(Answer::BAD_REQUEST),
        };
        // An empty line before a request is ignored (RFC 9112, 2.2).
        let head = &bytes[..len];
        let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(Answer::BAD_REQUEST);
        };
        if has_bare_line_feed(head) {
            return Err(Answer::BAD_REQUEST);
        }
        self.fields.parsed(head, parsed.headers);
        self.method = Method::from_bytes(method.as_bytes()).map_err(|_| Answer::BAD_REQUEST)?;
        self.version = if minor == 0 { Version::Http10 } else { Version::Http11 };
        let (authority, target) = split_target(target.as_bytes(), &self.method)?;
        self.target = match target {
            // An absolute target without a path (RFC 9112, 3.2.1 and 3.2.4).
            [] if self.method == Method::OPTIONS => self.fields.keep(b"*"),
            [] => self.fields.keep(b"/"),
            [b'?', ..] => self.fields.keep(&[b"/", target].concat()),
            target => span_in(head, target),
        };
        self.judge_host(authority.map(|authority| (span_in(head, authority.text), authority.default_port)))?;
        self.judge_connection()?;
        self.framing = self.judge_framing()?;
        self.judge_expectation()?;
        Ok(Some(len))
    }

    /// Takes the head of an HTTP/2 request, whose form `h2` has checked. An extended CONNECT to a WebSocket becomes the GET that
    /// opens one over HTTP/1.1 (RFC 8441, 5).
    ///
    /// # Errors
    /// The answer to a head that is not valid.
    pub(crate) fn take(&mut self, head: &http::request::Parts, has_body: bool) -> Result<(), Answer> {
        self.fields.clear();
        self.method = head.method.clone();
        self.version = Version::Http2;
        let is_websocket = match head.extensions.get::<h2::ext::Protocol>() {
            None => false,
            Some(protocol) if protocol.as_ref().eq_ignore_ascii_case(websocket::PROTOCOL) => true,
            Some(_) => return Err(Answer::UNKNOWN_PROTOCOL),
        };
        if head.headers.len() > FIELDS_MAX {
            return Err(Answer::TOO_LARGE);
        }
        for (name, value) in &head.headers {
            // RFC 9113, 8.2.1. A server may end the request for it.
            if let [b' ' | b'\t', ..] | [.., b' ' | b'\t'] = value.as_bytes() {
                return Err(Answer::BAD_REQUEST);
            }
            if !matches!(*name, COOKIE | SEC_WEBSOCKET_KEY) {
                self.fields.push(name.as_str().as_bytes(), value.as_bytes());
            }
        }
        if is_websocket {
            self.method = Method::GET;
            let key = websocket::key().map_err(|_| Answer::NO_SERVER)?;
            self.fields.push(b"upgrade", websocket::PROTOCOL);
            self.fields.push(b"sec-websocket-key", key.as_bytes());
            self.websocket_accept = Some(self.fields.keep(websocket::accept(key.as_bytes()).as_bytes()));
        }
        // A cookie may come in several fields (RFC 9113, 8.2.3).
        let mut cookies = head.headers.get_all(COOKIE).iter().map(|value| value.as_bytes());
        if let Some(first) = cookies.next() {
            let cookie = cookies.fold(first.to_vec(), |all, next| [&all, b"; ".as_slice(), next].concat());
            self.fields.push(b"cookie", &cookie);
        }
        let target = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        if let (Some(_), _) = split_target(target.as_bytes(), &self.method)? {
            return Err(Answer::BAD_REQUEST);
        }
        self.target = self.fields.keep(target.as_bytes());
        let default_port = if head.uri.scheme_str() == Some("https") { b":443".as_slice() } else { b":80" };
        let authority =
            head.uri.authority().map(|text| (self.fields.keep(text.as_str().as_bytes()), default_port));
        self.judge_host(authority)?;
        self.named.clear();
        (self.keeps, self.upgrades) = (true, is_websocket);
        self.framing = match self.length()? {
            // What the client sends is the tunnel's, and has no length.
            None if is_websocket => Framing::Empty,
            Some(_) if is_websocket => return Err(Answer::BAD_REQUEST),
            None if !has_body => Framing::Empty,
            Some(bytes) => Framing::Length(bytes),
            None => Framing::Chunked,
        };
        self.judge_expectation()
    }

    /// RFC 9112, 3.2: one Host field at most, the same as in an absolute target; in HTTP/1.1 one at least. The default port of the
    /// target's scheme is equal to none (RFC 9110, 4.2.3).
    fn judge_host(&mut self, authority: Option<(Span, &[u8])>) -> Result<(), Answer> {
        let mut hosts = self.fields.spans(Name::Host);
        let host = hosts.next();
        if hosts.next().is_some() {
            return Err(Answer::BAD_REQUEST);
        }
        drop(hosts);
        let differ = |authority, host, port: &[u8]| {
            let [authority, host] = [authority, host].map(|span| {
                let text = self.fields.get(span);
                text.strip_suffix(port).unwrap_or(text)
            });
            !authority.eq_ignore_ascii_case(host)
        };
        let authority = match (authority, host) {
            (Some((authority, port)), Some(host)) if differ(authority, host, port) => {
                return Err(Answer::BAD_REQUEST);
            }
            (authority, _) => authority.map(|(authority, _)| authority),
        };
        self.host = match (authority, host) {
            // HTTP/1.1 demands the field even beside an absolute target.
            (Some(_), None) if self.version == Version::Http11 => return Err(Answer::BAD_REQUEST),
            (Some(host), _) | (None, Some(host)) => host,
            (None, None) if self.version == Version::Http10 => Span::default(),
            (None, None) => return Err(Answer::BAD_REQUEST),
        };
        if is_authority(self.fields.get(self.host)) { Ok(()) } else { Err(Answer::BAD_REQUEST) }
    }

    /// RFC 9110, 7.6.1: the fields that Connection names are not passed on. Fields that others rely on must not be among them.
    fn judge_connection(&mut self) -> Result<(), Answer> {
        self.named.clear();
        let (mut names, mut closes, mut keeps, mut upgrades) = (0, false, false, false);
        let mut named = Vec::new();
        for name in self.fields.values(Name::Connection).flat_map(elements) {
            names += 1;
            if names > CONNECTION_NAMES_MAX || !name.iter().all(|byte| is_token(*byte)) || is_for_all(name) {
                return Err(Answer::BAD_REQUEST);
            }
            match ConnectionOption::of(name) {
                ConnectionOption::Close => closes = true,
                ConnectionOption::KeepAlive => keeps = true,
                ConnectionOption::Upgrade => upgrades = true,
                ConnectionOption::Name => named.push(name.to_vec()),
            }
        }
        self.named.extend(named.iter().map(|name| self.fields.keep(name)));
        self.keeps = !closes && (keeps || self.version == Version::Http11);
        // HTTP/2 in clear text is spoken at once or not at all: an upgrade to it would pass by the proxy.
        let mut protocols = self.fields.values(Name::Upgrade).flat_map(elements).peekable();
        self.upgrades = upgrades
            && self.version == Version::Http11
            && protocols.peek().is_some()
            && !protocols.any(|protocol| protocol.eq_ignore_ascii_case(b"h2c"));
        Ok(())
    }

    /// RFC 9112, 6.3, without the guesses that it allows.
    fn judge_framing(&self) -> Result<Framing, Answer> {
        let length = self.length()?;
        let mut codings = self.fields.values(Name::TransferEncoding);
        let Some(coding) = codings.next() else {
            return Ok(length.map_or(Framing::Empty, Framing::Length));
        };
        if length.is_some() || self.version == Version::Http10 || codings.next().is_some() {
            return Err(Answer::BAD_REQUEST);
        }
        if coding.eq_ignore_ascii_case(b"chunked") {
            return Ok(Framing::Chunked);
        }
        // Another coding before the last may be valid, and is not known here; anything else is an error.
        let last = elements(coding).last().unwrap_or_default();
        Err(if last.eq_ignore_ascii_case(b"chunked") { Answer::NOT_IMPLEMENTED } else { Answer::BAD_REQUEST })
    }

    fn length(&self) -> Result<Option<u64>, Answer> {
        length(&self.fields).map_err(|_| Answer::BAD_REQUEST)
    }

    fn judge_expectation(&mut self) -> Result<(), Answer> {
        let mut expectations = self.fields.values(Name::Expect);
        self.expects = match expectations.next() {
            None => false,
            // RFC 9110, 10.1.1: HTTP/1.0 clients cannot mean it.
            Some(_) if self.version == Version::Http10 => false,
            Some(value) if value.eq_ignore_ascii_case(b"100-continue") && expectations.next().is_none() => {
                self.has_body()
            }
            Some(_) => return Err(Answer::EXPECTATION_FAILED),
        };
        if matches!(self.method, Method::TRACE | Method::CONNECT) {
            return Err(Answer::method_not_allowed());
        }
        Ok(())
    }

    /// How often an OPTIONS request may still be forwarded, if it says so (RFC 9110, 7.6.2).
    pub(crate) fn forwards_left(&self) -> Option<u64> {
        if self.method != Method::OPTIONS {
            return None;
        }
        decimal(self.fields.values(Name::MaxForwards).next()?)
    }

    fn is_passed_on(&self, field: &Field<'_>) -> bool {
        let by_name = match field.known {
            // They are written anew.
            Name::Host | Name::ContentLength => false,
            Name::Upgrade => self.upgrades,
            Name::Expect => self.expects,
            Name::MaxForwards => self.forwards_left().is_none(),
            known => !known.is_hop_by_hop(),
        };
        by_name && !self.named.iter().any(|name| self.fields.get(*name).eq_ignore_ascii_case(field.name))
    }

    /// See the field.
    pub(crate) fn websocket_accept(&self) -> Option<&[u8]> {
        self.websocket_accept.map(|accept| self.fields.get(accept))
    }

    /// The Sec-WebSocket-Key of a request that opens a WebSocket (RFC 6455, 4.1).
    pub(crate) fn websocket_key(&self) -> Option<&[u8]> {
        if !self.upgrades || self.method != Method::GET || self.has_body() {
            return None;
        }
        let mut protocols = self.fields.values(Name::Upgrade).flat_map(elements);
        let is_websocket =
            protocols.next()?.eq_ignore_ascii_case(websocket::PROTOCOL) && protocols.next().is_none();
        let mut keys = self.fields.iter().filter(|field| websocket::is_key(field.name));
        let key = keys.next().filter(|_| is_websocket)?;
        keys.next().is_none().then_some(key.value)
    }

    /// The values of X-Forwarded-For.
    pub(crate) fn forwarded_for(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.values(Name::ForwardedFor).filter(|value| !value.is_empty())
    }

    /// Gives `put` the fields for a server, each with its values, beside Host and those of the framing and the connection.
    pub(crate) fn forward(&self, from: &Client, mut put: impl FnMut(&[u8], &[&[u8]])) {
        let forwarding = &from.forwarding;
        let passed_on =
            |field: &Field<'_>| self.is_passed_on(field) && forwarding.passes_on(field.known, self, from);
        for field in self.fields.iter().filter(passed_on) {
            put(field.name, &[field.value]);
        }
        if let Some(forwards) = self.forwards_left() {
            let forwards = forwards.saturating_sub(1);
            put(b"max-forwards", &[itoa::Buffer::new().format(forwards).as_bytes()]);
        }
        forwarding.add(self, from, put);
    }

    /// Writes the head for a server that speaks HTTP/1; see [`Request::forward`].
    pub(crate) fn write(&self, from: &Client, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.fields.get(self.target));
        out.extend_from_slice(b" HTTP/1.1\r\n");
        push_field(out, b"host", self.fields.get(self.host));
        self.forward(from, |name, values| push_list(out, name, values));
        match self.framing {
            Framing::Length(bytes) => push_number(out, "content-length", bytes),
            Framing::Chunked => push_field(out, b"transfer-encoding", b"chunked"),
            Framing::Empty | Framing::UntilClose => {}
        }
        if self.upgrades {
            push_field(out, b"connection", b"upgrade");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Whether the client takes trailers (RFC 9110, 10.1.4).
    pub(crate) fn takes_trailers(&self) -> bool {
        self.fields.values(Name::Te).flat_map(elements).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
    }

    /// Whether it may be sent twice (RFC 9110, 9.2.2), to a server that may have begun with it.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() && !self.upgrades
    }
}

pub(crate) fn push_number(out: &mut Vec<u8>, name: &str, number: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    push_decimal(out, number);
    out.extend_from_slice(b"\r\n");
}

/// A Content-Length that no reader takes for another: one field, digits only.
pub(crate) fn length(fields: &Fields) -> Result<Option<u64>, crate::body::Malformed> {
    let mut lengths = fields.values(Name::ContentLength);
    let Some(length) = lengths.next() else { return Ok(None) };
    if lengths.next().is_some() {
        return Err(crate::body::Malformed);
    }
    decimal(length).map(Some).ok_or(crate::body::Malformed)
}

/// A number of digits only.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    // At most 18 digits, so that it cannot overflow.
    let is_number = !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// The authority of an absolute target, and the default port of its scheme, with a colon.
struct Authority<'a> {
    text: &'a [u8],
    default_port: &'static [u8],
}

/// Authority and path of a request's target (RFC 9112, 3.2).
fn split_target<'a>(target: &'a [u8], method: &Method) -> Result<(Option<Authority<'a>>, &'a [u8]), Answer> {
    // Visible ASCII. RFC 3986 allows `"`, `<` and `>` nowhere, but clients send them as they are, and servers take them. A
    // fragment is the client's alone.
    let is_clean = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
    if !target.iter().all(is_clean) {
        return Err(Answer::BAD_REQUEST);
    }
    if target.starts_with(b"/") || (target == b"*" && *method == Method::OPTIONS) {
        return Ok((None, target));
    }
    let schemes: [(&[u8], &[u8]); 2] = [(b"http://", b":80"), (b"https://", b":443")];
    let is_its = |(scheme, _): &&(&[u8], &[u8])| {
        target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let Some((scheme, default_port)) = schemes.iter().find(is_its) else {
        // CONNECT's authority; it is answered with 405.
        let authority = Authority { text: target, default_port: b"" };
        return if *method == Method::CONNECT {
            Ok((Some(authority), b"/"))
        } else {
            Err(Answer::BAD_REQUEST)
        };
    };
    let rest = &target[scheme.len()..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    if end == 0 {
        return Err(Answer::BAD_REQUEST);
    }
    Ok((Some(Authority { text: &rest[..end], default_port }), &rest[end..]))
}

/// Whether it is a host with or without port (RFC 3986, 3.2.2), or empty. User names are not allowed in it.
fn is_authority(text: &[u8]) -> bool {
    let is_host =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%');
    let (host, port) = match text {
        [b'[', ..] => {
            let Some(end) = text.iter().position(|byte| *byte == b']') else { return false };
            let is_address = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
            if !text[1..end].iter().all(is_address) {
                return false;
            }
            (&[][..], &text[end + 1..])
        }
        _ => text.split_at(text.iter().position(|byte| *byte == b':').unwrap_or(text.len())),
    };
    let is_port = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_port && host.iter().all(is_host)
}

/// An element of the Connection field (RFC 9110, 7.6.1).
pub(crate) enum ConnectionOption {
    Close,
    KeepAlive,
    Upgrade,
    /// A field that is not passed on.
    Name,
}

impl ConnectionOption {
    pub(crate) fn of(name: &[u8]) -> Self {
        match name {
            name if name.eq_ignore_ascii_case(b"close") => ConnectionOption::Close,
            name if name.eq_ignore_ascii_case(b"keep-alive") => ConnectionOption::KeepAlive,
            name if name.eq_ignore_ascii_case(b"upgrade") => ConnectionOption::Upgrade,
            _ => ConnectionOption::Name,
        }
    }
}

/// Whether the field is for all recipients, so that Connection must not name it (RFC 9110, 7.6.1): a client could hide from
/// the server what proxies tell it, or how a message is framed.
fn is_for_all(name: &[u8]) -> bool {
    const NAMES: [&str; 11] = [
        "authorization",
        "cache-control",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "max-forwards",
        "transfer-encoding",
        "via",
    ];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
        || name.get(..12).is_some_and(|start| start.eq_ignore_ascii_case(b"x-forwarded-"))
}

/// The answer to a request line whose version the parser does not know.
fn version_answer(bytes: &[u8]) -> Answer {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let is_version = matches!(words[..], [_, _, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]]
        if major.is_ascii_digit() && minor.is_ascii_digit());
    if is_version { Answer::VERSION } else { Answer::BAD_REQUEST }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Result<Request, u16> {
        let mut request = Request::default();
        match request.parse(head.as_bytes()) {
            Ok(Some(len)) => {
                assert_eq!(len, head.len(), "{head:?}");
                Ok(request)
            }
            Ok(None) => panic!("not complete: {head:?}"),
            Err(answer) => Err(answer.status),
        }
    }

    /// The head that a server gets.
    fn written(head: &str) -> String {
        let request = parsed(head).unwrap_or_else(|status| panic!("{status}: {head:?}"));
        let mut out = Vec::new();
        request.write(&Client::at("192.0.2.9"), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_head_is_written_anew() {
        let head = "GET /a?b HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\nX-Forwarded-For: 192.0.2.1\r\nConnection: x-a, close\r\n\
                    X-A: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nX-Forwarded-For: 192.0.2.2\r\nUpgrade: h2c\r\n\r\n";
        let wanted = "GET /a?b HTTP/1.1\r\nhost: a.test\r\nAccept: */*\r\n\
                      x-forwarded-for: 192.0.2.1, 192.0.2.2, 192.0.2.9\r\nx-forwarded-proto: http\r\n\r\n";
        assert_eq!(written(head), wanted);
        let head = "POST http://a.test?b HTTP/1.1\r\nHost: A.test\r\nTransfer-Encoding: Chunked\r\nExpect: 100-continue\r\n\r\n";
        let wanted = "POST /?b HTTP/1.1\r\nhost: a.test\r\nExpect: 100-continue\r\nx-forwarded-for: 192.0.2.9\r\n\
                      x-forwarded-proto: http\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(written(head), wanted);
        let head = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let wanted = "GET / HTTP/1.1\r\nhost: a.test\r\nUpgrade: websocket\r\nx-forwarded-for: 192.0.2.9\r\n\
                      x-forwarded-proto: http\r\nconnection: upgrade\r\n\r\n";
        assert_eq!(written(head), wanted);
    }

    #[test]
    fn what_readers_may_differ_on_is_refused() {
        let post = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        let of = |head: &str| parsed(head).map(|_| ()).err();
        for fields in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1, 1",
            "Content-Length: +1",
            "Content-Length: -1",
            "Content-Length: 0x1",
            "Content-Length:",
            "Content-Length: 9999999999999999999",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: chunked, identity",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding:",
            "Host: b",
            "A: b\nC: d",
            "A: b\rC: d",
            "A: b\r\n c",
            "A : b",
            " A: b",
            "A\0: b",
            "A: \0",
            ": b",
            "Connection: host",
            "Connection: x-forwarded-for",
            "Connection: content-length",
            "Connection: a b",
        ] {
            assert_eq!(of(&post(fields)), Some(400), "{fields:?}");
        }
        assert_eq!(of(&post("Transfer-Encoding: gzip, chunked")), Some(501));
        assert_eq!(of(&post("Expect: something")), Some(417));
        let many = (0..60).map(|name| format!("a{name},")).collect::<String>();
        assert_eq!(of(&post(&format!("Connection: {many}"))), Some(400));
        for line in [
            "GET a HTTP/1.1",
            "GET @a/ HTTP/1.1",
            "GET ?x HTTP/1.1",
            "GET * HTTP/1.1",
            "GET /# HTTP/1.1",
            "GET ftp://a/ HTTP/1.1",
            "GET /\t HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET  / HTTP/1.1",
            "GET /\u{e9} HTTP/1.1",
            "GET http:// HTTP/1.1",
            "GET http://u@a/ HTTP/1.1",
            "GET http://b/ HTTP/1.1",
            "GET / http/1.1",
            "GET /",
            "G(T / HTTP/1.1",
            " GET / HTTP/1.1",
        ] {
            assert_eq!(of(&format!("{line}\r\nHost: a\r\n\r\n")), Some(400), "{line:?}");
        }
        assert_eq!(of("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), Some(505));
        assert_eq!(of("GET / HTTP/1.1\r\n\r\n"), Some(400));
        assert_eq!(of("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), Some(400));
        assert_eq!(of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Some(400));
        for method in ["TRACE", "CONNECT"] {
            assert_eq!(of(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")), Some(405));
        }
    }

    #[test]
    fn a_target_is_passed_on_as_clients_write_it() {
        let written = written("GET /api?filter={\"a\":<1>} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(written.starts_with("GET /api?filter={\"a\":<1>} HTTP/1.1\r\n"), "{written}");
    }

    #[test]
    fn the_host_is_without_its_port() {
        let hosts = ["a.test:80", "a.test.", "[::1]:80", "[::1]", ""];
        let host =
            |host| parsed(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).unwrap().host().to_owned();
        assert_eq!(hosts.map(host), ["a.test", "a.test", "[::1]", "[::1]", ""]);
        assert_eq!(parsed("GET http://a.test:8/x HTTP/1.0\r\n\r\n").unwrap().host(), "a.test");
        let same = |target, host| parsed(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).err();
        assert_eq!(same("http://a.test:80/x", "a.test"), None);
        assert_eq!(same("http://a.test/x", "A.test:80"), None);
        assert_eq!(same("https://a.test:443/x", "a.test"), None);
        assert_eq!(same("https://a.test:80/x", "a.test"), Some(400));
        assert_eq!(same("http://a.test:81/x", "a.test"), Some(400));
    }

    #[test]
    fn a_connection_is_kept_as_its_version_and_client_say() {
        let keeps =
            |version, fields| parsed(&format!("GET / {version}\r\nHost: a\r\n{fields}\r\n")).unwrap().keeps;
        assert!(keeps("HTTP/1.1", "") && keeps("HTTP/1.0", "Connection: Keep-Alive\r\n"));
        assert!(
            !keeps("HTTP/1.0", "") && !keeps("HTTP/1.1", "Connection: keep-alive\r\nConnection: close\r\n")
        );
    }
}
