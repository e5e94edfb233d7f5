//! Where a request's body ends, and its chunks.

use super::letters;
use crate::conformance::case::{BAD, Case, Check, Reaches, broken, exchange, passed, refused};
use crate::conformance::client::Step;
use Check::{SeenBody, SeenField, SeenNo, SeenNoTrailer, SeenTrailer, Statuses};

/// A coding that is not known may also be answered with 501 (RFC 9112, 6.1).
const CODING: &[u16] = &[400, 501];

/// Fields that leave the end of the body in doubt, and a body for some reading of them.
const DOUBTFUL: &[(&str, &str, &str)] = &[
    (
        "9112-6.3: content-length and transfer-encoding",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "9112-6.3: transfer-encoding and content-length",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "0\r\n\r\n",
    ),
    (
        "9112-6.3: content-length 0 and transfer-encoding",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    ("9112-6.3: content-length and an unknown coding", "Content-Length: 5\r\nTransfer-Encoding: x", "hello"),
    ("9112-6.3: two lengths that are equal", "Content-Length: 5\r\nContent-Length: 5", "hello"),
    ("9112-6.3: two lengths that differ", "Content-Length: 5\r\nContent-Length: 6", "hello!"),
    (
        "9112-6.3: two lengths with a field between",
        "Content-Length: 0\r\nX-A: b\r\ncontent-length: 5",
        "hello",
    ),
    ("9112-6.3: a list of equal lengths", "Content-Length: 5, 5", "hello"),
    ("9112-6.3: a list of lengths that differ", "Content-Length: 5, 6", "hello!"),
    ("9110-8.6: a list of lengths without a space", "Content-Length: 1,1", "h"),
    ("9110-8.6: a negative length", "Content-Length: -1", ""),
    ("9110-8.6: a length with a sign", "Content-Length: +5", "hello"),
    ("9110-8.6: a hexadecimal length", "Content-Length: 0x5", "hello"),
    ("9110-8.6: a length of letters", "Content-Length: five", "hello"),
    ("9110-8.6: an empty length", "Content-Length:", "hello"),
    ("9110-8.6: a length with a point", "Content-Length: 5.0", "hello"),
    ("9110-8.6: a length with a space in it", "Content-Length: 5 0", "hello"),
    ("9110-8.6: a length with an underscore", "Content-Length: 1_0", "hellohello"),
    ("9110-8.6: a length in quotes", "Content-Length: \"5\"", "hello"),
    ("9110-8.6: a length with a vertical tab", "Content-Length: \u{b}5", "hello"),
    ("9110-8.6: a length with a bare CR", "Content-Length: 5\r", "hello"),
    ("9110-8.6: a length of 2 to the 64 and 5", "Content-Length: 18446744073709551621", "hello"),
    ("9110-8.6: a length of 40 digits", "Content-Length: 1000000000000000000000000000000000000005", "hello"),
    ("9110-8.6: a length with a comma at its end", "Content-Length: 5,", "hello"),
    ("9112-6.1: identity", "Transfer-Encoding: identity", "0\r\n\r\n"),
    ("9112-6.1: identity and content-length", "Transfer-Encoding: identity\r\nContent-Length: 5", "hello"),
    ("9112-6.1: chunked, identity", "Transfer-Encoding: chunked, identity", "0\r\n\r\n"),
    ("9112-6.1: identity, chunked", "Transfer-Encoding: identity, chunked", "0\r\n\r\n"),
    ("9112-6.1: gzip, chunked", "Transfer-Encoding: gzip, chunked", "0\r\n\r\n"),
    ("9112-6.1: chunked, gzip", "Transfer-Encoding: chunked, gzip", "0\r\n\r\n"),
    ("9112-6.1: chunked, chunked", "Transfer-Encoding: chunked, chunked", "0\r\n\r\n"),
    ("9112-6.1: xchunked", "Transfer-Encoding: xchunked", "0\r\n\r\n"),
    ("9112-6.1: chunkedx", "Transfer-Encoding: chunkedx", "0\r\n\r\n"),
    ("9112-6.1: chunked with a parameter", "Transfer-Encoding: chunked;q=1", "0\r\n\r\n"),
    ("9112-6.1: chunked in quotes", "Transfer-Encoding: \"chunked\"", "0\r\n\r\n"),
    ("9112-6.1: chunked with a comma at its end", "Transfer-Encoding: chunked,", "0\r\n\r\n"),
    ("9112-6.1: chunked after a comma", "Transfer-Encoding: ,chunked", "0\r\n\r\n"),
    ("9112-6.1: an empty transfer-encoding", "Transfer-Encoding:", "0\r\n\r\n"),
    (
        "9112-6.1: chunked on two lines",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "9112-6.1: another coding on a second line",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "0\r\n\r\n",
    ),
    (
        "9112-6.1: an empty coding on a first line",
        "Transfer-Encoding:\r\nTransfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    ("9112-6.1: chunked after a vertical tab", "Transfer-Encoding: \u{b}chunked", "0\r\n\r\n"),
    ("9112-6.1: chunked before a vertical tab", "Transfer-Encoding: chunked\u{b}", "0\r\n\r\n"),
    ("9112-6.1: chunked after a bare CR", "Transfer-Encoding: \rchunked", "0\r\n\r\n"),
    ("9112-6.1: chunked before a bare CR", "Transfer-Encoding: chunked\r", "0\r\n\r\n"),
    ("9112-6.1: chunked behind a fold", "Transfer-Encoding:\r\n chunked", "0\r\n\r\n"),
    ("9112-6.1: a tab before the colon", "Transfer-Encoding\t: chunked", "0\r\n\r\n"),
    ("9112-6.1: chunked with a NUL", "Transfer-Encoding: chunked\0", "0\r\n\r\n"),
];

/// Chunked bodies that are none. The head is right.
const CHUNKS: &[(&str, &str)] = &[
    ("9112-7.1: a chunk size of 17 digits", "10000000000000003\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: a chunk size of 2 to the 64 less 1", "ffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: a negative chunk size", "-3\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: a chunk size with a sign", "+3\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: a chunk size with 0x", "0x3\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: a chunk size with an underscore", "0_3\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: a chunk size of other letters", "g\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: an empty size first", "\r\n\r\n"),
    ("9112-7.1: an empty size after a chunk", "3\r\nabc\r\n\r\n\r\n"),
    ("9112-7.1: only an extension for a size", ";a=b\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: a space before a size", " 3\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: a line feed alone after a size", "3\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: a bare CR in a size", "3\rx\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: NUL in a size", "3\0\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: no line end after a chunk", "3\r\nabc0\r\n\r\n"),
    ("9112-7.1: a line feed alone after a chunk", "3\r\nabc\n0\r\n\r\n"),
    ("9112-7.1: a bare CR after a chunk", "3\r\nabc\r0\r\n\r\n"),
    ("9112-7.1: more data than the size", "3\r\nabcd\r\n0\r\n\r\n"),
    ("9112-7.1: less data than the size", "4\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1: two bytes for the line end", "3\r\nabcxx0\r\n\r\n"),
    ("9112-7.1.1: a line feed alone in an extension", "3;a\nb\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1.1: a bare CR in an extension", "3;a\rb\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1.1: NUL in an extension", "3;a\0b\r\nabc\r\n0\r\n\r\n"),
    ("9112-7.1.2: a trailer without a colon", "3\r\nabc\r\n0\r\nX-A\r\n\r\n"),
    ("9112-7.1.2: a trailer with a space before its colon", "3\r\nabc\r\n0\r\nX-A : b\r\n\r\n"),
    ("9112-7.1.2: a folded trailer", "3\r\nabc\r\n0\r\nX-A: b\r\n c\r\n\r\n"),
    ("9112-7.1.2: a trailer with NUL", "3\r\nabc\r\n0\r\nX-A: \0\r\n\r\n"),
    ("9112-7.1.2: a trailer behind a line feed alone", "3\r\nabc\r\n0\nX-A: b\r\n\r\n"),
    ("9112-7.1.2: a line feed alone after a trailer", "3\r\nabc\r\n0\r\nX-A: b\n\r\n"),
    ("9112-7.1.2: a line feed alone for the empty line", "3\r\nabc\r\n0\r\nX-A: b\r\n\n"),
];

/// Trailers that must not be merged into the head, or frame anything.
const TRAILERS: &[(&str, &str, &str)] = &[
    ("9110-6.5.1: content-length in trailers", "content-length", "5"),
    ("9110-6.5.1: transfer-encoding in trailers", "transfer-encoding", "chunked"),
    ("9110-6.5.1: a Host in trailers", "host", "evil.test"),
];

fn post(fields: &str, body: &str) -> String {
    format!("POST /@ HTTP/1.1\r\nHost: alpha.test\r\n{fields}\r\n\r\n{body}")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked", body)
}

pub(crate) fn cases() -> Vec<Case> {
    let doubtful = DOUBTFUL.iter().map(|(name, fields, body)| {
        let statuses = if name.starts_with("9112-6.1") || name.contains("unknown") { CODING } else { BAD };
        refused(*name, &post(fields, body), statuses)
    });
    let chunks = CHUNKS.iter().map(|(name, body)| broken(*name, &chunked(body)));
    let trailers = TRAILERS.iter().map(|(name, field, value)| {
        const EITHER: &[u16] = &[200, 400];
        let request = chunked(&format!("3\r\nabc\r\n0\r\n{field}: {value}\r\nX-A: b\r\n\r\n"));
        let checks = [SeenNoTrailer(field), SeenBody("abc".to_owned())];
        Case { reaches: Reaches::Maybe, statuses: EITHER, ..exchange(*name, &request, checks) }
    });
    doubtful.chain(chunks).chain(trailers).chain(sized()).chain(whole()).chain(cut()).collect()
}

fn sized() -> Vec<Case> {
    let old = |fields: &str| post(fields, "0\r\n\r\n").replace("HTTP/1.1", "HTTP/1.0");
    let extension = format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(1_000_000));
    // 1 MB of them, with 4 KB of data.
    let dribble = format!("1;{}\r\na\r\n", "x".repeat(240)).repeat(4_000);
    let large = letters(5_000_000);
    let trailers: String = (0..5_000).map(|k| format!("x-{k}: y\r\n")).collect();
    vec![
        refused("9112-6.1: transfer-encoding in HTTP/1.0", &old("Transfer-Encoding: chunked"), CODING),
        refused(
            "9112-6.1: transfer-encoding in HTTP/1.0 with keep-alive",
            &old("Connection: keep-alive\r\nTransfer-Encoding: chunked"),
            CODING,
        ),
        refused(
            "9110-15.5.14: a length beyond the limit",
            &post("Content-Length: 9223372036854775807", ""),
            &[400, 413],
        ),
        broken("9110-15.5.14: a chunk beyond the limit", &chunked("7ffffffffffffff0\r\nabc\r\n0\r\n\r\n")),
        refused(
            "9110-15.5.14: a body beyond the limit, which is sent all the same",
            &post(&format!("Content-Length: {}", large.len()), &large),
            &[413],
        ),
        broken(
            "9110-15.5.14: chunks beyond the limit",
            &chunked(&format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len())),
        ),
        broken("9112-7.1.1: an extension of 1 MB", &chunked(&extension)),
        broken("9112-7.1.1: more bytes of extensions than of data", &chunked(&format!("{dribble}0\r\n\r\n"))),
        broken("9112-7.1.2: too many trailers", &chunked(&format!("3\r\nabc\r\n0\r\n{trailers}\r\n"))),
    ]
}

fn whole() -> Vec<Case> {
    let (body, large) = (|text: &str| SeenBody(text.to_owned()), letters(1_000_000));
    let pieces: String = large
        .as_bytes()
        .chunks(7_777)
        .map(|piece| format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)))
        .collect();
    let long = format!("Content-Length: {}", large.len());
    vec![
        passed(
            "9112-6.2: a body of a length",
            &post("Content-Length: 5", "hello"),
            [body("hello"), SeenField("content-length", "5")],
        ),
        passed(
            "9110-8.6: a length with leading zeros",
            &post("Content-Length: 0005", "hello"),
            [body("hello")],
        ),
        passed("9112-7.1: spaces after a size", &chunked("3  \r\nabc\r\n0 \r\n\r\n"), [body("abc")]),
        passed("9110-8.6: a length of 0", &post("Content-Length: 0", ""), [body("")]),
        passed("9112-6.3: a POST without a body", &post("X-A: b", ""), [body("")]),
        passed(
            "9110-9.3.1: a GET with a body",
            &post("Content-Length: 5", "hello").replace("POST", "GET"),
            [body("hello")],
        ),
        passed("9112-6.2: a body of 1 MB and a length", &post(&long, &large), [SeenBody(large.clone())]),
        passed(
            "9112-7.1: a body of 1 MB in chunks",
            &chunked(&format!("{pieces}0\r\n\r\n")),
            [SeenBody(large.clone())],
        ),
        passed(
            "9112-7.1: chunks",
            &chunked("3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\n"),
            [body("abc0123456789")],
        ),
        passed("9112-7.1: no chunk but the last", &chunked("0\r\n\r\n"), [body("")]),
        passed("9112-7.1: a last chunk of several zeros", &chunked("3\r\nabc\r\n000\r\n\r\n"), [body("abc")]),
        passed(
            "9112-7: the name of a coding in capitals",
            &post("Transfer-Encoding: CHUNKED", "3\r\nabc\r\n0\r\n\r\n"),
            [body("abc")],
        ),
        passed(
            "9112-6.1: a tab after the colon",
            &post("Transfer-Encoding:\tchunked\t", "3\r\nabc\r\n0\r\n\r\n"),
            [body("abc")],
        ),
        passed(
            "9112-7.1.1: a short extension",
            &chunked("3;a=b;c=\"d e\"\r\nabc\r\n0;x\r\n\r\n"),
            [body("abc")],
        ),
        passed(
            "9110-9.3.1: a GET with chunks",
            &chunked("3\r\nabc\r\n0\r\n\r\n").replace("POST", "GET"),
            [body("abc")],
        ),
        passed(
            "9112-7.1.2: trailers of a request",
            &post("Transfer-Encoding: chunked\r\nTrailer: X-Sum", "3\r\nabc\r\n0\r\nX-Sum: 294\r\n\r\n"),
            [body("abc"), SeenTrailer("x-sum", "294"), SeenNo("x-sum")],
        ),
        exchange(
            "9112-6.2: a body in HTTP/1.0",
            &post("Content-Length: 5", "hello").replace("HTTP/1.1", "HTTP/1.0"),
            [body("hello")],
        )
        .kept(false),
        // The first request is whole; what follows is none.
        exchange("9112-7.1: bytes after the last chunk", "", [body("abc"), Statuses(&[200, 400])])
            .steps([Step::Send(chunked("3\r\nabc\r\n0\r\n\r\nX\r\n\r\n")), Step::Answers(3)]),
        exchange("9112-6.3: bytes after a body of a length", "", [body("hello"), Statuses(&[200, 400])])
            .steps([Step::Send(post("Content-Length: 5", "helloX\r\n\r\n")), Step::Answers(3)]),
    ]
}

/// Bodies whose end does not come.
fn cut() -> Vec<Case> {
    const ANY: &[u16] = &[400, 408];
    let cut = |name: &str, request: &str| {
        let steps = [Step::Send(request.to_owned()), Step::HalfClose, Step::Answers(1)];
        // The proxy may answer, or only close.
        let case = exchange(name, "", [Check::Cut]).steps(steps);
        Case { reaches: Reaches::NoWhole, statuses: ANY, ..case }
    };
    vec![
        cut("9112-8: a body shorter than its length", &post("Content-Length: 10", "hello")),
        cut("9112-8: no body in spite of a length", &post("Content-Length: 10", "")),
        cut("9112-8: chunks without the last", &chunked("5\r\nhello\r\n")),
        cut("9112-8: a chunk cut in its data", &chunked("5\r\nhel")),
        cut("9112-8: a last chunk without the empty line", &chunked("5\r\nhello\r\n0\r\n")),
        cut("9112-8: trailers cut", &chunked("5\r\nhello\r\n0\r\nX-A: b\r\n")),
    ]
}
