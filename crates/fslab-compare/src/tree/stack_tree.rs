//! A tree in a file system within this process, accessed by calls of the `FileSystem` trait.
//!
//! Directories are looked up once, and their lookup references are kept, as in the kernel's dentry
//! cache. Files are looked up and forgotten at each use.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::SystemTime;

use fslab_vfs::{
    Credentials, FileKind, FileSystem, Handle, Ino, Name, OpenMode, RenameMode, Request,
    WriteOptions,
};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::host_tree::failed;
use super::{Access, Status, Tree, TreeFile};
use crate::error::Result;

/// A file system within this process, and the inodes of directories that were looked up.
pub(crate) struct StackTree {
    file_system: Box<dyn FileSystem>,
    directories: Mutex<HashMap<String, Ino>>,
}

impl StackTree {
    pub fn new(file_system: Box<dyn FileSystem>) -> Self {
        Self { file_system, directories: Mutex::default() }
    }

    /// Shuts the file system down.
    pub fn shut_down(&self) -> Result<()> {
        for (_, ino) in self.directories.lock().drain() {
            self.file_system.forget(ino, 1);
        }
        self.file_system.shutdown().map_err(|error| failed("shutdown", "")(error.errno()))
    }

    fn directory(&self, path: &str) -> fslab_vfs::Result<Ino> {
        if path.is_empty() {
            return Ok(Ino::ROOT);
        }
        let known = self.directories.lock().get(path).copied();
        if let Some(ino) = known {
            return Ok(ino);
        }
        let (parent, name) = split(path);
        let parent = self.directory(parent)?;
        let ino = self.file_system.lookup(&request(), parent, name_of(name)?)?.attr.ino;
        // Another thread may have looked up the same directory at the same time; only one lookup
        // reference is kept.
        if self.directories.lock().insert(path.to_owned(), ino).is_some() {
            self.file_system.forget(ino, 1);
        }
        Ok(ino)
    }

    /// Performs an operation with the parent directory and the name of a path.
    fn at<T>(
        &self,
        operation: &'static str,
        path: &str,
        act: impl FnOnce(Ino, Name<'_>) -> fslab_vfs::Result<T>,
    ) -> Result<T> {
        let (parent, name) = split(path);
        let place = || Ok((self.directory(parent)?, name_of(name)?));
        place().and_then(|(parent, name)| act(parent, name)).map_err(wrap(operation, path))
    }

    fn file(&self, path: &str, ino: Ino, handle: Handle, size: u64) -> Box<dyn TreeFile + '_> {
        let (file_system, end) = (&*self.file_system, Cell::new(size));
        Box::new(StackFile { file_system, ino, handle, path: path.to_owned(), open: true, end })
    }

    fn try_list(&self, path: &str, each: &mut dyn FnMut(&str)) -> fslab_vfs::Result<()> {
        let ino = self.directory(path)?;
        let handle = self.file_system.opendir(&request(), ino)?;
        let mut readable = true;
        let listed = self.file_system.readdir(&request(), ino, handle, 0, &mut |entry| {
            match entry.name.to_str() {
                Some("." | "..") => {}
                Some(name) => each(name),
                None => readable = false,
            }
            true
        });
        self.file_system.releasedir(&request(), ino, handle)?;
        listed?;
        if readable { Ok(()) } else { Err(Errno::ILSEQ.into()) }
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn name_of(name: &str) -> fslab_vfs::Result<Name<'_>> {
    Ok(Name::new(OsStr::new(name))?)
}

fn request() -> Request {
    Request {
        credentials: Credentials {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        },
        umask: 0o022,
        now: SystemTime::now().into(),
        ..Request::default()
    }
}

/// Returns a function for `map_err` that adds an operation and its path.
fn wrap<'a>(
    operation: &'static str,
    path: &'a str,
) -> impl FnOnce(fslab_vfs::Error) -> crate::Error + use<'a> {
    move |error| failed(operation, path)(error.errno())
}

impl Tree for StackTree {
    fn make_directory(&self, path: &str) -> Result<()> {
        self.at("mkdir", path, |parent, name| {
            let entry = self.file_system.mkdir(&request(), parent, name, 0o755)?;
            self.directories.lock().insert(path.to_owned(), entry.attr.ino);
            Ok(())
        })
    }

    fn create(&self, path: &str) -> Result<Box<dyn TreeFile + '_>> {
        self.at("create", path, |parent, name| {
            let flags = OpenMode::WRITE_ONLY | OpenMode::EXCLUSIVE;
            let (entry, opened) =
                self.file_system.create(&request(), parent, name, 0o100_644, flags)?;
            Ok(self.file(path, entry.attr.ino, opened.handle, 0))
        })
    }

    fn open(&self, path: &str, access: Access) -> Result<Box<dyn TreeFile + '_>> {
        let mode = match access {
            Access::Read => OpenMode::empty(),
            Access::Write => OpenMode::WRITE_ONLY,
            Access::Append => OpenMode::WRITE_ONLY | OpenMode::APPEND,
            Access::ReadWrite | Access::Direct => OpenMode::READ_WRITE,
        };
        self.at("open", path, |parent, name| {
            let attr = self.file_system.lookup(&request(), parent, name)?.attr;
            match self.file_system.open(&request(), attr.ino, mode) {
                Ok(opened) => Ok(self.file(path, attr.ino, opened.handle, attr.size)),
                Err(error) => {
                    self.file_system.forget(attr.ino, 1);
                    Err(error)
                }
            }
        })
    }

    fn status(&self, path: &str) -> Result<Status> {
        self.at("lookup", path, |parent, name| {
            let attr = self.file_system.lookup(&request(), parent, name)?.attr;
            self.file_system.forget(attr.ino, 1);
            let (is_directory, is_file) =
                (attr.kind == FileKind::Directory, attr.kind == FileKind::Regular);
            Ok(Status { size: attr.size, stored: attr.blocks * 512, is_directory, is_file })
        })
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str)) -> Result<()> {
        self.try_list(path, each).map_err(wrap("readdir", path))
    }

    fn rename(&self, path: &str, to: &str) -> Result<()> {
        self.at("rename", path, |parent, name| {
            let (new_parent, new_name) = split(to);
            let new_parent = self.directory(new_parent)?;
            let new_name = name_of(new_name)?;
            self.file_system.rename(
                &request(),
                parent,
                name,
                new_parent,
                new_name,
                RenameMode::empty(),
            )
        })
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.at("unlink", path, |parent, name| self.file_system.unlink(&request(), parent, name))
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn sync_all(&self) -> Result<()> {
        self.file_system.syncfs(&request(), Ino::ROOT).map_err(wrap("syncfs", ""))
    }

    fn with_file_system(&self, work: &mut dyn FnMut(&dyn FileSystem) -> Result<()>) -> Result<()> {
        work(&*self.file_system)
    }
}

struct StackFile<'a> {
    file_system: &'a dyn FileSystem,
    ino: Ino,
    handle: Handle,
    path: String,
    open: bool,
    /// Offset of the next append. On a mount, the kernel would keep this offset.
    end: Cell<u64>,
}

impl StackFile<'_> {
    fn release(&mut self) -> fslab_vfs::Result<()> {
        self.open = false;
        let flushed = self.file_system.flush(&request(), self.ino, self.handle);
        let released = self.file_system.release(&request(), self.ino, self.handle);
        self.file_system.forget(self.ino, 1);
        flushed.and(released)
    }
}

impl Drop for StackFile<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if let Err(error) = self.release() {
            tracing::warn!("can't close {}: {error}", self.path);
        }
    }
}

impl TreeFile for StackFile<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.file_system
            .read(&request(), self.ino, self.handle, offset, buffer)
            .map_err(wrap("read", &self.path))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.file_system
            .write_all(&request(), self.ino, self.handle, offset, data, WriteOptions::default())
            .map_err(wrap("write", &self.path))
    }

    fn append(&self, data: &[u8]) -> Result<()> {
        self.write_at(self.end.get(), data)?;
        self.end.set(self.end.get() + data.len() as u64);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file_system
            .fsync(&request(), self.ino, self.handle, false)
            .map_err(wrap("fsync", &self.path))
    }

    fn resident_pages(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        let path = self.path.clone();
        self.release().map_err(wrap("close", &path))
    }
}
