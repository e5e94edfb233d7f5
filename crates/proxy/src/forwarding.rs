//! What servers are told of a request's way: whose it is, how it came to this proxy, and through which.

use crate::client::Client;
use crate::fields::{Name, elements};
use crate::request::Request;
use crate::trust::address_in;

/// By which fields servers are told of a request's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// By X-Forwarded-For and X-Forwarded-Proto, which most servers know.
    pub x_forwarded: bool,
    /// By Forwarded (RFC 7239).
    pub forwarded: bool,
    /// This proxy's name in Via (RFC 9110, 7.6.3), if it adds to it: a token. A request that has passed it before is then
    /// answered with 508.
    pub via: Option<String>,
}

impl Default for Forwarding {
    fn default() -> Self {
        Forwarding { x_forwarded: true, forwarded: false, via: None }
    }
}

impl Forwarding {
    /// Whether a field is passed on as it is. What a request says of its way is believed if it comes from a trusted proxy.
    pub(crate) fn passes_on(&self, name: Name, request: &Request, from: &Client) -> bool {
        match name {
            Name::ForwardedFor => !self.x_forwarded && from.is_proxy,
            Name::Forwarded => !self.forwarded && from.is_proxy,
            // Of several one would have to be chosen.
            Name::ForwardedProto => from.is_proxy && request.fields.values(name).count() == 1,
            Name::ForwardedOther => from.is_proxy,
            _ => true,
        }
    }

    /// Gives `put` the fields that this proxy adds to a request of `from`, each with its values.
    pub(crate) fn add(&self, request: &Request, from: &Client, mut put: impl FnMut(&[u8], &[&[u8]])) {
        let proto = if from.is_tls { "https" } else { "http" };
        if self.x_forwarded {
            let before = request.forwarded_for().filter(|_| from.passes_on);
            put_behind(b"x-forwarded-for", before, &from.text, &mut put);
            if !self.passes_on(Name::ForwardedProto, request, from) {
                put(b"x-forwarded-proto", &[proto.as_bytes()]);
            }
        }
        if self.forwarded {
            let own = format!("for={};proto={proto}", node(&from.text));
            let mut before = request
                .fields
                .values(Name::Forwarded)
                .filter(|value| from.is_proxy && !value.is_empty())
                .peekable();
            if before.peek().is_none() && from.is_proxy && request.forwarded_for().next().is_some() {
                let translated = translated(request);
                put_behind(b"forwarded", [translated.as_bytes()].into_iter(), &own, &mut put);
            } else {
                put_behind(b"forwarded", before, &own, &mut put);
            }
        }
        if let Some(name) = &self.via {
            let version = request.version().text().trim_start_matches("HTTP/");
            put(b"via", &[format!("{version} {name}").as_bytes()]);
        }
    }

    /// Whether the request has passed this proxy before.
    pub(crate) fn has_seen(&self, request: &Request) -> bool {
        let Some(own) = &self.via else { return false };
        let mut hops = request.fields.values(Name::Via).flat_map(elements);
        hops.any(|hop| {
            let mut words = hop.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            words.nth(1).is_some_and(|name| name.eq_ignore_ascii_case(own.as_bytes()))
        })
    }
}

/// An address as Forwarded has it: one of IPv6 is in brackets and quotes (RFC 7239, 6).
fn node(address: &str) -> String {
    if address.contains(':') { format!("\"[{address}]\"") } else { address.to_owned() }
}

/// What a trusted proxy says by X-Forwarded-For, as Forwarded says it (RFC 7239, 7.4): the last address is that proxy's client, whose
/// scheme it may tell.
fn translated(request: &Request) -> String {
    let known = |element| address_in(element).map(|address| node(&address.to_canonical().to_string()));
    let nodes = request.forwarded_for().flat_map(elements).map(known);
    let nodes: Vec<_> = nodes.map(|node| format!("for={}", node.as_deref().unwrap_or("unknown"))).collect();
    let mut protos = request.fields.values(Name::ForwardedProto);
    let proto = match (protos.next(), protos.next()) {
        (Some(proto), None) if proto.eq_ignore_ascii_case(b"https") => ";proto=https",
        (Some(proto), None) if proto.eq_ignore_ascii_case(b"http") => ";proto=http",
        _ => "",
    };
    nodes.join(", ") + proto
}

/// Gives `put` the values `before` and `own` behind them.
fn put_behind<'a>(
    name: &[u8],
    before: impl Iterator<Item = &'a [u8]>,
    own: &'a str,
    put: &mut impl FnMut(&[u8], &[&[u8]]),
) {
    let mut before = before.peekable();
    match before.peek() {
        None => put(name, &[own.as_bytes()]),
        Some(_) => put(name, &before.chain([own.as_bytes()]).collect::<Vec<_>>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::Trust;

    const BOTH: Forwarding = Forwarding { x_forwarded: true, forwarded: true, via: None };
    const ONE: Forwarding = Forwarding { x_forwarded: false, forwarded: true, via: None };

    /// The fields behind Host that a server gets of a client at `address`, where 10.0.0.0/8 are proxies.
    fn told(forwarding: &Forwarding, address: &str, is_tls: bool, fields: &str) -> String {
        let mut request = Request::default();
        request.parse(format!("GET / HTTP/1.0\r\nHost: a\r\n{fields}\r\n").as_bytes()).unwrap().unwrap();
        let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()]);
        let address = format!("{address}:5000").parse().unwrap();
        let from = Client::new(address, &trust, is_tls, &forwarding.clone().into());
        let mut out = Vec::new();
        request.write(&from, &mut out);
        let text = String::from_utf8(out).unwrap();
        text.strip_prefix("GET / HTTP/1.1\r\nhost: a\r\n").unwrap().strip_suffix("\r\n").unwrap().to_owned()
    }

    #[test]
    fn servers_learn_address_and_scheme() {
        let default = Forwarding::default();
        let wanted = "x-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: https\r\n";
        assert_eq!(told(&default, "192.0.2.1", true, ""), wanted);
        let wanted = "forwarded: for=192.0.2.1;proto=http\r\n";
        assert_eq!(told(&ONE, "192.0.2.1", false, ""), wanted);
        let wanted = "x-forwarded-for: 2001:db8::1\r\nx-forwarded-proto: http\r\n\
                      forwarded: for=\"[2001:db8::1]\";proto=http\r\n";
        assert_eq!(told(&BOTH, "[2001:db8::1]", false, ""), wanted);
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        let fields = "X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\n\
                      X_Forwarded_For: 192.0.2.9\r\nForwarded: for=192.0.2.9;proto=https\r\n";
        let of_client = "x-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: http\r\n";
        assert_eq!(told(&Forwarding::default(), "192.0.2.1", false, fields), of_client);
        let of_proxy = told(&Forwarding::default(), "10.0.0.1", false, fields);
        let wanted = "X-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\nX_Forwarded_For: 192.0.2.9\r\n\
                      Forwarded: for=192.0.2.9;proto=https\r\nx-forwarded-for: 192.0.2.9, 10.0.0.1\r\n";
        assert_eq!(of_proxy, wanted);
        let fields = "X-Forwarded-For: 192.0.2.9\r\nForwarded: for=192.0.2.9\r\n";
        let wanted = "forwarded: for=192.0.2.1;proto=http\r\n";
        assert_eq!(told(&ONE, "192.0.2.1", false, fields), wanted);
        let wanted = "X-Forwarded-For: 192.0.2.9\r\nforwarded: for=192.0.2.9, for=10.0.0.1;proto=http\r\n";
        assert_eq!(told(&ONE, "10.0.0.1", false, fields), wanted);
        // One that says it by the other field alone is believed in both.
        let fields = "X-Forwarded-For: 203.0.113.7:5, nonsense, 2001:db8::7\r\nX-Forwarded-Proto: HTTPS\r\n";
        let wanted = "X-Forwarded-Proto: HTTPS\r\nx-forwarded-for: 203.0.113.7:5, nonsense, 2001:db8::7, 10.0.0.1\r\n\
                      forwarded: for=203.0.113.7, for=unknown, for=\"[2001:db8::7]\";proto=https, for=10.0.0.1;proto=http\r\n";
        assert_eq!(told(&BOTH, "10.0.0.1", false, fields), wanted);
        assert!(told(&BOTH, "192.0.2.1", false, fields).ends_with("forwarded: for=192.0.2.1;proto=http\r\n"));
        let twice = "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n";
        let wanted = "x-forwarded-for: 10.0.0.1\r\nx-forwarded-proto: http\r\n";
        assert_eq!(told(&Forwarding::default(), "10.0.0.1", false, twice), wanted);
    }

    #[test]
    fn a_loop_is_seen_by_the_name_in_via() {
        let own = Forwarding { via: Some("edge1".into()), ..Forwarding::default() };
        let wanted =
            "Via: 1.1 a\r\nx-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: http\r\nvia: 1.0 edge1\r\n";
        assert_eq!(told(&own, "192.0.2.1", false, "Via: 1.1 a\r\n"), wanted);
        for (via, has_seen) in [
            ("1.1 a, 1.1 Edge1 (x)", true),
            ("HTTP/1.1  edge1", true),
            ("1.1 edge10", false),
            ("edge1", false),
            ("", false),
        ] {
            let mut request = Request::default();
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\nVia: {via}\r\n\r\n");
            request.parse(head.as_bytes()).unwrap().unwrap();
            assert_eq!(own.has_seen(&request), has_seen, "{via}");
            assert!(!Forwarding::default().has_seen(&request));
        }
    }
}
