//! A tree in a directory of this machine, accessed by system calls relative to the directory's
//! descriptor.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use fslab_sys::page_cache;
use fslab_vfs::{FileSystem, HostFs, HostOptions};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RawMode};
use rustix::io::Errno;

use super::{Access, Status, Tree, TreeFile, write_whole};
use crate::error::{Error, Result};

/// Open flags for files that must not exist.
const NEW: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL);

/// A directory of this machine.
#[derive(Debug)]
pub(crate) struct HostTree {
    root: OwnedFd,
    path: PathBuf,
}

impl HostTree {
    /// Opens a directory as the root of a tree.
    pub fn open(root: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = root.to_owned();
        let root = rustix::fs::openat(CWD, root, flags, Mode::empty())
            .map_err(failed("open", &root.to_string_lossy()))?;
        Ok(Self { root, path })
    }

    fn open_file(&self, path: &str, flags: OFlags) -> Result<Box<dyn TreeFile + '_>> {
        let file = self.descriptor(path, flags)?;
        Ok(Box::new(HostFile { file, path: path.to_owned() }))
    }

    fn descriptor(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&self.root, path, flags, Mode::from_raw_mode(0o644))
            .map_err(failed("open", path))
    }
}

/// Returns a function for `map_err` that adds an operation and its path.
pub(super) fn failed<'a>(
    operation: &'static str,
    path: &'a str,
) -> impl FnOnce(Errno) -> Error + use<'a> {
    move |source| Error::Operation { operation, path: path.to_owned(), source }
}

impl Tree for HostTree {
    fn make_directory(&self, path: &str) -> Result<()> {
        rustix::fs::mkdirat(&self.root, path, Mode::from_raw_mode(0o755 as RawMode))
            .map_err(failed("mkdir", path))
    }

    fn create(&self, path: &str) -> Result<Box<dyn TreeFile + '_>> {
        self.open_file(path, NEW)
    }

    // Unlike `create`, this does not allocate memory for the file's name, which would take
    // noticeable time compared with two system calls.
    fn create_empty(&self, path: &str) -> Result<()> {
        let file = self.descriptor(path, NEW)?;
        fslab_sys::descriptor::close(file).map_err(failed("close", path))
    }

    fn open(&self, path: &str, access: Access) -> Result<Box<dyn TreeFile + '_>> {
        let flags = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
            Access::Append => OFlags::WRONLY | OFlags::APPEND,
            Access::ReadWrite => OFlags::RDWR,
            Access::Direct => OFlags::RDWR | OFlags::DIRECT,
        };
        self.open_file(path, flags)
    }

    fn status(&self, path: &str) -> Result<Status> {
        let stat = rustix::fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(failed("lstat", path))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let (is_directory, is_file) = (kind == FileType::Directory, kind == FileType::RegularFile);
        let stored = stat.st_blocks.unsigned_abs() * 512;
        Ok(Status { size: stat.st_size.unsigned_abs(), stored, is_directory, is_file })
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str)) -> Result<()> {
        let named = if path.is_empty() { "." } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory = rustix::fs::openat(&self.root, named, flags, Mode::empty())
            .map_err(failed("opendir", path))?;
        for entry in Dir::new(directory).map_err(failed("opendir", path))? {
            let entry = entry.map_err(failed("readdir", path))?;
            let name = entry.file_name().to_str().or(Err(Errno::ILSEQ));
            match name.map_err(failed("readdir", path))? {
                "." | ".." => {}
                name => each(name),
            }
        }
        Ok(())
    }

    fn rename(&self, path: &str, to: &str) -> Result<()> {
        rustix::fs::renameat(&self.root, path, &self.root, to).map_err(failed("rename", path))
    }

    fn remove(&self, path: &str) -> Result<()> {
        rustix::fs::unlinkat(&self.root, path, AtFlags::empty()).map_err(failed("unlink", path))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn sync_all(&self) -> Result<()> {
        rustix::fs::syncfs(&self.root).map_err(failed("syncfs", ""))
    }

    fn with_file_system(&self, work: &mut dyn FnMut(&dyn FileSystem) -> Result<()>) -> Result<()> {
        let root = format!("/proc/self/fd/{}", self.root.as_raw_fd());
        let opened = HostFs::open(Path::new(&root), &HostOptions::default());
        let file_system = opened.map_err(|error| failed("open", "")(error.errno()))?;
        work(&file_system)?;
        file_system.shutdown().map_err(|error| failed("shutdown", "")(error.errno()))
    }
}

struct HostFile {
    file: OwnedFd,
    path: String,
}

impl TreeFile for HostFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut *buffer, offset))
            .map_err(failed("read", &self.path))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        write_whole(data, |done, rest| {
            rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.file, rest, offset + done))
                .map_err(failed("write", &self.path))
        })
    }

    fn append(&self, data: &[u8]) -> Result<()> {
        write_whole(data, |_, rest| {
            rustix::io::retry_on_intr(|| rustix::io::write(&self.file, rest))
                .map_err(failed("write", &self.path))
        })
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.file).map_err(failed("fsync", &self.path))
    }

    fn resident_pages(&self) -> Result<Option<u64>> {
        let stat = rustix::fs::fstat(&self.file).map_err(failed("fstat", &self.path))?;
        page_cache::resident_pages(&self.file, stat.st_size.unsigned_abs())
            .map(Some)
            .map_err(failed("cachestat", &self.path))
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { file, path } = *self;
        fslab_sys::descriptor::close(file).map_err(failed("close", &path))
    }
}
