//! The client of etcd, against servers of etcd, and against what is none.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sidelong_etcd::{Access, Change, Client, Error, If, Keys, Then};
use sidelong_testing::certificates::{ECDSA, certificate_for};
use sidelong_testing::etcd::Etcd;
use sidelong_testing::{Cluster, PATIENCE, eventually};

fn access(endpoints: &[String]) -> Access {
    let endpoints = endpoints.iter().map(|endpoint| endpoint.parse().unwrap()).collect();
    Access::new(endpoints, None, None, None).unwrap()
}

/// A client of servers that have begun to answer.
fn client(etcd: &Etcd) -> Client {
    let mut client = Client::new(access(&etcd.endpoints())).unwrap();
    answers(&mut client);
    client
}

/// Waits until etcd has a leader.
fn answers(client: &mut Client) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = client.get(Keys::Under("")) {
        assert!(Instant::now() < deadline, "etcd does not answer: {error}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn put<'a>(key: &'a str, value: &'a str) -> Then<'a> {
    Then::Put { key, value: value.as_bytes(), lease: None }
}

/// Keys and values.
fn all(client: &mut Client) -> Vec<(String, String)> {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let entries = client.get(Keys::Under("")).unwrap().entries;
    entries.into_iter().map(|entry| (entry.key, text(entry.value))).collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The first changes that a watch hears of.
fn heard(client: &mut Client, keys: Keys<'_>, from: u64) -> Result<Vec<Change>, Error> {
    let mut watch = client.watch(keys, from)?;
    loop {
        let changes = watch.next(PATIENCE)?;
        if !changes.is_empty() {
            return Ok(changes);
        }
    }
}

#[test]
fn entries_change_under_conditions() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let Some(etcd) = Etcd::start(&cluster, 1, &[]) else { return };
    let mut client = client(&etcd);
    let first = client.transact(&[If::Absent("a/x")], &[put("a/x", "1"), put("a/y", "2")]).unwrap().unwrap();
    assert_eq!(client.transact(&[If::Absent("a/x")], &[put("a/x", "3")]).unwrap(), None);
    assert_eq!(client.transact(&[If::Unchanged("a/x", first + 1)], &[put("a/x", "3")]).unwrap(), None);
    let second = client.transact(&[If::Unchanged("a/x", first)], &[put("a/x", "3"), put("b", "")]).unwrap();
    assert_eq!(second, Some(first + 1));
    assert_eq!(all(&mut client), pairs(&[("a/x", "3"), ("a/y", "2"), ("b", "")]));
    let found = client.get(Keys::Under("a/")).unwrap();
    assert_eq!((found.entries.len(), found.revision, found.entries[0].revision), (2, first + 1, first + 1));
    assert_eq!(client.get(Keys::One("a/")).unwrap().entries, []);
    client.transact(&[], &[Then::Delete("a/x")]).unwrap().unwrap();

    // What a lease keeps goes with it.
    let lease = client.grant(1).unwrap();
    client.transact(&[], &[Then::Put { key: "lamp", value: b"on", lease: Some(lease) }]).unwrap().unwrap();
    assert!(client.keep(lease).unwrap());
    eventually("the lease ends", || client.get(Keys::One("lamp")).unwrap().entries.is_empty());
    assert!(!client.keep(lease).unwrap());

    let long = "x".repeat(2 << 20);
    let refused = client.transact(&[], &[put("b", &long)]).unwrap_err().to_string();
    assert!(refused.contains("1.5 MB"), "{refused}");
}

#[test]
fn a_watch_hears_what_changes_from_a_revision_on() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let Some(etcd) = Etcd::start(&cluster, 1, &[]) else { return };
    let mut client = client(&etcd);
    let first = client.transact(&[], &[put("a/x", "1")]).unwrap().unwrap();
    client.transact(&[], &[put("b", "2")]).unwrap();
    client.transact(&[], &[Then::Delete("a/x")]).unwrap();
    let changes = heard(&mut client, Keys::Under("a/"), first).unwrap();
    let [Change::Put(put), Change::Deleted(key)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((&*put.value, put.revision, &**key), (&b"1"[..], first, "a/x"));
    assert_eq!(client.watch(Keys::One("b"), first + 3).unwrap().next(Duration::from_millis(10)).unwrap(), []);

    // What happens while nobody watches is heard later, unless it is forgotten.
    post(&etcd, ("kv/compaction", &format!(r#"{{"revision": "{}"}}"#, first + 2)));
    assert!(
        matches!(heard(&mut client, Keys::Under("a/"), first), Err(Error::Compacted { since }) if since == first + 2)
    );

    // Another client's change ends the wait.
    let endpoints = etcd.endpoints();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut other = Client::new(access(&endpoints)).unwrap();
            other.transact(&[], &[put_later("b")]).unwrap();
        });
        let changes = heard(&mut client, Keys::One("b"), first + 3).unwrap();
        assert!(matches!(&changes[..], [Change::Put(entry)] if entry.value == b"later"), "{changes:?}");
    });
}

fn put_later(key: &str) -> Then<'_> {
    Then::Put { key, value: b"later", lease: None }
}

#[test]
fn one_of_three_servers_may_go() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let Some(mut etcd) = Etcd::start(&cluster, 3, &[]) else { return };
    let mut client = client(&etcd);
    for server in 0..3 {
        etcd.kill(server);
        eventually("the others serve", || client.transact(&[], &[put("a", "1")]).is_ok());
        assert_eq!(all(&mut client), pairs(&[("a", "1")]));
        etcd.begin(server);
        answers(&mut Client::new(access(&etcd.endpoints()[server..=server])).unwrap());
    }
    // One that hangs is left for another.
    etcd.servers[0].as_ref().unwrap().signal(Signal::STOP);
    eventually("the others serve", || client.get(Keys::Under("")).is_ok());
    etcd.servers[0].as_ref().unwrap().signal(Signal::CONT);

    // Without a quorum nothing is done, and that is said.
    etcd.kill(1);
    etcd.kill(2);
    let refused = client.transact(&[], &[put("a", "2")]).unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. } | Error::Doubtful { .. }), "{refused:?}");
    etcd.begin(1);
    eventually("they serve again", || client.get(Keys::Under("")).is_ok());
}

#[test]
fn a_user_has_a_password_and_a_full_database_a_remedy() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let Some(mut etcd) = Etcd::start(&cluster, 1, &["--quota-backend-bytes=100000"]) else { return };
    let mut nobody = client(&etcd);
    let endpoints = etcd.endpoints();
    let log_in_as = |user: &str, password: &str| {
        let endpoints = endpoints.iter().map(|endpoint| endpoint.parse().unwrap()).collect();
        let user = Some((user.to_owned(), password.to_owned()));
        Client::new(Access::new(endpoints, None, None, user).unwrap()).unwrap()
    };
    let log_in = |password: &str| log_in_as("root", password);
    let early = log_in("word").get(Keys::Under("")).unwrap_err().to_string();
    assert!(early.contains("take user and password_file out"), "{early}");
    for request in [
        ("auth/role/add", r#"{"name": "root"}"#),
        ("auth/user/add", r#"{"name": "root", "password": "word"}"#),
        ("auth/user/grant", r#"{"user": "root", "role": "root"}"#),
        ("auth/role/add", r#"{"name": "sidelong"}"#),
        // The keys under /sidelong/shop/, in Base64, as docs/cluster.md has `etcdctl` grant them.
        (
            "auth/role/grant",
            r#"{"name": "sidelong", "perm": {"permType": "READWRITE", "key": "L3NpZGVsb25nL3Nob3Av", "range_end": "L3NpZGVsb25nL3Nob3Aw"}}"#,
        ),
        ("auth/user/add", r#"{"name": "sidelong", "password": "word"}"#),
        ("auth/user/grant", r#"{"user": "sidelong", "role": "sidelong"}"#),
        ("auth/enable", "{}"),
    ] {
        post(&etcd, request);
    }
    let refused = nobody.get(Keys::Under("")).unwrap_err().to_string();
    assert!(refused.contains("check user and password_file"), "{refused}");
    let refused = log_in("wrong").get(Keys::Under("")).unwrap_err().to_string();
    assert!(refused.contains("check user and password_file"), "{refused}");
    let mut limited = log_in_as("sidelong", "word");
    let lease = limited.grant(60).unwrap();
    let lit = Then::Put { key: "/sidelong/shop/lamp/n1", value: b"", lease: Some(lease) };
    limited.transact(&[], &[put("/sidelong/shop/roster", "1"), lit]).unwrap().unwrap();
    assert_eq!(limited.get(Keys::Under("/sidelong/shop/")).unwrap().entries.len(), 2);
    assert!(limited.keep(lease).unwrap());
    let refused = limited.transact(&[], &[put("/sidelong/other/roster", "1")]).unwrap_err().to_string();
    assert!(refused.contains("grant the user read and write"), "{refused}");
    let mut user = log_in("word");
    user.transact(&[], &[put("a", "1")]).unwrap().unwrap();
    // Its token ends with the server that gave it.
    etcd.kill(0);
    etcd.begin(0);
    eventually("it has another", || user.get(Keys::One("a")).is_ok_and(|found| found.entries.len() == 1));

    let value = "x".repeat(60_000);
    let full = (0..20).find_map(|_| user.transact(&[], &[put("a", &value)]).err()).unwrap().to_string();
    assert!(full.contains("space exceeded") && full.contains("--quota-backend-bytes"), "{full}");
}

/// One request by hand.
fn post(etcd: &Etcd, (path, body): (&str, &str)) {
    let endpoint = &etcd.endpoints()[0]["http://".len()..];
    let mut stream = std::net::TcpStream::connect(endpoint).unwrap();
    let length = body.len();
    write!(stream, "POST /v3/{path} HTTP/1.0\r\nhost: {endpoint}\r\ncontent-length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{path}: {answer}");
}

#[test]
fn tls_is_trusted_by_the_authority_that_is_named() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let names = format!("IP:{}", cluster.at(1).ip());
    // What signs itself is no authority for others.
    let key = [ECDSA, &["-addext", "basicConstraints=critical,CA:FALSE"]].concat();
    let Some(own) = certificate_for(&cluster, "etcd", &key, &names) else { return };
    let Some(other) = certificate_for(&cluster, "other", &key, &names) else { return };
    let [certificate, key] = [&own.certificate, &own.key].map(|file| file.display().to_string());
    let options = [
        format!("--cert-file={certificate}"),
        format!("--key-file={key}"),
        "--client-cert-auth".to_owned(),
        format!("--trusted-ca-file={certificate}"),
    ];
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let Some(etcd) = Etcd::start_tls(&cluster, 1, &options) else { return };
    let with = |authority: &sidelong_config::Tls, identity: Option<&sidelong_config::Tls>| {
        let endpoints = etcd.endpoints().iter().map(|endpoint| endpoint.parse().unwrap()).collect();
        let identity = identity.map(|tls| (&*tls.certificate, &*tls.key));
        Client::new(Access::new(endpoints, Some(&authority.certificate), identity, None).unwrap()).unwrap()
    };
    let mut client = with(&own, Some(&own));
    answers(&mut client);
    let strange = with(&other, Some(&own)).get(Keys::Under("")).unwrap_err().to_string();
    assert!(strange.contains("cannot be trusted") && strange.contains("check ca"), "{strange}");
    let nobody = with(&own, None).get(Keys::Under("")).unwrap_err().to_string();
    assert!(nobody.contains("certificate and key in [etcd]"), "{nobody}");
}

/// A server that answers each request with this, or not at all.
fn impostor(cluster: &Cluster, answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(cluster.at(2_379)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
            if answer.is_empty() || answer.contains("chunked") {
                kept.push(stream);
            }
        }
    });
    address
}

#[test]
fn what_is_no_etcd_is_told_from_it() {
    let answers = [
        "HTTP/1.1 404 Not Found\r\ncontent-length: 10\r\n\r\nNot Found\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnone",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n{",
    ];
    for answer in answers {
        let cluster = Cluster::new(&[("alpha", 1)]);
        let endpoint = format!("http://{}", impostor(&cluster, answer));
        let mut client = Client::new(access(std::slice::from_ref(&endpoint))).unwrap();
        let refused = client.get(Keys::Under("")).unwrap_err().to_string();
        assert!(refused.contains(&endpoint), "{answer}: {refused}");
        // Two of these are no whole answer.
        let is_answer = !answer.starts_with("SSH") && !answer.ends_with("400\r\n\r\n{");
        let is_advised = refused.contains("is it etcd, with its gateway at /v3?");
        assert_eq!(is_advised, is_answer, "{answer}: {refused}");
        assert!(client.transact(&[], &[put("a", "1")]).is_err());
    }
    let cluster = Cluster::new(&[("alpha", 1)]);
    let nobody = format!("http://{}", cluster.at(1));
    let refused = Client::new(access(&[nobody])).unwrap().get(Keys::Under("")).unwrap_err().to_string();
    assert!(refused.contains("cannot be reached"), "{refused}");
}

/// A proxy between may take a watch, and hold back what is said of it.
#[test]
fn a_watch_of_which_nothing_is_heard_is_given_up() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let holds = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let endpoint = format!("http://{}", impostor(&cluster, holds));
    let mut client = Client::new(access(&[endpoint])).unwrap();
    let began = Instant::now();
    let unheard = client.watch(Keys::Under(""), 1).map(drop).unwrap_err();
    assert!(matches!(unheard, Error::Unheard { .. }), "{unheard:?}");
    assert!(began.elapsed() < PATIENCE);
}
