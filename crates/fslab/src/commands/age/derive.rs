//! `fslab age derive`: makes a workload from successive snapshots.

use std::num::NonZeroU64;
use std::path::PathBuf;

use anyhow::Result;
use fslab_age::derive::{Model, Options, ShortLived, derive};
use fslab_age::workload::identity_of_file;
use fslab_vfs::Size;

use super::recorded::days_of;
use super::snapshot::files_of;

/// Arguments of `fslab age derive`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seed for the random times of removals and the random short-lived files
    #[arg(long, default_value_t = 1997)]
    seed: u64,
    /// Rewrite every changed file completely, as Smith and Seltzer (1997) do. Without this option,
    /// data is appended to files that grew
    #[arg(long)]
    rewrite_all: bool,
    /// Replace the recorded directories by one directory for each COUNT inodes. Smith and Seltzer
    /// (1997) make one directory for each cylinder group
    #[arg(long, value_name = "COUNT")]
    inodes_per_directory: Option<NonZeroU64>,
    /// For each day, add this many files that live less than a day
    #[arg(long, value_name = "COUNT")]
    short_lived: Option<f64>,
    /// Mean size of the files of --short-lived
    #[arg(long, value_name = "SIZE", default_value = "64 KiB")]
    short_lived_size: Size,
    /// For each day, add the short-lived files of a random day of PATH, instead of those of
    /// --short-lived. PATH is a workload, such as one from `fslab age profile`, or a trace recorded
    /// by `fslab mount -l trace`
    #[arg(long, value_name = "PATH", conflicts_with_all = ["short_lived", "short_lived_size"])]
    short_lived_from: Option<PathBuf>,
    /// Size of the file system [default: the size recorded in the first snapshot]
    #[arg(long, value_name = "SIZE")]
    volume: Option<Size>,
    /// The workload file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The snapshots, oldest first. A directory stands for all snapshots in it, sorted by name
    #[arg(required = true)]
    snapshots: Vec<PathBuf>,
}

impl Args {
    fn short_lived(&self) -> Result<Option<ShortLived>> {
        if let Some(path) = &self.short_lived_from {
            return Ok(Some(ShortLived::Recorded(days_of(path)?)));
        }
        let size = self.short_lived_size.bytes();
        let model = |per_day: f64| Model {
            per_day: per_day.clamp(0.0, 1e9),
            mean_bytes: size as f64,
            sigma: 1.6,
            largest: size.saturating_mul(256),
        };
        Ok(self.short_lived.map(model).map(ShortLived::Drawn))
    }

    /// Writes the workload.
    pub fn run(self) -> Result<()> {
        let short_lived = self.short_lived()?;
        let options = Options {
            seed: self.seed,
            rewrite_all: self.rewrite_all,
            inodes_per_directory: self.inodes_per_directory,
            short_lived,
            volume_bytes: self.volume.map_or(0, |size| size.bytes()),
        };
        let mut snapshots = Vec::new();
        for path in &self.snapshots {
            snapshots.extend(files_of(path)?);
        }
        let derived = derive(&snapshots, &self.output, &options)?;
        let summary = derived.summary;
        say!(
            "{} operations in {} from {} snapshots: created {}, deleted {}, modified {}, grown {}, \
             truncated {}, renamed {}",
            derived.operations,
            self.output.display(),
            snapshots.len(),
            summary.created,
            summary.deleted,
            summary.modified,
            summary.grown,
            summary.truncated,
            summary.renamed,
        );
        if derived.left_out + derived.orphans > 0 {
            say!(
                "left out: {} devices, pipes and sockets; put into the root directory: {} entries \
                 whose own directory is in no snapshot",
                derived.left_out,
                derived.orphans
            );
        }
        say!("hash {}", identity_of_file(&self.output)?);
        Ok(())
    }
}
