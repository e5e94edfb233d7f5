//! Answers: how their bodies end, what is left out of them, and those that are errors.

use super::letters;
use crate::conformance::case::{Case, Check, Reaches, exchange, hostile, passed};
use crate::conformance::server::{Act, answers, closes};
use crate::conformance::wire::Framing;
use Check::{Cut, Got, GotBody, GotFraming, GotNo, GotTrailer};

const GET: &str = "GET /@ HTTP/1.1\r\nHost: alpha.test\r\n\r\n";

/// Answers that are errors. The server does not close after them.
const WRONG: &[(&str, &str)] = &[
    (
        "9112-6.3: an answer with content-length and transfer-encoding",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    ),
    (
        "9112-6.3: an answer with two lengths that differ",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nevil!",
    ),
    (
        "9112-6.3: an answer with a list of lengths that differ",
        "HTTP/1.1 200 OK\r\nContent-Length: 4, 5\r\n\r\nevil!",
    ),
    ("9110-8.6: an answer of a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nevil"),
    ("9110-8.6: an answer of a length with a sign", "HTTP/1.1 200 OK\r\nContent-Length: +4\r\n\r\nevil"),
    ("9110-8.6: an answer of a hexadecimal length", "HTTP/1.1 200 OK\r\nContent-Length: 0x4\r\n\r\nevil"),
    ("9110-8.6: an answer of an empty length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nevil"),
    (
        "9110-8.6: an answer of a length of 2 to the 64 and 4",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551620\r\n\r\nevil",
    ),
    ("9112-6.1: an answer in an unknown coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\n\r\nevil"),
    (
        "9112-6.1: an answer in gzip and chunks",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    ),
    (
        "9112-6.1: an answer chunked twice",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    ),
    ("9112-6.1: an answer in identity", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nevil"),
    (
        "9112-6.1: an answer of HTTP/1.0 in chunks",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    ),
    ("9112-2.2: an answer with line feeds alone", "HTTP/1.1 200 OK\nContent-Length: 4\n\nevil"),
    (
        "9112-2.2: an answer with one line feed alone",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\nX-A: b\r\n\r\nevil",
    ),
    (
        "9112-2.2: an answer with a bare CR in a value",
        "HTTP/1.1 200 OK\r\nX-A: a\rb\r\nContent-Length: 4\r\n\r\nevil",
    ),
    (
        "9112-5: an answer with NUL in a value",
        "HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 4\r\n\r\nevil",
    ),
    ("9112-5: an answer with NUL in a name", "HTTP/1.1 200 OK\r\nX\0A: b\r\nContent-Length: 4\r\n\r\nevil"),
    (
        "9112-5: an answer with a control byte in a value",
        "HTTP/1.1 200 OK\r\nX-A: a\u{1}b\r\nContent-Length: 4\r\n\r\nevil",
    ),
    (
        "9112-5: an answer with a line without a colon",
        "HTTP/1.1 200 OK\r\nX-A\r\nContent-Length: 4\r\n\r\nevil",
    ),
    ("9112-5: an answer with an empty name", "HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 4\r\n\r\nevil"),
    (
        "9112-5.2: an answer with a folded line",
        "HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\nContent-Length: 4\r\n\r\nevil",
    ),
    (
        "9112-2.2: an answer with white space before its first field",
        "HTTP/1.1 200 OK\r\n X-A: a\r\nContent-Length: 4\r\n\r\nevil",
    ),
    ("9112-4: an answer without a status line", "Content-Length: 4\r\n\r\nevil"),
    ("9112-4: an answer of HTTP/0.9", "<p>evil\r\n\r\n"),
    ("9112-4: a status below 100", "HTTP/1.1 099 Odd\r\nContent-Length: 4\r\n\r\nevil"),
    ("9110-15: a status of 600", "HTTP/1.1 600 Odd\r\nContent-Length: 4\r\n\r\nevil"),
    ("9110-15: a status of 999", "HTTP/1.1 999 Odd\r\nContent-Length: 4\r\n\r\nevil"),
    ("9112-4: a status of letters", "HTTP/1.1 2OO OK\r\nContent-Length: 4\r\n\r\nevil"),
    ("9112-4: a status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 4\r\n\r\nevil"),
    ("9112-4: a status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 4\r\n\r\nevil"),
    ("9112-4: a negative status", "HTTP/1.1 -20 OK\r\nContent-Length: 4\r\n\r\nevil"),
    ("9112-4: NUL in the reason", "HTTP/1.1 200 O\0K\r\nContent-Length: 4\r\n\r\nevil"),
    ("9112-4: a bare CR in the reason", "HTTP/1.1 200 O\rK\r\nContent-Length: 4\r\n\r\nevil"),
    ("9112-4: an answer of another protocol", "ICY 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
    ("9112-2.3: an answer of HTTP/2.0", "HTTP/2.0 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
    ("9112-2.3: an answer of http/1.1", "http/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
    ("9112-4: no HTTP at all", "\u{16}\u{3}\u{1}\u{2} evil\r\n\r\n"),
    (
        "9110-15.2: an interim answer that is wrong",
        "HTTP/1.1 103 Early\r\nX A: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    ),
];

/// What would end all well.
const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

/// Answers that begin well, and whose bodies are wrong. After them the server closes.
const BODIES: &[(&str, &str)] = &[
    ("9112-8: an answer shorter than its length", "Content-Length: 10\r\n\r\nhello"),
    ("9112-8: an answer with no body in spite of a length", "Content-Length: 10\r\n\r\n"),
    ("9112-8: an answer without its last chunk", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
    ("9112-8: an answer cut in a chunk", "Transfer-Encoding: chunked\r\n\r\n5\r\nhel"),
    (
        "9112-8: an answer cut after the last chunk's size",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    ),
    ("9112-8: an answer without any chunk", "Transfer-Encoding: chunked\r\n\r\n"),
    (
        "9112-7.1: an answer with a chunk size of 17 digits",
        "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "9112-7.1: an answer with a negative chunk size",
        "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "9112-7.1: an answer with 0x in a chunk size",
        "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "9112-7.1: an answer with an empty chunk size",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n\r\n\r\n",
    ),
    (
        "9112-7.1: an answer with bytes after a chunk",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello!!\r\n0\r\n\r\n",
    ),
    (
        "9112-7.1: an answer with a line feed alone after a chunk",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
    ),
    (
        "9112-7.1: an answer with a line feed alone after a size",
        "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    ),
    (
        "9112-7.1.2: an answer with a trailer without a colon",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX\r\n\r\n",
    ),
];

pub(crate) fn cases() -> Vec<Case> {
    let wrong = WRONG.iter().map(|(name, answer)| hostile(*name, answers(answer)));
    let heads = [
        hostile("9112-8: an answer cut in its head", closes("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n")),
        hostile("9112-8: an answer cut in its status line", closes("HTTP/1.1 2")),
        hostile("9112-8: no answer", vec![Act::Body, Act::Close]),
        hostile("9112-8: only an interim answer", closes("HTTP/1.1 100 Continue\r\n\r\n")),
        hostile(
            "6585-5: an answer with a head of 1 MB",
            answers(format!(
                "HTTP/1.1 200 OK\r\nX-A: {}\r\nContent-Length: 4\r\n\r\nevil",
                "x".repeat(1_000_000)
            )),
        ),
        hostile(
            "6585-5: an answer whose head does not end",
            answers(format!("HTTP/1.1 200 {}", "x".repeat(1_000_000))),
        ),
    ];
    let hint = |bytes: usize| format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "a".repeat(bytes));
    let floods = [
        hostile("9110-15.2: a thousand interim answers", answers(hint(10).repeat(1000) + EVIL)),
        hostile("9110-15.2: interim answers of 1 MB", answers(hint(20_000).repeat(50) + EVIL)),
    ];
    let bodies = BODIES.iter().map(|(name, rest)| {
        let case = hostile(*name, closes(format!("HTTP/1.1 200 OK\r\n{rest}")));
        case.check([Cut])
    });
    let old = GET.replace("HTTP/1.1", "HTTP/1.0");
    // A client of HTTP/1.0 can only tell by a reset.
    let resets = BODIES.iter().take(4).map(|(name, rest)| {
        let case = exchange(format!("{name}, to HTTP/1.0"), &old, [Cut]);
        Case { reaches: Reaches::Tries, ..case }.script(closes(format!("HTTP/1.1 200 OK\r\n{rest}")))
    });
    wrong
        .chain(heads)
        .chain(floods)
        .chain(bodies)
        .chain(resets)
        .chain(framed())
        .chain(bare())
        .chain(hops())
        .collect()
}

fn framed() -> Vec<Case> {
    let large = letters(1_000_000);
    let pieces: String = large
        .as_bytes()
        .chunks(7_777)
        .map(|piece| format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)))
        .collect();
    let old = GET.replace("HTTP/1.1", "HTTP/1.0");
    let (length, chunked) =
        ("HTTP/1.1 200 OK\r\nContent-Length", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n");
    let body = |text: &str| GotBody(text.to_owned());
    vec![
        passed(
            "9112-6.2: an answer of 1 MB and a length",
            GET,
            [GotBody(large.clone()), GotFraming(Framing::Length(large.len()))],
        )
        .script(answers(format!("{length}: {}\r\n\r\n{large}", large.len()))),
        passed(
            "9112-7.1: an answer of 1 MB in chunks",
            GET,
            [GotBody(large.clone()), GotFraming(Framing::Chunked)],
        )
        .script(answers(format!("{chunked}\r\n{pieces}0\r\n\r\n"))),
        passed(
            "9112-6.3: an answer of 1 MB until its server closes",
            GET,
            [GotBody(large.clone()), GotFraming(Framing::Chunked)],
        )
        .script(closes(format!("HTTP/1.1 200 OK\r\n\r\n{large}"))),
        passed(
            "9112-6.3: an answer until its server closes",
            GET,
            [body("hello"), GotFraming(Framing::Chunked)],
        )
        .script(closes("HTTP/1.1 200 OK\r\n\r\nhello")),
        passed("9112-6.3: an empty answer until its server closes", GET, [body("")])
            .script(closes("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")),
        passed("9112-6.3: an answer of HTTP/1.0", GET, [body("hello")])
            .script(closes("HTTP/1.0 200 OK\r\n\r\nhello")),
        passed("9112-6.3: an answer of HTTP/1.0 and a length", GET, [body("hello")])
            .script(closes("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello")),
        passed(
            "9112-4: an answer of HTTP/1.0 that keeps its connection",
            GET,
            [body("hello"), GotNo("keep-alive")],
        )
        .script(answers("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello")),
        passed("9112-7.1: an answer byte by byte", GET, [body("hello"), GotTrailer("x-sum", "532")])
            .script(by_bytes(&format!("{chunked}\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\nX-Sum: 532\r\n\r\n"))),
        passed("9112-4: an empty reason", GET, [body("hello")])
            .script(answers("HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\nhello")),
        passed("9110-15: a status that nobody knows", GET, [body("hello")])
            .statuses(&[299])
            .script(answers("HTTP/1.1 299 Odd\r\nContent-Length: 5\r\n\r\nhello")),
        passed("9112-7: an answer in Chunked", GET, [body("hello")])
            .script(answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")),
        passed("9112-7.1.1: an answer with chunk extensions", GET, [body("hello")])
            .script(answers(format!("{chunked}\r\n5;a=b\r\nhello\r\n0;c\r\n\r\n"))),
        passed(
            "9112-7.1.2: trailers of an answer",
            GET,
            [body("hello"), GotTrailer("x-sum", "532"), GotNo("x-sum")],
        )
        .script(answers(format!("{chunked}Trailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 532\r\n\r\n"))),
        exchange(
            "9110-6.5.1: content-length in the trailers of an answer",
            GET,
            [Check::MayBeCut, GotNo("content-length"), Check::GotNoTrailer("content-length")],
        )
        .script(answers(format!("{chunked}\r\n5\r\nhello\r\n0\r\nContent-Length: 1\r\n\r\n"))),
        exchange(
            "9112-7.1: an answer in chunks to HTTP/1.0",
            &old,
            [body("hello"), GotNo("transfer-encoding"), GotFraming(Framing::Close)],
        )
        .kept(false)
        .script(answers(format!("{chunked}\r\n5\r\nhello\r\n0\r\n\r\n"))),
        exchange(
            "9112-6.3: an answer until its server closes to HTTP/1.0",
            &old,
            [body("hello"), GotFraming(Framing::Close)],
        )
        .kept(false)
        .script(closes("HTTP/1.1 200 OK\r\n\r\nhello")),
        exchange(
            "9112-9.3: an answer in chunks to HTTP/1.0 with keep-alive",
            &old.replace("\r\n\r\n", "\r\nConnection: keep-alive\r\n\r\n"),
            [body("hello"), GotNo("transfer-encoding"), GotFraming(Framing::Close)],
        )
        .kept(false)
        .script(answers(format!("{chunked}\r\n5\r\nhello\r\n0\r\n\r\n"))),
    ]
}

/// Each byte in a segment of its own.
fn by_bytes(answer: &str) -> Vec<Act> {
    std::iter::once(Act::Body).chain(answer.bytes().map(|byte| Act::Write(vec![byte]))).collect()
}

/// Answers without a body.
fn bare() -> Vec<Case> {
    let head = GET.replace("GET", "HEAD");
    let none = || GotBody(String::new());
    vec![
        passed("9112-6.3: a HEAD and a length", &head, [none(), Got("content-length", "1234")])
            .script(answers("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")),
        passed("9112-6.3: a HEAD and chunks", &head, [none()])
            .script(answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")),
        passed("9112-6.3: a HEAD and no framing", &head, [none()]).script(answers("HTTP/1.1 200 OK\r\n\r\n")),
        passed("9112-6.3: a HEAD and an error", &head, [none(), Got("content-length", "9")])
            .statuses(&[404])
            .script(answers("HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n")),
        passed("9112-6.3: a 204", GET, [none(), GotNo("transfer-encoding"), GotNo("content-length")])
            .statuses(&[204])
            .script(answers("HTTP/1.1 204 No Content\r\n\r\n")),
        passed("9112-6.1: a 204 with transfer-encoding", GET, [none(), GotNo("transfer-encoding")])
            .statuses(&[204])
            .script(answers("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n")),
        passed("9110-8.6: a 204 with a length", GET, [none(), GotNo("content-length")])
            .statuses(&[204])
            .script(answers("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n")),
        passed("9112-6.1: a 204 with chunks", GET, [none(), GotNo("transfer-encoding")])
            .statuses(&[204])
            .script(answers(
                "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            )),
        passed("9112-6.3: a 304 and the length of what it stands for", GET, [none(), Got("etag", "\"x\"")])
            .statuses(&[304])
            .script(answers("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 100\r\n\r\n")),
        passed("9112-6.1: a 304 with transfer-encoding", GET, [none(), GotNo("transfer-encoding")])
            .statuses(&[304])
            .script(answers("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n")),
    ]
}

/// Fields for one connection, and those that go on.
fn hops() -> Vec<Case> {
    let with =
        |fields: &str| answers(format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: 5\r\n\r\nhello"));
    let names = |name: &str, fields: &str, gone: &'static str| {
        passed(name, GET, [GotBody("hello".to_owned()), GotNo(gone)]).script(with(fields))
    };
    vec![
        names(
            "9110-7.6.1: an answer's field that Connection names",
            "Connection: X-Private\r\nX-Private: 1",
            "x-private",
        ),
        names(
            "9110-7.6.1: an answer's Keep-Alive",
            "Connection: keep-alive\r\nKeep-Alive: timeout=5",
            "keep-alive",
        ),
        names("9110-7.6.1: an answer's Keep-Alive by itself", "Keep-Alive: timeout=5", "keep-alive"),
        names("9110-7.6.1: an answer's Proxy-Connection", "Proxy-Connection: close", "proxy-connection"),
        names("9110-7.8: an answer's Upgrade", "Connection: upgrade\r\nUpgrade: h2c", "upgrade"),
        names("9110-7.8: an answer's Upgrade by itself", "Upgrade: h2c, h2", "upgrade"),
        passed("9112-9.6: a server that closes", GET, [GotBody("hello".to_owned())])
            .script(closes("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")),
        passed(
            "9110-5.3: an answer's lines of one name stay in order",
            GET,
            [Got("set-cookie", "a=1, b=2"), Got("x-a", "caf\u{e9}")],
        )
        .script(with("Set-Cookie: a=1\r\nX-A: caf\u{e9}\r\nSet-Cookie: b=2")),
        passed("9110-5.5: an answer's empty value", GET, [Got("x-a", ""), Got("x-b", "b")])
            .script(with("X-A:\r\nX-B: \t b ")),
    ]
}
