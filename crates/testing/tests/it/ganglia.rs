//! A real gmond receives the nodes' figures, and shows what it has understood.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use sidelong_config::NodeEntry;

use sidelong_testing::{Cluster, PATIENCE, Running, eventually, get, metrics, skipped};

/// The port at which gmond receives packets and reports its state, at a cluster's own address.
const GMOND: u16 = 5649;

fn is_installed() -> bool {
    let version = Command::new("gmond").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version.is_ok_and(|status| status.success()) {
        return true;
    }
    skipped("ganglia: no gmond here; Debian's package ganglia-monitor has it");
    false
}

/// A monitor.
struct Gmond {
    address: SocketAddr,
    server: Running,
}

impl Gmond {
    fn start(cluster: &Cluster) -> Self {
        let address = cluster.at(GMOND);
        let config = cluster.path("gmond.conf");
        let channel = format!("{{ bind = {} port = {GMOND} }}", address.ip());
        let text = format!(
            "globals {{ daemonize = no setuid = no mute = no deaf = no gexec = no host_dmax = 0 }}\n\
             cluster {{ name = \"test\" }}\nudp_recv_channel {channel}\ntcp_accept_channel {channel}\n"
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("gmond");
        command.arg("--conf").arg(&config);
        let mut server = Running::start_command(command);
        eventually("gmond listens", || {
            assert!(server.is_running(), "{}", server.err());
            TcpStream::connect(address).is_ok()
        });
        Gmond { address, server }
    }

    /// Its state in XML.
    fn tells(&self) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut xml = String::new();
        stream.read_to_string(&mut xml).unwrap();
        xml
    }
}

/// The element of a figure of a host, up to the next one's.
fn figure<'a>(xml: &'a str, host: &str, name: &str) -> Option<&'a str> {
    let host = xml.split_once(&format!("<HOST NAME=\"{host}\""))?.1.split_once("</HOST>")?.0;
    Some(host.split_once(&format!("<METRIC NAME=\"{name}\""))?.1.split_once("</METRIC>")?.0)
}

fn attribute<'a>(element: &'a str, name: &str) -> &'a str {
    let value = element.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
    value.unwrap_or_else(|| panic!("no {name}: {element}")).0
}

fn number(element: &str, name: &str) -> f64 {
    attribute(element, name).parse().unwrap()
}

/// Two nodes of different sites, behind one edge that sends figures ten times a second.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    cluster.file.ganglia.gmond = Some(cluster.at(GMOND));
    cluster.file.ganglia.period = Duration::from_millis(100);
    cluster.file.ganglia.metadata = Duration::from_millis(500);
    cluster
}

#[test]
fn gmond_learns_every_nodes_figures() {
    if !is_installed() {
        return;
    }
    let mut cluster = cluster();
    // Two nodes share an address, the third has one of its own.
    let other = Cluster::new(&[("none", 1)]);
    let third = NodeEntry::new("n3", 1, other.node(0));
    cluster.file.nodes.push(third);
    let address = other.node(0).ip().to_string();
    let gmond = Gmond::start(&cluster);
    let _up = cluster.serving_here();
    let workers = "sidelong_capacity_workers";
    let hosts = [("n1", "n1"), ("n2", "n2"), ("n3", &address)];
    eventually("it knows all nodes", || {
        let xml = gmond.tells();
        hosts.iter().all(|(host, _)| figure(&xml, host, workers).is_some())
    });
    let xml = gmond.tells();
    for (host, key) in hosts {
        assert!(xml.contains(&format!("<HOST NAME=\"{host}\" IP=\"{key}\"")), "{xml}");
        let element = figure(&xml, host, workers).unwrap();
        for (name, expected) in [
            ("VAL", "2"),
            ("TYPE", "uint32"),
            ("UNITS", "workers"),
            ("TMAX", "1"),
            ("DMAX", "60"),
            ("SLOPE", "both"),
        ] {
            assert_eq!(attribute(element, name), expected, "{name} of {element}");
        }
        for extra in [
            "NAME=\"GROUP\" VAL=\"sidelong\"",
            "NAME=\"DESC\" VAL=\"Requests that the server handles at once\"",
            &format!("NAME=\"SPOOF_HOST\" VAL=\"{key}:{host}\""),
        ] {
            assert!(element.contains(extra), "{extra} in {element}");
        }
        let ratio = figure(&xml, host, "sidelong_memory_ratio").unwrap();
        assert_eq!((attribute(ratio, "TYPE"), attribute(ratio, "UNITS")), ("double", "ratio"));
        assert!((0.0..=1.0).contains(&number(ratio, "VAL")), "{ratio}");
    }
    assert_eq!(xml.matches("<HOST ").count(), hosts.len(), "no host but the nodes: {xml}");

    // A counter follows the requests.
    let served = || {
        let xml = gmond.tells();
        let element = figure(&xml, "n1", "sidelong_served_requests").unwrap();
        assert_eq!((attribute(element, "SLOPE"), attribute(element, "UNITS")), ("positive", "requests"));
        number(element, "VAL")
    };
    let before = metrics(cluster.node_admin(0))["sidelong_node_served_requests_total"];
    for _ in 0..9 {
        assert_eq!(get(cluster.edge(0), "alpha.test", "/o/1/10").status, 200);
    }
    eventually("it counts requests", || served() == before + 9.0);
}

#[test]
fn a_node_that_is_gone_falls_silent_and_a_gmond_that_comes_back_learns_anew() {
    if !is_installed() {
        return;
    }
    let cluster = cluster();
    let gmond = Gmond::start(&cluster);
    let [first, _second] = ["n1", "n2"].map(|name| cluster.here("node", name));
    let _edge = cluster.here("edge", "edge1");
    let workers = "sidelong_capacity_workers";
    eventually("it knows both nodes", || {
        let xml = gmond.tells();
        ["n1", "n2"].iter().all(|host| figure(&xml, host, workers).is_some())
    });

    first.end();
    eventually("the dead node's figures age, the other's do not", || {
        let xml = gmond.tells();
        let age = |host| number(figure(&xml, host, workers).unwrap(), "TN");
        age("n1") >= 3.0 && age("n2") <= 1.0
    });

    gmond.server.kill();
    let gmond = Gmond::start(&cluster);
    eventually("it is told again what the figures are", || {
        let xml = gmond.tells();
        figure(&xml, "n2", workers).is_some_and(|element| attribute(element, "UNITS") == "workers")
    });
    let xml = gmond.tells();
    assert!(!xml.contains("\"n1\""), "nothing of a node that is gone: {xml}");
}
