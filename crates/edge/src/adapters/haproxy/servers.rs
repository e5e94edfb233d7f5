//! HAProxy's servers as last seen, what they are told, and what follows for the nodes. It does no I/O and asks no clock.
//!
//! How it is known that no request of a node's old site is left at its server, and none will come:
//!
//! - The server's weight is read back as 0 in each backend whose site the node does not serve. No algorithm of HAProxy chooses
//!   such a server.
//! - HAProxy counts a request at its server (`scur`, `qcur`) only after it has chosen it. So the counts are read twice, at least a
//!   scan apart, and between the two HAProxy has stopped all its threads between two tasks ([`protocol::ASK_ALL_THREADS`]).
//!   A request that was chosen before the first has then been counted, also one that had waited in a queue.
//! - A request whose connection has failed waits for its retry at the same server without being counted, at most [`RETRY_MAX`].
//!   So there must have been no retry (`wretr`) for as long.
//! - A process that HAProxy's reload has replaced goes on with its requests, and counts them apart. It must have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sidelong_layout::{NodeId, Ownership, SiteId, Slots, Time, Worker};

use super::protocol::{self, Process, Server, Wrong, add_server, ask_servers, delete_server, enable_server};

/// HAProxy waits a second before it tries a connection again, or the connect timeout if that is shorter.
const RETRY_MAX: Duration = Duration::from_millis(1_100);
/// In place of the time at which a process started, if it is not one that can be seen here.
const UNKNOWN: u32 = 0;
/// Bytes of a batch: HAProxy reads a line into one buffer, of 16,384 bytes unless it is told otherwise.
const BATCH_BYTES: usize = 8_192;
/// How often HAProxy is asked while no node is on its way.
const IDLE: Duration = Duration::from_millis(20);
const IDLE_MAX: Duration = Duration::from_millis(500);
/// CPU time of HAProxy for a batch, and for each server in it, as measured of 2.6 on a busy machine.
const BATCH_COST: Duration = Duration::from_micros(170);
const SERVER_COST: Duration = Duration::from_micros(10);
/// Batches are so far apart that they take at most a hundredth of one of HAProxy's threads, and a tenth while a node drains. How long
/// an answer takes does not tell: on a busy machine it mostly waits.
const IDLE_SHARE: u32 = 100;
const DRAIN_SHARE: u32 = 10;
/// Likewise while a site rejects clients, a twentieth; no more often than this, which is less than a queue takes to grow.
const REJECT_SHARE: u32 = 20;
const REJECT: Duration = Duration::from_millis(5);
/// Just after a node has left or come, HAProxy is asked more often, each time after this part of the time since, and half of a
/// thread is the most. So what ends or begins at once is seen at once, and only some ten batches come of it.
const SINCE_PART: u32 = 4;
const SOON_SHARE: u32 = 2;

/// Servers that were added have numbers from this on: by that they are known, whoever has added them. HAProxy numbers those of its file
/// from 1.
const ADDED: u32 = 1 << 30;

/// What must be known of the cluster to control HAProxy.
#[derive(Clone, PartialEq, Debug)]
pub struct HaproxyCluster {
    /// The sites' names.
    pub sites: Slots<String>,
    /// The backend of each site.
    pub backends: Slots<String>,
    /// By site, whether its requests that outlast a drain are cut.
    pub cuts: Vec<bool>,
    /// The keywords of servers that are added to HAProxy for nodes that it has none for; `None` to add none.
    pub added: Option<String>,
    /// The nodes.
    pub nodes: Slots<HaproxyNode>,
    /// How long a node may drain.
    pub drain_max: Duration,
    /// The interval of scans.
    pub scan: Duration,
    /// What the front last said counts so long after it has ended.
    pub stale: Duration,
}

/// A node to which HAProxy may have servers.
#[derive(Clone, PartialEq, Debug)]
pub struct HaproxyNode {
    /// Its name, by which a server counts as the node's if its address does not tell.
    pub name: String,
    /// Where its server answers, if that is an IP address.
    pub address: Option<SocketAddr>,
    /// Whether it serves no site when it starts for the first time.
    pub starts_free: bool,
    /// Requests that it works on at a time.
    pub workers: u32,
    /// The speed of a worker: 2.0 takes half the ordinary time.
    pub speed: f32,
}

impl HaproxyNode {
    fn server(&self) -> (&str, Option<SocketAddr>) {
        (&self.name, self.address)
    }
}

/// Whether these are the same node with the same server, whatever that can do.
pub(super) fn is_same(one: Option<&HaproxyNode>, other: Option<&HaproxyNode>) -> bool {
    one.map(HaproxyNode::server) == other.map(HaproxyNode::server)
}

/// What a node's servers should have.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Wanted {
    /// Its ownership; `None` while it is not known, and its servers are left as they are.
    pub(super) ownership: Option<Ownership>,
    /// The weight where it serves, 1 to 256.
    pub(super) weight: u16,
}

/// What is known of HAProxy's requests at a node. The sums are of all that were seen, whatever process HAProxy was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counted {
    /// Requests that have not ended, at its servers in all backends of sites.
    pub(super) in_flight: u32,
    /// Requests that were sent.
    pub(super) sessions: u64,
    /// Answers that were none of the server's failures.
    pub(super) answers: u64,
    /// Failures.
    pub(super) failures: u64,
    /// Failures of connections, which are among these.
    pub(super) unconnected: u64,
    /// Whether HAProxy's checks say that it does not answer.
    pub(super) is_down: bool,
}

/// Commands to be sent over one connection each, and what is needed to read the replies.
#[derive(Debug)]
pub(super) struct Batch {
    /// The commands of each connection.
    pub(super) connections: Vec<Vec<String>>,
    sets: Vec<(SiteId, String)>,
    /// Whether all threads of HAProxy are stopped before it counts.
    stops: bool,
    wanted: Vec<Wanted>,
}

/// What a person should know, once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Note {
    /// HAProxy was started or reloaded: its process ID.
    Began(u32),
    /// A site's backend has no server for a node, or there is no such backend.
    Missing(SiteId, NodeId),
    /// A server is in maintenance or drains, with HAProxy's word for it; or no longer.
    Held(SiteId, String, Option<String>),
    /// HAProxy does not do as it was told: the command, and what it answered.
    Refused(String, String),
    /// A node got requests though all its weights are 0.
    Strayed(NodeId),
}

/// HAProxy's servers as last seen.
pub(super) struct Servers {
    pub(super) cluster: Arc<HaproxyCluster>,
    by_address: BTreeMap<SocketAddr, usize>,
    by_name: BTreeMap<String, usize>,
    process: Option<Worker>,
    /// Processes from before a reload that may have requests.
    older: Vec<Worker>,
    /// From when on no process is left that this front has never seen.
    whole_at: Time,
    /// The servers of each site's backend, with their nodes.
    sites: Vec<Vec<(Option<NodeId>, Server)>>,
    /// The sites whose backends know no weights but all and nothing.
    fixed: Vec<bool>,
    /// The sites that have a backend.
    is_there: Vec<bool>,
    /// By site, nodes for which HAProxy adds no server.
    refused: BTreeSet<(usize, usize)>,
    /// By site, servers that were put into maintenance here: they were just added, or their node has left.
    paused: BTreeSet<(usize, String)>,
    /// Whether a command of the last batch was refused.
    is_refused: bool,
    nodes: Vec<At>,
    noted: BTreeSet<(usize, usize)>,
    notes: Vec<Note>,
}

#[derive(Clone, Default)]
struct At {
    /// The ownership by which its servers' weights are known to have been set.
    follows: Option<Ownership>,
    /// When it came to be.
    since: Time,
    counted: Counted,
    /// The sums of HAProxy's own counters, as last read.
    last: Counted,
    retries: u64,
    retried_at: Option<Time>,
    /// Whether it has come while this runs, and its servers were not looked at yet.
    is_new: bool,
    /// Whether it serves, and got no request since it came.
    is_fresh: bool,
    /// How often in a row no request was found.
    empty: u8,
    is_left: bool,
    /// Whether it has drained for as long as it may, and has requests.
    is_overdue: bool,
}

impl Servers {
    /// Nothing is known of HAProxy.
    pub(super) fn new(cluster: Arc<HaproxyCluster>) -> Self {
        let mut servers = Servers {
            by_address: BTreeMap::new(),
            by_name: BTreeMap::new(),
            process: None,
            older: Vec::new(),
            whole_at: Time::from_ns(0),
            sites: vec![Vec::new(); cluster.backends.len()],
            fixed: vec![false; cluster.backends.len()],
            is_there: vec![false; cluster.backends.len()],
            refused: BTreeSet::new(),
            paused: BTreeSet::new(),
            is_refused: false,
            nodes: vec![At::default(); cluster.nodes.len()],
            noted: BTreeSet::new(),
            notes: Vec::new(),
            cluster: Arc::clone(&cluster),
        };
        servers.adopt(cluster);
        servers
    }

    /// Goes by other sites and nodes from now on. What is known of those that stay, stays.
    pub(super) fn adopt(&mut self, cluster: Arc<HaproxyCluster>) {
        let last = std::mem::replace(&mut self.cluster, cluster);
        let Servers { cluster, nodes, sites, fixed, is_there, noted, .. } = self;
        nodes.resize_with(cluster.nodes.len(), || At { is_new: true, ..At::default() });
        sites.resize(cluster.backends.len(), Vec::new());
        fixed.resize(cluster.backends.len(), false);
        is_there.resize(cluster.backends.len(), false);
        let is_other = |node: usize| !is_same(last.nodes.get(node), cluster.nodes.get(node));
        let is_other_site = |site: usize| last.backends.get(site) != cluster.backends.get(site);
        let left = || At { is_new: true, ..At::default() };
        (0..nodes.len()).filter(|node| is_other(*node)).for_each(|node| nodes[node] = left());
        for site in (0..sites.len()).filter(|site| is_other_site(*site)) {
            (sites[site], fixed[site], is_there[site]) = (Vec::new(), false, false);
        }
        self.refused.clear();
        self.paused.retain(|(site, _)| !is_other_site(*site));
        noted.retain(|(site, node)| !is_other(*node) && !is_other_site(*site));
        let numbered = || cluster.nodes.entries();
        self.by_address = numbered().filter_map(|(node, at)| Some((at.address?, node))).collect();
        self.by_name = numbered().map(|(node, at)| (at.name.clone(), node)).collect();
        let mut listed = std::mem::take(&mut self.sites);
        listed.iter_mut().flatten().for_each(|(node, server)| *node = self.node_of(server));
        self.sites = listed;
    }

    /// What to send now, with these commands about sites, of which those of one entry belong into one connection.
    pub(super) fn batch(&self, wanted: &[Wanted], told: Vec<(SiteId, Vec<String>)>) -> Batch {
        let (mut raises, mut others) = (Vec::new(), Vec::new());
        for (site, backend) in self.cluster.backends.entries() {
            let id = SiteId::new(site);
            for (node, server) in &self.sites[site] {
                let Some(target) = node.and_then(|node| target(&wanted[node.index()], id)) else { continue };
                if !is_to_be_set(server.weight, target, self.fixed[site]) {
                    continue;
                }
                let percent =
                    if self.fixed[site] && target > 0 { "100%".to_owned() } else { target.to_string() };
                let command = format!("set server {backend}/{} weight {percent}", server.name);
                if target > server.weight { raises.push((id, command)) } else { others.push((id, command)) }
            }
        }
        // Whatever is lost on the way, a site has no moment without a server.
        raises.append(&mut others);
        let each = raises.into_iter().chain(self.cuts()).map(|(site, command)| (site, vec![command]));
        let together: Vec<_> = each.chain(self.come_and_gone()).chain(told).collect();
        let stops = self.nodes.iter().any(|at| at.empty == 1);
        let mut reads = vec![protocol::ASK_PROCESS.to_owned()];
        reads.extend(stops.then(|| protocol::ASK_ALL_THREADS.to_owned()));
        reads.extend(self.cluster.backends.values().map(|backend| ask_servers(backend)));
        let mut connections = vec![Vec::new()];
        let mut bytes = 0;
        // A reply shows which process it is of: all reads are of one connection.
        for commands in together.iter().map(|(_, commands)| commands).chain([&reads]) {
            let more = commands.iter().map(|command| command.len() + 1).sum::<usize>();
            let is_over = |last: &Vec<String>| last.last().is_some_and(|command| protocol::is_last(command));
            if bytes > 0 && (bytes + more > BATCH_BYTES || connections.last().is_some_and(is_over)) {
                connections.push(Vec::new());
                bytes = 0;
            }
            bytes += more;
            connections.last_mut().into_iter().for_each(|last| last.extend_from_slice(commands));
        }
        let of_site =
            |(site, commands): (SiteId, Vec<String>)| commands.into_iter().map(move |one| (site, one));
        Batch {
            connections,
            sets: together.into_iter().flat_map(of_site).collect(),
            stops,
            wanted: wanted.to_vec(),
        }
    }

    /// The address of a server that is added for a node which has none in the site's backend.
    fn added_at(&self, site: usize, node: usize, at: &HaproxyNode) -> Option<SocketAddr> {
        let takes =
            self.cluster.added.is_some() && self.is_there[site] && !self.refused.contains(&(site, node));
        at.address.filter(|_| takes)
    }

    /// Deletes the servers whose node has left, and adds one for each node that has none.
    fn come_and_gone(&self) -> Vec<(SiteId, Vec<String>)> {
        let Some(keywords) = &self.cluster.added else { return Vec::new() };
        let mut commands = Vec::new();
        for (site, backend) in self.cluster.backends.entries() {
            let (id, listed) = (SiteId::new(site), &self.sites[site]);
            let of = |name: &str| format!("{backend}/{name}");
            for (node, server) in listed.iter().filter(|(_, server)| server.id >= ADDED) {
                let is_paused = self.paused.contains(&(site, server.name.clone()));
                match node {
                    None if server.current + server.queued == 0 => {
                        commands.push((id, delete_server(&of(&server.name))));
                    }
                    Some(_) if server.is_held() && is_paused => {
                        commands.push((id, vec![enable_server(&of(&server.name))]));
                    }
                    _ => {}
                }
            }
            let has_number = |number: &u32| listed.iter().any(|(_, server)| server.id == *number);
            let mut numbers = (ADDED..).filter(|number| !has_number(number));
            for (node, at) in self.cluster.nodes.entries() {
                // A server of that name that is another's, or is to be deleted, goes first.
                let has_one = |(of, server): &(Option<NodeId>, Server)| {
                    *of == Some(NodeId::new(node)) || server.name == at.name
                };
                if let Some(address) = self.added_at(site, node, at).filter(|_| !listed.iter().any(has_one)) {
                    let number = numbers.next().unwrap_or(ADDED);
                    commands.push((id, add_server(&of(&at.name), address, number, keywords)));
                }
            }
        }
        commands
    }

    /// Ends the requests that outlast a drain, where the site has them cut.
    fn cuts(&self) -> impl Iterator<Item = (SiteId, String)> {
        let of_site = move |(site, backend): (usize, &String)| {
            let is_cut = |(node, server): &&(Option<NodeId>, Server)| {
                server.weight == 0
                    && server.current + server.queued > 0
                    && node.is_some_and(|node| self.nodes[node.index()].is_overdue)
            };
            let servers = self.sites[site].iter().filter(|_| self.cluster.cuts[site]).filter(is_cut);
            let command = |server: &Server| format!("shutdown sessions server {backend}/{}", server.name);
            servers.map(|(_, server)| (SiteId::new(site), command(server))).collect::<Vec<_>>()
        };
        self.cluster.backends.entries().flat_map(of_site)
    }

    /// Takes the replies to a batch, one for each command. `started` says when a process started, as [`Worker`] has it, and `is_alone`
    /// whether there is no other that it may have replaced.
    ///
    /// # Errors
    /// If they are not what was asked for; then nothing is taken.
    pub(super) fn heard(
        &mut self,
        batch: &Batch,
        replies: &[String],
        now: Time,
        started: impl Fn(u32) -> Option<u32>,
        is_alone: impl Fn(u32) -> bool,
    ) -> Result<(), Wrong> {
        let backends = self.cluster.backends.values().count();
        let expected = batch.sets.len() + 1 + usize::from(batch.stops) + backends;
        if replies.len() != expected {
            return Err(Wrong::Cut { found: replies.len(), expected });
        }
        let (set, read) = replies.split_at(batch.sets.len());
        let process = protocol::process(&read[0])?;
        let lists = read[1 + usize::from(batch.stops)..].iter().map(|reply| {
            // A site without a backend has no requests here.
            if reply.starts_with("No such proxy") { Ok(None) } else { protocol::servers(reply).map(Some) }
        });
        let lists = lists.collect::<Result<Vec<_>, _>>()?;
        self.take_refusals(batch, set);
        let is_first = self.process.is_none();
        self.take_process(process, started(process.pid), is_alone, now);
        self.take_servers(lists);
        for node in 0..self.nodes.len() {
            self.take_node(node, &batch.wanted[node], batch.stops, is_first, now);
        }
        Ok(())
    }

    fn take_refusals(&mut self, batch: &Batch, replies: &[String]) {
        self.is_refused = false;
        for ((site, command), reply) in batch.sets.iter().zip(replies) {
            let (site, name) = (site.index(), command.split(['/', ' ']).nth(3).unwrap_or_default());
            let refusal = protocol::refusal(command, reply);
            let at = (site, name.to_owned());
            match command.split(' ').next() {
                Some("add" | "disable") if refusal.is_none() => _ = self.paused.insert(at),
                Some("enable") if command.starts_with("enable server ") && refusal.is_none() => {
                    self.paused.remove(&at);
                }
                // Its name and its number are free.
                Some("del") if refusal.is_none() => self.refused.retain(|(of, _)| *of != site),
                _ => {}
            }
            let Some(reply) = refusal else { continue };
            // Of a server that is to be deleted connections may be left. It is deleted later.
            if command.starts_with("del server ") {
                continue;
            }
            if reply.contains("static LB algorithm") && !self.fixed[site] {
                self.fixed[site] = true;
                continue;
            }
            if command.starts_with("add server ") {
                let mut nodes = self.cluster.nodes.entries();
                self.refused.extend(nodes.find(|(_, node)| node.name == name).map(|(node, _)| (site, node)));
            }
            self.is_refused = true;
            self.notes.push(Note::Refused(command.clone(), protocol::excerpt(reply)));
        }
    }

    fn take_process(
        &mut self,
        Process { pid, uptime }: Process,
        started: Option<u32>,
        is_alone: impl Fn(u32) -> bool,
        now: Time,
    ) {
        let process = Worker { pid, started: started.unwrap_or(UNKNOWN) };
        match self.process.replace(process) {
            Some(old) if old == process => return,
            Some(old) if old.started == UNKNOWN => self.whole_at = now.after(self.cluster.drain_max),
            Some(old) => self.older.push(old),
            // One that was replaced before this front began may still have requests, for as long as a node may drain.
            None if is_alone(pid) => {}
            None => self.whole_at = now.after(self.cluster.drain_max.saturating_sub(uptime)),
        }
        self.notes.push(Note::Began(pid));
        // It knows its file, and nothing that was added since.
        self.refused.clear();
        self.paused.clear();
        for at in &mut self.nodes {
            (at.last, at.retries, at.empty) = (Counted::default(), 0, 0);
        }
    }

    fn take_servers(&mut self, lists: Vec<Option<Vec<Server>>>) {
        let cluster = Arc::clone(&self.cluster);
        for ((site, _), servers) in cluster.backends.entries().zip(lists) {
            let id = SiteId::new(site);
            self.is_there[site] = servers.is_some();
            let servers = servers.unwrap_or_default();
            let listed: Vec<_> = servers.into_iter().map(|server| (self.node_of(&server), server)).collect();
            for (_, server) in listed.iter().filter(|(node, _)| node.is_some()) {
                let known = self.sites[site].iter().find(|(_, known)| known.name == server.name);
                if server.is_held() != known.is_some_and(|(_, known)| known.is_held()) {
                    let word = server.is_held().then(|| server.status.clone());
                    self.notes.push(Note::Held(id, server.name.clone(), word));
                }
            }
            for (node, at) in cluster.nodes.entries() {
                let has_one = listed.iter().any(|(of, _)| *of == Some(NodeId::new(node)));
                if !has_one && self.added_at(site, node, at).is_none() && self.noted.insert((site, node)) {
                    self.notes.push(Note::Missing(id, NodeId::new(node)));
                }
            }
            self.sites[site] = listed;
        }
    }

    fn node_of(&self, server: &Server) -> Option<NodeId> {
        let by_address = server.address.and_then(|address| self.by_address.get(&address));
        // One that was added has the address that its node had then.
        let by_name = || self.by_name.get(&server.name).filter(|_| server.id < ADDED);
        by_address.or_else(by_name).map(|node| NodeId::new(*node))
    }

    fn take_node(&mut self, node: usize, wanted: &Wanted, stopped: bool, is_first: bool, now: Time) {
        let id = NodeId::new(node);
        let mut sum = Counted::default();
        let (mut retries, mut follows) = (0_u64, true);
        let mut is_up = false;
        for (site, servers) in self.sites.iter().enumerate() {
            for (_, server) in servers.iter().filter(|(of, _)| *of == Some(id)) {
                sum.in_flight = sum.in_flight.saturating_add(server.current).saturating_add(server.queued);
                sum.sessions = sum.sessions.saturating_add(server.sessions);
                // Without a look at the answers, those that have ended without a failure.
                let ended = || server.sessions.saturating_sub(u64::from(server.current) + server.failures);
                sum.answers = sum.answers.saturating_add(server.answers.unwrap_or_else(ended));
                sum.failures = sum.failures.saturating_add(server.failures);
                sum.unconnected = sum.unconnected.saturating_add(server.unconnected);
                sum.is_down |= server.is_down();
                is_up |= server.status.starts_with("UP");
                retries = retries.saturating_add(server.retries);
                follows &= target(wanted, SiteId::new(site))
                    .is_none_or(|target| (target > 0) == (server.weight > 0));
            }
        }
        let is_whole = now >= self.whole_at && self.older.is_empty();
        let at = &mut self.nodes[node];
        if is_first || at.is_new {
            // What came before this front, or before the node, is not news.
            at.is_new = false;
            (at.last, at.retries) = (sum, 0);
        }
        let more = sum.sessions.saturating_sub(at.last.sessions);
        if at.is_left && more > 0 {
            self.notes.push(Note::Strayed(id));
        }
        at.counted = Counted {
            in_flight: sum.in_flight,
            sessions: at.counted.sessions + more,
            answers: at.counted.answers + sum.answers.saturating_sub(at.last.answers),
            failures: at.counted.failures + sum.failures.saturating_sub(at.last.failures),
            unconnected: at.counted.unconnected + sum.unconnected.saturating_sub(at.last.unconnected),
            // One backend may check in another way.
            is_down: sum.is_down && !is_up,
        };
        at.last = sum;
        if retries != at.retries {
            (at.retries, at.retried_at) = (retries, Some(now));
        }
        let is_quiet = at.retried_at.is_none_or(|retried_at| now.since(retried_at) >= RETRY_MAX);
        if follows && wanted.ownership.is_some() && at.follows != wanted.ownership {
            (at.follows, at.since, at.empty) = (wanted.ownership, now, 0);
            at.is_fresh = !at.drains();
        }
        at.is_fresh &= more == 0;
        at.empty = match at.empty {
            _ if !follows || sum.in_flight > 0 || more > 0 || !at.drains() => 0,
            0 => 1,
            1 if !stopped => 1,
            _ => 2,
        };
        at.is_left = at.empty == 2 && is_quiet && is_whole;
        at.is_overdue = at.drains() && sum.in_flight > 0 && now.since(at.since) >= self.cluster.drain_max;
    }

    /// What is stated about a node: the ownership that HAProxy goes by, and its requests there. One that may be under way counts.
    pub(super) fn stated(&self, node: NodeId) -> Option<(Ownership, u32)> {
        let at = &self.nodes[node.index()];
        let requests = at.counted.in_flight;
        Some((at.follows?, if at.drains() && !at.is_left { requests.max(1) } else { requests }))
    }

    /// HAProxy's requests at a node.
    pub(super) fn counted(&self, node: NodeId) -> Counted {
        self.nodes[node.index()].counted
    }

    /// The processes from before a reload that may have requests; those that are not kept have ended.
    pub(super) fn keep_older(&mut self, is_alive: impl Fn(Worker) -> bool) -> &[Worker] {
        self.older.retain(|worker| is_alive(*worker));
        &self.older
    }

    /// The servers as last seen: of which site, of which node if of any, and what HAProxy says of them.
    pub(super) fn list(&self) -> impl Iterator<Item = (SiteId, Option<NodeId>, &Server)> {
        let of_site = |(site, servers)| {
            let servers: &Vec<(Option<NodeId>, Server)> = servers;
            servers.iter().map(move |(node, server)| (SiteId::new(site), *node, server))
        };
        self.sites.iter().enumerate().flat_map(of_site)
    }

    /// All nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId::new)
    }

    /// What a person should know, since the last call.
    pub(super) fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// How long to leave HAProxy alone after a batch; `rejects` while a site rejects clients.
    pub(super) fn pause(&self, wanted: &[Wanted], rejects: bool, now: Time) -> Duration {
        let servers = self.sites.iter().map(Vec::len).sum::<usize>() as u32;
        let cost = BATCH_COST + SERVER_COST * servers;
        let (least, share) = if rejects { (REJECT, REJECT_SHARE) } else { (IDLE, IDLE_SHARE) };
        let idle = least.max(cost * share).min(IDLE_MAX);
        if self.process.is_none() {
            return idle;
        }
        if !self.is_refused && self.is_wrong(wanted) {
            return self.cluster.scan.max(cost * DRAIN_SHARE).min(IDLE_MAX);
        }
        let is_whole = now >= self.whole_at && self.older.is_empty();
        let next = |at: &At| {
            let since = now.since(at.since);
            let most = match at.drains() {
                // What takes longer than a move waits is not waited for.
                true if is_whole && !at.is_left && since < self.cluster.drain_max => cost * DRAIN_SHARE,
                false if at.is_fresh => idle,
                _ => return None,
            };
            Some((since / SINCE_PART).min(most))
        };
        let soonest = self.nodes.iter().filter_map(next).min();
        let first = self.cluster.scan.max(cost * SOON_SHARE);
        soonest.map_or(idle, |soonest| soonest.max(first).min(IDLE_MAX))
    }

    /// Whether a server would get requests that it must not get, or no requests though it should.
    fn is_wrong(&self, wanted: &[Wanted]) -> bool {
        let wrong = |site: usize, node: Option<NodeId>, server: &Server| {
            let target = node.and_then(|node| target(&wanted[node.index()], SiteId::new(site)));
            target.is_some_and(|target| (target > 0) != (server.weight > 0))
        };
        let mut sites = self.sites.iter().enumerate();
        sites.any(|(site, listed)| listed.iter().any(|(node, server)| wrong(site, *node, server)))
    }
}

impl At {
    /// Whether its servers get no requests, or are about to.
    fn drains(&self) -> bool {
        self.follows.is_some_and(|follows| follows.serving_site().is_none())
    }
}

/// The weight that a node's server in a site's backend should have, if that is known.
fn target(wanted: &Wanted, site: SiteId) -> Option<u16> {
    let weight = wanted.weight.clamp(1, 256);
    wanted.ownership.map(|ownership| if ownership.serves(site) { weight } else { 0 })
}

/// Whether a weight is far enough from its target. An eighth is less than loads change from one moment to the next.
fn is_to_be_set(weight: u16, target: u16, is_fixed: bool) -> bool {
    if weight == 0 || target == 0 {
        return weight != target;
    }
    !is_fixed && u32::from(weight.abs_diff(target)) * 8 > u32::from(weight.max(target))
}

#[cfg(test)]
mod tests;
