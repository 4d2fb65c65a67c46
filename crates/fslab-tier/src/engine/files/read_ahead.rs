//! Reading and read-ahead. Programs wait only for the blocks of their own ranges. For sequential
//! readers, the next blocks are requested in advance.
//!
//! Each handle has its own position, so that two readers of a file do not disturb each other. The
//! window of requested blocks moves ahead of this position, even while the reader finds resident
//! blocks.

use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{FileSystem, Handle, Request, Result};
use parking_lot::Mutex;

use crate::engine::Tier;
use crate::engine::files::TieredFile;
use crate::stored::BLOCK_BYTES;
use crate::stored::format::{blocks_met, blocks_of};

/// Maximum distance in bytes between a sequential read and the expected offset. The kernel sends
/// several requests at a time, and any of them may arrive first.
const DISORDER_MAX: u64 = 2 * BLOCK_BYTES;

/// The position of a handle's reader. A new handle is at the beginning of its file.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead(Mutex<Progress>);

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The end of the bytes read so far.
    end: u64,
    /// Whether the last read continued where the previous read ended.
    is_in_order: bool,
    /// The block after the last one that was requested in advance.
    asked: u64,
}

impl ReadAhead {
    /// Records a read, and returns the blocks to request in advance. Blocks that were already
    /// requested are skipped. The range is empty if the reader is not sequential.
    fn note(&self, bytes: Range<u64>, ahead: u64) -> Range<u64> {
        let mut progress = self.0.lock();
        let Progress { end, is_in_order, asked } = *progress;
        let is_near = is_in_order && bytes.start.abs_diff(end) <= DISORDER_MAX;
        if bytes.start != end && !is_near {
            *progress = Progress { end: bytes.end, ..Progress::default() };
            return 0..0;
        }
        let end = bytes.end.max(end);
        let next = blocks_of(end);
        let wanted = next.max(asked)..next.saturating_add(ahead).max(asked);
        *progress = Progress { end, is_in_order: true, asked: wanted.end };
        wanted
    }
}

impl Tier {
    /// Reads from a file; waits only for blocks of the range.
    ///
    /// # Errors
    /// Errors of a recall or of the lower file.
    pub(crate) fn read(
        &self,
        file: &Arc<TieredFile>,
        request: &Request,
        (handle, place): (Handle, &ReadAhead),
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let length = buffer.len() as u64;
        let blocks = blocks_met(offset, length);
        loop {
            if self.state(file)?.has_offline() {
                // A deferred read was already recorded before it was deferred.
                let ahead = match request.deferral.is_resumed() {
                    true => 0..0,
                    false => place.note(offset..offset.saturating_add(length), self.settings.ahead),
                };
                self.recall_to_read(file, blocks.clone(), ahead, request)?;
            }
            let count = self.lower.read(request, file.ino(), handle, offset, buffer)?;
            let state = self.state(file)?;
            let Some(known) = state.known() else { return Ok(count) };
            // This fails if a block was released during the read.
            if self.show_from_memory(known, offset, &mut buffer[..count]) {
                return Ok(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the blocks requested in advance for reads at these offsets, given in quarters of a
    /// block.
    fn ahead(reads: &[(u64, u64)]) -> Vec<Range<u64>> {
        let (place, scale) = (ReadAhead::default(), BLOCK_BYTES / 4);
        let note = |(start, length)| place.note(start * scale..(start + length) * scale, 4);
        reads.iter().map(|read| note(*read)).filter(|blocks| !blocks.is_empty()).collect()
    }

    #[test]
    fn window_moves_ahead_of_a_sequential_reader() {
        assert_eq!(ahead(&[(0, 1), (1, 1), (2, 2), (4, 1), (5, 7)]), [1..5, 5..6, 6..7]);
        assert_eq!(ahead(&[(80, 4)]), [0..0; 0], "the first read is far from the start");
        assert_eq!(ahead(&[(81, 2), (83, 2), (85, 4)]), [22..26, 26..27]);
        assert_eq!(ahead(&[(0, 4), (8, 4), (4, 4), (12, 4)]), [1..5, 5..7, 7..8]);
    }

    #[test]
    fn jump_restarts_read_ahead() {
        assert_eq!(ahead(&[(40, 1), (8, 1), (16, 4), (24, 1), (41, 1)]), [0..0; 0]);
        assert_eq!(ahead(&[(0, 4), (40, 4), (44, 4), (0, 4)]), [1..5, 12..16]);
    }
}
