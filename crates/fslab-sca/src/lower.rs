//! The lower file: an open file of the lower file system, with complete reads and writes.

use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::rules::{CAPABILITY, set_id};
use fslab_vfs::{
    Attr, Errno, FallocateMode, FileSystem, Handle, Ino, Permissions, Request, Result, SeekTo,
    SetAttr, SetTime, WriteOptions, XattrMode,
};

/// An open file of the lower file system.
#[derive(Clone)]
pub struct LowerFile {
    pub fs: Arc<dyn FileSystem>,
    pub ino: Ino,
    pub handle: Handle,
}

impl LowerFile {
    /// Name of the file in messages.
    pub fn name(&self) -> String {
        match self.fs.path_below(self.ino) {
            Some(path) => path.display().to_string(),
            None => format!("inode {}", self.ino.0),
        }
    }

    pub fn attr(&self, request: &Request) -> Result<Attr> {
        self.fs.getattr(request, self.ino, Some(self.handle))
    }

    pub fn length(&self, request: &Request) -> Result<u64> {
        Ok(self.attr(request)?.size)
    }

    /// Reads up to `length` bytes; fewer only at the end of the file.
    pub fn read(&self, request: &Request, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![0; length];
        let done = self.read_into(request, offset, &mut buffer)?;
        buffer.truncate(done);
        Ok(buffer)
    }

    pub fn read_into(&self, request: &Request, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.fs.read_fully(request, self.ino, self.handle, offset, buffer)
    }

    /// Returns the offset of the next data at or after `offset`, or `u64::MAX` if there is none.
    /// Returns `offset` if the file system does not report holes.
    pub fn next_data(&self, request: &Request, offset: u64) -> u64 {
        match self.fs.lseek(request, self.ino, self.handle, offset, SeekTo::Data) {
            Ok(next) => next.max(offset),
            Err(error) if error.errno() == Errno::NXIO => u64::MAX,
            Err(_) => offset,
        }
    }

    /// Whether a range contains only zeros.
    ///
    /// # Errors
    /// Errors of reading the file.
    pub fn is_zero(&self, request: &Request, range: &Range<u64>) -> Result<bool> {
        const STEP: u64 = 1 << 20;
        let mut place = range.start;
        loop {
            place = self.next_data(request, place);
            if place >= range.end {
                return Ok(true);
            }
            let bytes = self.read(request, place, (range.end - place).min(STEP) as usize)?;
            if bytes.is_empty() {
                return Ok(true);
            }
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            place += bytes.len() as u64;
        }
    }

    /// Writes all of `data`, or fails.
    pub fn write(
        &self,
        request: &Request,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<()> {
        self.fs.write_all(request, self.ino, self.handle, offset, data, options)
    }

    /// Drops the page cache of a range, including pages shared with the range before it.
    ///
    /// The kernel reads ahead in folios larger than a frame, and drops only folios that lie
    /// entirely in the range. So each call also drops, a second time, some pages before the range
    /// that are no longer being read.
    pub fn drop_pages(&self, offset: u64, length: u64) {
        const PAGE_BYTES: u64 = 4096;
        const AT_WORK_BYTES: u64 = 2 << 20;
        const BEHIND_BYTES: u64 = 8 << 20;
        let start = offset / PAGE_BYTES * PAGE_BYTES;
        let behind = start.saturating_sub(BEHIND_BYTES)..start.saturating_sub(AT_WORK_BYTES);
        for range in [start..offset + length, behind] {
            if !range.is_empty() {
                self.fs.drop_pages(self.ino, self.handle, range);
            }
        }
    }

    /// Drops the page cache before `end`, including pages left by earlier readers.
    pub fn drop_pages_before(&self, end: u64) {
        const BYTES: u64 = 8 << 20;
        self.fs.drop_pages(self.ino, self.handle, end.saturating_sub(BYTES)..end);
    }

    pub fn sync(&self, request: &Request, data_only: bool) -> Result<()> {
        self.fs.fsync(request, self.ino, self.handle, data_only)
    }

    pub fn truncate(&self, request: &Request, length: u64) -> Result<()> {
        self.change(request, &SetAttr { size: Some(length), ..SetAttr::default() })
    }

    /// Truncates the file to zero; a sync makes this durable.
    pub fn empty(&self, request: &Request, kill_set_id: bool) -> Result<()> {
        self.change(request, &SetAttr { size: Some(0), kill_set_id, ..SetAttr::default() })
    }

    /// Frees space. Afterwards, the bytes read as zeros or keep their old values; no caller reads
    /// them.
    pub fn punch(&self, request: &Request, offset: u64, length: u64) -> Result<()> {
        let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        self.fs.fallocate(request, self.ino, self.handle, offset, length, mode)
    }

    pub fn change(&self, request: &Request, changes: &SetAttr) -> Result<()> {
        self.fs.setattr(request, self.ino, Some(self.handle), changes).map(drop)
    }

    /// Updates the times after a change of the logical file that wrote nothing to the lower file.
    pub fn touch(&self, request: &Request, kill_set_id: bool) -> Result<()> {
        if kill_set_id {
            let attr = self.attr(request)?;
            let cleared = set_id::after_change(attr.permissions, attr.gid, request);
            let permissions = (cleared != attr.permissions).then_some(cleared);
            self.change(request, &SetAttr { permissions, ..SetAttr::default() })?;
        }
        let modified = Some(SetTime::Now);
        self.change(request, &SetAttr { modified, ..SetAttr::default() })
    }

    /// Runs `work`, which changes the lower file but not its logical content. The modification
    /// time, set-id bits and capabilities are restored, because any write changes them.
    pub fn keeping_all<T>(&self, request: &Request, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (before, capabilities) = (self.attr(request)?, self.capabilities(request)?);
        let answer = work();
        let modified = Some(SetTime::To(before.modified));
        self.change(request, &SetAttr { modified, ..SetAttr::default() })?;
        match self.give_back(request, before.permissions, capabilities) {
            // The work itself is done, so this is only logged. An ordinary user can't restore
            // attributes that only root may set.
            Err(error) if matches!(error.errno(), Errno::PERM | Errno::ACCESS) => {
                tracing::warn!(
                    %error,
                    file = %self.name(),
                    "can't restore set-id bits or capabilities, so they are lost"
                );
            }
            given => given?,
        }
        answer
    }

    /// Reads the file capabilities; `None` if there are none or the xattr is not readable.
    fn capabilities(&self, request: &Request) -> Result<Option<Vec<u8>>> {
        match self.fs.getxattr(request, self.ino, OsStr::new(CAPABILITY)) {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_absence(error.errno()) => Ok(None),
            Err(error) if matches!(error.errno(), Errno::PERM | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Restores set-id bits and capabilities that writing removed. Other permissions are kept,
    /// because a user may have set them.
    fn give_back(
        &self,
        request: &Request,
        permissions: Permissions,
        capabilities: Option<Vec<u8>>,
    ) -> Result<()> {
        if permissions.has_set_id() {
            let present = self.attr(request)?.permissions;
            let set_id = permissions.bits() & (Permissions::SET_UID | Permissions::SET_GID);
            let whole = Permissions::new(present.bits() | set_id);
            if whole != present {
                let permissions = Some(whole);
                self.change(request, &SetAttr { permissions, ..SetAttr::default() })?;
            }
        }
        let Some(value) = capabilities else { return Ok(()) };
        let (name, mode) = (OsStr::new(CAPABILITY), XattrMode::empty());
        self.fs.setxattr(request, self.ino, name, &value, mode)
    }
}

/// Whether an errno means that an xattr is missing or unsupported.
pub fn is_absence(errno: Errno) -> bool {
    matches!(errno, Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS)
}
