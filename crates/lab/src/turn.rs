//! A turn of one system in a closed loop of requests, in experiments whose systems take turns.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use http::{HeaderValue, Uri};
use serde::Serialize;
use sidelong_workload::client::{ClientConfig, Generator, Load, Shot};

use crate::cpus::Pinned;
use crate::error::Result;
use crate::server::{Server, await_end};

/// Clients, each with one request under way.
pub(crate) const CONNECTIONS: u32 = 48;

/// The figures of a turn.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Turn {
    pub(crate) requests: u64,
    pub(crate) requests_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// CPU time of the process that answers the load, user and system.
    pub(crate) cpu_us_per_request: f64,
    /// The share of the turn in which that process was on its CPU.
    pub(crate) cpu_busy: f64,
    pub(crate) errors: u64,
}

/// Puts the load on `server` for `time`, from `cpu`. Each request asks a host for a path.
///
/// # Errors
/// If no request was answered, or `stop` was raised.
pub(crate) fn turn(
    server: &Server,
    [host, path]: [&'static str; 2],
    time: Duration,
    cpu: usize,
    stop: &AtomicBool,
) -> Result<Turn> {
    let host = HeaderValue::from_static(host);
    let uri = Uri::from_static(path);
    let load = Load::Closed { connections_per_edge: CONNECTIONS, think: Duration::ZERO };
    let config = ClientConfig {
        duration_max: Some(time),
        ..ClientConfig::new(vec![server.address], vec!["a".into()], load)
    };
    let generator = Generator::new(config, move |_| Shot::get(0, host.clone(), uri.clone()))?;

    let (begun, cpu_before) = (Instant::now(), server.process.cpu_time()?);
    let pinned = Pinned::to(cpu)?;
    let load = generator.start()?;
    await_end(&load, stop)?;
    drop(pinned);
    let elapsed = begun.elapsed();
    let summary = load.wait()?;
    let cpu = (server.process.cpu_time()? - cpu_before).as_secs_f64();
    if summary.requests == summary.errors + summary.turned_away {
        return Err(server.failed(format!("no request was answered, {} errors", summary.errors)));
    }
    Ok(Turn {
        requests: summary.requests,
        requests_per_s: summary.requests_per_s,
        p50_ms: summary.latency.p50_ms,
        p99_ms: summary.latency.p99_ms,
        cpu_us_per_request: cpu * 1e6 / summary.requests as f64,
        cpu_busy: cpu / elapsed.as_secs_f64(),
        errors: summary.errors,
    })
}
