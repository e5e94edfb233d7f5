//! The texts that a newcomer reads first: short, and with the commands that CI proves to work.

use super::links::markdown;
use super::problem::{Found, Problem};
use crate::repo::Repo;

const README: &str = "README.md";

/// The texts that must be there, and how long each may grow.
const LINES_MAX: &[(&str, usize)] = &[(README, 120), ("CONTRIBUTING.md", 110)];

/// How a line of README.md ends, in a code block of its own. `.ci/run` runs the first word for word, and `cargo xtask ci`
/// builds and runs what the second one does.
const COMMANDS: &[&str] = &["cargo test", "cargo run --release -- up"];

/// Their lengths, and README.md's commands.
pub(super) fn look(repo: &Repo) -> Found {
    let mut problems = Vec::new();
    for &(path, max) in LINES_MAX {
        let Some(text) = repo.file(path).and_then(|file| file.text.as_deref()) else {
            problems.push(Problem::new(path, 1, "it is missing: write it"));
            continue;
        };
        let lines = text.lines().count();
        if lines > max {
            let what = format!("{lines} lines, at most {max}: move what only some readers need to docs/");
            problems.push(Problem::new(path, max + 1, what));
        }
        if path == README {
            problems.extend(COMMANDS.iter().filter(|command| !has_command(text, command)).map(|command| {
                Problem::new(path, 1, format!("no line of code ends in `{command}`, which CI runs: add it"))
            }));
        }
    }
    Ok(problems)
}

/// Whether a line of a code block, fenced or indented, is `command`, alone or behind what has to go before it.
fn has_command(text: &str, command: &str) -> bool {
    markdown(text).any(|(_, line, in_fence)| {
        let in_code = in_fence || line.starts_with("    ");
        let before = line.trim().strip_suffix(command);
        in_code && before.is_some_and(|before| before.is_empty() || before.ends_with("&& "))
    })
}

#[cfg(test)]
mod tests {
    use super::super::problem::printed;
    use super::*;

    const GOOD: &str =
        "# A\n\n```sh\napt-get install -y x && cargo run --release -- up\n```\n\n    cargo test\n";

    #[test]
    fn a_good_one_passes() {
        let repo = Repo::of(&[("README.md", GOOD), ("CONTRIBUTING.md", "# C\n")]);
        assert!(look(&repo).unwrap().is_empty());
    }

    #[test]
    fn commands_stand_in_code_word_for_word() {
        assert!(!has_command("Then run cargo test\n", "cargo test"));
        assert!(!has_command("    cargo test --workspace\n", "cargo test"));
        assert!(!has_command("    my-cargo test\n", "cargo test"));
    }

    #[test]
    fn what_is_missing_or_long_is_named() {
        let long = format!("{GOOD}{}", "more\n".repeat(200));
        let said = printed(&look(&Repo::of(&[("README.md", &long)])).unwrap());
        assert_eq!(said.len(), 2);
        assert!(said[0].starts_with("README.md:121: 207 lines"), "{said:?}");
        assert!(said[1].starts_with("CONTRIBUTING.md:1: it is missing"), "{said:?}");
    }
}
