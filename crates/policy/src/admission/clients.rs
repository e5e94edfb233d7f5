//! Who asks, and how much beside the others.
//!
//! Clients are counted in [`BUCKETS`] by a hash of their address, a fixed table whatever their number. Most are kept or
//! turned away whole. An address that asks for a large part of everything is many clients behind one name, and told
//! apart by connection: else one step of the verdict would let in all or nothing. One that asks for many times what
//! the others do, as those who repeat at once whatever they are told, is trimmed to that, request by request.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::balance::mix;

/// Buckets of a [`Census`].
pub const BUCKETS: usize = 1024;

/// An address with more than this part of all requests is told apart by connection.
const COARSE: f64 = 1.0 / 32.0;
/// A bucket with more than this many times the mean is trimmed to it.
const GREEDY: f64 = 4.0;
/// The mean is of what is left when all are trimmed, so a flood does not raise its own bound: taken over so often, as it
/// comes close to that by a factor at each.
const ROUNDS: usize = 6;
/// Fewer requests than this between two countings say nothing about anyone.
const COUNTED_MIN: f64 = 64.0;

/// A client as decisions know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Client {
    /// A hash of its address.
    pub(super) address: u64,
    /// A hash of its address and port.
    pub(super) connection: u64,
}

impl Client {
    /// At the other end of a connection. The hashes are the same on all edges: to one that listens for both families, too, an
    /// IPv4 address is one.
    pub fn new(address: SocketAddr) -> Self {
        let ip = match address.ip().to_canonical() {
            IpAddr::V4(ip) => mix(u64::from(u32::from(ip))),
            IpAddr::V6(ip) => {
                let [high, low] = [u128::from(ip) >> 64, u128::from(ip)].map(|half| half as u64);
                mix(mix(high) ^ low)
            }
        };
        Client { address: ip, connection: mix(ip ^ u64::from(address.port())) }
    }

    /// Its bucket.
    pub const fn bucket(self) -> usize {
        // The lower bits, for the verdict goes by the upper ones.
        self.address as usize % BUCKETS
    }
}

/// What becomes of a bucket's clients while not all are let in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Treatment {
    /// In or out, with all that they ask.
    #[default]
    Whole,
    /// Each connection in or out.
    ByConnection,
    /// Of the part that is let in, so many 65,536ths, request by request.
    Trimmed {
        /// How many.
        kept: u16,
    },
}

impl Treatment {
    /// As a word, for an `AtomicU32`.
    pub const fn encode(self) -> u32 {
        match self {
            Treatment::Whole => 0,
            Treatment::ByConnection => 1 << 16,
            Treatment::Trimmed { kept } => 2 << 16 | kept as u32,
        }
    }

    /// From a word.
    pub const fn decode(word: u32) -> Self {
        match word >> 16 {
            1 => Treatment::ByConnection,
            2 => Treatment::Trimmed { kept: word as u16 },
            _ => Treatment::Whole,
        }
    }
}

/// How much each bucket asks for.
#[derive(Clone, PartialEq, Debug)]
pub struct Census {
    /// Requests so far.
    seen: Vec<u32>,
    /// Recent ones: each counting halves what was before.
    recent: Vec<f64>,
}

impl Default for Census {
    fn default() -> Self {
        Census { seen: vec![0; BUCKETS], recent: vec![0.0; BUCKETS] }
    }
}

impl Census {
    /// Between two countings: long enough for a client to show, short enough for one that floods.
    pub const EVERY: Duration = Duration::from_millis(250);

    /// Counts: `asked` says how many requests came from a bucket since the start (it may wrap), and `treat` is told what
    /// becomes of each.
    pub fn count(&mut self, asked: impl Fn(usize) -> u32, mut treat: impl FnMut(usize, Treatment)) {
        let (mut total, mut active) = (0.0, 0u32);
        for (bucket, (seen, recent)) in self.seen.iter_mut().zip(&mut self.recent).enumerate() {
            let now = asked(bucket);
            *recent = *recent / 2.0 + f64::from(now.wrapping_sub(*seen));
            *seen = now;
            total += *recent;
            active += u32::from(*recent >= 1.0);
        }
        let most = (0..ROUNDS).fold(f64::INFINITY, |most, _| {
            let left: f64 = self.recent.iter().map(|recent| recent.min(most)).sum();
            GREEDY * left / f64::from(active.max(1))
        });
        for (bucket, recent) in self.recent.iter().enumerate() {
            let treatment = if total < COUNTED_MIN || *recent <= COARSE * total && *recent <= most {
                Treatment::Whole
            } else if *recent <= most {
                Treatment::ByConnection
            } else {
                Treatment::Trimmed { kept: (most / recent * 65_536.0) as u16 }
            };
            treat(bucket, treatment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_the_same_to_who_listens_for_both_families() {
        let client = |text: &str| Client::new(text.parse().unwrap());
        assert_eq!(client("[::ffff:192.0.2.7]:5000"), client("192.0.2.7:5000"));
        assert_ne!(client("[::192.0.2.7]:5000"), client("192.0.2.7:5000"));
        assert_ne!(client("192.0.2.8:5000"), client("192.0.2.7:5000"));
    }
}
