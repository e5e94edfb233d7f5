//! What becomes of requests over HTTP/2 whose client or server is slow, silent or gone.

use std::future::{pending, poll_fn};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, HeaderValue, LINK};
use http::{Method, Request, Response, StatusCode};
use sidelong_proxy::Proxy;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::pair::Step::{Get, Send};
use crate::pair::{BODY_S, Connections, IDLE_S, Pair, Player, RESPONSE_S, Step, run};

const OK: Step = Send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
/// A message in a stream of them.
const MESSAGE: Bytes = Bytes::from_static(b"message");

/// As large as a head of one field may be by default at most servers.
const LARGE: &[u8] = &[b'a'; 8 << 10];

/// The servers speak HTTP/2.
fn over_http2(proxy: &mut Proxy) {
    proxy.settings.change(|settings| {
        settings.servers.iter_mut().flatten().for_each(|server| server.http2 = true);
    });
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

async fn client(pair: &Pair) -> SendRequest<Bytes> {
    client_of(pair, &Builder::new()).await
}

async fn client_of(pair: &Pair, builder: &Builder) -> SendRequest<Bytes> {
    let (client, connection) = builder.handshake(pair.connect().await).await.unwrap();
    spawn_local(connection);
    client.ready().await.unwrap()
}

fn call(path: &str) -> Request<()> {
    Request::post(format!("http://a.test{path}")).body(()).unwrap()
}

/// The status of the answer to a request, with this body.
async fn status(client: &mut SendRequest<Bytes>, path: &str, body: Option<Bytes>) -> Result<u16, h2::Error> {
    let (answer, mut stream) = client.send_request(call(path), body.is_none())?;
    if let Some(body) = body {
        stream.send_data(body, true)?;
    }
    Ok(answer.await?.status().as_u16())
}

/// Serves HTTP/1 by a part for each connection.
fn play(mut connections: Connections, part: &'static [Step]) {
    spawn_local(async move {
        while let Some(stream) = connections.recv().await {
            spawn_local(async move { Player::new(stream).play(part).await });
        }
    });
}

/// A server's request, and where its answer goes.
type Asked = (Request<RecvStream>, SendResponse<Bytes>);

/// Serves HTTP/2: each request as its path says, or by sending its body back.
fn echo(mut connections: Connections) {
    spawn_local(async move {
        while let Some(stream) = connections.recv().await {
            spawn_local(async move {
                let mut builder = h2::server::Builder::new();
                let mut connection = builder.enable_connect_protocol().handshake(stream).await.unwrap();
                while let Some(Ok(asked)) = connection.accept().await {
                    if asked.0.uri().path() == "/last" {
                        connection.graceful_shutdown();
                    }
                    spawn_local(answer(asked));
                }
            });
        }
    });
}

async fn answer((request, mut respond): Asked) -> Result<(), h2::Error> {
    let of_status = |status| Response::builder().status(status).body(()).unwrap();
    match request.uri().path() {
        "/refuse" => respond.send_reset(Reason::REFUSED_STREAM),
        "/cancel" => respond.send_reset(Reason::CANCEL),
        "/hang" => pending().await,
        "/none" => {
            let mut stream = respond.send_response(of_status(StatusCode::NO_CONTENT), false)?;
            stream.send_data(Bytes::from_static(b"HTTP/1.1 666"), true)?;
        }
        "/hints" => {
            while poll_fn(|cx| Poll::Ready(respond.poll_reset(cx))).await.is_pending() {
                let mut hint = of_status(StatusCode::EARLY_HINTS);
                hint.headers_mut().insert(LINK, HeaderValue::from_static(str::from_utf8(LARGE).unwrap()));
                respond.send_informational(hint)?;
                sleep(Duration::from_millis(1)).await;
            }
        }
        "/drip" => {
            let mut stream = respond.send_response(Response::new(()), false)?;
            for _ in 0..20_000 {
                send(&mut stream, MESSAGE).await?;
            }
        }
        _ => {
            let mut body = request.into_body();
            let mut stream = respond.send_response(Response::new(()), false)?;
            while let Some(data) = body.data().await {
                let data = data?;
                body.flow_control().release_capacity(data.len())?;
                send(&mut stream, data).await?;
            }
            stream.send_trailers(body.trailers().await?.unwrap_or_default())?;
        }
    }
    Ok(())
}

async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let Some(room) = poll_fn(|cx| stream.poll_capacity(cx)).await else { return Ok(()) };
        stream.send_data(data.split_to(room?.min(data.len())), false)?;
    }
    Ok(())
}

#[test]
fn a_connection_that_nobody_uses_ends() {
    run(
        0,
        |_| (),
        async |pair, _| {
            // Then it is told, and has a moment to end its connection itself.
            let ended = pair.client().await.play(&[Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")]).await;
            assert_eq!((ended - pair.begun()).as_secs(), IDLE_S + 5, "it says nothing more");
            let (_client, connection) =
                Builder::new().handshake::<_, Bytes>(pair.connect().await).await.unwrap();
            connection.await.unwrap();
            assert_eq!(ended.elapsed().as_secs(), IDLE_S, "it asks for nothing");
        },
    );
}

/// The others on the connection are not held up by it.
#[test]
fn each_request_has_its_own_deadlines() {
    run(
        1,
        |_| (),
        async |pair, mut connections| {
            play(connections.remove(0), &[Get("GET /quick")]);
            let mut client = client(pair).await;
            let (answer, mut stream) = client.send_request(call("/drip"), false).unwrap();
            spawn_local(async move {
                while send(&mut stream, MESSAGE).await.is_ok() {
                    seconds(1).await;
                }
            });
            seconds(3).await;
            let mut other = client.clone();
            let hangs = status(&mut client, "/hang", Some(MESSAGE));
            let dripped =
                async { (answer.await.unwrap().status().as_u16(), pair.begun().elapsed().as_secs()) };
            let hangs = async { (hangs.await.unwrap(), pair.begun().elapsed().as_secs()) };
            assert_eq!(tokio::join!(dripped, hangs), ((408, BODY_S), (504, 3 + RESPONSE_S)));
            assert_eq!(pair.events(), ["too-slow", "Late"]);
            assert_eq!(status(&mut other, "/", None).await.unwrap(), 504);
        },
    );
}

#[test]
fn a_body_beyond_the_limit_is_refused_alone() {
    let change = |proxy: &mut Proxy| {
        over_http2(proxy);
        proxy.settings.change(|settings| settings.limits.body_bytes_max = 9);
    };
    run(1, change, async |pair, mut connections| {
        echo(connections.remove(0));
        let mut client = client(pair).await;
        for length in [None, Some(10)] {
            let mut request = call("/");
            request.headers_mut().extend(length.map(|length: u64| (CONTENT_LENGTH, length.into())));
            let (answer, mut stream) = client.send_request(request, false).unwrap();
            stream.send_data(Bytes::from_static(b"ten bytes!"), true).unwrap();
            assert_eq!(answer.await.unwrap().status(), 413, "{length:?}");
            assert_eq!(status(&mut client, "/", Some(MESSAGE)).await.unwrap(), 200);
        }
        assert_eq!(pair.events(), [""; 0]);
    });
}

/// Else curl 7.88 forgets the answer.
#[test]
fn a_request_that_is_answered_before_its_end_is_reset_after_a_moment() {
    const EARLY: &[Step] = &[
        Get("\r\n\r\n"),
        Send("HTTP/1.1 413 Payload Too Large\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno"),
    ];
    run(
        1,
        |_| (),
        async |pair, mut connections| {
            play(connections.remove(0), EARLY);
            let (answer, mut stream) = client(pair).await.send_request(call("/"), false).unwrap();
            assert_eq!(answer.await.unwrap().status(), 413);
            assert_eq!(poll_fn(|cx| stream.poll_reset(cx)).await.unwrap(), Reason::NO_ERROR);
            assert_eq!(pair.begun().elapsed().as_secs(), 1);
        },
    );
}

/// It reads nothing from its connection, or takes nothing of one answer.
#[test]
fn a_client_that_takes_nothing_is_let_go() {
    const LARGE: &[Step] =
        &[Get("\r\n\r\n"), Send("HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n"), Step::Fill(9_000_000)];
    run(
        1,
        |_| (),
        async |pair, mut connections| {
            play(connections.remove(0), LARGE);
            let mut builder = Builder::new();
            let mut stalled = client_of(pair, builder.initial_window_size(0)).await;
            let (answer, _) = stalled.send_request(call("/"), true).unwrap();
            let mut body = answer.await.unwrap().into_body();
            assert!(body.data().await.unwrap().unwrap_err().is_reset());
            assert_eq!(pair.begun().elapsed().as_secs(), RESPONSE_S);

            let (mut silent, connection) = builder
                .initial_window_size(1 << 30)
                .initial_connection_window_size(1 << 30)
                .handshake::<_, Bytes>(pair.connect().await)
                .await
                .unwrap();
            let (answer, _) = silent.send_request(call("/"), true).unwrap();
            let mut connection = Box::pin(connection);
            tokio::select! {
                _ = &mut connection => panic!("it ends"),
                answer = answer => drop(answer.unwrap()),
            }
            seconds(2 * RESPONSE_S).await;
            assert!(connection.await.is_err());
            assert!(pair.events().iter().all(|event| event == "no answer"));
        },
    );
}

/// As gRPC's calls do.
#[test]
fn a_call_goes_on_for_as_long_as_it_streams() {
    run(1, over_http2, async |pair, mut connections| {
        echo(connections.remove(0));
        let (answer, mut stream) = client(pair).await.send_request(call("/"), false).unwrap();
        let mut body = answer.await.unwrap().into_body();
        for _ in 0..12 {
            send(&mut stream, MESSAGE).await.unwrap();
            assert_eq!(body.data().await.unwrap().unwrap(), MESSAGE);
            seconds(BODY_S - 1).await;
        }
        // Then neither sends anything.
        assert!(body.data().await.unwrap().is_err());
        assert_eq!(pair.begun().elapsed().as_secs(), 11 * (BODY_S - 1) + BODY_S);
    });
}

#[test]
fn a_tunnel_may_be_silent_for_an_hour() {
    run(1, over_http2, async |pair, mut connections| {
        echo(connections.remove(0));
        let mut request = call("/chat");
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(Protocol::from_static("websocket"));
        let (answer, mut stream) = client(pair).await.send_request(request, false).unwrap();
        let mut body = answer.await.unwrap().into_body();
        for _ in 0..2 {
            seconds(3599).await;
            send(&mut stream, MESSAGE).await.unwrap();
            assert_eq!(body.data().await.unwrap().unwrap(), MESSAGE);
        }
        assert!(body.data().await.unwrap().is_err());
        assert_eq!(pair.begun().elapsed().as_secs(), 2 * 3599 + 3600);
        assert_eq!(pair.events(), ["tunnel"]);
    });
}

/// The server has said that it has not looked at it, so that an order may be sent twice.
#[test]
fn what_a_server_has_not_looked_at_goes_to_another() {
    run(2, over_http2, async |pair, connections| {
        let [refuses, serves] = connections.try_into().unwrap();
        echo(serves);
        let mut refuses: Connections = refuses;
        spawn_local(async move {
            let mut connection = h2::server::handshake(refuses.recv().await.unwrap()).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                respond.send_reset(Reason::REFUSED_STREAM);
            }
        });
        let mut client = client(pair).await;
        for _ in 0..9 {
            assert_eq!(status(&mut client, "/", Some(MESSAGE)).await.unwrap(), 200);
        }
        assert_eq!(pair.events(), [""; 0]);
    });
}

/// It may have its reasons in the request, so it is not taken out of service.
#[test]
fn a_request_that_a_server_ends_harms_no_other() {
    run(1, over_http2, async |pair, mut connections| {
        echo(connections.remove(0));
        let mut client = client(pair).await;
        for (path, expected) in
            [("/cancel", 502), ("/none", 204), ("/last", 200), ("/hang", 504), ("/hints", 502)]
        {
            assert_eq!(status(&mut client, path, None).await.unwrap(), expected, "{path}");
            assert_eq!(status(&mut client, "/", Some(MESSAGE)).await.unwrap(), 200, "after {path}");
        }
        // That of hanging, and that of hints without end.
        assert_eq!(pair.events(), ["Late", "Broken"]);
    });
}

/// Messages of a few bytes fill a server's window with many frames.
#[test]
fn clients_that_read_nothing_do_not_end_the_connection_of_others() {
    run(1, over_http2, async |pair, mut connections| {
        echo(connections.remove(0));
        let mut client = client_of(pair, Builder::new().initial_window_size(0)).await;
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(client.send_request(call("/drip"), true).unwrap().0.await.unwrap());
        }
        // All that fits has come, and more is not taken.
        seconds(RESPONSE_S - 1).await;
        assert_eq!(status(&mut client, "/", None).await.unwrap(), 200);
        assert!(held.iter().all(|answer| !answer.body().is_end_stream()));
    });
}

#[test]
fn a_server_that_speaks_http1_after_all_is_answered_for() {
    run(1, over_http2, async |pair, mut connections| {
        play(connections.remove(0), &[Send("HTTP/1.1 400 Bad Request\r\n\r\n")]);
        assert_eq!(status(&mut client(pair).await, "/", Some(MESSAGE)).await.unwrap(), 502);
        assert_eq!(pair.events(), ["Malformed"]);
    });
}

#[test]
fn a_data_path_that_ends_says_so() {
    run(
        1,
        |_| (),
        async |pair, mut connections| {
            play(connections.remove(0), &[Get("\r\n\r\n"), Step::Wait(9), OK]);
            let mut client = client(pair).await;
            let (answer, _) = client.send_request(call("/"), true).unwrap();
            seconds(1).await;
            pair.stop();
            assert_eq!(answer.await.unwrap().status(), 200);
            let error = poll_fn(|cx| client.poll_ready(cx)).await.unwrap_err();
            assert!(error.is_go_away() && error.is_remote(), "{error}");
            assert_eq!(pair.begun().elapsed().as_secs(), 9);
        },
    );
}
