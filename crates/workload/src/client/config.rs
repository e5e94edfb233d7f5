//! What a load generator is told, and what of it is refused.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::Range;
use std::time::Duration;

use super::arrivals::Arrivals;

/// Sites that a generator tells apart, at most.
pub const SITES_MAX: usize = 1024;
/// Connections of one generator, at most: in a closed loop those of all edges, in an open loop requests in flight.
pub const CONNECTIONS_MAX: u32 = 65_536;
/// Threads of one generator, at most.
pub const THREADS_MAX: usize = 256;
/// Clients that are told apart, at most.
pub const CLIENTS_MAX: usize = 4096;
/// Intervals times sites of a series, at most.
pub const SLOTS_MAX: usize = 32_768;
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

/// What a client does that is told that there is too much to do: it is answered with 503, or its connection closed before
/// the first answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenRefused {
    /// In a closed loop it pauses, for longer each time; in an open one it goes away.
    #[default]
    Pause,
    /// It asks for the same at once, again and again, for as long as a request is given time: it ignores what it is
    /// told. Each try is a request of its own.
    Repeat,
}

/// A series to be kept: what became of the requests that were due in each of equal intervals, for each site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeriesConfig {
    /// Length of an interval.
    pub interval: Duration,
    /// From the start; requests that are due later are not in it. [`SLOTS_MAX`] bounds intervals times sites.
    pub length: Duration,
}

impl SeriesConfig {
    /// How many intervals it has.
    pub(super) fn intervals(&self) -> usize {
        let count = self.length.as_nanos().div_ceil(self.interval.as_nanos().max(1));
        usize::try_from(count).unwrap_or(usize::MAX)
    }
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
    /// Addresses of the clients, to each of which the connections that it makes are bound: an edge takes them for
    /// different clients. All of 127.0.0.0/8 are there on Linux. In a closed loop each connection is one of them in turn.
    /// Without any, all requests come from one client, at the address that the system chooses.
    pub clients: Vec<IpAddr>,
    /// What clients do that are turned away.
    pub when_refused: WhenRefused,
    /// Whether clients may be turned away by closing their connections. Where they may not, a connection that ends before
    /// its first answer is broken.
    pub may_be_closed: bool,
    /// Whether a connection carries more than one request.
    pub keep_alive: bool,
    /// What is kept over time.
    pub series: Option<SeriesConfig>,
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
            clients: Vec::new(),
            when_refused: WhenRefused::default(),
            may_be_closed: true,
            keep_alive: true,
            series: None,
        }
    }

    /// How many clients are told apart.
    pub(super) fn clients_count(&self) -> usize {
        self.clients.len().max(1)
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
            arrivals.check(self.clients_count())?;
        }
        if let Some(series) = &self.series {
            let slots = if series.interval.is_zero() { 0 } else { series.intervals() };
            within("intervals and sites of the series", slots.saturating_mul(self.sites.len()), SLOTS_MAX)?;
        }
        within("clients", self.clients_count(), CLIENTS_MAX)?;
        self.clients.iter().try_for_each(|client| {
            let bound = match self.edges.iter().find(|edge| edge.is_ipv4() != client.is_ipv4()) {
                Some(_) => Err(std::io::ErrorKind::AddrNotAvailable.into()),
                None => TcpListener::bind((*client, 0)),
            };
            bound.map(drop).map_err(|source| ClientError::Client { client: *client, source })
        })
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
    /// A rate that is not one, or is above [`RATE_PER_S_MAX`](super::RATE_PER_S_MAX).
    #[error("{per_s} requests/s is not a rate that can be generated")]
    Rate {
        /// As configured, in requests/s.
        per_s: f64,
    },
    /// [`Arrivals::Given`] or the steps of a stream are not in order.
    #[error("the given arrival times are not in order")]
    Unsorted,
    /// A stream is to come from clients that there are not.
    #[error("clients {range:?} of a stream: there are {clients}")]
    Clients {
        /// As configured.
        range: Range<usize>,
        /// How many there are.
        clients: usize,
    },
    /// No connection to the edges can be made from an address.
    #[error("requests cannot be sent from {client}")]
    Client {
        /// As configured.
        client: IpAddr,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// A thread, its runtime or its timer could not be had.
    #[error("cannot set up a load-generating thread")]
    Thread(#[source] std::io::Error),
}
