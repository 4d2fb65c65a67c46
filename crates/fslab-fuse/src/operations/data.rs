//! Requests for the content of open files: read, write, sync, allocate and copy.

use std::ops::Range;
use std::sync::Arc;
use std::thread::Builder;

use fslab_vfs::{Errno, Error, FallocateMode, Ino, Request, Result, WriteOptions};
use rustix::fs::OFlags;

use crate::job::{Answer, Job};
use crate::notifications::write_back;
use crate::passthrough::CachedPages;
use crate::protocol::flags::{FSYNC_FDATASYNC, WRITE_CACHE, WRITE_KILL_SUIDGID, WRITE_LOCKOWNER};
use crate::protocol::opcode::Opcode;
use crate::protocol::reply::{CopyFileRangeOut, WriteOut};
use crate::protocol::request::{CopyFileRangeIn, FallocateIn, FsyncIn, ReadIn, WriteIn};
use crate::reply::send_later;
use crate::server::Server;

/// Maximum bytes of one copy request; callers request the rest. A copy by the lower file system
/// can't be interrupted, so this limits the waiting time.
const COPY_BYTES_MAX: u64 = 64 << 20;

/// End of the last page of the largest possible file.
pub(super) const POSITION_MAX: u64 = 1 << 63;

impl Server {
    pub(super) fn read(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: ReadIn = job.incoming.body.take()?;
        let (ino, open) = (job.ino(), self.handle(wanted.fh));
        let size = wanted.size.min(self.granted.write_bytes_max);
        check_range(wanted.offset, size.into())?;
        let room = job.output.room(size as usize);
        let count = self.file_system.read(&job.request, ino, open, wanted.offset, room)?;
        job.output.add_used(count.min(size as usize));
        Ok(Answer::Now)
    }

    pub(super) fn write(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: WriteIn = job.incoming.body.take()?;
        let data = job.incoming.body.take_bytes(wanted.size as usize)?;
        check_range(wanted.offset, wanted.size.into())?;
        let options = self.write_options(&wanted);
        let (ino, open, offset) = (job.ino(), self.handle(wanted.fh), wanted.offset);
        let write = |done: usize| {
            let (offset, left) = (offset + done as u64, &data[done..]);
            self.file_system.write(&job.request, ino, open, offset, left, options)
        };
        let before = match options.append {
            true => self.appended_before(job, ino, open, data)?,
            false => 0,
        };
        let count = if is_from_cache(&wanted) {
            write_all(data.len(), write).inspect_err(|error| self.note_failed(job, error))?
        } else if before > 0 && before == data.len() {
            self.clear_set_id_once_more(job, open, options)?;
            before
        } else {
            before + write(before)?
        };
        // The count is at most the length of the request, which has 32 bits.
        let written = WriteOut { size: count as u32, padding: 0 };
        let pages = match bypasses_cache(&wanted) {
            true => self.backing.cached_pages(ino),
            false => CachedPages::None,
        };
        if pages == CachedPages::None {
            job.output.put(&written);
            return Ok(Answer::Now);
        }
        Ok(self.answer_without_pages(job, pages, offset..offset + count as u64, written))
    }

    /// Answers a direct write once the kernel caches no page of its range. The kernel drops these
    /// pages before a direct write, but not again after an asynchronous one. A page that was read
    /// during the write may contain the old bytes.
    ///
    /// Dropping pages waits for their readers, whose requests need free threads of the mount. So a
    /// separate thread drops them.
    fn answer_without_pages(
        &self,
        job: &mut Job<'_>,
        pages: CachedPages,
        range: Range<u64>,
        written: WriteOut,
    ) -> Answer {
        let (transport, ino) = (Arc::clone(&self.transport), job.ino());
        let backing = Arc::clone(&self.backing);
        let range = if let CachedPages::OfClosed(_) = pages { 0..u64::MAX } else { range };
        let drop_pages = move || match write_back(&*transport, ino, range) {
            Ok(()) => backing.note_dropped(ino, pages),
            Err(error) => {
                tracing::warn!(%error, "can't drop cached pages; reads may return old data");
            }
        };
        let Some(later) = job.later else {
            drop_pages();
            job.output.put(&written);
            return Answer::Now;
        };
        let (later, header) = (Arc::clone(later), job.incoming.header);
        let answer = move || {
            drop_pages();
            Ok(written)
        };
        let work = move || send_later(&*later, Opcode::Write, header, answer);
        match Builder::new().name("fslab-pages".to_owned()).spawn(work) {
            Ok(_) => Answer::Later,
            // This thread must not drop the pages, because that could wait for this same request.
            Err(error) => {
                tracing::warn!(%error, "can't start a thread; reads may return old cached data");
                job.output.put(&written);
                Answer::Now
            }
        }
    }

    fn note_failed(&self, job: &Job<'_>, error: &Error) {
        if let Some(failed_writes) =
            self.failed_writes.as_ref().filter(|_| !matches!(error, Error::Deferred))
        {
            let free_bytes = self.free_bytes(&job.request, job.ino());
            failed_writes.note_failure(job.ino(), error.errno(), free_bytes);
        }
    }

    /// Number of free bytes of the file system that contains an inode, if known.
    pub(super) fn free_bytes(&self, request: &Request, ino: Ino) -> Option<u64> {
        let stat = self.file_system.statfs(request, ino).ok()?;
        Some(stat.blocks_free.saturating_mul(stat.fragment_size.into()))
    }

    /// Returns the options of a write. The write appends if the flag `O_APPEND` of the descriptor
    /// is set at that moment. Exceptions are cached pages and the pieces of a direct write, which
    /// may arrive in any order and are written at their own offsets. In writeback mode, the kernel
    /// knows the end of the file and handles appends itself.
    fn write_options(&self, wanted: &WriteIn) -> WriteOptions {
        let flags = OFlags::from_bits_retain(wanted.flags);
        let has_place = is_from_cache(wanted) || is_direct(wanted) || self.granted.writeback();
        WriteOptions {
            kill_set_id: wanted.write_flags & WRITE_KILL_SUIDGID != 0,
            append: flags.contains(OFlags::APPEND) && !has_place,
        }
    }

    pub(super) fn fsync(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: FsyncIn = job.incoming.body.take()?;
        let data_only = wanted.fsync_flags & FSYNC_FDATASYNC != 0;
        self.file_system.fsync(&job.request, job.ino(), self.handle(wanted.fh), data_only)?;
        self.note_recovery(job.ino());
        Ok(Answer::Now)
    }

    pub(super) fn fallocate(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: FallocateIn = job.incoming.body.take()?;
        let (ino, open) = (job.ino(), self.handle(wanted.fh));
        let (offset, length) = (wanted.offset, wanted.length);
        check_range(offset, length)?;
        let mode = FallocateMode::from_bits_retain(wanted.mode);
        self.file_system.fallocate(&job.request, ino, open, offset, length, mode)?;
        Ok(Answer::Now)
    }

    pub(super) fn copy_file_range(&self, job: &mut Job<'_>) -> Result<Answer> {
        let count = self.copy(job)?;
        job.output.put(&WriteOut { size: count as u32, padding: 0 });
        Ok(Answer::Now)
    }

    pub(super) fn copy_file_range_64(&self, job: &mut Job<'_>) -> Result<Answer> {
        let bytes_copied = self.copy(job)?;
        job.output.put(&CopyFileRangeOut { bytes_copied });
        Ok(Answer::Now)
    }

    fn copy(&self, job: &mut Job<'_>) -> Result<u64> {
        let wanted: CopyFileRangeIn = job.incoming.body.take()?;
        let source = (job.ino(), self.handle(wanted.fh_in), wanted.off_in);
        let target = (Ino(wanted.nodeid_out), self.handle(wanted.fh_out), wanted.off_out);
        check_range(wanted.off_in, 0)?;
        check_range(wanted.off_out, 0)?;
        let end_max = POSITION_MAX - wanted.off_in.max(wanted.off_out);
        let length = wanted.len.min(COPY_BYTES_MAX).min(end_max);
        let copied = self.file_system.copy_file_range(&job.request, source, target, length)?;
        // Reading the source may have updated its access time.
        self.note_unseen_change(source.0);
        Ok(copied)
    }
}

/// Repeats `write` until all bytes of cached pages are written. For cached pages, the kernel
/// ignores the returned count and only reports an error, at the next fsync or close. For other
/// writes, the caller receives the count and writes the rest.
fn write_all(length: usize, write: impl Fn(usize) -> Result<usize>) -> Result<usize> {
    let mut count = write(0)?;
    while count < length {
        count += some(write(count)?)?;
    }
    Ok(count)
}

/// Whether a write contains pages of the kernel's cache.
fn is_from_cache(wanted: &WriteIn) -> bool {
    wanted.write_flags & WRITE_CACHE != 0
}

/// Whether a write bypasses the kernel's cache.
fn is_direct(wanted: &WriteIn) -> bool {
    !is_from_cache(wanted) && OFlags::from_bits_retain(wanted.flags).contains(OFlags::DIRECT)
}

/// Whether a direct write bypassed the kernel's page cache. The kernel may send the rest of a short
/// direct write through the cache, without `WRITE_LOCKOWNER`. The last page of such a write is
/// locked until the reply and can't be dropped.
fn bypasses_cache(wanted: &WriteIn) -> bool {
    is_direct(wanted) && wanted.write_flags & WRITE_LOCKOWNER != 0
}

/// Makes a successful write of zero bytes an error, because repeating it would never end.
fn some(count: usize) -> Result<usize> {
    if count == 0 { Err(Errno::IO.into()) } else { Ok(count) }
}

/// Refuses a range beyond the maximum file size; the kernel never sends one.
pub(super) fn check_range(offset: u64, length: u64) -> Result<()> {
    let end = offset.checked_add(length).filter(|end| *end <= POSITION_MAX);
    end.map(drop).ok_or_else(|| Errno::INVAL.into())
}
