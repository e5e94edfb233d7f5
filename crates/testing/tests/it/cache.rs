//! A cache by itself, as memcached's clients use it.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sidelong_app::cache::{Place, Setup, TlsFiles};
use sidelong_cache::Login;
use sidelong_policy::cache::store::Eviction;
use sidelong_testing::memcached::{self, Client};
use sidelong_testing::{Here, Running, eventually, metrics, skipped};

/// A cache at a port of its own.
struct Cache {
    here: Here,
    address: SocketAddr,
}

impl Cache {
    fn start(change: impl FnOnce(&mut Setup)) -> Self {
        Cache::try_start(change).unwrap_or_else(|why| panic!("{why}"))
    }

    fn try_start(change: impl FnOnce(&mut Setup)) -> Result<Self, String> {
        let mut setup = Setup {
            memory_mib: 64,
            item_bytes_max: 1 << 20,
            eviction: Eviction::Sieve,
            evicts: true,
            threads: 1,
            clients_max: 1024,
            idle_max_s: None,
            place: Place::Tcp(vec![([127, 0, 0, 1], 0).into()]),
            tls: None,
            unix_mask: 0o700,
            tcp_port: 0,
            users: None,
            admin: None,
            verbosity: 0,
            member: None,
        };
        change(&mut setup);
        let (here, at) = Here::cache(setup)?;
        Ok(Cache { here, address: at[0].parse().unwrap() })
    }

    fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

#[test]
fn clients_use_it_as_they_use_memcached() {
    for threads in [1, 4] {
        let cache = Cache::start(|setup| setup.threads = threads);
        memcached::unmodified_clients(cache.address);
        cache.here.end();
    }
}

/// What Prometheus's exporter for memcached tells, after each command that it counts has had each of its outcomes.
#[test]
fn prometheus_gets_what_it_counts() {
    let Some(program) = memcached::peer("bin/memcached_exporter") else {
        return skipped("memcached_exporter: .ci/run builds it where there is Go");
    };
    let cache = Cache::start(|_| ());
    let mut client = cache.client();
    client.asks("set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\nadd c 0 0 1\r\n1\r\n", "STORED\r\n".repeat(3));
    client.asks("get a b none\r\n", "VALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n1\r\nEND\r\n");
    let (_, unique) = client.try_gets("a").unwrap().unwrap();
    client.asks(format!("cas a 0 0 1 {unique}\r\n2\r\n"), "STORED\r\n");
    client.asks(format!("cas a 0 0 1 {unique}\r\n3\r\ncas none 0 0 1 1\r\n4\r\n"), "EXISTS\r\nNOT_FOUND\r\n");
    client.asks(
        "incr a 5\r\nincr none 5\r\ndecr a 1\r\ndecr none 1\r\n",
        "7\r\nNOT_FOUND\r\n6\r\nNOT_FOUND\r\n",
    );
    client.asks("touch a 1000\r\ntouch none 1\r\n", "TOUCHED\r\nNOT_FOUND\r\n");
    client.asks("delete b\r\ndelete b\r\nflush_all 1000\r\n", "DELETED\r\nNOT_FOUND\r\nOK\r\n");

    let mut command = Command::new(program);
    command.arg(format!("--memcached.address={}", cache.address)).arg("--memcached.timeout=120s");
    command.arg("--web.listen-address=127.0.0.1:0");
    let mut exporter = Running::start_command(command);
    let mut address = None;
    eventually("it says where it listens", || {
        let said = exporter.err();
        assert!(exporter.is_running(), "{said}");
        let listening = said.lines().find_map(|line| line.split_once("\"Listening on\" address="));
        address = listening.and_then(|(_, address)| address.parse().ok());
        address.is_some()
    });
    let told = metrics(address.unwrap());
    for (name, value) in [
        ("up", 1.0),
        (r#"commands_total{command="get",status="hit"}"#, 3.0),
        (r#"commands_total{command="get",status="miss"}"#, 1.0),
        (r#"commands_total{command="set",status="hit"}"#, 3.0),
        (r#"commands_total{command="cas",status="hit"}"#, 1.0),
        (r#"commands_total{command="cas",status="badval"}"#, 1.0),
        (r#"commands_total{command="cas",status="miss"}"#, 1.0),
        (r#"commands_total{command="incr",status="hit"}"#, 1.0),
        (r#"commands_total{command="incr",status="miss"}"#, 1.0),
        (r#"commands_total{command="decr",status="hit"}"#, 1.0),
        (r#"commands_total{command="decr",status="miss"}"#, 1.0),
        (r#"commands_total{command="touch",status="hit"}"#, 1.0),
        (r#"commands_total{command="touch",status="miss"}"#, 1.0),
        (r#"commands_total{command="delete",status="hit"}"#, 1.0),
        (r#"commands_total{command="delete",status="miss"}"#, 1.0),
        (r#"commands_total{command="flush",status="hit"}"#, 1.0),
        ("accepting_connections", 1.0),
        ("max_connections", 1024.0),
        ("limit_bytes", f64::from(64 << 20)),
        ("current_items", 2.0),
        (r#"slab_current_items{slab="1"}"#, 2.0),
        (r#"slab_chunks_used{slab="1"}"#, 2.0),
    ] {
        assert_eq!(told.get(&format!("memcached_{name}")), Some(&value), "{name} in {told:#?}");
    }
    // It logs what it cannot parse.
    assert!(!exporter.err().contains("level=error"), "{}", exporter.err());
}

#[test]
fn a_value_that_comes_in_parts_is_stored_whole() {
    let cache = Cache::start(|_| ());
    let mut client = cache.client();
    let value: Vec<u8> = (0..300_000_u32).map(|byte| byte as u8).collect();
    client.say("set parts 7 0 300000\r\n");
    for part in value.chunks(7_919) {
        client.say(part);
    }
    client.asks("\r\n", "STORED\r\n");
    let mut answer = b"VALUE parts 7 300000\r\n".to_vec();
    answer.extend(&value);
    answer.extend(b"\r\nEND\r\n");
    client.asks("get parts\r\n", &answer);
}

#[test]
fn more_clients_than_it_takes_are_told_so() {
    for threads in [1, 3] {
        let cache = Cache::start(|setup| (setup.clients_max, setup.threads) = (10, threads));
        let mut clients: Vec<Client> = (0..10).map(|_| cache.client()).collect();
        clients.iter_mut().for_each(|client| client.asks("mn\r\n", "MN\r\n"));
        cache.client().hears("ERROR Too many open connections\r\n");
        assert_eq!(["curr_connections", "rejected_connections"].map(|name| clients[0].stat(name)), [10, 1]);
        drop(clients.pop());
        eventually("there is a place", || clients[0].stat("curr_connections") == 9);
        cache.client().asks("mn\r\n", "MN\r\n");
    }
}

#[test]
fn each_connection_is_shown_until_it_ends() {
    for threads in [1, 2] {
        let cache = Cache::start(|setup| setup.threads = threads);
        let mut clients = [cache.client(), cache.client()];
        clients.iter_mut().for_each(|client| client.asks("mn\r\n", "MN\r\n"));
        let [asking, other] = &mut clients;
        let shown = asking.list("stats conns");
        let of = |client: &Client, state: &str| {
            let address = client.stream.local_addr().unwrap();
            let row = shown.lines().find_map(|line| line.strip_suffix(&format!(":addr tcp:{address}")));
            let number = row.unwrap_or_else(|| panic!("{address} is not in {shown}"));
            let at = client.stream.peer_addr().unwrap();
            assert!(shown.contains(&format!("{number}:listen_addr tcp:{at}\r\n")), "{shown}");
            assert!(shown.contains(&format!("{number}:state {state}\r\n")), "{shown}");
            assert!(shown.contains(&format!("{number}:secs_since_last_cmd ")), "{shown}");
        };
        of(asking, "conn_parse_cmd");
        of(other, "conn_read");
        assert!(shown.contains(":state conn_listening\r\n"), "{shown}");
        let [mut asking, other] = clients;
        let gone = format!(" tcp:{}\r\n", other.stream.local_addr().unwrap());
        drop(other);
        eventually("it is not shown any more", || !asking.list("stats conns").contains(&gone));
    }
}

#[test]
fn clients_that_are_silent_for_too_long_are_let_go() {
    let cache = Cache::start(|setup| (setup.idle_max_s, setup.threads) = (Some(3), 2));
    let mut silent: Vec<Client> = (0..4).map(|_| cache.client()).collect();
    let mut asking = cache.client();
    eventually("they are let go", || asking.stat("idle_kicks") == 4);
    assert_eq!(asking.stat("curr_connections"), 1);
    assert!(silent.iter_mut().all(|client| client.stream.read(&mut [0; 8]).unwrap() == 0));
}

#[test]
fn a_full_cache_evicts_or_refuses() {
    let value = vec![b'v'; 100_000];
    let store = |client: &mut Client, key: usize| {
        client.say(format!("set key{key} 0 0 100000\r\n"));
        client.say(&value);
        client.say("\r\n");
    };
    let evicting = Cache::start(|setup| setup.memory_mib = 16);
    let mut client = evicting.client();
    for key in 0..400 {
        store(&mut client, key);
        client.hears("STORED\r\n");
    }
    assert!(client.stat("evictions") > 200);

    let refusing = Cache::start(|setup| (setup.memory_mib, setup.evicts) = (16, false));
    let mut client = refusing.client();
    for key in 0..100 {
        store(&mut client, key);
        client.hears("STORED\r\n");
    }
    for key in 100..400 {
        store(&mut client, key);
    }
    client.say("mn\r\n");
    let mut all = Vec::new();
    while !all.ends_with(b"MN\r\n") {
        let mut some = [0; 4096];
        let len = client.stream.read(&mut some).unwrap();
        all.extend(&some[..len]);
    }
    assert!(String::from_utf8(all).unwrap().contains("SERVER_ERROR out of memory storing object\r\n"));
    client.asks("touch key0 0\r\n", "TOUCHED\r\n");
}

#[test]
fn with_users_nobody_else_gets_in() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    std::fs::write(&users, "ann:secret\n").unwrap();
    let with_users = |setup: &mut Setup| setup.users = Some((users.clone(), Login::Text));
    let cache = Cache::start(with_users);
    let mut client = cache.client();
    client.asks("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    let mut client = cache.client();
    client.asks("set login 0 0 10\r\nann secret\r\n", "STORED\r\n");
    client.asks("get a\r\n", "END\r\n");
    std::fs::write(&users, "no user here\n").unwrap();
    let refused = Cache::try_start(with_users).err().unwrap();
    assert!(refused.contains("NAME:PASSWORD"), "{refused}");
}

/// A self-signed certificate for 127.0.0.1 and its key, in one file; `None` if no program can make it.
fn certificate(directory: &Path) -> Option<PathBuf> {
    let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-days",
        "2",
        "-subj",
        "/CN=cache",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]);
    // Clients show it, too, which must be no authority's.
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    match openssl.arg("-out").arg(&certificate).arg("-keyout").arg(&key).output() {
        Ok(done) => assert!(done.status.success(), "{openssl:?}"),
        Err(error) => {
            skipped(&format!("TLS: no openssl program to make a certificate: {error}"));
            return None;
        }
    }
    let both = [&certificate, &key].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    std::fs::write(&certificate, both).unwrap();
    Some(certificate)
}

#[test]
fn clients_speak_tls_where_there_is_a_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let Some(certificate) = certificate(directory.path()) else { return };
    let files =
        |client_ca| TlsFiles { certificate: certificate.clone(), key: certificate.clone(), client_ca };
    let cache = Cache::start(|setup| setup.tls = Some(files(None)));
    memcached::clients_by("tls", cache.address, Some(&certificate));
    // One that says nothing, or something else, holds up nobody.
    let silent = cache.client();
    let mut plain = cache.client();
    plain.say("get a\r\n");
    let mut heard = Vec::new();
    _ = plain.stream.read_to_end(&mut heard);
    assert!(!String::from_utf8_lossy(&heard).contains("END"), "{heard:?}");
    memcached::clients_by("tls", cache.address, Some(&certificate));
    drop(silent);
    cache.here.end();

    let cache = Cache::start(|setup| setup.tls = Some(files(Some(certificate.clone()))));
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-quiet", "-connect", &cache.address.to_string(), "-CAfile"]).arg(&certificate);
    let ask = |openssl: &mut Command| {
        let mut client =
            openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        _ = client.stdin.as_mut().unwrap().write_all(b"get a\r\nquit\r\n");
        String::from_utf8(client.wait_with_output().unwrap().stdout).unwrap()
    };
    assert_eq!(ask(&mut openssl), "", "a client without a certificate");
    assert_eq!(ask(openssl.arg("-cert").arg(&certificate).arg("-key").arg(&certificate)), "END\r\n");
}
