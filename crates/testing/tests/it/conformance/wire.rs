//! A strict reader of HTTP/1 messages (RFC 9112), for both sides of a proxy: what the server received, and what the
//! client got. What the grammar does not allow is an error, so a proxy that passes it on fails.

/// Bytes of a head beyond which it is taken as an error.
const HEAD_MAX: usize = 2 << 20;

/// Fields of a head or of trailers, in order, with names as they came and values without white space around them.
pub(crate) type Fields = Vec<(String, String)>;

/// How the end of a body is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    Nothing,
    Length(usize),
    Chunked,
    /// Until the sender closes.
    Close,
    /// After a 101: no longer HTTP.
    Tunnel,
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The request line or the status line.
    pub(crate) start: String,
    pub(crate) fields: Fields,
    pub(crate) framing: Framing,
    /// Without chunks.
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Fields,
    /// The end of the body has come.
    pub(crate) is_whole: bool,
}

impl Message {
    /// The values of a field, joined as RFC 9110, 5.3 allows.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        joined(&self.fields, name)
    }

    pub(crate) fn trailer(&self, name: &str) -> Option<String> {
        joined(&self.trailers, name)
    }

    /// The request's target.
    pub(crate) fn target(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or("")
    }

    /// The answer's status.
    pub(crate) fn status(&self) -> u16 {
        self.target().parse().unwrap_or(0)
    }
}

fn joined(fields: &Fields, name: &str) -> Option<String> {
    let values = fields.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
    let values: Vec<_> = values.map(|(_, value)| value.as_str()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// The request at the beginning of `bytes` and the bytes it takes, or `None` if its head is not whole.
pub(crate) fn request(bytes: &[u8]) -> Result<Option<(Message, usize)>, String> {
    let Some((start, fields, head)) = head(bytes)? else { return Ok(None) };
    let parts: Vec<_> = start.split(' ').collect();
    let [method, target, version] = parts[..] else { return Err(format!("request line {start:?}")) };
    if method.is_empty() || !method.bytes().all(is_token) {
        return Err(format!("method {method:?}"));
    }
    if target.is_empty() || !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(format!("target {target:?}"));
    }
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(format!("version {version:?}"));
    }
    if fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host")).count() > 1 {
        return Err("several Hosts".to_owned());
    }
    let framing = framed(&fields)?.unwrap_or(Framing::Nothing);
    with_body(start, fields, framing, bytes, head, false).map(Some)
}

/// The answer at the beginning of `bytes`, likewise. `to_head`: it answers a HEAD. `at_end`: no more bytes will come.
pub(crate) fn answer(bytes: &[u8], to_head: bool, at_end: bool) -> Result<Option<(Message, usize)>, String> {
    let Some((start, fields, head)) = head(bytes)? else { return Ok(None) };
    let mut parts = start.splitn(3, ' ');
    let (version, status, reason) = (parts.next(), parts.next().unwrap_or(""), parts.next());
    if !matches!(version, Some("HTTP/1.1" | "HTTP/1.0")) || reason.is_none() {
        return Err(format!("status line {start:?}"));
    }
    let digits = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
    let status: u16 = status.parse().unwrap_or(0);
    if !digits || !(100..600).contains(&status) {
        return Err(format!("status line {start:?}"));
    }
    let framing = framed(&fields)?;
    if framing == Some(Framing::Chunked) && (status < 200 || status == 204 || version == Some("HTTP/1.0")) {
        return Err(format!("transfer-encoding in {start:?}"));
    }
    let framing = match status {
        101 => Framing::Tunnel,
        100..200 | 204 | 304 => Framing::Nothing,
        _ if to_head => Framing::Nothing,
        _ => framing.unwrap_or(Framing::Close),
    };
    with_body(start, fields, framing, bytes, head, at_end).map(Some)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The first line, the fields, and the bytes up to the body.
fn head(bytes: &[u8]) -> Result<Option<(String, Fields, usize)>, String> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let lines = &bytes[..end.map_or(bytes.len(), |end| end + 2)];
    if let Some(at) = (0..lines.len()).find(|at| lines[*at] == b'\n' && !lines[..*at].ends_with(b"\r")) {
        return Err(format!("line feed alone after {:?}", String::from_utf8_lossy(&lines[..at])));
    }
    let Some(end) = end else {
        return if bytes.len() > HEAD_MAX { Err("a head without end".to_owned()) } else { Ok(None) };
    };
    let mut lines = split_lines(&bytes[..end]);
    let start = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    if start.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(format!("first line {start:?}"));
    }
    Ok(Some((start, lines.map(field).collect::<Result<_, _>>()?, end + 4)))
}

fn split_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let now = rest?;
        let end = now.windows(2).position(|two| two == b"\r\n");
        rest = end.map(|end| &now[end + 2..]);
        Some(&now[..end.unwrap_or(now.len())])
    })
}

fn field(line: &[u8]) -> Result<(String, String), String> {
    let wrong = || format!("field line {:?}", String::from_utf8_lossy(line));
    let colon = line.iter().position(|byte| *byte == b':').ok_or_else(wrong)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_value = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
    if name.is_empty() || !name.iter().copied().all(is_token) || !value.iter().all(is_value) {
        return Err(wrong());
    }
    let value = String::from_utf8_lossy(value);
    Ok((String::from_utf8_lossy(name).into_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

/// What the fields say of the body (RFC 9112, 6.3).
fn framed(fields: &Fields) -> Result<Option<Framing>, String> {
    let of = |wanted: &str| -> Vec<&str> {
        let found = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.as_str()).collect()
    };
    match (&of("transfer-encoding")[..], &of("content-length")[..]) {
        ([], []) => Ok(None),
        ([coding], []) if coding.eq_ignore_ascii_case("chunked") => Ok(Some(Framing::Chunked)),
        ([], [length]) if length.bytes().all(|byte| byte.is_ascii_digit()) => length
            .parse()
            .map(|length| Some(Framing::Length(length)))
            .map_err(|_| format!("length {length:?}")),
        (codings, lengths) => Err(format!("transfer-encoding {codings:?}, content-length {lengths:?}")),
    }
}

fn with_body(
    start: String,
    fields: Fields,
    framing: Framing,
    bytes: &[u8],
    head: usize,
    at_end: bool,
) -> Result<(Message, usize), String> {
    let rest = &bytes[head..];
    let (mut body, mut trailers) = (Vec::new(), Vec::new());
    let (used, is_whole) = match framing {
        Framing::Nothing | Framing::Tunnel => (0, true),
        Framing::Length(length) => {
            let used = length.min(rest.len());
            body.extend(&rest[..used]);
            (used, used == length)
        }
        Framing::Close => {
            body.extend(rest);
            (rest.len(), at_end)
        }
        Framing::Chunked => {
            let end = chunks(rest, &mut body, &mut trailers)?;
            (end.unwrap_or(rest.len()), end.is_some())
        }
    };
    Ok((Message { start, fields, framing, body, trailers, is_whole }, head + used))
}

/// Reads chunks (RFC 9112, 7.1) and returns where they end, if they do.
fn chunks(bytes: &[u8], body: &mut Vec<u8>, trailers: &mut Fields) -> Result<Option<usize>, String> {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            let is_possible = rest.len() < 64 && !rest.contains(&b'\n');
            return if is_possible { Ok(None) } else { Err("a chunk's size without end".to_owned()) };
        };
        // The proxy writes its own chunks, and has no reason to write extensions.
        let size = String::from_utf8_lossy(&rest[..end]).into_owned();
        let digits = !size.is_empty() && size.len() <= 8 && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let Ok(size) = usize::from_str_radix(if digits { &size } else { "" }, 16) else {
            return Err(format!("chunk size {size:?}"));
        };
        at += end + 2;
        if size == 0 {
            break;
        }
        let data = &bytes[at..];
        body.extend(&data[..size.min(data.len())]);
        match data.get(size..).unwrap_or_default() {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => at += size + 2,
            _ => return Err("no line end after a chunk".to_owned()),
        }
    }
    let rest = &bytes[at..];
    if rest.starts_with(b"\r\n") {
        return Ok(Some(at + 2));
    }
    let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    *trailers = split_lines(&rest[..end]).map(field).collect::<Result<_, _>>()?;
    Ok(Some(at + end + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET /a HTTP/1.1\r\nHost: b\r\n";

    fn reads(text: &str) -> Result<Option<(Message, usize)>, String> {
        request(format!("{GET}{text}").as_bytes())
    }

    #[test]
    fn a_message_is_read_with_its_body_and_no_further() {
        let (message, used) = reads("X-A: 1\r\nx-a:\t2 \r\nContent-Length: 2\r\n\r\nhiGET").unwrap().unwrap();
        assert_eq!((message.target(), message.field("x-A").as_deref()), ("/a", Some("1, 2")));
        assert_eq!((message.body.as_slice(), message.is_whole), (b"hi".as_slice(), true));
        assert_eq!(used, GET.len() + "X-A: 1\r\nx-a:\t2 \r\nContent-Length: 2\r\n\r\nhi".len());
        let (message, _) =
            reads("Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n\r\n").unwrap().unwrap();
        assert_eq!((message.body.as_slice(), message.trailer("x").as_deref()), (b"hi".as_slice(), Some("y")));
        for cut in ["Content-Length: 2\r\n\r\nh", "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n"] {
            assert!(!reads(cut).unwrap().unwrap().0.is_whole, "{cut:?}");
        }
        assert!(reads("").unwrap().is_none(), "a head without its end");
    }

    #[test]
    fn what_the_grammar_does_not_allow_is_an_error() {
        let heads = [
            "X: y\n\r\n",
            "X : y\r\n\r\n",
            "X: y\r\n z\r\n\r\n",
            "X: \0\r\n\r\n",
            "X: a\rb\r\n\r\n",
            "X\r\n\r\n",
            "Host: b\r\n\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            "Content-Length: +1\r\n\r\nx",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding: x, chunked\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n1;x\r\nx\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n\r\n\r\n",
        ];
        for text in heads {
            assert!(reads(text).is_err(), "{text:?}");
        }
        for line in ["GET  /a HTTP/1.1", "GET /a HTTP/1.2", "GET /a#b HTTP/1.1", "GET /a", "G(T /a HTTP/1.1"]
        {
            assert!(request(format!("{line}\r\n\r\n").as_bytes()).is_err(), "{line:?}");
        }
        for line in ["HTTP/1.1 200", "HTTP/1.1 099 X", "HTTP/1.1 600 X", "HTTP/1.1 2OO X", "HTTP/2.0 200 X"] {
            assert!(answer(format!("{line}\r\n\r\n").as_bytes(), false, true).is_err(), "{line:?}");
        }
    }

    #[test]
    fn an_answer_ends_where_its_head_and_its_request_say() {
        let of = |text: &str, to_head, at_end| answer(text.as_bytes(), to_head, at_end).unwrap().unwrap().0;
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(of(length, false, false).body, b"hi");
        assert_eq!(of(length, true, false).framing, Framing::Nothing);
        assert_eq!(
            of("HTTP/1.1 304 X\r\nContent-Length: 2\r\n\r\nhi", false, false).framing,
            Framing::Nothing
        );
        let close = "HTTP/1.1 200 OK\r\n\r\nhi";
        assert_eq!((of(close, false, false).is_whole, of(close, false, true).is_whole), (false, true));
        assert_eq!(of("HTTP/1.1 101 X\r\n\r\nhi", false, false).framing, Framing::Tunnel);
    }
}
