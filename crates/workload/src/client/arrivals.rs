//! Arrivals: when the requests of an open loop are due.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::config::ClientError;

/// Most streams of one generator.
pub const STREAMS_MAX: usize = 64;
/// Most steps of one stream.
pub const STEPS_MAX: usize = 65_536;
/// Highest rate of an open loop, in requests/s.
pub const RATE_PER_S_MAX: f64 = 1e7;

/// When the requests of an open loop are due.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// At equal intervals.
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
    /// Several streams, each at rates of its own that change over time, such as one for each site.
    Streams {
        /// [`Cue::stream`](super::Cue::stream) is an index into them.
        streams: Vec<Stream>,
        /// The same seed gives the same arrivals.
        seed: u64,
    },
    /// At these times since the start, in order; the run ends with the last.
    Given(Arc<[Duration]>),
}

/// Requests at rates that change in steps. It ends when its last step has a rate of 0.
#[derive(Clone, PartialEq, Debug)]
pub struct Stream {
    /// In order of time. Before the first there are no requests.
    pub steps: Vec<Step>,
    /// How requests are spaced within a step.
    pub gaps: Gaps,
    /// The clients that send them: indexes into [`ClientConfig::clients`](super::ClientConfig::clients); `None` for
    /// all.
    pub clients: Option<Range<usize>>,
}

/// A rate that holds from a given time on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// Since the start.
    pub at: Duration,
    /// Requests/s; 0 for none.
    pub per_s: f64,
}

/// How the requests of a stream are spaced within a step, and which client sends each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gaps {
    /// At equal intervals, from the clients in turn.
    Equal,
    /// Independent of each other, each from a random client: every client is a Poisson process of its own.
    Poisson,
}

impl Stream {
    /// A Poisson process from all clients, at rates that begin at these times.
    pub fn poisson(steps: Vec<Step>) -> Self {
        Stream { steps, gaps: Gaps::Poisson, clients: None }
    }

    /// The same requests from a part of the clients.
    pub fn of(self, clients: Range<usize>) -> Self {
        Stream { clients: Some(clients), ..self }
    }

    fn check(&self, clients: usize) -> Result<(), ClientError> {
        match self.steps.len() {
            1..=STEPS_MAX => {}
            value => return Err(ClientError::Count { what: "steps", value, max: STEPS_MAX }),
        }
        if !self.steps.is_sorted_by_key(|step| step.at) {
            return Err(ClientError::Unsorted);
        }
        // Written so that a NaN is refused.
        let is_rate = |per_s: f64| (0.0..=RATE_PER_S_MAX).contains(&per_s);
        if let Some(step) = self.steps.iter().find(|step| !is_rate(step.per_s)) {
            return Err(ClientError::Rate { per_s: step.per_s });
        }
        match &self.clients {
            Some(range) if range.is_empty() || range.end > clients => {
                Err(ClientError::Clients { range: range.clone(), clients })
            }
            _ => Ok(()),
        }
    }
}

impl Arrivals {
    /// Checks that this number of clients can produce them.
    pub(crate) fn check(&self, clients: usize) -> Result<(), ClientError> {
        match self {
            Arrivals::Constant { per_s } | Arrivals::Poisson { per_s, .. } => {
                // Written so that a NaN is refused.
                let fits = *per_s > 0.0 && *per_s <= RATE_PER_S_MAX;
                if fits { Ok(()) } else { Err(ClientError::Rate { per_s: *per_s }) }
            }
            Arrivals::Streams { streams, .. } => {
                if streams.is_empty() || streams.len() > STREAMS_MAX {
                    let value = streams.len();
                    return Err(ClientError::Count { what: "streams", value, max: STREAMS_MAX });
                }
                streams.iter().try_for_each(|stream| stream.check(clients))
            }
            Arrivals::Given(times) => match times.is_sorted() {
                true => Ok(()),
                false => Err(ClientError::Unsorted),
            },
        }
    }
}
