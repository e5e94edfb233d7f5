//! Whose word about a client's address is believed.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::fields::elements;
use crate::request::Request;

/// Most addresses of X-Forwarded-For that are looked at, from the last one on.
const HOPS_MAX: usize = 32;

/// The proxies before this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust(Vec<IpNet>);

impl Trust {
    pub(crate) fn new(proxies: Vec<IpNet>) -> Self {
        Trust(proxies)
    }

    /// Whether `address` is a proxy's.
    pub(crate) fn is_proxy(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether `address` may tell of clients: X-Forwarded-For is passed on from it, and a PROXY header is read.
    pub(crate) fn passes_on(&self, address: IpAddr) -> bool {
        self.0.is_empty() || self.is_proxy(address)
    }

    /// The client of a request that came from `from`: the last address that no proxy has. What stands before it anybody may
    /// have written. The port of an address that a proxy tells is 0.
    pub(crate) fn client(&self, request: &Request, from: SocketAddr) -> SocketAddr {
        if !self.is_proxy(from.ip()) {
            return from;
        }
        let values: Vec<_> = request.forwarded_for().flat_map(elements).collect();
        let mut client = from;
        for value in values.into_iter().rev().take(HOPS_MAX) {
            let Some(address) = address_in(value) else { break };
            client = SocketAddr::new(address.to_canonical(), 0);
            if !self.is_proxy(address) {
                break;
            }
        }
        client
    }
}

/// The address in an element of X-Forwarded-For. Some balancers write its port, too, and some the brackets and quotes of Forwarded
/// (RFC 7239, 6).
pub(crate) fn address_in(element: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(element).ok()?;
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || Some(text.parse::<SocketAddr>().ok()?.ip());
    text.parse().ok().or_else(with_port).or_else(bracketed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_last_address_that_no_proxy_has() {
        let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()]);
        let client = |from: &str, chain: &str| {
            let mut request = Request::default();
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{chain}\r\n");
            request.parse(head.as_bytes()).unwrap().unwrap();
            trust.client(&request, format!("{from}:5000").parse().unwrap()).ip().to_string()
        };
        assert_eq!(client("192.0.2.1", "X-Forwarded-For: 192.0.2.7\r\n"), "192.0.2.1", "not a proxy");
        assert_eq!(client("10.0.0.1", ""), "10.0.0.1");
        assert_eq!(client("10.0.0.1", "X-Forwarded-For: 192.0.2.8, 192.0.2.7\r\n"), "192.0.2.7");
        assert_eq!(client("[::ffff:10.0.0.1]", "X-Forwarded-For: 192.0.2.7, 10.1.1.1\r\n"), "192.0.2.7");
        // HAProxy adds a line of its own.
        let lines = "X-Forwarded-For: 192.0.2.8\r\nX-Forwarded-For: 192.0.2.7\r\n";
        assert_eq!(client("[2001:db8::1]", lines), "192.0.2.7");
        assert_eq!(client("10.0.0.1", "X-Forwarded-For: nonsense, 10.0.0.2\r\n"), "10.0.0.2");
        for written in ["203.0.113.7:51008", "\"203.0.113.7\"", "\"203.0.113.7:1\""] {
            assert_eq!(client("10.0.0.1", &format!("X-Forwarded-For: {written}\r\n")), "203.0.113.7");
        }
        for written in ["2001:db9::7", "[2001:db9::7]", "[2001:db9::7]:443", "\"[2001:db9::7]:443\""] {
            assert_eq!(client("10.0.0.1", &format!("X-Forwarded-For: {written}\r\n")), "2001:db9::7");
        }
        assert_eq!(
            client("10.0.0.1", "X-Forwarded-For: 10.0.0.3, 10.0.0.2\r\n"),
            "10.0.0.3",
            "all are proxies"
        );
    }
}
