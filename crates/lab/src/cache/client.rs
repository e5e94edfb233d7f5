//! A client of a cache, over one connection, in memcached's text protocol.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Requests that are made before the time begins, and then sent in turn.
const REQUESTS: usize = 256;
/// Requests between two looks at the clock.
const BETWEEN: usize = 16;
/// Items that are stored at a time.
const STORED: usize = 100;

/// Items, whose values are all alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items<'a> {
    /// Their keys, by number.
    pub(super) keys: &'a [u32],
    pub(super) value_bytes: usize,
}

/// How the client asks for some items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// A get for each.
    Gets,
    /// One get.
    Multiget,
    /// A set for each.
    Sets,
}

pub(super) struct Client {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Client { stream, answer: Vec::new() })
    }

    /// Stores all items.
    pub(super) fn fill(&mut self, items: Items<'_>) -> io::Result<()> {
        for keys in items.keys.chunks(STORED) {
            let (request, answer) = written(Request::Sets, Items { keys, ..items });
            self.exchange(&request, &answer)?;
        }
        Ok(())
    }

    /// Asks for `time`, each time for `count` items at random. Returns how many were got or set, and the time that it took.
    pub(super) fn ask(
        &mut self,
        items: Items<'_>,
        request: Request,
        count: u32,
        time: Duration,
    ) -> io::Result<(u64, Duration)> {
        let mut number = 1_u64;
        let mut next = |_| {
            // D. Knuth's MMIX generator: which keys they are makes no difference, as long as they are not in a row.
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            items.keys[(number >> 33) as usize % items.keys.len()]
        };
        let mut one = || {
            let keys: Vec<u32> = (0..count).map(&mut next).collect();
            written(request, Items { keys: &keys, ..items })
        };
        let requests: Vec<_> = (0..REQUESTS).map(|_| one()).collect();
        let (begun, mut done) = (Instant::now(), 0);
        for some in requests.chunks(BETWEEN).cycle() {
            for (request, answer) in some {
                self.exchange(request, answer)?;
                done += u64::from(count);
            }
            if begun.elapsed() >= time {
                break;
            }
        }
        Ok((done, begun.elapsed()))
    }

    /// Sends a request, and reads its answer, which must be the expected one.
    fn exchange(&mut self, request: &[u8], expected: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)?;
        self.answer.resize(expected.len(), 0);
        self.stream.read_exact(&mut self.answer)?;
        if self.answer == expected {
            return Ok(());
        }
        let line = self.answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
        Err(io::Error::new(ErrorKind::InvalidData, format!("it answers {:?}", String::from_utf8_lossy(line))))
    }
}

fn key(number: u32) -> String {
    format!("key{number:07}")
}

/// The bytes of a request for all items, and those of its answer.
fn written(request: Request, Items { keys, value_bytes }: Items<'_>) -> (Vec<u8>, Vec<u8>) {
    let value = "x".repeat(value_bytes);
    let found = |number| format!("VALUE {} 0 {value_bytes}\r\n{value}\r\n", key(number));
    let all = |of: &dyn Fn(u32) -> String| keys.iter().map(|number| of(*number)).collect::<String>();
    let (request, answer) = match request {
        Request::Gets => (
            all(&|number| format!("get {}\r\n", key(number))),
            all(&|number| format!("{}END\r\n", found(number))),
        ),
        Request::Multiget => {
            (format!("get{}\r\n", all(&|number| format!(" {}", key(number)))), all(&found) + "END\r\n")
        }
        Request::Sets => (
            all(&|number| format!("set {} 0 0 {value_bytes}\r\n{value}\r\n", key(number))),
            "STORED\r\n".repeat(keys.len()),
        ),
    };
    (request.into_bytes(), answer.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_memcacheds() {
        let of = |request| {
            let (request, answer) = written(request, Items { keys: &[1, 20], value_bytes: 2 });
            [request, answer].map(|bytes| String::from_utf8(bytes).unwrap())
        };
        let (one, two) = ("VALUE key0000001 0 2\r\nxx\r\n", "VALUE key0000020 0 2\r\nxx\r\n");
        assert_eq!(
            of(Request::Multiget),
            ["get key0000001 key0000020\r\n".into(), format!("{one}{two}END\r\n")]
        );
        assert_eq!(of(Request::Gets)[1], format!("{one}END\r\n{two}END\r\n"));
        let set = "set key0000001 0 0 2\r\nxx\r\nset key0000020 0 0 2\r\nxx\r\n";
        assert_eq!(of(Request::Sets), [set, "STORED\r\nSTORED\r\n"]);
    }
}
