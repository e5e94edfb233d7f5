//! gunicorn in the place of the built-in origin: an application that holds a worker for as long as the origin would, and answers
//! the same objects.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::origin::ServiceTime;

/// The arguments of a gunicorn with so many synchronous workers. Its application goes into `directory`.
///
/// # Errors
/// If the application cannot be written.
pub fn arguments(
    directory: &Path,
    address: SocketAddr,
    workers: u16,
    service: ServiceTime,
) -> io::Result<Vec<OsString>> {
    std::fs::write(directory.join("application.py"), include_str!("gunicorn/application.py"))?;
    let (word, time) = match service {
        ServiceTime::None => ("none", Duration::ZERO),
        ServiceTime::Fixed(time) => ("fixed", time),
        ServiceTime::Exponential { mean } => ("exponential", mean),
        ServiceTime::Burn { mean } => ("burn", mean),
    };
    let arguments = [
        ("--bind", address.to_string()),
        ("--workers", workers.to_string()),
        ("--log-level", "warning".to_owned()),
        ("--env", format!("SIDELONG_SERVICE={word}")),
        ("--env", format!("SIDELONG_SERVICE_MS={}", time.as_secs_f64() * 1e3)),
    ];
    let arguments = arguments.into_iter().flat_map(|(key, value)| [key.into(), value.into()]);
    let place = ["--chdir".into(), directory.into()];
    Ok(place.into_iter().chain(arguments).chain(["application".into()]).collect())
}
