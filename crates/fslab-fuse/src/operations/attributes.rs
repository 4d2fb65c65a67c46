//! Requests about attributes of inodes and of the file system.

use std::time::Duration;

use fslab_vfs::{
    Attr, Errno, FileKind, Handle, Ino, Permissions, Result, SetAttr, SetTime, Timestamp,
};

use super::data::check_range;
use crate::convert::{to_attr, to_statx};
use crate::job::{Answer, Job};
use crate::notifications::invalidate_attributes;
use crate::protocol::flags::{GETATTR_FH, SetattrValid};
use crate::protocol::reply::{AttrOut, StatfsOut, StatxOut};
use crate::protocol::request::{GetattrIn, SetattrIn, StatxIn};
use crate::server::Server;

impl Server {
    /// How long the kernel may cache attributes. It must not cache the attributes of these files:
    ///
    /// - Files with set-id bits: the lower file system may clear the bits when the kernel writes to
    ///   the lower file itself.
    /// - Files of unknown size: the correct size must be shown once they can be read.
    /// - Files mapped for writing through passthrough: the kernel does not notice writes through
    ///   the mapping.
    /// - Files with a failed write-back: the kernel must send a request before each write.
    pub(super) fn attr_timeout(&self, attr: &Attr) -> Duration {
        let set_id = Permissions::SET_UID | Permissions::SET_GID;
        let has_set_id = attr.kind == FileKind::Regular && attr.permissions.bits() & set_id != 0;
        let may_change = !attr.is_size_known || self.backing.may_change_unseen(attr.ino);
        let failed_writes = self.failed_writes.as_ref();
        let has_failed = failed_writes.is_some_and(|failed| failed.is_asked_each_time(attr.ino));
        if has_set_id || may_change || has_failed {
            Duration::ZERO
        } else {
            self.options.attr_timeout
        }
    }

    /// Handles a change of attributes that the kernel does not expect from the request. Without
    /// `exclusive`, cached attributes are valid only for a short time, so nothing is done.
    pub(super) fn note_unseen_change(&self, ino: Ino) {
        if self.options.exclusive {
            self.expire_attributes(ino);
        }
    }

    /// Makes the kernel request the attributes of an inode at their next use, after a request that
    /// the kernel does not expect to change them.
    pub(super) fn expire_attributes(&self, ino: Ino) {
        if let Err(error) = invalidate_attributes(&*self.transport, ino) {
            tracing::warn!(
                %error,
                "the kernel may show outdated attributes of a file for a while"
            );
        }
    }

    fn put_attr(&self, job: &mut Job<'_>, attr: &Attr) -> Answer {
        let timeout = self.attr_timeout(attr);
        job.output.put(&AttrOut {
            attr_valid: timeout.as_secs(),
            attr_valid_nsec: timeout.subsec_nanos(),
            dummy: 0,
            attr: to_attr(attr),
        });
        Answer::Now
    }

    fn open_handle(&self, flags: u32, number: u64) -> Option<Handle> {
        (flags & GETATTR_FH != 0).then(|| self.handle(number))
    }

    pub(super) fn getattr(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: GetattrIn = job.incoming.body.take()?;
        let open = self.open_handle(wanted.getattr_flags, wanted.fh);
        if let (Some(failed_writes), Some(open)) = (&self.failed_writes, open) {
            let free_bytes = || self.free_bytes(&job.request, job.ino());
            failed_writes.expect_writable(job.ino(), open, free_bytes)?;
        }
        let attr = self.file_system.getattr(&job.request, job.ino(), open)?;
        Ok(self.put_attr(job, &attr))
    }

    pub(super) fn statx(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: StatxIn = job.incoming.body.take()?;
        let open = self.open_handle(wanted.getattr_flags, wanted.fh);
        let attr = self.file_system.getattr(&job.request, job.ino(), open)?;
        let timeout = self.attr_timeout(&attr);
        job.output.put(&StatxOut {
            attr_valid: timeout.as_secs(),
            attr_valid_nsec: timeout.subsec_nanos(),
            flags: 0,
            spare: [0; 2],
            stat: to_statx(&attr),
        });
        Ok(Answer::Now)
    }

    pub(super) fn setattr(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: SetattrIn = job.incoming.body.take()?;
        let valid = SetattrValid::from_bits_retain(wanted.valid);
        let open = valid.contains(SetattrValid::FH).then(|| self.handle(wanted.fh));
        let changes = to_changes(&wanted, valid)?;
        let attr = self.file_system.setattr(&job.request, job.ino(), open, &changes)?;
        if changes.size.is_some() {
            self.note_recovery(job.ino());
        }
        Ok(self.put_attr(job, &attr))
    }

    /// Records that the kernel may cache writes to an inode again.
    pub(super) fn note_recovery(&self, ino: Ino) {
        if let Some(failed_writes) = &self.failed_writes {
            failed_writes.note_recovery(ino);
        }
    }

    pub(super) fn statfs(&self, job: &mut Job<'_>) -> Result<Answer> {
        let stat = self.file_system.statfs(&job.request, job.ino())?;
        job.output.put(&StatfsOut {
            blocks: stat.blocks,
            bfree: stat.blocks_free,
            bavail: stat.blocks_available,
            files: stat.files,
            ffree: stat.files_free,
            bsize: stat.block_size,
            namelen: stat.name_max,
            frsize: stat.fragment_size,
            padding: 0,
            spare: [0; 6],
        });
        Ok(Answer::Now)
    }

    pub(super) fn syncfs(&self, job: &mut Job<'_>) -> Result<Answer> {
        self.file_system.syncfs(&job.request, job.ino())?;
        Ok(Answer::Now)
    }
}

fn to_changes(wanted: &SetattrIn, valid: SetattrValid) -> Result<SetAttr> {
    let given = |flag: SetattrValid, value: u32| valid.contains(flag).then_some(value);
    if valid.contains(SetattrValid::SIZE) {
        check_range(wanted.size, 0)?;
    }
    Ok(SetAttr {
        permissions: given(SetattrValid::MODE, wanted.mode).map(Permissions::new),
        uid: given(SetattrValid::UID, wanted.uid),
        gid: given(SetattrValid::GID, wanted.gid),
        size: valid.contains(SetattrValid::SIZE).then_some(wanted.size),
        accessed: to_set_time(
            valid.contains(SetattrValid::ATIME),
            valid.contains(SetattrValid::ATIME_NOW),
            (wanted.atime, wanted.atimensec),
        )?,
        modified: to_set_time(
            valid.contains(SetattrValid::MTIME),
            valid.contains(SetattrValid::MTIME_NOW),
            (wanted.mtime, wanted.mtimensec),
        )?,
        kill_set_id: valid.contains(SetattrValid::KILL_SUIDGID),
    })
}

fn to_set_time(
    given: bool,
    now: bool,
    (seconds, nanoseconds): (i64, u32),
) -> Result<Option<SetTime>> {
    Ok(match (given, now) {
        (false, _) => None,
        (true, true) => Some(SetTime::Now),
        (true, false) if nanoseconds >= 1_000_000_000 => return Err(Errno::INVAL.into()),
        (true, false) => Some(SetTime::To(Timestamp { seconds, nanoseconds })),
    })
}
