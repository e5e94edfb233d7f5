//! Whole sweeps, as the program runs them.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use sidelong_sim::config::Config;
use sidelong_sim::sweep::{Options, run};
use sidelong_sim::{Error, compare};

const SMALL: &str = "
[workload]
requests = 4_000
objects = 500
[cluster]
memory_mb = 0.5
references_max = 200
nodes = [3, 5]
protocol = [\"rpc\", \"lazy\", \"aggressive\", \"sender\", \"receiver\", \"accumulated\", \"ledger\"]
";

fn config(sets: &[&str]) -> Config {
    let sets: Vec<_> = sets.iter().map(|set| (*set).to_owned()).collect();
    Config::parse(SMALL, "small.toml", Path::new(""), &sets).unwrap()
}

fn sweep(config: &Config, out: &Path, threads: usize) -> Result<usize, Error> {
    let stop = AtomicBool::new(false);
    let mut ran = 0;
    run(config, &Options { out, threads, stop: &stop }, &mut |progress| {
        ran += usize::from(!progress.last.is_empty());
    })?;
    Ok(ran)
}

fn written(out: &Path) -> Vec<String> {
    ["rows.csv", "result.json", "report.md", "figure.svg"]
        .map(|name| fs::read_to_string(out.join(name)).unwrap())
        .into()
}

#[test]
fn the_same_seed_is_the_same_bytes_on_any_number_of_threads() {
    let directory = tempfile::tempdir().unwrap();
    let (one, three) = (directory.path().join("one"), directory.path().join("three"));
    assert_eq!(sweep(&config(&["seed=1,2"]), &one, 1).unwrap(), 28);
    assert_eq!(sweep(&config(&["seed=1,2"]), &three, 3).unwrap(), 28);
    assert_eq!(written(&one), written(&three));
    let rows = &written(&one)[0];
    assert_eq!(rows.lines().count(), 29);
    assert!(rows.starts_with("seed,nodes,protocol,requests,response_ms_mean,"), "{rows}");

    let other = directory.path().join("other");
    sweep(&config(&["seed=3"]), &other, 2).unwrap();
    let told = compare(&one, &other).unwrap();
    assert_eq!(told.lines().filter(|line| line.starts_with("nodes ")).count(), 14, "{told}");
    assert!(compare(&one, directory.path()).is_err());
}

#[test]
fn what_was_interrupted_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (whole, part) = (directory.path().join("whole"), directory.path().join("part"));
    sweep(&config(&[]), &whole, 2).unwrap();

    let stop = AtomicBool::new(false);
    let options = Options { out: &part, threads: 1, stop: &stop };
    let stopped = run(&config(&[]), &options, &mut |progress| {
        stop.store(progress.done >= 5, std::sync::atomic::Ordering::Relaxed);
    });
    let Err(Error::Interrupted { done, total: 14, .. }) = stopped else { panic!("{stopped:?}") };
    assert!((5..14).contains(&done));
    assert!(!part.join("rows.csv").exists());
    let missing = fs::read_to_string(part.join("missing.csv")).unwrap();
    assert_eq!(missing.lines().count(), 14 - done + 1);
    assert!(missing.starts_with("seed,nodes,protocol\n") && missing.ends_with("1,5,ledger\n"), "{missing}");
    // The last line was cut off at the interruption, another one by a disk that was full for a while.
    let runs = fs::read_to_string(part.join("runs.csv")).unwrap();
    let mut lines: Vec<&str> = runs.lines().collect();
    let cut = &lines[2][..lines[2].len() / 2];
    lines[2] = cut;
    let runs = lines.join("\n");
    fs::write(part.join("runs.csv"), &runs[..runs.len() - 9]).unwrap();
    assert_eq!(sweep(&config(&[]), &part, 2).unwrap(), 14 - done + 2);
    assert_eq!(written(&whole), written(&part));
    assert!(!part.join("missing.csv").exists());
    // Everything is there, so nothing runs again.
    assert_eq!(sweep(&config(&[]), &part, 2).unwrap(), 0);
    // Results of another configuration are not mixed in.
    let error = sweep(&config(&["memory_mb=1"]), &part, 2).unwrap_err().to_string();
    let said = "another configuration, in which cluster.memory_mb is 0.5 and not 1; choose another --out";
    assert!(error.contains(said), "{error}");
}

#[test]
fn a_directory_is_for_the_runs_that_are_asked_for_however_they_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let (out, fresh) = (directory.path().join("out"), directory.path().join("fresh"));
    // A run that failed before it had a result leaves nothing to keep.
    let few = ["nodes=3", "protocol=lazy"];
    let empty = directory.path().join("empty.log");
    fs::write(&empty, "").unwrap();
    let trace = format!("trace={}", empty.display());
    sweep(&config(&["kind=trace", &trace, few[0], few[1]]), &out, 1).unwrap_err();
    assert!(out.join("config.toml").exists());
    assert_eq!(sweep(&config(&few), &out, 1).unwrap(), 1);
    // One more line in the file, and a number written differently, mean the same.
    let sets: Vec<_> = few.iter().map(|set| (*set).to_owned()).collect();
    let again = SMALL.replace("= 0.5", "= 5e-1");
    let again = Config::parse(&format!("# again\n{again}"), "./small.toml", Path::new(""), &sets).unwrap();
    assert_eq!(sweep(&again, &out, 1).unwrap(), 0);
    sweep(&again, &fresh, 1).unwrap();
    assert_eq!(written_but_figure(&out), written_but_figure(&fresh));

    // No other process writes there meanwhile.
    let stop = AtomicBool::new(false);
    let options = Options { out: &out, threads: 1, stop: &stop };
    let mut refused = String::new();
    run(&config(&few), &options, &mut |_| {
        refused = sweep(&config(&few), &out, 1).unwrap_err().to_string();
    })
    .unwrap();
    assert!(refused.contains("in use by another run"), "{refused}");
}

fn written_but_figure(out: &Path) -> Vec<String> {
    ["rows.csv", "result.json", "report.md"].map(|name| fs::read_to_string(out.join(name)).unwrap()).into()
}

#[test]
fn results_that_differ_in_one_field_are_compared_by_it() {
    let directory = tempfile::tempdir().unwrap();
    let result = |name: &str, sets: &[&str]| {
        let out = directory.path().join(name);
        sweep(&config(sets), &out, 2).unwrap();
        out
    };
    // One protocol each, which are compared.
    let lazy = result("lazy", &["protocol=lazy", "seed=1,2,3"]);
    let ledger = result("ledger", &["protocol=ledger", "seed=1,2,3"]);
    let told = compare(&lazy, &ledger).unwrap();
    assert!(told.contains("cluster.protocol: first lazy; second ledger\n\n"), "{told}");
    let points: Vec<_> = told.lines().filter(|line| line.starts_with("nodes ")).collect();
    assert_eq!(points, ["nodes 3", "nodes 5"], "{told}");
    let failures: Vec<_> = told.lines().filter(|line| line.contains("read_failure_rate")).collect();
    assert!(failures.iter().all(|line| line.ends_with(" *")), "{told}");
    assert!(told.ends_with("* not by chance, with 95 % confidence over the seeds\n"), "{told}");
    assert!(!compare(&lazy, &lazy).unwrap().contains('*'));

    // A field that one of them sweeps distinguishes its points; the other is one of these.
    let memory = result("memory", &["protocol=ledger", "nodes=3", "seed=4,5", "memory_mb=0.25,0.5"]);
    let told = compare(&memory, &ledger).unwrap();
    assert!(told.contains("cluster.memory_mb: first 0.25, 0.5; second 0.5\n"), "{told}");
    let points: Vec<_> = told.lines().filter(|line| line.starts_with("nodes ")).collect();
    assert_eq!(points, ["nodes 3, protocol ledger, memory_mb 0.5"], "{told}");
    assert!(told.contains(&format!("no match in {}: 1 point of {}\n", ledger.display(), memory.display())));
    assert!(told.contains(&format!("no match in {}: 1 point of {}\n", memory.display(), ledger.display())));

    fs::remove_file(memory.join("rows.csv")).unwrap();
    let error = compare(&memory, &ledger).unwrap_err().to_string();
    assert!(error.contains("run the sweep to its end"), "{error}");
}

#[test]
fn traces_have_their_times_and_zipf_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let sets = ["kind=sample", "arrivals=trace", "speed=100", "nodes=4", "protocol=ledger", "requests=12000"];
    sweep(&config(&sets), &directory.path().join("trace"), 1).unwrap();
    let error = sweep(&config(&["arrivals=trace"]), &directory.path().join("zipf"), 1).unwrap_err();
    assert!(matches!(error, Error::NoTimes), "{error}");
    let sets = ["kind=trace", "trace=not-there.log"];
    let error = sweep(&config(&sets), &directory.path().join("none"), 1).unwrap_err().to_string();
    assert!(error.contains("not-there.log"), "{error}");
}

const DATA_CENTER: &str = "
[run]
model = \"reconfig\"
[cluster]
nodes = [8, 24]
[sites]
floor = 1
demand = \"steps\"
steps = 3
step_ms = 120
[reconfig]
reconfig_protocol = [\"lease\", \"paper\"]
crash_ms = 100
lease_ms = 10
";

#[test]
fn a_data_center_is_the_same_bytes_on_any_number_of_threads_too() {
    let center = |sets: &[&str]| {
        let sets: Vec<_> = sets.iter().map(|set| (*set).to_owned()).collect();
        Config::parse(DATA_CENTER, "dc.toml", Path::new(""), &sets)
    };
    let directory = tempfile::tempdir().unwrap();
    let (one, three) = (directory.path().join("one"), directory.path().join("three"));
    assert_eq!(sweep(&center(&["seed=1,2,3"]).unwrap(), &one, 1).unwrap(), 12);
    assert_eq!(sweep(&center(&["seed=1,2,3"]).unwrap(), &three, 3).unwrap(), 12);
    assert_eq!(written(&one), written(&three));
    let rows = &written(&one)[0];
    assert!(rows.starts_with("seed,nodes,reconfig_protocol,requests,requests_per_s,"), "{rows}");
    let seeds: Vec<_> = rows.lines().filter(|row| row.contains(",8,lease,")).collect();
    assert!(seeds.len() == 3 && seeds[0][1..] != seeds[1][1..], "seeds differ: {seeds:?}");
    let said = fs::read_to_string(one.join("config.toml")).unwrap();
    assert!(said.contains("crash_ms = 100  # dc.toml:13") && !said.contains("[hardware]"), "{said}");

    // Only results of the same model are compared.
    let cache = directory.path().join("cache");
    sweep(&config(&["nodes=3", "protocol=rpc"]), &cache, 1).unwrap();
    let error = compare(&one, &cache).unwrap_err().to_string();
    assert!(error.contains("results of different models cannot be compared"), "{error}");
    assert!(compare(&one, &three).unwrap().contains("floor_violations"));
}

#[test]
fn a_run_that_cannot_be_is_refused_before_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let config = Config::parse(DATA_CENTER, "dc.toml", Path::new(""), &["floor=1,2,9".to_owned()]).unwrap();
    let error = sweep(&config, &out, 1).unwrap_err().to_string();
    let said = "--set floor: floor = 9: 3 sites are guaranteed more than the 8 nodes";
    assert!(error == said && !out.exists(), "{error}");
    let text = DATA_CENTER.replace("floor = 1", "floor = 3");
    let error = sweep(&Config::parse(&text, "dc.toml", Path::new(""), &[]).unwrap(), &out, 1).unwrap_err();
    assert!(error.to_string().starts_with("dc.toml:7: floor = 3: "), "{error}");
}

#[test]
fn a_field_of_the_other_model_is_refused() {
    let parse = |text: &str, set: &str| {
        let error = Config::parse(text, "a.toml", Path::new(""), &[set.to_owned()]).unwrap_err();
        error.to_string()
    };
    let error = parse(DATA_CENTER, "memory_mb=8");
    assert!(
        error.starts_with("--set memory_mb: cluster.memory_mb does not belong to the model reconfig"),
        "{error}"
    );
    let error = parse("\n[sites]\nfloor = 2\n", "nodes=8");
    assert!(error.starts_with("a.toml:3: sites.floor does not belong to the model cache"), "{error}");
    assert!(parse("[run]\nmodel = [\"cache\", \"reconfig\"]\n", "nodes=8").contains("cannot be swept"));
}

#[test]
fn a_figure_has_a_line_for_each_of_what_was_swept_besides() {
    let directory = tempfile::tempdir().unwrap();
    let (drawn, bare) = (directory.path().join("drawn"), directory.path().join("bare"));
    sweep(&config(&["nodes=3,6", "protocol=lazy,ledger"]), &drawn, 2).unwrap();
    let svg = fs::read_to_string(drawn.join("figure.svg")).unwrap();
    for text in ["Simulated, by nodes", "requests/s", "lazy", "ledger"] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(fs::read_to_string(drawn.join("report.md")).unwrap().contains("](figure.svg)"));
    sweep(&config(&["nodes=3", "protocol=lazy,ledger"]), &bare, 2).unwrap();
    assert!(!bare.join("figure.svg").exists());
    let report = fs::read_to_string(bare.join("report.md")).unwrap();
    assert!(report.contains("There is no figure: no field was swept in numbers."), "{report}");
}
