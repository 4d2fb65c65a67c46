//! `fslab age replay`: replays the operations of a workload on a real file system.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use fslab_age::DAY_NS;
use fslab_age::replay::{Checkpoint, Data, Observer, Replayed, Replayer, Settings, WhenFull};
use fslab_age::score::{Score, Series, count_entries, tree_checksum};
use fslab_age::workload::{Population, WorkloadReader, identity_of_file};
use fslab_layers::{Leaf, LeafOptions, Stack};
use fslab_sys::signals::Interrupt;
use fslab_vfs::{Credentials, FileSystem};
use indicatif::ProgressBar;
use serde_json::json;

use super::progress::bar;
use super::score::Place;
use super::show;
use super::tables::{score as shown, score_json, write_chart};
use crate::commands::mount::parse_leaf;
use crate::leaves::check_free_to_write;
use crate::units::{bytes, counted, duration};

const HELP: &str = "\
To resume a replay that was interrupted or killed, repeat the command with the same --checkpoint.
If root replays, files get the owners in the workload; otherwise all files belong to the user.";

/// Arguments of `fslab age replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Threads; the result does not depend on their number
    #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Content of the files
    #[arg(long, value_enum, default_value_t = DataArg::Real)]
    data: DataArg,
    /// Action when the target is full
    #[arg(long, value_enum, default_value_t = FullArg::Stop)]
    when_full: FullArg,
    /// Sync the target each time this many hours of the workload's time have passed
    #[arg(long, value_name = "HOURS", default_value_t = 1.0)]
    sync_every: f64,
    /// Save checkpoints in this file. If it contains a checkpoint, resume from it
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Number of operations between two checkpoints
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    checkpoint_every: u64,
    /// Measure the score after every DAYS days of the workload, and at the end
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    score_every: u32,
    /// Write a chart of the scores of --score-every to this file
    #[arg(long, value_name = "FILE", requires = "score_every")]
    chart: Option<PathBuf>,
    /// At the end, compare the tree with the workload
    #[arg(long)]
    verify: bool,
    /// Print the planned steps, without doing them
    #[arg(short = 'n', long, conflicts_with = "json")]
    dry_run: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// The workload
    workload: PathBuf,
    /// The empty target: a directory, mem:, or ext2:IMAGE
    #[arg(value_parser = parse_leaf)]
    target: Leaf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum DataArg {
    /// Bytes that do not compress
    Real,
    /// Only allocated space: fallocate(2), without writing
    Fallocate,
    /// Only the size: each file is a hole
    None,
}

impl From<DataArg> for Data {
    fn from(data: DataArg) -> Self {
        match data {
            DataArg::Real => Self::Real,
            DataArg::Fallocate => Self::Fallocate,
            DataArg::None => Self::None,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FullArg {
    /// Stop; the replay can be resumed after space is freed
    Stop,
    /// Skip files that do not fit, and count them
    Skip,
}

impl Args {
    /// Replays the workload and reports the result.
    pub fn run(self) -> Result<()> {
        let reader = WorkloadReader::open(&self.workload)?;
        if self.verify && !rustix::process::geteuid().is_root() {
            bail_as!(Missing, "--verify compares owners too, so it needs root");
        }
        if self.dry_run {
            return self.rehearse(reader);
        }
        let total = reader.total();
        let target = Stack { layers: Vec::new(), leaf: self.target.clone() }.build()?;
        let settings = self.settings()?;
        if self.checkpoint()?.is_none() {
            require_empty(&*target)?;
        }
        let mut watcher = self.watcher(&target, total)?;
        let start = Instant::now();
        let mut replayer = Replayer::new(&*target, settings);
        let ended = replayer.run(reader, &mut watcher);
        watcher.bar.finish_and_clear();
        let ended = ended?;
        let result = Ended { replayed: *replayer.replayed(), took: start.elapsed(), ended };
        let expected =
            (self.verify && ended).then(|| replayer.population().checksum()).transpose()?;
        drop(replayer);
        let verdict = expected.map(|expected| verify(&*target, &expected)).transpose()?;
        target.shutdown().context("can't shut down the target")?;
        self.tell(&result, &watcher.scores, verdict)?;
        if verdict == Some(false) {
            bail!("--verify: the tree on the target differs from the tree of the workload");
        }
        if !ended {
            bail!("interrupted; to resume from the checkpoint, repeat the command");
        }
        Ok(())
    }

    fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        Ok(self.checkpoint.as_deref().map(Checkpoint::read).transpose()?.flatten())
    }

    /// Runs all checks that change nothing, and reports the planned steps.
    fn rehearse(&self, reader: WorkloadReader) -> Result<()> {
        let settings = self.settings()?;
        check_free_to_write(&self.target)?;
        let options = LeafOptions { read_only: true, ..LeafOptions::default() };
        let target = self.target.open(&options)?;
        let checkpoint = self.checkpoint()?;
        let done = match (&self.checkpoint, &checkpoint) {
            (Some(path), Some(checkpoint)) => {
                checkpoint.check(path, &settings)?;
                // On an empty target, the replay starts from the beginning and ignores the
                // checkpoint.
                let is_begun = count_entries(&*target)? > 0;
                if is_begun { checkpoint.replayed.operations } else { 0 }
            }
            _ => require_empty(&*target).map(|()| 0)?,
        };
        target.shutdown().context("can't shut down the target")?;
        say!("on {}, would replay {}", self.target, show::extent(reader)?);
        if done > 0 {
            say!("{done} of these operations are already done");
        }
        say!("nothing was changed");
        Ok(())
    }

    fn settings(&self) -> Result<Settings> {
        Ok(Settings {
            data: self.data.into(),
            when_full: match self.when_full {
                FullArg::Stop => WhenFull::Stop,
                FullArg::Skip => WhenFull::Skip,
            },
            owner: Credentials::own_unless_root(),
            threads: usize::from(self.threads),
            sync_every_ns: sync_every_ns(self.sync_every)?,
            checkpoint: self.checkpoint.clone(),
            checkpoint_every: self.checkpoint_every.max(1),
            workload_hash: identity_of_file(&self.workload)?,
            observe_every_days: self.score_every,
        })
    }

    fn watcher(&self, target: &Arc<dyn FileSystem>, total: u64) -> Result<Watcher> {
        let stop = match self.checkpoint {
            Some(_) => Interrupt::on_signals().context("can't wait for signals")?,
            None => Interrupt::default(),
        };
        Ok(Watcher::new(total, stop, Place::of_leaf(&self.target, target)))
    }

    fn tell(&self, result: &Ended, scores: &[(u64, Score)], verdict: Option<bool>) -> Result<()> {
        if let Some(path) = &self.chart {
            let points =
                scores.iter().filter_map(|(day, score)| Some((*day as f64, score.total.score()?)));
            let name = self.target.to_string();
            write_chart(path, &[Series { name, points: points.collect() }])?;
        }
        if self.json {
            let over_time: Vec<_> = scores
                .iter()
                .map(|(day, score)| json!({ "day": day, "score": score_json(score) }))
                .collect();
            let value = json!({
                "workload": identity_of_file(&self.workload)?,
                "target": self.target.to_string(),
                "data": format!("{:?}", self.data).to_lowercase(),
                "threads": self.threads,
                "replayed": result.replayed,
                "took_ns": result.took.as_nanos() as u64,
                "verified": verdict,
                "over_time": over_time,
            });
            say!("{}", serde_json::to_string_pretty(&value)?);
            return Ok(());
        }
        result.print(self.data);
        for (day, score) in scores {
            let (value, files) = (shown(score.total.score()), score.total.files);
            say!("day {day}: layout score {value}, {}", counted(files, "file"));
        }
        if let Some(equal) = verdict {
            say!("tree: {}", if equal { "equal to that of the workload" } else { "different" });
        }
        Ok(())
    }
}

struct Ended {
    replayed: Replayed,
    took: Duration,
    ended: bool,
}

impl Ended {
    fn print(&self, data: DataArg) {
        let Replayed { operations, bytes_written, late, no_space, left_out, repeated } =
            self.replayed;
        let data = match data {
            DataArg::Real => "written",
            DataArg::Fallocate => "reserved, not written",
            DataArg::None => "not written: files are holes",
        };
        say!(
            "{operations} operations in {}, {} {data}; {late} fitted only after a sync, {no_space} \
             did not fit, {left_out} skipped because their file did not fit, {repeated} repeated \
             after a kill{}",
            duration(self.took.as_nanos() as u64),
            bytes(bytes_written),
            if self.ended { "" } else { "; stopped before the end" },
        );
    }
}

/// Returns the interval between two syncs in nanoseconds.
pub(super) fn sync_every_ns(hours: f64) -> Result<u64> {
    if hours > 0.0 && hours.is_finite() {
        return Ok((hours * 3.6e12).min(1e18) as u64);
    }
    bail_as!(BadInput, "--sync-every must be greater than 0 hours")
}

/// Shows the progress, records scores, and checks for signals.
pub(super) struct Watcher {
    pub bar: ProgressBar,
    stop: Interrupt,
    place: Place,
    scores: Vec<(u64, Score)>,
}

impl Watcher {
    /// Returns a watcher for a workload of `total` operations. The replay ends when `stop` is
    /// raised.
    pub fn new(total: u64, stop: Interrupt, place: Place) -> Self {
        Self { bar: bar(total), stop, place, scores: Vec::new() }
    }

    /// Returns the current score.
    pub fn score(&self) -> fslab_age::Result<Score> {
        self.place.score()
    }
}

impl Observer for Watcher {
    fn progress(&mut self, replayed: &Replayed, time_ns: u64) -> fslab_age::Result<bool> {
        self.bar.set_position(replayed.operations);
        self.bar.set_message(format!("day {}", time_ns / DAY_NS));
        Ok(!self.stop.is_raised())
    }

    fn day(&mut self, day: u64) -> fslab_age::Result<()> {
        self.scores.push((day, self.place.score()?));
        Ok(())
    }
}

fn require_empty(target: &dyn FileSystem) -> Result<()> {
    let empty = Population::default().checksum()?;
    if tree_checksum(target, false)? == empty {
        return Ok(());
    }
    bail_as!(
        BadInput,
        "the target is not empty (a new ext4 file system contains lost+found); use an empty \
         directory. To resume a replay, use --checkpoint with its checkpoint file"
    )
}

fn verify(target: &dyn FileSystem, expected: &str) -> Result<bool> {
    Ok(tree_checksum(target, true)? == expected)
}
