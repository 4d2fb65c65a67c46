//! Accesses files by path in a file system in this process. Each directory is looked up only once.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::{FileSystem, Handle, Ino, Name, OpenMode, Request, WriteOptions};

use crate::error::{Error, Result};

/// Size of a request in bytes.
const REQUEST_BYTES: usize = 64 << 10;

type VfsResult<T> = fslab_vfs::Result<T>;

/// A client of a file system.
pub struct Files<'a> {
    file_system: &'a dyn FileSystem,
    directories: HashMap<Vec<u8>, Ino>,
    request: Request,
    buffer: Vec<u8>,
}

impl<'a> Files<'a> {
    pub fn new(file_system: &'a dyn FileSystem) -> Self {
        let (request, buffer) = (Request::default(), vec![0; REQUEST_BYTES]);
        Self { file_system, directories: HashMap::new(), request, buffer }
    }

    pub fn sync(&self) -> Result<()> {
        let synced = self.file_system.syncfs(&self.request, Ino::ROOT);
        synced.map_err(Error::volume("can't sync the file system"))
    }

    pub fn make_directory(&mut self, path: &[u8]) -> Result<()> {
        let made = self
            .place(path)
            .and_then(|(parent, name)| self.file_system.mkdir(&self.request, parent, name, 0o755));
        let ino = made.map_err(failed("can't make", path))?.attr.ino;
        self.directories.insert(path.to_owned(), ino);
        Ok(())
    }

    /// Makes a file of `size` bytes.
    pub fn create(&mut self, path: &[u8], size: u64) -> Result<()> {
        let flags = OpenMode::WRITE_ONLY | OpenMode::EXCLUSIVE;
        let made = self.place(path).and_then(|(parent, name)| {
            let (request, mode) = (&self.request, 0o100_644);
            let (entry, opened) = self.file_system.create(request, parent, name, mode, flags)?;
            let written = self.write_all(entry.attr.ino, opened.handle, size);
            self.close(entry.attr.ino, opened.handle)?;
            written
        });
        made.map_err(failed("can't make", path))
    }

    /// Reads a file and returns its size in bytes.
    pub fn read(&mut self, path: &[u8]) -> Result<u64> {
        self.use_file(path, OpenMode::empty(), Self::read_all).map_err(failed("can't read", path))
    }

    /// Overwrites a file and returns its size in bytes.
    pub fn overwrite(&mut self, path: &[u8]) -> Result<u64> {
        let write =
            |files: &mut Self, ino, handle, size| files.write_all(ino, handle, size).map(|()| size);
        self.use_file(path, OpenMode::WRITE_ONLY, write).map_err(failed("can't overwrite", path))
    }

    pub fn remove(&mut self, path: &[u8]) -> Result<()> {
        let removed = self
            .place(path)
            .and_then(|(parent, name)| self.file_system.unlink(&self.request, parent, name));
        removed.map_err(failed("can't remove", path))
    }

    pub fn remove_directory(&mut self, path: &[u8]) -> Result<()> {
        let removed = self
            .place(path)
            .and_then(|(parent, name)| self.file_system.rmdir(&self.request, parent, name));
        removed.map_err(failed("can't remove", path))?;
        if let Some(ino) = self.directories.remove(path) {
            self.file_system.forget(ino, 1);
        }
        Ok(())
    }

    fn use_file(
        &mut self,
        path: &[u8],
        mode: OpenMode,
        work: impl FnOnce(&mut Self, Ino, Handle, u64) -> VfsResult<u64>,
    ) -> VfsResult<u64> {
        let (parent, name) = self.place(path)?;
        let attr = self.file_system.lookup(&self.request, parent, name)?.attr;
        let opened = self.file_system.open(&self.request, attr.ino, mode);
        let handle = match opened {
            Ok(opened) => opened.handle,
            Err(error) => {
                self.file_system.forget(attr.ino, 1);
                return Err(error);
            }
        };
        let done = work(self, attr.ino, handle, attr.size);
        self.close(attr.ino, handle)?;
        done
    }

    fn read_all(&mut self, ino: Ino, handle: Handle, size: u64) -> VfsResult<u64> {
        let mut offset = 0;
        while offset < size {
            let (request, buffer) = (&self.request, &mut self.buffer);
            match self.file_system.read(request, ino, handle, offset, buffer)? {
                0 => break,
                length => offset += length as u64,
            }
        }
        Ok(offset)
    }

    fn write_all(&self, ino: Ino, handle: Handle, size: u64) -> VfsResult<()> {
        (0..size).step_by(REQUEST_BYTES).try_for_each(|offset| {
            let length = (size - offset).min(REQUEST_BYTES as u64) as usize;
            let (bytes, options) = (&self.buffer[..length], WriteOptions::default());
            self.file_system.write_all(&self.request, ino, handle, offset, bytes, options)
        })
    }

    fn close(&self, ino: Ino, handle: Handle) -> VfsResult<()> {
        let released = self.file_system.release(&self.request, ino, handle);
        self.file_system.forget(ino, 1);
        released
    }

    fn place<'p>(&mut self, path: &'p [u8]) -> VfsResult<(Ino, Name<'p>)> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (path.get(..slash).unwrap_or_default(), path.get(slash + 1..)),
            None => (&[][..], Some(path)),
        };
        let parent = self.directory(parent)?;
        Ok((parent, Name::new(OsStr::from_bytes(name.unwrap_or_default()))?))
    }

    fn directory(&mut self, path: &[u8]) -> VfsResult<Ino> {
        if path.is_empty() {
            return Ok(Ino::ROOT);
        }
        if let Some(ino) = self.directories.get(path) {
            return Ok(*ino);
        }
        let (parent, name) = self.place(path)?;
        let ino = self.file_system.lookup(&self.request, parent, name)?.attr.ino;
        self.directories.insert(path.to_owned(), ino);
        Ok(ino)
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        for (_, ino) in self.directories.drain() {
            self.file_system.forget(ino, 1);
        }
    }
}

fn failed(what: &str, path: &[u8]) -> impl FnOnce(fslab_vfs::Error) -> Error {
    Error::volume(format!("{what} {}", String::from_utf8_lossy(path)))
}
