//! `sidelong up`: a whole shared data-center on this machine.
//!
//! It starts each node and each edge as a process of its own, puts the cluster file's workload on the edges, and looks on
//! from the side: what the screen shows of nodes is read from their memory, as an edge does it.

mod admissions;
mod bursts;
mod children;
mod outcome;
mod plain;
mod requests;
mod samples;
mod screen;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidelong_config::{self as config, Cluster, ClusterFile};
use sidelong_workload::client::{Generator, Live, Run};

use crate::cgroup::Groups;
use crate::cli::UpArgs;
use crate::event::Event;
use crate::failure::{Failure, say, some};
use crate::monitor::Monitor;
use crate::page::Terminal;
use crate::parent::await_left_behind;
use crate::parts::Parts;
use admissions::{Admissions, Told};
use bursts::Bursts;
use children::Children;
use outcome::{Outcome, StepTimes};
use requests::Requests;
use samples::Samples;

/// Between two looks from the side.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Between two lines where there is no terminal, and what a terminal's figures are averaged over.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Between two frames on a terminal.
const FRAME_EVERY: Duration = Duration::from_millis(100);
/// Moves that are remembered for the screen.
const MOVES_SHOWN: usize = 64;

/// What is known while the cluster runs, for whoever shows it.
pub(crate) struct Status<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) notes: &'a [String],
    pub(crate) elapsed: Duration,
    pub(crate) live: Option<&'a Live>,
    pub(crate) monitor: &'a Monitor,
    pub(crate) moves: u64,
    pub(crate) admissions: &'a Admissions,
    /// The latest, newest last: since the start, what happened.
    pub(crate) happened: &'a [(Duration, String)],
}

impl Status<'_> {
    /// Of a site, each second of late: as the load sees it, closed connections included; without one as the edges tell.
    pub(crate) fn rejected_per_s(&self, site: usize) -> u64 {
        match self.live {
            Some(live) => live.sites[site].turned_away_per_s.round() as u64,
            None => self.admissions.rejected_per_s(site),
        }
    }
}

/// With `quiet` it does not say that it is up.
pub(crate) fn run(args: &UpArgs, quiet: bool) -> Result<(), Failure> {
    let mut file = match &args.config {
        Some(path) => ClusterFile::load(path)?,
        None => ClusterFile::demo(),
    };
    file.cluster.fabric = args.fabric.unwrap_or(file.cluster.fabric);
    let parts = Parts::new(file.cluster()?)?;
    speaks_to_all(&parts.cluster)?;
    let run = parts.run.clone();
    let claim = run.claim()?;
    await_left_behind(&run)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let outcome = Up::start(args, quiet, &file, parts, stop).and_then(Up::run);
    // However it ended: the parts have ended too, and what they offered is of no use.
    let swept = run.sweep();
    drop(claim);
    let outcome = outcome?;
    let summary =
        if args.json { serde_json::to_string_pretty(&outcome)? + "\n" } else { outcome.to_string() };
    say(summary)?;
    swept.map_err(|error| Failure::new(format!("cannot clear {}: {error}", run.path().display())))
}

struct Up<'a> {
    args: &'a UpArgs,
    quiet: bool,
    parts: Parts,
    children: Children,
    // Goes after the processes in it.
    _groups: Option<Groups>,
    monitor: Monitor,
    samples: Option<Samples>,
    requests: Option<Requests>,
    load: Option<Run>,
    stop: Arc<AtomicBool>,
    steps: StepTimes,
    notes: Vec<String>,
    happened: Vec<(Duration, String)>,
    moves: u64,
    admissions: Admissions,
    began: Instant,
}

impl<'a> Up<'a> {
    fn start(
        args: &'a UpArgs,
        quiet: bool,
        file: &ClusterFile,
        parts: Parts,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        // The parts read what this process has read, whatever becomes of the user's file meanwhile.
        let config = parts.run.path().join("cluster.toml");
        write_private(&config, &file.to_toml()?)?;
        let steps = StepTimes::new(&parts.cluster);
        let bursts = match &parts.cluster.workload {
            Some(workload) => Some(Bursts::new(workload, &parts.cluster.sites, steps.clone())?),
            None => None,
        };
        let samples = args.samples.as_deref().map(Samples::create).transpose()?;

        // The kernel tells nodes of one machine apart by control groups, and holds them to their shares by them.
        let groups = match parts.cluster.load.scheme {
            config::Scheme::RdmaSync | config::Scheme::ERdmaSync if parts.shares_machine() => {
                Some(Groups::create()?)
            }
            _ if parts.cluster.nodes.iter().any(|node| node.cpu_share.is_some()) => Some(Groups::create()?),
            _ => None,
        };
        let mut children = Children::new(&config, parts.run.path())?;
        for (index, node) in parts.cluster.nodes.iter().enumerate() {
            let group = match &groups {
                Some(groups) if parts.kernel_scope(index, None).is_err() || node.cpu_share.is_some() => {
                    Some(groups.add(&node.name, node.cpu_share)?)
                }
                _ => None,
            };
            children.start("node", &node.name, group)?;
        }
        for edge in &parts.cluster.edges {
            children.start("edge", &edge.name, None)?;
        }
        children.await_ready(|| stop.load(Ordering::Relaxed))?;

        let monitor = Monitor::new(&parts)?;
        let requests =
            args.requests.as_deref().map(|path| Requests::create(path, &parts.cluster)).transpose()?;
        let load = match bursts {
            Some(bursts) => {
                let load = Generator::new(bursts.client_config(&parts.cluster), bursts)?;
                let load = match requests.clone() {
                    Some(requests) => load.observe(move |request| requests.take(request)),
                    None => load,
                };
                Some(load.start()?)
            }
            None => None,
        };
        Ok(Up {
            args,
            quiet,
            notes: vec![parts.fabric.note().to_owned()],
            admissions: Admissions::new(parts.cluster.sites.iter().map(|site| site.name.clone())),
            parts,
            children,
            monitor,
            samples,
            requests,
            load,
            stop,
            steps,
            _groups: groups,
            happened: Vec::new(),
            moves: 0,
            began: Instant::now(),
        })
    }

    fn run(mut self) -> Result<Outcome, Failure> {
        let json = self.args.json;
        let mut screen = match Terminal::is_there() && !json && !self.args.plain {
            true => Some(screen::Screen::open()?),
            false => None,
        };
        if screen.is_none() && !self.quiet {
            // Where nobody reads it, it runs all the same.
            let _ = writeln!(std::io::stderr(), "{}", greeting(&self.parts.cluster));
        }
        let show_every = if screen.is_some() { FRAME_EVERY } else { LINE_EVERY };
        let (mut live, mut live_at, mut shown_at) = (None, Instant::now(), Instant::now());
        while !self.is_over() {
            std::thread::sleep(LOOK_EVERY);
            self.monitor.look();
            let news = self.hear();
            if screen.is_none() && !json {
                plain::tell(&news)?;
            }
            if let Some(samples) = &mut self.samples {
                samples.take(self.began.elapsed(), &self.parts.cluster, &mut self.monitor)?;
            }
            if live_at.elapsed() >= LINE_EVERY {
                live = self.load.as_mut().map(Run::live);
                live_at = Instant::now();
            }
            if shown_at.elapsed() >= show_every {
                shown_at = Instant::now();
                let status = self.status(live.as_ref());
                match &mut screen {
                    Some(screen) => {
                        screen.draw(&status)?;
                        if screen.wants_to_quit()? {
                            self.stop.store(true, Ordering::Relaxed);
                        }
                    }
                    None if !json => plain::print(&status)?,
                    None => {}
                }
            }
        }
        drop(screen);
        self.end()
    }

    /// Stops the load, lets what is under way finish, and ends the parts.
    fn end(mut self) -> Result<Outcome, Failure> {
        let summary = match self.load.take() {
            Some(load) => {
                load.stopper().stop();
                Some(load.wait()?)
            }
            None => None,
        };
        self.monitor.look();
        let _ = self.hear();
        self.children.end();
        if let Some(samples) = &mut self.samples {
            samples.finish()?;
        }
        if let Some(requests) = &self.requests {
            requests.finish()?;
        }
        let (moves, admissions) = (self.moves, &self.admissions);
        Ok(Outcome::new(&self.parts.cluster, summary, &self.monitor, moves, admissions, &self.steps))
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.args.duration.is_some_and(|time| self.began.elapsed() >= time)
            || self.load.as_ref().is_some_and(Run::is_finished)
    }

    /// Takes in what the parts have told. Returns what a log is to say of it: all that happened, but how nodes moved, which
    /// is counted there.
    fn hear(&mut self) -> Vec<(Duration, String)> {
        let mut news = Vec::new();
        for (part, (_, event)) in self.children.poll() {
            let is_move = matches!(event, Some(Event::Moved { .. } | Event::Ended { node: Some(_), .. }));
            let text = match event {
                None => {
                    self.admissions.ended(&part);
                    format!("{part} ended; it is started again")
                }
                Some(Event::Ready) => format!("{part} is ready"),
                Some(Event::Failed { reason }) => format!("{part} failed: {reason}"),
                Some(Event::Note { text }) => {
                    let note = format!("{part}: {text}");
                    if !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                    continue;
                }
                Some(Event::Moved { node, from, to, took_ns, .. }) => {
                    self.moves += 1;
                    let from = from.unwrap_or_else(|| "free".to_owned());
                    format!("{node} moved {from} → {to} in {:.2} ms by {part}", took_ns as f64 / 1e6)
                }
                Some(Event::FirstRequest { site, at_ns, .. }) => {
                    self.steps.first_request(&site, at_ns);
                    continue;
                }
                // Two edges race for most moves; the one that comes second is no news.
                Some(Event::Ended { how, .. }) if how == "busy" || how == "recent" => continue,
                Some(Event::Ended { site, node, how, .. }) => match node {
                    Some(node) => format!("{node} did not move to {site}: {how}"),
                    None => format!("{site} repaired by {part}: {how}"),
                },
                Some(Event::Health { node, up: false, .. }) => format!("{node} taken out by {part}"),
                Some(Event::Health { node, up: true, .. }) => format!("{node} taken back by {part}"),
                Some(Event::Admission { site, rejected, why, met, .. }) => {
                    match self.admissions.take(&part, &site, Told { rejected, why, met }) {
                        Some(news) => news,
                        None => continue,
                    }
                }
                Some(Event::View { stale: true, .. }) => {
                    format!("{part} routes by itself: its view is old")
                }
                Some(Event::View { stale: false, .. }) => format!("{part} has a fresh view again"),
            };
            let at = self.began.elapsed();
            if !is_move {
                news.push((at, text.clone()));
            }
            self.happened.push((at, text));
        }
        let surplus = self.happened.len().saturating_sub(MOVES_SHOWN);
        self.happened.drain(..surplus);
        news
    }

    fn status<'s>(&'s self, live: Option<&'s Live>) -> Status<'s> {
        Status {
            cluster: &self.parts.cluster,
            notes: &self.notes,
            elapsed: self.began.elapsed(),
            live,
            monitor: &self.monitor,
            moves: self.moves,
            admissions: &self.admissions,
            happened: &self.happened,
        }
    }
}

/// # Errors
/// Where the load would come to nothing: it does not speak TLS.
fn speaks_to_all(cluster: &Cluster) -> Result<(), Failure> {
    let over_tls = cluster.edges.iter().find(|edge| edge.tls.is_some() && cluster.workload.is_some());
    over_tls.map_or(Ok(()), |edge| {
        let name = &edge.name;
        let how = "leave out [workload], and put a load on it yourself, or the edge's tls";
        Err(Failure::new(format!("{name} speaks TLS, which the load of `up` does not: {how}")))
    })
}

/// What runs, and where to knock.
fn greeting(cluster: &Cluster) -> String {
    let edges: Vec<_> = cluster.edges.iter().map(|edge| edge.listen.to_string()).collect();
    format!(
        "sidelong: {} is up: {} on {} behind {}; Ctrl-C ends it",
        cluster.name,
        some(cluster.sites.len(), "site"),
        some(cluster.nodes.len(), "node"),
        edges.join(" and "),
    )
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}
