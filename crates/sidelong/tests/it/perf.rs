//! `sidelong-lab perf`: both sides on this machine, and one that serves. No test judges a figure by its duration.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Running, eventually, run_lab};

fn perf(arguments: &[&str]) -> crate::support::Done {
    run_lab([&["perf"], arguments].concat())
}

/// Whether quantiles are in order.
fn is_latency(figures: &Value) -> bool {
    let quantiles = ["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|key| figures[key].as_f64().unwrap());
    let mean = figures["mean_ns"].as_f64().unwrap();
    // A day would mean a wrong unit.
    quantiles[0] > 0.0
        && quantiles.is_sorted()
        && mean > 0.0
        && mean <= quantiles[3]
        && quantiles[0] < 1e13
        && figures["operations"].as_u64().unwrap() > 0
}

#[test]
fn every_operation_is_measured_on_every_fabric() {
    for fabric in ["shm", "tcp"] {
        for operation in ["read", "write", "write-imm", "send", "cas", "faa"] {
            let figures =
                perf(&[operation, "--fabric", fabric, "--quick", "--iterations", "300", "--json"]).json();
            assert_eq!((&figures["operation"], &figures["fabric"]), (&operation.into(), &fabric.into()));
            let atomic = ["cas", "faa"].contains(&operation);
            assert_eq!(figures["bytes"], if atomic { 8 } else { 64 });
            assert!(is_latency(&figures), "{figures}");
            assert!(figures["operations"].as_u64().unwrap() >= 300, "{figures}");
            assert!(figures.get("target_cpu_ns").is_none(), "{figures}");
            let single = figures["batches_per_run"] == 1;
            assert_eq!(single, fabric == "tcp", "{figures}");
        }
    }
}

/// What is measured in other ways than one operation after another to one idle peer.
#[test]
fn each_way_to_measure_has_its_figures() {
    let of_each = |fabric: &str, words: &[&str]| {
        perf(&[words, &["--fabric", fabric, "--iterations", "50", "--json"]].concat()).json()
    };
    for fabric in ["shm", "tcp"] {
        let batch = of_each(fabric, &["read", "--peers", "8"]);
        assert_eq!((&batch["peers"], &batch["operations"]), (&8.into(), &400.into()));
        let answered = of_each(fabric, &["write", "--ping-pong"]);
        assert_eq!((&answered["ping_pong"], &answered["operations"]), (&true.into(), &50.into()));
        assert!(is_latency(&batch) && is_latency(&answered), "{batch} {answered}");
    }
    for (fabric, operation) in [("shm", "read"), ("tcp", "write"), ("shm", "send"), ("tcp", "write-imm")] {
        let windows = of_each(fabric, &[operation, "--bandwidth", "--window", "4", "--size", "4K"]);
        assert!(windows["window"] == 4 && windows["operations"].as_u64().unwrap() >= 200, "{windows}");
        let [bytes, operations] =
            ["bytes_per_s", "operations_per_s"].map(|key| windows[key].as_f64().unwrap());
        assert!(operations > 0.0 && (bytes / operations - 4096.0).abs() < 1.0, "{windows}");
        assert!(windows.get("p50_ns").is_none(), "{windows}");
    }
    for (fabric, operation, moved) in [("shm", "read", 8), ("tcp", "send", 1)] {
        let all = of_each(fabric, &[operation, "--sizes", "all", "--quick"]);
        let all = all.as_array().unwrap();
        let sizes: Vec<_> = all.iter().map(|figures| figures["bytes"].as_u64().unwrap()).collect();
        assert_eq!(sizes, (0..=20).map(|power| 1 << power).collect::<Vec<_>>());
        assert_eq!(all[0]["bytes_moved"], moved);
        assert!(all.iter().all(is_latency), "{all:?}");
    }
    let busy = perf(&["read", "--fabric", "tcp", "--background", "3", "--quick", "--json"]).json();
    assert!(busy["background"] == 3 && is_latency(&busy), "{busy}");
    for side in ["initiator_cpu_ns", "target_cpu_ns"] {
        assert!(busy[side].as_f64().unwrap() > 0.0, "{busy}");
    }
}

#[test]
fn a_table_says_what_was_measured_and_where() {
    let table = perf(&["--quick"]).succeeded();
    assert!(table.starts_with("read of 64 bytes over shm, 1 in one batch, from another process"), "{table}");
    assert!(table.contains("target on CPU ") && table.contains("p99.9 ns"), "{table}");
    for (words, said) in [
        (&["send", "--pin", "none", "--completion", "events"][..], "any CPU"),
        (&["send"], "until the target's inbox has it"),
        (&["write", "--ping-pong", "--size", "1K"], "half of a ping-pong, write of 1024 bytes over shm"),
        (&["write", "--sizes", "all"], "8-byte words"),
        (&["read", "--background", "1"], "1 busy threads on the target's CPU"),
    ] {
        let table = perf(&[words, &["--quick"]].concat()).succeeded();
        assert!(table.contains(said), "{table}");
    }
}

/// The directory of a target's regions.
fn run_dir(target: i32) -> PathBuf {
    sidelong_config::default_run_dir(&format!("perf-{target}"))
}

/// Whether a target exposes regions.
fn exposes(target: &Running) -> bool {
    let directory = run_dir(target.pid().as_raw_nonzero().get());
    ["perf-0.region", "perf-0.tcpkey"].iter().any(|key| directory.join(key).exists())
}

/// A directory with a secret.
struct Secret {
    directory: tempfile::TempDir,
}

impl Secret {
    fn new() -> Secret {
        Secret { directory: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn right(&self) -> String {
        self.file("right", "a secret that nobody guesses\n")
    }

    /// A side that serves, and its address.
    fn serve(&self, more: &[&str]) -> (Running, String) {
        let arguments = ["perf", "serve", "--listen", "127.0.0.1:0", "--secret-file", &self.right()];
        let serving = Running::start_lab([&arguments[..], more].concat());
        eventually("the target serves", || serving.out().ends_with('\n'));
        let said = serving.out();
        let at = said.split(' ').find(|word| word.starts_with("127.0.0.1:")).unwrap();
        let at = at.trim_end_matches(',').to_owned();
        (serving, at)
    }
}

#[test]
fn one_side_serves_and_the_other_measures() {
    let secret = Secret::new();
    let (serving, at) = secret.serve(&[]);
    let file = secret.right();
    for (operation, fabric) in [("read", "tcp"), ("send", "tcp"), ("cas", "shm"), ("read", "tcp")] {
        let to = ["--to", &at, "--secret-file", &file, "--fabric", fabric, "--iterations", "100", "--json"];
        let figures = perf(&[&[operation][..], &to].concat()).json();
        assert!(is_latency(&figures), "{figures}");
    }
    let done = serving.end();
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn a_side_that_serves_once_ends_when_the_other_hangs_up() {
    let secret = Secret::new();
    let (serving, at) = secret.serve(&["--once"]);
    let file = secret.right();
    let to = ["read", "--fabric", "tcp", "--to", &at, "--secret-file", &file, "--iterations", "1000000000"];
    let measuring = Running::start_lab([&["perf"][..], &to].concat());
    eventually("a measurement has begun", || exposes(&serving));
    measuring.kill();
    let done = serving.finish();
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
}

#[test]
fn a_target_that_dies_ends_the_measurement_with_one_line() {
    let secret = Secret::new();
    for fabric in ["tcp", "shm"] {
        let (serving, at) = secret.serve(&[]);
        let file = secret.right();
        let to =
            ["read", "--fabric", fabric, "--to", &at, "--secret-file", &file, "--iterations", "1000000000"];
        let measuring = Running::start_lab([&["perf"][..], &to].concat());
        eventually("a measurement has begun", || exposes(&serving));
        let left = run_dir(serving.pid().as_raw_nonzero().get());
        serving.kill();
        let line = measuring.finish().refused();
        // It may still have been connecting.
        let is_told = ["the target ended during the measurement", &at].iter().any(|why| line.contains(why));
        assert!(is_told, "{line}");
        // It had no chance to remove it.
        fs::remove_dir_all(left).unwrap();
    }
}

#[test]
fn who_does_not_know_the_secret_is_refused() {
    let secret = Secret::new();
    let (_serving, at) = secret.serve(&[]);
    let wrong = secret.file("wrong", "another secret that is as long\n");
    let line = perf(&["read", "--fabric", "tcp", "--to", &at, "--secret-file", &wrong, "--quick"]).refused();
    assert!(line.contains(&at) && line.contains("same secret"), "{line}");
    let line = perf(&["read", "--fabric", "tcp", "--to", &at, "--quick"]).refused();
    assert!(line.contains("--secret-file"), "{line}");
    let line = perf(&["serve", "--listen", "127.0.0.1:0"]).refused();
    assert!(line.contains("--secret-file"), "{line}");
    let line = perf(&["read", "--fabric", "tcp", "--to", "127.0.0.1:1", "--secret-file", &wrong]).refused();
    assert!(line.contains("127.0.0.1:1") && line.contains("perf serve"), "{line}");
}

#[test]
fn a_measurement_that_is_interrupted_leaves_nothing() {
    let measuring = Running::start_lab(["perf", "read", "--iterations", "1000000000"]);
    let pid = measuring.pid().as_raw_nonzero();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let directory = || {
        let target = fs::read_to_string(&children).ok()?.trim().parse().ok()?;
        Some(run_dir(target)).filter(|directory| directory.join("perf-0.region").exists())
    };
    eventually("a measurement has begun", || directory().is_some());
    let directory = directory().unwrap();
    measuring.signal(Signal::INT);
    assert_eq!(measuring.finish().refused(), "interrupted");
    assert!(!directory.exists(), "{}", directory.display());
}

#[test]
fn what_does_not_go_together_is_refused_with_what_does() {
    for (wrong, what) in [
        (&["read", "--completion", "events"][..], "this side's own CPU"),
        (&["read", "--fabric", "tcp", "--completion", "polling"], "events alone"),
        (&["cas", "--sizes", "all"], "always of 8 bytes"),
        (&["read", "--device", "rxe0"], "for --fabric verbs"),
        (&["send", "--peers", "2"], "one receiver"),
        (&["read", "--bandwidth", "--peers", "2"], "one peer"),
        (&["read", "--peers", "4000", "--size", "1M"], "256 MB"),
        (&["send", "--size", "1M", "--window", "1024"], "smaller --window"),
        (&["read", "--pin", "1"], "TARGET,THIS"),
        (&["read", "--pin", "9999,0"], "CPU 9999"),
        (&["read", "--to", "192.0.2.1"], "memory of one machine"),
        (&["read", "--fabric", "tcp", "--to", "127.0.0.1", "--pin", "0,1"], "its own --pin"),
        (&["read", "--ping-pong"], "--ping-pong measures writes to one peer, not read"),
        (&["load", "slowdown", "--background", "3"], "leave --background out"),
        (&["load", "step", "--granularity", "5"], "leave --granularity out"),
    ] {
        let done = perf(wrong);
        // The side that is started detects a CPU that does not exist, and reports it first.
        let line = done.err.lines().next().unwrap_or_default().to_owned();
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{wrong:?}: {done:?}");
        assert!(line.contains(what), "{wrong:?}: {line}");
    }
    for wrong in [
        &["--size", "0"][..],
        &["--size", "2M"],
        &["--sizes", "some"],
        &["--size", "8", "--sizes", "all"],
        &["--window", "0"],
        &["serve", "read"],
        &["load", "--scheme", "best"],
    ] {
        assert_eq!(perf(wrong).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn load_is_measured_by_each_scheme_in_all_ways() {
    for scheme in ["socket-async", "socket-sync", "rdma-async"] {
        let figures = perf(&["load", "--scheme", scheme, "--background", "2", "--quick", "--json"]).json();
        assert_eq!((&figures["scheme"], &figures["measure"]), (&scheme.into(), &"latency".into()));
        let quantiles = ["p50_us", "p99_us", "max_us"].map(|key| figures[key].as_f64().unwrap());
        assert!(quantiles[0] > 0.0 && quantiles.is_sorted(), "{figures}");
        assert!(figures["samples"].as_u64().unwrap() > 0 && figures["unusable"] == 0, "{figures}");
    }
    let slow = perf(&["load", "slowdown", "--scheme", "rdma-async", "--quick", "--json"]).json();
    for key in ["alone_ms", "normalized_delay", "kept", "sampling"] {
        assert!(slow[key].as_f64().unwrap() > 0.0, "{slow}");
    }
    let deviations =
        perf(&["load", "accuracy", "--scheme", "socket-sync", "--background", "4", "--quick", "--json"])
            .json();
    assert!(deviations["samples"].as_u64().unwrap() > 0, "{deviations}");
    let [threads, cpu] = ["threads", "cpu_percent"].map(|key| &deviations[key]);
    assert!(threads["mean"].as_f64().unwrap() <= threads["max"].as_f64().unwrap(), "{deviations}");
    assert!(cpu["max"].as_f64().unwrap() <= 100.0, "{deviations}");
    // More threads than a busy machine runs by itself, so that they stand out.
    let step_is_seen = || {
        let step = ["load", "step", "--scheme", "socket-sync", "--threads", "32", "--for", "2", "--json"];
        let step = perf(&step).json();
        step["samples"].as_u64().unwrap() > 0 && step["p50_us"].as_f64().unwrap() > 0.0
    };
    assert!((0..10).any(|_| step_is_seen()));
}
