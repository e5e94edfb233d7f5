//! Runs `sidelong-lab perf ... --json` as a child process, and the fabrics that this machine has for it.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use sidelong_figure::Style;

use crate::bench::Bench;
use crate::design;
use crate::error::{Error, Result, file};
use crate::measure::{Dimension, Measure, Word};
use sidelong_perf::results::Figures;

/// Limit of the output, in bytes.
const OUTPUT_BYTES_MAX: u64 = 1 << 24;
/// A run may take this many times its planned duration,
const SLOWER_MAX: u32 = 10;
/// and this long in addition: a target with many busy threads answers late.
const OVERHEAD_MAX: Duration = Duration::from_secs(60);
/// Where the kernel names RDMA devices.
pub(crate) const DEVICES: &str = "/sys/class/infiniband";

/// A fabric and how completions are awaited: a line of the figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// What varies from measurement to measurement.
pub(crate) const DIMENSIONS: &[Dimension] = &[
    // `sizes` is latency by size where `latency` is by busy threads, and `peak` the highest bandwidth at any size.
    Dimension::new("kind", "kind", &[]),
    Dimension::new(
        "fabric",
        "fabric",
        &[
            Word::new("shm", Way::Shm.label(), Style::OURS),
            Word::new("tcp", Way::Tcp.label(), Style::BASELINE),
            Word::new("verbs-polling", Way::VerbsPolling.label(), Style::THIRD),
            Word::new("verbs-events", Way::VerbsEvents.label(), Style::FOURTH),
            Word::plain("balaji-polling", BALAJI),
            Word::plain("balaji-events", BALAJI),
            Word::plain("balaji-ipoib", BALAJI),
            Word::plain("lai-rdma", LAI),
            Word::plain("lai-ipoib", LAI),
        ],
    ),
    Dimension::new("bytes", "message size (bytes)", &[]),
    Dimension::new("background", "busy threads on the target's CPU", &[]),
];
/// What is published is drawn as points of one label.
const BALAJI: &str = "the paper: RDMA by polling, by events, and IPoIB";
const LAI: &str = "Lai et al. 2008: RDMA read, IPoIB";

/// What is measured of an operation.
pub(crate) const MEASURES: &[Measure] = &[
    Measure::new("p50_us", "p50, µs", [4, 3]).possible(|case| 0.0..=case.most("p99_us")),
    Measure::new("p99_us", "p99, µs", [4, 3]),
    Measure::new("mean_us", "mean, µs", [4, 3]),
    Measure::new("mb_per_s", "MB/s", [3, 1]),
    Measure::new("initiator_cpu_us", "CPU here, µs", [4, 3]),
    Measure::new("target_cpu_us", "CPU of the target, µs", [4, 3]),
    Measure::derived("paper_mb_per_s", "MB/s of the paper", 1),
    // By busy threads.
    Measure::derived("p50_growth", "p50, 64 threads / 1", 2),
    Measure::derived("mean_growth", "mean, 64 threads / 1", 1),
];

/// The settings of an experiment, with those that [`ways`] and [`measure`] find and `perf.md`, which ends its report, has.
pub(crate) fn settings(own: Value) -> Value {
    let found = json!({ "ways": ["shm", "tcp"], "without_verbs": "", "placement": "", "devices": [] });
    design::settings(found, own)
}

/// The fabrics of this machine: shm and tcp always, verbs if a device supports `operation`. Settings have them, and why verbs are missing.
pub(crate) fn ways(bench: &mut Bench<'_>, operation: &str) -> Result<Vec<Way>> {
    let mut ways = vec![Way::Shm, Way::Tcp];
    let has_device = std::fs::read_dir(DEVICES).is_ok_and(|mut entries| entries.next().is_some());
    if !has_device {
        bench.set("without_verbs", format!("there is no RDMA device ({DEVICES} has none)"));
        return Ok(ways);
    }
    let way = Way::VerbsPolling;
    match run(bench, "try-verbs", way, &[operation, "--quick", "--iterations", "10"], Duration::ZERO) {
        Ok(_) => ways.extend([way, Way::VerbsEvents]),
        Err(Error::Failed { said, .. }) => bench.set("without_verbs", said),
        Err(error) => return Err(error),
    }
    bench.set("ways", ways.iter().map(|way| way.name()).collect::<Vec<_>>());
    Ok(ways)
}

/// The output of `perf --json`: a list if there are several sizes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Output {
    One(Box<Figures>),
    List(Vec<Figures>),
}

/// Makes a run of `perf` over `way`, and records what it measured as of a kind.
pub(crate) fn measure(
    bench: &mut Bench<'_>,
    kind: &str,
    name: &str,
    way: Way,
    arguments: &[&str],
    time: Duration,
) -> Result<()> {
    let name = bench.name(format!("{name}-{}", way.name()));
    bench.begin(&name);
    let quick = bench.options.quick.then_some("--quick");
    let arguments: Vec<&str> = arguments.iter().copied().chain(quick).collect();
    for figures in run(bench, &name, way, &arguments, time)? {
        let on = |cpu: Option<usize>| cpu.map_or_else(|| "any CPU".to_owned(), |cpu| format!("CPU {cpu}"));
        let (target, initiator) = (on(figures.target_cpu), on(figures.initiator_cpu));
        bench.set("placement", format!("The target is held to {target}, the measuring side to {initiator}."));
        let device = Value::from(format!("{}: {}", way.label(), figures.device));
        if let Some(Value::Array(devices)) = bench.samples.settings.get_mut("devices")
            && !devices.contains(&device)
        {
            devices.push(device);
        }
        let case = format!("{kind}/{}/{}/{}", way.name(), figures.bytes, figures.background);
        bench.sample(&case, values(&figures))?;
    }
    bench.end();
    Ok(())
}

fn values(figures: &Figures) -> impl Iterator<Item = (&'static str, f64)> {
    let us = |name, ns: Option<f64>| (name, ns.map(|ns| ns / 1e3));
    let latency = figures.latency();
    [
        us("p50_us", latency.map(|of| of.p50_ns)),
        us("p99_us", latency.map(|of| of.p99_ns)),
        us("mean_us", latency.map(|of| of.mean_ns)),
        ("mb_per_s", figures.bandwidth().map(|of| of.bytes_per_s / 1e6)),
        us("initiator_cpu_us", figures.initiator_cpu_ns),
        us("target_cpu_us", figures.target_cpu_ns),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
}

/// Runs `perf` with `arguments` over `way`, planned for `time`.
pub(crate) fn run(
    bench: &mut Bench<'_>,
    name: &str,
    way: Way,
    arguments: &[&str],
    time: Duration,
) -> Result<Vec<Figures>> {
    read(&output(bench, name, &[arguments, way.arguments()].concat(), time)?)
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
mod tests {
    use super::*;

    const ONE: &str = r#"{"operation":"read","ping_pong":false,"fabric":"tcp","device":"a device","completion":"polling","peers":1,
        "bytes":1,"bytes_moved":8,"background":0,"target_cpu":0,"initiator_cpu":1,"p50_ns":12500,"p99_ns":25000,"p999_ns":25000,
        "max_ns":37500,"mean_ns":12500,"batches_per_run":1,"runs":1000,"operations":1000,"initiator_cpu_ns":10,"target_cpu_ns":1,
        "inbox_full":0}"#;

    #[test]
    fn one_or_a_list_is_read_and_has_its_figures() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("o.json");
        std::fs::write(&path, ONE).unwrap();
        let values: Vec<_> = values(&read(&path).unwrap()[0]).collect();
        let latency = [("p50_us", 12.5), ("p99_us", 25.0), ("mean_us", 12.5)];
        assert_eq!((&values[..3], values[3]), (&latency[..], ("initiator_cpu_us", 0.01)));
        std::fs::write(&path, format!("[{ONE},{ONE}]")).unwrap();
        assert_eq!(read(&path).unwrap().len(), 2);
        std::fs::write(&path, "{}").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("o.json: not what perf prints"));
    }
}
