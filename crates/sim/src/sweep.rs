//! Runs a configuration on all cores, and writes the results to a directory.
//!
//! | file | what |
//! |---|---|
//! | `config.toml` | every field with its values and their source |
//! | `runs.csv` | a line for each run as it ends; an interrupted sweep continues from there |
//! | `missing.csv` | the missing runs of an interrupted sweep |
//! | `rows.csv` | the lines of `runs.csv` in order, when all runs are done |
//! | `result.json` | fields, rows, and means over seeds |
//! | `report.md` | means over seeds, with confidence intervals |
//! | `figure.svg` | the same over the first field that is swept in numbers |
//! | `lock` | held by the process that writes there |
//!
//! `rows.csv`, `result.json` and `report.md` of one configuration are the same bytes each time, on any number of threads.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sidelong_os::open_regular;

use crate::cluster::Cluster;
use crate::config::{Config, Point};
use crate::datacenter;
use crate::error::{Error, Result};
use crate::fields::{ArrivalKind, Source, find};
use crate::figure::{self, Drawing};
use crate::measures::FIGURES;
use crate::model::Model;
use crate::report;
use crate::workload::Requests;

/// Every field as it was used.
pub(crate) const CONFIG_TOML: &str = "config.toml";
/// A line for each run that is done.
pub(crate) const RUNS_CSV: &str = "runs.csv";
/// A line for each run when all are done, in order.
pub(crate) const ROWS_CSV: &str = "rows.csv";

/// Options of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The directory of the results, which is created.
    pub out: &'a Path,
    /// Threads; each run takes one.
    pub threads: usize,
    /// Set to stop: no further run begins.
    pub stop: &'a AtomicBool,
}

/// The progress of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress<'a> {
    /// Runs done, including those of an earlier, interrupted sweep.
    pub done: usize,
    /// All runs.
    pub total: usize,
    /// The values of the run that ended last.
    pub last: &'a str,
}

/// Runs a configuration and writes its results. `progress` is called at the start and after each run.
///
/// # Errors
/// If a trace cannot be read, the directory cannot be written or holds results of another configuration, or
/// [`Error::Interrupted`].
pub fn run(config: &Config, options: &Options<'_>, progress: &mut dyn FnMut(Progress<'_>)) -> Result<()> {
    let Options { out, .. } = *options;
    let sweep = Sweep::new(config);
    for point in &sweep.points {
        check(point).map_err(|error| match error {
            Error::Contradiction { key, .. } => {
                let field = find(key).expect("a field of the table");
                Error::Field { place: config.place(field, "the defaults"), reason: error.to_string() }
            }
            error => error,
        })?;
    }
    let _lock = lock(out)?;
    claim(config, out)?;

    let runs_csv = out.join(RUNS_CSV);
    let mut rows = sweep.kept(&runs_csv)?;
    let mut log = rewrite(&runs_csv, &sweep.head, rows.values())?;
    let Sweep { points, columns, .. } = &sweep;
    let total = points.len();
    let todo = sweep.missing(&rows);
    progress(Progress { done: rows.len(), total, last: "" });

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
                let row = row(&keys(&points[run], columns), &found);
                writeln!(log, "{row}").map_err(|source| error(&runs_csv, source))?;
                rows.insert(run, row);
                progress(Progress { done: rows.len(), total, last: &sweep.name(run) });
                Ok(())
            });
            if let (Err(why), true) = (kept, outcome.is_ok()) {
                failed.store(true, Ordering::Relaxed);
                outcome = Err(why);
            }
        }
    });
    drop(log);
    // In order, whatever order they ended in.
    rewrite(&runs_csv, &sweep.head, rows.values())?;
    outcome?;
    if rows.len() < total {
        let missing = sweep.missing(&rows);
        let lines = missing.iter().map(|run| keys(&points[*run], columns));
        let lines = std::iter::once(columns.join(",")).chain(lines).map(|line| format!("{line}\n"));
        write(&out.join("missing.csv"), &lines.collect::<String>())?;
        return Err(Error::Interrupted { done: rows.len(), total, missing: sweep.few(&missing) });
    }
    match fs::remove_file(out.join("missing.csv")) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => return Err(error(out, source)),
        _ => (),
    }
    sweep.finish(out, &config.explain(), &rows)
}

/// Checks what can be checked quickly, so that a sweep does not fail after hours at its last run.
fn check(point: &Point) -> Result<()> {
    if point.model() == Model::Reconfig {
        return datacenter::Setup::of(point).map(|_| ());
    }
    match (point.scenario().workload.kind, point.scenario().workload.arrivals) {
        (Source::Zipf, ArrivalKind::Trace) => Err(Error::NoTimes),
        (Source::Trace, _) => {
            let path = point.trace();
            let opened = |source| sidelong_trace::Error::Open { path: path.clone(), source };
            fs::metadata(&path).map_err(opened)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The runs of a configuration, and how their rows are written.
struct Sweep {
    points: Vec<Point>,
    columns: Vec<&'static str>,
    head: String,
}

impl Sweep {
    fn new(config: &Config) -> Self {
        let columns = columns(config);
        Sweep { points: config.points(), head: head(config.model(), &columns), columns }
    }

    /// Runs that have no row.
    fn missing(&self, rows: &BTreeMap<usize, String>) -> Vec<usize> {
        (0..self.points.len()).filter(|run| !rows.contains_key(run)).collect()
    }

    /// The fields that distinguish a run.
    fn name(&self, run: usize) -> String {
        let point = &self.points[run];
        self.columns.iter().map(|key| format!("{key} {}", point.get(key))).collect::<Vec<_>>().join(", ")
    }

    /// The first few of these runs, and how many more there are.
    fn few(&self, runs: &[usize]) -> String {
        const FEW: usize = 5;
        let first = runs.iter().take(FEW).map(|run| format!("\"{}\"", self.name(*run)));
        let first = first.collect::<Vec<_>>().join(", ");
        if runs.len() > FEW { format!("{first} and {} more", runs.len() - FEW) } else { first }
    }

    /// Writes the results of a whole sweep. `config` is the text of `config.toml`.
    fn finish(&self, out: &Path, config: &str, rows: &BTreeMap<usize, String>) -> Result<()> {
        let rows_csv = out.join(ROWS_CSV);
        rewrite(&rows_csv, &self.head, rows.values())?;
        let table = report::Table::parse(&rows_csv)?;
        write(&out.join("result.json"), &report::json(config, &table))?;
        let figure = figure::of(&table)?;
        if let Drawing::Svg(drawing) = &figure {
            write(&out.join("figure.svg"), drawing)?;
        }
        write(&out.join("report.md"), &report::markdown(config, &table, &figure))
    }
}

/// One run, unless it is stopped before it starts: its figures, in the order of their columns.
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

/// Requests shared by concurrent runs.
#[derive(Debug, Default)]
struct Shelf(Mutex<BTreeMap<String, Weak<Requests>>>);

impl Shelf {
    fn get(&self, point: &Point) -> Result<Arc<Requests>> {
        let key = point.workload_key();
        // Others wait meanwhile, most of them for the same requests.
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
    // As short as they can be read back exactly.
    let figures = figures.iter().map(f64::to_string);
    std::iter::once(keys.to_owned()).chain(figures).collect::<Vec<_>>().join(",")
}

/// Makes a directory and locks it against other runs until the returned file is dropped. Two
/// runs with one directory would overwrite each other.
fn lock(out: &Path) -> Result<File> {
    fs::create_dir_all(out).map_err(|source| error(out, source))?;
    let path = out.join("lock");
    let file =
        File::options().create(true).append(true).open(&path).map_err(|source| error(&path, source))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            let reason = "in use by another run; choose another --out, or wait for it to end".to_owned();
            Err(Error::Taken { path: out.to_owned(), reason })
        }
        // Some file systems have no locks.
        _ => Ok(file),
    }
}

/// Claims the directory for this configuration.
///
/// # Errors
/// If the directory has results of another configuration, with the field that differs.
fn claim(config: &Config, out: &Path) -> Result<()> {
    let path = out.join(CONFIG_TOML);
    let has_rows = |name: &str| {
        open_regular(&out.join(name))
            .and_then(std::io::read_to_string)
            .is_ok_and(|text| text.lines().nth(1).is_some())
    };
    if !has_rows(RUNS_CSV) && !has_rows(ROWS_CSV) {
        return write(&path, &config.explain());
    }
    let text = match open_regular(&path).and_then(std::io::read_to_string) {
        Ok(text) => text,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            return write(&path, &config.explain());
        }
        Err(source) => return Err(error(&path, source)),
    };
    let difference = match Config::parse(&text, &path.display().to_string(), out, &[]) {
        Ok(found) => match found.difference(config) {
            Some(difference) => format!("in which {difference}"),
            None => return write(&path, &config.explain()),
        },
        Err(why) => format!("which this version does not read ({why})"),
    };
    let reason = format!("the results here are of another configuration, {difference}; choose another --out");
    Err(Error::Taken { path, reason })
}

impl Sweep {
    /// Rows of an earlier sweep, by run; incomplete lines are left out.
    fn kept(&self, path: &Path) -> Result<BTreeMap<usize, String>> {
        let Sweep { points, columns, head } = self;
        let text = match open_regular(path).and_then(std::io::read_to_string) {
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
        let width = head.split(',').count();
        // A line that a full disk cut off, and that the next one continued, is ignored.
        let known = |line: &str| {
            let values: Vec<_> = line.split(',').collect();
            let (keys, figures) = values.split_at_checked(columns.len())?;
            let is_whole =
                values.len() == width && figures.iter().all(|figure| figure.parse::<f64>().is_ok());
            by_keys.get(&keys.join(",")).filter(|_| is_whole).map(|run| (*run, line.to_owned()))
        };
        Ok(lines.filter_map(known).collect())
    }
}

fn rewrite<'a>(path: &Path, head: &'a str, rows: impl Iterator<Item = &'a String>) -> Result<File> {
    let text: String =
        std::iter::once(head).chain(rows.map(String::as_str)).map(|row| format!("{row}\n")).collect();
    write(path, &text)?;
    File::options().append(true).open(path).map_err(|source| error(path, source))
}

/// Writes a whole file, or keeps the old one.
fn write(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).map_err(|source| error(path, source))
}

fn error(path: &Path, source: std::io::Error) -> Error {
    Error::File { path: PathBuf::from(path), source }
}
