//! How far a comparison has come, on a terminal.

use fslab_compare::Observer;
use fslab_report::sample::Note;
use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar with the time left, on a terminal only.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub fn new() -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {eta} left: {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: ProgressBar::new(0).with_style(style) }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Progress {
    fn progress(&mut self, done: u64, total: u64, next: &str) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_message(next.to_owned());
    }

    fn note(&mut self, note: &Note) {
        let about = note.target.as_deref().unwrap_or("note");
        let line = format!("{about}: {}", note.text);
        // A hidden bar prints nothing.
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }
}
