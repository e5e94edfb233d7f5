//! Clients, and how much each requests relative to the others.
//!
//! Clients are counted in [`BUCKETS`] by a hash of their address, so the table is fixed. Most clients are admitted or
//! rejected as a whole. An address with a large part of all requests stands for many clients, which are told apart by
//! connection. Otherwise one step of the verdict would admit all or none of them. A client with many times the others'
//! requests, such as one that retries at once, is trimmed to a multiple of the mean, request by request.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::Time;
use crate::balance::mix;

/// Buckets of a [`Census`].
pub const BUCKETS: usize = 1024;

/// Addresses with more than this part of all requests are told apart by connection.
const COARSE: f64 = 1.0 / 32.0;
/// A bucket with more than this multiple of the mean is trimmed to it.
const GREEDY: f64 = 4.0;
/// The mean is that of the trimmed counts, so that a flood does not raise its own limit. Each round brings the estimate
/// closer to it by a factor.
const ROUNDS: usize = 6;
/// Fewer requests than this between two counts are not significant.
const COUNTED_MIN: f64 = 64.0;

/// A client as decisions identify it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Client {
    /// A hash of its address.
    pub(super) address: u64,
    /// A hash of its address and port.
    pub(super) connection: u64,
}

impl Client {
    /// The client at the other end of a connection. All edges compute the same hashes. An edge that listens for both
    /// families treats an IPv4 address as one, too.
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

    /// What it may be known by: its address, and its connection, if its address stands for many clients.
    pub const fn hashes(self) -> [u64; 2] {
        [self.address, self.connection]
    }

    /// Its bucket.
    pub const fn bucket(self) -> usize {
        // The low bits, because the verdict uses the high ones.
        self.address as usize % BUCKETS
    }
}

/// How a bucket's clients are treated while not all are admitted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Treatment {
    /// Admitted or rejected with all their requests.
    #[default]
    Whole,
    /// Each connection is admitted or rejected.
    ByConnection,
    /// Of the admitted part, this many 65,536ths, request by request.
    Trimmed {
        /// The number of 65,536ths.
        kept: u16,
    },
}

impl Treatment {
    /// The hash of what is admitted or rejected as a whole: the client or its connection. `None` where each request is by itself.
    pub fn whole(self, client: Client) -> Option<u64> {
        let is_trimmed = matches!(self, Treatment::Trimmed { .. });
        (!is_trimmed).then(|| self.hash(client))
    }

    /// The hash by which its requests are told apart from those of others.
    pub(super) const fn hash(self, client: Client) -> u64 {
        match self {
            Treatment::Whole => client.address,
            Treatment::ByConnection | Treatment::Trimmed { .. } => client.connection,
        }
    }

    /// Encodes it for an `AtomicU32`.
    pub const fn encode(self) -> u32 {
        match self {
            Treatment::Whole => 0,
            Treatment::ByConnection => 1 << 16,
            Treatment::Trimmed { kept } => 2 << 16 | kept as u32,
        }
    }

    /// Decodes a word.
    pub const fn decode(word: u32) -> Self {
        match word >> 16 {
            1 => Treatment::ByConnection,
            2 => Treatment::Trimmed { kept: word as u16 },
            _ => Treatment::Whole,
        }
    }
}

/// The number of requests in each bucket.
#[derive(Clone, PartialEq, Debug)]
pub struct Census {
    /// Requests so far.
    seen: Vec<u32>,
    /// Recent requests: each count halves the previous ones.
    recent: Vec<f64>,
    counted: Time,
}

impl Default for Census {
    fn default() -> Self {
        Census { seen: vec![0; BUCKETS], recent: vec![0.0; BUCKETS], counted: Time::default() }
    }
}

impl Census {
    /// Interval of counts: long enough for a client to be noticed, short enough against a flood.
    pub const EVERY: Duration = Duration::from_millis(250);

    /// Counts, unless the last count is recent. `asked` gives a bucket's requests since the start (it may wrap), and
    /// `treat` is told the treatment of each bucket.
    pub fn count(
        &mut self,
        now: Time,
        asked: impl Fn(usize) -> u32,
        mut treat: impl FnMut(usize, Treatment),
    ) {
        if now.since(self.counted) < Census::EVERY {
            return;
        }
        self.counted = now;
        let (mut total, mut active) = (0.0, 0u32);
        for (bucket, (seen, recent)) in self.seen.iter_mut().zip(&mut self.recent).enumerate() {
            let asked = asked(bucket);
            *recent = *recent / 2.0 + f64::from(asked.wrapping_sub(*seen));
            *seen = asked;
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
