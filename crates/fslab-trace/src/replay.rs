//! Does the operations of a trace again, on any file system.
//!
//! One by one, in the order in which they ended: an operation that began after another had ended
//! comes after it here too. Inodes and open files get the numbers that the target gives them. What
//! comes out otherwise than recorded is counted, and the first cases are kept.

mod numbers;
mod outcome;
mod perform;

use fslab_vfs::{Credentials, Errno, FileSystem, Ino, Operation, Request};

use crate::dump::errno_name;
use crate::record::Record;

use numbers::Numbers;
use outcome::{Done, OpenFile, Unfit};

/// So many cases that came out otherwise are kept.
const DIVERGENCES_MAX: usize = 20;

/// In whose name the operations are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Of whoever asked for them when they were recorded; needs root.
    Recorded,
    /// Of this user; changes of ownership are left out.
    Instead(Credentials),
}

/// What a replay must be told.
pub struct Settings<'a> {
    /// In whose name.
    pub owner: Owner,
    /// Makes what was written, where the trace doesn't hold it: fills the buffer, whose length is
    /// that of the write.
    pub fill: &'a mut dyn FnMut(&Record, &mut [u8]),
}

/// Does operations again on a target.
pub struct Replayer<'a> {
    target: &'a dyn FileSystem,
    settings: Settings<'a>,
    /// By the inode number of the trace; the root is not among them.
    inodes: Numbers<Known>,
    /// By the handle of the trace.
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

/// How a replay went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Operations done.
    pub operations: u64,
    /// Operations that could not be asked for.
    pub left_out: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Operations that came out otherwise than recorded, or were left out.
    pub diverged: u64,
    /// The first of them.
    pub divergences: Vec<Divergence>,
}

/// An operation that came out otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The record.
    pub sequence: u64,
    /// What was done.
    pub operation: Operation,
    /// What was recorded and what came out.
    pub what: String,
}

impl std::fmt::Display for Divergence {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "record {}, {}: {}", self.sequence, self.operation, self.what)
    }
}

impl<'a> Replayer<'a> {
    /// A replay on a target that is as the traced file system was when the trace began.
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

    /// Does one operation again. What comes out otherwise is noted, not an error.
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

    /// Closes and forgets what the trace left open, and tells how it went.
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
        let credentials = match &self.settings.owner {
            Owner::Recorded => Credentials {
                uid: record.uid.unwrap_or_default(),
                gid: record.gid.unwrap_or_default(),
            },
            Owner::Instead(credentials) => credentials.clone(),
        };
        request_of(credentials, record)
    }

    fn compare(&mut self, record: &Record, answer: Result<&Done, Errno>) {
        let found = answer.map_or_else(|errno| errno.raw_os_error().cast_unsigned(), |_done| 0);
        if found != record.errno {
            let (was, is) = (outcome(record.errno), outcome(found));
            return self.diverge(record, format!("was {was}, is {is}"));
        }
        let count = answer.ok().and_then(|done| done.count);
        if let (Some(was), Some(is)) = (record.result, count)
            && was != is
        {
            self.diverge(record, format!("was {was} bytes, is {is}"));
        }
    }

    fn diverge(&mut self, record: &Record, what: String) {
        self.result.diverged += 1;
        if self.result.divergences.len() < DIVERGENCES_MAX {
            let (sequence, operation) = (record.sequence, record.operation);
            self.result.divergences.push(Divergence { sequence, operation, what });
        }
    }

    /// Remembers which inode and handle of the target stand for those of the trace. What only the
    /// target answered is given back.
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
        let OpenFile { ino, handle, is_directory, .. } = open;
        let closed = if is_directory {
            self.target.releasedir(request, ino, handle)
        } else {
            self.target.release(request, ino, handle)
        };
        if let Err(error) = closed {
            tracing::warn!(%error, "closing a file after a replay");
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

    /// Gives back lookups, as far as they are held here.
    fn forget(&mut self, number: u64, lookups: u64) {
        let Some(known) = self.inodes.oldest_mut(number) else { return };
        let given = lookups.min(known.lookups);
        known.lookups -= given;
        let (ino, left) = (known.ino, known.lookups);
        self.target.forget(ino, given);
        if left == 0 {
            self.inodes.free(number);
        }
    }
}

fn request_of(credentials: Credentials, record: &Record) -> Request {
    let time_ns = record.time_ns.unwrap_or_default();
    let now = fslab_vfs::Timestamp {
        seconds: time_ns.div_euclid(1_000_000_000),
        nanoseconds: time_ns.rem_euclid(1_000_000_000) as u32,
    };
    let umask = record.umask.unwrap_or_default();
    Request { credentials, umask, now, ..Request::default() }
}

fn outcome(errno: u32) -> String {
    if errno == 0 { "done".to_owned() } else { errno_name(errno) }
}
