//! Field lines, the fields that are for one connection only, and those that a proxy adds.

use crate::conformance::case::{BAD, Case, Check, exchange, passed, refused};
use Check::{Seen, SeenField, SeenNo};

/// Lines that are no field.
const WRONG: &[(&str, &str)] = &[
    ("9112-5.1: a space before the colon", "X-A : b"),
    ("9112-5.1: a tab before the colon", "X-A\t: b"),
    ("9112-5.1: a space before the colon of a framing field", "Content-Length : 5"),
    ("9112-5: no colon", "X-A"),
    ("9112-5: an empty name", ": b"),
    ("9112-5: a space in a name", "X A: b"),
    ("9112-5: a separator in a name", "X(A): b"),
    ("9112-5: NUL in a name", "X\0A: b"),
    ("9112-5: a control byte in a name", "X\u{1}A: b"),
    ("9112-5: DEL in a name", "X\u{7f}A: b"),
    ("9112-5: a byte past ASCII in a name", "X\u{e9}A: b"),
    ("9110-5.5: NUL in a value", "X-A: a\0b"),
    ("9110-5.5: a control byte in a value", "X-A: a\u{1}b"),
    ("9110-5.5: DEL in a value", "X-A: a\u{7f}b"),
    ("9110-5.5: a vertical tab in a value", "X-A: a\u{b}b"),
    ("9110-5.5: a bare CR in a value", "X-A: a\rb"),
    ("9110-5.5: a field behind a bare CR", "X-A: a\rContent-Length: 5"),
    ("9110-5.5: a line feed alone in a value", "X-A: a\nContent-Length: 5"),
    ("9112-5.2: a folded line", "X-A: a\r\n b"),
    ("9112-5.2: a line folded with a tab", "X-A: a\r\n\tb"),
    ("9112-5.2: a framing field in a folded line", "X-A: a\r\n Content-Length: 5"),
    ("9112-5.2: a folded empty line", "X-A: a\r\n \r\nX-B: b"),
];

/// Values of Connection that would take away what the server must see, or that are no list of names.
const CONNECTION: &[(&str, &str)] = &[
    ("9110-7.6.1: Connection names Host", "Host"),
    ("9110-7.6.1: Connection names Content-Length", "Content-Length"),
    ("9110-7.6.1: Connection names Transfer-Encoding", "close, Transfer-Encoding"),
    ("9110-7.6.1: Connection names X-Forwarded-For", "X-Forwarded-For"),
    ("9110-7.6.1: Connection has no name", "a b"),
    ("9110-7.6.1: Connection has a parameter", "close;x=y"),
    ("9110-7.6.1: Connection has bytes past ASCII", "close, \u{e9}"),
    ("9110-7.6.1: Connection has a quoted string", "\"close\""),
];

fn get(lines: &str) -> String {
    format!("GET /@ HTTP/1.1\r\nHost: alpha.test\r\n{lines}\r\n\r\n")
}

pub(crate) fn cases() -> Vec<Case> {
    let wrong = WRONG.iter().map(|(name, line)| refused(*name, &get(line), BAD));
    let connection = CONNECTION.iter().map(|(name, value)| {
        refused(*name, &get(&format!("Connection: {value}\r\nX-Forwarded-For: 192.0.2.1")), BAD)
    });
    let many: Vec<_> = (0..60).map(|k| format!("x-{k}")).collect();
    let sized = [
        refused(
            "9110-7.6.1: Connection has 60 names",
            &get(&format!("Connection: {}", many.join(", "))),
            BAD,
        ),
        refused(
            "6585-5: a field that is too long",
            &get(&format!("X-A: {}", "x".repeat(100_000))),
            &[400, 431],
        ),
        refused(
            "6585-5: too many fields",
            &get(&(0..5_000).map(|k| format!("x-{k}: y")).collect::<Vec<_>>().join("\r\n")),
            &[400, 431],
        ),
        refused(
            "9110-4.1: a target that is too long",
            &format!("GET /@{} HTTP/1.1\r\nHost: alpha.test\r\n\r\n", "x".repeat(100_000)),
            &[400, 414, 431],
        ),
    ];
    wrong.chain(connection).chain(sized).chain(kept()).chain(hops()).chain(forwarded()).collect()
}

/// What is unusual and allowed.
fn kept() -> Vec<Case> {
    vec![
        passed("9112-5.1: white space around a value", &get("X-A: \t b \t "), [SeenField("x-a", "b")]),
        passed("9110-5.5: white space within a value", &get("X-A: a \t b"), [SeenField("x-a", "a \t b")]),
        passed(
            "9110-5.5: an empty value",
            &get("X-A:\r\nX-B: b"),
            [SeenField("x-a", ""), SeenField("x-b", "b")],
        ),
        passed(
            "9110-5.5: bytes past ASCII in a value",
            &get("X-A: caf\u{e9}"),
            [SeenField("x-a", "caf\u{e9}")],
        ),
        passed(
            "9110-5.6.2: all bytes of a token in a name",
            &get("!#$%&'*+-.^`|~9a: b"),
            [SeenField("!#$%&'*+-.^`|~9a", "b")],
        ),
        passed(
            "9110-5.3: lines of one name stay in order",
            &get("X-A: 1\r\nX-B: 2\r\nX-A: 3"),
            [SeenField("x-a", "1, 3"), SeenField("x-b", "2")],
        ),
        passed("9110-5.1: a name with an underscore", &get("X_A: b"), [SeenField("x_a", "b")]),
    ]
}

fn hops() -> Vec<Case> {
    let websocket = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    vec![
        passed(
            "9110-7.6.1: a field that Connection names",
            &get("Connection: X-Private\r\nX-Private: 1\r\nX-A: b"),
            [SeenNo("x-private"), SeenField("x-a", "b"), names_nothing("x-private")],
        ),
        passed(
            "9110-7.6.1: Connection on two lines, with empty elements",
            &get("Connection: , x-one,,\r\nX-One: 1\r\nConnection:\tX-TWO ,\r\nX-Two: 2"),
            [SeenNo("x-one"), SeenNo("x-two")],
        ),
        passed(
            "9110-7.6.1: Keep-Alive",
            &get("Connection: keep-alive\r\nKeep-Alive: timeout=5"),
            [SeenNo("keep-alive")],
        ),
        passed(
            "9110-7.6.1: Keep-Alive that Connection does not name",
            &get("Keep-Alive: timeout=5"),
            [SeenNo("keep-alive")],
        ),
        passed(
            "9110-7.6.1: Proxy-Connection",
            &get("Proxy-Connection: keep-alive"),
            [SeenNo("proxy-connection")],
        ),
        passed("9110-10.1.4: TE", &get("Connection: TE\r\nTE: gzip"), [SeenNo("te")]),
        passed(
            "9110-10.1.4: TE that Connection does not name",
            &get("TE: gzip, trailers;q=0.5"),
            [SeenNo("te")],
        ),
        passed(
            "9110-7.8: Upgrade that Connection does not name",
            &get(&format!("Upgrade: websocket\r\n{websocket}")),
            [SeenNo("upgrade"), names_nothing("upgrade")],
        ),
        exchange(
            "9110-7.8: Upgrade in HTTP/1.0",
            &get(&format!("Connection: upgrade\r\nUpgrade: websocket\r\n{websocket}"))
                .replace("HTTP/1.1", "HTTP/1.0"),
            [SeenNo("upgrade"), names_nothing("upgrade")],
        )
        .kept(false),
        passed(
            "9113-3.1: Upgrade to h2c",
            &get(
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
            ),
            [SeenNo("upgrade"), SeenNo("http2-settings"), names_nothing("upgrade")],
        ),
        passed(
            "9113-3.1: Upgrade to h2c among others",
            &get(
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: websocket, H2C\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
            ),
            [
                SeenNo("http2-settings"),
                Seen(|request| match request.field("upgrade") {
                    Some(value) if value.to_lowercase().contains("h2c") => Err(format!("upgrade: {value}")),
                    _ => Ok(()),
                }),
            ],
        ),
    ]
}

/// The server's Connection does not have this name.
fn names_nothing(name: &'static str) -> Check {
    match name {
        "upgrade" => Seen(|request| lacks(request.field("connection"), "upgrade")),
        _ => Seen(|request| lacks(request.field("connection"), "x-private")),
    }
}

fn lacks(value: Option<String>, name: &str) -> Result<(), String> {
    let value = value.unwrap_or_default().to_lowercase();
    (!value.contains(name)).then_some(()).ok_or_else(|| format!("connection: {value}"))
}

fn forwarded() -> Vec<Case> {
    vec![
        passed("7239-5.2: the client's address", &get("X-A: b"), [Seen(|request| ends(request, &[]))]),
        passed(
            "7239-5.2: it follows those of proxies",
            &get("X-Forwarded-For: 192.0.2.1, 192.0.2.2"),
            [Seen(|request| ends(request, &["192.0.2.1", "192.0.2.2"]))],
        ),
        passed(
            "7239-5.2: also if they are on two lines",
            &get("X-Forwarded-For: 192.0.2.1\r\nX-A: b\r\nX-Forwarded-For: 192.0.2.2"),
            [Seen(|request| ends(request, &["192.0.2.1", "192.0.2.2"]))],
        ),
        passed(
            "7239-5.2: an empty line of them",
            &get("X-Forwarded-For:"),
            [Seen(|request| ends(request, &[]))],
        ),
    ]
}

/// X-Forwarded-For has these addresses and then the client's.
fn ends(request: &crate::conformance::wire::Message, before: &[&str]) -> Result<(), String> {
    let value = request.field("x-forwarded-for").unwrap_or_default();
    let mut found: Vec<_> = value.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
    let client = found.pop().is_some_and(|last| last.starts_with("127."));
    (client && found == before).then_some(()).ok_or_else(|| format!("x-forwarded-for: {value}"))
}
