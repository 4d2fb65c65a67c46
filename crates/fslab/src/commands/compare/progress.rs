//! The progress of a comparison: a bar on a terminal, or else a line every ten seconds.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use fslab_compare::Observer;
use fslab_report::sample::Note;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::progress::{INTERVAL, shown_time_left};

/// Shows the number of completed runs, and the remaining time at the rate so far.
pub struct Progress {
    bar: ProgressBar,
    begun: Instant,
    shown: Instant,
    /// The time since the start after which no round begins.
    limit: Option<Duration>,
}

impl Progress {
    pub fn new(limit: Option<Duration>) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        // Nothing can be drawn before the number of runs is known.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        let now = Instant::now();
        Self { bar: bar.with_style(style), begun: now, shown: now, limit }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Progress {
    fn progress(&mut self, done: u64, total: u64, next: &str) {
        let left = shown_time_left(self.begun.elapsed(), done, total, self.limit);
        let next = if next.is_empty() { String::new() } else { format!(": {next}") };
        let line = format!("{done} of {total} runs{left}{next}");
        if stderr().is_terminal() {
            if self.bar.is_hidden() {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            self.bar.set_length(total);
            self.bar.set_position(done);
            self.bar.set_message(line);
        } else if self.shown.elapsed() >= INTERVAL {
            eprintln!("{line}");
            self.shown = Instant::now();
        }
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
