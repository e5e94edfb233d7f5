//! The commands that need no cluster: trace, config, lab list, and help for all.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::support::{Cluster, Running, eventually, run, run_lab};

/// The WorldCup98 records that come with the project.
fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/worldcup98/wc_day50_4.first10000.bin")
}

fn trace_info(file: &Path, more: &[&str]) -> crate::support::Done {
    run_lab([&["trace", "info", file.to_str().unwrap()], more].concat())
}

#[test]
fn trace_info_says_what_a_log_holds() {
    let table = trace_info(&sample(), &[]).succeeded();
    let row = |name: &str| {
        let line =
            table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {table}"));
        line[name.len()..].trim().to_owned()
    };
    assert_eq!(row("requests "), "10000");
    assert_eq!(row("broken lines"), "0");
    assert_eq!(row("format"), "wc98");
    assert!(row("Zipf alpha, maximum likelihood").parse::<f64>().unwrap() > 0.5, "{table}");

    let figures = trace_info(&sample(), &["--json"]).json();
    assert_eq!(figures["requests"], 10_000);
    for key in ["objects", "clients", "bytes", "span_s", "rate_peak"] {
        assert!(figures[key].as_u64().unwrap() > 0, "{key} of {figures}");
    }
    for key in ["rate_mean", "zipf_alpha_mle", "zipf_alpha_lsq", "dispersion_1s"] {
        assert!(figures[key].as_f64().unwrap() > 0.0, "{key} of {figures}");
    }
    assert_eq!(row("distinct objects"), figures["objects"].to_string());
    assert_eq!(row("bytes"), figures["bytes"].to_string());
    assert_eq!(row("clients"), figures["clients"].to_string());
}

#[test]
fn a_trace_that_is_converted_holds_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let expected = trace_info(&sample(), &["--json"]).json();
    // By the name of the file, by option, and from one to the next.
    let mut from = sample();
    for (name, more) in [
        ("a.slt", &[][..]),
        ("b.csv", &[][..]),
        ("c", &["--format", "csv"][..]),
        ("d.trace", &["--format", "slt"][..]),
    ] {
        let to = directory.path().join(name);
        let arguments = ["trace", "convert", from.to_str().unwrap(), to.to_str().unwrap()];
        let said = run_lab([&arguments[..], more].concat()).succeeded();
        assert!(said.starts_with("10000 requests in "), "{said}");
        assert_eq!(trace_info(&to, &["--json"]).json(), expected, "{name}");
        from = to;
    }
    assert!(trace_info(&from, &[]).succeeded().contains("slt"));

    let to = directory.path().join("e.oracleGeneral");
    run_lab(["trace", "convert", from.to_str().unwrap(), to.to_str().unwrap()]).succeeded();
    assert_eq!(std::fs::metadata(&to).unwrap().len(), 240_000);
    let figures = trace_info(&to, &["--json"]).json();
    assert_eq!((&figures["objects"], &figures["bytes"]), (&expected["objects"], &expected["bytes"]));

    let line = run_lab(["trace", "convert", from.to_str().unwrap(), "x.clf", "--format", "clf"]).refused();
    assert!(line.contains("slt, oracleGeneral or csv"), "{line}");
}

#[test]
fn options_say_what_a_file_holds_that_does_not_say_so_itself() {
    let directory = tempfile::tempdir().unwrap();
    let [keys, to, columns] =
        ["keys.bin", "keys.slt", "requests"].map(|name| directory.path().join(name).display().to_string());
    let bytes: Vec<u8> = (0..3000u32).flat_map(|number| (number % 1000).to_be_bytes()).collect();
    std::fs::write(&keys, bytes).unwrap();
    let line = trace_info(Path::new(&keys), &[]).refused();
    assert!(line.contains("key32"), "{line}");
    let figures = trace_info(Path::new(&keys), &["--json", "--format", "key32"]).json();
    assert_eq!((&figures["requests"], &figures["objects"]), (&3000.into(), &1000.into()));
    run_lab(["trace", "convert", &keys, &to, "--from-format", "key32"]).succeeded();
    assert_eq!(trace_info(Path::new(&to), &["--json"]).json(), figures);

    std::fs::write(&columns, "a 1000 7\nb 1500 8\na 2250 7\n").unwrap();
    let line = trace_info(Path::new(&columns), &[]).refused();
    assert!(line.contains("time=1,object=2,size=3"), "{line}");
    let said = ["--json", "--columns", "time=2,object=1,size=3,unit=ms"];
    let figures = trace_info(Path::new(&columns), &said).json();
    assert_eq!((&figures["objects"], &figures["bytes"]), (&2.into(), &22.into()));

    let table = run_lab(["trace", "info", &to, &to]).succeeded();
    assert_eq!(table.matches("keys.slt:\n").count(), 2, "one after the other: {table}");
}

#[test]
fn a_trace_that_cannot_be_read_or_written_is_named() {
    let line = trace_info(Path::new("/nowhere/access.log"), &[]).refused();
    assert!(line.contains("/nowhere/access.log") && line.contains("No such file"), "{line}");
    let line = trace_info(&sample(), &["--format", "xls"]).refused();
    assert!(line.contains("xls") && line.contains("wc98") && line.contains("clf"), "{line}");
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (from, to) = (sample().display().to_string(), at("x.slt.gz"));
    for wrong in [["trace", "convert", &from, &to], ["trace", "synth", &to, "--requests=10"]] {
        let line = run_lab(wrong).refused();
        assert!(line.contains("x.slt.gz") && line.contains(".slt, .oracleGeneral or .csv"), "{line}");
    }
    // Nor does one replace itself.
    let [trace, symbolic, hard] = ["x.csv", "symbolic.csv", "hard.csv"].map(at);
    run_lab(["trace", "synth", &trace, "--requests", "10"]).succeeded();
    std::os::unix::fs::symlink(&trace, &symbolic).unwrap();
    std::fs::hard_link(&trace, &hard).unwrap();
    let text = std::fs::read(&trace).unwrap();
    for to in [&trace, &symbolic, &hard] {
        let line = run_lab(["trace", "convert", &trace, to]).refused();
        assert!(line.contains(to) && line.contains("write another file"), "{line}");
        assert_eq!(&std::fs::read(to).unwrap(), &text);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3, "nothing is left of the tries");
}

#[test]
fn a_synthetic_trace_is_what_was_asked_for_and_the_same_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let synth = |name: &str, more: &[&str]| {
        let path = directory.path().join(name);
        let arguments =
            ["trace", "synth", path.to_str().unwrap(), "--requests", "20000", "--objects", "1000"];
        run_lab([&arguments[..], more].concat()).succeeded();
        path
    };
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    let calm = synth("calm.slt", &["--alpha", "0.8", "--rate", "100"]);
    assert_eq!(bytes(&calm), bytes(&synth("again.slt", &["--alpha", "0.8", "--rate", "100"])));
    assert_ne!(bytes(&calm), bytes(&synth("other.slt", &["--alpha", "0.8", "--rate", "100", "--seed", "2"])));
    let calm = trace_info(&calm, &["--json"]).json();
    assert_eq!(calm["requests"], 20_000);
    assert!((calm["zipf_alpha_mle"].as_f64().unwrap() - 0.8).abs() < 0.05, "{calm}");
    let bursty = synth("bursty.csv", &["--rate", "100", "--bursts", "b-model:0.8", "--sizes", "fixed:100"]);
    let bursty = trace_info(&bursty, &["--json"]).json();
    assert_eq!(bursty["bytes"], 2_000_000);
    let dispersion = |figures: &serde_json::Value| figures["dispersion_1s"].as_f64().unwrap();
    assert!(dispersion(&bursty) > 5.0 * dispersion(&calm), "{bursty} {calm}");

    for (option, value, said) in [
        ("--sizes", "big", "surge[:MAX]"),
        ("--bursts", "b-model:2", "bias = 2"),
        ("--rate", "0", "rate = 0"),
    ] {
        let path = directory.path().join("refused.slt");
        let line = run_lab(["trace", "synth", path.to_str().unwrap(), option, value]).refused();
        assert!(line.contains(said) && !path.exists(), "{line}");
    }
}

#[test]
fn a_trace_that_is_interrupted_leaves_no_half_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let names = || std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let path = directory.path().join("endless.slt");
    let to = path.to_str().unwrap();
    let synth =
        Running::start_lab(["trace", "synth", to, "--requests", "1000000000000", "--rate", "1000000"]);
    eventually("it writes", || names().any(|name| name.to_string_lossy().ends_with(".part")));
    synth.signal(Signal::INT);
    let done = synth.finish();
    assert_eq!((done.code, names().count()), (Some(130), 0), "{done:?}");
    assert_eq!(done.err, format!("sidelong: interrupted: {to} is not written\n"));

    // A trace of 1 TiB, as soon as it is open.
    let zeros = directory.path().join("zeros");
    std::fs::File::create(&zeros).unwrap().set_len(1 << 40).unwrap();
    let info = Running::start_lab(["trace", "info", "--format", "wc98", zeros.to_str().unwrap(), "another"]);
    let files = format!("/proc/{}/fd", info.pid().as_raw_nonzero());
    eventually("it reads", || {
        let mut open = std::fs::read_dir(&files)
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        open.any(|file| file == zeros)
    });
    info.signal(Signal::INT);
    let done = info.finish();
    let zeros = zeros.display();
    let expected =
        format!("sidelong: interrupted: {zeros} was not read to its end, and 1 more were not begun\n");
    assert_eq!((done.code, done.err), (Some(130), expected));
}

#[test]
fn the_demo_file_is_usable_as_it_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cluster.toml");
    std::fs::write(&path, run(["config", "demo"]).succeeded()).unwrap();
    let said = run(["config", "check", path.to_str().unwrap()]).succeeded();
    assert!(said.contains("3 sites, 8 nodes, 2 edges, reconfigured"), "{said}");
    assert!(said.contains("alpha: 3 (floor 1): n1 n2 n3"), "{said}");
    assert!(said.contains("gamma: 2 (floor 1): n7 n8"), "{said}");
}

#[test]
fn a_check_says_what_is_promised() {
    let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 1)]);
    cluster.file.sites[0].response_p99 = Some(std::time::Duration::from_millis(50));
    cluster.file.sites[1].queue_max = Some(std::time::Duration::from_micros(2_500));
    let alpha = &mut cluster.file.sites[0];
    (alpha.ceiling, alpha.priority, alpha.share) = (Some(2), 3, 0.5);
    let said = run(["config", "check", cluster.config().to_str().unwrap()]).succeeded();
    let alpha = "alpha: 2 (floor 1, ceiling 2, priority 3, share 0.5, p99 at most 50 ms): n1 n2";
    assert!(said.contains(alpha), "{said}");
    assert!(said.contains("beta: 1 (floor 1, at most 2.5 ms in a queue): n3"), "{said}");
}

#[test]
fn every_command_has_help() {
    const OURS: [&[&str]; 8] = [
        &[],
        &["up"],
        &["top"],
        &["node"],
        &["edge"],
        &["config"],
        &["config", "demo"],
        &["config", "check"],
    ];
    const LAB: [&[&str]; 9] = [
        &[],
        &["list"],
        &["run"],
        &["trace"],
        &["trace", "info"],
        &["trace", "convert"],
        &["trace", "synth"],
        &["perf"],
        &["perf", "serve"],
    ];
    let ours = OURS.map(|command| (command, run([command, &["--help"]].concat())));
    let lab = LAB.map(|command| (command, run_lab([command, &["--help"]].concat())));
    for (command, help) in ours.into_iter().chain(lab) {
        let help = help.succeeded();
        let about = help.lines().next().unwrap();
        assert!(about.len() > 10 && !about.starts_with("Usage"), "{command:?}: {help}");
        assert!(help.contains("Usage: sidelong"), "{command:?}: {help}");
    }
    assert!(run(["--help"]).succeeded().contains("Examples:"));
    for (version, name) in [(run(["--version"]), "sidelong"), (run_lab(["--version"]), "sidelong-lab")] {
        assert_eq!(version.succeeded(), format!("{name} {}\n", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn what_is_no_command_is_refused() {
    const OURS: [&[&str]; 4] = [&["updown"], &["up", "--json=yes"], &["perf"], &[]];
    const LAB: [&[&str]; 4] = [&["updown"], &["run", "R10"], &["perf", "fly"], &[]];
    let ours = OURS.map(|wrong| (wrong, run(wrong)));
    for (wrong, done) in ours.into_iter().chain(LAB.map(|wrong| (wrong, run_lab(wrong)))) {
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{wrong:?}: {done:?}");
        assert!(done.err.contains("--help") || done.err.contains("Usage: sidelong"), "{wrong:?}: {done:?}");
    }
}

#[test]
fn the_lab_lists_its_experiments() {
    let list = run_lab(["list"]).succeeded();
    for number in 10..=24 {
        let id = format!("R{number} ");
        let line = list.lines().find(|line| line.starts_with(&id)).unwrap_or_else(|| panic!("{id}: {list}"));
        assert!(line.len() > 30, "{line}");
    }
    let directory = tempfile::tempdir().unwrap();
    let line = run_lab(["run", "R99", "--out", directory.path().to_str().unwrap()]).refused();
    assert!(line.contains("R99") && line.contains("R10"), "{line}");
}
