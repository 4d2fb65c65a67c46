//! Repeats a request that an earlier daemon has begun and perhaps performed.
//!
//! The request is repeated, and an error that only its first execution can have caused is ignored.
//! While the request is in flight, the kernel locks the directory, or the file being appended to,
//! against other callers. So if the name exists and is newer than the request, the request created
//! it; if the name is missing, the request removed it.

use std::ffi::{OsStr, OsString};

use fslab_vfs::{
    Entry, Errno, Error, Handle, Ino, Name, OpenMode, Opened, RenameMode, Request, Result, SetAttr,
    Timestamp, WriteOptions, XattrMode,
};

use super::Before;
use crate::job::Job;
use crate::server::Server;

/// Maximum granularity of the kernel's inode timestamps (one tick of the kernel's clock), in
/// nanoseconds.
const CLOCK_TICK_NS: u64 = 20_000_000;

/// The object that a creating request makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Made {
    /// A new inode.
    New,
    /// Another name of this inode.
    Link(Ino),
}

impl Server {
    /// Returns the result of a creation. If the name exists because an earlier execution made it,
    /// returns its entry.
    pub(crate) fn unless_made_before(
        &self,
        job: &Job<'_>,
        (parent, name): (Ino, Name<'_>),
        made: Made,
        created: Result<Entry>,
    ) -> Result<Entry> {
        let (Some(before), Err(error)) = (job.begun_before(), &created) else { return created };
        if error.errno() != Errno::EXIST {
            return created;
        }
        let entry = self.file_system.lookup(&job.request, parent, name)?;
        let is_own = match made {
            Made::Link(ino) => entry.attr.ino == ino,
            Made::New => to_ns(entry.attr.changed) + CLOCK_TICK_NS >= before.now_ns,
        };
        if is_own {
            let labelled = self.label_once_more(job, entry.attr.ino);
            labelled.inspect_err(|_| self.file_system.forget(entry.attr.ino, 1))?;
            job.note_earlier_effect();
            return Ok(entry);
        }
        self.file_system.forget(entry.attr.ino, 1);
        created
    }

    /// Sets the security labels again, because the daemon may have died between creating a file and
    /// labelling it.
    fn label_once_more(&self, job: &Job<'_>, ino: Ino) -> Result<()> {
        let mode = XattrMode::empty();
        let set = |(name, value): &(OsString, Vec<u8>)| {
            self.file_system.setxattr(&job.request, ino, name, value, mode)
        };
        job.request.creation.labels.iter().try_for_each(set)
    }

    /// Clears set-id bits again, because the daemon may have died between a write and clearing
    /// them.
    pub(crate) fn clear_set_id_once_more(
        &self,
        job: &Job<'_>,
        open: Handle,
        options: WriteOptions,
    ) -> Result<()> {
        if !options.kill_set_id {
            return Ok(());
        }
        let changes = SetAttr { kill_set_id: true, ..SetAttr::default() };
        self.file_system.setattr(&job.request, job.ino(), Some(open), &changes).map(drop)
    }

    /// Returns the result of creating and opening a file. If an earlier execution created the file,
    /// opens and returns it.
    pub(crate) fn unless_created_before(
        &self,
        job: &Job<'_>,
        (parent, name): (Ino, Name<'_>),
        mode: OpenMode,
        created: Result<(Entry, Opened)>,
    ) -> Result<(Entry, Opened)> {
        let Err(error) = created else { return created };
        if !job.has_done_before(&error, Errno::EXIST) {
            return Err(error);
        }
        let entry = self.unless_made_before(job, (parent, name), Made::New, Err(error))?;
        let ino = entry.attr.ino;
        let opened = self.file_system.open(&job.request, ino, mode - OpenMode::EXCLUSIVE);
        let opened = opened.inspect_err(|_| self.file_system.forget(ino, 1))?;
        Ok((entry, opened))
    }

    /// Returns the result of a removal. A missing name is a success if an earlier execution removed
    /// it.
    pub(crate) fn unless_removed_before(job: &Job<'_>, removed: Result<()>) -> Result<()> {
        match removed {
            Err(error) if job.has_done_before(&error, Errno::NOENT) => {
                job.note_earlier_effect();
                Ok(())
            }
            removed => removed,
        }
    }

    /// Renames, unless an earlier execution has already done so.
    pub(crate) fn rename_once(
        &self,
        job: &Job<'_>,
        (parent, name): (Ino, Name<'_>),
        (new_parent, new_name): (Ino, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        let rename = || {
            let request = &job.request;
            self.file_system.rename(request, parent, name, new_parent, new_name, mode)
        };
        // A plain rename removes the old name. So if the old name is missing, the rename was
        // performed. The other modes leave a file under the old name.
        let leaves_a_name = !(mode - RenameMode::NO_REPLACE).is_empty();
        if leaves_a_name {
            return self.rename_by_inode(job, (parent, name), (new_parent, new_name), rename);
        }
        let is_done = |error: &Error| {
            job.has_done_before(error, Errno::NOENT)
                && self.inode_at(&job.request, new_parent, new_name) != 0
        };
        match rename() {
            Err(error) if is_done(&error) => {
                job.note_earlier_effect();
                Ok(())
            }
            renamed => renamed,
        }
    }

    /// Renames in a mode that leaves a file under the old name. The rename was already performed if
    /// the new name now has the inode that the old name had before.
    fn rename_by_inode(
        &self,
        job: &Job<'_>,
        (parent, name): (Ino, Name<'_>),
        (new_parent, new_name): (Ino, Name<'_>),
        rename: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Some(record) = job.record else { return rename() };
        let target = self.inode_at(&job.request, new_parent, new_name);
        match job.begun_before().and_then(|before| before.numbers) {
            Some([source, _]) if source == target => {
                record.note_effect();
                return Ok(());
            }
            Some(_) => {}
            None => {
                let numbers = Some([self.inode_at(&job.request, parent, name), target]);
                record.note_before(&Before { now_ns: to_ns(job.request.now), numbers });
            }
        }
        rename()
    }

    /// Whether an extended attribute existed before the request.
    pub(crate) fn xattr_was_there(&self, job: &Job<'_>, name: &OsStr) -> bool {
        let Some(record) = job.record else { return false };
        if let Some([was_there, _]) = job.begun_before().and_then(|before| before.numbers) {
            return was_there != 0;
        }
        let is_there = self.file_system.getxattr(&job.request, job.ino(), name).is_ok();
        let numbers = Some([is_there.into(), 0]);
        record.note_before(&Before { now_ns: to_ns(job.request.now), numbers });
        is_there
    }

    /// Returns the inode of a name, or 0 if the name does not exist.
    fn inode_at(&self, request: &Request, parent: Ino, name: Name<'_>) -> u64 {
        self.file_system.lookup(request, parent, name).map_or(0, |entry| {
            self.file_system.forget(entry.attr.ino, 1);
            entry.attr.ino.0
        })
    }

    /// Returns how many bytes of an append were already written. In a first execution, records the
    /// offset at which the append starts.
    pub(crate) fn appended_before(
        &self,
        job: &Job<'_>,
        ino: Ino,
        handle: Handle,
        data: &[u8],
    ) -> Result<usize> {
        let Some(record) = job.record else { return Ok(0) };
        let size = self.file_system.getattr(&job.request, ino, Some(handle))?.size;
        let Some([start, _]) = job.begun_before().and_then(|before| before.numbers) else {
            let numbers = Some([size, 0]);
            record.note_before(&Before { now_ns: to_ns(job.request.now), numbers });
            return Ok(0);
        };
        let grown = size.saturating_sub(start).min(data.len() as u64) as usize;
        let is_own = self.read_again(&job.request, ino, start, grown)? == data[..grown];
        if grown > 0 && !is_own {
            tracing::warn!(
                ino = ino.0,
                "a resent append is performed again, because the file grew by other data"
            );
        }
        if grown > 0 && is_own {
            record.note_effect();
        }
        Ok(if is_own { grown } else { 0 })
    }

    /// Reads a file through a new handle, because the handle of the append may be write-only.
    fn read_again(
        &self,
        request: &Request,
        ino: Ino,
        start: u64,
        length: usize,
    ) -> Result<Vec<u8>> {
        let opened = self.file_system.open(request, ino, OpenMode::empty())?;
        let mut found = vec![0; length];
        let read = self.file_system.read(request, ino, opened.handle, start, &mut found);
        self.file_system.release(request, ino, opened.handle)?;
        found.truncate(read?);
        Ok(found)
    }
}

impl Job<'_> {
    /// Records the time of the request, unless an earlier daemon has begun it.
    pub(crate) fn note_time(&self) {
        if let Some(record) = self.record.filter(|record| record.stage == super::Stage::New) {
            record.note_before(&Before { now_ns: to_ns(self.request.now), numbers: None });
        }
    }

    /// Returns the state before the request, if an earlier daemon began it.
    pub(crate) fn begun_before(&self) -> Option<Before> {
        match &self.record?.stage {
            super::Stage::Begun(before) => Some(*before),
            _ => None,
        }
    }

    /// Notes that the effect of an earlier execution was found.
    pub(crate) fn note_earlier_effect(&self) {
        self.record.iter().for_each(|record| record.note_effect());
    }

    /// Whether an error is probably caused by repeating a request that an earlier daemon performed.
    pub(crate) fn has_done_before(&self, error: &Error, errno: Errno) -> bool {
        error.errno() == errno && self.begun_before().is_some()
    }
}

/// Nanoseconds since the epoch, 0 before it.
fn to_ns(time: Timestamp) -> u64 {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(time.nanoseconds.into())
}
