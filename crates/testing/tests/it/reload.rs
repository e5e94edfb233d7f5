//! A cluster that goes by a changed file while it serves, on threads of this process.

use sidelong_app::Event;
use sidelong_config::SiteEntry;
use sidelong_layout::Budget;
use sidelong_testing::words::Word;
use sidelong_testing::{Client, Cluster, Here, SteadyLoad, eventually, try_get};
use sidelong_workload::origin::NODE_HEADER;

/// Sites alpha and beta with two nodes each, and two edges.
fn cluster() -> Cluster {
    Cluster::new(&[("alpha", 2), ("beta", 2)])
}

fn status(cluster: &Cluster, edge: usize, host: &str) -> u16 {
    try_get(cluster.edge(edge), host, "/o/1/1").map_or(0, |reply| reply.status)
}

/// Sends a body of so many bytes.
fn post(cluster: &Cluster, bytes: usize) -> u16 {
    let mut client = Client::connect(cluster.edge(0));
    let head = format!("POST /o/1/1 HTTP/1.1\r\nhost: alpha.test\r\ncontent-length: {bytes}\r\n\r\n");
    client.send(head + &"x".repeat(bytes)).unwrap();
    client.reply(true).unwrap().status
}

#[test]
fn hosts_change_under_connections_that_stay() {
    let mut cluster = cluster();
    let parts = cluster.serving_here();
    let get = |client: &mut Client, host: &str| client.ask("GET", host, "/o/1/1").unwrap().status;
    let mut client = Client::connect(cluster.edge(0));
    assert_eq!(get(&mut client, "alpha.test"), 200);
    assert_eq!(get(&mut client, "new.test"), 421);
    assert_eq!(cluster.reload(), Ok(1), "nothing has changed");

    cluster.file.sites[0].hosts = vec!["new.test".into()];
    assert_eq!(cluster.reload(), Ok(2));
    assert_eq!(
        (get(&mut client, "new.test"), get(&mut client, "alpha.test")),
        (200, 421),
        "on the same connection"
    );
    for edge in 0..2 {
        assert_eq!((status(&cluster, edge, "new.test"), status(&cluster, edge, "alpha.test")), (200, 421));
    }
    drop(parts);
}

#[test]
fn limits_and_floors_change() {
    let mut cluster = cluster();
    let parts = cluster.serving_here();
    assert_eq!(post(&cluster, 100), 200);
    cluster.file.limits.body_bytes_max = 99;
    cluster.file.sites[1].floor = 2;
    assert_eq!(cluster.reload(), Ok(2));
    assert_eq!((post(&cluster, 100), post(&cluster, 99)), (413, 200));
    let floor = || Budget::decode(Word::budget(&cluster, 1).read()).floor;
    eventually("the board has the floor", || floor() == 2);
    let refused = cluster.drain("n3").unwrap_err();
    assert!(refused.contains("at its floor of 2"), "{refused}");
    drop(parts);
}

#[test]
fn the_access_log_is_turned_on_moved_and_turned_off() {
    let mut cluster = cluster();
    let parts = cluster.serving_here();
    let lines = |cluster: &Cluster, name: &str| {
        std::fs::read_to_string(cluster.path(name)).unwrap_or_default().lines().count()
    };
    let to = |cluster: &mut Cluster, log: Option<&str>| {
        cluster.file.edges[0].access_log = log.map(|name| cluster.path(name));
        cluster.reload()
    };
    for log in ["one.log", "other.log"] {
        to(&mut cluster, Some(log)).unwrap();
        assert_eq!(status(&cluster, 0, "alpha.test"), 200);
        eventually("the line is there", || lines(&cluster, log) == 1);
    }
    let refused = to(&mut cluster, Some("nowhere/a.log")).unwrap_err();
    assert!(refused.contains("edge1 refuses it: ") && refused.contains("nowhere/a.log"), "{refused}");
    assert_eq!(status(&cluster, 0, "alpha.test"), 200);
    eventually("it goes on", || lines(&cluster, "other.log") == 2);
    to(&mut cluster, None).unwrap();
    assert_eq!(status(&cluster, 0, "alpha.test"), 200);
    to(&mut cluster, Some("one.log")).unwrap();
    assert_eq!(status(&cluster, 0, "alpha.test"), 200);
    eventually("it goes on", || lines(&cluster, "one.log") == 2);
    assert_eq!(lines(&cluster, "other.log"), 2, "meanwhile there was none");
    drop(parts);
}

/// What cannot be adopted changes nothing.
#[test]
fn all_or_nothing() {
    let mut cluster = cluster();
    assert!(cluster.reload().unwrap_err().contains("no part of"), "nothing runs yet");
    let parts = cluster.serving_here();
    let before = cluster.file.clone();
    cluster.file.sites[0].hosts = vec!["new.test".into()];
    cluster.file.cache.item_bytes_max += 1;
    let refused = cluster.reload().unwrap_err();
    assert!(
        refused.starts_with("nothing is changed") && refused.contains("cache.item_bytes_max"),
        "{refused}"
    );
    cluster.file = before.clone();
    cluster.file.sites[0].hosts = vec!["beta.test".into()];
    assert!(cluster.reload().is_err(), "two sites with one host");
    cluster.file = before;
    assert_eq!(status(&cluster, 0, "alpha.test"), 200);
    assert_eq!(cluster.reload(), Ok(1));
    drop(parts);
}

/// A part that starts beside others goes by what they have adopted, whatever the file says by now.
#[test]
fn a_part_that_starts_again_goes_by_what_the_others_have() {
    let mut cluster = cluster();
    let mut parts = cluster.serving_here();
    cluster.file.sites[0].hosts = vec!["new.test".into()];
    assert_eq!(cluster.reload(), Ok(2));
    let adopted = cluster.file.clone();
    // Somebody edits it on.
    cluster.file.sites[0].hosts = vec!["later.test".into()];
    let last = parts.remove(0);
    last.end();
    let again: Here = cluster.here("edge", "edge2");
    cluster.file = adopted;
    eventually("it serves what was adopted", || status(&cluster, 1, "new.test") == 200);
    assert_eq!(status(&cluster, 1, "later.test"), 421);
    assert_eq!(cluster.move_to("n1", "beta").map(|_| ()), Ok(()), "moves go on");
    drop((again, parts));
}

/// Ends a node, which has had no request for a site that it did not serve.
fn end(node: Here) {
    let said = node.ended();
    assert!(!said.iter().any(|event| matches!(event, Event::Misdirected { .. })), "{said:?}");
}

/// Node `name` answers a request of `host` at each edge.
fn answers(cluster: &Cluster, name: &str, host: &str) -> bool {
    (0..2).all(|edge| {
        (0..8).any(|_| {
            let reply = try_get(cluster.edge(edge), host, "/o/1/1");
            reply.is_ok_and(|reply| reply.header(NODE_HEADER) == Some(name))
        })
    })
}

#[test]
fn nodes_join_and_leave_under_load() {
    let mut cluster = cluster();
    let mut parts = cluster.serving_here();
    let load = SteadyLoad::start(&cluster);

    cluster.add_node("n5");
    assert!(cluster.try_here("node", "n5").err().unwrap().contains("`sidelong reload` has it join"));
    assert_eq!(cluster.reload(), Ok(2));
    let fifth = cluster.here("node", "n5");
    assert!(cluster.move_to("n5", "beta").is_ok());
    eventually("it gets requests", || answers(&cluster, "n5", "beta.test"));

    // It goes, and the part with it. What has its place next is another site's.
    cluster.file.nodes.pop();
    assert_eq!(cluster.reload(), Ok(4), "that it leaves, and that it has left");
    eventually("its part ends", || !fifth.is_running());
    cluster.add_node("n6");
    assert_eq!(cluster.reload(), Ok(5));
    let slots = cluster.current().unwrap().nodes;
    assert_eq!((slots.len(), slots.position(|node| node.name == "n6")), (5, Some(4)), "in the same place");
    let sixth = cluster.here("node", "n6");
    assert!(cluster.move_to("n6", "alpha").is_ok());
    eventually("it gets requests", || answers(&cluster, "n6", "alpha.test"));

    // One that was there from the start leaves, and the first comes back.
    cluster.file.nodes.remove(0);
    assert_eq!(cluster.reload(), Ok(7));
    let first = parts.pop().unwrap();
    eventually("its part ends", || !first.is_running());
    end(first);
    end(fifth);
    cluster.add_node("n5");
    assert_eq!(cluster.reload(), Ok(8));
    let fifth = cluster.here("node", "n5");
    assert!(cluster.move_to("n5", "alpha").is_ok());
    eventually("it gets requests", || answers(&cluster, "n5", "alpha.test"));

    assert_eq!(load.end(), Vec::<String>::new());
    let known = |name: &str| cluster.figure(0, &format!("node_up{{node=\"{name}\"}}"));
    assert_eq!((known("n1"), known("n6")), (None, Some(1.0)), "a node that has left has no series");
    let nodes = parts.split_off(2);
    drop(parts);
    nodes.into_iter().chain([fifth, sixth]).for_each(end);
}

/// A node that cannot be drained stays, and so does all else: what was held for it serves again, but for what a person holds.
#[test]
fn a_node_that_cannot_leave_stays() {
    let mut cluster = Cluster::new(&[("alpha", 3), ("beta", 2)]);
    cluster.file.sites[1].floor = 2;
    let parts = cluster.serving_here();
    let before = cluster.file.clone();
    assert!(cluster.drain("n1").is_ok());
    cluster.add_node("n6");
    cluster.file.sites[0].nodes = 1;
    cluster.file.nodes.retain(|node| !["n1", "n2", "n4"].contains(&&*node.name));
    let refused = cluster.reload().unwrap_err();
    assert!(
        refused.starts_with("nothing is changed, because n4 cannot leave: beta is at its floor of 2")
            && refused.contains("give beta another node first")
            && !refused.contains("; but "),
        "{refused}"
    );
    assert_eq!(cluster.current().unwrap().nodes.values().count(), 5);
    cluster.file = before;
    assert!(parts.iter().all(Here::is_running));
    assert_eq!(status(&cluster, 0, "alpha.test"), 200);
    let held = ["n1", "n2"].map(|name| cluster.drain(name).unwrap());
    // The second has served again.
    assert!(held[0] == "n1 is held already" && held[1].starts_with("n2 is held; "), "{held:?}");
}

#[test]
fn sites_join_and_leave_under_load() {
    let mut cluster = cluster();
    let parts = cluster.serving_here();
    let load = SteadyLoad::start(&cluster);
    let before = cluster.file.clone();
    for (name, epoch) in [("gamma", 2), ("delta", 5)] {
        let host = format!("{name}.test");
        cluster.file.sites[0].nodes = 1;
        cluster.file.sites.push(SiteEntry::new(name, host.as_str(), 1));
        assert_eq!(cluster.reload(), Ok(epoch));
        eventually("it gets a node", || (0..2).all(|edge| status(&cluster, edge, &host) == 200));
        let slots = cluster.current().unwrap().sites;
        assert_eq!(slots.position(|site| site.name == name), Some(2), "in the same place");
        let answered = cluster.figure(0, &format!("requests_total{{site=\"{name}\",code=\"2xx\"}}")).unwrap();
        assert!((1.0..100.0).contains(&answered), "counted from when it came: {answered}");

        cluster.file = before.clone();
        assert_eq!(cluster.reload(), Ok(epoch + 2), "that it takes no more, and that it has left");
        assert!((0..2).all(|edge| status(&cluster, edge, &host) == 421));
    }
    assert_eq!(load.end(), Vec::<String>::new());
    let nodes = parts.into_iter().skip(2);
    nodes.for_each(end);
}

#[test]
fn edges_join_and_leave_under_load() {
    let mut cluster = cluster();
    let mut parts = cluster.serving_here();
    let load = SteadyLoad::start(&cluster);
    cluster.push_edge();
    assert_eq!(cluster.reload(), Ok(2));
    assert!(cluster.move_to("n1", "beta").is_ok(), "nobody waits for it before it starts");
    let third = cluster.here("edge", "edge3");
    eventually("it serves", || status(&cluster, 2, "alpha.test") == 200);
    assert_eq!(cluster.current().unwrap().epoch, 3, "it has said that it is there");
    assert!(cluster.resume("n1").is_ok() && cluster.move_to("n1", "alpha").is_ok());

    cluster.file.edges.pop();
    assert_eq!(cluster.reload(), Ok(5));
    assert!(!third.is_running());
    assert!(cluster.resume("n1").is_ok() && cluster.move_to("n1", "beta").is_ok(), "nobody waits for it");
    assert_eq!(load.end(), Vec::<String>::new());
    let nodes = parts.split_off(2);
    drop(parts);
    nodes.into_iter().for_each(end);
}
