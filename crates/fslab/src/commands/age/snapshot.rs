//! `fslab age snapshot`: what a tree, a git history or a list holds, as Parquet.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use fslab_age::snapshot::{Capture, Every, History, NameKey, capture, import_csv};

/// Arguments of `fslab age snapshot`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// INPUT is a git repository: a snapshot for each period of its history, into the directory
    /// OUTPUT
    #[arg(long, conflicts_with = "csv")]
    repo: bool,
    /// With --repo: how often there is a snapshot
    #[arg(long, value_enum, default_value_t = EveryArg::Day, requires = "repo")]
    every: EveryArg,
    /// INPUT is a CSV file whose first line names its columns: path, size, and perhaps inode,
    /// kind, modified, changed, born, mode, uid, gid
    #[arg(long)]
    csv: bool,
    /// With --csv: when the list was made, in seconds since 1970; now, if not said
    #[arg(long, value_name = "SECONDS", requires = "csv")]
    time: Option<i64>,
    /// Replace names by hashes with the key in this file
    #[arg(long, value_name = "KEYFILE")]
    anonymise: Option<PathBuf>,
    /// Of a tree: do not ask where files lie, which takes longest
    #[arg(long)]
    no_layout: bool,
    /// Of a tree: threads
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// The tree, without other file systems mounted in it; or what an option says
    input: PathBuf,
    /// The snapshot; with --repo a directory for them
    output: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EveryArg {
    /// Each commit
    Commit,
    /// Each day that has one
    Day,
    /// Each week that has one
    Week,
}

impl Args {
    /// Writes the snapshot, or several.
    pub fn run(self) -> Result<()> {
        let key = self.anonymise.as_deref().map(NameKey::read).transpose()?;
        if self.repo {
            return self.history(key.as_ref());
        }
        let now_ns = now_ns()?;
        let entries = if self.csv {
            let taken_ns = self.time.map_or(now_ns, |time| time.saturating_mul(1_000_000_000));
            import_csv(&self.input, &self.output, key.as_ref(), taken_ns)?
        } else {
            let layout = !self.no_layout;
            let options = Capture { threads: self.threads, layout, key, now_ns };
            capture(&self.input, &self.output, &options)?
        };
        println!("{entries} entries in {}", self.output.display());
        Ok(())
    }

    fn history(&self, key: Option<&NameKey>) -> Result<()> {
        let history = History::read(&self.input)?;
        make_empty(&self.output)?;
        let every = match self.every {
            EveryArg::Commit => Every::Commit,
            EveryArg::Day => Every::Day,
            EveryArg::Week => Every::Week,
        };
        let written = history.write(every, &self.output, key)?;
        let (commits, output) = (history.commits(), self.output.display());
        println!("{} snapshots of {commits} commits in {output}", written.len());
        Ok(())
    }
}

fn now_ns() -> Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    i64::try_from(since.as_nanos()).context("the clock is beyond 2262")
}

fn make_empty(directory: &Path) -> Result<()> {
    let shown = directory.display();
    std::fs::create_dir_all(directory).with_context(|| shown.to_string())?;
    let mut entries = std::fs::read_dir(directory).with_context(|| shown.to_string())?;
    if entries.next().is_some() {
        bail!("{shown} is not empty: snapshots need a new or empty directory");
    }
    Ok(())
}
