//! The outcome of one replayed operation.

use fslab_vfs::{Handle, Ino};

/// The results of an operation that later operations need.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Number of bytes read or written, if it must equal the recorded number.
    pub count: Option<u64>,
    /// The returned inode, which counts as one lookup.
    pub found: Option<Ino>,
    /// The open file that was returned.
    pub opened: Option<OpenFile>,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// The reason why an operation can't be repeated.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error("left out: the record lacks an argument")]
    Incomplete,
    #[error("left out: the replay has no inode for the recorded inode {number}")]
    UnknownInode { number: u64 },
    #[error("left out: the replay has no open file for the recorded handle {number}")]
    UnknownHandle { number: u64 },
    #[error("left out: {bytes} bytes are more than one operation can read or write")]
    TooMuch { bytes: u64 },
    #[error("left out: the trace doesn't contain the attribute's value")]
    NoValue,
}

/// An open file or directory of the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenFile {
    pub ino: Ino,
    pub handle: Handle,
    pub is_directory: bool,
    /// The offset at which the next listing continues. The trace's cookies have no meaning on the
    /// target.
    pub cookie: u64,
}
