//! WebSockets over HTTP/2 (RFC 8441), which the server is asked for over HTTP/1.1 (RFC 6455).

use bytes::Bytes;
use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Response};

use super::exchanges::{ask, case, field, node_is_up, read_body, request, said, same, send, talk};
use super::frames::Field;
use super::{Case, Outcome, Place};
use crate::conformance::case::Reaches;
use crate::conformance::cases::letters;
use crate::conformance::server::{Act, answers, ok};
use sidelong_testing::eventually;

/// More than any window on its way.
const LARGE: usize = 200_000;
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: @accept\r\nSec-WebSocket-Protocol: chat\r\n\r\n";

/// A server that switches, and then does this.
fn switches(then: &[Act]) -> Vec<Act> {
    [&[Act::Body, Act::Switch(SWITCH.to_owned())], then].concat()
}

/// Asks for a tunnel.
async fn connect(
    place: &Place<'_>,
    client: &mut SendRequest<Bytes>,
    protocol: &'static str,
    fields: &[Field<'_>],
) -> Result<(Response<RecvStream>, SendStream<Bytes>), String> {
    let version = ("sec-websocket-version", "13");
    let mut request = request(place, Method::CONNECT, "/@", &[&[version], fields].concat());
    request.extensions_mut().insert(Protocol::from_static(protocol));
    let (answer, stream) = client.send_request(request, false).map_err(said)?;
    Ok((answer.await.map_err(said)?, stream))
}

/// A WebSocket that opens, and what a client does with it.
fn open(
    place: &Place<'_>,
    work: impl AsyncFnOnce(&mut SendStream<Bytes>, &mut RecvStream) -> Outcome,
) -> Outcome {
    talk(place, async |mut client| {
        let (answer, mut stream) = connect(place, &mut client, "websocket", &[]).await?;
        same("status", answer.status().as_u16(), 200)?;
        work(&mut stream, &mut answer.into_body()).await
    })
}

/// Reads so many bytes.
async fn read_bytes(stream: &mut RecvStream, count: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        let part = stream.data().await.ok_or("the tunnel has ended")?.map_err(said)?;
        stream.flow_control().release_capacity(part.len()).map_err(said)?;
        bytes.extend(&part);
    }
    Ok(bytes)
}

pub(super) fn cases() -> Vec<Case> {
    [opened(), ended(), refused()].into_iter().flatten().collect()
}

fn opened() -> Vec<Case> {
    vec![
        case("8441-3: tunnels are announced", Vec::new(), |place| {
            talk(place, async |mut client| {
                // The settings come before any answer.
                ask(&mut client, request(place, Method::GET, "/@", &[]), "", &[]).await?;
                same("the setting", client.is_extended_connect_protocol_enabled(), true)
            })
        }),
        case("8441-5: a WebSocket", switches(&[Act::Echo]), |place| {
            let fields = [
                ("sec-websocket-protocol", "chat"),
                ("sec-websocket-key", "its own"),
                ("origin", "http://a"),
            ];
            let answer = talk(place, async |mut client| {
                let (answer, mut stream) = connect(place, &mut client, "websocket", &fields).await?;
                let (head, mut body) = answer.into_parts();
                same("status", head.status.as_u16(), 200)?;
                send(&mut stream, Bytes::from_static(b"ping"), false).await?;
                same("echo", read_bytes(&mut body, 4).await?, b"ping".to_vec())?;
                send(&mut stream, Bytes::from_static(b"pong"), false).await?;
                same("echo", read_bytes(&mut body, 4).await?, b"pong".to_vec())?;
                Ok(head)
            })?;
            same("protocol", field(&answer.headers, "sec-websocket-protocol"), Some("chat".to_owned()))?;
            for name in
                ["connection", "upgrade", "sec-websocket-accept", "content-length", "transfer-encoding"]
            {
                same(name, field(&answer.headers, name), None)?;
            }
            let seen = place.seen()?;
            same("request line", seen.start.clone(), format!("GET {} HTTP/1.1", place.token))?;
            same("host", seen.field("host"), Some(place.host.clone()))?;
            let lower = |name: &str| seen.field(name).map(|value| value.to_ascii_lowercase());
            same("upgrade", lower("upgrade"), Some("websocket".to_owned()))?;
            same("connection", lower("connection"), Some("upgrade".to_owned()))?;
            same("version", seen.field("sec-websocket-version"), Some("13".to_owned()))?;
            same("protocol", seen.field("sec-websocket-protocol"), Some("chat".to_owned()))?;
            same("origin", seen.field("origin"), Some("http://a".to_owned()))?;
            same("length", (seen.field("content-length"), seen.field("transfer-encoding")), (None, None))?;
            same("the key's length", seen.field("sec-websocket-key").map(|key| key.len()), Some(24))
        }),
        case("8441-5: 200 KB through a WebSocket", switches(&[Act::Echo]), |place| {
            open(place, async |stream, body| {
                let text = letters(LARGE);
                let (sent, got) = tokio::join!(
                    send(stream, Bytes::copy_from_slice(text.as_bytes()), false),
                    read_bytes(body, LARGE)
                );
                sent?;
                same("the echo is the same", got? == text.as_bytes(), true)
            })
        }),
    ]
}

fn ended() -> Vec<Case> {
    let is_done = |place: &Place<'_>| {
        eventually("the server's connection ends", || place.proxy.recorder.is_done(&place.token));
        Ok(())
    };
    let later = [Act::End, Act::Write(b"bye".to_vec()), Act::Close];
    vec![
        case("8441-5: a WebSocket whose client ends first", switches(&later), |place| {
            open(place, async |stream, body| {
                send(stream, Bytes::from_static(b"ping"), true).await?;
                same("what comes behind", read_body(body).await?, b"bye".to_vec())
            })
        }),
        case(
            "8441-5: a WebSocket whose server ends first",
            switches(&[Act::Write(b"bye".to_vec()), Act::Close]),
            |place| open(place, async |_stream, body| same("all", read_body(body).await?, b"bye".to_vec())),
        ),
        case("8441-5: a WebSocket whose client resets it", switches(&[Act::End]), move |place| {
            open(place, async |stream, _body| {
                stream.send_reset(Reason::CANCEL);
                Ok(())
            })?;
            is_done(place)
        }),
        case(
            "8441-5: a WebSocket whose client ends, and then resets it",
            switches(&[Act::End, Act::Write(b"bye".to_vec()), Act::End]),
            move |place| {
                open(place, async |stream, body| {
                    send(stream, Bytes::from_static(b"ping"), true).await?;
                    same("what comes behind", read_bytes(body, 3).await?, b"bye".to_vec())?;
                    stream.send_reset(Reason::CANCEL);
                    Ok(())
                })?;
                is_done(place)
            },
        ),
    ]
}

/// A client that asks, and is answered with this status.
fn answered(name: &str, script: Vec<Act>, status: u16) -> Case {
    asked(name, script, "websocket", &[], status)
}

fn asked(
    name: &str,
    script: Vec<Act>,
    protocol: &'static str,
    fields: &'static [Field<'static>],
    status: u16,
) -> Case {
    case(name, script, move |place| {
        talk(place, async |mut client| {
            let (answer, _stream) = connect(place, &mut client, protocol, fields).await?;
            same("status", answer.status().as_u16(), status)
        })
    })
}

fn refused() -> Vec<Case> {
    let wrong = |name: &str, from: &str, to: &str| {
        let name = format!("6455-4.1: a 101 {name}, over HTTP/2");
        answered(&name, vec![Act::Body, Act::Switch(SWITCH.replace(from, to)), Act::Echo], 502)
    };
    let nothing = |case: Case| Case { reaches: Reaches::Nothing, ..case };
    vec![
        wrong("with another key's Sec-WebSocket-Accept", "@accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        wrong("without Sec-WebSocket-Accept", "Sec-WebSocket-Accept: @accept\r\n", ""),
        wrong("without Upgrade", "Upgrade: websocket\r\n", ""),
        wrong("to another protocol", "Upgrade: websocket", "Upgrade: other"),
        wrong("without Connection", "Connection: Upgrade\r\n", ""),
        case("8441-5: a server that does not switch", answers(ok("evil")), |place| {
            talk(place, async |mut client| {
                for _ in 0..3 {
                    client = client.ready().await.map_err(said)?;
                    let (answer, _stream) = connect(place, &mut client, "websocket", &[]).await?;
                    same("status", answer.status().as_u16(), 502)?;
                }
                Ok(())
            })?;
            // Whoever asks for it could take it out otherwise.
            node_is_up(place)
        }),
        answered(
            "8441-5: a server that refuses a WebSocket",
            answers("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
            403,
        ),
        nothing(asked("8441-4: a tunnel of another protocol", Vec::new(), "connect-udp", &[], 501)),
        nothing(asked(
            "8441-4: a WebSocket with a length",
            Vec::new(),
            "websocket",
            &[("content-length", "0")],
            400,
        )),
        nothing(case("9110-9.3.6: CONNECT, over HTTP/2", Vec::new(), |place| {
            talk(place, async |mut client| {
                let request = http::Request::builder().method(Method::CONNECT).uri(place.host.as_str());
                let request = request.header("x-case", &place.token).body(()).map_err(said)?;
                let (answer, _stream) = client.send_request(request, false).map_err(said)?;
                same("status", answer.await.map_err(said)?.status().as_u16(), 405)
            })
        })),
    ]
}
