//! The settings of a run beyond the plan: the cells, the number of reruns, the work directory and
//! the recordings. They are stored with the samples, so that a resumed run continues with the same
//! settings.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cells::Cells;
use crate::sample::{self, Record};

/// The cells of a plan to run, the number of reruns, the work directory and the recordings.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Choice {
    /// The cells to run.
    pub cells: Cells,
    /// Maximum number of times that a block is run again because of interference.
    pub reruns_max: u32,
    /// The parent of the work directory. `None` stands for the directory that contains the samples
    /// file, even after the file was moved.
    pub work_parent: Option<PathBuf>,
    /// The recordings of each phase.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recordings: Vec<Recording>,
}

/// A recording that is made during a phase, in addition to its sample.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Recording {
    /// Call stacks of all processors, recorded by perf(1).
    Perf,
    /// The requests of the target's block device.
    Block,
}

impl Recording {
    /// Returns its name in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Block => "block",
        }
    }
}

impl fmt::Display for Recording {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl Choice {
    /// Returns the value of `work_parent` for a directory: its full path, or `None` if it is the
    /// directory that contains the samples file.
    #[must_use]
    pub fn kept(work_parent: &Path, samples: &Path) -> Option<PathBuf> {
        let full = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let beside = full(Self::default().work_parent_of(samples));
        Some(full(work_parent)).filter(|parent| *parent != beside)
    }

    /// Returns the parent of the work directory.
    #[must_use]
    pub fn work_parent_of<'a>(&'a self, samples: &'a Path) -> &'a Path {
        let beside = samples.parent().filter(|parent| *parent != Path::new(""));
        self.work_parent.as_deref().or(beside).unwrap_or(Path::new("."))
    }

    /// Returns the settings of a run's last session; `None` if an older fslab wrote the records
    /// without them.
    #[must_use]
    pub fn of(records: &[Record]) -> Option<&Self> {
        sample::sessions(records).rev().find_map(|session| session.choice.as_ref())
    }

    /// Describes a difference from the settings with which a run was begun; `None` if there is
    /// none.
    #[must_use]
    pub fn differs(&self, begun: &Self) -> Option<&'static str> {
        if self.cells != begun.cells {
            Some("its choice of cells differs from the requested choice")
        } else if self.reruns_max != begun.reruns_max {
            Some("its number of reruns differs from the requested number")
        } else if self.work_parent != begun.work_parent {
            Some("its work directory differs from the requested directory")
        } else if self.recordings != begun.recordings {
            Some("its recordings differ from the requested ones")
        } else {
            None
        }
    }
}
