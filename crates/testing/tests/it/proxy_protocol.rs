//! An edge behind a proxy that passes bytes on and tells whose they are by the PROXY protocol.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use sidelong_testing::certificates::certificate;
use sidelong_testing::servers::{haproxy_program, is_there};
use sidelong_testing::{Client, Cluster, Here, Running, eventually, metrics, read_head, try_get};

const REFUSED: &str = r#"sidelong_edge_refused_total{reason="no-proxy"}"#;

/// A cluster whose edge expects PROXY headers.
fn cluster(change: impl FnOnce(&mut Cluster)) -> (Cluster, Vec<Here>) {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.edges.truncate(1);
    cluster.file.edges[0].proxy_protocol = true;
    cluster.file.edges[0].access_log = Some(cluster.path("access.log"));
    change(&mut cluster);
    let up = cluster.all_here();
    eventually("the edge is ready", || {
        try_get(cluster.admin(0), "any", "/readyz").is_ok_and(|reply| reply.status == 200)
    });
    eventually("the edge listens", || TcpStream::connect(cluster.edge(0)).is_ok());
    (cluster, up)
}

/// The status that a request gets behind `header`; `None` if the connection is closed.
fn status(cluster: &Cluster, header: &[u8], path: &str) -> Option<u16> {
    let mut client = Client::connect(cluster.edge(0));
    client.send(header).ok()?;
    client.ask("GET", "alpha.test", path).map(|reply| reply.status).ok()
}

/// A header of version 2 that tells an IPv4 client.
fn v2(client: [u8; 4]) -> Vec<u8> {
    let [a, b, c, d] = client;
    let start = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".as_slice();
    [start, &[a, b, c, d, 192, 0, 2, 2], &[0x13, 0x88, 0, 80]].concat()
}

fn await_logged(cluster: &Cluster, client: &str, path: &str) {
    let begin = format!("{client} - - ");
    eventually(&format!("{path} is logged as {client}'s"), || {
        let log = std::fs::read_to_string(cluster.path("access.log")).unwrap();
        log.lines().any(|line| line.starts_with(&begin) && line.contains(&format!(" {path} ")))
    });
}

#[test]
fn the_header_tells_the_client() {
    let (cluster, _up) = cluster(|_| ());
    let own = Client::connect(cluster.edge(0)).local_address().ip().to_string();
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".as_slice();
    for (path, header, client) in [
        ("/o/1/1", b"PROXY TCP4 192.0.2.1 192.0.2.9 5000 80\r\n".as_slice(), "192.0.2.1"),
        ("/o/2/1", b"PROXY TCP6 2001:db8::1 ::1 5000 80\r\n", "2001:db8::1"),
        ("/o/3/1", b"PROXY UNKNOWN\r\n", &own),
        ("/o/4/1", &v2([192, 0, 2, 7]), "192.0.2.7"),
        ("/o/5/1", local, &own),
    ] {
        assert_eq!(status(&cluster, header, path), Some(200), "{header:?}");
        await_logged(&cluster, client, path);
    }
    // However it arrives.
    let mut client = Client::connect(cluster.edge(0));
    for byte in b"PROXY TCP4 192.0.2.3 192.0.2.9 5000 80\r\n" {
        client.send([*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.ask("GET", "alpha.test", "/o/6/1").unwrap().status, 200);
    await_logged(&cluster, "192.0.2.3", "/o/6/1");
    assert_eq!(metrics(cluster.admin(0))[REFUSED], 0.0);
}

#[test]
fn a_connection_without_a_valid_header_is_closed() {
    let (cluster, _up) =
        cluster(|cluster| cluster.file.limits.client_header_timeout = Duration::from_millis(300));
    let wrong: [&[u8]; 4] = [
        b"",
        b"PROXY TCP4 192.0.2.1 5000\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.9 5000 80 and so on and so on and so on and so on and so on and so on and on\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\0",
    ];
    for header in wrong {
        assert_eq!(status(&cluster, header, "/o/1/1"), None, "{header:?}");
    }
    eventually("each is counted", || metrics(cluster.admin(0))[REFUSED] == 4.0);
    let slow = r#"sidelong_edge_refused_total{reason="too-slow"}"#;
    let mut dribbles = Client::connect(cluster.edge(0));
    dribbles.send("PROXY TCP4").unwrap();
    assert_eq!(dribbles.rest(), "");
    assert_eq!(metrics(cluster.admin(0))[slow], 1.0);
    assert_eq!(status(&cluster, &v2([192, 0, 2, 1]), "/o/1/1"), Some(200));
}

#[test]
fn only_a_trusted_proxy_may_tell() {
    let (cluster, _up) =
        cluster(|cluster| cluster.file.edges[0].trusted_proxies = vec!["192.0.2.0/24".parse().unwrap()]);
    assert_eq!(status(&cluster, &v2([198, 51, 100, 1]), "/o/1/1"), None);
    assert!(metrics(cluster.admin(0))[REFUSED] >= 1.0);
}

#[test]
fn the_client_behind_the_proxy_is_limited() {
    let (cluster, _up) = cluster(|cluster| {
        cluster.file.limits.connections_per_client_max = Some(1);
        cluster.file.edges[0].trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    });
    let mut first = Client::connect(cluster.edge(0));
    first.send(v2([192, 0, 2, 1])).unwrap();
    assert_eq!(first.ask("GET", "alpha.test", "/o/1/1").unwrap().status, 200);
    assert_eq!(status(&cluster, &v2([192, 0, 2, 1]), "/o/1/1"), Some(503));
    assert_eq!(status(&cluster, &v2([192, 0, 2, 2]), "/o/1/1"), Some(200), "another client");
    assert_eq!(first.ask("GET", "alpha.test", "/o/1/1").unwrap().status, 200);
}

/// HAProxy that passes bytes on, on one port with each version of the header; `None`, with a printed reason, without it.
fn haproxy(cluster: &Cluster) -> Option<(Running, [SocketAddr; 2])> {
    let program = haproxy_program()?;
    let (listen, edge) = ([cluster.at(6001), cluster.at(6002)], cluster.edge(0));
    let parts = ["send-proxy", "send-proxy-v2"].iter().zip(listen).map(|(key, listen)| {
        format!("listen {key}\n    bind {listen}\n    server edge {edge} {key} check inter 100ms\n")
    });
    let times = "timeout connect 10s\n    timeout client 60s\n    timeout server 60s";
    let config = format!("defaults\n    mode tcp\n    {times}\n\n{}", parts.collect::<String>());
    let file = cluster.path("haproxy.cfg");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(&file);
    let mut process = Running::start_command(command);
    eventually("HAProxy listens", || {
        assert!(process.is_running(), "{}", process.err());
        listen.iter().all(|listen| TcpStream::connect(listen).is_ok())
    });
    Some((process, listen))
}

#[test]
fn haproxy_tells_its_clients() {
    let (cluster, _up) = cluster(|_| ());
    let Some((_haproxy, listen)) = haproxy(&cluster) else { return };
    let IpAddr::V4(own) = cluster.edge(0).ip() else { panic!("not IPv4") };
    for (version, address) in listen.into_iter().enumerate() {
        let source = Ipv4Addr::from_bits(own.to_bits() ^ (version as u32 + 1));
        let path = format!("/o/{version}/1");
        let mut client = Client::connect_from(source, address).unwrap();
        assert_eq!(client.ask("GET", "alpha.test", &path).unwrap().status, 200);
        await_logged(&cluster, &source.to_string(), &path);
    }
    // Its checks are connections of its own.
    assert_eq!(metrics(cluster.admin(0))[REFUSED], 0.0);
}

#[test]
fn the_header_comes_before_tls_and_the_server_learns_of_both() {
    if !(is_there("curl", "--version") && is_there("openssl", "version")) {
        return;
    }
    let (cluster, _up) = cluster(|cluster| {
        cluster.file.edges[0].tls = vec![certificate(cluster, "own").unwrap()];
        serve_heads(cluster);
    });
    let edge = cluster.edge(0);
    let own = Client::connect(edge).local_address().ip();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--insecure", "--haproxy-protocol", "--max-time", "60", "-w", "%{http_code}"]);
    curl.arg("--resolve").arg(format!("alpha.test:{}:{}", edge.port(), edge.ip()));
    curl.arg(format!("https://alpha.test:{}/", edge.port()));
    eventually("the server is there", || {
        let said = curl.output().unwrap();
        let head = String::from_utf8_lossy(&said.stdout).into_owned();
        head.ends_with("\r\n\r\n200") && {
            assert!(head.contains("\r\nx-forwarded-proto: https\r\n"), "{head}");
            assert!(head.contains(&format!("\r\nx-forwarded-for: {own}\r\n")), "{head}");
            true
        }
    });
}

/// In place of the node a server answers each request with its head.
fn serve_heads(cluster: &mut Cluster) {
    *cluster = std::mem::replace(cluster, Cluster::new(&[("alpha", 1)])).foreign();
    let listener = TcpListener::bind(cluster.node(0)).unwrap();
    // It ends with the test's process.
    std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| _ = echo(stream)));
}

#[test]
fn a_balancer_that_ends_tls_says_so() {
    if !(is_there("curl", "--version") && is_there("openssl", "version")) {
        return;
    }
    let Some(program) = haproxy_program() else { return };
    let (cluster, _up) = cluster(serve_heads);
    let tls = certificate(&cluster, "own").unwrap();
    let both = [tls.certificate, tls.key].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    let pem = cluster.path("both.pem");
    std::fs::write(&pem, both).unwrap();
    let (secure, plain, edge) = (cluster.at(6001), cluster.at(6002), cluster.edge(0));
    let config = format!(
        "defaults\n    mode tcp\n    timeout connect 10s\n    timeout client 60s\n    timeout server 60s\n\n\
         listen tls\n    bind {secure} ssl crt {}\n    bind {plain}\n    server edge {edge} send-proxy-v2-ssl\n",
        pem.display()
    );
    let file = cluster.path("haproxy.cfg");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(&file);
    let mut haproxy = Running::start_command(command);
    for (scheme, at) in [("https", secure), ("http", plain)] {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--insecure", "--max-time", "60", "-w", "%{http_code}", "--resolve"]);
        curl.arg(format!("alpha.test:{}:{}", at.port(), at.ip()));
        curl.arg(format!("{scheme}://alpha.test:{}/", at.port()));
        eventually("the server is there", || {
            assert!(haproxy.is_running(), "{}", haproxy.err());
            let said = curl.output().unwrap();
            let head = String::from_utf8_lossy(&said.stdout).into_owned();
            head.ends_with("\r\n\r\n200") && {
                assert!(head.contains(&format!("\r\nx-forwarded-proto: {scheme}\r\n")), "{head}");
                true
            }
        });
    }
    assert_eq!(metrics(cluster.admin(0))[REFUSED], 0.0);
}

/// Answers one request with its head.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    let head = read_head(&mut stream)?;
    write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", head.len())?;
    stream.write_all(head.as_bytes())
}
