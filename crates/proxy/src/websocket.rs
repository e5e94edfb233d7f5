//! WebSocket over HTTP/2 (RFC 8441). There are no keys there, so the edge takes the client's part of the opening handshake (RFC 6455,
//! 4.1) at a server that speaks HTTP/1.1, and the server's part (4.2) for such a client.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::SEC_WEBSOCKET_KEY;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use ring::rand::{SecureRandom as _, SystemRandom};

/// The value of `:protocol` and of Upgrade.
pub(crate) const PROTOCOL: &[u8] = b"websocket";
/// What a server appends to the key (RFC 6455, 1.3).
const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether `name` is the field that has the key.
pub(crate) fn is_key(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(SEC_WEBSOCKET_KEY.as_str().as_bytes())
}

/// A fresh Sec-WebSocket-Key. It fails if the system has no random numbers.
pub(crate) fn key() -> Result<String, ring::error::Unspecified> {
    let mut nonce = [0; 16];
    SystemRandom::new().fill(&mut nonce)?;
    Ok(BASE64_STANDARD.encode(nonce))
}

/// The Sec-WebSocket-Accept by which a server accepts `key`.
pub(crate) fn accept(key: &[u8]) -> String {
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, SUFFIX].concat()))
}

#[cfg(test)]
mod tests {
    use http::request::Parts;

    use super::*;
    use crate::client::Client;
    use crate::request::Request;
    use crate::response::Response;

    /// What becomes of an extended CONNECT with these fields.
    fn taken(protocol: &'static str, fields: &[(&str, &str)]) -> Result<Request, u16> {
        let head = http::Request::builder().method("CONNECT").uri("https://a.test/chat?b");
        let head = fields.iter().fold(head, |head, (name, value)| head.header(*name, *value));
        let head = head.extension(h2::ext::Protocol::from_static(protocol)).body(()).unwrap();
        let (head, ()): (Parts, ()) = head.into_parts();
        let mut request = Request::default();
        request.take(&head, true).map(|()| request).map_err(|answer| answer.status)
    }

    /// The head that a server gets.
    fn written(request: &Request) -> String {
        let mut out = Vec::new();
        request.write(&Client::at("192.0.2.9"), &mut out);
        String::from_utf8(out).unwrap()
    }

    /// The key in it.
    fn key_in(head: &str) -> String {
        let mut keys = head.lines().filter_map(|line| line.strip_prefix("sec-websocket-key: "));
        let key = keys.next().unwrap();
        assert_eq!(keys.next(), None);
        key.to_owned()
    }

    #[test]
    fn an_extended_connect_becomes_a_get_that_upgrades() {
        let fields = [("sec-websocket-version", "13"), ("sec-websocket-key", "its own"), ("x-a", "b")];
        let request = taken("WebSocket", &fields).unwrap();
        let head = written(&request);
        let key = key_in(&head);
        assert_eq!(
            head,
            format!(
                "GET /chat?b HTTP/1.1\r\nhost: a.test\r\nsec-websocket-version: 13\r\nx-a: b\r\nupgrade: websocket\r\n\
                 sec-websocket-key: {key}\r\nx-forwarded-for: 192.0.2.9\r\nx-forwarded-proto: http\r\nconnection: upgrade\r\n\r\n"
            )
        );
        assert!(!request.is_repeatable());
        assert_ne!(key_in(&written(&taken("websocket", &[]).unwrap())), key);
        assert_eq!(taken("connect-udp", &[]).map(drop), Err(501));
        assert_eq!(taken("websocket", &[("content-length", "0")]).map(drop), Err(400));
    }

    #[test]
    fn only_an_answer_to_the_key_opens_a_websocket() {
        let request = taken("websocket", &[]).unwrap();
        let right = accept(key_in(&written(&request)).as_bytes());
        let opens = |status: &str, fields: &str| {
            let head = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
            let mut response = Response::default();
            response.parse(head.as_bytes(), &request).unwrap();
            response.fits(&request)
        };
        let switch =
            format!("Connection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Accept: {right}\r\n");
        assert!(opens("101 Switching Protocols", &switch));
        let wrong = [
            switch.replace("Connection: Upgrade", "Connection: close"),
            switch.replace("Connection: Upgrade\r\n", ""),
            switch.replace("Upgrade: WebSocket\r\n", ""),
            switch.replace("WebSocket\r\n", "WebSocket, h2c\r\n"),
            switch.replace("WebSocket\r\n", "other\r\n"),
            switch.replace(&right, &accept(b"another key")),
            switch.replace(&right, &right.to_ascii_lowercase()),
            format!("{switch}Sec-WebSocket-Accept: {right}\r\n"),
            "Connection: Upgrade\r\nUpgrade: WebSocket\r\n".to_owned(),
        ];
        for fields in wrong {
            assert!(!opens("101 Switching Protocols", &fields), "{fields:?}");
        }
        assert!(!opens("200 OK", &switch) && !opens("204 No Content", ""));
        assert!(
            opens("100 Continue", "") && opens("302 Found", "Location: /\r\n") && opens("403 Forbidden", "")
        );
    }

    #[test]
    fn a_key_is_accepted_as_in_the_rfc() {
        // RFC 6455, 1.3.
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let (one, other) = (key().unwrap(), key().unwrap());
        assert_eq!((one.len(), other.len()), (24, 24));
        assert_ne!(one, other);
    }
}
