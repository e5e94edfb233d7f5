//! Whitespace that no one sees and every diff shows.

/// Line ends and file ends of every text.
pub(super) fn look(_path: &str, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut tell = |at: usize, what: &str| found.push((at, what.to_owned()));
    for (at, line) in (1..).zip(text.split('\n')) {
        let (line, crlf) = line.strip_suffix('\r').map_or((line, false), |line| (line, true));
        if crlf {
            tell(at, "the line ends in CR LF: end it in LF");
        }
        if line.ends_with([' ', '\t']) {
            tell(at, "whitespace before the line's end: delete it");
        }
    }
    let lines = text.lines().count();
    if !text.is_empty() && !text.ends_with('\n') {
        tell(lines, "the last line has no end: add one");
    } else if text.ends_with("\n\n") {
        tell(lines, "the file ends in an empty line: delete it");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::in_texts;
    use super::super::problem::printed;
    use super::*;
    use crate::repo::Repo;

    fn seen(text: &str) -> Vec<String> {
        printed(&in_texts(&Repo::of(&[("a.md", text)]), look))
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
