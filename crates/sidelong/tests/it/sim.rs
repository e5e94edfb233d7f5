//! `sidelong-lab sim` as a user runs it.

use std::path::Path;

use rustix::process::Signal;

use crate::support::{Running, eventually, run_lab};

fn sim(arguments: &[&str]) -> crate::support::Done {
    run_lab([&["sim"], arguments].concat())
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_sweep_leaves_its_rows_and_two_are_compared() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("small.toml");
    std::fs::write(&file, "[workload]\nrequests = 2_000\nobjects = 300\n[cluster]\nnodes = [3, 4]\n")
        .unwrap();
    let (file, out) = (file.to_str().unwrap(), directory.path().join("out"));
    let said =
        sim(&["run", file, "--set", "protocol=rpc,ledger", "--out", out.to_str().unwrap()]).succeeded();
    assert_eq!(said.trim(), out.join("report.md").display().to_string());
    let rows = text(&out.join("rows.csv"));
    assert_eq!(rows.lines().count(), 5, "{rows}");
    for (row, begins) in rows.lines().skip(1).zip(["1,3,rpc,", "1,3,ledger,", "1,4,rpc,", "1,4,ledger,"]) {
        assert!(row.starts_with(begins), "{row}");
    }
    assert!(text(&out.join("report.md")).contains("| 4 | ledger |"));

    let out = out.to_str().unwrap();
    let compared = sim(&["compare", out, out]).succeeded();
    assert!(compared.contains("nodes 3, protocol rpc") && compared.contains("1.000"), "{compared}");
}

#[test]
fn explain_prints_a_file_that_may_be_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("empty.toml");
    std::fs::write(&file, "").unwrap();
    let explained = sim(&["explain", file.to_str().unwrap(), "--set", "profile=today"]).succeeded();
    assert!(explained.contains("disk_us = 85"), "{explained}");
    assert_eq!(sim(&["explain", "--set", "profile=today"]).succeeded(), explained, "no file is an empty one");
    std::fs::write(&file, &explained).unwrap();
    let again = sim(&["explain", file.to_str().unwrap()]).succeeded();
    let values = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split("  #").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(values(&again), values(&explained));
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wrong.toml");
    std::fs::write(&file, "[cluster]\nnodes = 4\nmemory_mb = -1\n").unwrap();
    let out = directory.path().join("out");
    let error = sim(&["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()]).refused();
    assert!(
        error.contains("wrong.toml:3: cluster.memory_mb is \"-1\"; expected a number from 0.001"),
        "{error}"
    );
    assert!(!out.exists());
}

#[test]
fn a_few_broken_records_of_a_trace_are_told_in_plain_text() {
    let directory = tempfile::tempdir().unwrap();
    let rows: String =
        (0..500).map(|i| if i == 7 { "x,1\n".to_owned() } else { format!("{i},{}\n", i % 50) }).collect();
    std::fs::write(directory.path().join("log.csv"), format!("time,object\n{rows}")).unwrap();
    let file = directory.path().join("trace.toml");
    std::fs::write(&file, "[workload]\nkind = \"trace\"\ntrace = \"log.csv\"\nrequests = 900\n").unwrap();
    let out = directory.path().join("out");
    let done = sim(&["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert!(done.err.contains("1 of 500 lines are broken: line 9: no valid time"), "{done:?}");
    assert!(!done.err.contains('\x1b'), "{done:?}");
    done.succeeded();
}

#[test]
fn ctrl_c_keeps_what_is_done_and_says_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("seeds.toml");
    std::fs::write(&file, "[workload]\nrequests = 8_000\nobjects = 2_000\n[cluster]\nnodes = 4\n").unwrap();
    let seeds = (1..=99).map(|seed| seed.to_string()).collect::<Vec<_>>().join(",");
    let sweep = |out: &str| {
        let out = directory.path().join(out).display().to_string();
        let file = file.display().to_string();
        ["sim", "run", &file, "--set", &format!("seed={seeds}"), "--threads", "1", "--out", &out]
            .map(str::to_owned)
    };
    let (part, whole) = (directory.path().join("part"), directory.path().join("whole"));
    let running = Running::start_lab(sweep("part"));
    let runs_csv = part.join("runs.csv");
    let lines = || std::fs::read_to_string(&runs_csv).map_or(0, |text| text.lines().count());
    eventually("two runs are done", || lines() > 2);
    // `timeout` and others signal a command, and then its process group.
    running.signal(Signal::INT);
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    let ended = running.finish();
    assert_eq!((ended.code, ended.signal), (Some(130), None), "{ended:?}");
    let done = lines() - 1;
    assert!((2..99).contains(&done));
    assert!(ended.err.contains(&format!("interrupted: {done} of 99 runs are done")), "{ended:?}");
    assert!(ended.err.contains(&format!("\"seed {}, nodes 4, protocol sender\"", done + 1)), "{ended:?}");
    assert_eq!(text(&part.join("missing.csv")).lines().count(), 1 + 99 - done);

    let again = run_lab(sweep("part"));
    assert!(again.err.contains("[ 99/99]") && !again.err.contains(&format!("[{done:>3}/99]")), "{again:?}");
    again.succeeded();
    run_lab(sweep("whole")).succeeded();
    for name in ["rows.csv", "result.json", "report.md"] {
        assert!(text(&part.join(name)) == text(&whole.join(name)), "{name}");
    }
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("long.toml"), directory.path().join("out"));
    std::fs::write(&file, "[workload]\nrequests = [1, 100_000_000]\n").unwrap();
    let arguments = ["sim", "run", file.to_str().unwrap(), "--threads", "1", "--out", out.to_str().unwrap()];
    let running = Running::start_lab(arguments.map(str::to_owned));
    let is_at_it =
        || std::fs::read_to_string(out.join("runs.csv")).is_ok_and(|text| text.lines().count() > 1);
    eventually("it is at the long one", is_at_it);
    std::thread::sleep(std::time::Duration::from_millis(400));
    running.signal(Signal::INT);
    std::thread::sleep(std::time::Duration::from_millis(400));
    running.signal(Signal::INT);
    let ended = running.finish();
    assert_eq!((ended.code, ended.signal), (Some(130), None), "{ended:?}");
    assert!(!out.join("missing.csv").exists(), "it took no time for that");
}

#[test]
fn a_cluster_runs_live_beside_its_simulation() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("small.toml");
    let site = "profile = \"today\"\n[workload]\nkind = \"zipf\"\nobjects = 1_000\nrequests = 45_000\nsize_bytes_max = 4_096\n[cluster]\nmemory_mb = 1\nnodes = 3\n";
    std::fs::write(&file, site).unwrap();
    let file = file.to_str().unwrap();
    // So many that what a node tells at the end does not fit a pipe.
    let said = sim(&["live", file, "--set", "protocol=rpc,lazy,ledger", "--json"]).succeeded();
    let rows: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| &row["protocol"]).collect::<Vec<_>>(), ["rpc", "lazy", "ledger"]);
    for row in &rows {
        assert_eq!((row["wrong"].as_u64(), row["nodes"].as_u64()), (Some(0), Some(3)), "{row}");
        assert_eq!(row["live"]["requests"], row["simulated"]["requests"], "{row}");
        // How close the two are depends on what else the machine does: `lab run L1` compares them.
        let [here, disk, read] =
            ["here_rate", "disk_rate", "read_rate"].map(|figure| row["live"][figure].as_f64().unwrap());
        assert!(here > 0.0 && here < 1.0 && disk > 0.0 && disk < 1.0, "{row}");
        assert_eq!(read > 0.0, row["protocol"] != "rpc", "{row}");
        let [cpu, running] =
            ["cpu_us_per_request", "running"].map(|figure| row["sharing"][figure].as_f64().unwrap());
        assert!(cpu > 0.0 && running > 0.0 && row["sharing"]["waiting"].as_f64() >= Some(0.0), "{row}");
    }
    assert!(rows[1]["live"]["read_failure_rate"].as_f64() > Some(0.0), "{said}");
    let refused = sim(&["live", file, "--set", "arrivals=poisson"]).refused();
    assert!(refused.contains("workload.arrivals is not closed"), "{refused}");
}
