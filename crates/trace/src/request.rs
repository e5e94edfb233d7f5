//! One request, as every reader returns it.

use std::time::Duration;

use serde::Serialize;

/// One request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Request {
    /// Seconds since the Unix epoch, UTC; traces of caches count from their own start.
    pub time_s: u32,
    /// Nanoseconds within that second: 0 if the trace has whole seconds, until they are spread ([`crate::Spread`]).
    pub time_ns: u32,
    /// The client: the trace's own number, or a number from 0 in order of first appearance if it has names; 0 if
    /// unknown.
    pub client: u32,
    /// The object: the trace's own number, or a number for its name. Two names are one object only if they are equal
    /// byte for byte, including query text.
    pub object: u64,
    /// Bytes of the response body; `None` if the log does not tell, as for most responses without a body.
    pub size: Option<u64>,
    /// Status of the response; 0 if unknown.
    pub status: u16,
    /// Method of the request.
    pub method: Method,
}

// So a trace of 10 million requests takes 400 MB.
const _: () = assert!(size_of::<Request>() == 40);

impl Request {
    /// Its time, since the Unix epoch.
    pub fn time(&self) -> Duration {
        Duration::new(self.time_s.into(), self.time_ns)
    }
}

/// The methods that the WorldCup98 logs tell apart. The discriminants are that format's codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
#[repr(u8)]
pub enum Method {
    /// GET
    Get = 0,
    /// HEAD
    Head = 1,
    /// POST
    Post = 2,
    /// PUT
    Put = 3,
    /// DELETE
    Delete = 4,
    /// TRACE
    Trace = 5,
    /// OPTIONS
    Options = 6,
    /// CONNECT
    Connect = 7,
    /// Any other method, or text that is no HTTP at all.
    Other = 8,
}

impl Method {
    const ALL: [(Method, &str); 9] = [
        (Method::Get, "GET"),
        (Method::Head, "HEAD"),
        (Method::Post, "POST"),
        (Method::Put, "PUT"),
        (Method::Delete, "DELETE"),
        (Method::Trace, "TRACE"),
        (Method::Options, "OPTIONS"),
        (Method::Connect, "CONNECT"),
        (Method::Other, "OTHER"),
    ];

    /// From its WorldCup98 code, 0 to 8.
    pub(crate) fn from_code(code: u8) -> Option<Method> {
        Self::ALL.get(usize::from(code)).map(|&(method, _)| method)
    }

    /// From the token on a request line. Tokens are case-sensitive (RFC 9110, 9.1).
    pub(crate) fn from_token(token: &[u8]) -> Method {
        Self::ALL
            .iter()
            .find(|(_, name)| name.as_bytes() == token)
            .map_or(Method::Other, |&(method, _)| method)
    }

    /// Its name, in capitals.
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_its_code_and_its_name() {
        for (code, (method, name)) in (0..).zip(Method::ALL) {
            assert_eq!(method as u8, code);
            assert_eq!(Method::from_code(code), Some(method));
            assert_eq!(Method::from_token(name.as_bytes()), method);
            assert_eq!(method.as_str(), name);
        }
        assert_eq!(Method::from_code(9), None);
        assert_eq!(Method::from_token(b"get"), Method::Other);
        assert_eq!(Method::from_token(b""), Method::Other);
    }
}
