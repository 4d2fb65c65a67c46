//! `fslab sca recovery`: measures the time to rebuild the chunk map of a stored file after a crash,
//! compared with the time to read the file.
//!
//! A file is written through a layer that is never shut down, as if its daemon had been killed.
//! Then new layers open the file in two states: unchanged, and with its root slots destroyed. In
//! the second state, only the headers of the frames show the chunk map. Before each measurement,
//! the file is removed from the page cache.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use fslab_compare::workload::text;
use fslab_layers::{LayerChoice, Leaf, Stack};
use fslab_stats::paired_ratio;
use fslab_sys::page_cache;
use fslab_sys::signals::Interrupt;
use fslab_sys::usage::Instant;
use fslab_vfs::{Credentials, FileSystem, Ino, Name, OpenMode, Request, Size, WriteOptions};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::Advice;
use serde_json::{Value, json};

use crate::commands::candidates;
use crate::commands::mount::parse_layer;

const NAME: &str = "file";

/// Bytes per request.
const REQUEST_BYTES: usize = 1 << 20;

/// The offset of the root slots in a stored file, in bytes; see `docs/formats/sca.md`.
const SLOTS_OFFSET: u64 = 128;
const SLOTS_BYTES: usize = 800;

/// Arguments of `fslab sca recovery`.
#[derive(Debug, clap::Args)]
pub struct Recovery {
    /// The layer, with its options
    #[arg(short, long, default_value = "gzip", value_parser = parse_layer,
          add = candidates::layers())]
    layer: LayerChoice,
    /// Size of the file
    #[arg(long, default_value = "1GiB")]
    size: Size,
    /// Number of rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// The directory for the file [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Times of one round, in seconds: for reading one byte, which needs the chunk map, and for reading
/// the whole file.
type Round = (f64, f64);

impl Recovery {
    /// Makes the file, measures, and prints the results.
    pub fn run(&self) -> Result<()> {
        // Signals are caught before the file is made, so that an interrupted run removes it.
        let interrupt =
            Interrupt::on_signals().context("can't install handlers for SIGINT and SIGTERM")?;
        let work = Work { asked: self, interrupt, bar: spinner()? };
        let directory = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let place = tempfile::Builder::new().prefix("fslab-recovery-").tempdir_in(&directory);
        let place = place.with_context(|| format!("can't use {}", directory.display()))?;
        work.write(place.path())?;
        let stored = place.path().join(NAME);
        let after_kill = work.time(&stored, "found after a kill")?;
        let file =
            File::options().write(true).open(&stored).context("can't open the stored file")?;
        file.write_all_at(&[0xEE; SLOTS_BYTES], SLOTS_OFFSET)
            .context("can't destroy the root slots")?;
        let without_slots = work.time(&stored, "found without root slots")?;
        work.bar.finish_and_clear();
        let answer = json!({
            "layer": self.layer.to_string(),
            "size_bytes": self.size.bytes(),
            "stored_bytes": file.metadata()?.len(),
            "after_kill": told(&after_kill),
            "without_slots": told(&without_slots),
        });
        if self.json {
            say!("{answer:#}");
        } else {
            self.show(&[("after a kill", after_kill), ("without root slots", without_slots)]);
        }
        Ok(())
    }

    fn show(&self, cases: &[(&str, Vec<Round>)]) {
        say!("{}, {} of text, nothing cached", self.layer, self.size);
        for (name, rounds) in cases {
            let mean = |of: fn(&Round) -> f64| {
                rounds.iter().map(of).sum::<f64>() / rounds.len().max(1) as f64 * 1e3
            };
            let (recovery, reading) = (mean(|round| round.0), mean(|round| round.1));
            let interval = paired_ratio(rounds, 0).map_or_else(String::new, |found| {
                format!(", ratio 1/{:.0} [{:.4}, {:.4}]", 1.0 / found.ratio, found.low, found.high)
            });
            say!(
                "{name}: recovered in {recovery:.2} ms, recovered and read completely in \
                 {reading:.1} ms{interval}"
            );
        }
    }
}

struct Work<'a> {
    asked: &'a Recovery,
    interrupt: Interrupt,
    bar: ProgressBar,
}

impl Work<'_> {
    /// Fails after a signal. The caller then drops the temporary directory, which deletes the files
    /// in it.
    fn check(&self) -> Result<()> {
        ensure!(!self.interrupt.is_raised(), "interrupted; no files are left");
        Ok(())
    }

    /// Checks for signals and shows the progress.
    fn go_on(&self, told: String) -> Result<()> {
        self.check()?;
        self.bar.set_message(told);
        self.bar.tick();
        Ok(())
    }

    fn mount(&self, directory: &Path) -> Result<Arc<dyn FileSystem>> {
        let leaf = Leaf::parse(&directory.display().to_string(), &[]);
        let stack = Stack { layers: vec![self.asked.layer.clone()], leaf };
        Ok(stack.build_in(&crate::stack_context::of_program())?)
    }

    /// Writes the file sequentially. The layer is not shut down.
    fn write(&self, directory: &Path) -> Result<()> {
        let layer = self.mount(directory)?;
        let (request, mode) = (request(), OpenMode::WRITE_ONLY | OpenMode::EXCLUSIVE);
        let (entry, opened) = layer.create(&request, Ino::ROOT, name()?, 0o100_644, mode)?;
        let (ino, handle) = (entry.attr.ino, opened.handle);
        let size = self.asked.size;
        for offset in (0..size.bytes()).step_by(REQUEST_BYTES) {
            self.go_on(format!("written: {} of {size}", Size::of(offset)))?;
            let length = REQUEST_BYTES.min((size.bytes() - offset) as usize);
            let options = WriteOptions::default();
            layer.write_all(&request, ino, handle, offset, &text(offset, length), options)?;
        }
        Ok(())
    }

    fn time(&self, stored: &Path, what: &str) -> Result<Vec<Round>> {
        let round = |number| {
            self.go_on(format!("{what}: round {} of {}", number + 1, self.asked.rounds))?;
            Ok((self.seconds(stored, 1)?, self.seconds(stored, self.asked.size.bytes())?))
        };
        (0..self.asked.rounds).map(round).collect()
    }

    /// Returns the seconds that a new layer takes to open the file and read `bytes` bytes of it.
    fn seconds(&self, stored: &Path, bytes: u64) -> Result<f64> {
        make_cold(stored)?;
        let directory = stored.parent().context("a file without a directory")?;
        let layer = self.mount(directory)?;
        let request = request();
        let mut buffer = vec![0; REQUEST_BYTES];
        let start = Instant::now();
        let attr = layer.lookup(&request, Ino::ROOT, name()?)?.attr;
        let size = self.asked.size.bytes();
        ensure!(attr.size == size, "the recovered file has {} bytes instead of {size}", attr.size);
        let handle = layer.open(&request, attr.ino, OpenMode::empty())?.handle;
        let mut offset = 0;
        while offset < bytes {
            let wanted = REQUEST_BYTES.min((bytes - offset) as usize);
            let read = layer.read(&request, attr.ino, handle, offset, &mut buffer[..wanted])?;
            ensure!(read > 0, "the recovered file ends at offset {offset}");
            offset += read as u64;
            self.check()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        layer.release(&request, attr.ino, handle)?;
        layer.forget(attr.ino, 1);
        Ok(seconds)
    }
}

fn name() -> Result<Name<'static>> {
    Name::new(NAME.as_ref()).context("a name that no file can have")
}

fn request() -> Request {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let now = SystemTime::now().into();
    Request { credentials: Credentials { uid, gid }, umask: 0o022, now, ..Request::default() }
}

/// Removes the stored file from the page cache.
fn make_cold(stored: &Path) -> Result<()> {
    let file = File::open(stored).with_context(|| stored.display().to_string())?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let resident = page_cache::resident_pages(&file, file.metadata()?.len())?;
    ensure!(
        resident == 0,
        "{resident} pages of {} remain in memory; choose a file system on a disk with --dir",
        stored.display()
    );
    Ok(())
}

fn told(rounds: &[Round]) -> Value {
    let ratio = paired_ratio(rounds, 0)
        .map(|found| json!({ "value": found.ratio, "low": found.low, "high": found.high }));
    let times = rounds.iter().map(
        |(recovery, reading)| json!({ "recovery_seconds": recovery, "reading_seconds": reading }),
    );
    json!({ "ratio": ratio, "rounds": times.collect::<Vec<_>>() })
}

/// Returns a progress line. On a terminal, it is redrawn.
fn spinner() -> Result<ProgressBar> {
    Ok(ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg}")?))
}
