//! Requests for directories: open, list, sync and close.

use fslab_vfs::{DirectoryEntry, Error, FileKind, Ino, Name, Request, Result};
use zerocopy::IntoBytes;

use crate::job::{Answer, Job};
use crate::kept::Open;
use crate::protocol::flags::{FSYNC_FDATASYNC, OpenFlags};
use crate::protocol::reply::{Dirent, EntryOut, OpenOut};
use crate::protocol::request::{FsyncIn, ReadIn, ReleaseIn};
use crate::reply_buffer::{HandedOver, ReplyBuffer};
use crate::server::Server;

impl Server {
    pub(super) fn opendir(&self, job: &mut Job<'_>) -> Result<Answer> {
        let opened = self.file_system.opendir(&job.request, job.ino())?;
        let fh = self.number(job, &Open { ino: job.ino(), flags: None }, opened)?;
        job.output.hand_over(HandedOver::Directory(job.ino(), fh));
        // The kernel caches the listing while the directory's times are unchanged.
        let open_flags = (OpenFlags::KEEP_CACHE | OpenFlags::CACHE_DIR).bits();
        job.output.put(&OpenOut { fh, open_flags, backing_id: 0 });
        Ok(Answer::Now)
    }

    pub(super) fn readdir(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: ReadIn = job.incoming.body.take()?;
        let (ino, open) = (job.ino(), self.handle(wanted.fh));
        let room = wanted.size.min(self.granted.write_bytes_max) as usize;
        let Job { output, request, .. } = job;
        let mut listing = Listing { output, room };
        let mut add = |entry: DirectoryEntry<'_>| listing.add(None, &entry);
        let listed = self.file_system.readdir(request, ino, open, wanted.offset, &mut add);
        what_was_listed(listed, output)
    }

    pub(super) fn readdirplus(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: ReadIn = job.incoming.body.take()?;
        let (ino, open) = (job.ino(), self.handle(wanted.fh));
        let room = wanted.size.min(self.granted.write_bytes_max) as usize;
        let Job { output, request, .. } = job;
        let mut listing = Listing { output, room };
        let mut add = |entry: DirectoryEntry<'_>| self.add_plus(request, ino, &entry, &mut listing);
        let listed = self.file_system.readdir(request, ino, open, wanted.offset, &mut add);
        what_was_listed(listed, output)
    }

    /// Adds an entry with its attributes. This counts as a lookup of its inode. Returns `false` if
    /// there is no room.
    fn add_plus(
        &self,
        request: &Request,
        parent: Ino,
        listed: &DirectoryEntry<'_>,
        listing: &mut Listing<'_>,
    ) -> bool {
        if !listing.has_room(true, listed) {
            return false;
        }
        // `.` and `..` can't be looked up, and a name may have been removed since it was listed. In
        // these cases, the entry has node number 0, which means that it has no attributes.
        let found = Name::new(listed.name)
            .map_err(Error::from)
            .and_then(|name| self.file_system.lookup(request, parent, name));
        let entry = match found {
            Ok(entry) => {
                listing.output.hand_over(HandedOver::Lookup(entry.attr.ino));
                self.to_entry_out(&entry)
            }
            Err(_) => without_attributes(listed),
        };
        listing.add(Some(&entry), listed)
    }

    pub(super) fn releasedir(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: ReleaseIn = job.incoming.body.take()?;
        self.close_directory(&job.request, job.ino(), wanted.fh)?;
        Ok(Answer::Now)
    }

    pub(super) fn close_directory(&self, request: &Request, ino: Ino, number: u64) -> Result<()> {
        if !self.is_open(number) {
            return Ok(());
        }
        let released = self.file_system.releasedir(request, ino, self.handle(number));
        self.forget_number(number);
        released
    }

    pub(super) fn fsyncdir(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: FsyncIn = job.incoming.body.take()?;
        let data_only = wanted.fsync_flags & FSYNC_FDATASYNC != 0;
        self.file_system.fsyncdir(&job.request, job.ino(), self.handle(wanted.fh), data_only)?;
        Ok(Answer::Now)
    }
}

/// Reports success if at least one entry was listed. The error occurs again at the next request.
/// Returning it now would lose the listed entries and their lookup counts.
fn what_was_listed(listed: Result<()>, output: &ReplyBuffer) -> Result<Answer> {
    match listed {
        Err(error) if output.payload().is_empty() => Err(error),
        _ => Ok(Answer::Now),
    }
}

/// A directory listing, limited by the size of the kernel's buffer.
struct Listing<'a> {
    output: &'a mut ReplyBuffer,
    room: usize,
}

impl Listing<'_> {
    fn has_room(&self, with_attributes: bool, listed: &DirectoryEntry<'_>) -> bool {
        let attributes = if with_attributes { size_of::<EntryOut>() } else { 0 };
        let length = attributes + size_of::<Dirent>() + listed.name.len();
        self.output.payload().len() + length.next_multiple_of(8) <= self.room
    }

    /// Adds an entry; returns `false` if there is no room.
    fn add(&mut self, entry: Option<&EntryOut>, listed: &DirectoryEntry<'_>) -> bool {
        if !self.has_room(entry.is_some(), listed) {
            return false;
        }
        if let Some(entry) = entry {
            self.output.put_bytes(entry.as_bytes());
        }
        let name = listed.name.as_encoded_bytes();
        self.output.put(&Dirent {
            ino: listed.ino.0,
            off: listed.next_offset,
            namelen: name.len() as u32,
            kind: listed.kind.map_or(0, to_dirent_kind),
        });
        self.output.put_bytes(name);
        let padding = name.len().next_multiple_of(8) - name.len();
        self.output.put_bytes(&[0; 8][..padding]);
        true
    }
}

/// Converts a file type to a `d_type`: the file type bits of the mode, shifted down.
fn to_dirent_kind(kind: FileKind) -> u32 {
    kind.mode_bits() >> 12
}

fn without_attributes(listed: &DirectoryEntry<'_>) -> EntryOut {
    let mut entry: EntryOut = zerocopy::FromZeros::new_zeroed();
    entry.attr.ino = listed.ino.0;
    entry.attr.mode = listed.kind.unwrap_or(FileKind::Regular).mode_bits();
    entry
}
