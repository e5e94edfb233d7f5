//! perftest: our operations over RDMA beside those of perftest, the field's benchmark, in turns on one device.
//!
//! The two sides of either are processes of this machine, one on each of two CPUs, and both poll. Absolute times depend on
//! the device. The ratio within a round is judged.

mod report;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use crate::bench::Bench;
use crate::check::Check;
use crate::cpus::{self, Pinned};
use crate::drawing::{Drawing, legend};
use crate::error::{Error, Result, file};
use crate::figure::{Axis, Line, Panel, Style};
use crate::perf::{self, DEVICES, Way};
use crate::process::{Ended, Process, last_line, quoted};
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;

/// Target for the median of the ratios of ours to theirs.
const RATIO_MAX: f64 = 1.15;
/// Number of rounds, and operations of each turn.
const ROUNDS: u32 = 21;
const ROUNDS_QUICK: u32 = 3;
const OPERATIONS_EACH: [u32; 2] = [2000, 500];
/// Bytes of reads and writes. Atomics have 8.
const BYTES: &str = "64";
/// About how long a turn takes on an emulated device.
const TURN: Duration = Duration::from_secs(2);
/// The port where perftest's two sides meet (its own default is 18515).
const PORT: u16 = 18_600;
/// Tries of its client, which is refused until the server listens.
const TRIES_MAX: u32 = 50;
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Limits of either side of perftest, and of its output.
const PERFTEST_MAX: Duration = Duration::from_secs(60);
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// The operations that are compared.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Operation {
    name: &'static str,
    /// The name for `perf`.
    #[serde(skip)]
    ours: &'static [&'static str],
    /// perftest's program.
    #[serde(skip)]
    theirs: &'static [&'static str],
}

const OPERATIONS: [Operation; 4] = [
    Operation { name: "read", ours: &["read"], theirs: &["ib_read_lat", "-s", BYTES] },
    Operation { name: "write", ours: &["write", "--ping-pong"], theirs: &["ib_write_lat", "-s", BYTES] },
    Operation { name: "cas", ours: &["cas"], theirs: &["ib_atomic_lat", "-A", "CMP_AND_SWAP"] },
    Operation { name: "faa", ours: &["faa"], theirs: &["ib_atomic_lat", "-A", "FETCH_AND_ADD"] },
];

/// Both programs in one round.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    operation: &'static str,
    /// The round, from 1.
    round: u32,
    /// Medians of a turn.
    ours_us: f64,
    perftest_us: f64,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.ours_us / self.perftest_us
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    operation: &'static str,
    round: u32,
    ours_us: Fixed<2>,
    perftest_us: Fixed<2>,
    ratio: Fixed<4>,
}

/// Settings that all turns share.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Perftest {
    device: String,
    operations_each: u32,
    target_cpu: usize,
    initiator_cpu: usize,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let operations_each = OPERATIONS_EACH[usize::from(bench.options.quick)];
    let [target_cpu, initiator_cpu] = cpus::two()?;
    study::run(bench, Perftest { device: device()?, operations_each, target_cpu, initiator_cpu })
}

impl Study for Perftest {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = [ROUNDS, ROUNDS_QUICK];
    /// Under emulation the kernel's threads do the work of an adapter, and count as other processes.
    const NEEDS_THE_MACHINE: bool = false;

    fn plan(&self) -> Vec<Duration> {
        vec![2 * TURN * OPERATIONS.len() as u32]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Perftest>) -> Result<()> {
        let round = bench.repetition;
        bench.begin(&format!("round-{round}"));
        for operation in OPERATIONS {
            rows.push(self, take_turns(bench, self, operation, round)?)?;
        }
        bench.end();
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { operation, round, ours_us, perftest_us } = *row;
        let ratio = Fixed(row.ratio());
        vec![TableLine { operation, round, ours_us: Fixed(ours_us), perftest_us: Fixed(perftest_us), ratio }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |whose: &str| format!("{}, {whose}, us", row.operation);
        vec![
            Bound::not_below_zero(of("ours"), row.ours_us),
            Bound::not_below_zero(of("perftest"), row.perftest_us),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        OPERATIONS.iter().map(|operation| check(*operation, rows)).collect()
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        Drawing {
            panels: OPERATIONS.map(|operation| panel(operation, rows)).into(),
            legend: legend([("ours", Style::OURS), ("perftest", Style::BASELINE)]),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(self, rows, story);
    }
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
        instead: "run this in the guest of `cargo xtask vm`, which has one",
    })
}

/// The program that goes first alternates.
fn take_turns(bench: &mut Bench<'_>, settings: &Perftest, operation: Operation, round: u32) -> Result<Row> {
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

fn ours(bench: &mut Bench<'_>, settings: &Perftest, operation: Operation) -> Result<f64> {
    let name = format!("{}-ours", operation.name);
    let pin = format!("{},{}", settings.target_cpu, settings.initiator_cpu);
    let each = settings.operations_each.to_string();
    let more = ["--size", BYTES, "--pin", &pin, "--device", &settings.device, "--iterations", &each];
    let arguments = [operation.ours, &more].concat();
    let rows = perf::run(bench, &name, Way::VerbsPolling, &arguments, TURN)?;
    rows.first().and_then(perf::Measurement::p50_us).ok_or_else(|| {
        let path = bench.path(&format!("runs/{name}.json"));
        Error::Output { path, found: "no latency".into() }
    })
}

fn theirs(bench: &mut Bench<'_>, settings: &Perftest, operation: Operation) -> Result<f64> {
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

/// `t_typical` in the row that perftest's client prints: the median, in us.
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
    let what = format!("{}, p50: ours / perftest's, median of the rounds", operation.name);
    Check::at_most(what, RATIO_MAX, of(rows, operation.name).map(Row::ratio).next())
}

fn panel(operation: Operation, rows: &[Row]) -> Panel {
    let line = |style, us: fn(&Row) -> f64| {
        Line::new(style, of(rows, operation.name).map(|row| (f64::from(row.round), us(row))).collect())
    };
    let most = of(rows, operation.name).map(|row| row.ours_us.max(row.perftest_us)).fold(0.0, f64::max);
    let rounds = rows.iter().map(|row| row.round).max().unwrap_or(1);
    Panel {
        title: operation.name.to_owned(),
        x: Axis::counting("round", rounds),
        y: Axis::from_zero("p50 (µs)", most),
        lines: vec![line(Style::BASELINE, |row| row.perftest_us), line(Style::OURS, |row| row.ours_us)],
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
        let rounds = rows.iter().map(|row| vec![check(OPERATIONS[0], std::slice::from_ref(row))]);
        let check = crate::check::merge(rounds.collect()).remove(0);
        assert!((check.measured.unwrap() - 1.1).abs() < 1e-9);
        assert_eq!(check.verdict(), "met");
        assert_eq!(super::check(OPERATIONS[1], &rows).verdict(), "not measured");
        let study = Perftest { device: "rxe0".into(), operations_each: 500, target_cpu: 0, initiator_cpu: 1 };
        let [columns, line] = crate::table::written(study.lines(&rows[1]).remove(0));
        assert_eq!(
            (columns.as_str(), line.as_str()),
            ("operation,round,ours_us,perftest_us,ratio", "read,2,44.00,40.00,1.1000")
        );
        assert_eq!(panel(OPERATIONS[0], &rows).lines[1].points[2], (3.0, 30.0));
    }
}
