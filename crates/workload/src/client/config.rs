//! The configuration of a load generator, and its checks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::time::Duration;

use super::arrivals::Arrivals;
use super::secure::Secure;

/// Most sites of a generator.
pub const SITES_MAX: usize = 1024;
/// Most connections of one generator: in a closed loop those of all edges, in an open loop requests in flight.
pub const CONNECTIONS_MAX: u32 = 65_536;
/// Most threads of one generator.
pub const THREADS_MAX: usize = 256;
/// Most clients.
pub const CLIENTS_MAX: usize = 4096;
/// Most intervals times sites of a series.
pub const SLOTS_MAX: usize = 32_768;
/// Longest timeout of a request. A run that is stopped ends within the timeout, so this bounds that too.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// How requests follow each other.
#[derive(Clone, Debug)]
pub enum Load {
    /// Each connection sends, waits for the answer, thinks, and sends again.
    Closed {
        /// Connections to each edge.
        connections_per_edge: u32,
        /// Pause between an answer and the next request.
        think: Duration,
    },
    /// Requests are sent when they are due, regardless of earlier ones, to the edges in turn.
    Open {
        /// When they are due.
        arrivals: Arrivals,
        /// Most requests in flight. Further ones are dropped and counted; percentiles of a run with drops are too low.
        in_flight_max: u32,
    },
}

/// What a client does when it is told of overload: by an answer of 503, or a connection closed before the first answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenRejected {
    /// In a closed loop it pauses, longer each time; in an open loop it leaves.
    #[default]
    Pause,
    /// It ignores the answer and repeats the same request at once, until the request's time is up. Each attempt counts
    /// as a request.
    Repeat,
}

/// A series: for each site, the outcomes of the requests that were due in each of equal intervals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeriesConfig {
    /// Length of an interval.
    pub interval: Duration,
    /// Total length; requests due later are not included. [`SLOTS_MAX`] bounds intervals times sites.
    pub length: Duration,
}

impl SeriesConfig {
    /// How many intervals it has.
    pub(super) fn intervals(&self) -> usize {
        let count = self.length.as_nanos().div_ceil(self.interval.as_nanos().max(1));
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}

/// The configuration of a [`Generator`](super::Generator), except for its source.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where requests are sent.
    pub edges: Vec<SocketAddr>,
    /// Whether each site has an edge of its own, that of the same index, to which each request makes a connection.
    pub is_edge_of_site: bool,
    /// Names of the sites; [`Shot::site`](super::Shot::site) is an index into them.
    pub sites: Vec<String>,
    /// How requests follow each other.
    pub load: Load,
    /// Ends the run after this number of requests.
    pub requests_max: Option<u64>,
    /// Ends the run after this time; requests in flight are still awaited.
    pub duration_max: Option<Duration>,
    /// Time limit of a request, including connecting.
    pub timeout: Duration,
    /// Threads that generate load.
    pub threads: usize,
    /// Addresses of the clients. A client binds its connections to its address, so that an edge sees different clients.
    /// Linux has all of 127.0.0.0/8. In a closed loop connections take the addresses in turn. If there are none, all
    /// requests come from one client, at the address that the system chooses.
    pub clients: Vec<IpAddr>,
    /// What clients do when they are rejected.
    pub when_rejected: WhenRejected,
    /// Whether a connection that ends before its first answer counts as a rejection. Otherwise it counts as broken.
    pub may_be_closed: bool,
    /// Whether a connection carries more than one request.
    pub keep_alive: bool,
    /// TLS. Default plain HTTP/1.1.
    pub secure: Option<Secure>,
    /// The series to record, if any.
    pub series: Option<SeriesConfig>,
}

impl ClientConfig {
    /// Load on `edges` for `sites`, from one thread, with a timeout of 10 s, until it is stopped.
    pub fn new(edges: Vec<SocketAddr>, sites: Vec<String>, load: Load) -> Self {
        ClientConfig {
            edges,
            is_edge_of_site: false,
            sites,
            load,
            requests_max: None,
            duration_max: None,
            timeout: Duration::from_secs(10),
            threads: 1,
            clients: Vec::new(),
            when_rejected: WhenRejected::default(),
            may_be_closed: true,
            keep_alive: true,
            secure: None,
            series: None,
        }
    }

    /// The number of clients.
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
        if self.is_edge_of_site && (self.keep_alive || self.edges.len() != self.sites.len()) {
            return Err(ClientError::EdgeOfSite);
        }
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
        check_clients(&self.clients, &self.edges)
    }
}

/// Checks that there are not too many clients, and that each can connect to `edges` from its address.
pub(crate) fn check_clients(clients: &[IpAddr], edges: &[SocketAddr]) -> Result<(), ClientError> {
    if clients.len() > CLIENTS_MAX {
        return Err(ClientError::Count { what: "clients", value: clients.len(), max: CLIENTS_MAX });
    }
    clients.iter().try_for_each(|client| {
        let bound = match edges.iter().find(|edge| edge.is_ipv4() != client.is_ipv4()) {
            Some(_) => Err(std::io::ErrorKind::AddrNotAvailable.into()),
            None => TcpListener::bind((*client, 0)),
        };
        bound.map(drop).map_err(|source| ClientError::Client { client: *client, source })
    })
}

/// The address of a client on this machine, by number, in a part of 127.0.0.0/8 that nothing else uses.
pub fn loopback_client(number: u32) -> IpAddr {
    let [.., third, fourth] = number.to_be_bytes();
    Ipv4Addr::new(127, 64, third, fourth).into()
}

/// Why a load generator did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// [`ClientConfig::edges`] is empty.
    #[error("there is no edge to send requests to")]
    NoEdges,
    /// [`ClientConfig::is_edge_of_site`] with kept connections, or without an edge for each site.
    #[error("a site has no edge of its own, or connections are kept")]
    EdgeOfSite,
    /// [`ClientConfig::timeout`] is 0, or more than [`TIMEOUT_MAX`].
    #[error("the timeout of a request is {timeout:?}: it must be above 0 and at most {TIMEOUT_MAX:?}")]
    Timeout {
        /// As configured.
        timeout: Duration,
    },
    /// There are none or too many of something.
    #[error("{value} {what}: between 1 and {max} are allowed")]
    Count {
        /// What is counted.
        what: &'static str,
        /// As configured.
        value: usize,
        /// The largest number.
        max: usize,
    },
    /// A rate that is not a number, or is above [`RATE_PER_S_MAX`](super::RATE_PER_S_MAX).
    #[error("the rate is {per_s} requests/s: it must be a number from 0 to {max}", max = super::RATE_PER_S_MAX)]
    Rate {
        /// As configured, in requests/s.
        per_s: f64,
    },
    /// [`Arrivals::Given`] or the steps of a stream are not in order.
    #[error("arrival times are not in ascending order")]
    Unsorted,
    /// A stream names clients that do not exist.
    #[error("a stream names clients {range:?}, but there are only {clients}")]
    Clients {
        /// As configured.
        range: Range<usize>,
        /// How many there are.
        clients: usize,
    },
    /// [`Secure`] cannot be made.
    #[error("TLS to the edges: {why}")]
    Secure {
        /// What is wrong with the certificate or the name.
        why: String,
    },
    /// Connections to the edges cannot be made from a client's address.
    #[error("requests cannot be sent from {client}")]
    Client {
        /// As configured.
        client: IpAddr,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// [`WalkConfig::think_factor`](crate::walk::WalkConfig::think_factor) is not a number from 0 to
    /// [`THINK_FACTOR_MAX`](crate::walk::THINK_FACTOR_MAX).
    #[error("the think times' factor is {factor}: it must be from 0 to {max}", max = crate::walk::THINK_FACTOR_MAX)]
    ThinkFactor {
        /// As configured.
        factor: f64,
    },
    /// A thread, its runtime or its timer could not be created.
    #[error("cannot set up a load-generating thread")]
    Thread(#[source] std::io::Error),
}
