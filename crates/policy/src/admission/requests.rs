//! Requests by method and path: which of a site's are worth more than the others.

use std::str::FromStr;

/// Longest text of [`Requests`], in bytes.
const BYTES_MAX: usize = 1024;

/// What of a request decides which it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its path, and its query if it has one.
    pub target: &'a str,
}

/// Some of a site's requests: those for a path and what is below it, with `*` for any one part of the path, and of one method if
/// one is named. `POST /` is each POST; `/items/*/bid` is `/items/17/bid` and `/items/17/bid/sign-in`.
///
/// Paths are compared as they were sent: `%62id` is not `bid`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requests {
    method: Option<String>,
    /// `None` for any.
    parts: Vec<Option<String>>,
}

/// A text does not name requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a path, such as /items/*/bid, after a method if only that is meant, such as POST /")]
pub struct NotRequests;

impl FromStr for Requests {
    type Err = NotRequests;

    fn from_str(text: &str) -> Result<Self, NotRequests> {
        let (method, path) = match text.split_once(' ') {
            Some((method, path)) => (Some(method), path),
            None => (None, text),
        };
        let is_method = |method: &str| !method.is_empty() && method.bytes().all(|c| c.is_ascii_uppercase());
        let is_path = path.bytes().all(|c| c.is_ascii_graphic() && !matches!(c, b'?' | b'#'));
        let below =
            path.strip_prefix('/').filter(|_| is_path && text.len() <= BYTES_MAX).ok_or(NotRequests)?;
        if !method.is_none_or(is_method) {
            return Err(NotRequests);
        }
        let parts = below.strip_suffix('/').unwrap_or(below).split('/').filter(|_| !below.is_empty());
        let parts: Vec<_> = parts.map(|part| (part != "*").then(|| part.to_owned())).collect();
        if parts.iter().flatten().any(String::is_empty) {
            return Err(NotRequests);
        }
        Ok(Requests { method: method.map(str::to_owned), parts })
    }
}

impl Requests {
    /// Whether `request` is one of them.
    pub fn contain(&self, request: Request<'_>) -> bool {
        let path = request.target.split_once('?').map_or(request.target, |(path, _)| path);
        let Some(below) = path.strip_prefix('/') else { return false };
        let mut found = below.split('/');
        self.method.as_deref().is_none_or(|method| method == request.method)
            && self.parts.iter().all(|part| {
                found.next().is_some_and(|found| match part {
                    Some(part) => part == found,
                    None => !found.is_empty(),
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contain(text: &str, method: &str, target: &str) -> bool {
        text.parse::<Requests>().unwrap().contain(Request { method, target })
    }

    #[test]
    fn a_path_is_what_is_below_it_too_and_a_star_is_one_part() {
        for target in ["/items/17/bid", "/items/17/bid/", "/items/17/bid/sign-in", "/items/x/bid?a=/b"] {
            assert!(contain("/items/*/bid", "GET", target), "{target}");
        }
        for target in ["/items/17/bids", "/items//bid", "/items/17", "/items/17/9/bid", "/", "*", ""] {
            assert!(!contain("/items/*/bid", "GET", target), "{target}");
        }
        assert!(contain("/me/", "GET", "/me") && contain("/me", "GET", "/me/"));
    }

    #[test]
    fn a_method_is_meant_alone_and_the_root_is_everything() {
        for target in ["/", "/items/17/bids", "//", "/?x"] {
            assert!(contain("POST /", "POST", target) && !contain("POST /", "GET", target), "{target}");
            assert!(contain("/", "PUT", target), "{target}");
        }
        assert!(!contain("/", "OPTIONS", "*"));
    }

    #[test]
    fn what_names_no_requests_is_refused() {
        let long = format!("/{}", "a".repeat(BYTES_MAX));
        for text in
            ["", "items", "POST", "POST  /", " /", "post /", "/a b", "/a?b", "/a#b", "/a//b", "/ä", &long]
        {
            assert_eq!(text.parse::<Requests>(), Err(NotRequests), "{text}");
        }
    }
}
