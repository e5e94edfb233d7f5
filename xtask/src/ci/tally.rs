//! Adds up what test binaries print.
//!
//! A test that this machine cannot run says so itself: it writes `SKIPPED: why` to `std::io::stderr()`, which the test
//! harness does not capture, and returns. The harness counts it as passed; here it is skipped. An ignored test is
//! skipped too, unless a later step of the run has run it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::Error;

const SKIPPED: &str = "SKIPPED: ";

/// The sum so far.
#[derive(Default)]
pub(super) struct Tally {
    /// The binary whose lines come now.
    binary: String,
    passed: u64,
    failed: u64,
    /// Binary and reason of each test that gave up.
    gave_up: Vec<String>,
    /// Binary and test, to the reason.
    ignored: BTreeMap<(String, String), String>,
}

impl Tally {
    /// Of what has been printed to a file.
    pub(super) fn of(log: &Path) -> Result<Tally, Error> {
        let bytes = std::fs::read(log).map_err(|source| Error::Read { path: log.into(), source })?;
        let mut tally = Tally::default();
        String::from_utf8_lossy(&bytes).lines().for_each(|line| tally.line(line));
        Ok(tally)
    }

    /// Takes a line of a test run, standard output or standard error.
    pub(super) fn line(&mut self, line: &str) {
        if let Some((_, why)) = line.split_once(SKIPPED) {
            self.gave_up.push(format!("{} {}", self.binary, why.trim_end()));
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
        } else if let Some((name, outcome)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        {
            let test = (self.binary.clone(), name.to_owned());
            match outcome.strip_prefix("ignored") {
                Some(reason) => {
                    let reason = reason.strip_prefix(", ").unwrap_or("ignored, and no reason given");
                    self.ignored.insert(test, reason.into());
                }
                None => _ = self.ignored.remove(&test),
            }
        } else if let Some(binary) = binary(line) {
            self.binary = binary.into();
        }
    }

    /// Notes something that is no test and could not be done here.
    pub(super) fn skip(&mut self, what: &str, why: &str) {
        self.ignored.insert(("xtask".to_owned(), what.to_owned()), why.to_owned());
    }

    /// How many tests did what they are for.
    pub(super) fn passed(&self) -> u64 {
        self.passed.saturating_sub(self.gave_up.len() as u64)
    }

    /// Says what was skipped and why, and last the sum. A run that failed has at least one failure: where it was no
    /// test, then what stands above.
    pub(super) fn print(&self, run_failed: bool) {
        for ((binary, test), why) in &self.ignored {
            println!("{SKIPPED}{binary} {test}: {why}");
        }
        self.gave_up.iter().for_each(|why| println!("{SKIPPED}{why}"));
        println!("{}", self.sum(run_failed));
    }

    fn sum(&self, run_failed: bool) -> String {
        let failed = self.failed.max(run_failed.into());
        let skipped = self.gave_up.len() + self.ignored.len();
        format!("{} passed, {failed} failed, {skipped} skipped", self.passed())
    }
}

/// The number before `what` in `ok. 3 passed; 0 failed; ...`.
fn count(counts: &str, what: &str) -> u64 {
    let before = counts.split_once(what).map_or("", |(before, _)| before);
    before.split_whitespace().last().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The binary that cargo says it starts: the same name in every profile, without its hash.
fn binary(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if line.starts_with("Doc-tests ") {
        return Some(line);
    }
    let (_, path) = line.strip_prefix("Running ")?.rsplit_once('(')?;
    let file = path.trim_end_matches(')').rsplit('/').next()?;
    Some(file.rsplit_once('-').map_or(file, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &str) -> Tally {
        let mut tally = Tally::default();
        lines.lines().for_each(|line| tally.line(line));
        tally
    }

    const DEBUG: &str = "
     Running unittests src/lib.rs (target/debug/deps/sidelong_state-4a1b)
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
        assert_eq!(reasons, ["ignored, and no reason given", "minutes without optimization"]);
    }

    #[test]
    fn an_ignored_test_that_a_later_step_runs_is_not_skipped() {
        let release = "
     Running unittests src/lib.rs (/cache/release/deps/sidelong_state-77ff)
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
        assert_eq!(tally.gave_up, ["real netns: needs root", "real cgroup: no cgroup2 here"]);
    }

    #[test]
    fn a_failed_run_never_sums_up_to_no_failure() {
        let failed = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(tally(failed).sum(true), "1 passed, 2 failed, 0 skipped");
        assert_eq!(tally("error: could not compile").sum(true), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn binaries_are_known_without_their_hash() {
        assert_eq!(binary("     Running tests/kill.rs (/t/debug/deps/kill_test-0f)"), Some("kill_test"));
        assert_eq!(binary("   Doc-tests sidelong"), Some("Doc-tests sidelong"));
        assert_eq!(binary("   Compiling sidelong v0.1.0 (/t/crates)"), None);
    }
}
