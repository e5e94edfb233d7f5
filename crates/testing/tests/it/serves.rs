//! Nodes whose servers have a port or a Unix socket for each site: nginx and gunicorn, unmodified.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sidelong_config::{Configuration, Scheme, ServerAddress, Serves};

use sidelong_testing::foreign::{answers, by_agent, by_edge, foreign};
use sidelong_testing::servers::{Load, gunicorn, nginx_at, sites_at_once};
use sidelong_testing::{Client, Cluster, Here, Running, SetOnDrop, eventually};

const SITES: [&str; 2] = ["alpha", "beta"];

/// The cluster of these sites, with a port for each site on each node, from `first` on. A last node that is not the first has a Unix
/// socket for beta.
fn at_ports(sites: &[(&str, usize)], first: u16) -> Cluster {
    let mut cluster = foreign(sites);
    // The nodes move by hand alone.
    cluster.file.baseline.configuration = Configuration::Rigid;
    cluster.file.reconfig.drain_max = Duration::from_secs(30);
    let last = cluster.file.nodes.len() - 1;
    for index in 0..=last {
        let socket = cluster.path("beta.sock");
        let host = cluster.at(0);
        let ports = [0, 1].map(|site| Serves::Port(first + 2 * index as u16 + site));
        let node = &mut cluster.file.nodes[index];
        node.server = Some(host.into());
        node.serves = SITES.map(str::to_owned).into_iter().zip(ports).collect();
        if index > 0 && index == last {
            node.serves.insert("beta".into(), Serves::Unix(socket));
        }
    }
    cluster
}

/// Where the node's server answers for each site.
fn addresses(cluster: &Cluster, node: usize) -> [ServerAddress; 2] {
    let cluster = cluster.file.cluster().unwrap();
    [0, 1].map(|site| cluster.nodes[node].address(site).clone())
}

fn port(cluster: &Cluster, node: usize, site: usize) -> SocketAddr {
    addresses(cluster, node)[site].tcp().unwrap()
}

/// Nodes go to and fro under load, and each answer is that of a server of the site.
fn moves_under_load(cluster: &Cluster) {
    let parts = cluster.serving_here();
    let (stop, asked, wrong) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let ask = |site: &'static str| {
        let host = format!("{site}.test");
        let mut client = Client::connect(cluster.edge(0));
        while !stop.load(Ordering::Relaxed) {
            let reply = client.ask("GET", &host, "/").unwrap();
            let is_right = reply.status == 200 && reply.body.ends_with(site);
            wrong.fetch_add(usize::from(!is_right), Ordering::Relaxed);
            asked.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        for site in SITES.into_iter().cycle().take(6) {
            scope.spawn(move || ask(site));
        }
        for (node, to) in [("n2", "alpha"), ("n2", "beta"), ("n3", "alpha"), ("n3", "beta")].repeat(2) {
            let before = asked.load(Ordering::Relaxed);
            cluster.move_to(node, to).unwrap();
            eventually("requests are answered", || asked.load(Ordering::Relaxed) > before + 50);
        }
    });
    assert_eq!(wrong.into_inner(), 0, "of {}", asked.into_inner());
    assert!(parts.iter().all(Here::is_running));
    parts.into_iter().for_each(Here::end);
}

#[test]
fn requests_go_to_the_port_of_their_site_while_nodes_move() {
    let cluster = at_ports(&[("alpha", 1), ("beta", 2)], 5101);
    let server = |node: usize| {
        let addresses = addresses(&cluster, node);
        let named = addresses.into_iter().zip(SITES.map(|site| format!("n{node}-{site}")));
        nginx_at(&cluster, &format!("n{node}"), &named.collect::<Vec<_>>())
    };
    let servers: Option<Vec<_>> = (0..3).map(server).collect();
    if servers.is_some() {
        moves_under_load(&cluster);
    }
}

#[test]
fn each_site_has_servers_of_its_own_on_a_node() {
    let cluster = at_ports(&[("alpha", 1), ("beta", 2)], 5201);
    let mut servers: Vec<Running> = Vec::new();
    let mut names = Vec::new();
    for node in 0..3 {
        for (site, address) in SITES.into_iter().zip(addresses(&cluster, node)) {
            let name = format!("n{node}-{site}");
            let Some(server) = gunicorn(&cluster, &name, address, 2) else { return };
            servers.push(server);
            names.push((site, name));
        }
    }
    moves_under_load(&cluster);
    for (site, name) in names {
        assert!(sites_at_once(&cluster, &name).1 == 0, "{name} is of {site} alone");
    }
}

/// Its two workers, one at each port, serve a connection each, and the others wait to be accepted.
#[test]
fn a_record_has_the_connections_and_queues_of_all_ports() {
    for scheme in [Scheme::RdmaAsync, Scheme::SocketSync] {
        let mut cluster = at_ports(&[("alpha", 1), ("beta", 1)], 5401);
        cluster.file.set_scheme(scheme);
        let [alpha, beta] = [0, 1].map(|site| port(&cluster, 0, site));
        let Some(_one) = gunicorn(&cluster, "one", alpha, 1) else { return };
        let Some(_two) = gunicorn(&cluster, "two", beta, 1) else { return };
        let agent = cluster.here("node", "n1");
        let _edge = cluster.here("edge", "edge1");
        answers(&cluster, "alpha", "one");
        let load = [alpha, beta].map(|port| Load::start(port, "any", Duration::from_millis(400), 4));
        for told in [by_agent, by_edge] {
            eventually("eight connections", || {
                told(&cluster, "open_connections").is_some_and(|open| open >= 7.0)
            });
            eventually("six wait", || told(&cluster, "queued_requests").is_some_and(|queued| queued >= 5.0));
        }
        drop(load);
        eventually("nobody is there", || by_agent(&cluster, "open_connections") == Some(0.0));
        agent.end();
    }
}
