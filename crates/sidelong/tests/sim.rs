//! `sidelong sim` as a user runs it.

mod support;

use std::path::Path;

use support::run;

fn sim(arguments: &[&str]) -> support::Done {
    run([&["sim"], arguments].concat())
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
