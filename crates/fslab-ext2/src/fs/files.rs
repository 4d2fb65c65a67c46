//! Operations on open files: create, open, read, write, allocate, copy and close.

use fslab_vfs::rules::{self, set_id};
use fslab_vfs::{Entry, Errno, FallocateMode, FileKind, Handle, OpenMode, Request, WriteOptions};

use super::handles::Open;
use super::{Ext2, VfsResult};
use crate::attributes::check_regular;
use crate::dir::Search;
use crate::error::Result;
use crate::format::INODE_APPEND;
use crate::inode_flags::{check_allocation, check_opening};
use crate::namei::{NamePlace, New};
use crate::types::InodeNo;
use crate::volume::Volume;

/// Maximum number of bytes that one copy request copies. The caller then requests the rest.
const COPY_BYTES_MAX: u64 = 16 << 20;

impl Ext2 {
    pub(super) fn add_handle(&self, volume: &Volume, open: Open) -> Handle {
        volume.known.lock().open(open.no());
        self.handles.write().add(open)
    }

    pub(super) fn open_in(
        &self,
        volume: &mut Volume,
        request: &Request,
        no: InodeNo,
        mode: OpenMode,
    ) -> Result<Handle> {
        let mut inode = volume.inode(no)?;
        match inode.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Errno::ISDIR.into()),
            FileKind::Symlink => return Err(Errno::LOOP.into()),
            // The kernel opens special files itself; the image stores only their inodes.
            _ => return Err(Errno::NXIO.into()),
        }
        check_opening(&inode, mode)?;
        if mode.contains(OpenMode::TRUNCATE) {
            volume.begin(request)?;
            let kill_set_id = !set_id::may_keep(request);
            volume.resize(request, &mut inode, 0, kill_set_id)?;
            volume.store_inode(&inode)?;
        }
        Ok(self.add_handle(volume, Open::File { no, mode }))
    }

    /// Creates and opens a file, or opens the existing one.
    pub(super) fn create_file(
        &self,
        request: &Request,
        at: NamePlace<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> VfsResult<(Entry, Handle)> {
        let mut volume = self.change();
        let (no, handle) = match self.see(volume.search(at))? {
            Search::Found(_) if flags.contains(OpenMode::EXCLUSIVE) => {
                return Err(Errno::EXIST.into());
            }
            Search::Found(found) => {
                let no = self.see(volume.check_named(at.parent, found.inode()))?;
                (no, self.see(self.open_in(&mut volume, request, no, flags))?)
            }
            Search::Absent(vacancy) => {
                volume.begin(request)?;
                let new = New::of_kind(FileKind::Regular, mode);
                let no = self.see(volume.create_at(request, at, &new, &vacancy))?;
                let flags = flags - OpenMode::TRUNCATE;
                // Count the lookup before the open. Otherwise `open` might assume an earlier
                // lookup, but the kernel cannot have looked up a new inode.
                let entry = self.enter(&volume, no)?;
                return Ok((entry, self.add_handle(&volume, Open::File { no, mode: flags })));
            }
        };
        Ok((self.enter(&volume, no)?, handle))
    }

    pub(super) fn create_tmpfile(
        &self,
        request: &Request,
        parent: InodeNo,
        mode: u32,
        flags: OpenMode,
    ) -> VfsResult<(Entry, Handle)> {
        let mut volume = self.change();
        let no = self.see(volume.create_unnamed(request, parent, mode))?;
        volume.known.lock().unnamed(no, !flags.contains(OpenMode::EXCLUSIVE));
        let handle = self.add_handle(&volume, Open::File { no, mode: flags - OpenMode::TRUNCATE });
        Ok((self.enter(&volume, no)?, handle))
    }

    pub(super) fn close(&self, handle: Handle) -> Result<()> {
        let open = self.handles.write().remove(handle)?;
        let no = open.no();
        let is_unused = {
            let volume = self.volume.read();
            let mut known = volume.known.lock();
            let is_unused = known.close(no);
            if !known.is_open(no) {
                volume.space.closed(no);
            }
            is_unused
        };
        self.delete_if(is_unused, no)
    }

    pub(super) fn read_file(
        &self,
        request: &Request,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let (no, mode) = self.handles.read().readable(handle)?;
        let (length, is_due) = {
            let volume = self.volume.read();
            let inode = volume.inode(no)?;
            let length = volume.read_data(&inode, offset, buffer)?;
            (length, volume.access_is_due(&inode, request.now))
        };
        if is_due && !buffer.is_empty() && !mode.contains(OpenMode::NO_ACCESS_TIME) {
            self.change().touch_access(no, request);
        }
        Ok(length)
    }

    pub(super) fn write_file(
        &self,
        request: &Request,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        let (no, mode) = self.handles.read().writable(handle)?;
        let mut volume = self.change();
        volume.begin(request)?;
        let mut inode = volume.inode(no)?;
        check_regular(&inode)?;
        let offset = if options.append { inode.size } else { offset };
        if inode.flags & INODE_APPEND != 0 && offset < inode.size {
            return Err(Errno::PERM.into());
        }
        let answer = volume.write_data(&mut inode, offset, data);
        // Store the inode even after a failure, because indirect blocks may have been allocated.
        volume.store_inode(&inode)?;
        let written = answer?;
        if written > 0 {
            volume.drop_privileges(&mut inode, request, options.kill_set_id)?;
            (inode.modified, inode.changed) = (request.now, request.now);
            volume.store_inode(&inode)?;
        }
        drop(volume);
        if mode.intersects(OpenMode::DATA_SYNC | OpenMode::SYNC) {
            self.sync_file(no)?;
        }
        Ok(written)
    }

    pub(super) fn allocate(
        &self,
        request: &Request,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        let mut volume = self.change();
        let end = rules::check_range(offset, length, volume.geometry().size_max())?;
        rules::check_fallocate(mode)?;
        let (no, _) = self.handles.read().writable(handle)?;
        volume.begin(request)?;
        let mut inode = volume.inode(no)?;
        check_regular(&inode)?;
        check_allocation(&inode, mode)?;
        let keep_size = mode.contains(FallocateMode::KEEP_SIZE);
        let within = offset..if keep_size { end.min(inode.size.max(offset)) } else { end };
        let answer = if mode.contains(FallocateMode::PUNCH_HOLE) {
            volume.punch(&mut inode, offset..end)
        } else if mode.contains(FallocateMode::ZERO_RANGE) {
            volume.zero(&mut inode, within)
        } else if keep_size && end > inode.size {
            // A checker could not distinguish blocks past the end of the file from damage.
            Err(Errno::OPNOTSUPP.into())
        } else {
            volume.fill_holes(&mut inode, within)
        };
        volume.store_inode(&inode)?;
        answer?;
        if !keep_size && end > inode.size {
            volume.truncate(&mut inode, end)?;
        }
        volume.drop_privileges(&mut inode, request, !set_id::may_keep(request))?;
        (inode.modified, inode.changed) = (request.now, request.now);
        volume.store_inode(&inode)
    }

    pub(super) fn copy(
        &self,
        request: &Request,
        source: (Handle, u64),
        target: (Handle, u64),
        length: u64,
    ) -> Result<u64> {
        let (source_no, target_no) = {
            let handles = self.handles.read();
            let (source_no, _) = handles.readable(source.0)?;
            let (target_no, _) = handles.writable(target.0)?;
            (source_no, target_no)
        };
        let inode = self.volume.read().inode(source_no)?;
        check_regular(&inode)?;
        let length = length.min(inode.size.saturating_sub(source.1));
        target.1.checked_add(length).ok_or(Errno::OVERFLOW)?;
        if source_no == target_no && source.1.abs_diff(target.1) < length {
            return Err(Errno::INVAL.into());
        }
        if length == 0 {
            return Ok(0);
        }
        let mut buffer = vec![0; length.min(COPY_BYTES_MAX) as usize];
        let read = self.read_file(request, source.0, source.1, &mut buffer)?;
        let options = WriteOptions { kill_set_id: !set_id::may_keep(request), append: false };
        let written = self.write_file(request, target.0, target.1, &buffer[..read], options)?;
        Ok(written as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fslab_vfs::{Ino, MemoryDevice, OpenMode};
    use fslab_vfs_testing::client::Client;

    use super::*;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::volume::VolumeOptions;

    #[test]
    fn closed_files_keep_no_allocation_state() {
        let device = Arc::new(MemoryDevice::new(4 << 20));
        mkfs(&*device, &MkfsOptions::default()).unwrap();
        let ext2 = Ext2::open(device, VolumeOptions::default()).unwrap();
        let client = Client::new(&ext2);
        let files_known = || ext2.volume.read().space.files_known();
        let (attr, writer) =
            client.create(Ino::ROOT, "read last", 0o600, OpenMode::EXCLUSIVE).unwrap();
        let reader = client.open(attr.ino, OpenMode::empty()).unwrap();
        writer.write_all(0, b"bytes").unwrap();
        writer.close().unwrap();
        assert_eq!(files_known(), 1);
        reader.close().unwrap();
        assert_eq!(files_known(), 0);
        let (_, writer) = client.create(Ino::ROOT, "gone", 0o600, OpenMode::EXCLUSIVE).unwrap();
        writer.write_all(0, b"bytes").unwrap();
        client.unlink(Ino::ROOT, "gone").unwrap();
        writer.close().unwrap();
        drop(client);
        assert_eq!(files_known(), 0);
    }
}
