//! Aged images: a file system as a workload has left it, packed into a file that says which
//! workload that was; `docs/formats/aged.md` describes it. `zstd -d` makes the image of it too.

mod dump;
mod format;
mod reader;
mod writer;

use std::collections::BTreeMap;

pub use dump::dump;
pub use reader::{AgedImage, is_aged_image};
pub use writer::pack;

/// What an aged image is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The BLAKE3 hash of the workload file, in hexadecimal.
    pub workload: String,
    /// What else is known of how it was made, each on one line.
    pub facts: BTreeMap<String, String>,
}

/// How large an aged image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}
