//! A service of Kubernetes as a source of nodes: its pods join, serve and leave. Pods are servers in this process; the API server is that of
//! `sidelong_testing::kubernetes`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use sidelong_config::NodeEntry;
use sidelong_testing::etcd::Etcd;
use sidelong_testing::kubernetes::ApiServer;
use sidelong_testing::kubernetes::Condition::{Ready, Terminating, Unready};
use sidelong_testing::machines::Machines;

use crate::support::{Done, HostsFile, Running, SteadyLoad, eventually, metrics, until_it_succeeds};

/// The host of the agents, if it has a name.
const AGENTS: &str = "agents.test";
/// The first port of the agents' control endpoints.
const FIRST: u16 = 6_101;

/// A pod's server.
#[derive(Clone)]
struct Pod {
    at: SocketAddr,
    served: Arc<AtomicUsize>,
    /// Requests that it does not answer yet.
    waiting: Arc<AtomicUsize>,
    holds: Arc<AtomicBool>,
}

impl Pod {
    fn listen(at: SocketAddr) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        let [served, waiting] = [(); 2].map(|()| Arc::<AtomicUsize>::default());
        let pod = Pod { at, served, waiting, holds: Arc::default() };
        let (served, waiting, holds) =
            (Arc::clone(&pod.served), Arc::clone(&pod.waiting), Arc::clone(&pod.holds));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (served, waiting, holds) =
                    (Arc::clone(&served), Arc::clone(&waiting), Arc::clone(&holds));
                // Its client sees how it ends.
                thread::spawn(move || answer(stream, &served, &waiting, &holds));
            }
        });
        pod
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

fn answer(
    mut stream: TcpStream,
    served: &AtomicUsize,
    waiting: &AtomicUsize,
    holds: &AtomicBool,
) -> std::io::Result<()> {
    let mut requests = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::from("first");
        while line.len() > 2 {
            line.clear();
            if requests.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        waiting.fetch_add(1, Ordering::Relaxed);
        while holds.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        waiting.fetch_sub(1, Ordering::Relaxed);
        served.fetch_add(1, Ordering::Relaxed);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
    }
}

/// How many tests there were, which share these addresses.
static TESTS: AtomicU8 = AtomicU8::new(0);

fn pods(Machines { cluster, others, .. }: &Machines) -> [Pod; 3] {
    // A service has one port. A real API server refuses loopback addresses: it is in a network of its own, where these are this machine's.
    let addresses = match ApiServer::is_real() {
        true => [1, 2, 3]
            .map(|last| SocketAddr::from(([198, 18, TESTS.fetch_add(1, Ordering::Relaxed), last], 9_080))),
        false => [cluster, &others[0], &others[1]].map(|machine| machine.at(9_080)),
    };
    addresses.map(Pod::listen)
}

/// A site, and what Kubernetes adds to its nodes.
struct Shop {
    machines: Machines,
    pods: [Pod; 3],
    _etcd: Etcd,
    api: ApiServer,
    hosts: Option<HostsFile>,
    /// Where the agents are.
    at: String,
    agents: Option<Running>,
    /// The other parts.
    parts: Vec<Running>,
}

impl Shop {
    /// Whose first node is no pod. `None` without etcd.
    fn open() -> Option<Self> {
        let shop = Self::begun(false)?;
        until_it_succeeds(|| {
            shop.run(&["cluster", "init", shop.machines.whole().to_str().unwrap()]).finish()
        });
        Some(shop.serving("127.0.0.1", &[("node", "n1"), ("edge", "edge1")]))
    }

    /// Whose first node is a pod, and whose agents are at a host. `None`, with a printed reason, where a test has no hosts of its own.
    fn at_a_host() -> Option<Self> {
        let mut shop = Self::begun(true)?;
        shop.hosts.as_ref()?;
        let (pod, at) = (shop.pods[0].at, shop.machines.others[1].at(FIRST));
        shop.machines.cluster.file.nodes[0] =
            NodeEntry { fabric_listen: Some(at), ..NodeEntry::foreign("web-1", 1, pod) };
        let whole = shop.machines.whole();
        let text = fs::read_to_string(&whole).unwrap();
        fs::write(&whole, text.replace(&at.to_string(), &format!("{AGENTS}:{FIRST}"))).unwrap();
        shop.agents_are_at(at.ip());
        until_it_succeeds(|| shop.run(&["cluster", "init", whole.to_str().unwrap()]).finish());
        shop.api.put("web", "web-a", &[("web-1", pod, Ready)]);
        Some(shop.serving(AGENTS, &[("edge", "edge1")]))
    }

    fn begun(has_hosts: bool) -> Option<Self> {
        let mut machines = Machines::of(&[("alpha", 1)], 1);
        machines.cluster.file.reconfig.drain_max = Duration::from_secs(1);
        let etcd = Etcd::start(&machines.cluster, 1, &[])?;
        machines.kept_by(&etcd);
        let (pods, api) = (pods(&machines), ApiServer::start(&machines.others[1]));
        let at = machines.others[1].at(1).ip().to_string();
        let hosts = if has_hosts { HostsFile::new(&machines.cluster) } else { None };
        Some(Shop { machines, pods, _etcd: etcd, api, hosts, at, agents: None, parts: Vec::new() })
    }

    fn serving(mut self, at: &str, parts: &[(&str, &str)]) -> Self {
        if self.hosts.is_some() {
            at.clone_into(&mut self.at);
        }
        self.start_agents();
        let part = |(kind, name): &(&str, &str)| {
            self.run(&[kind, name, "--config", self.machines.config(name).to_str().unwrap()])
        };
        self.parts = parts.iter().map(part).collect();
        eventually("it answers", || self.machines.answers("alpha"));
        self
    }

    /// From now on the agents' host means this.
    fn agents_are_at(&self, ip: IpAddr) {
        self.hosts.iter().for_each(|hosts| hosts.write(&format!("{ip} {AGENTS}\n")));
    }

    /// A command, which finds the agents' host.
    fn run(&self, arguments: &[&str]) -> Running {
        match &self.hosts {
            Some(hosts) => hosts.start(arguments),
            None => Running::start(arguments),
        }
    }

    fn start_agents(&mut self) {
        let (config, ports) = (self.machines.config("pods"), format!("{FIRST}-{}", FIRST + 9));
        let arguments = ["agents", "--config", config.to_str().unwrap(), "--at", &self.at];
        let arguments = [&arguments[..], &["--kubernetes", "shop/web", "--ports", &ports]].concat();
        let api = self.api.arguments();
        let arguments: Vec<_> = arguments.into_iter().chain(api.iter().map(String::as_str)).collect();
        self.agents = Some(self.run(&arguments));
    }

    fn ask(&self, arguments: &[&str]) -> Done {
        self.run(&[arguments, &["--config", self.machines.config("desk").to_str().unwrap()]].concat())
            .finish()
    }

    /// The nodes of the cluster's file, besides the first.
    fn nodes(&self) -> BTreeSet<String> {
        let file = self.ask(&["cluster", "show"]).succeeded();
        let names = file.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        names.filter(|name| name.starts_with("web-")).map(str::to_owned).collect()
    }

    fn has(&self, names: &[&str]) -> bool {
        self.nodes() == names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn serves(&self, node: &str) -> bool {
        let at = format!("sidelong_edge_node_site{{node=\"{node}\",site=\"alpha\"}}");
        metrics(self.machines.cluster.admin(0)).get(&at) == Some(&1.0)
    }

    /// Gives a node to the site.
    fn give(&self, node: &str) {
        until_it_succeeds(|| self.ask(&["move", node, "alpha"]));
        eventually("it serves", || self.serves(node));
    }
}

#[test]
fn its_pods_join_serve_and_leave() {
    let Some(mut shop) = Shop::open() else { return };
    let [one, two, three] = shop.pods.clone();
    let load = SteadyLoad::start(&shop.machines.cluster);

    // One that is not ready does not join.
    shop.api.put("web", "web-a", &[("web-1", one.at, Ready), ("web-2", two.at, Unready)]);
    eventually("the first joins", || shop.has(&["web-1"]));
    shop.give("web-1");
    eventually("it answers", || one.served() > 0);
    shop.api.put("web", "web-a", &[("web-1", one.at, Ready), ("web-2", two.at, Ready)]);
    eventually("the second joins", || shop.has(&["web-1", "web-2"]));
    shop.give("web-2");
    eventually("it answers", || two.served() > 0);

    // One that is about to end leaves once its last request is answered, and others join meanwhile.
    one.holds.store(true, Ordering::Relaxed);
    eventually("it has a request", || one.waiting.load(Ordering::Relaxed) > 0);
    // One that fails its probe for a moment serves again, whatever request goes on.
    shop.api.put("web", "web-a", &[("web-1", one.at, Unready), ("web-2", two.at, Ready)]);
    eventually("no more requests are sent there", || !shop.serves("web-1"));
    shop.api.put("web", "web-a", &[("web-1", one.at, Ready), ("web-2", two.at, Ready)]);
    eventually("it serves again", || shop.serves("web-1"));
    assert!(one.waiting.load(Ordering::Relaxed) > 0);
    shop.api.put("web", "web-a", &[("web-1", one.at, Terminating), ("web-2", two.at, Ready)]);
    shop.api.put("web", "web-b", &[("web-3", three.at, Ready)]);
    eventually("the third joins", || shop.has(&["web-1", "web-2", "web-3"]));
    eventually("no more requests are sent there", || !shop.serves("web-1"));
    assert!(shop.nodes().contains("web-1") && one.waiting.load(Ordering::Relaxed) > 0);
    one.holds.store(false, Ordering::Relaxed);
    eventually("it leaves", || shop.has(&["web-2", "web-3"]));

    // Without the API server all stays. What has happened meanwhile is found afterwards; the agents may have been elsewhere, too.
    shop.api.stop();
    shop.agents.take().unwrap().kill();
    shop.start_agents();
    shop.give("web-3");
    eventually("the third answers", || three.served() > 0);
    assert!(shop.has(&["web-2", "web-3"]));
    shop.api.resume();
    shop.api.put("web", "web-a", &[("web-2", two.at, Unready)]);
    eventually("one that is not ready leaves", || shop.has(&["web-3"]));
    // A pod that is made anew has another address, and no slice says that the one before has ended.
    shop.api.put("web", "web-b", &[("web-3", one.at, Ready)]);
    let served = one.served();
    eventually("it is followed", || shop.ask(&["cluster", "show"]).succeeded().contains(&one.at.to_string()));
    shop.give("web-3");
    eventually("it answers", || one.served() > served);
    shop.api.delete("web-b");
    eventually("one of which no slice tells leaves", || shop.has(&[]));
    assert_eq!(load.end(), Vec::<String>::new());
    shop.agents.take().unwrap().end().succeeded();
}

/// No other part reads what the kernel knows of pods, or has their words.
#[test]
fn its_nodes_go_on_while_their_agents_are_replaced() {
    let Some(mut shop) = Shop::at_a_host() else { return };
    let [one, two, three] = shop.pods.clone();
    shop.api.put("web", "web-a", &[("web-1", one.at, Ready), ("web-2", two.at, Ready)]);
    eventually("the second joins", || shop.has(&["web-1", "web-2"]));
    shop.give("web-2");
    let load = SteadyLoad::start(&shop.machines.cluster);
    let admin = shop.machines.cluster.admin(0);
    let age = || metrics(admin)["sidelong_edge_record_age_seconds{node=\"web-1\"}"];
    eventually("both answer", || one.served() > 0 && two.served() > 0);
    for number in 0..3 {
        shop.agents.take().unwrap().kill();
        eventually("nothing is read of them", || age() > 1.0);
        let [before, then] = [one.served(), two.served()];
        eventually("both answer nevertheless", || one.served() > before + 10 && two.served() > then + 10);
        // As a pod that is made anew, elsewhere and then where it was.
        shop.agents_are_at(shop.machines.others[number % 2].at(1).ip());
        shop.start_agents();
        eventually("they are read again", || age() < 0.5);
        // Nobody gives it to the site again.
        eventually("both serve", || shop.serves("web-1") && shop.serves("web-2"));
        let [before, then] = [one.served(), two.served()];
        eventually("both answer", || one.served() > before + 10 && two.served() > then + 10);
    }
    // All are replaced at once. The site has one node at least, so a new one serves it before the last of the old ones leaves.
    shop.api.put("web", "web-a", &[("web-1", one.at, Terminating), ("web-2", two.at, Terminating)]);
    shop.api.put("web", "web-b", &[("web-3", three.at, Ready)]);
    eventually("the new one is left", || shop.has(&["web-3"]));
    eventually("it answers", || three.served() > 0);
    assert_eq!(load.end(), Vec::<String>::new());
}
