//! Checks of a site.

use std::net::Ipv6Addr;

use sidelong_layout::NODES_MAX;
use sidelong_policy::admission::Requests;

use super::expect::{Check, HOUR, MILLI, MINUTE, Problem, excerpt, expect, is_text, millis, name, within};
use crate::file::SiteEntry;
use crate::lines::At;

/// RFC 1035, 2.3.4: a name has 255 octets on the wire, 253 characters as text.
const HOST_BYTES_MAX: usize = 253;
/// Most hosts of one site.
const HOSTS_MAX: usize = 256;
/// Most words of a command, and most bytes of a word.
const WORDS_MAX: usize = 64;
const WORD_BYTES_MAX: usize = 4096;
/// Most rates of one site.
const RATES_MAX: usize = 4096;
/// Most names of requests that a site rejects last: each request of an overloaded site is compared with them.
const REQUESTS_MAX: usize = 64;

/// What a host of a site is.
pub const HOST_EXPECTED: &str =
    "a host in lower case without its port or last dot, such as \"a.example\" or \"[2001:db8::1]\"";

/// Whether it is a host as [`HOST_EXPECTED`] says: a name, or an address of IPv6 in brackets as its standard form has it.
pub fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return address.parse().is_ok_and(|parsed: Ipv6Addr| parsed.to_string() == address);
    }
    let usable = |c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_');
    is_text(host, HOST_BYTES_MAX, usable) && !host.ends_with('.')
}

/// Checks a site by itself.
pub(super) fn site(at: At, entry: &SiteEntry, has_edges: bool) -> Check {
    name(at.key("name"), "site", &entry.name)?;
    let who = format!("site {:?}", entry.name);
    expect(!entry.hosts.is_empty() && entry.hosts.len() <= HOSTS_MAX, at.key("hosts"), || {
        (format!("{who} has {} hosts", entry.hosts.len()), format!("from 1 to {HOSTS_MAX}"))
    })?;
    for (j, host) in entry.hosts.iter().enumerate() {
        expect(is_host(host), at.key("hosts").item(j), || {
            (format!("{who}: host {:?}", excerpt(host)), HOST_EXPECTED.into())
        })?;
    }
    expect(entry.floor >= 1, at.key("floor"), || {
        (format!("{who}: floor is 0"), "at least 1: a site without a node cannot answer".into())
    })?;
    expect(entry.floor <= entry.nodes, at.key("floor"), || {
        let found = format!("{who}: floor is {} but the site starts with {} nodes", entry.floor, entry.nodes);
        (found, "floor <= nodes".into())
    })?;
    within(at, "nodes", entry.nodes, 1, NODES_MAX)?;
    within(at, "share", entry.share, 0.0, 1.0)?;
    expect(entry.response_p99.is_none() || entry.queue_max.is_none(), at.key("queue_ms_max"), || {
        (format!("{who}: response_ms_p99 and queue_ms_max are given"), "one of them".into())
    })?;
    millis(at, "response_ms_p99", entry.response_p99.unwrap_or(MINUTE), MILLI, MINUTE)?;
    millis(at, "queue_ms_max", entry.queue_max.unwrap_or(MINUTE), MILLI, MINUTE)?;
    rejected_last(at, &who, entry, has_edges)?;
    command(at.key("on_enter"), &format!("{who}: on_enter"), entry.on_enter.as_deref())?;
    command(at.key("on_leave"), &format!("{who}: on_leave"), entry.on_leave.as_deref())?;
    within(at, "alpha", entry.alpha.unwrap_or(0.0), 0.0, 64.0)?;
    let rates = &entry.rates;
    expect(rates.len() <= RATES_MAX, at.key("rates"), || {
        (format!("{who}: {} rates", rates.len()), format!("at most {RATES_MAX}"))
    })?;
    expect(rates.is_sorted_by(|one, next| one.at < next.at), at.key("rates"), || {
        (format!("{who}: rates that are not in order of at_s"), "each later than the one before".into())
    })?;
    let unusable = rates.iter().find(|rate| !(0.0..=1e7).contains(&rate.per_s));
    expect(unusable.is_none(), at.key("rates"), || {
        let found = format!("{who}: per_s = {}", unusable.map_or(0.0, |rate| rate.per_s));
        (found, "from 0 to 10000000 requests/s".into())
    })?;
    expect(entry.ceiling.is_none_or(|ceiling| entry.nodes <= ceiling), at.key("ceiling"), || {
        let ceiling = entry.ceiling.unwrap_or_default();
        let found = format!("{who}: ceiling is {ceiling} but the site starts with {} nodes", entry.nodes);
        (found, "nodes <= ceiling".into())
    })
}

fn rejected_last(at: At, who: &str, entry: &SiteEntry, has_edges: bool) -> Check {
    let SiteEntry { rejected_last: requests, visit, .. } = entry;
    expect(requests.len() <= REQUESTS_MAX, at.key("rejected_last"), || {
        (format!("{who}: rejected_last has {} requests", requests.len()), format!("at most {REQUESTS_MAX}"))
    })?;
    for (j, text) in requests.iter().enumerate() {
        let named = text.parse::<Requests>();
        expect(named.is_ok(), at.key("rejected_last").item(j), || {
            let expected =
                "a path such as \"/items/*/bid\", after a method if only that is meant, such as \"POST /\"";
            (format!("{who}: {:?}", excerpt(text)), expected.into())
        })?;
    }
    millis(at, "visit_s", visit.unwrap_or(HOUR), 100 * MILLI, HOUR)?;
    let given = [("rejected_last", !requests.is_empty()), ("visit_s", visit.is_some())];
    let Some((key, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    expect(entry.response_p99.is_some() || entry.queue_max.is_some(), at.key(key), || {
        let expected = "response_ms_p99 or queue_ms_max: without one nothing is rejected";
        (format!("{who} has {key} and no target"), expected.into())
    })?;
    expect(has_edges, at.key(key), || {
        let found = format!("{who} has {key}, and the file has no [[edge]]");
        (found, "an edge: proxies of other makes reject all requests alike".into())
    })
}

/// Checks a command: a program that is looked up in `PATH` or has an absolute path, and its arguments.
fn command(at: At, who: &str, words: Option<&[String]>) -> Check {
    let Some(words) = words else { return Ok(()) };
    expect(words.len() <= WORDS_MAX, at, || {
        (format!("{who} has {} words", words.len()), format!("at most {WORDS_MAX}"))
    })?;
    let Some(program) = words.first() else {
        let expected = "a program and its arguments, or no such key".into();
        return Err(Problem { at, found: format!("{who} is empty"), expected });
    };
    // Relative to which directory would depend on where the node's process was started.
    let is_program = !program.is_empty() && (program.starts_with('/') || !program.contains('/'));
    expect(is_program, at.item(0), || {
        let found = format!("{who}: program {:?}", excerpt(program));
        (found, "a name to look up in PATH, or an absolute path".into())
    })?;
    for (i, word) in words.iter().enumerate() {
        expect(word.len() <= WORD_BYTES_MAX, at.item(i), || {
            (format!("{who}: a word of {} bytes", word.len()), format!("at most {WORD_BYTES_MAX}"))
        })?;
        expect(!word.contains('\0'), at.item(i), || {
            (format!("{who}: {:?}", excerpt(word)), "words without NUL, which ends them".into())
        })?;
    }
    Ok(())
}
