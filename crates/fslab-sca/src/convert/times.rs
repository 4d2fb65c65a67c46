//! Restores the times of directories after a conversion, which changes them by creating and
//! renaming files.
//!
//! The times are saved durably in an xattr of the directory before its first change, so a resumed
//! run restores them too. Without xattrs, an interrupted run loses them. An ordinary user can't set
//! the times of directories that belong to others.

use fslab_vfs::{Errno, FileSystem, Ino, Result, SetAttr, SetTime, Timestamp};
use zerocopy::{FromBytes, IntoBytes};

use super::Conversion;
use crate::format::{TIMES_NAME, TimesRecord, VERSION};
use crate::size_xattr;

/// Times of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    accessed: Timestamp,
    modified: Timestamp,
}

impl Times {
    fn encode(&self) -> Vec<u8> {
        let mut record = TimesRecord {
            version: VERSION,
            zero: [0; 3],
            crc: 0.into(),
            accessed_seconds: self.accessed.seconds.into(),
            modified_seconds: self.modified.seconds.into(),
            accessed_nanoseconds: self.accessed.nanoseconds.into(),
            modified_nanoseconds: self.modified.nanoseconds.into(),
        };
        record.crc = crc32c::crc32c(record.as_bytes()).into();
        record.as_bytes().to_vec()
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let mut record = TimesRecord::read_from_bytes(value).ok()?;
        let crc = std::mem::take(&mut record.crc).get();
        if record.version != VERSION || crc != crc32c::crc32c(record.as_bytes()) {
            return None;
        }
        let (accessed, modified) = (record.accessed_seconds.get(), record.modified_seconds.get());
        Some(Self {
            accessed: Timestamp {
                seconds: accessed,
                nanoseconds: record.accessed_nanoseconds.get(),
            },
            modified: Timestamp {
                seconds: modified,
                nanoseconds: record.modified_nanoseconds.get(),
            },
        })
    }
}

impl Conversion {
    /// Saves the times of a directory before its first change.
    pub(super) fn note_times(&self, directory: Ino) -> Result<()> {
        let mut noted = self.noted_times.lock();
        if noted.contains_key(&directory) {
            return Ok(());
        }
        let (lower, request) = (&*self.lower, &self.request);
        let attr = lower.getattr(request, directory, None)?;
        let times = Times { accessed: attr.accessed, modified: attr.modified };
        let value = times.encode();
        match size_xattr::set(lower, request, directory, (TIMES_NAME, Some(&value))) {
            Ok(()) => self.sync_directory(directory)?,
            Err(error) if is_refused(&error) => {}
            Err(error) => return Err(error),
        }
        noted.insert(directory, times);
        Ok(())
    }

    /// Loads the times that an interrupted run saved.
    pub(super) fn find_noted_times(&self, directory: Ino) -> Result<()> {
        match size_xattr::value(&*self.lower, &self.request, directory, TIMES_NAME) {
            Ok(Some(value)) => {
                if let Some(times) = Times::decode(&value) {
                    self.noted_times.lock().insert(directory, times);
                }
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) if is_refused(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Restores the saved times of a directory.
    pub(super) fn restore_times(&self, directory: Ino) -> Result<()> {
        let Some(times) = self.noted_times.lock().remove(&directory) else { return Ok(()) };
        let (lower, request) = (&*self.lower, &self.request);
        self.set_times(directory, times)?;
        self.sync_directory(directory)?;
        match size_xattr::set(lower, request, directory, (TIMES_NAME, None)) {
            Err(error) if is_refused(&error) => Ok(()),
            answer => answer,
        }
    }

    /// Runs `work`, which changes the access time of a directory, and restores the time.
    pub(super) fn keeping_access_time<T>(
        &self,
        directory: Ino,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = self.lower.getattr(&self.request, directory, None)?;
        let answer = work()?;
        let after = self.lower.getattr(&self.request, directory, None)?;
        if after.accessed != before.accessed && after.modified == before.modified {
            let times = Times { accessed: before.accessed, modified: before.modified };
            self.set_times(directory, times)?;
        }
        Ok(answer)
    }

    fn set_times(&self, directory: Ino, times: Times) -> Result<()> {
        let changes = SetAttr {
            accessed: Some(SetTime::To(times.accessed)),
            modified: Some(SetTime::To(times.modified)),
            ..SetAttr::default()
        };
        match self.lower.setattr(&self.request, directory, None, &changes) {
            Err(error) if is_refused(&error) => Ok(()),
            answer => answer.map(drop),
        }
    }
}

fn is_refused(error: &fslab_vfs::Error) -> bool {
    let errno = error.errno();
    matches!(errno, Errno::ACCESS | Errno::PERM | Errno::NOSPC | Errno::DQUOT)
        || crate::lower::is_absence(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_encoding() {
        let accessed = Timestamp { seconds: -5, nanoseconds: 999_999_999 };
        let times = Times { accessed, modified: Timestamp { seconds: 1 << 40, nanoseconds: 1 } };
        let mut value = times.encode();
        assert_eq!(Times::decode(&value), Some(times));
        value[9] ^= 1;
        assert_eq!(Times::decode(&value), None);
    }
}
