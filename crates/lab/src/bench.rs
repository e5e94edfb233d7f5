//! An experiment under way: its directory, its ports, its progress.

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sidelong_config::ClusterFile;
use sidelong_harness::ports;
use sidelong_harness::usage::Usage;

use crate::error::{Error, Result, file};
use crate::experiment::Experiment;
use crate::process::{Process, finish, quoted};
use crate::samples::Samples;
use crate::setup::{Demand, Ground, PORTS, Run};
use crate::table::Table;
use crate::up::{self, Files, Request, Summary};

/// A run may take this many times its ideal duration.
const SLOWER_MAX: u32 = 5;
/// A run gets this much time in addition, for starting and draining.
const OVERHEAD_MAX: Duration = Duration::from_secs(60);

/// How to run an experiment.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Results go to a directory in this one that has the experiment's ID. Both are made.
    pub out: PathBuf,
    /// Whether to make fewer and shorter runs: the same comparisons, coarser.
    pub quick: bool,
    /// How often to make all runs. None leaves it to the experiment: once, or some rounds.
    pub repeat: Option<u32>,
    /// Directory with real traces for C1, L1, K6 and K7. Without it, C1 and L1 use the built-in sample alone, and the others a generated trace.
    pub traces: Option<PathBuf>,
    /// The `sidelong-lab` program: `std::env::current_exe()` if the caller is it.
    pub program: PathBuf,
    /// Reads what uses the machine: [`Usage::read`], except in tests.
    pub usage: fn() -> Usage,
    /// Raised (by a signal handler, for example) to stop the lab: it ends the current run and returns
    /// [`Error::Interrupted`].
    pub stop: Arc<AtomicBool>,
}

/// How far an experiment is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress<'a> {
    /// Runs that are done.
    pub done: usize,
    /// Runs in all at most. A search may end early.
    pub total: usize,
    /// The run that starts now, by the name of its files. Empty when all are done.
    pub run: &'a str,
    /// Estimated time for the other runs, at their ideal speed.
    pub remaining: Duration,
}

/// What an experiment is carried out with.
pub(crate) struct Bench<'a> {
    pub(crate) experiment: &'static Experiment,
    pub(crate) options: &'a RunOptions,
    progress: &'a mut dyn FnMut(Progress<'_>),
    directory: PathBuf,
    pub(crate) ground: Ground,
    /// Keeps other labs from writing to this directory.
    _lock: Lock,
    begun: Instant,
    done: usize,
    /// Ideal durations of the runs that are still to come.
    ahead: VecDeque<Duration>,
    /// How often all runs are made, and the current repetition, from 1.
    pub(crate) repetitions: u32,
    pub(crate) repetition: u32,
    /// The current run, and the usage when it began.
    running: (String, Usage),
    /// The largest share of the CPU time that others took during a run.
    others_share: f64,
    /// The reasons why runs are spoilt, since [`Bench::take_spoilt`] was last called.
    spoilt: Vec<String>,
    /// What a declared experiment has measured so far.
    pub(crate) samples: Samples,
    /// The rows.csv of a declared experiment.
    rows: Option<Table>,
    /// The reasons why each of its repetitions is spoilt.
    spoilt_repetitions: Vec<Vec<String>>,
}

/// The outcome of a run.
pub(crate) struct Done {
    pub(crate) summary: Summary,
    pub(crate) files: Files,
}

impl<'a> Bench<'a> {
    /// Makes the experiment's directory and the files that it serves, and finds ports.
    pub(crate) fn open(
        experiment: &'static Experiment,
        options: &'a RunOptions,
        progress: &'a mut dyn FnMut(Progress<'_>),
    ) -> Result<Self> {
        let directory = options.out.join(experiment.id);
        for part in ["configs", "runs"] {
            let path = directory.join(part);
            file(&path, fs::create_dir_all(&path))?;
        }
        // The cluster files name the served files, and must work from any directory.
        let directory = file(&directory, directory.canonicalize())?;
        let lock = lock(&directory)?;
        let ground = Ground {
            name: cluster_name(experiment, &directory),
            port: ports::free(PORTS, std::process::id())?,
            root: None,
        };
        Ok(Bench {
            experiment,
            options,
            progress,
            directory,
            ground,
            _lock: lock,
            begun: Instant::now(),
            done: 0,
            ahead: VecDeque::new(),
            repetitions: 1,
            repetition: 1,
            running: (String::new(), Usage::default()),
            others_share: 0.0,
            spoilt: Vec::new(),
            samples: Samples::new(&[], &[], &[]),
            rows: None,
            spoilt_repetitions: Vec::new(),
        })
    }

    /// Prepares for the samples of a declared experiment, of `repeat` repetitions unless the options say otherwise.
    pub(crate) fn record(&mut self, samples: Samples, repeat: u32) -> Result<()> {
        self.repetitions = self.options.repeat.unwrap_or(repeat).max(1);
        let mut rows = self.table("rows.csv")?;
        rows.write(samples.columns())?;
        (self.samples, self.rows) = (samples, Some(rows));
        Ok(())
    }

    /// Makes all repetitions. `round` makes one, whose runs have these ideal durations.
    pub(crate) fn rounds(
        &mut self,
        plan: &[Duration],
        mut round: impl FnMut(&mut Bench<'a>) -> Result<()>,
    ) -> Result<()> {
        (0..self.repetitions).for_each(|_| plan.iter().for_each(|time| self.expect_for(*time)));
        for repetition in 1..=self.repetitions {
            self.repetition = repetition;
            self.samples.begin();
            round(self)?;
            let spoilt = self.take_spoilt();
            self.spoilt_repetitions.push(spoilt);
        }
        Ok(())
    }

    /// The cases that the experiment has declared.
    pub(crate) fn cases(&self) -> Vec<String> {
        self.samples.cases(&self.samples.all()).into_iter().map(str::to_owned).collect()
    }

    /// Lets `all` take turns in this repetition. Their order alternates with the repetition: see [`order`].
    pub(crate) fn in_turn<T: Clone>(
        &mut self,
        all: &[T],
        mut turn: impl FnMut(&mut Bench<'a>, T) -> Result<()>,
    ) -> Result<()> {
        for one in order(all, self.repetition) {
            self.go_on()?;
            turn(self, one)?;
        }
        Ok(())
    }

    /// Makes a run of `round-N`, in which `all` take turns.
    pub(crate) fn round_of<T: Clone>(
        &mut self,
        all: &[T],
        turn: impl FnMut(&mut Bench<'a>, T) -> Result<()>,
    ) -> Result<()> {
        self.begin(&format!("round-{}", self.repetition));
        self.in_turn(all, turn)?;
        self.end();
        Ok(())
    }

    /// Records the figures of a case in this repetition, and writes its line of rows.csv.
    pub(crate) fn sample(
        &mut self,
        case: &str,
        values: impl IntoIterator<Item = (&'static str, f64)>,
    ) -> Result<()> {
        self.samples.put(case, values);
        let row = self.samples.row(case, self.samples.repetitions() - 1);
        row.zip(self.rows.as_mut()).map_or(Ok(()), |(row, rows)| rows.write(row))
    }

    /// Records what was found of the machine or of what is measured, as a setting that the design has declared.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<serde_json::Value>) {
        *self.samples.settings.get_mut(name).expect("a setting is declared") = value.into();
    }

    /// All samples, and why each repetition is spoilt.
    pub(crate) fn recorded(&mut self) -> (Samples, Vec<Vec<String>>) {
        (self.samples.clone(), std::mem::take(&mut self.spoilt_repetitions))
    }

    /// The choice of two for quick runs and for runs in full.
    pub(crate) fn either<T: Copy>(&self, [full, quick]: [T; 2]) -> T {
        if self.options.quick { quick } else { full }
    }

    /// The largest share of the CPU time that others took during a run, in percent.
    pub(crate) fn others_percent(&self) -> u32 {
        (100.0 * self.others_share).ceil() as u32
    }

    /// Creates the real file that `demand` asks for, if any.
    pub(crate) fn serve(&mut self, demand: Demand) -> Result<()> {
        self.ground.root = files_to_serve(&self.directory, demand)?;
        Ok(())
    }

    /// The name of a run in this repetition, with the repetition's number if there are several.
    pub(crate) fn name(&self, name: impl Into<String>) -> String {
        let name = name.into();
        if self.repetitions == 1 { name } else { format!("{name}-{}", self.repetition) }
    }

    /// Announces a run, for the progress.
    pub(crate) fn expect_for(&mut self, duration: Duration) {
        self.ahead.push_back(duration);
    }

    /// Begins the next announced run.
    pub(crate) fn begin(&mut self, name: &str) {
        self.report(name);
        self.running = (name.to_owned(), (self.options.usage)());
    }

    /// Ends the current run.
    pub(crate) fn end(&mut self) {
        let (name, before) = &self.running;
        let now = (self.options.usage)();
        self.others_share = self.others_share.max(now.others_since(before));
        let why = now.spoilt_since(before);
        self.spoilt.extend(why.map(|why| format!("run {name}: {why}")));
        self.done += 1;
        self.skip();
    }

    /// Whether the lab is to go on.
    ///
    /// # Errors
    /// If it was stopped.
    pub(crate) fn go_on(&self) -> Result<()> {
        if self.options.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Takes the reasons why runs since the last call are spoilt.
    pub(crate) fn take_spoilt(&mut self) -> Vec<String> {
        std::mem::take(&mut self.spoilt)
    }

    /// Skips the next announced run.
    pub(crate) fn skip(&mut self) {
        self.ahead.pop_front();
        if self.ahead.is_empty() {
            self.report("");
        }
    }

    /// Makes `run`, the next announced one, and waits for its end.
    pub(crate) fn run(&mut self, run: &Run) -> Result<Done> {
        let name = self.name(run.name());
        self.begin(&name);
        let (cluster_file, _) = run.plan(&self.ground)?;
        let (summary, files) = self.up(&name, &run.describe(), &cluster_file, run.ideal_duration())?;
        self.end();
        Ok(Done { summary, files })
    }

    /// Runs `up` with a cluster and waits for its end, which should come after `time`.
    pub(crate) fn up(
        &self,
        name: &str,
        about: &str,
        cluster: &ClusterFile,
        time: Duration,
    ) -> Result<(Summary, Files)> {
        self.up_with(self.files(name), about, cluster, time, |_| Ok(()))
    }

    /// Runs `up` with options, as [`Bench::up`], and reads the outcome of each request.
    pub(crate) fn up_by_request(
        &self,
        with: &[&str],
        name: &str,
        about: &str,
        cluster: &ClusterFile,
        time: Duration,
    ) -> Result<(Summary, Vec<Request>)> {
        let path = self.path(&format!("runs/{name}.requests.csv"));
        let files = Files { requests: Some(path.clone()), ..self.files_with(with, name) };
        let (summary, _) = self.up_with(files, about, cluster, time, |_| Ok(()))?;
        Ok((summary, up::read_requests(&path)?))
    }

    /// Runs `up`, as [`Bench::up`], with options for what takes the place of the built-in origin and of the edges.
    pub(crate) fn up_on(
        &self,
        with: &[&str],
        name: &str,
        about: &str,
        cluster: &ClusterFile,
        time: Duration,
    ) -> Result<Summary> {
        self.up_beside(with, name, about, cluster, time, |_| Ok(()))
    }

    /// Runs `up`, as [`Bench::up_on`], beside what `beside` starts when it is given the process of `up`. It is kept until the
    /// end.
    pub(crate) fn up_beside<T>(
        &self,
        with: &[&str],
        name: &str,
        about: &str,
        cluster: &ClusterFile,
        time: Duration,
        beside: impl FnOnce(&mut Process) -> Result<T>,
    ) -> Result<Summary> {
        self.up_with(self.files_with(with, name), about, cluster, time, beside).map(|(summary, _)| summary)
    }

    fn up_with<T>(
        &self,
        files: Files,
        about: &str,
        cluster: &ClusterFile,
        time: Duration,
        beside: impl FnOnce(&mut Process) -> Result<T>,
    ) -> Result<(Summary, Files)> {
        let repeat = files.repeat(&self.options.program);
        let about = format!("# {}: {about}.\n# To repeat it: {repeat}\n", self.experiment.id);
        let written = fs::write(&files.config, format!("{about}\n{}", cluster.to_toml()?));
        file(&files.config, written)?;

        let limit = time * SLOWER_MAX + OVERHEAD_MAX;
        let summary = up::run(&self.options.program, &files, limit, &self.options.stop, beside)?;
        if summary.requests == summary.errors + summary.rejected {
            let said = format!("no request was answered, {} errors", summary.errors);
            return Err(Error::Failed { run: files.run, said, repeat });
        }
        Ok((summary, files))
    }

    /// Tries `cluster`. Returns the reason if its nodes cannot be held to shares of this machine.
    pub(crate) fn shares_refused(&self, cluster: &ClusterFile, time: Duration) -> Result<Option<String>> {
        match self.up("try-shares", "whether nodes can be held to shares", cluster, time) {
            Ok(_) => Ok(None),
            Err(Error::Failed { said, .. }) if said.contains("control group") => {
                Ok(Some(said.strip_prefix("sidelong: ").unwrap_or(&said).to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    /// The command of a part of a cluster, such as an edge, that ends with the lab.
    pub(crate) fn part(&self, kind: &str, name: &str, config: &Path) -> Command {
        let mut command = Command::new(&self.options.program);
        command.args([kind, name, "--with-parent", "--config"]).arg(config);
        command
    }

    /// Runs a command to its end, which may take as long as `limit`. What it prints is `runs/NAME.EXTENSION`, whose path is returned.
    pub(crate) fn output(
        &self,
        command: Command,
        name: &str,
        extension: &str,
        limit: Duration,
    ) -> Result<PathBuf> {
        let [output, log] = [extension, "log"].map(|end| self.path(&format!("runs/{name}.{end}")));
        let words = [command.get_program()].into_iter().chain(command.get_args());
        let repeat = words.map(|word| quoted(word.as_ref())).collect::<Vec<_>>().join(" ");
        let mut process = Process::start(command, &output, &log)?;
        finish(&mut process, name, &log, limit, &self.options.stop, || repeat)?;
        Ok(output)
    }

    /// The path of a result file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Creates a table in the results directory.
    pub(crate) fn table(&self, name: &str) -> Result<Table> {
        Table::create(self.path(name))
    }

    /// Writes a result file atomically.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<()> {
        let (path, part) = (self.path(name), self.path(&format!("{name}.part")));
        let write = || {
            let mut to = fs::File::create(&part)?;
            to.write_all(content.as_bytes())?;
            fs::rename(&part, &path)
        };
        file(&path, write())
    }

    /// The command that repeats the experiment.
    pub(crate) fn command(&self) -> String {
        let RunOptions { program, out, traces, .. } = self.options;
        self.command_with(program, out, traces.as_deref())
    }

    /// The command that repeats the experiment, for documentation: names stand in place of paths on this machine.
    pub(crate) fn command_shown(&self) -> String {
        let traces = self.options.traces.as_ref().map(|_| Path::new("traces"));
        self.command_with(Path::new("sidelong-lab"), Path::new("results"), traces)
    }

    fn command_with(&self, program: &Path, out: &Path, traces: Option<&Path>) -> String {
        let quick = if self.options.quick { " --quick" } else { "" };
        let repeat = self.options.repeat.map_or_else(String::new, |count| format!(" --repeat {count}"));
        let traces = traces.map_or_else(String::new, |traces| format!(" --traces {}", quoted(traces)));
        let (program, out) = (quoted(program), quoted(out));
        format!("{program} run {} --out {out}{quick}{repeat}{traces}", self.experiment.id)
    }

    /// Time since the experiment began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn into_directory(self) -> PathBuf {
        self.directory
    }

    fn report(&mut self, run: &str) {
        (self.progress)(Progress {
            done: self.done,
            total: self.done + self.ahead.len(),
            run,
            remaining: self.ahead.iter().sum(),
        });
    }

    fn files_with(&self, with: &[&str], run: &str) -> Files {
        Files { with: with.iter().map(|&word| word.to_owned()).collect(), ..self.files(run) }
    }

    fn files(&self, run: &str) -> Files {
        let output = |extension: &str| self.directory.join("runs").join(format!("{run}.{extension}"));
        Files {
            run: run.to_owned(),
            config: self.directory.join("configs").join(format!("{run}.toml")),
            summary: output("json"),
            samples: output("csv"),
            requests: None,
            with: Vec::new(),
            log: output("log"),
        }
    }
}

/// The order in which some systems take their turns in a repetition, from 1: each second repetition in reverse, and the next two from
/// another one on. So each is as often before another one as after it, and a drift of the machine favours none.
pub(crate) fn order<T: Clone>(all: &[T], repetition: u32) -> Vec<T> {
    let (pair, is_reverse) = ((repetition.max(1) - 1) / 2, repetition.is_multiple_of(2));
    let mut order = all.to_vec();
    order.rotate_left(pair as usize % all.len().max(1));
    if is_reverse {
        order.reverse();
    }
    order
}

/// The lock of a results directory, held until it is dropped.
struct Lock(fs::File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is starting has it open for a moment, too.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Claims `directory` for as long as what it returns lives.
fn lock(directory: &Path) -> Result<Lock> {
    let path = directory.join("lock");
    let lock = file(&path, fs::OpenOptions::new().create(true).append(true).open(&path))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(lock)),
        Err(Errno::WOULDBLOCK) => Err(Error::Busy { directory: directory.to_owned() }),
        Err(errno) => file(&path, Err(errno.into())),
    }
}

/// A cluster name for each results directory. Two labs can run the same experiment, and the next lab here cleans up the run
/// directory that a killed one left.
fn cluster_name(experiment: &Experiment, directory: &Path) -> String {
    // FNV-1a. The hash names a directory and protects nothing.
    let hash = directory
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!("lab-{}-{hash:08x}", experiment.id.to_lowercase())
}

/// The real file that a single-file load asks for: the origin serves `/o/0/BYTES` from under its root.
fn files_to_serve(directory: &Path, demand: Demand) -> Result<Option<PathBuf>> {
    let Demand::SingleFile(bytes) = demand else { return Ok(None) };
    let root = directory.join("files");
    let objects = root.join("o").join("0");
    file(&objects, fs::create_dir_all(&objects))?;
    let path = objects.join(bytes.to_string());
    let line = b"Sidelong looks at servers from the side, without disturbing them.\n";
    let body: Vec<u8> = line.iter().copied().cycle().take(bytes as usize).collect();
    file(&path, fs::write(&path, body))?;
    Ok(Some(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_lab_s() {
        let directory = tempfile::tempdir().unwrap();
        let first = lock(directory.path()).unwrap();
        let error = lock(directory.path()).err().unwrap().to_string();
        assert!(error.contains("in use by another lab run"), "{error}");
        // A process that is being started has it open like this.
        let _inherited = first.0.try_clone().unwrap();
        drop(first);
        lock(directory.path()).unwrap();
    }

    #[test]
    fn each_is_as_often_before_another_one_as_after_it() {
        let orders: Vec<String> = (1..=6).map(|round| order(&["a", "b", "c"], round).concat()).collect();
        assert_eq!(orders, ["abc", "cba", "bca", "acb", "cab", "bac"]);
        let orders: Vec<String> = (1..=4).map(|round| order(&["a", "b"], round).concat()).collect();
        assert_eq!(orders, ["ab", "ba", "ba", "ab"]);
        assert!(order::<u32>(&[], 1).is_empty());
    }

    #[test]
    fn clusters_are_named_after_their_results() {
        let experiment = crate::experiments::find("R10").unwrap();
        let name = |path: &str| cluster_name(experiment, Path::new(path));
        assert_eq!(name("/tmp/a"), name("/tmp/a"));
        assert_ne!(name("/tmp/a"), name("/tmp/b"));
        assert!(name("/tmp/a").starts_with("lab-r10-"));
    }
}
