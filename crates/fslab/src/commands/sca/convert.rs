//! `fslab sca encode` and `decode`: convert the files of an unmounted directory in place.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fslab_layers::LayerChoice;
use fslab_sca::Error;
use fslab_sca::convert::{self, Conversion, DecodedFiles, Direction, Outcome};
use fslab_vfs::Size;
use parking_lot::Mutex;

use super::walk;
use crate::commands::candidates;
use crate::commands::mount::parse_layer;
use crate::progress::{Progress, Verbosity};
use crate::stack_context;
use crate::units::counted;

/// A layer that reads stored files of every codec.
const ANY_CODEC: &str = "copy:pack=off";

/// Arguments of `fslab sca encode`.
#[derive(Debug, clap::Args)]
pub struct Encode {
    /// A directory that is not mounted
    pub(super) tree: PathBuf,
    /// The layer to mount over the directory later, with its options: `zstd`, `gzip:level=9`
    #[arg(short, long, default_value = "zstd", value_parser = parse_layer,
          add = candidates::layers())]
    layer: LayerChoice,
    /// Estimate the compression ratio from samples, without changing anything
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    how: How,
}

/// Options of both conversions.
#[derive(Debug, clap::Args)]
struct How {
    /// Threads; 0 for one per processor
    #[arg(long, default_value_t = 0)]
    threads: usize,
    #[command(flatten)]
    verbosity: Verbosity,
}

/// Arguments of `fslab sca decode`.
#[derive(Debug, clap::Args)]
pub struct Decode {
    /// A directory that is not mounted
    pub(super) tree: PathBuf,
    /// Print the number of files to decode, without decoding them
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    how: How,
}

/// The reason why a file that only looks like a stored file is not decoded.
const LOOKALIKES: &str = "in a decoded directory, files that look like stored files are ordinary \
                          files; `fslab sca cat` prints the content of such a file";

#[derive(Default)]
struct Totals {
    converted: u64,
    already: u64,
    lookalikes: u64,
    kept: u64,
    before_bytes: u64,
    after_bytes: u64,
}

impl Encode {
    /// Encodes the tree, or estimates the result.
    pub fn run(&self) -> Result<()> {
        if self.dry_run {
            return estimate(&self.tree, &self.layer, self.how.verbosity.quiet);
        }
        self.how.convert(&self.tree, &self.layer, Direction::Encode)
    }
}

impl Decode {
    /// Decodes the tree, or counts the files that would be decoded.
    pub fn run(&self) -> Result<()> {
        if self.dry_run {
            return count_stored(&self.tree, self.how.verbosity.quiet);
        }
        self.how.convert(&self.tree, &parse_layer(ANY_CODEC)?, Direction::Decode)
    }
}

fn estimate(tree: &Path, layer: &LayerChoice, is_quiet: bool) -> Result<()> {
    let progress = Progress::new("sampled", is_quiet);
    let found = convert::estimate(tree, layer, &|path| progress.add(path, 0))?;
    drop(progress);
    let (before, after) = (found.before_bytes, found.after_bytes);
    let files = counted(found.files, "file");
    let already = found.already;
    say!("{files} would be encoded with {layer}; {already} encoded already or empty");
    if found.files > 0 {
        say!(
            "space: {} now, about {} after encoding ({})",
            size(before),
            size(after),
            share(before, after)
        );
    }
    say!("estimated from samples of {}; nothing was changed", size(found.sampled_bytes));
    if found.unreadable > 0 {
        say!("not counted: {} that can't be read", counted(found.unreadable, "file"));
    }
    Ok(())
}

/// Prints the number of files in a directory that decoding would change.
fn count_stored(tree: &Path, is_quiet: bool) -> Result<()> {
    let decoded = DecodedFiles::find(tree)?;
    let progress = Progress::new("read", is_quiet);
    let (mut files, mut lookalikes, mut stored_bytes, mut content_bytes) = (0, 0, 0, 0);
    let outcome = walk::each(&[tree.to_owned()], &progress, |_path, tool| {
        if !decoded.has(&tool) {
            lookalikes += 1;
            return Ok(());
        }
        content_bytes += tool.size()?;
        stored_bytes += tool.stored_bytes();
        files += 1;
        Ok(())
    });
    drop(progress);
    let files = counted(files, "stored file");
    let (before, after) = (size(stored_bytes), size(content_bytes));
    say!("{files} would be decoded, from {before} to {after}; nothing was changed");
    if lookalikes > 0 {
        say!("{} not decoded: {LOOKALIKES}", counted(lookalikes, "file"));
    }
    outcome.refuse_failures("read")
}

impl How {
    fn convert(&self, tree: &Path, layer: &LayerChoice, direction: Direction) -> Result<()> {
        let done = if direction == Direction::Encode { "encoded" } else { "decoded" };
        let progress = Progress::new(done, self.verbosity.quiet);
        if progress.is_seen() {
            let (files, bytes) = walk::size_of(tree);
            progress.expect(files, bytes);
        }
        let totals = Mutex::new(Totals::default());
        let mut conversion = open(tree, layer, direction)?;
        let (within, root) = (progress.within(), tree.to_owned());
        conversion.report_shares(move |path, share| {
            let path = root.join(path);
            let bytes = path.metadata().map_or(0, |found| found.len());
            within.set_share(&path, share, bytes);
        });
        conversion
            .run(self.threads, &|path, outcome| {
                let path = &tree.join(path);
                let bytes = totals.lock().add(path, outcome, &progress);
                progress.add(path, bytes);
                if self.verbosity.verbose && matches!(outcome, Outcome::Converted { .. }) {
                    progress.print(|| say!("{}", path.display()));
                }
            })
            .with_context(|| format!("{}: run the command again to resume", tree.display()))?;
        drop(progress);
        totals.into_inner().end(done, self.verbosity.quiet)
    }
}

/// Opens a directory for conversion. If the directory is in use, the error names its mount.
fn open(tree: &Path, layer: &LayerChoice, direction: Direction) -> Result<Conversion> {
    match Conversion::open(tree, layer, direction, &stack_context::of_program()) {
        Err(Error::Layers(fslab_layers::Error::InUse { .. })) => {
            bail_as!(BadInput, "{}", walk::in_use(tree))
        }
        opened => Ok(opened?),
    }
}

impl Totals {
    /// Counts a file. Returns the file's size before the conversion.
    fn add(&mut self, path: &Path, outcome: &Outcome, progress: &Progress) -> u64 {
        match outcome {
            Outcome::Converted { before_bytes, after_bytes } => {
                self.converted += 1;
                self.before_bytes += before_bytes;
                self.after_bytes += after_bytes;
                return *before_bytes;
            }
            Outcome::Already => self.already += 1,
            Outcome::Lookalike => self.lookalikes += 1,
            Outcome::Kept(why) => {
                self.kept += 1;
                progress.print(|| eprintln!("fslab: {}: not converted: {why}", path.display()));
            }
        }
        path.metadata().map_or(0, |found| found.len())
    }

    fn end(self, done: &str, is_quiet: bool) -> Result<()> {
        if !is_quiet {
            self.show(done);
        }
        match self.kept {
            0 => Ok(()),
            kept => {
                bail!("{} not converted; run the command again to retry", counted(kept, "file"))
            }
        }
    }

    fn show(&self, done: &str) {
        let (before, after) = (self.before_bytes, self.after_bytes);
        let (converted, already) = (counted(self.converted, "file"), self.already);
        say!("{converted} {done}, {already} already {done} or empty");
        if self.lookalikes > 0 {
            say!("{} not decoded: {LOOKALIKES}", counted(self.lookalikes, "file"));
        }
        say!("space: {} before, {} now ({})", size(before), size(after), share(before, after));
    }
}

fn size(bytes: u64) -> String {
    Size::of(bytes).to_string()
}

fn share(before: u64, after: u64) -> String {
    format!("{:.0} %", 100.0 * after as f64 / before.max(1) as f64)
}
