//! Measures the contiguity of files, the free space, and the distances between files.
//!
//! The definition is the same for mounts, images and simulations. The layout score is the share of
//! blocks that directly follow their predecessor on the device. The first block of each file is not
//! included. Sums are weighted by blocks, not by files. `docs/guide/src/reference/ageing.md`
//! describes the rules, including those for holes and FIEMAP.

mod chart;
mod distance;
mod extents;
mod free;
mod host;
mod map;
mod tally;
mod tree;

pub use chart::{Series, chart_by_size, chart_over_time};
pub use distance::{Distance, Distances};
pub(crate) use extents::pieces_of;
pub use extents::{FileLayout, layout_of};
pub use free::FreeSpace;
pub use host::score_directory;
pub(crate) use host::{extents_of_file, open_itself};
pub use map::Map;
pub use tally::{Class, Score, Sums};
pub use tree::{ScoredFile, count_entries, score_files, score_tree, tree_checksum};

/// The rules for scoring files.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Group size in bytes; `None` if unknown, in which case no file is counted as split.
    pub group_bytes: Option<u64>,
    /// Size of the volume in bytes, if a map of it was requested.
    pub map_bytes: Option<u64>,
}
