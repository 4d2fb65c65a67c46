//! Repeats the operations of a trace on any file system.
//!
//! The operations are performed one by one, in the order in which they ended. So if one operation
//! began after another had ended, the replay performs them in the same order. Inodes and open files
//! get the numbers that the target assigns. Results that differ from the recorded ones are counted,
//! and the first cases are kept.

mod numbers;
mod outcome;
mod perform;

use fslab_vfs::{Credentials, Errno, FileSystem, Ino, Operation, Request, Timestamp};

use crate::dump::errno_name;
use crate::record::Record;

use numbers::Numbers;
use outcome::{Done, OpenFile, Unfit};

/// Maximum number of divergences that are kept.
const DIVERGENCES_MAX: usize = 20;

/// Settings of a replay.
pub struct Settings<'a> {
    /// The user who performs all operations; changes of ownership are then skipped. Without this
    /// setting, each operation is performed as the user who requested it in the trace, which needs
    /// root.
    pub owner: Option<Credentials>,
    /// Generates the written data if the trace does not contain it. The function fills the buffer,
    /// which is as long as the write.
    pub fill: &'a mut dyn FnMut(&Record, &mut [u8]),
}

/// Repeats operations on a target.
pub struct Replayer<'a> {
    target: &'a dyn FileSystem,
    settings: Settings<'a>,
    /// Inodes by the trace's inode number, without the root.
    inodes: Numbers<Known>,
    /// Open files by the trace's handle.
    handles: Numbers<OpenFile>,
    buffer: Vec<u8>,
    result: Replayed,
}

/// An inode of the target.
#[derive(Clone, Copy, Debug)]
struct Known {
    ino: Ino,
    lookups: u64,
}

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Number of operations performed.
    pub operations: u64,
    /// Number of operations that could not be repeated.
    pub left_out: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Number of operations whose result differed from the recorded one, or that were left out.
    pub diverged: u64,
    /// The first operations that diverged.
    pub divergences: Vec<Divergence>,
}

/// An operation whose result differed from the recorded one, or that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Sequence number of the record.
    pub sequence: u64,
    /// The operation.
    pub operation: Operation,
    /// The recorded and the new result, or the reason why the operation was left out.
    pub what: String,
}

impl std::fmt::Display for Divergence {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "record {}, {}: {}", self.sequence, self.operation, self.what)
    }
}

impl<'a> Replayer<'a> {
    /// Prepares a replay. The target must be in the state of the traced file system at the start of
    /// the trace.
    #[must_use]
    pub fn new(target: &'a dyn FileSystem, settings: Settings<'a>) -> Self {
        Self {
            target,
            settings,
            inodes: Numbers::default(),
            handles: Numbers::default(),
            buffer: Vec::new(),
            result: Replayed::default(),
        }
    }

    /// Repeats one operation. A different result is recorded as a divergence; it is not an error.
    pub fn step(&mut self, record: &Record) {
        let request = self.request(record);
        match self.perform(&request, record) {
            Ok(answer) => {
                self.result.operations += 1;
                self.compare(record, answer.as_ref().map_err(fslab_vfs::Error::errno));
                self.keep(&request, record, answer.ok());
            }
            Err(unfit) => {
                self.result.left_out += 1;
                self.diverge(record, unfit.to_string());
            }
        }
    }

    /// Closes the remaining files, releases the remaining inode references, and returns the result.
    #[must_use]
    pub fn finish(mut self) -> Replayed {
        let request = request_of(Credentials::default(), &Record::new(Operation::Release));
        for open in std::mem::take(&mut self.handles).into_meanings() {
            self.close(&request, open);
        }
        for known in std::mem::take(&mut self.inodes).into_meanings() {
            self.target.forget(known.ino, known.lookups);
        }
        self.result
    }

    fn request(&self, record: &Record) -> Request {
        let recorded = || Credentials {
            uid: record.uid.unwrap_or_default(),
            gid: record.gid.unwrap_or_default(),
        };
        request_of(self.settings.owner.clone().unwrap_or_else(recorded), record)
    }

    fn compare(&mut self, record: &Record, answer: Result<&Done, Errno>) {
        let found = answer.map_or_else(|errno| errno.raw_os_error().cast_unsigned(), |_done| 0);
        if found != record.errno {
            let (was, is) = (outcome(record.errno), outcome(found));
            return self.diverge(
                record,
                format!("the recorded result was {was}, but the replay returned {is}"),
            );
        }
        let count = answer.ok().and_then(|done| done.count);
        if let (Some(was), Some(is)) = (record.result, count)
            && was != is
        {
            self.diverge(
                record,
                format!("the recorded result was {was} bytes, but the replay returned {is}"),
            );
        }
    }

    fn diverge(&mut self, record: &Record, what: String) {
        self.result.diverged += 1;
        if self.result.divergences.len() < DIVERGENCES_MAX {
            let (sequence, operation) = (record.sequence, record.operation);
            self.result.divergences.push(Divergence { sequence, operation, what });
        }
    }

    /// Maps the trace's inode and handle to those of the target. If the recorded operation returned
    /// no inode or handle, those of the target are released.
    fn keep(&mut self, request: &Request, record: &Record, done: Option<Done>) {
        let done = done.unwrap_or_default();
        if let Some(ino) = done.found {
            match record.result_inode.filter(|_| record.errno == 0) {
                Some(number) => self.bind(number, ino),
                None => self.target.forget(ino, 1),
            }
        }
        if let Some(open) = done.opened {
            match record.result_handle.filter(|_| record.errno == 0) {
                Some(number) => self.handles.add(number, open),
                None => self.close(request, open),
            }
        }
        self.result.bytes_read += done.bytes_read;
        self.result.bytes_written += done.bytes_written;
    }

    fn bind(&mut self, number: u64, ino: Ino) {
        if number == Ino::ROOT.0 {
            return;
        }
        match self.inodes.newest_mut(number).filter(|known| known.ino == ino) {
            Some(known) => known.lookups += 1,
            None => self.inodes.add(number, Known { ino, lookups: 1 }),
        }
    }

    fn close(&self, request: &Request, open: OpenFile) {
        if let Err(error) = self.release(request, open) {
            tracing::warn!(%error, "can't close a file after a replay");
        }
    }

    fn release(&self, request: &Request, open: OpenFile) -> fslab_vfs::Result<()> {
        let OpenFile { ino, handle, is_directory, .. } = open;
        match is_directory {
            true => self.target.releasedir(request, ino, handle),
            false => self.target.release(request, ino, handle),
        }
    }

    fn known(&self, number: Option<u64>) -> Result<Ino, Unfit> {
        let number = number.ok_or(Unfit::Incomplete)?;
        if number == Ino::ROOT.0 {
            return Ok(Ino::ROOT);
        }
        let known = self.inodes.newest(number).ok_or(Unfit::UnknownInode { number })?;
        Ok(known.ino)
    }

    fn open_file(&self, number: Option<u64>) -> Result<OpenFile, Unfit> {
        let number = number.ok_or(Unfit::Incomplete)?;
        self.handles.newest(number).copied().ok_or(Unfit::UnknownHandle { number })
    }

    /// Releases lookup counts on the target, at most as many as this replay holds.
    fn forget(&mut self, number: Option<u64>, lookups: Option<u64>) -> Result<(), Unfit> {
        let (number, lookups) = number.zip(lookups).ok_or(Unfit::Incomplete)?;
        let Some(known) = self.inodes.oldest_mut(number) else { return Ok(()) };
        let given = lookups.min(known.lookups);
        known.lookups -= given;
        let (ino, left) = (known.ino, known.lookups);
        self.target.forget(ino, given);
        if left == 0 {
            self.inodes.free(number);
        }
        Ok(())
    }
}

fn request_of(credentials: Credentials, record: &Record) -> Request {
    let now = Timestamp::from_ns(record.time_ns.unwrap_or_default());
    let umask = record.umask.unwrap_or_default();
    Request { credentials, umask, now, ..Request::default() }
}

fn outcome(errno: u32) -> String {
    if errno == 0 { "success".to_owned() } else { errno_name(errno) }
}
