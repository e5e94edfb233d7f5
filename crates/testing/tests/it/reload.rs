//! A cluster that goes by a changed file while it serves, on threads of this process.

use sidelong_testing::words::Word;
use sidelong_testing::{Client, Cluster, Here, eventually, try_get};

use sidelong_layout::Budget;

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

/// What cannot be adopted changes nothing.
#[test]
fn all_or_nothing() {
    let mut cluster = cluster();
    assert!(cluster.reload().unwrap_err().contains("no part of"), "nothing runs yet");
    let parts = cluster.serving_here();
    let before = cluster.file.clone();
    cluster.file.sites[0].hosts = vec!["new.test".into()];
    cluster.file.sites.swap(0, 1);
    let refused = cluster.reload().unwrap_err();
    assert!(refused.starts_with("nothing is changed") && refused.contains("site"), "{refused}");
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
