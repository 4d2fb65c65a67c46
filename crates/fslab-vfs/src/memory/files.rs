//! Open files: reading, writing, reserving, seeking and copying.

use crate::error::{Errno, Error, Result};
use crate::rules::{self, set_id};
use crate::types::{
    FallocateMode, FileKind, Handle, Ino, OpenMode, Opened, Request, SeekTo, WriteOptions,
};

use super::data::MAX_SIZE;
use super::handles::Open;
use super::tree::Tree;

/// Maximum number of bytes copied by one call; the caller copies the rest with further calls.
const COPY_BYTES_MAX: u64 = 16 << 20;

impl Tree {
    pub fn open(&mut self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        match self.node(ino)?.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Errno::ISDIR.into()),
            FileKind::Symlink => return Err(Errno::LOOP.into()),
            // The sender of requests opens special files itself; only their names are stored here.
            _ => return Err(Errno::NXIO.into()),
        }
        if mode.contains(OpenMode::TRUNCATE) {
            self.truncate(ino, 0, request, !set_id::may_keep(request))?;
        }
        let handle = self.add_handle(Open::File { ino, mode })?;
        Ok(Opened { no_flush: true, ..Opened::new(handle) })
    }

    /// Reads without updating the access time; also returns whether an update is due.
    pub fn read(
        &self,
        request: &Request,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, bool)> {
        let (ino, mode) = self.handles.readable(handle)?;
        let node = self.node(ino)?;
        let length = node.data()?.read(offset, buffer);
        let due = !mode.contains(OpenMode::NO_ACCESS_TIME)
            && node.access_is_due(self.access_times, request.now);
        Ok((length, due && !buffer.is_empty()))
    }

    pub fn write(
        &mut self,
        request: &Request,
        _: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        let (ino, _) = self.handles.writable(handle)?;
        let node = self.nodes.get_mut(&ino).ok_or(Error::Stale { ino })?;
        let file = node.data_mut()?;
        let offset = if options.append { file.size() } else { offset };
        let written = file.write(&mut self.space, offset, data)?;
        if written > 0 {
            node.drop_privileges(request, options.kill_set_id);
            node.touch_contents(request.now);
        }
        Ok(written)
    }

    pub fn fallocate(
        &mut self,
        request: &Request,
        _: Ino,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        let end = rules::check_range(offset, length, MAX_SIZE)?;
        rules::check_fallocate(mode)?;
        let (ino, _) = self.handles.writable(handle)?;
        let node = self.nodes.get_mut(&ino).ok_or(Error::Stale { ino })?;
        let file = node.data_mut()?;
        if mode.contains(FallocateMode::PUNCH_HOLE) {
            file.punch(&mut self.space, offset, length);
        } else if mode.contains(FallocateMode::ZERO_RANGE) {
            file.zero(&mut self.space, offset, length)?;
        } else {
            file.reserve(&mut self.space, offset, length)?;
        }
        if !mode.contains(FallocateMode::KEEP_SIZE) {
            file.extend(end);
        }
        node.drop_privileges(request, !set_id::may_keep(request));
        node.touch_contents(request.now);
        Ok(())
    }

    pub fn lseek(
        &self,
        _: &Request,
        _: Ino,
        handle: Handle,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        let ino = self.handles.get(handle)?.ino();
        Ok(self.node(ino)?.data()?.seek(offset, to)?)
    }

    pub fn copy_file_range(
        &mut self,
        request: &Request,
        (_, source, source_offset): (Ino, Handle, u64),
        (_, target, target_offset): (Ino, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        let (source_ino, _) = self.handles.readable(source)?;
        let (target_ino, _) = self.handles.writable(target)?;
        let size = self.node(source_ino)?.data()?.size();
        let length = length.min(size.saturating_sub(source_offset));
        target_offset.checked_add(length).ok_or(Errno::OVERFLOW)?;
        if source_ino == target_ino && source_offset.abs_diff(target_offset) < length {
            return Err(Errno::INVAL.into());
        }
        if length == 0 {
            return Ok(0);
        }
        let mut buffer = vec![0; length.min(COPY_BYTES_MAX) as usize];
        self.read(request, source, source_offset, &mut buffer)?;
        let options = WriteOptions { kill_set_id: !set_id::may_keep(request), append: false };
        self.write(request, target_ino, target, target_offset, &buffer, options)
            .map(|length| length as u64)
    }

    /// Checks that a handle is open and so may be synced.
    pub fn check_handle(&self, handle: Handle) -> Result<()> {
        self.handles.get(handle).map(|_| ())
    }

    pub fn readlink(&self, ino: Ino) -> Result<std::ffi::OsString> {
        match &self.node(ino)?.content {
            super::node::Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL.into()),
        }
    }
}
