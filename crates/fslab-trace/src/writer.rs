//! Writes a trace: segments that are always whole.
//!
//! A Parquet file without its footer is unreadable, so that no file is ever seen unfinished: a
//! segment is written beside its place and renamed into it. The segment that is still filling up
//! is saved now and then under its final name, and replaced by a longer version of itself later.
//! Whoever reads finds only whole files, whenever the writer was killed; lost is at most what came
//! after the last save.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use crate::error::{Error, Result};
use crate::format::{Metadata, segment_name};
use crate::record::Record;
use crate::segment::Segment;

/// Where a segment is written before it is whole.
const UNFINISHED: &str = "unfinished";

/// Writes the segments of one trace.
pub struct TraceWriter {
    /// Held open: the path may mean another place later, such as one below the traced mount.
    directory: OwnedFd,
    path: PathBuf,
    metadata: Metadata,
    segment: Segment,
    /// Rows of the segment that are on disk.
    saved_rows: usize,
    /// Bytes of all finished segments.
    finished_bytes: u64,
    /// Bytes of the segment in work, as last saved.
    segment_bytes: u64,
}

impl TraceWriter {
    /// Begins a trace in a directory, which is made if need be and must be empty. Of `metadata`,
    /// only what is kept of data and names counts.
    ///
    /// # Errors
    /// [`Error::Unfit`], or what the system answers.
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
        // A place where nothing can be written is found now, not at the first record.
        writer.write(false)?;
        Ok(writer)
    }

    /// The trace's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a record. When the segment is full afterwards, [`finish_segment`](Self::finish_segment)
    /// is due.
    pub fn push(&mut self, record: &Record) {
        self.segment.push(record);
    }

    /// Whether the segment holds as much as one may.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.segment.is_full()
    }

    /// Records that a kill would lose.
    #[must_use]
    pub fn unsaved(&self) -> usize {
        self.segment.rows() - self.saved_rows
    }

    /// Bytes on disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.finished_bytes + self.segment_bytes
    }

    /// Segments begun.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.metadata.segment
    }

    /// Records given up.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.metadata.lost
    }

    /// Saves the segment as far as it is filled. It is not made durable: a kill doesn't lose it, a
    /// power cut may.
    ///
    /// # Errors
    /// What the system answers; everything is still held then.
    pub fn save(&mut self) -> Result<()> {
        if self.unsaved() == 0 { Ok(()) } else { self.write(false) }
    }

    /// Saves the segment, makes it durable and begins the next.
    ///
    /// # Errors
    /// What the system answers; everything is still held then.
    pub fn finish_segment(&mut self) -> Result<()> {
        self.write(true)?;
        self.next_segment();
        Ok(())
    }

    /// Gives up the records of the segment that are not saved, and begins the next.
    pub fn give_up(&mut self) {
        self.metadata.lost += self.unsaved() as u64;
        if self.saved_rows > 0 {
            self.next_segment();
        } else {
            self.segment.clear();
        }
    }

    /// Saves what is left and marks the trace as closed in good order.
    ///
    /// # Errors
    /// What the system answers.
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
            // Only takes up space, which may be what is missing; the first error is told.
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
        // Names and contents of others' files: for the tracing user alone.
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
