//! gunicorn in the place of the built-in origin: an application that holds a worker for as long as the origin would, and answers
//! the same objects.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use sidelong_workload::origin::ServiceTime;

use crate::{Result, file, programs};

/// The arguments of a gunicorn with so many synchronous workers. Its application goes into `directory`.
///
/// # Errors
/// If the application cannot be written.
pub fn arguments(
    directory: &Path,
    address: SocketAddr,
    workers: u16,
    service: ServiceTime,
) -> Result<Vec<OsString>> {
    let application = directory.join("application.py");
    file(&application, std::fs::write(&application, include_str!("gunicorn/application.py")))?;
    let (word, time) = match service {
        ServiceTime::None => ("none", Duration::ZERO),
        ServiceTime::Fixed(time) => ("fixed", time),
        ServiceTime::Exponential { mean } => ("exponential", mean),
        ServiceTime::Burn { mean } => ("burn", mean),
    };
    let told =
        [format!("SIDELONG_SERVICE={word}"), format!("SIDELONG_SERVICE_MS={}", time.as_secs_f64() * 1e3)];
    let told = told.into_iter().flat_map(|variable| ["--env".into(), variable.into()]);
    let all = programs::gunicorn(directory, &address.to_string(), workers, "application");
    Ok(told.chain(all).collect())
}
