//! Writes a trace as segments that are always complete.
//!
//! A Parquet file without its footer is unreadable, so an unfinished file is never visible. A
//! segment is written under a temporary name and then renamed. While a segment fills up, it is
//! saved at intervals under its final name, and each save replaces the one before it. So readers
//! find only complete files, even if the writer is killed. At most the records since the last save
//! are lost.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use crate::error::{Error, Result};
use crate::format::{Metadata, segment_name};
use crate::record::Record;
use crate::segment::Segment;

/// Temporary name of a segment during writing.
const UNFINISHED: &str = "unfinished";

/// Writes the segments of one trace.
pub struct TraceWriter {
    /// The directory of the trace. It is kept open, because its path may later refer to another
    /// directory, such as one inside the traced mount.
    directory: OwnedFd,
    path: PathBuf,
    metadata: Metadata,
    segment: Segment,
    /// Rows of the current segment that are on disk.
    saved_rows: usize,
    /// Bytes of all finished segments.
    finished_bytes: u64,
    /// Bytes of the current segment at the last save.
    segment_bytes: u64,
}

impl TraceWriter {
    /// Begins a trace in an empty directory, which is created if it does not exist. The fields
    /// `segment`, `lost` and `closed` of `metadata` are ignored.
    ///
    /// # Errors
    /// Returns [`Error::Unfit`] if the directory is not empty. Also fails on I/O errors.
    pub fn create(path: &Path, metadata: Metadata) -> Result<Self> {
        let path = std::path::absolute(path).map_err(Error::file(path))?;
        make_directory(&path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        let directory = opened.map_err(Error::file(&path))?;
        require_empty(&directory, &path)?;
        let metadata = Metadata { segment: 1, lost: 0, closed: false, ..metadata };
        let mut writer = Self {
            directory,
            path,
            metadata,
            segment: Segment::new(),
            saved_rows: 0,
            finished_bytes: 0,
            segment_bytes: 0,
        };
        // Write an empty segment, so that missing write permission is detected now, not at the
        // first record.
        writer.write(false)?;
        Ok(writer)
    }

    /// Returns the trace's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a record. If the segment is full afterwards, call
    /// [`finish_segment`](Self::finish_segment).
    pub fn push(&mut self, record: &Record) {
        self.segment.push(record);
    }

    /// Returns whether the segment has reached its maximum size.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.segment.is_full()
    }

    /// Returns the number of records that a kill would lose.
    #[must_use]
    pub fn unsaved(&self) -> usize {
        self.segment.rows() - self.saved_rows
    }

    /// Returns the bytes on disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.finished_bytes + self.segment_bytes
    }

    /// Returns the number of segments begun.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.metadata.segment
    }

    /// Returns the number of lost records.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.metadata.lost
    }

    /// Saves the current segment without a sync. The segment survives a kill of the process, but
    /// may be lost in a power cut.
    ///
    /// # Errors
    /// Fails on I/O errors. No record is lost by such a failure.
    pub fn save(&mut self) -> Result<()> {
        if self.unsaved() == 0 { Ok(()) } else { self.write(false) }
    }

    /// Saves the segment, makes it durable and begins the next.
    ///
    /// # Errors
    /// Fails on I/O errors. No record is lost by such a failure.
    pub fn finish_segment(&mut self) -> Result<()> {
        self.write(true)?;
        self.next_segment();
        Ok(())
    }

    /// Discards the unsaved records of the segment and counts them as lost. If a part of the
    /// segment is already on disk, a new segment is begun.
    pub fn give_up(&mut self) {
        self.metadata.lost += self.unsaved() as u64;
        if self.saved_rows > 0 {
            self.next_segment();
        } else {
            self.segment.clear();
        }
    }

    /// Saves the remaining records and marks the trace as closed cleanly.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn close(&mut self) -> Result<()> {
        self.metadata.closed = true;
        self.write(true)
    }

    fn next_segment(&mut self) {
        self.metadata.segment += 1;
        self.finished_bytes += std::mem::take(&mut self.segment_bytes);
        self.segment.clear();
        self.saved_rows = 0;
    }

    fn write(&mut self, durable: bool) -> Result<()> {
        let name = segment_name(self.metadata.segment);
        let written = self.write_beside(durable).and_then(|bytes| {
            rustix::fs::renameat(&self.directory, UNFINISHED, &self.directory, &name)
                .map_err(Error::file(&self.path.join(&name)))?;
            Ok(bytes)
        });
        if written.is_err() {
            // Remove the incomplete file, because the disk may be full. The first error is returned
            // even if the removal fails.
            rustix::fs::unlinkat(&self.directory, UNFINISHED, AtFlags::empty()).ok();
        }
        self.segment_bytes = written?;
        self.saved_rows = self.segment.rows();
        if durable {
            rustix::fs::fsync(&self.directory).map_err(Error::file(&self.path))?;
        }
        Ok(())
    }

    fn write_beside(&self, durable: bool) -> Result<u64> {
        let path = self.path.join(UNFINISHED);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        // The file contains other users' names and data, so only the tracing user may read it.
        let opened =
            rustix::fs::openat(&self.directory, UNFINISHED, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(opened.map_err(Error::file(&path))?);
        let bytes = self.segment.write(&file, self.metadata).map_err(Error::parquet(&path))?;
        if durable {
            file.sync_data().map_err(Error::file(&path))?;
        }
        Ok(bytes)
    }
}

fn make_directory(path: &Path) -> Result<()> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(Error::file(path)(error)),
    }
}

fn require_empty(directory: &OwnedFd, path: &Path) -> Result<()> {
    for entry in Dir::read_from(directory).map_err(Error::file(path))? {
        let entry = entry.map_err(Error::file(path))?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Err(Error::unfit(path, "is not empty: a trace needs a new or empty directory"));
        }
    }
    Ok(())
}
