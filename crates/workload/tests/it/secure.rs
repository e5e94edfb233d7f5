//! The load generator over TLS, with HTTP/1.1 and HTTP/2.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sidelong_workload::client::{ClientConfig, Generator, Load, Secure, Shot, Summary};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const HOST: &str = "a.test";

/// A self-signed certificate for [`HOST`] and its key, as PEM; `None` if no program can make them.
fn certificate() -> Option<(Vec<u8>, Vec<u8>)> {
    let directory = tempfile::tempdir().unwrap();
    let [certificate, key] = ["certificate", "key"].map(|name| directory.path().join(name));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]);
    openssl.args(["-subj", &format!("/CN={HOST}"), "-addext", &format!("subjectAltName=DNS:{HOST}")]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-out").arg(&certificate).arg("-keyout").arg(&key);
    match openssl.stderr(Stdio::null()).status() {
        Ok(status) => assert!(status.success(), "{openssl:?}"),
        Err(error) => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: TLS: no openssl program to make a certificate: {error}"
            );
            return None;
        }
    }
    Some((std::fs::read(certificate).unwrap(), std::fs::read(key).unwrap()))
}

/// What a server has seen.
#[derive(Default)]
struct Seen {
    connections: AtomicU64,
    over_http2: AtomicU64,
    without_host: AtomicU64,
}

/// Answers over HTTP/2 or HTTP/1.1, as each client wants.
async fn serve(pem: &(Vec<u8>, Vec<u8>), seen: Arc<Seen>) -> SocketAddr {
    let chain = vec![CertificateDer::from_pem_slice(&pem.0).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(&pem.1).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                seen.connections.fetch_add(1, Relaxed);
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let service = service_fn(move |request: Request<Incoming>| {
                    let is_http2 = request.version() == Version::HTTP_2;
                    let header = request.headers().get("host").and_then(|host| host.to_str().ok());
                    let host = if is_http2 { request.uri().host() } else { header };
                    seen.over_http2.fetch_add(u64::from(is_http2), Relaxed);
                    seen.without_host.fetch_add(u64::from(host != Some(HOST)), Relaxed);
                    async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(&[b'x'; 1000])))) }
                });
                let io = TokioIo::new(stream);
                if is_http2 {
                    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
                } else {
                    let _ = http1::Builder::new().serve_connection(io, service).await;
                }
            });
        }
    });
    address
}

async fn run(config: ClientConfig) -> Summary {
    let shot = |_| Shot::get(0, HeaderValue::from_static(HOST), Uri::from_static("/o/1"));
    let run = Generator::new(config, shot).unwrap().start().unwrap();
    tokio::task::spawn_blocking(|| run.wait()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_over_tls_as_they_are_told() {
    let Some(pem) = certificate() else { return };
    let load =
        |connections| Load::Closed { connections_per_edge: connections, think: std::time::Duration::ZERO };
    for (is_http2, keep_alive) in [(false, true), (true, true), (false, false), (true, false)] {
        let seen = Arc::new(Seen::default());
        let edge = serve(&pem, Arc::clone(&seen)).await;
        let secure = Secure::new(&pem.0, HOST, is_http2).unwrap();
        let config = ClientConfig {
            requests_max: Some(40),
            secure: Some(secure),
            keep_alive,
            ..ClientConfig::new(vec![edge], vec!["a".into()], load(4))
        };
        let summary = run(config).await;
        assert_eq!((summary.requests, summary.errors, summary.rejected), (40, 0, 0), "{summary:?}");
        assert_eq!(summary.bytes, 40 * 1000);
        assert_eq!(seen.connections.load(Relaxed), if keep_alive { 4 } else { 40 });
        assert_eq!(seen.over_http2.load(Relaxed), if is_http2 { 40 } else { 0 });
        assert_eq!(seen.without_host.load(Relaxed), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_with_another_certificate_is_not_trusted() {
    let (Some(own), Some(other)) = (certificate(), certificate()) else { return };
    let edge = serve(&own, Arc::default()).await;
    let load = Load::Closed { connections_per_edge: 1, think: std::time::Duration::ZERO };
    let config = ClientConfig {
        requests_max: Some(2),
        secure: Some(Secure::new(&other.0, HOST, false).unwrap()),
        ..ClientConfig::new(vec![edge], vec!["a".into()], load)
    };
    assert_eq!(run(config).await.errors_by_kind.connect, 2);
}

#[test]
fn what_is_no_certificate_or_name_is_refused() {
    let said = |pem: &[u8], name| Secure::new(pem, name, false).unwrap_err().to_string();
    assert_eq!(said(b"none here", HOST), "TLS to the edges: the file has no certificate");
    let broken = b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    assert!(said(broken, HOST).starts_with("TLS to the edges: "));
    if let Some((pem, _)) = certificate() {
        assert!(said(&pem, "not a name").starts_with("TLS to the edges: "));
    }
}
