//! What a build or a test run writes and the next one must find: the lock file, and the cases that once broke a property.

use std::process::Command;

use super::problem::{Found, Problem};
use crate::error::Error;
use crate::exec;
use crate::repo::Repo;

const LOCK: &str = "Cargo.lock";

/// Names such as proptest gives to its regressions, beside src/ and beside the tests.
const REGRESSIONS: &[&str] = &[
    "crates/policy/proptest-regressions/balance.txt",
    "crates/policy/tests/proptest-regressions/bursts.txt",
];

/// They are in git, and no pattern keeps them out.
pub(super) fn look(repo: &Repo) -> Found {
    let mut problems = missing(repo);
    let ignored = ignored(repo)?;
    problems.extend(ignored.lines().filter_map(by_pattern));
    Ok(problems)
}

fn missing(repo: &Repo) -> Vec<Problem> {
    let untracked = repo.files.iter().filter(|file| !file.tracked);
    let regressions = untracked.filter(|file| file.path.contains("proptest-regressions"));
    let mut problems: Vec<_> = regressions
        .map(|file| Problem::new(&file.path, 1, "a case that broke a property is not in git: git add it"))
        .collect();
    if !repo.file(LOCK).is_some_and(|file| file.tracked) {
        problems.push(Problem::new(LOCK, 1, "the versions that were tested are not in git: git add it"));
    }
    problems
}

/// Which patterns keep out what must be in, a line each: `file:line:pattern`, a tab, the path.
fn ignored(repo: &Repo) -> Result<String, Error> {
    let mut git = Command::new("git");
    git.current_dir(&repo.root).args(["check-ignore", "--verbose", "--no-index", LOCK]).args(REGRESSIONS);
    match exec::output(&mut git) {
        // None is ignored.
        Err(Error::Exit { status, .. }) if status.code() == Some(1) => Ok(String::new()),
        said => said,
    }
}

fn by_pattern(said: &str) -> Option<Problem> {
    let (source, path) = said.split_once('\t')?;
    let mut parts = source.splitn(3, ':');
    let (file, line, pattern) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
    Some(Problem::new(file, line, format!("the pattern {pattern} keeps {path} out of git: narrow it")))
}

#[cfg(test)]
mod tests {
    use super::super::problem::printed;
    use super::*;

    #[test]
    fn what_is_not_in_git_is_named() {
        let mut repo = Repo::of(&[("Cargo.lock", ""), ("crates/a/proptest-regressions/b.txt", "cc 12\n")]);
        assert!(missing(&repo).is_empty());
        repo.files.iter_mut().for_each(|file| file.tracked = false);
        let said = printed(&missing(&repo));
        assert_eq!(said.len(), 2);
        assert!(said[0].starts_with("crates/a/proptest-regressions/b.txt:1:"), "{said:?}");
        assert!(said[1].starts_with("Cargo.lock:1:"), "{said:?}");
    }

    #[test]
    fn the_pattern_is_named_where_it_stands() {
        let problem = by_pattern(".gitignore:3:*.lock\tCargo.lock").expect("it can be read");
        assert_eq!(
            problem.to_string(),
            ".gitignore:3: the pattern *.lock keeps Cargo.lock out of git: narrow it"
        );
    }

    #[test]
    fn git_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        exec::output(Command::new("git").current_dir(dir.path()).args(["init", "--quiet"])).unwrap();
        let repo = Repo { root: dir.path().into(), files: Vec::new() };
        assert_eq!(ignored(&repo).unwrap(), "");
        std::fs::write(dir.path().join(".gitignore"), "Cargo.lock\n").unwrap();
        assert_eq!(ignored(&repo).unwrap().lines().filter_map(by_pattern).count(), 1);
    }
}
