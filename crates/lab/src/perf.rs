//! Runs `sidelong perf ... --json` as a child process, and the fabrics that this machine has for it.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::error::{Error, Result, file};
use crate::results::perf::{Figures, Latency, Speed};
use crate::story::{Story, number};
use crate::study::Bound;
use crate::table::Fixed;

/// Limit of the output, in bytes.
const OUTPUT_BYTES_MAX: u64 = 1 << 24;
/// A run may take this many times its planned duration,
const SLOWER_MAX: u32 = 10;
/// and this long in addition: a target with many busy threads answers late.
const OVERHEAD_MAX: Duration = Duration::from_secs(60);
/// Where the kernel names RDMA devices.
pub(crate) const DEVICES: &str = "/sys/class/infiniband";

/// A fabric and how completions are awaited: a line of the figures.
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

    /// The name in figures and reports.
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

/// The fabrics that can be measured here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Ways {
    #[serde(rename = "ways")]
    pub(crate) all: Vec<Way>,
    /// Why verbs are not among them.
    pub(crate) without_verbs: Option<String>,
}

impl Ways {
    /// The fabrics of this machine: shm and tcp always, verbs if a device supports `operation`.
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

/// The output of `perf --json`: a list if there are several sizes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Output {
    One(Box<Figures>),
    List(Vec<Figures>),
}

/// A line of a table: the figures of one fabric.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Measurement {
    pub(crate) way: Way,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

impl Measurement {
    fn us(&self, ns: fn(&Latency) -> f64) -> Option<f64> {
        self.figures.latency().map(|latency| ns(latency) / 1e3)
    }

    pub(crate) fn p50_us(&self) -> Option<f64> {
        self.us(|latency| latency.p50_ns)
    }

    pub(crate) fn p99_us(&self) -> Option<f64> {
        self.us(|latency| latency.p99_ns)
    }

    pub(crate) fn mean_us(&self) -> Option<f64> {
        self.us(|latency| latency.mean_ns)
    }

    pub(crate) fn mb_per_s(&self) -> Option<f64> {
        self.figures.bandwidth().map(|bandwidth| bandwidth.bytes_per_s / 1e6)
    }

    pub(crate) fn initiator_cpu_us(&self) -> Option<f64> {
        self.figures.initiator_cpu_ns.map(|ns| ns / 1e3)
    }

    pub(crate) fn target_cpu_us(&self) -> Option<f64> {
        self.figures.target_cpu_ns.map(|ns| ns / 1e3)
    }

    pub(crate) fn line(&self) -> TableLine {
        let Measurement { way, figures } = self;
        TableLine {
            fabric: *way,
            bytes: figures.bytes,
            background: figures.background,
            p50_us: self.p50_us().map(Fixed),
            p99_us: self.p99_us().map(Fixed),
            mean_us: self.mean_us().map(Fixed),
            mb_per_s: self.mb_per_s().map(Fixed),
            initiator_cpu_us: self.initiator_cpu_us().map(Fixed),
            target_cpu_us: self.target_cpu_us().map(Fixed),
        }
    }

    /// An operation takes time, and no percentile is above a higher one.
    pub(crate) fn bounds(&self) -> Vec<Bound> {
        let Measurement { way, figures } = self;
        let of = |what: &str| {
            format!(
                "{} bytes over {}, {} busy threads: {what}",
                figures.bytes,
                way.label(),
                figures.background
            )
        };
        vec![match &figures.speed {
            Speed::Latency(Latency { p50_ns, p99_ns, .. }) => {
                Bound::new(of("p50, ns"), *p50_ns, 0.0..=*p99_ns)
            }
            Speed::Bandwidth(bandwidth) => Bound::not_below_zero(of("bytes/s"), bandwidth.bytes_per_s),
        }]
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
pub(crate) struct TableLine {
    fabric: Way,
    bytes: u64,
    background: u32,
    p50_us: Option<Fixed<4>>,
    p99_us: Option<Fixed<4>>,
    mean_us: Option<Fixed<4>>,
    mb_per_s: Option<Fixed<3>>,
    initiator_cpu_us: Option<Fixed<4>>,
    target_cpu_us: Option<Fixed<4>>,
}

/// The columns of a measurement in a report's table.
pub(crate) const HEADS: [&str; 7] =
    ["fabric", "p50, µs", "p99, µs", "mean, µs", "MB/s", "CPU here, µs", "CPU of the target, µs"];

/// The cells under [`HEADS`] for a latency run and a bandwidth run over `way`.
pub(crate) fn cells(way: Way, latency: Option<&Measurement>, bandwidth: Option<&Measurement>) -> [String; 7] {
    let us = |figure: fn(&Measurement) -> Option<f64>| number(latency.and_then(figure), 3);
    [
        way.label().to_owned(),
        us(Measurement::p50_us),
        us(Measurement::p99_us),
        us(Measurement::mean_us),
        number(bandwidth.and_then(Measurement::mb_per_s), 1),
        us(Measurement::initiator_cpu_us),
        us(Measurement::target_cpu_us),
    ]
}

/// Ends a report: what differs from the papers, the devices, and where each side ran.
pub(crate) fn close(story: &mut Story, rows: &[Measurement], without_verbs: Option<&str>) {
    story.heading("What differs from the papers");
    story.list(without_verbs.map(|why| format!("RDMA by verbs is missing: {why}.")).into_iter().chain([
        "Hardware: InfiniBand adapters and two machines. Over shm the initiator's own CPU does what an adapter does for \
         verbs, so its times say what a one-sided operation need not wait for, and nothing of a wire. TCP on the loopback \
         device stands for IPoIB."
            .to_owned(),
    ]));
    story.how(&format!("{}.", placement(rows)));
    story.how_list(devices(rows));
    story.how("Figures taken under emulation (soft-RoCE, a virtual machine) say nothing about hardware.");
}

/// Where both sides ran, by any row, because all rows have the same placement.
fn placement(rows: &[Measurement]) -> String {
    let on = |cpu: Option<usize>| cpu.map_or_else(|| "any CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    rows.first().map_or_else(String::new, |Measurement { figures, .. }| {
        format!(
            "The target is held to {}, the measuring side to {}",
            on(figures.target_cpu),
            on(figures.initiator_cpu)
        )
    })
}

/// The device that carried each fabric.
fn devices(rows: &[Measurement]) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for Measurement { way, figures } in rows {
        let line = format!("{}: {}", way.label(), figures.device);
        if !seen.contains(&line) {
            seen.push(line);
        }
    }
    seen
}

/// Runs `perf` with `arguments` over `way`, planned for `time`.
pub(crate) fn run(
    bench: &mut Bench<'_>,
    name: &str,
    way: Way,
    arguments: &[&str],
    time: Duration,
) -> Result<Vec<Measurement>> {
    let output = output(bench, name, &[arguments, way.arguments()].concat(), time)?;
    Ok(read(&output)?.into_iter().map(|figures| Measurement { way, figures }).collect())
}

/// Runs `perf` with `arguments` and `--json`, planned for `time`. Returns the path of its output.
pub(crate) fn output(bench: &Bench<'_>, name: &str, arguments: &[&str], time: Duration) -> Result<PathBuf> {
    let mut command = Command::new(&bench.options.program);
    command.arg("perf").args(arguments).arg("--json");
    bench.output(command, name, "json", time * SLOWER_MAX + OVERHEAD_MAX)
}

/// The content of that file.
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
    use crate::results::perf::{Bandwidth, Completion, Operation, PerfFabric};

    /// Those of a read over `fabric` whose median is `ns`.
    fn figures(fabric: PerfFabric, ns: f64) -> Figures {
        Figures {
            operation: Operation::Read,
            ping_pong: false,
            fabric,
            device: "a device".into(),
            completion: Completion::Polling,
            peers: 1,
            bytes: 1,
            bytes_moved: 8,
            background: 0,
            target_cpu: Some(0),
            initiator_cpu: Some(1),
            speed: Speed::Latency(Latency {
                p50_ns: ns,
                p99_ns: 2.0 * ns,
                p999_ns: 2.0 * ns,
                max_ns: 3.0 * ns,
                mean_ns: ns,
                batches_per_run: 1,
                runs: 1000,
            }),
            operations: 1000,
            initiator_cpu_ns: Some(10.0),
            target_cpu_ns: Some(1.0),
            inbox_full: 0,
        }
    }

    pub(crate) fn row(
        way: Way,
        bytes: u64,
        background: u32,
        us: Option<f64>,
        rate: Option<f64>,
    ) -> Measurement {
        let fabric = if way == Way::Tcp { PerfFabric::Tcp } else { PerfFabric::Shm };
        let mut figures = Figures { bytes, background, ..figures(fabric, us.unwrap_or_default() * 1e3) };
        if let Some(bytes_per_s) = rate {
            figures.speed = Speed::Bandwidth(Bandwidth { window: 16, bytes_per_s, operations_per_s: 1.0 });
        }
        Measurement { way, figures }
    }

    #[test]
    fn a_row_has_the_columns() {
        let row = row(Way::Tcp, 64, 4, Some(12.5), None);
        let [columns, line] = crate::table::written(row.line());
        assert_eq!(line, "tcp,64,4,12.5000,25.0000,12.5000,,0.0100,0.0010");
        assert_eq!(
            columns,
            "fabric,bytes,background,p50_us,p99_us,mean_us,mb_per_s,initiator_cpu_us,target_cpu_us"
        );
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
