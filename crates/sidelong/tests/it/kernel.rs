//! Nodes with kernel-kept records: rdma-sync, e-rdma-sync, and auto if it chooses the first.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use sidelong_config::Scheme;
use sidelong_fabric::{Initiator, RunDirectory};
use sidelong_load::{Limits, OneSided, Reading, RecordOf, Source as _, Status, monotonic_ns};

use crate::support::{Cluster, Running, eventually, get, metrics, skipped, try_get};

/// A node that has its machine to itself, once it serves; `None`, with a printed reason, if the kernel keeps no record.
fn lone_node(cluster: &Cluster) -> Option<Running> {
    let mut node = cluster.part("node", "n1");
    let mut serves = false;
    eventually("the node serves or is refused", || {
        serves = try_get(cluster.node(0), "any", "/healthz").is_ok();
        serves || !node.is_running()
    });
    if serves {
        return Some(node);
    }
    skipped(&format!("kernel: {}", node.finish().refused()));
    None
}

struct Reader(OneSided);

impl Reader {
    fn new(cluster: &Cluster) -> Reader {
        let directory = Arc::new(RunDirectory::open(cluster.run_dir()).unwrap());
        Reader(OneSided::new(
            directory,
            Initiator::new(),
            &[RecordOf::from("n1.load".to_owned())].into_iter().collect(),
            false,
            Limits::default(),
        ))
    }

    fn look(&mut self) -> Reading {
        let mut readings = [Reading::default()];
        self.0.refresh(monotonic_ns(), &mut readings);
        readings[0]
    }

    fn fresh(&mut self) -> Reading {
        eventually("the record is fresh", || self.look().status == Status::Fresh);
        self.look()
    }
}

/// The kernel's view of the process: a field of its status, in hexadecimal.
fn status(node: &Running, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", node.pid().as_raw_nonzero())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

fn ticks(node: &Running) -> u64 {
    let stat = std::fs::read(format!("/proc/{}/stat", node.pid().as_raw_nonzero())).unwrap();
    let stat = sidelong_load::proc::process::process(&stat).unwrap();
    stat.user_ticks + stat.system_ticks
}

#[test]
fn a_node_sleeps_while_its_record_goes_on() {
    sleeps_for(Duration::from_secs(2));
}

#[test]
#[ignore = "takes a minute: `cargo test -p sidelong --test it kernel:: -- --ignored`"]
fn a_node_uses_no_cpu_in_a_minute() {
    sleeps_for(Duration::from_mins(1));
}

fn sleeps_for(span: Duration) {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.set_scheme(Scheme::RdmaSync);
    let Some(node) = lone_node(&cluster) else { return };
    assert_eq!(status(&node, "CapEff:") | status(&node, "CapPrm:"), 0, "it has given up all privileges");
    let mut reader = Reader::new(&cluster);
    let before = reader.fresh();
    assert_eq!(reader.0.is_kept_by_kernel(0), Some(true));

    // If it runs it serves, and reports that at once.
    let listen = cluster.node(0);
    assert_eq!(get(listen, "alpha.test", "/o/1/10").status, 200);
    eventually("the request is counted", || reader.look().hot.is_some_and(|hot| hot.served == 1));
    eventually("the connection is closed", || reader.look().hot.is_some_and(|hot| hot.connections == 0));
    let used = ticks(&node);
    std::thread::sleep(span);
    assert_eq!(ticks(&node), used);
    node.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(500));
    let stopped = reader.fresh();
    let passed = stopped.hot.unwrap().time_ns - before.hot.unwrap().time_ns;
    assert!(passed > 2_000_000_000 && stopped.age_ns < 150_000_000, "{stopped:?}");
    node.signal(Signal::CONT);

    let pid = node.pid();
    node.end().succeeded();
    eventually("it has said that it ends, or is dead", || reader.look().status != Status::Fresh);
    assert!(!Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists());
}

/// The node itself, an edge, and `top`.
#[test]
fn everybody_reads_what_the_kernel_keeps() {
    for scheme in [Scheme::RdmaSync, Scheme::ERdmaSync] {
        let mut cluster = Cluster::new(&[("alpha", 1)]);
        cluster.file.edges.truncate(1);
        cluster.file.set_scheme(scheme);
        let Some(node) = lone_node(&cluster) else { return };
        let edge = cluster.part("edge", "edge1");
        eventually("the edge answers", || try_get(cluster.admin(0), "any", "/healthz").is_ok());
        let told = |admin, name: &str| metrics(admin).get(name).copied();
        let by_edge =
            |figure: &str| told(cluster.admin(0), &format!("sidelong_edge_node_{figure}{{node=\"n1\"}}"));
        let by_node = |figure: &str| told(cluster.node_admin(0), &format!("sidelong_node_{figure}"));
        for figure in ["run_queue_threads", "cpu_ratio", "memory_ratio"] {
            eventually(figure, || by_edge(figure).is_some() && by_node(figure).is_some());
        }
        assert!(by_node("record_age_seconds").unwrap() < 5.0);
        let switches = by_node("context_switches_total").unwrap();
        eventually("switches go on", || by_node("context_switches_total").unwrap() > switches);

        let mut top = Value::Null;
        eventually("top sees the node", || {
            top = cluster.run(&["top", "--once", "--json"]).json();
            top["totals"]["fresh"] == 1
        });
        assert_eq!(top["scheme"].as_str(), Some(scheme.to_string().as_str()));
        assert!(top["nodes"][0]["run_queue"].is_u64() && top["nodes"][0]["cpu_percent"].is_f64(), "{top}");
        edge.end().succeeded();
        node.end().succeeded();
    }
}

#[test]
fn auto_takes_it_where_a_node_has_its_machine_to_itself() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.set_scheme(Scheme::RdmaSync);
    let Some(node) = lone_node(&cluster) else { return };
    node.end().succeeded();
    cluster.file.set_scheme(Scheme::Auto);
    let node = lone_node(&cluster).unwrap();
    let mut reader = Reader::new(&cluster);
    reader.fresh();
    assert_eq!(reader.0.is_kept_by_kernel(0), Some(true));
    node.end().succeeded();
}

/// As in a container without capabilities.
#[test]
fn without_capabilities_auto_falls_back_and_a_forced_scheme_is_refused() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    let node = |cluster: &Cluster| {
        let mut command = Command::new("setpriv");
        command.args([
            "--bounding-set=-all",
            "--inh-caps=-all",
            env!("CARGO_BIN_EXE_sidelong"),
            "node",
            "n1",
        ]);
        command.arg("--config").arg(cluster.config());
        Running::start_command(command)
    };
    let missing = "rdma-sync is not available: CAP_BPF and CAP_PERFMON are missing";
    cluster.file.set_scheme(Scheme::RdmaSync);
    let line = node(&cluster).finish().refused();
    if !rustix::process::geteuid().is_root() {
        return skipped(&format!("kernel: only root can be without capabilities: {line}"));
    }
    assert!(line.contains(missing) && line.ends_with("use rdma-async, or auto"), "{line}");
    cluster.file.set_scheme(Scheme::Auto);
    let fallen_back = node(&cluster);
    eventually("it serves", || try_get(cluster.node(0), "any", "/healthz").is_ok());
    let said = fallen_back.err();
    assert!(said.contains("load by rdma-async") && said.contains(missing), "{said}");
    fallen_back.end().succeeded();
}

/// Eight nodes on one machine, in control groups that `up` makes: it serves, and moves need no acknowledgement.
#[test]
fn a_data_center_on_one_machine_serves_and_moves() {
    for scheme in [Scheme::RdmaSync, Scheme::ERdmaSync] {
        let mut cluster = Cluster::demo().with_load(512, Some(3072));
        cluster.file.set_scheme(scheme);
        let done = cluster.up(&["--json"]).finish();
        if done.code == Some(2) {
            return skipped(&format!("kernel: {}", done.refused()));
        }
        let summary = done.json();
        assert_eq!((&summary["requests"], &summary["errors"]), (&3072.into(), &0.into()), "{summary}");
        assert!(summary["moves"].as_u64().unwrap() > 0, "{summary}");
        assert_eq!(cluster.regions(), [""; 0], "what it made is gone with it");
        assert_eq!(cluster.parts(), []);
    }
}
