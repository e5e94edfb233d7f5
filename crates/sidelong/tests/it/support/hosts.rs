//! Names of hosts, as a test wishes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use sidelong_testing::{Cluster, Running, skipped};

/// What the machines of a test find in /etc/hosts.
pub struct HostsFile(PathBuf);

impl HostsFile {
    /// `None`, with a printed reason, where a test cannot have its own.
    pub fn new(cluster: &Cluster) -> Option<Self> {
        let hosts = HostsFile(cluster.path("hosts"));
        hosts.write("");
        let mounted = hosts.inside("true", &[]).output();
        if !mounted.is_ok_and(|done| done.status.success()) {
            skipped("names of hosts: no file can be mounted in a namespace of its own here");
            return None;
        }
        Some(hosts)
    }

    pub fn write(&self, lines: &str) {
        // In place: what is mounted is this file, not its name.
        fs::write(&self.0, format!("127.0.0.1 localhost\n{lines}")).unwrap();
    }

    /// A program that finds the hosts of this file alone.
    fn inside(&self, program: &str, arguments: &[&str]) -> Command {
        let script = r#"mount --bind "$1" /etc/hosts && shift && exec "$@""#;
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(&self.0);
        command.arg(program).args(arguments);
        command
    }

    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::start_command(self.inside(env!("CARGO_BIN_EXE_sidelong"), arguments))
    }
}
