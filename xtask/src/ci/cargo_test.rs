//! Runs tests by cargo, and those that fail once more, each alone.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::run::{Failure, Run, announce, ended_well};
use super::tally::{Tally, Test};
use crate::exec;

/// What building all tests takes at most.
const BUILD_LIMIT: Duration = Duration::from_secs(60 * 60);
/// So many unsteady tests fail a run: something is wrong with it.
const UNSTEADY_MAX: usize = 3;
/// Where more tests fail, none runs again: the run has failed anyhow.
const AGAIN_MAX: usize = 10;
/// How many tests a harness runs at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// A test binary, as cargo has built it.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Binary {
    /// What selects it: `-p PACKAGE --test TARGET`.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Where its package lies, and where it runs.
    pub(super) dir: PathBuf,
}

impl Run {
    /// Runs tests by `cargo test ...`, and those that fail once more. They are counted, and at least one must have passed:
    /// a filter that finds none proves nothing.
    pub(super) fn must_test(&mut self, command: Command) -> Result<(), Failure> {
        let binaries = self.build_tests(&command)?;
        let mut all = with(&command, &["--no-fail-fast"], &[]);
        announce(&all);
        let before = self.tally.passed();
        self.tally.begin("binary", threads(&command));
        let status = exec::lines(&mut all, |line| self.tally.line(line, Instant::now()))?;
        let failed = self.run_again(&[(command, binaries)])?;
        if !failed {
            ended_well(&all, status)?;
        }
        if self.tally.passed() > before {
            return Ok(());
        }
        Err(Failure::Unmet(format!("`{}` ran no test", exec::command_line(&all))))
    }

    /// Builds the binaries of `cargo test ...`, and tells the tally their names.
    pub(super) fn build_tests(&mut self, command: &Command) -> Result<Vec<Binary>, Failure> {
        // cargo would not build the tests of the documentation without running them.
        if command.get_args().any(|arg| arg == "--doc") {
            return Ok(Vec::new());
        }
        let build = with(command, &["--no-run", "--message-format", "json-render-diagnostics"], &[]);
        let start = Instant::now();
        let messages = self.must_print(build, BUILD_LIMIT, &[])?;
        let took = start.elapsed().as_secs_f64();
        self.tally.times.push(("build", exec::command_line(command), took));
        let binaries: Vec<Binary> = messages.lines().filter_map(binary).collect();
        for Binary { name, path, .. } in &binaries {
            self.tally.name(&path.file_name().unwrap_or_default().to_string_lossy(), name);
        }
        Ok(binaries)
    }

    /// Runs the tests that have failed once more, each alone, by the command whose binary has it: whether there were any.
    /// It is an error where one fails again, where too many are unsteady, and where a binary died.
    pub(super) fn run_again(&mut self, built: &[(Command, Vec<Binary>)]) -> Result<bool, Failure> {
        let (failures, died) = self.tally.take_failures();
        let mut failed = died;
        let any = !failures.is_empty();
        if failures.len() > AGAIN_MAX {
            return Err(Failure::Unmet(format!("{} tests failed, so none runs again", failures.len())));
        }
        for test in failures {
            let of = built.iter().find(|(_, binaries)| binaries.iter().any(|binary| binary.name == test.0));
            let Some((command, _)) = of.or(built.first()) else { continue };
            if self.has_second_try && passes_alone(command, &test)? {
                println!("   {} {}: unsteady, it passed alone", test.0, test.1);
                self.tally.passed_alone(test);
            } else {
                failed.push(format!("{} {}", test.0, test.1));
            }
        }
        verdict(&failed, self.tally.unsteady.len()).map(|()| any).map_err(Failure::Unmet)
    }
}

/// Whether a run may go on, of which these tests and binaries failed for good, and so many tests are unsteady.
fn verdict(failed: &[String], unsteady: usize) -> Result<(), String> {
    if !failed.is_empty() {
        return Err(format!("failed: {}", failed.join(", ")));
    }
    if unsteady >= UNSTEADY_MAX {
        return Err(format!("{unsteady} tests are unsteady, at most {} may be", UNSTEADY_MAX - 1));
    }
    Ok(())
}

/// Whether a test passes that runs alone.
fn passes_alone(command: &Command, (binary, test): &Test) -> Result<bool, Failure> {
    let mut alone = match binary.strip_prefix("-p ").and_then(|rest| rest.split_once(' ')) {
        // All packages stay selected: cargo would build some otherwise for one alone.
        Some((_package, target)) => with(command, &target.split(' ').collect::<Vec<_>>(), &["--exact", test]),
        // All of the file: rustdoc takes a name for several, since it has blanks.
        None => with(command, &["--doc"], &[test.split(' ').next().unwrap_or_default()]),
    };
    announce(&alone);
    let mut tally = Tally::default();
    let status = exec::lines(&mut alone, |line| tally.line(line, Instant::now()))?;
    Ok(status.success() && tally.passed() > 0)
}

/// `cargo test ...` with more options of cargo, and of the test harness.
pub(super) fn with(command: &Command, cargo: &[&str], harness: &[&str]) -> Command {
    let (before, behind) = split(command);
    let mut more = Command::new(command.get_program());
    more.args(before).args(cargo);
    if !behind.is_empty() || !harness.is_empty() {
        more.arg("--").args(behind).args(harness);
    }
    more.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.get_current_dir().map(|dir| more.current_dir(dir));
    more
}

/// The options of cargo, and those of the test harness.
fn split(command: &Command) -> (Vec<&OsStr>, Vec<&OsStr>) {
    let mut before: Vec<_> = command.get_args().collect();
    let at = before.iter().position(|arg| *arg == "--").unwrap_or(before.len());
    let behind = before.split_off(at);
    (before, behind.into_iter().skip(1).collect())
}

/// How many tests run at a time.
fn threads(command: &Command) -> usize {
    let own =
        command.get_envs().find(|(key, _)| *key == THREADS).and_then(|(_, value)| value.map(OsStr::to_owned));
    let set = own.or_else(|| std::env::var_os(THREADS)).and_then(|value| value.to_str()?.parse().ok());
    set.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// The test binary in a message of cargo's, if that tells of one.
fn binary(message: &str) -> Option<Binary> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    if message["profile"]["test"] != true {
        return None;
    }
    let path = text(&message["executable"])?.into();
    let dir = PathBuf::from(text(&message["manifest_path"])?).parent()?.to_owned();
    // `path+file:///DIR#NAME@VERSION`, or without NAME where the directory is called so.
    let id = text(&message["package_id"])?;
    let package =
        id.rsplit_once('#')?.1.rsplit_once('@').map_or(dir.file_name()?.to_str()?, |(name, _)| name);
    let (kind, target) = (text(&message["target"]["kind"][0])?, text(&message["target"]["name"])?);
    let name = match &*kind {
        "test" | "bin" | "example" | "bench" => format!("-p {package} --{kind} {target}"),
        _ => format!("-p {package} --lib"),
    };
    Some(Binary { name, path, dir })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cargo 1.95 says of a test binary, without what nobody asks for.
    fn message(kind: &str, id: &str, is_test: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file:///w/crates/{id}","manifest_path":"/w/crates/fabric/Cargo.toml","target":{{"kind":["{kind}"],"name":"it"}},"profile":{{"test":{is_test}}},"executable":"/t/debug/deps/it-1"}}"#
        )
    }

    #[test]
    fn a_binary_is_named_by_what_selects_it() {
        let name = |kind, id| binary(&message(kind, id, true)).expect("it is one").name;
        assert_eq!(name("test", "fabric#sidelong-fabric@0.1.0"), "-p sidelong-fabric --test it");
        assert_eq!(name("lib", "fabric#0.1.0"), "-p fabric --lib");
        assert_eq!(
            binary(&message("test", "fabric#0.1.0", true)).unwrap().dir,
            PathBuf::from("/w/crates/fabric")
        );
        assert_eq!(binary(&message("bin", "fabric#0.1.0", false)), None);
        assert_eq!(binary("{\"reason\":\"build-finished\",\"success\":true}"), None);
    }

    #[test]
    fn options_go_where_they_belong() {
        let mut command = Command::new("cargo");
        command.args(["test", "--release", "--", "--ignored"]).env("A", "b");
        let line = |cargo: &[&str], harness: &[&str]| exec::command_line(&with(&command, cargo, harness));
        assert_eq!(line(&["--no-fail-fast"], &[]), "A=b cargo test --release --no-fail-fast -- --ignored");
        assert_eq!(
            line(&["--lib"], &["--exact", "x"]),
            "A=b cargo test --release --lib -- --ignored --exact x"
        );
        assert_eq!(threads(Command::new("cargo").env(THREADS, "7")), 7);
    }

    #[test]
    fn two_unsteady_tests_are_borne_and_no_failure() {
        assert_eq!(verdict(&[], 2), Ok(()));
        assert!(verdict(&[], 3).unwrap_err().contains("3 tests are unsteady"));
        assert_eq!(verdict(&["-p a --lib x".into()], 0), Err("failed: -p a --lib x".into()));
    }
}
