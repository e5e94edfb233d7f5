//! Several messages on a connection: pipelined requests, interim answers, upgrades.

use super::letters;
use crate::conformance::case::{Case, Check, Reaches, exchange, passed};
use crate::conformance::client::Step;
use crate::conformance::proxies::SHORT;
use crate::conformance::server::{Act, answers, closes, ok};
use Check::{
    Bodies, Got, GotBody, InterimHas, Interims, LastBody, Never, Seen, SeenBody, SeenField, SeenNo, Statuses,
};

const GET: &str = "GET /@ HTTP/1.1\r\nHost: alpha.test\r\n\r\n";

fn get(path: &str) -> String {
    GET.replace("/@", path)
}

fn post(fields: &str, body: &str) -> String {
    format!("POST /@ HTTP/1.1\r\nHost: alpha.test\r\n{fields}\r\n\r\n{body}")
}

fn send(text: impl Into<String>) -> Step {
    Step::Send(text.into())
}

fn write(text: impl Into<String>) -> Act {
    Act::Write(text.into().into_bytes())
}

/// An exchange of these steps.
fn talk(name: &str, steps: Vec<Step>, checks: Vec<Check>) -> Case {
    exchange(name, "", checks).steps(steps)
}

pub(crate) fn cases() -> Vec<Case> {
    [pipelines(), expectations(), interims(), upgrades(), splits()].concat()
}

fn pipelines() -> Vec<Case> {
    let posted = post("Content-Length: 5", "hello");
    let chunked = post("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n");
    let large = letters(100_000);
    let dribbled = post("Transfer-Encoding: chunked", "3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nX-A: b\r\n\r\n");
    vec![
        talk(
            "9112-2.2: an empty line after a body",
            vec![send(format!("{posted}\r\n{}", get("/@b"))), Step::Answers(2)],
            vec![SeenBody("hello".to_owned()), Bodies(&["/@", "/@b"])],
        ),
        talk(
            "9112-2.2: an empty line after a body, by itself",
            vec![send(format!("{posted}\r\n")), Step::Answers(1), send(get("/@b")), Step::Answers(2)],
            vec![SeenBody("hello".to_owned()), Bodies(&["/@", "/@b"])],
        ),
        talk(
            "9112-2.2: an empty line after chunks",
            vec![send(format!("{chunked}\r\n{}", get("/@b"))), Step::Answers(2)],
            vec![SeenBody("hello".to_owned()), Bodies(&["/@", "/@b"])],
        ),
        talk(
            "9112-9.3.2: five requests at once",
            vec![send(["/@", "/@b", "/@c", "/@d", "/@e"].map(get).concat()), Step::Answers(5)],
            vec![Bodies(&["/@", "/@b", "/@c", "/@d", "/@e"])],
        ),
        talk(
            "9112-9.3.2: a POST and two more at once",
            vec![send([posted.clone(), get("/@b"), get("/@c")].concat()), Step::Answers(3)],
            vec![SeenBody("hello".to_owned()), Bodies(&["/@", "/@b", "/@c"])],
        ),
        talk(
            "9112-9.3.2: chunks and two more at once",
            vec![send([chunked, get("/@b"), get("/@c")].concat()), Step::Answers(3)],
            vec![SeenBody("hello".to_owned()), Bodies(&["/@", "/@b", "/@c"])],
        ),
        talk(
            "9112-9.3.2: a request cut in its head between packets",
            vec![send(&GET[..20]), Step::Idle(SHORT / 10), send(&GET[20..]), Step::Answers(1)],
            vec![Bodies(&["/@"])],
        ),
        talk(
            "9112-9.3.2: two requests byte by byte",
            vec![Step::Dribble(dribbled + &get("/@b")), Step::Answers(2)],
            vec![SeenBody("hello".to_owned()), Bodies(&["/@", "/@b"])],
        ),
        talk(
            "9112-9.3.2: a request while 100 KB are on their way",
            vec![send(GET), Step::Begin, send(get("/@b")), Step::Answers(2)],
            vec![GotBody(large.clone()), Statuses(&[200, 200]), LastBody("/@b")],
        )
        .script(vec![
            Act::Body,
            write(ok(&large)[..50_000].to_owned()),
            Act::Pause,
            write(ok(&large)[50_000..].to_owned()),
        ]),
        talk(
            "9112-9.3.2: a POST while 100 KB are on their way",
            vec![send(GET), Step::Begin, send(posted.replace("/@", "/@b")), Step::Answers(2)],
            vec![GotBody(large.clone()), Statuses(&[200, 200]), LastBody("/@b")],
        )
        .script(answers(ok(&large))),
        talk(
            "9112-9.6: a POST after a server has closed without saying so",
            vec![
                send(GET),
                Step::Answers(1),
                Step::Server,
                send(posted.replace("/@", "/@b")),
                Step::Answers(2),
            ],
            vec![Bodies(&["ok", "/@b"])],
        )
        .script(closes(ok("ok"))),
        exchange(
            "9112-9.6: a client that closes",
            &get("/@").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"),
            [Got("connection", "close")],
        )
        .kept(false),
        talk(
            "9112-9.6: requests after the last one",
            vec![
                send(format!(
                    "{}{}",
                    GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"),
                    get("/@smuggled")
                )),
                Step::Answers(2),
            ],
            vec![Statuses(&[200])],
        ),
    ]
}

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

fn expectations() -> Vec<Case> {
    let head = post("Content-Length: 5\r\nExpect: 100-continue", "");
    let asks = |name: &str, head: &str, body: &str, script: Vec<Act>, checks: Vec<Check>| {
        talk(name, vec![send(head), Step::Interim(100), send(body), Step::Answers(1)], checks).script(script)
    };
    let continues = vec![write(CONTINUE), Act::Body, write(ok("done"))];
    let early =
        |status: &str| vec![write(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno")), Act::Close];
    let refuses = |name: &str, status: &'static [u16], script: Vec<Act>| {
        // The client does not send the body, and so cannot go on with the connection.
        let case = talk(
            name,
            vec![send(head.clone()), Step::Answers(1)],
            vec![Interims(&[]), GotBody("no".to_owned()), Check::Parted],
        );
        Case { reaches: Reaches::NoWhole, statuses: status, ..case }.script(script)
    };
    vec![
        asks(
            "9110-10.1.1: the server says to go on",
            &head,
            "hello",
            continues.clone(),
            vec![
                Interims(&[100]),
                SeenField("expect", "100-continue"),
                SeenBody("hello".to_owned()),
                GotBody("done".to_owned()),
            ],
        ),
        asks(
            "9110-10.1.1: the server says to go on with chunks",
            &post("Transfer-Encoding: chunked\r\nExpect: 100-continue", ""),
            "5\r\nhello\r\n0\r\n\r\n",
            continues.clone(),
            vec![Interims(&[100]), SeenBody("hello".to_owned()), GotBody("done".to_owned())],
        ),
        talk(
            "9110-10.1.1: a client that does not wait",
            vec![send(format!("{head}hello{}", get("/@b"))), Step::Answers(2)],
            vec![SeenBody("hello".to_owned()), Bodies(&["done", "/@b"])],
        )
        .script(continues.clone()),
        refuses("9110-10.1.1: the server refuses the expectation", &[417], early("417 No")),
        refuses("9110-10.1.1: the server refuses the client", &[401], early("401 No")),
        refuses("9110-10.1.1: the server refuses without closing", &[401], early("401 No")[..1].to_vec()),
        exchange(
            "9110-10.1.1: an expectation in HTTP/1.0",
            &format!("{head}hello").replace("HTTP/1.1", "HTTP/1.0"),
            [Interims(&[]), SeenBody("hello".to_owned()), GotBody("done".to_owned())],
        )
        .script(continues),
        // What follows a refusal is still the body, or nothing: never a request.
        Case {
            reaches: Reaches::Maybe,
            statuses: &[417],
            ..talk(
                "9110-10.1.1: a request for a body, after a refusal",
                vec![
                    send(post(
                        &format!("Content-Length: {}\r\nExpect: 100-continue", get("/@smuggled").len()),
                        "",
                    )),
                    Step::Answers(1),
                    send(get("/@smuggled")),
                    Step::Answers(2),
                ],
                vec![Interims(&[])],
            )
        }
        .script(early("417 No")[..1].to_vec()),
        talk(
            "9112-9.3: an answer that begins before the end of the body and ends after it",
            vec![send(post("Content-Length: 10", "hello")), Step::Begin, send("world"), Step::Answers(1)],
            vec![SeenBody("helloworld".to_owned()), GotBody("earlylate".to_owned())],
        )
        .script(vec![
            write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nearly"),
            Act::Body,
            write("late"),
        ]),
        talk(
            "9112-9.3: the same with chunks",
            vec![
                send(post("Transfer-Encoding: chunked", "5\r\nhello\r\n")),
                Step::Begin,
                send("5\r\nworld\r\n0\r\n\r\n"),
                Step::Answers(1),
            ],
            vec![SeenBody("helloworld".to_owned()), GotBody("earlylate".to_owned())],
        )
        .script(vec![
            write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n"),
            Act::Body,
            write("4\r\nlate\r\n0\r\n\r\n"),
        ]),
        // It has answered, whatever it still gets.
        Case {
            reaches: Reaches::Maybe,
            ..talk(
                "9112-9.3: an answer before the end of the body",
                vec![send(post("Content-Length: 100000", "hello")), Step::Answers(1)],
                vec![GotBody("early".to_owned())],
            )
        }
        .script(vec![write(ok("early")), Act::Body]),
    ]
}

fn interims() -> Vec<Case> {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    let after = |interims: &str| answers(format!("{interims}{}", ok("done")));
    let old = GET.replace("HTTP/1.1", "HTTP/1.0");
    vec![
        passed(
            "9110-15.2: early hints",
            GET,
            [Interims(&[103]), InterimHas("link", "</a.css>; rel=preload"), GotBody("done".to_owned())],
        )
        .script(vec![Act::Body, write(hints), Act::Pause, write(ok("done"))]),
        passed(
            "9110-15.2: several interim answers",
            GET,
            [Interims(&[102, 103, 103]), GotBody("done".to_owned())],
        )
        .script(after(&format!("HTTP/1.1 102 Processing\r\n\r\n{hints}{hints}"))),
        passed("9110-15.2: an unknown interim answer", GET, [GotBody("done".to_owned())])
            .script(after("HTTP/1.1 199 Odd\r\n\r\n")),
        passed("9110-15.2: a 100 that was not asked for", GET, [GotBody("done".to_owned())])
            .script(after(CONTINUE)),
        exchange("9110-15.2: no early hints to HTTP/1.0", &old, [Interims(&[]), GotBody("done".to_owned())])
            .script(after(hints)),
    ]
}

const UPGRADE: &str = "GET /@ HTTP/1.1\r\nHost: alpha.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn upgrades() -> Vec<Case> {
    const SWITCHED: &[u16] = &[101];
    let echo = vec![Act::Body, write(SWITCH), Act::Echo];
    let tunnel = |name: &str, steps: Vec<Step>, checks: Vec<Check>| {
        let fields = [
            SeenField("upgrade", "websocket"),
            Seen(|request| match request.field("connection") {
                Some(value) if value.eq_ignore_ascii_case("upgrade") => Ok(()),
                other => Err(format!("connection: {other:?}")),
            }),
            SeenField("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            Got("upgrade", "websocket"),
            Got("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ];
        Case { statuses: SWITCHED, ..talk(name, steps, checks) }.check(fields).script(echo.clone())
    };
    let large = letters(200_000);
    let text = |text: &str| GotBody(text.to_owned());
    let unasked = |name: &str, request: &str| {
        const BAD_GATEWAY: &[u16] = &[502];
        let case = exchange(name, request, [Check::Parted]).script(echo.clone());
        Case { reaches: Reaches::Tries, statuses: BAD_GATEWAY, ..case }
    };
    vec![
        tunnel(
            "9110-7.8: an upgrade",
            vec![
                send(UPGRADE),
                Step::Answers(1),
                send("ping"),
                Step::Tunnel(4),
                send("\r\n\0\u{1}"),
                Step::Tunnel(8),
            ],
            vec![text("ping\r\n\0\u{1}")],
        ),
        tunnel(
            "9110-7.8: 200 KB through an upgraded connection",
            vec![send(UPGRADE), Step::Answers(1), send(large.clone()), Step::Tunnel(large.len())],
            vec![GotBody(large)],
        ),
        tunnel(
            "9110-7.8: bytes of the new protocol at once",
            vec![send(format!("{UPGRADE}ping")), Step::Answers(1), Step::Tunnel(4)],
            vec![text("ping")],
        ),
        tunnel(
            "9110-7.8: the server speaks first",
            vec![send(UPGRADE), Step::Answers(1), Step::Tunnel(5)],
            vec![text("hello")],
        )
        .script(vec![Act::Body, write(format!("{SWITCH}hello")), Act::Echo]),
        // Longer than an answer may take. The second tunnel shows that the node has not been taken out.
        tunnel(
            "9110-7.8: an idle tunnel",
            vec![
                send(UPGRADE),
                Step::Answers(1),
                Step::Idle(SHORT * 2),
                send("ping"),
                Step::Tunnel(4),
                Step::Connect,
                send(get("/@b")),
                Step::Answers(1),
            ],
            vec![text("ping"), LastBody("/@b")],
        )
        .needs_short(),
        passed(
            "9110-7.8: an upgrade that the server ignores",
            UPGRADE,
            [text("/@"), Check::GotNo("upgrade"), SeenField("upgrade", "websocket")],
        ),
        talk(
            "9110-7.8: a request behind an upgrade that the server ignores",
            vec![send(format!("{UPGRADE}{}", get("/@b"))), Step::Answers(2)],
            vec![Bodies(&["/@", "/@b"])],
        ),
        passed("9110-7.8: an upgrade that the server refuses", UPGRADE, [SeenField("upgrade", "websocket")])
            .script(answers(ok("no"))),
        unasked("9110-7.8: a 101 that was not asked for", GET),
        unasked(
            "9110-7.8: a 101 without Connection: upgrade",
            &UPGRADE.replace("Connection: Upgrade\r\n", ""),
        ),
        passed(
            "9110-7.8: an upgrade without a name",
            &UPGRADE.replace("Upgrade: websocket\r\n", ""),
            [SeenNo("upgrade")],
        ),
    ]
}

/// Answers that a client did not ask for never reach one.
fn splits() -> Vec<Case> {
    const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nevil!";
    let steps = || {
        vec![
            send(GET),
            Step::Answers(1),
            Step::Server,
            send(get("/@b")),
            Step::Answers(2),
            Step::Connect,
            send(get("/@c")),
            Step::Answers(1),
            send(get("/@d")),
            Step::Answers(2),
        ]
    };
    let split = |name: &str, script: Vec<Act>| {
        let case = talk(name, steps(), vec![Never("evil"), LastBody("/@d"), Check::Parted]).script(script);
        const EITHER: &[u16] = &[200, 204, 304, 502];
        Case { statuses: EITHER, ..case }
    };
    let late = |head: &str| vec![Act::Body, write(head), Act::Pause, write(EVIL)];
    vec![
        split("9112-6.3: a second answer", answers(format!("{}{EVIL}", ok("ok")))),
        split("9112-6.3: a second answer, later", late(&ok("ok"))),
        split(
            "9112-6.3: a second answer after chunks",
            answers(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{EVIL}"
            )),
        ),
        split("9112-6.3: a body after a 204", answers(format!("HTTP/1.1 204 No Content\r\n\r\n{EVIL}"))),
        split("9112-6.3: a body after a 304", answers(format!("HTTP/1.1 304 Not Modified\r\n\r\n{EVIL}"))),
        split(
            "9112-6.3: more bytes than the length",
            answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokevil"),
        ),
        split("9112-6.3: empty lines after an answer, and another", late(&format!("{}\r\n\r\n", ok("ok")))),
        talk(
            "9112-6.3: a body after the answer to a HEAD",
            vec![
                send(GET.replace("GET", "HEAD")),
                Step::Answers(1),
                Step::Server,
                send(get("/@b")),
                Step::Answers(2),
                Step::Connect,
                send(get("/@c")),
                Step::Answers(1),
            ],
            vec![Never("evil"), LastBody("/@c"), Check::Parted],
        )
        .script(answers(EVIL)),
    ]
}
