//! The initiator's half: all links of one initiator, run together with one wait and one deadline.
//!
//! Requests are buffered as they are posted and sent with one call a link; then answers are taken from whichever link
//! has some, while what the sockets would not take at once is sent as they empty: the two never wait for each other.
//!
//! Each request carries its batch's number. A batch that is given up at its deadline takes back what has not been sent;
//! what was sent may still take effect, and its answers are dropped when they come. They can be no more than the
//! sockets' buffers held, so a target that sleeps costs its initiator nothing but time.
//!
//! A link that failed stays down: its operations end with `PeerGone` until the caller closes it and connects anew.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;

use crate::batch::{OP_BYTES_MAX, Request};
use crate::key::{Key, Token};
use crate::tcp::fifo::is_transient;
use crate::tcp::server::{prepare, timespec};
use crate::tcp::wire::{self, Answer, Hello, Malformed, Tag, Unwelcome};
use crate::{Access, Batch, Error, OpError};

/// What is read from a socket at once.
const SCRATCH_BYTES: usize = 64 << 10;
/// Sockets looked at together.
const EVENTS_MAX: usize = 64;

/// The tcp links of one initiator.
pub(crate) struct Links {
    epoll: OwnedFd,
    links: Vec<Option<Link>>,
    /// Those that the batch under way uses.
    used: Vec<usize>,
    /// Its number.
    batch: u32,
    /// Operations of it that have no outcome yet.
    open: usize,
    scratch: Box<[u8]>,
}

#[derive(Debug)]
struct Link {
    /// `None` once the link is down.
    stream: Option<TcpStream>,
    /// The region's length.
    region: usize,
    /// The key's rights.
    access: Access,
    /// Frames to send, of which `sent` bytes are gone.
    outgoing: Vec<u8>,
    sent: usize,
    /// Whether the socket is watched for room.
    watched: bool,
    /// Posted in this batch and not yet answered, in order.
    posted: VecDeque<Posted>,
    incoming: Incoming,
}

#[derive(Debug)]
struct Posted {
    index: u32,
    /// Where its frame begins in `outgoing`.
    start: usize,
}

/// The answer that is being received.
#[derive(Debug)]
enum Incoming {
    Frame {
        bytes: [u8; wire::ANSWER_BYTES],
        filled: usize,
    },
    /// `left` bytes of payload, for the first that is posted from byte `at` on, or for nobody.
    Payload {
        wanted: bool,
        at: usize,
        left: usize,
    },
}

const NEXT_FRAME: Incoming = Incoming::Frame { bytes: [0; wire::ANSWER_BYTES], filled: 0 };

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("links", &self.links).finish_non_exhaustive()
    }
}

impl Links {
    pub(crate) fn new() -> io::Result<Links> {
        Ok(Links {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            links: Vec::new(),
            used: Vec::new(),
            batch: 0,
            open: 0,
            scratch: vec![0; SCRATCH_BYTES].into(),
        })
    }

    /// Connects and says hello; the link's number.
    pub(crate) fn connect(
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
        let slot = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        let registered = stream.set_nonblocking(true).and_then(|()| {
            let data = epoll::EventData::new_u64(slot as u64);
            Ok(epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?)
        });
        registered.map_err(failed)?;
        if slot == self.links.len() {
            self.links.push(None);
        }
        self.links[slot] = Some(Link::new(stream, key.len, key.access));
        Ok(slot)
    }

    pub(crate) fn close(&mut self, slot: usize) {
        self.links[slot] = None;
    }

    /// Adds an operation to what `complete` will run.
    pub(crate) fn post(&mut self, slot: usize, batch: &mut Batch, index: usize) {
        let link = self.links[slot].as_mut().expect("an open link's number");
        let Request { kind, len, .. } = batch.op(index).request;
        if len > OP_BYTES_MAX {
            return batch.finish(index, Err(OpError::TooLong { len }));
        }
        if !kind.is_granted(link.access) {
            return batch.finish(index, Err(OpError::ReadOnly));
        }
        if link.stream.is_none() {
            return batch.finish(index, Err(OpError::PeerGone));
        }
        if link.posted.is_empty() {
            self.used.push(slot);
        }
        link.post(Tag { batch: self.batch, index: index as u32 }, batch);
        // What is to be said of it if nothing comes.
        batch.finish(index, Err(OpError::Timeout));
        self.open += 1;
    }

    /// Runs what was posted until the last answer or the deadline.
    pub(crate) fn complete(&mut self, batch: &mut Batch, deadline: Instant) {
        for slot in 0..self.used.len() {
            self.serve(self.used[slot], epoll::EventFlags::OUT, batch);
        }
        let mut events = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        while self.open > 0 {
            // A deadline that has passed is still good for what has already come.
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
            if let Some(link) = &mut self.links[slot] {
                link.give_up();
            }
        }
        self.open = 0;
        self.batch = self.batch.wrapping_add(1);
    }

    /// Sends and receives on a link that is ready for it.
    fn serve(&mut self, slot: usize, ready: epoll::EventFlags, batch: &mut Batch) {
        let Some(link) = &mut self.links[slot] else { return };
        let posted = link.posted.len();
        let mut served = link.send(&self.epoll, slot);
        if served.is_ok() && ready != epoll::EventFlags::OUT {
            served = link.receive(&mut self.scratch, self.batch, batch);
        }
        if let Err(error) = served {
            tracing::debug!(%error, "a tcp link is down");
            link.fail(batch);
        }
        self.open -= posted - link.posted.len();
    }
}

impl Link {
    fn new(stream: impl Into<Option<TcpStream>>, region: usize, access: Access) -> Link {
        Link {
            stream: stream.into(),
            region,
            access,
            outgoing: Vec::new(),
            sent: 0,
            watched: false,
            posted: VecDeque::new(),
            incoming: NEXT_FRAME,
        }
    }

    fn post(&mut self, tag: Tag, batch: &Batch) {
        let index = tag.index as usize;
        let request = &batch.op(index).request;
        self.posted.push_back(Posted { index: tag.index, start: self.outgoing.len() });
        self.outgoing.extend_from_slice(&wire::encode_request(tag, request));
        if request.kind.carries() {
            for word in batch.buffer(index) {
                self.outgoing.extend_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// Sends what the socket takes, and watches for room if that was not all.
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

    /// Reads once, and takes the answers in it.
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

    /// Takes received bytes, however they were cut.
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

    /// An answer's frame has come.
    fn begin(&mut self, answer: Answer, number: u32, batch: &mut Batch) -> Result<(), Malformed> {
        let wanted = answer.tag.batch == number;
        if wanted {
            let first = self.posted.front().ok_or(Malformed)?;
            let request = batch.op(first.index as usize).request;
            let outcome = answer.status.outcome(&request, self.region);
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

    /// The first that is posted has its outcome.
    fn finish(&mut self, outcome: Result<(), OpError>, batch: &mut Batch) {
        if let Some(posted) = self.posted.pop_front() {
            batch.finish(posted.index as usize, outcome);
        }
    }

    /// The batch is over: what has not been sent of it is taken back, but for a frame that has begun.
    fn give_up(&mut self) {
        if let Some(unsent) = self.posted.iter().find(|posted| posted.start >= self.sent) {
            self.outgoing.truncate(unsent.start);
        }
        self.posted.clear();
        self.outgoing.drain(..self.sent);
        self.sent = 0;
        if let Incoming::Payload { wanted, .. } = &mut self.incoming {
            *wanted = false;
        }
    }

    /// The link is down.
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

/// Says hello and hears the answer.
fn greet(stream: &mut TcpStream, hello: &[u8], deadline: Instant) -> io::Result<[u8; wire::GREETING_BYTES]> {
    let mut greeting = [0; wire::GREETING_BYTES];
    let mut filled = 0;
    // A fresh socket's buffer holds the hello.
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

/// The time left, as the system wants it, which takes 0 for no end.
fn system_timeout(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

fn other(address: SocketAddr, found: String) -> Error {
    Error::Protocol { address, expected: wire::PROTOCOL, found }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::LinkId;
    use crate::tcp::wire::Status;

    const BATCH: u32 = 7;

    /// A link on which a read of two words, a write and an addition wait for their answers.
    fn waiting() -> (Link, Batch) {
        let (mut link, mut batch) = (Link::new(None, 1024, Access::Atomic), Batch::new());
        batch.read(LinkId::default(), 0, 12);
        batch.write(LinkId::default(), 64, &[1]);
        batch.fetch_and_add(LinkId::default(), 64, 1);
        for index in 0..3 {
            link.post(Tag { batch: BATCH, index }, &batch);
        }
        (link, batch)
    }

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
        /// Answers may be cut anywhere, and late ones of earlier batches come first.
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

        /// Frames that look right but for their numbers reach further than random bytes do.
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
