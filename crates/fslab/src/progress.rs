//! Shows the progress of long commands on standard error: one line that is redrawn on a terminal,
//! otherwise a new line every ten seconds.

use std::collections::HashMap;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use crate::units;

/// The time between two lines if standard error is not a terminal.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// The time between two updates of the progress line.
const TICK: Duration = Duration::from_millis(200);

/// How much a command prints.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Verbosity {
    /// Print a line for each file, in addition to the totals
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
}

/// Counts files and shows the number so far.
pub struct Progress {
    shared: Arc<Shared>,
    /// The thread that shows the progress; it ends when the sender is dropped.
    ticker: Option<(Sender<()>, JoinHandle<()>)>,
}

/// The state that is shared with the thread that shows the progress.
struct Shared {
    /// The past participle of the work on each file, such as "verified".
    done: &'static str,
    bar: ProgressBar,
    has_lines: bool,
    counts: Mutex<Counts>,
}

/// A handle for reporting the progress within files.
pub struct Within {
    shared: Arc<Shared>,
}

struct Counts {
    files: u64,
    bytes: u64,
    /// Completed bytes of each file in progress.
    under_way: HashMap<PathBuf, u64>,
    last: PathBuf,
    /// The total numbers of files and bytes, if known.
    total: Option<(u64, u64)>,
    begun: Instant,
    shown: Instant,
}

impl Counts {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            files: 0,
            bytes: 0,
            under_way: HashMap::new(),
            last: PathBuf::new(),
            total: None,
            begun: now,
            shown: now,
        }
    }

    fn is_begun(&self) -> bool {
        self.files > 0 || self.total.is_some() || !self.under_way.is_empty()
    }

    fn so_far(&self, done: &str) -> String {
        let so_far = self.bytes + self.under_way.values().sum::<u64>();
        let Some((files, bytes)) = self.total else {
            let (files, bytes) = (units::counted(self.files, "file"), units::bytes(so_far));
            return format!("{files} {done}, {bytes}");
        };
        let left = shown_time_left(self.begun.elapsed(), so_far, bytes, None);
        format!(
            "{} of {} {done}, {} of {}{left}",
            self.files,
            units::counted(files, "file"),
            units::bytes(so_far),
            units::bytes(bytes)
        )
    }
}

/// Formats the remaining time at the rate so far, with a comma before it; empty if it is unknown.
/// After `limit`, no round of the work begins, so the work then ends at about this time.
pub fn shown_time_left(passed: Duration, done: u64, all: u64, limit: Option<Duration>) -> String {
    let Some(left) = time_left(passed, done, all) else { return String::new() };
    match limit.map(|limit| limit.saturating_sub(passed)) {
        // The last round has begun. Its duration is unknown.
        Some(Duration::ZERO) => String::new(),
        Some(most) if most < left => format!(", about {} left", units::rough(most)),
        _ => format!(", {} left", units::rough(left)),
    }
}

/// Returns the remaining time at the rate so far; `None` if nothing is done yet.
fn time_left(passed: Duration, done: u64, all: u64) -> Option<Duration> {
    let rest = all.saturating_sub(done) as f64 / done as f64;
    Duration::try_from_secs_f64(passed.as_secs_f64() * rest).ok()
}

impl Shared {
    /// Redraws the progress line on a terminal. Without a terminal, prints a line at most every
    /// [`INTERVAL`].
    fn show(&self) {
        let mut counts = self.counts.lock();
        if !self.bar.is_hidden() {
            let last = counts.last.display();
            self.bar.set_message(format!("{}: {last}", counts.so_far(self.done)));
            self.bar.tick();
        } else if self.has_lines && counts.is_begun() && counts.shown.elapsed() >= INTERVAL {
            eprintln!("fslab: {} so far", counts.so_far(self.done));
            counts.shown = Instant::now();
        }
    }
}

impl Progress {
    /// Starts at zero files. Shows nothing if `is_quiet`.
    #[must_use]
    pub fn new(done: &'static str, is_quiet: bool) -> Self {
        let bar = if is_quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        let has_lines = !is_quiet && !stderr().is_terminal();
        let shared = Arc::new(Shared { done, bar, has_lines, counts: Mutex::new(Counts::new()) });
        let mut progress = Self { shared, ticker: None };
        if progress.is_seen() {
            progress.ticker = ticker(&progress.shared);
        }
        progress
    }

    /// Returns whether the progress is shown at all.
    #[must_use]
    pub fn is_seen(&self) -> bool {
        self.shared.has_lines || !self.shared.bar.is_hidden()
    }

    /// Sets the total. From now on, the remaining time is shown.
    pub fn expect(&self, files: u64, bytes: u64) {
        let mut counts = self.shared.counts.lock();
        counts.total = Some((files, bytes));
        counts.begun = Instant::now();
    }

    /// Returns a handle for the progress within files. Call [`Self::add`] for each completed file.
    #[must_use]
    pub fn within(&self) -> Within {
        Within { shared: Arc::clone(&self.shared) }
    }

    /// Counts a completed file of `bytes` bytes.
    pub fn add(&self, path: &Path, bytes: u64) {
        let mut counts = self.shared.counts.lock();
        counts.files += 1;
        counts.bytes += bytes;
        counts.under_way.remove(path);
        path.clone_into(&mut counts.last);
    }

    /// Ends the progress display and clears its line.
    pub fn finish(&self) {
        self.shared.bar.finish_and_clear();
    }

    /// Calls `print` while the progress line is hidden.
    pub fn print(&self, print: impl FnOnce()) {
        self.shared.bar.suspend(print);
    }
}

/// Starts a thread that shows the progress until the sender is dropped. Returns `None`, and shows
/// nothing, if the thread can't be started.
fn ticker(shared: &Arc<Shared>) -> Option<(Sender<()>, JoinHandle<()>)> {
    let (shared, (sender, receiver)) = (Arc::clone(shared), channel());
    let work = move || {
        while receiver.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            shared.show();
        }
    };
    let thread = std::thread::Builder::new().name("fslab-progress".to_owned()).spawn(work);
    let failed = |error: &std::io::Error| tracing::warn!(%error, "the progress can't be shown");
    Some((sender, thread.inspect_err(failed).ok()?))
}

impl Within {
    /// Sets the completed share of a file of `bytes` bytes.
    pub fn set_share(&self, path: &Path, share: f64, bytes: u64) {
        self.set(path, (share * bytes as f64) as u64);
    }

    /// Sets the completed bytes of a file.
    pub fn set(&self, path: &Path, bytes: u64) {
        let mut counts = self.shared.counts.lock();
        if let Some(done) = counts.under_way.get_mut(path) {
            *done = bytes;
        } else {
            counts.under_way.insert(path.to_owned(), bytes);
        }
        path.clone_into(&mut counts.last);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.ticker.take() {
            drop(sender);
            if thread.join().is_err() {
                tracing::warn!("can't show the progress");
            }
        }
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_proportional_to_the_remaining_bytes() {
        let second = Duration::from_secs(1);
        assert_eq!(time_left(second, 100, 400), Some(3 * second));
        assert_eq!(time_left(second, 400, 400), Some(Duration::ZERO));
        assert_eq!(time_left(second, 500, 400), Some(Duration::ZERO));
        assert_eq!(time_left(second, 0, 400), None);
        let mut counts = Counts { files: 1, bytes: 5, ..Counts::new() };
        assert_eq!(counts.so_far("verified"), "1 file verified, 5 B");
        counts.total = Some((2, 10));
        assert!(counts.so_far("verified").starts_with("1 of 2 files verified, 5 B of 10 B, "));
    }

    #[test]
    fn shown_time_left_ends_at_the_limit() {
        let shown = |done, limit| {
            shown_time_left(Duration::from_secs(10), done, 100, Some(Duration::from_secs(limit)))
        };
        assert_eq!(shown(10, 60), ", about 50 s left");
        assert_eq!(shown(10, 5), "", "the last round has begun");
        assert_eq!(shown(10, 600), ", 90 s left");
        assert_eq!(shown(0, 60), "");
    }

    #[test]
    fn bytes_within_a_file_count_once() {
        let progress = Progress::new("verified", true);
        let (within, path) = (progress.within(), Path::new("large"));
        let so_far = || progress.shared.counts.lock().so_far("verified");
        within.set(path, 3);
        within.set(path, 7);
        assert_eq!(so_far(), "0 files verified, 7 B");
        progress.add(path, 10);
        assert_eq!(so_far(), "1 file verified, 10 B");
    }
}
