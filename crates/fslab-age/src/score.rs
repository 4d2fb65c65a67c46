//! How contiguous files are, where free space is, and how far it is from file to file.
//!
//! One definition for mounts, images and simulations: the layout score is the share of blocks, the
//! first of each file left out, that directly follow their predecessor on the device. Sums are by
//! blocks, not by files. The rules, also those for holes and for what FIEMAP says:
//! `docs/guide/src/reference/ageing.md`.

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

/// How files are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of a group; `None` where nobody knows, and then no file is split.
    pub group_bytes: Option<u64>,
    /// Bytes of the volume, where a map of what lies where is wanted.
    pub map_bytes: Option<u64>,
}
