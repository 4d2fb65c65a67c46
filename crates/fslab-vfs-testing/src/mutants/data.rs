//! Planted bugs in what files hold.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{CaughtBy, Mutant};
use fslab_vfs::FileSystem;
use fslab_vfs::Result;
use fslab_vfs::{
    Attr, FallocateMode, Handle, Ino, OpenMode, Opened, Request, SeekTo, SetAttr, SetTime,
    WriteOptions,
};

pub(super) const STALE_BYTES_AFTER_SHRINKING: Mutant = Mutant {
    bug: "growing a file shows bytes that shrinking should have cut",
    caught_by: CaughtBy::Model,
    plant: |inner| Box::new(StaleBytes { inner, cut: Mutex::default() }),
};

struct StaleBytes {
    inner: Box<dyn FileSystem>,
    /// What was cut from files that are short now: where, and which bytes.
    cut: Mutex<HashMap<Ino, (u64, Vec<u8>)>>,
}

impl StaleBytes {
    fn with_open<T>(
        &self,
        request: &Request,
        ino: Ino,
        work: impl FnOnce(Handle) -> Result<T>,
    ) -> Result<T> {
        let opened = self.inner.open(request, ino, OpenMode::READ_WRITE)?;
        let answer = work(opened.handle);
        self.inner.release(request, ino, opened.handle)?;
        answer
    }
}

impl FileSystem for StaleBytes {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let Some(size) = changes.size else {
            return self.inner.setattr(request, ino, handle, changes);
        };
        let before = self.inner.getattr(request, ino, handle)?.size;
        if size < before {
            self.remember(request, ino, size, before)?;
        }
        let answer = self.inner.setattr(request, ino, handle, changes)?;
        if size > before {
            self.put_back(request, ino, before, size)?;
        }
        Ok(answer)
    }
}

impl StaleBytes {
    /// Keeps what a cut takes away, up to a block.
    fn remember(&self, request: &Request, ino: Ino, size: u64, before: u64) -> Result<()> {
        let mut bytes = vec![0; (before - size).min(4096) as usize];
        self.with_open(request, ino, |handle| {
            self.inner.read(request, ino, handle, size, &mut bytes)
        })?;
        self.cut.lock().insert(ino, (size, bytes));
        Ok(())
    }

    /// Shows it again where the file ended.
    fn put_back(&self, request: &Request, ino: Ino, before: u64, size: u64) -> Result<()> {
        let Some((offset, bytes)) = self.cut.lock().remove(&ino) else { return Ok(()) };
        if offset != before {
            return Ok(());
        }
        let length = bytes.len().min((size - offset) as usize);
        self.with_open(request, ino, |handle| {
            let options = WriteOptions::default();
            self.inner.write(request, ino, handle, offset, &bytes[..length], options)
        })?;
        Ok(())
    }
}

/// Declares an observer that plants a bug in one or more operations.
macro_rules! mutant {
    ($constant:ident, $type:ident, $bug:literal, $caught_by:expr, { $($operation:item)+ }) => {
        pub(in crate::mutants) const $constant: $crate::mutants::Mutant =
            $crate::mutants::Mutant {
                bug: $bug,
                caught_by: $caught_by,
                plant: |inner| Box::new($type(inner)),
            };

        struct $type(Box<dyn FileSystem>);

        impl FileSystem for $type {
            fn fallback(&self) -> Option<&dyn FileSystem> {
                Some(&*self.0)
            }

            $($operation)+
        }
    };
}
pub(super) use mutant;

mutant! { SHORT_READ_AT_CHUNK_BORDER, ShortRead, "a read stops at a border of 16 KiB",
CaughtBy::Model, {
    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        const CHUNK_BYTES: u64 = 16 << 10;
        let room = (CHUNK_BYTES - offset % CHUNK_BYTES).min(buffer.len() as u64) as usize;
        self.0.read(request, ino, handle, offset, &mut buffer[..room])
    }
} }

mutant! { APPEND_OVERWRITES, AppendOverwrites, "an append goes to the offset of the request",
CaughtBy::Model, {
    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        self.0.write(request, ino, handle, offset, data, options.placed())
    }
} }

mutant! { TRUNCATING_OPEN_KEEPS_BYTES, TruncatingOpen, "O_TRUNC is not obeyed",
CaughtBy::Model, {
    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        self.0.open(request, ino, mode - OpenMode::TRUNCATE)
    }
} }

mutant! { PUNCH_ROUNDS_OUTWARDS, PunchRounds, "a punched hole is rounded up to whole blocks",
CaughtBy::Model, {
    fn fallocate(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        if !mode.contains(FallocateMode::PUNCH_HOLE) || length == 0 {
            return self.0.fallocate(request, ino, handle, offset, length, mode);
        }
        let start = offset / 4096 * 4096;
        let end = (offset + length).next_multiple_of(4096);
        self.0.fallocate(request, ino, handle, start, end - start, mode)
    }
} }

mutant! { COPY_FORGETS_SOURCE_OFFSET, CopyFromStart, "copy_file_range copies from the start",
CaughtBy::Model, {
    fn copy_file_range(
        &self,
        request: &Request,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        self.0.copy_file_range(request, (source.0, source.1, 0), target, length)
    }
} }

mutant! { SET_ID_SURVIVES_WRITE, SetIdSurvives, "a write leaves the set-id bits",
CaughtBy::Model, {
    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        _: WriteOptions,
    ) -> Result<usize> {
        self.0.write(request, ino, handle, offset, data, WriteOptions::default())
    }
} }

mutant! { WRITE_LEAVES_TIMES, WriteLeavesTimes, "a write does not move the modification time",
CaughtBy::Case("times/write_moves_contents_and_inode"), {
    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        let before = self.0.getattr(request, ino, Some(handle))?.modified;
        let written = self.0.write(request, ino, handle, offset, data, options)?;
        let changes = SetAttr { modified: Some(SetTime::To(before)), ..SetAttr::default() };
        self.0.setattr(request, ino, Some(handle), &changes)?;
        Ok(written)
    }
} }

mutant! { DATA_IS_REPORTED_LATE, DataLate, "SEEK_DATA skips the first bytes behind a hole",
CaughtBy::Case("holes/unwritten_bytes_are_never_lost_to_a_hole"), {
    fn lseek(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        let found = self.0.lseek(request, ino, handle, offset, to)?;
        let behind_a_hole = to == SeekTo::Data && found > offset;
        Ok(if behind_a_hole { found + 512 } else { found })
    }
} }
