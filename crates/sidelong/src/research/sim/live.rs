//! `sidelong-lab sim live`: a simulated cooperative cache beside a live one, of processes of this machine that read each other's memory.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Host, RunDirectory};
use sidelong_policy::balance::Balance;
use sidelong_rams::{Map, Node, Object, Part, Played, play};
use sidelong_sim::cluster::{Cluster, Setup, home_of};
use sidelong_sim::config::{Config, Point};
use sidelong_sim::workload::Arrivals;
use sidelong_sim::{Model, Outcome};

use crate::failure::{Failure, say};

/// Most nodes, each a process.
const NODES_MAX: u32 = 64;
/// The longest wait until all nodes have found each other, and between two attempts.
const LINK_MAX: Duration = Duration::from_secs(30);
const LINK_PAUSE: Duration = Duration::from_millis(5);
/// What a node says when it has found the others, and is told then.
const READY: &str = "ready\n";
const GO: &[u8] = b"go\n";

/// A node's figures, in the line that it prints.
#[derive(Serialize, Deserialize)]
struct NodeTotals {
    took_ns: Vec<u64>,
    time_s: f64,
    here: u64,
    loads: u64,
    reads: u64,
    read_failures: u64,
    update_messages: u64,
    update_bytes: u64,
    refused: u64,
    wrong: u64,
    /// Warm-up included.
    requests: u64,
    turns: Option<Turns>,
}

/// What a node's thread did from the first request to the last answer.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Turns {
    /// It ran on a CPU.
    ran_ns: u64,
    /// It could have run, and waited for a CPU.
    waited_ns: u64,
    all_ns: u64,
}

/// The figures that both have.
#[derive(Clone, Copy, Serialize)]
struct Figures {
    requests: u64,
    requests_per_s: f64,
    response_ms_mean: f64,
    response_ms_p50: f64,
    response_ms_p99: f64,
    here_rate: f64,
    disk_rate: f64,
    read_rate: f64,
    read_failure_rate: f64,
    update_messages_per_request: f64,
    update_bytes_per_request: f64,
}

/// How the nodes shared the machine's CPUs, warm-up included.
#[derive(Clone, Copy, Serialize)]
struct Sharing {
    cpu_us_per_request: f64,
    /// Parts of the nodes' time: a node ran, and it waited for a CPU. In the rest it had nothing to do.
    running: f64,
    waiting: f64,
}

/// A run, simulated and live.
#[derive(Serialize)]
struct Pair<'a> {
    protocol: &'a str,
    eviction: &'a str,
    nodes: u32,
    simulated: Figures,
    live: Figures,
    /// None if the kernel does not count it.
    sharing: Option<Sharing>,
    /// Requests for objects that were too large for a message.
    refused: u64,
    /// Answers with other bytes than the object's.
    wrong: u64,
}

pub(super) fn run(file: &Path, set: &[String], json: bool) -> Result<(), Failure> {
    let config = Config::load(file, set)?;
    for (number, point) in config.points().iter().enumerate() {
        let setup = setup(point)?;
        let told = Nodes::start(file, set, number, &setup)?.play()?;
        let sum = |of: fn(&NodeTotals) -> u64| told.iter().map(of).sum::<u64>();
        let pair = Pair {
            protocol: point.get("protocol"),
            eviction: point.get("eviction"),
            nodes: setup.nodes,
            simulated: Figures::of(&Cluster::run(setup)),
            live: Figures::all(&told),
            sharing: Sharing::of(&told),
            refused: sum(|told| told.refused),
            wrong: sum(|told| told.wrong),
        };
        match json {
            true => say(format!("{}\n", serde_json::to_string(&pair)?))?,
            false => say(pair.table())?,
        }
    }
    Ok(())
}

/// The run of a point, if it can be live.
fn setup(point: &Point) -> Result<Setup, Failure> {
    let refuse = |what: &str| Err(Failure::new(format!("this cannot be run live: {what}")));
    if point.model() != Model::Cache {
        return refuse("run.model is not cache");
    }
    let setup = point.setup(Arc::new(point.requests()?))?;
    if !matches!(setup.arrivals, Arrivals::Closed { think_ns: 0, .. }) {
        return refuse("workload.arrivals is not closed, or workload.think_ms is not 0");
    }
    if setup.dispatch != Balance::RoundRobin {
        return refuse("cluster.dispatcher is not round-robin");
    }
    if setup.cache.notes_max > 0 {
        return refuse("cluster.notes_max is not 0");
    }
    if !(2..=NODES_MAX).contains(&setup.nodes) {
        return refuse(&format!("cluster.nodes is {}; expected from 2 to {NODES_MAX}", setup.nodes));
    }
    Ok(setup)
}

/// The processes of a run. They end when their standard input does.
struct Nodes {
    all: Vec<(Child, ChildStdin)>,
    /// What each says, by line.
    said: Vec<BufReader<ChildStdout>>,
    run: RunDirectory,
}

impl Nodes {
    fn start(file: &Path, set: &[String], point: usize, setup: &Setup) -> Result<Nodes, Failure> {
        let path = sidelong_config::default_run_dir(&format!("sim-live-{}", std::process::id()));
        let mut nodes = Nodes { all: Vec::new(), said: Vec::new(), run: RunDirectory::open(path)? };
        for node in 0..setup.nodes {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["sim", "live-node"]).arg(file).args(set.iter().flat_map(|set| ["--set", set]));
            command.args(["--point", &point.to_string(), "--node", &node.to_string(), "--run-dir"]);
            command.arg(nodes.run.path());
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let input = child.stdin.take().expect("it is piped");
            nodes.said.push(BufReader::new(child.stdout.take().expect("it is piped")));
            nodes.all.push((child, input));
        }
        Ok(nodes)
    }

    fn play(mut self) -> Result<Vec<NodeTotals>, Failure> {
        for (number, said) in self.said.iter_mut().enumerate() {
            let line = line(number, said)?;
            if line != READY {
                return Err(Failure::new(format!("node {number} says {line:?}")));
            }
        }
        for (_, input) in &mut self.all {
            input.write_all(GO)?;
        }
        // From all at once: a node that could not write could not serve the others.
        let (sender, receiver) = mpsc::sync_channel(self.said.len());
        for (number, mut said) in self.said.drain(..).enumerate() {
            let sender = sender.clone();
            // If another one fails before, nobody receives.
            thread::spawn(move || _ = sender.send(line(number, &mut said)));
        }
        drop(sender);
        receiver.into_iter().map(|line| Ok(serde_json::from_str(&line?)?)).collect()
    }
}

fn line(number: usize, said: &mut BufReader<ChildStdout>) -> Result<String, Failure> {
    let mut line = String::new();
    said.read_line(&mut line)?;
    match line.is_empty() {
        true => Err(Failure::new(format!("node {number} has ended before its part did"))),
        false => Ok(line),
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let (mut children, inputs): (Vec<_>, Vec<_>) = self.all.drain(..).unzip();
        drop(inputs);
        children.iter_mut().for_each(|child| _ = child.wait());
        self.run.remove();
    }
}

/// One of the processes.
pub(super) fn node(
    file: &Path,
    set: &[String],
    point: usize,
    node: u32,
    run_dir: PathBuf,
) -> Result<(), Failure> {
    let points = Config::load(file, set)?.points();
    let setup = setup(points.get(point).ok_or_else(|| Failure::new(format!("there is no point {point}")))?)?;
    let requests = &setup.requests;
    let objects = requests.objects();
    let outgoing = setup
        .cache
        .outgoing
        .bytes_max
        .min((0..objects as u32).map(|key| u64::from(requests.bytes(key))).sum());
    let map = Map::new(objects, outgoing as usize);
    let directory = RunDirectory::at(run_dir.clone());
    let host = Host::Shm(ShmHost::new(run_dir));
    let mut live = Node::new(&host, &directory, node, setup.nodes, setup.cache, map, 1)?;
    let deadline = Instant::now() + LINK_MAX;
    while !live.link(&directory)? {
        if Instant::now() > deadline {
            return Err(Failure::new(format!("node {node} has not found the others")));
        }
        thread::sleep(LINK_PAUSE);
    }
    let mut keys = requests.keys();
    let own = (0..requests.len()).filter_map(|number| Some((number, keys.get(number)?)));
    let own = own.filter(|(number, _)| number % setup.nodes as usize == node as usize);
    let object = |key| Object { key: u64::from(key), home: home_of(key, setup.seed, setup.nodes) };
    let own: Vec<_> = own.map(|(_, key)| object(key)).collect();
    let Arrivals::Closed { clients, .. } = setup.arrivals else { unreachable!("it was refused") };
    let size = |key: u64| {
        let bytes = requests.bytes(key as u32);
        (bytes, Duration::from_nanos(setup.costs.disk_ns + setup.costs.disk.ns(bytes)))
    };
    let part = Part {
        requests: &own,
        warmup: (node as usize..setup.warmup).step_by(setup.nodes as usize).count(),
        clients: (clients / setup.nodes).max(1),
        size: &size,
        disk_depth: setup.costs.disk_depth,
    };
    say(READY)?;
    let mut go = [0; GO.len()];
    std::io::stdin().read_exact(&mut go)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    thread::spawn(move || {
        _ = std::io::stdin().read(&mut [0]);
        stopping.store(true, Ordering::Relaxed);
    });
    let mut told = Ok(());
    let (begun, before) = (Instant::now(), on_cpu());
    play(&mut live, part, &stop, &mut |played| {
        let turns = before.zip(on_cpu()).map(|(before, now)| Turns {
            ran_ns: now[0].saturating_sub(before[0]),
            waited_ns: now[1].saturating_sub(before[1]),
            all_ns: begun.elapsed().as_nanos() as u64,
        });
        told = tell(played, own.len(), turns);
    });
    told
}

/// How long this thread has run, and has waited for a CPU, in ns.
fn on_cpu() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut fields = text.split_whitespace().map(|field| field.parse().ok());
    Some([fields.next()??, fields.next()??])
}

fn tell(played: &Played, requests: usize, turns: Option<Turns>) -> Result<(), Failure> {
    let counters = &played.counters;
    let told = NodeTotals {
        took_ns: played.took.iter().map(|took| took.as_nanos() as u64).collect(),
        time_s: played.time.as_secs_f64(),
        here: played.here,
        loads: counters.loads,
        reads: counters.reads,
        read_failures: counters.read_failures,
        update_messages: counters.update_messages,
        update_bytes: counters.update_bytes,
        refused: played.refused,
        wrong: played.wrong,
        requests: requests as u64,
        turns,
    };
    say(format!("{}\n", serde_json::to_string(&told)?))
}

impl Figures {
    fn of(outcome: &Outcome) -> Figures {
        Figures {
            requests: outcome.requests,
            requests_per_s: outcome.requests_per_s,
            response_ms_mean: outcome.response_ms_mean,
            response_ms_p50: outcome.response_ms_p50,
            response_ms_p99: outcome.response_ms_p99,
            here_rate: outcome.here_rate,
            disk_rate: outcome.disk_rate,
            read_rate: outcome.read_rate,
            read_failure_rate: outcome.read_failure_rate,
            update_messages_per_request: outcome.update_messages_per_request,
            update_bytes_per_request: outcome.update_bytes_per_request,
        }
    }

    fn all(told: &[NodeTotals]) -> Figures {
        let mut took: Vec<u64> = told.iter().flat_map(|told| told.took_ns.iter().copied()).collect();
        took.sort_unstable();
        let sum = |of: fn(&NodeTotals) -> u64| told.iter().map(of).sum::<u64>() as f64;
        let requests = took.len().max(1) as f64;
        let at = |q: f64| took.get((q * requests) as usize).map_or(0.0, |ns| *ns as f64 / 1e6);
        let reads = sum(|told| told.reads);
        Figures {
            requests: took.len() as u64,
            requests_per_s: told.iter().map(|told| told.took_ns.len() as f64 / told.time_s.max(1e-9)).sum(),
            response_ms_mean: took.iter().sum::<u64>() as f64 / requests / 1e6,
            response_ms_p50: at(0.5),
            response_ms_p99: at(0.99),
            here_rate: sum(|told| told.here) / requests,
            disk_rate: sum(|told| told.loads) / requests,
            read_rate: reads / requests,
            read_failure_rate: sum(|told| told.read_failures) / reads.max(1.0),
            update_messages_per_request: sum(|told| told.update_messages) / requests,
            update_bytes_per_request: sum(|told| told.update_bytes) / requests,
        }
    }

    fn rows(&self) -> [(&'static str, f64); 10] {
        [
            ("requests/s", self.requests_per_s),
            ("response, mean, ms", self.response_ms_mean),
            ("response, median, ms", self.response_ms_p50),
            ("response, 99th percentile, ms", self.response_ms_p99),
            ("answered from own memory", self.here_rate),
            ("disk reads a request", self.disk_rate),
            ("one-sided reads a request", self.read_rate),
            ("one-sided reads that fail", self.read_failure_rate),
            ("update messages a request", self.update_messages_per_request),
            ("update bytes a request", self.update_bytes_per_request),
        ]
    }
}

impl Sharing {
    fn of(told: &[NodeTotals]) -> Option<Sharing> {
        let turns: Vec<Turns> = told.iter().map(|told| told.turns).collect::<Option<_>>()?;
        let sum = |of: fn(&Turns) -> u64| turns.iter().map(of).sum::<u64>() as f64;
        let (ran, all) = (sum(|turns| turns.ran_ns), sum(|turns| turns.all_ns).max(1.0));
        Some(Sharing {
            cpu_us_per_request: ran / 1e3 / told.iter().map(|told| told.requests).sum::<u64>().max(1) as f64,
            running: ran / all,
            waiting: sum(|turns| turns.waited_ns) / all,
        })
    }

    fn rows(&self) -> [(&'static str, f64); 3] {
        [
            ("CPU time of a request, us", self.cpu_us_per_request),
            ("a node runs, of its time", self.running),
            ("it waits for a CPU, of its time", self.waiting),
        ]
    }
}

impl Pair<'_> {
    fn table(&self) -> String {
        let Pair { protocol, eviction, nodes, sharing, refused, wrong, .. } = self;
        let head = format!("{protocol}, {eviction}, {nodes} nodes");
        let mut text = format!("{head:<32} {:>12} {:>12}\n", "simulated", "live");
        for ((name, simulated), (_, live)) in self.simulated.rows().into_iter().zip(self.live.rows()) {
            text += &format!("{name:<32} {simulated:>12.4} {live:>12.4}\n");
        }
        for (name, live) in sharing.iter().flat_map(Sharing::rows) {
            text += &format!("{name:<32} {:>12} {live:>12.4}\n", "");
        }
        text += &format!("{:<32} {:>12} {refused:>12}\n", "refused: too large for a message", "");
        text + &format!("{:<32} {:>12} {wrong:>12}\n\n", "answers with wrong bytes", "")
    }
}
