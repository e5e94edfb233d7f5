//! `sidelong up`: a whole shared data center on this machine, on a screen or as lines. [`sidelong_harness::up`] runs it.

mod args;
mod exec;
mod outcome;
mod plain;
mod screen;

use std::io::{IsTerminal as _, Write as _};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidelong_config::{Cluster, ClusterFile};
use sidelong_harness::up::{self, Demo, Listener, Prepared, Summary, Up};
use sidelong_workload::client::Live;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use crate::cluster::{self, with_nodes};
use crate::failure::{Failure, say, some};
use crate::hangup::Hangup;
use crate::page::Terminal;
use crate::top::{Asking, Documents};
pub(crate) use args::UpArgs;
pub(crate) use exec::{ExecArgs, exec};

/// Interval of lines without a terminal, and the window over which a terminal's figures are averaged.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Interval of frames on a terminal.
const FRAME_EVERY: Duration = Duration::from_millis(100);

/// The state of the running cluster, for display.
pub(crate) struct Status<'a> {
    of: up::Status<'a>,
    pub(crate) live: Option<&'a Live>,
    /// Each edge, if nodes keep documents.
    pub(crate) documents: Vec<Documents>,
}

impl<'a> Deref for Status<'a> {
    type Target = up::Status<'a>;

    fn deref(&self) -> &Self::Target {
        &self.of
    }
}

impl Status<'_> {
    /// Requests of a site rejected in a recent second, as the load sees it, including closed connections; without a
    /// load as the edges report.
    pub(crate) fn rejected_per_s(&self, site: usize) -> u64 {
        match self.live {
            Some(live) => live.sites[site].rejected_per_s.round() as u64,
            None => self.admissions.rejected_per_s(site),
        }
    }
}

/// Runs the cluster to its end. With `quiet` it prints no greeting.
pub(crate) fn run(args: &UpArgs, quiet: bool) -> Result<(), Failure> {
    let mut file = match (&args.config, args.demo) {
        (Some(path), _) => cluster::load_own(path)?,
        (None, Some(Demo::Auction)) => up::auction_cluster()?,
        (None, None) => ClusterFile::demo(),
    };
    if file.etcd.is_some() {
        return Err(Failure::new(
            "up runs a cluster on this machine alone, and etcd has the file of one on several: start its parts (sidelong node, edge, front)",
        ));
    }
    file.cluster.fabric = args.fabric.unwrap_or(file.cluster.fabric);
    with_nodes(file.cluster()?, args.config.as_deref().unwrap_or(Path::new("the demo")))?;
    let prepared = Prepared::new(args.options(quiet || args.json), file)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    // On a terminal, the terminal was closed; otherwise SIGHUP does not ask for an end.
    match std::io::stdout().is_terminal() || std::io::stderr().is_terminal() {
        true => _ = signal_hook::flag::register(SIGHUP, Arc::clone(&stop))?,
        false => Hangup::ignore()?.log()?,
    }
    let reopen = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGUSR1, Arc::clone(&reopen))?;
    let (summary, swept) = prepared.run(&stop, |up| show(args, quiet, up, &stop, &reopen))?;
    let summary =
        if args.json { serde_json::to_string_pretty(&summary)? + "\n" } else { outcome::table(&summary) };
    say(summary)?;
    swept
}

/// Shows the cluster until it is to end. `reopen` is set by SIGUSR1: the edges are to open their access logs anew.
fn show(
    args: &UpArgs,
    quiet: bool,
    mut up: Up<'_>,
    stop: &AtomicBool,
    reopen: &AtomicBool,
) -> Result<Summary, Failure> {
    let mut screen = match Terminal::is_there() && !args.json && !args.plain {
        true => Some(screen::Screen::open()?),
        false => None,
    };
    let asking = match up.status().cluster.cache.documents {
        true => Asking::start(up.status().cluster)?,
        false => None,
    };
    let page = page(args, up.status().cluster, up.listeners());
    if screen.is_none() && !quiet {
        // A closed standard error does not stop the cluster.
        let _ = writeln!(std::io::stderr(), "{}", greeting(up.status().cluster, up.listeners()));
        if let Some(page) = &page {
            let _ = writeln!(std::io::stderr(), "sidelong: {page}");
        }
    }
    page.into_iter().for_each(|page| up.note(page));
    let show_every = if screen.is_some() { FRAME_EVERY } else { LINE_EVERY };
    let (mut live, mut live_at, mut shown_at) = (None, Instant::now(), Instant::now());
    while !up.is_over() && args.duration.is_none_or(|time| up.elapsed() < time) {
        if reopen.swap(false, Ordering::Relaxed) {
            up.reopen_logs();
        }
        let news = up.step()?;
        if screen.is_none() && !args.json {
            plain::tell(&news)?;
        }
        if live_at.elapsed() >= LINE_EVERY {
            live = up.live();
            live_at = Instant::now();
        }
        if shown_at.elapsed() >= show_every {
            shown_at = Instant::now();
            let documents = asking.as_ref().map(|asking| asking.latest().documents).unwrap_or_default();
            let status = Status { of: up.status(), live: live.as_ref(), documents };
            match &mut screen {
                Some(screen) => {
                    screen.draw(&status)?;
                    if screen.wants_to_quit()? {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                None if !args.json => plain::print(&status)?,
                None => {}
            }
        }
    }
    drop(screen);
    up.end()
}

/// Where a person finds the pages of a demonstration.
fn page(args: &UpArgs, cluster: &Cluster, listeners: &[Listener]) -> Option<String> {
    let port = listeners.first().map(|listener| listener.address.port());
    let host = cluster.sites.values().next().map(|site| &site.hosts[0]);
    let page = args.demo.and(port).zip(host);
    page.map(|(port, host)| format!("open http://{host}:{port}/"))
}

/// What runs, and where clients connect.
fn greeting(cluster: &Cluster, listeners: &[Listener]) -> String {
    let listen_at = listeners.iter().map(|listener| match listener.make {
        Some(make) => format!("{make} at {}", listener.address),
        None => listener.address.to_string(),
    });
    let is_yours = |name: &str| listeners.iter().all(|listener| listener.name != name);
    let yours = cluster.fronts.values().filter(|front| is_yours(&front.name));
    // Where there is no proxy, the sites' addresses are listed.
    let yours = yours
        .filter_map(|front| front.controls.as_ref())
        .filter(|controls| controls.proxy != sidelong_config::Proxy::Connect);
    let yours = yours.map(|controls| format!("your {}", controls.proxy));
    let behind: Vec<_> = listen_at.chain(yours).collect();
    let caches: Vec<_> = cluster.cache.peers.iter().map(|peer| peer.listen.to_string()).collect();
    let caches = if caches.is_empty() { String::new() } else { format!(", caches at {}", caches.join(", ")) };
    format!(
        "sidelong: {} is up: {} on {} behind {}{caches}; press Ctrl-C to stop",
        cluster.name,
        some(cluster.sites.len(), "site"),
        some(cluster.nodes.len(), "node"),
        behind.join(" and "),
    )
}
