//! Nodes, edges, fronts of each kind of proxy and sites join and leave again and again, and a setting changes with each, while
//! WebSockets, uploads and streams are open: no request fails or is cut, none comes to a server of another site, and nothing is left.
//!
//! `cargo xtask ci churn` has a thousand nodes come and go, and a hundred of each of the others. It looks at memory, too.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sidelong_config::{NodeEntry, SiteEntry};
use sidelong_layout::{NodeState, Ownership, WORDS_OWNERSHIP};

use crate::support::lasting::{Server, WebSocket, clients};
use crate::support::proxies::{EnvoysMemory, Kind, module, proxy};
use crate::support::steady_load::{Attempt, asks};
use crate::support::words::read_word;
use crate::support::{Cluster, Running, SteadyLoad, eventually, number, try_get, until_it_succeeds};

/// Nodes that join and leave, if SIDELONG_ROUNDS does not say otherwise. Of each ten rounds one has an edge come and go, too, one a
/// site, and one a front of each kind.
const ROUNDS: u64 = 10;
/// Memory is looked at if there are as many, of which a tenth have passed.
const MEMORY_ROUNDS: u64 = 100;
const STAY: [&str; 4] = ["n1", "n2", "n3", "n4"];
const COMES: &str = "n5";
const KINDS: [Kind; 5] =
    [Kind::Nginx, Kind::Httpd, Kind::Envoy, Kind::HaproxyByChoice, Kind::HaproxyByWeights];
const PROXY: u16 = 8080;
/// Between requests of a client, so that the clients leave the machine to those who come and go.
const PAUSE: Duration = Duration::from_millis(2);
const SITES_MAX: usize = 16;

/// Requests that came to a server of another site.
type Strays = Arc<Mutex<Vec<String>>>;

struct Churn {
    cluster: Cluster,
    /// By node.
    servers: Vec<Arc<Server>>,
    strays: Strays,
    agents: Vec<Running>,
    edge: Running,
}

/// A request at a node that does not serve its site.
fn stray(run_dir: &Path, node: &str, head: &str) -> Option<String> {
    // Clients of others, such as a health check.
    let host =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("host: ").map(str::to_owned))?;
    let slots = match &*host {
        "alpha.test" => 0..=0,
        "beta.test" => 1..=1,
        "gamma.test" => 2..=SITES_MAX,
        _ => return None,
    };
    let file = std::fs::File::open(run_dir.join(format!("{node}.words.region")));
    let own = file.ok().and_then(|file| Ownership::decode(read_word(&file, WORDS_OWNERSHIP), SITES_MAX));
    let is_its = own.is_some_and(|own| {
        matches!(own.state, NodeState::Serving | NodeState::Draining | NodeState::Pinned)
            && own.site.is_some_and(|site| slots.contains(&site.index()))
    });
    (!is_its).then(|| format!("{node}, whose word is {own:?}: {head}"))
}

impl Churn {
    fn start() -> Self {
        let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]).foreign();
        cluster.file.edges.truncate(1);
        // So that a third site may come.
        cluster.file.sites[0].nodes = 1;
        cluster.file.nodes.iter_mut().for_each(|node| node.workers = Some(16));
        let strays = Strays::default();
        let server = |index: usize| {
            let (name, strays, run_dir) = (format!("n{}", index + 1), Arc::clone(&strays), cluster.run_dir());
            let node = name.clone();
            let look = move |head: &str| {
                let stray = stray(&run_dir, &node, head);
                strays.lock().unwrap().extend(stray);
            };
            Server::start(&name, cluster.at(5001 + index as u16), look)
        };
        let servers = (0..=STAY.len()).map(server).collect();
        let agents = STAY.map(|name| cluster.part("node", name)).into();
        let mut edge = cluster.part("edge", "edge1");
        cluster.await_serving(&mut edge);
        for name in STAY {
            eventually("each node runs", || cluster.regions().contains(&format!("{name}.words.region")));
        }
        Churn { cluster, servers, strays, agents, edge }
    }

    /// All go by the file, in which a setting is another, too.
    fn reload(&mut self) {
        let limits = &mut self.cluster.file.limits;
        limits.retries = 3 - limits.retries.clamp(1, 2);
        until_it_succeeds(|| self.cluster.run(&["reload", "--wait", "--timeout", "60s"]));
    }

    fn comes(&self) -> NodeEntry {
        NodeEntry { workers: Some(16), ..NodeEntry::foreign(COMES, 1, self.cluster.at(5005)) }
    }

    /// A node joins a site, gets requests, those of a proxy among them, and leaves.
    fn node(&mut self, site: &str, proxy: Option<SocketAddr>) {
        self.cluster.file.nodes.push(self.comes());
        self.reload();
        let agent = self.cluster.part("node", COMES);
        until_it_succeeds(|| self.cluster.run(&["move", COMES, site]));
        let server = Arc::clone(&self.servers[STAY.len()]);
        let had = server.answered();
        eventually("the node gets requests", || server.answered() > had);
        let host = format!("{site}.test");
        if let Some(proxy) = proxy {
            // A server says its name.
            let is_its = || try_get(proxy, &host, "/").is_ok_and(|reply| reply.body == COMES);
            eventually("the proxy sends it requests", is_its);
        }
        self.cluster.file.nodes.pop();
        self.reload();
        let had = server.answered();
        ends_well(COMES, agent);
        assert_eq!((server.answered(), server.lasting()), (had, 0), "{COMES} has left");
    }

    /// An edge joins, and ends what it has when it leaves.
    fn edge(&mut self) {
        self.cluster.push_edge();
        self.reload();
        let address = self.cluster.edge(1);
        let mut edge = self.cluster.part("edge", "edge2");
        self.cluster.await_serving(&mut edge);
        let [_, mut upload, mut stream] = clients(address, "beta.test");
        [&mut upload, &mut stream].into_iter().for_each(|client| client().unwrap());
        under_a_chat(address, "alpha.test", || {
            let sending = std::thread::spawn(upload);
            self.cluster.file.edges.pop();
            self.reload();
            // It may have come too late to be accepted.
            let sent = sending.join().unwrap();
            let is_late = |why: &io::Error| {
                matches!(why.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
            };
            assert!(sent.as_ref().err().is_none_or(is_late), "{sent:?}");
        });
        ends_well("edge2", edge);
    }

    /// A site joins, gets a node, and leaves.
    fn site(&mut self) {
        self.cluster.file.sites.push(SiteEntry::new("gamma", "gamma.test", 1));
        self.reload();
        let address = self.cluster.edge(0);
        eventually("the site is served", || {
            try_get(address, "gamma.test", "/").is_ok_and(|reply| reply.status == 200)
        });
        clients(address, "gamma.test").iter_mut().for_each(|client| client().unwrap());
        under_a_chat(address, "gamma.test", || {
            self.cluster.file.sites.pop();
            self.reload();
        });
        assert_eq!(try_get(address, "gamma.test", "/").unwrap().status, 421, "gamma has left");
    }

    /// A front joins, its proxy serves, and both leave. Nothing is done if the proxy is not here, which is printed.
    fn front(&mut self, kind: Kind) {
        let front = kind.front_of_workers(&self.cluster, "web1");
        self.cluster.file.fronts.push(front);
        let Some(module) = module(kind) else {
            self.cluster.file.fronts.clear();
            return;
        };
        self.reload();
        let front = self.cluster.part("front", "web1");
        eventually("the front runs", || self.cluster.regions().contains(&"web1.front.region".to_owned()));
        let address = self.cluster.at(PROXY);
        let memory = EnvoysMemory::of(&self.cluster);
        // Its configuration has the server of the node that is to come, too.
        self.cluster.file.nodes.push(self.comes());
        let command = proxy(&self.cluster, kind, address, &module);
        self.cluster.file.nodes.pop();
        if kind.is_haproxy() {
            // Until the front has set weights, it would take nodes to be where its file has them.
            let file = self.cluster.path("proxy/haproxy.cfg");
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, text.replace(" weight 128\n", " weight 0\n")).unwrap();
        }
        let serving = Running::start_command(command);
        let hosts = ["alpha.test", "beta.test"];
        for host in hosts {
            eventually("the proxy serves each site", || {
                try_get(address, host, "/").is_ok_and(|reply| reply.status == 200)
            });
        }
        let load = SteadyLoad::of(slowly(hosts.map(|host| asks(address, host))));
        self.node("beta", Some(address));
        assert_eq!(load.end(), Vec::<String>::new(), "{kind:?}");
        serving.end();
        drop(memory);
        drop(front.end().succeeded());
        until_it_succeeds(|| self.cluster.run(&["remove", "web1", "--lost"]));
        self.cluster.file.fronts.clear();
        self.reload();
    }

    fn round(&mut self, round: u64) {
        let site = ["alpha", "beta"][round as usize % 2];
        match round % 10 {
            1 => self.edge(),
            2 => self.site(),
            kind @ 3..=7 => return self.front(KINDS[kind as usize - 3]),
            _ => {}
        }
        self.node(site, None);
    }

    /// Bytes of memory and descriptors of the edge, and of a node.
    fn held(&self) -> [(u64, u64); 2] {
        [&self.edge, &self.agents[0]].map(|part| (part.resident_bytes(), part.descriptors()))
    }
}

/// Does it while a WebSocket is open, which nothing cuts.
fn under_a_chat(address: SocketAddr, host: &str, work: impl FnOnce()) {
    let mut socket = WebSocket::open(address, host).unwrap();
    let lasting = std::thread::spawn(move || {
        socket.chats()?;
        socket.close()
    });
    work();
    lasting.join().unwrap().unwrap();
}

/// At a pace.
fn slowly(clients: impl IntoIterator<Item = Attempt>) -> impl Iterator<Item = Attempt> {
    let slow = |mut client: Attempt| -> Attempt {
        Box::new(move || {
            std::thread::sleep(PAUSE);
            client()
        })
    };
    clients.into_iter().map(slow)
}

/// A part that has left the cluster ends by itself.
fn ends_well(name: &str, part: Running) {
    let ended = part.finish();
    assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
}

#[test]
fn members_come_and_go_and_nothing_is_cut_or_left() {
    let rounds = number("SIDELONG_ROUNDS", ROUNDS);
    let mut churn = Churn::start();
    let edge: SocketAddr = churn.cluster.edge(0);
    let hosts = ["alpha.test", "beta.test"];
    let kinds = hosts.map(|host| clients(edge, host).into_iter().chain([asks(edge, host)]));
    let load = SteadyLoad::of(slowly(kinds.into_iter().flatten()));
    let (regions, mut before) = (churn.cluster.regions().len(), churn.held());
    for round in 0..rounds {
        println!("round {round} of {rounds}");
        churn.round(round);
        let strays = churn.strays.lock().unwrap().clone();
        assert_eq!(strays, Vec::<String>::new());
        if round == rounds / 10 {
            before = churn.held();
        }
    }
    let after = churn.held();
    println!("bytes of memory and descriptors of an edge and a node: {before:?}, then {after:?}");
    assert_eq!(load.end(), Vec::<String>::new());
    let slots = churn.cluster.current().unwrap();
    assert_eq!(churn.cluster.regions().len(), regions, "{:?}", churn.cluster.regions());
    // One that has just left may still have its slot.
    assert!(slots.nodes.len() <= STAY.len() + 2 && slots.sites.len() <= 4, "{slots:?}");
    if rounds >= MEMORY_ROUNDS {
        for (before, after) in before.into_iter().zip(after) {
            assert!(after.0 <= before.0 + before.0 / 50 && after.1 <= before.1 + 8, "{before:?} {after:?}");
        }
    }
    let Churn { agents, edge, .. } = churn;
    [edge].into_iter().chain(agents).for_each(|part| drop(part.end().succeeded()));
}
