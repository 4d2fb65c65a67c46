//! `fslab sca encode` and `decode`: trees converted in place, while nothing is mounted.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fslab_layers::LayerChoice;
use fslab_sca::convert::{self, Conversion, Direction, Outcome};
use fslab_vfs::Size;
use indicatif::ProgressBar;
use parking_lot::Mutex;

use crate::commands::mount::parse_layer;
use crate::stack_context;
use crate::units::counted;

/// The layer that reads stored files of every codec.
const ANY_CODEC: &str = "copy:pack=off";

/// What to encode, and how.
#[derive(Debug, clap::Args)]
pub struct Encode {
    /// A directory that is not mounted
    tree: PathBuf,
    /// The layer that is to be mounted over it, with its options: `zstd`, `gzip:level=9`
    #[arg(short, long, default_value = "zstd", value_parser = parse_layer)]
    layer: LayerChoice,
    /// Only say what is expected, from samples
    #[arg(long)]
    dry_run: bool,
    /// Threads; 0 for one a processor
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// What to decode.
#[derive(Debug, clap::Args)]
pub struct Decode {
    /// A directory that is not mounted
    tree: PathBuf,
    /// Threads; 0 for one a processor
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// What became of all files.
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
    /// Encodes, or says what is expected of it.
    pub fn run(&self) -> Result<()> {
        if self.dry_run {
            return expect(&self.tree, &self.layer);
        }
        convert(&self.tree, &self.layer, Direction::Encode, self.threads)
    }
}

impl Decode {
    /// Decodes.
    pub fn run(&self) -> Result<()> {
        convert(&self.tree, &parse_layer(ANY_CODEC)?, Direction::Decode, self.threads)
    }
}

fn expect(tree: &Path, layer: &LayerChoice) -> Result<()> {
    let bar = super::spinner()?;
    let found = convert::estimate(tree, layer, &|path| {
        bar.set_message(path.display().to_string());
        bar.tick();
    })?;
    bar.finish_and_clear();
    let (before, after) = (found.before_bytes, found.after_bytes);
    let files = counted(found.files, "file");
    say!("{files} would be encoded, {} already encoded or empty", found.already);
    say!("space: {} now, about {} then ({})", size(before), size(after), share(before, after));
    say!("from {} of samples; nothing was changed", size(found.sampled_bytes));
    if found.unreadable > 0 {
        say!("{} can't be read and not counted", counted(found.unreadable, "file"));
    }
    Ok(())
}

fn convert(tree: &Path, layer: &LayerChoice, direction: Direction, threads: usize) -> Result<()> {
    let (totals, bar) = (Mutex::new(Totals::default()), super::spinner()?);
    let conversion = Conversion::open(tree, layer, direction, &stack_context::of_program())?;
    conversion
        .run(threads, &|path, outcome| totals.lock().add(path, outcome, &bar))
        .with_context(|| format!("{}: run the command again to resume", tree.display()))?;
    bar.finish_and_clear();
    totals.into_inner().show(direction)
}

impl Totals {
    fn add(&mut self, path: &Path, outcome: &Outcome, bar: &ProgressBar) {
        bar.set_message(path.display().to_string());
        bar.tick();
        match outcome {
            Outcome::Converted { before_bytes, after_bytes } => {
                self.converted += 1;
                self.before_bytes += before_bytes;
                self.after_bytes += after_bytes;
            }
            Outcome::Already => self.already += 1,
            Outcome::Lookalike => self.lookalikes += 1,
            Outcome::Kept(why) => {
                self.kept += 1;
                bar.suspend(|| say!("{}: not converted: {why}", path.display()));
            }
        }
    }

    fn show(self, direction: Direction) -> Result<()> {
        let (before, after) = (self.before_bytes, self.after_bytes);
        let done = if direction == Direction::Encode { "encoded" } else { "decoded" };
        let (converted, already) = (counted(self.converted, "file"), self.already);
        say!("{converted} {done}, {already} already {done} or empty");
        if self.lookalikes > 0 {
            let files = counted(self.lookalikes, "file");
            say!("{files} left as content: they look encoded, but this tree is decoded already");
        }
        say!("space: {} before, {} now ({})", size(before), size(after), share(before, after));
        match self.kept {
            0 => Ok(()),
            kept => {
                bail!("{} not converted; run the command again to retry", counted(kept, "file"))
            }
        }
    }
}

fn size(bytes: u64) -> String {
    Size::of(bytes).to_string()
}

fn share(before: u64, after: u64) -> String {
    format!("{:.0} %", 100.0 * after as f64 / before.max(1) as f64)
}
