//! `sidelong doctor` on a cluster that is well, and with faults that are made here. What takes another machine, or another kernel, is tested by
//! facts (`doctor::findings`).

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use sidelong_config::{Fabric, FrontEntry, Proxy};
use sidelong_testing::certificates::certificate;

use crate::support::{Cluster, Done, Running, eventually, run};

/// Two nodes and an edge.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", 2)]);
    cluster.file.edges.truncate(1);
    cluster
}

/// That cluster, whose parts reach each other over a network.
fn over_tcp() -> Cluster {
    let mut cluster = cluster();
    cluster.file.cluster.fabric = Fabric::Tcp;
    let ports = [cluster.at(7201), cluster.at(7211), cluster.at(7221)];
    for (node, port) in cluster.file.nodes.iter_mut().zip(ports) {
        node.fabric_listen = Some(port);
    }
    cluster.file.edges[0].fabric_listen = Some(ports[2]);
    cluster
}

/// What is wrong, but for this machine's kernel: what it is about, and how bad that is.
fn wrong(cluster: &Cluster) -> Vec<(String, String)> {
    let found = cluster.run(&["doctor", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&found.out).unwrap();
    let text = |finding: &serde_json::Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let machine = ["kernel", "types of the kernel (BTF)", "control groups"];
    let wrong = found.as_array().unwrap().iter().filter(|finding| {
        finding["grade"] != "good" && !machine.iter().any(|what| finding["what"] == **what)
    });
    wrong.map(|finding| (text(finding, "what"), text(finding, "grade"))).collect()
}

fn is_told(cluster: &Cluster, what: &str, grade: &str) {
    let wrong = wrong(cluster);
    assert!(wrong.contains(&(what.to_owned(), grade.to_owned())), "{what}: {wrong:?}");
}

#[test]
fn a_cluster_that_is_well_has_no_finding_and_a_part_that_ends_has_one() {
    let cluster = cluster();
    let [n1, n2, edge] =
        [("node", "n1"), ("node", "n2"), ("edge", "edge1")].map(|(kind, name)| cluster.part(kind, name));
    eventually("nothing is wrong", || wrong(&cluster).is_empty());
    let Done { code, out, .. } = cluster.run(&["doctor"]);
    // Of the machine it may have something to say.
    assert!(code == Some(0) && out.lines().count() == 1 || code == Some(1), "{out}");

    edge.signal(Signal::STOP);
    is_told(&cluster, "edge edge1", "warning");
    edge.signal(Signal::CONT);

    n2.kill();
    eventually("it is told", || wrong(&cluster).contains(&("process of n2".into(), "error".into())));
    assert_eq!(cluster.run(&["doctor"]).code, Some(2));
    let _other = TcpListener::bind(cluster.node_admin(1)).unwrap();
    is_told(&cluster, "admin of n2", "error");
    let said = cluster.run(&["doctor"]).out;
    assert!(said.contains(", process ") && said.contains("systemctl start sidelong-node@n2"), "{said}");
    drop((n1, edge));
}

#[test]
fn what_the_file_names_is_looked_at() {
    let mut cluster = cluster();
    let Some(tls) = certificate(&cluster, "soon") else { return };
    cluster.file.edges[0].tls = vec![tls.clone()];
    is_told(&cluster, "certificate", "warning");
    fs::write(&tls.certificate, "nothing").unwrap();
    is_told(&cluster, "certificate", "error");
    cluster.file.edges[0].tls.clear();

    let mut far = over_tcp();
    let path = far.path("secret");
    far.file.cluster.secret_file = Some(path.clone());
    is_told(&far, "secret", "error");
    fs::write(&path, "one-secret-of-at-least-thirty-two-bytes\ntwo-secrets-of-at-least-thirty-two-bytes\n")
        .unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    is_told(&far, "secret", "warning");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    is_told(&far, "secret", "error");

    cluster.file.fronts.push(FrontEntry::new("web1", Proxy::Nginx));
    is_told(&cluster, "nginx of web1", "warning");
    cluster.file.fronts.clear();

    fs::create_dir(cluster.run_dir()).unwrap();
    fs::set_permissions(cluster.run_dir(), Permissions::from_mode(0o777)).unwrap();
    is_told(&cluster, "run directory", "error");
    fs::remove_dir(cluster.run_dir()).unwrap();
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::set_permissions(disk.path(), Permissions::from_mode(0o700)).unwrap();
    cluster.file.cluster.run_dir = Some(disk.path().to_owned());
    is_told(&cluster, "run directory", "warning");

    let broken = cluster.path("broken.toml");
    fs::write(&broken, "[cluster]\nname = 3\n").unwrap();
    let Done { code, out, .. } = run(["doctor", "--config", broken.to_str().unwrap()]);
    assert!(
        code == Some(2) && out.contains("broken.toml:2") && out.contains("sidelong config check"),
        "{out}"
    );
}

#[test]
fn a_report_has_what_parts_say_and_no_secret() {
    let mut cluster = over_tcp();
    let secret = "a-secret-of-at-least-thirty-two-bytes";
    let path = cluster.path("secret");
    fs::write(&path, secret).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    cluster.file.cluster.secret_file = Some(path);
    let _edge = cluster.part("edge", "edge1");
    let tar = cluster.path("report.tar");
    let report = || {
        let _ = fs::remove_file(&tar);
        cluster.run(&["doctor", "--bundle", tar.to_str().unwrap()]);
        untar(&tar)
    };
    eventually("the edge answers", || report().contains("sidelong_edge_build_info"));
    let all = report();
    for part in
        ["sidelong-report/doctor.json", "sidelong-report/cluster.toml", "sidelong-report/edge1/status.json"]
    {
        assert!(all.contains(part), "{part}");
    }
    assert!(!all.contains(secret));
}

/// The names and the contents of an archive.
fn untar(archive: &Path) -> String {
    let ask = |how: &str| {
        let done = Command::new("tar")
            .arg(how)
            .arg(archive)
            .args(if how == "-xOf" { &[] } else { &["-v"][..] })
            .output();
        String::from_utf8(done.unwrap().stdout).unwrap()
    };
    ask("-tf") + &ask("-xOf")
}

#[test]
fn a_shell_completes_the_names_of_the_file() {
    let cluster = cluster();
    let complete = |words: &[&str]| {
        let config = format!("--config={}", cluster.config().display());
        let mut words: Vec<_> = ["sidelong"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        words.insert(2, config);
        let mut shell = Command::new(env!("CARGO_BIN_EXE_sidelong"));
        shell.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
        let done = Running::start_command({
            shell.env("_CLAP_IFS", "\n").arg("--").args(words);
            shell
        });
        done.finish().succeeded()
    };
    assert_eq!(
        complete(&["drain", ""]).lines().filter(|word| !word.starts_with('-')).collect::<Vec<_>>(),
        ["n1", "n2"]
    );
    assert_eq!(complete(&["node", "n2"]).lines().collect::<Vec<_>>(), ["n2"]);
    assert_eq!(complete(&["edge", "e"]).lines().collect::<Vec<_>>(), ["edge1"]);
    assert!(complete(&["leave", ""]).lines().any(|word| word == "alpha"));

    // A package has these scripts from the machine that has built it.
    let program = env!("CARGO_BIN_EXE_sidelong");
    for shell in ["bash", "zsh", "fish"] {
        let mut script = Command::new(program);
        let script = Running::start_command({
            script.env("COMPLETE", shell);
            script
        });
        let script = script.finish().succeeded();
        assert!(script.contains("sidelong") && !script.contains(program), "{script}");
    }
}

#[test]
fn the_manual_has_a_page_for_each_command_and_one_for_the_file() {
    let directory = tempfile::tempdir().unwrap();
    run(["manual", directory.path().to_str().unwrap()]).succeeded();
    let page = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    assert!(page("sidelong.1").contains("sidelong\\-doctor(1)"));
    assert!(page("sidelong-node.1").contains("cluster file"));
    assert!(page("sidelong-lab.1").contains("SYNOPSIS"));
    let file = page("sidelong.toml.5");
    for heading in ["SITE", "NODE", "EDGE", "LIMITS"] {
        assert!(file.contains(&format!(".SH {heading}")), "{heading}");
    }
}
