//! `sidelong cache` as memcached's clients and its operator use it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};
use sidelong_config::{CachePeer, Eviction};

use crate::support::memcached::{self, Client};
use crate::support::{Cluster, Done, Running, eventually, may_open, run, skipped};

/// A cache at a port of its own.
struct Cache {
    process: Running,
    address: SocketAddr,
}

impl Cache {
    fn start(arguments: &[&str]) -> Self {
        Cache::begun(Running::start(["cache", "-p", "0"].iter().chain(arguments)))
    }

    fn begun(mut process: Running) -> Self {
        let mut address = None;
        eventually("the cache says where it is", || {
            assert!(process.is_running(), "{}", process.err());
            let out = process.out();
            address = out.trim_end().rsplit(' ').next().and_then(|address| address.parse().ok());
            out.ends_with('\n')
        });
        Cache { process, address: address.unwrap() }
    }

    fn client(&self) -> Client {
        Client::of(TcpStream::connect(self.address).unwrap())
    }

    /// What the kernel says of its memory, in KB.
    fn memory(&self, what: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid())).unwrap();
        let row = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        row.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// The CPU time of each thread of a process that serves clients, in ns; `None` where the kernel does not tell.
fn thread_times(process: &Running) -> Option<Vec<u64>> {
    let pid = process.pid().as_raw_nonzero();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().map(|task| task.path());
    let serves = |task: &PathBuf| {
        let is_first = task.ends_with(pid.to_string());
        is_first || std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "clients\n")
    };
    let time = |task: PathBuf| {
        let told = std::fs::read_to_string(task.join("schedstat")).ok()?;
        told.split(' ').next()?.parse().ok()
    };
    tasks.filter(serves).map(time).collect()
}

#[test]
fn threads_have_one_store_and_each_its_part_of_the_clients() {
    const THREADS: usize = 4;
    const CLIENTS: usize = 4 * THREADS;
    const COMMANDS: usize = 500;
    let cache = Cache::start(&["-t", &THREADS.to_string()]);
    let mut first = cache.client();
    first.asks("set counter 0 0 1\r\n0\r\n", "STORED\r\n");
    let mut before = None;
    eventually("all threads have begun", || {
        before = thread_times(&cache.process);
        before.as_ref().is_none_or(|times| times.len() == THREADS)
    });
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| cache.client()).collect();
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                for _ in 0..COMMANDS {
                    let number = |text: String| text.trim().parse::<usize>().unwrap();
                    let counted = client.try_ask("incr counter 1\r\n").map(number).unwrap();
                    // Others have counted on.
                    let found = client.try_get("counter").unwrap().map(number).unwrap();
                    assert!(found >= counted && found <= CLIENTS * COMMANDS, "{found} after {counted}");
                }
            });
        }
    });
    first.asks("incr counter 0\r\n", format!("{}\r\n", CLIENTS * COMMANDS));
    // Whichever is asked, it tells of all.
    for client in &mut clients[..THREADS] {
        assert_eq!(client.stat("incr_hits"), CLIENTS as u64 * COMMANDS as u64 + 1);
        assert_eq!(client.stat("curr_connections"), CLIENTS as u64 + 1);
        assert_eq!(client.stat("threads"), THREADS as u64);
    }
    match (before, thread_times(&cache.process)) {
        (Some(before), Some(after)) => {
            let times: Vec<_> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
            let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
            // One that wakes up for each command takes some times as long as one that finds several; an idle one next to nothing.
            assert!(times.len() == THREADS && least * 20 > *most, "as many clients each: {times:?}");
        }
        _ => skipped("the time of each thread: the kernel does not tell it"),
    }
    // When one serves a client no more, it is gone for all.
    clients.truncate(1);
    eventually("the others are gone", || clients[0].stat("curr_connections") == 2);
    clients[0].asks("flush_all\r\n", "OK\r\n");
    first.asks("get counter\r\n", "END\r\n");
    cache.process.end().succeeded();
}

#[test]
fn who_does_not_read_the_answers_holds_up_nobody_and_loses_none() {
    const ASKED: usize = 400;
    let cache = Cache::start(&[]);
    let large = vec![b'x'; 1_000_000];
    let mut writer = cache.client();
    writer.say("set large 0 0 1000000\r\n");
    writer.say(&large);
    writer.asks("\r\n", "STORED\r\n");

    // 400 MB of answers are more than any buffer between the two has room for.
    let mut slow = cache.client();
    slow.say("get large\r\n".repeat(ASKED));
    for _ in 0..100 {
        writer.asks("set small 0 0 2\r\nhi\r\nget small\r\n", "STORED\r\nVALUE small 0 2\r\nhi\r\nEND\r\n");
    }
    let peak = cache.memory("VmHWM:");
    assert!(peak < 100 << 10, "{peak} KB");
    let mut answer = b"VALUE large 0 1000000\r\n".to_vec();
    answer.extend(&large);
    answer.extend(b"\r\nEND\r\n");
    for _ in 0..ASKED {
        slow.hears(&answer);
    }
    slow.asks("mn\r\n", "MN\r\n");
}

#[test]
fn what_does_not_end_takes_no_memory_and_holds_up_nobody() {
    const BYTES: usize = 100 << 20;
    let cache = Cache::start(&[]);
    let mut other = cache.client();
    other.asks("set small 0 0 2\r\nhi\r\n", "STORED\r\n");
    let before = cache.memory("VmHWM:");
    let mut found = || other.asks("get small\r\n", "VALUE small 0 2\r\nhi\r\nEND\r\n");
    // Whether all is written.
    let mut write = |client: &mut Client, part: &[u8]| {
        (0..BYTES / part.len()).all(|turn| {
            if turn % 10 == 0 {
                found();
            }
            client.stream.write_all(part).is_ok()
        })
    };
    // A line of one word, a packet of 4 GB, a line of keys, and a value that is too large.
    let mut word = cache.client();
    assert!(write(&mut word, &[b'x'; 1 << 20]));
    word.asks("\r\nmn\r\n", "ERROR\r\nMN\r\n");
    let mut packet = cache.client();
    packet.say([&[0x80, 1, 0, 1, 8, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..], &[0; 12]].concat());
    write(&mut packet, &[b'x'; 1 << 20]);
    let mut keys = cache.client();
    keys.say("get");
    assert!(write(&mut keys, &b" absent-key".repeat(100_000)));
    keys.asks("\r\n", "END\r\n");
    let mut value = cache.client();
    value.say(format!("set large 0 0 {BYTES}\r\n"));
    assert!(write(&mut value, &[b'x'; 1 << 20]));
    value.asks("\r\nmn\r\n", "SERVER_ERROR object too large for cache\r\nMN\r\n");
    let taken = cache.memory("VmHWM:") - before;
    // A sixth of one of them. What the kernel reads in of the program counts, too.
    assert!(taken < 16 << 10, "{taken} KB");
}

#[test]
fn without_descriptors_clients_wait_for_their_turn() {
    let cache = Cache::start(&[]);
    let limit = |descriptors: u64| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let both = Rlimit { current: Some(descriptors), maximum };
        prlimit(Some(cache.process.pid()), Resource::Nofile, both).unwrap();
    };
    limit(32);
    let mut clients: Vec<Client> = (0..40).map(|_| cache.client()).collect();
    clients.iter_mut().for_each(|client| client.say("mn\r\n"));
    let [first, .., last] = &mut clients[..] else { unreachable!() };
    first.hears("MN\r\n");
    eventually("accepting has stopped", || first.stat("listen_disabled_num") > 0);
    limit(100);
    // Nobody leaves, and this client is never quiet.
    eventually("it is tried again", || first.stat("curr_connections") == 40);
    last.hears("MN\r\n");
}

#[test]
fn ten_thousand_clients_with_half_a_command_take_little() {
    const CLIENTS: usize = 10_000;
    if !may_open(CLIENTS as u64 + 1000) {
        return;
    }
    let cache = Cache::start(&["-c", "10010"]);
    let memory = || cache.memory("RssAnon:");
    let mut asking = cache.client();
    asking.asks("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let before = memory();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = cache.client();
        client.say("get ");
        clients.push(client);
    }
    eventually("all are there", || asking.stat("curr_connections") == 1 + CLIENTS as u64);
    let each = (memory() - before) * 1024 / CLIENTS;
    assert!(each < 2048, "{each} bytes for each");
    for client in clients.iter_mut().step_by(100) {
        client.asks("a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
    }
}

#[test]
fn a_unix_socket_is_its_owners_and_goes_with_its_cache() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.sock");
    let start = |more: &[&str]| {
        let arguments = ["cache", "-s", path.to_str().unwrap()];
        Running::start(arguments.iter().chain(more))
    };
    let ask = || {
        let mut stream = UnixStream::connect(&path).ok()?;
        stream.write_all(b"mn\r\n").ok()?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).ok()?;
        Some(answer)
    };
    let first = start(&[]);
    eventually("it answers", || ask() == Some(*b"MN\r\n"));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    // A second one does not take the socket of the first.
    let refused = start(&[]).finish().refused();
    assert!(refused.contains("cache.sock"), "{refused}");
    first.kill();
    assert!(path.exists());
    let second = start(&["-a", "770"]);
    eventually("the next one answers there", || ask() == Some(*b"MN\r\n"));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o770);
    second.signal(Signal::TERM);
    second.finish().succeeded();
    assert!(!path.exists());
}

/// The tests that gomemcache has for the memcached that it starts at a Unix socket. That of TLS has a PKCS#8 key which its file
/// calls PKCS#1.
#[test]
fn gomemcache_takes_it_for_memcached() {
    let Some(tests) = memcached::peer("bin/gomemcache.test") else {
        return skipped("gomemcache's own tests: .ci/run builds them where there is Go");
    };
    let directory = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/memcached.sh");
    std::os::unix::fs::symlink(script, directory.path().join("memcached")).unwrap();
    let mut said = String::new();
    // They wait for a second until it is there, and let items live for two.
    let passes = |_| {
        let mut command = Command::new(&tests);
        command.args(["-test.v", "-test.run=^TestUnixSocket$"]);
        command.env("PATH", directory.path()).env("SIDELONG", env!("CARGO_BIN_EXE_sidelong"));
        let tests = Running::start_command(command);
        let socket = format!("/tmp/test-gomemcache-{}.sock", tests.pid());
        let done = tests.finish();
        // They kill it.
        _ = std::fs::remove_file(socket);
        said = done.out;
        done.code == Some(0) && said.contains("--- PASS: TestUnixSocket")
    };
    assert!((0..3).any(passes), "{said}");
}

#[test]
fn with_users_of_sasl_nobody_else_gets_in() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    std::fs::write(&users, "ann:secret\n").unwrap();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidelong"));
        command.args(["cache", "-p", "0", "-S"]).env_remove("MEMCACHED_SASL_PWDB");
        command
    };
    let mut command = start();
    command.env("MEMCACHED_SASL_PWDB", &users);
    let cache = Cache::begun(Running::start_command(command));
    memcached::clients_by("sasl", cache.address, None);
    let refused = Running::start_command(start()).finish().refused();
    assert!(refused.contains("MEMCACHED_SASL_PWDB"), "{refused}");
}

#[test]
fn a_cluster_file_says_what_it_is() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    let (c1, c2) = (cluster.at(11211), cluster.at(11212));
    cluster.file.cache.eviction = Eviction::S3Fifo;
    cluster.file.cache.item_bytes_max = 4 << 20;
    cluster.file.cache.peers = vec![
        CachePeer::new("c1", c1),
        CachePeer { memory_mb: 9, clients_max: 3, ..CachePeer::new("c2", c2) },
    ];
    let caches = [cluster.part("cache", "c1"), cluster.part("cache", "c2")];
    for (cache, listen, expected) in [
        (&caches[0], c1, ["maxbytes 67108864", "maxconns 1024", "tcpport 11211"]),
        (&caches[1], c2, ["maxbytes 9437184", "maxconns 3", "tcpport 11212"]),
    ] {
        eventually("it says where it is", || cache.out().ends_with(&format!("MiB of cache at {listen}\n")));
        let settings = Client::of(TcpStream::connect(listen).unwrap()).list("stats settings");
        for row in expected.iter().chain(&["item_size_max 4194304", "eviction_rule s3-fifo", "evictions on"])
        {
            assert!(settings.contains(&format!("STAT {row}\r\n")), "{row}: {settings}");
        }
    }

    let config = cluster.config();
    let config = config.to_str().unwrap();
    let refused = run(["cache", "c3", "--config", config]).refused();
    assert!(refused.ends_with("the cluster file has no cache \"c3\"; it has c1, c2"), "{refused}");
    let taken = run(["cache", "c1", "--config", config]).refused();
    assert!(taken.contains("c1.items.region is exposed by a process that is still alive"), "{taken}");
    let usage: [(&[&str], &str); 4] = [
        (&["c1", "--config", config, "-m", "64"], "the argument '--config <FILE>' cannot be used with"),
        (&["-v", "c1", "--config", config], "the argument '--config <FILE>' cannot be used with"),
        (&["c1"], "--config <FILE>"),
        (&["--config", config], "NAME"),
    ];
    for (arguments, why) in usage {
        let Done { code, err, .. } = run(["cache"].iter().chain(arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {err}");
        assert!(err.contains(why), "{arguments:?}: {err}");
    }
    for cache in caches {
        cache.end().succeeded();
    }
}

#[test]
fn what_it_cannot_do_is_refused_at_the_start() {
    let taken = Cache::start(&[]);
    let port = taken.address.port().to_string();
    let refused: &[(&[&str], &str)] = &[
        (&["-m", "4"], "8 to 65536 MiB"),
        (&["-m", "64", "-I", "64m"], "need -m 128"),
        (&["-I", "10"], "1k to 1024m"),
        (&["-U", "11211"], "UDP is not served"),
        (&["-d"], "foreground"),
        (&["-t", "65"], "1..=64"),
        (&["-l", "cache.example"], "IP address"),
        (&["-p", &port], "in use"),
        (&["-Y", "/nowhere/users"], "/nowhere/users"),
        (&["-a", "999", "-s", "/tmp/s"], "octal"),
        (&["-Z"], "-o"),
        (&["-o", "ssl_key=/nowhere/key"], "need -Z"),
        (&["-Z", "-o", "ssl_key=/nowhere/key"], "ssl_chain_cert=FILE"),
        (&["-Z", "-o", "ssl_chain_cert=/nowhere/certificate"], "/nowhere/certificate"),
        (&["-Z", "-o", "ssl_chain_cert=/nowhere/a,ssl_verify_mode=2"], "ssl_ca_cert=FILE"),
        (&["-o", "slab_chunk_max=20"], "ssl_chain_cert"),
        (&["-S", "-Y", "/nowhere/users"], "cannot be used with"),
    ];
    for (arguments, why) in refused {
        let Done { code, err, .. } = run(["cache"].iter().chain(*arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {err}");
        assert!(err.contains(why), "{arguments:?}: {err}");
    }
}

#[test]
fn what_the_machine_does_not_have_is_refused_at_the_start() {
    for (limit, arguments, why) in [
        ("ulimit -v 2000000", "-m 4096", "-m 4096"),
        ("ulimit -n 200", "-c 1000", "1256 descriptors are needed"),
    ] {
        let mut command = Command::new("sh");
        let script = format!("{limit} && exec \"$0\" cache -p 0 {arguments}");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_sidelong")]);
        let refused = Running::start_command(command).finish().refused();
        assert!(refused.contains(why), "{refused}");
    }
}
