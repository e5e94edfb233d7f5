//! C1-C4: the cooperative cache of C, simulated by `sidelong sim run`.
//!
//! What C does not say (memory of a node, the site, what a request takes) is fixed here before anything runs, and not
//! changed afterwards. Where a published shape does not come out, further runs vary those unknowns, and the report says
//! for which values it does.

mod report;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::bench::Bench;
use crate::check::Check;
use crate::csv;
use crate::error::{Result, file};
use crate::figure::{self, Axis, Line, Look, Panel};
use crate::machine::Machine;
use crate::report::Outcome;
use crate::sim;

/// C's protocols but the baseline and the upper bound, which it says loses.
const C_PROTOCOLS: [&str; 4] = ["lazy", "sender", "receiver", "accumulated"];
/// Those with a threshold.
const THRESHOLD: [&str; 3] = ["sender", "receiver", "accumulated"];
const PROTOCOLS: [&str; 7] = ["rpc", "lazy", "aggressive", "sender", "receiver", "accumulated", "ledger"];
const SIZES: [u32; 4] = [4, 16, 64, 256];
const REQUESTS: u32 = 1_000_000;
const REQUESTS_QUICK: u32 = 100_000;
/// Of C1's traces: some times a short log.
const TRACE_REQUESTS: u32 = 300_000;

/// A site of 40,000 objects (1.1 GB) by Zipf's law, on nodes that keep 64 MB: the caches of 16 nodes hold half of it.
const SITE: &str = "profile = \"rams\"\n[workload]\nkind = \"zipf\"\nobjects = 40_000\nalpha = 0.9\n[cluster]\nmemory_mb = 64\n";

/// Values of the unknowns, where a shape did not come out.
const MEMORY_MB: [&str; 4] = ["8", "32", "128", "512"];
const REQUEST_US: [&str; 3] = ["20", "60", "180"];
const ANSWER_US_PER_KIB: [&str; 2] = ["2.5", "10"];

/// Which figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    Traces,
    Response,
    Throughput,
    Failures,
}

impl Of {
    pub(crate) const fn columns(self) -> &'static [&'static str] {
        match self {
            Of::Traces => &["trace", "protocol", "response_ms_mean", "response_ms_p99"],
            Of::Response => &["nodes", "protocol", "response_ms_mean"],
            Of::Throughput => &["nodes", "protocol", "requests_per_s"],
            Of::Failures => &["nodes", "protocol", "read_failure_rate"],
        }
    }

    const fn axis(self) -> &'static str {
        match self {
            Of::Traces | Of::Response => "mean response time (ms)",
            Of::Throughput => "requests/s",
            Of::Failures => "reads that fail (%)",
        }
    }

    fn value(self, row: &Row) -> f64 {
        match self {
            Of::Traces | Of::Response => row.response_ms_mean,
            Of::Throughput => row.requests_per_s,
            Of::Failures => 100.0 * row.read_failure_rate,
        }
    }
}

/// One simulated run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// Of C1, the trace; of runs that vary the unknowns, their values; otherwise nothing.
    case: String,
    nodes: u32,
    protocol: String,
    response_ms_mean: f64,
    response_ms_p99: f64,
    requests_per_s: f64,
    disk_rate: f64,
    read_failure_rate: f64,
    update_bytes_per_request: f64,
}

impl Row {
    fn csv(&self, of: Of) -> String {
        let Row { case, nodes, protocol, .. } = self;
        match of {
            Of::Traces => {
                format!("{case},{protocol},{:.4},{:.4}", self.response_ms_mean, self.response_ms_p99)
            }
            Of::Response => format!("{nodes},{protocol},{:.4}", self.response_ms_mean),
            Of::Throughput => format!("{nodes},{protocol},{:.1}", self.requests_per_s),
            Of::Failures => format!("{nodes},{protocol},{:.6}", self.read_failure_rate),
        }
    }
}

/// What all runs share.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    site: &'static str,
    requests: u32,
    traces: Vec<String>,
    /// How many of the varied runs' cases there were, and in how many each check held.
    varied: Vec<Varied>,
}

/// For which values of the unknowns a shape comes out.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Varied {
    what: String,
    holds_for: Vec<String>,
    of: usize,
}

/// A sweep to run: its name, its file, and what is set beside it.
struct Sweep {
    name: String,
    config: String,
    sets: Vec<String>,
}

pub(crate) fn run(bench: &mut Bench<'_>, of: Of) -> Result<Vec<Check>> {
    let quick = bench.options.quick;
    let requests = if quick { REQUESTS_QUICK } else { REQUESTS };
    let traces = traces(bench)?;
    let sweeps = match of {
        Of::Traces => {
            let requests = if quick { REQUESTS_QUICK } else { TRACE_REQUESTS };
            traces.iter().map(|(name, workload)| of_trace(name, workload, requests)).collect()
        }
        _ => vec![sweep("sizes", requests, &format!("nodes={}", joined(&SIZES)), &PROTOCOLS)],
    };
    let time = Duration::from_secs(if quick { 10 } else { 60 });
    sweeps.iter().for_each(|_| bench.expect_for(time));
    let further = if quick { Vec::new() } else { unknowns(of, &traces) };
    further.iter().for_each(|_| bench.expect_for(time * 5));

    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut rows = Vec::new();
    for sweep in sweeps {
        let found = simulate(bench, &sweep, if of == Of::Traces { &sweep.name } else { "" }, time)?;
        table.rows(
            found.iter().filter(|row| of != Of::Failures || row.protocol != "rpc").map(|row| row.csv(of)),
        )?;
        rows.extend(found);
    }
    let checks = checks(of, &rows);
    let varied = if !further.is_empty() && checks.iter().any(|check| check.holds == Some(false)) {
        vary(bench, of, &checks, &further, time * 5)?
    } else {
        further.iter().for_each(|_| bench.skip());
        Vec::new()
    };
    bench.write("figure.svg", &draw(bench, of, &rows)?)?;
    let machine = Machine::here();
    let traces = traces.into_iter().map(|(name, _)| name).collect();
    let settings = Settings { site: SITE, requests, traces, varied };
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &report::markdown(&outcome, of))?;
    Ok(checks)
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
    let config = format!("profile = \"rams\"\n[workload]\n{workload}[cluster]\nmemory_mb = 64\nnodes = 64\n");
    let sets = vec![format!("requests={requests}"), format!("protocol={}", joined(&PROTOCOLS))];
    Sweep { name: name.to_owned(), config, sets }
}

/// The built-in sample and up to two real logs, the first by name; what is written about them is none.
fn traces(bench: &Bench<'_>) -> Result<Vec<(String, String)>> {
    let mut traces = vec![("worldcup98-sample".to_owned(), "kind = \"sample\"\n".to_owned())];
    if let Some(directory) = &bench.options.traces {
        let mut logs = Vec::new();
        for entry in file(directory, fs::read_dir(directory))? {
            let path = file(directory, entry)?.path();
            if path.is_file() && !is_about(&path) {
                logs.push(file(&path, path.canonicalize())?);
            }
        }
        if logs.is_empty() {
            let source = io::Error::new(
                io::ErrorKind::NotFound,
                "no log lies in it (directories in it are not searched)",
            );
            return file(directory, Err(source));
        }
        logs.sort();
        for path in logs.into_iter().take(2) {
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
            let name: String = name.chars().map(plain).collect();
            traces.push((name, format!("kind = \"trace\"\ntrace = {:?}\n", path.display().to_string())));
        }
    }
    Ok(traces)
}

/// Whether a file beside logs says what they are, and to whom they belong.
fn is_about(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let begins = ["readme", "license", "copyright", "notice", "."];
    name.ends_with(".md") || begins.iter().any(|begin| name.starts_with(begin))
}

/// Runs `sidelong sim run` and reads its rows.
fn simulate(bench: &mut Bench<'_>, sweep: &Sweep, case: &str, time: Duration) -> Result<Vec<Row>> {
    let Sweep { name, config, sets } = sweep;
    // Simulated time is not ours: what it takes depends on the machine alone.
    read(sim::run(bench, name, config, sets, time * 60)?, case)
}

/// The rows of a simulation. Of a field beside nodes and protocol that was varied, the value becomes a part of the case.
fn read(path: PathBuf, case: &str) -> Result<Vec<Row>> {
    let text = file(&path, fs::read_to_string(&path))?;
    let head = text.lines().next().unwrap_or_default().to_owned();
    let columns: Vec<&str> = head.split(',').collect();
    let at = |name: &str| columns.iter().position(|column| *column == name);
    let parse = |line: &str| {
        let values: Vec<&str> = line.split(',').collect();
        let value = |name: &str| at(name).and_then(|at| values.get(at)).copied();
        let number = |name: &str| value(name).and_then(|value| value.parse::<f64>().ok());
        let unknown = |(name, unit): (&str, &str)| value(name).map(|value| format!("{value} {unit}"));
        let unknowns = [("memory_mb", "MB"), ("request_us", "µs"), ("answer_us_per_kib", "µs/KiB")];
        let unknowns = unknowns.into_iter().filter_map(unknown);
        let case = if case.is_empty() { unknowns.collect::<Vec<_>>().join(", ") } else { case.to_owned() };
        Some(Row {
            case,
            nodes: value("nodes")?.parse().ok()?,
            protocol: value("protocol")?.to_owned(),
            response_ms_mean: number("response_ms_mean")?,
            response_ms_p99: number("response_ms_p99")?,
            requests_per_s: number("requests_per_s")?,
            disk_rate: number("disk_rate")?,
            read_failure_rate: number("read_failure_rate")?,
            update_bytes_per_request: number("update_bytes_per_request")?,
        })
    };
    csv::read(&path, &head, parse)
}

/// The same runs for other values of what C does not say. Logs go round more often: with few requests, most of what takes
/// time is loaded from disk for the first time, by all protocols alike.
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

/// Runs these and says for which values each check holds.
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
        // What tells them apart is now the sweep that they are of: the trace.
        let of_sweep = |(sweep, row): &(&str, Row)| Row { case: (*sweep).to_owned(), ..row.clone() };
        let rows: Vec<Row> = rows.iter().filter(|(_, row)| row.case == case).map(of_sweep).collect();
        self::checks(of, &rows)
    };
    let all: Vec<_> = cases.iter().map(|case| (*case, of_case(case))).collect();
    let holds = |i: usize| {
        let holding = all.iter().filter(|(_, checks)| checks[i].holds == Some(true));
        holding.map(|(case, _)| (*case).to_owned()).collect()
    };
    let varied = checks.iter().enumerate().map(|(i, check)| Varied {
        what: check.what.clone(),
        holds_for: holds(i),
        of: all.len(),
    });
    Ok(varied.collect())
}

/// What C says of its figure, and what ours must do beside.
fn checks(of: Of, rows: &[Row]) -> Vec<Check> {
    let value = |case: &str, nodes: u32, protocol: &str| {
        let found =
            rows.iter().find(|row| row.case == case && row.nodes == nodes && row.protocol == protocol);
        found.map(|row| of.value(row))
    };
    let first = rows.first().map_or("", |row| row.case.as_str());
    let ratio = |nodes: u32, a: &str, b: &str| Some(value(first, nodes, a)? / value(first, nodes, b)?);
    let all =
        |f: &dyn Fn(u32) -> Option<f64>| SIZES.iter().map(|nodes| f(*nodes)).collect::<Option<Vec<_>>>();
    let most = |values: Vec<f64>| values.into_iter().fold(f64::MIN, f64::max);
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    match of {
        Of::Traces => {
            let mut cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
            cases.dedup();
            // Of each protocol the second best trace: at least two are as good.
            let second = |protocol: &&str| {
                let of = |case: &&str| Some(value(case, 64, protocol)? / value(case, 64, "rpc")?);
                let mut ratios: Vec<f64> = cases.iter().filter_map(of).collect();
                ratios.sort_by(f64::total_cmp);
                ratios.get(1).copied()
            };
            let worst =
                |protocols: &[&str]| protocols.iter().map(second).collect::<Option<Vec<_>>>().map(most);
            vec![
                Check::at_most(
                    "response time / RPC's on two traces, the worst of C's protocols but aggressive",
                    0.5,
                    worst(&C_PROTOCOLS),
                ),
                Check::at_most("response time / RPC's on two traces, ledger", 0.5, worst(&["ledger"])),
            ]
        }
        Of::Response => {
            let worst = |protocols: &[&str]| {
                let of = |nodes: u32| {
                    protocols
                        .iter()
                        .map(|protocol| ratio(nodes, protocol, "rpc"))
                        .collect::<Option<Vec<_>>>()
                        .map(most)
                };
                all(&of).map(most)
            };
            vec![
                Check::at_most(
                    "response time / RPC's, the worst of C's protocols at any size",
                    1.0,
                    worst(&C_PROTOCOLS),
                ),
                Check::at_most("response time / RPC's, ledger at any size", 1.0, worst(&["ledger"])),
            ]
        }
        Of::Throughput => {
            let against_rpc = |nodes: u32| {
                C_PROTOCOLS.iter().map(|p| ratio(nodes, p, "rpc")).collect::<Option<Vec<_>>>().map(mean)
            };
            let best = |nodes: u32| {
                C_PROTOCOLS.iter().map(|p| value(first, nodes, p)).collect::<Option<Vec<_>>>().map(most)
            };
            let beside =
                |protocol: &str| all(&|nodes| Some(value(first, nodes, protocol)? / best(nodes)?)).map(mean);
            vec![
                Check::at_least(
                    "throughput / RPC's, mean over C's protocols and sizes",
                    1.8,
                    all(&against_rpc).map(mean),
                ),
                Check::at_least(
                    "sender's throughput / the best of C's, mean over sizes",
                    1.0,
                    beside("sender"),
                ),
                Check::at_least(
                    "ledger's throughput / the best of C's, mean over sizes",
                    1.0,
                    beside("ledger"),
                ),
            ]
        }
        Of::Failures => failures(rows, first),
    }
}

fn failures(rows: &[Row], case: &str) -> Vec<Check> {
    let row = |nodes: u32, protocol: &str| {
        rows.iter().find(|row| row.case == case && row.nodes == nodes && row.protocol == protocol)
    };
    let rate = |nodes: u32, protocol: &str| row(nodes, protocol).map(|row| row.read_failure_rate);
    // Where lazy hardly fails there is nothing to lower.
    let matter: Vec<u32> =
        SIZES.into_iter().filter(|nodes| rate(*nodes, "lazy").is_some_and(|rate| rate >= 0.001)).collect();
    let lowered = matter.iter().flat_map(|nodes| {
        THRESHOLD.iter().filter_map(|p| Some(1.0 - rate(*nodes, p)? / rate(*nodes, "lazy")?))
    });
    let best = |nodes: u32| {
        let of = THRESHOLD.iter().filter_map(|protocol| row(nodes, protocol));
        of.min_by(|a, b| a.read_failure_rate.total_cmp(&b.read_failure_rate))
    };
    let beside = |f: &dyn Fn(&Row, &Row) -> f64| {
        let of = matter.iter().filter_map(|nodes| Some(f(row(*nodes, "ledger")?, best(*nodes)?)));
        of.reduce(f64::max)
    };
    let grows =
        Some(rate(256, "lazy").unwrap_or(0.0) / rate(4, "lazy").unwrap_or(0.0)).filter(|r| r.is_finite());
    vec![
        Check::at_least("reads that fail, lowered below lazy's by up to", 0.7, lowered.reduce(f64::max)),
        Check::at_least("reads that fail with 256 nodes / with 4, lazy", 1.0, grows),
        Check::at_most(
            "reads that fail, ledger / the best of C's at the same size, at most",
            0.5,
            beside(&|ours, theirs| part(ours.read_failure_rate, theirs.read_failure_rate)),
        ),
        Check::at_most(
            "bytes for updates, ledger / the best of C's at the same size, at most",
            1.0,
            beside(&|ours, theirs| part(ours.update_bytes_per_request, theirs.update_bytes_per_request)),
        ),
    ]
}

/// The first as a part of the second; nothing is none of anything, and something is without end more than nothing.
fn part(ours: f64, theirs: f64) -> f64 {
    if ours == 0.0 { 0.0 } else { ours / theirs }
}

fn look(protocol: &str) -> Look {
    match protocol {
        "rpc" => Look::BASELINE,
        "ledger" => Look::OURS,
        "sender" => Look::THIRD,
        "receiver" => Look::THIRD.ideal(),
        "lazy" => Look::FOURTH,
        "accumulated" => Look::FOURTH.ideal(),
        _ => Look::PAPER,
    }
}

fn draw(bench: &Bench<'_>, of: Of, rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let shown: Vec<&str> =
        PROTOCOLS.into_iter().filter(|protocol| of != Of::Failures || *protocol != "rpc").collect();
    let mut cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
    cases.dedup();
    let x = |row: &Row| match of {
        Of::Traces => cases.iter().position(|case| *case == row.case).map_or(0.0, |at| at as f64 + 1.0),
        _ => f64::from(row.nodes).log2() / 2.0,
    };
    let line = |protocol: &&str| Line {
        look: look(protocol),
        points: rows
            .iter()
            .filter(|row| row.protocol == *protocol)
            .map(|row| (x(row), of.value(row)))
            .collect(),
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
    let legend: Vec<_> = shown.iter().map(|protocol| ((*protocol).to_owned(), look(protocol))).collect();
    Ok(figure::draw(&title, &[panel], &legend)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(nodes: u32, protocol: &str, ms: f64, rate: f64, failing: f64, bytes: f64) -> Row {
        Row {
            case: String::new(),
            nodes,
            protocol: protocol.to_owned(),
            response_ms_mean: ms,
            response_ms_p99: 2.0 * ms,
            requests_per_s: rate,
            disk_rate: 0.0,
            read_failure_rate: failing,
            update_bytes_per_request: bytes,
        }
    }

    /// As C has it.
    fn published() -> Vec<Row> {
        let of = |(i, nodes): (usize, u32)| {
            let lazy = 0.2 + 0.1 * i as f64;
            [
                row(nodes, "rpc", 3.0, 100.0, 0.0, 0.0),
                row(nodes, "lazy", 1.4, 190.0, lazy, 0.0),
                row(nodes, "sender", 1.2, 215.0, lazy / 4.0, 20.0),
                row(nodes, "receiver", 1.3, 200.0, lazy / 3.0, 30.0),
                row(nodes, "accumulated", 1.2, 205.0, lazy / 3.0, 10.0),
                row(nodes, "ledger", 1.1, 216.0, lazy / 10.0, 20.0),
            ]
        };
        SIZES.into_iter().enumerate().flat_map(of).collect()
    }

    #[test]
    fn c_s_own_shapes_are_met() {
        for of in [Of::Response, Of::Throughput, Of::Failures] {
            for check in checks(of, &published()) {
                assert_eq!(check.verdict(), "met", "{check:?}");
            }
        }
        let mut traces = Vec::new();
        for (case, rpc) in [("a", 3.0), ("b", 3.0), ("c", 1.5)] {
            for protocol in C_PROTOCOLS.into_iter().chain(["ledger"]) {
                traces.push(Row { case: case.to_owned(), ..row(64, protocol, 1.0, 0.0, 0.0, 0.0) });
            }
            traces.push(Row { case: case.to_owned(), ..row(64, "rpc", rpc, 0.0, 0.0, 0.0) });
        }
        assert!(checks(Of::Traces, &traces).iter().all(|check| check.verdict() == "met"));
        // One trace is not two.
        assert_eq!(checks(Of::Traces, &traces[..6])[0].verdict(), "not measured");
    }

    #[test]
    fn shapes_that_are_not_there_are_missed() {
        let mut rows = published();
        for row in &mut rows {
            row.read_failure_rate = match row.protocol.as_str() {
                "lazy" => 0.3 / f64::from(row.nodes),
                "rpc" => 0.0,
                _ => 0.2 / f64::from(row.nodes),
            };
            row.update_bytes_per_request = if row.protocol == "ledger" { 21.0 } else { 20.0 };
            row.response_ms_mean = if row.protocol == "rpc" { 1.0 } else { 1.1 };
            row.requests_per_s = if row.protocol == "rpc" { 90.0 } else { 100.0 };
        }
        assert!(checks(Of::Failures, &rows).iter().all(|check| check.verdict() == "MISSED"));
        assert!(checks(Of::Response, &rows).iter().all(|check| check.verdict() == "MISSED"));
        assert_eq!(checks(Of::Throughput, &rows)[0].verdict(), "MISSED");
        assert!(checks(Of::Failures, &[]).iter().all(|check| check.verdict() == "not measured"));
        // More than nothing is not so many times as much.
        rows.iter_mut()
            .filter(|row| row.protocol != "ledger")
            .for_each(|row| row.update_bytes_per_request = 0.0);
        let bytes = &checks(Of::Failures, &rows)[3];
        assert_eq!((bytes.verdict(), bytes.measured), ("MISSED", Some(f64::INFINITY)));
    }
}
