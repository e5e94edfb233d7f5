//! The processes of a cluster, started and watched over by `up`.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::process::Process;
use crate::serving::listens;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, kill_process_group, pidfd_open};
use sidelong_fabric::RunDirectory;
use sidelong_os::CpuUsed;

use crate::up::foreign::Foreign;
use crate::up::home::Home;
use sidelong_app::Event;
use sidelong_app::Failure;
use sidelong_app::roster::Roster;

/// Longest wait for a process to be ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a process to end after SIGTERM.
const END_MAX: Duration = Duration::from_secs(5);
/// Pauses before a process that died, or could not be started, is started again: the first, doubled up to the last.
const RESTART: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));
/// A process that lived longer than this begins with the first pause again.
const RESTART_FORGET: Duration = Duration::from_secs(30);
/// Most events in the queue; beyond it the thread that reads a process's events waits.
const EVENTS_MAX: usize = 4096;
/// Longest wait for what a process that has ended told last.
const LAST_MAX: Duration = Duration::from_secs(1);
/// Most bytes of a log that are read for why its process ended: the last ones.
const WORDS_MAX: i64 = 4096;
/// The directory of the settings of programs of other makes, in the run directory.
const FOREIGN: &str = "foreign";
/// The kinds of parts, in the order in which they end: requests in flight find their node.
const KINDS: [&str; 6] = ["proxy", "edge", "front", "cache", "node", "server"];

/// What a thread that reads a process's events tells: the process's index, and an event, or `None` when it has ended.
type Told = (usize, Option<Event>);

/// News of a process.
pub(super) enum News {
    Event(Event),
    /// It has ended, with this status.
    Ended(String),
    /// It has left the cluster, and ended.
    Left,
}

/// All processes of the cluster.
pub(super) struct Children {
    parts: Vec<Part>,
    program: PathBuf,
    config: PathBuf,
    run: RunDirectory,
    told: Receiver<Told>,
    tell: SyncSender<Told>,
}

struct Part {
    kind: &'static str,
    name: String,
    group: Option<PathBuf>,
    /// A program of another make. It is ready when it answers, and tells no events.
    foreign: Option<Box<dyn Foreign>>,
    child: Option<Process>,
    ready: bool,
    started: Instant,
    pause: Duration,
    restart_at: Option<Instant>,
    /// When it is killed, because it was told to end.
    kill_at: Option<Instant>,
    /// Why it could not be started, as was told.
    trouble: Option<String>,
}

impl Children {
    /// Processes of this program on the cluster file `config`, which log to NAME.log in `run`.
    pub(super) fn new(config: &Path, run: &RunDirectory) -> Result<Self, Failure> {
        let (tell, told) = sync_channel(EVENTS_MAX);
        let program = std::env::current_exe()?;
        let (config, run) = (config.to_owned(), run.clone());
        Ok(Children { parts: Vec::new(), program, config, run, told, tell })
    }

    /// Starts a `kind` (node, edge, front, cache) of that name, in the control group `group` if there is one.
    pub(super) fn start(
        &mut self,
        kind: &'static str,
        name: &str,
        group: Option<PathBuf>,
    ) -> Result<(), Failure> {
        self.add(kind, name.to_owned(), group, None)
    }

    /// Starts a program of another make as a `kind` (server, proxy), in the control group `group` if there is one.
    pub(super) fn start_foreign(
        &mut self,
        kind: &'static str,
        foreign: impl Foreign + 'static,
        group: Option<PathBuf>,
    ) -> Result<(), Failure> {
        self.add(kind, foreign.name(), group, Some(Box::new(foreign)))
    }

    fn add(
        &mut self,
        kind: &'static str,
        name: String,
        group: Option<PathBuf>,
        foreign: Option<Box<dyn Foreign>>,
    ) -> Result<(), Failure> {
        self.parts.push(Part {
            kind,
            name,
            group,
            foreign,
            child: None,
            ready: false,
            started: Instant::now(),
            pause: RESTART.0,
            restart_at: None,
            kill_at: None,
            trouble: None,
        });
        self.spawn(self.parts.len() - 1)
    }

    /// How this program is asked to be the part.
    fn arguments(&self, part: &Part) -> Result<Vec<OsString>, Failure> {
        let mut arguments: Vec<OsString> = match part.foreign {
            Some(_) => vec!["exec".into()],
            None => {
                let config = self.config.clone().into();
                vec![part.kind.into(), (&part.name).into(), "--events".into(), "--config".into(), config]
            }
        };
        arguments.push(format!("--with-parent={}", std::process::id()).into());
        if let Some(group) = &part.group {
            arguments.extend(["--join-cgroup".into(), group.into()]);
        }
        if let Some(foreign) = &part.foreign {
            arguments.push("--".into());
            // Written anew each time, for the run directory may have gone.
            arguments.extend(foreign.command(&self.run.path().join(FOREIGN))?);
        }
        Ok(arguments)
    }

    fn spawn(&mut self, index: usize) -> Result<(), Failure> {
        let part = &self.parts[index];
        let name = log_name(part);
        let arguments = self.arguments(part)?;
        let log = self.run.create(&name).map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", self.run.path().join(name).display()))
        })?;
        // Such a program tells no events, and nobody would read what else it prints.
        let output = if part.foreign.is_some() { Stdio::null() } else { Stdio::piped() };
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log)
            // Ctrl-C is for `up`, which then ends its parts in order.
            .process_group(0);
        let mut child = Process::spawn(&mut command)?;
        let told = self.told_by(index, &mut child);
        if let Err(error) = told {
            // Nobody would hear that it has ended.
            child.kill();
            return Err(error.into());
        }
        let part = &mut self.parts[index];
        part.child = Some(child);
        part.ready = false;
        part.started = Instant::now();
        Ok(())
    }

    /// Starts the thread that hears what a process tells, and then that it has ended.
    fn told_by(&self, index: usize, child: &mut Process) -> io::Result<()> {
        let told = self.tell.clone();
        let lines = child.take_stdout();
        let ends = match self.parts[index].foreign {
            Some(_) => Some(pidfd_open(child.pid(), PidfdFlags::empty())?),
            None => None,
        };
        let hear = move || {
            if let Some(ends) = ends {
                // A signal to this process may come to this thread.
                while poll(&mut [PollFd::new(&ends, PollFlags::IN)], None) == Err(Errno::INTR) {}
            } else {
                for line in
                    lines.into_iter().flat_map(|lines| BufReader::new(lines).lines()).map_while(Result::ok)
                {
                    if let Ok(event) = serde_json::from_str(&line) {
                        let _ = told.send((index, Some(event)));
                    }
                }
            }
            let _ = told.send((index, None));
        };
        std::thread::Builder::new().name("events".into()).spawn(hear).map(drop)
    }

    /// Waits until all are ready.
    ///
    /// # Errors
    /// If one ended instead, with its last line, or took too long.
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
            for part in self.parts.iter_mut().filter(|part| !part.ready) {
                part.ready = part.foreign.as_ref().is_some_and(|foreign| listens(&foreign.address()));
            }
            match self.told.recv_timeout(Duration::from_millis(10)) {
                Ok((index, Some(Event::Ready))) => self.parts[index].ready = true,
                Ok((_, Some(Event::Failed { reason }))) => return Err(Failure::new(reason)),
                Ok((index, None)) => return Err(Failure::new(self.last_words(index))),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("no part is running")),
            }
        }
        Ok(())
    }

    /// The news since the last call, with the name of the process. Processes that ended are restarted after their pause, and
    /// tried again after another where that fails.
    pub(super) fn poll(&mut self, home: &mut Home) -> Vec<(String, News)> {
        let now = Instant::now();
        home.look(now);
        let told = |(index, event): Told| {
            let part = &mut self.parts[index];
            let news = match event {
                Some(event) => {
                    part.ready |= matches!(event, Event::Ready);
                    News::Event(event)
                }
                None => {
                    let status = part.ended(now);
                    let is_part = ["node", "edge", "front", "cache"].contains(&part.kind);
                    let has_left =
                        |newest: &Roster| !newest.has(&part.name) || newest.standing.caches.ends(&part.name);
                    match Roster::read(&self.run).filter(|_| is_part) {
                        Some(newest) if has_left(&newest) => {
                            part.restart_at = None;
                            News::Left
                        }
                        _ => News::Ended(status),
                    }
                }
            };
            (part.name.clone(), news)
        };
        let mut news: Vec<_> = self.told.try_iter().map(told).collect();
        for part in self.parts.iter_mut().filter(|part| part.kill_at.is_some_and(|at| now >= at)) {
            part.kill_at = None;
            part.child.iter().for_each(|child| child.signal(Signal::KILL));
        }
        for index in 0..self.parts.len() {
            if self.parts[index].restart_at.is_none_or(|at| now < at) {
                continue;
            }
            let trouble = match home.restore() {
                Ok(true) => {
                    self.tell_to_end(now);
                    let path = home.run.path().display();
                    Some(format!("{path} was gone: it is made again, and all parts are restarted"))
                }
                Ok(false) => None,
                Err(Failure(reason)) => Some(reason),
            };
            let trouble = trouble.or_else(|| self.spawn(index).err().map(|Failure(reason)| reason));
            let part = &mut self.parts[index];
            match &trouble {
                None => part.restart_at = None,
                Some(_) => part.put_off(now),
            }
            if let Some(reason) = &trouble
                && trouble != part.trouble
            {
                let reason = format!("{reason}; trying again");
                news.push((part.name.clone(), News::Event(Event::Failed { reason })));
            }
            part.trouble = trouble;
        }
        news
    }

    /// Lets all processes end, and be restarted.
    fn tell_to_end(&mut self, now: Instant) {
        for part in &mut self.parts {
            if let Some(child) = &part.child {
                child.signal(Signal::TERM);
                part.kill_at = Some(now + END_MAX);
            }
        }
    }

    /// Sends a signal to the edges, which handle it from when they are ready.
    pub(super) fn signal_edges(&self, sent: Signal) {
        let edges = self.parts.iter().filter(|part| part.kind == "edge" && part.ready);
        edges.filter_map(|part| part.child.as_ref()).for_each(|edge| edge.signal(sent));
    }

    /// CPU time so far of the processes of these kinds.
    pub(super) fn cpu_used(&self, kinds: &[&str]) -> CpuUsed {
        let parts = self.parts.iter().filter(|part| kinds.contains(&part.kind));
        CpuUsed::of_families(parts.filter_map(|part| Some(part.child.as_ref()?.id())))
    }

    /// Ends all processes, kind after kind. One that does not end in time is killed. Returns what they told since the last
    /// [`Children::poll`].
    pub(super) fn end(&mut self) -> Vec<Event> {
        for kind in KINDS {
            let parts = || self.parts.iter().filter(|part| part.kind == kind);
            for child in parts().filter_map(|part| part.child.as_ref()) {
                child.signal(Signal::TERM);
            }
            let deadline = Instant::now() + END_MAX;
            for child in self.parts.iter_mut().filter(|p| p.kind == kind).filter_map(|p| p.child.as_mut()) {
                child.await_end(deadline);
            }
        }
        let mut untold = self.parts.iter().filter(|part| part.child.is_some()).count();
        let mut last = Vec::new();
        while untold > 0 {
            match self.told.recv_timeout(LAST_MAX) {
                Ok((_, Some(event))) => last.push(event),
                Ok((_, None)) => untold -= 1,
                Err(_) => break,
            }
        }
        self.parts.clear();
        // There is none without programs of other makes.
        let _ = std::fs::remove_dir_all(self.run.path().join(FOREIGN));
        last
    }

    /// Why a process ended: the last line of its log.
    fn last_words(&mut self, index: usize) -> String {
        let part = &mut self.parts[index];
        let status = part.status();
        let mut words = Vec::new();
        if let Ok(mut log) = self.run.read(&log_name(part)) {
            // A shorter log has no such place, and is read from its beginning.
            let _ = log.seek(SeekFrom::End(-WORDS_MAX));
            let _ = log.take(WORDS_MAX as u64).read_to_end(&mut words);
        }
        let words = String::from_utf8_lossy(&words);
        match words.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => line.trim_start_matches("sidelong: ").to_owned(),
            None => {
                let log = self.run.path().join(log_name(part));
                format!("{} {} exited with {status}; see {}", part.kind, part.name, log.display())
            }
        }
    }
}

impl Part {
    /// Its process has ended. Returns its status.
    fn ended(&mut self, now: Instant) -> String {
        let status = self.status();
        if now.duration_since(self.started) > RESTART_FORGET {
            self.pause = RESTART.0;
        }
        (self.ready, self.kill_at) = (false, None);
        self.put_off(now);
        status
    }

    /// Waits for its process, which is ending: "signal: 9 (SIGKILL)", for example.
    fn status(&mut self) -> String {
        let status = self.child.take().and_then(|mut child| {
            // The workers of a program that was killed may live on, and keep its port.
            if self.foreign.is_some() {
                let _ = kill_process_group(child.pid(), Signal::KILL);
            }
            child.ended()
        });
        status.map_or_else(|| "an unknown status".to_owned(), |status| status.to_string())
    }

    /// It is started again after its pause, which doubles.
    fn put_off(&mut self, now: Instant) {
        self.restart_at = Some(now + self.pause);
        self.pause = (self.pause * 2).min(RESTART.1);
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

fn log_name(part: &Part) -> String {
    format!("{}.log", part.name)
}
