//! Requests that RFC 9113 calls malformed: they end with an error of the stream or the connection, or with 400, and the
//! server sees nothing of them.

use super::frames::{self, END_HEADERS, END_STREAM, Field, HEADERS, Reaction};
use super::{Case, Place};
use crate::conformance::case::Reaches;

const CONNECT: Field<'_> = (":method", "CONNECT");
const PROTOCOL: Field<'_> = (":protocol", "websocket");
const METHOD: Field<'_> = (":method", "GET");
const SCHEME: Field<'_> = (":scheme", "http");
const PATH: Field<'_> = (":path", "/@");
const AUTHORITY: Field<'_> = (":authority", "alpha.test");

/// Fields that must not be in a request.
const FIELDS: &[(&str, Field<'_>)] = &[
    ("9113-8.2.2: Connection", ("connection", "close")),
    ("9113-8.2.2: Connection that names a field", ("connection", "x-a")),
    ("9113-8.2.2: Keep-Alive", ("keep-alive", "timeout=5")),
    ("9113-8.2.2: Proxy-Connection", ("proxy-connection", "keep-alive")),
    ("9113-8.2.2: Transfer-Encoding", ("transfer-encoding", "chunked")),
    ("9113-8.2.2: Upgrade", ("upgrade", "websocket")),
    ("9113-8.2.2: TE other than trailers", ("te", "gzip")),
    ("9113-8.2.1: a capital in a name", ("X-A", "b")),
    ("9113-8.2.1: a space in a name", ("x a", "b")),
    ("9113-8.2.1: a colon in a name", ("x:a", "b")),
    ("9113-8.2.1: an empty name", ("", "b")),
    ("9113-8.2.1: NUL in a name", ("x\0a", "b")),
    ("9113-8.2.1: CR LF in a name", ("x-a: b\r\nx-b", "c")),
    ("9113-8.2.1: a byte past ASCII in a name", ("x-\u{e9}", "b")),
    ("9113-8.2.1: NUL in a value", ("x-a", "a\0b")),
    ("9113-8.2.1: CR LF in a value", ("x-a", "a\r\nx-b: c")),
    (
        "9113-8.2.1: a request in a value",
        ("x-a", "b\r\n\r\nGET /@smuggled HTTP/1.1\r\nHost: alpha.test\r\n\r\n"),
    ),
    ("9113-8.2.1: a line feed alone in a value", ("x-a", "a\nx-b: c")),
    ("9113-8.2.1: a bare CR in a value", ("x-a", "a\rb")),
    ("9113-8.3: an unknown pseudo-header", (":unknown", "b")),
    ("9113-8.3: an answer's pseudo-header", (":status", "200")),
    ("9113-8.3: a pseudo-header after a field", (":path", "/@")),
    ("9113-8.1.1: a length of a request without a body", ("content-length", "5")),
    ("9113-8.1.1: a length that is none", ("content-length", "+0")),
    ("9113-8.3.1: a Host that differs from the authority", ("host", "evil.test")),
    ("9113-8.5: a protocol without CONNECT", (":protocol", "websocket")),
];

/// Whole field lists.
const LISTS: &[(&str, &[Field<'_>])] = &[
    ("9113-8.3.1: no method", &[SCHEME, PATH, AUTHORITY]),
    ("9113-8.3.1: no scheme", &[METHOD, PATH, AUTHORITY]),
    ("9113-8.3.1: no path", &[METHOD, SCHEME, AUTHORITY, ("x-case", "/@")]),
    ("9113-8.3.1: an empty path", &[METHOD, SCHEME, (":path", ""), AUTHORITY, ("x-case", "/@")]),
    ("9113-8.3.1: a path without its slash", &[METHOD, SCHEME, (":path", "a"), AUTHORITY, ("x-case", "/@")]),
    (
        "9113-8.3.1: an asterisk that is no OPTIONS",
        &[METHOD, SCHEME, (":path", "*"), AUTHORITY, ("x-case", "/@")],
    ),
    ("9113-8.3.1: an absolute path", &[METHOD, SCHEME, (":path", "http://evil.test/@"), AUTHORITY]),
    ("9113-8.3.1: a space in the path", &[METHOD, SCHEME, (":path", "/@ HTTP/1.1"), AUTHORITY]),
    (
        "9113-8.3.1: CR LF in the path",
        &[METHOD, SCHEME, (":path", "/@ HTTP/1.1\r\nx-a: b\r\n\r\n"), AUTHORITY],
    ),
    ("9113-8.3.1: NUL in the path", &[METHOD, SCHEME, (":path", "/@\0"), AUTHORITY]),
    ("9113-8.3.1: a path twice", &[METHOD, SCHEME, PATH, PATH, AUTHORITY]),
    ("9113-8.3.1: a method twice", &[METHOD, METHOD, SCHEME, PATH, AUTHORITY]),
    ("9113-8.3.1: an authority twice", &[METHOD, SCHEME, PATH, AUTHORITY, AUTHORITY]),
    ("9113-8.3.1: a space in the method", &[(":method", "GET /x"), SCHEME, PATH, AUTHORITY]),
    ("9113-8.3.1: CR LF in the method", &[(":method", "GET /@ HTTP/1.1\r\nx:"), SCHEME, PATH, AUTHORITY]),
    ("9113-8.3.1: an empty method", &[(":method", ""), SCHEME, PATH, AUTHORITY]),
    ("9113-8.3.1: a user in the authority", &[METHOD, SCHEME, PATH, (":authority", "user@alpha.test")]),
    ("9113-8.3.1: CR LF in the authority", &[METHOD, SCHEME, PATH, (":authority", "alpha.test\r\nx-a: b")]),
    ("9113-8.3.1: a slash in the authority", &[METHOD, SCHEME, PATH, (":authority", "alpha.test/evil")]),
    ("9113-8.3.1: neither authority nor Host", &[METHOD, SCHEME, PATH]),
    ("9113-8.3.1: two Hosts", &[METHOD, SCHEME, PATH, ("host", "alpha.test"), ("host", "alpha.test")]),
    ("8441-4: a WebSocket without a path", &[CONNECT, SCHEME, AUTHORITY, PROTOCOL, ("x-case", "/@")]),
    ("8441-4: a WebSocket without a scheme", &[CONNECT, PATH, AUTHORITY, PROTOCOL]),
    (
        "8441-4: a WebSocket to an asterisk",
        &[CONNECT, SCHEME, (":path", "*"), AUTHORITY, PROTOCOL, ("x-case", "/@")],
    ),
    ("8441-4: two protocols", &[CONNECT, SCHEME, PATH, AUTHORITY, PROTOCOL, PROTOCOL]),
    (
        "9113-8.1.1: two lengths",
        &[METHOD, SCHEME, PATH, AUTHORITY, ("content-length", "0"), ("content-length", "1")],
    ),
];

/// What a case sends: the frames of stream 1.
fn sent(name: &str, frames: impl Fn(&Place<'_>) -> Vec<u8> + Send + Sync + 'static) -> Case {
    let run = move |place: &Place<'_>| {
        let reaction = frames::react(place.address, &frames(place))?;
        reaction.is_refusal().then_some(()).ok_or_else(|| match reaction {
            Reaction::Answer(block) => {
                format!("answered, with the fields {:x?}", &block[..block.len().min(8)])
            }
            other => format!("{other:?}"),
        })
    };
    Case { name: name.to_owned(), script: Vec::new(), reaches: Reaches::Nothing, run: Box::new(run) }
}

fn filled(place: &Place<'_>, fields: &[Field<'_>], flags: u8) -> Vec<u8> {
    let texts: Vec<_> = fields.iter().map(|(name, value)| (place.fill(name), place.fill(value))).collect();
    let fields: Vec<_> = texts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    frames::headers(1, flags, &fields)
}

pub(super) fn cases() -> Vec<Case> {
    let fields = FIELDS.iter().map(|(name, field)| {
        // A pseudo-header stands before the fields, unless the case is about that.
        let fields = match field.0.starts_with(':') && field.0 != ":path" {
            true => vec![METHOD, SCHEME, PATH, AUTHORITY, *field],
            false if field.0 == ":path" => vec![METHOD, SCHEME, AUTHORITY, ("x-a", "b"), *field],
            false => vec![METHOD, SCHEME, PATH, AUTHORITY, *field],
        };
        sent(name, move |place| filled(place, &fields, END_STREAM))
    });
    let lists = LISTS.iter().map(|(name, list)| sent(name, |place| filled(place, list, END_STREAM)));
    fields.chain(lists).chain(bodies()).chain(floods()).chain(left_out()).collect()
}

const POST: Field<'_> = (":method", "POST");

/// A body whose end only the stream's end tells.
fn open(place: &Place<'_>) -> Vec<u8> {
    [filled(place, &[POST, SCHEME, PATH, AUTHORITY], 0), frames::data(1, 0, "hello")].concat()
}

/// Bodies that are not what the fields say. They may have been passed on in part by then.
fn bodies() -> Vec<Case> {
    fn post(place: &Place<'_>, length: &str) -> Vec<u8> {
        filled(place, &[POST, SCHEME, PATH, AUTHORITY, ("content-length", length)], 0)
    }
    let cut = |name: &str, frames: fn(&Place<'_>) -> Vec<u8>| {
        let case = sent(name, frames);
        Case { reaches: Reaches::NoWhole, ..case }
    };
    vec![
        cut("9113-8.1.1: a body shorter than its length", |place| {
            [post(place, "10"), frames::data(1, END_STREAM, "hello")].concat()
        }),
        cut("9113-8.1.1: a body longer than its length", |place| {
            [post(place, "3"), frames::data(1, END_STREAM, "hello")].concat()
        }),
        cut("9113-8.1: trailers without the end of the stream", |place| {
            [open(place), frames::headers(1, 0, &[("x-a", "b")])].concat()
        }),
        cut("9113-8.1: a capital in the name of a trailer", |place| {
            [open(place), frames::headers(1, END_STREAM, &[("X-A", "b")])].concat()
        }),
        cut("9113-8.1: CR LF in a trailer", |place| {
            [open(place), frames::headers(1, END_STREAM, &[("x-a", "b\r\n\r\nGET /@ HTTP/1.1\r\n")])].concat()
        }),
        cut("9113-6.4: a body that is given up", |place| {
            [open(place), frames::reset(1), frames::headers(2, 0, &[])].concat()
        }),
        sent("9113-5.1: a body without a head", |_| frames::data(1, END_STREAM, "hello")),
        sent("9113-5.1.1: an even stream", |place| {
            let mut frames = filled(place, &[METHOD, SCHEME, PATH, AUTHORITY], END_STREAM);
            frames[8] = 2;
            frames
        }),
    ]
}

/// What a library may leave out, without an error. It is never passed on.
fn left_out() -> Vec<Case> {
    let case = |name: &str, frames: fn(&Place<'_>) -> Vec<u8>| {
        let run = move |place: &Place<'_>| {
            if frames::react(place.address, &frames(place))?.is_refusal() {
                return Ok(());
            }
            let seen = place.seen()?;
            let is_clean = seen.target() == place.token && seen.trailers.is_empty();
            is_clean.then_some(()).ok_or_else(|| format!("passed on: {seen:?}"))
        };
        Case { name: name.to_owned(), script: Vec::new(), reaches: Reaches::Maybe, run: Box::new(run) }
    };
    vec![
        case("9113-8.3.1: a fragment in the path", |place| {
            filled(place, &[METHOD, SCHEME, (":path", "/@#b"), AUTHORITY], END_STREAM)
        }),
        case("9113-8.1: a pseudo-header in trailers", |place| {
            [open(place), frames::headers(1, END_STREAM, &[(":path", "/x")])].concat()
        }),
    ]
}

fn refused_anyhow(name: &str, frames: fn(&Place<'_>) -> Vec<u8>) -> Case {
    let run = move |place: &Place<'_>| {
        let is_ok = frames::react(place.address, &frames(place))?.is_ok();
        (!is_ok).then_some(()).ok_or_else(|| "answered with 200".to_owned())
    };
    Case { name: name.to_owned(), script: Vec::new(), reaches: Reaches::Nothing, run: Box::new(run) }
}

/// Bytes without end.
fn floods() -> Vec<Case> {
    let begin = |place: &Place<'_>| {
        let fields = frames::block(&[METHOD, SCHEME, (":path", &place.token), (":authority", &place.host)]);
        frames::frame(HEADERS, END_STREAM, 1, &fields)
    };
    vec![
        // CVE-2024-27316 and its relatives.
        sent("9113-6.10: a head of 20,000 frames", move |place| {
            let more =
                frames::continuation(1, 0, &frames::block(&[("x-a", &"b".repeat(100))])).repeat(20_000);
            [begin(place), more, frames::continuation(1, END_HEADERS, &[])].concat()
        }),
        // 16 KB that unpack to 40 MB. Whether it is said with 400, 431 or an error does not matter.
        refused_anyhow("9113-10.5.1: a head of one value and 13,000 references to it", |place| {
            let first =
                frames::block(&[METHOD, SCHEME, (":path", &place.token), (":authority", &place.host)]);
            frames::frame(
                HEADERS,
                END_STREAM | END_HEADERS,
                1,
                &[first, frames::repeated(3_000, 16_000)].concat(),
            )
        }),
        sent("9113-6.10: empty frames of a head", move |place| {
            [begin(place), frames::continuation(1, 0, &[]).repeat(100_000)].concat()
        }),
    ]
}
