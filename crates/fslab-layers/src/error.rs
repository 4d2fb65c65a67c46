//! What can be wrong with the description of a stack.

use std::path::PathBuf;

use crate::nearest::{Nearest, suggest};
use crate::observe::fault::rule_problem::RuleProblem;

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
    /// A layer lies over one that changes what it sees of its files.
    #[error(
        "layer '{layer}' needs files as they are in the directory, and '{below}' changes them: the \
         other order, -l {below} -l {layer}, is possible"
    )]
    NotGrounded {
        /// The layer.
        layer: &'static str,
        /// The one below it.
        below: &'static str,
    },
    /// A layer that needs files as they are in the directory lies over itself.
    #[error("layer '{layer}' can be in a stack only once")]
    Twice {
        /// The layer.
        layer: &'static str,
    },
    /// An option that has no default was not given.
    #[error("layer '{layer}' needs {option}=PATH, a place to write to")]
    NotGiven {
        /// The layer.
        layer: &'static str,
        /// The option.
        option: &'static str,
    },
    /// Two options exclude each other.
    #[error("layer '{layer}': {one} and {other} exclude each other: {why}")]
    Together {
        /// The layer.
        layer: &'static str,
        /// One option.
        one: &'static str,
        /// The other.
        other: &'static str,
        /// Why.
        why: &'static str,
    },
    /// A trace can't be written where it should.
    #[error("layer 'trace': {0}")]
    Trace(#[from] fslab_trace::Error),
    /// A file that describes a stack does not parse.
    #[error("{}, line {line}: {}", path.display(), reason.message())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong; its own text goes over several lines.
        reason: Box<toml::de::Error>,
    },
    /// A file names a layer, option or value that does not exist.
    #[error("{}, line {line}: {source}", path.display())]
    BadLayer {
        /// The file.
        path: PathBuf,
        /// The line on which the layer begins, from 1.
        line: usize,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// A file that describes a stack can't be read.
    #[error("{}: {source}", path.display())]
    UnreadableFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A rule of a script of faults is wrong.
    #[error("{origin}, line {line}: {source}")]
    BadRule {
        /// The script, or the option that held the rule.
        origin: String,
        /// The line, or the rule's number in the option, from 1.
        line: usize,
        /// What is wrong with it.
        source: Box<RuleProblem>,
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
