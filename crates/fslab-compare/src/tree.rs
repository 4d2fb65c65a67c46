//! What workloads act on: a directory tree, reached by system calls or in process.
//!
//! Paths are relative to the tree's root, of plain names joined by `/`.

pub(crate) mod copy;
mod host_tree;
pub(crate) mod slowed;
mod stack_tree;
pub(crate) mod sub_tree;

use std::path::Path;

use fslab_vfs::FileSystem;

use crate::error::Result;

pub(crate) use host_tree::HostTree;
pub(crate) use stack_tree::StackTree;

/// How an existing file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    Read,
    /// For writing over what is there.
    Write,
    /// For writing at the end.
    Append,
    /// For reading and for writing over what is there.
    ReadWrite,
    /// The same, past the page cache (O_DIRECT); in process it is as above.
    Direct,
}

/// What `lstat` tells workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Size in bytes.
    pub size: u64,
    /// Space it takes, in bytes.
    pub stored: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether it is a regular file.
    pub is_file: bool,
}

/// A directory tree. Threads share it; a file is of the thread that opened it.
pub trait Tree: Sync {
    /// Creates a directory.
    ///
    /// # Errors
    /// What the operation answered, with its path; so for all methods.
    fn make_directory(&self, path: &str) -> Result<()>;

    /// Creates a file that must not exist and opens it for writing.
    fn create(&self, path: &str) -> Result<Box<dyn TreeFile + '_>>;

    /// Creates an empty file that must not exist.
    fn create_empty(&self, path: &str) -> Result<()> {
        self.create(path)?.close()
    }

    /// Opens a file that exists.
    fn open(&self, path: &str, access: Access) -> Result<Box<dyn TreeFile + '_>>;

    /// The status of a name, not following a link.
    fn status(&self, path: &str) -> Result<Status>;

    /// Calls back with every name in a directory but `.` and `..`; the empty path is the root.
    fn list(&self, path: &str, each: &mut dyn FnMut(&str)) -> Result<()>;

    /// Gives a file another name, in place of what has it.
    fn rename(&self, path: &str, to: &str) -> Result<()>;

    /// Removes the name of a file.
    fn remove(&self, path: &str) -> Result<()>;

    /// The directory of this machine where it is found; `None` for one in process.
    fn path(&self) -> Option<&Path>;

    /// Makes everything durable.
    fn sync_all(&self) -> Result<()>;

    /// Hands the tree over as a file system, whose root is the tree's.
    fn with_file_system(&self, work: &mut dyn FnMut(&dyn FileSystem) -> Result<()>) -> Result<()>;
}

/// An open file of a tree. Dropping closes it and loses the error; `close` reports it.
pub trait TreeFile {
    /// Reads at an offset; answers less than asked only at the end of the file or where the
    /// system returned early.
    ///
    /// # Errors
    /// What the operation answered, with its path; so for all methods.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes all of `data` at an offset.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Writes all of `data` at the end, of a file opened for that or created and only appended to.
    fn append(&self, data: &[u8]) -> Result<()>;

    /// Makes the file durable.
    fn sync(&self) -> Result<()>;

    /// Pages of the file in the page cache; `None` where there is no such thing.
    fn resident_pages(&self) -> Result<Option<u64>>;

    /// Closes it.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Writes until all is taken; `write` is told how much was taken, and what is left.
fn write_whole(data: &[u8], write: impl Fn(u64, &[u8]) -> Result<usize>) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        done += write(done as u64, &data[done..])?;
    }
    Ok(())
}
