//! A cache of decoded frames, for all files of a mount.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::frame::Reference;

/// Key of a frame in the cache: the file's id and the frame's reference. After packing, another
/// frame may be at the same offset of a file.
pub type FrameKey = (u64, Reference);

/// A cache of decoded frame contents. A frame never changes, so no entry becomes stale.
pub type DecodedCache = Cache<FrameKey, Arc<Vec<u8>>, BytesOfContent>;

/// Weighs cached content by its bytes.
#[derive(Clone)]
pub struct BytesOfContent;

impl Weighter<FrameKey, Arc<Vec<u8>>> for BytesOfContent {
    fn weight(&self, _: &FrameKey, content: &Arc<Vec<u8>>) -> u64 {
        content.len() as u64 + 64
    }
}
