//! Errors of the tools that work on stored files and trees while nothing is mounted.

use std::path::PathBuf;

/// The result of a tool.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a tool refuses a stored file or a tree of stored files, in one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The layer of a conversion can't be built.
    #[error(transparent)]
    Layers(#[from] fslab_layers::Error),
    /// Only a part of a stored file could be read, because other parts are missing.
    #[error("{}: offset {offset}: {what}; see `fslab sca repair`", path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// Offset in the stored file.
        offset: u64,
        /// The missing part.
        what: String,
    },
    /// A stored file can't be used.
    #[error("{}: {}", path.display(), explain(source))]
    StoredFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: fslab_vfs::Error,
    },
    /// A layer does not encode.
    #[error("layer '{layer}' does not encode; use gzip, zstd, lz4, uuencode or copy")]
    NoCodec {
        /// The layer.
        layer: &'static str,
    },
    /// A tree lies inside another tree whose files are all plain.
    #[error(
        "the surrounding tree {} was decoded or is being encoded: encode or decode that whole \
         tree, or remove its xattr user.fslab.sca.tree", path.display()
    )]
    PartOfPlainTree {
        /// The surrounding tree.
        path: PathBuf,
    },
    /// A file is not a stored file.
    #[error("{} is not a stored file of an fslab layer", path.display())]
    NoStoredFile {
        /// The file.
        path: PathBuf,
    },
}

fn explain(source: &fslab_vfs::Error) -> String {
    match source.errno() {
        fslab_vfs::Errno::BUSY => {
            "an fslab mount or tool is using it; unmount or wait, then try again".to_owned()
        }
        _ => source.to_string(),
    }
}
