//! The metrics of every part of a cluster at its admin endpoint, and what the documentation says of them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use sidelong_config::{CachePeer, Fabric, Scheme};

use sidelong_testing::{Cluster, eventually, get, in_bursts, metrics, try_get};

/// Documented, but not available in the cluster of this test.
const ELSEWHERE: &[&str] = &[
    // While moves wait for a front that is away, which `reload.rs` of `sidelong` has.
    "sidelong_edge_moves_waiting_seconds",
    // Reported by a program with verbs.
    "sidelong_edge_verbs_links_total",
    "sidelong_node_verbs_links_total",
    // Where sites have commands.
    "sidelong_node_changes_total",
    // Where nodes keep documents, which `documents.rs` asks for.
    "sidelong_edge_documents_total",
    "sidelong_edge_document_bytes_total",
    "sidelong_edge_document_reads_total",
    "sidelong_node_documents_total",
    // Of foreign servers.
    "sidelong_edge_node_learned_workers",
    "sidelong_edge_node_bypassing_connections",
    "sidelong_node_bypassing_connections",
    // Reported after a move that was not completed.
    "sidelong_edge_moves_abandoned_total",
    // A node's record is that of a process here, which lacks these.
    "sidelong_edge_node_run_queue_threads",
    "sidelong_node_run_queue_threads",
    "sidelong_edge_node_pending_interrupts",
    "sidelong_node_pending_interrupts",
    "sidelong_node_load_average",
    "sidelong_node_context_switches_total",
    "sidelong_node_served_interrupts_total",
    "sidelong_node_network_received_bytes_total",
    "sidelong_node_network_sent_bytes_total",
    "sidelong_node_network_received_packets_total",
    "sidelong_node_network_sent_packets_total",
    "sidelong_node_established_connections",
];

/// The names of all families at an admin endpoint, as in docs/metrics.md: those of their samples, except that a
/// histogram has three.
fn told(admin: SocketAddr) -> BTreeSet<String> {
    let page = get(admin, "any", "/metrics").body;
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut names = BTreeSet::new();
    for (family, kind) in families {
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        assert!(names.insert(format!("{family}{suffix}")), "{family} twice in {page}");
    }
    names
}

/// The names that docs/metrics.md explains: what stands in backquotes in its tables.
fn documented(ours: &[&str]) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let words = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let names = words.map(|word| word.split('{').next().unwrap_or(word));
    names.filter(|name| ours.iter().any(|begin| name.starts_with(begin))).map(str::to_owned).collect()
}

#[test]
fn what_is_told_is_documented_and_what_is_documented_is_told() {
    // With everything that adds metrics: several machines, another edge, an access log, a monitor, a target, and moves.
    // Nodes of sites without a target move by load.
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 2), ("gamma", 2)]);
    cluster.file.cluster.fabric = Fabric::Tcp;
    let secret = cluster.path("secret");
    fs::write(&secret, "sixteen bytes and more").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    cluster.file.cluster.secret_file = Some(secret);
    for k in 0..cluster.file.nodes.len() {
        cluster.file.nodes[k].fabric_listen = Some(cluster.at(6001 + k as u16));
    }
    for k in 0..cluster.file.edges.len() {
        cluster.file.edges[k].fabric_listen = Some(cluster.at(6101 + k as u16));
    }
    cluster.file.edges[0].access_log = Some(cluster.path("access.log"));
    cluster.file.ganglia.gmond = Some(cluster.at(8649));
    cluster.file.sites[0].response_p99 = Some(Duration::from_secs(9));
    let _up = cluster.serving_here();

    let documented = documented(&["sidelong_config_", "sidelong_edge_", "sidelong_node_", "process_"]);
    let elsewhere: BTreeSet<_> = ELSEWHERE.iter().map(|name| name.to_string()).collect();
    let unknown: Vec<_> = elsewhere.difference(&documented).collect();
    assert!(unknown.is_empty(), "not documented: {unknown:?}");
    let all = || told(cluster.admin(0)).union(&told(cluster.node_admin(0))).cloned().collect::<BTreeSet<_>>();
    _ = in_bursts(&cluster, 512, || {
        // Those of moves appear with the first one, CPU time with the first tick of the kernel.
        let mut missing = usize::MAX;
        eventually("all that is documented is told", || {
            let told = all();
            let undocumented: Vec<_> = told.difference(&documented).collect();
            assert!(undocumented.is_empty(), "not documented: {undocumented:?}");
            let untold: Vec<_> =
                documented.difference(&told).filter(|name| !elsewhere.contains(*name)).collect();
            if untold.len() < missing {
                missing = untold.len();
                eprintln!("documented and not told so far: {untold:?}");
            }
            missing == 0
        });
    });
}

#[test]
fn a_cache_tells_what_it_does_by_the_names_of_memcacheds_exporter() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    let (listen, admin) = (cluster.at(11211), cluster.at(9150));
    cluster.file.cache.peers =
        vec![CachePeer { admin: Some(admin), memory_mb: 16, clients_max: 7, ..CachePeer::new("c1", listen) }];
    let cache = cluster.here("cache", "c1");
    eventually("it serves", || try_get(admin, "any", "/readyz").is_ok_and(|reply| reply.status == 200));
    assert_eq!(told(admin), documented(&["memcached_", "sidelong_cache_", "sidelong_config_", "process_"]));
    let mut client = TcpStream::connect(listen).unwrap();
    client.write_all(b"set a 0 0 2\r\nhi\r\nget a\r\nget a b\r\ncas b 0 0 1 7\r\nx\r\nmn\r\n").unwrap();
    let mut answers = Vec::new();
    while !answers.ends_with(b"MN\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        answers.extend(byte);
    }
    let command = |command: &str, status: &str| {
        format!("memcached_commands_total{{command=\"{command}\",status=\"{status}\"}}")
    };
    let version = format!("memcached_version{{version=\"{}\"}}", sidelong_cache::VERSION);
    // `cas` is not among the sets.
    let wanted = [
        (command("get", "hit"), 2.0),
        (command("get", "miss"), 1.0),
        (command("cas", "miss"), 1.0),
        (command("set", "hit"), 1.0),
        ("memcached_up".into(), 1.0),
        ("memcached_current_items".into(), 1.0),
        ("memcached_items_total".into(), 1.0),
        ("memcached_current_connections".into(), 1.0),
        ("memcached_max_connections".into(), 7.0),
        ("memcached_limit_bytes".into(), f64::from(16 << 20)),
        ("memcached_written_bytes_total".into(), answers.len() as f64),
        (version, 1.0),
    ];
    // They are of a moment ago, and perhaps of two.
    for (name, value) in wanted {
        eventually(&format!("{name} is {value}"), || metrics(admin).get(&name) == Some(&value));
    }
    cache.end();
}

#[test]
fn a_node_tells_its_own_figures_under_every_scheme() {
    for scheme in [Scheme::RdmaAsync, Scheme::SocketAsync, Scheme::SocketSync] {
        let mut cluster = Cluster::new(&[("alpha", 1)]);
        cluster.file.edges.truncate(1);
        cluster.file.set_scheme(scheme);
        let _up = cluster.serving_here();
        let asked = 5;
        let served =
            |cluster: &Cluster| metrics(cluster.node_admin(0))["sidelong_node_served_requests_total"];
        let before = served(&cluster);
        for _ in 0..asked {
            assert_eq!(get(cluster.edge(0), "alpha.test", "/o/1/1000").status, 200);
        }
        eventually("they are counted", || served(&cluster) == before + f64::from(asked));
        let now = metrics(cluster.node_admin(0));
        let info = now.keys().find(|name| name.starts_with("sidelong_node_load_scheme_info{"));
        assert!(info.unwrap().contains(&format!("scheme=\"{scheme}\"")), "{info:?}");
        eventually("the record is whole", || {
            let now = metrics(cluster.node_admin(0));
            let is = |name: &str, what: fn(f64) -> bool| now.get(name).is_some_and(|value| what(*value));
            is("sidelong_node_capacity_workers", |workers| workers == 2.0)
                && is("sidelong_node_memory_used_bytes", |bytes| bytes > 1e5)
                && is("sidelong_node_response_body_bytes_total", |bytes| bytes >= 5000.0)
        });
        eventually("the record is young", || {
            metrics(cluster.node_admin(0))["sidelong_node_record_age_seconds"] < 5.0
        });
        assert_eq!(get(cluster.node_admin(0), "any", "/healthz").body, "ok\n");
    }
}

#[test]
fn an_edge_without_one_of_its_nodes_becomes_ready() {
    let mut cluster = Cluster::new(&[("alpha", 2)]);
    cluster.file.edges.truncate(1);
    let _node = cluster.here("node", "n1");
    let _edge = cluster.here("edge", "edge1");
    let status = |path| try_get(cluster.admin(0), "any", path).map_or(0, |reply| reply.status);
    eventually("the site can be served", || status("/healthz") == 200);
    eventually("the other node is waited for no longer", || status("/readyz") == 200);
}

#[test]
fn an_edge_is_healthy_while_it_can_serve_a_site_and_ready_once_it_has_read_all_nodes() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    let edge = cluster.here("edge", "edge1");
    eventually("the edge answers", || try_get(cluster.admin(0), "any", "/healthz").is_ok());
    let status = |path| get(cluster.admin(0), "any", path).status;
    assert_eq!((status("/healthz"), status("/readyz")), (503, 503));
    let up = |node| metrics(cluster.admin(0))[&format!("sidelong_edge_node_up{{node=\"{node}\"}}")];
    assert_eq!((up("n1"), up("n2")), (0.0, 0.0), "nodes that were never heard");

    let first = cluster.here("node", "n1");
    eventually("a site can be served", || status("/healthz") == 200);
    eventually("the node is up", || up("n1") == 1.0);
    assert_eq!(up("n2"), 0.0);
    let serves =
        |site| metrics(cluster.admin(0))[&format!("sidelong_edge_node_site{{node=\"n1\",site=\"{site}\"}}")];
    assert_eq!((serves("alpha"), serves("beta")), (1.0, 0.0));
    let second = cluster.here("node", "n2");
    eventually("all nodes were read", || status("/readyz") == 200);
    assert_eq!(get(cluster.node_admin(0), "any", "/readyz").status, 200);

    first.end();
    second.end();
    eventually("no site can be served", || {
        for site in ["alpha.test", "beta.test"] {
            let _ = try_get(cluster.edge(0), site, "/o/1/1");
        }
        status("/healthz") == 503
    });
    assert_eq!(status("/readyz"), 503);
    let _first = cluster.here("node", "n1");
    eventually("one can be again, though no client asks", || {
        (status("/healthz"), status("/readyz")) == (200, 200)
    });
    edge.end();
}
