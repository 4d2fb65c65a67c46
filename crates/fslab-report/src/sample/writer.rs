//! Appends to a samples file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::format::Record;
use crate::error::{Error, Result};

/// A samples file that is being written. It is locked: two runs never write to one file. When it
/// is dropped it is unlocked, and not only closed: a command that is just being started holds all
/// that was open here until it runs, and would refuse the run that goes on with the file.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Makes the file, which must not exist: samples are never overwritten.
    pub fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path);
        Self::locked(path, file.map_err(Error::file(path))?)
    }

    /// Goes on with a file that exists. A last line that was cut short is cut off, so that what
    /// follows begins a line of its own.
    pub fn resume(path: &Path) -> Result<Self> {
        let failed = |error| Error::file(path)(error);
        let file = OpenOptions::new().append(true).read(true).open(path).map_err(failed)?;
        let mut writer = Self::locked(path, file)?;
        let mut bytes = Vec::new();
        writer.file.rewind().and_then(|()| writer.file.read_to_end(&mut bytes)).map_err(failed)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        writer.file.set_len(whole as u64).map_err(failed)?;
        Ok(writer)
    }

    fn locked(path: &Path, file: File) -> Result<Self> {
        match file.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), file }),
            Err(TryLockError::WouldBlock) => Err(Error::SamplesInUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(Error::file(path)(error)),
        }
    }

    /// Appends a record, by one write, so that an interruption leaves whole lines.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        let mut line = serde_json::to_vec(record).map_err(Error::Encode)?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(Error::file(&self.path))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "unlocking {}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second descriptor is what a command that is being started holds until it runs.
    #[test]
    fn samples_are_free_at_once_whoever_inherited_their_lock() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("samples.jsonl");
        let writer = Writer::create(&path).unwrap();
        let _child = writer.file.try_clone().unwrap();
        assert!(matches!(Writer::resume(&path), Err(Error::SamplesInUse { .. })));
        drop(writer);
        Writer::resume(&path).unwrap();
    }
}
