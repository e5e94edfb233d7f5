//! The configuration of a walker, and its checks.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::time::Duration;

use http::HeaderValue;

use super::table::{Mix, Rows};
use crate::client::config::check_clients;
use crate::client::{Arrivals, ClientError, TIMEOUT_MAX};

/// Most sessions at a time.
pub const AT_ONCE_MAX: u32 = 16_384;
/// Largest factor of the think times.
pub const THINK_FACTOR_MAX: f64 = 1000.0;

/// How sessions follow each other.
#[derive(Clone, Debug)]
pub enum Sessions {
    /// So many persons. Each begins a new session when the last one has ended.
    Closed {
        /// Sessions at a time.
        count: u32,
    },
    /// Sessions begin when they are due, regardless of earlier ones.
    Open {
        /// When they begin. Rates are in sessions/s.
        arrivals: Arrivals,
        /// Most sessions at a time. Further ones are dropped and counted.
        at_once_max: u32,
    },
}

/// The configuration of a [`Walker`](super::Walker).
#[derive(Clone, Debug)]
pub struct WalkConfig {
    /// Where requests are sent. Each session keeps to one of them, in turn.
    pub addresses: Vec<SocketAddr>,
    /// Addresses that sessions come from, in turn, so that the site sees different clients. Linux has all of 127.0.0.0/8. If there
    /// are none, the system chooses one.
    pub clients: Vec<IpAddr>,
    /// Host header.
    pub host: HeaderValue,
    /// The transition table.
    pub mix: Mix,
    /// What is made of its rows.
    pub rows: Rows,
    /// How sessions follow each other.
    pub sessions: Sessions,
    /// What think times are multiplied by: 1 for 7 s in the mean (RUBiS), 0 for none.
    pub think_factor: f64,
    /// A person leaves at this error or rejection of a session. `None` for never: after each the person begins again at Home, as
    /// in RUBiS.
    pub leave_at: Option<NonZero<u32>>,
    /// Ends the run after this time; requests in flight are still awaited.
    pub duration_max: Option<Duration>,
    /// Time limit of a request, including connecting.
    pub timeout: Duration,
    /// The same seed gives the same sessions, as long as the site gives the same pages.
    pub seed: u64,
}

impl WalkConfig {
    /// Sessions of the bidding mix with RUBiS's think times and a timeout of 10 s, until it is stopped.
    pub fn new(addresses: Vec<SocketAddr>, host: HeaderValue, sessions: Sessions) -> Self {
        WalkConfig {
            addresses,
            clients: Vec::new(),
            host,
            mix: Mix::default(),
            rows: Rows::default(),
            sessions,
            think_factor: 1.0,
            leave_at: None,
            duration_max: None,
            timeout: Duration::from_secs(10),
            seed: 1,
        }
    }

    pub(super) fn check(&self) -> Result<(), ClientError> {
        if self.addresses.is_empty() {
            return Err(ClientError::NoEdges);
        }
        check_clients(&self.clients, &self.addresses)?;
        if self.timeout.is_zero() || self.timeout > TIMEOUT_MAX {
            return Err(ClientError::Timeout { timeout: self.timeout });
        }
        if !(0.0..=THINK_FACTOR_MAX).contains(&self.think_factor) {
            return Err(ClientError::ThinkFactor { factor: self.think_factor });
        }
        let count = match &self.sessions {
            Sessions::Closed { count } => *count,
            Sessions::Open { arrivals, at_once_max } => {
                arrivals.check(1)?;
                *at_once_max
            }
        };
        match count {
            1..=AT_ONCE_MAX => Ok(()),
            _ => Err(ClientError::Count {
                what: "sessions at a time",
                value: count as usize,
                max: AT_ONCE_MAX as usize,
            }),
        }
    }
}
