//! The cases of edge-overhead, and their targets.

use std::time::Duration;

use serde::Serialize;
use sidelong_workload::client::{Arrivals, Load, Step, Stream};

use super::Found;
use super::stage::HOST;
use crate::turn::Asked;

/// Bodies that the node generates.
const KB: &str = "/o/0/1024";
const KB_16: &str = "/o/0/16384";
const MB: &str = "/o/0/1048576";
/// Clients of most cases, each with one request under way.
pub(super) const CONNECTIONS: u32 = 32;
/// Clients of [`Case::Many`].
const MANY: u32 = 1024;
/// Most requests under way in the open loop, each on a connection of its own. Beyond, requests are dropped, and the turn has errors.
/// With thousands a proxy that stalled once has so many connections to serve that it does not catch up in the turn.
const IN_FLIGHT_MAX: u32 = 256;
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

    /// Whether the other proxies stand there, too.
    pub(super) const fn has_others(self) -> bool {
        !self.rejects()
    }

    pub(super) const fn rejects(self) -> bool {
        matches!(self, Stand::Gate | Stand::Door)
    }
}

/// What is measured in turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Case {
    /// Memory of idle connections. It comes first: the processes are new.
    Idle,
    IdleTls,
    Kb,
    Kb16,
    Mb,
    AccessLog,
    Many,
    /// A new connection for each request.
    New,
    Tls,
    TlsNew,
    Http2,
    /// An open loop at half of the lesser rate at which the edge and nginx answered [`Case::Kb`] in the same round.
    Half,
    RejectedRequest,
    RejectedConnection,
}

impl Case {
    /// In the order in which they are run.
    pub(super) const ALL: [Case; 14] = [
        Case::Idle,
        Case::IdleTls,
        Case::Kb,
        Case::Kb16,
        Case::Mb,
        Case::AccessLog,
        Case::Many,
        Case::New,
        Case::Tls,
        Case::TlsNew,
        Case::Http2,
        Case::Half,
        Case::RejectedRequest,
        Case::RejectedConnection,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Case::Idle => "idle connections",
            Case::IdleTls => "idle connections, TLS",
            Case::Kb => "1 KB, 32 kept connections",
            Case::Kb16 => "16 KB",
            Case::Mb => "1 MB",
            Case::AccessLog => "1 KB with an access log",
            Case::Many => "1 KB, 1,024 kept connections",
            Case::New => "1 KB, a new connection for each request",
            Case::Tls => "1 KB, TLS 1.3",
            Case::TlsNew => "1 KB, TLS 1.3, a handshake for each request",
            Case::Http2 => "1 KB, HTTP/2 over TLS",
            Case::Half => "1 KB, open loop at half of capacity",
            Case::RejectedRequest => "requests rejected at the gate",
            Case::RejectedConnection => "connections rejected at accept",
        }
    }

    pub(super) const fn stand(self) -> Stand {
        match self {
            Case::Idle | Case::Kb | Case::Kb16 | Case::Mb | Case::Many | Case::New | Case::Half => {
                Stand::Plain
            }
            Case::AccessLog => Stand::Logged,
            Case::IdleTls | Case::Tls | Case::TlsNew | Case::Http2 => Stand::Secure,
            Case::RejectedRequest => Stand::Gate,
            Case::RejectedConnection => Stand::Door,
        }
    }

    /// Whether memory is measured, once, instead of a turn in each round.
    pub(super) const fn is_idle(self) -> bool {
        matches!(self, Case::Idle | Case::IdleTls)
    }

    pub(super) const fn is_secure(self) -> bool {
        matches!(self.stand(), Stand::Secure)
    }

    pub(super) const fn is_http2(self) -> bool {
        matches!(self, Case::Http2)
    }

    /// How long a turn is, in turns. What begins a turn is to be far from the slowest hundredth of an open loop.
    pub(super) const fn lengths(self) -> u32 {
        if matches!(self, Case::Half) { 3 } else { 1 }
    }

    /// Whether a process that was stopped has some time before the load. The load of a node is unknown at first, and all is admitted;
    /// and what a proxy makes up for would be in the response times.
    pub(super) const fn waits(self) -> bool {
        self.stand().rejects() || matches!(self, Case::Half)
    }

    /// The load, without what it needs for TLS. `half` is the rate of [`Case::Half`] in requests/s.
    pub(super) fn asked(self, half: f64) -> Asked {
        let closed = |path, connections| Asked::closed(HOST, path, connections);
        let kb = closed(KB, CONNECTIONS);
        match self {
            Case::Idle | Case::IdleTls | Case::Kb | Case::AccessLog | Case::Tls | Case::Http2 => kb,
            Case::Kb16 => closed(KB_16, CONNECTIONS),
            Case::Mb => closed(MB, CONNECTIONS),
            Case::Many => closed(KB, MANY),
            Case::New | Case::TlsNew => Asked { keep_alive: false, ..kb },
            Case::Half => {
                let steps = (1..=RAMP_STEPS).map(|step| Step {
                    at: RAMP_STEP * (step - 1),
                    per_s: half * f64::from(step) / f64::from(RAMP_STEPS),
                });
                let streams = vec![Stream::poisson(steps.collect())];
                let arrivals = Arrivals::Streams { streams, seed: SEED };
                Asked { load: Load::Open { arrivals, in_flight_max: IN_FLIGHT_MAX }, ..kb }
            }
            Case::RejectedRequest => Asked { is_rejected: true, ..kb },
            Case::RejectedConnection => Asked { is_rejected: true, keep_alive: false, ..kb },
        }
    }
}

/// What a figure of the edge is held against.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Against {
    /// At most this multiple of nginx's.
    Nginx(f64),
    /// At most this multiple of the edge's own figure in another case.
    Own(Case, f64),
    /// At most this figure itself.
    Itself(f64),
}

/// A figure of a case, and what it must reach.
pub(super) struct Target {
    pub(super) case: Case,
    pub(super) what: &'static str,
    /// What stands under it in the figure.
    pub(super) short: &'static str,
    pub(super) figure: fn(&Found) -> Option<f64>,
    pub(super) against: Against,
}

const fn cpu(case: Case, short: &'static str, at_most: f64) -> Target {
    let against = Against::Nginx(at_most);
    Target { case, what: "CPU a request, µs", short, figure: Found::cpu_us, against }
}

const fn of_served(case: Case, served: Case, at_most: f64) -> Target {
    let against = Against::Own(served, at_most);
    Target { case, what: "CPU a rejection, µs", short: "", figure: Found::cpu_us, against }
}

/// All that is judged.
pub(super) const TARGETS: [Target; 15] = [
    cpu(Case::Kb, "1K", 0.95),
    cpu(Case::Kb16, "16K", 1.0),
    cpu(Case::Mb, "1M", 1.0),
    cpu(Case::AccessLog, "log", 1.0),
    cpu(Case::Many, "1024", 1.0),
    cpu(Case::New, "new", 1.0),
    cpu(Case::Tls, "kept", 1.0),
    cpu(Case::TlsNew, "new", 1.1),
    cpu(Case::Http2, "h2", 1.0),
    Target {
        case: Case::Half,
        what: "p50, ms",
        short: "p50",
        figure: Found::p50_ms,
        against: Against::Nginx(1.0),
    },
    Target {
        case: Case::Half,
        what: "p99, ms",
        short: "p99",
        figure: Found::p99_ms,
        against: Against::Nginx(1.0),
    },
    Target {
        case: Case::Idle,
        what: "memory of one, KB",
        short: "plain",
        figure: Found::idle_kb,
        against: Against::Itself(8.0),
    },
    Target {
        case: Case::IdleTls,
        what: "memory of one, KB",
        short: "TLS",
        figure: Found::idle_kb,
        against: Against::Itself(24.0),
    },
    of_served(Case::RejectedRequest, Case::Kb, 0.25),
    // The client of one that is served came with a new connection, too.
    of_served(Case::RejectedConnection, Case::New, 0.15),
];

/// The planned time of all turns of a round: `proxies` of each case, but one of those that an edge alone has.
pub(super) fn planned(time: Duration, proxies: u32) -> Duration {
    let turns = |case: &Case| case.lengths() * if case.stand().has_others() { proxies } else { 1 };
    time * Case::ALL.iter().filter(|case| !case.is_idle()).map(turns).sum::<u32>()
}
