//! Caches of a cluster that serve out of each other's memory, or ask each other over a network: any cache, any key.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sidelong_config::CachePeer;

use crate::support::caches::{Caches, FABRIC, SECRET};
use crate::support::memcached::{self, Client};
use crate::support::{Cluster, eventually, run};

#[test]
fn any_cache_answers_for_any_key() {
    answer_for_any_key(&Caches::start(8));
}

#[test]
fn any_cache_answers_for_any_key_over_a_network() {
    answer_for_any_key(&Caches::over_network(8));
}

fn answer_for_any_key(caches: &Caches) {
    let mut clients = caches.clients();
    let mut sum = |name: &str| clients.iter_mut().map(|client| client.stat(name)).sum::<u64>();
    let failed = sum("neighbour_read_failures");
    for key in 0..30 {
        for (writer, version) in (0..3).map(|writer| (writer, format!("{key}-{writer}"))) {
            let bytes = version.len();
            clients[writer].asks(format!("set k{key} 7 0 {bytes}\r\n{version}\r\n"), "STORED\r\n");
            for reader in &mut clients {
                reader.asks(
                    format!("get k{key}\r\n"),
                    format!("VALUE k{key} 7 {bytes}\r\n{version}\r\nEND\r\n"),
                );
            }
        }
    }
    // What one has changed, all see.
    let [a, b, c] = &mut clients;
    for key in 0..30 {
        a.asks(format!("set n{key} 0 0 1\r\n5\r\n"), "STORED\r\n");
        b.asks(format!("incr n{key} 6\r\n"), "11\r\n");
        c.asks(format!("append n{key} 0 0 1\r\n0\r\n"), "STORED\r\n");
        a.asks(format!("add n{key} 0 0 1\r\nx\r\n"), "NOT_STORED\r\n");
        b.asks(format!("mg n{key} v s f\r\n"), "VA 3 s3 f0\r\n110\r\n");
        c.asks(format!("md n{key}\r\n"), "HD\r\n");
        a.asks(format!("get n{key}\r\n"), "END\r\n");
        b.asks(format!("delete n{key}\r\n"), "NOT_FOUND\r\n");
    }
    // Many keys in a line, with homes of all kinds, and commands without an answer between others.
    let all: Vec<_> = (0..30).map(|key| format!("k{key}")).collect();
    let found = b.list(&format!("gat 100 {}", all.join(" ")));
    assert_eq!(found.matches("VALUE ").count(), 30, "{found}");
    c.say(format!("set q 0 0 1 noreply\r\nq\r\nget q {}\r\n", all.join(" ")));
    let found = c.rest_of_list();
    assert_eq!(found.matches("VALUE ").count(), 31, "{found}");
    a.asks("mg k1 t v\r\nmn\r\n", "VA 3 t100\r\n1-2\r\nMN\r\n");
    // Commands that follow one another without waiting, answered in their order, whoever answers.
    let (mut said, mut wanted) = (String::new(), String::new());
    for key in 0..30 {
        said += &format!("mg k{key} v k\r\nmg none{key} v k O{key}\r\nset p{key} 0 0 2\r\n{key:02}\r\n");
        wanted += &format!(
            "VA {} kk{key}\r\n{key}-2\r\nEN kNone{key} O{key}\r\nSTORED\r\n",
            key.to_string().len() + 2
        );
        said += &format!("incr p{key} 1\r\nget p{key} absent\r\nmg absent q\r\ndelete p{key} noreply\r\n");
        wanted += &format!("{0}\r\nVALUE p{key} 0 2\r\n{0:<2}\r\nEND\r\n", key + 1);
    }
    b.asks(
        said + "version\r\n",
        wanted.replace("kNone", "knone") + &format!("VERSION {}\r\n", sidelong_cache::VERSION),
    );
    // An item that is too large is not stored, and what its key had is gone, wherever that was.
    for key in 0..8 {
        let large = vec![b'x'; 2 << 20];
        a.say(format!("set k{key} 0 0 {}\r\n", large.len()));
        a.say(large);
        a.asks("\r\n", "SERVER_ERROR object too large for cache\r\n");
        b.asks(format!("get k{key}\r\n"), "END\r\n");
    }
    c.asks("flush_all\r\n", "OK\r\n");
    for client in &mut clients {
        assert_eq!(client.list(&format!("get {}", all.join(" "))), "END\r\n");
    }
    let mut sum = |name: &str| clients.iter_mut().map(|client| client.stat(name)).sum::<u64>();
    assert!(sum("neighbour_hits") > 100);
    assert_eq!(sum("neighbour_read_failures"), failed, "nobody wrote while somebody read");
}

#[test]
fn memcached_clients_use_any_of_them() {
    let caches = Caches::start(64);
    for at in &caches.at {
        memcached::unmodified_clients(*at);
    }
}

#[test]
fn memcached_clients_use_any_of_them_over_a_network() {
    memcached::unmodified_clients(Caches::over_network(64).at[0]);
}

#[test]
fn a_hot_key_costs_its_home_what_it_would_with_one_reader() {
    const FRESH: Duration = Duration::from_millis(50);
    const GETS: u64 = 20_000;
    let caches = Caches::with_copies(16, FRESH);
    let key = caches.key_of(0);
    let [mut home, mut one, mut two] = caches.clients();
    let value = format!("VALUE {key} 0 1\r\nx\r\nEND\r\n");
    home.asks(format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
    let begun = Instant::now();
    let asked_before = home.stat("get_hits");
    for reader in [&mut one, &mut two] {
        let near_before = reader.stat("near_hits");
        for _ in 0..GETS / 100 {
            reader.asks(format!("get {key}\r\n").repeat(100), value.repeat(100));
        }
        assert!(reader.stat("near_hits") > near_before);
    }
    let asked = home.stat("get_hits") - asked_before;
    // However fast the readers are: once in `FRESH` by each, with what else was under way when it was asked.
    let times = begun.elapsed().as_millis() / FRESH.as_millis() + 2;
    assert!(u128::from(asked) <= times * 100, "{asked} times within {:?}", begun.elapsed());
    assert_eq!(asked + one.stat("near_hits") + two.stat("near_hits"), 2 * GETS);
    // What is changed through a cache is seen through it at once, and through others in time.
    one.asks(
        format!("set {key} 0 0 1\r\ny\r\nget {key}\r\n"),
        "STORED\r\n".to_owned() + &value.replace('x', "y"),
    );
    eventually("the others see it", || two.list(&format!("get {key}")) == value.replace('x', "y"));
    one.asks("flush_all\r\n", "OK\r\n");
    one.asks(format!("get {key}\r\n"), "END\r\n");
    eventually("it is gone", || two.list(&format!("get {key}")) == "END\r\n");
}

#[test]
fn clients_that_all_ask_one_cache_have_the_memory_of_all() {
    one_is_asked(&Caches::start(8));
}

#[test]
fn clients_that_all_ask_one_cache_have_the_memory_of_all_over_a_network() {
    one_is_asked(&Caches::over_network(8));
}

/// As behind a dispatcher that sends all requests to one of the caches.
fn one_is_asked(caches: &Caches) {
    // Half as much again as one has room for.
    const ITEMS: usize = 1_200;
    const BYTES: usize = 10_000;
    let mut clients = caches.clients();
    let before = clients.each_mut().map(|client| client.stat("curr_items"));
    let value = "v".repeat(BYTES);
    let set = |key: usize| format!("set many{key} 0 0 {BYTES} noreply\r\n{value}\r\n");
    for first in (0..ITEMS).step_by(100) {
        clients[0].asks((first..first + 100).map(set).collect::<String>() + "mn\r\n", "MN\r\n");
    }
    let asked_before = clients.each_mut().map(|client| client.stat("get_hits"));
    let found = |client: &mut Client, key: usize| {
        client.list(&format!("get many{key}")) == format!("VALUE many{key} 0 {BYTES}\r\n{value}\r\nEND\r\n")
    };
    // Several at once, and each again and again.
    thread::scope(|scope| {
        for mut client in [caches.client(0), caches.client(0), caches.client(0)] {
            scope.spawn(move || (0..ITEMS).for_each(|key| assert!(found(&mut client, key), "{key}")));
        }
    });
    let mut items = clients.each_mut().map(|client| client.stat("curr_items"));
    items.iter_mut().zip(before).for_each(|(items, before)| *items -= before);
    assert_eq!(items.iter().sum::<u64>(), ITEMS as u64);
    assert!(items.iter().all(|items| *items > ITEMS as u64 / 5), "each holds its part: {items:?}");
    for client in &mut clients {
        assert_eq!(client.stat("evictions"), 0);
    }
    // Those whose memory is read take no part.
    if !caches.has_network() {
        let asked = clients.each_mut().map(|client| client.stat("get_hits"));
        assert_eq!(asked[1..], asked_before[1..]);
    }
}

#[test]
fn a_home_that_is_stopped_is_read_on_and_changes_nothing() {
    let caches = Caches::start(8);
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
    let mut caches = Caches::start(8);
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

/// What clients see while the home of a key is silent: `silence` and `end` begin and end that.
fn is_silent_for_a_while(caches: &Caches, silence: impl Fn(), end: impl Fn()) {
    let (key, own) = (caches.key_of(1), caches.key_of(0));
    let mut client = caches.client(0);
    client.asks(format!("set {key} 0 0 3\r\nold\r\n"), "STORED\r\n");
    silence();
    // What cannot be read is a miss, and no more than the first is waited for.
    for _ in 0..100 {
        client.asks(format!("get {key}\r\nmg {key} v\r\n"), "END\r\nEN\r\n");
    }
    let refused = "SERVER_ERROR cache c2 is not reached: nothing was changed\r\n";
    for _ in 0..100 {
        client.asks(format!("set {key} 0 0 3\r\nnew\r\n"), refused);
    }
    client.asks(
        format!("set {own} 0 0 1\r\nx\r\nget {own} {key}\r\n"),
        format!("STORED\r\nVALUE {own} 0 1\r\nx\r\nEND\r\n"),
    );
    assert!(client.stat("neighbour_read_failures") >= 200);
    end();
    let value = format!("VALUE {key} 0 3\r\nold\r\nEND\r\n");
    eventually("it is asked again", || client.list(&format!("get {key}")) == value);
    client.asks(format!("set {key} 0 0 3\r\nyet\r\n"), "STORED\r\n");
    client.asks(format!("get {key}\r\n"), format!("VALUE {key} 0 3\r\nyet\r\nEND\r\n"));
}

#[test]
fn a_home_that_is_stopped_on_another_machine_is_a_miss() {
    let caches = Caches::over_network(8);
    is_silent_for_a_while(&caches, || caches.signal(1, Signal::STOP), || caches.signal(1, Signal::CONT));
}

#[test]
fn so_is_one_that_the_network_does_not_reach() {
    let caches = Caches::over_network(8);
    is_silent_for_a_while(&caches, || caches.cut(1, true), || caches.cut(1, false));
}

#[test]
fn a_home_that_was_killed_on_another_machine_comes_back_empty() {
    let mut caches = Caches::over_network(8);
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
    let mut caches = Caches::over_network(8);
    let key = caches.key_of(1);
    let mut client = caches.client(0);
    for (secret, memory_mb, problem) in [
        ("what nobody here knows", 8, "the secrets differ: all machines of a cluster need the same one"),
        (SECRET, 9, "its cluster file has other sites, nodes or caches: use the same file on all machines"),
    ] {
        caches.running[1].take().unwrap().end().succeeded();
        let other = caches.part_of(1, secret, |peers| peers[1].memory_mb = memory_mb);
        let first = caches.running[0].as_ref().unwrap();
        eventually("the first says why", || first.err().contains(problem));
        eventually("and the other", || other.err().contains(problem));
        assert!(!(first.err() + &other.err()).contains("knows"), "secrets are not shown");
        client.asks(format!("get {key}\r\n"), "END\r\n");
        let refused = "SERVER_ERROR cache c2 is not reached: nothing was changed\r\n";
        client.asks(format!("set {key} 0 0 3\r\nnew\r\n"), refused);
        other.end().succeeded();
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
    assert_eq!(answer[..12], *b"SIDELBYT\x01\0\0\0", "its own version");
    assert_eq!(said(&[]), b"", "who says nothing is not kept");
    client.asks(format!("get {key}\r\n"), format!("VALUE {key} 0 3\r\nnew\r\nEND\r\n"));
}

#[test]
fn a_cache_whose_memory_others_cannot_find_ends() {
    let mut caches = Caches::start(8);
    std::fs::remove_file(caches.cluster.run_dir().join("c2.items.region")).unwrap();
    let ended = caches.running[1].take().unwrap().finish();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("the region with its items was removed"), "{ended:?}");
    caches.restart(1);
    let key = caches.key_of(1);
    let mut client = caches.client(0);
    eventually("it takes changes again", || {
        client.say(format!("set {key} 0 0 1\r\nx\r\n"));
        client.line() == "STORED\r\n"
    });
}

#[test]
fn a_file_of_caches_alone_has_nothing_else_to_run() {
    let mut cluster = Cluster::new(&[]);
    cluster.file.edges.clear();
    cluster.file.cache.peers = vec![CachePeer::new("c1", cluster.at(11211))];
    let config = cluster.config();
    let shown = config.to_str().unwrap();
    for command in ["up", "status"] {
        let refused = run([command, "--config", shown]).refused();
        let expected = format!(
            "{shown} has only caches: start each by sidelong cache NAME --config {shown}, and ask it for its stats"
        );
        assert_eq!(refused, expected);
    }
    let checked = run(["config", "check", shown]).succeeded();
    assert!(checked.contains("1 cache"), "{checked}");
    let refused = run(["node", "n1", "--config", shown]).refused();
    assert!(refused.contains("has no node \"n1\""), "{refused}");
}

/// Of each key, what is known of the values that were stored: versions that rise.
#[derive(Default)]
struct History {
    /// The last that a set was begun with.
    begun: AtomicU64,
    /// The last that a cache has acknowledged, or that was read.
    known: AtomicU64,
}

/// A value that says whose it is, which, and whether it is whole.
fn value(key: usize, version: u64) -> String {
    let word = format!("{key}:{version};");
    // Versions have lengths of all sizes of places.
    word.repeat(1 + (version % 97) as usize * 3)
}

/// Writers and readers, each through all caches in turn, as registers of one writer: a read returns a value that was
/// begun when it ended, and none older than what was known when it began. Each miss is allowed.
fn check(caches: &Caches, versions: u64, meanwhile: impl FnOnce()) {
    const KEYS: usize = 4;
    let histories: [History; KEYS] = Default::default();
    let is_over = AtomicBool::new(false);
    let hits = AtomicU64::new(0);
    let connect = || caches.at.iter().map(|at| Client::connect(*at)).collect::<Vec<_>>();
    thread::scope(|scope| {
        let (histories, is_over, hits) = (&histories, &is_over, &hits);
        let writer = |key: usize| {
            move || {
                let mut clients = connect();
                for version in 1..=versions {
                    let history = &histories[key];
                    history.begun.store(version, Ordering::SeqCst);
                    let value = value(key, version);
                    let number = (version as usize + key) % clients.len();
                    let command = format!("set key{key} 0 0 {}\r\n{value}\r\n", value.len());
                    if clients[number].try_ask(&command).is_some_and(|answer| answer == "STORED\r\n") {
                        history.known.fetch_max(version, Ordering::SeqCst);
                    } else {
                        clients[number].reconnect(caches.at[number]);
                    }
                }
            }
        };
        let reader = |first: usize| {
            move || {
                let mut clients = connect();
                for turn in first.. {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let (key, number) = (turn % KEYS, turn / KEYS % clients.len());
                    let history = &histories[key];
                    let known = history.known.load(Ordering::SeqCst);
                    let Some(found) = clients[number].try_get(&format!("key{key}")) else {
                        clients[number].reconnect(caches.at[number]);
                        continue;
                    };
                    let Some(found) = found else { continue };
                    let version = found.split([':', ';']).nth(1).and_then(|version| version.parse().ok());
                    let version: u64 = version.unwrap_or_else(|| panic!("not a value: {found}"));
                    assert_eq!(found, value(key, version), "a value that was never stored");
                    let begun = history.begun.load(Ordering::SeqCst);
                    assert!(version >= known, "version {version} of key {key} after {known} was known");
                    assert!(version <= begun, "version {version} of key {key} before it was stored");
                    history.known.fetch_max(version, Ordering::SeqCst);
                    hits.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        let readers: Vec<_> = (0..2).map(|first| scope.spawn(reader(first))).collect();
        let writers: Vec<_> = (0..KEYS).map(|key| scope.spawn(writer(key))).collect();
        meanwhile();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        eventually("reads found something as often as was written", || {
            hits.load(Ordering::SeqCst) > versions || readers.iter().any(|reader| reader.is_finished())
        });
        is_over.store(true, Ordering::SeqCst);
        for ended in written.into_iter().chain(readers.into_iter().map(|reader| reader.join())) {
            ended.unwrap();
        }
    });
    assert!(hits.load(Ordering::SeqCst) > versions, "{hits:?} reads found something");
}

#[test]
fn no_read_is_older_than_what_was_known_before() {
    check(&Caches::start(8), 1_500, || {});
    check(&Caches::over_network(8), 500, || {});
}

#[test]
fn nor_while_caches_hang_die_and_come_back() {
    let mut caches = Caches::start(8);
    let mut running: Vec<_> = caches.running.iter_mut().map(Option::take).collect();
    let caches = &caches;
    check(caches, 1_500, || {
        for (number, place) in running.iter_mut().enumerate() {
            let one = place.take().unwrap();
            one.signal(Signal::STOP);
            thread::sleep(Duration::from_millis(200));
            one.signal(Signal::CONT);
            one.kill();
            *place = Some(caches.part(number));
        }
    });
    for one in running.into_iter().flatten() {
        one.end().succeeded();
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
    fn one_that_offers_no_memory_is_asked_and_asks() {
        if !has_rdma() {
            return;
        }
        let mut caches = Caches::over_verbs(8);
        caches.running[2].take().unwrap().end().succeeded();
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
