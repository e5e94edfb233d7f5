//! `sidelong top`: the cluster as htop shows a machine.
//!
//! It reads the nodes' records and words over the fabric as an edge does, links to them for reading only, and takes part in
//! nothing.

mod asking;
mod column;
mod controls;
mod look;
mod report;
mod screen;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use sidelong_app::Parts;
use sidelong_app::{history, roster};
use sidelong_config::{Cluster, Fabric};
use sidelong_fabric::RunDirectory;
use sidelong_layout::NodeId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cluster;
use crate::duration::interval;
use crate::failure::{Failure, say};
use crate::page::Terminal;
use crate::running::running;
use controls::{Controls, Wish};
use look::{Look, Looker, Status};
use sidelong_app::Monitor;

pub(crate) use asking::{Asking, Documents};
pub(crate) use column::Column;

#[derive(Args)]
#[command(after_help = TOP_KEYS)]
pub(crate) struct TopArgs {
    /// Cluster file [default: that of the `sidelong up` that runs on this machine, or /etc/sidelong/cluster.toml].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override `cluster.fabric` (auto, shm, tcp, verbs). It must be the value that the cluster uses.
    #[arg(long, value_name = "FABRIC")]
    pub(crate) fabric: Option<Fabric>,
    /// Time between scans (100ms, 1s).
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "100ms")]
    pub(crate) interval: Duration,
    /// Sort by a column: node, site, run, cpu%, mem%, conns, queue, busy, req/s, net/s, age, state [default: node].
    #[arg(long, value_name = "COLUMN", default_value = "node", hide_default_value = true)]
    pub(crate) sort: Column,
    /// Show only nodes whose name, site or state contains TEXT.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
    /// Print a table once and exit.
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once, print one JSON object (docs/top.md).
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}

const TOP_KEYS: &str = "\
Keys: ? help, F6 or s choose the sort column, < and > sort by the column before or after, I reverse,
/ filter, Space or z freeze, arrows scroll, q quit.

Exit codes: 0; 2 if no cluster runs or none of its nodes answers.

Examples:
  sidelong top
  sidelong top --interval 1s --sort cpu% --filter alpha
  sidelong top --once --json";

/// If no node is heard within this time, the cluster does not run.
const FIRST_MAX: Duration = Duration::from_secs(2);
/// Once one is heard, `--once` waits this long for the others.
const OTHERS_MAX: Duration = Duration::from_secs(1);
/// Interval of scans while nodes are awaited.
const AWAIT_EVERY: Duration = Duration::from_millis(5);
/// Time in which a signal is noticed.
const SIGNAL_EVERY: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    if !args.once && !Terminal::is_there() {
        return Err(Failure::new(
            "standard output is not a terminal: use `sidelong top --once` to print a table",
        ));
    }
    let file = match &args.config {
        Some(file) => file.clone(),
        None => running()?,
    };
    let cluster = cluster::cluster(&file, args.fabric)?;
    refuse_absent(&cluster, &file)?;
    let mut top = Top::new(Parts::new(cluster)?, &file)?;
    let mut controls = Controls::new(args.sort, &args.filter);
    if args.once {
        top.await_all();
        std::thread::sleep(args.interval);
        top.look();
        let look = top.looker.latest();
        say(if args.json { report::json(look)? } else { report::plain(look, &controls) })
    } else {
        top.show(&mut controls, args.interval)
    }
}

/// Refuses a cluster on this machine without a run directory: no part of it runs, and a reader must not create one.
pub(crate) fn refuse_absent(cluster: &Cluster, file: &Path) -> Result<(), Failure> {
    if cluster.secret.is_some() || cluster.run_dir.is_dir() {
        return Ok(());
    }
    Err(not_running(cluster, file, &format!("{} is not there", cluster.run_dir.display())))
}

pub(crate) fn not_running(cluster: &Cluster, file: &Path, why: &str) -> Failure {
    let (name, file) = (&cluster.name, file.display());
    let run = RunDirectory::at(&cluster.run_dir);
    if roster::Roster::read(&run).is_some_and(|roster| roster.is_alive(&run)) {
        return Failure::new(format!(
            "{why}, and other parts of {name} run: start it by `sidelong node NAME --config {file}`"
        ));
    }
    let all = match cluster.etcd {
        None => format!(", or all of them by `sidelong up --config {file}`"),
        // They are on several machines.
        Some(_) => String::new(),
    };
    Failure::new(format!(
        "no node of cluster {name} is heard: {why}; start its parts, such as by `sidelong node NAME --config {file}`{all}"
    ))
}

struct Top {
    monitor: Monitor,
    looker: Looker,
    /// `None` if there is nothing to ask.
    asking: Option<Asking>,
    run: RunDirectory,
    cluster: Cluster,
}

impl Top {
    /// Opens a running cluster.
    fn new(parts: Parts, file: &Path) -> Result<Self, Failure> {
        let mut top = Top::of(&parts)?;
        if !top.await_fresh(FIRST_MAX, |fresh, _| fresh > 0) {
            let first = parts.cluster.nodes.entries().next().map_or(0, |(slot, _)| slot);
            let node = NodeId::new(first);
            let age = top.looker.latest().nodes.first().and_then(|node| node.age);
            let why = match (age, top.monitor.problem(node)) {
                (Some(age), _) => format!("what {} said is {} old", parts.node_name(node), column::age(age)),
                (None, Some(problem)) => problem.to_owned(),
                (None, None) => format!("{} has said nothing yet", parts.node_name(node)),
            };
            return Err(not_running(&parts.cluster, file, &why));
        }
        top.asking = Asking::start(&parts.cluster)?;
        Ok(top)
    }

    /// Has seen nothing yet, and asks nobody.
    fn of(parts: &Parts) -> Result<Self, Failure> {
        let scheme = parts.scheme()?.scheme.to_string();
        Ok(Top {
            monitor: Monitor::new(parts)?,
            looker: Looker::new(&parts.cluster, scheme, parts.fabric.name()),
            asking: None,
            run: parts.run.clone(),
            cluster: parts.cluster.clone(),
        })
    }

    /// Begins anew if the parts go by another roster.
    fn follow(&mut self) {
        let newest = roster::epoch(&self.run).filter(|_| self.cluster.has_roster());
        let Some(newest) = newest.filter(|newest| *newest > self.cluster.epoch) else { return };
        // One that cannot be looked at is tried once.
        self.cluster.epoch = newest;
        let anew = || -> Result<Top, Failure> {
            let parts = Parts::new(roster::current(self.cluster.clone())?)?;
            Ok(Top { asking: Asking::start(&parts.cluster)?, ..Top::of(&parts)? })
        };
        match anew() {
            Ok(top) => *self = top,
            Err(Failure(why)) => {
                tracing::warn!("the cluster has changed, and cannot be looked at anew: {why}")
            }
        }
    }

    fn look(&mut self) {
        self.follow();
        self.monitor.look();
        self.looker.take(&self.monitor);
        let fronts = self.cluster.fronts.values();
        let edges = || fronts.clone().map(|front| front.name.as_str()).chain([history::BY_HAND]);
        self.looker.explain(|within| history::recent(&self.run, edges(), within));
        if let Some(asking) = &self.asking {
            self.looker.hear(asking.latest());
        }
    }

    /// Scans until `enough` of all nodes are fresh, for at most `time`; returns whether they are.
    fn await_fresh(&mut self, time: Duration, enough: impl Fn(usize, &Look) -> bool) -> bool {
        let deadline = Instant::now() + time;
        loop {
            self.look();
            let look = self.looker.latest();
            if enough(look.count(Status::Fresh), look) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(AWAIT_EVERY);
        }
    }

    fn await_all(&mut self) {
        self.await_fresh(OTHERS_MAX, |fresh, look| {
            fresh == look.nodes.len() && look.nodes.iter().all(|node| node.ownership.is_some())
        });
    }

    /// Shows pages until the user quits.
    fn show(mut self, controls: &mut Controls, interval: Duration) -> Result<(), Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let mut terminal = Terminal::open()?;
        let mut frozen: Option<(Look, Instant)> = None;
        let mut due = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now >= due {
                self.look();
                // A fixed rate; missed scans are skipped.
                due = (due + interval).max(Instant::now());
            }
            let (look, since) = match &frozen {
                Some((look, since)) => (look, Some(since.elapsed())),
                None => (self.looker.latest(), None),
            };
            terminal.draw(|frame| screen::page(frame, look, controls, since))?;
            let wait = due.saturating_duration_since(Instant::now()).min(SIGNAL_EVERY);
            // All pending keys, before the page is drawn once.
            let mut next = terminal.key(wait)?;
            while let Some(key) = next {
                match controls.key(&key) {
                    Wish::Quit => return Ok(()),
                    Wish::Freeze => {
                        frozen = match frozen {
                            Some(_) => None,
                            None => Some((self.looker.latest().clone(), Instant::now())),
                        };
                    }
                    Wish::Nothing => {}
                }
                next = terminal.key(Duration::ZERO)?;
            }
            // Also between two pages: figures that fluctuate are means over a second.
            self.monitor.look();
        }
        Ok(())
    }
}
