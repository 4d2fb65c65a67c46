//! Aged images: the image of an aged file system, packed into a file that identifies the workload.
//! `docs/formats/aged.md` describes the format. `zstd -d` can also unpack it.

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

/// The identity of an aged image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The identity of the workload, in hexadecimal. An image of version 1 contains the BLAKE3 hash
    /// of the workload file instead, which never equals the identity of a workload.
    pub workload: String,
    /// Other facts about how the image was made; each must fit on one line.
    pub facts: BTreeMap<String, String>,
}

/// Returns the options of the ext2 engine for ageing an image. They make the engine allocate blocks
/// like a simulation of the same policy. Freed blocks are reused at once, which is not safe against
/// power cuts. Therefore the image must not be used before it is complete.
#[must_use]
pub fn engine_use(policy: &'static PolicySpec, clustering: Clustering) -> VolumeOptions {
    VolumeOptions { policy, clustering, reuse: Reuse::AtOnce, ..VolumeOptions::default() }
}

/// The sizes of an aged image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Size of the image in bytes.
    pub image_bytes: u64,
    /// Size of the packed file in bytes.
    pub file_bytes: u64,
}
