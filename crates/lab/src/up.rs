//! One run: `sidelong up --config FILE --json --samples FILE.csv` as a child process.
//!
//! The child prints a [`Summary`] as one JSON object and exits with 0, or prints one line with the reason on standard
//! error. While it runs it appends to the samples. SIGTERM makes it drain.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Deserialize;

use crate::error::{Error, Result, file};
use crate::process::{Process, finish, quoted};
use crate::table;
pub(crate) use sidelong_harness::up::{Spread, Summary};

/// Limit of a summary, in bytes.
const SUMMARY_BYTES_MAX: u64 = 1 << 24;

/// A line of the samples: a site over the last 100 ms.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(crate) struct Sample {
    /// Seconds since the load began.
    pub(crate) t_s: f64,
    pub(crate) site: String,
    /// The sum over the site's nodes of the busy share of their workers.
    pub(crate) nodes_busy: f64,
}

/// A line of the requests.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(crate) struct Request {
    /// When it should have been sent and when it was sent, in seconds since the load began.
    pub(crate) due_s: f64,
    pub(crate) sent_s: f64,
    pub(crate) site: String,
    pub(crate) edge: String,
    #[serde(rename = "outcome")]
    pub(crate) fate: Fate,
    /// The response time since it was due.
    pub(crate) response_ms: f64,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Fate {
    Answered,
    /// Rejected with 503, or by closing the connection.
    #[serde(alias = "closed")]
    Rejected,
    Failed,
}

/// The name and files of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Files {
    pub(crate) run: String,
    pub(crate) config: PathBuf,
    pub(crate) summary: PathBuf,
    pub(crate) samples: PathBuf,
    /// The outcome of each request, if that is wanted.
    pub(crate) requests: Option<PathBuf>,
    /// Options for what takes the place of the built-in origin and of the edges.
    pub(crate) with: Vec<String>,
    pub(crate) log: PathBuf,
}

impl Files {
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("up").arg("--config").arg(&self.config).arg("--json").arg("--samples").arg(&self.samples);
        if let Some(requests) = &self.requests {
            command.arg("--requests").arg(requests);
        }
        command.args(&self.with);
        command
    }

    /// The command that repeats the run.
    pub(crate) fn repeat(&self, program: &Path) -> String {
        let with: String = self.with.iter().map(|word| format!(" {word}")).collect();
        format!("{} up --config {}{with} --json", quoted(program), quoted(&self.config))
    }

    /// The samples that the run wrote.
    pub(crate) fn read_samples(&self) -> Result<Vec<Sample>> {
        table::read(&self.samples)
    }
}

/// The requests that a run wrote to `path`.
pub(crate) fn read_requests(path: &Path) -> Result<Vec<Request>> {
    table::read(path)
}

/// Runs `program` to its end, for `limit` at most, or until `stop` is raised. What `beside` returns once it is started is kept
/// until then.
pub(crate) fn run<T>(
    program: &Path,
    files: &Files,
    limit: Duration,
    stop: &AtomicBool,
    beside: impl FnOnce(&mut Process) -> Result<T>,
) -> Result<Summary> {
    let mut up = Process::start(files.command(program), &files.summary, &files.log)?;
    let _beside = beside(&mut up)?;
    finish(&mut up, &files.run, &files.log, limit, stop, || files.repeat(program))?;
    read_summary(&files.summary)
}

fn read_summary(path: &Path) -> Result<Summary> {
    let mut text = String::new();
    let from = file(path, File::open(path))?;
    file(path, from.take(SUMMARY_BYTES_MAX).read_to_string(&mut text))?;
    serde_json::from_str(&text)
        .map_err(|error| Error::Output { path: path.to_owned(), found: format!("not a summary: {error}") })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A program that does `script`, and the files of a run in a directory that lasts as long as they do.
    fn program(script: &str) -> (tempfile::TempDir, PathBuf, Files) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let program = at("program");
        symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program.sh"), &program).unwrap();
        std::fs::write(at("script"), script).unwrap();
        let files = Files {
            run: "r".into(),
            config: at("c.toml"),
            summary: at("r.json"),
            samples: at("r.csv"),
            requests: None,
            with: Vec::new(),
            log: at("r.log"),
        };
        (directory, program, files)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_failure_says_why_and_how_to_repeat_it() {
        let (_directory, program, files) =
            program("echo first >&2; echo 'port 7 is in use' >&2; echo >&2; exit 2");
        let error = run(&program, &files, MINUTE, &AtomicBool::new(false), |_| Ok(())).unwrap_err();
        let repeat = format!("{} up --config {} --json", program.display(), files.config.display());
        assert_eq!(error.to_string(), format!("run r: port 7 is in use; to repeat it: {repeat}"));
    }

    #[test]
    fn a_silent_failure_is_told_by_its_status() {
        let (_directory, program, files) = program("exit 3");
        let error =
            run(&program, &files, MINUTE, &AtomicBool::new(false), |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("ended with exit status: 3"), "{error}");
    }

    #[test]
    fn a_child_is_ended_when_the_lab_is_stopped_or_the_time_is_up() {
        let (directory, program, files) = program(
            "trap 'touch drained; exit 0' TERM; cd \"$(dirname \"$0\")\"; while :; do sleep 0.02; done",
        );
        let error = run(&program, &files, MINUTE, &AtomicBool::new(true), |_| Ok(())).unwrap_err();
        assert!(matches!(error, Error::Interrupted));

        let error =
            run(&program, &files, Duration::from_secs(2), &AtomicBool::new(false), |_| Ok(())).unwrap_err();
        assert!(matches!(error, Error::TooLong { .. }));
        assert!(directory.path().join("drained").exists());
    }

    #[test]
    fn what_is_no_summary_is_refused() {
        let (_directory, program, files) = program("echo '{\"seconds\": 1}'");
        let error =
            run(&program, &files, MINUTE, &AtomicBool::new(false), |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("r.json: not a summary: missing field `requests`"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let (directory, _, files) = program("");
        let missing = directory.path().join("missing");
        let error =
            run(&missing, &files, MINUTE, &AtomicBool::new(false), |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("missing: cannot be started: No such file"), "{error}");
    }

    #[test]
    fn samples_are_read() {
        let (_directory, _, files) = program("");
        std::fs::write(&files.samples, "t_s,site,nodes,nodes_busy\n0.1,a,3,2.75\n0.1,b,5,0\n").unwrap();
        let samples = files.read_samples().unwrap();
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[0], Sample { t_s: 0.1, site: "a".into(), nodes_busy: 2.75 });
    }

    #[test]
    fn requests_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("requests.csv");
        let columns = "due_s,sent_s,site,edge,client,outcome,response_ms";
        let lines =
            "0.1,0.2,a,edge1,0,answered,5.5\n0.3,0.3,a,edge2,7,closed,0.1\n0.3,0.3,a,edge1,7,failed,0";
        std::fs::write(&path, format!("{columns}\n{lines}\n")).unwrap();
        let requests = read_requests(&path).unwrap();
        let fates: Vec<_> = requests.iter().map(|request| request.fate).collect();
        assert_eq!(fates, [Fate::Answered, Fate::Rejected, Fate::Failed]);
        let first = Request {
            due_s: 0.1,
            sent_s: 0.2,
            site: "a".into(),
            edge: "edge1".into(),
            fate: fates[0],
            response_ms: 5.5,
        };
        assert_eq!(requests[0], first);
        std::fs::write(&path, format!("{columns}\n0.1,0.2,a,edge1,0,lost,5.5\n")).unwrap();
        assert!(read_requests(&path).is_err());
    }
}
