//! The access log: Common Log Format with four fields more, written by a thread of its own.
//!
//! `client - - [time] "request" status bytes site node microseconds tries`
//!
//! The first seven fields are what every log tool reads, ours (`sidelong trace info`) included. A request never waits for
//! the disk: where the writer falls behind, lines are dropped and counted.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// Lines that wait for the writer at most.
const LINES_MAX: usize = 8192;
/// How long a line waits in the buffer at most.
const FLUSH_EVERY: Duration = Duration::from_millis(200);
/// How long the end waits for the disk at most.
const FLUSH_MAX: Duration = Duration::from_secs(2);
const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");

/// One answered request.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) client: String,
    pub(crate) request: String,
    pub(crate) status: u16,
    pub(crate) bytes: usize,
    pub(crate) site: Option<Arc<str>>,
    pub(crate) node: Option<Arc<str>>,
    pub(crate) micros: u128,
    pub(crate) tries: u32,
}

/// What the writer is handed.
enum Line {
    Entry(Entry),
    /// All before it shall be in the file, and whoever waits be told so.
    Flush(SyncSender<()>),
}

/// Hands entries to the writer.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    lines: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
}

impl AccessLog {
    /// Appends to `path`, or to standard output for `-`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let out: Box<dyn Write + Send> = if path.as_os_str() == "-" {
            Box::new(io::stdout())
        } else {
            Box::new(OpenOptions::new().create(true).append(true).open(path)?)
        };
        let (lines, entries) = mpsc::sync_channel(LINES_MAX);
        std::thread::Builder::new().name("access-log".into()).spawn(move || write_all(&entries, out))?;
        Ok(AccessLog { lines, dropped: Arc::default() })
    }

    pub(crate) fn write(&self, entry: Entry) {
        if let Err(TrySendError::Full(_)) = self.lines.try_send(Line::Entry(entry)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, within reason: no more will be.
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

    /// Lines that were not written because the disk was slower than the clients.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Until the last sender is gone. A log that cannot be written is said once and then not kept, for sites go before logs.
fn write_all(entries: &Receiver<Line>, out: impl Write) {
    let mut out = BufWriter::with_capacity(64 * 1024, out);
    loop {
        let written = match entries.recv_timeout(FLUSH_EVERY) {
            Ok(Line::Entry(entry)) => write_line(&mut out, &entry),
            Ok(Line::Flush(flushed)) => {
                let written = out.flush();
                let _ = flushed.try_send(());
                written
            }
            Err(mpsc::RecvTimeoutError::Timeout) => out.flush(),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let _ = out.flush();
                return;
            }
        };
        if let Err(error) = written {
            tracing::error!(%error, "the access log cannot be written; it ends here");
            return;
        }
    }
}

fn write_line(out: &mut impl Write, entry: &Entry) -> io::Result<()> {
    let time = OffsetDateTime::now_utc().format(TIME).map_err(io::Error::other)?;
    let Entry { client, request, status, bytes, site, node, micros, tries } = entry;
    let site = site.as_deref().unwrap_or("-");
    let node = node.as_deref().unwrap_or("-");
    let request = request.escape_default();
    writeln!(out, "{client} - - [{time}] \"{request}\" {status} {bytes} {site} {node} {micros} {tries}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_common_log_format_and_cannot_be_forged() {
        let mut line = Vec::new();
        let entry = Entry {
            client: "10.0.0.1".into(),
            request: "GET /\"\n10.0.0.2 HTTP/1.1".into(),
            status: 200,
            bytes: 1024,
            site: Some("a".into()),
            node: Some("n1".into()),
            micros: 5120,
            tries: 1,
        };
        write_line(&mut line, &entry).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert!(line.starts_with("10.0.0.1 - - ["), "{line}");
        assert!(line.ends_with("\"GET /\\\"\\n10.0.0.2 HTTP/1.1\" 200 1024 a n1 5120 1\n"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
