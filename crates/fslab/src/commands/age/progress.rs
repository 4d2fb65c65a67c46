//! The progress bar of a replay.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a progress bar with rate and remaining time. It is hidden unless stderr is a terminal.
pub(super) fn bar(total: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    let template = "{bar:30} {pos}/{len} operations, {per_sec}, {eta} left: {msg}";
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
