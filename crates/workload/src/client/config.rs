//! What a load generator is told, and what of it is refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Sites that a generator tells apart, at most.
pub const SITES_MAX: usize = 1024;
/// Connections of one generator, at most: in a closed loop those of all edges, in an open loop requests in flight.
pub const CONNECTIONS_MAX: u32 = 65_536;
/// Threads of one generator, at most.
pub const THREADS_MAX: usize = 256;
/// Highest rate of an open loop, in requests/s.
pub const RATE_PER_S_MAX: f64 = 1e7;
/// Longest timeout of a request. A run that is stopped ends within the timeout, so this bounds that too.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// How requests follow each other.
#[derive(Clone, Debug)]
pub enum Load {
    /// Each connection sends, awaits the answer, thinks, and sends again.
    Closed {
        /// Connections to each edge.
        connections_per_edge: u32,
        /// Pause between an answer and the next request.
        think: Duration,
    },
    /// Requests are sent when they are due, whatever became of the ones before. They take turns over the edges.
    Open {
        /// When they are due.
        arrivals: Arrivals,
        /// Requests in flight at most. One that comes due beyond is dropped and counted as such; percentiles of a
        /// run with drops are too good.
        in_flight_max: u32,
    },
}

/// When the requests of an open loop are due.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// At equal distances.
    Constant {
        /// Rate in requests/s.
        per_s: f64,
    },
    /// Independent of each other: a Poisson process.
    Poisson {
        /// Mean rate in requests/s.
        per_s: f64,
        /// The same seed gives the same arrivals.
        seed: u64,
    },
    /// At these times since the start, in order; the run ends with the last.
    Given(Arc<[Duration]>),
}

/// Everything that a [`Generator`](super::Generator) needs to know, but its source.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where requests are sent.
    pub edges: Vec<SocketAddr>,
    /// Names of the sites; [`Shot::site`](super::Shot::site) is an index into them.
    pub sites: Vec<String>,
    /// How requests follow each other.
    pub load: Load,
    /// Ends the run after so many requests.
    pub requests_max: Option<u64>,
    /// Ends the run after this time; what is in flight is still awaited.
    pub duration_max: Option<Duration>,
    /// Time that a request is given, connecting included.
    pub timeout: Duration,
    /// Threads that generate load.
    pub threads: usize,
}

impl ClientConfig {
    /// Load on `edges` for `sites`, from one thread, with a timeout of 10 s, until it is stopped.
    pub fn new(edges: Vec<SocketAddr>, sites: Vec<String>, load: Load) -> Self {
        ClientConfig {
            edges,
            sites,
            load,
            requests_max: None,
            duration_max: None,
            timeout: Duration::from_secs(10),
            threads: 1,
        }
    }

    pub(super) fn check(&self) -> Result<(), ClientError> {
        if self.edges.is_empty() {
            return Err(ClientError::NoEdges);
        }
        let within = |what, value: usize, max: usize| match value {
            1.. if value <= max => Ok(()),
            _ => Err(ClientError::Count { what, value, max }),
        };
        if self.timeout.is_zero() || self.timeout > TIMEOUT_MAX {
            return Err(ClientError::Timeout { timeout: self.timeout });
        }
        within("sites", self.sites.len(), SITES_MAX)?;
        within("threads", self.threads, THREADS_MAX)?;
        let connections = match self.load {
            Load::Closed { connections_per_edge, .. } => {
                (connections_per_edge as usize).saturating_mul(self.edges.len())
            }
            Load::Open { in_flight_max, .. } => in_flight_max as usize,
        };
        within("connections", connections, CONNECTIONS_MAX as usize)?;
        if let Load::Open { arrivals, .. } = &self.load {
            arrivals.check()?;
        }
        Ok(())
    }
}

impl Arrivals {
    fn check(&self) -> Result<(), ClientError> {
        match *self {
            Arrivals::Constant { per_s } | Arrivals::Poisson { per_s, .. } => {
                // Written so that a NaN is refused.
                let fits = per_s > 0.0 && per_s <= RATE_PER_S_MAX;
                if fits { Ok(()) } else { Err(ClientError::Rate { per_s }) }
            }
            Arrivals::Given(ref times) => match times.is_sorted() {
                true => Ok(()),
                false => Err(ClientError::Unsorted),
            },
        }
    }
}

/// Why a load generator did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// [`ClientConfig::edges`] is empty.
    #[error("there is no edge to send requests to")]
    NoEdges,
    /// [`ClientConfig::timeout`] is 0, or more than [`TIMEOUT_MAX`].
    #[error("a request cannot be given {timeout:?}: it is to be more than 0, and {TIMEOUT_MAX:?} at most")]
    Timeout {
        /// As configured.
        timeout: Duration,
    },
    /// There are none or too many of something.
    #[error("{value} {what}: there must be between 1 and {max}")]
    Count {
        /// Of what.
        what: &'static str,
        /// As configured.
        value: usize,
        /// The most that can be.
        max: usize,
    },
    /// A rate that is not one, or is above [`RATE_PER_S_MAX`].
    #[error("{per_s} requests/s is not a rate that can be generated")]
    Rate {
        /// As configured, in requests/s.
        per_s: f64,
    },
    /// [`Arrivals::Given`] is not in order.
    #[error("the given arrival times are not in order")]
    Unsorted,
    /// A thread, its runtime or its timer could not be had.
    #[error("cannot set up a load-generating thread")]
    Thread(#[source] std::io::Error),
}
