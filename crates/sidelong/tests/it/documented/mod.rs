//! The commands in the documentation work. [`SHOWN`] tells how each is verified. A command without a row fails the
//! test, and so does a row without a command. That the program parses every command line is tested beside its parser,
//! in `src/cli.rs`.

mod commands;

use std::fs;
use std::path::Path;
use std::process::Command;

use commands::{root, shown, words};

/// How a command is verified.
enum How {
    /// It is run here, by a shell, after this command.
    Run { after: &'static str },
    /// It would take too long, or needs something that is not here. Its settings are checked: `sim explain` accepts the
    /// same.
    Explained,
    /// These tests run commands like it: a file of the project, or `ci STEP` for a step of `cargo xtask ci`.
    By(&'static [&'static str]),
    /// The package, the target, the test and the step that it names exist.
    Cargo,
    /// It is not part of the project, or changes the machine.
    NotOurs,
}

use How::{By, Cargo, Explained, NotOurs, Run};

const RUN: How = Run { after: "true" };

/// Commands by their beginning; the longest row that matches counts.
const SHOWN: &[(&str, How)] = &[
    ("(umask 077; head", RUN),
    ("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=", By(&["ci guest"])),
    ("./fetch", By(&["crates/sidelong/tests/it/fronts.rs"])),
    ("cargo", Cargo),
    ("cc fronts/examples/fetch.c", By(&["crates/sidelong/tests/it/fronts.rs"])),
    ("curl", NotOurs),
    ("make -C fronts", By(&["crates/sidelong/tests/it/httpd.rs", "crates/sidelong/tests/it/fronts.rs"])),
    ("psql", NotOurs),
    ("python3 -c", NotOurs),
    ("python3 demo/auction make-data", By(&["crates/testing/src/auction.rs"])),
    ("kubectl create", NotOurs),
    ("kubectl label", NotOurs),
    ("kubectl apply", By(&["ci kubernetes"])),
    ("sidelong agents", By(&["crates/sidelong/tests/it/kubernetes.rs"])),
    ("sidelong agents --help", RUN),
    ("sidelong cache", By(&["crates/sidelong/tests/it/cache.rs"])),
    ("sidelong cache --help", RUN),
    ("sidelong cluster", By(&["crates/sidelong/tests/it/etcd.rs"])),
    ("sidelong cluster --help", RUN),
    ("sidelong config check", Run { after: "sidelong config example > cluster.toml" }),
    ("sidelong config demo", RUN),
    ("sidelong config diff", By(&["crates/sidelong/tests/it/reload.rs"])),
    ("sidelong config example", RUN),
    ("sidelong doctor", By(&["crates/sidelong/tests/it/doctor.rs", "ci packages"])),
    ("sidelong drain", By(&["crates/sidelong/tests/it/by_hand.rs"])),
    ("sidelong edge", By(&["crates/sidelong/tests/it/parts.rs"])),
    (
        "sidelong front",
        By(&[
            "crates/sidelong/tests/it/connect.rs",
            "crates/sidelong/tests/it/fronts.rs",
            "crates/sidelong/tests/it/haproxy.rs",
        ]),
    ),
    ("sidelong front --help", RUN),
    ("sidelong history", By(&["crates/sidelong/tests/it/history.rs"])),
    ("sidelong init", By(&["crates/sidelong/tests/it/servers.rs"])),
    ("sidelong init --help", RUN),
    ("sidelong join", By(&["crates/sidelong/tests/it/reload.rs", "crates/sidelong/tests/it/etcd.rs"])),
    ("sidelong leave", By(&["crates/sidelong/tests/it/reload.rs", "crates/sidelong/tests/it/etcd.rs"])),
    ("sidelong-lab list", RUN),
    ("sidelong-lab page", By(&["crates/lab/tests/it/page.rs"])),
    ("sidelong-lab run", By(&["ci lab", "crates/lab/tests/it/experiments.rs"])),
    ("sidelong-lab run X1", By(&["ci chaos"])),
    ("sidelong-lab run X2", By(&["ci chaos-long"])),
    ("sidelong-lab run X3", By(&["ci chaos-long"])),
    ("sidelong-lab load --help", RUN),
    ("sidelong-lab load --walk", By(&["crates/sidelong/tests/it/demo.rs"])),
    ("sidelong move", By(&["crates/sidelong/tests/it/by_hand.rs"])),
    ("sidelong node", By(&["crates/sidelong/tests/it/parts.rs"])),
    ("sidelong-lab perf", By(&["crates/sidelong/tests/it/perf.rs"])),
    ("sidelong reload", By(&["crates/sidelong/tests/it/reload.rs"])),
    ("sidelong remove", By(&["crates/sidelong/tests/it/reload.rs"])),
    ("sidelong resume", By(&["crates/sidelong/tests/it/by_hand.rs"])),
    ("sidelong secret", By(&["crates/sidelong/tests/it/etcd.rs"])),
    ("sidelong-lab sim compare", Run { after: "sidelong-lab sim run FILE.toml --out DIR" }),
    ("sidelong-lab sim explain", RUN),
    ("sidelong-lab sim live", By(&["crates/sidelong/tests/it/sim.rs"])),
    ("sidelong-lab sim run", Explained),
    ("sidelong-lab sim run FILE.toml --out DIR", RUN),
    ("sidelong-lab sim run FILE.toml --set nodes=16,64 --set protocol=lazy,ledger", RUN),
    ("sidelong-lab sim speed", By(&["crates/lab/tests/it/experiments.rs"])),
    ("sidelong status", By(&["crates/sidelong/tests/it/admission.rs"])),
    ("sidelong top", By(&["crates/sidelong/tests/it/top.rs"])),
    ("sidelong-lab trace", RUN),
    ("sidelong-lab up", By(&["crates/sidelong/tests/it/refused.rs"])),
    ("sidelong up", By(&["ci up", "crates/sidelong/tests/it/up.rs"])),
    ("sidelong up --demo", By(&["crates/sidelong/tests/it/demo.rs"])),
    ("sidelong up --front", By(&["crates/sidelong/tests/it/fronts.rs", "crates/sidelong/tests/it/up.rs"])),
    ("sudo", NotOurs),
    ("sudo apt-get", By(&["ci packages"])),
    ("sudo sidelong", By(&["ci packages"])),
    ("sudo systemctl", By(&["ci packages"])),
    ("systemctl", By(&["ci packages"])),
    ("writeln!", NotOurs),
];

/// The row of [`SHOWN`] that matches a command.
fn row(command: &str) -> Option<&'static (&'static str, How)> {
    SHOWN.iter().filter(|(begin, _)| command.starts_with(begin)).max_by_key(|(begin, _)| begin.len())
}

/// Whether all words are names of commands: the command is named there, not shown.
fn is_name(command: &str) -> bool {
    words(command).iter().all(|word| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    })
}

#[test]
fn every_command_that_is_shown_is_known_to_work() {
    let shown = shown();
    let unknown: Vec<_> = shown.iter().filter(|(command, _)| row(command).is_none()).collect();
    assert!(unknown.is_empty(), "no row of SHOWN says how these are known to work: {unknown:#?}");
    let fits = |begin: &str| shown.keys().any(|command| row(command).is_some_and(|row| row.0 == begin));
    let idle: Vec<_> = SHOWN.iter().map(|row| row.0).filter(|begin| !fits(begin)).collect();
    assert!(idle.is_empty(), "no page shows what these rows of SHOWN are for: {idle:?}");
    for place in SHOWN.iter().flat_map(|row| if let By(places) = row.1 { places } else { &[][..] }) {
        match place.strip_prefix("ci ") {
            Some(step) => assert!(is_step(step), "there is no {place}"),
            None => assert!(root().join(place).exists(), "there is no {place}"),
        }
    }
}

/// Whether `cargo xtask ci` has a step of this name.
fn is_step(name: &str) -> bool {
    let steps = fs::read_to_string(root().join("xtask/src/ci/steps.rs")).unwrap();
    steps.contains(&format!("name: \"{name}\""))
}

#[test]
fn what_can_be_run_here_does_what_it_should() {
    for (command, place) in &shown() {
        match row(command) {
            // A name alone, such as `sidelong-lab trace info`, needs arguments.
            Some((_, Run { .. })) if is_name(command) && command.starts_with("sidelong-lab trace") => {}
            Some((_, Run { after })) => shell(place, &format!("{after} && {command}")),
            Some((_, Explained)) => {
                let sets = words(command)
                    .windows(2)
                    .filter(|pair| pair[0] == "--set")
                    .fold(String::new(), |sets, pair| sets + " --set " + &pair[1]);
                shell(place, &format!("sidelong-lab sim explain EMPTY.toml{sets}"));
            }
            _ => {}
        }
    }
}

/// Runs `script` in a directory of its own that has the files named on the pages.
fn shell(place: &str, script: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    file("FILE.toml", b"[workload]\nrequests = 1_000\nobjects = 300\n");
    file("EMPTY.toml", b"");
    let log = fs::read(root().join("traces/worldcup98/wc_day50_4.first10000.bin")).unwrap();
    for name in ["access.log.gz", "cluster52.sort.zst", "wc_day50_1.gz"] {
        file(name, &log);
    }
    let program = Path::new(env!("CARGO_BIN_EXE_sidelong"));
    let path = [program.parent().unwrap().as_os_str(), &std::env::var_os("PATH").unwrap()].join(":".as_ref());
    let mut sh = Command::new("sh");
    sh.current_dir(&directory).args(["-ec", script]).env("PATH", path).env_remove("SIDELONG_LOG");
    let done = sh.output().unwrap();
    assert!(done.status.success(), "{place}: {script}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn what_cargo_is_asked_for_exists() {
    for (command, place) in &shown() {
        let words = words(command);
        let mut ours = words.iter().map(String::as_str).skip(1).take_while(|word| *word != "--");
        if words[0] != "cargo" || words.iter().any(|word| word == "...") {
            continue;
        }
        match ours.next() {
            Some("test" | "bench" | "build" | "run") => target(place, command, &ours.collect::<Vec<_>>()),
            Some("xtask") => {
                let task = ours.next().unwrap();
                let main = fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
                let variant = task[..1].to_uppercase() + &task[1..];
                assert!(main.contains(&format!("    {variant}")), "{place}: {command}: no task {task}");
                let named = ours.filter(|_| task == "ci" && !command.contains("--"));
                named.for_each(|step| assert!(is_step(step), "{place}: {command}: no step {step}"));
            }
            Some("fuzz") => {
                let target = root().join(format!("fuzz/targets/{}.rs", ours.last().unwrap()));
                assert!(target.exists(), "{place}: {command}: no {}", target.display());
            }
            other => panic!("{place}: {command}: what is `cargo {other:?}`?"),
        }
    }
}

/// Checks that the package, its test or bench, and the test function that `command` names exist.
fn target(place: &str, command: &str, words: &[&str]) {
    let after = |name: &str| words.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
    let package = after("-p").map(|package| match package {
        "xtask" | "sidelong" => package,
        _ => package.strip_prefix("sidelong-").unwrap_or(package),
    });
    let Some(package) = package else { return };
    let directory =
        root().join(if package == "xtask" { "xtask".into() } else { format!("crates/{package}") });
    assert!(directory.join("Cargo.toml").exists(), "{place}: {command}: no package {package}");
    if let Some(name) = after("--bench") {
        assert!(directory.join(format!("benches/{name}.rs")).exists(), "{place}: {command}: no bench {name}");
    }
    if let Some(name) = after("--test") {
        let tests = directory.join("tests").join(name);
        assert!(tests.join("main.rs").exists(), "{place}: {command}: no {}", tests.display());
        let filter = words.last().filter(|word| **word != name && !word.starts_with('-'));
        let has = filter.is_none_or(|filter| functions(&tests, "").iter().any(|path| path.contains(filter)));
        assert!(has, "{place}: {command}: no test with {filter:?} in its name");
    }
}

/// The functions in the files of `directory`, each with its module as the test harness names it.
fn functions(directory: &Path, module: &str) -> Vec<String> {
    let mut all = Vec::new();
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        let inner = match path.file_stem().and_then(|stem| stem.to_str()).unwrap() {
            "main" | "mod" => module.to_owned(),
            name => format!("{module}{name}::"),
        };
        if path.is_dir() {
            all.extend(functions(&path, &inner));
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let after_fn = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
            all.extend(after_fn.map(|rest| inner.clone() + rest.split(['(', '<']).next().unwrap()));
        }
    }
    all
}
