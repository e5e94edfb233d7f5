//! What all checks are made of: what is wrong with a key, and the common ways to find out.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use sidelong_os::ServerAddress;

use crate::lines::At;

/// Longest name. Names become file names in the run directory.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// Why a file is refused, before the key's line is known.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) at: At,
    pub(crate) found: String,
    pub(crate) expected: String,
}

pub(super) type Check = Result<(), Problem>;

pub(super) const MILLI: Duration = Duration::from_millis(1);
pub(super) const MICROS_10: Duration = Duration::from_micros(10);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn name(at: At, what: &str, name: &str) -> Check {
    let usable = |c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-');
    expect(is_text(name, NAME_BYTES_MAX, usable), at, || {
        let expected = format!("1 to {NAME_BYTES_MAX} of a-z, 0-9 and -: it names files");
        (format!("{what} name {:?}", excerpt(name)), expected)
    })
}

pub(super) fn port(at: At, address: SocketAddr) -> Check {
    expect(address.port() != 0, at, || (format!("address {address} has port 0"), "a fixed port".into()))
}

pub(super) fn millis(at: At, key: &'static str, time: Duration, min: Duration, max: Duration) -> Check {
    let unit = |time: Duration| if key.ends_with("_s") { time.as_secs_f64() } else { ms(time) };
    expect((min..=max).contains(&time), at.key(key), || {
        (format!("{key} is {}", unit(time)), format!("from {} to {}", unit(min), unit(max)))
    })
}

pub(super) fn within<T: PartialOrd + Display>(at: At, key: &'static str, value: T, min: T, max: T) -> Check {
    expect(min <= value && value <= max, at.key(key), || {
        (format!("{key} is {value}"), format!("from {min} to {max}"))
    })
}

/// Refuses the file unless `holds`, with what was found and what was expected.
pub(super) fn expect(holds: bool, at: At, otherwise: impl FnOnce() -> (String, String)) -> Check {
    if holds {
        return Ok(());
    }
    let (found, expected) = otherwise();
    Err(Problem { at, found, expected })
}

pub(super) fn is_text(text: &str, bytes_max: usize, usable: impl Fn(u8) -> bool) -> bool {
    (1..=bytes_max).contains(&text.len()) && text.bytes().all(usable)
}

/// The start of an unusable text, so that an error stays a line.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(NAME_BYTES_MAX + 1).collect()
}

pub(super) fn ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// Texts that may occur only once, and the owner of each.
#[derive(Default)]
pub(super) struct Seen<'a>(HashMap<&'a str, String>);

impl<'a> Seen<'a> {
    pub(super) fn once(&mut self, at: At, what: &str, text: &'a str, whose: String) -> Check {
        let first = self.0.insert(text, whose);
        expect(first.is_none(), at, || {
            (
                format!("{what} {text:?} is already used by {}", first.unwrap_or_default()),
                "unique names".into(),
            )
        })
    }
}

/// Addresses that processes listen on. One that listens on all addresses of a port excludes the others.
#[derive(Default)]
pub(super) struct Addresses {
    ports: HashMap<u16, Vec<(IpAddr, String)>>,
    sockets: HashMap<PathBuf, String>,
}

impl Addresses {
    pub(super) fn once(&mut self, at: At, address: SocketAddr, who: impl Fn() -> String) -> Check {
        let port = self.ports.entry(address.port()).or_default();
        let clash = port
            .iter()
            .find(|(ip, _)| *ip == address.ip() || ip.is_unspecified() || address.ip().is_unspecified());
        expect(clash.is_none(), at, || {
            let first = clash.map_or("", |(_, first)| first);
            (format!("{} would listen on {address}, as {first} does", who()), "a different address".into())
        })?;
        port.push((address.ip(), who()));
        Ok(())
    }

    pub(super) fn server_once(&mut self, at: At, server: &ServerAddress, who: impl Fn() -> String) -> Check {
        match server {
            ServerAddress::Tcp(address) => self.once(at, *address, who),
            ServerAddress::Unix(path) => {
                let first = self.sockets.insert(path.clone(), who());
                expect(first.is_none(), at, || {
                    let first = first.unwrap_or_default();
                    (
                        format!("{} would listen on {server}, as {first} does", who()),
                        "a different address".into(),
                    )
                })
            }
        }
    }
}
