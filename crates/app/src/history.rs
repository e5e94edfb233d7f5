//! The moves that a cluster has made, and why: the log that each mover keeps of its own.
//!
//! A mover appends a JSON line for each move and repair to a file of its own in the run directory. A separate thread
//! writes it, so that the deciding thread never waits for a disk. If it falls behind, records are dropped and counted.
//! The file is bounded: at half the bound it replaces the previous one. No decision depends on the history.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_edge::Counts;
use sidelong_fabric::RunDirectory;
use sidelong_policy::reconfigure::{MovePlan, Reason};
use sidelong_reconfig::{Report, Task};
use sidelong_state::Outcome;
use time::OffsetDateTime;

use crate::ended;
use crate::failure::Failure;
use crate::parts::Parts;
pub use crate::stamp::text;
use crate::stamp::user;

/// Most records that wait for the writer; a mover makes one move at a time.
const RECORDS_MAX: usize = 256;
/// Longest time that the end of a process waits for the disk.
const FINISH_MAX: Duration = Duration::from_secs(2);
/// Bytes read from the end of a file for the most recent moves.
const RECENT_BYTES_MAX: u64 = 16 << 10;
/// Longest line; a longer one is not a record.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A move or repair that has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// When it ended, in UTC.
    pub at: String,
    /// The process that made it, or the user.
    pub by: String,
    /// The node; `None` for a repair.
    pub node: Option<String>,
    /// The site that the node left; `None` for a free node, or a repair.
    pub from: Option<String>,
    /// The site that the node joined, or that was repaired.
    pub to: String,
    /// How it ended: `moved`, or why it was not made; `held`, `pinned` or `resumed` by a person.
    pub how: String,
    /// Time from the decision to the end.
    pub took_us: u64,
    /// Why, in words.
    pub why: Option<String>,
    /// Why, with both sites' figures at the scan that it was decided from.
    pub reason: Option<Reason>,
    /// Why the node could not change sites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl Record {
    /// The record of a move or repair by `by` that has just ended.
    pub(crate) fn of(parts: &Parts, by: &str, report: &Report) -> Record {
        let to = parts.site_name(report.task.site());
        let from = report.plan().and_then(MovePlan::from).map(|site| parts.site_name(site));
        Record {
            at: text(OffsetDateTime::now_utc()),
            by: by.to_owned(),
            node: report.plan().map(|plan| parts.node_name(plan.node)),
            how: report.outcome.word().to_owned(),
            took_us: whole_us(report.ended.since(report.began)),
            why: Some(match &report.task {
                Task::Move(plan) => plan.reason.told(from.as_deref(), &to).to_string(),
                Task::Repair(_, cause) => ended::cause(parts, *cause),
            }),
            reason: report.plan().map(|plan| plan.reason),
            fault: match report.outcome {
                Outcome::NotChanged { fault } => Some(ended::not_changed(fault)),
                _ => None,
            },
            from,
            to,
        }
    }

    /// That this user has had a node join or leave.
    pub(crate) fn of_member(node: &str, how: &str) -> Self {
        Record {
            at: text(OffsetDateTime::now_utc()),
            by: user(),
            node: Some(node.to_owned()),
            from: None,
            to: String::new(),
            how: how.to_owned(),
            took_us: 0,
            why: None,
            reason: None,
            fault: None,
        }
    }

    /// The record as a line for people.
    pub fn plain(&self) -> String {
        let Record { at, by, node, from, to, how, took_us, why, fault, .. } = self;
        let (at, took_ms) = (at.replace('T', " "), *took_us as f64 / 1e3);
        let why = why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        if let Some(node) = node.as_ref().filter(|_| [JOINED, LEFT, REMOVED].contains(&&**how)) {
            return format!("{at}  {node} {how} by {by}{why}\n");
        }
        let what = match node {
            Some(node) if how == HELD => format!("{node} {to} -> held"),
            Some(node) if how == RESUMED => format!("{node} resumed at {to}"),
            Some(node) if how == PINNED => format!("{node} pinned at {to}"),
            Some(node) => {
                let from = from.as_deref().unwrap_or("free");
                let not = match fault {
                    _ if how == "moved" => String::new(),
                    Some(fault) => format!(", not moved ({fault})"),
                    None => format!(", not moved ({how})"),
                };
                format!("{node} {from} -> {to}{not}")
            }
            None => format!("{to} repaired ({how})"),
        };
        format!("{at}  {what} in {took_ms:.2} ms by {by}{why}\n")
    }
}

/// The history of what persons did. No node or edge has this name.
pub const BY_HAND: &str = "by_hand";
/// How a node was taken out of service.
pub(crate) const HELD: &str = "held";
/// How a node came into the cluster, and how it went.
pub(crate) const JOINED: &str = "joined";
/// See [`JOINED`].
pub(crate) const LEFT: &str = "left";
/// How a part of which nothing is left was taken out.
pub(crate) const REMOVED: &str = "removed";
/// How a node was moved to stay.
pub(crate) const PINNED: &str = "pinned";
/// How a node was given back.
pub(crate) const RESUMED: &str = "resumed";

/// Who or what keeps a node where it is.
pub struct Holder {
    /// The user, or the mover to whose plan the node could not change.
    pub by: String,
    /// Since when, in UTC.
    pub since: String,
    /// Why the node could not change sites.
    pub fault: Option<String>,
}

/// By node: who held or pinned it last, as far as this machine's history tells. `movers` are the edges and nodes.
pub fn holders<'a>(run: &RunDirectory, movers: impl Iterator<Item = &'a str>) -> BTreeMap<String, Holder> {
    let mut holders = BTreeMap::new();
    // One that cannot be read costs no other.
    let mut all = Histories::default();
    for name in movers.chain([BY_HAND]) {
        if let Ok(one) = Histories::read(run, std::iter::once(name)) {
            all.records.extend(one.records);
        }
    }
    all.records.sort_by(|a, b| a.at.cmp(&b.at));
    for record in all.records {
        let Record { node: Some(node), by, at: since, how, reason, fault, .. } = record else { continue };
        if [RESUMED, JOINED, LEFT, REMOVED].contains(&&*how) {
            holders.remove(&node);
        } else if reason.is_none() || fault.is_some() {
            holders.insert(node, Holder { by, since, fault });
        }
    }
    holders
}

/// A duration as records have it.
pub(crate) fn whole_us(took: Duration) -> u64 {
    took.as_micros().try_into().unwrap_or(u64::MAX)
}

/// The files of the mover of that name: the current one and the previous one.
fn files(name: &str) -> [String; 2] {
    ["", ".1"].map(|end| format!("{name}.history{end}.jsonl"))
}

/// One process's own history, while it is written.
pub(crate) struct Log {
    recorder: Recorder,
    /// Disconnected once all is written.
    written: Receiver<()>,
}

/// Passes records to the writer.
#[derive(Clone)]
pub(crate) struct Recorder {
    records: SyncSender<Record>,
    counts: Arc<[AtomicU64; 2]>,
}

impl Log {
    /// Continues the history of that name. `None` if no history is configured.
    ///
    /// # Errors
    /// If its file cannot be opened.
    pub(crate) fn open(parts: &Parts, name: &str) -> Result<Option<Log>, Failure> {
        let bytes_max = parts.cluster.limits.history_bytes_max;
        if bytes_max == 0 {
            return Ok(None);
        }
        let file = Bounded::open(&parts.run, name, bytes_max)
            .map_err(|error| Failure::new(format!("{name}: cannot keep its history of moves: {error}")))?;
        Ok(Some(Log::start(file)?))
    }

    fn start(mut file: Bounded) -> io::Result<Log> {
        let (records, waiting) = mpsc::sync_channel::<Record>(RECORDS_MAX);
        let (done, written) = mpsc::sync_channel(1);
        let recorder = Recorder { records, counts: Arc::default() };
        let counts = Arc::clone(&recorder.counts);
        std::thread::Builder::new().name("history".into()).spawn(move || {
            let _done: SyncSender<()> = done;
            for record in waiting {
                if let Err(error) = file.append(&record) {
                    tracing::error!(%error, "the history of moves cannot be written; it ends here");
                    return;
                }
                counts[0].fetch_add(1, Ordering::Relaxed);
            }
        })?;
        Ok(Log { recorder, written })
    }

    /// What passes records to it.
    pub(crate) fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Its counters, for the process's metrics.
    pub(crate) fn counts(&self) -> Counts {
        let counts = Arc::clone(&self.recorder.counts);
        Counts {
            name: "history_records",
            help: "Moves and repairs that were written to the history, or dropped because the disk was slower",
            label: "outcome",
            read: Box::new(move || {
                let [written, dropped] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
                vec![("written", written), ("dropped", dropped)]
            }),
        }
    }

    /// Waits until all is written, for a bounded time. The other recorders must have been dropped.
    pub(crate) fn finish(self) {
        drop(self.recorder);
        let _ = self.written.recv_timeout(FINISH_MAX);
    }
}

impl Recorder {
    /// Passes a record to the writer. Never waits.
    pub(crate) fn record(&self, record: Record) {
        if self.records.try_send(record).is_err() {
            self.counts[1].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A file of lines that replaces the previous one when it has grown too large.
struct Bounded {
    run: RunDirectory,
    /// The current file, and the previous one.
    names: [String; 2],
    file: File,
    bytes: u64,
    /// The limit for both files together.
    bytes_max: u64,
}

impl Bounded {
    fn open(run: &RunDirectory, name: &str, bytes_max: u64) -> io::Result<Bounded> {
        let names = files(name);
        let mut file = run.append(&names[0])?;
        // An earlier process may have died within a line, so what follows starts a new one.
        let bytes = file.metadata()?.len();
        if bytes > 0 {
            file.write_all(b"\n")?;
        }
        Ok(Bounded { run: run.clone(), names, file, bytes: bytes + 1, bytes_max })
    }

    fn append(&mut self, record: &Record) -> io::Result<()> {
        let line = serde_json::to_string(record)? + "\n";
        if self.bytes + line.len() as u64 > self.bytes_max / 2 && self.bytes > 1 {
            self.run.rename(&self.names[0], &self.names[1])?;
            self.file = self.run.append(&self.names[0])?;
            self.bytes = 0;
        }
        self.bytes += line.len() as u64;
        self.file.write_all(line.as_bytes())
    }
}

/// The content of a cluster's histories.
#[derive(PartialEq, Debug, Default)]
pub struct Histories {
    /// Oldest first.
    pub records: Vec<Record>,
    /// Lines that are not records.
    pub unread: usize,
}

impl Histories {
    /// Of all movers of these names. One that has none yet is passed over.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn read<'a>(run: &RunDirectory, names: impl Iterator<Item = &'a str>) -> io::Result<Histories> {
        let mut all = Histories::default();
        // The latest part first: what takes the place of the one before meanwhile is then read twice, and not missed.
        for file in names.flat_map(files) {
            match run.read(&file) {
                Ok(file) => all.take(file)?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    let path = run.path().join(file);
                    return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
                }
            }
        }
        all.records.sort_by(|a, b| (&a.at, &a.by).cmp(&(&b.at, &b.by)));
        all.records.dedup();
        Ok(all)
    }

    fn take(&mut self, file: impl io::Read) -> io::Result<()> {
        let mut file = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let bytes = io::Read::take(&mut file, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            // The last line may be incomplete, because it is being written.
            if bytes == 0 || !line.ends_with(b"\n") && file.fill_buf()?.is_empty() {
                return Ok(());
            }
            match serde_json::from_slice(&line) {
                Ok(record) => self.records.push(record),
                Err(_) => self.unread += usize::from(!line.trim_ascii().is_empty()),
            }
        }
    }
}

/// Recent moves by movers of these names, within that time: node, receiver and reason, latest first. Empty if none of
/// them keeps its history on this machine.
pub fn recent<'a>(
    run: &RunDirectory,
    names: impl Iterator<Item = &'a str>,
    within: Duration,
) -> Vec<[String; 3]> {
    let since = text(OffsetDateTime::now_utc() - within);
    let mut all = Histories::default();
    for [latest, _] in names.map(files) {
        // What cannot be read is not told: the moves are seen without it.
        let _ = run.read(&latest).and_then(|mut file| {
            let bytes = file.metadata()?.len();
            file.seek(SeekFrom::Start(bytes.saturating_sub(RECENT_BYTES_MAX)))?;
            all.take(file)
        });
    }
    all.records.sort_by(|a, b| b.at.cmp(&a.at));
    let recent = all.records.into_iter().filter(|record| record.how == "moved" && record.at >= since);
    recent.filter_map(|record| Some([record.node?, record.to, record.why?])).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::{Path, PathBuf};

    use sidelong_policy::reconfigure::{Need, SiteFigures, Source};

    use super::*;

    fn record(at: &str, by: &str, node: &str) -> Record {
        let receiver =
            SiteFigures { load: Some(2.4), nodes: 1, strain: None, admitted: 1.0, lasted_us: 2_000 };
        let reason = Reason { need: Need::High, source: Source::Idle, receiver, donor: Some(receiver) };
        Record {
            at: at.to_owned(),
            by: by.to_owned(),
            node: Some(node.to_owned()),
            from: Some("gamma".to_owned()),
            to: "alpha".to_owned(),
            how: "moved".to_owned(),
            took_us: 1_240,
            why: Some(reason.told(Some("gamma"), "alpha").to_string()),
            reason: Some(reason),
            fault: None,
        }
    }

    fn bounded(run_dir: &Path, name: &str, bytes_max: u64) -> Bounded {
        Bounded::open(&RunDirectory::at(run_dir), name, bytes_max).unwrap()
    }

    fn paths(run_dir: &Path, name: &str) -> [PathBuf; 2] {
        files(name).map(|file| run_dir.join(file))
    }

    #[test]
    fn a_line_says_what_moved_when_by_whom_and_why() {
        let moved = record("2026-11-22T14:02:03.120Z", "edge1", "n5");
        let said = "2026-11-22 14:02:03.120Z  n5 gamma -> alpha in 1.24 ms by edge1: \
                    alpha 2.4 requests a worker for 2 ms, gamma idle\n";
        assert_eq!(moved.plain(), said);
        let repair = Record { node: None, from: None, why: None, how: "recovered".into(), ..moved };
        assert_eq!(
            repair.plain(),
            "2026-11-22 14:02:03.120Z  alpha repaired (recovered) in 1.24 ms by edge1\n"
        );
    }

    #[test]
    fn histories_are_merged_and_a_torn_line_or_a_missing_file_costs_no_other() {
        let run_dir = tempfile::tempdir().unwrap();
        let [first, second, third, fourth] = [1, 2, 3, 4].map(|second| {
            let by = if second % 2 == 0 { "edge2" } else { "edge1" };
            record(&format!("2026-11-22T14:02:0{second}.000Z"), by, "n1")
        });
        bounded(run_dir.path(), "edge1", 1 << 20).append(&first).unwrap();
        let mut edge2 = bounded(run_dir.path(), "edge2", 1 << 20);
        edge2.append(&second).unwrap();
        edge2.append(&fourth).unwrap();
        // The first dies within a line, and comes back.
        let path = &paths(run_dir.path(), "edge1")[0];
        let mut torn = OpenOptions::new().append(true).open(path).unwrap();
        torn.write_all(b"{\"at\":\"2026-11-").unwrap();
        let read = || {
            Histories::read(&RunDirectory::at(run_dir.path()), ["edge1", "edge2", "edge3"].into_iter())
                .unwrap()
        };
        let records = vec![first.clone(), second.clone(), fourth.clone()];
        assert_eq!(read(), Histories { records, unread: 0 });
        bounded(run_dir.path(), "edge1", 1 << 20).append(&third).unwrap();
        assert_eq!(read(), Histories { records: vec![first, second, third, fourth], unread: 1 });
        let recent = |within| {
            recent(&RunDirectory::at(run_dir.path()), ["edge1", "edge2", "edge3"].into_iter(), within)
        };
        assert_eq!(recent(Duration::from_secs(1)).len(), 0, "these are long ago");
        let mut now = record(&text(OffsetDateTime::now_utc()), "edge2", "n5");
        now.how = "moved".to_owned();
        edge2.append(&now).unwrap();
        let why = "alpha 2.4 requests a worker for 2 ms, gamma idle";
        assert_eq!(recent(Duration::from_secs(60)), [["n5", "alpha", why]]);
    }

    #[test]
    fn a_history_is_bounded_and_keeps_the_latest() {
        const BYTES_MAX: u64 = 4_000;
        let run_dir = tempfile::tempdir().unwrap();
        let mut edge = bounded(run_dir.path(), "edge1", BYTES_MAX);
        for minute in 0..60 {
            edge.append(&record(&format!("2026-11-22T14:{minute:02}:00.000Z"), "edge1", "n1")).unwrap();
            let sizes =
                paths(run_dir.path(), "edge1").map(|path| path.metadata().map_or(0, |data| data.len()));
            assert!(sizes.iter().sum::<u64>() <= BYTES_MAX, "{sizes:?}");
        }
        let kept = Histories::read(&RunDirectory::at(run_dir.path()), ["edge1"].into_iter()).unwrap().records;
        assert!(kept.len() > 5 && kept.last().unwrap().at.contains("14:59"), "{}", kept.len());
    }

    #[test]
    fn what_waits_is_written_at_the_end_and_what_is_too_much_is_counted() {
        let run_dir = tempfile::tempdir().unwrap();
        let log = Log::start(bounded(run_dir.path(), "edge1", 1 << 20)).unwrap();
        let (recorder, counts) = (log.recorder(), log.counts());
        for _ in 0..20 {
            recorder.record(record("2026-11-22T14:02:00.000Z", "edge1", "n1"));
        }
        drop(recorder);
        log.finish();
        assert_eq!((counts.read)(), [("written", 20), ("dropped", 0)]);

        let (records, waiting) = mpsc::sync_channel(1);
        let recorder = Recorder { records, counts: Arc::default() };
        (0..3).for_each(|_| recorder.record(record("2026-11-22T14:02:00.000Z", "edge1", "n1")));
        assert_eq!(recorder.counts[1].load(Ordering::Relaxed), 2);
        drop(waiting);
    }
}
