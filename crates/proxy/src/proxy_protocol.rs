//! The PROXY protocol, versions 1 and 2: the header by which a proxy that passes bytes on tells whose connection it is
//! (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::io::AsyncReadExt as _;

use crate::body::Malformed;
use crate::request::decimal;
use crate::socket::Socket;

/// How a header of version 2 begins.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// How one of version 1 begins.
const WORD: &[u8] = b"PROXY ";
/// Longest header of version 1, with its line end.
const LINE_BYTES_MAX: usize = 107;
/// Longest header of version 2, as nginx's.
const HEADER_BYTES_MAX: usize = 4096;
/// The field behind its addresses that tells of TLS (PP2_TYPE_SSL), and the bit of the field's first byte that is set if the client
/// used it (PP2_CLIENT_SSL).
const TLS_FIELD: u8 = 0x20;
const CLIENT_USED_TLS: u8 = 1;
/// Bytes of the addresses of two Unix sockets.
const UNIX_BYTES: usize = 216;

/// What a header tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The client, unless the connection is the proxy's own or of no known kind.
    pub(crate) client: Option<SocketAddr>,
    /// Whether the client's connection to the proxy is over TLS.
    pub(crate) is_tls: bool,
}

/// A header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) len: usize,
    told: Told,
}

/// Reads the header that a connection begins with, and nothing behind it.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the connection begins otherwise; others if it ends, or is not over TCP.
pub(crate) async fn read(socket: &mut Socket) -> io::Result<Told> {
    let Socket::Tcp(stream) = socket else { return Err(io::ErrorKind::Unsupported.into()) };
    let mut bytes = vec![0; HEADER_BYTES_MAX];
    let mut taken = 0;
    loop {
        let waiting = stream.peek(&mut bytes[taken..]).await?;
        if waiting == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let header = parse(&bytes[..taken + waiting]).map_err(|Malformed| io::ErrorKind::InvalidData)?;
        // While the header is not complete, all bytes are of it.
        let end = header.as_ref().map_or(taken + waiting, |header| header.len);
        stream.read_exact(&mut bytes[taken..end]).await?;
        taken = end;
        if let Some(header) = header {
            return Ok(header.told);
        }
    }
}

/// Parses the header at the start of `bytes`; `None` if it is not complete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let begins = |start: &[u8]| bytes.iter().zip(start).all(|(byte, wanted)| byte == wanted);
    if begins(SIGNATURE) {
        parse_v2(bytes)
    } else if begins(WORD) {
        parse_v1(bytes)
    } else {
        Err(Malformed)
    }
}

fn parse_v1(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let line = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = line.windows(2).position(|end| end == b"\r\n") else {
        return if bytes.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Malformed) };
    };
    let line = String::from_utf8_lossy(&line[..end]);
    let client = match line.split(' ').collect::<Vec<_>>()[..] {
        // Whatever else it says is ignored.
        ["PROXY", "UNKNOWN", ..] => None,
        ["PROXY", "TCP4", client, proxy, port, proxy_port] => {
            Some(addresses::<Ipv4Addr>([client, proxy], [port, proxy_port]).ok_or(Malformed)?)
        }
        ["PROXY", "TCP6", client, proxy, port, proxy_port] => {
            Some(addresses::<Ipv6Addr>([client, proxy], [port, proxy_port]).ok_or(Malformed)?)
        }
        _ => return Err(Malformed),
    };
    Ok(Some(Header { len: end + 2, told: Told { client, is_tls: false } }))
}

/// The first of two addresses with their ports.
fn addresses<Ip: FromStr + Into<IpAddr>>(hosts: [&str; 2], ports: [&str; 2]) -> Option<SocketAddr> {
    let [Ok(host), Ok(_)] = hosts.map(str::parse::<Ip>) else { return None };
    let [Some(port), Some(_)] = ports.map(|port| u16::try_from(decimal(port.as_bytes())?).ok()) else {
        return None;
    };
    Some(SocketAddr::new(host.into(), port))
}

fn parse_v2(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let Some((head, rest)) = bytes.split_first_chunk::<16>() else { return Ok(None) };
    let [.., version, kind, high, low] = *head;
    let len = usize::from(u16::from_be_bytes([high, low]));
    if version >> 4 != 2 || head.len() + len > HEADER_BYTES_MAX {
        return Err(Malformed);
    }
    let Some(block) = rest.get(..len) else { return Ok(None) };
    let (client, fields) = match (version & 0xF, kind) {
        // LOCAL, such as a check of the proxy's.
        (0, _) => (None, &[][..]),
        // An unknown kind, or Unix sockets.
        (1, 0x00) => (None, block),
        (1, 0x31) => (None, block.get(UNIX_BYTES..).ok_or(Malformed)?),
        (1, 0x11) => binary_addresses::<4>(block).ok_or(Malformed)?,
        (1, 0x21) => binary_addresses::<16>(block).ok_or(Malformed)?,
        // Datagrams do not come over a connection, and other values mean nothing.
        _ => return Err(Malformed),
    };
    let told = Told { client, is_tls: tells_tls(fields)? };
    Ok(Some(Header { len: head.len() + len, told }))
}

/// The first of two addresses of `LEN` bytes, with their ports behind both; and what follows.
fn binary_addresses<const LEN: usize>(block: &[u8]) -> Option<(Option<SocketAddr>, &[u8])>
where
    IpAddr: From<[u8; LEN]>,
{
    let (addresses, rest) = block.split_at_checked(2 * LEN)?;
    let (ports, fields) = rest.split_first_chunk::<4>()?;
    let [high, low, ..] = *ports;
    let host = IpAddr::from(*addresses.first_chunk::<LEN>()?);
    Some((Some(SocketAddr::new(host, u16::from_be_bytes([high, low]))), fields))
}

/// Whether the fields (type, length, value) say that the client used TLS.
fn tells_tls(mut fields: &[u8]) -> Result<bool, Malformed> {
    let mut is_tls = false;
    while let [kind, high, low, rest @ ..] = fields {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, others) = rest.split_at_checked(len).ok_or(Malformed)?;
        is_tls |= *kind == TLS_FIELD && value.first().is_some_and(|used| used & CLIENT_USED_TLS != 0);
        fields = others;
    }
    if fields.is_empty() { Ok(is_tls) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v2(version: u8, kind: u8, block: &[u8]) -> Vec<u8> {
        let len = (block.len() as u16).to_be_bytes();
        [SIGNATURE, &[version, kind], &len, block].concat()
    }

    fn v4_block(client: Ipv4Addr, port: u16) -> Vec<u8> {
        [&client.octets()[..], &[192, 0, 2, 2], &port.to_be_bytes(), &[0, 80]].concat()
    }

    fn v6_block(client: Ipv6Addr, port: u16) -> Vec<u8> {
        [&client.octets()[..], &[0; 16], &port.to_be_bytes(), &[0, 80]].concat()
    }

    /// The client of a whole header, which says `own` if the connection keeps its address.
    fn client(header: &[u8]) -> Result<String, Malformed> {
        let header = parse(header)?.map(|parsed| {
            assert_eq!(parsed.len, header.len());
            let client = parsed.told.client.map_or("own".to_owned(), |client| client.to_string());
            if parsed.told.is_tls { client + " TLS" } else { client }
        });
        Ok(header.unwrap_or_else(|| "incomplete".to_owned()))
    }

    #[test]
    fn a_line_tells_the_client() {
        let of = |line: &str| client(format!("{line}\r\n").as_bytes());
        for (line, told) in [
            ("PROXY TCP4 192.0.2.1 192.0.2.2 5000 80", "192.0.2.1:5000"),
            ("PROXY TCP6 2001:db8::1 ::1 5000 80", "[2001:db8::1]:5000"),
            ("PROXY UNKNOWN", "own"),
            ("PROXY UNKNOWN ffff:f...f:ffff ? 65535 65535", "own"),
        ] {
            assert_eq!(of(line).as_deref(), Ok(told), "{line}");
        }
        for line in [
            "PROXY",
            "PROXY ",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 2",
            "PROXY UNKNOWNS",
            "PROXY TCP4 192.0.2.1 192.0.2.2 5000",
            "PROXY TCP4 192.0.2.1 192.0.2.2 5000 80 1",
            "PROXY TCP4 192.0.2.1  192.0.2.2 5000 80",
            "PROXY TCP4 192.0.2.01 192.0.2.2 5000 80",
            "PROXY TCP4 2001:db8::1 ::1 5000 80",
            "PROXY TCP6 192.0.2.1 192.0.2.2 5000 80",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 80",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 80",
            "PROXY TCP4 192.0.2.1 192.0.2.2 5000 80\r",
            "proxy TCP4 192.0.2.1 192.0.2.2 5000 80",
            "GET / HTTP/1.1",
        ] {
            assert_eq!(of(line), Err(Malformed), "{line}");
        }
        assert_eq!(client(&[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 93]].concat()), Err(Malformed), "too long");
    }

    /// A field that says that the client used TLS and showed no certificate.
    const TLS: &[u8] = &[TLS_FIELD, 0, 5, CLIENT_USED_TLS, 0, 0, 0, 0];

    #[test]
    fn a_block_tells_the_client() {
        let (v4, v6) = (v4_block([192, 0, 2, 1].into(), 5000), v6_block(Ipv6Addr::LOCALHOST, 5000));
        for (version, kind, block, told) in [
            (0x21, 0x11, &v4[..], Ok("192.0.2.1:5000")),
            (0x21, 0x21, &v6, Ok("[::1]:5000")),
            (0x21, 0x11, &[&v4[..], &[0x04, 0, 1, 0]].concat(), Ok("192.0.2.1:5000")),
            (0x21, 0x11, &[&v4[..], &[0x04, 0, 0], TLS].concat(), Ok("192.0.2.1:5000 TLS")),
            (0x21, 0x21, &[&v6[..], TLS].concat(), Ok("[::1]:5000 TLS")),
            (0x21, 0x00, TLS, Ok("own TLS")),
            (0x21, 0x31, &[&[b'/'; 216], TLS].concat(), Ok("own TLS")),
            // The proxy speaks of certificates without TLS, and of nothing.
            (0x21, 0x11, &[&v4[..], &[TLS_FIELD, 0, 5, 6, 0, 0, 0, 0]].concat(), Ok("192.0.2.1:5000")),
            (0x21, 0x11, &[&v4[..], &[TLS_FIELD, 0, 0]].concat(), Ok("192.0.2.1:5000")),
            (0x20, 0x11, &[&v4[..], TLS].concat(), Ok("own")),
            // A field that is cut off.
            (0x21, 0x11, &[&v4[..], &TLS[..7]].concat(), Err(Malformed)),
            (0x21, 0x11, &[&v4[..], &TLS[..2]].concat(), Err(Malformed)),
            (0x20, 0x11, &v4, Ok("own")),
            (0x20, 0xFF, &[], Ok("own")),
            (0x21, 0x00, &[], Ok("own")),
            (0x21, 0x31, &[b'/'; 216], Ok("own")),
            (0x21, 0x11, &v4[..11], Err(Malformed)),
            (0x21, 0x21, &v6[..35], Err(Malformed)),
            (0x21, 0x12, &v4, Err(Malformed)),
            (0x21, 0x01, &v4, Err(Malformed)),
            (0x22, 0x11, &v4, Err(Malformed)),
            (0x11, 0x11, &v4, Err(Malformed)),
        ] {
            assert_eq!(
                client(&v2(version, kind, block)).as_deref(),
                told.as_ref().copied(),
                "{version:x} {kind:x}"
            );
        }
        assert!(client(&v2(0x21, 0x00, &[0; HEADER_BYTES_MAX - 16])).is_ok());
        assert_eq!(client(&v2(0x21, 0x00, &[0; HEADER_BYTES_MAX - 15])), Err(Malformed));
    }

    proptest! {
        #[test]
        fn a_header_is_known_when_it_is_complete_and_not_before(
            address: IpAddr, port: u16, more in prop::collection::vec(any::<u8>(), 0..40), is_v2: bool,
        ) {
            let proxy = if address.is_ipv4() { "192.0.2.2" } else { "::1" };
            let header = match address {
                IpAddr::V4(address) if is_v2 => v2(0x21, 0x11, &v4_block(address, port)),
                IpAddr::V6(address) if is_v2 => v2(0x21, 0x21, &v6_block(address, port)),
                _ => {
                    let family = if address.is_ipv4() { 4 } else { 6 };
                    format!("PROXY TCP{family} {address} {proxy} {port} 80\r\n").into_bytes()
                }
            };
            for end in 0..header.len() {
                prop_assert_eq!(parse(&header[..end]), Ok(None));
            }
            let told = Told { client: Some(SocketAddr::new(address, port)), is_tls: false };
            let wanted = Header { len: header.len(), told };
            prop_assert_eq!(parse(&[header, more].concat()), Ok(Some(wanted)));
        }

        #[test]
        fn nothing_makes_it_panic_or_read_too_far(
            start in prop::sample::select(vec![b"".as_slice(), WORD, b"PROXY TCP4 ", SIGNATURE, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0C"]),
            more in prop::collection::vec(any::<u8>(), 0..5000),
        ) {
            let bytes = [start, &more].concat();
            match parse(&bytes) {
                Ok(Some(header)) => prop_assert!(header.len <= bytes.len().min(HEADER_BYTES_MAX)),
                Ok(None) => prop_assert!(bytes.len() < HEADER_BYTES_MAX),
                Err(Malformed) => {}
            }
        }
    }
}
