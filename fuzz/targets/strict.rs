//! A strict reader of HTTP/1 messages (RFC 9112): what could be read in more than one way is an error.

/// The head of a message.
pub struct Head<'a> {
    /// The first line.
    pub line: &'a [u8],
    /// Names and values, without white space around them.
    fields: Vec<(&'a [u8], &'a [u8])>,
    pub framing: Framing,
    /// Its bytes, with the empty line.
    pub len: usize,
}

/// How its body ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes; of those that have no length, none.
    Length(Option<usize>),
    /// With the last chunk.
    Chunked,
}

/// A body.
pub struct Body {
    pub bytes: Vec<u8>,
    /// Bytes up to its end.
    pub len: usize,
    /// Whether a chunk has an extension.
    pub is_extended: bool,
}

impl<'a> Head<'a> {
    /// What `bytes` begin with; `None` if it does not end there.
    ///
    /// # Errors
    /// What is wrong.
    pub fn read(bytes: &'a [u8]) -> Result<Option<Self>, &'static str> {
        let Some(end) = find(bytes, b"\r\n\r\n") else { return Ok(None) };
        let mut lines = split_lines(&bytes[..end]).ok_or("a bare line end")?.into_iter();
        let line = lines.next().ok_or("no first line")?;
        let fields: Vec<_> = lines.map(field).collect::<Result<_, _>>()?;
        let mut head = Head { line, fields, framing: Framing::Length(None), len: end + 4 };
        let (lengths, codings): (Vec<_>, Vec<_>) =
            (head.values("content-length").collect(), head.values("transfer-encoding").collect());
        head.framing = match (&lengths[..], &codings[..]) {
            ([], []) => Framing::Length(None),
            ([length], []) => {
                Framing::Length(Some(number(length, 10).ok_or("a length that is not a number")?))
            }
            ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => Framing::Chunked,
            ([], _) => return Err("another coding"),
            (_, []) => return Err("two lengths"),
            (_, _) => return Err("a length beside chunks"),
        };
        Ok(Some(head))
    }

    /// All values of a field.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.fields
            .iter()
            .filter(move |(of, _)| of.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| *value)
    }

    /// Whether it has a field that is for the next hop alone, which no edge passes on.
    pub fn has_fields_of_hop(&self) -> bool {
        let of_hop = ["keep-alive", "proxy-connection", "te", "http2-settings"];
        of_hop.iter().any(|name| self.values(name).next().is_some())
    }
}

impl Body {
    /// What `bytes` begin with, so framed; `None` if it does not end there.
    ///
    /// # Errors
    /// What is wrong.
    pub fn read(framing: Framing, bytes: &[u8]) -> Result<Option<Self>, &'static str> {
        match framing {
            Framing::Length(len) => {
                let len = len.unwrap_or(0);
                Ok(bytes.get(..len).map(|bytes| Body { bytes: bytes.to_vec(), len, is_extended: false }))
            }
            Framing::Chunked => Body::read_chunks(bytes),
        }
    }

    fn read_chunks(bytes: &[u8]) -> Result<Option<Self>, &'static str> {
        let mut body = Body { bytes: Vec::new(), len: 0, is_extended: false };
        loop {
            let rest = &bytes[body.len..];
            let Some(end) = find(rest, b"\r\n") else { return Ok(None) };
            let line = &rest[..end];
            if line.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
                return Err("a bare line end");
            }
            let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let size = number(&line[..digits], 16).ok_or("a size that is not a number")?;
            let extension = line[digits..].trim_ascii_start();
            if !extension.is_empty() && !extension.starts_with(b";") {
                return Err("something behind a size");
            }
            body.is_extended |= digits < line.len();
            body.len += end + 2;
            if size == 0 {
                break;
            }
            let rest = &bytes[body.len..];
            let Some(behind) = rest.get(size..).and_then(|rest| rest.get(..2)) else { return Ok(None) };
            if behind != b"\r\n" {
                return Err("a chunk of another size");
            }
            body.bytes.extend(&rest[..size]);
            body.len += size + 2;
        }
        // Trailers, up to an empty line.
        loop {
            let rest = &bytes[body.len..];
            let Some(end) = find(rest, b"\r\n") else { return Ok(None) };
            body.len += end + 2;
            if end == 0 {
                return Ok(Some(body));
            }
            field(&rest[..end])?;
        }
    }
}

/// Where `what` begins.
pub fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn field(line: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or("a line without a colon")?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if name.is_empty() || name.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
        return Err("a name that is not a token");
    }
    if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err("a control character in a value");
    }
    Ok((name, value))
}

/// Digits alone.
fn number(digits: &[u8], radix: u32) -> Option<usize> {
    let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    usize::from_str_radix(digits, radix).ok()
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
