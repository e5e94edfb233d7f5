//! The cases, by what they are about.

mod answers;
mod bodies;
mod exchanges;
mod fields;
mod lines;

use crate::conformance::case::Case;

/// All cases, each under a name of its own.
pub(crate) fn all() -> Vec<Case> {
    [lines::cases(), fields::cases(), bodies::cases(), exchanges::cases(), answers::cases()].concat()
}

/// A body that is easy to compare, of this many bytes.
pub(crate) fn letters(count: usize) -> String {
    (b'a'..=b'z')
        .cycle()
        .enumerate()
        .map(|(k, letter)| if k % 1000 == 999 { '.' } else { letter as char })
        .take(count)
        .collect()
}
