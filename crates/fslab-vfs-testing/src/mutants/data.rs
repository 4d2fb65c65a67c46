//! Planted bugs in the contents of files.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{CaughtBy, Mutant};
use fslab_vfs::{
    Attr, Call, FallocateMode, FileSystem, Handle, Ino, Interceptor, OpenMode, Opened, Reply,
    Request, Result, SeekTo, SetAttr, SetTime, WriteOptions,
};

pub(super) const STALE_BYTES_AFTER_SHRINKING: Mutant = Mutant {
    bug: "growing a file shows bytes that shrinking should have removed",
    caught_by: CaughtBy::Model,
    plant: |inner| Box::new(StaleBytes { inner, cut: Mutex::default() }),
};

struct StaleBytes {
    inner: Box<dyn FileSystem>,
    /// The bytes that were cut from files that shrank, with their offsets.
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
    /// Records the bytes that shrinking removes, up to 4096.
    fn remember(&self, request: &Request, ino: Ino, size: u64, before: u64) -> Result<()> {
        let mut bytes = vec![0; (before - size).min(4096) as usize];
        self.with_open(request, ino, |handle| {
            self.inner.read(request, ino, handle, size, &mut bytes)
        })?;
        self.cut.lock().insert(ino, (size, bytes));
        Ok(())
    }

    /// When the file grows again, writes the removed bytes back at the place where the file ended.
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

/// An observer that changes the arguments of calls.
pub(super) struct Altering(pub(super) fn(&mut Call<'_>));

impl Interceptor for Altering {
    fn around<T: Reply>(
        &self,
        _: &dyn FileSystem,
        _: Option<&Request>,
        mut call: Call<'_>,
        perform: impl FnOnce(&Call<'_>) -> Result<T>,
    ) -> Result<T> {
        (self.0)(&mut call);
        perform(&call)
    }

    fn opened(&self, _: &mut Opened) {}
}

/// Declares an observer that changes the arguments of an operation.
macro_rules! altered {
    ($constant:ident, $bug:literal, $call:pat => $change:expr) => {
        pub(in crate::mutants) const $constant: $crate::mutants::Mutant = $crate::mutants::Mutant {
            bug: $bug,
            caught_by: $crate::mutants::CaughtBy::Model,
            plant: |inner| {
                let alter = |call: &mut Call<'_>| {
                    if let $call = call {
                        $change;
                    }
                };
                let interceptor = $crate::mutants::data::Altering(alter);
                Box::new(fslab_vfs::Intercepted { inner: inner.into(), interceptor })
            },
        };
    };
}
pub(super) use altered;

altered! { SHORT_READ_AT_CHUNK_BORDER, "a read stops at a border of 16 KiB",
Call::Read { offset, size, .. } => {
    const CHUNK_BYTES: u64 = 16 << 10;
    *size = (CHUNK_BYTES - *offset % CHUNK_BYTES).min(*size as u64) as usize;
} }

altered! { APPEND_OVERWRITES, "an append goes to the offset of the request",
Call::Write { options, .. } => *options = options.placed() }

altered! { TRUNCATING_OPEN_KEEPS_BYTES, "O_TRUNC is ignored",
Call::Open { mode, .. } => *mode -= OpenMode::TRUNCATE }

altered! { PUNCH_ROUNDS_OUTWARDS, "a punched hole is rounded up to whole blocks",
Call::Fallocate { offset, length, mode, .. } => {
    if mode.contains(FallocateMode::PUNCH_HOLE) && *length > 0 {
        let end = (*offset + *length).next_multiple_of(4096);
        *offset = *offset / 4096 * 4096;
        *length = end - *offset;
    }
} }

altered! { COPY_FORGETS_SOURCE_OFFSET, "copy_file_range copies from the start",
Call::CopyFileRange { source, .. } => source.2 = 0 }

altered! { SET_ID_SURVIVES_WRITE, "a write keeps the set-id bits",
Call::Write { options, .. } => *options = WriteOptions::default() }

mutant! { WRITE_LEAVES_TIMES, WriteLeavesTimes, "a write does not update the modification time",
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

mutant! { DATA_IS_REPORTED_LATE, DataLate, "SEEK_DATA skips the first bytes after a hole",
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
