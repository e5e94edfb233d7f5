//! What the edge passes on, read by a reader of its own: whatever is sent to the edge, servers and clients get whole and
//! strict messages. So no two readers of them can differ on where they end, which request smuggling and response splitting
//! live on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidelong_proxy::fuzz;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    if kind % 2 == 0 {
        if let Some(passed_on) = fuzz::request(bytes) {
            let line = read(&passed_on, false).expect("a strict request");
            let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
            assert!(matches!(words[..], [_, target, b"HTTP/1.1"] if target.starts_with(b"/") || target == b"*"));
        }
    } else if let Some(passed_on) = fuzz::response(bytes) {
        let line = read(&passed_on, true).expect("a strict response");
        assert!(line.starts_with(b"HTTP/1.1 "));
    }
});

/// The first line of a message that ends where it says; what is wrong with it otherwise.
fn read(message: &[u8], is_response: bool) -> Result<&[u8], &'static str> {
    let end = message.windows(4).position(|window| window == b"\r\n\r\n").ok_or("no end of the head")?;
    let (head, body) = (&message[..end], &message[end + 4..]);
    let mut lines = split_lines(head).ok_or("a bare line end")?.into_iter();
    let first = lines.next().ok_or("no first line")?;
    let (mut length, mut is_chunked, mut hosts) = (None, false, 0);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').ok_or("a line without a colon")?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || name.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
            return Err("a name that is not a token");
        }
        if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err("a control character in a value");
        }
        match name.to_ascii_lowercase().as_slice() {
            b"content-length" if length.is_some() => return Err("two lengths"),
            b"content-length" => {
                let digits = str::from_utf8(value).map_err(|_| "a length that is not a number")?;
                length = Some(digits.parse::<u64>().map_err(|_| "a length that is not a number")?);
            }
            b"transfer-encoding" if is_chunked || value != b"chunked" => return Err("another coding"),
            b"transfer-encoding" => is_chunked = true,
            b"host" => hosts += 1,
            b"keep-alive" | b"proxy-connection" | b"te" | b"http2-settings" => return Err("a hop-by-hop field"),
            _ => {}
        }
    }
    if !is_response && hosts != 1 {
        return Err("not one host");
    }
    match (length, is_chunked) {
        (Some(_), true) => Err("a length beside chunks"),
        (None, true) if chunks_end(body) => Ok(first),
        (None, true) => Err("chunks that do not end with the body"),
        (length, false) if length.unwrap_or(0) == body.len() as u64 => Ok(first),
        // The body of an answer that has none may be announced, as for HEAD and 304.
        (Some(_), false) if is_response && body.is_empty() => Ok(first),
        _ => Err("a body of another length"),
    }
}

/// The lines, if CR and LF stand only together.
fn split_lines(head: &[u8]) -> Option<Vec<&[u8]>> {
    let mut lines = Vec::new();
    let mut rest = head;
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        if rest.get(end..end + 2) != Some(b"\r\n") {
            return None;
        }
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    lines.push(rest);
    Some(lines)
}

/// Whether the chunks end exactly with the bytes.
fn chunks_end(mut rest: &[u8]) -> bool {
    loop {
        let Some(end) = rest.windows(2).position(|window| window == b"\r\n") else { return false };
        let Some(size) = str::from_utf8(&rest[..end]).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok()) else {
            return false;
        };
        rest = &rest[end + 2..];
        if size == 0 {
            break;
        }
        let Some(behind) = rest.get(size..).and_then(|rest| rest.strip_prefix(b"\r\n")) else { return false };
        rest = behind;
    }
    // Trailers and the empty line.
    rest == b"\r\n" || rest.ends_with(b"\r\n\r\n") && rest.windows(4).filter(|window| window == b"\r\n\r\n").count() == 1
}
