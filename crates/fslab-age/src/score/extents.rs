//! The layout of one file, from its extents.

use fslab_vfs::Extent;

/// How the blocks of a file lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLayout {
    /// Blocks that have a place.
    pub blocks: u64,
    /// Those of them that do not follow their predecessor, the first left out.
    pub breaks: u64,
    /// Pieces, each side by side on the device.
    pub pieces: u64,
    /// Where the first byte lies, in bytes.
    pub first: Option<u64>,
    /// Where the last block ends, in bytes.
    pub end: Option<u64>,
}

impl FileLayout {
    /// Blocks with a predecessor.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.blocks.saturating_sub(1)
    }
}

/// The layout of a file of `size` bytes whose extents are in logical order. What lies beyond its
/// end, as space that was reserved does, is left out. Over a hole, blocks follow each other if
/// nothing lies between them on the device, or just as much as the hole would take.
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

/// The pieces of a file, in blocks each, as [`layout_of`] counts them: extents that follow each
/// other are one.
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

/// The extents up to a file's end, in whole blocks.
fn within(
    extents: &[Extent],
    size: u64,
    block_bytes: u64,
) -> impl Iterator<Item = Extent> + use<'_> {
    let file_end = size.next_multiple_of(block_bytes);
    let used = extents.iter().filter(move |one| one.logical < file_end && one.length > 0);
    used.map(move |extent| {
        // Some file systems tell lengths in bytes: a block is a block.
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
    fn breaks_are_where_blocks_do_not_follow() {
        let block = 4096;
        for (list, size, blocks, breaks) in [
            (vec![], 0, 0, 0),
            (vec![(0, 8192, 4096)], 1, 1, 0),
            (vec![(0, 0, 8192), (8192, 8192, 4096)], 12_288, 3, 0),
            (vec![(0, 0, 8192), (8192, 12_288, 4096)], 12_288, 3, 1),
            (vec![(0, 4096, 4096), (4096, 0, 4096)], 8192, 2, 1),
            // A hole of a block: side by side, a block apart, or elsewhere.
            (vec![(0, 0, 4096), (8192, 4096, 4096)], 12_288, 2, 0),
            (vec![(0, 0, 4096), (8192, 8192, 4096)], 12_288, 2, 0),
            (vec![(0, 0, 4096), (8192, 12_288, 4096)], 12_288, 2, 1),
            // Reserved behind the end.
            (vec![(0, 0, 4096), (4096, 40_960, 8192)], 100, 1, 0),
            (vec![(0, 0, 16_384)], 5000, 2, 0),
            // A length in bytes.
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
