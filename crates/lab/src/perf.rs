//! One run of `sidelong perf ... --json` as a child process, and over what there is to measure.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::error::{Error, Result, file};
use crate::process::{Ended, Process, last_line, quoted};
use crate::report::number;

/// Of what it prints, in bytes.
const OUTPUT_BYTES_MAX: u64 = 1 << 24;
/// A run may take this many times what it should,
const SLOWER_MAX: u32 = 10;
/// and this long on top: a target with many busy threads answers late.
const OVERHEAD_MAX: Duration = Duration::from_secs(60);
/// Where the kernel names RDMA devices.
pub(crate) const DEVICES: &str = "/sys/class/infiniband";

/// A fabric, and how completions are waited for: a line of the figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    Shm,
    Tcp,
    VerbsPolling,
    VerbsEvents,
}

impl Way {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Way::Shm => "shm",
            Way::Tcp => "tcp",
            Way::VerbsPolling => "verbs-polling",
            Way::VerbsEvents => "verbs-events",
        }
    }

    /// For people.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Way::Shm => "shm",
            Way::Tcp => "TCP",
            Way::VerbsPolling => "verbs, polling",
            Way::VerbsEvents => "verbs, events",
        }
    }

    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Way::Shm => &["--fabric", "shm"],
            Way::Tcp => &["--fabric", "tcp"],
            Way::VerbsPolling => &["--fabric", "verbs", "--completion", "polling"],
            Way::VerbsEvents => &["--fabric", "verbs", "--completion", "events"],
        }
    }
}

/// What there is to measure, and why not more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ways {
    pub(crate) all: Vec<Way>,
    /// Why verbs are not among them.
    pub(crate) without_verbs: Option<String>,
}

impl Ways {
    /// Of this machine: shm and tcp always, verbs where there is a device by which the program can do `operation`.
    pub(crate) fn here(bench: &mut Bench<'_>, operation: &str) -> Result<Ways> {
        let mut ways = Ways { all: vec![Way::Shm, Way::Tcp], without_verbs: None };
        let has_device = std::fs::read_dir(DEVICES).is_ok_and(|mut entries| entries.next().is_some());
        if !has_device {
            ways.without_verbs = Some(format!("there is no RDMA device ({DEVICES} has none)"));
            return Ok(ways);
        }
        let way = Way::VerbsPolling;
        match run(bench, "try-verbs", way, &[operation, "--quick", "--iterations", "10"], Duration::ZERO) {
            Ok(_) => ways.all.extend([way, Way::VerbsEvents]),
            Err(Error::Failed { said, .. }) => ways.without_verbs = Some(said),
            Err(error) => return Err(error),
        }
        Ok(ways)
    }
}

/// What `perf --json` prints for one size, as far as it is used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) device: String,
    pub(crate) bytes: u64,
    pub(crate) background: u32,
    pub(crate) target_cpu: Option<usize>,
    pub(crate) initiator_cpu: Option<usize>,
    pub(crate) p50_ns: Option<f64>,
    pub(crate) p99_ns: Option<f64>,
    pub(crate) mean_ns: Option<f64>,
    pub(crate) bytes_per_s: Option<f64>,
    pub(crate) operations: u64,
    #[serde(default)]
    pub(crate) initiator_cpu_ns: f64,
    #[serde(default)]
    pub(crate) target_cpu_ns: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Output {
    One(Box<Figures>),
    List(Vec<Figures>),
}

/// A line of a table: what one way showed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) way: Way,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

impl Row {
    /// p50 in us.
    pub(crate) fn p50_us(&self) -> Option<f64> {
        self.figures.p50_ns.map(|ns| ns / 1e3)
    }

    pub(crate) fn mean_us(&self) -> Option<f64> {
        self.figures.mean_ns.map(|ns| ns / 1e3)
    }

    pub(crate) fn mb_per_s(&self) -> Option<f64> {
        self.figures.bytes_per_s.map(|rate| rate / 1e6)
    }

    pub(crate) fn csv(&self) -> String {
        let Row { way, figures } = self;
        let us = |ns: Option<f64>| ns.map_or_else(String::new, |ns| format!("{:.4}", ns / 1e3));
        let rate = self.mb_per_s().map_or_else(String::new, |rate| format!("{rate:.3}"));
        format!(
            "{},{},{},{},{},{},{rate},{},{}",
            way.name(),
            figures.bytes,
            figures.background,
            us(figures.p50_ns),
            us(figures.p99_ns),
            us(figures.mean_ns),
            us(Some(figures.initiator_cpu_ns)),
            us(Some(figures.target_cpu_ns)),
        )
    }
}

/// What a report's table says of a measurement, under these heads.
pub(crate) const HEADS: [&str; 7] =
    ["fabric", "p50, µs", "p99, µs", "mean, µs", "MB/s", "CPU here, µs", "CPU of the target, µs"];

/// The cells under [`HEADS`]: of a run of latency over `way` and one of bandwidth.
pub(crate) fn cells(way: Way, latency: Option<&Row>, bandwidth: Option<&Row>) -> [String; 7] {
    let us = |figure: fn(&Row) -> Option<f64>| number(latency.and_then(figure), 3);
    [
        way.label().to_owned(),
        us(Row::p50_us),
        us(|row| row.figures.p99_ns.map(|ns| ns / 1e3)),
        us(Row::mean_us),
        number(bandwidth.and_then(Row::mb_per_s), 1),
        us(|row| Some(row.figures.initiator_cpu_ns / 1e3)),
        us(|row| Some(row.figures.target_cpu_ns / 1e3)),
    ]
}

/// The columns of [`Row::csv`].
pub(crate) const COLUMNS: &[&str] = &[
    "fabric",
    "bytes",
    "background",
    "p50_us",
    "p99_us",
    "mean_us",
    "mb_per_s",
    "initiator_cpu_us",
    "target_cpu_us",
];

/// The time that CPU pinning and the like is told by: of any row, since all have the same.
pub(crate) fn placement(rows: &[Row]) -> String {
    let on = |cpu: Option<usize>| cpu.map_or_else(|| "any CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    rows.first().map_or_else(String::new, |Row { figures, .. }| {
        format!(
            "The target is held to {}, the measuring side to {}",
            on(figures.target_cpu),
            on(figures.initiator_cpu)
        )
    })
}

/// What carried each way, by name.
pub(crate) fn devices(rows: &[Row]) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for Row { way, figures } in rows {
        let line = format!("{}: {}", way.label(), figures.device);
        if !seen.contains(&line) {
            seen.push(line);
        }
    }
    seen
}

/// Runs `perf` with `arguments` over `way`, which should take `time`.
pub(crate) fn run(
    bench: &mut Bench<'_>,
    name: &str,
    way: Way,
    arguments: &[&str],
    time: Duration,
) -> Result<Vec<Row>> {
    let output = output(bench, name, &[arguments, way.arguments()].concat(), time)?;
    Ok(read(&output)?.into_iter().map(|figures| Row { way, figures }).collect())
}

/// Runs `perf` with `arguments` and `--json`, which should take `time`; where what it printed lies.
pub(crate) fn output(bench: &Bench<'_>, name: &str, arguments: &[&str], time: Duration) -> Result<PathBuf> {
    let (output, log) = (bench.path(&format!("runs/{name}.json")), bench.path(&format!("runs/{name}.log")));
    let arguments: Vec<&str> = [&["perf"], arguments, &["--json"]].concat();
    let program = &bench.options.program;
    let repeat = || format!("{} {}", quoted(program), arguments.join(" "));
    let mut command = Command::new(program);
    command.args(&arguments);
    let mut perf = Process::start(command, &output, &log)?;
    let limit = time * SLOWER_MAX + OVERHEAD_MAX;
    match perf.wait(limit, &bench.options.stop)? {
        Ended::Stopped => Err(Error::Interrupted),
        Ended::TooLong => Err(Error::TooLong { run: name.to_owned(), limit, repeat: repeat() }),
        Ended::Itself(status) if !status.success() => {
            let said = last_line(&log).unwrap_or_else(|| format!("ended with {status}"));
            Err(Error::Failed { run: name.to_owned(), said, repeat: repeat() })
        }
        Ended::Itself(_) => Ok(output),
    }
}

/// What lies there.
pub(crate) fn text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let from = file(path, File::open(path))?;
    file(path, from.take(OUTPUT_BYTES_MAX).read_to_string(&mut text))?;
    Ok(text)
}

fn read(path: &Path) -> Result<Vec<Figures>> {
    match serde_json::from_str(&text(path)?) {
        Ok(Output::One(one)) => Ok(vec![*one]),
        Ok(Output::List(list)) => Ok(list),
        Err(error) => {
            Err(Error::Output { path: path.to_owned(), found: format!("not what perf prints: {error}") })
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row(way: Way, bytes: u64, background: u32, us: Option<f64>, rate: Option<f64>) -> Row {
        let ns = us.map(|us| us * 1e3);
        let figures = Figures {
            device: "a device".into(),
            bytes,
            background,
            target_cpu: Some(0),
            initiator_cpu: Some(1),
            p50_ns: ns,
            p99_ns: ns.map(|ns| 2.0 * ns),
            mean_ns: ns,
            bytes_per_s: rate,
            operations: 1000,
            initiator_cpu_ns: 10.0,
            target_cpu_ns: 1.0,
        };
        Row { way, figures }
    }

    #[test]
    fn a_row_has_the_columns() {
        let row = row(Way::Tcp, 64, 4, Some(12.5), None);
        assert_eq!(row.csv(), "tcp,64,4,12.5000,25.0000,12.5000,,0.0100,0.0010");
        assert_eq!(row.csv().matches(',').count() + 1, COLUMNS.len());
    }

    #[test]
    fn one_or_a_list_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("o.json");
        let one = serde_json::to_string(&row(Way::Shm, 1, 0, Some(1.0), None).figures).unwrap();
        std::fs::write(&path, &one).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        std::fs::write(&path, format!("[{one},{one}]")).unwrap();
        assert_eq!(read(&path).unwrap().len(), 2);
        std::fs::write(&path, "{}").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("o.json: not what perf prints"));
    }
}
