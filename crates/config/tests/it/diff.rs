//! What differs between two cluster files, and what it takes.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use sidelong_config::{
    CachePeer, Change, ClusterFile, Error, Etcd, FrontEntry, MovedBy, NodeEntry, Proxy, Ready, Scheme,
    SecretText, Takes, Tls, diff, live,
};

const NODES: [&str; 8] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];
const EDGES: [&str; 2] = ["edge1", "edge2"];

fn example() -> ClusterFile {
    ClusterFile::parse(ClusterFile::example_text(), "example.toml").unwrap()
}

/// What differs once `edit` has changed the file.
fn changes_of(file: &ClusterFile, edit: impl FnOnce(&mut ClusterFile)) -> Vec<Change> {
    let mut new = file.clone();
    edit(&mut new);
    diff(file, &new).unwrap()
}

/// What differs once `edit` has changed the demo.
fn changes(edit: impl FnOnce(&mut ClusterFile)) -> Vec<Change> {
    changes_of(&ClusterFile::demo(), edit)
}

/// The only key that differs, and what it takes.
fn only(changes: Vec<Change>) -> (String, Takes) {
    let [Change { key, takes, .. }] = <[Change; 1]>::try_from(changes).unwrap();
    (key, takes)
}

fn change(key: &str, old: Option<&str>, new: Option<&str>, takes: Takes) -> Change {
    Change { key: key.into(), old: old.map(str::to_owned), new: new.map(str::to_owned), takes }
}

fn restart(parts: &[&str]) -> Takes {
    Takes::Restart(parts.iter().map(|&part| part.to_owned()).collect())
}

#[test]
fn equal_files_do_not_differ() {
    for file in [ClusterFile::demo(), example()] {
        assert_eq!(diff(&file, &file).unwrap(), []);
        let again = ClusterFile::parse(&file.to_toml().unwrap(), "again").unwrap();
        assert_eq!(diff(&file, &again).unwrap(), []);
    }
}

fn at(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

/// Three nodes of one entry and two of others, with their file in etcd.
fn in_etcd() -> ClusterFile {
    let mut file = example();
    file.cluster.secret_file = Some("/secret".into());
    file.etcd = Some(Etcd { endpoints: vec!["http://e1:2379".into()], ..Etcd::default() });
    file.nodes.push(NodeEntry::foreign("other", 1, at(2, 8080)));
    file.nodes.push(NodeEntry::foreign("last", 1, at(4, 8080)));
    for (port, node) in (7_000..).step_by(100).zip(&mut file.nodes) {
        node.fabric_listen = Some(at(1, port));
    }
    file.edges[0].fabric_listen = Some(at(1, 8_000));
    file
}

#[test]
fn edges_follow_nodes_and_themselves_stay_while_etcd_has_the_file() {
    type Edit = fn(&mut ClusterFile);
    let go: Edit = |file| {
        file.nodes[0].server = Some(at(3, 8080).into());
        file.nodes[0].fabric_listen = Some(at(3, 7_000));
    };
    let stay: [(Edit, &str); 4] = [
        (|file| file.edges[0].fabric_listen = Some(at(1, 8_001)), "under another name"),
        (
            |file| {
                let [_, one, other] = &mut file.nodes[..] else { panic!() };
                std::mem::swap(&mut one.server, &mut other.server);
            },
            "another node is there",
        ),
        (
            |file| {
                let [_, one, other] = &mut file.nodes[..] else { panic!() };
                std::mem::swap(&mut one.fabric_listen, &mut other.fabric_listen);
            },
            "another node is there",
        ),
        (|file| file.etcd = None, "find and reach"),
    ];
    for (edit, why) in stay {
        for Change { key, takes, .. } in changes_of(&in_etcd(), edit) {
            assert!(matches!(takes, Takes::Stop(said) if said.contains(why)), "{key}: {takes:?}");
        }
    }
    let mut other = in_etcd();
    go(&mut other);
    // With the board nothing of a node goes: its requests would go where its words are not.
    let nodes = |holder| live(&in_etcd(), &other, "edge1", Some(holder)).unwrap().nodes;
    assert_eq!((nodes("web1"), nodes("other")), (in_etcd().nodes, other.nodes.clone()));

    let follow: [(Edit, &str, &[&str]); 3] = [
        (|file| file.nodes[1].fabric_listen = Some(at(1, 8_001)), "node.other.fabric_listen", &["other"]),
        (|file| file.nodes[1].server = Some(at(3, 8080).into()), "node.other.server", &["other"]),
        (
            |file| file.nodes[0].server = Some(at(3, 8080).into()),
            "node.web.server",
            &["web1", "web2", "web3"],
        ),
    ];
    for (edit, key, parts) in follow {
        assert_eq!(only(changes_of(&in_etcd(), edit)), (key.into(), restart(parts)));
    }
    let mut led = in_etcd();
    led.fronts
        .push(FrontEntry { fabric_listen: Some(at(1, 8_002)), ..FrontEntry::new("nginx", Proxy::Nginx) });
    let moved = changes_of(&led, |file| file.nodes[1].server = Some(at(3, 8080).into()));
    assert_eq!(
        only(moved),
        ("node.other.server".into(), restart(&["other", "nginx"])),
        "its proxy knows addresses"
    );
    let endpoints = changes_of(&in_etcd(), |file| {
        file.etcd.as_mut().unwrap().endpoints = vec!["http://e2:2379".into()];
    });
    assert_eq!(only(endpoints), ("etcd.endpoints".into(), Takes::Nothing));
}

#[test]
fn what_only_up_and_the_lab_use_is_left_out() {
    assert_eq!(changes(|file| file.workload = None), []);
    assert_eq!(changes(|file| file.sites[0].alpha = Some(0.5)), []);
}

#[test]
fn live_keys_take_nothing() {
    let found = changes(|file| {
        file.sites[0].hosts.push("www.alpha.example".into());
        file.sites[1].floor = 2;
        file.sites[1].ceiling = Some(5);
        file.limits.retries = 0;
        file.limits.connect_timeout = Duration::from_micros(1500);
        file.balance.weights.cpu = 0.1;
        file.reconfig.drain_max = Duration::from_secs(7);
        file.edges[0].access_log = Some("a.log".into());
        file.nodes[0].net_mbit = Some(100.0);
        file.edges[1].tls = vec![Tls { certificate: "c.pem".into(), key: "k.pem".into() }];
    });
    let live = |key, old, new| change(key, old, Some(new), Takes::Nothing);
    let tls = r#"[{ certificate = "c.pem", key = "k.pem" }]"#;
    let hosts = r#"["alpha.example", "www.alpha.example"]"#;
    let expected = [
        live("balance.weights.cpu", Some("2.0"), "0.1"),
        live("edge.edge1.access_log", None, r#""a.log""#),
        change("edge.edge2.tls", None, Some(tls), Takes::Restart(vec!["edge2".into()])),
        live("limits.connect_timeout_ms", Some("50.0"), "1.5"),
        live("limits.retries", Some("1"), "0"),
        live("node.n.net_mbit", None, "100.0"),
        live("reconfig.drain_ms_max", Some("500.0"), "7000.0"),
        live("site.alpha.hosts", Some(r#"["alpha.example"]"#), hosts),
        live("site.beta.ceiling", None, "5"),
        live("site.beta.floor", Some("1"), "2"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_parts_that_read_a_key_restart() {
    type Edit = fn(&mut ClusterFile);
    let all = [&NODES[..], &EDGES].concat();
    let cases: [(Edit, &str, &[&str]); 7] = [
        (|file| file.edges[0].listen.set_port(8090), "edge.edge1.listen", &["edge1"]),
        (|file| file.edges[1].threads = 2, "edge.edge2.threads", &["edge2"]),
        (|file| file.reconfig.lease *= 2, "reconfig.lease_ms", &EDGES),
        (|file| file.ganglia.group = "other".into(), "ganglia.group", &EDGES),
        (|file| file.nodes[0].queue_depth_max = Some(5), "node.n.queue_depth_max", &NODES),
        (|file| file.nodes[0].workers = Some(3), "node.n.workers", &all),
        (|file| file.load.stale *= 2, "load.stale_ms", &all),
    ];
    for (edit, key, parts) in cases {
        assert_eq!(only(changes(edit)), (key.to_owned(), restart(parts)));
    }
    let certificates = |tls: &[&str]| {
        let file = |name: &&str| Tls { certificate: (*name).into(), key: "k.pem".into() };
        tls.iter().map(file).collect::<Vec<_>>()
    };
    let mut file = ClusterFile::demo();
    file.edges[0].tls = certificates(&["a.pem"]);
    let to = |tls: &[&str]| only(changes_of(&file, |file| file.edges[0].tls = certificates(tls))).1;
    assert_eq!((to(&["a.pem", "b.pem"]), to(&[])), (Takes::Nothing, restart(&["edge1"])));
}

#[test]
fn agents_that_tell_an_edge_by_its_address_take_another_one_over() {
    let edit = |file: &mut ClusterFile| file.edges[0].listen.set_port(8080);
    assert_eq!(only(changes_of(&example(), edit)).1, restart(&["edge1"]));
    // By files that are copied they learn of nothing while they run.
    let mut copied = in_etcd();
    copied.etcd = None;
    let all = ["web1", "web2", "web3", "other", "last", "edge1"];
    assert_eq!(only(changes_of(&copied, edit)).1, restart(&all));
}

#[test]
fn a_key_that_no_part_reads_takes_nothing() {
    let mut file = ClusterFile::demo();
    file.edges.clear();
    file.fronts = vec![FrontEntry::new("front1", Proxy::Nginx)];
    let group = changes_of(&file, |file| file.ganglia.group = "other".into());
    assert_eq!(only(group), ("ganglia.group".into(), Takes::Nothing));
}

#[test]
fn caches_come_and_go_and_restart_for_what_they_read() {
    let mut file = ClusterFile::demo();
    fn peer(name: &str, port: u16) -> CachePeer {
        let fabric_listen = Some(([127, 0, 0, 1], port + 100).into());
        CachePeer { fabric_listen, ..CachePeer::new(name, ([127, 0, 0, 1], port).into()) }
    }
    file.cache.peers = vec![peer("c1", 11211), peer("c2", 11212)];
    let listen = changes_of(&file, |file| file.cache.peers[1].listen.set_port(11213));
    assert_eq!(only(listen), ("cache.peer.c2.listen".into(), restart(&["c2"])));
    let told = Some(([127, 0, 0, 1], 11214).into());
    let told = changes_of(&file, |file| file.cache.peers[0].fabric_listen = told);
    assert_eq!(only(told), ("cache.peer.c1.fabric_listen".into(), restart(&["c1", "c2"])));
    let (found, takes) = only(changes_of(&file, |file| file.cache.peers[0].memory_mb = 128));
    assert!(found == "cache.peer.c1.memory_mb" && matches!(takes, Takes::Stop(_)), "{found} {takes:?}");
    let edits: [(fn(&mut ClusterFile), _); 3] = [
        (|file| file.cache.peers.push(peer("c3", 11213)), "cache.peer.c3"),
        (|file| file.cache.peers.swap(0, 1), "cache.peer"),
        (|file| file.cache.peers.truncate(1), "cache.peer.c2"),
    ];
    let mut on_machines = file.clone();
    on_machines.cluster.secret_file = Some("secret".into());
    (on_machines.sites, on_machines.nodes, on_machines.edges) = Default::default();
    for (edit, key) in edits {
        assert_eq!(only(changes_of(&file, edit)), (key.into(), Takes::Nothing));
        let mut new = file.clone();
        edit(&mut new);
        assert_eq!(live(&file, &new, "c1", None).unwrap().cache.peers, new.cache.peers, "{key}");
        let (found, takes) = only(changes_of(&on_machines, edit));
        assert!(found == key && matches!(takes, Takes::Stop(_)), "{key}: {takes:?}");
    }
}

#[test]
fn what_comes_or_goes_is_live_unless_members_must_stay() {
    let listen = "127.0.0.1:7200".parse().unwrap();
    let node = changes(|file| file.nodes.push(NodeEntry::new("n9", 1, listen)));
    let text = r#"{ count = 1, listen = "127.0.0.1:7200", name = "n9" }"#;
    assert_eq!(node, [change("node.n9", None, Some(text), Takes::Nothing)]);
    let count = changes(|file| file.nodes[0].count = 9);
    assert_eq!(count, [change("node.n.count", Some("8"), Some("9"), Takes::Nothing)]);
    let edge = changes(|file| file.edges.truncate(1));
    assert_eq!(only(edge), ("edge.edge2".into(), Takes::Nothing));
    let front = changes(|file| file.fronts.push(FrontEntry::new("front1", Proxy::Nginx)));
    assert_eq!(only(front), ("front.front1".into(), Takes::Nothing));

    let mut fixed = ClusterFile::demo();
    fixed.set_scheme(Scheme::SocketSync);
    let stop = Takes::Stop("all parts must have the same nodes");
    let node = changes_of(&fixed, |file| file.nodes[0].count = 9);
    assert_eq!(only(node), ("node.n.count".into(), stop));
    let stop = Takes::Stop("all parts must have the same edges and fronts");
    assert_eq!(only(changes_of(&fixed, |file| file.edges.truncate(1))), ("edge.edge2".into(), stop));

    let renamed = changes(|file| file.sites[1].name = "delta".into());
    let keys: Vec<_> = renamed.iter().map(|change| &*change.key).collect();
    assert_eq!(keys, ["site.beta", "site.delta"]);
}

#[test]
fn a_part_that_waits_for_no_restart_goes_by_the_new_file() {
    let demo = ClusterFile::demo();
    let edits: [fn(&mut ClusterFile); 4] = [
        |file| file.fronts.push(FrontEntry::new("web1", Proxy::Nginx)),
        |file| drop(file.edges.pop()),
        |file| file.nodes.push(NodeEntry::new("n9", 1, ([127, 0, 0, 1], 9009).into())),
        |file| file.sites[0].hosts.push("other.test".into()),
    ];
    let meaning = |file: &ClusterFile| ClusterFile::parse(&file.to_toml().unwrap(), "meaning").unwrap();
    for edit in edits {
        let mut new = demo.clone();
        edit(&mut new);
        for (from, to) in [(&demo, &new), (&new, &demo)] {
            assert_eq!(diff(&live(from, to, "n1", None).unwrap(), &meaning(to)).unwrap(), []);
        }
    }
}

#[test]
fn another_order_is_one_change() {
    let swapped = changes(|file| file.sites.swap(0, 1));
    let (old, new) = (r#"["alpha", "beta", "gamma"]"#, r#"["beta", "alpha", "gamma"]"#);
    assert_eq!(swapped, [change("site", Some(old), Some(new), Takes::Nothing)]);
    let (key, _) = only(changes(|file| file.edges.swap(0, 1)));
    assert_eq!(key, "edge");
    let both = changes(|file| {
        file.sites.swap(0, 1);
        file.sites[0].priority = 3;
    });
    let keys: Vec<_> = both.iter().map(|change| &*change.key).collect();
    assert_eq!(keys, ["site", "site.beta.priority"]);
}

#[test]
fn a_secret_is_not_shown() {
    let mut file = ClusterFile::demo();
    file.nodes[0].fabric_listen = Some("10.0.0.1:7000".parse().unwrap());
    file.edges.truncate(1);
    let mut with = file.clone();
    with.cluster.secret = Some(SecretText::new("sixteen bytes it"));
    let stop = Takes::Stop("parts find and reach each other by it");
    let came = diff(&file, &with).unwrap();
    assert_eq!(came, [change("cluster.secret", None, Some("(secret)"), stop.clone())]);
    let other = changes_of(&with, |file| file.cluster.secret = Some(SecretText::new("another sixteen it")));
    assert_eq!(other, [change("cluster.secret", Some("(secret)"), Some("(secret)"), stop)]);
}

#[test]
fn edges_restart_where_admission_is_turned_on_or_off() {
    let mut with = ClusterFile::demo();
    with.sites[0].queue_max = Some(Duration::from_millis(20));
    let restarts = ("site.alpha.queue_ms_max".to_owned(), restart(&EDGES));
    assert_eq!(only(diff(&ClusterFile::demo(), &with).unwrap()), restarts);
    assert_eq!(only(diff(&with, &ClusterFile::demo()).unwrap()), restarts);
    let other = changes_of(&with, |file| file.sites[0].queue_max = Some(Duration::from_millis(30)));
    assert_eq!(only(other), ("site.alpha.queue_ms_max".into(), Takes::Nothing));
}

#[test]
fn a_first_command_takes_a_stop() {
    let mut with = ClusterFile::demo();
    with.sites[0].on_enter = Some(vec!["start".into()]);
    let (key, takes) = only(diff(&ClusterFile::demo(), &with).unwrap());
    assert_eq!(key, "site.alpha.on_enter");
    assert_eq!(takes, Takes::Stop("all parts must agree on whether moves run commands"));
    let second = changes_of(&with, |file| file.sites[1].on_leave = Some(vec!["stop".into()]));
    assert_eq!(only(second), ("site.beta.on_leave".into(), restart(&[&NODES[..], &EDGES].concat())));

    let mut ready = example();
    ready.nodes[0].ready = Some(Ready::new("/healthz"));
    let (key, takes) = only(diff(&example(), &ready).unwrap());
    assert_eq!(key, "node.web.ready");
    assert!(matches!(takes, Takes::Stop(_)), "{takes:?}");
    let path = changes_of(&ready, |file| file.nodes[0].ready.as_mut().unwrap().path = "/".into());
    assert_eq!(only(path), ("node.web.ready.path".into(), restart(&["web1", "web2", "web3", "edge1"])));
}

#[test]
fn a_server_that_becomes_foreign_takes_a_stop() {
    let stop = Takes::Stop("all parts must agree on which servers are foreign");
    let found = changes(|file| {
        let server = "127.0.0.1:9001".parse().unwrap();
        let admin = file.nodes[0].admin;
        file.nodes[0] = NodeEntry { admin, workers: Some(2), ..NodeEntry::foreign("n", 8, server) };
    });
    let of = |key: &str| found.iter().find(|change| change.key == key).map(|change| &change.takes);
    assert_eq!((of("node.n.listen"), of("node.n.server")), (Some(&stop), Some(&stop)), "{found:?}");
    let other = NodeEntry::foreign("web", 3, "10.0.0.31:8080".parse().unwrap());
    let moved = changes_of(&example(), |file| file.nodes[0] = other);
    assert_eq!(only(moved), ("node.web.server".into(), restart(&["web1", "web2", "web3", "edge1"])));
}

#[test]
fn two_nodes_of_one_name_are_told_apart() {
    let mut file = ClusterFile::demo();
    file.nodes.push(NodeEntry::new("n", 1, "127.0.0.1:7200".parse().unwrap()));
    let second = changes_of(&file, |file| file.nodes[1].queue_depth_max = Some(5));
    assert_eq!(only(second), ("node.n[1].queue_depth_max".into(), restart(&["n"])));
}

#[test]
fn one_baseline_is_one_change() {
    let (key, takes) = only(changes(|file| file.baseline.by = MovedBy::Server));
    assert_eq!(key, "baseline.by");
    assert!(matches!(takes, Takes::Stop(_)), "{takes:?}");
}

#[test]
fn files_that_cannot_be_used_or_written_are_refused() {
    let demo = ClusterFile::demo();
    let mut unusable = demo.clone();
    unusable.sites[0].floor = 100;
    assert!(matches!(diff(&demo, &unusable), Err(Error::Check { .. })));
    let mut not_utf8 = demo.clone();
    not_utf8.nodes[0].root = Some(OsString::from_vec(vec![0xff]).into());
    assert!(matches!(diff(&not_utf8, &demo), Err(Error::Write(_))));
}
