//! The node that is looked at: `sidelong node` of a cluster file made for it, which has this machine to itself as far as
//! that file says, so that its record is the machine's whatever the scheme.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sidelong_config::{
    ClusterFile, EdgeEntry, Fabric, Identity, Load, NodeEntry, Scheme, Service, SiteEntry, default_run_dir,
};

use crate::event::Event;
use crate::failure::Failure;

/// The node has this long to be ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// And to end; then it is made to.
const END_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);
/// Its last words, in bytes.
const WORDS_MAX: usize = 1 << 12;
const NAME: &str = "n1";

/// The cluster of one node, as both sides have it.
pub(super) struct Ground {
    pub(super) file: ClusterFile,
    run_dir: PathBuf,
}

impl Ground {
    /// With a node whose load is had by `scheme`, and refreshed every `period` where a thread does so.
    pub(super) fn new(scheme: Scheme, period: Duration) -> Result<Self, Failure> {
        let name = format!("perf-load-{}", std::process::id());
        let run_dir = default_run_dir(&name);
        let [origin, edge] = free_ports()?;
        let file = ClusterFile {
            cluster: Identity { name, fabric: Fabric::Shm, ..Identity::default() },
            load: Load { scheme, period, proc_period: period, ..Load::default() },
            sites: vec![SiteEntry::new("a", "a.example", 1)],
            nodes: vec![NodeEntry { service: Service::None, ..NodeEntry::new(NAME, 1, origin) }],
            edges: vec![EdgeEntry::new("reader", edge)],
            ..ClusterFile::default()
        };
        Ok(Ground { file, run_dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.run_dir.join(name)
    }

    /// Starts the node, on the CPU that the caller is held to, and waits until it is ready.
    pub(super) fn start(&self) -> Result<Node, Failure> {
        let (config, log) = (self.path("perf.toml"), self.path("node.log"));
        std::fs::write(&config, self.file.to_toml()?)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", NAME, "--events", "--config"]).arg(&config);
        command.arg(format!("--with-parent={}", std::process::id()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(std::fs::File::create(&log)?);
        // Ctrl-C is for this side, which ends the other.
        let mut node = Node(command.process_group(0).spawn()?);
        match node.await_ready()? {
            Event::Ready => Ok(node),
            Event::Failed { reason } => Err(Failure(reason)),
            _ => Err(Failure(format!("the node did not start: {}", last_words(&log)))),
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // It was made for this and holds nothing else.
        let _ = std::fs::remove_dir_all(&self.run_dir);
    }
}

/// Two that nobody listens at now. The edge's is for the file alone.
fn free_ports() -> Result<[SocketAddr; 2], Failure> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (listen()?, listen()?);
    Ok([one.local_addr()?, other.local_addr()?])
}

fn last_words(log: &std::path::Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(WORDS_MAX)..]).into_owned();
    let line = tail.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("it said nothing").to_owned()
}

/// The process, which ends with this.
pub(super) struct Node(Child);

impl Node {
    /// What it tells first of being ready or not; a note where it ended without either.
    fn await_ready(&mut self) -> Result<Event, Failure> {
        let Some(out) = self.0.stdout.take() else { return Err(Failure::new("the node has no output")) };
        let (tell, told) = sync_channel(1);
        // It stays with the pipe until the node ends, so that the node can always write.
        std::thread::Builder::new().name("node-events".into()).spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            let events = lines.filter_map(|line| serde_json::from_str::<Event>(&line).ok());
            for event in events {
                if matches!(event, Event::Ready | Event::Failed { .. }) {
                    let _ = tell.try_send(event);
                }
            }
        })?;
        match told.recv_timeout(READY_MAX) {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Disconnected) => Ok(Event::Note { text: String::new() }),
            Err(RecvTimeoutError::Timeout) => {
                Err(Failure(format!("the node was not ready within {} s", READY_MAX.as_secs())))
            }
        }
    }

    /// Fails where it has ended: its memory would stay, and be measured on.
    pub(super) fn is_there(&mut self) -> Result<(), Failure> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => {
                Err(Failure(format!("the node ended in the middle of the measurement, with {status}")))
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let begun = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && begun.elapsed() < END_MAX {
            std::thread::sleep(POLL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
