//! A turn of one system under a load, in experiments whose systems take turns.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use http::{HeaderValue, Uri};
use serde::Serialize;
use sidelong_workload::client::{ClientConfig, Generator, Load, Secure, Shot, WhenRejected};

use crate::cpus::Pinned;
use crate::error::Result;
use crate::measure::Measure;
use crate::server::{Server, await_end};

/// What the load asks of a server, and how.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) host: &'static str,
    pub(crate) path: &'static str,
    pub(crate) load: Load,
    /// Whether a connection carries more than one request.
    pub(crate) keep_alive: bool,
    /// TLS, and whether over HTTP/2.
    pub(crate) secure: Option<Secure>,
    /// Whether each request is to be rejected, by an answer or at accept. Its client then asks again at once.
    pub(crate) is_rejected: bool,
}

impl Asked {
    /// A closed loop over this number of kept connections.
    pub(crate) fn closed(host: &'static str, path: &'static str, connections: u32) -> Asked {
        let load = Load::Closed { connections_per_edge: connections, think: Duration::ZERO };
        Asked { host, path, load, keep_alive: true, secure: None, is_rejected: false }
    }
}

/// The figures of a turn.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Turn {
    /// Requests that have ended, in whatever way.
    pub(crate) requests: u64,
    /// Requests that were served, in a second.
    pub(crate) requests_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// CPU time of the process that answers the load, user and system.
    pub(crate) cpu_us_per_request: f64,
    /// The share of the turn in which that process was on its CPU.
    pub(crate) cpu_busy: f64,
    /// Requests that did not end as they should, or were not sent because too many were under way.
    pub(crate) errors: u64,
}

/// What is measured in a turn.
pub(crate) const MEASURES: &[Measure] = &[
    Measure::new("requests_per_s", "requests/s", [1, 0]),
    Measure::new("cpu_us_per_request", "CPU a request, µs", [2, 2]),
    Measure::new("p50_ms", "p50, ms", [3, 3]).possible(|case| 0.0..=case.most("p99_ms")),
    Measure::new("p99_ms", "p99, ms", [3, 3]),
    // A system is held to one CPU, whose time the kernel counts in ticks.
    Measure::new("cpu_busy", "share of its CPU", [3, 3]).possible(|_| 0.0..=1.1),
    Measure::new("errors", "errors", [0, 0]),
];

impl Turn {
    /// The figures by measure.
    pub(crate) fn figures(&self) -> [(&'static str, f64); 6] {
        [
            ("requests_per_s", self.requests_per_s),
            ("cpu_us_per_request", self.cpu_us_per_request),
            ("p50_ms", self.p50_ms),
            ("p99_ms", self.p99_ms),
            ("cpu_busy", self.cpu_busy),
            ("errors", self.errors as f64),
        ]
    }
}

/// Puts the load on `server` for `time`, from `cpus`.
///
/// # Errors
/// If no request ended as it should, or `stop` was raised.
pub(crate) fn turn(
    server: &Server,
    asked: &Asked,
    time: Duration,
    cpus: &[usize],
    stop: &AtomicBool,
) -> Result<Turn> {
    let (host, uri) = (HeaderValue::from_static(asked.host), Uri::from_static(asked.path));
    let config = ClientConfig {
        duration_max: Some(time),
        threads: cpus.len(),
        keep_alive: asked.keep_alive,
        secure: asked.secure.clone(),
        when_rejected: if asked.is_rejected { WhenRejected::Repeat } else { WhenRejected::Pause },
        ..ClientConfig::new(vec![server.address], vec!["a".into()], asked.load.clone())
    };
    let generator = Generator::new(config, move |_| Shot::get(0, host.clone(), uri.clone()))?;

    let (begun, cpu_before) = (Instant::now(), server.process.cpu_used()?);
    let pinned = Pinned::to_any(cpus)?;
    let load = generator.start()?;
    await_end(&load, stop)?;
    drop(pinned);
    let elapsed = begun.elapsed();
    let cpu = server.process.cpu_used()?.since(&cpu_before).as_secs_f64();
    let summary = load.wait()?;
    let served = summary.requests - summary.errors - summary.rejected;
    let ended_well = if asked.is_rejected { summary.rejected } else { served };
    if ended_well == 0 {
        let (all, wanted) = (summary.requests, if asked.is_rejected { "rejected" } else { "served" });
        return Err(server.failed(format!("none of {all} requests was {wanted}")));
    }
    Ok(Turn {
        requests: summary.requests,
        requests_per_s: summary.requests_per_s,
        p50_ms: summary.latency.p50_ms,
        p99_ms: summary.latency.p99_ms,
        cpu_us_per_request: cpu * 1e6 / summary.requests as f64,
        cpu_busy: cpu / elapsed.as_secs_f64(),
        errors: summary.requests - ended_well + summary.dropped,
    })
}
