//! Clients that go on whatever happens, and note what they saw.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a connection, and for the next bytes of an answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Between an answer and the next request.
const PAUSE: Duration = Duration::from_millis(4);
/// A site asks more than the others for so long, and then the next one.
pub(super) const TURN: Duration = Duration::from_secs(3);
/// In its turn it has so many clients at each front, and otherwise one.
const BUSY: usize = 6;
const ANSWER_BYTES_MAX: usize = 4096;

/// What a client asked, and what came of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Asked {
    pub(super) from: Instant,
    pub(super) until: Instant,
    /// Front and site, by their places.
    pub(super) front: usize,
    pub(super) site: usize,
    pub(super) end: End,
}

impl Asked {
    pub(super) fn has_failed(&self) -> bool {
        !matches!(self.end, End::Answered(_))
    }
}

/// How a request ended.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum End {
    /// With the right answer, by the node of that name.
    Answered(String),
    /// With another answer than that which was asked for.
    Wrong(String),
    /// Without one.
    Failed(String),
}

/// Asks each front for each site until it is over.
pub(super) fn ask(fronts: &[SocketAddr], sites: &[&str], over: &AtomicBool) -> Vec<Asked> {
    let number = AtomicU64::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for (front, address) in fronts.iter().enumerate() {
            for (site, name) in sites.iter().enumerate() {
                for client in 0..BUSY {
                    let number = &number;
                    let is_on = move || {
                        let turn = (began.elapsed().as_millis() / TURN.as_millis()) as usize;
                        client == 0 || turn % sites.len() == site
                    };
                    clients.push(scope.spawn(move || {
                        let mut client = Client { address: *address, stream: None };
                        let mut asked = Vec::new();
                        while !over.load(Ordering::Relaxed) {
                            if is_on() {
                                let number = number.fetch_add(1, Ordering::Relaxed);
                                let from = Instant::now();
                                let end = client.ask(name, number);
                                asked.push(Asked { from, until: Instant::now(), front, site, end });
                            }
                            std::thread::sleep(PAUSE);
                        }
                        asked
                    }));
                }
            }
        }
        clients.into_iter().flat_map(|client| client.join().expect("it does not panic")).collect()
    })
}

struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

impl Client {
    fn ask(&mut self, host: &str, number: u64) -> End {
        let path = format!("/{number}");
        match self.answer(host, &path) {
            Ok((200, body)) => {
                let mut words = body.split_whitespace();
                match (words.next(), words.next(), words.next()) {
                    (Some(node), Some(its), Some(told)) if its == host && told == path => {
                        End::Answered(node.to_owned())
                    }
                    _ => End::Wrong(body),
                }
            }
            Ok((status, body)) => End::Failed(format!("{status} {}", body.trim())),
            Err(error) => {
                self.stream = None;
                End::Failed(error.to_string())
            }
        }
    }

    /// Status and body, on a connection that is kept.
    fn answer(&mut self, host: &str, path: &str) -> io::Result<(u16, String)> {
        let is_kept = self.stream.is_some();
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => TcpStream::connect_timeout(&self.address, ANSWER_MAX)?,
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        let mut bytes = Vec::new();
        let sent = stream.write_all(request.as_bytes());
        let first = sent.and_then(|()| more(&mut stream, &mut bytes));
        match first {
            // A server may close what nothing is under way on: who has kept that asks again (RFC 9112, 9.3.1).
            Ok(0) | Err(_) if is_kept && bytes.is_empty() && !is_late(&first) => {
                return self.answer(host, path);
            }
            Ok(0) => return Err(io::Error::other("closed without an answer")),
            first => first?,
        };
        loop {
            if let Some((status, body, closes)) = whole(&bytes)? {
                self.stream = (!closes).then_some(stream);
                return Ok((status, body));
            }
            if more(&mut stream, &mut bytes)? == 0 {
                return Err(io::Error::other("closed within an answer"));
            }
        }
    }
}

fn is_late(read: &io::Result<usize>) -> bool {
    read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let mut part = [0; 1024];
    let count = stream.read(&mut part)?;
    bytes.extend_from_slice(&part[..count]);
    if bytes.len() > ANSWER_BYTES_MAX {
        return Err(io::Error::other("an answer longer than any that a server gives"));
    }
    Ok(count)
}

/// Status, body, and whether the connection ends with it; `None` while it is not whole.
fn whole(bytes: &[u8]) -> io::Result<Option<(u16, String, bool)>> {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(None) };
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("no answer of HTTP"))?;
    let closes = field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    if field("transfer-encoding").is_some() {
        let Some(end) = body.find("0\r\n\r\n") else { return Ok(None) };
        return Ok(Some((status, body[..end].to_owned(), closes)));
    }
    let length: usize = field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    Ok(body.get(..length).map(|body| (status, body.to_owned(), closes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nn1\n";
        for end in 0..answer.len() {
            assert_eq!(whole(&answer[..end]).unwrap_or(None), None, "{end}");
        }
        assert_eq!(whole(answer).unwrap(), Some((200, "n1\n".to_owned(), true)));
    }
}
