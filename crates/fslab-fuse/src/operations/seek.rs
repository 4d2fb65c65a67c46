//! Requests for the next data or hole of an open file.
//!
//! Bytes that exist only in the kernel's cache are data. If there may be such bytes, the kernel
//! must write them back before a hole found by the file system is trusted. A write-back drops the
//! pages from the cache, so only the range of the hole is written back.

use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{Errno, FileSystem, Handle, Ino, Request, Result, SeekTo};

use super::data::POSITION_MAX;
use crate::job::{Answer, Job};
use crate::notifications::write_back;
use crate::protocol::opcode::Opcode;
use crate::protocol::reply::LseekOut;
use crate::protocol::request::LseekIn;
use crate::reply::send_later;
use crate::server::Server;
use crate::transport::Transport;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl Server {
    pub(super) fn lseek(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: LseekIn = job.incoming.body.take()?;
        let to = match wanted.whence {
            SEEK_DATA => SeekTo::Data,
            SEEK_HOLE => SeekTo::Hole,
            _ => return Err(Errno::INVAL.into()),
        };
        // The caller's offsets are signed, so larger ones would be negative.
        if wanted.offset >= POSITION_MAX {
            return Err(Errno::NXIO.into());
        }
        let seeker = Seeker {
            file_system: Arc::clone(&self.file_system),
            transport: Arc::clone(&self.transport),
            request: job.request.clone(),
            ino: job.ino(),
            handle: self.handle(wanted.fh),
        };
        let found = seeker.seek(wanted.offset, to);
        let is_data_here = to == SeekTo::Data && matches!(&found, Ok(at) if *at == wanted.offset);
        if is_data_here || !self.backing.may_be_dirty(seeker.ino) {
            job.output.put(&LseekOut { offset: found? });
            return Ok(Answer::Now);
        }
        match job.later {
            Some(transport) => {
                seeker.seek_later(job, Arc::clone(transport), wanted.offset, to)?;
                Ok(Answer::Later)
            }
            None => {
                job.output.put(&LseekOut { offset: seeker.seek_written_back(wanted.offset, to)? });
                Ok(Answer::Now)
            }
        }
    }
}

/// Searches one file for data and holes.
struct Seeker {
    file_system: Arc<dyn FileSystem>,
    transport: Arc<dyn Transport>,
    request: Request,
    ino: Ino,
    handle: Handle,
}

impl Seeker {
    /// Searches in the file system, which does not know the dirty pages of the kernel.
    fn seek(&self, offset: u64, to: SeekTo) -> Result<u64> {
        self.file_system.lseek(&self.request, self.ino, self.handle, offset, to)
    }

    /// Answers the request from a separate thread. Pages are written back by ordinary requests,
    /// which need free threads of the mount.
    fn seek_later(
        self,
        job: &Job<'_>,
        transport: Arc<dyn Transport>,
        offset: u64,
        to: SeekTo,
    ) -> Result<()> {
        let header = job.incoming.header;
        let look = move || Ok(LseekOut { offset: self.seek_written_back(offset, to)? });
        let work = move || send_later(&*transport, Opcode::Lseek, header, look);
        let begun = std::thread::Builder::new().name("fslab-seek".to_owned()).spawn(work);
        begun.inspect_err(
            |error| tracing::warn!(%error, "can't start a thread for a seek, which fails"),
        )?;
        Ok(())
    }

    fn seek_written_back(&self, offset: u64, to: SeekTo) -> Result<u64> {
        match to {
            SeekTo::Data => {
                self.write_back(offset..self.data_from(offset)?);
                self.seek(offset, SeekTo::Data)
            }
            SeekTo::Hole => self.hole_from(offset),
        }
    }

    /// Returns the first hole without dirty pages, at or after an offset.
    fn hole_from(&self, offset: u64) -> Result<u64> {
        let mut start = match self.seek(offset, SeekTo::Hole) {
            // Past its end in the file system, the file may still have data in the kernel's dirty
            // pages.
            Err(error) if error.errno() == Errno::NXIO => offset,
            found => found?,
        };
        loop {
            let end = self.data_from(start)?;
            self.write_back(start..end);
            let found = self.seek(offset, SeekTo::Hole)?;
            // If there is no hole before `end`, dirty pages covered this whole hole. The search
            // continues after them, because bytes after `end` have not been written back yet.
            if found < end {
                return Ok(found);
            }
            start = found;
        }
    }

    /// Returns the start of the next data, or the maximum file size if there is none.
    fn data_from(&self, offset: u64) -> Result<u64> {
        match self.seek(offset, SeekTo::Data) {
            Err(error) if error.errno() == Errno::NXIO => Ok(POSITION_MAX),
            found => found,
        }
    }

    fn write_back(&self, range: Range<u64>) {
        if let Err(error) = write_back(&*self.transport, self.ino, range) {
            tracing::warn!(%error, "can't write cached pages back; SEEK_DATA may miss them");
        }
    }
}
