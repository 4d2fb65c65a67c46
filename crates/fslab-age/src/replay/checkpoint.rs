//! The progress of a replay, in a file that is replaced atomically.

use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Data, Replayed, Settings};
use crate::error::{Error, Result};
use crate::table::directory_of;

/// Maximum size of a checkpoint file, in bytes.
const BYTES_MAX: u64 = 256 << 20;

/// A checkpoint: the first `replayed.operations` operations are done and durable.
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
    /// Numbers of the files that are missing on the target because there was no space.
    pub missing: Vec<u64>,
}

impl Checkpoint {
    pub(super) fn new(settings: &Settings, replayed: Replayed, missing: Vec<u64>) -> Self {
        let workload = settings.workload_hash.clone();
        // A batch may end slightly after the mark.
        let every = settings.checkpoint_every + 2 * 4096;
        Self { workload, replayed, every, data: settings.data, missing }
    }

    /// Reads the checkpoint; `None` if there is no file.
    ///
    /// # Errors
    /// Fails if the file is not a checkpoint, and with errors of the system.
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
            .map_err(|error| Error::unfit(path, format!("it is no checkpoint: {error}")))
    }

    /// Checks whether a replay can continue from here.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check(&self, path: &Path, settings: &Settings) -> Result<()> {
        let what = if self.workload != settings.workload_hash {
            "it is of another workload; name another checkpoint, or begin anew without it"
        } else if self.data != settings.data {
            "the replay wrote other data; resume with the same --data"
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
