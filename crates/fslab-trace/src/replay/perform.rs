//! One operation of a trace, done again.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use fslab_vfs::{
    Entry, FallocateMode, FileAttr, FileAttrForm, Ino, Name, OpenMode, Opened, Operation,
    Permissions, RenameMode, Request, SeekTo, SetAttr, SetTime, Timestamp, WriteOptions, XattrMode,
};

use super::outcome::{Done, OpenFile, Unfit};
use super::{Owner, Replayer};
use crate::record::{Record, flag};

/// No request of the kernel moves more bytes; a forged trace may claim to.
const BYTES_MAX: u64 = 64 << 20;

/// What the target answered, or why it was not asked.
type Outcome = Result<fslab_vfs::Result<Done>, Unfit>;

impl Replayer<'_> {
    pub(super) fn perform(&mut self, request: &Request, record: &Record) -> Outcome {
        use Operation as Op;
        match record.operation {
            Op::Lookup | Op::Mknod | Op::Mkdir | Op::Symlink | Op::Unlink | Op::Rmdir => {
                self.name(request, record)
            }
            Op::Rename | Op::Link => self.two_names(request, record),
            Op::Create | Op::Tmpfile | Op::Open | Op::Opendir => self.open(request, record),
            Op::Read | Op::Write | Op::CopyFileRange => self.data(request, record),
            Op::Fallocate | Op::Lseek => self.range(request, record),
            Op::Flush | Op::Release | Op::Fsync => self.file(request, record),
            Op::Readdir | Op::Releasedir | Op::Fsyncdir => self.directory(request, record),
            Op::FileattrGet | Op::FileattrSet => self.flags(request, record),
            Op::Getxattr | Op::Setxattr | Op::Listxattr | Op::Removexattr => {
                self.attribute(request, record)
            }
            Op::Forget | Op::Getattr | Op::Setattr | Op::Readlink | Op::Syncfs | Op::Statfs => {
                self.inode(request, record)
            }
        }
    }

    fn name(&mut self, request: &Request, record: &Record) -> Outcome {
        let parent = self.known(record.parent)?;
        let name = name(record.name.as_ref())?;
        let (target, mode) = (self.target, record.mode.unwrap_or_default());
        Ok(match record.operation {
            Operation::Lookup => found(target.lookup(request, parent, name)),
            Operation::Mknod => {
                let device = record.device.unwrap_or_default();
                found(target.mknod(request, parent, name, mode, device))
            }
            Operation::Mkdir => found(target.mkdir(request, parent, name, mode)),
            Operation::Symlink => {
                let text = record.text.as_deref().ok_or(Unfit::Incomplete)?;
                found(target.symlink(request, parent, name, OsStr::from_bytes(text)))
            }
            Operation::Unlink => plain(target.unlink(request, parent, name)),
            _ => plain(target.rmdir(request, parent, name)),
        })
    }

    fn two_names(&mut self, request: &Request, record: &Record) -> Outcome {
        let new_parent = self.known(record.new_parent)?;
        let new_name = name(record.new_name.as_ref())?;
        if record.operation == Operation::Link {
            let ino = self.known(record.inode)?;
            return Ok(found(self.target.link(request, ino, new_parent, new_name)));
        }
        let (parent, name) = (self.known(record.parent)?, name(record.name.as_ref())?);
        let mode = RenameMode::from_bits_retain(record.flags.unwrap_or_default());
        Ok(plain(self.target.rename(request, parent, name, new_parent, new_name, mode)))
    }

    fn open(&mut self, request: &Request, record: &Record) -> Outcome {
        let flags = OpenMode::from_bits_retain(record.flags.unwrap_or_default());
        let (target, mode) = (self.target, record.mode.unwrap_or_default());
        Ok(match record.operation {
            Operation::Create => {
                let (parent, name) = (self.known(record.parent)?, name(record.name.as_ref())?);
                target.create(request, parent, name, mode, flags).map(created)
            }
            Operation::Tmpfile => {
                let parent = self.known(record.parent)?;
                target.tmpfile(request, parent, mode, flags).map(created)
            }
            Operation::Open => {
                let ino = self.known(record.inode)?;
                target.open(request, ino, flags).map(|opened| opened_file(ino, &opened))
            }
            _ => {
                let ino = self.known(record.inode)?;
                target.opendir(request, ino).map(|handle| Done {
                    opened: Some(OpenFile { ino, handle, is_directory: true, cookie: 0 }),
                    ..Done::default()
                })
            }
        })
    }

    fn data(&mut self, request: &Request, record: &Record) -> Outcome {
        let OpenFile { ino, handle, .. } = self.open_file(record.handle)?;
        let offset = record.offset.ok_or(Unfit::Incomplete)?;
        let bytes = record.size.ok_or(Unfit::Incomplete)?;
        if record.operation == Operation::CopyFileRange {
            let from = self.open_file(record.from_handle)?;
            let source = (from.ino, from.handle, record.from_offset.ok_or(Unfit::Incomplete)?);
            let copied = self.target.copy_file_range(request, source, (ino, handle, offset), bytes);
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
        self.write(request, record, (ino, offset))
    }

    fn write(&mut self, request: &Request, record: &Record, (ino, offset): (Ino, u64)) -> Outcome {
        let handle = self.open_file(record.handle)?.handle;
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

    fn range(&mut self, request: &Request, record: &Record) -> Outcome {
        let OpenFile { ino, handle, .. } = self.open_file(record.handle)?;
        let offset = record.offset.ok_or(Unfit::Incomplete)?;
        let flags = record.flags.unwrap_or_default();
        if record.operation == Operation::Lseek {
            let to = if flags & flag::HOLE != 0 { SeekTo::Hole } else { SeekTo::Data };
            let sought = self.target.lseek(request, ino, handle, offset, to);
            return Ok(sought.map(|_depends_on_block_sizes| Done::default()));
        }
        let length = record.size.ok_or(Unfit::Incomplete)?;
        let mode = FallocateMode::from_bits_retain(flags);
        Ok(plain(self.target.fallocate(request, ino, handle, offset, length, mode)))
    }

    fn file(&mut self, request: &Request, record: &Record) -> Outcome {
        if record.operation == Operation::Release {
            return self.close_again(request, record);
        }
        let OpenFile { ino, handle, .. } = self.open_file(record.handle)?;
        Ok(plain(match record.operation {
            Operation::Flush => self.target.flush(request, ino, handle),
            _ => self.target.fsync(request, ino, handle, data_only(record)),
        }))
    }

    fn close_again(&mut self, request: &Request, record: &Record) -> Outcome {
        let number = record.handle.ok_or(Unfit::Incomplete)?;
        let open = self.handles.free(number).ok_or(Unfit::UnknownHandle { number })?;
        let OpenFile { ino, handle, is_directory, .. } = open;
        Ok(plain(if is_directory {
            self.target.releasedir(request, ino, handle)
        } else {
            self.target.release(request, ino, handle)
        }))
    }

    fn directory(&mut self, request: &Request, record: &Record) -> Outcome {
        if record.operation == Operation::Releasedir {
            return self.close_again(request, record);
        }
        let OpenFile { ino, handle, .. } = self.open_file(record.handle)?;
        Ok(plain(match record.operation {
            Operation::Readdir => self.list(request, record)?,
            _ => self.target.fsyncdir(request, ino, handle, data_only(record)),
        }))
    }

    /// Takes as many entries as were delivered then, from where the last listing ended.
    fn list(&mut self, request: &Request, record: &Record) -> Result<fslab_vfs::Result<()>, Unfit> {
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

    fn attribute(&mut self, request: &Request, record: &Record) -> Outcome {
        let ino = self.known(record.inode)?;
        let target = self.target;
        if record.operation == Operation::Listxattr {
            return Ok(plain(target.listxattr(request, ino).map(drop)));
        }
        let name = OsString::from_vec(record.text.clone().ok_or(Unfit::Incomplete)?);
        Ok(plain(match record.operation {
            Operation::Getxattr => target.getxattr(request, ino, &name).map(drop),
            Operation::Removexattr => target.removexattr(request, ino, &name),
            _ => {
                let mode = XattrMode::from_bits_retain(record.flags.unwrap_or_default());
                let value = record.data.as_ref().ok_or(Unfit::NoValue)?;
                target.setxattr(request, ino, &name, value, mode)
            }
        }))
    }

    fn flags(&mut self, request: &Request, record: &Record) -> Outcome {
        let ino = self.known(record.inode)?;
        if record.operation == Operation::FileattrSet {
            let bytes = record.data.as_ref().ok_or(Unfit::NoValue)?;
            let attr = FileAttr::from_bytes(bytes).ok_or(Unfit::Incomplete)?;
            return Ok(plain(self.target.fileattr_set(request, ino, &attr)));
        }
        let is_extended = record.flags.is_some_and(|flags| flags & flag::EXTENDED != 0);
        let form = if is_extended { FileAttrForm::Extended } else { FileAttrForm::Flags };
        Ok(plain(self.target.fileattr_get(request, ino, form).map(drop)))
    }

    fn inode(&mut self, request: &Request, record: &Record) -> Outcome {
        if record.operation == Operation::Forget {
            let (Some(number), Some(lookups)) = (record.inode, record.size) else {
                return Err(Unfit::Incomplete);
            };
            self.forget(number, lookups);
            return Ok(Ok(Done::default()));
        }
        let ino = self.known(record.inode)?;
        let handle = record.handle.map(|number| self.open_file(Some(number))).transpose()?;
        let handle = handle.map(|open| open.handle);
        let target = self.target;
        Ok(plain(match record.operation {
            Operation::Getattr => target.getattr(request, ino, handle).map(drop),
            Operation::Setattr => {
                let changes = changes(record, &self.settings.owner);
                target.setattr(request, ino, handle, &changes).map(drop)
            }
            Operation::Readlink => target.readlink(request, ino).map(drop),
            Operation::Syncfs => target.syncfs(request, ino),
            _ => target.statfs(request, ino).map(drop),
        }))
    }
}

fn name(bytes: Option<&Vec<u8>>) -> Result<Name<'_>, Unfit> {
    let bytes = bytes.ok_or(Unfit::Incomplete)?;
    // A name that the kernel would not have let through: as good as none.
    Name::new(OsStr::from_bytes(bytes)).ok().ok_or(Unfit::Incomplete)
}

fn plain(answer: fslab_vfs::Result<()>) -> fslab_vfs::Result<Done> {
    answer.map(|()| Done::default())
}

fn found(answer: fslab_vfs::Result<Entry>) -> fslab_vfs::Result<Done> {
    answer.map(|entry| Done { found: Some(entry.attr.ino), ..Done::default() })
}

fn opened_file(ino: Ino, opened: &Opened) -> Done {
    let open = OpenFile { ino, handle: opened.handle, is_directory: false, cookie: 0 };
    Done { opened: Some(open), ..Done::default() }
}

fn created((entry, opened): (Entry, Opened)) -> Done {
    Done { found: Some(entry.attr.ino), ..opened_file(entry.attr.ino, &opened) }
}

fn data_only(record: &Record) -> bool {
    record.flags.is_some_and(|flags| flags & flag::DATA_ONLY != 0)
}

fn changes(record: &Record, owner: &Owner) -> SetAttr {
    let flags = record.flags.unwrap_or_default();
    let recorded = *owner == Owner::Recorded;
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
