//! Exchanges by a client that keeps to RFC 9113, and by clients that hold streams without using them.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use tokio::net::TcpStream;

use super::frames::{self, END_STREAM, Field};
use super::{Case, Outcome, Place, Run};
use crate::conformance::case::Reaches;
use crate::conformance::cases::letters;
use crate::conformance::server::{Act, answers, ok};
use sidelong_testing::PATIENCE;

/// Requests that a client gives up as soon as it has sent them.
const RESETS: u32 = 1000;
/// Uploads that do not go on: connections, and streams on each.
const STALLED: (usize, usize) = (8, 40);
/// Frames of a flood.
const FLOOD: usize = 20_000;
/// An answer that is larger than any buffer on its way.
const LARGE: usize = 1_000_000;

pub(super) struct Answer {
    pub(super) status: u16,
    fields: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
}

impl Answer {
    fn is(&self, status: u16, body: &str) -> Outcome {
        let is_it = self.status == status && self.body == body.as_bytes();
        is_it.then_some(()).ok_or_else(|| {
            format!("{} with {} bytes, not {status} with {}", self.status, self.body.len(), body.len())
        })
    }
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Outcome {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?}, not {wanted:?}")) }
}

pub(super) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What a case does with a client of a connection of its own.
pub(super) fn talk<T>(
    place: &Place<'_>,
    work: impl AsyncFnOnce(SendRequest<Bytes>) -> Result<T, String>,
) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(said)?;
    let work = async { work(connect(place, &Builder::new()).await?).await };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.map_err(said)? })
}

pub(super) async fn connect(place: &Place<'_>, builder: &Builder) -> Result<SendRequest<Bytes>, String> {
    let stream = TcpStream::connect(place.address).await.map_err(said)?;
    let (client, connection) = builder.handshake(stream).await.map_err(said)?;
    tokio::spawn(connection);
    client.ready().await.map_err(said)
}

pub(super) fn request(place: &Place<'_>, method: Method, path: &str, fields: &[Field<'_>]) -> Request<()> {
    let uri = place.fill(&format!("http://alpha.test{path}"));
    let fields = fields.iter().map(|(name, value)| (*name, place.fill(value)));
    fields
        .fold(Request::builder().method(method).uri(uri), |request, (name, value)| {
            request.header(name, value)
        })
        .body(())
        .unwrap()
}

pub(super) async fn ask(
    client: &mut SendRequest<Bytes>,
    request: Request<()>,
    body: &str,
    trailers: &[Field<'_>],
) -> Result<Answer, String> {
    poll_fn(|context| client.poll_ready(context)).await.map_err(said)?;
    let is_bare = body.is_empty() && trailers.is_empty();
    let (answer, mut stream) = client.send_request(request, is_bare).map_err(said)?;
    let mut is_sent = Ok(());
    if !is_bare {
        is_sent = send(&mut stream, Bytes::copy_from_slice(body.as_bytes()), trailers.is_empty()).await;
    }
    // Whoever ends the stream early has answered before (RFC 9113, 8.1).
    if let Err(why) = is_sent {
        let answer = read(answer).await.map_err(|error| format!("{why}: {error}"))?;
        let said = String::from_utf8_lossy(&answer.body);
        return Err(format!("{why}, after {}: {said}", answer.status));
    }
    if !trailers.is_empty() {
        let name = |name: &str| HeaderName::from_bytes(name.as_bytes()).unwrap();
        let fields =
            trailers.iter().map(|(field, value)| (name(field), HeaderValue::from_str(value).unwrap()));
        stream.send_trailers(fields.collect()).map_err(said)?;
    }
    read(answer).await
}

pub(super) async fn send(
    stream: &mut SendStream<Bytes>,
    mut body: Bytes,
    is_end: bool,
) -> Result<(), String> {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let room = poll_fn(|context| stream.poll_capacity(context))
            .await
            .ok_or("the stream has ended")?
            .map_err(said)?;
        let part = body.split_to(room.min(body.len()));
        stream.send_data(part, is_end && body.is_empty()).map_err(said)?;
    }
    Ok(())
}

pub(super) async fn read(answer: ResponseFuture) -> Result<Answer, String> {
    let (head, mut stream) = answer.await.map_err(said)?.into_parts();
    let body = read_body(&mut stream).await?;
    let trailers = stream.trailers().await.map_err(said)?.unwrap_or_default();
    Ok(Answer { status: head.status.as_u16(), fields: head.headers, body, trailers })
}

pub(super) async fn read_body(stream: &mut RecvStream) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(part) = stream.data().await {
        let part = part.map_err(said)?;
        stream.flow_control().release_capacity(part.len()).map_err(said)?;
        body.extend(&part);
    }
    Ok(body)
}

pub(super) fn field(fields: &HeaderMap, name: &str) -> Option<String> {
    fields.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// One request and its answer.
fn once(
    place: &Place<'_>,
    method: Method,
    fields: &[Field<'_>],
    body: &str,
    trailers: &[Field<'_>],
) -> Result<Answer, String> {
    talk(place, async |mut client| {
        ask(&mut client, request(place, method, "/@", fields), body, trailers).await
    })
}

fn get(place: &Place<'_>, path: &str) -> Result<Answer, String> {
    talk(place, async |mut client| ask(&mut client, request(place, Method::GET, path, &[]), "", &[]).await)
}

pub(super) fn case(
    name: &str,
    script: Vec<Act>,
    run: impl Fn(&Place<'_>) -> Outcome + Send + Sync + 'static,
) -> Case {
    let run: Run = Box::new(run);
    Case { name: name.to_owned(), script, reaches: Reaches::Maybe, run }
}

pub(super) fn cases() -> Vec<Case> {
    [plain(), answered(), held()].into_iter().flatten().collect()
}

fn plain() -> Vec<Case> {
    let refused =
        case("9113-8.3.1: a Host that differs from the authority, by a library", Vec::new(), |place| {
            once(place, Method::GET, &[("host", "evil.test")], "", &[])?
                .is(400, "")
                .or_else(|why| if why.starts_with("400") { Ok(()) } else { Err(why) })
        });
    vec![
        case("9113-8: GET", Vec::new(), |place| {
            once(place, Method::GET, &[("x-a", "b")], "", &[])?.is(200, &place.token)?;
            let seen = place.seen()?;
            same("request line", seen.start.clone(), format!("GET {} HTTP/1.1", place.token))?;
            same("host", seen.field("host"), Some(place.host.clone()))?;
            same("x-a", seen.field("x-a"), Some("b".to_owned()))?;
            same("length", (seen.field("content-length"), seen.field("transfer-encoding")), (None, None))?;
            let address = seen.field("x-forwarded-for").unwrap_or_default();
            address.starts_with("127.").then_some(()).ok_or_else(|| format!("x-forwarded-for: {address}"))
        }),
        case("9113-8: POST with a length", Vec::new(), |place| {
            once(place, Method::POST, &[("content-length", "5")], "hello", &[])?.is(200, &place.token)?;
            same("body", place.seen()?.body, b"hello".to_vec())?;
            same("length", place.seen()?.field("content-length"), Some("5".to_owned()))
        }),
        case("9110-8.6: POST with a length of 0", Vec::new(), |place| {
            once(place, Method::POST, &[("content-length", "0")], "", &[])?.is(200, &place.token)?;
            same("length", place.seen()?.field("content-length"), Some("0".to_owned()))
        }),
        case("9113-8: POST without a length", Vec::new(), |place| {
            once(place, Method::POST, &[], "hello", &[])?.is(200, &place.token)?;
            same("body", place.seen()?.body, b"hello".to_vec())
        }),
        case("9113-6.9: POST of 1 MB", Vec::new(), |place| {
            once(place, Method::POST, &[], &letters(LARGE), &[])?.is(200, &place.token)?;
            let is_same = place.seen()?.body == letters(LARGE).as_bytes();
            is_same.then_some(()).ok_or_else(|| "the body differs".to_owned())
        }),
        case("9113-8.1: trailers of a request", Vec::new(), |place| {
            once(place, Method::POST, &[("trailer", "x-sum")], "hello", &[("x-sum", "532")])?
                .is(200, &place.token)?;
            let seen = place.seen()?;
            same("body", seen.body.clone(), b"hello".to_vec())?;
            same("trailer", seen.trailer("x-sum"), Some("532".to_owned()))?;
            same("field", seen.field("x-sum"), None)
        }),
        case("9113-8.2.3: crumbs of a cookie", Vec::new(), |place| {
            once(
                place,
                Method::GET,
                &[("cookie", "a=1"), ("x-a", "b"), ("cookie", "b=2"), ("cookie", "c=3")],
                "",
                &[],
            )?
            .is(200, &place.token)?;
            same("cookie", place.seen()?.field("cookie"), Some("a=1; b=2; c=3".to_owned()))
        }),
        case("9113-8.2.2: TE: trailers", Vec::new(), |place| {
            once(place, Method::GET, &[("te", "trailers")], "", &[])?.is(200, &place.token)?;
            same("te", place.seen()?.field("te"), None)
        }),
        case("7239-5.2: addresses of proxies, over HTTP/2", Vec::new(), |place| {
            let fields = [("x-forwarded-for", "192.0.2.1"), ("x-forwarded-for", "192.0.2.2")];
            once(place, Method::GET, &fields, "", &[])?.is(200, &place.token)?;
            let value = place.seen()?.field("x-forwarded-for").unwrap_or_default();
            let is_chain = value.replace(' ', "").starts_with("192.0.2.1,192.0.2.2,127.");
            is_chain.then_some(()).ok_or_else(|| format!("x-forwarded-for: {value}"))
        }),
        case("9110-10.1.1: an expectation over HTTP/2", Vec::new(), |place| {
            once(place, Method::POST, &[("expect", "100-continue")], "hello", &[])?.is(200, &place.token)?;
            same("body", place.seen()?.body, b"hello".to_vec())
        }),
        case("9113-3.4: a preface in two packets", Vec::new(), |place| {
            let fields = [
                (":method", "GET"),
                (":scheme", "http"),
                (":path", &place.token),
                (":authority", &place.host),
            ];
            let reaction = frames::react_late(place.address, &frames::headers(1, END_STREAM, &fields))?;
            reaction.is_ok().then_some(()).ok_or_else(|| format!("{reaction:x?}"))
        }),
        case("9113-8.3.1: a Host in place of the authority", Vec::new(), |place| {
            let fields =
                [(":method", "GET"), (":scheme", "http"), (":path", &place.token), ("host", &place.host)];
            let reaction = frames::react(place.address, &frames::headers(1, END_STREAM, &fields))?;
            reaction.is_ok().then_some(()).ok_or_else(|| format!("{reaction:x?}"))?;
            same("host", place.seen()?.field("host"), Some(place.host.clone()))
        }),
        case("9112-3.2.4: OPTIONS of the server, over HTTP/2", Vec::new(), |place| {
            let fields = [
                (":method", "OPTIONS"),
                (":scheme", "http"),
                (":path", "*"),
                (":authority", &place.host),
                ("x-case", &place.token),
            ];
            let reaction = frames::react(place.address, &frames::headers(1, END_STREAM, &fields))?;
            reaction.is_ok().then_some(()).ok_or_else(|| format!("{reaction:x?}"))?;
            same("request line", place.seen()?.start, "OPTIONS * HTTP/1.1".to_owned())
        }),
        case("9110-7.6.2: OPTIONS that goes no further, over HTTP/2", Vec::new(), |place| {
            let answer = once(place, Method::OPTIONS, &[("max-forwards", "0")], "", &[])?;
            same("status", (answer.status / 100, place.seen().is_ok()), (2, false))
        }),
        case("9110-9.3.8: TRACE, over HTTP/2", Vec::new(), |place| {
            let answer = once(place, Method::TRACE, &[], "", &[])?;
            same("status", (answer.status, place.seen().is_ok()), (405, false))
        }),
        Case { reaches: Reaches::Nothing, ..refused },
        Case {
            reaches: Reaches::Nothing,
            ..case("9110-7.4: an authority that is not served", Vec::new(), |place| {
                let uri = place.fill("http://evil.example/@");
                let request = Request::builder().uri(uri).body(()).unwrap();
                let answer = talk(place, async |mut client| ask(&mut client, request, "", &[]).await)?;
                same("status", answer.status, 421)
            })
        },
        case("9113-5: many requests at once", Vec::new(), |place| {
            let paths: Vec<_> = (0..50).map(|k| place.fill(&format!("/@n{k}"))).collect();
            talk(place, async |mut client| {
                let mut waiting = Vec::new();
                for path in &paths {
                    poll_fn(|context| client.poll_ready(context)).await.map_err(said)?;
                    let (answer, _) =
                        client.send_request(request(place, Method::GET, path, &[]), true).map_err(said)?;
                    waiting.push((tokio::spawn(read(answer)), path));
                }
                for (answer, path) in waiting {
                    answer.await.map_err(said)??.is(200, path)?;
                }
                Ok(())
            })
        }),
    ]
}

fn answered() -> Vec<Case> {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 532\r\n\r\n";
    let hops = "HTTP/1.1 200 OK\r\nConnection: x-private\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\n\
                Proxy-Connection: close\r\nContent-Length: 5\r\n\r\nhello";
    let fails = |name: &str, script: Vec<Act>| {
        case(name, script, |place| match once(place, Method::GET, &[], "", &[]) {
            Ok(answer) if answer.status == 200 => Err("the client takes the answer for whole".to_owned()),
            _ => Ok(()),
        })
    };
    vec![
        case("9113-8.1: an answer of 1 MB", answers(ok(&letters(LARGE))), |place| {
            once(place, Method::GET, &[], "", &[])?.is(200, &letters(LARGE))
        }),
        case("9113-8.1: trailers of an answer", answers(chunked), |place| {
            let answer = once(place, Method::GET, &[], "", &[])?;
            answer.is(200, "hello")?;
            same("trailer", field(&answer.trailers, "x-sum"), Some("532".to_owned()))?;
            same("transfer-encoding", field(&answer.fields, "transfer-encoding"), None)
        }),
        case(
            "9113-8.1: an answer until its server closes",
            [answers("HTTP/1.1 200 OK\r\n\r\nhello"), vec![Act::Close]].concat(),
            |place| once(place, Method::GET, &[], "", &[])?.is(200, "hello"),
        ),
        case("9113-8.1: HEAD", answers("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"), |place| {
            let answer = once(place, Method::HEAD, &[], "", &[])?;
            answer.is(200, "")?;
            same("length", field(&answer.fields, "content-length"), Some("1234".to_owned()))
        }),
        case(
            "9113-8.1: a 204",
            answers("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"),
            |place| {
                let answer = once(place, Method::GET, &[], "", &[])?;
                answer.is(204, "")?;
                same("transfer-encoding", field(&answer.fields, "transfer-encoding"), None)
            },
        ),
        case(
            "9113-8.1: a 304",
            answers("HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n"),
            |place| once(place, Method::GET, &[], "", &[])?.is(304, ""),
        ),
        case("9113-8.2.2: an answer's fields for one connection", answers(hops), |place| {
            let answer = once(place, Method::GET, &[], "", &[])?;
            answer.is(200, "hello")?;
            ["connection", "x-private", "keep-alive", "upgrade", "proxy-connection"]
                .into_iter()
                .try_for_each(|name| same(name, field(&answer.fields, name), None))
        }),
        case(
            "9110-15.2: early hints before an answer over HTTP/2",
            answers(format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{}", ok("done"))),
            |place| once(place, Method::GET, &[], "", &[])?.is(200, "done"),
        ),
        fails(
            "9112-8: an answer shorter than its length, over HTTP/2",
            [answers("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"), vec![Act::Close]].concat(),
        ),
        fails(
            "9112-8: an answer without its last chunk, over HTTP/2",
            [
                answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
                vec![Act::Close],
            ]
            .concat(),
        ),
        fails(
            "9112-4: an answer that is none, over HTTP/2",
            answers("HTTP/1.1 2OO OK\r\nContent-Length: 5\r\n\r\nhello"),
        ),
    ]
}

/// Frames that cost their sender nothing (CVE-2019-9512, 9513, 9515 and 9518). The proxy may end the connection; nobody else notices.
fn flood(name: &str, begin: fn(&Place<'_>) -> Vec<u8>, frame: fn() -> Vec<u8>) -> Case {
    case(name, Vec::new(), move |place| {
        let _ = frames::react(place.address, &[begin(place), frame().repeat(FLOOD)].concat());
        get(place, "/@b")?.is(200, &place.fill("/@b"))?;
        node_is_up(place)
    })
}

/// Clients that take something and give nothing.
fn held() -> Vec<Case> {
    let nothing = |_: &Place<'_>| Vec::new();
    let upload = |place: &Place<'_>| {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", &*place.token),
            (":authority", &*place.host),
        ];
        frames::headers(1, 0, &fields)
    };
    vec![
        flood("9113-10.5: 20,000 pings", nothing, || frames::frame(frames::PING, 0, 0, &[0; 8])),
        flood("9113-10.5: 20,000 settings", nothing, || frames::frame(frames::SETTINGS, 0, 0, &[])),
        flood("9113-10.5: 20,000 priorities", nothing, || {
            frames::frame(frames::PRIORITY, 0, 3, &[0, 0, 0, 0, 1])
        }),
        flood("9113-10.5: 20,000 empty pieces of a body", upload, || frames::data(1, 0, "")),
        // CVE-2023-44487.
        case("9113-10.5: a thousand streams that are reset at once", Vec::new(), |place| {
            let stream = |k: u32| {
                let fields = [
                    (":method", "GET"),
                    (":scheme", "http"),
                    (":path", "/reset"),
                    (":authority", &place.host),
                ];
                [frames::headers(2 * k + 1, END_STREAM, &fields), frames::reset(2 * k + 1)].concat()
            };
            let _ = frames::react(
                place.address,
                &[(1..=RESETS).flat_map(stream).collect(), frames::headers(1, END_STREAM, &[])].concat(),
            );
            get(place, "/@b")?.is(200, &place.fill("/@b"))?;
            node_is_up(place)
        }),
        case("9113-6.9: a stream whose window stays closed", answers(ok(&letters(LARGE))), |place| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(said)?;
            // The proxy must end the stream, or the connection; until then another client is served.
            let ended = runtime.block_on(async {
                let mut client = connect(place, Builder::new().initial_window_size(0)).await?;
                let (answer, _) =
                    client.send_request(request(place, Method::GET, "/@", &[]), true).map_err(said)?;
                let body = async { read_body(answer.await.map_err(said)?.body_mut()).await };
                tokio::time::timeout(PATIENCE, body).await.map_err(said)
            })?;
            ended.err().ok_or("the whole body came through a closed window")?;
            get(place, "/@b")?.is(200, &place.fill("/@b"))?;
            node_is_up(place)
        }),
        case("9110-15.5.9: 320 uploads that stall", Vec::new(), stalled),
    ]
}

/// A client that does not read is not a node's failure.
pub(super) fn node_is_up(place: &Place<'_>) -> Outcome {
    place.proxy.is_node_up(place.site).then_some(()).ok_or_else(|| "the node is taken out".to_owned())
}

/// They end with 408. Nobody else notices.
fn stalled(place: &Place<'_>) -> Outcome {
    const PAUSE: Duration = Duration::from_millis(50);
    talk(place, async |mut other| {
        let (mut waiting, mut streams, mut clients) = (tokio::task::JoinSet::new(), Vec::new(), Vec::new());
        for _ in 0..STALLED.0 {
            let mut client = connect(place, &Builder::new()).await?;
            for k in 0..STALLED.1 {
                poll_fn(|context| client.poll_ready(context)).await.map_err(said)?;
                let upload = request(place, Method::POST, &format!("/@n{k}"), &[("content-length", "10")]);
                let (answer, stream) = client.send_request(upload, false).map_err(said)?;
                waiting.spawn(async move { Ok::<_, String>(answer.await.map_err(said)?.status().as_u16()) });
                streams.push(stream);
            }
            clients.push(client);
        }
        let mut statuses = std::collections::BTreeMap::<String, usize>::new();
        while !waiting.is_empty() {
            ask(&mut other, request(place, Method::GET, "/@b", &[]), "", &[])
                .await?
                .is(200, &place.fill("/@b"))?;
            tokio::time::sleep(PAUSE).await;
            while let Some(ended) = waiting.try_join_next() {
                let ended = ended.map_err(said)?.map_or_else(|error| error, |status| status.to_string());
                *statuses.entry(ended).or_default() += 1;
            }
        }
        let all = [("408".to_owned(), STALLED.0 * STALLED.1)].into();
        same("answers", statuses, all)
    })?;
    node_is_up(place)
}
