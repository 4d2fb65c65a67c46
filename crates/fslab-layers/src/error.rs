//! What can be wrong with the description of a stack.

use std::path::PathBuf;

use crate::nearest::{Nearest, suggest};

/// The result of reading a description or building a stack.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a foreign leaf could not be opened.
pub type ForeignError = Box<dyn std::error::Error + Send + Sync>;

/// What is wrong with the description of a stack, in one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No layer has this name.
    #[error("unknown layer '{name}'{}", suggest(nearest))]
    UnknownLayer {
        /// The name given.
        name: String,
        /// What was perhaps meant.
        nearest: Nearest,
    },
    /// The layer has no such option.
    #[error("layer '{layer}' has no option '{option}'{}", suggest(nearest))]
    UnknownOption {
        /// The layer.
        layer: &'static str,
        /// The option given.
        option: String,
        /// What was perhaps meant.
        nearest: Nearest,
    },
    /// The option takes other values.
    #[error("layer '{layer}': option '{option}' is {expected}, not '{value}'")]
    BadValue {
        /// The layer.
        layer: &'static str,
        /// The option.
        option: &'static str,
        /// The value given.
        value: String,
        /// What it takes.
        expected: String,
    },
    /// An option without `=value`, or given twice.
    #[error("layer '{layer}': '{text}' should be one key=value each")]
    BadOption {
        /// The layer.
        layer: &'static str,
        /// The text given.
        text: String,
    },
    /// Access times of a directory can't be chosen.
    #[error(
        "{leaf}: noatime, nodiratime and relatime need CAP_SYS_ADMIN and Linux 5.12, unless the \
         directory is mounted with the same option"
    )]
    AccessTimes {
        /// The directory.
        leaf: String,
    },
    /// A layer can't be used so.
    #[error("layer '{layer}' {what}")]
    Unfit {
        /// The layer.
        layer: &'static str,
        /// Why not.
        what: String,
    },
    /// A line of a file or of a list of rules can't be so.
    #[error("{origin}, line {line}: {source}")]
    Line {
        /// The file, or what gave the lines.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: ForeignError,
    },
    /// A trace can't be written where it should.
    #[error("layer 'trace': {0}")]
    Trace(#[from] fslab_trace::Error),
    /// A file that describes a stack can't be read.
    #[error("{}: {source}", path.display())]
    UnreadableFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A leaf of another crate can't be opened.
    #[error("can't use '{leaf}' as the lower file system: {source}")]
    ForeignLeaf {
        /// What was given.
        leaf: String,
        /// Why.
        source: ForeignError,
    },
    /// A layer of another crate can't be put there.
    #[error("layer '{layer}': {source}")]
    ForeignLayer {
        /// The layer.
        layer: &'static str,
        /// Why.
        source: ForeignError,
    },
    /// A layer can't work over what is below it.
    #[error("layer '{layer}' can't work here: {source}")]
    Layer {
        /// The layer.
        layer: &'static str,
        /// Why.
        source: fslab_vfs::Error,
    },
    /// Somebody else keeps stored files there.
    #[error(
        "layer '{layer}': the lower directory is in use by another fslab mount or tool, or one is \
         used around it; end that first"
    )]
    InUse {
        /// The layer.
        layer: &'static str,
    },
    /// A layer can't have the threads it asked for.
    #[error("layer '{layer}' can't start its threads: {source}")]
    Threads {
        /// The layer.
        layer: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The leaf can't be opened.
    #[error("can't use '{leaf}' as the lower file system: {source}")]
    Leaf {
        /// What was given.
        leaf: String,
        /// Why.
        source: fslab_vfs::Error,
    },
}
