//! Performs requests by calls of the `FileSystem` trait.

mod attributes;
mod data;
mod directories;
mod ioctl;
mod names;
mod open;
mod seek;
mod xattrs;

use fslab_vfs::{Errno, Handle, Result};

use crate::extension;
use crate::job::{Answer, Job};
use crate::kept::Open;
use crate::protocol::flags::InitFlags;
use crate::protocol::opcode::Opcode;
use crate::server::Server;

impl Server {
    /// Stores the umask and extensions of a creating request, whose names have already been parsed.
    fn note_creation(&self, job: &mut Job<'_>, umask: u32) -> Result<()> {
        job.request.umask = umask;
        job.request.creation = extension::parse(self.records_of(job))?;
        // If the kernel can send the relevant group, a request without a group means that the
        // caller has no relevant group.
        if self.granted.has(InitFlags::CREATE_SUPP_GROUP) {
            job.request.creation.groups.get_or_insert_default();
        }
        Ok(())
    }

    /// Returns the extension records of a creating request. Linux 5.17 and later send labels.
    /// Before Linux 6.3, and before 6.1.110 in the 6.1 series, the header does not contain the
    /// length of the records. They are then the rest of the body.
    fn records_of<'a>(&self, job: &Job<'a>) -> &'a [u8] {
        let tells_length = !job.incoming.extensions.is_empty();
        if tells_length || !self.granted.has(InitFlags::SECURITY_CTX) {
            return job.incoming.extensions;
        }
        job.incoming.body.rest()
    }
}

impl Server {
    /// Returns the handle of the open file that the kernel identifies by `number`.
    fn handle(&self, number: u64) -> Handle {
        match &self.kept {
            None => Handle(number),
            Some(kept) => kept.handles.get(number),
        }
    }

    /// Returns the number by which the kernel will identify an opened file.
    fn number(&self, job: &Job<'_>, open: &Open, handle: Handle) -> Result<u64> {
        let Some(kept) = &self.kept else { return Ok(handle.0) };
        let added = kept.handles.add(open, handle, job.incoming.header.unique);
        added.inspect_err(|_full| {
            let closed = match open.flags {
                Some(_) => self.file_system.release(&job.request, open.ino, handle),
                None => self.file_system.releasedir(&job.request, open.ino, handle),
            };
            if let Err(error) = closed {
                tracing::warn!(%error, "can't close a file whose open failed with ENFILE");
            }
        })
    }

    /// Whether a file is open under a number. If an earlier daemon died while closing the file, the
    /// file may already be closed.
    fn is_open(&self, number: u64) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.handles.contains(number))
    }

    /// Releases the number of a closed file.
    fn forget_number(&self, number: u64) {
        if let Some(kept) = &self.kept {
            kept.handles.remove(number);
        }
    }
}

impl Server {
    /// Performs a request.
    pub fn perform(&self, opcode: Opcode, job: &mut Job<'_>) -> Result<Answer> {
        match opcode {
            Opcode::Lookup => self.lookup(job),
            Opcode::Forget => self.forget(job),
            Opcode::BatchForget => self.batch_forget(job),
            Opcode::Getattr => self.getattr(job),
            Opcode::Statx => self.statx(job),
            Opcode::Setattr => self.setattr(job),
            Opcode::Readlink => self.readlink(job),
            Opcode::Symlink => self.symlink(job),
            Opcode::Mknod => self.mknod(job),
            Opcode::Mkdir => self.mkdir(job),
            Opcode::Unlink => self.unlink(job),
            Opcode::Rmdir => self.rmdir(job),
            Opcode::Rename => self.rename(job),
            Opcode::Rename2 => self.rename2(job),
            Opcode::Link => self.link(job),
            Opcode::Open => self.open(job),
            Opcode::Create => self.create(job),
            Opcode::Tmpfile => self.tmpfile(job),
            Opcode::Read => self.read(job),
            Opcode::Write => self.write(job),
            Opcode::Flush => self.flush(job),
            Opcode::Release => self.release(job),
            Opcode::Fsync => self.fsync(job),
            Opcode::Fallocate => self.fallocate(job),
            Opcode::Lseek => self.lseek(job),
            Opcode::CopyFileRange => self.copy_file_range(job),
            Opcode::CopyFileRange64 => self.copy_file_range_64(job),
            Opcode::Opendir => self.opendir(job),
            Opcode::Readdir => self.readdir(job),
            Opcode::Readdirplus => self.readdirplus(job),
            Opcode::Releasedir => self.releasedir(job),
            Opcode::Fsyncdir => self.fsyncdir(job),
            Opcode::Statfs => self.statfs(job),
            Opcode::Syncfs => self.syncfs(job),
            Opcode::Getxattr => self.getxattr(job),
            Opcode::Setxattr => self.setxattr(job),
            Opcode::Listxattr => self.listxattr(job),
            Opcode::Removexattr => self.removexattr(job),
            Opcode::Ioctl => self.ioctl(job),
            Opcode::Destroy => Ok(Answer::Now),
            // INIT was answered when the connection began, and interrupts are handled earlier.
            Opcode::Init | Opcode::Interrupt => Err(Errno::IO.into()),
        }
    }
}
