//! A configuration's runs, on as many threads as there are cores, and what they write into a directory.
//!
//! | file | what |
//! |---|---|
//! | `config.toml` | every field as it was used, and where it came from |
//! | `runs.csv` | a line as each run ends; a sweep that was interrupted goes on from there |
//! | `rows.csv` | the same lines in order, when all are done |
//! | `result.json` | fields, rows, and what is compared over seeds |
//! | `report.md` | the means over seeds, with their confidence |
//!
//! What is written does not depend on the number of threads: `rows.csv`, `result.json` and `report.md` of one
//! configuration are the same bytes each time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::cluster::Cluster;
use crate::config::{Config, Point};
use crate::datacenter;
use crate::error::{Error, Result};
use crate::measures::Outcome;
use crate::model::Model;
use crate::report;
use crate::workload::Requests;

/// A figure of an [`Outcome`]: a column of `rows.csv`.
pub(crate) type Figure = (&'static str, fn(&Outcome) -> f64);

/// All figures, in the order of their columns.
pub(crate) const FIGURES: [Figure; 18] = [
    ("requests", |of| of.requests as f64),
    ("response_ms_mean", |of| of.response_ms_mean),
    ("response_ms_p50", |of| of.response_ms_p50),
    ("response_ms_p99", |of| of.response_ms_p99),
    ("remote_ms_mean", |of| of.remote_ms_mean),
    ("requests_per_s", |of| of.requests_per_s),
    ("here_rate", |of| of.here_rate),
    ("disk_rate", |of| of.disk_rate),
    ("read_rate", |of| of.read_rate),
    ("read_failure_rate", |of| of.read_failure_rate),
    ("update_messages_per_request", |of| of.update_messages_per_request),
    ("update_bytes_per_request", |of| of.update_bytes_per_request),
    ("cpu_busy", |of| of.cpu_busy),
    ("nic_busy", |of| of.nic_busy),
    ("port_busy", |of| of.port_busy),
    ("disk_busy", |of| of.disk_busy),
    ("events", |of| of.events as f64),
    ("table_bytes_per_entry", |of| of.table_bytes_per_entry),
];

/// How a sweep runs.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Where the results go. It is made.
    pub out: &'a Path,
    /// Threads; each run takes one.
    pub threads: usize,
    /// Raised to stop: no further run begins.
    pub stop: &'a AtomicBool,
}

/// What a sweep is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress<'a> {
    /// Runs that are done, those of an earlier, interrupted sweep included.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
    /// The values of the run that ended last.
    pub last: &'a str,
}

/// Runs a configuration and writes its results. `progress` is called at the start and after each run.
///
/// # Errors
/// Where a trace cannot be read or the directory not written, where it holds the results of another configuration, or
/// [`Error::Interrupted`].
pub fn run(config: &Config, options: &Options<'_>, progress: &mut dyn FnMut(Progress<'_>)) -> Result<()> {
    let points = config.points();
    let columns = columns(config);
    fs::create_dir_all(options.out).map_err(|source| error(options.out, source))?;
    claim(config, options.out)?;

    let head = head(config.model(), &columns);
    let runs_csv = options.out.join("runs.csv");
    let mut rows = kept(&runs_csv, &head, &points, &columns)?;
    let mut log = rewrite(&runs_csv, &head, rows.values())?;
    let todo: Vec<usize> = (0..points.len()).filter(|run| !rows.contains_key(run)).collect();
    progress(Progress { done: rows.len(), total: points.len(), last: "" });

    let next = AtomicUsize::new(0);
    let shelf = Shelf::default();
    let failed = AtomicBool::new(false);
    let mut outcome = Ok(());
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(options.threads);
        for _ in 0..options.threads.clamp(1, todo.len().max(1)) {
            let sender = sender.clone();
            scope.spawn(|| {
                let sender = sender;
                while let Some(&run) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if options.stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed) {
                        break;
                    }
                    let found = one(&points[run], &shelf, options.stop);
                    if sender.send((run, found)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (run, found) in receiver {
            let kept = found.and_then(|found| {
                let Some(found) = found else { return Ok(()) };
                let keys = keys(&points[run], &columns);
                let row = row(&keys, &found);
                writeln!(log, "{row}").map_err(|source| error(&runs_csv, source))?;
                rows.insert(run, row);
                progress(Progress { done: rows.len(), total: points.len(), last: &keys });
                Ok(())
            });
            if let (Err(why), true) = (kept, outcome.is_ok()) {
                failed.store(true, Ordering::Relaxed);
                outcome = Err(why);
            }
        }
    });
    outcome?;
    if rows.len() < points.len() {
        return Err(Error::Interrupted { done: rows.len(), total: points.len() });
    }
    let rows_csv = options.out.join("rows.csv");
    rewrite(&rows_csv, &head, rows.values())?;
    let table = report::Table::parse(&rows_csv)?;
    write(&options.out.join("result.json"), &report::json(config, &table))?;
    write(&options.out.join("report.md"), &report::markdown(config, &table))
}

/// One run, unless it is stopped before it begins: its figures, in the order of their columns.
fn one(point: &Point, shelf: &Shelf, stop: &AtomicBool) -> Result<Option<Vec<f64>>> {
    if point.model() == Model::Reconfig {
        let setup = datacenter::Setup::of(point)?;
        return Ok(Some(datacenter::figures(&datacenter::run(&setup)?)));
    }
    let requests = shelf.get(point)?;
    let setup = point.setup(requests)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let outcome = Cluster::run(setup);
    Ok(Some(FIGURES.iter().map(|(_, figure)| figure(&outcome)).collect()))
}

/// The requests that runs share which are under way at once.
#[derive(Debug, Default)]
struct Shelf(Mutex<BTreeMap<String, Weak<Requests>>>);

impl Shelf {
    fn get(&self, point: &Point) -> Result<Arc<Requests>> {
        let key = point.workload_key();
        // Others wait meanwhile: most of them for the same.
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = shelf.get(&key).and_then(Weak::upgrade) {
            return Ok(requests);
        }
        shelf.retain(|_, requests| requests.strong_count() > 0);
        let requests = Arc::new(point.requests()?);
        shelf.insert(key, Arc::downgrade(&requests));
        Ok(requests)
    }
}

fn columns(config: &Config) -> Vec<&'static str> {
    let swept: Vec<_> = config.swept().iter().map(|field| field.key).collect();
    let fields = crate::fields::FIELDS.iter().map(|field| field.key);
    fields.filter(|key| config.model().always().contains(key) || swept.contains(key)).collect()
}

fn head(model: Model, columns: &[&str]) -> String {
    columns.iter().copied().chain(model.figures()).collect::<Vec<_>>().join(",")
}

fn keys(point: &Point, columns: &[&str]) -> String {
    columns.iter().map(|column| point.get(column)).collect::<Vec<_>>().join(",")
}

fn row(keys: &str, figures: &[f64]) -> String {
    // As short as it reads back the same.
    let figures = figures.iter().map(f64::to_string);
    std::iter::once(keys.to_owned()).chain(figures).collect::<Vec<_>>().join(",")
}

/// Makes sure that the directory is for this configuration.
fn claim(config: &Config, out: &Path) -> Result<()> {
    let path = out.join("config.toml");
    let text = config.explain();
    match fs::read_to_string(&path) {
        Ok(found) if found == text => Ok(()),
        Ok(_) => Err(Error::Result {
            path,
            reason: "it is of another configuration; choose another --out".to_owned(),
        }),
        Err(_) => write(&path, &text),
    }
}

/// Rows of an earlier sweep that was interrupted; a last line that it did not finish is left out.
fn kept(path: &Path, head: &str, points: &[Point], columns: &[&str]) -> Result<BTreeMap<usize, String>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => return Err(error(path, source)),
    };
    let by_keys: BTreeMap<String, usize> =
        points.iter().enumerate().map(|(run, point)| (keys(point, columns), run)).collect();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines();
    if lines.next().is_some_and(|first| first != head) {
        let reason = "its columns are not those of this version; choose another --out".to_owned();
        return Err(Error::Result { path: path.to_owned(), reason });
    }
    let known = |line: &str| {
        let keys = line.splitn(columns.len() + 1, ',').take(columns.len()).collect::<Vec<_>>().join(",");
        by_keys.get(&keys).map(|run| (*run, line.to_owned()))
    };
    Ok(lines.filter_map(known).collect())
}

fn rewrite<'a>(path: &Path, head: &'a str, rows: impl Iterator<Item = &'a String>) -> Result<File> {
    let text: String =
        std::iter::once(head).chain(rows.map(String::as_str)).map(|row| format!("{row}\n")).collect();
    write(path, &text)?;
    File::options().append(true).open(path).map_err(|source| error(path, source))
}

/// Writes a whole file, or leaves the old one.
fn write(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).map_err(|source| error(path, source))
}

fn error(path: &Path, source: std::io::Error) -> Error {
    Error::File { path: PathBuf::from(path), source }
}
