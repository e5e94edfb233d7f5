//! The initiator's half: all connections of one initiator, run together with one wait and one deadline.
//!
//! Links to regions of one target share a connection, so that a batch's requests and answers travel together. A
//! connection that is late takes no further links, because another target may listen at its address by now.
//!
//! Requests are buffered as they are posted, and each connection sends them with one call. Then answers are read from
//! any connection that has some, while requests that the sockets did not accept at once are sent as they drain. Neither
//! waits for the other.
//!
//! Each request carries its batch's number. A batch that is given up at its deadline discards its unsent requests.
//! Those already sent may still take effect, and their answers are dropped on arrival. The sockets' buffers bound their
//! number, so a stalled target costs its initiator only time.
//!
//! A failed connection stays down: operations end with `PeerGone` until the caller closes the link and connects again.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;

use crate::access::Token;
use crate::batch::Request;
use crate::key::Key;
use crate::limits::OP_BYTES_MAX;
use crate::tcp::fifo::is_transient;
use crate::tcp::server::{prepare, timespec};
use crate::tcp::wire::{self, Answer, Claim, Hello, Malformed, Tag, Unwelcome};
use crate::{Access, Batch, Error, LinkId, OpError};

/// Bytes read from a socket at once.
const SCRATCH_BYTES: usize = 64 << 10;
/// Sockets handled at once.
const EVENTS_MAX: usize = 64;

/// A link to one region of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// By its number among the connections.
    connection: usize,
    /// The region's number on the connection.
    region: u16,
    /// The region's length.
    len: usize,
    /// The key's rights.
    access: Access,
}

/// The tcp connections of one initiator.
pub(crate) struct Links {
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    /// Connections that the current batch uses.
    used: Vec<usize>,
    /// Number of the current batch.
    batch: u32,
    /// Operations of the current batch without an outcome yet.
    open: usize,
    scratch: Box<[u8]>,
}

#[derive(Debug)]
struct Connection {
    /// `None` once the connection is down.
    stream: Option<TcpStream>,
    /// Where the target listens.
    address: SocketAddr,
    /// The regions' numbers in use, one bit each.
    regions: u64,
    /// Whether the last batch was given up before all its answers arrived.
    late: bool,
    /// Frames to send; the first `sent` bytes are sent.
    outgoing: Vec<u8>,
    sent: usize,
    /// Whether the socket is watched for writability.
    watched: bool,
    /// Operations of this batch that are not yet answered, in order.
    posted: VecDeque<Posted>,
    incoming: Incoming,
}

#[derive(Debug)]
struct Posted {
    index: u32,
    /// The region's length.
    region: usize,
    /// Start of its frame in `outgoing`.
    start: usize,
}

/// The answer being received.
#[derive(Debug)]
enum Incoming {
    Frame {
        bytes: [u8; wire::ANSWER_BYTES],
        filled: usize,
    },
    /// `left` bytes of payload: for the first posted operation from byte `at` on, or to be dropped.
    Payload {
        wanted: bool,
        at: usize,
        left: usize,
    },
}

const _: () = assert!(wire::REGIONS_MAX as u32 == u64::BITS);

const NEXT_FRAME: Incoming = Incoming::Frame { bytes: [0; wire::ANSWER_BYTES], filled: 0 };

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("connections", &self.connections).finish_non_exhaustive()
    }
}

impl Links {
    pub(crate) fn new() -> io::Result<Links> {
        Ok(Links {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Vec::new(),
            used: Vec::new(),
            batch: 0,
            open: 0,
            scratch: vec![0; SCRATCH_BYTES].into(),
        })
    }

    /// Links to the region of `key`, over an existing connection or a new one.
    pub(crate) fn connect(
        &mut self,
        key: &Key,
        address: SocketAddr,
        token: Token,
        deadline: Instant,
    ) -> Result<Link, Error> {
        let shares =
            |other: &Option<Connection>| other.as_ref().is_some_and(|other| other.is_shared(address));
        let claimed = self.connections.iter().position(shares).map(|at| self.claim(at, key, token, deadline));
        let (connection, region) = match claimed {
            Some(Ok(claimed)) => claimed,
            Some(Err(reason)) if reason != OpError::PeerGone => {
                return Err(Error::Refused { name: key.name.clone(), reason });
            }
            Some(Err(_)) | None => (self.open(key, address, token, deadline)?, 0),
        };
        let opened = self.connections[connection].as_mut().expect("it was just used");
        opened.regions |= 1 << region;
        Ok(Link { connection, region, len: key.len, access: key.access })
    }

    /// Claims one more region on a connection; returns the connection and the region's number there.
    fn claim(
        &mut self,
        slot: usize,
        key: &Key,
        token: Token,
        deadline: Instant,
    ) -> Result<(usize, u16), OpError> {
        let connection = self.connections[slot].as_mut().expect("it is shared");
        let region = connection.regions.trailing_ones() as u16;
        let tag = Tag { batch: self.batch, index: 0 };
        // A claim is answered like a write.
        let mut batch = Batch::new();
        let answered = batch.write(LinkId::default(), 0, &[]);
        batch.finish(0, Err(OpError::Timeout));
        connection.posted.push_back(Posted { index: 0, region: key.len, start: connection.outgoing.len() });
        connection.outgoing.extend_from_slice(&Claim { tag, region, token, name: &key.name }.encode());
        self.used.push(slot);
        self.open += 1;
        self.complete(&mut batch, deadline);
        batch.words(answered).map(|_| (slot, region))
    }

    /// Connects and sends the hello; returns the connection's number.
    fn open(
        &mut self,
        key: &Key,
        address: SocketAddr,
        token: Token,
        deadline: Instant,
    ) -> Result<usize, Error> {
        let failed = |source| Error::Connect { address, source };
        let mut stream = TcpStream::connect_timeout(&address, system_timeout(deadline)).map_err(failed)?;
        let frame = Hello { token, name: &key.name }.encode();
        let greeting =
            prepare(&stream).and_then(|()| greet(&mut stream, &frame, deadline)).map_err(failed)?;
        match wire::Greeting::decode(&greeting) {
            Ok(()) => {}
            Err(Unwelcome::Key) => {
                return Err(Error::Refused { name: key.name.clone(), reason: OpError::KeyRejected });
            }
            Err(Unwelcome::Layout(source)) => return Err(Error::Header { name: key.name.clone(), source }),
            Err(Unwelcome::Protocol(found)) => {
                return Err(other(address, format!("it speaks version {found}")));
            }
            Err(Unwelcome::NotSidelong) => {
                return Err(other(address, "it answered something else".to_owned()));
            }
        }
        let slot = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        let registered = stream.set_nonblocking(true).and_then(|()| {
            let data = epoll::EventData::new_u64(slot as u64);
            Ok(epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?)
        });
        registered.map_err(failed)?;
        if slot == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[slot] = Some(Connection::new(stream, address));
        Ok(slot)
    }

    pub(crate) fn close(&mut self, link: Link) {
        let Some(Some(connection)) = self.connections.get_mut(link.connection) else { return };
        connection.regions &= !(1 << link.region);
        if connection.regions == 0 {
            self.connections[link.connection] = None;
        }
    }

    /// Adds an operation for `complete` to run.
    pub(crate) fn post(&mut self, link: Link, batch: &mut Batch, index: usize) {
        let connection = self.connections[link.connection].as_mut().expect("an open link has a connection");
        let Request { kind, len, .. } = batch.op(index).request;
        if len > OP_BYTES_MAX {
            return batch.finish(index, Err(OpError::TooLong { len }));
        }
        if !kind.is_granted(link.access) {
            return batch.finish(index, Err(OpError::ReadOnly));
        }
        if connection.stream.is_none() {
            return batch.finish(index, Err(OpError::PeerGone));
        }
        if connection.posted.is_empty() {
            self.used.push(link.connection);
        }
        connection.post(Tag { batch: self.batch, index: index as u32 }, link, batch);
        // The outcome if no answer arrives.
        batch.finish(index, Err(OpError::Timeout));
        self.open += 1;
    }

    /// Runs the posted operations until the last answer or the deadline.
    pub(crate) fn complete(&mut self, batch: &mut Batch, deadline: Instant) {
        for slot in 0..self.used.len() {
            self.serve(self.used[slot], epoll::EventFlags::OUT, batch);
        }
        let mut events = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        while self.open > 0 {
            // After the deadline, answers that have arrived still count.
            let left = deadline.saturating_duration_since(Instant::now());
            match epoll::wait(&self.epoll, &mut events[..], Some(&timespec(left))) {
                Ok((ready, _)) => {
                    for &mut epoll::Event { flags, data } in ready {
                        self.serve(data.u64() as usize, flags, batch);
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the tcp links cannot be waited for");
                    break;
                }
            }
            if left.is_zero() {
                break;
            }
        }
        for slot in self.used.drain(..) {
            if let Some(connection) = &mut self.connections[slot] {
                connection.give_up();
            }
        }
        self.open = 0;
        self.batch = self.batch.wrapping_add(1);
    }

    /// Sends and receives on a connection that is ready.
    fn serve(&mut self, slot: usize, ready: epoll::EventFlags, batch: &mut Batch) {
        let Some(connection) = &mut self.connections[slot] else { return };
        let posted = connection.posted.len();
        let mut served = connection.send(&self.epoll, slot);
        if served.is_ok() && ready != epoll::EventFlags::OUT {
            served = connection.receive(&mut self.scratch, self.batch, batch);
        }
        if let Err(error) = served {
            tracing::debug!(%error, "a tcp connection is down");
            connection.fail(batch);
        }
        self.open -= posted - connection.posted.len();
    }
}

impl Connection {
    fn new(stream: impl Into<Option<TcpStream>>, address: SocketAddr) -> Connection {
        Connection {
            stream: stream.into(),
            address,
            regions: 0,
            late: false,
            outgoing: Vec::new(),
            sent: 0,
            watched: false,
            posted: VecDeque::new(),
            incoming: NEXT_FRAME,
        }
    }

    /// Whether one more region of the target at `address` can use this connection.
    fn is_shared(&self, address: SocketAddr) -> bool {
        self.address == address && self.stream.is_some() && !self.late && self.regions != u64::MAX
    }

    fn post(&mut self, tag: Tag, link: Link, batch: &Batch) {
        let index = tag.index as usize;
        let request = &batch.op(index).request;
        self.posted.push_back(Posted { index: tag.index, region: link.len, start: self.outgoing.len() });
        self.outgoing.extend_from_slice(&wire::encode_request(tag, link.region, request));
        if request.kind.carries() {
            for word in batch.buffer(index) {
                self.outgoing.extend_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// Sends what the socket accepts, and watches for writability if something is left.
    fn send(&mut self, epoll: &OwnedFd, slot: usize) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if self.sent < self.outgoing.len() {
            match stream.write(&self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let unsent = self.sent < self.outgoing.len();
        if unsent != self.watched {
            let mut interest = epoll::EventFlags::IN;
            interest.set(epoll::EventFlags::OUT, unsent);
            epoll::modify(epoll, stream, epoll::EventData::new_u64(slot as u64), interest)?;
            self.watched = unsent;
        }
        Ok(())
    }

    /// Reads once, and takes the answers.
    fn receive(&mut self, scratch: &mut [u8], number: u32, batch: &mut Batch) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let count = match stream.read(scratch) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if is_transient(&error) => return Ok(()),
            read => read?,
        };
        self.take(&scratch[..count], number, batch)
            .map_err(|Malformed| io::Error::new(io::ErrorKind::InvalidData, "a malformed answer"))
    }

    /// Takes received bytes, wherever they were split.
    fn take(&mut self, mut bytes: &[u8], number: u32, batch: &mut Batch) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            match &mut self.incoming {
                Incoming::Frame { bytes: frame, filled } => {
                    let count = bytes.len().min(frame.len() - *filled);
                    frame[*filled..*filled + count].copy_from_slice(&bytes[..count]);
                    *filled += count;
                    bytes = &bytes[count..];
                    if *filled == frame.len() {
                        let answer = Answer::decode(frame)?;
                        self.incoming = NEXT_FRAME;
                        self.begin(answer, number, batch)?;
                    }
                }
                Incoming::Payload { wanted, at, left } => {
                    let count = bytes.len().min(*left);
                    if let (true, Some(posted)) = (*wanted, self.posted.front()) {
                        let words = batch.buffer_mut(posted.index as usize);
                        let buffer: &mut [u8] = bytemuck::cast_slice_mut(words);
                        buffer[*at..*at + count].copy_from_slice(&bytes[..count]);
                        if count == *left {
                            words.iter_mut().for_each(|word| *word = u64::from_le(*word));
                        }
                    }
                    *at += count;
                    *left -= count;
                    bytes = &bytes[count..];
                    if *left == 0 {
                        let wanted = *wanted;
                        self.incoming = NEXT_FRAME;
                        if wanted {
                            self.finish(Ok(()), batch);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Handles the frame of an answer.
    fn begin(&mut self, answer: Answer, number: u32, batch: &mut Batch) -> Result<(), Malformed> {
        let wanted = answer.tag.batch == number;
        if wanted {
            let first = self.posted.front().ok_or(Malformed)?;
            let request = batch.op(first.index as usize).request;
            let outcome = answer.status.outcome(&request, first.region);
            let brings = outcome.is_ok() && !request.kind.carries();
            let expected = if brings { request.words() * 8 } else { 0 };
            if first.index != answer.tag.index || answer.len != expected {
                return Err(Malformed);
            }
            if answer.len == 0 {
                self.finish(outcome, batch);
            }
        }
        if answer.len > 0 {
            self.incoming = Incoming::Payload { wanted, at: 0, left: answer.len };
        }
        Ok(())
    }

    /// Gives the first posted operation its outcome.
    fn finish(&mut self, outcome: Result<(), OpError>, batch: &mut Batch) {
        if let Some(posted) = self.posted.pop_front() {
            batch.finish(posted.index as usize, outcome);
        }
    }

    /// Ends the batch: discards its unsent frames, except one that is partly sent.
    fn give_up(&mut self) {
        if let Some(unsent) = self.posted.iter().find(|posted| posted.start >= self.sent) {
            self.outgoing.truncate(unsent.start);
        }
        self.late = !self.posted.is_empty();
        self.posted.clear();
        self.outgoing.drain(..self.sent);
        self.sent = 0;
        if let Incoming::Payload { wanted, .. } = &mut self.incoming {
            *wanted = false;
        }
    }

    /// Marks the connection as down.
    fn fail(&mut self, batch: &mut Batch) {
        for posted in self.posted.drain(..) {
            batch.finish(posted.index as usize, Err(OpError::PeerGone));
        }
        self.stream = None;
        self.outgoing = Vec::new();
        self.sent = 0;
        self.incoming = NEXT_FRAME;
    }
}

/// Sends the hello and reads the greeting.
fn greet(stream: &mut TcpStream, hello: &[u8], deadline: Instant) -> io::Result<[u8; wire::GREETING_BYTES]> {
    let mut greeting = [0; wire::GREETING_BYTES];
    let mut filled = 0;
    // The hello fits in a new socket's buffer.
    stream.write_all(hello)?;
    while filled < greeting.len() {
        if deadline <= Instant::now() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the target did not greet in time"));
        }
        stream.set_read_timeout(Some(system_timeout(deadline)))?;
        match stream.read(&mut greeting[filled..]) {
            Ok(0) => {
                let reason = "the target closed the connection without a greeting";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
            }
            Ok(count) => filled += count,
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(greeting)
}

/// The time left as a socket option, for which 0 would mean no limit.
fn system_timeout(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

fn other(address: SocketAddr, found: String) -> Error {
    Error::Protocol { address, expected: wire::PROTOCOL, found }
}

#[cfg(any(test, fuzzing))]
const BATCH: u32 = 7;

/// A connection on which a read of two words, a write and an addition wait for their answers.
#[cfg(any(test, fuzzing))]
fn waiting() -> (Connection, Batch) {
    let region = Link { connection: 0, region: 0, len: 1024, access: Access::Atomic };
    let (mut link, mut batch) = (Connection::new(None, ([127, 0, 0, 1], 1).into()), Batch::new());
    batch.read(LinkId::default(), 0, 12);
    batch.write(LinkId::default(), 64, &[1]);
    batch.fetch_and_add(LinkId::default(), 64, 1);
    for index in 0..3 {
        link.post(Tag { batch: BATCH, index }, region, &batch);
    }
    (link, batch)
}

/// Has a connection that waits for three answers take these bytes.
#[cfg(fuzzing)]
pub fn fuzz_link(bytes: &[u8]) {
    let (mut link, mut batch) = waiting();
    for part in bytes.chunks(23) {
        if link.take(part, BATCH, &mut batch).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tcp::wire::Status;

    fn answer(batch: u32, index: u32, words: &[u64]) -> Vec<u8> {
        let tag = Tag { batch, index };
        let frame = Answer { tag, status: Status::Done, len: size_of_val(words) }.encode();
        frame.into_iter().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
    }

    #[test]
    fn what_no_target_answers_is_malformed() {
        let wrong = [
            answer(BATCH, 1, &[]),        // not the first that waits
            answer(BATCH, 0, &[1]),       // shorter than asked
            answer(BATCH, 0, &[1, 2, 3]), // longer
            answer(BATCH, 9, &[]),        // never posted
        ];
        for bytes in wrong {
            let (mut link, mut batch) = waiting();
            assert_eq!(link.take(&bytes, BATCH, &mut batch), Err(Malformed));
        }
        let (mut link, mut batch) = waiting();
        link.give_up();
        assert_eq!(link.take(&answer(BATCH, 0, &[1, 2]), BATCH, &mut batch), Err(Malformed), "nobody waits");
    }

    #[test]
    fn a_batch_that_is_given_up_takes_back_what_was_not_sent() {
        for (sent, kept) in [(0, 0), (1, 39), (39, 1), (40, 0), (41, 47), (87, 1), (88, 0), (128, 0)] {
            let (mut link, _) = waiting();
            assert_eq!(link.outgoing.len(), 128);
            link.sent = sent;
            link.give_up();
            assert_eq!((link.outgoing.len(), link.sent), (kept, 0), "after {sent} bytes");
        }
    }

    proptest! {
        /// Answers may be split anywhere, and late answers of earlier batches come first.
        #[test]
        fn answers_find_their_operations(late in prop::collection::vec(0usize..20, 0..5), cut in 1usize..100) {
            let (mut link, mut batch) = waiting();
            let late = late.iter().flat_map(|words| answer(BATCH - 1, 0, &vec![u64::MAX; *words]));
            let wanted = [answer(BATCH, 0, &[10, 11]), answer(BATCH, 1, &[]), answer(BATCH, 2, &[12])];
            let bytes: Vec<u8> = late.chain(wanted.concat()).collect();
            for part in bytes.chunks(cut) {
                prop_assert_eq!(link.take(part, BATCH, &mut batch), Ok(()));
            }
            prop_assert!(link.posted.is_empty());
            prop_assert_eq!([batch.buffer(0), batch.buffer(1), batch.buffer(2)], [&[10, 11][..], &[1], &[12]]);
        }

        #[test]
        fn a_link_takes_any_bytes(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..100), 0..20)) {
            let (mut link, mut batch) = waiting();
            for part in parts {
                if link.take(&part, BATCH, &mut batch).is_err() {
                    break;
                }
            }
        }

        /// Frames that are valid but for their numbers reach deeper than random bytes do.
        #[test]
        fn a_link_takes_any_answers(answers in prop::collection::vec((BATCH - 1..=BATCH, 0u32..4, 0usize..4), 0..20)) {
            let (mut link, mut batch) = waiting();
            for (number, index, words) in answers {
                if link.take(&answer(number, index, &vec![5; words]), BATCH, &mut batch).is_err() {
                    break;
                }
            }
        }
    }
}
