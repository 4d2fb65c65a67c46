//! Errors in the description of a stack.

use std::path::PathBuf;

use crate::nearest::{Nearest, suggest};

/// The result of parsing a description or building a stack.
pub type Result<T> = std::result::Result<T, Error>;

/// An error from a leaf or layer that another crate provides.
pub type ForeignError = Box<dyn std::error::Error + Send + Sync>;

/// An error in the description of a stack, in one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No layer has this name.
    #[error("unknown layer '{name}'{}", suggest(nearest))]
    UnknownLayer {
        /// The name given.
        name: String,
        /// Names that were probably meant.
        nearest: Nearest,
    },
    /// The layer has no such option.
    #[error("layer '{layer}' has no option '{option}'{}", suggest(nearest))]
    UnknownOption {
        /// The layer.
        layer: &'static str,
        /// The option given.
        option: String,
        /// Names that were probably meant.
        nearest: Nearest,
    },
    /// The option does not accept the value.
    #[error("layer '{layer}': option '{option}' is {expected}, not '{value}'")]
    BadValue {
        /// The layer.
        layer: &'static str,
        /// The option.
        option: &'static str,
        /// The value given.
        value: String,
        /// The accepted values.
        expected: String,
    },
    /// An option has no `=value`, or is given twice.
    #[error("layer '{layer}': '{text}' must have the form key=value, with each key given once")]
    BadOption {
        /// The layer.
        layer: &'static str,
        /// The text given.
        text: String,
    },
    /// An access time option can't be applied to a directory.
    #[error(
        "{leaf}: noatime, nodiratime and relatime need CAP_SYS_ADMIN and Linux 5.12, unless the \
         directory is mounted with the same option"
    )]
    AccessTimes {
        /// The directory.
        leaf: String,
    },
    /// The layer can't be used with these options or in this stack.
    #[error("layer '{layer}' {what}")]
    Unfit {
        /// The layer.
        layer: &'static str,
        /// The reason.
        what: String,
    },
    /// A line of a file or of a list of rules is invalid.
    #[error("{origin}, line {line}: {source}")]
    Line {
        /// The file, or the source of the lines.
        origin: String,
        /// Number of the line, counted from 1.
        line: usize,
        /// The error in the line.
        source: ForeignError,
    },
    /// A trace can't be written to its path.
    #[error("layer 'trace': {0}")]
    Trace(#[from] fslab_trace::Error),
    /// A file that describes a stack can't be read.
    #[error("{}: {source}", path.display())]
    UnreadableFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A leaf of another crate can't be opened.
    #[error("can't use '{leaf}' as the lower file system: {source}")]
    ForeignLeaf {
        /// The leaf as given.
        leaf: String,
        /// The cause.
        source: ForeignError,
    },
    /// A layer of another crate can't be built.
    #[error("layer '{layer}': {source}")]
    ForeignLayer {
        /// The layer.
        layer: &'static str,
        /// The cause.
        source: ForeignError,
    },
    /// A layer can't work over the file system below it.
    #[error("layer '{layer}' can't work here: {source}")]
    Layer {
        /// The layer.
        layer: &'static str,
        /// The cause.
        source: fslab_vfs::Error,
    },
    /// Another mount or tool uses the lower directory, or a directory above it.
    #[error(
        "layer '{layer}': the lower directory, or a directory above it, is in use by another fslab \
         mount or tool; unmount that mount or stop that tool first"
    )]
    InUse {
        /// The layer.
        layer: &'static str,
    },
    /// The threads of a layer can't be started.
    #[error("layer '{layer}' can't start its threads: {source}")]
    Threads {
        /// The layer.
        layer: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The leaf can't be opened.
    #[error("can't use '{leaf}' as the lower file system: {source}")]
    Leaf {
        /// The leaf as given.
        leaf: String,
        /// The cause.
        source: fslab_vfs::Error,
    },
}
