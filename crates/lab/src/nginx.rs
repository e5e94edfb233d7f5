//! Debian's nginx as one process, a server or a proxy, from a configuration of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::error::{Error, Result, file};
use crate::process::daemon;

/// Connections of a process, to clients and to servers.
const CONNECTIONS_MAX: u32 = 16_384;

/// The command of an nginx that keeps its files in `directory`. `http` is the text of its http block, without paths of temporary
/// files.
///
/// # Errors
/// If there is no nginx, or the directory cannot be written.
pub(crate) fn command(directory: &Path, http: &str) -> Result<Command> {
    let (what, instead) = ("there is no nginx here".into(), "install Debian's package nginx");
    let program = daemon("nginx", "-v").ok_or(Error::Absent { what, instead })?;
    file(directory, fs::create_dir_all(directory))?;
    let config = directory.join("nginx.conf");
    file(&config, fs::write(&config, text(directory, http)))?;
    let mut command = Command::new(program);
    command.arg("-p").arg(directory).arg("-c").arg(&config).args(["-e", "stderr"]);
    Ok(command)
}

fn text(directory: &Path, http: &str) -> String {
    let at = directory.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {at}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\npid {at}/pid;\nerror_log stderr;\n\
         events {{ worker_connections {CONNECTIONS_MAX}; }}\n\
         http {{\n{temporary}{http}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_process_and_writes_where_it_is_told() {
        let config = text(Path::new("/tmp/n"), "  access_log off;\n");
        for part in [
            "master_process off;",
            "pid /tmp/n/pid;",
            "proxy_temp_path /tmp/n/proxy;",
            "  access_log off;\n}",
        ] {
            assert!(config.contains(part), "{part} is not in\n{config}");
        }
    }
}
