//! Stores the progress of a replay in a file that is replaced atomically.

use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Data, Replayed, Settings};
use crate::error::{Error, Result};
use crate::table::directory_of;

/// Maximum size of a checkpoint file, in bytes.
const BYTES_MAX: u64 = 256 << 20;

/// A checkpoint. The first `replayed.operations` operations have been performed and are durable.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The identity of the workload.
    pub workload: String,
    /// The counts so far.
    pub replayed: Replayed,
    /// Maximum number of operations until the next checkpoint.
    pub every: u64,
    /// The kind of data written.
    pub data: Data,
    /// Numbers of the files that are missing on the target for lack of space.
    pub missing: Vec<u64>,
}

impl Checkpoint {
    pub(super) fn new(settings: &Settings, replayed: Replayed, missing: Vec<u64>) -> Self {
        let workload = settings.workload_hash.clone();
        // Checkpoints are written between batches, so the next one may be slightly late.
        let every = settings.checkpoint_every + 2 * 4096;
        Self { workload, replayed, every, data: settings.data, missing }
    }

    /// Reads the checkpoint; `None` if the file does not exist.
    ///
    /// # Errors
    /// Fails if the file is not a checkpoint, and on I/O errors.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let length = match std::fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            status => status.map_err(Error::file(path))?.len(),
        };
        if length > BYTES_MAX {
            return Err(Error::unfit(path, "it is too large for a checkpoint"));
        }
        let text = std::fs::read(path).map_err(Error::file(path))?;
        let parsed = serde_json::from_slice(&text);
        parsed
            .map(Some)
            .map_err(|error| Error::unfit(path, format!("it is not a checkpoint: {error}")))
    }

    /// Checks whether a replay can continue from this checkpoint.
    ///
    /// # Errors
    /// Returns the reason if it cannot.
    pub fn check(&self, path: &Path, settings: &Settings) -> Result<()> {
        let what = if self.workload != settings.workload_hash {
            "it belongs to another workload; use another checkpoint, or start from the beginning \
             without one"
        } else if self.data != settings.data {
            "the interrupted replay wrote another kind of data; resume with the --data of that \
             replay"
        } else {
            return Ok(());
        };
        Err(Error::unfit(path, what))
    }

    /// Replaces the checkpoint file atomically and durably.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let parent = directory_of(path);
        let mut file = tempfile::NamedTempFile::new_in(parent).map_err(Error::file(path))?;
        let text = serde_json::to_vec(self);
        let text = text.map_err(|error| Error::unfit(path, error.to_string()))?;
        file.write_all(&text).map_err(Error::file(path))?;
        file.as_file().sync_all().map_err(Error::file(path))?;
        file.persist(path).map_err(|error| error.error).map_err(Error::file(path))?;
        let directory = std::fs::File::open(parent).map_err(Error::file(parent))?;
        directory.sync_all().map_err(Error::file(parent))
    }
}
