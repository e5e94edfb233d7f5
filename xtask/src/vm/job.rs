//! What a guest is told: who it is, and its command with the caller's directory and environment, as a text that `init.sh`
//! and `run.sh` read as part of themselves.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One guest's part.
pub(super) struct Job<'a> {
    /// Its host name.
    pub(super) name: &'a str,
    /// What rxe0 lies on.
    pub(super) netdev: &'a str,
    /// The address that it gives to `netdev`, with the length of the network's part.
    pub(super) address: &'a str,
    /// Lines for /etc/hosts.
    pub(super) hosts: &'a str,
    /// The TCP port that the command is to listen on, where someone waits for that.
    pub(super) port: Option<u16>,
    /// The host's directory that it may write to.
    pub(super) out: Option<&'a Path>,
    /// The size of the terminal, as stty takes it, where the command is to have one.
    pub(super) terminal: Option<&'a str>,
    /// What comes behind the last byte of its output, between two zero bytes.
    pub(super) end: &'a str,
    /// Where its command runs.
    pub(super) dir: &'a Path,
    pub(super) environment: &'a [(OsString, OsString)],
    pub(super) command: &'a [OsString],
}

impl Job<'_> {
    /// The text.
    pub(super) fn script(&self) -> Vec<u8> {
        let mut script = Vec::new();
        let port = self.port.map(|port| format!("{port:04X}")).unwrap_or_default();
        let out = self.out.unwrap_or(Path::new(""));
        let variables: [(&str, &OsStr); 8] = [
            ("name", self.name.as_ref()),
            ("netdev", self.netdev.as_ref()),
            ("address", self.address.as_ref()),
            ("hosts", self.hosts.as_ref()),
            ("port", port.as_ref()),
            ("out", out.as_ref()),
            ("tty", self.terminal.unwrap_or_default().as_ref()),
            ("end", self.end.as_ref()),
        ];
        for (variable, value) in variables {
            script.extend_from_slice(variable.as_bytes());
            script.push(b'=');
            quote(value, &mut script);
            script.push(b'\n');
        }
        script.extend_from_slice(b"run() {\ncd ");
        quote(self.dir.as_ref(), &mut script);
        // A session of its own, so that all of it can be told to end. env takes names that no shell would, and takes back
        // that a shell's background jobs ignore Ctrl-C. By their paths: busybox would take its own, and then its own of
        // the command, too.
        let setsid = if self.terminal.is_some() { "setsid -c" } else { "setsid" };
        let env = "env -i --default-signal=INT,QUIT";
        script.extend_from_slice(format!(" || exit 126\nexec /usr/bin/{setsid} /usr/bin/{env}").as_bytes());
        for (key, value) in self.environment {
            let mut pair = key.clone();
            pair.push("=");
            pair.push(value);
            script.push(b' ');
            quote(&pair, &mut script);
        }
        for word in self.command {
            script.push(b' ');
            quote(word, &mut script);
        }
        script.extend_from_slice(b"\n}\n");
        script
    }
}

/// Appends `word` so that a shell reads it as it is.
fn quote(word: &OsStr, script: &mut Vec<u8>) {
    script.push(b'\'');
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => script.extend_from_slice(b"'\\''"),
            byte => script.push(byte),
        }
    }
    script.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec;
    use std::process::Command;

    fn job<'a>(environment: &'a [(OsString, OsString)], command: &'a [OsString]) -> Job<'a> {
        Job {
            name: "node",
            netdev: "lo",
            address: "",
            hosts: "10.0.0.1 a\n10.0.0.2 b",
            port: Some(18515),
            out: Some(Path::new("/o'ut")),
            terminal: None,
            end: "end",
            dir: Path::new("/"),
            environment,
            command,
        }
    }

    fn shell(script: &[u8]) -> String {
        exec::output(Command::new("sh").arg("-c").arg(OsStr::from_bytes(script))).unwrap()
    }

    #[test]
    fn a_shell_reads_it_as_it_is_meant() {
        let environment = [("A".into(), "it's $HOME\n".into()), ("PATH".into(), "/usr/bin:/bin".into())];
        let print = "printf '%s|' \"$PWD\" \"$A\" \"$@\"";
        let command = ["sh", "-c", print, "sh", "a b", "", "'$x'"].map(OsString::from);
        let mut script = job(&environment, &command).script();
        script.extend_from_slice(b"printf '%s|' \"$hosts\" $port \"$out\" \"$tty\"\nrun\n");
        assert_eq!(shell(&script), "10.0.0.1 a\n10.0.0.2 b|4853|/o'ut||/|it's $HOME\n|a b||'$x'|");
    }

    #[test]
    fn a_variable_may_have_a_name_that_no_shell_takes() {
        let environment = [("BASH_FUNC_f%%".into(), "() { :; }".into())];
        let mut script = job(&environment, &["/usr/bin/env".into()]).script();
        script.extend_from_slice(b"run\n");
        assert_eq!(shell(&script), "BASH_FUNC_f%%=() { :; }\n");
    }

    #[test]
    fn bytes_that_are_no_text_stay() {
        let word = [OsStr::from_bytes(b"\xff\xfe").to_owned()];
        let script = job(&[], &word).script();
        assert!(script.windows(4).any(|bytes| bytes == b"'\xff\xfe'"));
    }
}
