//! `fslab age verify-method`: tests the ageing method on file systems of the kernel, as Smith and
//! Seltzer (1997) did.
//!
//! Operations of a profile change a tree on a kernel file system in rounds, with a snapshot after
//! each round. A workload is derived from the snapshots and replayed on a second file system. Then
//! the layouts of both are compared. Files that are created and removed within one round are in no
//! snapshot. Such files are drawn from two weeks of another workload; the paper draws them from two
//! weeks of another server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use fslab_age::DAY_NS;
use fslab_age::derive::{Days, Options, ShortLived, derive};
use fslab_age::replay::{Observer, Replayer, Settings};
use fslab_age::score::{Rules, Score, score_directory};
use fslab_age::snapshot::{Capture, Entry, SnapshotReader, SnapshotWriter, Taken, capture};
use fslab_age::verify::{Finding, Limits, moments, verify};
use fslab_age::workload::{Operation, WorkloadReader};
use fslab_stats::paired_ratio;
use fslab_sys::make_file_system::Kind;
use fslab_vfs::{Size, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::image::ground::{Form, Ground};
use super::profile::Chosen;
use super::tables::score_json;

/// Block size of both file systems, in bytes.
const BLOCK_BYTES: u64 = 4096;

/// Number of syncs per round, on both file systems.
const SYNCS_A_ROUND: u64 = 24;

/// Number of recorded days. Files that live for less than a day are drawn from these days.
const RECORDED_DAYS: u32 = 14;

/// Threads for snapshots and scores.
const THREADS: usize = 2;

/// Arguments of `fslab age verify-method`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file system: ext2, ext3, ext4, xfs or btrfs
    #[arg(long, short_alias = 'f', default_value = "ext4")]
    filesystem: Kind,
    /// The profile whose operations change the first tree
    #[arg(long, value_name = "NAME", default_value = "smith97")]
    profile: String,
    /// Number of rounds. Each is a day of the profile and ends with a snapshot
    #[arg(long, value_name = "COUNT", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Size of each of the two file systems
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    volume: Size,
    /// Share of each file system that files use at the end, such as 0.8
    #[arg(long, value_name = "SHARE", default_value_t = 0.85)]
    utilisation: f64,
    /// Repeat everything this many times with different seeds. Print confidence intervals for the
    /// ratios of simulated to real figures
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Seed for all random choices
    #[arg(long, default_value_t = 1997)]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// One of the two file systems (changed directly, or aged by the workload), with its snapshots.
struct Side {
    ground: Ground,
    snapshots: Vec<PathBuf>,
    /// The time when the file system was made, then the time of each snapshot; in ns since 1970.
    times: Vec<i64>,
    directory: PathBuf,
}

/// Layout scores of one file system: one for each snapshot, and one for all files at the end.
struct Layouts {
    over_time: Vec<f64>,
    score: Score,
}

impl Layouts {
    /// Returns the share of non-contiguous blocks: 1 minus the score of all files.
    fn broken(&self) -> Option<f64> {
        self.score.total.score().map(|score| 1.0 - score)
    }
}

struct Compared {
    real: Layouts,
    simulated: Layouts,
    operations: u64,
    findings: Vec<Finding>,
}

impl Args {
    /// For each repeat, makes and ages both file systems, and compares their layouts.
    pub fn run(self) -> Result<()> {
        let repeats: Vec<Compared> = (0..u64::from(self.repeats))
            // A repeat uses two seeds: this one for the tree, and the next one for the recorded
            // days.
            .map(|repeat| self.once(self.seed.wrapping_add(2 * repeat)))
            .collect::<Result<_>>()?;
        self.tell(&repeats);
        Ok(())
    }

    fn once(&self, seed: u64) -> Result<Compared> {
        let scratch = tempfile::Builder::new().prefix("fslab-age-verify-").tempdir()?;
        let (mut real, mut simulated) =
            (self.side(&scratch, "real")?, self.side(&scratch, "aged")?);
        self.change(&mut real, seed)?;
        real.stretch()?;
        let workload = scratch.path().join("workload.parquet");
        let options = Options {
            seed,
            rewrite_all: false,
            inodes_per_directory: None,
            short_lived: Some(ShortLived::Recorded(self.recorded_days(seed)?)),
            volume_bytes: self.volume.bytes(),
        };
        let derived = derive(&real.snapshots, &workload, &options)?;
        self.age(&mut simulated, &real.snapshots, &workload)?;
        let findings = findings(&real, &simulated)?;
        let layouts = (real.layouts()?, simulated.layouts()?);
        real.ground.end()?;
        simulated.ground.end()?;
        let ((real, simulated), operations) = (layouts, derived.operations);
        Ok(Compared { real, simulated, operations, findings })
    }

    fn side(&self, scratch: &TempDir, name: &str) -> Result<Side> {
        let directory = scratch.path().join(name);
        std::fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
        let mkfs = match self.filesystem {
            Kind::Ext2 | Kind::Ext3 | Kind::Ext4 => ["-b", "4096", "-i", "4096"].as_slice(),
            _ => &[],
        };
        let mkfs = mkfs.iter().copied().map(str::to_owned).collect();
        let form = Form::Kernel { kind: self.filesystem, mkfs };
        let ground = Ground::make(&form, self.volume.bytes(), &directory)?;
        Ok(Side { ground, snapshots: Vec::new(), times: vec![now_ns()], directory })
    }

    /// Changes the first tree by the operations of the profile, with a snapshot after each day.
    fn change(&self, side: &mut Side, seed: u64) -> Result<()> {
        let operations = self.chosen(self.rounds, seed).generator(&self.profile)?;
        let target = std::sync::Arc::clone(&side.ground.file_system);
        let mut replayer = Replayer::new(&*target, settings(1));
        replayer.run(operations, side)?;
        Ok(())
    }

    /// Returns the chosen profile with the requested size and utilisation, for this many days.
    fn chosen(&self, days: u32, seed: u64) -> Chosen {
        Chosen {
            volume: Some(self.volume),
            days: Some(days),
            utilisation: Some(self.utilisation),
            filled_at_first: None,
            set: Vec::new(),
            seed,
        }
    }

    /// Returns the days from which short-lived files are drawn. They are generated from the same
    /// profile with another seed.
    fn recorded_days(&self, seed: u64) -> Result<Days> {
        let chosen = self.chosen(RECORDED_DAYS, seed.wrapping_add(1));
        Ok(Days::of(chosen.generator(&self.profile)?)?)
    }

    /// Replays the workload on the second file system. Takes a snapshot at each time at which the
    /// first file system had one.
    fn age(&self, side: &mut Side, real: &[PathBuf], workload: &Path) -> Result<()> {
        let taken =
            |path: &PathBuf| -> Result<i64> { Ok(SnapshotReader::open(path)?.taken().taken_ns) };
        let times = real.iter().map(taken).collect::<Result<Vec<i64>>>()?;
        let first = times.first().copied().unwrap_or_default();
        let since = |time: i64| time.saturating_sub(first).unsigned_abs();
        let operations: Vec<Operation> =
            WorkloadReader::open(workload)?.collect::<fslab_age::Result<_>>()?;
        let target = std::sync::Arc::clone(&side.ground.file_system);
        let mut replayer = Replayer::new(&*target, settings(0));
        let mut done = 0;
        for time in &times {
            let upto = operations.partition_point(|operation| operation.time_ns <= since(*time));
            let due = operations.get(done..upto).unwrap_or_default();
            replayer.run(due.iter().cloned().map(Ok), side)?;
            side.capture()?;
            done = upto;
        }
        Ok(())
    }

    fn tell(&self, repeats: &[Compared]) {
        if self.json {
            say!("{:#}", self.json(repeats));
            return;
        }
        for compared in repeats {
            let operations = compared.operations;
            say!("{}, {} rounds, {operations} operations derived", self.filesystem, self.rounds);
            let scores = compared.real.over_time.iter().zip(&compared.simulated.over_time);
            for (round, (real, simulated)) in (1..).zip(scores) {
                say!("round {round}: layout score {real:.4} real, {simulated:.4} simulated");
            }
            compared.findings.iter().for_each(super::verify::print);
        }
        if let Some(ratio) = self.ratio(repeats, Layouts::broken) {
            say!("non-contiguous blocks, simulated over real: {}", in_words(&ratio));
        }
    }

    fn json(&self, repeats: &[Compared]) -> Value {
        let side = |layouts: &Layouts| {
            let rounds = (1..).zip(&layouts.over_time);
            let over_time: Vec<_> =
                rounds.map(|(round, score)| json!({ "round": round, "score": score })).collect();
            let score = score_json(&layouts.score);
            json!({ "over_time": over_time, "broken": layouts.broken(), "score": score })
        };
        let each: Vec<Value> = repeats
            .iter()
            .map(|compared| {
                json!({
                    "operations": compared.operations,
                    "real": side(&compared.real),
                    "simulated": side(&compared.simulated),
                    "findings": compared.findings,
                })
            })
            .collect();
        json!({
            "file_system": self.filesystem.to_string(),
            "volume_bytes": self.volume.bytes(),
            "rounds": self.rounds,
            "repeats": each,
            "compared": self.compared(repeats),
        })
    }

    /// Returns the ratios of the simulated to the real figures, over all repeats.
    fn compared(&self, repeats: &[Compared]) -> Value {
        let over_time: Vec<Value> = (0..self.rounds as usize)
            .filter_map(|round| {
                let ratio = self.ratio(repeats, |side| side.over_time.get(round).copied())?;
                Some(json!({ "round": round + 1, "ratio": ratio }))
            })
            .collect();
        let classes = repeats.iter().flat_map(|compared| compared.real.score.classes());
        let sizes = classes.map(|class| class.from_blocks).collect::<BTreeSet<u64>>().into_iter();
        let by_size: Vec<Value> = sizes
            .filter_map(|blocks| {
                let of = |side: &Layouts| {
                    let classes = side.score.classes();
                    classes.iter().find(|class| class.from_blocks == blocks)?.sums.score()
                };
                let ratio = self.ratio(repeats, of)?;
                Some(json!({ "from_bytes": blocks * BLOCK_BYTES, "ratio": ratio }))
            })
            .collect();
        let broken = self.ratio(repeats, Layouts::broken);
        json!({ "over_time": over_time, "by_size": by_size, "broken": broken })
    }

    /// Returns the ratio of a simulated to a real figure. With several repeats it is the geometric
    /// mean with an interval; with one repeat there is no interval. Returns `None` if a figure is
    /// missing.
    fn ratio(&self, repeats: &[Compared], of: impl Fn(&Layouts) -> Option<f64>) -> Option<Value> {
        let pairs: Vec<(f64, f64)> = repeats
            .iter()
            .map(|compared| Some((of(&compared.simulated)?, of(&compared.real)?)))
            .collect::<Option<_>>()?;
        if let Some(found) = paired_ratio(&pairs, self.seed) {
            return Some(json!({ "value": found.ratio, "low": found.low, "high": found.high }));
        }
        match pairs.as_slice() {
            [(simulated, real)] if *real > 0.0 => Some(json!({ "value": simulated / real })),
            _ => None,
        }
    }
}

fn in_words(ratio: &Value) -> String {
    let number = |key: &str| ratio[key].as_f64();
    match (number("value"), number("low"), number("high")) {
        (Some(value), Some(low), Some(high)) => format!("{value:.3} [{low:.3}, {high:.3}]"),
        (Some(value), ..) => format!("{value:.3} (one repeat, no interval)"),
        _ => "none".to_owned(),
    }
}

impl Side {
    fn capture(&mut self) -> fslab_age::Result<()> {
        let path = self.directory.join(format!("{:04}.parquet", self.snapshots.len()));
        let now_ns = now_ns();
        let (layout, extents, key) = (true, true, None);
        let options = Capture { threads: THREADS, layout, extents, key, now_ns };
        capture(&self.ground.root(), &path, &options)?;
        self.snapshots.push(path);
        self.times.push(now_ns);
        Ok(())
    }

    /// Changes all times in the snapshots as if each round had taken one day, as in the profile.
    fn stretch(&self) -> Result<()> {
        for (round, path) in (1..).zip(&self.snapshots) {
            let reader = SnapshotReader::open(path)?;
            let taken = Taken { taken_ns: self.in_days(round, 0.0), ..reader.taken().clone() };
            let entries = reader.collect::<fslab_age::Result<Vec<_>>>()?;
            let mut writer = SnapshotWriter::ascending(path)?;
            for entry in entries {
                writer.push(Entry {
                    modified_ns: self.stretched(entry.modified_ns),
                    changed_ns: self.stretched(entry.changed_ns),
                    born_ns: self.stretched(entry.born_ns),
                    ..entry
                })?;
            }
            writer.finish(&taken)?;
        }
        Ok(())
    }

    /// Converts a time within a round to the stretched time. An unknown time (0) stays 0.
    fn stretched(&self, time_ns: i64) -> i64 {
        if time_ns == 0 {
            return 0;
        }
        let after = self.times.partition_point(|time| *time <= time_ns).max(1);
        let (from, to) = (self.times.get(after - 1), self.times.get(after));
        let (Some(from), Some(to)) = (from, to) else { return self.in_days(after - 1, 0.0) };
        let share = (time_ns - from).max(0) as f64 / (to - from).max(1) as f64;
        self.in_days(after - 1, share)
    }

    fn in_days(&self, round: usize, share: f64) -> i64 {
        let begun = self.times.first().copied().unwrap_or_default();
        begun.saturating_add(((round as f64 + share) * DAY_NS as f64) as i64)
    }

    fn layouts(&self) -> Result<Layouts> {
        let rules = Rules { block_bytes: BLOCK_BYTES, group_bytes: None, map_bytes: None };
        let score = score_directory(&self.ground.root(), rules, THREADS)?;
        let scores = moments(self.snapshots.iter().map(|path| SnapshotReader::open(path)))?;
        let over_time: Vec<f64> = scores.iter().map(|moment| moment.score).collect();
        if over_time.len() != self.snapshots.len() {
            bail_as!(Missing, "the file system does not report the extents of its files");
        }
        Ok(Layouts { over_time, score })
    }
}

impl Observer for Side {
    fn day(&mut self, _day: u64) -> fslab_age::Result<()> {
        self.capture()
    }
}

fn now_ns() -> i64 {
    Timestamp::from(SystemTime::now()).to_ns()
}

/// Returns the settings of the replays on both file systems.
fn settings(observe_every_days: u32) -> Settings {
    Settings { sync_every_ns: DAY_NS / SYNCS_A_ROUND, observe_every_days, ..Settings::default() }
}

/// Compares the last snapshots of both sides.
fn findings(real: &Side, simulated: &Side) -> Result<Vec<Finding>> {
    let last = |side: &Side| -> Result<SnapshotReader> {
        Ok(SnapshotReader::open(side.snapshots.last().context("there is no snapshot")?)?)
    };
    Ok(verify(last(real)?, last(simulated)?, Limits::default())?)
}
