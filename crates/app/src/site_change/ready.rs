//! Asks the server of a node by HTTP until it is ready. It judges an answer by its status alone.

use std::time::{Duration, Instant};

use http::Request;
use http::header::{CONNECTION, HOST};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sidelong_layout::FaultCause;
use sidelong_os::ServerAddress;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::broken::{Broken, VOID_EVERY};
use crate::failure::Failure;

/// Time between an answer and the next request.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// A request may take this long, or half of the time that is left if that is longer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Most bytes of an answer's head. The body is not read, except for what comes with the head.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// What a server answers when it is ready.
pub(crate) struct Ready {
    /// Where it listens for each site.
    pub(crate) addresses: Vec<ServerAddress>,
    /// What it is asked for, from the slash on.
    pub(crate) path: String,
    /// The status that it answers when it is ready.
    pub(crate) status: u16,
    /// Longest wait for that.
    pub(crate) timeout: Duration,
}

impl Ready {
    /// Waits until it is ready at the address, or `is_void`. Blocks.
    pub(super) fn wait(&self, address: &ServerAddress, is_void: &dyn Fn() -> bool) -> Result<(), Broken> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            Broken::Failed(FaultCause::NotStarted, format!("could not be asked whether it is ready: {error}"))
        })?;
        let void = async {
            while !is_void() {
                sleep(VOID_EVERY).await;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = void => Err(Broken::Void),
                ready = self.until_ready(address) => ready,
            }
        })
    }

    async fn until_ready(&self, address: &ServerAddress) -> Result<(), Broken> {
        let deadline = Instant::now() + self.timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let silent = || format!("it did not answer GET {}", self.path);
        let mut why = silent();
        loop {
            let limit = left().min(ANSWER_MAX.max(left() / 2));
            match timeout(limit, self.ask(address)).await {
                Ok(Ok(status)) if status == self.status => return Ok(()),
                Ok(Ok(status)) => {
                    why = format!("it answered GET {} with {status}, not {}", self.path, self.status);
                }
                Ok(Err(Failure(error))) => why = error,
                // The last request may have had no time at all.
                Err(_) if limit < ASK_EVERY => {}
                Err(_) => why = silent(),
            }
            if left().is_zero() {
                let why = format!("was not ready within {:?}: {why}", self.timeout);
                return Err(Broken::Failed(FaultCause::TimedOut, why));
            }
            sleep(ASK_EVERY.min(left())).await;
        }
    }

    /// The status of an answer, over a connection of its own: one that is kept may lead to the old site's server.
    async fn ask(&self, address: &ServerAddress) -> Result<u16, Failure> {
        match address {
            ServerAddress::Tcp(address) => {
                self.ask_over(TcpStream::connect(address).await?, &address.to_string()).await
            }
            ServerAddress::Unix(path) => self.ask_over(UnixStream::connect(path).await?, "localhost").await,
        }
    }

    async fn ask_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        host: &str,
    ) -> Result<u16, Failure> {
        let request =
            Request::get(&self.path).header(HOST, host).header(CONNECTION, "close").body(String::new())?;
        let stream = TokioIo::new(stream);
        let (mut sender, connection) =
            http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(stream).await?;
        // It ends with this request, answered or not.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        Ok(sender.send_request(request).await?.status().as_u16())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::*;

    /// Far longer than any test takes, on a busy machine too.
    const LONG: Duration = Duration::from_secs(60);
    /// For what is not to happen.
    const SHORT: Duration = Duration::from_millis(300);

    fn ready(timeout: Duration) -> Ready {
        Ready { addresses: Vec::new(), path: "/healthz?deep".into(), status: 200, timeout }
    }

    /// Gives each connection one of these answers, and then closes it. Tells what it is asked.
    fn answering(at: impl Into<IpAddr>, answers: &'static [&str]) -> (SocketAddr, Receiver<String>) {
        let listener = TcpListener::bind((at.into(), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, told) = sync_channel(answers.len());
        let serve = move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut asked, mut byte) = (String::new(), [0]);
                while !asked.ends_with("\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                    asked.push(byte[0].into());
                }
                tell.send(asked).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        };
        std::thread::spawn(serve);
        (address, told)
    }

    #[test]
    fn a_server_is_ready_when_it_answers_so() {
        const ANSWERS: &[&str] = &[
            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.0 404 Not Found\r\n\r\n",
            "",
            "no HTTP at all\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nsome of it",
        ];
        for at in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            let (address, asked) = answering(at, ANSWERS);
            assert_eq!(ready(LONG).wait(&address.into(), &|| false), Ok(()));
            let asked: Vec<_> = asked.try_iter().collect();
            assert_eq!(asked.len(), ANSWERS.len(), "each over a connection of its own: {asked:?}");
            for request in asked {
                assert!(request.starts_with("GET /healthz?deep HTTP/1.1\r\n"), "{request:?}");
                assert!(request.contains(&format!("\r\nhost: {address}\r\n")), "{request:?}");
            }
        }
    }

    #[test]
    fn another_status_may_be_wanted() {
        let (address, _asked) = answering(Ipv4Addr::LOCALHOST, &["HTTP/1.1 204 No Content\r\n\r\n"]);
        assert_eq!(Ready { status: 204, ..ready(LONG) }.wait(&address.into(), &|| false), Ok(()));
    }

    #[test]
    fn a_server_may_listen_at_a_unix_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.push(byte[0]);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            String::from_utf8(asked).unwrap()
        };
        let server = std::thread::spawn(serve);
        assert_eq!(ready(LONG).wait(&ServerAddress::Unix(path), &|| false), Ok(()));
        let asked = server.join().unwrap();
        assert!(asked.contains("\r\nhost: localhost\r\n"), "{asked:?}");
    }

    fn why(result: Result<(), Broken>) -> String {
        match result {
            Err(Broken::Failed(FaultCause::TimedOut, why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_that_says_nothing_or_does_not_listen_is_not_ready_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let said = why(ready(SHORT).wait(&address.into(), &|| false));
        assert_eq!(said, "was not ready within 300ms: it did not answer GET /healthz?deep");
        drop(listener);
        let said = why(ready(SHORT).wait(&address.into(), &|| false));
        assert!(said.starts_with("was not ready within 300ms: Connection refused"), "{said}");
    }

    #[test]
    fn a_server_that_never_ends_its_head_is_not_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            drop(listener);
            stream.write_all(b"HTTP/1.1 200 OK\r\n").unwrap();
            let mut sent: usize = 0;
            while stream.write_all(b"x-more: and more\r\n").is_ok() && sent < 1 << 30 {
                sent += 18;
            }
            sent
        };
        let server = std::thread::spawn(serve);
        why(ready(SHORT).wait(&address.into(), &|| false));
        assert!(server.join().unwrap() < 1 << 30, "it was read for ever");
    }

    #[test]
    fn nobody_waits_for_a_change_that_is_void() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_asked = || {
            listener.set_nonblocking(true).unwrap();
            listener.accept().is_ok()
        };
        let begun = Instant::now();
        assert_eq!(ready(LONG).wait(&address.into(), &is_asked), Err(Broken::Void));
        assert!(begun.elapsed() < LONG / 2);
    }
}
