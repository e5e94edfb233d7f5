//! perftest: our operations over RDMA beside those of perftest, the field's benchmark, in turns on one device.
//!
//! The two sides of either are processes of this machine, one on each of two CPUs, and both poll. Absolute times depend on
//! the device. The ratio within a round is judged.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::cpus::{self, Pinned};
use crate::design::Design;
use crate::error::{Error, Result, file};
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::perf::{self, DEVICES, Way};
use crate::process::{Ended, Process, last_line, quoted};
use crate::samples::Samples;

/// Target for the median of the ratios of ours to theirs.
const RATIO_MAX: f64 = 1.15;
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

/// An operation: its name, that for `perf`, and perftest's program.
#[derive(Clone, Copy, Debug)]
struct Operation {
    name: &'static str,
    ours: &'static [&'static str],
    theirs: &'static [&'static str],
}

const OPERATIONS: [Operation; 4] = [
    Operation { name: "read", ours: &["read"], theirs: &["ib_read_lat", "-s", BYTES] },
    Operation { name: "write", ours: &["write", "--ping-pong"], theirs: &["ib_write_lat", "-s", BYTES] },
    Operation { name: "cas", ours: &["cas"], theirs: &["ib_atomic_lat", "-A", "CMP_AND_SWAP"] },
    Operation { name: "faa", ours: &["faa"], theirs: &["ib_atomic_lat", "-A", "FETCH_AND_ADD"] },
];

pub(crate) const PERFTEST: Experiment = Experiment::new(
    "perftest",
    OWN,
    "operations over RDMA beside perftest's",
    Design {
        repeat: [21, 3],
        // Under emulation the kernel's threads do the work of an adapter, and count as other processes.
        needs_the_machine: false,
        dimensions: &[
            Dimension::new("operation", "operation", &[]),
            Dimension::new(
                "program",
                "",
                &[Word::new("ours", "ours", Style::OURS), Word::new("perftest", "perftest", Style::BASELINE)],
            ),
        ],
        cases: &["read,write,cas,faa/*"],
        measures: &[Measure::new("p50_us", "p50, µs", [2, 2]), Measure::derived("ratio", "to perftest's", 3)],
        charts: &[Chart::bars("one operation at a time", "p50_us", "operation", "program")],
        settings: |quick| {
            let operations_each = OPERATIONS_EACH[usize::from(quick)];
            json!({ "operations_each": operations_each, "device": "", "target_cpu": null, "initiator_cpu": null })
        },
        template: include_str!("perftest.md"),
        run,
        conclude,
    },
);

/// What all turns share.
#[derive(Clone, Debug)]
struct Turn {
    device: String,
    operations_each: u32,
    target_cpu: usize,
    initiator_cpu: usize,
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let [target_cpu, initiator_cpu] = cpus::two()?;
    let turn =
        Turn { device: device()?, operations_each: bench.either(OPERATIONS_EACH), target_cpu, initiator_cpu };
    bench.set("device", turn.device.as_str());
    bench.set("target_cpu", target_cpu);
    bench.set("initiator_cpu", initiator_cpu);
    bench.rounds(&[2 * TURN * OPERATIONS.len() as u32], |bench| {
        bench.begin(&format!("round-{}", bench.repetition));
        for operation in OPERATIONS {
            bench.in_turn(&["ours", "perftest"], |bench, program| {
                let us = match program {
                    "ours" => ours(bench, &turn, operation)?,
                    _ => theirs(bench, &turn, operation)?,
                };
                bench.sample(&format!("{}/{program}", operation.name), [("p50_us", us)])
            })?;
        }
        bench.end();
        Ok(())
    })
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

fn ours(bench: &mut Bench<'_>, turn: &Turn, operation: Operation) -> Result<f64> {
    let name = format!("{}-ours", operation.name);
    let pin = format!("{},{}", turn.target_cpu, turn.initiator_cpu);
    let each = turn.operations_each.to_string();
    let more = ["--size", BYTES, "--pin", &pin, "--device", &turn.device, "--iterations", &each];
    let arguments = [operation.ours, &more].concat();
    let rows = perf::run(bench, &name, Way::VerbsPolling, &arguments, TURN)?;
    rows.first().and_then(|of| of.latency()).map(|of| of.p50_ns / 1e3).ok_or_else(|| {
        let path = bench.path(&format!("runs/{name}.json"));
        Error::Output { path, found: "no latency".into() }
    })
}

fn theirs(bench: &mut Bench<'_>, turn: &Turn, operation: Operation) -> Result<f64> {
    let [program, more @ ..] = operation.theirs else { return Err(absent()) };
    let command = |client: bool| {
        let mut command = Command::new(program);
        command.args(more).args(["-d", &turn.device, "-p", &PORT.to_string(), "-F"]);
        command.args(["-n", &turn.operations_each.to_string()]);
        command.args(client.then_some("127.0.0.1"));
        command
    };
    let files = |side: &str| {
        let at =
            |extension: &str| bench.path(&format!("runs/{}-perftest-{side}.{extension}", operation.name));
        (at("txt"), at("log"))
    };
    let (output, log) = files("server");
    let _server = start(command(false), turn.target_cpu, &output, &log)?;
    let (output, log) = files("client");
    for _ in 0..TRIES_MAX {
        let mut client = start(command(true), turn.initiator_cpu, &output, &log)?;
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
        Err(sidelong_harness::Error::Start { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            Err(absent())
        }
        started => Ok(started?),
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

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("ratio", "*/ours", |samples, case| {
        &samples[case]["p50_us"] / &samples[case.replace("ours", "perftest")]["p50_us"]
    });
    let check = |Operation { name, .. }: Operation| {
        let what = format!("{name}, p50: ours / perftest's, median of the rounds");
        Check::at_most(what, RATIO_MAX, &samples[format!("{name}/ours")]["ratio"])
    };
    OPERATIONS.map(check).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

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
        let verdicts = judged(&PERFTEST, |samples| {
            for (ours_us, perftest_us) in [(20.0, 20.0), (44.0, 40.0), (30.0, 20.0)] {
                samples.begin();
                samples.put("read/ours", [("p50_us", ours_us)]);
                samples.put("read/perftest", [("p50_us", perftest_us)]);
            }
        });
        assert_eq!(verdicts, ["met", "not measured", "not measured", "not measured"]);
    }
}
