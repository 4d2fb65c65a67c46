//! What became of one operation of a trace.

use fslab_vfs::{Handle, Ino};

/// What an operation answered, as far as later ones need it.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Bytes moved, where they must be as many as recorded.
    pub count: Option<u64>,
    /// The inode answered, which counts as one lookup.
    pub found: Option<Ino>,
    /// The open file answered.
    pub opened: Option<OpenFile>,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// Why an operation can't even be asked for.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error("left out: the record lacks an argument")]
    Incomplete,
    #[error("left out: inode {number} is not known here")]
    UnknownInode { number: u64 },
    #[error("left out: handle {number} is not open here")]
    UnknownHandle { number: u64 },
    #[error("left out: {bytes} bytes are more than one operation moves")]
    TooMuch { bytes: u64 },
    #[error("left out: the trace doesn't hold the attribute's value")]
    NoValue,
}

/// An open file or directory of the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenFile {
    pub ino: Ino,
    pub handle: Handle,
    pub is_directory: bool,
    /// Where a listing goes on; cookies of the trace mean nothing here.
    pub cookie: u64,
}
