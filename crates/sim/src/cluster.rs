//! The cluster of Gu and Wang 2004 as a model: a dispatcher, nodes with CPU, memory, NIC and disk, and a switch between
//! them.
//!
//! The knowledge and the decisions of the nodes are those of `sidelong-rams`, the code that runs
//! live. This module adds the time that they take: each part of a node is a [`Server`] that is asked when the work reaches
//! it.
//!
//! ```text
//! request ─▶ CPU ─▶ in memory: answered
//!             ├──▶ read:  wire ─▶ home's NIC ─▶ port ─▶ CPU ─▶ answered       (no CPU of the home)
//!             ├──▶ ask:   NIC ─▶ port ─▶ home's CPU [─▶ disk] ─▶ NIC ─▶ port ─▶ CPU ─▶ read
//!             └──▶ own disk ─▶ CPU ─▶ answered
//! ```
//!
//! A *port* is the switch's output towards a node, where messages from several others queue. The network is cut-through: a
//! message occupies the sender's NIC and the port at the same time, apart from the delay of the wire between them. The
//! network to the clients is not simulated, because it is the same for all protocols.

use std::sync::Arc;

use sidelong_policy::balance::{Balance, Candidates};
use sidelong_policy::cache::store::Place;
use sidelong_policy::index::LoadIndex;
use sidelong_rams::peer::{Act, Counters, Look, NodeId, Peer};
use sidelong_rams::protocol::{CacheSettings, HEADER_BYTES, Message, Protocol};

use crate::Time;
use crate::costs::Costs;
use crate::engine::{Model, Pool, Queue, Server};
use crate::measures::{Measures, Outcome};
use crate::slab::Slab;
use crate::workload::{Arrivals, Keys, Requests};

/// Requests whose tables are fetched into the CPU's cache at once, ahead of them. Their memory accesses then overlap,
/// instead of each request waiting for its own.
const AHEAD: usize = 32;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Number of nodes.
    pub nodes: u32,
    /// Settings of each node's cache.
    pub cache: CacheSettings,
    /// Costs of each node's parts.
    pub costs: Costs,
    /// The requested objects, in order.
    pub requests: Arc<Requests>,
    /// When requests arrive.
    pub arrivals: Arrivals,
    /// The policy by which the dispatcher chooses a node.
    pub dispatch: Balance,
    /// Number of requests before the measured ones.
    pub warmup: usize,
    /// Seed of the random numbers, and of the placement of objects.
    pub seed: u64,
}

/// The model.
#[derive(Debug)]
pub struct Cluster {
    setup: Setup,
    keys: Keys,
    nodes: Vec<Node>,
    peers: Vec<Peer>,
    /// Number of requests that have arrived.
    came: usize,
    /// The next of them, and the node that the one after these is dispatched to.
    ahead: [Dispatched; AHEAD],
    node_next: NodeId,
    /// Requests at each node, if the dispatcher needs them.
    in_flight: Vec<u32>,
    under_way: Slab<Request>,
    parcels: Slab<Parcel>,
    acts: Vec<Act>,
    notes: Vec<u64>,
    measures: Measures,
    /// The counts at the end of warm-up, and its time.
    before: Totals,
}

/// The nodes as [`Balance`] sees them.
struct AtNodes<'a> {
    in_flight: &'a [u32],
    cores: u64,
}

impl Candidates for AtNodes<'_> {
    fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// The share of its cores that have a request. The dispatcher cannot see requests at other parts.
    fn index(&self, candidate: usize) -> LoadIndex {
        let full = u64::from(LoadIndex::FULL.0);
        LoadIndex((u64::from(self.in_flight[candidate]) * full / self.cores) as u32)
    }

    fn index_at_look(&self, candidate: usize) -> LoadIndex {
        self.index(candidate)
    }

    /// The dispatcher sees no answers.
    fn answer_us(&self, _: usize) -> Option<f64> {
        None
    }

    fn in_flight(&self, candidate: usize) -> u32 {
        self.in_flight[candidate]
    }

    fn usable(&self, _: usize) -> bool {
        true
    }
}

/// The parts of a node without its cache.
#[derive(Clone, Debug)]
struct Node {
    cpu: Cpu,
    nic: Server,
    port: Server,
    disk: Pool,
}

/// Facts about a request that are known before it arrives.
#[derive(Clone, Copy, Debug, Default)]
struct Dispatched {
    key: u32,
    node: NodeId,
    home: NodeId,
    /// Size of its object in bytes.
    size: u32,
    /// Whether memory that it will access has not been fetched yet.
    is_cold: bool,
}

/// Most machines of 2004 had one core, which needs no search for a free one as a pool does.
#[derive(Clone, Debug)]
enum Cpu {
    One(Server),
    Many(Pool),
}

impl Cpu {
    #[inline]
    fn serve(&mut self, now: Time, service_ns: u64) -> Time {
        match self {
            Cpu::One(server) => server.serve(now, service_ns),
            Cpu::Many(pool) => pool.serve(now, service_ns),
        }
    }

    fn busy_ns(&self) -> u64 {
        match self {
            Cpu::One(server) => server.busy_ns(),
            Cpu::Many(pool) => pool.busy_ns(),
        }
    }
}

/// A request that is not answered from memory at once.
#[derive(Clone, Copy, Debug)]
struct Request {
    came_ns: u64,
    /// The time when its node turned to another node or to its disk.
    left_ns: u64,
    number: usize,
    key: u32,
    node: NodeId,
    home: NodeId,
    place: Place,
    /// Size of its object in bytes.
    size: u32,
    /// Bytes of the answer to its read.
    bytes: u32,
    failures: u8,
    is_sound: bool,
}

/// A message in flight.
#[derive(Clone, Debug)]
struct Parcel {
    from: NodeId,
    to: NodeId,
    /// Its size, with the bytes of the object if it carries them.
    bytes: u32,
    /// Number of changes that it reports.
    changes: u32,
    message: Message,
}

/// A later event.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A client whose request was answered sends the next.
    Client,
    /// A node has answered, which the dispatcher counts.
    Left(NodeId),
    /// A read is at its home's NIC.
    Fetch(u32),
    /// The answer to a read is at the reader's port.
    Fetching(u32),
    /// The answer is in the reader's memory.
    Fetched(u32),
    /// A message leaves its sender's CPU.
    Sent(u32),
    /// The message is at its receiver's port.
    Coming(u32),
    /// The message is in its receiver's memory.
    Come(u32),
    /// The receiver's CPU has processed the message.
    Taken(u32),
    /// A home's disk is asked for an object.
    Disk(u32),
    /// The disk has read the object.
    Loaded(u32),
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    at_ns: u64,
    counters: Counters,
    cpu_ns: u64,
    nic_ns: u64,
    port_ns: u64,
    disk_ns: u64,
}

impl Cluster {
    /// A cluster whose nodes are idle and have empty caches.
    pub fn new(setup: Setup) -> Self {
        let cpu = match setup.costs.cores {
            1 => Cpu::One(Server::default()),
            cores => Cpu::Many(Pool::new(cores)),
        };
        let disk = Pool::new(setup.costs.disk_depth);
        let node = Node { cpu, nic: Server::default(), port: Server::default(), disk };
        Cluster {
            keys: setup.requests.keys(),
            nodes: vec![node; setup.nodes as usize],
            peers: (0..setup.nodes).map(|me| Peer::new(me, setup.nodes, setup.cache)).collect(),
            came: 0,
            ahead: [Dispatched::default(); AHEAD],
            node_next: 0,
            in_flight: match setup.dispatch {
                Balance::RoundRobin => Vec::new(),
                _ => vec![0; setup.nodes as usize],
            },
            under_way: Slab::new(),
            parcels: Slab::new(),
            acts: Vec::new(),
            notes: Vec::new(),
            measures: Measures::new(),
            before: Totals::default(),
            setup,
        }
    }

    /// Runs a cluster to its end.
    pub fn run(setup: Setup) -> Outcome {
        let (cluster, events) = Cluster::played(setup);
        cluster.outcome(events)
    }

    /// Runs a cluster to its end, and returns what each node has counted from its first request on.
    pub fn counters(setup: Setup) -> Vec<Counters> {
        let (cluster, _) = Cluster::played(setup);
        cluster.peers.iter().map(|peer| *peer.counters()).collect()
    }

    /// A cluster that has answered all requests, and the number of events.
    fn played(setup: Setup) -> (Self, u64) {
        let arrivals = setup.arrivals;
        let (count, seed) = (setup.requests.len(), setup.seed);
        let requests = Arc::clone(&setup.requests);
        let mut cluster = Cluster::new(setup);
        let mut queue = Queue::new();
        if let Arrivals::Closed { clients, .. } = arrivals {
            (0..clients.min(count as u32)).for_each(|_| queue.push(Time::default(), Step::Client));
        }
        let times = arrivals.times(&requests, seed);
        let events = crate::engine::run(&mut cluster, &mut queue, times.map(|at| (at, ())));
        (cluster, events)
    }

    fn outcome(&self, events: u64) -> Outcome {
        debug_assert_eq!((self.under_way.len(), self.parcels.len()), (0, 0));
        let Totals { at_ns, counters, cpu_ns, nic_ns, port_ns, disk_ns } = self.totals(self.measures.last_ns);
        let before = &self.before;
        let requests = self.measures.requests;
        let responses = self.measures.responses();
        let span_ns = at_ns.saturating_sub(before.at_ns).max(1) as f64;
        let part = |of: u64, all: u64| if all == 0 { 0.0 } else { of as f64 / all as f64 };
        let each = |count: u64| part(count, requests);
        let busy = |ns: u64, servers: usize| ns as f64 / (span_ns * (self.nodes.len() * servers) as f64);
        let mean_ms = |ns: u128, count: u64| if count == 0 { 0.0 } else { ns as f64 / count as f64 / 1e6 };
        let at_quantile = |q: f64| responses.value_at_quantile(q) as f64 / 1e6;
        let counters = counters - before.counters;
        let reads = counters.reads;
        let tables: usize = self.peers.iter().map(Peer::table_bytes).sum();
        let entries: usize = self.peers.iter().flat_map(Peer::entries).sum();
        Outcome {
            requests,
            response_ms_mean: mean_ms(self.measures.sum_ns, requests),
            response_ms_p50: at_quantile(0.5),
            response_ms_p99: at_quantile(0.99),
            remote_ms_mean: mean_ms(self.measures.remote_ns, self.measures.remote),
            requests_per_s: requests as f64 / span_ns * 1e9,
            here_rate: each(self.measures.here),
            disk_rate: each(counters.loads),
            read_rate: each(reads),
            read_failure_rate: part(counters.read_failures, reads),
            update_messages_per_request: each(counters.update_messages),
            update_bytes_per_request: each(counters.update_bytes),
            cpu_busy: busy(cpu_ns - before.cpu_ns, self.setup.costs.cores),
            nic_busy: busy(nic_ns - before.nic_ns, 1),
            port_busy: busy(port_ns - before.port_ns, 1),
            disk_busy: busy(disk_ns - before.disk_ns, self.setup.costs.disk_depth),
            events,
            table_entries: entries as u64,
            table_bytes_per_entry: part(tables as u64, entries as u64),
        }
    }

    fn totals(&self, at_ns: u64) -> Totals {
        let mut totals = Totals { at_ns, ..Totals::default() };
        for Node { cpu, nic, port, disk } in &self.nodes {
            totals.cpu_ns += cpu.busy_ns();
            totals.nic_ns += nic.busy_ns();
            totals.port_ns += port.busy_ns();
            totals.disk_ns += disk.busy_ns();
        }
        totals.counters = self.peers.iter().map(Peer::counters).sum();
        totals
    }

    #[inline]
    fn home_of(&self, key: u32) -> NodeId {
        home_of(key, self.setup.seed, self.setup.nodes)
    }

    /// Before each [`AHEAD`] requests: dispatches them, to each node in turn as in the paper, and fetches the memory that they
    /// will access. Any other dispatcher chooses the node on arrival, and what is fetched here is of no use. Each step
    /// accesses what the previous one fetched.
    #[inline(never)]
    fn look_ahead(&mut self, number: usize) {
        let count = AHEAD.min(self.setup.requests.len() - number);
        for i in 0..count {
            let Some(key) = self.keys.get(number + i) else { return };
            let (node, home, size) = (self.node_next, self.home_of(key), self.setup.requests.bytes(key));
            self.node_next = if node + 1 < self.setup.nodes { node + 1 } else { 0 };
            self.ahead[i] = Dispatched { key, node, home, size, is_cold: true };
        }
        for step in 0..3 {
            for request in self.ahead[..count].iter_mut().filter(|request| request.is_cold) {
                let peer = &self.peers[request.node as usize];
                request.is_cold = peer.warm(request.key.into(), request.home, step);
            }
        }
    }

    /// Chooses the node for a request by the number that each has. The one dispatcher knows all of them without delay.
    fn dispatch(&mut self, number: usize) -> NodeId {
        let nodes = AtNodes { in_flight: &self.in_flight, cores: self.setup.costs.cores as u64 };
        let random = (number as u64 ^ self.setup.seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let chosen = self.setup.dispatch.choose(&nodes, number as u64, random).unwrap_or(0);
        self.in_flight[chosen] += 1;
        chosen as NodeId
    }

    /// A request has been answered by `node` at `done`.
    #[inline]
    fn answered(&mut self, number: usize, node: NodeId, came_ns: u64, done: Time, queue: &mut Queue<Step>) {
        if !self.in_flight.is_empty() {
            queue.push(done, Step::Left(node));
        }
        if number >= self.setup.warmup {
            self.measures.answered(came_ns, done.as_ns());
        }
        if let Arrivals::Closed { think_ns, .. } = self.setup.arrivals {
            queue.push(done.after_ns(think_ns), Step::Client);
        }
    }

    fn request(&mut self, now: Time, queue: &mut Queue<Step>) {
        let number = self.came;
        if number >= self.setup.requests.len() {
            return;
        }
        self.came += 1;
        if number == self.setup.warmup {
            self.before = self.totals(now.as_ns());
        }
        if number.is_multiple_of(AHEAD) {
            self.look_ahead(number);
        }
        let Dispatched { key, node, home, size, .. } = self.ahead[number % AHEAD];
        let me = if self.in_flight.is_empty() { node } else { self.dispatch(number) };
        let costs = &self.setup.costs;
        let node = &mut self.nodes[me as usize];
        let peer = &mut self.peers[me as usize];
        let found = peer.look(key.into(), home);
        if found == Look::Here {
            let done = node.cpu.serve(now, costs.request_ns + costs.answer.ns(size));
            self.measures.here += u64::from(number >= self.setup.warmup);
            return self.answered(number, me, now.as_ns(), done, queue);
        }
        let left_ns = node.cpu.serve(now, costs.request_ns).as_ns();
        let tag = self.under_way.insert(Request {
            came_ns: now.as_ns(),
            left_ns,
            number,
            key,
            node: me,
            home,
            place: Place::default(),
            size,
            bytes: 0,
            failures: 0,
            is_sound: false,
        });
        match found {
            Look::Here => (),
            Look::There { place, .. } => self.read(tag, place, now, queue),
            Look::Ask => {
                peer.ask(key.into(), home, tag, 0, &mut self.acts);
                self.act(me, now, queue);
            }
            Look::Load => {
                peer.load(key.into(), tag, &mut self.acts);
                self.act(me, now, queue);
            }
        }
    }

    fn read(&mut self, tag: u32, place: Place, now: Time, queue: &mut Queue<Step>) {
        let request = self.under_way.get(tag);
        request.place = place;
        let costs = &self.setup.costs;
        self.peers[request.home as usize].warm_place(place);
        self.peers[request.node as usize].warm_keep(request.key.into(), 0);
        let posted = self.nodes[request.node as usize].cpu.serve(now, costs.post_ns);
        queue.push(posted.after_ns(costs.wire_ns), Step::Fetch(tag));
    }

    /// Carries out the acts of the node `me`.
    fn act(&mut self, me: NodeId, now: Time, queue: &mut Queue<Step>) {
        let mut acts = std::mem::take(&mut self.acts);
        for act in acts.drain(..) {
            match act {
                Act::Send { to, message } => {
                    let (payload, changes) = match &message {
                        Message::Offer { bytes, place: None, changes, .. } => (*bytes, changes.len()),
                        Message::Offer { changes, .. } | Message::Update { changes, .. } => {
                            (0, changes.len())
                        }
                        Message::Ask { marks, .. } => (0, marks.len()),
                        _ => (0, 0),
                    };
                    let bytes = message.bytes().saturating_add(payload);
                    let cpu_ns = self.message_ns(bytes);
                    let sent = self.nodes[me as usize].cpu.serve(now, cpu_ns);
                    let parcel =
                        self.parcels.insert(Parcel { from: me, to, bytes, changes: changes as u32, message });
                    queue.push(sent, Step::Sent(parcel));
                }
                Act::Load { key } => {
                    let ready = self.nodes[me as usize].cpu.serve(now, 0);
                    queue.push(ready, Step::Disk(key as u32));
                }
                Act::Read { tag, place, .. } => self.read(tag, place, now, queue),
                Act::Done { tag } => self.done(tag, now, queue),
                // There are no bytes.
                Act::Publish { .. } | Act::Withdraw { .. } | Act::Keep { .. } | Act::Drop { .. } => (),
            }
        }
        self.acts = acts;
    }

    /// CPU time of a message on either side.
    fn message_ns(&self, bytes: u32) -> u64 {
        let costs = &self.setup.costs;
        match self.setup.cache.protocol {
            Protocol::Rpc => costs.rpc_ns + costs.rpc_copy.ns(bytes),
            _ => costs.message_ns,
        }
    }

    /// The bytes that a request waited for are in its node's memory.
    fn done(&mut self, tag: u32, now: Time, queue: &mut Queue<Step>) {
        let Request { came_ns, left_ns, number, node, home, size, .. } = self.under_way.take(tag);
        if number >= self.setup.warmup && node != home {
            self.measures.fetched(now.as_ns().saturating_sub(left_ns));
        }
        let answer_ns = self.setup.costs.answer.ns(size);
        let done = self.nodes[node as usize].cpu.serve(now, answer_ns);
        self.answered(number, node, came_ns, done, queue);
    }

    /// A read is at its home's NIC, and brings what is stored there now.
    fn fetch(&mut self, tag: u32, now: Time, queue: &mut Queue<Step>) {
        let costs = &self.setup.costs;
        let request = self.under_way.get(tag);
        let home = &self.peers[request.home as usize];
        request.is_sound = home.verify(request.place, request.key.into());
        let bytes = if request.is_sound { request.size } else { 0 };
        request.bytes = bytes.saturating_add(HEADER_BYTES + home.note_bytes());
        let link_ns = costs.link.ns(request.bytes);
        let sent = self.nodes[request.home as usize].nic.serve(now, costs.nic_ns + link_ns);
        queue.push(Time::from_ns(sent.as_ns() - link_ns + costs.wire_ns), Step::Fetching(tag));
        let (peer, key) = (&self.peers[request.node as usize], request.key.into());
        if request.is_sound { peer.warm_keep(key, 1) } else { peer.warm_forget(key) }
    }

    fn fetching(&mut self, tag: u32, now: Time, queue: &mut Queue<Step>) {
        let Request { key, node, bytes, is_sound, .. } = *self.under_way.get(tag);
        let link_ns = self.setup.costs.link.ns(bytes);
        queue.push(self.nodes[node as usize].port.serve(now, link_ns), Step::Fetched(tag));
        if is_sound {
            self.peers[node as usize].warm_keep(key.into(), 2);
        }
    }

    fn fetched(&mut self, tag: u32, now: Time, queue: &mut Queue<Step>) {
        let Request { key, node: me, home, place, size, is_sound, .. } = *self.under_way.get(tag);
        if self.setup.cache.notes_max > 0 {
            self.notes.clear();
            self.peers[home as usize].notes_of(me, &mut self.notes);
            self.peers[me as usize].note(&self.notes);
        }
        self.nodes[me as usize].cpu.serve(now, self.setup.costs.completion_ns);
        let peer = &mut self.peers[me as usize];
        peer.read_done(key.into(), home, place, size, is_sound, &mut self.acts);
        if is_sound {
            self.done(tag, now, queue);
        } else {
            let request = self.under_way.get(tag);
            request.failures += 1;
            let failures = request.failures;
            self.peers[me as usize].ask(key.into(), home, tag, failures, &mut self.acts);
        }
        if !self.acts.is_empty() {
            self.act(me, now, queue);
        }
    }

    fn sent(&mut self, parcel: u32, now: Time, queue: &mut Queue<Step>) {
        let Parcel { from, to, bytes, message, .. } = self.parcels.get(parcel);
        let (from, bytes) = (*from, *bytes);
        self.peers[*to as usize].warm_message(message, 0);
        let costs = &self.setup.costs;
        let link_ns = costs.link.ns(bytes);
        let sent = self.nodes[from as usize].nic.serve(now, costs.nic_ns + link_ns);
        let is_rpc = self.setup.cache.protocol == Protocol::Rpc;
        let wire_ns = if is_rpc { costs.rpc_wire_ns } else { costs.wire_ns };
        queue.push(Time::from_ns(sent.as_ns() - link_ns + wire_ns), Step::Coming(parcel));
    }

    fn coming(&mut self, parcel: u32, now: Time, queue: &mut Queue<Step>) {
        let Parcel { to, bytes, message, .. } = self.parcels.get(parcel);
        let (to, bytes) = (*to, *bytes);
        let link_ns = self.setup.costs.link.ns(bytes);
        self.peers[to as usize].warm_message(message, 1);
        queue.push(self.nodes[to as usize].port.serve(now, link_ns), Step::Come(parcel));
    }

    fn come(&mut self, parcel: u32, now: Time, queue: &mut Queue<Step>) {
        let Parcel { to, bytes, changes, .. } = *self.parcels.get(parcel);
        let cpu_ns = self.message_ns(bytes) + u64::from(changes) * self.setup.costs.change_ns;
        queue.push(self.nodes[to as usize].cpu.serve(now, cpu_ns), Step::Taken(parcel));
    }

    fn taken(&mut self, parcel: u32, now: Time, queue: &mut Queue<Step>) {
        let Parcel { from, to, message, .. } = self.parcels.take(parcel);
        self.peers[to as usize].receive(from, message, &mut self.acts);
        self.act(to, now, queue);
    }

    fn disk(&mut self, key: u32, now: Time, queue: &mut Queue<Step>) {
        let home = self.home_of(key);
        let costs = &self.setup.costs;
        let disk_ns = costs.disk_ns + costs.disk.ns(self.setup.requests.bytes(key));
        queue.push(self.nodes[home as usize].disk.serve(now, disk_ns), Step::Loaded(key));
    }

    fn loaded(&mut self, key: u32, now: Time, queue: &mut Queue<Step>) {
        let home = self.home_of(key);
        if self.setup.cache.protocol != Protocol::Rpc {
            self.nodes[home as usize].cpu.serve(now, self.setup.costs.pin_ns);
        }
        self.peers[home as usize].loaded(key.into(), self.setup.requests.bytes(key), &mut self.acts);
        self.act(home, now, queue);
    }
}

/// The node, of so many, on whose disk an object lies.
#[inline]
pub fn home_of(key: u32, seed: u64, nodes: u32) -> NodeId {
    let mixed = (u64::from(key) ^ (seed << 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (((mixed >> 32) * u64::from(nodes)) >> 32) as NodeId
}

impl Model for Cluster {
    type Arrival = ();
    type Event = Step;

    #[inline]
    fn arrive(&mut self, now: Time, (): (), queue: &mut Queue<Step>) {
        self.request(now, queue);
    }

    #[inline]
    fn happen(&mut self, now: Time, step: Step, queue: &mut Queue<Step>) {
        match step {
            Step::Client => self.request(now, queue),
            Step::Left(node) => self.in_flight[node as usize] -= 1,
            Step::Fetch(tag) => self.fetch(tag, now, queue),
            Step::Fetching(tag) => self.fetching(tag, now, queue),
            Step::Fetched(tag) => self.fetched(tag, now, queue),
            Step::Sent(parcel) => self.sent(parcel, now, queue),
            Step::Coming(parcel) => self.coming(parcel, now, queue),
            Step::Come(parcel) => self.come(parcel, now, queue),
            Step::Taken(parcel) => self.taken(parcel, now, queue),
            Step::Disk(key) => self.disk(key, now, queue),
            Step::Loaded(key) => self.loaded(key, now, queue),
        }
    }
}
