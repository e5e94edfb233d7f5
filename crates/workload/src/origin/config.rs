//! The configuration of an origin, and its checks.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::header::InvalidHeaderValue;

use super::documents::Documents;

/// The response header that names the node which answered.
pub const NODE_HEADER: &str = "x-sidelong-node";

/// Smallest bound on a request head that hyper accepts, in bytes.
const HEAD_BYTES_MIN: usize = 8192;

/// Longest idle time that can be set.
const IDLE_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// How long a worker takes for a request, before [`OriginConfig::cost_per_kib`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceTime {
    /// No time at all: the origin answers as fast as it can.
    None,
    /// This time for each request.
    Fixed(Duration),
    /// Drawn from an exponential distribution, from [`OriginConfig::seed`].
    Exponential {
        /// Mean of the distribution.
        mean: Duration,
    },
    /// CPU time, used by as many threads as there are workers. The path determines the time: the same on each request,
    /// and exponentially distributed over all paths.
    Burn {
        /// Mean over the paths.
        mean: Duration,
    },
}

/// Everything that [`serve`](super::serve) needs. Start from [`OriginConfig::default`].
#[derive(Clone, Debug)]
pub struct OriginConfig {
    /// Name of the node, sent with each response in [`NODE_HEADER`].
    pub name: Option<String>,
    /// Virtual workers: requests that are in service at once.
    pub workers: u32,
    /// Time that a worker takes for a request.
    pub service: ServiceTime,
    /// Added to the service time for each KiB of the response body, if the service time is waited for.
    pub cost_per_kib: Duration,
    /// Seed of the drawn service times.
    pub seed: u64,
    /// Requests that may wait for a worker; those beyond are answered 503.
    pub queue_depth_max: u32,
    /// Connections that may be open, if the process has descriptors for as many. For those beyond, the connections that have
    /// been idle for longest are closed; meanwhile they wait in the listener's backlog.
    pub connections_max: u32,
    /// Size of a request head, in bytes; 8192 at least. It may hold 100 fields, which is hyper's own bound.
    pub head_bytes_max: usize,
    /// Size of a request body, in bytes; a larger one is answered 413.
    pub body_bytes_max: u64,
    /// Size of a body under `/o/`, in bytes; a larger one is answered 403.
    pub synthetic_bytes_max: u64,
    /// Size of a file that is served, in bytes; a larger one is answered 403.
    pub file_bytes_max: u64,
    /// Memory that files are kept in, in bytes. Files that no longer fit, and those that may change, are read for each request.
    pub cache_bytes_max: u64,
    /// A connection on which nothing happens is closed after this time at least, and twice this time at most. A day
    /// at most.
    pub idle_max: Duration,
    /// Time that requests in flight are given to finish after shutdown.
    pub drain_max: Duration,
    /// Directory of the files to serve. Without `documents` they must not change while the origin runs.
    pub root: Option<PathBuf>,
    /// How files are served that may change.
    pub documents: Option<Documents>,
    /// The answer to every path but `/healthz`, for measuring a proxy in front of the origin.
    pub body: Option<Bytes>,
}

impl Default for OriginConfig {
    fn default() -> Self {
        OriginConfig {
            name: None,
            workers: 1,
            service: ServiceTime::None,
            cost_per_kib: Duration::ZERO,
            seed: 0,
            queue_depth_max: 1024,
            connections_max: 10_000,
            head_bytes_max: 16 << 10,
            body_bytes_max: 1 << 20,
            synthetic_bytes_max: 1 << 30,
            file_bytes_max: 64 << 20,
            cache_bytes_max: 256 << 20,
            idle_max: Duration::from_secs(60),
            drain_max: Duration::from_secs(10),
            root: None,
            documents: None,
            body: None,
        }
    }
}

impl OriginConfig {
    /// Whether a request takes a virtual worker's time at all.
    pub(super) fn takes_time(&self) -> bool {
        match self.service {
            ServiceTime::None => !self.cost_per_kib.is_zero(),
            ServiceTime::Fixed(_) | ServiceTime::Exponential { .. } => true,
            ServiceTime::Burn { .. } => false,
        }
    }

    /// Refuses a configuration that cannot be served; returns the node's name as a header.
    pub(super) fn check(&self) -> Result<Option<HeaderValue>, OriginError> {
        if self.workers == 0 {
            return Err(OriginError::NoWorkers);
        }
        if self.connections_max == 0 {
            return Err(OriginError::NoConnections);
        }
        if self.head_bytes_max < HEAD_BYTES_MIN {
            return Err(OriginError::Head { bytes: self.head_bytes_max, bytes_min: HEAD_BYTES_MIN });
        }
        if self.idle_max.is_zero() || self.idle_max > IDLE_LIMIT {
            return Err(OriginError::IdleTime { idle_max: self.idle_max });
        }
        let name = self.name.as_deref().map(HeaderValue::from_str).transpose();
        name.map_err(|source| OriginError::Name { name: self.name.clone().unwrap_or_default(), source })
    }
}

/// Why an origin did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// [`OriginConfig::workers`] is 0.
    #[error("an origin needs at least one worker")]
    NoWorkers,
    /// [`OriginConfig::connections_max`] is 0.
    #[error("an origin needs room for at least one connection")]
    NoConnections,
    /// [`OriginConfig::idle_max`] is 0, or more than a day.
    #[error(
        "connections cannot be closed after {idle_max:?} of idling: it is to be more than 0, and a day at most"
    )]
    IdleTime {
        /// As configured.
        idle_max: Duration,
    },
    /// [`OriginConfig::head_bytes_max`] is too small.
    #[error("a request head of {bytes} bytes at most is too small: {bytes_min} are needed")]
    Head {
        /// As configured, in bytes.
        bytes: usize,
        /// The smallest possible limit, in bytes.
        bytes_min: usize,
    },
    /// [`OriginConfig::name`] holds what a header cannot.
    #[error("the node name {name:?} cannot be sent as a header")]
    Name {
        /// As configured.
        name: String,
        /// What is wrong with it.
        source: InvalidHeaderValue,
    },
    /// The threads that use CPU time cannot be started.
    #[error("cannot start {workers} threads that use CPU time: {source}")]
    Burners {
        /// As configured.
        workers: u32,
        /// The system's error.
        source: std::io::Error,
    },
    /// [`OriginConfig::root`] is not a directory that can be read.
    #[error("cannot serve files from {}", path.display())]
    Root {
        /// As configured.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}
