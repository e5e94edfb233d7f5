//! The shape of Rust files: each begins by saying what it is, and none is long enough to be two.

/// STYLE 9: a file past some 600 lines has become two things. A little above, so that the limit is no target.
const LINES_MAX: usize = 700;
/// Tests are read one at a time, and may stand longer together.
const TEST_LINES_MAX: usize = 900;

/// Length and beginning of every Rust file.
pub(super) fn look(path: &str, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    if !path.ends_with(".rs") {
        return found;
    }
    let (max, mend) = if is_test(path) {
        (TEST_LINES_MAX, "split it by what is tested")
    } else {
        (LINES_MAX, "it has become two things, give each its module")
    };
    let lines = text.lines().count();
    if lines > max {
        found.push((max + 1, format!("{lines} lines, at most {max}: {mend}")));
    }
    // The tests of a module in a file of their own: the module says what it is.
    if !path.ends_with("/tests.rs") && !text.starts_with("//!") {
        found.push((1, "begin with `//!`: what this is, what it never does, who may call it".to_owned()));
    }
    found
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/benches/")
}

#[cfg(test)]
mod tests {
    use super::super::in_texts;
    use super::super::problem::printed;
    use super::*;
    use crate::repo::Repo;

    #[test]
    fn a_long_file_is_named_at_its_first_line_too_many() {
        let long = format!("//! Long.\n{}", "\n".repeat(800));
        let repo = Repo::of(&[("crates/a/src/long.rs", &long), ("crates/a/tests/long.rs", &long)]);
        let said = printed(&in_texts(&repo, look));
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("crates/a/src/long.rs:701: 801 lines, at most 700"), "{said:?}");
    }

    #[test]
    fn a_module_begins_with_what_it_is() {
        let repo = Repo::of(&[
            ("crates/a/src/mute.rs", "use std::fmt;\n"),
            ("crates/a/src/told.rs", "//! Told.\n"),
            ("crates/a/src/told/tests.rs", "use super::*;\n"),
        ]);
        let said = printed(&in_texts(&repo, look));
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("crates/a/src/mute.rs:1: begin with"), "{said:?}");
    }
}
