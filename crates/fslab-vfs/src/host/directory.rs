//! An open directory, listed by the positions of the lower file system.
//!
//! The cookies of `getdents` remain valid while names are created and removed, so they are used as
//! offsets unchanged. Entries that did not fit into the reader's buffer are kept for the next
//! request, which usually continues there.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;

use parking_lot::Mutex;
use rustix::fs::{RawDir, SeekFrom};

use crate::error::Result;
use crate::types::FileKind;

/// Buffer size of one `getdents` call.
const BUFFER_BYTES: usize = 32 * 1024;

/// An entry as returned by the lower directory.
#[derive(Debug)]
pub(super) struct LowerEntry {
    pub number: u64,
    pub kind: Option<FileKind>,
    pub next_offset: u64,
    pub name: OsString,
}

#[derive(Debug)]
pub(super) struct OpenDirectory {
    pub descriptor: OwnedFd,
    stream: Mutex<Stream>,
}

#[derive(Debug, Default)]
struct Stream {
    /// Entries read from the lower directory but not yet delivered, in order.
    pending: VecDeque<LowerEntry>,
    /// The position of the first pending entry, or of the descriptor if none is pending.
    position: u64,
}

impl OpenDirectory {
    pub fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor, stream: Mutex::default() }
    }

    /// Delivers entries from `offset` until `deliver` returns `false` or the directory ends.
    pub fn list(&self, offset: u64, deliver: &mut dyn FnMut(&LowerEntry) -> bool) -> Result<()> {
        let mut stream = self.stream.lock();
        if offset != stream.position {
            stream.pending.clear();
            rustix::fs::seek(&self.descriptor, SeekFrom::Start(offset))?;
            stream.position = offset;
        }
        loop {
            if stream.deliver_pending(deliver) {
                return Ok(());
            }
            match self.fill(&mut stream) {
                // The delivered entries are valid. The error will recur at the next request.
                Err(_) if stream.position != offset => return Ok(()),
                filled => {
                    if filled? == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn fill(&self, stream: &mut Stream) -> Result<usize> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(&self.descriptor, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            stream.pending.push_back(LowerEntry {
                number: entry.ino(),
                kind: FileKind::from_mode(entry.file_type().as_raw_mode()),
                next_offset: entry.next_entry_cookie(),
                name: OsString::from_vec(entry.file_name().to_bytes().to_vec()),
            });
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(stream.pending.len())
    }
}

impl Stream {
    /// Delivers pending entries. Returns `true` if the receiver has no more room.
    fn deliver_pending(&mut self, deliver: &mut dyn FnMut(&LowerEntry) -> bool) -> bool {
        while let Some(entry) = self.pending.front() {
            if !deliver(entry) {
                return true;
            }
            self.position = entry.next_offset;
            self.pending.pop_front();
        }
        false
    }
}
