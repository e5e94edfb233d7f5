//! Why the program refuses to start: one line with the error and its place, and exit code 2.

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::geteuid;
use sidelong_config::{CachePeer, Configuration, Fabric, Tls, Workload, WorkloadKind};

use crate::support::{Cluster, Running, eventually, run, run_lab, skipped};

/// A cluster of one node.
fn small() -> Cluster {
    Cluster::new(&[("alpha", 1)])
}

/// Every command that reads a cluster file, on this one.
fn every_command(file: &Path) -> Vec<String> {
    let file = file.to_str().unwrap();
    let commands: [&[&str]; 4] = [
        &["up", "--config", file],
        &["config", "check", file],
        &["node", "n1", "--config", file],
        &["edge", "edge1", "--config", file],
    ];
    commands.into_iter().map(|command| run(command).refused()).collect()
}

#[test]
fn a_wrong_cluster_file_is_refused_with_its_line() {
    let cluster = small();
    let (good, path) = (cluster.config(), cluster.path("wrong.toml"));
    let good = fs::read_to_string(good).unwrap();
    fs::write(&path, good.replacen("floor = 1", "floor = 2", 1)).unwrap();
    let line_number = 1 + good.lines().position(|line| line.contains("floor = 1")).unwrap();
    let place = format!("{}:{line_number}: ", path.display());
    for line in every_command(&path) {
        assert!(line.starts_with(&place) && line.contains("floor <= nodes"), "{place}: {line}");
    }
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn a_baseline_is_for_research() {
    let mut cluster = small();
    cluster.file.baseline.configuration = Configuration::Rigid;
    let file = cluster.config();
    for words in [&["up"][..], &["node", "n1"], &["edge", "edge1"], &["status"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidelong"));
        command.args(words).arg("--config").arg(&file);
        let line = Running::start_command(command).finish().refused();
        assert!(line.contains("cluster.toml has [baseline]") && line.contains("use sidelong-lab"), "{line}");
    }
    assert!(run_lab(["config", "check", file.to_str().unwrap()]).succeeded().contains(", rigid\n"));
}

/// Whoever opened it would wait for a writer that never comes.
#[test]
fn a_fifo_in_place_of_a_file_is_refused_at_once() {
    let mut cluster = small();
    let path = cluster.path("fifo");
    fifo(&path);
    let is_refused = |line: String| {
        assert!(line.contains(path.to_str().unwrap()) && line.contains("not a regular file"), "{line}");
    };
    every_command(&path).into_iter().for_each(is_refused);
    for arguments in
        [&["sim", "run", "--out", "results"][..], &["trace", "info"], &["top", "--once", "--config"]]
    {
        is_refused(run_lab(arguments.iter().map(OsStr::new).chain([path.as_os_str()])).refused());
    }
    let control = cluster.at(6001);
    (cluster.file.cluster.fabric, cluster.file.nodes[0].fabric_listen) = (Fabric::Tcp, Some(control));
    cluster.file.cluster.secret_file = Some(path.clone());
    cluster.file.edges.truncate(1);
    is_refused(cluster.part("node", "n1").finish().refused());
    cluster.file.cluster.secret_file = None;
    cluster.file.workload =
        Some(Workload { kind: WorkloadKind::Trace, trace: Some(path.clone()), ..Workload::default() });
    is_refused(cluster.up(&[]).finish().refused());
    cluster.file.workload = None;
    cluster.file.edges[0].tls = vec![Tls { certificate: path.clone(), key: path.clone() }];
    is_refused(cluster.part("edge", "edge1").finish().refused());
}

#[test]
fn up_names_what_it_cannot_use_and_starts_nothing() {
    let mut cluster = small();
    let line = cluster.up(&["--samples", "/nowhere/samples.csv"]).finish().refused();
    assert!(line.contains("/nowhere/samples.csv"), "{line}");
    let trace = Some(PathBuf::from("gone.log"));
    cluster.file.workload = Some(Workload { kind: WorkloadKind::Trace, trace, ..Workload::default() });
    let line = cluster.up(&[]).finish().refused();
    // Relative to the cluster file's directory, not to the current one.
    assert!(line.contains(cluster.path("gone.log").to_str().unwrap()), "{line}");
    assert!(line.contains("No such file"), "{line}");
    assert_eq!((cluster.parts(), cluster.regions()), (vec![], vec![]));
}

#[test]
fn a_port_in_use_is_named() {
    let cluster = Cluster::new(&[("alpha", 2)]);
    let node = cluster.node(1);
    for (who, address) in
        [("node n2", node), ("edge edge2", cluster.edge(1)), ("edge edge2", cluster.admin(1))]
    {
        let taken = TcpListener::bind(address).unwrap();
        let line = cluster.up(&[]).finish().refused();
        assert!(line.starts_with(&format!("{who}: cannot listen on {address}: ")), "{line}");
        assert!(line.contains("in use"), "{line}");
        assert_eq!((cluster.parts(), cluster.regions()), (vec![], vec![]), "nothing is left of the others");
        drop(taken);
    }
    cluster.serving(&["--json"]).end().json();
}

/// The user nobody, an ordinary user.
const NOBODY: u32 = 65534;

/// `up` as an ordinary user: the one who runs the tests, or, if that is root, another one with a copy of the program,
/// because only root may enter the build directory.
fn up_as_user(cluster: &Cluster, program: &Path) -> Running {
    let mut command = Command::new(program);
    command.args(["up", "--json", "--for", "1s", "--config"]).arg(cluster.config()).current_dir("/");
    if geteuid().is_root() {
        fs::set_permissions(cluster.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    Running::start_command(command)
}

#[test]
fn an_ordinary_user_may_run_it_where_that_user_may_write() {
    let mut cluster = small().with_load(64, None);
    let (own, others) = (cluster.path("own"), cluster.path("others"));
    for directory in [&own, &others] {
        fs::create_dir(directory).unwrap();
    }
    let mut program = PathBuf::from(env!("CARGO_BIN_EXE_sidelong"));
    let elsewhere = tempfile::tempdir().unwrap();
    if geteuid().is_root() {
        chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
        // By another process: a file that this one writes could be held open by a child of another test, and could then
        // not be executed.
        fs::set_permissions(elsewhere.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Command::new("cp").arg(&program).arg(elsewhere.path()).status().unwrap().success());
        program = elsewhere.path().join("sidelong");
    } else {
        fs::set_permissions(&others, fs::Permissions::from_mode(0o500)).unwrap();
    }
    cluster.file.cluster.run_dir = Some(own.join("run"));
    assert_eq!(up_as_user(&cluster, &program).finish().json()["errors"], 0);
    cluster.file.cluster.run_dir = Some(others.join("run"));
    let line = up_as_user(&cluster, &program).finish().refused();
    assert!(line.starts_with(&format!("run directory {}: ", others.join("run").display())), "{line}");
    assert!(line.contains("Permission denied"), "{line}");
}

/// The program in a mount namespace of its own, where `cluster`'s run directory is a file system of `bytes` bytes.
fn run_in(bytes: usize, cluster: &Cluster, arguments: &[&str]) -> Running {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let script = "mount -t tmpfs -o mode=0700,size=$1 tmpfs \"$2\" && shift 2 && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh", &bytes.to_string()]);
    command.arg(cluster.run_dir()).arg(env!("CARGO_BIN_EXE_sidelong")).args(arguments);
    command.arg("--config").arg(cluster.config());
    Running::start_command(command)
}

#[test]
fn full_memory_is_said_and_kills_nobody() {
    let cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]).with_load(64, None);
    fs::create_dir(cluster.run_dir()).unwrap();
    let up = ["up", "--json", "--for", "1s"];
    let roomy = run_in(4 << 20, &cluster, &up).finish();
    if roomy.code != Some(0) {
        return skipped(&format!("a full run directory: no mount namespace here: {}", roomy.err.trim()));
    }
    // From no room at all to none for the last region.
    for pages in [1, 2, 3, 4, 6, 8, 10, 12, 13] {
        let done = run_in(pages * 4096, &cluster, &up).finish();
        if done.code == Some(0) {
            assert!(pages > 6, "it ran in {pages} pages");
            break;
        }
        let line = done.refused();
        assert!(line.contains("No space left") || line.contains("full"), "{pages} pages: {line}");
        assert!(line.contains(cluster.run_dir().to_str().unwrap()), "{pages} pages: {line}");
    }
}

#[test]
fn memory_that_does_not_fit_is_refused_with_what_to_do() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.cache.peers = vec![CachePeer::new("c1", cluster.at(11211))];
    cluster.file.cache.documents = true;
    cluster.file.nodes[0].root = Some(cluster.path("."));
    fs::create_dir(cluster.run_dir()).unwrap();
    // Both want 64 MiB; a tmpfs of size 0 has no limit.
    for (part, region, setting) in [
        (["cache", "c1"], "c1.items.region", "memory_mb of the cache"),
        (["node", "n1"], "n1.documents.region", "cache.document_memory_mb"),
    ] {
        let done = run_in(32 << 20, &cluster, &part).finish();
        if done.err.contains("unshare") || done.err.contains("mount") {
            return skipped(&format!("a full run directory: no mount namespace here: {}", done.err.trim()));
        }
        let line = done.refused();
        assert!(line.contains(region) && line.contains("No space left: it takes 6"), "{line}");
        assert!(line.contains("is /dev/shm full?") && line.ends_with(setting), "{line}");
        let [kind, name] = part;
        let running = run_in(0, &cluster, &[kind, name, "--events"]);
        eventually("it runs where there is room", || running.out().contains("\"ready\""));
        running.end().succeeded();
    }
}
