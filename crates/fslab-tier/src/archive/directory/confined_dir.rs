//! Access to an archive's directory that never leaves it. The contents may come from anywhere:
//! links lead nowhere else, pipes do not block, and reads are bounded.
//!
//! The user chose the path of the archive itself, so it may contain links.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fsync, mkdirat, openat, openat2,
    renameat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use crate::private::{DIRECTORY_MODE, FILE_MODE};

/// The longest file with settings that is read, in bytes.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// A directory that is open.
pub(super) struct ConfinedDir(OwnedFd);

impl ConfinedDir {
    /// Opens a directory by a path that is trusted.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        // To look beneath a directory, nobody needs to read it.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(retry_on_intr(|| openat(CWD, path, flags, Mode::empty()))?))
    }

    /// Opens a directory beneath this one.
    ///
    /// # Errors
    /// `NotADirectory` where something else is there.
    pub(super) fn directory(&self, name: &str) -> io::Result<Self> {
        self.open_directory(name, OFlags::RDONLY).map(Self)
    }

    /// Whether a directory is beneath this one, which need not be read for that.
    ///
    /// # Errors
    /// `NotADirectory` where something else is there, `NotFound` where nothing is.
    pub(super) fn has_directory(&self, name: &str) -> io::Result<()> {
        self.open_directory(name, OFlags::PATH).map(drop)
    }

    fn open_directory(&self, name: &str, access: OFlags) -> io::Result<OwnedFd> {
        let opened = self.resolve(Path::new(name), access | OFlags::DIRECTORY);
        opened.map_err(|error| match error.kind() {
            ErrorKind::InvalidData | ErrorKind::NotADirectory => {
                io::Error::new(ErrorKind::NotADirectory, format!("its `{name}` is no directory"))
            }
            _ => error,
        })
    }

    /// Opens a file beneath this directory to read it.
    ///
    /// # Errors
    /// `InvalidData` where it is none.
    pub(super) fn file(&self, path: &Path) -> io::Result<File> {
        // To open a device may do something already, and whoever opens a pipe waits for a writer:
        // what was found to be a file is opened, whatever has its name by then.
        let found = self.regular(path)?;
        match File::open(format!("/proc/self/fd/{}", found.as_raw_fd())) {
            Err(error) if wants_name(&error) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                regular(self.resolve(path, flags)?.into())
            }
            opened => opened,
        }
    }

    /// Bytes of a file beneath this directory.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub(super) fn length(&self, path: &Path) -> io::Result<u64> {
        Ok(self.regular(path)?.metadata()?.len())
    }

    /// A file to ask about, not to read.
    fn regular(&self, path: &Path) -> io::Result<File> {
        regular(self.resolve(path, OFlags::PATH)?.into())
    }

    /// Reads a file with settings.
    ///
    /// # Errors
    /// `InvalidData` where it is none.
    pub(super) fn text(&self, name: &str) -> io::Result<String> {
        let mut text = String::new();
        let file = self.file(Path::new(name))?;
        match file.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)? as u64 {
            0..=TEXT_BYTES_MAX => Ok(text),
            _ => Err(wrong("is too long for what it is")),
        }
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::CLOEXEC;
        match retry_on_intr(|| openat2(&self.0, path, flags, Mode::empty(), resolve)) {
            Err(Errno::LOOP) => Err(wrong("a symbolic link is in its place")),
            opened => Ok(opened?),
        }
    }

    /// What is in this directory.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn names(&self) -> io::Result<impl Iterator<Item = io::Result<String>>> {
        let entries = Dir::read_from(&self.0)?;
        Ok(entries.filter_map(|entry| match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => None,
            Ok(entry) => Some(Ok(entry.file_name().to_string_lossy().into_owned())),
            Err(error) => Some(Err(error.into())),
        }))
    }

    /// Bytes of what has a name here; none of what is no file.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn bytes_of(&self, name: &str) -> io::Result<u64> {
        let found = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        Ok(if is_file { found.st_size as u64 } else { 0 })
    }

    /// Makes a file to write to, where nothing has its name.
    ///
    /// # Errors
    /// `AlreadyExists` where something has.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(FILE_MODE);
        Ok(retry_on_intr(|| openat(&self.0, name, flags, mode))?.into())
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// `AlreadyExists` where something has its name.
    pub(super) fn make(&self, name: &str) -> io::Result<()> {
        Ok(mkdirat(&self.0, name, Mode::from_raw_mode(DIRECTORY_MODE))?)
    }

    /// Moves a file to another directory, in the place of what has its name there.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn rename(&self, name: &str, to: &Self) -> io::Result<()> {
        Ok(renameat(&self.0, name, &to.0, name)?)
    }

    /// Removes a file, or whatever else has its name.
    ///
    /// # Errors
    /// `NotFound` where nothing has.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Makes its names durable.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| fsync(&self.0))?)
    }
}

/// Whether what was found can be opened by its name alone: somebody else has replaced it on a
/// server, or this machine has no /proc.
fn wants_name(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StaleNetworkFileHandle | ErrorKind::NotFound)
}

/// # Errors
/// `InvalidData` where a file is none.
pub(super) fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(wrong("is no file")) }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
