//! Confines file accesses to an archive's directory, whose contents are not trusted. Symbolic links
//! are not followed, pipes do not block, and the length of settings files is limited.
//!
//! The path of the archive itself was chosen by the user, so it may contain symbolic links.

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

/// The longest settings file that is read, in bytes.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// An open directory.
pub(super) struct ConfinedDir(OwnedFd);

impl ConfinedDir {
    /// Opens a directory by a trusted path.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        // `O_PATH` needs no read permission for the directory.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(retry_on_intr(|| openat(CWD, path, flags, Mode::empty()))?))
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// `NotADirectory` if it is not a directory.
    pub(super) fn directory(&self, name: &str) -> io::Result<Self> {
        self.open_directory(name, OFlags::RDONLY).map(Self)
    }

    /// Checks that this directory contains a directory with this name, which need not be readable.
    ///
    /// # Errors
    /// `NotADirectory` if it has another type, `NotFound` if it does not exist.
    pub(super) fn has_directory(&self, name: &str) -> io::Result<()> {
        self.open_directory(name, OFlags::PATH).map(drop)
    }

    fn open_directory(&self, name: &str, access: OFlags) -> io::Result<OwnedFd> {
        let opened = self.resolve(Path::new(name), access | OFlags::DIRECTORY);
        opened.map_err(|error| match error.kind() {
            ErrorKind::InvalidData | ErrorKind::NotADirectory => {
                io::Error::new(ErrorKind::NotADirectory, format!("its `{name}` is not a directory"))
            }
            _ => error,
        })
    }

    /// Opens a file in this directory for reading.
    ///
    /// # Errors
    /// `InvalidData` if it is not a regular file.
    pub(super) fn file(&self, path: &Path) -> io::Result<File> {
        // Opening a device may have side effects, and opening a pipe waits for a writer. So the
        // type is checked first. Then the checked inode itself is opened, even if its name now
        // refers to another file.
        let found = self.regular(path)?;
        match File::open(format!("/proc/self/fd/{}", found.as_raw_fd())) {
            Err(error) if wants_name(&error) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                regular(self.resolve(path, flags)?.into())
            }
            opened => opened,
        }
    }

    /// Returns the length of a file in this directory, in bytes.
    pub(super) fn length(&self, path: &Path) -> io::Result<u64> {
        Ok(self.regular(path)?.metadata()?.len())
    }

    /// Opens a regular file for its attributes, not for reading.
    fn regular(&self, path: &Path) -> io::Result<File> {
        regular(self.resolve(path, OFlags::PATH)?.into())
    }

    /// Reads a settings file.
    ///
    /// # Errors
    /// `InvalidData` if it is not a regular file, too long, or not UTF-8.
    pub(super) fn text(&self, name: &str) -> io::Result<String> {
        let mut text = String::new();
        let file = self.file(Path::new(name))?;
        match file.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)? as u64 {
            0..=TEXT_BYTES_MAX => Ok(text),
            _ => Err(wrong("is too long")),
        }
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::CLOEXEC;
        match retry_on_intr(|| openat2(&self.0, path, flags, Mode::empty(), resolve)) {
            Err(Errno::LOOP) => Err(wrong("its path contains a symbolic link")),
            opened => Ok(opened?),
        }
    }

    /// Returns the names in this directory, without `.` and `..`.
    pub(super) fn names(&self) -> io::Result<impl Iterator<Item = io::Result<String>>> {
        let entries = Dir::read_from(&self.0)?;
        Ok(entries.filter_map(|entry| match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => None,
            Ok(entry) => Some(Ok(entry.file_name().to_string_lossy().into_owned())),
            Err(error) => Some(Err(error.into())),
        }))
    }

    /// Returns the length of a file in bytes; 0 for other types of files.
    pub(super) fn bytes_of(&self, name: &str) -> io::Result<u64> {
        let found = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        Ok(if is_file { found.st_size as u64 } else { 0 })
    }

    /// Makes a new file for writing.
    ///
    /// # Errors
    /// `AlreadyExists` if the name exists.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(FILE_MODE);
        Ok(retry_on_intr(|| openat(&self.0, name, flags, mode))?.into())
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// `AlreadyExists` if the name exists.
    pub(super) fn make(&self, name: &str) -> io::Result<()> {
        Ok(mkdirat(&self.0, name, Mode::from_raw_mode(DIRECTORY_MODE))?)
    }

    /// Moves a file to another directory, and replaces a file of the same name there.
    pub(super) fn rename(&self, name: &str, to: &Self) -> io::Result<()> {
        Ok(renameat(&self.0, name, &to.0, name)?)
    }

    /// Removes a file, of any type except a directory.
    ///
    /// # Errors
    /// `NotFound` if the name does not exist.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Makes the names in this directory durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| fsync(&self.0))?)
    }
}

/// Returns whether an error means that a file can be reopened only by its name, not through its
/// descriptor. This happens if a server replaced the file, or this machine has no `/proc`.
fn wants_name(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StaleNetworkFileHandle | ErrorKind::NotFound)
}

/// Returns the given file, if it is a regular file.
///
/// # Errors
/// `InvalidData` if it is not.
pub(super) fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(wrong("is not a regular file")) }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
