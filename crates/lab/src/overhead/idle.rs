//! Memory of idle connections: the growth of a proxy's resident memory while clients hold connections that have carried one
//! request each.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::server::Server;
use crate::turn::Asked;

/// Time limit for a connection to be made and its request to be answered.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Time between the last answer and the reading of memory, in which the proxy may release what it can.
const SETTLE: Duration = Duration::from_millis(500);
/// Longest line of an answer's head, and most lines of it.
const LINE_BYTES_MAX: u64 = 8192;
const LINES_MAX: usize = 100;

/// The growth of the server's memory with `count` connections, in bytes for each. They are made one after another, so that the
/// proxy needs one connection to its server.
///
/// # Errors
/// If a connection is not served, or `stop` is raised.
pub(super) fn bytes_per_connection(
    server: &Server,
    asked: &Asked,
    count: u32,
    stop: &AtomicBool,
) -> Result<f64> {
    let connect = || {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        ask(server, asked).map_err(|error| server.failed(format!("an idle connection: {error}")))
    };
    // What the first one needs, the process needs for all.
    let _first = connect()?;
    let before = server.process.resident_bytes()?;
    let held = (0..count).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(SETTLE);
    let after = server.process.resident_bytes()?;
    drop(held);
    Ok(after.saturating_sub(before) as f64 / f64::from(count.max(1)))
}

/// A connection to a proxy.
trait Connection: Read + Write {}
impl<T: Read + Write> Connection for T {}

/// A connection that has carried one request.
fn ask(server: &Server, asked: &Asked) -> io::Result<Box<dyn Connection>> {
    let stream = TcpStream::connect_timeout(&server.address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_nodelay(true)?;
    let mut connection: Box<dyn Connection> = match &asked.secure {
        Some(secure) => Box::new(secure.blocking(stream)?),
        None => Box::new(stream),
    };
    exchange(&mut connection, asked.host, asked.path)?;
    Ok(connection)
}

/// Sends a request and reads the answer to its end.
fn exchange(mut stream: impl Read + Write, host: &str, path: &str) -> io::Result<()> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes())?;
    let unexpected = |line: &str| io::Error::other(format!("answered {:?}", line.trim_end()));
    // Nothing follows the answer, so nothing is lost with the buffer.
    let mut from = BufReader::new(stream);
    let mut line = String::new();
    let next = |line: &mut String, from: &mut dyn BufRead| {
        line.clear();
        from.take(LINE_BYTES_MAX).read_line(line)
    };
    next(&mut line, &mut from)?;
    if !line.starts_with("HTTP/1.1 200 ") {
        return Err(unexpected(&line));
    }
    let mut bytes = None;
    for _ in 0..LINES_MAX {
        next(&mut line, &mut from)?;
        if line.trim_end().is_empty() {
            let bytes = bytes.ok_or_else(|| unexpected("no content-length"))?;
            let read = io::copy(&mut from.take(bytes), &mut io::sink())?;
            return if read == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            bytes = value.trim().parse().ok();
        }
    }
    Err(unexpected("too many headers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection on which the server has said this.
    struct Said(&'static [u8]);

    impl Read for Said {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_answer_is_read_to_its_end() {
        let of = |said| exchange(Said(said), "a.example", "/").map_err(|error| error.to_string());
        assert_eq!(of(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"), Ok(()));
        assert_eq!(of(b"HTTP/1.1 503 No\r\n\r\n"), Err("answered \"HTTP/1.1 503 No\"".into()));
        assert!(of(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").is_err());
        assert!(of(b"HTTP/1.1 200 OK\r\n\r\nabc").is_err());
        assert!(of(b"").is_err());
    }
}
