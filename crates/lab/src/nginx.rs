//! Debian's nginx as one process, a server or a proxy, from a configuration of its own.

use std::path::Path;
use std::process::Command;

use sidelong_harness::programs::{NGINX, Nginx, find};

use crate::error::{Error, Result};

/// Connections of a process, to clients and to servers.
const CONNECTIONS_MAX: u32 = 16_384;

/// The command of an nginx that keeps its files in `directory`. `http` is the text of its http block, without paths of temporary
/// files.
///
/// # Errors
/// If there is no nginx, or the directory cannot be written.
pub(crate) fn command(directory: &Path, http: &str) -> Result<Command> {
    let (what, instead) = ("there is no nginx here".into(), "install Debian's package nginx");
    let program = find(NGINX).ok_or(Error::Absent { what, instead })?;
    let nginx = Nginx { workers: 0, connections: CONNECTIONS_MAX, ..Nginx::new(directory, http) };
    let mut command = Command::new(program);
    command.args(nginx.configure()?);
    Ok(command)
}
