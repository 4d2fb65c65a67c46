//! Computes the layout of one file from its extents.

use fslab_vfs::Extent;

/// The layout of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLayout {
    /// Number of allocated blocks.
    pub blocks: u64,
    /// Number of blocks that do not follow their predecessor, not including the first block.
    pub breaks: u64,
    /// Number of contiguous pieces on the device.
    pub pieces: u64,
    /// Offset of the first byte on the device.
    pub first: Option<u64>,
    /// Offset of the end of the last block on the device, in bytes.
    pub end: Option<u64>,
}

impl FileLayout {
    /// Returns the number of blocks with a predecessor.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.blocks.saturating_sub(1)
    }
}

/// Returns the layout of a file of `size` bytes; extents must be in logical order. Preallocated
/// space past the end of the file is ignored. Across a hole, two blocks count as contiguous if they
/// are adjacent on the device, or if the gap between them is as long as the hole.
#[must_use]
pub fn layout_of(extents: &[Extent], size: u64, block_bytes: u64) -> FileLayout {
    let mut layout = FileLayout::default();
    let mut last: Option<Extent> = None;
    for extent in within(extents, size, block_bytes) {
        layout.blocks += extent.length / block_bytes;
        let follows = last.is_some_and(|last| follows(&last, &extent));
        layout.breaks += u64::from(last.is_some() && !follows);
        layout.pieces += u64::from(!follows);
        layout.first = layout.first.or(Some(extent.physical));
        last = Some(extent);
    }
    layout.end = last.map(|last| last.physical + last.length);
    layout
}

/// Returns the lengths of a file's contiguous pieces in blocks. As in [`layout_of`], extents that
/// follow each other are one piece.
#[must_use]
pub fn pieces_of(extents: &[Extent], size: u64, block_bytes: u64) -> Vec<u64> {
    let mut pieces: Vec<u64> = Vec::new();
    let mut last: Option<Extent> = None;
    for extent in within(extents, size, block_bytes) {
        let blocks = extent.length / block_bytes;
        match pieces.last_mut() {
            Some(piece) if last.is_some_and(|last| follows(&last, &extent)) => *piece += blocks,
            _ => pieces.push(blocks),
        }
        last = Some(extent);
    }
    pieces
}

/// Returns the extents up to the end of a file, rounded to whole blocks.
fn within(
    extents: &[Extent],
    size: u64,
    block_bytes: u64,
) -> impl Iterator<Item = Extent> + use<'_> {
    let file_end = size.next_multiple_of(block_bytes);
    let used = extents.iter().filter(move |one| one.logical < file_end && one.length > 0);
    used.map(move |extent| {
        // Some file systems report lengths in bytes; round them up to blocks.
        let length = extent.length.next_multiple_of(block_bytes).min(file_end - extent.logical);
        Extent { length, ..*extent }
    })
}

fn follows(last: &Extent, next: &Extent) -> bool {
    let end = last.physical + last.length;
    let hole = next.logical.saturating_sub(last.logical + last.length);
    next.physical == end || next.physical == end + hole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(list: &[(u64, u64, u64)]) -> Vec<Extent> {
        let extent = |&(logical, physical, length)| Extent { logical, physical, length };
        list.iter().map(extent).collect()
    }

    #[test]
    fn breaks_are_counted_between_nonadjacent_blocks() {
        let block = 4096;
        for (list, size, blocks, breaks) in [
            (vec![], 0, 0, 0),
            (vec![(0, 8192, 4096)], 1, 1, 0),
            (vec![(0, 0, 8192), (8192, 8192, 4096)], 12_288, 3, 0),
            (vec![(0, 0, 8192), (8192, 12_288, 4096)], 12_288, 3, 1),
            (vec![(0, 4096, 4096), (4096, 0, 4096)], 8192, 2, 1),
            // A hole of one block whose neighbours are adjacent, one block apart, or further apart.
            (vec![(0, 0, 4096), (8192, 4096, 4096)], 12_288, 2, 0),
            (vec![(0, 0, 4096), (8192, 8192, 4096)], 12_288, 2, 0),
            (vec![(0, 0, 4096), (8192, 12_288, 4096)], 12_288, 2, 1),
            // Preallocated space past the end.
            (vec![(0, 0, 4096), (4096, 40_960, 8192)], 100, 1, 0),
            (vec![(0, 0, 16_384)], 5000, 2, 0),
            // A length that is not a multiple of the block size.
            (vec![(0, 0, 5000)], 5000, 2, 0),
        ] {
            let layout = layout_of(&extents(&list), size, block);
            assert_eq!((layout.blocks, layout.breaks), (blocks, breaks), "{list:?} of {size}");
            assert_eq!(layout.pieces, breaks + u64::from(blocks > 0), "{list:?} of {size}");
            let pieces = pieces_of(&extents(&list), size, block);
            assert_eq!(pieces.len() as u64, layout.pieces, "{list:?} of {size}");
            assert_eq!(pieces.iter().sum::<u64>(), blocks, "{list:?} of {size}");
        }
    }
}
