//! Caches of a cluster that serve out of each other's memory, or ask each other over a network: any cache, any key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sidelong_testing::caches::{By, Caches};
use sidelong_testing::memcached::{self, Client};
use sidelong_testing::registers::check;
use sidelong_testing::{SetOnDrop, eventually};

#[test]
fn any_cache_answers_for_any_key() {
    answer_for_any_key(&Caches::start(By::Thread, 8));
}

#[test]
fn any_cache_answers_for_any_key_over_a_network() {
    answer_for_any_key(&Caches::over_network(By::Thread, 8));
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
    let caches = Caches::start(By::Thread, 64);
    for at in &caches.at {
        memcached::unmodified_clients(*at);
    }
}

#[test]
fn memcached_clients_use_any_of_them_over_a_network() {
    memcached::unmodified_clients(Caches::over_network(By::Thread, 64).at[0]);
}

#[test]
fn a_hot_key_costs_its_home_what_it_would_with_one_reader() {
    const FRESH: Duration = Duration::from_millis(50);
    const GETS: u64 = 20_000;
    let caches = Caches::with_copies(By::Thread, 16, FRESH);
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
    one_is_asked(&Caches::start(By::Thread, 8));
}

#[test]
fn clients_that_all_ask_one_cache_have_the_memory_of_all_over_a_network() {
    one_is_asked(&Caches::over_network(By::Thread, 8));
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
            // A home that does not get a CPU for a second is given up for a moment: its items are missed, and are still there.
            scope.spawn(move || {
                (0..ITEMS).for_each(|key| eventually("it is found", || found(&mut client, key)))
            });
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
fn a_cache_whose_memory_others_cannot_find_ends() {
    let mut caches = Caches::start(By::Thread, 8);
    std::fs::remove_file(caches.cluster.run_dir().join("c2.items.region")).unwrap();
    let ended = caches.running[1].take().unwrap().failed();
    assert!(ended.contains("the region with its items was removed"), "{ended}");
    caches.restart(1);
    let key = caches.key_of(1);
    let mut client = caches.client(0);
    eventually("it takes changes again", || {
        client.say(format!("set {key} 0 0 1\r\nx\r\n"));
        client.line() == "STORED\r\n"
    });
}

#[test]
fn no_read_is_older_than_what_was_known_before() {
    check(&Caches::start(By::Thread, 8), 1_500, || {});
    check(&Caches::over_network(By::Thread, 8), 500, || {});
}

#[test]
fn nor_while_caches_come_and_go() {
    let mut caches = Caches::start(By::Thread, 8);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..3 {
            let (mut client, is_over) = (caches.client(number), &is_over);
            scope.spawn(move || {
                for turn in 0_u64.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = turn % 64;
                    let answer = client.try_ask(&format!("set busy{key} 0 0 1\r\nx\r\n"));
                    assert_eq!(answer.as_deref(), Some("STORED\r\n"), "no command fails");
                    let answer = client.try_ask(&format!("delete busy{}\r\n", key / 2));
                    assert!(matches!(answer.as_deref(), Some("DELETED\r\n" | "NOT_FOUND\r\n")), "{answer:?}");
                }
            });
        }
        let _ends = SetOnDrop(&is_over);
        check(&caches, 3_000, || {
            (0..5).for_each(|turn| caches.with_fourth(turn * Duration::from_millis(20), |_| {}))
        });
    });
    // One that has died, and whose keys the others take over, takes its share when it is back.
    let key = caches.key_of(2);
    caches.running[2].take().unwrap().end();
    let mut client = caches.client(0);
    let set = format!("set {key} 0 0 1\r\nx\r\n");
    assert!(client.try_ask(&set).unwrap().starts_with("SERVER_ERROR cache c3"));
    caches.lose(2);
    client.asks(&set, "STORED\r\n");
    assert_eq!(client.addresses().1, caches.at[..2]);
    caches.restart(2);
    caches.await_homes(3);
    client.asks(format!("get {key}\r\n"), "END\r\n");
    caches.await_all();
}

#[test]
fn keys_that_change_homes_are_missed_once() {
    const KEYS: usize = 300;
    let caches = Caches::start(By::Thread, 8);
    let mut clients = caches.clients();
    let name = |key: usize| format!("kept{key}");
    let found = |clients: &mut [Client]| {
        let all: Vec<_> = (0..KEYS).map(name).collect();
        let found = clients.iter_mut().map(|client| client.list(&format!("get {}", all.join(" "))));
        let found: Vec<_> = found.map(|found| found.matches("VALUE ").count()).collect();
        assert!(found.iter().all(|count| *count == found[0]), "all caches say the same: {found:?}");
        found[0]
    };
    let set = |client: &mut Client, key: usize| {
        client.asks(format!("set {} 0 0 1\r\nx\r\n", name(key)), "STORED\r\n");
    };
    (0..KEYS).for_each(|key| set(&mut clients[key % 3], key));
    let before = clients[0].try_gets(&name(0)).unwrap().unwrap().1;
    caches.with_fourth(Duration::ZERO, |at| {
        let [a, b, c] = caches.clients();
        let mut clients = [a, b, c, Client::connect(at)];
        let all = [&caches.at[..], &[at]].concat();
        assert_eq!(clients[3].addresses().1, all);
        memcached::discovering_client(&all);
        let legacy = clients[3].list("get AmazonElastiCache:cluster");
        assert!(
            legacy.starts_with("VALUE AmazonElastiCache:cluster 0 ")
                && legacy.contains(&format!("|{}", at.port()))
        );
        let stayed = found(&mut clients);
        assert!(
            (KEYS * 5 / 8..KEYS * 7 / 8).contains(&stayed),
            "a quarter has moved: {stayed} of {KEYS} are there"
        );
        (0..KEYS).for_each(|key| set(&mut clients[key % 4], key));
        assert_eq!(found(&mut clients), KEYS);
        assert!(clients[3].stat("curr_items") > KEYS as u64 / 8, "it holds its share");
    });
    let stayed = found(&mut clients);
    assert!(
        (KEYS * 5 / 8..KEYS * 7 / 8).contains(&stayed),
        "its share is gone: {stayed} of {KEYS} are there"
    );
    (0..KEYS).for_each(|key| set(&mut clients[key % 3], key));
    assert_eq!(found(&mut clients), KEYS);
    // What was read of a value before is not the number of another one since.
    let stale = format!("cas {} 0 0 1 {before}\r\ny\r\n", name(0));
    clients[1].asks(stale, "EXISTS\r\n");
}

#[test]
fn a_home_that_the_network_does_not_reach_is_a_miss() {
    let caches = Caches::over_network(By::Thread, 8);
    caches.is_missed_while_silent(|| caches.cut(1, true), || caches.cut(1, false));
}
