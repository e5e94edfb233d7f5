//! The processes of a cluster, started and watched over by `up`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::event::Event;
use crate::failure::Failure;

/// A process has this long to say that it is ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// A process that was told to end has this long.
const END_MAX: Duration = Duration::from_secs(5);
/// Pauses before a process that died is started again: the first, doubled up to the last.
const RESTART: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));
/// One that lived longer than this begins with the first pause again.
const RESTART_FORGET: Duration = Duration::from_secs(30);
/// Events that wait to be heard at most; then whoever tells them waits, which is a thread for that alone.
const EVENTS_MAX: usize = 4096;
/// Of what a process says on standard error, the end that is kept.
const WORDS_MAX: usize = 4096;

/// What a process told, or that it ended.
pub(super) type Told = (usize, Option<Event>);

/// All processes of the cluster.
pub(super) struct Children {
    parts: Vec<Part>,
    program: PathBuf,
    config: PathBuf,
    logs: PathBuf,
    told: Receiver<Told>,
    tell: SyncSender<Told>,
}

struct Part {
    kind: &'static str,
    name: String,
    group: Option<PathBuf>,
    child: Option<Child>,
    ready: bool,
    started: Instant,
    pause: Duration,
    restart_at: Option<Instant>,
}

impl Children {
    /// Of this program, on the cluster file `config`; what they say beside events goes to `logs`/NAME.log.
    pub(super) fn new(config: &Path, logs: &Path) -> Result<Self, Failure> {
        let (tell, told) = sync_channel(EVENTS_MAX);
        let program = std::env::current_exe()?;
        let (config, logs) = (config.to_owned(), logs.to_owned());
        Ok(Children { parts: Vec::new(), program, config, logs, told, tell })
    }

    /// Starts one more: a `kind` (node, edge) of that name, in the control group `group` if there is one.
    pub(super) fn start(
        &mut self,
        kind: &'static str,
        name: &str,
        group: Option<PathBuf>,
    ) -> Result<(), Failure> {
        self.parts.push(Part {
            kind,
            name: name.to_owned(),
            group,
            child: None,
            ready: false,
            started: Instant::now(),
            pause: RESTART.0,
            restart_at: None,
        });
        self.spawn(self.parts.len() - 1)
    }

    fn spawn(&mut self, index: usize) -> Result<(), Failure> {
        let part = &mut self.parts[index];
        let log = self.logs.join(format!("{}.log", part.name));
        let log = std::fs::File::create(&log)
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", log.display())))?;
        let mut child = Command::new(&self.program)
            .args([part.kind, &part.name, "--events", "--config"])
            .arg(&self.config)
            .arg(format!("--with-parent={}", std::process::id()))
            .args(part.group.iter().flat_map(|group| ["--join-cgroup".as_ref(), group.as_os_str()]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C is for `up`, which then ends its parts in order.
            .process_group(0)
            .spawn()?;
        let told = self.tell.clone();
        if let Some(lines) = child.stdout.take() {
            std::thread::Builder::new().name("events".into()).spawn(move || {
                for line in BufReader::new(lines).lines().map_while(Result::ok) {
                    if let Ok(event) = serde_json::from_str(&line) {
                        let _ = told.send((index, Some(event)));
                    }
                }
                let _ = told.send((index, None));
            })?;
        }
        part.child = Some(child);
        part.ready = false;
        part.started = Instant::now();
        Ok(())
    }

    /// Waits until all are ready.
    ///
    /// # Errors
    /// With the words of the first that ended instead, or that took too long.
    pub(super) fn await_ready(&mut self, mut stop: impl FnMut() -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + READY_MAX;
        while let Some(slow) = self.parts.iter().find(|part| !part.ready) {
            if stop() {
                return Err(Failure::new("interrupted while the cluster was starting"));
            }
            if Instant::now() > deadline {
                let (kind, name) = (slow.kind, &slow.name);
                let seconds = READY_MAX.as_secs();
                return Err(Failure::new(format!("{kind} {name} was not ready within {seconds} s")));
            }
            match self.told.recv_timeout(Duration::from_millis(100)) {
                Ok((index, Some(Event::Ready))) => self.parts[index].ready = true,
                Ok((_, Some(Event::Failed { reason }))) => return Err(Failure::new(reason)),
                Ok((index, None)) => return Err(Failure::new(self.last_words(index))),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("no part is running")),
            }
        }
        Ok(())
    }

    /// What was told since the last call; ended processes are noted, and started again when their pause is over.
    pub(super) fn poll(&mut self) -> Vec<(String, Told)> {
        let told: Vec<_> = self.told.try_iter().collect();
        for (index, _) in told.iter().filter(|(_, event)| event.is_none()) {
            let part = &mut self.parts[*index];
            if let Some(mut child) = part.child.take() {
                let _ = child.wait();
            }
            if part.started.elapsed() > RESTART_FORGET {
                part.pause = RESTART.0;
            }
            part.restart_at = Some(Instant::now() + part.pause);
            part.pause = (part.pause * 2).min(RESTART.1);
        }
        for index in 0..self.parts.len() {
            if self.parts[index].restart_at.is_some_and(|at| Instant::now() >= at) {
                self.parts[index].restart_at = None;
                if let Err(Failure(reason)) = self.spawn(index) {
                    tracing::error!(part = %self.parts[index].name, %reason, "cannot be started again");
                }
            }
        }
        told.into_iter().map(|told| (self.parts[told.0].name.clone(), told)).collect()
    }

    /// Ends them in the reverse of the order in which they were started: edges before nodes, so that what is under way
    /// finds its server. Whoever does not end in time is killed.
    pub(super) fn end(&mut self) {
        for kind in ["edge", "node"] {
            let parts = || self.parts.iter().filter(|part| part.kind == kind);
            for child in parts().filter_map(|part| part.child.as_ref()) {
                signal(child, Signal::TERM);
            }
            let deadline = Instant::now() + END_MAX;
            for child in self.parts.iter_mut().filter(|p| p.kind == kind).filter_map(|p| p.child.as_mut()) {
                while matches!(child.try_wait(), Ok(None)) {
                    if Instant::now() > deadline {
                        signal(child, Signal::KILL);
                        let _ = child.wait();
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        self.parts.clear();
    }

    /// Why a process ended, in its own words.
    fn last_words(&mut self, index: usize) -> String {
        let part = &mut self.parts[index];
        let status = part.child.take().and_then(|mut child| child.wait().ok());
        let mut words = String::new();
        if let Ok(log) = std::fs::File::open(self.logs.join(format!("{}.log", part.name))) {
            let _ = log.take(WORDS_MAX as u64).read_to_string(&mut words);
        }
        match words.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => line.trim_start_matches("sidelong: ").to_owned(),
            None => {
                let status = status.map_or_else(|| "an unknown status".to_owned(), |s| s.to_string());
                format!("{} {} ended with {status} and no word why", part.kind, part.name)
            }
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
