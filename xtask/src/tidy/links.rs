//! Links between the project's own texts. Those to other hosts are not followed: a check must not need the network.

use super::problem::{Found, Problem};
use crate::repo::Repo;

/// Every link of every *.md that names a file.
pub(super) fn look(repo: &Repo) -> Found {
    let mut problems = Vec::new();
    for (path, text) in repo.texts_with("md") {
        for (line, target) in targets(text) {
            let file = target.split(['#', '?']).next().unwrap_or_default();
            if file.is_empty() || is_elsewhere(file) {
                continue;
            }
            if !resolve(path, file).is_some_and(|file| repo.has(&file)) {
                let what =
                    format!("the link to {target} leads nowhere: name a file of the project, from here");
                problems.push(Problem::new(path, line, what));
            }
        }
    }
    Ok(problems)
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// What `text` links to, each with its line: `[..](target)` and `[..]: target`, outside of code.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, line, _) in markdown(text).filter(|(.., in_code)| !in_code) {
        // Every other piece between backticks is code.
        for prose in line.split('`').step_by(2) {
            found.extend(prose.split("](").skip(1).filter_map(|rest| Some((at, target(rest)?))));
        }
        if line.starts_with('[') {
            found.extend(line.split_once("]: ").and_then(|(_, rest)| Some((at, target(rest)?))));
        }
    }
    found
}

/// The target that `rest` begins with, without a title.
fn target(rest: &str) -> Option<&str> {
    match rest.strip_prefix('<') {
        Some(rest) => rest.split('>').next(),
        None => rest.split([')', ' ']).next(),
    }
}

/// `target` as seen from the file at `from`, as a path from the root: `None` where it leaves the project.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<_> = from.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The lines of a Markdown text, counted from 1, each with whether it lies in a fenced block of code.
pub(super) fn markdown(text: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut in_code = false;
    (1..).zip(text.lines()).map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (at, line, in_code || is_fence)
    })
}

#[cfg(test)]
mod tests {
    use super::super::problem::printed;
    use super::*;

    #[test]
    fn targets_are_found_outside_of_code() {
        let text = "\
[a](a.md) and [b](<b c.md> \"title\"), `[no](code)` [d](d.md \"title\")
```
[no](fenced)
```
[ref]: e.md
";
        assert_eq!(targets(text), [(1, "a.md"), (1, "b c.md"), (1, "d.md"), (5, "e.md")]);
    }

    #[test]
    fn a_target_is_seen_from_its_file() {
        assert_eq!(resolve("docs/a/b.md", "../c.md").as_deref(), Some("docs/c.md"));
        assert_eq!(resolve("docs/b.md", "./c/").as_deref(), Some("docs/c"));
        assert_eq!(resolve("docs/b.md", "/README.md").as_deref(), Some("README.md"));
        assert_eq!(resolve("README.md", "../up.md"), None);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named() {
        let repo = Repo::of(&[
            ("README.md", "[x](https://a.b/c) [y](docs) [z](docs/a.md#part) [s](#here)\n[w](docs/w.md)\n"),
            ("docs/a.md", "[up](../README.md)\n"),
        ]);
        let said = printed(&look(&repo).unwrap());
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("README.md:2: the link to docs/w.md leads nowhere"), "{said:?}");
    }
}
