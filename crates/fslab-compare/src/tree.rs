//! The directory tree that a workload uses, accessed by system calls or by calls within this
//! process.
//!
//! Paths are relative to the tree's root and consist of plain names joined by `/`.

pub(crate) mod copy;
mod host_tree;
pub(crate) mod slowed;
mod stack_tree;
pub(crate) mod sub_tree;

use std::path::Path;

use fslab_vfs::FileSystem;

use crate::error::{Error, Result};

pub(crate) use host_tree::HostTree;
pub(crate) use stack_tree::StackTree;

/// The mode in which an existing file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    Read,
    /// For overwriting.
    Write,
    /// For appending.
    Append,
    /// For reading and overwriting.
    ReadWrite,
    /// For reading and overwriting, bypassing the page cache (`O_DIRECT`). Within this process, it
    /// equals `ReadWrite`.
    Direct,
}

/// The results of `lstat` that workloads use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in bytes.
    pub stored: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether it is a regular file.
    pub is_file: bool,
}

/// A directory tree, shared by threads. An open file belongs to the thread that opened it.
pub trait Tree: Sync {
    /// Creates a directory.
    ///
    /// # Errors
    /// Every method returns the operation's error with its path.
    fn make_directory(&self, path: &str) -> Result<()>;

    /// Creates a file that must not exist and opens it for writing.
    fn create(&self, path: &str) -> Result<Box<dyn TreeFile + '_>>;

    /// Creates an empty file that must not exist.
    fn create_empty(&self, path: &str) -> Result<()> {
        self.create(path)?.close()
    }

    /// Opens a file that exists.
    fn open(&self, path: &str, access: Access) -> Result<Box<dyn TreeFile + '_>>;

    /// Returns the status of a name; does not follow a symbolic link.
    fn status(&self, path: &str) -> Result<Status>;

    /// Calls `each` with every name in a directory except `.` and `..`. The empty path is the root.
    fn list(&self, path: &str, each: &mut dyn FnMut(&str)) -> Result<()>;

    /// Renames a file; replaces a file that has the new name.
    fn rename(&self, path: &str, to: &str) -> Result<()>;

    /// Removes the name of a file.
    fn remove(&self, path: &str) -> Result<()>;

    /// Returns the directory of the tree on this machine; `None` for a tree within this process.
    fn path(&self) -> Option<&Path>;

    /// Makes all files of the tree durable.
    fn sync_all(&self) -> Result<()>;

    /// Calls `work` with a file system whose root is the tree's root.
    fn with_file_system(&self, work: &mut dyn FnMut(&dyn FileSystem) -> Result<()>) -> Result<()>;
}

/// An open file of a tree. Dropping the file closes it and ignores an error; `close` returns the
/// error.
pub trait TreeFile {
    /// Reads at an offset. Returns fewer bytes than requested only at the end of the file or after
    /// a short read of the system.
    ///
    /// # Errors
    /// Every method returns the operation's error with its path.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes all of `data` at an offset.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Appends all of `data`. The file must be open for appending, or newly created and only ever
    /// appended to.
    fn append(&self, data: &[u8]) -> Result<()>;

    /// Makes the file durable.
    fn sync(&self) -> Result<()>;

    /// Returns the number of the file's pages in the page cache; `None` if it has no page cache.
    fn resident_pages(&self) -> Result<Option<u64>>;

    /// Closes the file.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Repeats `write` until all data are written. `write` receives the bytes written so far and the
/// remaining data.
fn write_whole(data: &[u8], write: impl Fn(u64, &[u8]) -> Result<usize>) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        match write(done as u64, &data[done..])? {
            0 => return Err(Error::Failed("a write stored no bytes".to_owned())),
            count => done += count,
        }
    }
    Ok(())
}
