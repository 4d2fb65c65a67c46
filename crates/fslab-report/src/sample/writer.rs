//! Appends to a samples file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::format::Record;
use super::reader;
use crate::error::{Error, Result};

/// A samples file that is being written. It is locked, so that two runs never write to one file.
/// Dropping it unlocks the file explicitly, because closing the file is not enough. Between fork
/// and exec, a child process has copies of all open descriptors. Such a copy would keep the lock
/// and block a run that resumes the file.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    /// Whether the file is locked. A new file on a file system without locks is not locked.
    is_locked: bool,
}

impl Writer {
    /// Creates the file. An existing file without samples, which a failed run left behind, is
    /// replaced. Samples are never overwritten.
    pub fn create(path: &Path) -> Result<Self> {
        let file = match OpenOptions::new().append(true).create_new(true).open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Self::replace(path),
            created => created.map_err(Error::file(path))?,
        };
        match file.try_lock() {
            // The lock is not needed, because no other run writes to a new file.
            Err(TryLockError::Error(error)) if has_no_locks(&error) => {
                tracing::debug!(%error, "{} is not locked", path.display());
                Ok(Self { path: path.to_owned(), file, is_locked: false })
            }
            result => Self::locked(path, file, result),
        }
    }

    fn replace(path: &Path) -> Result<Self> {
        let writer = Self::resume(path)?;
        if reader::has_samples(path)? {
            return Err(Error::SamplesExist { path: path.to_owned() });
        }
        writer.file.set_len(0).map_err(Error::file(path))?;
        Ok(writer)
    }

    /// Opens an existing file for appending. An incomplete last line is removed, so that the next
    /// record begins a new line.
    pub fn resume(path: &Path) -> Result<Self> {
        let failed = |error| Error::file(path)(error);
        let file = OpenOptions::new().append(true).read(true).open(path).map_err(failed)?;
        let result = file.try_lock();
        let mut writer = Self::locked(path, file, result)?;
        let mut bytes = Vec::new();
        writer.file.rewind().and_then(|()| writer.file.read_to_end(&mut bytes)).map_err(failed)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        writer.file.set_len(whole as u64).map_err(failed)?;
        Ok(writer)
    }

    fn locked(
        path: &Path,
        file: File,
        result: std::result::Result<(), TryLockError>,
    ) -> Result<Self> {
        match result {
            Ok(()) => Ok(Self { path: path.to_owned(), file, is_locked: true }),
            Err(TryLockError::WouldBlock) => Err(Error::SamplesInUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(Error::file(path)(error)),
        }
    }

    /// Appends a record with one write, so that an interruption leaves complete lines.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        let mut line = serde_json::to_vec(record).map_err(Error::Encode)?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(Error::file(&self.path))
    }
}

/// Whether an error means that the file system has no locks, like NFS without a lock manager.
fn has_no_locks(error: &io::Error) -> bool {
    [libc::ENOSYS, libc::ENOLCK, libc::EOPNOTSUPP].map(Some).contains(&error.raw_os_error())
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.is_locked
            && let Err(error) = self.file.unlock()
        {
            tracing::warn!(%error, "can't unlock {}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_locks_are_distinguished_from_other_errors() {
        for errno in [libc::ENOSYS, libc::ENOLCK, libc::EOPNOTSUPP] {
            assert!(has_no_locks(&io::Error::from_raw_os_error(errno)));
        }
        assert!(!has_no_locks(&io::Error::from_raw_os_error(libc::EIO)));
    }

    /// The second descriptor simulates a command that is being started and has inherited the lock.
    #[test]
    fn dropping_a_writer_unlocks_samples_despite_inherited_locks() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("samples.jsonl");
        let writer = Writer::create(&path).unwrap();
        let _child = writer.file.try_clone().unwrap();
        assert!(matches!(Writer::resume(&path), Err(Error::SamplesInUse { .. })));
        drop(writer);
        Writer::resume(&path).unwrap();
    }
}
