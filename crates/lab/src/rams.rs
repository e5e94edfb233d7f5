//! C1-C4: the cooperative cache of Gu and Wang 2004, simulated by `sidelong sim run`.
//!
//! Values that the paper does not print (memory of a node, the site, the cost of a request) are fixed here before anything
//! runs, and not changed afterwards. If a published shape does not come out, further runs vary those unknowns, and the
//! report gives the values for which it does.

mod judge;
pub(crate) mod live;
mod report;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_figure::{Axis, Line, Panel, Style};

use crate::bench::Bench;
use crate::check::{Check, Verdict};
use crate::drawing::Drawing;
use crate::error::{Result, file};
use crate::sim;
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::{self, Fixed};
use judge::Judge;

/// The paper's protocols without the baseline and without the upper bound, which it reports to lose.
const C_PROTOCOLS: [&str; 4] = ["lazy", "sender", "receiver", "accumulated"];
/// Protocols with a threshold.
const THRESHOLD: [&str; 3] = ["sender", "receiver", "accumulated"];
const PROTOCOLS: [&str; 7] = ["rpc", "lazy", "aggressive", "sender", "receiver", "accumulated", "ledger"];
const SIZES: [u32; 4] = [4, 16, 64, 256];
/// Nodes of C1.
const TRACE_NODES: u32 = 64;
const REQUESTS: u32 = 1_000_000;
const REQUESTS_QUICK: u32 = 100_000;
/// Requests of C1's traces: several times a short log.
const TRACE_REQUESTS: u32 = 300_000;

/// A site of 40,000 objects (1.1 GB) by Zipf's law, on nodes that keep 64 MB: the caches of 16 nodes hold half of it.
const SITE: &str = "profile = \"rams\"\n[workload]\nkind = \"zipf\"\nobjects = 40_000\nalpha = 0.9\n[cluster]\nmemory_mb = 64\n";

/// Values of the unknowns for the further runs.
const MEMORY_MB: [&str; 4] = ["8", "32", "128", "512"];
const REQUEST_US: [&str; 3] = ["20", "60", "180"];
const ANSWER_US_PER_KIB: [&str; 2] = ["2.5", "10"];

/// The figure that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    Traces,
    Response,
    Throughput,
    Failures,
}

impl Of {
    const fn axis(self) -> &'static str {
        match self {
            Of::Traces | Of::Response => "mean response time (ms)",
            Of::Throughput => "requests/s",
            Of::Failures => "reads that fail (%)",
        }
    }

    fn value(self, row: &Row) -> f64 {
        match self {
            Of::Traces | Of::Response => row.figures.response_ms_mean,
            Of::Throughput => row.figures.requests_per_s,
            Of::Failures => 100.0 * row.figures.read_failure_rate,
        }
    }
}

/// The figures of a run, simulated or live.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Figures {
    requests: u64,
    response_ms_mean: f64,
    response_ms_p50: f64,
    response_ms_p99: f64,
    requests_per_s: f64,
    here_rate: f64,
    disk_rate: f64,
    read_rate: f64,
    read_failure_rate: f64,
    update_messages_per_request: f64,
    update_bytes_per_request: f64,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// C1: the trace. Runs that vary the unknowns: their values. Otherwise empty.
    case: String,
    nodes: u32,
    protocol: String,
    #[serde(flatten)]
    figures: Figures,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum TableLine {
    Trace { trace: String, protocol: String, response_ms_mean: Fixed<4>, response_ms_p99: Fixed<4> },
    Response { nodes: u32, protocol: String, response_ms_mean: Fixed<4> },
    Throughput { nodes: u32, protocol: String, requests_per_s: Fixed<1> },
    Failures { nodes: u32, protocol: String, read_failure_rate: Fixed<6> },
}

impl TableLine {
    fn of(of: Of, row: &Row) -> TableLine {
        let (nodes, protocol) = (row.nodes, row.protocol.clone());
        let (response_ms_mean, response_ms_p99) =
            (Fixed(row.figures.response_ms_mean), Fixed(row.figures.response_ms_p99));
        match of {
            Of::Traces => {
                TableLine::Trace { trace: row.case.clone(), protocol, response_ms_mean, response_ms_p99 }
            }
            Of::Response => TableLine::Response { nodes, protocol, response_ms_mean },
            Of::Throughput => {
                TableLine::Throughput { nodes, protocol, requests_per_s: Fixed(row.figures.requests_per_s) }
            }
            Of::Failures => TableLine::Failures {
                nodes,
                protocol,
                read_failure_rate: Fixed(row.figures.read_failure_rate),
            },
        }
    }
}

/// A row of the simulator. Beside nodes and protocol it has the fields that the sweep varied.
#[derive(Debug, Deserialize)]
struct Simulated {
    nodes: u32,
    protocol: String,
    #[serde(flatten)]
    figures: Figures,
    memory_mb: Option<String>,
    request_us: Option<String>,
    answer_us_per_kib: Option<String>,
}

/// Settings that all runs share.
#[derive(Serialize)]
struct Rams {
    site: &'static str,
    requests: u32,
    /// Each trace with its workload.
    #[serde(serialize_with = "names")]
    traces: Vec<(String, String)>,
    /// How many cases the varied runs had, and in how many each check held.
    varied: Vec<Varied>,
    #[serde(skip)]
    of: Of,
    #[serde(skip)]
    quick: bool,
}

fn names<S: serde::Serializer>(
    traces: &[(String, String)],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(traces.iter().map(|(name, _)| name))
}

/// The values of the unknowns for which a shape comes out.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Varied {
    what: String,
    holds_for: Vec<String>,
    of: usize,
}

/// A sweep to run: its name, its file, and its `--set` arguments.
struct Sweep {
    name: String,
    config: String,
    sets: Vec<String>,
}

pub(crate) fn run(bench: &mut Bench<'_>, of: Of) -> Result<Conclusion> {
    let quick = bench.options.quick;
    let requests = if quick { REQUESTS_QUICK } else { REQUESTS };
    let traces = traces(bench)?;
    study::run(bench, Rams { site: SITE, requests, traces, varied: Vec::new(), of, quick })
}

impl Rams {
    fn sweeps(&self) -> Vec<Sweep> {
        match self.of {
            Of::Traces => {
                let requests = if self.quick { REQUESTS_QUICK } else { TRACE_REQUESTS };
                self.traces.iter().map(|(name, workload)| of_trace(name, workload, requests)).collect()
            }
            _ => vec![sweep("sizes", self.requests, &format!("nodes={}", joined(&SIZES)), &PROTOCOLS)],
        }
    }

    /// Sweeps that vary what the paper does not print, made if a shape does not come out.
    fn further(&self) -> Vec<Sweep> {
        if self.quick { Vec::new() } else { unknowns(self.of, &self.traces) }
    }

    fn time(&self) -> Duration {
        Duration::from_secs(if self.quick { 10 } else { 60 })
    }
}

impl Study for Rams {
    type Row = Row;
    type Line = TableLine;

    const NEEDS_THE_MACHINE: bool = false;

    fn plan(&self) -> Vec<Duration> {
        let sweeps = self.sweeps().into_iter().map(|_| self.time());
        sweeps.chain(self.further().into_iter().map(|_| 5 * self.time())).collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Rams>) -> Result<()> {
        for sweep in self.sweeps() {
            let case = if self.of == Of::Traces { sweep.name.as_str() } else { "" };
            for row in simulate(bench, &sweep, case, self.time())? {
                rows.push(self, row)?;
            }
        }
        let (checks, further) = (self.checks(rows.all()), self.further());
        if !further.is_empty() && checks.iter().any(|check| check.verdict == Verdict::Missed) {
            self.varied = vary(bench, self.of, &checks, &further, 5 * self.time())?;
        } else {
            further.iter().for_each(|_| bench.skip());
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let has_reads = self.of != Of::Failures || row.protocol != "rpc";
        has_reads.then(|| TableLine::of(self.of, row)).into_iter().collect()
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("{} nodes, {}: {what}", row.nodes, row.protocol);
        vec![
            Bound::share(of("reads that fail"), row.figures.read_failure_rate),
            Bound::not_below_zero(of("response time, ms"), row.figures.response_ms_mean),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(self.of, rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(self.of, rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(self, rows, story);
    }
}

fn joined(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn sweep(name: &str, requests: u32, more: &str, protocols: &[&str]) -> Sweep {
    let protocols = format!("protocol={}", joined(protocols));
    let mut sets = vec![format!("requests={requests}"), protocols];
    sets.extend(more.split_whitespace().map(str::to_owned));
    Sweep { name: name.to_owned(), config: SITE.to_owned(), sets }
}

fn of_trace(name: &str, workload: &str, requests: u32) -> Sweep {
    let config = format!(
        "profile = \"rams\"\n[workload]\n{workload}[cluster]\nmemory_mb = 64\nnodes = {TRACE_NODES}\n"
    );
    let sets = vec![format!("requests={requests}"), format!("protocol={}", joined(&PROTOCOLS))];
    Sweep { name: name.to_owned(), config, sets }
}

/// The built-in sample and up to two real logs, the first by name.
fn traces(bench: &Bench<'_>) -> Result<Vec<(String, String)>> {
    let mut traces = vec![("worldcup98-sample".to_owned(), "kind = \"sample\"\n".to_owned())];
    for (name, path) in logs(bench)?.into_iter().take(2) {
        traces.push((name, format!("kind = \"trace\"\ntrace = {:?}\n", path.display().to_string())));
    }
    Ok(traces)
}

/// The logs in the directory of `--traces`, if there is one, by name. Files that describe them are left out.
pub(crate) fn logs(bench: &Bench<'_>) -> Result<Vec<(String, PathBuf)>> {
    let Some(directory) = &bench.options.traces else { return Ok(Vec::new()) };
    let mut logs = Vec::new();
    for entry in file(directory, fs::read_dir(directory))? {
        let path = file(directory, entry)?.path();
        if path.is_file() && !is_about(&path) {
            logs.push(file(&path, path.canonicalize())?);
        }
    }
    if logs.is_empty() {
        let source =
            io::Error::new(io::ErrorKind::NotFound, "no log lies in it (directories in it are not searched)");
        return file(directory, Err(source));
    }
    logs.sort();
    let named = |path: PathBuf| {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
        (name.chars().map(plain).collect(), path)
    };
    Ok(logs.into_iter().map(named).collect())
}

/// Whether a file is a README, a licence or a notice, and not a log.
fn is_about(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let begins = ["readme", "license", "copyright", "notice", "."];
    name.ends_with(".md") || begins.iter().any(|begin| name.starts_with(begin))
}

/// Runs `sidelong sim run` and reads its rows.
fn simulate(bench: &mut Bench<'_>, sweep: &Sweep, case: &str, time: Duration) -> Result<Vec<Row>> {
    let Sweep { name, config, sets } = sweep;
    // Simulated time is no guide: the duration depends on the machine alone.
    let path = sim::run(bench, &bench.name(name.as_str()), config, sets, time * 60)?;
    Ok(table::read(&path)?.into_iter().map(|row| Row::of(row, case)).collect())
}

impl Row {
    /// The values of varied unknowns become the case.
    fn of(row: Simulated, case: &str) -> Row {
        let unknowns = [(row.memory_mb, "MB"), (row.request_us, "µs"), (row.answer_us_per_kib, "µs/KiB")];
        let told = |(value, unit): (Option<String>, &str)| Some(format!("{} {unit}", value?));
        let unknowns = unknowns.into_iter().filter_map(told);
        Row {
            case: if case.is_empty() { unknowns.collect::<Vec<_>>().join(", ") } else { case.to_owned() },
            nodes: row.nodes,
            protocol: row.protocol,
            figures: row.figures,
        }
    }
}

/// The same runs for other values of what the paper does not print. Logs are repeated more often: with few requests, most
/// of the time goes into the first load of each object from disk, which is the same for all protocols.
fn unknowns(of: Of, traces: &[(String, String)]) -> Vec<Sweep> {
    let more = format!(
        "memory_mb={} request_us={} answer_us_per_kib={}",
        joined(&MEMORY_MB),
        joined(&REQUEST_US),
        joined(&ANSWER_US_PER_KIB)
    );
    if of != Of::Traces {
        let more = format!("nodes={} {more}", joined(&SIZES));
        return vec![sweep("unknowns", REQUESTS, &more, &PROTOCOLS)];
    }
    let of_trace = |(name, workload): &(String, String)| {
        let mut sweep = of_trace(name, workload, REQUESTS);
        sweep.name = format!("unknowns-{name}");
        sweep.sets.extend(more.split_whitespace().map(str::to_owned));
        sweep
    };
    traces.iter().map(of_trace).collect()
}

/// Runs these sweeps and finds the values for which each check holds.
fn vary(
    bench: &mut Bench<'_>,
    of: Of,
    checks: &[Check],
    sweeps: &[Sweep],
    time: Duration,
) -> Result<Vec<Varied>> {
    let mut rows = Vec::new();
    for sweep in sweeps {
        rows.extend(simulate(bench, sweep, "", time)?.into_iter().map(|row| (sweep.name.as_str(), row)));
    }
    let mut cases: Vec<&str> = rows.iter().map(|(_, row)| row.case.as_str()).collect();
    cases.sort_unstable();
    cases.dedup();
    let of_case = |case: &str| {
        // The sweep of a row, which is its trace, now tells the cases apart.
        let of_sweep = |(sweep, row): &(&str, Row)| Row { case: (*sweep).to_owned(), ..row.clone() };
        let rows: Vec<Row> = rows.iter().filter(|(_, row)| row.case == case).map(of_sweep).collect();
        self::checks(of, &rows)
    };
    let all: Vec<_> = cases.iter().map(|case| (*case, of_case(case))).collect();
    let holds = |i: usize| {
        let holding = all.iter().filter(|(_, checks)| checks[i].verdict == Verdict::Met);
        holding.map(|(case, _)| (*case).to_owned()).collect()
    };
    let varied = checks.iter().enumerate().map(|(i, check)| Varied {
        what: check.what.clone(),
        holds_for: holds(i),
        of: all.len(),
    });
    Ok(varied.collect())
}

/// Judges the simulated rows of a figure.
fn checks(of: Of, rows: &[Row]) -> Vec<Check> {
    let judge = Judge { of, sizes: &SIZES, rows };
    judge.statements().into_iter().map(|statement| statement.check).collect()
}

fn style(protocol: &str) -> Style {
    match protocol {
        "rpc" => Style::BASELINE,
        "ledger" => Style::OURS,
        "sender" => Style::THIRD,
        "receiver" => Style::series(5),
        "lazy" => Style::FOURTH,
        "accumulated" => Style::FIFTH,
        _ => Style::series(6),
    }
}

fn draw(of: Of, rows: &[Row]) -> Drawing {
    let shown: Vec<&str> =
        PROTOCOLS.into_iter().filter(|protocol| of != Of::Failures || *protocol != "rpc").collect();
    let mut cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
    cases.dedup();
    let x = |row: &Row| match of {
        Of::Traces => cases.iter().position(|case| *case == row.case).map_or(0.0, |at| at as f64 + 1.0),
        _ => f64::from(row.nodes).log2() / 2.0,
    };
    let line = |protocol: &&str| {
        let of_protocol = rows.iter().filter(|row| row.protocol == *protocol);
        Line::new(style(protocol), of_protocol.map(|row| (x(row), of.value(row))).collect())
    };
    let most = rows.iter().map(|row| of.value(row)).fold(0.0, f64::max);
    let axis = match of {
        Of::Traces => Axis::counting(format!("trace: {}", cases.join(", ")), cases.len() as u32),
        _ => Axis {
            label: |power| format!("{}", 4f64.powf(power)),
            ..Axis::counting("nodes", SIZES.len() as u32)
        },
    };
    let panel = Panel {
        title: String::new(),
        x: axis,
        y: Axis::from_zero(of.axis(), most),
        lines: shown.iter().map(line).collect(),
    };
    let legend = shown.iter().map(|protocol| ((*protocol).to_owned(), style(protocol))).collect();
    Drawing { panels: vec![panel], legend, ..Drawing::default() }
}
