//! Estimates the duration of a comparison. The durations of earlier runs on this machine are in a
//! file in the cache folder.
//!
//! If this file can't be read or written, the comparison still runs and only the estimate is
//! affected.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fslab_compare::Plan;
use fslab_report::sample::{self, Record};
use serde::{Deserialize, Serialize};

/// The durations of runs in seconds. The key is made from the target and the workload.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Durations {
    seconds: BTreeMap<String, f64>,
}

impl Durations {
    /// Reads the recorded durations; empty if they can't be read.
    pub fn load() -> Self {
        let text = path().and_then(|path| fs::read_to_string(path).ok());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Returns the seconds that one workload on one target of a plan took when it last ran.
    pub fn of(&self, plan: &Plan, target: &str, workload: &str) -> Option<f64> {
        self.seconds.get(&key(plan, target, workload)?).copied()
    }

    /// Records the durations from the blocks of a samples file.
    pub fn learn(&mut self, records: &[Record], plan: &Plan) {
        let blocks = records.iter().filter_map(|record| match record {
            Record::Block(block) => Some(block),
            _ => None,
        });
        for block in blocks {
            for cell in block.cells.iter().filter(|cell| cell.done) {
                if let Some(key) = key(plan, &cell.target, &block.workload) {
                    self.seconds.insert(key, cell.seconds);
                }
            }
        }
    }
}

/// Saves the durations of a comparison.
pub(super) fn remember(samples: &Path, plan: &Plan) {
    let remember = || -> anyhow::Result<()> {
        let Some(path) = path() else { return Ok(()) };
        let mut durations = Durations::load();
        durations.learn(&sample::read(samples)?, plan);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        Ok(fs::write(path, serde_json::to_vec_pretty(&durations)?)?)
    };
    if let Err(error) = remember() {
        tracing::debug!("durations: {error}");
    }
}

/// Returns the key of a run: the target and the workload as in the plan, and the image size.
fn key(plan: &Plan, target: &str, workload: &str) -> Option<String> {
    let target = plan.targets.iter().find(|known| known.name == target)?;
    let workload = plan.workloads.iter().find(|known| known.label == workload)?;
    Some(format!(
        "{} {:?} on {:?} of {}",
        workload.spec.name, workload.parameters, target.kind, plan.image_size
    ))
}

fn path() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = folder("FSLAB_CACHE")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("fslab")))
        .or_else(|| Some(folder("HOME")?.join(".cache/fslab")))?;
    Some(cache.join("durations.json"))
}
