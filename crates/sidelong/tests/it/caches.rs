//! Caches of a cluster that hang, die, come back or are of another cluster, and those of machines with devices.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use sidelong_config::CachePeer;

use crate::support::caches::{By, Caches, FABRIC, SECRET};
use crate::support::memcached::Client;
use crate::support::{Cluster, Running, eventually, metrics, run};
use sidelong_testing::registers::check;

#[test]
fn a_home_that_is_stopped_is_read_on_and_changes_nothing() {
    let caches = Caches::start(By::Process, 8);
    let key = caches.key_of(1);
    let mut client = caches.client(0);
    client.asks(format!("set {key} 0 0 3\r\nold\r\n"), "STORED\r\n");
    caches.signal(1, Signal::STOP);
    for _ in 0..100 {
        client.asks(format!("get {key}\r\n"), format!("VALUE {key} 0 3\r\nold\r\nEND\r\n"));
    }
    let unknown = "SERVER_ERROR cache c2 does not answer: the outcome is unknown\r\n";
    client.asks(format!("set {key} 0 0 3\r\nnew\r\n"), unknown);
    // Others are not held up.
    let own = caches.key_of(0);
    client.asks(
        format!("set {own} 0 0 1\r\nx\r\nget {own}\r\n"),
        format!("STORED\r\nVALUE {own} 0 1\r\nx\r\nEND\r\n"),
    );
    caches.signal(1, Signal::CONT);
    eventually("it takes changes again", || {
        client.say(format!("set {key} 0 0 3\r\nyet\r\n"));
        client.line() == "STORED\r\n"
    });
    client.asks(format!("get {key}\r\n"), format!("VALUE {key} 0 3\r\nyet\r\nEND\r\n"));
}

#[test]
fn a_home_that_was_killed_comes_back_empty() {
    let mut caches = Caches::start(By::Process, 8);
    let key = caches.key_of(2);
    let mut client = caches.client(0);
    client.asks(format!("set {key} 0 0 3\r\nold\r\n"), "STORED\r\n");
    caches.running[2].take().unwrap().kill();
    client.say(format!("set {key} 0 0 3\r\nnew\r\n"));
    let refused = client.line();
    assert!(refused.starts_with("SERVER_ERROR cache c3"), "{refused}");
    client.asks(format!("get {key}\r\n"), format!("VALUE {key} 0 3\r\nold\r\nEND\r\n"));
    caches.restart(2);
    client.asks(format!("get {key}\r\n"), "END\r\n");
    eventually("it takes changes again", || {
        client.say(format!("set {key} 0 0 4\r\nanew\r\n"));
        client.line() == "STORED\r\n"
    });
    let value = format!("VALUE {key} 0 4\r\nanew\r\nEND\r\n");
    eventually("its memory is read again", || client.list(&format!("get {key}")) == value);
}

#[test]
fn a_home_that_is_stopped_on_another_machine_is_a_miss() {
    let caches = Caches::over_network(By::Process, 8);
    caches.is_missed_while_silent(|| caches.signal(1, Signal::STOP), || caches.signal(1, Signal::CONT));
}

#[test]
fn a_home_that_was_killed_on_another_machine_comes_back_empty() {
    let mut caches = Caches::over_network(By::Process, 8);
    let key = caches.key_of(2);
    let mut client = caches.client(0);
    client.asks(format!("set {key} 0 0 3\r\nold\r\n"), "STORED\r\n");
    caches.running[2].take().unwrap().kill();
    client.asks(format!("get {key}\r\n"), "END\r\n");
    client.say(format!("set {key} 0 0 3\r\nnew\r\n"));
    let refused = client.line();
    assert!(refused.starts_with("SERVER_ERROR cache c3"), "{refused}");
    caches.restart(2);
    client.asks(format!("get {key}\r\n"), "END\r\n");
    eventually("it takes changes again", || {
        client.say(format!("set {key} 0 0 4\r\nanew\r\n"));
        client.line() == "STORED\r\n"
    });
    client.asks(format!("get {key}\r\n"), format!("VALUE {key} 0 4\r\nanew\r\nEND\r\n"));
}

#[test]
fn who_is_not_of_the_cluster_is_refused() {
    let mut caches = Caches::over_network(By::Process, 8);
    let key = caches.key_of(1);
    let mut client = caches.client(0);
    for (secret, memory_mb, problem) in [
        ("what nobody here knows", 8, "the secrets differ: all machines of a cluster need the same one"),
        (SECRET, 9, "its cluster file has other sites, nodes or caches: use the same file on all machines"),
    ] {
        caches.running[1].take().unwrap().end();
        let other = caches.part_of(1, secret, |peers| peers[1].memory_mb = memory_mb);
        let first = caches.running[0].as_ref().unwrap().process();
        eventually("the first says why", || first.err().contains(problem));
        eventually("and the other", || other.process().err().contains(problem));
        assert!(!(first.err() + &other.process().err()).contains("knows"), "secrets are not shown");
        client.asks(format!("get {key}\r\n"), "END\r\n");
        let refused = "SERVER_ERROR cache c2 is not reached: nothing was changed\r\n";
        client.asks(format!("set {key} 0 0 3\r\nnew\r\n"), refused);
        other.end();
        caches.restart(1);
        eventually("the right one is asked again", || {
            client.try_ask(&format!("set {key} 0 0 3\r\nnew\r\n")).unwrap() == "STORED\r\n"
        });
    }
    // Neither a client of memcached's nor another version learns anything at that port.
    let at = caches.cluster.at(FABRIC);
    let said = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // It may end the connection before it has read all.
        _ = stream.read_to_end(&mut answer);
        answer
    };
    assert_eq!(said(&b"get begin1\r\n".repeat(10)), b"");
    let answer = said(&[&b"SIDELBYT\x09\0\0\0\0\0\0\0"[..], &[0; 48]].concat());
    assert_eq!(answer[..12], *b"SIDELBYT\x02\0\0\0", "its own version");
    assert_eq!(said(&[]), b"", "who says nothing is not kept");
    client.asks(format!("get {key}\r\n"), format!("VALUE {key} 0 3\r\nnew\r\nEND\r\n"));
}

#[test]
fn a_file_of_caches_alone_has_nothing_else_to_run() {
    let mut cluster = Cluster::new(&[]);
    cluster.file.edges.clear();
    cluster.file.cache.peers = vec![CachePeer::new("c1", cluster.at(11211))];
    let config = cluster.config();
    let shown = config.to_str().unwrap();
    let refused = run(["up", "--config", shown]).refused();
    let expected = format!(
        "{shown} has only caches: start each by sidelong cache NAME --config {shown}, and ask it for its stats"
    );
    assert_eq!(refused, expected);
    let checked = run(["config", "check", shown]).succeeded();
    assert!(checked.contains("1 cache"), "{checked}");
    let refused = run(["node", "n1", "--config", shown]).refused();
    assert!(refused.contains("has no node \"n1\""), "{refused}");
}

#[test]
fn caches_join_leave_and_are_lost_by_commands() {
    let mut cluster = Cluster::new(&[]);
    cluster.file.edges.clear();
    let cache = |number: u16| CachePeer {
        memory_mb: 8,
        admin: Some(cluster.at(9150 + number)),
        ..CachePeer::new(format!("c{number}"), cluster.at(11210 + number))
    };
    cluster.file.cache.peers = vec![cache(1), cache(2)];
    let config = cluster.config();
    let shown = config.to_str().unwrap();
    let start = |name: &str| {
        let cache = Running::start(["cache", name, "--config", shown]);
        eventually("it takes clients", || cache.out().contains("MiB of cache at"));
        cache
    };
    let status = || run(["status", "--config", shown]).succeeded();
    let (first, second) = (start("c1"), start("c2"));
    assert_eq!(status(), "test: 2 caches\n");
    let at = cluster.at(11213).to_string();
    let join = ["join", "cache", "c3", "--listen", &at, "--memory-mb", "8", "--config", shown];
    let said = run(join).succeeded();
    assert!(said.contains("c3 belongs to the cluster (epoch 2): start it by `sidelong cache c3"), "{said}");
    assert!(status().contains("cache c3 has no share of the keys"), "{}", status());
    let mut client = Client::connect(cluster.at(11211));
    assert_eq!(client.addresses().1.len(), 2, "it has not started");
    let third = start("c3");
    eventually("it has its share", || status() == "test: 3 caches\n");
    assert_eq!(client.addresses().1.len(), 3);
    let epoch = || metrics(cluster.at(9151))["sidelong_config_epoch"];
    eventually("its metrics say by which file it goes", || epoch() == 4.0);

    third.kill();
    assert!(status().contains("cache c3 does not run, and nothing is stored under its keys"), "{}", status());
    run(["remove", "c3", "--lost", "--config", shown]).succeeded();
    (0..30).for_each(|key| client.asks(format!("set k{key} 0 0 1\r\nx\r\n"), "STORED\r\n"));
    let refused = run(["remove", "c2", "--lost", "--config", shown]).refused();
    assert!(refused.contains("c2 runs: end it"), "{refused}");
    let third = start("c3");
    eventually("it has its share again", || status() == "test: 3 caches\n");

    // One at a time changes the file.
    let before = std::fs::read_to_string(&config).unwrap();
    let other = std::fs::File::open(config.parent().unwrap()).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let refused = run(["leave", "c3", "--config", shown]).refused();
    assert!(refused.contains("somebody else changes the cluster of "), "{refused}");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), before);
    drop(other);

    second.signal(Signal::STOP);
    assert!(status().contains("cache c2 does not answer"), "{}", status());
    second.signal(Signal::CONT);

    let said = run(["leave", "c3", "--config", shown]).succeeded();
    assert!(said.contains("c3 has left the cluster"), "{said}");
    assert_eq!(third.finish().code, Some(0));
    assert_eq!(client.addresses().1.len(), 2);
    assert!(!std::fs::read_to_string(&config).unwrap().contains("c3"));
    let history = run(["history", "--config", shown]).succeeded();
    assert!(history.contains("joined") && history.contains("left"), "{history}");

    // Signals do as commands.
    let changed = std::fs::read_to_string(&config).unwrap()
        + &format!("\n[[cache.peer]]\nname = \"c4\"\nlisten = \"{at}\"\n");
    std::fs::write(&config, changed).unwrap();
    first.signal(Signal::HUP);
    eventually("it is adopted", || status().contains("cache c4 has no share"));
    [first, second].into_iter().for_each(|cache| _ = cache.end().succeeded());
}

/// A part hangs, so that the join is undone; but the cache has its share by then.
#[test]
fn a_cache_whose_join_is_undone_hands_its_share_back() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.edges.truncate(1);
    let cache = |number: u16| CachePeer {
        memory_mb: 8,
        ..CachePeer::new(format!("c{number}"), cluster.at(11210 + number))
    };
    cluster.file.cache.peers = vec![cache(1), cache(2)];
    let config = cluster.config();
    let before = std::fs::read_to_string(&config).unwrap();
    let parts =
        [("cache", "c1"), ("cache", "c2"), ("node", "n1")].map(|(kind, name)| cluster.part(kind, name));
    let has_begun =
        || cluster.current().is_ok_and(|current| current.epoch > 0) && cluster.regions().len() > 3;
    eventually("all have begun", has_begun);
    cluster.run(&["reload"]).succeeded();
    parts[2].signal(Signal::STOP);
    let at = cluster.at(11213).to_string();
    let join =
        cluster.start(&["join", "cache", "c3", "--listen", &at, "--memory-mb", "8", "--timeout", "5s"]);
    let knows = || cluster.current().is_ok_and(|current| current.caches.len() == 3);
    eventually("it may start", knows);
    let third = cluster.part("cache", "c3");
    let mut client = Client::connect(cluster.at(11211));
    eventually("it has its share", || client.addresses().1.len() == 3);
    let refused = join.finish();
    assert!(refused.code == Some(2) && refused.err.contains("n1 did not take it over"), "{refused:?}");
    assert_eq!(third.finish().code, Some(0), "it has left");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), before);
    (0..30).for_each(|key| client.asks(format!("set k{key} 0 0 1\r\nx\r\n"), "STORED\r\n"));
    assert_eq!(client.addresses().1.len(), 2);
    parts[2].signal(Signal::CONT);
    cluster.run(&["reload"]).succeeded();
    parts.into_iter().for_each(|part| _ = part.end().succeeded());
}

#[test]
fn nor_while_caches_hang_die_and_come_back() {
    let mut caches = Caches::start(By::Process, 8);
    let mut running: Vec<_> = caches.running.iter_mut().map(Option::take).collect();
    let caches = &caches;
    check(caches, 1_500, || {
        for (number, place) in running.iter_mut().enumerate() {
            let one = place.take().unwrap();
            one.process().signal(Signal::STOP);
            thread::sleep(Duration::from_millis(200));
            one.process().signal(Signal::CONT);
            one.kill();
            *place = Some(caches.part(number));
        }
    });
    for one in running.into_iter().flatten() {
        one.end();
    }
}

/// Caches of several machines whose devices read the others' memory. In an emulated guest a device may answer late, which is a miss.
mod over_verbs {
    use super::*;
    use crate::support::has_rdma;

    /// What a `get` finds, which must be `value` or nothing.
    fn finds(client: &mut Client, key: &str, value: &str) -> bool {
        let found = client.list(&format!("get {key}"));
        let wanted = format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
        assert!(found == wanted || found == "END\r\n", "{found:?} is not {wanted:?}");
        found == wanted
    }

    fn set(client: &mut Client, key: &str, value: &str, expires_s: u32) {
        client.asks(format!("set {key} 0 {expires_s} {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    }

    /// Stops a cache, while which another one finds its items: it cannot have been asked for them.
    fn stop_and_read(caches: &Caches, number: usize, client: &mut Client, key: &str, value: &str) {
        eventually("its memory is read", || {
            caches.signal(number, Signal::STOP);
            let all = (0..20).all(|_| finds(client, key, value));
            if !all {
                caches.signal(number, Signal::CONT);
                // So that there is time for a link.
                thread::sleep(Duration::from_millis(500));
            }
            all
        });
    }

    #[test]
    fn any_cache_answers_for_any_key() {
        if !has_rdma() {
            return;
        }
        let caches = Caches::over_verbs(8);
        let mut clients = caches.clients();
        for key in (0..20).map(|key| format!("k{key}")) {
            for writer in 0..3 {
                // In one line, and in many packets.
                let value = format!("{key}-{writer};").repeat([1, 500, 5_000][writer]);
                set(&mut clients[writer], &key, &value, 0);
                for reader in &mut clients {
                    eventually("it is found", || finds(reader, &key, &value));
                }
            }
        }
        let [a, b, c] = &mut clients;
        for key in (0..20).map(|key| format!("n{key}")) {
            set(a, &key, "5", 0);
            b.asks(format!("incr {key} 6\r\n"), "11\r\n");
            eventually("the sum is found", || finds(c, &key, "11"));
            c.asks(format!("delete {key}\r\n"), "DELETED\r\n");
            a.asks(format!("get {key}\r\n"), "END\r\n");
        }
        b.asks("flush_all\r\n", "OK\r\n");
        for client in &mut clients {
            (0..20).for_each(|key| client.asks(format!("get k{key}\r\n"), "END\r\n"));
        }
        assert!(clients.iter_mut().map(|client| client.stat("neighbour_hits")).sum::<u64>() > 100);
    }

    #[test]
    fn a_home_that_is_stopped_is_read_on_and_what_expires_is_gone() {
        if !has_rdma() {
            return;
        }
        let caches = Caches::over_verbs(8);
        let (key, mut client) = (caches.key_of(1), caches.client(0));
        set(&mut client, &key, "stays", 0);
        stop_and_read(&caches, 1, &mut client, &key, "stays");
        caches.signal(1, Signal::CONT);
        eventually("it takes changes again", || {
            client.say(format!("set {key} 0 3 7\r\nexpires\r\n"));
            client.line() == "STORED\r\n"
        });
        caches.signal(1, Signal::STOP);
        eventually("it has expired", || !finds(&mut client, &key, "expires"));
        for _ in 0..20 {
            assert!(!finds(&mut client, &key, "expires"), "it was gone");
        }
        caches.signal(1, Signal::CONT);
        eventually("it takes changes again", || {
            client.say(format!("set {key} 0 0 3\r\nyet\r\n"));
            client.line() == "STORED\r\n"
        });
        eventually("it is found", || finds(&mut client, &key, "yet"));
    }

    #[test]
    fn a_home_that_was_killed_comes_back_empty() {
        if !has_rdma() {
            return;
        }
        let mut caches = Caches::over_verbs(8);
        let (key, mut client) = (caches.key_of(2), caches.client(0));
        set(&mut client, &key, "old", 0);
        eventually("it is found", || finds(&mut client, &key, "old"));
        caches.running[2].take().unwrap().kill();
        eventually("it is missed", || !finds(&mut client, &key, "old"));
        client.say(format!("set {key} 0 0 3\r\nnew\r\n"));
        let refused = client.line();
        assert!(refused.starts_with("SERVER_ERROR cache c3"), "{refused}");
        caches.restart(2);
        client.asks(format!("get {key}\r\n"), "END\r\n");
        eventually("it takes changes again", || {
            client.say(format!("set {key} 0 0 4\r\nanew\r\n"));
            client.line() == "STORED\r\n"
        });
        stop_and_read(&caches, 2, &mut client, &key, "anew");
    }

    #[test]
    fn one_that_exposes_no_memory_is_asked_and_asks() {
        if !has_rdma() {
            return;
        }
        let mut caches = Caches::over_verbs(8);
        caches.running[2].take().unwrap().end();
        caches.running[2] = Some(caches.part_of(2, SECRET, |peers| peers[2].verbs_listen = None));
        caches.await_all();
        for (home, other) in [(0, 2), (2, 0)] {
            let (key, [mut home, mut other]) =
                (caches.key_of(home), [home, other].map(|number| caches.client(number)));
            set(&mut home, &key, "value", 0);
            eventually("it is found", || finds(&mut other, &key, "value"));
        }
    }

    #[test]
    fn no_read_is_older_than_what_was_known_before() {
        if has_rdma() {
            check(&Caches::over_verbs(8), 300, || {});
        }
    }
}
