//! What runs in guests of `cargo xtask vm`: one that runs all that one can, and two that run all that takes two.

use std::ffi::OsStr;
use std::io::Write;
use std::process::Command;
use std::time::Instant;

use super::cargo_test::Binary;
use super::run::{Failure, Run, announce, ended_well};
use super::tally::GUEST;
use super::{smoke, steps};
use crate::error::Error;
use crate::exec;
use crate::vm::TIMED_OUT;

/// Emulation, and whatever else the machine does, stretch what a guest runs.
const LIMIT: &str = "20m";
/// A guest whose CPUs stand still prints nothing more. The longest test takes two minutes.
const SILENCE: &str = "6m";
/// Cargo hands the test binaries to what this variable names.
const RUNNER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";
/// The client comes again until the server listens.
const DEVICE: &str = "ibv_devinfo -d rxe0; ib_read_lat -d rxe0 >/dev/null & until ib_read_lat -d rxe0 localhost; do sleep 1; done";

/// Tests of a package's binary `it`: by what cargo builds it among others, the package, and the options of the harness.
type Tests<'a> = (&'a [&'a str], &'a str, &'a [&'a str]);

/// One guest: its device, tests, and what operations cost beside perftest. That it can be told, not what it is.
pub(super) fn one(run: &mut Run, tests: &[Tests<'_>]) -> Result<(), Failure> {
    let program = steps::built(run, "release/sidelong-lab")?;
    let mut script = format!("{DEVICE}\n");
    let mut built = Vec::new();
    for (words, package, harness) in tests {
        let it = ["-p", package, "--test", "it", "--"];
        let (all, mut alone) = (run.cargo(words), run.cargo(&[words, &it[..], harness].concat()));
        let mut binaries = run.build_tests(&all)?;
        binaries.retain(|binary| binary.name == format!("-p {package} --test it"));
        script.extend(binaries.iter().map(|binary| run_binary(binary, harness)));
        // One test after the other: two emulated CPUs are soon busy. A test that fails gets a guest of its own.
        alone.env("RUST_TEST_THREADS", "1").env(RUNNER, format!("{} vm --", run.here.display()));
        built.push((alone, binaries));
    }
    let perftest = format!("{} run perftest --quick --out /tmp", quoted(program.as_os_str()));
    script += &format!("{perftest}; cat /tmp/perftest/rows.csv\n");

    let write = || {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(script.as_bytes()).map(|()| file)
    };
    let script = write().map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
    let path = script.path().to_string_lossy();
    let printed = in_guest(run, &["bash", "-c", &format!("exec bash {path} 2>&1")])?;
    run.run_again(&built)?;
    smoke::device(&printed).and_then(|()| smoke::latency(&printed)).map_err(Failure::Unmet)?;
    smoke::beside_perftest(&printed).map_err(Failure::Unmet)
}

/// What befalls two guests one after the other, as edge.sh has it.
pub(super) const FAULTS: &[&str] = &[
    "edge_is_killed",
    "node_is_killed",
    "board_is_killed",
    "link_is_down",
    "nothing_is_sent",
    "frames_are_lost",
    "frames_are_late",
    "clock_is_set",
];

/// Two guests: perftest, `sidelong-lab perf`, an edge on one machine that moves a node on the other, at first and after each
/// fault, and a cache on one that reads the other's memory. The scripts are in `two`.
pub(super) fn two(run: &mut Run, faults: &[&str]) -> Result<(), Failure> {
    let program = steps::built(run, "release/sidelong-lab")?;
    let two = run.root.join("xtask/src/ci/two");
    let script = |name: &str| {
        let [script, program] = [two.join(name), program.clone()].map(|path| quoted(path.as_os_str()));
        format!("bash {script} {program}")
    };
    let [node, edge] = ["serve.sh", "ask.sh"].map(script);
    let edge = [&[edge.as_str()], faults].concat().join(" ");
    let printed = in_guest(run, &["--two", "--node", &node, "--edge", &edge])?;
    for check in [smoke::latency, smoke::measured, smoke::read] {
        check(&printed).map_err(Failure::Unmet)?;
    }
    smoke::moved(&printed, faults).map_err(Failure::Unmet)
}

/// What guests print. One that stands still gets a second try: emulated CPUs do, once in some dozens of boots.
fn in_guest(run: &mut Run, args: &[&str]) -> Result<String, Failure> {
    let mut vm = Command::new(&run.here);
    vm.args(["vm", "--timeout", LIMIT, "--silence", SILENCE]).args(args);
    announce(&vm);
    run.tally.begin(GUEST, 1);
    let before = run.tally.clone();
    let mut boot = |run: &mut Run| {
        let mut printed = String::new();
        let status = exec::lines(&mut vm, |line| {
            run.tally.line(line, Instant::now());
            printed += line;
            printed.push('\n');
        })?;
        Ok::<_, Error>((status, printed))
    };
    let (mut status, mut printed) = boot(run)?;
    if status.code() == Some(TIMED_OUT.into()) {
        println!("   the guest stood still; once more");
        run.tally = before;
        (status, printed) = boot(run)?;
    }
    ended_well(&vm, status).map(|()| printed)
}

/// Shell commands that run a test binary with these options, and say what cargo would.
fn run_binary(binary: &Binary, harness: &[&str]) -> String {
    let words: Vec<_> = harness.iter().map(|word| quoted(word.as_ref())).collect();
    let [dir, path] = [&binary.dir, &binary.path].map(|path| quoted(path.as_os_str()));
    format!(
        "echo '     Running' '('{path}')'\n(cd {dir} && RUST_TEST_THREADS=1 exec {path} {}) ||\n\
         echo 'error: test failed, to rerun pass `{}`'\n",
        words.join(" "),
        binary.name
    )
}

/// A word as a shell takes it.
fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::super::tally::Tally;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_binaries_print_is_tallied_as_if_cargo_had_run_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("it-1");
        let text = "#!/bin/sh\necho running 1 test\nprintf 'failures:\n    %s\n\n' \"$1\"\n\
                    echo 'test result: FAILED. 0 passed; 1 failed; finished in 1.50s'\nexit 101\n";
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let binary = Binary { name: "-p a --test it".into(), path, dir: dir.path().into() };
        let missing = Binary { name: "-p a --lib".into(), path: "/no/a-1".into(), dir: "/".into() };
        let script = run_binary(&binary, &["it's one"]) + &run_binary(&missing, &[]);

        let mut tally = Tally::default();
        tally.begin(GUEST, 1);
        tally.name("it-1", &binary.name);
        tally.name("a-1", &missing.name);
        let printed = exec::output(Command::new("sh").args(["-c", &script])).unwrap();
        printed.lines().for_each(|line| tally.line(line, Instant::now()));
        assert_eq!(
            tally.take_failures(),
            (vec![(binary.name.clone(), "it's one".into())], vec![missing.name])
        );
        assert_eq!(tally.times[0], (GUEST, binary.name, 1.5));
    }
}
