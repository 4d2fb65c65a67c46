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

/// How often the spinner turns.
const TICK: Duration = Duration::from_millis(200);

/// How much a command prints.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Verbosity {
    /// Print a line for each file as well as sums
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
    /// All files and bytes, where they are known.
    total: Option<(u64, u64)>,
    begun: Instant,
    shown: Instant,
}

impl Counts {
    fn so_far(&self, done: &str) -> String {
        let Some((files, bytes)) = self.total else {
            let (files, bytes) = (units::counted(self.files, "file"), units::bytes(self.bytes));
            return format!("{files} {done}, {bytes}");
        };
        let left = time_left(self.begun.elapsed(), self.bytes, bytes);
        let left = left.map(|left| format!(", {} left", units::rough(left))).unwrap_or_default();
        format!(
            "{} of {} {done}, {} of {}{left}",
            self.files,
            units::counted(files, "file"),
            units::bytes(self.bytes),
            units::bytes(bytes)
        )
    }
}

/// The time that the rest takes at the rate so far; `None` where nothing was done yet.
fn time_left(passed: Duration, done: u64, all: u64) -> Option<Duration> {
    let rest = all.saturating_sub(done) as f64 / done as f64;
    Duration::try_from_secs_f64(passed.as_secs_f64() * rest).ok()
}

impl Progress {
    /// Begins with no file. Nothing is shown where `is_quiet`.
    #[must_use]
    pub fn new(done: &'static str, is_quiet: bool) -> Self {
        let bar = if is_quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            // The spinner turns within a large file, too.
            bar.enable_steady_tick(TICK);
        }
        let has_lines = !is_quiet && !stderr().is_terminal();
        let now = Instant::now();
        let counts = Counts { files: 0, bytes: 0, total: None, begun: now, shown: now };
        Self { done, bar, has_lines, counts: Mutex::new(counts) }
    }

    /// Whether anybody sees the progress.
    #[must_use]
    pub fn is_seen(&self) -> bool {
        self.has_lines || !self.bar.is_hidden()
    }

    /// All there is to do: the time that is left is shown from now on.
    pub fn expect(&self, files: u64, bytes: u64) {
        let mut counts = self.counts.lock();
        counts.total = Some((files, bytes));
        counts.begun = Instant::now();
    }

    /// Counts a file of so many bytes.
    pub fn add(&self, path: &Path, bytes: u64) {
        let mut counts = self.counts.lock();
        counts.files += 1;
        counts.bytes += bytes;
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{}: {}", counts.so_far(self.done), path.display()));
            self.bar.tick();
        } else if self.has_lines && counts.shown.elapsed() >= INTERVAL {
            eprintln!("fslab: {} so far", counts.so_far(self.done));
            counts.shown = Instant::now();
        }
    }

    /// Clears the line of progress for good.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints something while the line of progress is hidden.
    pub fn print(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_its_bytes() {
        let second = Duration::from_secs(1);
        assert_eq!(time_left(second, 100, 400), Some(3 * second));
        assert_eq!(time_left(second, 400, 400), Some(Duration::ZERO));
        assert_eq!(time_left(second, 500, 400), Some(Duration::ZERO));
        assert_eq!(time_left(second, 0, 400), None);
        let mut counts = Counts {
            files: 1,
            bytes: 5,
            total: None,
            begun: Instant::now(),
            shown: Instant::now(),
        };
        assert_eq!(counts.so_far("verified"), "1 file verified, 5 B");
        counts.total = Some((2, 10));
        assert!(counts.so_far("verified").starts_with("1 of 2 files verified, 5 B of 10 B, "));
    }
}
