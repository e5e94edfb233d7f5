//! The node that is sampled: `sidelong node` with a cluster file made for it. By that file it has the machine to
//! itself, so that its record is the machine's under every scheme.

use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sidelong_config::{
    ClusterFile, EdgeEntry, Fabric, Identity, Load, NodeEntry, Scheme, Service, SiteEntry, default_run_dir,
};
use sidelong_fabric::RunDirectory;

use sidelong_app::Event;
use sidelong_app::Failure;

/// Time for the node to be ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// Time for it to end before it is killed.
const END_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);
/// Bytes of its last output that are shown.
const WORDS_MAX: i64 = 1 << 12;
const NAME: &str = "n1";
/// Its cluster file.
const CONFIG: &str = "perf.toml";
const LOG: &str = "node.log";

/// The cluster of one node, as both sides see it.
pub(super) struct Ground {
    pub(super) file: ClusterFile,
    run: RunDirectory,
}

impl Ground {
    /// A cluster whose node's load is collected by `scheme`, and refreshed every `period` if one of its threads does
    /// that.
    pub(super) fn new(scheme: Scheme, period: Duration) -> Result<Self, Failure> {
        let name = format!("perf-load-{}", std::process::id());
        let run = RunDirectory::open(default_run_dir(&name))?;
        let [origin, edge] = free_ports()?;
        let mut file = ClusterFile {
            cluster: Identity { name, fabric: Fabric::Shm, ..Identity::default() },
            load: Load { period, proc_period: period, ..Load::default() },
            sites: vec![SiteEntry::new("a", "a.example", 1)],
            nodes: vec![NodeEntry { service: Some(Service::None), ..NodeEntry::new(NAME, 1, origin) }],
            edges: vec![EdgeEntry::new("reader", edge)],
            ..ClusterFile::default()
        };
        file.set_scheme(scheme);
        Ok(Ground { file, run })
    }

    /// Starts the node on the caller's CPU, and waits until it is ready.
    pub(super) fn start(&self) -> Result<Node, Failure> {
        self.run.replace(CONFIG, self.file.to_toml()?.as_bytes())?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", NAME, "--events", "--config"]).arg(self.run.path().join(CONFIG));
        command.arg(format!("--with-parent={}", std::process::id()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(self.run.create(LOG)?);
        // Ctrl-C goes to this side, which ends the other.
        let mut node = Node(command.process_group(0).spawn()?);
        match node.await_ready()? {
            Event::Ready => Ok(node),
            Event::Failed { reason } => Err(Failure(reason)),
            _ => Err(Failure(format!("the node did not start: {}", last_words(&self.run)))),
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // It was made for this and holds nothing else.
        self.run.remove();
    }
}

/// Two ports that are free now. The edge's is only for the file.
fn free_ports() -> Result<[SocketAddr; 2], Failure> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (listen()?, listen()?);
    Ok([one.local_addr()?, other.local_addr()?])
}

fn last_words(run: &RunDirectory) -> String {
    let mut words = Vec::new();
    if let Ok(mut log) = run.read(LOG) {
        // A shorter log has no such place, and is read from its beginning.
        let _ = log.seek(SeekFrom::End(-WORDS_MAX));
        let _ = log.take(WORDS_MAX as u64).read_to_end(&mut words);
    }
    let tail = String::from_utf8_lossy(&words);
    let line = tail.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("it said nothing").to_owned()
}

/// The process, which ends when this is dropped.
pub(super) struct Node(Child);

impl Node {
    /// Its first event, ready or not; a note if it ended without either.
    fn await_ready(&mut self) -> Result<Event, Failure> {
        let Some(out) = self.0.stdout.take() else { return Err(Failure::new("the node has no output")) };
        let (tell, told) = sync_channel(1);
        // This thread reads the pipe until the node ends, so that the node can always write.
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

    /// Fails if it has ended: its memory would stay, and would still be measured.
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
