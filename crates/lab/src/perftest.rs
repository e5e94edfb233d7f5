//! perftest: our operations over RDMA beside those of the program by which the field measures them, on one device, each in
//! its turn.
//!
//! Both sides of either are processes of this machine, one on each of two CPUs, and both poll. Absolute times are the
//! device's; what is judged is the ratio within a round.

mod report;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use crate::bench::Bench;
use crate::check::{Check, median};
use crate::cpus::{self, Pinned};
use crate::error::{Error, Result, file};
use crate::figure::{self, Axis, Line, Look, Panel};
use crate::machine::Machine;
use crate::perf::{self, DEVICES, Way};
use crate::process::{Ended, Process, last_line, quoted};
use crate::report::Outcome;

/// Issue 3: the median of ours over theirs.
const RATIO_MAX: f64 = 1.15;
/// Rounds, and operations of each turn.
const ROUNDS: (u32, u32) = (21, 2000);
const ROUNDS_QUICK: (u32, u32) = (3, 500);
/// Of reads and writes; atomics have 8.
const BYTES: &str = "64";
/// A turn takes about this long on an emulated device.
const TURN: Duration = Duration::from_secs(2);
/// perftest's two sides meet at this port (its own default is 18515).
const PORT: u16 = 18_600;
/// Its server listens after this at the latest; a client that comes before is refused.
const TRIES_MAX: u32 = 50;
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Either side of perftest, and what it prints.
const PERFTEST_MAX: Duration = Duration::from_secs(60);
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// What is compared.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Operation {
    name: &'static str,
    /// As `perf` is told.
    #[serde(skip)]
    ours: &'static [&'static str],
    /// Its counterpart.
    #[serde(skip)]
    theirs: &'static [&'static str],
}

const OPERATIONS: [Operation; 4] = [
    Operation { name: "read", ours: &["read"], theirs: &["ib_read_lat", "-s", BYTES] },
    Operation { name: "write", ours: &["write", "--ping-pong"], theirs: &["ib_write_lat", "-s", BYTES] },
    Operation { name: "cas", ours: &["cas"], theirs: &["ib_atomic_lat", "-A", "CMP_AND_SWAP"] },
    Operation { name: "faa", ours: &["faa"], theirs: &["ib_atomic_lat", "-A", "FETCH_AND_ADD"] },
];

/// Both in one round.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    operation: &'static str,
    /// From 1 on.
    round: u32,
    /// Medians of a turn.
    ours_us: f64,
    perftest_us: f64,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.ours_us / self.perftest_us
    }

    fn csv(&self) -> String {
        let Row { operation, round, ours_us, perftest_us } = self;
        format!("{operation},{round},{ours_us:.2},{perftest_us:.2},{:.4}", self.ratio())
    }
}

/// What all turns share.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    device: String,
    rounds: u32,
    operations_each: u32,
    target_cpu: usize,
    initiator_cpu: usize,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let (rounds, operations_each) = if bench.options.quick { ROUNDS_QUICK } else { ROUNDS };
    let [target_cpu, initiator_cpu] = cpus::two()?;
    let settings = Settings { device: device()?, rounds, operations_each, target_cpu, initiator_cpu };
    (0..rounds).for_each(|_| bench.expect_for(2 * TURN * OPERATIONS.len() as u32));
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut rows = Vec::new();
    for round in 1..=rounds {
        bench.begin(&format!("round-{round}"));
        for operation in OPERATIONS {
            let row = take_turns(bench, &settings, operation, round)?;
            table.rows([row.csv()])?;
            rows.push(row);
        }
        bench.end();
    }
    let checks: Vec<_> = OPERATIONS.iter().map(|operation| check(*operation, &rows)).collect();
    bench.write("figure.svg", &draw(bench, &rows)?)?;
    let machine = Machine::here();
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &report::markdown(&outcome))?;
    Ok(checks)
}

/// The first RDMA device.
fn device() -> Result<String> {
    let path = PathBuf::from(DEVICES);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&path).into_iter().flatten() {
        names.push(file(&path, entry)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    names.into_iter().next().ok_or_else(|| Error::Absent {
        what: format!("no RDMA device ({DEVICES} has none)"),
        instead: "`cargo xtask vm` has one",
    })
}

/// Who goes first alternates.
fn take_turns(bench: &mut Bench<'_>, settings: &Settings, operation: Operation, round: u32) -> Result<Row> {
    let (mut ours_us, mut perftest_us) = (None, None);
    for turn in 0..2 {
        if (round + turn).is_multiple_of(2) {
            ours_us = Some(ours(bench, settings, operation)?);
        } else {
            perftest_us = Some(theirs(bench, settings, operation)?);
        }
    }
    let [ours_us, perftest_us] = [ours_us, perftest_us].map(|us| us.expect("each has had its turn"));
    Ok(Row { operation: operation.name, round, ours_us, perftest_us })
}

fn ours(bench: &mut Bench<'_>, settings: &Settings, operation: Operation) -> Result<f64> {
    let name = format!("{}-ours", operation.name);
    let pin = format!("{},{}", settings.target_cpu, settings.initiator_cpu);
    let each = settings.operations_each.to_string();
    let more = ["--size", BYTES, "--pin", &pin, "--device", &settings.device, "--iterations", &each];
    let arguments = [operation.ours, &more].concat();
    let rows = perf::run(bench, &name, Way::VerbsPolling, &arguments, TURN)?;
    rows.first().and_then(perf::Row::p50_us).ok_or_else(|| {
        let path = bench.path(&format!("runs/{name}.json"));
        Error::Output { path, found: "no latency".into() }
    })
}

fn theirs(bench: &mut Bench<'_>, settings: &Settings, operation: Operation) -> Result<f64> {
    let [program, more @ ..] = operation.theirs else { return Err(absent()) };
    let command = |client: bool| {
        let mut command = Command::new(program);
        command.args(more).args(["-d", &settings.device, "-p", &PORT.to_string(), "-F"]);
        command.args(["-n", &settings.operations_each.to_string()]);
        command.args(client.then_some("127.0.0.1"));
        command
    };
    let files = |side: &str| {
        let at =
            |extension: &str| bench.path(&format!("runs/{}-perftest-{side}.{extension}", operation.name));
        (at("txt"), at("log"))
    };
    let (output, log) = files("server");
    let _server = start(command(false), settings.target_cpu, &output, &log)?;
    let (output, log) = files("client");
    for _ in 0..TRIES_MAX {
        let mut client = start(command(true), settings.initiator_cpu, &output, &log)?;
        match client.wait(PERFTEST_MAX, &bench.options.stop)? {
            Ended::Itself(status) if status.success() => return typical_us(&output),
            Ended::Itself(_) => std::thread::sleep(TRY_EVERY),
            Ended::Stopped => return Err(Error::Interrupted),
            Ended::TooLong => break,
        }
    }
    let said = last_line(&log).or_else(|| last_line(&output)).unwrap_or_else(|| "it does not end".into());
    let repeat = format!("{} {}", quoted(Path::new(program)), more.join(" "));
    Err(Error::Failed { run: format!("{}-perftest", operation.name), said, repeat })
}

fn start(command: Command, cpu: usize, output: &Path, log: &Path) -> Result<Process> {
    let _pinned = Pinned::to(cpu)?;
    match Process::start(command, output, log) {
        Err(Error::Start { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Err(absent()),
        started => started,
    }
}

fn absent() -> Error {
    Error::Absent { what: "no perftest".into(), instead: "install the package perftest" }
}

/// t_typical of the row that a client of perftest prints: the median, in us.
fn typical_us(path: &Path) -> Result<f64> {
    let mut text = String::new();
    file(path, file(path, File::open(path))?.take(OUTPUT_BYTES_MAX).read_to_string(&mut text))?;
    typical(&text).ok_or_else(|| Error::Output { path: path.to_owned(), found: "no t_typical".into() })
}

fn typical(text: &str) -> Option<f64> {
    let mut lines = text.lines().skip_while(|line| !line.contains("t_typical[usec]"));
    let at = lines.next()?.split_whitespace().position(|head| head.starts_with("t_typical"))?;
    let us: f64 = lines.next()?.split_whitespace().nth(at)?.parse().ok()?;
    (us > 0.0).then_some(us)
}

fn of<'a>(rows: &'a [Row], operation: &str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.operation == operation)
}

fn check(operation: Operation, rows: &[Row]) -> Check {
    let ratio = median(of(rows, operation.name).map(Row::ratio).collect());
    Check::at_most(
        format!("{}, p50: ours / perftest's, median of the rounds", operation.name),
        RATIO_MAX,
        ratio,
    )
}

fn draw(bench: &Bench<'_>, rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let legend = [("ours", Look::OURS), ("perftest", Look::BASELINE)];
    let legend = legend.map(|(label, look)| (label.to_owned(), look));
    Ok(figure::draw(&title, &OPERATIONS.map(|operation| panel(operation, rows)), &legend)?)
}

fn panel(operation: Operation, rows: &[Row]) -> Panel {
    let line = |look, us: fn(&Row) -> f64| Line {
        look,
        points: of(rows, operation.name).map(|row| (f64::from(row.round), us(row))).collect(),
    };
    let most = of(rows, operation.name).map(|row| row.ours_us.max(row.perftest_us)).fold(0.0, f64::max);
    let rounds = rows.iter().map(|row| row.round).max().unwrap_or(1);
    Panel {
        title: operation.name.to_owned(),
        x: Axis::counting("round", rounds),
        y: Axis::from_zero("p50 (µs)", most),
        lines: vec![line(Look::BASELINE, |row| row.perftest_us), line(Look::OURS, |row| row.ours_us)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_read_by_its_head() {
        let table = "---\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n \
                     64      2000          17.16          335.97       35.55    \t36.1\n---\n";
        assert_eq!(typical(table), Some(35.55));
        assert_eq!(typical("Couldn't connect to 127.0.0.1:18600"), None);
        assert_eq!(typical("#bytes t_typical[usec]\n64 0.00\n"), None);
    }

    #[test]
    fn ratios_are_within_a_round() {
        let row = |round, ours_us, perftest_us| Row { operation: "read", round, ours_us, perftest_us };
        let rows = [row(1, 20.0, 20.0), row(2, 44.0, 40.0), row(3, 30.0, 20.0)];
        let check = check(OPERATIONS[0], &rows);
        assert!((check.measured.unwrap() - 1.1).abs() < 1e-9);
        assert_eq!(check.verdict(), "met");
        assert_eq!(super::check(OPERATIONS[1], &rows).verdict(), "not measured");
        assert_eq!(rows[1].csv(), "read,2,44.00,40.00,1.1000");
        assert_eq!(panel(OPERATIONS[0], &rows).lines[1].points[2], (3.0, 30.0));
    }
}
