//! Whole experiments against a stand-in for the program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sidelong_config::{ClusterFile, Configuration};
use sidelong_lab::{Error, Report, Result, RunOptions};

struct Lab {
    directory: tempfile::TempDir,
    options: RunOptions,
    runs: Vec<String>,
}

impl Lab {
    fn new(quick: bool) -> Lab {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("fake-sidelong");
        symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program.sh"), &program).unwrap();
        fs::write(directory.path().join("script"), include_str!("fake_up.sh")).unwrap();
        let out = directory.path().join("out");
        let options = RunOptions { out, quick, program, stop: Arc::new(AtomicBool::new(false)) };
        Lab { directory, options, runs: Vec::new() }
    }

    fn run(&mut self, id: &str) -> Result<Report> {
        let runs = &mut self.runs;
        let mut last = 0;
        sidelong_lab::run(id, &self.options, &mut |progress| {
            assert!(progress.done <= progress.total);
            assert!(progress.done >= last);
            last = progress.done;
            assert_eq!(progress.remaining.is_zero(), progress.run.is_empty(), "empty when all are done");
            if !progress.run.is_empty() {
                runs.push(progress.run.to_owned());
            }
        })
    }

    fn out(&self, path: &str) -> PathBuf {
        self.options.out.join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.out(path)).unwrap()
    }
}

/// Keeps a figure where a person can look at it.
fn keep(figure: &Path, name: &str) {
    if let Some(to) = std::env::var_os("SIDELONG_LAB_FIGURES") {
        fs::copy(figure, Path::new(&to).join(name)).unwrap();
    }
}

#[test]
fn r10_in_full() {
    let mut lab = Lab::new(false);
    let report = lab.run("r10").unwrap();
    keep(&lab.out("R10/figure.svg"), "R10.svg");
    assert_eq!(report.experiment.id, "R10");
    assert_eq!(report.directory, lab.out("R10").canonicalize().unwrap());

    // The stand-in loses a quarter of a second a burst: 512 pay with three sites (1.07 s), and fewer do not.
    assert_eq!(
        &lab.runs[..3],
        ["3-sites-512-rigid", "3-sites-512-reconfigured", "3-sites-512-over-provisioned"]
    );
    assert_eq!(lab.runs.len(), 36 + lab.read("R10/shorter.csv").lines().count() - 1);

    let rows = lab.read("R10/rows.csv");
    let mut lines = rows.lines();
    assert_eq!(
        lines.next().unwrap(),
        "sites,workload,configuration,burst,requests_per_s,p50_ms,p99_ms,errors,moves"
    );
    assert_eq!(lines.clone().count(), 36);
    assert!(lines.next().unwrap().starts_with("3:3:2,1k,rigid,512,997.2,"), "{rows}");

    let json: serde_json::Value = serde_json::from_str(&lab.read("R10/result.json")).unwrap();
    assert_eq!(json["experiment"]["figure"], "R Figure 10");
    assert_eq!(json["rows"].as_array().unwrap().len(), lab.runs.len());
    assert_eq!(json["rows"][1]["configuration"], "reconfigured");
    assert!(json["machine"]["cores"].as_u64().unwrap() >= 1);
    assert_eq!(json["checks"].as_array().unwrap().len(), report.checks.len());
    assert_eq!(json["settings"]["requests_per_s_per_node"], 400.0);

    let svg = lab.read("R10/figure.svg");
    assert!(svg.starts_with("<svg") && svg.contains("16384") && svg.contains("over-provisioned"));

    let text = lab.read("R10/report.md");
    for part in [
        "# R10: throughput by burst length, one file of 1 KB (R Figure 10)",
        "| 3 sites, rigid, requests/s | about 26,000 | 997 |",
        "| 3 sites, over-provisioned / rigid | 1.96 | 2.33 |",
        "- 3 sites: **it holds**. Reconfigured has 1.07 of rigid and 0.46 of over-provisioned at 512, 2.25 of rigid",
        "| 3 sites, bursts of 16384: reconfigured / rigid | at least 1.9 | 2.25 | met |",
        "| 4 sites, bursts of 512: reconfigured / rigid | at least 1.6 | 1.26 | MISSED |",
        "- 4 sites: 1024 requests, 2.560 s of one node (on R's nodes as many seconds are 22187 requests).",
        "InfiniBand",
        "lab run R10 --out ",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn the_cluster_files_can_be_run_by_hand() {
    let mut lab = Lab::new(true);
    lab.run("R11").unwrap();
    let path = lab.out("R11/configs/4-sites-4096-over-provisioned.toml");
    let text = fs::read_to_string(&path).unwrap();
    let command = format!("up --config {} --json", path.canonicalize().unwrap().display());
    assert!(text.lines().nth(1).unwrap().ends_with(&command), "{text}");

    let cluster = ClusterFile::load(&path).unwrap().cluster().unwrap();
    assert_eq!(cluster.reconfig.configuration, Configuration::OverProvisioned);
    assert_eq!(cluster.nodes.len(), 20);
    let root = cluster.nodes[0].root.as_ref().unwrap();
    assert_eq!(fs::metadata(root.join("o/0/4096")).unwrap().len(), 4096);
    assert_eq!(fs::read_dir(lab.out("R11/configs")).unwrap().count(), 12);
}

#[test]
fn a_quick_run_says_what_it_left_out() {
    let mut lab = Lab::new(true);
    let report = lab.run("R14").unwrap();
    assert_eq!(lab.runs.len(), 12);
    assert_eq!(report.checks[0].verdict(), "not measured");
    let text = lab.read("R14/report.md");
    assert!(text.contains("A quick run") && text.contains("| – | not measured |"), "{text}");
    assert!(text.contains("the trend is similar"));
    assert!(!lab.out("R14/shorter.csv").exists());
    assert!(lab.read("R14/rows.csv").contains("\n2:2:2:2,worldcup98,reconfigured,4096,"));
}

#[test]
fn r15_watches_nodes() {
    let mut lab = Lab::new(false);
    let report = lab.run("R15").unwrap();
    keep(&lab.out("R15/figure.svg"), "R15.svg");
    assert_eq!(lab.runs.len(), 6);
    let rows = lab.read("R15/rows.csv");
    assert_eq!(rows.lines().next().unwrap(), "t_s,site,nodes_busy,configuration,burst");
    assert_eq!(rows.lines().count(), 1 + 6 * 3 * 100);
    assert!(rows.contains("\n0.100,a,2.570,rigid,512\n"));
    assert_eq!(
        report.checks.iter().map(|check| check.verdict()).collect::<Vec<_>>(),
        ["met", "met", "met", "met", "met"]
    );
    let text = lab.read("R15/report.md");
    assert!(text.contains("| over-provisioned | 6 at most | 6.00 | 6.00 |"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&lab.read("R15/result.json")).unwrap();
    assert_eq!(json["rows"][5]["over_time"].as_array().unwrap().len(), 100);
    assert!(lab.read("R15/figure.svg").contains("bursts of 8192"));
}

#[test]
fn a_failing_run_says_why_and_keeps_the_rows_before_it() {
    let mut lab = Lab::new(true);
    fs::write(lab.directory.path().join("fail-at-4096"), "").unwrap();
    let error = lab.run("R10").unwrap_err();
    assert!(matches!(error, Error::Failed { .. }));
    let error = error.to_string();
    assert!(error.starts_with("run 3-sites-4096-rigid: node n3: port in use; to repeat it: "), "{error}");
    assert!(error.ends_with("configs/3-sites-4096-rigid.toml --json"), "{error}");
    assert_eq!(lab.read("R10/rows.csv").lines().count(), 7);
    assert!(!lab.out("R10/report.md").exists());
}

#[test]
fn a_raised_stop_ends_it() {
    let mut lab = Lab::new(true);
    lab.options.stop.store(true, Ordering::Relaxed);
    assert!(matches!(lab.run("R10"), Err(Error::Interrupted)));
    assert_eq!(lab.runs, ["3-sites-512-rigid"]);
}

#[test]
fn an_unknown_experiment_lists_the_known() {
    let error = Lab::new(true).run("R99").unwrap_err().to_string();
    assert!(error.starts_with("no experiment \"R99\"; there are R10, R11"), "{error}");
}
