//! Adds up what test binaries print, and takes the time of each of their lines.
//!
//! A test that this machine cannot run says so itself: it writes `SKIPPED: why` to `std::io::stderr()`, which the test
//! harness does not capture, and returns. The harness counts it as passed; here it is skipped. An ignored test is
//! skipped too, unless a later step of the run has run it. A test that failed and then passed alone is unsteady: it has
//! passed, and is named.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use super::times::{self, Time};

const SKIPPED: &str = "SKIPPED: ";
/// What runs binaries where it is not cargo.
pub(super) const GUEST: &str = "guest";

/// Binary and test.
pub(super) type Test = (String, String);

/// The sum so far.
#[derive(Clone, Default)]
pub(super) struct Tally {
    /// The file of a binary, to its name: what cargo calls it, package and target.
    names: HashMap<String, String>,
    /// What runs binaries now, as the table of times has it: `binary`, or [`GUEST`].
    kind: &'static str,
    /// How many tests run at a time.
    threads: usize,
    /// The binary whose lines come now.
    binary: String,
    /// When that binary began with its tests, unless it has summed them up.
    began: Option<Instant>,
    /// Its tests that have ended, and when.
    ended: Vec<(String, Instant)>,
    /// The list of those that failed, which goes before the sum, and whether its lines come now.
    listed: Vec<String>,
    is_listing: bool,
    passed: u64,
    failed: u64,
    /// Tests that failed since the last time that somebody asked.
    failures: Vec<Test>,
    /// Binaries that failed and named no test, or died with tests under way.
    died: Vec<String>,
    /// Tests that failed, and passed alone.
    pub(super) unsteady: Vec<Test>,
    /// Binary and reason of each test that gave up.
    gave_up: Vec<String>,
    /// The reasons of ignored tests.
    ignored: BTreeMap<Test, String>,
    /// What binaries and their tests took.
    pub(super) times: Vec<Time>,
}

impl Tally {
    /// Tells the name of a binary's file.
    pub(super) fn name(&mut self, file: &str, name: &str) {
        self.names.insert(file.into(), name.into());
    }

    /// Tells what runs binaries from now on, and how many of their tests at a time.
    pub(super) fn begin(&mut self, kind: &'static str, threads: usize) {
        (self.kind, self.threads) = (kind, threads);
    }

    /// Takes a line of a test run, standard output or standard error, that came at `now`.
    pub(super) fn line(&mut self, line: &str, now: Instant) {
        if self.is_listing
            && let Some(test) = line.strip_prefix("    ")
        {
            self.listed.push(test.into());
            return;
        }
        self.is_listing = line == "failures:";
        if self.is_listing {
            // What a test printed may look like such a list: the last one counts.
            self.listed.clear();
        } else if let Some((_, why)) = line.split_once(SKIPPED) {
            self.gave_up.push(format!("{} {}", self.binary, why.trim_end()));
        } else if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.began = Some(now);
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            // A guest is told each binary that it runs, and a filter that finds no test proves nothing.
            if self.kind == GUEST && count(counts, "passed") + count(counts, "failed") == 0 {
                self.died.push(format!("{} without a test", self.binary));
            }
            self.sum_up(counts);
        } else if let Some((name, outcome)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        {
            let name = name.strip_suffix(" - should panic").unwrap_or(name);
            self.ended.push((name.into(), now));
            let test = (self.binary.clone(), name.to_owned());
            if let Some(reason) = outcome.strip_prefix("ignored") {
                let reason = reason.strip_prefix(", ").unwrap_or("ignored, and no reason given");
                self.ignored.insert(test, reason.into());
                return;
            }
            self.ignored.remove(&test);
        } else if line.contains("test failed, to rerun pass `") {
            // What cargo says of a binary once it has ended.
            if self.began.is_some() || self.failures.last().is_none_or(|(binary, _)| *binary != self.binary) {
                self.died.push(self.binary.clone());
            }
            self.began = None;
        } else if let Some(binary) = self.binary(line) {
            self.binary = binary;
            self.began = None;
            self.ended.clear();
            self.listed.clear();
        }
    }

    /// Takes the failures and the times of a binary that has run all its tests.
    fn sum_up(&mut self, counts: &str) {
        self.failures.extend(self.listed.drain(..).map(|test| (self.binary.clone(), test)));
        let seconds =
            counts.rsplit_once("finished in ").and_then(|(_, time)| time.strip_suffix('s')?.parse().ok());
        let tests = self.began.take().map(|began| times::of_tests(&self.ended, began, self.threads));
        self.times.extend(seconds.map(|seconds| (self.kind, self.binary.clone(), seconds)));
        for (test, seconds) in tests.into_iter().flatten() {
            self.times.push(("test", format!("{} {test}", self.binary), seconds));
        }
    }

    /// The tests that have failed since the last call, and the binaries that failed otherwise.
    pub(super) fn take_failures(&mut self) -> (Vec<Test>, Vec<String>) {
        (std::mem::take(&mut self.failures), std::mem::take(&mut self.died))
    }

    /// Notes that a test has passed alone.
    pub(super) fn passed_alone(&mut self, test: Test) {
        self.failed -= 1;
        self.passed += 1;
        self.unsteady.push(test);
    }

    /// Notes something that is no test and could not be done here.
    pub(super) fn skip(&mut self, what: &str, why: &str) {
        self.ignored.insert(("xtask".to_owned(), what.to_owned()), why.to_owned());
    }

    /// How many tests did what they are for.
    pub(super) fn passed(&self) -> u64 {
        self.passed.saturating_sub(self.gave_up.len() as u64)
    }

    /// Says what was skipped and why, what is unsteady, and last the sum. A run that failed has at least one failure:
    /// where it was no test, then what stands above.
    pub(super) fn print(&self, run_failed: bool) {
        for ((binary, test), why) in &self.ignored {
            println!("{SKIPPED}{binary} {test}: {why}");
        }
        self.gave_up.iter().for_each(|why| println!("{SKIPPED}{why}"));
        for (binary, test) in &self.unsteady {
            println!("UNSTEADY: {binary} {test}: it failed, and then passed alone");
        }
        println!("{}", self.sum(run_failed));
    }

    fn sum(&self, run_failed: bool) -> String {
        let failed = self.failed.max(run_failed.into());
        let skipped = self.gave_up.len() + self.ignored.len();
        format!("{} passed, {failed} failed, {skipped} skipped", self.passed())
    }

    /// The binary that cargo says it starts.
    fn binary(&self, line: &str) -> Option<String> {
        let line = line.trim_start();
        if line.starts_with("Doc-tests ") {
            return Some(line.into());
        }
        let (_, path) = line.strip_prefix("Running ")?.rsplit_once('(')?;
        let file = path.trim_end_matches(')').rsplit('/').next()?;
        Some(self.names.get(file).cloned().unwrap_or_else(|| file.into()))
    }
}

/// The number before `what` in `ok. 3 passed; 0 failed; ...`.
fn count(counts: &str, what: &str) -> u64 {
    let before = counts.split_once(what).map_or("", |(before, _)| before);
    before.split_whitespace().last().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &str) -> Tally {
        let mut tally = Tally::default();
        tally.begin("binary", 2);
        tally.name("it-4a1b", "-p sidelong --test it");
        tally.name("it-77ff", "-p sidelong --test it");
        lines.lines().for_each(|line| tally.line(line, Instant::now()));
        tally
    }

    const DEBUG: &str = "
     Running tests/it/main.rs (target/debug/deps/it-4a1b)
running 2 tests
test model_large ... ignored, minutes without optimization
test lease::tests::expires - should panic ... ok
test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s
   Doc-tests sidelong_state
test crates/state/src/lib.rs - (line 3) ... ignored
test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn sums_over_binaries() {
        let tally = tally(DEBUG);
        assert_eq!(tally.sum(false), "1 passed, 0 failed, 2 skipped");
        let reasons: Vec<_> = tally.ignored.values().map(String::as_str).collect();
        assert_eq!(reasons, ["minutes without optimization", "ignored, and no reason given"]);
    }

    #[test]
    fn an_ignored_test_that_a_later_step_runs_is_not_skipped() {
        let release = "
     Running tests/it/main.rs (/cache/release/deps/it-77ff)
test model_large ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 9.00s
";
        assert_eq!(tally(&format!("{DEBUG}{release}")).sum(false), "2 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn a_test_that_gives_up_is_skipped() {
        let tally = tally(
            "     Running tests/real.rs (/t/debug/deps/real-0f)\nSKIPPED: netns: needs root\ntest netns ... SKIPPED: cgroup: no cgroup2 here\nok\n\
             test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s\n",
        );
        assert_eq!(tally.sum(false), "1 passed, 0 failed, 2 skipped");
        assert_eq!(tally.gave_up, ["real-0f netns: needs root", "real-0f cgroup: no cgroup2 here"]);
    }

    #[test]
    fn a_failed_run_never_sums_up_to_no_failure() {
        let failed = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(tally(failed).sum(true), "1 passed, 2 failed, 0 skipped");
        assert_eq!(tally("error: could not compile").sum(true), "0 passed, 1 failed, 0 skipped");
    }

    /// What cargo 1.95 printed of four binaries and a page.
    const FAILED: &str = "\
     Running unittests src/lib.rs (t/debug/deps/s_a-59802c519918a3df)

running 1 test
test fine ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.42s

     Running tests/aborts.rs (t/debug/deps/aborts-2589f7185979589e)

running 2 tests
test good ... FAILED
error: test failed, to rerun pass `-p s-a --test aborts`

Caused by:
  process didn't exit successfully: `/t/debug/deps/aborts-2589f7185979589e` (signal: 6, SIGABRT: process abort signal)
     Running tests/other.rs (t/debug/deps/other-1)
error: test failed, to rerun pass `-p s-a --test other`
     Running tests/it/main.rs (t/debug/deps/it-4a1b)

running 3 tests
test m::good ... ok
test m::unsteady - should panic ... FAILED
test m::sp - should panic ... ok

failures:

---- m::unsteady stdout ----

thread 'm::unsteady' (28018) panicked at b/tests/it/main.rs:2:121:
failures:
    printed by the test

failures:
    m::unsteady

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.37s

error: test failed, to rerun pass `-p s-b --test it`
   Doc-tests s_a

running 1 test
test a/src/lib.rs - f (line 2) ... FAILED

failures:
    a/src/lib.rs - f (line 2)

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.35s

all doctests ran in 1.36s; merged doctests compilation took 1.01s
error: doctest failed, to rerun pass `-p s-a --doc`
error: 4 targets failed:
    `-p s-a --test aborts`
";

    #[test]
    fn failed_tests_are_named_and_binaries_that_died() {
        let mut tally = tally(FAILED);
        let (failures, died) = tally.take_failures();
        let unsteady = ("-p sidelong --test it".to_owned(), "m::unsteady".to_owned());
        let page = ("Doc-tests s_a".to_owned(), "a/src/lib.rs - f (line 2)".to_owned());
        assert_eq!(failures, [unsteady.clone(), page]);
        assert_eq!(died, ["aborts-2589f7185979589e", "other-1"]);
        assert_eq!(tally.take_failures(), (vec![], vec![]));
        assert_eq!(tally.sum(true), "3 passed, 2 failed, 0 skipped");
        tally.passed_alone(unsteady);
        assert_eq!(tally.sum(true), "4 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_guest_runs_a_test_of_each_binary() {
        let mut tally = Tally::default();
        tally.begin(GUEST, 1);
        let none = "     Running (/t/it-1)\ntest result: ok. 0 passed; 0 failed; 0 ignored; 9 filtered out; finished in 0.00s";
        none.lines().for_each(|line| tally.line(line, Instant::now()));
        assert_eq!(tally.take_failures().1, ["it-1 without a test"]);
    }

    #[test]
    fn times_are_taken_of_binaries_and_their_tests() {
        let names: Vec<_> =
            tally(DEBUG).times.into_iter().map(|(kind, name, _)| format!("{kind}: {name}")).collect();
        let it = "-p sidelong --test it";
        assert_eq!(
            names,
            [
                format!("binary: {it}"),
                format!("test: {it} lease::tests::expires"),
                format!("test: {it} model_large"),
                "binary: Doc-tests sidelong_state".into()
            ]
        );
    }
}
