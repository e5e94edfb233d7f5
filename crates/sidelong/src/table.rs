//! Tables as text.

use std::fmt::Write as _;

/// A table with columns as wide as their content; the first `texts` are aligned left.
pub(crate) fn table(out: &mut String, head: &[&str], rows: Vec<Vec<String>>, texts: usize) {
    let head: Vec<_> = head.iter().map(|title| (*title).to_owned()).collect();
    let width = |column: usize| {
        let cells = std::iter::once(&head).chain(&rows).map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    for row in std::iter::once(&head).chain(&rows) {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if index == 0 { "" } else { "  " };
            // Writing to a string does not fail.
            let _ = if index < texts {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}
