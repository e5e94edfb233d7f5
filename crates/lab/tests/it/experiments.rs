//! Whole experiments against a stand-in for the program.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sidelong_config::{ClusterFile, Configuration};
use sidelong_lab::{Error, Report, Result, RunOptions, Usage, Verdict};

struct Lab {
    directory: tempfile::TempDir,
    options: RunOptions,
    runs: Vec<String>,
}

impl Lab {
    /// Whose program does what `script` says.
    fn of(script: &str, quick: bool) -> Lab {
        let lab = Lab::new(quick);
        fs::write(lab.directory.path().join("script"), script).unwrap();
        lab
    }

    fn new(quick: bool) -> Lab {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("fake-sidelong");
        symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program.sh"), &program).unwrap();
        fs::write(directory.path().join("script"), include_str!("fake_up.sh")).unwrap();
        let out = directory.path().join("out");
        let options = RunOptions {
            out,
            quick,
            repeat: None,
            traces: None,
            program,
            // The machine that runs the tests is busy, which is not what they are about.
            usage: Usage::default,
            stop: Arc::new(AtomicBool::new(false)),
        };
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

    // The stand-in loses a quarter of a second a burst.
    assert_eq!(
        &lab.runs[..3],
        ["3-sites-512-rigid", "3-sites-512-reconfigured", "3-sites-512-over-provisioned"]
    );
    assert_eq!(lab.runs.len(), 36, "512 do not pay, and shorter bursts are not tried");

    has_columns(
        &lab,
        "R10",
        "repetition,sites,burst,configuration,requests_per_s,p50_ms,p99_ms,errors,moves,step_ms,nodes_busy,nodes_busy_max",
    );
    let rows = lab.read("R10/rows.csv");
    assert_eq!(rows.lines().count(), 1 + lab.runs.len());
    assert!(rows.contains("\n1,3:3:2,512,rigid,997.2,"), "{rows}");

    let json: serde_json::Value = serde_json::from_str(&lab.read("R10/result.json")).unwrap();
    assert_eq!(json["experiment"]["figure"], "Balaji et al. 2004, Figure 10");
    assert_eq!(json["rows"].as_array().unwrap().len(), lab.runs.len());
    assert_eq!(json["rows"][0]["configuration"], "rigid");
    assert!(json["machine"]["cores"].as_u64().unwrap() >= 1);
    assert_eq!(json["checks"].as_array().unwrap().len(), report.checks.len());
    assert_eq!(json["settings"]["node_rate"], 400.0);

    let svg = lab.read("R10/figure.svg");
    assert!(svg.starts_with("<svg") && svg.contains("16384") && svg.contains("over-provisioned"));

    let text = lab.read("R10/report.md");
    for part in [
        "# R10: throughput by burst length, one file of 1 KB (Balaji et al. 2004, Figure 10)",
        "| 3 sites, rigid, requests/s | about 26,000 | 997 |",
        "| 3 sites, over-provisioned / rigid | 1.96 | 2.33 |",
        "- Nodes 3:3:2: **it holds**. Reconfigured has 1.07 of rigid and\n  0.46 of over-provisioned at 512, 2.25 of rigid",
        "| 3 sites, bursts of 16384: reconfigured / rigid | at least 1.9 | 2.25 | met |",
        "| 4 sites, bursts of 512: reconfigured / rigid | at least 1.6 | 1.26 | MISSED |",
        "| 2:2:2:2 | 1024 | 2.560 | 22187 |",
        "InfiniBand",
        " run R10 --out ",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn repetitions_become_medians_with_intervals() {
    let mut lab = Lab::new(true);
    // Each run is a little faster than the one before.
    let script = include_str!("fake_up.sh").replace(
        "rate = burst /",
        "\"wc -l <\\\"'\"$(dirname \"$0\")\"'/ran\\\"\" | getline ran; rate = (1 + ran / 10000) * burst /",
    );
    fs::write(lab.directory.path().join("script"), format!("echo >>\"$(dirname \"$0\")/ran\"\n{script}"))
        .unwrap();
    lab.options.repeat = Some(6);
    let report = lab.run("R10").unwrap();
    keep(&lab.out("R10/figure.svg"), "R10-repeated.svg");
    assert_eq!(lab.runs.len(), 6 * 12);
    assert_eq!((&*lab.runs[0], &*lab.runs[12]), ("3-sites-512-rigid-1", "3-sites-512-rigid-2"));
    let check = &report.checks[3];
    let (low, high) = check.interval.unwrap();
    assert!(low <= check.measured.unwrap() && check.measured.unwrap() <= high && low < high, "{check:?}");
    assert_eq!(lab.read("R10/rows.csv").lines().count(), 1 + 6 * 12);
    let json: serde_json::Value = serde_json::from_str(&lab.read("R10/result.json")).unwrap();
    assert_eq!((&json["repeat"], &json["rows"][71]["repetition"]), (&6.into(), &6.into()));
    let text = lab.read("R10/report.md");
    assert!(text.contains("All runs were made 6 times") && text.contains(" --quick --repeat 6"), "{text}");
    let row = text.lines().find(|line| line.starts_with("| 512 (1.28 s) |")).unwrap();
    assert!(row.contains(" [") && row.contains("] |"), "{row}");
    assert!(lab.read("R10/figure.svg").contains("95 %"));
}

#[test]
fn a_figure_that_cannot_be_is_invalid() {
    let script = include_str!("fake_up.sh").replace("* 0.97;", "* 0.97 * (lost > 0 ? 3 : 1);");
    let mut lab = Lab::of(&script, true);
    let report = lab.run("R10").unwrap();
    assert_eq!(report.verdict, Verdict::Invalid);
    assert!(
        report.invalid[0].starts_with("3:3:2, 512 (1.28 s), reconfigured: requests/s is "),
        "{:?}",
        report.invalid
    );
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts[3..], ["INVALID"; 4]);
    let json: serde_json::Value = serde_json::from_str(&lab.read("R10/result.json")).unwrap();
    assert_eq!((&json["verdict"], &json["checks"][3]["verdict"]), (&"invalid".into(), &"invalid".into()));
    let text = lab.read("R10/report.md");
    assert!(text.contains("## What is invalid") && text.contains("| INVALID |"), "{text}");
    assert!(text.contains("**invalid**") && !text.contains("it holds"), "{text}");
    assert!(lab.read("R10/figure.svg").contains("INVALID, R10 ("), "the figure alone says it too");
}

#[test]
fn a_run_beside_other_work_is_invalid() {
    /// A machine of which others take half.
    fn busy() -> Usage {
        static SECONDS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let all = f64::from(10 * SECONDS.fetch_add(1, Ordering::Relaxed));
        Usage { all, processes: 0.7 * all, own: 0.2 * all, ..Usage::default() }
    }
    let mut lab = Lab::of(include_str!("fake_perf.sh"), true);
    lab.options.usage = busy;
    if !has_rdma() {
        let report = lab.run("R7").unwrap();
        assert_eq!(report.verdict, Verdict::Invalid);
        let why = "run latency-shm: other processes took 50 % of the CPU time, 10 % at most";
        assert_eq!(report.invalid[0], why);
        assert!(lab.read("R7/report.md").contains(why));
    }
    // What is simulated comes out alike.
    let mut lab = Lab::of(include_str!("fake_datacenter.sh"), true);
    lab.options.usage = busy;
    assert_eq!(lab.run("S2").unwrap().verdict, Verdict::Met);
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
    assert_eq!(cluster.baseline.configuration, Configuration::OverProvisioned);
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
    assert!(lab.read("R14/rows.csv").contains("\n1,2:2:2:2,4096,reconfigured,"));
}

#[test]
fn r15_watches_nodes() {
    let mut lab = Lab::new(false);
    let report = lab.run("R15").unwrap();
    keep(&lab.out("R15/figure.svg"), "R15.svg");
    assert_eq!(lab.runs.len(), 6);
    let rows = lab.read("R15/rows.csv");
    assert_eq!(rows.lines().count(), 1 + 6 * (1 + 100));
    assert!(rows.contains("\n1,3:3:2,512,rigid,0.1,,,,,,,2.570,\n"), "{rows}");
    assert_eq!(
        report.checks.iter().map(|check| check.verdict()).collect::<Vec<_>>(),
        ["met", "met", "met", "met", "met"]
    );
    let text = lab.read("R15/report.md");
    assert!(text.contains("| over-provisioned | 6 at most | 6.00 | 6.00 |"), "{text}");
    assert!(lab.read("R15/figure.svg").contains("bursts of 8192"));
}

#[test]
fn servers_of_another_make_beside_the_built_in_origin() {
    let mut lab = Lab::new(true);
    let report = lab.run("servers").unwrap();
    keep(&lab.out("servers/figure.svg"), "servers.svg");
    assert_eq!(lab.runs.len(), 6);
    assert_eq!(lab.runs[2..4], ["built-in-reconfigured", "gunicorn-reconfigured"]);
    let rows = lab.read("servers/rows.csv");
    assert!(rows.contains("\n1,reconfigured,gunicorn,"), "{rows}");
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["met", "MISSED", "met", "met"]);
    // The command that repeats a run has the servers.
    let config = lab.read("servers/configs/gunicorn-rigid.toml");
    assert!(config.contains(" --servers gunicorn --json\n"), "{config}");
    assert!(!lab.read("servers/configs/built-in-rigid.toml").contains("--servers"));
    let file = ClusterFile::load(&lab.out("servers/configs/gunicorn-rigid.toml")).unwrap();
    assert_eq!(file.nodes[0].service_time, Some(Duration::from_millis(20)));
}

#[test]
fn proxies_of_other_makes_led_and_by_themselves() {
    let mut lab = Lab::new(true);
    let report = lab.run("F1").unwrap();
    keep(&lab.out("F1/figure.svg"), "F1.svg");
    assert_eq!(lab.runs.len(), 15 + 4 * 10);
    assert_eq!(lab.runs[..3], ["bursts-2-nginx-own", "bursts-2-nginx-sidelong", "bursts-2-nginx-shared"]);
    assert!(lab.read("F1/configs/bursts-2-haproxy-own.toml").contains(" --front haproxy --by own --json\n"));
    assert!(!lab.read("F1/configs/slow-4-edge-sidelong.toml").contains("--front"));
    let file = ClusterFile::load(&lab.out("F1/configs/slow-4-nginx-own.toml")).unwrap();
    assert_eq!((file.nodes[0].slowdown, file.edges.len()), (Some(8.0), 4));
    let rows = lab.read("F1/rows.csv");
    // A fifth of 1000 requests/s is answered in time, of 400.
    assert!(rows.contains("\n1,overload,1,envoy,own,") && rows.contains(",0.5000,"), "{rows}");
    let verdict =
        |what: &str| report.checks.iter().find(|check| check.what.contains(what)).unwrap().verdict();
    // The stand-in serves all alike, and moves nodes where it may.
    assert_eq!(verdict("requests/s: nginx, controlled / Sidelong's edge"), "met");
    assert_eq!(verdict("equal servers, 1 proxy, p99: envoy, controlled / by itself"), "met");
    assert_eq!(verdict("one slow server, 4 proxies, requests/s: httpd, controlled / by itself"), "MISSED");

    // A proxy that is not here is named, and the others are measured.
    let absent = r#"case "$*" in *"--front httpd"*) echo "sidelong: --front: there is no httpd here" >&2; exit 2 ;; esac"#;
    let mut lab = Lab::of(&format!("{absent}\n{}", include_str!("fake_up.sh")), true);
    lab.run("F1").unwrap();
    assert_eq!(lab.read("F1/rows.csv").lines().count(), 1 + 12 + 4 * 8);
    assert!(lab.read("F1/report.md").contains("Not measured: --front: there is no httpd here."));
}

#[test]
fn a_day_by_configuration() {
    let mut lab = Lab::of(include_str!("fake_day.sh"), true);
    let report = lab.run("da").unwrap();
    keep(&lab.out("DA/figure.svg"), "DA.svg");
    assert_eq!(lab.runs, ["capacity", "rigid", "reconfigured", "over-provisioned"]);
    assert_eq!(report.checks.iter().map(|check| check.verdict()).collect::<Vec<_>>(), ["met", "met"]);
    assert!(lab.read("DA/rows.csv").contains("\n1,rigid,api,day,,960,192,0,,\n"));
    let text = lab.read("DA/report.md");
    for part in [
        "| rigid | 144 | 2880 | 576 | 80.00 | 0 | 0 |",
        "| reconfigured | 144 | 2880 | 0 | 100.00 | 0 | 40 |",
        "A node served 10 requests/s of the\nauction, 10 of files and 10 of api",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // 3.2 nodes of what one served: in pages for the auction, of which a person wants 12.3.
    let cluster = ClusterFile::load(&lab.out("DA/configs/reconfigured.toml")).unwrap().cluster().unwrap();
    let peak = |site: usize| cluster.sites[site].rates.iter().map(|rate| rate.per_s).fold(0.0, f64::max);
    assert!((peak(0) - 32.0 / 12.3).abs() < 1e-6 && (peak(2) - 32.0).abs() < 1e-6, "{}", peak(0));
}

#[test]
fn move_latency_from_rest_and_busy() {
    let mut lab = Lab::new(false);
    let report = lab.run("move-latency").unwrap();
    keep(&lab.out("move-latency/figure.svg"), "move-latency.svg");
    assert_eq!(lab.runs, ["3-sites-600-pause-100ms-reconfigured", "3-sites-600-reconfigured"]);
    assert_eq!(
        lab.read("move-latency/rows.csv"),
        "repetition,case,bursts,steps,p50_ms,p99_ms,max_ms,moves,requests_per_s,errors\n\
         1,rest,240,40,6.200,9.900,12.000,40,1164.0,0\n\
         1,busy,240,40,6.200,9.900,12.000,40,1164.0,0\n"
    );
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["met", "MISSED", "met"], "40 steps are few");

    let cluster =
        ClusterFile::load(&lab.out("move-latency/configs/3-sites-600-pause-100ms-reconfigured.toml"));
    let workload = cluster.unwrap().workload.unwrap();
    assert_eq!((workload.pause, workload.requests), (Duration::from_millis(100), Some(240 * 600)));

    let text = lab.read("move-latency/report.md");
    for part in [
        "# move-latency: load step to first request on a moved node (Sidelong's own)",
        "| load step to first request on a moved node, from rest: p50, ms | at most 10 | 6.20 | met |",
        "| busy: each burst follows at once | 240 | 40 | 6.20 | 9.90 | 12.00 | 40 |",
        "T = 2 ms, as seen every S = 1 ms",
        " run move-latency --out ",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&lab.read("move-latency/result.json")).unwrap();
    assert_eq!(json["rows"][0]["p50_ms"], 6.2);
    assert!(lab.read("move-latency/figure.svg").contains("each burst finds the cluster at rest"));
}

/// The columns that issue 4 gives M's experiments.
fn has_columns(lab: &Lab, id: &str, columns: &str) {
    let rows = lab.read(&format!("{id}/rows.csv"));
    assert_eq!(rows.lines().next().unwrap(), columns);
    assert!(rows.lines().all(|line| line.split(',').count() == columns.split(',').count()), "{rows}");
}

#[test]
fn mt1_by_other_work() {
    let mut lab = Lab::of(include_str!("fake_load.sh"), true);
    let report = lab.run("mt1").unwrap();
    keep(&lab.out("MT1/figure.svg"), "MT1.svg");
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["met", "met", "not measured"], "e-rdma-sync is refused");
    has_columns(
        &lab,
        "MT1",
        "repetition,persons,background,system,interaction,requests,errors,mean_ms,max_ms",
    );
    let text = lab.read("MT1/report.md");
    for part in [
        "# MT1: mean and longest response of the auction's interactions, by other work on the nodes (Vaidyanathan et al. 2006, Table 1)",
        "| Home | 3, 416; 3, 274; 3, 36; 3, 33; 2, 31 | 3, ",
        "longest responses, rdma-sync / socket-async, from 4 busy processes on: the median | at most 0.5 | 0.10 | met |",
        "| 80 | 0 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 | – | – | 1.00 | 1.00 |",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // The command that repeats a run has the persons, and the file what the lab adds.
    let config = lab.read("MT1/configs/80-4-rdma-sync.toml");
    assert!(
        config.contains(" and 4 busy processes ") && config.contains(" --demo auction --sessions 80 "),
        "{config}"
    );
    assert!(lab.read("MT1/configs/80-4-nginx.toml").contains(" --front nginx --json\n"));
}

#[test]
fn m7_by_exponent() {
    let mut lab = Lab::of(include_str!("fake_load.sh"), true);
    let report = lab.run("M7").unwrap();
    keep(&lab.out("M7/figure.svg"), "M7.svg");
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["met", "met", "met", "not measured"]);
    has_columns(&lab, "M7", "repetition,scheme,alpha,requests_per_s,errors");
    let cluster = ClusterFile::load(&lab.out("M7/configs/0.25-rdma-sync.toml")).unwrap().cluster().unwrap();
    assert_eq!((cluster.sites[1].name.as_str(), cluster.sites[1].alpha), ("files", Some(0.25)));
}

#[test]
fn m3_by_busy_threads_and_steps() {
    let mut lab = Lab::of(include_str!("fake_load.sh"), false);
    let report = lab.run("m3").unwrap();
    keep(&lab.out("M3/figure.svg"), "M3.svg");
    assert_eq!(lab.runs.len(), 7 * 4);
    assert_eq!(lab.runs[..2], ["1-socket-async", "1-socket-sync"]);
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["met", "met", "not measured", "met", "met", "met", "met"]);
    has_columns(
        &lab,
        "M3",
        "repetition,scheme,background_threads,samples,p50_us,p99_us,max_us,mean_us,unusable,steps,seen_p50_us,seen_p99_us,\
         seen_max_us,seen_mean_us,unseen,unclear",
    );
    let rows = lab.read("M3/rows.csv");
    assert!(
        rows.contains("\n1,socket-sync,64,1000,6440.000,12880.000,19320.000,6440.000,0,1000,50000.000,"),
        "{rows}"
    );
    assert_eq!(rows.lines().filter(|line| line.ends_with(",0,1")).count(), 4 * 4, "those with steps");
    let text = lab.read("M3/report.md");
    for part in [
        "# M3: time to read a node's load, by busy threads (Vaidyanathan et al. 2006, Figure 3)",
        "| socket-sync | increases linearly | 140.000 | 6440.000 | 46.00 | 140.000 | 6440.000 | 46.00 | **it holds** |",
        "by socket-sync / by rdma-sync, p99 at 64 threads | at least 20 | 2500.00 | met |",
        "- e-rdma-sync: e-rdma-sync is not available: the fake has no kernel.",
        "16 steps were left out",
        " run M3 --out ",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let svg = lab.read("M3/figure.svg");
    assert!(svg.contains("busy threads on the node") && svg.contains("rdma-sync"), "{svg}");
}

#[test]
fn m4_by_granularity() {
    let mut lab = Lab::of(include_str!("fake_load.sh"), false);
    let report = lab.run("M4").unwrap();
    keep(&lab.out("M4/figure.svg"), "M4.svg");
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["met", "met"]);
    has_columns(
        &lab,
        "M4",
        "repetition,scheme,granularity_ms,normalized_delay,kept,sampling,alone_ms,rounds",
    );
    assert_eq!(lab.read("M4/rows.csv").lines().count(), 1 + 6 * 4);
    let text = lab.read("M4/report.md");
    for part in [
        "| rdma-async | less than that | 1.1020 | 1.0036 | 1.0021 |",
        "The paper's order at 1 ms, socket-async, socket-sync, rdma-async, rdma-sync: **it holds**.",
        "| socket-async | 1 | 1.3020 | 1.0020 | 1.3000 | 500.0 | 3 |",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn m5_by_load() {
    let mut lab = Lab::of(include_str!("fake_load.sh"), true);
    let report = lab.run("M5").unwrap();
    keep(&lab.out("M5/figure.svg"), "M5.svg");
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["met", "met"]);
    has_columns(&lab, "M5", "repetition,scheme,load,samples,threads_mean,threads_max,cpu_mean,cpu_max");
    let text = lab.read("M5/report.md");
    for part in [
        "- threads, 64 threads: rdma-sync deviates least: **it holds**.",
        "- threads, 16 threads: rdma-sync deviates least: not measured.",
        "| socket-sync | 64 | 6.40 | 25.60 | 7.40 | 15.40 |",
        "A quick run",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn m6_by_cpu() {
    let mut lab = Lab::of(include_str!("fake_load.sh"), false);
    let report = lab.run("M6").unwrap();
    keep(&lab.out("M6/figure.svg"), "M6.svg");
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["not measured", "met"], "e-rdma-sync is refused");
    has_columns(&lab, "M6", "repetition,scheme,cpu,seen,most,samples,told");
    assert!(lab.read("M6/rows.csv").contains("\n5,rdma-sync,0,70,2,1000,1\n5,rdma-sync,1,5,1,1000,1\n"));
    let text = lab.read("M6/report.md");
    assert!(text.contains("| rdma-sync | the most | 375 |"), "{text}");
    assert!(text.contains("| socket-sync | few | 0 |"), "{text}");
}

#[test]
fn a3_to_a5_by_request() {
    let mut lab = Lab::of(include_str!("fake_admission.sh"), true);
    for (id, verdicts, parts) in [
        (
            "A3",
            &["met"; 4][..],
            ["| closed | none | 1125 | 250 | 250 | 250 | 1.0000 | 0 |", "| open | one-sided | "],
        ),
        (
            "A4",
            &["met"; 6][..],
            [
                "| closed | tcp | 0.502 | – | 37.7 | 40 | 156.0 | 40.0 | 40 | 156.0 |",
                "closed loop, mean streak of drops: tcp / one-sided",
            ],
        ),
        (
            "A5",
            // None of the requests that the others admit is in time.
            &["met", "met", "not measured", "not measured", "not measured", "not measured"][..],
            ["| tcp | 28 |", "| one-sided | 520 |"],
        ),
    ] {
        let report = lab.run(id).unwrap();
        keep(&lab.out(&format!("{id}/figure.svg")), &format!("{id}.svg"));
        assert_eq!(report.checks.iter().map(|check| check.verdict()).collect::<Vec<_>>(), verdicts, "{id}");
        let text = lab.read(&format!("{id}/report.md"));
        for part in parts.into_iter().chain(["0.5 of the 1000 requests/s", "A quick run"]) {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
    assert_eq!(lab.runs[2..5], ["capacity-3", "closed-400-none-1", "closed-400-tcp-1"]);
    assert!(lab.read("A3/rows.csv").contains("\n1,closed,400,one-sided,0.05,25,13,12,0,100.000,"));
    assert!(lab.read("A4/rows.csv").contains("\n2,open,400,tcp,1.15,25,5,20,0,160.000,"));
    assert!(lab.read("A5/rows.csv").contains("\n3,closed,520,none,all,1125,1125,0,0,250.000,"));
}

#[test]
fn m8_while_a_real_gmond_is_told() {
    let version = std::process::Command::new("gmond").arg("--version").output();
    if !version.is_ok_and(|version| version.status.success()) {
        writeln!(std::io::stderr(), "SKIPPED: m8: no gmond here; Debian's package ganglia-monitor has it")
            .unwrap();
        return;
    }
    let mut lab = Lab::of(include_str!("fake_load.sh"), true);
    let report = lab.run("M8").unwrap();
    keep(&lab.out("M8/figure.svg"), "M8.svg");
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["met"; 4]);
    has_columns(&lab, "M8", "repetition,scheme,granularity_ms,query,max_ms,p99_ms");
    assert!(lab.read("M8/rows.csv").contains("\n1,socket-async,1,Browse,250.000,125.000\n"));
    let cluster = ClusterFile::load(&lab.out("M8/configs/1ms-rdma-sync.toml")).unwrap().cluster().unwrap();
    assert_eq!(cluster.ganglia.period, Duration::from_millis(1));
    assert!(cluster.ganglia.gmond.is_some());
    let text = lab.read("M8/report.md");
    let row = "| socket-sync | SearchItemsInCategory | close to 250 ms at 1 and 4 ms | 250.0 | 60.0 |";
    assert!(text.contains(row), "{text}");
}

#[test]
fn m9_by_granularity() {
    let mut lab = Lab::of(include_str!("fake_load.sh"), false);
    let report = lab.run("M9").unwrap();
    keep(&lab.out("M9/figure.svg"), "M9.svg");
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["met"; 4]);
    has_columns(&lab, "M9", "repetition,scheme,granularity_ms,requests_per_s,errors");
    assert!(lab.read("M9/rows.csv").contains("\n1,rdma-sync,64,1100.0,0\n"));
    let cluster = ClusterFile::load(&lab.out("M9/configs/64-socket-sync-2.toml")).unwrap().cluster().unwrap();
    assert_eq!(cluster.nodes[0].service, sidelong_config::Service::Burn);
    assert_eq!(cluster.baseline.configuration, Configuration::Rigid);
    let text = lab.read("M9/report.md");
    for part in [
        "| rdma-sync over the best of the others at 64 ms, % | close to 25 | 37.5 |",
        "held to 0.15 of a CPU by a control group",
        "RUBiS",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn shares_that_cannot_be_had_are_named() {
    let script = include_str!("fake_load.sh").replacen(
        "if [ \"$1\" = up ]; then\n",
        "if [ \"$1\" = up ]; then\n\
         if grep -q cpu_share \"$3\"; then echo 'sidelong: no control group here' >&2; exit 2; fi\n",
        1,
    );
    let mut lab = Lab::of(&script, true);
    lab.run("M9").unwrap();
    let text = lab.read("M9/report.md");
    assert!(text.contains("held to shares of the machine: no control group here."), "{text}");
}

#[test]
fn what_a_machine_refuses_is_not_judged() {
    let refusing = include_str!("fake_load.sh").replace("= e-rdma-sync ]", "!= socket-sync ]");
    let mut lab = Lab::of(&refusing, true);
    for id in ["M3", "M4", "M5", "M6", "M9"] {
        let report = lab.run(id).unwrap();
        assert!(report.checks.iter().any(|check| check.verdict() == "not measured"), "{id}");
        let text = lab.read(&format!("{id}/report.md"));
        assert!(text.contains("- rdma-sync: ") && text.contains("not measured"), "{text}");
    }
}

/// Whether reports on operations would have verbs in them.
fn has_rdma() -> bool {
    fs::read_dir("/sys/class/infiniband").is_ok_and(|mut entries| entries.next().is_some())
}

#[test]
fn r5_by_sizes() {
    if has_rdma() {
        return;
    }
    let mut lab = Lab::of(include_str!("fake_perf.sh"), true);
    let report = lab.run("R5").unwrap();
    keep(&lab.out("R5/figure.svg"), "R5.svg");
    assert_eq!(lab.runs, ["latency-shm", "latency-tcp", "bandwidth-shm", "bandwidth-tcp"]);
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["met", "met", "met"]);
    has_columns(
        &lab,
        "R5",
        "repetition,kind,fabric,bytes,background,p50_us,p99_us,mean_us,mb_per_s,initiator_cpu_us,target_cpu_us",
    );
    assert_eq!(lab.read("R5/rows.csv").lines().count(), 1 + 4 * 21);
    let text = lab.read("R5/report.md");
    for part in [
        "# R5: read, by message size (Balaji et al. 2004, Figure 5)",
        "| 1 byte, RDMA by polling | 11.89 µs | no RDMA device |",
        "| 1 byte, sockets | 53.8 µs (IPoIB) | TCP 10.010 µs |",
        "| most bytes a second, RDMA | 839.1 MB/s | no RDMA device |",
        "there is no RDMA device",
        "Figures taken under emulation (soft-RoCE, a virtual machine) say nothing about hardware.",
        " run R5 --out ",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let svg = lab.read("R5/figure.svg");
    assert!(svg.contains("message size (bytes)") && svg.contains("256K"), "{svg}");
}

#[test]
fn r6_has_no_figures_of_the_paper_and_says_so() {
    if has_rdma() {
        return;
    }
    let mut lab = Lab::of(include_str!("fake_perf.sh"), true);
    lab.run("R6").unwrap();
    let text = lab.read("R6/report.md");
    assert!(text.contains("The paper's text gives no figures for send and receive"), "{text}");
    assert!(text.contains("not half a ping-pong"), "{text}");
}

#[test]
fn r9_and_a1_by_busy_threads() {
    if has_rdma() {
        return;
    }
    for (id, runs) in [("R9", 12), ("A1", 8)] {
        let mut lab = Lab::of(include_str!("fake_perf.sh"), true);
        let report = lab.run(id).unwrap();
        keep(&lab.out(&format!("{id}/figure.svg")), &format!("{id}.svg"));
        assert_eq!(lab.runs.len(), runs, "{:?}", lab.runs);
        let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
        assert_eq!(verdicts, ["met", "met"]);
        let text = lab.read(&format!("{id}/report.md"));
        assert!(text.contains("64 busy threads at the target / 1 | at most 1.2 | 1.00 | met |"), "{text}");
        assert!(text.contains("IPoIB"), "{text}");
        assert!(lab.read(&format!("{id}/figure.svg")).contains("busy threads on the target"));
    }
}

#[test]
fn a_perf_that_fails_says_why_and_how_to_repeat_it() {
    let mut lab = Lab::of("echo 'sidelong: no CPU to spare' >&2; exit 2", true);
    let error = lab.run("R7").unwrap_err().to_string();
    assert!(error.contains("no CPU to spare"), "{error}");
    assert!(error.contains("perf write --sizes all --quick --fabric shm --json"), "{error}");
}

/// Whether edge-overhead has the two CPUs that it needs.
fn has_two_cpus() -> bool {
    std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1)
}

#[test]
fn a_part_that_does_not_start_says_why() {
    if !has_two_cpus() {
        return;
    }
    let mut lab = Lab::of("echo \"node n1: cannot listen\" >&2; exit 2", true);
    let error = lab.run("edge-overhead").unwrap_err();
    if let Error::Absent { .. } = error {
        let _ = writeln!(std::io::stderr(), "SKIPPED: edge-overhead: {error}");
        return;
    }
    assert_eq!(error.to_string(), "node-plain does not serve: node n1: cannot listen");
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
    assert!(error.starts_with("no experiment \"R99\"; there are R5, R6"), "{error}");
}

#[test]
fn c4_judges_and_varies_what_does_not_come_out() {
    let mut lab = Lab::of(include_str!("fake_sim.sh"), false);
    let report = lab.run("C4").unwrap();
    keep(&lab.out("C4/figure.svg"), "C4.svg");
    // As many fail with 256 nodes as with 4, which is enough; all else is as published, so nothing is varied.
    assert!(report.checks.iter().all(|check| check.verdict() == "met"), "{:?}", report.checks);
    assert_eq!(lab.runs, ["sizes"]);
    let rows = lab.read("C4/rows.csv");
    assert!(rows.starts_with("repetition,nodes,protocol,requests,response_ms_mean,"), "{rows}");
    assert_eq!(rows.lines().count(), 1 + 4 * 7);

    let mut lab = Lab::of(&include_str!("fake_sim.sh").replace("0.01 : 0.05", "0.04 : 0.05"), false);
    let report = lab.run("C4").unwrap();
    assert_eq!(report.checks[2].verdict(), "MISSED");
    assert_eq!(lab.runs, ["sizes", "unknowns"]);
    let text = lab.read("C4/report.md");
    assert!(
        text.contains(
            "| reads that fail, ledger / the best of the published at the same size, at most | none | 0 of 12 |"
        ),
        "{text}"
    );
    assert!(
        text.contains("CPU of a request of 20, 60, 180 µs") && text.contains("| all | 12 of 12 |"),
        "{text}"
    );

    let script = include_str!("fake_sim.sh").replace("0.01 : 0.05", "0.04 : 0.05");
    let mut lab = Lab::of(&script, true);
    lab.run("C4").unwrap();
    assert_eq!(lab.runs, ["sizes"], "a quick run varies nothing");
    let text = lab.read("C4/report.md");
    assert!(text.contains("Left out by `--quick`") && !text.contains("| 0 of 0 |"), "{text}");
}

#[test]
fn c1_takes_the_logs_that_it_is_given() {
    let mut lab = Lab::of(include_str!("fake_sim.sh"), true);
    let report = lab.run("C1").unwrap();
    assert_eq!(lab.runs, ["worldcup98-sample"]);
    assert!(report.checks.iter().all(|check| check.verdict() == "not measured"));
    assert!(lab.read("C1/report.md").contains("\nNothing that would tell was measured.\n"));

    let traces = lab.directory.path().join("traces");
    fs::create_dir(&traces).unwrap();
    lab.options.traces = Some(traces.clone());
    fs::write(traces.join("README.md"), "").unwrap();
    let error = lab.run("C1").unwrap_err().to_string();
    assert!(error.contains("no log lies in it"), "{error}");
    for name in ["a b.log", "c.clf.zst", "d.log", "COPYRIGHT_HP.txt"] {
        fs::write(traces.join(name), "").unwrap();
    }
    lab.runs.clear();
    let report = lab.run("C1").unwrap();
    assert_eq!(lab.runs, ["worldcup98-sample", "a-b.log", "c.clf.zst"]);
    assert!(report.checks.iter().all(|check| check.verdict() == "met"), "{:?}", report.checks);
    assert!(lab.read("C1/configs/a-b.log.toml").contains("a b.log"));
    assert!(lab.read("C1/rows.csv").contains("\n1,c.clf.zst,ledger,80000,1.0000,1.0000,9.0000,201.0,"));
}

#[test]
fn s1_holds_each_simulated_point_against_the_live_one() {
    let both = |sim: &str| {
        let up = include_str!("fake_up.sh");
        format!("if [ \"$1\" = sim ]; then\n{sim}\nelse\n{up}\nfi\n")
    };
    let mut lab = Lab::of(&both(include_str!("fake_datacenter.sh")), true);
    let report = lab.run("S1").unwrap();
    keep(&lab.out("S1/figure.svg"), "S1.svg");
    assert!(report.checks.iter().all(|check| check.verdict() == "met"), "{:?}", report.checks);
    assert_eq!(lab.runs.len(), 1 + 2 * 2 * (3 + 1));
    assert_eq!((&*lab.runs[0], &*lab.runs[4]), ("path", "sim-3-sites-512"));
    let path = lab.read("S1/configs/path.toml");
    assert!(path.contains("clients_per_edge = 1"), "nobody waits: {path}");
    // What the stand-in takes of a request's time for the path goes to the simulator as it is.
    let told = lab.read("S1/configs/sim-3-sites-512.toml");
    assert!(
        told.contains("\nsites = 3\n")
            && told.contains("\nburst = 512\n")
            && told.contains("\nasked = 4608\n")
    );
    let p50 = lab
        .read("S1/runs/path.json")
        .split("\"p50_ms\":")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .to_owned();
    let path_ms = p50.parse::<f64>().unwrap() - 5.0;
    assert!(told.contains(&format!("\npath_ms = {path_ms:.3}\n")), "{told}");
    let rows = lab.read("S1/rows.csv");
    assert!(rows.starts_with(
        "repetition,configuration,burst,sites,requests_per_s,sim_requests_per_s,p50_ms,sim_p50_ms,"
    ));
    assert_eq!(rows.lines().count(), 1 + 1 + 12);
    let text = lab.read("S1/report.md");
    assert!(text.contains("| rigid | 512 | 3:3:2 | 997 | 1028 | 1.031 |"), "{text}");

    let off = include_str!("fake_datacenter.sh").replace("2.57 : 2", "2.1 : 2");
    let mut lab = Lab::of(&both(&off), true);
    let report = lab.run("S1").unwrap();
    assert_eq!(
        report.checks.iter().map(|check| check.verdict()).collect::<Vec<_>>(),
        ["MISSED", "met", "met", "met"]
    );
}

#[test]
fn s2_judges_our_protocol_alone() {
    let mut lab = Lab::of(include_str!("fake_datacenter.sh"), true);
    let report = lab.run("S2").unwrap();
    keep(&lab.out("S2/figure.svg"), "S2.svg");
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, ["met", "met", "met", "not measured", "met"], "{:?}", report.checks);
    assert_eq!(lab.runs, ["nodes-8", "nodes-64", "nodes-512"]);
    let rows = lab.read("S2/rows.csv");
    assert!(
        rows.starts_with(
            "repetition,nodes,reconfig_protocol,moves,thrash,floor_violations,below_floor_ms,time_to_balance_ms,"
        ),
        "{rows}"
    );
    assert!(rows.contains("\n1,8,lease,40,0,0,") && rows.contains("\n1,8,paper,40,5,5,"), "{rows}");
    let text = lab.read("S2/report.md");
    assert!(text.contains("| 64 | paper | 320 | 5 | 5 |") && text.contains("| 5 | 15 |"), "{text}");
}

#[test]
fn l1_has_what_is_published_beside_what_is_simulated_and_live() {
    let mut lab = Lab::of(include_str!("fake_sim.sh"), true);
    let report = lab.run("L1").unwrap();
    keep(&lab.out("L1/figure.svg"), "L1.svg");
    assert_eq!(
        lab.runs,
        [
            "nodes-4",
            "nodes-4-live",
            "nodes-16",
            "nodes-16-live",
            "worldcup98-sample",
            "worldcup98-sample-live"
        ]
    );
    // One trace is not two; all else is as published.
    let verdicts: Vec<_> = report.checks.iter().map(|check| check.verdict()).collect();
    assert_eq!(verdicts, [&["met"; 3][..], &["not measured"; 2], &["met"; 10]].concat());
    let text = lab.read("L1/report.md");
    for line in [
        "| C1, live: response time / RPC's on two traces, ledger | at most 0.5 | – | not measured |",
        "| C3 | throughput / RPC's, mean over the published protocols and sizes | about 2 | 2.00 | 2.00 | 2.00 |",
        "| C4 | reads that fail with 16 nodes / with 4, lazy | above 1 | 1.00 | 1.00 | 1.00 |",
        "| 16 nodes | lazy | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 | 200 | 200 | 200 | 30.0 | 80 |",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(lab.read("L1/configs/nodes-16-live.toml").contains("objects = 40_000"));
    assert!(lab.read("L1/rows.csv").contains("\n1,16,lazy,live,80000,1.0000,1.0000,9.0000,200.0,"));
}
