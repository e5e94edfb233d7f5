//! Other programs: started, waited for, and named by their command line in every error.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;

/// How often a program with a deadline is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The cargo that runs this program, or else the one in the path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").as_deref().unwrap_or(OsStr::new("cargo")))
}

/// The command line as one would type it. A path to a program is cut down to its name.
pub(crate) fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let set = command.get_envs().filter_map(|(key, value)| Some((key, value?)));
    let set = set.map(|(key, value)| format!("{}={}", key.display(), quoted(value)));
    let words = std::iter::once(name).chain(command.get_args()).map(quoted);
    set.chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.contains([' ', '"', '$', '*']) { format!("'{word}'") } else { word.into_owned() }
}

/// What a program printed, once it has ended well.
pub(crate) fn output(command: &mut Command) -> Result<String, Error> {
    let out = command.stdin(Stdio::null()).output().map_err(|source| cannot(command, source))?;
    Ok(String::from_utf8_lossy(&ended_well(command, out)?).into_owned())
}

fn ended_well(command: &Command, out: Output) -> Result<Vec<u8>, Error> {
    if out.status.success() {
        return Ok(out.stdout);
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let last = said.trim_end().lines().last().unwrap_or("and no message").to_owned();
    Err(Error::Exit { command: command_line(command), status: out.status, said: last })
}

/// Lets a program print where this one prints.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus, Error> {
    command.stdin(Stdio::null()).status().map_err(|source| cannot(command, source))
}

/// Passes on what a program prints, standard output and standard error in their order, and shows each line to `see`.
pub(crate) fn lines(command: &mut Command, mut see: impl FnMut(&str)) -> Result<ExitStatus, Error> {
    let mut start = || {
        let (reader, writer) = io::pipe()?;
        let child = command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).spawn()?;
        // The command holds the writing ends: without this the reader would never see the end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok((reader, child))
    };
    let (reader, mut child) = start().map_err(|source| cannot(command, source))?;
    let pass_on = || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(&line);
            print!("{text}");
            see(text.trim_end());
            line.clear();
        }
        child.wait()
    };
    pass_on().map_err(|source| cannot(command, source))
}

/// What a program printed on standard output, and how it ended: `None` where it had to be killed after `limit`.
pub(crate) fn output_within(
    command: &mut Command,
    limit: Duration,
) -> Result<(Option<ExitStatus>, String), Error> {
    let mut run = || {
        let printed = tempfile::NamedTempFile::new()?;
        let stdout = File::options().append(true).open(printed.path())?;
        let mut child = command.stdin(Stdio::null()).stdout(stdout).spawn()?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if start.elapsed() >= limit {
                child.kill()?;
                child.wait()?;
                break None;
            }
            thread::sleep(LOOK_EVERY);
        };
        Ok((status, String::from_utf8_lossy(&std::fs::read(printed.path())?).into_owned()))
    };
    run().map_err(|source| cannot(command, source))
}

fn cannot(command: &Command, source: io::Error) -> Error {
    Error::Start { command: command_line(command), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_line_can_be_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["doc", "--cfg", "a b"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(command_line(&command), "RUSTDOCFLAGS='-D warnings' cargo doc --cfg 'a b'");
    }

    #[test]
    fn a_failure_says_the_last_line() {
        let error = output(&mut shell("echo first >&2; echo last >&2; exit 3")).unwrap_err().to_string();
        assert!(error.ends_with("exit status: 3: last"), "{error}");
        assert!(output(&mut Command::new("no-such-program")).is_err());
    }

    #[test]
    fn both_outputs_come_in_order() {
        let mut seen = Vec::new();
        let status = lines(&mut shell("echo one; echo two >&2; printf three; exit 1"), |line| {
            seen.push(line.to_owned());
        });
        assert_eq!(status.unwrap().code(), Some(1));
        assert_eq!(seen, ["one", "two", "three"]);
    }

    #[test]
    fn a_deadline_is_kept() {
        let (status, printed) = output_within(&mut shell("echo here"), Duration::from_secs(60)).unwrap();
        assert!(status.unwrap().success());
        assert_eq!(printed, "here\n");
        let (status, _) = output_within(&mut shell("exec sleep 60"), Duration::from_millis(50)).unwrap();
        assert!(status.is_none());
    }
}
