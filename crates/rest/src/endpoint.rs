//! Where a system is asked.

use std::fmt;
use std::str::FromStr;

use rustls_pki_types::ServerName;

/// A server, as `http://127.0.0.1:2379` or `https://e1.example:2379`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    host: String,
    port: u16,
    /// The name in its certificate, if it has one.
    tls: Option<ServerName<'static>>,
}

/// Why an address is no endpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text} is no address: write http://HOST:PORT or https://HOST:PORT, such as https://e1.example:2379")]
pub struct EndpointError {
    text: String,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> std::result::Result<Self, EndpointError> {
        let wrong = || EndpointError { text: text.to_owned() };
        let uri: http::Uri = text.parse().map_err(|_| wrong())?;
        let has_path = uri.path_and_query().is_some_and(|path| path.as_str() != "/");
        let (Some(scheme), Some(authority), false) = (uri.scheme_str(), uri.authority(), has_path) else {
            return Err(wrong());
        };
        let (host, port) = (authority.host(), authority.port_u16().ok_or_else(wrong)?);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match scheme {
            "http" => None,
            "https" => Some(ServerName::try_from(host.clone()).map_err(|_| wrong())?),
            _ => return Err(wrong()),
        };
        match authority.as_str().contains('@') {
            true => Err(wrong()),
            false => Ok(Endpoint { host, port, tls }),
        }
    }
}

impl Endpoint {
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The name in its certificate, if it has one.
    pub(crate) fn name(&self) -> Option<&ServerName<'static>> {
        self.tls.as_ref()
    }

    /// As `Host` has it.
    pub(crate) fn authority(&self) -> String {
        let Endpoint { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_scheme_host_and_port() {
        for text in ["http://127.0.0.1:2379", "https://e1.example:2379", "https://[fd00::1]:2379"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("http://e1:2379/".parse::<Endpoint>().unwrap().to_string(), "http://e1:2379");
        for text in [
            "e1:2379",
            "http://e1",
            "ftp://e1:1",
            "http://e1:2379/v3",
            "http://u:p@e1:1",
            "",
            "https://-:1/?",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
