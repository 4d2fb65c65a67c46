//! Requests about names: lookup, creation, rename and removal.

use std::time::Duration;

use fslab_vfs::{Entry, Ino, Name, RenameMode, Result};

use crate::convert::to_attr;
use crate::job::{Answer, Job};
use crate::kept::Made;
use crate::protocol::reply::EntryOut;
use crate::protocol::request::{
    BatchForgetIn, ForgetIn, ForgetOne, LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn,
};
use crate::reply_buffer::HandedOver;
use crate::server::Server;

impl Server {
    /// Makes an entry for the kernel, with its cache timeouts.
    ///
    /// With writeback, the kernel keeps the first size that it received for an inode. An inode of
    /// unknown size gets another generation, so that the kernel treats it as another inode once the
    /// size is known.
    pub(super) fn to_entry_out(&self, entry: &Entry) -> EntryOut {
        let is_known = entry.attr.is_size_known;
        let is_settled = is_known || !self.granted.writeback();
        let names = if is_known { self.options.entry_timeout } else { Duration::ZERO };
        let attributes = self.attr_timeout(&entry.attr);
        EntryOut {
            nodeid: entry.attr.ino.0,
            generation: if is_settled { entry.generation } else { !entry.generation },
            entry_valid: names.as_secs(),
            attr_valid: attributes.as_secs(),
            entry_valid_nsec: names.subsec_nanos(),
            attr_valid_nsec: attributes.subsec_nanos(),
            attr: to_attr(&entry.attr),
        }
    }

    fn put_entry(&self, job: &mut Job<'_>, entry: &Entry) -> Answer {
        job.output.put(&self.to_entry_out(entry));
        job.output.hand_over(HandedOver::Lookup(entry.attr.ino));
        Answer::Now
    }

    pub(super) fn lookup(&self, job: &mut Job<'_>) -> Result<Answer> {
        let name = job.incoming.body.take_name()?;
        let (file_system, request, ino) = (&self.file_system, &job.request, job.ino());
        let entry = match name.as_encoded_bytes() {
            // The kernel sends these names only to resolve file handles.
            b"." => file_system.resolve(request, ino)?,
            b".." => file_system.parent_of(request, ino)?,
            _ => file_system.lookup(request, ino, Name::new(name)?)?,
        };
        Ok(self.put_entry(job, &entry))
    }

    pub(super) fn forget(&self, job: &mut Job<'_>) -> Result<Answer> {
        let forget: ForgetIn = job.incoming.body.take()?;
        self.note_recovery(job.ino());
        self.backing.forget(job.ino());
        self.file_system.forget(job.ino(), forget.nlookup);
        Ok(Answer::Now)
    }

    pub(super) fn batch_forget(&self, job: &mut Job<'_>) -> Result<Answer> {
        let batch: BatchForgetIn = job.incoming.body.take()?;
        for _ in 0..batch.count {
            let forget: ForgetOne = job.incoming.body.take()?;
            self.note_recovery(Ino(forget.nodeid));
            self.backing.forget(Ino(forget.nodeid));
            self.file_system.forget(Ino(forget.nodeid), forget.nlookup);
        }
        Ok(Answer::Now)
    }

    pub(super) fn readlink(&self, job: &mut Job<'_>) -> Result<Answer> {
        let target = self.file_system.readlink(&job.request, job.ino())?;
        job.output.put_bytes(target.as_encoded_bytes());
        Ok(Answer::Now)
    }

    pub(super) fn symlink(&self, job: &mut Job<'_>) -> Result<Answer> {
        let name = Name::new(job.incoming.body.take_name()?)?;
        let target = job.incoming.body.take_name()?;
        self.note_creation(job, 0)?;
        let made = self.file_system.symlink(&job.request, job.ino(), name, target);
        let entry = self.unless_made_before(job, (job.ino(), name), Made::New, made)?;
        Ok(self.put_entry(job, &entry))
    }

    pub(super) fn mknod(&self, job: &mut Job<'_>) -> Result<Answer> {
        let node: MknodIn = job.incoming.body.take()?;
        let name = Name::new(job.incoming.body.take_name()?)?;
        self.note_creation(job, node.umask)?;
        let (parent, mode, device) = (job.ino(), node.mode, node.rdev);
        let made = self.file_system.mknod(&job.request, parent, name, mode, device);
        let entry = self.unless_made_before(job, (parent, name), Made::New, made)?;
        Ok(self.put_entry(job, &entry))
    }

    pub(super) fn mkdir(&self, job: &mut Job<'_>) -> Result<Answer> {
        let directory: MkdirIn = job.incoming.body.take()?;
        let name = Name::new(job.incoming.body.take_name()?)?;
        self.note_creation(job, directory.umask)?;
        let made = self.file_system.mkdir(&job.request, job.ino(), name, directory.mode);
        let entry = self.unless_made_before(job, (job.ino(), name), Made::New, made)?;
        Ok(self.put_entry(job, &entry))
    }

    pub(super) fn unlink(&self, job: &mut Job<'_>) -> Result<Answer> {
        let name = Name::new(job.incoming.body.take_name()?)?;
        let removed = self.file_system.unlink(&job.request, job.ino(), name);
        Self::unless_removed_before(job, removed)?;
        Ok(Answer::Now)
    }

    pub(super) fn rmdir(&self, job: &mut Job<'_>) -> Result<Answer> {
        let name = Name::new(job.incoming.body.take_name()?)?;
        let removed = self.file_system.rmdir(&job.request, job.ino(), name);
        Self::unless_removed_before(job, removed)?;
        Ok(Answer::Now)
    }

    pub(super) fn rename(&self, job: &mut Job<'_>) -> Result<Answer> {
        let rename: RenameIn = job.incoming.body.take()?;
        self.rename_to(job, rename.newdir, RenameMode::empty())
    }

    pub(super) fn rename2(&self, job: &mut Job<'_>) -> Result<Answer> {
        let rename: Rename2In = job.incoming.body.take()?;
        self.rename_to(job, rename.newdir, RenameMode::from_bits_retain(rename.flags))
    }

    fn rename_to(&self, job: &mut Job<'_>, directory: u64, mode: RenameMode) -> Result<Answer> {
        let name = Name::new(job.incoming.body.take_name()?)?;
        let new_name = Name::new(job.incoming.body.take_name()?)?;
        let (parent, new_parent) = (job.ino(), Ino(directory));
        self.rename_once(job, (parent, name), (new_parent, new_name), mode)?;
        Ok(Answer::Now)
    }

    pub(super) fn link(&self, job: &mut Job<'_>) -> Result<Answer> {
        let link: LinkIn = job.incoming.body.take()?;
        let name = Name::new(job.incoming.body.take_name()?)?;
        let ino = Ino(link.oldnodeid);
        let made = self.file_system.link(&job.request, ino, job.ino(), name);
        let entry = self.unless_made_before(job, (job.ino(), name), Made::Link(ino), made)?;
        Ok(self.put_entry(job, &entry))
    }
}
