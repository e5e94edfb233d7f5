//! `sidelong node`, `edge` and `front`: one part of a cluster file, in this process.

use std::ffi::OsStr;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;
use listenfd::ListenFd;
use sidelong_app::edge::{self, EdgeOptions};
use sidelong_app::node::{self, NodeOptions};
use sidelong_app::{Event, Events, PartSpec, Running, Shutdown, front};
use sidelong_config::{Cluster, ClusterFile, Fabric};
use sidelong_fabric::RunDirectory;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator;

use crate::cluster::{self, INSTALLED};
use crate::completion;
use crate::event;
use crate::failure::Failure;
use crate::reload;
use crate::supervisor;
use sidelong_harness::parent::{self, end_with_parent};

#[derive(Args)]
#[command(after_help = PART_END)]
pub(crate) struct PartArgs {
    /// Cluster file.
    #[arg(long, value_name = "FILE", default_value = INSTALLED)]
    pub(crate) config: PathBuf,
    /// Its name in the cluster file.
    #[arg(add = completion::parts())]
    pub(crate) name: String,
    /// Override `cluster.fabric` (auto, shm, tcp, verbs). All parts of a cluster must use the same value.
    #[arg(long, value_name = "FABRIC")]
    pub(crate) fabric: Option<Fabric>,
    /// Print events as JSON lines on standard output.
    #[arg(long)]
    pub(crate) events: bool,
    /// Exit when the parent process does; with PID, exit at once unless PID is the parent.
    #[arg(long, value_name = "PID", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub(crate) with_parent: Option<i32>,
    /// Move a node into this control group, whose load is then the node's.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) join_cgroup: Option<PathBuf>,
}

/// Exit code of an edge that cannot take over from the process that runs it, so that this is to be stopped first.
const STOP_FIRST: u8 = 3;

#[derive(Args)]
#[command(after_help = EDGE_END)]
pub(crate) struct EdgeArgs {
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Take over from the process that runs this edge on this machine, if there is one. That ends once its clients have left.
    #[arg(long)]
    pub(crate) takeover: bool,
}

const PART_END: &str = "\
SIGTERM and SIGINT stop it, SIGTERM once the requests in flight are answered. SIGHUP has all parts adopt the changed cluster
file (sidelong reload).
It logs to standard error: SIDELONG_LOG=info logs more, SIDELONG_LOG_FORMAT=json logs JSON (docs/running.md).

Examples:
  sidelong node n1 --config cluster.toml";

const EDGE_END: &str = "\
SIGTERM and SIGINT stop it, SIGTERM once the requests in flight are answered. SIGHUP has all parts adopt the changed cluster
file (sidelong reload). On SIGUSR1 it opens its access log anew.
It logs to standard error: SIDELONG_LOG=info logs more, SIDELONG_LOG_FORMAT=json logs JSON (docs/running.md).

With --takeover no connection is refused and no request is lost. The process before serves the connections that it has, each until its
next response, and ends once they are closed. If a third process takes over, the first ends as by SIGTERM. If the process before is to be
stopped first, as over RDMA, the command changes nothing and exits with 3.

Examples:
  sidelong edge edge1 --config cluster.toml
  sidelong edge edge1 --config cluster.toml --takeover";

/// Runs a node.
pub(crate) fn node(args: &PartArgs) -> Result<(), Failure> {
    end_with_parent(args.with_parent)?;
    let signals = Signals::take()?;
    let cluster = read(args)?;
    let _held = parent::hold(args.with_parent, &cluster)?;
    // Each command of a site gets SIGTERM when this process ends.
    let (own, id) = (std::env::current_exe()?, std::process::id().to_string());
    let runner = [own.as_os_str(), "exec".as_ref(), "--with-parent".as_ref(), id.as_ref(), "--".as_ref()];
    let options = NodeOptions {
        listener: None,
        join_cgroup: args.join_cgroup.clone(),
        runner: runner.map(OsStr::to_owned).into(),
        ..NodeOptions::default()
    };
    let node = node::start(spec(args, cluster), options)?;
    follow(signals, &node, &args.config)?;
    node.wait()
}

/// Runs an edge.
pub(crate) fn edge(EdgeArgs { part: args, takeover }: &EdgeArgs) -> Result<ExitCode, Failure> {
    end_with_parent(args.with_parent)?;
    // One that waits to take over is ended by a signal, and takes nothing over.
    let signals = (!takeover).then(Signals::take).transpose()?;
    // Without a handler the signal would end the edge.
    let access_log_reopen = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGUSR1, Arc::clone(&access_log_reopen))?;
    let cluster = read(args)?;
    let _held = parent::hold(args.with_parent, &cluster)?;
    let entry = cluster.edges.iter().find(|edge| edge.name == args.name);
    let listener = entry.map(|edge| handed_over(&edge.name, edge.listen)).transpose()?.flatten();
    let stop_first = Arc::new(AtomicBool::new(false));
    let options = EdgeOptions {
        listener,
        access_log_reopen,
        takes_over: *takeover,
        stop_first: Arc::clone(&stop_first),
    };
    let edge = match edge::start(spec(args, cluster), options) {
        Err(Failure(why)) if stop_first.load(Ordering::Relaxed) => {
            tracing::error!("{why}");
            if args.events {
                event::print(&Event::Failed { reason: why });
            }
            return Ok(ExitCode::from(STOP_FIRST));
        }
        started => started?,
    };
    follow(signals.map_or_else(Signals::take, Ok)?, &edge, &args.config)?;
    edge.wait().map(|()| ExitCode::SUCCESS)
}

/// Runs a front.
pub(crate) fn front(args: &PartArgs) -> Result<(), Failure> {
    end_with_parent(args.with_parent)?;
    let signals = Signals::take()?;
    let cluster = read(args)?;
    let _held = parent::hold(args.with_parent, &cluster)?;
    let front = front::start(spec(args, cluster))?;
    follow(signals, &front, &args.config)?;
    front.wait()
}

/// Has a part that has started go by the signals, and what supervises it hear of it.
pub(crate) fn follow(signals: Signals, part: &Running, config: &Path) -> io::Result<()> {
    signals.pass_on(part.shutdown(), config)?;
    supervisor::started(part.pulse())
}

fn spec(args: &PartArgs, cluster: Cluster) -> PartSpec {
    let prints = args.events;
    let events: Events = Arc::new(move |event| {
        if *event == Event::Ready {
            supervisor::ready();
        }
        if prints {
            event::print(event);
        }
    });
    PartSpec { cluster, name: args.name.clone(), events }
}

/// The signals that a part goes by, which from now on wait to be passed on.
pub(crate) struct Signals(iterator::Signals);

impl Signals {
    /// Starts no thread, so that a node may still drop its privileges.
    pub(crate) fn take() -> io::Result<Self> {
        Ok(Signals(iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?))
    }

    /// SIGTERM lets requests in flight end, SIGINT does not. SIGHUP has all parts adopt the file `config`.
    fn pass_on(mut self, shutdown: Shutdown, config: &Path) -> io::Result<()> {
        let config = config.to_owned();
        let pass_on = move || {
            for signal in self.0.forever() {
                match signal {
                    SIGTERM => {
                        supervisor::stopping();
                        shutdown.finish();
                    }
                    SIGINT => {
                        supervisor::stopping();
                        shutdown.cut();
                    }
                    _ => reload::hang_up(&config),
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(pass_on)?;
        Ok(())
    }
}

/// The cluster of a part's arguments.
pub(crate) fn read(args: &PartArgs) -> Result<Cluster, Failure> {
    let path = &args.config;
    let mut file = match (args.with_parent, path.parent(), path.file_name().and_then(OsStr::to_str)) {
        // Its parent wrote it to the run directory, so it is opened with the same checks.
        (Some(1..), Some(run), Some(name)) => {
            let named = |error| Failure::new(format!("cannot read {}: {error}", path.display()));
            ClusterFile::of_file(RunDirectory::at(run).read(name).map_err(named)?, path)?
        }
        _ => cluster::load_own(path)?,
    };
    file.cluster.fabric = args.fabric.unwrap_or(file.cluster.fabric);
    Ok(file.cluster()?)
}

/// The socket at `listen` that this process was started with (sd_listen_fds(3)), if it was started with any.
fn handed_over(name: &str, listen: SocketAddr) -> Result<Option<TcpListener>, Failure> {
    let mut handed = ListenFd::from_env();
    let refused = |found: &str| {
        Failure::new(format!(
            "edge {name}: LISTEN_FDS hands over {found}; expected a listening TCP socket at {listen}"
        ))
    };
    for index in 0..handed.len() {
        let taken = handed.take_tcp_listener(index);
        let Some(listener) = taken.map_err(|_| refused("what is none"))? else {
            continue;
        };
        let address = listener.local_addr()?;
        if address == listen || address.ip().is_unspecified() && address.port() == listen.port() {
            return Ok(Some(listener));
        }
    }
    if handed.len() > 0 { Err(refused("others")) } else { Ok(None) }
}
