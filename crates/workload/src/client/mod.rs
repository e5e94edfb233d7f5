//! The load generator: it sends requests from a [`Source`] to the edges and reports their outcome for each site.
//!
//! [`Generator::start`] runs it on threads of its own, so that it can be used from anywhere; the [`Run`] that it returns
//! tells how things are going, stops it, and gives the [`Summary`].
//!
//! # What the latencies mean
//! Under [`Load::Open`] a latency runs from the moment at which the request *should* have been sent, so a server that
//! stalls is charged for every request that came due meanwhile (no coordinated omission). Connecting is included.
//! Under [`Load::Closed`] a client sends its next request when the last one is answered, and a latency runs from
//! sending to the last byte of the body: a stall is seen once by each connection. That is the response time of a
//! fixed number of users (Balaji et al. 2004, section 4: sixteen threads on each load balancer), not what arriving users would see.
//!
//! Only requests that succeeded are in the percentiles and in the rates; the others are counted by [`ErrorKind`]. Those that
//! were rejected have percentiles of their own. A request is sent again only by clients that are told to
//! ([`WhenRejected::Repeat`]).

mod arrivals;
pub(crate) mod backoff;
mod closed;
pub(crate) mod config;
mod ledger;
pub(crate) mod link;
mod open;
pub(crate) mod pace;
mod report;
mod run;
mod secure;
mod series;
mod worker;

pub use arrivals::{Arrivals, Gaps, RATE_PER_S_MAX, STEPS_MAX, STREAMS_MAX, Step, Stream};
pub use config::{
    CLIENTS_MAX, CONNECTIONS_MAX, ClientConfig, ClientError, Load, SITES_MAX, SLOTS_MAX, SeriesConfig,
    THREADS_MAX, TIMEOUT_MAX, WhenRejected, loopback_client,
};
pub use report::{
    ClientSummary, EdgeSummary, Errors, Latency, Live, LiveSite, NodeSummary, SiteSummary, Summary,
    jain_index,
};
pub use run::{Generator, Run, Stopper};
pub use secure::Secure;
pub use series::{Interval, Series};
pub use worker::{Completion, Cue, ErrorKind, Recorder, Shot, Source};
