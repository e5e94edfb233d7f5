//! Request lines, and the lines of a head as such.

use crate::conformance::case::{BAD, Case, Check, Reaches, answered, exchange, passed, refused};
use crate::conformance::client::Step;
use Check::{GotBody, Seen, SeenField, SeenLine};

/// A version that is not served.
const VERSION: &[u16] = &[400, 505];
/// A method that is known and not served.
const METHOD: &[u16] = &[405];

/// Request lines that are errors. What follows is well-formed.
const WRONG: &[(&str, &str)] = &[
    ("9112-3: no version and no target", "GET"),
    ("9112-3: no target", "GET HTTP/1.1"),
    ("9112-3: no method", " /@ HTTP/1.1"),
    ("9112-3: two spaces before the target", "GET  /@ HTTP/1.1"),
    ("9112-3: two spaces before the version", "GET /@  HTTP/1.1"),
    ("9112-3: a space after the version", "GET /@ HTTP/1.1 "),
    ("9112-3: a tab for a space", "GET\t/@ HTTP/1.1"),
    ("9112-3: a vertical tab for a space", "GET /@\u{b}HTTP/1.1"),
    ("9112-3: a space in the target", "GET /@ b HTTP/1.1"),
    ("9112-3: a second version in the target", "GET /@ HTTP/1.1 HTTP/1.1"),
    ("9112-3.1: a separator in the method", "G(T /@ HTTP/1.1"),
    ("9112-3.1: a control byte in the method", "GE\u{1}T /@ HTTP/1.1"),
    ("9112-3.2: a path without its slash", "GET a HTTP/1.1"),
    ("9112-3.2: a target that an appended host makes another authority", "GET @evil/ HTTP/1.1"),
    ("9112-3.2: a query without a path", "GET ?x HTTP/1.1"),
    ("9112-3.2: a port without a path", "GET :80/ HTTP/1.1"),
    ("9112-3.2: a backslash for the slash", "GET \\@ HTTP/1.1"),
    ("9112-3.2: a fragment", "GET /@#b HTTP/1.1"),
    ("9112-3.2: NUL in the target", "GET /@\0b HTTP/1.1"),
    ("9112-3.2: a control byte in the target", "GET /@\u{1}b HTTP/1.1"),
    ("9112-3.2: DEL in the target", "GET /@\u{7f}b HTTP/1.1"),
    ("9112-3.2: a tab in the target", "GET /@\tb HTTP/1.1"),
    ("9112-2.2: a bare CR in the target", "GET /@\rb HTTP/1.1"),
    ("9112-2.2: a bare CR after the version", "GET /@ HTTP/1.1\r"),
    ("9112-3.2.2: another scheme", "GET ftp://alpha.test/@ HTTP/1.1"),
    ("9112-3.2.2: no authority", "GET http:///@ HTTP/1.1"),
    ("9112-3.2.2: the authority differs from the Host", "GET http://evil.test/@ HTTP/1.1"),
    ("9110-4.2.4: a user in the authority", "GET http://user@alpha.test/@ HTTP/1.1"),
    ("9112-3.2.4: an asterisk that is no OPTIONS", "GET * HTTP/1.1"),
    ("9112-2.3: a version of one number", "GET /@ HTTP/1"),
    ("9112-2.3: a version without its minor number", "GET /@ HTTP/1."),
    ("9112-2.3: a version in lower case", "GET /@ http/1.1"),
    ("9112-2.3: a version of another protocol", "GET /@ XTTP/1.1"),
    ("9112-2.3: a version with a leading zero", "GET /@ HTTP/01.1"),
    ("9112-2.3: a minor version of two digits", "GET /@ HTTP/1.10"),
    ("9112-2.3: bytes after the version", "GET /@ HTTP/1.1x"),
    ("9112-2.3: a sign in the version", "GET /@ HTTP/+1.1"),
    ("9112-2.3: HTTP/0.9 as a version", "GET /@ HTTP/0.9"),
    ("9112-2.3: HTTP/2.0 in a request line", "GET /@ HTTP/2.0"),
    ("9112-2.3: HTTP/3 in a request line", "GET /@ HTTP/3"),
];

/// Whole requests whose lines do not end, or do not begin, as they must.
const ENDS: &[(&str, &str)] = &[
    ("9112-2.2: line feeds alone", "GET /@ HTTP/1.1\nHost: alpha.test\n\n"),
    ("9112-2.2: a line feed alone after the request line", "GET /@ HTTP/1.1\nHost: alpha.test\r\n\r\n"),
    ("9112-2.2: a line feed alone after a field", "GET /@ HTTP/1.1\r\nHost: alpha.test\nX-A: b\r\n\r\n"),
    ("9112-2.2: a line feed alone for the empty line", "GET /@ HTTP/1.1\r\nHost: alpha.test\r\n\n"),
    ("9112-2.2: carriage returns alone", "GET /@ HTTP/1.1\rHost: alpha.test\r\r\r\n\r\n"),
    (
        "9112-2.2: two carriage returns before a line feed",
        "GET /@ HTTP/1.1\r\r\nHost: alpha.test\r\r\n\r\r\n\r\n",
    ),
    ("9112-2.2: white space before the first field", "GET /@ HTTP/1.1\r\n Host: alpha.test\r\n\r\n"),
    ("9112-2.2: a tab before the first field", "GET /@ HTTP/1.1\r\n\tX: y\r\nHost: alpha.test\r\n\r\n"),
    ("9112-3: white space before the request line", " GET /@ HTTP/1.1\r\nHost: alpha.test\r\n\r\n"),
    ("9112-2.3: a request of HTTP/0.9", "GET /@\r\n"),
    ("9112-2.2: HTTP/2's preface with another head", "PRI * HTTP/2.0\r\nX-Case: /@\r\n\r\n"),
    ("9112-2.2: no HTTP", "\u{16}\u{3}\u{1} /@ TLS here\r\n\r\n"),
];

fn with_line(line: &str) -> String {
    format!("{line}\r\nHost: alpha.test\r\nX-Case: /@\r\n\r\n")
}

pub(crate) fn cases() -> Vec<Case> {
    let wrong = WRONG.iter().map(|(name, line)| {
        let statuses = if name.starts_with("9112-2.3") { VERSION } else { BAD };
        refused(*name, &with_line(line), statuses)
    });
    let ends = ENDS.iter().map(|(name, request)| {
        let statuses = if name.contains("HTTP/") { VERSION } else { BAD };
        refused(*name, request, statuses)
    });
    wrong.chain(ends).chain(versions()).chain(targets()).chain(methods()).collect()
}

fn versions() -> Vec<Case> {
    const ANY: &[u16] = &[200, 400, 505];
    let later = exchange("9110-2.5: HTTP/1.2", &with_line("GET /@ HTTP/1.2"), [SeenLine("GET /@ HTTP/1.1")]);
    vec![
        // A recipient should take it for the minor version that it knows.
        Case { statuses: ANY, reaches: Reaches::Maybe, ..later },
        exchange("9113-3.4: HTTP/2's preface after a request", "", [Check::SecondStatus(VERSION)]).steps([
            Step::Send(format!("{}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", with_line("GET /@ HTTP/1.1"))),
            Step::Answers(2),
        ]),
        passed(
            "9112-2.2: empty lines before a request",
            &format!("\r\n\r\n{}", with_line("GET /@ HTTP/1.1")),
            [],
        ),
        // It goes on as HTTP/1.1, the proxy's own version.
        exchange("9110-2.5: HTTP/1.0", &with_line("GET /@ HTTP/1.0"), [SeenLine("GET /@ HTTP/1.1")])
            .kept(false),
        exchange(
            "9112-9.3: HTTP/1.0 with keep-alive",
            "GET /@ HTTP/1.0\r\nHost: alpha.test\r\nConnection: keep-alive\r\n\r\n",
            [SeenLine("GET /@ HTTP/1.1"), Check::Got("connection", "keep-alive")],
        )
        .kept(true),
    ]
}

fn targets() -> Vec<Case> {
    let get = |target: &str| with_line(&format!("GET {target} HTTP/1.1"));
    let bare = |request: &str| format!("{request}\r\nX-Case: /@\r\n\r\n");
    vec![
        passed(
            "9112-3.2.1: path and query go on as they came",
            &get("/@?a=b//../%2e%2F%00&c=;,'()*!$~:@"),
            [SeenLine("GET /@?a=b//../%2e%2F%00&c=;,'()*!$~:@ HTTP/1.1"), SeenField("host", "alpha.test")],
        ),
        passed(
            "9112-3.2.1: a query that is not escaped",
            &get("/@?a={\"b\":<1>}"),
            [SeenLine("GET /@?a={\"b\":<1>} HTTP/1.1")],
        ),
        passed(
            "9110-4.2.3: the default port of an absolute target",
            &get("http://alpha.test:80/@"),
            [SeenLine("GET /@ HTTP/1.1")],
        ),
        passed(
            "9110-7.2: a Host with the dot of the root",
            &bare("GET /@ HTTP/1.1\r\nHost: alpha.test."),
            [SeenLine("GET /@ HTTP/1.1")],
        ),
        passed(
            "9112-3.2.2: an absolute target goes on as a path",
            &get("http://alpha.test/@?x"),
            [SeenLine("GET /@?x HTTP/1.1"), SeenField("host", "alpha.test")],
        ),
        passed(
            "9112-3.2.2: an absolute target without a path",
            &get("http://alpha.test?x"),
            [SeenLine("GET /?x HTTP/1.1"), SeenField("host", "alpha.test")],
        ),
        passed(
            "9112-3.2.4: OPTIONS of the server",
            &with_line("OPTIONS * HTTP/1.1"),
            [SeenLine("OPTIONS * HTTP/1.1")],
        ),
        passed(
            "9112-3.2.4: OPTIONS of an absolute target without a path",
            &with_line("OPTIONS http://alpha.test HTTP/1.1"),
            [SeenLine("OPTIONS * HTTP/1.1")],
        ),
        refused("9112-3.2: no Host", &bare("GET /@ HTTP/1.1"), BAD),
        refused(
            "9112-3.2: no Host beside an absolute target",
            &bare("GET http://alpha.test/@ HTTP/1.1"),
            BAD,
        ),
        answered("9112-3.2: no Host in HTTP/1.0", &bare("GET /@ HTTP/1.0"), &[400, 421]),
        refused(
            "9112-3.2: a Host twice",
            &bare("GET /@ HTTP/1.1\r\nHost: alpha.test\r\nHost: alpha.test"),
            BAD,
        ),
        refused("9112-3.2: two Hosts", &bare("GET /@ HTTP/1.1\r\nHost: alpha.test\r\nHost: evil.test"), BAD),
        passed(
            "9110-4.2.3: a Host in capitals, with its port",
            &bare("GET /@ HTTP/1.1\r\nHost: ALPHA.test:80").replace("ALPHA.test", "alpha.test"),
            [SeenField("host", "alpha.test:80")],
        ),
        passed("9112-5.1: no space after the colon", &bare("GET /@ HTTP/1.1\r\nHost:alpha.test"), []),
        answered(
            "9110-7.4: a Host that is not served",
            &bare("GET /@ HTTP/1.1\r\nHost: evil.example"),
            &[421],
        ),
        answered("9110-7.4: an empty Host", &bare("GET /@ HTTP/1.1\r\nHost:"), &[421]),
    ]
    .into_iter()
    .chain(
        HOSTS
            .iter()
            .map(|(name, host)| refused(*name, &bare(&format!("GET /@ HTTP/1.1\r\nHost: {host}")), BAD)),
    )
    .collect()
}

/// Values that are no Host.
const HOSTS: &[(&str, &str)] = &[
    ("9112-3.2: a slash in the Host", "alpha.test/evil"),
    ("9112-3.2: a user in the Host", "user@alpha.test"),
    ("9112-3.2: a host after an at sign", "alpha.test@evil.test"),
    ("9112-3.2: a space in the Host", "alpha.test evil.test"),
    ("9112-3.2: a list of Hosts", "alpha.test, evil.test"),
    ("9112-3.2: a port of letters", "alpha.test:http"),
    ("9112-3.2: two ports", "alpha.test:80:80"),
    ("9112-3.2: a query in the Host", "alpha.test?x"),
    ("9112-3.2: a fragment in the Host", "alpha.test#x"),
    ("9112-3.2: a backslash in the Host", "alpha.test\\x"),
    ("9112-3.2: a quote in the Host", "alpha.test\""),
    ("9112-3.2: NUL in the Host", "alpha.test\0"),
    ("9112-3.2: a bracket in the Host", "[alpha.test"),
];

fn methods() -> Vec<Case> {
    let options = |fields: &str| format!("OPTIONS /@ HTTP/1.1\r\nHost: alpha.test\r\n{fields}\r\n\r\n");
    vec![
        answered("9110-9.3.8: TRACE", &with_line("TRACE /@ HTTP/1.1"), METHOD),
        answered(
            "9110-9.3.6: CONNECT",
            "CONNECT alpha.test:80 HTTP/1.1\r\nHost: alpha.test:80\r\nX-Case: /@\r\n\r\n",
            METHOD,
        ),
        answered("9110-9.3.6: CONNECT of a path", &with_line("CONNECT /@ HTTP/1.1"), &[400, 405]),
        // It answers as the last recipient, and passes nothing on.
        answered("9110-7.6.2: OPTIONS that goes no further", &options("Max-Forwards: 0"), &[200, 204]),
        passed(
            "9110-7.6.2: OPTIONS that goes one further",
            &options("Max-Forwards: 1"),
            [SeenField("max-forwards", "0")],
        ),
        passed(
            "9110-7.6.2: other methods do not count",
            "GET /@ HTTP/1.1\r\nHost: alpha.test\r\nMax-Forwards: 0\r\n\r\n",
            [],
        ),
        passed(
            "9110-9.1: a method that nobody knows",
            &with_line("BREW /@ HTTP/1.1"),
            [SeenLine("BREW /@ HTTP/1.1"), GotBody("/@".to_owned())],
        ),
        passed(
            "9110-9.1: methods differ by case",
            &with_line("get /@ HTTP/1.1"),
            [Seen(|request| {
                let is_same = request.start.starts_with("get ");
                is_same.then_some(()).ok_or_else(|| format!("request line {:?}", request.start))
            })],
        ),
    ]
}
