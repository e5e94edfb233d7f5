//! The thread that talks to HAProxy: one connection a batch, read to its end within a bound of time and bytes.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::protocol;
use super::servers::{Batch, Note, Servers};
use super::verdicts::Verdicts;
use super::{DesiredState, Shared};
use crate::adapters::process::{is_alive, is_alone, started};
use crate::clock;

/// The name of its processes.
const PROGRAM: &str = "haproxy";
/// The longest time for one connection, from connecting to the end of the last reply.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The most bytes of the replies over one connection: 10,000 servers have 4 MB.
const REPLY_BYTES_MAX: usize = 16 << 20;
/// The pause after a failure. A connection that is refused costs some 10 us.
const RETRY: Duration = Duration::from_millis(20);
/// How often the same trouble is in the log.
const LOG_EVERY: Duration = Duration::from_secs(60);

pub(super) struct Driver {
    pub(super) front: String,
    pub(super) socket: PathBuf,
    pub(super) servers: Servers,
    pub(super) verdicts: Verdicts,
    pub(super) shared: Arc<Shared>,
    pub(super) logs: Logs,
}

/// What is said once in a while.
#[derive(Default)]
pub(super) struct Logs {
    unreachable: Log,
    replaced: Log,
    refused: Log,
    strayed: Log,
}

/// When something was said last.
#[derive(Default)]
struct Log(Option<Instant>);

impl Log {
    fn is_due(&mut self) -> bool {
        let is_due = self.0.is_none_or(|said| said.elapsed() >= LOG_EVERY);
        if is_due {
            self.0 = Some(Instant::now());
        }
        is_due
    }
}

impl Driver {
    /// Tells HAProxy what is wanted, and reads what it does, until the front ends.
    pub(super) fn run(mut self) {
        let mut was_lost = false;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let told = self.shared.told();
            if !Arc::ptr_eq(&told.cluster, &self.servers.cluster) {
                self.verdicts = Verdicts::new(&told.cluster.sites, told.cluster.stale);
                self.servers.adopt(Arc::clone(&told.cluster));
            }
            let pause = match self.exchange(&told) {
                Ok(()) => {
                    if std::mem::take(&mut was_lost) {
                        tracing::warn!(front = self.front, "HAProxy answers again");
                    }
                    self.servers.pause(&told.nodes, told.rejects(), clock::now())
                }
                Err(trouble) => {
                    self.shared.publish(None);
                    if self.logs.unreachable.is_due() {
                        was_lost = true;
                        let (front, socket) = (&self.front, self.socket.display());
                        tracing::warn!(
                            front,
                            "cannot control HAProxy by {socket}: {trouble}; it sends requests by the weights that it has"
                        );
                    }
                    RETRY
                }
            };
            self.shared.rest(pause);
        }
    }

    fn exchange(&mut self, told: &DesiredState) -> Result<(), String> {
        let verdicts = told.verdicts.as_deref();
        let batch = self.servers.batch(&told.nodes, self.verdicts.commands(verdicts, sidelong_os::wall_ns()));
        let replies = send(&self.socket, &batch)?;
        self.servers
            .heard(&batch, &replies, clock::now(), started, |pid| is_alone(pid, PROGRAM))
            .map_err(|wrong| format!("{wrong}; expected is the socket of HAProxy's `stats socket` line"))?;
        self.verdicts.told(verdicts);
        let older = self.servers.keep_older(is_alive);
        if let Some(worker) = older.first().filter(|_| self.logs.replaced.is_due()) {
            tracing::warn!(
                front = self.front,
                "process {} of HAProxy, from before its reload, has not ended: no node leaves a site until it has; \
                 `hard-stop-after` bounds that",
                worker.pid
            );
        }
        self.shared.publish(Some(&self.servers));
        self.tell();
        Ok(())
    }

    /// Says in the log what a person should know.
    fn tell(&mut self) {
        let (front, cluster) = (&self.front, Arc::clone(&self.servers.cluster));
        let mut missing = String::new();
        for note in self.servers.notes() {
            match note {
                Note::Began(pid) => tracing::info!(front, "controls process {pid} of HAProxy"),
                Note::Missing(site, node) => {
                    let (backend, node) =
                        (&cluster.backends[site.index()], &cluster.nodes[node.index()].name);
                    let _ =
                        write!(missing, "{}{node} in {backend}", if missing.is_empty() { "" } else { ", " });
                }
                Note::Held(site, server, Some(word)) => tracing::warn!(
                    front,
                    "server {}/{server} is held in HAProxy ({word}): it gets no requests until somebody gives it back by `set \
                     server {0}/{server} state ready`",
                    cluster.backends[site.index()]
                ),
                Note::Held(site, server, None) => {
                    tracing::info!(
                        front,
                        "server {}/{server} is held no longer",
                        cluster.backends[site.index()]
                    );
                }
                Note::Refused(command, answer) if self.logs.refused.is_due() => tracing::warn!(
                    front,
                    "HAProxy refuses `{command}`: {answer} The socket needs `level admin`, and the backend a `balance` that takes \
                     weights, such as leastconn"
                ),
                Note::Strayed(node) if self.logs.strayed.is_due() => tracing::warn!(
                    front,
                    "HAProxy sends requests to {} at weight 0: a cookie, a stick table or use-server in its backend overrules \
                     weights; remove it",
                    cluster.nodes[node.index()].name
                ),
                Note::Refused(..) | Note::Strayed(_) => {}
            }
        }
        if !missing.is_empty() {
            tracing::warn!(
                front,
                "HAProxy has no server for {missing}: these nodes would get no requests there; `sidelong front config {front}` has \
                 the lines"
            );
        }
    }
}

/// Sends a batch, and returns the reply to each of its commands.
///
/// # Errors
/// What is wrong, and what to do.
pub(super) fn send(socket: &Path, batch: &Batch) -> Result<Vec<String>, String> {
    let mut replies = Vec::new();
    for commands in &batch.connections {
        let bytes = ask(socket, commands).map_err(|error| explained(&error))?;
        replies.extend(protocol::replies(&bytes, commands).map_err(|wrong| wrong.to_string())?);
    }
    Ok(replies)
}

/// The replies to commands that are sent over one connection.
fn ask(socket: &Path, commands: &[String]) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + ANSWER_MAX;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // A blocking connect would wait for a process that no longer accepts.
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&fd, &SocketAddrUnix::new(socket)?).map_err(|errno| match errno {
        Errno::AGAIN => io::Error::from(io::ErrorKind::TimedOut),
        errno => errno.into(),
    })?;
    let mut stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    stream.write_all(format!("{}\n", commands.join(";")).as_bytes())?;
    let mut reply = Vec::new();
    let mut piece = [0; 1 << 14];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(reply),
            Ok(bytes) => reply.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if reply.len() > REPLY_BYTES_MAX {
            return Err(io::Error::other("it has more than 16 MB to say"));
        }
    }
}

/// What went wrong on the socket, and what to do.
fn explained(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => {
            "start HAProxy with the line `stats socket` that `sidelong front config` prints"
        }
        io::ErrorKind::PermissionDenied => {
            "run the front as the socket's user, or give that line a `group` and `mode 660`"
        }
        io::ErrorKind::ConnectionRefused => "start HAProxy",
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "it hangs, or the machine has no CPU time left for it"
        }
        _ => return error.to_string(),
    };
    let what = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer within a second".to_owned(),
        _ => error.to_string(),
    };
    format!("{what}: {advice}")
}
