//! What becomes of requests over HTTP/1 whose client or server is slow, silent or gone: what each side gets, when connections end, and
//! who is blamed.

use std::future::pending;
use std::time::Duration;

use sidelong_proxy::Proxy;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

use crate::pair::Step::{Drip, Fill, Get, Half, Leave, Pace, Send, Stare, Wait};
use crate::pair::{BODY_S, CONNECT_S, Connections, HEADER_S, IDLE_S, Player, RESPONSE_S, Step, run};

const GET: Step = Send("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n");
const POST: Step = Send("POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 5\r\n\r\nhello");
const OK: Step = Send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
/// Part of an answer.
const HALF: Step = Send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok");
/// An answer behind which the connection is closed.
const LAST_OK: Step = Send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
const ASKED: Step = Get("\r\n\r\n");
/// The client that asks once, and has been answered.
const ASKS: &[Step] = &[GET, Get("ok"), Leave];

/// More than any server of a play has.
const CONNECTIONS_MAX: usize = 16;

/// What a server does.
#[derive(Clone, Copy)]
enum Server {
    /// Plays the n-th part on its n-th connection, and the last on all further ones. After it the connection stays for as long as the
    /// other side keeps it.
    Plays(&'static [&'static [Step]]),
    /// Accepts no connection.
    Deaf,
    /// Nobody listens.
    Away,
}
use Server::{Away, Deaf, Plays};

const SERVES: Server = Plays(&[&[ASKED, OK]]);
const HANGS: Server = Plays(&[&[]]);
const BREAKS: Server = Plays(&[&[ASKED, Leave]]);

/// A connection that a server had.
#[derive(Debug)]
struct Heard {
    text: String,
    /// The second in which it ended.
    ended: u64,
}

/// What came of a play.
#[derive(Debug)]
struct Played {
    /// What the client got.
    text: String,
    /// The second in which its connection ended.
    ended: u64,
    events: Vec<String>,
    /// In the order of their ends.
    heard: Vec<Heard>,
}

impl Played {
    /// The statuses of the answers, each with its body unless it is the data path's own.
    fn answers(&self) -> String {
        let answer = |answer: &str| {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
            let status = &head[..3];
            if body.is_empty() || body.starts_with(status) {
                status.to_owned()
            } else {
                format!("{status} {body}")
            }
        };
        self.text.split("HTTP/1.1 ").skip(1).map(answer).collect::<Vec<_>>().join(", ")
    }
}

/// Plays a client and its servers until all connections have ended.
fn play(client: &[Step], servers: &[Server]) -> Played {
    play_with(client, servers, |_| ())
}

fn play_with(client: &[Step], servers: &[Server], change: impl FnOnce(&mut Proxy)) -> Played {
    run(servers.len(), change, async |pair, connections| {
        let (tell, mut heard) = mpsc::channel(CONNECTIONS_MAX);
        for (index, connections) in connections.into_iter().enumerate() {
            match servers[index] {
                Plays(parts) => drop(spawn_local(serve(parts, connections, tell.clone()))),
                Deaf => {
                    pair.deafen(index).await;
                    spawn_local(async { drop((pending::<()>().await, connections)) });
                }
                Away => {}
            }
        }
        let mut player = pair.client().await;
        let ended = (player.play(client).await - pair.begun()).as_secs();
        let text = player.text();
        drop(player);
        // The data path keeps no connection for longer.
        sleep(Duration::from_secs(2 * IDLE_S)).await;
        let heard = std::iter::from_fn(|| heard.try_recv().ok()).collect();
        Played { text, ended, heard, events: pair.events() }
    })
}

async fn serve(parts: &'static [&'static [Step]], mut connections: Connections, tell: mpsc::Sender<Heard>) {
    let begun = Instant::now();
    for n in 0.. {
        let Some(stream) = connections.recv().await else { return };
        let (part, tell) = (parts[n.min(parts.len() - 1)], tell.clone());
        spawn_local(async move {
            let mut player = Player::new(stream);
            let ended = (player.play(part).await - begun).as_secs();
            let _ = tell.try_send(Heard { text: player.text(), ended });
        });
    }
}

/// What is played with the usual limits, and what comes of it: the client's answers, the second in which its connection ends, and the
/// events.
type Case<'a> = (&'a str, &'a [Step], &'a [Server], &'a str, u64, &'a [&'a str]);

fn check(cases: &[Case<'_>]) {
    for (what, client, servers, answers, ended, events) in cases {
        let played = play(client, servers);
        let came = (played.answers(), played.ended, &played.events[..]);
        assert!(
            came.0 == *answers && came.1 == *ended && came.2 == *events,
            "{what}: {came:?} of {played:#?}"
        );
    }
}

#[test]
fn a_head_has_its_time() {
    const BEGUN: Step = Send("GET / HTTP/1.1\r\nhost: a.test\r\n");
    const JUST: Step = Wait(HEADER_S - 1);
    const TWICE: Server = Plays(&[&[ASKED, OK, Get("\r\n\r\nGET"), OK]]);
    check(&[
        ("nothing", &[], &[], "", IDLE_S, &[]),
        ("empty lines", &[Send("\r\n\r\n")], &[], "", IDLE_S, &[]),
        ("part of it", &[Wait(7), BEGUN], &[], "408", 7 + HEADER_S, &["too-slow"]),
        ("field after field", &[BEGUN, Drip("x-slow: y\r\n")], &[], "408", HEADER_S, &["too-slow"]),
        ("a line without end", &[Drip("G")], &[], "408", HEADER_S, &["too-slow"]),
        ("part of HTTP/2's preface", &[Send("PRI * HTTP/2.0\r\n\r\nS")], &[], "408", HEADER_S, &["too-slow"]),
        (
            "just in time",
            &[BEGUN, JUST, Send("\r\n"), Get("ok"), Leave],
            &[SERVES],
            "200 ok",
            HEADER_S - 1,
            &[],
        ),
        // The second, which was there before the first was answered, has all of it, too.
        ("again", &[GET, BEGUN, JUST, Send("\r\n")], &[TWICE], "200 ok, 200 ok", HEADER_S - 1 + IDLE_S, &[]),
        (
            "a second",
            &[GET, Wait(IDLE_S - 1), BEGUN],
            &[SERVES],
            "200 ok, 408",
            IDLE_S - 1 + HEADER_S,
            &["too-slow"],
        ),
    ]);
}

#[test]
fn a_body_has_its_time() {
    const LENGTH: Step = Send("POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 100000\r\n\r\n");
    const CHUNKED: Step = Send("POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n");
    const BREAKS_OFF: Server = Plays(&[&[Wait(BODY_S - 1), Leave]]);
    const TWO_WAYS: Server = Plays(&[&[
        ASKED,
        Send("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n"),
        Pace("x", 9, BODY_S - 1),
        Get("0\r\n\r\n"),
        Send("ok"),
    ]]);
    check(&[
        ("nothing of it", &[LENGTH], &[HANGS], "408", BODY_S, &["too-slow"]),
        ("byte after byte", &[LENGTH, Drip("x")], &[HANGS], "408", BODY_S, &["too-slow"]),
        ("chunk after chunk", &[CHUNKED, Drip("1\r\nx\r\n")], &[HANGS], "408", BODY_S, &["too-slow"]),
        // A server that gives up such a client has not failed.
        ("the server gives up", &[LENGTH], &[BREAKS_OFF], "502", BODY_S - 1, &[]),
        // A server that answers meanwhile may go on for as long as either sends.
        (
            "two ways",
            &[CHUNKED, Pace("1\r\nx\r\n", 9, 15), Send("0\r\n\r\n"), Get("ok"), Leave],
            &[TWO_WAYS],
            "200 xxxxxxxxxok",
            171,
            &[],
        ),
    ]);
}

/// The client has sent as much as there was room for.
#[test]
fn a_server_that_takes_a_body_late_does_not_make_the_client_late() {
    const POST: Step = Send("POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 1000001\r\n\r\n");
    let client = [POST, Fill(1_000_000), Wait(BODY_S - 1), Send("!")];
    const LATE: Server = Plays(&[&[Stare(10 * BODY_S), Get("!"), OK]]);
    let played = play_with(&client, &[LATE], |proxy| {
        proxy.settings.change(|settings| settings.limits.response_timeout *= 100);
    });
    assert_eq!((&*played.answers(), played.ended), ("200 ok", 11 * BODY_S - 1 + IDLE_S), "{played:?}");
    assert!(played.events.is_empty(), "{played:?}");
}

#[test]
fn a_server_has_its_time() {
    const INTERIM: Server = Plays(&[&[
        ASKED,
        Pace("HTTP/1.1 103 Early Hints\r\n\r\n", 2, RESPONSE_S - 1),
        Wait(RESPONSE_S - 1),
        OK,
    ]]);
    const HINTS: Server = Plays(&[&[ASKED, Drip("HTTP/1.1 103 Early Hints\r\n\r\n")]]);
    let hints = "103, ".repeat(100) + "502";
    const PACED: Server = Plays(&[&[ASKED, HALF, Pace("x", 7, RESPONSE_S - 1)]]);
    const NO_END: Server = Plays(&[&[ASKED, HALF, Leave]]);
    const EVENTS: Step = Send(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncontent-length: 3\r\n\r\n",
    );
    check(&[
        (
            "just in time",
            ASKS,
            &[Plays(&[&[ASKED, Wait(RESPONSE_S - 1), OK]])],
            "200 ok",
            RESPONSE_S - 1,
            &[],
        ),
        ("never", &[POST], &[HANGS], "504", RESPONSE_S + IDLE_S, &["Late"]),
        (
            "events with pauses of 50 minutes",
            &[GET, Get("xxx"), Leave],
            &[Plays(&[&[ASKED, EVENTS, Pace("x", 3, 3_000)]])],
            "200 xxx",
            9_000,
            &[],
        ),
        ("events that do not go on", &[GET], &[Plays(&[&[ASKED, EVENTS]])], "200", 3_600, &[]),
        (
            "what may be repeated is",
            &[GET],
            &[HANGS, HANGS],
            "504",
            2 * RESPONSE_S + IDLE_S,
            &["Late", "Late"],
        ),
        ("and answered", ASKS, &[HANGS, SERVES], "200 ok", RESPONSE_S, &["Late"]),
        ("informed meanwhile", ASKS, &[INTERIM], "103, 103, 200 ok", 3 * (RESPONSE_S - 1), &[]),
        ("informed without end", &[POST, Get(" 502 "), Leave], &[HINTS], &hints, 100, &["Broken"]),
        ("a long answer", &[GET], &[PACED], "200 okxxxxxxx", 7 * (RESPONSE_S - 1) + IDLE_S, &[]),
        // A pause in an answer does not show that the server has failed.
        ("half of it", &[GET], &[Plays(&[&[ASKED, HALF]]), SERVES], "200 ok", RESPONSE_S, &[]),
        ("its end does", &[GET], &[NO_END, SERVES], "200 ok", 0, &["Broken"]),
    ]);
}

#[test]
fn what_a_server_cannot_have_seen_goes_to_another() {
    const MALFORMED: Server = Plays(&[&[ASKED, Send("none\r\n\r\n")]]);
    check(&[
        ("it breaks", ASKS, &[BREAKS, SERVES], "200 ok", 0, &["Broken"]),
        ("so do all", &[GET], &[BREAKS, BREAKS, SERVES], "502", IDLE_S, &["Broken", "Broken"]),
        ("an order is not sent twice", &[POST], &[BREAKS, SERVES], "502", IDLE_S, &["Broken"]),
        ("nonsense", ASKS, &[MALFORMED, SERVES], "200 ok", 0, &["Malformed"]),
        ("nobody listens", &[POST, Get("ok"), Leave], &[Away, SERVES], "200 ok", 0, &["Refused"]),
        ("nobody accepts", &[POST, Get("ok"), Leave], &[Deaf, SERVES], "200 ok", CONNECT_S, &["Unreachable"]),
        ("nobody at all", &[GET], &[Away, Deaf], "502", CONNECT_S + IDLE_S, &["Refused", "Unreachable"]),
    ]);
}

/// The server has done nothing wrong.
#[test]
fn a_client_that_leaves_or_takes_nothing_is_let_go() {
    const LARGE: Server =
        Plays(&[&[ASKED, Send("HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n"), Fill(9_000_000)]]);
    const SLOW: Server = Plays(&[&[ASKED, Wait(RESPONSE_S - 1), OK]]);
    let cases: [(&str, &[Step], Server, u64); 4] = [
        ("it leaves", &[GET, Wait(3), Leave], SLOW, 3),
        // The end of what it sends cannot be told from its leaving.
        ("it says no more", &[GET, Wait(4), Half], SLOW, 4),
        (
            "it leaves in its body",
            &[Send("POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 9\r\n\r\n"), Wait(5), Leave],
            SLOW,
            5,
        ),
        ("it reads nothing", &[GET, Stare(1000)], LARGE, RESPONSE_S),
    ];
    for (what, client, server, ended) in cases {
        let played = play(client, &[server, SERVES]);
        let [heard] = &played.heard[..] else { panic!("{what}: {played:?}") };
        assert!(played.events.iter().all(|event| event == "no answer"), "{what}: {played:?}");
        assert_eq!(heard.ended, ended, "{what}");
    }
}

#[test]
fn a_connection_to_a_server_is_kept_and_may_end_at_any_time() {
    const TWO: &[Step] = &[ASKED, OK, Get("\r\n\r\nGET"), OK];
    const LATER: &[Step] = &[GET, Get("ok"), Wait(20), POST];
    const LEAVES: Server = Plays(&[&[ASKED, OK, Wait(10), Leave], &[ASKED, OK]]);
    const LEAVES_AT_ONCE: Server = Plays(&[&[ASKED, OK, Get("\r\n\r\nGET"), Leave], &[ASKED, OK]]);
    const NOT_AGAIN: Server = Plays(&[&[ASKED, OK, Get("\r\n\r\nPOST"), Leave], &[ASKED, OK]]);
    const CHATTERS: Server = Plays(&[&[ASKED, OK, Wait(1), OK], &[ASKED, OK]]);
    let again = &[GET, Get("ok"), Wait(20), GET][..];
    // The connections' ends. The data path keeps one for a minute, and looks once a second.
    type Case<'a> = (&'a str, &'a [Step], Server, &'a str, &'a [u64]);
    let cases: [Case; 6] = [
        ("one for both", again, Plays(&[TWO]), "200 ok, 200 ok", &[80]),
        ("the server's end is seen", again, LEAVES, "200 ok, 200 ok", &[10, 80]),
        ("just as it is used", again, LEAVES_AT_ONCE, "200 ok, 200 ok", &[20, 80]),
        ("but an order is not sent twice", LATER, NOT_AGAIN, "200 ok, 502", &[20]),
        ("what nobody asked for is no answer", again, CHATTERS, "200 ok, 200 ok", &[2, 80]),
        ("it says that it closes", again, Plays(&[&[ASKED, LAST_OK]]), "200 ok, 200 ok", &[0, 20]),
    ];
    for (what, client, server, answers, ends) in cases {
        let played = play(client, &[server]);
        let ended: Vec<_> = played.heard.iter().map(|heard| heard.ended).collect();
        assert_eq!((&*played.answers(), &ended[..]), (answers, ends), "{what}: {played:#?}");
        assert_eq!(played.events, [""; 0], "{what}");
    }
}

/// What each side gets of an exchange: with which words it ends, and which are in it.
#[test]
fn messages_pass_in_all_their_forms() {
    const CHUNKED_POST: &str = "POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n";
    const TRAILERS: &str = "2\r\nab\r\n0\r\nchecksum: 1\r\n\r\n";
    const CHUNKED_ANSWER: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    const EXPECTS: &str =
        "POST / HTTP/1.1\r\nhost: a.test\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";
    const EARLY: &str = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
    const OLD: &str = "GET / HTTP/1.0\r\nhost: a.test\r\n\r\n";
    const OLD_AGAIN: &str = "GET / HTTP/1.0\r\nhost: a.test\r\nconnection: keep-alive\r\n\r\n";
    const UNTIL_CLOSE: &str = "HTTP/1.0 200 OK\r\n\r\nok";
    const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    type Form = (
        &'static str,
        &'static [Step],
        &'static [&'static [Step]],
        (&'static str, &'static str),
        &'static str,
        u64,
    );
    // The name, both plays, what the client's text has and how it ends, how the server's ends, and when the client's connection does.
    let forms: [Form; 12] = [
        (
            "trailers",
            &[Send(CHUNKED_POST), Wait(1), Send(TRAILERS)],
            &[&[Get("checksum: 1\r\n\r\n"), Send(CHUNKED_ANSWER), Wait(1), Send(TRAILERS)]],
            ("transfer-encoding: chunked\r\n", TRAILERS),
            TRAILERS,
            2 + IDLE_S,
        ),
        (
            "a body that is waited for",
            &[Send(EXPECTS), Get("100 Continue\r\n\r\n"), Send("hello")],
            &[&[ASKED, Wait(3), Send("HTTP/1.1 100 Continue\r\n\r\n"), Get("hello"), OK]],
            ("HTTP/1.1 100 Continue\r\n", "\r\n\r\nok"),
            "\r\n\r\nhello",
            3 + IDLE_S,
        ),
        (
            "a body that is not wanted",
            &[Send(EXPECTS), Get("no")],
            &[&[ASKED, Send(EARLY)]],
            ("HTTP/1.1 403 Forbidden\r\n", "\r\n\r\nno"),
            "\r\n\r\n",
            0,
        ),
        (
            "an answer before the body's end",
            &[Send(CHUNKED_POST), Wait(3), Send("2\r\nab\r\n")],
            &[&[Get("ab"), Send(EARLY), Leave]],
            ("connection: close\r\n", "\r\n\r\nno"),
            "ab",
            3,
        ),
        (
            "a client of 1.0",
            &[Send(OLD)],
            &[&[ASKED, OK]],
            ("connection: close\r\n", "\r\n\r\nok"),
            "\r\n\r\n",
            0,
        ),
        (
            "one that stays",
            &[Send(OLD_AGAIN)],
            &[&[ASKED, OK]],
            ("connection: keep-alive\r\n", "\r\n\r\nok"),
            "\r\n\r\n",
            IDLE_S,
        ),
        (
            "chunks for a client of 1.0",
            &[Send(OLD_AGAIN)],
            &[&[ASKED, Send(CHUNKED_ANSWER), Send(TRAILERS)]],
            ("connection: close\r\n", "\r\n\r\nab"),
            "\r\n\r\n",
            0,
        ),
        (
            "an answer until the end",
            &[GET],
            &[&[ASKED, Send(UNTIL_CLOSE), Wait(2), Send("ay"), Leave]],
            ("transfer-encoding: chunked\r\n", "2\r\nok\r\n2\r\nay\r\n0\r\n\r\n"),
            "\r\n\r\n",
            2 + IDLE_S,
        ),
        (
            "an upgrade, whose server ends first",
            &[Send(UPGRADE), Get("\r\n\r\n"), Send("ping"), Get("pong")],
            &[&[ASKED, Send(SWITCH), Get("ping"), Send("pong"), Half]],
            ("HTTP/1.1 101 Switching Protocols\r\n", "\r\n\r\npong"),
            "\r\n\r\nping",
            0,
        ),
        (
            "one whose client ends first",
            &[Send(UPGRADE), Get("\r\n\r\n"), Send("ping"), Half],
            &[&[ASKED, Send(SWITCH), Get("ping"), Wait(900), Send("pong"), Leave]],
            ("upgrade: echo\r\n", "\r\n\r\npong"),
            "\r\n\r\nping",
            900,
        ),
        (
            "one that nobody uses",
            &[Send(UPGRADE), Get("\r\n\r\n"), Wait(3599), Send("ping")],
            &[&[ASKED, Send(SWITCH)]],
            ("upgrade: echo\r\n", "\r\n\r\n"),
            "ping",
            3599 + 3600,
        ),
        (
            "one that is not accepted",
            &[Send(UPGRADE), Get("ok"), GET],
            &[&[ASKED, OK, Get("\r\n\r\nGET"), OK]],
            ("HTTP/1.1 200 OK\r\n", "\r\n\r\nok"),
            "\r\n\r\n",
            IDLE_S,
        ),
    ];
    for (what, client, server, (has, end), served, ended) in forms {
        let played = play(client, &[Plays(server)]);
        let [heard, ..] = &played.heard[..] else { panic!("{what}: {played:?}") };
        assert!(played.text.contains(has) && played.text.ends_with(end), "{what}: {played:#?}");
        assert!(heard.text.ends_with(served) && played.ended == ended, "{what}: {played:#?}");
        let is_tunnel = played.text.starts_with("HTTP/1.1 101 ");
        assert_eq!(played.events, vec!["tunnel"; is_tunnel.into()], "{what}");
    }
}

#[test]
fn what_is_no_request_is_refused_at_once() {
    const POST: &str = "POST / HTTP/1.1\r\nhost: a.test\r\n";
    // What is wrong with a body comes after the head, whose request has an end of its own.
    let wrong = [
        ("\0\0\0\0\r\n\r\n", "400", &["malformed"][..]),
        ("GET\r\n\r\n", "400", &["malformed"]),
        ("GET / HTTP/9.9\r\nhost: a.test\r\n\r\n", "505", &["unsupported"]),
        ("GET / HTTP/1.1\r\nhost a.test\r\n\r\n", "400", &["malformed"]),
        ("TRACE / HTTP/1.1\r\nhost: a.test\r\n\r\n", "405", &["method"]),
        (&format!("{POST}expect: tea\r\n\r\n"), "417", &["unsupported"]),
        (&format!("{POST}content-length: -1\r\n\r\n"), "400", &["malformed"]),
        (&format!("{POST}content-length: 1\r\ncontent-length: 2\r\n\r\nxx"), "400", &["malformed"]),
        (&format!("{POST}content-length: 1048577\r\n\r\n"), "413", &[]),
        (&format!("{POST}transfer-encoding: chunked\r\n\r\nzz\r\n"), "400", &[]),
        (&format!("{POST}transfer-encoding: chunked\r\n\r\n100001\r\n{}", "x".repeat(0x100001)), "413", &[]),
    ];
    for (words, status, events) in wrong {
        let played = play(&[Send(words.to_owned().leak())], &[HANGS]);
        assert_eq!((&*played.answers(), played.ended), (status, 0), "{words:.99}: {played:?}");
        assert_eq!(played.events, events, "{words:.99}");
    }
}

/// The limits on connections, of all clients and of each: which of six are served.
#[test]
fn connections_beyond_a_limit_are_refused() {
    type Case = (fn(&mut Proxy), usize, &'static str);
    let cases: [Case; 4] = [
        (|_| (), 6, ""),
        (|proxy| proxy.settings.change(|settings| settings.limits.connections_max = 3), 3, "too-many"),
        (
            |proxy| proxy.settings.change(|settings| settings.limits.connections_per_client_max = Some(2)),
            2,
            "too-many-of-client",
        ),
        // A proxy has as many as its clients.
        (
            |proxy| {
                proxy.settings.change(|settings| {
                    settings.limits.connections_per_client_max = Some(2);
                    settings.trusted_proxies = vec!["192.0.2.0/24".parse().unwrap()];
                });
            },
            6,
            "",
        ),
    ];
    for (change, served, why) in cases {
        run(1, change, async |pair, mut connections| {
            spawn_local(serve(&[&[ASKED, LAST_OK]], connections.remove(0), mpsc::channel(1).0));
            let mut inside = Vec::new();
            for n in 0..6 {
                let mut client = pair.client().await;
                let answer = if n < served { "HTTP/1.1 200 " } else { "retry-after: 1\r\n" };
                client.act(&[GET, Get(answer)]).await;
                inside.push(client);
            }
            assert_eq!(pair.events(), vec![why; 6 - served]);
            // The place of one that leaves is free.
            inside.drain(..1);
            sleep(Duration::from_secs(2)).await;
            let mut client = pair.client().await;
            client.act(&[GET, Get("HTTP/1.1 200 ")]).await;
        });
    }
}

/// Requests in flight are answered, and their clients learn that it is over.
#[test]
fn a_data_path_that_ends_says_so() {
    run(
        1,
        |_| (),
        async |pair, mut connections| {
            const SLOW: &[&[Step]] = &[&[ASKED, Wait(RESPONSE_S - 1), OK]];
            spawn_local(serve(SLOW, connections.remove(0), mpsc::channel(1).0));
            let (mut held, mut idle) = (pair.client().await, pair.client().await);
            held.act(&[GET, Wait(1)]).await;
            pair.stop();
            sleep(Duration::from_secs(1)).await;
            held.rest().await;
            idle.play(&[GET]).await;
            for client in [held, idle] {
                let text = client.text();
                assert!(text.contains("\r\nconnection: close\r\n") && text.ends_with("ok"), "{text}");
            }
        },
    );
}

/// As servers of other makes write them, and as nginx and HAProxy take them.
#[test]
fn answers_are_taken_as_servers_write_them() {
    const PADDED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2  \r\nok\r\n0 \r\n\r\n";
    let padded = play(&[GET, Get("0\r\n\r\n"), Leave], &[Plays(&[&[ASKED, Send(PADDED)]])]);
    assert!(padded.text.ends_with("\r\n\r\n2\r\nok\r\n0\r\n\r\n") && padded.events.is_empty(), "{padded:#?}");
    const UPGRADE: &str = "HTTP/1.1 426 Upgrade Required\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                           content-length: 2\r\n\r\nno";
    let upgrade = play(&[GET, Get("no"), Leave], &[Plays(&[&[ASKED, Send(UPGRADE)]])]);
    assert!(upgrade.text.contains("upgrade: websocket\r\n"), "{upgrade:#?}");
    assert!(upgrade.text.contains("connection: upgrade\r\n"), "{upgrade:#?}");
}
