//! An edge with certificates.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sidelong_config::Tls;

use sidelong_testing::certificates::{ECDSA, RSA, certificate, certificate_for};
use sidelong_testing::{Client, Cluster, Here, STALE_MAX, eventually, metrics, skipped, try_get};

/// A cluster whose edge has a certificate.
fn cluster(change: impl FnOnce(&mut Cluster)) -> Option<(Cluster, Vec<Here>)> {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    change(&mut cluster);
    cluster.file.edges.truncate(1);
    cluster.file.edges[0].tls = vec![certificate(&cluster, "own")?];
    let parts = cluster.all_here();
    Some((cluster, parts))
}

#[test]
fn who_is_rejected_hears_it_over_http2_too() {
    let curl = Command::new("curl").arg("--version").output();
    if !curl.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("HTTP2")) {
        return skipped("admission over HTTP/2: no curl program that speaks it");
    }
    let started = cluster(|cluster| {
        *cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]).with_service(Duration::from_secs(600));
        cluster.file.baseline.threshold = Some(1.0);
        // A record that is too old admits all.
        cluster.file.load.stale = STALE_MAX;
    });
    let Some((cluster, _up)) = started else { return };
    // More than alpha's node works on at a time, for long; beta's is idle, so that connections are accepted.
    let _held: Vec<_> = (0..6)
        .map(|_| {
            let mut client = Client::connect(cluster.node(0));
            client.send("GET /o/1/1 HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
            client
        })
        .collect();
    let body = cluster.path("body");
    std::fs::write(&body, vec![b'x'; 300_000]).unwrap();
    let edge = cluster.edge(0);
    let ask = |more: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(more).args([
            "-sS",
            "--http2",
            "--max-time",
            "60",
            "-o",
            "/dev/null",
            "-w",
            "%{http_version} %{http_code}",
        ]);
        curl.arg("--cacert").arg(&cluster.file.edges[0].tls[0].certificate);
        curl.args(["--resolve", &format!("alpha.test:{}:{}", edge.port(), edge.ip()), "--data-binary"]);
        curl.arg(format!("@{}", body.display())).arg(format!("https://alpha.test:{}/o/1/5", edge.port()));
        String::from_utf8_lossy(&curl.output().unwrap().stdout).into_owned()
    };
    let ratio = r#"sidelong_edge_admitted_ratio{site="alpha"}"#;
    eventually("no request is admitted", || metrics(cluster.admin(0)).get(ratio) == Some(&0.0));
    assert_eq!(ask(&[]), "2 503");
    // A client that waits for `100 Continue` has sent no body yet.
    for _ in 0..3 {
        assert_eq!(ask(&["--header", "expect: 100-continue", "--expect100-timeout", "20"]), "2 503");
    }
    let rejected = r#"sidelong_edge_rejected_total{site="alpha",why="all-overloaded"}"#;
    assert!(metrics(cluster.admin(0))[rejected] >= 4.0);
}

/// Sends `words` over TLS, checked against the edge's own certificate, until the other side closes.
fn over_tls(cluster: &Cluster, words: &str) -> String {
    over_tls_with(cluster, words, |_| ())
}

/// Sends `words` over TLS as [`over_tls`], with further options of openssl.
fn over_tls_with(cluster: &Cluster, words: &str, options: impl FnOnce(&mut Command)) -> String {
    let certificate = &cluster.file.edges[0].tls[0].certificate;
    let mut openssl = Command::new("openssl");
    openssl.args([
        "s_client",
        "-quiet",
        "-verify_return_error",
        "-servername",
        "alpha.test",
        "-verify_hostname",
        "alpha.test",
    ]);
    openssl.args(["-alpn", "http/1.1", "-connect", &cluster.edge(0).to_string(), "-CAfile"]).arg(certificate);
    options(&mut openssl);
    let mut child =
        openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // A handshake that fails may have ended it already.
    let _ = child.stdin.as_mut().unwrap().write_all(words.as_bytes());
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    let (Some(one), Some(other)) = (certificate(&cluster, "one"), certificate(&cluster, "other")) else {
        return;
    };
    cluster.file.edges[0].tls = vec![Tls { key: other.key, ..one }];
    let line = cluster.try_here("edge", "edge1").err().unwrap();
    assert!(line.contains("one.pem") && line.contains("other.key"), "{line}");
    assert!(line.contains("the key belongs to another certificate: give the one"), "{line}");
}

#[test]
fn requests_are_answered_over_tls() {
    let Some((cluster, _up)) = cluster(|_| ()) else { return };
    eventually("its site is served", || {
        let request = "GET /o/1/10 HTTP/1.1\r\nhost: alpha.test\r\nconnection: close\r\n\r\n";
        over_tls(&cluster, request).starts_with("HTTP/1.1 200 ")
    });
    let request = "GET /o/1/10 HTTP/1.1\r\nhost: beta.test\r\nconnection: close\r\n\r\n";
    let answer = over_tls(&cluster, request);
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    // Plain HTTP on that port is not served, and does no harm.
    let mut plain = Client::connect(cluster.edge(0));
    plain.send("GET / HTTP/1.1\r\nhost: alpha.test\r\n\r\n").unwrap();
    assert!(!plain.rest().starts_with("HTTP/1.1 200"));
}

#[test]
fn who_does_not_finish_its_hello_is_let_go() {
    let started = cluster(|cluster| cluster.file.limits.client_header_timeout = Duration::from_secs(1));
    let Some((cluster, _up)) = started else { return };
    let slow = || metrics(cluster.admin(0))[r#"sidelong_edge_refused_total{reason="too-slow"}"#];
    let before = slow();
    // The second sends the beginning of a record.
    for sent in ["", "\u{16}\u{3}\u{1}"] {
        let mut client = Client::connect(cluster.edge(0));
        client.send(sent).unwrap();
        assert_eq!(client.rest(), "");
    }
    assert_eq!(slow() - before, 2.0);
}

/// The edge is asked to end in the middle of a handshake.
#[test]
fn a_client_in_a_handshake_is_served_before_the_edge_ends() {
    let Some((cluster, parts)) = cluster(|_| ()) else { return };
    let words = "GET /o/1/10 HTTP/1.1\r\nhost: alpha.test\r\nconnection: close\r\n\r\n";
    eventually("its site is served", || over_tls(&cluster, words).starts_with("HTTP/1.1 200 "));
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let between = listener.local_addr().unwrap();
    let answer = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, _) = listener.accept().unwrap();
            let mut edge = TcpStream::connect(cluster.edge(0)).unwrap();
            let mut hello = [0; 20];
            client.read_exact(&mut hello).unwrap();
            edge.write_all(&hello).unwrap();
            // The edge has them, before it hears of its end.
            std::thread::sleep(Duration::from_secs(2));
            parts[0].finish();
            eventually("the edge is to end", || {
                !try_get(cluster.admin(0), "any", "/readyz").is_ok_and(|reply| reply.status == 200)
            });
            // Longer than an edge waits for clients that say nothing.
            std::thread::sleep(Duration::from_millis(300));
            let (mut from_edge, mut to_client) = (edge.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || io::copy(&mut from_edge, &mut to_client));
            let _ = io::copy(&mut client, &mut edge);
        });
        over_tls_with(&cluster, words, |openssl| _ = openssl.args(["-connect", &between.to_string()]))
    });
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// What `openssl s_client` says of a handshake with these options.
fn handshake(cluster: &Cluster, options: &[&str]) -> String {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &cluster.edge(0).to_string()]).args(options);
    let out = openssl.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The common name of the certificate that a client with these options is shown.
fn shown(cluster: &Cluster, options: &[&str]) -> Option<String> {
    let said = handshake(cluster, options);
    let subject = said.lines().find_map(|line| line.strip_prefix("subject="))?;
    Some(subject.rsplit('=').next()?.trim().to_owned())
}

/// Runs an HTTP/2 client that writes `version status bytes connections` for each request: paths, each with its own
/// options. `None` if there is no such client.
fn curl(cluster: &Cluster, requests: &[(&str, &[&str])]) -> Option<String> {
    let version = Command::new("curl").arg("--version").output();
    if !version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("HTTP2")) {
        skipped("HTTP/2: no curl program that speaks it");
        return None;
    }
    let (address, tls) = (cluster.edge(0), &cluster.file.edges[0].tls[0]);
    let (ip, port) = (address.ip(), address.port());
    let mut curl = Command::new("curl");
    for (index, (path, options)) in requests.iter().enumerate() {
        curl.args((index > 0).then_some("--next")).args(["--silent", "--http2", "--max-time", "20"]);
        curl.args(["--resolve", &format!("alpha.test:{port}:{ip}")]).arg("--cacert").arg(&tls.certificate);
        curl.args(["--write-out", "%{http_version} %{http_code} %{size_download} %{num_connects}\\n"]);
        curl.args(["--output", "/dev/null"]).args(*options).arg(format!("https://alpha.test:{port}{path}"));
    }
    Some(String::from_utf8(curl.output().unwrap().stdout).unwrap())
}

/// Whether there is an HTTP/2 client; waits until it is served.
fn is_served(cluster: &Cluster) -> bool {
    let get = || curl(cluster, &[("/o/1/10", &[])]);
    if get().is_none() {
        return false;
    }
    eventually("its site is served", || get().unwrap() == "2 200 10 1\n");
    true
}

#[test]
fn requests_are_answered_over_http_2() {
    let Some((cluster, _up)) = cluster(|_| ()) else { return };
    if !is_served(&cluster) {
        return;
    }
    let out = curl(&cluster, &[("/o/1/10", &[]), ("/o/2/100000", &[]), ("/o/3/1", &[])]).unwrap();
    assert_eq!(out, "2 200 10 1\n2 200 100000 0\n2 200 1 0\n", "three requests on one connection");
    let long = format!("x-pad: {}", "x".repeat(40_000));
    let out = curl(&cluster, &[("/o/1/10", &["--header", &long])]).unwrap();
    assert!(out.starts_with("2 431 "), "{out}");
}

#[test]
fn a_certificate_that_was_replaced_is_taken_over() {
    let Some((cluster, _up)) = cluster(|_| ()) else { return };
    let Some(new) = certificate(&cluster, "new") else { return };
    let own = cluster.file.edges[0].tls[0].clone();
    let words = "GET /o/1/9 HTTP/1.1\r\nhost: alpha.test\r\nconnection: close\r\n\r\n";
    eventually("it is served", || over_tls(&cluster, words).starts_with("HTTP/1.1 200 "));
    std::fs::rename(&new.certificate, &own.certificate).unwrap();
    std::fs::rename(&new.key, &own.key).unwrap();
    // Checked against the new certificate, which stands in the place of the old one.
    eventually("the new certificate is shown", || over_tls(&cluster, words).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_reload_has_other_certificates_shown_and_clients_show_theirs() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.edges.truncate(1);
    let made =
        ["first", "second"].map(|name| certificate_for(&cluster, name, ECDSA, &format!("DNS:{name}.test")));
    let [Some(first), Some(second)] = made else { return };
    cluster.file.edges[0].tls = vec![first.clone()];
    let _parts = cluster.all_here();
    eventually("it listens", || shown(&cluster, &[]).is_some());
    let of_second = |cluster: &Cluster| shown(cluster, &["-servername", "second.test"]);
    assert_eq!(of_second(&cluster).as_deref(), Some("first"));

    cluster.file.edges[0].tls = vec![first, Tls { key: cluster.path("none.key"), ..second.clone() }];
    let refused = cluster.reload().unwrap_err();
    assert!(refused.contains("none.key"), "{refused}");
    assert_eq!(of_second(&cluster).as_deref(), Some("first"));
    cluster.file.edges[0].tls.truncate(1);
    cluster.file.edges[0].tls.push(second);
    cluster.reload().unwrap();
    assert_eq!(of_second(&cluster).as_deref(), Some("second"));

    cluster.file.edges[0].client_ca = Some(cluster.file.edges[0].tls[0].certificate.clone());
    cluster.reload().unwrap();
    assert!(handshake(&cluster, &[]).contains("Acceptable client certificate CA names"));
}

#[test]
fn each_client_is_shown_the_certificate_for_the_name_that_it_asks_for() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.edges.truncate(1);
    let names = [
        ("alpha-rsa", RSA, "DNS:alpha.test"),
        ("beta", ECDSA, "DNS:*.Beta.test"),
        ("alpha-ecdsa", ECDSA, "DNS:alpha.test"),
        ("gamma", RSA, "DNS:gamma.test,DNS:www.beta.test,DNS:alpha.test"),
    ];
    for (name, key, names) in names {
        let Some(tls) = certificate_for(&cluster, name, key, names) else { return };
        cluster.file.edges[0].tls.push(tls);
    }
    let _parts = cluster.all_here();
    let asked = |name: &str, more: &[&str]| shown(&cluster, &[&["-servername", name], more].concat());
    eventually("it listens", || asked("alpha.test", &[]).is_some());
    let cases = [
        ("alpha.test", "alpha-rsa"),
        ("ALPHA.test", "alpha-rsa"),
        ("a.beta.test", "beta"),
        ("WWW.BETA.test", "beta"),
        ("gamma.test", "gamma"),
        // An asterisk stands for one label.
        ("beta.test", "alpha-rsa"),
        ("a.b.beta.test", "alpha-rsa"),
        ("a.gamma.test", "alpha-rsa"),
        ("other.test", "alpha-rsa"),
    ];
    for (name, expected) in cases {
        for version in ["-tls1_2", "-tls1_3"] {
            assert_eq!(asked(name, &[version]).as_deref(), Some(expected), "{name} {version}");
        }
    }
    assert_eq!(shown(&cluster, &["-noservername"]).as_deref(), Some("alpha-rsa"));
    let signed_by = |name: &str, how: &str| asked(name, &["-sigalgs", how]);
    assert_eq!(signed_by("alpha.test", "ECDSA+SHA256").as_deref(), Some("alpha-ecdsa"));
    assert_eq!(signed_by("www.beta.test", "rsa_pss_rsae_sha256").as_deref(), Some("gamma"));
    assert_eq!(
        signed_by("other.test", "ECDSA+SHA256").as_deref(),
        Some("beta"),
        "the first that it can verify"
    );
    let ecdsa = ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"];
    assert_eq!(asked("alpha.test", &ecdsa).as_deref(), Some("alpha-ecdsa"));

    // One that cannot be used leaves the others as they are, and those that are replaced later are taken over.
    let gamma = cluster.file.edges[0].tls[3].clone();
    std::fs::write(cluster.path("beta.pem"), "no certificate").unwrap();
    let new = certificate_for(&cluster, "new", RSA, "DNS:gamma.test,DNS:delta.test").unwrap();
    std::fs::rename(&new.certificate, &gamma.certificate).unwrap();
    std::fs::rename(&new.key, &gamma.key).unwrap();
    eventually("the new certificate is shown", || asked("delta.test", &[]).as_deref() == Some("new"));
    assert_eq!(asked("gamma.test", &[]).as_deref(), Some("new"));
    assert_eq!(asked("a.beta.test", &[]).as_deref(), Some("beta"), "it stays");
    assert_eq!(asked("alpha.test", &[]).as_deref(), Some("alpha-rsa"));
}

#[test]
fn each_certificate_is_checked_at_the_start() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    let Some(own) = certificate(&cluster, "own") else { return };
    let second = Tls { certificate: cluster.path("second.pem"), key: own.key.clone() };
    cluster.file.edges[0].tls = vec![own.clone(), second];
    let refused = |cluster: &Cluster| cluster.try_here("edge", "edge1").err().unwrap();
    let line = refused(&cluster);
    assert!(line.contains("second.pem") && line.contains("No such file"), "{line}");
    cluster.file.edges[0].tls = vec![own.clone()];
    cluster.file.edges[0].client_ca = Some(cluster.path("ca.pem"));
    let line = refused(&cluster);
    assert!(line.contains("cannot use client_ca ") && line.contains("ca.pem: "), "{line}");
    assert!(line.contains("No such file"), "{line}");
    cluster.file.edges[0].client_ca = Some(own.key);
    let line = refused(&cluster);
    assert!(line.contains("own.key has no certificate"), "{line}");
}

/// A certificate that `ca` has signed, for a client.
fn signed(cluster: &Cluster, ca: &Tls, name: &str) -> Tls {
    let at = |end: &str| cluster.path(&format!("{name}.{end}"));
    let tls = Tls { certificate: at("pem"), key: at("key") };
    let (request, extensions) = (at("csr"), at("ext"));
    std::fs::write(&extensions, "basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n").unwrap();
    let run = |openssl: &mut Command| {
        assert!(openssl.stderr(Stdio::null()).status().unwrap().success(), "{openssl:?}");
    };
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-new", "-subj", &format!("/CN={name}")]).args(ECDSA);
    run(openssl.arg("-out").arg(&request).arg("-keyout").arg(&tls.key));
    let mut openssl = Command::new("openssl");
    openssl.args(["x509", "-req", "-days", "2", "-CAcreateserial", "-in"]).arg(&request);
    openssl.arg("-CA").arg(&ca.certificate).arg("-CAkey").arg(&ca.key).arg("-extfile").arg(&extensions);
    run(openssl.arg("-out").arg(&tls.certificate));
    tls
}

/// The list by which `ca` revokes this certificate.
fn revoked(cluster: &Cluster, ca: &Tls, certificate: &Tls) -> String {
    let [config, index, number] = ["ca.conf", "ca.index", "ca.number"].map(|name| cluster.path(name));
    std::fs::write(&index, "").unwrap();
    std::fs::write(&number, "01\n").unwrap();
    let text = format!(
        "[ca]\ndefault_ca=own\n[own]\ndatabase={}\ncrlnumber={}\ndefault_md=sha256\ndefault_crl_days=2\n",
        index.display(),
        number.display()
    );
    std::fs::write(&config, text).unwrap();
    let run = |what: &[&Path]| {
        let mut openssl = Command::new("openssl");
        openssl.arg("ca").arg("-config").arg(&config).arg("-cert").arg(&ca.certificate);
        let done = openssl.arg("-keyfile").arg(&ca.key).args(what).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    run(&[Path::new("-revoke"), &certificate.certificate]);
    run(&[Path::new("-gencrl")])
}

/// Replaces a file in one step.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

#[test]
fn clients_must_show_a_certificate_where_the_edge_asks_for_one() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.edges.truncate(1);
    let authority = |name: &str| certificate_for(&cluster, name, ECDSA, "DNS:authority.test");
    let (Some(ca), Some(other)) = (authority("ca"), authority("other")) else { return };
    let (known, unknown) = (signed(&cluster, &ca, "known"), signed(&cluster, &other, "unknown"));
    cluster.file.edges[0].tls = vec![certificate(&cluster, "own").unwrap()];
    cluster.file.edges[0].client_ca = Some(ca.certificate.clone());
    let _parts = cluster.all_here();
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let words = "GET /o/1/9 HTTP/1.1\r\nhost: alpha.test\r\nconnection: close\r\n\r\n";
    let ask = |client: Option<&Tls>, version: &str, session: &[(&str, PathBuf)]| {
        let answer = over_tls_with(&cluster, words, |openssl| {
            openssl.arg(version);
            if let Some(Tls { certificate, key }) = client {
                openssl.arg("-cert").arg(certificate).arg("-key").arg(key);
            }
            openssl.args(session.iter().flat_map(|(option, file)| [Path::new(*option), file]));
        });
        answer.starts_with("HTTP/1.1 200 ")
    };
    eventually("a known client is served", || ask(Some(&known), "-tls1_3", &[]));
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(!ask(None, version, &[]), "a client without a certificate, {version}");
        assert!(!ask(Some(&unknown), version, &[]), "a client of another authority, {version}");
        // What a known client's session left is of no use to one that has only that.
        let session = cluster.path(&format!("session{version}"));
        assert!(ask(Some(&known), version, &[("-sess_out", session.clone())]), "{version}");
        if session.exists() {
            assert!(!ask(None, version, &[("-sess_in", session)]), "a resumed session, {version}");
        }
    }
    // The same over HTTP/2.
    let with = |Tls { certificate, key }: &Tls| {
        let name = |path: &Path| path.to_str().unwrap().to_owned();
        ["--cert".to_owned(), name(certificate), "--key".to_owned(), name(key)]
    };
    let options = with(&known);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    if let Some(said) = curl(&cluster, &[("/o/1/10", &options)]) {
        assert_eq!(said, "2 200 10 1\n");
        let said = curl(&cluster, &[("/o/1/10", &[])]).unwrap();
        assert!(said.starts_with("0 000 ") || said.contains(" 000 "), "{said}");
    }

    let lost = signed(&cluster, &ca, "lost");
    assert!(ask(Some(&lost), "-tls1_3", &[]));
    let revoked = format!("{}{}", text(&ca.certificate), revoked(&cluster, &ca, &lost));
    replace(&ca.certificate, &revoked);
    eventually("one is revoked", || !ask(Some(&lost), "-tls1_3", &[]));
    assert!(!ask(Some(&lost), "-tls1_2", &[]));
    assert!(ask(Some(&known), "-tls1_3", &[]), "the other is not");

    replace(&ca.certificate, &text(&other.certificate));
    eventually("the new authority counts", || ask(Some(&unknown), "-tls1_3", &[]));
    assert!(!ask(Some(&known), "-tls1_3", &[]), "the old authority does not count any more");
}

#[test]
fn sessions_are_resumed_where_clients_show_no_certificate() {
    let Some((cluster, _up)) = cluster(|_| ()) else { return };
    let session = cluster.path("session");
    let file = session.to_str().unwrap();
    eventually("it listens", || {
        handshake(&cluster, &["-servername", "alpha.test", "-tls1_2", "-sess_out", file])
            .contains("New, TLSv1.2")
    });
    let said = handshake(&cluster, &["-servername", "alpha.test", "-tls1_2", "-sess_in", file]);
    assert!(said.contains("Reused, TLSv1.2"), "{said}");
}
