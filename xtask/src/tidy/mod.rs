//! `cargo xtask tidy`: what no compiler checks. A module for each check; each is a function of the files alone, except
//! where it has to ask git or sha256sum.

mod arrows;
mod circles;
mod committed;
mod links;
mod lints;
mod manifest;
mod openings;
mod problem;
mod readme;
mod shape;
mod shipped;
mod unsafety;
mod whitespace;
mod words;

use self::problem::{Found, Problem};
use crate::error::Error;
use crate::repo::Repo;

/// A check: its name, what must hold, and what finds out.
struct Check {
    name: &'static str,
    holds: &'static str,
    scope: Scope,
}

/// What a check reads.
enum Scope {
    /// The project as a whole.
    Project(fn(&Repo) -> Found),
    /// Each text by itself.
    Text(TextCheck),
}

/// Path and text of a file to what is to be mended in it, each with its line.
type TextCheck = fn(&str, &str) -> Vec<(usize, String)>;

const CHECKS: &[Check] = &[
    Check {
        name: "arrows",
        holds: "crates depend on each other as ARCHITECTURE.md draws it",
        scope: Scope::Project(arrows::look),
    },
    Check {
        name: "circles",
        holds: "no more than five files of a crate name each other in a circle",
        scope: Scope::Project(circles::look),
    },
    Check {
        name: "unsafe",
        holds: "memory-unsafe code lies where we said, and nowhere else",
        scope: Scope::Text(unsafety::look),
    },
    Check {
        name: "openings",
        holds: "each doc comment is understood when it is shown alone",
        scope: Scope::Text(openings::look),
    },
    Check {
        name: "lints",
        holds: "every crate inherits the workspace's lints",
        scope: Scope::Project(lints::look),
    },
    Check {
        name: "shape",
        holds: "every module says what it is, and none has grown into two",
        scope: Scope::Text(shape::look),
    },
    Check {
        name: "words",
        holds: "nothing is left for later, no path of one machine is left in",
        scope: Scope::Text(words::look),
    },
    Check {
        name: "whitespace",
        holds: "lines end in \\n alone, after no blank; files end in one",
        scope: Scope::Text(whitespace::look),
    },
    Check {
        name: "links",
        holds: "links to local files in *.md lead somewhere",
        scope: Scope::Project(links::look),
    },
    Check {
        name: "readme",
        holds: "README.md has the commands that CI runs; it and CONTRIBUTING.md stay short",
        scope: Scope::Project(readme::look),
    },
    Check {
        name: "committed",
        holds: "Cargo.lock and proptest's regressions are in git",
        scope: Scope::Project(committed::look),
    },
    Check {
        name: "shipped",
        holds: "the shipped trace and its notice are those that were published",
        scope: Scope::Project(shipped::look),
    },
];

/// Prints what is to be mended. Whether there was nothing.
pub(crate) fn run(repo: &Repo) -> Result<bool, Error> {
    let mut problems = Vec::new();
    for check in CHECKS {
        problems.extend(match check.scope {
            Scope::Project(look) => look(repo)?,
            Scope::Text(look) => in_texts(repo, look),
        });
    }
    problems.sort();
    problems.iter().for_each(|problem| println!("{problem}"));
    let count = match problems.len() {
        0 => "nothing to mend".into(),
        count => format!("{count} to mend"),
    };
    println!("tidy: {} checks of {} files, {count}", CHECKS.len(), repo.files.len());
    Ok(problems.is_empty())
}

fn in_texts(repo: &Repo, look: TextCheck) -> Vec<Problem> {
    let found =
        |(path, text)| look(path, text).into_iter().map(move |(line, what)| Problem::new(path, line, what));
    repo.texts().flat_map(found).collect()
}

/// The checks by name, for `--help`.
pub(crate) fn help() -> String {
    let row = |check: &Check| format!("  {:<10}  {}\n", check.name, check.holds);
    format!("Checks:\n{}", CHECKS.iter().map(row).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_check() {
        assert!(CHECKS.iter().all(|check| help().contains(check.name)));
    }
}
