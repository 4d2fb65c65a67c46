//! Stored files in memory without a layer, for tests that manipulate their logs.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{
    Attr, Errno, FileSystem, Handle, Ino, MemFs, Name, OpenMode, Request, Result, SetAttr,
    WriteOptions,
};
use parking_lot::{Mutex, MutexGuard};

use crate::commit::{Stepped, Steps, clear_end, commit, unless_gone};
use crate::context::Io;
use crate::frame::Identity;
use crate::log::Log;
use crate::lower::LowerFile;
use crate::pre_encode::PreEncoded;
use crate::{codec, recovery, superblock};

/// Chunk size in bytes.
pub const CHUNK: u64 = 4096;

/// Identity of a file with raw chunks.
pub fn identity() -> Identity {
    Identity::from_stored(codec::copy::SPEC.number, 12, 5).unwrap()
}

/// A disk that refuses writes at some offsets.
#[derive(Default)]
pub struct Refusing {
    inner: MemFs,
    refused: Mutex<Option<Refused>>,
}

struct Refused {
    offsets: Range<u64>,
    errno: Errno,
    /// Number of writes still to be refused.
    times: u64,
    /// Whether the data of a refused write is nevertheless stored, and the file can't be truncated.
    is_written: bool,
}

impl Refusing {
    /// Refuses this many writes from now on.
    pub fn refuse(&self, offsets: Range<u64>, errno: Errno, times: u64) {
        *self.refused.lock() = Some(Refused { offsets, errno, times, is_written: false });
    }

    /// Stores the data of the next write but returns an error for it, and refuses to truncate the
    /// file.
    pub fn answer_wrongly(&self, offsets: Range<u64>, errno: Errno) {
        *self.refused.lock() = Some(Refused { offsets, errno, times: 1, is_written: true });
    }

    /// Stops refusing; returns the number of remaining refusals.
    pub fn end(&self) -> u64 {
        self.refused.lock().take().map_or(0, |refused| refused.times)
    }
}

impl FileSystem for Refusing {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        if let Some(refused) = &mut *self.refused.lock()
            && refused.offsets.contains(&offset)
            && refused.times > 0
        {
            refused.times -= 1;
            if refused.is_written {
                self.inner.write(request, ino, handle, offset, data, options)?;
            }
            return Err(refused.errno.into());
        }
        self.inner.write(request, ino, handle, offset, data, options)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        match &*self.refused.lock() {
            Some(refused) if refused.is_written => Err(refused.errno.into()),
            _ => self.inner.setattr(request, ino, handle, changes),
        }
    }
}

/// Creates a new lower file.
pub fn file_in(fs: Arc<dyn FileSystem>) -> LowerFile {
    let (request, name) = (Request::default(), Name::new("file".as_ref()).unwrap());
    let made = fs.create(&request, Ino::ROOT, name, 0o644, OpenMode::READ_WRITE);
    let (entry, opened) = made.unwrap();
    LowerFile { fs, ino: entry.attr.ino, handle: opened.handle }
}

/// A stored file with a single user, for operations in steps.
pub struct Alone<'a> {
    io: Io<'a>,
    log: RefCell<&'a mut Log>,
    turn: Mutex<()>,
    /// Called during each sync.
    beside_sync: &'a dyn Fn(&mut Log, Io<'_>),
}

/// Wraps a stored file for operations in steps.
pub fn alone<'a>(log: &'a mut Log, io: Io<'a>) -> Alone<'a> {
    beside(log, io, &|_, _| ())
}

/// Wraps a stored file that `beside_sync` changes during each sync.
pub fn beside<'a>(
    log: &'a mut Log,
    io: Io<'a>,
    beside_sync: &'a dyn Fn(&mut Log, Io<'_>),
) -> Alone<'a> {
    Alone { io, log: RefCell::new(log), turn: Mutex::default(), beside_sync }
}

impl Steps for Alone<'_> {
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    fn look<T>(&self, work: impl FnOnce(Io<'_>, &Log) -> Result<T>) -> Stepped<T> {
        Ok(work(self.io, &self.log.borrow())?)
    }

    fn step<T>(&self, work: impl FnOnce(Io<'_>, &mut Log) -> Result<T>) -> Stepped<T> {
        Ok(work(self.io, &mut self.log.borrow_mut())?)
    }

    fn look_and_note<T>(&self, work: impl FnOnce(Io<'_>, &mut Log) -> Result<T>) -> Stepped<T> {
        self.step(work)
    }

    fn sync_below(&self, data_only: bool) -> Stepped<()> {
        let synced = self.io.lower.sync(self.io.request, data_only);
        (self.beside_sync)(&mut self.log.borrow_mut(), self.io);
        if synced.is_err() {
            self.log.borrow_mut().commits.note_failed_sync();
        }
        Ok(synced?)
    }
}

/// Makes a file durable.
pub fn sync(log: &mut Log, io: Io<'_>) {
    unless_gone(commit(&alone(log, io), false)).unwrap();
}

/// Fills a chunk with one byte value.
pub fn put(log: &mut Log, io: Io<'_>, (chunk, byte): (u64, u8)) {
    let bytes = vec![byte; CHUNK as usize];
    let whole = (chunk * CHUNK, bytes.as_slice());
    unless_gone(clear_end(&alone(log, io))).unwrap();
    log.write(io, whole, &mut PreEncoded::default(), WriteOptions::default()).unwrap();
}

/// Returns the byte values that fill the first chunks.
pub fn content(log: &Log, io: Io<'_>, chunks: u64) -> Vec<u8> {
    let first = |chunk| {
        let mut bytes = vec![0; CHUNK as usize];
        log.map.read(io, chunk * CHUNK, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "chunk {chunk}");
        bytes[0]
    };
    (0..chunks).map(first).collect()
}

/// Opens the file as the next mount would.
pub fn reopened(io: Io<'_>) -> Log {
    let beginning = io.lower.read(io.request, 0, superblock::BEGINNING_BYTES).unwrap();
    let length = io.lower.length(io.request).unwrap();
    recovery::open(io, identity(), &beginning, length, None).unwrap()
}

/// Opens the file only by its frames.
pub fn by_frames(io: Io<'_>) -> Log {
    recovery::by_frames(io, identity(), io.lower.length(io.request).unwrap()).unwrap()
}
