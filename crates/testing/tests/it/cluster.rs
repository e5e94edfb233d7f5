//! A board, two nodes and an edge, on threads of this process, over shared memory.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use sidelong_app::by_hand::{Hand, Wish};
use sidelong_app::edge::{self, EdgeOptions};
use sidelong_app::node::{self, NodeOptions};
use sidelong_app::{Event, Events, PartSpec, Parts, Running};
use sidelong_config::{Cluster, ClusterFile, Configuration, EdgeEntry, NodeEntry, SiteEntry};
use sidelong_layout::{NodeId, SiteId};
use sidelong_load::Scheme;
use sidelong_workload::origin::NODE_HEADER;
use tempfile::TempDir;

/// Far longer than anything here takes, on a busy machine too.
const LONG: Duration = Duration::from_secs(60);
/// Events of parts that nobody has looked at. Further ones are dropped.
const EVENTS_MAX: usize = 4096;

/// Sites alpha and beta with a node each, n1 and n2, behind an edge.
struct InProcess {
    cluster: Cluster,
    nodes: Vec<Running>,
    edge: Running,
    at: SocketAddr,
    events: Receiver<(String, Event)>,
    directory: TempDir,
}

/// A socket at a port that nobody else has, and its address.
fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

impl InProcess {
    fn start() -> Self {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new().prefix("sidelong-test-").tempdir_in(base).unwrap();
        let mut file = ClusterFile::default();
        file.cluster.name = "test".into();
        file.cluster.run_dir = Some(directory.path().join("run"));
        // A record that the kernel keeps would cost this process its privileges.
        file.set_scheme(Scheme::RdmaAsync);
        file.baseline.configuration = Configuration::Rigid;
        file.sites = ["alpha", "beta"].map(|name| SiteEntry::new(name, format!("{name}.test"), 1)).into();
        let nodes = ["n1", "n2"].map(|name| (name, listener()));
        file.nodes = nodes.iter().map(|(name, (_, at))| NodeEntry::new(*name, 1, *at)).collect();
        let (edge, at) = listener();
        file.edges = vec![EdgeEntry::new("edge1", at)];
        let cluster = file.cluster().unwrap();

        let (tell, events) = mpsc::sync_channel(EVENTS_MAX);
        let spec = |name: &'static str| {
            let tell = tell.clone();
            let events: Events = Arc::new(move |event| {
                let _ = tell.try_send((name.to_owned(), event.clone()));
            });
            PartSpec { cluster: cluster.clone(), name: name.to_owned(), events }
        };
        let nodes = nodes.map(|(name, (listener, _))| {
            let options = NodeOptions { listener: Some(listener), ..NodeOptions::default() };
            node::start(spec(name), options).unwrap()
        });
        let options = EdgeOptions { listener: Some(edge), ..EdgeOptions::default() };
        let edge = edge::start(spec("edge1"), options).unwrap();
        let started = InProcess { cluster, nodes: nodes.into(), edge, at, events, directory };
        for _ in 0..3 {
            started.await_event(|event| *event == Event::Ready);
        }
        started
    }

    fn await_event(&self, is_it: impl Fn(&Event) -> bool) {
        while !is_it(&self.events.recv_timeout(LONG).expect("the event comes").1) {}
    }

    /// Asks the edge for a document of the site: the status, and the node that answered.
    fn get(&self, site: &str) -> (u16, Option<String>) {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let request = format!("GET /o/1/100 HTTP/1.1\r\nhost: {site}.test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut fields = answer.lines().filter_map(|line| line.split_once(": "));
        let node = fields.find(|(name, _)| name.eq_ignore_ascii_case(NODE_HEADER));
        (status.unwrap_or_else(|| panic!("{answer:?}")), node.map(|(_, node)| node.to_owned()))
    }

    fn await_answer(&self, site: &str, node: &str) {
        let began = Instant::now();
        while self.get(site) != (200, Some(node.to_owned())) {
            assert!(began.elapsed() < LONG, "{site} is never served by {node}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends all parts, and returns what they said since.
    fn end(self) -> Vec<(String, Event)> {
        let InProcess { nodes, edge, events, directory, .. } = self;
        edge.shutdown().finish();
        edge.wait().unwrap();
        for node in nodes {
            node.shutdown().finish();
            node.wait().unwrap();
        }
        drop(directory);
        events.try_iter().collect()
    }
}

#[test]
fn an_edge_serves_each_site_by_the_nodes_that_it_has_now() {
    let cluster = InProcess::start();
    assert_eq!(cluster.get("alpha"), (200, Some("n1".into())));
    assert_eq!(cluster.get("beta"), (200, Some("n2".into())));
    assert_eq!(cluster.get("gamma").0, 421, "no site has this host");

    let parts = Parts::new(cluster.cluster.clone()).unwrap();
    let mut hand = Hand::new(parts, NodeId::new(0), Wish::Move(SiteId::new(1))).unwrap();
    hand.force = true;
    hand.await_words().unwrap();
    assert!(hand.carry_out().unwrap().starts_with("n1 serves beta"));
    cluster.await_answer("beta", "n1");
    assert_eq!(cluster.get("alpha").0, 503, "it has no node any more");

    let said = cluster.end();
    let misdirected = said.iter().any(|(_, event)| matches!(event, Event::Misdirected { .. }));
    assert!(!misdirected, "{said:?}");
}

#[test]
fn a_node_whose_memory_is_taken_away_ends_and_says_so() {
    let mut cluster = InProcess::start();
    std::fs::remove_file(cluster.cluster.run_dir.join("n1.words.region")).unwrap();
    let first = cluster.nodes.remove(0);
    let why = first.wait().unwrap_err().0;
    assert!(why.contains("n1.words was truncated or removed"), "{why}");
    assert_eq!(cluster.get("beta"), (200, Some("n2".into())));
    cluster.end();
}
