//! A client of a cache, over one connection, in memcached's text protocol.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use sidelong_figure::statistics::quantile;

use crate::server::Address;

/// The longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Requests that are made before the time begins, and then sent in turn.
const REQUESTS: usize = 256;
/// Items that are stored at a time.
const STORED: usize = 100;
/// The answer to a get of one key that has no item.
const NOTHING: &[u8] = b"END\r\n";
/// Longest line that says why something was not done.
const LINE_BYTES_MAX: usize = 1024;
/// Longest answer to `stats`.
const STATS_BYTES_MAX: usize = 64 << 10;

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

/// What came of asking for some time.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Asked {
    /// How long each request took until it was answered, in µs, in ascending order.
    pub(super) took_us: Vec<f64>,
    /// Requests that found nothing.
    pub(super) misses: u64,
    pub(super) time: Duration,
}

impl Asked {
    /// A quantile of how long a request took, in µs.
    pub(super) fn quantile(&self, q: f64) -> f64 {
        quantile(&self.took_us, q).expect("at least one request was made")
    }

    /// Requests that were answered in a second.
    pub(super) fn per_s(&self) -> f64 {
        self.took_us.len() as f64 / self.time.as_secs_f64()
    }
}

pub(super) struct Client {
    /// A socket of any kind.
    stream: File,
    answer: Vec<u8>,
}

impl Client {
    pub(super) fn connect(address: &impl Address) -> io::Result<Client> {
        let stream = address.connect()?;
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&stream, timeout, Some(ANSWER_MAX))?;
        }
        Ok(Client { stream: stream.into(), answer: Vec::new() })
    }

    /// Stores all items.
    pub(super) fn fill(&mut self, items: Items<'_>) -> io::Result<()> {
        for keys in items.keys.chunks(STORED) {
            let (request, answer) = written(Request::Sets, Items { keys, ..items });
            self.exchange(&request, &answer)?;
        }
        Ok(())
    }

    /// Asks for `time`, at least once, each time for `count` items at random.
    pub(super) fn ask(
        &mut self,
        items: Items<'_>,
        request: Request,
        count: u32,
        time: Duration,
    ) -> io::Result<Asked> {
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
        let mut asked = Asked { took_us: Vec::new(), misses: 0, time: Duration::ZERO };
        let begun = Instant::now();
        for (request, answer) in requests.iter().cycle() {
            let sent = Instant::now();
            asked.misses += u64::from(!self.exchange(request, answer)?);
            let answered = Instant::now();
            asked.took_us.push((answered - sent).as_secs_f64() * 1e6);
            asked.time = answered - begun;
            if asked.time >= time {
                break;
            }
        }
        asked.took_us.sort_by(f64::total_cmp);
        Ok(asked)
    }

    /// Deletes an item that is not there.
    pub(super) fn delete_absent(&mut self, number: u32) -> io::Result<()> {
        self.exchange(format!("delete {}\r\n", key(number)).as_bytes(), b"NOT_FOUND\r\n").map(drop)
    }

    /// A figure of `stats`.
    pub(super) fn stat(&mut self, name: &str) -> io::Result<u64> {
        self.stream.write_all(b"stats\r\n")?;
        self.answer.resize(STATS_BYTES_MAX, 0);
        let mut read = 0;
        while !self.answer[..read].ends_with(NOTHING) {
            read = self.read_on(read)?;
        }
        let stats = String::from_utf8_lossy(&self.answer[..read]);
        let mut rows = stats.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
        let value = rows.find(|(row, _)| *row == name).and_then(|(_, value)| value.parse().ok());
        value
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("its stats have no number {name}")))
    }

    /// Sends a request, and reads its answer. Returns whether it is the expected one; otherwise nothing was found.
    ///
    /// # Errors
    /// If it is another answer.
    fn exchange(&mut self, request: &[u8], expected: &[u8]) -> io::Result<bool> {
        self.stream.write_all(request)?;
        self.answer.resize(expected.len(), 0);
        let mut read = 0;
        while read < expected.len() {
            let before = read;
            read = self.read_on(read)?;
            if self.answer[before..read] != expected[before..read] {
                return self.other_answer(read);
            }
        }
        Ok(true)
    }

    /// What an answer is that is not the expected one, of which `read` bytes are there.
    fn other_answer(&mut self, mut read: usize) -> io::Result<bool> {
        self.answer.resize(self.answer.len() + LINE_BYTES_MAX, 0);
        while !self.answer[..read].contains(&b'\n') {
            read = self.read_on(read)?;
        }
        if self.answer[..read] == *NOTHING {
            return Ok(false);
        }
        let line = self.answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
        Err(io::Error::new(ErrorKind::InvalidData, format!("it answers {:?}", String::from_utf8_lossy(line))))
    }

    /// Reads more of an answer, of which `read` bytes are there. Returns how many there are then.
    fn read_on(&mut self, read: usize) -> io::Result<usize> {
        loop {
            match self.stream.read(&mut self.answer[read..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => return Ok(read + more),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
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
    use std::net::TcpListener;

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

    /// A client of a server that answers each request with the next of `answers`.
    fn client_of<const N: usize>(answers: [&'static str; N]) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::connect(&listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        std::thread::spawn(move || {
            for answer in answers {
                // The client sends one request at a time, which is short.
                let _ = stream.read(&mut [0; 100]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        client
    }

    #[test]
    fn what_is_not_found_is_counted_and_any_other_answer_is_an_error() {
        let items = Items { keys: &[7], value_bytes: 1 };
        let found = "VALUE key0000007 0 1\r\nx\r\nEND\r\n";
        let mut client =
            client_of([found, "END\r\n", found, "SERVER_ERROR out of memory storing object\r\n"]);
        let mut misses = || client.ask(items, Request::Gets, 1, Duration::ZERO).map(|asked| asked.misses);
        assert_eq!([(); 3].map(|()| misses().unwrap()), [0, 1, 0]);
        let error = misses().unwrap_err().to_string();
        assert_eq!(error, "it answers \"SERVER_ERROR out of memory storing object\"");
        // An answer that is shorter is no reason to wait.
        let error = client_of(["ERROR\r\n"]).delete_absent(7).unwrap_err().to_string();
        assert_eq!(error, "it answers \"ERROR\"");
    }

    #[test]
    fn a_figure_of_stats_has_its_whole_name() {
        let stats = "STAT version 1.0\r\nSTAT forwarded_more 1\r\nSTAT forwarded 23\r\nEND\r\n";
        let mut client = client_of(["NOT_FOUND\r\n", stats, stats, ""]);
        client.delete_absent(7).unwrap();
        assert_eq!(client.stat("forwarded").unwrap(), 23);
        assert!(client.stat("version").unwrap_err().to_string().ends_with("no number version"));
        assert!(client.stat("forwarded").is_err(), "the server has gone");
    }
}
