//! Clients and their requests.

use crate::Time;
use crate::datacenter::{Demand, Setup};
use crate::slab::Slab;

pub(super) struct Clients {
    demand: Demand,
    balancers: usize,
    sites: usize,
    /// Initial nodes of each site.
    homes: Vec<usize>,
    clients: Vec<Client>,
    /// Number of each site's own clients that are active now.
    asking: Vec<usize>,
    requests: Slab<Request>,
    /// Requests of each site at nodes or on the way there.
    at_nodes: Vec<u32>,
    /// Bursts: requests drawn, and requests ended.
    drawn: u64,
    ended: u64,
    /// The latest burst's site and start, until a node has moved for it; and until it was recorded.
    burst: Option<(usize, Time)>,
    new_burst: Option<Time>,
    steps: u64,
}

struct Client {
    /// Its own site, and its index there; not used with bursts.
    site: usize,
    rank: usize,
    is_asking: bool,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) client: u32,
    pub(super) site: u32,
    pub(super) edge: u32,
    /// The edge's life when the request was sent.
    pub(super) life: u64,
    /// The node that it was sent to, if any yet.
    pub(super) node: u32,
    pub(super) asked: Time,
}

impl Clients {
    pub(super) fn new(setup: &Setup) -> Clients {
        let mut homes = vec![0; setup.sites];
        setup.nodes.iter().for_each(|(home, _)| homes[*home] += 1);
        let client = |site, rank| Client { site, rank, is_asking: false };
        let (clients, asking) = match setup.demand {
            Demand::Bursts { clients_per_edge, .. } => {
                let count = clients_per_edge * setup.balancers;
                ((0..count).map(|rank| client(0, rank)).collect(), Vec::new())
            }
            Demand::Steps { busy_clients, idle_clients, .. } => {
                let most = |nodes: usize| count(busy_clients.max(idle_clients), nodes);
                let of =
                    |(site, nodes): (usize, &usize)| (0..most(*nodes)).map(move |rank| client(site, rank));
                let asking = homes.iter().map(|nodes| count(idle_clients, *nodes)).collect();
                (homes.iter().enumerate().flat_map(of).collect(), asking)
            }
            Demand::Open { .. } => (Vec::new(), Vec::new()),
        };
        Clients {
            demand: setup.demand,
            balancers: setup.balancers,
            sites: setup.sites,
            homes,
            clients,
            asking,
            requests: Slab::new(),
            at_nodes: vec![0; setup.sites],
            drawn: 0,
            ended: 0,
            burst: None,
            new_burst: None,
            steps: 0,
        }
    }

    /// The clients that are active from the start.
    pub(super) fn first(&mut self) -> Vec<u32> {
        match self.demand {
            Demand::Bursts { .. } => (0..self.clients.len() as u32).collect(),
            Demand::Steps { .. } => self.start(),
            Demand::Open { .. } => Vec::new(),
        }
    }

    /// A request of `client` for `site`, in an open loop.
    pub(super) fn come(&mut self, client: u32, site: usize, edge: usize, life: u64, now: Time) -> u32 {
        let (site, edge) = (site as u32, edge as u32);
        self.requests.insert(Request { client, site, edge, life, node: 0, asked: now })
    }

    /// The edge that a client uses, unless it is dead.
    pub(super) fn edge(&self, client: u32) -> usize {
        client as usize % self.balancers
    }

    /// The client's next request, through `edge`; `None` if it sends no more.
    pub(super) fn ask(&mut self, client: u32, edge: usize, life: u64, now: Time) -> Option<u32> {
        let site = match self.demand {
            Demand::Bursts { burst, asked, .. } => {
                if self.drawn == asked {
                    return None;
                }
                let site = (self.drawn / burst % self.sites as u64) as usize;
                if self.drawn.is_multiple_of(burst) {
                    self.burst = Some((site, now));
                    self.new_burst = Some(now);
                }
                self.drawn += 1;
                site
            }
            Demand::Steps { .. } => {
                let of = &mut self.clients[client as usize];
                of.is_asking = of.rank < self.asking[of.site];
                if !of.is_asking {
                    return None;
                }
                of.site
            }
            // In an open loop a client does not wait for its answers.
            Demand::Open { .. } => return None,
        };
        let (site, edge) = (site as u32, edge as u32);
        Some(self.requests.insert(Request { client, site, edge, life, node: 0, asked: now }))
    }

    pub(super) fn request(&mut self, request: u32) -> Request {
        *self.requests.get(request)
    }

    /// It is on its way to `node`.
    pub(super) fn sent(&mut self, request: u32, node: usize) {
        let request = self.requests.get(request);
        request.node = node as u32;
        self.at_nodes[request.site as usize] += 1;
    }

    /// It is done at its node.
    pub(super) fn done(&mut self, request: u32) -> usize {
        let Request { site, node, .. } = self.request(request);
        self.at_nodes[site as usize] -= 1;
        node as usize
    }

    /// Its client gets the answer or the error.
    pub(super) fn answered(&mut self, request: u32) -> Request {
        self.ended += 1;
        self.requests.take(request)
    }

    /// Whether all requests of all bursts have ended.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.demand, Demand::Bursts { asked, .. } if self.ended == asked)
    }

    /// Requests of a site at nodes or on the way there.
    pub(super) fn at_nodes(&self, site: usize) -> u32 {
        self.at_nodes[site]
    }

    /// A request goes to a node that joined `site`. Returns the time since the burst for which the node moved, in ns,
    /// if it is the first.
    pub(super) fn first_request(&mut self, site: usize, now: Time) -> Option<u64> {
        let (_, began) = self.burst.take_if(|(burst, _)| *burst == site)?;
        Some(now.since(began).as_nanos() as u64)
    }

    /// The start of the latest burst, returned once.
    pub(super) fn take_burst(&mut self) -> Option<Time> {
        self.new_burst.take()
    }

    /// Load steps so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// The next step: other sites are busy. Returns the clients that become active.
    pub(super) fn change(&mut self) -> Vec<u32> {
        let Demand::Steps { busy_one_in, busy_clients, idle_clients, .. } = self.demand else {
            return Vec::new();
        };
        let groups = busy_one_in.min(self.sites);
        let busy = (self.steps % groups as u64) as usize;
        self.steps += 1;
        for (site, asking) in self.asking.iter_mut().enumerate() {
            let each = if site % groups == busy { busy_clients } else { idle_clients };
            *asking = count(each, self.homes[site]);
        }
        self.start()
    }

    fn start(&mut self) -> Vec<u32> {
        let mut started = Vec::new();
        for (index, client) in self.clients.iter_mut().enumerate() {
            if !client.is_asking && client.rank < self.asking[client.site] {
                client.is_asking = true;
                started.push(index as u32);
            }
        }
        started
    }
}

/// Number of clients of a site that had `nodes` nodes at first.
fn count(each: f64, nodes: usize) -> usize {
    (each * nodes as f64).round() as usize
}
