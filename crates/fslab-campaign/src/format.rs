//! The record of a campaign, `campaign.json`; `docs/formats/campaign.md` describes the directory.
//!
//! Fields may be added: readers ignore unknown ones. Any other change increases [`FORMAT`].

use std::path::PathBuf;

use fslab_report::Form;
use serde::{Deserialize, Serialize};

/// Version of the record.
pub const FORMAT: u32 = 1;

/// The file name of the record.
pub(crate) const RECORD: &str = "campaign.json";

/// The file with the text of the plan.
pub(crate) const PLAN: &str = "plan.toml";

/// The directory with the samples of each attempt at a share.
pub(crate) const ATTEMPTS: &str = "attempts";

/// The record of a campaign: everything that is frozen when it is created.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Frozen {
    /// Version of this record.
    pub format: u32,
    /// Title of the plan.
    pub name: String,
    /// Time of the freeze (RFC 3339, UTC).
    pub created: String,
    /// BLAKE3 of the plan's text.
    pub plan_blake3: String,
    /// The form of the plan that is run: full or quick.
    pub form: Form,
    /// The seed of all random choices.
    pub seed: u64,
    /// Rounds of each workload.
    pub rounds: u32,
    /// Maximum number of times that a block is repeated because of interference.
    pub reruns_max: u32,
    /// The build of fslab that created the campaign and that must run it.
    pub program: Program,
    /// Files and directories that the runs read, in addition to the plan.
    pub inputs: Vec<Input>,
    /// Names of the targets, and of the second copy of the baseline if one is run.
    pub targets: Vec<String>,
    /// The blocks, in the order of the plan: each is run on all targets, one after another.
    pub blocks: Vec<Block>,
}

/// A build of fslab.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Program {
    /// The version of fslab.
    pub version: String,
    /// BLAKE3 of the program's file.
    pub blake3: String,
}

/// A file or directory that runs read.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Input {
    /// The path as written in the plan.
    pub named: PathBuf,
    /// The path on every host.
    pub path: PathBuf,
    /// The kind of input.
    pub kind: InputKind,
    /// Bytes of the file, or of all files below the directory.
    pub bytes: u64,
    /// BLAKE3 of the file's contents, or of the directory's entries.
    pub blake3: String,
}

/// The kind of an input.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// A regular file.
    File,
    /// A directory with everything in it.
    Directory,
}

/// One workload in one round, on all targets: the unit that is run and repeated as a whole.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Block {
    /// The workload's label.
    pub workload: String,
    /// The round, from 0.
    pub round: u32,
    /// The seed of its samples.
    pub seed: u64,
}
