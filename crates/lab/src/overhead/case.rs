//! The cases of edge-overhead: where the proxies stand, and what they are asked.

use std::time::Duration;

use sidelong_workload::client::{Arrivals, Load, Step, Stream};

use super::stage::HOST;
use crate::turn::Asked;

/// Clients of most cases, each with one request under way, and those of `many`.
pub(super) const CONNECTIONS: u32 = 32;
const MANY: u32 = 1024;
/// Most requests under way in the open loop, each on a connection of its own. Beyond, requests are dropped, and the turn has errors.
/// With thousands a proxy that stalled once has so many connections to serve that it does not catch up in the turn.
pub(super) const IN_FLIGHT_MAX: u32 = 256;
/// The open loop comes to its rate in steps. At once, each of its first requests would need a new connection, which costs a proxy
/// several requests, so that it would fall behind and never catch up.
const RAMP_STEPS: u32 = 10;
const RAMP_STEP: Duration = Duration::from_millis(30);
/// Seed of the open loop's arrivals, the same for all proxies.
const SEED: u64 = 1;

/// A node and the proxies before it, which are configured alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stand {
    Plain,
    /// With an access log.
    Logged,
    /// With TLS, and HTTP/2 for clients that ask for it.
    Secure,
    /// An edge alone that rejects the site's requests and accepts connections, for another site's sake.
    Gate,
    /// An edge alone that closes connections at accept.
    Door,
}

impl Stand {
    pub(super) const ALL: [Stand; 5] = [Stand::Plain, Stand::Logged, Stand::Secure, Stand::Gate, Stand::Door];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Stand::Plain => "plain",
            Stand::Logged => "logged",
            Stand::Secure => "secure",
            Stand::Gate => "gate",
            Stand::Door => "door",
        }
    }

    /// The proxies that stand there.
    pub(super) const fn proxies(self) -> &'static [&'static str] {
        if self.rejects() { &["edge"] } else { &["edge", "nginx", "haproxy"] }
    }

    pub(super) const fn rejects(self) -> bool {
        matches!(self, Stand::Gate | Stand::Door)
    }
}

/// What is measured in turns.
pub(super) struct Case {
    pub(super) word: &'static str,
    pub(super) stand: Stand,
    /// The load, without what it needs for TLS, by the rate of `half` in requests/s.
    pub(super) asked: fn(f64) -> Asked,
}

/// In the order in which they are run. Memory of idle connections comes first: the processes are new.
pub(super) const CASES: [Case; 14] = [
    case("idle", Stand::Plain, |_| kb()),
    case("idle-tls", Stand::Secure, |_| kb()),
    case("kb", Stand::Plain, |_| kb()),
    case("kb16", Stand::Plain, |_| Asked::closed(HOST, "/o/0/16384", CONNECTIONS)),
    case("mb", Stand::Plain, |_| Asked::closed(HOST, "/o/0/1048576", CONNECTIONS)),
    case("access-log", Stand::Logged, |_| kb()),
    case("many", Stand::Plain, |_| Asked::closed(HOST, KB, MANY)),
    case("new", Stand::Plain, |_| Asked { keep_alive: false, ..kb() }),
    case("tls", Stand::Secure, |_| kb()),
    case("tls-new", Stand::Secure, |_| Asked { keep_alive: false, ..kb() }),
    case("http2", Stand::Secure, |_| kb()),
    // An open loop at half of the lesser rate at which the edge and nginx answered `kb` in the same round.
    case("half", Stand::Plain, open),
    case("rejected-request", Stand::Gate, |_| Asked { is_rejected: true, ..kb() }),
    case("rejected-connection", Stand::Door, |_| Asked { is_rejected: true, keep_alive: false, ..kb() }),
];
/// A body that the node generates.
const KB: &str = "/o/0/1024";

const fn case(word: &'static str, stand: Stand, asked: fn(f64) -> Asked) -> Case {
    Case { word, stand, asked }
}

fn kb() -> Asked {
    Asked::closed(HOST, KB, CONNECTIONS)
}

fn open(per_s: f64) -> Asked {
    let steps = (1..=RAMP_STEPS).map(|step| Step {
        at: RAMP_STEP * (step - 1),
        per_s: per_s * f64::from(step) / f64::from(RAMP_STEPS),
    });
    let arrivals = Arrivals::Streams { streams: vec![Stream::poisson(steps.collect())], seed: SEED };
    Asked { load: Load::Open { arrivals, in_flight_max: IN_FLIGHT_MAX }, ..kb() }
}

impl Case {
    pub(super) const fn proxies(&self) -> &'static [&'static str] {
        self.stand.proxies()
    }

    /// Whether memory is measured, once, instead of a turn in each round.
    pub(super) fn is_idle(&self) -> bool {
        self.word.starts_with("idle")
    }

    fn is_open(&self) -> bool {
        self.word == "half"
    }

    /// How long a turn is, in turns. What begins a turn is to be far from the slowest hundredth of an open loop.
    pub(super) fn lengths(&self) -> u32 {
        if self.is_open() { 3 } else { 1 }
    }

    /// The turns of a round.
    pub(super) fn turns(&self) -> u32 {
        if self.is_idle() { 0 } else { self.lengths() * self.proxies().len() as u32 }
    }

    /// Whether a process that was stopped has some time before the load. The load of a node is unknown at first, and all is admitted;
    /// and what a proxy makes up for would be in the response times.
    pub(super) fn waits(&self) -> bool {
        self.stand.rejects() || self.is_open()
    }
}
