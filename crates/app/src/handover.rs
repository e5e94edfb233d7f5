//! How one process of an edge takes over from another on its machine: no connection is refused, no request is lost, and movers wait for
//! the requests of both.
//!
//! Whoever takes over knocks at the other's door. That one ends its moves and closes its ports, but for the one that clients connect to.
//! It hands over that socket, and the locks by which others see that the edge lives, which are held until both have ended. From
//! then on it states what its requests see to its successor alone, which states both in the edge's place (`layout::FrontWord::and`). It accepts
//! until the successor has read all nodes and says that it accepts, and ends once its clients have left.
//!
//! There are two of them at most. A third waits until the first has ended, which is told to, as by SIGTERM. If the successor ends, so does the
//! process before it: what others see of the edge is the successor's.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{self, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sidelong_edge::{ConfigState, Leave};
use sidelong_fabric::door::{self, Door};
use sidelong_fabric::{RunDirectory, SharedWords};
use sidelong_reconfig::Predecessor;

use crate::failure::Failure;
use crate::part::Shutdown;

/// Longest wait for the thread that moves, beside the interval at which it looks. It gives up a move after a second.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the answer of another process, beside that.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest wait for a question, which comes with the connection.
const QUESTION_MAX: Duration = Duration::from_secs(5);
/// Longest wait beyond the time that requests in flight may take.
const END_MAX: Duration = Duration::from_secs(5);
/// Longest wait for a predecessor to go by a newer roster.
const FOLLOW_MAX: Duration = Duration::from_secs(2);
/// Time for requests in flight if nobody states them any more.
const ORPHANED_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Pause before a door is knocked at again.
const AGAIN: Duration = Duration::from_millis(100);
/// Bytes of a message.
const MESSAGE_MAX: usize = 1024;
/// The answer of a process that is about to end, or has a predecessor that is.
const LATER: &str = "later";
/// The answer of one whose memory is a device's, or nobody's.
const NEVER: &str = "never";

/// Whether the socket is a supervisor's.
const GOES_ON: &str = "goes-on";
const ENDS: &str = "ends";

/// What the successor says, in a byte each: that it accepts, and that its predecessor is to end.
const ACCEPTS: u8 = 1;
const FINISH: u8 = 2;

fn door_of(edge: &str) -> String {
    format!("{edge}.heir")
}

/// What two processes of one edge must have alike.
pub(crate) struct Alike {
    /// The roster by which both go.
    pub(crate) epoch: u64,
    /// Nodes that there is room for.
    pub(crate) nodes: usize,
    /// Of the cluster.
    pub(crate) identity: u64,
    /// How memory is reached.
    pub(crate) fabric: &'static str,
    /// Where clients connect.
    pub(crate) listen: SocketAddr,
    /// How often the thread that moves looks.
    pub(crate) sensitivity: Duration,
}

impl Alike {
    fn text(&self) -> String {
        let Alike { epoch, nodes, identity, fabric, listen, .. } = self;
        // The number is that of this protocol.
        format!("1 {nodes} {identity:x} {fabric} {listen} {epoch}")
    }
}

/// Finds the locks of the regions that a process exposes, by name.
pub(crate) type Locks = Box<dyn Fn() -> io::Result<Vec<(String, File)>> + Send>;

/// What an edge hands over.
pub(crate) struct Estate {
    pub(crate) alike: Alike,
    pub(crate) config: Arc<ConfigState>,
    /// To the thread that scans and decides.
    pub(crate) leaves: SyncSender<Leave>,
    /// The socket that clients connect to, until this process accepts no more.
    pub(crate) accepting: Arc<Mutex<Option<TcpListener>>>,
    /// Whether the socket is a supervisor's, and so goes on after all of them.
    pub(crate) goes_on: bool,
    /// `None` if its regions cannot be exposed by another process.
    pub(crate) locks: Option<Locks>,
    /// Closes all other ports, and ends what speaks for the edge elsewhere.
    pub(crate) close: Box<dyn Fn() + Send>,
    pub(crate) before: Option<Arc<Before>>,
    pub(crate) ends: Ends,
}

/// How this process ends if another one takes over.
#[derive(Clone)]
pub(crate) struct Ends {
    pub(crate) shutdown: Shutdown,
    is_orphan: Arc<AtomicBool>,
}

impl Ends {
    pub(crate) fn new(shutdown: Shutdown) -> Self {
        Ends { shutdown, is_orphan: Arc::default() }
    }

    /// Does what the successor says, until that ends.
    fn obey(&self, peer: &UnixStream) {
        while let Some(said) = heard(peer) {
            match said {
                ACCEPTS => self.shutdown.hand_over(),
                _ => self.shutdown.finish(),
            }
        }
        self.orphan();
    }

    /// The edge is not what this process states any more, and the one that states it has ended.
    fn orphan(&self) {
        self.is_orphan.store(true, Ordering::Release);
        self.shutdown.finish();
        thread::sleep(ORPHANED_MAX);
        self.shutdown.cut();
    }

    /// # Errors
    /// If it ended because its successor has.
    pub(crate) fn result(&self) -> Result<(), Failure> {
        match self.is_orphan.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(Failure::new(
                "the process that had taken over has ended, and nobody stated what this one did",
            )),
        }
    }
}

/// Waits for a process that takes over from the edge of that name, until this value is dropped.
///
/// # Errors
/// If there can be no door.
pub(crate) fn open(run: &RunDirectory, edge: &str, mut estate: Estate) -> io::Result<Door> {
    Door::open(run, &door_of(edge), move |peer| estate.leave_to(&peer))
}

impl Estate {
    fn leave_to(&mut self, peer: &UnixStream) -> io::Result<()> {
        let say = |what: &str| door::hand(peer, what.as_bytes(), &[]);
        let mut asked = [0; MESSAGE_MAX];
        let (asked, _) = door::take(peer, &mut asked, QUESTION_MAX)?;
        let Some(locks) = &self.locks else { return say(NEVER) };
        let before = self.before.iter().find(|before| !before.has_ended());
        before.inspect(|before| before.finish());
        let socket = {
            let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
            accepting.as_ref().map(TcpListener::try_clone).transpose()?
        };
        let Some(socket) = socket.filter(|_| before.is_none() && !self.config.has_successor()) else {
            return say(LATER);
        };
        self.alike.epoch = self.config.epoch();
        let own = self.alike.text();
        if asked != own.as_bytes() {
            return say(&own);
        }
        let locks = locks()?;
        let words = Arc::new(SharedWords::new(Predecessor::words(self.alike.nodes))?);
        let (own_end, ends) = (peer.try_clone()?, self.ends.clone());
        if !self.config.hand_over(self.alike.epoch) {
            return say(LATER);
        }
        // From here on nobody else states what this process does.
        let obey = move || ends.obey(&own_end);
        let handed = thread::Builder::new().name("successor".to_owned()).spawn(obey).and_then(|_| {
            let (done, left) = mpsc::sync_channel(1);
            let leave = Leave { words: Arc::clone(&words), done };
            let patience = LEAVE_MAX + 2 * self.alike.sensitivity;
            let left = self.leaves.try_send(leave).is_ok() && left.recv_timeout(patience).is_ok();
            (self.close)();
            let goes_on = if self.goes_on { GOES_ON } else { ENDS };
            let names: String = locks.iter().map(|(name, _)| format!(" {name}")).collect();
            let files = [socket.as_fd(), words.as_fd()];
            let files: Vec<BorrowedFd<'_>> =
                files.into_iter().chain(locks.iter().map(|(_, file)| file.as_fd())).collect();
            match left {
                true => door::hand(peer, format!("{own} {goes_on}{names}").as_bytes(), &files),
                false => Err(io::Error::other("the thread that decides hangs")),
            }
        });
        handed.inspect_err(|_| self.ends.orphan())
    }
}

/// The next byte of the other process; `None` once that has ended.
fn heard(mut peer: &UnixStream) -> Option<u8> {
    let mut byte = [0];
    loop {
        match peer.read(&mut byte) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read.is_ok_and(|bytes| bytes > 0).then_some(byte[0]),
        }
    }
}

/// The process before, whose clients have not left yet.
pub(crate) struct Before {
    peer: UnixStream,
    /// What it states.
    pub(crate) words: Arc<Predecessor>,
}

impl Before {
    /// Tells it that this process accepts.
    pub(crate) fn accept(&self) {
        self.say(ACCEPTS);
    }

    /// Has it end as by SIGTERM.
    pub(crate) fn finish(&self) {
        self.say(FINISH);
    }

    fn say(&self, what: u8) {
        // It may have ended.
        let _ = (&self.peer).write_all(&[what]);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.words.is_gone()
    }

    /// Whether it goes by the roster of that epoch, too, or has ended. If it does not soon, it is told to end.
    pub(crate) fn follows(&self, epoch: u64) -> bool {
        let began = Instant::now();
        while !self.words.goes_by(epoch) {
            if began.elapsed() > FOLLOW_MAX {
                self.finish();
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        true
    }

    /// Has it end, and waits until it has, because what it does shows in what this process states: as long as its requests may take, and
    /// not if this process is to end at once.
    pub(crate) fn end(&self, shutdown: &Shutdown, drain_max: Duration) {
        self.finish();
        let began = Instant::now();
        while !self.has_ended() && !shutdown.is_at_once() && began.elapsed() < drain_max + END_MAX {
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        // It sees that nobody goes on in its place.
        let _ = self.peer.shutdown(net::Shutdown::Both);
    }
}

/// What a process has left to this one.
pub(crate) struct Inherited {
    /// The socket that clients connect to, and whether it goes on after this process, too.
    pub(crate) listener: (TcpListener, bool),
    /// The locks of the regions that it exposed, by name.
    pub(crate) locks: HashMap<String, File>,
    pub(crate) before: Arc<Before>,
}

/// What becomes of an attempt to take over.
pub(crate) enum Heir {
    /// Nobody runs the edge on this machine.
    OfNobody,
    /// The other goes by a newer roster.
    OfNewerRoster,
    /// The other cannot hand over to this one: it is to be stopped first.
    OfOther(Failure),
    Of(Inherited),
}

/// Takes over from the process that runs the edge of that name. Waits if that is about to end, or the one before it, whose requests
/// may take as long as `drain_max`, or if it goes by an older roster.
///
/// # Errors
/// If it does not answer as it should, or not in time.
pub(crate) fn inherit(
    run: &RunDirectory,
    edge: &str,
    alike: &Alike,
    drain_max: Duration,
) -> Result<Heir, Failure> {
    let failed = |why: &str| {
        Failure::new(format!("cannot take over from the process that runs {edge}, which goes on: {why}"))
    };
    let io = |error: io::Error| failed(&error.to_string());
    let (own, began) = (alike.text(), Instant::now());
    let mut buffer = [0; MESSAGE_MAX];
    let mut why = String::new();
    let (peer, told, files) = loop {
        if began.elapsed() > drain_max + END_MAX {
            return Err(failed(&why));
        }
        if !why.is_empty() {
            thread::sleep(AGAIN);
        }
        let peer = match door::knock(run, &door_of(edge)) {
            Err(error) if [ErrorKind::NotFound, ErrorKind::ConnectionRefused].contains(&error.kind()) => {
                return Ok(Heir::OfNobody);
            }
            knocked => knocked,
        };
        let patience = ANSWER_MAX + 2 * alike.sensitivity;
        let answer = peer.and_then(|peer| {
            door::hand(&peer, own.as_bytes(), &[])?;
            let (text, files) = door::take(&peer, &mut buffer, patience)?;
            Ok((peer, String::from_utf8_lossy(text).into_owned(), files))
        });
        let (peer, told, files) = match answer {
            Ok(answer) => answer,
            // It may have ended meanwhile.
            Err(error) => {
                why = error.to_string();
                continue;
            }
        };
        // The rest may differ in nothing.
        let epoch = told
            .rsplit_once(' ')
            .filter(|(rest, _)| own.rsplit_once(' ').is_some_and(|(own, _)| own == *rest));
        let epoch = epoch.and_then(|(_, epoch)| epoch.parse::<u64>().ok());
        match (&*told, epoch) {
            (LATER, _) => "it, or the process before it, has not ended yet".clone_into(&mut why),
            (NEVER, _) => {
                return Ok(Heir::OfOther(failed(
                    "its memory is a device's, or is not shared: stop it first",
                )));
            }
            (_, Some(epoch)) if epoch < alike.epoch => {
                why =
                    format!("it goes by the file of epoch {epoch}, and this one by that of {}", alike.epoch);
            }
            (_, Some(epoch)) if epoch > alike.epoch => return Ok(Heir::OfNewerRoster),
            _ => break (peer, told, files),
        }
    };
    let Some(words) = told.strip_prefix(&*own).filter(|_| !files.is_empty()) else {
        return Ok(Heir::OfOther(failed(&format!(
            "it goes by another file: it says \"{told}\", and this one \"{own}\"; stop it first"
        ))));
    };
    let mut files = files.into_iter();
    let mut next = || files.next().ok_or_else(|| failed("it hands over too little"));
    let listener = TcpListener::from(next()?);
    let stated = SharedWords::of(next()?.into(), Predecessor::words(alike.nodes)).map_err(io)?;
    let mut words = words.split_whitespace();
    let goes_on = words.next() == Some(GOES_ON);
    let locks = words.map(|name| Ok((name.to_owned(), File::from(next()?))));
    let locks = locks.collect::<Result<_, Failure>>()?;
    let words = Arc::new(Predecessor::new(stated, alike.nodes));
    let (other, gone) = (peer.try_clone()?, Arc::clone(&words));
    let see = move || {
        while heard(&other).is_some() {}
        gone.set_gone();
    };
    thread::Builder::new().name("predecessor".to_owned()).spawn(see)?;
    let before = Arc::new(Before { peer, words });
    Ok(Heir::Of(Inherited { listener: (listener, goes_on), locks, before }))
}
