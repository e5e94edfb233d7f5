//! Addresses as the file writes them: `"host:port"`, and for servers `"unix:/path"`.
//!
//! A host may be a name, which is looked up when the file is read ([`crate::hosts`]).

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sidelong_os::ServerAddress;

use crate::file::Serves;
use crate::hosts;

const FORM: &str = r#""host:port", such as "10.0.0.7:8080", "web1.example:8080" or "[fd00::7]:8080""#;

/// `#[serde(deserialize_with)]` for an address.
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).map_err(D::Error::custom)
}

/// `#[serde(deserialize_with)]` for an address that may be left out.
pub(crate) fn read_option<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    read(from).map(Some)
}

/// `#[serde(deserialize_with)]` for a server: `builtin` is none, and a host without port gets port 0.
pub(crate) fn read_server<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ServerAddress>, D::Error> {
    let text = String::deserialize(from)?;
    if text == "builtin" {
        return Ok(None);
    }
    if let Some(path) = text.strip_prefix(ServerAddress::UNIX) {
        return Ok(Some(ServerAddress::Unix(path.into())));
    }
    let address = match text.parse::<IpAddr>() {
        Ok(host) => Ok(SocketAddr::new(host, 0)),
        Err(_) if is_name(&text) => look_up(&text, 0),
        Err(_) => parse(&text),
    };
    let expected = r#"or "unix:/run/app.sock", or "builtin""#;
    address
        .map(|address| Some(address.into()))
        .map_err(|error| D::Error::custom(format!("{error}, {expected}")))
}

/// `#[serde(serialize_with)]` for a server.
pub(crate) fn write_server<S: Serializer>(server: &Option<ServerAddress>, to: S) -> Result<S::Ok, S::Error> {
    match server {
        Some(server) => to.collect_str(server),
        None => to.serialize_str("builtin"),
    }
}

impl Serialize for Serves {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Serves::Port(port) => to.serialize_u16(*port),
            Serves::Unix(path) => to.collect_str(&ServerAddress::Unix(path.clone())),
        }
    }
}

impl<'de> Deserialize<'de> for Serves {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct PortOrPath;

        impl Visitor<'_> for PortOrPath {
            type Value = Serves;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port from 1 to 65535, or a Unix socket such as \"unix:/run/app.sock\"")
            }

            fn visit_i64<E: serde::de::Error>(self, port: i64) -> Result<Serves, E> {
                let usable = u16::try_from(port).ok().filter(|port| *port != 0);
                usable.map(Serves::Port).ok_or_else(|| E::invalid_value(Unexpected::Signed(port), &self))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Serves, E> {
                let path = text.strip_prefix(ServerAddress::UNIX);
                path.map(|path| Serves::Unix(path.into()))
                    .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        from.deserialize_any(PortOrPath)
    }
}

fn parse(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) if is_name(host) => look_up(host, port),
        _ => {
            Err(format!("{:?} is not an address; expected {FORM}", text.chars().take(64).collect::<String>()))
        }
    }
}

fn is_name(host: &str) -> bool {
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !host.is_empty() && host.chars().all(usable)
}

fn look_up(host: &str, port: u16) -> Result<SocketAddr, String> {
    let found = hosts::look_up(host).map(|address| SocketAddr::new(address, port));
    found.map_err(|why| format!("host {host:?} {why}; expected {FORM}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_or_names() {
        for text in ["127.0.0.1:80", "[::1]:8080", "0.0.0.0:0"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        let local = parse("localhost:7101").unwrap();
        assert!(local.ip().is_loopback() && local.port() == 7101, "{local}");
    }

    #[test]
    fn what_is_no_address_is_told_the_form() {
        for text in
            ["localhost", ":80", "web1:", "web1:http", "web1:65536", "::1:80", "[::1]", "http://web1:80", ""]
        {
            let error = parse(text).unwrap_err();
            let expected = "is not an address; expected \"host:port\", such as \"10.0.0.7:8080\"";
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
