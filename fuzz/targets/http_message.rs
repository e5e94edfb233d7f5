//! What the edge passes on, read by a reader of its own: whatever is sent to the edge, servers and clients get whole and
//! strict messages. So no two readers of them can differ on where they end, which request smuggling and response splitting
//! live on.
#![no_main]

mod strict;

use libfuzzer_sys::fuzz_target;
use sidelong_proxy::fuzz;
use strict::{Body, Framing, Head};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    if kind % 2 == 0 {
        if let Some(passed_on) = fuzz::request(bytes) {
            let head = read(&passed_on, false).expect("a strict request");
            let words: Vec<_> = head.line.split(|byte| *byte == b' ').collect();
            assert!(
                matches!(words[..], [_, target, b"HTTP/1.1"] if target.starts_with(b"/") || target == b"*")
            );
            assert_eq!(head.values("host").count(), 1);
        }
    } else if let Some(passed_on) = fuzz::response(bytes) {
        let head = read(&passed_on, true).expect("a strict response");
        assert!(head.line.starts_with(b"HTTP/1.1 "));
    }
});

/// A message that ends where it says; what is wrong with it otherwise.
fn read(message: &[u8], is_response: bool) -> Result<Head<'_>, &'static str> {
    let head = Head::read(message)?.ok_or("no end of the head")?;
    if head.has_fields_of_hop() {
        return Err("a field of the hop before");
    }
    let rest = &message[head.len..];
    // The body of an answer that has none may be announced, as for HEAD and 304.
    if is_response && rest.is_empty() && matches!(head.framing, Framing::Length(Some(_))) {
        return Ok(head);
    }
    let body = Body::read(head.framing, rest)?.ok_or("no end of the body")?;
    if body.is_extended {
        return Err("an extension of a chunk");
    }
    if body.len == rest.len() { Ok(head) } else { Err("a body of another length") }
}
