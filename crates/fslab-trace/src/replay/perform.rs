//! Repeats one operation of a trace.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::{
    Entry, FallocateMode, FileAttr, FileAttrForm, Handle, Ino, Name, OpenMode, Opened, Operation,
    Permissions, RenameMode, Request, SeekTo, SetAttr, SetTime, Timestamp, WriteOptions, XattrMode,
};

use super::Replayer;
use super::outcome::{Done, OpenFile, Unfit};
use crate::record::{Record, flag};

/// Maximum size of a read or write in bytes. The kernel sends no larger requests, but a forged
/// trace may contain larger sizes.
const BYTES_MAX: u64 = 64 << 20;

/// The target's result, or the reason why the operation was not requested.
type Outcome<T = Done> = Result<fslab_vfs::Result<T>, Unfit>;

impl Replayer<'_> {
    pub(super) fn perform(&mut self, request: &Request, record: &Record) -> Outcome {
        use Operation as Op;
        let (target, flags) = (self.target, record.flags.unwrap_or_default());
        let (mode, open_mode) =
            (record.mode.unwrap_or_default(), OpenMode::from_bits_retain(flags));
        let (ino, parent) = (|| self.known(record.inode), || self.known(record.parent));
        let to = || Ok((self.known(record.new_parent)?, name(record.new_name.as_ref())?));
        let name = || name(record.name.as_ref());
        let text = || record.text.as_deref().map(OsStr::from_bytes).ok_or(Unfit::Incomplete);
        let data = || record.data.as_deref().ok_or(Unfit::NoValue);
        Ok(match record.operation {
            Op::Lookup => found(target.lookup(request, parent()?, name()?)),
            Op::Mknod => {
                let device = record.device.unwrap_or_default();
                found(target.mknod(request, parent()?, name()?, mode, device))
            }
            Op::Mkdir => found(target.mkdir(request, parent()?, name()?, mode)),
            Op::Symlink => found(target.symlink(request, parent()?, name()?, text()?)),
            Op::Unlink => plain(target.unlink(request, parent()?, name()?)),
            Op::Rmdir => plain(target.rmdir(request, parent()?, name()?)),
            Op::Rename => {
                let ((to, new_name), mode) = (to()?, RenameMode::from_bits_retain(flags));
                plain(target.rename(request, parent()?, name()?, to, new_name, mode))
            }
            Op::Link => {
                let (to, new_name) = to()?;
                found(target.link(request, ino()?, to, new_name))
            }
            Op::Create => target.create(request, parent()?, name()?, mode, open_mode).map(created),
            Op::Tmpfile => target.tmpfile(request, parent()?, mode, open_mode).map(created),
            Op::Open => {
                let ino = ino()?;
                target.open(request, ino, open_mode).map(|file| opened(ino, file.handle, false))
            }
            Op::Opendir => {
                let ino = ino()?;
                target.opendir(request, ino).map(|handle| opened(ino, handle, true))
            }
            Op::Read | Op::Write | Op::CopyFileRange => self.data(request, record)?,
            Op::Fallocate | Op::Lseek | Op::Flush | Op::Fsync | Op::Fsyncdir => {
                plain(self.file(request, record, flags)?)
            }
            Op::Release | Op::Releasedir => plain(self.close_again(request, record.handle)?),
            Op::Readdir => plain(self.list(request, record)?),
            Op::Forget => plain(Ok(self.forget(record.inode, record.size)?)),
            Op::Getattr => plain(target.getattr(request, ino()?, self.handle(record)?)),
            Op::Setattr => {
                let (handle, changes) = (self.handle(record)?, self.changes(record, flags));
                plain(target.setattr(request, ino()?, handle, &changes))
            }
            Op::Readlink => plain(target.readlink(request, ino()?)),
            Op::Syncfs => plain(target.syncfs(request, ino()?)),
            Op::Statfs => plain(target.statfs(request, ino()?)),
            Op::Getxattr => plain(target.getxattr(request, ino()?, text()?)),
            Op::Setxattr => {
                let mode = XattrMode::from_bits_retain(flags);
                plain(target.setxattr(request, ino()?, text()?, data()?, mode))
            }
            Op::Listxattr => plain(target.listxattr(request, ino()?)),
            Op::Removexattr => plain(target.removexattr(request, ino()?, text()?)),
            Op::FileattrGet => plain(target.fileattr_get(request, ino()?, form(flags))),
            Op::FileattrSet => {
                let attr = FileAttr::from_bytes(data()?).ok_or(Unfit::Incomplete)?;
                plain(target.fileattr_set(request, ino()?, &attr))
            }
        })
    }

    /// Returns the target's handle that corresponds to the record's handle, if the record has one.
    fn handle(&self, record: &Record) -> Result<Option<Handle>, Unfit> {
        record.handle.map(|number| Ok(self.open_file(Some(number))?.handle)).transpose()
    }

    fn data(&mut self, request: &Request, record: &Record) -> Outcome {
        let OpenFile { ino, handle, .. } = self.open_file(record.handle)?;
        let offset = record.offset.ok_or(Unfit::Incomplete)?;
        let bytes = record.size.ok_or(Unfit::Incomplete)?;
        if record.operation == Operation::CopyFileRange {
            let from = self.open_file(record.from_handle)?;
            let source = (from.ino, from.handle, record.from_offset.ok_or(Unfit::Incomplete)?);
            let copied = self.target.copy_file_range(request, source, (ino, handle, offset), bytes);
            // The count is not compared: each file system chooses how many bytes it copies at once.
            return Ok(copied.map(|count| Done { bytes_written: count, ..Done::default() }));
        }
        if bytes > BYTES_MAX {
            return Err(Unfit::TooMuch { bytes });
        }
        self.buffer.resize(bytes as usize, 0);
        if record.operation == Operation::Read {
            let read = self.target.read(request, ino, handle, offset, &mut self.buffer);
            return Ok(read.map(|count| Done {
                count: Some(count as u64),
                bytes_read: count as u64,
                ..Done::default()
            }));
        }
        let has = |bit| record.flags.is_some_and(|flags| flags & bit != 0);
        let options =
            WriteOptions { kill_set_id: has(flag::KILL_SET_ID), append: has(flag::APPEND) };
        let data = match &record.data {
            Some(data) => data,
            None => {
                (self.settings.fill)(record, &mut self.buffer);
                &self.buffer
            }
        };
        let written = self.target.write(request, ino, handle, offset, data, options);
        Ok(written.map(|count| Done {
            count: Some(count as u64),
            bytes_written: count as u64,
            ..Done::default()
        }))
    }

    fn file(&self, request: &Request, record: &Record, flags: u32) -> Outcome<()> {
        let (target, data_only) = (self.target, flags & flag::DATA_ONLY != 0);
        let OpenFile { ino, handle, .. } = self.open_file(record.handle)?;
        let offset = || record.offset.ok_or(Unfit::Incomplete);
        Ok(match record.operation {
            Operation::Fallocate => {
                let length = record.size.ok_or(Unfit::Incomplete)?;
                let mode = FallocateMode::from_bits_retain(flags);
                target.fallocate(request, ino, handle, offset()?, length, mode)
            }
            Operation::Lseek => {
                let to = if flags & flag::HOLE != 0 { SeekTo::Hole } else { SeekTo::Data };
                // The offset found is not compared, because it depends on the block size.
                target.lseek(request, ino, handle, offset()?, to).map(drop)
            }
            Operation::Flush => target.flush(request, ino, handle),
            Operation::Fsync => target.fsync(request, ino, handle, data_only),
            _ => target.fsyncdir(request, ino, handle, data_only),
        })
    }

    fn close_again(&mut self, request: &Request, number: Option<u64>) -> Outcome<()> {
        let number = number.ok_or(Unfit::Incomplete)?;
        let open = self.handles.free(number).ok_or(Unfit::UnknownHandle { number })?;
        Ok(self.release(request, open))
    }

    /// Lists as many entries as the recorded operation did, and continues where the last listing
    /// ended.
    fn list(&mut self, request: &Request, record: &Record) -> Outcome<()> {
        let OpenFile { ino, handle, cookie, .. } = self.open_file(record.handle)?;
        let mut at = if record.offset == Some(0) { 0 } else { cookie };
        let start = at;
        let mut wanted = record.result.unwrap_or_default();
        let listed = self.target.readdir(request, ino, handle, start, &mut |entry| {
            if wanted == 0 {
                return false;
            }
            (wanted, at) = (wanted - 1, entry.next_offset);
            true
        });
        if let Some(open) = record.handle.and_then(|number| self.handles.newest_mut(number)) {
            open.cookie = at;
        }
        Ok(listed)
    }

    fn changes(&self, record: &Record, flags: u32) -> SetAttr {
        let recorded = self.settings.owner.is_none();
        let time = |now: u32, seconds: Option<i64>, nanoseconds: Option<u32>| match seconds {
            _ if flags & now != 0 => Some(SetTime::Now),
            Some(seconds) => {
                let nanoseconds = nanoseconds.unwrap_or_default().min(999_999_999);
                Some(SetTime::To(Timestamp { seconds, nanoseconds }))
            }
            None => None,
        };
        SetAttr {
            permissions: record.mode.map(Permissions::new),
            uid: record.owner.filter(|_| recorded),
            gid: record.group.filter(|_| recorded),
            size: record.size,
            accessed: time(flag::ACCESSED_NOW, record.accessed_s, record.accessed_ns),
            modified: time(flag::MODIFIED_NOW, record.modified_s, record.modified_ns),
            kill_set_id: flags & flag::KILL_SET_ID != 0,
        }
    }
}

fn name(bytes: Option<&Vec<u8>>) -> Result<Name<'_>, Unfit> {
    let bytes = bytes.ok_or(Unfit::Incomplete)?;
    // The kernel never sends an invalid name, so such a name is treated as missing.
    Name::new(OsStr::from_bytes(bytes)).ok().ok_or(Unfit::Incomplete)
}

fn form(flags: u32) -> FileAttrForm {
    if flags & flag::EXTENDED != 0 { FileAttrForm::Extended } else { FileAttrForm::Flags }
}

fn plain<T>(answer: fslab_vfs::Result<T>) -> fslab_vfs::Result<Done> {
    answer.map(|_| Done::default())
}

fn found(answer: fslab_vfs::Result<Entry>) -> fslab_vfs::Result<Done> {
    answer.map(|entry| Done { found: Some(entry.attr.ino), ..Done::default() })
}

fn opened(ino: Ino, handle: Handle, is_directory: bool) -> Done {
    let open = OpenFile { ino, handle, is_directory, cookie: 0 };
    Done { opened: Some(open), ..Done::default() }
}

fn created((entry, file): (Entry, Opened)) -> Done {
    let ino = entry.attr.ino;
    Done { found: Some(ino), ..opened(ino, file.handle, false) }
}
