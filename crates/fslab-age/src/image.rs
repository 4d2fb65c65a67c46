//! Aged images: a file system as a workload has left it, packed into a file that says which
//! workload that was; `docs/formats/aged.md` describes it. `zstd -d` makes the image of it too.

mod dump;
mod format;
mod reader;
mod writer;

use std::collections::BTreeMap;

pub use dump::dump;
use fslab_ext2::alloc::{Clustering, PolicySpec};
use fslab_ext2::{Reuse, VolumeOptions};
pub use reader::{AgedImage, is_aged_image};
pub use writer::pack;

/// What an aged image is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The identity of the workload, in hexadecimal. An image of version 1 has the BLAKE3 hash of
    /// the workload file here, which no workload has as its identity.
    pub workload: String,
    /// What else is known of how it was made, each on one line.
    pub facts: BTreeMap<String, String>,
}

/// How the ext2 engine is used to age an image: it places files as a simulation of the same policy
/// does. What is freed is used again at once, which is not safe against power cuts; nobody may use
/// the image before it is whole.
#[must_use]
pub fn engine_use(policy: &'static PolicySpec, clustering: Clustering) -> VolumeOptions {
    VolumeOptions { policy, clustering, reuse: Reuse::AtOnce, ..VolumeOptions::default() }
}

/// How large an aged image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}
