//! The steps: what each runs, in the order in which they run. Cheap ones come first, what needs the release build last.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::run::{Failure, Run, Step};
use super::{guests, kubernetes, packages, smoke};
use crate::bpf::{self, Checked};
use crate::error::Error;
use crate::exec;
use crate::headers;
use crate::repo::Repo;
use crate::tidy;

/// How long `sidelong up` may take beyond the time that it is asked to run for: start, drain, summary.
const UP_LIMIT: Duration = Duration::from_secs(60);
/// Of each target, as libFuzzer takes it: always the same inputs, but for seconds at most.
const FUZZ_RUNS: &[&str] = &["-runs=20000", "-seed=1", "-max_total_time=10"];
/// Seconds of each target where new faults are looked for, unless this variable has others.
const FUZZ_S: (&str, &str) = ("SIDELONG_FUZZ_S", "3600");
/// A quick experiment, all of its configurations.
const LAB_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The steps of a run that names none.
pub(super) const STEPS: &[Step] = &[
    Step { name: "fmt", proves: "the code is formatted", run: fmt },
    Step { name: "clippy", proves: "no lint of the workspace has anything to say", run: clippy },
    Step { name: "tidy", proves: "the tree is in order: `cargo xtask tidy --help`", run: tidy },
    Step {
        name: "deny",
        proves: "dependencies are licensed and come from where deny.toml allows",
        run: deny,
    },
    Step { name: "headers", proves: "the C header is what the declarations of regions say", run: headers },
    Step { name: "bpf", proves: "the objects for the kernel are what their sources say", run: bpf },
    Step { name: "test", proves: "all tests pass, those in the documentation included", run: test },
    Step { name: "doc", proves: "the documentation builds, and its links lead somewhere", run: doc },
    Step { name: "release", proves: "the program builds as users build it", run: release },
    Step {
        name: "soak",
        proves: "of 100 million reads of records none that is torn or stale is accepted; the kernel keeps them right",
        run: soak,
    },
    Step {
        name: "fuzz",
        proves: "no parser of outside bytes panics, hangs or grows over a fixed sequence of inputs",
        run: fuzz,
    },
    Step { name: "up", proves: "a data-center starts, serves without error, moves nodes, and ends", run: up },
    Step { name: "lab", proves: "a short R10 runs and writes its rows", run: lab },
    Step {
        name: "packages",
        proves: "Debian's packages do in a container, under systemd, what docs/install.md says, and are upgraded under load",
        run: packages::step,
    },
    Step {
        name: "chaos",
        proves: "whatever fails on five machines, no request is misdirected, no floor is missed, and all comes to rest, 3 seeds",
        run: |run| chaos(run, &["--quick"], CHAOS_LIMIT),
    },
    Step {
        name: "guest",
        proves: "a guest's kernel keeps records, and its device the promises of the verbs backend",
        run: guest,
    },
    Step {
        name: "guests",
        proves: "two guests read each other's memory by verbs, and one moves nodes of the other",
        run: |run| guests::two(run, &[]),
    },
];

/// Steps that run only if they are named: they look for new faults, or take longer than a change should wait.
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
        run: |run| at_random(run, "hostile::"),
    },
    Step {
        name: "membership",
        proves: "whatever is killed at whichever step of a join, leave or reload, the next one succeeds, 100 rounds; SIDELONG_SEED=N repeats them",
        run: |run| at_random(run, "membership::"),
    },
    Step {
        name: "churn",
        proves: "a thousand nodes, and a hundred edges, sites and fronts of each proxy, come and go: nothing is cut, nothing grows",
        run: churn,
    },
    Step {
        name: "upgrade",
        proves: "parts of this build work with those of the last release that has a tag, and of one that adds to all that may grow; SIDELONG_SEED=N repeats it",
        run: upgrade,
    },
    Step {
        name: "kubernetes",
        proves: "a real API server takes the manifests, and nodes follow its pods; it is built from its Go module",
        run: kubernetes::step,
    },
    Step {
        name: "chaos-long",
        proves: "the same for a minute each, 50 seeds; and simulated, while nodes leave and join, 200 seeds; X2 and X3 run",
        run: |run| {
            long_tests(run, "sidelong-sim")?;
            chaos(run, &["--repeat", "50"], 20 * CHAOS_LIMIT)?;
            ["X2", "X3"]
                .iter()
                .try_for_each(|id| lab_rows(run, &["run", id, "--quick"], id, CHAOS_LIMIT).map(drop))
        },
    },
    Step {
        name: "upgrades",
        proves: "100 upgrades of all parts of a machine cost no request: kept, slow, uploads, WebSockets, HTTP/2",
        run: packages::upgrades,
    },
    Step {
        name: "packages-lint",
        proves: "two builds of the packages give the same bytes, and lintian finds no fault in them",
        run: packages::lint,
    },
    Step {
        name: "image",
        proves: "an OCI image of the package is built, and a container's runtime starts the program of it",
        run: packages::image,
    },
    Step {
        name: "guests-faults",
        proves: "the same, and another node moves after each of eight faults of parts, of the link, and of the clock",
        run: |run| guests::two(run, guests::FAULTS),
    },
    Step {
        name: "endurance",
        proves: "a hundred million requests, ten thousand moves and as many idle or slow clients leave an edge and a node as they were",
        run: endurance,
    },
    Step {
        name: "cache",
        proves: "what clusters of caches answer under faults is linearizable for minutes; SIDELONG_SEED=N repeats the commands",
        run: cache,
    },
    Step {
        name: "fuzz-long",
        proves: "an hour of each fuzz target, or SIDELONG_FUZZ_S=N seconds, finds nothing new",
        run: fuzz_long,
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

fn headers(run: &mut Run) -> Result<(), Failure> {
    match headers::is_same(&run.root)? {
        true => Ok(()),
        false => Err(Failure::Unmet(format!("the C header is {}", headers::OTHERWISE))),
    }
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

/// By the README's command, `cargo test`. It leaves out xtask, which is no default member so that a bare `cargo run` means
/// the program.
fn test(run: &mut Run) -> Result<(), Failure> {
    run.must_test(run.cargo(&["test"]))?;
    run.must_test(run.cargo(&["test", "-p", "xtask"]))
}

fn doc(run: &mut Run) -> Result<(), Failure> {
    let mut doc = run.cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run.must(doc)
}

/// What `cargo run --release` would build, and the program of the lab.
fn release(run: &mut Run) -> Result<(), Failure> {
    run.must(run.cargo(&["build", "--release", "--locked", "--bin", "sidelong", "--bin", "sidelong-lab"]))
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
fn must_test_from_a_seed(run: &mut Run, mut tests: Command) -> Result<(), Failure> {
    if std::env::var_os(SEED).is_none() {
        tests.env(SEED, std::process::id().to_string());
    }
    run.must_test(tests)
}

fn at_random(run: &mut Run, tests: &str) -> Result<(), Failure> {
    let mut tests = of_the_program(run, tests);
    tests.env("SIDELONG_ROUNDS", "100");
    must_test_from_a_seed(run, tests)
}

fn churn(run: &mut Run) -> Result<(), Failure> {
    let mut tests = of_the_program(run, "churn::");
    tests.env("SIDELONG_ROUNDS", "1000");
    run.must_test(tests)
}

fn upgrade(run: &mut Run) -> Result<(), Failure> {
    let target = run.target()?;
    let next = target.join("next");
    let mut build = run.cargo(&["build", "--locked", "--bin", "sidelong", "--target-dir"]);
    build.arg(&next).env("RUSTFLAGS", "--cfg sidelong_next");
    run.must(build)?;
    beside(run, &next)?;

    let mut tag = Command::new("git");
    let Ok(tag) =
        exec::output(tag.current_dir(&run.root).args(["describe", "--tags", "--abbrev=0", "HEAD^"]))
    else {
        run.tally.skip("upgrade", "no release has a tag yet");
        return Ok(());
    };
    let (last, checkout) = (target.join("last"), tempfile::tempdir());
    let checkout = checkout.map_err(|source| Error::Read { path: std::env::temp_dir(), source })?;
    let mut copy = Command::new("git");
    copy.arg("clone").args(["--quiet", "--branch", tag.trim()]).arg(&run.root).arg(checkout.path());
    run.must(copy)?;
    let mut build = run.cargo(&["build", "--locked", "--bin", "sidelong", "--target-dir"]);
    build.arg(&last).current_dir(checkout.path());
    run.must(build)?;
    beside(run, &last)
}

/// Parts of this build beside those of the one in that target directory.
fn beside(run: &mut Run, target: &Path) -> Result<(), Failure> {
    let tests =
        ["test", "-p", "sidelong", "--locked", "--test", "it", "upgrade::releases", "--", "--nocapture"];
    let mut tests = run.cargo(&tests);
    tests.env("SIDELONG_RELEASE", target.join("debug")).env("SIDELONG_ROUNDS", "10");
    must_test_from_a_seed(run, tests)
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

/// Three short seeds of X1, on a machine that others use.
const CHAOS_LIMIT: Duration = Duration::from_secs(10 * 60);
/// Variable with the seed of a randomized test.
const SEED: &str = "SIDELONG_SEED";

/// Without the test that takes a CPU offline: under the other tests, and on a machine that others use.
fn soak(run: &mut Run) -> Result<(), Failure> {
    let tests = ["test", "--package", "sidelong-load", "--tests", "--release", "--locked", "--", "--ignored"];
    run.must_test(run.cargo(&[&tests[..], &["--skip", "offline"]].concat()))
}

fn fuzz(run: &mut Run) -> Result<(), Failure> {
    fuzz_all(run, FUZZ_RUNS)
}

fn fuzz_long(run: &mut Run) -> Result<(), Failure> {
    let seconds = std::env::var(FUZZ_S.0).unwrap_or(FUZZ_S.1.into());
    fuzz_all(run, &[&format!("-max_total_time={seconds}")])
}

/// Every target of `fuzz/`, two at a time. Without a sanitizer, which needs a nightly compiler; the parsers forbid unsafe code.
fn fuzz_all(run: &mut Run, until: &[&str]) -> Result<(), Failure> {
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
        fuzz.args([new, seeds]).arg("--").args(until);
        fuzz.args(["-timeout=10", "-rss_limit_mb=2048", "-verbosity=0"]);
        run.must(fuzz)
    };
    let targets = Mutex::new(targets.lines());
    let next = || targets.lock().unwrap_or_else(PoisonError::into_inner).next();
    let all = || std::iter::from_fn(next).try_for_each(fuzzed);
    std::thread::scope(|scope| {
        let workers = [scope.spawn(all), scope.spawn(all)];
        let [one, other] = workers.map(|worker| worker.join().expect("it reports its errors"));
        one.and(other)
    })
}

fn up(run: &mut Run) -> Result<(), Failure> {
    let mut up = program(run, "sidelong")?;
    up.args(["up", "--for", "10s", "--json"]);
    let printed = run.must_print(up, UP_LIMIT, &[])?;
    print!("{printed}");
    smoke::summary(&printed).map_err(Failure::Unmet)
}

fn lab(run: &mut Run) -> Result<(), Failure> {
    let rows = lab_rows(run, &["run", "R10", "--quick"], "R10", LAB_LIMIT)?;
    smoke::rows(&rows).map_err(Failure::Unmet)
}

/// X1, by the program that the step `release` has built.
fn chaos(run: &mut Run, how: &[&str], limit: Duration) -> Result<(), Failure> {
    let mut namespace = Command::new("unshare");
    if exec::output(namespace.args(["--net", "sh", "-c", "nft --version && socat -V"])).is_err() {
        let needs =
            "it needs root, who may make network namespaces, nft and socat: install nftables and socat";
        run.tally.skip("chaos", needs);
        return Ok(());
    }
    let mut modules = Command::new("make");
    if exec::output(modules.current_dir(&run.root).args(["-C", "fronts", "nginx", "haproxy"])).is_err() {
        run.tally.skip("chaos", "`make -C fronts nginx haproxy` fails: install nginx-dev and liblua5.3-dev");
        return Ok(());
    }
    let rows = lab_rows(run, &[&["run", "X1"], how].concat(), "X1", limit)?;
    smoke::chaos(&rows).map_err(Failure::Unmet)
}

/// The rows of an experiment. A missed target and a busy machine are not what steps are about.
fn lab_rows(run: &Run, words: &[&str], id: &str, limit: Duration) -> Result<String, Failure> {
    let cannot_read = |path: PathBuf| |source| Error::Read { path, source };
    let out = tempfile::tempdir().map_err(cannot_read(std::env::temp_dir()))?;
    let mut lab = program(run, "sidelong-lab")?;
    lab.args(words).arg("--out").arg(out.path());
    print!("{}", run.must_print(lab, limit, &[3, 4])?);
    let rows = out.path().join(id).join("rows.csv");
    Ok(std::fs::read_to_string(&rows).map_err(cannot_read(rows))?)
}

/// Tests of a record that the kernel keeps, as a guest's CPUs may also be taken offline, and those that need a device.
fn guest(run: &mut Run) -> Result<(), Failure> {
    // As the steps `soak` and `test` have built them: another selection of targets has other features, and is built anew.
    let (kernel, all) =
        (&["test", "--package", "sidelong-load", "--tests", "--release", "--locked"][..], &["test"][..]);
    guests::one(
        run,
        &[
            (
                kernel,
                "sidelong-load",
                &[
                    "kernel::",
                    "accuracy::",
                    "--include-ignored",
                    "--skip",
                    "in_100_million",
                    "--skip",
                    "in_a_minute",
                ],
            ),
            (all, "sidelong-fabric", &["conformance::verbs::"]),
            (all, "sidelong-fabric", &["verbs::", "--skip", "conformance::"]),
            (
                all,
                "sidelong",
                &["machines::over_verbs::", "caches::over_verbs::", "cache_histories::histories_over_verbs"],
            ),
        ],
    )
}

/// A program, as the step `release` has built it.
fn program(run: &Run, name: &str) -> Result<Command, Failure> {
    let mut command = Command::new(built(run, &format!("release/{name}"))?);
    command.current_dir(&run.root);
    Ok(command)
}

/// Something that an earlier step has built.
pub(super) fn built(run: &Run, what: &str) -> Result<PathBuf, Failure> {
    let path = run.target()?.join(what);
    if path.exists() {
        return Ok(path);
    }
    Err(Failure::Unmet(format!("no {}: run the step that builds it first", path.display())))
}
