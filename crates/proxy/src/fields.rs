//! Header and trailer fields, as they were parsed.

use std::cell::RefCell;

use crate::free_list::{self, BYTES_FREE, FreeList};

/// A range of bytes in the text of a [`Fields`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    pub(crate) fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start as usize..][..self.len as usize]
    }
}

/// The fields that a proxy treats in a way of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Connection,
    ContentLength,
    ContentType,
    Cookie,
    Date,
    Expect,
    Forwarded,
    ForwardedFor,
    /// A further field that begins with X-Forwarded-.
    ForwardedOther,
    ForwardedProto,
    Host,
    Http2Settings,
    KeepAlive,
    MaxForwards,
    ProxyConnection,
    Te,
    TransferEncoding,
    Upgrade,
    WebSocketAccept,
    Via,
    /// It is passed on as it is.
    Other,
}

impl Name {
    fn of(name: &[u8]) -> Name {
        let (text, known) = match name.len() {
            2 => ("te", Name::Te),
            3 => ("via", Name::Via),
            4 if name[0] | 0x20 == b'd' => ("date", Name::Date),
            4 => ("host", Name::Host),
            6 if name[0] | 0x20 == b'e' => ("expect", Name::Expect),
            6 => ("cookie", Name::Cookie),
            7 => ("upgrade", Name::Upgrade),
            9 => ("forwarded", Name::Forwarded),
            10 if name[0] | 0x20 == b'c' => ("connection", Name::Connection),
            10 => ("keep-alive", Name::KeepAlive),
            12 if name[0] | 0x20 == b'c' => ("content-type", Name::ContentType),
            12 => ("max-forwards", Name::MaxForwards),
            14 if name[0] | 0x20 == b'c' => ("content-length", Name::ContentLength),
            14 => ("http2-settings", Name::Http2Settings),
            15 => ("x-forwarded-for", Name::ForwardedFor),
            16 => ("proxy-connection", Name::ProxyConnection),
            17 if name[0] | 0x20 == b'x' => ("x-forwarded-proto", Name::ForwardedProto),
            17 => ("transfer-encoding", Name::TransferEncoding),
            20 => ("sec-websocket-accept", Name::WebSocketAccept),
            _ => ("", Name::Other),
        };
        match name.eq_ignore_ascii_case(text.as_bytes()) {
            true => known,
            false if is_x_forwarded(name) => Name::ForwardedOther,
            false => Name::Other,
        }
    }

    /// Whether the field speaks of one connection, and so is not passed on (RFC 9110, 7.6.1). Upgrade is passed on where the
    /// connection is upgraded.
    pub(crate) const fn is_hop_by_hop(self) -> bool {
        use Name::{Connection, Http2Settings, KeepAlive, ProxyConnection, Te, TransferEncoding, Upgrade};
        matches!(
            self,
            Connection | Http2Settings | KeepAlive | ProxyConnection | Te | TransferEncoding | Upgrade
        )
    }
}

/// How fields begin that proxies tell servers of a request's way by.
const X_FORWARDED: &[u8] = b"x-forwarded-";

/// Whether it is such a field. Servers that hand fields on as variables (RFC 3875, 4.1.18) may take `_` for `-`.
fn is_x_forwarded(name: &[u8]) -> bool {
    let is_alike =
        |(byte, wanted): (&u8, &u8)| byte.to_ascii_lowercase() == *wanted || (*byte, *wanted) == (b'_', b'-');
    name.len() > X_FORWARDED.len() && name.iter().zip(X_FORWARDED).all(is_alike)
}

/// A field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) known: Name,
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Field<'a> {
    pub(crate) fn new(name: &'a [u8], value: &'a [u8]) -> Self {
        Field { known: Name::of(name), name, value }
    }
}

/// A field's name and value in the text.
type Place = (Name, Span, Span);

thread_local! {
    static PLACES_FREE: FreeList<Place> = const { RefCell::new(Vec::new()) };
}

/// Fields in their order, with the text that they were parsed from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    text: Vec<u8>,
    list: Vec<Place>,
}

impl Fields {
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.list.clear();
        free_list::take(&BYTES_FREE, &mut self.text);
        free_list::take(&PLACES_FREE, &mut self.list);
    }

    /// Takes the fields that were parsed from `text`, in place of those before.
    pub(crate) fn parsed(&mut self, text: &[u8], fields: &[httparse::Header<'_>]) {
        self.clear();
        self.text.extend_from_slice(text);
        self.list.extend(fields.iter().map(|field| {
            let name = field.name.as_bytes();
            (Name::of(name), span_in(text, name), span_in(text, field.value))
        }));
    }

    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        let known = Name::of(name);
        let (name, value) = (self.keep(name), self.keep(value));
        self.list.push((known, name, value));
    }

    pub(crate) fn remove(&mut self, known: Name) {
        self.list.retain(|(name, ..)| *name != known);
    }

    /// Keeps `text` beside the fields.
    pub(crate) fn keep(&mut self, text: &[u8]) -> Span {
        let start = self.text.len() as u32;
        self.text.extend_from_slice(text);
        Span { start, len: text.len() as u32 }
    }

    /// Bytes of their text.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn get(&self, span: Span) -> &[u8] {
        span.of(&self.text)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Field<'_>> + Clone {
        self.list.iter().map(|&(known, name, value)| Field {
            known,
            name: name.of(&self.text),
            value: value.of(&self.text),
        })
    }

    pub(crate) fn values(&self, known: Name) -> impl Iterator<Item = &[u8]> + Clone {
        self.iter().filter(move |field| field.known == known).map(|field| field.value)
    }

    pub(crate) fn spans(&self, known: Name) -> impl Iterator<Item = Span> {
        self.list.iter().filter(move |(name, ..)| *name == known).map(|(.., value)| *value)
    }
}

impl Drop for Fields {
    fn drop(&mut self) {
        free_list::give(&BYTES_FREE, &mut self.text);
        free_list::give(&PLACES_FREE, &mut self.list);
    }
}

/// The place of `part` in `text`, which it was parsed from. It is also that in fields that were [parsed](Fields::parsed) from it.
pub(crate) fn span_in(text: &[u8], part: &[u8]) -> Span {
    let start = (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    if part.is_empty() || start > text.len() {
        return Span::default();
    }
    Span { start: start as u32, len: part.len() as u32 }
}

/// The elements of a comma-separated list (RFC 9110, 5.6.1) without empty ones.
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Whether `byte` may stand in a token (RFC 9110, 5.6.2).
pub(crate) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}
