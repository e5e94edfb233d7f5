//! Documents: files that nodes serve, and that edges answer with from the nodes' memory.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sidelong_cache::documents::{DocumentReader, Turn};
use sidelong_edge::document_key;
use sidelong_fabric::RunDirectory;
use sidelong_layout::fnv1a;
use sidelong_os::monotonic_ns;

use sidelong_testing::documents::Site;
use sidelong_testing::{Cluster, Here, eventually, metrics};

#[test]
fn an_edge_answers_from_a_nodes_memory_and_the_node_takes_no_part() {
    let site = Site::new(3600);
    let _parts = site.cluster.serving_here();
    let first = site.get("/page.html");
    assert_eq!((first.status, first.body.as_str(), first.header("age")), (200, "0123456789", None));
    assert_eq!(first.header("cache-control"), Some("max-age=3600"));
    assert_eq!(first.header("last-modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    let etag = first.header("etag").unwrap().to_owned();
    for edge in 0..2 {
        // The node has kept it before it answered.
        let again = site.await_memory(edge, "/page.html");
        assert_eq!(
            (again.status, again.body.as_str(), again.header("etag")),
            (200, "0123456789", Some(&*etag))
        );
        assert_eq!(again.header("content-type"), first.header("content-type"));
    }
    let served = site.served();
    for _ in 0..50 {
        assert_eq!(site.get("/page.html").body, "0123456789");
    }
    let head = site.ask(0, "HEAD", "/page.html", "");
    assert_eq!((head.status, head.header("content-length")), (200, Some("10")));
    let part = site.ask(0, "GET", "/page.html", "range: bytes=2-4\r\n");
    assert_eq!((part.status, part.body.as_str()), (206, "234"));
    assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
    let end = site.ask(0, "GET", "/page.html", "range: bytes=-3\r\n");
    assert_eq!((end.status, end.body.as_str()), (206, "789"));
    assert_eq!(site.ask(0, "GET", "/page.html", "range: bytes=10-\r\n").status, 416);
    for condition in
        [format!("if-none-match: {etag}"), "if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT".into()]
    {
        let same = site.ask(0, "GET", "/page.html", &format!("{condition}\r\n"));
        assert_eq!((same.status, same.body.as_str(), same.header("etag")), (304, "", Some(&*etag)));
    }
    let other = site.ask(0, "GET", "/page.html", "range: bytes=0-1\r\nif-range: \"other\"\r\n");
    assert_eq!((other.status, other.body.as_str()), (200, "0123456789"));
    assert_eq!(site.ask(0, "GET", "/absent.html", "cache-control: only-if-cached\r\n").status, 504);
    assert_eq!(site.served(), served, "no node was asked");
    let counted = metrics(site.cluster.admin(0));
    assert!(counted["sidelong_edge_documents_total{from=\"memory\"}"] >= 56.0);
    assert!(counted["sidelong_edge_document_bytes_total"] >= 50.0 * 10.0);
    assert!(counted["sidelong_edge_document_reads_total{end=\"answered\"}"] >= 56.0);
}

#[test]
fn what_only_the_server_may_answer_goes_to_it() {
    let site = Site::new(3600);
    let _parts = site.cluster.serving_here();
    site.await_memory(0, "/page.html");
    for fields in [
        "authorization: Basic eDp5\r\n",
        "cache-control: no-cache\r\n",
        "cache-control: no-store\r\n",
        "pragma: no-cache\r\n",
        "if-match: *\r\n",
    ] {
        let served = site.served();
        let reply = site.ask(0, "GET", "/page.html", fields);
        assert_eq!((reply.status, reply.header("age")), (200, None), "{fields}");
        assert_eq!(site.served(), served + 1.0, "{fields}");
    }
    // What was asked for with Authorization is kept for nobody.
    fs::write(site.root.join("own.html"), "own").unwrap();
    for _ in 0..6 {
        site.ask(0, "GET", "/own.html", "authorization: Basic eDp5\r\n");
    }
    assert_eq!(site.ask(0, "GET", "/own.html", "cache-control: only-if-cached\r\n").status, 504);
    // The server evaluates conditions and ranges as an edge does.
    let reply = site.ask(0, "GET", "/page.html", "cache-control: no-cache\r\nrange: bytes=0-1\r\n");
    assert_eq!((reply.status, reply.body.as_str()), (206, "01"));
    assert_eq!(site.ask(0, "GET", "/page.html", "if-match: \"other\"\r\n").status, 412);
    // A request that may change it has the next one asked anew.
    let served = site.served();
    assert_eq!(site.ask(0, "POST", "/page.html", "content-length: 0\r\n").status, 200);
    assert_eq!(site.get("/page.html").header("age"), None);
    assert_eq!(site.served(), served + 2.0);
}

/// Requests at three edges at once, so many at each. Returns how many nodes have answered.
fn herd(site: &Site, at_each: usize) -> f64 {
    let served = site.served();
    thread::scope(|scope| {
        let at = (0..3 * at_each).map(|number| number % 3);
        let asked: Vec<_> = at
            .map(|edge| scope.spawn(move || site.ask(edge, "GET", "/page.html", "").body == "0123456789"))
            .collect();
        assert!(asked.into_iter().all(|asked| asked.join().unwrap()));
    });
    site.served() - served
}

#[test]
fn a_herd_for_one_document_goes_once_to_a_node_from_all_edges() {
    // Long enough that all have come before the first is answered.
    let service = Duration::from_millis(300);
    let site = Site::of(Cluster::new(&[("www", 3)]).with_edge().with_service(service), 4);
    let _parts = site.cluster.serving_here();
    assert_eq!(herd(&site, 40), 1.0, "it is not there");
    eventually("it is fresh no longer", || {
        site.ask(0, "GET", "/page.html", "cache-control: only-if-cached\r\n").status == 504
    });
    assert_eq!(herd(&site, 40), 1.0, "it is not fresh");
}

#[test]
fn an_edge_that_has_died_holds_up_nobody_for_longer_than_its_lease() {
    let site = Site::of(Cluster::new(&[("www", 3)]).with_edge(), 3600);
    let _parts = site.cluster.serving_here();
    // It has begun to ask each of the nodes, and ends there.
    let regions = ["n1", "n2", "n3"].map(|node| format!("{node}.documents"));
    let run = Arc::new(RunDirectory::at(site.cluster.run_dir()));
    let mut dead = DocumentReader::new(regions, 8 << 20, run, 0);
    let key = document_key("www", "/page.html");
    for node in 0..3 {
        assert_eq!(dead.find(node, &key), Ok(None));
        assert!(matches!(dead.claim(node, fnv1a(&key), monotonic_ns()), Turn::Own(_)));
    }
    drop(dead);
    // One of the others takes over, for all.
    assert_eq!(herd(&site, 2), 1.0);
}

#[test]
fn a_file_that_changes_or_vanishes_is_answered_with_for_no_longer_than_its_time() {
    let site = Site::new(1);
    let _parts = site.cluster.serving_here();
    let page = site.root.join("page.html");
    let etag = site.await_memory(0, "/page.html").header("etag").unwrap().to_owned();
    // In place, by another file of that name, and by none.
    fs::write(&page, "changed in place").unwrap();
    eventually("the change is seen", || site.get("/page.html").body == "changed in place");
    assert_ne!(site.get("/page.html").header("etag"), Some(&*etag));
    fs::write(site.root.join("new"), "another").unwrap();
    fs::rename(site.root.join("new"), &page).unwrap();
    eventually("the other file is seen", || site.get("/page.html").body == "another");
    site.await_memory(1, "/page.html");
    fs::remove_file(&page).unwrap();
    eventually("it is gone", || site.get("/page.html").status == 404);
    eventually("for the other edge, too", || site.ask(1, "GET", "/page.html", "").status == 404);
    // Once it was seen to be gone, nobody has it.
    for edge in [0, 1] {
        assert_eq!(site.ask(edge, "GET", "/page.html", "").status, 404);
    }
    // While somebody writes it, what is answered is the file at one time, or was never kept.
    for round in 0..200 {
        let content = [b'a' + (round % 26) as u8; 20_000];
        fs::write(site.root.join("new"), content).unwrap();
        fs::rename(site.root.join("new"), &page).unwrap();
        let reply = site.get("/page.html");
        let first = reply.body.as_bytes()[0];
        assert!(reply.body.len() == 20_000 && reply.body.bytes().all(|byte| byte == first), "round {round}");
    }
}

#[test]
fn memory_that_is_taken_away_is_exposed_anew_by_the_node_that_goes_on() {
    let site = Site::new(3600);
    let parts = site.cluster.serving_here();
    let home = site.home("/page.html");
    let region = |name: &str| site.cluster.run_dir().join(format!("{home}.{name}.region"));
    let take = |region: &Path, left: Option<u64>| match left {
        Some(left) => fs::File::options().write(true).open(region).unwrap().set_len(left).unwrap(),
        None => fs::remove_file(region).unwrap(),
    };
    let kept = |site: &Site| {
        let node = site.cluster.file.nodes.iter().position(|node| node.name == home).unwrap();
        metrics(site.cluster.node_admin(node))["sidelong_node_documents_total{what=\"kept\"}"]
    };
    // To nothing, to a page that is partly left, and by its name.
    for left in [Some(0), Some(100), None] {
        let before = kept(&site);
        take(&region("documents"), left);
        eventually("the document is kept anew", || {
            assert_eq!(site.get("/page.html").body, "0123456789");
            kept(&site) > before
        });
        assert_eq!(site.await_memory(0, "/page.html").node(), home, "{left:?}");
    }
    // Without the claims alone, what is in memory is answered from there, until a request comes to the node.
    let claims = region("documents.claims");
    for left in [Some(0), None] {
        take(&claims, left);
        assert_eq!(site.get("/page.html").body, "0123456789");
        eventually("the claims are exposed anew", || {
            assert_eq!(site.ask(0, "GET", "/page.html", "cache-control: no-cache\r\n").body, "0123456789");
            claims.metadata().is_ok_and(|file| file.len() > 0)
        });
        assert_eq!(site.await_memory(0, "/page.html").node(), home, "{left:?}");
    }
    assert!(parts.iter().all(Here::is_running), "no part has ended");
    let edge = metrics(site.cluster.admin(0));
    assert!(edge["sidelong_edge_document_reads_total{end=\"failed\"}"] >= 1.0);
}

#[test]
fn documents_are_refused_where_nobody_could_keep_or_read_them() {
    let mut cluster = Cluster::new(&[("www", 1)]);
    cluster.file.cache.documents = true;
    let problem = cluster.file.cluster().unwrap_err().to_string();
    assert!(problem.contains("no [[node]] has root"), "{problem}");
    cluster.file.nodes[0].root = Some(cluster.path(""));
    cluster.file.cluster().unwrap();
    cluster.file.cluster.fabric = sidelong_config::Fabric::Tcp;
    let problem = cluster.file.cluster().unwrap_err().to_string();
    assert!(problem.contains("documents is true, with fabric \"tcp\""), "{problem}");
}
