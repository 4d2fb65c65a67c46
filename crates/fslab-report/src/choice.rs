//! What a run's command says beyond the plan: which cells are run, how often they are run again and
//! where. It is kept with the samples, so that a run that is resumed goes on as it was begun.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cells::Cells;
use crate::sample::{self, Record};

/// What is run of a plan, how often again, and where.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Choice {
    /// Which cells are run.
    pub cells: Cells,
    /// How often a block is run again because the machine did other things meanwhile.
    pub reruns_max: u32,
    /// Where the work directory is made; `None` for beside the samples, wherever they are moved.
    pub work_parent: Option<PathBuf>,
}

impl Choice {
    /// The directory that is kept for one that is given: its full path, unless it is that of the
    /// samples.
    #[must_use]
    pub fn kept(work_parent: &Path, samples: &Path) -> Option<PathBuf> {
        let full = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let beside = full(Self::default().work_parent_of(samples));
        Some(full(work_parent)).filter(|parent| *parent != beside)
    }

    /// Where the work directory is made.
    #[must_use]
    pub fn work_parent_of<'a>(&'a self, samples: &'a Path) -> &'a Path {
        let beside = samples.parent().filter(|parent| *parent != Path::new(""));
        self.work_parent.as_deref().or(beside).unwrap_or(Path::new("."))
    }

    /// What the last session of a run was begun with; `None` where an older fslab wrote its
    /// records, which did not tell.
    #[must_use]
    pub fn of(records: &[Record]) -> Option<&Self> {
        sample::sessions(records).rev().find_map(|session| session.choice.as_ref())
    }

    /// In what this differs from what a run was begun with; `None` where it does not.
    #[must_use]
    pub fn differs(&self, begun: &Self) -> Option<&'static str> {
        if self.cells != begun.cells {
            Some("its choice of cells is another")
        } else if self.reruns_max != begun.reruns_max {
            Some("its number of reruns is another")
        } else if self.work_parent != begun.work_parent {
            Some("its work directory is another")
        } else {
            None
        }
    }
}
