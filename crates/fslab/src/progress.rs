//! Progress of long commands, on standard error: one line that is redrawn on a terminal, and a new
//! line every ten seconds elsewhere.

use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use crate::units;

/// The time between two lines where standard error is not a terminal.
const INTERVAL: Duration = Duration::from_secs(10);

/// How much a command prints.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Verbosity {
    /// Print a line for each file
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
}

/// Counts files and shows how many there are so far.
pub struct Progress {
    /// What is done with each file, such as "verified".
    done: &'static str,
    bar: ProgressBar,
    has_lines: bool,
    counts: Mutex<Counts>,
}

struct Counts {
    files: u64,
    bytes: u64,
    shown: Instant,
}

impl Progress {
    /// Begins with no file. Nothing is shown where `is_quiet`.
    #[must_use]
    pub fn new(done: &'static str, is_quiet: bool) -> Self {
        let bar = if is_quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        let has_lines = !is_quiet && !stderr().is_terminal();
        let counts = Counts { files: 0, bytes: 0, shown: Instant::now() };
        Self { done, bar, has_lines, counts: Mutex::new(counts) }
    }

    /// Counts a file of so many bytes.
    pub fn add(&self, path: &Path, bytes: u64) {
        let mut counts = self.counts.lock();
        counts.files += 1;
        counts.bytes += bytes;
        let so_far = || {
            let (files, bytes) = (units::counted(counts.files, "file"), units::bytes(counts.bytes));
            format!("{files} {}, {bytes}", self.done)
        };
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{}: {}", so_far(), path.display()));
            self.bar.tick();
        } else if self.has_lines && counts.shown.elapsed() >= INTERVAL {
            eprintln!("fslab: {} so far", so_far());
            counts.shown = Instant::now();
        }
    }

    /// Prints something while the line of progress is hidden.
    pub fn print(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
