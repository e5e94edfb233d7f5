//! Progress on standard error: on a terminal a bar, drawn by indicatif. Elsewhere the caller prints a line for each
//! event, or nothing. The bar has no colours, and disappears when it is dropped.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// A bar of `total` steps. `template` is indicatif's.
pub(crate) fn bar(total: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a template of this program");
    ProgressBar::new(total).with_style(style.progress_chars("#>-")).with_finish(ProgressFinish::AndClear)
}
