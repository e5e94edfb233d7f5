//! The access log of an edge outlives what happens to its file: a full disk, a rotation.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use sidelong_config::Service;

use crate::support::{Client, Cluster, Running, eventually, metrics, skipped, try_get};

/// One site with a node that takes no time, behind one edge with an access log in a directory of its own.
fn cluster() -> (Cluster, PathBuf) {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.nodes[0].service = Some(Service::None);
    cluster.file.edges.truncate(1);
    let logs = cluster.path("logs");
    fs::create_dir(&logs).unwrap();
    cluster.file.edges[0].access_log = Some(logs.join("access.log"));
    (cluster, logs)
}

fn has(log: &Path, request: &str) -> bool {
    fs::read_to_string(log).is_ok_and(|text| text.contains(request))
}

/// The edge of `cluster` with a file system of `kib` KiB at `logs`, which it alone sees. `None` where none can be mounted.
fn on_a_small_disk(cluster: &Cluster, logs: &Path, kib: u32) -> Option<Running> {
    let mount = format!("mount -t tmpfs -o size={kib}k tmpfs \"$1\"");
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(logs);
        command
    };
    if !unshare(&mount).output().is_ok_and(|done| done.status.success()) {
        return None;
    }
    let mut command = unshare(&format!("{mount} && shift && exec \"$@\""));
    command.args([env!("CARGO_BIN_EXE_sidelong"), "edge", "edge1", "--config"]).arg(cluster.config());
    Some(Running::start_command(command))
}

#[test]
fn a_full_disk_interrupts_the_access_log_and_what_is_lost_is_counted() {
    let (cluster, logs) = cluster();
    let _node = cluster.part("node", "n1");
    let Some(mut edge) = on_a_small_disk(&cluster, &logs, 256) else {
        return skipped("a full disk: no file system can be mounted in a namespace of its own here");
    };
    eventually("it serves", || {
        assert!(edge.is_running(), "{}", edge.err());
        try_get(cluster.edge(0), "alpha.test", "/o/1/1").is_ok_and(|reply| reply.status == 200)
    });
    // The file system, as the edge sees it.
    let disk = PathBuf::from(format!(
        "/proc/{}/root{}",
        edge.pid().as_raw_nonzero(),
        logs.canonicalize().unwrap().display()
    ));
    let (log, filler) = (disk.join("access.log"), disk.join("filler"));
    eventually("its log is written", || has(&log, "/o/1/1"));
    let mut filling = fs::File::create(&filler).unwrap();
    while filling.write_all(&[0; 4096]).is_ok() {}
    // Also the rest of the log's last page.
    let long = format!("/o/1/1?{}", "x".repeat(4096));
    let mut client = Client::connect(cluster.edge(0));
    let mut ask = |path: &str| assert_eq!(client.ask("GET", "alpha.test", path).unwrap().status, 200);
    let dropped = || metrics(cluster.admin(0))["sidelong_edge_access_log_dropped_total"];
    eventually("lines are lost", || {
        ask(&long);
        dropped() > 0.0
    });

    // Its space is free once nobody has it open.
    drop(filling);
    fs::remove_file(&filler).unwrap();
    eventually("it goes on", || {
        ask("/o/2/2");
        has(&log, "/o/2/2")
    });
    // Each line is in the log whole, or was counted.
    eventually("all requests are in the log or counted", || {
        let text = fs::read_to_string(&log).unwrap();
        let whole = |line: &&str| {
            let request = line.split('"').nth(1).unwrap_or_else(|| panic!("{line}"));
            request.starts_with("GET /o/") && request.ends_with(" HTTP/1.1")
        };
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[..lines.len() - 1].iter().all(whole), "{text}");
        let metrics = metrics(cluster.admin(0));
        let requests: f64 = metrics
            .iter()
            .filter(|(name, _)| name.starts_with("sidelong_edge_requests_total"))
            .map(|(_, count)| count)
            .sum();
        lines.len() as f64 + metrics["sidelong_edge_access_log_dropped_total"] == requests
    });
    let said = edge.end();
    assert_eq!(said.err.matches("cannot write the access log").count(), 1, "{said:?}");
    assert_eq!(said.err.matches("the access log is written again").count(), 1, "{said:?}");
}

#[test]
fn a_rotated_access_log_is_opened_anew() {
    let (cluster, logs) = cluster();
    let mut up = cluster.serving(&["--json"]);
    let edge = cluster.find("edge", "edge1");
    let log = logs.join("access.log");
    let mut client = Client::connect(cluster.edge(0));
    let mut ask = |path: &str| assert_eq!(client.ask("GET", "alpha.test", path).unwrap().status, 200);
    for (number, signalled) in [(1, false), (2, true)] {
        fs::rename(&log, logs.join(format!("access.log.{number}"))).unwrap();
        if signalled {
            // It passes it on.
            up.signal(Signal::USR1);
        }
        eventually("there is another", || log.exists());
        let path = format!("/o/{number}/9");
        ask(&path);
        eventually("which has what follows", || has(&log, &path));
    }
    assert!(up.is_running() && cluster.find("edge", "edge1") == edge, "the signal ends neither");
}
