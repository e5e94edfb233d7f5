//! A cluster's words in real shared memory, with nodes that acknowledge; and processes that move and die.

pub(crate) mod idle;
pub(crate) mod plan;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sidelong_fabric::{Access, Host, Initiator, Region, RegionSpec, RunDirectory, shm::ShmHost};
use sidelong_layout::{
    EdgeId, Instance, LOAD_ACK, LOAD_BYTES, NodeId, NodeState, Ownership, RegionKind, SiteId, WORDS_OWNERSHIP,
};
use sidelong_policy::reconfigure::MovePlan;
use sidelong_reconfig::{
    BoardInit, Links, Members, Mover, Protocol, board_map, expose_board, expose_words, load_region,
};
use sidelong_state::{NodeAgent, Pool, Time, Timing};

use plan::plan;

pub(crate) const SITES: usize = 3;
const NODES: usize = 8;
const OWNERS: usize = 4;
const FLOOR: u16 = 1;
/// Nodes of each site at the start.
const FIRST: [u16; SITES] = [3, 3, 2];
/// Long beside what a busy test machine may delay a thread by.
pub(crate) const LEASE: Duration = Duration::from_millis(200);

/// What a child process is to do, in its environment.
const TASK: &str = "SIDELONG_KILL_TASK";
const STEP: &str = "SIDELONG_KILL_STEP";
const DIRECTORY: &str = "SIDELONG_KILL_DIRECTORY";

/// The nodes, and the edge that survives.
pub(crate) struct Cluster {
    directory: tempfile::TempDir,
    links: Links,
    mover: Mover,
    stop: Arc<AtomicBool>,
    agents: Option<JoinHandle<()>>,
    _board: Region,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::Shm(ShmHost::new(directory.path()));
        let sites = FIRST.map(|nodes| BoardInit { floor: FLOOR, nodes });
        let board =
            expose_board(&host, board_map(SITES, OWNERS), &sites, (0, 0), Instance::alone(1)).unwrap();
        let nodes: Vec<_> = homes().enumerate().map(|(node, site)| expose_node(&host, node, site)).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let agents = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || acknowledge(&nodes, &stop))
        };
        let (links, mover) = edge(directory.path().to_owned(), 0, 1);
        let mut cluster = Cluster { directory, links, mover, stop, agents: Some(agents), _board: board };
        cluster.look();
        assert!(cluster.is_whole(), "{}", cluster.describe());
        cluster
    }

    /// Reads all words, and checks what must hold at every moment.
    pub(crate) fn look(&mut self) {
        self.links.scan(now());
        for site in (0..SITES).map(SiteId::new) {
            let serving = self.serving(site);
            assert!(serving >= usize::from(FLOOR), "{site:?} is below its floor: {}", self.describe());
            let budget = self.links.site(site).expect("the board is readable").budget;
            assert!(
                usize::from(budget.current) <= serving,
                "{site:?} promises too much: {}",
                self.describe()
            );
        }
        for node in (0..NODES).map(NodeId::new) {
            assert!(self.links.ownership(node).is_some(), "{node:?} is lost: {}", self.describe());
        }
    }

    /// What an edge does at each look, beside routing.
    pub(crate) fn mend(&mut self) {
        self.look();
        self.mover.look(self.links.last_scan(), now());
        self.mover.drive(&mut self.links, now, |_| ());
    }

    /// Nothing is under way: no lock held, no node draining, every budget exact.
    pub(crate) fn is_whole(&mut self) -> bool {
        self.look();
        let sites = (0..SITES).map(SiteId::new);
        let nodes = (0..NODES).map(NodeId::new);
        self.mover.is_idle()
            && sites.clone().all(|site| self.lock_is_free(site))
            && sites.clone().all(|site| self.links.budget_is_exact(site) == Some(true))
            && nodes.clone().all(|node| self.ownership(node).state == NodeState::Serving)
    }

    pub(crate) fn lock_is_free(&self, site: SiteId) -> bool {
        self.links.site(site).is_some_and(|words| words.is_free())
    }

    /// A node of the site that has most, to the one that has least.
    pub(crate) fn some_plan(&mut self) -> MovePlan {
        self.look();
        let sites = || (0..SITES).map(SiteId::new);
        let from = sites().max_by_key(|site| self.serving(*site)).unwrap();
        let to = sites().min_by_key(|site| self.serving(*site)).unwrap();
        let serves = |node: &NodeId| self.ownership(*node).serves(from);
        let node = (0..NODES).map(NodeId::new).find(serves).unwrap();
        let to = if to == from { SiteId::new((from.index() + 1) % SITES) } else { to };
        plan(node, self.ownership(node), to)
    }

    pub(crate) fn describe(&self) -> String {
        let nodes = (0..NODES).map(|node| self.links.ownership(NodeId::new(node)));
        let sites = (0..SITES).map(|site| self.links.site(SiteId::new(site)));
        format!("nodes {:?}, sites {:?}", nodes.collect::<Vec<_>>(), sites.collect::<Vec<_>>())
    }

    fn ownership(&self, node: NodeId) -> Ownership {
        self.links.ownership(node).expect("looked at before")
    }

    fn serving(&self, site: SiteId) -> usize {
        let nodes = (0..NODES).map(NodeId::new);
        nodes.filter(|node| self.links.ownership(*node).is_some_and(|own| own.serves(site))).count()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(agents) = self.agents.take() {
            let _ = agents.join();
        }
    }
}

fn name(node: usize) -> String {
    format!("n{node}")
}

fn expose_node(host: &Host, node: usize, site: usize) -> (Region, Region) {
    let words = expose_words(host, &name(node), Some(SiteId::new(site)), Instance::alone(1)).unwrap();
    let region = load_region(&name(node));
    let spec = RegionSpec {
        name: &region,
        kind: RegionKind::Load,
        len: LOAD_BYTES,
        access: Access::ReadOnly,
        instance: Instance::alone(1),
    };
    (words, host.expose(&spec, |_| ()).unwrap())
}

/// The nodes' side: idle nodes, which acknowledge at once.
fn acknowledge(nodes: &[(Region, Region)], stop: &AtomicBool) {
    let mut agents: Vec<_> = nodes.iter().map(|_| NodeAgent::new()).collect();
    while !stop.load(Ordering::Relaxed) {
        for ((words, load), agent) in nodes.iter().zip(&mut agents) {
            if let Some(ack) = agent.observe(words.load(WORDS_OWNERSHIP), 0) {
                load.store(LOAD_ACK, ack.encode(), Ordering::Release);
            }
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// The site that each node serves at first.
fn homes() -> impl Iterator<Item = usize> {
    FIRST.into_iter().enumerate().flat_map(|(site, nodes)| (0..nodes).map(move |_| site))
}

/// A cluster of these nodes and so many sites.
pub(crate) fn members(nodes: &[String], sites: usize) -> Members {
    let sites = (0..sites).map(|site| format!("s{site}")).collect();
    Members { sites, nodes: nodes.iter().cloned().collect(), ..Members::default() }
}

fn edge(directory: PathBuf, owner: usize, incarnation: u64) -> (Links, Mover) {
    let names: Vec<_> = (0..NODES).map(name).collect();
    let directory = Arc::new(RunDirectory::open(directory).unwrap());
    let links =
        Links::new(directory, Initiator::new(), (NODES, board_map(SITES, OWNERS)), &members(&names, SITES));
    let lease = LEASE.as_nanos() as u64;
    let timing = Timing::new(lease, lease / 10, 5 * lease, 1_000_000).unwrap();
    let pool = Pool::new([FLOOR; SITES], homes().map(|site| Some(SiteId::new(site))));
    (links, Mover::new(EdgeId::new(owner), incarnation, OWNERS as u16, pool, timing, Protocol::Lease))
}

fn now() -> Time {
    static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    Time(EPOCH.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}

/// What another process does.
pub(crate) enum Task {
    Move(MovePlan),
    Repair,
}

/// Another process, which stops before a step and says so.
pub(crate) struct Child(std::process::Child);

impl Child {
    pub(crate) fn start(cluster: &Cluster, task: Task, step: &str) -> Self {
        let task = match task {
            Task::Repair => "repair".to_owned(),
            Task::Move(MovePlan { node, expected, to, .. }) => {
                format!("{} {} {}", node.index(), expected.encode(), to.index())
            }
        };
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["kill::child", "--exact", "--nocapture", "--test-threads=1"])
            .env(TASK, task)
            .env(STEP, step)
            .env(DIRECTORY, cluster.directory.path())
            .stdout(Stdio::piped())
            .spawn();
        Child(child.unwrap())
    }

    /// Kills it where it stops; says whether it came there. Meanwhile and after, the cluster is looked at.
    pub(crate) fn kill_at_step(mut self, cluster: &mut Cluster) -> bool {
        let out = BufReader::new(self.0.stdout.take().unwrap());
        let reached = out.lines().map_while(Result::ok).find_map(|line| match line.as_str() {
            "sidelong-child: at step" => Some(true),
            "sidelong-child: done" => Some(false),
            _ => None,
        });
        cluster.look();
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        cluster.look();
        reached.expect("the child says what became of it")
    }
}

/// The other process's whole life.
pub(crate) fn child_main() {
    let Ok(task) = std::env::var(TASK) else { return };
    let step = std::env::var(STEP).unwrap();
    let directory = PathBuf::from(std::env::var(DIRECTORY).unwrap());
    let (mut links, mut mover) = edge(directory, 1, u64::from(std::process::id()));
    links.scan(now());
    if task != "repair" {
        let part: Vec<u64> = task.split(' ').map(|part| part.parse().unwrap()).collect();
        let (node, to) = (NodeId::new(part[0] as usize), SiteId::new(part[2] as usize));
        mover.begin(plan(node, Ownership::decode(part[1], SITES).unwrap(), to), now());
    }
    let deadline = Instant::now() + 40 * LEASE;
    let mut repaired = false;
    while Instant::now() < deadline {
        links.scan(now());
        if mover.is_idle() {
            mover.look(links.last_scan(), now());
        }
        let ended = mover.drive(&mut links, now, |next| {
            if next == step {
                println!("\nsidelong-child: at step");
                loop {
                    std::thread::park();
                }
            }
        });
        // The first move may be told to let the load settle; it is then made at the next try.
        match ended {
            Some(report) if task == "repair" => repaired |= report.plan().is_none(),
            Some(report) => match report.plan() {
                Some(plan) if !report.moved() => mover.begin(*plan, now()),
                _ => repaired = true,
            },
            None => {}
        }
        if repaired && mover.is_idle() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("\nsidelong-child: done");
}
