//! `fslab age snapshot`: records a tree, a git history or a list as Parquet.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use fslab_age::snapshot::{
    Capture, Every, History, NameKey, P9Dumps, capture, import_csv, write_synthetic_pair,
};
use fslab_vfs::Timestamp;

const SYNTHETIC_SEED: u64 = 1997;

/// Arguments of `fslab age snapshot`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// INPUT is a git repository. Write a snapshot for each period of its history to the directory
    /// OUTPUT
    #[arg(long, conflicts_with_all = ["csv", "p9trace"])]
    repo: bool,
    /// With --repo: how often to take a snapshot
    #[arg(long, value_enum, default_value_t = EveryArg::Day, requires = "repo")]
    every: EveryArg,
    /// INPUT is a CSV file whose first line lists its columns: path, size, and optionally inode,
    /// kind, modified, changed, born, mode, uid, gid
    #[arg(long, conflicts_with = "p9trace")]
    csv: bool,
    /// INPUT is a trace of a Plan 9 file server (9fans/p9trace), or a directory of traces, which
    /// are read in the order of their names. Each dump becomes a snapshot in the directory OUTPUT
    #[arg(long, conflicts_with = "anonymise")]
    p9trace: bool,
    /// Write two synthetic snapshots of this many entries, a day apart, to the files INPUT and
    /// OUTPUT
    #[arg(long, hide = true, value_name = "ROWS", conflicts_with_all = ["csv", "repo", "p9trace"])]
    synthetic: Option<u64>,
    /// With --csv: when the list was made, in seconds since 1970 [default: now]
    #[arg(long, value_name = "SECONDS", requires = "csv")]
    time: Option<i64>,
    /// Replace names by hashes with the key in this file
    #[arg(long, value_name = "KEYFILE")]
    anonymise: Option<PathBuf>,
    /// Skip extents and inode generations; recording them is the slowest part, because every file
    /// is opened
    #[arg(long, conflicts_with = "extents")]
    no_layout: bool,
    /// Record every extent of each file of a tree
    #[arg(long, conflicts_with_all = ["csv", "repo", "p9trace"])]
    extents: bool,
    /// Threads that read a tree
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// The tree, or the input that --repo, --csv or --p9trace requires; file systems mounted in the
    /// tree are left out
    input: PathBuf,
    /// The snapshot file; with --repo or --p9trace, a directory for snapshots
    output: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EveryArg {
    /// After each commit
    Commit,
    /// At the end of each day that has a commit
    Day,
    /// At the end of each week that has a commit
    Week,
}

impl Args {
    /// Writes one snapshot or several.
    pub fn run(self) -> Result<()> {
        let key = self.anonymise.as_deref().map(NameKey::read).transpose()?;
        if self.repo {
            return self.history(key.as_ref());
        }
        if self.p9trace {
            return self.dumps();
        }
        if let Some(rows) = self.synthetic {
            let made = write_synthetic_pair(rows, SYNTHETIC_SEED, &self.input, &self.output)?;
            say!("{}", serde_json::to_string_pretty(&made)?);
            return Ok(());
        }
        let now_ns = Timestamp::from(SystemTime::now()).to_ns();
        let entries = if self.csv {
            let taken_ns = self.time.map_or(now_ns, |time| time.saturating_mul(1_000_000_000));
            import_csv(&self.input, &self.output, key.as_ref(), taken_ns)?
        } else {
            let layout = !self.no_layout;
            let (threads, extents) = (self.threads, self.extents);
            let options = Capture { threads, layout, extents, key, now_ns };
            capture(&self.input, &self.output, &options)?
        };
        say!("{entries} entries in {}", self.output.display());
        Ok(())
    }

    fn dumps(&self) -> Result<()> {
        let traces = files_of(&self.input)?;
        make_empty(&self.output)?;
        let dumps = P9Dumps::read(&traces, &self.output)?;
        let written = dumps.write(&self.output)?;
        let (snapshots, output) = (written.snapshots.len(), self.output.display());
        say!("{snapshots} snapshots of {} dumps in {output}", dumps.dumps());
        if written.rootless + written.missing_blocks > 0 {
            say!(
                "the root blocks of {} dumps are missing, so these dumps get no snapshot. {} \
                 blocks of other dumps are missing, so the entries in them are left out",
                written.rootless,
                written.missing_blocks
            );
        }
        if snapshots == 0 {
            bail!("{}: the root block of every dump is missing", self.input.display());
        }
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
        say!("{} snapshots of {commits} commits in {output}", written.len());
        Ok(())
    }
}

/// Returns `path` itself if it is a file, or the files of a directory in the order of their names.
pub(super) fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    let shown = || path.display().to_string();
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).with_context(shown)? {
        files.push(entry.with_context(shown)?.path());
    }
    files.sort();
    Ok(files)
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
