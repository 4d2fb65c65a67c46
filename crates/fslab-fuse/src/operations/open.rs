//! Requests that open and close files.

use fslab_vfs::{Errno, Ino, Name, OpenMode, Opened, Request, Result};

use crate::convert::to_open_mode;
use crate::job::{Answer, Job};
use crate::kept::{Found, Open, Restored};
use crate::protocol::flags::OpenFlags;
use crate::protocol::reply::OpenOut;
use crate::protocol::request::{CreateIn, FlushIn, OpenIn, ReleaseIn};
use crate::reply_buffer::{HandedOver, ReplyBuffer};
use crate::server::Server;

impl Server {
    fn put_opened(
        &self,
        job: &mut Job<'_>,
        ino: Ino,
        flags: u32,
        opened: &Opened,
    ) -> Result<Answer> {
        let mode = self.to_mode(flags);
        let fh = self.number(job, &Open { ino, flags: Some(flags) }, opened.handle)?;
        job.output.hand_over(HandedOver::File(ino, fh));
        let mut daemon = daemon_flags(opened);
        if let Some(failed_writes) = &self.failed_writes {
            let given = OpenMode::from_bits_retain(flags);
            failed_writes.note_opened(ino, opened.handle, given);
            if given.contains(OpenMode::TRUNCATE) {
                failed_writes.note_recovery(ino);
            }
            // With direct I/O, each write is a request, so its error can be reported.
            let writes_through =
                mode.contains(OpenMode::READ_WRITE) && failed_writes.has_failed(ino);
            daemon.set(OpenFlags::DIRECT_IO, opened.direct || writes_through);
        }
        let lower = opened.backing.as_deref().filter(|_| self.granted.passthrough());
        let backing = self.backing.open(ino, opened.handle, mode, lower);
        if let Some(kept) = &self.kept {
            kept.handles.note_backing(fh, backing);
        }
        let (flags, backing_id) = match backing {
            // With passthrough, the kernel accepts only `NOFLUSH` besides `PASSTHROUGH`.
            Some(id) => ((daemon & OpenFlags::NOFLUSH) | OpenFlags::PASSTHROUGH, id),
            None => (daemon, 0),
        };
        let open_flags = flags.bits();
        job.output.put(&OpenOut { fh, open_flags, backing_id });
        Ok(Answer::Now)
    }

    fn to_mode(&self, flags: u32) -> OpenMode {
        to_open_mode(flags, self.granted.writeback())
    }

    pub(super) fn open(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: OpenIn = job.incoming.body.take()?;
        let (ino, mode) = (job.ino(), self.to_mode(wanted.flags));
        let opened = self.file_system.open(&job.request, ino, mode)?;
        self.put_opened(job, ino, wanted.flags, &opened)
    }

    pub(super) fn create(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: CreateIn = job.incoming.body.take()?;
        let name = Name::new(job.incoming.body.take_name()?)?;
        self.note_creation(job, wanted.umask)?;
        let (parent, flags) = (job.ino(), self.to_mode(wanted.flags));
        // The kernel checked permissions for a name that did not exist. If another process has
        // created the file since then, ESTALE makes the kernel look up the name again and check
        // permissions for that file.
        let exclusive = flags | OpenMode::EXCLUSIVE;
        let created = self.file_system.create(&job.request, parent, name, wanted.mode, exclusive);
        match self.unless_created_before(job, (parent, name), flags, created) {
            Err(error) if error.errno() == Errno::EXIST && !flags.contains(OpenMode::EXCLUSIVE) => {
                Err(Errno::STALE.into())
            }
            created => self.put_created(job, wanted.flags, &created?),
        }
    }

    pub(super) fn tmpfile(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: CreateIn = job.incoming.body.take()?;
        // The file has no name; the kernel sends a placeholder instead.
        job.incoming.body.take_name()?;
        self.note_creation(job, wanted.umask)?;
        let (parent, flags) = (job.ino(), self.to_mode(wanted.flags));
        let created = self.file_system.tmpfile(&job.request, parent, wanted.mode, flags)?;
        self.put_created(job, wanted.flags, &created)
    }

    fn put_created(
        &self,
        job: &mut Job<'_>,
        flags: u32,
        (entry, opened): &(fslab_vfs::Entry, Opened),
    ) -> Result<Answer> {
        job.output.put(&self.to_entry_out(entry));
        job.output.hand_over(HandedOver::Lookup(entry.attr.ino));
        self.put_opened(job, entry.attr.ino, flags, opened)
    }

    pub(super) fn flush(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: FlushIn = job.incoming.body.take()?;
        self.file_system.flush(&job.request, job.ino(), self.handle(wanted.fh))?;
        Ok(Answer::Now)
    }

    pub(super) fn release(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: ReleaseIn = job.incoming.body.take()?;
        self.close(&job.request, job.ino(), wanted.fh)?;
        Ok(Answer::Now)
    }

    fn close(&self, request: &Request, ino: Ino, number: u64) -> Result<()> {
        if !self.is_open(number) {
            return Ok(());
        }
        let open = self.handle(number);
        if let Some(kept) = &self.kept {
            // Recorded before the release, so that a later daemon does not use the backing file.
            kept.handles.note_backing(number, None);
        }
        self.backing.close(ino, open);
        if let Some(failed_writes) = &self.failed_writes {
            failed_writes.note_closed(ino, open);
        }
        let released = self.file_system.release(request, ino, open);
        // The number is released last. If the daemon dies before that, the next daemon closes the
        // file again.
        self.forget_number(number);
        released
    }

    /// Restores the state of files opened by an earlier daemon.
    pub(crate) fn restore(&self, found: &Found) {
        for Restored { open, handle, backing } in &found.open {
            let Some(flags) = open.flags else { continue };
            self.backing.restore(open.ino, *handle, self.to_mode(flags), *backing);
            if let Some(failed_writes) = &self.failed_writes {
                let given = OpenMode::from_bits_retain(flags);
                failed_writes.note_opened(open.ino, *handle, given);
            }
        }
        self.backing.release_unused(&found.cut_short);
    }

    /// Releases the references that a reply would have given to the kernel. Called if the reply was
    /// not delivered.
    pub fn take_back(&self, request: &Request, output: &mut ReplyBuffer) {
        for what in output.take_back() {
            let taken = match what {
                HandedOver::Lookup(ino) => {
                    self.file_system.forget(ino, 1);
                    Ok(())
                }
                HandedOver::File(ino, number) => self.close(request, ino, number),
                HandedOver::Directory(ino, number) => self.close_directory(request, ino, number),
            };
            if let Err(error) = taken {
                tracing::warn!(
                    %error,
                    ?what,
                    "can't close a file whose open reply could not be delivered"
                );
            }
        }
    }
}

fn daemon_flags(opened: &Opened) -> OpenFlags {
    let mut flags = OpenFlags::empty();
    flags.set(OpenFlags::KEEP_CACHE, opened.keep_cache);
    flags.set(OpenFlags::DIRECT_IO, opened.direct);
    flags.set(OpenFlags::NOFLUSH, opened.no_flush);
    flags
}
