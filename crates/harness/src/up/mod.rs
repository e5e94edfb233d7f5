//! A whole shared data center on this machine, as `sidelong up` runs it.
//!
//! Each node, each edge, or a proxy in its place, and each cache is a process of its own, and the edges get the cluster file's workload.
//! What is known of nodes is read from their memory, as an edge does. The caller shows it.

mod admissions;
mod auction;
mod bursts;
mod caches;
mod children;
mod foreign;
mod home;
mod outcome;
mod proxies;
mod requests;
mod results;
mod samples;
mod servers;

use std::mem;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sidelong_app::{Event, Failure, Monitor, Parts, some};
use sidelong_config::{self as config, Cluster, ClusterFile, Edge};
use sidelong_layout::NodeId;
use sidelong_os::CpuUsed;
use sidelong_workload::client::{Generator, Live, Run};
use sidelong_workload::walk::{self, Walker};

use crate::cgroup::Groups;
use crate::parent::end_left_behind;

use admissions::Told;
use auction::{Auction, Neighbours};
use bursts::Bursts;
use caches::Caches;
use children::{Children, News};
use foreign::Foreign as _;
use home::Home;
use outcome::{Last, Moves, StepTimes};
use proxies::Proxy;
use requests::Requests;
use samples::Samples;
use servers::Server;

pub use admissions::Admissions;
pub use auction::{Demo, cluster as auction_cluster};
pub use caches::Seen;
pub use home::RUN_FILE;
pub use proxies::{By, FrontMake, led_by};
pub use results::{CacheLoad, CacheSummary, SiteSummary, Spread, Summary};
pub use servers::Make;

/// Kinds of parts whose CPU time under the load is told: what clients connect to, and what controls it.
const MEASURED: [&[&str]; 2] = [&["edge", "proxy"], &["front"]];
/// Interval of scans of the nodes.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Most routine events that are remembered for the screen; as many other events.
const HAPPENED_MAX: usize = 64;

/// What is run besides what the cluster file says.
#[derive(Clone, Debug)]
pub struct Options {
    /// A demonstration.
    pub demo: Option<Demo>,
    /// Where its data is.
    pub database: Option<String>,
    /// Its persons.
    pub sessions: u32,
    /// Servers in place of the built-in origin.
    pub servers: Option<Make>,
    /// Proxies in place of the edges.
    pub front: Option<FrontMake>,
    /// Who chooses the servers behind these.
    pub by: By,
    /// Whether the caches get a load, and are added if there are none.
    pub cache: bool,
    /// Where each site's nodes over time are written.
    pub samples: Option<PathBuf>,
    /// Where the outcome of each request is written.
    pub requests: Option<PathBuf>,
    /// Whether no progress may be shown while data is made.
    pub is_quiet: bool,
}

/// The state of the running cluster, for display.
pub struct Status<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// What is to be known of it.
    pub notes: &'a [String],
    /// Time since the start.
    pub elapsed: Duration,
    /// Its nodes.
    pub monitor: &'a Monitor,
    /// Moves of nodes so far.
    pub moves: u64,
    /// Requests that the edges rejected.
    pub admissions: &'a Admissions,
    /// Each cache of the file.
    pub caches: Vec<Seen>,
    /// The latest events, newest last.
    pub happened: &'a [Happened],
}

/// An event for the user.
#[derive(Clone, Debug)]
pub struct Happened {
    /// Time since the start.
    pub at: Duration,
    /// What happened.
    pub text: String,
    /// Whether such events come in dozens: moves, and nodes that edges take out and back in.
    pub is_routine: bool,
}

/// A cluster that is about to run: its run directory is claimed, and what a killed `up` left there has ended.
pub struct Prepared {
    options: Options,
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    parts: Parts,
    home: Home,
}

impl Prepared {
    /// Makes of the file what the options say.
    ///
    /// # Errors
    /// If the file or an option cannot be carried out here, or another `up` runs the cluster.
    pub fn new(options: Options, mut file: ClusterFile) -> Result<Self, Failure> {
        if options.demo.is_some() && file.workload.is_some() {
            return Err(Failure::new(
                "--demo has a load of its own: remove [workload] from the cluster file",
            ));
        }
        let servers = match (options.servers, options.demo) {
            (Some(make), _) => servers::in_place_of_origins(&mut file, make, "--servers")?,
            (None, Some(Demo::Auction)) => {
                servers::in_place_of_origins(&mut file, Make::Gunicorn, "--demo auction")?
            }
            (None, None) => Vec::new(),
        };
        let proxies = match options.front {
            Some(make) => proxies::in_place_of_edges(&mut file, make, options.by)?,
            None => Vec::new(),
        };
        if options.cache {
            caches::add(&mut file);
        }
        let parts = Parts::new(file.cluster()?)?;
        // Parts use the directory that this process has chosen, whatever their environment.
        file.cluster.run_dir = Some(parts.run.path().to_owned());
        speaks_to_all(&parts.cluster)?;
        let run = parts.run.clone();
        let claim = run.claim()?;
        end_left_behind(&run)?;
        // The parts read what this process has read, even if the user's file changes.
        let home = Home::new(run, claim, file.to_toml()?)?;
        Ok(Prepared { options, servers, proxies, parts, home })
    }

    /// Starts the cluster, and lets `drive` run it until `stop` is raised. Returns what that returns, and whether the run directory
    /// could be cleared.
    ///
    /// # Errors
    /// If a part does not start, or those of `drive`.
    pub fn run<T>(
        mut self,
        stop: &Arc<AtomicBool>,
        drive: impl FnOnce(Up<'_>) -> Result<T, Failure>,
    ) -> Result<(T, Result<(), Failure>), Failure> {
        let run = self.parts.run.clone();
        let Options { demo, database, is_quiet, .. } = &self.options;
        let is_demo = demo.is_some();
        let auction = demo.map(|Demo::Auction| {
            Auction::prepare(run.path(), database.as_deref(), *is_quiet, || stop.load(Ordering::Relaxed))
        });
        let done = auction.transpose().and_then(|auction| {
            self.servers.iter_mut().for_each(|server| server.auction.clone_from(&auction));
            let foreign = (self.servers, self.proxies);
            Up::start(self.options, self.parts, foreign, &mut self.home, Arc::clone(stop)).and_then(drive)
        });
        // The parts have ended, so what they exposed is useless.
        let mut swept = run.sweep();
        if is_demo {
            swept = swept.and(Auction::clear(run.path()));
        }
        drop(self.home);
        let failed = |error| Failure::new(format!("cannot clear {}: {error}", run.path().display()));
        Ok((done?, swept.map_err(failed)))
    }
}

/// A load that waits for the nodes' commands.
struct Waiting {
    load: Generator,
    /// Persons, and the site that they walk.
    persons: Option<(usize, Walker)>,
    /// It begins now in any case.
    at_last: Instant,
    is_told: bool,
}

/// A cluster that runs. It ends when this is dropped.
pub struct Up<'a> {
    listeners: Vec<Listener>,
    parts: Parts,
    home: &'a mut Home,
    children: Children,
    // Dropped after the processes in it.
    _groups: Option<Groups>,
    monitor: Monitor,
    samples: Option<Samples>,
    requests: Option<Requests>,
    /// The load that has not begun.
    waiting: Option<Waiting>,
    load: Option<Run>,
    persons: Option<walk::Run>,
    /// CPU time of [`MEASURED`] when the load began.
    cpu: [CpuUsed; 2],
    stop: Arc<AtomicBool>,
    steps: StepTimes,
    notes: Vec<String>,
    happened: Vec<Happened>,
    /// What [`Up::step`] is to return.
    news: Vec<(Duration, String)>,
    moves: Moves,
    admissions: Admissions,
    /// If the file has any.
    caches: Option<Caches>,
    began: Instant,
}

impl<'a> Up<'a> {
    fn start(
        options: Options,
        parts: Parts,
        (servers, proxies): (Vec<Server>, Vec<Proxy>),
        home: &'a mut Home,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let steps = StepTimes::new(&parts.cluster);
        let sites: Vec<_> = parts.cluster.sites.values().cloned().collect();
        let bursts = match &parts.cluster.workload {
            Some(workload) => Some(Bursts::new(workload, &sites, steps.clone())?),
            None => None,
        };
        let samples = options.samples.as_deref().map(Samples::create).transpose()?;

        // The kernel distinguishes nodes of one machine by control groups, which also enforce their CPU shares.
        let groups = match parts.cluster.load.scheme {
            config::Scheme::RdmaSync | config::Scheme::ERdmaSync
                if parts.cluster.nodes.entries().any(|(node, _)| parts.shares_machine(node)) =>
            {
                Some(Groups::create()?)
            }
            _ if parts.cluster.nodes.values().any(|node| node.cpu_share.is_some()) => Some(Groups::create()?),
            _ if !servers.is_empty() => Some(Groups::create()?),
            _ => None,
        };
        let mut children = Children::new(&home.config(), &parts.run)?;
        // Before the agents, which look for who listens.
        for server in servers {
            let groups = groups.as_ref().expect("made for them");
            let group = groups.add(&server.name(), Some(server.cpu_share))?;
            children.start_foreign("server", server, Some(group))?;
        }
        children.await_ready(|| stop.load(Ordering::Relaxed))?;
        let neighbours = match options.demo.filter(|_| options.sessions > 0) {
            Some(Demo::Auction) => {
                let server = parts.cluster.nodes.values().find_map(config::Node::port);
                Some(Neighbours::new(&sites, server, options.sessions)?)
            }
            None => None,
        };
        for (index, node) in parts.cluster.nodes.entries() {
            let group = match &groups {
                Some(groups) if parts.shares_machine(index) || node.cpu_share.is_some() => {
                    Some(groups.add(&node.name, node.cpu_share)?)
                }
                _ => None,
            };
            children.start("node", &node.name, group)?;
        }
        for edge in &parts.cluster.edges {
            children.start("edge", &edge.name, None)?;
        }
        let by_itself =
            |name: &str| proxies.iter().any(|proxy| proxy.front() == name && !proxy.is_controlled());
        for front in parts.cluster.fronts.values().filter(|front| front.controls.is_some()) {
            if !by_itself(&front.name) {
                children.start("front", &front.name, None)?;
            }
        }
        for peer in &parts.cluster.cache.peers {
            children.start("cache", &peer.name, None)?;
        }
        let listeners = listeners(&parts.cluster, &proxies);
        // A proxy that does not find its front looks for it again later, and serves nobody until then.
        children.await_ready(|| stop.load(Ordering::Relaxed))?;
        for proxy in proxies {
            children.start_foreign("proxy", proxy, None)?;
        }
        children.await_ready(|| stop.load(Ordering::Relaxed))?;

        let monitor = Monitor::new(&parts)?;
        let caches = match &parts.cluster.cache.peers[..] {
            [] => None,
            peers => Some(Caches::start(peers, options.cache)?),
        };
        let requests = options
            .requests
            .as_deref()
            .map(|path| Requests::create(path, &parts.cluster, &listeners))
            .transpose()?;
        let load = match (bursts, neighbours) {
            (Some(bursts), _) => {
                Some((Generator::new(bursts.client_config(&parts.cluster, &listeners), bursts)?, None))
            }
            (None, Some(neighbours)) => {
                let edges: Vec<_> = listeners.iter().map(|listener| listener.address).collect();
                let config = neighbours.config(&sites, &edges);
                let (site, persons) = auction::persons(&sites, &edges, options.sessions)?;
                Some((Generator::new(config, neighbours)?, Some((site, Walker::new(persons)?))))
            }
            (None, None) => None,
        };
        let waiting = load.map(|(load, persons)| {
            let load = match requests.clone() {
                Some(requests) => load.observe(move |request| requests.take(request)),
                None => load,
            };
            let at_last = Instant::now() + parts.change_max().unwrap_or_default();
            Waiting { load, persons, at_last, is_told: false }
        });
        let mut up = Up {
            notes: vec![parts.fabric.note().to_owned()],
            listeners,
            admissions: Admissions::new(parts.cluster.sites.values().map(|site| site.name.clone())),
            parts,
            home,
            children,
            monitor,
            samples,
            requests,
            waiting,
            load: None,
            persons: None,
            cpu: Default::default(),
            stop,
            steps,
            caches,
            _groups: groups,
            happened: Vec::new(),
            news: Vec::new(),
            moves: Moves::default(),
            began: Instant::now(),
        };
        up.begin_load()?;
        Ok(up)
    }

    /// Waits for a moment, scans the nodes, and takes in the events of the parts. Returns the events since the last step except moves,
    /// which it counts, with their time since the start.
    ///
    /// # Errors
    /// If the load cannot be begun, or a file not be written.
    pub fn step(&mut self) -> Result<Vec<(Duration, String)>, Failure> {
        std::thread::sleep(LOOK_EVERY);
        self.monitor.look();
        self.hear();
        self.begin_load()?;
        if let Some(samples) = &mut self.samples {
            samples.take(self.began.elapsed(), &self.parts.cluster, &mut self.monitor)?;
        }
        Ok(mem::take(&mut self.news))
    }

    /// Has the edges open their access logs anew.
    pub fn reopen_logs(&self) {
        self.children.signal_edges(Signal::USR1);
    }

    /// The figures of the load since the last call, if there is one.
    pub fn live(&mut self) -> Option<Live> {
        self.load.as_mut().map(Run::live)
    }

    /// Puts a note before all others.
    pub fn note(&mut self, text: String) {
        self.notes.insert(0, text);
    }

    /// Where clients connect.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Begins the load once the nodes have run the commands of their sites, or have had the time to.
    fn begin_load(&mut self) -> Result<(), Failure> {
        let Some(mut waiting) = self.waiting.take() else { return Ok(()) };
        let nodes = self.parts.cluster.nodes.entries().map(|(node, _)| NodeId::new(node));
        let has_entered = |node: &NodeId| {
            self.monitor.ownership(*node).is_some_and(|ownership| ownership.on_its_way().is_none())
        };
        let changing = match self.parts.change_max() {
            Some(_) => nodes.filter(|node| !has_entered(node)).count(),
            None => 0,
        };
        let is_time = changing == 0 || Instant::now() >= waiting.at_last;
        let text = match (is_time, waiting.is_told) {
            (true, true) if changing == 0 => Some("the load begins".to_owned()),
            (true, true) => Some(format!("the load begins without {}", some(changing, "node"))),
            (true, false) | (false, true) => None,
            (false, false) => Some("the load waits until the nodes have entered their sites".to_owned()),
        };
        if is_time {
            self.cpu = MEASURED.map(|kinds| self.children.cpu_used(kinds));
            let load = waiting.load.start()?;
            self.persons = match waiting.persons {
                Some((site, persons)) => Some(persons.record(load.recorder(site)).start()?),
                None => None,
            };
            self.load = Some(load);
        } else {
            waiting.is_told = true;
            self.waiting = Some(waiting);
        }
        let at = self.began.elapsed();
        if let Some(text) = text {
            self.news.push((at, text.clone()));
            self.happened.push(Happened { at, text, is_routine: false });
        }
        Ok(())
    }

    /// Stops the load, lets requests in flight finish, and ends the parts.
    ///
    /// # Errors
    /// If the load has failed, or a file cannot be written.
    pub fn end(mut self) -> Result<Summary, Failure> {
        let [now_proxies, now_fronts] = MEASURED.map(|kinds| self.children.cpu_used(kinds));
        let [proxies, fronts] = &self.cpu;
        let (proxies_cpu, fronts_cpu) = match self.load {
            Some(_) => (now_proxies.since(proxies), now_fronts.since(fronts)),
            None => Default::default(),
        };
        let walk = self.persons.take().map(|persons| {
            persons.stopper().stop();
            self.load.iter().for_each(|load| load.stopper().stop());
            persons.wait()
        });
        let summary = match self.load.take() {
            Some(load) => {
                load.stopper().stop();
                Some(load.wait()?)
            }
            None => None,
        };
        self.monitor.look();
        self.hear();
        let (caches, cache_load) = self.caches.take().map(Caches::finish).unwrap_or_default();
        let mut misdirected = 0;
        for event in self.children.end() {
            match event {
                Event::Misdirected { requests } => misdirected += requests,
                Event::Moved { took_ns, .. } => self.moves.add(took_ns),
                _ => {}
            }
        }
        if let Some(samples) = &mut self.samples {
            samples.finish()?;
        }
        if let Some(requests) = &self.requests {
            requests.finish()?;
        }
        let (moves, admissions) = (&self.moves, &self.admissions);
        let last = Last { misdirected, proxies_cpu, fronts_cpu, caches, cache_load, walk };
        let (cluster, monitor, steps) = (&self.parts.cluster, &self.monitor, &self.steps);
        Ok(outcome::summary(cluster, summary, monitor, moves, admissions, steps, last))
    }

    /// Whether it is to end: the load has ended, or someone has asked for it.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || match &self.persons {
                Some(persons) => persons.is_finished(),
                None => self.load.as_ref().is_some_and(Run::is_finished),
            }
    }

    /// Takes in the events of the parts.
    fn hear(&mut self) {
        for (part, told) in self.children.poll(self.home) {
            let is_move =
                matches!(told, News::Event(Event::Moved { .. } | Event::Ended { node: Some(_), .. }));
            let is_routine = is_move || matches!(told, News::Event(Event::Health { .. }));
            let text = match told {
                News::Ended(how) => {
                    self.admissions.ended(&part);
                    format!("{part} ended ({how}) and is restarted")
                }
                News::Left => format!("{part} has left the cluster"),
                News::Event(Event::Ready) => format!("{part} is ready"),
                News::Event(Event::Failed { reason }) => format!("{part} failed: {reason}"),
                News::Event(Event::Note { text }) => {
                    let note = format!("{part}: {text}");
                    if !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                    continue;
                }
                News::Event(Event::Moved { node, from, to, why, took_ns, .. }) => {
                    self.moves.add(took_ns);
                    let from = from.unwrap_or_else(|| "free".to_owned());
                    format!("{node} {from} → {to} in {:.2} ms by {part}: {why}", took_ns as f64 / 1e6)
                }
                News::Event(Event::FirstRequest { site, at_ns, .. }) => {
                    self.steps.first_request(&site, at_ns);
                    continue;
                }
                // Two edges race for most moves: the loser is not worth a line.
                News::Event(Event::Ended { how, .. }) if how == "busy" || how == "recent" => continue,
                News::Event(Event::Ended { site, node, how, .. }) => match node {
                    Some(node) => format!("{node} did not move to {site}: {how}"),
                    None => format!("{site} repaired by {part}: {how}"),
                },
                News::Event(Event::Health { node, up: false, .. }) => format!("{node} taken out by {part}"),
                News::Event(Event::Health { node, up: true, .. }) => format!("{node} taken back by {part}"),
                News::Event(Event::Admission { site, rejected, why, met, .. }) => {
                    match self.admissions.take(&part, &site, Told { rejected, why, met }) {
                        Some(news) => news,
                        None => continue,
                    }
                }
                News::Event(Event::View { stale: true, .. }) => {
                    format!("{part} routes by itself: its view is old")
                }
                News::Event(Event::View { stale: false, .. }) => format!("{part} has a fresh view again"),
                News::Event(event @ Event::Misdirected { .. }) => format!("{part}: {event}"),
            };
            let at = self.began.elapsed();
            if !is_move {
                self.news.push((at, text.clone()));
            }
            self.happened.push(Happened { at, text, is_routine });
            let is_like = |happened: &Happened| happened.is_routine == is_routine;
            if self.happened.iter().filter(|happened| is_like(happened)).count() > HAPPENED_MAX
                && let Some(oldest) = self.happened.iter().position(is_like)
            {
                self.happened.remove(oldest);
            }
        }
    }

    /// Its state.
    pub fn status(&self) -> Status<'_> {
        Status {
            cluster: &self.parts.cluster,
            notes: &self.notes,
            elapsed: self.began.elapsed(),
            monitor: &self.monitor,
            moves: self.moves.count,
            admissions: &self.admissions,
            caches: self.caches.as_ref().map(Caches::seen).unwrap_or_default(),
            happened: &self.happened,
        }
    }
}

/// # Errors
/// Where the load would come to nothing: it speaks neither TLS nor the PROXY protocol.
fn speaks_to_all(cluster: &Cluster) -> Result<(), Failure> {
    let loaded = cluster.edges.iter().filter(|_| cluster.workload.is_some());
    let mut in_vain = loaded.filter_map(|edge| match edge {
        Edge { tls, name, .. } if !tls.is_empty() => Some((name, "tls", "TLS")),
        Edge { proxy_protocol: true, name, .. } => Some((name, "proxy_protocol", "the PROXY protocol")),
        _ => None,
    });
    in_vain.next().map_or(Ok(()), |(name, key, protocol)| {
        let how = format!("remove [workload] and send the load yourself, or remove the edge's {key}");
        Err(Failure::new(format!(
            "edge {name} has {key}, and the load of `up` does not speak {protocol}: {how}"
        )))
    })
}

/// Where clients connect: an edge, or the proxy in its place.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The name of the edge.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// The make of the proxy.
    pub make: Option<&'static str>,
    /// Whether it is of one site alone: the address from which the kernel directs connections.
    pub is_of_site: bool,
}

fn listeners(cluster: &Cluster, proxies: &[Proxy]) -> Vec<Listener> {
    let listener =
        |name: &str, address, make, is_of_site| Listener { name: name.to_owned(), address, make, is_of_site };
    let edges = cluster.edges.iter().map(|edge| listener(&edge.name, edge.listen, None, false));
    let proxies =
        proxies.iter().map(|proxy| listener(proxy.front(), proxy.address(), Some(proxy.program()), false));
    let all: Vec<_> = edges.chain(proxies).collect();
    if !all.is_empty() {
        return all;
    }
    let sites = cluster.sites.values();
    sites.filter_map(|site| Some(listener(&site.name, site.connect?, None, true))).collect()
}
