//! A round of edge-overhead: the edge beside nginx and HAProxy, all real.

use std::process::Command;

use crate::support::skipped;

/// What the experiment needs, and how each states its version.
const NEEDS: [(&str, &str); 3] =
    [("/usr/sbin/nginx", "-v"), ("/usr/sbin/haproxy", "-v"), ("openssl", "version")];

#[test]
fn each_proxy_has_its_turn_in_each_case() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return skipped("edge-overhead: it needs two CPUs");
    }
    for (program, version) in NEEDS {
        if Command::new(program).arg(version).output().is_err() {
            return skipped(&format!("edge-overhead: there is no {program}"));
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let run = ["run", "edge-overhead", "--quick", "--repeat", "1", "--out", out];
    // The lab bounds its own waits.
    let done = Command::new(env!("CARGO_BIN_EXE_sidelong-lab")).args(run).output().unwrap();
    // Met, missed, or invalid beside other work: what a debug build costs says nothing.
    assert!(matches!(done.status.code(), Some(0 | 3 | 4)), "{done:?}");

    let read =
        |name: &str| std::fs::read_to_string(directory.path().join("edge-overhead").join(name)).unwrap();
    let rows = read("rows.csv");
    let (names, lines) = rows.split_once('\n').unwrap();
    let column = |line: &str, name: &str| {
        let at = names.split(',').position(|known| known == name).unwrap();
        line.split(',').nth(at).unwrap().to_owned()
    };
    let of = |proxy: &str| lines.lines().filter(|line| column(line, "proxy") == proxy).count();
    assert_eq!((of("edge"), of("nginx"), of("haproxy")), (14, 12, 12), "{rows}");
    for line in lines.lines() {
        let (cpu_us, idle_kb) = (column(line, "cpu_us_per_request"), column(line, "idle_kb"));
        let figure: f64 = if cpu_us.is_empty() { &idle_kb } else { &cpu_us }.parse().unwrap();
        assert!(figure > 0.0, "{line}");
    }
    let json: serde_json::Value = serde_json::from_str(&read("result.json")).unwrap();
    assert_eq!(json["checks"].as_array().unwrap().len(), 16);
    let report = read("report.md");
    assert!(
        report.contains("| 1 KB, HTTP/2 over TLS: CPU a request, edge / nginx | at most 1 |"),
        "{report}"
    );
    assert!(read("figure.svg").contains("memory of an idle connection"));
}
