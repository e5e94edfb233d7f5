//! The access log: Common Log Format with four more fields, written by its own thread.
//!
//! `client - - [time] "request" status bytes site node microseconds tries`
//!
//! Every log tool reads the first seven fields, `sidelong-lab trace info` included. A request never waits for the disk: if the
//! writer falls behind, or the file cannot be written, lines are dropped and counted. The writer goes on when there is room
//! again. It opens the file anew when another is in its place, as after a rotation, or when it is told to.

use std::fs::{File, OpenOptions};
use std::io::{self, Stdout, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// Most lines that wait for the writer.
const LINES_MAX: usize = 8192;
/// Bytes that the writer collects before it writes. It drops lines while it has as many and cannot write them.
const BUFFER_BYTES: usize = 64 * 1024;
/// Time between two collections of lines. [`LINES_MAX`] of them are enough for 400,000 requests/s.
const COLLECT_EVERY: Duration = Duration::from_millis(20);
/// Longest time that a line waits in the buffer.
const FLUSH_EVERY: Duration = Duration::from_millis(200);
/// Time between two checks whether the file is still in its place, and between two attempts after a failure.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Shortest time between two log lines about failures.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// Longest time that shutdown waits for the disk.
const FLUSH_MAX: Duration = Duration::from_secs(2);
const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");

/// One answered request.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) client: String,
    pub(crate) request: String,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    pub(crate) site: Option<Arc<str>>,
    pub(crate) node: Option<Arc<str>>,
    pub(crate) micros: u128,
    pub(crate) tries: u32,
}

/// A message to the writer.
enum Line {
    Entry(Entry),
    /// Write everything before this to the file, then report it.
    Flush(SyncSender<()>),
}

/// Passes entries to the writer, which ends once this is gone and all is written.
#[derive(Debug)]
pub(crate) struct AccessLog {
    lines: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
}

impl AccessLog {
    /// Appends to `path`, or to standard output for `-`. Where `reopen` is set, it is cleared and the file opened anew if it
    /// was moved. In `dropped` it counts the lines that were dropped because the disk was full or slower than the clients, or the file could
    /// not be opened.
    pub(crate) fn open(path: &Path, reopen: Arc<AtomicBool>, dropped: Arc<AtomicU64>) -> io::Result<Self> {
        let mut writer = Writer::open(path, reopen, Arc::clone(&dropped))?;
        let (lines, entries) = mpsc::sync_channel(LINES_MAX);
        std::thread::Builder::new().name("access-log".into()).spawn(move || writer.run(&entries))?;
        Ok(AccessLog { lines, dropped })
    }

    pub(crate) fn write(&self, entry: Entry) {
        if let Err(TrySendError::Full(_)) = self.lines.try_send(Line::Entry(entry)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all entries are written, for [`FLUSH_MAX`] at most. No entry follows.
    pub(crate) fn finish(&self) {
        let deadline = Instant::now() + FLUSH_MAX;
        let (flushed, wait) = mpsc::sync_channel(1);
        let mut line = Line::Flush(flushed);
        while let Err(TrySendError::Full(unsent)) = self.lines.try_send(line)
            && Instant::now() < deadline
        {
            line = unsent;
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = wait.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Where lines go.
enum Output {
    Stdout(Stdout),
    File {
        path: PathBuf,
        /// `None` while it cannot be opened.
        opened: Option<File>,
    },
}

/// The writer's half of the log.
struct Writer {
    output: Output,
    /// Whole lines that are still to be written, except that the beginning of the first may be in the file already.
    buffer: Vec<u8>,
    /// Whether it is.
    begun: bool,
    reopen: Arc<AtomicBool>,
    check_at: Instant,
    /// Nothing is written before this, because the last attempt failed.
    retry_at: Option<Instant>,
    /// The second of the last line, since 1970 and as text.
    second: (i64, String),
    /// When a failure was last reported, and whether what is written again is to be reported.
    reported: Option<Instant>,
    is_reported: bool,
    dropped: Arc<AtomicU64>,
}

impl Writer {
    fn open(path: &Path, reopen: Arc<AtomicBool>, dropped: Arc<AtomicU64>) -> io::Result<Self> {
        let output = match path.as_os_str() == "-" {
            true => Output::Stdout(io::stdout()),
            false => Output::File { path: path.to_owned(), opened: Some(open(path)?) },
        };
        Ok(Writer {
            output,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            begun: false,
            reopen,
            check_at: Instant::now() + CHECK_EVERY,
            retry_at: None,
            second: (i64::MIN, String::new()),
            reported: None,
            is_reported: false,
            dropped,
        })
    }

    /// Writes until the last sender is gone.
    fn run(&mut self, entries: &Receiver<Line>) {
        let mut flush_at = Instant::now() + FLUSH_EVERY;
        loop {
            // Asleep, not blocked in the queue: a request that had to wake this thread would pay for it with a system call.
            std::thread::sleep(COLLECT_EVERY);
            let now = Instant::now();
            self.check(now);
            loop {
                match entries.try_recv() {
                    Ok(Line::Entry(entry)) => self.push(&entry),
                    Ok(Line::Flush(flushed)) => {
                        self.finish();
                        let _ = flushed.try_send(());
                    }
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return self.finish(),
                }
            }
            if now >= flush_at {
                self.flush();
                flush_at = now + FLUSH_EVERY;
            }
        }
    }

    /// Takes a line, or drops it if there is no room for it.
    fn push(&mut self, entry: &Entry) {
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
        let is_full = self.buffer.len() >= BUFFER_BYTES;
        if is_full || self.line(entry).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds a line to the buffer.
    fn line(&mut self, entry: &Entry) -> io::Result<()> {
        let now = OffsetDateTime::now_utc();
        if self.second.0 != now.unix_timestamp() {
            self.second = (now.unix_timestamp(), now.format(TIME).map_err(io::Error::other)?);
        }
        write_line(&mut self.buffer, &self.second.1, entry)
    }

    /// Writes what is in the buffer, unless the last attempt has just failed.
    fn flush(&mut self) {
        let now = Instant::now();
        if self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        match self.write() {
            Ok(()) => self.succeeded(),
            Err(error) => self.failed(&error, now),
        }
    }

    /// As [`flush`](Self::flush); what cannot be written now never will be.
    fn finish(&mut self) {
        self.retry_at = None;
        self.flush();
        let lost = self.buffer.drain(..).filter(|byte| *byte == b'\n').count();
        if lost > 0 {
            self.dropped.fetch_add(lost as u64, Ordering::Relaxed);
            tracing::error!(lines = lost, "the last lines of the access log could not be written");
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let out: &mut dyn Write = match &mut self.output {
            Output::Stdout(stdout) => stdout,
            Output::File { opened: Some(file), .. } => file,
            // The failure to open it has been reported.
            Output::File { opened: None, .. } => return Ok(()),
        };
        while !self.buffer.is_empty() {
            match out.write(&self.buffer) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.begun = self.buffer[count - 1] != b'\n';
                    self.buffer.drain(..count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        out.flush()
    }

    /// Opens the file anew if another or none is in its place. It looks at intervals, or when it is told to.
    fn check(&mut self, now: Instant) {
        let asked = self.reopen.load(Ordering::Relaxed) && self.reopen.swap(false, Ordering::Relaxed);
        if !asked && now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_EVERY;
        let Output::File { path, opened } = &self.output else { return };
        if opened.as_ref().is_some_and(|file| is_at(file, path)) {
            return;
        }
        let again = open(path);
        // What came before the rotation belongs to the old file, if that can be written.
        self.retry_at = None;
        self.flush();
        let Output::File { opened, .. } = &mut self.output else { return };
        match again {
            Ok(file) => {
                *opened = Some(file);
                self.retry_at = None;
                // The rest of a line is worth nothing in another file.
                if std::mem::take(&mut self.begun) {
                    let rest = self.buffer.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                    self.buffer.drain(..rest);
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(error) => {
                // A file that was only renamed is still good for lines; one that was deleted is not.
                let is_linked = |file: &File| file.metadata().is_ok_and(|found| found.nlink() > 0);
                *opened = opened.take().filter(is_linked);
                self.failed(&error, now);
            }
        }
    }

    fn failed(&mut self, error: &io::Error, now: Instant) {
        self.retry_at = Some(now + CHECK_EVERY);
        if self.reported.is_none_or(|at| now.duration_since(at) >= REPORT_EVERY) {
            let dropped = self.dropped.load(Ordering::Relaxed);
            tracing::error!(%error, dropped, "cannot write the access log; lines are dropped until it can be written");
            self.reported = Some(now);
            self.is_reported = true;
        }
    }

    fn succeeded(&mut self) {
        self.retry_at = None;
        let has_file = !matches!(self.output, Output::File { opened: None, .. });
        if has_file && std::mem::take(&mut self.is_reported) {
            let dropped = self.dropped.load(Ordering::Relaxed);
            tracing::warn!(dropped, "the access log is written again");
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Whether `file` is the one at `path`, as far as can be told.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.metadata()) {
        (Ok(opened), Ok(found)) => (opened.dev(), opened.ino()) == (found.dev(), found.ino()),
        (_, Err(error)) => error.kind() != io::ErrorKind::NotFound,
        (Err(_), Ok(_)) => true,
    }
}

fn write_line(out: &mut impl Write, time: &str, entry: &Entry) -> io::Result<()> {
    let Entry { client, request, status, bytes, site, node, micros, tries } = entry;
    let site = site.as_deref().unwrap_or("-");
    let node = node.as_deref().unwrap_or("-");
    write!(out, "{client} - - [{time}] \"")?;
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\'' | b'\\');
    if request.bytes().all(is_plain) {
        out.write_all(request.as_bytes())?;
    } else {
        write!(out, "{}", request.escape_default())?;
    }
    writeln!(out, "\" {status} {bytes} {site} {node} {micros} {tries}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(request: &str) -> Entry {
        Entry {
            client: "10.0.0.1".into(),
            request: request.into(),
            status: 200,
            bytes: 1024,
            site: Some("a".into()),
            node: Some("n1".into()),
            micros: 5120,
            tries: 1,
        }
    }

    fn eventually(condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < deadline, "it did not happen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_file_that_is_moved_or_deleted_is_opened_anew() {
        let directory = tempfile::tempdir().unwrap();
        let logs = directory.path().join("logs");
        std::fs::create_dir(&logs).unwrap();
        let (path, moved) = (logs.join("access.log"), logs.join("access.log.1"));
        let reopen = Arc::<AtomicBool>::default();
        let dropped = Arc::<AtomicU64>::default();
        let log = AccessLog::open(&path, Arc::clone(&reopen), Arc::clone(&dropped)).unwrap();
        let has = |path: &Path, request: &str| {
            std::fs::read_to_string(path).is_ok_and(|text| text.contains(request))
        };
        log.write(entry("GET /1"));
        eventually(|| has(&path, "/1"));

        std::fs::rename(&path, &moved).unwrap();
        log.write(entry("GET /2"));
        eventually(|| path.exists());
        log.write(entry("GET /3"));
        eventually(|| has(&path, "/3") && (has(&path, "/2") || has(&moved, "/2")));

        std::fs::remove_file(&path).unwrap();
        reopen.store(true, Ordering::Relaxed);
        eventually(|| path.exists());
        log.write(entry("GET /4"));
        eventually(|| has(&path, "/4"));

        // Its lines are kept until there is a place for them.
        std::fs::remove_dir_all(&logs).unwrap();
        reopen.store(true, Ordering::Relaxed);
        eventually(|| !reopen.load(Ordering::Relaxed));
        log.write(entry("GET /5"));
        std::fs::create_dir(&logs).unwrap();
        eventually(|| has(&path, "/5"));
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        // A device that is always full.
        let dropped = Arc::<AtomicU64>::default();
        let log = AccessLog::open(Path::new("/dev/full"), Arc::default(), Arc::clone(&dropped)).unwrap();
        let sent = 3 * BUFFER_BYTES / 64;
        for _ in 0..sent {
            log.write(entry("GET /1"));
        }
        eventually(|| dropped.load(Ordering::Relaxed) > 0);
        log.finish();
        eventually(|| dropped.load(Ordering::Relaxed) == sent as u64);
    }

    #[test]
    fn a_line_is_common_log_format_and_cannot_be_forged() {
        let mut line = Vec::new();
        write_line(&mut line, "23/Nov/2026:10:00:00 +0000", &entry("GET /\"\n10.0.0.2 HTTP/1.1")).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert!(line.starts_with("10.0.0.1 - - [23/Nov/2026:10:00:00 +0000] "), "{line}");
        assert!(line.ends_with("\"GET /\\\"\\n10.0.0.2 HTTP/1.1\" 200 1024 a n1 5120 1\n"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
