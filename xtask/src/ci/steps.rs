//! The steps: what each runs, in the order in which they run. Cheap ones come first, what needs the release build last.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::smoke;
use super::tally::Tally;
use super::{Failure, Run, Step};
use crate::bpf::{self, Checked};
use crate::error::Error;
use crate::exec;
use crate::repo::Repo;
use crate::tidy;

/// How long `sidelong up` may take beyond the time that it is asked to run for: start, drain, summary.
const UP_LIMIT: Duration = Duration::from_secs(60);
/// A guest starts in seconds; emulation, and whatever else the machine does, stretch what it runs.
const VM_LIMIT: Duration = Duration::from_secs(4 * 60);
/// Less than that, so that one which stands still is ended by its own program.
const GUEST_LIMIT: &str = "3m";
/// Of each target, as an option of libFuzzer. The time to look for new faults is an hour each: CONTRIBUTING.md.
const FUZZ_TIME: &str = "-max_total_time=30";
/// A quick experiment, all of its configurations.
const LAB_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Those of a run that names none.
pub(super) const STEPS: &[Step] = &[
    Step { name: "fmt", proves: "the code is formatted", run: fmt },
    Step { name: "clippy", proves: "no lint of the workspace has anything to say", run: clippy },
    Step { name: "tidy", proves: "the tree is in order: `cargo xtask tidy --help`", run: tidy },
    Step {
        name: "deny",
        proves: "dependencies are licensed and come from where deny.toml allows",
        run: deny,
    },
    Step { name: "bpf", proves: "the objects for the kernel are what their sources say", run: bpf },
    Step { name: "test", proves: "all tests pass, those in the documentation included", run: test },
    Step { name: "doc", proves: "the documentation builds, and its links lead somewhere", run: doc },
    Step { name: "release", proves: "the program builds as users build it", run: release },
    Step {
        name: "soak",
        proves: "of 100 million reads of records under way none that is torn or stale is accepted",
        run: soak,
    },
    Step {
        name: "fuzz",
        proves: "no parser of outside bytes panics, hangs or grows in half a minute",
        run: fuzz,
    },
    Step { name: "up", proves: "a data-center starts, serves without error, moves nodes, and ends", run: up },
    Step { name: "lab", proves: "a short R10 runs and writes its rows", run: lab },
    Step {
        name: "kernel",
        proves: "the kernel keeps records, and keeps them right: this one, and that of a guest",
        run: kernel,
    },
    Step {
        name: "vm",
        proves: "a guest has verbs, and reads its own memory and another guest's by them",
        run: vm,
    },
    Step {
        name: "verbs",
        proves: "the verbs backend keeps its promises on a device, alone and between two",
        run: verbs,
    },
];

/// Those that run only if they are named: they look for new faults, or take longer than a change should wait.
pub(super) const ON_DEMAND: &[Step] = &[
    Step {
        name: "model",
        proves: "the lock protocol holds under the larger bound of its model",
        run: |run| long_tests(run, "sidelong-state"),
    },
    Step {
        name: "kill",
        proves: "no death at any step of a move loses a node or a lock, 100 rounds",
        run: |run| long_tests(run, "sidelong-reconfig"),
    },
    Step {
        name: "hostile",
        proves: "a cluster survives a hundred rounds of attacks at random; SIDELONG_SEED=N repeats them",
        run: hostile,
    },
    Step {
        name: "endurance",
        proves: "ten million requests and ten thousand idle or slow clients leave an edge as it was",
        run: endurance,
    },
    Step {
        name: "cache",
        proves: "what clusters of caches answer under faults is linearizable for minutes; SIDELONG_SEED=N repeats the commands",
        run: cache,
    },
    Step {
        name: "model-all",
        proves: "the lock protocol holds under that bound with persons and commands, too, and from more wrong words",
        run: model_all,
    },
];

fn fmt(run: &mut Run) -> Result<(), Failure> {
    run.must(run.cargo(&["fmt", "--all", "--check"]))?;
    run.must(run.cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
}

fn clippy(run: &mut Run) -> Result<(), Failure> {
    run.must(run.cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
}

fn tidy(run: &mut Run) -> Result<(), Failure> {
    if tidy::run(&Repo::read(run.root.clone())?)? {
        return Ok(());
    }
    Err(Failure::Unmet("`cargo xtask tidy` found what is to be mended".into()))
}

/// Without the check `advisories`, whose database must be cloned from a host that CI may not reach.
fn deny(run: &mut Run) -> Result<(), Failure> {
    if exec::output(&mut run.cargo(&["deny", "--version"])).is_err() {
        run.tally.skip("deny", "there is no cargo-deny: cargo install cargo-deny --locked");
        return Ok(());
    }
    run.must(run.cargo(&["deny", "--locked", "--log-level", "warn", "check", "licenses", "bans", "sources"]))
}

fn bpf(run: &mut Run) -> Result<(), Failure> {
    match bpf::check(&run.root)? {
        Checked::Same => Ok(()),
        Checked::Differs(object) => {
            Err(Failure::Unmet(format!("`cargo xtask bpf` makes another {object}.o")))
        }
        Checked::Skipped(why) => {
            run.tally.skip("bpf", &why);
            Ok(())
        }
    }
}

/// With a log of `cargo test`, only what that leaves out is run: xtask is no default member, so that a bare `cargo run`
/// means the program.
fn test(run: &mut Run) -> Result<(), Failure> {
    let Some(log) = run.tested.take() else {
        return run.must_test(run.cargo(&["test", "--workspace", "--locked"]));
    };
    println!("   `cargo test` has passed: {}", log.display());
    run.tally = Tally::of(&log)?;
    if run.tally.passed() == 0 {
        return Err(Failure::Unmet(format!("no test passed in {}", log.display())));
    }
    run.must_test(run.cargo(&["test", "-p", "xtask", "--locked"]))
}

fn doc(run: &mut Run) -> Result<(), Failure> {
    let mut doc = run.cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run.must(doc)
}

/// What `cargo run --release` would build.
fn release(run: &mut Run) -> Result<(), Failure> {
    run.must(run.cargo(&["build", "--release", "--locked", "--bin", "sidelong"]))
}

/// The tests of a package that take too long without optimization, and are ignored elsewhere.
fn long_tests(run: &mut Run, package: &str) -> Result<(), Failure> {
    let tests = ["test", "--package", package, "--tests", "--release", "--locked", "--", "--ignored"];
    run.must_test(run.cargo(&tests))
}

fn model_all(run: &mut Run) -> Result<(), Failure> {
    let large = ["--", "--ignored", "check::large", "stabilise::some_contents"];
    let mut tests = run.cargo(&["test", "-p", "sidelong-state", "--test", "it", "--release", "--locked"]);
    tests.args(large).env("SIDELONG_MODEL", "all");
    run.must_test(tests)
}

/// Each time from another seed, unless one is given.
fn hostile(run: &mut Run) -> Result<(), Failure> {
    let mut tests = of_the_program(run, "hostile::");
    tests.env("SIDELONG_ROUNDS", "100");
    if std::env::var_os(SEED).is_none() {
        tests.env(SEED, std::process::id().to_string());
    }
    run.must_test(tests)
}

/// One after the other, since each looks at what its processes hold.
fn endurance(run: &mut Run) -> Result<(), Failure> {
    let mut tests = of_the_program(run, "endurance::");
    tests.args(["--ignored", "--test-threads", "1"]);
    run.must_test(tests)
}

fn cache(run: &mut Run) -> Result<(), Failure> {
    let mut tests = of_the_program(run, "cache_histories::");
    tests.args(["--ignored"]);
    run.must_test(tests)
}

/// Tests of the program as users build it, which print what they find.
fn of_the_program(run: &Run, tests: &str) -> Command {
    let it = ["test", "-p", "sidelong", "--release", "--locked", "--test", "it", tests];
    run.cargo(&[&it[..], &["--", "--nocapture"]].concat())
}

/// Variable with the seed of a randomized test.
const SEED: &str = "SIDELONG_SEED";

/// Without the test that takes a CPU offline: under the other tests, and on a machine that others use.
fn soak(run: &mut Run) -> Result<(), Failure> {
    let tests = ["test", "--package", "sidelong-load", "--tests", "--release", "--locked", "--", "--ignored"];
    run.must_test(run.cargo(&[&tests[..], &["--skip", "offline"]].concat()))
}

/// Every target of `fuzz/`, two at a time. Without a sanitizer, which needs a nightly compiler; the parsers forbid unsafe code.
fn fuzz(run: &mut Run) -> Result<(), Failure> {
    if exec::output(&mut run.cargo(&["fuzz", "--version"])).is_err() {
        run.tally.skip("fuzz", "there is no cargo-fuzz: cargo install cargo-fuzz --locked");
        return Ok(());
    }
    run.must(run.cargo(&["fuzz", "build", "--sanitizer", "none"]))?;
    let targets = exec::output(&mut run.cargo(&["fuzz", "list"]))?;
    let new = tempfile::tempdir().map_err(|source| Error::Read { path: std::env::temp_dir(), source })?;
    let fuzzed = |target: &str| {
        let mut fuzz = run.cargo(&["fuzz", "run", "--sanitizer", "none", target]);
        let (new, seeds) = (new.path().join(target), run.root.join("fuzz/seeds").join(target));
        std::fs::create_dir(&new).map_err(|source| Error::Read { path: new.clone(), source })?;
        fuzz.args([new, seeds]).args(["--", FUZZ_TIME, "-timeout=10", "-rss_limit_mb=2048", "-verbosity=0"]);
        run.must(fuzz)
    };
    let targets: Vec<&str> = targets.lines().collect();
    targets.chunks(2).try_for_each(|pair| {
        std::thread::scope(|scope| {
            let runs: Vec<_> = pair.iter().map(|target| scope.spawn(|| fuzzed(target))).collect();
            runs.into_iter().try_for_each(|run| run.join().expect("it reports its errors"))
        })
    })
}

fn up(run: &mut Run) -> Result<(), Failure> {
    let mut up = sidelong(run)?;
    up.args(["up", "--for", "10s", "--json"]);
    let printed = run.must_print(up, UP_LIMIT)?;
    print!("{printed}");
    smoke::summary(&printed).map_err(Failure::Unmet)
}

fn lab(run: &mut Run) -> Result<(), Failure> {
    let cannot_read = |path: PathBuf| |source| Error::Read { path, source };
    let out = tempfile::tempdir().map_err(cannot_read(std::env::temp_dir()))?;
    let mut lab = sidelong(run)?;
    lab.args(["lab", "run", "R10", "--quick", "--out"]).arg(out.path());
    // A missed target and a busy machine are not what this step is about.
    print!("{}", run.must_print_with(lab, LAB_LIMIT, &[3, 4])?);
    let rows = out.path().join("R10/rows.csv");
    let rows = std::fs::read_to_string(&rows).map_err(cannot_read(rows))?;
    smoke::rows(&rows).map_err(Failure::Unmet)
}

fn vm(run: &mut Run) -> Result<(), Failure> {
    // The client comes again until the server listens.
    let alone = "ibv_devinfo -d rxe0; ib_read_lat -d rxe0 >&2 & until ib_read_lat -d rxe0 localhost; do sleep 1; done";
    let printed = in_guest(run, &["sh", "-c", alone])?;
    smoke::device(&printed).map_err(Failure::Unmet)?;
    smoke::latency(&printed).map_err(Failure::Unmet)?;
    let two =
        ["--two", "--port", "18515", "--node", "ib_read_lat -d rxe0", "--edge", "ib_read_lat -d rxe0 node"];
    smoke::latency(&in_guest(run, &two)?).map_err(Failure::Unmet)
}

/// The tests of a record that the kernel keeps: those that take too long elsewhere here, and all of them in the guest,
/// whose CPUs may also be taken offline.
fn kernel(run: &mut Run) -> Result<(), Failure> {
    let tests = ["test", "-p", "sidelong-load", "--release", "--locked", "--test", "it", "--"];
    let of_kernel = [&tests[..], &["kernel::", "accuracy::"]].concat();
    run.must_test(run.cargo(&[&of_kernel[..], &["--ignored", "--skip", "offline"]].concat()))?;
    let mut there = run.cargo(&[&of_kernel[..], &["--include-ignored", "--skip", "in_100_million"]].concat());
    there.env(RUNNER, guest_runner(run)).env("RUST_TEST_THREADS", "1");
    run.must_test(there)
}

/// Tests run in the guest that way: cargo hands their binaries to what this names.
const RUNNER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";

fn guest_runner(run: &Run) -> String {
    format!("{} vm --", run.here.display())
}

/// The tests that need a device.
fn verbs(run: &mut Run) -> Result<(), Failure> {
    for (package, tests) in [
        ("sidelong-fabric", &["conformance::verbs::"][..]),
        ("sidelong-fabric", &["verbs::", "--skip", "conformance::"]),
        ("sidelong", &["machines::over_verbs::"]),
        ("sidelong", &["caches::over_verbs::"]),
        ("sidelong", &["cache_histories::over_verbs"]),
    ] {
        let arguments = ["test", "-p", package, "--locked", "--test", "it", "--"];
        let mut tests = run.cargo(&[&arguments[..], tests].concat());
        // One after the other: two emulated CPUs are soon busy.
        tests.env(RUNNER, guest_runner(run)).env("RUST_TEST_THREADS", "1");
        run.must_test(tests)?;
    }
    // Emulated, a debug build takes longer than its timeouts: what follows runs the release build.
    measured(run)?;
    two_machines(run)
}

/// What operations cost, beside perftest in one guest and from one guest to another. That it can be told, not what it is.
fn measured(run: &Run) -> Result<(), Failure> {
    let program = built(run, "release/sidelong")?;
    let program = program.display();
    let beside = format!("{program} lab run perftest --quick --out /tmp; cat /tmp/perftest/rows.csv");
    smoke::beside_perftest(&in_guest(run, &["bash", "-c", &beside])?).map_err(Failure::Unmet)?;
    let perf = format!("SIDELONG_SECRET='known to both guests' {program} perf");
    let serve = format!("{perf} serve");
    let ask = |what: &str| format!("{perf} {what} --to node --fabric verbs --quick");
    let ask = format!("{} && {}", ask("read"), ask("write --ping-pong"));
    let printed = in_guest(run, &["--two", "--port", "7471", "--node", &serve, "--edge", &ask])?;
    smoke::measured(&printed).map_err(Failure::Unmet)
}

/// An edge on one machine moves a node on another, and a cache on one reads another's memory.
fn two_machines(run: &Run) -> Result<(), Failure> {
    let [node, edge] = [include_str!("two/node.sh"), include_str!("two/edge.sh")];
    let printed = between_two(run, "7203", include_str!("two/cluster.toml"), node, edge)?;
    smoke::moved(&printed).map_err(Failure::Unmet)?;
    let [cache, reader] = [include_str!("two/cache.sh"), include_str!("two/reader.sh")];
    let printed = between_two(run, "7302", include_str!("two/caches.toml"), cache, reader)?;
    smoke::read(&printed).map_err(Failure::Unmet)
}

/// What two guests print that run a script each, with the program and a cluster file. The second begins once the first one
/// listens at `port`.
fn between_two(run: &Run, port: &str, cluster: &str, first: &str, second: &str) -> Result<String, Failure> {
    let program = built(run, "release/sidelong")?;
    let directory =
        tempfile::tempdir().map_err(|source| Error::Read { path: std::env::temp_dir(), source })?;
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        let mut options = std::fs::OpenOptions::new();
        // It holds a secret.
        let opened = options.write(true).create_new(true).mode(0o600).open(&path);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map(|()| path.clone()).map_err(|source| Error::Write { path, source })
    };
    let cluster = write("cluster.toml", cluster)?;
    let command =
        |script: PathBuf| format!("bash {} {} {}", script.display(), program.display(), cluster.display());
    let first = command(write("first.sh", first)?);
    let second = command(write("second.sh", second)?);
    in_guest(run, &["--two", "--port", port, "--node", &first, "--edge", &second])
}

/// What `cargo xtask vm` prints, which must end well.
fn in_guest(run: &Run, args: &[&str]) -> Result<String, Failure> {
    let vm = ["xtask", "vm", "--timeout", GUEST_LIMIT];
    let printed = run.must_print(run.cargo(&[&vm, args].concat()), VM_LIMIT)?;
    print!("{printed}");
    Ok(printed)
}

/// The program, as the step `release` has built it.
fn sidelong(run: &Run) -> Result<Command, Failure> {
    let mut command = Command::new(built(run, "release/sidelong")?);
    command.current_dir(&run.root);
    Ok(command)
}

/// Something that an earlier step has built.
fn built(run: &Run, what: &str) -> Result<PathBuf, Failure> {
    let metadata =
        exec::output(&mut run.cargo(&["metadata", "--no-deps", "--format-version", "1", "--locked"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)
        .map_err(|error| Error::Parse { what: "`cargo metadata`".into(), why: error.to_string() })?;
    let path = PathBuf::from(metadata["target_directory"].as_str().unwrap_or("target")).join(what);
    if path.exists() {
        return Ok(path);
    }
    Err(Failure::Unmet(format!("no {}: run the step that builds it first", path.display())))
}
