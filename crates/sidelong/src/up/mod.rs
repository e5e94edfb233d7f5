//! `sidelong up`: a whole shared data center on this machine.
//!
//! It starts each node, each edge, or a proxy in its place, and each cache as a process of its own and sends the cluster file's
//! workload to the edges. What it shows of nodes it reads from their memory, as an edge does.

mod admissions;
mod args;
mod auction;
mod bursts;
mod caches;
mod children;
mod foreign;
mod home;
mod outcome;
mod plain;
mod proxies;
mod requests;
mod samples;
mod screen;
mod servers;

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sidelong_app::Parts;
use sidelong_app::cgroup::Groups;
use sidelong_config::{self as config, Cluster, ClusterFile, Edge};
use sidelong_lab::results::up::Summary;
use sidelong_layout::NodeId;
use sidelong_os::CpuUsed;
use sidelong_workload::client::{Generator, Live, Run};
use sidelong_workload::walk::{self, Walker};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use crate::cluster::{self, with_nodes};
use crate::event::Event;
use crate::failure::{Failure, say, some};
use crate::hangup::Hangup;
use crate::monitor::Monitor;
use crate::page::Terminal;
use crate::top::{Asking, Documents};
use admissions::{Admissions, Told};
pub(crate) use args::UpArgs;
pub(crate) use auction::Demo;
use auction::{Auction, Neighbours};
use bursts::Bursts;
use caches::{Caches, Seen};
use children::{Children, News};
use foreign::Foreign as _;
use home::Home;
use outcome::{Last, Moves, StepTimes};
pub(crate) use proxies::FrontMake;
use proxies::Proxy;
use requests::Requests;
use samples::Samples;
use servers::Server;
pub(crate) use servers::{ExecArgs, Make, exec};
use sidelong_harness::parent::end_left_behind;

/// Kinds of parts whose CPU time under the load is told: what clients connect to, and what leads it.
const MEASURED: [&[&str]; 2] = [&["edge", "proxy"], &["front"]];
/// Interval of scans of the nodes.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Interval of lines without a terminal, and the window over which a terminal's figures are averaged.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Interval of frames on a terminal.
const FRAME_EVERY: Duration = Duration::from_millis(100);
/// Most routine events that are remembered for the screen; as many other events.
const HAPPENED_MAX: usize = 64;

/// The state of the running cluster, for display.
pub(crate) struct Status<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) notes: &'a [String],
    pub(crate) elapsed: Duration,
    pub(crate) live: Option<&'a Live>,
    pub(crate) monitor: &'a Monitor,
    pub(crate) moves: u64,
    pub(crate) admissions: &'a Admissions,
    /// Each cache of the file.
    pub(crate) caches: Vec<Seen>,
    /// Each edge, if nodes keep documents.
    pub(crate) documents: Vec<Documents>,
    /// The latest events, newest last.
    pub(crate) happened: &'a [Happened],
}

/// An event for the user.
pub(crate) struct Happened {
    /// Time since the start.
    pub(crate) at: Duration,
    pub(crate) text: String,
    /// Whether such events come in dozens: moves, and nodes that edges take out and back in.
    pub(crate) is_routine: bool,
}

impl Status<'_> {
    /// Requests of a site rejected in a recent second, as the load sees it, including closed connections; without a
    /// load as the edges report.
    pub(crate) fn rejected_per_s(&self, site: usize) -> u64 {
        match self.live {
            Some(live) => live.sites[site].turned_away_per_s.round() as u64,
            None => self.admissions.rejected_per_s(site),
        }
    }
}

/// Runs the cluster to its end. With `quiet` it prints no greeting.
pub(crate) fn run(args: &UpArgs, quiet: bool) -> Result<(), Failure> {
    let mut file = match (&args.config, args.demo) {
        (Some(path), _) => cluster::load(path)?,
        (None, Some(Demo::Auction)) => auction::cluster()?,
        (None, None) => ClusterFile::demo(),
    };
    if args.demo.is_some() && file.workload.is_some() {
        return Err(Failure::new("--demo has a load of its own: remove [workload] from the cluster file"));
    }
    file.cluster.fabric = args.fabric.unwrap_or(file.cluster.fabric);
    let mut servers = match (args.servers, args.demo) {
        (Some(make), _) => servers::in_place_of_origins(&mut file, make, "--servers")?,
        (None, Some(Demo::Auction)) => {
            servers::in_place_of_origins(&mut file, Make::Gunicorn, "--demo auction")?
        }
        (None, None) => Vec::new(),
    };
    let proxies = match args.front {
        Some(make) => proxies::in_place_of_edges(&mut file, make, args.by)?,
        None => Vec::new(),
    };
    if args.cache {
        caches::add(&mut file);
    }
    let path = args.config.as_deref().unwrap_or(Path::new("the demo"));
    let parts = Parts::new(with_nodes(file.cluster()?, path)?)?;
    // Parts use the directory that this process has chosen, whatever their environment.
    file.cluster.run_dir = Some(parts.run.path().to_owned());
    speaks_to_all(&parts.cluster)?;
    let run = parts.run.clone();
    let claim = run.claim()?;
    end_left_behind(&run)?;
    // The parts read what this process has read, even if the user's file changes.
    let mut home = Home::new(run.clone(), claim, file.to_toml()?)?;
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
    let is_quiet = quiet || args.json;
    let auction = args.demo.map(|Demo::Auction| {
        Auction::prepare(run.path(), args.database.as_deref(), is_quiet, || stop.load(Ordering::Relaxed))
    });
    let summary = auction.transpose().and_then(|auction| {
        servers.iter_mut().for_each(|server| server.auction.clone_from(&auction));
        let foreign = (servers, proxies);
        Up::start(args, quiet, parts, foreign, &mut home, Arc::clone(&stop), reopen).and_then(Up::run)
    });
    // The parts have ended, so what they offered is useless.
    let mut swept = run.sweep();
    if args.demo.is_some() {
        swept = swept.and(Auction::clear(run.path()));
    }
    drop(home);
    let summary = summary?;
    let summary =
        if args.json { serde_json::to_string_pretty(&summary)? + "\n" } else { outcome::table(&summary) };
    say(summary)?;
    swept.map_err(|error| Failure::new(format!("cannot clear {}: {error}", run.path().display())))
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

struct Up<'a> {
    args: &'a UpArgs,
    quiet: bool,
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
    /// Set by SIGUSR1: the edges are to open their access logs anew.
    reopen: Arc<AtomicBool>,
    steps: StepTimes,
    notes: Vec<String>,
    happened: Vec<Happened>,
    moves: Moves,
    admissions: Admissions,
    /// If the file has any.
    caches: Option<Caches>,
    /// If nodes keep documents.
    asking: Option<Asking>,
    began: Instant,
}

impl<'a> Up<'a> {
    fn start(
        args: &'a UpArgs,
        quiet: bool,
        parts: Parts,
        (servers, proxies): (Vec<Server>, Vec<Proxy>),
        home: &'a mut Home,
        stop: Arc<AtomicBool>,
        reopen: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let steps = StepTimes::new(&parts.cluster);
        let bursts = match &parts.cluster.workload {
            Some(workload) => Some(Bursts::new(workload, &parts.cluster.sites, steps.clone())?),
            None => None,
        };
        let samples = args.samples.as_deref().map(Samples::create).transpose()?;

        // The kernel distinguishes nodes of one machine by control groups, which also enforce their CPU shares.
        let groups = match parts.cluster.load.scheme {
            config::Scheme::RdmaSync | config::Scheme::ERdmaSync
                if (0..parts.cluster.nodes.len()).any(|node| parts.shares_machine(node)) =>
            {
                Some(Groups::create()?)
            }
            _ if parts.cluster.nodes.iter().any(|node| node.cpu_share.is_some()) => Some(Groups::create()?),
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
        for (index, node) in parts.cluster.nodes.iter().enumerate() {
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
        let by_itself = |name: &str| proxies.iter().any(|proxy| proxy.front() == name && !proxy.is_led());
        for front in parts.cluster.fronts.iter().filter(|front| front.leads.is_some()) {
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
            peers => Some(Caches::start(peers, args.cache)?),
        };
        let asking = match parts.cluster.cache.documents {
            true => Asking::start(&parts.cluster)?,
            false => None,
        };
        let requests = args
            .requests
            .as_deref()
            .map(|path| Requests::create(path, &parts.cluster, &listeners))
            .transpose()?;
        let demo = args.demo.filter(|_| args.sessions > 0);
        let load = match (bursts, demo) {
            (Some(bursts), _) => {
                Some((Generator::new(bursts.client_config(&parts.cluster, &listeners), bursts)?, None))
            }
            (None, Some(Demo::Auction)) => {
                let edges: Vec<_> = listeners.iter().map(|listener| listener.address).collect();
                let (neighbours, config) = Neighbours::new(&parts.cluster.sites, &edges, args.sessions)?;
                let (site, persons) = auction::persons(&parts.cluster.sites, &edges, args.sessions)?;
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
        Ok(Up {
            args,
            quiet,
            notes: pages(args, &parts.cluster, &listeners).chain([parts.fabric.note().to_owned()]).collect(),
            listeners,
            admissions: Admissions::new(parts.cluster.sites.iter().map(|site| site.name.clone())),
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
            reopen,
            steps,
            caches,
            asking,
            _groups: groups,
            happened: Vec::new(),
            moves: Moves::default(),
            began: Instant::now(),
        })
    }

    fn run(mut self) -> Result<Summary, Failure> {
        let json = self.args.json;
        let mut screen = match Terminal::is_there() && !json && !self.args.plain {
            true => Some(screen::Screen::open()?),
            false => None,
        };
        let mut news = self.begin_load()?;
        if screen.is_none() && !self.quiet {
            // A closed standard error does not stop the cluster.
            let _ = writeln!(std::io::stderr(), "{}", greeting(&self.parts.cluster, &self.listeners));
            for page in pages(self.args, &self.parts.cluster, &self.listeners) {
                let _ = writeln!(std::io::stderr(), "sidelong: {page}");
            }
        }
        let show_every = if screen.is_some() { FRAME_EVERY } else { LINE_EVERY };
        let (mut live, mut live_at, mut shown_at) = (None, Instant::now(), Instant::now());
        while !self.is_over() {
            std::thread::sleep(LOOK_EVERY);
            if self.reopen.swap(false, Ordering::Relaxed) {
                self.children.signal_edges(Signal::USR1);
            }
            self.monitor.look();
            news.extend(self.hear());
            if screen.is_none() && !json {
                plain::tell(&news)?;
            }
            news = self.begin_load()?;
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

    /// Begins the load once the nodes have run the commands of their sites, or have had the time to. Returns what that is to
    /// tell.
    fn begin_load(&mut self) -> Result<Vec<(Duration, String)>, Failure> {
        let Some(mut waiting) = self.waiting.take() else { return Ok(Vec::new()) };
        let nodes = (0..self.parts.cluster.nodes.len()).map(NodeId::new);
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
        let news: Vec<_> = text.into_iter().map(|text| (at, text)).collect();
        let happened =
            |(at, text): &(Duration, String)| Happened { at: *at, text: text.clone(), is_routine: false };
        self.happened.extend(news.iter().map(happened));
        Ok(news)
    }

    /// Stops the load, lets requests in flight finish, and ends the parts.
    fn end(mut self) -> Result<Summary, Failure> {
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
        let _ = self.hear();
        let (caches, cache_load) = self.caches.take().map(Caches::finish).unwrap_or_default();
        let misdirected = |event| if let Event::Misdirected { requests } = event { requests } else { 0 };
        let misdirected = self.children.end().into_iter().map(misdirected).sum();
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

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.args.duration.is_some_and(|time| self.began.elapsed() >= time)
            || match &self.persons {
                Some(persons) => persons.is_finished(),
                None => self.load.as_ref().is_some_and(Run::is_finished),
            }
    }

    /// Takes in the events of the parts. Returns those that plain output prints: all except moves, which it counts.
    fn hear(&mut self) -> Vec<(Duration, String)> {
        let mut news = Vec::new();
        for (part, told) in self.children.poll(self.home) {
            let is_move =
                matches!(told, News::Event(Event::Moved { .. } | Event::Ended { node: Some(_), .. }));
            let is_routine = is_move || matches!(told, News::Event(Event::Health { .. }));
            let text = match told {
                News::Ended(how) => {
                    self.admissions.ended(&part);
                    format!("{part} ended ({how}) and is restarted")
                }
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
                news.push((at, text.clone()));
            }
            self.happened.push(Happened { at, text, is_routine });
            let is_like = |happened: &Happened| happened.is_routine == is_routine;
            if self.happened.iter().filter(|happened| is_like(happened)).count() > HAPPENED_MAX
                && let Some(oldest) = self.happened.iter().position(is_like)
            {
                self.happened.remove(oldest);
            }
        }
        news
    }

    fn status<'s>(&'s self, live: Option<&'s Live>) -> Status<'s> {
        Status {
            cluster: &self.parts.cluster,
            notes: &self.notes,
            elapsed: self.began.elapsed(),
            live,
            monitor: &self.monitor,
            moves: self.moves.count,
            admissions: &self.admissions,
            caches: self.caches.as_ref().map(Caches::seen).unwrap_or_default(),
            documents: self.asking.as_ref().map(|asking| asking.latest().documents).unwrap_or_default(),
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
struct Listener {
    name: String,
    address: SocketAddr,
    /// The make of the proxy.
    make: Option<&'static str>,
    /// Whether it is of one site alone: the address from which the kernel directs connections.
    is_of_site: bool,
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
    let sites = cluster.sites.iter();
    sites.filter_map(|site| Some(listener(&site.name, site.connect?, None, true))).collect()
}

/// Where a person finds the pages of a demonstration.
fn pages(args: &UpArgs, cluster: &Cluster, listeners: &[Listener]) -> impl Iterator<Item = String> {
    let port = listeners.first().map(|listener| listener.address.port());
    let host = cluster.sites.first().map(|site| &site.hosts[0]);
    let page = args.demo.and(port).zip(host);
    page.map(|(port, host)| format!("open http://{host}:{port}/")).into_iter()
}

/// What runs, and where clients connect.
fn greeting(cluster: &Cluster, listeners: &[Listener]) -> String {
    let listen_at = listeners.iter().map(|listener| match listener.make {
        Some(make) => format!("{make} at {}", listener.address),
        None => listener.address.to_string(),
    });
    let is_yours = |name: &str| listeners.iter().all(|listener| listener.name != name);
    let yours = cluster.fronts.iter().filter(|front| is_yours(&front.name));
    // Where there is no proxy, the sites' addresses are listed.
    let yours = yours
        .filter_map(|front| front.leads.as_ref())
        .filter(|leads| leads.proxy != sidelong_config::Proxy::Connect);
    let yours = yours.map(|leads| format!("your {}", leads.proxy));
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
