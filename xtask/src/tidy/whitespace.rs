//! Whitespace that no one sees and every diff shows.

use super::{Found, Problem};
use crate::repo::Repo;

/// Line ends and file ends of every text.
pub(super) fn look(repo: &Repo) -> Found {
    let mut problems = Vec::new();
    for (path, text) in repo.texts().filter(|(_, text)| !text.is_empty()) {
        for (i, line) in text.split('\n').enumerate() {
            let (line, crlf) = line.strip_suffix('\r').map_or((line, false), |line| (line, true));
            if crlf {
                problems.push(Problem::new(path, i + 1, "the line ends in CR LF: end it in LF"));
            }
            if line.ends_with([' ', '\t']) {
                problems.push(Problem::new(path, i + 1, "whitespace before the line's end: delete it"));
            }
        }
        let lines = text.lines().count();
        if !text.ends_with('\n') {
            problems.push(Problem::new(path, lines, "the last line has no end: add one"));
        } else if text.ends_with("\n\n") {
            problems.push(Problem::new(path, lines, "the file ends in an empty line: delete it"));
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::super::printed;
    use super::*;

    fn seen(text: &str) -> Vec<String> {
        printed(&look(&Repo::of(&[("a.md", text)])).unwrap())
    }

    #[test]
    fn a_clean_text_passes() {
        assert!(seen("one\n\n  two\n").is_empty());
        assert!(seen("").is_empty());
    }

    #[test]
    fn what_is_not_seen_is_named() {
        assert_eq!(seen("one \ntwo\t\n").len(), 2);
        assert!(seen("one\r\ntwo\n")[0].starts_with("a.md:1: the line ends in CR LF"));
        assert!(seen("one\ntwo")[0].starts_with("a.md:2: the last line has no end"));
        assert!(seen("one\n\n")[0].starts_with("a.md:2: the file ends in an empty line"));
    }
}
