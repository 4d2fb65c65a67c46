//! Plans: what is compared with what, by which workloads, in how many rounds.
//!
//! A plan is read from TOML once and checked as a whole; whoever holds a [`Plan`] holds one that
//! can be run. Errors name file, line, column and key.

mod raw;
mod source;

use std::path::{Path, PathBuf};

use fslab_sys::make_file_system::Kind;

use crate::error::{Error, Result};
use crate::workload::{Parameters, Spec};

pub use source::PlanError;

/// What is compared with what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Title of the report.
    pub name: String,
    /// Seed of the plan, unless the command line gives another.
    pub seed: Option<u64>,
    /// How often every target runs every workload, at least.
    pub rounds: u32,
    /// How often at most. Above `rounds`, a workload is given more until each of its intervals is
    /// as narrow as asked.
    pub rounds_max: u32,
    /// Half the width an interval may have, as a share of the ratio.
    pub half_width: f64,
    /// How often a block of runs is repeated because the machine did other things meanwhile,
    /// unless the command line says otherwise.
    pub reruns_max: Option<u32>,
    /// Size of each image, in bytes.
    pub image_size: u64,
    /// After this many seconds no new round is begun.
    pub time_limit_seconds: Option<u64>,
    /// Name of the target the others are compared with.
    pub baseline: String,
    /// What is compared; names are unique.
    pub targets: Vec<TargetPlan>,
    /// By what; labels are unique.
    pub workloads: Vec<WorkloadPlan>,
    /// The text the plan was read from.
    pub text: String,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPlan {
    /// Its name in samples and reports.
    pub name: String,
    /// What it is.
    pub kind: TargetKind,
}

/// What a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A file system on a fresh image, and perhaps something mounted over it.
    Image {
        /// The file system.
        base: ImagePlan,
        /// What is mounted over it.
        over: Over,
    },
    /// A directory that is there already; measured in a fresh subdirectory, never remounted.
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// A file system within this process, measured without a mount.
    InProcess {
        /// What the host makes it from.
        specification: String,
    },
}

/// How the file system of an image is made and mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePlan {
    /// Which file system.
    pub kind: Kind,
    /// Options of mkfs.
    pub mkfs: Vec<String>,
    /// Mount options as in fstab.
    pub mount: String,
}

/// What is mounted over the file system of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// Nothing.
    Nothing,
    /// Layers, the top one first.
    Layers(Vec<String>),
    /// What a foreign command mounts.
    Command(ForeignMount),
}

/// A foreign file system, mounted by a command. `{lower}` and `{mountpoint}` stand for the two
/// directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignMount {
    /// The command and its arguments.
    pub mount: Vec<String>,
    /// How it is unmounted, where umount(2) will not do.
    pub unmount: Option<Vec<String>>,
    /// A command whose first line of output is the version.
    pub version: Option<Vec<String>>,
}

/// One workload with its parameters.
#[derive(Clone, Debug)]
pub struct WorkloadPlan {
    /// Its name in samples and reports.
    pub label: String,
    /// Which workload.
    pub spec: &'static Spec,
    /// What the plan says of its parameters.
    pub parameters: Parameters,
}

impl Plan {
    /// Reads a plan from a file.
    ///
    /// # Errors
    /// Where the file can't be read or the plan is wrong.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::UnreadablePlan { path: path.to_owned(), source })?;
        Ok(Self::parse(&path.display().to_string(), &text)?)
    }

    /// Parses a plan; `file` is what errors call it.
    ///
    /// # Errors
    /// Names file, line, column and key of the first thing that is wrong.
    pub fn parse(file: &str, text: &str) -> std::result::Result<Self, PlanError> {
        raw::parse(&source::Source { file, text })
    }
}
