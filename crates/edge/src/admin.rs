//! The admin endpoint of a process: `/metrics` for Prometheus, `/healthz` and `/readyz` for supervisors and load
//! balancers, and an edge's `/status.json` for `sidelong status`.
//!
//! It is one thread, which sleeps until a request arrives, so a node with a kernel-kept record may have one. It does
//! not use the fabric, and answers while that is down.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use crate::metrics::Format;
use crate::status::Status;

/// Connections at a time; further ones wait in the backlog.
const CONNECTIONS_MAX: usize = 64;
/// Longest time for a connection, which carries one request, to send it and read the answer.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// Longest head of a request, in bytes: the smallest limit that hyper allows.
const HEAD_BYTES_MAX: usize = 8192;
/// Pause after an accept that failed, most often for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// A check and its line of explanation: `Ok` is answered with 200, `Err` with 503.
pub type Check = Box<dyn Fn() -> Result<&'static str, &'static str> + Send>;

/// What the endpoint answers.
pub struct Pages {
    /// All metrics, in OpenMetrics.
    pub metrics: Box<dyn Fn() -> String + Send>,
    /// Whether the process does its work.
    pub health: Check,
    /// Whether clients should be sent to it.
    pub ready: Check,
    /// The state of an edge.
    pub status: Option<Box<dyn Fn() -> Status + Send>>,
}

/// The endpoint's thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Admin {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Starts to answer at `listener`.
    ///
    /// # Errors
    /// If the thread or its runtime cannot be created.
    pub fn start(listener: TcpListener, pages: Pages) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let run = move || {
            let served = LocalSet::new().block_on(&runtime, async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tokio::select! {
                    () = stopped.notified() => {}
                    () = serve(&listener, Rc::new(pages)) => {}
                }
                io::Result::Ok(())
            });
            if let Err(error) = served {
                tracing::error!(%error, "the admin endpoint has stopped");
            }
        };
        let thread = std::thread::Builder::new().name("admin".into()).spawn(run)?;
        Ok(Admin { stop, thread: Some(thread) })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // Its panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pages")
    }
}

/// Accepts connections for ever.
async fn serve(listener: &tokio::net::TcpListener, pages: Rc<Pages>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::task::spawn_local(exchange(stream, Rc::clone(&pages), permit));
            }
            Err(error) => {
                tracing::warn!(%error, "the admin endpoint cannot accept a connection");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// One request and its answer.
async fn exchange(stream: TcpStream, pages: Rc<Pages>, _room: OwnedSemaphorePermit) {
    let service = service_fn(move |request| {
        let answer = answer(&pages, &request);
        async move { Ok::<_, Infallible>(answer) }
    });
    // One alarm for the whole exchange, instead of hyper's for the head alone.
    let served = http1::Builder::new()
        .keep_alive(false)
        .header_read_timeout(None)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(EXCHANGE_MAX, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the admin endpoint failed"),
        Err(_) => tracing::debug!("a connection to the admin endpoint was too slow"),
    }
}

fn answer<B>(pages: &Pages, request: &Request<B>) -> Response<Full<Bytes>> {
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let check = |check: &Check| match check() {
        Ok(line) => (StatusCode::OK, TEXT, line.to_owned()),
        Err(line) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, line.to_owned()),
    };
    let get = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, kind, body) = match (request.uri().path(), &pages.status) {
        ("/metrics" | "/healthz" | "/readyz" | "/status.json", _) if !get => {
            (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n".to_owned())
        }
        ("/metrics", _) => {
            let format = Format::asked(accept);
            (StatusCode::OK, format.content_type(), format.of((pages.metrics)()))
        }
        ("/healthz", _) => check(&pages.health),
        ("/readyz", _) => check(&pages.ready),
        ("/status.json", Some(status)) => match serde_json::to_string(&status()) {
            Ok(json) => (StatusCode::OK, JSON, json + "\n"),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
        },
        _ => {
            let status = if pages.status.is_some() { ", /status.json" } else { "" };
            let found = format!("not found; this endpoint has /metrics, /healthz, /readyz{status}\n");
            (StatusCode::NOT_FOUND, TEXT, found)
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::SocketAddr;

    use super::*;

    fn admin() -> (Admin, SocketAddr) {
        admin_at("127.0.0.1:0")
    }

    fn admin_at(address: &str) -> (Admin, SocketAddr) {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = || "# HELP a_b B.\n# TYPE a_b counter\na_b_total 1\n# EOF\n".to_owned();
        let pages = Pages {
            metrics: Box::new(metrics),
            health: Box::new(|| Ok("ok\n")),
            ready: Box::new(|| Err("starting\n")),
            status: Some(Box::new(Status::default)),
        };
        (Admin::start(listener, pages).unwrap(), address)
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn it_answers_once_a_connection_in_the_format_that_is_asked_for() {
        let (_admin, address) = admin();
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0;"), "{answer}");
        assert!(answer.ends_with("\na_b_total 1\n# EOF\n"), "{answer}");
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nhost: x\r\naccept: text/plain\r\n\r\n");
        assert!(answer.contains("content-type: text/plain; version=0.0.4;"), "{answer}");
        assert!(answer.ends_with("# TYPE a_b_total counter\na_b_total 1\n"), "{answer}");
        assert!(ask(address, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").ends_with("\r\n\r\nok\n"));
        let answer = ask(address, "GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("\r\n\r\nstarting\n"), "{answer}");
        let answer = ask(address, "GET /status.json HTTP/1.1\r\nhost: x\r\n\r\n");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(serde_json::from_str::<Status>(body).unwrap(), Status::default());
    }

    #[test]
    fn what_it_does_not_have_is_refused() {
        let (_admin, address) = admin();
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
            ("POST /metrics HTTP/1.1\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 405 "),
            ("nonsense\r\n\r\n", "HTTP/1.1 400 "),
        ] {
            let answer = ask(address, request);
            assert!(answer.starts_with(status), "{request:?}: {answer}");
        }
        let long = format!("GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(2 * HEAD_BYTES_MAX));
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let _ = stream.write_all(long.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }

    #[test]
    fn who_says_nothing_keeps_nobody_from_asking() {
        let (_admin, address) = admin();
        let _silent: Vec<_> =
            (0..CONNECTIONS_MAX - 1).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        assert!(ask(address, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").ends_with("ok\n"));
    }

    #[test]
    fn it_ends_with_its_value() {
        // Where no other test listens, which could be given the port at once.
        let (admin, address) = admin_at("127.0.7.1:0");
        drop(admin);
        assert!(std::net::TcpStream::connect(address).is_err());
    }
}
