//! Whole messages through the parsers, for fuzzing.

use std::net::SocketAddr;

use crate::body::{Decoder, Encoder, Next};
use crate::buffer::Buffer;
use crate::client::Client;
use crate::fields::Fields;
use crate::forwarding::Forwarding;
use crate::proxy_protocol;
use crate::request::{Request, Version};
use crate::response::Response;
use crate::trust::Trust;

/// What a server gets of the client's `bytes`; `None` if they are refused, or are not a whole request.
pub fn request(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut request = Request::default();
    let head = request.parse(bytes).ok()??;
    let mut out = Vec::new();
    let forwarding = Forwarding { x_forwarded: true, forwarded: true, via: Some("edge".into()) };
    let address = SocketAddr::from(([192, 0, 2, 1], 5000));
    request.write(&Client::new(address, &Trust::default(), false, &forwarding.into()), &mut out);
    let mut decoder = Decoder::new(request.framing);
    let mut encoder = Encoder::new(request.framing);
    body(&bytes[head..], &mut decoder, &mut encoder, &mut out)?;
    Some(out)
}

/// What a client gets of the server's `bytes`, an answer to GET; `None` if they are refused, or are not a whole response.
pub fn response(bytes: &[u8]) -> Option<Vec<u8>> {
    let request = Request::default();
    let mut response = Response::default();
    let head = response.parse(bytes, &request).ok()??;
    let mut out = Vec::new();
    response.write(Version::Http11, true, &mut out);
    let mut decoder = Decoder::new(response.framing);
    let mut encoder = Encoder::new(response.framing_for(Version::Http11));
    body(&bytes[head..], &mut decoder, &mut encoder, &mut out)?;
    Some(out)
}

/// The length of the PROXY header at the start of `bytes`; `None` if it is refused, or not complete.
pub fn proxy_header(bytes: &[u8]) -> Option<usize> {
    Some(proxy_protocol::parse(bytes).ok()??.len)
}

fn body(bytes: &[u8], decoder: &mut Decoder, encoder: &mut Encoder, out: &mut Vec<u8>) -> Option<()> {
    let mut buffer = Buffer::from(bytes);
    while let Next::Data(count) = decoder.next(&mut buffer).ok()? {
        let taken = encoder.begin(count, out);
        out.extend_from_slice(&buffer.bytes()[..taken]);
        encoder.wrote(taken);
        decoder.used(taken);
        buffer.consume(taken);
    }
    let trailers: Option<&Fields> = decoder.trailers();
    encoder.end(trailers, out);
    decoder.closed().then_some(())
}
