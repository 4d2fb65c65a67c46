//! Copies and compares the contents of files, and preserves holes.

use std::ffi::OsStr;
use std::path::Path;

use fslab_vfs::{
    Attr, Errno, FileSystem, Handle, Ino, Name, OpenMode, Request, Result, SeekTo, SetAttr,
    WriteOptions,
};

use super::{Conversion, Direction, Kept, Place, Why};
use crate::superblock::BEGINNING_BYTES;

/// Bytes copied at a time: enough for several chunks to be encoded in parallel.
const PIECE_BYTES: u64 = 4 << 20;

/// An open file. It is not closed on drop, but by `close`.
struct Open<'a> {
    fs: &'a dyn FileSystem,
    request: &'a Request,
    ino: Ino,
    handle: Handle,
}

impl<'a> Open<'a> {
    fn of(fs: &'a dyn FileSystem, request: &'a Request, ino: Ino) -> Result<Self> {
        let opened = match fs.open(request, ino, OpenMode::NO_ACCESS_TIME) {
            // Only the owner of a file may open it without updating the access time.
            Err(error) if error.errno() == Errno::PERM => fs.open(request, ino, OpenMode::empty()),
            opened => opened,
        };
        Ok(Self { fs, request, ino, handle: opened?.handle })
    }

    /// Reads up to `length` bytes; fewer only at the end of the file.
    fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        let mut done = 0;
        while done < bytes.len() {
            let place = offset + done as u64;
            let rest = &mut bytes[done..];
            match self.fs.read(self.request, self.ino, self.handle, place, rest)? {
                0 => break,
                count => done += count,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut done, options) = (0, WriteOptions::default());
        while done < bytes.len() {
            let (place, rest) = (offset + done as u64, &bytes[done..]);
            match self.fs.write(self.request, self.ino, self.handle, place, rest, options)? {
                0 => return Err(Errno::IO.into()),
                count => done += count,
            }
        }
        Ok(())
    }

    /// Returns the offset of the next data at or after `offset`; `None` if there is none.
    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        match self.fs.lseek(self.request, self.ino, self.handle, offset, SeekTo::Data) {
            Ok(place) => Ok(Some(place)),
            Err(error) if error.errno() == Errno::NXIO => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn next_hole(&self, offset: u64) -> Result<u64> {
        self.fs.lseek(self.request, self.ino, self.handle, offset, SeekTo::Hole)
    }

    /// Closes the file. This may report an error that a write did not report.
    fn close<T, E: From<fslab_vfs::Error>>(
        self,
        done: std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let closed = self.fs.release(self.request, self.ino, self.handle);
        done.and_then(|done| closed.map(|()| done).map_err(E::from))
    }
}

/// Reads the bytes that show whether a file is a stored file.
pub fn beginning(fs: &dyn FileSystem, request: &Request, ino: Ino) -> Result<Vec<u8>> {
    let file = Open::of(fs, request, ino)?;
    let read = file.read(0, BEGINNING_BYTES as u64);
    file.close(read)
}

/// Opens a file and reads up to `at.1` bytes at offset `at.0`.
pub fn piece(fs: &dyn FileSystem, request: &Request, ino: Ino, at: (u64, u64)) -> Result<Vec<u8>> {
    let file = Open::of(fs, request, ino)?;
    let read = file.read(at.0, at.1);
    file.close(read)
}

/// Makes a file durable.
pub fn sync(fs: &dyn FileSystem, request: &Request, ino: Ino) -> Result<()> {
    let file = Open::of(fs, request, ino)?;
    let synced = fs.fsync(request, ino, file.handle, false);
    file.close(synced)
}

impl Conversion {
    /// Returns the file systems through which originals and copies are accessed.
    fn sides(&self) -> (&dyn FileSystem, &dyn FileSystem) {
        match self.direction {
            Direction::Encode => (&*self.lower, &*self.layered),
            Direction::Decode => (&*self.layered, &*self.lower),
        }
    }

    /// Copies a file to a new name in its directory, and returns the copy.
    pub(super) fn copy_contents(&self, place: &Place<'_>, name: &OsStr, attr: &Attr) -> Kept<Ino> {
        let (from, to) = self.sides();
        let source = Open::of(from, &self.request, attr.ino)?;
        let mode = OpenMode::READ_WRITE | OpenMode::EXCLUSIVE;
        let created = Name::new(name)
            .map_err(fslab_vfs::Error::from)
            .and_then(|name| to.create(&self.request, place.parent, name, 0o600, mode));
        let (entry, opened) = match created {
            Ok(created) => created,
            Err(error) => return source.close(Err(error.into())),
        };
        let ino = entry.attr.ino;
        let target = Open { fs: to, request: &self.request, ino, handle: opened.handle };
        let size = self.size_of(attr)?;
        let copied = copy(&source, &target, size, &|done| self.pass(place.path, done, 2 * size));
        let copied = target.close(copied);
        let copied = source.close(copied);
        copied.inspect_err(|_| self.lower.forget(ino, 1))?;
        Ok(ino)
    }

    /// Returns the logical size of an original.
    fn size_of(&self, attr: &Attr) -> Result<u64> {
        let (from, _) = self.sides();
        Ok(from.getattr(&self.request, attr.ino, None)?.size)
    }

    /// Compares an original with its copy byte for byte, where either has data. `passed` receives
    /// the position of the comparison and the size.
    pub(super) fn compare(&self, attr: &Attr, copy: Ino, passed: &dyn Fn(u64, u64)) -> Kept<()> {
        let (from, to) = self.sides();
        let size = self.size_of(attr)?;
        self.compare_two((from, attr.ino), (to, copy), &|place| passed(place, size))
    }

    /// Reports the progress of a file, which is first copied and then compared.
    pub(super) fn pass(&self, path: &Path, done: u64, all: u64) {
        (self.report_share)(path, done as f64 / all.max(1) as f64);
    }

    /// Compares the contents of two files, each plain or stored.
    pub(super) fn compare_contents(&self, one: Ino, other: Ino) -> Kept<()> {
        self.compare_two((&*self.layered, one), (&*self.layered, other), &|_done| {})
    }

    fn compare_two(
        &self,
        (from, one): (&dyn FileSystem, Ino),
        (to, other): (&dyn FileSystem, Ino),
        passed: &dyn Fn(u64),
    ) -> Kept<()> {
        let size = |fs: &dyn FileSystem, ino| fs.getattr(&self.request, ino, None);
        let sizes = (size(from, one)?.size, size(to, other)?.size);
        if sizes.0 != sizes.1 {
            return Err(Why::Differs { offset: sizes.0.min(sizes.1) });
        }
        let source = Open::of(from, &self.request, one)?;
        let target = match Open::of(to, &self.request, other) {
            Ok(target) => target,
            Err(error) => return source.close(Err(error.into())),
        };
        let compared = compare(&source, &target, sizes.0, passed);
        let compared = target.close(compared);
        source.close(compared)
    }
}

fn copy(source: &Open<'_>, target: &Open<'_>, size: u64, passed: &dyn Fn(u64)) -> Result<()> {
    let mut place = 0;
    while let Some(start) = source.next_data(place)?.filter(|start| *start < size) {
        place = source.next_hole(start)?.min(size);
        let mut offset = start;
        while offset < place {
            let bytes = source.read(offset, PIECE_BYTES.min(place - offset))?;
            if bytes.is_empty() {
                // The original was truncated during the copy; the comparison will detect this.
                break;
            }
            target.write(offset, &bytes)?;
            offset += bytes.len() as u64;
            passed(offset);
        }
    }
    let (fs, handle) = (target.fs, Some(target.handle));
    let whole = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.setattr(target.request, target.ino, handle, &whole)?;
    fs.fsync(target.request, target.ino, target.handle, false)
}

fn compare(source: &Open<'_>, target: &Open<'_>, size: u64, passed: &dyn Fn(u64)) -> Kept<()> {
    let mut place = 0;
    while place < size {
        let starts = [source.next_data(place)?, target.next_data(place)?];
        let Some(start) = starts.into_iter().flatten().min().filter(|start| *start < size) else {
            break;
        };
        let length = PIECE_BYTES.min(size - start);
        let (one, other) = (source.read(start, length)?, target.read(start, length)?);
        if one != other || (one.len() as u64) < length {
            let same = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
            return Err(Why::Differs { offset: start + same as u64 });
        }
        place = start + length;
        passed(place);
    }
    Ok(())
}
