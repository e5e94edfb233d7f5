//! Doc comments that are understood only below the one before them. Whoever hovers over a name, or searches, sees each alone.

/// How such comments begin. Each ends at a word.
const OPENINGS: &[&str] = &["Those", "That of", "In one"];
/// What follows `The same` in a comment that says nowhere the same as what. `The same seed gives the same trace` says it.
const AFTER_SAME: &[&str] = &[
    "for",
    "of",
    "with",
    "as",
    "in",
    "where",
    "when",
    "if",
    "but",
    "from",
    "on",
    "at",
    "over",
    "under",
    "beside",
    "including",
    "before",
    "after",
    "without",
];

/// Every Rust file.
pub(super) fn look(path: &str, text: &str) -> Vec<(usize, String)> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut is_within = false;
    for (at, line) in (1..).zip(text.lines()) {
        let comment = line.trim_start().strip_prefix("/// ");
        if let Some(begin) = comment.filter(|comment| !is_within && is_of_another(comment)) {
            let words: Vec<_> = begin.split(' ').take(3).collect();
            found.push((
                at,
                format!("a doc comment that begins \"{}\" is shown alone: name what it is", words.join(" ")),
            ));
        }
        is_within = line.trim_start().starts_with("///");
    }
    found
}

fn is_of_another(comment: &str) -> bool {
    let begins = |opening: &&str| {
        comment.strip_prefix(*opening).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let after = comment.strip_prefix("The same").and_then(|rest| match rest.strip_prefix(' ') {
        Some(rest) => rest.split([' ', ',', '.', ';']).next().map(|word| AFTER_SAME.contains(&word)),
        None => Some(rest.starts_with(['.', ',', ';'])),
    });
    after == Some(true) || OPENINGS.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_that_needs_the_one_before_is_found() {
        for begin in [
            "The same for a node.",
            "The same.",
            "The same, dashed.",
            "Those of one thread.",
            "In one round.",
        ] {
            let text = format!("/// One.\nfn a() {{}}\n\n    /// {begin}\n    /// Those.\nfn b() {{}}\n");
            let found = look("a.rs", &text);
            assert_eq!(found.len(), 1, "{begin}: {found:?}");
            assert_eq!(found[0].0, 4);
            assert!(look("a.md", &text).is_empty());
        }
        for begin in ["The same seed gives the same trace.", "Inside.", "The sameness."] {
            assert!(look("a.rs", &format!("/// {begin}\n")).is_empty(), "{begin}");
        }
    }
}
